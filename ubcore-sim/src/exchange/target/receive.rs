//! Receive queues, jetties on shared ones, groups: which queue receives a message, into which buffers.
//!
//! Has the consumer side of receive rings, receives taken and given back, flushes; and checks what a message asks
//! for against modes, tokens, bindings and members. Must not take a receive without a completion slot, or read a
//! ring entry twice.

use std::{collections::BTreeMap, sync::Arc};

use udma_abi::{
    Cqe, CqeStatus, EqeKind, RawEid, Rqe, Sge,
    cmd::{Mode, QueueState},
    counters::Counter,
    cqe::INLINE_MAX,
    rqe::{self, record},
    sqe::SGE_LEN,
};
use urma_mem::Region;
use urma_packet::{
    Initiator, InitiatorKind, RequestHeader, ResponseStatus, Target, TargetKind, TokenValue,
};

use crate::{
    context::{
        function::{FunctionId, fits},
        jfc::JfcPort,
        segment::{LocalSegment, SegmentCache},
    },
    engine::{
        core::DeviceCore,
        gather::{EntryWords, Segments, list},
    },
    exchange::{RecvSide, SharedSide},
    nic::LookedUp,
};

/// Receives that are flushed in one step.
const FLUSH_PER_STEP: u32 = 256;

/// A receive in use, with a reserved completion slot.
#[derive(Debug)]
pub(crate) struct TakenReceive {
    /// Function that owns the queue.
    pub(crate) owner: FunctionId,
    /// Queue whose ring it came from.
    pub(crate) ring: u32,
    /// Queue that received the message: the same, or a jetty on a shared ring.
    pub(crate) cqe_source: CqeSource,
    port: Arc<JfcPort>,
    entry_idx: u16,
    words: EntryWords,
    num: usize,
    capacity: u64,
}

impl TakenReceive {
    /// The words of its pieces.
    pub(crate) fn pieces(&self) -> &[u64] {
        self.words.get(..2 * self.num).unwrap_or(&[])
    }

    pub(crate) fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Whether a short payload goes into the completion.
    pub(crate) fn is_inline(&self) -> bool {
        self.port.inline
    }

    /// Completes it; `cqe` describes the message, and this adds the receiver.
    pub(crate) fn complete(self, core: &DeviceCore, cqe: Cqe, solicited: bool) {
        let cqe = Cqe {
            recv: true,
            is_jetty: self.cqe_source.is_jetty,
            local_id: self.cqe_source.id,
            user_data: self.cqe_source.cookie,
            entry_idx: self.entry_idx,
            byte_cnt: cqe.byte_cnt.saturating_sub(u32::from(core.tables.faults.length_short())),
            ..cqe
        };
        if core.tables.faults.completion_doubled() && self.port.reserve() {
            self.port.complete(&cqe, solicited);
        }
        self.port.complete(&cqe, solicited);
        core.tables.counts.add_alone(Counter::Completions, 1);
    }

    /// Completes it with an error.
    pub(crate) fn fail(self, core: &DeviceCore, status: CqeStatus) {
        self.complete(core, Cqe { status, ..Cqe::default() }, true);
    }
}

/// Receiver of the messages of a form.
#[derive(Clone, Debug)]
pub(crate) struct FormReceiver {
    /// Queue whose receives they use.
    pub(crate) ring: u32,
    pub(crate) port: Arc<JfcPort>,
}

/// A receive that was given back: it is taken again before new ones.
#[derive(Debug)]
struct Spare {
    entry_idx: u16,
    words: EntryWords,
}

/// Receive ring of a JFR or jetty.
#[derive(Debug)]
struct ReceiveRing {
    side: RecvSide,
    /// The side's port, lent to receives in use.
    port: Arc<JfcPort>,
    state: QueueState,
    cursor: ReceiveCursor,
    spare: Vec<Spare>,
    threshold: u32,
}

