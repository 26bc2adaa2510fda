//! SENDs and SEND_IMMs of one piece that are posted alone.
//!
//! *Owns*: which message is the last one. *Takes*: a checked SEND or SEND_IMM of one piece, or what differs from the
//! last. *Gives*: its block in the ring and to the doorbell. *Must not*: remember a message with an immediate.

use udma_abi::{MovableBlock, SendDoorbell, sqe::BLOCK_WORDS};
use urma_core::{PostReason, SendWr, ops::TransferDelta};

use super::SendPoster;
use crate::sqe;

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
