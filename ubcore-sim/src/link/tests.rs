//! Tests of faulty links: what a seed loses, duplicates and delays.

use super::*;
use udma_abi::RawEid;

const A: NodeAddr = RawEid([1; 16]);
const B: NodeAddr = RawEid([2; 16]);

fn datagram(number: u8) -> Datagram {
    Datagram { from: A, to: B, bytes: Arc::from(vec![number; 100]) }
}

/// Sends `count` datagrams 1 us apart and drains the link: (arrival, first byte).
fn arrivals(cfg: &FaultCfg, seed: u64, count: u8) -> Vec<(Nanos, Vec<u8>)> {
    let mut link = cfg.build(&mut Rng::new(seed));
    let mut arrived = Vec::new();
    for number in 0..count {
        link.send(u64::from(number) * 1000, datagram(number));
    }
    while let Some(now) = link.poll_deadline() {
        while let Some(datagram) = link.poll(now) {
            arrived.push((now, datagram.bytes.to_vec()));
        }
    }
    arrived
}

fn numbers(arrived: &[(Nanos, Vec<u8>)]) -> Vec<u8> {
    arrived.iter().map(|(_, bytes)| bytes[0]).collect()
}

#[test]
fn a_wire_keeps_order_and_delay() {
    let cfg = FaultCfg { delay_ns: 500, ..FaultCfg::default() };
    let arrived = arrivals(&cfg, 1, 50);
    assert_eq!(numbers(&arrived), (0..50).collect::<Vec<_>>());
    assert!(arrived.iter().all(|(at, bytes)| *at == u64::from(bytes[0]) * 1000 + 500));
}

#[test]
fn loss_loses_about_its_share() {
    let cfg = FaultCfg { loss_ppm: 500_000, ..FaultCfg::default() };
    let arrived = arrivals(&cfg, 1, 200);
    assert!((60..140).contains(&arrived.len()), "{} of 200 arrived", arrived.len());
}

#[test]
fn duplication_doubles_and_changes_nothing() {
    let cfg = FaultCfg { duplicate_ppm: 1_000_000, ..FaultCfg::default() };
    assert_eq!(numbers(&arrivals(&cfg, 1, 3)), [0, 0, 1, 1, 2, 2]);
}

#[test]
fn corruption_flips_exactly_one_bit() {
    let cfg = FaultCfg { corrupt_ppm: 1_000_000, ..FaultCfg::default() };
    for (at, bytes) in arrivals(&cfg, 1, 20) {
        let number = u8::try_from(at / 1000).expect("twenty datagrams");
        let flipped: u32 = bytes.iter().map(|byte| (byte ^ number).count_ones()).sum();
        assert_eq!(flipped, 1);
    }
}

#[test]
fn jitter_keeps_order_and_reordering_does_not() {
    let jitter = FaultCfg { jitter_ns: 50_000, ..FaultCfg::default() };
    assert_eq!(numbers(&arrivals(&jitter, 1, 100)), (0..100).collect::<Vec<_>>());
    let reorder = FaultCfg { reorder_ppm: 200_000, reorder_ns: 20_000, ..FaultCfg::default() };
    let mut order = numbers(&arrivals(&reorder, 1, 100));
    assert_ne!(order, (0..100).collect::<Vec<_>>());
    order.sort_unstable();
    assert_eq!(order, (0..100).collect::<Vec<_>>());
}

#[test]
fn rate_spaces_datagrams_and_drops_beyond_its_queue() {
    let slow = FaultCfg { bytes_per_second: 10_000_000, queue_bytes: 500, ..FaultCfg::default() };
    let arrived = arrivals(&slow, 1, 100);
    assert!(arrived.len() < 40, "{} passed", arrived.len());
    assert!(arrived.windows(2).all(|pair| pair[1].0 - pair[0].0 >= 10_000));
}

#[test]
fn bursts_lose_neighbours_and_about_their_share() {
    // One datagram in 100 begins a burst of 10: about 9 % are lost.
    let cfg = FaultCfg { burst_ppm: 10_000, burst_len: 10, ..FaultCfg::default() };
    let (mut lost, mut bursts) = (0, 0);
    for seed in 0..200 {
        let arrived = numbers(&arrivals(&cfg, seed, 200));
        let is_lost = |number: &u8| !arrived.contains(number);
        lost += (0..200).filter(is_lost).count();
        bursts +=
            (0..200).filter(|number| is_lost(number) && !is_lost(&number.wrapping_sub(1))).count();
    }
    assert!((2_800..4_400).contains(&lost), "{lost} of 40,000 lost");
    assert!((7 * bursts..13 * bursts).contains(&lost), "{lost} lost in {bursts} bursts");
}

