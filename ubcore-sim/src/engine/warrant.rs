//! A warrant: all that the newest requests of a queue rested on, in one place, as long as nothing changed.
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
use udma_abi::{Atomic, CqeStatus, MovedWord, sqe::BLOCK_WORDS};
use urma_mem::RegionWord32;
use urma_mem::ends::{EndCount, SeenEnds};
use urma_mem::sync::Ordering;

use super::dialogue::DialogueSends;
use super::fetch::low16;
use super::known::{KnownRequest, MovedEntry, WORD_LEN};
use super::retire::Retire;
use super::send::{Left, SaidTo, SendEngine, Visit};
use super::short::ShortBody;
use crate::context::jfc::JfcPort;
use crate::context::queue::Queue;

/// See the room card.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Warrant {
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

/// Why a request was not carried out and reported under a warrant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Unreported {
    /// It is not the next one, something ended, or the JFC is full.
    Refused,
    /// It has a slot in the JFC, but the bytes did not move: that slot is left.
    SlotLeft,
}

/// The engine of a queue number, if it has one, and the warrant or the dialogue of its newest requests.
#[derive(Debug, Default)]
pub(crate) struct EnginePlace {
    warrant: Option<Warrant>,
    dialogue: Option<Box<(DialogueSends, SaidTo)>>,
    /// Requests in a row that a warrant would have covered.
    in_row: u32,
    engine: Option<Box<SendEngine>>,
}

/// When a queue that was found is leased.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leases {
    /// After many requests in a row, twice as many each time that the lease was taken.
    Seldom,
    /// After few requests in a row.
    Soon,
    /// Each entry is an exchange.
    Never,
}

impl Warrant {
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

    /// Whether the request at `pi` is the next one, and nothing ended.
    #[inline(always)]
    fn covers(&self, pi: u32) -> bool {
        pi == self.next && self.ends.seen() == self.seen
    }

    /// As [`SendEngine::change_unreported`], of the atomic that is next; or the status with which it ends.
    #[inline(always)]
    fn change(&mut self, queue: &Queue, moved: &MovedWord) -> Option<Result<u32, CqeStatus>> {
        if !self.covers(moved.pi) {
            return None;
        }
        let changed = self.known.change(moved)?;
        Some(changed.map(|bytes| {
            queue.fast.unreported(u64::from(bytes));
            self.pass(queue, Atomic::BLOCKS)
        }))
    }

    /// As [`SendEngine::carry_unreported`], of the request that is next.
    #[inline(always)]
    fn carry(&mut self, queue: &Queue, moved: &MovedEntry) -> Option<u32> {
        self.covers(moved.pi).then_some(())?;
        self.known.open()?.copy(moved)?;
        Some(match moved.is_signalled {
            true => self.count(queue, moved.len),
            false => self.count_silent(queue, moved.len),
        })
    }

