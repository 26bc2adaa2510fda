//! Doorbells: the only register writes of the data path.
//!
//! A batch rings once. A device in this process may execute a single request within the call; then nothing is stored in
//! the ring.

use std::sync::Arc;

use udma_abi::{
    CompletionBy, DirectEntry, JfcIndex, NextEntry, QueueDoorbell, RegisterRegion, RepeatForm,
    SendDoorbell,
    doorbell::{self, CqArm, JfcDoorbell},
    regs,
};
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
    fn ring(&self, posted: SendDoorbell<'_>) {
        match posted {
            SendDoorbell::Producer(pi) => self.regs.write32(self.page + doorbell::SQ_PI, pi),
            SendDoorbell::Direct(block) => {
                self.regs.write_block(self.page + doorbell::DWQE, block);
                barrier::flush_wc();
            }
        }
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

    /// Rings, after everything that was stored in the ring.
    #[inline]
    pub(crate) fn ring(&self, posted: SendDoorbell<'_>) {
        barrier::to_device();
        self.0.ring(posted);
    }

    /// Passes an entry that is not stored in the ring ([`QueueDoorbell::execute`]).
    #[inline(always)]
    pub(crate) fn execute(&self, entry: DirectEntry<'_>) -> Option<NextEntry> {
        barrier::to_device();
        self.0.execute(entry)
    }

    /// Passes what differs between a request and the last one ([`QueueDoorbell::repeat`]).
    #[inline(always)]
    pub(crate) fn repeat(
        &self,
        pi: u32,
        (remote, local, len): (u64, u64, u32),
        by: CompletionBy,
    ) -> Option<NextEntry> {
        barrier::to_device();
        self.0.repeat(pi, remote, local, RepeatForm::new(len, by))
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
