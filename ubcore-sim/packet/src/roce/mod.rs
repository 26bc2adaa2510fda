//! The standard InfiniBand opcodes over RoCEv2, and the congestion notification packet.
//!
//! Extension headers (InfiniBand Architecture Specification 1.7, 9.3 to 9.5), which of them follow the BTH for each
//! opcode (9.2 and annexes A17, A19), and whole packets. No transport: packets of a message are judged one by one.

use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
    byteorder::network_endian::{U32, U64},
};

use crate::{
    BTH_LEN, Bth, Frame, IcrcFlow, PacketError,
    codec::{Reader, Writer, from_be24, pad_of, reserved, split_pad, to_be24},
    icrc::split_icrc,
};

/// Opcodes of the reliable connected transport; the numbers before the transport is added.
pub mod rc {
    /// First packet of a SEND.
    pub const SEND_FIRST: u8 = 0x00;
    /// Middle packet of a SEND.
    pub const SEND_MIDDLE: u8 = 0x01;
    /// Last packet of a SEND.
    pub const SEND_LAST: u8 = 0x02;
    /// Last packet of a SEND with immediate.
    pub const SEND_LAST_IMM: u8 = 0x03;
    /// SEND in one packet.
    pub const SEND_ONLY: u8 = 0x04;
    /// SEND with immediate in one packet.
    pub const SEND_ONLY_IMM: u8 = 0x05;
    /// First packet of a WRITE.
    pub const WRITE_FIRST: u8 = 0x06;
    /// Middle packet of a WRITE.
    pub const WRITE_MIDDLE: u8 = 0x07;
    /// Last packet of a WRITE.
    pub const WRITE_LAST: u8 = 0x08;
    /// Last packet of a WRITE with immediate.
    pub const WRITE_LAST_IMM: u8 = 0x09;
    /// WRITE in one packet.
    pub const WRITE_ONLY: u8 = 0x0a;
    /// WRITE with immediate in one packet.
    pub const WRITE_ONLY_IMM: u8 = 0x0b;
    /// READ request, without payload.
    pub const READ_REQUEST: u8 = 0x0c;
    /// First packet of a READ response.
    pub const READ_RESPONSE_FIRST: u8 = 0x0d;
    /// Middle packet of a READ response; has no AETH.
    pub const READ_RESPONSE_MIDDLE: u8 = 0x0e;
    /// Last packet of a READ response.
    pub const READ_RESPONSE_LAST: u8 = 0x0f;
    /// READ response in one packet.
    pub const READ_RESPONSE_ONLY: u8 = 0x10;
    /// Acknowledgement, positive or negative.
    pub const ACKNOWLEDGE: u8 = 0x11;
    /// Acknowledgement with the old value of an atomic.
    pub const ATOMIC_ACKNOWLEDGE: u8 = 0x12;
    /// Compare and swap of 8 bytes.
    pub const COMPARE_SWAP: u8 = 0x13;
    /// Fetch and add of 8 bytes.
    pub const FETCH_ADD: u8 = 0x14;
    /// Resynchronisation; reliable datagrams only.
    pub const RESYNC: u8 = 0x15;
    /// Last packet of a SEND with invalidate.
    pub const SEND_LAST_INV: u8 = 0x16;
    /// SEND with invalidate in one packet.
    pub const SEND_ONLY_INV: u8 = 0x17;
    /// FLUSH: makes earlier writes persistent or visible.
    pub const FLUSH: u8 = 0x1c;
    /// ATOMIC WRITE of 8 bytes.
    pub const ATOMIC_WRITE: u8 = 0x1d;
}

/// Added to the numbers of [`rc`]: reliable connection.
pub const TRANSPORT_RC: u8 = 0x00;
/// Unreliable connection (0x00 to 0x0b only).
pub const TRANSPORT_UC: u8 = 0x20;
/// Transport code of reliable datagrams.
pub const TRANSPORT_RD: u8 = 0x40;
/// Unreliable datagram (SEND_ONLY and SEND_ONLY_IMM only).
pub const TRANSPORT_UD: u8 = 0x60;

