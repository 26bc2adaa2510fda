//! Acknowledgements, reports and marks that lie, and those that come twice.

use super::*;

/// An end that pushed four pieces and sent two.
fn half_sent(strategy: Strategy) -> End {
    let scenario = Scenario::new(1, strategy, FaultCfg::default());
    let mut end = End::new(&scenario, 1, 4);
    let mut rng = Rng::new(9);
    while end.pushed < 4 {
        end.push_some(&mut rng);
    }
    for _ in 0..2 {
        assert!(end.tp.poll_transmit(0, &mut [0; TRANSMIT_MAX], &mut end.pool).is_some());
    }
    end
}

fn inject(end: &mut End, psn: Psn, body: Body, repeat: Option<Repeat>) -> Received {
    let header = PacketHeader { repeat, ..PacketHeader::new(end.tp.cfg().local_tpn, psn, body) };
    end.tp.on_packet(1, &Packet { header, payload: &[] }, &mut end.pool)
}

#[test]
fn reports_that_lie_are_dropped() {
    [Strategy::Knitting, Strategy::Seed].into_iter().for_each(drops_reports_that_lie);
}

fn drops_reports_that_lie(strategy: Strategy) {
    let mut end = half_sent(strategy);
    let first = end.tp.cfg().tx_psn;
    let report = |runs: &[(u32, u32)]| {
        let run = |&(at, count): &(u32, u32)| MissingRun { start: first.plus(at), count };
        let runs: Vec<_> = runs.iter().map(run).collect();
        Body::Losses(ReportBody::new(1, 0, &runs).expect("few"))
    };
    let back = 0_u32.wrapping_sub(WINDOW_MAX + 1);
    let lies: [&[(u32, u32)]; 6] = [
        &[(2, 1)],
        &[(0, 3)],
        &[(0, 1), (3, 1)],
        &[(1 << 22, 1)],
        &[(back, 1)],
        &[(0x00ff_ffff, 1)],
    ];
    for lie in lies {
        assert_eq!(
            inject(&mut end, Psn::new(0), report(lie), None),
            Received::BadReport,
            "{lie:?}"
        );
    }
    assert_eq!(end.tp.stats().sent_again, 0);
    assert_eq!(inject(&mut end, Psn::new(0), report(&[(1, 1)]), None), Received::Acknowledged);
    let mut buf = [0; TRANSMIT_MAX];
    let len = end.tp.poll_transmit(2, &mut buf, &mut end.pool).expect("packet 1 again");
    let again = Packet::parse(&buf[..len]).expect("right").header;
    assert_eq!((again.psn, again.repeat), (first.plus(1), Some(Repeat { tier: 1, ticket: 0 })));
    for strategy in [Strategy::GoBackN, Strategy::SelectiveRepeat, Strategy::Irn] {
        let mut end = half_sent(strategy);
        let body = report(&[(0, 1)]);
        assert_eq!(inject(&mut end, Psn::new(0), body, None), Received::BadReport);
    }
}

#[test]
fn a_report_of_what_is_acknowledged_changes_nothing() {
    let mut end = half_sent(Strategy::Knitting);
    let first = end.tp.cfg().tx_psn;
    let trigger = first.plus(1);
    let ack = Ack { window: 9, congestion: false, trigger, received: SackBitmap::default() };
    assert_eq!(inject(&mut end, first.plus(2), Body::Ack(ack), None), Received::Acknowledged);
    let run = MissingRun { start: first, count: 2 };
    let body = Body::Losses(ReportBody::new(2, 7, &[run]).expect("one run"));
    assert_eq!(inject(&mut end, Psn::new(0), body, None), Received::Acknowledged);
    let mut sent = 0;
    while let Some(len) = end.tp.poll_transmit(2, &mut [0; TRANSMIT_MAX], &mut end.pool) {
        assert!(len > 0 && sent < 9);
        sent += 1;
    }
    assert_eq!((end.tp.stats().sent, end.tp.stats().sent_again), (4, 0));
}

#[test]
fn tail_marks_that_lie_are_dropped() {
    let mut end = half_sent(Strategy::Knitting);
    let first = end.tp.cfg().rx_psn;
    let tail = |first_end| Body::Tail(TailBody { first_end, ticket_end: 0x00ff_ffff, rtt_ns: 1 });
    for (end_at, first_end) in [(33, 0), (1 << 22, 0), (4, 5), (0, 1), (4, 4 + (1 << 22))] {
        let body = tail(first.plus(first_end));
        let found = inject(&mut end, first.plus(end_at), body, None);
        assert_eq!(found, Received::BadTail, "{end_at} {first_end}");
    }
    assert!(!end.tp.rx.ack().has_report() && !end.tp.rx.ack().has_ack());
    // From before the first packet: stale.
    let found = inject(&mut end, first.plus(0x00ff_fff0), tail(first.plus(0x00ff_fff0)), None);
    assert_eq!((found, end.tp.rx.ack().has_report()), (Received::Acknowledged, false));
    let found = inject(&mut end, first.plus(32), tail(first.plus(32)), None);
    assert_eq!((found, end.tp.rx.ack().has_report()), (Received::Acknowledged, true));
    for strategy in Strategy::ALL.into_iter().filter(|strategy| *strategy != Strategy::Knitting) {
        let found = inject(&mut half_sent(strategy), first, tail(first), None);
        assert_eq!(found, Received::BadTail);
    }
}

