//! Queues that are not READY: flush, suspend, reset.
//!
//! *Owns*: which status each request ends with, and when the last CQE is written. *Takes*: state changes. *Gives*:
//! CQEs. *Must not*: leave a posted request without a completion.

use udma_abi::{CqeStatus, cmd::QueueState, sqe::SqeFlags};
use urma_mem::sync::Ordering;

use super::{FrontResult, SendEngine, SendState, Started, Visit};
use crate::engine::remote::PathState;

impl SendEngine {
    /// Sets the state that the driver asked for. `false`: there is no such transition.
    pub(crate) fn on_state(&mut self, state: QueueState) -> bool {
        self.state = match (self.state, state) {
            (SendState::Spoilt(status), QueueState::Ready) => SendState::Spoilt(status),
            (
                SendState::Reset | SendState::Suspended { .. } | SendState::Ready,
                QueueState::Ready,
            ) => SendState::Ready,
            (SendState::Ready | SendState::Spoilt(_), QueueState::Suspended) => {
                SendState::Suspended { reported: false }
            }
            (SendState::Suspended { reported }, QueueState::Suspended) => {
                SendState::Suspended { reported }
            }
            (SendState::Error { reported }, QueueState::Error) => SendState::Error { reported },
            (_, QueueState::Error) => SendState::Error { reported: false },
            (_, QueueState::Reset) => SendState::Reset,
            (_, QueueState::Ready | QueueState::Suspended) => return false,
        };
        true
    }

    /// Stops the queue, as after a failed request, because the connection of its requests failed.
    pub(crate) fn on_connection_lost(&mut self, visit: &Visit<'_>) {
        self.after_error(visit, CqeStatus::AckTimeout);
    }

    /// Flushes a queue that is being destroyed, without a last CQE unless one is due already.
    pub(crate) fn on_leaving(&mut self) {
        if !matches!(self.state, SendState::Error { .. }) {
            self.state = SendState::Error { reported: true };
        }
    }

    /// Whether every posted request is completed, and the last CQE of a flush is written.
    pub(crate) fn is_flushed(&self, visit: &Visit<'_>) -> bool {
        let empty = !self.under_way && self.retire.is_empty() && self.posted(visit) == 0;
        empty
            && !self.retire.has_spare()
            && !matches!(self.state, SendState::Error { reported: false })
    }

    /// Does one step of a queue that starts nothing. Returns whether another one is needed at once.
    pub(super) fn step_stopped(&mut self, visit: &Visit<'_>) -> bool {
        match self.state {
            SendState::Ready => true,
            SendState::Spoilt(status) => self.step_spoilt(visit, status),
            SendState::Suspended { reported } => {
                self.step_suspended(visit, reported);
                false
            }
            SendState::Error { reported } => {
                self.end_started(visit);
                let more = self.end_posted(visit, CqeStatus::WrFlushErr);
                if !more && !reported && self.posted(visit) == 0 {
                    self.tell(visit, CqeStatus::WrFlushErrDone);
                }
                more
            }
            SendState::Reset => {
                self.end_current_unstarted(visit);
                self.end_started(visit);
                self.end_posted(visit, CqeStatus::WrUnhandled)
            }
        }
    }

    /// Completes the next entry, which was executed, once it is posted; then the queue is ready again.
    fn step_spoilt(&mut self, visit: &Visit<'_>, status: CqeStatus) -> bool {
        self.state = SendState::Ready;
        if !self.fetch(visit, None) {
            self.state = SendState::Spoilt(status);
            return false;
        }
        if self.under_way {
            self.end_current(visit, status, 0);
        }
        true
    }

    fn step_suspended(&mut self, visit: &Visit<'_>, reported: bool) {
        // A direct transfer in progress counts as started: it ends before the suspend does.
        if self.under_way && self.current.cursor.life != 0 {
            let mut bytes = usize::MAX;
            match self.execute_front(visit, &mut bytes) {
                FrontResult::End(status, bytes) => self.end_current(visit, status, bytes),
                // What follows the placed bytes is the target's part now.
                FrontResult::Handed { tpn, .. } => self.push_current(visit, tpn),
                FrontResult::Wait | FrontResult::More => return,
            }
        }
        if self.retire.is_empty() && !reported {
            self.tell(visit, CqeStatus::WrSuspendDone);
        }
    }

