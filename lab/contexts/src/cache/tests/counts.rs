//! Exact times and counts: pins, strong fields below L1, thresholds of moves, bounds of queues.

use std::sync::Arc;

use urma_mem::sync::{AtomicU64, Ordering};

use super::*;
use crate::directory::{DIRTY, PINNED};

fn handle(index: u32) -> ContextHandle {
    ContextHandle::new(ContextKind::Page, index).unwrap()
}

/// A run with the contexts of these pages.
fn run_of(cfg: CacheCfg, pages: std::ops::Range<u32>) -> Run {
    let mut run = Run::new(cfg, None);
    pages.for_each(|index| {
        run.create(ContextKind::Page, index);
    });
    run
}

fn place(run: &Run, index: u32) -> ContextPlace {
    run.cache.directory.read(handle(index)).unwrap().place()
}

/// A cache that brings contexts on demand, and moves none by itself.
fn quiet_cfg() -> CacheCfg {
    CacheCfg {
        fill: FillRule::Demand,
        in_flight: MeetMigration::Wait,
        adapt: false,
        banks: 1,
        sample: 1,
        promote_l1: 60_000,
        promote_l2: 60_000,
        idle_l1_ns: 500_000_000,
        idle_l2_ns: 500_000_000,
        ..small_cfg(0)
    }
}

#[test]
fn a_renewed_pin_outlives_the_end_of_the_old_one() {
    let mut run = run_of(quiet_cfg(), 1..6);
    run.access(handle(1), SmallOp::Read, 0).unwrap();
    run.advance(10_000).unwrap();
    let is_pinned = |run: &Run| {
        let word = run.cache.directory.read(handle(1)).unwrap();
        (run.cache.pins.is_wanted(handle(1)), word.has(PINNED))
    };
    assert!(run.cache.pin(handle(1), 10_000));
    // Renewed, and then ended early and pinned anew: the ends at 110 and 160 us are of no pin.
    run.advance(60_000).unwrap();
    assert!(run.cache.pin(handle(1), 60_000));
    run.advance(110_000).unwrap();
    assert_eq!(is_pinned(&run), (true, true), "renewed");
    run.cache.unpin(handle(1));
    assert_eq!(is_pinned(&run), (false, false));
    assert!(run.cache.pin(handle(1), 110_000));
    run.advance(209_999).unwrap();
    assert_eq!(is_pinned(&run), (true, true));
    run.advance(210_000).unwrap();
    assert_eq!(is_pinned(&run), (false, false));
    let counts = run.cache.counts();
    assert_eq!((counts.pins, counts.pins_expired, counts.pins_refused), (2, 1, 0));
}

#[test]
fn a_pin_can_be_renewed_where_no_new_one_has_room() {
    let mut run = run_of(quiet_cfg(), 1..7);
    assert!((1..5).all(|index| run.cache.pin(handle(index), 0)));
    assert!(!run.cache.pin(handle(5), 0));
    assert!(run.cache.pin(handle(1), 0));
    let counts = run.cache.counts();
    assert_eq!((counts.pins, counts.pins_refused), (4, 1));
}

/// Writes strong fields, and looks at each copy below L1 at once.
fn written_below(run: &mut Run, value: u64, home: Option<u32>) {
    run.cache.write_strong((handle(1), 0), &page(value), run.cache.now).unwrap();
    let body = |token: ContextToken| token.body();
    let host = run.cache.host.record(handle(1)).map(|record| body(record.token));
    assert_eq!(host, Some(page(value)), "in host memory");
    let copy = home.and_then(|place| run.cache.cxl.record(place)).map(|record| body(record.token));
    assert_eq!(copy, home.map(|_| page(value)), "in L2");
}

