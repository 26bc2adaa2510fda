//! Doorbells: the only register writes of the data path.
//!
//! *Owns*: which register, and the barrier before it. *Takes*: indices. *Gives*: one register
//! write. *Must not*: be called per request (a batch rings once).

use std::sync::Arc;

use udma_abi::{
    JfcIndex, MovedWord, QueueDoorbell, RegisterRegion,
    doorbell::{self, CqArm, JfcDoorbell},
    regs,
    sqe::BLOCK_WORDS,
};
use urma_core::ops::MovedTransfer;
use urma_mem::{
    barrier,
    sync::{AtomicBool, Ordering},
};

/// The send doorbell of one queue.
#[derive(Debug)]
pub(crate) enum SqDoorbell {
    /// Found once, where the backing has that.
    Found(Box<dyn QueueDoorbell>),
    /// Its page in the window.
    Page { regs: Arc<dyn RegisterRegion>, page: u64 },
}

impl SqDoorbell {
    /// Of queue `id`, 20 bits, which exists.
    pub(crate) fn new(regs: Arc<dyn RegisterRegion>, id: u32) -> Self {
        if let Some(found) = regs.queue_doorbell(id) {
            return Self::Found(found);
        }
        let page = regs::JETTY_PAGES + u64::from(id) * doorbell::PAGE_LEN;
        Self::Page { regs, page }
    }

    /// Everything before block `pi` (free running) is posted.
    #[inline]
    pub(crate) fn ring(&self, pi: u32) {
        barrier::to_device();
        match self {
            Self::Found(found) => found.ring(pi),
            Self::Page { regs, page } => regs.write32(page + doorbell::SQ_PI, pi),
        }
    }

    /// Hands a block over that is not stored in the ring. Returns whether it was carried out; if not, nothing
    /// happened.
    #[inline(always)]
    pub(crate) fn carry(&self, block: &[u64; BLOCK_WORDS]) -> bool {
        barrier::to_device();
        match self {
            Self::Found(found) => found.carry(block),
            Self::Page { .. } => false,
        }
    }

    /// As [`SqDoorbell::carry`], of a request like the newest block that it carried.
    #[inline(always)]
    pub(crate) fn carry_moved(&self, pi: u32, moved: &MovedTransfer) -> bool {
        barrier::to_device();
        let MovedTransfer { local, remote, len, is_signalled, .. } = *moved;
        match self {
            Self::Found(found) => found.carry_moved(pi, is_signalled, remote, local, len),
            Self::Page { .. } => false,
        }
    }

    /// As [`SqDoorbell::carry_moved`], of a signalled request whose completion this driver makes; the index of the
    /// entry that it comes before.
    #[inline(always)]
    pub(crate) fn carry_unreported(&self, pi: u32, moved: &MovedTransfer) -> Option<u32> {
        barrier::to_device();
        match self {
            Self::Found(found) => found.carry_unreported(pi, moved.remote, moved.local, moved.len),
            Self::Page { .. } => None,
        }
    }

    /// As [`SqDoorbell::carry_unreported`], of the block of a signalled request like some one that was carried.
    #[inline(always)]
    pub(crate) fn carry_block_unreported(&self, block: &[u64; BLOCK_WORDS]) -> Option<u32> {
        barrier::to_device();
        match self {
            Self::Found(found) => found.carry_block_unreported(block),
            Self::Page { .. } => None,
        }
    }

    /// As [`SqDoorbell::carry`], of an atomic.
    #[inline]
    pub(crate) fn carry_atomic(&self, blocks: &[[u64; BLOCK_WORDS]; 2]) -> bool {
        barrier::to_device();
        match self {
            Self::Found(found) => found.carry_atomic(blocks),
            Self::Page { .. } => false,
        }
    }

    /// As [`SqDoorbell::carry_unreported`], of an atomic like the newest one that it carried.
    #[inline(always)]
    pub(crate) fn carry_word(&self, moved: &MovedWord) -> Option<u32> {
        barrier::to_device();
        match self {
            Self::Found(found) => found.carry_word(moved),
            Self::Page { .. } => None,
        }
    }

    /// Hands the one block that was just stored in the ring over directly.
    #[inline]
    pub(crate) fn ring_direct(&self, block: &[u64; BLOCK_WORDS]) {
        barrier::to_device();
        match self {
            Self::Found(found) => found.ring_direct(block),
            Self::Page { regs, page } => {
                regs.write_block(page + doorbell::DWQE, block);
                barrier::flush_wc();
            }
        }
    }
}

/// The JFC doorbell register.
#[derive(Debug)]
pub(crate) struct CqDoorbell {
    regs: Arc<dyn RegisterRegion>,
    jfcn: u32,
    /// Found once, where the backing has that.
    index: Option<Box<dyn JfcIndex>>,
}

impl CqDoorbell {
    /// Of JFC `jfcn`, 20 bits, which exists.
    pub(crate) fn new(regs: Arc<dyn RegisterRegion>, jfcn: u32) -> Self {
        Self { index: regs.jfc_index(jfcn), regs, jfcn }
    }

    /// Moves the consumer index. The registers of a device that failed may be a successor's by now.
    #[inline]
    pub(crate) fn consume(&self, ci: u32, arm_sn: u8, failed: &AtomicBool) {
        match &self.index {
            Some(index) => index.move_to(ci),
            None if failed.load(Ordering::Relaxed) => {}
            None => self.write(ci, None, arm_sn),
        }
    }

    /// Moves the consumer index, and arms.
    pub(crate) fn arm(&self, ci: u32, arm: CqArm, arm_sn: u8) {
        self.write(ci, Some(arm), arm_sn);
    }

    fn write(&self, ci: u32, arm: Option<CqArm>, arm_sn: u8) {
        let value = JfcDoorbell { ci, arm, arm_sn, jfcn: self.jfcn };
        self.regs.write64(regs::JFC_DB, value.encode());
    }
}

/// Consumer index of event queue `eqn`.
pub(crate) fn ring_eq(regs: &dyn RegisterRegion, eqn: u32, ci: u32) {
    regs.write64(regs::EQ_CI, u64::from(eqn) << 32 | u64::from(ci));
}