    /// As [`SendEngine::carry_moved`], of the request that is next.
    #[inline(always)]
    fn report(&mut self, queue: &Queue, moved: &MovedEntry) -> Result<(), Unreported> {
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

    /// As [`Warrant::carry`], of the word at both addresses, if that is one move.
    #[inline(always)]
    fn move_word_of_any(
        &mut self,
        queue: &Queue,
        (pi, remote_va, local_va): MovedPlace,
    ) -> Option<u32> {
        self.known.ask_for_line(remote_va);
        self.covers(pi).then_some(())?;
        self.known.open()?.copy_word(remote_va, local_va)?;
        Some(self.count(queue, WORD_LEN))
    }

    /// As [`Warrant::move_word_of_any`], if both are of this node.
    #[inline(always)]
    fn move_word(&mut self, queue: &Queue, (pi, remote_va, local_va): MovedPlace) -> Option<u32> {
        self.covers(pi).then_some(())?;
        self.known.open_own()?.copy_word(remote_va, local_va)?;
        Some(self.count(queue, WORD_LEN))
    }

    /// As [`Warrant::count`], of a request without a completion.
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

impl EnginePlace {
    /// The engine, for anything else than a request under the warrant, which ends.
    #[inline(always)]
    pub(crate) fn engine(&mut self) -> &mut Option<Box<SendEngine>> {
        self.in_row = 0;
        if self.warrant.is_some() {
            self.end_warrant();
        }
        if self.dialogue.is_some() {
            self.end_dialogue();
        }
        &mut self.engine
    }

    #[cold]
    #[inline(never)]
    fn end_dialogue(&mut self) {
        if let (Some(dialogue), Some(engine)) = (self.dialogue.take(), &mut self.engine) {
            engine.take_back(dialogue.0.said(), dialogue.1);
        }
    }

    /// Begins a dialogue with the direct entry `block`, which is next. Returns the number of that request.
    #[cold]
    pub(crate) fn begin_dialogue(
        &mut self,
        visit: &Visit<'_>,
        block: &[u64; BLOCK_WORDS],
    ) -> Option<u32> {
        let (sends, to, seq) = self.engine().as_mut()?.begin_dialogue(visit, block)?;
        self.dialogue = Some(Box::new((sends, to)));
        Some(seq)
    }

    /// Says the message of a direct entry in the dialogue, if there is one ([`DialogueSends::say`]).
    #[inline(always)]
    pub(crate) fn say(
        &mut self,
        queue: &Queue,
        block: &[u64; BLOCK_WORDS],
        push: impl FnOnce(&ShortBody<'_>) -> bool,
    ) -> Option<()> {
        self.dialogue.as_mut()?.0.say(queue, block, push)
    }

    /// The open message of the dialogue was acknowledged; `false`: there is none.
    #[inline(always)]
    pub(crate) fn on_answered(&mut self, queue: &Queue) -> bool {
        self.dialogue.as_mut().is_some_and(|dialogue| dialogue.0.on_answered(queue))
    }

    #[cold]
    #[inline(never)]
    fn end_warrant(&mut self) {
        if let (Some(warrant), Some(engine)) = (self.warrant.take(), &mut self.engine) {
            let blocks = warrant.next.wrapping_sub(warrant.first);
            engine.count_carried(blocks / warrant.known.blocks(), blocks);
        }
    }

    /// As [`SendEngine::carry_unreported`], under the warrant if there is one.
    #[inline(always)]
    pub(crate) fn carry_unreported(&mut self, queue: &Queue, moved: &MovedEntry) -> Option<u32> {
        if let Some(index) = self.warrant.as_mut().and_then(|warrant| warrant.carry(queue, moved)) {
            return Some(index);
        }
        // A copy, so that the request itself need not lie in memory above.
        let moved = *moved;
        self.carry_by_engine(queue, &moved)
    }

    /// As [`SendEngine::carry_moved`], under the warrant if there is one, which goes on behind it.
    #[inline(always)]
    pub(crate) fn carry_reported(&mut self, queue: &Queue, moved: &MovedEntry) -> Option<Left> {
        match self.warrant.as_mut().map(|warrant| warrant.report(queue, moved)) {
            Some(Ok(())) => Some(Left::BUSY),
            Some(Err(why)) => self.report_again(queue, moved, why),
            None => self.report_by_engine(queue, moved),
        }
    }

    /// As [`EnginePlace::carry_reported`], of a request that the warrant did not carry out.
    #[cold]
    #[inline(never)]
    fn report_again(&mut self, queue: &Queue, moved: &MovedEntry, why: Unreported) -> Option<Left> {
        let engine = self.engine().as_mut()?;
        if why == Unreported::SlotLeft {
            engine.keep_slot();
        }
        engine.carry_moved(queue, moved)
    }

    #[inline(never)]
    fn report_by_engine(&mut self, queue: &Queue, moved: &MovedEntry) -> Option<Left> {
        let in_row = self.in_row + 1;
        let engine = self.engine().as_mut()?;
        let left = engine.carry_moved(queue, moved)?;
        if in_row < ROW {
            self.in_row = in_row;
        } else {
            self.warrant = engine.warrant();
        }
        Some(left)
    }

    /// As [`EnginePlace::carry_unreported`], of 8 bytes between segments of this node, if there is a warrant and that is
    /// one move.
    #[inline(always)]
    pub(crate) fn move_word(&mut self, queue: &Queue, moved: MovedPlace) -> Option<u32> {
        self.warrant.as_mut()?.move_word(queue, moved)
    }

    /// As [`EnginePlace::carry_unreported`], of 8 bytes.
    #[inline(always)]
    pub(crate) fn carry_word(&mut self, queue: &Queue, moved: MovedPlace) -> Option<u32> {
        let by_warrant =
            self.warrant.as_mut().and_then(|warrant| warrant.move_word_of_any(queue, moved));
        by_warrant.or_else(|| self.carry_word_by_engine(queue, moved))
    }

    #[inline(never)]
    fn carry_word_by_engine(&mut self, queue: &Queue, moved: MovedPlace) -> Option<u32> {
        let (pi, remote_va, local_va) = moved;
        let moved = MovedEntry { pi, is_signalled: true, remote_va, local_va, len: WORD_LEN };
        self.carry_unreported(queue, &moved)
    }

    /// Whether the queue is to be leased, the next time after so many leases: its requests went under one warrant for long.
    #[inline(always)]
    pub(crate) fn wants_lease(&self, leases: Leases, had: u32) -> bool {
        let Some(warrant) = &self.warrant else { return false };
        let blocks = warrant.next.wrapping_sub(warrant.first);
        match leases {
            Leases::Seldom => blocks >= LEASE_AFTER << had.min(LEASE_DOUBLINGS),
            Leases::Soon => true,
            Leases::Never => false,
        }
    }

    /// As [`EnginePlace::carry_unreported`], of an atomic.
    #[inline(always)]
    pub(crate) fn change_unreported(&mut self, queue: &Queue, moved: &MovedWord) -> Option<u32> {
        match self.warrant.as_mut().and_then(|warrant| warrant.change(queue, moved)) {
            Some(Ok(index)) => Some(index),
            Some(Err(status)) => {
                self.engine().as_mut()?.spoil_next(status);
                None
            }
            None => self.change_by_engine(queue, moved),
        }
    }

    #[inline(never)]
    fn change_by_engine(&mut self, queue: &Queue, moved: &MovedWord) -> Option<u32> {
        let in_row = self.in_row + 1;
        let engine = self.engine().as_mut()?;
        let index = engine.change_unreported(queue, moved)?;
        if in_row < ROW {
            self.in_row = in_row;
        } else {
            self.warrant = engine.warrant_of_words();
        }
        Some(index)
    }

    #[inline(never)]
    fn carry_by_engine(&mut self, queue: &Queue, moved: &MovedEntry) -> Option<u32> {
        let in_row = self.in_row + 1;
        let engine = self.engine().as_mut()?;
        let index = engine.carry_unreported(queue, moved)?;
        if in_row < ROW {
            self.in_row = in_row;
        } else {
            self.warrant = engine.warrant();
        }
        Some(index)
    }
}

/// Position of a request, its address in the remote segment, and in the local one.
pub(crate) type MovedPlace = (u32, u64, u64);

/// A warrant counts references, which few requests alike are not worth.
const ROW: u32 = 4;
/// Blocks under one warrant after which its queue gets a lease: what takes the lease back costs as much as some hundred
/// exchanges.
const LEASE_AFTER: u32 = 256;
/// A lease that was taken back doubles that, at most so often.
const LEASE_DOUBLINGS: u32 = 8;
