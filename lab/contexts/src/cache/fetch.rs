//! Modes B and C: batches from L2, requests to the host.
//!
//! *Owns*: the queue of prefetches and its limits. *Takes*: misses, prefetches. *Gives*: flights.
//! *Must not*: let a prefetch delay a request that waits.

use std::collections::{BTreeMap, VecDeque};

use super::{
    Access, AccessMode, ContextCache,
    moves::{Flight, FlightCause},
};
use crate::{
    cfg::MeetMigration,
    directory::{ContextPlace, EntryWord},
    handle::ContextHandle,
    host::{ExpandAnswer, ExpandRequest},
    page::{ContextRecord, decode},
    token::SmallOp,
};

/// Contexts that wait for a batch.
#[derive(Debug, Default)]
pub(super) struct PrefetchQueue {
    waiting: VecDeque<(ContextHandle, FlightCause)>,
    /// When a batch begins at the latest.
    deadline: Option<u64>,
}

impl PrefetchQueue {
    fn contains(&self, handle: ContextHandle) -> bool {
        self.waiting.iter().any(|(other, _)| *other == handle)
    }

    pub(super) const fn deadline(&self) -> Option<u64> {
        self.deadline
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// More prefetches than begin a batch by themselves.
    #[cfg(test)]
    pub(super) fn fill(&mut self, handles: impl Iterator<Item = ContextHandle>) {
        self.waiting.extend(handles.map(|handle| (handle, FlightCause::Prefetch)));
    }
}

impl ContextCache {
    /// Names contexts that will be needed soon.
    pub fn prefetch(&mut self, handles: &[ContextHandle], now: u64) {
        self.advance(now);
        for &handle in handles {
            let Some(word) = self.directory.read(handle) else { continue };
            match word.place() {
                ContextPlace::L2 => self.prefetch_l2(handle),
                ContextPlace::L3 => self.prefetch_l3(handle),
                _ => {}
            }
        }
        self.serve_background();
    }

    /// Requests ahead of their turn for which prefetches are worthwhile at this rate: those of one miss.
    #[must_use]
    pub fn prefetch_distance(&self, requests_per_s: u64) -> u64 {
        let miss_ns = if self.cxl.is_on() { self.cfg.l2_ns } else { self.cfg.l3_ns };
        (miss_ns * requests_per_s).div_ceil(1_000_000_000)
    }

    fn prefetch_l2(&mut self, handle: ContextHandle) {
        if self.queue.contains(handle) {
            return;
        }
        self.counts.prefetches_asked += 1;
        let is_full = self.queue.waiting.len() >= QUEUE_LIMIT;
        if is_full || self.memory.busy_percent(self.now) > BUSY_LIMIT {
            self.counts.prefetches_dropped += 1;
            return;
        }
        self.queue.waiting.push_back((handle, FlightCause::Prefetch));
        self.queue.deadline.get_or_insert(self.now + BATCH_WAIT_NS);
        if self.queue.waiting.len() >= BATCH {
            self.begin_batch();
        }
    }

    fn prefetch_l3(&mut self, handle: ContextHandle) {
        self.counts.prefetches_asked += 1;
        let urgent = self.urgent.depth(self.now);
        if self.memory.busy_percent(self.now) > BUSY_LIMIT {
            self.counts.prefetches_dropped += 1;
        } else if !self.mailbox.push(handle, urgent) {
            self.counts.prefetches_dropped += 1;
            self.counts.mailbox_dropped += 1;
        }
        let depth = (self.mailbox.depth() + urgent) as u64;
        self.counts.mailbox_depth_max = self.counts.mailbox_depth_max.max(depth);
    }

