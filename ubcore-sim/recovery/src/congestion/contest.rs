//! Beside flows that fill the queue until it overflows a window by delay becomes one by losses, and back.
//!
//! - owns: the round-trip times of the last rounds, cuts, the window while others compete. takes: rounds, losses.
//! - gives: when it begins and ends. must not: count a queue of flows of its own kind as that of others.
//!
//! Flows that answer losses alone fill a queue slowly and give up three tenths of their windows, or half, at once: the queue is
//! long for many round trips, then within one shorter, and stays so. Flows by delay do none of this: where all shrink, they
//! do so over several round trips, and a queue that they drain is as long as before in the next ones. Copa asks instead whether
//! the queue was empty in the last five round trips (Arun and Balakrishnan, NSDI 2018); that of many windows by delay never is.

use udma_abi::Nanos;

use super::{CongestionControl, Cubic, PathNews, number};

/// Rounds of one length before a cut.
const BEFORE: usize = 8;
/// Rounds of one length behind it, and so many where the queue did not become empty: what drains it would have filled it.
const AFTER: usize = 8;
const AFTER_HELD: usize = 3;
/// The round in which the queue becomes shorter is between them.
const ROUNDS: usize = BEFORE + 1 + AFTER;
/// Rounds that end within this time count as one: ends that wait for a processor look like a queue for some milliseconds.
const ROUND_NS: Nanos = 2_500_000;
/// Part of the queue that a cut takes at least.
const CUT_DIVISOR: Nanos = 8;
/// Part of a cut by which rounds before it differ, and by which it goes on behind the first one.
const FLAT_DIVISOR: Nanos = 4;
/// Part of a cut that this flow, which takes what is free, fills again at most.
const FILLED_DIVISOR: Nanos = 2;
/// Part of the queue that is left where it did not become empty.
const HELD_DIVISOR: Nanos = 4;
/// Cuts that show that others compete: one may be a flow that ended.
const CUTS_BEGIN: u32 = 2;
/// They are no further apart than this, or so many round trips; CUBIC on a path of 30,000 packets takes as long.
const CUTS_APART_NS: Nanos = 30_000_000_000;
const CUTS_APART_ROUNDS: Nanos = 256;
/// Cuts after which the window follows the delay again, to see whether others still compete, and most cuts beyond these.
const CUTS_END: u32 = 6;
const CUTS_VARY: Nanos = 8;
/// Rounds without a queue that show that losses have other causes than one that is full.
const EMPTY_ROUNDS: u32 = 32;
/// A queue that others fill is longer than this flow wants it by this factor.
const QUEUE_FACTOR: f64 = 1.25;
const MICROSECOND: Nanos = 1000;

/// What a round showed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ContestTurn {
    /// Nothing changes by it.
    Stays,
    /// The window follows losses from now on.
    Begins,
    /// The window follows the delay again.
    Ends,
}

/// Watches the queue for cuts, and has the window while others compete.
#[derive(Debug)]
pub(super) struct Contest {
    /// Least round-trip time of each of the last rounds, the newest last; 0 before there were so many.
    rtts: [Nanos; ROUNDS],
    shortest: Nanos,
    /// Least of the rounds that count as one, and when they began.
    least: Nanos,
    noted_at: Nanos,
    /// Cuts since it began or ended, and when the last one was seen.
    cuts: u32,
    cut_at: Nanos,
    /// Rounds in a row without a queue.
    empty: u32,
    cubic: Option<Cubic>,
}

impl Contest {
    /// Nothing is known of the queue.
    pub(super) const fn new() -> Self {
        Self {
            rtts: [0; ROUNDS],
            shortest: Nanos::MAX,
            least: Nanos::MAX,
            noted_at: 0,
            cuts: 0,
            cut_at: 0,
            empty: 0,
            cubic: None,
        }
    }

    /// The window by losses, while others compete.
    pub(super) const fn cubic(&self) -> Option<&Cubic> {
        self.cubic.as_ref()
    }

    /// Takes feedback while others compete; returns the window.
    pub(super) fn on_news(&mut self, news: &PathNews) -> Option<f64> {
        let cubic = self.cubic.as_mut()?;
        cubic.on_news(news);
        Some(cubic.exact_window())
    }

    /// A packet was lost that was sent after the last call of this.
    pub(super) fn on_loss(&mut self, now: Nanos) {
        if let Some(cubic) = &mut self.cubic {
            cubic.on_loss(now);
        }
    }

