//! Engine of one send queue: fetch, route, execute, retire; a bounded step at a time.
//!
//! *Owns*: everything of the queue that only the holder of its `Serial` touches. *Takes*: posted blocks, completions
//! of requests that were handed over, state changes. *Gives*: bytes moved directly, requests for the shared part,
//! CQEs. *Must not*: wait; start an entry without a completion slot; let a request overtake one that it must follow.

mod flush;
mod lookups;
mod message;
mod ping_pong_entry;
mod planted;

use std::ops::BitOrAssign;
use std::sync::Arc;

use udma_abi::{
    CqeStatus, EqeKind, Nanos, Opcode, Sqe,
    cmd::{Mode, QueueFlags, QueueState},
    counters::Counter,
    sqe::{BLOCK_WORDS, SQE_WORDS_MAX, SqeFlags, SqeTargetKind},
};
use urma_mem::ends::EndCount;
use urma_mem::sync::Ordering;
use urma_mem::{Blocks, RegionWord32};

pub(crate) use message::{HandedEnd, ShortSend};
pub(crate) use ping_pong_entry::SaidTo;

use super::direct::{By, Cursor, Job, Progress, shown_to};
use super::fast::known::KnownRequests;
use super::fetch::SendRing;
use super::gather::{EntryWords, Local, Segments, Store};
use super::mail::{Handed, Mail, OUTSTANDING_MAX};
use super::paths::PathStates;
use super::remote::PathState;
use super::retire::{Identity, Retire, Started};
use crate::context::function::FunctionId;
use crate::context::function::GuessBudget;
use crate::context::jfc::JfcPort;
use crate::context::link::Reach;
use crate::context::queue::Queue;
use crate::context::segment::SegmentCache;
use crate::context::tables::Tables;
use crate::limits::MESSAGE_MAX;

/// Arguments of [`SendEngine::new`], from the command that makes the queue.
#[derive(Debug)]
pub(crate) struct EngineCfg {
    /// Function that owns the queue.
    pub(crate) owner: FunctionId,
    /// Refused accesses that are left, for a queue of a client's function.
    pub(crate) guesses: Option<Arc<GuessBudget>>,
    pub(crate) who: Identity,
    pub(crate) mode: Mode,
    pub(crate) flags: QueueFlags,
    pub(crate) ring: Blocks,
    /// Consumer index in the doorbell record.
    pub(crate) record: RegionWord32,
    pub(crate) port: JfcPort,
    /// Index of the queue's hazard slot in every half.
    pub(crate) slot: usize,
    /// Epoch of this node's segments and paths.
    pub(crate) ends: Arc<EndCount>,
}

/// The engine of one send queue.
#[derive(Debug)]
pub(crate) struct SendEngine {
    id: u32,
    is_jetty: bool,
    pub(super) mode: Mode,
    flags: QueueFlags,
    pub(super) ring: SendRing,
    pub(super) retire: Retire,
    mail: Arc<Mail>,
    pub(super) path_states: PathStates,
    pub(super) segments: SegmentCache,
    pub(super) known: KnownRequests,
    pub(super) words: EntryWords,
    /// Control part of `current`.
    sqe: Sqe,
    current: Current,
    /// `current` holds the request at the front.
    pub(super) under_way: bool,
    pub(super) state: SendState,
    /// Planted faults only: a write that is acknowledged and not yet placed.
    deferred: Option<Box<planted::Deferred>>,
    /// RC: path and remote jetty.
    pub(super) bound: Option<(u32, u32)>,
    pub(crate) slot: usize,
    /// Virtual time at which the contexts of the request at the front are loaded.
    ready_at: Nanos,
    /// Block up to which contexts were prefetched.
    named: u32,
    guesses: Option<Arc<GuessBudget>>,
}

/// The request at the front: fetched, with a completion slot, not ended. Changed in place, field by field: a copy of
/// the whole would wait for the stores of its parts.
#[derive(Clone, Copy, Debug)]
struct Current {
    blocks: u32,
    local: Local,
    len: u64,
    cursor: Cursor,
    /// Its local pieces were checked.
    checked: bool,
}

impl Current {
    const NONE: Self = Self {
        blocks: 0,
        local: Local::Inline { offset: 0, len: 0 },
        len: 0,
        cursor: Cursor { at: 0, life: 0, by: By::Memory },
        checked: false,
    };
}

