//! When messages that are answered become a ping-pong.
//!
//! *Owns*: how many were answered in a row. *Takes*: turns, what interrupts them, ends of ping-pongs. *Gives*: whether one may
//! begin. *Must not*: let short ping-pongs follow each other.

use crate::cfg::PingPongs;

/// How often a program's messages were answered in a row, and when that makes a ping-pong.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turns {
    in_row: u32,
    needed: u32,
    least: u32,
    most: u32,
    /// Messages of a ping-pong after which what it visits is leased.
    pub(crate) lease_after: u32,
}

/// Turns in a row after which a ping-pong begins: what begins and ends it costs as much as some turns save.
const TURNS: u32 = 16;
/// Messages of a ping-pong after which queue and shared part are leased: what takes a lease back costs as much as some
/// of them save.
const LEASE_AFTER: u32 = 256;
/// A lease of the shared part that was taken back doubles that, at most so often.
pub(crate) const LEASE_DOUBLINGS: u32 = 12;
/// Turns that are asked for at most, after ping-pongs that were shorter than what was asked for.
const TURNS_MAX: u32 = 1 << 12;

impl Turns {
    pub(crate) fn new(ping_pongs: PingPongs) -> Self {
        let least = if ping_pongs == PingPongs::Never { u32::MAX } else { ping_pongs.least(TURNS) };
        let (most, lease_after) = (ping_pongs.least(TURNS_MAX), ping_pongs.least(LEASE_AFTER));
        Self { in_row: 0, needed: least, least, most, lease_after }
    }

    /// A message came that acknowledged this node's.
    #[inline]
    pub(crate) fn on_turn(&mut self) {
        self.in_row = self.in_row.saturating_add(1);
    }

    /// Something else was done.
    #[inline]
    pub(crate) fn on_other(&mut self) {
        self.in_row = 0;
    }

    /// Whether a ping-pong may begin.
    #[inline]
    pub(crate) fn are_enough(&self) -> bool {
        self.in_row >= self.needed && self.needed != u32::MAX
    }

    /// A ping-pong of so many messages ended.
    pub(crate) fn on_ended(&mut self, messages: u32) {
        let is_short = messages < self.needed;
        self.needed =
            if is_short { self.needed.saturating_mul(2).min(self.most) } else { self.least };
        self.in_row = 0;
    }
}
