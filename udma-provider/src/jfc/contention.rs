//! Detects that a thread polls in vain on a processor that other threads want, and gives that to them.
//!
//! A thread that spins on an empty JFC uses up its slice of the processor, and the threads that would do the work it
//! waits for run only then: two pollers on two processors starve the thread that posts, or the one that answers. Empty
//! polls are counted; one in [`POLLS_PER_LOOK`] reads the clock and decides:
//!
//! - *alone*: spins on. Where each poll costs a system call or an access to a device anyway, a yield now and then shows
//!   whether others wait, since they run then. Polls that make no call cost some ns, and get none from here.
//! - *shared*, since another thread ran in a yield, or the clock made a step that shows a lost slice: yields at each
//!   look, until no thread has taken the processor for a number of yields. A yield that took long was not always
//!   used: a tracer stops the thread as well. The kernel's count of switches tells.
//! - *starved*, since two slices were lost in a short time: others do not give the processor back. Waits in the kernel at
//!   each look. A thread that sleeps keeps its share, lets the scheduler move waiting threads to the free processor, and runs
//!   soon after it wakes.

use nix::sys::resource::{UsageWho, getrusage};
use udma_abi::{GiveWay, Nanos};

/// What an empty poll costs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PollCost {
    /// Some loads, in a lull.
    Loads,
    /// A step of the device, which may make a call.
    Step,
}

/// Of one JFC, by the thread that polls it.
#[derive(Debug, Default)]
pub(super) struct Contention {
    /// When the latest look of this spin was; 0: there was none.
    looked_at: Nanos,
    /// When a slice was last lost; 0: never.
    lost_at: Nanos,
    /// When the latest yield was.
    yielded_at: Nanos,
    /// Yields that are left until the processor counts as this thread's alone.
    yields: u32,
    /// How often the kernel had taken the processor from this thread, as of the latest yield that took long.
    taken: u64,
    /// Until when looks wait in the kernel.
    waits_until: Nanos,
}

impl Contention {
    /// A poll found something: what the program does before its next one is no loss of the processor.
    #[inline(always)]
    pub(super) fn end_spin(&mut self) {
        self.looked_at = 0;
    }

    /// [`POLLS_PER_LOOK`] more polls found nothing.
    #[cold]
    #[inline(never)]
    pub(super) fn look(
        &mut self,
        cost: PollCost,
        now: impl Fn() -> Nanos,
        give_way: impl FnOnce(GiveWay),
        taken: impl FnOnce() -> u64,
    ) {
        let at = now();
        if self.looked_at != 0 {
            self.on_passed(at, at.saturating_sub(self.looked_at));
        }
        self.looked_at = at;
        if at < self.waits_until {
            give_way(GiveWay::Wait);
            self.looked_at = now();
            return;
        }
        let is_probe = cost == PollCost::Step && at.saturating_sub(self.yielded_at) >= PROBE_NS;
        if self.yields == 0 && !is_probe {
            return;
        }
        give_way(if self.yields == 0 { GiveWay::Probe } else { GiveWay::Yield });
        self.yields = self.yields.saturating_sub(1);
        let back = now();
        if back.saturating_sub(at) >= TAKEN_NS {
            let before = std::mem::replace(&mut self.taken, taken());
            if self.taken != before {
                self.yields = YIELDS_MAX;
            }
        }
        self.on_passed(back, back.saturating_sub(at));
        (self.looked_at, self.yielded_at) = (back, back);
    }

    /// The last polls, or a yield, took `passed` until `now`.
    fn on_passed(&mut self, now: Nanos, passed: Nanos) {
        if passed < SLICE_NS {
            return;
        }
        self.yields = YIELDS_MAX;
        let before = std::mem::replace(&mut self.lost_at, now);
        // A single pause has other reasons.
        if before != 0 && now.saturating_sub(before) < AGAIN_NS {
            self.waits_until = now.saturating_add(STARVED_NS);
        }
    }
}

/// How often the kernel has given the processor of this thread to another one that was to run, or to run first.
pub(super) fn times_taken() -> u64 {
    let usage = getrusage(UsageWho::RUSAGE_THREAD);
    usage.map_or(0, |usage| usage.involuntary_context_switches().unsigned_abs())
}

