//! Everything of the exchange.
//!
//! *Owns*: peers, paths, queues as the exchange knows them, the endpoint below. *Must not*: do anything
//! by itself.

use std::collections::BTreeMap;

use udma_abi::{Nanos, RawEid};
use urma_mem::Region;

use super::ack_delay::{AckDelay, Answers, PROMPT_NS, RETURNS_MIN};
use super::context::ExchangeContext;
use super::guesses::TargetGuesses;
use super::owners::LoopbackOwners;
use super::path::UsedPath;
use super::peer::Peer;
use super::peers::KnownPeers;
use super::receive::ReceivingSides;
use super::send_queues::SendQueueTable;
use super::standard::StandardJetties;
use super::turns::Turns;
use crate::cfg::DeviceCfg;
use crate::context::function::FunctionId;
use crate::context::segment::SegmentCache;
use crate::endpoint::TpEndpoint;
use crate::engine::core::DeviceCore;

/// KnownPeers, paths, queues and outstanding requests of one node.
#[derive(Debug)]
pub(crate) struct Exchange {
    /// What packets come from and go to.
    pub(crate) endpoint: TpEndpoint,
    pub(super) peers: KnownPeers,
    /// Whose the places of peers from this host are.
    pub(super) owners: LoopbackOwners,
    /// What peers guess of tokens.
    pub(super) targets: TargetGuesses,
    /// Halves of peers on this host.
    pub(super) peer_halves: BTreeMap<RawEid, Region>,
    pub(super) paths: BTreeMap<u32, UsedPath>,
    /// Paths without users, and when to look at them at the latest.
    pub(super) closing: Vec<u32>,
    pub(super) look_at: Nanos,
    pub(super) senders: SendQueueTable,
    /// RC jetties that speak the standard opcodes.
    pub(crate) standard: StandardJetties,
    /// The packet before was one of theirs.
    pub(super) sent_standard: bool,
    pub(crate) receives: ReceivingSides,
    pub(super) hold: AckDelay,
    /// When a ping-pong begins.
    pub(super) turns: Turns,
    /// Whether acknowledgements of messages that packets brought may wait: a poll of the program took the latest.
    pub(super) packet_answers: Answers,
    /// Segments that peers touched lately.
    pub(super) cache: SegmentCache,
    /// Segments that receives named lately, of one function.
    pub(super) receive_cache: SegmentCache,
    /// Payload of the piece that is sent.
    pub(super) bytes: Vec<u8>,
    /// Payload of the piece that was received.
    pub(super) inbox: Vec<u8>,
}

/// The exchange while one of its peers or connections works.
pub(super) struct ExchangeParts<'a> {
    pub(super) peers: &'a mut BTreeMap<RawEid, Peer>,
    pub(super) standard: &'a mut StandardJetties,
    /// What work for one of them needs.
    pub(super) work: ExchangeContext<'a>,
    pub(super) inbox: &'a mut Vec<u8>,
}

impl Exchange {
    pub(crate) fn new(cfg: &DeviceCfg) -> Self {
        Self {
            endpoint: TpEndpoint::new(cfg),
            peers: KnownPeers::default(),
            owners: LoopbackOwners::default(),
            targets: TargetGuesses::default(),
            peer_halves: BTreeMap::new(),
            paths: BTreeMap::new(),
            closing: Vec::new(),
            look_at: Nanos::MAX,
            senders: SendQueueTable::default(),
            standard: StandardJetties::default(),
            sent_standard: false,
            receives: ReceivingSides::default(),
            hold: AckDelay::new(PROMPT_NS, cfg.ping_pongs.least(RETURNS_MIN)),
            turns: Turns::new(cfg.ping_pongs),
            packet_answers: Answers::Go,
            cache: SegmentCache::of_any(),
            receive_cache: SegmentCache::of(FunctionId::FIRST),
            bytes: Vec::new(),
            inbox: Vec::new(),
        }
    }

    /// Takes it apart for work with several peers.
    pub(super) fn split<'a>(&'a mut self, core: &'a DeviceCore, now: Nanos) -> ExchangeParts<'a> {
        let Self {
            peers,
            standard,
            senders,
            receives,
            endpoint,
            targets,
            owners,
            bytes,
            inbox,
            ..
        } = self;
        let (cache, receive_cache) = (&mut self.cache, &mut self.receive_cache);
        let work = ExchangeContext {
            core,
            now,
            senders,
            receives,
            endpoint,
            targets,
            owners,
            cache,
            receive_cache,
            bytes,
        };
        ExchangeParts { peers, standard, work, inbox }
    }

    /// Runs `f` on each peer with everything else at hand.
    pub(super) fn each_peer(
        &mut self,
        core: &DeviceCore,
        now: Nanos,
        mut f: impl FnMut(&mut Peer, &mut ExchangeContext<'_>, &mut Vec<u8>),
    ) {
        let ExchangeParts { peers, mut work, inbox, .. } = self.split(core, now);
        for peer in peers.values_mut() {
            f(peer, &mut work, inbox);
        }
    }
}
