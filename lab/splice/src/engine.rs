//! The cycle models of all three schemes behind one interface: what enters and leaves in a cycle, the read side,
//! counters.
//!
//! Must not depend on which scheme it is; counters decide nothing.
#![expect(
    clippy::cast_possible_truncation,
    reason = "counts are bounded by 65536 beats and packets of 8 KiB"
)]

mod banks;
#[cfg(test)]
mod search;
mod store;
mod writer;

use urma_packet::packetizer::Sideband;

use store::PacketStore;
use writer::SpliceWriter;

use crate::config::{EngineConfig, EngineConfigError};

/// The packet that is being read.
#[derive(Clone, Copy, Debug)]
struct ReadPacket {
    entry: PacketEntry,
    /// Beats that are left.
    left: u32,
    /// Cycle of its header.
    header: u64,
}

/// A cycle model of one engine. Every figure that it gives is of a model, none of a chip.
#[derive(Clone, Debug)]
pub struct Engine {
    config: EngineConfig,
    writer: SpliceWriter,
    store: PacketStore,
    reading: Option<ReadPacket>,
    /// Payload bytes of the packet before, which a planted fault uses.
    len_before: u32,
    /// The beat that left last.
    out: Vec<u8>,
    counters: EngineCounters,
}

impl Engine {
    /// An engine in the state after reset.
    ///
    /// # Errors
    ///
    /// The field, its value and the rule that it breaks.
    pub fn open(config: EngineConfig) -> Result<Self, EngineConfigError> {
        config.check()?;
        Ok(Self {
            config,
            writer: SpliceWriter::new(&config),
            store: PacketStore::new(&config),
            reading: None,
            len_before: 0,
            out: Vec::new(),
            counters: EngineCounters::default(),
        })
    }

    /// Plants a mistake, for tests of checks.
    #[cfg(test)]
    pub fn plant(&mut self, fault: crate::SpliceFault) {
        let faults = crate::config::SpliceFaults { planted: Some(fault) };
        self.writer.faults = faults;
        self.store.plant(faults);
    }

    /// What it was made with.
    #[must_use]
    pub const fn config(&self) -> &EngineConfig {
        &self.config
    }

    /// What was counted since it was opened.
    #[must_use]
    pub const fn counters(&self) -> &EngineCounters {
        &self.counters
    }

    /// Bytes of the beat that left last; empty where only time is modelled.
    #[must_use]
    pub fn beat_bytes(&self) -> &[u8] {
        &self.out
    }

    /// Beats of data memory in use.
    #[must_use]
    pub fn occupancy(&self) -> u32 {
        self.store.occupancy()
    }

    /// Nothing of any message is left inside.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.reading.is_none() && self.writer.open.is_none() && self.store.is_empty()
    }

    /// One cycle. `now` is its number, `out_ready` whether the output takes a header or beat.
    pub fn tick(
        &mut self,
        now: u64,
        input: Option<InputBeat<'_>>,
        out_ready: bool,
    ) -> EngineOutput {
        // Both sides see the state at the beginning of the cycle: reading goes first, and what is written is
        // seen in the next cycle; room that reading makes counts from then on, too.
        let room = self.store.room();
        let mut output = EngineOutput::default();
        self.read(now, out_ready, &mut output);
        let (accepted, moved) =
            self.writer.step(now, input.as_ref(), room, &mut self.store, &mut self.counters);
        output.in_ready = accepted;
        output.moved |= moved;
        output.occupancy = self.store.occupancy();
        self.count(&output);
        output
    }

    fn read(&mut self, now: u64, out_ready: bool, output: &mut EngineOutput) {
        if let Some(mut packet) = self.reading {
            if out_ready {
                output.beat = Some(self.read_beat(&packet));
                packet.left -= 1;
                self.read_on(now, packet, output);
            }
            return;
        }
        let (entry, moved) = self.store.next_packet(out_ready);
        output.moved |= moved;
        if let Some(entry) = entry {
            let left = entry.sideband.len.div_ceil(self.config.beat_bytes);
            output.header = Some(entry.sideband);
            self.read_on(now, ReadPacket { entry, left, header: now }, output);
        }
    }

    /// A header or a beat left.
    fn read_on(&mut self, now: u64, packet: ReadPacket, output: &mut EngineOutput) {
        output.moved = true;
        self.reading = (packet.left > 0).then_some(packet);
        if packet.left == 0 {
            let PacketEntry { sideband, accepted, .. } = packet.entry;
            self.store.packet_ended(sideband);
            self.len_before = sideband.len;
            output.ended = Some((accepted, packet.header));
            let counters = &mut self.counters;
            counters.packets += 1;
            counters.bytes += u64::from(sideband.len);
            counters.header_latency.record(packet.header.saturating_sub(accepted));
            counters.end_latency.record(now.saturating_sub(accepted));
        }
    }

    fn read_beat(&mut self, packet: &ReadPacket) -> OutputBeat {
        let width = self.config.beat_bytes;
        let last = packet.left == 1;
        let rest = |len: u32| len - width * (len.div_ceil(width).max(1) - 1);
        let len = match last {
            false => width,
            true if self.writer.faults.count_old() => rest(self.len_before),
            true => rest(packet.entry.sideband.len),
        };
        let (beat, bytes) = self.store.pop();
        self.out.clear();
        self.out.extend_from_slice(bytes.get(..len as usize).unwrap_or(&[]));
        let right = beat.serial == packet.entry.serial && u32::from(beat.len) == len;
        self.counters.mismatch += u64::from(!right);
        OutputBeat { len: len as u16, last }
    }

    fn count(&mut self, output: &EngineOutput) {
        let counters = &mut self.counters;
        counters.cycles += 1;
        counters.beats_out += u64::from(output.beat.is_some());
        counters.idle_out += u64::from(output.beat.is_none() && output.header.is_none());
        counters.occupancy_max = counters.occupancy_max.max(output.occupancy);
        counters.occupancy_sum += u64::from(output.occupancy);
    }
}

