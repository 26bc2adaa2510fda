//! Work requests: what a user posts.
//!
//! *Owns*: the shapes of send and receive requests. Borrowed parts (segments, targets, SGE lists)
//! must live until the call returns; what happens to memory under posted work is the business of
//! `Segment::unregister`, which drains and then revokes (crate documentation, "What keeps what
//! alive").

use crate::{LocalSge, RemoteAddr, TargetJetty, Token, TokenId};

bitflags::bitflags! {
    /// Flags of a send request; the bits of `urma_jfs_wr_flag_t` (UMDK 26.06).
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct WrFlags: u32 {
        /// Place order 1: later strong ones wait for it.
        const RELAX_ORDER = 1 << 0;
        /// Place order 2: waits for all earlier relaxed and strong ones.
        const STRONG_ORDER = 1 << 1;
        /// Completion in posting order.
        const COMP_ORDER = 1 << 2;
        /// Starts after all earlier reads and atomics of its queue completed.
        const FENCE = 1 << 3;
        /// The receiver's completion counts as solicited.
        const SOLICITED = 1 << 4;
        /// Success makes a completion too.
        const COMPLETE = 1 << 5;
        /// The payload is copied at post time; its memory is free at once.
        const INLINE = 1 << 6;
    }
}

/// The operation of a send request, with its operands.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "each variant says what its operands are")]
pub enum SendOp<'a> {
    /// Writes the local pieces, in their order, to the target's memory.
    Write { src: &'a [LocalSge<'a>], dst: RemoteAddr<'a> },
    /// Write, then a receive completion at the target with `imm`.
    WriteImm { src: &'a [LocalSge<'a>], dst: RemoteAddr<'a>, imm: u64 },
    /// Write, then 8 bytes `data` stored at `notify` after all of it.
    WriteNotify { src: &'a [LocalSge<'a>], dst: RemoteAddr<'a>, notify: RemoteAddr<'a>, data: u64 },
    /// Write, then `add` is added atomically to the 8 bytes at `notify`.
    WriteAtomic { src: &'a [LocalSge<'a>], dst: RemoteAddr<'a>, notify: RemoteAddr<'a>, add: u64 },
    /// One-sided read into local memory.
    Read { dst: &'a [LocalSge<'a>], src: RemoteAddr<'a> },
    /// Compare and swap; the old value lands in `result` (4 or 8 bytes).
    Cas { result: LocalSge<'a>, target: RemoteAddr<'a>, compare: u64, swap: u64 },
    /// Swap; the old value lands in `result`.
    Swap { result: LocalSge<'a>, target: RemoteAddr<'a>, value: u64 },
    /// Adds `value` to the target and stores the old value in `result`.
    FetchAdd { result: LocalSge<'a>, target: RemoteAddr<'a>, value: u64 },
    /// Subtracts `value` from the target and stores the old value in `result`.
    FetchSub { result: LocalSge<'a>, target: RemoteAddr<'a>, value: u64 },
    /// Replaces the target by its bitwise AND with `value` and stores the old value in `result`.
    FetchAnd { result: LocalSge<'a>, target: RemoteAddr<'a>, value: u64 },
    /// Replaces the target by its bitwise OR with `value` and stores the old value in `result`.
    FetchOr { result: LocalSge<'a>, target: RemoteAddr<'a>, value: u64 },
    /// Replaces the target by its exclusive OR with `value` and stores the old value in `result`.
    FetchXor { result: LocalSge<'a>, target: RemoteAddr<'a>, value: u64 },
    /// Message to a receive of the target.
    Send { src: &'a [LocalSge<'a>] },
    /// Message with a 64-bit immediate.
    SendImm { src: &'a [LocalSge<'a>], imm: u64 },
    /// Message that also invalidates a token of the target's.
    SendInvalidate { src: &'a [LocalSge<'a>], token_id: TokenId, token: Token },
    /// Nothing; completes in order.
    Nop,
    /// Completes when all earlier writes to the target are placed.
    FlushDma,
}

/// Send request: what a program posts to a queue that sends.
#[derive(Clone, Copy, Debug)]
pub struct SendWr<'a> {
    /// Operation with its local pieces and its remote address.
    pub op: SendOp<'a>,
    /// Order, completion and event options of the request.
    pub flags: WrFlags,
    /// Target of the request. RC queues may leave it out: they have one target.
    pub target: Option<&'a TargetJetty>,
    /// Picks the member of a jetty group under the hash policy.
    pub target_hint: u8,
    /// Comes back in the completion.
    pub user_ctx: u64,
}

impl<'a> SendWr<'a> {
    /// A signalled request for `op` to `target`.
    #[must_use]
    pub const fn new(op: SendOp<'a>, target: &'a TargetJetty, user_ctx: u64) -> Self {
        Self { op, flags: WrFlags::COMPLETE, target: Some(target), target_hint: 0, user_ctx }
    }
}

