//! A trace through the three tiers of the model: what an access waits for when its context is not on the chip.
//!
//! - owns: the clock of a run, which context a handle is. takes: a cell. gives: counters and times of the model.
//! - must not: let more accesses be under way than the window has room for.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};
use urma_contexts::policy::Policy;
use urma_contexts::policy::kind::PolicyError;
use urma_contexts::{
    CacheCfg, ContextCache, ContextHandle, ContextKind, SmallOp, TimeHistogram, TokenBody,
};

use super::grid::CacheCell;
use super::options::{TierSetting, WritePolicy};
use crate::stats::mix;

/// What the model gave.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TierResult {
    /// Counters, means and percentiles by name.
    pub counters: Vec<(String, u64)>,
    /// What accesses waited for: their context, and host memory where they write through.
    pub waits: WaitTimes,
    /// Accesses in a microsecond of virtual time.
    pub accesses_per_us: f64,
}

/// Times of accesses in ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WaitTimes {
    /// Mean of all, rounded down.
    pub mean: u64,
    /// The time that half of them do not exceed.
    pub p50: u64,
    /// The time that 99 % of them do not exceed.
    pub p99: u64,
}

impl WaitTimes {
    /// Mean and percentiles of a histogram.
    #[must_use]
    pub fn of(times: &TimeHistogram) -> Self {
        Self { mean: times.mean(), p50: times.quantile(500), p99: times.quantile(990) }
    }
}

impl TierResult {
    /// A counter by its name; 0 if there is none.
    #[must_use]
    pub fn counter(&self, name: &str) -> u64 {
        self.counters.iter().find(|(known, _)| known == name).map_or(0, |(_, count)| *count)
    }

    /// A counter by its name in percent of the accesses.
    #[must_use]
    pub fn percent(&self, name: &str) -> f64 {
        100.0 * self.counter(name) as f64 / self.counter("accesses").max(1) as f64
    }
}

/// Runs the cell's trace once; its policy is not a bound.
pub fn run(cell: &CacheCell, setting: &TierSetting) -> Result<TierResult, PolicyError> {
    let mut run = TierRun::new(cell, setting)?;
    let trace = &cell.trace.trace;
    for (at, number) in trace.numbers().iter().enumerate() {
        run.access(*number, is_write(at, setting.writes)).ok_or_else(|| {
            let want = "handles whose contexts the model keeps".to_owned();
            PolicyError { field: "trace", value: number.to_string(), want }
        })?;
    }
    Ok(run.end(trace.numbers().len()))
}

/// Whether an access writes, if this part of them does: the same ones whatever else is set.
fn is_write(at: usize, part: f64) -> bool {
    // 53 bits are a number below 1 without rounding.
    let number = (mix(at as u64 + 1) >> 11) as f64 / (1_u64 << 53) as f64;
    number < part
}

/// A trace on its way through the tiers.
struct TierRun<'a> {
    setting: &'a TierSetting,
    cache: ContextCache,
    /// Context of each number of the trace.
    contexts: Vec<Option<(ContextHandle, ContextKind)>>,
    clock: RunClock,
    /// Accesses whose context is on its way, by context.
    waiting: BTreeMap<ContextHandle, Vec<WaitingAccess>>,
    waits: TimeHistogram,
}

/// An access that ends when its context is there.
struct WaitingAccess {
    number: u64,
    began_at: u64,
    /// When it ends, as far as is known.
    ends_at: u64,
    /// What it wrote is in host memory then.
    written_at: u64,
}

impl<'a> TierRun<'a> {
    fn new(cell: &CacheCell, setting: &'a TierSetting) -> Result<Self, PolicyError> {
        let no_future = Vec::new().into();
        let mut policy = Some(cell.policy.build(cell.capacity, cell.rule, &no_future)?);
        // One bank, so one policy.
        let mut build = |_| -> Box<dyn Policy> {
            policy.take().unwrap_or_else(|| urma_contexts::policy::lru(cell.capacity))
        };
        let cfg = CacheCfg { l1_entries: cell.capacity, ..setting.cfg.clone() };
        let refused =
            |field, value: u64, want| PolicyError { field, value: value.to_string(), want };
        let mut cache = ContextCache::new(cfg, &mut build)
            .map_err(|error| refused(error.field, error.value, error.rule))?;
        let trace = &cell.trace.trace;
        let mut contexts = vec![None; trace.distinct() as usize];
        for (number, handle) in trace.numbers().iter().zip(trace.handles()) {
            if contexts[*number as usize].is_none() {
                let kind = cell.trace.kinds.kind(*handle);
                cache
                    .create(*number, &TokenBody::zero(kind))
                    .map_err(|error| refused("trace", error.value, error.rule))?;
                let handle = ContextHandle::new(kind, *number);
                contexts[*number as usize] = handle.map(|handle| (handle, kind));
            }
        }
        Ok(Self {
            setting,
            cache,
            contexts,
            clock: RunClock::new(setting),
            waiting: BTreeMap::new(),
            waits: TimeHistogram::default(),
        })
    }

