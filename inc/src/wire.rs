//! The INC header: 16 bytes before the data of each chunk.
//!
//! A chunk is one message of a RoCEv2 edge, in one to eight packets: SEND or RDMA WRITE with immediate, whose immediate is
//! the chunk's number again. The layout is docs/wire-spec.md, 13; headers are big-endian, elements little-endian.

use std::fmt;

use urma_packet::PacketError;
use zerocopy::byteorder::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::element::{ElementType, Operator, Reduction};

/// Version of the header.
pub const VERSION: u8 = 1;
/// Bytes of the header.
pub const HEADER_LEN: usize = size_of::<HeaderWire>();
const _: () = assert!(HEADER_LEN == 16);

/// What is done with a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Collective {
    /// Every rank gets the reduction.
    Allreduce(Reduction),
    /// One rank gets the reduction.
    Reduce(Reduction, Rank),
    /// Every rank gets the data of one.
    Broadcast(ElementType, Rank),
    /// No rank gets data; all wait for all.
    Barrier,
}

/// Number of a member of a communicator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Rank(pub u16);

/// Number of a chunk in its communicator. Compares by the sign of the difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Seq(pub u32);

/// Life of a communicator's tree. A message of another one is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct TreeEpoch(pub u16);

/// Why a communicator is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AbortReason {
    /// A member of the communicator died.
    MemberDead = 1,
    /// Contributions to a chunk contradict each other.
    Contradiction,
    /// The tenant has no slots left.
    Quota,
    /// An edge of the tree is dead.
    EdgeDead,
    /// The switch or the controller shuts down.
    ShutDown,
    /// A member broke the protocol.
    Protocol,
}

/// Header of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IncHeader {
    /// What the message is.
    pub kind: IncKind,
    /// Number of the chunk.
    pub seq: Seq,
    /// Life of the tree.
    pub epoch: TreeEpoch,
    /// The operation's number modulo 2^16.
    pub op_id: u16,
    /// It was sent before.
    pub is_repeat: bool,
    /// Last chunk of its operation.
    pub is_last: bool,
    /// Elements in the message.
    pub count: u16,
}

/// What a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IncKind {
    /// A child's part of a chunk, on the way up.
    Contribution(Collective),
    /// The reduced chunk, on the way down.
    Result(Collective),
    /// The chunk is done, and its receiver gets no data.
    Release(Collective),
    /// The communicator is over in this epoch.
    Abort(AbortReason),
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct HeaderWire {
    version_kind: u8,
    collective_flags: u8,
    operator: u8,
    element: u8,
    seq: U32,
    epoch: U16,
    count: U16,
    op_id: U16,
    root: U16,
}

const CONTRIBUTION: u8 = 1;
const RESULT: u8 = 2;
const RELEASE: u8 = 3;
const ABORT: u8 = 4;
const FLAG_REPEAT: u8 = 1;
const FLAG_LAST: u8 = 2;
const FLAGS_RESERVED: u8 = 0b1100;

impl Seq {
    /// Whether it comes before `other`: the sign of the difference, so that numbers may wrap.
    #[must_use]
    pub const fn is_before(self, other: Self) -> bool {
        self.0.wrapping_sub(other.0).cast_signed() < 0
    }

    /// The number `n` chunks later.
    #[must_use]
    pub const fn plus(self, n: u32) -> Self {
        Self(self.0.wrapping_add(n))
    }

    /// The number `n` chunks before.
    #[must_use]
    pub const fn back(self, n: u32) -> Self {
        Self(self.0.wrapping_sub(n))
    }

    /// The earlier one of the two.
    #[must_use]
    pub const fn min_of(self, other: Self) -> Self {
        if other.is_before(self) { other } else { self }
    }

    /// Chunks from `earlier` to this one; what it means when this one is earlier is for the caller.
    #[must_use]
    pub const fn since(self, earlier: Self) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }
}

impl IncHeader {
    /// The header of an answer. In plain framing a message does not say which way it goes: what comes from the parent is a
    /// result.
    #[must_use]
    pub const fn from_parent(self, is_plain: bool) -> Self {
        match (is_plain, self.kind) {
            (true, IncKind::Contribution(collective)) => {
                Self { kind: IncKind::Result(collective), ..self }
            }
            (true | false, _) => self,
        }
    }
}

