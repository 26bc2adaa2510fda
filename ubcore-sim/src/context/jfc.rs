//! Completion queues: slots reserved before work starts, entries written by many, events once.
//!
//! The producer side of a completion ring, by atomics alone, with one event per arm ([`urma_mem::event`] has the
//! rules, and their model). Must not overwrite an entry that the driver has not consumed, or wait.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use udma_abi::{
    Cqe, Eqe,
    cqe::CQE_WORDS,
    doorbell::{CqArm, JfcDoorbell},
    slots::{SlotArm, SlotDoorbell},
};
use urma_mem::{
    Blocks, Region,
    doorbells::{SlotGeometry, SlotWords},
    event::{ArmKind, ArmedIndices, ShownArm},
    sync::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
};

use super::{event::EventQueue, function::FunctionId, table::Lives};
use crate::hooks::{self, Hook};

/// From this depth on one reserved slot more or less does not matter.
const DEEP: u64 = 128;

/// The permanent part of a JFC number, which doorbells use.
#[derive(Debug)]
pub(crate) struct DeviceJfc {
    pub(crate) id: u32,
    pub(crate) lives: Lives,
    /// Number of the function that owns it.
    owner: AtomicU32,
    depth: AtomicU64,
    /// Entries written plus slots reserved; never more than `ci + depth`.
    claimed: AtomicU64,
    indices: ArmedIndices,
    slot: ArmSlot,
    moderate_us: AtomicU32,
    /// Set when a send queue stopped because no slot was left.
    stopped: AtomicBool,
    pub(crate) users: AtomicU32,
    eq: ArcSwapOption<EventQueue>,
    ring: ArcSwapOption<JfcRing>,
}

#[derive(Debug)]
struct JfcRing {
    entries: Blocks,
    inline: bool,
}

/// A JFC as a queue uses it: completions without a lookup.
#[derive(Clone, Debug)]
#[repr(C)]
pub(crate) struct JfcPort {
    jfc: Arc<DeviceJfc>,
    ring: Blocks,
    mask: u64,
    depth_log2: u32,
    pub(crate) inline: bool,
}

impl JfcPort {
    /// Number of its JFC.
    pub(crate) fn number(&self) -> u32 {
        self.jfc.id
    }
}

/// What a doorbell leaves to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rung {
    /// There is no event to raise.
    Quiet,
    /// Send queues that stopped for want of a slot may go on.
    Restart,
    /// The index was impossible.
    Bad,
}

