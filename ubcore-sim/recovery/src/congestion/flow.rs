//! What one TP has on the path, and the algorithm that bounds it.
//!
//! - owns: rounds, which losses are news, the pacer. takes: the ledger after each feedback. gives: whether a packet may
//!   be sent, the ledger's bound of what is on the path. must not: change anything else there.

use udma_abi::Nanos;

use super::{CongestionControl, Pacer, PathNews};
use crate::ledger::SendLedger;

/// Congestion control of one sender.
#[derive(Debug)]
pub(crate) struct PathControl {
    control: Box<dyn CongestionControl>,
    pacer: Pacer,
    /// Transmissions that had left the path, and packets that counted as lost, at the last feedback.
    resolved: u64,
    lost: u64,
    /// Losses of what was sent up to then are no news.
    reduced_at: Option<Nanos>,
    /// Transmissions by the begin of this round: once all of them left the path, it is over.
    round_end: u64,
    /// Most packets on the path in this round and the one before.
    flight_max: [u64; 2],
    /// Rounds whose losses count as none: they may be of what was on the path when the timer expired, and left it then.
    uncounted: u32,
}

/// Rounds after a timeout until all that was sent before it is acknowledged or reported.
const UNCOUNTED: u32 = 2;

impl PathControl {
    /// A flow that sent nothing; `ledger` is that of its packets.
    pub(crate) fn new(control: Box<dyn CongestionControl>, ledger: &mut SendLedger) -> Self {
        ledger.set_path_max(control.window().max(1));
        Self {
            control,
            pacer: Pacer::default(),
            resolved: 0,
            lost: 0,
            reduced_at: None,
            round_end: 0,
            flight_max: [0; 2],
            uncounted: 0,
        }
    }

    /// Most packets that may be on the path.
    pub(crate) fn window(&self) -> u64 {
        self.control.window().max(1)
    }

    /// Whether window and pacer let a packet go, as far as is known without the time.
    pub(crate) fn is_open(&self, ledger: &SendLedger) -> bool {
        !ledger.is_path_full() && self.pacer.blocked_until().is_none()
    }

    /// When the pacer lets the next packets go that the window lets.
    pub(crate) fn poll_deadline(&self, ledger: &SendLedger) -> Option<Nanos> {
        self.pacer.blocked_until().filter(|_| !ledger.is_path_full())
    }

    /// Whether a packet may leave at `now`.
    pub(crate) fn admits(&mut self, now: Nanos, ledger: &SendLedger) -> bool {
        !ledger.is_path_full() && self.pacer.admits(now)
    }

    /// A packet left; the ledger has it.
    pub(crate) fn on_sent(&mut self, now: Nanos, ledger: &SendLedger) {
        self.pacer.on_sent(now);
        self.flight_max[0] = self.flight_max[0].max(ledger.on_path());
    }

    /// Feedback came, and the ledger has it; `rtt` is that of the packet that it answers.
    pub(crate) fn on_feedback(&mut self, now: Nanos, rtt: Option<Nanos>, ledger: &mut SendLedger) {
        let resolved = ledger.spread.resolved();
        let lost = ledger.lost_count() - self.lost;
        self.lost += lost;
        let acked = (resolved - self.resolved).saturating_sub(lost);
        self.resolved = resolved;
        let is_round_over = resolved >= self.round_end && resolved > 0;
        let flight_max = self.flight_max[0].max(self.flight_max[1]);
        if is_round_over {
            self.round_end = ledger.spread.sent();
            self.flight_max = [ledger.on_path(), self.flight_max[0]];
        }
        let is_news = self.reduced_at.is_none_or(|at| at > now || ledger.lost_sent_at() > at);
        if lost > 0 && is_news {
            self.reduced_at = Some(now);
            self.control.on_loss(now);
        }
        let lost = if self.uncounted > 0 { 0 } else { lost };
        if is_round_over {
            self.uncounted = self.uncounted.saturating_sub(1);
        }
        self.control.on_news(&PathNews { now, acked, lost, rtt, flight_max, is_round_over });
        self.apply(ledger);
    }

    /// The timer expired; the ledger takes nothing for on the path any more.
    pub(crate) fn on_timeout(&mut self, now: Nanos, ledger: &mut SendLedger) {
        self.control.on_timeout(now);
        self.reduced_at = Some(now);
        self.resolved = ledger.spread.resolved();
        self.lost = ledger.lost_count();
        self.uncounted = UNCOUNTED;
        self.apply(ledger);
    }

