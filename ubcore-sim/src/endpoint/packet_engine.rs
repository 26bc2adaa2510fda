//! The packet engine of `URMA_PACKET_ENGINE`: each message in packets also passes through a cycle model.
//!
//! *Owns*: the model, its published counters, the times of packets in virtual time. *Takes*: pieces of messages.
//! *Gives*: counters, times. *Must not*: change a packet.

use std::collections::{BTreeMap, VecDeque};

use udma_abi::{Nanos, counters::Counter};
use urma_splice::{
    Engine, EngineCounters, EngineOutput, EngineScheme, FifoTimes, InputBeat, Sideband,
};

use crate::cfg::{PacketEngineCfg, PacketEngineMode};
use crate::context::counts::Counts;

/// Most cycles that a beat may wait, or a message stay in the model: more than the largest message takes to leave.
const WAIT_MAX: u64 = 1 << 27;
/// Most messages whose packets wait for their cycles; without a time, packets are sent at once.
const MESSAGES_MAX: usize = 8192;
/// Number of values of the model that are published.
const PUBLISHED: usize = 18;

/// Queue and number of a request.
pub(crate) type MessageKey = (u32, u32);

/// The model, fed without a pause within a message, with an output that is always ready.
#[derive(Debug)]
pub(crate) struct PacketEngine {
    model: EngineModel,
    mode: PacketEngineMode,
    mhz: u64,
    /// For each message in virtual time: last byte of a packet, and when the model finishes it.
    times: BTreeMap<MessageKey, VecDeque<(u64, Nanos)>>,
    published: [u64; PUBLISHED],
}

#[derive(Debug)]
enum EngineModel {
    /// Scheme `fifo`: its cycles are sums.
    Sums(Box<FifoTimes>),
    Cycles(Box<CycleModel>),
}

/// Designs with banks, cycle by cycle.
#[derive(Debug)]
struct CycleModel {
    engine: Engine,
    cycle: u64,
    tag: u32,
    /// The packet that is being read.
    reading: Option<Sideband>,
}

impl PacketEngine {
    /// A model of this engine for packets of at most `mtu` bytes. `None`: the mode is off, or it is impossible
    /// ([`PacketEngineCfg::engine`]).
    pub(crate) fn new(mode: PacketEngineMode, cfg: &PacketEngineCfg, mtu: u32) -> Option<Self> {
        let config = cfg.engine(mtu).ok().filter(|_| mode != PacketEngineMode::Off)?;
        let model = match config.scheme {
            EngineScheme::Fifo => EngineModel::Sums(Box::new(FifoTimes::open(config).ok()?)),
            EngineScheme::PingPong | EngineScheme::Single => {
                let engine = Engine::open(config).ok()?;
                EngineModel::Cycles(Box::new(CycleModel {
                    engine,
                    cycle: 0,
                    tag: 0,
                    reading: None,
                }))
            }
        };
        let (mhz, times) = (cfg.mhz.into(), BTreeMap::new());
        Some(Self { model, mode, mhz, times, published: [0; PUBLISHED] })
    }

    /// Whether packets wait for their cycles.
    pub(crate) fn is_timed(&self) -> bool {
        self.mode == PacketEngineMode::Time
    }

    /// Runs a message of pieces (address, length in bytes) through the model; nothing of it was offered before `now`.
    pub(crate) fn message(
        &mut self,
        (now, key): (Nanos, MessageKey),
        pieces: impl Iterator<Item = (u64, u32)>,
        counts: &Counts,
    ) {
        let (mhz, is_timed) = (self.mhz, self.is_timed());
        let (mut packets, mut bytes) = (VecDeque::new(), 0);
        let mut on_packet = |len: u64, end: u64| {
            bytes += len;
            if is_timed {
                packets.push_back((bytes, ns_of(end + 1, mhz)));
            }
        };
        let from = if is_timed { cycle_of(now, mhz) } else { 0 };
        match &mut self.model {
            EngineModel::Sums(model) => model.message(from, pieces, |p| on_packet(p.len, p.end)),
            EngineModel::Cycles(model) => model.message(from, pieces, is_timed, on_packet),
        }
        if is_timed {
            if self.times.len() >= MESSAGES_MAX {
                self.times.pop_first();
            }
            self.times.insert(key, packets);
        }
        self.publish(counts);
    }