/// A header of plain integers: its values, its layout, and both directions.
macro_rules! plain_header {
    ($(#[$meta:meta])* $name:ident, $wire:ident { $($(#[$fmeta:meta])* $field:ident: $native:ty => $layout:ty,)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct $name { $($(#[$fmeta])* pub $field: $native,)+ }

        #[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
        #[repr(C)]
        struct $wire { $($field: $layout,)+ }

        impl $name {
            /// Bytes of the header.
            pub const LEN: usize = size_of::<$wire>();

            fn take(reader: &mut Reader<'_>) -> Result<Self, PacketError> {
                let wire: &$wire = reader.take()?;
                Ok(Self { $($field: wire.$field.get(),)+ })
            }

            fn put(&self, writer: &mut Writer<'_>) -> Result<(), PacketError> {
                writer.put(&$wire { $($field: <$layout>::new(self.$field),)+ })
            }
        }
    };
}

plain_header! {
    /// RETH: remote memory of a WRITE, READ, FLUSH or ATOMIC WRITE.
    Reth, RethWire {
        /// Virtual address of the first byte.
        va: u64 => U64,
        /// Remote key of the memory at the target.
        rkey: u32 => U32,
        /// Bytes of the whole message.
        dma_len: u32 => U32,
    }
}

plain_header! {
    /// AtomicETH: an atomic on 8 bytes.
    AtomicEth, AtomicEthWire {
        /// Virtual address, 8-byte aligned.
        va: u64 => U64,
        /// Remote key of the memory at the target.
        rkey: u32 => U32,
        /// New value or addend.
        swap_or_add: u64 => U64,
        /// Value compared with; 0 for an addition.
        compare: u64 => U64,
    }
}

plain_header! {
    /// AtomicAckETH: what the atomic found.
    AtomicAckEth, AtomicAckEthWire {
        /// Value of the target before the atomic.
        original: u64 => U64,
    }
}

plain_header! {
    /// ImmDt: immediate data for the receiver's completion.
    ImmDt, ImmDtWire {
        /// Immediate value, 32 bits.
        value: u32 => U32,
    }
}

plain_header! {
    /// IETH: key to invalidate.
    Ieth, IethWire {
        /// Remote key of the memory at the target.
        rkey: u32 => U32,
    }
}

/// AETH: acknowledgement of the reliable transports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Aeth {
    /// What is acknowledged, and how.
    pub syndrome: Syndrome,
    /// Message sequence number, 24 bits.
    pub msn: u32,
}

/// Syndrome of an AETH.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Syndrome {
    /// Positive; 5-bit credit code, 0x1f when credits are not used.
    Ack {
        /// Credit code, 5 bits.
        credit: u8,
    },
    /// Receiver not ready; 5-bit timer code.
    RnrNak {
        /// Timer code, see [`crate::ResponseStatus::rnr_timer_ns`].
        timer: u8,
    },
    /// Negative: PSN sequence error.
    PsnSequence,
    /// Negative: the responder refuses the request as invalid.
    InvalidRequest,
    /// Negative: remote access error.
    RemoteAccess,
    /// Negative: remote operational error.
    RemoteOperation,
    /// Negative: invalid reliable-datagram request.
    InvalidRdRequest,
}

impl Syndrome {
    /// The byte on the wire. Codes are cut to 5 bits.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Ack { credit } => credit & 0x1f,
            Self::RnrNak { timer } => 0x20 | timer & 0x1f,
            Self::PsnSequence => 0x60,
            Self::InvalidRequest => 0x61,
            Self::RemoteAccess => 0x62,
            Self::RemoteOperation => 0x63,
            Self::InvalidRdRequest => 0x64,
        }
    }

    /// The syndrome of a byte.
    ///
    /// # Errors
    /// [`PacketError::Field`].
    pub fn from_code(code: u8) -> Result<Self, PacketError> {
        match code {
            0x00..=0x1f => Ok(Self::Ack { credit: code }),
            0x20..=0x3f => Ok(Self::RnrNak { timer: code & 0x1f }),
            0x60 => Ok(Self::PsnSequence),
            0x61 => Ok(Self::InvalidRequest),
            0x62 => Ok(Self::RemoteAccess),
            0x63 => Ok(Self::RemoteOperation),
            0x64 => Ok(Self::InvalidRdRequest),
            _ => Err(PacketError::field("syndrome", code.into())),
        }
    }
}

impl Aeth {
    /// Bytes of the header.
    pub const LEN: usize = 4;

    fn take(reader: &mut Reader<'_>) -> Result<Self, PacketError> {
        let [code, msn @ ..] = *reader.take::<[u8; Self::LEN]>()?;
        Ok(Self { syndrome: Syndrome::from_code(code)?, msn: from_be24(msn) })
    }

