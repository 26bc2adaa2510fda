//! Tests of the URMA packets: rules at their limit and one beyond, each with its named reason.

use super::*;
use crate::{JettyId, Mtu, PacketError, Psn, TokenId, TokenValue, Tpn};

fn request(op: RequestOp, length: u32) -> RequestHeader {
    RequestHeader {
        flags: RequestFlags::ONLY,
        order: OrderTag::Relaxed,
        tassn: 1,
        initiator: Initiator { kind: InitiatorKind::Jfs, id: JettyId::MAX },
        target: Some(Target { kind: TargetKind::JettyGroup, id: JettyId::MAX, hint: 9 }),
        token: Some(TokenValue(4)),
        access: MemoryAccess { address: 0, token_id: TokenId::default(), length },
        op,
    }
}

fn reason<T>(result: Result<T, PacketError>) -> Option<&'static str> {
    result.err().map(|error| error.reason())
}

fn refused(header: &RequestHeader) -> Option<&'static str> {
    reason(header.emit(&mut [0; 128]))
}

fn bytes_of(header: &RequestHeader) -> Vec<u8> {
    let mut buf = vec![0; header.header_len()];
    header.emit(&mut buf).expect("valid");
    buf
}

fn packet(body: Body) -> PacketHeader {
    PacketHeader::new(Tpn::from_low_bits(1), Psn::new(0), body)
}

const IMM: WriteImm = WriteImm { imm: 0x0102_0304_0506_0708, token: Some(TokenValue(0xaabb_ccdd)) };

#[test]
fn a_token_that_is_not_shown_is_zero() {
    let shown = bytes_of(&request(RequestOp::WriteImm(IMM), 0));
    let at = shown.len() - 8;
    let mut bytes = shown.clone();
    bytes[at] = 0;
    assert_eq!(reason(RequestHeader::parse(&bytes)), Some("reserved"), "a token without TT_EN");
    bytes[at + 4..].fill(0);
    let none = RequestOp::WriteImm(WriteImm { token: None, ..IMM });
    assert_eq!(RequestHeader::parse(&bytes).map(|(header, _)| header.op), Ok(none));
    bytes[at] = 0x80;
    let zero = RequestOp::WriteImm(WriteImm { token: Some(TokenValue(0)), ..IMM });
    assert_eq!(RequestHeader::parse(&bytes).map(|(header, _)| header.op), Ok(zero));
    for bit in 0..31 {
        let mut bytes = shown.clone();
        bytes[at + 3 - bit / 8] |= 1 << (bit % 8);
        assert_eq!(reason(RequestHeader::parse(&bytes)), Some("reserved"), "bit {bit}");
    }
}

#[test]
fn each_bit_of_a_request_stands_where_the_specification_says() {
    let mut header = request(RequestOp::WriteImm(IMM), 5);
    header.flags |= RequestFlags::SOLICITED | RequestFlags::FENCE | RequestFlags::COMP_ORDER;
    header.access.address = 0x1122_3344_5566_7788;
    header.access.token_id = TokenId::MAX;
    let expected = [
        0x04, 0x0a, 0, 1, 0x5c, 0x00, 0, 0, 0x0f, 0xff, 0xff, 0xe0, 0, 0, 0, 0, // BTAH
        0x09, 0x8f, 0xff, 0xff, // MTETAH
        0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0, 0x0f, 0xff, 0xff, 0, 0, 0,
        5, // MAETAH
        0, 0, 0, 4, // TVETAH
        1, 2, 3, 4, 5, 6, 7, 8, 0x80, 0, 0, 0, 0xaa, 0xbb, 0xcc, 0xdd, // WIMMETH
    ];
    assert_eq!(bytes_of(&header), expected);
    assert_eq!(RequestHeader::parse(&expected), Ok((header, &[][..])));
}

#[test]
fn reserved_bits_of_a_request_are_refused() {
    let good = bytes_of(&request(RequestOp::Write, 0));
    let reserved = [(1, 0x34), (4, 0x01), (5, 0x9f), (6, 0xff), (7, 0xff), (11, 0x1f), (12, 0xff)];
    for (at, mask) in reserved.into_iter().chain([(13, 0xff), (14, 0xff), (15, 0xff), (17, 0x30)]) {
        for bit in (0..8).map(|bit| 1_u8 << bit).filter(|bit| mask & bit != 0) {
            let mut bytes = good.clone();
            bytes[at] |= bit;
            assert_eq!(reason(RequestHeader::parse(&bytes)), Some("reserved"), "byte {at}");
        }
    }
    let mut bytes = good.clone();
    bytes[1] |= 0xc0;
    assert_eq!(RequestHeader::parse(&bytes), Err(PacketError::Version(3)));
    bytes[1] ^= 0x80;
    assert_eq!(RequestHeader::parse(&bytes), Err(PacketError::Version(1)));
    let mut bytes = good;
    bytes[4] |= 0x30;
    assert_eq!(reason(RequestHeader::parse(&bytes)), Some("field"), "order tag 3");
}

