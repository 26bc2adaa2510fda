//! Senders that share a router's queue, in virtual time: fairness, use of the link, length of the queue, losses.

use lab::wan::bottleneck::rival::RivalKind;
use lab::wan::bottleneck::world::{Bottleneck, BottleneckWorld, FlowCounts, SharingOutcome};
use lab::wan::loss::LossCfg;
use urma_recovery::{CongestionChoice, Recovery};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;

/// 10,000 packets a second, 20 ms, a queue of one bandwidth-delay product.
fn bottleneck(congestion: CongestionChoice, flows: usize) -> Bottleneck {
    Bottleneck {
        congestion,
        recovery: Recovery::SelectiveRepeat,
        expected_loss: None,
        flows,
        message: None,
        rivals: Vec::new(),
        cross: None,
        packet_ps: 100_000_000,
        rtt_ns: 20 * MS,
        queue: 200,
        loss: lost(0),
        stagger_ns: 100 * MS,
        until_ns: 25 * SECOND,
        from_ns: 15 * SECOND,
    }
}

/// Independent losses of so many of 100,000 packets.
fn lost(of_100_000: u32) -> LossCfg {
    LossCfg { mean: f64::from(of_100_000) / 1e5, ..LossCfg::parse("none").expect("a model") }
}

/// The same measured between these seconds.
fn between(from: u64, until: u64, cfg: Bottleneck) -> Bottleneck {
    Bottleneck { from_ns: from * SECOND, until_ns: until * SECOND, ..cfg }
}

/// An outcome without its pictures.
fn brief(outcome: &SharingOutcome) -> String {
    let SharingOutcome { flows, used, wait_mean_ms, wait_max_ms, .. } = outcome;
    let shares: Vec<u64> = flows.iter().map(|flow| flow.received).collect();
    format!(
        "Jain {:.3}, used {used:.3}, waits {wait_mean_ms:.2} {wait_max_ms:.2} ms, {} dropped, {shares:?}",
        outcome.fairness(),
        outcome.dropped()
    )
}

const KNIT: Recovery = Recovery::Knitting { tail_copies: 1 };

#[test]
fn flows_of_one_kind_share_a_link_fairly_and_use_it() {
    for congestion in [CongestionChoice::Cubic, CongestionChoice::Delay] {
        for flows in [2, 8] {
            for recovery in [Recovery::SelectiveRepeat, KNIT] {
                let cfg = Bottleneck { recovery, ..bottleneck(congestion, flows) };
                let outcome = cfg.measure(1);
                let fairness = outcome.fairness();
                assert!(fairness >= 0.9 && outcome.used >= 0.9, "{cfg:?}: {}", brief(&outcome));
            }
        }
    }
}

/// What nodes do without a setting. All begin at once, in a queue that they fill before they know the path.
#[test]
fn sixteen_flows_share_a_link_alike_and_little_is_dropped() {
    for (rtt_ms, of_100_000) in [(2, 0), (20, 0), (80, 0), (2, 1000), (20, 1000), (80, 5000)] {
        let of_all = bottleneck(CongestionChoice::default(), 16);
        let cfg =
            Bottleneck { recovery: KNIT, rtt_ns: rtt_ms * MS, loss: lost(of_100_000), ..of_all };
        let outcome = cfg.measure(1);
        let fairness = outcome.fairness();
        let fair = if of_100_000 == 0 { 0.95 } else { 0.9 };
        assert!(fairness >= fair && outcome.used >= 0.95, "{cfg:?}: {}", brief(&outcome));
        let received: u64 = outcome.flows.iter().map(|flow| flow.received).sum();
        // Of 2 ms the queue is ten round trips, and of 80 ms a quarter.
        let most = if (rtt_ms, of_100_000) == (20, 0) { 1 } else { 7 };
        assert!(100 * outcome.dropped() < most * received, "{cfg:?}: {}", brief(&outcome));
    }
}