#[test]
fn strong_fields_are_new_in_each_copy_below_l1_when_they_are_written() {
    let mut run = run_of(quiet_cfg(), 1..3);
    written_below(&mut run, 10, None);
    run.access(handle(1), SmallOp::Add(1), 0).unwrap();
    written_below(&mut run, 11, None);
    run.advance(100_000).unwrap();
    let word = run.cache.directory.read(handle(1)).unwrap();
    assert_eq!(word.place(), ContextPlace::L1);
    let home = run.cache.chip.slot(word.offset()).home;
    assert!(home.is_some(), "a copy lies in L2");
    written_below(&mut run, 12, home);
    // On its way down, at rest there, and on its way up.
    run.cache.migrate(handle(1), word, ContextPlace::L2);
    let word = run.cache.directory.read(handle(1)).unwrap();
    assert_eq!(word.place(), ContextPlace::L1, "a word of before is no word of now");
    run.cache.migrate(handle(1), word, ContextPlace::L2);
    assert_eq!(place(&run, 1), ContextPlace::ToL2);
    written_below(&mut run, 13, home);
    run.advance(200_000).unwrap();
    assert_eq!(place(&run, 1), ContextPlace::L2);
    written_below(&mut run, 14, home);
    run.access(handle(1), SmallOp::Add(1), 200_000).unwrap();
    assert_eq!(place(&run, 1), ContextPlace::ToL1);
    written_below(&mut run, 15, home);
    run.advance(300_000).unwrap();
    let word = run.cache.directory.read(handle(1)).unwrap();
    let slot = run.cache.chip.slot(word.offset());
    assert_eq!(slot.token.map(|token| token.body()), Some(page(15)));
}

#[test]
fn an_idle_context_leaves_l2_where_pages_are_scarce() {
    // Pages of 64 contexts, two of them.
    for (indices, stays) in [(vec![1, 2], true), (vec![1, 70], false)] {
        let cfg = CacheCfg { idle_l1_ns: 60_000, idle_l2_ns: 120_000, ..quiet_cfg() };
        let mut run = run_of(cfg, 0..71);
        for index in &indices {
            run.access(handle(*index), SmallOp::Add(1), 0).unwrap();
        }
        run.advance(20_000).unwrap();
        assert_eq!(place(&run, 1), ContextPlace::L1);
        run.advance(3_000_000).unwrap();
        let wanted = if stays { ContextPlace::L2 } else { ContextPlace::L3 };
        assert_eq!(place(&run, 1), wanted, "{indices:?}");
    }
}

#[test]
fn as_many_hits_as_the_threshold_says_move_a_context_up() {
    let accesses = |fill_hits: u32, promote_l1| {
        let cfg = CacheCfg {
            fill: FillRule::Threshold,
            promote_l1,
            promote_l2: 3,
            window_ns: 4_000_000,
            ..quiet_cfg()
        };
        let mut run = run_of(cfg, 1..3);
        for at in 0..fill_hits {
            run.access(handle(1), SmallOp::Read, 1000 + u64::from(at)).unwrap();
        }
        run.advance(400_000).unwrap();
        place(&run, 1)
    };
    assert_eq!(accesses(2, 60_000), ContextPlace::L3);
    assert_eq!(accesses(3, 60_000), ContextPlace::L2);
    assert_eq!(accesses(4, 5), ContextPlace::L2);
    assert_eq!(accesses(5, 5), ContextPlace::L1);
}

/// Contexts 1 to `count` in L2, none in L1.
fn in_l2(count: u32) -> Run {
    let mut run =
        run_of(CacheCfg { l1_entries: 64, l2_bytes: 4 * 4096, ..quiet_cfg() }, 1..count + 1);
    let mut now = 0;
    for index in 1..=count {
        run.access(handle(index), SmallOp::Read, now).unwrap();
        now += 20_000;
        run.advance(now).unwrap();
        let word = run.cache.directory.read(handle(index)).unwrap();
        run.step(|cache| cache.migrate(handle(index), word, ContextPlace::L2)).unwrap();
        now += 20_000;
        run.advance(now).unwrap();
        assert_eq!(place(&run, index), ContextPlace::L2, "{index}");
    }
    run
}

#[test]
fn a_batch_begins_with_its_32nd_prefetch_or_after_its_time() {
    let mut run = in_l2(40);
    let now = run.cache.now;
    let handles: Vec<_> = (1..=31).map(handle).collect();
    run.step(|cache| cache.prefetch(&handles, now)).unwrap();
    assert_eq!((run.cache.queue.len(), run.cache.queue.deadline()), (31, Some(now + 200)));
    run.step(|cache| cache.prefetch(&[handle(31), handle(32)], now)).unwrap();
    assert_eq!(run.cache.queue.len(), 0, "one is known, the other the 32nd");
    assert_eq!(place(&run, 32), ContextPlace::ToL1);
    run.step(|cache| cache.prefetch(&[handle(33)], now)).unwrap();
    run.advance(now + 199).unwrap();
    assert_eq!(run.cache.queue.len(), 1);
    run.advance(now + 200).unwrap();
    assert_eq!((run.cache.queue.len(), place(&run, 33)), (0, ContextPlace::ToL1));
}

