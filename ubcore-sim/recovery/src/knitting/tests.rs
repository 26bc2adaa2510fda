//! The record against the obvious oracle: a set of sequences.

use std::collections::BTreeSet;

use proptest::prelude::{ProptestConfig, prop_assert, prop_assert_eq, proptest};
use urma_mem::Region;

use super::*;

const BLOCK_LOG2: u8 = 6;

/// Records by sequence alone.
trait RecordSeq: LossRecord {
    fn record_seq(&mut self, pool: &mut KnittingPool, seq: u64) -> Result<Arrival, LossError> {
        self.record(pool, 0, seq, crate::DataMark::default())
    }
}

impl<R: LossRecord> RecordSeq for R {}

/// Packets that a block of 64 bytes covers.
const BLOCK_PACKETS: u64 = 7 * 64;

fn pool(blocks: u32) -> (KnittingPool, Region) {
    let mut pool = KnittingPool::new();
    let region = Region::private((blocks as usize) << BLOCK_LOG2).expect("memory");
    pool.grow(0x4_0000, region.clone(), BLOCK_LOG2, blocks).expect("fresh piece");
    (pool, region)
}

/// What the record must know, kept in the simplest way.
#[derive(Default)]
struct Oracle {
    received: BTreeSet<u64>,
    edge: u64,
}

impl Oracle {
    fn record(&mut self, seq: u64) -> Arrival {
        if seq < self.edge || !self.received.insert(seq) {
            return Arrival::Duplicate;
        }
        if seq > self.edge {
            return Arrival::Kept;
        }
        while self.received.remove(&self.edge) {
            self.edge += 1;
        }
        Arrival::Advanced(self.edge)
    }

