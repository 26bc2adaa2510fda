//! Registers of a device with doorbell memory: doorbells are stores to slots.
//!
//! *Owns*: which slot a queue or a JFC rings. *Takes*: the register window and the slots of the device. *Gives*: the
//! same window, whose doorbells need no register write unless the device sleeps. *Must not*: take a slot of another
//! object; if none is free, the registers are used.

use std::{cell::Cell, sync::Arc};

use udma_abi::{
    JfcIndex, QueueDoorbell, RegisterRegion, SendDoorbell,
    doorbell::JfcDoorbell,
    regs,
    slots::{SlotArm, SlotDoorbell},
    sqe::BLOCK_WORDS,
};
use urma_mem::{
    Region,
    doorbells::{DoorbellSlot, DoorbellSlots},
};

/// A register window, with slots for its doorbells.
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