#[test]
fn a_link_that_is_busy_takes_no_prefetches() {
    let mut run = in_l2(2);
    run.create(ContextKind::Page, 50);
    let now = run.cache.now;
    // 250 KB at 200 Gb/s take all of 10 us.
    run.cache.memory.write(now, 250_000);
    let dropped = run.cache.counts().prefetches_dropped;
    run.step(|cache| cache.prefetch(&[handle(1), handle(50)], now)).unwrap();
    let counts = run.cache.counts();
    assert_eq!((counts.prefetches_dropped - dropped, counts.mailbox_dropped), (2, 0));
    let later = now + 30_000;
    run.advance(later).unwrap();
    run.step(|cache| cache.prefetch(&[handle(1), handle(50)], later)).unwrap();
    assert_eq!(run.cache.counts().prefetches_dropped - dropped, 2);
}

/// Nine tenths of the time are 225 KB in 10 us.
#[test]
fn prefetches_are_taken_until_more_than_nine_tenths_of_the_link_are_busy() {
    for (bytes, wanted) in [(225_000, 0), (228_000, 2)] {
        let mut run = in_l2(2);
        run.create(ContextKind::Page, 50);
        let now = run.cache.now;
        run.cache.memory.write(now, bytes);
        let dropped = run.cache.counts().prefetches_dropped;
        run.step(|cache| cache.prefetch(&[handle(1), handle(50)], now)).unwrap();
        assert_eq!(run.cache.counts().prefetches_dropped - dropped, wanted, "{bytes}");
    }
}

#[test]
fn a_full_mailbox_drops_prefetches_and_counts_them() {
    let mut run = run_of(CacheCfg { outstanding: 32, ..quiet_cfg() }, 0..400);
    let handles: Vec<_> = (0..400).map(handle).collect();
    run.step(|cache| cache.prefetch(&handles, 0)).unwrap();
    let counts = run.cache.counts();
    // 256 places; what is read at once is taken from there when all were asked for.
    assert_eq!((counts.prefetches_asked, counts.mailbox_dropped), (400, 144));
    assert_eq!((counts.prefetches_dropped, counts.mailbox_depth_max), (144, 256));
}

#[test]
fn a_prefetch_is_useful_if_its_context_is_found_before_it_leaves() {
    let mut run = run_of(quiet_cfg(), 1..40);
    run.step(|cache| cache.prefetch(&[handle(1), handle(2)], 0)).unwrap();
    run.advance(20_000).unwrap();
    assert_eq!((place(&run, 1), place(&run, 2)), (ContextPlace::L1, ContextPlace::L1));
    run.access(handle(2), SmallOp::Read, 20_000).unwrap();
    run.access(handle(2), SmallOp::Read, 20_000).unwrap();
    assert_eq!(run.cache.counts().prefetches_useful, 1, "once");
    // Others drive the first one out; it returns by itself.
    let mut now = 20_000;
    for index in (3..40).filter(|index| !handle(*index).bits().is_multiple_of(8)) {
        run.access(handle(index), SmallOp::Read, now).unwrap();
        now += 20_000;
        run.advance(now).unwrap();
    }
    assert_ne!(place(&run, 1), ContextPlace::L1);
    run.access(handle(1), SmallOp::Read, now).unwrap();
    run.advance(now + 20_000).unwrap();
    run.access(handle(1), SmallOp::Read, now + 20_000).unwrap();
    assert_eq!((place(&run, 1), run.cache.counts().prefetches_useful), (ContextPlace::L1, 1));
}

#[test]
fn a_pinned_context_comes_to_l1_whatever_the_policy_thinks() {
    for (is_pinned, wanted) in [(false, ContextPlace::L2), (true, ContextPlace::L1)] {
        let mut run = run_of(quiet_cfg(), 1..40);
        let mut now = 0;
        for index in (1..40).filter(|index| !handle(*index).bits().is_multiple_of(8)) {
            run.access(handle(index), SmallOp::Read, now).unwrap();
            now += 20_000;
            run.advance(now).unwrap();
        }
        // The policy of the tests refuses each eighth handle once all slots are taken.
        if is_pinned {
            assert!(run.cache.pin(handle(16), now));
        }
        run.access(handle(16), SmallOp::Read, now).unwrap();
        run.advance(now + 20_000).unwrap();
        assert_eq!(place(&run, 16), wanted, "{is_pinned}");
    }
}

