//! Detects that a thread polls in vain on a processor that other threads want, and yields it to them.
//!
//! A thread that spins on an empty JFC uses up its time slice, and the threads that would do the work it waits for
//! run only then: two pollers on two processors starve the thread that posts, or the one that answers.

use std::cell::Cell;

use nix::sys::resource::{UsageWho, getrusage};
use udma_abi::{GiveWay, Nanos};

/// Cost of an empty poll.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PollCost {
    /// Some loads, while an idle snapshot is valid.
    Loads,
    /// A step of the device, which may make a system call.
    Step,
}

thread_local! {
    static CONTENTION: Cell<Contention> = const { Cell::new(Contention::NONE) };
}

/// Decides what to do after a number of empty polls of a JFC. Returns after how many more the next check is due.
#[cold]
#[inline(never)]
pub(super) fn look(cost: PollCost, now: impl Fn() -> Nanos, give_way: impl FnOnce(GiveWay)) -> u32 {
    CONTENTION.with(|own| {
        let mut contention = own.get();
        contention.look(cost, now, give_way, times_taken);
        own.set(contention);
        let is_shared = contention.yields != 0 || contention.looked_at < contention.waits_until;
        if is_shared && cost == PollCost::Step { STEPS_PER_LOOK } else { POLLS_PER_LOOK }
    })
}

/// The thread arms, to sleep until a completion: it does not spin, and the time until its next polls is no lost slice.
pub(super) fn on_arm() {
    CONTENTION.with(|own| {
        let Contention { yielded_at, taken, .. } = own.get();
        own.set(Contention { yielded_at, taken, ..Contention::NONE });
    });
}

/// State of one polling thread.
///
/// Empty polls are counted; one in `POLLS_PER_LOOK` reads the clock and decides:
///
/// - *alone*: it keeps spinning. If each poll costs a system call or a device access anyway, a yield now and then
///   shows whether others wait, since they run then. Polls without a call cost some ns, and get none from here.
/// - *shared*, because a yield took long, or the kernel took the processor away and gave it back late: it yields at
///   each check, until no thread has used a number of yields. The kernel's count of switches decides: two threads
///   that yield to each other are back soon, and a tracer makes each yield long.
/// - *starved*, because two slices were lost in a short time: others do not give the processor back. It waits in the
///   kernel at each check. A thread that sleeps keeps its share, lets the scheduler move waiting threads to the free
///   processor, and runs soon after it wakes.
///
/// The state belongs to a thread, whichever JFCs it polls: a thread that polls thousands in turn takes long to come
/// back to the same one.
#[derive(Clone, Copy, Debug)]
struct Contention {
    /// Time of the latest check; 0: there was none.
    looked_at: Nanos,
    /// Time when a slice was last lost; 0: never.
    lost_at: Nanos,
    /// Time of the latest yield.
    yielded_at: Nanos,
    /// Yields left before the processor counts as this thread's alone.
    yields: u32,
    /// The kernel's count of involuntary switches of this thread, as last read.
    taken: u64,
    /// Until this time checks wait in the kernel.
    waits_until: Nanos,
}

impl Contention {
    const NONE: Self =
        Self { looked_at: 0, lost_at: 0, yielded_at: 0, yields: 0, taken: 0, waits_until: 0 };

    fn look(
        &mut self,
        cost: PollCost,
        now: impl Fn() -> Nanos,
        give_way: impl FnOnce(GiveWay),
        taken: impl Fn() -> u64,
    ) {
        let at = now();
        if self.looked_at != 0 {
            self.on_passed(at, at.saturating_sub(self.looked_at), &taken);
        }
        let before = std::mem::replace(&mut self.looked_at, at);
        if at < self.waits_until {
            // A thread with many JFCs polls all of them in turn.
            if at.saturating_sub(before) >= BETWEEN_WAITS_NS {
                give_way(GiveWay::Wait);
                self.looked_at = now();
            } else {
                self.looked_at = before;
            }
            return;
        }
        let is_probe = self.yields == 0;
        let is_due = cost == PollCost::Step && at.saturating_sub(self.yielded_at) >= PROBE_NS;
        if is_probe && !is_due {
            return;
        }
        give_way(if is_probe { GiveWay::Probe } else { GiveWay::Yield });
        let back = now();
        let was_taken = match self.yields {
            0 => back.saturating_sub(at) >= TAKEN_NS && self.was_taken(&taken),
            // Other threads ran in some of these yields.
            1 => self.was_taken(&taken),
            _ => false,
        };
        self.yields = if was_taken { YIELDS } else { self.yields.saturating_sub(1) };
        self.on_passed(back, back.saturating_sub(at), &taken);
        (self.looked_at, self.yielded_at) = (back, back);
    }

    /// Whether the kernel took the processor away since the last call.
    fn was_taken(&mut self, taken: &impl Fn() -> u64) -> bool {
        let before = std::mem::replace(&mut self.taken, taken());
        self.taken != before
    }

    /// Notes that the last polls, or a yield, took `passed` until `now`: longer than a slice, because other threads
    /// ran, or because the program did something else.
    fn on_passed(&mut self, now: Nanos, passed: Nanos, taken: &impl Fn() -> u64) {
        if passed < SLICE_NS || !self.was_taken(taken) {
            return;
        }
        self.yields = YIELDS;
        let before = std::mem::replace(&mut self.lost_at, now);
        // A single pause has other reasons.
        if before != 0 && now.saturating_sub(before) < AGAIN_NS {
            self.waits_until = now.saturating_add(STARVED_NS);
        }
    }
}

