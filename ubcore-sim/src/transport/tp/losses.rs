//! Loss reports and tail marks of a knitting TP on the wire.
//!
//! - owns: the mapping between sequences and PSNs. takes: such packets of the peer, which may lie.
//! - gives: those of this side. must not: pass on values outside the windows.

use udma_abi::Nanos;
use urma_packet::{Body, LOSS_RUNS_MAX, PacketHeader, Psn, ReportBody, TailBody, WINDOW_MAX};
use urma_recovery::{KnittingPool, LossError, LossReport, LossRun, NeverSent, TailMark};

use super::{Received, Tp, TpError, psn_of};
use crate::transport::strategy::Strategy;

impl Tp {
    /// Whether senders say what is on the path, and send repair packets.
    pub(super) fn is_knitting(&self) -> bool {
        self.cfg.strategy == Strategy::Knitting
    }

    /// Processes a loss report of the peer.
    pub(super) fn on_losses(&mut self, now: Nanos, losses: &ReportBody) -> Received {
        let reports = self.cfg.strategy.reports_losses();
        let report = reports.then(|| self.report_of(losses)).flatten();
        let Some(report) = report else { return Received::BadReport };
        match self.tx.on_report(now, &report) {
            Ok(()) => Received::Acknowledged,
            Err(NeverSent) => Received::BadReport,
        }
    }

    /// Converts a report to sequences; `None` if a run begins further back than a window.
    fn report_of(&self, losses: &ReportBody) -> Option<LossReport> {
        let una = self.tx.ledger().una();
        let first = psn_of(self.cfg.tx_psn, una);
        let mut report = LossReport::new(losses.tier, losses.ticket);
        for run in losses.runs() {
            let ahead = i64::from(run.start.distance_from(first));
            if ahead < -i64::from(WINDOW_MAX) {
                return None;
            }
            let start = una.checked_add_signed(ahead)?;
            if !report.push(LossRun { start, count: run.count }) {
                return None;
            }
        }
        Some(report)
    }

    /// Lets the record report again what did not come.
    pub(super) fn on_record_time(&mut self, now: Nanos, pool: &mut KnittingPool) {
        let rtt_ns = self.tx.timer().rtt().unwrap_or(self.cfg.rto.initial_ns);
        let taken = self.rx.receiver().on_record_time(now, rtt_ns, pool);
        if let Err(LossError::Corrupt | LossError::Unanswered) = taken {
            self.fail(TpError::PoolCorrupt);
        }
    }

    /// Processes the tail mark of a peer that has nothing to send; `psn` is that of its next new packet.
    pub(super) fn on_tail(
        &mut self,
        now: Nanos,
        psn: Psn,
        tail: &TailBody,
        pool: &mut KnittingPool,
    ) -> Received {
        let edge = self.rx.edge();
        let ahead = i64::from(psn.distance_from(psn_of(self.cfg.rx_psn, edge)));
        let first_ahead = i64::from(tail.first_end.distance_from(psn));
        if !self.is_knitting() || ahead > i64::from(self.cfg.window_packets) || first_ahead > 0 {
            return Received::BadTail;
        }
        let Ok(ahead) = u64::try_from(ahead) else {
            self.rx.receiver().acknowledge_at_once();
            return Received::Acknowledged;
        };
        let end = edge + ahead;
        let mark = TailMark {
            end,
            first_end: end.saturating_add_signed(first_ahead),
            ticket_end: tail.ticket_end,
            rtt_ns: tail.rtt_ns.into(),
        };
        match self.rx.receiver().on_tail(now, &mark, pool) {
            Ok(()) => match self.take_repaired(edge) {
                Ok(()) => Received::Acknowledged,
                Err(error) => {
                    self.fail(error);
                    Received::NotAccepted
                }
            },
            Err(LossError::Exhausted) => Received::DroppedNoBlock,
            Err(LossError::Corrupt | LossError::Unanswered) => {
                self.fail(TpError::PoolCorrupt);
                Received::NotAccepted
            }
        }
    }

    /// Writes the next loss report.
    pub(super) fn emit_report(&mut self, buf: &mut [u8]) -> Option<usize> {
        let report = self.rx.receiver().poll_report()?;
        let mut runs = [urma_packet::MissingRun::default(); LOSS_RUNS_MAX];
        let runs = runs.get_mut(..report.runs().len())?;
        for (run, LossRun { start, count }) in runs.iter_mut().zip(report.runs()) {
            *run =
                urma_packet::MissingRun { start: psn_of(self.cfg.rx_psn, *start), count: *count };
        }
        let losses = ReportBody::new(report.tier, report.ticket, runs)?;
        let header = PacketHeader::new(self.cfg.peer_tpn, Psn::new(0), Body::Losses(losses));
        header.emit_headers(0, buf).ok().map(|frame| frame.total)
    }

    /// Writes the tail mark that is due.
    pub(super) fn emit_tail(&mut self, now: Nanos, buf: &mut [u8]) -> Option<usize> {
        let mark = self.tx.poll_tail(now)?;
        let psn = |seq| psn_of(self.cfg.tx_psn, seq);
        let tail = TailBody {
            // Acknowledged packets need no answer, and may be too far back for a PSN.
            first_end: psn(mark.first_end.max(self.tx.ledger().una())),
            ticket_end: mark.ticket_end,
            rtt_ns: u32::try_from(mark.rtt_ns).unwrap_or(u32::MAX),
        };
        let header = PacketHeader::new(self.cfg.peer_tpn, psn(mark.end), Body::Tail(tail));
        header.emit_headers(0, buf).ok().map(|frame| frame.total)
    }
}

const _: () = assert!(LOSS_RUNS_MAX == urma_recovery::REPORT_RUNS);
