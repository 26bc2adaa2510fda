//! The shape of the model: mean access, rate against active queues, prefetch. Every figure is the model's.

use super::*;
use crate::{handle::SplitMix64, memory::FACTORS};

#[test]
fn the_mean_access_is_that_of_the_formula() {
    let cfg = CacheCfg { idle_l1_ns: 200_000_000, ..CacheCfg::default() };
    let mut cache = ContextCache::new(cfg, &mut lru).unwrap();
    let handles: Vec<_> =
        (0..100).map(|index| ContextHandle::new(ContextKind::Page, index).unwrap()).collect();
    for handle in &handles {
        cache.create(handle.index(), &page(1)).unwrap();
    }
    for handle in &handles[..85] {
        cache.access(*handle, 0, SmallOp::Read, 0).unwrap();
    }
    cache.advance(40_000);
    for handle in &handles[60..85] {
        let word = cache.directory.read(*handle).unwrap();
        cache.migrate(*handle, word, ContextPlace::L2);
    }
    cache.advance(49_000);
    // From here on everything stays where it is.
    (cache.cfg.fill, cache.cfg.promote_l2) = (FillRule::Threshold, u32::MAX);
    cache.adaptation = Adaptation::new(u32::MAX);
    let (before, mut rng) = (cache.counts.clone(), SplitMix64(5));
    cache.counts.wait_ns = crate::TimeHistogram::default();
    for at in 0..100_000u64 {
        let handle = handles[(((rng.next() >> 32) * 100) >> 32) as usize];
        cache.access(handle, 0, SmallOp::Read, 50_000 + at * 10_000).unwrap();
        if at % 1000 == 0 {
            // Idle times are hints of half a second; nothing is to leave.
            cache.cfg.idle_l1_ns = u64::MAX;
        }
    }
    let of =
        |counter: fn(&ContextCounts) -> u64| (counter(&cache.counts) - counter(&before)) as f64;
    let (all, l1, l2) = (of(|c| c.accesses), of(|c| c.l1_hits), of(|c| c.l2_hits));
    let (h1, h2) = (l1 / all, l2 / (all - l1));
    assert!((0.55..0.65).contains(&h1) && (0.55..0.7).contains(&h2), "{h1} {h2}");
    // Mean of the drawn factor: the quantiles, and one of 1000 times 8; a line of the link comes to 2 to 11 ns.
    let mean: f64 = FACTORS.iter().map(|f| f64::from(*f)).sum::<f64>() / 256.0 / 65536.0 * 1.007;
    let (far_l2, far_l3) = (250.0 * mean + 3.0, 900.0 * mean + 1.0);
    let formula = 4.0 * h1 + (1.0 - h1) * (far_l2 * h2 + far_l3 * (1.0 - h2));
    let measured = cache.counts.wait_ns.mean() as f64;
    println!("model: mean access {measured} ns, formula {formula:.1} ns");
    assert!((measured / formula - 1.0).abs() < 0.02, "{measured} {formula}");
}

/// What a run of messages gave.
#[derive(Debug)]
struct Rate {
    /// Messages in a microsecond.
    per_us: f64,
    /// Share of accesses that waited for nothing.
    prompt: f64,
}

/// Sends messages of queues picked at random, `shares` of which have one queue, TP, JFC and segment; at most 30 in a microsecond and [`WINDOW`] at a time.
fn send(cfg: CacheCfg, queues: u32, messages: usize, shares: [u32; 4], prefetch: bool) -> Rate {
    let mut cache = ContextCache::new(cfg, &mut lru).unwrap();
    for (kind, share) in KINDS.into_iter().zip(shares) {
        (0..(queues / share).max(1)).for_each(|index| {
            cache.create(index, &TokenBody::zero(kind)).unwrap();
        });
    }
    let mut rng = SplitMix64(11);
    let warm = 4 * queues as usize;
    let named: Vec<[ContextHandle; 4]> = (0..warm + messages + 64)
        .map(|_| {
            contexts_of((((rng.next() >> 32) * u64::from(queues)) >> 32) as u32, queues, shares)
        })
        .collect();
    let ahead = (900usize * 30).div_ceil(1000);
    let mut ends = VecDeque::new();
    let (mut at_ps, mut begun, mut prompt) = (0u64, 0, 0);
    for message in 0..warm + messages {
        if message == warm {
            (begun, prompt) = (at_ps, 0);
        }
        if ends.len() == WINDOW {
            at_ps = at_ps.max(ends.pop_front().unwrap_or(0) * 1000);
        }
        let now = at_ps / 1000;
        if prefetch {
            cache.prefetch(&named[message + ahead], now);
        }
        // A message waits for all its contexts at once.
        let mut ready_at = now;
        for handle in named[message] {
            let access = cache.access(handle, 0, SmallOp::Add(1), now).unwrap();
            prompt += usize::from(access.mode == AccessMode::Inline);
            ready_at = ready_at.max(access.ready_at);
        }
        ends.push_back(ready_at);
        at_ps += 1_000_000 / 30;
    }
    let us = (at_ps - begun) as f64 / 1e6;
    Rate { per_us: messages as f64 / us, prompt: prompt as f64 / (4 * messages) as f64 }
}

