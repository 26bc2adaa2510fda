//! Two endpoints that both send, over a network that loses, doubles, delays and damages packets.
//!
//! Checked for each seed: every request is completed once and in order, every message takes one
//! receive in order, memory is what a model holds, and no byte is stored twice.
#![forbid(unsafe_code)]

mod support;

use std::collections::{BTreeMap, VecDeque};

use support::{Dice, Pair, Side, flow, receive, remote, request};
use urma_packet::IcrcFlow;
use urma_rc::{RcAtomic, RcOperation, RcRequest, RcSource, RcStatus};

/// The peer's memory: messages arrive at 0, writes at `WRITES`, reads take from `READS`; atomics.
const WRITES: u64 = 16_384;
const READS: u64 = 32_768;
const WORDS: u64 = 40_960;
/// Own memory: payload is taken from `SOURCE`, reads are stored from `SINK` on.
const SOURCE: u64 = 45_056;
const SINK: u64 = 53_248;
const AREA: u64 = 8_192;
const RECEIVE: u32 = 2_048;

/// What one side asked for, and what must come of it.
#[derive(Debug, Default)]
struct Model {
    next: u64,
    /// Requests without completion: id, old value of an atomic.
    waiting: VecDeque<(u64, Option<u64>)>,
    /// Messages that the peer has not received: bytes (of a SEND), length, immediate.
    messages: VecDeque<(Option<Vec<u8>>, u32, Option<u32>)>,
    /// Bytes that the peer's memory stores because of it, and its own because of READs.
    stored: u64,
    fetched: u64,
    /// The peer's memory from `WRITES` on, and its words.
    writes: Vec<u8>,
    words: BTreeMap<u64, u64>,
    updates: u64,
    /// Own reads: place, bytes.
    reads: Vec<(u64, Vec<u8>)>,
}

/// A network with one delay and one fate per packet.
struct Network {
    dice: Dice,
    loss: u64,
    /// When, order of sending, whether it goes to `b`, bytes.
    flying: BTreeMap<(u64, u64), (bool, Vec<u8>)>,
    sent: u64,
}

impl Network {
    fn send(&mut self, now: u64, to_b: bool, packets: Vec<Vec<u8>>) {
        for mut packet in packets {
            if self.dice.chance(self.loss) {
                continue;
            }
            if self.dice.chance(self.loss) {
                let at = usize::try_from(self.dice.below(packet.len() as u64)).expect("short");
                packet[at] ^= 1 << self.dice.below(8);
            }
            let copies = if self.dice.chance(self.loss) { 2 } else { 1 };
            for _ in 0..copies {
                let spread = if self.dice.chance(self.loss) { 20_000 } else { 1 };
                let at = now + 1_000 + self.dice.below(spread);
                self.sent += 1;
                self.flying.insert((at, self.sent), (to_b, packet.clone()));
            }
        }
    }
}

fn draw(dice: &mut Dice, model: &mut Model, side: &Side, peer: &Side) -> RcRequest {
    let id = model.next;
    let len =
        u32::try_from(if dice.chance(30) { dice.below(RECEIVE.into()) } else { dice.below(40) })
            .expect("short");
    let from = SOURCE + dice.below(AREA - u64::from(RECEIVE));
    let at = dice.below(AREA - u64::from(RECEIVE));
    let imm = u32::try_from(dice.below(1 << 32)).expect("32 bits");
    let own = |place: u64, len: u32| {
        let start = usize::try_from(place).expect("small");
        side.ram.bytes[start..start + usize::try_from(len).expect("small")].to_vec()
    };
    let payload = own(from, len);
    let mut original = None;
    let (operation, place) = match dice.below(7) {
        0 => {
            model.messages.push_back((Some(payload), len, None));
            model.stored += u64::from(len);
            (RcOperation::Send, from)
        }
        1 => {
            model.messages.push_back((Some(payload), len, Some(imm)));
            model.stored += u64::from(len);
            (RcOperation::SendImm(imm), from)
        }
        kind @ (2 | 3) => {
            let start = usize::try_from(at).expect("small");
            model.writes[start..start + payload.len()].copy_from_slice(&payload);
            model.stored += u64::from(len);
            if kind == 2 {
                (RcOperation::Write(remote(WRITES + at)), from)
            } else {
                model.messages.push_back((None, len, Some(imm)));
                (RcOperation::WriteImm(remote(WRITES + at), imm), from)
            }
        }
        4 => {
            let start = usize::try_from(READS + at).expect("small");
            let bytes = peer.ram.bytes[start..start + payload.len()].to_vec();
            // Each read has a place of its own, as far as there is room.
            let sink = SINK + (id * 2_048) % AREA;
            model.reads.retain(|(place, _)| *place != sink);
            model.reads.push((sink, bytes));
            model.fetched += u64::from(len);
            (RcOperation::Read(remote(READS + at)), sink)
        }
        kind => {
            let word = WORDS + 8 * dice.below(16);
            let value = model.words.entry(word).or_default();
            original = Some(*value);
            let compare = if dice.chance(70) { *value } else { imm.into() };
            let atomic = if kind == 5 {
                RcAtomic::CompareSwap { compare, swap: imm.into() }
            } else {
                RcAtomic::FetchAdd { add: imm.into() }
            };
            *value = atomic.apply(*value);
            model.updates += 1;
            (RcOperation::Atomic(remote(word), atomic), 0)
        }
    };
    model.next += 1;
    model.waiting.push_back((id, original));
    let fence = dice.chance(10);
    RcRequest { fence, ..request(id, operation, place, len) }
}