#[test]
fn opcodes_outside_the_table_are_refused() {
    let good = bytes_of(&request(RequestOp::Write, 0));
    for code in 0..=u8::MAX {
        let mut bytes = good.clone();
        bytes[0] = code;
        let known = TaOpcode::from_code(code).is_ok() || AtomicOp::from_code(code).is_ok();
        let is_opcode = RequestHeader::parse(&bytes) == Err(PacketError::Opcode(code));
        assert_eq!(is_opcode, !known, "{code:#x}");
    }
}

#[test]
fn transport_opcodes_are_those_of_the_table() {
    for code in 0..=u8::MAX {
        let known = (0xc0..=0xcf).contains(&code);
        let found = TpOpcode::from_code(code).map(TpOpcode::code);
        assert_eq!(found, if known { Ok(code) } else { Err(PacketError::Opcode(code)) });
    }
}

#[test]
fn a_message_to_no_jetty_is_refused() {
    for op in [RequestOp::Send, RequestOp::SendImm(1), RequestOp::WriteImm(IMM)] {
        let header = RequestHeader { target: None, ..request(op, 0) };
        assert_eq!(refused(&header), Some("field"));
    }
    assert_eq!(refused(&RequestHeader { target: None, ..request(RequestOp::Write, 0) }), None);
}

#[test]
fn sends_say_where_they_are_in_the_message() {
    let mut header = request(RequestOp::Send, 600);
    header.access.address = 256;
    assert_eq!(refused(&header), Some("field"), "first at an offset");
    header.flags = RequestFlags::empty();
    assert_eq!(refused(&header), None);
    assert_eq!(header.check_packet(256), Ok(()));
    assert_eq!(reason(header.check_piece(344)), Some("length"), "nothing left for the last");
    assert_eq!(header.check_piece(343), Ok(()));
    header.flags = RequestFlags::LAST;
    assert_eq!(header.check_packet(344), Ok(()));
    assert_eq!(reason(header.check_packet(343)), Some("length"));
    header.access.address = 600;
    assert_eq!(refused(&header), Some("field"), "beyond the end");
}

#[test]
fn writes_of_one_packet_have_their_whole_length() {
    let header = request(RequestOp::Write, 8192);
    assert_eq!(header.check_packet(8192), Ok(()));
    assert_eq!(reason(header.check_packet(8191)), Some("length"));
    let header = request(RequestOp::Write, 8193);
    assert_eq!(reason(header.check_packet(8193)), Some("length"), "beyond the largest MTU");
    assert_eq!(header.check_piece(8193), Ok(()), "but a ring may");
    let header = RequestHeader { flags: RequestFlags::FIRST, ..header };
    assert_eq!(header.check_packet(Mtu::B8192.bytes()), Ok(()));
    assert_eq!(header.check_packet(1392), Ok(()), "any multiple of four may be a path MTU");
    assert_eq!(reason(header.check_packet(8001)), Some("length"), "not a path MTU");
    assert_eq!(reason(header.check_packet(252)), Some("length"), "less than every path passes");
}

#[test]
fn a_message_breaks_off_with_an_empty_packet_between_its_ends() {
    for (op, address) in [(RequestOp::Send, 256), (RequestOp::Write, 0)] {
        let mut header = request(op, 600);
        header.access.address = address;
        header.flags = RequestFlags::empty();
        assert_eq!(header.check_packet(0), Ok(()));
        assert!(header.breaks_off(0) && !header.breaks_off(256));
        for flag in [RequestFlags::FIRST, RequestFlags::LAST] {
            let header = RequestHeader { flags: flag, ..header };
            assert!(!header.breaks_off(0));
            let refused = flag == RequestFlags::FIRST || op == RequestOp::Send;
            assert_eq!(reason(header.check_packet(0)), refused.then_some("length"));
        }
    }
}

#[test]
fn requests_without_payload_have_none() {
    for op in [RequestOp::Read, RequestOp::FlushDma] {
        assert_eq!(request(op, 10).check_packet(0), Ok(()));
        assert_eq!(reason(request(op, 10).check_packet(1)), Some("length"));
        let header = RequestHeader { flags: RequestFlags::FIRST, ..request(op, 10) };
        assert_eq!(refused(&header), Some("field"));
    }
}

#[test]
fn atomics_have_operands_of_their_size() {
    let at = |op, size, operand, compare, length| {
        let operands = AtomicOperands { size, operand, compare };
        refused(&request(RequestOp::Atomic(op, operands), length))
    };
    use AtomicOp::{CompareSwap, FetchAdd, Load};
    use OperandSize::{B4, B8, B16};
    assert_eq!(at(CompareSwap, B4, 0xffff_ffff, 1, 4), None);
    assert_eq!(at(CompareSwap, B4, 0x1_0000_0000, 1, 4), Some("field"));
    assert_eq!(at(CompareSwap, B8, 1, 1 << 64, 8), Some("field"));
    assert_eq!(at(CompareSwap, B16, u128::MAX, u128::MAX, 16), None);
    assert_eq!(at(FetchAdd, B8, 1, 0, 4), Some("field"), "length is the size");
    assert_eq!(at(FetchAdd, B8, 1, 1, 8), Some("field"), "nothing to compare");
    assert_eq!(at(Load, B8, 1, 0, 8), Some("field"), "nothing to store");
}

