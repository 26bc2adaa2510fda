//! The receiving half of a TP in sequence numbers: the loss record, and when to acknowledge.
//!
//! - owns: the loss record, the acknowledgement that is due. takes: sequences received, time.
//! - gives: whether a packet is new, acknowledgements and loss reports, deadlines.
//! - must not: hold payload, know packet formats.

use udma_abi::Nanos;

use crate::knitting::{Arrival, KnittingPool, LossError, LossRecord};
use crate::repair::RepairMark;
use crate::report::{AckFeedback, DataMark, LossReport, LossRun, TailMark};

/// When a receiver acknowledges.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AckPolicy {
    /// Packets received in order before an acknowledgement is sent.
    pub every: u32,
    /// Longest time that one waits for more, in ns.
    pub delay_ns: Nanos,
}

/// When the next acknowledgement is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum AckDue {
    /// Nothing was received since the last acknowledgement.
    Idle,
    /// At that time, or after more packets.
    At(Nanos),
    /// Due now; all packets came in order.
    Now,
    /// Now, and it says that there is a gap.
    NowGap,
}

/// Loss record and acknowledgement state of one direction of a TP.
#[derive(Debug)]
pub struct TpReceiver {
    record: Box<dyn LossRecord>,
    policy: AckPolicy,
    due: AckDue,
    /// Packets received since the last acknowledgement.
    unacked: u32,
    /// The packet that the next acknowledgement answers.
    trigger: Option<u64>,
    /// The edge at which a gap was reported: once per gap.
    gap_reported: Option<u64>,
    acks_sent: u64,
}

impl TpReceiver {
    /// A receiver that received nothing yet.
    #[must_use]
    pub fn new(record: Box<dyn LossRecord>, policy: AckPolicy) -> Self {
        let policy = AckPolicy { every: policy.every.max(1), ..policy };
        Self {
            record,
            policy,
            due: AckDue::Idle,
            unacked: 0,
            trigger: None,
            gap_reported: None,
            acks_sent: 0,
        }
    }

    /// First sequence that is missing.
    #[must_use]
    pub fn edge(&self) -> u64 {
        self.record.first_missing()
    }

    /// What was received and what is missing.
    #[must_use]
    pub fn record(&self) -> &dyn LossRecord {
        &*self.record
    }

    /// Number of acknowledgements that were sent.
    #[must_use]
    pub const fn acks_sent(&self) -> u64 {
        self.acks_sent
    }

    /// Records packet `seq`; [`TpReceiver::acknowledge`] follows when its payload is stored.
    /// After a [`LossError`] the packet was not accepted.
    pub fn on_data(
        &mut self,
        now: Nanos,
        seq: u64,
        mark: DataMark,
        pool: &mut KnittingPool,
    ) -> Result<Arrival, LossError> {
        let arrival = self.record.record(pool, now, seq, mark);
        answered(pool, arrival)
    }

    /// Plans an acknowledgement of a packet that was not accepted.
    pub fn acknowledge_now(&mut self, seq: u64) {
        self.wants(Some(seq), AckDue::Now);
    }

    /// Plans an acknowledgement that no packet of data causes.
    pub fn acknowledge_at_once(&mut self) {
        self.wants(None, AckDue::Now);
    }

    /// Plans the acknowledgement of a packet that arrived so; `at_once` when it asks for one.
    pub fn acknowledge(&mut self, now: Nanos, seq: u64, arrival: Arrival, at_once: bool) {
        match arrival {
            Arrival::Advanced(_) => self.counts(now, seq, at_once),
            Arrival::Kept if self.record.traits().reports_losses => self.counts(now, seq, at_once),
            Arrival::Kept | Arrival::Duplicate => self.wants(Some(seq), AckDue::Now),
            Arrival::Unmatched => {}
            Arrival::Dropped => {
                let edge = self.edge();
                if self.gap_reported != Some(edge) {
                    self.gap_reported = Some(edge);
                    self.wants(Some(seq), AckDue::NowGap);
                }
            }
        }
    }

    /// Takes a repair packet.
    pub fn on_repair(&mut self, mark: &RepairMark) {
        self.record.on_repair(mark);
    }

