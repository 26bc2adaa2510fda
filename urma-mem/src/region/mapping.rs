//! Mappings: what made the pages behind a region and what takes them away.
//!
//! Owns: `mmap`, `munmap`, memfd creation and seals.
//! Takes: lengths, descriptors.
//! Gives: a base address that stays mapped until the mapping is dropped.
//! Must not: map a file that is not sealed against shrinking, but for `files.rs`, which guards its windows, and rings of sockets.
#![expect(unsafe_code, reason = "mmap and munmap")]

use core::num::NonZeroUsize;
use core::ptr::NonNull;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, MsFlags, ProtFlags, mmap, mmap_anonymous, msync, munmap};
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use nix::sys::stat::{SFlag, fstat};
use nix::unistd::ftruncate;

use super::{MapAccess, Pages};
use crate::fork::{self, MovedPages};
pub(crate) use crate::maps::page_len;
use crate::room;

const HUGE_LEN: usize = 2 << 20;

/// Checks that each byte is mapped, by one query, whatever the length.
///
/// # Errors
/// `BadAddress` (`EFAULT`) for a hole.
pub(super) fn check_mapped(base: NonNull<u8>, len: usize) -> io::Result<()> {
    if cfg!(miri) {
        return Ok(()); // miri has no msync, and finds wild accesses by itself
    }
    let before = base.addr().get() - page_floor(base.addr().get());
    let first = base.map_addr(|addr| NonZeroUsize::new(page_floor(addr.get())).unwrap_or(addr));
    // SAFETY: MS_ASYNC changes nothing on Linux, which keeps track of dirty pages anyway; it is
    // used for its answer on holes. No memory is accessed.
    let found = unsafe { msync(first.cast(), before + len, MsFlags::MS_ASYNC) };
    found.map_err(|_| io::Error::from_raw_os_error(libc::EFAULT))
}

/// Maps the pages of a range, whole pages that are mapped memory, many at a time: to be stored to, or to
/// be read. The range's owner keeps it mapped.
pub(crate) fn populate(addr: usize, len: usize, is_written: bool) {
    let advice = if is_written { libc::MADV_POPULATE_WRITE } else { libc::MADV_POPULATE_READ };
    // SAFETY: the advice changes neither content nor access, whatever lies at the range.
    unsafe { libc::madvise(core::ptr::without_provenance_mut(addr), len, advice) };
}

/// `value` rounded down to a page boundary.
pub(crate) fn page_floor(value: usize) -> usize {
    value & !(page_len() - 1)
}

/// `value` rounded up to a page boundary; `None` when that overflows.
pub(crate) fn page_ceil(value: usize) -> Option<usize> {
    value.checked_add(page_len() - 1).map(page_floor)
}

/// The pages behind a region.
pub(super) enum RegionPages {
    /// Made by `mmap` of a file here: unmapped on drop.
    File { base: NonNull<u8>, len: usize, fd: OwnedFd, offset: u64 },
    /// Parts of files side by side, mapped here: unmapped on drop.
    Joined { base: NonNull<u8>, len: usize },
    /// Anonymous memory made here: unmapped on drop.
    Anonymous { base: NonNull<u8>, len: usize },
    /// The caller's memory; nothing to do on drop.
    Caller,
}

// SAFETY: a Mapping is an address range and a descriptor; neither is bound to a thread.
unsafe impl Send for RegionPages {}
// SAFETY: no method changes a Mapping through a shared reference.
unsafe impl Sync for RegionPages {}

