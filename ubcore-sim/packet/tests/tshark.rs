//! tools/wireshark/urma.lua in tshark: every field of every packet equals what this crate decodes,
//! and no packet is malformed, with the dissector and without.

mod common;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, process};

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use urma_packet::capture::CaptureWriter;
use urma_packet::roce::{
    Aeth, AtomicAckEth, AtomicEth, Deth, Feth, Headers, Ieth, ImmDt, PacketLayout, PayloadRule,
    Rdeth, Reth, RoceExt, RoceHeader, Syndrome, TRANSPORT_RD,
};
use urma_packet::*;

const SCRIPT: &str = "../../tools/wireshark/urma.lua";
const DOCUMENT: &str = "../../docs/wire-spec.md";
/// Packets drawn at random besides the examples of the document.
const DRAWN: usize = 600;

/// Values of a packet by filter name, in the order of the packet.
type Fields = BTreeMap<String, Vec<String>>;

fn root(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn ends() -> [SocketAddr; 2] {
    ["10.0.0.1:4791", "10.0.0.2:4791"].map(|end| end.parse().expect("an address"))
}

/// Whether tshark runs here; if not, the test counts as skipped.
fn has_tshark() -> bool {
    let found = Command::new("tshark").arg("--version").output();
    match found {
        Ok(output) if String::from_utf8_lossy(&output.stdout).contains("with Lua") => true,
        Ok(_) => {
            urma_skip::skip("this tshark is built without Lua");
            false
        }
        Err(error) => {
            urma_skip::skip(format!("tshark: {error} (Debian: apt install tshark)"));
            false
        }
    }
}

/// Runs tshark on a capture of these UDP payloads; its output.
fn tshark(name: &str, packets: &[Vec<u8>], arguments: &[&str]) -> String {
    let file = env::temp_dir().join(format!("urma-tshark-{}-{name}.pcap", process::id()));
    write_capture(&file, packets);
    let output = Command::new("tshark")
        .args(["-n", "-r"])
        .arg(&file)
        .args(["--disable-protocol", "rpcordma", "-o", "udp.ignore_ipv6_zero_checksum:TRUE"])
        .args(arguments)
        .output()
        .expect("tshark starts");
    fs::remove_file(&file).expect("removed");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !errors.contains("Lua"), "{errors}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn write_capture(file: &Path, packets: &[Vec<u8>]) {
    let mut capture = CaptureWriter::new(fs::File::create(file).expect("created")).expect("header");
    let [source, dest] = ends();
    for (index, packet) in packets.iter().enumerate() {
        let mut frame = vec![0; packet.len() + frame::FRONT_MAX];
        let len = frame::emit([[2; 6], [4; 6]], source, dest, packet, &mut frame).expect("fits");
        capture.write(index as u64 * 1_000, &frame[..len]).expect("written");
    }
    capture.finish().expect("flushed");
}

/// The packets of the specification's examples.
fn examples() -> Vec<Vec<u8>> {
    let text = fs::read_to_string(root(DOCUMENT)).expect("docs/wire-spec.md");
    let text = text + include_str!("examples.md");
    let blocks = text.split("```wire\n").skip(1);
    let bytes = |line: &str| -> Vec<u8> {
        let (hex, _) = line.split_once('#').expect("every line names its header");
        hex.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).expect("hex")).collect()
    };
    let block = |block: &str| {
        let (block, _) = block.split_once("```").expect("closed");
        block.lines().skip(1).flat_map(bytes).collect()
    };
    blocks.map(block).collect()
}

/// Random packets that obey every rule, always the same ones.
fn drawn() -> Vec<Vec<u8>> {
    let mut runner = TestRunner::deterministic();
    let flow = IcrcFlow::new(ends()[0], ends()[1]);
    let mut draw = || {
        let (header, len) = common::packet().new_tree(&mut runner).expect("a packet").current();
        let mut buf = vec![0; 16_384];
        let len = header.emit(&common::pattern(len), &flow, &mut buf).expect("emits");
        buf.truncate(len);
        buf
    };
    (0..DRAWN).map(|_| draw()).collect()
}

/// Collects the values that a packet must show.
#[derive(Default)]
struct Shown(Fields);

impl Shown {
    fn number(&mut self, name: &str, value: impl Into<u128>) {
        self.text(name, value.into().to_string());
    }

    fn bytes(&mut self, name: &str, value: &[u8]) {
        let hex: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
        self.text(name, hex);
    }

    fn eid(&mut self, name: &str, value: WireEid) {
        self.text(name, IpAddr::V6(Ipv6Addr::from(value)).to_string());
    }

