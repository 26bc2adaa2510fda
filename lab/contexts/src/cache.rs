//! The context cache: three tiers, three modes of access, migrations between them.
//!
//! *Owns*: all tiers and what moves between them; what is pinned (at most a quarter of L1), until when. *Takes*:
//! accesses with the time. *Gives*: when each context is there. *Must not*: decide a right, read a clock.

mod fetch;
mod maintain;
mod moves;
#[cfg(all(test, not(loom)))]
mod tests;

use std::collections::{BTreeMap, VecDeque};

use fetch::PrefetchQueue;
use maintain::{Adaptation, Rotation};
use moves::Flights;
use thiserror::Error;

use crate::{
    cfg::{CacheCfg, ContextFaults, FillRule},
    cxl::CxlPages,
    directory::{ContextPlace, DIRTY, Directory, EntryWord, PINNED, STRONG},
    handle::{ContextHandle, ContextValueError},
    host::{HostTables, Mailbox},
    l1::ChipSlots,
    memory::{BoundedService, FarMemory},
    page::ContextRecord,
    policy::Policy,
    stats::ContextCounts,
    token::{ContextToken, SmallOp, TokenBody},
};

/// How an access was served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessMode {
    /// A: the context is in L1.
    Inline,
    /// A, after four lost exchanges: by the batch worker.
    Contended,
    /// B: read from L2 in a batch.
    Batch,
    /// C: asked of the host.
    Expand,
    /// Read where it is, without a move: below the threshold of [`FillRule::Threshold`].
    InPlace,
    /// It waits for a migration that was under way.
    Waits,
    /// Read at the place that a migration leaves.
    Optimistic,
}

/// What an access gave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// When the context is there, in ns; later if a strong field changes meanwhile.
    pub ready_at: u64,
    /// How it was served.
    pub mode: AccessMode,
    /// Small fields after the operation; `None`: a [`ContextWake`] brings them.
    pub small: Option<u64>,
}

/// A request that waited can go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ContextWake {
    /// What it waited for.
    pub handle: ContextHandle,
    /// What it asked for.
    pub op: SmallOp,
    /// When it goes on.
    pub at: u64,
    /// Small fields after its operation; `None`: the context was destroyed, or the host did not answer.
    pub small: Option<u64>,
}

/// There is no such context, or it is of another life of the handle.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("{handle:?} has no context of generation {generation}: name a living one")]
pub struct NoContext {
    /// Handle that was named.
    pub handle: ContextHandle,
    /// Which life of it.
    pub generation: u16,
}

/// A model of what a NIC keeps of its contexts on the chip.
#[derive(Debug)]
pub struct ContextCache {
    cfg: CacheCfg,
    directory: Directory,
    chip: ChipSlots,
    cxl: CxlPages,
    host: HostTables,
    memory: FarMemory,
    flights: Flights,
    queue: PrefetchQueue,
    mailbox: Mailbox,
    /// Urgent requests of the mailbox.
    urgent: BoundedService,
    /// Operations for the batch worker.
    contended: Vec<(ContextHandle, SmallOp)>,
    pins: Pins,
    wakes: VecDeque<ContextWake>,
    rotation: Rotation,
    adaptation: Adaptation,
    /// Accesses until the next one that is counted.
    sample_left: u32,
    now: u64,
    counts: ContextCounts,
    faults: ContextFaults,
    /// Exchanges that another engine wins, for tests.
    #[cfg(test)]
    lost_exchanges: u32,
}

impl ContextCache {
    /// Makes an empty cache; `policy` makes the replacement policy of each bank for a number of slots.
    ///
    /// # Errors
    /// A parameter outside its range.
    pub fn new(
        cfg: CacheCfg,
        policy: &mut dyn FnMut(u32) -> Box<dyn Policy>,
    ) -> Result<Self, ContextValueError> {
        cfg.check()?;
        Ok(Self::unchecked(cfg, policy))
    }