/// Contexts of a message.
const KINDS: [ContextKind; 4] =
    [ContextKind::Queue, ContextKind::Tp, ContextKind::Jfc, ContextKind::Segment];

fn contexts_of(queue: u32, queues: u32, shares: [u32; 4]) -> [ContextHandle; 4] {
    std::array::from_fn(|at| {
        ContextHandle::new(KINDS[at], queue % (queues / shares[at]).max(1)).unwrap()
    })
}

/// Messages that the model has under way.
const WINDOW: usize = 64;

#[test]
fn prefetch_hides_the_misses_of_ten_thousand_queues() {
    let shares = [1, 8, 8, 4];
    // 10,000 queues with 1,250 TPs, 1,250 JFCs and 2,500 segments: 15,000 contexts.
    let cfg = CacheCfg { l1_entries: 1500, ..CacheCfg::default() };
    let many = send(cfg.clone(), 10_000, 60_000, shares, true);
    let few = send(cfg, 64, 60_000, shares, true);
    println!(
        "model: 10,000 queues, L1 10 %, prefetch: {:.2} M/s, {:.2} % prompt; 64 queues: {:.2} M/s",
        many.per_us,
        100.0 * many.prompt,
        few.per_us
    );
    assert!(many.prompt >= 0.95, "{many:?}");
    assert!(many.per_us >= 0.95 * few.per_us, "{many:?} {few:?}");
}

#[test]
fn without_prefetch_the_rate_is_about_half_at_two_to_three_times_the_capacity() {
    // Each queue has its own TP, JFC and segment: 4 contexts a queue.
    let cfg = CacheCfg { l1_entries: 2048, l2_bytes: 0, outstanding: 32, ..CacheCfg::default() };
    let rate = |queues| send(cfg.clone(), queues, 40_000, [1; 4], false).per_us;
    let (fits, twice, thrice) = (rate(500), rate(1024), rate(1536));
    println!(
        "model: LRU without prefetch: {fits:.2} M/s fitting, {twice:.2} at 2 times, {thrice:.2} at 3 times the capacity"
    );
    assert!(fits > 28.0, "{fits}");
    // min(R, outstanding / (misses a message * t_miss)), with the mean of the drawn latency.
    for (times, rate) in [(2.0, twice), (3.0, thrice)] {
        let misses = 4.0 * (1.0 - 1.0 / times);
        let formula = f64::min(32.0 / (misses * 0.9 * 1.018), 30.0);
        assert!((rate / formula - 1.0).abs() < 0.1, "{times}: {rate} {formula}");
    }
    assert!(twice > 0.5 * fits && thrice < 0.5 * fits, "{twice} {thrice}");
}

/// The threshold rule with fixed and adaptive `promote_l1`, each way of meeting migrations, on the same accesses.
#[test]
fn adaptive_thresholds_stand_beside_fixed_ones() {
    let mut adaptations = 0;
    for in_flight in [MeetMigration::Wait, MeetMigration::Optimistic] {
        let run = |adapt| {
            let cfg = CacheCfg {
                l1_entries: 512,
                l2_bytes: 1 << 20,
                fill: FillRule::Threshold,
                in_flight,
                adapt,
                ..CacheCfg::default()
            };
            threshold_run(cfg)
        };
        let [fixed, adaptive] = [false, true].map(run);
        for (name, counts) in [("fixed", &fixed), ("adaptive", &adaptive)] {
            println!(
                "model: threshold rule, {in_flight:?}, {name}: L1 {:.1} %, mean {} ns, p99 {} ns, {} changes",
                100.0 * counts.l1_hits as f64 / counts.accesses as f64,
                counts.wait_ns.mean(),
                counts.wait_ns.quantile(990),
                counts.adaptations,
            );
        }
        assert_eq!(fixed.accesses, adaptive.accesses, "the same accesses");
        assert_eq!(fixed.adaptations, 0);
        // At most one change in each millisecond.
        assert!(adaptive.adaptations <= RUN_NS / 1_000_000 + 1, "{}", adaptive.adaptations);
        adaptations += adaptive.adaptations;
        let means = (fixed.wait_ns.mean(), adaptive.wait_ns.mean());
        assert!(means.1 < means.0, "the host is busy and L1 empty: {means:?}");
    }
    assert!(adaptations > 0, "the load changes the threshold");
}

/// Time of a run of the threshold rule.
const RUN_NS: u64 = 20_000_000;

/// 4,000 queues, of which 200 take four of five accesses: 80 hits in the window each, below the threshold of 128.
fn threshold_run(cfg: CacheCfg) -> ContextCounts {
    let mut cache = ContextCache::new(cfg, &mut lru).unwrap();
    (0..4000).for_each(|index| {
        cache.create(index, &TokenBody::zero(ContextKind::Queue)).unwrap();
    });
    let mut rng = SplitMix64(3);
    for now in (0..RUN_NS).step_by(50) {
        let drawn = rng.next();
        let among = if drawn.is_multiple_of(5) { 4000 } else { 200 };
        let index = (((drawn >> 32) * among) >> 32) as u32;
        let handle = ContextHandle::new(ContextKind::Queue, index).unwrap();
        cache.access(handle, 0, SmallOp::Add(1), now).unwrap();
        while cache.poll_wake().is_some() {}
    }
    cache.counts().clone()
}
