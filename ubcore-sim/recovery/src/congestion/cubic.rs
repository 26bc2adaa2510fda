//! CUBIC (RFC 9438): a window that follows losses, in packets.
//!
//! - owns: the window, where it was reduced, since when it grows. takes: feedback. gives: window, rate.
//! - must not: read round-trip times but for slow start and the rate.

use udma_abi::Nanos;

use super::slow_start::SlowStart;
use super::{
    CongestionControl, PathNews, WINDOW_FIRST, WINDOW_MIN, WINDOW_MOST, interval_ps, number, whole,
};

/// Constants of RFC 9438, 4.1 and 4.6.
const C: f64 = 0.4;
const BETA: f64 = 0.7;
/// Packets that Reno with the same factor would add per round trip (RFC 9438, 4.3).
const RENO_ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);
/// Faster than the window by these in slow start and later: the window must stay what bounds.
const GAIN_SLOW_START: f64 = 2.0;
const GAIN: f64 = 1.2;

/// Since when the window grows, and from where.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    start: Nanos,
    /// Window before the last reduction, or where this epoch began if that is more.
    window_max: f64,
    /// Seconds until it is reached again.
    k: f64,
    /// Window that Reno would have.
    reno: f64,
    /// Window before the reduction: from there on Reno grows by a whole packet.
    prior: f64,
}

/// Window of a TP after RFC 9438, with fast convergence and HyStart++.
#[derive(Debug)]
pub struct Cubic {
    window: f64,
    /// Where slow start ends.
    threshold: f64,
    /// Window before the last reduction, and the same lowered by fast convergence.
    prior: f64,
    window_max: f64,
    epoch: Option<Epoch>,
    start: SlowStart,
    srtt: Option<Nanos>,
    last_news: Nanos,
}

impl Default for Cubic {
    fn default() -> Self {
        Self::new()
    }
}

impl Cubic {
    /// A window of ten packets in slow start.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            window: WINDOW_FIRST,
            threshold: WINDOW_MOST,
            prior: 0.0,
            window_max: 0.0,
            epoch: None,
            start: SlowStart::new(),
            srtt: None,
            last_news: 0,
        }
    }

    /// A window of so many packets in slow start.
    pub(super) const fn starting_at(window: f64) -> Self {
        let mut cubic = Self::new();
        cubic.window = window;
        cubic
    }

    /// Whether the window grows as in slow start.
    #[must_use]
    pub fn is_in_slow_start(&self) -> bool {
        self.window < self.threshold
    }

    /// The window as a number with fractions.
    #[must_use]
    pub const fn exact_window(&self) -> f64 {
        self.window
    }

    /// What the cubic function of an epoch says at this time after its start (RFC 9438, figure 1).
    fn curve(epoch: &Epoch, seconds: f64) -> f64 {
        let past = seconds - epoch.k;
        C * past * past * past + epoch.window_max
    }

    fn grow_in_slow_start(&mut self, news: &PathNews) {
        let growth = self.start.growth().unwrap_or(1.0);
        if 2 * news.flight_max >= whole(self.window) {
            self.window = (self.window + number(news.acked) * growth).min(self.threshold);
        }
        if self.start.on_news(news) {
            self.threshold = self.window;
        }
    }

    fn begin(&self, now: Nanos) -> Epoch {
        let window_max = self.window_max.max(self.window);
        let k = cube_root((window_max - self.window) / C);
        let prior = self.prior.max(self.window);
        Epoch { start: now, window_max, k, reno: self.window, prior }
    }

    fn grow(&mut self, news: &PathNews) {
        let mut epoch = self.epoch.unwrap_or_else(|| self.begin(news.now));
        let rtt = self.srtt.unwrap_or(0);
        let seconds = number(news.now.saturating_sub(epoch.start)) / 1e9;
        let acked = number(news.acked);
        let alpha = if epoch.reno >= epoch.prior { 1.0 } else { RENO_ALPHA };
        epoch.reno += alpha * acked / self.window;
        if Self::curve(&epoch, seconds) < epoch.reno {
            self.window = epoch.reno;
        } else {
            let target = Self::curve(&epoch, seconds + number(rtt) / 1e9);
            let target = target.clamp(self.window, 1.5 * self.window);
            self.window += (target - self.window) / self.window * acked;
        }
        self.epoch = Some(epoch);
    }

    fn reduce(&mut self) {
        self.prior = self.window;
        // Fast convergence (RFC 9438, 4.7): a window that no longer reaches the last one makes room.
        self.window_max = if self.window < self.window_max {
            self.window * (1.0 + BETA) / 2.0
        } else {
            self.window
        };
        self.threshold = (self.window * BETA).max(WINDOW_MIN);
        self.window = self.threshold;
        self.epoch = None;
    }
}

