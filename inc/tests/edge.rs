//! Edges under loss, doubling and reordering, and packet by packet.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test fails by it")]

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

use inc::edge::{
    Edge, EdgeAttributes, EdgeCfg, EdgeEnd, EdgePacket, Framing, MessageMode, Reliability,
    WriteWindow,
};
use inc::element::{ElementType, Operator, Reduction};
use inc::wire::{AbortReason, Collective, IncHeader, IncKind, Seq, TreeEpoch};
use urma_packet::roce::{Aeth, RoceExt, RocePacket, Syndrome, rc};
use urma_packet::{ICRC_LEN, Psn, Tpn};

const MS: u64 = 1_000_000;

fn cfg(reliability: Reliability, mode: MessageMode, framing: Framing) -> [EdgeCfg; 2] {
    let psns = [Psn::new(0x00ff_fff0), Psn::new(7)];
    let windows = [WriteWindow { base: 0, key: 11 }, WriteWindow { base: 0x7f00_0000, key: 22 }];
    let attributes = EdgeAttributes {
        reliability,
        mode,
        framing,
        path_mtu: 256,
        packets: 3,
        window: 8,
        ..EdgeAttributes::DEFAULT
    };
    let ends = [0, 1].map(|end| EdgeEnd {
        address: SocketAddr::from((Ipv4Addr::LOCALHOST, 4791)),
        qpn: Tpn::new(0x100 + end).unwrap(),
        first_psn: psns[end as usize],
        window: windows[end as usize],
    });
    let (epoch, first) = (TreeEpoch(3), Seq(0));
    let cfg = |here: usize, there: usize| EdgeCfg {
        attributes,
        here: ends[here],
        there: ends[there],
        epoch,
        first,
    };
    [cfg(0, 1), cfg(1, 0)]
}

fn pair(reliability: Reliability, mode: MessageMode, framing: Framing) -> [Edge; 2] {
    cfg(reliability, mode, framing).map(|cfg| Edge::new(cfg).unwrap())
}

fn sum() -> Reduction {
    Reduction::new(Operator::Sum, ElementType::U8).unwrap()
}

/// A contribution of as many bytes, and the bytes.
fn message(seq: u32, len: u16) -> (IncHeader, Vec<u8>) {
    let header = IncHeader {
        kind: IncKind::Contribution(Collective::Allreduce(sum())),
        seq: Seq(seq),
        epoch: TreeEpoch(3),
        op_id: 0,
        is_repeat: false,
        is_last: false,
        count: len,
    };
    (header, (0..len).map(|at| (u32::from(at) * 7 + seq).to_le_bytes()[0]).collect())
}

/// The packet on the wire, with an ICRC that is not looked at.
fn emitted(packet: &EdgePacket, data: &[u8]) -> Vec<u8> {
    let inc = packet.inc.map_or(&[][..], |_| packet.inc.as_ref().unwrap());
    let payload = [inc, &data[packet.data.clone()]].concat();
    let mut bytes = vec![0; 512];
    let frame = packet.header.emit_headers(payload.len(), &mut bytes).unwrap();
    bytes[frame.payload].copy_from_slice(&payload);
    bytes.truncate(frame.total);
    assert!(bytes.len() > ICRC_LEN);
    bytes
}

/// Takes all packets that are ready.
fn drain(edge: &mut Edge, now: u64, sent: &BTreeMap<u32, Vec<u8>>) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    while let Some(packet) = edge.poll_packet(now) {
        let none = Vec::new();
        all.push(emitted(&packet, sent.get(&packet.seq.0).unwrap_or(&none)));
    }
    all
}