    fn text(&mut self, name: &str, value: String) {
        self.0.entry(format!("urma.{name}")).or_default().push(value);
    }

    fn flags(&mut self, flags: &[(&str, bool)]) {
        flags.iter().for_each(|(name, value)| self.number(name, u8::from(*value)));
    }

    fn target(&mut self, target: Option<Target>) {
        if let Some(Target { kind, id, hint }) = target {
            self.number("mtetah.hint", hint);
            self.number("mtetah.type", kind.code());
            self.number("mtetah.target", id.value());
        }
    }

    fn notify(&mut self, notify: Notify) {
        self.number("notifyeth.address", notify.address);
        self.number("notifyeth.token_id", notify.token_id.value());
        self.number("notifyeth.token", notify.token.0);
        self.number("notifyeth.data", notify.data);
    }

    /// An operand: as many bytes as travel.
    fn operand(&mut self, name: &str, size: OperandSize, value: u128) {
        let bytes = value.to_be_bytes();
        self.bytes(name, if size == OperandSize::B16 { &bytes } else { &bytes[8..] });
    }

    fn request(&mut self, header: &RequestHeader) {
        let flag = |flag| header.flags.contains(flag);
        let target = header.target;
        self.number("btah.opcode", header.op.code());
        self.number("btah.taver", 0_u8);
        self.number("btah.tassn", header.tassn);
        self.number("btah.order", header.order.code());
        self.number("btah.initiator_type", header.initiator.kind.code());
        self.number("btah.initiator", header.initiator.id.value());
        self.flags(&[
            ("btah.tv_en", header.token.is_some()),
            ("btah.target_hint", target.is_some_and(|target| target.hint != 0)),
            ("btah.ud", flag(RequestFlags::DATAGRAM)),
            ("btah.no_taack", flag(RequestFlags::NO_TAACK)),
            ("btah.completion_order", flag(RequestFlags::COMP_ORDER)),
            ("btah.mt_en", target.is_some()),
            ("btah.fence", flag(RequestFlags::FENCE)),
            ("btah.retry", flag(RequestFlags::RETRY)),
            ("btah.last", flag(RequestFlags::LAST)),
            ("btah.first", flag(RequestFlags::FIRST)),
            ("btah.solicited", flag(RequestFlags::SOLICITED)),
        ]);
        self.target(target);
        self.number("maetah.address", header.access.address);
        self.number("maetah.token_id", header.access.token_id.value());
        self.number("maetah.length", header.access.length);
        if let Some(token) = header.token {
            self.number("tvetah.token", token.0);
        }
        self.operation(header.op);
    }

    fn operation(&mut self, op: RequestOp) {
        match op {
            RequestOp::Send | RequestOp::Write | RequestOp::Read | RequestOp::FlushDma => {}
            RequestOp::SendImm(imm) => self.number("immeth.imm", imm),
            RequestOp::SendInvalidate(invalidate) => {
                self.number("inveth.token_id", invalidate.token_id.value());
                self.number("inveth.token", invalidate.token.0);
            }
            RequestOp::WriteImm(WriteImm { imm, token }) => {
                self.number("wimmeth.imm", imm);
                self.flags(&[("wimmeth.tt_en", token.is_some())]);
                self.number("wimmeth.token", token.unwrap_or_default().0);
            }
            RequestOp::WriteNotify(notify) | RequestOp::WriteAtomicAdd(notify) => {
                self.notify(notify);
            }
            RequestOp::Atomic(_, AtomicOperands { size, operand, compare }) => {
                self.number("atometh.size", size.bytes());
                self.operand("atometh.operand", size, operand);
                self.operand("atometh.compare", size, compare);
            }
        }
    }

    fn response(&mut self, header: &ResponseHeader) {
        let (state, info) = header.status.codes();
        let expected = match header.status {
            ResponseStatus::OutOfSequence { expected } => expected,
            _ if let ResponseBody::Acks { earlier } = header.body => earlier,
            _ => 0,
        };
        self.number("atah.taver", 0_u8);
        self.number("atah.tassn", header.tassn);
        self.number("atah.rspst", state);
        self.number("atah.rspinfo", info);
        self.number("atah.initiator_type", header.initiator.kind.code());
        self.number("atah.expected", expected);
        self.number("atah.initiator", header.initiator.id.value());
        self.flags(&[("atah.mt_en", header.target.is_some())]);
        self.target(header.target);
        match header.body {
            ResponseBody::None | ResponseBody::Acks { .. } => {
                self.number("atah.opcode", 0x11_u8);
            }
            ResponseBody::ReadData { offset, length } => {
                self.number("atah.opcode", 0x12_u8);
                self.number("rdetah.offset", offset);
                self.number("rdetah.length", length);
            }
            ResponseBody::Atomic(AtomicValue { size, value }) => {
                self.number("atah.opcode", 0x13_u8);
                self.number("aveth.size", size.bytes());
                self.operand("aveth.value", size, value);
            }
        }
    }

