//! Exhaustive search at small width: every reachable state, every order of offered beats and ready outputs.
//!
//! - owns: the reference that knows only messages, the properties (a) to (g), the planted faults.
//! - takes: an engine. gives: the number of states, or the property that fails. must not: share code with an engine.
#![expect(
    clippy::cast_possible_truncation,
    reason = "counts are bounded by 65536 beats and packets of 8 KiB"
)]

use std::collections::{BTreeSet, VecDeque};

use super::Engine;
use super::store::StoreKind;
use crate::config::{EngineConfig, EngineScheme, TooLong};
use crate::engine::InputBeat;
use crate::random::EngineRandom;
use crate::{InputError, SpliceFault};

const WIDTH: u32 = 4;
/// Most bytes of a message.
const BYTES_MAX: u32 = 20;
/// Tags that messages take in turn: more than messages fit in an engine.
const TAGS: u32 = 8;

/// A message that was accepted in part or whole and is not out.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct RefMessage {
    tag: u32,
    mtu_log2: u8,
    bytes_in: u32,
    ended: bool,
    bytes_out: u32,
    index: u32,
}

/// What an engine must give, known from its input alone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
struct Reference {
    messages: VecDeque<RefMessage>,
    next_tag: u32,
    /// Bytes and beats of the packet that is open at the output.
    open: Option<(u32, u32)>,
}

const fn byte_of(tag: u32, at: u32) -> u8 {
    (tag * 32 + at + 1) as u8
}

/// Bytes, first, last and MTU of a beat.
type BeatRow = (u16, bool, bool, u8);

/// A beat that may be offered.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct SearchOffer {
    len: u32,
    last: bool,
    mtu_log2: u8,
}

impl Reference {
    fn open_message(&self) -> Option<&RefMessage> {
        self.messages.back().filter(|message| !message.ended)
    }

    fn accepted(&mut self, offer: SearchOffer) {
        if self.open_message().is_none() {
            let tag = self.next_tag;
            self.next_tag = (tag + 1) % TAGS;
            self.messages.push_back(RefMessage {
                tag,
                mtu_log2: offer.mtu_log2,
                bytes_in: 0,
                ended: false,
                bytes_out: 0,
                index: 0,
            });
        }
        if let Some(message) = self.messages.back_mut() {
            message.bytes_in += offer.len;
            message.ended = offer.last;
        }
    }
}

#[derive(Clone)]
struct SearchWorld {
    engine: Engine,
    reference: Reference,
    /// An offered beat stays until it is accepted.
    offered: Option<SearchOffer>,
}

impl SearchWorld {
    fn new(config: EngineConfig, fault: Option<SpliceFault>) -> Self {
        let mut engine = Engine::open(config).expect("a configuration");
        if let Some(fault) = fault {
            engine.plant(fault);
        }
        Self { engine, reference: Reference::default(), offered: None }
    }

    /// Beats that may be offered next; `None` for a bubble.
    fn offers(&self, mtus: &[u8], message_max: u32) -> Vec<Option<SearchOffer>> {
        if self.offered.is_some() {
            return vec![self.offered];
        }
        let mut offers = vec![None];
        let open = self.reference.open_message();
        let before = open.map_or(0, |message| message.bytes_in);
        for &mtu_log2 in mtus {
            let mtu_log2 = open.map_or(mtu_log2, |message| message.mtu_log2);
            let empty = SearchOffer { len: 0, last: true, mtu_log2 };
            if open.is_none() {
                offers.push(Some(empty));
            }
            for len in 1..=WIDTH.min(message_max - before) {
                for last in [true, false] {
                    if last || before + len < message_max {
                        offers.push(Some(SearchOffer { len, last, mtu_log2 }));
                    }
                }
            }
            if open.is_some() {
                break;
            }
        }
        offers
    }