fn take(edge: &mut Edge, now: u64, bytes: &[u8]) -> Option<(IncHeader, Vec<u8>)> {
    let packet = RocePacket::parse(bytes).unwrap();
    let taken = edge.on_packet(now, &packet).unwrap();
    taken.map(|(header, data)| (header, data.to_vec()))
}

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// Messages of all lengths, one way, over a link that loses, doubles and delays. What came.
fn run(seed: u64, edges: &mut [Edge; 2], count: u32, loss: u64) -> Vec<(IncHeader, Vec<u8>)> {
    let mut state = seed;
    let mut sent = BTreeMap::new();
    for seq in 0..count {
        let (header, data) = message(seq, u16::try_from(random(&mut state) % 700).unwrap());
        edges[0].send(&header).unwrap();
        sent.insert(seq, data);
    }
    let (mut now, mut flying, mut number) = (0, BTreeMap::new(), 0_u64);
    let mut came = Vec::new();
    for _ in 0..100_000 {
        for from in [0, 1] {
            for bytes in drain(&mut edges[from], now, &sent) {
                for _ in 0..1 + u64::from(random(&mut state) % 1000 < loss) {
                    if random(&mut state) % 1000 >= loss {
                        number += 1;
                        let at = now + 1000 + random(&mut state) % 3000;
                        flying.insert((at, number), (1 - from, bytes.clone()));
                    }
                }
            }
        }
        let timer = edges.iter().filter_map(Edge::poll_deadline).min();
        match (flying.keys().next().map(|(at, _)| *at), timer) {
            (None, None) => break,
            (arrival, timer) if arrival.is_some_and(|at| timer.is_none_or(|timer| at <= timer)) => {
                let ((at, _), (to, bytes)) = flying.pop_first().unwrap();
                now = at;
                came.extend(take(&mut edges[to], now, &bytes));
            }
            (_, timer) => {
                now = timer.unwrap();
                edges.iter_mut().for_each(|edge| edge.on_time(now));
            }
        }
    }
    for (header, data) in &came {
        assert_eq!(data, &sent[&header.seq.0], "chunk {}", header.seq);
    }
    came
}

#[test]
fn a_reliable_edge_brings_each_message_once_and_in_order() {
    let mut repeats = 0;
    for seed in 0..12 {
        for mode in [MessageMode::Send, MessageMode::Write] {
            for framing in [Framing::Inc, Framing::Plain(sum())] {
                let loss = [0, 10, 100][usize::try_from(seed % 3).unwrap()];
                let mut edges = pair(Reliability::Reliable, mode, framing);
                let came = run(seed, &mut edges, 100, loss);
                let seqs: Vec<_> = came.iter().map(|(header, _)| header.seq.0).collect();
                assert_eq!(seqs, (0..100).collect::<Vec<_>>(), "seed {seed} {mode:?} {framing:?}");
                assert!(!edges.iter().any(Edge::is_dead));
                repeats += edges[0].counts().repeats;
            }
        }
    }
    assert!(repeats > 500, "the link was bad");
}

#[test]
fn an_unreliable_edge_brings_whole_messages_and_drops_what_has_a_gap() {
    let mut dropped = 0;
    for seed in 0..12 {
        for mode in [MessageMode::Send, MessageMode::Write] {
            let loss = [0, 20][usize::try_from(seed % 2).unwrap()];
            let mut edges = pair(Reliability::Unreliable, mode, Framing::Inc);
            let came = run(seed, &mut edges, 100, loss);
            // The link delays: of messages of several packets many have a gap.
            assert!(came.len() > 5, "seed {seed}: {}", came.len());
            dropped += edges[1].counts().dropped;
            assert_eq!(edges[0].poll_deadline(), None, "no timer");
        }
    }
    assert!(dropped > 50);
}

