//! Whole URMA packets: BTH, body, payload, pad, ICRC.
//!
//! - owns: which body follows which BTH opcode, and where payload and pad lie.
//! - takes: a UDP payload, or a [`PacketHeader`] and a buffer. gives: the other.
//! - must not: copy payload unless asked to; a sender may place it there itself.

use std::ops::Range;

use zerocopy::byteorder::network_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::ack::Ack;
use super::ext::AtomicOperands;
use super::handshake::{Challenge, Close, HandshakeBody, RefuseBody};
use super::losses::RepairBody;
use super::losses::{Repeat, ReportBody, TailBody};
use super::opcode::{PKEY, TpOpcode, WIRE_VERSION};
use super::pack;
use super::probe::PathProbe;
use super::request::{RequestFlags, RequestHeader};
use super::response::ResponseHeader;
use crate::codec::{Reader, Writer, pad_of, reserved, split_pad};
use crate::icrc::split_icrc;
use crate::{
    BTAH_LEN, BTH_LEN, Bth, Congestion, ICRC_LEN, IcrcFlow, Mtu, PacketError, Psn, Target, Tpn,
    WireEid,
};

/// Room in bytes for the headers of any data packet or datagram, without pad and ICRC: every header
/// that a packet may have, with the longest operands.
pub const HEADERS_MAX: usize =
    BTH_LEN + UmHeader::LEN + BTAH_LEN + Target::LEN + super::MemoryAccess::LEN + 4 + OPERANDS_MAX;
const OPERANDS_MAX: usize =
    AtomicOperands { size: super::OperandSize::B16, operand: 0, compare: 0 }.wire_len();

const _: () = assert!(HEADERS_MAX == 132);

/// UMETH: both ends of a datagram, which no TP implies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UmHeader {
    /// EID of the sending node.
    pub source_eid: WireEid,
    /// EID of the node it is for.
    pub dest_eid: WireEid,
    /// UASID of the sender.
    pub source_uasid: u32,
    /// UASID of the receiver; 0 when not known.
    pub dest_uasid: u32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct EndsWire {
    source_eid: WireEid,
    dest_eid: WireEid,
    source_uasid: U32,
    dest_uasid: U32,
}

impl UmHeader {
    /// Bytes of a UMETH.
    pub const LEN: usize = size_of::<EndsWire>();

    fn put(&self, writer: &mut Writer<'_>) -> Result<(), PacketError> {
        writer.put(&EndsWire {
            source_eid: self.source_eid,
            dest_eid: self.dest_eid,
            source_uasid: U32::new(self.source_uasid),
            dest_uasid: U32::new(self.dest_uasid),
        })
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, PacketError> {
        let wire: &EndsWire = reader.take()?;
        Ok(Self {
            source_eid: wire.source_eid,
            dest_eid: wire.dest_eid,
            source_uasid: wire.source_uasid.get(),
            dest_uasid: wire.dest_uasid.get(),
        })
    }
}

/// What follows the BTH.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body {
    /// A request packet; payload may follow.
    Request(RequestHeader),
    /// A response packet; payload may follow.
    Response(ResponseHeader),
    /// Several requests and responses: the payload consists of [`PackEntries`](super::PackEntries).
    Pack,
    /// Cumulative and selective acknowledgement; PSN is the next one expected.
    Ack(Ack),
    /// Send again from PSN on.
    Nak(Ack),
    /// An offer; DestQP and PSN are 0.
    Connect(HandshakeBody),
    /// What the next CONNECT is to show; DestQP is the TPN of the side that asked, PSN is 0.
    Challenge(Challenge),
    /// The choice; PSN is 0.
    Accept(HandshakeBody),
    /// The refusal; DestQP is the TPN of the side that asked, PSN is 0.
    Refuse(RefuseBody),
    /// The end; PSN is 0.
    Close(Close),
    /// A datagram with a send; DestQP is 0, PSN its number. Payload may follow.
    UmSend(UmHeader, RequestHeader),
    /// Padded to the length asked about; PSN is 0.
    Probe(PathProbe),
    /// A probe of that length arrived; PSN is 0.
    ProbeEcho(PathProbe),
    /// Packets that are missing; PSN is 0.
    Losses(ReportBody),
    /// Nothing waits to be sent; PSN is that of the next new packet.
    Tail(TailBody),
    /// A code word over packets; PSN is the first one of their range. The payload is the word.
    Repair(RepairBody),
}