/// State of the engine: what it does with posted entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SendState {
    Ready,
    /// Like `Ready`, but the next entry was executed in memory that was withdrawn meanwhile: it ends with this
    /// status.
    Spoilt(CqeStatus),
    /// Suspended, starts nothing; `reported` once the last CQE of the suspend is written.
    Suspended {
        reported: bool,
    },
    /// Flushes; `reported` once the last CQE of the flush is written.
    Error {
        reported: bool,
    },
    /// In reset: what was never started ends as unhandled.
    Reset,
}

/// Outstanding requests of a queue from which on further ones wait for a poll, or for [`GATHERED_MAX`] of them: with so
/// many on the way time is saved by fewer and fuller packets, not by an earlier one.
const GATHERED_FROM: usize = 32;
/// Requests that wait for a poll at most: a program that finds completions makes many polls without a step.
const GATHERED_MAX: usize = 32;

/// The outstanding requests of a path have different targets.
const MIXED: u32 = u32::MAX;

/// One visit of an engine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Visit<'a> {
    pub(crate) tables: &'a Tables,
    pub(crate) queue: &'a Queue,
    /// A direct entry, for the first fetch.
    pub(crate) direct: Option<&'a [u64; BLOCK_WORDS]>,
}

/// Outcome of a step, a set of bits. As four bools it would be stored byte by byte and loaded as one word, which
/// waits for the stores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct StepOutcome(u8);

impl StepOutcome {
    /// The step did nothing, and left nothing.
    pub(crate) const NOTHING: Self = Self(0);
    /// The bounds of the step were reached: step again.
    pub(crate) const MORE: Self = Self(1);
    /// The shared part has something to do.
    pub(crate) const SHARED: Self = Self(2);
    /// The step did something.
    pub(crate) const BUSY: Self = Self(4);
    /// A completion slot was given back that other send queues wait for.
    pub(crate) const FREED: Self = Self(8);

    /// The shared part has something to do that may wait for the next poll, so that it can go with what is posted
    /// until then.
    pub(crate) const GATHERED: Self = Self(32);

    /// An entry was not executed; never combined with other bits.
    pub(crate) const NOT_EXECUTED: Self = Self(16);

    /// The bits that `other` does not have.
    #[inline]
    pub(crate) const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether it has any of the bits of `other`.
    #[inline]
    pub(crate) const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The outcome after one more step: the bits of both, except that [`StepOutcome::MORE`] is only that of the later
    /// one.
    #[inline]
    pub(crate) const fn then(self, later: Self) -> Self {
        Self(self.0 & !Self::MORE.0 | later.0)
    }

    /// This outcome if `is_so`, else nothing.
    #[inline]
    pub(crate) const fn when(self, is_so: bool) -> Self {
        if is_so { self } else { Self::NOTHING }
    }
}

impl BitOrAssign for StepOutcome {
    #[inline]
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

/// Result of a step of the request at the front.
enum FrontResult {
    /// The request ended, with its status and the bytes transferred.
    End(CqeStatus, u32),
    /// It was handed over to the shared part, on this path.
    Handed { tpn: u32, left: StepOutcome },
    /// Something else has to end first.
    Wait,
    /// The byte budget of the step is used up.
    More,
}

impl SendEngine {
    pub(crate) fn new(cfg: EngineCfg) -> Self {
        let ring = SendRing::new(cfg.ring);
        let mail = Arc::new(Mail::new(ring.blocks() as usize));
        Self {
            id: cfg.who.id,
            is_jetty: cfg.who.is_jetty,
            mode: cfg.mode,
            flags: cfg.flags,
            ring,
            retire: Retire::new(cfg.who, cfg.port, cfg.record),
            mail,
            path_states: PathStates::new(),
            segments: SegmentCache::of(cfg.owner),
            known: KnownRequests::new(cfg.ends),
            words: [0; SQE_WORDS_MAX],
            sqe: Sqe::new(Opcode::Nop),
            current: Current::NONE,
            under_way: false,
            state: SendState::Ready,
            deferred: None,
            bound: None,
            slot: cfg.slot,
            ready_at: 0,
            named: 0,
            guesses: cfg.guesses,
        }
    }

    pub(crate) fn mail(&self) -> &Arc<Mail> {
        &self.mail
    }

    /// Number of blocks posted and not retired.
    pub(crate) fn blocks_left(&self, queue: &Queue) -> u32 {
        queue.pi.load(Ordering::Acquire).wrapping_sub(self.retire.retired())
    }

    /// Number of blocks retired, free running.
    pub(crate) fn retired(&self) -> u32 {
        self.retire.retired()
    }

