//! Frames and reductions that another implementation made (scapy, numpy).
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test fails by it")]

use std::net::SocketAddr;

use inc::element::{ElementType, Operator, Reduction};
use inc::reduce::{accumulate, fold};
use inc::wire::{HEADER_LEN, IncHeader, IncKind};
use serde_json::Value;
use urma_packet::frame::{UdpDatagram, emit};
use urma_packet::roce::{RocePacket, rc};
use urma_packet::{IcrcFlow, PacketError};

fn bytes_of(hex: &Value) -> Vec<u8> {
    let hex = hex.as_str().unwrap();
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

fn frames() -> Vec<(String, String, Vec<u8>, Value)> {
    let all: Value = serde_json::from_str(include_str!("golden/inc_golden.json")).unwrap();
    let frames = all["frames"].as_array().unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let one = |f: &Value| (text(&f["name"]), text(&f["outcome"]), bytes_of(&f["frame"]), f.clone());
    frames.iter().map(one).collect()
}

/// The INC header of a frame of one packet, or why it is refused; `None`: it carries none.
fn header_of(frame: &[u8]) -> Result<Option<IncHeader>, PacketError> {
    let datagram = UdpDatagram::parse(frame)?;
    let packet = RocePacket::open(datagram.payload, &datagram.flow)?;
    let imm = packet.header.ext.imm.map(|imm| imm.value);
    let opcode = packet.header.bth.opcode & 0x1f;
    match imm {
        Some(imm) if opcode != rc::WRITE_LAST_IMM && opcode != rc::SEND_LAST_IMM => {
            let (header, data) = IncHeader::parse_with_imm(packet.payload, imm)?;
            assert_eq!(&header.to_bytes()[..], &packet.payload[..HEADER_LEN]);
            assert_eq!(data, &packet.payload[HEADER_LEN..]);
            Ok(Some(header))
        }
        _ => Ok(None),
    }
}

#[test]
fn every_frame_is_accepted_or_refused_for_its_reason() {
    let mut headers = 0;
    for (name, outcome, frame, fields) in frames() {
        match header_of(&frame) {
            Ok(header) => {
                assert_eq!(outcome, "accept", "{name}");
                if let Some(header) = header {
                    assert_eq!(fields["seq"], header.seq.0, "{name}");
                    headers += 1;
                }
            }
            Err(error) => assert_eq!(error.reason(), outcome, "{name}: {error}"),
        }
    }
    // Of 24 accepted ones, three acknowledge, two are plain, three are parts of one message.
    assert_eq!(headers, 16);
}

#[test]
fn every_accepted_frame_is_written_again() {
    for (name, outcome, frame, _) in frames() {
        if outcome != "accept" {
            continue;
        }
        let datagram = UdpDatagram::parse(&frame).unwrap();
        let packet = RocePacket::open(datagram.payload, &datagram.flow).unwrap();
        let mut payload = vec![0; 2048];
        let ends: [SocketAddr; 2] = [datagram.source, datagram.dest];
        let len = packet.header.emit(packet.payload, &flow_of(&frame), &mut payload).unwrap();
        let macs = [frame[..6].try_into().unwrap(), frame[6..12].try_into().unwrap()];
        let mut again = vec![0; 4096];
        let total = emit(macs, ends[0], ends[1], &payload[..len], &mut again).unwrap();
        assert_eq!(again[..total], frame, "{name}");
    }
}

/// The ICRC's view of the headers that the frame has.
fn flow_of(frame: &[u8]) -> IcrcFlow {
    UdpDatagram::parse(frame).unwrap().flow
}

#[test]
fn a_message_of_three_packets_is_one_chunk() {
    let all = frames();
    let part = |name: &str| {
        let (.., frame, _) = all.iter().find(|(found, ..)| found == name).unwrap();
        let datagram = UdpDatagram::parse(frame).unwrap();
        let packet = RocePacket::open(datagram.payload, &datagram.flow).unwrap();
        (packet.payload.to_vec(), packet.header.ext)
    };
    let (mut message, first) = part("long_first");
    message.extend(part("long_middle").0);
    let (last, ext) = part("long_last");
    message.extend(last);
    assert_eq!(first.reth.map(|reth| reth.dma_len), Some(656));
    let (header, data) = IncHeader::parse_with_imm(&message, ext.imm.unwrap().value).unwrap();
    let IncKind::Contribution(collective) = header.kind else { panic!("{header:?}") };
    let sum = Reduction::new(Operator::Sum, ElementType::F64);
    assert_eq!((collective.reduction(), header.count, data.len()), (sum, 80, 640));
    assert_eq!(data[8 * 5..8 * 6], 1.25_f64.to_le_bytes());
}

/// The value of a tree: a rank, or a list of trees.
fn value(tree: &Value, ranks: &[Vec<u8>], reduction: Reduction) -> Vec<u8> {
    if let Some(rank) = tree.as_u64() {
        return ranks[usize::try_from(rank).unwrap()].clone();
    }
    let children = tree.as_array().unwrap().iter();
    let children: Vec<_> = children.map(|child| value(child, ranks, reduction)).collect();
    let mut out = vec![0xee; children[0].len()];
    fold(reduction, children.iter().map(Vec::as_slice), &mut out);
    if !reduction.is_ordered() {
        // In any order, one at a time.
        let mut other = children[children.len() - 1].clone();
        for child in children[..children.len() - 1].iter().rev() {
            accumulate(reduction, &mut other, child);
        }
        assert_eq!(other, out, "{reduction:?}");
    }
    out
}

#[test]
fn every_reduction_has_the_bits_of_another_implementation() {
    let cases: Value = serde_json::from_str(include_str!("golden/inc_reduce.json")).unwrap();
    let cases = cases.as_array().unwrap();
    assert_eq!(cases.len(), 136);
    let names = |list: &[&str], name: &Value| {
        u8::try_from(list.iter().position(|known| name == *known).unwrap() + 1).unwrap()
    };
    let operators = [
        "SUM", "PROD", "MIN", "MAX", "LAND", "LOR", "LXOR", "BAND", "BOR", "BXOR", "MINLOC",
        "MAXLOC",
    ];
    let elements = [
        "I8", "I16", "I32", "I64", "U8", "U16", "U32", "U64", "F16", "BF16", "F32", "F64", "", "",
        "", "I32_I32", "I64_I32", "F32_I32", "F64_I32",
    ];
    for case in cases {
        let operator = Operator::from_code(names(&operators, &case["op"])).unwrap();
        let element = ElementType::from_code(names(&elements, &case["type"])).unwrap();
        let reduction = Reduction::new(operator, element).unwrap();
        let ranks: Vec<_> = case["ranks"].as_array().unwrap().iter().map(bytes_of).collect();
        let found = value(&case["tree"], &ranks, reduction);
        assert_eq!(
            found,
            bytes_of(&case["result"]),
            "{} {} {}",
            case["op"],
            case["type"],
            case["tree"]
        );
    }
}

#[test]
fn the_examples_of_the_specification_are_what_is_written() {
    let page = include_str!("../../docs/wire-spec.md");
    let (_, block) = page.split_once("```inc\n").unwrap();
    let (block, _) = block.split_once("```").unwrap();
    let bytes = |text: &str| -> Vec<u8> {
        text.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
    };
    let mut names = Vec::new();
    for line in block.lines() {
        let (name, rest) = line.split_once(": ").unwrap();
        let (header, data) = rest.split_once('|').unwrap();
        let message = [bytes(header), bytes(data)].concat();
        let (parsed, found) = IncHeader::parse(&message).unwrap();
        assert_eq!((&parsed.to_bytes()[..], found), (&bytes(header)[..], &bytes(data)[..]));
        let kind = match parsed.kind {
            IncKind::Contribution(_) => "contribution",
            IncKind::Result(_) => "result",
            IncKind::Release(_) => "release",
            IncKind::Abort(_) => "abort",
        };
        assert_eq!(name, kind);
        // Each is a frame of the other implementation, too.
        let is_there = frames().iter().any(|(_, outcome, frame, _)| {
            outcome == "accept" && frame.windows(message.len()).any(|window| window == message)
        });
        assert!(is_there, "{name}");
        names.push(kind);
    }
    assert_eq!(names, ["contribution", "result", "release", "abort"]);
}

/// Codes of operators and types, as the specification's table has them.
#[test]
fn the_tables_of_the_specification_are_those_of_the_code() {
    let page = include_str!("../../docs/wire-spec.md");
    let row = |name: &str| {
        let start = format!("| {name} |");
        page.lines().find(|line| line.contains(&start)).unwrap().to_owned()
    };
    let operators = row("Operator");
    for operator in Operator::ALL {
        let entry = format!("{} {}", operator.code(), format!("{operator:?}").to_uppercase());
        assert!(operators.contains(&entry), "{entry}");
    }
    let types = row("Type");
    for (element, name) in [
        (ElementType::F16, "F16"),
        (ElementType::Bf16, "BF16"),
        (ElementType::F32, "F32"),
        (ElementType::F64, "F64"),
        (ElementType::I32I32, "I32_I32"),
        (ElementType::I64I32, "I64_I32"),
        (ElementType::F32I32, "F32_I32"),
        (ElementType::F64I32, "F64_I32"),
    ] {
        assert!(types.contains(&format!("{} {name}", element.code())), "{name}");
    }
    let ends = [ElementType::I8, ElementType::I64, ElementType::U8, ElementType::U64];
    assert_eq!(ends.map(ElementType::code), [1, 4, 5, 8]);
    assert!(types.contains("1 to 4 I8 to I64, 5 to 8 U8 to U64"));
}
