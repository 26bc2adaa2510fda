//! Each exact policy against its linear scan on random accesses and destructions.

use urma_contexts::policy::kind::PolicyKind;
use urma_contexts::policy::seed::SeedRule;
use urma_contexts::replay::CacheReplay;
use urma_contexts::trace::HandleTrace;

use crate::naive::{Naive, NaiveList, NaiveOpt, NaiveSeed, NaiveTwo};
use crate::naive_adaptive::{NaiveArc, NaiveLirs, NaiveTiny};
use crate::naive_ours::NaiveOurs;

/// Operations per policy; a release build with `--ignored` runs a million.
const OPERATIONS: usize = 20_000;

/// Numbers of a linear congruential generator, the high half.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        u32::try_from(((self.0 >> 32) * u64::from(bound)) >> 32).expect("below a u32")
    }
}

/// Handles of which some are frequent, in places with a loop over more than the cache holds.
fn handles(dice: &mut Dice, operations: usize, most: u32) -> Vec<u32> {
    (0..operations)
        .map(|at| {
            if at / 1000 % 5 == 4 {
                return u32::try_from(at).expect("small") % most;
            }
            dice.below(most).min(dice.below(most)).min(dice.below(most))
        })
        .collect()
}

fn compare(
    kind: PolicyKind,
    rule: SeedRule,
    capacity: u32,
    operations: usize,
    naive: &dyn Fn(&[u32]) -> Box<dyn Naive>,
) {
    let mut dice = Dice(u64::from(capacity) + 17);
    let most = capacity * 4 + 3;
    let mut handles = handles(&mut dice, operations, most);
    // The first access to each handle in order: its number is itself.
    handles.splice(..0, 0..most);
    let trace = HandleTrace::new(handles.clone()).expect("a trace");
    let policy = kind.build(capacity, rule, &trace.next_uses()).expect("a policy");
    let mut cache = CacheReplay::new(policy, capacity, most);
    let mut naive = naive(&handles);
    for (at, handle) in handles.into_iter().enumerate() {
        if dice.below(40) == 0 {
            let gone = dice.below(most);
            cache.destroy(gone);
            naive.destroy(gone);
        }
        let hit = cache.access(handle, handle);
        assert_eq!(hit, naive.access(handle), "{} of {capacity}, access {at}", kind.name());
    }
    let counts = cache.counts();
    assert_eq!(counts.accesses, counts.hits + counts.misses);
    assert!(counts.hits > 0 && counts.misses > 0);
}

/// Policies that adapt, at sizes at which each of their parts has slots.
fn compare_adaptive(operations: usize) {
    for size in [2, 5, 13, 40, 130] {
        let capacity = u32::try_from(size).expect("small");
        let run = |kind, naive: &dyn Fn() -> Box<dyn Naive>| {
            compare(kind, SeedRule::AGED, capacity, operations, &|_| naive());
        };
        run(PolicyKind::Arc, &|| Box::new(NaiveArc::new(size)));
        run(PolicyKind::Lirs, &|| Box::new(NaiveLirs::new(size)));
        run(PolicyKind::WTinyLfu, &|| Box::new(NaiveTiny::new(size)));
        run(PolicyKind::Ours, &|| Box::new(NaiveOurs::new(size)));
    }
}

