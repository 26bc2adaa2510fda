//! Pieces of requests in the models of a NIC: packet engine and context cache.
//!
//! *Takes*: pieces of requests. *Gives*: when those that go by packets may go. *Must not*: change or refuse a piece.

use udma_abi::{Nanos, Sqe};

use crate::carrier::{Carrier, PeerCarrier};
use crate::context::counts::Counts;
use crate::context::model::{ContextModel, LookedUp};
use crate::context::tables::Tables;
use crate::endpoint::{PacketEngine, TpEndpoint};
use crate::exchange::initiator::flow::Request;
use crate::exchange::initiator::next_piece::NextPiece;

/// Queue, piece and request.
type PieceOf<'a> = (u32, &'a NextPiece, &'a Request);

/// When the piece may be sent, in virtual time; 0: now. The packet engine processes its message at the first piece.
#[inline(always)]
pub(crate) fn ready_at(
    endpoint: &mut TpEndpoint,
    carrier: &Carrier,
    of: PieceOf<'_>,
    (now, counts): (Nanos, &Counts),
) -> Nanos {
    match (&mut endpoint.packet_engine, carrier) {
        (Some(engine), Carrier::Packets(_)) => ended_at(engine, of, (now, counts)),
        _ => 0,
    }
}

#[cold]
fn ended_at(
    engine: &mut PacketEngine,
    (queue, piece, request): PieceOf<'_>,
    (now, counts): (Nanos, &Counts),
) -> Nanos {
    if !engine.is_timed() {
        return 0;
    }
    let key = (queue, request.seq);
    if piece.begins_payload() && !engine.knows(key) {
        engine.message((now, key), request.local.sizes(&request.words), counts);
    }
    engine.packet_ready_at(key, u64::from(request.pushed) + u64::from(piece.len_u32()))
}

/// Notes that the piece was given to the carrier.
#[inline(always)]
pub(crate) fn on_pushed(
    endpoint: &mut TpEndpoint,
    line: &PeerCarrier,
    tables: &Tables,
    of: PieceOf<'_>,
) {
    if endpoint.packet_engine.is_some() || tables.contexts.is_some() {
        note_pushed(endpoint, line, tables, of);
    }
}

#[cold]
fn note_pushed(endpoint: &mut TpEndpoint, line: &PeerCarrier, tables: &Tables, of: PieceOf<'_>) {
    if let Some(engine) = endpoint.packet_engine.as_mut().filter(|_| line.is_packets()) {
        let (queue, piece, request) = of;
        let key = (queue, request.seq);
        if !engine.is_timed() && piece.begins_payload() {
            engine.message((0, key), request.local.sizes(&request.words), &tables.counts);
        } else if piece.is_last() {
            engine.end(key);
        }
    }
    if let Some(contexts) = &tables.contexts {
        pin(contexts, of);
    }
}

/// Keeps queue and TP on the chip from the first to the last piece of a message with several.
#[cold]
fn pin(contexts: &ContextModel, (queue, piece, request): PieceOf<'_>) {
    if piece.is_first() == piece.is_last() {
        return;
    }
    let tp = Sqe::decode(&request.words).map(|sqe| LookedUp::Tp(sqe.tpn));
    let all = std::iter::once(LookedUp::Queue(queue)).chain(tp);
    contexts.pin(all, piece.is_first());
}
