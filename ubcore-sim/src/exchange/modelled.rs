//! Messages of requests in the models of a NIC: packet engine and context cache.
//!
//! *Takes*: pieces of requests. *Gives*: when those that go by packets may go. *Must not*: change or refuse a piece.

use udma_abi::{Nanos, Sqe};

use super::flow::Request;
use super::next_piece::NextPiece;
use crate::context::counts::Counts;
use crate::context::model::{ContextModel, LookedUp};
use crate::endpoint::PacketEngine;

/// The next piece of a request of a queue.
type PieceOf<'a> = (u32, &'a NextPiece, &'a Request);

impl PacketEngine {
    /// When the piece may go, in virtual time; 0: now. The model runs its message when that wants to begin.
    pub(super) fn ready_at(&mut self, now: Nanos, of: PieceOf<'_>, counts: &Counts) -> Nanos {
        if !self.is_timed() {
            return 0;
        }
        let (queue, piece, request) = of;
        let key = (queue, request.seq);
        if piece.begins_payload() && !self.knows(key) {
            self.message((now, key), request.local.sizes(&request.words), counts);
        }
        self.packet_ready_at(key, u64::from(request.pushed) + u64::from(piece.len_u32()))
    }

    /// The piece went.
    pub(super) fn on_pushed(&mut self, (queue, piece, request): PieceOf<'_>, counts: &Counts) {
        let key = (queue, request.seq);
        if !self.is_timed() && piece.begins_payload() {
            self.message((0, key), request.local.sizes(&request.words), counts);
        } else if piece.is_last() {
            self.end(key);
        }
    }
}

/// A piece of a message of several went: its queue and TP stay on the chip from the first to the last.
#[cold]
pub(super) fn pin(contexts: &ContextModel, (queue, piece, request): PieceOf<'_>) {
    if piece.is_first() == piece.is_last() {
        return;
    }
    let tp = Sqe::decode(&request.words).map(|sqe| LookedUp::Tp(sqe.tpn));
    let all = std::iter::once(LookedUp::Queue(queue)).chain(tp);
    contexts.pin(all, piece.is_first());
}
