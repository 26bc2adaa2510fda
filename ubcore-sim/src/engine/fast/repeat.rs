//! The shortest part of the express lane: requests of which only the fields come that differ from the newest one.
//!
//! *Owns*: nothing. *Takes*: position, addresses, length. *Gives*: the request executed and retired, or nothing changed.
//! *Must not*: decide on a status: what is refused here comes again as a whole block.

use std::sync::Arc;

use udma_abi::{Atomic, CompletionBy, CqeStatus, MovedWord, sqe::SqeFlags};
use urma_mem::lines::UsedLines;
use urma_mem::sync::Ordering;

use super::grant::FastPathGrant;
use super::known::{KnownRequest, MovedEntry};
use crate::context::queue::Queue;
use crate::engine::fetch::{SendRing, low16};
use crate::engine::retire::Retire;
use crate::engine::send::{SendEngine, SendState, StepOutcome};

impl SendEngine {
    /// Whether the queue is idle, `moved` is its next entry, and the epoch has not moved since the last full check.
    /// If it has, the caller passes the whole block, whose lookup checks all flags.
    #[inline(always)]
    fn may_move(&mut self, queue: &Queue, moved: &MovedEntry) -> bool {
        if !self.is_idle() || queue.pi.load(Ordering::Acquire) != self.ring.head {
            return false;
        }
        let ends = self.known.seen_ends();
        let head = self.ring.head;
        self.known.newest().is_some_and(|known| moved.pi == head && known.is_as_seen(ends))
    }

    /// Executes an entry like the newest one that [`SendEngine::execute_block`] executed, from the fields that differ.
    /// Returns the index of the JFC's next entry (all CQEs of this queue come before it), and what is left to do.
    #[inline(always)]
    pub(crate) fn repeat(
        &mut self,
        queue: &Queue,
        moved: &MovedEntry,
    ) -> Option<(u32, StepOutcome)> {
        if !self.may_move(queue, moved) {
            return None;
        }
        let known = self.known.newest()?;
        let is_reported = moved.by == CompletionBy::Device;
        if is_reported {
            if !execute_known_entry(known, (&mut self.ring, &mut self.retire), queue, moved) {
                return None;
            }
        } else {
            // It takes no completion slot: on failure the long path executes it and takes one.
            known.open()?.copy(moved)?;
            self.count_unreported(1, 1);
            match moved.by {
                CompletionBy::Driver => queue.fast.unreported(u64::from(moved.len)),
                CompletionBy::Device | CompletionBy::Nobody => {
                    queue.fast.direct(u64::from(moved.len));
                }
            }
        }
        queue.pi.store(self.ring.head, Ordering::Release);
        let left =
            if is_reported { self.clear_slots(StepOutcome::BUSY) } else { StepOutcome::NOTHING };
        Some((self.retire.port().next_index(), left))
    }

    /// Executes an atomic like the newest one, whose CQE the driver makes. Returns the JFC index as
    /// [`SendEngine::repeat`] does.
    #[inline(always)]
    pub(crate) fn repeat_atomic(&mut self, queue: &Queue, moved: &MovedWord) -> Option<u32> {
        let (head, ends) = (self.ring.head, self.known.seen_ends());
        let is_next = moved.pi == head && queue.pi.load(Ordering::Acquire) == head;
        if !(self.is_idle() && is_next) {
            return None;
        }
        let known = self.known.newest_atomic().filter(|known| known.is_as_seen(ends))?;
        match known.change(moved)? {
            Ok(bytes) => queue.fast.unreported(u64::from(bytes)),
            Err(status) => {
                self.spoil_next(status);
                return None;
            }
        }
        self.count_unreported(1, Atomic::BLOCKS);
        queue.pi.store(self.ring.head, Ordering::Release);
        Some(self.retire.port().next_index())
    }

    /// Marks the next entry as failed: it was executed in memory that was withdrawn meanwhile, and must not be
    /// executed twice. It ends with `status` once it is posted.
    #[cold]
    pub(crate) fn spoil_next(&mut self, status: CqeStatus) {
        if self.state == SendState::Ready {
            self.state = SendState::Spoilt(status);
        }
    }

    /// Notes the words outside of the queue that requests like the newest one touch, as values number `at` and `at +
    /// 1`.
    pub(crate) fn note_lines(&mut self, lines: &UsedLines, at: usize) {
        if let Some(known) = self.known.newest() {
            known.note_slot(lines, at);
        }
        self.retire.note_record(lines, at + 1);
    }

    /// Takes over the completion slot of a request that failed under a grant.
    #[cold]
    pub(crate) fn keep_slot(&mut self) {
        self.retire.keep_or_give_back();
    }

    /// Makes a grant for requests like the newest one that was executed.
    pub(super) fn grant(&mut self) -> Option<FastPathGrant> {
        let ends = Arc::clone(self.known.ends());
        FastPathGrant::of(self.known.newest()?, self.ring.head, &self.retire, &ends)
    }

    /// Makes a grant for atomics like the newest one that was executed.
    pub(super) fn grant_of_words(&mut self) -> Option<FastPathGrant> {
        let ends = Arc::clone(self.known.ends());
        FastPathGrant::of(self.known.newest_atomic()?, self.ring.head, &self.retire, &ends)
    }

    /// Counts `count` requests of `blocks` blocks in all that were executed without a CQE from here.
    #[inline(always)]
    pub(crate) fn count_unreported(&mut self, count: u32, blocks: u32) {
        self.ring.head = self.ring.head.wrapping_add(blocks);
        self.retire.count_unreported(count, blocks);
    }
}

/// Executes a request like `known`, which is alive, as the next one. `false`: nothing happened.
#[inline(always)]
pub(super) fn execute_known_entry(
    known: &mut KnownRequest,
    (ring, retire): (&mut SendRing, &mut Retire),
    queue: &Queue,
    moved: &MovedEntry,
) -> bool {
    if !retire.reserve() {
        return false;
    }
    let is_moved = match known.open() {
        Some(open) => open.copy(moved).is_some(),
        None => false,
    };
    if !is_moved {
        retire.keep_or_give_back();
        return false;
    }
    ring.head = ring.head.wrapping_add(1);
    queue.fast.direct(u64::from(moved.len));
    let is_signalled = moved.by == CompletionBy::Device;
    let flags = if is_signalled { SqeFlags::COMPLETE } else { SqeFlags::empty() };
    retire.succeed((low16(moved.pi), 1), (flags, moved.len), &queue.fast);
    true
}
