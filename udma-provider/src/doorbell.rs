//! Doorbells: the only register writes of the data path, or stores to slots where the device has doorbell memory.
//!
//! A batch rings once. A device in this process may execute a single request within the call; then nothing is stored
//! in the ring.

use std::{cell::Cell, sync::Arc};

use udma_abi::{
    CompletionBy, DirectEntry, JfcIndex, NextEntry, QueueDoorbell, RegisterRegion, RepeatForm,
    SendDoorbell,
    doorbell::{self, CqArm, JfcDoorbell},
    regs,
    slots::{SlotArm, SlotDoorbell},
    sqe::BLOCK_WORDS,
};
use urma_mem::{
    Region, barrier,
    doorbells::{DoorbellSlot, DoorbellSlots},
    lines::UsedLines,
    sync::{AtomicBool, Ordering},
};

/// The send doorbell of one queue: the backing's faster one if it has that, else the queue's page in the register
/// window.
#[derive(Debug)]
pub(crate) struct SqDoorbell(Box<dyn QueueDoorbell>);

/// A queue's page in the register window, which executes nothing.
#[derive(Debug)]
struct DoorbellPage {
    regs: Arc<dyn RegisterRegion>,
    page: u64,
}

impl QueueDoorbell for DoorbellPage {
    fn ring(&self, posted: SendDoorbell<'_>) {
        match posted {
            SendDoorbell::Producer(pi) => self.regs.write32(self.page + doorbell::SQ_PI, pi),
            SendDoorbell::Direct(block) => {
                self.regs.write_block(self.page + doorbell::DWQE, block);
                barrier::flush_wc();
            }
        }
    }
}

impl SqDoorbell {
    /// Doorbell of queue `id`, 20 bits, which exists.
    pub(crate) fn new(regs: Arc<dyn RegisterRegion>, id: u32) -> Self {
        let page = regs::JETTY_PAGES + u64::from(id) * doorbell::PAGE_LEN;
        let found = regs.queue_doorbell(id);
        Self(found.unwrap_or_else(|| Box::new(DoorbellPage { regs, page })))
    }

    /// Records in `lines` what the device touches, as [`QueueDoorbell::note_lines`] describes.
    pub(crate) fn note_lines(&self, lines: &UsedLines) {
        self.0.note_lines(lines);
    }

    /// Rings, after everything that was stored in the ring.
    #[inline]
    pub(crate) fn ring(&self, posted: SendDoorbell<'_>) {
        barrier::to_device();
        self.0.ring(posted);
    }

    /// Passes an entry that is not stored in the ring ([`QueueDoorbell::execute`]).
    #[inline(always)]
    pub(crate) fn execute(&self, entry: DirectEntry<'_>) -> Option<NextEntry> {
        barrier::to_device();
        self.0.execute(entry)
    }

    /// Passes what differs between a request and the last one ([`QueueDoorbell::repeat`]).
    #[inline(always)]
    pub(crate) fn repeat(
        &self,
        pi: u32,
        (remote, local, len): (u64, u64, u32),
        by: CompletionBy,
    ) -> Option<NextEntry> {
        barrier::to_device();
        self.0.repeat(pi, remote, local, RepeatForm::new(len, by))
    }
}

/// The JFC doorbell register.
#[derive(Debug)]
pub(crate) struct CqDoorbell {
    regs: Arc<dyn RegisterRegion>,
    jfcn: u32,
    /// The backing's faster way to it, if it has one.
    index: Option<Box<dyn JfcIndex>>,
}

impl CqDoorbell {
    /// Doorbell of JFC `jfcn`, 20 bits, which exists.
    pub(crate) fn new(regs: Arc<dyn RegisterRegion>, jfcn: u32) -> Self {
        Self { index: regs.jfc_index(jfcn), regs, jfcn }
    }

    /// Moves the consumer index, unless the device failed: its registers may belong to a successor by now.
    #[inline]
    pub(crate) fn consume(&self, ci: u32, arm_sn: u8, failed: &AtomicBool) {
        match &self.index {
            Some(index) => index.move_to(ci),
            None if failed.load(Ordering::Relaxed) => {}
            None => {
                let value = JfcDoorbell { ci, arm: None, arm_sn, jfcn: self.jfcn };
                self.regs.write64(regs::JFC_DB, value.encode());
            }
        }
    }

    /// Moves the consumer index, and arms.
    pub(crate) fn arm(&self, ci: u32, arm: CqArm, arm_sn: u8) {
        let value = JfcDoorbell { ci, arm: Some(arm), arm_sn, jfcn: self.jfcn };
        if !self.index.as_ref().is_some_and(|index| index.arm(value)) {
            self.regs.write64(regs::JFC_DB, value.encode());
        }
    }
}

