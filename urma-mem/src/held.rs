//! A program's registered memory as its device stores to it for a peer: without dying with it.
//!
//! The owner of registered memory may unmap it, and map something else at its addresses, before it unregisters. What
//! a peer still writes then must neither end the process nor change what came later. Must not be used for a
//! program's own accesses to its own memory, which may fault as any others do.
#![expect(unsafe_code, reason = "the system calls take raw vectors")]

use std::io;
use std::sync::Arc;

use crate::maps::{Origin, OriginRun, Origins};
use crate::procvm::ProcessMemory;
use crate::region::{OutOfBounds, Region, WordAtomic, page_ceil, page_floor};
use crate::sync::{AtomicBool, AtomicU64, Ordering};
use crate::{Arena, Extent};

/// Nanoseconds for which a look at the mappings is believed. It costs a system call.
const LOOK_NS: u64 = 20_000;
/// Bytes at the end of what is pulled that are stored last: two words, so that an unaligned last one is whole.
const TAIL: usize = 16;

/// Makes [`HeldMemory`] for registrations with pages in one arena.
#[derive(Debug)]
pub struct MemoryHolder {
    /// The arena as this process's device sees it; `None`: no address space for it.
    arena: Option<Region>,
    /// Device and inode of the arena, as the kernel shows them of a mapping.
    file: (u32, u32, u64),
    /// `None`: the kernel cannot be asked for mappings.
    origins: Option<Arc<Origins>>,
    /// The kernel copies within this process; a filter of system calls may refuse.
    has_kernel_copies: bool,
}

/// Registered memory, for accesses of peers. Clones are the same memory.
///
/// Pages in the arena are reached through the device's own mapping of the arena: they stay, whatever becomes of the
/// addresses. All other memory is reached through the kernel (`process_vm_writev` on this process), which answers
/// EFAULT where a store would end the program. In both cases the addresses are looked at first
/// (`HeldMemory::is_there`): the same file at the same offset as at registration. One anonymous mapping looks like
/// the next, so a piece of it is believed where the nearest piece with a file (moved pages: the rest of the same
/// buffer) is still there.
#[derive(Debug, Clone)]
pub struct HeldMemory(Arc<HeldParts>);

#[derive(Debug)]
struct HeldParts {
    memory: Region,
    /// Pages in the arena, in order: offset in `memory` and the device's own window on them.
    aliases: Vec<(usize, Region)>,
    /// `None`: the memory is not the program's to unmap.
    guard: Option<UnmapGuard>,
}

/// What tells whether the program's addresses still show the memory.
#[derive(Debug)]
struct UnmapGuard {
    origins: Option<Arc<Origins>>,
    /// What lay there at registration, in order. Pages of the arena that are not this registration's count as anonymous:
    /// they come and go with others.
    runs: Vec<OriginRun>,
    /// Device and inode of the arena.
    file: (u32, u32, u64),
    has_kernel_copies: bool,
    /// The last look that found all as it was: addresses, and the time until which it is believed. Written by the thread
    /// that serves peers; a torn look only delays a refusal.
    seen: [AtomicU64; 3],
    is_reported: AtomicBool,
}

impl MemoryHolder {
    /// For pages that move to `arena`.
    #[must_use]
    pub fn new(arena: &Arena) -> Self {
        let file = arena.shared.file;
        let alias = arena.fd().try_clone_to_owned().and_then(Arena::map_peer);
        let alias = alias.inspect_err(|error| {
            tracing::warn!(%error, "the device cannot map its arena: what peers write by packets is placed by the kernel");
        });
        let (mut to, from) = ([0_u8; 1], [1_u8; 1]);
        let has_kernel_copies = store(to.as_mut_ptr().expose_provenance(), &from).is_ok();
        if !has_kernel_copies {
            tracing::info!(
                "process_vm_writev is refused: memory that did not move is stored to as it is mapped"
            );
        }
        let origins = Origins::new().ok().map(Arc::new);
        Self { arena: alias.ok(), file, origins, has_kernel_copies }
    }

