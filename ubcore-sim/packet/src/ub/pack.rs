//! Transactions without a BTH of their own: several small ones in one packet, or one in an entry of a same-host
//! ring.
//!
//! In a packet each stands behind a PKETH; when joining is worth it is not decided here. In a ring, requests and
//! responses are told apart by their TAOpcode, and the rules of packets do not apply to payload: a ring has its own
//! pieces.

use std::ops::Range;

use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, byteorder::network_endian::U16,
};

use super::{
    opcode::{ResponseOp, TpOpcode},
    request::{RequestFlags, RequestHeader},
    response::ResponseHeader,
};
use crate::{
    BTH_LEN, ICRC_LEN, PacketError,
    codec::{Reader, pad_of, reserved, split_pad},
};

/// PKETH: in front of each entry.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct EntryWire {
    /// Bytes of headers and payload, without pad.
    len: U16,
    rsv: U16,
}

/// Bytes of a PKETH.
const ENTRY_LEN: usize = size_of::<EntryWire>();
/// Where the BTH has the count of pad bytes, see `docs/wire-spec.md`.
const PAD: (usize, u8) = (1, 0x30);

/// The transactions of a pack, in the order in which they were sent.
#[derive(Debug, Clone)]
pub struct PackEntries<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> PackEntries<'a> {
    /// Those from byte `at` of a pack's payload on, where an entry starts.
    #[must_use]
    pub const fn new(payload: &'a [u8], at: usize) -> Self {
        Self { bytes: payload, at }
    }

    /// Where the next one starts.
    #[must_use]
    pub const fn at(&self) -> usize {
        self.at
    }

    fn take(&mut self) -> Result<Transaction<'a>, PacketError> {
        let mut reader = Reader::new(self.bytes.get(self.at..).unwrap_or_default());
        let wire: &EntryWire = reader.take()?;
        reserved("PKETH", wire.rsv.get().into())?;
        let len = usize::from(wire.len.get());
        let (padded, rest) = (len.next_multiple_of(4), reader.rest());
        let short = PacketError::Truncated { needed: padded, have: rest.len() };
        let bytes = split_pad(rest.get(..padded).ok_or(short)?, pad_of(len))?;
        let entry = Transaction::parse(bytes)?;
        match &entry.header {
            TransactionHeader::Request(header) => {
                if header.flags.contains(RequestFlags::DATAGRAM) {
                    return Err(PacketError::field("UD", 1));
                }
                header.check_packet(entry.payload.len())?;
            }
            TransactionHeader::Response(header) => header.check_packet(entry.payload.len())?,
        }
        self.at += ENTRY_LEN + padded;
        Ok(entry)
    }
}

impl<'a> Iterator for PackEntries<'a> {
    type Item = Result<Transaction<'a>, PacketError>;

    /// After an error there is nothing more.
    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.bytes.len() {
            return None;
        }
        let entry = self.take();
        if entry.is_err() {
            self.at = self.bytes.len();
        }
        Some(entry)
    }
}

/// Whether `payload` consists of at least two entries, all of them right.
pub(super) fn check(payload: &[u8]) -> Result<(), PacketError> {
    let mut count = 0;
    for entry in PackEntries::new(payload, 0) {
        entry?;
        count += 1;
    }
    if count < 2 { Err(PacketError::field("entries", count)) } else { Ok(()) }
}

/// Lets a transaction with `payload_len` bytes of payload join `packet`, an unsealed packet of data for the same
/// TP. Returns where the payload is to be written; `None`: the packet would be longer than `longest` bytes, and is
/// as it was.
///
/// # Errors
/// As [`TransactionHeader::emit`], and [`PacketError::Length`] when the headers forbid the payload; `packet` is as it
/// was.
pub fn join_pack(
    packet: &mut Vec<u8>,
    (header, payload_len): (&TransactionHeader, usize),
    longest: usize,
) -> Result<Option<Range<usize>>, PacketError> {
    let is_pack = packet.first() == Some(&TpOpcode::DataPack.code());
    let len = header.header_len() + payload_len;
    let opened = packet.len() + if is_pack { 0 } else { ENTRY_LEN };
    let Ok(wire_len) = u16::try_from(len) else { return Ok(None) };
    if opened + ENTRY_LEN + len.next_multiple_of(4) > longest || packet.len() < BTH_LEN + ICRC_LEN {
        return Ok(None);
    }
    match header {
        TransactionHeader::Request(header) => header.check_packet(payload_len)?,
        TransactionHeader::Response(header) => header.check_packet(payload_len)?,
    }
    let before = packet.len();
    packet.resize(opened + ENTRY_LEN + len.next_multiple_of(4), 0);
    let at = opened - ICRC_LEN;
    let emitted = packet.get_mut(at + ENTRY_LEN..).map_or(Ok(0), |room| header.emit(room));
    if let Err(error) = emitted {
        packet.truncate(before);
        return Err(error);
    }
    packet[at + ENTRY_LEN + len..].fill(0);
    packet[at..at + ENTRY_LEN].copy_from_slice(entry(wire_len).as_bytes());
    if !is_pack {
        open(packet, before);
    }
    let start = at + ENTRY_LEN + header.header_len();
    Ok(Some(start..start + payload_len))
}

