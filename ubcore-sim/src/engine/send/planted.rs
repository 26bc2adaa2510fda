//! Planted faults of the direct path: order swapped, acknowledged before placed.
//!
//! *Owns*: one write that is acknowledged and not placed. *Takes*: the configuration. *Gives*: a
//! device that checks must catch. *Must not*: run without the feature `planted-faults`.

use udma_abi::{CqeStatus, Opcode, Sqe};
use urma_mem::sync::Ordering;

use super::{Current, FrontResult, SendEngine, Visit};
use crate::engine::direct::{Cursor, Job};
use crate::engine::gather::{EntryWords, Segments};

/// Write whose placing the planted fault delays.
#[derive(Debug)]
pub(super) struct Deferred {
    tpn: u32,
    sqe: Sqe,
    words: EntryWords,
    current: Current,
    /// The next request overtakes it.
    is_next_before: bool,
}

impl SendEngine {
    /// Acknowledges a write without placing it, if a planted fault says so.
    #[cold]
    pub(super) fn defer(&mut self, visit: &Visit<'_>, index: usize) -> Option<FrontResult> {
        let faults = visit.tables.faults;
        let posted = visit.queue.pi.load(Ordering::Acquire) != self.ring.head;
        let wanted = faults.ack_before_placement() || (faults.order_swapped() && posted);
        if self.deferred.is_some() || !wanted || self.sqe.opcode != Opcode::Write {
            return None;
        }
        self.deferred = Some(Box::new(Deferred {
            tpn: self.path_states[index].link.tpn,
            sqe: self.sqe,
            words: self.words,
            current: self.current,
            is_next_before: true,
        }));
        Some(FrontResult::End(CqeStatus::Success, u32::try_from(self.current.len).unwrap_or(0)))
    }

    /// Places the deferred write, once another request or step has overtaken it.
    #[cold]
    pub(super) fn place_deferred(&mut self, visit: &Visit<'_>) {
        let is_late = |d: &mut Box<Deferred>| !std::mem::take(&mut d.is_next_before);
        let Some(deferred) = self.deferred.take_if(is_late) else { return };
        let path_state = self.path_states.iter_mut().find(|s| s.link.tpn == deferred.tpn);
        let Some(path_state) = path_state else { return };
        let job = Job {
            sqe: &deferred.sqe,
            words: &deferred.words,
            local: &deferred.current.local,
            len: deferred.current.len,
            segments: Segments { cache: &mut self.segments, table: &visit.tables.segments },
            chunk: visit.tables.cfg.direct_chunk,
            cache: visit.tables.cfg.cache_bytes,
            faults: visit.tables.faults,
        };
        let mut budget = usize::MAX;
        // The write was acknowledged already: its result goes nowhere.
        let _ = job.execute(path_state, &mut Cursor::default(), &mut budget);
    }
}
