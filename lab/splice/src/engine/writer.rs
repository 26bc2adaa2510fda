//! The write side: input checks, the splice register, packets cut by the MTU.
//!
//! - owns: the open message, the residue. takes: an input beat and the room at the beginning of the cycle.
//! - gives: beats and packets to the store. must not: see the read side.
#![expect(
    clippy::cast_possible_truncation,
    reason = "counts are bounded by 65536 beats and packets of 8 KiB"
)]

use urma_packet::packetizer::Sideband;

use super::store::PacketStore;
use super::store::RamBeat;
use super::{PacketEntry, WriteRoom};
use crate::config::SpliceFaults;
use crate::config::{EngineConfig, MTU_LOG2_MAX, TooLong};
use crate::engine::EngineCounters;
use crate::engine::{InputBeat, InputError};

/// Most bytes of a beat.
const BEAT_MAX: usize = 256;

/// A message that is being written.
#[derive(Clone, Copy, Debug)]
pub(super) struct SpliceMessage {
    pub(super) tag: u32,
    pub(super) mtu_log2: u8,
    /// Number of the packet that is being written.
    pub(super) index: u32,
    /// Bytes of it in the store.
    pub(super) packet_bytes: u32,
    /// Bytes of the message in the store.
    bytes: u64,
    /// Cycle in which the first byte of the packet was accepted.
    accepted: Option<u64>,
}

#[derive(Clone, Debug)]
pub(super) struct SpliceWriter {
    pub(super) open: Option<SpliceMessage>,
    /// The rest of a wrong message is accepted and dropped.
    pub(super) dropping: bool,
    /// The residue of a message that ended is written next.
    pub(super) flush: bool,
    /// Bytes in the residue.
    pub(super) residue_len: u32,
    pub(super) residue: [u8; BEAT_MAX],
    /// Number of the next packet.
    serial: u32,
    width: u32,
    mtu_log2: (u8, u8),
    too_long: TooLong,
    payload: bool,
    pub(super) faults: SpliceFaults,
}

impl SpliceWriter {
    pub(super) fn new(config: &EngineConfig) -> Self {
        Self {
            open: None,
            dropping: false,
            flush: false,
            residue_len: 0,
            residue: [0; BEAT_MAX],
            serial: 0,
            width: config.beat_bytes,
            mtu_log2: (config.mtu_log2_min(), config.mtu_log2_max),
            too_long: config.too_long,
            payload: config.payload,
            faults: SpliceFaults::default(),
        }
    }

    /// One cycle. Returns whether the beat was accepted, and whether state changed.
    pub(super) fn step(
        &mut self,
        now: u64,
        input: Option<&InputBeat<'_>>,
        room: WriteRoom,
        store: &mut PacketStore,
        counters: &mut EngineCounters,
    ) -> (bool, bool) {
        if self.faults.newest_mtu()
            && let (Some(beat), Some(open)) = (input, &mut self.open)
        {
            open.mtu_log2 = beat.mtu_log2.min(MTU_LOG2_MAX);
        }
        if self.flush {
            counters.stalls.flush += 1;
            return (false, self.flush_beat(now, room, store, counters));
        }
        if self.dropping {
            let Some(beat) = input else { return (false, false) };
            self.dropping = !beat.last;
            counters.beats_in += 1;
            return (true, true);
        }
        if self.open.is_none() && store.hand_over() {
            counters.stalls.handover += u64::from(input.is_some());
            return (false, true);
        }
        let Some(beat) = input else { return (false, false) };
        let accepted = self.offered(now, beat, room, store, counters);
        counters.beats_in += u64::from(accepted);
        (accepted, accepted)
    }

    /// A beat is offered and no flush beat has the write port.
    fn offered(
        &mut self,
        now: u64,
        beat: &InputBeat<'_>,
        room: WriteRoom,
        store: &mut PacketStore,
        counters: &mut EngineCounters,
    ) -> bool {
        if !store.is_banks() && !room.data {
            counters.stalls.data += 1;
            return false;
        }
        if !room.sideband {
            counters.stalls.sideband += 1;
            return false;
        }
        if self.open.is_none() && !room.bank {
            counters.stalls.bank += 1;
            return false;
        }
        if let Err(error) = self.check(beat) {
            counters.input_errors[error as usize] += 1;
            self.drop_message(store);
            self.dropping = !beat.last;
            return true;
        }
        let total = self.residue_len + u32::from(beat.len);
        let pushes = total >= self.width || (beat.last && total > 0);
        if pushes && !room.data {
            if room.too_long && self.too_long == TooLong::Drop {
                counters.too_long += 1;
                self.drop_message(store);
                self.dropping = !beat.last;
                return true;
            }
            counters.stalls.data += 1;
            return false;
        }
        self.accept(now, beat, store);
        true
    }

    fn check(&self, beat: &InputBeat<'_>) -> Result<(), InputError> {
        let (least, most) = self.mtu_log2;
        if u32::from(beat.len) > self.width {
            return Err(InputError::BeatTooLong);
        }
        if !(least..=most).contains(&beat.mtu_log2) {
            return Err(InputError::MtuRange);
        }
        if beat.first == self.open.is_some() {
            return Err(InputError::FirstMissing);
        }
        if let Some(open) = &self.open
            && (open.mtu_log2, open.tag) != (beat.mtu_log2, beat.tag)
        {
            return Err(InputError::MtuChanged);
        }
        if beat.len == 0 && !(beat.first && beat.last) {
            return Err(InputError::EmptyBeat);
        }
        Ok(())
    }

