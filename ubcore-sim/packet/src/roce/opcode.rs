//! Which headers follow the BTH, per standard opcode.
//!
//! - owns: the table (InfiniBand Architecture Specification 1.7, 9.2 and annexes A17, A19).
//! - takes: an opcode. gives: its layout or a refusal. must not: look at bytes.

use super::{TRANSPORT_RC, TRANSPORT_RD, TRANSPORT_UC, TRANSPORT_UD, rc};
use crate::PacketError;

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
