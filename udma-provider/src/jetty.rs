//! Queues: creation and control of JFS, JFR and jetty; and groups of jetties, which the device keeps.
//!
//! Has the order of steps: memory, table entry, command, halves; and in reverse. Must not free a ring before the
//! device answered that it forgot the queue (or was reset).

use std::sync::Arc;

use udma_abi::{
    cmd::{self, Command, CreateQueue, QueueFlags, QueueState},
    regs,
    rqe::record,
    sqe::BLOCK_LEN,
};
use urma_core::{
    Completion, CrStatus, JettyState, QueueCfg, QueueKind, QueueStatus, SendFlags, StartPsns,
    Status, TargetId, Token, TransportMode,
    ops::{HintPolicy, QueueControl, QueueParts, RecvQueue, SendQueue},
};
use urma_mem::sync::{AtomicBool, AtomicU32, Ordering};

use crate::{
    alloc::{DmaBuf, lock},
    device::Driver,
    doorbell::SqDoorbell,
    is_before,
    jfc::{JfcCore, JfcTable},
    jfr::{self, RecvParts, RecvPoster},
    jfs::{self, BoundTarget, SendParts, SendPoster},
    path,
    table::{PolledQueue, RecvLink, SendLink},
};

/// Memory of a queue.
#[derive(Debug)]
struct Memory {
    record: Arc<DmaBuf>,
    sq: Option<(Arc<DmaBuf>, u8)>,
    rq: Option<(Arc<DmaBuf>, u8)>,
}

/// JFCs of a queue.
#[derive(Debug)]
struct Jfcs {
    send: Option<Arc<JfcCore>>,
    recv: Option<Arc<JfcCore>>,
}

/// Control part of a queue: modifies, queries and flushes it.
#[derive(Debug)]
struct UdmaJettyControl {
    driver: Arc<Driver>,
    link: Arc<PolledQueue>,
    memory: Memory,
    jfcs: Jfcs,
    mode: TransportMode,
    bound: Arc<BoundTarget>,
    rx_threshold: AtomicU32,
    closed: Arc<AtomicBool>,
}

/// Creates a queue.
///
/// # Errors
/// `Invalid`: a JFC, JFR or limit that does not exist. `Exists`, `NoMemory`: the device's answer.
pub(crate) fn create(
    driver: &Arc<Driver>,
    table: &JfcTable,
    cfg: &QueueCfg,
) -> Result<QueueParts, Status> {
    check_limits(driver, cfg)?;
    let memory = Memory::new(driver, cfg)?;
    let recv_jfc = cfg.recv.map(|recv| recv.jfc).or_else(|| cfg.shared.map(|shared| shared.jfc));
    let jfcs = Jfcs {
        send: cfg.send.map(|send| table.find(send.jfc)).transpose()?,
        recv: recv_jfc.map(|jfcn| table.find(jfcn)).transpose()?,
    };
    let shared = cfg.shared.map(|shared| shared_link(driver, shared.jfr)).transpose()?;
    let link = driver.queues.insert(|cookie| {
        let mut link = PolledQueue::new(cookie, cfg.kind, cfg.user_ctx);
        link.send = cfg.send.zip(memory.sq.as_ref()).map(|(send, (_, log2))| {
            SendLink::new(send.jfc, *log2, memory.record.region().clone())
        });
        let own = cfg.recv.zip(memory.rq.as_ref());
        let own = own.map(|(recv, (_, log2))| Arc::new(RecvLink::new(recv.jfc, cookie, *log2)));
        link.recv = own.or(shared);
        link
    });
    let made = driver.execute(&Command::CreateQueue(memory.command(cfg, link.cookie)));
    let id = made.and_then(|results| {
        u32::try_from(results[0])
            .ok()
            .filter(|id| u64::from(*id) < regs::QUEUE_IDS)
            .ok_or(Status::Fail)
    });
    let id = id.inspect_err(|error| {
        driver.queues.remove(link.cookie);
        memory.keep_if_failed(driver, *error);
    })?;
    link.set_id(id);
    if cfg.kind == QueueKind::Jfr {
        lock(&driver.jfrs).insert(id, Arc::downgrade(&link));
    }
    let control = UdmaJettyControl {
        driver: Arc::clone(driver),
        link,
        memory,
        jfcs,
        mode: cfg.mode,
        bound: Arc::default(),
        rx_threshold: AtomicU32::new(0),
        closed: Arc::new(AtomicBool::new(false)),
    };
    Ok(control.into_parts(id, cfg))
}

