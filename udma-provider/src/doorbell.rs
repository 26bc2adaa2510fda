//! Doorbells: the only register writes of the data path.
//!
//! A batch rings once. A device in this process may execute a single request in the call itself (`carry` and its
//! variants); then nothing is stored in the ring.

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

/// The send doorbell of one queue: the backing's faster one if it has that, else the queue's page in the register
/// window.
#[derive(Debug)]
pub(crate) struct SqDoorbell(Box<dyn QueueDoorbell>);

/// A queue's page in the register window, which executes nothing.
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
    /// Doorbell of queue `id`, 20 bits, which exists.
    pub(crate) fn new(regs: Arc<dyn RegisterRegion>, id: u32) -> Self {
        let page = regs::JETTY_PAGES + u64::from(id) * doorbell::PAGE_LEN;
        let found = regs.queue_doorbell(id);
        Self(found.unwrap_or_else(|| Box::new(DoorbellPage { regs, page })))
    }

    /// Records in `lines` what the device touches, as [`QueueDoorbell::note_lines`] describes.
    pub(crate) fn note_lines(&self, lines: &UsedLines) {
        self.0.note_lines(lines);
    }

    /// Rings: everything before block `pi` (free running) is posted.
    #[inline]
    pub(crate) fn ring(&self, pi: u32) {
        barrier::to_device();
        self.0.ring(pi);
    }

    /// Passes a block that is not stored in the ring, to be executed at once. `false`: nothing happened.
    #[inline(always)]
    pub(crate) fn carry(&self, block: &[u64; BLOCK_WORDS]) -> bool {
        barrier::to_device();
        self.0.carry(block)
    }

    /// Passes what differs between a request and the last block of [`SqDoorbell::carry`]; the device writes its CQE.
    /// `false`: nothing happened.
    #[inline(always)]
    pub(crate) fn carry_moved(&self, pi: u32, moved: &TransferDelta) -> bool {
        barrier::to_device();
        let TransferDelta { local, remote, len, is_signalled, .. } = *moved;
        self.0.carry_moved(pi, is_signalled, remote, local, len)
    }

    /// Passes what differs in an unsignalled request. `false`: nothing happened.
    #[inline(always)]
    pub(crate) fn carry_silent(&self, pi: u32, (remote, local, len): (u64, u64, u32)) -> bool {
        barrier::to_device();
        self.0.carry_moved(pi, false, remote, local, len)
    }

    /// Passes what differs in a signalled request whose completion this driver makes. Returns the index of the JFC's
    /// next entry; `None`: nothing happened.
    #[inline(always)]
    pub(crate) fn execute_local(
        &self,
        pi: u32,
        (remote, local, len): (u64, u64, u32),
    ) -> Option<NextEntry> {
        barrier::to_device();
        self.0.execute_local(pi, remote, local, len)
    }

    /// Passes the whole block of a signalled request like any earlier one. Returns what [`SqDoorbell::execute_local`]
    /// does.
    #[inline(always)]
    pub(crate) fn carry_block_unreported(&self, block: &[u64; BLOCK_WORDS]) -> Option<NextEntry> {
        barrier::to_device();
        self.0.carry_block_unreported(block)
    }

    /// Passes both blocks of an atomic, to be executed at once. `false`: nothing happened.
    #[inline]
    pub(crate) fn carry_atomic(&self, blocks: &[[u64; BLOCK_WORDS]; 2]) -> bool {
        barrier::to_device();
        self.0.carry_atomic(blocks)
    }

    /// Passes what differs between an atomic and the last one of [`SqDoorbell::carry_atomic`]. Returns what
    /// [`SqDoorbell::execute_local`] does.
    #[inline(always)]
    pub(crate) fn carry_word(&self, moved: &MovedWord) -> Option<NextEntry> {
        barrier::to_device();
        self.0.carry_word(moved)
    }

    /// Passes the one block that was just stored in the ring as a direct entry.
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
    /// The backing's faster way to it, if it has one.
    index: Option<Box<dyn JfcIndex>>,
}

impl CqDoorbell {
    /// Doorbell of JFC `jfcn`, 20 bits, which exists.
    pub(crate) fn new(regs: Arc<dyn RegisterRegion>, jfcn: u32) -> Self {
        Self { index: regs.jfc_index(jfcn), regs, jfcn }
    }

    /// Moves the consumer index, unless the device failed: its registers may belong to a successor by now.
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
