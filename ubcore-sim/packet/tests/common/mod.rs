//! Generators of valid URMA packets, shared by the property tests.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use urma_packet::*;

pub(crate) fn jetty() -> impl Strategy<Value = JettyId> {
    any::<u32>().prop_map(JettyId::from_low_bits)
}

fn token_id() -> impl Strategy<Value = TokenId> {
    any::<u32>().prop_map(TokenId::from_low_bits)
}

fn initiator() -> impl Strategy<Value = Initiator> {
    (select(InitiatorKind::ALL), jetty()).prop_map(|(kind, id)| Initiator { kind, id })
}

fn target() -> impl Strategy<Value = Target> {
    (select(TargetKind::ALL), jetty(), any::<u8>()).prop_map(|(kind, id, hint)| Target {
        kind,
        id,
        hint,
    })
}

fn notify() -> impl Strategy<Value = Notify> {
    (any::<u64>(), token_id(), any::<u32>(), any::<u64>()).prop_map(
        |(address, token_id, token, data)| Notify {
            address,
            token_id,
            token: TokenValue(token),
            data,
        },
    )
}

fn value_of(size: OperandSize, value: u128) -> u128 {
    value & (u128::MAX >> (128 - 8 * size.bytes()))
}

fn atomic() -> impl Strategy<Value = RequestOp> {
    let operands = (select(OperandSize::ALL), any::<u128>(), any::<u128>());
    (select(AtomicOp::ALL), operands).prop_map(|(op, (size, operand, compare))| {
        let operand = if op == AtomicOp::Load { 0 } else { value_of(size, operand) };
        let compare = if op == AtomicOp::CompareSwap { value_of(size, compare) } else { 0 };
        RequestOp::Atomic(op, AtomicOperands { size, operand, compare })
    })
}

fn write_imm() -> impl Strategy<Value = WriteImm> {
    let token = proptest::option::of(any::<u32>().prop_map(TokenValue));
    (any::<u64>(), token).prop_map(|(imm, token)| WriteImm { imm, token })
}

fn operation() -> impl Strategy<Value = RequestOp> {
    let invalidate = (token_id(), any::<u32>())
        .prop_map(|(token_id, token)| Invalidate { token_id, token: TokenValue(token) });
    prop_oneof![
        Just(RequestOp::Send),
        any::<u64>().prop_map(RequestOp::SendImm),
        invalidate.prop_map(RequestOp::SendInvalidate),
        Just(RequestOp::Write),
        write_imm().prop_map(RequestOp::WriteImm),
        notify().prop_map(RequestOp::WriteNotify),
        notify().prop_map(RequestOp::WriteAtomicAdd),
        Just(RequestOp::Read),
        atomic(),
        Just(RequestOp::FlushDma),
    ]
}

/// Payload bytes, and what stands before and after them in the message.
fn place() -> impl Strategy<Value = (usize, u32, u32)> {
    let mtu = select(Mtu::ALL).prop_map(Mtu::bytes);
    prop_oneof![
        // The only packet, the last one, one in the middle.
        (0..600_usize).prop_map(|len| (len, 0, 0)),
        (1..600_usize, 1..0x10_0000_u32).prop_map(|(len, before)| (len, before, 0)),
        (mtu, 0..0x10_0000_u32, 1..0x10_0000_u32),
    ]
}

fn flags() -> impl Strategy<Value = RequestFlags> {
    let free = RequestFlags::all() - RequestFlags::ONLY - RequestFlags::DATAGRAM;
    any::<u8>().prop_map(move |bits| RequestFlags::from_bits_truncate(bits) & free)
}

/// A request packet that obeys every rule, and the length of its payload.
pub(crate) fn request() -> impl Strategy<Value = (RequestHeader, usize)> {
    let who = (any::<u16>(), initiator(), target(), any::<bool>());
    let rights = (any::<Option<u32>>(), any::<u64>(), token_id(), any::<u32>());
    let how = (flags(), select(OrderTag::ALL), place());
    (operation(), who, rights, how).prop_map(|(op, who, rights, (free, order, place))| {
        let (tassn, initiator, target, names_target) = who;
        let (token, address, token_id, read_length) = rights;
        let (len, before, after) = if op.has_payload() { place } else { (0, 0, 0) };
        let mut flags = free;
        flags.set(RequestFlags::FIRST, before == 0);
        flags.set(RequestFlags::LAST, after == 0);
        let whole = before + u32::try_from(len).expect("short") + after;
        let length = match op {
            RequestOp::Atomic(_, operands) => operands.size.bytes(),
            RequestOp::Read | RequestOp::FlushDma => read_length,
            _ => whole,
        };
        let access = if op.is_send() {
            MemoryAccess { address: before.into(), token_id: TokenId::default(), length }
        } else {
            MemoryAccess { address, token_id, length }
        };
        let target = (op.is_two_sided() || names_target).then_some(target);
        let token = token.map(TokenValue);
        (RequestHeader { flags, order, tassn, initiator, target, token, access, op }, len)
    })
}

