//! What a forked child sees of memory that its parent shares with peers: the bytes as at the fork.
//!
//! Must not allocate, lock, or touch thread-local storage in the child: the thread that copies has none of its own,
//! so it makes system calls by itself and has all signals blocked. Bytes that other threads of the parent, or peers,
//! store while `fork` lasts may be seen by the child or not.
#![expect(
    unsafe_code,
    reason = "a thread without a library, between fork and the child's first line"
)]

use core::cell::UnsafeCell;
use core::ffi::c_void;
use std::os::fd::RawFd;
use std::sync::atomic::Ordering;

use super::{Flag, MovedPages};
use crate::maps::{Origin, Origins, page_len};

/// How long a parent waits for its child's copies: this, and [`WAIT_MS_PER_MIB`] on top.
const WAIT_MS: u64 = 10_000;
/// An idle machine takes some 1 ms for a MiB, one with ten times more threads than processors ten times that.
const WAIT_MS_PER_MIB: u64 = 64;
/// How long the next fork of a child waits for the copies of the last one.
const NESTED_WAIT_MS: u64 = 60_000;
/// Files that have pages noted: arenas of the nodes, and memory shared with devices. Of more, pages without content are
/// copied as well.
const FILES: usize = 32;
const STACK_LEN: usize = 64 << 10;

/// What a fork needs from before to after it.
///
/// Pages of a shared file are not copied on write. So the child maps the file privately, and takes a copy of each
/// page that has content before its parent goes on: a second thread of the child does that, while the child's own one
/// runs its program. The parent's `fork` returns when the copies are made, or when the child calls `exec` or ends,
/// whichever is first: what is forked to execute something else copies next to nothing. Pages without content become
/// anonymous memory of the child at once.
pub(super) struct Snapshot {
    /// Read and write end; -1: none.
    pipe: [RawFd; 2],
    /// In the child: what is copied.
    pages: Vec<MovedPages>,
    /// In the child: descriptors of the files under the numbers that the pages note, and the copies that stay.
    files: [(RawFd, RawFd); FILES],
}

/// Used by the thread that holds the registry, and after it in the child by the thread that copies.
struct SnapshotCell(UnsafeCell<Snapshot>);
// SAFETY: the registry's holder is alone before and after a fork; the copying thread has it from its start until it clears
// COPYING, for which the next fork of its process waits.
unsafe impl Sync for SnapshotCell {}

static PLACE: SnapshotCell = SnapshotCell(UnsafeCell::new(Snapshot {
    pipe: [-1; 2],
    pages: Vec::new(),
    files: [(-1, -1); FILES],
}));
/// A thread of this process copies.
static COPYING: Flag = Flag::new(false);

#[repr(align(16))]
struct Stack(UnsafeCell<[u8; STACK_LEN]>);
// SAFETY: the only thread that runs on it is started when no other does (COPYING).
unsafe impl Sync for Stack {}
static STACK: Stack = Stack(UnsafeCell::new([0; STACK_LEN]));

fn place() -> *mut Snapshot {
    PLACE.0.get()
}

/// Before a fork, with the registry held: this process's own copies are complete, and there is a pipe.
pub(super) fn prepare(has_pages: bool) {
    let pause = libc::timespec { tv_sec: 0, tv_nsec: 200_000 };
    for _ in 0..NESTED_WAIT_MS * 5 {
        if !COPYING.load(Ordering::Acquire) {
            break;
        }
        // SAFETY: it only reads the time that it is given.
        unsafe { libc::nanosleep(&raw const pause, core::ptr::null_mut()) };
    }
    let mut pipe = [-1; 2];
    if has_pages {
        // SAFETY: the array has room for the two descriptors.
        let made = unsafe { libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC) };
        if made != 0 {
            pipe = [-1; 2];
            let error = std::io::Error::last_os_error();
            tracing::warn!(%error, "no pipe for a fork: the child may see what its parent stores later in registered memory");
        }
    }
    // SAFETY: the registry is this thread's.
    unsafe { (*place()).pipe = pipe };
}

