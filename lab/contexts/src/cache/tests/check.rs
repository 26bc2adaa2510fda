//! The invariants, each with the name by which planted faults know it.

use std::collections::BTreeMap;

use super::*;
use crate::directory::PINNED;
use crate::memory::longest_ns;

/// Checks everything that can be seen of a cache alone.
pub(super) fn invariants(cache: &ContextCache) -> Result<(), String> {
    places(cache)?;
    slots(cache)?;
    records(cache)?;
    sizes(cache)?;
    conservation(cache)
}

fn living(cache: &ContextCache) -> impl Iterator<Item = (ContextHandle, EntryWord)> {
    ContextKind::ALL.into_iter().flat_map(move |kind| {
        (0..cache.directory.len(kind)).filter_map(move |index| {
            let handle = ContextHandle::new(kind, index)?;
            Some((handle, cache.directory.read(handle)?))
        })
    })
}

fn demand(is_kept: bool, name: &str, of: impl std::fmt::Debug) -> Result<(), String> {
    if is_kept { Ok(()) } else { Err(format!("{name}: {of:?}")) }
}

fn places(cache: &ContextCache) -> Result<(), String> {
    let longest = (longest_ns(cache.cfg.l3_ns) + 1000) * (3 + cache.flights.len() as u64);
    for (handle, word) in living(cache) {
        let flight = cache.flights.get(handle);
        demand(
            word.place().is_moving() == flight.is_some(),
            "a moving context has a flight",
            handle,
        )?;
        let holder = match word.place() {
            ContextPlace::L1 => cache.chip.slot(word.offset()).token,
            ContextPlace::L2 => cache.cxl.record(word.offset()).map(|record| record.token),
            _ => cache.host.record(handle).map(|record| record.token),
        };
        demand(
            holder.is_some_and(|token| token.handle() == handle),
            "place and entry agree",
            (handle, word),
        )?;
        let in_chip = cache.chip.find(handle);
        let wanted = (word.place() == ContextPlace::L1).then_some(word.offset());
        demand(in_chip == wanted, "one valid place", (handle, word))?;
        if let Some(flight) = flight {
            demand(flight.ready_at <= cache.now + longest, "every fetch has a bound", handle)?;
        }
        let generation = cache.directory.generation(handle);
        let host = cache.host.record(handle).map(|record| record.token);
        demand(
            host.is_some_and(|token| token.generation() == generation),
            "the host has every context",
            handle,
        )?;
    }
    Ok(())
}

fn slots(cache: &ContextCache) -> Result<(), String> {
    for at in 0..cache.chip.entries() {
        let slot = cache.chip.slot(at);
        let Some(token) = slot.token else { continue };
        let handle = token.handle();
        let from = cache.flights.get(handle).map(|flight| flight.from);
        let word = cache.directory.read(handle);
        let is_at = |word: &EntryWord| word.place() == ContextPlace::L1 && word.offset() == at;
        let is_named = word.as_ref().is_some_and(is_at) || from.as_ref().is_some_and(is_at);
        let is_living = is_named && token.generation() == cache.directory.generation(handle);
        demand(is_living, "a slot names a living context", (at, handle))?;
        let host = cache.host.record(handle).map(|record| record.token.body());
        let is_leaving = from.is_some();
        demand(
            is_leaving || host == Some(token.body()),
            "strong fields are equal in every tier",
            handle,
        )?;
        let home = slot.home.map(|place| cache.cxl.record(place));
        let has_copy = home.is_none_or(|record| record.is_some_and(|r| r.token.handle() == handle));
        demand(has_copy, "a slot's copy in L2 is its own", handle)?;
    }
    Ok(())
}