/// All receiving sides of a node.
#[derive(Debug, Default)]
pub(crate) struct ReceivingSides {
    rings: BTreeMap<u32, ReceiveRing>,
    ends: BTreeMap<u32, ReceivingSide>,
    groups: BTreeMap<u32, Group>,
    /// Queues whose posted receives are flushed.
    flushing: Vec<u32>,
    /// Rings whose threshold was set since the last step.
    new_thresholds: Vec<u32>,
    /// Number of changes that affect checks of messages: sides created, ended, bound, in another state.
    changes: u64,
}

impl ReceivingSides {
    pub(crate) fn add_ring(&mut self, side: RecvSide) {
        self.changes += 1;
        self.ends.insert(side.id, ReceivingSide::of_ring(&side));
        let state = QueueState::Ready;
        let port = Arc::new(side.port.clone());
        let cursor = ReceiveCursor::new(&side);
        let ring = ReceiveRing { side, port, state, cursor, spare: Vec::new(), threshold: 0 };
        self.rings.insert(ring.side.id, ring);
    }

    pub(crate) fn add_shared(&mut self, side: SharedSide) {
        self.changes += 1;
        self.ends.insert(side.id, ReceivingSide::of_shared(side));
    }

    /// Removes a receiving side, which leaves its group; its receives were flushed before.
    pub(crate) fn remove(&mut self, id: u32) {
        self.changes += 1;
        self.rings.remove(&id);
        self.ends.remove(&id);
        self.flushing.retain(|&flushed| flushed != id);
        for group in self.groups.values_mut() {
            group.leave(id);
        }
    }

    pub(crate) fn bind(&mut self, id: u32, to: Option<(RawEid, u32)>) -> bool {
        let Some(end) = self.ends.get_mut(&id).filter(|e| e.mode == Mode::Rc) else { return false };
        self.changes += 1;
        end.bound = to;
        true
    }

    pub(crate) fn set_state(&mut self, id: u32, state: QueueState) {
        self.changes += 1;
        if let Some(end) = self.ends.get_mut(&id) {
            end.state = state;
        }
        let Some(ring) = self.rings.get_mut(&id) else { return };
        ring.state = state;
        self.flushing.retain(|&flushed| flushed != id);
        if ring.flush_status().is_some() {
            self.flushing.push(id);
        }
    }

    /// Flushes posted receives of queues in error. Returns whether anything was done.
    pub(crate) fn step_flushes(&mut self, core: &DeviceCore) -> bool {
        let mut busy = false;
        for id in self.new_thresholds.drain(..) {
            if let Some(ring) = self.rings.get_mut(&id) {
                ring.look_at_threshold(core);
            }
        }
        for id in &self.flushing {
            if let Some(ring) = self.rings.get_mut(id) {
                busy |= ring.flush(core);
            }
        }
        busy
    }

    /// Whether the next step has receives to flush, or a threshold to check.
    pub(crate) fn is_flushing(&self) -> bool {
        !(self.flushing.is_empty() && self.new_thresholds.is_empty())
    }

    /// Number of posted receives that wait for a message or their completion; `None`: the queue has no ring.
    pub(crate) fn left(&self, id: u32) -> Option<u32> {
        self.rings.get(&id).map(ReceiveRing::left)
    }

    /// Timer code of the RNR wait that senders to the queue are asked for.
    pub(crate) fn min_rnr_timer(&self, id: u32) -> Option<u8> {
        let ring = self.rings.get(&self.ends.get(&id)?.ring)?;
        Some(ring.side.min_rnr_timer & 31)
    }

    /// Sets the threshold of a ring's event; `false`: no such ring. The next step checks whether an event is due
    /// already.
    pub(crate) fn set_threshold(&mut self, id: u32, threshold: u32) -> bool {
        let Some(ring) = self.rings.get_mut(&id) else { return false };
        ring.threshold = threshold;
        self.new_thresholds.push(id);
        true
    }

    pub(crate) fn state(&self, id: u32) -> Option<QueueState> {
        self.ends.get(&id).map(|end| end.state)
    }

    pub(crate) fn add_group(&mut self, id: u32, by_hint: bool, token: Option<u32>) {
        let choice = if by_hint { Choice::Hint } else { Choice::RoundRobin };
        self.groups.insert(id, Group::new(choice, token));
    }

    pub(crate) fn remove_group(&mut self, id: u32) {
        self.groups.remove(&id);
    }

