//! What any bytes must not do to the packet parsers.
//!
//! - owns: the property checked by the fuzz target and, bounded, by the property tests.
//! - takes: arbitrary bytes. gives: nothing, or a panic that names the broken promise.
//! - must not: need any other crate than the one under test.

use urma_packet::capture::CaptureReader;
use urma_packet::frame::UdpDatagram;
use urma_packet::roce::RocePacket;
use urma_packet::{ICRC_LEN, IcrcFlow, Packet, Transaction};

/// Parses `data` as everything; whatever is accepted must come out the same.
pub(crate) fn fuzz_packet(data: &[u8]) {
    if let Ok(packet) = Packet::parse(data) {
        emits_again(data, &packet);
    }
    if let Ok(packet) = RocePacket::parse(data) {
        let mut again = vec![0xaa; data.len()];
        let frame = packet.header.emit_headers(packet.payload.len(), &mut again);
        let frame = frame.expect("accepted headers emit");
        again[frame.payload].copy_from_slice(packet.payload);
        let covered = data.len() - ICRC_LEN;
        assert_eq!(frame.total, data.len(), "same length");
        assert_eq!(again[..covered], data[..covered], "same bytes");
    }
    if let Ok(transaction) = Transaction::parse(data) {
        let mut again = vec![0xaa; transaction.header.header_len()];
        let len = transaction.header.emit(&mut again).expect("accepted headers emit");
        assert_eq!(again[..len], data[..len], "same bytes");
        assert_eq!(transaction.payload, &data[len..], "the rest is payload");
        let _ = transaction.header.check_piece(transaction.payload.len());
    }
    if let Ok(datagram) = UdpDatagram::parse(data) {
        let _ = Packet::open(datagram.payload, &datagram.flow);
        let _ = datagram.flow.verify_any_id(datagram.payload);
    }
    if let Ok(flow) = IcrcFlow::from_ip_header(data) {
        let _ = flow.verify(data);
        let _ = flow.start(data.len(), data);
    }
    if let Ok(mut capture) = CaptureReader::new(data) {
        while let Ok(Some(_)) = capture.read() {}
    }
}

/// What was parsed from `data` comes out as `data`, but for the ICRC.
pub(crate) fn emits_again(data: &[u8], packet: &Packet<'_>) {
    let mut again = vec![0xaa; data.len()];
    let frame = packet.header.emit_headers(packet.payload.len(), &mut again);
    let frame = frame.expect("accepted headers emit");
    again[frame.payload].copy_from_slice(packet.payload);
    let covered = data.len() - ICRC_LEN;
    assert_eq!(frame.total, data.len(), "same length");
    assert_eq!(again[..covered], data[..covered], "same bytes");
}
