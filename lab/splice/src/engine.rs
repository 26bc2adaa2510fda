//! The cycle models of all three schemes behind one interface.
//!
//! - owns: one cycle, the read side, counters. takes: an input beat, the state of the output. gives: what the cycle did.
//! - must not: depend on which scheme it is.
#![expect(
    clippy::cast_possible_truncation,
    reason = "counts are bounded by 65536 beats and packets of 8 KiB"
)]

mod banks;
mod entry;
mod ram;
#[cfg(test)]
mod search;

mod store;
mod writer;

use crate::beat::{EngineOutput, InputBeat, OutputBeat};
use crate::config::{EngineConfig, EngineConfigError};
use crate::counters::EngineCounters;
use entry::PacketEntry;
use store::PacketStore;
use writer::SpliceWriter;

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
        let faults = crate::fault::SpliceFaults { planted: Some(fault) };
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
