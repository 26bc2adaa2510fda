//! Messages of requests in the model of the packet engine.
//!
//! *Takes*: pieces of requests that go by packets. *Gives*: when they may go. *Must not*: change or refuse a piece.

use udma_abi::Nanos;

use super::flow::Request;
use super::next_piece::NextPiece;
use crate::context::counts::Counts;
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