    fn ack(&mut self, ack: &Ack) {
        let words = ack.received.words();
        self.number("tpaeth.words", u8::try_from(words.len()).expect("at most four"));
        self.flags(&[("tpaeth.ce", ack.congestion)]);
        self.number("tpaeth.window", ack.window);
        self.number("tpaeth.trigger", ack.trigger.value());
        words.iter().for_each(|word| self.number("sack.received", *word));
    }

    fn handshake(&mut self, body: &HandshakeBody) {
        self.number("tpceth.version_min", body.version_min);
        self.number("tpceth.version_max", body.version_max);
        self.number("tpceth.mtu", body.mtu.code());
        self.flags(&[("tpceth.purpose", body.purpose == Purpose::Verify)]);
        self.number("tpceth.strategies", body.strategies.bits());
        self.number("tpceth.incarnation", body.incarnation);
        self.eid("tpceth.source_eid", body.source_eid);
        self.eid("tpceth.dest_eid", body.dest_eid);
        self.number("tpceth.tpn", body.source_tpn.value());
        self.number("tpceth.first_psn", body.first_psn.value());
        self.number("tpceth.window", body.window);
        self.number("tpceth.source_uasid", body.source_uasid);
        self.number("tpceth.dest_uasid", body.dest_uasid);
        self.number("tpceth.state", body.state);
        self.number("tpceth.nonce", body.nonce);
        self.number("tpceth.close_key", body.close_key);
        self.bytes("tpceth.cookie", &body.cookie);
        let mut ports = body.ports.iter();
        for name in ["tpceth.port1", "tpceth.port2", "tpceth.port3"] {
            self.eid(name, ports.next().unwrap_or_default());
        }
    }

    fn payload(&mut self, payload: &[u8]) {
        if !payload.is_empty() {
            self.bytes("payload", payload);
        }
        match payload.len().wrapping_neg() % 4 {
            0 => {}
            pad => self.bytes("pad", &vec![0; pad]),
        }
    }

    fn pack(&mut self, entries: &[u8]) {
        for entry in PackEntries::new(entries, 0) {
            let Transaction { header, payload } = entry.expect("a valid entry");
            let len = header.header_len() + payload.len();
            self.number("pketh.length", u16::try_from(len).expect("16 bits"));
            match header {
                TransactionHeader::Request(header) => self.request(&header),
                TransactionHeader::Response(header) => self.response(&header),
            }
            self.payload(payload);
        }
    }

    fn body(&mut self, body: &Body, payload: &[u8]) {
        match body {
            Body::Pack => return self.pack(payload),
            Body::Request(header) => self.request(header),
            Body::Response(header) => self.response(header),
            Body::Ack(ack) | Body::Nak(ack) => self.ack(ack),
            Body::Connect(handshake) | Body::Accept(handshake) => self.handshake(handshake),
            Body::Challenge(challenge) => {
                self.number("tpketh.nonce", challenge.nonce);
                self.bytes("tpketh.cookie", &challenge.cookie);
            }
            Body::Refuse(refusal) => {
                self.number("tpreth.reason", refusal.reason.code());
                self.number("tpreth.version_min", refusal.version_min);
                self.number("tpreth.version_max", refusal.version_max);
                self.number("tpreth.state", refusal.state);
                self.number("tpreth.nonce", refusal.nonce);
            }
            Body::Close(close) => {
                self.number("tpxeth.reason", close.reason.code());
                self.number("tpxeth.tpn", close.source_tpn.value());
                self.number("tpxeth.key", close.key);
            }
            Body::Probe(probe) | Body::ProbeEcho(probe) => {
                self.number("tppeth.nonce", probe.nonce);
                self.number("tppeth.size", probe.size);
            }
            Body::Losses(losses) => {
                self.number("tpleth.runs", u8::try_from(losses.runs().len()).expect("few"));
                self.number("tpleth.tier", losses.tier);
                self.number("tpleth.ticket", losses.ticket);
                for run in losses.runs() {
                    self.number("run.start", run.start.value());
                    self.number("run.count", run.count);
                }
            }
            Body::Tail(tail) => {
                self.number("tpteth.first_end", tail.first_end.value());
                self.number("tpteth.ticket_end", tail.ticket_end);
                self.number("tpteth.rtt", tail.rtt_ns);
            }
            Body::Repair(repair) => {
                self.number("tpfeth.last", repair.last);
                self.number("tpfeth.begin", repair.begin);
                self.number("tpfeth.groups", repair.groups);
                self.number("tpfeth.group", repair.group);
                self.number("tpfeth.number", repair.number);
            }
            Body::UmSend(ends, header) => {
                self.eid("umeth.source_eid", ends.source_eid);
                self.eid("umeth.dest_eid", ends.dest_eid);
                self.number("umeth.source_uasid", ends.source_uasid);
                self.number("umeth.dest_uasid", ends.dest_uasid);
                self.request(header);
            }
        }
        self.payload(payload);
    }
}