/// A WRITE or READ of one local piece, by its parts.
#[derive(Clone, Copy, Debug)]
pub struct OneTransfer<'a> {
    /// It is a WRITE; otherwise it is a READ.
    pub is_write: bool,
    /// Its one local piece.
    pub piece: LocalSge<'a>,
    /// Where the bytes lie, or go, at the target.
    pub at: RemoteAddr<'a>,
    /// What [`SendWr::flags`] is there.
    pub flags: WrFlags,
    /// What [`SendWr::target`] is there.
    pub target: Option<&'a TargetJetty>,
    /// What [`SendWr::target_hint`] is there.
    pub target_hint: u8,
    /// What [`SendWr::user_ctx`] is there.
    pub user_ctx: u64,
}

impl<'a> OneTransfer<'a> {
    /// The parts of the request, or `None` if it is of another kind.
    #[expect(clippy::wildcard_enum_match_arm, reason = "two of all operations are transfers")]
    #[inline(always)]
    pub(crate) fn of(wr: &SendWr<'a>) -> Option<Self> {
        let (is_write, piece, at) = match wr.op {
            SendOp::Write { src: [piece], dst } => (true, *piece, dst),
            SendOp::Read { dst: [piece], src } => (false, *piece, src),
            _ => return None,
        };
        let SendWr { flags, target, target_hint, user_ctx, .. } = *wr;
        Some(Self { is_write, piece, at, flags, target, target_hint, user_ctx })
    }
}

/// A SEND of one local piece, by its parts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OneMessage<'a> {
    /// Its one local piece.
    pub(crate) piece: LocalSge<'a>,
    /// What [`SendWr::flags`] is there.
    pub(crate) flags: WrFlags,
    /// What [`SendWr::target`] is there.
    pub(crate) target: Option<&'a TargetJetty>,
    /// What [`SendWr::target_hint`] is there.
    pub(crate) target_hint: u8,
    /// What [`SendWr::user_ctx`] is there.
    pub(crate) user_ctx: u64,
}

impl<'a> OneMessage<'a> {
    /// The parts of the request, or `None` if it is of another kind.
    #[expect(clippy::wildcard_enum_match_arm, reason = "one of all operations is such a message")]
    #[inline(always)]
    pub(crate) fn of(wr: &SendWr<'a>) -> Option<Self> {
        let piece = match wr.op {
            SendOp::Send { src: [piece] } => *piece,
            _ => return None,
        };
        let SendWr { flags, target, target_hint, user_ctx, .. } = *wr;
        Some(Self { piece, flags, target, target_hint, user_ctx })
    }
}

/// One of the two usual atomics, by its parts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OneAtomic<'a> {
    /// It is a CAS; otherwise it is a FETCH_ADD.
    pub(crate) is_cas: bool,
    /// Where its answer goes.
    pub(crate) result: LocalSge<'a>,
    /// The word at the target.
    pub(crate) at: RemoteAddr<'a>,
    /// Value that is added or stored.
    pub(crate) operand: u64,
    /// CAS: value that is expected.
    pub(crate) compare: u64,
    /// What [`SendWr::flags`] is there.
    pub(crate) flags: WrFlags,
    /// What [`SendWr::target`] is there.
    pub(crate) target: Option<&'a TargetJetty>,
    /// What [`SendWr::target_hint`] is there.
    pub(crate) target_hint: u8,
    /// What [`SendWr::user_ctx`] is there.
    pub(crate) user_ctx: u64,
}

impl<'a> OneAtomic<'a> {
    /// The parts of the request, or `None` if it is of another kind.
    #[expect(clippy::wildcard_enum_match_arm, reason = "two of all operations are such atomics")]
    #[inline(always)]
    pub(crate) fn of(wr: &SendWr<'a>) -> Option<Self> {
        let (is_cas, result, at, operand, compare) = match wr.op {
            SendOp::FetchAdd { result, target, value } => (false, result, target, value, 0),
            SendOp::Cas { result, target, compare, swap } => (true, result, target, swap, compare),
            _ => return None,
        };
        let SendWr { flags, target, target_hint, user_ctx, .. } = *wr;
        Some(Self { is_cas, result, at, operand, compare, flags, target, target_hint, user_ctx })
    }
}

/// Receive request: memory that one message is placed in.
#[derive(Clone, Copy, Debug)]
pub struct RecvWr<'a> {
    /// Where the message goes, piece after piece.
    pub dst: &'a [LocalSge<'a>],
    /// Comes back in the completion.
    pub user_ctx: u64,
}

/// Why a post stopped: requests before `index` are posted, `index` and later ones are not.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("request {index} of the batch was refused: {reason}")]
pub struct PostError {
    /// Index of the bad request.
    pub index: usize,
    /// What was wrong with it.
    pub reason: PostReason,
}

/// What was wrong with a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PostReason {
    /// The queue has no room; poll its JFC and post again.
    #[error("the queue is full; poll its JFC, then post again")]
    Full,
    /// A range, length, count or alignment that cannot be right.
    #[error("{0}")]
    Invalid(&'static str),
    /// The transport mode does not carry this operation.
    #[error("the transport mode of the queue does not carry this operation")]
    Mode,
    /// The device failed or is being reset.
    #[error("the device is not operational")]
    Device,
}
