//! Doorbell memory of a device that is served to another process.
//!
//! *Owns*: the memory, and what was seen of its slots. *Takes*: stores of the driver, which may be anything. *Gives*:
//! each doorbell once. *Must not*: wait.
//!
//! The doorbells of several drivers are taken one memory after the other. So a request in one could overtake the
//! consumer index that another driver stored before it, and find its JFC full. Doorbells of queues are therefore held
//! until all memories were read once more. An arm need not be held: completions look for it in its slot
//! (`context/jfc.rs`).

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
    /// Doorbells of queues that are not passed on yet; at most two per slot.
    held: VecDeque<RungSlot>,
}

impl ServedSlots {
    /// Creates the memory, in a file that is sealed against shrinking.
    ///
    /// # Errors
    /// No memory or no descriptors.
    pub fn new() -> io::Result<Self> {
        let memory = Region::shared(SLOT_LEN, Pages::Base)?;
        let rung =
            RungSlots::new(memory.clone(), SlotGeometry::DEVICE).map_err(io::Error::other)?;
        Ok(Self { memory, rung, held: VecDeque::new() })
    }

    /// Returns the memory, to be given to the driver.
    #[must_use]
    pub const fn memory(&self) -> &Region {
        &self.memory
    }

    /// Takes the doorbells since the last call, at most one per slot. Passes those of JFCs to `ring`, and then those
    /// of queues that earlier calls took.
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

    /// Takes the doorbells as [`ServedSlots::look`] does, but passes those of queues on at once.
    pub fn pass_all(&mut self, mut ring: impl FnMut(RungSlot)) -> SlotLook {
        let look = self.look(&mut ring);
        self.held.drain(..).for_each(ring);
        if look == SlotLook::Held { SlotLook::Posted } else { look }
    }

    /// Shows the driver the register STATUS.
    pub fn show_status(&self, registers: &dyn RegisterRegion) {
        self.rung.show_status(registers.read(regs::STATUS));
    }

    /// Announces that the device sleeps, unless a slot rang: the driver then writes [`regs::SLOT_WAKE`].
    pub fn announce_sleep(&self) -> SleepResult {
        self.rung.announce_sleep()
    }

    /// Announces that the device reads the slots by itself.
    pub fn announce_awake(&self) {
        self.rung.announce_awake();
    }
}

/// Result of reading the slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SlotLook {
    /// No queue rang, and none is held.
    Quiet,
    /// Queues rang, which the next call passes on.
    Held,
    /// Queues of an earlier call were passed on.
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
