//! A window that follows the delay of queues and not single losses.
//!
//! Drains queues now and then to measure the least round-trip time. Must not reduce the window for a loss alone.

use udma_abi::Nanos;

use super::contest::{Contest, ContestTurn};
use super::{
    CongestionControl, PathNews, WINDOW_FIRST, WINDOW_MIN, WINDOW_MOST, interval_ps, number, whole,
};

/// Queueing delay that counts as none: ends need some time, and by how much differs.
const TOLERANCE_NS: Nanos = 50_000;
/// The same as a part of the least round-trip time.
const TOLERANCE_DIVISOR: Nanos = 32;
/// A queue that was empty once in this time does not stand, as CoDel has it (RFC 8289): ends that wait for a processor
/// look like one for some milliseconds, on a short path for many round trips.
const STANDING_NS: Nanos = 20_000_000;
/// Samples of a round trip before slow start may end by their least one.
const SAMPLES_MIN: u32 = 4;
/// Round trips between two drains, and bounds of that time.
const DRAIN_ROUNDS: Nanos = 128;
const DRAIN_NS: (Nanos, Nanos) = (20_000_000, 10_000_000_000);
/// The time between drains is that much shorter while the window may not grow for losses.
const LOSSY_DIVISOR: Nanos = 8;
/// Window of a drain, for one round trip: what is on the path beyond its share of the queue leaves, too, so others see it.
const DRAIN_WINDOW: f64 = 4.0;
/// Losses are a property of the path up to this part of the packets; above it a queue is too short to show a delay.
const LOSS_TOLERATED: f64 = 0.078_125;
/// Above this part the window does not grow.
const LOSS_GROWS: f64 = 0.0625;
/// Above this part a short queue is not shared with CUBIC, whose windows of ten packets lose as much.
const LOSS_CONTEST: f64 = 0.015_625;
/// Packets over which the part is measured, at least.
const LOSS_PACKETS: u64 = 128;
/// Rounds of which each has to show the queue that a round of slow start showed: a busy end makes a round trip long by
/// chance. HyStart++ takes five (RFC 9406, 4.3); here what is over the path's own stays in a queue meanwhile.
const CAUTIOUS_ROUNDS: u32 = 2;
/// Growth meanwhile, as in RFC 9406.
const CAUTIOUS_DIVISOR: f64 = 4.0;
const GAIN_SLOW_START: f64 = 2.0;
const GAIN: f64 = 1.25;

/// What the window does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum DelayPhase {
    /// It doubles per round trip.
    SlowStart,
    /// It grows by a quarter per round trip, for so many more, unless one is shorter than `queued`, which showed a queue.
    Cautious { rounds: u32, queued: Nanos },
    /// It follows the delay.
    Steady,
    /// It is small for a round trip, to see the path without queues.
    Drain,
}

/// A window that keeps the queue at a target delay.
///
/// The queueing delay to which a flow adds is Swift's target with flow scaling (Kumar et al., SIGCOMM 2020): a fixed
/// part and one that falls with the root of the window, `tolerance + rtt / sqrt(window)`. So of flows with one queue
/// that with the smaller window aims higher, and all end at the same one. Swift adds a packet per round trip, which
/// takes 30,000 of them at 100 Gb/s and 10 ms; here the window moves half way to `window x (base + tolerance) / rtt +
/// sqrt(window)` once per round trip, as FAST TCP does (Wei et al., IEEE/ACM Transactions on Networking 14, 2006).
/// Flows that began in a queue that others made take that for part of the path: now and then all drain theirs at the
/// same time (as BBR does, Cardwell et al., ACM Queue 14, 2016).
///
/// Flows that heed losses alone would leave it little. While the queue shows such the window is CUBIC's, from slow start on,
/// and every loss counts.
#[derive(Debug)]
pub struct Delay {
    window: f64,
    phase: DelayPhase,
    /// Least round-trip time since the last drain began, and between that one and the one before.
    base: [Nanos; 2],
    /// When the path was last seen without queues.
    drained_at: Option<Nanos>,
    srtt: Option<Nanos>,
    /// Least sample of this round trip, and their number.
    round_min: Nanos,
    samples: u32,
    /// Least sample since this time, by which the window may shrink.
    standing: (Nanos, Nanos),
    /// Packets that left the path since losses were last counted, and the lost ones among them.
    resolved: u64,
    lost: u64,
    /// Part that was lost, of which half is that of the last measurement: a small window has few packets to count.
    loss: f64,
    /// When the timer expired first, or the window shrank by that last, since something left the path.
    silent_since: Option<Nanos>,
    contest: Contest,
}