#[test]
fn a_gap_is_reported_once_until_it_is_filled() {
    let [mut a, mut b] = pair(Reliability::Reliable, MessageMode::Send, Framing::Inc);
    let mut sent = BTreeMap::new();
    for seq in 0..6 {
        let (header, data) = message(seq, 10);
        a.send(&header).unwrap();
        sent.insert(seq, data);
    }
    let packets = drain(&mut a, 0, &sent);
    assert!(take(&mut b, 0, &packets[0]).is_some());
    for late in &packets[2..] {
        assert!(take(&mut b, 0, late).is_none());
    }
    let [nak] = &drain(&mut b, 0, &sent)[..] else { panic!("one NAK") };
    let aeth = RocePacket::parse(nak).unwrap().header;
    assert_eq!(aeth.ext.aeth.unwrap().syndrome, Syndrome::PsnSequence);
    assert_eq!((aeth.bth.psn, b.counts().naks), (Psn::new(0x00ff_fff1), 1));
    take(&mut a, MS, nak);
    let again = drain(&mut a, MS, &sent);
    assert_eq!(again.len(), 5, "all from the gap on");
    // What is sent again asks for an acknowledgement; the first packets did not.
    let asks = |bytes: &Vec<u8>| RocePacket::parse(bytes).unwrap().header.bth.ack_req;
    assert!(again.iter().all(asks) && !packets.iter().any(asks));
    for packet in &again {
        assert!(take(&mut b, MS, packet).is_some());
    }
    for answer in drain(&mut b, MS, &sent) {
        take(&mut a, MS, &answer);
    }
    assert_eq!((a.poll_deadline(), a.counts().repeats), (None, 5));
    // A repeat of what came is acknowledged and not handed up.
    assert!(take(&mut b, MS, &packets[0]).is_none());
    assert_eq!((b.counts().duplicates, drain(&mut b, MS, &sent).len()), (1, 1));
}

#[test]
fn each_sixteenth_packet_is_acknowledged_and_asks_for_it() {
    let [mut a, mut b] = pair(Reliability::Reliable, MessageMode::Send, Framing::Inc);
    let mut sent = BTreeMap::new();
    for seq in 0..40 {
        let (header, data) = message(seq, 1);
        a.send(&header).unwrap();
        sent.insert(seq, data);
    }
    let packets = drain(&mut a, 0, &sent);
    let asks = |bytes: &&Vec<u8>| RocePacket::parse(bytes).unwrap().header.bth.ack_req;
    assert_eq!(packets.iter().filter(asks).count(), 2);
    let mut answers = 0;
    for packet in &packets {
        take(&mut b, 0, packet);
        answers += drain(&mut b, 0, &sent).len();
    }
    assert_eq!(answers, 2);
    // What a message of the other end proves needs no acknowledgement.
    a.on_proof(0, Seq(39));
    assert_eq!(a.poll_deadline(), None);
}

#[test]
fn an_edge_whose_other_end_is_silent_is_dead_after_half_a_second() {
    let [mut a, _] = pair(Reliability::Reliable, MessageMode::Send, Framing::Inc);
    let (header, data) = message(0, 10);
    let sent = BTreeMap::from([(0, data)]);
    a.send(&header).unwrap();
    let mut waits = Vec::new();
    let mut now = 0;
    while let Some(at) = {
        drain(&mut a, now, &sent);
        a.poll_deadline()
    } {
        waits.push((at - now) / MS);
        now = at;
        a.on_time(now);
    }
    // 4 srtt is at least a millisecond; it doubles, up to 100 ms. Seven rounds are not enough: the other end may be a
    // process that waits for a processor.
    assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 100, 100, 100, 100]);
    assert!(a.is_dead() && a.poll_packet(now).is_none());
    assert_eq!((a.counts().timeouts, a.counts().repeats), (11, 10));
}

#[test]
fn a_write_to_another_place_or_with_another_key_is_refused() {
    let [a, _] = cfg(Reliability::Reliable, MessageMode::Write, Framing::Inc);
    let (header, data) = message(3, 10);
    let sent = BTreeMap::from([(3, data)]);
    for window in [
        WriteWindow { key: 23, ..a.there.window },
        WriteWindow { base: a.there.window.base + 768, ..a.there.window },
        WriteWindow { base: 0, ..a.there.window },
    ] {
        let there = EdgeEnd { window, ..a.there };
        let mut wrong = Edge::new(EdgeCfg { there, ..a }).unwrap();
        let [_, mut b] = pair(Reliability::Reliable, MessageMode::Write, Framing::Inc);
        wrong.send(&header).unwrap();
        let packets = drain(&mut wrong, 0, &sent);
        let packet = RocePacket::parse(&packets[0]).unwrap();
        assert_eq!(b.on_packet(0, &packet).unwrap_err().reason(), "field");
        let [nak] = &drain(&mut b, 0, &sent)[..] else { panic!("a NAK") };
        let syndrome = RocePacket::parse(nak).unwrap().header.ext.aeth.unwrap().syndrome;
        assert_eq!(syndrome, Syndrome::RemoteAccess);
        take(&mut wrong, 0, nak);
        assert!(wrong.is_dead());
    }
    // The right one.
    let [mut a, mut b] = pair(Reliability::Reliable, MessageMode::Write, Framing::Inc);
    a.send(&header).unwrap();
    let packets = drain(&mut a, 0, &sent);
    let reth = RocePacket::parse(&packets[0]).unwrap().header.ext.reth.unwrap();
    assert_eq!((reth.va, reth.rkey, reth.dma_len), (0x7f00_0000 + 3 * 768, 22, 26));
    assert!(take(&mut b, 0, &packets[0]).is_some());
}

