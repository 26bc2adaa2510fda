//! Arguments that the work for one peer needs.
//!
//! *Owns*: borrows, for one call. *Must not*: reach another peer.

use udma_abi::{Nanos, RawEid};

use crate::context::function::FunctionId;
use crate::context::segment::SegmentCache;
use crate::endpoint::TpEndpoint;
use crate::engine::core::DeviceCore;
use crate::engine::gather::Segments;
use crate::exchange::initiator::send_queues::SendQueueTable;
use crate::exchange::owners::LoopbackOwners;
use crate::exchange::target::guesses::{self, Guesser, TargetGuesses};
use crate::exchange::target::receive::ReceivingSides;

/// Everything that the work for one peer needs besides the peer.
#[derive(Debug)]
pub(crate) struct ExchangeContext<'a> {
    pub(crate) core: &'a DeviceCore,
    pub(crate) now: Nanos,
    pub(crate) senders: &'a mut SendQueueTable,
    pub(crate) receives: &'a mut ReceivingSides,
    pub(crate) endpoint: &'a mut TpEndpoint,
    /// Token guesses of peers, and whom they count for.
    pub(crate) targets: &'a mut TargetGuesses,
    pub(crate) owners: &'a mut LoopbackOwners,
    /// Segment cache for accesses of peers.
    pub(crate) cache: &'a mut SegmentCache,
    /// Segment cache for receives, of one function at a time.
    pub(crate) receive_cache: &'a mut SegmentCache,
    pub(crate) bytes: &'a mut Vec<u8>,
}

impl ExchangeContext<'_> {
    /// The source that a peer's token guesses count for.
    pub(crate) fn guesser(&mut self, eid: RawEid) -> Guesser {
        guesses::guesser(self.owners, self.now, eid, self.core.tables.cfg.loopback_owners)
    }

    /// All segments, for an access of a peer.
    pub(crate) fn segments(&mut self) -> Segments<'_> {
        Segments { cache: self.cache, table: &self.core.tables.segments }
    }

    /// Access to the segments that a receive of `owner` may name.
    pub(crate) fn segments_of(&mut self, owner: FunctionId) -> Segments<'_> {
        let cache = self.receive_cache.turn_to(owner);
        Segments { cache, table: &self.core.tables.segments }
    }
}
