//! Round-trip estimate and the retransmission timer.
//!
//! - owns: smoothed RTT, the backed-off timeout, the count of timeouts in a row.
//! - takes: RTT samples and times. gives: a deadline, or that the bound is reached.
//! - must not: read a clock.
//!
//! The estimate is that of RFC 6298 (srtt + max(G, 4 rttvar)), bounded by the configuration. Several samples in a round
//! trip let the variation go to 0 where it hardly varies, so G is not the granularity of a clock but the time by which an
//! answer may be later than those before without a loss, as in RFC 9002, 6.2.1.

use udma_abi::Nanos;

/// Bounds of the timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RtoCfg {
    /// Timeout before the first sample, in ns.
    pub initial_ns: Nanos,
    /// Least timeout, in ns; must exceed the peer's acknowledgement delay.
    pub min_ns: Nanos,
    /// Least time from the usual round trip to the timeout, in ns: an acknowledgement that waits for its delay, a peer
    /// that sleeps for a tick.
    pub margin_ns: Nanos,
    /// Most, also after backing off, in ns.
    pub max_ns: Nanos,
    /// Timeouts in a row after which the TP fails.
    pub retries: u32,
}

impl Default for RtoCfg {
    /// 10 ms at first, 2 ms to 500 ms, eight tries: a dead peer is known after 10, 20, .. 500, 500 and 500 ms, about
    /// 2.1 s in sum, and after about 1 s where the round trip was measured. A peer acknowledges within 0.2 ms and sleeps
    /// for up to 1 ms.
    fn default() -> Self {
        Self {
            initial_ns: 10_000_000,
            min_ns: 2_000_000,
            margin_ns: 1_500_000,
            max_ns: 500_000_000,
            retries: 8,
        }
    }
}

/// Round-trip estimate and retransmission timer of one sender.
#[derive(Debug)]
pub struct RtoTimer {
    cfg: RtoCfg,
    /// Smoothed RTT and its variation; `None` before the first sample.
    smoothed: Option<(Nanos, Nanos)>,
    rtt_min: Nanos,
    timeouts: u32,
    deadline: Option<Nanos>,
    /// When the timer began to run towards its deadline, and the sum of the times that it ran before, since
    /// [`RtoTimer::forget_waited`].
    since: Nanos,
    waited: Nanos,
    /// What was sent up to the time of the latest expiry, and whether a sample of it was taken.
    doubtful: Option<(Nanos, Sampled)>,
    /// A sample was taken since the latest expiry.
    is_sampled: bool,
    /// The latest expiry came without a sample since the one before, and is not answered yet.
    is_unanswered: bool,
    /// Such expiries that were answered, since the last sample: each doubles the timeout. It may be shorter than the path,
    /// so that all packets are sent twice and none is a sample.
    unsampled: u32,
}

impl RtoTimer {
    /// A timer that does not run.
    #[must_use]
    pub const fn new(cfg: RtoCfg) -> Self {
        Self {
            cfg,
            smoothed: None,
            rtt_min: Nanos::MAX,
            timeouts: 0,
            deadline: None,
            since: 0,
            waited: 0,
            doubtful: None,
            is_sampled: false,
            is_unanswered: false,
            unsampled: 0,
        }
    }

    /// The packet that was sent once, at `sent_at`, is acknowledged at `now`. What was out when the
    /// timer expired measures how long the peer was silent (stopped, cut off) as well as the path: all
    /// of it together at most doubles the timeout. No sample counts as more than the longest timeout: the clock may have
    /// jumped.
    ///
    /// Returns the sample; none when it says nothing of the path, or counts for less than it is.
    pub fn on_sample(&mut self, sent_at: Nanos, now: Nanos) -> Option<Nanos> {
        let rtt = now.checked_sub(sent_at)?;
        self.rtt_min = self.rtt_min.min(rtt);
        let counted = match &mut self.doubtful {
            Some((until, sampled)) if sent_at <= *until => match sampled {
                Sampled::Yes => return None,
                Sampled::No => {
                    *sampled = Sampled::Yes;
                    rtt.min(self.base().saturating_mul(2))
                }
            },
            _ => {
                (self.is_sampled, self.is_unanswered, self.unsampled) = (true, false, 0);
                rtt.min(self.cfg.max_ns)
            }
        };
        self.smoothed = Some(match self.smoothed {
            None => (counted, counted / 2),
            Some((srtt, var)) => {
                let var = (var / 4 * 3).saturating_add(srtt.abs_diff(counted) / 4);
                ((srtt / 8 * 7).saturating_add(counted / 8), var)
            }
        });
        (counted == rtt).then_some(rtt)
    }