    /// One cycle, with every property checked; the error names the one that fails.
    fn step(&mut self, offer: Option<SearchOffer>, out_ready: bool) -> Result<bool, &'static str> {
        let open = self.reference.open_message();
        let tag = open.map_or(self.reference.next_tag, |message| message.tag);
        let from = open.map_or(0, |message| message.bytes_in);
        let bytes: Vec<u8> =
            offer.map_or(0..0, |offer| from..from + offer.len).map(|at| byte_of(tag, at)).collect();
        let beat = offer.map(|offer| InputBeat {
            len: offer.len as u16,
            first: open.is_none(),
            last: offer.last,
            tag,
            mtu_log2: offer.mtu_log2,
            bytes: &bytes,
        });
        let output = self.engine.tick(0, beat, out_ready);
        self.offered = offer;
        if (output.header.is_some() || output.beat.is_some()) && !out_ready {
            return Err("(e) a transfer without ready");
        }
        if let Some(header) = output.header {
            self.header(header)?;
        }
        if output.beat.is_some() {
            self.beat()?;
        }
        if output.in_ready
            && let Some(offer) = offer
        {
            self.reference.accepted(offer);
            self.offered = None;
        }
        self.bounds()?;
        Ok(output.moved)
    }

    /// (b), (c), (e): the next packet of the oldest message, with its own sideband.
    fn header(&mut self, header: crate::Sideband) -> Result<(), &'static str> {
        if self.reference.open.is_some() {
            return Err("(e) a header inside a packet");
        }
        let Some(message) = self.reference.messages.front_mut() else {
            return Err("(e) a packet of no message");
        };
        let mtu = 1 << message.mtu_log2;
        let left = message.bytes_in - message.bytes_out;
        if header.tag != message.tag || header.index != message.index {
            return Err("(c) the sideband of another packet");
        }
        if header.first != (message.index == 0) {
            return Err("(c) first");
        }
        let last = message.ended && left <= mtu;
        let want = if last { left } else { mtu };
        if header.last != last || header.len != want || want > left {
            return Err("(b) the length of a packet");
        }
        self.reference.open = Some((header.len, header.len));
        self.close_packet();
        Ok(())
    }

    /// (a), (g): the next bytes of the oldest message, and none of another one.
    fn beat(&mut self) -> Result<(), &'static str> {
        let Some((len, left)) = self.reference.open else { return Err("(e) a beat of no packet") };
        let Some(message) = self.reference.messages.front_mut() else {
            return Err("(e) a beat of no message");
        };
        let n = left.min(WIDTH);
        let from = message.bytes_out;
        let want: Vec<u8> = (from..from + n).map(|at| byte_of(message.tag, at)).collect();
        if self.engine.beat_bytes() != want {
            return Err("(a) the bytes of a beat");
        }
        message.bytes_out += n;
        self.reference.open = Some((len, left - n));
        self.close_packet();
        Ok(())
    }

    fn close_packet(&mut self) {
        if let Some((_, 0)) = self.reference.open
            && let Some(message) = self.reference.messages.front_mut()
        {
            self.reference.open = None;
            message.index += 1;
            if message.ended && message.bytes_out == message.bytes_in {
                self.reference.messages.pop_front();
            }
        }
    }

    /// (f), and what the model says of itself.
    fn bounds(&self) -> Result<(), &'static str> {
        let config = self.engine.config();
        if self.engine.occupancy() > config.data_beats {
            return Err("(f) more beats than the memory has");
        }
        if let StoreKind::EngineFifos(fifos) = &self.engine.store.kind
            && fifos.sideband.len() > config.sideband_entries as usize
        {
            return Err("(f) more entries than the sideband FIFO has");
        }
        if self.engine.counters().mismatch > 0 {
            return Err("mismatch of header and payload");
        }
        Ok(())
    }

    /// (d), (e): with the output ready and its message offered to the end, all comes out.
    fn drains(&self) -> Result<(), &'static str> {
        let mut world = self.clone();
        for _ in 0..200 {
            let open = world.reference.open_message();
            let end =
                open.map(|message| SearchOffer { len: 1, last: true, mtu_log2: message.mtu_log2 });
            let offer = world.offered.or(end);
            if offer.is_none() && world.engine.is_empty() {
                let out = world.reference.messages.is_empty();
                return if out { Ok(()) } else { Err("(e) a packet is lost") };
            }
            if !world.step(offer, true)? && offer.is_none() {
                return Err("(d) it stops with a packet inside");
            }
        }
        Err("(d) it stops")
    }

    /// Everything that decides what happens next.
    fn key(&self) -> Vec<u8> {
        let (engine, mut key) = (&self.engine, Vec::new());
        let writer = &engine.writer;
        let residue = &writer.residue[..writer.residue_len as usize];
        // Tags count modulo 8, and a byte is 32 times its tag and its place: states that differ by a shift of all tags
        // are one.
        let shift = |tag: u32| (tag + TAGS - self.reference.next_tag) % TAGS;
        let byte_shift = (self.reference.next_tag * 32) as u8;
        let residue: Vec<u8> = residue.iter().map(|byte| byte.wrapping_sub(byte_shift)).collect();
        key.extend(format!("{:?}{}{:?}", self.offered, writer.flush, residue).bytes());
        let open =
            writer.open.map(|open| (shift(open.tag), open.mtu_log2, open.index, open.packet_bytes));
        let side = |of: crate::Sideband| (shift(of.tag), of.index, of.len, of.first, of.last);
        let reading = engine.reading.map(|packet| (side(packet.entry.sideband), packet.left));
        key.extend(
            format!("{open:?}{reading:?}{}{:?}", writer.dropping, self.reference.open).bytes(),
        );
        for of in &self.reference.messages {
            key.extend([shift(of.tag), of.bytes_in, of.bytes_out, of.index].map(|n| n as u8));
            key.extend([of.mtu_log2, u8::from(of.ended)]);
        }
        let mut beats = |start: u32, count: u32| {
            for at in start..start + count {
                let (beat, bytes) = engine.store.ram_beat(at);
                key.push(beat.len as u8);
                key.extend(
                    bytes[..usize::from(beat.len)].iter().map(|byte| byte.wrapping_sub(byte_shift)),
                );
            }
        };
        match &engine.store.kind {
            // Where the FIFO's pointers stand decides nothing.
            StoreKind::EngineFifos(fifos) => {
                beats(fifos.head, fifos.count);
                for entry in &fifos.sideband {
                    key.extend(format!("{:?}", side(entry.sideband)).bytes());
                }
            }
            StoreKind::Banks(banks) => {
                for bank in &banks.banks {
                    beats(bank.start + bank.read, bank.beats - bank.read);
                }
                key.extend(banks.key(shift).bytes());
            }
        }
        key
    }
}

