//! Doorbell memory of a device that is served to another process.
//!
//! *Owns*: the memory, and what was seen of its slots. *Takes*: stores of the driver, which may be anything. *Gives*: the
//! register writes that they stand for, which check as any register write does. *Must not*: wait.

use std::io;

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
        Ok(Self { memory, rung, arm_sns: vec![0; geometry.slots] })
    }

    /// Returns the memory, for the driver.
    #[must_use]
    pub const fn memory(&self) -> &Region {
        &self.memory
    }

    /// Passes on what rang since the last call, at most one doorbell of each slot. Returns whether there was any.
    #[inline]
    pub fn pass_on(&mut self, registers: &dyn RegisterRegion) -> bool {
        let Self { rung, arm_sns, .. } = self;
        rung.take(|slot| pass_on(slot, arm_sns, registers)) != 0
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

#[inline]
fn pass_on(rung: RungSlot, arm_sns: &mut [u8], registers: &dyn RegisterRegion) {
    match (SlotDoorbell::decode(rung.value), rung.detail) {
        (Some(SlotDoorbell::Queue { id, pi }), _) => {
            let page = regs::JETTY_PAGES + u64::from(id) * doorbell::PAGE_LEN;
            registers.write32(page + doorbell::SQ_PI, pi);
        }
        (Some(SlotDoorbell::Jfc { jfcn, ci }), None) => {
            let value = JfcDoorbell { ci, arm: None, arm_sn: 0, jfcn };
            registers.write64(regs::JFC_DB, value.encode());
        }
        (Some(SlotDoorbell::Jfc { jfcn, ci }), Some(detail)) => {
            let arm = SlotArm::decode(detail);
            let Some(last) = arm_sns.get_mut(rung.slot) else { return };
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
        assert!(served.pass_on(&written) && !served.pass_on(&written));
        let moved = JfcDoorbell { ci: 3, arm: None, arm_sn: 0, jfcn: 9 };
        let page = regs::JETTY_PAGES + 5 * doorbell::PAGE_LEN;
        let expected = vec![(page + doorbell::SQ_PI, 70_000), (regs::JFC_DB, moved.encode())];
        assert_eq!(written.take(), expected);
        queue.ring(u64::MAX, || ());
        served.pass_on(&written);
        assert!(written.take().is_empty(), "no such kind");
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
            served.pass_on(&written);
            let seen: Vec<_> =
                written.take().iter().map(|(_, word)| JfcDoorbell::decode(*word)).collect();
            let arm = seen.last().unwrap();
            assert_eq!((arm.arm, arm.arm_sn, arm.ci), (Some(CqArm::Solicited), last, 2));
            assert_eq!(seen.len(), 1 + usize::from(arms % 4 == 0), "{arms} arms");
        }
    }
}
