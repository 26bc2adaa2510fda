//! An honest pair while packets of others arrive all the time: each is counted by its reason, and moves nothing.
//!
//! Time here costs nothing: what a packet of a flood costs the machine is measured on real sockets
//! (`tests/hostile`, `measure_an_honest_pair_in_floods`).

use std::collections::VecDeque;

use udma_abi::{CqeStatus, Nanos, Opcode, RawEid, cmd::Access, counters::Counter};
use urma_packet::{
    Ack, Body, Challenge, Close, CloseReason, ICRC_LEN, Packet, PacketHeader, PathProbe, Psn,
    RefuseBody, RefuseReason, SackBitmap, Tpn,
};

use super::world::{self, Kind, World};
use crate::endpoint::flow;
use crate::link::Rng;

const US: Nanos = 1_000;
const ALL: Access = Access::READ.union(Access::WRITE).union(Access::ATOMIC);
/// Bytes of a WRITE, and how many are outstanding.
const LEN: usize = 8 << 10;
const OUTSTANDING: usize = 16;
/// Forged packets in each slice of time: two million a second.
const PER_SLICE: u64 = 4;
const SLICE: Nanos = 2 * US;

/// Counters of packets that are not taken.
const DROPS: [Counter; 8] = [
    Counter::DropIcrc,
    Counter::DropMalformed,
    Counter::DropUnknownTp,
    Counter::DropUnproven,
    Counter::DropWindow,
    Counter::DropUm,
    Counter::RxDuplicate,
    Counter::Challenges,
];

/// A node that WRITEs to the other one without a pause, and what others see of it.
struct Honest {
    w: World,
    rng: Rng,
    outstanding: VecDeque<u32>,
    /// The node that is attacked.
    victim: usize,
}

/// What is sent in the name of the victim's peer; `None`: nothing of the kind was seen yet.
type Forger = fn(&mut Honest) -> Option<(RawEid, Vec<u8>)>;

impl Honest {
    fn new(victim: usize) -> Self {
        let mut w = World::new(Kind::Packets);
        world::fill(&w.segment(0, 1, LEN, ALL));
        let _there = w.segment(1, 2, LEN, ALL);
        w.seen = Some(VecDeque::new());
        let mut honest = Self { w, rng: Rng::new(7), outstanding: VecDeque::new(), victim };
        honest.goodput(500, None);
        honest
    }

    /// WRITEs that end in so many slices, while packets of `forgers` arrive.
    fn goodput(&mut self, slices: u64, forgers: Option<&[Forger]>) -> usize {
        let mut done = 0;
        for slice in 0..slices {
            while self.outstanding.len() < OUTSTANDING {
                let write = self.w.to_memory(Opcode::Write, 2, 0);
                self.outstanding.push_back(self.w.hand(0, &write, &[(1, 0, LEN)]));
            }
            for n in 0..PER_SLICE {
                let Some(forgers) = forgers else { break };
                let all = forgers.len() as u64;
                let forger = forgers[((slice * PER_SLICE + n) % all) as usize];
                self.send(forger);
            }
            self.w.run_for(SLICE);
            while let Some(&seq) = self.outstanding.front()
                && let Some(end) = self.w.end_now(0, seq)
            {
                assert_eq!(end, (CqeStatus::Success, LEN as u32));
                self.outstanding.pop_front();
                done += 1;
            }
        }
        done
    }

    /// A forged packet arrives. Whether there was one.
    fn send(&mut self, forger: Forger) -> bool {
        let Some((from, bytes)) = forger(self) else { return false };
        let now = self.w.now;
        self.w.nodes[self.victim].on_datagram(now, from, &bytes);
        true
    }

    fn drops(&self) -> [u64; 8] {
        DROPS.map(|counter| self.w.counter(self.victim, counter))
    }

    fn peer(&self) -> RawEid {
        self.w.eid(1 - self.victim)
    }

    fn own(&self) -> RawEid {
        self.w.eid(self.victim)
    }

    /// A data packet that the victim got before.
    fn data(&mut self) -> Option<Vec<u8>> {
        let to = self.victim;
        let seen = self.w.seen.as_ref()?;
        let is_data = |(n, bytes): &&(usize, Vec<u8>)| {
            let packet = Packet::parse(bytes);
            *n == to && packet.is_ok_and(|packet| packet.header.body.is_sequenced())
        };
        let from = self.rng.index(seen.len());
        let found = seen.iter().cycle().skip(from).take(seen.len()).find(is_data);
        found.map(|(_, bytes)| bytes.clone())
    }