#[test]
fn a_host_that_is_silent_is_asked_three_times() {
    let mut run = run_of(quiet_cfg(), 1..2);
    run.cache.plant(Some(ContextFault::HostSilent));
    let access = run.cache.access(handle(1), 0, SmallOp::Add(1), 0).unwrap();
    assert_eq!((access.mode, access.small), (AccessMode::Expand, None));
    run.cache.advance(1_000_000);
    let counts = run.cache.counts();
    assert_eq!((counts.fetches, counts.fetches_again, counts.fetches_failed), (1, 2, 1));
    assert_eq!(run.cache.poll_wake().map(|wake| wake.small), Some(None));
    assert_eq!(place(&run, 1), ContextPlace::L3);
}

#[test]
fn wakes_that_are_not_taken_are_kept_up_to_a_bound() {
    let mut run = run_of(quiet_cfg(), 1..2);
    for _ in 0..5000 {
        run.cache.access(handle(1), 0, SmallOp::Add(1), 0).unwrap();
    }
    run.cache.advance(1_000_000);
    let wakes: Vec<Option<u64>> =
        std::iter::from_fn(|| run.cache.poll_wake()).map(|wake| wake.small).collect();
    assert_eq!(wakes.len(), 4096);
    assert_eq!((wakes[0], wakes[4095]), (Some(905), Some(5000)), "the oldest are dropped");
}

#[test]
fn prefetches_are_ahead_by_as_many_requests_as_a_miss_takes() {
    // 250 ns of L2, 900 ns of host memory.
    for (l2_bytes, per_s, distance) in
        [(8192, 10_000_000, 3), (8192, 8_000_000, 2), (0, 10_000_000, 9), (0, 1, 1), (0, 0, 0)]
    {
        let run = Run::new(CacheCfg { l2_bytes, ..quiet_cfg() }, None);
        assert_eq!(run.cache.prefetch_distance(per_s), distance, "{l2_bytes} {per_s}");
    }
}

/// LRU that counts the hits it sees.
#[derive(Debug)]
struct CountsHits(Box<dyn Policy>, Arc<AtomicU64>);

impl Policy for CountsHits {
    fn on_hit(&mut self, slot: u32) {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.on_hit(slot);
    }

    fn on_miss(&mut self, handle: u32) {
        self.0.on_miss(handle);
    }

    fn victim(&mut self, handle: u32) -> u32 {
        self.0.victim(handle)
    }