/// After a fork, in the parent: waits for the child's copies of `bytes`.
pub(super) fn wait_for_child(bytes: usize) {
    // SAFETY: the registry is this thread's.
    let [from, to] = unsafe { core::mem::replace(&mut (*place()).pipe, [-1; 2]) };
    if from < 0 {
        return;
    }
    // SAFETY: made for this fork, and known to no other thread.
    unsafe { libc::close(to) };
    let limit = WAIT_MS + WAIT_MS_PER_MIB * (bytes as u64 >> 20);
    let limit = i32::try_from(limit).unwrap_or(i32::MAX);
    let mut poll = libc::pollfd { fd: from, events: libc::POLLIN, revents: 0 };
    // A signal's handler may have run: then once more, so that signals cannot make it endless.
    for _ in 0..1000 {
        // SAFETY: `poll` is this function's own, and its length is 1.
        match unsafe { libc::poll(&raw mut poll, 1, limit) } {
            0 => {
                tracing::error!(
                    limit_ms = limit,
                    "a forked child did not copy registered memory in time: it may see what is stored there from now on"
                );
                break;
            }
            1.. => break,
            _ => {}
        }
    }
    // SAFETY: a descriptor of this fork, known to no other thread.
    unsafe { libc::close(from) };
}

/// After a fork, in the child, which has one thread: puts private views under the pages; afterwards [`start`] is due.
pub(super) fn take_over(pages: &mut Vec<MovedPages>) {
    // SAFETY: the only thread of the child.
    let snapshot = unsafe { &mut *place() };
    let mapped = Origins::new().ok();
    snapshot.files = [(-1, -1); FILES];
    let mut run = FileRun::NONE;
    for pages in pages.iter() {
        let file = file_of(snapshot, pages.fd);
        each_shown(mapped.as_ref(), pages, |part| take_private(part, file, &mut run));
    }
    // The memory stays where it is: nothing is allocated and nothing freed.
    core::mem::swap(&mut snapshot.pages, pages);
    pages.clear();
}

/// Starts the thread that copies, after descriptors have been replaced.
pub(super) fn start() {
    // SAFETY: the only thread of the child.
    let snapshot = unsafe { &mut *place() };
    let [from, to] = snapshot.pipe;
    if to < 0 {
        return close_files(snapshot);
    }
    // SAFETY: the parent's end of the pipe, which this child has no use for.
    unsafe { libc::close(from) };
    if snapshot.pages.is_empty() {
        finish(snapshot);
        return;
    }
    COPYING.store(true, Ordering::Release);
    let top = STACK.0.get().cast::<u8>().wrapping_add(STACK_LEN);
    let flags = libc::CLONE_VM
        | libc::CLONE_FS
        | libc::CLONE_FILES
        | libc::CLONE_SIGHAND
        | libc::CLONE_THREAD
        | libc::CLONE_SYSVSEM;
    let mut before = core::mem::MaybeUninit::<libc::sigset_t>::uninit();
    let mut all = core::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `before` has room for a set, which the call fills.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: two sets, of which the first is filled.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) };
    // SAFETY: `copy_all` returns, and uses nothing but its stack, which is free, and the snapshot.
    let thread = unsafe { libc::clone(copy_all, top.cast(), flags, core::ptr::null_mut()) };
    // SAFETY: `before` was filled by the call above, which succeeded.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), core::ptr::null_mut()) };
    if thread < 0 {
        // No thread to be had: then before the child's first line.
        copy_all(core::ptr::null_mut());
    }
}

/// Takes the copies of all pages, in the thread that does only that.
extern "C" fn copy_all(_: *mut c_void) -> libc::c_int {
    // SAFETY: this thread's since COPYING was set.
    let snapshot = unsafe { &mut *place() };
    let mut run = FileRun::NONE;
    for at in 0..snapshot.pages.len() {
        let Some(pages) = snapshot.pages.get(at).copied() else { break };
        let file = snapshot.files.iter().find(|(fd, _)| *fd == pages.fd).map(|(_, file)| *file);
        each_data(&pages, file.unwrap_or(-1), &mut run, |at, len, has_data| {
            if has_data {
                copy_on_write(at, len);
            }
        });
    }
    finish(snapshot);
    0
}