    /// Adds a jetty to a group, once, at its creation.
    pub(crate) fn join(&mut self, group: u32, jetty: u32) {
        if let Some(group) = self.groups.get_mut(&group) {
            group.join(jetty);
        }
    }

    /// Takes a receive for a message, with a completion slot; otherwise the answer to the message.
    pub(crate) fn take(
        &mut self,
        core: &DeviceCore,
        ask: &Ask,
    ) -> Result<TakenReceive, ResponseStatus> {
        let id = self.member(ask)?;
        self.ends.get(&id).ok_or(ResponseStatus::NoTarget)?.check(ask)?;
        self.take_of(core, id)
    }

    /// Takes a receive of queue `id`, which the message was admitted to.
    pub(crate) fn take_of(
        &mut self,
        core: &DeviceCore,
        id: u32,
    ) -> Result<TakenReceive, ResponseStatus> {
        let end = self.ends.get(&id).ok_or(ResponseStatus::NoTarget)?;
        let (cqe_source, own_port) = (end.cqe_source, end.port.clone());
        let ring = self.rings.get_mut(&end.ring).ok_or(ResponseStatus::NoTarget)?;
        let not_ready = ResponseStatus::ReceiverNotReady { timer: ring.side.min_rnr_timer & 31 };
        match ring.state {
            QueueState::Ready => {}
            QueueState::Suspended => return Err(not_ready),
            QueueState::Error | QueueState::Reset => return Err(ResponseStatus::TargetReset),
        }
        if ring.posted(core) == 0 && ring.spare.is_empty() {
            return Err(not_ready);
        }
        let port = own_port.unwrap_or_else(|| Arc::clone(&ring.port));
        if !port.reserve() {
            return Err(not_ready);
        }
        let Some(spare) = ring.next(core) else {
            give_back(core, &port);
            return Err(ResponseStatus::NoResources);
        };
        ring.look_at_threshold(core);
        let rqe = Rqe::decode(&spare.words);
        let (num, capacity) = (rqe.num, rqe.capacity());
        let Spare { entry_idx, words } = spare;
        let (owner, ring) = (ring.side.owner, end.ring);
        Ok(TakenReceive { owner, ring, cqe_source, port, entry_idx, words, num, capacity })
    }

    /// Contexts that a message will need here, as far as they are known before it is admitted: its queue, its JFC,
    /// and the pieces of the next receive.
    pub(crate) fn look_ahead(&self, ask: &Ask) -> Vec<LookedUp> {
        let Ok(id) = self.next_member(ask) else { return Vec::new() };
        self.look_ahead_of(id)
    }

    /// Contexts for a message to queue `id`, which it was admitted to.
    pub(crate) fn look_ahead_of(&self, id: u32) -> Vec<LookedUp> {
        let Some(end) = self.ends.get(&id) else { return Vec::new() };
        let Some(ring) = self.rings.get(&end.ring) else { return Vec::new() };
        let port = end.port.as_ref().unwrap_or(&ring.port);
        let mut all = vec![LookedUp::Queue(id), LookedUp::Jfc(port.number())];
        let next = ring.spare.last().map(|spare| spare.words).or_else(|| ring.cursor.next_words());
        let num = next.as_ref().map_or(0, |words| Rqe::decode(words).num);
        let pieces = next.as_ref().and_then(|words| words.get(..2 * num)).unwrap_or(&[]);
        let pieces = list(pieces).filter(|sge| sge.len != 0);
        all.extend(pieces.map(|sge| LookedUp::Segment { token_id: sge.token_id, va: sge.va }));
        all
    }

    /// Number of changes that affect checks of messages.
    #[inline]
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// The receiver of a message that was just taken, and the constant part of its completion; `None`: it is not one
    /// fixed queue.
    pub(crate) fn receiver_of(&self, header: &RequestHeader) -> Option<(FormReceiver, Cqe)> {
        let target = header.target.filter(|target| target.kind != TargetKind::JettyGroup)?;
        let end = self.ends.get(&target.id.value())?;
        let ring = self.rings.get(&end.ring)?;
        let port = Arc::clone(end.port.as_ref().unwrap_or(&ring.port));
        let CqeSource { id, is_jetty, cookie } = end.cqe_source;
        let cqe = Cqe { recv: true, is_jetty, local_id: id, user_data: cookie, ..Cqe::default() };
        Some((FormReceiver { ring: end.ring, port }, cqe))
    }