impl Body {
    /// Returns the opcode that the BTH of such a packet has.
    #[must_use]
    pub const fn opcode(&self) -> TpOpcode {
        match self {
            Self::Request(_) => TpOpcode::DataReq,
            Self::Response(_) => TpOpcode::DataResp,
            Self::Pack => TpOpcode::DataPack,
            Self::Ack(_) => TpOpcode::Ack,
            Self::Nak(_) => TpOpcode::Nak,
            Self::Connect(_) => TpOpcode::Connect,
            Self::Challenge(_) => TpOpcode::Challenge,
            Self::Accept(_) => TpOpcode::Accept,
            Self::Refuse(_) => TpOpcode::Refuse,
            Self::Close(_) => TpOpcode::Close,
            Self::UmSend(..) => TpOpcode::UmSend,
            Self::Probe(_) => TpOpcode::Probe,
            Self::ProbeEcho(_) => TpOpcode::ProbeEcho,
            Self::Losses(_) => TpOpcode::Losses,
            Self::Tail(_) => TpOpcode::Tail,
            Self::Repair(_) => TpOpcode::Repair,
        }
    }

    /// True when the packet takes a place in the PSN sequence of its TP.
    #[must_use]
    pub const fn is_sequenced(&self) -> bool {
        matches!(self, Self::Request(_) | Self::Response(_) | Self::Pack)
    }

    const fn len(&self) -> usize {
        match self {
            Self::Request(header) => header.header_len(),
            Self::Response(header) => header.header_len(),
            Self::Pack => 0,
            Self::Ack(ack) | Self::Nak(ack) => ack.wire_len(),
            Self::Connect(_) | Self::Accept(_) => HandshakeBody::LEN,
            Self::Challenge(_) => Challenge::LEN,
            Self::Refuse(_) => RefuseBody::LEN,
            Self::Close(_) => Close::LEN,
            Self::UmSend(_, header) => UmHeader::LEN + header.header_len(),
            Self::Probe(_) | Self::ProbeEcho(_) => PathProbe::LEN,
            Self::Losses(losses) => losses.wire_len(),
            Self::Tail(_) => TailBody::LEN,
            Self::Repair(_) => RepairBody::LEN,
        }
    }

    fn check_payload(&self, len: usize) -> Result<(), PacketError> {
        match self {
            Self::Request(header) | Self::UmSend(_, header) => header.check_packet(len),
            Self::Response(header) => header.check_packet(len),
            Self::Pack if len <= Mtu::MAX.bytes() && len.is_multiple_of(4) => Ok(()),
            Self::Pack => Err(PacketError::Length { expected: Mtu::MAX.bytes(), found: len }),
            Self::Probe(probe) if len == probe.padding() => Ok(()),
            Self::Probe(probe) => {
                Err(PacketError::Length { expected: probe.padding(), found: len })
            }
            Self::Repair(_) => RepairBody::check_payload(len),
            Self::Ack(_)
            | Self::Nak(_)
            | Self::Connect(_)
            | Self::Challenge(_)
            | Self::Accept(_)
            | Self::Refuse(_)
            | Self::Close(_)
            | Self::ProbeEcho(_)
            | Self::Losses(_)
            | Self::Tail(_) => match len {
                0 => Ok(()),
                found => Err(PacketError::Length { expected: 0, found }),
            },
        }
    }

