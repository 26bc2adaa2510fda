//! The tables of a device: configuration, counters, segments, paths, completion and event queues.
//!
//! *Owns*: the tables that everything above borrows, and short lists from lower modules to those that step them.
//! *Takes*: objects as commands create them. *Gives*: lookups that never wait. *Must not*: step anything; depend on
//! the modules that read them.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use arc_swap::ArcSwapOption;
use crossbeam_queue::ArrayQueue;
use udma_abi::{
    DmaAccess, Eqe, EqeKind, cmd::QueueState, counters::Counter, eqe::EQE_LEN, regs::status,
};
use urma_mem::sync::{AtomicBool, Ordering};
use urma_mem::{Region, ends::EndCount, idle::WorkSign, sleep::SleepFlag};

use super::{
    counts::Counts,
    event::EventQueue,
    function::{DeviceFunction, FunctionCfg, FunctionId, FunctionQuota},
    jfc::DeviceJfc,
    link::LinkTable,
    plugged::PluggedModel,
    queue::StepShare,
    segment::SegmentTable,
    table::IdTable,
};
use crate::cfg::{DeviceCfg, ExpressLane};
use crate::fault::Faults;
use crate::limits;
use crate::nic::{LookedUp, Lookup};
use crate::ports::{HostRequest, Interrupt, Ports};
use crate::share;

/// Entries of a list of queue numbers: more than there can be queues.
pub(crate) const LIST_LEN: usize = 4 * limits::QUEUES;
/// Most waiting requests to the host.
const REQUESTS_LEN: usize = 2 * limits::PEERS;
/// Most waiting asynchronous events; beyond it the oldest are dropped and counted.
pub(crate) const ASYNC_PENDING_MAX: usize = 4096;
/// Marks an address from MAP_SEG as one for loads only; user addresses have at most 57 bits.
pub(crate) const LOADS_ONLY: u64 = 1 << 62;

/// Everything of a device that several modules use, except its send queues.
#[derive(Debug)]
pub(crate) struct Tables {
    pub(crate) cfg: DeviceCfg,
    /// Most bytes that the direct path copies in one chunk.
    pub(crate) step_max: u64,
    pub(crate) ports: Ports,
    pub(crate) faults: Faults,
    pub(crate) counts: Counts,
    /// The model of a NIC's insides, if one is plugged in.
    pub(crate) nic: Option<Box<PluggedModel>>,
    /// The function of the device's owner.
    pub(crate) first: Arc<DeviceFunction>,
    /// Bounds of one step of one send queue.
    pub(crate) step: StepShare,
    /// All functions but that one.
    others: RwLock<BTreeMap<FunctionId, Arc<DeviceFunction>>>,
    pub(crate) segments: SegmentTable,
    pub(crate) links: LinkTable,
    /// Epoch: bumped by each end of a segment or path.
    pub(crate) ends: Arc<EndCount>,
    pub(crate) jfcs: IdTable<Arc<DeviceJfc>>,
    pub(crate) eqs: IdTable<ArcSwapOption<EventQueue>>,
    /// Jetties whose send side left READY by itself: their receive side follows.
    stopped: ArrayQueue<(u32, QueueState)>,
    /// Whether events of some JFC are moderated by time: the shared part keeps the timers.
    pub(crate) moderation: AtomicBool,
    pub(crate) requests: ArrayQueue<HostRequest>,
    pub(crate) sleep: Option<SleepFlag>,
    /// Sign by which polls see that a step may find something.
    pub(crate) sign: Arc<WorkSign>,
}

impl Tables {
    /// Creates the tables of a device after power-on, and writes the header of the node region.
    pub(crate) fn new(cfg: DeviceCfg, ports: Ports) -> Self {
        write_header(&cfg, &ports.node_region);
        let ends = Arc::new(EndCount::default());
        Self {
            faults: cfg.faults(),
            counts: Counts::new(),
            nic: ports.nic.clone().map(PluggedModel::new).map(Box::new),
            first: Arc::new(DeviceFunction::new(
                FunctionId::FIRST,
                first_cfg(&cfg),
                Arc::clone(&ports.interrupt),
            )),
            step: StepShare::new(&cfg),
            others: RwLock::default(),
            segments: SegmentTable::new(ports.node_region.clone(), Arc::clone(&ends)),
            links: LinkTable::new(Arc::clone(&ends)),
            ends,
            jfcs: IdTable::new(),
            eqs: IdTable::new(),
            stopped: ArrayQueue::new(LIST_LEN),
            moderation: AtomicBool::new(false),
            requests: ArrayQueue::new(REQUESTS_LEN),
            step_max: cfg.direct_chunk.min(cfg.step_bytes) as u64,
            sleep: SleepFlag::new(ports.node_region.clone(), share::NODE_SLEEP).ok(),
            sign: Arc::default(),
            cfg,
            ports,
        }
    }

