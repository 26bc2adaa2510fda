//! The UDP socket: sent, received, refused.

use std::net::IpAddr;

use super::*;
use crate::host::{claim::Claim, ip_eid};

fn node() -> (Claim, RawEid, Udp) {
    let claim = Claim::random().unwrap();
    let eid = claim.eid();
    let udp = Udp::bind(eid).unwrap();
    (claim, eid, udp)
}

/// A packet of `len` bytes that starts with `mark`.
fn packet(mark: u8, len: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..=250).cycle().take(len).collect();
    bytes[0] = mark;
    bytes
}

fn send_all(from: &mut Udp, from_eid: RawEid, packets: &[(RawEid, Vec<u8>)]) {
    let mut waiting = packets.iter();
    let sent = from.send(|buffer| {
        let (to, bytes) = waiting.next()?;
        let port = SocketAddr::new(eid_ip(from_eid), ROCE_PORT);
        let flow = IcrcFlow::new(port, SocketAddr::new(eid_ip(*to), ROCE_PORT));
        buffer[..bytes.len()].copy_from_slice(bytes);
        flow.seal(&mut buffer[..bytes.len()]).unwrap();
        Some(Transmit {
            to: *to,
            port: 0,
            source_port: ROCE_PORT,
            len: bytes.len(),
            size: bytes.len(),
        })
    });
    assert_eq!(sent, packets.len());
}

fn receive_all(udp: &mut Udp, count: usize) -> Vec<(SocketAddr, Vec<u8>)> {
    let mut got = Vec::new();
    for _ in 0..200 {
        udp.receive(|_, batch| got.extend(batch.map(|(from, bytes)| (from, bytes.to_vec()))));
        if got.len() >= count {
            break;
        }
        std::thread::yield_now();
    }
    got
}

#[test]
fn runs_of_any_shape_arrive_whole_in_order_and_with_their_icrc() {
    let (_a, a_eid, mut a) = node();
    let (_b, b_eid, mut b) = node();
    let (_c, c_eid, mut c) = node();
    let lens = [64, 64, 64, 32, 100, 100, 4000, 4000, 4000, 4000, 4001, 16, 16, 1084];
    let mut packets = Vec::new();
    for (i, len) in (0_u8..).zip(lens.iter().cycle().take(100)) {
        let to = if i % 17 == 3 { c_eid } else { b_eid };
        packets.push((to, packet(i, *len)));
    }
    send_all(&mut a, a_eid, &packets);
    for (eid, udp) in [(b_eid, &mut b), (c_eid, &mut c)] {
        let expected: Vec<_> = packets.iter().filter(|(to, _)| *to == eid).collect();
        let got = receive_all(udp, expected.len());
        assert_eq!(got.len(), expected.len());
        for ((from, bytes), (_, sent)) in got.iter().zip(&expected) {
            assert_eq!(*from, a.address());
            assert_eq!(bytes[..bytes.len() - 4], sent[..sent.len() - 4]);
            let flow = IcrcFlow::new(*from, udp.address());
            flow.verify(bytes).unwrap();
        }
    }
    let counts = a.counts();
    assert_eq!(counts.sent, 100);
    assert!(counts.send_calls < 90, "runs were not used: {counts:?}");
}

/// The core writes several packets at once: a run arrives whole, where the system splits it and where it does not.
#[test]
fn runs_of_the_core_arrive_whole_in_order_and_with_their_icrc() {
    let (_a, a_eid, mut a) = node();
    let (_b, b_eid, mut b) = node();
    let end = |eid| SocketAddr::new(eid_ip(eid), ROCE_PORT);
    let flow = IcrcFlow::new(end(a_eid), end(b_eid));
    // Bytes of all packets, and of each but the last.
    let runs = [(1000, 100), (1040, 100), (64, 64), (64, 64), (60_000, 1000), (16, 16)];
    for count_max in [a.run.count_max, 1, 3] {
        let (mut at, mut expected) = (0, Vec::new());
        let mut next = |buffer: &mut [u8]| {
            let (len, size) = *runs.get(at)?;
            if size != len && buffer.len() < RUN_BYTES {
                return None;
            }
            at += 1;
            for bytes in buffer[..len].chunks_mut(size) {
                bytes.copy_from_slice(&packet(u8::try_from(at).unwrap(), bytes.len()));
                flow.seal(bytes).unwrap();
                expected.push(bytes.to_vec());
            }
            Some(Transmit { to: b_eid, port: 0, source_port: ROCE_PORT, len, size })
        };
        a.run.count_max = count_max;
        let calls = a.counts().send_calls;
        let mut sent = 0;
        for _ in 0..runs.len() {
            sent += a.send(&mut next);
        }
        assert_eq!((at, sent), (runs.len(), expected.len()));
        let of_first = 10_u64.div_ceil(count_max as u64);
        assert!(a.counts().send_calls - calls >= of_first, "{count_max}");
        let got = receive_all(&mut b, expected.len());
        assert!(got.into_iter().map(|(_, bytes)| bytes).eq(expected));
    }
}

