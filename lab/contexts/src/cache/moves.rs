//! Migrations: those under way, and the end of each: installing, evicting, writing back.
//!
//! *Owns*: a flight for each context that moves, who waits for it, when it is due; the order of the steps at its end.
//! *Gives*: contexts at their new place, and wakes. *Must not*: use a victim's slot before its entry names another
//! place; lose a difference.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap},
};

use super::{ContextCache, ContextWake};
use crate::{
    directory::{ContextPlace, DIRTY, EntryWord, PINNED},
    handle::ContextHandle,
    page::ContextRecord,
    token::{ContextToken, SmallOp},
};

impl ContextCache {
    /// A flight is due.
    pub(super) fn land(&mut self, ticket: u32, handle: ContextHandle) {
        let Some(flight) = self.flights.get(handle).filter(|flight| flight.ticket == ticket) else {
            self.counts.answers_unexpected += 1;
            return;
        };
        if flight.record.is_none() {
            for answer in self.ask_host(handle, ticket) {
                self.on_answer(handle, &answer);
            }
        }
        let Some(word) = self.word(handle) else { return };
        let is_whole = self
            .flights
            .get(handle)
            .is_some_and(|flight| flight.record.is_some() && flight.version == word.version());
        if !is_whole {
            self.land_later(handle, word);
            return;
        }
        let Some(flight) = self.flights.end(handle) else { return };
        self.counts.fetches_landed += 1;
        self.counts.migration_ns.note(self.now - flight.begun_at);
        self.release_source(&flight);
        match flight.to {
            ContextPlace::L1 => self.land_l1(handle, word, flight),
            ContextPlace::L2 => self.land_l2(handle, word, flight),
            _ => self.land_l3(handle, word, flight),
        }
    }

    /// The version moved, or the host did not answer: the source is read again, at most [`TRIES`] times.
    fn land_later(&mut self, handle: ContextHandle, word: EntryWord) {
        let Some(from) = self.flights.get(handle).map(|flight| flight.from) else { return };
        let (record, median, bytes) = match from.place() {
            ContextPlace::L1 => (self.leaving_record(handle, from.offset()), self.cfg.l1_ns, 0),
            ContextPlace::L2 => (self.cxl.record(from.offset()).copied(), self.cfg.l2_ns, 64),
            _ => (None, self.cfg.l3_ns, handle.kind().descriptor_len().into()),
        };
        let ready_at = self.memory.read(self.now, median, bytes);
        let Some(mut flight) = self.flights.end(handle) else { return };
        // A version that moved is no failure: its writer went on.
        flight.tries += u32::from(flight.version == word.version());
        if flight.tries >= TRIES {
            self.counts.fetches_failed += 1;
            self.release_source(&flight);
            self.publish(
                handle,
                word,
                word.moved(from.place(), from.offset(), word.flags() & !PINNED),
            );
            self.wake(handle, &flight, |_| None);
            return;
        }
        self.counts.fetches_again += 1;
        (flight.version, flight.record, flight.ready_at) = (word.version(), record, ready_at);
        self.flights.begin(handle, flight);
    }

    fn land_l1(&mut self, handle: ContextHandle, word: EntryWord, flight: Flight) {
        let Some(record) = flight.record else { return };
        self.chip.on_miss(handle);
        let is_in_l2 = flight.from.place() == ContextPlace::L2;
        let home = if is_in_l2 { Some(flight.from.offset()) } else { self.put_in_l2(record) };
        home.into_iter().for_each(|place| self.cxl.hold(place));
        let has_room = self.make_room(handle);
        home.into_iter().for_each(|place| self.cxl.release(place));
        let slot =
            if has_room { self.chip.install(record.token, record.small, home) } else { None };
        let Some(slot) = slot else {
            self.stay_below(handle, word, (record, home), &flight);
            return;
        };
        let mut small = record.small;
        self.wake(handle, &flight, |op| {
            small = op.apply(small);
            Some(small)
        });
        self.chip.slot(slot).word.install(small);
        let flags = if small == record.small { 0 } else { DIRTY };
        self.publish(handle, word, word.moved(ContextPlace::L1, slot, flags));
        self.counts.installed += 1;
        self.counts.migrations_to_l1 += 1;
        if flight.cause == FlightCause::Prefetch {
            self.flights.note_prefetched(handle);
        }
        self.repin(handle);
    }

    /// The policy refused it: its requests are served from the staging area, changes go below.
    fn stay_below(
        &mut self,
        handle: ContextHandle,
        word: EntryWord,
        (record, home): (ContextRecord, Option<u32>),
        flight: &Flight,
    ) {
        let mut small = record.small;
        self.wake(handle, flight, |op| {
            small = op.apply(small);
            Some(small)
        });
        if self.faults.bypass_as_hit() {
            self.counts.l1_hits += 1;
        }
        self.counts.refused += 1;
        self.counts.staged += 1;
        self.write_back(handle, (record.small, small), home);
        let (place, offset) = below(handle, home);
        self.publish(handle, word, word.moved(place, offset, 0));
    }

