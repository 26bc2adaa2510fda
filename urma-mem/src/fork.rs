//! Fork: what a child must not share with its parent is replaced before it runs its first
//! instruction.
//!
//! Owns: the lists of page ranges, descriptors, flags and functions, the handlers around `fork`,
//! the generation. Takes: ranges from the arena and from shared regions, descriptors and flags of a
//! device, functions of a library. Gives: `generation`, `forked_since`; in the child: private copies under the noted pages
//! (moved ones, and the rings of a driver, which the parent's device reads; see `fork/snapshot.rs`), `/dev/null` in the
//! place of every watched descriptor, every watched flag set, every function called. Must not: allocate or lock anything
//! but its own word in the child.
//!
//! The descriptors are replaced, not closed: their owners in the child still hold the numbers, and
//! would later close another owner's file.
#![expect(
    unsafe_code,
    reason = "pthread_atfork, mmap and dup3 between fork and the child's first line"
)]

mod snapshot;

use core::cell::UnsafeCell;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::sync::AtomicBool;

/// Grows by one in every forked child.
static GENERATION: ForkCounter = ForkCounter::new(0);
static REGISTRY: Registry =
    Registry { held: Flag::new(false), lists: UnsafeCell::new(ForkLists::empty()) };

/// Aliases outside of the models' reach: no model forks.
#[expect(clippy::disallowed_types, reason = "statics need constant constructors")]
type ForkCounter = std::sync::atomic::AtomicU64;
#[expect(clippy::disallowed_types, reason = "statics need constant constructors")]
type Flag = std::sync::atomic::AtomicBool;

/// The process's fork generation: 0 at first, one more in each forked child of a child.
#[inline]
pub fn generation() -> u64 {
    GENERATION.load(Ordering::Relaxed)
}

/// Whether this process is a fork of the one that noted `generation`.
#[inline]
pub fn forked_since(generation: u64) -> bool {
    self::generation() != generation
}

/// Watches a descriptor: in a forked child its number refers to `/dev/null`. Keep the result as
/// long as the descriptor, and drop it first.
///
/// # Errors
/// The system's, when the handlers cannot be installed.
pub fn watch_fd(fd: BorrowedFd<'_>) -> io::Result<FdWatch> {
    install()?;
    let fd = fd.as_raw_fd();
    hold().lists().fds.push(fd);
    Ok(FdWatch { fd, generation: generation() })
}

/// A watched descriptor; see [`watch_fd`].
#[derive(Debug)]
pub struct FdWatch {
    fd: RawFd,
    generation: u64,
}

impl Drop for FdWatch {
    fn drop(&mut self) {
        if forked_since(self.generation) {
            return;
        }
        let mut held = hold();
        let fds = &mut held.lists().fds;
        if let Some(at) = fds.iter().position(|fd| *fd == self.fd) {
            fds.swap_remove(at);
        }
    }
}

/// Watches a flag: in a forked child it is set before the child runs a line. What a device of the
/// parent must not do for a child is guarded by a flag that its data path checks anyway.
///
/// # Errors
/// The system's, when the handlers cannot be installed.
pub fn watch_flag(flag: Arc<AtomicBool>) -> io::Result<FlagWatch> {
    install()?;
    hold().lists().flags.push(Arc::clone(&flag));
    Ok(FlagWatch { flag, generation: generation() })
}

/// A watched flag; see [`watch_flag`].
#[derive(Debug)]
pub struct FlagWatch {
    flag: Arc<AtomicBool>,
    generation: u64,
}

impl Drop for FlagWatch {
    fn drop(&mut self) {
        if forked_since(self.generation) {
            return;
        }
        let mut held = hold();
        let flags = &mut held.lists().flags;
        if let Some(at) = flags.iter().position(|flag| Arc::ptr_eq(flag, &self.flag)) {
            flags.swap_remove(at);
        }
    }
}

/// Calls `call` in each forked child, before the child runs a line; once, however often it is asked for. It may store to
/// atomics, and nothing else.
///
/// # Errors
/// The system's, when the handlers cannot be installed.
pub fn call_in_child(call: fn()) -> io::Result<()> {
    install()?;
    let mut held = hold();
    let calls = &mut held.lists().calls;
    if !calls.iter().any(|known| core::ptr::fn_addr_eq(*known, call)) {
        calls.push(call);
    }
    Ok(())
}

