//! The list against a deque, and lines that others wrote to.

use std::collections::VecDeque;

use proptest::prelude::{ProptestConfig, prop_assert_eq, proptest};
use urma_mem::Region;

use super::*;

fn pool() -> (KnittingPool, Region) {
    let mut pool = KnittingPool::new();
    let region = Region::private(64 << 6).expect("memory");
    pool.grow(0x1000, region.clone(), 6, 64).expect("fresh piece");
    (pool, region)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_list_gives_what_was_appended(
        steps in proptest::collection::vec((0u8..3, 0u64..100_000, 1u32..400), 1..600),
        rising in proptest::bool::ANY,
    ) {
        let (mut pool, _) = pool();
        let order = if rising { RunOrder::Rising } else { RunOrder::Any };
        let mut list = RunList::new(Holder::new(1), order);
        let mut oracle: VecDeque<LossRun> = VecDeque::new();
        let mut end = 0;
        for (step, at, count) in steps {
            if step > 0 {
                let run = LossRun { start: if rising { end + at } else { at }, count };
                end = run.end();
                list.push(&mut pool, 0, run).expect("the pool has room");
                oracle.push_back(run);
            } else if let Some(run) = oracle.pop_front() {
                list.trim(&mut pool, 0, run.end()).expect("sound");
            }
            prop_assert_eq!(list.first(), oracle.front().copied());
            prop_assert_eq!(list.len() as usize, oracle.len());
            prop_assert_eq!(list.lowest(&pool), Ok(oracle.iter().map(|run| run.start).min()));
        }
        while let Some(run) = oracle.pop_front() {
            prop_assert_eq!(list.first(), Some(run));
            list.trim(&mut pool, 0, run.end()).expect("sound");
        }
        prop_assert_eq!((list.first(), pool.usage().free), (None, 64));
    }
}

/// A list with its middle in blocks 0 to 2 of the pool.
fn long_list(pool: &mut KnittingPool) -> RunList {
    let mut list = RunList::new(Holder::new(1), RunOrder::Rising);
    for number in 0..220 {
        list.push(pool, 0, LossRun { start: 1000 * number, count: 1 }).expect("room");
    }
    list
}

/// Empties a list of 220 runs; the error that ended it.
fn drain(pool: &mut KnittingPool, mut list: RunList) -> Option<LossError> {
    for number in 0..220 {
        let run = list.first()?;
        assert_eq!(run.start, 1000 * number, "nothing is made up");
        if let Err(error) = list.trim(pool, 0, run.end()) {
            return Some(error);
        }
    }
    None
}

#[test]
fn a_line_that_others_wrote_to_is_noticed() {
    for (word, value) in [(0, 0), (0, 200), (0, u64::MAX), (2, u64::MAX), (7, 0), (7, 1 << 32)] {
        let (mut pool, region) = pool();
        let list = long_list(&mut pool);
        region.store_u64(8 * word, value).expect("inside");
        assert_eq!(drain(&mut pool, list), Some(LossError::Corrupt), "word {word} is {value:#x}");
    }
    let (mut pool, _) = pool();
    let list = long_list(&mut pool);
    assert_eq!(drain(&mut pool, list), None);
}

/// The list of another tier has the same holder.
#[test]
fn a_link_to_another_list_is_noticed() {
    let (mut pool, region) = pool();
    let list = long_list(&mut pool);
    let (_, last) = list.blocks.expect("lines in the pool");
    let other = long_list(&mut pool);
    let (first, _) = other.blocks.expect("lines in the pool");
    pool.link(last, Some(first)).expect("inside");
    assert_eq!(drain(&mut pool, list), Some(LossError::Corrupt));
    drop(region);
}

#[test]
fn without_a_block_nothing_is_appended() {
    let mut pool = KnittingPool::new();
    let mut list = RunList::new(Holder::new(1), RunOrder::Rising);
    let mut count = 0;
    while list.push(&mut pool, 0, LossRun { start: 1000 * count, count: 1 }).is_ok() {
        count += 1;
    }
    assert!(count < 100, "two lines at hand");
    for number in 0..count {
        let run = list.first().expect("appended");
        assert_eq!(run.start, 1000 * number);
        list.trim(&mut pool, 0, run.end()).expect("sound");
    }
    assert_eq!(list.first(), None);
}

#[test]
fn lines_are_read_before_they_are_needed() {
    let (mut pool, _region) = pool();
    let cfg = crate::DmaCfg { latency_ns: 1000, line_ps: 5500, outstanding_max: 1 };
    *pool.dma_mut() = crate::DmaModel::new(cfg);
    let mut list = long_list(&mut pool);
    let mut now = 0;
    while let Some(run) = list.first() {
        now += 200;
        list.trim(&mut pool, now, run.end()).expect("sound");
    }
    let stats = pool.dma().stats();
    assert!(stats.hits >= 3 && stats.misses == 0, "{stats:?}");
}
