//! Room in the send ring: which positions are free again.
//!
//! *Owns*: nothing; the rule is that of [`super`]. *Takes*: what was polled, and the device's consumer record.
//! *Gives*: room for requests. *Must not*: free a position whose completion may still come.

use udma_abi::rqe::record;
use urma_core::PostReason;
use urma_mem::sync::Ordering;

use super::SendPoster;
use crate::{
    is_before,
    shadow::{SEQ_MASK, Tag},
};

impl SendPoster {
    #[inline]
    pub(super) fn find_room(&mut self, blocks: u32) -> Result<(), PostReason> {
        self.count_executed();
        if self.sure < blocks && !self.look_for_room(blocks) {
            return Err(PostReason::Full);
        }
        self.sure -= blocks;
        Ok(())
    }

    /// Counts the requests executed under the grant, and ends it.
    #[inline(always)]
    fn count_executed(&mut self) {
        if self.is_granting {
            let used = self.local_completions.passed_on().wrapping_sub(self.granted_from);
            self.end_grant();
            self.sure -= used;
            self.seq = self.seq.wrapping_add(used) & SEQ_MASK;
        }
    }

    /// Whether one more request may be executed locally.
    #[inline(always)]
    pub(super) fn has_grant(&self) -> bool {
        self.local_completions.passed_on() != self.granted_to
    }

    /// Ends the grant. Called when a request was passed on without one, and when `local_completions` changed.
    #[inline(always)]
    pub(super) fn end_grant(&mut self) {
        self.is_granting = false;
        self.granted_from = self.local_completions.passed_on();
        self.granted_to = self.granted_from;
    }

    /// Grants the local execution of as many requests as there is room for.
    #[inline(always)]
    pub(super) fn grant(&mut self) {
        let count = self.sure.min(self.local_completions.room(self.parts.jfc.local_completions()));
        self.is_granting = true;
        self.granted_from = self.local_completions.passed_on();
        self.granted_to = self.granted_from.wrapping_add(count);
    }

    /// Renews the grant of a queue whose requests were all polled, as when a program waits for each request; cheaper
    /// than [`SendPoster::grant_again`]. `false`: some were not polled.
    #[inline(always)]
    pub(super) fn grant_all(&mut self) -> bool {
        if self.local_completions.has_waiting(self.parts.jfc.local_completions()) {
            return false;
        }
        self.count_executed();
        (self.done, self.done_seq) = (self.pi, self.seq);
        self.sure = self.parts.depth.min(1 << self.parts.log2);
        self.grant();
        self.has_grant()
    }

    /// Renews the grant for the requests that were polled meanwhile, once all granted ones are used and nothing else
    /// was posted; `false`: nothing was polled.
    #[inline(never)]
    pub(super) fn grant_again(&mut self) -> bool {
        self.count_executed();
        let Some(end) = self.local_completions.take_end(self.parts.jfc.local_completions()) else {
            return false;
        };
        self.free_up_to(end);
        self.bound_outstanding();
        let (free, depth) = self.room();
        self.sure = free.min(depth);
        self.grant();
        self.has_grant()
    }

    /// Computes the room left in the ring and the depth; only here they grow.
    #[cold]
    fn look_for_room(&mut self, blocks: u32) -> bool {
        if self.is_all_polled() {
            (self.done, self.done_seq) = (self.pi, self.seq);
        }
        if !self.has_room(blocks) && !self.make_room(blocks) {
            return false;
        }
        let (free, depth) = self.room();
        self.sure = free.min(depth).max(blocks);
        true
    }

    /// Whether the newest polled completion is that of the newest request of an in-order queue: usual for a program
    /// that waits for each request.
    #[inline]
    fn is_all_polled(&self) -> bool {
        let polled = self.link.send.as_ref().map(|send| send.polled.load(Ordering::Acquire));
        self.parts.in_order && polled == Some(self.pi)
    }