    fn put(&self, writer: &mut Writer<'_>) -> Result<(), PacketError> {
        writer.put(&self.syndrome.code())?;
        writer.put(&to_be24(self.msn))
    }
}

/// DETH: source queue and key of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deth {
    /// Queue key that the receiver checks.
    pub qkey: u32,
    /// Sending queue pair, 24 bits.
    pub source_qp: u32,
}

impl Deth {
    /// Bytes of the header.
    pub const LEN: usize = 8;

    fn take(reader: &mut Reader<'_>) -> Result<Self, PacketError> {
        let qkey = reader.take::<U32>()?.get();
        let source_qp = reader.take::<U32>()?.get();
        reserved("DETH", source_qp >> 24)?;
        Ok(Self { qkey, source_qp })
    }

    fn put(&self, writer: &mut Writer<'_>) -> Result<(), PacketError> {
        writer.put(&U32::new(self.qkey))?;
        writer.put(&U32::new(self.source_qp & MASK_24))
    }
}

/// RDETH: end-to-end context of a reliable datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rdeth {
    /// Context number, 24 bits.
    pub context: u32,
}

impl Rdeth {
    /// Bytes of the header.
    pub const LEN: usize = 4;

    fn take(reader: &mut Reader<'_>) -> Result<Self, PacketError> {
        let context = reader.take::<U32>()?.get();
        reserved("RDETH", context >> 24)?;
        Ok(Self { context })
    }

    fn put(&self, writer: &mut Writer<'_>) -> Result<(), PacketError> {
        writer.put(&U32::new(self.context & MASK_24))
    }
}

/// FETH: what a FLUSH makes visible or durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Feth {
    /// Placement type bits (0: global visibility, 1: persistence), 4 bits.
    pub placement: u8,
    /// Selectivity (0: a range, 1: a whole region), 2 bits.
    pub selectivity: u8,
}

impl Feth {
    /// Bytes of the header.
    pub const LEN: usize = 4;

    fn take(reader: &mut Reader<'_>) -> Result<Self, PacketError> {
        let word = reader.take::<U32>()?.get();
        reserved("FETH", word & !0x3f)?;
        let [.., low] = word.to_be_bytes();
        Ok(Self { placement: low & 0xf, selectivity: low >> 4 })
    }

    fn put(&self, writer: &mut Writer<'_>) -> Result<(), PacketError> {
        let bits = (self.selectivity & 3) << 4 | self.placement & 0xf;
        writer.put(&U32::new(bits.into()))
    }
}

const MASK_24: u32 = 0x00ff_ffff;
const _: () = assert!(Reth::LEN == 16 && AtomicEth::LEN == 28 && AtomicAckEth::LEN == 8);

/// Congestion notification packet: BTH with BECN set, then 16 zero bytes.
pub const CNP: u8 = 0x81;

bitflags::bitflags! {
    /// Extension headers, lowest bit first in the packet.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Headers: u16 {
        /// Reliable datagram, 4 bytes.
        const RDETH = 1;
        /// Datagram header DETH, 8 bytes.
        const DETH = 1 << 1;
        /// Flush header FETH, 4 bytes.
        const FETH = 1 << 2;
        /// Remote memory, 16 bytes.
        const RETH = 1 << 3;
        /// Atomic request, 28 bytes.
        const ATOMIC = 1 << 4;
        /// Acknowledgement header AETH, 4 bytes.
        const AETH = 1 << 5;
        /// Old value of an atomic, 8 bytes.
        const ATOMIC_ACK = 1 << 6;
        /// Immediate data ImmDt, 4 bytes.
        const IMM = 1 << 7;
        /// Invalidate header IETH, 4 bytes.
        const IETH = 1 << 8;
    }
}

/// How much payload a packet may carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PayloadRule {
    /// The packet has no payload.
    None,
    /// Exactly a path MTU: 256, 512, 1024, 2048 or 4096 bytes.
    PathMtu,
    /// 1 to 4096 bytes.
    Last,
    /// 0 to 4096 bytes.
    Only,
    /// The payload has exactly 8 bytes.
    Eight,
    /// The payload has exactly 16 bytes.
    Sixteen,
}

/// Largest path MTU of the standard opcodes, in bytes.
const PATH_MTU_MAX: usize = 4096;