    /// Whether short messages take the express lane.
    #[inline]
    pub(crate) fn has_message_lane(&self) -> bool {
        self.cfg.lane == ExpressLane::On && !self.faults.is_planted()
    }

    /// The model, if requests look up their contexts in it.
    #[inline]
    pub(crate) fn contexts(&self) -> Option<&PluggedModel> {
        self.nic.as_deref().filter(|nic| nic.has_contexts())
    }

    /// Removes a path from the table and from the model.
    pub(crate) fn remove_link(&self, tpn: u32) {
        self.links.remove(tpn);
        self.forget(LookedUp::Tp(tpn));
    }

    /// Removes an object that ended from the model.
    pub(crate) fn forget(&self, ended: LookedUp) {
        if let Some(contexts) = self.contexts() {
            contexts.on_lookup(Lookup::End, std::iter::once(ended));
        }
    }

    /// Adds one to a counter.
    #[cold]
    pub(crate) fn count(&self, counter: Counter) {
        self.counts.add(counter, 1);
    }

    /// The window of `len` bytes at a device address that a function's driver named; a fault is counted.
    pub(crate) fn window(
        &self,
        function: &DeviceFunction,
        (iova, len): (u64, u64),
        access: DmaAccess,
    ) -> Option<Region> {
        let window = function.window(iova, len, access);
        if window.is_none() {
            self.count(Counter::DmaFault);
        }
        window
    }

    /// Maps the pages behind an address from MAP_SEG into this process, for a peer's segment and at most `len_max`
    /// bytes.
    pub(crate) fn prepare(&self, addr: u64, len: u64, len_max: u64) {
        let is_read = addr & LOADS_ONLY != 0;
        let len = usize::try_from(len.min(len_max)).unwrap_or(0);
        let addr = usize::try_from(addr & !LOADS_ONLY).ok();
        if let Some(window) = addr.and_then(|addr| self.links.arena_at(addr, len)) {
            if is_read { window.read_only().populate() } else { window.populate() }
        }
    }

    /// The memory behind an address from MAP_SEG. A peer's segment gets a mapping of its own, which ends with its
    /// last user and not with the path.
    pub(crate) fn mapped(&self, addr: u64, len: u64) -> Option<Region> {
        let with = |window: Region| {
            if addr & LOADS_ONLY == 0 { window } else { window.read_only() }
        };
        let (addr, len) = (usize::try_from(addr & !LOADS_ONLY).ok()?, usize::try_from(len).ok()?);
        let Some(window) = self.links.arena_at(addr, len).map(with) else {
            return self.segments.memory_at(addr, len).map(with);
        };
        match window.apart() {
            Some(Ok(apart)) => Some(apart),
            Some(Err(error)) => {
                tracing::warn!(%error, len, "a peer's segment cannot be mapped into the register region");
                None
            }
            None => Some(window),
        }
    }

    /// Notes that a jetty's send side left READY by itself.
    pub(crate) fn on_stopped(&self, id: u32, state: QueueState) {
        // A queue stops once per life, so there is room for all that can exist.
        let _ = self.stopped.push((id, state));
    }

    pub(crate) fn has_stopped(&self) -> bool {
        !self.stopped.is_empty()
    }

    pub(crate) fn next_stopped(&self) -> Option<(u32, QueueState)> {
        if self.has_stopped() { self.stopped.pop() } else { None }
    }

    /// Queues a request to the host; `false`: too many wait already.
    pub(crate) fn ask_host(&self, request: HostRequest) -> bool {
        self.requests.push(request).is_ok()
    }

    /// Adds a function; `None`: the maximum is reached.
    pub(crate) fn add_function(
        &self,
        cfg: FunctionCfg,
        interrupt: Arc<dyn Interrupt>,
    ) -> Option<Arc<DeviceFunction>> {
        let mut others = self.others.write().unwrap_or_else(PoisonError::into_inner);
        let mut free = (1..=limits::FUNCTIONS).map(FunctionId::new);
        let id = free.find(|id| !others.contains_key(id))?;
        let function = Arc::new(DeviceFunction::new(id, cfg, interrupt));
        others.insert(id, Arc::clone(&function));
        self.step.set(&self.cfg, others.len());
        Some(function)
    }