    /// Whether [`PacketEngine::message`] ran the message, and it has not ended.
    pub(crate) fn knows(&self, key: MessageKey) -> bool {
        self.times.contains_key(&key)
    }

    /// When the packet that ends before byte `end` of a message may be sent; 0: at once.
    pub(crate) fn packet_ready_at(&mut self, key: MessageKey, end: u64) -> Nanos {
        let Some(times) = self.times.get_mut(&key) else { return 0 };
        while times.front().is_some_and(|(bytes, _)| *bytes < end) {
            times.pop_front();
        }
        times.front().map_or(0, |(_, at)| *at)
    }

    /// Forgets a message whose last packet was sent.
    pub(crate) fn end(&mut self, key: MessageKey) {
        self.times.remove(&key);
    }

    fn publish(&mut self, counts: &Counts) {
        let counters = match &self.model {
            EngineModel::Sums(model) => model.counters(),
            EngineModel::Cycles(model) => model.engine.counters(),
        };
        for (before, (counter, value)) in self.published.iter_mut().zip(published(counters)) {
            if *before != value {
                counts.add_alone(counter, value - *before);
                *before = value;
            }
        }
    }
}

impl CycleModel {
    /// Offers the beats of a message from cycle `from` on. With `to_end`, passes each packet's bytes and last cycle
    /// to `on_packet`, as if nothing followed.
    fn message(
        &mut self,
        from: u64,
        pieces: impl Iterator<Item = (u64, u32)>,
        to_end: bool,
        mut on_packet: impl FnMut(u64, u64),
    ) {
        self.tag = self.tag.wrapping_add(1);
        while self.cycle < from && !self.engine.is_empty() {
            self.tick(None, &mut on_packet);
        }
        self.cycle = self.cycle.max(from);
        let width = self.engine.config().beat_bytes;
        let mut pieces = pieces.filter(|(_, len)| *len > 0).peekable();
        let mut first = true;
        if pieces.peek().is_none() {
            self.offer(0, (true, true), &mut on_packet);
        }
        while let Some((va, mut left)) = pieces.next() {
            // The rest is below the width, which is at most 256.
            let mut room = width - u32::try_from(va % u64::from(width)).unwrap_or(0);
            while left > 0 {
                let len = left.min(room);
                left -= len;
                let last = left == 0 && pieces.peek().is_none();
                self.offer(u16::try_from(len).unwrap_or(0), (first, last), &mut on_packet);
                (first, room) = (false, width);
            }
        }
        if to_end {
            let Self { engine, cycle, tag, reading } = self;
            let (engine, cycle, tag) = (engine.clone(), *cycle, *tag);
            let mut alone = Self { engine, cycle, tag, reading: *reading };
            while !alone.engine.is_empty() && alone.cycle < cycle + WAIT_MAX {
                alone.tick(None, &mut on_packet);
            }
        }
    }

    fn offer(
        &mut self,
        len: u16,
        (first, last): (bool, bool),
        on_packet: &mut impl FnMut(u64, u64),
    ) {
        let mtu_log2 = self.engine.config().mtu_log2_max;
        let beat = InputBeat { len, first, last, tag: self.tag, mtu_log2, bytes: &[] };
        for _ in 0..WAIT_MAX {
            if self.tick(Some(beat), on_packet).in_ready {
                return;
            }
        }
    }

    fn tick(
        &mut self,
        input: Option<InputBeat<'_>>,
        on_packet: &mut impl FnMut(u64, u64),
    ) -> EngineOutput {
        let output = self.engine.tick(self.cycle, input, true);
        self.reading = output.header.or(self.reading);
        let ended = self.reading.filter(|of| output.ended.is_some() && of.tag == self.tag);
        if let Some(sideband) = ended {
            on_packet(sideband.len.into(), self.cycle);
        }
        self.cycle += 1;
        output
    }
}

/// The cycle at this time.
fn cycle_of(now: Nanos, mhz: u64) -> u64 {
    u64::try_from(u128::from(now) * u128::from(mhz) / 1000).unwrap_or(u64::MAX)
}

/// The time in ns at which a cycle begins, rounded up.
fn ns_of(cycle: u64, mhz: u64) -> Nanos {
    u64::try_from((u128::from(cycle) * 1000).div_ceil(mhz.into())).unwrap_or(u64::MAX)
}

