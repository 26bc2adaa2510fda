//! The worked examples of docs/wire-spec.md and of examples.md: each parses to the values below, has
//! the headers its lines name, and comes out the same; and every table of codes of the specification
//! is the one in the code.

use std::collections::BTreeMap;
use std::path::PathBuf;

use urma_packet::*;

const DOCUMENT: &str = "../../docs/wire-spec.md";
/// The examples that the specification does not show.
const EXAMPLES: &str = include_str!("examples.md");

struct Example {
    flow: IcrcFlow,
    bytes: Vec<u8>,
    /// Header name and length of each line.
    lines: Vec<(String, usize)>,
}

fn document() -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(DOCUMENT);
    std::fs::read_to_string(path).expect("docs/wire-spec.md")
}

fn examples() -> BTreeMap<String, Example> {
    let text = document() + EXAMPLES;
    let blocks = text.split("```wire\n").skip(1);
    blocks.map(|block| example(block.split("```").next().expect("closed"))).collect()
}

fn example(block: &str) -> (String, Example) {
    let mut lines = block.lines();
    let head = lines.next().expect("name and flow");
    let mut words = head.split_whitespace();
    let mut word = || words.next().expect("name: source > dest");
    let name = word().trim_end_matches(':').to_owned();
    let source = word().parse().expect("source");
    assert_eq!(word(), ">");
    let flow = IcrcFlow::new(source, word().parse().expect("dest"));
    let mut example = Example { flow, bytes: Vec::new(), lines: Vec::new() };
    for line in lines {
        let (hex, label) = line.split_once('#').expect("every line names its header");
        let digits = hex.split_whitespace().map(|byte| u8::from_str_radix(byte, 16));
        let bytes: Vec<u8> = digits.collect::<Result<_, _>>().expect("hex");
        let label = label.split_whitespace().next().expect("a label").to_owned();
        example.lines.push((label, bytes.len()));
        example.bytes.extend(bytes);
    }
    (name, example)
}

const PAYLOAD: &[u8] = b"hello";
const NODE_A: WireEid = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1];
const COOKIE: Cookie = *b"\xc0\x01\xc0\x02\xc0\x03\xc0\x04\xc0\x05\xc0\x06\xc0\x07\xc0\x08";
const NODE_B: WireEid = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 2];

fn jetty(id: u32) -> JettyId {
    JettyId::new(id).expect("20 bits")
}

fn request(op: RequestOp) -> RequestHeader {
    let access = if op.is_send() {
        MemoryAccess { address: 0, token_id: TokenId::default(), length: 5 }
    } else {
        let token_id = TokenId::new(3).expect("20 bits");
        MemoryAccess { address: 0x7f00_1234_5000, token_id, length: 5 }
    };
    RequestHeader {
        flags: RequestFlags::ONLY,
        order: OrderTag::None,
        tassn: 0x0102,
        initiator: Initiator { kind: InitiatorKind::Jetty, id: jetty(0x400) },
        target: Some(Target { kind: TargetKind::Jetty, id: jetty(0x401), hint: 0 }),
        token: Some(TokenValue(0xdead_beef)),
        access,
        op,
    }
}

fn data(body: Body) -> PacketHeader {
    PacketHeader { ack_req: true, ..PacketHeader::new(tpn(0x11), Psn::new(0x100), body) }
}

fn tpn(value: u32) -> Tpn {
    Tpn::new(value).expect("24 bits")
}

fn response(status: ResponseStatus, body: ResponseBody) -> Body {
    let ack = ResponseHeader::ack(&request(RequestOp::Write), status);
    Body::Response(ResponseHeader { body, ..ack })
}

