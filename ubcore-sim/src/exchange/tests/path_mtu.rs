//! Path MTUs: what probes prove, and what forged ones do not.

use udma_abi::{CqeStatus, Opcode, RawEid, Sqe, cmd::Access, counters::Counter};
use urma_packet::{
    Body, DATA_OVERHEAD, Packet, PacketHeader, PathProbe, Psn, RequestFlags, TpOpcode, Tpn,
};

use super::world::{self, Kind, World};
use crate::endpoint::flow;
use crate::ports::RUN_BYTES;
use crate::transport::TRANSMIT_MAX;

const ALL: Access = Access::READ.union(Access::WRITE).union(Access::ATOMIC);
const MS: u64 = 1_000_000;

fn payload(w: &World, n: usize) -> usize {
    w.nodes[n].exchange.endpoint.tp(w.eid(1 - n)).expect("a peer").payload_max()
}

/// The number of node `n`'s end of the TP.
fn tpn(w: &World, n: usize) -> Tpn {
    let (tpn, _) = w.nodes[n].exchange.endpoint.tpns().next().expect("a TP");
    Tpn::from_low_bits(tpn)
}

/// A probe or echo arrives at node `n`; what the node sends then.
fn arrive(w: &mut World, n: usize, from: RawEid, dest: Tpn, body: Body) -> Vec<PacketHeader> {
    let header = PacketHeader::new(dest, Psn::new(0), body);
    let padding = if let Body::Probe(probe) = &body { probe.padding() } else { 0 };
    let mut bytes = vec![0; header.packet_len(padding)];
    header.emit(&vec![0; padding], &flow(from, w.eid(n)), &mut bytes).expect("valid");
    let now = w.now;
    w.nodes[n].on_datagram(now, from, &bytes);
    let mut buf = vec![0; TRANSMIT_MAX];
    std::iter::from_fn(|| {
        let sent = w.nodes[n].exchange.endpoint.poll_transmit(now, &mut buf)?;
        Some(Packet::parse(&buf[..sent.len]).expect("a packet").header)
    })
    .collect()
}

fn drops(w: &World, n: usize) -> [u64; 2] {
    [Counter::DropUnknownTp, Counter::DropUnproven].map(|counter| w.counter(n, counter))
}

/// What the node sends into a buffer that holds a run: the first packet, the bytes of all, those of each.
fn sent(w: &mut World, n: usize) -> Option<(Body, usize, usize)> {
    let mut buf = vec![0; RUN_BYTES];
    let sent = w.nodes[n].exchange.endpoint.poll_transmit(w.now, &mut buf)?;
    for packet in buf[..sent.len].chunks(sent.size) {
        assert!(Packet::open(packet, &flow(w.eid(n), sent.to)).is_ok(), "sealed one by one");
    }
    let first = Packet::parse(&buf[..sent.size]).expect("a packet").header.body;
    Some((first, sent.len, sent.size))
}

#[test]
fn packets_of_a_message_are_a_run_and_echoes_and_notices_go_alone() {
    const LEN: usize = 100_000;
    let mut w = World::with_mtus(Kind::Packets, [1024; 2]);
    let source = w.segment(0, 1, LEN, ALL);
    let _target = w.segment(1, 2, LEN, ALL);
    world::fill(&source);
    w.run_for(MS);
    let sqe = w.to_memory(Opcode::Write, 2, 0);
    w.hand(0, &sqe, &[(1, 0, LEN)]);
    let now = w.now;
    let node = &mut w.nodes[0];
    node.exchange.take_mail_of(&node.core, now, world::SENDER);
    world::step_exchange(&mut node.exchange, &node.core, now);
    let (_, len, size) = sent(&mut w, 0).expect("data");
    assert!(size > 1024 && len > 50 * size && len <= RUN_BYTES, "{len} of {size}");
    // More data waits, and the last packet was one that others may follow.
    let (from, own) = (w.eid(1), tpn(&w, 0));
    let probe = Body::Probe(PathProbe { nonce: 1, size: 576 });
    let mut read = super::hostile::header(&w, Opcode::Read, 8, 0);
    read.flags.insert(RequestFlags::FIRST | RequestFlags::LAST);
    let unknown = Tpn::from_low_bits(own.value() ^ 1);
    for (dest, body) in [(own, probe), (unknown, Body::Request(read))] {
        let header = PacketHeader::new(dest, Psn::new(0), body);
        let padding = if let Body::Probe(probe) = &body { probe.padding() } else { 0 };
        let mut bytes = vec![0; header.packet_len(padding)];
        header.emit(&vec![0; padding], &flow(from, w.eid(0)), &mut bytes).expect("valid");
        w.nodes[0].on_datagram(now, from, &bytes);
    }
    let mut alone = Vec::new();
    while let Some((body, len, size)) = sent(&mut w, 0) {
        if !matches!(body, Body::Request(_)) {
            assert_eq!(len, size, "{body:?}");
            alone.push(body.opcode());
        }
    }
    alone.sort_by_key(|opcode| opcode.code());
    assert_eq!(alone, [TpOpcode::Close, TpOpcode::ProbeEcho, TpOpcode::Tail]);
}

