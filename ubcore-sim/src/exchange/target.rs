//! Requests of a peer's queues to this node, from a piece to its answer.
//!
//! Must not place a byte before rights, state and bounds of the target were checked. The model of a NIC says when a
//! request may start; it does not admit or refuse one, or take a receive.

pub(crate) mod guesses;
pub(crate) mod memory;
pub(crate) mod message;
pub(crate) mod receive;
pub(crate) mod responder;
mod serve;

use memory::token_id;
use message::ask;
use receive::Unsequenced;
use udma_abi::Nanos;
use urma_packet::{RequestFlags, RequestHeader, RequestOp};

use crate::{
    carrier::piece::{Inbound, Payload},
    exchange::ExchangeContext,
    nic::LookedUp,
};

/// A piece of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestFragment<'a> {
    pub(crate) header: &'a RequestHeader,
    pub(crate) payload: Payload,
    pub(crate) bytes: &'a [u8],
}

impl RequestFragment<'_> {
    pub(crate) fn is_first(&self) -> bool {
        self.header.flags.contains(RequestFlags::FIRST)
    }

    pub(crate) fn is_last(&self) -> bool {
        self.header.flags.contains(RequestFlags::LAST)
    }

    /// Whether the rest of its message will not come.
    pub(crate) fn breaks_off(&self) -> bool {
        self.payload == Payload::Here && self.header.breaks_off(self.bytes.len())
    }

    /// Number of payload bytes that this piece stands for.
    pub(crate) fn len(&self) -> u32 {
        match self.payload {
            Payload::Placed => self.header.access.length,
            Payload::Named(bytes) => bytes.len,
            // A piece is at most `PIECE_MAX` or a path MTU long.
            Payload::Here => u32::try_from(self.bytes.len()).unwrap_or(u32::MAX),
        }
    }
}

/// Source of a request, as completions name it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestSource {
    pub(crate) eid: udma_abi::RawEid,
    pub(crate) tpn: u32,
}

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
