//! Pieces of requests in the model of a NIC: what is gathered and cut, which contexts stay on the chip.
//!
//! *Takes*: pieces of requests. *Gives*: when those that go by packets may go. *Must not*: change or refuse a piece.

use udma_abi::{Nanos, Sqe};

use crate::carrier::{Carrier, PeerCarrier};
use crate::context::plugged::PluggedModel;
use crate::context::tables::Tables;
use crate::exchange::initiator::flow::Request;
use crate::exchange::initiator::next_piece::NextPiece;
use crate::nic::{LookedUp, Lookup};

/// Queue, piece and request.
type PieceOf<'a> = (u32, &'a NextPiece, &'a Request);

/// When the piece may be sent, in virtual time; 0: now. The model takes its message at the first piece.
#[inline(always)]
pub(crate) fn ready_at(tables: &Tables, carrier: &Carrier, of: PieceOf<'_>, now: Nanos) -> Nanos {
    match (&tables.nic, carrier) {
        (Some(nic), Carrier::Packets(_)) if nic.is_paced() => cut_at(nic, of, now),
        _ => 0,
    }
}

#[cold]
fn cut_at(nic: &PluggedModel, (queue, piece, request): PieceOf<'_>, now: Nanos) -> Nanos {
    let key = (queue, request.seq);
    if piece.begins_payload() && !nic.knows(key) {
        nic.on_message((now, key), request.local.sizes(&request.words));
    }
    nic.packet_ready_at(key, u64::from(request.pushed) + u64::from(piece.len_u32()))
}

/// Notes that the piece was given to the carrier.
#[inline(always)]
pub(crate) fn on_pushed(tables: &Tables, line: &PeerCarrier, of: PieceOf<'_>, now: Nanos) {
    if let Some(nic) = &tables.nic {
        note_pushed(nic, line, of, now);
    }
}

#[cold]
fn note_pushed(nic: &PluggedModel, line: &PeerCarrier, of: PieceOf<'_>, now: Nanos) {
    let (queue, piece, request) = of;
    if nic.has_messages() && line.is_packets() {
        let key = (queue, request.seq);
        if nic.is_paced() {
            if piece.is_last() {
                nic.end_message(key);
            }
        } else if piece.begins_payload() {
            nic.on_message((now, key), request.local.sizes(&request.words));
        }
    }
    // Queue and TP stay on the chip from the first to the last piece of a message with several.
    if nic.has_contexts() && piece.is_first() != piece.is_last() {
        let tp = Sqe::decode(&request.words).map(|sqe| LookedUp::Tp(sqe.tpn));
        let lookup = if piece.is_first() { Lookup::Pin } else { Lookup::Unpin };
        nic.on_lookup(lookup, std::iter::once(LookedUp::Queue(queue)).chain(tp));
    }
}