/// How often the kernel has given this thread's processor to another one.
pub(crate) fn times_taken() -> u64 {
    let usage = getrusage(UsageWho::RUSAGE_THREAD);
    usage.map_or(0, |usage| usage.involuntary_context_switches().unsigned_abs())
}

/// Empty polls between two checks: 0.2 us on one host.
pub(super) const POLLS_PER_LOOK: u32 = 64;
/// Empty polls between two checks of a shared processor, if each poll may make a system call.
const STEPS_PER_LOOK: u32 = 4;
/// A thread that takes so long from one check to the next may have lost a slice of its processor, in ns.
const SLICE_NS: Nanos = 1_000_000;
/// Two such losses in this time show that others do not give the processor back, in ns.
const AGAIN_NS: Nanos = 50_000_000;
/// How long checks wait in the kernel then, in ns.
const STARVED_NS: Nanos = 250_000_000;
/// Shortest time that a thread polls between two such waits, in ns.
const BETWEEN_WAITS_NS: Nanos = 2_000;
/// A yield that takes longer may have been used by another thread, in ns.
const TAKEN_NS: Nanos = 2_000;
/// Time between yields that show whether another thread waits, in ns: they take less than one percent.
const PROBE_NS: Nanos = 50_000;
/// Yields in a row that no thread uses before the processor counts as this thread's alone.
const YIELDS: u32 = 16;

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
            let contention = Contention::NONE;
            Self { contention, cost, now, gave, taken: Cell::new(0), is_traced: false }
        }

        /// Looks `count` times, where others take its processor for `taken` ns when it yields, and a wait takes 70 us.
        /// How often it yielded and waited.
        fn spin(&mut self, count: u32, taken: Nanos) -> [u32; 2] {
            self.gave.set([0; 2]);
            for _ in 0..count {
                self.now.set(self.now.get() + 200);
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

        /// Other threads run for `time`.
        fn lose(&self, time: Nanos) {
            self.now.set(self.now.get() + time);
            self.taken.set(self.taken.get() + 1);
        }
    }

    #[test]
    fn a_spin_while_idle_that_has_its_processor_makes_no_call() {
        let mut poller = Poller::new(PollCost::Loads);
        assert_eq!(poller.spin(1_000_000, 300), [0, 0]);
    }

    #[test]
    fn a_spin_that_lost_a_slice_yields_until_that_is_not_used() {
        let mut poller = Poller::new(PollCost::Loads);
        poller.spin(100, 300);
        poller.lose(3_000_000);
        assert_eq!(poller.spin(1000, 5_000), [1000, 0], "others use it");
        let [yields, waits] = poller.spin(1000, 300);
        assert!((YIELDS..2 * YIELDS).contains(&yields) && waits == 0, "{yields} {waits}");
    }

    #[test]
    fn yields_that_take_long_and_that_no_thread_used_end() {
        let mut poller = Poller::new(PollCost::Loads);
        poller.is_traced = true;
        poller.spin(100, 300);
        poller.lose(3_000_000);
        assert_eq!(poller.spin(1000, 50_000), [YIELDS, 0]);
    }

    #[test]
    fn a_spin_whose_yields_take_slices_waits_in_the_kernel_for_a_while() {
        let mut poller = Poller::new(PollCost::Loads);
        poller.spin(100, 300);
        poller.lose(3_000_000);
        assert_eq!(poller.spin(100, 3_000_000), [1, 9], "one wait in 2 us");
        // Then it looks again how it is.
        let left = u32::try_from(STARVED_NS / 70_000).unwrap();
        let [yields, waits] = poller.spin(10 * left + 3 * YIELDS, 300);
        assert!(waits <= left && yields <= 2 * YIELDS, "{yields} {waits}");
        assert_eq!(poller.spin(1000, 300), [0, 0]);
    }

    #[test]
    fn a_pause_now_and_then_does_not_make_polls_wait() {
        let mut poller = Poller::new(PollCost::Step);
        for _ in 0..100 {
            poller.lose(AGAIN_NS);
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
    fn work_between_polls_in_which_no_thread_took_the_processor_is_no_loss() {
        let mut poller = Poller::new(PollCost::Loads);
        for _ in 0..100 {
            assert_eq!(poller.spin(1000, 300), [0, 0]);
            poller.now.set(poller.now.get() + 5_000_000);
        }
    }

    /// Of a thread that is woken for each message, each look has a millisecond of sleep and some switches behind it.
    #[test]
    fn a_thread_that_arms_between_its_polls_never_gives_way() {
        let (now, taken) = (Cell::new(1_000_000_000), Cell::new(0));
        for _ in 0..1000 {
            on_arm();
            now.set(now.get() + 3_000_000);
            taken.set(taken.get() + 1);
            let mut own = CONTENTION.get();
            let give = |way| assert_eq!(way, GiveWay::Probe, "it slept a moment ago");
            own.look(PollCost::Step, || now.get(), give, || taken.get());
            CONTENTION.set(own);
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
