//! Commands: what the driver asks for outside the data path.
//!
//! *Owns*: the dispatch. *Takes*: decoded commands. *Gives*: answers, at once or later.
//! *Must not*: wait; change anything when it refuses.

mod objects;
mod queue;
pub(crate) mod ring;
mod segment;
pub(crate) mod waiting;

use udma_abi::{CmdStatus, DmaAccess, Nanos, cmd::Command, cmd::RSP_WORDS, counters::Counter};

use crate::device::{Device, shared::Shared};
use waiting::Waiting;

/// Results of an answer.
pub(crate) type Results = [u64; RSP_WORDS - 1];

/// What became of a command.
#[derive(Debug)]
pub(crate) enum Answer {
    /// Answered.
    Now(CmdStatus, Results),
    /// Answered by a later step.
    Later(Waiting),
}

impl Answer {
    fn ok(results: &[u64]) -> Self {
        let mut all = [0; RSP_WORDS - 1];
        all[..results.len()].copy_from_slice(results);
        Self::Now(CmdStatus::Ok, all)
    }

    fn status(status: CmdStatus) -> Self {
        Self::Now(status, [0; RSP_WORDS - 1])
    }
}

/// The answer of a fallible command: results, or why not.
type Outcome = Result<Answer, CmdStatus>;

impl Shared {
    /// Executes one command.
    pub(crate) fn execute(&mut self, dev: &Device, now: Nanos, command: Command) -> Answer {
        let outcome = match command {
            Command::Nop => Ok(Answer::ok(&[])),
            Command::CreateEq { .. }
            | Command::DestroyEq { .. }
            | Command::CreateJfc { .. }
            | Command::ModifyJfc { .. }
            | Command::DestroyJfc { .. }
            | Command::CreateGroup { .. }
            | Command::DestroyGroup { .. } => self.object_command(dev, command),
            Command::CreateQueue(args) => self.create_queue(dev, &args),
            Command::ModifyState { id, state } => self.modify_state(dev, now, id, state),
            Command::ModifyRxThreshold { id, threshold } => self.modify_threshold(id, threshold),
            Command::QueryQueue { id } => self.query_queue(dev, id),
            Command::DestroyQueue { id } => self.destroy_queue(dev, now, id),
            Command::Bind { id, tpn, remote_id } => self.bind(dev, id, Some((tpn, remote_id))),
            Command::Unbind { id } => self.bind(dev, id, None),
            Command::AllocTid => self.alloc_tid(),
            Command::FreeTid { token_id } => self.free_tid(token_id),
            Command::RegisterSeg(args) => self.register(dev, &args),
            Command::UnregisterSeg { token_id } => self.unregister(dev, now, token_id),
            Command::MapSeg { tpn, token_id, token_value, va, len } => {
                segment::map(dev, tpn, &segment::mapping(token_id, token_value, va, len))
            }
            Command::UnmapSeg { .. } => Ok(Answer::ok(&[])),
            Command::Connect { eid, unreliable } => {
                Ok(Answer::Later(Waiting::Connect { eid, unreliable }))
            }
            Command::Disconnect { tpn } => {
                Ok(Answer::status(self.exchange.disconnect(dev, now, tpn)))
            }
            Command::PoolGrow { base, block_log2, blocks } => {
                self.pool_grow(dev, base, block_log2, blocks)
            }
            Command::PoolShrink { base } => Ok(Answer::status(self.exchange.pool_shrink(base))),
            Command::PoolQuery => Ok(Answer::ok(&self.exchange.pool_usage())),
            Command::QueryCounters { base, room } => query_counters(dev, base, room),
            Command::QueryEid { index } => query_eid(dev, index),
        };
        outcome.unwrap_or_else(Answer::status)
    }

    fn pool_grow(&mut self, dev: &Device, base: u64, block_log2: u8, blocks: u32) -> Outcome {
        let len = u64::from(blocks).checked_shl(u32::from(block_log2)).filter(|l| *l != 0);
        let len = len.filter(|_| block_log2 < 32).ok_or(CmdStatus::Invalid)?;
        let memory = dev.window(base, len, DmaAccess::Both).ok_or(CmdStatus::Invalid)?;
        Ok(Answer::status(self.exchange.pool_grow(base, memory, block_log2)))
    }
}

fn query_counters(dev: &Device, base: u64, room: u32) -> Outcome {
    let count = Counter::ALL.len().min(room as usize);
    let len = count as u64 * 8;
    if count != 0 {
        let window = dev.window(base, len, DmaAccess::Both).ok_or(CmdStatus::Invalid)?;
        for (index, counter) in Counter::ALL.iter().take(count).enumerate() {
            let value = dev.counter(*counter);
            window.store_u64(index * 8, value).map_err(|_| CmdStatus::Invalid)?;
        }
    }
    Ok(Answer::ok(&[Counter::ALL.len() as u64]))
}

fn query_eid(dev: &Device, index: u32) -> Outcome {
    if index != 0 {
        return Err(CmdStatus::NotFound);
    }
    let [high, low] = dev.cfg().eid.to_words();
    Ok(Answer::ok(&[1, high, low]))
}