#[test]
fn datagrams_and_only_they_go_outside_a_tp() {
    let ends = UmHeader { source_eid: [1; 16], dest_eid: [2; 16], source_uasid: 0, dest_uasid: 0 };
    let plain = request(RequestOp::Send, 0);
    let flags = plain.flags | RequestFlags::DATAGRAM | RequestFlags::NO_TAACK;
    let datagram = RequestHeader { flags, ..plain };
    let emit = |dest, body| {
        let header = PacketHeader::new(Tpn::from_low_bits(dest), Psn::new(0), body);
        reason(header.emit_headers(0, &mut [0; 256]))
    };
    assert_eq!(emit(0, Body::UmSend(ends, datagram)), None);
    assert_eq!(emit(1, Body::UmSend(ends, datagram)), Some("field"));
    assert_eq!(emit(0, Body::UmSend(ends, plain)), Some("field"));
    assert_eq!(emit(1, Body::Request(datagram)), Some("field"));
    assert_eq!(emit(0, Body::Request(plain)), Some("field"));
    for missing in [RequestFlags::FIRST, RequestFlags::LAST, RequestFlags::NO_TAACK] {
        let part = RequestHeader { flags: flags - missing, ..datagram };
        assert_eq!(refused(&part), Some("field"), "a datagram is a message, and not answered");
    }
    let write = RequestHeader { op: RequestOp::Write, ..datagram };
    assert_eq!(refused(&write), Some("field"), "a datagram is a send");
}

#[test]
fn only_success_brings_data() {
    let plain = request(RequestOp::Read, 8);
    let body = ResponseBody::ReadData { offset: 0, length: 8 };
    let good = ResponseHeader { body, ..ResponseHeader::ack(&plain, ResponseStatus::Ack) };
    assert_eq!(reason(good.emit(&mut [0; 64])), None);
    let bad = ResponseHeader { status: ResponseStatus::AccessAbort, ..good };
    assert_eq!(reason(bad.emit(&mut [0; 64])), Some("field"));
    let body = ResponseBody::ReadData { offset: 8, length: 8 };
    let beyond = ResponseHeader { body, ..good };
    assert_eq!(reason(beyond.emit(&mut [0; 64])), Some("field"));
    let body = ResponseBody::ReadData { offset: 0, length: 0 };
    assert_eq!(reason(ResponseHeader { body, ..good }.emit(&mut [0; 64])), None, "of nothing");
    let body = ResponseBody::ReadData { offset: 5, length: 0 };
    let beyond = ResponseHeader { body, ..good };
    assert_eq!(reason(beyond.emit(&mut [0; 64])), Some("field"));
}

#[test]
fn acknowledgements_join_those_before_them_in_their_sequence() {
    let write = request(RequestOp::Write, 8);
    let ack = |tassn| ResponseHeader { tassn, ..ResponseHeader::ack(&write, ResponseStatus::Ack) };
    let mut joined = ack(0xfffe);
    let other = ResponseHeader { target: None, ..ack(0xffff) };
    let failed = ResponseHeader { status: ResponseStatus::AccessAbort, ..ack(0xffff) };
    let data = ResponseBody::ReadData { offset: 0, length: 8 };
    let data = ResponseHeader { body: data, ..ack(0xffff) };
    for wrong in [ack(0), ack(0xfffe), other, failed, data] {
        assert!(!joined.join(&wrong), "{wrong:?}");
        assert!(
            !{ wrong }.join(&ack(wrong.tassn.wrapping_add(1))) || wrong.body == ResponseBody::None
        );
    }
    assert_eq!(joined, ack(0xfffe));
    assert!(joined.join(&ack(0xffff)) && joined.join(&ack(0)));
    assert_eq!(joined.body, ResponseBody::Acks { earlier: 2 });
    assert_eq!(joined.each().collect::<Vec<_>>(), [0xfffe, 0xffff, 0].map(ack));
    let mut bytes = [0; 64];
    let len = joined.emit(&mut bytes).unwrap();
    assert_eq!(ResponseHeader::parse(&bytes[..len]), Ok((joined, &[][..])));
    assert_eq!(data.each().collect::<Vec<_>>(), [data]);
}

