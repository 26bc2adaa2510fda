//! The arena: one sparse shared file per node, where the pages of registered memory live.
//!
//! Owns: the file, its offsets (handed out once, never again), the map of moved pages.
//! Takes: regions to move.
//! Gives: `Arena::adopt` -> `Adoption` with extents peers can reach; `map_peer` for the other side.
//! Must not: reuse an offset; decide whether moving is wanted.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::MFdFlags;
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use nix::sys::stat::{fstat, major, minor};

use crate::fork::{self, FdWatch};
use crate::maps::Origins;
use crate::region::{MapAccess, Region, check_cannot_shrink, lengthen, new_memfd, page_len};
use crate::writers::{Gate, Writers};

/// Length of an arena's file in bytes: sparse, so it costs nothing, and large, so that offsets need
/// never be reused and a mapping that grows by accident does not run past the end.
pub const ARENA_LEN: u64 = 1 << 40;

/// Pages are moved and moved back in pieces of at most this many bytes; also the boundary on which
/// addresses and offsets agree, so that the kernel can join base pages to huge ones.
pub(crate) const CHUNK_LEN: usize = 2 << 20;

/// Unused bytes after every range: what runs past a range's end by accident meets no other range.
const GAP_LEN: u64 = 64 << 10;

/// Bytes at the end of the file that no range has and no peer maps: a page. The system places mappings of one length
/// one below the other, so arenas mapped whole would lie 2^40 bytes apart, and the same page of each in the same place
/// of every cache that is indexed by address: 8-byte writes to 63 peers in turn took 45 ns more each.
fn tail_len() -> u64 {
    page_len() as u64
}

/// How an arena moves pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ArenaCfg {
    /// Threads that store into memory while it moves.
    pub writers: Writers,
    /// Pages that moved memory gets.
    pub huge_pages: HugePages,
}

/// Pages that moved memory gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HugePages {
    /// Pages of the base size of the machine (4096 bytes on x86-64).
    #[default]
    Off,
    /// Huge ones where a whole one fits and the kernel has some (Linux 6.1, `MADV_COLLAPSE`); no one
    /// needs to reserve them. Registering then costs 0.7-2.1 ms more per MiB; programs with random
    /// accesses get some 16 % back that moving to base pages takes from them.
    Joined,
}

/// A node's arena. Clones are the same arena; the file goes with the last of them and of its adoptions.
#[derive(Debug, Clone)]
pub struct Arena {
    pub(crate) shared: Arc<ArenaShared>,
}

/// What adoptions share with their arena.
#[derive(Debug)]
pub(crate) struct ArenaShared {
    /// Declared before the file: it is dropped first.
    _watch: FdWatch,
    pub(crate) fd: OwnedFd,
    /// Device and inode of the file, as the kernel shows them of a mapping.
    pub(crate) file: (u32, u32, u64),
    /// `None`: the kernel cannot be asked for mappings.
    pub(crate) origins: Option<Origins>,
    pub(crate) gate: Gate,
    len: u64,
    pub(crate) cfg: ArenaCfg,
    /// Fork generation at the arena's birth.
    pub(crate) generation: u64,
    ledger: Mutex<Ledger>,
}

/// Which pages are in the arena. Ranges are disjoint, whole pages, keyed by address.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) moved: BTreeMap<usize, Moved>,
    offset_next: u64,
}

/// A range of moved pages that the same adoptions count on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moved {
    pub(crate) len: usize,
    pub(crate) offset: u64,
    /// Adoptions that include the range.
    pub(crate) holders: usize,
    /// The pages were locked in memory before the move.
    pub(crate) is_locked: bool,
    pub(crate) is_dontfork: bool,
}

impl Arena {
    /// A new, empty arena that holds writers where it can, and has base pages.
    ///
    /// # Errors
    /// The system's, when there is no memfd to be had.
    pub fn new() -> io::Result<Self> {
        Self::with(ArenaCfg::default())
    }

