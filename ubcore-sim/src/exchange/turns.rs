//! When messages that answer each other enter ping-pong mode.
//!
//! *Owns*: how many were answered in a row. *Takes*: turns, interruptions, ends of ping-pong mode. *Gives*: whether
//! the mode may begin. *Must not*: let short periods of the mode follow each other.

use crate::cfg::PingPongs;

/// How often a program's messages were answered in a row, and how many turns ping-pong mode requires.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turns {
    in_row: u32,
    needed: u32,
    least: u32,
    most: u32,
    /// Messages in ping-pong mode after which what it visits is leased.
    pub(crate) lease_after: u32,
}

/// Turns in a row before ping-pong mode: entering and leaving it costs as much as some turns save.
const TURNS: u32 = 16;
/// Messages in ping-pong mode before queue and shared part are leased: taking a lease back costs as much as some of
/// them save.
const LEASE_AFTER: u32 = 256;
/// Each lease of the shared part that was taken back doubles that, at most so often.
pub(crate) const LEASE_DOUBLINGS: u32 = 12;
/// Most turns that are required, after ping-pong modes that were shorter than the number required.
const TURNS_MAX: u32 = 1 << 12;

impl Turns {
    pub(crate) fn new(ping_pongs: PingPongs) -> Self {
        let least = if ping_pongs == PingPongs::Never { u32::MAX } else { ping_pongs.least(TURNS) };
        let (most, lease_after) = (ping_pongs.least(TURNS_MAX), ping_pongs.least(LEASE_AFTER));
        Self { in_row: 0, needed: least, least, most, lease_after }
    }

    /// Notes a message that acknowledged this node's last one.
    #[inline]
    pub(crate) fn on_turn(&mut self) {
        self.in_row = self.in_row.saturating_add(1);
    }

    /// Notes that something else was done.
    #[inline]
    pub(crate) fn on_other(&mut self) {
        self.in_row = 0;
    }

    /// Whether ping-pong mode may begin.
    #[inline]
    pub(crate) fn are_enough(&self) -> bool {
        self.in_row >= self.needed && self.needed != u32::MAX
    }

    /// Notes the end of a ping-pong mode of so many messages.
    pub(crate) fn on_ended(&mut self, messages: u32) {
        let is_short = messages < self.needed;
        self.needed =
            if is_short { self.needed.saturating_mul(2).min(self.most) } else { self.least };
        self.in_row = 0;
    }
}