    /// The memory of a registration, of which `extents` are in the arena.
    #[must_use]
    pub fn hold(&self, memory: &Region, extents: &[Extent]) -> HeldMemory {
        if !memory.is_callers() {
            return HeldMemory::plain(memory);
        }
        let (start, len) = (memory.addr(), memory.len());
        let alias = |extent: &Extent| {
            let from = extent.addr.max(start);
            let len = (extent.addr + extent.len).min(start + len).checked_sub(from)?;
            let at = usize::try_from(extent.arena_offset).ok()? + (from - extent.addr);
            Some((from - start, self.arena.as_ref()?.sub(at, len).ok()?))
        };
        let aliases = extents.iter().filter_map(alias).collect();
        let runs = self.runs(memory, !extents.is_empty());
        let origins = self.origins.clone().filter(|_| runs.is_some());
        let guard = UnmapGuard {
            origins,
            runs: runs.unwrap_or_default(),
            file: self.file,
            has_kernel_copies: self.has_kernel_copies,
            seen: Default::default(),
            is_reported: AtomicBool::new(false),
        };
        HeldMemory(Arc::new(HeldParts { memory: memory.clone(), aliases, guard: Some(guard) }))
    }

    /// What lies under the pages of the memory, of which the whole ones in the arena are its own or not.
    fn runs(&self, memory: &Region, has_moved: bool) -> Option<Vec<OriginRun>> {
        let origins = self.origins.as_ref()?;
        let (start, end) = (memory.addr(), memory.addr() + memory.len());
        let (first, last) = (page_floor(start), page_ceil(end)?);
        let whole = (page_ceil(start)?.min(last), page_floor(end).max(first));
        // A range within one page has no whole ones.
        let (head, tail) = if whole.0 < whole.1 { whole } else { (last, last) };
        let mut all = Vec::new();
        for (from, to, is_own) in
            [(first, head, false), (head, tail, has_moved), (tail, last, false)]
        {
            for run in origins.runs(from, to)? {
                let is_others = !is_own && run.origin.file == self.file;
                all.push(if is_others {
                    OriginRun { origin: Origin::ANONYMOUS, ..run }
                } else {
                    run
                });
            }
        }
        Some(all)
    }
}

impl HeldMemory {
    /// Memory that stays mapped as long as the region.
    #[must_use]
    pub fn plain(memory: &Region) -> Self {
        Self(Arc::new(HeldParts { memory: memory.clone(), aliases: Vec::new(), guard: None }))
    }

    /// Address of the byte at `offset`.
    #[must_use]
    pub fn addr(&self, offset: usize) -> usize {
        self.0.memory.addr().wrapping_add(offset)
    }

    /// Whether the program's addresses still show `len` bytes at `offset`. What was seen is believed for 20 us.
    #[must_use]
    pub fn is_there(&self, (offset, len): (usize, usize), now_ns: u64) -> bool {
        let Some(guard) = &self.0.guard else { return true };
        let Ok(part) = self.0.memory.sub(offset, len) else { return false };
        let (start, end) = (part.addr() as u64, (part.addr() + len) as u64);
        let [from, to, until] = guard.seen.each_ref().map(|seen| seen.load(Ordering::Relaxed));
        if now_ns < until && from <= start && end <= to {
            return true;
        }
        let Some(seen) = guard.look(&part) else {
            guard.tell(&part);
            return false;
        };
        let until = now_ns.saturating_add(LOOK_NS);
        for (word, value) in guard.seen.iter().zip([seen.0 as u64, seen.1 as u64, until]) {
            word.store(value, Ordering::Relaxed);
        }
        true
    }

    /// Where `len` bytes at `offset` are stored to by plain stores: in the arena if they lie there, else at the
    /// program's addresses.
    #[inline]
    #[must_use]
    pub fn window(&self, offset: usize, len: usize) -> (&Region, usize) {
        self.alias(offset, len).unwrap_or((&self.0.memory, offset))
    }

