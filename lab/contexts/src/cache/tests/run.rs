//! A cache beside a map of values: what each operation returns is what the map says.

use std::collections::BTreeMap;

use super::check::{Before, invariants};
use super::*;
use crate::hash::SplitMix64;
use crate::policy::{Policy, lru};

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