/// Completions of one side against its own model and that of its peer.
fn check(seed: u64, side: &mut Side, own: &mut Model, peers: &mut Model, free: &mut Vec<u64>) {
    for done in side.completions() {
        assert_eq!(done.status, RcStatus::Success, "seed {seed}: {done:?}");
        if done.source == RcSource::Request {
            let expected = own.waiting.pop_front();
            assert_eq!(expected, Some((done.id, done.original)), "seed {seed}: order of requests");
            continue;
        }
        let (bytes, len, imm) = peers.messages.pop_front().expect("a message was sent");
        assert_eq!((done.len, done.imm), (len, imm), "seed {seed}: order of messages");
        assert_eq!(done.source == RcSource::Receive, bytes.is_some(), "seed {seed}");
        if let Some(bytes) = bytes {
            let place = usize::try_from(done.id * u64::from(RECEIVE)).expect("small");
            assert!(side.ram.bytes[place..].starts_with(&bytes), "seed {seed}: bytes of a message");
        }
        free.push(done.id);
    }
}

/// Runs one seed; packets that were sent again, NAKs, RNR NAKs.
fn simulate(seed: u64) -> [u64; 3] {
    let mut dice = Dice(seed);
    let loss = dice.below(7);
    let (first, mtu) = (u32::try_from(dice.below(1 << 24)).expect("24 bits"), 256 << dice.below(3));
    let first = if dice.chance(50) { 0x00ff_fff0 } else { first };
    let (window, limit) = (8 + u32::try_from(dice.below(60)).expect("small"), dice.below(4));
    let mut pair = Pair::new(first, |cfg| {
        (cfg.path_mtu, cfg.window, cfg.ack_interval) = (mtu, window, window.min(8));
        cfg.max_rd_atomic = 1 + u8::try_from(limit).expect("small");
        cfg.max_dest_rd_atomic = cfg.max_rd_atomic;
        cfg.queue_depth = 24;
        cfg.min_rnr_timer = 4;
    });
    for side in [&mut pair.a, &mut pair.b] {
        let areas = [READS..READS + AREA, SOURCE..SOURCE + AREA];
        areas.into_iter().flatten().for_each(|at| {
            side.ram.bytes[usize::try_from(at).expect("small")] = dice.next().to_le_bytes()[0];
        });
    }
    let model = || Model { writes: vec![0; 8_192], ..Model::default() };
    let (mut of_a, mut of_b) = (model(), model());
    let mut free = [(0..8).collect::<Vec<u64>>(), (0..8).collect()];
    let mut network = Network { dice: Dice(!seed), loss, flying: BTreeMap::new(), sent: 0 };
    let mut now = 0;
    let left = |model: &Model| model.next < 150;
    for _ in 0..200_000 {
        if left(&of_a) && of_a.waiting.len() < 24 && dice.chance(40) {
            let request = draw(&mut dice, &mut of_a, &pair.a, &pair.b);
            pair.a.rc.post(request).expect("has room");
        }
        post_receives(&mut dice, &mut pair.a, &mut free[0]);
        if left(&of_b) && of_b.waiting.len() < 24 && dice.chance(40) {
            let request = draw(&mut dice, &mut of_b, &pair.b, &pair.a);
            pair.b.rc.post(request).expect("has room");
        }
        post_receives(&mut dice, &mut pair.b, &mut free[1]);
        let (from_a, from_b) = (pair.a.transmit(now), pair.b.transmit(now));
        network.send(now, true, from_a);
        network.send(now, false, from_b);
        check(seed, &mut pair.a, &mut of_a, &mut of_b, &mut free[0]);
        check(seed, &mut pair.b, &mut of_b, &mut of_a, &mut free[1]);
        let is_over = [&of_a, &of_b].iter().all(|model| !left(model) && model.waiting.is_empty());
        if is_over && network.flying.is_empty() {
            break;
        }
        now = step_pair(&mut pair, &mut network, now, [flow(1, 2), flow(2, 1)]);
    }
    check_end(seed, &pair.a, &of_a, &pair.b);
    check_end(seed, &pair.b, &of_b, &pair.a);
    let stored = [of_b.stored + of_a.fetched, of_a.stored + of_b.fetched];
    assert_eq!([pair.a.ram.stored, pair.b.ram.stored], stored, "seed {seed}: bytes stored");
    let counts = [pair.a.rc.counts(), pair.b.rc.counts()];
    let sum = |of: fn(&urma_rc::RcCounts) -> u64| counts.iter().map(of).sum();
    [sum(|c| c.repeated), sum(|c| c.naks_received), sum(|c| c.rnr_naks_received)]
}

