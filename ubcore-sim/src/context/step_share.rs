//! Bounds of one step of a send queue, when functions share the device.
//!
//! *Owns*: the bounds. *Takes*: the settings, the number of functions. *Gives*: the bounds of the settings while one
//! driver uses the device; smaller ones, and one queue of each function per step, while several do. *Must not*: hold
//! queues or functions.

use urma_mem::sync::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use crate::cfg::DeviceCfg;

/// Most bytes that one step of a send queue copies directly while functions share the device.
const SHARED_STEP_BYTES: usize = 256 << 10;
/// Most requests that it starts then: of the longest ones of the express lane (16 KiB), the same number of bytes.
const SHARED_STEP_REQUESTS: u32 = 16;

/// Bounds of one step of one send queue.
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
