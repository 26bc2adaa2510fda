//! Several small transactions in one packet: entries, each behind a PKETH.
//!
//! - owns: the layout of entries. takes: the bytes of one, or a packet that was not sent yet and what is to join
//!   it. gives: transactions in order, or the longer packet.
//! - must not: know when joining is worth it.

use std::ops::Range;

use zerocopy::byteorder::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::opcode::TpOpcode;
use super::packet::{pad_of, split_pad};
use super::request::RequestFlags;
use super::transaction::{Transaction, TransactionHeader};
use crate::codec::{Reader, reserved};
use crate::{BTH_LEN, ICRC_LEN, PacketError};

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
pub fn join(
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