    /// Takes the next receive for a message of `len` bytes, with a completion slot; `place` copies the bytes to
    /// memory and offset. Returns the receive's index; `None`: nothing happened.
    #[inline]
    pub(crate) fn place_short(
        &mut self,
        core: &DeviceCore,
        segments: Segments<'_>,
        (receiver, len): (&FormReceiver, usize),
        place: impl FnOnce(&Region, usize) -> bool,
    ) -> Option<u16> {
        let ring = self.rings.get_mut(&receiver.ring)?;
        let port = &receiver.port;
        let goes_inline = port.inline && len <= INLINE_MAX;
        if goes_inline || ring.state != QueueState::Ready || ring.threshold != 0 {
            return None;
        }
        let piece = ring.next_piece()?;
        let cache = segments.cache.turn_to(ring.side.owner);
        let segment = cache.find(segments.table, piece.token_id)?;
        let offset = segment.offset_of(piece.va, u64::from(piece.len))?;
        if len > piece.len as usize || !segment.region.is_writable() || !port.reserve() {
            return None;
        }
        let (memory, at) = segment.memory.window(offset, len);
        if !place(memory, at) {
            give_back(core, port);
            return None;
        }
        Some(ring.cursor.consume())
    }

    /// Lends the receives of a ring to ping-pong mode; `None`: each message needs the usual checks.
    pub(crate) fn place_of(
        &self,
        receiver: &FormReceiver,
        cache: &SegmentCache,
    ) -> Option<ReceivePlace> {
        let ring = self.rings.get(&receiver.ring)?;
        let is_plain = ring.state == QueueState::Ready && ring.threshold == 0;
        if receiver.port.inline || !is_plain || !ring.spare.is_empty() {
            return None;
        }
        let known = cache.known_arc(ring.cursor.last_token_id()?);
        let segment = known.filter(|segment| segment.owner == ring.side.owner)?;
        Some(ReceivePlace::new(ring.cursor.clone(), segment))
    }

    /// Takes the receives back from ping-pong mode, with its position.
    pub(crate) fn take_back(&mut self, receiver: &FormReceiver, place: ReceivePlace) {
        if let Some(ring) = self.rings.get_mut(&receiver.ring) {
            ring.cursor = place.cursor;
        }
    }

    /// Takes a receive back whose message will not come: the next message gets it.
    pub(crate) fn give_back(&mut self, core: &DeviceCore, taken: TakenReceive) {
        if core.tables.faults.receive_kept() {
            return;
        }
        give_back(core, &taken.port);
        if let Some(ring) = self.rings.get_mut(&taken.ring) {
            ring.spare.push(Spare { entry_idx: taken.entry_idx, words: taken.words });
        }
    }

    /// The queue that receives a message: the target itself, or a member of a group.
    fn member(&mut self, ask: &Ask) -> Result<u32, ResponseStatus> {
        let member = self.next_member(ask)?;
        let is_group = ask.target.kind == TargetKind::JettyGroup;
        if is_group && let Some(group) = self.groups.get_mut(&ask.target.id.value()) {
            group.on_picked(ask, member);
        }
        Ok(member)
    }

    /// The queue that would receive a message, which has not arrived: unlike [`ReceivingSides::member`] without
    /// picking it.
    fn next_member(&self, ask: &Ask) -> Result<u32, ResponseStatus> {
        let id = ask.target.id.value();
        if ask.target.kind != TargetKind::JettyGroup {
            return Ok(id);
        }
        let Self { groups, ends, rings, .. } = self;
        let group = groups.get(&id).ok_or(ResponseStatus::NoTarget)?;
        let has_receive = |member: u32| {
            let ring = ends.get(&member).and_then(|end| rings.get(&end.ring));
            ring.is_some_and(|r| r.state == QueueState::Ready && r.left() != 0)
        };
        group.pick(ask, has_receive)
    }
}

