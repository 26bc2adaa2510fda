//! What a poll gives: one completion per finished request.
//!
//! *Owns*: the completion and its parts. *Takes*: what a provider decoded. *Gives*: plain values.
//! *Must not*: allocate; a poll fills the caller's slice.

use std::fmt;

use crate::{CrStatus, Eid, Token, TokenId, Uasid};

/// Name of a queue on the network: `urma_jetty_id_t`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct JettyId {
    /// EID of the node that the jetty belongs to.
    pub eid: Eid,
    /// The process on that node.
    pub uasid: Uasid,
    /// Its number there, 20 bits.
    pub id: u32,
}

/// Operation that a receive completed by; numbers of `urma_cr_opcode_t` (UMDK release 26.06).
/// Send-side completions have `Send`, whatever their operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum CrOpcode {
    /// Opcode 0: a message without an immediate (SEND).
    #[default]
    Send,
    /// 1: a message with an immediate.
    SendImm,
    /// 2: a message that invalidated a token.
    SendInvalidate,
    /// 3: a write with an immediate.
    WriteImm,
    /// 4: a flush of writes.
    FlushWrite,
    /// Any other code of a device.
    Unknown(u8),
}

impl CrOpcode {
    /// The opcode with this number.
    #[must_use]
    pub const fn from_code(code: u8) -> Self {
        match code {
            0 => Self::Send,
            1 => Self::SendImm,
            2 => Self::SendInvalidate,
            3 => Self::WriteImm,
            4 => Self::FlushWrite,
            other => Self::Unknown(other),
        }
    }

    /// Number of the opcode in `urma_cr_opcode_t` (UMDK release 26.06).
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Send => 0,
            Self::SendImm => 1,
            Self::SendInvalidate => 2,
            Self::WriteImm => 3,
            Self::FlushWrite => 4,
            Self::Unknown(code) => code,
        }
    }
}

bitflags::bitflags! {
    /// Flags of a completion; the bits of `urma_cr_flag_t` (UMDK release 26.06).
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct CompletionFlags: u8 {
        /// Of a receive (else of a send).
        const RECV = 1 << 0;
        /// `local_id` names a jetty (else a JFS or JFR).
        const JETTY = 1 << 1;
        /// Last completion of a suspend.
        const SUSPEND_DONE = 1 << 2;
        /// Last completion of a flush.
        const FLUSH_ERR_DONE = 1 << 3;
    }
}

/// Bytes of payload that a receive completion can carry itself.
pub const INLINE_PAYLOAD_MAX: usize = 12;

/// Payload that came in the completion and not in the receive buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct InlinePayload {
    len: u8,
    bytes: [u8; INLINE_PAYLOAD_MAX],
}

impl InlinePayload {
    /// The first `len` of `bytes`; a larger `len` counts as all 12.
    #[must_use]
    pub fn new(bytes: [u8; INLINE_PAYLOAD_MAX], len: usize) -> Self {
        let len = u8::try_from(len.min(INLINE_PAYLOAD_MAX)).unwrap_or(0);
        Self { len, bytes }
    }

    /// The payload; empty when it lies in the receive buffer.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// Completion record of one finished send or receive request.
// In this order no two fields that are stored one by one are copied to the C record by one load, which would
// wait for both stores.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Completion {
    /// Context of the request.
    pub user_ctx: u64,
    /// Context of the queue, as given when it was created.
    pub queue_ctx: u64,
    /// Jetty that sent the message; of receives only.
    pub remote: JettyId,
    /// Payload bytes that the request transferred.
    pub len: u32,
    /// The immediate, or `token_id | token << 32` of an invalidation, depending on `opcode`.
    pub imm: u64,
    /// The local queue, 20 bits.
    pub local_id: u32,
    /// Transport path it came by, 24 bits.
    pub tpn: u32,
    /// Payload that came in the completion itself.
    pub payload: InlinePayload,
    /// Result of the request: success, or why it failed.
    pub status: CrStatus,
    /// What came in; of receives only.
    pub opcode: CrOpcode,
    /// Receive or send, jetty or not, last of a suspend or flush.
    pub flags: CompletionFlags,
}

impl Completion {
    /// Whether this is the completion of a receive request.
    #[must_use]
    pub const fn is_recv(&self) -> bool {
        self.flags.contains(CompletionFlags::RECV)
    }

    /// Itself, if the request did what it was asked to.
    ///
    /// # Errors
    /// How it ended instead.
    pub const fn success(self) -> Result<Self, RequestError> {
        if self.status.is_success() {
            return Ok(self);
        }
        Err(RequestError { status: self.status, user_ctx: self.user_ctx, queue: self.local_id })
    }

    /// The immediate, if one came.
    #[must_use]
    pub const fn immediate(&self) -> Option<u64> {
        match self.opcode {
            CrOpcode::SendImm | CrOpcode::WriteImm => {
                if self.is_recv() {
                    Some(self.imm)
                } else {
                    None
                }
            }
            CrOpcode::Send
            | CrOpcode::SendInvalidate
            | CrOpcode::FlushWrite
            | CrOpcode::Unknown(_) => None,
        }
    }

    /// The token that the message invalidated, if it did.
    #[must_use]
    pub fn invalidated(&self) -> Option<(TokenId, Token)> {
        if !self.is_recv() || self.opcode != CrOpcode::SendInvalidate {
            return None;
        }
        let [a, b, c, d, e, f, g, h] = self.imm.to_le_bytes();
        let id = u32::from_le_bytes([a, b, c, d]);
        Some((TokenId::new(id), Token::new(u32::from_le_bytes([e, f, g, h]))))
    }
}

/// A request that did not do what it was asked to: which one, and how it ended.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("request {user_ctx:#x} of queue {queue} ended as {status:?}")]
pub struct RequestError {
    /// Status that the request ended with.
    pub status: CrStatus,
    /// Its context, as it was posted with.
    pub user_ctx: u64,
    /// The local queue that it was posted to.
    pub queue: u32,
}

/// What a program prints that ends with it.
impl fmt::Debug for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// For callers that want to know how, and not which.
impl From<RequestError> for CrStatus {
    fn from(error: RequestError) -> Self {
        error.status
    }
}

/// Which completions raise the event that an arm asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Arm {
    /// Any completion raises the event.
    Any,
    /// Solicited SEND and WRITE_IMM, and every error.
    SolicitedOnly,
}
