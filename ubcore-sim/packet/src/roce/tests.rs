//! Tests of the standard packets: what the golden data does not show.

use std::net::{Ipv4Addr, SocketAddr};

use super::*;
use crate::{Bth, Congestion, IcrcFlow, PacketError, Psn, ROCE_PORT, Tpn};

fn flow() -> IcrcFlow {
    let end = |last| SocketAddr::from((Ipv4Addr::new(10, 0, 0, last), ROCE_PORT));
    IcrcFlow::new(end(1), end(2))
}

fn bth(opcode: u8) -> Bth {
    Bth {
        opcode,
        solicited: false,
        mig_req: true,
        pad: 0,
        version: 0,
        pkey: 0xffff,
        congestion: Congestion::default(),
        dest: Tpn::from_low_bits(0x11),
        ack_req: true,
        repeated: false,
        psn: Psn::new(1),
    }
}

/// Some value in every header that `headers` names.
fn filled(headers: Headers) -> RoceExt {
    let aeth = Aeth { syndrome: Syndrome::PsnSequence, msn: 7 };
    let atomic = AtomicEth { va: 8, rkey: 9, swap_or_add: 1, compare: 2 };
    RoceExt {
        rdeth: headers.contains(Headers::RDETH).then_some(Rdeth { context: 5 }),
        deth: headers.contains(Headers::DETH).then_some(Deth { qkey: 1, source_qp: 2 }),
        feth: headers.contains(Headers::FETH).then_some(Feth { placement: 1, selectivity: 2 }),
        reth: headers.contains(Headers::RETH).then_some(Reth { va: 1, rkey: 2, dma_len: 3 }),
        atomic: headers.contains(Headers::ATOMIC).then_some(atomic),
        aeth: headers.contains(Headers::AETH).then_some(aeth),
        atomic_ack: headers.contains(Headers::ATOMIC_ACK).then_some(AtomicAckEth { original: 6 }),
        imm: headers.contains(Headers::IMM).then_some(ImmDt { value: 4 }),
        ieth: headers.contains(Headers::IETH).then_some(Ieth { rkey: 3 }),
    }
}

fn payload_for(rule: PayloadRule) -> &'static [u8] {
    match rule {
        PayloadRule::None => &[],
        PayloadRule::PathMtu => &[3; 512],
        PayloadRule::Last | PayloadRule::Only => &[4; 5],
        PayloadRule::Eight => &[5; 8],
        PayloadRule::Sixteen => &[0; 16],
    }
}

#[test]
fn every_opcode_of_the_table_goes_round() {
    let mut count = 0;
    for opcode in 0..=u8::MAX {
        let Ok(layout) = PacketLayout::of(opcode) else { continue };
        let header = RoceHeader { bth: bth(opcode), ext: filled(layout.headers) };
        let payload = payload_for(layout.payload);
        let mut buf = [0xaa; 1024];
        let len = header.emit(payload, &flow(), &mut buf).expect("emits");
        let found = RocePacket::open(&buf[..len], &flow()).expect("parses");
        assert_eq!((found.header.ext, found.payload), (header.ext, payload));
        count += 1;
    }
    // RC 25, UC 12, RD 22, UD 2, and the congestion notification.
    assert_eq!(count, 62);
}

#[test]
fn flush_has_its_own_header_before_the_address() {
    let ext = filled(Headers::FETH | Headers::RETH);
    let mut buf = [0; 64];
    let header = RoceHeader { bth: bth(rc::FLUSH), ext };
    let len = header.emit(&[], &flow(), &mut buf).expect("emits");
    assert_eq!(len, 12 + 4 + 16 + 4);
    assert_eq!(buf[12..16], [0, 0, 0, 0x21]);
}

#[test]
fn lengths_at_and_beyond_their_limits() {
    let check = |rule: PayloadRule, len| rule.check(len).is_ok();
    assert!(check(PayloadRule::Only, 0) && check(PayloadRule::Only, 4096));
    assert!(!check(PayloadRule::Only, 4097));
    assert!(!check(PayloadRule::Last, 0) && check(PayloadRule::Last, 1));
    assert!(check(PayloadRule::PathMtu, 256) && check(PayloadRule::PathMtu, 4096));
    assert!(!check(PayloadRule::PathMtu, 255) && !check(PayloadRule::PathMtu, 8192));
    assert!(!check(PayloadRule::PathMtu, 0) && !check(PayloadRule::None, 1));
}