fn config(scheme: EngineScheme, data_beats: u32, entries: u32) -> EngineConfig {
    EngineConfig {
        beat_bytes: WIDTH,
        data_beats,
        sideband_entries: entries,
        handover: 1,
        mtu_log2_max: 3,
        too_long: TooLong::Stop,
        payload: true,
        ..EngineConfig::new(scheme)
    }
}

/// Visits every reachable state. Returns their number, or the property that fails.
fn search(
    config: EngineConfig,
    message_max: u32,
    fault: Option<SpliceFault>,
) -> Result<usize, &'static str> {
    let mut seen = BTreeSet::new();
    let mut hash = |world: &SearchWorld| {
        let mut hasher = crc_pair(&world.key());
        hasher.truncate(16);
        seen.insert(hasher)
    };
    let start = SearchWorld::new(config, fault);
    hash(&start);
    let mut states = 1;
    let mut left = vec![start];
    while let Some(world) = left.pop() {
        world.drains()?;
        for offer in world.offers(&[3], message_max) {
            for out_ready in [false, true] {
                let mut next = world.clone();
                next.step(offer, out_ready)?;
                if hash(&next) {
                    states += 1;
                    left.push(next);
                }
            }
        }
    }
    Ok(states)
}

/// 128 bits of a key: two keys are taken for one with a chance of 2^-80 in a search.
fn crc_pair(key: &[u8]) -> Vec<u8> {
    let mut halves = [0x6a09_e667_f3bc_c908_u64, 0xbb67_ae85_84ca_a73b];
    for &byte in key {
        for (half, prime) in halves.iter_mut().zip([0x0100_0000_01b3, 0x9e37_79b9_7f4a_7c15]) {
            *half = (*half ^ u64::from(byte)).wrapping_mul(prime).rotate_left(23);
        }
    }
    halves.iter().flat_map(|half| half.to_le_bytes()).collect()
}

