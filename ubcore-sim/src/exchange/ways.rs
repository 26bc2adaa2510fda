//! Ways to nodes: found, opened, counted, lost.
//!
//! *Owns*: numbers of ways and TPs, their users. *Takes*: connects, what the host found. *Gives*: the
//! `Link`s that send queues use. *Must not*: give a number twice; keep a way to a dead node usable.

use std::collections::BTreeMap;
use std::sync::Arc;

use chacha20::{
    ChaCha20Rng,
    rand_core::{Rng, SeedableRng},
};
use udma_abi::{CmdStatus, CqeStatus, Nanos, RawEid, cmd::Path, counters::Counter};
use urma_mem::Region;
use urma_packet::{Psn, Tpn};

use super::carrier::{Carrier, Loop};
use super::closing::Posted;
use super::packets::Packets;
use super::peer::{Found, Peer};
use super::ring::Ring;
use super::{Connecting, Exchange, Work};
use crate::cfg::Seed;
use crate::context::link::{DirectParts, Link, Reach};
use crate::engine::base::Base;
use crate::hooks::{self, Hook};
use crate::ports::{HostRequest, SameHostParts};
use crate::share::layout::NODE_INCARNATION;
use crate::transport::Offer;

/// One way as its users hold it.
#[derive(Clone, Debug)]
pub(super) struct Way {
    pub(super) eid: RawEid,
    /// Imports and bindings; without any it is closing.
    pub(super) users: u32,
    /// Life of the node that it was opened to; 0 when not known.
    life: u64,
    /// Requests that a closing way stays open for.
    pub(super) posted: Vec<Posted>,
    /// The node died; the number stays until its users gave it back.
    pub(super) dead: bool,
}

impl Way {
    /// Whether it leads to a life of the node that is over.
    pub(super) fn is_of_former_life(&self, peer: &Peer) -> bool {
        self.life != 0 && self.life != peer.incarnation
    }
}

/// Numbers that must not repeat, and numbers that cannot be guessed.
#[derive(Debug)]
pub(super) struct Numbers {
    /// A peer sees numbers of it: they must not give away the ones before and after.
    random: ChaCha20Rng,
    datagrams: Psn,
    /// TPs of this node, by the number that peers put into DestQP.
    pub(super) tps: BTreeMap<u32, RawEid>,
}

impl Numbers {
    pub(super) fn new(seed: &Seed) -> Self {
        let random = ChaCha20Rng::from_seed(seed.0);
        let mut new = Self { random, datagrams: Psn::new(0), tps: BTreeMap::new() };
        // A random start: what was sent to the node's last life must not fit to this one.
        new.datagrams = new.psn();
        new
    }

    /// The next datagram, to whomever it goes.
    pub(super) fn datagram(&mut self) -> Psn {
        self.datagrams = self.datagrams.plus(1);
        self.datagrams
    }

    /// The key of this node's cookies.
    pub(super) fn key(&mut self) -> [u8; 16] {
        let mut key = [0; 16];
        self.random.fill_bytes(&mut key);
        key
    }

    pub(super) fn random(&mut self) -> u64 {
        self.random.next_u64()
    }

    fn psn(&mut self) -> Psn {
        Psn::new(self.random.next_u32())
    }

    fn tpn(&mut self, is_taken: impl Fn(u32) -> bool) -> u32 {
        loop {
            let tpn = Tpn::from_low_bits(self.random.next_u32()).value();
            // At most a few thousand of the 2^24 numbers are taken at any time.
            if tpn != 0 && !is_taken(tpn) && !self.tps.contains_key(&tpn) {
                return tpn;
            }
        }
    }

    /// Name of a new state of a pair.
    pub(super) fn state(&mut self) -> u32 {
        self.random.next_u32().max(1)
    }

    /// Numbers of a TP to be.
    pub(super) fn offer(&mut self, peer: RawEid) -> Offer {
        let tpn = self.tpn(|_| false);
        // Never answered offers leave their number here; a node has few peers.
        self.tps.retain(|_, eid| *eid != peer);
        self.tps.insert(tpn, peer);
        let tpn = Tpn::from_low_bits(tpn);
        Offer { tpn, psn: self.psn(), nonce: self.random(), close_key: self.random() }
    }
}

