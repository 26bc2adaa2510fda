//! Doorbells in shared memory: what the words of a slot say.
//!
//! *Owns*: the values of slots, and the window that has them. Where slots lie and in which order they are
//! accessed is `urma_mem::doorbells`. *Must not*: have behaviour.

use urma_mem::doorbells::SlotGeometry;

use crate::{
    doorbell::{CqArm, JfcDoorbell},
    field, field32, flag, place,
};

/// BAR of the doorbell memory.
pub const SLOT_BAR: u8 = 2;
/// Bytes of the doorbell memory, a power of two.
pub const SLOT_LEN: usize = 1 << 17;
const _: () = assert!(SLOT_LEN >= SlotGeometry::DEVICE.len_bytes());

/// Value of a slot: the newest doorbell of one object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SlotDoorbell {
    /// Send producer index of a queue, as a write to [`crate::doorbell::SQ_PI`] of its page.
    Queue {
        /// The queue, 20 bits.
        id: u32,
        /// Producer index, free running.
        pi: u32,
    },
    /// Consumer index of a JFC, as a write to [`crate::regs::JFC_DB`] that arms nothing.
    Jfc {
        /// The JFC, 20 bits.
        jfcn: u32,
        /// Consumer index, free running, 24 bits kept.
        ci: u32,
    },
}

const KIND: u32 = 60;
const QUEUE: u64 = 1;
const JFC: u64 = 2;

impl SlotDoorbell {
    /// index 32, object 20 from bit 32, kind 4 from bit 60.
    #[inline]
    #[must_use]
    pub fn encode(self) -> u64 {
        let (kind, object, index) = match self {
            Self::Queue { id, pi } => (QUEUE, id, pi),
            Self::Jfc { jfcn, ci } => (JFC, jfcn, ci & 0x00ff_ffff),
        };
        u64::from(index) | place(u64::from(object), 32, 20) | kind << KIND
    }

    /// `None`: a kind that this version does not have.
    #[inline]
    #[must_use]
    pub fn decode(word: u64) -> Option<Self> {
        let (object, index) = (field32(word, 32, 20), field32(word, 0, 32));
        match field(word, KIND, 4) {
            QUEUE => Some(Self::Queue { id: object, pi: index }),
            JFC => Some(Self::Jfc { jfcn: object, ci: index & 0x00ff_ffff }),
            _ => None,
        }
    }
}

/// Detail of a JFC's slot: an arm, which later consumer indices do not replace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotArm {
    /// Which completions fire it.
    pub arm: CqArm,
    /// Counts arms modulo 4, as [`JfcDoorbell::arm_sn`].
    pub arm_sn: u8,
}

impl SlotArm {
    /// sn 2, type 1 (1 = solicited only).
    #[inline]
    #[must_use]
    pub fn encode(self) -> u32 {
        u32::from(self.arm_sn & 3) | u32::from(self.arm == CqArm::Solicited) << 2
    }

    /// Reads a detail; every bit pattern is an arm.
    #[inline]
    #[must_use]
    pub fn decode(detail: u32) -> Self {
        let word = u64::from(detail);
        let arm = if flag(word, 2) { CqArm::Solicited } else { CqArm::Any };
        Self { arm, arm_sn: crate::field8(word, 0, 2) }
    }

    /// The doorbell that arms `jfcn` at `ci`.
    #[must_use]
    pub fn at(self, jfcn: u32, ci: u32) -> JfcDoorbell {
        JfcDoorbell { ci, arm: Some(self.arm), arm_sn: self.arm_sn, jfcn }
    }
}