fn records(cache: &ContextCache) -> Result<(), String> {
    for (place, record) in cache.cxl.records() {
        let handle = record.token.handle();
        let named = cache.directory.read(handle).is_some_and(|word| match word.place() {
            ContextPlace::L2 => word.offset() == place,
            ContextPlace::L1 => cache.chip.slot(word.offset()).home == Some(place),
            _ => cache.flights.get(handle).is_some_and(|flight| match flight.from.place() {
                ContextPlace::L1 => cache.chip.slot(flight.from.offset()).home == Some(place),
                _ => flight.from.offset() == place,
            }),
        });
        demand(named, "a record of L2 is one of a living context", (place, handle))?;
        let host = cache.host.record(handle).map(|record| record.token);
        demand(host == Some(record.token), "strong fields are equal in every tier", handle)?;
    }
    Ok(())
}

fn sizes(cache: &ContextCache) -> Result<(), String> {
    let (taken, capacity) = cache.cxl.usage();
    demand(taken <= capacity, "pages are within capacity", (taken, capacity))?;
    let used = (0..cache.chip.entries()).filter(|at| cache.chip.slot(*at).token.is_some()).count();
    demand(used == cache.chip.used(), "slots are taken or free", (used, cache.chip.used()))?;
    let pinned = living(cache).filter(|(_, word)| word.has(PINNED)).count();
    demand(pinned <= cache.chip.entries() as usize / 4, "a quarter is pinned at most", pinned)
}

fn conservation(cache: &ContextCache) -> Result<(), String> {
    let c = &cache.counts;
    demand(
        c.accesses == c.l1_hits + c.l1_misses,
        "accesses = hits + misses",
        (c.accesses, c.l1_hits, c.l1_misses),
    )?;
    let misses = c.l2_hits + c.l3_hits + c.migration_hits;
    demand(c.l1_misses == misses, "misses are in L2, L3 or moving", (c.l1_misses, misses))?;
    let bytes = c.l1_bytes + c.l2_bytes + c.l3_bytes + c.migration_bytes;
    demand(
        c.access_bytes == bytes,
        "bytes of accesses = bytes of hits + misses",
        (c.access_bytes, bytes),
    )?;
    let ended =
        c.fetches_landed + c.fetches_dropped + c.fetches_failed + cache.flights.len() as u64;
    demand(c.fetches == ended, "every fetch ends", (c.fetches, ended))?;
    let waiting = (cache.flights.waiting() + cache.contended.len()) as u64;
    demand(c.waiters == c.woken + waiting, "waiters are woken", (c.waiters, c.woken, waiting))?;
    let waiting = (cache.queue.len() + cache.mailbox.depth()) as u64;
    let prefetches = c.prefetches_issued + c.prefetches_dropped + c.prefetches_skipped + waiting;
    demand(c.prefetches_asked == prefetches, "prefetches end", (c.prefetches_asked, prefetches))?;
    let mut kinds = [0; 5];
    for kind in &c.kinds {
        let of = [kind.accesses, kind.l1_hits, kind.l2_hits, kind.l3_hits, kind.migration_hits];
        kinds = std::array::from_fn(|at| kinds[at] + of[at]);
    }
    let all = [c.accesses, c.l1_hits, c.l2_hits, c.l3_hits, c.migration_hits];
    demand(kinds == all, "kinds add up", (kinds, all))
}

/// Entries before a step, to see what it changed.
pub(super) struct Before(BTreeMap<ContextHandle, EntryWord>);

impl Before {
    pub(super) fn of(cache: &ContextCache) -> Self {
        Self(living(cache).collect())
    }

    /// Checks what the step changed.
    pub(super) fn compare(&self, cache: &ContextCache) -> Result<(), String> {
        for (handle, before) in &self.0 {
            let Some(word) = cache.directory.read(*handle) else { continue };
            let is_at_rest = !before.place().is_moving() && !word.place().is_moving();
            let has_moved = (before.place(), before.offset()) != (word.place(), word.offset());
            let is_counted = before.version() != word.version();
            demand(
                !is_at_rest || !has_moved || is_counted,
                "the version counts each move",
                (handle, before, word),
            )?;
            let stays = before.has(PINNED) && cache.pins.is_wanted(*handle);
            demand(!stays || !has_moved, "a pinned context stays", (handle, before, word))?;
        }
        Ok(())
    }
}