#[test]
fn a_packet_that_answers_no_report_is_dropped() {
    let data = Body::Response(match header(0, 4) {
        TransactionHeader::Response(header) => header,
        TransactionHeader::Request(_) => unreachable!(),
    });
    let repeat = |tier, ticket| Some(Repeat { tier, ticket });
    for strategy in [Strategy::GoBackN, Strategy::SelectiveRepeat, Strategy::Irn] {
        let mut end = half_sent(strategy);
        let first = end.tp.cfg().rx_psn;
        assert_eq!(inject(&mut end, first, data, repeat(1, 0)), Received::BadRepeat);
    }
    let mut end = half_sent(Strategy::Knitting);
    let first = end.tp.cfg().rx_psn;
    for mark in [repeat(1, 0), repeat(2, 0), repeat(2, 0x00ff_ffff)] {
        assert_eq!(inject(&mut end, first, data, mark), Received::Unmatched, "{mark:?}");
        assert_eq!(inject(&mut end, first.plus(31), data, mark), Received::Unmatched);
    }
    assert_eq!(inject(&mut end, first.plus(1), data, None), Received::OutOfOrder);
    assert_eq!(inject(&mut end, first.plus(1), data, repeat(1, 0)), Received::Unmatched);
    // What that one would have passed over was lost again.
    assert_eq!(inject(&mut end, first, data, repeat(1, 0)), Received::Unmatched);
    assert_eq!(inject(&mut end, first, data, repeat(2, 0)), Received::InOrder);
}

#[test]
fn a_packet_that_answers_no_entry_of_an_adamap_is_dropped() {
    let data = Body::Response(match header(0, 4) {
        TransactionHeader::Response(header) => header,
        TransactionHeader::Request(_) => unreachable!(),
    });
    let repeat = |tier, ticket| Some(Repeat { tier, ticket });
    let scenario = Scenario { window: 64, ..Scenario::new(1, Strategy::Seed, FaultCfg::default()) };
    let mut end = End::new(&scenario, 1, 4);
    let first = end.tp.cfg().rx_psn;
    for mark in [repeat(1, 0), repeat(2, 0), repeat(2, 0x00ff_ffff)] {
        assert_eq!(inject(&mut end, first, data, mark), Received::Unmatched, "{mark:?}");
    }
    // It closes a node of 33 packets.
    assert_eq!(inject(&mut end, first.plus(33), data, None), Received::OutOfOrder);
    assert!(end.tp.rx.ack().has_report());
    assert_eq!(inject(&mut end, first, data, None), Received::Unmatched, "it was reported");
    // That passes over all of the node: one entry of 32 packets, and one of the last.
    assert_eq!(inject(&mut end, first.plus(40), data, repeat(1, 0)), Received::Unmatched);
    assert_eq!(inject(&mut end, first, data, repeat(1, 0)), Received::Unmatched);
    assert_eq!(inject(&mut end, first, data, repeat(2, 1)), Received::Unmatched);
    assert_eq!(inject(&mut end, first.plus(32), data, repeat(2, 1)), Received::OutOfOrder);
    assert_eq!(inject(&mut end, first, data, repeat(2, 0)), Received::InOrder);
}

#[test]
fn reports_that_are_not_sent_are_few() {
    let mut end = half_sent(Strategy::Knitting);
    let first = end.tp.cfg().rx_psn;
    let data = Body::Response(match header(0, 4) {
        TransactionHeader::Response(header) => header,
        TransactionHeader::Request(_) => unreachable!(),
    });
    for at in (1..32).step_by(2) {
        assert_eq!(inject(&mut end, first.plus(at), data, None), Received::OutOfOrder);
    }
    // Each mark says that all was sent again, long ago.
    let tail = Body::Tail(TailBody { first_end: first.plus(32), ticket_end: 0, rtt_ns: 1 });
    for round in 0..10_000_u64 {
        let header = PacketHeader::new(end.tp.cfg().local_tpn, first.plus(32), tail);
        let packet = Packet { header, payload: &[] };
        let found = end.tp.on_packet(round * MS, &packet, &mut end.pool);
        assert_eq!(found, Received::Acknowledged);
    }
    let waiting = std::iter::from_fn(|| end.tp.rx.receiver().poll_report()).count();
    assert!((60..=70).contains(&waiting), "{waiting} reports");
}

