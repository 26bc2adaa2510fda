//! Queues: create, change, query, destroy, bind.
//!
//! *Owns*: which parts a queue consists of. *Takes*: commands. *Gives*: engines and receive sides. *Must not*: leave
//! half a queue behind when it refuses.

use std::sync::Arc;

use udma_abi::{
    CmdStatus, DmaAccess, Nanos,
    cmd::{CmdQueueKind, CreateQueue, Mode, NONE, QueueFlags, QueueState, RqArgs, SqArgs},
    rqe::{self, record},
    sqe::BLOCK_LEN,
};
use urma_mem::ends::EndCount;
use urma_mem::sync::Ordering;
use urma_mem::{Blocks, Region, RegionWord32};

use super::answer::{CmdAnswer, CmdOutcome, Leaving, PendingCommand};
use super::objects::find_jfc;
use super::state::{Around, Commands};
use crate::context::objects::QueueRecord;
use crate::context::{
    function::{DeviceFunction, FunctionId, GuessBudget, QuotaKind},
    jfc::JfcPort,
};
use crate::engine::core::DeviceCore;
use crate::engine::queue::DeviceSendQueue;
use crate::engine::retire::Identity;
use crate::engine::send::{EngineCfg, SendEngine, Visit};
use crate::exchange::{BoundTo, Exchange, RecvSide, SendSide, SharedSide};
use crate::limits;
use crate::nic::LookedUp;

/// How long a destruction waits while no completion finds room, in nanoseconds: a driver that wants to destroy a
/// queue takes its completions meanwhile.
const DESTROY_NS: Nanos = 10_000_000;

/// Parts of a new queue after every check that can fail.
struct CheckedQueue {
    record: Region,
    /// Consumer index of the send side in `record`.
    retired: RegionWord32,
    send: Option<(Blocks, JfcPort)>,
    recv: Option<(Region, JfcPort)>,
    shared: Option<(u32, Option<JfcPort>)>,
}

impl Commands {
    pub(super) fn create_queue(&mut self, at: &mut Around<'_>, args: &CreateQueue) -> CmdOutcome {
        if self.objects.count_of(args.kind) >= limits::QUEUES {
            return Err(CmdStatus::NoRoom);
        }
        let parts = self.parts_of(at, args)?;
        if args.group != NONE {
            self.check_id(at, args.group)?;
            let members = self.objects.groups.get(&args.group).ok_or(CmdStatus::NotFound)?;
            if members.len() == limits::GROUP_MEMBERS {
                return Err(CmdStatus::NoRoom);
            }
        }
        let work = work_of(args);
        charge(&at.function, work)?;
        let made = self.make_id(at, args, (parts, work));
        if made.is_err() {
            release(&at.function, work);
        }
        Ok(CmdAnswer::ok(&[u64::from(made?)]))
    }

    /// Creates the queue under its number, from checked parts.
    fn make_id(
        &mut self,
        at: &mut Around<'_>,
        args: &CreateQueue,
        (parts, work): (CheckedQueue, u64),
    ) -> Result<u32, CmdStatus> {
        let owner = at.function.id;
        let slot = match parts.send {
            Some(_) => Some(self.objects.slots.take_lowest(owner).ok_or(CmdStatus::NoRoom)?),
            None => None,
        };
        let id = self.objects.take_id(args.id, owner);
        let queue = id.and_then(|id| at.core.queues.get_or_make(id, || DeviceSendQueue::new(id)));
        let (Some(id), Some(queue)) = (id, queue) else {
            if let Some(slot) = slot {
                self.objects.slots.give_back(slot);
            }
            return Err(if args.id == 0 { CmdStatus::NoRoom } else { CmdStatus::Exists });
        };
        self.make((at.exchange, at.core), (owner, queue), args, (parts, slot, work));
        Ok(id)
    }

