//! Nodes, list and table against a set of sequences.

use std::collections::BTreeSet;

use proptest::prelude::{ProptestConfig, prop_assert, prop_assert_eq, proptest};
use urma_mem::Region;

use super::*;
use crate::report::LossRun;

const CFG: AdamapCfg = AdamapCfg {
    sizes: AdamapSizes { bits: 8, list_nodes: 2, watermark: 1, table_nodes: 1 },
    entry_timeout_ns: 1_000_000,
    entry_timeout_permille: 0,
    sender_timeout_ns: 4_000_000,
};

/// Round-trip time that counts where the timeout follows it.
const RTT: Nanos = 30_000_000;

fn pool() -> (KnittingPool, Region) {
    let mut pool = KnittingPool::new();
    let region = Region::private(256 << 6).expect("memory");
    pool.grow(0x1000, region.clone(), 6, 256).expect("fresh piece");
    (pool, region)
}

fn mark(tier: u8, ticket: u32) -> DataMark {
    DataMark { tier, ticket }
}

/// All packets that the next reports name, with their marks.
fn reported(record: &mut AdamapRecord) -> Vec<(u64, DataMark)> {
    let mut all = Vec::new();
    while let Some(report) = record.poll_report() {
        let of_run = |run: &LossRun| run.start..run.end();
        let mark = mark(report.tier, report.ticket);
        all.extend(report.runs().iter().flat_map(of_run).map(|seq| (seq, mark)));
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn runs_of_a_node_are_what_its_bits_lack(
        received in proptest::num::u64::ANY, len in 1u32..200, bits in 1u32..=64,
    ) {
        let node = AdamapNode { start: 1000, received, reported_at: 0, len };
        let got: Vec<u64> = node.missing(bits).flat_map(|run| run.start..run.end()).collect();
        let is_there = |at: &u32| *at < bits && *at < 64 && received >> at & 1 != 0;
        let want: Vec<u64> =
            (0..len).filter(|at| !is_there(at)).map(|at| 1000 + u64::from(at)).collect();
        prop_assert_eq!(got, want);
    }

    #[test]
    fn every_packet_is_taken_once_whatever_is_lost(
        lost in proptest::collection::vec(0u8..4, 300..301),
        again in proptest::collection::vec(0u8..4, 400..401),
    ) {
        let (mut pool, _region) = pool();
        let mut record = AdamapRecord::new(1, CFG);
        let mut seen = BTreeSet::new();
        let mut now = 0;
        let mut arrive = |record: &mut AdamapRecord, pool: &mut KnittingPool, seq: u64, at: DataMark| {
            now += 1000;
            let arrival = record.record(pool, now, seq, at).expect("sound");
            let is_new = matches!(arrival, Arrival::Kept | Arrival::Advanced(_));
            (is_new, seen.insert(seq) || !is_new, (0..).find(|seq| !seen.contains(seq)))
        };
        for (seq, _) in (0..300).zip(&lost).filter(|(_, lost)| **lost > 0) {
            let (is_new, is_sound, edge) = arrive(&mut record, &mut pool, seq, mark(0, 0));
            prop_assert!(is_new && is_sound);
            prop_assert_eq!(Some(record.first_missing()), edge);
        }
        let mut rounds = again.iter();
        let mut deadline = 0;
        loop {
            let named = reported(&mut record);
            if named.is_empty() {
                let Some(at) = record.poll_deadline() else { break };
                deadline = at.max(deadline);
                record.on_time(&mut pool, deadline, RTT).expect("sound");
                continue;
            }
            for (seq, at) in named {
                if rounds.next().is_none_or(|lost| *lost > 0) {
                    let (_, is_sound, edge) = arrive(&mut record, &mut pool, seq, at);
                    prop_assert!(is_sound, "packet {} was taken twice", seq);
                    prop_assert_eq!(Some(record.first_missing()), edge);
                }
            }
        }
        prop_assert_eq!(record.first_missing(), record.base);
        record.release(&mut pool);
        prop_assert_eq!(pool.usage().free, 256);
    }
}

#[test]
fn reports_that_are_not_taken_are_few_and_are_made_again() {
    let (mut pool, _region) = pool();
    let mut record = long_record(&mut pool);
    for round in 1..500 {
        record.on_time(&mut pool, round * 2 * CFG.entry_timeout_ns, RTT).expect("sound");
    }
    assert_eq!(record.reports.len(), REPORTS_MAX);
    while record.poll_report().is_some() {}
    assert!(!record.has_report());
    record.on_time(&mut pool, 2000 * CFG.entry_timeout_ns, RTT).expect("sound");
    assert!(record.has_report());
}

#[test]
fn the_timeout_of_an_entry_follows_the_round_trip() {
    let (mut pool, _region) = pool();
    let cfg = AdamapCfg { entry_timeout_permille: 2000, ..CFG };
    let mut record = AdamapRecord::new(1, cfg);
    record.record(&mut pool, 0, 9, mark(0, 0)).expect("sound");
    while record.poll_report().is_some() {}
    for (now, is_said) in [(2_000_000, false), (60_900_000, false), (61_000_000, true)] {
        record.on_time(&mut pool, now, RTT).expect("sound");
        assert_eq!(record.has_report(), is_said, "at {now} ns");
        assert!(record.poll_deadline() > Some(now));
    }
}

#[test]
fn a_low_watermark_reads_late_and_packets_wait() {
    let cfg = super::super::DmaCfg { latency_ns: 1000, ..Default::default() };
    let waited = |watermark| {
        let (mut pool, _region) = pool();
        *pool.dma_mut() = super::super::DmaModel::new(cfg);
        let sizes = AdamapSizes { list_nodes: 6, watermark, ..CFG.sizes };
        let mut record = AdamapRecord::new(1, AdamapCfg { sizes, ..CFG });
        for number in 0..41 {
            record.record(&mut pool, 0, 10 * number + 9, mark(0, 0)).expect("sound");
        }
        // A packet each 200 ns, of which nine use up a node: reading one in advance is enough.
        for (number, seq) in (0..400).filter(|seq| seq % 10 != 9).enumerate() {
            let now = 10_000 + 200 * number as u64;
            record.record(&mut pool, now, seq, mark(1, 0)).expect("sound");
        }
        pool.dma().stats().misses
    };
    let misses = [5, 1, 0].map(waited);
    assert_eq!(misses[..2], [0, 0], "what is read in advance is there in time");
    assert!(misses[2] >= 5, "{misses:?}");
}

#[test]
fn sizes_are_read_and_wrong_ones_named() {
    let sizes = |text: &str| text.parse::<AdamapSizes>();
    assert_eq!(sizes(""), Ok(AdamapSizes::default()));
    let wanted = AdamapSizes { bits: 64, list_nodes: 9, watermark: 8, table_nodes: 2 };
    assert_eq!(sizes("bits=64,list=9"), Ok(wanted));
    let wanted = AdamapSizes { watermark: 0, table_nodes: 1, ..wanted };
    assert_eq!(sizes("list=9,watermark=0,bits=64,table=1"), Ok(wanted));
    for (text, said) in [
        ("bits=0", "bits=0: 1 to 64"),
        ("list=65", "list=65: 1 to 64"),
        ("table=0", "table=0: 1 to 64"),
        ("list=3,watermark=3", "watermark=3: less than list"),
        ("bits=many", "bits=many: a number"),
        ("nodes=3", "nodes=3: a size is bits, list, watermark or table"),
    ] {
        let error = sizes(text).unwrap_err().to_string();
        assert!(error.starts_with(said), "{text}: {error}");
    }
}

/// A record with 40 closed nodes.
fn long_record(pool: &mut KnittingPool) -> AdamapRecord {
    let mut record = AdamapRecord::new(1, CFG);
    for number in 0..41 {
        record.record(pool, 0, 10 * number + 9, mark(0, 0)).expect("sound");
    }
    record
}

#[test]
fn a_node_that_others_wrote_to_is_noticed() {
    // Start, length and link of the first node in the pool, and the length of the last one.
    let last = 8 * 37;
    for (word, value) in [
        (0, 0),
        (0, 1 << 50),
        (2, 0),
        (2, 1 << 40),
        (7, 0),
        (7, 1 << 40),
        (last + 2, 0),
        (last + 2, 1 << 20),
    ] {
        let (mut pool, region) = pool();
        let mut record = long_record(&mut pool);
        region.store_u64(8 * word, value).expect("inside");
        let ends = (0..400).filter(|seq| seq % 10 != 9);
        let mut taken = ends.map(|seq| (seq, record.record(&mut pool, 0, seq, mark(1, 0))));
        let found = taken.find_map(|(seq, taken)| Some((seq, taken.err()?)));
        // When the node is read, while the one before the one before it is used up.
        let is_early = found.is_some_and(|(seq, _)| seq < 380);
        let error = found.map(|(_, error)| error);
        assert_eq!((error, is_early), (Some(LossError::Corrupt), true), "{word} is {value:#x}");
    }
}

#[test]
fn a_packet_of_an_entry_that_is_not_there_is_not_taken() {
    let (mut pool, _region) = pool();
    let mut record = long_record(&mut pool);
    for (seq, ticket) in [(3, 0), (3, u32::MAX), (500, 0)] {
        assert_eq!(record.record(&mut pool, 0, seq, mark(2, ticket)), Ok(Arrival::Unmatched));
    }
    // All of the first node but its last packet is lost again: one entry of eight packets.
    assert_eq!(record.record(&mut pool, 0, 8, mark(1, 0)), Ok(Arrival::Kept));
    assert_eq!(record.record(&mut pool, 0, 8, mark(2, 0)), Ok(Arrival::Unmatched));
    assert_eq!(record.record(&mut pool, 0, 7, mark(2, 0)), Ok(Arrival::Kept));
    assert_eq!(record.record(&mut pool, 0, 7, mark(2, 0)), Ok(Arrival::Duplicate));
}

#[test]
fn packets_wait_for_nodes_that_are_not_read_yet() {
    let (mut pool, _region) = pool();
    let cfg = super::super::DmaCfg { latency_ns: 1000, outstanding_max: 1, ..Default::default() };
    *pool.dma_mut() = super::super::DmaModel::new(cfg);
    let mut record = long_record(&mut pool);
    for seq in (0..400).filter(|seq| seq % 10 != 9) {
        record.record(&mut pool, 10, seq, mark(1, 0)).expect("sound");
    }
    let stats = pool.dma().stats();
    assert!(stats.misses > 0 && stats.wait_ns >= stats.misses, "{stats:?}");
    assert_eq!(pool.dma_mut().take_wait(), stats.wait_ns);
    assert_eq!(pool.dma_mut().take_wait(), 0);
}
