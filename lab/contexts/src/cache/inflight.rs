//! Migrations that have begun and not ended.
//!
//! *Owns*: a flight for each context that moves, who waits for it, when it is due. *Gives*: what is due next.
//! *Must not*: change a tier.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use crate::directory::{ContextPlace, EntryWord};
use crate::handle::ContextHandle;
use crate::page::ContextRecord;
use crate::small::SmallOp;
use crate::token::ContextToken;

/// Why a context moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FlightCause {
    /// A request waits for it to end.
    Demand,
    /// It will be needed soon.
    Prefetch,
    /// Its count or idle time says so.
    Maintenance,
}

/// One context that moves.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) ticket: u32,
    pub(super) to: ContextPlace,
    /// Entry before the move: place and offset that it leaves.
    pub(super) from: EntryWord,
    /// Version when its source was read.
    pub(super) version: u32,
    /// What was read; `None`: the host's answer brings it.
    pub(super) record: Option<ContextRecord>,
    pub(super) cause: FlightCause,
    pub(super) begun_at: u64,
    pub(super) ready_at: u64,
    /// Operations of requests that wait, with the time since when.
    pub(super) ops: Vec<(SmallOp, u64)>,
    /// Whether an access met it that was to be a prefetch.
    pub(super) is_late: bool,
    pub(super) tries: u32,
}

/// All contexts that move.
#[derive(Debug, Default)]
pub(super) struct Flights {
    of: BTreeMap<ContextHandle, Flight>,
    due: BinaryHeap<Reverse<(u64, u32, ContextHandle)>>,
    tickets: u32,
    /// Contexts in L1 by prefetch that no access has found yet.
    prefetched: BTreeSet<ContextHandle>,
}

impl Flights {
    pub(super) fn ticket(&mut self) -> u32 {
        self.tickets = self.tickets.wrapping_add(1);
        self.tickets
    }

    pub(super) fn begin(&mut self, handle: ContextHandle, flight: Flight) {
        self.due.push(Reverse((flight.ready_at, flight.ticket, handle)));
        self.of.insert(handle, flight);
    }

    /// The next one is due at this time.
    pub(super) fn due_at(&self) -> Option<u64> {
        self.due.peek().map(|Reverse((at, _, _))| *at)
    }

    /// The next one that is due.
    pub(super) fn pop_due(&mut self) -> Option<(u32, ContextHandle)> {
        self.due.pop().map(|Reverse((_, ticket, handle))| (ticket, handle))
    }

    pub(super) fn get(&self, handle: ContextHandle) -> Option<&Flight> {
        self.of.get(&handle)
    }

    pub(super) fn get_mut(&mut self, handle: ContextHandle) -> Option<&mut Flight> {
        self.of.get_mut(&handle)
    }

    pub(super) fn end(&mut self, handle: ContextHandle) -> Option<Flight> {
        self.of.remove(&handle)
    }

    /// A strong field of a context that leaves L1 changed: what leaves has it.
    pub(super) fn retoken(&mut self, handle: ContextHandle, token: ContextToken) {
        let leaving =
            self.of.get_mut(&handle).filter(|flight| flight.from.place() == ContextPlace::L1);
        if let Some(record) = leaving.and_then(|flight| flight.record.as_mut()) {
            record.token = token;
        }
    }

    pub(super) fn note_prefetched(&mut self, handle: ContextHandle) {
        self.prefetched.insert(handle);
    }

    /// Whether the context came by a prefetch that is not counted as useful yet. It is from now on.
    pub(super) fn was_prefetched(&mut self, handle: ContextHandle) -> bool {
        self.prefetched.remove(&handle)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.of.len()
    }

    /// Number of operations that wait.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.of.values().map(|flight| flight.ops.len()).sum()
    }
}