/// Checks the driver's own limits of rings and indices; the device checks the rest.
fn check_limits(driver: &Driver, cfg: &QueueCfg) -> Result<(), Status> {
    let send_depth = cfg.send.map_or(0, |send| send.depth);
    let recv_depth = cfg.recv.map_or(0, |recv| recv.depth);
    let is_within = u64::from(send_depth) <= driver.caps.max_jfs_depth
        && u64::from(recv_depth) <= driver.caps.max_jfr_depth;
    if is_within {
        return Ok(());
    }
    let (most_send, most_recv) = (driver.caps.max_jfs_depth, driver.caps.max_jfr_depth);
    Err(Status::Invalid.why(format_args!(
        "the depths are {send_depth} and {recv_depth}; the device has {most_send} for sends and {most_recv} for receives"
    )))
}

fn shared_link(driver: &Driver, jfr: u32) -> Result<Arc<RecvLink>, Status> {
    let link = lock(&driver.jfrs).get(&jfr).and_then(std::sync::Weak::upgrade);
    link.and_then(|link| link.recv.clone()).ok_or_else(|| {
        Status::Invalid.why(format_args!("JFR {jfr} is none of this device, or was deleted"))
    })
}

impl Memory {
    fn new(driver: &Driver, cfg: &QueueCfg) -> Result<Self, Status> {
        let sq = match &cfg.send {
            Some(send) => {
                let log2 = jfs::blocks_log2(send)?;
                Some((Arc::new(driver.dma.alloc(BLOCK_LEN << log2)?), log2))
            }
            None => None,
        };
        let rq = match &cfg.recv {
            Some(recv) => {
                let log2 = jfr::depth_log2(recv)?;
                Some((Arc::new(driver.dma.alloc(jfr::ring_len(recv, log2))?), log2))
            }
            None => None,
        };
        Ok(Self { record: Arc::new(driver.dma.alloc(record::LEN)?), sq, rq })
    }

    fn command(&self, cfg: &QueueCfg, cookie: u64) -> CreateQueue {
        let mut flags = QueueFlags::empty();
        let send_flags = cfg.send.map_or(SendFlags::empty(), |send| send.flags);
        flags.set(QueueFlags::ERROR_SUSPEND, send_flags.contains(SendFlags::ERROR_SUSPEND));
        flags.set(QueueFlags::OUTORDER_COMP, send_flags.contains(SendFlags::OUTORDER_COMP));
        flags.set(QueueFlags::TOKEN, cfg.token.is_some());
        let sq = cfg.send.as_ref().zip(self.sq.as_ref());
        let rq = cfg.recv.as_ref().zip(self.rq.as_ref());
        CreateQueue {
            kind: match cfg.kind {
                QueueKind::Jfs => cmd::CmdQueueKind::Jfs,
                QueueKind::Jfr => cmd::CmdQueueKind::Jfr,
                QueueKind::Jetty => cmd::CmdQueueKind::Jetty,
            },
            id: cfg.id,
            mode: path::mode_of(cfg.mode),
            flags,
            cookie,
            record: self.record.iova(),
            sq: sq.map(|(cfg, (buf, log2))| jfs::sq_args(cfg, buf.iova(), *log2)),
            rq: rq
                .map(|(recv, (buf, log2))| jfr::rq_args(recv, buf.iova(), *log2, cfg.token))
                .or_else(|| cfg.shared.and_then(|shared| jfr::token_args(shared.jfc, cfg.token))),
            shared_jfr: cfg.shared.map_or(cmd::NONE, |shared| shared.jfr),
            recv_jfcn: cfg.shared.map_or(cmd::NONE, |shared| shared.jfc),
            group: cfg.group.unwrap_or(cmd::NONE),
        }
    }

    fn all(&self) -> impl Iterator<Item = &Arc<DmaBuf>> {
        let rings = [&self.sq, &self.rq].into_iter().flatten().map(|(buf, _)| buf);
        rings.chain([&self.record])
    }

    fn keep_if_failed(&self, driver: &Driver, error: Status) {
        self.all().for_each(|buf| driver.keep_if_failed(buf, error));
    }
}

impl UdmaJettyControl {
    fn into_parts(self, id: u32, cfg: &QueueCfg) -> QueueParts {
        let send = self.send_half(id, cfg).map(|half| Box::new(half) as Box<dyn SendQueue>);
        let recv = self.recv_half(cfg).map(|half| Box::new(half) as Box<dyn RecvQueue>);
        QueueParts { id, control: Arc::new(self), send, recv }
    }

