//! A grant: all that the newest requests of a queue rested on, in one place, as long as nothing changed.
//!
//! *Owns*: the memory of both ends, the position of the next request. *Takes*: what differs from request to request:
//! addresses and length. *Gives*: the bytes moved, or nothing. *Must not*: outlive a visit of the engine by anything
//! else than such a request: the visit ends it, so it need not ask what a visit may change (state, requests
//! outstanding, binding, queue).
//!
//! What changes without a visit is one count ([`EndCount`]) and the life of a peer's segment, which is looked at
//! under an announcement.

use std::sync::Arc;

use udma_abi::cqe::SendDoneForm;
use udma_abi::{Atomic, CqeStatus, MovedWord};
use urma_mem::RegionWord32;
use urma_mem::ends::{EndCount, SeenEnds};
use urma_mem::sync::Ordering;

use super::fetch::low16;
use super::known::{KnownRequest, MovedEntry, WORD_LEN};
use super::retire::Retire;
use crate::context::jfc::JfcPort;
use crate::context::queue::Queue;

/// See the room card.
#[derive(Debug)]
#[repr(C)]
pub(super) struct FastPathGrant {
    known: KnownRequest,
    /// Position of the next request, and of the first one, free running.
    next: u32,
    first: u32,
    /// Ends when it was made.
    seen: SeenEnds,
    ends: Arc<EndCount>,
    /// The consumer index of the queue, which is looked at where no completion shows it.
    record: RegionWord32,
    port: JfcPort,
    /// Of completions that the JFC's ring gets.
    form: SendDoneForm,
}

/// Why a request was not carried out and reported under a grant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unreported {
    /// It is not the next one, something ended, or the JFC is full.
    Refused,
    /// It has a slot in the JFC, but the bytes did not move: that slot is left.
    SlotLeft,
}

impl FastPathGrant {
    /// For requests like `known` from position `next` on, if nothing ended since all flags were looked at.
    pub(super) fn of(
        known: &KnownRequest,
        next: u32,
        retire: &Retire,
        ends: &Arc<EndCount>,
    ) -> Option<Self> {
        let seen = ends.seen();
        let (port, record) = (retire.port().clone(), retire.record_at(next)?.clone());
        let (ends, form) = (Arc::clone(ends), *retire.form());
        known.is_as_seen(seen).then(|| Self {
            next,
            first: next,
            seen,
            ends,
            known: known.again(),
            port,
            record,
            form,
        })
    }

    /// Blocks that went under it.
    #[inline(always)]
    pub(super) fn blocks(&self) -> u32 {
        self.next.wrapping_sub(self.first)
    }

    /// Requests that went under it.
    pub(super) fn requests(&self) -> u32 {
        self.blocks() / self.known.blocks()
    }

    /// Whether the request at `pi` is the next one, and nothing ended.
    #[inline(always)]
    fn covers(&self, pi: u32) -> bool {
        pi == self.next && self.ends.seen() == self.seen
    }

    /// As [`super::send::SendEngine::change_unreported`], of the atomic that is next; or the status with which it ends.
    #[inline(always)]
    pub(super) fn change(
        &mut self,
        queue: &Queue,
        moved: &MovedWord,
    ) -> Option<Result<u32, CqeStatus>> {
        if !self.covers(moved.pi) {
            return None;
        }
        let changed = self.known.change(moved)?;
        Some(changed.map(|bytes| {
            queue.fast.unreported(u64::from(bytes));
            self.pass(queue, Atomic::BLOCKS)
        }))
    }

    /// As [`super::send::SendEngine::execute_local`], of the request that is next.
    #[inline(always)]
    pub(super) fn carry(&mut self, queue: &Queue, moved: &MovedEntry) -> Option<u32> {
        self.covers(moved.pi).then_some(())?;
        self.known.open()?.copy(moved)?;
        Some(match moved.is_signalled {
            true => self.count(queue, moved.len),
            false => self.count_silent(queue, moved.len),
        })
    }

    /// As [`super::send::SendEngine::carry_moved`], of the request that is next.
    #[inline(always)]
    pub(super) fn report(&mut self, queue: &Queue, moved: &MovedEntry) -> Result<(), Unreported> {
        if !(self.covers(moved.pi) && self.port.reserve()) {
            return Err(Unreported::Refused);
        }
        if self.known.open().and_then(|open| open.copy(moved)).is_none() {
            return Err(Unreported::SlotLeft);
        }
        queue.fast.direct(u64::from(moved.len));
        let form = &self.form;
        self.port.complete_with(false, |owner| form.encode(low16(moved.pi), moved.len, owner));
        queue.fast.completion();
        self.pass(queue, 1);
        // Behind the entry: a driver that sees the index moved and no entry knows that none comes.
        self.record.store_release(self.next);
        Ok(())
    }

    /// As [`FastPathGrant::carry`], of the word at both addresses, if that is one move.
    #[inline(always)]
    pub(super) fn move_word_of_any(&mut self, queue: &Queue, moved: MovedPlace) -> Option<u32> {
        self.copy_word(moved)?;
        Some(self.count(queue, WORD_LEN))
    }

    /// As [`FastPathGrant::move_word_of_any`], of a request without a completion.
    #[inline(always)]
    pub(super) fn move_word_silently(&mut self, queue: &Queue, moved: MovedPlace) -> Option<u32> {
        self.copy_word(moved)?;
        Some(self.count_silent(queue, WORD_LEN))
    }

    /// Copies the word at both addresses for the request that is next, if that is one move.
    #[inline(always)]
    fn copy_word(&mut self, (pi, remote_va, local_va): MovedPlace) -> Option<()> {
        self.known.ask_for_line(remote_va);
        self.covers(pi).then_some(())?;
        self.known.open()?.copy_word(remote_va, local_va)
    }

    /// As [`FastPathGrant::move_word_of_any`], if both are of this node.
    #[inline(always)]
    pub(super) fn move_word(
        &mut self,
        queue: &Queue,
        (pi, remote_va, local_va): MovedPlace,
    ) -> Option<u32> {
        self.covers(pi).then_some(())?;
        self.known.open_own()?.copy_word(remote_va, local_va)?;
        Some(self.count(queue, WORD_LEN))
    }

    /// As [`FastPathGrant::count`], of a request without a completion.
    #[inline(always)]
    fn count_silent(&mut self, queue: &Queue, len: u32) -> u32 {
        queue.fast.direct(u64::from(len));
        let index = self.pass(queue, 1);
        self.record.store_release(self.next);
        index
    }

    /// Counts a request of `len` bytes that was carried out; the index that the next entry of the JFC gets.
    #[inline(always)]
    fn count(&mut self, queue: &Queue, len: u32) -> u32 {
        queue.fast.unreported(u64::from(len));
        self.pass(queue, 1)
    }

    /// The next request is `blocks` further on; the index that the next entry of the JFC gets.
    #[inline(always)]
    fn pass(&mut self, queue: &Queue, blocks: u32) -> u32 {
        self.next = self.next.wrapping_add(blocks);
        queue.pi.store(self.next, Ordering::Release);
        self.port.next_index()
    }
}

/// Position of a request, its address in the remote segment, and in the local one.
pub(crate) type MovedPlace = (u32, u64, u64);
