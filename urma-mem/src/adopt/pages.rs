//! The system calls that change the pages under an address range.
//!
//! Owns: one chunk's move in, one range's move out.
//! Takes: whole pages of memory whose owner agreed.
//! Gives: the same content under the same addresses, in the arena's file or private again.
//! Must not: allocate while pages are between two homes; leave a range unmapped.
#![expect(unsafe_code, reason = "mmap over memory in use, and copies of it through the kernel")]

use core::ops::Range;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use nix::unistd::{Whence, lseek};

use super::chunks;
use crate::arena::{ArenaShared, CHUNK_LEN, HugePages, Moved};
use crate::fork::{self, MovedPages};
use crate::maps::Present;
use crate::region::{file_offset, populate};

/// Moves a chunk of at most 2 MiB into the file at `offset`.
///
/// On failure the chunk is where it was.
pub(super) fn move_in(
    shared: &ArenaShared,
    (addr, len): (usize, usize),
    offset: u64,
    is_dontfork: bool,
) -> io::Result<()> {
    let present = Present::before(addr, len);
    let start = file_offset(offset)?;
    let mut held = fork::hold();
    held.reserve(1);
    // From here on nothing of the allocator is touched until the writers go on.
    let writers = shared.gate.protect((addr, len));
    present.each_run(|from, run| write_all(shared, from, run, offset + (from - addr) as u64))?;
    let at = core::ptr::without_provenance_mut(addr);
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_SHARED | libc::MAP_FIXED;
    let fd = shared.fd.as_raw_fd();
    // SAFETY: the range is private anonymous memory (the caller checked) whose owner keeps it
    // mapped and unwritten during the move; the file holds the same bytes, so no thread sees a
    // change.
    let mapped = unsafe { libc::mmap(at, len, prot, flags, fd, start) };
    if mapped == libc::MAP_FAILED {
        let error = io::Error::last_os_error();
        drop(writers);
        punch(shared, offset, len);
        return Err(error);
    }
    drop(writers);
    if is_dontfork {
        keep_from_forks(addr, len);
    }
    held.add(MovedPages { addr, len, fd, offset: start });
    Ok(())
}

/// Moves a range back to private anonymous memory and frees the file's pages.
///
/// On failure the rest of the range stays shared, with its content, and is no longer kept from
/// forks: its owner may unmap it now.
pub(super) fn move_out(
    (shared, step): (&ArenaShared, usize),
    addr: usize,
    moved: Moved,
) -> io::Result<()> {
    let Moved { len, offset, is_dontfork, .. } = moved;
    // One new mapping for the whole range: its pieces join again under the old addresses.
    let spare = new_private(len).inspect_err(|_| forget(addr, len))?;
    if is_dontfork {
        keep_from_forks(spare, len);
    }
    let mut data = DataRun { end: offset };
    for (at, chunk) in chunks(addr, len, step) {
        let skip = at - addr;
        let from = offset + skip as u64;
        // What its owner mapped there meanwhile is not ours to replace.
        let parts = shared.shown_at(at, chunk, from);
        let mut done = at;
        for (part, part_len) in parts {
            let new = spare + (part - addr);
            let from = offset + (part - addr) as u64;
            if let Err(error) = move_out_chunk(shared, (new, part, part_len), from, &mut data) {
                unmap(spare + (done - addr), len - (done - addr));
                forget(at, len - skip);
                return Err(error);
            }
            abandon(shared, (spare, addr, offset), done..part);
            done = part + part_len;
        }
        abandon(shared, (spare, addr, offset), done..at + chunk);
    }
    Ok(())
}

/// A part of a range that moves back is not mapped at its place any more.
fn abandon(shared: &ArenaShared, (spare, addr, offset): (usize, usize, u64), part: Range<usize>) {
    if part.is_empty() {
        return;
    }
    unmap(spare + (part.start - addr), part.len());
    forget(part.start, part.len());
    punch(shared, offset + (part.start - addr) as u64, part.len());
    tracing::warn!(
        addr = format_args!("{:#x}", part.start),
        len = part.len(),
        "registered memory was unmapped before it was unregistered"
    );
}