impl DeviceJfc {
    pub(crate) fn new(id: u32) -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            id,
            lives: Lives::default(),
            owner: AtomicU32::new(0),
            depth: zero(),
            claimed: zero(),
            indices: ArmedIndices::default(),
            slot: ArmSlot::new(),
            moderate_us: AtomicU32::new(0),
            stopped: AtomicBool::new(false),
            users: AtomicU32::new(0),
            eq: ArcSwapOption::empty(),
            ring: ArcSwapOption::empty(),
        }
    }

    /// Starts a life of the number, for a function with or without doorbell memory; the driver zeroed the entries.
    pub(crate) fn open(
        &self,
        (owner, doorbells): (FunctionId, Option<Arc<Region>>),
        entries: Blocks,
        inline: bool,
        eq: Option<Arc<EventQueue>>,
    ) {
        self.owner.store(owner.number().into(), Ordering::SeqCst);
        self.claimed.store(0, Ordering::SeqCst);
        self.indices.reset();
        self.depth.store(u64::from(entries.mask()) + 1, Ordering::SeqCst);
        self.slot.open(doorbells);
        self.stopped.store(false, Ordering::SeqCst);
        self.set_moderation(0, 0);
        self.users.store(0, Ordering::SeqCst);
        if let Some(eq) = &eq {
            eq.users.fetch_add(1, Ordering::SeqCst);
        }
        self.eq.store(eq);
        self.ring.store(Some(Arc::new(JfcRing { entries, inline })));
        self.lives.begin();
    }

    /// Whether this function owns it.
    pub(crate) fn is_of(&self, owner: FunctionId) -> bool {
        self.owner.load(Ordering::SeqCst) == u32::from(owner.number())
    }

    /// Ends the life; no queue may hold a port (`users` is 0).
    pub(crate) fn close(&self) {
        self.lives.end();
        if let Some(eq) = self.eq.swap(None) {
            eq.users.fetch_sub(1, Ordering::SeqCst);
        }
        self.slot.open(None);
        self.ring.store(None);
    }

    pub(crate) fn set_moderation(&self, count: u32, period_us: u32) {
        self.indices.moderate(count);
        self.moderate_us.store(period_us, Ordering::SeqCst);
    }

    /// A port for a queue; `None`: the JFC is not alive.
    pub(crate) fn port(self: &Arc<Self>) -> Option<JfcPort> {
        let ring = self.ring.load_full()?;
        let depth = self.depth.load(Ordering::SeqCst);
        let depth_log2 = depth.trailing_zeros();
        Some(JfcPort {
            jfc: Arc::clone(self),
            ring: ring.entries.clone(),
            mask: depth - 1,
            depth_log2,
            inline: ring.inline,
        })
    }

    /// Takes the consumer index from the doorbell of the JFC.
    #[inline]
    pub(crate) fn on_doorbell(&self, db: JfcDoorbell) -> Rung {
        let consumed = self.on_consumed(db.ci);
        if let Some(arm) = db.arm.filter(|_| consumed != Rung::Bad)
            && self.indices.arm(kind_of(arm), db.arm_sn)
        {
            self.raise();
        }
        consumed
    }

    /// Takes the consumer index, of which the low 24 bits count.
    #[inline]
    pub(crate) fn on_consumed(&self, ci: u32) -> Rung {
        let before = self.indices.consumed();
        #[expect(clippy::cast_possible_truncation, reason = "an index of 24 bits")]
        let moved = u64::from(ci.wrapping_sub(before as u32) & 0x00ff_ffff);
        if before + moved > self.indices.produced() {
            return Rung::Bad;
        }
        if moved == 0 {
            return Rung::Quiet;
        }
        // Before reading the flag: the thread that sets it reads the index afterwards.
        self.indices.consume(before + moved);
        if self.stopped.load(Ordering::SeqCst) {
            self.stopped.store(false, Ordering::SeqCst);
            return Rung::Restart;
        }
        Rung::Quiet
    }

    /// Takes a doorbell from slot `slot` of the owner's doorbell memory; `is_new`: it also has a new arm.
    pub(crate) fn on_slot(&self, slot: usize, shown: ShownArm, is_new: bool) -> Rung {
        if self.slot.is_other(slot) {
            // Before the slot is known: from then on completions read its arms.
            self.indices.expect_slot(shown.count.wrapping_sub(u32::from(is_new)));
            self.slot.set(slot);
        }
        let consumed = self.on_consumed(shown.ci);
        if consumed != Rung::Bad && self.indices.arm_shown(shown) {
            self.raise();
        }
        consumed
    }

    /// Writes the event that is due.
    #[cold]
    fn raise(&self) {
        if let Some(eq) = self.eq.load().as_ref() {
            self.indices.raise(eq.writer(), |at| eq.write(at, Eqe::Completion { jfcn: self.id }));
        }
    }

    /// Writes the event that a full event queue refused, if it has room now.
    pub(crate) fn push_pending(&self) {
        if let Some(eq) = self.eq.load().as_ref() {
            let write = |at| eq.write(at, Eqe::Completion { jfcn: self.id });
            self.indices.raise_pending(eq.writer(), write);
        }
    }

    pub(crate) fn uses(&self, eq: &Arc<EventQueue>) -> bool {
        self.eq.load().as_ref().is_some_and(|mine| Arc::ptr_eq(mine, eq))
    }

    /// Fires an armed JFC whose moderation period is over, if anything completed.
    pub(crate) fn on_period(&self) {
        if self.indices.fire_if_any() {
            self.raise();
        }
    }

    /// Microseconds after which an armed JFC with completions fires although there are fewer than the count; `None`:
    /// there is nothing to wait for.
    pub(crate) fn period_us(&self) -> Option<u32> {
        let us = self.moderate_us.load(Ordering::Relaxed);
        (us != 0 && self.indices.is_waiting()).then_some(us)
    }
}

impl JfcPort {
    pub(crate) fn jfc(&self) -> &Arc<DeviceJfc> {
        &self.jfc
    }

    /// Reserves a slot; `false` when the queue has none.
    #[inline]
    pub(crate) fn reserve(&self) -> bool {
        let jfc = &*self.jfc;
        let claimed = jfc.claimed.fetch_add(1, Ordering::SeqCst);
        if claimed - jfc.indices.consumed() <= self.mask {
            return true;
        }
        jfc.claimed.fetch_sub(1, Ordering::SeqCst);
        false
    }

    /// Whether a completion may be passed to a poll of JFC `jfcn` directly. All entries before `next` are consumed:
    /// no entry must be waiting, and an entry would wake no thread.
    #[inline(always)]
    pub(crate) fn may_give(&self, jfcn: u32, next: u32) -> bool {
        let jfc = &*self.jfc;
        jfc.id == jfcn && self.next_index() == next && jfc.indices.is_unarmed()
    }

    /// Reserves a slot, or sets the flag that a sender waits for one.
    #[cold]
    pub(crate) fn reserve_or_stop(&self) -> bool {
        self.jfc.stopped.store(true, Ordering::SeqCst);
        // The consumer may have moved before it could see the flag.
        self.reserve()
    }

    /// Index of the next entry, free running.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "indices are modulo 2^32")]
    pub(crate) fn next_index(&self) -> u32 {
        self.jfc.indices.produced() as u32
    }

    /// Whether a queue may keep a reserved slot between two requests.
    pub(crate) fn is_deep(&self) -> bool {
        self.mask >= DEEP - 1
    }