/// A packet that can be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct PacketEntry {
    sideband: Sideband,
    /// Cycle in which its first byte was accepted.
    accepted: u64,
    /// Number of the packet, for the count of mismatches.
    serial: u32,
}

/// What the write side may do, by the state at the beginning of the cycle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "four wires of a design")]
struct WriteRoom {
    /// A beat of data memory is free.
    data: bool,
    /// An entry of the sideband FIFO is free.
    sideband: bool,
    /// A message may open.
    bank: bool,
    /// The message that fills has all the memory it can ever have.
    too_long: bool,
}

/// A beat that the DMA side offers.
#[derive(Clone, Copy, Debug)]
pub struct InputBeat<'a> {
    /// Valid bytes from byte 0 on, 0 to W.
    pub len: u16,
    /// The first beat of a message.
    pub first: bool,
    /// The final beat of a message.
    pub last: bool,
    /// Name of the request.
    pub tag: u32,
    /// Path MTU as a power of two, 8 to 13: 256 to 8192 bytes.
    pub mtu_log2: u8,
    /// The `len` bytes, or none at all where only time is modelled.
    pub bytes: &'a [u8],
}

/// A beat of a packet that leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutputBeat {
    /// Valid bytes from byte 0 on; `Engine::beat_bytes` has them.
    pub len: u16,
    /// The last beat of its packet.
    pub last: bool,
}

/// What one cycle did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EngineOutput {
    /// The offered beat was accepted.
    pub in_ready: bool,
    /// A header cycle: this packet begins.
    pub header: Option<Sideband>,
    /// A beat of the open packet.
    pub beat: Option<OutputBeat>,
    /// A packet ended in this cycle: the cycle in which its first byte was accepted, and that of its header.
    pub ended: Option<(u64, u64)>,
    /// Some state changed. An engine whose state stays, with a beat offered and the output ready, stays for ever.
    pub moved: bool,
    /// Beats in the data memory at the end of the cycle.
    pub occupancy: u32,
}

/// Why a message was dropped up to its last beat.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InputError {
    /// A beat without bytes inside a message.
    EmptyBeat,
    /// More bytes than a beat has.
    BeatTooLong,
    /// Another MTU, or another tag, than the first beat of the message said.
    MtuChanged,
    /// An MTU out of range.
    MtuRange,
    /// A message without its first beat, or a first beat inside a message.
    FirstMissing,
}