    pub(crate) fn state(&self) -> QueueState {
        match self.state {
            SendState::Ready | SendState::Spoilt(_) => QueueState::Ready,
            SendState::Suspended { .. } => QueueState::Suspended,
            SendState::Error { .. } => QueueState::Error,
            SendState::Reset => QueueState::Reset,
        }
    }

    /// Drops references that would keep a dead segment or a closed path alive.
    pub(crate) fn forget_dead(&mut self) {
        self.known.forget();
        self.segments.drop_dead();
        self.path_states.iter_mut().for_each(PathState::forget_dead);
        self.path_states
            .retain(|path_state| path_state.link.is_alive() || path_state.outstanding != 0);
    }

    /// RC: path and remote jetty.
    pub(crate) fn bound(&self) -> Option<(u32, u32)> {
        self.bound
    }

    /// Binds the queue to this path and remote jetty, or to none.
    pub(crate) fn set_bound(&mut self, bound: Option<(u32, u32)>) {
        self.bound = bound;
        self.known.forget();
    }

    /// Does one bounded step of the queue.
    #[inline(always)]
    pub(crate) fn execute_posted(&mut self, visit: &Visit<'_>) -> StepOutcome {
        let left = self.execute_on_lane(visit);
        self.clear_slots(left)
    }

    /// Does one bounded step, out of line: for the steps that do not follow a post.
    #[cold]
    #[inline(never)]
    pub(crate) fn execute_posted_again(&mut self, visit: &Visit<'_>) -> StepOutcome {
        self.execute_posted(visit)
    }

    /// Gives back a completion slot that the queue need not keep, after a step that left `left`.
    #[inline(always)]
    pub(super) fn clear_slots(&mut self, left: StepOutcome) -> StepOutcome {
        if self.retire.is_square() {
            return left;
        }
        let keeps = self.state == SendState::Ready || !self.retire.has_spare();
        if keeps && !self.retire.owes_slot() { left } else { self.return_slots(left) }
    }

    #[cold]
    fn return_slots(&mut self, mut left: StepOutcome) -> StepOutcome {
        if self.state == SendState::Ready {
            self.retire.return_spare();
        } else {
            self.retire.give_spare_back();
        }
        left |= StepOutcome::FREED.when(self.retire.take_freed());
        left
    }

    #[inline(never)]
    pub(super) fn execute_requests(&mut self, visit: &Visit<'_>) -> StepOutcome {
        let mut left = StepOutcome::NOTHING;
        let mut bytes = visit.tables.step.bytes();
        if !self.mail.ended.is_empty() {
            self.take_ends(visit);
            left |= StepOutcome::BUSY;
        }
        let mut direct = visit.direct;
        for _ in 0..visit.tables.step.requests() {
            if visit.tables.faults.is_planted() {
                self.place_deferred(visit);
            }
            if self.state != SendState::Ready {
                left |= StepOutcome::SHARED;
                left |= StepOutcome::MORE.when(self.step_stopped(visit));
                return left;
            }
            if !self.under_way && !self.fetch(visit, direct.take()) {
                return left;
            }
            left |= StepOutcome::BUSY;
            if !self.under_way {
                // It was malformed and is completed; the state may have changed.
                continue;
            }
            if let Some(contexts) = visit.tables.contexts()
                && contexts.is_before(self.ready_at)
            {
                self.look_ahead(visit, contexts);
                return left;
            }
            match self.execute_front(visit, &mut bytes) {
                FrontResult::End(status, bytes) => self.end_current(visit, status, bytes),
                FrontResult::Handed { tpn, left: handed } => {
                    left |= handed;
                    self.push_current(visit, tpn);
                }
                FrontResult::Wait => return left,
                FrontResult::More => {
                    left |= StepOutcome::MORE;
                    return left;
                }
            }
        }
        left |= StepOutcome::MORE;
        left
    }