impl TreeEpoch {
    /// Whether it comes before `other`: the sign of the difference.
    #[must_use]
    pub const fn is_before(self, other: Self) -> bool {
        self.0.wrapping_sub(other.0).cast_signed() < 0
    }

    /// Life of the tree that comes next.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for AbortReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MemberDead => "a member died",
            Self::Contradiction => "members called different operations, or with different sizes",
            Self::Quota => "the tenant has no slots left in a switch",
            Self::EdgeDead => "an edge of the tree is dead",
            Self::ShutDown => "a switch or the controller shuts down",
            Self::Protocol => "a member broke the protocol",
        })
    }
}

impl AbortReason {
    const ALL: [Self; 6] = [
        Self::MemberDead,
        Self::Contradiction,
        Self::Quota,
        Self::EdgeDead,
        Self::ShutDown,
        Self::Protocol,
    ];
}

impl Collective {
    /// The reduction that is carried out, if one is.
    #[must_use]
    pub const fn reduction(self) -> Option<Reduction> {
        match self {
            Self::Allreduce(reduction) | Self::Reduce(reduction, _) => Some(reduction),
            Self::Broadcast(..) | Self::Barrier => None,
        }
    }

    /// Bytes of an element; 0: there is no data.
    #[must_use]
    pub const fn element_size(self) -> usize {
        match self {
            Self::Allreduce(reduction) | Self::Reduce(reduction, _) => reduction.element().size(),
            Self::Broadcast(element, _) => element.size(),
            Self::Barrier => 0,
        }
    }

    /// The rank that alone sends or gets data.
    #[must_use]
    pub const fn root(self) -> Option<Rank> {
        match self {
            Self::Reduce(_, root) | Self::Broadcast(_, root) => Some(root),
            Self::Allreduce(_) | Self::Barrier => None,
        }
    }

    /// Code of the collective, the operator, the element type, the root.
    fn fields(self) -> (u8, u8, u8, u16) {
        let codes =
            |reduction: Reduction| (reduction.operator().code(), reduction.element().code());
        match self {
            Self::Allreduce(reduction) => {
                let (operator, element) = codes(reduction);
                (0, operator, element, 0)
            }
            Self::Reduce(reduction, root) => {
                let (operator, element) = codes(reduction);
                (1, operator, element, root.0)
            }
            Self::Broadcast(element, root) => (2, 0, element.code(), root.0),
            Self::Barrier => (3, 0, 0, 0),
        }
    }

    fn from_fields(wire: &HeaderWire) -> Result<Self, PacketError> {
        let (operator, element) = (wire.operator, wire.element);
        if operator != 0 && Operator::from_code(operator).is_none() {
            return Err(field("operator", operator));
        }
        if element != 0 && ElementType::from_code(element).is_none() {
            return Err(field("element type", element));
        }
        let pair = u64::from(operator) << 8 | u64::from(element);
        let wrong_pair = PacketError::Field { field: "operator and element type", value: pair };
        let root = Rank(wire.root.get());
        let reduction = || {
            let operator = Operator::from_code(operator).ok_or(wrong_pair)?;
            let element = ElementType::from_code(element).ok_or(wrong_pair)?;
            Reduction::new(operator, element).ok_or(wrong_pair)
        };
        let no_root = |collective| {
            if root == Rank(0) { Ok(collective) } else { Err(field_16("root", root.0)) }
        };
        match wire.collective_flags >> 4 {
            0 => no_root(Self::Allreduce(reduction()?)),
            1 => Ok(Self::Reduce(reduction()?, root)),
            2 if operator != 0 => Err(wrong_pair),
            2 => Ok(Self::Broadcast(ElementType::from_code(element).ok_or(wrong_pair)?, root)),
            3 if operator != 0 || element != 0 => Err(wrong_pair),
            3 => no_root(Self::Barrier),
            other => Err(field("collective", other)),
        }
    }
}

