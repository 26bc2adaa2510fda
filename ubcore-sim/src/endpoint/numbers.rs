//! Numbers that must not repeat or must be unpredictable.
//!
//! *Owns*: the generator, TPNs in use. *Takes*: a seed. *Gives*: numbers. *Must not*: give a number twice.

use std::collections::BTreeMap;

use chacha20::{
    ChaCha20Rng,
    rand_core::{Rng, SeedableRng},
};
use udma_abi::RawEid;
use urma_packet::{Psn, Tpn};

use crate::cfg::Seed;
use crate::transport::Offer;

/// Source of numbers that must not repeat or must be unpredictable.
#[derive(Debug)]
pub(super) struct Numbers {
    /// Peers see numbers of it: these must not reveal the ones before and after.
    random: ChaCha20Rng,
    datagrams: Psn,
    /// TPs of this node, by the number that peers put into DestQP.
    pub(super) tps: BTreeMap<u32, RawEid>,
}

impl Numbers {
    pub(super) fn new(seed: &Seed) -> Self {
        let random = ChaCha20Rng::from_seed(seed.0);
        let mut new = Self { random, datagrams: Psn::new(0), tps: BTreeMap::new() };
        // A random start: what was sent to the node's last life must not match this one.
        new.datagrams = new.psn();
        new
    }

    /// Number of the next datagram, to any node.
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

    pub(super) fn tpn(&mut self, is_used: impl Fn(u32) -> bool) -> u32 {
        loop {
            let tpn = Tpn::from_low_bits(self.random.next_u32()).value();
            // At most a few thousand of the 2^24 numbers are in use at any time.
            if tpn != 0 && !is_used(tpn) && !self.tps.contains_key(&tpn) {
                return tpn;
            }
        }
    }

    /// Name of a new state of a pair.
    pub(super) fn state(&mut self) -> u32 {
        self.random.next_u32().max(1)
    }

    /// Numbers for a new TP.
    pub(super) fn offer(&mut self, peer: RawEid) -> Offer {
        self.offer_beside(peer, None)
    }

    /// Numbers for a new TP, besides the one that has the TPN `kept`.
    pub(super) fn offer_beside(&mut self, peer: RawEid, kept: Option<Tpn>) -> Offer {
        let tpn = self.tpn(|_| false);
        let kept = kept.map(Tpn::value);
        // Offers that are never answered keep their number here; a node has few peers.
        self.tps.retain(|tpn, eid| *eid != peer || Some(*tpn) == kept);
        self.tps.insert(tpn, peer);
        let tpn = Tpn::from_low_bits(tpn);
        Offer { tpn, psn: self.psn(), nonce: self.random(), close_key: self.random() }
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