    /// Blocks of the ring, and requests, that may be posted.
    #[inline]
    fn room(&self) -> (u32, u32) {
        let used = self.pi.wrapping_sub(self.done);
        let outstanding = self.seq.wrapping_sub(self.done_seq) & SEQ_MASK;
        let blocks = 1u32 << self.parts.log2;
        (blocks.saturating_sub(used), self.parts.depth.saturating_sub(outstanding))
    }

    #[inline]
    fn has_room(&self, blocks: u32) -> bool {
        let (free, depth) = self.room();
        blocks <= free && depth != 0
    }

    /// Looks for positions that have become free; lets the device work once if there are none.
    #[cold]
    fn make_room(&mut self, blocks: u32) -> bool {
        self.reclaim();
        if !self.has_room(blocks) {
            self.parts.jfc.let_device_work();
            self.reclaim();
        }
        self.has_room(blocks)
    }

    fn reclaim(&mut self) {
        let Some(send) = self.link.send.as_ref() else { return };
        let record = self.parts.record.region().load_u32_acquire(record::SQ_CI);
        if self.parts.in_order {
            let polled = send.polled.load(Ordering::Acquire);
            self.free_up_to(polled);
        }
        let ring = self.parts.jfc.local_completions();
        if let Some(end) = self.local_completions.take_end(ring) {
            self.free_up_to(end);
        }
        self.skip_consumed();
        // A record that lags behind `done`, or is beyond what was posted, frees nothing.
        let ring = self.parts.jfc.local_completions();
        let waits = self.local_completions.has_waiting(ring);
        if let Some(retired) = record.ok().filter(|ci| !waits && self.is_posted(*ci)) {
            self.use_snapshot(retired);
            self.skip_consumed();
        }
        let Some(tag) = self.tag(self.done) else { return };
        if tag.pos() == self.done && self.done != self.pi {
            self.done_seq = tag.seq();
        } else {
            self.bound_outstanding();
        }
    }

    /// Limits the number of outstanding requests to that of the blocks: locally executed ones have no tag.
    #[inline(always)]
    fn bound_outstanding(&mut self) {
        let most = self.pi.wrapping_sub(self.done);
        let outstanding = (self.seq.wrapping_sub(self.done_seq) & SEQ_MASK).min(most);
        self.done_seq = self.seq.wrapping_sub(outstanding) & SEQ_MASK;
    }

    /// Frees the positions before `end`, if they are posted.
    fn free_up_to(&mut self, end: u32) {
        if self.is_posted(end) && is_before(self.done, end) {
            self.done = end;
        }
    }

    /// Whether `pos` lies between `done` and the producer index.
    fn is_posted(&self, pos: u32) -> bool {
        pos.wrapping_sub(self.done) <= self.pi.wrapping_sub(self.done)
    }

    /// Advances `done` over requests whose own completion was polled.
    fn skip_consumed(&mut self) {
        while self.done != self.pi {
            let Some(tag) = self.tag(self.done) else { return };
            if tag.pos() != self.done || !tag.is_consumed() {
                break;
            }
            self.done = self.done.wrapping_add(tag.blocks());
        }
    }

    /// The tag at a position; `None` if it is another position's.
    #[inline]
    fn tag(&self, pos: u32) -> Option<Tag> {
        self.link.send.as_ref().map(|send| send.shadow.tag(pos))
    }

    /// Advances `done` to what was retired before everything that the caller has polled since.
    fn use_snapshot(&mut self, retired: u32) {
        if let Some((end, mark)) = self.snapshot {
            if is_before(self.parts.jfc.consumed(), mark) {
                return;
            }
            self.snapshot = None;
            if is_before(self.done, end) {
                self.done = end;
            }
        }
        if !is_before(self.done, retired) {
            return;
        }
        let Some(mark) = self.parts.jfc.produced() else { return };
        if is_before(self.parts.jfc.consumed(), mark) {
            self.snapshot = Some((retired, mark));
        } else {
            self.done = retired;
        }
    }
}