    /// B: a request waits for a context in L2.
    pub(super) fn serve_l2(
        &mut self,
        handle: ContextHandle,
        word: EntryWord,
        op: SmallOp,
    ) -> Access {
        self.counts.l2_hits += 1;
        self.counts.l2_bytes += handle.kind().token_len() as u64;
        self.counts.kinds[handle.kind() as usize].l2_hits += 1;
        self.cxl.touch(word.offset());
        if !self.fills_on_demand() {
            let small = self.cxl.record_mut(word.offset()).map(|record| record.apply(op));
            return Access { ready_at: self.read_l2(1), mode: AccessMode::InPlace, small };
        }
        self.counts.fallbacks_batch += 1;
        if self.queue.waiting.len() >= QUEUE_LIMIT {
            self.displace();
        }
        // A prefetch of it that waits is one that a request waits for now.
        let len = self.queue.waiting.len();
        self.queue.waiting.retain(|(other, _)| *other != handle);
        self.counts.prefetches_late += (len - self.queue.waiting.len()) as u64;
        self.counts.prefetches_skipped += (len - self.queue.waiting.len()) as u64;
        self.queue.waiting.push_front((handle, FlightCause::Demand));
        self.begin_batch();
        self.wait_for(handle, op, AccessMode::Batch)
    }

    /// A request displaces the newest prefetch.
    fn displace(&mut self) {
        if self.queue.waiting.pop_back().is_some() {
            self.counts.prefetches_dropped += 1;
        }
    }

    /// C: a request waits for a context in host memory.
    pub(super) fn serve_l3(
        &mut self,
        handle: ContextHandle,
        word: EntryWord,
        op: SmallOp,
    ) -> Access {
        self.counts.l3_hits += 1;
        self.counts.l3_bytes += handle.kind().token_len() as u64;
        self.counts.kinds[handle.kind() as usize].l3_hits += 1;
        if !self.fills_on_demand() {
            let small = self.host.record_mut(handle).map(|record| record.apply(op));
            let bytes = handle.kind().descriptor_len().into();
            let ready_at = self.memory.read(self.now, self.cfg.l3_ns, bytes);
            return Access { ready_at, mode: AccessMode::InPlace, small };
        }
        self.counts.fallbacks_expand += 1;
        if let Some(other) = self.mailbox.before_urgent() {
            self.expand(other, FlightCause::Prefetch);
        }
        self.expand_word(handle, word, FlightCause::Demand);
        self.wait_for(handle, op, AccessMode::Expand)
    }

    /// An access of a context that moves.
    pub(super) fn meet(&mut self, handle: ContextHandle, op: SmallOp) -> Access {
        self.counts.migration_hits += 1;
        self.counts.migration_bytes += handle.kind().token_len() as u64;
        self.counts.kinds[handle.kind() as usize].migration_hits += 1;
        if let Some(flight) = self.flights.get_mut(handle)
            && flight.cause == FlightCause::Prefetch
            && !std::mem::replace(&mut flight.is_late, true)
        {
            self.counts.prefetches_late += 1;
        }
        if op == SmallOp::Read
            && self.cfg.in_flight == MeetMigration::Optimistic
            && let Some(access) = self.read_old_place(handle)
        {
            return access;
        }
        self.wait_for(handle, op, AccessMode::Waits)
    }

    /// Reads the place that a migration leaves. `None`: it ends before the read does, or updates wait for it: what is
    /// read there would be old when the version is looked at again.
    fn read_old_place(&mut self, handle: ContextHandle) -> Option<Access> {
        let (from, ready_at, has_ops) =
            self.flights.get(handle).map(|f| (f.from, f.ready_at, !f.ops.is_empty()))?;
        if has_ops {
            return None;
        }
        let (read_at, small) = match from.place() {
            ContextPlace::L1 => {
                (self.now + self.cfg.l1_ns, self.chip.slot(from.offset()).word.read())
            }
            ContextPlace::L2 => (self.read_l2(1), self.cxl.record(from.offset())?.small),
            _ => {
                let bytes = handle.kind().descriptor_len().into();
                let at = self.memory.read(self.now, self.cfg.l3_ns, bytes);
                (at, self.host.record(handle)?.small)
            }
        };
        if read_at >= ready_at && !self.faults.no_second_look() {
            self.counts.optimistic_retries += 1;
            return None;
        }
        self.counts.optimistic_reads += 1;
        Some(Access { ready_at: read_at, mode: AccessMode::Optimistic, small: Some(small) })
    }