    fn apply(&mut self, ledger: &mut SendLedger) {
        let window = self.window();
        ledger.set_path_max(window);
        self.pacer.set_rate(self.control.interval_ps(), window);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Keeps the news; its window, 64 unless another one is given, and rate never change.
    #[derive(Debug)]
    struct Listener(Arc<Mutex<Vec<PathNews>>>, u64);

    impl CongestionControl for Listener {
        fn on_news(&mut self, news: &PathNews) {
            self.0.lock().expect("the only thread").push(*news);
        }

        fn on_loss(&mut self, _now: Nanos) {}

        fn on_timeout(&mut self, _now: Nanos) {}

        fn window(&self) -> u64 {
            self.1
        }

        fn interval_ps(&self) -> u64 {
            0
        }
    }

    /// A round ends with the last packet that was on the path at its begin, and has the most packets of itself and the one
    /// before.
    #[test]
    fn a_round_is_over_when_all_that_was_on_the_path_left_it() {
        let seen = Arc::default();
        let mut ledger = SendLedger::new(64);
        let mut flow = PathControl::new(Box::new(Listener(Arc::clone(&seen), 64)), &mut ledger);
        let mut news_of = |sent: u64, received: u64| {
            for _ in 0..sent {
                ledger.push();
                ledger.send_next(1).expect("it waits");
                flow.on_sent(1, &ledger);
            }
            ledger.spread.prove(0, received);
            ledger.advance(received, |_, _| ());
            flow.on_feedback(2, None, &mut ledger);
            let news = seen.lock().expect("the only thread").pop().expect("one");
            (news.acked, news.flight_max, news.is_round_over)
        };
        assert_eq!(news_of(4, 0), (0, 4, false), "nothing left the path");
        assert_eq!(news_of(0, 1), (1, 4, true), "the first round is of one packet");
        assert_eq!(news_of(2, 3), (2, 5, false));
        assert_eq!(news_of(0, 4), (1, 5, true), "all four of the begin");
        assert_eq!(news_of(0, 5), (1, 5, false));
        assert_eq!(news_of(0, 6), (1, 5, true));
        assert_eq!(news_of(1, 7), (1, 2, true), "two at the begin of the round before");
        assert_eq!(news_of(1, 8), (1, 1, true));
    }

    /// Whatever the rule says, one packet may be on the path: otherwise nothing would ever come back.
    #[test]
    fn a_window_has_room_for_one_packet() {
        for (window, wanted) in [(0, 1), (1, 1), (2, 2)] {
            let mut ledger = SendLedger::new(64);
            let flow = PathControl::new(Box::new(Listener(Arc::default(), window)), &mut ledger);
            assert_eq!(flow.window(), wanted);
            (0..3).for_each(|_| ledger.push());
            for sent in 0..wanted {
                assert!(!ledger.is_path_full(), "{sent} of {wanted}");
                ledger.send_next(1).expect("it waits");
            }
            assert!(ledger.is_path_full() && !flow.is_open(&ledger));
        }
    }

    /// What was on the path when the timer expired left it then; its losses, which are reported later, would count as those
    /// of the few packets since.
    #[test]
    fn losses_of_what_the_timer_expired_for_do_not_count_as_those_of_later_packets() {
        let seen = Arc::default();
        let mut ledger = SendLedger::new(64);
        let mut flow = PathControl::new(Box::new(Listener(Arc::clone(&seen), 64)), &mut ledger);
        let send = |ledger: &mut SendLedger, flow: &mut PathControl, count: u64| {
            for _ in 0..count {
                ledger.push();
                ledger.send_next(1).expect("it waits");
                flow.on_sent(1, ledger);
            }
        };
        let news = |ledger: &mut SendLedger, flow: &mut PathControl, order, lost: u64| {
            assert!(ledger.mark_lost(lost));
            ledger.spread.leave(0, order);
            flow.on_feedback(2, None, ledger);
            let news = seen.lock().expect("the only thread").pop().expect("one");
            (news.acked, news.lost, news.is_round_over)
        };
        send(&mut ledger, &mut flow, 16);
        ledger.spread.leave_all();
        flow.on_timeout(2, &mut ledger);
        send(&mut ledger, &mut flow, 8);
        assert_eq!(news(&mut ledger, &mut flow, 17, 3), (0, 0, true), "lost before");
        assert_eq!(news(&mut ledger, &mut flow, 20, 4), (2, 0, false));
        assert_eq!(news(&mut ledger, &mut flow, 24, 16), (3, 0, true));
        send(&mut ledger, &mut flow, 8);
        assert_eq!(news(&mut ledger, &mut flow, 28, 24), (3, 1, true), "all since is counted");
    }

    /// Keeps what it is called for: losses and timeouts by their time, and the losses of each feedback.
    #[derive(Debug)]
    struct Calls(Arc<Mutex<Vec<(&'static str, u64)>>>);

    impl Calls {
        fn keep(&self, what: &'static str, value: u64) {
            self.0.lock().expect("the only thread").push((what, value));
        }
    }

    impl CongestionControl for Calls {
        fn on_news(&mut self, news: &PathNews) {
            self.keep("lost", news.lost);
        }

        fn on_loss(&mut self, now: Nanos) {
            self.keep("loss", now);
        }

        fn on_timeout(&mut self, now: Nanos) {
            self.keep("timeout", now);
        }

        fn window(&self) -> u64 {
            8
        }

        fn interval_ps(&self) -> u64 {
            0
        }
    }

    /// A loss is news once: not again for what was sent until then, unless the clock went back.
    #[test]
    fn a_loss_of_what_was_sent_before_the_last_one_is_no_news() {
        let calls = Arc::default();
        let mut ledger = SendLedger::new(64);
        let mut flow = PathControl::new(Box::new(Calls(Arc::clone(&calls))), &mut ledger);
        assert!(flow.is_open(&ledger) && flow.admits(1, &ledger));
        let send = |flow: &mut PathControl, ledger: &mut SendLedger, now| {
            if !ledger.has_sendable() {
                ledger.push();
            }
            let (seq, _) = ledger.send_next(now).expect("it waits");
            flow.on_sent(now, ledger);
            seq
        };
        let after = |flow: &mut PathControl, ledger: &mut SendLedger, now, lost: &[u64]| {
            lost.iter().for_each(|seq| assert!(ledger.mark_lost(*seq)));
            flow.on_feedback(now, None, ledger);
            std::mem::take(&mut *calls.lock().expect("the only thread"))
        };
        (0..4).for_each(|_| _ = send(&mut flow, &mut ledger, 10));
        let (flow, ledger) = (&mut flow, &mut ledger);
        assert_eq!(after(flow, ledger, 15, &[]), [("lost", 0)]);
        assert_eq!(after(flow, ledger, 20, &[0]), [("loss", 20), ("lost", 1)]);
        assert_eq!(after(flow, ledger, 30, &[1, 2]), [("lost", 2)], "it was sent before 20");
        assert_eq!(send(flow, ledger, 20), 0);
        assert_eq!(after(flow, ledger, 31, &[0]), [("lost", 1)], "it was sent at 20");
        assert_eq!(send(flow, ledger, 21), 1);
        assert_eq!(after(flow, ledger, 40, &[1]), [("loss", 40), ("lost", 1)]);
        assert_eq!(send(flow, ledger, 40), 2);
        assert_eq!(after(flow, ledger, 40, &[2]), [("lost", 1)]);
        assert_eq!(send(flow, ledger, 40), 0);
        assert_eq!(
            after(flow, ledger, 39, &[0]),
            [("loss", 39), ("lost", 1)],
            "the clock went back"
        );
        assert_eq!(send(flow, ledger, 45), 1);
        ledger.mark_all_lost(1);
        flow.on_timeout(50, ledger);
        let after_timeout = after(flow, ledger, 51, &[]);
        assert_eq!(after_timeout, [("timeout", 50), ("lost", 0)], "the timeout counted them");
        let again = send(flow, ledger, 50);
        assert_eq!(after(flow, ledger, 52, &[again]), [("lost", 0)], "it was sent at the timeout");
        let again = send(flow, ledger, 51);
        assert_eq!(after(flow, ledger, 53, &[again]), [("loss", 53), ("lost", 0)]);
        // A window that is used up is closed.
        while !ledger.is_path_full() {
            assert!(flow.is_open(ledger) && flow.admits(60, ledger));
            send(flow, ledger, 60);
        }
        assert_eq!(ledger.on_path(), 8);
        assert!(!flow.is_open(ledger) && !flow.admits(60, ledger));
    }
}