    fn parse(opcode: TpOpcode, bytes: &[u8]) -> Result<(Self, &[u8]), PacketError> {
        let mut reader = Reader::new(bytes);
        let body = match opcode {
            TpOpcode::DataReq => {
                let (header, payload) = RequestHeader::parse(bytes)?;
                return Ok((Self::Request(header), payload));
            }
            TpOpcode::DataResp => {
                let (header, payload) = ResponseHeader::parse(bytes)?;
                return Ok((Self::Response(header), payload));
            }
            TpOpcode::UmSend => {
                let ends = UmHeader::take(&mut reader)?;
                let (header, payload) = RequestHeader::parse(reader.rest())?;
                return Ok((Self::UmSend(ends, header), payload));
            }
            TpOpcode::DataPack => Self::Pack,
            TpOpcode::Ack => Self::Ack(Ack::take(&mut reader)?),
            TpOpcode::Nak => Self::Nak(Ack::take(&mut reader)?),
            TpOpcode::Connect => Self::Connect(HandshakeBody::take(&mut reader)?),
            TpOpcode::Challenge => Self::Challenge(Challenge::take(&mut reader)?),
            TpOpcode::Accept => Self::Accept(HandshakeBody::take(&mut reader)?),
            TpOpcode::Refuse => Self::Refuse(RefuseBody::take(&mut reader)?),
            TpOpcode::Close => Self::Close(Close::take(&mut reader)?),
            TpOpcode::Probe => Self::Probe(PathProbe::take(&mut reader)?),
            TpOpcode::ProbeEcho => Self::ProbeEcho(PathProbe::take(&mut reader)?),
            TpOpcode::Losses => Self::Losses(ReportBody::take(&mut reader)?),
            TpOpcode::Tail => Self::Tail(TailBody::take(&mut reader)?),
            TpOpcode::Repair => Self::Repair(RepairBody::take(&mut reader)?),
        };
        Ok((body, reader.rest()))
    }

    fn put(&self, buf: &mut [u8]) -> Result<(), PacketError> {
        let mut writer = Writer::new(buf);
        match self {
            Self::Request(header) => header.emit(buf).map(|_| ()),
            Self::Response(header) => header.emit(buf).map(|_| ()),
            Self::Pack => Ok(()),
            Self::Ack(ack) | Self::Nak(ack) => ack.put(&mut writer),
            Self::Connect(handshake) | Self::Accept(handshake) => handshake.put(&mut writer),
            Self::Challenge(challenge) => challenge.put(&mut writer),
            Self::Refuse(refusal) => refusal.put(&mut writer),
            Self::Close(close) => close.put(&mut writer),
            Self::Probe(probe) | Self::ProbeEcho(probe) => probe.put(&mut writer),
            Self::Losses(losses) => losses.put(&mut writer),
            Self::Tail(tail) => tail.put(&mut writer),
            Self::Repair(repair) => repair.put(&mut writer),
            Self::UmSend(ends, header) => {
                ends.put(&mut writer)?;
                let at = writer.written();
                header.emit(&mut buf[at..]).map(|_| ())
            }
        }
    }
}

/// A packet without its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketHeader {
    /// DestQP: TPN at the receiver, 0 where there is no TP (yet).
    pub dest: Tpn,
    /// PSN; its meaning depends on the body.
    pub psn: Psn,
    /// The receiver should acknowledge soon; only in sequenced packets.
    pub ack_req: bool,
    /// Which loss report the packet answers; only in sequenced packets.
    pub repeat: Option<Repeat>,
    /// Congestion marks FECN and BECN of the BTH.
    pub congestion: Congestion,
    /// Headers behind the BTH, by kind of packet.
    pub body: Body,
}

/// Where the parts of an emitted packet lie in its buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Payload: to be filled by the caller.
    pub payload: Range<usize>,
    /// Bytes of the whole packet, pad and ICRC included; the last four are for
    /// [`IcrcFlow::seal`].
    pub total: usize,
}

