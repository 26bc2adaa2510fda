//! Requests over long paths and over several ports, in virtual time.

use ubcore_sim::sim::{FabricCfg, HostSharing};
use ubcore_sim::{CongestionChoice, Strategy};
use udma_abi::counters::Counter;
use urma_core::{CrStatus, JfsCfg, TransportMode};

use super::statuses::{Kind, Pair};

const ROUND_TRIP_NS: u64 = 10_000_000;
const DEPTH: u32 = 512;

/// A full queue takes one round trip, and what it takes to send 512 requests and their answers.
#[test]
fn a_queue_has_as_many_requests_on_the_way_as_it_is_deep() {
    for kind in [Kind::Write, Kind::Read, Kind::FetchAdd] {
        let mut cfg = FabricCfg::new(7, 2, HostSharing::Packets);
        cfg.faults.delay_ns = ROUND_TRIP_NS / 2;
        let mut pair = Pair::new(cfg, JfsCfg::new(TransportMode::Rm, DEPTH));
        pair.post_list(kind, 0..=0);
        assert_eq!(pair.done().status, CrStatus::Success, "the paths are open");
        let start = pair.fabric.now();
        pair.post_list(kind, 1..=u64::from(DEPTH));
        let done = pair.all_done(DEPTH as usize);
        let took = pair.fabric.now() - start;
        let order: Vec<u64> = done.iter().map(|done| done.user_ctx).collect();
        assert!(order.iter().copied().eq(1..=u64::from(DEPTH)), "{kind:?}: {order:?}");
        assert!(done.iter().all(|done| done.status == CrStatus::Success), "{kind:?}");
        assert!(took < 2 * ROUND_TRIP_NS, "{kind:?}: {took} ns for {DEPTH} requests");
    }
}

/// The first timer expires at 10 ms, and no packet that is sent later shows how long the path is: the window is full.
#[test]
fn a_path_longer_than_the_first_timeouts_that_loses_packets_ends_no_request() {
    for (seed, congestion) in [
        (1, CongestionChoice::None),
        (2, CongestionChoice::None),
        (1, CongestionChoice::Delay),
        (2, CongestionChoice::Delay),
    ] {
        let mut cfg = FabricCfg::new(seed, 2, HostSharing::Packets);
        cfg.faults.delay_ns = 50_000_000;
        cfg.faults.loss_ppm = 50_000;
        for device in &mut cfg.devices {
            (device.congestion, device.mtu) = (congestion, 1024);
        }
        let mut pair = Pair::new(cfg, JfsCfg::new(TransportMode::Rm, 64));
        pair.post_list(Kind::LongWrite, 1..=64);
        let done = pair.all_done(64);
        let good = done.iter().filter(|done| done.status == CrStatus::Success).count();
        assert_eq!(good, 64, "{seed} {congestion:?}");
    }
}

/// What is sent before the first answer is sent again several times, so that none of it measures the round trip.
#[test]
fn no_strategy_keeps_timeouts_that_are_shorter_than_the_path() {
    for strategy in Strategy::ALL {
        let mut cfg = FabricCfg::new(3, 2, HostSharing::Packets);
        cfg.faults.delay_ns = 50_000_000;
        for device in &mut cfg.devices {
            (device.strategy, device.mtu) = (strategy, 1024);
            device.congestion = CongestionChoice::Delay;
        }
        let mut pair = Pair::new(cfg, JfsCfg::new(TransportMode::Rm, 64));
        for batch in 0..10 {
            let first = 64 * batch + 1;
            pair.post_list(Kind::LongWrite, first..=first + 63);
            assert!(pair.all_done(64).iter().all(|done| done.status == CrStatus::Success));
        }
        let took_ms = pair.fabric.now() / 1_000_000;
        // 9.4 s where nothing is sent twice: the window is what is short.
        assert!((9_000..11_000).contains(&took_ms), "{strategy:?}: {took_ms} ms");
    }
}

#[test]
fn nodes_with_several_ports_use_a_strategy_that_lets_packets_overtake() {
    for (strategy, ports, wanted) in [
        (Strategy::Knitting, 2, Strategy::SelectiveRepeat),
        (Strategy::Seed, 2, Strategy::SelectiveRepeat),
        (Strategy::Irn, 2, Strategy::Irn),
        (Strategy::Seed, 1, Strategy::Seed),
    ] {
        let mut cfg = FabricCfg::new(4, 2, HostSharing::Packets).with_ports(ports);
        cfg.devices.iter_mut().for_each(|device| device.strategy = strategy);
        let mut pair = Pair::new(cfg, JfsCfg::new(TransportMode::Rm, 4));
        pair.post_list(Kind::Write, 1..=1);
        assert_eq!(pair.done().status, CrStatus::Success);
        let shown = pair.fabric.device(0).look().paths.iter().find_map(|path| path.recovery);
        assert_eq!(shown, Some(wanted.name()), "{strategy:?} with {ports} ports");
    }
}

/// Losses fill lists that are longer than what a NIC holds of them.
#[test]
fn the_pool_counts_what_a_record_keeps_in_it() {
    let counts = |sizes: &str| {
        let mut cfg = FabricCfg::new(5, 2, HostSharing::Packets);
        cfg.faults.delay_ns = 2_000_000;
        cfg.faults.loss_ppm = 50_000;
        for device in &mut cfg.devices {
            (device.strategy, device.mtu) = (Strategy::Seed, 256);
            (device.window_packets, device.path_packets) = (4096, 4096);
            device.congestion = CongestionChoice::None;
            device.adamap = sizes.parse().expect("sizes that can be");
        }
        let mut pair = Pair::new(cfg, JfsCfg::new(TransportMode::Rm, 64));
        pair.post_list(Kind::LongWrite, 1..=32);
        assert!(pair.all_done(32).iter().all(|done| done.status == CrStatus::Success));
        let device = pair.fabric.device(1);
        [
            Counter::KnitGrown,
            Counter::KnitTaken,
            Counter::KnitGiven,
            Counter::KnitReads,
            Counter::KnitWrites,
            Counter::KnitHits,
        ]
        .map(|counter| device.counter(counter))
    };
    let [grown, taken, given, reads, writes, hits] = counts("");
    assert!(grown > 0 && taken > 20 && taken == given, "{grown} {taken} {given}");
    assert!(reads >= taken && writes >= taken && hits > 0, "{reads} {writes} {hits}");
    let [_, of_long_lists, ..] = counts("list=32");
    assert!(of_long_lists < taken, "a NIC that holds more writes less: {of_long_lists}, {taken}");
}