    fn sack(&self, words: usize) -> Vec<u64> {
        let mut sack = vec![0; words];
        for seq in self.received.range(self.edge + 1..self.edge + 1 + words as u64 * 64) {
            let bit = seq - self.edge - 1;
            sack[(bit / 64) as usize] |= 1 << (bit % 64);
        }
        sack
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn two_records_in_one_pool_agree_with_a_set(
        steps in proptest::collection::vec((0u8..2, 0u64..1500), 1..400),
    ) {
        let (mut pool, _) = pool(16);
        let mut records = [KnittingRecord::new(1), KnittingRecord::new(2)];
        let mut oracles = [Oracle::default(), Oracle::default()];
        for (side, ahead) in steps {
            let side = usize::from(side);
            // Mostly near the edge, so that it moves.
            let ahead = if ahead % 3 == 0 { 0 } else { ahead };
            let seq = oracles[side].edge + ahead;
            prop_assert_eq!(records[side].record_seq(&mut pool, seq), Ok(oracles[side].record(seq)));
            prop_assert_eq!(records[side].first_missing(), oracles[side].edge);
            let mut words = [0; 4];
            records[side].sack(&pool, &mut words).expect("sound");
            prop_assert_eq!(words.to_vec(), oracles[side].sack(4));
            prop_assert_eq!(
                records[side].is_received(&pool, seq + 1),
                Ok(seq + 1 < oracles[side].edge || oracles[side].received.contains(&(seq + 1)))
            );
        }
        for (record, oracle) in records.iter_mut().zip(&mut oracles) {
            // Close every gap: all blocks come back by themselves.
            while !oracle.received.is_empty() {
                let seq = oracle.edge;
                prop_assert_eq!(record.record_seq(&mut pool, seq), Ok(oracle.record(seq)));
            }
        }
        prop_assert_eq!(pool.usage().free, 16);
        prop_assert!(pool.usage().used_max <= 16);
    }
}

#[test]
fn no_loss_takes_no_block() {
    let (mut pool, _) = pool(2);
    let mut record = KnittingRecord::new(1);
    for seq in 0..10_000 {
        assert_eq!(record.record_seq(&mut pool, seq), Ok(Arrival::Advanced(seq + 1)));
    }
    assert_eq!(pool.usage().used_max, 0);
}

#[test]
fn an_exhausted_pool_refuses_and_changes_nothing() {
    let (mut pool, _) = pool(2);
    let mut record = KnittingRecord::new(1);
    let beyond = 2 * BLOCK_PACKETS;
    assert_eq!(record.record_seq(&mut pool, beyond), Err(LossError::Exhausted));
    assert_eq!(pool.usage().free, 2);
    assert_eq!(record.record_seq(&mut pool, beyond - 1), Ok(Arrival::Kept));
    assert_eq!(pool.usage().free, 0);
    let mut other = KnittingRecord::new(2);
    assert_eq!(other.record_seq(&mut pool, 5), Err(LossError::Exhausted));
    record.release(&mut pool);
    assert_eq!(other.record_seq(&mut pool, 5), Ok(Arrival::Kept));
    assert_eq!(
        KnittingRecord::new(3).record_seq(&mut KnittingPool::new(), 1),
        Err(LossError::Exhausted)
    );
}

/// Blocks cover what lies beyond the edge, wherever that is: as many as it takes.
#[test]
fn a_list_begins_at_its_edge() {
    let (mut pool, _) = pool(4);
    let mut record = KnittingRecord::new(1);
    let edge = 10 * BLOCK_PACKETS;
    for seq in 0..edge {
        assert_eq!(record.record_seq(&mut pool, seq), Ok(Arrival::Advanced(seq + 1)));
    }
    for (beyond, free) in [
        (1, 3),
        (BLOCK_PACKETS - 1, 3),
        (BLOCK_PACKETS, 2),
        (3 * BLOCK_PACKETS - 1, 1),
        (3 * BLOCK_PACKETS, 0),
        (4 * BLOCK_PACKETS - 1, 0),
    ] {
        assert_eq!(record.record_seq(&mut pool, edge + beyond), Ok(Arrival::Kept), "{beyond}");
        assert_eq!(pool.usage().free, free, "{beyond}");
    }
    let beyond = record.record_seq(&mut pool, edge + 4 * BLOCK_PACKETS);
    assert_eq!(beyond, Err(LossError::Exhausted));
}

/// A record that gave all back knows nothing beyond its edge, and goes on with other blocks.
#[test]
fn a_released_record_begins_anew_at_its_edge() {
    let (mut pool, _) = pool(3);
    let mut record = KnittingRecord::new(1);
    for seq in [0, 2, 3, BLOCK_PACKETS + 9] {
        record.record_seq(&mut pool, seq).expect("the pool has room");
    }
    assert_eq!((record.first_missing(), pool.usage().free), (1, 1));
    record.release(&mut pool);
    assert_eq!((record.first_missing(), pool.usage().free), (1, 3));
    let mut words = [!0; 2];
    assert_eq!((record.sack(&pool, &mut words), words), (Ok(0), [0; 2]));
    assert_eq!(record.is_received(&pool, 2), Ok(false));
    // Another one takes the blocks that it had.
    let mut other = KnittingRecord::new(2);
    assert_eq!(other.record_seq(&mut pool, BLOCK_PACKETS), Ok(Arrival::Kept));
    assert_eq!(record.record_seq(&mut pool, 3), Ok(Arrival::Kept));
    assert_eq!((record.sack(&pool, &mut words), words), (Ok(1), [0b10, 0]));
    assert_eq!(record.record_seq(&mut pool, 1), Ok(Arrival::Advanced(2)), "2 was forgotten");
    record.release(&mut pool);
    record.release(&mut pool);
    assert_eq!(pool.usage().free, 1, "what the other one holds stays");
    assert_eq!(other.is_received(&pool, BLOCK_PACKETS), Ok(true));
}

#[test]
fn the_pool_grows_shrinks_and_answers() {
    let (mut pool, region) = pool(4);
    let grow = |pool: &mut KnittingPool, base, log2| pool.grow(base, region.clone(), log2, 4);
    assert_eq!(grow(&mut pool, 0x4_0000, 6), Err(PoolError::Exists(0x4_0000)));
    assert_eq!(grow(&mut pool, 0x5_0000, 7), Err(PoolError::BlockSize(7)));
    assert_eq!(grow(&mut pool, 0x5_0020, 6), Err(PoolError::Memory));
    assert_eq!(pool.grow(0x5_0000, region.clone(), 6, 5), Err(PoolError::Memory));
    assert_eq!(pool.grow(0x5_0000, region.clone(), 6, 0), Err(PoolError::Memory));
    // Words of blocks are read and written whole: memory that is aligned to 8 bytes will do, to 4 it will not.
    let wide = Region::private(4096).expect("memory");
    for (offset, wanted) in [(4, Err(PoolError::Memory)), (8, Ok(()))] {
        let part = wide.sub(offset, 256).expect("within");
        assert_eq!(pool.grow(0x6_0000, part, 6, 4), wanted, "{offset}");
    }
    assert_eq!(pool.shrink(0x6_0000), Ok(()));
    let more = Region::private(256).expect("memory");
    assert_eq!(pool.grow(0x5_0000, more, 6, 4), Ok(()));
    let mut record = KnittingRecord::new(1);
    assert_eq!(record.record_seq(&mut pool, 8 * BLOCK_PACKETS - 1), Ok(Arrival::Kept));
    let usage = pool.usage();
    assert_eq!((usage.block_bytes, usage.blocks, usage.free, usage.used_max), (64, 8, 0, 8));
    assert_eq!(pool.shrink(0x5_0000), Err(PoolError::InUse));
    assert_eq!(pool.shrink(0x6_0000), Err(PoolError::NotFound(0x6_0000)));
    record.release(&mut pool);
    assert_eq!(pool.shrink(0x4_0000), Ok(()));
    assert_eq!(pool.shrink(0x5_0000), Ok(()));
    assert_eq!(pool.usage().blocks, 0);
    // Empty: another block size may come.
    assert_eq!(grow(&mut pool, 0x4_0000, 6), Ok(()));
}

#[test]
fn a_scribbled_free_list_is_made_anew_from_the_holders() {
    let (mut pool, region) = pool(8);
    let mut first = KnittingRecord::new(1);
    assert_eq!(
        first.record_seq(&mut pool, 8 * BLOCK_PACKETS - 1),
        Ok(Arrival::Kept),
        "all taken once"
    );
    first.release(&mut pool);
    let mut first = KnittingRecord::new(1);
    assert_eq!(first.record_seq(&mut pool, BLOCK_PACKETS + 1), Ok(Arrival::Kept));
    for block in 0..8 {
        region.store_u64((block << 6) + 56, u64::MAX).expect("inside");
    }
    let mut second = KnittingRecord::new(2);
    assert_eq!(second.record_seq(&mut pool, 5 * BLOCK_PACKETS + 1), Ok(Arrival::Kept));
    assert!(pool.usage().repairs > 0);
    assert_eq!(pool.usage().free, 0);
    second.release(&mut pool);
    assert_eq!(pool.usage().free, 6);
}

#[test]
fn blocks_that_were_not_taken_yet_cost_no_memory() {
    let (mut pool, region) = pool(8);
    let word = |block: usize| region.load_u64((block << 6) + 56).expect("inside");
    (0..8).for_each(|block| region.store_u64((block << 6) + 56, u64::MAX).expect("inside"));
    let mut record = KnittingRecord::new(1);
    for _ in 0..2 {
        assert_eq!(
            record.record_seq(&mut pool, record.first_missing() + 2 * BLOCK_PACKETS),
            Ok(Arrival::Kept)
        );
        record.release(&mut pool);
        record = KnittingRecord::new(1);
    }
    assert_eq!(
        (0..8).map(word).filter(|&link| link != u64::MAX).count(),
        3,
        "blocks come back first"
    );
    assert_eq!(pool.usage().repairs, 0);
}

#[test]
fn links_to_blocks_of_others_are_refused() {
    let (mut pool, region) = pool(8);
    let mut first = KnittingRecord::new(1);
    let mut second = KnittingRecord::new(2);
    first.record_seq(&mut pool, 2 * BLOCK_PACKETS + 1).expect("blocks 0 to 2");
    second.record_seq(&mut pool, BLOCK_PACKETS + 1).expect("blocks 3 and 4");
    // Block 0 of the first list now names block 3 of the second one as its successor.
    region.store_u64(56, 1 << 32 | 3).expect("inside");
    assert_eq!(first.is_received(&pool, BLOCK_PACKETS + 1), Err(LossError::Corrupt));
    // A loop onto itself is not followed for ever either: walks are counted by the record.
    region.store_u64(56, 1 << 32).expect("inside");
    assert_eq!(first.is_received(&pool, BLOCK_PACKETS + 1), Ok(false));
    assert_eq!(second.is_received(&pool, BLOCK_PACKETS + 1), Ok(true));
}

#[test]
fn an_edge_that_passes_what_never_came_is_refused() {
    let (mut pool, region) = pool(4);
    let mut record = KnittingRecord::new(1);
    for seq in [2, 3] {
        assert_eq!(record.record_seq(&mut pool, seq), Ok(Arrival::Kept));
    }
    region.store_u64(0, 0b1110).expect("inside");
    assert_eq!(record.record_seq(&mut pool, 0), Err(LossError::Corrupt), "two packets, three bits");
}

#[test]
fn a_list_is_as_long_as_its_record_says() {
    // Shorter: block 0 has no successor. Longer: block 1 has one, which this record holds.
    for (at, link) in [(56, 0), (120, 1 << 32)] {
        let (mut pool, region) = pool(4);
        let mut record = KnittingRecord::new(1);
        let seqs: Vec<u64> = (1..BLOCK_PACKETS + 1).collect();
        for seq in seqs {
            assert_eq!(record.record_seq(&mut pool, seq), Ok(Arrival::Kept));
        }
        assert_eq!(pool.usage().free, 2, "two blocks");
        let end = region.load_u64(120).expect("inside");
        region.store_u64(at, if link == 0 { end } else { link }).expect("inside");
        assert_eq!(record.record_seq(&mut pool, 0), Err(LossError::Corrupt), "link at {at}");
    }
}

/// Without a round-trip time, a report that was lost is repeated sooner than the longest timeout (500 ms), and not each time that
/// the sender asks.
#[test]
fn a_first_report_that_was_lost_is_repeated() {
    const MS: u64 = 1_000_000;
    let (mut pool, _region) = pool(8);
    let mut record = KnitRecord::new(1);
    let mark = crate::TailMark { end: 4, ..crate::TailMark::default() };
    let mut reported = Vec::new();
    for ms in 0..1000 {
        record.on_tail(&mut pool, ms * MS, &mark).expect("room");
        let names_all = |report: &crate::LossReport| {
            report.runs().iter().any(|run| (run.start, run.count) == (0, 4))
        };
        reported.extend(record.poll_report().filter(names_all).map(|_| ms));
    }
    assert_eq!(reported.first(), Some(&0));
    assert!((2..=5).contains(&reported.len()), "{reported:?}");
    assert!(reported.windows(2).all(|two| two[1] - two[0] < 500), "{reported:?}");
}

#[test]
fn usage_counts_what_is_held_and_the_most_of_it() {
    use super::Holder;

    let (mut pool, _region) = pool(4);
    let holder = Holder::new(1);
    let usage = |pool: &KnittingPool| (pool.usage().free, pool.usage().used_max);
    let held: Vec<_> = (0..3).map(|_| pool.take(holder).expect("a block")).collect();
    assert_eq!(usage(&pool), (1, 3));
    for block in &held[..2] {
        pool.give(*block, holder).expect("it is held");
    }
    assert_eq!(usage(&pool), (3, 3), "the most stays");
    let again = pool.take(holder).expect("a block");
    assert_eq!(usage(&pool), (2, 3));
    // A full pool gives none, and is as it was.
    let rest: Vec<_> = std::iter::from_fn(|| pool.take(holder)).collect();
    assert_eq!((rest.len(), usage(&pool)), (2, (0, 4)));
    assert!(pool.take(holder).is_none() && !rest.contains(&again));
    pool.give_all(holder);
    assert_eq!(usage(&pool), (4, 4));
    assert_eq!(std::iter::from_fn(|| pool.take(holder)).count(), 4, "each can be had again");
}

#[test]
fn a_pool_has_256_pieces_and_a_piece_that_left_makes_room() {
    let mut pool = KnittingPool::new();
    let grow = |pool: &mut KnittingPool, number: u64| {
        let region = Region::private(1 << BLOCK_LOG2).expect("memory");
        pool.grow(number << BLOCK_LOG2, region, BLOCK_LOG2, 1)
    };
    for number in 1..=256 {
        assert_eq!(grow(&mut pool, number), Ok(()), "{number}");
    }
    assert_eq!(grow(&mut pool, 257), Err(PoolError::Memory));
    assert_eq!((pool.usage().blocks, pool.usage().free), (256, 256), "nothing changed");
    assert_eq!(pool.shrink(100 << BLOCK_LOG2), Ok(()));
    assert_eq!(grow(&mut pool, 257), Ok(()));
    assert_eq!(grow(&mut pool, 258), Err(PoolError::Memory));
    assert_eq!(grow(&mut pool, 9), Err(PoolError::Exists(9 << BLOCK_LOG2)));
}