impl RegionPages {
    pub(super) fn new_shared(len: usize, pages: Pages) -> io::Result<Self> {
        let (flags, unit) = match pages {
            Pages::Base => (MFdFlags::empty(), page_len()),
            Pages::Huge2M => (MFdFlags::MFD_HUGETLB | MFdFlags::MFD_HUGE_2MB, HUGE_LEN),
        };
        let len_file = len.checked_next_multiple_of(unit).ok_or(io::ErrorKind::InvalidInput)?;
        room::check(len_file)?;
        let fd = new_memfd("urma-region", flags)?;
        lengthen(&fd, len_file as u64)?;
        fcntl(&fd, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW))?;
        let mapping = Self::of_file(fd, 0, len_file, MapAccess::ReadWrite)?;
        // What this process shares a forked child does not: its stores stay its own.
        if let Some((fd, addr, _)) = mapping.file() {
            let pages = MovedPages { addr, len: len_file, fd: fd.as_raw_fd(), offset: 0 };
            fork::note_shared(pages)?;
        }
        Ok(mapping)
    }

    pub(super) fn new_private(len: usize) -> io::Result<Self> {
        let len = page_ceil(len).and_then(NonZeroUsize::new).ok_or(io::ErrorKind::InvalidInput)?;
        room::check(len.get())?;
        let prot = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches no existing
        // mapping.
        let base = unsafe { mmap_anonymous(None, len, prot, MapFlags::MAP_PRIVATE)? };
        Ok(Self::Anonymous { base: base.cast(), len: len.get() })
    }

    pub(super) fn of_fd(
        fd: OwnedFd,
        offset: u64,
        len: usize,
        access: MapAccess,
    ) -> io::Result<Self> {
        let end = offset.checked_add(len as u64).ok_or(io::ErrorKind::InvalidInput)?;
        check_cannot_shrink(fd.as_fd(), end)?;
        room::check_address_space(len)?;
        Self::of_file(fd, offset, len, access)
    }

    /// Maps the first `len` bytes of a file that may become shorter.
    pub(super) fn of_guarded(fd: OwnedFd, len: usize) -> io::Result<Self> {
        room::check_address_space(len)?;
        Self::of_file(fd, 0, len, MapAccess::ReadWrite)
    }

    /// Maps `len` bytes of a ring behind a socket.
    pub(super) fn of_socket(socket: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<Self> {
        if SFlag::from_bits_truncate(fstat(socket)?.st_mode) & SFlag::S_IFMT != SFlag::S_IFSOCK {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        room::check_address_space(len)?;
        Self::of_file(socket.try_clone_to_owned()?, offset, len, MapAccess::ReadWrite)
    }

    /// Maps `len` bytes of a file of which the caller knows that it stays at least that long.
    fn of_file(fd: OwnedFd, offset: u64, len: usize, access: MapAccess) -> io::Result<Self> {
        let nonzero = NonZeroUsize::new(len).ok_or(io::ErrorKind::InvalidInput)?;
        let start = file_offset(offset)?;
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing mapping.
        let base = unsafe { mmap(None, nonzero, prot(access), MapFlags::MAP_SHARED, &fd, start)? };
        Ok(Self::File { base: base.cast(), len, fd, offset })
    }

    /// Maps the pages of `parts` side by side, each a file with its first byte in it and a length, whole pages that
    /// the files keep.
    pub(super) fn joined(
        parts: &[(BorrowedFd<'_>, u64, NonZeroUsize)],
        access: MapAccess,
    ) -> io::Result<Self> {
        let len = parts.iter().try_fold(0_usize, |sum, part| sum.checked_add(part.2.get()));
        let whole = len.and_then(NonZeroUsize::new).ok_or(io::ErrorKind::InvalidInput)?;
        room::check_address_space(whole.get())?;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches no existing
        // mapping.
        let base =
            unsafe { mmap_anonymous(None, whole, ProtFlags::PROT_NONE, MapFlags::MAP_PRIVATE)? };
        // From here on it is unmapped whole, whatever becomes of its parts.
        let mapping = Self::Joined { base: base.cast(), len: whole.get() };
        let flags = MapFlags::MAP_SHARED | MapFlags::MAP_FIXED;
        let mut at = base.addr();
        for (fd, offset, len) in parts {
            let start = file_offset(*offset)?;
            // SAFETY: the range lies within the mapping made above, which nothing else knows yet: the
            // lengths of the parts add up to its length.
            unsafe { mmap(Some(at), *len, prot(access), flags, fd, start)? };
            at = at.checked_add(len.get()).ok_or(io::ErrorKind::InvalidInput)?;
        }
        Ok(mapping)
    }

    /// First byte of the mapping; dangling for the caller's memory, whose region holds its address.
    pub(super) fn base(&self) -> NonNull<u8> {
        match self {
            Self::File { base, .. } | Self::Joined { base, .. } | Self::Anonymous { base, .. } => {
                *base
            }
            Self::Caller => NonNull::dangling(),
        }
    }

    /// Descriptor, address of the mapping's first byte, and that byte's offset in the file.
    pub(super) fn file(&self) -> Option<(BorrowedFd<'_>, usize, u64)> {
        match self {
            Self::File { base, fd, offset, .. } => {
                Some((fd.as_fd(), base.as_ptr().addr(), *offset))
            }
            Self::Joined { .. } | Self::Anonymous { .. } | Self::Caller => None,
        }
    }

    pub(super) fn seal_future_write(&self) -> io::Result<()> {
        let (fd, ..) = self.file().ok_or(io::ErrorKind::Unsupported)?;
        fcntl(fd, FcntlArg::F_ADD_SEALS(SealFlag::from_bits_retain(libc::F_SEAL_FUTURE_WRITE)))?;
        Ok(())
    }

    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::File { .. } => "shared file",
            Self::Joined { .. } => "parts of files",
            Self::Anonymous { .. } => "private",
            Self::Caller => "caller's",
        }
    }
}

impl Drop for RegionPages {
    fn drop(&mut self) {
        let (Self::File { base, len, .. }
        | Self::Joined { base, len }
        | Self::Anonymous { base, len }) = *self
        else {
            return;
        };
        if matches!(self, Self::File { .. }) {
            fork::forget_shared(base.as_ptr().addr(), len);
        }
        // SAFETY: the range was mapped by this value's constructor and no region is left that could
        // touch it: they share this value through an Arc whose last owner is dropping it.
        if let Err(error) = unsafe { munmap(base.cast(), len) } {
            tracing::warn!(%error, len, "a region could not be unmapped");
        }
    }
}

const fn prot(access: MapAccess) -> ProtFlags {
    match access {
        MapAccess::ReadOnly => ProtFlags::PROT_READ,
        MapAccess::ReadWrite => ProtFlags::PROT_READ.union(ProtFlags::PROT_WRITE),
    }
}

/// Whether both descriptors are of one file.
pub(super) fn is_same_file(a: BorrowedFd<'_>, b: BorrowedFd<'_>) -> bool {
    let file = |fd| fstat(fd).ok().map(|stat| (stat.st_dev, stat.st_ino));
    file(a).is_some_and(|found| file(b) == Some(found))
}

/// A new close-on-exec memfd that allows seals; without execute permission where the kernel
/// supports it.
pub(crate) fn new_memfd(name: &str, extra: MFdFlags) -> io::Result<OwnedFd> {
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING | extra;
    let noexec = MFdFlags::from_bits_retain(libc::MFD_NOEXEC_SEAL);
    memfd_create(name, flags | noexec).or_else(|_| memfd_create(name, flags)).map_err(Into::into)
}

/// Checks that the file cannot become shorter than `end`: its seals forbid it and it is that long
/// now.
pub(crate) fn check_cannot_shrink(fd: BorrowedFd<'_>, end: u64) -> io::Result<()> {
    // A file without seals answers EINVAL: it is not shared memory.
    let seals = fcntl(fd, FcntlArg::F_GET_SEALS)
        .map_err(|_| io::Error::new(io::ErrorKind::PermissionDenied, "the file has no seals"))?;
    if !SealFlag::from_bits_retain(seals).contains(SealFlag::F_SEAL_SHRINK) {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "file may shrink"));
    }
    let len_file = u64::try_from(fstat(fd)?.st_size).unwrap_or(0);
    if end > len_file {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "file too short"));
    }
    Ok(())
}

/// Gives a new file its length. A limit on the length of files is looked at before: the system would end the process by
/// SIGXFSZ.
///
/// # Errors
/// `ENOMEM` for a limit that is too low, with a line that says so; else the system's.
pub(crate) fn lengthen(fd: &OwnedFd, len: u64) -> io::Result<()> {
    let (limit, _) = getrlimit(Resource::RLIMIT_FSIZE)?;
    if limit != RLIM_INFINITY && len > limit {
        tracing::error!(
            len,
            limit,
            "shared memory needs a longer file than RLIMIT_FSIZE allows: raise it (`ulimit -f unlimited`, LimitFSIZE=infinity)"
        );
        return Err(io::Error::from_raw_os_error(libc::ENOMEM));
    }
    Ok(ftruncate(fd, file_offset(len)?)?)
}

/// An offset or length as the system wants it.
pub(crate) fn file_offset(value: u64) -> io::Result<libc::off_t> {
    libc::off_t::try_from(value).map_err(|_| io::ErrorKind::InvalidInput.into())
}
