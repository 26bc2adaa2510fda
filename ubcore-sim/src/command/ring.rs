//! The command ring and its responses.
//!
//! *Owns*: both indices. *Takes*: the producer index as rung. *Gives*: commands decoded from one
//! copy, responses with the owner bit last. *Must not*: read a command twice.

use udma_abi::{
    CmdStatus, DmaAccess, Nanos,
    cmd::{CMD_WORDS, Command, RSP_WORDS, Response},
    counters::Counter,
};
use urma_mem::Region;
use urma_mem::sync::Ordering;

use super::{Answer, Results};
use crate::device::{Device, Setup, shared::Shared};

/// Most entries of the two rings (regs::CMD_DEPTH).
const DEPTH_MAX: u32 = 256;

/// Both rings.
#[derive(Debug)]
pub(crate) struct CommandRing {
    commands: Region,
    responses: Region,
    depth: u32,
    ci: u32,
    responded: u32,
}

impl CommandRing {
    fn new(dev: &Device, setup: &Setup) -> Option<Self> {
        let depth = setup.cmd_depth;
        if !depth.is_power_of_two() || depth > DEPTH_MAX {
            return None;
        }
        let count = u64::from(depth);
        let commands =
            dev.window(setup.cmd_base, count * CMD_WORDS as u64 * 8, DmaAccess::ToDevice)?;
        let responses =
            dev.window(setup.rsp_base, count * RSP_WORDS as u64 * 8, DmaAccess::Both)?;
        Some(Self { commands, responses, depth, ci: 0, responded: 0 })
    }

    fn fetch(&mut self) -> Option<[u64; CMD_WORDS]> {
        let at = (self.ci & (self.depth - 1)) as usize * CMD_WORDS * 8;
        let words = self.commands.load_block::<CMD_WORDS>(at).ok()?;
        self.ci = self.ci.wrapping_add(1);
        Some(words)
    }

    fn respond(&mut self, sequence: u32, status: CmdStatus, results: Results) {
        let at = (self.responded & (self.depth - 1)) as usize * RSP_WORDS * 8;
        let owner = (self.responded / self.depth) & 1 == 0;
        let words = Response { sequence, status, results }.encode(owner);
        self.responded = self.responded.wrapping_add(1);
        // The ring's length was checked when it was attached.
        let _ = self.responses.store_block_last(at, &words, 0);
    }
}

impl Shared {
    /// Takes the rings of the set-up registers; `false` when they cannot be used.
    pub(crate) fn attach_commands(&mut self, dev: &Device, setup: &Setup) -> bool {
        self.ring = CommandRing::new(dev, setup);
        self.ring.is_some()
    }

    /// Executes what was posted.
    pub(crate) fn step_commands(&mut self, dev: &Device, now: Nanos) -> bool {
        let Some(ring) = &self.ring else { return false };
        let pi = dev.command_pi().load(Ordering::Acquire);
        let posted = pi.wrapping_sub(ring.ci);
        if posted == 0 {
            return false;
        }
        if posted > ring.depth {
            dev.count(Counter::BadDoorbell);
            dev.command_pi().store(ring.ci, Ordering::Release);
            return false;
        }
        for _ in 0..posted {
            let Some(words) = self.ring.as_mut().and_then(CommandRing::fetch) else {
                dev.fatal();
                return true;
            };
            let (answer, sequence) = match Command::decode(&words) {
                Ok((command, sequence)) => (self.execute(dev, now, command), sequence),
                Err(sequence) => (Answer::status(CmdStatus::Invalid), sequence),
            };
            match answer {
                Answer::Now(status, results) => self.respond(sequence, status, results),
                Answer::Later(waiting) => self.waiting.push((sequence, waiting)),
            }
        }
        true
    }

    pub(crate) fn respond(&mut self, sequence: u32, status: CmdStatus, results: Results) {
        if let Some(ring) = &mut self.ring {
            ring.respond(sequence, status, results);
        }
    }
}