fn status() -> impl Strategy<Value = ResponseStatus> {
    prop_oneof![
        (0..32_u8).prop_map(|timer| ResponseStatus::ReceiverNotReady { timer }),
        any::<u16>().prop_map(|expected| ResponseStatus::OutOfSequence { expected }),
        select(
            &[
                ResponseStatus::Ack,
                ResponseStatus::Length,
                ResponseStatus::Unsupported,
                ResponseStatus::NoResources,
                ResponseStatus::TargetReset,
                ResponseStatus::NoTarget,
                ResponseStatus::AccessAbort,
                ResponseStatus::DataPoison,
            ][..]
        ),
    ]
}

/// A response packet that obeys every rule, and the length of its payload.
pub(crate) fn response() -> impl Strategy<Value = (ResponseHeader, usize)> {
    let read = place().prop_map(|(len, offset, after)| {
        let length = offset + u32::try_from(len).expect("short") + after;
        (ResponseStatus::Ack, ResponseBody::ReadData { offset, length }, len)
    });
    let value = (select(OperandSize::ALL), any::<u128>()).prop_map(|(size, value)| {
        let value = AtomicValue { size, value: value_of(size, value) };
        (ResponseStatus::Ack, ResponseBody::Atomic(value), 0)
    });
    let acks = (1..=EARLIER_MAX)
        .prop_map(|earlier| (ResponseStatus::Ack, ResponseBody::Acks { earlier }, 0));
    let plain = status().prop_map(|status| (status, ResponseBody::None, 0));
    let who = (any::<u16>(), initiator(), proptest::option::of(target()));
    (who, prop_oneof![read, value, acks, plain]).prop_map(
        |((tassn, initiator, target), (status, body, len))| {
            (ResponseHeader { tassn, initiator, target, status, body }, len)
        },
    )
}

fn ack(words_max: usize) -> impl Strategy<Value = Ack> {
    let words = vec(any::<u64>(), 0..=words_max);
    (any::<u16>(), any::<bool>(), any::<u32>(), words).prop_map(
        |(window, congestion, trigger, words)| Ack {
            window,
            congestion,
            trigger: Psn::new(trigger),
            received: SackBitmap::from_words(&words).expect("at most four"),
        },
    )
}

fn ports() -> impl Strategy<Value = FurtherPorts> {
    // Addresses of one node each: their first byte makes them unicast.
    let addresses = vec(any::<[u8; 15]>(), 0..=FURTHER_PORTS_MAX);
    addresses.prop_map(|tails| {
        let given: Vec<WireEid> = tails
            .iter()
            .map(|tail| {
                let mut address = [0x20; 16];
                address[1..].copy_from_slice(tail);
                address
            })
            .collect();
        FurtherPorts::new(&given).unwrap_or_default()
    })
}

fn offer() -> impl Strategy<Value = HandshakeBody> {
    let versions = (1..=15_u8).prop_flat_map(|min| (Just(min), min..=15));
    let ids = (any::<u64>(), any::<WireEid>(), any::<WireEid>(), 1..=0xff_ffff_u32);
    let limits = (select(Mtu::ALL), 1..8_u32, any::<u32>(), 1..=WINDOW_MAX);
    let secrets = (any::<u64>(), any::<u64>(), any::<bool>(), any::<Cookie>(), ports());
    let rest = (any::<(u32, u32, std::num::NonZeroU32)>(), secrets);
    (versions, ids, limits, rest).prop_map(|(versions, ids, limits, (rest, secrets))| {
        HandshakeBody {
            version_min: versions.0,
            version_max: versions.1,
            mtu: limits.0,
            strategies: StrategyCaps::from_bits_truncate(limits.1),
            incarnation: ids.0,
            source_eid: ids.1,
            dest_eid: ids.2,
            source_tpn: Tpn::from_low_bits(ids.3),
            first_psn: Psn::new(limits.2),
            window: limits.3,
            source_uasid: rest.0,
            dest_uasid: rest.1,
            state: rest.2.get(),
            nonce: secrets.0,
            close_key: secrets.1,
            purpose: if secrets.2 { Purpose::Verify } else { Purpose::Open },
            cookie: secrets.3,
            ports: secrets.4,
        }
    })
}

fn choice() -> impl Strategy<Value = HandshakeBody> {
    (offer(), 0..3_u32).prop_map(|(offer, strategy)| HandshakeBody {
        version_max: offer.version_min,
        strategies: StrategyCaps::from_bits_truncate(1 << strategy),
        purpose: Purpose::Open,
        cookie: Cookie::default(),
        ..offer
    })
}

fn probe() -> impl Strategy<Value = PathProbe> {
    (any::<u64>(), 8..=2069_u16).prop_map(|(nonce, words)| PathProbe { nonce, size: words * 4 })
}

fn losses() -> impl Strategy<Value = ReportBody> {
    let run = (any::<u32>(), 1..=WINDOW_MAX / 16)
        .prop_map(|(start, count)| MissingRun { start: Psn::new(start), count });
    let runs = vec(run, 1..=LOSS_RUNS_MAX);
    (repeat(), runs).prop_map(|(Repeat { tier, ticket }, runs)| {
        ReportBody::new(tier, ticket, &runs).expect("no more than a report has")
    })
}