    /// Removes a function whose objects were ended before.
    pub(crate) fn remove_function(&self, id: FunctionId) {
        let mut others = self.others.write().unwrap_or_else(PoisonError::into_inner);
        others.remove(&id);
        self.step.set(&self.cfg, others.len());
    }

    /// The function with this number.
    pub(crate) fn function(&self, id: FunctionId) -> Option<Arc<DeviceFunction>> {
        if id == FunctionId::FIRST {
            return Some(Arc::clone(&self.first));
        }
        self.others.read().unwrap_or_else(PoisonError::into_inner).get(&id).map(Arc::clone)
    }

    /// The UASID of function `id`; 0: it is gone.
    pub(crate) fn uasid_of(&self, id: FunctionId) -> u32 {
        self.function(id).map_or(0, |function| function.uasid())
    }

    /// All functions, that of the owner first.
    pub(crate) fn functions(&self) -> Vec<Arc<DeviceFunction>> {
        let others = self.others.read().unwrap_or_else(PoisonError::into_inner);
        std::iter::once(&self.first).chain(others.values()).map(Arc::clone).collect()
    }

    /// Sends an event about the device to the drivers of all functions.
    pub(crate) fn device_event(&self, kind: EqeKind, object: u32) {
        for function in self.functions() {
            self.event_to(&function, kind, object);
        }
    }

    /// Sends an event about an object of function `owner` to its driver.
    pub(crate) fn async_event(&self, owner: FunctionId, kind: EqeKind, object: u32) {
        if let Some(function) = self.function(owner) {
            self.event_to(&function, kind, object);
        }
    }

    /// Sends an event, which waits for room in the event ring if need be.
    fn event_to(&self, function: &DeviceFunction, kind: EqeKind, object: u32) {
        let event = Eqe::Async { code: kind as u8, object };
        {
            let mut pending = function.pending_events();
            if pending.len() == ASYNC_PENDING_MAX {
                pending.pop_front();
                self.count(Counter::AsyncDropped);
            }
            pending.push_back(event);
        }
        self.push_async(function);
    }

    /// Writes waiting asynchronous events as far as there is room.
    pub(crate) fn push_async(&self, function: &DeviceFunction) {
        let aeq = function.aeq.load();
        let Some(aeq) = aeq.as_ref() else { return };
        let mut pending = function.pending_events();
        while let Some(event) = pending.front() {
            if !aeq.push(*event) {
                return;
            }
            self.count(Counter::Events);
            pending.pop_front();
        }
    }

    /// Opens the ring of asynchronous events that a function's driver set up; `false`: it cannot be used. A ring with
    /// no or too many entries counts as none.
    pub(crate) fn open_async(&self, function: &DeviceFunction) -> bool {
        let setup = function.setup();
        let (core, depth) = (setup.aeq_base, u64::from(setup.aeq_depth));
        if core == 0 || !depth.is_power_of_two() || depth > 1 << limits::EQ_DEPTH_LOG2 {
            return true;
        }
        let len = depth * EQE_LEN as u64;
        let Some(ring) = self.window(function, (core, len), DmaAccess::Both) else { return false };
        let interrupt = Arc::clone(&function.interrupt);
        let owner = function.id;
        function.aeq.store(Some(Arc::new(EventQueue::new(ring, depth, (owner, 0), interrupt))));
        self.push_async(function);
        true
    }

    /// Marks a function as failed: only its reset helps.
    pub(crate) fn fatal(&self, function: &DeviceFunction) {
        if function.status.fetch_or(status::FATAL, Ordering::SeqCst) & status::FATAL == 0 {
            function.status.fetch_and(!status::READY, Ordering::SeqCst);
            self.event_to(function, EqeKind::DevFatal, 0);
        }
    }
}

/// The owner of the device has no quota, only the device's limits.
fn first_cfg(cfg: &DeviceCfg) -> FunctionCfg {
    FunctionCfg { uasid: cfg.uasid, quota: FunctionQuota::NONE }
}

fn write_header(cfg: &DeviceCfg, node: &Region) {
    let [high, low] = cfg.eid.to_words();
    let words = [share::NODE_MAGIC, share::VERSION, cfg.incarnation, high, low];
    // A region that is too short shows no magic, and peers refuse it.
    let _ = node.store_block_last(0, &words, 0);
}
