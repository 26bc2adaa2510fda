//! Commands that are answered by a later step: connections, drains, destructions.
//!
//! *Owns*: what each waits for, and for how long. *Takes*: steps. *Gives*: answers.
//! *Must not*: keep a command without a bound of its own or of the exchange.

use std::sync::Arc;

use udma_abi::{CmdStatus, Nanos, RawEid, cmd::RSP_WORDS};

use super::{Answer, Results};
use crate::context::segment::LocalSegment;
use crate::device::{Device, shared::Shared};
use crate::exchange::Connecting;

/// A command under way.
#[derive(Clone, Debug)]
pub(crate) enum Waiting {
    /// A way to a node.
    Connect {
        /// The node.
        eid: RawEid,
        /// Unreliable.
        unreliable: bool,
    },
    /// Announced copies into a withdrawn segment.
    Drain {
        /// The segment.
        segment: Arc<LocalSegment>,
        /// Patience ends then.
        until: Nanos,
    },
    /// The completions of a queue.
    Destroy(Leaving),
}

/// A queue that is being destroyed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leaving {
    /// The queue.
    pub(crate) id: u32,
    /// Blocks and receives without a completion, when last one found room.
    pub(crate) left: u32,
    /// Patience ends then.
    pub(crate) until: Nanos,
}

impl Waiting {
    pub(crate) fn deadline(&self) -> Option<Nanos> {
        match self {
            Self::Connect { .. } => None,
            Self::Drain { until, .. } | Self::Destroy(Leaving { until, .. }) => Some(*until),
        }
    }
}

impl Shared {
    /// Looks at every waiting command once.
    pub(crate) fn step_waiting(&mut self, dev: &Device, now: Nanos) -> bool {
        let mut busy = false;
        let mut index = 0;
        while index < self.waiting.len() {
            let (sequence, waiting) = self.waiting[index].clone();
            match self.look_at(dev, now, &waiting) {
                Answer::Now(status, results) => {
                    self.waiting.remove(index);
                    self.respond(sequence, status, results);
                    busy = true;
                }
                Answer::Later(waiting) => {
                    self.waiting[index].1 = waiting;
                    index += 1;
                }
            }
        }
        busy
    }

    fn look_at(&mut self, dev: &Device, now: Nanos, waiting: &Waiting) -> Answer {
        let later = || Answer::Later(waiting.clone());
        match waiting {
            Waiting::Connect { eid, unreliable } => {
                match self.exchange.connect(dev, now, *eid, *unreliable) {
                    Connecting::Pending => later(),
                    Connecting::Failed(status) => Answer::status(status),
                    Connecting::Ready { tpn, path } => {
                        let mut results: Results = [0; RSP_WORDS - 1];
                        results[0] = u64::from(tpn);
                        results[1] = path as u64;
                        Answer::Now(CmdStatus::Ok, results)
                    }
                }
            }
            Waiting::Drain { segment, until } => {
                self.drained(dev, now, segment, *until).unwrap_or_else(later)
            }
            Waiting::Destroy(leaving) => self.destroyed(dev, now, *leaving),
        }
    }
}