fn post_receives(dice: &mut Dice, side: &mut Side, free: &mut Vec<u64>) {
    if dice.chance(20)
        && let Some(id) = free.pop()
    {
        side.rc.post_receive(receive(id, id * u64::from(RECEIVE), RECEIVE)).expect("has room");
    }
}

/// Brings what arrives next; the time then.
fn step_pair(
    pair: &mut Pair,
    network: &mut Network,
    now: u64,
    [from_a, from_b]: [IcrcFlow; 2],
) -> u64 {
    let timers = [pair.a.rc.deadline(), pair.b.rc.deadline()].into_iter().flatten().min();
    let arrival = network.flying.keys().next().map(|(at, _)| *at);
    let soon = now + 5_000;
    let at = [timers, arrival, Some(soon)].into_iter().flatten().min().unwrap_or(soon).max(now);
    while let Some(entry) = network.flying.first_entry()
        && entry.key().0 <= at
    {
        let (to_b, packet) = entry.remove();
        if to_b {
            pair.b.receive(at, &packet, &from_a);
        } else {
            pair.a.receive(at, &packet, &from_b);
        }
    }
    at
}

/// Everything that `model` says of the peer's memory and its own reads.
fn check_end(seed: u64, side: &Side, model: &Model, peer: &Side) {
    assert!(model.waiting.is_empty(), "seed {seed}: {} requests left", model.waiting.len());
    assert!(model.messages.is_empty(), "seed {seed}: messages without completion");
    let writes = usize::try_from(WRITES).expect("small");
    assert_eq!(peer.ram.bytes[writes..writes + 8_192], model.writes, "seed {seed}: writes");
    for (word, value) in &model.words {
        let place = usize::try_from(*word).expect("small");
        assert_eq!(peer.ram.word(place), *value, "seed {seed}: word {word}");
    }
    assert_eq!(peer.ram.updates, model.updates, "seed {seed}: atomics executed");
    for (place, bytes) in &model.reads {
        let place = usize::try_from(*place).expect("small");
        assert!(side.ram.bytes[place..].starts_with(bytes), "seed {seed}: bytes of a read");
    }
}

#[test]
fn every_seed_ends_as_its_model() {
    let mut sums = [0; 3];
    for seed in 0..400 {
        sums.iter_mut().zip(simulate(seed)).for_each(|(sum, count)| *sum += count);
    }
    // The faults were met: repeats, NAKs, missing receives.
    assert!(sums.iter().all(|sum| *sum > 500), "{sums:?}");
}