/// (d): scheme 3 stops exactly where its memory is below the MTU; banks exactly where a message is beyond them.
#[test]
fn every_reachable_state_has_all_properties() {
    for beats in 1..=3 {
        {
            let entries = 1;
            let result = search(config(EngineScheme::Fifo, beats, entries), 9, None);
            if beats * WIDTH < 8 {
                assert!(
                    result.is_err_and(|error| error.starts_with("(d)")),
                    "D {beats} B {entries}"
                );
            } else {
                println!("model: fifo D {beats} B {entries}: {} states", result.expect("all hold"));
            }
        }
    }
    for (scheme, beats, fits) in [(EngineScheme::PingPong, 4, 8), (EngineScheme::Single, 2, 8)] {
        let states = search(config(scheme, beats, 1), fits, None).expect("all hold");
        println!("model: {} D {beats}, messages to {fits} bytes: {states} states", scheme.name());
    }
    for (scheme, beats) in [(EngineScheme::PingPong, 4), (EngineScheme::Single, 2)] {
        let stopped = search(config(scheme, beats, 1), 9, None);
        assert!(stopped.is_err_and(|error| error.starts_with("(d)")), "{scheme:?}");
    }
}

/// The whole of the specification's section 10: some minutes, `cargo test -p urma-splice --release -- --ignored whole`.
#[test]
#[ignore = "minutes; the slice above runs always"]
fn whole_search() {
    for beats in 2..=5 {
        for entries in 1..=3 {
            let states = search(config(EngineScheme::Fifo, beats, entries), BYTES_MAX, None);
            println!("model: fifo D {beats} B {entries}: {} states", states.expect("all hold"));
        }
    }
    for (scheme, beats) in [(EngineScheme::PingPong, 10), (EngineScheme::Single, 5)] {
        let states = search(config(scheme, beats, 1), BYTES_MAX, None).expect("all hold");
        println!("model: {} D {beats}: {states} states", scheme.name());
    }
}

/// Random steps with messages of two MTUs; every property after each step.
fn random_steps(
    scheme: EngineScheme,
    steps: u32,
    fault: Option<SpliceFault>,
) -> Result<(), &'static str> {
    let beats = if scheme == EngineScheme::Single { 7 } else { 10 };
    let mut config = config(scheme, beats, 3);
    config.mtu_log2_max = 4;
    let mut world = SearchWorld::new(config, fault);
    let mut random = EngineRandom::new(3);
    for step in 0..steps {
        let offers = world.offers(&[3, 4], BYTES_MAX);
        let offer = offers[random.below(offers.len() as u64) as usize];
        world.step(offer, random.below(4) > 0)?;
        if step % 64 == 0 {
            world.drains()?;
        }
    }
    Ok(())
}

#[test]
fn properties_hold_after_each_of_100_000_random_steps() {
    for (scheme, _) in EngineScheme::ALL {
        assert_eq!(random_steps(scheme, 100_000, None), Ok(()), "{scheme:?}");
    }
}

/// Each fault with the scheme that can have it and the property that finds it.
#[test]
fn every_planted_fault_is_found() {
    use EngineScheme::{Fifo, PingPong, Single};
    use SpliceFault as F;
    let faults = [
        (F::SeamOffByOne, Fifo, "(a)"),
        (F::SidebandEarly, Fifo, "(b)"),
        (F::FlushLost, Fifo, "("),
        (F::MtuOfNewestBeat, PingPong, "("),
        (F::SidebandFullIgnored, Fifo, "(f) more entries"),
        (F::EmptyMakesNone, Fifo, "("),
        (F::ExactMakesEmpty, Fifo, "(b)"),
        (F::BankSwitchedEarly, PingPong, "mismatch"),
        (F::WrapTooEarly, Single, "(a)"),
        (F::BankFreedEarly, PingPong, "("),
        (F::LastCountOld, Fifo, "(a)"),
    ];
    for (fault, scheme, property) in faults {
        let found = random_steps(scheme, 100_000, Some(fault)).expect_err("found");
        println!("{fault:?}: {found}");
        assert!(found.starts_with(property), "{fault:?}: {found}");
    }
}

