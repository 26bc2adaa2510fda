//! Commands of the driver outside of the data path.
//!
//! *Owns*: the dispatch. *Takes*: decoded commands. *Gives*: answers, at once or later. *Must not*: wait; change
//! anything when it refuses.

mod answer;
mod function;
mod objects;
mod queue;
mod ring;
mod segment;
mod state;
mod waiting;

use std::sync::Arc;

use udma_abi::{
    CmdStatus, DmaAccess, Nanos, RawEid,
    cmd::{Command, Mode},
    counters::{Counter, MODEL_COUNTER_LEN, ModelCounter},
};

use crate::cfg::RcWire;
use crate::context::function::REFILL_NS;
use crate::context::function::{DeviceFunction, FunctionId, QuotaKind};
use crate::context::plugged::PluggedModel;
use crate::context::tables::Tables;
use crate::engine::core::DeviceCore;
use crate::exchange::{BoundTo, Exchange};
use crate::nic::NicObject;
use answer::{CmdAnswer, CmdOutcome, PendingCommand};
use ring::CommandRing;
use state::Around;
pub(crate) use state::Commands;

impl Commands {
    /// Attaches the rings that a function's driver set up; `false`: they cannot be used.
    pub(crate) fn attach(&mut self, tables: &Tables, function: &DeviceFunction) -> bool {
        let setup = function.setup();
        let place = (setup.cmd_base, setup.rsp_base, setup.cmd_depth);
        let ring = CommandRing::new(tables, function, place);
        let Some(source) = self.source_of(function.id) else { return false };
        source.ring = ring;
        source.ring.is_some()
    }

    /// Executes what the drivers of all functions posted. Returns whether there was anything.
    pub(crate) fn execute_posted(
        &mut self,
        exchange: &mut Exchange,
        core: &DeviceCore,
        now: Nanos,
    ) -> bool {
        if self.is_shared() && now >= self.refill_at {
            self.refill_at = now + REFILL_NS;
            self.sources.iter().for_each(|source| source.function.guesses.refill());
        }
        let mut busy = false;
        for index in 0..self.sources.len() {
            busy |= self.step_source(exchange, core, (now, index));
        }
        busy
    }

    fn step_source(
        &mut self,
        exchange: &mut Exchange,
        core: &DeviceCore,
        (now, index): (Nanos, usize),
    ) -> bool {
        let source = &self.sources[index];
        let posted = source.ring.as_ref().map_or(0, |r| r.posted(&core.tables, &source.function));
        if posted == 0 {
            return false;
        }
        let function = Arc::clone(&source.function);
        let at = &mut Around { core, exchange, now, function };
        for _ in 0..posted {
            let Some(words) = self.sources[index].ring.as_mut().and_then(CommandRing::fetch) else {
                core.tables.fatal(&at.function);
                return true;
            };
            let (answer, sequence) = match Command::decode(&words) {
                Ok((command, sequence)) => (self.execute(at, command), sequence),
                Err(sequence) => (CmdAnswer::status(CmdStatus::Invalid), sequence),
            };
            let source = &mut self.sources[index];
            match answer {
                CmdAnswer::Now(status, results) => source.respond(sequence, status, results),
                CmdAnswer::Later(waiting) => source.waiting.push((sequence, waiting)),
            }
        }
        true
    }

    /// Executes one command of the ring; a later step answers what takes time.
    fn execute(&mut self, at: &mut Around<'_>, command: Command) -> CmdAnswer {
        let is_owner = at.function.id == FunctionId::FIRST;
        let outcome = match command {
            Command::Nop => Ok(CmdAnswer::ok(&[])),
            Command::CreateEq { base, depth_log2, vector } => {
                self.create_eq(at, base, depth_log2, vector)
            }
            Command::DestroyEq { eqn } => self.destroy_eq(at, eqn),
            Command::CreateJfc { base, depth_log2, eqn, inline } => {
                self.create_jfc(at, (base, depth_log2), inline, eqn)
            }
            Command::ModifyJfc { jfcn, count, period_us } => {
                self.modify_jfc(at, jfcn, count, period_us)
            }
            Command::DestroyJfc { jfcn } => self.destroy_jfc(at, jfcn),
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
            Command::AllocTid => self.alloc_tid(at),
            Command::FreeTid { token_id } => self.free_tid(at, token_id),
            Command::RegisterSeg(args) => self.register(at, &args),
            Command::UnregisterSeg { token_id } => self.unregister(at, token_id),
            Command::MapSeg { tpn, token_id, token_value, va, len } => {
                let mapping = segment::mapping(token_id, token_value, va, len);
                let mapped = || segment::map(&at.core.tables, tpn, &mapping);
                if is_owner { mapped() } else { Err(CmdStatus::Unsupported) }
            }
            Command::UnmapSeg { .. } => Ok(CmdAnswer::ok(&[])),
            Command::Connect { eid, mode } => connect(at, eid, mode),
            Command::Disconnect { tpn } => self.disconnect(at, tpn),
            // The loss records of all paths are in the pool: it is memory of the owner alone.
            Command::PoolGrow { .. } | Command::PoolShrink { .. } if !is_owner => {
                Err(CmdStatus::Unsupported)
            }
            Command::PoolGrow { base, block_log2, blocks } => {
                pool_grow(at, base, block_log2, blocks)
            }
            Command::PoolShrink { base } => {
                Ok(CmdAnswer::status(at.exchange.endpoint.pool_shrink(base)))
            }
            Command::PoolQuery => Ok(CmdAnswer::ok(&at.exchange.endpoint.pool_usage())),
            Command::QueryCounters { base, room } => query_counters(at, base, room),
            Command::QueryModelCounters { base, room } => query_model_counters(at, base, room),
            Command::QueryEid { index } => query_eid(&at.core.tables, index),
        };
        let answer = outcome.unwrap_or_else(CmdAnswer::status);
        if let (Some(contexts), CmdAnswer::Now(CmdStatus::Ok, [number, ..])) =
            (at.core.tables.contexts(), &answer)
        {
            tell(contexts, at.function.id, &command, *number);
        }
        answer
    }

