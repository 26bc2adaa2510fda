//! The memory of a scheme behind one interface: two FIFOs, or two banks of beats at addresses.
//!
//! Says which beats and packets are there and how much room is left. Must not join bytes.

use std::collections::VecDeque;

use urma_packet::packetizer::Sideband;

use super::{PacketEntry, WriteRoom, banks::Banks};
use crate::config::{EngineConfig, EngineScheme, SpliceFaults};

/// Both FIFOs of scheme 3.
#[derive(Clone, Debug)]
pub(super) struct EngineFifos {
    pub(super) head: u32,
    pub(super) count: u32,
    pub(super) sideband: VecDeque<PacketEntry>,
}

#[derive(Clone, Debug)]
pub(super) enum StoreKind {
    EngineFifos(EngineFifos),
    Banks(Banks),
}

#[derive(Clone, Debug)]
pub(super) struct PacketStore {
    pub(super) kind: StoreKind,
    ram: BeatRam,
    beats: u32,
    entries: usize,
    faults: SpliceFaults,
}

impl PacketStore {
    pub(super) fn new(config: &EngineConfig) -> Self {
        let entries = config.sideband_entries as usize;
        let kind = match config.scheme {
            EngineScheme::Fifo => StoreKind::EngineFifos(EngineFifos {
                head: 0,
                count: 0,
                sideband: VecDeque::with_capacity(entries),
            }),
            EngineScheme::PingPong | EngineScheme::Single => StoreKind::Banks(Banks::new(config)),
        };
        let ram = BeatRam::new(config.data_beats, config.beat_bytes, config.payload);
        let beats = config.data_beats;
        Self { kind, ram, beats, entries, faults: SpliceFaults::default() }
    }

    #[cfg(test)]
    pub(super) fn plant(&mut self, faults: SpliceFaults) {
        self.faults = faults;
        if let StoreKind::Banks(banks) = &mut self.kind {
            banks.plant(faults);
        }
    }

    pub(super) fn room(&self) -> WriteRoom {
        match &self.kind {
            StoreKind::Banks(banks) => banks.room(),
            StoreKind::EngineFifos(fifos) => WriteRoom {
                data: fifos.count < self.beats,
                sideband: fifos.sideband.len() < self.entries || self.faults.sideband_full(),
                bank: true,
                too_long: false,
            },
        }
    }

    /// Whether a beat may wait for a push of its own (schemes 1 and 2), or needs room in any case (scheme 3).
    pub(super) const fn is_banks(&self) -> bool {
        matches!(self.kind, StoreKind::Banks(_))
    }

    /// One cycle of a hand-over on the write side; `true` while it lasts.
    pub(super) fn hand_over(&mut self) -> bool {
        match &mut self.kind {
            StoreKind::Banks(banks) if banks.hand > 0 => {
                banks.hand -= 1;
                true
            }
            _ => false,
        }
    }

    pub(super) fn open(&mut self, tag: u32, mtu_log2: u8) {
        if let StoreKind::Banks(banks) = &mut self.kind {
            banks.open(tag, mtu_log2);
        }
    }

    pub(super) fn push(&mut self, beat: RamBeat, bytes: &[u8]) {
        let at = match &mut self.kind {
            StoreKind::Banks(banks) => banks.write_address(),
            StoreKind::EngineFifos(fifos) => {
                let at = (fifos.head + fifos.count) % self.beats;
                fifos.count += 1;
                at
            }
        };
        self.ram.write(at, beat, bytes);
    }

    /// A packet is complete.
    pub(super) fn packet(&mut self, entry: PacketEntry) {
        match &mut self.kind {
            StoreKind::Banks(banks) => banks.packet(entry.accepted, entry.serial),
            StoreKind::EngineFifos(fifos) => fifos.sideband.push_back(entry),
        }
    }

    /// A message is complete.
    pub(super) fn finish(&mut self, bytes: u64, mtu_log2: u8) {
        if let StoreKind::Banks(banks) = &mut self.kind {
            banks.finish(bytes, mtu_log2);
        }
    }

    /// Drops what has no sideband yet: `beats` of the open packet, or the whole message.
    pub(super) fn drop_message(&mut self, beats: u32) {
        match &mut self.kind {
            StoreKind::Banks(banks) => banks.drop_message(),
            StoreKind::EngineFifos(fifos) => fifos.count -= beats,
        }
    }

    pub(super) fn next_packet(&mut self, out_ready: bool) -> (Option<PacketEntry>, bool) {
        match &mut self.kind {
            StoreKind::Banks(banks) => banks.next_packet(out_ready),
            StoreKind::EngineFifos(fifos) => {
                let entry = if out_ready { fifos.sideband.pop_front() } else { None };
                (entry, entry.is_some())
            }
        }
    }

    /// The next beat of the open packet.
    pub(super) fn pop(&mut self) -> (RamBeat, &[u8]) {
        let at = match &mut self.kind {
            StoreKind::Banks(banks) => banks.read_address(),
            StoreKind::EngineFifos(fifos) => {
                let at = fifos.head;
                fifos.head = (fifos.head + 1) % self.beats;
                // Only a planted fault reads what is not there.
                fifos.count = fifos.count.saturating_sub(1);
                at
            }
        };
        self.ram.read(at)
    }

    /// The beat at an address, modulo the size of the memory.
    #[cfg(test)]
    pub(super) fn ram_beat(&self, at: u32) -> (RamBeat, &[u8]) {
        self.ram.read(at % self.beats)
    }

    pub(super) fn packet_ended(&mut self, sideband: Sideband) {
        if let StoreKind::Banks(banks) = &mut self.kind {
            banks.packet_ended(sideband);
        }
    }

    pub(super) fn occupancy(&self) -> u32 {
        match &self.kind {
            StoreKind::Banks(banks) => banks.occupancy(),
            StoreKind::EngineFifos(fifos) => fifos.count,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        match &self.kind {
            StoreKind::Banks(banks) => banks.is_empty(),
            StoreKind::EngineFifos(fifos) => fifos.count == 0 && fifos.sideband.is_empty(),
        }
    }
}

/// A beat in the memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct RamBeat {
    /// Valid bytes, from byte 0 on.
    pub(super) len: u16,
    /// Number of its packet, for the count of mismatches; hardware has no such field.
    pub(super) serial: u32,
}

#[derive(Clone, Debug)]
pub(super) struct BeatRam {
    beats: Vec<RamBeat>,
    /// Empty where only time is modelled.
    bytes: Vec<u8>,
    width: usize,
}

impl BeatRam {
    pub(super) fn new(beats: u32, width: u32, payload: bool) -> Self {
        let (beats, width) = (beats as usize, width as usize);
        let bytes = if payload { vec![0; beats * width] } else { Vec::new() };
        Self { beats: vec![RamBeat::default(); beats], bytes, width }
    }

    pub(super) fn write(&mut self, at: u32, beat: RamBeat, bytes: &[u8]) {
        let at = at as usize;
        self.beats[at] = beat;
        if !self.bytes.is_empty() {
            self.bytes[at * self.width..(at + 1) * self.width]
                .copy_from_slice(&bytes[..self.width]);
        }
    }

    /// The beat at an address and, with payload, all bytes of its place.
    pub(super) fn read(&self, at: u32) -> (RamBeat, &[u8]) {
        let at = at as usize;
        let bytes = self.bytes.get(at * self.width..(at + 1) * self.width).unwrap_or(&[]);
        (self.beats[at], bytes)
    }
}
