//! Lists against deques, in a NIC with few lines; lines that others wrote to.

use std::collections::VecDeque;

use proptest::prelude::{ProptestConfig, prop_assert_eq, proptest};
use urma_mem::Region;

use super::*;
use crate::knitting::Holder;
use crate::knitting::later::LaterRuns;
use crate::report::TICKET_MASK;

const BLOCKS: u64 = 256;

fn pool() -> (KnittingPool, Region) {
    let mut pool = KnittingPool::new();
    let blocks = u32::try_from(BLOCKS).expect("small");
    let region = Region::private((blocks as usize) << 6).expect("memory");
    pool.grow(0x1000, region.clone(), 6, blocks).expect("fresh piece");
    (pool, region)
}

fn list_step(holder: u32, now: Nanos) -> ListStep {
    ListStep { now, holder: Holder::new(holder), edge: 0, top: 1 << 29 }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Eight lists and eight lines: most lines are not at hand when a run is appended or read.
    #[test]
    fn lists_give_what_was_appended(
        steps in proptest::collection::vec((0usize..8, 0u8..5, 0u64..100_000, 1u32..400), 1..1200),
        rising in proptest::bool::ANY,
        lines in 8usize..20,
    ) {
        let (mut pool, _) = pool();
        pool.set_nic_lines(lines);
        let order = if rising { RunOrder::Rising } else { RunOrder::Any };
        let mut lists = [RunList::new(order); 8];
        let mut oracles: [VecDeque<LossRun>; 8] = Default::default();
        let mut ends = [0; 8];
        for (number, action, at, count) in steps {
            let (list, oracle) = (&mut lists[number], &mut oracles[number]);
            let step = list_step(u32::try_from(number).expect("small"), 0);
            if action > 1 {
                let start = if rising { ends[number] + at } else { at };
                let run = LossRun { start, count };
                ends[number] = run.end();
                list.push(&mut pool, step, run, action == 4 && at % 7 == 0).expect("the pool has room");
                oracle.push_back(run);
            } else if let Some(run) = oracle.pop_front() {
                list.trim(&mut pool, step, run.end()).expect("sound");
            }
            prop_assert_eq!(list.first(0), oracle.front().copied());
            // The host's look writes lines to the pool, so it comes seldom.
            if at % 64 == 0 {
                prop_assert_eq!(list.runs(&mut pool, step), Ok(oracle.iter().copied().collect()));
            }
        }
        for (number, (list, oracle)) in (0..).zip(lists.iter_mut().zip(&mut oracles)) {
            while let Some(run) = oracle.pop_front() {
                prop_assert_eq!(list.first(0), Some(run));
                list.trim(&mut pool, list_step(number, 0), run.end()).expect("sound");
            }
            prop_assert_eq!(list.first(0), None);
        }
        prop_assert_eq!(pool.usage().free, BLOCKS);
    }

    /// The lowest run is known at all times, and tickets count.
    #[test]
    fn later_runs_know_the_lowest_one(
        steps in proptest::collection::vec((0u8..9, 0u64..100_000, 1u32..400), 1..1500),
        lines in 8usize..20,
    ) {
        let (mut pool, _) = pool();
        pool.set_nic_lines(lines);
        let mut later = LaterRuns::new();
        let mut oracle: VecDeque<LossRun> = VecDeque::new();
        let mut ticket = 0;
        for (action, start, count) in steps {
            let step = list_step(1, 0);
            if action > 3 || oracle.is_empty() {
                let number = later.push(&mut pool, step, LossRun { start, count });
                prop_assert_eq!(number, Ok((ticket + u32::try_from(oracle.len()).expect("small")) & TICKET_MASK));
                oracle.push_back(LossRun { start, count });
            } else if let Some(run) = oracle.front_mut() {
                // Partly as well.
                let start = if action == 3 { run.start + 1 } else { run.end() };
                later.trim(&mut pool, step, start).expect("sound");
                if start < run.end() {
                    *run = LossRun { start, count: run.count - 1 };
                } else {
                    oracle.pop_front();
                    ticket += 1;
                }
            }
            let lowest = oracle.iter().map(|run| run.start).min();
            prop_assert_eq!(later.lowest(&mut pool, step), Ok(lowest));
            prop_assert_eq!((later.len() as usize, later.ticket()), (oracle.len(), ticket));
        }
        later.clear(&mut pool, list_step(1, 0)).expect("sound");
        prop_assert_eq!(pool.usage().free, BLOCKS);
    }
}

/// A list with its first lines in blocks 0 to 2 of the pool.
fn long_list(pool: &mut KnittingPool) -> RunList {
    let mut list = RunList::new(RunOrder::Rising);
    for number in 0..220 {
        let run = LossRun { start: 1000 * number, count: 1 };
        list.push(pool, list_step(1, 0), run, false).expect("room");
    }
    list
}

/// Empties a list of 220 runs; the error that ended it.
fn drain(pool: &mut KnittingPool, mut list: RunList) -> Option<LossError> {
    for number in 0..220 {
        let run = list.first(0)?;
        assert_eq!(run.start, 1000 * number, "nothing is made up");
        if let Err(error) = list.trim(pool, list_step(1, 0), run.end()) {
            return Some(error);
        }
    }
    None
}