/// The first `len` bytes of `packet` were a packet of one transaction, which becomes an entry; there is room for
/// its PKETH behind it.
fn open(packet: &mut [u8], len: usize) {
    let pad = usize::from((packet[PAD.0] & PAD.1) >> 4);
    let end = len - ICRC_LEN;
    packet.copy_within(BTH_LEN..end, BTH_LEN + ENTRY_LEN);
    let first = u16::try_from(end - BTH_LEN - pad).unwrap_or(u16::MAX);
    packet[BTH_LEN..BTH_LEN + ENTRY_LEN].copy_from_slice(entry(first).as_bytes());
    packet[0] = TpOpcode::DataPack.code();
    packet[PAD.0] &= !PAD.1;
}

fn entry(len: u16) -> EntryWire {
    EntryWire { len: U16::new(len), rsv: U16::ZERO }
}

/// A request or a response without transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransactionHeader {
    /// From initiator to target.
    Request(RequestHeader),
    /// From target to initiator.
    Response(ResponseHeader),
}

impl TransactionHeader {
    /// Bytes of the header.
    #[must_use]
    pub const fn header_len(&self) -> usize {
        match self {
            Self::Request(header) => header.header_len(),
            Self::Response(header) => header.header_len(),
        }
    }

    /// Writes the header to the front of `buf`; the count of bytes written.
    ///
    /// # Errors
    /// [`PacketError::Truncated`], [`PacketError::Field`].
    pub fn emit(&self, buf: &mut [u8]) -> Result<usize, PacketError> {
        match self {
            Self::Request(header) => header.emit(buf),
            Self::Response(header) => header.emit(buf),
        }
    }

    /// Checks that `len` payload bytes stay inside the message.
    ///
    /// # Errors
    /// [`PacketError::Length`].
    pub fn check_piece(&self, len: usize) -> Result<(), PacketError> {
        match self {
            Self::Request(header) => header.check_piece(len),
            Self::Response(header) => header.check_piece(len),
        }
    }
}

/// A transaction header and the bytes after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transaction<'a> {
    /// Transaction headers, of a request or a response.
    pub header: TransactionHeader,
    /// Everything after it. How much of the message this is depends on the carrier: see
    /// [`TransactionHeader::check_piece`].
    pub payload: &'a [u8],
}

impl<'a> Transaction<'a> {
    /// The transaction in `bytes`, which start at its first header.
    ///
    /// # Errors
    /// Any [`PacketError`] but `Length` and `Icrc`.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, PacketError> {
        if bytes.first().is_some_and(|code| ResponseOp::from_code(*code).is_ok()) {
            let (header, payload) = ResponseHeader::parse(bytes)?;
            return Ok(Self { header: TransactionHeader::Response(header), payload });
        }
        let (header, payload) = RequestHeader::parse(bytes)?;
        Ok(Self { header: TransactionHeader::Request(header), payload })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ub::{Body, Packet, PacketHeader};
    use crate::{
        Initiator, InitiatorKind, JettyId, MemoryAccess, OrderTag, Psn, RequestHeader, RequestOp,
        Target, TargetKind, TokenId, Tpn,
    };

    fn write(len: u32) -> RequestHeader {
        RequestHeader {
            flags: RequestFlags::ONLY,
            order: OrderTag::None,
            tassn: 1,
            initiator: Initiator { kind: InitiatorKind::Jetty, id: JettyId::from_low_bits(1) },
            target: None,
            token: None,
            access: MemoryAccess { address: 64, token_id: TokenId::default(), length: len },
            op: RequestOp::Write,
        }
    }

