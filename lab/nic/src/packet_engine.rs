//! The packet engine of `URMA_PACKET_ENGINE`: each message in packets also passes through a cycle model.
//!
//! *Owns*: the model. *Takes*: pieces of messages. *Gives*: counters, the times of packets. *Must not*: change a packet.

use std::sync::{Mutex, MutexGuard, PoisonError};

use ubcore_sim::nic::ModelMode;
use udma_abi::Nanos;
use urma_splice::{
    Engine, EngineCounters, EngineOutput, EngineScheme, FifoTimes, InputBeat, Sideband,
};

use crate::engine_cfg::{PacketEngineCfg, PacketEngineCfgError};

/// Most cycles that a beat may wait, or a message stay in the model: more than the largest message takes to leave.
const WAIT_MAX: u64 = 1 << 27;

/// The model, fed without a pause within a message, with an output that is always ready.
#[derive(Debug)]
pub(crate) struct PacketEngine {
    model: Mutex<EngineModel>,
    mode: ModelMode,
    mhz: u64,
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
    /// A model of this engine for packets of at most `mtu` bytes. `None`: the mode is off.
    ///
    /// # Errors
    /// The engine is not possible.
    pub(crate) fn new(
        mode: ModelMode,
        cfg: &PacketEngineCfg,
        mtu: u32,
    ) -> Result<Option<Self>, PacketEngineCfgError> {
        if mode == ModelMode::Off {
            return Ok(None);
        }
        let config = cfg.engine(mtu)?;
        let model = match config.scheme {
            EngineScheme::Fifo => EngineModel::Sums(Box::new(FifoTimes::open(config)?)),
            EngineScheme::PingPong | EngineScheme::Single => {
                let engine = Engine::open(config)?;
                EngineModel::Cycles(Box::new(CycleModel {
                    engine,
                    cycle: 0,
                    tag: 0,
                    reading: None,
                }))
            }
        };
        Ok(Some(Self { model: Mutex::new(model), mode, mhz: cfg.mhz.into() }))
    }

    /// Whether packets wait for their cycles.
    pub(crate) const fn mode(&self) -> ModelMode {
        self.mode
    }

    /// Runs a message of pieces (address, length in bytes) through the model; nothing of it was offered before `now`.
    /// In virtual time, returns for each packet the end of its bytes and when the model finishes it.
    pub(crate) fn on_message(&self, now: Nanos, pieces: &[(u64, u32)]) -> Vec<(u64, Nanos)> {
        let is_timed = self.mode == ModelMode::Time;
        let (mut packets, mut bytes) = (Vec::new(), 0);
        let mut on_packet = |len: u64, end: u64| {
            bytes += len;
            if is_timed {
                packets.push((bytes, ns_of(end + 1, self.mhz)));
            }
        };
        let from = if is_timed { cycle_of(now, self.mhz) } else { 0 };
        let pieces = pieces.iter().copied();
        match &mut *self.model() {
            EngineModel::Sums(model) => model.message(from, pieces, |p| on_packet(p.len, p.end)),
            EngineModel::Cycles(model) => model.message(from, pieces, is_timed, on_packet),
        }
        packets
    }

    /// All counters, of what went through so far.
    pub(crate) fn counters(&self) -> Vec<(&'static str, u64)> {
        match &*self.model() {
            EngineModel::Sums(model) => named(model.counters()),
            EngineModel::Cycles(model) => named(model.engine.counters()),
        }
    }

    fn model(&self) -> MutexGuard<'_, EngineModel> {
        // A panic in the middle leaves a model whose counters may be off; packets do not depend on it.
        self.model.lock().unwrap_or_else(PoisonError::into_inner)
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

fn named(of: &EngineCounters) -> Vec<(&'static str, u64)> {
    vec![
        ("engine_cycles", of.cycles),
        ("engine_beats_in", of.beats_in),
        ("engine_beats_out", of.beats_out),
        ("engine_packets", of.packets),
        ("engine_bytes", of.bytes),
        ("engine_stall_data", of.stalls.data),
        ("engine_stall_sideband", of.stalls.sideband),
        ("engine_stall_bank", of.stalls.bank),
        ("engine_stall_handover", of.stalls.handover),
        ("engine_stall_flush", of.stalls.flush),
        ("engine_idle_out", of.idle_out),
        ("engine_occupancy_max", u64::from(of.occupancy_max)),
        ("engine_occupancy_sum", of.occupancy_sum),
        ("engine_header_latency", of.header_latency.sum()),
        ("engine_end_latency", of.end_latency.sum()),
        ("engine_too_long", of.too_long),
        ("engine_input_errors", of.input_errors.iter().sum()),
        ("engine_mismatch", of.mismatch),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn engine(mode: ModelMode, text: &str) -> PacketEngine {
        let cfg = text.parse().expect("fields of an engine");
        PacketEngine::new(mode, &cfg, 4096).expect("an engine that is possible").expect("it is on")
    }

    fn value(engine: &PacketEngine, name: &str) -> u64 {
        let counters = engine.counters();
        let found = counters.iter().find(|(known, _)| *known == format!("engine_{name}"));
        found.unwrap_or_else(|| panic!("no counter {name}")).1
    }

    #[test]
    fn messages_are_counted_beat_by_beat() {
        for (scheme, flushes) in [("scheme=fifo", 1), ("scheme=single,data_beats=2048", 1)] {
            let engine = engine(ModelMode::Count, scheme);
            assert_eq!(engine.on_message(0, &[(60, 8), (0, 0), (0, 4096)]), []);
            assert_eq!(engine.on_message(0, &[]), []);
            // What is inside goes out with the messages behind it.
            let times = engine.on_message(0, &[(0, 65_536)]);
            assert_eq!(times, [], "times are given in virtual time alone");
            // 60 and 4 bytes of the first piece's two beats, 64 of the second, the empty beat, 1024.
            let value = |name| value(&engine, name);
            assert_eq!(value("beats_in"), 2 + 64 + 1 + 1024);
            assert!(value("packets") >= 2);
            assert!(value("cycles") >= 2 + 64 + 1 + 1024);
            assert_eq!(value("stall_flush"), flushes);
            assert_eq!(value("mismatch"), 0);
            assert_eq!(value("input_errors"), 0);
        }
    }

    #[test]
    fn a_packet_may_go_in_the_cycle_in_which_the_model_ends_it() {
        // 64 beats of 64 bytes, a cycle until the sideband is seen, a header and 64 beats: cycle 128 is the last one.
        for (scheme, last) in
            [("scheme=fifo", 128), ("scheme=pingpong,data_beats=2048,handover=0", 128)]
        {
            let engine = engine(ModelMode::Time, &format!("{scheme},mhz=1000"));
            let times = engine.on_message(1000, &[(0, 8192)]);
            let [(4096, first), (8192, second)] = times[..] else { panic!("{scheme}: {times:?}") };
            assert!((1000 + last + 1..=1000 + last + 66).contains(&first), "{scheme}: {first}");
            assert_eq!(second, first + 65, "{scheme}: a header and 64 beats");
            // A later message begins in its own time.
            let times = engine.on_message(10_000, &[(0, 64)]);
            assert!(matches!(times[..], [(64, 10_002..10_020)]), "{times:?}");
        }
    }

    #[test]
    fn a_message_that_does_not_fit_a_bank_is_counted_and_goes() {
        let engine = engine(ModelMode::Time, "scheme=pingpong,data_beats=64");
        assert_eq!(engine.on_message(0, &[(0, 65_536)]), []);
        assert_eq!(value(&engine, "too_long"), 1);
    }
}