#[test]
fn headers_of_another_opcode_are_refused() {
    let header = RoceHeader { bth: bth(rc::SEND_ONLY), ext: filled(Headers::IMM) };
    let refused = header.emit(&[], &flow(), &mut [0; 64]);
    assert_eq!(refused.map_err(|e| e.reason()), Err("field"));
}

#[test]
fn version_and_pad_are_filled_in() {
    let given = Bth { version: 5, pad: 2, ..bth(rc::SEND_ONLY) };
    let mut buf = [0; 64];
    let header = RoceHeader { bth: given, ext: RoceExt::default() };
    let len = header.emit(&[9; 5], &flow(), &mut buf).expect("emits");
    let found = RocePacket::parse(&buf[..len]).expect("standard").header.bth;
    assert_eq!(found, Bth { version: 0, pad: 3, ..given });
}

#[test]
fn pad_must_be_zero_and_minimal() {
    let header = RoceHeader { bth: bth(rc::SEND_ONLY), ext: RoceExt::default() };
    let mut buf = [0; 64];
    let len = header.emit(&[9; 5], &flow(), &mut buf).expect("emits");
    let mut dirty = buf;
    dirty[18] = 1;
    let refused = RocePacket::parse(&dirty[..len]).map_err(|e| e.reason());
    assert_eq!(refused, Err("reserved"));
    // One byte less before the ICRC: seven bytes are not whole words.
    let refused = RocePacket::parse(&buf[..len - 1]);
    assert_eq!(refused, Err(PacketError::Field { field: "Pad", value: 3 }));
}

#[test]
fn urma_opcodes_and_versions_are_not_standard() {
    let mut buf = [0; 16];
    buf[0] = 0xc0;
    assert_eq!(RocePacket::parse(&buf), Err(PacketError::Opcode(0xc0)));
    buf[0] = rc::SEND_ONLY;
    buf[1] = 3;
    assert_eq!(RocePacket::parse(&buf), Err(PacketError::Version(3)));
}

#[test]
fn every_syndrome_goes_round() {
    let mut accepted = 0;
    for code in 0..=u8::MAX {
        match Syndrome::from_code(code) {
            Ok(syndrome) => {
                assert_eq!(syndrome.code(), code);
                accepted += 1;
            }
            Err(error) => assert_eq!(error.reason(), "field"),
        }
    }
    // 32 credit codes, 32 timers, five errors.
    assert_eq!(accepted, 32 + 32 + 5);
}

/// InfiniBand Architecture Specification 1.7, table of opcodes: requests of a reliable datagram
/// carry RDETH and DETH, what answers them RDETH alone.
#[test]
fn reliable_datagrams_carry_their_context_in_both_directions() {
    let answers = rc::READ_RESPONSE_FIRST..=rc::ATOMIC_ACKNOWLEDGE;
    for op in rc::SEND_FIRST..=rc::RESYNC {
        let added = PacketLayout::of(TRANSPORT_RD | op).expect("defined").headers;
        let context =
            if answers.contains(&op) { Headers::RDETH } else { Headers::RDETH | Headers::DETH };
        assert_eq!(added & (Headers::RDETH | Headers::DETH), context, "{op:#x}");
    }
    let of_write = PacketLayout::of(TRANSPORT_RC | rc::WRITE_ONLY_IMM).expect("defined").headers;
    assert_eq!(of_write, Headers::RETH | Headers::IMM);
}

#[test]
fn notifications_carry_zeros() {
    let header = RoceHeader { bth: bth(CNP), ext: RoceExt::default() };
    let mut buf = [0; 64];
    let len = header.emit(&[0; 16], &flow(), &mut buf).expect("emits");
    buf[27] = 1;
    let refused = RocePacket::parse(&buf[..len]).map_err(|e| e.reason());
    assert_eq!(refused, Err("reserved"));
}