    /// TPN of the victim's end of the TP, which no third node receives.
    fn tpn(&self) -> Tpn {
        let (tpn, _) = self.w.nodes[self.victim].exchange.endpoint.tpns().next().expect("a TP");
        Tpn::from_low_bits(tpn)
    }

    fn random(&mut self) -> u32 {
        self.rng.next_u64() as u32
    }

    /// The bytes with a right ICRC.
    fn sealed(&self, mut bytes: Vec<u8>) -> Option<(RawEid, Vec<u8>)> {
        flow(self.peer(), self.own()).seal(&mut bytes).ok()?;
        Some((self.peer(), bytes))
    }

    fn packet(&self, dest: Tpn, psn: Psn, body: Body) -> Option<(RawEid, Vec<u8>)> {
        let header = PacketHeader::new(dest, psn, body);
        let mut bytes = vec![0; header.packet_len(0)];
        header.emit(&[], &flow(self.peer(), self.own()), &mut bytes).expect("a packet");
        Some((self.peer(), bytes))
    }
}

fn noise(h: &mut Honest) -> Option<(RawEid, Vec<u8>)> {
    let mut bytes = vec![0; 64 + h.rng.index(900)];
    h.rng.fill(&mut bytes);
    Some((h.peer(), bytes))
}

fn damaged(h: &mut Honest) -> Option<(RawEid, Vec<u8>)> {
    let mut bytes = h.data()?;
    // The tail: some bits of the headers are masked.
    let at = bytes.len() - 1 - h.rng.index(16);
    bytes[at] ^= 1 << h.rng.below(8);
    Some((h.peer(), bytes))
}

fn cut(h: &mut Honest) -> Option<(RawEid, Vec<u8>)> {
    let mut bytes = h.data()?;
    bytes.truncate(16 + h.rng.index(bytes.len() - 20) / 4 * 4);
    Some((h.peer(), bytes))
}

/// Cut in its headers, with a right ICRC.
fn cut_and_sealed(h: &mut Honest) -> Option<(RawEid, Vec<u8>)> {
    let mut bytes = h.data()?;
    bytes.truncate(12 + 4 * h.rng.index(3) + ICRC_LEN);
    h.sealed(bytes)
}

/// The BTH of one packet and the rest of an acknowledgement.
fn spliced(h: &mut Honest) -> Option<(RawEid, Vec<u8>)> {
    let bth = h.data()?[..12].to_vec();
    let received = SackBitmap::default();
    let ack = Ack { window: 64, congestion: false, trigger: Psn::new(1), received };
    let (_, ack) = h.packet(h.tpn(), Psn::new(0), Body::Ack(ack))?;
    h.sealed([&bth, &ack[12..]].concat())
}

fn replayed(h: &mut Honest) -> Option<(RawEid, Vec<u8>)> {
    Some((h.peer(), h.data()?))
}

fn of_another_tp(h: &mut Honest) -> Option<(RawEid, Vec<u8>)> {
    let mut bytes = h.data()?;
    bytes[5 + h.rng.index(3)] ^= 1 + h.rng.index(255) as u8;
    h.sealed(bytes)
}

fn of_a_stranger(h: &mut Honest) -> Option<(RawEid, Vec<u8>)> {
    let (stranger, mut bytes) = (RawEid([9; 16]), h.data()?);
    flow(stranger, h.own()).seal(&mut bytes).ok()?;
    Some((stranger, bytes))
}

fn beyond_the_window(h: &mut Honest) -> Option<(RawEid, Vec<u8>)> {
    let mut bytes = h.data()?;
    // A quarter of all numbers away, in either direction.
    bytes[9] ^= 0x40;
    h.sealed(bytes)
}

