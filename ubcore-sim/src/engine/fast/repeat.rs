//! The shortest part of the express lane: requests like an earlier one.
//!
//! *Owns*: nothing. *Takes*: the next block. *Gives*: the request executed and retired, or nothing changed. *Must
//! not*: decide on a status: what misses the cache goes to the rest of the lane.

use std::sync::Arc;

use udma_abi::{
    Atomic, CompletionBy, CqeStatus, MovedWord, OneSided,
    sqe::{BLOCK_WORDS, SqeFlags},
};
use urma_mem::hazard::CHUNK_MAX;
use urma_mem::lines::UsedLines;
use urma_mem::sync::Ordering;

use super::grant::FastPathGrant;
use super::known::{AtomicBlocks, KnownRequest, MovedEntry};
use super::lane::LaneResult;
use crate::cfg::ExpressLane;
use crate::context::queue::Queue;
use crate::context::tables::Tables;
use crate::engine::fetch::{SendRing, low16};
use crate::engine::retire::Retire;
use crate::engine::send::{SendEngine, SendState, StepOutcome, Visit};

impl SendEngine {
    /// Executes `block`, which is not in the ring, as the next entry. `None`: nothing happened.
    #[inline(always)]
    pub(crate) fn execute_block(
        &mut self,
        (tables, queue): (&Tables, &Queue),
        block: &[u64; BLOCK_WORDS],
    ) -> Option<StepOutcome> {
        if !self.is_idle() || queue.pi.load(Ordering::Acquire) != self.ring.head {
            return None;
        }
        if !self.execute_cached(queue, block) {
            return self.execute_new((tables, queue), block);
        }
        queue.pi.store(self.ring.head, Ordering::Release);
        Some(self.clear_slots(StepOutcome::BUSY))
    }

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

