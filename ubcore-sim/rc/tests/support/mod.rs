//! Two endpoints, their memory and a network between them, in virtual time.
#![expect(dead_code, reason = "each test program uses a part")]

use std::net::{Ipv4Addr, SocketAddr};

use urma_packet::roce::{RoceHeader, RocePacket};
use urma_packet::{IcrcFlow, Psn, Tpn};
use urma_rc::{
    RcAccess, RcAtomic, RcCfg, RcCompletion, RcEndpoint, RcMemory, RcOperation, RcReceive,
    RcRemote, RcRequest,
};

/// Virtual address of the first byte of each memory.
pub(crate) const BASE: u64 = 0x7f00_0000_0000;
pub(crate) const RKEY: u32 = 0x1234;
pub(crate) const READ_ONLY: u32 = 0x5678;

/// Memory with one region that allows everything, and one that may only be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ram {
    pub(crate) bytes: Vec<u8>,
    /// Keys, and whether they allow more than reading.
    pub(crate) keys: Vec<(u32, bool)>,
    /// Bytes stored so far.
    pub(crate) stored: u64,
    pub(crate) updates: u64,
}

impl Ram {
    pub(crate) fn new(len: usize) -> Self {
        let keys = vec![(RKEY, true), (READ_ONLY, false)];
        Self { bytes: vec![0; len], keys, stored: 0, updates: 0 }
    }

    pub(crate) fn word(&self, place: usize) -> u64 {
        let word = self.bytes[place..place + 8].try_into().expect("8 bytes");
        u64::from_le_bytes(word)
    }

    fn range(&self, place: u64, len: usize) -> Option<std::ops::Range<usize>> {
        let start = usize::try_from(place).ok()?;
        let end = start.checked_add(len)?;
        (end <= self.bytes.len()).then_some(start..end)
    }
}

impl RcMemory for Ram {
    fn resolve(&self, rkey: u32, va: u64, len: u32, access: RcAccess) -> Option<u64> {
        let (_, changes) = self.keys.iter().find(|(key, _)| *key == rkey)?;
        let place = va.checked_sub(BASE)?;
        let end = place.checked_add(len.into())?;
        let allowed = *changes || access == RcAccess::Read;
        (allowed && end <= self.bytes.len() as u64).then_some(place)
    }

    fn load(&self, place: u64, into: &mut [u8]) -> bool {
        let Some(range) = self.range(place, into.len()) else { return false };
        into.copy_from_slice(&self.bytes[range]);
        true
    }

    fn store(&mut self, place: u64, bytes: &[u8]) -> bool {
        let Some(range) = self.range(place, bytes.len()) else { return false };
        self.bytes[range].copy_from_slice(bytes);
        self.stored += bytes.len() as u64;
        true
    }

    fn update(&mut self, place: u64, atomic: RcAtomic) -> Option<u64> {
        let range = self.range(place, 8)?;
        let old = self.word(range.start);
        self.bytes[range].copy_from_slice(&atomic.apply(old).to_le_bytes());
        self.updates += 1;
        Some(old)
    }

    fn invalidate(&mut self, rkey: u32) -> bool {
        let before = self.keys.len();
        self.keys.retain(|(key, _)| *key != rkey);
        self.keys.len() < before
    }
}

/// An endpoint with its memory.
#[derive(Debug)]
pub(crate) struct Side {
    pub(crate) rc: RcEndpoint,
    pub(crate) ram: Ram,
    flow: IcrcFlow,
}

pub(crate) fn flow(from: u8, to: u8) -> IcrcFlow {
    let end = |last| SocketAddr::from((Ipv4Addr::new(10, 0, 0, last), 4791));
    IcrcFlow::new(end(from), end(to))
}

impl Side {
    /// Everything that the endpoint sends now.
    pub(crate) fn transmit(&mut self, now: u64) -> Vec<Vec<u8>> {
        let mut packets = Vec::new();
        let mut buf = vec![0; self.rc.packet_max()];
        while let Some(len) = self.rc.poll_transmit(now, &mut self.ram, &self.flow, &mut buf) {
            packets.push(buf[..len].to_vec());
        }
        packets
    }

    /// Takes a packet, if its ICRC is right.
    pub(crate) fn receive(&mut self, now: u64, bytes: &[u8], from: &IcrcFlow) -> bool {
        let Ok(packet) = RocePacket::open(bytes, from) else { return false };
        self.rc.on_packet(now, &packet, &mut self.ram);
        true
    }

    pub(crate) fn completions(&mut self) -> Vec<RcCompletion> {
        std::iter::from_fn(|| self.rc.poll_completion()).collect()
    }
}

/// Both ends of a connection.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) a: Side,
    pub(crate) b: Side,
}

pub(crate) fn cfg(first: u32) -> RcCfg {
    let qpns = [Tpn::from_low_bits(0xa), Tpn::from_low_bits(0xb)];
    RcCfg::new(qpns, [Psn::new(first), Psn::new(0x77)])
}

impl Pair {
    /// Connects two endpoints; `change` applies to both.
    pub(crate) fn new(first: u32, change: impl Fn(&mut RcCfg)) -> Self {
        let mut a = cfg(first);
        a.ack_timeout = 1_000_000;
        change(&mut a);
        let mut b = a.clone();
        (b.local_qpn, b.remote_qpn) = (a.remote_qpn, a.local_qpn);
        (b.send_psn, b.receive_psn) = (a.receive_psn, a.send_psn);
        let side = |cfg, from, to| Side {
            rc: RcEndpoint::open(cfg).expect("in range"),
            ram: Ram::new(1 << 16),
            flow: flow(from, to),
        };
        Self { a: side(a, 1, 2), b: side(b, 2, 1) }
    }

    /// Packets from `a` reach `b`.
    pub(crate) fn deliver_b(&mut self, now: u64, packets: &[Vec<u8>]) {
        let flow = flow(1, 2);
        packets.iter().for_each(|packet| assert!(self.b.receive(now, packet, &flow)));
    }

    pub(crate) fn deliver_a(&mut self, now: u64, packets: &[Vec<u8>]) {
        let flow = flow(2, 1);
        packets.iter().for_each(|packet| assert!(self.a.receive(now, packet, &flow)));
    }

    /// Exchanges packets until both are silent.
    pub(crate) fn drive(&mut self, now: u64) {
        for _ in 0..10_000 {
            let (from_a, from_b) = (self.a.transmit(now), self.b.transmit(now));
            if from_a.is_empty() && from_b.is_empty() {
                return;
            }
            self.deliver_b(now, &from_a);
            self.deliver_a(now, &from_b);
        }
        panic!("the two endpoints do not stop");
    }
}

pub(crate) fn header(packet: &[u8]) -> RoceHeader {
    RocePacket::parse(packet).expect("well-formed").header
}

pub(crate) fn request(id: u64, operation: RcOperation, place: u64, len: u32) -> RcRequest {
    RcRequest { id, operation, place, len, fence: false, solicited: false }
}

pub(crate) fn receive(id: u64, place: u64, len: u32) -> RcReceive {
    RcReceive { id, place, len }
}

pub(crate) fn remote(offset: u64) -> RcRemote {
    RcRemote { va: BASE + offset, rkey: RKEY }
}

/// Numbers of a seed (SplitMix64).
#[derive(Debug, Clone)]
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}
