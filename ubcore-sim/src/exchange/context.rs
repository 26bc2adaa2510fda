//! What the work for one peer needs of everything else.
//!
//! *Owns*: borrows, for one call. *Must not*: reach another peer.

use udma_abi::{Nanos, RawEid};

use super::guesses::{self, Guesser, TargetGuesses};
use super::owners::LoopbackOwners;
use super::receive::ReceivingSides;
use super::send_queues::SendQueueTable;
use crate::context::function::FunctionId;
use crate::context::segment::SegmentCache;
use crate::endpoint::TpEndpoint;
use crate::engine::core::DeviceCore;
use crate::engine::gather::Segments;

/// What the work for one peer needs of everything else.
#[derive(Debug)]
pub(super) struct ExchangeContext<'a> {
    pub(super) core: &'a DeviceCore,
    pub(super) now: Nanos,
    pub(super) senders: &'a mut SendQueueTable,
    pub(super) receives: &'a mut ReceivingSides,
    pub(super) endpoint: &'a mut TpEndpoint,
    /// What peers guess of tokens, and for whom.
    pub(super) targets: &'a mut TargetGuesses,
    pub(super) owners: &'a mut LoopbackOwners,
    /// Segments for accesses of peers.
    pub(super) cache: &'a mut SegmentCache,
    /// Segments for receives, of one function at a time.
    pub(super) receive_cache: &'a mut SegmentCache,
    pub(super) bytes: &'a mut Vec<u8>,
}

impl ExchangeContext<'_> {
    /// Who a peer guesses tokens for.
    pub(super) fn guesser(&mut self, eid: RawEid) -> Guesser {
        guesses::guesser(self.owners, self.now, eid, self.core.tables.cfg.loopback_owners)
    }

    /// All segments, for an access of a peer.
    pub(super) fn segments(&mut self) -> Segments<'_> {
        Segments { cache: self.cache, table: &self.core.tables.segments }
    }

    /// The segments that a receive of `owner` may name.
    pub(super) fn segments_of(&mut self, owner: FunctionId) -> Segments<'_> {
        let cache = self.receive_cache.turn_to(owner);
        Segments { cache, table: &self.core.tables.segments }
    }
}
