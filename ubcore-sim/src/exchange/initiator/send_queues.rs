//! Send queues as the exchange knows them.
//!
//! *Owns*: their settings, the list of those with completions in their mail. *Takes*: mail. *Gives*: requests,
//! completions. *Must not*: complete a request twice.

use std::collections::BTreeMap;

use udma_abi::{CqeStatus, Nanos};

use crate::context::segment::SegmentCache;
use crate::engine::core::DeviceCore;
use crate::engine::mail::{Handed, HandedCompletion};
use crate::engine::send::HandedEnd;
use crate::exchange::SendSide;

/// Shortest time without an answer that ends a request: that of UDMA hardware for error timeouts of 0 to 7. Programs
/// ask for 3 and mean "soon"; 33 us would end requests whose peer merely waits for a processor.
pub(crate) const TIMEOUT_MIN_NS: Nanos = 128_000_000;

/// Send queue as the requester sees it.
#[derive(Debug)]
pub(crate) struct Sender {
    pub(crate) side: SendSide,
    pub(crate) cache: SegmentCache,
}

impl Sender {
    pub(crate) fn timeout_ns(&self) -> Nanos {
        (4096u64 << self.side.err_timeout.min(31)).max(TIMEOUT_MIN_NS)
    }
}

/// All send queues, and those that have completions to take.
#[derive(Debug, Default)]
pub(crate) struct SendQueueTable {
    by_id: BTreeMap<u32, Sender>,
    pub(crate) wake: Vec<u32>,
}

impl SendQueueTable {
    pub(crate) fn add(&mut self, side: SendSide) {
        let cache = SegmentCache::of(side.owner);
        self.by_id.insert(side.id, Sender { side, cache });
    }

    pub(crate) fn remove(&mut self, id: u32) {
        self.by_id.remove(&id);
    }

    /// Numbers of all send queues.
    pub(crate) fn ids(&self) -> impl Iterator<Item = u32> + '_ {
        self.by_id.keys().copied()
    }

    pub(crate) fn get(&self, id: u32) -> Option<&Sender> {
        self.by_id.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: u32) -> Option<&mut Sender> {
        self.by_id.get_mut(&id)
    }

    /// Takes the next request that a queue handed over.
    pub(crate) fn next_handed(&self, id: u32) -> Option<Handed> {
        let handed = &self.by_id.get(&id)?.side.mail.handed;
        // The check is cheaper than an attempt to take one.
        if handed.is_empty() { None } else { handed.pop() }
    }

    pub(crate) fn forget_dead(&mut self) {
        for sender in self.by_id.values_mut() {
            sender.cache.drop_dead();
        }
    }

    /// Puts the completion of a request into its queue's mail.
    pub(crate) fn end(&mut self, queue: u32, seq: u32, status: CqeStatus, bytes: u32) {
        let Some(sender) = self.by_id.get(&queue) else { return };
        // There is room for a completion of each request that can be handed over.
        let _ = sender.side.mail.ended.push(HandedCompletion { seq, status, bytes });
        self.wake(queue);
    }

    /// Has the queue's engine stepped, since it may go on.
    pub(crate) fn wake(&mut self, queue: u32) {
        if self.wake.last() != Some(&queue) {
            self.wake.push(queue);
        }
    }

    /// Completes a successful request at once if its queue is free, else by mail.
    #[inline]
    pub(crate) fn succeed(&mut self, core: &DeviceCore, queue: u32, (seq, bytes): (u32, u32)) {
        match core.end_handed(queue, seq, bytes) {
            HandedEnd::Done => {}
            HandedEnd::Step => self.wake.push(queue),
            HandedEnd::ByMail => self.end(queue, seq, CqeStatus::Success, bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use udma_abi::cmd::Mode;

    use super::*;
    use crate::context::function::FunctionId;
    use crate::engine::mail::Mail;

    fn timeout_ns(err_timeout: u8) -> Nanos {
        let side = SendSide {
            id: 1,
            owner: FunctionId::FIRST,
            is_jetty: true,
            mode: Mode::Rm,
            mail: Arc::new(Mail::new(64)),
            rnr_retry: 7,
            err_timeout,
            priority: 0,
        };
        Sender { side, cache: SegmentCache::of_any() }.timeout_ns()
    }

    #[test]
    fn a_small_error_timeout_outlasts_a_wait_for_a_processor() {
        assert_eq!((timeout_ns(0), timeout_ns(3)), (128_000_000, 128_000_000));
        assert_eq!(timeout_ns(17), 4096 << 17);
    }
}