#[test]
fn packets_of_other_edges_transports_and_framings_are_refused() {
    let [mut a, _] = pair(Reliability::Reliable, MessageMode::Send, Framing::Inc);
    let (header, data) = message(0, 700);
    let sent = BTreeMap::from([(0, data)]);
    a.send(&header).unwrap();
    let packets = drain(&mut a, 0, &sent);
    let refusal = |edge: &mut Edge, bytes: &[u8]| {
        let packet = RocePacket::parse(bytes).unwrap();
        edge.on_packet(0, &packet).map(|_| ()).map_err(|error| error.reason())
    };
    let of = |reliability, mode, framing| pair(reliability, mode, framing)[1].clone();
    let mut right = of(Reliability::Reliable, MessageMode::Send, Framing::Inc);
    for (mut other, reason) in [
        (of(Reliability::Unreliable, MessageMode::Send, Framing::Inc), "opcode"),
        (of(Reliability::Reliable, MessageMode::Write, Framing::Inc), "opcode"),
    ] {
        assert_eq!(refusal(&mut other, &packets[0]), Err(reason));
        assert_eq!(other.counts().refused.iter().sum::<u64>(), 1);
    }
    let mut changed = packets[0].clone();
    changed[7] ^= 1;
    assert_eq!(refusal(&mut right, &changed), Err("field"), "another QPN");
    let mut changed = packets[0].clone();
    changed[2] ^= 0x80;
    assert_eq!(refusal(&mut right, &changed), Err("field"), "another tenant's partition");
    // A message that begins in the middle.
    assert_eq!(refusal(&mut right, &packets[0]), Ok(()));
    let mut begins = packets[1].clone();
    begins[0] = rc::SEND_FIRST;
    assert_eq!(refusal(&mut right, &begins), Err("opcode"));
    let [nak] = &drain(&mut right, 0, &sent)[..] else { panic!("a NAK") };
    let syndrome = RocePacket::parse(nak).unwrap().header.ext.aeth.unwrap().syndrome;
    assert_eq!(syndrome, Syndrome::InvalidRequest);
}

#[test]
fn a_receiver_that_is_not_ready_is_left_alone_for_its_time() {
    let [mut a, _] = pair(Reliability::Reliable, MessageMode::Send, Framing::Inc);
    let (header, data) = message(0, 10);
    let sent = BTreeMap::from([(0, data)]);
    a.send(&header).unwrap();
    let first = drain(&mut a, 0, &sent);
    // As a verbs program without a receive answers: timer code 20 is 10.24 ms.
    let mut nak = RocePacket::parse(&first[0]).unwrap().header;
    let syndrome = Syndrome::RnrNak { timer: 20 };
    nak.bth.opcode = rc::ACKNOWLEDGE;
    nak.bth.dest = Tpn::new(0x100).unwrap();
    nak.ext = RoceExt { aeth: Some(Aeth { syndrome, msn: 0 }), ..RoceExt::default() };
    let packet = RocePacket { header: nak, payload: &[] };
    assert_eq!(a.on_packet(0, &packet), Ok(None));
    assert!(drain(&mut a, 10 * MS, &sent).is_empty());
    let at = a.poll_deadline().unwrap();
    assert_eq!(at, 10_240_000);
    a.on_time(at);
    assert_eq!(drain(&mut a, at, &sent).len(), 1);
    assert_eq!((a.counts().timeouts, a.is_dead()), (0, false));
    assert!(a.poll_deadline().unwrap() > at, "a timer again");
}