/// Offers beats of `(len, first, last, mtu_log2)` and returns the engine and the tags of its headers.
fn offer_all(config: EngineConfig, beats: &[BeatRow]) -> (Engine, Vec<(u32, bool)>) {
    let mut engine = Engine::open(config).expect("a configuration");
    let (mut tag, mut next, mut headers) = (0, 0, Vec::new());
    for now in 0..10_000 {
        let beat = beats.get(next).map(|&(len, first, last, mtu_log2)| InputBeat {
            len,
            first,
            last,
            tag,
            mtu_log2,
            bytes: &[],
        });
        let output = engine.tick(now, beat, true);
        if output.in_ready {
            tag += u32::from(beats[next].2);
            next += 1;
        }
        headers.extend(output.header.map(|header| (header.tag, header.last)));
    }
    assert!(engine.is_empty() && next == beats.len());
    (engine, headers)
}

#[test]
fn a_wrong_message_is_dropped_and_the_next_one_passes() {
    let wrong: [(InputError, &[BeatRow]); 6] = [
        (InputError::EmptyBeat, &[(64, true, false, 8), (0, false, false, 8), (1, false, true, 8)]),
        (InputError::BeatTooLong, &[(64, true, false, 8), (65, false, true, 8)]),
        (
            InputError::MtuChanged,
            &[(64, true, false, 8), (64, false, false, 9), (1, false, true, 8)],
        ),
        (InputError::MtuRange, &[(64, true, true, 7)]),
        (InputError::MtuRange, &[(64, true, true, 14)]),
        (InputError::FirstMissing, &[(64, false, false, 8), (9, false, true, 8)]),
    ];
    for (scheme, _) in EngineScheme::ALL {
        for (reason, beats) in wrong {
            let mut all = beats.to_vec();
            all.push((40, true, true, 8));
            let (engine, headers) = offer_all(EngineConfig::new(scheme), &all);
            assert_eq!(engine.counters().input_error(reason), 1, "{scheme:?} {reason:?}");
            assert_eq!(headers, [(1, true)], "{scheme:?} {reason:?}");
            assert_eq!(engine.counters().input_errors.iter().sum::<u64>(), 1);
        }
    }
}

#[test]
fn a_message_beyond_its_memory_is_found_and_the_next_one_passes() {
    for (scheme, most) in [(EngineScheme::PingPong, 64), (EngineScheme::Single, 128)] {
        for (beats, found) in [(most, 0), (most + 1, 1), (most + 9, 1)] {
            let mut all = vec![(64, false, false, 8); beats];
            all[0].1 = true;
            all[beats - 1].2 = true;
            all.push((40, true, true, 8));
            let (engine, headers) = offer_all(EngineConfig::new(scheme), &all);
            assert_eq!(engine.counters().too_long, found, "{scheme:?} {beats}");
            assert_eq!(headers.last(), Some(&(1, true)));
            assert_eq!(headers.len() == 1, found == 1);
        }
    }
}

#[test]
fn a_configuration_that_could_stop_is_refused_with_its_rule() {
    let good = EngineConfig::new(EngineScheme::Fifo);
    let wrong = [
        (
            EngineConfig { data_beats: 63, ..good },
            "data_beats 63: want data_beats * beat_bytes >= 4096",
        ),
        (EngineConfig { data_beats: 0, ..good }, "data_beats 0: want 1 to 65536"),
        (EngineConfig { data_beats: 65_537, ..good }, "data_beats 65537: want 1 to 65536"),
        (EngineConfig { sideband_entries: 0, ..good }, "sideband_entries 0: want 1 to 65536"),
        (EngineConfig { beat_bytes: 48, ..good }, "beat_bytes 48: want a power of two"),
        (EngineConfig { mtu_log2_max: 14, ..good }, "mtu_log2_max 14: want 8 to 13"),
        (EngineConfig { handover: 1025, ..good }, "handover 1025: want at most 1024"),
    ];
    for (config, text) in wrong {
        let error = Engine::open(config).expect_err("refused").to_string();
        assert!(error.starts_with(text), "{error}");
    }
    assert!(Engine::open(EngineConfig { data_beats: 64, ..good }).is_ok());
}
