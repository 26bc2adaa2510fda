//! The sending half of the knitting strategy: sends again what is reported, in the order of the reports.
//!
//! - owns: how far reports were answered, when the next tail mark is due. takes: loss reports.
//! - gives: marks on what was reported, tail marks. must not: guess that a packet was lost.

use udma_abi::Nanos;

use crate::ledger::SendLedger;
use crate::repair::{REPAIR_RTT_MIN, RepairMark, TailCode};
use crate::report::{LossReport, TICKET_MASK, TailMark};
use crate::strategy::{AckNews, Retransmission};

/// Marks without an answer after which the time between two of them doubles, and how often it does.
const UNANSWERED_MAX: u32 = 8;
const DOUBLED_MAX: u32 = 16;
/// Marks without an answer after which a timeout repeats the oldest packet, too.
const SILENT_MARKS: u32 = 12;
/// Transmissions of the oldest packet after which marks, each of which asks for another one, come no sooner than this
/// time after each other, in ns: a path may lose all packets of a size, and round trips of 0.1 ms would carry 10,000 of
/// them a second.
const REPEATS_MAX: u16 = 8;
const REPEAT_NS: Nanos = 10_000_000;
/// Transmissions of the oldest packet up to which later ones that arrive hold the timer back: with 5 % loss one of
/// 160,000 packets needs more.
const LOST_AGAIN_MAX: u16 = 4;
/// Least time between two tail marks, in ns.
const MARK_NS_MIN: Nanos = 50_000;
/// The same before the first round-trip time.
const MARK_NS_INITIAL: Nanos = 1_000_000;

/// Sends again what reports name.
#[derive(Debug)]
pub struct Knit {
    /// Copies of a repeated packet once no new packet waits.
    tail_copies: u8,
    /// Round-trip time of the path, and the smoothed one, in ns.
    rtt_min: Option<Nanos>,
    rtt: Option<Nanos>,
    mark: TailMark,
    marked_at: Nanos,
    every_ns: Nanos,
    /// Something was sent or reported since the last mark, or the timer expired.
    is_due: bool,
    unsent: u64,
    /// Transmissions that had left the path at the last acknowledgement.
    resolved: u64,
    /// Marks since the peer sent something.
    unanswered: u32,
    code: TailCode,
}

impl Knit {
    /// Sends each repeated packet `tail_copies` times when no new packet waits, on a path for which tails are protected.
    #[must_use]
    pub fn new(tail_copies: u8) -> Self {
        Self {
            tail_copies: tail_copies.max(1),
            rtt_min: None,
            rtt: None,
            mark: TailMark::default(),
            marked_at: 0,
            every_ns: MARK_NS_INITIAL,
            is_due: false,
            unsent: 0,
            resolved: 0,
            unanswered: 0,
            code: TailCode::default(),
        }
    }
}

impl Knit {
    /// Whether a round trip is so short that marks wait for acknowledgements.
    fn is_short(&self) -> bool {
        self.rtt_min.is_some_and(|rtt| rtt < REPAIR_RTT_MIN)
    }
}

impl Retransmission for Knit {
    fn on_ack(&mut self, news: &AckNews, ledger: &mut SendLedger) -> bool {
        (self.rtt_min, self.rtt) = (news.rtt_min, news.rtt);
        self.unanswered = 0;
        let resolved = ledger.spread.resolved();
        let arrives = resolved > std::mem::replace(&mut self.resolved, resolved);
        // Reports say what is lost while later packets arrive. Of an oldest one that is lost each time the timer tells.
        arrives
            && ledger.has_unacknowledged()
            && ledger.slot(ledger.una()).transmissions() <= LOST_AGAIN_MAX
    }

    fn on_timeout(&mut self, ledger: &mut SendLedger) {
        self.is_due = true;
        if self.unanswered >= SILENT_MARKS {
            // A node that has this TP no longer says so to packets of data, which are longer than that, not to marks.
            ledger.mark_lost(ledger.una());
        }
    }