    /// Something was sent: runs if it did not.
    pub fn on_sent(&mut self, now: Nanos) {
        if self.deadline.is_none() {
            self.restart(now);
            self.waited = 0;
        }
    }

    /// What is the oldest packet now was not waited for until now.
    pub fn forget_waited(&mut self) {
        self.waited = 0;
    }

    /// How long this ran for the packet that is the oldest one, up to the last time that it began anew, in ns. No run
    /// counts as longer than its timeout: the clock may have jumped.
    pub const fn waited(&self) -> Nanos {
        self.waited
    }

    /// The peer took something: the count starts over; runs on only while something is out.
    pub fn on_progress(&mut self, now: Nanos, in_flight: Waiting) {
        self.timeouts = 0;
        self.unsampled += u32::from(std::mem::take(&mut self.is_unanswered));
        match in_flight {
            Waiting::Yes => self.restart(now),
            Waiting::No => self.deadline = None,
        }
    }

    /// Something came from the peer: it is there, so the wait between two tries need not grow, and
    /// those made while it was silent do not count.
    pub fn on_received(&mut self, now: Nanos) {
        if self.timeouts > 0 {
            self.timeouts = 0;
            let later = self.deadline;
            self.restart(now);
            self.deadline = self.deadline.min(later);
        }
    }

    /// Whether the deadline passed; the timeout then doubles. `Err` when it was the last one.
    pub fn on_time(&mut self, now: Nanos) -> Result<Expired, Exhausted> {
        if self.deadline.is_none_or(|deadline| now < deadline) {
            return Ok(Expired::No);
        }
        if self.timeouts >= self.cfg.retries {
            return Err(Exhausted);
        }
        self.timeouts += 1;
        self.doubtful = Some((now, Sampled::No));
        self.is_unanswered = !std::mem::take(&mut self.is_sampled) && self.smoothed.is_none();
        self.restart(now);
        Ok(Expired::Yes)
    }

    /// Time after which a silent peer is given up, from what is sent now on, in ns.
    pub fn patience(&self) -> Nanos {
        let waits = (0..=self.cfg.retries).map(|doubled| self.wait(doubled));
        waits.fold(0, Nanos::saturating_add)
    }

    /// Smoothed round-trip time, in ns.
    pub fn rtt(&self) -> Option<Nanos> {
        self.smoothed.map(|(smoothed, _)| smoothed)
    }

    /// Timeouts in a row after which the peer is given up.
    pub const fn retries(&self) -> u32 {
        self.cfg.retries
    }

    /// When it expires, if it runs.
    #[must_use]
    pub const fn deadline(&self) -> Option<Nanos> {
        self.deadline
    }

    /// Least RTT seen, in ns; `Nanos::MAX` before the first sample.
    pub const fn rtt_min(&self) -> Nanos {
        self.rtt_min
    }

    /// Timeout without backing off, in ns.
    fn base(&self) -> Nanos {
        let measured = self.smoothed.map_or(self.cfg.initial_ns, |(srtt, var)| {
            let margin = var.saturating_mul(4).max(self.cfg.margin_ns);
            srtt.saturating_add(margin).max(self.cfg.min_ns)
        });
        measured.saturating_mul(1 << self.unsampled.min(UNSAMPLED_MAX))
    }

    /// Timeout after so many in a row, in ns.
    fn wait(&self, timeouts: u32) -> Nanos {
        self.base().saturating_mul(1 << timeouts.min(32)).min(self.cfg.max_ns)
    }

    fn restart(&mut self, now: Nanos) {
        let span = self.deadline.map_or(0, |deadline| deadline.saturating_sub(self.since));
        self.waited = self.waited.saturating_add(now.saturating_sub(self.since).min(span));
        self.since = now;
        self.deadline = Some(now.saturating_add(self.wait(self.timeouts)));
    }
}

/// Most doublings for want of a sample: to ten seconds where the timeout is the initial one.
const UNSAMPLED_MAX: u32 = 10;