impl Default for Delay {
    fn default() -> Self {
        Self::new()
    }
}

impl Delay {
    /// A window of ten packets in slow start.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            window: WINDOW_FIRST,
            phase: DelayPhase::SlowStart,
            base: [Nanos::MAX; 2],
            drained_at: None,
            srtt: None,
            round_min: Nanos::MAX,
            samples: 0,
            standing: (Nanos::MAX, 0),
            resolved: 0,
            lost: 0,
            loss: 0.0,
            silent_since: None,
            contest: Contest::new(),
        }
    }

    /// Round-trip time without queues, as far as is known; `Nanos::MAX` before the first sample.
    #[must_use]
    pub fn base(&self) -> Nanos {
        self.base[0].min(self.base[1])
    }

    /// Queueing delay that counts as none, in ns.
    #[must_use]
    pub fn tolerance(&self) -> Nanos {
        TOLERANCE_NS + self.base() / TOLERANCE_DIVISOR
    }

    /// Queueing delay at which a window of so many packets stays as it is, in ns.
    #[must_use]
    pub fn target(&self, window: f64) -> f64 {
        let tolerated = number(self.base().saturating_add(self.tolerance()));
        // Of window = window x tolerated / rtt + sqrt(window).
        tolerated / (1.0 - 1.0 / window.max(WINDOW_MIN).sqrt()) - number(self.base())
    }

    fn sample(&mut self, now: Nanos, rtt: Nanos) {
        self.srtt = Some(self.srtt.map_or(rtt, |srtt| srtt / 8 * 7 + rtt / 8));
        self.round_min = self.round_min.min(rtt);
        self.standing.0 = self.standing.0.min(rtt);
        self.samples += 1;
        // A quarter of the usual queue, or less than ever: others drain it, and all are to do so at the same time. A
        // queue that is always full looks as none.
        let (base, usual) = (self.base(), self.srtt.unwrap_or(0).saturating_sub(self.base()));
        let is_drained = usual > self.tolerance() / 2 && rtt <= base.saturating_add(usual / 4);
        if is_drained || rtt.saturating_add(self.tolerance() / 2) < base {
            self.drained_at = Some(now);
        }
        self.base[0] = self.base[0].min(rtt);
    }

    /// Whether the samples of this round trip show a queue.
    fn sees_queue(&self) -> bool {
        let queue = self.round_min.saturating_sub(self.base());
        self.samples >= SAMPLES_MIN && queue > self.tolerance() / 2
    }

    fn on_slow_start(&mut self, news: &PathNews) {
        if self.phase == DelayPhase::SlowStart && self.sees_queue() {
            let queued = self.round_min;
            self.phase = DelayPhase::Cautious { rounds: CAUTIOUS_ROUNDS, queued };
        }
        let growth = match self.phase {
            DelayPhase::SlowStart => 1.0,
            DelayPhase::Cautious { queued, .. } if self.round_min < queued => {
                self.phase = DelayPhase::SlowStart;
                1.0
            }
            DelayPhase::Cautious { .. } => 1.0 / CAUTIOUS_DIVISOR,
            DelayPhase::Steady | DelayPhase::Drain => return,
        };
        if 2 * news.flight_max >= whole(self.window) {
            self.window += growth * number(news.acked);
        }
    }

    /// A round of which no sample was shorter than that of slow start.
    fn on_cautious_round(&mut self, rounds: u32, queued: Nanos) {
        self.phase = DelayPhase::Cautious { rounds: rounds - 1, queued };
        if rounds == 1 {
            // What shows the queue was sent when the window was smaller.
            let part = number(self.base()) / number(self.round_min.max(1));
            self.window *= part.clamp(0.5, 1.0);
            self.phase = DelayPhase::Steady;
        }
    }

    /// Moves the window half way to where the target delay has it.
    fn follow(&mut self, news: &PathNews) {
        if self.samples == 0 {
            return;
        }
        let (least, since) = self.standing;
        let is_standing = news.now.saturating_sub(since) >= STANDING_NS || news.now < since;
        if is_standing {
            self.standing = (Nanos::MAX, news.now);
        }
        let is_limited = news.flight_max + news.flight_max / 8 + 1 >= whole(self.window);
        let wanted = self.wanted(self.round_min);
        if wanted >= self.window {
            if is_limited && self.loss <= LOSS_GROWS {
                self.window = f64::midpoint(self.window, wanted.min(2.0 * self.window));
            }
        } else if is_standing {
            self.window = f64::midpoint(self.window, self.wanted(least).min(self.window));
        }
    }

    /// The window at which a path with this least sample would have the target delay.
    fn wanted(&self, least: Nanos) -> f64 {
        let tolerated = number(self.base().saturating_add(self.tolerance()));
        self.window * tolerated / number(least.max(1)) + self.window.sqrt()
    }

    fn on_round(&mut self, news: &PathNews) {
        match self.phase {
            DelayPhase::SlowStart => {}
            DelayPhase::Cautious { rounds, queued } => self.on_cautious_round(rounds, queued),
            DelayPhase::Steady => {
                self.follow(news);
                let rounds = self.base().saturating_mul(DRAIN_ROUNDS);
                let every = rounds.clamp(DRAIN_NS.0, DRAIN_NS.1);
                // A queue that all found full loses packets of all, which then drain it together.
                let every = if self.loss > LOSS_GROWS { every / LOSSY_DIVISOR } else { every };
                let is_due = |at: Nanos| news.now.saturating_sub(at) >= every;
                if *self.drained_at.get_or_insert(news.now) > news.now {
                    // The clock went back.
                    self.drained_at = Some(news.now);
                }
                if self.drained_at.is_some_and(is_due) {
                    self.base = [Nanos::MAX, self.base[0]];
                    self.phase = DelayPhase::Drain;
                }
            }
            DelayPhase::Drain => {
                self.phase = DelayPhase::Steady;
                self.drained_at = Some(news.now);
            }
        }
        self.round_min = Nanos::MAX;
        self.samples = 0;
    }

    /// Takes the round to its end for the contest, and feedback while there is one; returns whether there is.
    fn compete(&mut self, news: &PathNews) -> bool {
        let is_in = self.contest.cubic().is_some();
        let is_steady = is_in || self.phase == DelayPhase::Steady;
        let mut turn = ContestTurn::Stays;
        if news.is_round_over && self.samples > 0 && is_steady {
            let window = (self.window, self.target(self.window));
            let window = Some(window).filter(|_| self.loss <= LOSS_CONTEST);
            turn = self.contest.on_round(news.now, self.round_min, self.tolerance(), window);
        }
        match turn {
            // What it has in the queue leaves it.
            ContestTurn::Ends => self.window *= number(self.base()) / number(self.round_min),
            ContestTurn::Stays | ContestTurn::Begins => {
                if let Some(window) = self.contest.on_news(news) {
                    self.window = window;
                }
            }
        }
        if is_in && news.is_round_over {
            self.round_min = Nanos::MAX;
            self.samples = 0;
        }
        is_in
    }

    fn count_losses(&mut self, news: &PathNews) {
        self.resolved += news.acked + news.lost;
        self.lost += news.lost;
        if !news.is_round_over || self.resolved < LOSS_PACKETS {
            return;
        }
        self.loss = f64::midpoint(self.loss, number(self.lost) / number(self.resolved));
        if self.loss > LOSS_TOLERATED {
            self.window *= 1.0 - self.loss.min(0.5);
            self.phase = DelayPhase::Steady;
        }
        (self.resolved, self.lost) = (0, 0);
    }
}

