//! Entries that are handed over by the doorbell of a queue and stand in no ring.
//!
//! *Owns*: what a driver remembers of the newest one. *Takes*: blocks. *Gives*: them to the device, or to the ring if
//! it does not carry them out.

use udma_abi::{
    CompletionBy, MovableBlock,
    sqe::{BLOCK_LEN, BLOCK_WORDS},
};

use super::{Bench, BenchQueue};
use crate::device::{Executed, Leases, MovedEntry, QueueHandle, SoftwareDevice};

/// Does what an executed request left to do, as a doorbell does; returns its index.
pub(super) fn finished(
    dev: &SoftwareDevice,
    found: &QueueHandle,
    executed: Executed,
) -> Option<u32> {
    if executed.is_unfinished() {
        dev.finish(found, || 0, executed);
    }
    executed.index
}

impl Bench {
    /// Executes the newest entry, an atomic that starts with `front`, by a handle; rings if the device does not take
    /// it.
    pub(super) fn carry_atomic(&self, queue: &BenchQueue, front: [u64; BLOCK_WORDS]) {
        let [first, second] = [2, 1].map(|back| {
            (queue.pi.wrapping_sub(back) as usize & ((1 << queue.log2) - 1)) * BLOCK_LEN
        });
        let blocks = [front, queue.ring.load_block(second).unwrap()];
        for at in [first, second] {
            queue.ring.store_block(at, &[u64::MAX; BLOCK_WORDS]).unwrap();
        }
        let found = self.dev.find_queue(queue.id, Leases::Seldom).unwrap();
        if self.dev.execute_atomic(&found, || self.now, &blocks).is_none() {
            queue.ring.store_block(first, &blocks[0]).unwrap();
            queue.ring.store_block(second, &blocks[1]).unwrap();
            self.dev.ring_queue(&found, || self.now, queue.pi);
        }
    }

    /// Executes the newest entry by a handle: the ring has the entry only if the device does not take it. A request
    /// like the last one is given by what differs, as a driver does.
    pub(super) fn carry(&self, queue: &BenchQueue, block: &[u64; BLOCK_WORDS]) {
        let at = ((queue.pi as usize - 1) & ((1 << queue.log2) - 1)) * BLOCK_LEN;
        queue.ring.store_block(at, &[u64::MAX; BLOCK_WORDS]).unwrap();
        let found = self.dev.find_queue(queue.id, Leases::Seldom).unwrap();
        if let Some(moved) = self.like_carried(queue, block)
            && finished(&self.dev, &found, self.dev.repeat(&found, &moved)).is_some()
        {
            return;
        }
        let is_carried = self.dev.execute(&found, || self.now, block).is_some();
        *self.carried.lock().unwrap() = is_carried.then_some((queue.id, *block));
        if !is_carried {
            queue.ring.store_block(at, block).unwrap();
            self.dev.ring_direct(&found, || self.now, block);
        }
    }

    /// What of `block`, the newest entry of the queue, differs from the newest one that was carried, if that
    /// is all.
    fn like_carried(&self, queue: &BenchQueue, block: &[u64; BLOCK_WORDS]) -> Option<MovedEntry> {
        let (id, last) = (*self.carried.lock().unwrap())?;
        let pi = queue.pi.wrapping_sub(1);
        let moved = MovedEntry::of(block, pi);
        let is_signalled = moved.by == CompletionBy::Device;
        let MovedEntry { remote_va, local_va, len, .. } = moved;
        let entry_idx = u16::try_from(pi & 0xffff).unwrap();
        let place = (entry_idx, (pi >> queue.log2) & 1 == 0, is_signalled);
        let mut like = MovableBlock::new(last);
        like.move_to(place, (remote_va, local_va, len));
        (id == queue.id && like.block() == block).then_some(moved)
    }
}