#[test]
fn an_acknowledgement_of_what_was_never_sent_is_dropped() {
    let scenario = Scenario::new(1, Strategy::SelectiveRepeat, FaultCfg::default());
    let mut end = End::new(&scenario, 1, 4);
    let mut rng = Rng::new(9);
    while end.pushed < 4 {
        end.push_some(&mut rng);
    }
    let first = end.tp.cfg().tx_psn;
    let mut ack = |psn: Psn| {
        let ack =
            Ack { window: 1, congestion: false, trigger: psn, received: SackBitmap::default() };
        let header = PacketHeader::new(end.tp.cfg().local_tpn, psn, Body::Ack(ack));
        end.tp.on_packet(0, &Packet { header, payload: &[] }, &mut end.pool)
    };
    // Pushed but not sent.
    assert_eq!(ack(first.plus(1)), Received::BadAck);
    assert_eq!(ack(first.plus(1 << 22)), Received::BadAck);
    assert_eq!(ack(first), Received::Acknowledged);
    assert_eq!(end.tp.room(), scenario.window as usize - 4);
}

/// One bit too many, and nothing of the acknowledgement counts.
#[test]
fn a_bitmap_that_names_what_was_never_sent_is_dropped() {
    let scenario = Scenario::new(1, Strategy::SelectiveRepeat, FaultCfg::default());
    let mut end = End::new(&scenario, 1, 10);
    let mut rng = Rng::new(9);
    while end.pushed < 10 {
        end.push_some(&mut rng);
    }
    let mut buf = [0; TRANSMIT_MAX];
    while end.tp.poll_transmit(0, &mut buf, &mut end.pool).is_some() {}
    let mut ack = |bit: u32| {
        let cfg = *end.tp.cfg();
        let received = SackBitmap::from_words(&[1 << bit]).expect("a word");
        let ack = Ack { window: 64, congestion: false, trigger: cfg.tx_psn, received };
        let header = PacketHeader::new(cfg.local_tpn, cfg.tx_psn.plus(4), Body::Ack(ack));
        let received = end.tp.on_packet(0, &Packet { header, payload: &[] }, &mut end.pool);
        (received, end.tp.room())
    };
    let room = scenario.window as usize - 10;
    // The edge is number 4, so bit 4 is number 9, the last one.
    for bit in [5, 6, 63] {
        assert_eq!(ack(bit), (Received::BadAck, room), "{bit}");
    }
    assert_eq!(ack(4), (Received::Acknowledged, room + 4));
}

/// A network may double a NAK: the second one sends nothing again.
#[test]
fn a_nak_is_answered_once() {
    let scenario = Scenario::new(1, Strategy::GoBackN, FaultCfg::default());
    let mut end = End::new(&scenario, 1, 20);
    let mut rng = Rng::new(9);
    while end.pushed < 20 {
        end.push_some(&mut rng);
    }
    let mut buf = [0; TRANSMIT_MAX];
    let mut sent = |end: &mut End| {
        std::iter::from_fn(|| end.tp.poll_transmit(0, &mut buf, &mut end.pool)).count()
    };
    assert_eq!(sent(&mut end), 20);
    let nak = |end: &mut End, seq| {
        let cfg = *end.tp.cfg();
        let received = SackBitmap::default();
        let ack = Ack { window: 64, congestion: false, trigger: cfg.tx_psn, received };
        let header = PacketHeader::new(cfg.local_tpn, cfg.tx_psn.plus(seq), Body::Nak(ack));
        end.tp.on_packet(0, &Packet { header, payload: &[] }, &mut end.pool)
    };
    assert_eq!(nak(&mut end, 5), Received::Acknowledged);
    assert_eq!(sent(&mut end), 15);
    assert_eq!(nak(&mut end, 5), Received::Acknowledged);
    assert_eq!(sent(&mut end), 0, "answered before");
    assert_eq!(nak(&mut end, 6), Received::Acknowledged);
    assert_eq!(sent(&mut end), 14, "another gap");
}

/// A router marks packets when its queue is long; the sender learns of it by the next acknowledgement, once.
#[test]
fn the_mark_of_a_congested_router_reaches_the_acknowledgement() {
    for strategy in Strategy::ALL {
        let mut end = half_sent(strategy);
        let first = end.tp.cfg().rx_psn;
        let mut acknowledged = |at: u32, forward: bool| {
            let body = Body::Response(match header(at, 4) {
                TransactionHeader::Response(header) => header,
                TransactionHeader::Request(_) => unreachable!(),
            });
            let mut header = PacketHeader::new(end.tp.cfg().local_tpn, first.plus(at), body);
            (header.congestion.forward, header.ack_req) = (forward, true);
            let packet = Packet { header, payload: &[1; 4] };
            assert_eq!(end.tp.on_packet(1, &packet, &mut end.pool), Received::InOrder);
            let mut buf = [0; TRANSMIT_MAX];
            let mut sent = std::iter::from_fn(|| {
                let len = end.tp.poll_transmit(1, &mut buf, &mut end.pool)?;
                Some(Packet::parse(&buf[..len]).expect("right").header.body)
            });
            let ack = sent.find_map(|body| match body {
                Body::Ack(ack) => Some(ack.congestion),
                _ => None,
            });
            ack.expect("an acknowledgement")
        };
        assert!(!acknowledged(0, false), "{strategy:?}");
        assert!(acknowledged(1, true), "{strategy:?}");
        assert!(!acknowledged(2, false), "{strategy:?}: once");
    }
}
