//! `Region`: a window on bytes that a device, a peer or the user may change at any moment.
//!
//! Owns: the mapping's life (through `RegionPages`) and the bounds of the window.
//! Takes: lengths, file descriptors of sealed files, or addresses the caller vouches for.
//! Gives: `Region`, clonable and shareable, whose accessors are in `region/access.rs`.
//! Must not: hand out references to the bytes; map a file that can shrink under it, but for `files.rs`, which guards its windows.
#![expect(unsafe_code, reason = "address arithmetic and the caller's own memory")]

mod access;
mod blocks;
mod mapping;
mod word;

use core::fmt;
use core::num::NonZeroUsize;
use core::ptr::NonNull;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use std::sync::Arc;

pub use access::{OutOfBounds, WordAtomic};
pub use blocks::{Blocks, RingBlock};
use mapping::RegionPages;
pub(crate) use mapping::{check_cannot_shrink, file_offset, lengthen, new_memfd};
pub(crate) use mapping::{page_ceil, page_floor, page_len, populate};
pub use word::{RegionWord, RegionWord32};

/// Page size asked for in [`Region::shared`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pages {
    /// The system's base pages.
    Base,
    /// Huge pages of 2 MiB, which must have been reserved on the machine; the length is rounded up.
    Huge2M,
}

/// What a mapping of a received file may be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MapAccess {
    /// Loads only; every store through the region answers [`OutOfBounds`].
    ReadOnly,
    /// The mapping may be read and written.
    ReadWrite,
}

/// A window on memory that others may change.
///
/// Clones and sub-windows share the mapping; it goes when the last of them goes. No method returns
/// a reference to the bytes: they are copied out, copied in, or touched by atomics. Offsets are
/// bytes from the window's start.
#[derive(Clone)]
pub struct Region {
    base: NonNull<u8>,
    len: usize,
    /// Limit of stores: `len`, or 0 for a read-only window, so that one comparison checks both.
    len_writable: usize,
    mapping: Arc<RegionPages>,
}

// SAFETY: a Region is an address range kept alive by `mapping`; all accesses through it are atomics
// or copies that assume nothing about concurrent stores, so any thread may make them at any time.
unsafe impl Send for Region {}
// SAFETY: shared accesses are the same atomics and copies, which any thread may make at any time.
unsafe impl Sync for Region {}

impl Region {
    /// Memory of a new sealed file (`memfd`), zeroed, that can be handed to a peer or a device by
    /// its descriptor. The length is rounded up to whole pages in the file, not in the window.
    ///
    /// # Errors
    /// The system's error when the file or its mapping is refused (no huge pages reserved, no
    /// memory), `InvalidInput` for length 0.
    pub fn shared(len: usize, pages: Pages) -> io::Result<Self> {
        let mapping = RegionPages::new_shared(len, pages)?;
        Ok(Self::over(mapping, len, MapAccess::ReadWrite))
    }

    /// Private anonymous memory, zeroed and page-aligned: what a user's buffer is. Registration may
    /// move it to shared pages under the same address.
    ///
    /// # Errors
    /// The system's error when there is no memory, `InvalidInput` for length 0.
    pub fn private(len: usize) -> io::Result<Self> {
        let mapping = RegionPages::new_private(len)?;
        Ok(Self::over(mapping, len, MapAccess::ReadWrite))
    }

    /// Maps a file received from elsewhere.
    ///
    /// # Errors
    /// `InvalidInput` when `offset` is not a multiple of the page size or `len` is 0;
    /// `PermissionDenied` when the file is not sealed against shrinking (its owner could turn our
    /// loads into faults) or is shorter than the mapping; else the system's error.
    pub fn map_fd(fd: OwnedFd, offset: u64, len: usize, access: MapAccess) -> io::Result<Self> {
        let mapping = RegionPages::of_fd(fd, offset, len, access)?;
        Ok(Self::over(mapping, len, access))
    }