    fn send_half(&self, id: u32, cfg: &QueueCfg) -> Option<SendPoster> {
        let send = cfg.send.as_ref()?;
        let (memory, log2) = self.memory.sq.as_ref()?;
        let features = self.driver.features();
        let parts = SendParts {
            memory: Arc::clone(memory),
            record: Arc::clone(&self.memory.record),
            log2: *log2,
            depth: send.depth.max(1),
            jfc: Arc::clone(self.jfcs.send.as_ref()?),
            direct: features.contains(udma_abi::caps::Features::DWQE),
            in_order: jfs::is_in_order(send),
            bound: Arc::clone(&self.bound),
            closed: Arc::clone(&self.closed),
            failed: Arc::clone(&self.driver.failed),
        };
        let doorbell = SqDoorbell::new(Arc::clone(&self.driver.regs), id);
        SendPoster::new(parts, Arc::clone(&self.link), doorbell)
    }

    fn recv_half(&self, cfg: &QueueCfg) -> Option<RecvPoster> {
        let recv = cfg.recv.as_ref()?;
        let (memory, log2) = self.memory.rq.as_ref()?;
        Some(RecvPoster::new(RecvParts {
            memory: Arc::clone(memory),
            record: Arc::clone(&self.memory.record),
            link: Arc::clone(self.link.recv.as_ref()?),
            log2: *log2,
            max_sge: recv.max_sge,
            closed: Arc::clone(&self.closed),
            failed: Arc::clone(&self.driver.failed),
        }))
    }

    fn id(&self) -> u32 {
        self.link.id()
    }

    fn jfcs(&self) -> impl Iterator<Item = &Arc<JfcCore>> {
        let send = self.jfcs.send.as_ref();
        let recv = self.jfcs.recv.as_ref();
        let other = recv.filter(|recv| send.is_none_or(|send| send.jfcn() != recv.jfcn()));
        send.into_iter().chain(other)
    }

    /// Number of requests between the device's consumer record and the producer index.
    fn send_pending(&self) -> u32 {
        let Some(send) = &self.link.send else { return 0 };
        let end = send.pi.load(Ordering::Acquire);
        let record = send.record.load_u32_acquire(record::SQ_CI).unwrap_or(end);
        if !is_before(record, end) {
            // What was executed since is retired, and `end` has not moved.
            return 0;
        }
        let mut at = send.shadow.oldest(record, end);
        let mut count = 0;
        while is_before(at, end) {
            let tag = send.shadow.tag(at);
            let is_start = tag.pos() == at;
            count += u32::from(is_start);
            at = at.wrapping_add(if is_start { tag.blocks().max(1) } else { 1 });
        }
        count
    }

    /// Destroys the queue in the device. LikeLast the command as long as completions taken off the rings may have
    /// helped: a thread that did not run for a while took none while the device waited.
    fn destroy(&self) -> Result<(), Status> {
        let command = Command::DestroyQueue { id: self.id() };
        for _ in 0..DESTROY_TRIES {
            let mut made_room = false;
            let mut make_room = || self.jfcs().for_each(|jfc| made_room |= jfc.drain());
            match self.driver.execute_with(&command, &mut make_room) {
                Err(error) if error == Status::TimedOut => {}
                other => return other.map(|_| ()),
            }
            self.jfcs().for_each(|jfc| made_room |= jfc.drain());
            if !made_room {
                break;
            }
        }
        Err(Status::Again)
    }

    /// Forgets the queue, as the device did or because it is gone.
    fn forget(&self) {
        self.jfcs().for_each(|jfc| jfc.forget(&self.link));
        self.driver.queues.remove(self.link.cookie);
        lock(&self.driver.jfrs).remove(&self.id());
    }
}

impl QueueControl for UdmaJettyControl {
    fn modify(&self, state: JettyState) -> Result<(), Status> {
        let state = match state {
            JettyState::Reset => QueueState::Reset,
            JettyState::Ready => QueueState::Ready,
            JettyState::Suspended => QueueState::Suspended,
            JettyState::Error => QueueState::Error,
        };
        self.driver.execute(&Command::ModifyState { id: self.id(), state }).map(|_| ())
    }

    fn set_rx_threshold(&self, threshold: u32) -> Result<(), Status> {
        if self.memory.rq.is_none() {
            return Err(Status::Invalid.why(format_args!(
                "queue {} does not receive, so it has no threshold",
                self.id()
            )));
        }
        self.driver.execute(&Command::ModifyRxThreshold { id: self.id(), threshold })?;
        self.rx_threshold.store(threshold, Ordering::Relaxed);
        Ok(())
    }

