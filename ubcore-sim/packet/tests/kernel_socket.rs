//! What the kernel really puts into the IP header of a UDP socket's packets is what the ICRC rule
//! assumes: sent through loopback, captured by a packet socket, verified with the captured header.
//! Needs CAP_NET_RAW; skipped without it.

use std::io::{self, Read};
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use quinn_udp::{Transmit, UdpSocketState};
use socket2::{Domain, Protocol, Socket, Type};
use urma_packet::frame::UdpDatagram;
use urma_packet::*;

/// ETH_P_ALL in network order, as packet sockets want it.
const ALL_PROTOCOLS: i32 = 0x0300;
/// Frames looked at before giving up: loopback may carry others' traffic.
const FRAMES_MAX: usize = 2_000;

fn capture_socket() -> Option<Socket> {
    match Socket::new(Domain::PACKET, Type::RAW, Some(Protocol::from(ALL_PROTOCOLS))) {
        Ok(socket) => {
            socket.set_read_timeout(Some(Duration::from_secs(2))).expect("a timeout can be set");
            Some(socket)
        }
        Err(error) => {
            urma_skip::skip(format_args!("no packet socket: {error}"));
            None
        }
    }
}

/// The first captured frame between the two ends.
fn captured(socket: &mut Socket, source: SocketAddr, dest: SocketAddr) -> io::Result<Vec<u8>> {
    let mut buf = vec![0; 1 << 16];
    for _ in 0..FRAMES_MAX {
        let len = socket.read(&mut buf)?;
        let wanted = |found: UdpDatagram<'_>| (found.source, found.dest) == (source, dest);
        if UdpDatagram::parse(&buf[..len]).is_ok_and(wanted) {
            return Ok(buf[..len].to_vec());
        }
    }
    Err(io::ErrorKind::TimedOut.into())
}

fn sealed(source: SocketAddr, dest: SocketAddr) -> Vec<u8> {
    let close = Close { reason: CloseReason::Idle, source_tpn: Tpn::from_low_bits(5), key: 6 };
    let header = PacketHeader::new(Tpn::from_low_bits(7), Psn::new(0), Body::Close(close));
    let mut packet = vec![0; header.packet_len(0)];
    header.emit(&[], &IcrcFlow::new(source, dest), &mut packet).expect("emits");
    packet
}

/// Sends through a socket set up as the device does it, and gives the frame that left.
fn sent(ip: &str) -> Option<(Vec<u8>, Vec<u8>)> {
    let any: SocketAddr = format!("{ip}:0").parse().expect("an address");
    let (Ok(from), Ok(to)) = (UdpSocket::bind(any), UdpSocket::bind(any)) else {
        urma_skip::skip(format_args!("{ip} cannot be bound"));
        return None;
    };
    let mut capture = capture_socket()?;
    let source = from.local_addr().expect("bound");
    let dest = to.local_addr().expect("bound");
    // Sets IP_PMTUDISC_PROBE (and its IPv6 twin), and leaves the socket unconnected.
    let state = UdpSocketState::new((&from).into()).expect("options can be set");
    let packet = sealed(source, dest);
    let transmit = Transmit {
        destination: dest,
        ecn: None,
        contents: &packet,
        segment_size: None,
        src_ip: None,
    };
    state.try_send((&from).into(), &transmit).expect("loopback takes it");
    let frame = captured(&mut capture, source, dest).expect("loopback shows it");
    Some((frame, packet))
}

#[test]
fn ipv4_headers_are_as_the_rule_says() {
    let Some((frame, packet)) = sent("127.0.0.1") else { return };
    let datagram = UdpDatagram::parse(&frame).expect("parsed before");
    assert_eq!((datagram.ip_id, datagram.fragment), (0, 0x4000));
    assert_eq!(datagram.payload, packet);
    assert!(Packet::open(datagram.payload, &datagram.flow).is_ok());
}

#[test]
fn ipv6_headers_are_as_the_rule_says() {
    let Some((frame, packet)) = sent("[::1]") else { return };
    let datagram = UdpDatagram::parse(&frame).expect("parsed before");
    assert_eq!(datagram.payload, packet);
    assert!(Packet::open(datagram.payload, &datagram.flow).is_ok());
}
