//! FETCH_ADD, CAS, and SENDs and SEND_IMMs of one piece that are posted alone.
//!
//! Remembers the last atomic and the last message, so that the next one like it passes only what differs. Must not
//! pass an atomic twice, or remember a message with an immediate.

use udma_abi::{
    Addressed, Atomic, DirectEntry, MovableAtomic, MovableBlock, MovedWord, SendDoorbell,
    sqe::BLOCK_WORDS,
};
use urma_core::{
    PostReason, SendWr,
    ops::{AtomicDelta, TransferDelta},
};
use urma_mem::sync::Ordering;

use super::SendPoster;
use crate::sqe;

impl SendPoster {
    /// Posts a FETCH_ADD or CAS: by the doorbell if the device executes it at once, else through the ring.
    #[inline(never)]
    pub(super) fn post_atomic(
        &mut self,
        (mut atomic, to): (Atomic, Addressed),
        user_ctx: u64,
    ) -> Result<(), PostReason> {
        self.find_room(Atomic::BLOCKS)?;
        (atomic.request.entry_idx, atomic.request.owner) = self.place();
        let blocks = atomic.encode(&to);
        let at = self.note_blocks(Atomic::BLOCKS, user_ctx)?;
        let given = self.give_atomic(at, &blocks);
        self.last_atomic = given.is_ok().then(|| MovableAtomic::new(blocks));
        given
    }

    /// Posts an atomic like the last one. Returns how many were posted.
    #[inline(never)]
    pub(super) fn repeat_atomic(&mut self, delta: &AtomicDelta) -> usize {
        let is_gone = self.parts.failed.load(Ordering::Relaxed);
        if self.last_atomic.is_none() || is_gone || self.find_room(Atomic::BLOCKS).is_err() {
            return 0;
        }
        // The device checks queue and target: if one of them ended since, it refuses.
        if self.is_atomic_executed && delta.transfer.is_signalled && self.execute_atomic(delta) {
            return 1;
        }
        self.give_moved_atomic(delta)
    }

    /// Has an atomic like the last one executed by the device; this driver makes its completion. `false`: nothing
    /// happened.
    #[inline(always)]
    fn execute_atomic(&mut self, moved: &AtomicDelta) -> bool {
        if self.local_completions.room(self.parts.jfc.local_completions()) == 0 {
            return false;
        }
        let word = word_of(moved, self.pi);
        let next = self.doorbell.execute(DirectEntry::RepeatedAtomic(&word));
        let Some(next) = next else { return false };
        self.pass_on((Atomic::BLOCKS, next), (moved.transfer.user_ctx, moved.transfer.len));
        true
    }

    /// Posts an atomic like the last one with both its blocks, when there is room: the device refused the short form.
    #[inline(never)]
    fn give_moved_atomic(&mut self, moved: &AtomicDelta) -> usize {
        let TransferDelta { user_ctx, is_signalled, .. } = moved.transfer;
        let (_, owner) = self.place();
        let word = word_of(moved, self.pi);
        let Some(last) = self.last_atomic.filter(|_| self.is_same_target()) else {
            self.sure += Atomic::BLOCKS;
            return 0;
        };
        let given = self
            .note_blocks(Atomic::BLOCKS, user_ctx)
            .and_then(|at| self.give_atomic(at, &last.moved(&word, (owner, is_signalled))));
        usize::from(given.is_ok())
    }

    /// Passes both blocks of the atomic at position `at`, where it is recorded.
    fn give_atomic(&mut self, at: u32, blocks: &[[u64; BLOCK_WORDS]; 2]) -> Result<(), PostReason> {
        self.is_atomic_executed = self.doorbell.execute(DirectEntry::Atomic(blocks)).is_some();
        if !self.is_atomic_executed {
            self.store_atomic(at, blocks)?;
            self.parts.jfc.show_room();
            self.doorbell.ring(SendDoorbell::Producer(self.pi));
        } else {
            self.claim_local();
        }
        Ok(())
    }

    /// Stores both blocks of an atomic at position `at`; the ring may wrap between them.
    #[inline]
    pub(super) fn store_atomic(
        &self,
        at: u32,
        blocks: &[[u64; BLOCK_WORDS]; 2],
    ) -> Result<(), PostReason> {
        self.store_block(at, &blocks[0])?;
        self.store_block(at.wrapping_add(1), &blocks[1])
    }
}

/// The fields of `moved` for the device, at position `pi`.
#[inline(always)]
fn word_of(moved: &AtomicDelta, pi: u32) -> MovedWord {
    let AtomicDelta { transfer, operand, compare } = *moved;
    let (remote_va, local_va, len) = (transfer.remote, transfer.local, transfer.len);
    MovedWord { pi, remote_va, local_va, len, operand, compare }
}

impl SendPoster {
    /// Posts a SEND or SEND_IMM of one piece; `None`: it is another request.
    // One function from request to block: fields that pass through memory would be waited for.
    #[inline(never)]
    pub(super) fn post_message(&mut self, wr: &SendWr<'_>) -> Option<Result<(), PostReason>> {
        let (mut message, eid) = sqe::message_of(wr, self.target.as_ref())?;
        if let Err(reason) = self.find_room(1) {
            return Some(Err(reason));
        }
        (message.entry_idx, message.owner) = self.place();
        let block = MovableBlock::new(message.encode(eid));
        let given = self.give_message(block.block(), wr.user_ctx);
        // A message with an immediate must not serve as the last one for messages without.
        if message.imm.is_none() {
            self.last_message = Some(block).filter(|_| given.is_ok());
        }
        Some(given)
    }

    /// Posts a message like the last one. Returns how many were posted.
    #[inline(never)]
    pub(super) fn repeat_message(&mut self, delta: &TransferDelta) -> usize {
        let place = self.place();
        let Some(mut last) = self.last_message.filter(|_| self.is_same_target()) else {
            return 0;
        };
        if self.find_room(1).is_err() {
            return 0;
        }
        // Word 5 is the immediate, which a SEND does not have.
        last.move_to((place.0, place.1, delta.is_signalled), (0, delta.local, delta.len));
        usize::from(self.give_message(last.block(), delta.user_ctx).is_ok())
    }

    /// Stores the block of a message, for which there is room, and passes it with the doorbell.
    #[inline(always)]
    fn give_message(
        &mut self,
        block: &[u64; BLOCK_WORDS],
        user_ctx: u64,
    ) -> Result<(), PostReason> {
        self.store_block(self.pi, block)?;
        self.note_block(user_ctx)?;
        self.parts.jfc.show_room();
        self.doorbell.ring(SendDoorbell::Direct(block));
        Ok(())
    }
}