#[test]
fn both_directions_find_the_top_at_once() {
    for mtu in [256, 1024, 4096, 8192] {
        let mut w = World::with_mtus(Kind::Packets, [mtu; 2]);
        w.run_for(MS);
        assert_eq!([0, 1].map(|n| payload(&w, n)), [mtu as usize; 2]);
    }
}

#[test]
fn only_the_holder_of_the_tp_returns_a_probe_and_only_to_its_peer() {
    let mut w = World::new(Kind::Packets);
    w.run_for(MS);
    let (peer, own) = (w.eid(0), tpn(&w, 1));
    let stranger = RawEid([9; 16]);
    let probe = PathProbe { nonce: 0x1234, size: 1472 };
    let [unknown, unproven] = drops(&w, 1);
    let other = Tpn::from_low_bits(own.value() ^ 1);
    for (from, dest) in [(stranger, own), (peer, other), (stranger, other)] {
        assert!(arrive(&mut w, 1, from, dest, Body::Probe(probe)).is_empty());
    }
    assert_eq!(drops(&w, 1), [unknown + 3, unproven]);
    let answers = arrive(&mut w, 1, peer, own, Body::Probe(probe));
    let [echo] = answers.as_slice() else { panic!("{answers:?}") };
    assert_eq!((echo.dest, echo.body), (tpn(&w, 0), Body::ProbeEcho(probe)));
}

#[test]
fn probes_that_pile_up_are_answered_by_a_few_echoes() {
    let mut w = World::new(Kind::Packets);
    w.run_for(MS);
    let (peer, own, now) = (w.eid(0), tpn(&w, 1), w.now);
    for nonce in 0..1000 {
        let header =
            PacketHeader::new(own, Psn::new(0), Body::Probe(PathProbe { nonce, size: 32 }));
        let mut bytes = vec![0; 32];
        header.emit(&[], &flow(peer, w.eid(1)), &mut bytes).expect("valid");
        w.nodes[1].on_datagram(now, peer, &bytes);
    }
    let answers = arrive(&mut w, 1, peer, own, Body::Probe(PathProbe { nonce: 1000, size: 32 }));
    assert_eq!(answers.len(), 4);
}

#[test]
fn forged_replayed_reflected_and_spliced_echoes_change_nothing() {
    let mut w = World::new(Kind::Packets);
    // The TP is open, its first probe is on the way to nowhere.
    w.longest = [1000; 2];
    w.run_for(5 * MS);
    w.nodes[0].exchange.endpoint.close(w.eid(1), urma_packet::CloseReason::Replaced);
    let _here = w.segment(0, 1, 4096, ALL);
    let _there = w.segment(1, 2, 4096, ALL);
    w.hand(0, &w.to_memory(Opcode::Write, 2, 0), &[(1, 0, 4096)]);
    w.run_for(5 * MS);
    assert_eq!(payload(&w, 0), 256);
    let (peer, own, stranger) = (w.eid(1), tpn(&w, 0), RawEid([9; 16]));
    let size = u16::try_from(DATA_OVERHEAD + 4096).expect("short");
    let [unknown, unproven] = drops(&w, 0);
    for nonce in [0, 1, u64::MAX] {
        let echo = Body::ProbeEcho(PathProbe { nonce, size });
        arrive(&mut w, 0, peer, own, echo);
        arrive(&mut w, 0, stranger, own, echo);
        arrive(&mut w, 0, peer, Tpn::from_low_bits(own.value() ^ 1), echo);
    }
    assert_eq!(drops(&w, 0), [unknown + 6, unproven + 3]);
    // Its own probe comes back.
    w.now += 20 * MS;
    let mut buf = vec![0; TRANSMIT_MAX];
    let now = w.now;
    w.nodes[0].exchange.endpoint.on_time(now);
    let asked = std::iter::from_fn(|| {
        let sent = w.nodes[0].exchange.endpoint.poll_transmit(now, &mut buf)?;
        Some(Packet::parse(&buf[..sent.len]).expect("a packet").header)
    })
    .find_map(|header| match header.body {
        Body::Probe(probe) => Some((header.dest, probe)),
        _ => None,
    });
    let (dest, probe) = asked.expect("a probe");
    assert_eq!(probe.size, size);
    arrive(&mut w, 0, peer, dest, Body::Probe(probe));
    let spliced = PathProbe { size: size - 4, ..probe };
    arrive(&mut w, 0, peer, own, Body::ProbeEcho(spliced));
    assert_eq!(drops(&w, 0), [unknown + 7, unproven + 4]);
    assert_eq!(payload(&w, 0), 256, "nothing was proved");
    // The echo itself; and once only.
    arrive(&mut w, 0, peer, own, Body::ProbeEcho(probe));
    assert_eq!(payload(&w, 0), 4096);
    arrive(&mut w, 0, peer, own, Body::ProbeEcho(probe));
    assert_eq!(drops(&w, 0), [unknown + 7, unproven + 5]);
}

