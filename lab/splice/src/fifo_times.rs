//! Scheme 3 by arithmetic: the same cycles and counters as its cycle model, some steps for each packet.
//!
//! - owns: when each packet of a message leaves, where input is offered in every cycle and output always ready.
//! - takes: pieces of messages. gives: cycles of packets, counters. must not: differ from [`Engine`](crate::Engine).

use std::collections::VecDeque;

use crate::config::{EngineConfig, EngineConfigError, EngineScheme};
use crate::engine::EngineCounters;

/// When a packet left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PacketTimes {
    /// Number of payload bytes in it.
    pub len: u64,
    /// Cycle of its header.
    pub header: u64,
    /// Cycle of its last beat, or of its header where it has none.
    pub end: u64,
}

/// A packet that is complete.
#[derive(Clone, Copy, Debug)]
struct CompletePacket {
    /// Number of its first beat, of all beats since the start.
    first_beat: u64,
    beats: u64,
    header: u64,
}

/// The packet that is being written.
#[derive(Clone, Copy, Debug, Default)]
struct OpenPacket {
    first_beat: u64,
    bytes: u64,
    /// Sum of the cycles in which its beats were written.
    written: u64,
    /// Cycle in which its first byte was accepted.
    accepted: Option<u64>,
}

/// The engine of scheme 3. What happens in a cycle depends on two cycles alone: when the beat left whose place the next one
/// takes, and when the entry did. Both are sums, since the reader takes a beat of a packet in each cycle.
#[derive(Clone, Debug)]
pub struct FifoTimes {
    width: u64,
    depth: u64,
    entries: u64,
    mtu: u64,
    /// First cycle in which the next beat can be written.
    next: u64,
    residue: u64,
    /// Beats written since the start.
    pushed: u64,
    open: OpenPacket,
    /// Those that a write may still wait for.
    packets: VecDeque<CompletePacket>,
    /// Number of the first of them.
    first_packet: u64,
    /// Number of the packet with the beat whose place the next one takes, and of the one that is read.
    leaving: u64,
    reading: u64,
    /// First cycle in which the next header can be read.
    reader_free: u64,
    counters: EngineCounters,
}

impl FifoTimes {
    /// An engine in the state after reset; its MTU is the largest of the configuration.
    ///
    /// # Errors
    ///
    /// As [`Engine::open`](crate::Engine::open), and another scheme.
    pub fn open(config: EngineConfig) -> Result<Self, EngineConfigError> {
        config.check()?;
        if config.scheme != EngineScheme::Fifo {
            let (field, value) = ("scheme", config.scheme as u64);
            let rule = "fifo: only its cycles are sums".to_owned();
            return Err(EngineConfigError { field, value, rule });
        }
        Ok(Self {
            width: config.beat_bytes.into(),
            depth: config.data_beats.into(),
            entries: config.sideband_entries.into(),
            mtu: 1 << config.mtu_log2_max,
            next: 0,
            residue: 0,
            pushed: 0,
            open: OpenPacket::default(),
            packets: VecDeque::new(),
            first_packet: 0,
            leaving: 0,
            reading: 0,
            reader_free: 0,
            counters: EngineCounters::default(),
        })
    }

    /// What was counted until everything is out.
    #[must_use]
    pub const fn counters(&self) -> &EngineCounters {
        &self.counters
    }

    /// Runs a message of pieces (address, length in bytes), whose first beat is offered in cycle `from` or when the beats before
    /// it were accepted. Gives each packet to `on_packet`.
    pub fn message(
        &mut self,
        from: u64,
        pieces: impl Iterator<Item = (u64, u32)>,
        mut on_packet: impl FnMut(PacketTimes),
    ) {
        self.next = self.next.max(from);
        let mut pieces = pieces.filter(|(_, len)| *len > 0).peekable();
        if pieces.peek().is_none() {
            self.beat(0, true, &mut on_packet);
        }
        while let Some((va, len)) = pieces.next() {
            let (len, is_last) = (u64::from(len), pieces.peek().is_none());
            let head = len.min(self.width - va % self.width);
            let rest = (len - head) % self.width;
            let mut full = (len - head) / self.width;
            // The last beat of a message is one of its own.
            if is_last && rest == 0 && full > 0 {
                full -= 1;
            }
            let tail = len - head - full * self.width;
            self.beat(head, is_last && full + tail == 0, &mut on_packet);
            self.full_beats(full, &mut on_packet);
            if tail > 0 {
                self.beat(tail, is_last, &mut on_packet);
            }
        }
        let counters = &mut self.counters;
        counters.cycles = self.next.max(self.reader_free);
        counters.idle_out = counters.cycles - counters.beats_out - counters.packets;
    }