impl Frame {
    /// Reserves a packet at the front of `buf` and zeroes its pad; returns the place of the headers too.
    pub(crate) fn reserve(
        header_len: usize,
        payload_len: usize,
        buf: &mut [u8],
    ) -> Result<(Self, &mut [u8]), PacketError> {
        let end = header_len + payload_len;
        let pad_end = end + usize::from(pad_of(payload_len));
        let total = pad_end + ICRC_LEN;
        let have = buf.len();
        let packet = buf.get_mut(..total).ok_or(PacketError::Truncated { needed: total, have })?;
        packet[end..pad_end].fill(0);
        Ok((Self { payload: header_len..end, total }, &mut packet[..header_len]))
    }

    /// Copies the payload to its place and seals the packet; returns the count of bytes.
    pub(crate) fn complete(
        self,
        payload: &[u8],
        flow: &IcrcFlow,
        buf: &mut [u8],
    ) -> Result<usize, PacketError> {
        buf[self.payload].copy_from_slice(payload);
        flow.seal(&mut buf[..self.total])?;
        Ok(self.total)
    }
}

impl PacketHeader {
    /// A header without marks and acknowledgement request.
    #[must_use]
    pub const fn new(dest: Tpn, psn: Psn, body: Body) -> Self {
        let congestion = Congestion { forward: false, backward: false };
        Self { dest, psn, ack_req: false, repeat: None, congestion, body }
    }

    /// Bytes before the payload.
    #[must_use]
    pub const fn header_len(&self) -> usize {
        let repeat = if self.repeat.is_some() { Repeat::LEN } else { 0 };
        BTH_LEN + repeat + self.body.len()
    }

    /// Bytes of the whole packet with `payload_len` bytes of payload.
    #[must_use]
    pub const fn packet_len(&self, payload_len: usize) -> usize {
        self.header_len() + payload_len.next_multiple_of(4) + ICRC_LEN
    }

    /// Writes headers and pad around the place of `payload_len` bytes. The caller fills the
    /// payload, then seals.
    ///
    /// # Errors
    /// [`PacketError::Length`] when the headers forbid the payload, [`PacketError::Truncated`] when
    /// `buf` is too short, others when the fields contradict each other. `buf` may be half written
    /// then.
    pub fn emit_headers(&self, payload_len: usize, buf: &mut [u8]) -> Result<Frame, PacketError> {
        self.check()?;
        self.body.check_payload(payload_len)?;
        let (frame, headers) = Frame::reserve(self.header_len(), payload_len, buf)?;
        let (bth, mut rest) = headers.split_at_mut(BTH_LEN);
        bth.copy_from_slice(self.bth(pad_of(payload_len)).to_wire().as_bytes());
        if let Some(repeat) = &self.repeat {
            let (header, body) = rest.split_at_mut(Repeat::LEN);
            repeat.put(&mut Writer::new(header))?;
            rest = body;
        }
        self.body.put(rest)?;
        Ok(frame)
    }

    /// Writes the whole packet with its ICRC; the count of bytes written.
    ///
    /// # Errors
    /// Those of [`PacketHeader::emit_headers`].
    pub fn emit(
        &self,
        payload: &[u8],
        flow: &IcrcFlow,
        buf: &mut [u8],
    ) -> Result<usize, PacketError> {
        self.emit_headers(payload.len(), buf)?.complete(payload, flow, buf)
    }

    fn bth(&self, pad: u8) -> Bth {
        Bth {
            opcode: self.body.opcode().code(),
            solicited: false,
            mig_req: false,
            pad,
            version: WIRE_VERSION,
            pkey: PKEY,
            congestion: self.congestion,
            dest: self.dest,
            ack_req: self.ack_req,
            repeated: self.repeat.is_some(),
            psn: self.psn,
        }
    }

