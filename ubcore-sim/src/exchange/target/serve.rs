//! One sequence at its target: which request is next, what it did, the answer that a duplicate gets
//! again.
//!
//! *Owns*: the expected TASSN, the unfinished message, answers kept for duplicates. *Takes*: pieces.
//! *Gives*: the step each piece makes. *Must not*: execute a request twice.

use std::collections::VecDeque;

use urma_packet::{AtomicValue, RequestFlags, RequestHeader, ResponseStatus};

use crate::exchange::target::receive::TakenReceive;

/// Answers kept: as many as one queue may have requests outstanding.
const KEPT_MAX: usize = crate::engine::mail::OUTSTANDING_MAX;

/// What a request came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reply {
    Status(ResponseStatus),
    Value(AtomicValue),
}

/// A message of which pieces came.
#[derive(Debug)]
pub(crate) struct PartialMessage {
    /// Address (or offset) of its first byte.
    pub(crate) start: u64,
    pub(crate) length: u32,
    pub(crate) done: u32,
    /// Life of the target segment.
    pub(crate) life: u64,
    pub(crate) receive: Option<TakenReceive>,
}

impl PartialMessage {
    /// Whether a piece goes on where the last one ended.
    pub(crate) fn fits(&self, header: &RequestHeader, len: u32) -> bool {
        let at = self.start.checked_add(u64::from(self.done)) == Some(header.access.address);
        let end = self.done.checked_add(len);
        let last = header.flags.contains(RequestFlags::LAST);
        let inside =
            end.is_some_and(|end| if last { end == self.length } else { end < self.length });
        at && inside && header.access.length == self.length
    }
}

/// Planted fault: a write that was acknowledged and is not placed yet.
#[derive(Debug)]
pub(crate) struct Late {
    pub(crate) header: RequestHeader,
    pub(crate) bytes: Vec<u8>,
    pub(crate) steps: u32,
}

/// What to do with a piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PieceAction {
    /// It is next in its sequence: execute it.
    Execute,
    /// The whole request was executed before: tell the answer again.
    Again(Reply),
    /// An earlier request of the sequence is missing.
    TooEarly {
        /// The number waited for.
        expected: u16,
    },
    /// A part of a request that was answered already.
    Skip,
    /// It continues a message that has not begun: drop it.
    Stray,
}

/// A message of which no piece came is broken off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NotBegun;

/// One sequence of requests, per source jetty and target jetty.
#[derive(Debug, Default)]
pub(crate) struct Served {
    pub(crate) expected: u16,
    pub(crate) message: Option<PartialMessage>,
    /// The rest of this request is passed over: it has its answer.
    skipping: Option<u16>,
    /// Answers other than a plain acknowledgement, for duplicates.
    kept: VecDeque<(u16, Reply)>,
    /// Set by a planted fault: a write that is placed later.
    pub(crate) late: Option<Late>,
}

impl Served {
    /// What to do with a piece, by its number and place.
    pub(crate) fn action(&mut self, header: &RequestHeader) -> PieceAction {
        let (first, last) = ends(header);
        let tassn = header.tassn;
        if !first {
            if self.message.is_some() && tassn == self.expected {
                return PieceAction::Execute;
            }
            if self.skipping != Some(tassn) {
                return PieceAction::Stray;
            }
            if last {
                self.skipping = None;
            }
            return PieceAction::Skip;
        }
        self.skipping = None;
        let ahead = tassn.wrapping_sub(self.expected).cast_signed();
        if ahead == 0 {
            return PieceAction::Execute;
        }
        self.skip_rest(header);
        if ahead > 0 {
            return PieceAction::TooEarly { expected: self.expected };
        }
        let kept = self.kept.iter().rev().find(|(number, _)| *number == tassn);
        PieceAction::Again(kept.map_or(Reply::Status(ResponseStatus::Ack), |(_, answer)| *answer))
    }

    /// Whether request `tassn` is the one that is expected, and nothing of it or of an answer is kept.
    #[inline]
    pub(crate) fn is_next(&self, tassn: u16) -> bool {
        self.expected == tassn && self.message.is_none() && self.kept.is_empty()
    }

    /// The whole request that [`Served::is_next`] was executed, and acknowledged.
    #[inline]
    pub(crate) fn on_next_done(&mut self) {
        self.expected = self.expected.wrapping_add(1);
        self.skipping = None;
    }

    /// All requests before `next` were executed, and acknowledged, beside what [`Served::is_next`].
    pub(crate) fn pass_to(&mut self, next: u16) {
        if self.expected != next {
            self.expected = next;
            self.skipping = None;
        }
    }

    /// The request that was expected has its answer.
    pub(crate) fn on_done(&mut self, header: &RequestHeader, answer: Reply) {
        self.expected = header.tassn.wrapping_add(1);
        if answer != Reply::Status(ResponseStatus::Ack) {
            if self.kept.len() == KEPT_MAX {
                self.kept.pop_front();
            }
            self.kept.push_back((header.tassn, answer));
        }
        // A number comes round after 2^16 requests: an answer of the last round is no answer.
        let horizon = header.tassn.wrapping_sub(u16::MAX / 4);
        while self.kept.front().is_some_and(|(n, _)| n.wrapping_sub(horizon).cast_signed() < 0) {
            self.kept.pop_front();
        }
        self.skip_rest(header);
    }

    /// Further pieces of a request that was answered before its last piece are passed over.
    pub(crate) fn skip_rest(&mut self, header: &RequestHeader) {
        let (_, last) = ends(header);
        self.skipping = (!last).then_some(header.tassn);
    }

    /// The initiator sends nothing more of message `tassn`: takes the receive that it holds. It was not executed,
    /// so its number is still the next one.
    pub(crate) fn break_off(&mut self, tassn: u16) -> Result<Option<TakenReceive>, NotBegun> {
        if self.skipping == Some(tassn) {
            self.skipping = None;
            return Ok(None);
        }
        let message = self.message.take_if(|_| tassn == self.expected).ok_or(NotBegun)?;
        Ok(message.receive)
    }

    /// The unfinished message ends without an effect; it may come again.
    pub(crate) fn forget(&mut self) {
        if self.message.take().is_some() {
            self.skipping = Some(self.expected);
        }
    }

    /// The target of the unfinished message is gone: takes what it holds, and its number with it.
    pub(crate) fn abort(&mut self, queue_or_ring: u32) -> Option<(u16, TakenReceive)> {
        let held = self.message.as_ref()?.receive.as_ref()?;
        if held.cqe_source.id != queue_or_ring && held.ring != queue_or_ring {
            return None;
        }
        let taken = self.message.take()?.receive?;
        let number = self.expected;
        self.expected = number.wrapping_add(1);
        self.skipping = Some(number);
        self.kept.push_back((number, Reply::Status(ResponseStatus::TargetReset)));
        Some((number, taken))
    }
}

fn ends(header: &RequestHeader) -> (bool, bool) {
    (header.flags.contains(RequestFlags::FIRST), header.flags.contains(RequestFlags::LAST))
}