    fn land_l2(&mut self, handle: ContextHandle, word: EntryWord, flight: Flight) {
        let Some(mut record) = flight.record else { return };
        let from_slot = flight.from.place() == ContextPlace::L1;
        let home = if from_slot { self.chip.slot(flight.from.offset()).home } else { None };
        let old = record.small;
        self.wake(handle, &flight, |op| {
            record.small = op.apply(record.small);
            Some(record.small)
        });
        let place = match home {
            Some(place) => Some(place),
            None => self.put_in_l2(record),
        };
        // What is below may be older than the slot was.
        let below_small = self.small_below(handle, home).unwrap_or(old);
        self.write_back(handle, (below_small, record.small), place);
        let (at, offset) = below(handle, place);
        self.publish(handle, word, word.moved(at, offset, 0));
        if from_slot {
            self.chip.free(flight.from.offset());
        }
        match at {
            ContextPlace::L2 => self.counts.migrations_to_l2 += 1,
            _ => self.counts.migrations_to_l3 += 1,
        }
    }

    fn land_l3(&mut self, handle: ContextHandle, word: EntryWord, flight: Flight) {
        let Some(record) = flight.record else { return };
        let mut small = record.small;
        self.wake(handle, &flight, |op| {
            small = op.apply(small);
            Some(small)
        });
        let old = self.host.record(handle).map_or(small, |record| record.small);
        self.write_back(handle, (old, small), None);
        self.publish(handle, word, word.moved(ContextPlace::L3, handle.index(), 0));
        self.cxl.remove(flight.from.offset());
        self.counts.migrations_to_l3 += 1;
    }

    /// Whether a slot is free for the handle, if need be after an eviction.
    fn make_room(&mut self, handle: ContextHandle) -> bool {
        if self.chip.has_room(handle) {
            return true;
        }
        let (directory, ignores_pins) = (&self.directory, self.faults.pinned_evicted());
        let may_leave = |slot: &crate::l1::ChipSlot| {
            let word = slot.token.and_then(|token| directory.read(token.handle()));
            word.is_some_and(|word| {
                word.place() == ContextPlace::L1 && (ignores_pins || !word.has(PINNED))
            })
        };
        let Some(victim) = self.chip.victim(handle, may_leave) else { return false };
        if !self.pins.is_wanted(handle) && !self.chip.admit(handle, victim) {
            return false;
        }
        self.evict(victim);
        true
    }

    /// Gives up a slot completely: difference, entry, slot.
    fn evict(&mut self, slot: u32) {
        let Some(token) = self.chip.slot(slot).token else { return };
        let handle = token.handle();
        let Some(word) = self.word(handle) else { return };
        let moving = word.leaving(ContextPlace::ToL2);
        if !self.publish(handle, word, moving) {
            return;
        }
        let small = self.chip.slot(slot).word.read();
        let mut home = self.chip.slot(slot).home;
        if home.is_none() && self.cxl.is_on() && self.cxl.has_room(handle) {
            home = self.host.record(handle).copied().and_then(|record| self.cxl.put(record));
        }
        if word.has(DIRTY) {
            let old = self.small_below(handle, home).unwrap_or(small);
            self.write_back(handle, (old, small), home);
            self.counts.evicted_dirty += 1;
        } else {
            self.counts.evicted_clean += 1;
        }
        let (place, offset) = below(handle, home);
        self.publish(handle, moving, moving.moved(place, offset, 0));
        self.chip.give_up(handle, slot);
        self.chip.free(slot);
        self.flights.was_prefetched(handle);
        match place {
            ContextPlace::L2 => self.counts.migrations_to_l2 += 1,
            _ => self.counts.migrations_to_l3 += 1,
        }
    }

    /// Puts a record into L2, if need be in the place of the page that was used least recently.
    pub(super) fn put_in_l2(&mut self, record: ContextRecord) -> Option<u32> {
        if !self.cxl.is_on() {
            return None;
        }
        if !self.cxl.has_room(record.token.handle()) {
            let given_up = self.cxl.give_up()?;
            self.counts.pages_evicted += 1;
            for (place, record) in given_up {
                self.leave_page(place, &record);
            }
        }
        self.cxl.put(record)
    }