#[test]
fn a_burst_of_one_direction_leaves_the_other() {
    let cfg = FaultCfg { burst_ppm: 1_000_000, burst_len: u32::MAX, ..FaultCfg::default() };
    let mut link = cfg.build(&mut Rng::new(1));
    link.send(0, datagram(1));
    let back = Datagram { from: B, to: A, bytes: Arc::from(vec![2; 100]) };
    // A burst is certain: the first datagram of each direction is lost.
    link.send(0, back);
    assert_eq!(link.poll_deadline(), None);
}

#[test]
fn a_truncated_datagram_keeps_its_beginning() {
    let cfg = FaultCfg { truncate_ppm: 1_000_000, ..FaultCfg::default() };
    let arrived = arrivals(&cfg, 1, 50);
    assert_eq!(arrived.len(), 50);
    for (at, bytes) in arrived {
        assert!(bytes.len() < 100 && bytes.iter().all(|byte| u64::from(*byte) == at / 1000));
    }
}

#[test]
fn half_the_longest_delay_of_a_tail_is_twice_as_frequent() {
    let cfg = FaultCfg { tail_ppm: 1_000_000, tail_ns: 128_000, ..FaultCfg::default() };
    let delays: Vec<_> =
        (0..400).flat_map(|seed| arrivals(&cfg, seed, 1)).map(|(at, _)| at).collect();
    let longer = |ns| delays.iter().filter(|delay| **delay >= ns).count();
    assert_eq!((longer(500), longer(128_001)), (400, 0));
    for (ns, wanted) in [(1_000, 200), (2_000, 100), (4_000, 50)] {
        let found = longer(ns);
        assert!((wanted / 2..wanted * 2).contains(&found), "{found} of 400 take {ns} ns or longer");
    }
}

#[test]
fn an_outage_concerns_what_it_names() {
    let cut = |cut| {
        let outages = vec![Outage::of(cut, 0, 50_000)];
        arrivals(&FaultCfg { outages, ..FaultCfg::default() }, 1, 10).len()
    };
    assert_eq!([Cut::All, Cut::Between(B, A), Cut::OneWay(A, B)].map(cut), [0; 3]);
    assert_eq!([Cut::Address(A), Cut::Address(B)].map(cut), [0; 2]);
    let other = RawEid([3; 16]);
    assert_eq!([Cut::OneWay(B, A), Cut::Between(A, other), Cut::Address(other)].map(cut), [10; 3]);
}

#[test]
fn a_clog_holds_datagrams_until_its_end_in_their_order() {
    let clog = |from, until| Outage { is_clog: true, ..Outage::of(Cut::Address(B), from, until) };
    let outages = vec![clog(15_000, 30_000), clog(10_000, 20_000)];
    let arrived = arrivals(&FaultCfg { outages, ..FaultCfg::default() }, 1, 40);
    assert_eq!(numbers(&arrived), (0..40).collect::<Vec<_>>());
    let held = arrived.iter().filter(|(at, _)| *at == 30_000).count();
    assert_eq!(held, 21, "those from 10 us to 30 us");
}

#[test]
fn faults_end_when_it_is_calm() {
    let cfg =
        FaultCfg { delay_ns: 500, loss_ppm: 1_000_000, calm_from: 10_000, ..FaultCfg::default() };
    let arrived = arrivals(&cfg, 1, 20);
    assert_eq!(numbers(&arrived), (10..20).collect::<Vec<_>>());
    let late = FaultCfg { delay_ns: 20_500, calm_from: 10_000, ..FaultCfg::default() };
    assert_eq!(
        numbers(&arrivals(&late, 1, 20)),
        (0..20).collect::<Vec<_>>(),
        "what is under way arrives"
    );
}

#[test]
fn an_outage_cuts_its_pair_for_its_time() {
    let cut = Outage::of(Cut::Between(B, A), 10_000, 20_000);
    let cfg = FaultCfg { outages: vec![cut], ..FaultCfg::default() };
    let arrived = arrivals(&cfg, 1, 30);
    assert_eq!(numbers(&arrived), (0..10).chain(20..30).collect::<Vec<_>>());
}