fn offer() -> HandshakeBody {
    HandshakeBody {
        version_min: 1,
        version_max: 1,
        mtu: Mtu::B4096,
        strategies: StrategyCaps::GO_BACK_N | StrategyCaps::SELECTIVE_REPEAT,
        incarnation: 0x0011_2233_4455_6677,
        source_eid: NODE_A,
        dest_eid: NODE_B,
        source_tpn: tpn(0x12),
        first_psn: Psn::new(0xab_cdef),
        window: 256,
        source_uasid: 1,
        dest_uasid: 0,
        state: 0x5eed_0001,
        nonce: 0x8899_aabb_ccdd_eeff,
        close_key: 0xc105_e0c1_05e0_0001,
        purpose: Purpose::Open,
        cookie: [0; 16],
        ports: further(1),
    }
}

/// The further port of a node: 10.1.0.`host`.
fn further(host: u8) -> FurtherPorts {
    let mut address = NODE_A;
    address[13..].copy_from_slice(&[1, 0, host]);
    FurtherPorts::new(&[address]).expect("an address")
}

fn choice() -> HandshakeBody {
    HandshakeBody {
        mtu: Mtu::B1024,
        strategies: StrategyCaps::SELECTIVE_REPEAT,
        incarnation: 7,
        source_eid: NODE_B,
        dest_eid: NODE_A,
        source_tpn: tpn(0x11),
        first_psn: Psn::new(0x100),
        dest_uasid: 1,
        state: 0x5eed_0002,
        close_key: 0xc105_e0c1_05e0_0002,
        ports: further(2),
        ..offer()
    }
}

fn acks() -> Vec<(&'static str, PacketHeader)> {
    let received = SackBitmap::from_words(&[0b101]).expect("one word");
    let ack = Ack { window: 253, congestion: true, trigger: Psn::new(0x104), received };
    let nak = Ack { congestion: false, received: SackBitmap::default(), ..ack };
    let at = |body| PacketHeader::new(tpn(0x12), Psn::new(0x101), body);
    vec![("ack-with-gaps", at(Body::Ack(ack))), ("nak", at(Body::Nak(nak)))]
}

/// PSN 0x108 and 0x110 to 0x12f were lost again.
fn losses() -> ReportBody {
    let run = |start, count| MissingRun { start: Psn::new(start), count };
    ReportBody::new(2, 5, &[run(0x108, 1), run(0x110, 32)]).expect("two runs")
}

fn controls() -> Vec<(&'static str, PacketHeader)> {
    let refusal = RefuseBody {
        reason: RefuseReason::Resources,
        version_min: 1,
        version_max: 1,
        state: choice().state,
        nonce: offer().nonce,
    };
    let key = offer().close_key;
    let close = Close { reason: CloseReason::Shutdown, source_tpn: tpn(0x12), key };
    let unknown = Close { reason: CloseReason::UnknownTp, source_tpn: tpn(0x11), key: 0 };
    let challenge = Challenge { nonce: offer().nonce, cookie: COOKIE };
    let question =
        HandshakeBody { nonce: 0x0123_4567_89ab_cdef, purpose: Purpose::Verify, ..offer() };
    let at = |dest, body| PacketHeader::new(tpn(dest), Psn::new(0), body);
    let tail = TailBody { first_end: Psn::new(0x131), ticket_end: 6, rtt_ns: 10_000_000 };
    vec![
        ("connect", at(0, Body::Connect(offer()))),
        ("challenge", at(0x12, Body::Challenge(challenge))),
        ("connect-again", at(0, Body::Connect(HandshakeBody { cookie: COOKIE, ..offer() }))),
        ("connect-verify", at(0, Body::Connect(question))),
        ("accept", at(0x12, Body::Accept(choice()))),
        ("refuse", at(0x12, Body::Refuse(refusal))),
        ("close", at(0x11, Body::Close(close))),
        ("unknown-tp", at(0, Body::Close(unknown))),
        ("losses", at(0x12, Body::Losses(losses()))),
        ("tail", PacketHeader::new(tpn(0x11), Psn::new(0x140), Body::Tail(tail))),
        ("probe-echo", at(0x12, Body::ProbeEcho(PathProbe { nonce: offer().nonce, size: 1472 }))),
    ]
}

