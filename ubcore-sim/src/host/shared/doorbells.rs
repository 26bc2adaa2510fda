//! Doorbells through handles of queues and JFCs, on a node that is still alive.
//!
//! *Takes*: doorbells, and requests that are passed with one. *Gives*: them to the device; the work that is left
//! afterwards. *Must not*: reach the device of a node that is closed or forked.

use nix::errno::Errno;
use udma_abi::MovedWord;

use super::SharedNode;
use crate::device::{FoundJfc, MovedEntry, QueueHandle, QueueVisit, SoftwareDevice};

impl SharedNode {
    /// Rings the queue's doorbell: everything before block `pi` is posted.
    pub fn ring_queue(&self, found: &QueueHandle, pi: u32) {
        if self.is_dead() {
            return;
        }
        self.device.ring_queue(found, || self.post_time(), pi);
        self.after_post();
    }

    /// Posts a direct entry, which is in the ring too.
    #[inline]
    pub fn ring_direct(&self, found: &QueueHandle, words: &[u64; 8]) {
        if !self.is_dead() && self.device.ring_direct(found, || self.post_time(), words) {
            self.after_post();
        }
    }

    /// Executes a direct entry that is not in the ring; `false`: nothing happened.
    #[inline]
    pub fn carry(&self, found: &QueueHandle, words: &[u64; 8]) -> bool {
        !self.is_dead() && self.is_carried(self.device.carry(found, || self.post_time(), words))
    }

    /// Executes an entry like the newest one of [`SharedNode::carry`], from the fields that differ; the device writes
    /// its CQE. `false`: nothing happened.
    #[inline(always)]
    pub fn carry_moved(&self, found: &QueueHandle, moved: &MovedEntry) -> bool {
        if !moved.is_signalled {
            return self.execute_local(found, moved).is_some();
        }
        !self.is_dead()
            && self.is_carried(self.device.carry_moved(found, || self.post_time(), moved))
    }

    /// Executes an entry like the newest one of [`SharedNode::carry`], whose CQE the driver makes or which wants
    /// none. Returns the index that its CQE would have in the JFC; `None`: nothing happened.
    #[inline(always)]
    pub fn execute_local(&self, found: &QueueHandle, moved: &MovedEntry) -> Option<u32> {
        self.unreported(found, |device| device.execute_local(found, moved))
    }

    /// Executes an 8-byte entry without a completion, like the newest one. Returns whether it did.
    #[inline(always)]
    pub fn carry_word_silently(&self, found: &QueueHandle, moved: (u32, u64, u64)) -> bool {
        self.unreported(found, |device| device.carry_word_silently(found, moved)).is_some()
    }

    /// Executes a whole entry like any earlier one, whose CQE the driver makes. Returns the JFC index as
    /// [`SharedNode::execute_local`] does.
    #[inline(always)]
    pub fn carry_block_unreported(&self, found: &QueueHandle, words: &[u64; 8]) -> Option<u32> {
        self.unreported(found, |device| device.carry_block_unreported(found, words))
    }

    /// Executes an atomic like the newest one, whose CQE the driver makes. Returns the JFC index as
    /// [`SharedNode::execute_local`] does.
    #[inline(always)]
    pub fn carry_word(&self, found: &QueueHandle, moved: &MovedWord) -> Option<u32> {
        self.unreported(found, |device| device.carry_word(found, moved))
    }

    /// Calls `carry` to execute an entry, and returns the index that it gives.
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

    /// Executes the word that [`QueueHandle::move_word`] could not move, in the visit that it returned. Returns the
    /// JFC index as [`SharedNode::execute_local`] does.
    #[inline(always)]
    pub fn carry_word_in_visit(
        &self,
        found: &QueueHandle,
        visit: QueueVisit<'_>,
        moved: (u32, u64, u64),
    ) -> Option<u32> {
        self.after_carry(found, self.device.carry_word_in_visit(found, visit, moved))
    }

    /// Returns the JFC index of an executed entry; first steps the queue if another thread marked it meanwhile.
    #[inline(always)]
    fn after_carry(
        &self,
        found: &QueueHandle,
        (index, is_marked): (Option<u32>, bool),
    ) -> Option<u32> {
        self.step_if(is_marked, found);
        index
    }

    /// Steps the queue if another thread marked it.
    #[inline(always)]
    pub fn step_if(&self, is_marked: bool, found: &QueueHandle) {
        if is_marked {
            self.step_found(found);
        }
    }

    /// Steps a queue after one of its requests was executed. Restores `errno`: system calls that find nothing set it,
    /// and a successful call must not. Executing alone makes no system call.
    #[cold]
    #[inline(never)]
    fn step_found(&self, found: &QueueHandle) {
        let before = Errno::last_raw();
        self.device.step_queue_found(found, || self.post_time());
        self.after_post();
        Errno::set_raw(before);
    }

    /// Executes an atomic, with both its blocks, that is not in the ring; `false`: nothing happened.
    #[inline]
    pub fn carry_atomic(&self, found: &QueueHandle, blocks: &[[u64; 8]; 2]) -> bool {
        !self.is_dead()
            && self.is_carried(self.device.carry_atomic(found, || self.post_time(), blocks))
    }

    /// Does the work that an executed entry left, if any. Returns whether it was executed.
    #[inline(always)]
    fn is_carried(&self, is_left: Option<bool>) -> bool {
        if is_left == Some(true) {
            self.after_post();
        }
        is_left.is_some()
    }

    /// Moves a JFC's consumer index by its handle, without arming it.
    #[inline]
    pub fn consume(&self, found: &FoundJfc, ci: u32) {
        if !self.is_dead() && self.device.consume(found, || self.post_time(), ci) {
            self.after_post();
        }
    }
}