fn ack_of_what_was_never_sent(h: &mut Honest) -> Option<(RawEid, Vec<u8>)> {
    let seen = h.w.seen.as_ref()?;
    let acked = |(n, bytes): &(usize, Vec<u8>)| {
        let header = Packet::parse(bytes).ok()?.header;
        (*n == h.victim && matches!(header.body, Body::Ack(_))).then_some(header.psn)
    };
    let psn = seen.iter().rev().find_map(acked)?.plus(1 << 20);
    let received = SackBitmap::from_words(&[u64::MAX; 4])?;
    let ack = Ack { window: u16::MAX, congestion: true, trigger: psn, received };
    h.packet(h.tpn(), psn, Body::Ack(ack))
}

fn handshakes(h: &mut Honest) -> Option<(RawEid, Vec<u8>)> {
    let (zero, nonce) = (Tpn::from_low_bits(0), h.rng.next_u64());
    let source_tpn = Tpn::from_low_bits(h.random());
    let (dest, body) = match h.rng.below(5) {
        0 => {
            let reason = CloseReason::Shutdown;
            (h.tpn(), Body::Close(Close { reason, source_tpn, key: nonce }))
        }
        1 => {
            let reason = CloseReason::UnknownTp;
            (zero, Body::Close(Close { reason, source_tpn, key: 0 }))
        }
        2 => (h.tpn(), Body::Challenge(Challenge { nonce, cookie: [7; 16] })),
        3 => {
            let reason = RefuseReason::NoTp;
            let refusal = RefuseBody { reason, version_min: 1, version_max: 1, state: 1, nonce };
            (h.tpn(), Body::Refuse(refusal))
        }
        _ => (h.tpn(), Body::ProbeEcho(PathProbe { nonce, size: 4176 })),
    };
    h.packet(dest, Psn::new(0), body)
}

/// Each kind, and where it is counted.
const FORGERS: [(Forger, &[Counter]); 11] = [
    (noise, &[Counter::DropIcrc, Counter::DropMalformed]),
    (damaged, &[Counter::DropIcrc]),
    (cut, &[Counter::DropIcrc]),
    (cut_and_sealed, &[Counter::DropMalformed]),
    (spliced, &[Counter::DropMalformed]),
    (replayed, &[Counter::RxDuplicate, Counter::DropWindow]),
    (of_another_tp, &[Counter::DropUnknownTp]),
    (of_a_stranger, &[Counter::DropUnknownTp]),
    (beyond_the_window, &[Counter::DropWindow]),
    (ack_of_what_was_never_sent, &[Counter::DropMalformed]),
    (handshakes, &[Counter::DropUnproven]),
];

#[test]
fn each_forged_packet_is_counted_by_its_reason() {
    for victim in [0, 1] {
        let mut honest = Honest::new(victim);
        for (kind, (forger, reasons)) in FORGERS.into_iter().enumerate() {
            let (before, mut sent) = (honest.drops(), 0);
            for _ in 0..200 {
                sent += u64::from(honest.send(forger));
            }
            assert!(sent > 0, "kind {kind} at node {victim}");
            let counted = DROPS.iter().zip(honest.drops()).zip(before);
            let at = counted.map(|((counter, now), before)| (counter, now - before));
            let (right, wrong): (Vec<_>, Vec<_>) =
                at.partition(|(counter, _)| reasons.contains(counter));
            let total: u64 = right.iter().map(|(_, count)| count).sum();
            assert_eq!(total, sent, "kind {kind} at node {victim}: {right:?}");
            assert!(wrong.iter().all(|(_, count)| *count == 0), "kind {kind}: {wrong:?}");
            honest.goodput(100, None);
        }
    }
}

/// Times with and without the flood take turns in one run.
#[test]
fn an_honest_pair_keeps_its_goodput_in_a_flood() {
    let forgers = FORGERS.map(|(forger, _)| forger);
    for victim in [0, 1] {
        let mut honest = Honest::new(victim);
        let (mut calm, mut flooded) = (0, 0);
        let before = honest.drops().iter().sum::<u64>();
        for _ in 0..5 {
            calm += honest.goodput(400, None);
            flooded += honest.goodput(400, Some(&forgers));
        }
        assert!(calm > 1_000, "{calm} WRITEs without a flood");
        assert!(flooded * 10 >= calm * 9, "node {victim}: {flooded} of {calm}");
        let dropped = honest.drops().iter().sum::<u64>() - before;
        assert!(dropped >= 5 * 400 * PER_SLICE, "{dropped}");
    }
}
