//! The command ring and its responses.
//!
//! *Owns*: both indices. *Takes*: the producer index as rung. *Gives*: commands decoded from one
//! copy, responses with the owner bit last. *Must not*: read a command twice.

use udma_abi::{
    CmdStatus, DmaAccess,
    cmd::{CMD_WORDS, RSP_WORDS, Response},
    counters::Counter,
};
use urma_mem::Region;
use urma_mem::sync::Ordering;

use super::answer::AnswerWords;
use crate::context::function::DeviceFunction;
use crate::context::tables::Tables;

/// Most entries of each of the two rings (regs::CMD_DEPTH).
const DEPTH_MAX: u32 = 256;

/// Command ring and response ring that the driver set up.
#[derive(Debug)]
pub(super) struct CommandRing {
    commands: Region,
    responses: Region,
    depth: u32,
    ci: u32,
    responded: u32,
}

impl CommandRing {
    /// Creates the rings of `depth` entries, commands and responses, at the device addresses.
    pub(super) fn new(
        tables: &Tables,
        function: &DeviceFunction,
        (commands, responses, depth): (u64, u64, u32),
    ) -> Option<Self> {
        if !depth.is_power_of_two() || depth > DEPTH_MAX {
            return None;
        }
        let count = u64::from(depth);
        let commands = tables.window(
            function,
            (commands, count * CMD_WORDS as u64 * 8),
            DmaAccess::ToDevice,
        )?;
        let responses =
            tables.window(function, (responses, count * RSP_WORDS as u64 * 8), DmaAccess::Both)?;
        Some(Self { commands, responses, depth, ci: 0, responded: 0 })
    }

    /// Number of commands posted up to producer index `pi`; an impossible index counts as none, and is withdrawn.
    pub(super) fn posted(&self, tables: &Tables, function: &DeviceFunction) -> u32 {
        let pi = function.command_pi.load(Ordering::Acquire);
        let posted = pi.wrapping_sub(self.ci);
        if posted <= self.depth {
            return posted;
        }
        tables.count(Counter::BadDoorbell);
        function.command_pi.store(self.ci, Ordering::Release);
        0
    }

    pub(super) fn fetch(&mut self) -> Option<[u64; CMD_WORDS]> {
        let at = (self.ci & (self.depth - 1)) as usize * CMD_WORDS * 8;
        let words = self.commands.load_block::<CMD_WORDS>(at).ok()?;
        self.ci = self.ci.wrapping_add(1);
        Some(words)
    }

    pub(super) fn respond(&mut self, sequence: u32, status: CmdStatus, results: AnswerWords) {
        let at = (self.responded & (self.depth - 1)) as usize * RSP_WORDS * 8;
        let owner = (self.responded / self.depth) & 1 == 0;
        let words = Response { sequence, status, results }.encode(owner);
        self.responded = self.responded.wrapping_add(1);
        // The ring's length was checked when it was attached.
        let _ = self.responses.store_block_last(at, &words, 0);
    }
}
