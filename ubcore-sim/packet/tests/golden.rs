//! Every golden packet parses to its recorded fields and re-emits byte for byte; the bad ones are
//! refused by their ICRC.

use std::path::PathBuf;

use serde_json::Value;
use urma_packet::capture::CaptureReader;
use urma_packet::frame::{self, FRONT_MAX, UdpDatagram};
use urma_packet::roce::{RocePacket, Syndrome};
use urma_packet::{ICRC_LEN, PacketError, ROCE_PORT};

fn golden(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    std::fs::read(path).expect("golden data is part of the crate")
}

fn packets() -> Vec<Value> {
    let json: Value = serde_json::from_slice(&golden("roce_golden.json")).expect("valid JSON");
    json["packets"].as_array().expect("a list").clone()
}

fn bytes_of(packet: &Value, key: &str) -> Vec<u8> {
    let text = packet[key].as_str().expect("hex text");
    let digit = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("hex");
    (0..text.len()).step_by(2).map(digit).collect()
}

fn name(packet: &Value) -> &str {
    packet["name"].as_str().expect("named")
}

/// Fields that the file records for most packets.
fn check_fields(packet: &Value, found: &RocePacket<'_>, udp_payload: &[u8]) {
    let bth = &found.header.bth;
    assert_eq!(packet["opcode"], bth.opcode, "{}", name(packet));
    if packet.get("psn").is_none() {
        return;
    }
    assert_eq!(packet["psn"], bth.psn.value(), "{}", name(packet));
    assert_eq!(packet["dqpn"], bth.dest.value(), "{}", name(packet));
    assert_eq!(packet["ackreq"], u8::from(bth.ack_req), "{}", name(packet));
    assert_eq!(packet["payload_len"], found.payload.len(), "{}", name(packet));
    assert_eq!(packet["pad"], bth.pad, "{}", name(packet));
    let ext = bytes_of(packet, "ext_hex");
    assert_eq!(ext, udp_payload[12..12 + ext.len()], "{}", name(packet));
    assert_eq!(found.header.header_len(), 12 + ext.len(), "{}", name(packet));
}

#[test]
fn good_packets_parse_and_come_out_the_same() {
    let mut count = 0;
    for packet in packets().iter().filter(|packet| packet["icrc_valid"] == true) {
        let frame = bytes_of(packet, "frame_hex");
        let datagram = UdpDatagram::parse(&frame).expect("UDP in Ethernet");
        assert_eq!(datagram.dest.port(), ROCE_PORT);
        let found = RocePacket::open(datagram.payload, &datagram.flow)
            .unwrap_or_else(|error| panic!("{}: {error}", name(packet)));
        check_fields(packet, &found, datagram.payload);
        let mut again = vec![0xaa; datagram.payload.len()];
        let len = found.header.emit(found.payload, &datagram.flow, &mut again).expect("emits");
        assert_eq!(again[..len], *datagram.payload, "{}", name(packet));
        assert_eq!(again[len - ICRC_LEN..], bytes_of(packet, "icrc_wire_hex"));
        count += 1;
    }
    assert_eq!(count, 75);
}

#[test]
fn bad_packets_are_refused_by_their_icrc() {
    let mut count = 0;
    for packet in packets().iter().filter(|packet| packet["icrc_valid"] == false) {
        let frame = bytes_of(packet, "frame_hex");
        let datagram = UdpDatagram::parse(&frame).expect("UDP in Ethernet");
        let refused = RocePacket::open(datagram.payload, &datagram.flow).expect_err(name(packet));
        assert!(matches!(refused, PacketError::Icrc { .. }), "{}: {refused}", name(packet));
        count += 1;
    }
    assert_eq!(count, 4);
}