    /// The window follows the delay again, whatever others do.
    pub(super) fn end(&mut self) {
        self.cubic = None;
        self.cuts = 0;
    }

    /// A round is over whose least sample is `rtt`; a change of the queue by less than `tolerance` is none. With a window of
    /// so many packets, which aims at that queueing delay, a contest may begin; none: a cut says nothing.
    pub(super) fn on_round(
        &mut self,
        now: Nanos,
        rtt: Nanos,
        tolerance: Nanos,
        window: Option<(f64, f64)>,
    ) -> ContestTurn {
        self.least = self.least.min(rtt);
        let since = now.saturating_sub(self.noted_at);
        if since < ROUND_NS && now >= self.noted_at {
            return ContestTurn::Stays;
        }
        self.noted_at = now;
        let rtt = std::mem::replace(&mut self.least, Nanos::MAX);
        // A queue that is as long as this flow wants it is not that of others.
        let wanted = window.map_or(0.0, |(_, target)| target * QUEUE_FACTOR);
        let wanted = if self.cubic.is_some() { 0.0 } else { wanted };
        let is_cut = self.note_round(rtt, tolerance, wanted);
        let is_empty = rtt - self.shortest <= tolerance;
        self.empty = if is_empty { self.empty + 1 } else { 0 };
        let apart = CUTS_APART_NS.max(rtt.saturating_mul(CUTS_APART_ROUNDS));
        let is_old = now.saturating_sub(self.cut_at) > apart || now < self.cut_at;
        if is_cut && (window.is_some() || self.cubic.is_some()) {
            self.cut_at = now;
        }
        if self.cubic.is_none() {
            let Some((window, _)) = window.filter(|_| is_cut) else { return ContestTurn::Stays };
            self.cuts = if is_old { 1 } else { self.cuts + 1 };
            if self.cuts < CUTS_BEGIN {
                return ContestTurn::Stays;
            }
            self.cubic = Some(Cubic::starting_at(window));
            (self.cuts, self.empty) = (0, 0);
            return ContestTurn::Begins;
        }
        self.cuts += u32::from(is_cut);
        // Flows of this kind see the same cuts. Each that follows the delay while others do not takes these for competing;
        // numbers that differ let them meet.
        let vary = now / MICROSECOND % CUTS_VARY;
        let is_long = is_cut && Nanos::from(self.cuts) >= Nanos::from(CUTS_END) + vary;
        if !is_long && !is_old && self.empty < EMPTY_ROUNDS {
            return ContestTurn::Stays;
        }
        self.cubic = None;
        // One more cut shows that they are still there.
        self.cuts = if is_long { CUTS_BEGIN - 1 } else { 0 };
        ContestTurn::Ends
    }

    /// Whether a cut is complete by this round.
    fn note_round(&mut self, rtt: Nanos, tolerance: Nanos, wanted: f64) -> bool {
        self.shortest = self.shortest.min(rtt);
        self.rtts.rotate_left(1);
        self.rtts[ROUNDS - 1] = rtt;
        let is_cut = self.has_cut((AFTER, 0), tolerance, wanted)
            || self.has_cut((AFTER_HELD, 1), tolerance, wanted);
        if is_cut {
            self.rtts = [0; ROUNDS];
        }
        is_cut
    }

    /// Whether the rounds before the last `after` and one more were of one length with a queue longer than `wanted`, and these
    /// are shorter; `held` quarters of the queue are left.
    fn has_cut(&self, (after, held): (usize, Nanos), tolerance: Nanos, wanted: f64) -> bool {
        let at = ROUNDS - 1 - after;
        let (long, longest) = range(&self.rtts[at - BEFORE..at]);
        let (shortest, short) = range(&self.rtts[at + 1..]);
        let cut = long.saturating_sub(short);
        let queue = long.saturating_sub(self.shortest);
        number(queue) > wanted
            && cut >= (queue / CUT_DIVISOR).max(tolerance)
            && longest - long <= cut / FLAT_DIVISOR
            && self.rtts[at + 1] - shortest <= cut / FLAT_DIVISOR
            && short - shortest <= cut / FILLED_DIVISOR
            && shortest - self.shortest >= held * (queue / HELD_DIVISOR)
    }
}