impl PayloadRule {
    /// Checks a payload length in bytes.
    ///
    /// # Errors
    /// [`PacketError::Length`].
    pub fn check(self, found: usize) -> Result<(), PacketError> {
        let (fits, expected) = match self {
            Self::None => (found == 0, 0),
            Self::PathMtu => {
                (found.is_power_of_two() && (256..=PATH_MTU_MAX).contains(&found), PATH_MTU_MAX)
            }
            Self::Last => ((1..=PATH_MTU_MAX).contains(&found), PATH_MTU_MAX),
            Self::Only => (found <= PATH_MTU_MAX, PATH_MTU_MAX),
            Self::Eight => (found == 8, 8),
            Self::Sixteen => (found == 16, 16),
        };
        if fits { Ok(()) } else { Err(PacketError::Length { expected, found }) }
    }
}

/// What an opcode's packets look like after the BTH.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketLayout {
    /// Extension headers between BTH and payload.
    pub headers: Headers,
    /// Lengths that the payload may have.
    pub payload: PayloadRule,
}

impl PacketLayout {
    /// The layout of an opcode.
    ///
    /// # Errors
    /// [`PacketError::Opcode`] for what the standard does not define.
    pub fn of(opcode: u8) -> Result<Self, PacketError> {
        let unknown = PacketError::Opcode(opcode);
        if opcode == CNP {
            return Ok(Self { headers: Headers::empty(), payload: PayloadRule::Sixteen });
        }
        let op = opcode & 0x1f;
        let layout = Self::of_operation(op).ok_or(unknown)?;
        let is_response =
            layout.headers.intersects(Headers::AETH) || op == rc::READ_RESPONSE_MIDDLE;
        let added = match opcode & 0xe0 {
            TRANSPORT_RC if op != rc::RESYNC => Headers::empty(),
            TRANSPORT_UC if op <= rc::WRITE_ONLY_IMM => Headers::empty(),
            TRANSPORT_RD if op <= rc::RESYNC && is_response => Headers::RDETH,
            TRANSPORT_RD if op <= rc::RESYNC => Headers::RDETH | Headers::DETH,
            TRANSPORT_UD if matches!(op, rc::SEND_ONLY | rc::SEND_ONLY_IMM) => Headers::DETH,
            _ => return Err(unknown),
        };
        Ok(Self { headers: layout.headers | added, payload: layout.payload })
    }

    fn of_operation(op: u8) -> Option<Self> {
        let none = Headers::empty();
        let (headers, payload) = match op {
            rc::SEND_FIRST | rc::SEND_MIDDLE | rc::WRITE_MIDDLE => (none, PayloadRule::PathMtu),
            rc::SEND_LAST | rc::WRITE_LAST => (none, PayloadRule::Last),
            rc::SEND_LAST_IMM | rc::WRITE_LAST_IMM => (Headers::IMM, PayloadRule::Last),
            rc::SEND_ONLY => (none, PayloadRule::Only),
            rc::SEND_ONLY_IMM => (Headers::IMM, PayloadRule::Only),
            rc::WRITE_FIRST => (Headers::RETH, PayloadRule::PathMtu),
            rc::WRITE_ONLY => (Headers::RETH, PayloadRule::Only),
            rc::WRITE_ONLY_IMM => (Headers::RETH | Headers::IMM, PayloadRule::Only),
            rc::READ_REQUEST => (Headers::RETH, PayloadRule::None),
            rc::READ_RESPONSE_FIRST => (Headers::AETH, PayloadRule::PathMtu),
            rc::READ_RESPONSE_MIDDLE => (none, PayloadRule::PathMtu),
            rc::READ_RESPONSE_LAST => (Headers::AETH, PayloadRule::Last),
            rc::READ_RESPONSE_ONLY => (Headers::AETH, PayloadRule::Only),
            rc::ACKNOWLEDGE => (Headers::AETH, PayloadRule::None),
            rc::ATOMIC_ACKNOWLEDGE => (Headers::AETH | Headers::ATOMIC_ACK, PayloadRule::None),
            rc::COMPARE_SWAP | rc::FETCH_ADD => (Headers::ATOMIC, PayloadRule::None),
            rc::RESYNC => (none, PayloadRule::None),
            rc::SEND_LAST_INV => (Headers::IETH, PayloadRule::Last),
            rc::SEND_ONLY_INV => (Headers::IETH, PayloadRule::Only),
            rc::FLUSH => (Headers::FETH | Headers::RETH, PayloadRule::None),
            rc::ATOMIC_WRITE => (Headers::RETH, PayloadRule::Eight),
            _ => return None,
        };
        Some(Self { headers, payload })
    }
}

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

#[cfg(test)]
mod tests;