/// Fills the new chunk and puts it in the old one's place in one step.
fn move_out_chunk(
    shared: &ArenaShared,
    (new, old, len): (usize, usize, usize),
    offset: u64,
    data: &mut DataRun,
) -> io::Result<()> {
    // A hole stays one: to map a page of it would give it a page of the file, and of the new chunk.
    DataRun { ..*data }.each(shared, offset, len, |skip, run| {
        // Protected memory is mapped page by page, one fault each: here many at a time.
        populate(old + skip, run, false);
        Ok(run)
    })?;
    let mut held = fork::hold();
    held.reserve(1);
    let writers = shared.gate.protect((old, len));
    data.read(shared, (new, old, len), offset)?;
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    let from = core::ptr::without_provenance_mut(new);
    let to = core::ptr::without_provenance_mut::<u8>(old);
    // SAFETY: `new` is this function's own mapping; `old` is the shared mapping of the same bytes,
    // noted in the arena's ledger, whose owner keeps it mapped and unwritten during the move.
    let moved = unsafe { libc::mremap(from, len, len, flags, to) };
    if moved == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    drop(writers);
    held.remove(old, len);
    drop(held);
    punch(shared, offset, len);
    Ok(())
}

/// Forks no longer see to the range.
fn forget(addr: usize, len: usize) {
    let mut held = fork::hold();
    held.reserve(1);
    held.remove(addr, len);
}

/// Asks the kernel to join the moved pages to huge ones where whole ones fit; a refusal (an old
/// kernel, no free huge page) leaves them as they are.
pub(super) fn join(shared: &ArenaShared, addr: usize, len: usize) {
    if shared.cfg.huge_pages == HugePages::Off {
        return;
    }
    let end = (addr + len) / CHUNK_LEN * CHUNK_LEN;
    let start = addr.next_multiple_of(CHUNK_LEN);
    if start >= end {
        return;
    }
    let at = core::ptr::without_provenance_mut(start);
    // SAFETY: the advice changes neither content nor access; the range is mapped (its owner keeps
    // it so).
    if unsafe { libc::madvise(at, end - start, MADV_COLLAPSE) } != 0 {
        let error = io::Error::last_os_error();
        tracing::info!(%error, len, "moved pages stay small");
    }
}

/// Linux 6.1; not in every libc crate.
const MADV_COLLAPSE: libc::c_int = 25;

/// Locks the pages in memory, as they were before the move; failure is logged, the content is safe.
pub(super) fn lock(addr: usize, len: usize) {
    // SAFETY: mlock changes no content; the range is mapped (its owner keeps it so).
    if unsafe { libc::mlock(core::ptr::without_provenance(addr), len) } != 0 {
        let error = io::Error::last_os_error();
        tracing::warn!(%error, len, "moved pages could not be locked in memory again");
    }
}

/// Keeps pages out of forked children, as they were before the move.
fn keep_from_forks(addr: usize, len: usize) {
    // SAFETY: the advice changes no content; the range is mapped (its owner keeps it so).
    if unsafe { libc::madvise(core::ptr::without_provenance_mut(addr), len, libc::MADV_DONTFORK) }
        != 0
    {
        let error = io::Error::last_os_error();
        tracing::warn!(%error, len, "moved pages could not be kept out of forked children again");
    }
}

/// Frees the file's pages; a failure only keeps memory until the arena goes.
fn punch(shared: &ArenaShared, offset: u64, len: usize) {
    let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    let freed = file_offset(offset)
        .and_then(|start| Ok((start, file_offset(len as u64)?)))
        .and_then(|(start, len)| Ok(fallocate(shared.fd.as_fd(), flags, start, len)?));
    if let Err(error) = freed {
        tracing::warn!(%error, len, "the arena kept pages of a range that was moved back");
    }
}

