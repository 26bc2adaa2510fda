//! The SIGBUS handler for windows on others' files: every other SIGBUS goes where it went before.

#![expect(unsafe_code, reason = "forks, handlers and an access that faults")]

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags, mmap};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, raise, sigaction};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};
use urma_mem::{FilePlace, FileWindow};

const LEN: usize = 64 << 10;

fn window() -> (File, FileWindow) {
    let file = File::from(memfd_create("sigbus", MFdFlags::MFD_CLOEXEC).expect("memfd"));
    file.set_len(LEN as u64).expect("a length");
    let seen = file.metadata().expect("metadata");
    let descriptor = u32::try_from(file.as_raw_fd()).expect("a descriptor");
    let place = FilePlace { descriptor, device: seen.dev(), inode: seen.ino(), offset: 0 };
    let window = FileWindow::map(std::process::id(), &place).expect("a window");
    (file, window)
}

/// How a child ends that does `f`.
fn child(f: impl FnOnce()) -> WaitStatus {
    // SAFETY: the child makes system calls and touches memory, and ends without anything of the parent's other threads.
    match unsafe { fork() }.expect("fork") {
        ForkResult::Parent { child } => waitpid(child, None).expect("waitpid"),
        ForkResult::Child => {
            f();
            // SAFETY: it ends the process at once.
            unsafe { libc::_exit(0) }
        }
    }
}

/// Loads a byte of a file that is not there any more.
fn touch_what_is_gone() {
    let file = memfd_create("gone", MFdFlags::MFD_CLOEXEC).expect("memfd");
    let file = File::from(file);
    file.set_len(LEN as u64).expect("a length");
    let len = LEN.try_into().expect("not 0");
    // SAFETY: a new mapping at an address of the kernel's choice.
    let base = unsafe { mmap(None, len, ProtFlags::PROT_READ, MapFlags::MAP_SHARED, &file, 0) };
    let base = base.expect("a mapping");
    file.set_len(0).expect("a length");
    // SAFETY: the byte is mapped; its page is gone, which is what the signal is about.
    unsafe { base.cast::<u8>().as_ptr().read_volatile() };
}

extern "C" fn leave(_: libc::c_int) {
    // SAFETY: it ends the process at once.
    unsafe { libc::_exit(7) };
}

#[test]
fn a_sigbus_of_other_memory_goes_to_the_handler_before_or_ends_the_process() {
    let before = SigAction::new(SigHandler::Handler(leave), SaFlags::empty(), SigSet::empty());
    // The window of each child is its first: it installs the handler.
    let with_handler = child(|| {
        // SAFETY: the handler ends the process and does nothing else.
        unsafe { sigaction(Signal::SIGBUS, &before) }.expect("a handler");
        let (_file, _window) = window();
        touch_what_is_gone();
    });
    assert!(matches!(with_handler, WaitStatus::Exited(_, 7)), "{with_handler:?}");
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    for fault in [touch_what_is_gone, || raise(Signal::SIGBUS).expect("raise")] {
        let without = child(|| {
            // SAFETY: the default action is no handler.
            unsafe { sigaction(Signal::SIGBUS, &default) }.expect("an action");
            let (_file, _window) = window();
            fault();
        });
        assert!(matches!(without, WaitStatus::Signaled(_, Signal::SIGBUS, _)), "{without:?}");
    }
    let of_window = child(|| {
        let (file, window) = window();
        file.set_len(0).expect("a length");
        window.bytes().write(LEN - 1, &[1]).expect("inside");
        assert!(window.is_lost());
    });
    assert!(matches!(of_window, WaitStatus::Exited(_, 0)), "{of_window:?}");
}