impl Exchange {
    /// Called again for each step while pending.
    pub(crate) fn connect(
        &mut self,
        base: &Base,
        now: Nanos,
        eid: RawEid,
        unreliable: bool,
    ) -> Connecting {
        // A node may have closed and come again before this one's host has reported it.
        if let Some(Carrier::Ring(ring)) = self.peers.get(&eid).and_then(|p| p.carrier.as_ref())
            && ring.is_cut()
        {
            self.on_peer_gone(base, now, eid);
        }
        let found = match self.peers.get(&eid) {
            Some(peer) => peer.found,
            None => self.look_for(base, now, eid),
        };
        match found {
            Found::Asked => Connecting::Pending,
            Found::No(why) => {
                self.peers.remove(&eid);
                Connecting::Failed(why)
            }
            Found::Yes => self.open_way(base, now, eid, unreliable),
        }
    }

    fn look_for(&mut self, base: &Base, now: Nanos, eid: RawEid) -> Found {
        if !self.has_place(now) {
            return Found::No(CmdStatus::NoRoom);
        }
        if eid == self.cfg.eid {
            let own = Carrier::Loop(Loop::default());
            self.peers.insert(eid, Peer::new(eid, Found::Yes, Some(own)));
            return Found::Yes;
        }
        if !base.tables.ask_host(HostRequest::FindPeer { eid }) {
            return Found::No(CmdStatus::NoRoom);
        }
        hooks::pass(Hook::DuringImport);
        self.peers.insert(eid, Peer::new(eid, Found::Asked, None));
        Found::Asked
    }

    fn open_way(&mut self, base: &Base, now: Nanos, eid: RawEid, unreliable: bool) -> Connecting {
        self.close_ways(base, now);
        let Self { peers, numbers, ways, .. } = self;
        let Some(peer) = peers.get_mut(&eid) else { return Connecting::Pending };
        if let Some(why) = peer.open_failed.take() {
            peer.wanted_since = None;
            return Connecting::Failed(why);
        }
        let path = match &mut peer.carrier {
            Some(Carrier::Loop(_)) => Path::Local,
            Some(Carrier::Ring(_)) => Path::SameHost,
            Some(Carrier::Packets(packets)) => {
                // A closing way may lead to a life that is over: like a new one it has to be proven.
                let is_open = |tpn| ways.get(&tpn).is_some_and(|way| way.users != 0);
                let is_new = !unreliable && !peer.ways[0].is_some_and(is_open);
                let since = is_new.then(|| *peer.wanted_since.get_or_insert(now));
                if !unreliable && !packets.is_open() {
                    packets.open(now, || numbers.offer(eid));
                    return Connecting::Pending;
                }
                let nonce = numbers.random();
                if since.is_some_and(|since| !packets.is_proven_since(now, since, nonce)) {
                    return Connecting::Pending;
                }
                Path::Packets
            }
            None => return Connecting::Pending,
        };
        if !unreliable {
            peer.wanted_since = None;
        }
        let seat = &mut peer.ways[usize::from(unreliable)];
        if seat.is_none() {
            hooks::pass(Hook::DuringImport);
        }
        let tpn = *seat.get_or_insert_with(|| numbers.tpn(|tpn| ways.contains_key(&tpn)));
        let way = ways.entry(tpn).or_insert_with(|| {
            let reach = match (path, &peer.direct) {
                (Path::Local, _) => Reach::Own,
                (Path::SameHost, Some(parts)) => Reach::Direct(DirectParts {
                    node: parts.node.clone(),
                    arena: parts.arena.clone(),
                    half: parts.half.clone(),
                    process: parts.process.clone(),
                }),
                _ => Reach::Messages,
            };
            base.tables.links.insert(Arc::new(Link::new(tpn, eid, unreliable, reach)));
            Way { eid, users: 0, life: peer.incarnation, posted: Vec::new(), dead: false }
        });
        way.users += 1;
        peer.used = true;
        Connecting::Ready { tpn, path }
    }

