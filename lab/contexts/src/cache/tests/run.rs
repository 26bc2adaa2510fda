//! A cache beside a map of values: what each operation returns is what the map says.
//!
//! The invariants, each with the name by which planted faults know it.

use std::collections::BTreeMap;

use super::*;
use crate::{
    directory::PINNED,
    handle::SplitMix64,
    memory::longest_ns,
    policy::{Policy, lru},
};

/// A cache, and what it should hold.
pub(super) struct Run {
    pub(super) cache: ContextCache,
    /// Generation and small fields of each living context.
    values: BTreeMap<ContextHandle, (u16, u64)>,
    /// Operations that wait, each context's in order.
    pending: Vec<(ContextHandle, SmallOp)>,
    now: u64,
    /// What all accesses and wakes so far returned, as one number.
    pub(super) returned: u64,
}

impl Run {
    pub(super) fn new(cfg: CacheCfg, fault: Option<ContextFault>) -> Self {
        let mut cache = ContextCache::unchecked(cfg, &mut policy);
        cache.plant(fault);
        Self { cache, values: BTreeMap::new(), pending: Vec::new(), now: 0, returned: 0 }
    }

    pub(super) fn create(&mut self, kind: ContextKind, index: u32) -> ContextHandle {
        let generation = self.cache.create(index, &body(kind, 1)).unwrap();
        let handle = ContextHandle::new(kind, index).unwrap();
        self.values.insert(handle, (generation, 0));
        handle
    }

    pub(super) fn access(
        &mut self,
        handle: ContextHandle,
        op: SmallOp,
        now: u64,
    ) -> Result<Option<Access>, String> {
        self.now = now;
        let generation = self.values.get(&handle).map_or(9, |(generation, _)| *generation);
        // What is due before `now` happens before the access.
        self.advance(now)?;
        let moves_at =
            |cache: &ContextCache| cache.flights.get(handle).map(|flight| flight.ready_at);
        let end = moves_at(&self.cache);
        let before = Before::of(&self.cache);
        let access = self.cache.access_by(handle.index() % 3, (handle, generation), op, now);
        let Ok(access) = access else {
            return if self.values.contains_key(&handle) {
                Err(format!("{handle:?} was lost"))
            } else {
                Ok(None)
            };
        };
        before.compare(&self.cache)?;
        self.fold([access.ready_at, access.mode as u64, access.small.unwrap_or(u64::MAX)]);
        match access.small {
            None => self.pending.push((handle, op)),
            Some(small) => self.apply(handle, op, small)?,
        }
        if access.mode == AccessMode::Optimistic && end.is_none_or(|end| access.ready_at >= end) {
            return Err(format!(
                "an optimistic read ends before the migration: {access:?} {end:?}"
            ));
        }
        if access.ready_at < now {
            return Err(format!("{access:?} is of the past"));
        }
        self.compare()?;
        Ok(Some(access))
    }

    pub(super) fn advance(&mut self, now: u64) -> Result<(), String> {
        // In parts, so that each move is seen alone.
        while let Some(at) = self.cache.next_event().filter(|at| *at < now) {
            self.step(|cache| cache.advance(at.max(cache.now)))?;
            if self.cache.next_event() == Some(at) {
                break;
            }
        }
        self.step(|cache| cache.advance(now))
    }

    pub(super) fn step(&mut self, act: impl FnOnce(&mut ContextCache)) -> Result<(), String> {
        let before = Before::of(&self.cache);
        act(&mut self.cache);
        before.compare(&self.cache)?;
        self.compare()
    }

    /// Takes wakes, then checks every invariant and value.
    fn compare(&mut self) -> Result<(), String> {
        invariants(&self.cache)?;
        while let Some(ContextWake { handle, op, small, at }) = self.cache.poll_wake() {
            self.fold([handle.bits().into(), at, small.unwrap_or(u64::MAX)]);
            let at = self.pending.iter().position(|waiting| *waiting == (handle, op));
            let at = at.ok_or_else(|| format!("{handle:?} woke a request that did not wait"))?;
            self.pending.remove(at);
            if let Some(small) = small {
                self.apply(handle, op, small)?;
            }
        }
        for (handle, (_, value)) in &self.values {
            let small = self.small(*handle);
            if small != Some(*value) {
                return Err(format!(
                    "small fields are those of the oracle: {handle:?} {small:?} {value}"
                ));
            }
        }
        Ok(())
    }

    fn fold(&mut self, numbers: [u64; 3]) {
        for number in numbers {
            self.returned = SplitMix64(self.returned ^ number).next();
        }
    }

    fn apply(&mut self, handle: ContextHandle, op: SmallOp, small: u64) -> Result<(), String> {
        let Some((_, value)) = self.values.get_mut(&handle) else {
            return Err(format!("{handle:?} lives no more"));
        };
        *value = op.apply(*value);
        if *value == small {
            Ok(())
        } else {
            Err(format!(
                "small fields are those of the oracle: {handle:?} returned {small}, not {value}"
            ))
        }
    }

    /// Small fields at the place that is valid, without what waits.
    fn small(&self, handle: ContextHandle) -> Option<u64> {
        let cache = &self.cache;
        let word = cache
            .flights
            .get(handle)
            .map(|flight| flight.from)
            .or_else(|| cache.directory.read(handle))?;
        match word.place() {
            ContextPlace::L1 => Some(cache.chip.slot(word.offset()).word.read()),
            ContextPlace::L2 => cache.cxl.record(word.offset()).map(|record| record.small),
            _ => cache.host.record(handle).map(|record| record.small),
        }
    }