    /// A beat of `len` bytes is offered, the last one of its message or not.
    fn beat(&mut self, len: u64, last: bool, on_packet: &mut impl FnMut(PacketTimes)) {
        let now = self.accept(1);
        let total = self.residue + len;
        self.residue = total;
        if total >= self.width {
            self.residue = total - self.width;
            self.push(now, self.width);
            self.end_packet(now, last && self.residue == 0, on_packet);
        } else if last {
            self.residue = 0;
            self.push(now, total);
            self.end_packet(now, true, on_packet);
        }
        if last && self.residue > 0 {
            let now = self.room_at().max(self.next);
            self.counters.stalls.flush += now + 1 - self.next;
            self.next = now + 1;
            let rest = std::mem::take(&mut self.residue);
            self.push(now, rest);
            self.end_packet(now, true, on_packet);
        }
    }

    /// `left` full beats are offered, none the last one of its message.
    fn full_beats(&mut self, mut left: u64, on_packet: &mut impl FnMut(PacketTimes)) {
        while left > 0 {
            let to_mtu = (self.mtu - self.open.bytes).div_ceil(self.width);
            let count = left.min(to_mtu).min(self.beats_at_once());
            let first = self.accept(count);
            let last = first + count - 1;
            self.open.written += count * first + count * (count - 1) / 2;
            self.open.bytes += count * self.width;
            self.pushed += count;
            self.note_occupancy(last);
            self.end_packet(last, false, on_packet);
            left -= count;
        }
    }

    /// Beats that are accepted one after another once the first is.
    fn beats_at_once(&mut self) -> u64 {
        match self.leaving_packet() {
            None => self.depth - self.pushed,
            Some(packet) => packet.first_beat + packet.beats - (self.pushed - self.depth),
        }
    }

    /// The packet with the beat whose place the next one takes; `None`: there are free places.
    fn leaving_packet(&mut self) -> Option<CompletePacket> {
        let beat = self.pushed.checked_sub(self.depth)?;
        loop {
            let packet = *self.packet(self.leaving)?;
            if beat < packet.first_beat + packet.beats {
                return Some(packet);
            }
            self.leaving += 1;
        }
    }

    /// Accepts `count` beats from the first cycle with room on. Returns that cycle.
    fn accept(&mut self, count: u64) -> u64 {
        let next = self.next;
        let data_at = self.data_room_at();
        let now = self.room_at().max(next);
        let data_stall = data_at.saturating_sub(next);
        self.counters.stalls.data += data_stall;
        self.counters.stalls.sideband += now - next - data_stall;
        self.counters.beats_in += count;
        self.open.accepted.get_or_insert(now);
        self.next = now + count;
        now
    }

    fn room_at(&mut self) -> u64 {
        let entry = (self.first_packet + self.packets.len() as u64).checked_sub(self.entries);
        let entry_at = entry.and_then(|number| self.packet(number)).map_or(0, |p| p.header + 1);
        self.data_room_at().max(entry_at)
    }

    fn data_room_at(&mut self) -> u64 {
        let beat = self.pushed.wrapping_sub(self.depth);
        // Beat 0 of a packet leaves in the cycle behind its header, and its place is free in the next one.
        self.leaving_packet().map_or(0, |packet| packet.header + 2 + beat - packet.first_beat)
    }

    fn packet(&self, number: u64) -> Option<&CompletePacket> {
        let at = usize::try_from(number.checked_sub(self.first_packet)?).ok()?;
        self.packets.get(at)
    }

    /// Writes a beat; none for an empty message.
    fn push(&mut self, now: u64, len: u64) {
        if len > 0 {
            self.open.written += now;
            self.open.bytes += len;
            self.pushed += 1;
            self.note_occupancy(now);
        }
    }

    /// Beats in the memory after the write in this cycle: most of them, for the reader takes at most one in a cycle.
    fn note_occupancy(&mut self, now: u64) {
        let popped = loop {
            let Some(packet) = self.packet(self.reading) else { break self.open.first_beat };
            if now < packet.header + packet.beats {
                break packet.first_beat + now.saturating_sub(packet.header);
            }
            self.reading += 1;
        };
        let held = u32::try_from(self.pushed - popped).unwrap_or(u32::MAX);
        self.counters.occupancy_max = self.counters.occupancy_max.max(held);
    }

    /// Ends the packet if its message ends, or if it has the bytes of the MTU.
    fn end_packet(&mut self, now: u64, end: bool, on_packet: &mut impl FnMut(PacketTimes)) {
        if self.open.bytes < self.mtu && !end {
            return;
        }
        let OpenPacket { first_beat, bytes: len, written, accepted } = self.open;
        let beats = self.pushed - first_beat;
        let header = self.reader_free.max(now + 1);
        let last = header + beats;
        self.reader_free = last + 1;
        let accepted = accepted.unwrap_or(now);
        let counters = &mut self.counters;
        counters.packets += 1;
        counters.bytes += len;
        counters.beats_out += beats;
        counters.header_latency.record(header - accepted);
        counters.end_latency.record(last - accepted);
        counters.occupancy_sum +=
            beats * (header + 1) + beats * beats.saturating_sub(1) / 2 - written;
        self.packets.push_back(CompletePacket { first_beat, beats, header });
        let accepted = (self.residue > 0).then_some(now);
        self.open = OpenPacket { first_beat: self.pushed, accepted, ..OpenPacket::default() };
        self.forget();
        on_packet(PacketTimes { len, header, end: last });
    }