#[test]
fn a_seed_decides_everything() {
    let cfg = FaultCfg {
        delay_ns: 1000,
        jitter_ns: 3000,
        loss_ppm: 100_000,
        duplicate_ppm: 100_000,
        reorder_ppm: 100_000,
        reorder_ns: 9000,
        corrupt_ppm: 100_000,
        ..FaultCfg::default()
    };
    assert_eq!(arrivals(&cfg, 7, 100), arrivals(&cfg, 7, 100));
    assert_ne!(arrivals(&cfg, 7, 100), arrivals(&cfg, 8, 100));
}

#[test]
fn a_router_loses_what_is_too_long_in_its_direction_and_time() {
    let router = |mtu, from, until| Router { from, until, way: (A, B), mtu, is_reported: false };
    // Datagrams have 100 bytes, and 28 of headers.
    let just = FaultCfg { routers: vec![router(128, 0, 50_000)], ..FaultCfg::default() };
    assert_eq!(arrivals(&just, 1, 20).len(), 20);
    let narrow = vec![router(127, 0, 50_000), router(128, 15_000, 20_000)];
    let cfg = FaultCfg { routers: narrow.clone(), ..FaultCfg::default() };
    assert_eq!(numbers(&arrivals(&cfg, 1, 60)), (15..20).chain(50..60).collect::<Vec<_>>());
    let back = |router: Router| Router { way: (B, A), ..router };
    let back = FaultCfg { routers: narrow.into_iter().map(back).collect(), ..cfg };
    assert_eq!(arrivals(&back, 1, 60).len(), 60, "the other direction");
}

/// Each kind of fault counts what it did, wherever it stands in the stack.
#[test]
fn faults_count_what_they_met() {
    const SENT: u64 = 200;
    let run = |cfg: FaultCfg| {
        let mut link = cfg.build(&mut Rng::new(3));
        (0..SENT).for_each(|at| link.send(at * 1000, datagram(1)));
        let mut arrived = 0;
        while let Some(now) = link.poll_deadline() {
            while link.poll(now).is_some() {
                arrived += 1;
            }
        }
        let mut counts = FaultCounts::default();
        link.count(&mut counts);
        (arrived, counts)
    };
    let none = FaultCfg { jitter_ns: 100, ..FaultCfg::default() };
    assert_eq!(run(none.clone()), (SENT, FaultCounts::default()));
    let router = Router { from: 0, until: u64::MAX, way: (A, B), mtu: 100, is_reported: false };
    for lossy in [
        FaultCfg { loss_ppm: 100_000, ..none.clone() },
        FaultCfg { burst_ppm: 20_000, burst_len: 5, ..none.clone() },
        FaultCfg { outages: vec![Outage::of(Cut::All, 5_000, 50_000)], ..none.clone() },
        FaultCfg { bytes_per_second: 10_000_000, queue_bytes: 500, ..none.clone() },
        FaultCfg { routers: vec![Router { until: 50_000, ..router }], ..none.clone() },
        FaultCfg { loss_ppm: 100_000, calm_from: 100_000, ..none.clone() },
    ] {
        let (arrived, counts) = run(lossy.clone());
        assert!(counts.lost > 0, "{lossy:?}");
        assert_eq!(counts, FaultCounts { lost: SENT - arrived, ..FaultCounts::default() });
    }
    let (arrived, counts) = run(FaultCfg { duplicate_ppm: 100_000, ..none.clone() });
    assert!(counts.doubled > 0);
    assert_eq!(arrived, SENT + counts.doubled);
    for (cfg, wanted) in [
        (FaultCfg { corrupt_ppm: 1_000_000, ..none.clone() }, (SENT, 0)),
        (FaultCfg { truncate_ppm: 1_000_000, ..none.clone() }, (SENT, 0)),
        (FaultCfg { tail_ppm: 1_000_000, tail_ns: 1_000_000, ..none.clone() }, (0, SENT)),
        (FaultCfg { reorder_ppm: 1_000_000, reorder_ns: 1_000_000_000, ..none }, (0, SENT)),
    ] {
        let (arrived, counts) = run(cfg);
        assert_eq!((arrived, counts.changed, counts.late), (SENT, wanted.0, wanted.1));
    }
}
