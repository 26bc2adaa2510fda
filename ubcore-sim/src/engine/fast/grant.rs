//! Fast-path grant: the newest request of a queue in one place, valid as long as nothing changed.
//!
//! *Owns*: the memory of both ends, the position of the next request. *Takes*: what differs from request to request:
//! addresses and length. *Gives*: the bytes moved, or nothing. *Must not*: survive a visit of the engine by anything
//! else than such a request: a visit ends the grant, which therefore need not check what a visit may change (state,
//! outstanding requests, binding, queue).
//!
//! Two things change without a visit, and are checked: one epoch ([`EndCount`]), and the life of a peer's segment,
//! under an announcement.

use std::sync::Arc;

use udma_abi::cqe::SendDoneForm;
use udma_abi::{Atomic, CompletionBy, CqeStatus, MovedWord};
use urma_mem::RegionWord32;
use urma_mem::ends::{EndCount, SeenEnds};
use urma_mem::sync::Ordering;

use super::known::{KnownRequest, MovedEntry, WORD_LEN};
use crate::context::jfc::JfcPort;
use crate::context::queue::Queue;
use crate::engine::fetch::low16;
use crate::engine::retire::Retire;

/// See the header of this file.
#[derive(Debug)]
#[repr(C)]
pub(super) struct FastPathGrant {
    known: KnownRequest,
    /// Position of the next request, and of the first one, free running.
    next: u32,
    first: u32,
    /// Epoch when the grant was made.
    seen: SeenEnds,
    ends: Arc<EndCount>,
    /// The queue's consumer index in host memory, updated where no completion shows the progress.
    record: RegionWord32,
    port: JfcPort,
    /// Fields of the CQEs for the JFC.
    form: SendDoneForm,
}

/// Why a request was not executed under the grant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unrepeated {
    /// It is not the next one, the epoch moved, or the JFC is full.
    Refused,
    /// It got a slot in the JFC, but the bytes did not move: the caller has the slot now.
    SlotLeft,
}

impl FastPathGrant {
    /// Makes a grant for requests like `known` from position `next` on. `None` if the epoch moved since the last full
    /// check, or requests may not even have 8 bytes.
    pub(super) fn of(
        known: &KnownRequest,
        next: u32,
        retire: &Retire,
        ends: &Arc<EndCount>,
    ) -> Option<Self> {
        let seen = ends.seen();
        let (port, record) = (retire.port().clone(), retire.record_at(next)?.clone());
        let (ends, form) = (Arc::clone(ends), *retire.form());
        (known.is_as_seen(seen) && known.takes_words()).then(|| Self {
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

    /// Number of blocks executed under the grant.
    #[inline(always)]
    pub(super) fn blocks(&self) -> u32 {
        self.next.wrapping_sub(self.first)
    }

    /// Number of requests executed under the grant.
    pub(super) fn requests(&self) -> u32 {
        self.blocks() / self.known.blocks()
    }

    /// Whether `pi` is the next position, and the epoch has not moved.
    #[inline(always)]
    fn covers(&self, pi: u32) -> bool {
        pi == self.next && self.ends.seen() == self.seen
    }

    /// Executes the next request, an atomic whose completion the driver makes. Returns the JFC index as in
    /// [`FastPathGrant::count`], or the status with which the request ends; `None`: nothing happened.
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

    /// Executes the next WRITE or READ; the memory may be of a peer. Returns the JFC index as in
    /// [`FastPathGrant::count`].
    #[inline(always)]
    pub(super) fn repeat(&mut self, queue: &Queue, moved: &MovedEntry) -> Result<u32, Unrepeated> {
        self.known.ask_for_line(moved.remote_va);
        let is_reported = moved.by == CompletionBy::Device;
        if !self.covers(moved.pi) || is_reported && !self.port.reserve() {
            return Err(Unrepeated::Refused);
        }
        if self.known.open().and_then(|open| open.copy(moved)).is_none() {
            return Err(if is_reported { Unrepeated::SlotLeft } else { Unrepeated::Refused });
        }
        match moved.by {
            CompletionBy::Driver => return Ok(self.count(queue, moved.len)),
            CompletionBy::Nobody => queue.fast.direct(u64::from(moved.len)),
            CompletionBy::Device => {
                queue.fast.direct(u64::from(moved.len));
                let form = &self.form;
                self.port
                    .complete_with(false, |owner| form.encode(low16(moved.pi), moved.len, owner));
                queue.fast.completion();
            }
        }
        let index = self.pass(queue, 1);
        // After the CQE: a driver that sees the index moved but no CQE knows that none comes.
        self.record.store_release(self.next);
        Ok(index)
    }

    /// Executes the next request, 8 bytes between segments of this node whose completion the driver makes, if it is a
    /// single move. Announces and prefetches nothing, unlike [`FastPathGrant::repeat`].
    #[inline(always)]
    pub(super) fn move_word(
        &mut self,
        queue: &Queue,
        (pi, remote_va, local_va): MovedPlace,
    ) -> Option<u32> {
        // First: that it is of this node is in the word that says whether there is a grant.
        let is_moved = {
            let open = self.known.open_own()?;
            self.covers(pi) && open.copy_word(remote_va, local_va).is_some()
        };
        is_moved.then(|| self.count(queue, WORD_LEN))
    }

    /// Counts a request of `len` bytes whose completion the driver makes. Returns the index of the JFC's next entry.
    #[inline(always)]
    fn count(&mut self, queue: &Queue, len: u32) -> u32 {
        queue.fast.unreported(u64::from(len));
        self.pass(queue, 1)
    }

    /// Advances the position by `blocks`. Returns the index of the JFC's next entry.
    #[inline(always)]
    fn pass(&mut self, queue: &Queue, blocks: u32) -> u32 {
        self.next = self.next.wrapping_add(blocks);
        queue.pi.store(self.next, Ordering::Release);
        self.port.next_index()
    }
}

/// Position of a request, its remote and its local address.
pub(crate) type MovedPlace = (u32, u64, u64);
