//! Whole standard packets.
//!
//! - owns: joining BTH, extension headers, payload, pad and ICRC by the opcode table.
//! - takes: a UDP payload, or a [`RoceHeader`]. gives: the other. must not: depend on connections.

use zerocopy::IntoBytes;

use super::headers::{Aeth, AtomicAckEth, AtomicEth, Deth, Feth, Ieth, ImmDt, Rdeth, Reth};
use super::opcode::{CNP, Headers, PacketLayout};
use crate::codec::{Reader, Writer, pad_of, reserved, split_pad};
use crate::icrc::split_icrc;
use crate::{BTH_LEN, Bth, Frame, IcrcFlow, PacketError};

/// TVer of the standard opcodes.
const VERSION: u8 = 0;

/// Extension headers of a packet; exactly those of its opcode are present.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RoceExt {
    /// Header of reliable datagrams.
    pub rdeth: Option<Rdeth>,
    /// Source queue and key of a datagram.
    pub deth: Option<Deth>,
    /// Kind and range of a flush.
    pub feth: Option<Feth>,
    /// Remote address, key and length of a READ or WRITE.
    pub reth: Option<Reth>,
    /// Remote address and operands of an atomic.
    pub atomic: Option<AtomicEth>,
    /// Syndrome and message number of a response.
    pub aeth: Option<Aeth>,
    /// Value that an atomic found at the target.
    pub atomic_ack: Option<AtomicAckEth>,
    /// Immediate data for the receiver's completion.
    pub imm: Option<ImmDt>,
    /// Key that the receiver invalidates.
    pub ieth: Option<Ieth>,
}

impl RoceExt {
    /// Which headers are present.
    #[must_use]
    pub fn headers(&self) -> Headers {
        let mut present = Headers::empty();
        present.set(Headers::RDETH, self.rdeth.is_some());
        present.set(Headers::DETH, self.deth.is_some());
        present.set(Headers::FETH, self.feth.is_some());
        present.set(Headers::RETH, self.reth.is_some());
        present.set(Headers::ATOMIC, self.atomic.is_some());
        present.set(Headers::AETH, self.aeth.is_some());
        present.set(Headers::ATOMIC_ACK, self.atomic_ack.is_some());
        present.set(Headers::IMM, self.imm.is_some());
        present.set(Headers::IETH, self.ieth.is_some());
        present
    }

    fn len(&self) -> usize {
        let sizes = [
            self.rdeth.map_or(0, |_| Rdeth::LEN),
            self.deth.map_or(0, |_| Deth::LEN),
            self.feth.map_or(0, |_| Feth::LEN),
            self.reth.map_or(0, |_| Reth::LEN),
            self.atomic.map_or(0, |_| AtomicEth::LEN),
            self.aeth.map_or(0, |_| Aeth::LEN),
            self.atomic_ack.map_or(0, |_| AtomicAckEth::LEN),
            self.imm.map_or(0, |_| ImmDt::LEN),
            self.ieth.map_or(0, |_| Ieth::LEN),
        ];
        sizes.iter().sum()
    }

    fn take(headers: Headers, reader: &mut Reader<'_>) -> Result<Self, PacketError> {
        macro_rules! next {
            ($flag:ident, $type:ty) => {
                if headers.contains(Headers::$flag) { Some(<$type>::take(reader)?) } else { None }
            };
        }
        // The fields are evaluated in the order of the headers in a packet.
        Ok(Self {
            rdeth: next!(RDETH, Rdeth),
            deth: next!(DETH, Deth),
            feth: next!(FETH, Feth),
            reth: next!(RETH, Reth),
            atomic: next!(ATOMIC, AtomicEth),
            aeth: next!(AETH, Aeth),
            atomic_ack: next!(ATOMIC_ACK, AtomicAckEth),
            imm: next!(IMM, ImmDt),
            ieth: next!(IETH, Ieth),
        })
    }

    fn put(&self, writer: &mut Writer<'_>) -> Result<(), PacketError> {
        macro_rules! next {
            ($($field:ident)+) => { $(if let Some(header) = &self.$field { header.put(writer)?; })+ };
        }
        next!(rdeth deth feth reth atomic aeth atomic_ack imm ieth);
        Ok(())
    }
}

/// A standard packet without its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoceHeader {
    /// BTH. `pad` and `version` are filled in when the packet is emitted.
    pub bth: Bth,
    /// Extension headers, those of the opcode.
    pub ext: RoceExt,
}

impl RoceHeader {
    /// Bytes before the payload.
    #[must_use]
    pub fn header_len(&self) -> usize {
        BTH_LEN + self.ext.len()
    }

    /// Writes headers and pad around the place of `payload_len` bytes. The caller fills the
    /// payload, then seals with [`IcrcFlow::seal`].
    ///
    /// # Errors
    /// [`PacketError::Opcode`], [`PacketError::Field`] when the headers are not those of the
    /// opcode, [`PacketError::Length`], [`PacketError::Truncated`] when `buf` is too short.
    pub fn emit_headers(&self, payload_len: usize, buf: &mut [u8]) -> Result<Frame, PacketError> {
        let layout = PacketLayout::of(self.bth.opcode)?;
        if layout.headers != self.ext.headers() {
            return Err(PacketError::field("headers", self.ext.headers().bits().into()));
        }
        layout.payload.check(payload_len)?;
        let (frame, headers) = Frame::reserve(self.header_len(), payload_len, buf)?;
        let (bth, rest) = headers.split_at_mut(BTH_LEN);
        let pad = pad_of(payload_len);
        bth.copy_from_slice(
            Bth { pad, version: VERSION, repeated: false, ..self.bth }.to_wire().as_bytes(),
        );
        self.ext.put(&mut Writer::new(rest))?;
        Ok(frame)
    }

    /// Writes the whole packet with its ICRC; the count of bytes written.
    ///
    /// # Errors
    /// Those of [`RoceHeader::emit_headers`].
    pub fn emit(
        &self,
        payload: &[u8],
        flow: &IcrcFlow,
        buf: &mut [u8],
    ) -> Result<usize, PacketError> {
        self.emit_headers(payload.len(), buf)?.complete(payload, flow, buf)
    }
}

/// A received standard packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RocePacket<'a> {
    /// Headers, the BTH first.
    pub header: RoceHeader,
    /// Its payload, without pad. The 16 zero bytes of a congestion notification count as payload.
    pub payload: &'a [u8],
}

impl<'a> RocePacket<'a> {
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
        reserved("BTH", u32::from(bth.repeated))?;
        let layout = PacketLayout::of(bth.opcode)?;
        if bth.version != VERSION {
            return Err(PacketError::Version(bth.version));
        }
        let (covered, _) = split_icrc(bytes)?;
        let mut reader = Reader::new(&covered[BTH_LEN..]);
        let ext = RoceExt::take(layout.headers, &mut reader)?;
        let payload = split_pad(reader.rest(), bth.pad)?;
        layout.payload.check(payload.len())?;
        if bth.opcode == CNP && payload.iter().any(|&byte| byte != 0) {
            return Err(PacketError::Reserved { header: "CNP", value: 1 });
        }
        Ok(Self { header: RoceHeader { bth, ext }, payload })
    }
}