    /// Copies bytes in.
    ///
    /// # Errors
    /// [`MemoryGone`]; some bytes may have been stored.
    pub fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), MemoryGone> {
        self.pieces(offset, bytes.len(), |place, done, len| match place {
            PiecePlace::Plain(memory, at) => {
                memory.write(at, &bytes[done..done + len]).map_err(gone)
            }
            PiecePlace::Program(addr) => store(addr, &bytes[done..done + len]),
        })
    }

    /// Copies bytes in, the last 8 of them after all others.
    ///
    /// # Errors
    /// [`MemoryGone`]; some bytes may have been stored.
    pub fn write_ordered(&self, offset: usize, bytes: &[u8]) -> Result<(), MemoryGone> {
        self.pieces(offset, bytes.len(), |place, done, len| {
            let bytes = &bytes[done..done + len];
            match place {
                PiecePlace::Plain(memory, at) => memory.write_ordered(at, bytes).map_err(gone),
                PiecePlace::Program(addr) => {
                    let body = body_len(addr, len);
                    store(addr, &bytes[..body])?;
                    store(addr + body, &bytes[body..])
                }
            }
        })
    }

    /// Copies `len` bytes of `from` in.
    ///
    /// # Errors
    /// [`MemoryGone`], also of bytes outside `from`; some bytes may have been stored.
    pub fn copy_in(
        &self,
        offset: usize,
        (from, from_offset): (&Region, usize),
        (len, order): (usize, CopyOrder),
    ) -> Result<(), MemoryGone> {
        self.pieces(offset, len, |place, done, len| match place {
            PiecePlace::Plain(memory, at) => {
                from.copy_to_ordered(from_offset + done, memory, at, len).map_err(gone)
            }
            PiecePlace::Program(addr) => {
                let part = from.sub(from_offset + done, len).map_err(gone)?;
                let body = if order == CopyOrder::EndLast { body_len(addr, len) } else { len };
                store_of(addr, &part.sub(0, body).map_err(gone)?)?;
                store_of(addr + body, &part.sub(body, len - body).map_err(gone)?)
            }
        })
    }

    /// Copies `len` bytes at `addr` of another process in, all but the end by one system call.
    ///
    /// # Errors
    /// The kernel does not read them there, or does not store them here; some bytes may have been stored.
    pub fn pull(
        &self,
        offset: usize,
        (process, addr): (&ProcessMemory, u64),
        (len, order): (usize, CopyOrder),
    ) -> io::Result<()> {
        let mut tail = [0_u8; TAIL];
        let body = if order == CopyOrder::EndLast { len.saturating_sub(TAIL) } else { len };
        let tail = &mut tail[..len - body];
        process.read_apart(addr, self.window(offset, body), body, tail)?;
        self.write_ordered(offset + body, tail).map_err(io::Error::other)
    }

    /// Copies bytes out.
    ///
    /// # Errors
    /// [`MemoryGone`]; `bytes` may have been written.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<(), MemoryGone> {
        self.pieces(offset, bytes.len(), |place, done, len| {
            let bytes = &mut bytes[done..done + len];
            match place {
                PiecePlace::Plain(memory, at) => memory.read(at, bytes).map_err(gone),
                PiecePlace::Program(addr) => load(addr, bytes),
            }
        })
    }

    /// Stores a word, everything before it first.
    ///
    /// # Errors
    /// Outside, or not aligned.
    pub fn store_u64_release(&self, offset: usize, value: u64) -> Result<(), OutOfBounds> {
        let (memory, at) = self.window(offset, 8);
        memory.store_u64_release(at, value)
    }

    /// Carries out an atomic of 8 bytes ([`Region::atomic_u64`]). What is not in the arena is changed at its address: [`HeldMemory::is_there`] comes right before.
    ///
    /// # Errors
    /// Outside, or not aligned.
    pub fn atomic_u64(&self, offset: usize, op: WordAtomic<u64>) -> Result<u64, OutOfBounds> {
        let (memory, at) = self.window(offset, 8);
        memory.atomic_u64(at, op)
    }

    /// Carries out an atomic of 4 bytes; see [`HeldMemory::atomic_u64`].
    ///
    /// # Errors
    /// Outside, or not aligned.
    pub fn atomic_u32(&self, offset: usize, op: WordAtomic<u32>) -> Result<u32, OutOfBounds> {
        let (memory, at) = self.window(offset, 4);
        memory.atomic_u32(at, op)
    }

    /// The arena's part that has all `len` bytes at `offset`.
    #[inline]
    fn alias(&self, offset: usize, len: usize) -> Option<(&Region, usize)> {
        let (start, alias) = self.0.aliases.iter().rfind(|(start, _)| *start <= offset)?;
        let at = offset - start;
        (at <= alias.len() && len <= alias.len() - at).then_some((alias, at))
    }

    /// Calls `f(place, bytes before, bytes)` for each part of one kind, in order.
    #[inline]
    fn pieces(
        &self,
        offset: usize,
        len: usize,
        mut f: impl FnMut(PiecePlace<'_>, usize, usize) -> Result<(), MemoryGone>,
    ) -> Result<(), MemoryGone> {
        let held = &*self.0;
        if held.guard.is_none() {
            return f(PiecePlace::Plain(&held.memory, offset), 0, len);
        }
        if let Some((memory, at)) = self.alias(offset, len) {
            return f(PiecePlace::Plain(memory, at), 0, len);
        }
        self.mixed(offset, len, &mut f)
    }

    #[cold]
    fn mixed(
        &self,
        offset: usize,
        len: usize,
        f: &mut dyn FnMut(PiecePlace<'_>, usize, usize) -> Result<(), MemoryGone>,
    ) -> Result<(), MemoryGone> {
        let held = &*self.0;
        held.memory.sub(offset, len).map_err(gone)?;
        let mut done = 0;
        while done < len {
            let at = offset + done;
            let inside =
                |(start, alias): &&(usize, Region)| *start <= at && at - *start < alias.len();
            let by_kernel = held.guard.as_ref().is_some_and(|guard| guard.has_kernel_copies);
            let take = if let Some((start, alias)) = held.aliases.iter().find(inside) {
                let take = (len - done).min(alias.len() - (at - start));
                f(PiecePlace::Plain(alias, at - start), done, take)?;
                take
            } else {
                let next = held.aliases.iter().map(|(start, _)| *start).find(|start| *start > at);
                let take = (len - done).min(next.map_or(usize::MAX, |next| next - at));
                let place = if by_kernel {
                    PiecePlace::Program(held.memory.addr() + at)
                } else {
                    PiecePlace::Plain(&held.memory, at)
                };
                f(place, done, take)?;
                take
            };
            done += take;
        }
        Ok(())
    }
}

/// Whether the last 8 bytes of a copy are stored after all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyOrder {
    /// They come after the rest.
    EndLast,
    /// Any byte may be stored last.
    Any,
}

