//! Packets of senders that receive nothing, copies of packets, and floods of challenges.

use super::*;

/// What a sender that receives nothing may put together about the TP of two nodes: `to` is the one
/// attacked, `from` its peer.
fn forged(from: &Node, to: &Node, rng: &mut Rng) -> Vec<PacketHeader> {
    let zero = Tpn::from_low_bits(0);
    let at = |dest, body| PacketHeader::new(dest, Psn::new(0), body);
    let terms = |rng: &mut Rng, incarnation| HandshakeBody {
        version_min: WIRE_VERSION,
        version_max: WIRE_VERSION,
        mtu: Mtu::B4096,
        strategies: StrategyCaps::SELECTIVE_REPEAT,
        incarnation,
        source_eid: from.eid.0,
        dest_eid: to.eid.0,
        source_tpn: Tpn::from_low_bits(1 + rng.below(1000) as u32),
        first_psn: Psn::new(rng.next_u64() as u32),
        window: 64,
        source_uasid: 0,
        dest_uasid: 0,
        state: 1,
        nonce: rng.next_u64(),
        close_key: rng.next_u64(),
        purpose: Purpose::Open,
        cookie: Cookie::default(),
        ports: urma_packet::FurtherPorts::default(),
    };
    // Even with the TPNs guessed.
    let tpn = |node: &Node| node.machine.offer.map_or(zero, |offer| offer.tpn);
    let (theirs, mine) = (tpn(from), tpn(to));
    let mut all = Vec::new();
    for incarnation in [0, 1, 2, u64::MAX] {
        let offer = terms(rng, incarnation);
        let guessed =
            HandshakeBody { source_tpn: theirs, cookie: [rng.next_u64() as u8; 16], ..offer };
        let connects = [offer, guessed].into_iter().filter(|offer| offer.source_tpn != zero);
        all.extend(connects.map(|offer| at(zero, Body::Connect(offer))));
        if mine != zero {
            all.push(at(mine, Body::Accept(HandshakeBody { source_tpn: theirs, ..offer })));
        }
    }
    if mine == zero {
        return all;
    }
    let nonce = rng.next_u64();
    all.push(at(mine, Body::Challenge(Challenge { nonce, cookie: [1; 16] })));
    for &reason in RefuseReason::ALL {
        let refusal =
            RefuseBody { reason, version_min: 1, version_max: 1, state: 1, nonce: rng.next_u64() };
        all.push(at(mine, Body::Refuse(refusal)));
    }
    for &reason in CloseReason::ALL {
        for key in [0, rng.next_u64()] {
            all.push(at(mine, Body::Close(Close { reason, source_tpn: theirs, key })));
        }
    }
    all
}

#[test]
fn a_sender_that_receives_nothing_moves_nothing() {
    for seed in 0..50 {
        let mut pair = Pair::new(seed, &FaultCfg { delay_ns: MS, ..FaultCfg::default() });
        let mut rng = Rng::new(seed);
        let now = pair.now;
        let [a, b] = &mut pair.nodes;
        for packet in forged(a, b, &mut rng) {
            b.assert_unmoved(now, &packet);
        }
        a.open(now);
        for packet in forged(b, a, &mut rng) {
            a.assert_unmoved(now, &packet);
        }
        pair.nodes[1].replies.clear();
        pair.drive();
        pair.assert_mirrored(seed);
        let [a, b] = &mut pair.nodes;
        for packet in forged(a, b, &mut rng) {
            match packet.body {
                Body::Close(close) if close.reason == CloseReason::UnknownTp => {}
                _ => b.assert_unmoved(pair.now, &packet),
            }
        }
    }
}

