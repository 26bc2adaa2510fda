//! The packet engine of `URMA_PACKET_ENGINE=count`: each message that goes by packets also goes through a cycle model.
//!
//! *Owns*: the model, what was published of its counters. *Takes*: pieces of messages. *Gives*: counters.
//! *Must not*: delay or change a packet.

use udma_abi::counters::Counter;
use urma_splice::{Engine, EngineConfig, EngineCounters, EngineScheme, InputBeat};

use crate::context::counts::Counts;

/// Cycles that one beat may wait: more than the largest packet takes to leave.
const WAIT_MAX: u32 = 4096;
/// Values of the model that are published.
const PUBLISHED: usize = 13;

/// The model, fed without a pause between messages and with an output that is always ready.
#[derive(Debug)]
pub(crate) struct PacketEngine {
    model: Engine,
    cycle: u64,
    tag: u32,
    mtu_log2: u8,
    published: [u64; PUBLISHED],
}

impl PacketEngine {
    /// A model of the default engine for this MTU, at most 8192 bytes.
    pub(crate) fn new(mtu: u32) -> Option<Self> {
        let mtu_log2 = u8::try_from(mtu.ilog2()).ok()?;
        let config =
            EngineConfig { mtu_log2_max: mtu_log2, ..EngineConfig::new(EngineScheme::Fifo) };
        let model = Engine::open(config).ok()?;
        Some(Self { model, cycle: 0, tag: 0, mtu_log2, published: [0; PUBLISHED] })
    }

    /// Runs a message of pieces (address, length in bytes) through the model.
    pub(crate) fn message(&mut self, pieces: impl Iterator<Item = (u64, u32)>, counts: &Counts) {
        let width = self.model.config().beat_bytes;
        let mut pieces = pieces.filter(|(_, len)| *len > 0).peekable();
        let mut first = true;
        if pieces.peek().is_none() {
            self.offer(0, (true, true));
        }
        while let Some((va, mut left)) = pieces.next() {
            // The rest is below the width, which is 64.
            let mut room = width - u32::try_from(va % u64::from(width)).unwrap_or(0);
            while left > 0 {
                let len = left.min(room);
                left -= len;
                let last = left == 0 && pieces.peek().is_none();
                self.offer(u16::try_from(len).unwrap_or(0), (first, last));
                (first, room) = (false, width);
            }
        }
        self.tag = self.tag.wrapping_add(1);
        self.publish(counts);
    }

    fn offer(&mut self, len: u16, (first, last): (bool, bool)) {
        let (tag, mtu_log2) = (self.tag, self.mtu_log2);
        for _ in 0..WAIT_MAX {
            let beat = InputBeat { len, first, last, tag, mtu_log2, bytes: &[] };
            let output = self.model.tick(self.cycle, Some(beat), true);
            self.cycle += 1;
            if output.in_ready {
                return;
            }
        }
    }

    fn publish(&mut self, counts: &Counts) {
        for (before, (counter, value)) in
            self.published.iter_mut().zip(published(self.model.counters()))
        {
            if *before != value {
                counts.add_alone(counter, value - *before);
                *before = value;
            }
        }
    }
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
        (Counter::EngineStallFlush, of.stalls.flush),
        (Counter::EngineIdleOut, of.idle_out),
        (Counter::EngineOccupancyMax, u64::from(of.occupancy_max)),
        (Counter::EngineTooLong, of.too_long),
        (Counter::EngineInputErrors, of.input_errors.iter().sum()),
        (Counter::EngineMismatch, of.mismatch),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_counted_beat_by_beat() {
        let counts = Counts::new();
        let mut engine = PacketEngine::new(4096).expect("an MTU in range");
        engine.message([(60, 8), (0, 0), (0, 4096)].into_iter(), &counts);
        engine.message(std::iter::empty(), &counts);
        // What is inside goes out with the messages behind it.
        engine.message([(0, 65_536)].into_iter(), &counts);
        // 60 and 4 bytes of the first piece's two beats, 64 of the second, the empty beat, 1024.
        assert_eq!(counts.value(Counter::EngineBeatsIn), 2 + 64 + 1 + 1024);
        assert!(counts.value(Counter::EnginePackets) >= 2 + 1 + 14);
        assert!(counts.value(Counter::EngineCycles) >= 2 + 64 + 1 + 1024);
        assert_eq!(counts.value(Counter::EngineStallFlush), 1);
        assert_eq!(counts.value(Counter::EngineMismatch), 0);
        assert_eq!(counts.value(Counter::EngineInputErrors), 0);
    }
}