impl CongestionControl for Delay {
    fn on_news(&mut self, news: &PathNews) {
        if let Some(rtt) = news.rtt {
            self.sample(news.now, rtt);
        }
        if news.acked > 0 {
            self.silent_since = None;
        }
        if !self.compete(news) {
            self.on_slow_start(news);
            self.count_losses(news);
            if news.is_round_over {
                self.on_round(news);
            }
        }
        self.window = self.window.clamp(WINDOW_MIN, WINDOW_MOST);
    }

    fn on_loss(&mut self, now: Nanos) {
        self.contest.on_loss(now);
    }

    fn on_timeout(&mut self, now: Nanos) {
        // A single packet that was lost again has no other sign, nor has an end that waits for a processor; more than that
        // shows another path.
        let since = *self.silent_since.get_or_insert(now);
        if now.saturating_sub(since) >= STANDING_NS || now < since {
            self.window = (self.window / 2.0).max(WINDOW_MIN);
            self.silent_since = Some(now);
            self.contest.end();
        }
        (self.resolved, self.lost) = (0, 0);
    }

    fn window(&self) -> u64 {
        match self.phase {
            DelayPhase::Drain => whole(DRAIN_WINDOW.min(self.window)),
            DelayPhase::SlowStart | DelayPhase::Cautious { .. } | DelayPhase::Steady => {
                whole(self.window)
            }
        }
    }