    fn make(
        &mut self,
        (exchange, core): (&mut Exchange, &DeviceCore),
        (owner, queue): (FunctionId, &DeviceSendQueue),
        args: &CreateQueue,
        (parts, slot, work): (CheckedQueue, Option<u32>, u64),
    ) {
        let id = queue.id;
        let mut jfcs = Vec::new();
        let mut hold = |port: &JfcPort| {
            port.jfc().users.fetch_add(1, Ordering::SeqCst);
            jfcs.push(port.jfc().id);
        };
        let token = args.rq.map(|rq| rq.token_value);
        let token = token.filter(|_| args.flags.contains(QueueFlags::TOKEN));
        let receives = parts.recv.is_some() || parts.shared.is_some();
        if let (Some((ring, port)), Some(sq)) = (parts.send, args.sq) {
            hold(&port);
            let record = parts.retired;
            let ends = Arc::clone(&core.tables.ends);
            let function = core.tables.function(owner).filter(|f| f.id != FunctionId::FIRST);
            let guesses = function.map(|function| Arc::clone(&function.guesses));
            let parts = SendQueueParts { owner, guesses, ring, port, record, slot, ends };
            make_send(exchange, queue, args, &sq, parts);
        }
        if let (Some((ring, port)), Some(rq)) = (parts.recv, args.rq) {
            hold(&port);
            exchange.receives.add_ring(RecvSide {
                id,
                owner,
                is_jetty: args.kind == CmdQueueKind::Jetty,
                mode: args.mode,
                cookie: args.cookie,
                ring,
                depth_log2: rq.depth_log2,
                max_sge: rq.max_sge,
                record: parts.record,
                port,
                min_rnr_timer: rq.min_rnr_timer,
                token,
            });
        }
        let shared_jfr = parts.shared.as_ref().map(|(jfr, _)| *jfr);
        if let Some((jfr, port)) = parts.shared {
            if let Some(port) = &port {
                hold(port);
            }
            if let Some(owner) = self.objects.queues.get_mut(&jfr) {
                owner.users += 1;
            }
            let (mode, cookie) = (args.mode, args.cookie);
            exchange.receives.add_shared(SharedSide { id, mode, cookie, jfr, port, token });
        }
        let group = (args.group != NONE).then_some(args.group);
        if let Some(members) = group.and_then(|g| self.objects.groups.get_mut(&g)) {
            members.insert(id);
            exchange.receives.join(args.group, id);
        }
        let record = QueueRecord {
            owner,
            kind: args.kind,
            mode: args.mode,
            jfcs,
            sends: slot.is_some(),
            receives,
            shared_jfr,
            group,
            slot,
            work,
            users: 0,
            leaving: false,
        };
        self.objects.queues.insert(id, record);
    }

    fn parts_of(&self, at: &Around<'_>, args: &CreateQueue) -> Result<CheckedQueue, CmdStatus> {
        let tables = &at.core.tables;
        let invalid = CmdStatus::Invalid;
        let shared = args.shared_jfr != NONE;
        let shape = match args.kind {
            CmdQueueKind::Jfs => (true, false, false),
            CmdQueueKind::Jfr => (false, true, false),
            CmdQueueKind::Jetty => (true, !shared, shared),
        };
        if shape != (args.sq.is_some(), args.rq.is_some(), shared) {
            // A jetty with a shared JFR may have receive arguments for its token alone.
            let token_only = args.kind == CmdQueueKind::Jetty && shared && args.sq.is_some();
            if !token_only {
                return Err(invalid);
            }
        }
        // A JFR of mode RC serves the jetties that share it; no jetty can be bound to it.
        if args.id >= 1 << 20 || (args.mode == Mode::Rc && args.kind == CmdQueueKind::Jfs) {
            return Err(invalid);
        }
        let place = (args.record, record::LEN as u64);
        let record = tables.window(&at.function, place, DmaAccess::Both);
        let record = record.filter(|_| args.record.is_multiple_of(64)).ok_or(invalid)?;
        let retired = RegionWord32::new(&record, record::SQ_CI).map_err(|_| invalid)?;
        let send = args.sq.map(|sq| send_parts(at, &sq)).transpose()?;
        let recv = match args.rq {
            Some(rq) if !shared => Some(recv_parts(at, &rq)?),
            _ => None,
        };
        let shared = if shared { Some(self.shared_parts(at, args)?) } else { None };
        Ok(CheckedQueue { record, retired, send, recv, shared })
    }