    /// An unsealed packet with a WRITE of `len` bytes, all of them `len`.
    fn packet(len: u8) -> Vec<u8> {
        let body = Body::Request(write(len.into()));
        let header = PacketHeader::new(Tpn::from_low_bits(5), Psn::new(9), body);
        let mut bytes = vec![0; header.packet_len(len.into())];
        let frame = header.emit_headers(len.into(), &mut bytes).unwrap();
        bytes[frame.payload].fill(len);
        bytes
    }

    fn joined(packet: &mut Vec<u8>, len: u8, longest: usize) -> bool {
        let header = TransactionHeader::Request(write(len.into()));
        match join_pack(packet, (&header, len.into()), longest).unwrap() {
            Some(room) => {
                packet[room].fill(len);
                true
            }
            None => false,
        }
    }

    /// A pack of WRITEs of these lengths.
    fn pack(lens: &[u8]) -> Vec<u8> {
        let mut bytes = packet(lens[0]);
        assert!(lens[1..].iter().all(|len| joined(&mut bytes, *len, 4096)));
        bytes
    }

    #[test]
    fn what_joined_comes_out_in_order() {
        let bytes = pack(&[5, 1, 8, 3]);
        let packet = Packet::parse(&bytes).unwrap();
        assert_eq!((packet.header.body, packet.header.psn), (Body::Pack, Psn::new(9)));
        let entries = PackEntries::new(packet.payload, 0).map(Result::unwrap);
        for (len, entry) in [5_u8, 1, 8, 3].into_iter().zip(entries) {
            assert_eq!(entry.header, TransactionHeader::Request(write(len.into())));
            assert_eq!(entry.payload, vec![len; len.into()]);
        }
    }

    #[test]
    fn a_packet_gets_as_long_as_it_may_and_no_longer() {
        let longest = pack(&[5, 5]).len();
        let mut bytes = packet(5);
        let alone = bytes.clone();
        assert!(!joined(&mut bytes, 5, longest - 1));
        assert_eq!(bytes, alone);
        assert!(joined(&mut bytes, 5, longest) && !joined(&mut bytes, 1, longest));
        assert_eq!(bytes, pack(&[5, 5]));
    }

    #[test]
    fn what_breaks_a_rule_joins_nothing() {
        let (mut bytes, header) = (packet(5), TransactionHeader::Request(write(9)));
        assert!(matches!(
            join_pack(&mut bytes, (&header, 8), 4096),
            Err(PacketError::Length { .. })
        ));
        assert_eq!(bytes, packet(5));
    }

    #[test]
    fn a_message_outside_any_tp_is_in_no_pack() {
        let mut send = write(5);
        send.op = RequestOp::Send;
        send.access.address = 0;
        send.target = Some(Target { kind: TargetKind::Jetty, id: send.initiator.id, hint: 0 });
        for flags in [RequestFlags::empty(), RequestFlags::DATAGRAM | RequestFlags::NO_TAACK] {
            send.flags = RequestFlags::ONLY | flags;
            let mut bytes = packet(5);
            join_pack(&mut bytes, (&TransactionHeader::Request(send), 5), 4096).unwrap().unwrap();
            assert_eq!(Packet::parse(&bytes).is_ok(), flags.is_empty());
        }
    }

    #[test]
    fn a_pack_with_a_wrong_entry_is_refused_whole() {
        let good = pack(&[5, 5]);
        assert!(Packet::parse(&good).is_ok());
        let second = BTH_LEN + ENTRY_LEN + 40;
        for (what, at, value) in [
            ("a reserved bit", second + 2, 1),
            ("a length beyond the end", second + 1, 41),
            ("a length that cuts headers", second + 1, 8),
            ("a payload longer than the header says", second + 1, 38),
            ("a pad byte", second + ENTRY_LEN + 39, 1),
        ] {
            let mut bytes = good.clone();
            bytes[at] = value;
            assert!(Packet::parse(&bytes).is_err(), "{what}");
        }
        for start in [second, BTH_LEN] {
            let mut bytes = good.clone();
            bytes.drain(start..good.len() - ICRC_LEN);
            assert!(Packet::parse(&bytes).is_err(), "fewer than two entries");
        }
    }
}