/// Least and greatest of some round-trip times.
fn range(rtts: &[Nanos]) -> (Nanos, Nanos) {
    rtts.iter().fold((Nanos::MAX, 0), |(least, most), &rtt| (least.min(rtt), most.max(rtt)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = 1_000_000;
    const TOLERANCE: Nanos = 675_000;

    /// Rounds, as numbers of rounds with their round-trip times in units of 0.1 ms; how many cuts they have.
    fn cuts(rounds: &[(usize, Nanos)]) -> usize {
        let mut contest = Contest::new();
        contest.note_round(20 * MS, TOLERANCE, 0.0);
        let rtts =
            rounds.iter().flat_map(|(count, rtt)| std::iter::repeat_n(rtt * MS / 10, *count));
        rtts.filter(|rtt| contest.note_round(*rtt, TOLERANCE, 0.0)).count()
    }

    #[test]
    fn a_queue_that_is_shorter_at_once_and_stays_so_was_cut() {
        for (rounds, wanted) in [
            // CUBIC in a queue of 20 ms: 40 ms, then 28.
            (&[(8, 400), (1, 330), (8, 280)][..], 1),
            (&[(8, 400), (9, 280), (30, 282)], 1),
            // Three rounds are enough where more than a quarter of the queue is left, but not where less is.
            (&[(8, 400), (1, 330), (3, 280)], 1),
            (&[(8, 400), (1, 330), (2, 280)], 0),
            (&[(8, 400), (1, 330), (3, 240)], 0),
            (&[(8, 400), (1, 330), (7, 240)], 0),
            (&[(8, 400), (1, 330), (8, 240)], 1),
            // A drain, behind which the queue is as before.
            (&[(20, 300), (2, 200), (20, 300)], 0),
            // It was long for a moment only.
            (&[(30, 300), (4, 400), (20, 300)], 0),
            (&[(7, 400), (1, 330), (20, 240)], 0),
            // Windows by delay, which shrink over five rounds.
            (&[(8, 400), (1, 397), (1, 369), (1, 332), (1, 309), (20, 304)], 0),
            // An eighth of the queue, and less.
            (&[(8, 400), (9, 375)], 1),
            (&[(8, 400), (20, 376)], 0),
            // Less than the tolerance.
            (&[(8, 240), (20, 234)], 0),
            (&[(8, 240), (20, 233)], 1),
            // Rounds before it differ by a quarter of it, and by more.
            (&[(7, 400), (1, 420), (9, 320)], 1),
            (&[(7, 400), (1, 421), (9, 320)], 0),
            // Half of it is filled again behind it, or more.
            (&[(8, 400), (2, 220), (7, 280)], 1),
            (&[(8, 400), (2, 220), (7, 281)], 0),
            // It goes on by a quarter of it, or more.
            (&[(8, 400), (1, 330), (1, 300), (7, 275)], 1),
            (&[(8, 400), (1, 330), (1, 300), (7, 274)], 0),
            // Twice.
            (&[(8, 400), (9, 280), (10, 390), (9, 290)], 2),
        ] {
            assert_eq!(cuts(rounds), wanted, "{rounds:?}");
        }
    }

    /// Lets a cut pass that is complete at `now`.
    fn cut(contest: &mut Contest, now: Nanos) -> ContestTurn {
        let mut turn = ContestTurn::Stays;
        for rtt in [[40; 8], [28; 8]].concat() {
            assert_eq!(turn, ContestTurn::Stays);
            (contest.shortest, contest.noted_at) = (20 * MS, now + 1);
            turn = contest.on_round(now, rtt * MS, TOLERANCE, Some((100.0, number(4 * MS))));
            if contest.rtts == [0; ROUNDS] {
                break;
            }
        }
        turn
    }

    #[test]
    fn two_cuts_begin_it_unless_they_are_far_apart() {
        for (apart, turn) in
            [(CUTS_APART_NS, ContestTurn::Begins), (CUTS_APART_NS + 1, ContestTurn::Stays)]
        {
            let mut contest = Contest::new();
            assert_eq!(cut(&mut contest, 7), ContestTurn::Stays);
            assert_eq!(cut(&mut contest, 7 + apart), turn);
            // The later one counts as the first then.
            let after = cut(&mut contest, 8 + apart);
            assert_eq!(after == ContestTurn::Begins, turn == ContestTurn::Stays);
        }
        let mut contest = Contest::new();
        cut(&mut contest, 1000);
        assert_eq!(cut(&mut contest, 10), ContestTurn::Stays, "the clock went back");
        assert_eq!(cut(&mut contest, 20), ContestTurn::Begins);
        let window = contest.cubic().map(Cubic::exact_window);
        assert!(contest.cubic().is_some_and(Cubic::is_in_slow_start) && window == Some(100.0));
    }

    #[test]
    fn it_ends_after_six_to_thirteen_cuts_or_when_there_were_none_for_long() {
        let begun = || {
            let mut contest = Contest::new();
            assert_eq!([1, 2].map(|now| cut(&mut contest, now))[1], ContestTurn::Begins);
            contest
        };
        for (micros, most) in [(8, 6), (9, 7), (15, 13), (16, 6)] {
            let mut contest = begun();
            let now = micros * MICROSECOND;
            let count = (1..).find(|_| cut(&mut contest, now) == ContestTurn::Ends);
            assert_eq!(count, Some(most), "{micros}");
            assert!(contest.cubic().is_none());
            assert_eq!(cut(&mut contest, now), ContestTurn::Begins, "one more begins it again");
        }
        let mut contest = begun();
        let quiet = |contest: &mut Contest, now| {
            contest.noted_at = 0;
            contest.on_round(now, 30 * MS, TOLERANCE, None)
        };
        assert_eq!(quiet(&mut contest, 2 + CUTS_APART_NS), ContestTurn::Stays);
        assert_eq!(quiet(&mut contest, 3 + CUTS_APART_NS), ContestTurn::Ends);
        assert_eq!(cut(&mut contest, 4 + CUTS_APART_NS), ContestTurn::Stays, "it takes two again");
        let mut contest = begun();
        contest.end();
        assert!(contest.cubic().is_none() && contest.cuts == 0);
    }

    /// 20 ms of queue before the cut: with a target of 16 ms the flow itself wants as much.
    #[test]
    fn a_queue_that_the_flow_wants_is_not_that_of_others() {
        for (target, turn) in [(15.99, ContestTurn::Begins), (16.0, ContestTurn::Stays)] {
            let mut contest = Contest::new();
            let mut last = ContestTurn::Stays;
            for (at, rtt) in (0..).zip([[20; 9], [40; 9], [28; 9], [40; 9], [28; 9]].concat()) {
                let window = Some((100.0, target * 1e6));
                let found = contest.on_round((1 + at) * 50 * MS, rtt * MS, TOLERANCE, window);
                last = if found == ContestTurn::Stays { last } else { found };
            }
            assert_eq!(last, turn, "{target}");
        }
    }

    #[test]
    fn an_empty_queue_ends_it() {
        for (rtt, count) in [(20 * MS + TOLERANCE, Some(EMPTY_ROUNDS)), (21 * MS, None)] {
            let mut contest = Contest::new();
            (1..3).for_each(|now| _ = cut(&mut contest, now));
            let ends = |at: &u32| {
                let now = Nanos::from(*at) * 50 * MS;
                contest.on_round(now, rtt, TOLERANCE, None) == ContestTurn::Ends
            };
            assert_eq!((1..100).find(ends), count, "{rtt}");
        }
    }

    /// Rounds of 0.1 ms: the least of 2.5 ms counts.
    #[test]
    fn short_rounds_count_as_one() {
        let mut contest = Contest::new();
        for (at, rtt) in (1..=76).map(|at| (at, if at % 25 == 9 { 7 } else { 9 })) {
            contest.on_round(at * MS / 10, rtt, TOLERANCE, None);
        }
        assert_eq!(contest.rtts[ROUNDS - 4..], [0, 7, 7, 7]);
        assert_eq!((contest.least, contest.noted_at), (9, 75 * MS / 10));
    }

    #[test]
    fn losses_count_while_others_compete() {
        let mut contest = Contest::new();
        contest.on_loss(1);
        assert_eq!(contest.on_news(&PathNews::default()), None);
        (1..3).for_each(|now| _ = cut(&mut contest, now));
        let news = PathNews { acked: 20, flight_max: 100, ..PathNews::default() };
        assert_eq!(contest.on_news(&news), Some(120.0));
        contest.on_loss(3);
        let window = contest.cubic().map(Cubic::exact_window);
        assert!(window.is_some_and(|window| (window - 84.0).abs() < 1e-9), "{window:?}");
    }
}