#[test]
fn a_line_that_others_wrote_to_is_noticed() {
    // Block 0 is the first line, which the NIC holds; block 1 is of the pool alone.
    let words = [(0, 0), (0, 200), (0, u64::MAX), (2, u64::MAX), (6, 1), (7, 0), (7, 1 << 27)];
    for (word, value) in words {
        let (mut pool, region) = pool();
        let list = long_list(&mut pool);
        region.store_u64(64 + 8 * word, value).expect("inside");
        assert_eq!(drain(&mut pool, list), Some(LossError::Corrupt), "word {word} is {value:#x}");
    }
    let (mut pool, _) = pool();
    let list = long_list(&mut pool);
    assert_eq!(drain(&mut pool, list), None);
}

#[test]
fn each_bit_of_a_line_counts() {
    let (mut pool, region) = pool();
    let list = long_list(&mut pool);
    for bit in 0..448 {
        let at = 64 + bit / 64 * 8;
        let word = region.load_u64(at).expect("inside");
        region.store_u64(at, word ^ 1 << (bit % 64)).expect("inside");
        assert_eq!(list.runs(&mut pool, list_step(1, 0)), Err(LossError::Corrupt), "bit {bit}");
        region.store_u64(at, word).expect("inside");
    }
    assert!(list.runs(&mut pool, list_step(1, 0)).is_ok());
}

/// The list of another tier has the same holder.
#[test]
fn a_link_to_another_list_is_noticed() {
    for from in [0, 1_000_000] {
        let (mut pool, region) = pool();
        let list = long_list(&mut pool);
        let mut other = RunList::new(RunOrder::Rising);
        for number in 0..220 {
            let run = LossRun { start: from + 1000 * number, count: 1 };
            other.push(&mut pool, list_step(1, 0), run, false).expect("room");
        }
        // The first list has ten blocks; numbers of lines begin with 1.
        assert_eq!(region.load_u64(64 + 56), Ok(3));
        region.store_u64(64 + 56, 12).expect("inside");
        assert!(list.runs(&mut pool, list_step(1, 0)).is_err(), "from {from}");
        assert_eq!(walk(&mut pool, list), Some(LossError::Corrupt), "from {from}");
    }
}

/// Empties a list whatever it gives; the error that ended it.
fn walk(pool: &mut KnittingPool, mut list: RunList) -> Option<LossError> {
    while let Some(run) = list.first(0) {
        if let Err(error) = list.trim(pool, list_step(1, 0), run.end()) {
            return Some(error);
        }
    }
    None
}

#[test]
fn runs_lie_between_edge_and_top() {
    let (mut pool, _region) = pool();
    let list = long_list(&mut pool);
    for (edge, top) in [(2000, 1 << 29), (0, 219_000)] {
        let step = ListStep { edge, top, ..list_step(1, 0) };
        assert_eq!(list.runs(&mut pool, step), Err(LossError::Corrupt), "{edge} to {top}");
    }
    let mut list = list;
    let step = ListStep { top: 1001, ..list_step(1, 0) };
    assert_eq!(list.trim(&mut pool, step, 1), Ok(true));
    assert_eq!(list.trim(&mut pool, step, 1001), Err(LossError::Corrupt));
}

#[test]
fn without_a_block_there_is_one_run() {
    let mut pool = KnittingPool::new();
    let mut list = RunList::new(RunOrder::Rising);
    let run = |start| LossRun { start, count: 1 };
    assert_eq!(list.push(&mut pool, list_step(1, 0), run(5), false), Ok(()));
    assert_eq!(list.push(&mut pool, list_step(1, 0), run(9), false), Err(LossError::Exhausted));
    assert_eq!(list.first(0), Some(run(5)));
    assert_eq!(list.trim(&mut pool, list_step(1, 0), 6), Ok(true));
    assert_eq!(list.first(0), None);
}

/// What a NIC with a read of 1 us has of a list that is read every 200 ns.
#[test]
fn lines_are_read_before_they_are_needed() {
    let (mut pool, _region) = pool();
    let cfg = crate::DmaCfg {
        latency_ns: 1000,
        line_ps: 5500,
        outstanding_max: 1,
        ..crate::DmaCfg::default()
    };
    *pool.dma_mut() = crate::DmaModel::new(cfg);
    let mut list = long_list(&mut pool);
    let mut now = 0;
    while let Some(run) = list.first(0) {
        now += 200;
        let ready = list.ready_at(&pool);
        pool.await_run(now, ready);
        list.trim(&mut pool, list_step(1, now), run.end()).expect("sound");
    }
    let stats = pool.dma().stats();
    assert!(stats.hits == 220 && stats.misses == 0 && stats.reads >= 3, "{stats:?}");
}

/// A line that others took the place of is read again when its list needs it; a packet that comes before waits.
#[test]
fn a_packet_waits_for_a_line_that_was_written_to_the_pool() {
    let (mut pool, _region) = pool();
    pool.set_nic_lines(8);
    let cfg = crate::DmaCfg { latency_ns: 1000, outstanding_max: 8, ..crate::DmaCfg::default() };
    *pool.dma_mut() = crate::DmaModel::new(cfg);
    let mut lists = [RunList::new(RunOrder::Rising); 12];
    for start in [10, 20, 30] {
        for (number, list) in (0..).zip(&mut lists) {
            list.push(&mut pool, list_step(number, 0), LossRun { start, count: 1 }, false)
                .expect("room");
        }
    }
    assert_eq!(pool.nic_usage().used_max, 8, "no more than there is room for");
    let list = &mut lists[0];
    list.trim(&mut pool, list_step(0, 5000), 11).expect("sound");
    assert_eq!(list.ready_at(&pool), Some(6000), "its line was written to the pool");
    pool.await_run(5400, list.ready_at(&pool));
    let stats = pool.dma().stats();
    assert_eq!((stats.misses, stats.wait_ns), (1, 600));
}
