//! Doorbells: the only register writes of the data path.
//!
//! A batch rings once. A device in this process may carry a single request out with the call instead
//! (`carry` and its kin); then nothing is stored in the ring.

use std::sync::Arc;

use udma_abi::{
    JfcIndex, MovedWord, NextEntry, QueueDoorbell, RegisterRegion,
    doorbell::{self, CqArm, JfcDoorbell},
    regs,
    sqe::BLOCK_WORDS,
};
use urma_core::ops::TransferDelta;
use urma_mem::{
    barrier,
    lines::UsedLines,
    sync::{AtomicBool, Ordering},
};

/// The send doorbell of one queue: found once where the backing has that, else its page in the window.
#[derive(Debug)]
pub(crate) struct SqDoorbell(Box<dyn QueueDoorbell>);

/// A queue's page in the window, which carries nothing out.
#[derive(Debug)]
struct DoorbellPage {
    regs: Arc<dyn RegisterRegion>,
    page: u64,
}

impl QueueDoorbell for DoorbellPage {
    fn ring(&self, pi: u32) {
        self.regs.write32(self.page + doorbell::SQ_PI, pi);
    }

    fn ring_direct(&self, words: &[u64; BLOCK_WORDS]) {
        self.regs.write_block(self.page + doorbell::DWQE, words);
        barrier::flush_wc();
    }

    fn carry(&self, _words: &[u64; BLOCK_WORDS]) -> bool {
        false
    }

    fn carry_moved(&self, _pi: u32, _is_signalled: bool, _: u64, _: u64, _len: u32) -> bool {
        false
    }

    fn carry_atomic(&self, _blocks: &[[u64; BLOCK_WORDS]; 2]) -> bool {
        false
    }
}

impl SqDoorbell {
    /// Of queue `id`, 20 bits, which exists.
    pub(crate) fn new(regs: Arc<dyn RegisterRegion>, id: u32) -> Self {
        let page = regs::JETTY_PAGES + u64::from(id) * doorbell::PAGE_LEN;
        let found = regs.queue_doorbell(id);
        Self(found.unwrap_or_else(|| Box::new(DoorbellPage { regs, page })))
    }

    /// Notes in `lines` what the device touches, as [`QueueDoorbell::note_lines`].
    pub(crate) fn note_lines(&self, lines: &UsedLines) {
        self.0.note_lines(lines);
    }

    /// Everything before block `pi` (free running) is posted.
    #[inline]
    pub(crate) fn ring(&self, pi: u32) {
        barrier::to_device();
        self.0.ring(pi);
    }

    /// Hands a block over that is not stored in the ring. Returns whether it was carried out; if not, nothing
    /// happened.
    #[inline(always)]
    pub(crate) fn carry(&self, block: &[u64; BLOCK_WORDS]) -> bool {
        barrier::to_device();
        self.0.carry(block)
    }

    /// As [`SqDoorbell::carry`], of a request like the newest block that it carried.
    #[inline(always)]
    pub(crate) fn carry_moved(&self, pi: u32, moved: &TransferDelta) -> bool {
        barrier::to_device();
        let TransferDelta { local, remote, len, is_signalled, .. } = *moved;
        self.0.carry_moved(pi, is_signalled, remote, local, len)
    }

    /// As [`SqDoorbell::carry_moved`], of a request without a completion.
    #[inline(always)]
    pub(crate) fn carry_silent(&self, pi: u32, (remote, local, len): (u64, u64, u32)) -> bool {
        barrier::to_device();
        self.0.carry_moved(pi, false, remote, local, len)
    }

    /// As [`SqDoorbell::carry_moved`], of a signalled request whose completion this driver makes; the index of the
    /// entry that it comes before.
    #[inline(always)]
    pub(crate) fn execute_local(
        &self,
        pi: u32,
        (remote, local, len): (u64, u64, u32),
    ) -> Option<NextEntry> {
        barrier::to_device();
        self.0.execute_local(pi, remote, local, len)
    }

    /// As [`SqDoorbell::execute_local`], of the block of a signalled request like some one that was carried.
    #[inline(always)]
    pub(crate) fn carry_block_unreported(&self, block: &[u64; BLOCK_WORDS]) -> Option<NextEntry> {
        barrier::to_device();
        self.0.carry_block_unreported(block)
    }

    /// As [`SqDoorbell::carry`], of an atomic.
    #[inline]
    pub(crate) fn carry_atomic(&self, blocks: &[[u64; BLOCK_WORDS]; 2]) -> bool {
        barrier::to_device();
        self.0.carry_atomic(blocks)
    }

    /// As [`SqDoorbell::execute_local`], of an atomic like the newest one that it carried.
    #[inline(always)]
    pub(crate) fn carry_word(&self, moved: &MovedWord) -> Option<NextEntry> {
        barrier::to_device();
        self.0.carry_word(moved)
    }

    /// Hands the one block that was just stored in the ring over directly.
    #[inline]
    pub(crate) fn ring_direct(&self, block: &[u64; BLOCK_WORDS]) {
        barrier::to_device();
        self.0.ring_direct(block);
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
            None => {
                let value = JfcDoorbell { ci, arm: None, arm_sn, jfcn: self.jfcn };
                self.regs.write64(regs::JFC_DB, value.encode());
            }
        }
    }

    /// Moves the consumer index, and arms.
    pub(crate) fn arm(&self, ci: u32, arm: CqArm, arm_sn: u8) {
        let value = JfcDoorbell { ci, arm: Some(arm), arm_sn, jfcn: self.jfcn };
        if !self.index.as_ref().is_some_and(|index| index.arm(value)) {
            self.regs.write64(regs::JFC_DB, value.encode());
        }
    }
}

/// Consumer index of event queue `eqn`.
pub(crate) fn ring_eq(regs: &dyn RegisterRegion, eqn: u32, ci: u32) {
    regs.write64(regs::EQ_CI, u64::from(eqn) << 32 | u64::from(ci));
}
