//! Doorbell memory of a device that is served to another process.
//!
//! *Owns*: the memory, and what was seen of its slots. *Takes*: stores of the driver, which may be anything. *Gives*: the
//! register writes that they stand for, which check as any register write does. *Must not*: wait.
//!
//! Doorbells of several drivers are taken one memory after the other, so a request of one could overtake the request for an
//! event that another driver made before it. Doorbells of queues are therefore held until all memories were looked at once more.

use std::{collections::VecDeque, io};

use udma_abi::{
    RegisterRegion, doorbell,
    doorbell::JfcDoorbell,
    regs,
    slots::{SLOT_LEN, SlotArm, SlotDoorbell},
};
use urma_mem::{
    Pages, Region,
    doorbells::{RungSlot, RungSlots, SlotGeometry},
    sleep::SleepResult,
};

/// Doorbell memory, seen by the device.
#[derive(Debug)]
pub struct ServedSlots {
    memory: Region,
    rung: RungSlots,
    /// Number of the last arm of each slot, as the JFC got it.
    arm_sns: Vec<u8>,
    /// Doorbells of queues that are not passed on yet: queue and producer index. At most two for each slot.
    held: VecDeque<(u32, u32)>,
}

impl ServedSlots {
    /// New memory, of a file that is sealed against shrinking.
    ///
    /// # Errors
    /// No memory or no descriptors.
    pub fn new() -> io::Result<Self> {
        let memory = Region::shared(SLOT_LEN, Pages::Base)?;
        let geometry = SlotGeometry::DEVICE;
        let rung = RungSlots::new(memory.clone(), geometry).map_err(io::Error::other)?;
        Ok(Self { memory, rung, arm_sns: vec![0; geometry.slots], held: VecDeque::new() })
    }

    /// Returns the memory, for the driver.
    #[must_use]
    pub const fn memory(&self) -> &Region {
        &self.memory
    }

    /// Takes what rang since the last call, at most one doorbell of each slot. Passes on those of JFCs, and the doorbells of queues
    /// that earlier calls took.
    #[inline]
    pub fn look(&mut self, registers: &dyn RegisterRegion) -> SlotLook {
        let Self { rung, arm_sns, held, .. } = self;
        let due = held.len();
        rung.take(|slot| held.extend(pass_on(slot, arm_sns, registers)));
        self.pass_held(registers, due);
        match (due, self.held.is_empty()) {
            (0, true) => SlotLook::Quiet,
            (0, false) => SlotLook::Held,
            _ => SlotLook::Posted,
        }
    }

    /// Passes on all that rang.
    pub fn pass_all(&mut self, registers: &dyn RegisterRegion) {
        self.look(registers);
        self.pass_held(registers, self.held.len());
    }

    #[inline]
    fn pass_held(&mut self, registers: &dyn RegisterRegion, count: usize) {
        for (id, pi) in self.held.drain(..count) {
            let page = regs::JETTY_PAGES + u64::from(id) * doorbell::PAGE_LEN;
            registers.write32(page + doorbell::SQ_PI, pi);
        }
    }

    /// Shows the driver the register STATUS.
    pub fn show_status(&self, registers: &dyn RegisterRegion) {
        self.rung.show_status(registers.read(regs::STATUS));
    }

    /// Says that the device sleeps, unless a slot rang: the driver then writes [`regs::SLOT_WAKE`].
    pub fn announce_sleep(&self) -> SleepResult {
        self.rung.announce_sleep()
    }

    /// Says that the device looks at the slots by itself.
    pub fn announce_awake(&self) {
        self.rung.announce_awake();
    }
}

/// What a look at the slots found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SlotLook {
    /// No queue rang, and none is held.
    Quiet,
    /// Queues, which the next look passes on.
    Held,
    /// Queues of an earlier look, which were passed on.
    Posted,
}

