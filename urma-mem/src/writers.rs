//! Writers held while pages move: write protection by userfaultfd.
//!
//! Owns: one protected range at a time, of at most one chunk.
//! Takes: ranges of private anonymous memory, or of the arena's file.
//! Gives: threads of this process that store into the range meanwhile wait, and go on in the pages
//! that are there afterwards. Nothing where the system does not offer it: then the caller keeps
//! writers away. Must not: touch memory of the allocator between protection and release: a thread
//! that waits may hold its lock, and so may the pages.
//!
//! The descriptor's messages are not read: threads that wait are woken when the move is done, and
//! each store is tried again. Without privileges (`vm.unprivileged_userfaultfd` is 0) only stores
//! of user mode can be held; a system call that stores into the range at that moment, read(2) for
//! instance, answers EFAULT.
#![expect(unsafe_code, reason = "userfaultfd has no wrapper")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;

use crate::fork::{self, FdWatch};

/// What becomes of threads that store into memory while its pages move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Writers {
    /// They wait, where the system offers userfaultfd; else as `Trusted`.
    #[default]
    Held,
    /// The caller keeps them away; their stores may be lost.
    Trusted,
}

/// How far the system lets this process hold writers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriterHold {
    /// All stores, those of system calls as well.
    Full,
    /// Stores of user mode; a system call that stores meanwhile fails with EFAULT.
    UserMode,
    /// None: no userfaultfd (a container's filter, an old kernel: 6.4 is needed).
    None,
}

/// What this process can use; determined once.
pub fn writer_hold() -> WriterHold {
    static FOUND: OnceLock<WriterHold> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let found = if open(libc::O_CLOEXEC).is_ok() {
            WriterHold::Full
        } else if open(libc::O_CLOEXEC | USER_MODE_ONLY).is_ok() {
            WriterHold::UserMode
        } else {
            WriterHold::None
        };
        tracing::info!(?found, "writers during page moves");
        found
    })
}

/// What holds an arena's writers: one descriptor for all ranges. Closing one visits every mapping
/// of the process, so a descriptor for each range would cost more the more memory is registered.
#[derive(Debug)]
pub(crate) struct Gate {
    /// Declared first: it goes before the descriptor.
    _watch: Option<FdWatch>,
    /// `None`: the caller keeps writers away.
    fd: Option<OwnedFd>,
}

/// A range whose writers wait until it is dropped.
#[derive(Debug)]
pub(super) struct Protected<'a> {
    fd: &'a OwnedFd,
    range: Range,
}

impl Gate {
    /// # Errors
    /// No descriptor is left.
    pub(crate) fn new(writers: Writers) -> io::Result<Self> {
        let flags = match (writers, writer_hold()) {
            (Writers::Trusted, _) | (_, WriterHold::None) => {
                return Ok(Self { _watch: None, fd: None });
            }
            (Writers::Held, WriterHold::Full) => libc::O_CLOEXEC,
            (Writers::Held, WriterHold::UserMode) => libc::O_CLOEXEC | USER_MODE_ONLY,
        };
        let fd = open(flags)?;
        Ok(Self { _watch: Some(fork::watch_fd(fd.as_fd())?), fd: Some(fd) })
    }

    /// Lets writers of the range wait; `None` when the system refuses for this range.
    pub(super) fn protect(&self, range: (usize, usize)) -> Option<Protected<'_>> {
        let fd = self.fd.as_ref()?;
        let range = Range { start: range.0 as u64, len: range.1 as u64 };
        let mut register = Register { range, mode: MODE_WP, ioctls: 0 };
        call(fd, IOCTL_REGISTER, &raw mut register).ok()?;
        let protected = Protected { fd, range };
        let mut protect = Protect { range, mode: PROTECT_WP };
        call(fd, IOCTL_WRITEPROTECT, &raw mut protect).ok()?;
        Some(protected)
    }
}