/// What a packet must show, from its decoded values.
fn expected(bytes: &[u8]) -> Fields {
    let packet = Packet::parse(bytes).expect("a valid packet");
    let header = packet.header;
    let mut shown = Shown::default();
    let pad = packet.payload.len().wrapping_neg() % 4;
    shown.number("bth.opcode", header.body.opcode().code());
    shown.number("bth.pad", u8::try_from(pad).expect("below 4"));
    shown.number("bth.tver", WIRE_VERSION);
    shown.number("bth.pkey", 0xffff_u16);
    shown.flags(&[
        ("bth.fecn", header.congestion.forward),
        ("bth.becn", header.congestion.backward),
        ("bth.ack_req", header.ack_req),
        ("bth.repeated", header.repeat.is_some()),
    ]);
    shown.number("bth.dest", header.dest.value());
    shown.number("bth.psn", header.psn.value());
    if let Some(repeat) = header.repeat {
        shown.number("repeth.tier", repeat.tier);
        shown.number("repeth.ticket", repeat.ticket);
    }
    shown.body(&header.body, packet.payload);
    let icrc = bytes.last_chunk().copied().expect("four bytes");
    shown.number("icrc", u32::from_le_bytes(icrc));
    shown.0
}

/// A value as tshark prints it, in the form of [`Shown`].
fn plain(name: &str, value: &str) -> String {
    let is_eid = name.ends_with("_eid") || name.contains(".tpceth.port");
    let is_bytes = ["operand", "compare", "value", "cookie", "payload", "pad"]
        .iter()
        .any(|end| name.ends_with(&format!(".{end}")) && name != "urma.bth.pad");
    if is_eid {
        let eid: Ipv6Addr = value.parse().expect("an IPv6 address");
        return IpAddr::V6(eid).to_string();
    }
    if is_bytes {
        return value.replace(':', "");
    }
    match (value, value.strip_prefix("0x")) {
        ("True", _) => "1".to_owned(),
        ("False", _) => "0".to_owned(),
        (_, Some(hex)) => u128::from_str_radix(hex, 16).expect("hexadecimal").to_string(),
        (_, None) => value.parse::<u128>().expect("a number").to_string(),
    }
}

/// Filter names of the dissector's fields.
fn names(script: &str) -> Vec<String> {
    let listed = Command::new("tshark").args(["-G", "fields", "-X", script]).output();
    let listed = String::from_utf8(listed.expect("tshark starts").stdout).expect("UTF-8");
    let third = |line: &str| line.split('\t').nth(2).map(str::to_owned);
    let names = listed.lines().filter(|line| line.starts_with("F\t")).filter_map(third);
    let is_own = |name: &String| {
        name.starts_with("urma.") && !matches!(&name[..], "urma.truncated" | "urma.unknown")
    };
    names.filter(is_own).collect()
}