#[test]
fn a_window_by_delay_keeps_the_queue_at_its_target() {
    // 0.675 ms of tolerance, and a root of the window beside the window: 1.5 ms of 20 for 200 packets.
    for (flows, target_ms) in [(1, 2.3), (2, 2.9), (8, 5.2)] {
        let cfg = Bottleneck { recovery: KNIT, ..bottleneck(CongestionChoice::Delay, flows) };
        let outcome = between(25, 35, cfg).measure(1);
        let mean_ms = outcome.wait_mean_ms;
        assert!((0.8..1.3).contains(&(mean_ms / target_ms)), "{flows}: {}", brief(&outcome));
    }
    // Losses fill the same queue to its end.
    let outcome = between(10, 20, bottleneck(CongestionChoice::Cubic, 1)).measure(1);
    assert!(outcome.wait_mean_ms > 10.0 && outcome.wait_max_ms > 19.0, "{}", brief(&outcome));
}

#[test]
fn random_losses_cost_a_window_by_delay_little_and_a_window_by_losses_its_root() {
    let run = |congestion, of_100_000| {
        let cfg =
            Bottleneck { loss: lost(of_100_000), recovery: KNIT, ..bottleneck(congestion, 1) };
        between(5, 20, cfg).measure(1).flows[0].received as f64
    };
    for (lost, limit) in [(100, 0.999), (1000, 0.99), (5000, 0.95)] {
        let received = run(CongestionChoice::Delay, lost) / 150_000.0;
        assert!(received >= 0.97 * limit, "{lost}: {received}");
    }
    // At this round trip CUBIC is as Reno is: sqrt(1.5 / p) packets in each (RFC 9438, 4.3).
    for lost in [250, 1000, 4000] {
        let received = run(CongestionChoice::Cubic, lost) / 15.0;
        let formula = (1.5 / (f64::from(lost) / 1e5)).sqrt() / 0.02;
        assert!((0.75..1.35).contains(&(received / formula)), "{lost}: {received} {formula}");
    }
}

#[test]
fn a_queue_too_short_to_show_a_delay_still_bounds_the_window() {
    // 20 packets: 2 ms, where the target is 2.3; a burst is 10.
    let cfg = Bottleneck { queue: 20, recovery: KNIT, ..bottleneck(CongestionChoice::Delay, 1) };
    let outcome = between(10, 20, cfg).measure(1);
    let sent = outcome.flows[0].received + outcome.dropped();
    assert!(outcome.used >= 0.9, "{}", brief(&outcome));
    assert!((outcome.dropped() as f64) < 0.125 * sent as f64, "{}", brief(&outcome));
}

#[test]
fn without_congestion_control_the_queue_is_full_and_most_is_dropped() {
    let cfg = Bottleneck { recovery: KNIT, ..bottleneck(CongestionChoice::None, 1) };
    let outcome = between(1, 3, cfg).measure(1);
    assert!(outcome.dropped() > 10 * outcome.flows[0].received, "{}", brief(&outcome));
}

/// A queue of a product, a quarter and a tenth of one: the shorter it is the more of what sixteen flows send is dropped. With
/// repairs on, in messages whose ends are protected, they put no more on the path than the losses need, which congestion
/// control bounds at 7.8 %: 10,000 packets a second pass.
#[test]
fn losses_by_congestion_make_no_flow_send_more() {
    for queue in [200, 50, 20] {
        let cfg = Bottleneck {
            recovery: Recovery::Knitting { tail_copies: 3 },
            expected_loss: Some(0.0),
            message: Some(500),
            queue,
            ..bottleneck(CongestionChoice::default(), 16)
        };
        let outcome = cfg.measure(1);
        let all = |count: fn(&FlowCounts) -> u64| outcome.flows.iter().map(count).sum::<u64>();
        let (sent, repairs) = (all(|flow| flow.sent), all(|flow| flow.repairs));
        assert!(sent < 110_000, "{queue}: {sent} sent in 10 s, {}", brief(&outcome));
        assert!(repairs > 0 && repairs < 3000, "{queue}: {repairs} repairs, {}", brief(&outcome));
    }
}

