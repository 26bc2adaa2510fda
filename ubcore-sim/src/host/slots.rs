//! Doorbell memory of a device that is served to another process.
//!
//! *Owns*: the memory, and what was seen of its slots. *Takes*: stores of the driver, which may be anything. *Gives*: what
//! each slot rang with, once. *Must not*: wait.
//!
//! Doorbells of several drivers are taken one memory after the other, so a request of one could overtake the consumer index
//! that another driver stored before it, and find its JFC full. Doorbells of queues are therefore held until all memories were looked
//! at once more. An arm needs no hold: completions look for it in its slot (`context/arm_slot.rs`).

use std::{collections::VecDeque, io};

use udma_abi::{
    RegisterRegion, regs,
    slots::{SLOT_LEN, SlotDoorbell},
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
    /// Doorbells of queues that are not passed on yet. At most two for each slot.
    held: VecDeque<RungSlot>,
}

impl ServedSlots {
    /// New memory, of a file that is sealed against shrinking.
    ///
    /// # Errors
    /// No memory or no descriptors.
    pub fn new() -> io::Result<Self> {
        let memory = Region::shared(SLOT_LEN, Pages::Base)?;
        let rung =
            RungSlots::new(memory.clone(), SlotGeometry::DEVICE).map_err(io::Error::other)?;
        Ok(Self { memory, rung, held: VecDeque::new() })
    }

    /// Returns the memory, for the driver.
    #[must_use]
    pub const fn memory(&self) -> &Region {
        &self.memory
    }

    /// Takes what rang since the last call, at most one doorbell of each slot. Gives `ring` those of JFCs, and then the doorbells of
    /// queues that earlier calls took.
    #[inline]
    pub fn look(&mut self, mut ring: impl FnMut(RungSlot)) -> SlotLook {
        let due = self.held.len();
        self.rung.take(|slot| match SlotDoorbell::decode(slot.value) {
            Some(SlotDoorbell::Queue { .. }) => self.held.push_back(slot),
            Some(SlotDoorbell::Jfc { .. }) => ring(slot),
            None => {}
        });
        self.held.drain(..due).for_each(ring);
        match (due, self.held.is_empty()) {
            (0, true) => SlotLook::Quiet,
            (0, false) => SlotLook::Held,
            _ => SlotLook::Posted,
        }
    }

    /// As [`ServedSlots::look`], and holds nothing.
    pub fn pass_all(&mut self, mut ring: impl FnMut(RungSlot)) -> SlotLook {
        let look = self.look(&mut ring);
        self.held.drain(..).for_each(ring);
        if look == SlotLook::Held { SlotLook::Posted } else { look }
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use urma_mem::doorbells::DoorbellSlots;

    use super::*;

    #[test]
    fn a_doorbell_of_a_queue_is_held_for_one_look_and_one_of_a_jfc_is_not() {
        let mut served = ServedSlots::new().unwrap();
        let slots = DoorbellSlots::new(served.memory().clone(), SlotGeometry::DEVICE).unwrap();
        let slots = Arc::new(slots);
        let (queue, jfc) = (slots.take().unwrap(), slots.take().unwrap());
        let post = |pi| queue.ring(SlotDoorbell::Queue { id: 5, pi }.encode(), || ());
        let look = |served: &mut ServedSlots| {
            let mut rung = Vec::new();
            let look = served.look(|slot| rung.push(SlotDoorbell::decode(slot.value).unwrap()));
            (look, rung)
        };
        post(70_000);
        let moved = SlotDoorbell::Jfc { jfcn: 9, ci: 3 };
        jfc.ring(moved.encode(), || ());
        assert_eq!(look(&mut served), (SlotLook::Held, vec![moved]));
        // The queue's later doorbell waits for the look after.
        post(70_001);
        for pi in [70_000, 70_001] {
            let posted = vec![SlotDoorbell::Queue { id: 5, pi }];
            assert_eq!(look(&mut served), (SlotLook::Posted, posted));
        }
        queue.ring(u64::MAX, || ());
        assert_eq!(look(&mut served), (SlotLook::Quiet, vec![]), "no such kind");
        post(70_002);
        let mut all = Vec::new();
        assert_eq!(served.pass_all(|slot| all.push(slot.value)), SlotLook::Posted);
        assert_eq!(all, [SlotDoorbell::Queue { id: 5, pi: 70_002 }.encode()]);
    }
}