    fn shared_parts(
        &self,
        at: &Around<'_>,
        args: &CreateQueue,
    ) -> Result<(u32, Option<JfcPort>), CmdStatus> {
        self.check_id(at, args.shared_jfr)?;
        let jfr = self.objects.queues.get(&args.shared_jfr).ok_or(CmdStatus::NotFound)?;
        if jfr.kind != CmdQueueKind::Jfr || jfr.mode != args.mode || jfr.leaving {
            return Err(CmdStatus::Invalid);
        }
        let port = match args.recv_jfcn {
            NONE => None,
            jfcn => Some(find_jfc(at, jfcn)?.port().ok_or(CmdStatus::NotFound)?),
        };
        Ok((args.shared_jfr, port))
    }

    pub(super) fn modify_state(
        &mut self,
        at: &mut Around<'_>,
        id: u32,
        state: QueueState,
    ) -> CmdOutcome {
        let record = self.record_of(at, id)?;
        let (sends, receives) = (record.sends, record.receives);
        let queue = at.core.queues.get(id).ok_or(CmdStatus::NotFound)?;
        if sends {
            let held = queue
                .send
                .with_blocking(|place| place.engine().as_mut().is_some_and(|e| e.on_state(state)));
            if held.marked {
                at.core.make_runnable(queue);
            }
            if !held.value {
                return Err(CmdStatus::Invalid);
            }
        }
        if receives {
            at.exchange.set_recv_state(at.core, id, state);
        }
        at.core.wake_send(id);
        Ok(CmdAnswer::ok(&[]))
    }

    pub(super) fn modify_threshold(
        &mut self,
        at: &mut Around<'_>,
        id: u32,
        threshold: u32,
    ) -> CmdOutcome {
        self.record_of(at, id)?;
        if at.exchange.receives.set_threshold(id, threshold) {
            Ok(CmdAnswer::ok(&[]))
        } else {
            Err(CmdStatus::Invalid)
        }
    }

    pub(super) fn query_queue(&self, at: &Around<'_>, id: u32) -> CmdOutcome {
        self.record_of(at, id)?;
        let queue = at.core.queues.get(id).ok_or(CmdStatus::NotFound)?;
        let held = queue.send.with_blocking(|place| {
            place.engine().as_ref().map(|e| (e.state(), e.blocks_left(queue)))
        });
        if held.marked {
            at.core.make_runnable(queue);
        }
        let state = held.value.map(|(state, _)| state).or_else(|| at.exchange.receives.state(id));
        let blocks = held.value.map_or(0, |(_, blocks)| blocks);
        let receives = at.exchange.receives.left(id).unwrap_or(0);
        let state = state.unwrap_or(QueueState::Ready);
        Ok(CmdAnswer::ok(&[state as u64, u64::from(blocks), u64::from(receives)]))
    }

    pub(super) fn destroy_queue(&mut self, at: &mut Around<'_>, id: u32) -> CmdOutcome {
        self.check_id(at, id)?;
        let record = self.objects.queues.get_mut(&id).ok_or(CmdStatus::NotFound)?;
        if record.users != 0 || record.leaving {
            return Err(CmdStatus::InUse);
        }
        record.leaving = true;
        let receives = record.receives;
        let queue = at.core.queues.get(id).ok_or(CmdStatus::NotFound)?;
        let held = queue.send.with_blocking(|place| {
            if let Some(engine) = place.engine() {
                engine.on_leaving();
            }
        });
        if held.marked {
            at.core.make_runnable(queue);
        }
        if receives {
            at.exchange.set_recv_state(at.core, id, QueueState::Error);
        }
        at.core.wake_send(id);
        let leaving = Leaving { id, left: u32::MAX, until: at.now };
        Ok(self.destroyed(at, leaving))
    }

