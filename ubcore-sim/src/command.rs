//! Commands: what the driver asks for outside the data path.
//!
//! *Owns*: the dispatch. *Takes*: decoded commands. *Gives*: answers, at once or later.
//! *Must not*: wait; change anything when it refuses.

mod answer;
mod objects;
mod queue;
mod ring;
mod segment;
mod state;
mod waiting;

use udma_abi::{CmdStatus, DmaAccess, Nanos, cmd::Command, counters::Counter};

use crate::context::tables::Tables;
use crate::engine::base::Base;
use crate::exchange::{BoundTo, Exchange};
use answer::{AnswerWords, CmdAnswer, CmdOutcome, PendingCommand};
use ring::CommandRing;
use state::Around;
pub(crate) use state::Commands;

impl Commands {
    /// Takes the rings at these device addresses; `false` when they cannot be used.
    pub(crate) fn attach(&mut self, tables: &Tables, place: (u64, u64, u32)) -> bool {
        self.ring = CommandRing::new(tables, place);
        self.ring.is_some()
    }

    /// Executes what was posted. Whether there was anything.
    pub(crate) fn step(&mut self, exchange: &mut Exchange, base: &Base, now: Nanos) -> bool {
        let at = &mut Around { base, exchange, now };
        let posted = self.ring.as_ref().map_or(0, |ring| ring.posted(&base.tables));
        for _ in 0..posted {
            let Some(words) = self.ring.as_mut().and_then(CommandRing::fetch) else {
                base.tables.fatal();
                return true;
            };
            let (answer, sequence) = match Command::decode(&words) {
                Ok((command, sequence)) => (self.execute(at, command), sequence),
                Err(sequence) => (CmdAnswer::status(CmdStatus::Invalid), sequence),
            };
            match answer {
                CmdAnswer::Now(status, results) => self.respond(sequence, status, results),
                CmdAnswer::Later(waiting) => self.waiting.push((sequence, waiting)),
            }
        }
        posted != 0
    }

    pub(super) fn respond(&mut self, sequence: u32, status: CmdStatus, results: AnswerWords) {
        if let Some(ring) = &mut self.ring {
            ring.respond(sequence, status, results);
        }
    }

    /// Executes one command of the ring; a later step answers what takes time.
    fn execute(&mut self, at: &mut Around<'_>, command: Command) -> CmdAnswer {
        let outcome = match command {
            Command::Nop => Ok(CmdAnswer::ok(&[])),
            Command::CreateEq { base, depth_log2, vector } => {
                self.create_eq(&at.base.tables, base, depth_log2, vector)
            }
            Command::DestroyEq { eqn } => self.destroy_eq(&at.base.tables, eqn),
            Command::CreateJfc { base, depth_log2, eqn, inline } => {
                self.create_jfc(&at.base.tables, (base, depth_log2), inline, eqn)
            }
            Command::ModifyJfc { jfcn, count, period_us } => {
                self.modify_jfc(&at.base.tables, jfcn, count, period_us)
            }
            Command::DestroyJfc { jfcn } => self.destroy_jfc(&at.base.tables, jfcn),
            Command::CreateGroup { id, by_hint, token_value } => {
                self.create_group(at, id, by_hint, token_value)
            }
            Command::DestroyGroup { id } => self.destroy_group(at, id),
            Command::CreateQueue(args) => self.create_queue(at, &args),
            Command::ModifyState { id, state } => self.modify_state(at, id, state),
            Command::ModifyRxThreshold { id, threshold } => {
                self.modify_threshold(at, id, threshold)
            }
            Command::QueryQueue { id } => self.query_queue(at, id),
            Command::DestroyQueue { id } => self.destroy_queue(at, id),
            Command::Bind { id, tpn, remote_id, psns } => {
                self.bind(at, id, Some(BoundTo { tpn, remote_id, psns }))
            }
            Command::Unbind { id } => self.bind(at, id, None),
            Command::AllocTid => self.alloc_tid(),
            Command::FreeTid { token_id } => self.free_tid(token_id),
            Command::RegisterSeg(args) => self.register(at, &args),
            Command::UnregisterSeg { token_id } => self.unregister(at, token_id),
            Command::MapSeg { tpn, token_id, token_value, va, len } => segment::map(
                &at.base.tables,
                tpn,
                &segment::mapping(token_id, token_value, va, len),
            ),
            Command::UnmapSeg { .. } => Ok(CmdAnswer::ok(&[])),
            Command::Connect { eid, mode } => {
                Ok(CmdAnswer::Later(PendingCommand::Connect { eid, mode }))
            }
            Command::Disconnect { tpn } => {
                Ok(CmdAnswer::status(at.exchange.disconnect(at.base, at.now, tpn)))
            }
            Command::PoolGrow { base, block_log2, blocks } => {
                pool_grow(at, base, block_log2, blocks)
            }
            Command::PoolShrink { base } => {
                Ok(CmdAnswer::status(at.exchange.endpoint.pool_shrink(base)))
            }
            Command::PoolQuery => Ok(CmdAnswer::ok(&at.exchange.endpoint.pool_usage())),
            Command::QueryCounters { base, room } => query_counters(at.base, base, room),
            Command::QueryEid { index } => query_eid(&at.base.tables, index),
        };
        outcome.unwrap_or_else(CmdAnswer::status)
    }
}

fn pool_grow(at: &mut Around<'_>, base: u64, block_log2: u8, blocks: u32) -> CmdOutcome {
    let len = u64::from(blocks).checked_shl(u32::from(block_log2)).filter(|l| *l != 0);
    let len = len.filter(|_| block_log2 < 32).ok_or(CmdStatus::Invalid)?;
    let memory = at.base.tables.window(base, len, DmaAccess::Both).ok_or(CmdStatus::Invalid)?;
    Ok(CmdAnswer::status(at.exchange.endpoint.pool_grow(base, memory, block_log2)))
}

fn query_counters(all: &Base, base: u64, room: u32) -> CmdOutcome {
    let count = Counter::ALL.len().min(room as usize);
    let len = count as u64 * 8;
    if count != 0 {
        let window = all.tables.window(base, len, DmaAccess::Both).ok_or(CmdStatus::Invalid)?;
        for (index, counter) in Counter::ALL.iter().take(count).enumerate() {
            let value = all.counter(*counter);
            window.store_u64(index * 8, value).map_err(|_| CmdStatus::Invalid)?;
        }
    }
    Ok(CmdAnswer::ok(&[Counter::ALL.len() as u64]))
}

fn query_eid(tables: &Tables, index: u32) -> CmdOutcome {
    if index != 0 {
        return Err(CmdStatus::NotFound);
    }
    let [high, low] = tables.cfg.eid.to_words();
    Ok(CmdAnswer::ok(&[1, high, low]))
}