/// The parent goes on.
fn finish(snapshot: &mut Snapshot) {
    close_files(snapshot);
    let done = [1_u8];
    let to = core::mem::replace(&mut snapshot.pipe, [-1; 2])[1];
    let _ = raw::call(libc::SYS_write, [raw::word(to), done.as_ptr().expose_provenance(), 1]);
    let _ = raw::call(libc::SYS_close, [raw::word(to), 0, 0]);
    COPYING.store(false, Ordering::Release);
}

fn close_files(snapshot: &mut Snapshot) {
    for (_, file) in snapshot.files.iter_mut().filter(|(_, file)| *file >= 0) {
        let _ = raw::call(libc::SYS_close, [raw::word(*file), 0, 0]);
        *file = -1;
    }
}

/// A descriptor of the file with the number `fd` that stays when that number is given something else; -1: none.
fn file_of(snapshot: &mut Snapshot, fd: RawFd) -> RawFd {
    for slot in &mut snapshot.files {
        if slot.0 == fd {
            return slot.1;
        }
        if slot.0 < 0 {
            // SAFETY: duplicates a descriptor that the pages keep open.
            *slot = (fd, unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) });
            return slot.1;
        }
    }
    -1
}

/// Calls `f` with each part of the pages that this process has mapped where the parent had: it may have asked for
/// `MADV_DONTFORK`, or have unmapped some.
fn each_shown(mapped: Option<&Origins>, pages: &MovedPages, mut f: impl FnMut(MovedPages)) {
    let Some(mapped) = mapped else { return f(*pages) };
    let (mut at, end) = (pages.addr, pages.addr + pages.len);
    while at < end {
        let Some(found) = mapped.at_or_after(at).filter(|found| found.start < end) else { break };
        let start = found.start.max(at);
        let stop = found.end.min(end);
        let skip = libc::off_t::try_from(start - pages.addr).unwrap_or(libc::off_t::MAX);
        let offset = pages.offset.saturating_add(skip);
        let Origin { offset: seen, is_shared, .. } = found.from(start).origin;
        if is_shared && u64::try_from(offset) == Ok(seen) {
            f(MovedPages { addr: start, len: stop - start, offset, ..*pages });
        }
        at = stop;
    }
}

/// Puts a private view of the same file under pages with content, and anonymous memory under the others.
fn take_private(pages: MovedPages, file: RawFd, run: &mut FileRun) {
    let fd = if file < 0 { pages.fd } else { file };
    each_data(&pages, file, run, |at, len, has_data| {
        let skip = libc::off_t::try_from(at - pages.addr).unwrap_or(0);
        let private = libc::MAP_PRIVATE | libc::MAP_FIXED | libc::MAP_NORESERVE;
        let (flags, fd, offset) = if has_data {
            (private, fd, pages.offset + skip)
        } else {
            (private | libc::MAP_ANONYMOUS, -1, 0)
        };
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let addr = core::ptr::without_provenance_mut(at);
        // SAFETY: the range holds a shared mapping of the same bytes, noted by the arena and looked at just now; the
        // content seen through the addresses does not change.
        let mapped = unsafe { libc::mmap(addr, len, prot, flags, fd, offset) };
        if mapped == libc::MAP_FAILED {
            // Better no memory than the parent's: a touch faults instead of corrupting the parent.
            // SAFETY: the range is the one above, and nothing of the child uses it yet.
            unsafe { libc::munmap(addr, len) };
        }
    });
}

/// The run of content in a file that was found last. One goes through many notes, and to find its end takes as long as it is.
#[derive(Clone, Copy)]
struct FileRun {
    file: RawFd,
    start: usize,
    end: usize,
}

impl FileRun {
    const NONE: Self = Self { file: -1, start: 0, end: 0 };