    /// On a reset, completes a fetched but unstarted request as unhandled.
    fn end_current_unstarted(&mut self, visit: &Visit<'_>) {
        if self.under_way && self.current.cursor.life == 0 {
            self.under_way = false;
            let request = self.started(self.current.blocks, 0, Some((CqeStatus::WrUnhandled, 0)));
            self.retire.finish(request, &visit.queue.fast, visit.tables.faults);
        }
    }

    /// Completes everything that was started as flushed.
    fn end_started(&mut self, visit: &Visit<'_>) {
        if self.under_way {
            self.under_way = false;
            let request = self.started(self.current.blocks, 0, Some((CqeStatus::WrFlushErr, 0)));
            self.retire.finish(request, &visit.queue.fast, visit.tables.faults);
        }
        if !self.retire.is_empty() {
            // Before the CQEs: after those the program may change the bytes.
            self.path_states.iter().for_each(PathState::take_names_back);
            self.retire.end_all(CqeStatus::WrFlushErr, &visit.queue.fast, visit.tables.faults);
            while self.mail.handed.pop().is_some() {}
            while self.mail.ended.pop().is_some() {}
            self.mail.ask_purge();
            for path_state in self.path_states.iter_mut() {
                path_state.outstanding = 0;
            }
        }
    }

    /// Completes what was posted and not fetched with `status`, within the slots and the request budget of the step.
    /// Returns whether the budget was used up.
    fn end_posted(&mut self, visit: &Visit<'_>, status: CqeStatus) -> bool {
        for _ in 0..visit.tables.step.requests() {
            let posted = self.posted(visit);
            if posted == 0 {
                return false;
            }
            if posted > self.ring.blocks() {
                self.forget_posted(visit, posted);
                return false;
            }
            if !self.retire.reserve() && !self.reserve_or_stop(visit) {
                return false;
            }
            let fetched = self.ring.fetch(posted, None, (&mut self.words, &mut self.sqe));
            let (entry_idx, blocks) = match &fetched {
                Ok(blocks) => (self.sqe.entry_idx, *blocks),
                Err(bad) => (self.ring.entry_idx(), bad.blocks),
            };
            let request = Started {
                entry_idx,
                blocks,
                flags: SqeFlags::COMP_ORDER,
                fenced: false,
                tpn: 0,
                end: Some((status, 0)),
                reported: false,
            };
            self.ring.head = self.ring.head.wrapping_add(blocks);
            self.retire.finish(request, &visit.queue.fast, visit.tables.faults);
        }
        true
    }

    /// Writes the last CQE of a flush or suspend.
    fn tell(&mut self, visit: &Visit<'_>, status: CqeStatus) {
        if !self.retire.reserve() && !self.reserve_or_stop(visit) {
            return;
        }
        self.retire.announce(status, self.ring.entry_idx(), &visit.queue.fast);
        self.state = match self.state {
            SendState::Error { .. } => SendState::Error { reported: true },
            SendState::Suspended { .. } => SendState::Suspended { reported: true },
            stays @ (SendState::Ready | SendState::Spoilt(_) | SendState::Reset) => stays,
        };
    }

    /// Withdraws a doorbell that posts `posted` blocks, more than the ring has; a doorbell that rang since then
    /// stays.
    #[cold]
    pub(super) fn forget_posted(&self, visit: &Visit<'_>, posted: u32) {
        let (head, pi) = (self.ring.head, &visit.queue.pi);
        let beyond = head.wrapping_add(posted);
        let _ = pi.compare_exchange(beyond, head, Ordering::AcqRel, Ordering::Relaxed);
    }

    #[inline]
    pub(in crate::engine) fn posted(&self, visit: &Visit<'_>) -> u32 {
        visit.queue.pi.load(Ordering::Acquire).wrapping_sub(self.ring.head)
    }
}