    fn interval_ps(&self) -> u64 {
        if let Some(cubic) = self.contest.cubic() {
            return cubic.interval_ps();
        }
        let is_slow_start = self.phase == DelayPhase::SlowStart;
        let gain = if is_slow_start { GAIN_SLOW_START } else { GAIN };
        // Of a path whose queue does not stand; an end that waits for a processor makes up for it then.
        let rtt = self.srtt.map(|srtt| srtt.min(self.standing.0));
        rtt.map_or(0, |rtt| interval_ps(rtt, self.window, gain))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Cubic;
    use super::*;

    const RTT: Nanos = 10_000_000;

    /// A round trip of this length in which all of the window was used, in eight acknowledgements.
    fn acknowledge_rtt(delay: &mut Delay, now: &mut Nanos, rtt: Nanos) {
        let flight_max = delay.window();
        for number in 0..8 {
            *now += rtt / 8;
            let acked = flight_max / 8;
            let news = PathNews {
                now: *now,
                acked,
                lost: 0,
                rtt: Some(rtt),
                flight_max,
                is_round_over: number == 7,
            };
            delay.on_news(&news);
        }
    }

    #[test]
    fn the_window_stays_at_the_target_delay_and_moves_towards_it() {
        let mut delay = Delay { window: 10_000.0, phase: DelayPhase::Steady, ..Delay::new() };
        let mut now = 0;
        acknowledge_rtt(&mut delay, &mut now, RTT);
        assert_eq!((delay.base(), delay.tolerance()), (RTT, 362_500));
        // (10 ms + 0.3625 ms) / (1 - 1 / 100) - 10 ms.
        let target = delay.target(10_000.0);
        assert!((target - 467_171.7).abs() < 1.0, "{target}");
        for (queue, moves) in [(0, 1), (467_172, 0), (934_343, -1)] {
            delay.window = 10_000.0;
            // The queue of the case before stood in the first of these rounds.
            (0..4).for_each(|_| acknowledge_rtt(&mut delay, &mut now, RTT + queue));
            let change = delay.window - 10_000.0;
            let is_right = match moves {
                0 => change.abs() < 1.0,
                sign => change * f64::from(sign) > 100.0,
            };
            assert!(is_right, "{queue}: {change}");
        }
    }

    #[test]
    fn the_smaller_window_has_the_higher_target() {
        let mut delay = Delay::new();
        delay.sample(0, RTT);
        let targets = [10.0, 100.0, 1000.0, 10_000.0].map(|window| delay.target(window));
        assert!(targets.is_sorted_by(|a, b| a > b), "{targets:?}");
    }

    #[test]
    fn single_losses_change_nothing_and_many_halve() {
        let mut delay = Delay { window: 1000.0, phase: DelayPhase::Steady, ..Delay::new() };
        let lossy = |lost| PathNews {
            acked: 1000 - lost,
            lost,
            flight_max: 1000,
            is_round_over: true,
            ..PathNews::default()
        };
        delay.on_loss(0);
        delay.on_news(&lossy(50));
        assert_eq!(delay.window(), 1000);
        delay.on_news(&lossy(350));
        assert_eq!(delay.window(), 812, "0.025 and 0.35 are 0.1875 on average");
    }

    #[test]
    fn a_queue_ends_slow_start() {
        let mut delay = Delay::new();
        let mut now = 0;
        for _ in 0..5 {
            acknowledge_rtt(&mut delay, &mut now, RTT);
        }
        assert!(delay.window() >= 160, "{}", delay.window());
        // The rest of the round in which it shows first counts as one.
        for _ in 0..CAUTIOUS_ROUNDS {
            assert!(delay.phase != DelayPhase::Steady);
            acknowledge_rtt(&mut delay, &mut now, 2 * RTT);
        }
        assert_eq!(delay.phase, DelayPhase::Steady);
        let window = delay.window();
        assert!((160..400).contains(&window), "half of what was on the path: {window}");
        acknowledge_rtt(&mut delay, &mut now, RTT);
        assert!(delay.window() < window + window / 4, "{}", delay.window());
    }

    #[test]
    fn a_round_trip_that_is_long_by_chance_does_not_end_slow_start() {
        let mut delay = Delay::new();
        let mut now = 0;
        for rtt in [RTT, RTT, 2 * RTT, RTT, RTT, RTT] {
            acknowledge_rtt(&mut delay, &mut now, rtt);
        }
        assert_eq!(delay.phase, DelayPhase::SlowStart);
        assert!(delay.window() >= 200, "{}", delay.window());
    }

    #[test]
    fn a_path_that_got_longer_is_known_after_two_drains() {
        let mut delay = Delay { window: 100.0, phase: DelayPhase::Steady, ..Delay::new() };
        let mut now = 0;
        acknowledge_rtt(&mut delay, &mut now, RTT);
        let begin = now;
        while delay.base() == RTT {
            acknowledge_rtt(&mut delay, &mut now, 3 * RTT);
            assert!(now < begin + 4 * DRAIN_ROUNDS * RTT, "never");
        }
        assert_eq!(delay.base(), 3 * RTT);
        assert!(delay.window() >= 2);
    }

    /// Steady with this window and round-trip time.
    fn steady(window: f64, rtt: Nanos) -> Delay {
        let mut delay = Delay { phase: DelayPhase::Steady, ..Delay::new() };
        delay.sample(0, rtt);
        Delay { window, samples: 0, round_min: Nanos::MAX, ..delay }
    }

    /// One round of which a sample has that round-trip time.
    fn ends(delay: &mut Delay, news: PathNews, rtt: Nanos) {
        delay.on_news(&PathNews { rtt: Some(rtt), is_round_over: true, ..news });
    }

    #[test]
    fn slow_start_grows_only_where_half_of_the_window_is_used() {
        for (flight_max, window) in [(4, 10), (5, 15)] {
            let mut delay = Delay::new();
            delay.on_news(&PathNews { acked: 5, flight_max, ..PathNews::default() });
            assert_eq!(delay.window(), window, "{flight_max} of ten on the path");
        }
    }

    #[test]
    fn a_window_that_the_program_does_not_use_does_not_grow() {
        // An eighth of what is on the path, and one: of 100, 87 are too few, 88 enough.
        for (flight_max, grows) in [(50, false), (87, false), (88, true), (100, true)] {
            let mut delay = steady(100.0, RTT);
            ends(&mut delay, PathNews { now: 1, flight_max, ..PathNews::default() }, RTT);
            assert_eq!(delay.window() > 100, grows, "{flight_max} on the path");
            // It shrinks whatever is used.
            for now in [STANDING_NS, 2 * STANDING_NS] {
                ends(&mut delay, PathNews { now, flight_max, ..PathNews::default() }, 2 * RTT);
            }
            assert!(delay.window() < 100, "{flight_max} on the path");
        }
    }

    #[test]
    fn a_path_that_loses_many_lets_no_window_grow() {
        for (lost, grows) in [(62, true), (63, false)] {
            let loss = number(lost) / 1000.0;
            let mut delay = Delay { loss, ..steady(1000.0, RTT) };
            let news = PathNews {
                now: 1,
                acked: 1000 - lost,
                lost,
                flight_max: 1000,
                ..PathNews::default()
            };
            ends(&mut delay, news, RTT);
            assert_eq!(delay.window() > 1000, grows, "{lost} of 1000 lost");
        }
    }

    /// A round trip of 1 us tolerates 51 us of queue: the window wants to be 51 times itself, and gets half of twice.
    #[test]
    fn a_step_is_half_a_window_at_most() {
        let mut delay = steady(100.0, 1000);
        ends(&mut delay, PathNews { now: 1, flight_max: 100, ..PathNews::default() }, 1000);
        assert!((delay.window - 150.0).abs() < 1e-9, "{}", delay.window);
    }

    #[test]
    fn losses_are_counted_over_many_packets_and_halve_at_most() {
        let lossy = |acked, lost| PathNews {
            now: 1,
            acked,
            lost,
            flight_max: 1000,
            is_round_over: true,
            ..PathNews::default()
        };
        let mut delay = steady(1000.0, RTT);
        delay.on_news(&lossy(60, 67));
        assert_eq!(delay.window(), 1000, "127 packets say nothing");
        delay.on_news(&lossy(1, 0));
        assert_eq!(delay.window(), 738, "half of 67 of 128");
        delay.on_news(&lossy(10, 990));
        assert_eq!(delay.window(), 369, "more than half are lost");
        delay.loss = 0.3;
        delay.on_news(&lossy(700, 300));
        assert_eq!(delay.window(), 258, "three tenths");
    }

    #[test]
    fn slow_start_ends_at_half_its_window_at_least() {
        for (rtt, left) in [(RTT * 10 / 9, 0.9), (5 * RTT, 0.5)] {
            let mut delay = steady(1000.0, RTT);
            delay.round_min = rtt;
            delay.on_cautious_round(2, rtt);
            assert_eq!(delay.phase, DelayPhase::Cautious { rounds: 1, queued: rtt });
            assert_eq!(delay.window(), 1000);
            delay.on_cautious_round(1, rtt);
            assert_eq!(delay.phase, DelayPhase::Steady);
            assert!((delay.window - 1000.0 * left).abs() < 1.0, "{}", delay.window);
        }
    }

    #[test]
    fn fewer_than_four_samples_show_no_queue() {
        let mut delay = steady(1000.0, RTT);
        (0..3).for_each(|_| delay.sample(1, 2 * RTT));
        assert!(!delay.sees_queue());
        delay.sample(1, 2 * RTT);
        assert!(delay.sees_queue());
    }

    #[test]
    fn one_timeout_says_nothing_and_each_further_one_after_twenty_milliseconds_halves() {
        let mut delay = steady(1000.0, RTT);
        delay.on_timeout(1);
        delay.on_timeout(STANDING_NS);
        assert_eq!(delay.window(), 1000, "an end that waits for a processor");
        delay.on_timeout(1 + STANDING_NS);
        assert_eq!(delay.window(), 500);
        delay.on_timeout(2 * STANDING_NS);
        assert_eq!(delay.window(), 500);
        // Something left the path: the next one is the first again.
        delay.on_news(&PathNews { now: 3 * STANDING_NS, acked: 1, ..PathNews::default() });
        delay.on_timeout(4 * STANDING_NS);
        assert_eq!(delay.window(), 500);
        (5..25).for_each(|turn| delay.on_timeout(turn * STANDING_NS));
        assert_eq!(delay.window(), 2);
    }

    /// Each 128 round trips, but not within 20 ms and at least each 10 s; for one round trip four packets.
    #[test]
    fn queues_are_drained_each_hundred_and_twenty_eight_round_trips() {
        for (rtt, every) in
            [(10_000, 20_000_000), (RTT, 128 * RTT), (1_000_000_000, 10_000_000_000)]
        {
            let mut delay = steady(100.0, rtt);
            let (mut now, mut drains) = (0, Vec::new());
            while drains.len() < 2 {
                now += rtt;
                let news = PathNews { now, flight_max: 1, ..PathNews::default() };
                ends(&mut delay, news, rtt);
                if delay.phase == DelayPhase::Drain {
                    drains.push(now);
                    assert_eq!(delay.window(), 4, "{rtt}");
                }
            }
            // The first sample showed no queue; a drain takes a round trip, and the time begins at its end.
            assert_eq!(drains, [every, every + rtt + every], "{rtt}");
        }
        let drained = Delay { window: 3.0, phase: DelayPhase::Drain, ..Delay::new() };
        assert_eq!(drained.window(), 3, "no more than before");
    }

    #[test]
    fn packets_leave_in_half_a_round_trip_and_later_in_most_of_it() {
        let mut delay = Delay::new();
        assert_eq!(delay.interval_ps(), 0, "no round trip is known");
        delay.sample(0, RTT);
        // Ten packets in 10 ms, twice as fast; 1.25 times as fast where the window follows the delay.
        assert_eq!(delay.interval_ps(), 500_000_000);
        assert_eq!(steady(10.0, RTT).interval_ps(), 800_000_000);
    }

    #[test]
    fn a_round_trip_time_counts_an_eighth() {
        let mut delay = Delay::new();
        delay.sample(0, RTT);
        delay.sample(0, 2 * RTT);
        assert_eq!(delay.interval_ps(), 500_000_000, "that of a queue that does not stand");
        delay.standing.0 = Nanos::MAX;
        assert_eq!(delay.interval_ps(), 562_500_000, "11.25 ms, twice as fast");
    }

    /// Ends that wait for a processor for 8 ms and answer at once in between, on a path of 0.1 ms: the window stays.
    #[test]
    fn a_queue_that_is_empty_once_in_twenty_milliseconds_does_not_stand() {
        const SHORT: Nanos = 100_000;
        for (stalls, stays) in [(1, true), (3, true), (4, false)] {
            let mut delay = steady(500.0, SHORT);
            let mut now = 0;
            for _ in 0..40 {
                for _ in 0..stalls {
                    now += 8_000_000;
                    ends(&mut delay, PathNews { now, ..PathNews::default() }, 8_000_000);
                }
                now += SHORT;
                ends(&mut delay, PathNews { now, ..PathNews::default() }, SHORT);
            }
            assert_eq!(delay.window() == 500, stays, "{stalls}: {}", delay.window());
        }
    }

    #[test]
    fn a_cautious_window_grows_by_a_quarter_of_what_was_acknowledged() {
        for (phase, grown) in [
            (DelayPhase::SlowStart, 108.0),
            (DelayPhase::Cautious { rounds: 2, queued: 0 }, 102.0),
            (DelayPhase::Steady, 100.0),
        ] {
            let mut delay = Delay { window: 100.0, phase, ..Delay::new() };
            delay.on_news(&PathNews { acked: 8, flight_max: 100, ..PathNews::default() });
            assert!((delay.window - grown).abs() < 1e-9, "{phase:?}: {}", delay.window);
        }
    }

    /// With 10 ms and a usual queue of 0.44 ms: a sample with a quarter of that queue shows a path that was drained. Where
    /// the usual queue is short, none does, but one that is shorter than ever.
    #[test]
    fn a_sample_with_a_quarter_of_the_usual_queue_shows_a_drain() {
        for (usual, rtt, is_drained) in [
            (14_000_000, 10_050_000, true),
            (14_000_000, 10_109_000, true),
            (14_000_000, 10_200_000, false),
            (10_100_000, 10_000_000, false),
            (RTT, 9_700_000, true),
            (RTT, 9_900_000, false),
        ] {
            let mut delay = steady(100.0, RTT);
            delay.sample(1, usual);
            assert_eq!(delay.drained_at, Some(0), "{usual}");
            delay.sample(7, rtt);
            assert_eq!(delay.drained_at == Some(7), is_drained, "{usual} {rtt}");
        }
    }

    /// Each bound of delays, at it and one step beyond: 181,250 ns are half of what is tolerated with 10 ms.
    #[test]
    fn bounds_of_delays_are_exact() {
        // With this smoothed round trip the usual queue is 181,250 ns after the sample, which is too short, and 7 ns more.
        for (srtt, rtt, is_drained) in [
            (10_207_136, 10_000_048, false),
            (10_207_144, 10_000_048, true),
            // A quarter of a usual queue of 800,128 ns, and a little more than a quarter.
            (10_885_856, 10_200_032, true),
            (10_885_856, 10_200_040, false),
            // Shorter than ever by half of what is tolerated.
            (RTT, 9_818_750, false),
            (RTT, 9_818_749, true),
        ] {
            let mut delay = Delay { srtt: Some(srtt), ..steady(100.0, RTT) };
            delay.sample(7, rtt);
            assert_eq!(delay.drained_at == Some(7), is_drained, "{srtt} {rtt}");
        }
        for (samples, queue, sees) in
            [(4, 181_250, false), (4, 181_251, true), (3, 181_251, false), (5, 181_251, true)]
        {
            let delay = Delay { samples, round_min: RTT + queue, ..steady(100.0, RTT) };
            assert_eq!(delay.sees_queue(), sees, "{samples} {queue}");
        }
    }

    /// Of a window of 101 packets, 88 and an eighth and one are 100, 89 and an eighth and one are all.
    #[test]
    fn a_window_grows_from_an_eighth_less_on() {
        for (flight_max, grows) in [(88, false), (89, true)] {
            let mut delay = steady(101.0, RTT);
            ends(&mut delay, PathNews { now: 1, flight_max, ..PathNews::default() }, RTT);
            assert_eq!(delay.window() > 101, grows, "{flight_max} on the path");
        }
    }

    #[test]
    fn a_round_begins_without_samples_and_losses_with_their_count() {
        let news =
            PathNews { now: 1, flight_max: 1000, is_round_over: true, ..PathNews::default() };
        let counts = |delay: &Delay| (delay.resolved, delay.lost, delay.silent_since);
        let mut delay = steady(1000.0, RTT);
        delay.sample(1, RTT);
        delay.on_news(&PathNews { acked: 100, lost: 27, ..news });
        assert_eq!(
            (delay.samples, delay.round_min, counts(&delay)),
            (0, Nanos::MAX, (127, 27, None))
        );
        delay.on_timeout(2);
        assert_eq!(
            counts(&delay),
            (0, 0, Some(2)),
            "what was lost before says nothing of the path now"
        );
        delay.on_news(&PathNews { now: 3, ..news });
        assert_eq!(counts(&delay), (0, 0, Some(2)), "nothing left the path");
        // Five of 64 are tolerated, one of 1024 more is not.
        for (lost, phase, window) in
            [(80, DelayPhase::SlowStart, 1000), (81, DelayPhase::Steady, 920)]
        {
            let loss = number(lost) / 1024.0;
            let mut delay = Delay { phase: DelayPhase::SlowStart, loss, ..steady(1000.0, RTT) };
            let lossy = PathNews { acked: 1024 - lost, lost, flight_max: 1, ..news };
            delay.on_news(&lossy);
            assert_eq!(
                (delay.phase, delay.window(), counts(&delay)),
                (phase, window, (0, 0, None))
            );
        }
        // With a loss of a sixteenth it grows, with one of 1024 more it does not.
        for (lost, grows) in [(64, true), (65, false)] {
            let mut delay = Delay { loss: number(lost) / 1024.0, ..steady(1000.0, RTT) };
            delay.on_news(&PathNews { acked: 1024 - lost, lost, rtt: Some(RTT), ..news });
            assert_eq!(delay.window() > 1000, grows, "{lost}");
        }
    }

    #[test]
    fn a_clock_that_went_back_delays_no_drain() {
        let mut delay = Delay { drained_at: Some(1_000_000), ..steady(100.0, RTT) };
        let at = |now| PathNews { now, flight_max: 1, ..PathNews::default() };
        ends(&mut delay, at(500), RTT);
        assert_eq!((delay.drained_at, delay.phase), (Some(500), DelayPhase::Steady));
        ends(&mut delay, at(499 + 128 * RTT), RTT);
        assert_eq!(delay.phase, DelayPhase::Steady);
        ends(&mut delay, at(500 + 128 * RTT), RTT);
        assert_eq!((delay.phase, delay.base), (DelayPhase::Drain, [Nanos::MAX, RTT]));
        let at = at(600 + 128 * RTT);
        ends(&mut delay, at, RTT);
        assert_eq!((delay.drained_at, delay.phase), (Some(at.now), DelayPhase::Steady));
    }

    /// So many rounds of that round-trip time, of which each shows 1,000 packets, `lost` of them lost.
    fn rounds(delay: &mut Delay, now: &mut Nanos, (count, rtt, lost): (usize, Nanos, u64)) {
        for _ in 0..count {
            *now += rtt;
            let news = PathNews { now: *now, acked: 1000 - lost, lost, ..PathNews::default() };
            ends(delay, PathNews { flight_max: delay.window(), ..news }, rtt);
        }
    }

    /// No queue, and that of a flow of CUBIC: long, cut, long, cut.
    fn saw(delay: &mut Delay, now: &mut Nanos, lost: u64) {
        rounds(delay, now, (1, RTT, lost));
        for rtt in [RTT * 2, RTT * 3 / 2, RTT * 2, RTT * 3 / 2] {
            rounds(delay, now, (12, rtt, lost));
        }
    }

    #[test]
    fn beside_flows_that_fill_the_queue_the_window_follows_losses() {
        let (mut delay, mut now) = (steady(100.0, RTT), RTT);
        saw(&mut delay, &mut now, 0);
        assert!(delay.contest.cubic().is_some());
        let window = delay.window;
        // In slow start; the window does not shrink for the delay.
        rounds(&mut delay, &mut now, (1, RTT * 2, 0));
        assert!(delay.window > window && delay.phase == DelayPhase::Steady);
        let window = delay.window;
        delay.on_loss(now);
        rounds(&mut delay, &mut now, (1, RTT * 2, 1));
        assert!((delay.window / window - 0.7).abs() < 0.01, "{window} {}", delay.window);
        assert_eq!(delay.interval_ps(), delay.contest.cubic().map_or(0, Cubic::interval_ps));
        // No cut for half a minute: what it has in a queue of another round trip leaves it.
        let window = delay.window;
        while delay.contest.cubic().is_some() {
            let news = PathNews { now, flight_max: 1, ..PathNews::default() };
            ends(&mut delay, news, RTT * 2);
            now += RTT * 2;
        }
        assert!(now > 30_000_000_000 && now < 33_000_000_000, "{now}");
        assert!((delay.window / window - 0.5).abs() < 0.01, "{window} {}", delay.window);
    }

    #[test]
    fn where_more_is_lost_than_cubic_bears_nobody_competes() {
        for (lost, competes) in [(15, true), (17, false)] {
            let (mut delay, mut now) = (steady(100.0, RTT), RTT);
            delay.loss = number(lost) / 1000.0;
            saw(&mut delay, &mut now, lost);
            assert_eq!(delay.contest.cubic().is_some(), competes, "{lost}");
        }
    }

    #[test]
    fn a_path_that_falls_silent_ends_a_contest() {
        let (mut delay, mut now) = (steady(100.0, RTT), RTT);
        saw(&mut delay, &mut now, 0);
        delay.on_timeout(now);
        assert!(delay.contest.cubic().is_some(), "one timeout says nothing");
        delay.on_timeout(now + STANDING_NS);
        assert!(delay.contest.cubic().is_none());
    }

    #[test]
    fn a_window_has_bounds() {
        for (window, wanted) in [(0.5, WINDOW_MIN), (2.0 * WINDOW_MOST, WINDOW_MOST)] {
            let mut delay = Delay { window, phase: DelayPhase::Steady, ..Delay::new() };
            delay.on_news(&PathNews::default());
            assert!((delay.window - wanted).abs() < 1e-9, "{window}: {}", delay.window);
        }
    }
}