    fn query(&self) -> Result<QueueStatus, Status> {
        let results = self.driver.execute(&Command::QueryQueue { id: self.id() })?;
        let state = u8::try_from(results[0]).ok().and_then(QueueState::from_code);
        Ok(QueueStatus {
            state: match state.ok_or(Status::Fail)? {
                QueueState::Reset => JettyState::Reset,
                QueueState::Ready => JettyState::Ready,
                QueueState::Suspended => JettyState::Suspended,
                QueueState::Error => JettyState::Error,
            },
            rx_threshold: self.rx_threshold.load(Ordering::Relaxed),
            send_pending: self.send_pending(),
            recv_pending: u32::try_from(results[2]).unwrap_or(u32::MAX),
        })
    }

    fn bind(&self, target: &TargetId, psns: Option<StartPsns>) -> Result<(), Status> {
        if self.mode != TransportMode::Rc {
            return Err(Status::NoPermission);
        }
        let (id, tpn, remote_id) = (self.id(), target.path.tpn, target.id.id);
        let psns = psns.map(|StartPsns { send, receive }| [send, receive]);
        self.driver.execute(&Command::Bind { id, tpn, remote_id, psns })?;
        *lock(&self.bound.target) = Some(*target);
        self.bound.version.fetch_add(1, Ordering::Release);
        Ok(())
    }

    fn unbind(&self) -> Result<(), Status> {
        self.driver.execute(&Command::Unbind { id: self.id() })?;
        *lock(&self.bound.target) = None;
        self.bound.version.fetch_add(1, Ordering::Release);
        Ok(())
    }

    fn flush(&self, out: &mut [Completion]) -> Result<usize, Status> {
        match self.modify(JettyState::Error) {
            // A queue that is in the error state already may refuse the step.
            Ok(()) => {}
            Err(error) if error == Status::Invalid => {}
            Err(error) => return Err(error),
        }
        // A queue that sends is flushed of its sends only: receives are polled.
        let recv = self.jfcs.send.is_none();
        let jfc = self.jfcs.send.as_ref().or(self.jfcs.recv.as_ref()).ok_or(Status::Fail)?;
        let mut taken = 0;
        let mut quiet = 0;
        while taken < out.len() && quiet < FLUSH_LOOKS {
            let fresh = jfc.take_flushed(self.id(), recv, &mut out[taken..]);
            quiet = if fresh == 0 { quiet + 1 } else { 0 };
            taken += fresh;
            if taken > 0 && out[taken - 1].status == CrStatus::WrFlushDone {
                break;
            }
            self.driver.backing.progress();
        }
        Ok(taken)
    }

    fn delete(&self) -> Result<(), Status> {
        if self.closed.swap(true, Ordering::AcqRel) {
            return Err(Status::Invalid.why(format_args!("queue {} was deleted before", self.id())));
        }
        // The device answers when every request has its completion, and for that the completion rings need room.
        match self.destroy() {
            Ok(()) => {}
            Err(error) if error == Status::NoDevice => {
                self.driver.on_failure();
                self.jfcs().for_each(|jfc| jfc.sweep());
                self.memory.all().for_each(|buf| self.driver.keep(Arc::clone(buf)));
            }
            Err(refused) => {
                self.closed.store(false, Ordering::Release);
                return Err(refused);
            }
        }
        self.forget();
        Ok(())
    }
}

impl Drop for UdmaJettyControl {
    fn drop(&mut self) {
        if !self.closed.load(Ordering::Acquire)
            && let Err(error) = self.delete()
        {
            tracing::warn!(%error, id = self.id(), "a dropped queue could not be deleted");
            // The device may still use the rings.
            self.memory.all().for_each(|buf| self.driver.keep(Arc::clone(buf)));
        }
    }
}

/// How often a queue with full completion rings is destroyed before giving up.
const DESTROY_TRIES: u32 = 256;
/// Checks without a result after which a flush returns what it has.
const FLUSH_LOOKS: u32 = 256;

/// Creates a group; returns its id.
///
/// # Errors
/// `Exists`: the requested id is in use. `NoMemory`.
pub(crate) fn create_group(
    driver: &Driver,
    id: u32,
    policy: HintPolicy,
    token: Option<Token>,
) -> Result<u32, Status> {
    let by_hint = policy == HintPolicy::HashHint;
    let token_value = token.map(Token::value);
    let results = driver.execute(&Command::CreateGroup { id, by_hint, token_value })?;
    u32::try_from(results[0]).map_err(|_| Status::Fail)
}

/// Deletes a group that has no members.
///
/// # Errors
/// `Again`: it has members. `Invalid`: there is none.
pub(crate) fn delete(driver: &Driver, id: u32) -> Result<(), Status> {
    driver.execute(&Command::DestroyGroup { id }).map(|_| ())
}