fn published(of: &EngineCounters) -> [(Counter, u64); PUBLISHED] {
    [
        (Counter::EngineCycles, of.cycles),
        (Counter::EngineBeatsIn, of.beats_in),
        (Counter::EngineBeatsOut, of.beats_out),
        (Counter::EnginePackets, of.packets),
        (Counter::EngineBytes, of.bytes),
        (Counter::EngineStallData, of.stalls.data),
        (Counter::EngineStallSideband, of.stalls.sideband),
        (Counter::EngineStallBank, of.stalls.bank),
        (Counter::EngineStallHandover, of.stalls.handover),
        (Counter::EngineStallFlush, of.stalls.flush),
        (Counter::EngineIdleOut, of.idle_out),
        (Counter::EngineOccupancyMax, u64::from(of.occupancy_max)),
        (Counter::EngineOccupancySum, of.occupancy_sum),
        (Counter::EngineHeaderLatency, of.header_latency.sum()),
        (Counter::EngineEndLatency, of.end_latency.sum()),
        (Counter::EngineTooLong, of.too_long),
        (Counter::EngineInputErrors, of.input_errors.iter().sum()),
        (Counter::EngineMismatch, of.mismatch),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn engine(mode: PacketEngineMode, text: &str) -> PacketEngine {
        let cfg = text.parse().expect("fields of an engine");
        PacketEngine::new(mode, &cfg, 4096).expect("an engine that is possible")
    }

    #[test]
    fn messages_are_counted_beat_by_beat() {
        for (scheme, flushes) in [("scheme=fifo", 1), ("scheme=single,data_beats=2048", 1)] {
            let counts = Counts::new();
            let mut engine = engine(PacketEngineMode::Count, scheme);
            let key = (0, 0);
            engine.message((0, key), [(60, 8), (0, 0), (0, 4096)].into_iter(), &counts);
            engine.message((0, key), std::iter::empty(), &counts);
            // What is inside goes out with the messages behind it.
            engine.message((0, key), [(0, 65_536)].into_iter(), &counts);
            // 60 and 4 bytes of the first piece's two beats, 64 of the second, the empty beat, 1024.
            assert_eq!(counts.value(Counter::EngineBeatsIn), 2 + 64 + 1 + 1024);
            assert!(counts.value(Counter::EnginePackets) >= 2);
            assert!(counts.value(Counter::EngineCycles) >= 2 + 64 + 1 + 1024);
            assert_eq!(counts.value(Counter::EngineStallFlush), flushes);
            assert_eq!(counts.value(Counter::EngineMismatch), 0);
            assert_eq!(counts.value(Counter::EngineInputErrors), 0);
            assert!(!engine.knows(key), "times are kept in virtual time alone");
        }
    }

    #[test]
    fn a_packet_may_go_in_the_cycle_in_which_the_model_ends_it() {
        // 64 beats of 64 bytes, a cycle until the sideband is seen, a header and 64 beats: cycle 128 is the last one.
        let counts = Counts::new();
        for (scheme, last) in
            [("scheme=fifo", 128), ("scheme=pingpong,data_beats=2048,handover=0", 128)]
        {
            let mut engine = engine(PacketEngineMode::Time, &format!("{scheme},mhz=1000"));
            engine.message((1000, (1, 2)), [(0, 8192)].into_iter(), &counts);
            assert!(engine.knows((1, 2)));
            let first = engine.packet_ready_at((1, 2), 4096);
            let second = engine.packet_ready_at((1, 2), 8192);
            assert!((1000 + last + 1..=1000 + last + 66).contains(&first), "{scheme}: {first}");
            assert_eq!(second, first + 65, "{scheme}: a header and 64 beats");
            engine.end((1, 2));
            assert_eq!(engine.packet_ready_at((1, 2), 8192), 0);
            // A later message begins in its own time.
            engine.message((10_000, (1, 3)), [(0, 64)].into_iter(), &counts);
            assert!((10_002..10_020).contains(&engine.packet_ready_at((1, 3), 64)));
        }
    }

    #[test]
    fn a_message_that_does_not_fit_a_bank_is_counted_and_goes() {
        let counts = Counts::new();
        let mut engine = engine(PacketEngineMode::Time, "scheme=pingpong,data_beats=64");
        engine.message((0, (1, 2)), [(0, 65_536)].into_iter(), &counts);
        assert_eq!(counts.value(Counter::EngineTooLong), 1);
        assert_eq!(engine.packet_ready_at((1, 2), 65_536), 0);
    }
}