#[test]
fn the_requests_of_one_acknowledgement_are_bounded() {
    let write = request(RequestOp::Write, 8);
    let ack = ResponseHeader::ack(&write, ResponseStatus::Ack);
    for (earlier, expected) in [(0, Some("field")), (1, None), (1023, None), (1024, Some("field"))]
    {
        let body = ResponseBody::Acks { earlier };
        assert_eq!(
            reason(ResponseHeader { body, ..ack }.emit(&mut [0; 64])),
            expected,
            "{earlier}"
        );
    }
    let mut bytes = [0; 64];
    let len = ack.emit(&mut bytes).unwrap();
    bytes[6..8].copy_from_slice(&1024_u16.to_be_bytes());
    assert_eq!(reason(ResponseHeader::parse(&bytes[..len])), Some("field"));
    let body = ResponseBody::Acks { earlier: EARLIER_MAX };
    let mut full = ResponseHeader { body, ..ack };
    let next = ResponseHeader { tassn: full.tassn.wrapping_add(1), ..ack };
    assert!(!full.join(&next));
    // Bytes 6 and 7 of what brings data are reserved.
    let body = ResponseBody::ReadData { offset: 0, length: 0 };
    let len = ResponseHeader { body, ..ack }.emit(&mut bytes).unwrap();
    bytes[7] = 1;
    assert_eq!(reason(ResponseHeader::parse(&bytes[..len])), Some("reserved"));
}

#[test]
fn pieces_of_a_read_stay_inside_it() {
    let plain = ResponseHeader::ack(&request(RequestOp::Read, 8), ResponseStatus::Ack);
    let at = |offset, length| {
        let body = ResponseBody::ReadData { offset, length };
        ResponseHeader { body, ..plain }
    };
    let room = |expected, found| Err(PacketError::Length { expected, found });
    // Of 600 bytes from byte 256 on: a path MTU, or the 344 that are left.
    assert_eq!(at(256, 600).check_packet(256), Ok(()));
    assert_eq!(at(256, 600).check_packet(344), Ok(()));
    assert_eq!(at(256, 600).check_packet(343), room(8192, 343), "not a path MTU");
    assert_eq!(at(256, 600).check_piece(343), Ok(()), "but a ring may");
    assert_eq!(at(256, 600).check_packet(345), room(344, 345));
    assert_eq!(at(256, 600).check_packet(0), room(344, 0), "no progress");
    assert_eq!(at(0, 8192).check_packet(8192), Ok(()));
    assert_eq!(at(0, 8193).check_packet(8193), room(8192, 8193), "beyond the largest MTU");
    assert_eq!(at(0, 8193).check_piece(8193), Ok(()), "but a ring may");
    assert_eq!(at(0, 0).check_packet(0), Ok(()));
    let header = TransactionHeader::Response(at(256, 600));
    assert_eq!(header.check_piece(345), room(344, 345));
    let header = TransactionHeader::Request(request(RequestOp::Read, 8));
    assert_eq!(header.check_piece(1), room(0, 1));
    assert_eq!(plain.check_packet(0), Ok(()));
    assert_eq!(plain.check_packet(1), room(0, 1), "TAACK brings nothing");
}

#[test]
fn reserved_bits_of_a_response_are_refused() {
    let target = Some(Target { kind: TargetKind::Jfr, id: JettyId::MAX, hint: 9 });
    let plain = request(RequestOp::Read, 8);
    let plain = ResponseHeader { target, ..ResponseHeader::ack(&plain, ResponseStatus::Ack) };
    let mut good = vec![0; plain.header_len()];
    plain.emit(&mut good).expect("valid");
    let reserved = [(1, 0x3f), (5, 0x9f), (11, 0xf7), (12, 0xff), (13, 0xff), (14, 0xff)];
    for (at, mask) in reserved.into_iter().chain([(15, 0xff), (17, 0x30)]) {
        for bit in (0..8).map(|bit| 1_u8 << bit).filter(|bit| mask & bit != 0) {
            let mut bytes = good.clone();
            bytes[at] |= bit;
            assert_eq!(reason(ResponseHeader::parse(&bytes)), Some("reserved"), "byte {at}");
        }
    }
    for version in 1..=3 {
        let mut bytes = good.clone();
        bytes[1] = version << 6;
        assert_eq!(ResponseHeader::parse(&bytes), Err(PacketError::Version(version)));
    }
}

#[test]
fn response_codes_outside_the_table_are_refused() {
    let plain = request(RequestOp::Write, 0);
    let mut buf = [0; 64];
    let len = ResponseHeader::ack(&plain, ResponseStatus::Ack).emit(&mut buf).expect("valid");
    let mut accepted = 0;
    for code in 0..=u8::MAX {
        buf[4] = code;
        match ResponseHeader::parse(&buf[..len]) {
            Ok((header, _)) => {
                let (state, info) = header.status.codes();
                assert_eq!(state << 5 | info, code);
                accepted += 1;
            }
            Err(error) => assert_eq!(error.reason(), "field"),
        }
    }
    // Nine fixed codes and 32 timers.
    assert_eq!(accepted, 9 + 32);
    // Length.
    buf[4] = 0x61;
    buf[7] = 1;
    assert_eq!(reason(ResponseHeader::parse(&buf[..len])), Some("reserved"), "stray Expected");
}