impl ReceiveRing {
    /// Number of receives posted and not taken; an impossible index of the driver counts as none.
    fn posted(&self, core: &DeviceCore) -> u32 {
        self.cursor.posted().unwrap_or_else(|BadIndex| {
            core.tables.count(Counter::BadDoorbell);
            0
        })
    }

    /// The only piece of the next receive; `None`: it has several, or none is posted.
    #[inline]
    fn next_piece(&self) -> Option<Sge> {
        self.cursor.next_piece().filter(|_| self.spare.is_empty())
    }

    fn left(&self) -> u32 {
        self.cursor.posted().unwrap_or(0) + u32::try_from(self.spare.len()).unwrap_or(0)
    }

    /// The next receive, copied once; the caller knows that there is one.
    fn next(&mut self, core: &DeviceCore) -> Option<Spare> {
        if let Some(spare) = self.spare.pop() {
            return Some(spare);
        }
        let Some(words) = self.cursor.next_words() else {
            core.tables.count(Counter::DmaFault);
            return None;
        };
        let entry_idx = self.cursor.consume();
        Some(Spare { entry_idx, words })
    }

    /// Sends one event when fewer receives are left than the driver wants.
    fn look_at_threshold(&mut self, core: &DeviceCore) {
        if self.threshold != 0 && self.left() < self.threshold {
            self.threshold = 0;
            let kind = if self.side.is_jetty { EqeKind::JettyLimit } else { EqeKind::JfrLimit };
            core.tables.async_event(self.side.owner, kind, self.side.id);
        }
    }

    fn flush_status(&self) -> Option<CqeStatus> {
        match self.state {
            QueueState::Error => Some(CqeStatus::WrFlushErr),
            QueueState::Reset => Some(CqeStatus::WrUnhandled),
            QueueState::Ready | QueueState::Suspended => None,
        }
    }

    fn flush(&mut self, core: &DeviceCore) -> bool {
        let Some(status) = self.flush_status() else { return false };
        let mut busy = false;
        for _ in 0..FLUSH_PER_STEP {
            if (self.posted(core) == 0 && self.spare.is_empty()) || !self.side.port.reserve() {
                break;
            }
            let Some(spare) = self.next(core) else {
                give_back(core, &self.side.port);
                break;
            };
            busy = true;
            let cqe = Cqe {
                recv: true,
                is_jetty: self.side.is_jetty,
                local_id: self.side.id,
                user_data: self.side.cookie,
                entry_idx: spare.entry_idx,
                status,
                ..Cqe::default()
            };
            self.side.port.complete(&cqe, true);
            core.tables.counts.add_alone(Counter::Completions, 1);
        }
        busy
    }
}

/// Gives a slot back unused, and restarts a send queue that stopped for want of one, if any.
fn give_back(core: &DeviceCore, port: &JfcPort) {
    if port.give_back() {
        core.restart_later();
    }
}

/// The consumer side of a receive ring.
#[derive(Clone, Debug)]
pub(crate) struct ReceiveCursor {
    record: Region,
    ring: Region,
    depth_log2: u8,
    /// Length of an entry in bytes.
    stride: usize,
    /// Number of entries taken, free running.
    ci: u32,
}

/// The driver's index is impossible.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BadIndex;

impl ReceiveCursor {
    pub(crate) fn new(side: &RecvSide) -> Self {
        Self {
            record: side.record.clone(),
            ring: side.ring.clone(),
            depth_log2: side.depth_log2,
            stride: rqe::stride(usize::from(side.max_sge)),
            ci: 0,
        }
    }

    /// Number of receives posted and not taken.
    #[inline]
    pub(crate) fn posted(&self) -> Result<u32, BadIndex> {
        let pi = self.record.load_u32_acquire(record::RQ_PI).unwrap_or(self.ci);
        let posted = pi.wrapping_sub(self.ci);
        if posted <= 1 << self.depth_log2 { Ok(posted) } else { Err(BadIndex) }
    }

