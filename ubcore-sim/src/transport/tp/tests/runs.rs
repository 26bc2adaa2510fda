//! Packets that leave in one run.

use super::*;

/// What follows a packet in its run is new, no longer, and in order.
#[test]
fn a_run_has_new_packets_alone_and_none_that_is_longer() {
    let scenario = Scenario::new(1, Strategy::GoBackN, FaultCfg::default());
    let mut end = End::new(&scenario, 1, 20);
    let cfg = *end.tp.cfg();
    let lens = [100, 100, 40, 100, 104, 8];
    for (number, len) in (0..).zip(lens) {
        end.tp.push(&header(number, len), len, &mut |out| out.fill(7)).expect("room");
    }
    let mut buf = [0; TRANSMIT_MAX];
    // Of the first packet, and of those that follow it: PSN and length.
    let run = |end: &mut End, buf: &mut [u8]| {
        let mut sent = Vec::new();
        let Some(size) = end.tp.poll_transmit(0, buf, &mut end.pool) else { return sent };
        let mut next = Some(size);
        while let Some(len) = next {
            let packet = Packet::parse(&buf[..len]).expect("own packet");
            let seq = packet.header.psn.distance_from(cfg.tx_psn);
            sent.push((seq, packet.payload.len(), packet.header.ack_req));
            next = end.tp.poll_follower(0, buf, size);
        }
        sent
    };
    let first = [(0, 100, false), (1, 100, false), (2, 40, false), (3, 100, false)];
    assert_eq!(run(&mut end, &mut buf), first);
    assert_eq!(run(&mut end, &mut buf), [(4, 104, false), (5, 8, false)]);
    assert!(end.tp.poll_follower(0, &mut buf, TRANSMIT_MAX).is_none(), "nothing is left");
    // What is sent again goes alone, and before what is new.
    end.tp.push(&header(6, 8), 8, &mut |out| out.fill(7)).expect("room");
    let ack =
        Ack { window: 64, congestion: false, trigger: cfg.tx_psn, received: SackBitmap::default() };
    let nak = PacketHeader::new(cfg.local_tpn, cfg.tx_psn.plus(4), Body::Nak(ack));
    end.tp.on_packet(0, &Packet { header: nak, payload: &[] }, &mut end.pool);
    assert!(end.tp.poll_follower(0, &mut buf, TRANSMIT_MAX).is_none(), "lost ones wait");
    assert_eq!(run(&mut end, &mut buf), [(4, 104, true)]);
    assert_eq!(run(&mut end, &mut buf), [(5, 8, true)]);
    assert_eq!(run(&mut end, &mut buf), [(6, 8, false)]);
}

/// A full window asks for an acknowledgement in a run as well.
#[test]
fn the_last_packet_of_a_full_window_asks_in_a_run_too() {
    let scenario = Scenario::new(1, Strategy::SelectiveRepeat, FaultCfg::default());
    let mut end = End::new(&scenario, 1, 0);
    while end.tp.has_room() {
        end.tp.push(&header(0, 8), 8, &mut |out| out.fill(7)).expect("room");
    }
    let mut buf = [0; TRANSMIT_MAX];
    let size = end.tp.poll_transmit(0, &mut buf, &mut end.pool).expect("a packet");
    let mut asks = Vec::new();
    while let Some(len) = end.tp.poll_follower(0, &mut buf, size) {
        asks.push(Packet::parse(&buf[..len]).expect("own packet").header.ack_req);
    }
    assert_eq!(asks.len(), scenario.window as usize - 1);
    let quarter = scenario.window as usize / 4;
    assert!(asks.chunks(quarter).all(|some| some.contains(&true)), "{asks:?}");
    assert_eq!(asks.last(), Some(&true));
}