    /// Fetches the next entry and reserves its completion slot; `false`: there is none to fetch.
    #[inline]
    fn fetch(&mut self, visit: &Visit<'_>, direct: Option<&[u64; BLOCK_WORDS]>) -> bool {
        let posted = visit.queue.pi.load(Ordering::Acquire).wrapping_sub(self.ring.head);
        if posted == 0 {
            return false;
        }
        if posted > self.ring.blocks() {
            visit.tables.count(Counter::BadDoorbell);
            self.forget_posted(visit, posted);
            return false;
        }
        if !self.retire.reserve() && !self.reserve_or_stop(visit) {
            return false;
        }
        // A direct entry is the newest one posted, so it is the next one only if it is the only one.
        let direct = direct.filter(|_| posted == 1);
        match self.ring.fetch(posted, direct, (&mut self.words, &mut self.sqe)) {
            Ok(blocks) => {
                self.ring.head = self.ring.head.wrapping_add(blocks);
                let local = Local::of(&self.sqe);
                let len = local.len(&self.words);
                let cursor = Cursor::default();
                self.current = Current { blocks, local, len, cursor, checked: false };
                self.under_way = true;
                if let Some(contexts) = visit.tables.contexts() {
                    self.look_up(contexts);
                    self.look_ahead(visit, contexts);
                }
                true
            }
            Err(bad) => {
                self.malformed(visit, bad.blocks);
                true
            }
        }
    }

    #[cold]
    fn reserve_or_stop(&mut self, visit: &Visit<'_>) -> bool {
        visit.queue.stopped.store(true, Ordering::SeqCst);
        if self.retire.port().reserve_or_stop() {
            visit.queue.stopped.store(false, Ordering::SeqCst);
            return true;
        }
        visit.tables.count(Counter::CqFullStops);
        false
    }

    /// Completes a malformed entry with an error; the engine stops (see `stops`).
    #[cold]
    fn malformed(&mut self, visit: &Visit<'_>, blocks: u32) {
        visit.tables.count(Counter::BadSqe);
        let request = Started {
            entry_idx: self.ring.entry_idx(),
            blocks,
            flags: SqeFlags::empty(),
            fenced: false,
            tpn: 0,
            end: Some((CqeStatus::LocOperation, 0)),
            reported: false,
        };
        self.ring.head = self.ring.head.wrapping_add(blocks);
        self.retire.finish(request, &visit.queue.fast, visit.tables.faults);
        self.after_error(visit, CqeStatus::LocOperation);
    }

    /// Makes the next step of the request at the front.
    #[inline]
    fn execute_front(&mut self, visit: &Visit<'_>, budget: &mut usize) -> FrontResult {
        if !self.under_way {
            return FrontResult::Wait;
        }
        if self.sqe.opcode == Opcode::Nop {
            return FrontResult::End(CqeStatus::Success, 0);
        }
        let Some(index) = self.path_state_of(visit, self.sqe.tpn) else {
            return FrontResult::End(CqeStatus::LocOperation, 0);
        };
        if !self.current.checked {
            if let Err(status) = self.check(visit, index) {
                return FrontResult::End(status, 0);
            }
            self.current.checked = true;
        }
        if !self.path_states[index].link.is_alive() {
            return FrontResult::End(CqeStatus::AckTimeout, 0);
        }
        let is_fenced =
            self.sqe.flags.contains(SqeFlags::FENCE) && !visit.tables.faults.fence_ignored();
        if is_fenced && self.retire.fence_pending() {
            return FrontResult::Wait;
        }
        if self.sqe.opcode.is_send() {
            return self.hand_over(index, Placed::No);
        }
        self.try_direct(visit, index, budget)
    }

    #[inline]
    fn try_direct(&mut self, visit: &Visit<'_>, index: usize, budget: &mut usize) -> FrontResult {
        let path_state = &mut self.path_states[index];
        let direct = !matches!(path_state.link.reach, Reach::Messages | Reach::Standard);
        if direct && path_state.outstanding != 0 && self.current.cursor.life == 0 {
            // Earlier requests of this path may not be placed yet. A request that follows them in the same sequence
            // keeps its order there or waits; one of another sequence may overtake them.
            let same = path_state.target == key(&self.sqe);
            if same && self.sqe.opcode == Opcode::WriteImm {
                return self.hand_over(index, Placed::No);
            }
            let strong = self.sqe.flags.contains(SqeFlags::ORDER_STRONG);
            if same || strong || path_state.target == MIXED {
                return FrontResult::Wait;
            }
        }
        let unproven = self.sqe.opcode == Opcode::WriteImm
            && !self.path_states[index].admission.is_proven(shown_to(&self.sqe));
        if unproven {
            return self.hand_over(index, Placed::No);
        }
        if self.sqe.opcode == Opcode::FlushDma {
            let done = FrontResult::End(CqeStatus::Success, 0);
            return if direct { done } else { self.hand_over(index, Placed::No) };
        }
        if visit.tables.faults.is_planted()
            && let Some(step) = self.defer(visit, index)
        {
            return step;
        }
        let path_state = &mut self.path_states[index];
        let job = Job {
            sqe: &self.sqe,
            words: &self.words,
            local: &self.current.local,
            len: self.current.len,
            segments: Segments { cache: &mut self.segments, table: &visit.tables.segments },
            chunk: visit.tables.cfg.direct_chunk,
            cache: visit.tables.cfg.cache_bytes,
            faults: visit.tables.faults,
        };
        let mut cursor = self.current.cursor;
        let progress = job.execute(path_state, &mut cursor, budget);
        match progress {
            Ok(Progress::Done(bytes)) => {
                match cursor.by {
                    By::Memory | By::PastCaches => visit.queue.fast.direct(u64::from(bytes)),
                    By::Kernel => visit.queue.fast.fetched(u64::from(bytes)),
                }
                if self.sqe.opcode == Opcode::WriteImm {
                    return self.hand_over(index, Placed::Yes);
                }
                FrontResult::End(CqeStatus::Success, bytes)
            }
            Ok(Progress::More) => {
                self.current.cursor = cursor;
                FrontResult::More
            }
            Ok(Progress::NotDirect) => self.hand_over(index, Placed::No),
            Err(status) => FrontResult::End(status, 0),
        }
    }

