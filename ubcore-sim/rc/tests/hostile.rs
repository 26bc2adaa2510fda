//! Any well-formed packet: no panic, bounded answers, no byte outside what its key allows.
#![forbid(unsafe_code)]

mod support;

use proptest::prelude::*;
use support::{BASE, Pair, READ_ONLY, RKEY, receive, remote, request};
use urma_packet::roce::{
    Aeth, AtomicAckEth, AtomicEth, Headers, Ieth, ImmDt, PacketLayout, PayloadRule, Reth, RoceExt,
    RoceHeader, RocePacket, Syndrome,
};
use urma_packet::{Bth, Congestion, Psn, Tpn};
use urma_rc::{RcAtomic, RcOperation};

/// A packet of the reliable transport near the PSNs in use.
fn packet() -> impl Strategy<Value = (RoceHeader, usize)> {
    let opcodes = proptest::sample::select((0..0x20_u8).collect::<Vec<_>>());
    let opcodes = opcodes.prop_filter("defined", |opcode| PacketLayout::of(*opcode).is_ok());
    let numbers = (0..24_u32, any::<bool>(), any::<bool>());
    let memory = (0..0x1_2000_u64, prop_oneof![Just(RKEY), Just(READ_ONLY), any::<u32>()]);
    let rest = (0..4096_u32, any::<u64>(), 0..0x65_u8, 0..5_usize);
    (opcodes, numbers, memory, rest).prop_map(|(opcode, (psn, ack_req, near), memory, rest)| {
        let layout = PacketLayout::of(opcode).expect("filtered");
        let (va, rkey) = (BASE + memory.0, memory.1);
        let (dma_len, value, code, kind) = rest;
        let len = match layout.payload {
            PayloadRule::None => 0,
            PayloadRule::PathMtu => 1024,
            PayloadRule::Last | PayloadRule::Only => [1, 8, 100, 1024, 4096][kind],
            PayloadRule::Eight => 8,
            PayloadRule::Sixteen => 16,
        };
        let fits = dma_len % 2 == 0 && len > 0;
        let dma_len = if fits { u32::try_from(len).expect("small") } else { dma_len };
        let has = |flag| layout.headers.contains(flag);
        let syndrome = Syndrome::from_code(code).unwrap_or(Syndrome::PsnSequence);
        let atomic = AtomicEth { va: va & !7, rkey, swap_or_add: value, compare: 0 };
        let ext = RoceExt {
            reth: has(Headers::RETH).then_some(Reth { va, rkey, dma_len }),
            atomic: has(Headers::ATOMIC).then_some(atomic),
            aeth: has(Headers::AETH).then_some(Aeth { syndrome, msn: 1 }),
            atomic_ack: has(Headers::ATOMIC_ACK).then_some(AtomicAckEth { original: value }),
            imm: has(Headers::IMM).then_some(ImmDt { value: psn }),
            ieth: has(Headers::IETH).then_some(Ieth { rkey }),
            feth: has(Headers::FETH)
                .then_some(urma_packet::roce::Feth { placement: 1, selectivity: 0 }),
            ..RoceExt::default()
        };
        let psn = Psn::new(if near { 2 + psn } else { 0x77 + psn });
        let bth = Bth {
            opcode,
            solicited: ack_req,
            repeated: false,
            mig_req: near,
            pad: 0,
            version: 0,
            pkey: 0xffff,
            congestion: Congestion::default(),
            dest: Tpn::from_low_bits(0xb),
            ack_req,
            psn,
        };
        (RoceHeader { bth, ext }, len)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn any_sequence_of_packets_is_survived(packets in prop::collection::vec(packet(), 1..60)) {
        let mut pair = Pair::new(5, |_| ());
        let side = &mut pair.b;
        // Beyond the region: what no packet may change.
        side.ram.bytes.resize((1 << 16) + 4096, 0xee);
        side.ram.keys = vec![(READ_ONLY, false)];
        let before = side.ram.bytes.clone();
        for id in 0..4 {
            side.rc.post_receive(receive(id, 1 << 16, 1024)).expect("room");
            let atomic = RcOperation::Atomic(remote(0), RcAtomic::FetchAdd { add: 1 });
            let kinds = [RcOperation::Send, RcOperation::Read(remote(0)), atomic, RcOperation::Send];
            let kind = kinds[usize::try_from(id).expect("small")];
            side.rc.post(request(id, kind, (1 << 16) + 1024, 3000)).expect("room");
        }
        let mut sent = side.transmit(0).len();
        let mut completions = 0;
        for (now, (header, len)) in packets.iter().enumerate() {
            let payload = vec![0x55; *len];
            let packet = RocePacket { header: *header, payload: &payload };
            side.rc.on_packet(now as u64, &packet, &mut side.ram);
            sent += side.transmit(now as u64).len();
            completions += side.completions().len();
        }
        side.rc.close();
        completions += side.completions().len();
        prop_assert_eq!(completions, 8, "each request and receive once");
        prop_assert!(sent <= 200 * (1 + packets.len()), "{} packets", sent);
        prop_assert_eq!(&side.ram.bytes[..1 << 16], &before[..1 << 16], "a region that may be read");
    }
}