/// Passes on the doorbell of a JFC; returns that of a queue.
#[inline]
fn pass_on(
    rung: RungSlot,
    arm_sns: &mut [u8],
    registers: &dyn RegisterRegion,
) -> Option<(u32, u32)> {
    match (SlotDoorbell::decode(rung.value), rung.detail) {
        (Some(SlotDoorbell::Queue { id, pi }), _) => return Some((id, pi)),
        (Some(SlotDoorbell::Jfc { jfcn, ci }), None) => {
            let value = JfcDoorbell { ci, arm: None, arm_sn: 0, jfcn };
            registers.write64(regs::JFC_DB, value.encode());
        }
        (Some(SlotDoorbell::Jfc { jfcn, ci }), Some(detail)) => {
            let arm = SlotArm::decode(detail);
            let last = arm_sns.get_mut(rung.slot)?;
            if *last == arm.arm_sn {
                // Others came in between, as many as the number has values, or another JFC had the slot: the number is to
                // be another one than before.
                let other = SlotArm { arm_sn: arm.arm_sn.wrapping_sub(1) & 3, ..arm };
                registers.write64(regs::JFC_DB, other.at(jfcn, ci).encode());
            }
            *last = arm.arm_sn;
            registers.write64(regs::JFC_DB, arm.at(jfcn, ci).encode());
        }
        (None, _) => {}
    }
    None
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use udma_abi::doorbell::CqArm;
    use urma_mem::doorbells::DoorbellSlots;

    use super::*;

    /// Register writes, as offset and value.
    #[derive(Debug, Default)]
    struct Written(Mutex<Vec<(u64, u64)>>);

    impl Written {
        fn take(&self) -> Vec<(u64, u64)> {
            std::mem::take(&mut *self.0.lock().unwrap())
        }
    }

    impl RegisterRegion for Written {
        fn len(&self) -> u64 {
            regs::BAR_LEN
        }

        fn read(&self, offset: u64) -> u64 {
            offset
        }

        fn write32(&self, offset: u64, value: u32) {
            self.0.lock().unwrap().push((offset, value.into()));
        }

        fn write64(&self, offset: u64, value: u64) {
            self.0.lock().unwrap().push((offset, value));
        }

        fn write_block(&self, _: u64, _: &[u64; 8]) {}
    }

    #[test]
    fn a_slot_is_the_register_write_that_it_stands_for() {
        let mut served = ServedSlots::new().unwrap();
        let slots = DoorbellSlots::new(served.memory().clone(), SlotGeometry::DEVICE).unwrap();
        let (slots, written) = (Arc::new(slots), Written::default());
        let (queue, jfc) = (slots.take().unwrap(), slots.take().unwrap());
        queue.ring(SlotDoorbell::Queue { id: 5, pi: 70_000 }.encode(), || ());
        jfc.ring(SlotDoorbell::Jfc { jfcn: 9, ci: 3 }.encode(), || ());
        assert_eq!(served.look(&written), SlotLook::Held);
        let moved = JfcDoorbell { ci: 3, arm: None, arm_sn: 0, jfcn: 9 };
        assert_eq!(written.take(), [(regs::JFC_DB, moved.encode())]);
        // The queue's later doorbell waits for the look after.
        queue.ring(SlotDoorbell::Queue { id: 5, pi: 70_001 }.encode(), || ());
        let page = regs::JETTY_PAGES + 5 * doorbell::PAGE_LEN;
        let posted = |pi| [(page + doorbell::SQ_PI, pi)];
        for pi in [70_000, 70_001] {
            assert_eq!(served.look(&written), SlotLook::Posted);
            assert_eq!(written.take(), posted(pi));
        }
        assert_eq!(served.look(&written), SlotLook::Quiet);
        queue.ring(u64::MAX, || ());
        served.look(&written);
        assert!(written.take().is_empty(), "no such kind");
        queue.ring(SlotDoorbell::Queue { id: 5, pi: 70_002 }.encode(), || ());
        served.pass_all(&written);
        assert_eq!(written.take(), posted(70_002));
        served.show_status(&written);
        assert_eq!(slots.status(), regs::STATUS);
    }

    #[test]
    fn an_arm_is_none_that_the_jfc_takes_for_the_one_before() {
        let mut served = ServedSlots::new().unwrap();
        let slots = DoorbellSlots::new(served.memory().clone(), SlotGeometry::DEVICE).unwrap();
        let (slots, written) = (Arc::new(slots), Written::default());
        let jfc = slots.take().unwrap();
        let mut last = 0;
        for arms in [1, 2, 3, 4, 5, 8, 4] {
            for _ in 0..arms {
                let arm = SlotArm { arm: CqArm::Solicited, arm_sn: (last + 1) & 3 };
                last = arm.arm_sn;
                jfc.ring_counted(
                    SlotDoorbell::Jfc { jfcn: 9, ci: 1 }.encode(),
                    arm.encode(),
                    || (),
                );
            }
            jfc.ring(SlotDoorbell::Jfc { jfcn: 9, ci: 2 }.encode(), || ());
            served.look(&written);
            let seen: Vec<_> =
                written.take().iter().map(|(_, word)| JfcDoorbell::decode(*word)).collect();
            let arm = seen.last().unwrap();
            assert_eq!((arm.arm, arm.arm_sn, arm.ci), (Some(CqArm::Solicited), last, 2));
            assert_eq!(seen.len(), 1 + usize::from(arms % 4 == 0), "{arms} arms");
        }
    }
}