/// Consumer index of event queue `eqn`.
pub(crate) fn ring_eq(regs: &dyn RegisterRegion, eqn: u32, ci: u32) {
    regs.write64(regs::EQ_CI, u64::from(eqn) << 32 | u64::from(ci));
}

/// A register window, with slots for its doorbells.
///
/// They need no register write unless the device sleeps. A slot of another object is never taken; if none is free,
/// the registers are used.
#[derive(Debug)]
pub(crate) struct SlotRegisters {
    regs: Arc<dyn RegisterRegion>,
    slots: Arc<DoorbellSlots>,
}

impl SlotRegisters {
    /// Wraps `regs`, with slots if the device has doorbell memory.
    pub(crate) fn over(
        regs: Arc<dyn RegisterRegion>,
        slots: Option<Arc<DoorbellSlots>>,
    ) -> Arc<dyn RegisterRegion> {
        match slots {
            Some(slots) => Arc::new(Self { regs, slots }),
            None => regs,
        }
    }

    fn take(&self) -> Option<OwnSlot> {
        Some(OwnSlot { slot: self.slots.take()?, regs: Arc::clone(&self.regs) })
    }
}

impl RegisterRegion for SlotRegisters {
    fn len(&self) -> u64 {
        self.regs.len()
    }

    fn read(&self, offset: u64) -> u64 {
        self.regs.read(offset)
    }

    fn write32(&self, offset: u64, value: u32) {
        self.regs.write32(offset, value);
    }

    fn write64(&self, offset: u64, value: u64) {
        self.regs.write64(offset, value);
    }

    fn write_block(&self, offset: u64, words: &[u64; BLOCK_WORDS]) {
        self.regs.write_block(offset, words);
    }

    fn prepare(&self, offset: u64, len: u64) {
        self.regs.prepare(offset, len);
    }

    fn queue_doorbell(&self, id: u32) -> Option<Box<dyn QueueDoorbell>> {
        let slot = self.take()?;
        Some(Box::new(SlotQueue { slot, id, pi: Cell::new(0) }))
    }

    fn jfc_index(&self, jfcn: u32) -> Option<Box<dyn JfcIndex>> {
        let index = SlotJfcIndex { slot: self.take()?, jfcn };
        // Before a queue completes there: completions check the slot for arms.
        index.move_to(0);
        Some(Box::new(index))
    }

    fn map(&self, offset: u64, len: u64) -> Option<Region> {
        self.regs.map(offset, len)
    }
}

#[derive(Debug)]
struct OwnSlot {
    slot: DoorbellSlot,
    regs: Arc<dyn RegisterRegion>,
}

impl OwnSlot {
    #[inline]
    fn ring(&self, value: SlotDoorbell) {
        self.slot.ring(value.encode(), || self.wake());
    }

    /// One message, because the device sleeps.
    #[cold]
    fn wake(&self) {
        self.regs.write32(regs::SLOT_WAKE, 1);
    }
}

/// Send doorbell of one queue; it executes nothing in its call.
#[derive(Debug)]
struct SlotQueue {
    slot: OwnSlot,
    id: u32,
    /// Producer index of the last doorbell.
    pi: Cell<u32>,
}

impl QueueDoorbell for SlotQueue {
    fn ring(&self, posted: SendDoorbell<'_>) {
        let pi = match posted {
            SendDoorbell::Producer(pi) => pi,
            // The block is in the ring too, and is the only one since the last doorbell.
            SendDoorbell::Direct(_) => self.pi.get().wrapping_add(1),
        };
        self.pi.set(pi);
        self.slot.ring(SlotDoorbell::Queue { id: self.id, pi });
    }
}

/// Consumer index of one JFC, and its arms.
#[derive(Debug)]
struct SlotJfcIndex {
    slot: OwnSlot,
    jfcn: u32,
}

impl JfcIndex for SlotJfcIndex {
    fn move_to(&self, ci: u32) {
        self.slot.ring(SlotDoorbell::Jfc { jfcn: self.jfcn, ci });
    }

    fn arm(&self, doorbell: JfcDoorbell) -> bool {
        let JfcDoorbell { ci, arm: Some(arm), arm_sn, jfcn } = doorbell else { return false };
        let detail = SlotArm { arm, arm_sn }.encode();
        let value = SlotDoorbell::Jfc { jfcn, ci }.encode();
        self.slot.slot.ring_counted(value, detail, || self.slot.wake());
        true
    }
}
