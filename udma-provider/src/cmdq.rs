//! The command queue: requests and responses outside of the data path.
//!
//! *Owns*: both rings, sequence numbers (= ring positions), the state of each slot. *Takes*: commands of any thread.
//! *Gives*: results or a status, always within the time limit. *Must not*: reuse the slot of a command that timed out
//! before its late response came; trust a response whose sequence number no caller waits for (it is counted and
//! dropped).

use std::sync::{Arc, Mutex};

use udma_abi::{
    CmdStatus, DeviceBacking, Nanos, RegisterRegion,
    cmd::{self, CMD_WORDS, Command, RSP_WORDS, Response},
    regs,
};
use urma_core::Status;
use urma_mem::{barrier, sync};

use crate::alloc::{DmaBuf, lock};

/// Results of a command.
pub(crate) type CmdResults = [u64; RSP_WORDS - 1];

/// Why a command failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum CommandError {
    /// The device answered with a status other than success.
    #[error("the device refused the command: {0}")]
    Refused(CmdStatus),
    /// The device did not answer in time.
    #[error("the device did not answer the command in time")]
    TimedOut,
    /// All slots wait for late answers, or the device failed before.
    #[error("the device takes no commands")]
    Dead,
}

impl From<CommandError> for Status {
    fn from(error: CommandError) -> Self {
        let CommandError::Refused(status) = error else { return Self::NoDevice };
        match status {
            CmdStatus::Invalid | CmdStatus::NotFound => Self::Invalid,
            CmdStatus::NoRoom => Self::NoMemory,
            CmdStatus::Exists => Self::Exists,
            CmdStatus::InUse => Self::Again,
            CmdStatus::Denied => Self::NoPermission,
            CmdStatus::Timeout => Self::TimedOut,
            CmdStatus::Unsupported => Self::Unsupported,
            CmdStatus::Unreachable => Self::Unreachable,
            CmdStatus::DeviceError => Self::NoDevice,
            CmdStatus::Quota => Self::Quota,
            CmdStatus::PeerFull => Self::PeerFull,
            CmdStatus::Ok | CmdStatus::Unknown => Self::Fail,
        }
    }
}

/// The command queue of one device.
#[derive(Debug)]
pub(crate) struct CommandQueue {
    backing: Arc<dyn DeviceBacking>,
    regs: Arc<dyn RegisterRegion>,
    /// Memory of the command ring, followed by the response ring.
    rings: DmaBuf,
    depth: u32,
    timeout_ns: Nanos,
    state: Mutex<CmdqState>,
}

#[derive(Debug)]
struct CmdqState {
    /// Next command position; also its sequence number.
    pi: u32,
    /// Position of the next response to read; free running, it does not wrap at the ring's end.
    rsp_ci: u32,
    slots: Vec<CmdSlot>,
    /// Responses that no caller waited for.
    garbage: u64,
    failed: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CmdSlot {
    Free,
    /// A caller waits for the answer.
    Waited(u32),
    /// The waiter gave up; the answer may still come.
    Abandoned(u32),
    Answered(Response),
}

impl CommandQueue {
    /// Length in bytes of the rings for `depth` commands.
    pub(crate) const fn ring_len(depth: u32) -> usize {
        depth as usize * (CMD_WORDS + RSP_WORDS) * 8
    }

    /// Writes the addresses of the rings in `rings` to the device; `depth` is a power of two.
    pub(crate) fn new(
        backing: Arc<dyn DeviceBacking>,
        rings: DmaBuf,
        depth: u32,
        timeout_ns: Nanos,
    ) -> Self {
        let regs = backing.registers();
        regs.write64(regs::CMD_BASE, rings.iova());
        regs.write64(regs::RSP_BASE, rings.iova() + u64::from(depth) * CMD_WORDS as u64 * 8);
        regs.write32(regs::CMD_DEPTH, depth);
        let slots = vec![CmdSlot::Free; depth as usize];
        let state = CmdqState { pi: 0, rsp_ci: 0, slots, garbage: 0, failed: false };
        Self { backing, regs, rings, depth, timeout_ns, state: Mutex::new(state) }
    }

    /// Executes `command`.
    ///
    /// # Errors
    /// The device refused, or did not answer within the time limit.
    pub(crate) fn execute(&self, command: &Command) -> Result<CmdResults, CommandError> {
        self.execute_with(command, &mut || {})
    }

