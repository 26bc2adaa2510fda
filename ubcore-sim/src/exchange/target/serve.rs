//! One sequence at its target: which request is next, what it did, the answer that a duplicate gets again.
//!
//! *Owns*: the expected TASSN, the unfinished message, answers kept for duplicates. *Takes*: pieces. *Gives*: what to
//! do with each piece. *Must not*: execute a request twice.

use std::collections::VecDeque;

use urma_packet::{AtomicValue, RequestFlags, RequestHeader, ResponseStatus};

use crate::exchange::target::receive::TakenReceive;

/// Most answers that are kept: as many as one queue may have requests outstanding.
const KEPT_MAX: usize = crate::engine::mail::OUTSTANDING_MAX;

/// Result of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reply {
    Status(ResponseStatus),
    Value(AtomicValue),
}

/// A message of which some pieces arrived.
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
    /// Whether a piece continues where the last one ended.
    pub(crate) fn fits(&self, header: &RequestHeader, len: u32) -> bool {
        let at = self.start.checked_add(u64::from(self.done)) == Some(header.access.address);
        let end = self.done.checked_add(len);
        let last = header.flags.contains(RequestFlags::LAST);
        let inside =
            end.is_some_and(|end| if last { end == self.length } else { end < self.length });
        at && inside && header.access.length == self.length
    }
}

/// Planted fault: a write that was acknowledged and is not yet placed.
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
    /// The whole request was executed before: repeat the answer.
    Again(Reply),
    /// An earlier request of the sequence is missing.
    TooEarly {
        /// The number that is expected.
        expected: u16,
    },
    /// Part of a request that was answered already.
    Skip,
    /// It continues a message that has not begun: drop it.
    Stray,
}

/// The message that is broken off has not begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NotBegun;

/// One sequence of requests, per source jetty and target jetty.
#[derive(Debug, Default)]
pub(crate) struct Served {
    pub(crate) expected: u16,
    pub(crate) message: Option<PartialMessage>,
    /// The rest of this request is skipped: it has its answer.
    skipping: Option<u16>,
    /// Answers other than plain acknowledgements, kept for duplicates.
    kept: VecDeque<(u16, Reply)>,
    /// Set by a planted fault: a write that is placed later.
    pub(crate) late: Option<Late>,
}

impl Served {
    /// Decides what to do with a piece, by its number and offset.
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

    /// Whether request `tassn` is the expected one, and nothing of it or of an answer is kept.
    #[inline]
    pub(crate) fn is_next(&self, tassn: u16) -> bool {
        self.expected == tassn && self.message.is_none() && self.kept.is_empty()
    }

    /// Notes that the whole request of [`Served::is_next`] was executed and acknowledged.
    #[inline]
    pub(crate) fn on_next_done(&mut self) {
        self.expected = self.expected.wrapping_add(1);
        self.skipping = None;
    }

    /// Notes that all requests before `next` were executed and acknowledged elsewhere, in a state as for
    /// [`Served::is_next`].
    pub(crate) fn pass_to(&mut self, next: u16) {
        if self.expected != next {
            self.expected = next;
            self.skipping = None;
        }
    }

    /// Notes that the expected request has its answer.
    pub(crate) fn on_done(&mut self, header: &RequestHeader, answer: Reply) {
        self.expected = header.tassn.wrapping_add(1);
        if answer != Reply::Status(ResponseStatus::Ack) {
            if self.kept.len() == KEPT_MAX {
                self.kept.pop_front();
            }
            self.kept.push_back((header.tassn, answer));
        }
        // Numbers repeat after 2^16 requests: an answer of the last round must not be repeated.
        let horizon = header.tassn.wrapping_sub(u16::MAX / 4);
        while self.kept.front().is_some_and(|(n, _)| n.wrapping_sub(horizon).cast_signed() < 0) {
            self.kept.pop_front();
        }
        self.skip_rest(header);
    }

    /// Skips further pieces of a request that was answered before its last piece.
    pub(crate) fn skip_rest(&mut self, header: &RequestHeader) {
        let (_, last) = ends(header);
        self.skipping = (!last).then_some(header.tassn);
    }

    /// Breaks message `tassn` off, of which the initiator sends nothing more: returns its receive. It was not
    /// executed, so its number is still the next one.
    pub(crate) fn break_off(&mut self, tassn: u16) -> Result<Option<TakenReceive>, NotBegun> {
        if self.skipping == Some(tassn) {
            self.skipping = None;
            return Ok(None);
        }
        let message = self.message.take_if(|_| tassn == self.expected).ok_or(NotBegun)?;
        Ok(message.receive)
    }

    /// Drops the unfinished message without an effect; it may come again.
    pub(crate) fn forget(&mut self) {
        if self.message.take().is_some() {
            self.skipping = Some(self.expected);
        }
    }

    /// Aborts the unfinished message if its target is gone: returns its number and its receive.
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