/// Notes memory of a file that this process shares with devices and peers: a forked child gets a
/// private view of it. Until [`forget_shared`].
pub(crate) fn note_shared(pages: MovedPages) -> io::Result<()> {
    install()?;
    hold().add(pages);
    Ok(())
}

/// The range is about to be unmapped.
pub(crate) fn forget_shared(addr: usize, len: usize) {
    let mut held = hold();
    held.reserve(1);
    held.remove(addr, len);
}

/// Pages that are a shared file's, in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MovedPages {
    pub(crate) addr: usize,
    pub(crate) len: usize,
    pub(crate) fd: RawFd,
    pub(crate) offset: libc::off_t,
}

/// Installs the handlers, once per process.
pub(crate) fn install() -> io::Result<()> {
    static DONE: OnceLock<i32> = OnceLock::new();
    let status = *DONE.get_or_init(|| {
        // SAFETY: the three handlers are functions of this crate that live as long as the process.
        unsafe {
            libc::pthread_atfork(Some(before_fork), Some(after_in_parent), Some(after_in_child))
        }
    });
    if status == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(status)) }
}

/// Keeps forks away: a fork waits until the guard is dropped. Held for the change of at most 2 MiB.
pub(crate) fn hold() -> ForkHold {
    REGISTRY.acquire();
    ForkHold(())
}

/// Proof that no fork happens and that the lists are this thread's.
pub(crate) struct ForkHold(());

impl ForkHold {
    fn lists(&mut self) -> &mut ForkLists {
        // SAFETY: REGISTRY.held is set by the creator of this guard and by no other thread until it
        // is dropped, and the result borrows the guard.
        unsafe { &mut *REGISTRY.lists.get() }
    }

    /// Adds moved pages, which a child gets as private copies after a fork.
    pub(crate) fn add(&mut self, pages: MovedPages) {
        self.lists().moved.push(pages);
    }

    /// Makes room, so that [`ForkHold::add`] does not allocate while pages are between two homes.
    pub(crate) fn reserve(&mut self, count: usize) {
        self.lists().moved.reserve(count);
    }

    /// Forgets what was noted of a range; notes that reach beyond it keep the rest. Needs room for
    /// one more note (see [`ForkHold::reserve`]).
    pub(crate) fn remove(&mut self, addr: usize, len: usize) {
        subtract(&mut self.lists().moved, addr, addr + len);
    }
}

impl Drop for ForkHold {
    fn drop(&mut self) {
        REGISTRY.release();
    }
}

/// Takes `[start, end)` out of all notes, splitting those that reach beyond it.
fn subtract(moved: &mut Vec<MovedPages>, start: usize, end: usize) {
    let mut at = 0;
    while let Some(&pages) = moved.get(at) {
        let pages_end = pages.addr + pages.len;
        if pages.addr >= end || pages_end <= start {
            at += 1;
            continue;
        }
        moved.swap_remove(at);
        // Both rests are disjoint from the range, so looking at them again changes nothing.
        if pages.addr < start {
            moved.push(MovedPages { len: start - pages.addr, ..pages });
        }
        if end < pages_end {
            let skip = libc::off_t::try_from(end - pages.addr).unwrap_or(libc::off_t::MAX);
            let offset = pages.offset.saturating_add(skip);
            moved.push(MovedPages { addr: end, len: pages_end - end, offset, ..pages });
        }
    }
}

struct ForkLists {
    moved: Vec<MovedPages>,
    fds: Vec<RawFd>,
    flags: Vec<Arc<AtomicBool>>,
    calls: Vec<fn()>,
}

impl ForkLists {
    const fn empty() -> Self {
        Self { moved: Vec::new(), fds: Vec::new(), flags: Vec::new(), calls: Vec::new() }
    }
}

struct Registry {
    held: Flag,
    lists: UnsafeCell<ForkLists>,
}

// SAFETY: the lists are reached only by the thread that set `held` (through Hold, or in the
// handlers between before_fork and after_in_*).
unsafe impl Sync for Registry {}

impl Registry {
    #[expect(
        clippy::disallowed_methods,
        reason = "a fork's end wakes no thread: it must not allocate"
    )]
    fn acquire(&self) {
        let mut tries = 0_u32;
        while self.held.swap(true, Ordering::Acquire) {
            // A parent holds it until its child has its copies.
            if tries < 100 {
                std::thread::yield_now();
            } else {
                std::thread::sleep(Duration::from_micros(100));
            }
            tries = tries.saturating_add(1);
        }
    }

    fn release(&self) {
        self.held.store(false, Ordering::Release);
    }
}