impl CongestionControl for Cubic {
    fn on_news(&mut self, news: &PathNews) {
        if let Some(rtt) = news.rtt {
            self.srtt = Some(self.srtt.map_or(rtt, |srtt| srtt / 8 * 7 + rtt / 8));
        }
        let since = news.now.saturating_sub(self.last_news);
        self.last_news = news.now;
        if self.is_in_slow_start() {
            self.grow_in_slow_start(news);
        } else if news.flight_max + news.flight_max / 8 + 1 >= whole(self.window) {
            self.grow(news);
        } else if let Some(epoch) = &mut self.epoch {
            // While the program sends less than it may, no time passes (RFC 9438, 5.8).
            epoch.start = epoch.start.saturating_add(since);
        }
        self.window = self.window.clamp(WINDOW_MIN, WINDOW_MOST);
    }

    fn on_loss(&mut self, _now: Nanos) {
        self.reduce();
    }

    fn on_timeout(&mut self, _now: Nanos) {
        if self.window > WINDOW_MIN {
            self.reduce();
        }
        self.window = WINDOW_MIN;
        self.start = SlowStart::new();
    }

    fn window(&self) -> u64 {
        whole(self.window)
    }

    fn interval_ps(&self) -> u64 {
        let gain = if self.is_in_slow_start() { GAIN_SLOW_START } else { GAIN };
        self.srtt.map_or(0, |srtt| interval_ps(srtt, self.window, gain))
    }
}