    fn on_report(&mut self, report: &LossReport, ledger: &mut SendLedger) {
        self.is_due = true;
        self.unanswered = 0;
        let mut ticket = report.ticket;
        for run in report.runs() {
            // Of protected packets the receiver says after the repair packets what is missing.
            let held = if report.tier == 1 { self.code.held_end(run) } else { 0 };
            for seq in run.start.max(held)..run.end() {
                ledger.mark_reported(seq, report.tier, ticket);
            }
            if report.tier == 1 {
                self.code.on_lost(run);
                self.mark.first_end = self.mark.first_end.max(run.end());
            } else {
                ticket = ticket.wrapping_add(1) & TICKET_MASK;
                self.mark.ticket_end = ticket;
            }
        }
    }

    fn protect_tail(&mut self, loss: f64) {
        self.code.expect(loss);
    }

    fn poll_repair(
        &mut self,
        now: Nanos,
        rtt: Option<Nanos>,
        ledger: &SendLedger,
    ) -> Option<RepairMark> {
        let mark = self.code.poll(now, (rtt, self.rtt_min), ledger)?;
        // Repair packets stand for those that they protect.
        self.mark.first_end = self.mark.first_end.max(self.code.protected());
        self.is_due = true;
        Some(mark)
    }

    fn copies(&self, ledger: &SendLedger) -> u8 {
        if ledger.queued() == 0 && self.code.pays(self.rtt_min) { self.tail_copies } else { 1 }
    }

    fn poll_deadline(&self, ledger: &SendLedger) -> Option<Nanos> {
        // Packets that wait for room on the path are sent after what is there; repeated ones are named by tickets.
        let is_held = ledger.is_path_full() && !ledger.has_lost();
        if (ledger.has_sendable() && !is_held) || !ledger.has_unacknowledged() {
            return None;
        }
        let is_new = self.unsent != ledger.unsent();
        let doubled = self.unanswered.saturating_sub(UNANSWERED_MAX).min(DOUBLED_MAX);
        let is_repeated = ledger.slot(ledger.una()).transmissions() > REPEATS_MAX;
        let is_due = self.is_due || (is_new && !self.is_short());
        if is_due && !is_held {
            return Some(if is_repeated { self.marked_at.saturating_add(REPEAT_NS) } else { 0 });
        }
        let (from, every_ns) = if self.is_short() {
            // An acknowledgement is usually there sooner than a mark would be worth its packet.
            let sent_at = ledger.slot(ledger.unsent() - 1).sent_at();
            let usual = self.rtt.unwrap_or(0).saturating_mul(2);
            (self.marked_at.max(sent_at), usual.max(MARK_NS_INITIAL))
        } else {
            (self.marked_at, self.every_ns)
        };
        let least_ns = if is_repeated { REPEAT_NS } else { 0 };
        Some(from.saturating_add(every_ns.saturating_mul(1 << doubled).max(least_ns)))
    }

    fn poll_tail(
        &mut self,
        now: Nanos,
        rtt: Option<Nanos>,
        ledger: &SendLedger,
    ) -> Option<TailMark> {
        self.poll_deadline(ledger).filter(|&deadline| deadline <= now)?;
        // The smoothed one is too short where the timer expired before the first answer came; a peer that believed it would
        // take each repeated packet for lost before that can arrive.
        let rtt_ns = rtt.max(self.rtt_min).unwrap_or(0);
        if rtt_ns > 0 {
            self.every_ns = (rtt_ns / 4).max(MARK_NS_MIN);
        }
        self.is_due = false;
        self.marked_at = now;
        self.unanswered = self.unanswered.saturating_add(1);
        self.unsent = ledger.unsent();
        self.mark = TailMark { end: ledger.unsent(), rtt_ns, ..self.mark };
        Some(self.mark)
    }
}