/// Where a part lies.
enum PiecePlace<'a> {
    /// Memory that stays mapped.
    Plain(&'a Region, usize),
    /// An address of the program, to be reached through the kernel.
    Program(usize),
}

/// The program unmapped registered memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("registered memory is not mapped any more")]
pub struct MemoryGone;

fn gone(_: OutOfBounds) -> MemoryGone {
    MemoryGone
}

impl UnmapGuard {
    /// Says once what a peer's program will wonder about.
    #[cold]
    fn tell(&self, part: &Region) {
        if !self.is_reported.swap(true, Ordering::Relaxed) {
            let (addr, len) = (format_args!("{:#x}", part.addr()), part.len());
            tracing::warn!(
                addr,
                len,
                "registered memory was unmapped or mapped anew: requests of peers for it are refused; unregister the segment before"
            );
        }
    }

    /// Addresses around `part` that were found as they were at registration; `None`: something else is there.
    fn look(&self, part: &Region) -> Option<(usize, usize)> {
        let (start, end) = (part.addr(), part.addr() + part.len());
        let Some(origins) = &self.origins else {
            return part.is_mapped().then_some((start, end));
        };
        let mut seen = (start, end);
        let mut at = start;
        while at < end {
            let index = self.runs.partition_point(|run| run.end <= at);
            let known = self.runs.get(index)?.from(at);
            let found = origins.at(at)?;
            if !known.origin.has_file() {
                self.neighbour_is_there(index, origins)?;
            }
            // Anonymous memory may have moved to the arena since, with another registration.
            let has_moved = known.origin == Origin::ANONYMOUS && found.origin.file == self.file;
            (known.origin == found.from(at).origin || has_moved).then_some(())?;
            let stop = found.end.min(known.end);
            if at == start && stop >= end {
                seen = (found.start.max(self.runs.get(index)?.start), stop);
            }
            at = stop;
        }
        Some(seen)
    }

