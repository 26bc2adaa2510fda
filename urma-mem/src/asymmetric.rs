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
    use crate::sync::{AtomicU32, Ordering, spin_hint, yield_now};

    /// A word in a cache line of its own: a store to it waits in the processor's buffer while the other core has it.
    #[derive(Default)]
    #[repr(align(128))]
    struct RacedWord(AtomicU32);

    impl RacedWord {
        fn store(&self, value: u32) {
            self.0.store(value, Ordering::Relaxed);
        }

        fn load(&self) -> u32 {
            self.0.load(Ordering::Relaxed)
        }
    }

    /// What both threads share: the words of the light and of the heavy side, what each saw, and how far each is.
    #[derive(Default)]
    struct Race {
        words: [RacedWord; 2],
        saw: [RacedWord; 2],
        met: [RacedWord; 2],
    }

    impl Race {
        /// Waits until the other side is as far as this one.
        fn meet(&self, side: usize, step: u32) {
            self.met[side].0.store(step, Ordering::SeqCst);
            let mut looks = 0_u32;
            while self.met[1 - side].0.load(Ordering::SeqCst) < step {
                looks += 1;
                if looks.is_multiple_of(10_000) { yield_now() } else { spin_hint() }
            }
        }

        /// Stores and looks, with the barrier of this side between, once a round. Rounds in which neither side saw the
        /// other.
        fn run(&self, side: usize, barrier: impl Fn()) -> u32 {
            let mut blind = 0;
            for round in 1..=ROUNDS {
                self.meet(side, 2 * round);
                self.words[side].store(round);
                barrier();
                self.saw[side].store(self.words[1 - side].load());
                self.meet(side, 2 * round + 1);
                blind += u32::from(self.saw.iter().all(|saw| saw.load() < round));
            }
            blind
        }
    }

    /// Rounds in which neither side saw the other, with this heavy side.
    fn blind_rounds(heavy: impl Fn() + Sync) -> u32 {
        let race = Race::default();
        std::thread::scope(|scope| {
            let other = scope.spawn(|| race.run(1, &heavy));
            let blind = race.run(0, light);
            assert_eq!(other.join().ok(), Some(blind));
            blind
        })
    }

    #[test]
    fn one_of_both_sides_sees_the_other() {
        if !is_available() {
            return urma_skip::skip("the kernel has no membarrier for a process");
        }
        assert_eq!(blind_rounds(heavy), 0);
    }

    /// The race is one: without the heavy side's barrier it is lost.
    #[test]
    fn without_the_heavy_barrier_both_sides_miss_each_other() {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        if cores < 2 {
            return urma_skip::skip("one core runs one side at a time");
        }
        let lost = (0..50).any(|_| blind_rounds(light) != 0);
        assert!(lost, "no store was seen late");
    }

    const ROUNDS: u32 = 2_000;
}