#[test]
fn only_what_passes_is_retried() {
    let retried = [
        ResponseStatus::ReceiverNotReady { timer: 1 },
        ResponseStatus::OutOfSequence { expected: 1 },
    ];
    assert!(retried.into_iter().all(ResponseStatus::is_retry));
    let final_ones = [ResponseStatus::Ack, ResponseStatus::Length, ResponseStatus::AccessAbort];
    assert!(!final_ones.into_iter().any(ResponseStatus::is_retry));
}

#[test]
fn rnr_timers_are_those_of_the_table() {
    let expected = [(0, 655_360_000), (1, 10_000), (12, 640_000), (31, 491_520_000)];
    for (code, ns) in expected {
        assert_eq!(ResponseStatus::rnr_timer_ns(code), ns);
        assert_eq!(ResponseStatus::rnr_timer_ns(code | 0xe0), ns, "five bits count");
    }
    // The shortest time that is long enough; beyond the table the longest, code 0.
    let codes = [(0, 1), (10_000, 1), (10_001, 2), (640_000, 12), (491_520_000, 31)];
    for (ns, code) in codes.into_iter().chain([(491_520_001, 0), (u64::MAX, 0)]) {
        assert_eq!(ResponseStatus::rnr_timer_of(ns), code, "{ns} ns");
    }
}

#[test]
fn bitmaps_grow_to_the_bit_needed_and_no_further() {
    let mut map = SackBitmap::default();
    assert!(map.is_empty() && map.words().is_empty());
    map.set(64).expect("in range");
    map.set(64).expect("may be marked twice");
    assert_eq!(map.words(), [0, 1]);
    assert!(!map.is_empty() && map.contains(64) && !map.contains(63) && !map.contains(255));
    assert!(SackBitmap::from_words(&[0; 4]).is_some_and(|map| map.is_empty()));
    map.set(SackBitmap::BITS_MAX - 1).expect("in range");
    assert_eq!(map.iter().collect::<Vec<_>>(), [64, 255]);
    assert_eq!(reason(map.set(SackBitmap::BITS_MAX)), Some("field"));
    assert_eq!(map.words().len(), SACK_WORDS_MAX);
    assert!(SackBitmap::from_words(&[0; 5]).is_none());
}

#[test]
fn acknowledgements_beyond_four_words_are_refused() {
    let received = SackBitmap::from_words(&[1; 4]).expect("four");
    let ack = Ack { window: 1, congestion: false, trigger: Psn::new(0), received };
    let mut buf = [0; 80];
    let frame = packet(Body::Ack(ack)).emit_headers(0, &mut buf).expect("valid");
    assert!(Packet::parse(&buf[..frame.total]).is_ok());
    buf[12] = 5;
    assert_eq!(reason(Packet::parse(&buf[..frame.total])), Some("field"));
    assert_eq!(reason(packet(Body::Nak(ack)).emit_headers(0, &mut buf)), Some("field"));
}

fn offer() -> HandshakeBody {
    HandshakeBody {
        version_min: 1,
        version_max: 2,
        mtu: Mtu::B8192,
        strategies: StrategyCaps::all(),
        incarnation: 1,
        source_eid: [1; 16],
        dest_eid: [2; 16],
        source_tpn: Tpn::MAX,
        first_psn: Psn::new(5),
        window: WINDOW_MAX,
        source_uasid: 0,
        dest_uasid: 0,
        state: 4,
        nonce: 3,
        close_key: 6,
        purpose: Purpose::Open,
        cookie: [0; 16],
        ports: FurtherPorts::default(),
    }
}

#[test]
fn offers_are_bounded() {
    let emit = |offer| {
        let header = PacketHeader::new(Tpn::default(), Psn::new(0), Body::Connect(offer));
        reason(header.emit_headers(0, &mut [0; 256]))
    };
    assert_eq!(emit(offer()), None);
    assert_eq!(emit(HandshakeBody { window: WINDOW_MAX + 1, ..offer() }), Some("field"));
    assert_eq!(emit(HandshakeBody { window: 0, ..offer() }), Some("field"));
    assert_eq!(emit(HandshakeBody { state: 0, ..offer() }), Some("field"));
    assert_eq!(emit(HandshakeBody { version_min: 0, ..offer() }), Some("version"));
    assert_eq!(emit(HandshakeBody { version_min: 3, ..offer() }), Some("version"));
    assert_eq!(emit(HandshakeBody { version_max: 15, ..offer() }), None);
    assert_eq!(emit(HandshakeBody { version_max: 16, ..offer() }), Some("version"));
    assert_eq!(emit(HandshakeBody { source_tpn: Tpn::default(), ..offer() }), Some("field"));
    assert_eq!(emit(HandshakeBody { strategies: StrategyCaps::empty(), ..offer() }), Some("field"));
}