    /// Whether the nearest run with a file is still there, if there is one.
    fn neighbour_is_there(&self, index: usize, origins: &Origins) -> Option<()> {
        let has_file = |run: &&OriginRun| run.origin.has_file();
        let after = self.runs.get(index + 1).filter(has_file);
        let before = index.checked_sub(1).and_then(|index| self.runs.get(index)).filter(has_file);
        let page = match (after, before) {
            (Some(run), _) => run.from(run.start),
            (None, Some(run)) => run.from(page_floor(run.end - 1)),
            (None, None) => return Some(()),
        };
        let found = origins.at(page.start)?.from(page.start);
        (found.origin == page.origin).then_some(())
    }
}

/// Bytes of `len` at `addr` before the word in which the last one lies: the kernel copies in one go what lies in one word.
fn body_len(addr: usize, len: usize) -> usize {
    ((addr + len).saturating_sub(1) & !7).saturating_sub(addr)
}

fn store(addr: usize, bytes: &[u8]) -> Result<(), MemoryGone> {
    if bytes.is_empty() {
        return Ok(());
    }
    let pid = nix::unistd::getpid().as_raw();
    let here = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let there = vector(addr, bytes.len());
    // SAFETY: the kernel reads the caller's slice, and checks the addresses that it stores to: those of registered
    // memory, which the program lets peers change.
    let moved = unsafe { libc::process_vm_writev(pid, &raw const here, 1, &raw const there, 1, 0) };
    finished(moved, bytes.len())
}

fn store_of(addr: usize, bytes: &Region) -> Result<(), MemoryGone> {
    if bytes.is_empty() {
        return Ok(());
    }
    let pid = nix::unistd::getpid().as_raw();
    let (here, there) = (vector(bytes.addr(), bytes.len()), vector(addr, bytes.len()));
    // SAFETY: the kernel reads a window that stays mapped while the region is borrowed, and checks the addresses that it
    // stores to: those of registered memory, which the program lets peers change.
    let moved = unsafe { libc::process_vm_writev(pid, &raw const here, 1, &raw const there, 1, 0) };
    finished(moved, bytes.len())
}

fn load(addr: usize, bytes: &mut [u8]) -> Result<(), MemoryGone> {
    let pid = nix::unistd::getpid().as_raw();
    let here = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let there = vector(addr, bytes.len());
    // SAFETY: the kernel stores to the caller's slice, and checks the addresses that it reads.
    let moved = unsafe { libc::process_vm_readv(pid, &raw const here, 1, &raw const there, 1, 0) };
    finished(moved, bytes.len())
}

fn vector(addr: usize, len: usize) -> libc::iovec {
    libc::iovec { iov_base: core::ptr::without_provenance_mut(addr), iov_len: len }
}

fn finished(moved: isize, len: usize) -> Result<(), MemoryGone> {
    if usize::try_from(moved) == Ok(len) { Ok(()) } else { Err(MemoryGone) }
}

#[cfg(all(test, not(loom)))]
mod tests;