    /// The request waits for the flight of its context.
    fn wait_for(&mut self, handle: ContextHandle, op: SmallOp, mode: AccessMode) -> Access {
        let now = self.now;
        let Some(flight) = self.flights.get_mut(handle) else {
            // The batch left it out; it is read alone.
            self.counts.fetches_again += 1;
            let access = Access { ready_at: now, mode, small: None };
            return self.reread(handle, op).unwrap_or(access);
        };
        if flight.cause == FlightCause::Prefetch {
            flight.cause = FlightCause::Demand;
        }
        flight.ops.push((op, now));
        self.counts.waiters += 1;
        Access { ready_at: flight.ready_at.max(now) + self.cfg.l1_ns, mode, small: None }
    }

    fn reread(&mut self, handle: ContextHandle, op: SmallOp) -> Option<Access> {
        let word = self.word(handle)?;
        let ready_at = self.read_l2(1);
        self.begin_flight(handle, word, (ContextPlace::L1, FlightCause::Demand), ready_at);
        let flight = self.flights.get_mut(handle)?;
        flight.ops.push((op, self.now));
        self.counts.waiters += 1;
        Some(Access { ready_at: ready_at + self.cfg.l1_ns, mode: AccessMode::Batch, small: None })
    }

    /// Reads what waits from L2: one read for each page.
    pub(super) fn begin_batch(&mut self) {
        let count = self.queue.waiting.len().min(BATCH_MAX);
        let batch: Vec<_> = self.queue.waiting.drain(..count).collect();
        self.queue.deadline = (!self.queue.waiting.is_empty()).then_some(self.now + BATCH_WAIT_NS);
        let mut pages: BTreeMap<u32, Vec<(ContextHandle, EntryWord, FlightCause)>> =
            BTreeMap::new();
        for (handle, cause) in batch {
            let word = self.directory.read(handle);
            match word.filter(|word| word.place() == ContextPlace::L2) {
                Some(word) => pages
                    .entry(self.cxl.page(word.offset()))
                    .or_default()
                    .push((handle, word, cause)),
                None => self.counts.prefetches_skipped += u64::from(cause == FlightCause::Prefetch),
            }
        }
        for mut members in pages.into_values() {
            let ready_at = self.read_l2(members.len() as u64);
            if self.faults.batch_drops_last() && members.len() > 1 {
                members.pop();
            }
            for (handle, word, cause) in members {
                self.cxl.touch(word.offset());
                self.begin_flight(handle, word, (ContextPlace::L1, cause), ready_at);
            }
        }
    }

    /// When a read of so many tokens of a page is complete.
    fn read_l2(&mut self, tokens: u64) -> u64 {
        self.memory.read(self.now, self.cfg.l2_ns, tokens * LINE)
    }

    /// Serves background requests while reads are free.
    pub(super) fn serve_background(&mut self) {
        while self.memory.free_at(self.now) <= self.now {
            let Some(handle) = self.mailbox.pop() else { return };
            self.expand(handle, FlightCause::Prefetch);
        }
    }

    /// When background requests can go on.
    pub(super) fn background_at(&mut self) -> Option<u64> {
        (self.mailbox.depth() > 0).then(|| self.memory.free_at(self.now))
    }

    fn expand(&mut self, handle: ContextHandle, cause: FlightCause) {
        let word = self.directory.read(handle).filter(|word| word.place() == ContextPlace::L3);
        match word {
            Some(word) => self.expand_word(handle, word, cause),
            None => self.counts.prefetches_skipped += 1,
        }
    }

