//! Memory that another process may take away while it is used: an access ends with other bytes, not with SIGBUS.
//!
//! Owns the process's SIGBUS handler, once a file of another process is mapped. Must not swallow a SIGBUS of any
//! other memory.
#![expect(unsafe_code, reason = "a signal handler, and what it does")]
#![expect(clippy::disallowed_types, reason = "the handler is not a part of any model")]

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::io;
use std::sync::OnceLock;

use nix::errno::Errno;

use crate::region::Region;

/// Windows that a process has at most.
const WINDOWS_MAX: usize = 256;

static WINDOWS: [Window; WINDOWS_MAX] = [const { Window::free() }; WINDOWS_MAX];
/// What was done with the signal before; leaked, set once.
static BEFORE: AtomicPtr<libc::sigaction> = AtomicPtr::new(core::ptr::null_mut());

#[derive(Debug)]
struct Window {
    is_taken: AtomicBool,
    /// 0 while the window is not guarded.
    start: AtomicUsize,
    end: AtomicUsize,
    /// Bytes that one mapping has at least: those of a page of the file.
    unit: AtomicUsize,
    is_lost: AtomicBool,
}

/// A window while it is guarded. It goes before the window's mapping does.
///
/// A file that was mapped may become shorter, or have holes for which no memory is left; the kernel answers an access
/// to such a page with SIGBUS. The handler puts a private page there, so that the access goes on, and marks the
/// window as lost: what was stored went nowhere, what was loaded is nothing, and a caller looks at the mark after
/// each use. All other signals go to the handler that was there before. A thread that blocks SIGBUS, and a program
/// that replaces the handler later without calling it, ends by such an access as without the handler.
#[derive(Debug)]
pub(crate) struct GuardedWindow(&'static Window);

impl Window {
    const fn free() -> Self {
        let [start, end, unit] = [const { AtomicUsize::new(0) }; 3];
        let (is_taken, is_lost) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { is_taken, start, end, unit, is_lost }
    }

    fn contains(&self, addr: usize) -> bool {
        let start = self.start.load(Ordering::Acquire);
        start != 0 && start <= addr && addr < self.end.load(Ordering::Relaxed)
    }

    /// Puts private memory where `addr` is. Whether it did.
    fn replace(&self, addr: usize) -> bool {
        let unit = self.unit.load(Ordering::Relaxed);
        self.is_lost.store(true, Ordering::SeqCst);
        let page = core::ptr::without_provenance_mut(addr / unit * unit);
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        // SAFETY: the page lies in a window, which begins and ends on such pages and stays mapped while it is guarded: its
        // owner uses it for accesses alone whose result counts only if the window is not lost.
        unsafe { libc::mmap(page, unit, prot, flags, -1, 0) != libc::MAP_FAILED }
    }
}

impl GuardedWindow {
    /// Guards a window of whole pages of `unit` bytes.
    ///
    /// # Errors
    /// `QuotaExceeded`: there are 256 already; else the system does not take the handler.
    pub(crate) fn new(memory: &Region, unit: usize) -> io::Result<Self> {
        static INSTALLED: OnceLock<Result<(), Errno>> = OnceLock::new();
        (*INSTALLED.get_or_init(install))?;
        let is_free = |window: &&Window| !window.is_taken.swap(true, Ordering::AcqRel);
        let window = WINDOWS.iter().find(is_free).ok_or(io::ErrorKind::QuotaExceeded)?;
        window.unit.store(unit, Ordering::Relaxed);
        window.end.store(memory.addr() + memory.len(), Ordering::Relaxed);
        window.is_lost.store(false, Ordering::Relaxed);
        window.start.store(memory.addr(), Ordering::Release);
        Ok(Self(window))
    }

    /// Whether an access did not reach the file, now or earlier.
    pub(crate) fn is_lost(&self) -> bool {
        self.0.is_lost.load(Ordering::SeqCst)
    }
}

impl Drop for GuardedWindow {
    fn drop(&mut self) {
        self.0.start.store(0, Ordering::Release);
        self.0.is_taken.store(false, Ordering::Release);
    }
}

fn install() -> Result<(), Errno> {
    let mut before = Box::new(core::mem::MaybeUninit::<libc::sigaction>::zeroed());
    // SAFETY: the call stores the present action in the box and changes nothing.
    Errno::result(unsafe {
        libc::sigaction(libc::SIGBUS, core::ptr::null(), before.as_mut_ptr())
    })?;
    // Before the handler can run. It is never freed: the handler stays.
    BEFORE.store(Box::into_raw(before).cast(), Ordering::Release);
    let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = on_fault;
    // SAFETY: zeros are a valid value of the structure.
    let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
    action.sa_sigaction = handler as libc::sighandler_t;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: the action is whole, and its handler calls only what a handler may.
    Errno::result(unsafe {
        libc::sigaction(libc::SIGBUS, &raw const action, core::ptr::null_mut())
    })?;
    Ok(())
}

/// An access to a page that is not there. Everything in it may be done in a signal handler.
extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let errno = Errno::last_raw();
    // SAFETY: the kernel gives the handler a whole structure, which is there until it returns.
    let fault = unsafe { &*info };
    // SAFETY: the kernel sets an address for this signal; one that a process sent is not used below.
    let (code, addr) = (fault.si_code, unsafe { fault.si_addr() }.addr());
    let is_replaced = code == libc::BUS_ADRERR
        && WINDOWS.iter().find(|window| window.contains(addr)).is_some_and(|w| w.replace(addr));
    if !is_replaced {
        pass_on(signal, info, context);
    }
    Errno::set_raw(errno);
}

/// Does what the process did with the signal before.
fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: it was set before the handler was installed, and is never freed or changed.
    let before = unsafe { &*BEFORE.load(Ordering::Acquire) };
    match before.sa_sigaction {
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: the default action is one of the values that the call takes.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
            // SAFETY: it may be called in a handler; the signal comes when that returns, and ends the process.
            unsafe { libc::raise(signal) };
        }
        handler if before.sa_flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: by its flag the address is a function of this type.
            let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                unsafe { core::mem::transmute(handler) };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: by its flag the address is a function of this type.
            let handler: extern "C" fn(c_int) = unsafe { core::mem::transmute(handler) };
            handler(signal);
        }
    }
}