    /// Executes `command` and calls `idle` between two checks for the response, for commands that the device can only
    /// finish when the driver does something meanwhile.
    ///
    /// # Errors
    /// The same as those of [`CommandQueue::execute`].
    pub(crate) fn execute_with(
        &self,
        command: &Command,
        idle: &mut dyn FnMut(),
    ) -> Result<CmdResults, CommandError> {
        let deadline = self.backing.now().saturating_add(self.timeout_ns);
        let sequence = self.submit(command, deadline)?;
        let answer = self.wait(deadline, idle, |state, depth| match state.slot(sequence, depth) {
            CmdSlot::Answered(response) => Some(response),
            CmdSlot::Free | CmdSlot::Waited(_) | CmdSlot::Abandoned(_) => None,
        });
        let mut state = lock(&self.state);
        let slot = state.slot_mut(sequence, self.depth);
        let Some(response) = answer else {
            *slot = CmdSlot::Abandoned(sequence);
            tracing::warn!(
                opcode = command.opcode(),
                sequence,
                "the device did not answer a command in time"
            );
            return Err(CommandError::TimedOut);
        };
        *slot = CmdSlot::Free;
        drop(state);
        if response.status != CmdStatus::Ok {
            return Err(CommandError::Refused(response.status));
        }
        Ok(response.results)
    }

    /// Fails the queue: it accepts no further command, and all waits end.
    pub(crate) fn fail(&self) {
        lock(&self.state).failed = true;
    }

    /// Puts the command into the ring, waiting for a free slot. Returns its sequence number.
    fn submit(&self, command: &Command, deadline: Nanos) -> Result<u32, CommandError> {
        let sequence = self.wait(deadline, &mut || {}, |state, depth| {
            let sequence = state.pi;
            if state.slot(sequence, depth) != CmdSlot::Free {
                return None;
            }
            *state.slot_mut(sequence, depth) = CmdSlot::Waited(sequence);
            let at = (sequence & (depth - 1)) as usize * CMD_WORDS * 8;
            self.rings.region().store_block(at, &command.encode(sequence)).ok()?;
            state.pi = sequence.wrapping_add(1);
            barrier::to_device();
            self.regs.write32(regs::CMD_PI, state.pi);
            Some(sequence)
        });
        sequence.ok_or(CommandError::Dead)
    }

    /// Calls `found` until it returns something, the time is up or the device failed.
    fn wait<T>(
        &self,
        deadline: Nanos,
        idle: &mut dyn FnMut(),
        mut found: impl FnMut(&mut CmdqState, u32) -> Option<T>,
    ) -> Option<T> {
        let mut looks = 0u32;
        loop {
            {
                let mut state = lock(&self.state);
                self.drain(&mut state);
                if let Some(value) = found(&mut state, self.depth) {
                    return Some(value);
                }
                if state.failed {
                    return None;
                }
            }
            if self.backing.now() >= deadline {
                return None;
            }
            self.backing.progress();
            idle();
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(LOOKS_BEFORE_REGISTER)
                && self.regs.read(regs::STATUS) == u64::MAX
            {
                // The device is gone: it will not answer any more.
                self.fail();
                return None;
            }
            if looks.is_multiple_of(LOOKS_BEFORE_YIELD) {
                sync::yield_now()
            } else {
                sync::spin_hint()
            }
        }
    }

    /// Takes responses off the ring; at most one pass over the ring, so that a device that never stops answering does
    /// not hold the lock.
    fn drain(&self, state: &mut CmdqState) {
        let base = self.depth as usize * CMD_WORDS * 8;
        for _ in 0..self.depth {
            let at = base + (state.rsp_ci & (self.depth - 1)) as usize * RSP_WORDS * 8;
            let owner = (state.rsp_ci / self.depth) & 1 == 0;
            let Ok(word0) = self.rings.region().load_u64_acquire(at) else { return };
            if cmd::response_owner(word0) != owner {
                return;
            }
            barrier::from_device();
            let Ok(mut words) = self.rings.region().load_block::<RSP_WORDS>(at) else { return };
            words[0] = word0;
            state.rsp_ci = state.rsp_ci.wrapping_add(1);
            state.on_response(Response::decode(&words), self.depth);
        }
    }
}

impl CmdqState {
    fn slot(&self, sequence: u32, depth: u32) -> CmdSlot {
        self.slots[(sequence & (depth - 1)) as usize]
    }

    fn slot_mut(&mut self, sequence: u32, depth: u32) -> &mut CmdSlot {
        &mut self.slots[(sequence & (depth - 1)) as usize]
    }

    fn on_response(&mut self, response: Response, depth: u32) {
        let slot = self.slot_mut(response.sequence, depth);
        match *slot {
            CmdSlot::Waited(sequence) if sequence == response.sequence => {
                *slot = CmdSlot::Answered(response);
            }
            CmdSlot::Abandoned(sequence) if sequence == response.sequence => *slot = CmdSlot::Free,
            CmdSlot::Free | CmdSlot::Waited(_) | CmdSlot::Abandoned(_) | CmdSlot::Answered(_) => {
                self.garbage += 1;
                tracing::warn!(
                    sequence = response.sequence,
                    count = self.garbage,
                    "the device answered a command that no caller waits for"
                );
            }
        }
    }
}

/// Checks of the ring after which the status register is read.
const LOOKS_BEFORE_REGISTER: u32 = 1024;
/// Checks of the ring after which the thread yields the processor.
const LOOKS_BEFORE_YIELD: u32 = 64;