impl IncHeader {
    /// Takes a whole message apart: the header, and the data behind it.
    ///
    /// # Errors
    /// [`PacketError::Truncated`], [`PacketError::Version`], [`PacketError::Reserved`], [`PacketError::Field`] for values
    /// that are not in the tables or do not go together, [`PacketError::Length`] when the data is not as long as its count
    /// says. All lengths are in bytes.
    pub fn parse(message: &[u8]) -> Result<(Self, &[u8]), PacketError> {
        let have = message.len();
        let (wire, data) = HeaderWire::ref_from_prefix(message)
            .map_err(|_| PacketError::Truncated { needed: HEADER_LEN, have })?;
        let version = wire.version_kind >> 4;
        if version != VERSION {
            return Err(PacketError::Version(version));
        }
        let flags = wire.collective_flags & 0xf;
        if flags & FLAGS_RESERVED != 0 {
            let value = (flags & FLAGS_RESERVED).into();
            return Err(PacketError::Reserved { header: "INC", value });
        }
        let kind = match wire.version_kind & 0xf {
            CONTRIBUTION => IncKind::Contribution(Collective::from_fields(wire)?),
            RESULT => IncKind::Result(Collective::from_fields(wire)?),
            RELEASE => IncKind::Release(Collective::from_fields(wire)?),
            ABORT => IncKind::Abort(abort_reason(wire)?),
            other => return Err(field("kind", other)),
        };
        let header = Self {
            kind,
            seq: Seq(wire.seq.get()),
            epoch: TreeEpoch(wire.epoch.get()),
            op_id: wire.op_id.get(),
            is_repeat: flags & FLAG_REPEAT != 0,
            is_last: flags & FLAG_LAST != 0,
            count: wire.count.get(),
        };
        let (expected, found) = (header.data_len(), data.len());
        if header.has_no_elements() && header.count != 0 {
            return Err(field_16("count", header.count));
        }
        if expected != found {
            return Err(PacketError::Length { expected, found });
        }
        Ok((header, data))
    }

    /// The same for a message that came with an immediate, which is its chunk's number.
    ///
    /// # Errors
    /// As [`IncHeader::parse`], and [`PacketError::Field`] when the numbers differ.
    pub fn parse_with_imm(message: &[u8], imm: u32) -> Result<(Self, &[u8]), PacketError> {
        let (header, data) = Self::parse(message)?;
        if header.seq == Seq(imm) {
            Ok((header, data))
        } else {
            Err(PacketError::Field { field: "immediate", value: imm.into() })
        }
    }

    /// The header as 16 bytes.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; HEADER_LEN] {
        let (kind, (collective, operator, element, root)) = match self.kind {
            IncKind::Contribution(collective) => (CONTRIBUTION, collective.fields()),
            IncKind::Result(collective) => (RESULT, collective.fields()),
            IncKind::Release(collective) => (RELEASE, collective.fields()),
            IncKind::Abort(reason) => (ABORT, (0, 0, 0, reason as u16)),
        };
        let repeat = if self.is_repeat { FLAG_REPEAT } else { 0 };
        let last = if self.is_last { FLAG_LAST } else { 0 };
        let wire = HeaderWire {
            version_kind: VERSION << 4 | kind,
            collective_flags: collective << 4 | repeat | last,
            operator,
            element,
            seq: U32::new(self.seq.0),
            epoch: U16::new(self.epoch.0),
            count: U16::new(self.count),
            op_id: U16::new(self.op_id),
            root: U16::new(root),
        };
        zerocopy::transmute!(wire)
    }

    /// Bytes of data behind the header.
    #[must_use]
    pub fn data_len(&self) -> usize {
        let size = match self.kind {
            IncKind::Contribution(collective) | IncKind::Result(collective) => {
                collective.element_size()
            }
            IncKind::Release(_) | IncKind::Abort(_) => 0,
        };
        usize::from(self.count) * size
    }

    /// Whether a count other than 0 says nothing.
    fn has_no_elements(&self) -> bool {
        match self.kind {
            IncKind::Contribution(collective) | IncKind::Result(collective) => {
                collective == Collective::Barrier
            }
            IncKind::Release(_) | IncKind::Abort(_) => true,
        }
    }
}