    fn hand_over(&mut self, index: usize, placed: Placed) -> FrontResult {
        let path_state = &mut self.path_states[index];
        let key = key(&self.sqe);
        let strong = self.sqe.flags.contains(SqeFlags::ORDER_STRONG);
        if strong && path_state.outstanding != 0 && path_state.target != key {
            return FrontResult::Wait;
        }
        let seq = self.retire.next_seq();
        let handed = Handed {
            seq,
            words: self.words,
            // Lengths were checked against MESSAGE_MAX.
            len: u32::try_from(self.current.len).unwrap_or(u32::MAX),
            placed: placed == Placed::Yes,
        };
        let outstanding: u32 = self.path_states.iter().map(|s| s.outstanding).sum();
        let room = (outstanding as usize) < OUTSTANDING_MAX;
        if !room || self.mail.handed.push(handed).is_err() {
            // A payload that is placed already is simply placed once more at the next step.
            return FrontResult::Wait;
        }
        let path_state = &mut self.path_states[index];
        if self.sqe.opcode.consumes_receive() {
            path_state.admission.on_asked(seq, shown_to(&self.sqe));
        }
        path_state.target =
            if path_state.outstanding == 0 || path_state.target == key { key } else { MIXED };
        path_state.outstanding += 1;
        let is_many =
            outstanding as usize >= GATHERED_FROM && self.mail.handed.len() < GATHERED_MAX;
        let left = if is_many { StepOutcome::GATHERED } else { StepOutcome::SHARED };
        FrontResult::Handed { tpn: path_state.link.tpn, left }
    }

    /// Index of the state of the path `tpn`.
    #[inline]
    fn path_state_of(&mut self, visit: &Visit<'_>, tpn: u32) -> Option<usize> {
        self.path_states.index_of(tpn).or_else(|| self.add_path_state(visit, tpn))
    }

    #[cold]
    fn add_path_state(&mut self, visit: &Visit<'_>, tpn: u32) -> Option<usize> {
        let link = visit.tables.links.find(tpn)?;
        let guard = self.guesses.clone().map(|guesses| (self.segments.owner(), guesses));
        Some(self.path_states.add(PathState::new(link, self.slot).guarded(guard)))
    }

    /// Makes all checks that need no peer, before anything starts.
    #[inline]
    fn check(&mut self, visit: &Visit<'_>, index: usize) -> Result<(), CqeStatus> {
        let sqe = &self.sqe;
        let link = &self.path_states[index].link;
        let is_standard = matches!(link.reach, Reach::Standard);
        if link.unreliable != (self.mode == Mode::Um) || is_standard && self.mode != Mode::Rc {
            return Err(CqeStatus::LocOperation);
        }
        match self.mode {
            Mode::Rm => {}
            Mode::Rc => self.check_bound()?,
            Mode::Um => check_um(sqe, self.current.len, u64::from(visit.tables.cfg.mtu))?,
        }
        let atomic = sqe.opcode.is_atomic();
        if self.current.len > MESSAGE_MAX || (atomic && !matches!(self.current.len, 4 | 8)) {
            return Err(CqeStatus::LocLen);
        }
        let store = if sqe.opcode.fetches() { Store::Yes } else { Store::No };
        let mut segments = Segments { cache: &mut self.segments, table: &visit.tables.segments };
        self.current.local.check(&self.words, &mut segments, store)
    }

