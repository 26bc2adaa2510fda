//! Repair packets: what they bring back, and those that lie.

use urma_packet::RepairBody;

use super::*;

/// Bursts of many packets over a long path that loses some, so that each burst has an end to protect.
fn bursts(seed: u64, faults: FaultCfg) -> Scenario {
    Scenario {
        window: 256,
        blocks: 64,
        pieces: 3000,
        bound: 60_000 * MS,
        ..Scenario::new(seed, Strategy::Knitting, faults)
    }
}

fn long_path(loss_ppm: u32) -> FaultCfg {
    FaultCfg { delay_ns: 5 * MS, loss_ppm, ..FaultCfg::default() }
}

#[test]
fn repair_packets_bring_back_what_was_lost_byte_for_byte() {
    let (mut repaired, mut again) = (0, 0);
    for seed in 0..8 {
        let scenario = bursts(seed, long_path(20_000));
        let (ends, _) =
            run_scenario(&scenario).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let stats = [0, 1].map(|end: usize| ends[end].tp.stats());
        assert!(stats[0].repairs_sent > 0, "{stats:?}");
        repaired += stats[1].repaired;
        again += stats[0].sent_again;
        assert!(stats[0].repairs_sent <= stats[0].sent / 8, "{stats:?}");
    }
    assert!(repaired > 100, "{repaired} packets were repaired, {again} sent again");
}

#[test]
fn every_fault_beside_them_is_survived() {
    for seed in 0..30 {
        let mut rng = Rng::new(seed);
        let faults = FaultCfg { delay_ns: MS + rng.below(4 * MS), ..bad_link(&mut rng) };
        let window = [64, 256, 1024][rng.index(3)];
        let scenario = Scenario { pieces: 600, window, ..bursts(seed, faults) };
        check(&scenario).unwrap_or_else(|error| panic!("seed {seed}: {error}; {scenario:?}"));
    }
}

#[test]
fn a_path_without_losses_or_a_short_one_gets_none() {
    let short = FaultCfg { delay_ns: 200_000, ..long_path(20_000) };
    for faults in [long_path(0), short] {
        let (ends, _) = run_scenario(&bursts(1, faults)).expect("delivered");
        assert_eq!((ends[0].tp.stats().repairs_sent, ends[1].tp.repairs.is_some()), (0, false));
    }
}

/// The first repair packet of a burst, with a receiver that lacks one packet of it and keeps all others.
fn repair_packet() -> (Vec<u8>, [End; 2]) {
    let scenario = bursts(1, FaultCfg::default());
    let ends = [End::new(&scenario, 1, 700), End::new(&scenario, 2, 0)];
    let [mut a, mut b] = ends;
    let mut buf = [0; TRANSMIT_MAX];
    let mut store = RepairStore::new(0, 256);
    store.on_repair(0);
    b.tp.repairs = Some(Box::new(store));
    // What is kept begins a window later; the burst behind the last full window is protected.
    let mut now = 0;
    let mut sent = 0;
    loop {
        while a.pushed < a.goal && a.tp.has_room() {
            let bytes = content(a.eid, a.pushed);
            let head = header(a.pushed, bytes.len());
            a.tp.push(&head, bytes.len(), &mut |out| out.copy_from_slice(&bytes)).expect("room");
            a.pushed += 1;
        }
        now += 10 * MS;
        while let Some(len) = a.tp.poll_transmit(now, &mut buf, &mut a.pool) {
            let packet = Packet::parse(&buf[..len]).expect("right");
            if matches!(packet.header.body, Body::Repair(_)) {
                return (buf[..len].to_vec(), [a, b]);
            }
            if packet.header.body.is_sequenced() {
                sent += 1;
                if sent == 100 || sent == 650 {
                    continue;
                }
            }
            flow().seal(&mut buf[..len]).expect("long enough");
            b.receive(now, &buf[..len], a.eid).expect("right");
        }
        now += 10 * MS;
        while let Some(len) = b.tp.poll_transmit(now, &mut buf, &mut b.pool) {
            flow().seal(&mut buf[..len]).expect("long enough");
            a.receive(now, &buf[..len], b.eid).expect("right");
        }
        assert!(now < 10_000 * MS, "no repair packet");
    }
}

