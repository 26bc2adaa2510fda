//! A message that a poll waited for: taken without a step.
//!
//! *Owns*: nothing. *Takes*: the entry that a poll found where nothing was to be done before. *Gives*: the receive
//! completion, the end of the request that it acknowledges. *Must not*: take a second entry; leave anything to a
//! program that does not come back soon.
//!
//! A program that answers each message waits for this one alone. Another look at the ring would wait for a line
//! that the peer is about to write. What a step would find besides is the acknowledgement of the message, which
//! waits for the program's next post or poll in any case (`hold.rs`).

use udma_abi::Nanos;

use super::ack_delay::Answers;
use super::peer::FormTaken;
use super::state::{Exchange, ExchangeParts};
use crate::engine::core::DeviceCore;

impl Exchange {
    /// Takes the message that a poll found, if nothing else was to be done before it and the program comes back
    /// soon. Whether it did.
    #[inline]
    pub(crate) fn take_alone(&mut self, core: &DeviceCore, now: Nanos) -> bool {
        if self.hold.answers() != Answers::MayWait || !core.tables.has_message_lane() {
            return false;
        }
        let Some(from) = self.peers.awaited() else { return false };
        let ExchangeParts { peers, mut work, .. } = self.split(core, now);
        let taken = peers.get_mut(&from).and_then(|peer| peer.take_alone(&mut work));
        match taken {
            None => return false,
            Some(FormTaken::Answer) => self.turns.on_turn(),
            Some(FormTaken::Other) => self.turns.on_other(),
        }
        self.hold.on_taken(now);
        true
    }
}