fn requests() -> Vec<(&'static str, PacketHeader, &'static [u8])> {
    let at = |op| data(Body::Request(request(op)));
    let notify = Notify {
        address: 0x7f00_1234_6000,
        token_id: TokenId::new(4).expect("20 bits"),
        token: TokenValue(0xfeed_face),
        data: 42,
    };
    let imm = WriteImm { imm: 0x0102_0304_0506_0708, token: Some(TokenValue(0xcafe_f00d)) };
    let swap = AtomicOperands { size: OperandSize::B8, operand: 2, compare: 1 };
    let mut cas = request(RequestOp::Atomic(AtomicOp::CompareSwap, swap));
    (cas.target, cas.access.length) = (None, 8);
    let invalidate =
        Invalidate { token_id: TokenId::new(5).expect("20 bits"), token: TokenValue(6) };
    let mut ordered = request(RequestOp::Read);
    ordered.order = OrderTag::Strong;
    ordered.flags |= RequestFlags::COMP_ORDER | RequestFlags::FENCE;
    (ordered.target, ordered.token) = (None, None);
    let ends = UmHeader { source_eid: NODE_A, dest_eid: NODE_B, source_uasid: 1, dest_uasid: 2 };
    let mut datagram = request(RequestOp::Send);
    datagram.flags |= RequestFlags::DATAGRAM | RequestFlags::NO_TAACK | RequestFlags::SOLICITED;
    let datagram = Body::UmSend(ends, datagram);
    let probe = PathProbe { nonce: 0x0123_4567_89ab_cdef, size: 64 };
    let repeat = Some(Repeat { tier: 2, ticket: 5 });
    let repeated = PacketHeader { psn: Psn::new(0x108), repeat, ..at(RequestOp::Write) };
    vec![
        ("write", at(RequestOp::Write), PAYLOAD),
        ("write-repeated", repeated, PAYLOAD),
        ("send-imm", at(RequestOp::SendImm(0x0102_0304_0506_0708)), PAYLOAD),
        ("send-invalidate", at(RequestOp::SendInvalidate(invalidate)), PAYLOAD),
        ("write-imm", at(RequestOp::WriteImm(imm)), PAYLOAD),
        ("write-notify", at(RequestOp::WriteNotify(notify)), PAYLOAD),
        ("read", data(Body::Request(ordered)), &[]),
        ("compare-swap", data(Body::Request(cas)), &[]),
        ("probe", PacketHeader::new(tpn(0x11), Psn::new(0), Body::Probe(probe)), &[0; 32]),
        ("um-send", PacketHeader::new(tpn(0), Psn::new(0), datagram), PAYLOAD),
    ]
}

fn responses() -> Vec<(&'static str, PacketHeader, &'static [u8])> {
    let at = |status, body| PacketHeader {
        dest: tpn(0x12),
        ack_req: false,
        ..data(response(status, body))
    };
    let read = ResponseBody::ReadData { offset: 1024, length: 1029 };
    let value = ResponseBody::Atomic(AtomicValue { size: OperandSize::B8, value: 1 });
    let not_ready = ResponseStatus::ReceiverNotReady { timer: 12 };
    let late = ResponseStatus::OutOfSequence { expected: 0x0100 };
    vec![
        ("taack", at(ResponseStatus::Ack, ResponseBody::None), &[]),
        ("taack-of-three", at(ResponseStatus::Ack, ResponseBody::Acks { earlier: 2 }), &[]),
        ("not-ready", at(not_ready, ResponseBody::None), &[]),
        ("out-of-sequence", at(late, ResponseBody::None), &[]),
        ("read-response-last", at(ResponseStatus::Ack, read), PAYLOAD),
        ("atomic-response", at(ResponseStatus::Ack, value), &[]),
    ]
}