    /// Whether less than half of the entries are written and not consumed, or reserved.
    #[inline]
    pub(crate) fn is_roomy(&self) -> bool {
        let ci = self.jfc.indices.consumed();
        // Read at different times, the difference may be anything: then there is no room.
        self.jfc.claimed.load(Ordering::Relaxed).wrapping_sub(ci) <= self.mask / 2
    }

    /// Slots that are reserved and not written.
    #[cfg(test)]
    pub(crate) fn reserved(&self) -> u64 {
        self.jfc.claimed.load(Ordering::SeqCst) - self.jfc.indices.produced()
    }

    /// Gives a reserved slot back unused. Returns whether send queues stopped for want of one: the caller then
    /// restarts them (`DeviceCore::restart_later`).
    #[inline]
    #[must_use]
    pub(crate) fn give_back(&self) -> bool {
        // Before reading the flag: the thread that sets it tries for this slot afterwards.
        self.jfc.claimed.fetch_sub(1, Ordering::SeqCst);
        self.jfc.stopped.load(Ordering::SeqCst) && self.jfc.stopped.swap(false, Ordering::SeqCst)
    }

    /// Writes an entry into a reserved slot: body, then the word with the owner bit.
    #[inline]
    pub(crate) fn complete(&self, cqe: &Cqe, solicited: bool) {
        self.complete_with(solicited, |owner| cqe.encode(owner));
    }

    /// Writes an entry that `encode` makes for its owner bit into a reserved slot; the general form of
    /// [`JfcPort::complete`].
    #[inline(always)]
    pub(crate) fn complete_with(
        &self,
        solicited: bool,
        encode: impl FnOnce(bool) -> [u64; CQE_WORDS],
    ) {
        let jfc = &*self.jfc;
        let at = jfc.indices.take_index(solicited);
        let owner = (at >> self.depth_log2) & 1 == 0;
        let words = encode(owner);
        #[expect(clippy::cast_possible_truncation, reason = "the ring takes it modulo its depth")]
        let index = at as u32;
        if cfg!(feature = "fault-hooks") {
            let mut body = words;
            body[0] = u64::from(!owner) << 2;
            let _ = self.ring.store(index, &body);
            hooks::pass(Hook::CqeBodyNoOwner);
        }
        // The device writes to the ring: that was checked when the JFC was created.
        let _ = self.ring.store_first_last(index, &words);
        if !jfc.indices.is_unarmed() {
            self.after_armed(at, solicited);
        }
    }

    #[cold]
    fn after_armed(&self, at: u64, solicited: bool) {
        let jfc = &*self.jfc;
        if jfc.indices.is_event_due((at, solicited), || jfc.slot.read(jfc.id)) {
            jfc.raise();
        }
    }
}

/// No slot of the memory.
const NO_SLOT: usize = usize::MAX;

/// Slot of a JFC in the doorbell memory of its function, if there is one.
///
/// It has the arms that the driver stored and that no register write has brought. Its words are not trusted, and the
/// memory of another function is never read.
#[derive(Debug)]
pub(crate) struct ArmSlot {
    memory: ArcSwapOption<Region>,
    slot: AtomicUsize,
}

impl ArmSlot {
    pub(crate) fn new() -> Self {
        Self { memory: ArcSwapOption::empty(), slot: AtomicUsize::new(NO_SLOT) }
    }

    /// Starts the life of a JFC, with the doorbell memory of its function.
    pub(crate) fn open(&self, memory: Option<Arc<Region>>) {
        self.slot.store(NO_SLOT, Ordering::SeqCst);
        self.memory.store(memory);
    }

    /// Whether `slot` is not the one of the JFC.
    pub(crate) fn is_other(&self, slot: usize) -> bool {
        self.slot.load(Ordering::SeqCst) != slot
    }

    /// Notes that the JFC rang by this slot.
    pub(crate) fn set(&self, slot: usize) {
        self.slot.store(slot, Ordering::SeqCst);
    }

    /// Reads the slot of a JFC. `None`: there is none, or it names another object.
    pub(crate) fn read(&self, jfcn: u32) -> Option<ShownArm> {
        let memory = self.memory.load();
        let slot = self.slot.load(Ordering::SeqCst);
        let words = SlotWords::read(&**memory.as_ref()?, SlotGeometry::DEVICE, slot)?;
        match SlotDoorbell::decode(words.value) {
            Some(SlotDoorbell::Jfc { jfcn: named, ci }) if named == jfcn => {
                Some(shown_arm(words.count, words.detail, ci))
            }
            _ => None,
        }
    }
}

/// The arm in a slot with this count and detail.
pub(crate) fn shown_arm(count: u32, detail: u32, ci: u32) -> ShownArm {
    ShownArm { count, kind: kind_of(SlotArm::decode(detail).arm), ci }
}

/// The kind of arm that a register or slot encodes.
pub(crate) const fn kind_of(arm: CqArm) -> ArmKind {
    match arm {
        CqArm::Any => ArmKind::Any,
        CqArm::Solicited => ArmKind::Solicited,
    }
}