    /// As [`ContextCache::new`], also of sizes that only models of tests have.
    fn unchecked(cfg: CacheCfg, policy: &mut dyn FnMut(u32) -> Box<dyn Policy>) -> Self {
        Self {
            directory: Directory::default(),
            chip: ChipSlots::new(cfg.l1_entries, cfg.banks, policy),
            cxl: CxlPages::new(cfg.l2_bytes, cfg.page_bytes),
            host: HostTables::default(),
            memory: FarMemory::new(cfg.outstanding, cfg.link_gbps, cfg.seed),
            flights: Flights::default(),
            queue: PrefetchQueue::default(),
            mailbox: Mailbox::default(),
            urgent: BoundedService::new(crate::host::MAILBOX_PLACES),
            contended: Vec::new(),
            pins: Pins::default(),
            wakes: VecDeque::new(),
            rotation: Rotation::default(),
            adaptation: Adaptation::new(cfg.promote_l1),
            sample_left: 0,
            now: 0,
            counts: ContextCounts::default(),
            faults: ContextFaults::default(),
            #[cfg(test)]
            lost_exchanges: 0,
            cfg,
        }
    }

    /// Makes room for indices below `count` at once: 16 bytes each in the directory.
    ///
    /// # Errors
    /// More than [`CacheCfg::index_limit`].
    pub fn reserve(
        &mut self,
        kind: crate::ContextKind,
        count: usize,
    ) -> Result<(), ContextValueError> {
        self.directory.reserve(kind, count, self.cfg.index_limit)
    }

    /// Makes a context, in host memory. Returns which life of its handle it is.
    ///
    /// # Errors
    /// An index beyond [`CacheCfg::index_limit`], a field that is too wide, a handle in use.
    pub fn create(&mut self, index: u32, body: &TokenBody) -> Result<u16, ContextValueError> {
        let probe = ContextToken::new(index, 0, body)?;
        let handle = probe.handle();
        self.directory.grow(handle, self.cfg.index_limit)?;
        if self.directory.read(handle).is_some() {
            return Err(ContextValueError::new(
                "index",
                index.into(),
                "not that of a living context",
            ));
        }
        let generation = self.directory.generation(handle);
        self.directory.set_generation(handle, generation);
        let token = ContextToken::new(index, generation, body)?;
        self.host.put(ContextRecord { token, small: 0 });
        if let Some(word) = self.word(handle) {
            self.publish(handle, word, word.moved(ContextPlace::L3, index, 0));
        }
        Ok(generation)
    }

    /// Returns the token of a living context, as the host has it.
    #[must_use]
    pub fn token(&self, handle: ContextHandle) -> Option<ContextToken> {
        self.host.record(handle).map(|record| record.token)
    }

    /// Removes a context from all tiers; migrations of it end. Accesses with its generation find nothing from now on.
    pub fn destroy(&mut self, handle: ContextHandle, now: u64) {
        self.advance(now);
        let Some(word) = self.directory.read(handle) else { return };
        self.drop_flight(handle);
        self.unpin(handle);
        if !self.faults.stale_slot() {
            let slot = self.chip.find(handle);
            if let Some(slot) = slot {
                let home = self.chip.slot(slot).home;
                self.chip.hide(handle, slot);
                self.chip.free(slot);
                home.into_iter().for_each(|place| self.cxl.remove(place));
            }
        }
        if word.place() == ContextPlace::L2 {
            self.cxl.remove(word.offset());
        }
        self.host.remove(handle);
        for (_, op) in
            self.contended.extract_if(.., |(other, _)| *other == handle).collect::<Vec<_>>()
        {
            self.wake_one(handle, op, None);
        }
        let word = self.word(handle).unwrap_or(word);
        self.publish(handle, word, word.moved(ContextPlace::Absent, 0, 0));
        self.directory.set_generation(handle, self.directory.generation(handle).wrapping_add(1));
    }