impl Gate {
    /// Gives pages without content at `to`, private memory that no other thread uses, the content
    /// of those at `from`. A page gets it as it is made: one that a fault makes is zeroed first,
    /// which takes as long. `false`: not to be had here; some pages may have content.
    pub(super) fn fill(&self, to: usize, from: usize, len: usize) -> bool {
        let Some(fd) = &self.fd else { return false };
        let mut range = Range { start: to as u64, len: len as u64 };
        let mut register = Register { range, mode: MODE_MISSING, ioctls: 0 };
        let registered = call(fd, IOCTL_REGISTER, &raw mut register);
        let mut copy =
            Copy { to: to as u64, from: from as u64, len: len as u64, mode: 0, copied: 0 };
        let copied = registered.and_then(|()| call(fd, IOCTL_COPY, &raw mut copy));
        // While it is registered a fault in it would wait for a copy.
        call(fd, IOCTL_UNREGISTER, &raw mut range).and(copied).is_ok()
    }
}

impl Drop for Protected<'_> {
    fn drop(&mut self) {
        // Where other pages are mapped by now nothing is registered any more, and this changes
        // nothing.
        let _ = call(self.fd, IOCTL_UNREGISTER, &raw mut self.range);
        if let Err(error) = call(self.fd, IOCTL_WAKE, &raw mut self.range) {
            tracing::error!(%error, "threads that store into moved memory may wait for ever");
        }
    }
}

/// A descriptor that can write-protect private anonymous and shared memory, pages without content
/// included.
fn open(flags: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: the call takes flags only.
    let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
    let fd = libc::c_int::try_from(fd).ok().filter(|fd| *fd >= 0);
    let fd = fd.ok_or_else(io::Error::last_os_error)?;
    // SAFETY: the descriptor is new and has no other owner.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let mut api = Api { api: API, features: FEATURES, ioctls: 0 };
    call(&fd, IOCTL_API, &raw mut api)?;
    Ok(fd)
}

fn call<T>(fd: &OwnedFd, request: libc::Ioctl, argument: *mut T) -> io::Result<()> {
    // SAFETY: every caller passes the structure that its request number names, alive for the call.
    let answer = unsafe { libc::ioctl(fd.as_raw_fd(), request, argument) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// `struct uffdio_api` (linux/userfaultfd.h), as the others here.
#[repr(C)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Range {
    start: u64,
    len: u64,
}

#[repr(C)]
struct Register {
    range: Range,
    mode: u64,
    ioctls: u64,
}

#[repr(C)]
struct Protect {
    range: Range,
    mode: u64,
}

#[repr(C)]
struct Copy {
    to: u64,
    from: u64,
    len: u64,
    mode: u64,
    copied: i64,
}

const API: u64 = 0xAA;
/// `PAGEFAULT_FLAG_WP`, `WP_HUGETLBFS_SHMEM` (Linux 5.19), `WP_UNPOPULATED` (Linux 6.4).
const FEATURES: u64 = 1 | 1 << 12 | 1 << 13;
const MODE_MISSING: u64 = 1;
const MODE_WP: u64 = 2;
const PROTECT_WP: u64 = 1;
const USER_MODE_ONLY: libc::c_int = 1;
const IOCTL_API: libc::Ioctl = number::<Api>(3, 0x3F);
const IOCTL_REGISTER: libc::Ioctl = number::<Register>(3, 0x00);
const IOCTL_UNREGISTER: libc::Ioctl = number::<Range>(2, 0x01);
const IOCTL_WAKE: libc::Ioctl = number::<Range>(2, 0x02);
const IOCTL_COPY: libc::Ioctl = number::<Copy>(3, 0x03);
const IOCTL_WRITEPROTECT: libc::Ioctl = number::<Protect>(3, 0x06);

/// `_IOWR(0xAA, number, T)` for direction 3, `_IOR` for 2 (asm-generic/ioctl.h).
const fn number<T>(direction: libc::Ioctl, number: libc::Ioctl) -> libc::Ioctl {
    direction << 30 | (size_of::<T>() as libc::Ioctl) << 16 | 0xAA << 8 | number
}