    /// Executes a whole block like any cached one, which becomes the newest; the driver makes its CQE. Returns the
    /// JFC index as [`SendEngine::repeat`] does.
    #[inline(always)]
    pub(crate) fn execute_known(
        &mut self,
        queue: &Queue,
        block: &[u64; BLOCK_WORDS],
    ) -> Option<u32> {
        let head = self.ring.head;
        if !self.is_idle() || queue.pi.load(Ordering::Acquire) != head {
            return None;
        }
        let ends = self.known.seen_ends();
        let known = self.known.find_executed(block)?;
        if !(self.ring.is_at_head(block[0]) && known.lives(ends)) {
            return None;
        }
        let moved = MovedEntry::of(block, head);
        known.open()?.copy(&moved)?;
        self.count_unreported(1, 1);
        queue.fast.unreported(u64::from(moved.len));
        queue.pi.store(self.ring.head, Ordering::Release);
        Some(self.retire.port().next_index())
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

    /// Executes an atomic like an earlier one, which is not in the ring, as the next entry. `None`: nothing happened.
    #[inline(always)]
    pub(crate) fn execute_atomic(
        &mut self,
        (tables, queue): (&Tables, &Queue),
        blocks: &AtomicBlocks,
    ) -> Option<StepOutcome> {
        if !self.is_idle() || queue.pi.load(Ordering::Acquire) != self.ring.head {
            return None;
        }
        let visit = Visit { tables, queue, direct: None };
        // Remembers the entry: from now on the fields that differ are enough.
        let _ = self.known.find_executed_atomic(blocks);
        let result = self.execute_cached_atomic(&visit, blocks);
        if result == LaneResult::NotTaken {
            return None;
        }
        queue.pi.store(self.ring.head, Ordering::Release);
        let left = match result {
            LaneResult::Failed => self.execute_rest(&visit, StepOutcome::BUSY),
            LaneResult::Done | LaneResult::NotTaken => StepOutcome::BUSY,
        };
        Some(self.clear_slots(left))
    }

    /// Executes and retires an atomic like an earlier one, the next entry; `blocks` may be in the ring or not.
    #[inline(always)]
    pub(super) fn execute_cached_atomic(
        &mut self,
        visit: &Visit<'_>,
        blocks: &AtomicBlocks,
    ) -> LaneResult {
        let ends = self.known.seen_ends();
        let Some(known) = self.known.find_atomic(blocks) else { return LaneResult::NotTaken };
        let word = blocks[0][0];
        if !(self.ring.is_at_head(word) && known.lives(ends) && self.retire.reserve()) {
            return LaneResult::NotTaken;
        }
        let changed = known.open().and_then(|open| open.change(blocks));
        let (entry_idx, flags) =
            (OneSided::entry_idx_of(&blocks[0]), OneSided::flags_of(&blocks[0]));
        let bytes = match changed {
            Some(Ok(bytes)) => bytes,
            // Executed in memory that was withdrawn meanwhile: it must not be executed twice.
            Some(Err(status)) => {
                return self.fail(visit, (entry_idx, Atomic::BLOCKS), (flags, true), status);
            }
            None => {
                self.retire.keep_or_give_back();
                return LaneResult::NotTaken;
            }
        };
        self.ring.head = self.ring.head.wrapping_add(Atomic::BLOCKS);
        visit.queue.fast.direct(u64::from(bytes));
        self.retire.succeed((entry_idx, Atomic::BLOCKS), (flags, bytes), &visit.queue.fast);
        LaneResult::Done
    }

    /// Executes a request that missed the cache, by the rest of the express lane.
    #[inline(never)]
    fn execute_new(
        &mut self,
        (tables, queue): (&Tables, &Queue),
        block: &[u64; BLOCK_WORDS],
    ) -> Option<StepOutcome> {
        if tables.cfg.lane == ExpressLane::Off || tables.faults.is_planted() {
            return None;
        }
        let visit = Visit { tables, queue, direct: None };
        let result = self.lane_new(&visit, block, 1);
        if result == LaneResult::NotTaken {
            return None;
        }
        queue.pi.store(self.ring.head, Ordering::Release);
        let mut left = StepOutcome::BUSY;
        if result == LaneResult::Failed {
            left = self.execute_rest(&visit, left);
        }
        Some(self.clear_slots(left))
    }

    /// Executes the request in `block`, the next one, with the cached checks. `false`: nothing happened.
    #[inline(always)]
    pub(super) fn execute_cached(&mut self, queue: &Queue, block: &[u64; BLOCK_WORDS]) -> bool {
        let ends = self.known.seen_ends();
        let Some(known) = self.known.find_executed(block) else { return false };
        if !self.ring.is_at_head(block[0]) {
            return false;
        }
        if !known.lives(ends) {
            return false;
        }
        let moved = MovedEntry::of(block, self.ring.head);
        execute_known_entry(known, (&mut self.ring, &mut self.retire), queue, &moved)
    }

    /// Executes the next of `posted` blocks in the ring and those like it that follow, at most `most` requests, under
    /// one announcement. Returns how many.
    #[inline(always)]
    pub(super) fn execute_cached_list(&mut self, queue: &Queue, posted: u32, most: u32) -> u32 {
        let mut block = self.ring.block(0);
        let ends = self.known.seen_ends();
        let Some(known) = self.known.find(&block) else { return 0 };
        if !known.lives(ends) {
            return 0;
        }
        // Unregistering a segment of this node visits the engine, so the segment lives until the list is done.
        let Some(open) = known.open() else { return 0 };
        let (mut done, mut bytes) = (0, 0);
        let most = most.min(posted);
        while done < most && bytes < CHUNK_MAX as u64 {
            if !(self.ring.is_at_head(block[0]) && self.retire.reserve()) {
                break;
            }
            if open.copy(&MovedEntry::of(&block, self.ring.head)).is_none() {
                self.retire.keep_or_give_back();
                break;
            }
            self.ring.head = self.ring.head.wrapping_add(1);
            let len = OneSided::len_of(&block);
            let (entry_idx, flags) = (OneSided::entry_idx_of(&block), OneSided::flags_of(&block));
            self.retire.succeed_in_list(entry_idx, (flags, len), &queue.fast);
            (done, bytes) = (done + 1, bytes + u64::from(len));
            block = self.ring.block(0);
            if !open.is_of(&block) {
                break;
            }
        }
        drop(open);
        if done != 0 {
            queue.fast.direct_list(u64::from(done), bytes);
            self.retire.retire(done);
        }
        done
    }
}

/// Executes a request like `known`, which is alive, as the next one. `false`: nothing happened.
#[inline(always)]
fn execute_known_entry(
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