    /// The only piece of the next receive; `None`: it has several, or none is posted.
    #[inline]
    pub(crate) fn next_piece(&self) -> Option<Sge> {
        if self.posted().unwrap_or(0) == 0 {
            return None;
        }
        let at = self.at(self.ci);
        let piece = Sge::from_words(self.ring.load_block::<2>(at).ok()?);
        if piece.len == 0 {
            return None;
        }
        let has_more = self.stride > SGE_LEN && {
            let next = self.ring.load_block::<2>(at + SGE_LEN).ok()?;
            Sge::from_words(next).len != 0
        };
        (!has_more).then_some(piece)
    }

    /// A copy of the next entry, which is posted. `None`: it cannot be read.
    pub(crate) fn next_words(&self) -> Option<EntryWords> {
        let at = self.at(self.ci);
        let mut words = EntryWords::default();
        for (pair, offset) in words.chunks_exact_mut(2).zip((at..at + self.stride).step_by(16)) {
            pair.copy_from_slice(&self.ring.load_block::<2>(offset).ok()?);
        }
        Some(words)
    }

    /// Takes the next receive; returns its index.
    #[inline]
    pub(crate) fn consume(&mut self) -> u16 {
        let entry_idx = low16(self.ci);
        self.ci = self.ci.wrapping_add(1);
        // The record's length was checked when the queue was created.
        let _ = self.record.store_u32_release(record::RQ_CI, self.ci);
        entry_idx
    }

    /// Token id of the last receive taken: a guess at that of the next one.
    pub(crate) fn last_token_id(&self) -> Option<u32> {
        let words = self.ring.load_block::<2>(self.at(self.ci.wrapping_sub(1))).ok()?;
        Some(Sge::from_words(words).token_id)
    }

    /// Offset of an entry in the ring.
    #[inline]
    fn at(&self, index: u32) -> usize {
        (index & ((1 << self.depth_log2) - 1)) as usize * self.stride
    }
}

/// Receives of one piece each, all in one segment.
#[derive(Debug)]
pub(crate) struct ReceivePlace {
    pub(crate) cursor: ReceiveCursor,
    segment: Arc<LocalSegment>,
}

impl ReceivePlace {
    pub(crate) fn new(cursor: ReceiveCursor, segment: Arc<LocalSegment>) -> Self {
        Self { cursor, segment }
    }

    /// Memory and offset for a message of `len` bytes, if the next receive is in the segment and long enough.
    #[inline(always)]
    pub(crate) fn next_for(&self, len: usize) -> Option<(&Region, usize)> {
        let (piece, segment) = (self.cursor.next_piece()?, &*self.segment);
        let offset = segment.offset_of(piece.va, u64::from(piece.len))?;
        let is_fit = piece.token_id == segment.token_id && len <= piece.len as usize;
        debug_assert!(segment.is_live(), "its end ends the ping-pong");
        (is_fit && segment.region.is_writable()).then(|| segment.memory.window(offset, len))
    }
}

#[expect(clippy::cast_possible_truncation, reason = "entries are named modulo 2^16")]
const fn low16(index: u32) -> u16 {
    index as u16
}

/// A message that asks for a receive: its target and its source.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub(crate) target: Target,
    pub(crate) from: RawEid,
    pub(crate) initiator: Initiator,
    /// Token shown for the queue.
    pub(crate) token: Option<TokenValue>,
    pub(crate) datagram: Unsequenced,
}

/// Whether a message is outside of any sequence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unsequenced {
    Yes,
    No,
}

/// How completions name the source of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CqeSource {
    pub(crate) id: u32,
    pub(crate) is_jetty: bool,
    pub(crate) cookie: u64,
}

/// One receiving side, with its own or a shared ring.
#[derive(Debug)]
pub(crate) struct ReceivingSide {
    pub(crate) cqe_source: CqeSource,
    pub(crate) mode: Mode,
    pub(crate) state: QueueState,
    /// Queue whose ring it uses.
    pub(crate) ring: u32,
    /// Its own JFC; `None`: that of the ring.
    pub(crate) port: Option<Arc<JfcPort>>,
    token: Option<u32>,
    /// RC: node and jetty that may send to it.
    pub(crate) bound: Option<(RawEid, u32)>,
}

