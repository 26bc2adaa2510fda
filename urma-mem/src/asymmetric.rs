//! A pair of barriers of which the frequent one costs nothing and the rare one is a system call.
//!
//! Owns: whether this process is registered for it. Takes: nothing.
//! Gives: `light` and `heavy`: of a thread that stores, calls `light` and loads, and one that stores, calls `heavy` and
//! loads, at least one sees the store of the other. Must not: be used where the kernel refuses it
//! ([`is_available`]).
//!
//! It rests on what membarrier(2) promises of `MEMBARRIER_CMD_PRIVATE_EXPEDITED` (Linux 4.14): when it returns, each
//! running thread of the process has passed a state in which all its memory accesses in program order before are
//! ordered against those after it; a thread that does not run passes one when it is scheduled. So `light` has to keep
//! the program order only, which is the compiler's.
#![cfg_attr(not(any(loom, miri)), expect(unsafe_code, reason = "membarrier has no safe spelling"))]

/// Whether both may be used in this process.
#[cfg(not(any(loom, miri)))]
#[must_use]
pub fn is_available() -> bool {
    use std::sync::OnceLock;
    static IS_REGISTERED: OnceLock<bool> = OnceLock::new();
    *IS_REGISTERED.get_or_init(|| membarrier(REGISTER) && membarrier(BARRIER))
}

/// As in a process where the kernel has it.
#[cfg(loom)]
#[must_use]
pub fn is_available() -> bool {
    true
}

/// The interpreter has no such system call.
#[cfg(all(miri, not(loom)))]
#[must_use]
pub fn is_available() -> bool {
    false
}

/// The frequent side: it costs no instruction.
#[inline(always)]
pub fn light() {
    #[cfg(not(loom))]
    core::sync::atomic::compiler_fence(core::sync::atomic::Ordering::SeqCst);
    #[cfg(loom)]
    crate::sync::fence(crate::sync::Ordering::SeqCst);
}

/// The rare side: 0.2 to 7 us.
#[cold]
pub fn heavy() {
    #[cfg(not(any(loom, miri)))]
    if !(membarrier(BARRIER) || membarrier(REGISTER) && membarrier(BARRIER)) {
        // It worked before. Without it two threads would work on one value.
        tracing::error!("the kernel refuses membarrier, which it allowed before: the process ends");
        std::process::abort();
    }
    #[cfg(any(loom, miri))]
    crate::sync::fence(crate::sync::Ordering::SeqCst);
}

/// The number of `MEMBARRIER_CMD_PRIVATE_EXPEDITED`.
#[cfg(not(any(loom, miri)))]
const BARRIER: libc::c_int = 1 << 3;
/// The number of `MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED`.
#[cfg(not(any(loom, miri)))]
const REGISTER: libc::c_int = 1 << 4;

#[cfg(not(any(loom, miri)))]
fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: the system call takes two numbers and touches no memory of the caller.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use super::*;
    use crate::sync::{AtomicU32, Ordering};
    use std::sync::Barrier;

    /// Of two threads that store and look, one at least sees the other.
    #[test]
    fn one_of_both_sides_sees_the_other() {
        if !is_available() {
            return;
        }
        let (mine, theirs) = (AtomicU32::new(0), AtomicU32::new(0));
        let (start, end) = (Barrier::new(2), Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..ROUNDS {
                    start.wait();
                    theirs.store(round, Ordering::Relaxed);
                    heavy();
                    let seen = mine.load(Ordering::Relaxed);
                    end.wait();
                    assert!(seen == round || LIGHT_SAW.load(Ordering::Relaxed) == round);
                }
            });
            for round in 1..ROUNDS {
                start.wait();
                mine.store(round, Ordering::Relaxed);
                light();
                LIGHT_SAW.store(theirs.load(Ordering::Relaxed), Ordering::Relaxed);
                end.wait();
            }
        });
    }

    const ROUNDS: u32 = 2_000;
    static LIGHT_SAW: AtomicU32 = AtomicU32::new(0);
}