    pub(super) fn destroy(&mut self, handle: ContextHandle) -> Result<(), String> {
        let now = self.now;
        self.advance(now)?;
        self.values.remove(&handle);
        self.step(|cache| cache.destroy(handle, now))
    }

    fn write_strong(&mut self, handle: ContextHandle, value: u64) -> Result<(), String> {
        let (Some((generation, _)), now) = (self.values.get(&handle).copied(), self.now) else {
            return Ok(());
        };
        self.step(|cache| {
            cache.write_strong((handle, generation), &body(handle.kind(), value), now).unwrap();
        })
    }
}

/// LRU that refuses one handle of eight.
#[derive(Debug)]
struct Choosy(Box<dyn Policy>);

impl Policy for Choosy {
    fn on_hit(&mut self, slot: u32) {
        self.0.on_hit(slot);
    }

    fn on_miss(&mut self, handle: u32) {
        self.0.on_miss(handle);
    }

    fn victim(&mut self, handle: u32) -> u32 {
        self.0.victim(handle)
    }

    fn admit(&mut self, handle: u32, _victim: u32) -> bool {
        !handle.is_multiple_of(8)
    }

    fn insert(&mut self, handle: u32, slot: u32) {
        self.0.insert(handle, slot);
    }

    fn remove(&mut self, slot: u32) {
        self.0.remove(slot);
    }

    fn retain(&mut self, slot: u32) {
        self.0.retain(slot);
    }
}

fn policy(slots: u32) -> Box<dyn Policy> {
    Box::new(Choosy(lru(slots)))
}

fn body(kind: ContextKind, value: u64) -> TokenBody {
    match kind {
        ContextKind::Queue => TokenBody::Queue {
            number: value,
            mode: 1,
            state: value & 15,
            flags: 0,
            jfr: 0,
            context: 0,
            send_jfc: 1,
            priority: 0,
            access: 7,
            receive_jfc: 2,
            rest: 0,
        },
        ContextKind::Jfc => {
            TokenBody::Jfc { number: value, vector: 0, depth_log2: 8, arm_flags: 0, consumer: 0 }
        }
        _ => page(value),
    }
}

/// A configuration in which everything happens within few steps; the seed decides its modes.
pub(super) fn small_cfg(seed: u64) -> CacheCfg {
    CacheCfg {
        l1_entries: 16,
        l2_bytes: if seed % 5 == 4 { 0 } else { 2 * 4096 },
        page_bytes: 4096,
        promote_l1: 4,
        promote_l2: 2,
        window_ns: 400_000,
        idle_l1_ns: 60_000,
        idle_l2_ns: 120_000,
        cluster_bytes: 4096,
        in_flight: if seed.is_multiple_of(2) {
            MeetMigration::Optimistic
        } else {
            MeetMigration::Wait
        },
        fill: if seed % 3 == 2 { FillRule::Threshold } else { FillRule::Demand },
        adapt: seed % 4 == 1,
        banks: 1 << (seed % 3 % 2),
        sample: 1 + (seed % 2) as u32,
        seed,
        ..CacheCfg::default()
    }
}

/// Runs random operations on a cache and its oracle.
pub(super) fn random_run(
    cfg: CacheCfg,
    fault: Option<ContextFault>,
    seed: u64,
    steps: u32,
) -> Result<Run, String> {
    let mut run = Run::new(cfg, fault);
    let mut rng = SplitMix64(seed.wrapping_mul(77));
    let mut below = move |n: u64| ((rng.next() >> 32) * n) >> 32;
    let kinds = [ContextKind::Page, ContextKind::Queue, ContextKind::Jfc];
    for kind in kinds {
        (0..70).for_each(|index| {
            run.create(kind, index);
        });
    }
    let mut now = 0;
    for _ in 0..steps {
        now += [0, 3, 60, 400, 3000, 30_000][below(6) as usize];
        let near = if below(3) == 0 { 70 } else { 12 };
        let handle = ContextHandle::new(kinds[below(3) as usize], below(near) as u32).unwrap();
        match below(40) {
            0 => run.destroy(handle)?,
            1 if !run.values.contains_key(&handle) => {
                run.create(handle.kind(), handle.index());
            }
            2 | 3 => run.write_strong(handle, below(1 << 20))?,
            4 | 5 => {
                run.advance(now)?;
                run.step(|cache| {
                    cache.pin(handle, now);
                })?;
            }
            6 => run.step(|cache| cache.unpin(handle))?,
            7..12 => {
                let next = |by: u32| ContextHandle::new(handle.kind(), handle.index() + by);
                let handles: Vec<_> = (0..4).filter_map(next).collect();
                run.advance(now)?;
                run.step(|cache| cache.prefetch(&handles, now))?;
            }
            12 => {
                run.cache.lost_exchanges = 0;
                run.advance(now)?;
            }
            op => {
                let op = match op % 3 {
                    0 => SmallOp::Read,
                    1 => SmallOp::Add(1 + below(1000)),
                    _ => SmallOp::Store { mask: 0xffff, value: below(1 << 16) },
                };
                run.access(handle, op, now)?;
            }
        }
    }
    run.advance(now + 10_000_000)?;
    Ok(run)
}

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