    /// One access. `None`: the model has no such context.
    fn access(&mut self, number: u32, is_write: bool) -> Option<()> {
        // What waits for a context that is written meanwhile ends later than it seemed to.
        while let Some(at) = self.clock.blocked_until() {
            self.cache.advance(at);
            self.wake();
            if self.clock.blocked_until() == Some(at) {
                break;
            }
        }
        let now = self.clock.begin();
        let (handle, kind) = *self.contexts.get(number as usize)?.as_ref()?;
        let (mut op, mut written_at) = (SmallOp::Read, now);
        match self.setting.write_policy {
            _ if !is_write => {}
            WritePolicy::Back => op = SmallOp::Add(1),
            // A whole token is written, so what its fields are makes no difference.
            WritePolicy::Through => {
                let body = TokenBody::zero(kind);
                written_at = self.cache.write_strong((handle, 0), &body, now).ok()?;
            }
        }
        let access = self.cache.access(handle, 0, op, now).ok()?;
        self.wake();
        let ends_at = access.ready_at.max(written_at);
        let number = self.clock.end(ends_at);
        if access.small.is_some() {
            self.waits.note(ends_at.saturating_sub(now));
        } else {
            let access = WaitingAccess { number, began_at: now, ends_at, written_at };
            self.waiting.entry(handle).or_default().push(access);
        }
        Some(())
    }

    /// Accesses whose contexts have come are over: all of a context at once.
    fn wake(&mut self) {
        while let Some(wake) = self.cache.poll_wake() {
            for access in self.waiting.remove(&wake.handle).unwrap_or_default() {
                let ends_at = (wake.at + self.setting.cfg.l1_ns).max(access.written_at);
                self.clock.correct(access.number, ends_at);
                self.waits.note(ends_at.saturating_sub(access.began_at));
            }
        }
    }

    fn end(mut self, accesses: usize) -> TierResult {
        for access in self.waiting.values().flatten() {
            self.waits.note(access.ends_at.saturating_sub(access.began_at));
        }
        TierResult {
            counters: self.cache.counts().list(),
            waits: WaitTimes::of(&self.waits),
            accesses_per_us: accesses as f64 / (self.clock.at_ps as f64 / 1e6),
        }
    }
}

/// Accesses begin at a rate, and wait where the window is full.
struct RunClock {
    at_ps: u64,
    step_ps: u64,
    window: usize,
    ends: VecDeque<u64>,
    /// Accesses that left the window.
    left: u64,
}