#[test]
fn naks_that_bring_nothing_end_an_edge_as_timeouts_do() {
    let [mut a, mut b] = pair(Reliability::Reliable, MessageMode::Send, Framing::Inc);
    let mut sent = BTreeMap::new();
    for seq in 0..2 {
        let (header, data) = message(seq, 10);
        a.send(&header).unwrap();
        sent.insert(seq, data);
    }
    let packets = drain(&mut a, 0, &sent);
    take(&mut b, 0, &packets[1]);
    let [nak] = &drain(&mut b, 0, &sent)[..] else { panic!("a NAK") };
    // One each 50 ms: seven are enough, and half a second.
    let rounds = (0..100).take_while(|round| {
        take(&mut a, round * 50 * MS, nak);
        !drain(&mut a, round * 50 * MS, &sent).is_empty()
    });
    assert_eq!((rounds.count(), a.is_dead()), (10, true));
}

#[test]
fn what_is_no_edge_and_no_message_of_it_is_refused() {
    let [right, _] = cfg(Reliability::Reliable, MessageMode::Send, Framing::Inc);
    let refusal = |attributes| Edge::new(EdgeCfg { attributes, ..right }).unwrap_err().to_string();
    for path_mtu in [0, 128, 300, 8192] {
        assert!(
            refusal(EdgeAttributes { path_mtu, ..right.attributes })
                .contains(&format!("not {path_mtu}"))
        );
    }
    for packets in [0, 9] {
        assert!(
            refusal(EdgeAttributes { packets, ..right.attributes })
                .contains(&format!("not {packets}"))
        );
    }
    assert!(refusal(EdgeAttributes { window: 3, ..right.attributes }).contains("not 3"));
    let mut edge = Edge::new(right).unwrap();
    assert!(edge.send(&message(0, 3 * 256 - 16).0).is_ok());
    assert_eq!(edge.send(&message(1, 3 * 256 - 15).0).unwrap_err().reason(), "length");
}

#[test]
fn an_abort_takes_the_place_of_what_was_lost_and_of_what_waits() {
    for reliability in [Reliability::Reliable, Reliability::Unreliable] {
        let [mut a, mut b] = pair(reliability, MessageMode::Send, Framing::Inc);
        let sent: BTreeMap<_, _> = (0..4).map(|seq| (seq, message(seq, 300).1)).collect();
        for seq in 0..3 {
            a.send(&message(seq, 300).0).unwrap();
        }
        // One arrives, the others are lost.
        let packets = drain(&mut a, 0, &sent);
        for packet in &packets[..2] {
            b.on_packet(0, &RocePacket::parse(packet).unwrap()).unwrap();
        }
        a.send(&message(3, 300).0).unwrap();
        let kind = IncKind::Abort(AbortReason::ShutDown);
        let abort = IncHeader { kind, count: 0, ..message(0, 0).0 };
        a.abort(&abort);
        // Nothing is asked for whose data is gone.
        let (gone, mut now, mut seen) = (BTreeMap::new(), 0, Vec::new());
        for _ in 0..20 {
            for packet in drain(&mut a, now, &gone) {
                let packet = RocePacket::parse(&packet).unwrap();
                if let Some((header, _)) = b.on_packet(now, &packet).unwrap() {
                    seen.push(header.kind);
                }
            }
            for packet in drain(&mut b, now, &gone) {
                a.on_packet(now, &RocePacket::parse(&packet).unwrap()).unwrap();
            }
            now += 10 * MS;
            a.on_time(now);
        }
        assert!(!seen.is_empty() && seen.iter().all(|found| *found == kind), "{seen:?}");
        assert!(!a.is_dead() && !b.is_dead(), "{reliability:?}");
    }
}

