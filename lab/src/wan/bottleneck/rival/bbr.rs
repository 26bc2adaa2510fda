//! BBR as a rival has it: version 1, after Cardwell et al. (ACM Queue 14, 2016) and draft-cardwell-iccrg-bbr-congestion-control-00.
//!
//! - owns: the model of the path: greatest delivery rate, least round-trip time; the phase. takes: acknowledgements.
//! - gives: window and rate. must not: follow losses.
//!
//! Left out: the bound of the window while losses are repaired, token-bucket policers, flows with too little to send, and
//! bursts of offload. Where the draft draws the first phase of the cycle by chance, it is the third one here.

use std::collections::VecDeque;

use super::{RivalControl, RivalNews};

/// 2 / ln 2: the rate doubles per round trip.
const GAIN_STARTUP: f64 = 2.885;
const GAIN_WINDOW: f64 = 2.0;
/// Gains of the rate, one for each least round-trip time.
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
/// Rounds that the greatest rate is of.
const RATE_ROUNDS: u64 = 10;
/// Growth of the rate that shows that the path is not full, and rounds without it that show that it is.
const FULL_GROWTH: f64 = 1.25;
const FULL_ROUNDS: u32 = 3;
/// The least round-trip time is measured again after this time, with four packets on the path for that long.
const RTT_AGE_NS: u64 = 10_000_000_000;
const PROBE_RTT_NS: u64 = 200_000_000;
const WINDOW_LEAST: f64 = 4.0;
const WINDOW_FIRST: f64 = 10.0;

/// What BBR does with its rate and window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum BbrPhase {
    /// The rate doubles per round trip.
    Startup,
    /// What startup left in the queue leaves it.
    Drain,
    /// The rate is probed; this gain of the cycle since then.
    ProbeRate { at: usize, since: u64 },
    /// Four packets are on the path, since then; whether a round began and ended meanwhile.
    ProbeRtt { since: Option<u64>, is_round_over: bool },
}

/// Model of the path and phase of a rival.
#[derive(Debug)]
pub(super) struct Bbr {
    phase: BbrPhase,
    window: f64,
    /// Rates in packets a second with their rounds, each less than the one before.
    rates: VecDeque<(u64, f64)>,
    round: u64,
    /// Least round-trip time in ns, and when it was measured.
    rtt: Option<(u64, u64)>,
    /// Greatest rate at which the path did not look full, and rounds since then.
    full: (f64, u32),
    is_full: bool,
    /// Window before the round-trip time was measured.
    prior: f64,
}

impl Bbr {
    /// Ten packets in startup.
    pub(super) const fn new() -> Self {
        Self {
            phase: BbrPhase::Startup,
            window: WINDOW_FIRST,
            rates: VecDeque::new(),
            round: 0,
            rtt: None,
            full: (0.0, 0),
            is_full: false,
            prior: 0.0,
        }
    }

    fn greatest_rate(&self) -> f64 {
        self.rates.front().map_or(0.0, |(_, rate)| *rate)
    }

    /// Packets of a bandwidth-delay product by the model.
    fn product(&self) -> f64 {
        self.rtt.map_or(0.0, |(least, _)| self.greatest_rate() * least as f64 / 1e9)
    }

    fn note_rate(&mut self, rate: f64) {
        while self.rates.back().is_some_and(|(_, known)| *known <= rate) {
            self.rates.pop_back();
        }
        self.rates.push_back((self.round, rate));
        while self.rates.front().is_some_and(|(round, _)| round + RATE_ROUNDS <= self.round) {
            self.rates.pop_front();
        }
    }

    fn look_if_full(&mut self) {
        let (rate, rounds) = self.full;
        if self.greatest_rate() >= rate * FULL_GROWTH {
            self.full = (self.greatest_rate(), 0);
        } else {
            self.full = (rate, rounds + 1);
            self.is_full = rounds + 1 >= FULL_ROUNDS;
        }
    }