/// Cube root by Newton's method: the same on every machine, which the library's function is not.
fn cube_root(value: f64) -> f64 {
    if value <= 0.0 {
        return 0.0;
    }
    let mut root = value.max(1.0);
    for _ in 0..120 {
        let next = (2.0 * root + value / (root * root)) / 3.0;
        if (next - root).abs() <= root * 1e-12 {
            return next;
        }
        root = next;
    }
    root
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Nanos = 10_000_000;

    /// Out of slow start with this window.
    fn reduced_from(window: f64) -> Cubic {
        let mut cubic = Cubic::new();
        cubic.window = window;
        cubic.on_loss(0);
        cubic
    }

    /// Acknowledges whole windows for this time; the window at its end.
    fn acknowledge_until(cubic: &mut Cubic, from: Nanos, until: Nanos) -> f64 {
        let (mut now, mut part) = (from, 0);
        while now < until {
            let flight_max = cubic.window();
            // Sixteen acknowledgements a round trip.
            now += RTT / 16;
            let acked = (part + flight_max) / 16;
            part = (part + flight_max) % 16;
            let news = PathNews { now, acked, rtt: Some(RTT), flight_max, ..PathNews::default() };
            cubic.on_news(&news);
        }
        cubic.exact_window()
    }

    #[test]
    fn the_window_follows_the_cubic_function_of_the_time_since_the_reduction() {
        let mut cubic = reduced_from(10_000.0);
        assert_eq!(cubic.window(), 7000);
        // K = cbrt(10000 x 0.3 / 0.4) = 19.574 s.
        let k = cube_root(10_000.0 * (1.0 - BETA) / C);
        assert!((k - 19.574).abs() < 1e-3, "{k}");
        let mut now = RTT;
        for seconds in [2, 5, 10, 15, 19, 25, 30] {
            let window = acknowledge_until(&mut cubic, now, seconds * 1_000_000_000);
            now = seconds * 1_000_000_000;
            let past = number(seconds) - k;
            let formula = 0.4 * past * past * past + 10_000.0;
            assert!((window / formula - 1.0).abs() < 0.01, "{seconds} s: {window}, {formula}");
        }
    }

    #[test]
    fn a_window_that_reno_would_exceed_grows_as_reno_does() {
        let mut cubic = reduced_from(20.0);
        let window = acknowledge_until(&mut cubic, RTT, RTT * 5);
        // 14 packets grow by 0.53 per round trip, the cubic function by less.
        assert!((window - (14.0 + 4.0 * RENO_ALPHA)).abs() < 0.6, "{window}");
    }

    #[test]
    fn a_second_reduction_below_the_first_makes_room() {
        let mut cubic = reduced_from(1000.0);
        assert!((cubic.window_max - 1000.0).abs() < 1e-9);
        cubic.on_loss(0);
        assert!((cubic.window_max - 700.0 * 0.85).abs() < 1e-9, "{}", cubic.window_max);
        assert!((cubic.exact_window() - 490.0).abs() < 1e-9);
    }

    #[test]
    fn a_window_is_two_packets_at_least() {
        // 0.7 of 2.5 are 1.75.
        let mut cubic = reduced_from(2.5);
        assert_eq!((cubic.exact_window(), cubic.threshold), (2.0, 2.0));
        assert_eq!((cubic.window_max, cubic.prior), (2.5, 2.5));
        cubic.on_loss(0);
        assert_eq!((cubic.exact_window(), cubic.threshold), (2.0, 2.0));
        // News bring a window of less back to it.
        cubic.window = 0.5;
        cubic.on_news(&PathNews { now: RTT, ..PathNews::default() });
        assert_eq!((cubic.exact_window(), cubic.window()), (2.0, 2));
    }

    #[test]
    fn a_second_timeout_keeps_the_threshold_of_the_first() {
        let mut cubic = Cubic::new();
        cubic.window = 80.0;
        for _ in 0..3 {
            cubic.on_timeout(0);
            assert_eq!((cubic.exact_window(), cubic.threshold), (2.0, 56.0));
            assert_eq!((cubic.window_max, cubic.prior), (80.0, 80.0));
        }
    }

    #[test]
    fn slow_start_doubles_and_ends_at_the_threshold() {
        let mut cubic = Cubic::new();
        for (acked, window) in [(10, 20), (20, 40), (40, 80)] {
            let news = PathNews { acked, flight_max: acked, ..PathNews::default() };
            cubic.on_news(&news);
            assert_eq!(cubic.window(), window);
        }
        cubic.on_timeout(0);
        assert_eq!(cubic.window(), 2);
        let news = PathNews { acked: 1000, flight_max: 100, ..PathNews::default() };
        cubic.on_news(&news);
        assert_eq!(cubic.window(), 56, "0.7 of 80");
        assert!(!cubic.is_in_slow_start());
    }

    #[test]
    fn a_sender_with_little_to_send_does_not_grow() {
        let mut cubic = reduced_from(1000.0);
        let idle = PathNews { now: 1 << 40, acked: 100, flight_max: 100, ..PathNews::default() };
        cubic.on_news(&idle);
        assert_eq!(cubic.window(), 700);
        let mut busy = PathNews { now: RTT, acked: 43, flight_max: 700, ..PathNews::default() };
        cubic.on_news(&busy);
        let before = cubic.exact_window();
        // An hour without enough to send is no time in which the window grows.
        let hour = 3_600_000_000_000;
        cubic.on_news(&PathNews { now: hour, flight_max: 1, ..busy });
        busy.now = hour + RTT;
        cubic.on_news(&busy);
        assert!(cubic.exact_window() < before + 5.0, "{}", cubic.exact_window());
    }

    #[test]
    fn cube_roots() {
        for value in [0.0, 1e-9, 0.5, 1.0, 27.0, 1e12] {
            let root = cube_root(value);
            assert!((root * root * root - value).abs() <= value * 1e-9, "{value}: {root}");
        }
    }

    #[test]
    fn slow_start_grows_only_where_half_of_the_window_is_used() {
        for (flight_max, window) in [(4, 10), (5, 15)] {
            let mut cubic = Cubic::new();
            cubic.on_news(&PathNews { acked: 5, flight_max, ..PathNews::default() });
            assert_eq!(cubic.window(), window, "{flight_max} of ten on the path");
        }
    }

    #[test]
    fn congestion_avoidance_grows_only_where_the_window_is_used() {
        // 700 and an eighth of what is on the path, and one: 621 are too few, 622 enough.
        for (flight_max, grows) in [(621, false), (622, true)] {
            let mut cubic = reduced_from(1000.0);
            cubic.on_news(&PathNews { now: RTT, acked: 70, flight_max, ..PathNews::default() });
            assert_eq!(cubic.exact_window() > 700.0, grows, "{flight_max} on the path");
        }
    }

    /// However long nothing was received: for each packet that is acknowledged half a packet at most (RFC 9438, 4.4: a target
    /// of 1.5 windows).
    #[test]
    fn a_step_is_half_a_window_per_round_trip_at_most() {
        let mut cubic = reduced_from(100.0);
        let news = PathNews { now: RTT, acked: 1, flight_max: 70, ..PathNews::default() };
        cubic.on_news(&news);
        let before = cubic.exact_window();
        cubic.on_news(&PathNews { now: 1_000_000_000_000, acked: 10, ..news });
        assert!((cubic.exact_window() - before - 5.0).abs() < 1e-9, "{}", cubic.exact_window());
    }

    #[test]
    fn a_second_timeout_keeps_where_slow_start_ends() {
        let mut cubic = Cubic::new();
        cubic.window = 80.0;
        (0..3).for_each(|_| cubic.on_timeout(0));
        assert_eq!(cubic.window(), 2);
        cubic.on_news(&PathNews { acked: 1000, flight_max: 100, ..PathNews::default() });
        assert_eq!(cubic.window(), 56, "0.7 of the window before the first one");
    }

    /// From the window before the reduction on, Reno adds a whole packet per round trip (RFC 9438, 4.3).
    #[test]
    fn reno_grows_by_a_whole_packet_beyond_the_window_before() {
        let mut cubic = reduced_from(20.0);
        // 14 packets, 0.53 a round trip: 20 after 11.3 of them; 20 more round trips, before the cubic function says more.
        let window = acknowledge_until(&mut cubic, RTT, RTT * 32);
        assert!((38.0..42.0).contains(&window), "{window}");
    }

    #[test]
    fn packets_leave_in_half_a_round_trip_and_later_in_most_of_it() {
        let mut cubic = Cubic::new();
        assert_eq!(cubic.interval_ps(), 0, "no round trip is known");
        cubic.on_news(&PathNews { rtt: Some(RTT), ..PathNews::default() });
        // Ten packets in 10 ms, twice as fast.
        assert_eq!(cubic.interval_ps(), 500_000_000);
        cubic.on_loss(0);
        // Seven, 1.2 times as fast.
        assert_eq!(cubic.interval_ps(), 1_190_476_190);
    }

    #[test]
    fn a_round_trip_time_counts_an_eighth() {
        let mut cubic = Cubic::new();
        cubic.on_news(&PathNews { rtt: Some(RTT), ..PathNews::default() });
        cubic.on_news(&PathNews { rtt: Some(2 * RTT), ..PathNews::default() });
        // 11.25 ms, twice as fast.
        assert_eq!((cubic.window(), cubic.interval_ps()), (10, 562_500_000));
    }

    /// An epoch whose cubic function says ten packets at its start.
    fn in_epoch(window: f64, reno: f64, prior: f64) -> Cubic {
        let epoch = Epoch { start: 0, window_max: 10.0, k: 0.0, reno, prior };
        Cubic { window, threshold: 2.0, epoch: Some(epoch), ..Cubic::new() }
    }

    #[test]
    fn reno_grows_by_whole_packets_from_the_window_before_on() {
        for (reno, alpha) in [(9.999, RENO_ALPHA), (10.0, 1.0), (10.001, 1.0)] {
            let mut cubic = in_epoch(8.0, reno, 10.0);
            cubic.grow(&PathNews { acked: 4, flight_max: 8, ..PathNews::default() });
            let found = cubic.epoch.expect("it goes on").reno;
            assert!((found - reno - alpha / 2.0).abs() < 1e-9, "{reno}: {found}");
        }
        // Where both say the same, the cubic function counts, and nothing was acknowledged.
        let mut cubic = in_epoch(7.0, 10.0, 10.0);
        cubic.grow(&PathNews::default());
        assert!((cubic.window - 7.0).abs() < 1e-9, "{}", cubic.window);
        let mut cubic = in_epoch(7.0, 10.001, 10.0);
        cubic.grow(&PathNews::default());
        assert!((cubic.window - 10.001).abs() < 1e-9, "{}", cubic.window);
    }

    /// 0.4 x 2^3 packets more in a round trip of two seconds.
    #[test]
    fn the_target_is_that_of_a_round_trip_later() {
        let mut cubic = in_epoch(10.0, 1.0, 10.0);
        cubic.srtt = Some(2_000_000_000);
        cubic.grow(&PathNews { acked: 5, flight_max: 10, ..PathNews::default() });
        assert!((cubic.window - 11.6).abs() < 1e-9, "{}", cubic.window);
    }

    #[test]
    fn a_reduction_ends_the_epoch_and_a_timeout_begins_slow_start_anew() {
        let mut cubic = in_epoch(100.0, 1.0, 10.0);
        cubic.window_max = 100.0;
        cubic.on_loss(0);
        assert!(cubic.epoch.is_none());
        assert_eq!((cubic.window_max, cubic.prior), (100.0, 100.0), "it reached the last one");
        let mut cubic = Cubic::new();
        let round = |cubic: &mut Cubic, rtt| {
            let news =
                PathNews { rtt: Some(rtt), acked: 1, flight_max: 100, ..PathNews::default() };
            (0..8).for_each(|_| cubic.on_news(&news));
            cubic.on_news(&PathNews { rtt: None, acked: 0, is_round_over: true, ..news });
        };
        round(&mut cubic, RTT);
        // The rest of the round that shows a queue counts as one of five.
        for _ in 0..5 {
            assert!(cubic.is_in_slow_start());
            round(&mut cubic, 2 * RTT);
        }
        assert!(!cubic.is_in_slow_start());
        assert!((cubic.threshold - cubic.window).abs() < 1e-12, "slow start ends where it is");
        assert_eq!(cubic.start.growth(), None);
        cubic.on_timeout(0);
        assert_eq!(cubic.start.growth(), Some(1.0));
    }

    /// Time without enough to send passes for nothing, however it is cut: an epoch begins later by it.
    #[test]
    fn idle_time_moves_the_epoch_by_as_much() {
        let mut cubic = in_epoch(100.0, 1.0, 10.0);
        for (now, start) in [(7, 7), (10, 10), (1000, 1000)] {
            cubic.on_news(&PathNews { now, flight_max: 1, ..PathNews::default() });
            assert_eq!(cubic.epoch.expect("it goes on").start, start);
        }
        cubic.on_news(&PathNews { now: 1500, flight_max: 100, ..PathNews::default() });
        cubic.on_news(&PathNews { now: 1600, flight_max: 1, ..PathNews::default() });
        assert_eq!(cubic.epoch.expect("it goes on").start, 1100);
    }
}
