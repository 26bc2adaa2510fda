//! A queue number with its send engine.
//!
//! *Owns*: the engine behind its `Serial`. *Gives*: the engine to the thread that steps it. *Must not*: make a poster
//! wait.

use std::ops::Deref;
use std::sync::Arc;

use urma_mem::Serial;

use super::fast::EnginePlace;
use crate::context::queue::Queue;

/// State of one of the 2^20 queue numbers, from its first use on. Queues that only receive have no engine.
#[derive(Debug)]
pub(crate) struct DeviceSendQueue {
    queue: Queue,
    pub(crate) send: Serial<EnginePlace>,
}

impl DeviceSendQueue {
    pub(crate) fn new(id: u32) -> Arc<Self> {
        Arc::new(Self { queue: Queue::new(id), send: Serial::new(EnginePlace::default()) })
    }
}

impl Deref for DeviceSendQueue {
    type Target = Queue;

    #[inline]
    fn deref(&self) -> &Queue {
        &self.queue
    }
}