#[test]
fn further_ports_are_addresses_of_one_node_each() {
    let v4 = |octets: [u8; 4]| std::net::Ipv4Addr::from(octets).to_ipv6_mapped().octets();
    let (a, b) = (v4([10, 1, 0, 1]), v4([10, 2, 0, 1]));
    let ports = FurtherPorts::new(&[a, b]).expect("two addresses");
    assert_eq!(ports.iter().collect::<Vec<_>>(), [a, b]);
    let mut many = [0xff; 16];
    many[1] = 2;
    let four = [a, b, v4([10, 3, 0, 1]), v4([10, 4, 0, 1])];
    for (wrong, why) in [
        (&[a, a][..], "10.1.0.1 is named twice: each port has an address of its own"),
        (&[[0; 16], a], "10.1.0.1 follows a gap"),
        (&[a, [0; 16]], ":: is not the address of one node"),
        (&[v4([224, 0, 0, 1])], "224.0.0.1 is not the address of one node"),
        (&[v4([255; 4])], "255.255.255.255 is not the address of one node"),
        (&[v4([0; 4])], "0.0.0.0 is not the address of one node"),
        (&[many], "ff02:ffff:ffff:ffff:ffff:ffff:ffff:ffff is not the address of one node"),
        (&four, "4 addresses beside the EID: a node has at most 3"),
    ] {
        let refused = FurtherPorts::new(wrong).expect_err(why);
        assert_eq!(refused.to_string(), why);
    }
    // As they arrive: an address behind a gap, and one that is none.
    let header = PacketHeader::new(Tpn::default(), Psn::new(0), Body::Connect(offer()));
    let mut buf = [0; 256];
    for (at, byte) in [(12 + 120, 0x20), (12 + 104, 0xff)] {
        let frame = header.emit_headers(0, &mut buf).expect("valid");
        assert!(Packet::parse(&buf[..frame.total]).is_ok());
        buf[at] = byte;
        assert_eq!(reason(Packet::parse(&buf[..frame.total])), Some("field"));
        buf[at] = 0;
    }
}

#[test]
fn choices_leave_nothing_open() {
    let emit = |choice| reason(packet(Body::Accept(choice)).emit_headers(0, &mut [0; 256]));
    let choice = HandshakeBody { version_max: 1, strategies: StrategyCaps::KNITTING, ..offer() };
    assert_eq!(emit(choice), None);
    assert_eq!(emit(HandshakeBody { version_max: 2, ..choice }), Some("version"));
    assert_eq!(emit(HandshakeBody { strategies: StrategyCaps::all(), ..choice }), Some("field"));
    assert_eq!(emit(HandshakeBody { purpose: Purpose::Verify, ..choice }), Some("field"));
    assert_eq!(emit(HandshakeBody { cookie: [1; 16], ..choice }), Some("field"));
}

#[test]
fn a_probe_is_as_long_as_it_says() {
    let nonce = 0x1122_3344_5566_7788;
    let at = |size| packet(Body::Probe(PathProbe { nonce, size }));
    let mut buffer = [0; 16_384];
    let mut emit = |header: &PacketHeader, padding| {
        header.emit_headers(padding, &mut buffer).map(|frame| frame.total)
    };
    for size in [32_u16, 36, 340, 1472, 8276] {
        let padding = usize::from(size) - 32;
        assert_eq!(emit(&at(size), padding), Ok(usize::from(size)));
        for wrong in [padding + 1, padding + 4, padding.wrapping_sub(4)] {
            assert_eq!(reason(emit(&at(size), wrong)), Some("length"), "{size} {wrong}");
        }
        let echo = packet(Body::ProbeEcho(PathProbe { nonce, size }));
        assert_eq!(emit(&echo, 0), Ok(32), "an echo is short");
        assert_eq!(reason(emit(&echo, 4)), Some("length"));
    }
    for size in [0_u16, 28, 33, 34, 8280, u16::MAX] {
        let padding = usize::from(size).saturating_sub(32);
        assert_eq!(reason(emit(&at(size), padding)), Some("field"), "{size}");
        let echo = packet(Body::ProbeEcho(PathProbe { nonce, size }));
        assert_eq!(reason(emit(&echo, 0)), Some("field"), "{size}");
    }
}

#[test]
fn a_cut_or_stretched_probe_is_refused() {
    let mut bytes = [0; 1472];
    let probe = packet(Body::Probe(PathProbe { nonce: 7, size: 1472 }));
    assert_eq!(probe.emit_headers(1440, &mut bytes).map(|frame| frame.total), Ok(1472));
    assert_eq!(Packet::parse(&bytes).map(|packet| packet.header), Ok(probe));
    assert_eq!(reason(Packet::parse(&bytes[..1468])), Some("length"), "cut");
    assert_eq!(reason(Packet::parse(&[bytes.as_slice(), &[0; 4]].concat())), Some("length"));
    bytes[28 - 1] = 1;
    assert_eq!(reason(Packet::parse(&bytes)), Some("reserved"));
}