    /// Finishes a destruction when every request has its completion. If none found room for a while, the queue stays
    /// in ERROR: no completion is lost, and it can be destroyed later.
    pub(super) fn destroyed(&mut self, at: &mut Around<'_>, leaving: Leaving) -> CmdAnswer {
        let id = leaving.id;
        let Some(queue) = at.core.queues.get(id) else {
            return CmdAnswer::status(CmdStatus::NotFound);
        };
        at.core.wake_send(id);
        let held = queue.send.with_blocking(|place| {
            let visit = Visit { tables: &at.core.tables, queue, direct: None };
            let engine = place.engine().as_ref()?;
            Some((engine.is_flushed(&visit), engine.blocks_left(queue)))
        });
        let (sent, blocks) = held.value.unwrap_or((true, 0));
        let receives = at.exchange.receives.left(id).unwrap_or(0);
        if sent && receives == 0 {
            self.forget_queue(at, queue);
            return CmdAnswer::ok(&[]);
        }
        let left = blocks.saturating_add(receives);
        if left < leaving.left {
            let until = at.now.saturating_add(DESTROY_NS);
            return CmdAnswer::Later(PendingCommand::Destroy(Leaving { id, left, until }));
        }
        if at.now < leaving.until {
            return CmdAnswer::Later(PendingCommand::Destroy(leaving));
        }
        if let Some(record) = self.objects.queues.get_mut(&id) {
            record.leaving = false;
        }
        CmdAnswer::status(CmdStatus::Timeout)
    }

    /// The record of a queue of the caller's function.
    fn record_of(&self, at: &Around<'_>, id: u32) -> Result<&QueueRecord, CmdStatus> {
        self.check_id(at, id)?;
        self.objects.queues.get(&id).ok_or(CmdStatus::NotFound)
    }

    /// Removes a queue from all tables.
    pub(super) fn forget_queue(&mut self, at: &mut Around<'_>, queue: &DeviceSendQueue) {
        let id = queue.id;
        queue.sends.end();
        let _ = queue.send.with_blocking(|place| *place.engine() = None);
        at.exchange.remove_send(at.core, id);
        at.exchange.receives.remove(id);
        at.core.tables.forget(LookedUp::Queue(id));
        let Some(record) = self.objects.queues.remove(&id) else { return };
        release(&at.function, record.work);
        for jfcn in record.jfcs {
            if let Some(jfc) = at.core.tables.jfcs.get(jfcn) {
                jfc.users.fetch_sub(1, Ordering::SeqCst);
            }
        }
        if let Some(owner) = record.shared_jfr.and_then(|jfr| self.objects.queues.get_mut(&jfr)) {
            owner.users -= 1;
        }
        if let Some(members) = record.group.and_then(|g| self.objects.groups.get_mut(&g)) {
            members.remove(&id);
        }
        if let Some(slot) = record.slot {
            self.objects.slots.give_back(slot);
        }
        self.objects.ids.give_back(id);
    }

    /// Binds or unbinds an RC jetty.
    pub(super) fn bind(
        &mut self,
        at: &mut Around<'_>,
        id: u32,
        pair: Option<BoundTo>,
    ) -> CmdOutcome {
        let record = self.record_of(at, id)?;
        if record.mode != Mode::Rc || record.leaving {
            return Err(CmdStatus::Invalid);
        }
        if let Some(BoundTo { tpn, .. }) = pair {
            let link = at.core.tables.links.find(tpn).filter(|l| l.is_alive() && !l.unreliable);
            link.ok_or(CmdStatus::NotFound)?;
        }
        let queue = at.core.queues.get(id).ok_or(CmdStatus::NotFound)?;
        let held = queue.send.with_blocking(|place| {
            let engine = place.engine().as_mut().ok_or(CmdStatus::NotFound)?;
            match (engine.bound(), pair) {
                (Some(_), Some(_)) => Err(CmdStatus::Exists),
                (None, None) => Err(CmdStatus::NotFound),
                _ => {
                    engine.set_bound(pair.map(|to| (to.tpn, to.remote_id)));
                    Ok(CmdAnswer::ok(&[]))
                }
            }
        });
        if held.marked {
            at.core.make_runnable(queue);
        }
        if held.value.is_ok() && !at.exchange.bind(at.core, id, pair) {
            let _ = queue
                .send
                .with_blocking(|place| place.engine().as_mut().map(|e| e.set_bound(None)));
            return Err(CmdStatus::Invalid);
        }
        held.value
    }
}

/// Requests that a queue may have outstanding: blocks of its send ring and entries of its receive ring.
fn work_of(args: &CreateQueue) -> u64 {
    let entries = |log2: u8| 1_u64.checked_shl(log2.into()).unwrap_or(u64::MAX);
    let sends = args.sq.map_or(0, |sq| entries(sq.blocks_log2));
    let receives = args.rq.filter(|_| args.shared_jfr == NONE);
    sends.saturating_add(receives.map_or(0, |rq| entries(rq.depth_log2)))
}

