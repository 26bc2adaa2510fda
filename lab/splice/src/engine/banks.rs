//! Schemes 1 and 2: two messages, each with its control in registers.
//!
//! - owns: state, addresses and hand-over of both. takes: beats written and read. gives: addresses, room, packets.
//! - must not: hold bytes.
#![expect(
    clippy::cast_possible_truncation,
    reason = "counts are bounded by 65536 beats and packets of 8 KiB"
)]

use std::collections::VecDeque;

use urma_packet::packetizer::Sideband;

use super::{PacketEntry, WriteRoom};
use crate::config::SpliceFaults;
use crate::config::{EngineConfig, EngineScheme};

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) enum BankState {
    #[default]
    Empty,
    Filling,
    Full,
    Draining,
}

/// Control of one message: the `buffer_ctrl` of the design.
#[derive(Clone, Debug, Default)]
pub(super) struct Bank {
    pub(super) state: BankState,
    /// Address of its first beat.
    pub(super) start: u32,
    /// Beats written, and of those the ones read.
    pub(super) beats: u32,
    pub(super) read: u32,
    /// Bytes of the message, and of those the ones in packets that ended.
    pub(super) bytes: u64,
    pub(super) sent: u64,
    pub(super) index: u32,
    pub(super) tag: u32,
    pub(super) mtu_log2: u8,
    /// Per packet, for the counters: when its first byte was accepted, and its number.
    packets: VecDeque<(u64, u32)>,
}

impl Bank {
    fn clear(&mut self) {
        self.state = BankState::Empty;
        (self.beats, self.read, self.bytes, self.sent, self.index) = (0, 0, 0, 0, 0);
        self.packets.clear();
    }
}

#[derive(Clone, Debug)]
pub(super) struct Banks {
    pub(super) banks: [Bank; 2],
    pub(super) fill: usize,
    pub(super) drain: usize,
    /// Cycles until the next message may open a bank.
    pub(super) hand: u32,
    /// Cycles until the first header of the message that is read.
    pub(super) wait: u32,
    /// Where the next message of the ring starts.
    pub(super) next_start: u32,
    ping_pong: bool,
    beats: u32,
    handover: u32,
    faults: SpliceFaults,
}

impl Banks {
    pub(super) fn new(config: &EngineConfig) -> Self {
        Self {
            banks: [Bank::default(), Bank::default()],
            fill: 0,
            drain: 0,
            hand: 0,
            wait: 0,
            next_start: 0,
            ping_pong: config.scheme == EngineScheme::PingPong,
            beats: config.data_beats,
            handover: config.handover,
            faults: SpliceFaults::default(),
        }
    }

    #[cfg(test)]
    pub(super) fn plant(&mut self, faults: SpliceFaults) {
        self.faults = faults;
    }

    /// Everything that decides what happens next but the bytes.
    #[cfg(test)]
    pub(super) fn key(&self, shift: impl Fn(u32) -> u32) -> String {
        let bank = |bank: &Bank| {
            let sizes = (bank.beats, bank.read, bank.bytes, bank.sent);
            (bank.state, bank.start, sizes, bank.index, shift(bank.tag), bank.mtu_log2)
        };
        let next = (self.fill, self.drain, self.hand, self.wait, self.next_start);
        format!("{:?}{:?}{next:?}", bank(&self.banks[0]), bank(&self.banks[1]))
    }

    /// Beats that one message may have.
    fn size(&self) -> u32 {
        if self.ping_pong { self.beats / 2 } else { self.beats }
    }

    pub(super) fn occupancy(&self) -> u32 {
        self.banks.iter().map(|bank| bank.beats - bank.read).sum()
    }

    pub(super) fn room(&self) -> WriteRoom {
        let filling = &self.banks[self.fill];
        let alone = filling.beats >= self.size();
        let data = if self.ping_pong { !alone } else { self.occupancy() < self.beats };
        WriteRoom {
            data,
            sideband: true,
            bank: filling.state == BankState::Empty,
            too_long: alone && filling.state == BankState::Filling,
        }
    }

    /// Address of the next beat of the message that fills.
    pub(super) fn write_address(&mut self) -> u32 {
        let (beats, half) = (self.beats, self.beats / 2);
        let start = if self.ping_pong { self.fill as u32 * half } else { self.next_start };
        let bank = &mut self.banks[self.fill];
        if bank.beats == 0 {
            bank.start = start;
            bank.state = BankState::Filling;
        }
        let at = bank.start + bank.beats;
        bank.beats += 1;
        let wrap = if self.faults.wrap_early() && beats > 1 { beats - 1 } else { beats };
        if at >= wrap && !self.ping_pong { at - wrap } else { at }
    }

    /// A message opens the bank; `bytes` is not known before its end.
    pub(super) fn open(&mut self, tag: u32, mtu_log2: u8) {
        let bank = &mut self.banks[self.fill];
        bank.state = BankState::Filling;
        (bank.tag, bank.mtu_log2) = (tag, mtu_log2);
    }

    pub(super) fn packet(&mut self, accepted: u64, serial: u32) {
        self.banks[self.fill].packets.push_back((accepted, serial));
    }

    /// The message is complete; the other bank is next.
    pub(super) fn finish(&mut self, bytes: u64, mtu_log2: u8) {
        let bank = &mut self.banks[self.fill];
        bank.state = BankState::Full;
        (bank.bytes, bank.mtu_log2) = (bytes, mtu_log2);
        if bank.beats == 0 {
            bank.start = self.next_start;
        }
        self.next_start = (bank.start + bank.beats) % self.beats;
        self.fill ^= 1;
        self.hand = self.handover;
    }

    pub(super) fn drop_message(&mut self) {
        self.banks[self.fill].clear();
    }

    /// Begins the next packet when its message is complete and the hand-over is done. The flag says that state changed.
    pub(super) fn next_packet(&mut self, out_ready: bool) -> (Option<PacketEntry>, bool) {
        let bank = &mut self.banks[self.drain];
        if bank.state == BankState::Full {
            bank.state = BankState::Draining;
            self.wait = self.handover;
        }
        if bank.state != BankState::Draining {
            return (None, false);
        }
        if self.wait > 0 {
            self.wait -= 1;
            return (None, true);
        }
        if !out_ready {
            return (None, false);
        }
        let left = bank.bytes - bank.sent;
        let len = left.min(1 << bank.mtu_log2) as u32;
        let sideband = Sideband {
            tag: bank.tag,
            index: bank.index,
            len,
            first: bank.index == 0,
            last: left == u64::from(len),
        };
        let (accepted, serial) = bank.packets.pop_front().unwrap_or_default();
        (Some(PacketEntry { sideband, accepted, serial }), true)
    }

    pub(super) fn read_address(&mut self) -> u32 {
        let bank = &mut self.banks[self.drain];
        let at = (bank.start + bank.read) % self.beats;
        // Only a planted fault reads what is not there.
        bank.read = (bank.read + 1).min(bank.beats);
        at
    }

    /// A packet ended; after the last one the bank is empty.
    pub(super) fn packet_ended(&mut self, sideband: Sideband) {
        let bank = &mut self.banks[self.drain];
        bank.sent += u64::from(sideband.len);
        bank.index += 1;
        if sideband.last || self.faults.freed_early() {
            bank.clear();
            self.drain ^= 1;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.banks.iter().all(|bank| bank.state == BankState::Empty)
    }
}
