//! Doorbell values.
//!
//! *Owns*: the 64-bit JFC doorbell and the offsets inside a jetty's page.

use crate::{field32, flag, place};

/// Bytes of one doorbell page. Hardware has 4096, so that a process can map one; here a function is one driver's.
pub const PAGE_LEN: u64 = 0x100;
/// In a jetty page: 64 bytes; a one-block entry stored here is executed without a fetch (DWQE).
pub const DWQE: u64 = 0x00;
/// In a jetty page: 32-bit write of the send producer index (free running, in blocks).
pub const SQ_PI: u64 = 0x80;

/// Completion queue doorbell: consumer index and arming in one 64-bit write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JfcDoorbell {
    /// Consumer index, free running, 24 bits kept.
    pub ci: u32,
    /// What the next event is armed for; `None` only moves the consumer index.
    pub arm: Option<CqArm>,
    /// Counts arms modulo 4, so that a repeated doorbell does not arm twice.
    pub arm_sn: u8,
    /// The JFC, 20 bits.
    pub jfcn: u32,
}

/// Which completions fire an armed JFC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CqArm {
    /// Any completion fires the JFC.
    Any,
    /// Solicited ones and errors.
    Solicited,
}

impl JfcDoorbell {
    /// ci 24, notify 1, arm_sn 2, type 1 (1 = solicited only), jfcn 20.
    #[inline]
    #[must_use]
    pub fn encode(self) -> u64 {
        place(u64::from(self.ci), 0, 24)
            | place(u64::from(self.arm.is_some()), 24, 1)
            | place(u64::from(self.arm_sn), 25, 2)
            | place(u64::from(self.arm == Some(CqArm::Solicited)), 27, 1)
            | place(u64::from(self.jfcn), 28, 20)
    }

    /// Reads a doorbell; every bit pattern means something.
    #[inline]
    #[must_use]
    pub fn decode(word: u64) -> Self {
        let kind = if flag(word, 27) { CqArm::Solicited } else { CqArm::Any };
        Self {
            ci: field32(word, 0, 24),
            arm: flag(word, 24).then_some(kind),
            arm_sn: crate::field8(word, 25, 2),
            jfcn: field32(word, 28, 20),
        }
    }
}
