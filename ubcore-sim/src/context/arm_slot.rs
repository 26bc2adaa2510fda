//! The doorbell slot of a JFC: arms that its driver stored, and that no register write has brought.
//!
//! *Owns*: the doorbell memory of the JFC's function, and which slot is the JFC's. *Takes*: the slot by which the JFC
//! rang. *Gives*: the newest arm and consumer index. *Must not*: wait; trust a word of the memory; read that of
//! another function.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use udma_abi::{
    doorbell::CqArm,
    slots::{SlotArm, SlotDoorbell},
};
use urma_mem::{
    Region,
    doorbells::{SlotGeometry, SlotWords},
    event::{ArmKind, ShownArm},
    sync::{AtomicUsize, Ordering},
};

/// No slot of the memory.
const NO_SLOT: usize = usize::MAX;

/// Slot of a JFC in the doorbell memory of its function, if there is one.
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
