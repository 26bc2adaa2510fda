//! The sending half of a TP in sequence numbers.
//!
//! - owns: the ledger, the strategy's choice of what is lost, timer.
//! - takes: queued packets, acknowledgements, loss reports, time. gives: what to send, deadlines.
//! - must not: hold bytes, know packet formats.

use udma_abi::Nanos;

use crate::congestion::{CongestionChoice, PathControl};
use crate::ledger::{Fate, LedgerSlot, SendLedger};
use crate::repair::RepairMark;
use crate::report::{AckFeedback, LossReport, TailMark};
use crate::spread::SPREAD_MAX;
use crate::strategy::{AckNews, Recovery, Retransmission};
use crate::timer::{Exhausted, Expired, RtoCfg, RtoTimer, Waiting};

/// What a sender is made from.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SenderCfg {
    /// Most packets between the oldest that the peer may lack and the newest.
    pub window_packets: u32,
    /// How losses are repaired.
    pub recovery: Recovery,
    /// Bounds of the retransmission timer.
    pub rto: RtoCfg,
    /// What bounds the packets on the path beside the window.
    pub congestion: CongestionChoice,
}

/// Counts of one sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SenderStats {
    /// Packets sent for the first time.
    pub sent: u64,
    /// Transmissions beyond the first of a packet.
    pub sent_again: u64,
    /// Number of times that the retransmission timer ran out.
    pub timeouts: u64,
}

/// A packet to put on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sending {
    /// Sequence of the packet.
    pub seq: u64,
    /// Number of the route that it takes.
    pub route: u8,
    /// Which transmission of it this is; 1 is the first one.
    pub attempt: u16,
    /// Tier and ticket of the report that it answers; 0 for a first transmission.
    pub answers: (u8, u32),
}

impl Sending {
    /// Whether the packet was sent before.
    #[must_use]
    pub const fn is_again(&self) -> bool {
        self.attempt > 1
    }
}

/// The peer acknowledged or missed what was never sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the feedback names packets that were never sent")]
pub struct NeverSent;

/// Send window, strategy and timer of one direction of a TP.
#[derive(Debug)]
pub struct TpSender {
    ledger: SendLedger,
    strategy: Box<dyn Retransmission>,
    timer: RtoTimer,
    /// The edge of the last gap that was answered: a network may double an acknowledgement.
    gap_answered: Option<u64>,
    /// The packet to send again at once, and how often.
    copies: Option<(u64, u8)>,
    /// Congestion control, if there is any.
    flow: Option<Box<PathControl>>,
    stats: SenderStats,
}

impl TpSender {
    /// A sender that sent nothing yet.
    #[must_use]
    pub fn new(cfg: &SenderCfg) -> Self {
        Self::with_strategy(cfg, cfg.recovery.retransmission())
    }

    /// As [`TpSender::new`], with a strategy of any kind.
    #[must_use]
    pub fn with_strategy(cfg: &SenderCfg, strategy: Box<dyn Retransmission>) -> Self {
        let mut ledger = SendLedger::new(cfg.window_packets);
        let control = cfg.congestion.control();
        let flow = control.map(|control| Box::new(PathControl::new(control, &mut ledger)));
        Self {
            ledger,
            strategy,
            timer: RtoTimer::new(cfg.rto),
            gap_answered: None,
            copies: None,
            flow,
            stats: SenderStats::default(),
        }
    }

    /// Packets that the peer may lack.
    #[must_use]
    pub const fn ledger(&self) -> &SendLedger {
        &self.ledger
    }

    /// Round-trip estimate and timeouts.
    #[must_use]
    pub const fn timer(&self) -> &RtoTimer {
        &self.timer
    }

    /// Counts since it was made.
    #[must_use]
    pub const fn stats(&self) -> SenderStats {
        self.stats
    }

    /// Most packets that congestion control lets be on the path, if there is any.
    #[must_use]
    pub fn congestion_window(&self) -> Option<u64> {
        self.flow.as_ref().map(|flow| flow.window())
    }

    /// At most `packets` are on the path from now on where no congestion control bounds them. A window may span more: those
    /// that wait behind a gap are no longer on it.
    pub fn bound_path(&mut self, packets: u32) {
        let packets = u64::from(packets.max(1));
        if self.flow.is_none() && packets < self.ledger.limit() {
            self.ledger.set_path_max(packets);
        }
    }

    /// Whether no packet may go before others leave the path.
    #[must_use]
    pub fn is_path_full(&self) -> bool {
        self.ledger.is_path_full()
    }

    /// Takes the next place of the window; the caller has seen that there is one.
    pub fn push(&mut self) {
        self.ledger.push();
    }

    /// Whether [`TpSender::poll`] would give a packet without any timer.
    #[must_use]
    pub fn has_sendable(&self) -> bool {
        let is_open = match &self.flow {
            Some(flow) => flow.is_open(&self.ledger),
            None => !self.ledger.is_path_full(),
        };
        self.has_any() && is_open
    }

