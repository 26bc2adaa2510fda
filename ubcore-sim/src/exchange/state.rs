//! All state of the exchange.
//!
//! *Owns*: peers, paths, queues as the exchange knows them, the endpoint below. *Must not*: act by itself.

use std::collections::BTreeMap;

use udma_abi::{Nanos, RawEid};
use urma_mem::Region;

use crate::cfg::DeviceCfg;
use crate::context::function::FunctionId;
use crate::context::segment::SegmentCache;
use crate::endpoint::TpEndpoint;
use crate::engine::core::DeviceCore;
use crate::exchange::ack_delay::{AckDelay, Answers, PROMPT_NS, RETURNS_MIN};
use crate::exchange::context::ExchangeContext;
use crate::exchange::initiator::send_queues::SendQueueTable;
use crate::exchange::owners::LoopbackOwners;
use crate::exchange::peers::KnownPeers;
use crate::exchange::peers::path::UsedPath;
use crate::exchange::peers::peer::Peer;
use crate::exchange::standard::StandardJetties;
use crate::exchange::target::guesses::TargetGuesses;
use crate::exchange::target::receive::ReceivingSides;
use crate::exchange::turns::Turns;

/// All state of the exchange: peers, paths, queues and outstanding requests of one node.
#[derive(Debug)]
pub(crate) struct Exchange {
    /// Source and destination of packets.
    pub(crate) endpoint: TpEndpoint,
    pub(crate) peers: KnownPeers,
    /// Users of the loopback addresses of this host, for the places of peers.
    pub(crate) owners: LoopbackOwners,
    /// Token guesses of all peers.
    pub(crate) targets: TargetGuesses,
    /// Halves of the peers on this host.
    pub(crate) peer_halves: BTreeMap<RawEid, Region>,
    pub(crate) paths: BTreeMap<u32, UsedPath>,
    /// Paths without users, and when to check them at the latest.
    pub(crate) closing: Vec<u32>,
    pub(crate) look_at: Nanos,
    pub(crate) senders: SendQueueTable,
    /// RC jetties that speak the standard opcodes.
    pub(crate) standard: StandardJetties,
    /// Whether the last packet sent was of a standard jetty.
    pub(crate) sent_standard: bool,
    pub(crate) receives: ReceivingSides,
    pub(crate) ack_delay: AckDelay,
    /// Decides when ping-pong mode begins.
    pub(crate) turns: Turns,
    /// Whether acknowledgements of messages from packets may wait: a poll of the program took the latest.
    pub(crate) packet_answers: Answers,
    /// Cache of segments that peers accessed.
    pub(crate) cache: SegmentCache,
    /// Cache of segments that receives named, of one function.
    pub(crate) receive_cache: SegmentCache,
    /// Buffer for the payload of the piece that is sent.
    pub(crate) bytes: Vec<u8>,
    /// Buffer for the payload of the piece that was received.
    pub(crate) inbox: Vec<u8>,
}

/// The exchange taken apart, while one of its peers or connections works.
pub(crate) struct ExchangeParts<'a> {
    pub(crate) peers: &'a mut BTreeMap<RawEid, Peer>,
    pub(crate) standard: &'a mut StandardJetties,
    /// Everything that the work for one of them needs.
    pub(crate) work: ExchangeContext<'a>,
    pub(crate) inbox: &'a mut Vec<u8>,
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
            ack_delay: AckDelay::new(PROMPT_NS, cfg.ping_pongs.least(RETURNS_MIN)),
            turns: Turns::new(cfg.ping_pongs),
            packet_answers: Answers::Go,
            cache: SegmentCache::of_any(),
            receive_cache: SegmentCache::of(FunctionId::FIRST),
            bytes: Vec::new(),
            inbox: Vec::new(),
        }
    }

    /// Takes the exchange apart, to work on several peers.
    pub(crate) fn split<'a>(&'a mut self, core: &'a DeviceCore, now: Nanos) -> ExchangeParts<'a> {
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

    /// Calls `f` for each peer.
    pub(crate) fn each_peer(
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