#[test]
fn messages_pass_paths_of_any_width() {
    for longest in [548, 1252, 1472, 4096] {
        let mut w = World::with_mtus(Kind::Packets, [8192; 2]);
        w.longest = [longest; 2];
        let here = w.segment(0, 1, 1 << 16, ALL);
        let there = w.segment(1, 2, 1 << 16, ALL);
        world::fill(&here);
        w.nodes[0].exchange.endpoint.close(w.eid(1), urma_packet::CloseReason::Replaced);
        let seq = w.send(0, &w.to_memory(Opcode::Write, 2, 0), &[(1, 0, 1 << 16)]);
        assert_eq!(w.end_of(0, seq), Some((CqeStatus::Success, 1 << 16)), "{longest}");
        world::assert_filled(&there, 1 << 16);
        here.zero(0, 1 << 16).expect("inside");
        let seq = w.send(0, &w.to_memory(Opcode::Read, 2, 0), &[(1, 0, 1 << 16)]);
        assert_eq!(w.end_of(0, seq), Some((CqeStatus::Success, 1 << 16)), "{longest}");
        world::assert_filled(&here, 1 << 16);
    }
}

#[test]
fn a_path_that_becomes_narrower_costs_no_request_and_doubles_none() {
    for way in [[1472, usize::MAX], [usize::MAX, 1472], [548, 1472]] {
        let mut w = World::with_mtus(Kind::Packets, [8192; 2]);
        let here = w.segment(0, 1, 1 << 16, ALL);
        let there = w.segment(1, 2, 1 << 17, ALL);
        let _old = w.segment(0, 3, 4096, ALL);
        world::fill(&here);
        w.run_for(5 * MS);
        assert_eq!(payload(&w, 0), 8192);
        let add = |w: &World| Sqe { operand: 1, ..w.to_memory(Opcode::FetchAdd, 2, 1 << 16) };
        let mut seqs = Vec::new();
        for round in 0..8 {
            seqs.push((w.hand(0, &w.to_memory(Opcode::Write, 2, 0), &[(1, 0, 1 << 16)]), 1 << 16));
            seqs.push((w.hand(0, &add(&w), &[(3, 0, 8)]), 8));
            seqs.push((w.hand(0, &w.to_memory(Opcode::Read, 2, 8), &[(1, 8, 1 << 15)]), 1 << 15));
            if round == 3 {
                w.run_for(20_000);
                w.longest = way;
            }
        }
        for (seq, len) in seqs {
            assert_eq!(w.end_of(0, seq), Some((CqeStatus::Success, len)), "{way:?}");
        }
        assert_eq!(there.load_u64(1 << 16).expect("inside"), 8, "{way:?}: each addition once");
        world::assert_filled(&there, 1 << 15);
        let narrowed = w.counter(0, Counter::PathNarrowed) + w.counter(1, Counter::PathNarrowed);
        assert!((1..=4).contains(&narrowed), "{way:?}: {narrowed}");
    }
}

#[test]
fn a_peer_that_dies_is_no_narrow_path() {
    let mut w = World::new(Kind::Packets);
    let _here = w.segment(0, 1, 4096, ALL);
    let _there = w.segment(1, 2, 4096, ALL);
    w.run_for(5 * MS);
    w.is_mute = [true; 2];
    w.hand(0, &w.to_memory(Opcode::Write, 2, 0), &[(1, 0, 4096)]);
    w.run_for(10_000 * MS);
    assert_eq!(w.counter(0, Counter::PathNarrowed), 0);
}
