//! The UDP socket: sent, received, refused.

use std::net::IpAddr;

use super::*;
use crate::host::{claim::Claim, ip_eid};
use crate::ports::{RUN_BYTES, RUN_ID_MAX};

fn node() -> (Claim, RawEid, Udp) {
    node_with(UdpOffload::On)
}

fn node_with(offload: UdpOffload) -> (Claim, RawEid, Udp) {
    let claim = Claim::random().unwrap();
    let eid = claim.eid();
    let udp = Udp::bind(eid, offload).unwrap();
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

/// Whatever of cutting and joining each side does.
#[test]
fn runs_of_any_shape_arrive_whole_in_order_and_with_their_icrc() {
    let all = [UdpOffload::On, UdpOffload::Off];
    for (of_sender, of_receivers) in all.into_iter().flat_map(|a| all.map(|b| (a, b))) {
        let (_a, a_eid, mut a) = node_with(of_sender);
        let (_b, b_eid, mut b) = node_with(of_receivers);
        let (_c, c_eid, mut c) = node_with(of_receivers);
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
                let front = IcrcFlow::new(*from, udp.address()).of_len(bytes.len()).unwrap();
                front.verify_id_up_to(bytes, RUN_ID_MAX).unwrap();
                if of_sender == of_receivers {
                    front.verify(bytes).unwrap();
                }
            }
        }
        let counts = a.counts();
        assert_eq!(counts.sent, 100);
        let calls = if of_sender == UdpOffload::On { 60 } else { 8 };
        assert!(counts.send_calls < calls, "{of_sender:?}: packets went alone: {counts:?}");
    }
}

/// A kernel that refuses to cut a run gets its packets one by one, and no run any more.
#[test]
fn runs_that_the_kernel_refuses_arrive_whole_and_with_their_icrc() {
    const COUNT: usize = 200;
    let (_a, a_eid, mut a) = node();
    let (_b, b_eid, mut b) = node();
    let end = |eid| SocketAddr::new(eid_ip(eid), ROCE_PORT);
    let flow = IcrcFlow::new(end(a_eid), end(b_eid));
    // More packets than Linux takes in a run: an invalid argument, as where nothing is cut.
    a.cut_max = COUNT;
    for _ in 0..2 {
        let (mut left, mut expected) = (1, Vec::new());
        a.send(|buffer| {
            left = i32::checked_sub(left, 1).filter(|left| *left >= 0)?;
            for (bytes, mark) in buffer[..COUNT * 16].chunks_mut(16).zip(0..) {
                bytes.copy_from_slice(&packet(mark, 16));
                flow.seal(bytes).unwrap();
                expected.push(bytes.to_vec());
            }
            let (to, source_port) = (b_eid, ROCE_PORT);
            Some(Transmit { to, port: 0, source_port, len: COUNT * 16, size: 16 })
        });
        let got = receive_all(&mut b, COUNT);
        assert!(got.into_iter().map(|(_, bytes)| bytes).eq(expected));
        assert_eq!((a.cut_max, a.counts().send_dropped), (1, 0));
    }
    assert_eq!(a.counts().sent, 2 * COUNT as u64);
    assert_eq!(a.counts().send_calls, 2 * COUNT.div_ceil(32) as u64);
}

/// The system refuses two packets of a batch: the others arrive, and the one that is too long is named.
#[test]
fn a_packet_that_is_refused_takes_no_other_one_with_it() {
    for offload in [UdpOffload::On, UdpOffload::Off] {
        let (_a, _, mut a) = node_with(offload);
        let (_b, b_eid, mut b) = node();
        let (_c, c_eid, mut c) = node();
        // This socket may not broadcast, and no packet of IPv4 has 65,530 bytes.
        let all = ip_eid(IpAddr::from([127, 255, 255, 255]));
        let first = [(b_eid, 100), (c_eid, 60), (all, 70), (c_eid, 80), (b_eid, 90)];
        let mut waiting = first.into_iter().chain([(b_eid, 65_530), (c_eid, 50)]);
        let sent = a.send(|buffer| {
            let (to, len) = waiting.next()?;
            buffer[..len].copy_from_slice(&packet(1, len));
            Some(Transmit { to, port: 0, source_port: ROCE_PORT, len, size: len })
        });
        assert_eq!(sent, 7);
        let lens_of = |udp, count| -> Vec<usize> {
            receive_all(udp, count).iter().map(|(_, bytes)| bytes.len()).collect()
        };
        assert_eq!((lens_of(&mut b, 2), lens_of(&mut c, 3)), (vec![100, 90], vec![60, 80, 50]));
        let counts = a.counts();
        assert_eq!((counts.sent, counts.send_dropped, counts.send_calls), (5, 2, 5));
        let refused = DatagramLink::poll_too_long(&mut a);
        assert_eq!(refused.map(|(to, _)| to), Some(b_eid));
        assert_eq!(DatagramLink::poll_too_long(&mut a), None);
    }
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
    for count_max in [a.cut_max, 1, 3] {
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
        a.cut_max = count_max;
        let calls = a.counts().send_calls;
        let mut sent = 0;
        for _ in 0..runs.len() {
            sent += a.send(&mut next);
        }
        assert_eq!((at, sent), (runs.len(), expected.len()));
        let of_first = if count_max == 1 { 1 } else { 10_u64.div_ceil(count_max as u64) };
        assert!(a.counts().send_calls - calls >= of_first, "{count_max}");
        let got = receive_all(&mut b, expected.len());
        assert!(got.into_iter().map(|(_, bytes)| bytes).eq(expected));
    }
}

/// The system adds more to a datagram of IPv6 than to one of IPv4.
#[test]
fn each_datagram_of_ipv6_is_received() {
    let own = ip_eid(IpAddr::from(std::net::Ipv6Addr::LOCALHOST));
    let Ok(mut udp) = Udp::bind(own, UdpOffload::On) else { return };
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
    let error = Udp::bind(eid, UdpOffload::On).unwrap_err();
    assert!(error.to_string().contains(&std::process::id().to_string()), "{error}");
    drop(udp);
    assert!(Udp::bind(eid, UdpOffload::On).is_ok());
}

#[test]
fn an_address_of_somewhere_else_is_an_error() {
    let eid = ip_eid(IpAddr::from([192, 0, 2, 1]));
    assert!(matches!(Udp::bind(eid, UdpOffload::On), Err(UdpError::Os { .. })));
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