/// One flow of ours beside one of others, from 40 s on: between half and one and a half of an equal part, as nodes are set up.
#[test]
fn a_flow_has_its_part_beside_one_of_cubic_or_bbr() {
    // BBR's first version takes most of a queue below two products from any flow that heeds losses or delays.
    for (rival, queues, least) in [
        (RivalKind::Cubic, &[100, 200, 400, 800][..], 0.5),
        (RivalKind::Bbr, &[400, 800], 0.5),
        (RivalKind::Bbr, &[200], 0.35),
    ] {
        for queue in queues {
            let cfg = Bottleneck {
                recovery: Recovery::Knitting { tail_copies: 3 },
                expected_loss: Some(0.0),
                rivals: vec![rival],
                queue: *queue,
                ..bottleneck(CongestionChoice::default(), 1)
            };
            let outcome = between(40, 160, cfg).measure(1);
            let (share, brief) = (outcome.our_share(), brief(&outcome));
            assert!((least..=1.5).contains(&share), "{rival:?} {queue}: {share}, {brief}");
            assert!(outcome.sent_per_received() < 1.02, "{rival:?} {queue}: {brief}");
        }
    }
    // Four flows beside one find out together, and share alike.
    let four = Bottleneck {
        recovery: KNIT,
        rivals: vec![RivalKind::Cubic],
        ..bottleneck(CongestionChoice::default(), 4)
    };
    let outcome = between(40, 160, four).measure(1);
    assert!((0.5..=1.5).contains(&outcome.our_share()), "{}", brief(&outcome));
    assert!(outcome.fairness() >= 0.9, "{}", brief(&outcome));
}

/// Windows, rates and queues of some runs.
#[test]
fn the_shares_of_some_runs_are_known() {
    let mut table = String::new();
    for congestion in [CongestionChoice::Cubic, CongestionChoice::Delay] {
        for recovery in [Recovery::SelectiveRepeat, KNIT] {
            for (flows, of_100_000, queue) in [(1, 0, 200), (2, 300, 200), (3, 0, 20)] {
                let loss = lost(of_100_000);
                let cfg = Bottleneck { loss, recovery, queue, ..bottleneck(congestion, flows) };
                let mut world = BottleneckWorld::new(&between(1, 6, cfg), 1);
                world.run_until(6 * SECOND);
                let outcome = world.outcome();
                let each = |count: fn(&FlowCounts) -> u64| {
                    outcome.flows.iter().map(count).collect::<Vec<_>>()
                };
                table += &format!(
                    "{} {} {flows} {of_100_000} {queue}: {:?} received, {:?} again, {:?} windows, {} timeouts, {} dropped, {:?} waits\n",
                    if recovery == KNIT { "knit" } else { "selective" },
                    congestion.name(),
                    each(|flow| flow.received),
                    each(|flow| flow.again),
                    world.windows(),
                    each(|flow| flow.timeouts).iter().sum::<u64>(),
                    outcome.dropped(),
                    world.waits(),
                );
            }
        }
    }
    let known = include_str!("known_shares.txt");
    let changed: Vec<_> =
        table.lines().filter(|line| known.lines().all(|old| old != *line)).collect();
    assert!(changed.is_empty() && table == known, "changed: {changed:#?}\nall of it:\n{table}");
}

#[test]
fn a_path_that_falls_silent_and_comes_back_is_used_again() {
    for congestion in [CongestionChoice::Cubic, CongestionChoice::Delay] {
        let cfg = Bottleneck { recovery: KNIT, ..bottleneck(congestion, 2) };
        let mut world = BottleneckWorld::new(&between(6, 12, cfg), 1);
        world.run_until(2 * SECOND);
        world.set_loss(lost(100_000), 1);
        world.run_until(3 * SECOND);
        world.set_loss(lost(0), 1);
        world.run_until(12 * SECOND);
        let outcome = world.outcome();
        assert!(outcome.used >= 0.9, "{congestion:?}: {}", brief(&outcome));
    }
}