    /// The next packet to send at `now`.
    pub fn poll(&mut self, now: Nanos) -> Option<Sending> {
        if !self.admits(now) {
            return None;
        }
        let copy = self.next_copy();
        let (seq, slot) = match copy {
            Some(seq) => (seq, self.ledger.send_again(seq, now)),
            None => self.ledger.send_next(now)?,
        };
        let attempt = slot.transmissions();
        if attempt > 1 && copy.is_none() {
            let copies = self.strategy.copies(&self.ledger) - 1;
            self.copies = (copies > 0).then_some((seq, copies));
        }
        let count = if attempt > 1 { &mut self.stats.sent_again } else { &mut self.stats.sent };
        *count += 1;
        self.on_sent(now);
        let (route, _) = slot.transmission();
        Some(Sending { seq, route, attempt, answers: slot.reported() })
    }

    /// The next packet that was never sent, which nothing goes before. It counts as sent at `now`.
    pub fn poll_new(&mut self, now: Nanos) -> Option<u64> {
        if self.copies.is_some() || !self.admits(now) {
            return None;
        }
        let seq = self.ledger.send_new(now)?;
        self.stats.sent += 1;
        self.on_sent(now);
        Some(seq)
    }

    /// Packets take these routes from now on, a bit for each, of [`SPREAD_MAX`]; so many packets in a row take the same
    /// one.
    pub fn set_routes(&mut self, usable: u8, run_packets: u32) {
        self.ledger.spread.set_usable(usable, run_packets);
    }

    /// Timeouts of packets that took this route, since something that took it was received.
    #[must_use]
    pub fn expired(&self, route: u8) -> u32 {
        self.ledger.spread.expired(route)
    }

    /// The route carries packets after all.
    pub fn forgive(&mut self, route: u8) {
        self.ledger.spread.forgive(route);
    }

    /// The route carries nothing: what was sent by it goes again by others.
    pub fn fail_route(&mut self, route: u8) {
        self.ledger.mark_route_lost(route);
    }

    /// The next repair packet, when nothing else can be sent.
    pub fn poll_repair(&mut self, now: Nanos) -> Option<RepairMark> {
        if self.ledger.has_sendable() || !self.admits(now) {
            return None;
        }
        let rtt = self.timer.rtt();
        let mark = self.strategy.poll_repair(now, rtt, &self.ledger)?;
        if let Some(flow) = &mut self.flow {
            flow.on_sent(now, &self.ledger);
        }
        Some(mark)
    }

    /// Protects what is sent last by repair packets, if the strategy has such; the path is expected to lose that part
    /// until this sender has measured it.
    pub fn protect_tail(&mut self, loss: f64) {
        self.strategy.protect_tail(loss);
    }

    /// What to say to the peer while nothing can be sent; the strategy decides when.
    pub fn poll_tail(&mut self, now: Nanos) -> Option<TailMark> {
        let rtt = self.timer.rtt();
        self.strategy.poll_tail(now, rtt, &self.ledger)
    }

    /// When [`TpSender::poll_tail`] or [`TpSender::on_time`] has something to do.
    #[must_use]
    pub fn poll_deadline(&self) -> Option<Nanos> {
        let earliest = match (self.timer.deadline(), self.strategy.poll_deadline(&self.ledger)) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let Some(flow) = &self.flow else { return earliest };
        let paced = flow.poll_deadline(&self.ledger).filter(|_| self.has_any());
        paced.map_or(earliest, |paced| Some(earliest.map_or(paced, |other| other.min(paced))))
    }

    /// Takes an acknowledgement; an edge before the window is taken for its start.
    pub fn on_ack(&mut self, now: Nanos, ack: &AckFeedback) -> Result<(), NeverSent> {
        if ack.end() > self.ledger.unsent() {
            return Err(NeverSent);
        }
        let edge = ack.edge.max(self.ledger.una());
        let (trigger, sample) = self.on_trigger(now, ack.trigger);
        let rtt_min = self.timer.rtt_min();
        let mut proofs = [RouteProof::default(); SPREAD_MAX];
        let proves = |seq: u64, slot: &LedgerSlot, proofs: &mut [RouteProof; SPREAD_MAX]| {
            // Of a packet sent several times the last transmission is proved only by an answer to
            // that very packet, and only when it could have come back by now. (A peer that did not
            // run for a while takes the first transmissions when the timer has expired here.)
            let is_late = now.saturating_sub(slot.sent_at()) >= rtt_min;
            let (route, order) = slot.transmission();
            let proof = &mut proofs[usize::from(route)];
            if slot.sent_once_at().is_some() || (trigger == Some(seq) && is_late) {
                *proof = RouteProof { order: proof.order.max(order), works: true };
            }
            proof.works |= !slot.is_rerouted();
        };
        let is_new_oldest = edge > self.ledger.una();
        let mut progress = is_new_oldest;
        self.ledger.advance(edge, |seq, slot| proves(seq, slot, &mut proofs));
        for seq in ack.received() {
            if let Some(slot) = self.ledger.mark_sacked(seq) {
                proves(seq, slot, &mut proofs);
                progress = true;
            }
        }
        for (route, proof) in (0..).zip(&proofs).filter(|(_, proof)| proof.works) {
            self.ledger.spread.prove(route, proof.order);
            self.ledger.spread.forgive(route);
        }
        let order_seen = self.ledger.spread.news();
        let gap = ack.gap && self.gap_answered.replace(edge) != Some(edge);
        let rtt = self.timer.rtt();
        let rtt_min = rtt.map(|_| self.timer.rtt_min());
        let news = AckNews { edge, gap, order_seen, trigger, now, rtt, rtt_min };
        progress |= self.strategy.on_ack(&news, &mut self.ledger);
        self.on_progress(now, progress);
        if is_new_oldest {
            self.timer.forget_waited();
        }
        self.steer(now, sample);
        Ok(())
    }