    pub(crate) fn on_same_host_peer(
        &mut self,
        base: &Base,
        now: Nanos,
        eid: RawEid,
        parts: SameHostParts,
    ) {
        let known = self.peers.get(&eid).is_some_and(|peer| peer.found == Found::Yes);
        if known {
            // Another life of that node: the old one is over.
            self.lose(base, now, eid);
        } else if !self.peers.contains_key(&eid) && !self.has_place(now) {
            return;
        }
        let ring = Ring::new(&parts, self.cfg.ring_len, self.cfg.incarnation);
        let mut peer = Peer::new(eid, Found::Yes, None);
        peer.incarnation = parts.peer_node.load_u64(NODE_INCARNATION).unwrap_or(0);
        match ring {
            Some(ring) => peer.carrier = Some(Carrier::Ring(Box::new(ring))),
            None => {
                base.tables.count(Counter::PeerLied);
                peer.found = Found::No(CmdStatus::Unreachable);
            }
        }
        let SameHostParts { peer_node, peer_arena, my_half, process, .. } = parts;
        let (node, arena, half) = (peer_node, peer_arena, my_half);
        peer.direct = Some(DirectParts { node, arena, half, process });
        self.peer_halves.insert(eid, parts.peer_half);
        self.peers.insert(eid, peer);
    }

    pub(crate) fn on_packet_peer(&mut self, _dev: &Base, _now: Nanos, eid: RawEid) {
        let (cfg, state) = (&self.cfg, self.numbers.state());
        if let Some(peer) = self.peers.get_mut(&eid).filter(|peer| peer.carrier.is_none()) {
            peer.carrier = Some(Carrier::Packets(Box::new(Packets::new(cfg, eid, state))));
            peer.found = Found::Yes;
        }
    }

    pub(crate) fn on_no_peer(&mut self, _dev: &Base, eid: RawEid, why: CmdStatus) {
        if let Some(peer) = self.peers.get_mut(&eid).filter(|peer| peer.carrier.is_none()) {
            peer.found = Found::No(why);
        }
    }

    pub(crate) fn on_peer_gone(&mut self, base: &Base, now: Nanos, eid: RawEid) {
        let on_host =
            self.peers.get(&eid).is_some_and(|p| matches!(p.carrier, Some(Carrier::Ring(_))));
        if on_host {
            base.tables.count(Counter::PeerDied);
            self.each_peer(base, now, |peer, work, inbox| {
                if peer.eid == eid {
                    peer.take_last_words(work, inbox);
                }
            });
            self.lose(base, now, eid);
        }
    }

    /// The halves of all live same-host peers, for looking at their hazard slots.
    pub(crate) fn peer_halves(&self) -> impl Iterator<Item = &Region> {
        self.peer_halves.values()
    }

    /// A node is gone for good: its requests end, its ways are dead.
    fn lose(&mut self, base: &Base, now: Nanos, eid: RawEid) {
        let Some(mut peer) = self.peers.remove(&eid) else { return };
        self.peer_halves.remove(&eid);
        for (tpn, way) in self.ways.iter_mut().filter(|(_, way)| way.eid == eid) {
            way.dead = true;
            if let Some(link) = base.tables.links.find(*tpn) {
                link.end();
            }
        }
        self.numbers.tps.retain(|_, owner| *owner != eid);
        let Self { senders, receives, numbers, cache, bytes, .. } = self;
        let mut work = Work { base, now, senders, receives, numbers, cache, bytes };
        peer.on_new_life(&mut work, 0);
    }