/// A WRITE that a response joined.
fn pack() -> (&'static str, PacketHeader, &'static [u8]) {
    let write = data(Body::Request(request(RequestOp::Write)));
    let mut bytes = vec![0; write.packet_len(PAYLOAD.len())];
    let frame = write.emit_headers(PAYLOAD.len(), &mut bytes).expect("emits");
    bytes[frame.payload].copy_from_slice(PAYLOAD);
    let Body::Response(ack) = response(ResponseStatus::Ack, ResponseBody::None) else {
        unreachable!()
    };
    let ack = TransactionHeader::Response(ack);
    join_pack(&mut bytes, (&ack, 0), 256).expect("right").expect("room");
    let entries = bytes[BTH_LEN..bytes.len() - ICRC_LEN].to_vec();
    ("pack", data(Body::Pack), entries.leak())
}

/// Product in GF(2^8) with x^8 + x^4 + x^3 + x^2 + 1, digit by digit.
fn product(a: u8, b: u8) -> u8 {
    let long =
        (0..8).filter(|bit| b >> bit & 1 == 1).fold(0_u16, |sum, bit| sum ^ u16::from(a) << bit);
    let short = (8..16).rev().fold(long, |rest, bit| {
        if rest >> bit & 1 == 1 { rest ^ 0x11d << (bit - 8) } else { rest }
    });
    short.to_le_bytes()[0]
}

/// The repair packet of a group of one: the first WRITE. Its word is that packet's times 1 / 255.
fn repair() -> (&'static str, PacketHeader, &'static [u8]) {
    let factor = (1..=u8::MAX).find(|value| product(*value, u8::MAX) == 1).expect("a field");
    let write = data(Body::Request(request(RequestOp::Write)));
    let mut bytes = vec![0; write.packet_len(PAYLOAD.len())];
    let frame = write.emit_headers(PAYLOAD.len(), &mut bytes).expect("emits");
    bytes[frame.payload].copy_from_slice(PAYLOAD);
    let (head, body) = code_word(&bytes).expect("long enough");
    let again = packet_of_word(&[&head[..], body, &[0; 8]].concat(), write.dest, write.psn);
    let word: Vec<u8> = head.iter().chain(body).map(|byte| product(*byte, factor)).collect();
    bytes[8] &= 0x7f;
    assert_eq!(again.as_ref(), Some(&bytes), "but for AckReq");
    let repair = RepairBody { last: 0, begin: 0, groups: 1, group: 0, number: 0 };
    ("repair", PacketHeader::new(tpn(0x11), Psn::new(0x100), Body::Repair(repair)), word.leak())
}

/// Every example of the documents, with what it means.
fn expected() -> Vec<(&'static str, PacketHeader, &'static [u8])> {
    let plain = acks().into_iter().chain(controls());
    let plain = plain.map(|(name, header)| (name, header, &[][..]));
    let data = requests().into_iter().chain(responses()).chain([pack(), repair()]);
    data.chain(plain).collect()
}

fn request_lines(header: &RequestHeader, lines: &mut Vec<(&str, usize)>) {
    lines.push(("BTAH", BTAH_LEN));
    if header.target.is_some() {
        lines.push(("MTETAH", 4));
    }
    lines.push(("MAETAH", 16));
    if header.token.is_some() {
        lines.push(("TVETAH", 4));
    }
    match header.op {
        RequestOp::SendImm(_) => lines.push(("IMMETH", 8)),
        RequestOp::WriteImm(_) => lines.push(("WIMMETH", 16)),
        RequestOp::SendInvalidate(_) => lines.push(("INVETH", 8)),
        RequestOp::WriteNotify(_) | RequestOp::WriteAtomicAdd(_) => lines.push(("NOTIFYETH", 24)),
        RequestOp::Atomic(..) => lines.push(("ATOMETH", 24)),
        _ => {}
    }
}

fn response_lines(response: &ResponseHeader, lines: &mut Vec<(&str, usize)>) {
    lines.extend([("ATAH", ATAH_LEN), ("MTETAH", 4)]);
    match response.body {
        ResponseBody::None | ResponseBody::Acks { .. } => {}
        ResponseBody::ReadData { .. } => lines.push(("RDETAH", 8)),
        ResponseBody::Atomic(_) => lines.push(("AVETH", 16)),
    }
}

fn payload_lines(len: usize, lines: &mut Vec<(&str, usize)>) {
    lines.extend([("payload", len), ("pad", len.next_multiple_of(4) - len)]);
}