#[test]
fn a_challenge_is_shorter_than_the_connect_that_causes_it() {
    let connect = PacketHeader::new(Tpn::default(), Psn::new(0), Body::Connect(offer()));
    let challenge = packet(Body::Challenge(Challenge { nonce: 3, cookie: [7; 16] }));
    let refusal = RefuseBody {
        reason: RefuseReason::NoTp,
        version_min: 1,
        version_max: 1,
        state: 0,
        nonce: 3,
    };
    for answer in [challenge, packet(Body::Refuse(refusal))] {
        assert!(answer.packet_len(0) < connect.packet_len(0));
    }
}

#[test]
fn the_bth_of_urma_is_checked() {
    let mut buf = [0; 128];
    let body = Body::Request(request(RequestOp::Write, 0));
    let total = packet(body).emit_headers(0, &mut buf).expect("valid").total;
    let changed = |at: usize, value: u8| {
        let mut bytes = buf;
        bytes[at] = value;
        reason(Packet::parse(&bytes[..total]))
    };
    assert_eq!(changed(1, 1), None);
    assert_eq!(changed(0, 0xd0), Some("opcode"));
    assert_eq!(changed(1, 2), Some("version"));
    assert_eq!(changed(1, 0), Some("version"));
    for bits in [0x40, 0x80, 0xc0] {
        let mut bytes = buf;
        bytes[1] |= bits;
        let refused = PacketError::Reserved { header: "BTH", value: bits.into() };
        assert_eq!(Packet::parse(&bytes[..total]), Err(refused));
    }
    assert_eq!(changed(1, 0x11), Some("field"), "pad of nothing");
    assert_eq!(changed(2, 0), Some("field"), "partition key");
    assert_eq!(changed(7, 0), Some("field"), "no TP");
}

#[test]
fn only_packets_of_data_answer_a_report() {
    let repeat = Some(Repeat { tier: 2, ticket: 0x00ff_fffe });
    let body = Body::Request(request(RequestOp::Write, 0));
    let (first, again) = (packet(body), PacketHeader { repeat, ..packet(body) });
    let (mut kept, mut sent) = ([0; 128], [0; 128]);
    let total = first.emit_headers(0, &mut kept).expect("valid").total;
    let len = repeat_packet(&kept[..total], again.repeat.expect("a mark"), &mut sent);
    assert_eq!(len, Some(again.packet_len(0)));
    assert_eq!(Packet::parse(&sent[..total + 4]).map(|packet| packet.header), Ok(again));
    let changed = |at: usize, value: u8| {
        let mut bytes = sent;
        bytes[at] = value;
        reason(Packet::parse(&bytes[..total + 4]))
    };
    for tier in [0, 3, 0xff] {
        assert_eq!(changed(12, tier), Some("field"), "tier {tier}");
    }
    assert_eq!(changed(12, 1), Some("field"), "a ticket in tier 1");
    assert_eq!(reason(Packet::parse(&sent[..12 + 4])), Some("truncated"));
    assert_eq!(repeat_packet(&kept[..total], Repeat { tier: 3, ticket: 0 }, &mut sent), None);
    assert_eq!(repeat_packet(&kept[..total], Repeat { tier: 1, ticket: 0 }, &mut [0; 20]), None);
    let tail = Body::Tail(TailBody { first_end: Psn::new(0), ticket_end: 0, rtt_ns: 0 });
    let tail = PacketHeader { repeat, ..packet(tail) };
    assert_eq!(reason(tail.emit_headers(0, &mut [0; 64])), Some("field"));
}

#[test]
fn a_report_names_at_most_a_window() {
    let run = |count| MissingRun { start: Psn::new(7), count };
    let losses =
        |tier, ticket, runs: &[MissingRun]| ReportBody::new(tier, ticket, runs).expect("few");
    let emit = |losses| reason(packet(Body::Losses(losses)).emit_headers(0, &mut [0; 256]));
    assert_eq!(emit(losses(1, 0, &[run(1); 16])), None);
    assert_eq!(emit(losses(2, 0x00ff_ffff, &[run(WINDOW_MAX)])), None);
    assert_eq!(ReportBody::new(1, 0, &[run(1); 17]), None);
    for wrong in [
        losses(1, 0, &[]),
        losses(1, 0, &[run(0)]),
        losses(1, 0, &[run(WINDOW_MAX + 1)]),
        losses(1, 0, &[run(WINDOW_MAX), run(1)]),
        losses(1, 0, &[run(u32::MAX); 16]),
        losses(1, 1, &[run(1)]),
        losses(0, 0, &[run(1)]),
        losses(3, 0, &[run(1)]),
        losses(2, 1 << 24, &[run(1)]),
    ] {
        assert_eq!(emit(wrong), Some("field"), "{wrong:?}");
    }
    let mut bytes = [0; 256];
    let header = packet(Body::Losses(losses(1, 0, &[run(1)])));
    let total = header.emit_headers(0, &mut bytes).expect("valid").total;
    let changed = |at: usize, value: u8| {
        let mut bytes = bytes;
        bytes[at] = value;
        reason(Packet::parse(&bytes[..total]))
    };
    assert_eq!(changed(12, 17), Some("field"), "more runs than a report has");
    assert_eq!(changed(12, 2), Some("truncated"));
    assert_eq!(changed(14, 1), Some("reserved"));
    assert_eq!(changed(20, 1), Some("reserved"), "a PSN has 24 bits");
    assert_eq!(changed(11, 1), Some("field"), "a report has no PSN");
}