fn abort_reason(wire: &HeaderWire) -> Result<AbortReason, PacketError> {
    for (name, value) in [
        ("collective", wire.collective_flags >> 4),
        ("operator", wire.operator),
        ("element type", wire.element),
    ] {
        if value != 0 {
            return Err(field(name, value));
        }
    }
    let code = wire.root.get();
    let reason = AbortReason::ALL.into_iter().find(|reason| *reason as u16 == code);
    reason.ok_or_else(|| field_16("abort reason", code))
}

const fn field(field: &'static str, value: u8) -> PacketError {
    PacketError::Field { field, value: value as u64 }
}

const fn field_16(field: &'static str, value: u16) -> PacketError {
    PacketError::Field { field, value: value as u64 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_compare_across_their_wrap() {
        let (last, first) = (Seq(u32::MAX), Seq(0));
        assert!(last.is_before(first) && !first.is_before(last) && !first.is_before(first));
        assert_eq!((last.plus(1), first.since(last)), (first, 1));
        assert!(TreeEpoch(u16::MAX).is_before(TreeEpoch(u16::MAX).next()));
        assert!(!TreeEpoch(0).is_before(TreeEpoch(u16::MAX)));
    }

    /// An allreduce of two I16, changed at one byte, and what it is refused as.
    #[test]
    fn each_rule_of_the_header_refuses_by_itself() {
        let sum = Reduction::new(Operator::Sum, ElementType::I16).unwrap();
        let header = IncHeader {
            kind: IncKind::Contribution(Collective::Allreduce(sum)),
            seq: Seq(5),
            epoch: TreeEpoch(3),
            op_id: 9,
            is_repeat: false,
            is_last: true,
            count: 2,
        };
        let mut message = header.to_bytes().to_vec();
        message.extend([1, 0, 2, 0]);
        assert_eq!(IncHeader::parse_with_imm(&message, 5), Ok((header, &[1, 0, 2, 0][..])));
        for (at, value, reason) in [
            (0, 0x01, "version"),
            (0, 0x10, "field"),
            (0, 0x15, "field"),
            (1, 0x06, "reserved"),
            (1, 0x0a, "reserved"),
            (1, 0x42, "field"),
            // A broadcast with an operator, a barrier with a type.
            (1, 0x22, "field"),
            (1, 0x32, "field"),
            (2, 0, "field"),
            (2, 11, "field"),
            (2, 13, "field"),
            (3, 0, "field"),
            (3, 13, "field"),
            // An allreduce has no root.
            (15, 1, "field"),
            (11, 3, "length"),
            (11, 1, "length"),
            // A result as any other; a release has no data.
            (0, 0x12, ""),
            (0, 0x13, "field"),
            (0, 0x14, "field"),
        ] {
            let mut changed = message.clone();
            changed[at] = value;
            let found = IncHeader::parse(&changed).map_or_else(|error| error.reason(), |_| "");
            assert_eq!(found, reason, "{value:#x} at {at}");
        }
        let imm = IncHeader::parse_with_imm(&message, 6).unwrap_err();
        assert_eq!(imm.reason(), "field");
        assert_eq!(IncHeader::parse(&message[..15]).unwrap_err().reason(), "truncated");
        // An abort has a reason, and nothing else.
        for (root, reason) in [(0, "field"), (1, ""), (6, ""), (7, "field")] {
            let mut abort = [0; HEADER_LEN];
            (abort[0], abort[15]) = (0x14, root);
            let found = IncHeader::parse(&abort).map_or_else(|error| error.reason(), |_| "");
            assert_eq!(found, reason, "abort {root}");
        }
    }

    proptest! {
        #[test]
        fn what_is_parsed_is_written_back(mut message in prop::collection::vec(any::<u8>(), 16..64)) {
            // Often enough a header that is sound.
            message[0] = 0x10 | message[0] & 7;
            message[1] &= 0x33;
            (message[2], message[3]) = (message[2] % 13, message[3] % 20);
            (message[10], message[11]) = (0, message[11] % 12);
            message[14] = 0;
            if let Ok((header, data)) = IncHeader::parse(&message) {
                prop_assert_eq!(&header.to_bytes()[..], &message[..HEADER_LEN]);
                prop_assert_eq!(data.len(), header.data_len());
            }
        }
    }
}
