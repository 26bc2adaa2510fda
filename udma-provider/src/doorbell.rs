//! Doorbells: the only register writes of the data path.
//!
//! *Owns*: which register, and the barrier before it. *Takes*: indices. *Gives*: one register
//! write. *Must not*: be called per request (a batch rings once).

use std::sync::Arc;

use udma_abi::{
    RegisterRegion,
    doorbell::{self, JfcDoorbell},
    regs,
    sqe::BLOCK_WORDS,
};
use urma_mem::barrier;

/// The send doorbell of one queue.
#[derive(Debug)]
pub(crate) struct SqDoorbell {
    regs: Arc<dyn RegisterRegion>,
    page: u64,
}

impl SqDoorbell {
    /// Of queue `id`, 20 bits.
    pub(crate) fn new(regs: Arc<dyn RegisterRegion>, id: u32) -> Self {
        let page = regs::JETTY_PAGES + u64::from(id) * doorbell::PAGE_LEN;
        Self { regs, page }
    }

    /// Everything before block `pi` (free running) is posted.
    #[inline]
    pub(crate) fn ring(&self, pi: u32) {
        barrier::to_device();
        self.regs.write32(self.page + doorbell::SQ_PI, pi);
    }

    /// Hands the one block that was just stored in the ring over directly.
    #[inline]
    pub(crate) fn ring_direct(&self, block: &[u64; BLOCK_WORDS]) {
        barrier::to_device();
        self.regs.write_block(self.page + doorbell::DWQE, block);
        barrier::flush_wc();
    }
}

/// The JFC doorbell register.
#[derive(Debug)]
pub(crate) struct CqDoorbell {
    regs: Arc<dyn RegisterRegion>,
}

impl CqDoorbell {
    pub(crate) fn new(regs: Arc<dyn RegisterRegion>) -> Self {
        Self { regs }
    }

    /// Moves the consumer index, and arms if the value has the bit.
    #[inline]
    pub(crate) fn ring(&self, value: JfcDoorbell) {
        self.regs.write64(regs::JFC_DB, value.encode());
    }
}

/// Consumer index of event queue `eqn`.
pub(crate) fn ring_eq(regs: &dyn RegisterRegion, eqn: u32, ci: u32) {
    regs.write64(regs::EQ_CI, u64::from(eqn) << 32 | u64::from(ci));
}
