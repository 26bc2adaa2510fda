//! The engine of one queue number, and the fast-path grant or ping-pong mode in front of it.
//!
//! Requests are taken in the order of the queue by one of the three. While a grant or ping-pong mode is in force, no
//! request reaches the engine.

pub(crate) mod known;
pub(super) mod lane;

use std::sync::Arc;

use known::{KnownRequest, MovedEntry, WORD_LEN};
use udma_abi::{
    Atomic, CompletionBy, CqeStatus, MovedWord,
    cqe::SendDoneForm,
    sqe::{BLOCK_WORDS, SqeFlags},
};
use urma_mem::{
    RegionWord32,
    ends::{EndCount, SeenEnds},
    lines::UsedLines,
    sync::Ordering,
};

use super::{
    mail::ShortBody,
    ping_pong::PingPongSends,
    send::{SaidTo, SendEngine, StepOutcome, Visit},
};
use crate::{
    context::{jfc::JfcPort, queue::Queue},
    engine::{
        fetch::{SendRing, low16},
        retire::Retire,
        send::SendState,
    },
};

/// Requests alike in a row before a grant is made: it counts references, which fewer requests do not repay.
const ROW: u32 = 4;
/// Blocks under one grant before the queue gets a lease: taking a lease back costs about some hundred exchanges.
const LEASE_AFTER: u32 = 256;
/// Each lease that was taken back doubles that, at most so often.
const LEASE_DOUBLINGS: u32 = 8;

/// Engine of a queue number, if it has one, and the grant or the ping-pong mode of its newest requests.
#[derive(Debug, Default)]
pub(crate) struct EnginePlace {
    grant: Option<FastPathGrant>,
    ping_pong: Option<Box<(PingPongSends, SaidTo)>>,
    /// Requests in a row that a grant would have covered.
    in_row: u32,
    engine: Option<Box<SendEngine>>,
}

/// When a queue behind a handle gets a lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leases {
    /// After many requests in a row, and twice as many each time that the lease was taken back.
    Seldom,
    /// After few requests in a row.
    Soon,
    /// Never: each entry uses an atomic exchange.
    Never,
}

impl EnginePlace {
    /// Returns the engine, for anything that is not a request under the grant; ends the grant and ping-pong mode.
    #[inline(always)]
    pub(crate) fn engine(&mut self) -> &mut Option<Box<SendEngine>> {
        self.in_row = 0;
        if self.grant.is_some() {
            self.end_grant();
        }
        if self.ping_pong.is_some() {
            self.end_ping_pong();
        }
        &mut self.engine
    }

    #[cold]
    #[inline(never)]
    fn end_ping_pong(&mut self) {
        if let (Some(ping_pong), Some(engine)) = (self.ping_pong.take(), &mut self.engine) {
            engine.take_back(ping_pong.0.said(), ping_pong.1);
        }
    }

    /// Enters ping-pong mode with the direct entry `block`, which is next. Returns the request's sequence number.
    #[cold]
    pub(crate) fn begin_ping_pong(
        &mut self,
        visit: &Visit<'_>,
        block: &[u64; BLOCK_WORDS],
    ) -> Option<u32> {
        let (sends, to, seq) = self.engine().as_mut()?.begin_ping_pong(visit, block)?;
        self.ping_pong = Some(Box::new((sends, to)));
        Some(seq)
    }