/// What a forked child gets of registered memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ForkCopies {
    /// The bytes as at the fork, of which it makes copies.
    #[default]
    On,
    /// Pages of its own as it stores to them; the others have what the parent and its peers store later.
    Off,
}

/// Whether children of this process get copies of registered memory: by default they do.
static COPIES: Flag = Flag::new(true);

/// From now on children of this process get copies of registered memory, or they do not: then a fork costs nothing for it,
/// and a child sees what is stored later in pages to which it did not store itself.
pub fn copy_at_forks(copies: ForkCopies) {
    COPIES.store(copies == ForkCopies::On, Ordering::Relaxed);
}

extern "C" fn before_fork() {
    REGISTRY.acquire();
    // SAFETY: this thread took the registry in the line before.
    let lists = unsafe { &*REGISTRY.lists.get() };
    snapshot::prepare(!lists.moved.is_empty() && COPIES.load(Ordering::Relaxed));
}

extern "C" fn after_in_parent() {
    // SAFETY: this thread has held the registry since before_fork.
    let lists = unsafe { &*REGISTRY.lists.get() };
    // Pages must not move until the child has them.
    snapshot::wait_for_child(lists.moved.iter().map(|pages| pages.len).sum());
    REGISTRY.release();
}

/// Runs in the child, alone, before `fork` returns: system calls and stores only.
extern "C" fn after_in_child() {
    // SAFETY: before_fork set `held` for this thread, the only one of the child.
    let lists = unsafe { &mut *REGISTRY.lists.get() };
    snapshot::take_over(&mut lists.moved);
    for flag in &lists.flags {
        flag.store(true, Ordering::SeqCst);
    }
    // SAFETY: a constant path; open is async-signal-safe.
    let null = unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    for fd in &lists.fds {
        replace(*fd, null);
    }
    lists.fds.clear();
    if null >= 0 {
        // SAFETY: opened above and known to no other owner.
        unsafe { libc::close(null) };
    }
    GENERATION.fetch_add(1, Ordering::Relaxed);
    for call in &lists.calls {
        call();
    }
    snapshot::start();
    REGISTRY.release();
}

/// Lets the number `fd` refer to `/dev/null`, or to nothing when that cannot be opened.
fn replace(fd: RawFd, null: RawFd) {
    if null >= 0 {
        // SAFETY: dup3 closes what `fd` was; its owner registered it for exactly that.
        unsafe { libc::dup3(null, fd, libc::O_CLOEXEC) };
    } else {
        // SAFETY: the owner registered `fd` to be closed in children, and does not use it there.
        unsafe { libc::close(fd) };
    }
}

/// Runs `task` in a forked child, which ends with 0 when it answers `true`; the answer here is the
/// child's process id. For tests of what a child may do: POSIX promises little in a child of a
/// process with threads, and a lock of theirs (an allocator's excepted) may be held there for ever.
///
/// # Errors
/// The system's, when there is no process to be had.
#[cfg(any(test, feature = "fork-in-tests"))]
pub fn in_child(task: impl FnOnce() -> bool) -> io::Result<u32> {
    // SAFETY: the child runs the caller's task, which is a test's, and ends without returning.
    let pid = unsafe { libc::fork() };
    match u32::try_from(pid) {
        Err(_) => Err(io::Error::last_os_error()),
        Ok(0) => {
            let done =
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(task)).unwrap_or(false);
            // SAFETY: ends the child without running what the parent registered for its own end.
            unsafe { libc::_exit(i32::from(!done)) }
        }
        Ok(child) => Ok(child),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn forgetting_a_part_keeps_the_rest_at_its_offset() {
        let note = |addr, len, offset| MovedPages { addr, len, fd: 3, offset };
        let mut moved = vec![note(100, 50, 1000), note(200, 50, 2000), note(300, 10, 3000)];
        subtract(&mut moved, 120, 130);
        subtract(&mut moved, 190, 210);
        subtract(&mut moved, 300, 310);
        moved.sort_by_key(|pages| pages.addr);
        assert_eq!(moved, [note(100, 20, 1000), note(130, 20, 1030), note(210, 40, 2010)]);
    }
}
