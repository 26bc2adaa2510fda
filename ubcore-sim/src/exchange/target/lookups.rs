//! Context lookups for a peer's pieces in the model of a NIC, and pieces that wait for them.
//!
//! *Owns*: which contexts a request needs at its target. *Takes*: headers. *Gives*: when the request may start. *Must
//! not*: admit or refuse a request, take a receive.

use udma_abi::Nanos;
use urma_packet::{RequestFlags, RequestHeader, RequestOp};

use crate::carrier::piece::Inbound;
use crate::exchange::context::ExchangeContext;
use crate::exchange::target::fragment::RequestSource;
use crate::exchange::target::memory::token_id;
use crate::exchange::target::message::ask;
use crate::exchange::target::object::Unsequenced;
use crate::nic::LookedUp;

/// A piece that waits for the contexts of its request, in virtual time.
#[derive(Debug)]
pub(crate) struct WaitingPiece {
    pub(crate) ready_at: Nanos,
    pub(crate) piece: Inbound,
    pub(crate) bytes: Vec<u8>,
}

/// Looks up what a request needs, when its first piece arrived. Returns when it may start; 0: now.
pub(crate) fn look_up(
    work: &mut ExchangeContext<'_>,
    from: RequestSource,
    header: &RequestHeader,
) -> Nanos {
    if !header.flags.contains(RequestFlags::FIRST) {
        return 0;
    }
    let mut all = receive(work, from, header);
    all.extend(segment(work, header));
    let contexts = work.core.tables.contexts().filter(|_| !all.is_empty());
    contexts.map_or(0, |contexts| contexts.look_up(all.into_iter()))
}

/// Contexts that are needed to receive a message.
fn receive(
    work: &ExchangeContext<'_>,
    from: RequestSource,
    header: &RequestHeader,
) -> Vec<LookedUp> {
    let is_datagram = header.flags.contains(RequestFlags::DATAGRAM);
    let datagram = if is_datagram { Unsequenced::Yes } else { Unsequenced::No };
    ask(from, header, datagram).map_or_else(Vec::new, |ask| work.receives.look_ahead(&ask))
}

/// The segment that a request names. A segment that is not alive has no context.
fn segment(work: &mut ExchangeContext<'_>, header: &RequestHeader) -> Option<LookedUp> {
    let names = !matches!(
        header.op,
        RequestOp::Send
            | RequestOp::SendImm(_)
            | RequestOp::SendInvalidate(_)
            | RequestOp::FlushDma
    );
    let token_id = token_id(header.access.token_id);
    let segments = work.segments();
    let is_there = names && segments.cache.find(segments.table, token_id).is_some();
    is_there.then_some(LookedUp::Segment { token_id, va: header.access.address })
}