    /// The next packets that repair packets brought: they were received, once.
    pub fn poll_repaired(&mut self) -> Option<LossRun> {
        self.record.poll_repaired()
    }

    /// Takes the mark of a sender that has nothing to send.
    pub fn on_tail(
        &mut self,
        now: Nanos,
        mark: &TailMark,
        pool: &mut KnittingPool,
    ) -> Result<(), LossError> {
        self.wants(None, AckDue::Now);
        let taken = self.record.on_tail(pool, now, mark);
        answered(pool, taken)
    }

    /// Time passed: an acknowledgement that waited may be due.
    pub fn on_time(&mut self, now: Nanos) {
        if let AckDue::At(at) = self.due
            && at <= now
        {
            self.due = AckDue::Now;
        }
    }

    /// Time passed: the record may have something to report again. `rtt_ns` is the round-trip time of the path; 0 where the
    /// strategy's times have it in them.
    pub fn on_record_time(
        &mut self,
        now: Nanos,
        rtt_ns: Nanos,
        pool: &mut KnittingPool,
    ) -> Result<(), LossError> {
        let taken = self.record.on_time(pool, now, rtt_ns);
        answered(pool, taken)
    }

    /// When [`TpReceiver::on_record_time`] has something to do.
    #[must_use]
    pub fn record_deadline(&self) -> Option<Nanos> {
        self.record.poll_deadline()
    }

    /// Whether [`TpReceiver::poll_ack`] gives something.
    #[must_use]
    pub const fn has_ack(&self) -> bool {
        matches!(self.due, AckDue::Now | AckDue::NowGap)
    }

    /// When an acknowledgement that waits for more packets becomes due.
    #[must_use]
    pub const fn poll_deadline(&self) -> Option<Nanos> {
        if let AckDue::At(at) = self.due { Some(at) } else { None }
    }

    /// The acknowledgement that is due.
    pub fn poll_ack(&mut self, pool: &KnittingPool) -> Option<Result<AckFeedback, LossError>> {
        if !self.has_ack() {
            return None;
        }
        let mut received = [0; 4];
        if let Err(error) = self.record.sack(pool, &mut received) {
            return Some(Err(error));
        }
        let gap = self.due == AckDue::NowGap;
        self.due = AckDue::Idle;
        self.unacked = 0;
        self.acks_sent += 1;
        Some(Ok(AckFeedback { edge: self.edge(), gap, trigger: self.trigger.take(), received }))
    }

    /// Whether [`TpReceiver::poll_report`] gives something.
    #[must_use]
    pub fn has_report(&self) -> bool {
        self.record.has_report()
    }

    /// The next report of losses.
    pub fn poll_report(&mut self) -> Option<LossReport> {
        self.record.poll_report()
    }

    /// Gives what it holds of the pool back.
    pub fn close(&mut self, pool: &mut KnittingPool) {
        self.record.release(pool);
    }

    fn counts(&mut self, now: Nanos, seq: u64, at_once: bool) {
        self.unacked += 1;
        let at_once = at_once || self.unacked >= self.policy.every;
        let later = now.saturating_add(self.policy.delay_ns);
        self.wants(Some(seq), if at_once { AckDue::Now } else { AckDue::At(later) });
    }

    fn wants(&mut self, trigger: Option<u64>, wanted: AckDue) {
        self.trigger = trigger.or(self.trigger);
        self.due = match (self.due, wanted) {
            (AckDue::NowGap, _) | (_, AckDue::NowGap) => AckDue::NowGap,
            (AckDue::Now, _) | (_, AckDue::Now) => AckDue::Now,
            (AckDue::At(at), AckDue::At(_)) => AckDue::At(at),
            (AckDue::Idle, wanted) => wanted,
            (due, AckDue::Idle) => due,
        };
    }
}

/// What a record says rests on nothing if its pool does not answer.
fn answered<T>(pool: &KnittingPool, outcome: Result<T, LossError>) -> Result<T, LossError> {
    if pool.dma().has_failed() { Err(LossError::Unanswered) } else { outcome }
}