/// Empty polls between two looks: 0.2 us on one host.
pub(super) const POLLS_PER_LOOK: u32 = 64;
/// A thread that takes so long for them has lost a slice of its processor, in ns.
const SLICE_NS: Nanos = 1_000_000;
/// Two such losses in this time show that others do not give the processor back, in ns.
const AGAIN_NS: Nanos = 50_000_000;
/// How long looks wait in the kernel then, in ns.
const STARVED_NS: Nanos = 250_000_000;
/// A yield that takes longer may have been used by another thread, in ns.
const TAKEN_NS: Nanos = 2_000;
/// Time between yields that show whether another thread waits, in ns: they take less than one in a hundred.
const PROBE_NS: Nanos = 50_000;
/// Yields in a row that no thread uses, until the processor counts as this thread's alone.
const YIELDS_MAX: u32 = 16;

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// A thread that looks each 200 ns.
    struct Poller {
        contention: Contention,
        cost: PollCost,
        now: Cell<Nanos>,
        gave: Cell<[u32; 2]>,
        /// Switches that the kernel counts: none where a tracer is what takes the time.
        taken: Cell<u64>,
        is_traced: bool,
    }

    impl Poller {
        fn new(cost: PollCost) -> Self {
            let (now, gave) = (Cell::new(1_000_000_000), Cell::new([0; 2]));
            let contention = Contention::default();
            Self { contention, cost, now, gave, taken: Cell::new(0), is_traced: false }
        }

        /// Looks `count` times, where others take its processor for `taken` ns when it yields, and a wait takes 70 us.
        /// How often it yielded and waited.
        fn spin(&mut self, count: u32, taken: Nanos) -> [u32; 2] {
            self.gave.set([0; 2]);
            for _ in 0..count {
                self.pause(200);
                let (now, gave, switches) = (&self.now, &self.gave, &self.taken);
                let is_traced = self.is_traced;
                let give = |way| {
                    let [yields, waits] = gave.get();
                    let (counts, took) = match way {
                        GiveWay::Yield | GiveWay::Probe => ([yields + 1, waits], taken),
                        GiveWay::Wait => ([yields, waits + 1], 70_000),
                    };
                    gave.set(counts);
                    now.set(now.get() + took);
                    if took > 1_000 && !is_traced {
                        switches.set(switches.get() + 1);
                    }
                };
                self.contention.look(self.cost, || now.get(), give, || switches.get());
            }
            self.gave.get()
        }

        fn pause(&self, time: Nanos) {
            self.now.set(self.now.get() + time);
        }
    }

    #[test]
    fn a_spin_in_a_lull_that_has_its_processor_makes_no_call() {
        let mut poller = Poller::new(PollCost::Loads);
        assert_eq!(poller.spin(1_000_000, 300), [0, 0]);
    }

    #[test]
    fn a_spin_that_lost_a_slice_yields_until_that_is_not_used() {
        let mut poller = Poller::new(PollCost::Loads);
        poller.spin(100, 300);
        poller.pause(3_000_000);
        assert_eq!(poller.spin(1000, 5_000), [1000, 0], "others use it");
        assert_eq!(poller.spin(1000, 300), [YIELDS_MAX, 0]);
    }

    #[test]
    fn yields_that_take_long_and_that_nobody_used_end() {
        let mut poller = Poller::new(PollCost::Loads);
        poller.is_traced = true;
        poller.spin(100, 300);
        poller.pause(3_000_000);
        assert_eq!(poller.spin(1000, 50_000), [YIELDS_MAX, 0]);
    }

    #[test]
    fn a_spin_whose_yields_take_slices_waits_in_the_kernel_for_a_while() {
        let mut poller = Poller::new(PollCost::Loads);
        poller.spin(100, 300);
        poller.pause(3_000_000);
        assert_eq!(poller.spin(100, 3_000_000), [1, 99]);
        // Then it looks again how it is.
        let left = u32::try_from(STARVED_NS / 70_000).unwrap();
        let [yields, waits] = poller.spin(left + 2 * YIELDS_MAX, 300);
        assert!(waits <= left && yields <= YIELDS_MAX, "{yields} {waits}");
        assert_eq!(poller.spin(1000, 300), [0, 0]);
    }

    #[test]
    fn a_pause_now_and_then_does_not_make_polls_wait() {
        let mut poller = Poller::new(PollCost::Step);
        for _ in 0..100 {
            poller.pause(AGAIN_NS);
            assert_eq!(poller.spin(1000, 300)[1], 0);
        }
    }

    #[test]
    fn polls_that_take_steps_probe_seldom_and_find_a_thread_that_waits() {
        let mut poller = Poller::new(PollCost::Step);
        poller.spin(1, 300);
        let looks = u32::try_from(100 * PROBE_NS / 200).unwrap();
        let [probes, waits] = poller.spin(looks, 300);
        assert!((95..=100).contains(&probes) && waits == 0, "{probes}");
        // One that finds one makes each look yield.
        let [yields, waits] = poller.spin(1000, 5_000);
        assert!(yields >= 1000 - u32::try_from(PROBE_NS / 200).unwrap() && waits == 0, "{yields}");
    }

    #[test]
    fn work_between_polls_that_found_something_is_no_loss() {
        let mut poller = Poller::new(PollCost::Loads);
        for _ in 0..100 {
            assert_eq!(poller.spin(1000, 300), [0, 0]);
            poller.contention.end_spin();
            poller.pause(5_000_000);
        }
    }

    #[test]
    fn a_clock_that_goes_back_is_no_loss() {
        let mut poller = Poller::new(PollCost::Loads);
        poller.spin(100, 300);
        for _ in 0..100 {
            poller.now.set(poller.now.get() - 2_000);
            assert_eq!(poller.spin(2, 300), [0, 0]);
        }
    }
}