fn pack_lines(payload: &[u8], lines: &mut Vec<(&str, usize)>) {
    for entry in PackEntries::new(payload, 0) {
        let Transaction { header, payload } = entry.expect("an entry");
        lines.push(("PKETH", 4));
        match header {
            TransactionHeader::Request(request) => request_lines(&request, lines),
            TransactionHeader::Response(response) => response_lines(&response, lines),
        }
        payload_lines(payload.len(), lines);
    }
}

/// Headers of a packet in order, by the names of the document.
fn lines_of(header: &PacketHeader, payload: &[u8]) -> Vec<(String, usize)> {
    let mut lines = vec![("BTH", BTH_LEN)];
    if header.repeat.is_some() {
        lines.push(("REPETH", Repeat::LEN));
    }
    match &header.body {
        Body::Request(request) => request_lines(request, &mut lines),
        Body::UmSend(_, request) => {
            lines.push(("UMETH", 40));
            request_lines(request, &mut lines);
        }
        Body::Response(response) => response_lines(response, &mut lines),
        Body::Pack => pack_lines(payload, &mut lines),
        Body::Ack(ack) | Body::Nak(ack) => {
            lines.push(("TPAETH", 8));
            lines.extend(ack.received.words().iter().map(|_| ("SACK", 8)));
        }
        Body::Connect(_) | Body::Accept(_) => lines.push(("TPCETH", HandshakeBody::LEN)),
        Body::Challenge(_) => lines.push(("TPKETH", Challenge::LEN)),
        Body::Refuse(_) => lines.push(("TPRETH", RefuseBody::LEN)),
        Body::Close(_) => lines.push(("TPXETH", Close::LEN)),
        Body::Probe(_) | Body::ProbeEcho(_) => lines.push(("TPPETH", PathProbe::LEN)),
        Body::Losses(losses) => {
            lines.push(("TPLETH", 8));
            lines.extend(losses.runs().iter().map(|_| ("RUN", 8)));
        }
        Body::Tail(_) => lines.push(("TPTETH", TailBody::LEN)),
        Body::Repair(_) => lines.push(("TPFETH", RepairBody::LEN)),
    }
    if header.body != Body::Pack {
        payload_lines(payload.len(), &mut lines);
    }
    lines.retain(|&(_, len)| len > 0);
    lines.push(("ICRC", ICRC_LEN));
    lines.into_iter().map(|(name, len)| (name.to_owned(), len)).collect()
}

fn as_block(name: &str, lines: &[(String, usize)], bytes: &[u8]) -> String {
    let mut text = format!("```wire\n{name}: 10.0.0.1:4791 > 10.0.0.2:4791\n");
    let mut rest = bytes;
    for (label, len) in lines {
        let (line, after) = rest.split_at(*len);
        line.iter().for_each(|byte| text += &format!("{byte:02x} "));
        text += &format!("# {label}\n");
        rest = after;
    }
    text + "```\n"
}

#[test]
fn the_examples_are_what_the_code_emits_and_parses() {
    let mut documented = examples();
    let mut missing = String::new();
    for (name, header, payload) in expected() {
        let lines = lines_of(&header, payload);
        let mut bytes = vec![0; header.packet_len(payload.len())];
        let Some(example) = documented.remove(name) else {
            let ends = ["10.0.0.1:4791", "10.0.0.2:4791"].map(|end| end.parse().expect("ends"));
            header.emit(payload, &IcrcFlow::new(ends[0], ends[1]), &mut bytes).expect("emits");
            missing += &as_block(name, &lines, &bytes);
            continue;
        };
        let packet = Packet::open(&example.bytes, &example.flow)
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!((packet.header, packet.payload), (header, payload), "{name}");
        assert_eq!(example.lines, lines, "{name}");
        header.emit(payload, &example.flow, &mut bytes).expect("emits");
        assert_eq!(bytes, example.bytes, "{name}");
    }
    assert!(missing.is_empty(), "in no document:\n{missing}");
    let unknown: Vec<_> = documented.keys().collect();
    assert!(unknown.is_empty(), "unknown examples: {unknown:?}");
}

