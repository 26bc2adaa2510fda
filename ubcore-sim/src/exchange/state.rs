//! Everything of the exchange.
//!
//! *Owns*: peers, ways, queues as the exchange knows them, numbers, the loss records' pool. *Must not*:
//! do anything by itself.

use std::collections::BTreeMap;

use udma_abi::{Nanos, RawEid};
use urma_mem::Region;

use super::numbers::Numbers;
use super::peer::Peer;
use super::receive::ReceivingSides;
use super::recent::RecentDatagrams;
use super::replies::Replies;
use super::senders::Senders;
use super::way::UsedPath;
use super::work::Work;
use crate::cfg::DeviceCfg;
use crate::context::segment::SegmentCache;
use crate::engine::base::Base;
use crate::transport::{Challenger, KnittingPool};

/// Peers, paths, queues and requests under way of one node.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(super) cfg: DeviceCfg,
    pub(super) peers: BTreeMap<RawEid, Peer>,
    /// Halves of peers on this host.
    pub(super) peer_halves: BTreeMap<RawEid, Region>,
    pub(super) ways: BTreeMap<u32, UsedPath>,
    /// Ways without users, and when to look at them at the latest.
    pub(super) closing: Vec<u32>,
    pub(super) look_at: Nanos,
    pub(super) numbers: Numbers,
    /// Checks that nodes receive at their addresses.
    pub(super) challenger: Challenger,
    pub(super) replies: Replies,
    /// Datagrams of nodes, so that none counts twice.
    pub(super) recent: RecentDatagrams,
    pub(super) senders: Senders,
    pub(super) receives: ReceivingSides,
    pub(super) pool: KnittingPool,
    /// Segments that peers touched lately.
    pub(super) cache: SegmentCache,
    /// Payload on its way out, and on its way in.
    pub(super) bytes: Vec<u8>,
    pub(super) inbox: Vec<u8>,
    /// Node whose turn it is to send a packet.
    pub(super) turn: RawEid,
    /// Packets given to the link and not counted yet.
    pub(super) transmitted: u64,
}

impl Exchange {
    pub(crate) fn new(cfg: &DeviceCfg) -> Self {
        let mut numbers = Numbers::new(&cfg.seed);
        Self {
            cfg: cfg.clone(),
            challenger: Challenger::new(numbers.key()),
            replies: Replies::default(),
            peers: BTreeMap::new(),
            peer_halves: BTreeMap::new(),
            ways: BTreeMap::new(),
            closing: Vec::new(),
            look_at: Nanos::MAX,
            numbers,
            recent: RecentDatagrams::default(),
            senders: Senders::default(),
            receives: ReceivingSides::default(),
            pool: KnittingPool::new(),
            cache: SegmentCache::default(),
            bytes: Vec::new(),
            inbox: Vec::new(),
            turn: RawEid::default(),
            transmitted: 0,
        }
    }

    /// The peers, what work for one of them needs, the inbox, and the pool.
    pub(super) fn split<'a>(
        &'a mut self,
        base: &'a Base,
        now: Nanos,
    ) -> (&'a mut BTreeMap<RawEid, Peer>, Work<'a>, &'a mut Vec<u8>, &'a mut KnittingPool) {
        let Self { peers, senders, receives, numbers, cache, bytes, inbox, pool, .. } = self;
        (peers, Work { base, now, senders, receives, numbers, cache, bytes }, inbox, pool)
    }

    /// Runs `f` on each peer with everything else at hand.
    pub(super) fn each_peer(
        &mut self,
        base: &Base,
        now: Nanos,
        mut f: impl FnMut(&mut Peer, &mut Work<'_>, &mut Vec<u8>),
    ) {
        let (peers, mut work, inbox, _) = self.split(base, now);
        for peer in peers.values_mut() {
            f(peer, &mut work, inbox);
        }
    }
}