    /// Takes a loss report. After an error nothing changed.
    pub fn on_report(&mut self, now: Nanos, report: &LossReport) -> Result<(), NeverSent> {
        if report.runs().iter().any(|run| run.end() > self.ledger.unsent()) {
            return Err(NeverSent);
        }
        self.strategy.on_report(report, &mut self.ledger);
        self.timer.on_received(now);
        self.steer(now, None);
        Ok(())
    }

    /// The timer: whether it expired, or did so too often. A peer that answers and never receives the oldest packet is
    /// given up as a silent one is: a path may lose all packets of a size.
    pub fn on_time(&mut self, now: Nanos) -> Result<Expired, Exhausted> {
        self.strategy.on_time(now, &mut self.ledger);
        let expired = self.timer.on_time(now)?;
        if expired == Expired::Yes {
            if self.is_stuck() {
                return Err(Exhausted);
            }
            self.stats.timeouts += 1;
            let (route, _) = self.ledger.slot(self.ledger.una()).transmission();
            self.ledger.spread.blame(route);
            self.strategy.on_timeout(&mut self.ledger);
            // What was on it says nothing any more: others may go, and show what was lost.
            self.ledger.spread.leave_all();
            if let Some(flow) = &mut self.flow {
                flow.on_timeout(now, &mut self.ledger);
            }
        }
        Ok(expired)
    }

    /// The peer sent something that is neither acknowledgement nor report.
    pub fn on_received(&mut self, now: Nanos) {
        self.timer.on_received(now);
    }

    /// Whether packets wait, or a copy of one.
    fn has_any(&self) -> bool {
        self.ledger.has_sendable() || self.copies.is_some()
    }

    /// The packet of which another copy is to be sent.
    fn next_copy(&mut self) -> Option<u64> {
        let (seq, left) = self.copies?;
        self.copies = (left > 1).then_some((seq, left - 1));
        let is_out = self.ledger.is_sent(seq) && self.ledger.slot(seq).fate() == Fate::InFlight;
        if is_out { Some(seq) } else { None }
    }

    /// Times the path by the packet that caused the acknowledgement; its sequence, if it is still in
    /// the window, and its round-trip time, if it was sent once.
    fn on_trigger(&mut self, now: Nanos, trigger: Option<u64>) -> (Option<u64>, Option<Nanos>) {
        let Some(seq) = trigger.filter(|&seq| self.ledger.is_sent(seq)) else {
            return (None, None);
        };
        let slot = *self.ledger.slot(seq);
        let sent_once = slot.sent_once_at();
        let sample = sent_once.and_then(|sent_at| self.timer.on_sample(sent_at, now));
        if self.ledger.is_bounded() {
            let is_late = now.saturating_sub(slot.sent_at()) >= self.timer.rtt_min();
            if sent_once.is_some() || is_late {
                let (route, order) = slot.transmission();
                self.ledger.spread.leave(route, order);
            }
        }
        (Some(seq), sample)
    }

    /// Whether the bound of the path lets a packet go.
    fn admits(&mut self, now: Nanos) -> bool {
        let Some(flow) = &mut self.flow else { return !self.ledger.is_path_full() };
        flow.admits(now, &self.ledger)
    }

    fn is_stuck(&self) -> bool {
        let sent = self.ledger.slot(self.ledger.una()).transmissions();
        u32::from(sent) > self.timer.retries() && self.timer.waited() >= self.timer.patience()
    }

    fn on_sent(&mut self, now: Nanos) {
        self.timer.on_sent(now);
        if let Some(flow) = &mut self.flow {
            flow.on_sent(now, &self.ledger);
        }
    }

    /// Gives congestion control what feedback changed.
    fn steer(&mut self, now: Nanos, sample: Option<Nanos>) {
        if let Some(flow) = &mut self.flow {
            flow.on_feedback(now, sample, &mut self.ledger);
        }
    }

    fn on_progress(&mut self, now: Nanos, progress: bool) {
        if progress {
            let waiting = if self.ledger.has_unacknowledged() { Waiting::Yes } else { Waiting::No };
            self.timer.on_progress(now, waiting);
        } else {
            self.timer.on_received(now);
        }
    }
}

/// What an acknowledgement says of one route.
#[derive(Clone, Copy, Debug, Default)]
struct RouteProof {
    /// Number of the latest transmission by it that was received.
    order: u64,
    /// Something that took it was received.
    works: bool,
}