/// The system adds more to a datagram of IPv6 than to one of IPv4.
#[test]
fn each_datagram_of_ipv6_is_received() {
    let own = ip_eid(IpAddr::from(std::net::Ipv6Addr::LOCALHOST));
    let Ok(mut udp) = Udp::bind(own) else { return };
    let peer = UdpSocket::bind((eid_ip(own), 0)).unwrap();
    for mark in 0..4 {
        // Each is alone, as after a poll that found nothing.
        udp.receive(|_, _| ());
        peer.send_to(&packet(mark, 64), udp.address()).unwrap();
        let got = receive_all(&mut udp, 1);
        assert_eq!(got, [(peer.local_addr().unwrap(), packet(mark, 64))]);
    }
}

#[test]
fn the_port_is_held_and_its_owner_named() {
    let (_a, eid, udp) = node();
    let error = Udp::bind(eid).unwrap_err();
    assert!(error.to_string().contains(&std::process::id().to_string()), "{error}");
    drop(udp);
    assert!(Udp::bind(eid).is_ok());
}

#[test]
fn an_address_of_somewhere_else_is_an_error() {
    let eid = ip_eid(IpAddr::from([192, 0, 2, 1]));
    assert!(matches!(Udp::bind(eid), Err(UdpError::Os { .. })));
}

#[test]
fn no_node_there_costs_nothing_but_the_datagram() {
    let (_a, eid, mut a) = node();
    let unclaimed = Claim::random().unwrap().eid();
    for i in 0..10 {
        send_all(&mut a, eid, &[(unclaimed, packet(i, 100))]);
        assert_eq!(a.receive(|_, _| panic!("nothing was sent")), 0);
    }
}

/// How many of `count` packets that start like `bytes` reach `to`.
fn passed(from: &UdpSocket, to: &mut Udp, bytes: [u8; 8], len: usize, count: usize) -> usize {
    let mut packet = packet(0, len.max(8));
    packet[..8].copy_from_slice(&bytes);
    for _ in 0..count {
        from.send_to(&packet[..len], to.address()).unwrap();
    }
    receive_all(to, count).len()
}

#[test]
fn a_flood_is_dropped_before_it_takes_room_and_living_tps_are_not() {
    const COUNT: usize = 100;
    let (_node, _, mut udp) = node();
    let claim = Claim::random().unwrap();
    let peer = UdpSocket::bind((eid_ip(claim.eid()), ROCE_PORT)).unwrap();
    let stranger = UdpSocket::bind((eid_ip(claim.eid()), 0)).unwrap();
    let of_tp = |opcode: TpOpcode, tpn: u8| [opcode.code(), 1, 0xff, 0xff, 0x40, 0, 0, tpn];
    let (data, connect) = (TpOpcode::DataReq, TpOpcode::Connect);
    let tps = [TpOpcode::DataResp, TpOpcode::Ack, TpOpcode::Nak];
    let mut now = 1;
    // Nothing is dropped by the kernel without a flood: all is counted by the device.
    assert_eq!(udp.shield(now, 255, || panic!("no flood")), None);
    assert_eq!(passed(&stranger, &mut udp, of_tp(data, 9), 64, COUNT), COUNT);
    now += 20_000_000;
    assert_eq!(udp.shield(now, 300, || panic!("slow")), None);
    assert_eq!(udp.shield(now, 555, || panic!("one too few")), None);
    let until = udp.shield(now, 556, || vec![3, 7]).expect("a flood");
    let dropped = 0..=COUNT / 4;
    for (from, bytes, len) in [
        (&peer, of_tp(data, 9), 64),
        (&peer, of_tp(data, 3), 15),
        (&stranger, of_tp(data, 3), 64),
        (&stranger, of_tp(connect, 0), 124),
    ] {
        assert!(dropped.contains(&passed(from, &mut udp, bytes, len, COUNT)), "{bytes:?} {len}");
    }
    for opcode in tps {
        assert!(dropped.contains(&passed(&peer, &mut udp, of_tp(opcode, 9), 64, COUNT)));
        assert_eq!(passed(&peer, &mut udp, of_tp(opcode, 7), 64, COUNT), COUNT);
    }
    assert_eq!(passed(&peer, &mut udp, of_tp(data, 3), 16, COUNT), COUNT);
    assert_eq!(passed(&peer, &mut udp, of_tp(connect, 0), 124, COUNT), COUNT);
    // Some pass, so that a peer is notified that its TP does not live.
    assert!(passed(&peer, &mut udp, of_tp(data, 9), 64, 20 * COUNT) > 0);
    // A new TP.
    assert_eq!(udp.shield(until - 1, 600, || vec![3, 9]), Some(until));
    assert_eq!(passed(&peer, &mut udp, of_tp(data, 9), 64, COUNT), COUNT);
    assert!(dropped.contains(&passed(&peer, &mut udp, of_tp(data, 7), 64, COUNT)));
    // It ends by itself.
    assert_eq!(udp.shield(until, 600, || panic!("over")), None);
    assert_eq!(passed(&stranger, &mut udp, of_tp(data, 7), 64, COUNT), COUNT);
}