impl RunClock {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "rates are from 1 K to 10 G accesses a second"
    )]
    fn new(setting: &TierSetting) -> Self {
        let step_ps = (1e12 / setting.accesses_per_s) as u64;
        Self { at_ps: 0, step_ps, window: setting.window, ends: VecDeque::new(), left: 0 }
    }

    /// Time in ns until which the next access waits for room, as far as is known.
    fn blocked_until(&self) -> Option<u64> {
        let end = self.ends.front().filter(|_| self.ends.len() == self.window)?;
        (*end * 1000 > self.at_ps).then_some(*end)
    }

    /// When the next access begins, in ns.
    fn begin(&mut self) -> u64 {
        if self.ends.len() == self.window {
            self.at_ps = self.at_ps.max(self.ends.pop_front().unwrap_or(0) * 1000);
            self.left += 1;
        }
        self.at_ps / 1000
    }

    /// The access that began ends at this time. Gives its number.
    fn end(&mut self, ready_at: u64) -> u64 {
        self.ends.push_back(ready_at);
        self.at_ps += self.step_ps;
        self.left + self.ends.len() as u64 - 1
    }

    /// An access of the window ends at another time than it seemed to.
    fn correct(&mut self, number: u64, ready_at: u64) {
        let place = number.checked_sub(self.left).and_then(|at| usize::try_from(at).ok());
        if let Some(end) = place.and_then(|at| self.ends.get_mut(at)) {
            *end = ready_at;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::cell::tests::cell;
    use super::*;

    #[test]
    fn accesses_begin_at_the_rate_and_wait_for_room_in_the_window() {
        let mut clock = RunClock::new(&TierSetting {
            accesses_per_s: 1e6,
            window: 2,
            ..TierSetting::new(false)
        });
        // When each begins, and when it ends, in ns: the third waits for the first, the fourth for nothing.
        for (begins, ends) in [(0, 5000), (1000, 3000), (5000, 5500), (6000, 6100)] {
            assert_eq!(clock.begin(), begins);
            clock.end(ends);
        }
        assert_eq!(clock.at_ps, 7_000_000);
    }

    #[test]
    fn the_rate_of_a_run_is_that_of_its_accesses_where_nothing_waits() {
        let handles: Vec<u32> = (0..200).chain(0..200).collect();
        let run = |accesses_per_s, window| {
            let setting = TierSetting { accesses_per_s, window, ..TierSetting::new(true) };
            run(&cell("twice", handles.clone(), 256), &setting).expect("a policy")
        };
        // One access a microsecond: each has ended when the next but one begins.
        let slow = run(1e6, 64);
        assert!((slow.accesses_per_us - 1.0).abs() < 1e-9, "{}", slow.accesses_per_us);
        assert_eq!(
            (slow.counter("l1_hits"), slow.counter("l3_hits")),
            (200, 200),
            "the second time in L1"
        );
        // One at a time: the first 200 wait for the host, 0.9 us each in the median.
        let alone = run(1e9, 1);
        assert!((1.9..2.4).contains(&alone.accesses_per_us), "{}", alone.accesses_per_us);
    }

    /// What the model counts when an access begins, and what is known when it ends.
    fn waits(run: &TierResult) -> ([u64; 2], [u64; 2]) {
        let counted = ["wait_mean_ns", "wait_p99_ns"].map(|name| run.counter(name));
        (counted, [run.waits.mean, run.waits.p99])
    }

    #[test]
    fn waits_are_those_of_the_model_unless_a_write_makes_a_read_begin_again() {
        // Each context again while it is on its way.
        let handles: Vec<u32> = (0..3000).map(|at| at / 3 % 300).collect();
        let run = |line: &dyn Fn(&mut TierSetting)| {
            let mut setting = TierSetting { accesses_per_s: 20e6, ..TierSetting::new(true) };
            line(&mut setting);
            run(&cell("again", handles.clone(), 64), &setting).expect("a policy")
        };
        for writes in [0.0, 0.5, 1.0] {
            let (counted, known) = waits(&run(&|s| s.writes = writes));
            assert_eq!(counted, known, "{writes}");
            assert!(known[1] > 500, "{known:?}");
        }
        let through = run(&|s| (s.writes, s.write_policy) = (0.5, WritePolicy::Through));
        assert!(through.counter("fetches_again") > 100, "{:?}", through.counters);
        let (counted, known) = waits(&through);
        assert!(known[0] > counted[0] + 100 && known[1] > counted[1], "{counted:?} {known:?}");
        // On the chip, half of the accesses take a write's 300 ns and more.
        let near: Vec<u32> = (0..3000).map(|at| at % 64).collect();
        let setting = TierSetting {
            writes: 0.6,
            write_policy: WritePolicy::Through,
            ..TierSetting::new(true)
        };
        let near = super::run(&cell("near", near, 64), &setting).expect("a policy");
        assert!((300..400).contains(&near.waits.p50), "{:?}", near.waits);
    }

    #[test]
    fn an_access_that_ends_later_than_it_seemed_to_keeps_its_place_in_the_window() {
        let setting = TierSetting { accesses_per_s: 1e9, window: 2, ..TierSetting::new(true) };
        let mut clock = RunClock::new(&setting);
        assert_eq!((clock.blocked_until(), clock.end(50), clock.end(40)), (None, 0, 1));
        assert_eq!(clock.blocked_until(), Some(50));
        clock.correct(0, 70);
        clock.correct(7, 90);
        assert_eq!((clock.blocked_until(), clock.begin(), clock.end(80)), (Some(70), 70, 2));
        clock.correct(0, 90);
        clock.correct(1, 75);
        assert_eq!((clock.blocked_until(), clock.begin(), clock.end(76)), (Some(75), 75, 3));
        assert_eq!(clock.begin(), 80);
    }

    #[test]
    fn so_many_of_the_accesses_write() {
        let of = |part| (0..100_000).filter(|at| is_write(*at, part)).count();
        assert_eq!((of(0.0), of(1.0)), (0, 100_000));
        for part in [0.1, 0.5] {
            let share = of(part) as f64 / 1e5;
            assert!((share - part).abs() < 0.005, "{part}: {share}");
        }
        assert!((0..100).all(|at| !is_write(at, 0.1) || is_write(at, 0.5)));
    }
}