    fn next_phase(&mut self, news: &RivalNews) {
        let product = self.product();
        let flight = news.flight as f64;
        let least = self.rtt.map_or(0, |(least, _)| least);
        match self.phase {
            BbrPhase::Startup if self.is_full => self.phase = BbrPhase::Drain,
            BbrPhase::Drain if flight <= product => {
                self.phase = BbrPhase::ProbeRate { at: 2, since: news.now };
            }
            BbrPhase::ProbeRate { at, since } => {
                let is_long = news.now - since > least;
                let gain = CYCLE[at];
                let is_over = if gain > 1.0 {
                    is_long && (news.lost > 0 || flight >= gain * product)
                } else if gain < 1.0 {
                    is_long || flight <= product
                } else {
                    is_long
                };
                if is_over {
                    self.phase =
                        BbrPhase::ProbeRate { at: (at + 1) % CYCLE.len(), since: news.now };
                }
            }
            BbrPhase::ProbeRtt { since: None, .. } if flight <= WINDOW_LEAST => {
                self.phase = BbrPhase::ProbeRtt { since: Some(news.now), is_round_over: false };
            }
            BbrPhase::ProbeRtt { since: Some(since), is_round_over } => {
                let is_round_over = is_round_over || news.is_round_over;
                self.phase = BbrPhase::ProbeRtt { since: Some(since), is_round_over };
                if is_round_over && news.now - since >= PROBE_RTT_NS {
                    self.rtt = Some((least, news.now));
                    self.window = self.window.max(self.prior);
                    self.phase = if self.is_full {
                        BbrPhase::ProbeRate { at: 2, since: news.now }
                    } else {
                        BbrPhase::Startup
                    };
                }
            }
            BbrPhase::Startup | BbrPhase::Drain | BbrPhase::ProbeRtt { .. } => {}
        }
    }

    const fn window_gain(&self) -> f64 {
        match self.phase {
            BbrPhase::Startup | BbrPhase::Drain => GAIN_STARTUP,
            BbrPhase::ProbeRate { .. } | BbrPhase::ProbeRtt { .. } => GAIN_WINDOW,
        }
    }

    const fn rate_gain(&self) -> f64 {
        match self.phase {
            BbrPhase::Startup => GAIN_STARTUP,
            BbrPhase::Drain => 1.0 / GAIN_STARTUP,
            BbrPhase::ProbeRate { at, .. } => CYCLE[at],
            BbrPhase::ProbeRtt { .. } => 1.0,
        }
    }

    fn set_window(&mut self) {
        if matches!(self.phase, BbrPhase::ProbeRtt { .. }) {
            return;
        }
        let target = self.window_gain() * self.product();
        if self.is_full {
            self.window = (self.window + 1.0).min(target);
        } else if self.window < target {
            self.window += 1.0;
        }
        self.window = self.window.max(WINDOW_LEAST);
    }
}

impl RivalControl for Bbr {
    fn on_ack(&mut self, news: &RivalNews) {
        self.round += u64::from(news.is_round_over);
        self.note_rate(news.rate);
        let is_old = self.rtt.is_some_and(|(_, at)| news.now > at + RTT_AGE_NS);
        if is_old || self.rtt.is_none_or(|(least, _)| news.rtt <= least) {
            self.rtt = Some((news.rtt, news.now));
        }
        if news.is_round_over && !self.is_full {
            self.look_if_full();
        }
        if is_old && !matches!(self.phase, BbrPhase::ProbeRtt { .. }) {
            self.prior = self.window;
            self.phase = BbrPhase::ProbeRtt { since: None, is_round_over: false };
        }
        self.next_phase(news);
        self.set_window();
    }

    fn on_loss(&mut self, _now: u64, _flight: u64) {}

    fn on_timeout(&mut self, _now: u64) {
        self.window = WINDOW_LEAST;
    }

    fn window(&self) -> f64 {
        if matches!(self.phase, BbrPhase::ProbeRtt { .. }) { WINDOW_LEAST } else { self.window }
    }