    /// Gives up a path that this function opened; those of others stay.
    fn disconnect(&mut self, at: &mut Around<'_>, tpn: u32) -> CmdOutcome {
        let source = self.source_of(at.function.id).ok_or(CmdStatus::NotFound)?;
        let Some(users) = source.paths.get_mut(&tpn).filter(|users| **users != 0) else {
            return Err(CmdStatus::NotFound);
        };
        *users -= 1;
        if *users == 0 {
            source.paths.remove(&tpn);
            at.function.release(QuotaKind::Paths, 1);
        }
        Ok(CmdAnswer::status(at.exchange.disconnect(at.core, at.now, tpn)))
    }
}

/// Tells the model of a NIC of the object that a command created, whose number is the answer's first word.
#[cold]
fn tell(contexts: &PluggedModel, function: FunctionId, command: &Command, number: u64) {
    let number = u32::try_from(number).unwrap_or(u32::MAX);
    let object = if let Command::CreateJfc { depth_log2, .. } = command {
        NicObject::Jfc { jfcn: number, depth_log2: *depth_log2 }
    } else if let Command::CreateQueue(args) = command {
        NicObject::Queue(number, args)
    } else if let Command::RegisterSeg(args) = command {
        NicObject::Segment(args)
    } else {
        return;
    };
    contexts.on_created(function.number().into(), object);
}

/// Pairs that speak the standard opcodes name memory by keys of the node: only the owner may connect them.
fn connect(at: &Around<'_>, eid: RawEid, mode: Mode) -> CmdOutcome {
    let is_standard = mode == Mode::Rc && at.core.tables.cfg.rc == RcWire::Roce;
    if is_standard && at.function.id != FunctionId::FIRST {
        return Err(CmdStatus::Unsupported);
    }
    at.function.charge(QuotaKind::Paths, 1)?;
    Ok(CmdAnswer::Later(PendingCommand::Connect { eid, mode }))
}

fn pool_grow(at: &mut Around<'_>, base: u64, block_log2: u8, blocks: u32) -> CmdOutcome {
    let len = u64::from(blocks).checked_shl(u32::from(block_log2)).filter(|l| *l != 0);
    let len = len.filter(|_| block_log2 < 32).ok_or(CmdStatus::Invalid)?;
    let memory = at.core.tables.window(&at.function, (base, len), DmaAccess::Both);
    let memory = memory.ok_or(CmdStatus::Invalid)?;
    Ok(CmdAnswer::status(at.exchange.endpoint.pool_grow(base, memory, block_log2)))
}

/// All counters, or for a client's function those of its own queues.
fn query_counters(at: &Around<'_>, base: u64, room: u32) -> CmdOutcome {
    let count = Counter::ALL.len().min(room as usize);
    let len = count as u64 * 8;
    if count != 0 {
        let window = at.core.tables.window(&at.function, (base, len), DmaAccess::Both);
        let window = window.ok_or(CmdStatus::Invalid)?;
        for (index, counter) in Counter::ALL.iter().take(count).enumerate() {
            let value = match at.function.id {
                FunctionId::FIRST => at.core.counter(*counter),
                id => at.core.counter_of(id, *counter),
            };
            window.store_u64(index * 8, value).map_err(|_| CmdStatus::Invalid)?;
        }
    }
    Ok(CmdAnswer::ok(&[Counter::ALL.len() as u64]))
}

/// The counters of the model, which are the owner's alone.
fn query_model_counters(at: &Around<'_>, base: u64, room: u32) -> CmdOutcome {
    let nic = at.core.tables.nic.as_ref().filter(|_| at.function.id == FunctionId::FIRST);
    let all = nic.map_or_else(Vec::new, |nic| nic.counters()).into_iter();
    let all: Vec<_> = all.filter_map(|(name, value)| ModelCounter::encode(name, value)).collect();
    let count = all.len().min(room as usize);
    if count != 0 {
        let len = (count * MODEL_COUNTER_LEN) as u64;
        let window = at.core.tables.window(&at.function, (base, len), DmaAccess::Both);
        let window = window.ok_or(CmdStatus::Invalid)?;
        for (word, at) in all.iter().take(count).flatten().zip((0..).step_by(8)) {
            window.store_u64(at, *word).map_err(|_| CmdStatus::Invalid)?;
        }
    }
    Ok(CmdAnswer::ok(&[all.len() as u64]))
}

fn query_eid(tables: &Tables, index: u32) -> CmdOutcome {
    if index != 0 {
        return Err(CmdStatus::NotFound);
    }
    let [high, low] = tables.cfg.eid.to_words();
    Ok(CmdAnswer::ok(&[1, high, low]))
}