/// Charges a queue with `work` outstanding requests to the quota.
fn charge(function: &DeviceFunction, work: u64) -> Result<(), CmdStatus> {
    function.charge(QuotaKind::Jetties, 1)?;
    function.charge(QuotaKind::Work, work).inspect_err(|_| function.release(QuotaKind::Jetties, 1))
}

fn release(function: &DeviceFunction, work: u64) {
    function.release(QuotaKind::Jetties, 1);
    function.release(QuotaKind::Work, work);
}

struct SendQueueParts {
    owner: FunctionId,
    guesses: Option<Arc<GuessBudget>>,
    ring: Blocks,
    port: JfcPort,
    record: RegionWord32,
    slot: Option<u32>,
    ends: Arc<EndCount>,
}

fn make_send(
    exchange: &mut Exchange,
    queue: &DeviceSendQueue,
    args: &CreateQueue,
    sq: &SqArgs,
    parts: SendQueueParts,
) {
    let is_jetty = args.kind == CmdQueueKind::Jetty;
    let engine = SendEngine::new(EngineCfg {
        owner: parts.owner,
        guesses: parts.guesses,
        who: Identity {
            id: queue.id,
            is_jetty,
            cookie: args.cookie,
            out_of_order: args.flags.contains(QueueFlags::OUTORDER_COMP),
        },
        mode: args.mode,
        flags: args.flags,
        ring: parts.ring,
        record: parts.record,
        port: parts.port,
        slot: parts.slot.map_or(usize::MAX, |slot| slot as usize),
        ends: parts.ends,
    });
    exchange.add_send(SendSide {
        id: queue.id,
        owner: parts.owner,
        is_jetty,
        mode: args.mode,
        mail: Arc::clone(engine.mail()),
        rnr_retry: sq.rnr_retry,
        err_timeout: sq.err_timeout,
        priority: sq.priority,
    });
    queue.set_owner(parts.owner);
    queue.priority.store(u32::from(sq.priority), Ordering::SeqCst);
    queue.pi.store(0, Ordering::SeqCst);
    queue.mask.store((1 << sq.blocks_log2) - 1, Ordering::SeqCst);
    let _ = queue.send.with_blocking(|place| *place.engine() = Some(Box::new(engine)));
    queue.sends.begin();
}

fn send_parts(at: &Around<'_>, sq: &SqArgs) -> Result<(Blocks, JfcPort), CmdStatus> {
    let fits = sq.blocks_log2 <= limits::SQ_BLOCKS_LOG2
        && sq.rnr_retry <= 7
        && sq.err_timeout <= 31
        && sq.priority <= 15
        && sq.base.is_multiple_of(BLOCK_LEN as u64);
    if !fits {
        return Err(CmdStatus::Invalid);
    }
    let port = find_jfc(at, sq.jfcn)?.port().ok_or(CmdStatus::NotFound)?;
    let len = (BLOCK_LEN as u64) << sq.blocks_log2;
    let window = at.core.tables.window(&at.function, (sq.base, len), DmaAccess::ToDevice);
    let window = window.ok_or(CmdStatus::Invalid)?;
    let ring = Blocks::new(window, u32::from(sq.blocks_log2)).map_err(|_| CmdStatus::Invalid)?;
    Ok((ring, port))
}

fn recv_parts(at: &Around<'_>, rq: &RqArgs) -> Result<(Region, JfcPort), CmdStatus> {
    let fits = rq.depth_log2 <= limits::JFR_DEPTH_LOG2
        && (1..=rqe::SGE_MAX).contains(&usize::from(rq.max_sge))
        && rq.min_rnr_timer <= 31
        && rq.base.is_multiple_of(16);
    if !fits {
        return Err(CmdStatus::Invalid);
    }
    let port = find_jfc(at, rq.jfcn)?.port().ok_or(CmdStatus::NotFound)?;
    let len = (rqe::stride(usize::from(rq.max_sge)) as u64) << rq.depth_log2;
    let ring = at.core.tables.window(&at.function, (rq.base, len), DmaAccess::ToDevice);
    let ring = ring.ok_or(CmdStatus::Invalid)?;
    Ok((ring, port))
}
