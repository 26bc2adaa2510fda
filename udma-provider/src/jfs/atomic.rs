//! FETCH_ADD and CAS that are posted alone.
//!
//! *Owns*: which atomic is the last one. *Takes*: a checked FETCH_ADD or CAS, or what differs from the last. *Gives*:
//! what differs to the doorbell, or the blocks in the ring. *Must not*: pass an atomic twice.

use udma_abi::{Addressed, Atomic, MovableAtomic, MovedWord, sqe::BLOCK_WORDS};
use urma_core::{
    PostReason,
    ops::{MovedAtomic, PostedAgain, TransferDelta},
};

use super::SendPoster;

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

    /// Posts an atomic like the last one.
    #[inline(always)]
    pub(super) fn post_atomic_again(&mut self, moved: &MovedAtomic) -> PostedAgain {
        if self.last_atomic.is_none() || !self.is_same_target() {
            return PostedAgain::NotTaken;
        }
        if self.find_room(Atomic::BLOCKS).is_err() {
            return PostedAgain::Full;
        }
        if self.is_word_carried && moved.transfer.is_signalled && self.carry_word(moved) {
            return PostedAgain::Posted;
        }
        self.give_moved_atomic(moved)
    }

    /// Has an atomic like the last one executed by the device; this driver makes its completion. `false`: nothing
    /// happened.
    #[inline(always)]
    fn carry_word(&mut self, moved: &MovedAtomic) -> bool {
        if self.carried.room(self.parts.jfc.carried()) == 0 {
            return false;
        }
        let Some(next) = self.doorbell.carry_word(&word_of(moved, self.pi)) else { return false };
        self.pass_on((Atomic::BLOCKS, next), (moved.transfer.user_ctx, moved.transfer.len));
        true
    }

    /// Posts an atomic like the last one with both its blocks, when there is room: the device refused the short form.
    #[inline(never)]
    fn give_moved_atomic(&mut self, moved: &MovedAtomic) -> PostedAgain {
        let TransferDelta { user_ctx, is_signalled, .. } = moved.transfer;
        let (_, owner) = self.place();
        let word = word_of(moved, self.pi);
        let Some(last) = self.last_atomic else { return PostedAgain::NotTaken };
        let given = self
            .note_blocks(Atomic::BLOCKS, user_ctx)
            .and_then(|at| self.give_atomic(at, &last.moved(&word, (owner, is_signalled))));
        match given {
            Ok(()) => PostedAgain::Posted,
            Err(_) => PostedAgain::NotTaken,
        }
    }

    /// Passes both blocks of the atomic at position `at`, where it is recorded.
    fn give_atomic(&mut self, at: u32, blocks: &[[u64; BLOCK_WORDS]; 2]) -> Result<(), PostReason> {
        self.is_word_carried = self.doorbell.carry_atomic(blocks);
        if !self.is_word_carried {
            self.store_atomic(at, blocks)?;
            self.parts.jfc.show_room();
            self.doorbell.ring(self.pi);
        } else {
            self.claim_carried();
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
fn word_of(moved: &MovedAtomic, pi: u32) -> MovedWord {
    let MovedAtomic { transfer, operand, compare } = *moved;
    let (remote_va, local_va, len) = (transfer.remote, transfer.local, transfer.len);
    MovedWord { pi, remote_va, local_va, len, operand, compare }
}