    /// A new, empty arena.
    ///
    /// # Errors
    /// The system's, when there is no memfd to be had.
    pub fn with(cfg: ArenaCfg) -> io::Result<Self> {
        let file_len = file_len_max()?;
        let len = file_len.saturating_sub(tail_len());
        let fd = new_memfd("urma-arena", MFdFlags::empty())?;
        lengthen(&fd, file_len)?;
        fcntl(&fd, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW))?;
        let watch = fork::watch_fd(fd.as_fd())?;
        let generation = fork::generation();
        let stat = fstat(&fd)?;
        let number = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let file = (number(major(stat.st_dev)), number(minor(stat.st_dev)), stat.st_ino);
        let shared = ArenaShared {
            _watch: watch,
            fd,
            file,
            origins: Origins::new().ok(),
            gate: Gate::new(cfg.writers)?,
            len,
            cfg,
            generation,
            ledger: Mutex::default(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The file, to be passed to peers of the same user.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.shared.fd.as_fd()
    }

    /// Bytes that ranges may have, and peers map.
    pub fn len(&self) -> u64 {
        self.shared.len
    }

    /// Whether no page is moved at the moment; always in a forked child, which has no arena.
    pub fn is_empty(&self) -> bool {
        fork::forked_since(self.shared.generation) || self.shared.ledger().moved.is_empty()
    }

    /// Maps all of a peer's arena that a range may have, once per peer: 8 us, no memory. Offsets in the result are the peer's
    /// `arena_offset`s. Each page costs 2 us at its first touch.
    ///
    /// # Errors
    /// `PermissionDenied` when the file may shrink; `InvalidInput` when it is longer than [`ARENA_LEN`];
    /// else the system's (an address-space limit, for instance).
    pub fn map_peer(fd: OwnedFd) -> io::Result<Region> {
        let len = u64::try_from(fstat(&fd)?.st_size).unwrap_or(0);
        if len > ARENA_LEN {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "arena too long"));
        }
        check_cannot_shrink(fd.as_fd(), len)?;
        let len = len.saturating_sub(tail_len());
        let len = usize::try_from(len).map_err(|_| io::ErrorKind::InvalidInput)?;
        let region = Region::map_fd(fd, 0, len, MapAccess::ReadWrite)?;
        region.exclude_from_dumps();
        Ok(region)
    }
}

impl ArenaShared {
    /// Which parts of `len` bytes at `addr` are those at `offset` of the file: the owner may have unmapped some, and mapped
    /// something else there. All where the kernel cannot be asked.
    pub(crate) fn shown_at(&self, addr: usize, len: usize, offset: u64) -> Vec<(usize, usize)> {
        let Some(origins) = &self.origins else { return vec![(addr, len)] };
        let (mut parts, mut at) = (Vec::new(), addr);
        while at < addr + len {
            let found = origins.at_or_after(at).filter(|found| found.start < addr + len);
            let Some(found) = found else { break };
            let found = found.from(found.start.max(at));
            let end = found.end.min(addr + len);
            let (file, there) = (found.origin.file, offset + (found.start - addr) as u64);
            if file == self.file && found.origin.offset == there && found.origin.is_shared {
                parts.push((found.start, end - found.start));
            }
            at = end;
        }
        parts
    }

    /// The ledger; control plane only. A panic elsewhere leaves it as consistent as each step left it.
    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`Arena::len`], for adoptions.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Bytes the file occupies now.
    ///
    /// # Errors
    /// The system's.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn occupied(&self) -> io::Result<u64> {
        Ok(u64::try_from(fstat(&self.fd)?.st_blocks).unwrap_or(0) * 512)
    }
}

impl Ledger {
    /// An offset for `len` bytes at `addr` that was never handed out, or `None` when the first `len_max` of the file are used up.
    /// Ranges that can hold a huge page agree with their address modulo 2 MiB.
    pub(crate) fn take_offset(&mut self, addr: usize, len: usize, len_max: u64) -> Option<u64> {
        let unit = if len >= CHUNK_LEN { CHUNK_LEN as u64 } else { page_len() as u64 };
        let wanted = addr as u64 % unit;
        let base = self.offset_next.checked_next_multiple_of(unit)?;
        let offset = base.checked_add(wanted)?;
        let end = offset.checked_add(len as u64)?;
        if end > len_max {
            return None;
        }
        self.offset_next = end.checked_add(GAP_LEN)?.checked_next_multiple_of(page_len() as u64)?;
        Some(offset)
    }

    /// Splits the range that contains `addr` so that one starts there.
    pub(crate) fn split_at(&mut self, addr: usize) {
        let Some((&start, &range)) = self.moved.range(..addr).next_back() else { return };
        let head = addr - start;
        if head >= range.len {
            return;
        }
        let offset = range.offset + head as u64;
        self.moved.insert(start, Moved { len: head, ..range });
        self.moved.insert(addr, Moved { len: range.len - head, offset, ..range });
    }
}

/// The arena's length, or less where the process may not make files that long.
fn file_len_max() -> io::Result<u64> {
    let (limit, _) = getrlimit(Resource::RLIMIT_FSIZE)?;
    let limit = if limit == RLIM_INFINITY { ARENA_LEN } else { limit.min(ARENA_LEN) };
    Ok(limit - limit % CHUNK_LEN as u64)
}
