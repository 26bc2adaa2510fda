//! Properties of every URMA packet: it goes round, it is refused when cut or changed, and no bytes
//! at all make a parser panic.

mod common;
#[path = "../../../tests/fuzz/src/packet.rs"]
mod fuzz;

use std::net::SocketAddr;

use common::{packet, pattern, request, response};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use urma_packet::frame::{self, FRONT_MAX, UdpDatagram};
use urma_packet::roce::RocePacket;
use urma_packet::*;

fn ends(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

fn flow_v4() -> IcrcFlow {
    IcrcFlow::new(ends("10.0.0.1:49152"), ends("10.0.0.2:4791"))
}

fn emitted(header: &PacketHeader, payload: &[u8]) -> Vec<u8> {
    let mut buf = vec![0xaa; header.packet_len(payload.len())];
    let len = header.emit(payload, &flow_v4(), &mut buf).expect("valid packets emit");
    assert_eq!(len, buf.len());
    buf
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn packets_go_round((header, len) in packet()) {
        let payload = pattern(len);
        let bytes = emitted(&header, &payload);
        prop_assert!(header.header_len() <= HEADERS_MAX.max(BTH_LEN + HandshakeBody::LEN));
        let found = Packet::open(&bytes, &flow_v4()).expect("valid packets parse");
        prop_assert_eq!(found.header, header);
        prop_assert_eq!(found.payload, &payload[..]);
    }

    #[test]
    fn requests_go_round_on_a_ring((header, len) in request()) {
        let mut buf = vec![0; header.header_len()];
        prop_assert_eq!(header.emit(&mut buf), Ok(buf.len()));
        buf.extend(pattern(len));
        let found = Transaction::parse(&buf).expect("valid");
        prop_assert_eq!(found.header, TransactionHeader::Request(header));
        prop_assert_eq!(found.header.check_piece(found.payload.len()), Ok(()));
    }

    #[test]
    fn responses_go_round_on_a_ring((header, len) in response()) {
        let mut buf = vec![0; header.header_len()];
        prop_assert_eq!(header.emit(&mut buf), Ok(buf.len()));
        buf.extend(pattern(len));
        let found = Transaction::parse(&buf).expect("valid");
        prop_assert_eq!(found.header, TransactionHeader::Response(header));
        prop_assert_eq!(found.header.check_piece(found.payload.len()), Ok(()));
    }

    #[test]
    fn a_cut_packet_is_refused((header, len) in packet(), at in any::<Index>()) {
        let bytes = emitted(&header, &pattern(len));
        let cut = &bytes[..at.index(bytes.len())];
        prop_assert!(Packet::open(cut, &flow_v4()).is_err());
        // Without the ICRC, what is cut inside the headers is still seen as such.
        if cut.len() < header.header_len() + ICRC_LEN {
            let truncated = matches!(Packet::parse(cut), Err(PacketError::Truncated { .. }));
            prop_assert!(truncated);
        }
    }

    #[test]
    fn a_short_buffer_is_refused((header, len) in packet(), at in any::<Index>()) {
        let total = header.packet_len(len);
        let mut buf = vec![0; at.index(total)];
        let refused = header.emit(&pattern(len), &flow_v4(), &mut buf);
        prop_assert_eq!(refused, Err(PacketError::Truncated { needed: total, have: buf.len() }));
    }

    #[test]
    fn a_changed_bit_is_refused((header, len) in packet(), at in any::<Index>(), bit in 0..8_u32) {
        let mut bytes = emitted(&header, &pattern(len));
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        let icrc = flow_v4().verify(&bytes);
        // Byte 4 of the BTH is masked; there the two marks may change and the rest is reserved.
        prop_assert_eq!(icrc.is_ok(), at == 4);
        if at == 4 && bit < 6 {
            let refused = Packet::parse(&bytes).map_err(|error| error.reason());
            prop_assert_eq!(refused, Err("reserved"));
        }
    }

    #[test]
    fn an_icrc_in_pieces_is_the_same((header, len) in packet(), at in any::<Index>()) {
        let bytes = emitted(&header, &pattern(len));
        let covered = bytes.len() - ICRC_LEN;
        let at = BTH_LEN + at.index(covered - BTH_LEN + 1);
        let mut digest = flow_v4().start(bytes.len(), &bytes[..at]).expect("a BTH");
        digest.update(&bytes[at..covered]);
        prop_assert_eq!(&digest.finish().to_le_bytes()[..], &bytes[covered..]);
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in vec(any::<u8>(), 0..256)) {
        fuzz::fuzz_packet(&bytes);
    }

    #[test]
    fn nearly_valid_bytes_never_panic(
        (header, len) in packet(),
        changes in vec((any::<Index>(), any::<u8>()), 0..4),
        cut in any::<Index>(),
    ) {
        let mut bytes = emitted(&header, &pattern(len));
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        fuzz::fuzz_packet(&bytes);
        fuzz::fuzz_packet(&bytes[..cut.index(bytes.len())]);
        fuzz::fuzz_packet(bytes.get(BTH_LEN..).unwrap_or_default());
    }
}

/// A check that cannot fail proves nothing: a parser that passes over reserved bits is caught.
#[test]
fn a_parser_that_ignores_reserved_bits_is_caught() {
    let header = PacketHeader::new(
        Tpn::from_low_bits(7),
        Psn::new(9),
        Body::Ack(Ack {
            window: 64,
            congestion: false,
            trigger: Psn::new(8),
            received: SackBitmap::from_words(&[5]).expect("one word"),
        }),
    );
    let good = emitted(&header, &[]);
    // Byte 8 of the BTH: AckReq, then seven reserved bits.
    let is_caught = |byte: u8| {
        let mut bytes = good.clone();
        bytes[8] |= byte;
        let mut masked = bytes.clone();
        masked[8] &= 0x80;
        let careless = Packet::parse(&masked).expect("nothing of it is left");
        std::panic::catch_unwind(|| fuzz::emits_again(&bytes, &careless)).is_err()
    };
    assert!(!is_caught(0), "the real parser keeps its promise");
    assert!((0..7).all(|bit| is_caught(1 << bit)));
}

/// Every bit of a whole frame, over both IP versions: exactly the masked ones may change.
#[test]
fn only_masked_bits_may_change() {
    let header = PacketHeader::new(
        Tpn::from_low_bits(7),
        Psn::new(9),
        Body::Ack(Ack {
            window: 64,
            congestion: false,
            trigger: Psn::new(8),
            received: SackBitmap::from_words(&[5]).expect("one word"),
        }),
    );
    let both = [
        ("10.0.0.1:49152", "10.0.0.2:4791", 20, vec![1, 8, 10, 11, 26, 27, 32]),
        ("[fd00::1]:49152", "[fd00::2]:4791", 40, vec![1, 2, 3, 7, 46, 47, 52]),
    ];
    for (source, dest, ip_len, masked) in both {
        let (source, dest) = (ends(source), ends(dest));
        let mut packet = [0; 64];
        let len = header.emit(&[], &IcrcFlow::new(source, dest), &mut packet).expect("emits");
        let mut buf = [0; 64 + FRONT_MAX];
        let macs = [[2; 6], [4; 6]];
        let total = frame::emit(macs, source, dest, &packet[..len], &mut buf).expect("fits");
        for bit in 14 * 8..total * 8 {
            let mut changed = buf;
            changed[bit / 8] ^= 0x80 >> (bit % 8);
            let at = bit / 8 - 14;
            let verified = UdpDatagram::parse(&changed[..total])
                .and_then(|datagram| datagram.flow.verify(datagram.payload));
            // The low half of IPv6's first byte is part of the traffic class.
            let may = masked.contains(&at) || (ip_len == 40 && at == 0 && bit % 8 >= 4);
            assert_eq!(verified.is_ok(), may, "byte {at} of the IP packet, bit {}", bit % 8);
        }
    }
}

#[test]
fn the_flow_of_a_socket_is_that_of_its_frames() {
    for (source, dest) in [("10.0.0.1:49152", "10.0.0.2:4791"), ("[fd00::1]:1", "[fd00::2]:4791")] {
        let (source, dest) = (ends(source), ends(dest));
        let mut buf = [0; 64 + FRONT_MAX];
        let total = frame::emit([[0; 6]; 2], source, dest, &[0; 16], &mut buf).expect("fits");
        let datagram = UdpDatagram::parse(&buf[..total]).expect("our own frame");
        let flow = IcrcFlow::new(source, dest);
        // Lengths are filled per packet, so the two are compared by what they compute.
        let mut packet = [1; 16];
        flow.seal(&mut packet).expect("long enough");
        assert_eq!(datagram.flow.verify(&packet), Ok(()));
        assert_eq!((datagram.source, datagram.dest), (source, dest));
    }
}

#[test]
fn mapped_addresses_travel_as_ipv4() {
    let mapped = IcrcFlow::new(ends("[::ffff:10.0.0.1]:49152"), ends("[::ffff:10.0.0.2]:4791"));
    assert_eq!(mapped, flow_v4());
}

#[test]
fn a_packet_with_any_identification_is_found_right() {
    let v6 = IcrcFlow::new(ends("[fd00::1]:1"), ends("[fd00::2]:4791"));
    assert_eq!(v6.with_ip_id(5), v6);
    for len in [16, 17, 60, 1084, 4156, 65_507] {
        let mut packet = vec![3; len];
        for id in [0, 1, 5, 0x1234, 0x8000, 0xff00, u16::MAX] {
            flow_v4().with_ip_id(id).seal(&mut packet).expect("long enough");
            assert_eq!(flow_v4().verify(&packet).is_ok(), id == 0);
            assert_eq!(flow_v4().verify_any_id(&packet), Ok(()), "{len} bytes, {id}");
            for at in [0, len / 2, len - 1] {
                packet[at] ^= 0x10;
                assert!(flow_v4().verify_any_id(&packet).is_err(), "byte {at} of {len}, {id}");
                packet[at] ^= 0x10;
            }
        }
        v6.seal(&mut packet).expect("long enough");
        assert_eq!(v6.verify_any_id(&packet), Ok(()));
        packet[12] ^= 1;
        assert!(v6.verify_any_id(&packet).is_err());
    }
}

#[test]
fn a_packet_of_a_run_is_found_right_and_no_other_one() {
    for len in [16, 17, 60, 1084, 4156] {
        let mut packet = vec![3; len];
        let front = flow_v4().of_len(len).expect("short enough");
        for id in [0, 1, 5, 63, 64, 0x0100, 0x3f00, u16::MAX] {
            flow_v4().with_ip_id(id).seal(&mut packet).expect("long enough");
            assert_eq!(front.verify_id_up_to(&packet, 63).is_ok(), id < 64, "{len} bytes, {id}");
            packet[len / 2] ^= 0x10;
            assert!(front.verify_id_up_to(&packet, 63).is_err(), "{len} bytes, {id}");
            packet[len / 2] ^= 0x10;
        }
    }
}

/// Over either IP version a packet has at least a BTH and an ICRC, and at most what one IPv4 packet
/// holds.
#[test]
fn packets_have_a_shortest_and_a_longest_length() {
    let v6 = IcrcFlow::new(ends("[fd00::1]:1"), ends("[fd00::2]:4791"));
    for flow in [flow_v4(), v6] {
        let mut longest = vec![0; 65_535 - 20 - 8 + 1];
        let found = longest.len();
        let too_long = PacketError::Length { expected: found - 1, found };
        assert_eq!(flow.seal(&mut longest), Err(too_long));
        assert_eq!(flow.verify(&longest), Err(too_long));
        for found in [found, usize::MAX] {
            let too_long = PacketError::Length { expected: 65_507, found };
            assert_eq!(flow.start(found, &[0; BTH_LEN]).map(|_| ()), Err(too_long));
        }
        longest.pop();
        let mut shortest = vec![0; BTH_LEN + ICRC_LEN];
        for packet in [&mut longest, &mut shortest] {
            assert_eq!(flow.seal(packet), Ok(()));
            assert_eq!(flow.verify(packet), Ok(()));
        }
        for have in 0..shortest.len() {
            let cut = &mut shortest[..have];
            let too_short = PacketError::Truncated { needed: 16, have };
            assert_eq!(flow.seal(cut), Err(too_short));
            assert_eq!(flow.verify(cut), Err(too_short));
        }
        let too_short = PacketError::Truncated { needed: 12, have: 11 };
        assert_eq!(flow.start(16, &[0; BTH_LEN - 1]).map(|_| ()), Err(too_short));
    }
}

#[test]
fn a_packet_that_ends_in_its_icrc_is_truncated() {
    let header = PacketHeader::new(
        Tpn::from_low_bits(7),
        Psn::new(0),
        Body::Close(Close { reason: CloseReason::Idle, source_tpn: Tpn::from_low_bits(8), key: 9 }),
    );
    let urma = emitted(&header, &[]);
    let mut roce = urma.clone();
    // SEND_ONLY of the standard family, version 0.
    roce[..2].fill(0);
    roce[0] = 4;
    for have in 0..BTH_LEN + ICRC_LEN {
        let needed = if have < BTH_LEN { BTH_LEN } else { BTH_LEN + ICRC_LEN };
        let truncated = PacketError::Truncated { needed, have };
        assert_eq!(Packet::parse(&urma[..have]), Err(truncated));
        assert_eq!(RocePacket::parse(&roce[..have]), Err(truncated));
    }
    assert!(RocePacket::parse(&roce[..BTH_LEN + ICRC_LEN]).is_ok());
}