    /// Looks a context up, as its bank's owner.
    ///
    /// # Errors
    /// There is no such context.
    pub fn access(
        &mut self,
        handle: ContextHandle,
        generation: u16,
        op: SmallOp,
        now: u64,
    ) -> Result<Access, NoContext> {
        let engine = 0;
        self.access_by(engine, (handle, generation), op, now)
    }

    /// Looks a context up, as one of several engines.
    ///
    /// # Errors
    /// There is no such context.
    pub fn access_by(
        &mut self,
        engine: u32,
        (handle, generation): (ContextHandle, u16),
        op: SmallOp,
        now: u64,
    ) -> Result<Access, NoContext> {
        self.advance(now);
        if let Some(slot) = self.chip.find(handle)
            && self.chip.slot(slot).token.is_some_and(|token| token.generation() == generation)
        {
            self.note(handle, now);
            return Ok(self.inline(engine, handle, slot, op));
        }
        let word = self.directory.read(handle);
        let Some(word) = word.filter(|_| self.directory.generation(handle) == generation) else {
            self.counts.not_found += 1;
            return Err(NoContext { handle, generation });
        };
        self.note(handle, now);
        let access = match word.place() {
            ContextPlace::L1 => return Ok(self.inline(engine, handle, word.offset(), op)),
            ContextPlace::L2 => self.serve_l2(handle, word, op),
            ContextPlace::L3 => self.serve_l3(handle, word, op),
            _ => self.meet(handle, op),
        };
        self.counts.accesses += 1;
        self.counts.l1_misses += 1;
        self.counts.access_bytes += handle.kind().token_len() as u64;
        self.counts.kinds[handle.kind() as usize].accesses += 1;
        self.counts.wait_ns.note(access.ready_at.saturating_sub(now));
        Ok(access)
    }

    /// Changes strong fields: all tiers have them when this returns. Returns when host memory shows them.
    ///
    /// # Errors
    /// A field that is too wide, or no such context.
    pub fn write_strong(
        &mut self,
        (handle, generation): (ContextHandle, u16),
        body: &TokenBody,
        now: u64,
    ) -> Result<u64, ContextValueError> {
        self.advance(now);
        let token = ContextToken::new(handle.index(), generation, body)?;
        let word = self.directory.read(handle);
        let is_it = token.handle() == handle && self.directory.generation(handle) == generation;
        let Some(word) = word.filter(|_| is_it) else {
            return Err(ContextValueError::new(
                "handle",
                handle.bits().into(),
                "that of a living context of this kind",
            ));
        };
        let under_way = word.flagged(word.flags() | STRONG);
        self.publish(handle, word, under_way);
        let slot = self.chip.find(handle);
        let mut home = (word.place() == ContextPlace::L2).then_some(word.offset());
        if let Some(slot) = slot {
            let slot = self.chip.slot_mut(slot);
            (slot.token, home) = (Some(token), slot.home);
        }
        home = home.or_else(|| self.lower_place(handle));
        self.flights.retoken(handle, token);
        let mut visible_at = now;
        if slot.is_none() || !self.faults.strong_written_late() {
            if let Some(record) = home.and_then(|place| self.cxl.record_mut(place)) {
                record.token = token;
            }
            if let Some(record) = self.host.record_mut(handle) {
                record.token = token;
            }
            let bytes = handle.kind().token_len() as u64;
            self.counts.written_through_bytes += bytes;
            visible_at = self.memory.write(now, bytes);
        }
        // The version tells a fetch under way that what it read is of before.
        let to = word.moved(word.place(), word.offset(), word.flags());
        self.publish(handle, under_way, to);
        Ok(visible_at)
    }

    /// A request that waited and can go on.
    pub fn poll_wake(&mut self) -> Option<ContextWake> {
        self.wakes.pop_front()
    }

