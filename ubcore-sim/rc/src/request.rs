//! What a program posts and polls, and which opcodes stand for it on the wire.
//!
//! Requests, receives, completions and their states; and, in both directions, which opcode a packet has by its place
//! in its message.

use urma_packet::roce::rc;

use crate::RcAtomic;

/// Memory of the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RcRemote {
    /// Virtual address at the peer.
    pub va: u64,
    /// Remote key of the region.
    pub rkey: u32,
}

/// What a request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RcOperation {
    /// Message for a receive of the peer.
    Send,
    /// Message with immediate data.
    SendImm(u32),
    /// Message that withdraws the peer's region with this key.
    SendInvalidate(u32),
    /// Stores bytes in the peer's memory.
    Write(RcRemote),
    /// Stores bytes, then takes a receive of the peer for immediate data.
    WriteImm(RcRemote, u32),
    /// Fetches bytes of the peer's memory.
    Read(RcRemote),
    /// Changes 8 bytes of the peer's memory; the old value is in the completion.
    Atomic(RcRemote, RcAtomic),
}

impl RcOperation {
    /// Whether the peer answers with data instead of an acknowledgement.
    pub(crate) const fn has_response(self) -> bool {
        matches!(self, Self::Read(_) | Self::Atomic(..))
    }
}

/// A request of the send queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RcRequest {
    /// Number that the completion repeats.
    pub id: u64,
    /// Operation and its remote memory.
    pub operation: RcOperation,
    /// Local memory: read by SEND and WRITE until the completion, written by READ.
    pub place: u64,
    /// Bytes of the message; not used by atomics, which have 8.
    pub len: u32,
    /// Waits until earlier READs and atomics are complete.
    pub fence: bool,
    /// The peer's completion counts as solicited.
    pub solicited: bool,
}

/// A receive, posted for one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RcReceive {
    /// Number that the completion repeats.
    pub id: u64,
    /// Local memory for the message.
    pub place: u64,
    /// Longest message in bytes that fits.
    pub len: u32,
}

/// Why a request or receive is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RcPostError {
    /// The queue has no room: a completion must come first.
    #[error("the queue is full: wait for a completion")]
    Full,
    /// The message is longer than 2^31 bytes, or than the PSNs of the connection allow.
    #[error("the message is too long for this connection: split it")]
    TooLong,
    /// The connection failed or was closed.
    #[error("the connection has failed: open another one")]
    Failed,
}

/// How a request or receive was completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RcStatus {
    /// The peer executed it, or the message arrived.
    Success,
    /// The message does not fit the receive.
    LocalLength,
    /// The owner's memory could not be read or written.
    LocalProtection,
    /// The peer refused the request as invalid (NAK 0x61), or sent such a request.
    RemoteInvalidRequest,
    /// Key, bounds or rights are wrong (NAK 0x62).
    RemoteAccess,
    /// The peer could not execute it (NAK 0x63).
    RemoteOperation,
    /// No acknowledgement came; the retries are used up.
    RetryExceeded,
    /// The peer had no receive; the retries are used up.
    RnrRetryExceeded,
    /// An earlier request or receive failed, or the connection was closed.
    Flushed,
}

/// Which queue a completion belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RcSource {
    /// A request of the send queue.
    Request,
    /// A receive, taken by a SEND.
    Receive,
    /// A receive, taken by a WRITE with immediate data.
    ReceiveWrite,
}

/// A completed request or receive. Each one posted is completed exactly once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RcCompletion {
    /// Which queue it belongs to.
    pub source: RcSource,
    /// Number of the request or receive.
    pub id: u64,
    /// How it was completed.
    pub status: RcStatus,
    /// Bytes of the message.
    pub len: u32,
    /// Old value that an atomic found.
    pub original: Option<u64>,
    /// Immediate data of the message.
    pub imm: Option<u32>,
    /// Key that the message withdrew.
    pub invalidated: Option<u32>,
    /// The sender asked for an event.
    pub solicited: bool,
}

impl RcCompletion {
    /// A completion without anything that a message brings.
    pub(crate) const fn new(source: RcSource, id: u64, status: RcStatus) -> Self {
        Self {
            source,
            id,
            status,
            len: 0,
            original: None,
            imm: None,
            invalidated: None,
            solicited: false,
        }
    }
}

/// What an endpoint did, in packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RcCounts {
    /// Number of request packets sent.
    pub requests_sent: u64,
    /// Number of these that were sent before.
    pub repeated: u64,
    /// Answers sent: acknowledgements and data of READs and atomics.
    pub answers_sent: u64,
    /// Number of negative ones of these.
    pub naks_sent: u64,
    /// Negative acknowledgements received, without "receiver not ready".
    pub naks_received: u64,
    /// "Receiver not ready" received.
    pub rnr_naks_received: u64,
    /// Requests executed, in packets.
    pub accepted: u64,
    /// Requests that were executed before.
    pub duplicates: u64,
    /// Duplicates of READs and atomics whose result is not kept any more: not answered.
    pub forgotten: u64,
    /// Requests that came before an earlier one: dropped.
    pub ahead: u64,
    /// Responses to what was completed before: dropped.
    pub stale: u64,
    /// Responses to what was never sent: dropped.
    pub never_sent: u64,
    /// Packets that contradict the connection (another queue pair, partition or transport) or the
    /// request that they belong to: dropped.
    pub malformed: u64,
    /// Requests beyond what answers can wait: dropped.
    pub overloaded: u64,
    /// Packets for a connection that ended: dropped.
    pub dropped: u64,
}