    fn rate(&self) -> Option<f64> {
        let rate = self.greatest_rate();
        (rate > 0.0).then(|| self.rate_gain() * rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const NEWS: RivalNews =
        RivalNews { now: 0, rtt: 20 * MS, rate: 1000.0, flight: 20, lost: 0, is_round_over: true };

    /// A model of 1,000 packets a second and 20 ms: a product of 20 packets.
    fn steady() -> Bbr {
        let mut bbr = Bbr::new();
        for round in 0..6 {
            bbr.on_ack(&RivalNews { now: round * 20 * MS, ..NEWS });
        }
        assert!(matches!(bbr.phase, BbrPhase::ProbeRate { at: 2, .. }), "{:?}", bbr.phase);
        bbr
    }

    #[test]
    fn startup_ends_after_three_rounds_without_a_quarter_more() {
        let mut bbr = Bbr::new();
        for (round, rate) in [100.0, 200.0, 260.0, 320.0, 320.0, 399.0].into_iter().enumerate() {
            bbr.on_ack(&RivalNews { rate, now: round as u64 * MS, flight: 1000, ..NEWS });
            assert_eq!(bbr.phase, BbrPhase::Startup, "{round}");
            assert!((bbr.rate().expect("one") - 2.885 * bbr.greatest_rate()).abs() < 1e-9);
        }
        // 260 is no quarter more than 200 and a half; 320 is less than 325, 399 more.
        assert_eq!(bbr.full, (399.0, 0));
        for _ in 0..3 {
            assert_eq!(bbr.phase, BbrPhase::Startup);
            bbr.on_ack(&RivalNews { rate: 400.0, flight: 1000, ..NEWS });
        }
        assert_eq!(bbr.phase, BbrPhase::Drain);
        assert!((bbr.rate().expect("one") - 400.0 / 2.885).abs() < 1e-9);
        // 400 packets a second for 20 ms are 8.
        bbr.on_ack(&RivalNews { rate: 400.0, flight: 9, ..NEWS });
        assert_eq!(bbr.phase, BbrPhase::Drain);
        bbr.on_ack(&RivalNews { rate: 400.0, flight: 8, ..NEWS });
        assert!(matches!(bbr.phase, BbrPhase::ProbeRate { .. }));
    }

    #[test]
    fn the_cycle_has_eight_phases_of_a_round_trip() {
        let mut bbr = steady();
        let (mut now, mut gains) = (200 * MS, Vec::new());
        for _ in 0..16 {
            now += 21 * MS;
            bbr.on_ack(&RivalNews { now, flight: 25, ..NEWS });
            gains.push(bbr.rate().expect("one") / 1000.0);
        }
        let wanted = [1.0, 1.0, 1.0, 1.0, 1.0, 1.25, 0.75, 1.0];
        assert_eq!(gains[..8], wanted);
        assert_eq!(gains[8..], wanted);
        // A probe lasts until a quarter more is on the path, or something is lost; a drain until the product is.
        let mut bbr = Bbr { phase: BbrPhase::ProbeRate { at: 0, since: 0 }, ..steady() };
        for (flight, lost, at) in [(24, 0, 0), (25, 0, 1), (21, 0, 1), (20, 0, 2)] {
            let now = if at == 2 { 500 * MS + 1 } else { 500 * MS };
            bbr.on_ack(&RivalNews { now, flight, lost, ..NEWS });
            assert!(matches!(bbr.phase, BbrPhase::ProbeRate { at: found, .. } if found == at));
        }
        bbr.phase = BbrPhase::ProbeRate { at: 0, since: 0 };
        bbr.on_ack(&RivalNews { now: 500 * MS, flight: 1, lost: 1, ..NEWS });
        assert!(matches!(bbr.phase, BbrPhase::ProbeRate { at: 1, .. }));
    }

    #[test]
    fn two_products_may_be_on_the_path() {
        let mut bbr = steady();
        for number in 0..100 {
            bbr.on_ack(&RivalNews { now: 120 * MS + number, is_round_over: false, ..NEWS });
        }
        assert!((bbr.window() - 40.0).abs() < 1e-9, "{}", bbr.window());
    }

    #[test]
    fn the_greatest_rate_is_of_ten_rounds() {
        let mut bbr = Bbr::new();
        bbr.note_rate(500.0);
        for round in 1..10 {
            bbr.round = round;
            bbr.note_rate(100.0 + round as f64);
            assert_eq!(bbr.greatest_rate(), 500.0, "{round}");
        }
        bbr.round = 10;
        bbr.note_rate(50.0);
        assert_eq!(bbr.greatest_rate(), 109.0);
    }

    /// 10 s without a sample as short as the least: four packets, 200 ms from when no more are on the path, and a round.
    #[test]
    fn the_least_round_trip_is_measured_again_after_ten_seconds() {
        let mut bbr = steady();
        let begin = 100 * MS;
        let long = RivalNews { rtt: 30 * MS, ..NEWS };
        bbr.on_ack(&RivalNews { now: begin + RTT_AGE_NS, ..long });
        assert!(matches!(bbr.phase, BbrPhase::ProbeRate { .. }));
        let now = begin + RTT_AGE_NS + 1;
        bbr.on_ack(&RivalNews { now, ..long });
        assert_eq!((bbr.window(), bbr.rate()), (4.0, Some(1000.0)));
        bbr.on_ack(&RivalNews { now: now + MS, flight: 4, rtt: 22 * MS, ..NEWS });
        bbr.on_ack(&RivalNews { now: now + 200 * MS, flight: 4, rtt: 22 * MS, ..NEWS });
        assert_eq!(bbr.window(), 4.0, "199 ms");
        bbr.on_ack(&RivalNews { now: now + 201 * MS, flight: 4, rtt: 23 * MS, ..NEWS });
        assert_eq!(bbr.rtt, Some((22 * MS, now + 201 * MS)));
        assert!(bbr.window() >= bbr.prior && bbr.prior > 10.0, "{}", bbr.window());
    }
}
