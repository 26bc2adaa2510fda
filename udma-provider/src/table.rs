//! Queues by the cookie that their CQEs carry.
//!
//! *Owns*: the cookie numbering (slot and generation, so that a stale cookie names no queue). *Takes*: new queues.
//! *Gives*: [`PolledQueue`]s, which a poller needs to turn a CQE into a completion. *Must not*: be locked on the fast
//! path: pollers keep their own copy by slot.

use std::sync::{Arc, Mutex};

use urma_core::QueueKind;
use urma_mem::{
    Region,
    lines::UsedLines,
    sync::{AtomicU32, Ordering},
};

use crate::{alloc::lock, shadow::Shadow};

/// The state of a queue that a poller needs.
#[derive(Debug)]
pub(crate) struct PolledQueue {
    /// Returned by the device in every CQE.
    pub(crate) cookie: u64,
    /// Kind of the queue.
    pub(crate) kind: QueueKind,
    /// The caller's context of the queue.
    pub(crate) queue_ctx: u64,
    /// Send requests of the queue; `None` for a JFR.
    pub(crate) send: Option<SendLink>,
    /// Receive side: its own, or that of its shared JFR.
    pub(crate) recv: Option<Arc<RecvLink>>,
    /// Cache lines that a post to the queue touches.
    pub(crate) lines: UsedLines,
    /// The queue's number; set once the device gave it.
    id: AtomicU32,
}

/// Send side of a queue.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct SendLink {
    /// Requests that were posted and not completed, by ring index.
    pub(crate) shadow: Shadow,
    /// Producer index in blocks, as of the last doorbell.
    pub(crate) pi: AtomicU32,
    /// First position after the newest completion (of queues that complete in order).
    pub(crate) polled: AtomicU32,
    /// First position that the clean-up after a device failure has not checked.
    pub(crate) swept: AtomicU32,
    /// JFC of its completions.
    pub(crate) jfcn: u32,
    /// The doorbell record, where the device stores the consumer index.
    pub(crate) record: Region,
}

/// Receive side of a queue.
#[derive(Debug)]
pub(crate) struct RecvLink {
    /// JFC of completions of the JFR itself.
    pub(crate) jfcn: u32,
    /// Cookie of the queue that owns the ring.
    pub(crate) owner: u64,
    /// Requests that were posted and not completed, by ring index.
    pub(crate) shadow: Shadow,
    /// Producer index in entries, as last published.
    pub(crate) pi: AtomicU32,
    /// Position up to which a flush has ended the requests; the receive counterpart of [`SendLink::swept`].
    pub(crate) swept: AtomicU32,
}

impl PolledQueue {
    pub(crate) fn new(cookie: u64, kind: QueueKind, queue_ctx: u64) -> Self {
        let id = AtomicU32::new(u32::MAX);
        Self { cookie, kind, queue_ctx, send: None, recv: None, lines: UsedLines::default(), id }
    }

    /// The queue's number; all ones before the device gave it.
    #[inline]
    pub(crate) fn id(&self) -> u32 {
        self.id.load(Ordering::Relaxed)
    }

    pub(crate) fn set_id(&self, id: u32) {
        self.id.store(id, Ordering::Relaxed);
    }
}

impl SendLink {
    pub(crate) fn new(jfcn: u32, blocks_log2: u8, record: Region) -> Self {
        Self {
            jfcn,
            shadow: Shadow::new(blocks_log2),
            record,
            pi: AtomicU32::new(0),
            polled: AtomicU32::new(0),
            swept: AtomicU32::new(0),
        }
    }
}

impl RecvLink {
    pub(crate) fn new(jfcn: u32, owner: u64, depth_log2: u8) -> Self {
        let shadow = Shadow::new(depth_log2);
        Self { jfcn, owner, shadow, pi: AtomicU32::new(0), swept: AtomicU32::new(0) }
    }
}

/// All queues of a device.
#[derive(Debug, Default)]
pub(crate) struct QueueTable {
    slots: Mutex<Slots>,
}

#[derive(Debug, Default)]
struct Slots {
    links: Vec<Option<Arc<PolledQueue>>>,
    generation: u32,
}

impl QueueTable {
    /// Adds a queue, which `make` creates from its cookie.
    pub(crate) fn insert(&self, make: impl FnOnce(u64) -> PolledQueue) -> Arc<PolledQueue> {
        let mut slots = lock(&self.slots);
        let slot = slots.links.iter().position(Option::is_none).unwrap_or(slots.links.len());
        slots.generation = slots.generation.wrapping_add(1);
        let cookie = u64::from(slots.generation) << 32 | slot as u64;
        let link = Arc::new(make(cookie));
        if slot == slots.links.len() {
            slots.links.push(None);
        }
        slots.links[slot] = Some(Arc::clone(&link));
        link
    }

    /// Finds the queue with this cookie.
    pub(crate) fn find(&self, cookie: u64) -> Option<Arc<PolledQueue>> {
        let slots = lock(&self.slots);
        slots.links.get(slot_of(cookie))?.as_ref().filter(|link| link.cookie == cookie).cloned()
    }

    /// Removes the queue; its cookie is invalid from now on.
    pub(crate) fn remove(&self, cookie: u64) {
        let mut slots = lock(&self.slots);
        if let Some(slot) = slots.links.get_mut(slot_of(cookie))
            && slot.as_ref().is_some_and(|link| link.cookie == cookie)
        {
            *slot = None;
        }
    }

    /// All queues, for the clean-up after a device failure.
    pub(crate) fn all(&self) -> Vec<Arc<PolledQueue>> {
        lock(&self.slots).links.iter().flatten().cloned().collect()
    }
}

/// The slot in a cookie; the caller has to check that it exists.
#[inline]
pub(crate) fn slot_of(cookie: u64) -> usize {
    (cookie & 0xffff_ffff) as usize
}