/// The masked bytes are what the generator says, not only their checksum.
#[test]
fn the_icrc_is_that_of_the_recorded_input() {
    for packet in packets().iter().filter(|packet| packet["icrc_valid"] == true) {
        let Some(_) = packet.get("masked_crc_input_hex") else { continue };
        let recorded = crc32fast::hash(&bytes_of(packet, "masked_crc_input_hex"));
        assert_eq!(
            recorded.to_le_bytes()[..],
            bytes_of(packet, "icrc_wire_hex"),
            "{}",
            name(packet)
        );
    }
}

/// Frames that the generator made with our rule (TTL 64, DF, id 0, no UDP checksum) come out of
/// the frame writer, too.
#[test]
fn frames_come_out_the_same() {
    let mut count = 0;
    for packet in packets().iter().filter(|packet| packet.get("psn").is_some()) {
        let recorded = bytes_of(packet, "frame_hex");
        let datagram = UdpDatagram::parse(&recorded).expect("UDP in Ethernet");
        let macs = [0, 6].map(|at| recorded[at..at + 6].try_into().expect("six bytes"));
        let mut again = vec![0; datagram.payload.len() + FRONT_MAX];
        let UdpDatagram { source, dest, payload, .. } = datagram;
        let len = frame::emit(macs, source, dest, payload, &mut again).expect("fits");
        assert_eq!(again[..len], recorded, "{}", name(packet));
        count += 1;
    }
    assert_eq!(count, 70);
}

#[test]
fn the_capture_holds_the_same_packets() {
    let file = golden("roce_golden.pcap");
    let mut reader = CaptureReader::new(&file[..]).expect("a pcap file");
    for packet in packets() {
        let captured = reader.read().expect("readable").expect("as many as in the list");
        assert_eq!(captured.frame, bytes_of(&packet, "frame_hex"), "{}", name(&packet));
    }
    assert_eq!(reader.read().expect("end"), None);
}

#[test]
fn extension_headers_have_the_recorded_values() {
    let all = packets();
    let open = |wanted: &str| {
        let packet = all.iter().find(|packet| name(packet) == wanted).expect("in the list");
        bytes_of(packet, "frame_hex")
    };
    let check = |wanted: &str, check: &dyn Fn(&RocePacket<'_>)| {
        let frame = open(wanted);
        let datagram = UdpDatagram::parse(&frame).expect("UDP");
        check(&RocePacket::open(datagram.payload, &datagram.flow).expect("valid"));
    };
    check("v4_rc_read_req", &|packet| {
        let reth = packet.header.ext.reth.expect("RETH");
        assert_eq!((reth.va, reth.rkey, reth.dma_len), (0x7f00_1234_5000_0000 >> 16, 0x1234, 1000));
    });
    check("v4_rc_cas", &|packet| {
        let atomic = packet.header.ext.atomic.expect("AtomicETH");
        assert_eq!(atomic.swap_or_add, 0x1111_2222_3333_4444);
        assert_eq!(atomic.compare, 0x5555_6666_7777_8888);
    });
    check("v6_rc_atomic_ack", &|packet| {
        let ack = packet.header.ext.atomic_ack.expect("AtomicAckETH");
        assert_eq!(ack.original, 0x0123_4567_89ab_cdef);
        let aeth = packet.header.ext.aeth.expect("AETH");
        assert_eq!((aeth.syndrome, aeth.msn), (Syndrome::Ack { credit: 31 }, 8));
    });
    check("v4_rc_rnr_nak", &|packet| {
        let aeth = packet.header.ext.aeth.expect("AETH");
        assert_eq!(aeth.syndrome, Syndrome::RnrNak { timer: 12 });
    });
    check("v4_ud_send_only_imm", &|packet| {
        let deth = packet.header.ext.deth.expect("DETH");
        assert_eq!((deth.qkey, deth.source_qp), (0x1111_1111, 0x21));
        assert_eq!(packet.header.ext.imm.expect("ImmDt").value, 0xcafe_f00d);
    });
    check("v6_rc_send_only_inv", &|packet| {
        assert_eq!(packet.header.ext.ieth.expect("IETH").rkey, 0x1234);
    });
}