fn compare_all(operations: usize) {
    for capacity in [1, 2, 5, 13, 40] {
        let size = capacity as usize;
        for (kind, rule) in [
            (PolicyKind::Fifo, "fifo"),
            (PolicyKind::Lru, "lru"),
            (PolicyKind::Clock, "clock"),
            (PolicyKind::Sieve, "sieve"),
        ] {
            compare(kind, SeedRule::AGED, capacity, operations, &|_| {
                Box::new(NaiveList { rule, capacity: size, list: Vec::new(), hand: None })
            });
        }
        for (kind, s3) in [(PolicyKind::TwoQ, false), (PolicyKind::S3Fifo, true)] {
            // The smallest sizes have queues of no slot, whose ghosts the scan keeps none of.
            if capacity >= 2 {
                compare(kind, SeedRule::AGED, capacity, operations, &|_| {
                    let (small, main, ghosts) = (Vec::new(), Vec::new(), Vec::new());
                    Box::new(NaiveTwo { s3, capacity: size, small, main, ghosts, evicted: false })
                });
            }
        }
        for (aging, alpha, admit) in [(0, 0, 0), (10, 0, 0), (3, 0, 2), (10, 4, 0), (7, 16, 3)] {
            let rule = SeedRule { aging, alpha, admit };
            compare(PolicyKind::Seed, rule, capacity, operations, &|_| {
                Box::new(NaiveSeed {
                    capacity: size,
                    aging: u64::from(aging),
                    alpha: u64::from(alpha),
                    admit: u64::from(admit),
                    held: Vec::new(),
                    outside: Vec::new(),
                    now: 0,
                })
            });
        }
    }
}

#[test]
fn policies_do_what_linear_scans_do() {
    compare_all(OPERATIONS);
}

#[test]
fn policies_that_adapt_do_what_linear_scans_do() {
    compare_adaptive(OPERATIONS);
}

#[test]
#[ignore = "a million operations per policy: cargo test --release -p urma-contexts -- --ignored"]
fn policies_do_what_linear_scans_do_a_million_times() {
    compare_all(1_000_000);
    compare_adaptive(1_000_000);
}

/// Which of several handles without a further use leaves is free, so counts are compared, without destructions.
#[test]
fn the_bounds_have_as_many_hits_as_a_scan() {
    for (capacity, kind) in [
        (5, PolicyKind::Opt),
        (13, PolicyKind::Opt),
        (5, PolicyKind::OptBypass),
        (13, PolicyKind::OptBypass),
    ] {
        let handles = handles(&mut Dice(5), 5_000, 60);
        let trace = HandleTrace::new(handles.clone()).expect("a trace");
        let policy = kind.build(capacity, SeedRule::AGED, &trace.next_uses()).expect("a policy");
        let mut cache = CacheReplay::new(policy, capacity, trace.distinct());
        let bypass = kind == PolicyKind::OptBypass;
        let mut naive = NaiveOpt {
            bypass,
            capacity: capacity as usize,
            trace: handles.clone(),
            now: 0,
            held: Vec::new(),
        };
        let mut hits = 0;
        for (number, handle) in trace.numbers().iter().zip(handles) {
            cache.access(*number, handle);
            hits += u64::from(naive.access(handle));
        }
        assert_eq!(cache.counts().hits, hits, "{} of {capacity}", kind.name());
    }
}

/// Whatever happens, what was let in is there, for each policy at each small size.
#[test]
fn what_was_let_in_is_there() {
    for kind in PolicyKind::ALL {
        for capacity in [1, 2, 3, 7, 33, 100] {
            let mut dice = Dice(u64::from(capacity));
            let most = 3 * capacity + 2;
            let handles: Vec<u32> = (0..most).chain(handles(&mut dice, 4_000, most)).collect();
            // Each access twice: the second one has to hit.
            let twice = handles.iter().flat_map(|handle| [*handle, *handle]).collect();
            let trace = HandleTrace::new(twice).expect("a trace");
            let policy = kind.build(capacity, SeedRule::AGED, &trace.next_uses()).expect("built");
            let mut cache = CacheReplay::new(policy, capacity, most);
            for handle in handles {
                if !kind.is_bound() && dice.below(30) == 0 {
                    let gone = dice.below(most);
                    cache.destroy(gone);
                }
                cache.access(handle, handle);
                let again = cache.access(handle, handle);
                assert!(again || kind == PolicyKind::OptBypass, "{} of {capacity}", kind.name());
            }
            let counts = cache.counts();
            assert_eq!(counts.accesses, counts.hits + counts.misses);
        }
    }
}