impl ReceivingSide {
    pub(crate) fn of_ring(side: &RecvSide) -> Self {
        Self {
            cqe_source: CqeSource { id: side.id, is_jetty: side.is_jetty, cookie: side.cookie },
            mode: side.mode,
            state: QueueState::Ready,
            ring: side.id,
            port: None,
            token: side.token,
            bound: None,
        }
    }

    pub(crate) fn of_shared(side: SharedSide) -> Self {
        Self {
            cqe_source: CqeSource { id: side.id, is_jetty: true, cookie: side.cookie },
            mode: side.mode,
            state: QueueState::Ready,
            ring: side.jfr,
            port: side.port.map(Arc::new),
            token: side.token,
            bound: None,
        }
    }

    /// Checks everything except that there is a receive.
    pub(crate) fn check(&self, ask: &Ask) -> Result<(), ResponseStatus> {
        let in_group = ask.target.kind == TargetKind::JettyGroup;
        let kind_fits =
            in_group || (ask.target.kind == TargetKind::Jetty) == self.cqe_source.is_jetty;
        if !kind_fits {
            return Err(ResponseStatus::NoTarget);
        }
        // First, before a stranger could learn anything else about the queue.
        if !in_group && !shows(self.token, ask) {
            return Err(ResponseStatus::AccessAbort);
        }
        if (self.mode == Mode::Um) != (ask.datagram == Unsequenced::Yes) {
            return Err(ResponseStatus::Unsupported);
        }
        let source = (ask.from, ask.initiator.id.value());
        let stranger = self.bound != Some(source) || ask.initiator.kind != InitiatorKind::Jetty;
        if self.mode == Mode::Rc && stranger {
            return Err(ResponseStatus::NoTarget);
        }
        match self.state {
            QueueState::Ready | QueueState::Suspended => Ok(()),
            QueueState::Error | QueueState::Reset => Err(ResponseStatus::TargetReset),
        }
    }
}

/// A group: one of several jetties takes each message.
#[derive(Debug)]
pub(crate) struct Group {
    members: Vec<u32>,
    choice: Choice,
    token: Option<u32>,
    /// Index of the member after the last one picked.
    next: usize,
}

/// How a group picks a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Choice {
    /// By the hint of the request; 0 is no hint.
    Hint,
    /// Round-robin, one after the other.
    RoundRobin,
}

impl Group {
    pub(crate) fn new(choice: Choice, token: Option<u32>) -> Self {
        Self { members: Vec::new(), choice, token, next: 0 }
    }

    pub(crate) fn join(&mut self, jetty: u32) {
        self.members.push(jetty);
    }

    pub(crate) fn leave(&mut self, jetty: u32) {
        self.members.retain(|&member| member != jetty);
    }

    /// Picks the member for a message: by hint, or the next one that has a receive (simply the next if none has).
    pub(crate) fn pick(
        &self,
        ask: &Ask,
        has_receive: impl Fn(u32) -> bool,
    ) -> Result<u32, ResponseStatus> {
        if !shows(self.token, ask) {
            return Err(ResponseStatus::AccessAbort);
        }
        let count = self.members.len();
        if count == 0 {
            return Err(ResponseStatus::NoTarget);
        }
        if self.choice == Choice::Hint && ask.target.hint != 0 {
            return Ok(self.members[usize::from(ask.target.hint) % count]);
        }
        let mut round = (0..count).map(|ahead| (self.next + ahead) % count);
        let at = round.find(|&at| has_receive(self.members[at])).unwrap_or(self.next % count);
        Ok(self.members[at])
    }

    /// Notes that the member was picked: the one after it is next.
    pub(crate) fn on_picked(&mut self, ask: &Ask, member: u32) {
        if self.choice == Choice::Hint && ask.target.hint != 0 {
            return;
        }
        if let Some(at) = self.members.iter().position(|other| *other == member) {
            self.next = (at + 1) % self.members.len();
        }
    }
}

/// Whether a request shows the token that guards a queue.
fn shows(wanted: Option<u32>, ask: &Ask) -> bool {
    fits(wanted, ask.token.map(|token| token.0))
}
