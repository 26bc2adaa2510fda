//! CUBIC as a rival has it (RFC 9438): cubic function, Reno-friendly region, fast convergence, slow start.
//!
//! - owns: its window. takes: acknowledgements, losses. gives: the window in packets.
//! - must not: share code with the stack's own, which it is to measure.
//!
//! Slow start is that of RFC 5681, until a loss: HyStart++ is left out. Packets leave as acknowledgements come, without a
//! rate.

use super::{RivalControl, RivalNews};

/// RFC 9438, 4.1 and 4.6.
const C: f64 = 0.4;
const BETA: f64 = 0.7;
/// First window (RFC 6928).
const WINDOW_FIRST: f64 = 10.0;

/// What follows from the last reduction.
#[derive(Clone, Copy, PartialEq, Debug)]
struct CubicEpoch {
    begin: u64,
    /// Seconds from the begin until the window is `most` again.
    k: f64,
    most: f64,
    /// Window that Reno would have.
    reno: f64,
}

/// The window of a rival.
#[derive(Debug)]
pub(super) struct RivalCubic {
    window: f64,
    threshold: f64,
    /// Window before the last reduction, and the same after fast convergence.
    prior: f64,
    most: f64,
    epoch: Option<CubicEpoch>,
    srtt_s: f64,
}

impl RivalCubic {
    /// A window of ten packets in slow start.
    pub(super) const fn new() -> Self {
        Self {
            window: WINDOW_FIRST,
            threshold: f64::INFINITY,
            prior: 0.0,
            most: 0.0,
            epoch: None,
            srtt_s: 0.0,
        }
    }

    /// W_cubic(t) of RFC 9438, 4.2.
    fn cubic(epoch: &CubicEpoch, seconds: f64) -> f64 {
        let t = seconds - epoch.k;
        C * t * t * t + epoch.most
    }

    /// Congestion avoidance begins: K = cbrt((W_max - cwnd) / C).
    fn begin(&self, now: u64) -> CubicEpoch {
        let most = self.most.max(self.window);
        let k = cube_root((most - self.window) / C);
        CubicEpoch { begin: now, k, most, reno: self.window }
    }

    fn reduce(&mut self, flight: f64) {
        self.prior = self.window;
        self.most = if self.window < self.most {
            self.window * f64::midpoint(1.0, BETA)
        } else {
            self.window
        };
        self.threshold = (flight.min(self.window) * BETA).max(2.0);
        self.epoch = None;
    }
}

impl RivalControl for RivalCubic {
    fn on_ack(&mut self, news: &RivalNews) {
        let rtt_s = news.rtt as f64 / 1e9;
        self.srtt_s = if self.srtt_s > 0.0 { self.srtt_s * 0.875 + rtt_s * 0.125 } else { rtt_s };
        if self.window < self.threshold {
            self.window += 1.0;
            return;
        }
        let mut epoch = self.epoch.unwrap_or_else(|| self.begin(news.now));
        let seconds = (news.now - epoch.begin) as f64 / 1e9;
        // alpha = 3 (1 - beta) / (1 + beta), and 1 once the window before the reduction is reached (4.3).
        let alpha = if epoch.reno < self.prior { 3.0 * (1.0 - BETA) / (1.0 + BETA) } else { 1.0 };
        epoch.reno += alpha / self.window;
        if Self::cubic(&epoch, seconds) < epoch.reno {
            self.window = epoch.reno;
        } else {
            let target = Self::cubic(&epoch, seconds + self.srtt_s);
            self.window +=
                (target.clamp(self.window, 1.5 * self.window) - self.window) / self.window;
        }
        self.epoch = Some(epoch);
    }

    fn on_loss(&mut self, _now: u64, flight: u64) {
        self.reduce(flight as f64);
        self.window = self.threshold;
    }

    fn on_timeout(&mut self, _now: u64) {
        self.reduce(self.window);
        self.window = 1.0;
    }

    fn window(&self) -> f64 {
        self.window
    }

    fn rate(&self) -> Option<f64> {
        None
    }
}

/// By Newton's method: the same on every machine, which the library's function is not.
fn cube_root(value: f64) -> f64 {
    if value <= 0.0 {
        return 0.0;
    }
    let mut root = value.max(1.0);
    for _ in 0..200 {
        let next = (2.0 * root + value / (root * root)) / 3.0;
        if (next - root).abs() <= root * 1e-13 {
            break;
        }
        root = next;
    }
    root
}

#[cfg(test)]
mod tests {
    use super::super::whole;
    use super::*;