#[test]
fn packets_without_data_have_no_payload() {
    let refusal = RefuseBody {
        reason: RefuseReason::NoTp,
        version_min: 1,
        version_max: 1,
        state: 0,
        nonce: 3,
    };
    let header = packet(Body::Refuse(refusal));
    let mut buf = [0; 64];
    let total = header.emit_headers(0, &mut buf).expect("valid").total;
    let refused = |found| Err(PacketError::Length { expected: 0, found });
    assert_eq!(header.emit_headers(4, &mut [0; 64]), refused(4));
    assert_eq!(
        Packet::parse(&buf[..total + 4]),
        Err(PacketError::Length { expected: 0, found: 4 })
    );
    // No number and no acknowledgement request outside the sequence of a TP.
    let emit = |header: PacketHeader| reason(header.emit_headers(0, &mut [0; 64]));
    assert_eq!(emit(PacketHeader { psn: Psn::new(1), ..header }), Some("field"));
    assert_eq!(emit(PacketHeader { ack_req: true, ..header }), Some("field"));
    // The rule of versions holds for refusals, too.
    for (version_min, version_max) in [(0, 1), (2, 1), (1, 16)] {
        let header = packet(Body::Refuse(RefuseBody { version_min, version_max, ..refusal }));
        assert_eq!(reason(header.emit_headers(0, &mut buf)), Some("version"));
    }
}

#[test]
fn what_is_computed_over_a_handshake_is_what_travels() {
    let offer = HandshakeBody { source_uasid: 0x0102_0304, cookie: [7; 16], ..offer() };
    let header = PacketHeader::new(Tpn::default(), Psn::new(0), Body::Connect(offer));
    let mut buf = [0; 256];
    header.emit_headers(0, &mut buf).expect("valid");
    assert_eq!(offer.to_bytes()[..], buf[12..12 + HandshakeBody::LEN]);
}

#[test]
fn a_repair_packet_names_packets_of_a_group() {
    let right = RepairBody { last: 399, begin: 399, groups: 2, group: 1, number: 55 };
    let emit = |repair, len| reason(packet(Body::Repair(repair)).emit_headers(len, &mut [0; 9000]));
    assert_eq!(emit(right, 4), None);
    assert_eq!(
        emit(RepairBody { last: 0, begin: 0, groups: u16::MAX, group: 0, ..right }, 4),
        None
    );
    for wrong in [
        RepairBody { last: 400, ..right },
        RepairBody { groups: 0, group: 0, ..right },
        RepairBody { group: 2, ..right },
        RepairBody { last: 0, begin: 0, ..right },
        RepairBody { begin: 400, ..right },
        RepairBody { number: 56, ..right },
    ] {
        assert_eq!(emit(wrong, 4), Some("field"), "{wrong:?}");
    }
    for len in [0, 3, 5, 8324] {
        assert_eq!(emit(right, len), Some("length"), "{len}");
    }
    let mut bytes = [0; 64];
    let total = packet(Body::Repair(right)).emit_headers(4, &mut bytes).expect("right").total;
    for at in 21..24 {
        let mut bytes = bytes;
        bytes[at] = 1;
        assert_eq!(reason(Packet::parse(&bytes[..total])), Some("reserved"), "byte {at}");
    }
}

#[test]
fn no_packet_comes_of_a_word_that_is_none() {
    let of = |word: &[u8]| packet_of_word(word, Tpn::from_low_bits(1), Psn::new(2));
    let packet = of(&[0xc0, 3, 0, 4, 1, 2, 3, 4, 0, 0]).expect("a word and zeros");
    assert_eq!(packet, [0xc0, 0x31, 0xff, 0xff, 0, 0, 0, 1, 0, 0, 0, 2, 1, 2, 3, 4, 0, 0, 0, 0]);
    assert_eq!(code_word(&packet), Some(([0xc0, 3, 0, 4], &[1, 2, 3, 4][..])));
    for word in [&[][..], &[0xc0, 0, 0], &[0xc0, 4, 0, 0], &[0xc0, 0, 0, 1], &[0xc0, 0, 0, 0, 1]] {
        assert_eq!(of(word), None, "{word:?}");
    }
    assert_eq!(code_word(&packet[..15]), None);
}