    fn admit(&mut self, handle: u32, victim: u32) -> bool {
        self.0.admit(handle, victim)
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

#[test]
fn accesses_in_one_step_leave_what_as_many_accesses_would() {
    let hits = Arc::new(AtomicU64::new(0));
    let mut policy =
        |slots| -> Box<dyn Policy> { Box::new(CountsHits(lru(slots), Arc::clone(&hits))) };
    let mut cache = ContextCache::unchecked(quiet_cfg(), &mut policy);
    cache.create(1, &page(1)).unwrap();
    assert!(!cache.hit_again((handle(1), 0), SmallOp::Add(2), (3, 0)), "it is not in L1");
    cache.access(handle(1), 0, SmallOp::Add(1), 0).unwrap();
    cache.advance(50_000);
    // The policy sees as many hits as its counts can hold.
    for (times, seen, small) in [(1, 1, 3), (3, 4, 9), (4, 8, 17), (100, 12, 217)] {
        assert!(cache.hit_again((handle(1), 0), SmallOp::Add(2), (times, 50_000)));
        assert_eq!(hits.load(Ordering::Relaxed), seen, "{times}");
        let word = cache.directory.read(handle(1)).unwrap();
        assert_eq!(cache.chip.slot(word.offset()).word.read(), small, "{times}");
    }
    let counts = cache.counts();
    assert_eq!((counts.accesses, counts.l1_hits, counts.wait_ns.count()), (109, 108, 109));
    assert_eq!(cache.directory.hits(handle(1), 50_000, 200_000), 109);
    assert!(!cache.hit_again((handle(1), 1), SmallOp::Read, (1, 50_000)), "another life");
}

/// The worker looks each 50 us, and knows the last access by units of 8.192 us: 2 of them at 20 us, 18 at 150 us.
#[test]
fn a_context_leaves_a_tier_when_it_was_idle_for_longer_than_the_limit() {
    const LIMIT: u64 = 16 * 8192;
    let mut run = run_of(CacheCfg { idle_l1_ns: LIMIT, ..quiet_cfg() }, 1..2);
    run.access(handle(1), SmallOp::Read, 0).unwrap();
    run.access(handle(1), SmallOp::Read, 20_000).unwrap();
    run.advance(199_999).unwrap();
    assert_eq!(place(&run, 1), ContextPlace::L1, "as long as the limit, no longer");
    run.advance(200_000).unwrap();
    assert_eq!(place(&run, 1), ContextPlace::ToL2);
    // Two pages of two are in use: the same limit there.
    let cfg = CacheCfg { idle_l1_ns: 60_000, idle_l2_ns: LIMIT, ..quiet_cfg() };
    let mut run = run_of(cfg, 0..71);
    for at in [0, 20_000] {
        run.access(handle(1), SmallOp::Read, at).unwrap();
        run.access(handle(70), SmallOp::Read, at).unwrap();
    }
    run.advance(199_999).unwrap();
    assert_eq!((place(&run, 1), place(&run, 70)), (ContextPlace::L2, ContextPlace::L2));
    run.advance(201_000).unwrap();
    assert_eq!(place(&run, 1), ContextPlace::L3);
}

/// Sixteen slots; the first context changed two bytes of its small fields, the second none.
#[test]
fn an_eviction_writes_the_bytes_that_differ() {
    let mut run = run_of(quiet_cfg(), 1..40);
    let mut handles = (1..40).filter(|index| !handle(*index).bits().is_multiple_of(8)).zip(0..);
    let mut access = |run: &mut Run, count: usize| {
        for (index, number) in handles.by_ref().take(count) {
            let op = if number == 0 { SmallOp::Add(511) } else { SmallOp::Read };
            run.access(handle(index), op, number * 20_000).unwrap();
            run.advance(number * 20_000 + 19_000).unwrap();
        }
        let counts = run.cache.counts();
        let evicted = (counts.evicted_dirty, counts.evicted_clean);
        (counts.installed, evicted, counts.written_back_bytes, counts.migrations_to_l2)
    };
    assert_eq!(access(&mut run, 16), (16, (0, 0), 0, 0));
    assert_eq!(access(&mut run, 1), (17, (1, 0), 2, 1));
    assert_eq!(access(&mut run, 1), (18, (1, 1), 2, 2));
}

/// 256 requests to the host at a time; the link and reads in service bound none here.
#[test]
fn urgent_requests_beyond_the_mailbox_wait_for_the_first_to_end() {
    let mut run = run_of(CacheCfg { outstanding: 1024, ..quiet_cfg() }, 0..300);
    for index in 0..300 {
        run.cache.access(handle(index), 0, SmallOp::Read, 0).unwrap();
    }
    let counts = run.cache.counts();
    assert_eq!((counts.fallbacks_expand, counts.mailbox_waits), (300, 44));
    assert_eq!(counts.mailbox_depth_max, 256);
}

/// 4,096 bytes are the descriptors of 512 pages, which one read brings.
#[test]
fn a_context_comes_to_l2_with_its_cluster() {
    let cfg = CacheCfg {
        fill: FillRule::Threshold,
        promote_l2: 3,
        window_ns: 4_000_000,
        l2_bytes: 4 * 4096,
        ..quiet_cfg()
    };
    for (hit, cluster) in [(505, 500..512), (512, 512..530)] {
        let mut run = run_of(cfg.clone(), 500..530);
        run.destroy(handle(507)).unwrap();
        for at in 0..3 {
            run.access(handle(hit), SmallOp::Read, 1000 + at).unwrap();
        }
        run.advance(300_000).unwrap();
        let in_l2 = |index: &u32| place(&run, *index) == ContextPlace::L2;
        let found = (500..530).filter(|index| *index != 507).filter(in_l2);
        let wanted = cluster.filter(|index| *index != 507);
        assert_eq!(found.collect::<Vec<_>>(), wanted.collect::<Vec<_>>(), "{hit}");
    }
}

#[test]
fn one_of_so_many_accesses_counts_for_all_of_them() {
    let mut run = run_of(CacheCfg { sample: 4, ..quiet_cfg() }, 1..2);
    for (accesses, hits) in [(1, 4), (4, 4), (5, 8), (8, 8), (9, 12)] {
        while run.cache.counts().accesses < accesses {
            run.cache.access(handle(1), 0, SmallOp::Read, 0).unwrap();
        }
        assert_eq!(run.cache.directory.hits(handle(1), 0, 200_000), hits, "{accesses}");
    }
}

#[test]
fn a_prefetch_that_accesses_meet_is_late_once() {
    for in_flight in [MeetMigration::Wait, MeetMigration::Optimistic] {
        let mut run = run_of(CacheCfg { in_flight, ..quiet_cfg() }, 1..4);
        run.step(|cache| cache.prefetch(&[handle(1), handle(2)], 0)).unwrap();
        for _ in 0..3 {
            run.access(handle(1), SmallOp::Read, 10).unwrap();
        }
        assert_eq!(run.cache.counts().prefetches_late, 1, "{in_flight:?}");
        // What a request waits for is no prefetch.
        run.access(handle(3), SmallOp::Add(1), 10).unwrap();
        run.access(handle(3), SmallOp::Read, 10).unwrap();
        run.access(handle(2), SmallOp::Add(1), 10).unwrap();
        assert_eq!(run.cache.counts().prefetches_late, 2, "{in_flight:?}");
        run.advance(50_000).unwrap();
    }
}

#[test]
fn a_batch_reads_256_contexts_and_the_queue_has_1024_places() {
    let mut run = in_l2(2);
    let now = run.cache.now;
    // All but the first two are in no tier: they are skipped when their turn comes.
    run.cache.queue.fill((3..1026).map(handle));
    let before = run.cache.counts().clone();
    run.cache.prefetch(&[handle(1)], now);
    assert_eq!(run.cache.queue.len(), 1024 - 256);
    assert_eq!(run.cache.counts().prefetches_skipped - before.prefetches_skipped, 256);
    assert_eq!(run.cache.queue.deadline(), Some(now + 200));
    // A full queue takes no prefetch; a request takes the place of the newest one, and goes first.
    run.cache.queue.fill((2000..2256).map(handle));
    run.cache.prefetch(&[handle(2)], now);
    assert_eq!(run.cache.counts().prefetches_dropped - before.prefetches_dropped, 1);
    assert_eq!(run.cache.queue.len(), 1024);
    run.cache.access(handle(2), 0, SmallOp::Read, now).unwrap();
    assert_eq!(run.cache.counts().prefetches_dropped - before.prefetches_dropped, 2);
    assert_eq!((run.cache.queue.len(), place(&run, 2)), (1024 - 256, ContextPlace::ToL1));
}

/// A writer of strong fields goes on while a context is on its way: that is no failure of the host.
#[test]
fn a_context_whose_strong_fields_change_on_its_way_arrives() {
    let mut run = run_of(quiet_cfg(), 1..2);
    run.access(handle(1), SmallOp::Add(1), 0).unwrap();
    for value in 0..5 {
        let due = run.cache.flights.get(handle(1)).unwrap().ready_at;
        run.cache.write_strong((handle(1), 0), &page(10 + value), due - 1).unwrap();
        run.advance(due).unwrap();
        assert_eq!(place(&run, 1), ContextPlace::ToL1, "{value}");
    }
    run.advance(1_000_000).unwrap();
    let counts = run.cache.counts();
    assert_eq!((counts.fetches, counts.fetches_again, counts.fetches_failed), (1, 5, 0));
    let word = run.cache.directory.read(handle(1)).unwrap();
    let slot = run.cache.chip.slot(word.offset());
    assert_eq!((word.place(), slot.word.read()), (ContextPlace::L1, 1));
    assert_eq!(slot.token.map(|token| token.body()), Some(page(14)));
}

#[test]
fn the_deepest_that_the_mailbox_was_is_kept() {
    let mut run = run_of(CacheCfg { outstanding: 1024, ..quiet_cfg() }, 0..400);
    for index in 0..20 {
        run.access(handle(index), SmallOp::Read, 0).unwrap();
    }
    assert_eq!(run.cache.counts().mailbox_depth_max, 20);
    // All of them ended.
    run.access(handle(20), SmallOp::Read, 1_000_000).unwrap();
    run.step(|cache| cache.prefetch(&[handle(21)], 1_000_000)).unwrap();
    assert_eq!(run.cache.counts().mailbox_depth_max, 20);
    let handles: Vec<_> = (22..52).map(handle).collect();
    run.step(|cache| cache.prefetch(&handles, 2_000_000)).unwrap();
    assert_eq!(run.cache.counts().mailbox_depth_max, 30);
    // One read at a time: prefetches wait behind it, each of them deepens the mailbox.
    let mut run = run_of(CacheCfg { outstanding: 1, ..quiet_cfg() }, 0..10);
    run.access(handle(0), SmallOp::Read, 0).unwrap();
    let handles: Vec<_> = (1..6).map(handle).collect();
    run.step(|cache| cache.prefetch(&handles, 0)).unwrap();
    assert_eq!(run.cache.counts().mailbox_depth_max, 6);
    run.advance(1_000_000).unwrap();
    assert_eq!(run.cache.counts().mailbox_depth_max, 6);
}

#[test]
fn a_request_for_a_prefetch_that_waits_makes_it_late() {
    let mut run = in_l2(4);
    let now = run.cache.now;
    let before = run.cache.counts().clone();
    run.step(|cache| cache.prefetch(&[1, 2, 3, 4].map(handle), now)).unwrap();
    run.access(handle(3), SmallOp::Read, now).unwrap();
    let counts = run.cache.counts();
    let late = counts.prefetches_late - before.prefetches_late;
    let skipped = counts.prefetches_skipped - before.prefetches_skipped;
    assert_eq!((late, skipped), (1, 1));
    // The others went with it.
    let issued = counts.prefetches_issued - before.prefetches_issued;
    assert_eq!((issued, run.cache.queue.len()), (3, 0));
}

#[test]
fn a_prefetch_whose_context_left_its_tier_is_skipped_once() {
    // Of host memory: context 1 moves already when its turn comes, 50 is none.
    let mut run = run_of(quiet_cfg(), 1..4);
    run.access(handle(1), SmallOp::Read, 0).unwrap();
    run.advance(100_000).unwrap();
    for index in [1, 50, 2] {
        assert!(run.cache.mailbox.push(handle(index), 0));
    }
    run.cache.serve_background();
    let counts = run.cache.counts();
    assert_eq!((counts.prefetches_skipped, counts.prefetches_issued), (2, 1));
    assert_eq!((place(&run, 2), run.cache.mailbox.depth()), (ContextPlace::ToL1, 0));
    // Of L2: the third of the batch is in no tier.
    let mut run = in_l2(2);
    let before = run.cache.counts().clone();
    run.cache.queue.fill([1, 2, 70].map(handle).into_iter());
    run.cache.begin_batch();
    let counts = run.cache.counts();
    assert_eq!(counts.prefetches_skipped - before.prefetches_skipped, 1);
    assert_eq!(counts.prefetches_issued - before.prefetches_issued, 2);
}

#[test]
fn a_context_that_ends_on_its_way_leaves_no_page_behind() {
    let mut run = in_l2(1);
    assert_eq!(run.cache.cxl.usage(), (1, 4));
    let now = run.cache.now;
    run.access(handle(1), SmallOp::Add(1), now).unwrap();
    assert_eq!(place(&run, 1), ContextPlace::ToL1);
    run.destroy(handle(1)).unwrap();
    assert_eq!(run.cache.cxl.usage(), (0, 4));
}

#[test]
fn no_context_moves_up_where_there_is_no_l2() {
    let cfg = CacheCfg {
        fill: FillRule::Threshold,
        promote_l2: 3,
        window_ns: 4_000_000,
        l2_bytes: 0,
        ..quiet_cfg()
    };
    let mut run = run_of(cfg, 1..3);
    for at in 0..9 {
        run.access(handle(1), SmallOp::Read, 1000 + at).unwrap();
    }
    run.advance(400_000).unwrap();
    assert_eq!((place(&run, 1), run.cache.counts().fetches), (ContextPlace::L3, 0));
}

#[test]
fn hits_that_a_bank_had_no_place_for_are_counted() {
    let mut run = run_of(quiet_cfg(), 1..2);
    run.cache.chip.hits_lost = 7;
    assert_eq!(run.cache.counts().hits_lost, 7);
}

#[test]
fn a_change_in_one_step_with_others_is_written_back_like_any() {
    for (op, is_dirty) in
        [(SmallOp::Read, false), (SmallOp::Add(0), false), (SmallOp::Add(2), true)]
    {
        let mut run = run_of(quiet_cfg(), 1..2);
        run.cache.access(handle(1), 0, SmallOp::Read, 0).unwrap();
        run.cache.advance(50_000);
        assert!(run.cache.hit_again((handle(1), 0), op, (3, 50_000)));
        let word = run.cache.directory.read(handle(1)).unwrap();
        assert_eq!((word.place(), word.has(DIRTY)), (ContextPlace::L1, is_dirty), "{op:?}");
    }
}

#[test]
fn a_cache_without_contexts_has_nothing_to_look_at() {
    let mut run = Run::new(quiet_cfg(), None);
    run.cache.advance(1_000_000);
    assert_eq!((run.cache.counts().fetches, run.cache.next_event()), (0, Some(1_050_000)));
}

/// A context that left `from` for `to` a moment before the time that is returned.
fn leaving(cfg: CacheCfg, (from, to): (ContextPlace, ContextPlace)) -> (Run, u64) {
    let mut run = run_of(cfg, 1..3);
    let mut now = 0;
    if from != ContextPlace::L3 {
        run.access(handle(1), SmallOp::Add(5), now).unwrap();
        now += 100_000;
        run.advance(now).unwrap();
    }
    if from == ContextPlace::L2 {
        let word = run.cache.directory.read(handle(1)).unwrap();
        run.step(|cache| cache.migrate(handle(1), word, ContextPlace::L2)).unwrap();
        now += 100_000;
        run.advance(now).unwrap();
    }
    assert_eq!(place(&run, 1), from);
    if to == ContextPlace::L1 {
        run.step(|cache| cache.prefetch(&[handle(1)], now)).unwrap();
        now += 200;
        run.advance(now).unwrap();
    } else {
        let word = run.cache.directory.read(handle(1)).unwrap();
        // So that the write takes longer than a look at the chip.
        run.cache.memory.write(now, 4096);
        run.step(|cache| cache.migrate(handle(1), word, to)).unwrap();
    }
    (run, now)
}

/// Reads of contexts that leave each tier, at each time of their move: those that end before it does are served there.
#[test]
fn a_read_meets_a_move_where_the_context_was_if_it_is_the_faster_one() {
    for (from, to, wanted) in [
        (ContextPlace::L2, ContextPlace::L1, [16, 8]),
        (ContextPlace::L3, ContextPlace::L1, [2, 22]),
        (ContextPlace::L1, ContextPlace::L2, [24, 0]),
    ] {
        let mut modes = [0; 2];
        for seed in 0..24 {
            let cfg =
                CacheCfg { in_flight: MeetMigration::Optimistic, l1_ns: 1, seed, ..quiet_cfg() };
            let (mut run, now) = leaving(cfg, (from, to));
            let end = run.cache.flights.get(handle(1)).unwrap().ready_at;
            let access = run.access(handle(1), SmallOp::Read, now).unwrap().unwrap();
            let counts = run.cache.counts();
            let value = if from == ContextPlace::L3 { 0 } else { 5 };
            if access.mode == AccessMode::Optimistic {
                modes[0] += 1;
                assert!(access.ready_at < end && access.small == Some(value), "{access:?} {end}");
                assert_eq!((counts.optimistic_reads, counts.optimistic_retries), (1, 0));
            } else {
                modes[1] += 1;
                assert_eq!((access.mode, access.small), (AccessMode::Waits, None));
                assert_eq!((counts.optimistic_reads, counts.optimistic_retries), (0, 1));
                assert!(access.ready_at > end);
            }
            // Behind an update that waits nothing is read there any more.
            let later = if access.mode == AccessMode::Optimistic {
                run.access(handle(1), SmallOp::Add(1), now).unwrap();
                run.access(handle(1), SmallOp::Read, now).unwrap().unwrap()
            } else {
                access
            };
            assert_eq!(later.mode, AccessMode::Waits);
            run.advance(now + 100_000).unwrap();
        }
        assert_eq!(modes, wanted, "{from:?}");
    }
}