#[test]
fn an_edge_whose_losses_are_repaired_is_not_dead() {
    let [mut a, mut b] = pair(Reliability::Reliable, MessageMode::Send, Framing::Inc);
    let sent: BTreeMap<_, _> = (0..40).map(|seq| (seq, message(seq, 10).1)).collect();
    for seq in (0..40).step_by(2) {
        let now = u64::from(seq) * 50 * MS;
        a.send(&message(seq, 10).0).unwrap();
        a.send(&message(seq + 1, 10).0).unwrap();
        // The first of two is lost; a NAK brings both again.
        let packets = drain(&mut a, now, &sent);
        b.on_packet(now, &RocePacket::parse(&packets[1]).unwrap()).unwrap();
        let [nak] = &drain(&mut b, now, &sent)[..] else { panic!("a NAK") };
        a.on_packet(now, &RocePacket::parse(nak).unwrap()).unwrap();
        let again = drain(&mut a, now, &sent);
        assert_eq!(again.len(), 2, "after {seq} messages");
        for packet in again {
            b.on_packet(now, &RocePacket::parse(&packet).unwrap()).unwrap();
        }
        // The answers show that both are there; no acknowledgement does.
        drain(&mut b, now, &sent);
        a.on_proof(now, Seq(seq + 1));
        assert!(!a.is_dead());
    }
}

#[test]
fn a_proof_says_nothing_of_a_repeat_behind_what_it_proves() {
    let [mut a, mut b] = pair(Reliability::Reliable, MessageMode::Send, Framing::Inc);
    let sent: BTreeMap<_, _> = (0..3).map(|seq| (seq, message(seq, 10).1)).collect();
    a.send(&message(0, 10).0).unwrap();
    a.send(&message(1, 10).0).unwrap();
    a.send(&IncHeader { is_repeat: true, ..message(0, 10).0 }).unwrap();
    let packets = drain(&mut a, 0, &sent);
    take(&mut b, 0, &packets[0]);
    take(&mut b, 0, &packets[1]);
    // The repeat is lost, and the answers of both chunks come.
    a.on_proof(0, Seq(1));
    a.send(&message(2, 10).0).unwrap();
    let packets = drain(&mut a, 0, &sent);
    take(&mut b, 0, &packets[0]);
    let [nak] = &drain(&mut b, 0, &sent)[..] else { panic!("a NAK") };
    take(&mut a, 0, nak);
    let again = drain(&mut a, 0, &sent);
    assert_eq!(again.len(), 2, "the repeat has to come before what follows");
    // Its data is not asked for: it may be gone. What takes its number is of no life that goes on.
    take(&mut b, 0, &again[0]);
    let packet = RocePacket::parse(&again[1]).unwrap();
    let (header, _) = b.on_packet(0, &packet).unwrap().unwrap();
    assert_eq!((header.seq, header.epoch), (Seq(2), TreeEpoch(3)));
    let (header, data) = IncHeader::parse(RocePacket::parse(&again[0]).unwrap().payload).unwrap();
    assert_eq!((header.epoch, data.len()), (TreeEpoch(2), 0));
}

#[test]
fn a_proof_empties_repeats_though_no_first_message_waits() {
    let [mut a, _] = pair(Reliability::Reliable, MessageMode::Send, Framing::Inc);
    let sent = BTreeMap::from([(0, message(0, 10).1)]);
    a.send(&message(0, 10).0).unwrap();
    drain(&mut a, 0, &sent);
    a.on_proof(0, Seq(0));
    a.send(&IncHeader { is_repeat: true, ..message(0, 10).0 }).unwrap();
    a.on_proof(0, Seq(0));
    // Nothing is asked for: the slot may hold another chunk.
    let packet = a.poll_packet(0).unwrap();
    assert!(packet.inc.is_some() && packet.data.is_empty());
}

