//! Doorbells of queues and JFCs that were found once, of a node that lives.
//!
//! *Takes*: doorbells, and requests that are handed over with one. *Gives*: them to the device; what is left to do
//! after it. *Must not*: reach the device of a node that is closed or forked.

use nix::errno::Errno;
use udma_abi::MovedWord;

use super::SharedNode;
use crate::device::{FoundJfc, MovedEntry, QueueHandle, QueueVisit, SoftwareDevice};

impl SharedNode {
    /// As [`SharedNode::write32`] to the doorbell of a queue that was found.
    pub fn ring_queue(&self, found: &QueueHandle, pi: u32) {
        if self.is_dead() {
            return;
        }
        self.device.ring_queue(found, || self.post_time(), pi);
        self.after_post();
    }

    /// As [`SharedNode::write_block`] to the page of a queue that was found.
    #[inline]
    pub fn ring_direct(&self, found: &QueueHandle, words: &[u64; 8]) {
        if !self.is_dead() && self.device.ring_direct(found, || self.post_time(), words) {
            self.after_post();
        }
    }

    /// As [`SharedNode::ring_direct`], of an entry that is not in the ring; `false`: nothing happened.
    #[inline]
    pub fn carry(&self, found: &QueueHandle, words: &[u64; 8]) -> bool {
        !self.is_dead() && self.is_carried(self.device.carry(found, || self.post_time(), words))
    }

    /// As [`SharedNode::carry`], of an entry like the newest one that was carried.
    #[inline(always)]
    pub fn carry_moved(&self, found: &QueueHandle, moved: &MovedEntry) -> bool {
        if !moved.is_signalled {
            return self.execute_local(found, moved).is_some();
        }
        !self.is_dead()
            && self.is_carried(self.device.carry_moved(found, || self.post_time(), moved))
    }

    /// As [`SharedNode::carry_moved`], of an entry whose completion the driver makes, or that wants none; the index in its
    /// JFC at which it would be.
    #[inline(always)]
    pub fn execute_local(&self, found: &QueueHandle, moved: &MovedEntry) -> Option<u32> {
        self.unreported(found, |device| device.execute_local(found, moved))
    }

    /// As [`SharedNode::execute_local`], of 8 bytes without a completion; whether they were moved.
    #[inline(always)]
    pub fn carry_word_silently(&self, found: &QueueHandle, moved: (u32, u64, u64)) -> bool {
        self.unreported(found, |device| device.carry_word_silently(found, moved)).is_some()
    }

    /// As [`SharedNode::execute_local`], of a whole entry.
    #[inline(always)]
    pub fn carry_block_unreported(&self, found: &QueueHandle, words: &[u64; 8]) -> Option<u32> {
        self.unreported(found, |device| device.carry_block_unreported(found, words))
    }

    /// As [`SharedNode::execute_local`], of an atomic.
    #[inline(always)]
    pub fn carry_word(&self, found: &QueueHandle, moved: &MovedWord) -> Option<u32> {
        self.unreported(found, |device| device.carry_word(found, moved))
    }

    /// Lets `carry` carry out an entry; the index that it returns.
    #[inline(always)]
    fn unreported(
        &self,
        found: &QueueHandle,
        carry: impl FnOnce(&SoftwareDevice) -> (Option<u32>, bool),
    ) -> Option<u32> {
        if self.is_dead() {
            return None;
        }
        self.after_carry(found, carry(&self.device))
    }

    /// As [`SharedNode::execute_local`] in a visit of the queue that [`QueueHandle::move_word`] left.
    #[inline(always)]
    pub fn carry_word_in_visit(
        &self,
        found: &QueueHandle,
        visit: QueueVisit<'_>,
        moved: (u32, u64, u64),
    ) -> Option<u32> {
        self.after_carry(found, self.device.carry_word_in_visit(found, visit, moved))
    }

    /// The index that a carried entry got; steps the queue if another thread marked it meanwhile.
    #[inline(always)]
    fn after_carry(
        &self,
        found: &QueueHandle,
        (index, is_marked): (Option<u32>, bool),
    ) -> Option<u32> {
        self.step_if(is_marked, found);
        index
    }

    /// Steps the queue if another thread marked it meanwhile.
    #[inline(always)]
    pub fn step_if(&self, is_marked: bool, found: &QueueHandle) {
        if is_marked {
            self.step_found(found);
        }
    }

    /// Steps a queue after a request of it was carried out. System calls that find nothing set `errno`, which a call
    /// that succeeded leaves as it was; carrying out alone makes none.
    #[cold]
    #[inline(never)]
    fn step_found(&self, found: &QueueHandle) {
        let before = Errno::last_raw();
        self.device.step_queue_found(found, || self.post_time());
        self.after_post();
        Errno::set_raw(before);
    }

    /// As [`SharedNode::carry`], of an atomic, which has two blocks.
    #[inline]
    pub fn carry_atomic(&self, found: &QueueHandle, blocks: &[[u64; 8]; 2]) -> bool {
        !self.is_dead()
            && self.is_carried(self.device.carry_atomic(found, || self.post_time(), blocks))
    }

    /// After a carried entry that left something to do, or not. Returns whether it was carried out.
    #[inline(always)]
    fn is_carried(&self, is_left: Option<bool>) -> bool {
        if is_left == Some(true) {
            self.after_post();
        }
        is_left.is_some()
    }

    /// As [`SharedNode::write64`] to the doorbell of JFCs, for one that was found and is not armed.
    #[inline]
    pub fn consume(&self, found: &FoundJfc, ci: u32) {
        if !self.is_dead() && self.device.consume(found, || self.post_time(), ci) {
            self.after_post();
        }
    }
}