    /// Returns the counters since the start.
    #[must_use]
    pub fn counts(&mut self) -> &ContextCounts {
        self.counts.hits_lost = self.chip.hits_lost;
        &self.counts
    }

    /// Returns the directory, to be read.
    #[must_use]
    pub const fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Plants a mistake, or none.
    #[cfg(test)]
    pub fn plant(&mut self, fault: Option<crate::ContextFault>) {
        self.faults.planted = fault;
    }

    /// A: one look and one exchange.
    fn inline(&mut self, engine: u32, handle: ContextHandle, slot: u32, op: SmallOp) -> Access {
        #[cfg(test)]
        let (mut lost, word) = (self.lost_exchanges, &self.chip.slot(slot).word);
        #[cfg(test)]
        let interfere = || {
            if lost > 0 {
                lost -= 1;
                word.install(word.read() ^ 1 << 63);
            }
        };
        #[cfg(not(test))]
        let interfere = || ();
        let (changed, retries) = self.chip.slot(slot).word.update(op, interfere);
        self.counts.inline_retries += retries;
        self.count_hits(handle, 1);
        let ready_at = self.now + self.cfg.l1_ns;
        self.counts.wait_ns.note(self.cfg.l1_ns);
        let Some((old, new)) = changed else {
            self.counts.contended += 1;
            self.counts.waiters += 1;
            self.contended.push((handle, op));
            let ready_at = ready_at + fetch::BATCH_WAIT_NS;
            return Access { ready_at, mode: AccessMode::Contended, small: None };
        };
        if old != new {
            self.mark_dirty(handle);
        }
        self.chip.on_hit(slot, engine);
        Access { ready_at, mode: AccessMode::Inline, small: Some(new) }
    }

    fn mark_dirty(&self, handle: ContextHandle) {
        if let Some(word) = self.word(handle).filter(|word| !word.has(DIRTY)) {
            self.publish(handle, word, word.flagged(word.flags() | DIRTY));
        }
    }

    fn count_hits(&mut self, handle: ContextHandle, times: u64) {
        let bytes = handle.kind().token_len() as u64 * times;
        self.counts.accesses += times;
        self.counts.l1_hits += times;
        self.counts.l1_bytes += bytes;
        self.counts.access_bytes += bytes;
        let kind = &mut self.counts.kinds[handle.kind() as usize];
        kind.accesses += times;
        kind.l1_hits += times;
        if self.flights.was_prefetched(handle) {
            self.counts.prefetches_useful += 1;
        }
    }

    /// Counts one of `sample` accesses in the window.
    fn note(&mut self, handle: ContextHandle, now: u64) {
        if self.sample_left > 0 {
            self.sample_left -= 1;
            return;
        }
        self.sample_left = self.cfg.sample - 1;
        let weight = u16::try_from(self.cfg.sample).unwrap_or(u16::MAX);
        self.directory.note(handle, now, self.cfg.window_ns / 2, weight);
    }

    fn word(&self, handle: ContextHandle) -> Option<EntryWord> {
        self.directory.entry(handle).map(|entry| entry.read())
    }

    /// Changes an entry that is still the one that was read. Whether it was.
    fn publish(&self, handle: ContextHandle, read: EntryWord, to: EntryWord) -> bool {
        let to = match self.faults.version_not_counted() && to.place() != read.place() {
            true => EntryWord::new(to.place(), to.offset(), to.flags(), read.version()),
            false => to,
        };
        self.directory.entry(handle).is_some_and(|entry| entry.exchange(read, to))
    }

    const fn fills_on_demand(&self) -> bool {
        matches!(self.cfg.fill, FillRule::Demand)
    }
}

/// Hits in a row that can change the data of a policy for a slot: the counts in its 2 bytes have at most 3 values above 0.
const HITS_THAT_COUNT: u64 = 4;