    /// Sends the message of a direct entry in ping-pong mode, if that is on ([`PingPongSends::send_piggybacked`]).
    #[inline(always)]
    pub(crate) fn send_piggybacked(
        &mut self,
        queue: &Queue,
        block: &[u64; BLOCK_WORDS],
        push: impl FnOnce(&ShortBody<'_>) -> bool,
    ) -> Option<()> {
        self.ping_pong.as_mut()?.0.send_piggybacked(queue, block, push)
    }

    /// Completes the open message of ping-pong mode, which was acknowledged; `false`: there is none.
    #[inline(always)]
    pub(crate) fn on_answered(&mut self, queue: &Queue) -> bool {
        self.ping_pong.as_mut().is_some_and(|ping_pong| ping_pong.0.on_answered(queue))
    }

    #[cold]
    #[inline(never)]
    fn end_grant(&mut self) {
        if let (Some(grant), Some(engine)) = (self.grant.take(), &mut self.engine) {
            engine.count_unreported(grant.requests(), grant.blocks());
        }
    }

    /// Executes a WRITE or READ like the last one: under the grant, which then stays in force, else by
    /// [`SendEngine::repeat`]. Returns the index of the JFC's next entry, and what the engine left to do.
    #[inline(always)]
    pub(crate) fn repeat(
        &mut self,
        queue: &Queue,
        moved: &MovedEntry,
    ) -> Option<(u32, StepOutcome)> {
        let why = match self.grant.as_mut().map(|grant| grant.repeat(queue, moved)) {
            Some(Ok(index)) => {
                let is_reported = moved.by == CompletionBy::Device;
                return Some((index, StepOutcome::BUSY.when(is_reported)));
            }
            Some(Err(why)) => why,
            None => Unrepeated::Refused,
        };
        // A copy, so that the caller's request can stay in registers.
        let moved = *moved;
        self.repeat_by_engine(queue, &moved, why)
    }

    #[inline(never)]
    fn repeat_by_engine(
        &mut self,
        queue: &Queue,
        moved: &MovedEntry,
        why: Unrepeated,
    ) -> Option<(u32, StepOutcome)> {
        let in_row = self.in_row + 1;
        let engine = self.engine().as_mut()?;
        if why == Unrepeated::SlotLeft {
            engine.keep_slot();
        }
        let repeated = engine.repeat(queue, moved)?;
        if in_row < ROW {
            self.in_row = in_row;
        } else {
            self.grant = engine.grant();
        }
        Some(repeated)
    }

    /// Executes 8 bytes between segments of this node, only under a grant and as a single move. Returns the index of
    /// the JFC's next entry.
    #[inline(always)]
    pub(crate) fn move_word(&mut self, queue: &Queue, moved: MovedPlace) -> Option<u32> {
        self.grant.as_mut()?.move_word(queue, moved)
    }

    /// Whether to lease the queue: one grant has covered many blocks. `had` leases were given before, each of which
    /// doubles the number.
    #[inline(always)]
    pub(crate) fn wants_lease(&self, leases: Leases, had: u32) -> bool {
        let Some(grant) = &self.grant else { return false };
        match leases {
            Leases::Seldom => grant.blocks() >= LEASE_AFTER << had.min(LEASE_DOUBLINGS),
            Leases::Soon => true,
            Leases::Never => false,
        }
    }

    /// Executes an atomic whose completion the driver makes, under the grant if there is one, else by
    /// [`SendEngine::repeat_atomic`].
    #[inline(always)]
    pub(crate) fn repeat_atomic(&mut self, queue: &Queue, moved: &MovedWord) -> Option<u32> {
        match self.grant.as_mut().and_then(|grant| grant.change(queue, moved)) {
            Some(Ok(index)) => Some(index),
            Some(Err(status)) => {
                self.engine().as_mut()?.spoil_next(status);
                None
            }
            None => self.repeat_atomic_by_engine(queue, moved),
        }
    }

    #[inline(never)]
    fn repeat_atomic_by_engine(&mut self, queue: &Queue, moved: &MovedWord) -> Option<u32> {
        let in_row = self.in_row + 1;
        let engine = self.engine().as_mut()?;
        let index = engine.repeat_atomic(queue, moved)?;
        if in_row < ROW {
            self.in_row = in_row;
        } else {
            self.grant = engine.grant_of_words();
        }
        Some(index)
    }
}

/// Fast-path grant: the newest request of a queue in one place, valid as long as nothing changed.
///
/// A visit of the engine by anything else than a request like it ends the grant, which therefore need not check what
/// a visit may change (state, outstanding requests, binding, queue). Two things change without a visit, and are
/// checked: one epoch ([`EndCount`]), and the life of a peer's segment, under an announcement.
#[derive(Debug)]
#[repr(C)]
struct FastPathGrant {
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
enum Unrepeated {
    /// It is not the next one, the epoch moved, or the JFC is full.
    Refused,
    /// It got a slot in the JFC, but the bytes did not move: the caller has the slot now.
    SlotLeft,
}

impl FastPathGrant {
    /// Makes a grant for requests like `known` from position `next` on. `None` if the epoch moved since the last full
    /// check, or requests may not even have 8 bytes.
    fn of(known: &KnownRequest, next: u32, retire: &Retire, ends: &Arc<EndCount>) -> Option<Self> {
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
    fn blocks(&self) -> u32 {
        self.next.wrapping_sub(self.first)
    }

    /// Number of requests executed under the grant.
    fn requests(&self) -> u32 {
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

    /// Executes the next WRITE or READ; the memory may be of a peer. Returns the JFC index as in
    /// [`FastPathGrant::count`].
    #[inline(always)]
    fn repeat(&mut self, queue: &Queue, moved: &MovedEntry) -> Result<u32, Unrepeated> {
        self.known.ask_for_line(moved.remote_va);
        let is_reported = moved.by == CompletionBy::Device;
        if !self.covers(moved.pi) || is_reported && !self.port.reserve() {
            return Err(Unrepeated::Refused);
        }
        // Not a closure: it would be a call of its own.
        let is_copied =
            if let Some(open) = self.known.open() { open.copy(moved).is_some() } else { false };
        if !is_copied {
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
    fn move_word(&mut self, queue: &Queue, (pi, remote_va, local_va): MovedPlace) -> Option<u32> {
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
type MovedPlace = (u32, u64, u64);

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
    fn grant(&mut self) -> Option<FastPathGrant> {
        let ends = Arc::clone(self.known.ends());
        FastPathGrant::of(self.known.newest()?, self.ring.head, &self.retire, &ends)
    }

    /// Makes a grant for atomics like the newest one that was executed.
    fn grant_of_words(&mut self) -> Option<FastPathGrant> {
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
///
/// It decides on no status: what is refused here comes again as a whole block.
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