#[test]
fn a_forged_hint_asks_the_peer_and_ends_nothing() {
    let mut pair = Pair::new(1, &FaultCfg { delay_ns: MS, ..FaultCfg::default() });
    pair.nodes[0].open(0);
    pair.drive();
    let tp = pair.nodes[0].agreed().expect("open");
    let hint = Handshake::unknown_tp(tp.peer_tpn);
    pair.nodes[0].take(pair.now, &hint);
    assert!(pair.nodes[0].machine.is_verifying());
    pair.drive();
    assert_eq!(pair.nodes[0].events.last(), Some(&HandshakeEvent::Proven));
    pair.assert_mirrored(1);
    // A peer that gives no answer at the moment is not taken for gone by a hint.
    pair.link = FaultCfg { loss_ppm: 1_000_000, ..FaultCfg::default() }.build(&mut Rng::new(1));
    pair.nodes[0].take(pair.now, &hint);
    pair.drive();
    assert_eq!(pair.nodes[0].agreed(), Some(tp));
    assert!(!pair.nodes[0].machine.is_verifying());
}

#[test]
fn no_copy_of_a_connect_makes_a_second_tp() {
    let mut pair = Pair::new(1, &FaultCfg::default());
    let mut copies = Vec::new();
    for round in 0..3 {
        let now = round * 100 * MS;
        pair.nodes[0].open(now);
        // CONNECT, CHALLENGE, CONNECT with its cookie, ACCEPT.
        for packet in pair.nodes[0].sent(now) {
            copies.push(Arc::clone(&packet));
            pair.nodes[1].receive(now, &packet);
        }
        for packet in pair.nodes[1].sent(now) {
            pair.nodes[0].receive(now, &packet);
        }
        for packet in pair.nodes[0].sent(now) {
            copies.push(Arc::clone(&packet));
            pair.nodes[1].receive(now, &packet);
        }
        for packet in pair.nodes[1].sent(now) {
            pair.nodes[0].receive(now, &packet);
        }
        pair.assert_mirrored(round);
        pair.nodes[0].machine.close(CloseReason::Idle);
        for packet in pair.nodes[0].sent(now) {
            pair.nodes[1].receive(now, &packet);
        }
        assert_eq!(pair.nodes[1].agreed(), None);
        // As late as the first cookie is valid, and later.
        for late in [now, now + 90 * MS, 499 * MS, 999 * MS, 5000 * MS] {
            for copy in &copies {
                pair.nodes[1].receive(late, copy);
            }
            assert_eq!(pair.nodes[1].agreed(), None, "round {round} at {late}");
        }
        pair.nodes[1].replies.clear();
    }
    // A node that forgot the pair after a second takes none of them either.
    pair.restart(1, 1);
    for copy in &copies {
        pair.nodes[1].receive(1_000 * MS, copy);
    }
    assert_eq!(pair.nodes[1].agreed(), None);
}

#[test]
fn a_cookie_is_valid_for_half_a_second_at_least() {
    for (asked, shown) in [(0, 999 * MS), (499 * MS, 999 * MS), (500 * MS, 1_499 * MS)] {
        let mut pair = Pair::new(1, &FaultCfg::default());
        pair.nodes[0].open(asked);
        for packet in pair.nodes[0].sent(asked) {
            pair.nodes[1].receive(asked, &packet);
        }
        for packet in pair.nodes[1].sent(asked) {
            pair.nodes[0].receive(asked, &packet);
        }
        let packets = pair.nodes[0].sent(asked);
        assert_eq!(packets.len(), 1, "at once, outside the retries");
        pair.nodes[1].receive(shown, &packets[0]);
        assert!(pair.nodes[1].agreed().is_some(), "{asked} {shown}");
    }
}

#[test]
fn a_peer_that_challenges_on_and_on_is_answered_a_bounded_number_of_times() {
    let mut pair = Pair::new(1, &FaultCfg::default());
    pair.nodes[0].open(0);
    let connects = pair.nodes[0].sent(0);
    let Body::Connect(terms) = Packet::parse(&connects[0]).expect("own packet").header.body else {
        panic!("CONNECT")
    };
    let challenge = Body::Challenge(Challenge { nonce: terms.nonce, cookie: [1; 16] });
    let header = PacketHeader::new(terms.source_tpn, Psn::new(0), challenge);
    let mut answers = 0;
    for _ in 0..100 {
        pair.nodes[0].take(0, &header);
        answers += pair.nodes[0].sent(0).len();
    }
    assert_eq!(answers, CHALLENGES_MAX as usize);
}