/// Lets the kernel copy memory into the file (faster than through a mapping: no page faults).
fn write_all(shared: &ArenaShared, addr: usize, len: usize, offset: u64) -> io::Result<()> {
    let fd = shared.fd.as_raw_fd();
    let mut done = 0;
    while done < len {
        let at = file_offset(offset + done as u64)?;
        let from = core::ptr::without_provenance(addr + done);
        // SAFETY: the kernel checks the address; it reads len - done mapped bytes, changes nothing.
        done += checked(unsafe { libc::pwrite(fd, from, len - done, at) })?;
    }
    Ok(())
}

/// A run of the file's pages that is known to have content. It keeps it until the arena frees the
/// pages, so one query serves all chunks of a range; a hole may get content at any moment and is
/// queried again.
#[derive(Debug)]
struct DataRun {
    /// End of the run, as an offset in the file.
    end: u64,
}

impl DataRun {
    /// Lets the kernel copy `len` bytes of the file at `offset`, mapped at `old`, to new memory,
    /// leaving holes untouched.
    fn read(
        &mut self,
        shared: &ArenaShared,
        (new, old, len): (usize, usize, usize),
        offset: u64,
    ) -> io::Result<()> {
        self.each(shared, offset, len, |skip, run| {
            if shared.gate.fill(new + skip, old + skip, run) {
                return Ok(run);
            }
            let to = core::ptr::without_provenance_mut(new + skip);
            let (fd, from) = (shared.fd.as_raw_fd(), file_offset(offset + skip as u64)?);
            // SAFETY: the target is the caller's new mapping of len bytes, skip + run <= len.
            checked(unsafe { libc::pread(fd, to, run, from) })
        })
    }

    /// Calls `work` with place and length of each run of data among the `len` bytes of the file at
    /// `offset`; it returns how many bytes it did, and gets the others again.
    fn each(
        &mut self,
        shared: &ArenaShared,
        offset: u64,
        len: usize,
        mut work: impl FnMut(usize, usize) -> io::Result<usize>,
    ) -> io::Result<()> {
        let end = offset + len as u64;
        let mut at = offset;
        while at < end {
            if self.end <= at {
                at = match lseek(shared.fd.as_fd(), file_offset(at)?, Whence::SeekData) {
                    Ok(data) => u64::try_from(data).unwrap_or(end),
                    Err(Errno::ENXIO) => end,
                    Err(error) => return Err(error.into()),
                };
                if at >= end {
                    break;
                }
                let hole = lseek(shared.fd.as_fd(), file_offset(at)?, Whence::SeekHole)?;
                self.end = u64::try_from(hole).unwrap_or(end);
            }
            let run = self.end.min(end) - at;
            let run = usize::try_from(run).map_err(|_| io::ErrorKind::InvalidInput)?;
            let skip = usize::try_from(at - offset).map_err(|_| io::ErrorKind::InvalidInput)?;
            at += work(skip, run)? as u64;
        }
        Ok(())
    }
}

/// A transfer's length; none at all is an error, an interruption is none yet.
fn checked(transferred: isize) -> io::Result<usize> {
    match usize::try_from(transferred) {
        Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(len) => Ok(len),
        Err(_) => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => Ok(0),
            error => Err(error),
        },
    }
}

fn new_private(len: usize) -> io::Result<usize> {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping at an address of the kernel's choice touches no existing mapping.
    let mapped = unsafe { libc::mmap(core::ptr::null_mut(), len, prot, flags, -1, 0) };
    if mapped == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(mapped.addr()) }
}

fn unmap(addr: usize, len: usize) {
    // SAFETY: the range is what is left of this file's own new_private mapping.
    unsafe { libc::munmap(core::ptr::without_provenance_mut(addr), len) };
}