impl InputError {
    /// Every reason with its name in results.
    pub const ALL: [(Self, &'static str); 5] = [
        (Self::EmptyBeat, "empty_beat"),
        (Self::BeatTooLong, "beat_too_long"),
        (Self::MtuChanged, "mtu_changed"),
        (Self::MtuRange, "mtu_range"),
        (Self::FirstMissing, "first_missing"),
    ];
}

/// Cycles in which a beat waited, by cause.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StallCycles {
    /// The data memory was full.
    pub data: u64,
    /// The sideband FIFO was full.
    pub sideband: u64,
    /// No bank was empty.
    pub bank: u64,
    /// The control of banks changed hands.
    pub handover: u64,
    /// A flush beat had the write port; counted also when no beat waited.
    pub flush: u64,
}

/// Cycles up to this number are counted exactly.
const EXACT: usize = 4096;
/// Buckets of powers of two above them.
const ABOVE: usize = 52;

/// A histogram of cycles: exact up to 4095, then a bucket per power of two.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CycleHistogram {
    /// Grows to the largest value, at most to 4096 buckets.
    exact: Vec<u64>,
    above: [u64; ABOVE],
    count: u64,
    sum: u64,
    max: u64,
}

impl Default for CycleHistogram {
    fn default() -> Self {
        Self { exact: Vec::new(), above: [0; ABOVE], count: 0, sum: 0, max: 0 }
    }
}

impl CycleHistogram {
    pub(crate) fn record(&mut self, cycles: u64) {
        match usize::try_from(cycles) {
            Ok(at) if at < EXACT => {
                if at >= self.exact.len() {
                    self.exact.resize(at + 1, 0);
                }
                self.exact[at] += 1;
            }
            _ => self.above[(cycles.ilog2() - EXACT.ilog2()) as usize] += 1,
        }
        self.count += 1;
        self.sum += cycles;
        self.max = self.max.max(cycles);
    }

    /// How many values were recorded.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Sum of the values that were recorded.
    #[must_use]
    pub const fn sum(&self) -> u64 {
        self.sum
    }

    /// Largest value that was recorded; 0 without one.
    #[must_use]
    pub const fn max(&self) -> u64 {
        self.max
    }

    /// Mean in cycles; 0 without a value.
    #[must_use]
    pub fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum as f64 / self.count as f64 }
    }

    /// Value at rank `ceil(permille / 1000 * count)`; above 4095 the upper end of its bucket, at most the maximum.
    #[must_use]
    pub fn quantile(&self, permille: u64) -> u64 {
        let mut left = (self.count * permille).div_ceil(1000);
        for (value, n) in (0_u64..).zip(&self.exact) {
            left = left.saturating_sub(*n);
            if left == 0 {
                return value;
            }
        }
        for (power, n) in (EXACT.ilog2()..).zip(&self.above) {
            left = left.saturating_sub(*n);
            if left == 0 {
                return ((2_u64 << power) - 1).min(self.max);
            }
        }
        self.max
    }
}

/// What an engine counted since it was opened.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EngineCounters {
    /// Cycles since the engine was opened.
    pub cycles: u64,
    /// Beats that were accepted at the input.
    pub beats_in: u64,
    /// Beats of packets that left.
    pub beats_out: u64,
    /// Packets that ended at the output.
    pub packets: u64,
    /// Payload bytes of those packets.
    pub bytes: u64,
    /// Cycles in which a beat waited.
    pub stalls: StallCycles,
    /// Cycles with neither a header nor a beat.
    pub idle_out: u64,
    /// Most beats in the data memory.
    pub occupancy_max: u32,
    /// Sum over cycles of the beats in it.
    pub occupancy_sum: u64,
    /// Cycles from the acceptance of a packet's first byte to its header.
    pub header_latency: CycleHistogram,
    /// Cycles from the acceptance of a packet's first byte to its end.
    pub end_latency: CycleHistogram,
    /// Messages dropped because they cannot fit.
    pub too_long: u64,
    /// Messages dropped for an input error, by reason, in the order of `InputError::ALL`.
    pub input_errors: [u64; 5],
    /// Beats whose packet is not that of the header before them. Stays 0.
    pub mismatch: u64,
}

impl EngineCounters {
    /// Messages that were dropped for this reason.
    #[must_use]
    pub const fn input_error(&self, reason: InputError) -> u64 {
        self.input_errors[reason as usize]
    }

    /// Mean number of beats in the data memory.
    #[must_use]
    pub fn occupancy_mean(&self) -> f64 {
        if self.cycles == 0 { 0.0 } else { self.occupancy_sum as f64 / self.cycles as f64 }
    }
}