    fn expand_word(&mut self, handle: ContextHandle, word: EntryWord, cause: FlightCause) {
        let begin = self.urgent.begin(self.now);
        self.counts.mailbox_waits += u64::from(begin > self.now);
        let bytes = handle.kind().descriptor_len().into();
        let ready_at = self.memory.read(begin, self.cfg.l3_ns, bytes);
        self.urgent.end(ready_at);
        let depth = (self.mailbox.depth() + self.urgent.depth(self.now)) as u64;
        self.counts.mailbox_depth_max = self.counts.mailbox_depth_max.max(depth);
        self.begin_flight(handle, word, (ContextPlace::L1, cause), ready_at);
    }

    /// A context leaves its place.
    pub(super) fn begin_flight(
        &mut self,
        handle: ContextHandle,
        word: EntryWord,
        (to, cause): (ContextPlace, FlightCause),
        ready_at: u64,
    ) {
        let moving = match to {
            ContextPlace::L1 => ContextPlace::ToL1,
            ContextPlace::L2 => ContextPlace::ToL2,
            _ => ContextPlace::ToL3,
        };
        if word.place().is_moving() || !self.publish(handle, word, word.leaving(moving)) {
            return;
        }
        let record = match word.place() {
            ContextPlace::L1 => self.leave_slot(handle, word.offset()),
            ContextPlace::L2 => {
                self.cxl.hold(word.offset());
                self.cxl.record(word.offset()).copied()
            }
            _ => None,
        };
        self.counts.fetches += 1;
        self.counts.prefetches_issued += u64::from(cause == FlightCause::Prefetch);
        let flight = Flight {
            ticket: self.flights.ticket(),
            to,
            from: word,
            version: word.version(),
            record,
            cause,
            begun_at: self.now,
            ready_at,
            ops: Vec::new(),
            is_late: false,
            tries: 0,
        };
        self.flights.begin(handle, flight);
    }

    /// What the host answers to the flight of a context in its memory.
    pub(super) fn ask_host(&mut self, handle: ContextHandle, ticket: u32) -> Vec<ExpandAnswer> {
        let mut asked = ExpandRequest::one(ticket, handle);
        if self.faults.host_other_handle() {
            asked.offset ^= asked.len;
        }
        if self.faults.host_silent() {
            return Vec::new();
        }
        match self.host.answer(&asked) {
            Ok(answer) if self.faults.host_answers_twice() => vec![answer.clone(), answer],
            Ok(answer) => vec![answer],
            Err(_) => {
                self.counts.host_refused += 1;
                Vec::new()
            }
        }
    }

    /// Takes an answer of the host; its flight has the record then, if it is of the context that was asked for.
    pub(super) fn on_answer(&mut self, handle: ContextHandle, answer: &ExpandAnswer) {
        let waits =
            |flight: &&mut Flight| flight.ticket == answer.ticket && flight.record.is_none();
        let Some(flight) = self.flights.get_mut(handle).filter(waits) else {
            self.counts.answers_unexpected += 1;
            return;
        };
        let Ok((_, records)) = decode(&answer.image, 1) else {
            self.counts.pages_refused += 1;
            return;
        };
        let is_it = |record: &&ContextRecord| record.token.handle() == handle;
        match records.iter().flatten().find(is_it) {
            Some(record) => flight.record = Some(*record),
            None => self.counts.answers_wrong += 1,
        }
    }
}

/// Prefetches that begin a batch.
const BATCH: usize = 32;
/// Time after which fewer do, in ns.
pub(super) const BATCH_WAIT_NS: u64 = 200;
/// Contexts that one batch reads at most.
const BATCH_MAX: usize = 256;
/// Contexts that may wait for a batch.
const QUEUE_LIMIT: usize = 1024;
/// Occupied share of the link above which there are no new prefetches, in percent.
const BUSY_LIMIT: u64 = 90;
/// Bytes of a line.
const LINE: u64 = 64;