/// `| 0xNN | Name |` rows of the document.
fn has_row(text: &str, code: u8, name: &str) -> bool {
    let row = format!("| {code:#04x} | {name} |");
    text.contains(&row)
}

#[test]
fn the_tables_have_every_code() {
    let text = document();
    for opcode in TpOpcode::ALL {
        assert!(has_row(&text, opcode.code(), &format!("{opcode:?}")), "{opcode:?}");
    }
    for opcode in TaOpcode::ALL {
        assert!(has_row(&text, opcode.code(), &format!("{opcode:?}")), "{opcode:?}");
    }
    for opcode in ResponseOp::ALL {
        assert!(has_row(&text, opcode.code(), &format!("{opcode:?}")), "{opcode:?}");
    }
    for opcode in AtomicOp::ALL {
        let names = [format!("{opcode:?}"), format!("Atomic{opcode:?}")];
        assert!(names.iter().any(|name| has_row(&text, opcode.code(), name)), "{opcode:?}");
    }
    for reason in RefuseReason::ALL {
        assert!(has_row(&text, reason.code(), &format!("{reason:?}")), "{reason:?}");
    }
    for reason in CloseReason::ALL {
        assert!(has_row(&text, reason.code(), &format!("{reason:?}")), "{reason:?}");
    }
    for mtu in Mtu::ALL {
        assert!(has_row(&text, mtu.code(), &format!("{} bytes", mtu.bytes())), "{mtu:?}");
    }
    for reason in PacketError::REASONS {
        assert!(text.contains(&format!("| `{reason}` |")), "{reason}");
    }
}

#[test]
fn the_response_table_is_the_one_in_the_code() {
    let text = document();
    let all = [
        ResponseStatus::Ack,
        ResponseStatus::ReceiverNotReady { timer: 0 },
        ResponseStatus::OutOfSequence { expected: 0 },
        ResponseStatus::Length,
        ResponseStatus::Unsupported,
        ResponseStatus::NoResources,
        ResponseStatus::TargetReset,
        ResponseStatus::NoTarget,
        ResponseStatus::AccessAbort,
        ResponseStatus::DataPoison,
    ];
    for status in all {
        let (state, info) = status.codes();
        let info = match status {
            ResponseStatus::ReceiverNotReady { .. } => "timer".to_owned(),
            _ => info.to_string(),
        };
        let name = format!("{status:?}");
        let name = name.split_whitespace().next().expect("a name");
        let row = format!("| {state} | {info} | {name} | {} |", status.cr_status());
        assert!(text.contains(&row), "{row}");
    }
}

/// Each bit of a packet has a meaning: with one bit changed, or two that stand at the same place of
/// two bytes (which would cancel each other), a packet is refused or comes out as it came in.
#[test]
fn no_bit_of_the_examples_is_passed_over() {
    for (name, header, payload) in expected() {
        let total = header.packet_len(payload.len());
        let mut good = vec![0; total];
        let place = header.emit_headers(payload.len(), &mut good).expect("emits").payload;
        good[place].copy_from_slice(payload);
        let covered = total - ICRC_LEN;
        for (first, second) in (0..covered).flat_map(|at| (at..covered).map(move |to| (at, to))) {
            for bit in 0..8 {
                let mut bytes = good.clone();
                bytes[first] ^= 1 << bit;
                if second != first {
                    bytes[second] ^= 1 << bit;
                }
                let Ok(packet) = Packet::parse(&bytes) else { continue };
                let mut again = vec![0xaa; total];
                let len = packet.payload.len();
                let frame = packet.header.emit_headers(len, &mut again).expect("accepted");
                again[frame.payload].copy_from_slice(packet.payload);
                let at = format!("{name}: bit {bit} of bytes {first} and {second}");
                assert_eq!((frame.total, &again[..covered]), (total, &bytes[..covered]), "{at}");
            }
        }
    }
}
