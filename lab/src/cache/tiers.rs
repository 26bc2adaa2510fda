//! A trace through the three tiers of the model: what an access waits for when its context is not on the chip.
//!
//! - owns: the clock of a run, which context a handle is. takes: a cell. gives: counters and times of the model.
//! - must not: let more accesses be under way than the window has room for.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use urma_contexts::policy::Policy;
use urma_contexts::policy::kind::PolicyError;
use urma_contexts::{CacheCfg, ContextCache, ContextHandle, SmallOp, TokenBody};

use super::grid::{CacheCell, TierSetting};

/// What the model gave.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TierResult {
    /// Counters, means and percentiles by name.
    pub counters: Vec<(String, u64)>,
    /// Accesses in a microsecond of virtual time.
    pub accesses_per_us: f64,
}

impl TierResult {
    /// A counter by its name; 0 if there is none.
    #[must_use]
    pub fn counter(&self, name: &str) -> u64 {
        self.counters.iter().find(|(known, _)| known == name).map_or(0, |(_, count)| *count)
    }
}

/// Runs the cell's trace once; its policy is not a bound.
pub fn run(cell: &CacheCell, setting: TierSetting) -> Result<TierResult, PolicyError> {
    let no_future = Vec::new().into();
    let mut policy = Some(cell.policy.build(cell.capacity, cell.rule, &no_future)?);
    // One bank, so one policy.
    let mut build = |_| -> Box<dyn Policy> {
        policy.take().unwrap_or_else(|| urma_contexts::policy::lru(cell.capacity))
    };
    let cfg = CacheCfg {
        l1_entries: cell.capacity,
        l2_bytes: if setting.has_l2 { CacheCfg::default().l2_bytes } else { 0 },
        index_limit: 1 << 28,
        ..CacheCfg::default()
    };
    let refused = |field, value: u64, want| PolicyError { field, value: value.to_string(), want };
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
            contexts[*number as usize] = ContextHandle::new(kind, *number);
        }
    }
    let mut clock = RunClock::new(setting);
    for number in trace.numbers() {
        let now = clock.begin();
        let handle = contexts[*number as usize];
        let access = handle.and_then(|handle| cache.access(handle, 0, SmallOp::Add(1), now).ok());
        let access = access.ok_or_else(|| {
            refused(
                "trace",
                u64::from(*number),
                "handles whose contexts the model keeps".to_owned(),
            )
        })?;
        clock.end(access.ready_at);
        while cache.poll_wake().is_some() {}
    }
    let accesses_per_us = trace.numbers().len() as f64 / (clock.at_ps as f64 / 1e6);
    Ok(TierResult { counters: cache.counts().list(), accesses_per_us })
}

/// Accesses begin at a rate, and wait where the window is full.
struct RunClock {
    at_ps: u64,
    step_ps: u64,
    window: usize,
    ends: VecDeque<u64>,
}

impl RunClock {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "rates are from 1 K to 10 G accesses a second"
    )]
    fn new(setting: TierSetting) -> Self {
        let step_ps = (1e12 / setting.accesses_per_s) as u64;
        Self { at_ps: 0, step_ps, window: setting.window, ends: VecDeque::new() }
    }

    /// When the next access begins, in ns.
    fn begin(&mut self) -> u64 {
        if self.ends.len() == self.window {
            self.at_ps = self.at_ps.max(self.ends.pop_front().unwrap_or(0) * 1000);
        }
        self.at_ps / 1000
    }

    fn end(&mut self, ready_at: u64) {
        self.ends.push_back(ready_at);
        self.at_ps += self.step_ps;
    }
}

#[cfg(test)]
mod tests {
    use super::super::cell::tests::cell;
    use super::*;

    #[test]
    fn accesses_begin_at_the_rate_and_wait_for_room_in_the_window() {
        let mut clock =
            RunClock::new(TierSetting { has_l2: false, accesses_per_s: 1e6, window: 2 });
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
            let setting = TierSetting { has_l2: true, accesses_per_s, window };
            run(&cell("twice", handles.clone(), 256), setting).expect("a policy")
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
}