    /// Drops the open message as far as no packet of it is complete.
    fn drop_message(&mut self, store: &mut PacketStore) {
        if let Some(open) = self.open.take() {
            store.drop_message(open.packet_bytes / self.width);
        }
        (self.flush, self.residue_len) = (false, 0);
    }

    /// Joins a beat to the residue: section 3 of the specification.
    fn accept(&mut self, now: u64, beat: &InputBeat<'_>, store: &mut PacketStore) {
        let open = self.open.get_or_insert_with(|| {
            store.open(beat.tag, beat.mtu_log2);
            SpliceMessage {
                tag: beat.tag,
                mtu_log2: beat.mtu_log2,
                index: 0,
                packet_bytes: 0,
                bytes: 0,
                accepted: None,
            }
        });
        open.accepted.get_or_insert(now);
        let (before, width) = (self.residue_len, self.width);
        let total = before + u32::from(beat.len);
        let mut joined = None;
        if self.payload {
            let joined = joined.insert([0; 2 * BEAT_MAX]);
            joined[..BEAT_MAX].copy_from_slice(&self.residue);
            let skip = usize::from(self.faults.seam() && before > 0);
            let bytes = beat.bytes.get(skip..).unwrap_or(&[]);
            let at = before as usize;
            joined[at..at + bytes.len()].copy_from_slice(bytes);
        }
        let ended = beat.last && total <= width;
        self.residue_len = if total >= width { total - width } else { total };
        let rest = if total >= width { width as usize } else { 0 };
        if let Some(joined) = &joined {
            self.residue.copy_from_slice(&joined[rest..rest + BEAT_MAX]);
        }
        let joined = joined.as_ref().map_or(&[][..], |joined| &joined[..]);
        if total >= width {
            self.push(now, (width, ended), joined, store);
        } else if ended {
            self.residue_len = 0;
            self.push(now, (total, true), joined, store);
        }
        if beat.last && total > width {
            self.flush = true;
            if self.faults.switch_early()
                && let Some(open) = &self.open
            {
                store.finish(open.bytes + u64::from(self.residue_len), open.mtu_log2);
            }
        }
    }

    /// Writes the residue of a message that ended. Returns whether state changed.
    fn flush_beat(
        &mut self,
        now: u64,
        room: WriteRoom,
        store: &mut PacketStore,
        counters: &mut EngineCounters,
    ) -> bool {
        if room.data && room.sideband {
            let (len, residue) = (self.residue_len, self.residue);
            (self.flush, self.residue_len) = (false, 0);
            self.push(now, (len, true), &residue, store);
            return true;
        }
        if self.faults.flush_lost() {
            (self.flush, self.residue_len, self.open) = (false, 0, None);
            return true;
        }
        let found = room.too_long && self.too_long == TooLong::Drop;
        if found {
            counters.too_long += 1;
            self.drop_message(store);
        }
        found
    }

    /// Writes a beat of `len` bytes, none for an empty message; ends the packet where the MTU or the message ends.
    fn push(&mut self, now: u64, (len, end): (u32, bool), bytes: &[u8], store: &mut PacketStore) {
        let Some(mut open) = self.open else { return };
        if len > 0 {
            store.push(RamBeat { len: len as u16, serial: self.serial }, bytes);
        }
        open.packet_bytes += len;
        open.bytes += u64::from(len);
        self.open = Some(open);
        let mtu = 1_u32 << open.mtu_log2;
        let early = self.faults.sideband_early() && open.packet_bytes + self.width == mtu && !end;
        let pushed_early = self.faults.sideband_early() && open.packet_bytes >= mtu && !end;
        if early {
            self.packet((now, mtu, false), store);
            if let Some(open) = &mut self.open {
                open.packet_bytes = mtu - self.width;
            }
        } else if pushed_early {
            if let Some(open) = &mut self.open {
                open.packet_bytes = 0;
            }
        } else if open.packet_bytes >= mtu || end {
            let empty = self.faults.exact_empty() && end && open.packet_bytes == mtu;
            self.packet((now, open.packet_bytes, end && !empty), store);
            if empty {
                self.packet((now, 0, true), store);
            }
        }
        if end {
            if !self.faults.switch_early() || !store.is_banks() || self.residue_len == 0 {
                store.finish(open.bytes, open.mtu_log2);
            }
            self.open = None;
        }
    }

    /// One packet is complete.
    fn packet(&mut self, (now, len, last): (u64, u32, bool), store: &mut PacketStore) {
        let Some(open) = &mut self.open else { return };
        if len == 0 && self.faults.empty_none() {
            return;
        }
        let sideband =
            Sideband { tag: open.tag, index: open.index, len, first: open.index == 0, last };
        store.packet(PacketEntry {
            sideband,
            accepted: open.accepted.unwrap_or(now),
            serial: self.serial,
        });
        self.serial = self.serial.wrapping_add(1);
        open.index += 1;
        open.packet_bytes = 0;
        // What is left of this beat is the beginning of the next packet.
        open.accepted = (self.residue_len > 0).then_some(now);
    }
}