/// Whether packets are out that the peer may lack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waiting {
    /// Some are: the timer runs on.
    Yes,
    /// None is: the timer stops.
    No,
}

/// Whether the timer expired.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expired {
    /// It expired, and runs again.
    Yes,
    /// It does not run, or its time has not come.
    No,
}

/// Whether a sample of what was out at an expiry was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sampled {
    Yes,
    No,
}

/// Too many timeouts in a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exhausted;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_comes_back_is_not_kept_waiting_by_the_backoff() {
        let cfg = RtoCfg::default();
        let mut timer = RtoTimer::new(cfg);
        let mut now = 0;
        timer.on_sent(now);
        for _ in 0..cfg.retries {
            now = timer.deadline().expect("something is out");
            assert_eq!(timer.on_time(now), Ok(Expired::Yes));
        }
        assert_eq!(timer.deadline(), Some(now + cfg.max_ns));
        timer.on_received(now + 1);
        assert_eq!(timer.deadline(), Some(now + 1 + cfg.initial_ns));
        // More of the peer's packets do not put the try off.
        timer.on_received(now + 2);
        assert_eq!(timer.deadline(), Some(now + 1 + cfg.initial_ns));
        // The tries before do not count.
        assert_eq!(timer.on_time(now + 1 + cfg.initial_ns), Ok(Expired::Yes));
    }

    #[test]
    fn a_round_trip_that_never_varies_leaves_time_for_a_late_answer() {
        let cfg = RtoCfg::default();
        for rtt in [1_000_000, 10_000_000, 100_000_000] {
            let mut timer = RtoTimer::new(cfg);
            let mut now = 0;
            for _ in 0..1000 {
                timer.on_sent(now);
                timer.on_sample(now, now + rtt);
                now += rtt;
                timer.on_progress(now, Waiting::No);
            }
            timer.on_sent(now);
            assert_eq!(timer.on_time(now + rtt + cfg.margin_ns - 1), Ok(Expired::No));
            // It is late by no more than that.
            let latest = now + (rtt + cfg.margin_ns).max(cfg.min_ns) + rtt / 100;
            assert!(timer.deadline() <= Some(latest), "{rtt}: {:?}, {latest}", timer.deadline());
        }
    }

    #[test]
    fn silence_of_a_stopped_peer_is_no_round_trip() {
        let mut timer = RtoTimer::new(RtoCfg::default());
        timer.on_sample(0, 100_000);
        timer.on_sent(200_000);
        let expiry = timer.deadline().expect("something is out");
        assert_eq!(timer.on_time(expiry), Ok(Expired::Yes));
        // Packets that were out are acknowledged two seconds later.
        for _ in 0..64 {
            timer.on_sample(200_000, 2_000_000_000);
        }
        timer.on_progress(2_000_000_000, Waiting::Yes);
        let wait = timer.deadline().expect("runs on") - 2_000_000_000;
        assert!(wait <= 2 * RtoCfg::default().initial_ns, "{wait} ns");
        // A path that became slower is measured by what is sent from then on.
        for at in 3..40 {
            timer.on_sample(at * SECOND, at * SECOND + 100_000_000);
        }
        timer.on_progress(50 * SECOND, Waiting::Yes);
        assert!(timer.deadline() > Some(50 * SECOND + 100_000_000));
    }

    /// Congestion control would take it for the path without queues.
    #[test]
    fn a_sample_that_counts_for_less_is_none_of_the_path() {
        let cfg = RtoCfg::default();
        let mut timer = RtoTimer::new(cfg);
        timer.on_sent(0);
        assert_eq!(timer.on_time(cfg.initial_ns), Ok(Expired::Yes));
        let far = 3 * cfg.initial_ns;
        assert_eq!(timer.on_sample(0, far), None);
        assert_eq!((timer.rtt(), timer.rtt_min()), (Some(2 * cfg.initial_ns), far));
        assert_eq!(timer.on_sample(far, 2 * far), Some(far), "it was sent later");
    }

    #[test]
    fn waiting_counts_all_runs_and_of_a_clock_that_jumps_a_timeout() {
        let cfg = RtoCfg::default();
        let mut timer = RtoTimer::new(cfg);
        timer.on_sent(0);
        assert_eq!(timer.on_time(cfg.initial_ns), Ok(Expired::Yes));
        // The peer is there: the second run ends before its time.
        timer.on_received(cfg.initial_ns + 3);
        assert_eq!(timer.waited(), cfg.initial_ns + 3);
        assert_eq!(timer.on_time(3600 * SECOND), Ok(Expired::Yes));
        assert_eq!(timer.waited(), 2 * cfg.initial_ns + 3);
        timer.on_progress(3600 * SECOND, Waiting::No);
        timer.on_sent(3700 * SECOND);
        assert_eq!(timer.waited(), 0);
    }

    /// On a path of 100 ms all packets are sent again before an answer can be there.
    #[test]
    fn a_timeout_below_the_round_trip_grows_until_a_sample_is_taken() {
        let cfg = RtoCfg::default();
        let mut timer = RtoTimer::new(cfg);
        let mut now = 0;
        for cycle in 0..4 {
            timer.on_sent(now);
            let wait = timer.deadline().expect("runs") - now;
            assert_eq!(wait, cfg.initial_ns << cycle);
            now += wait;
            assert_eq!(timer.on_time(now), Ok(Expired::Yes));
            // Several packets that were sent twice.
            timer.on_progress(now + 1, Waiting::Yes);
            timer.on_progress(now + 2, Waiting::No);
        }
        timer.on_sent(now);
        assert_eq!(timer.deadline(), Some(now + 16 * cfg.initial_ns), "longer than the path");
        assert_eq!(timer.on_sample(now + 1, now + 100_000_001), Some(100_000_000));
        timer.on_progress(now, Waiting::Yes);
        assert_eq!(timer.deadline(), Some(now + 300_000_000), "of the sample alone");
    }

    /// RFC 6298, 2: of 10 ms and 20 ms the mean is 11.25 ms, and the variation 3.75 + 2.5 ms.
    #[test]
    fn the_timeout_is_the_mean_and_four_times_the_variation() {
        let cfg = RtoCfg { margin_ns: 0, min_ns: 0, ..RtoCfg::default() };
        let mut timer = RtoTimer::new(cfg);
        assert_eq!(timer.on_sample(0, 10_000_000), Some(10_000_000));
        timer.on_sent(0);
        assert_eq!(timer.deadline(), Some(30_000_000), "half of the first one is its variation");
        timer.on_progress(0, Waiting::No);
        timer.on_sample(100_000_000, 120_000_000);
        timer.on_sent(0);
        assert_eq!(timer.deadline(), Some(36_250_000));
        assert_eq!((timer.rtt(), timer.rtt_min()), (Some(11_250_000), 10_000_000));
    }

    #[test]
    fn the_wait_doubles_up_to_its_bound_and_progress_ends_that() {
        let cfg = RtoCfg::default();
        let mut timer = RtoTimer::new(cfg);
        timer.on_sent(0);
        let (mut now, mut waits) = (0, Vec::new());
        for _ in 0..cfg.retries {
            let deadline = timer.deadline().expect("runs");
            assert_eq!(timer.on_time(deadline - 1), Ok(Expired::No), "not before its time");
            assert_eq!(timer.on_time(deadline), Ok(Expired::Yes));
            waits.push((deadline - now) / 1_000_000);
            now = deadline;
        }
        assert_eq!(waits, [10, 20, 40, 80, 160, 320, 500, 500]);
        timer.on_progress(now, Waiting::Yes);
        assert_eq!(timer.deadline(), Some(now + 2 * cfg.initial_ns));
        // As many tries again.
        for _ in 0..cfg.retries {
            assert_eq!(timer.on_time(timer.deadline().expect("runs")), Ok(Expired::Yes));
        }
        assert_eq!(timer.on_time(timer.deadline().expect("runs")), Err(Exhausted));
    }

    #[test]
    fn a_sign_of_life_does_not_put_a_try_off() {
        let cfg = RtoCfg::default();
        let mut timer = RtoTimer::new(cfg);
        timer.on_sent(0);
        assert_eq!(timer.on_time(cfg.initial_ns), Ok(Expired::Yes));
        // The next try is due after 20 ms more; 1 ms before that the peer sends something.
        let due = 3 * cfg.initial_ns;
        timer.on_received(due - 1_000_000);
        assert_eq!(timer.deadline(), Some(due));
    }

    const SECOND: Nanos = 1_000_000_000;
}