    /// Drops packets for whose beats and entries no write waits any more.
    fn forget(&mut self) {
        let after = self.first_packet + self.packets.len() as u64;
        let kept = self.leaving.min(self.reading).min(after.saturating_sub(self.entries));
        while self.first_packet < kept && self.packets.pop_front().is_some() {
            self.first_packet += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Engine;
    use crate::random::EngineRandom;
    use crate::run::drive::{Disturbance, EngineRun, RunEnd};
    use crate::run::messages::{HostPiece, LengthMix, PieceMessage};

    /// Runs the same messages through both; they must agree in every cycle and counter.
    fn compare(config: EngineConfig, messages: &[PieceMessage], what: &str) {
        let engine = Engine::open(config).expect("a configuration");
        let mut run = EngineRun::new(engine, messages, Disturbance::default()).expect("a run");
        let mut packets = Vec::new();
        let end =
            run.finish(|packet| packets.push((packet.sideband.len, packet.header, packet.end)));
        assert!(matches!(end, RunEnd::Done(_)), "{what}");
        let mut times = FifoTimes::open(config).expect("a configuration");
        let mut found = Vec::new();
        for message in messages {
            let pieces = message.pieces.iter().map(|piece| (piece.offset.into(), piece.len));
            times.message(0, pieces, |p| found.push((p.len, p.header, p.end)));
        }
        let wanted: Vec<_> = packets.iter().map(|(len, h, e)| (u64::from(*len), *h, *e)).collect();
        assert_eq!(found, wanted, "{what}");
        assert_eq!(times.counters(), run.engine().counters(), "{what}");
    }

    fn random_messages(random: &mut EngineRandom, mtu_log2: u8, width: u64) -> Vec<PieceMessage> {
        let mtu = 1_u64 << mtu_log2;
        let piece = |random: &mut EngineRandom| {
            let lengths = [0, 1, width - 1, width, width + 1, 2 * width - 1, mtu, 3 * mtu];
            let len = match random.below(12) {
                at @ 0..8 => lengths[usize::try_from(at).expect("few")],
                _ => random.below(4 * mtu),
            };
            let offset = random.below(2) * random.below(width);
            let narrow = |n| u32::try_from(n).expect("small");
            HostPiece { offset: narrow(offset), len: narrow(len) }
        };
        let message = |random: &mut EngineRandom| {
            let pieces = (0..random.below(4)).map(|_| piece(random)).collect();
            PieceMessage { mtu_log2, pieces }
        };
        (0..1 + random.below(40)).map(|_| message(random)).collect()
    }

    #[test]
    fn sums_are_the_cycles_of_the_model() {
        for (data_beats, sideband_entries) in [(128, 8), (64, 8), (65, 1), (72, 2), (4096, 16)] {
            let base = EngineConfig::new(EngineScheme::Fifo);
            let config = EngineConfig { data_beats, sideband_entries, ..base };
            for mix in [LengthMix::Rpc, LengthMix::Fixed(1), LengthMix::Fixed(100_000)] {
                compare(config, &mix.messages(60, 7, 12), "a mix");
            }
        }
    }

    #[test]
    fn sums_are_the_cycles_of_the_model_for_any_pieces() {
        for seed in 0..400 {
            let mut random = EngineRandom::new(seed);
            let beat_bytes = 32 << random.below(4);
            let mtu_log2 = 8 + u8::try_from(random.below(6)).expect("small");
            let least = (1_u64 << mtu_log2).div_ceil(beat_bytes);
            let data_beats = u32::try_from(least + random.below(2) * random.below(least + 9));
            let config = EngineConfig {
                beat_bytes: u32::try_from(beat_bytes).expect("small"),
                data_beats: data_beats.expect("small"),
                sideband_entries: 1 + u32::try_from(random.below(10)).expect("small"),
                mtu_log2_max: mtu_log2,
                ..EngineConfig::new(EngineScheme::Fifo)
            };
            let messages = random_messages(&mut random, mtu_log2, beat_bytes);
            compare(config, &messages, &format!("seed {seed}: {config:?}"));
        }
    }

    #[test]
    fn another_scheme_is_refused() {
        let config = EngineConfig::new(EngineScheme::Single);
        assert!(FifoTimes::open(config).is_err());
    }
}