    /// Peers that lied are cut off, TPs that failed are replaced, a refused handshake ends what waits
    /// for it.
    pub(super) fn look_after_peers(&mut self, base: &Base, now: Nanos) {
        let lied = self.peers.values().find(|peer| peer.lied).map(|peer| peer.eid);
        if let Some(eid) = lied {
            base.tables.count(Counter::PeerLied);
            self.lose(base, now, eid);
            let _ = base.tables.ask_host(HostRequest::Forget { eid });
        }
        let Self { peers, senders, receives, numbers, cache, bytes, pool, .. } = self;
        let mut work = Work { base, now, senders, receives, numbers, cache, bytes };
        for peer in peers.values_mut() {
            let Some(Carrier::Packets(packets)) = &mut peer.carrier else { continue };
            let again = packets.sent_again();
            base.tables
                .counts
                .add(Counter::Retransmits, again.saturating_sub(packets.again_counted));
            packets.again_counted = again;
            let refused = packets.take_open_error();
            if packets.is_silent() {
                // Without anything under way nothing can be repeated.
                peer.parted = packets.is_drained();
                let tpn = packets.drop_tp(pool);
                work.numbers.tps.retain(|number, _| Some(*number) != tpn.map(Tpn::value));
                peer.on_carrier_lost();
                continue;
            }
            if packets.has_failed() {
                base.tables.count(Counter::PeerDied);
                let tpn = packets.close(urma_packet::CloseReason::Timeout, pool);
                work.numbers.tps.retain(|number, _| Some(*number) != tpn.map(Tpn::value));
                // Requests wait for another TP until their own error timeout.
                peer.on_carrier_lost();
            }
            let Some(why) = refused else { continue };
            peer.open_failed = Some(why);
            if why != CmdStatus::Timeout {
                peer.end_all(&mut work, CqeStatus::AckTimeout);
            }
        }
        self.part_with_quiet(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: RawEid = RawEid([1; 16]);

    #[test]
    fn numbers_are_those_of_the_cryptographic_generator() {
        let seed = Seed::of(7);
        let mut reference = ChaCha20Rng::from_seed(seed.0);
        let mut numbers = Numbers::new(&seed);
        // The first datagram.
        let _ = reference.next_u32();
        let mut key = [0; 16];
        reference.fill_bytes(&mut key);
        assert_eq!(numbers.key(), key);
        assert_eq!(numbers.random(), reference.next_u64());
    }

    #[test]
    fn every_bit_of_the_seed_counts() {
        let first = Numbers::new(&Seed([0; 32])).key();
        for bit in 0..256 {
            let mut seed = [0; 32];
            seed[bit / 8] = 1 << (bit % 8);
            assert_ne!(Numbers::new(&Seed(seed)).key(), first, "bit {bit}");
        }
    }

    #[test]
    fn tpns_are_spread_and_never_given_twice_at_a_time() {
        let mut numbers = Numbers::new(&Seed::of(1));
        let mut eid = |n: u16| {
            let mut eid = PEER;
            eid.0[14..].copy_from_slice(&n.to_be_bytes());
            numbers.offer(eid).tpn.value()
        };
        let tpns: Vec<u32> = (0..2_000).map(&mut eid).collect();
        let near = tpns.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) < 1 << 10).count();
        // 2000 x 2^11 / 2^24 of them by chance.
        assert!(near < 10, "{near} TPNs follow the one before closely");
        let all: std::collections::BTreeSet<u32> = tpns.iter().copied().collect();
        assert_eq!(all.len(), tpns.len());
        assert!(!all.contains(&0));
    }

    /// The state of SplitMix64 behind one of its numbers: what is a step of a bijection can be undone.
    fn splitmix_state(number: u64) -> u64 {
        let unshift = |z: u64, by: u32| (0..64 / by).fold(z, |x, _| z ^ (x >> by));
        // Inverses of the multipliers modulo 2^64.
        let z = unshift(number, 31).wrapping_mul(0x3196_42b2_d24d_8ec3);
        let z = unshift(z, 27).wrapping_mul(0x96de_1b17_3f11_9089);
        unshift(z, 30)
    }

    fn splitmix(state: u64) -> u64 {
        let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    #[test]
    fn a_number_that_a_peer_saw_does_not_give_the_next_one() {
        assert_eq!(splitmix_state(splitmix(42)), 42, "the inversion is right");
        let mut numbers = Numbers::new(&Seed::of(1));
        let [a, b] = [numbers.offer(PEER), numbers.offer(PEER)];
        let seen = [a.psn.value().into(), a.tpn.value().into(), b.nonce, b.close_key];
        for number in [a.nonce, a.nonce ^ 1, a.close_key, a.close_key ^ 1] {
            let mut state = splitmix_state(number);
            for _ in 0..8 {
                state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
                let next = splitmix(state);
                assert!(!seen.contains(&next) && !seen.contains(&(next | 1)));
            }
        }
    }
}