    /// Rules that join BTH and body. Both directions obey them.
    fn check(&self) -> Result<(), PacketError> {
        let dest = u64::from(self.dest.value());
        let outside_tp = matches!(self.body, Body::Connect(_) | Body::UmSend(..));
        let either = matches!(self.body, Body::Close(_));
        if !either && outside_tp != (dest == 0) {
            return Err(PacketError::field("DestQP", dest));
        }
        let has_number = matches!(
            self.body,
            Body::Ack(_) | Body::Nak(_) | Body::UmSend(..) | Body::Tail(_) | Body::Repair(_)
        );
        let counts = self.body.is_sequenced() || has_number;
        if !counts && self.psn.value() != 0 {
            return Err(PacketError::field("PSN", self.psn.value().into()));
        }
        if self.ack_req && !self.body.is_sequenced() {
            return Err(PacketError::field("AckReq", 1));
        }
        if self.repeat.is_some() && !self.body.is_sequenced() {
            return Err(PacketError::field("Repeated", 1));
        }
        match &self.body {
            Body::Nak(ack) if !ack.received.words().is_empty() => {
                Err(PacketError::field("bitmap words", ack.received.words().len() as u64))
            }
            Body::Connect(offer) => offer.check_offer(),
            Body::Accept(choice) => choice.check_choice(),
            Body::Refuse(refusal) => refusal.check(),
            Body::Probe(probe) | Body::ProbeEcho(probe) => probe.check(),
            Body::Losses(losses) => losses.check(),
            Body::Repair(repair) => repair.check(),
            Body::Request(header) if header.flags.contains(RequestFlags::DATAGRAM) => {
                Err(PacketError::field("UD", 1))
            }
            Body::UmSend(_, header) if !header.flags.contains(RequestFlags::DATAGRAM) => {
                Err(PacketError::field("UD", 0))
            }
            Body::Request(_)
            | Body::Response(_)
            | Body::Pack
            | Body::Ack(_)
            | Body::Nak(_)
            | Body::Challenge(_)
            | Body::Close(_)
            | Body::Tail(_)
            | Body::UmSend(..) => Ok(()),
        }
    }
}

/// Received packet: parsed headers and the bytes of its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Parsed headers, the BTH first.
    pub header: PacketHeader,
    /// Its payload, without pad.
    pub payload: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Verifies the ICRC, then parses.
    ///
    /// # Errors
    /// Any [`PacketError`].
    pub fn open(bytes: &'a [u8], flow: &IcrcFlow) -> Result<Self, PacketError> {
        flow.verify(bytes)?;
        Self::parse(bytes)
    }

    /// Parses a whole UDP payload, ICRC included but not verified.
    ///
    /// # Errors
    /// Any [`PacketError`] but `Icrc`.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, PacketError> {
        let bth = Bth::parse(bytes)?;
        let opcode = TpOpcode::from_code(bth.opcode)?;
        if bth.version != WIRE_VERSION {
            return Err(PacketError::Version(bth.version));
        }
        // SE and MigReq, the top bits of byte 1, have no meaning here.
        reserved("BTH", u32::from(bytes[1] & 0xc0))?;
        if bth.pkey != PKEY {
            return Err(PacketError::field("PKEY", bth.pkey.into()));
        }
        let (covered, _) = split_icrc(bytes)?;
        let mut reader = Reader::new(&covered[BTH_LEN..]);
        let repeat = if bth.repeated { Some(Repeat::take(&mut reader)?) } else { None };
        let (body, padded) = Body::parse(opcode, reader.rest())?;
        let Bth { dest, psn, ack_req, congestion, .. } = bth;
        let header = PacketHeader { dest, psn, ack_req, repeat, congestion, body };
        header.check()?;
        let payload = split_pad(padded, bth.pad)?;
        header.body.check_payload(payload.len())?;
        if matches!(body, Body::Pack) {
            pack::check(payload)?;
        }
        Ok(Self { header, payload })
    }
}