    /// A record's page is given up.
    fn leave_page(&mut self, place: u32, record: &ContextRecord) {
        let handle = record.token.handle();
        let old = self.host.record(handle).map_or(record.small, |record| record.small);
        self.write_back(handle, (old, record.small), None);
        let Some(word) = self.directory.read(handle) else { return };
        if word.place() == ContextPlace::L2 && word.offset() == place {
            self.publish(handle, word, word.moved(ContextPlace::L3, handle.index(), word.flags()));
            self.counts.migrations_to_l3 += 1;
        } else if let Some(slot) = self.chip.find(handle) {
            self.chip.slot_mut(slot).home = None;
        }
    }

    /// A slot's context leaves: no access finds it there any more.
    pub(super) fn leave_slot(&mut self, handle: ContextHandle, slot: u32) -> Option<ContextRecord> {
        self.chip.slot(slot).home.into_iter().for_each(|place| self.cxl.hold(place));
        self.chip.hide(handle, slot);
        self.leaving_record(handle, slot)
    }

    fn leaving_record(&self, handle: ContextHandle, slot: u32) -> Option<ContextRecord> {
        let slot = self.chip.slot(slot);
        // Strong fields are the same in every tier.
        let token = self.host.record(handle)?.token;
        Some(ContextRecord { token, small: slot.word.read() })
    }

    fn release_source(&mut self, flight: &Flight) {
        match flight.from.place() {
            ContextPlace::L1 => {
                let home = self.chip.slot(flight.from.offset()).home;
                home.into_iter().for_each(|place| self.cxl.release(place));
            }
            ContextPlace::L2 => self.cxl.release(flight.from.offset()),
            _ => {}
        }
    }

    /// Place in L2 of a context that moves, if it has a copy there.
    pub(super) fn lower_place(&self, handle: ContextHandle) -> Option<u32> {
        let from = self.flights.get(handle)?.from;
        match from.place() {
            ContextPlace::L1 => self.chip.slot(from.offset()).home,
            ContextPlace::L2 => Some(from.offset()),
            _ => None,
        }
    }

    /// Small fields of the copy below L1.
    fn small_below(&self, handle: ContextHandle, home: Option<u32>) -> Option<u64> {
        let in_l2 = home.and_then(|place| self.cxl.record(place));
        in_l2.or_else(|| self.host.record(handle)).map(|record| record.small)
    }

    /// Writes the bytes that differ.
    fn write_back(&mut self, handle: ContextHandle, (old, new): (u64, u64), place: Option<u32>) {
        if self.faults.difference_lost() {
            return;
        }
        let in_l2 = place.and_then(|place| self.cxl.record_mut(place));
        let Some(record) = (match in_l2 {
            Some(record) => Some(record),
            None => self.host.record_mut(handle),
        }) else {
            return;
        };
        record.small = new;
        let bytes = (old ^ new).to_le_bytes().iter().filter(|byte| **byte != 0).count() as u64;
        if bytes > 0 {
            self.counts.written_back_bytes += bytes;
            self.memory.write(self.now, bytes);
        }
    }

    /// Does the operations that wait, in their order, and wakes their requests.
    fn wake(
        &mut self,
        handle: ContextHandle,
        flight: &Flight,
        mut small: impl FnMut(SmallOp) -> Option<u64>,
    ) {
        for (at, (op, _)) in flight.ops.iter().enumerate() {
            let small = small(*op);
            if self.faults.waiter_not_woken() && at + 1 == flight.ops.len() {
                continue;
            }
            self.wake_one(handle, *op, small);
        }
    }

    pub(super) fn wake_one(&mut self, handle: ContextHandle, op: SmallOp, small: Option<u64>) {
        self.counts.woken += 1;
        if self.wakes.len() == WAKES_KEPT {
            self.wakes.pop_front();
        }
        self.wakes.push_back(ContextWake { handle, op, at: self.now, small });
    }

    /// The context of a flight is destroyed.
    pub(super) fn drop_flight(&mut self, handle: ContextHandle) {
        let Some(flight) = self.flights.end(handle) else { return };
        self.counts.fetches_dropped += 1;
        self.release_source(&flight);
        match flight.from.place() {
            ContextPlace::L1 => {
                let slot = flight.from.offset();
                let home = self.chip.slot(slot).home;
                home.into_iter().for_each(|place| self.cxl.remove(place));
                self.chip.free(slot);
            }
            ContextPlace::L2 => self.cxl.remove(flight.from.offset()),
            _ => {}
        }
        self.wake(handle, &flight, |_| None);
    }
}

/// Place below L1: in L2, if there is a copy, else host memory.
fn below(handle: ContextHandle, home: Option<u32>) -> (ContextPlace, u32) {
    match home {
        Some(place) => (ContextPlace::L2, place),
        None => (ContextPlace::L3, handle.index()),
    }
}

/// Reads of one fetch without an answer.
const TRIES: u32 = 3;
/// Wakes that are kept for a caller who does not take them: the oldest are dropped.
const WAKES_KEPT: usize = 4096;

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
