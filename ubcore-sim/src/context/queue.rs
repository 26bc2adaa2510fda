//! A queue number: the permanent place where doorbells arrive, and how much of its queue one step does.
//!
//! Has the producer index, and marks between posters and the queue's engine. Must not make a poster wait.

use urma_mem::sync::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use super::{counts::FastCounts, function::FunctionId, table::Lives};
use crate::cfg::DeviceCfg;

/// State of one of the 2^20 numbers, from its first use on.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) id: u32,
    /// Number of the function that owns it.
    owner: AtomicU32,
    /// Send producer index of the last doorbell, free running, in blocks.
    pub(crate) pi: AtomicU32,
    pub(crate) fast: FastCounts,
    /// Lives of the send engine (a hint for doorbells; the engine decides).
    pub(crate) sends: Lives,
    /// 0 to 15; 15 is the most urgent.
    pub(crate) priority: AtomicU32,
    /// Number of positions of its ring minus one, for direct entries.
    pub(crate) mask: AtomicU32,
    /// It stopped for want of a completion slot.
    pub(crate) stopped: AtomicBool,
    /// It is in the list of queues that need another step.
    runnable: AtomicBool,
    /// It is in the list of queues with requests for the shared part.
    listed: AtomicBool,
}

impl Queue {
    pub(crate) fn new(id: u32) -> Self {
        Self {
            id,
            owner: AtomicU32::new(0),
            pi: AtomicU32::new(0),
            fast: FastCounts::default(),
            sends: Lives::default(),
            priority: AtomicU32::new(0),
            mask: AtomicU32::new(0),
            stopped: AtomicBool::new(false),
            runnable: AtomicBool::new(false),
            listed: AtomicBool::new(false),
        }
    }

    /// Sets the function that owns it.
    pub(crate) fn set_owner(&self, owner: FunctionId) {
        self.owner.store(owner.number().into(), Ordering::SeqCst);
    }

    /// Whether this function owns it.
    #[inline]
    pub(crate) fn is_of(&self, owner: FunctionId) -> bool {
        self.owner.load(Ordering::Relaxed) == u32::from(owner.number())
    }

    /// Number of the function that owns it.
    pub(crate) fn owner(&self) -> u32 {
        self.owner.load(Ordering::Relaxed)
    }

    /// Bits of a position that a direct entry must name.
    #[inline]
    pub(crate) fn index_mask(&self) -> u64 {
        u64::from(self.mask.load(Ordering::Relaxed))
    }

    /// Marks it. Returns whether the caller must add it to the list of runnable queues.
    pub(crate) fn mark_runnable(&self) -> bool {
        !self.runnable.swap(true, Ordering::SeqCst)
    }

    pub(crate) fn unmark_runnable(&self) {
        self.runnable.store(false, Ordering::SeqCst);
    }

    /// Marks it. Returns whether the caller must add it to the list for the shared part.
    pub(crate) fn mark_listed(&self) -> bool {
        !self.listed.swap(true, Ordering::SeqCst)
    }

    pub(crate) fn unmark_listed(&self) {
        self.listed.store(false, Ordering::SeqCst);
    }
}

/// Most bytes that one step of a send queue copies directly while functions share the device.
const SHARED_STEP_BYTES: usize = 256 << 10;
/// Most requests that it starts then: of the longest ones of the express lane (16 KiB), the same number of bytes.
const SHARED_STEP_REQUESTS: u32 = 16;

/// Bounds of one step of one send queue.
///
/// While one driver uses the device they are those of the settings; while several do they are smaller, and one step
/// takes one queue of each function.
#[derive(Debug)]
pub(crate) struct StepShare {
    bytes: AtomicUsize,
    requests: AtomicU32,
    is_shared: AtomicBool,
}

impl StepShare {
    /// Bounds of a device with the function of its owner alone.
    pub(crate) fn new(cfg: &DeviceCfg) -> Self {
        Self {
            bytes: AtomicUsize::new(cfg.step_bytes),
            requests: AtomicU32::new(cfg.step_requests),
            is_shared: AtomicBool::new(false),
        }
    }

    /// Sets the bounds for `others` functions besides that of the owner.
    pub(crate) fn set(&self, cfg: &DeviceCfg, others: usize) {
        let is_shared = others > 1;
        let (bytes, requests) = match is_shared {
            true => (SHARED_STEP_BYTES, SHARED_STEP_REQUESTS),
            false => (usize::MAX, u32::MAX),
        };
        self.bytes.store(bytes.min(cfg.step_bytes), Ordering::Relaxed);
        self.requests.store(requests.min(cfg.step_requests), Ordering::Relaxed);
        self.is_shared.store(is_shared, Ordering::Relaxed);
    }

    /// Most bytes that the step copies directly.
    #[inline(always)]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Most requests that the step starts.
    #[inline(always)]
    pub(crate) fn requests(&self) -> u32 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Whether each function gets one step of one queue in a step of the device.
    pub(crate) fn is_shared(&self) -> bool {
        self.is_shared.load(Ordering::Relaxed)
    }
}