#[test]
fn repair_packets_that_lie_are_dropped_or_end_the_tp() {
    let (bytes, [_, mut b]) = repair_packet();
    let right = Packet::parse(&bytes).expect("right");
    let Body::Repair(body) = right.header.body else { unreachable!() };
    let give = |b: &mut End, psn: Psn, body: RepairBody, word: &[u8]| {
        let header = PacketHeader::new(b.tp.cfg().local_tpn, psn, Body::Repair(body));
        b.tp.on_packet(1, &Packet { header, payload: word }, &mut b.pool)
    };
    let psn = right.header.psn;
    let edge = b.tp.rx.edge();
    for (at, lie) in [
        // Begins beyond what is missing, or ends beyond the window.
        (psn, RepairBody { begin: body.last, ..body }),
        (psn, RepairBody { last: body.last + 300, ..body }),
        (psn.plus(0x40_0000), body),
        (psn.plus(0_u32.wrapping_sub(WINDOW_MAX + 300)), body),
    ] {
        assert_eq!(give(&mut b, at, lie, right.payload), Received::BadRepair, "{lie:?}");
    }
    // Twice the same is one.
    for _ in 0..2 {
        assert_eq!(give(&mut b, psn, body, right.payload), Received::Acknowledged);
    }
    assert_eq!((b.tp.rx.edge(), b.tp.failed()), (edge, None));
    // Another TP takes none at all.
    for strategy in Strategy::ALL.into_iter().filter(|strategy| *strategy != Strategy::Knitting) {
        let scenario = Scenario::new(1, strategy, FaultCfg::default());
        let mut other = End::new(&scenario, 2, 0);
        let first = other.tp.cfg().rx_psn;
        let body = RepairBody { begin: 0, ..body };
        assert_eq!(give(&mut other, first, body, right.payload), Received::BadRepair);
    }
}

/// The mark behind the repair packet, and what it comes to.
fn after_tail(change: impl FnOnce(&mut Vec<u8>)) -> (u64, u64, Option<TpError>) {
    let (bytes, [a, mut b]) = repair_packet();
    let right = Packet::parse(&bytes).expect("right");
    let mut word = right.payload.to_vec();
    change(&mut word);
    let packet = Packet { payload: &word, ..right };
    assert_eq!(b.tp.on_packet(1, &packet, &mut b.pool), Received::Acknowledged);
    let end = psn_of(a.tp.cfg().tx_psn, a.tp.tx.ledger().unsent());
    let tail = Body::Tail(TailBody { first_end: end, ticket_end: 0, rtt_ns: 10_000_000 });
    let header = PacketHeader::new(b.tp.cfg().local_tpn, end, tail);
    let _ = b.tp.on_packet(2, &Packet { header, payload: &[] }, &mut b.pool);
    let got = b.take_pieces(a.eid);
    assert!(b.tp.failed().is_some() || got.is_ok(), "{got:?}");
    (b.tp.rx.edge(), b.tp.stats().repaired, b.tp.failed())
}

#[test]
fn a_code_word_that_is_wrong_ends_the_tp_and_brings_nothing() {
    let (edge, repaired, failed) = after_tail(|_| {});
    assert_eq!((repaired, failed, edge), (1, None, 700));
    for lie in [0, 2, 3] {
        let (_, repaired, failed) = after_tail(|word| word[lie] ^= 0xff);
        assert_eq!((repaired, failed), (0, Some(TpError::BadRepair)), "byte {lie}");
    }
    // A word that is shorter than a packet of its group.
    let (_, repaired, failed) = after_tail(|word| word.truncate(8));
    assert_eq!((repaired, failed), (0, Some(TpError::BadRepair)));
}