    /// Maps a ring that the system made behind a socket, at an offset that names the ring: it stays as long as it is, whatever
    /// becomes of the socket.
    ///
    /// # Errors
    /// `InvalidInput` when the descriptor is no socket or `len` is 0; else the system's error.
    pub fn map_ring(socket: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<Self> {
        let mapping = RegionPages::of_socket(socket, offset, len)?;
        Ok(Self::over(mapping, len, MapAccess::ReadWrite))
    }

    /// Maps the first `len` bytes of a file that may become shorter, for loads and stores: the caller guards the window
    /// (`sigbus.rs`).
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn map_guarded(fd: OwnedFd, len: usize) -> io::Result<Self> {
        let region = Self::over(RegionPages::of_guarded(fd, len)?, len, MapAccess::ReadWrite);
        region.exclude_from_dumps();
        Ok(region)
    }

    /// The bytes of `parts` side by side, as one window: their files are mapped once more. Parts that lie side by side
    /// in one file take one mapping together; the number of mappings comes with it. Loads only, unless all may be
    /// written.
    ///
    /// # Errors
    /// `InvalidInput` when a part is no whole pages of a file, or there are no parts, or more than `most` mappings are
    /// needed; else the system's error.
    pub fn joined(parts: &[Self], most: usize) -> io::Result<(Self, usize)> {
        let is_writable = parts.iter().all(Self::is_writable);
        let access = if is_writable { MapAccess::ReadWrite } else { MapAccess::ReadOnly };
        let mut runs: Vec<(BorrowedFd<'_>, u64, NonZeroUsize)> = Vec::new();
        for part in parts {
            let is_whole =
                part.addr().is_multiple_of(page_len()) && part.len.is_multiple_of(page_len());
            let file = part.fd().filter(|_| is_whole);
            let (fd, offset) = file.ok_or(io::ErrorKind::InvalidInput)?;
            let len = NonZeroUsize::new(part.len).ok_or(io::ErrorKind::InvalidInput)?;
            match runs.last_mut() {
                Some((last, start, before))
                    if *start + before.get() as u64 == offset
                        && mapping::is_same_file(*last, fd) =>
                {
                    *before = before.checked_add(len.get()).ok_or(io::ErrorKind::InvalidInput)?;
                }
                _ => runs.push((fd, offset, len)),
            }
        }
        if runs.len() > most {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mapping = RegionPages::joined(&runs, access)?;
        let len = runs.iter().map(|(.., len)| len.get()).sum();
        Ok((Self::over(mapping, len, access), runs.len()))
    }

    /// Whether no clone and no sub-window of it is left.
    #[must_use]
    pub fn is_last(&self) -> bool {
        Arc::strong_count(&self.mapping) == 1
    }

    /// A window on memory that the caller owns.
    ///
    /// # Errors
    /// `InvalidInput` for a null address, length 0, or a range that wraps or exceeds `isize::MAX`;
    /// `EFAULT` when nothing is mapped under a part of it: a peer's request would end the process.
    ///
    /// # Safety
    /// Until this region and every clone and sub-window of it are dropped, the caller keeps:
    /// - the range mapped, readable and writable, and owned by the caller (not freed, not unmapped, not
    ///   remapped, protection unchanged);
    /// - no Rust reference (`&T` of any type without interior mutability, `&mut T`) to any byte of the
    ///   range in use while others may store to it: a device or peer changes the bytes at any moment.
    ///   Raw pointers, atomics, volatile accesses and copies of this crate stay legal; so do loads and
    ///   stores of C code;
    /// - no byte of the range lies on a live stack of another thread (the calling thread's own is
    ///   recognised and never moved);
    /// - no other thread stores into the range during registration and unregistration, unless
    ///   [`crate::writers::writer_hold`] shows that such threads are held: whole pages of it may then move to
    ///   a shared file and back, under the same addresses, with their content.
    pub unsafe fn from_user(addr: *mut u8, len: usize) -> io::Result<Self> {
        let limit = isize::MAX.unsigned_abs();
        let base = NonNull::new(addr).ok_or(io::ErrorKind::InvalidInput)?;
        if len == 0 || len > limit || addr.addr().checked_add(len).is_none() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        mapping::check_mapped(base, len)?;
        Ok(Self { base, len, len_writable: len, mapping: Arc::new(RegionPages::Caller) })
    }

    /// The window of `len` bytes from `offset`.
    ///
    /// # Errors
    /// [`OutOfBounds`] when it does not lie within this window.
    pub fn sub(&self, offset: usize, len: usize) -> Result<Self, OutOfBounds> {
        self.check(offset, len)?;
        // SAFETY: check() showed offset <= self.len, and [base, base + len) is one mapped range.
        let base = unsafe { self.base.add(offset) };
        let len_writable = if self.len_writable == 0 { 0 } else { len };
        Ok(Self { base, len, len_writable, mapping: Arc::clone(&self.mapping) })
    }

    /// Length of the window in bytes; never 0 except for an empty [`Region::sub`].
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the window is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether it is memory that the program owns, and may unmap.
    pub(crate) fn is_callers(&self) -> bool {
        matches!(*self.mapping, RegionPages::Caller)
    }

    /// Whether each byte is mapped just now.
    pub(crate) fn is_mapped(&self) -> bool {
        mapping::check_mapped(self.base, self.len).is_ok()
    }

    /// Whether stores are allowed.
    #[inline]
    pub fn is_writable(&self) -> bool {
        self.len_writable == self.len
    }

    /// The first byte's address in this process, as a number.
    #[inline]
    pub fn addr(&self) -> usize {
        self.base.as_ptr().addr()
    }

    /// Whether the `len` bytes at the address `addr` (of this process) lie within the window.
    #[inline]
    pub fn contains(&self, addr: usize, len: usize) -> bool {
        addr.checked_sub(self.addr()).is_some_and(|offset| self.check(offset, len).is_ok())
    }

    /// Maps the window's pages into this process, those of the file behind it, and gives it the pages that
    /// it lacks: the first access to each takes no page fault then. Content and access stay as they
    /// are. A refusal (Linux 5.14 is needed) only costs time later.
    pub fn populate(&self) {
        let start = page_floor(self.addr());
        if let Some(end) = page_ceil(self.addr() + self.len) {
            populate(start, end - start, self.is_writable());
        }
    }

    /// The file behind the window and the window's first byte in it, for passing to a peer or a
    /// device; `None` for memory without a file of its own.
    pub fn fd(&self) -> Option<(BorrowedFd<'_>, u64)> {
        let (fd, base, offset) = self.mapping.file()?;
        Some((fd, offset + (self.addr() - base) as u64))
    }

    /// The same window without stores: each answers [`OutOfBounds`].
    #[must_use]
    pub fn read_only(&self) -> Self {
        Self { len_writable: 0, ..self.clone() }
    }

    /// The same bytes in a mapping of their own, whole pages, which goes with the result and its
    /// clones: afterwards a stray access faults instead of reaching what lies around. Of a
    /// read-only window stores fault too. `None` for memory without a file.
    ///
    /// # Errors
    /// The system's.
    pub fn apart(&self) -> Option<io::Result<Self>> {
        let (fd, offset) = self.fd()?;
        let skip = (self.addr() - page_floor(self.addr())) as u64;
        let access = if self.is_writable() { MapAccess::ReadWrite } else { MapAccess::ReadOnly };
        let map = |fd: OwnedFd| {
            let skip_here = usize::try_from(skip).map_err(io::Error::other)?;
            let whole = Self::map_fd(fd, offset - skip, self.len + skip_here, access)?;
            whole.sub(skip_here, self.len).map_err(io::Error::other)
        };
        Some(fd.try_clone_to_owned().and_then(map))
    }

    /// Seals the file so that no new mapping of it can be written; the mappings made so far stay as
    /// they are. A peer that receives the descriptor afterwards can read and not write.
    ///
    /// # Errors
    /// `Unsupported` for memory without a file; else the system's error.
    pub fn seal_future_write(&self) -> io::Result<()> {
        self.mapping.seal_future_write()
    }

    /// Keeps a large sparse mapping out of core dumps; refusal only makes a dump larger.
    pub(crate) fn exclude_from_dumps(&self) {
        // SAFETY: the advice changes no content and no access; the range is mapped.
        unsafe { libc::madvise(self.base.as_ptr().cast(), self.len, libc::MADV_DONTDUMP) };
    }

    fn over(mapping: RegionPages, len: usize, access: MapAccess) -> Self {
        let base = mapping.base();
        let len_writable = if access == MapAccess::ReadWrite { len } else { 0 };
        Self { base, len, len_writable, mapping: Arc::new(mapping) }
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region")
            .field("addr", &format_args!("{:#x}", self.addr()))
            .field("len", &self.len)
            .field("writable", &self.is_writable())
            .field("kind", &self.mapping.kind())
            .finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