    const RTT: u64 = 50_000_000;

    fn ack(now: u64) -> RivalNews {
        RivalNews { now, rtt: RTT, rate: 0.0, flight: 0, lost: 0, is_round_over: false }
    }

    /// All of the window is acknowledged in each round trip until `end`.
    fn run(cubic: &mut RivalCubic, mut now: u64, end: u64) -> f64 {
        while now < end {
            let count = cubic.window().floor();
            let step = (RTT as f64 / count).floor();
            let mut at = now as f64;
            for _ in 0..whole(count) {
                at += step;
                cubic.on_ack(&ack(whole(at)));
            }
            now += RTT;
        }
        cubic.window()
    }

    #[test]
    fn slow_start_doubles_and_a_loss_leaves_seven_tenths() {
        let mut cubic = RivalCubic::new();
        (0..10).for_each(|_| cubic.on_ack(&ack(RTT)));
        assert_eq!(cubic.window(), 20.0);
        cubic.on_loss(RTT, 20);
        assert!((cubic.window() - 14.0).abs() < 1e-9);
        // What was on the path counts, not the window (4.6).
        cubic.on_loss(RTT, 10);
        assert!((cubic.window() - 7.0).abs() < 1e-9);
    }

    /// 10,000 packets before the loss, 7,000 after it: K is the cube root of 3,000 / 0.4, 19.57 s. At half of it the function
    /// is 10,000 less an eighth of 3,000, at K 10,000, a second later 10,000.4, at 2 K 13,000.
    #[test]
    fn the_window_follows_the_cubic_function() {
        let mut cubic = RivalCubic { window: 10_000.0, threshold: 1.0, ..RivalCubic::new() };
        cubic.on_loss(0, 10_000);
        assert!((cubic.window() - 7000.0).abs() < 1e-9);
        let k = cubic.begin(0).k;
        assert!((k * k * k * C - 3000.0).abs() < 1e-6 && (k - 19.574).abs() < 0.001, "{k}");
        let ns = |seconds: f64| whole(seconds * 1e9);
        let mut now = 0;
        for (at, wanted) in [(k / 2.0, 9625.0), (k, 10_000.0), (2.0 * k, 13_000.0)] {
            let window = run(&mut cubic, now, ns(at));
            now = ns(at);
            assert!((window / wanted - 1.0).abs() < 0.005, "{at} s: {window}, by hand {wanted}");
        }
    }

    /// A short round trip and few packets: Reno with beta 0.7 adds 0.529 packets a round trip, 1 beyond the old window (4.3).
    #[test]
    fn few_packets_grow_as_reno_grows() {
        let mut cubic = RivalCubic { window: 20.0, threshold: 1.0, ..RivalCubic::new() };
        cubic.on_loss(0, 20);
        let window = run(&mut cubic, 0, 10 * RTT);
        assert!((window - 14.0 - 5.29).abs() < 0.3, "{window}");
        let more = run(&mut cubic, 10 * RTT, 20 * RTT) - window;
        assert!((8.0..10.2).contains(&more), "{more}");
    }

    /// A window that no longer reaches the last one: its highest counts as 0.85 of itself (4.7).
    #[test]
    fn fast_convergence_makes_room() {
        let mut cubic = RivalCubic { window: 1000.0, threshold: 1.0, ..RivalCubic::new() };
        cubic.on_loss(0, 1000);
        assert_eq!(cubic.most, 1000.0);
        cubic.window = 800.0;
        cubic.on_loss(0, 800);
        assert!((cubic.most - 680.0).abs() < 1e-9, "{}", cubic.most);
    }

    #[test]
    fn a_timeout_leaves_one_packet_and_slow_start_to_seven_tenths() {
        let mut cubic = RivalCubic { window: 100.0, threshold: 1.0, ..RivalCubic::new() };
        cubic.on_timeout(0);
        assert_eq!((cubic.window(), cubic.rate()), (1.0, None));
        (0..69).for_each(|_| cubic.on_ack(&ack(1)));
        assert!((cubic.window() - 70.0).abs() < 1e-9, "{}", cubic.window());
        cubic.on_ack(&ack(1));
        assert!(cubic.window() < 70.9, "{}", cubic.window());
    }

    #[test]
    fn cube_roots() {
        for value in [0.0, 1e-9, 0.5, 27.0, 7500.0, 1e12] {
            let root = cube_root(value);
            assert!((root * root * root - value).abs() <= value * 1e-9, "{value}: {root}");
        }
    }
}