fn repeat() -> impl Strategy<Value = Repeat> {
    (1..=2_u8, any::<u32>())
        .prop_map(|(tier, ticket)| Repeat { tier, ticket: (ticket >> 8) * u32::from(tier - 1) })
}

fn tail() -> impl Strategy<Value = TailBody> {
    any::<(u32, u32, u32)>().prop_map(|(first_end, ticket, rtt_ns)| TailBody {
        first_end: Psn::new(first_end),
        ticket_end: ticket >> 8,
        rtt_ns,
    })
}

fn body() -> impl Strategy<Value = (Body, usize)> {
    let refusal = (select(RefuseReason::ALL), 1..=15_u8, any::<(u32, u64)>()).prop_map(
        |(reason, version, (state, nonce))| RefuseBody {
            reason,
            version_min: version,
            version_max: version,
            state,
            nonce,
        },
    );
    let challenge = any::<(u64, Cookie)>()
        .prop_map(|(nonce, cookie)| (Body::Challenge(Challenge { nonce, cookie }), 0));
    let close = (select(CloseReason::ALL), any::<u32>(), any::<u64>())
        .prop_map(|(reason, tpn, key)| Close { reason, source_tpn: Tpn::from_low_bits(tpn), key });
    let datagram = (any::<(WireEid, WireEid, u32, u32)>(), request()).prop_filter_map(
        "a send in one packet",
        |(ends, (header, len))| {
            let ends = UmHeader {
                source_eid: ends.0,
                dest_eid: ends.1,
                source_uasid: ends.2,
                dest_uasid: ends.3,
            };
            let single = header.op.is_send() && header.flags.contains(RequestFlags::ONLY);
            let flags = header.flags | RequestFlags::DATAGRAM | RequestFlags::NO_TAACK;
            let header = RequestHeader { flags, ..header };
            single.then_some((Body::UmSend(ends, header), len))
        },
    );
    prop_oneof![
        8 => request().prop_map(|(header, len)| (Body::Request(header), len)),
        4 => response().prop_map(|(header, len)| (Body::Response(header), len)),
        2 => ack(SACK_WORDS_MAX).prop_map(|ack| (Body::Ack(ack), 0)),
        1 => ack(0).prop_map(|ack| (Body::Nak(ack), 0)),
        1 => offer().prop_map(|offer| (Body::Connect(offer), 0)),
        1 => choice().prop_map(|choice| (Body::Accept(choice), 0)),
        1 => challenge,
        1 => refusal.prop_map(|refusal| (Body::Refuse(refusal), 0)),
        1 => close.prop_map(|close| (Body::Close(close), 0)),
        1 => datagram,
        1 => probe().prop_map(|probe| (Body::Probe(probe), probe.padding())),
        1 => probe().prop_map(|probe| (Body::ProbeEcho(probe), 0)),
        1 => losses().prop_map(|losses| (Body::Losses(losses), 0)),
        1 => tail().prop_map(|tail| (Body::Tail(tail), 0)),
        1 => repair_packet(),
    ]
}

/// A repair packet and the bytes of its word.
fn repair_packet() -> impl Strategy<Value = (Body, usize)> {
    (any::<u16>(), any::<[u16; 3]>(), 0..56_u8, 1..=400_usize).prop_map(
        |(last, [groups, group, begin], number, words)| {
            let least = (u32::from(last) + 1).div_ceil(200);
            let groups = u16::try_from(least).expect("few").max(groups);
            let members = groups.min(last.saturating_add(1));
            let (group, begin) = (group % members, if last == 0 { 0 } else { begin % last });
            (Body::Repair(RepairBody { last, begin, groups, group, number }), 4 * words)
        },
    )
}

/// A packet that obeys every rule, and the length of its payload.
pub(crate) fn packet() -> impl Strategy<Value = (PacketHeader, usize)> {
    let marks = any::<(u32, u32, bool, bool, bool)>();
    (body(), marks, proptest::option::of(repeat())).prop_map(|((body, len), marks, repeat)| {
        let (dest, psn, ack_req, forward, backward) = marks;
        let outside = matches!(body, Body::Connect(_) | Body::UmSend(..));
        let counted = body.is_sequenced()
            || matches!(body, Body::Ack(_) | Body::Nak(_) | Body::Tail(_) | Body::Repair(_));
        let header = PacketHeader {
            dest: Tpn::from_low_bits(if outside { 0 } else { dest | 1 }),
            psn: Psn::new(if counted { psn } else { 0 }),
            ack_req: ack_req && body.is_sequenced(),
            repeat: repeat.filter(|_| body.is_sequenced()),
            congestion: Congestion { forward, backward },
            body,
        };
        (header, len)
    })
}

/// Payload whose bytes show their position.
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + 1).to_le_bytes()[0]).collect()
}