impl ContextCache {
    /// Accesses a context `times` times, with nothing between them, the last one at `now`. Whether it is in L1; if not, nothing
    /// happened. `op` reads or adds.
    pub fn hit_again(
        &mut self,
        (handle, generation): (ContextHandle, u16),
        op: SmallOp,
        (times, now): (u64, u64),
    ) -> bool {
        self.advance(now);
        let Some(slot) = self.chip.find(handle) else { return false };
        if self.chip.slot(slot).token.is_none_or(|token| token.generation() != generation) {
            return false;
        }
        let all = match op {
            SmallOp::Add(by) => SmallOp::Add(by.wrapping_mul(times)),
            SmallOp::Read | SmallOp::Store { .. } => op,
        };
        if let (Some((old, new)), _) = self.chip.slot(slot).word.update(all, || ())
            && old != new
        {
            self.mark_dirty(handle);
        }
        let weight = u16::try_from(times).unwrap_or(u16::MAX);
        self.directory.note(handle, now, self.cfg.window_ns / 2, weight);
        (0..times.min(HITS_THAT_COUNT)).for_each(|_| self.chip.on_hit(slot, 0));
        self.count_hits(handle, times);
        self.counts.wait_ns.note_times(self.cfg.l1_ns, times);
        true
    }
}

/// Pins, each until a time.
#[derive(Debug, Default)]
struct Pins {
    until: BTreeMap<ContextHandle, u64>,
    /// In the order of their ends; those that ended early are skipped.
    ends: VecDeque<(u64, ContextHandle)>,
}

impl Pins {
    /// Whether a pin waits for the context or holds it.
    fn is_wanted(&self, handle: ContextHandle) -> bool {
        self.until.contains_key(&handle)
    }

    fn len(&self) -> usize {
        self.until.len()
    }

    /// Time at which the first pin ends.
    fn end_at(&self) -> Option<u64> {
        self.ends.front().map(|(at, _)| *at)
    }
}

impl ContextCache {
    /// Keeps a context in L1, from when it is there until [`ContextCache::unpin`] or 100 us from now. Whether it may: a
    /// quarter of L1 can be pinned.
    pub fn pin(&mut self, handle: ContextHandle, now: u64) -> bool {
        self.advance(now);
        let is_new = !self.pins.is_wanted(handle);
        let is_full = self.pins.len() >= self.chip.entries() as usize / PINNED_PART;
        if self.directory.read(handle).is_none() || is_new && is_full {
            self.counts.pins_refused += 1;
            return false;
        }
        self.counts.pins += u64::from(is_new);
        self.pins.until.insert(handle, now + PIN_NS);
        self.pins.ends.push_back((now + PIN_NS, handle));
        self.repin(handle);
        true
    }

    /// The last packet of the message passed.
    pub fn unpin(&mut self, handle: ContextHandle) {
        if self.pins.until.remove(&handle).is_some() {
            self.flag_pinned(handle, false);
        }
    }

    /// A context that is in L1 has the flag of its pin.
    fn repin(&self, handle: ContextHandle) {
        if self.pins.is_wanted(handle) {
            self.flag_pinned(handle, true);
        }
    }

    fn end_pins(&mut self) {
        while self.pins.ends.front().is_some_and(|(at, _)| *at <= self.now) {
            let Some((at, handle)) = self.pins.ends.pop_front() else { return };
            if self.pins.until.get(&handle) == Some(&at) {
                self.counts.pins_expired += 1;
                self.unpin(handle);
            }
        }
    }

    fn flag_pinned(&self, handle: ContextHandle, is_pinned: bool) {
        let in_l1 = self.word(handle).filter(|word| word.place() == ContextPlace::L1);
        if let Some(word) = in_l1 {
            let flags = word.flags() & !PINNED | if is_pinned { PINNED } else { 0 };
            self.publish(handle, word, word.flagged(flags));
        }
    }
}

/// One of so many slots can be pinned.
const PINNED_PART: usize = 4;
/// Longest time of a pin.
const PIN_NS: u64 = 100_000;