#[test]
fn every_field_is_what_this_crate_decodes() {
    if !has_tshark() {
        return;
    }
    let script = format!("lua_script:{}", root(SCRIPT).display());
    let names = names(&script);
    let packets: Vec<Vec<u8>> = examples().into_iter().chain(drawn()).collect();
    let mut arguments = vec!["-X", &script, "-T", "fields", "-E", "separator=/t", "-E"];
    arguments.extend(["occurrence=a", "-E", "aggregator=,"]);
    names.iter().for_each(|name| arguments.extend(["-e", name]));
    let output = tshark("fields", &packets, &arguments);
    let lines: Vec<&str> = output.lines().collect();
    assert_eq!(lines.len(), packets.len());
    let mut seen = Fields::new();
    for (packet, line) in packets.iter().zip(lines) {
        let mut found = Fields::new();
        for (name, values) in names.iter().zip(line.split('\t')) {
            let values = values.split(',').filter(|value| !value.is_empty());
            let values: Vec<String> = values.map(|value| plain(name, value)).collect();
            if !values.is_empty() {
                found.insert(name.clone(), values);
            }
        }
        assert_eq!(found, expected(packet), "{packet:02x?}");
        seen.extend(found);
    }
    // No field of the dissector is left out of the comparison.
    let missing: Vec<&String> = names.iter().filter(|name| !seen.contains_key(*name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// Every standard opcode with all its headers, but those of reliable datagrams: nothing sends them, and
/// Wireshark 4.0 looks for payload in four of them that have none.
fn standard() -> Vec<Vec<u8>> {
    let flow = IcrcFlow::new(ends()[0], ends()[1]);
    let emit = |opcode: u8| {
        let layout = PacketLayout::of(opcode).ok()?;
        let has = |flag| layout.headers.contains(flag);
        let ext = RoceExt {
            rdeth: has(Headers::RDETH).then_some(Rdeth { context: 5 }),
            deth: has(Headers::DETH).then_some(Deth { qkey: 1, source_qp: 2 }),
            feth: has(Headers::FETH).then_some(Feth { placement: 1, selectivity: 2 }),
            reth: has(Headers::RETH).then_some(Reth { va: 1, rkey: 2, dma_len: 8 }),
            atomic: has(Headers::ATOMIC).then_some(AtomicEth {
                va: 8,
                rkey: 9,
                swap_or_add: 1,
                compare: 2,
            }),
            aeth: has(Headers::AETH).then_some(Aeth { syndrome: Syndrome::PsnSequence, msn: 7 }),
            atomic_ack: has(Headers::ATOMIC_ACK).then_some(AtomicAckEth { original: 6 }),
            imm: has(Headers::IMM).then_some(ImmDt { value: 4 }),
            ieth: has(Headers::IETH).then_some(Ieth { rkey: 3 }),
        };
        let payload: &[u8] = match layout.payload {
            PayloadRule::None => &[],
            PayloadRule::PathMtu => &[3; 512],
            PayloadRule::Last | PayloadRule::Only => &[4; 5],
            PayloadRule::Eight => &[5; 8],
            PayloadRule::Sixteen => &[0; 16],
        };
        let bth = Bth {
            opcode,
            solicited: false,
            mig_req: false,
            pad: 0,
            version: 0,
            pkey: 0xffff,
            congestion: Congestion::default(),
            dest: Tpn::from_low_bits(0x11),
            ack_req: true,
            repeated: false,
            psn: Psn::new(1),
        };
        let mut buf = vec![0; 1024];
        let len = RoceHeader { bth, ext }.emit(payload, &flow, &mut buf).expect("emits");
        buf.truncate(len);
        Some(buf)
    };
    (0..=u8::MAX).filter(|opcode| opcode & 0xe0 != TRANSPORT_RD).filter_map(emit).collect()
}

#[test]
fn no_packet_is_malformed() {
    if !has_tshark() {
        return;
    }
    let script = format!("lua_script:{}", root(SCRIPT).display());
    let packets: Vec<Vec<u8>> = standard().into_iter().chain(examples()).chain(drawn()).collect();
    let fields =
        ["-T", "fields", "-e", "frame.number", "-e", "_ws.malformed", "-e", "frame.protocols"];
    let with = [&["-X", &script][..], &fields[..]].concat();
    for (name, arguments) in [("plain", &fields[..]), ("script", &with[..])] {
        let output = tshark(name, &packets, arguments);
        assert_eq!(output.lines().count(), packets.len());
        for (packet, line) in packets.iter().zip(output.lines()) {
            let [_, malformed, protocols] = line.split('\t').collect::<Vec<_>>()[..] else {
                panic!("{line}");
            };
            assert!(malformed.is_empty(), "{name}: {line}: {packet:02x?}");
            let wanted = if name == "script" && packet[0] >= 0xc0 { "urma" } else { "infiniband" };
            assert!(protocols.contains(wanted), "{name}: {line}: {packet:02x?}");
        }
    }
}

/// A packet that ends in a header is shown as such; the script itself never fails.
#[test]
fn cut_packets_are_named() {
    if !has_tshark() {
        return;
    }
    let script = format!("lua_script:{}", root(SCRIPT).display());
    let cut: Vec<Vec<u8>> = examples()
        .iter()
        .flat_map(|packet| (16..packet.len()).step_by(4).map(|len| packet[..len].to_vec()))
        .collect();
    let output = tshark("cut", &cut, &["-X", &script, "-V"]);
    assert!(!output.contains("Lua Error"), "{output}");
    assert!(output.matches("is cut off").count() > examples().len(), "{output}");
}
