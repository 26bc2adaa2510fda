//! tools/wireshark/urma.lua in tshark: the INC headers of the golden frames are those that this crate reads, and none is malformed.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test fails by it")]

use std::io::Write as _;
use std::process::Command;
use std::{env, fs, process};

use inc::wire::{HEADER_LEN, IncHeader};
use serde_json::Value;
use urma_packet::capture::CaptureWriter;
use urma_packet::frame::UdpDatagram;
use urma_packet::roce::{RocePacket, rc};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tools/wireshark/urma.lua");
const FIELDS: [&str; 8] = [
    "inc.kind",
    "inc.operator",
    "inc.type",
    "inc.seq",
    "inc.epoch",
    "inc.count",
    "inc.op_id",
    "_ws.malformed",
];

/// Accepted frames: name, bytes, and what tshark is to print of its INC header.
fn frames() -> Vec<(String, Vec<u8>, String)> {
    let all: Value = serde_json::from_str(include_str!("golden/inc_golden.json")).unwrap();
    let mut found = Vec::new();
    for frame in all["frames"].as_array().unwrap() {
        if frame["outcome"] != "accept" {
            continue;
        }
        let hex = frame["frame"].as_str().unwrap();
        let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        let bytes: Vec<u8> = (0..hex.len()).step_by(2).map(byte).collect();
        let datagram = UdpDatagram::parse(&bytes).unwrap();
        let packet = RocePacket::open(datagram.payload, &datagram.flow).unwrap();
        let opcode = packet.header.bth.opcode & 0x1f;
        let begins = [rc::SEND_ONLY_IMM, rc::WRITE_ONLY_IMM, rc::SEND_FIRST, rc::WRITE_FIRST];
        let header =
            packet.payload.first_chunk::<HEADER_LEN>().filter(|_| begins.contains(&opcode));
        let is_inc = header.is_some_and(|header| header[0] >> 4 == 1);
        let wanted = header.filter(|_| is_inc).map_or_else(
            || "\t".repeat(FIELDS.len() - 1),
            |h| {
                let of = |at: usize| u32::from(h[at]) << 8 | u32::from(h[at + 1]);
                let seq = of(4) << 16 | of(6);
                let (kind, epoch, count, op_id) = (h[0] & 15, of(8), of(10), of(12));
                format!("{kind}\t{}\t{}\t{seq}\t{epoch}\t{count}\t{op_id}\t", h[2], h[3])
            },
        );
        let whole = [rc::SEND_ONLY_IMM, rc::WRITE_ONLY_IMM].contains(&opcode);
        if let (true, Some(imm)) = (whole, packet.header.ext.imm) {
            // What is printed is what this crate reads, too.
            let (header, _) = IncHeader::parse_with_imm(packet.payload, imm.value).unwrap();
            let parts: Vec<_> = wanted.split('\t').collect();
            let read = [header.seq.0, header.epoch.0.into(), header.count.into()];
            assert_eq!(parts[3..6], read.map(|value| value.to_string()));
        }
        found.push((frame["name"].as_str().unwrap().to_owned(), bytes, wanted));
    }
    found
}

#[test]
fn tshark_shows_the_header_of_each_golden_frame() {
    match Command::new("tshark").arg("--version").output() {
        Ok(output) if String::from_utf8_lossy(&output.stdout).contains("with Lua") => {}
        Ok(_) => return urma_skip::skip("this tshark is built without Lua"),
        Err(error) => {
            return urma_skip::skip(format!("tshark: {error} (Debian: apt install tshark)"));
        }
    }
    let frames = frames();
    let file = env::temp_dir().join(format!("inc-tshark-{}.pcap", process::id()));
    let mut capture = CaptureWriter::new(fs::File::create(&file).unwrap()).unwrap();
    for (at, (_, frame, _)) in (0..).zip(&frames) {
        capture.write(at * 1000, frame).unwrap();
    }
    capture.finish().unwrap().flush().unwrap();
    let output = Command::new("tshark")
        .args(["-n", "-X", &format!("lua_script:{SCRIPT}"), "-r"])
        .arg(&file)
        .args(["--disable-protocol", "rpcordma", "-o", "udp.ignore_ipv6_zero_checksum:TRUE"])
        .args(["-T", "fields"])
        .args(FIELDS.iter().flat_map(|field| ["-e", field]))
        .output()
        .unwrap();
    fs::remove_file(&file).unwrap();
    let (text, errors) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && !errors.contains("Lua"), "{errors}");
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), frames.len());
    let shown = lines.iter().filter(|line| !line.trim().is_empty()).count();
    assert_eq!(shown, 17, "16 of one packet, and the first of three packets");
    for ((name, _, wanted), line) in frames.iter().zip(lines) {
        assert_eq!(line, wanted, "{name}");
    }
}