/// Kind of a message of several packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MessageKind {
    /// Message for a receive.
    Send,
    /// Message for memory that the first packet names.
    Write,
}

/// What the last packet of a message carries besides payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RcTail {
    /// Payload and nothing else.
    Plain,
    /// Immediate data after the headers.
    Imm,
    /// A key to withdraw.
    Invalidate,
}

/// A packet's place in its message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RcSegment {
    pub(crate) kind: MessageKind,
    pub(crate) is_first: bool,
    /// Last packet, and what it carries.
    pub(crate) last: Option<RcTail>,
}

impl RcSegment {
    /// The place that an opcode stands for; `None`: it is not part of a SEND or WRITE.
    pub(crate) fn of(opcode: u8) -> Option<Self> {
        let (kind, is_first, last) = match opcode {
            rc::SEND_FIRST => (MessageKind::Send, true, None),
            rc::SEND_MIDDLE => (MessageKind::Send, false, None),
            rc::SEND_LAST => (MessageKind::Send, false, Some(RcTail::Plain)),
            rc::SEND_LAST_IMM => (MessageKind::Send, false, Some(RcTail::Imm)),
            rc::SEND_LAST_INV => (MessageKind::Send, false, Some(RcTail::Invalidate)),
            rc::SEND_ONLY => (MessageKind::Send, true, Some(RcTail::Plain)),
            rc::SEND_ONLY_IMM => (MessageKind::Send, true, Some(RcTail::Imm)),
            rc::SEND_ONLY_INV => (MessageKind::Send, true, Some(RcTail::Invalidate)),
            rc::WRITE_FIRST => (MessageKind::Write, true, None),
            rc::WRITE_MIDDLE => (MessageKind::Write, false, None),
            rc::WRITE_LAST => (MessageKind::Write, false, Some(RcTail::Plain)),
            rc::WRITE_LAST_IMM => (MessageKind::Write, false, Some(RcTail::Imm)),
            rc::WRITE_ONLY => (MessageKind::Write, true, Some(RcTail::Plain)),
            rc::WRITE_ONLY_IMM => (MessageKind::Write, true, Some(RcTail::Imm)),
            _ => return None,
        };
        Some(Self { kind, is_first, last })
    }

    /// The opcode of this place.
    pub(crate) const fn opcode(self) -> u8 {
        match (self.kind, self.is_first, self.last) {
            (MessageKind::Send, true, None) => rc::SEND_FIRST,
            (MessageKind::Send, false, None) => rc::SEND_MIDDLE,
            (MessageKind::Send, false, Some(RcTail::Plain)) => rc::SEND_LAST,
            (MessageKind::Send, false, Some(RcTail::Imm)) => rc::SEND_LAST_IMM,
            (MessageKind::Send, false, Some(RcTail::Invalidate)) => rc::SEND_LAST_INV,
            (MessageKind::Send, true, Some(RcTail::Plain)) => rc::SEND_ONLY,
            (MessageKind::Send, true, Some(RcTail::Imm)) => rc::SEND_ONLY_IMM,
            (MessageKind::Send, true, Some(RcTail::Invalidate)) => rc::SEND_ONLY_INV,
            (MessageKind::Write, true, None) => rc::WRITE_FIRST,
            (MessageKind::Write, false, None) => rc::WRITE_MIDDLE,
            // A WRITE withdraws no key: no request asks for that.
            (MessageKind::Write, false, Some(RcTail::Plain | RcTail::Invalidate)) => rc::WRITE_LAST,
            (MessageKind::Write, true, Some(RcTail::Plain | RcTail::Invalidate)) => rc::WRITE_ONLY,
            (MessageKind::Write, false, Some(RcTail::Imm)) => rc::WRITE_LAST_IMM,
            (MessageKind::Write, true, Some(RcTail::Imm)) => rc::WRITE_ONLY_IMM,
        }
    }
}

/// Whether an opcode is a response: an acknowledgement or data for a READ or atomic.
pub(crate) const fn is_response(opcode: u8) -> bool {
    matches!(opcode, rc::READ_RESPONSE_FIRST..=rc::ATOMIC_ACKNOWLEDGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opcodes_and_places_are_one_to_one() {
        let found: Vec<u8> = (0..=u8::MAX)
            .filter(|&opcode| RcSegment::of(opcode).is_some_and(|place| place.opcode() == opcode))
            .collect();
        assert_eq!(found, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0x16, 0x17]);
        assert_eq!((0..=u8::MAX).filter(|&opcode| RcSegment::of(opcode).is_some()).count(), 14);
        assert_eq!((0..=u8::MAX).filter(|&opcode| is_response(opcode)).count(), 6);
    }
}