    fn check_bound(&self) -> Result<(), CqeStatus> {
        let sqe = &self.sqe;
        let (tpn, remote) = self.bound.ok_or(CqeStatus::LocOperation)?;
        let names = sqe.opcode.consumes_receive();
        let other = names && (sqe.target_id != remote || sqe.target_kind != SqeTargetKind::Jetty);
        if sqe.tpn != tpn || other { Err(CqeStatus::LocOperation) } else { Ok(()) }
    }

    #[inline]
    fn started(&self, blocks: u32, tpn: u32, end: Option<(CqeStatus, u32)>) -> Started {
        let sqe = &self.sqe;
        Started {
            entry_idx: sqe.entry_idx,
            blocks,
            flags: sqe.flags,
            fenced: sqe.opcode.fetches(),
            tpn,
            end,
            reported: false,
        }
    }

    #[inline]
    fn end_current(&mut self, visit: &Visit<'_>, status: CqeStatus, bytes: u32) {
        self.under_way = false;
        let request = self.started(self.current.blocks, 0, Some((status, bytes)));
        self.retire.finish(request, &visit.queue.fast, visit.tables.faults);
        if status != CqeStatus::Success {
            self.after_error(visit, status);
        }
    }

    fn push_current(&mut self, visit: &Visit<'_>, tpn: u32) {
        self.under_way = false;
        let request = self.started(self.current.blocks, tpn, None);
        self.retire.push(request, &visit.queue.fast, visit.tables.faults);
    }

    fn take_ends(&mut self, visit: &Visit<'_>) {
        while !self.mail.ended.is_empty()
            && let Some(ended) = self.mail.ended.pop()
        {
            let tools = (&visit.queue.fast, visit.tables.faults);
            let end = (ended.status, ended.bytes);
            let Some(request) = self.retire.end(ended.seq, end, tools) else { continue };
            if let Some(path_state) = self.path_states.find(request.tpn) {
                path_state.outstanding = path_state.outstanding.saturating_sub(1);
                path_state.admission.on_ended(ended.seq, ended.status);
            }
            if ended.status != CqeStatus::Success {
                self.after_error(visit, ended.status);
            }
        }
    }

    /// Stops the queue if the error demands it: any error of RC, the local ones of RM and UM.
    #[cold]
    pub(super) fn after_error(&mut self, visit: &Visit<'_>, status: CqeStatus) {
        if status == CqeStatus::RemAccessAbort {
            visit.tables.count(Counter::AccessDenied);
        }
        if self.state != SendState::Ready || !stops(self.mode, status) {
            return;
        }
        if self.flags.contains(QueueFlags::ERROR_SUSPEND) {
            self.state = SendState::Suspended { reported: false };
            return;
        }
        self.state = SendState::Error { reported: false };
        if self.is_jetty {
            visit.tables.on_stopped(self.id, QueueState::Error);
        }
        let kind = if self.is_jetty { EqeKind::JettyErr } else { EqeKind::JfsErr };
        visit.tables.async_event(self.segments.owner(), kind, self.id);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Placed {
    Yes,
    No,
}

/// UM carries only SENDs of one packet.
fn check_um(sqe: &Sqe, len: u64, mtu: u64) -> Result<(), CqeStatus> {
    if !matches!(sqe.opcode, Opcode::Send | Opcode::SendImm) {
        return Err(CqeStatus::UnsupportedOpcode);
    }
    if len > mtu { Err(CqeStatus::LocLen) } else { Ok(()) }
}

/// Key of the sequence that a request belongs to: that of its target.
fn key(sqe: &Sqe) -> u32 {
    target_key(sqe.target_kind, sqe.target_id)
}

/// Key of the sequence for a target given by kind and id.
const fn target_key(kind: SqeTargetKind, id: u32) -> u32 {
    (kind as u32) << 20 | id
}

/// Whether a status moves its queue out of READY (docs/device-spec.md, statuses).
const fn stops(mode: Mode, status: CqeStatus) -> bool {
    let local = matches!(
        status,
        CqeStatus::LocLen
            | CqeStatus::LocAccess
            | CqeStatus::LocOperation
            | CqeStatus::LocDataPoison
            | CqeStatus::UnsupportedOpcode
    );
    match mode {
        Mode::Rc => !matches!(status, CqeStatus::Success),
        Mode::Rm | Mode::Um => local,
    }
}