#[test]
fn an_acknowledgement_that_is_late_costs_one_packet() {
    let [mut a, mut b] = pair(Reliability::Reliable, MessageMode::Send, Framing::Inc);
    let sent: BTreeMap<_, _> = (0..12).map(|seq| (seq, message(seq, 10).1)).collect();
    for seq in 0..12 {
        a.send(&message(seq, 10).0).unwrap();
    }
    let packets = drain(&mut a, 0, &sent);
    assert_eq!(packets.len(), 12);
    // All arrive, but what would show it does not before the timer.
    let (came, lost) = packets.split_at(9);
    for packet in came {
        take(&mut b, 0, packet);
    }
    assert!(drain(&mut b, 0, &sent).is_empty() && lost.len() == 3);
    a.on_time(MS);
    let probe = drain(&mut a, MS, &sent);
    assert_eq!(probe.len(), 1, "the oldest packet alone");
    assert!(take(&mut b, MS, &probe[0]).is_none());
    let [answer] = &drain(&mut b, MS, &sent)[..] else { panic!("an acknowledgement") };
    take(&mut a, MS, answer);
    // It shows what is missing.
    let again = drain(&mut a, MS, &sent);
    let psns = |all: &[Vec<u8>]| -> Vec<Psn> {
        all.iter().map(|bytes| RocePacket::parse(bytes).unwrap().header.bth.psn).collect()
    };
    assert_eq!(psns(&again), psns(lost));
    let came: Vec<_> = again.iter().filter_map(|bytes| take(&mut b, MS, bytes)).collect();
    assert_eq!(came.len(), 3);
    assert_eq!(a.counts().repeats, 4);
}

#[test]
fn what_a_proof_shows_is_not_sent_again() {
    let [mut a, _] = pair(Reliability::Reliable, MessageMode::Send, Framing::Inc);
    let sent: BTreeMap<_, _> = (0..4).map(|seq| (seq, message(seq, 10).1)).collect();
    for seq in 0..4 {
        a.send(&message(seq, 10).0).unwrap();
    }
    assert_eq!(drain(&mut a, 0, &sent).len(), 4);
    a.on_time(MS);
    // The answer of the third chunk comes before anything is sent again.
    a.on_proof(MS, Seq(2));
    let again = drain(&mut a, MS, &sent);
    let psn = |bytes: &Vec<u8>| RocePacket::parse(bytes).unwrap().header.bth.psn;
    assert_eq!(again.iter().map(psn).collect::<Vec<_>>(), [Psn::new(0x00ff_fff3)]);
}

#[test]
fn a_later_answer_takes_nothing_from_an_unreliable_edge() {
    let [mut a, mut b] = pair(Reliability::Unreliable, MessageMode::Send, Framing::Inc);
    let sent: BTreeMap<_, _> = (0..2).map(|seq| (seq, message(seq, 10).1)).collect();
    a.send(&message(0, 10).0).unwrap();
    a.send(&message(1, 10).0).unwrap();
    // The first one is lost, the answer of the second one comes while the first waits to be sent again.
    assert_eq!(drain(&mut a, 0, &sent).len(), 2);
    a.send(&IncHeader { is_repeat: true, ..message(0, 10).0 }).unwrap();
    a.on_proof(0, Seq(1));
    let again = drain(&mut a, 0, &sent);
    let taken = take(&mut b, 0, &again[0]).unwrap();
    assert_eq!((taken.0.seq, taken.0.epoch, taken.1), (Seq(0), TreeEpoch(3), sent[&0].clone()));
}

#[test]
fn no_packet_of_a_full_message_by_send_is_longer_than_its_first() {
    for reliability in [Reliability::Reliable, Reliability::Unreliable] {
        let [cfg, _] = cfg(reliability, MessageMode::Send, Framing::Inc);
        let most = cfg.attributes.chunk_max();
        assert_eq!(most, 3 * 256 - 16 - 4);
        // Elements of one or four bytes fill it, those of eight leave four bytes.
        for (len, last) in [(most, 272), (most / 8 * 8, 268)] {
            let mut edge = Edge::new(cfg).unwrap();
            let (header, data) = message(0, u16::try_from(len).unwrap());
            edge.send(&header).unwrap();
            let packets = drain(&mut edge, 0, &BTreeMap::from([(0, data)]));
            let lengths: Vec<_> = packets.iter().map(Vec::len).collect();
            assert_eq!(lengths, [272, 272, last]);
        }
        // Where each message is one packet, or has no immediate, all are alike in length anyway.
        let single = EdgeAttributes { packets: 1, ..cfg.attributes };
        let plain = EdgeAttributes { framing: Framing::Plain(sum()), ..cfg.attributes };
        assert_eq!((single.chunk_max(), plain.chunk_max()), (256 - 16, 3 * 256));
    }
}