    /// Where content begins at or after `offset`, and where it ends; all of it where that cannot be known.
    fn at(&mut self, file: RawFd, offset: usize) -> (usize, usize) {
        if self.file == file && (self.start..self.end).contains(&offset) {
            return (offset, self.end);
        }
        let seek = |from: usize, whence: libc::c_int| {
            raw::call(libc::SYS_lseek, [raw::word(file), from, raw::word(whence)])
        };
        let all = (offset, usize::MAX);
        if file < 0 {
            return all;
        }
        let start = match seek(offset, libc::SEEK_DATA) {
            Ok(start) => start,
            Err(libc::ENXIO) => return (usize::MAX, usize::MAX),
            Err(_) => return all,
        };
        let Ok(end) = seek(start, libc::SEEK_HOLE) else { return all };
        *self = Self { file, start, end };
        (start, end)
    }
}

/// Calls `f(address, length, whether it has content)` for each run of the pages.
fn each_data(
    pages: &MovedPages,
    file: RawFd,
    run: &mut FileRun,
    mut f: impl FnMut(usize, usize, bool),
) {
    let (base, end) = (base_of(pages), pages.addr + pages.len);
    let place_of = |offset: usize| pages.addr.saturating_add(offset.saturating_sub(base));
    let mut at = pages.addr;
    while at < end {
        let (data, hole) = run.at(file, base + (at - pages.addr));
        let data = place_of(data).clamp(at, end);
        if data > at {
            f(at, data - at, false);
            at = data;
            continue;
        }
        let hole = place_of(hole).max(at + page_len()).min(end);
        f(at, hole - at, true);
        at = hole;
    }
}

fn base_of(pages: &MovedPages) -> usize {
    usize::try_from(pages.offset).unwrap_or(0)
}

/// Gives the pages of a private view to this process alone, without changing them: its other thread may store to them
/// meanwhile.
fn copy_on_write(at: usize, len: usize) {
    // Some at a time: the address space is locked meanwhile.
    const STEP: usize = 1 << 20;
    let mut done = 0;
    while done < len {
        let step = STEP.min(len - done);
        if !populate(at + done, step) {
            // The child's program has unmapped something in between.
            for page in (0..step).step_by(page_len()) {
                populate(at + done + page, page_len());
            }
        }
        done += step;
    }
}

/// `false`: not all of it is mapped.
fn populate(at: usize, len: usize) -> bool {
    let advice = raw::word(libc::MADV_POPULATE_WRITE);
    for _ in 0..100 {
        match raw::call(libc::SYS_madvise, [at, len, advice]) {
            Err(libc::EAGAIN | libc::EINTR) => {}
            answer => return answer != Err(libc::ENOMEM),
        }
    }
    true
}

/// System calls that leave `errno` alone, which the thread shares with the child's own one.
mod raw {
    /// A descriptor or flag as an argument.
    pub(super) fn word(value: libc::c_int) -> usize {
        // Sign-extended, as the system takes it.
        (value as isize).cast_unsigned()
    }

    /// The answer, or the error's number.
    pub(super) fn call(number: libc::c_long, [a, b, c]: [usize; 3]) -> Result<usize, libc::c_int> {
        let answer: i64;
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the arguments are those of the call, which changes no memory that Rust knows of.
        unsafe {
            core::arch::asm!(
                "syscall",
                inlateout("rax") number => answer,
                in("rdi") a, in("rsi") b, in("rdx") c,
                lateout("rcx") _, lateout("r11") _,
                options(nostack),
            );
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: as above, of the same mapping of this child.
        unsafe {
            core::arch::asm!(
                "svc 0",
                in("x8") number,
                inlateout("x0") a => answer,
                in("x1") b, in("x2") c,
                options(nostack),
            );
        }
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        let answer: i64 = {
            let _ = (number, a, b, c);
            -i64::from(libc::ENOSYS)
        };
        match usize::try_from(answer) {
            Ok(answer) => Ok(answer),
            Err(_) => Err(i32::try_from(answer.unsigned_abs()).unwrap_or(libc::EINVAL)),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
