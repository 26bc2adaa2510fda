//! The device: one `Sync` object that posters, the background thread and the simulator call.
//!
//! *Owns*: everything that exists between reset and reset. *Takes*: register accesses, time, peers,
//! datagrams. *Gives*: completions in host memory, datagrams, deadlines, requests to its host.
//! *Must not*: read a clock, open anything, wait for a lock while a poster is in it.

mod faults;
pub(crate) mod limits;
pub mod look;
mod registers;
mod run;
mod running;
pub(crate) mod shared;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwapOption;
use crossbeam_queue::ArrayQueue;
use udma_abi::{
    AsyncKind, BackingError, DmaAccess, Eqe, Nanos, RawEid, cmd::QueueState, counters::Counter,
    eqe::EQE_LEN, regs::status,
};
use urma_mem::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use urma_mem::{Region, Serial, sleep::SleepFlag};

use crate::context::{
    counts::Counts, event::EventQueue, jfc::Jfc, link::LinkTable, queue::Queue,
    segment::SegmentTable, table::Table,
};
use crate::dma::{self, Dma};
use crate::ports::{HostRequest, Interrupt, MemoryHost};
use crate::share::layout;
pub(crate) use faults::Faults;
pub(crate) use registers::Setup;
use shared::Shared;

#[cfg(feature = "planted-faults")]
pub use crate::fault::PlantedFault;

/// Seed of the numbers that must not be guessed: TPNs, PSNs, nonces, keys.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Seed(pub [u8; 32]);

impl Seed {
    /// For a simulation, which decides everything by one number.
    #[must_use]
    pub fn of(number: u64) -> Self {
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&number.to_le_bytes());
        Self(seed)
    }
}

impl std::fmt::Debug for Seed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Seed(..)")
    }
}

/// What a device is made with.
#[derive(Clone, Debug)]
pub struct DeviceCfg {
    /// Its endpoint id.
    pub eid: RawEid,
    /// Its user address space id.
    pub uasid: u32,
    /// Differs between two lives of one EID.
    pub incarnation: u64,
    /// Seed of every number that must not be guessed.
    pub seed: Seed,
    /// Path MTU in payload bytes, 256 to 8192.
    pub mtu: u32,
    /// Packets that a TP may have unacknowledged.
    pub window_packets: u32,
    /// Retransmission strategy of its TPs.
    pub strategy: crate::transport::Strategy,
    /// Most bytes that the direct path copies between two looks at a generation.
    pub direct_chunk: usize,
    /// Bytes that the machine's caches hold: long writes that walk through more go past them.
    pub cache_bytes: u64,
    /// Most bytes that one step of one send queue copies directly.
    pub step_bytes: usize,
    /// Most requests that one step of one send queue starts.
    pub step_requests: u32,
    /// Bytes of a same-host ring, a power of two.
    pub ring_len: usize,
    /// A mistake that it makes on purpose.
    #[cfg(feature = "planted-faults")]
    pub fault: Option<PlantedFault>,
}

impl DeviceCfg {
    /// The values of a production device, whose `seed` the host replaces: 64 bits are few.
    #[must_use]
    pub fn new(eid: RawEid, incarnation: u64, seed: u64) -> Self {
        Self {
            eid,
            uasid: 0,
            incarnation,
            seed: Seed::of(seed),
            mtu: 4096,
            window_packets: 512,
            strategy: crate::transport::Strategy::default(),
            direct_chunk: urma_mem::hazard::CHUNK_MAX,
            cache_bytes: 32 << 20,
            step_bytes: 16 << 20,
            step_requests: 256,
            ring_len: 1 << 20,
            #[cfg(feature = "planted-faults")]
            fault: None,
        }
    }
}

/// The world as the device sees it.
#[derive(Debug)]
pub struct Ports {
    /// Raises vectors.
    pub interrupt: Arc<dyn Interrupt>,
    /// Shares registered memory with peers on this host.
    pub memory: Arc<dyn MemoryHost>,
    /// This node's region, [`crate::share::layout::NODE_LEN`] bytes, writable, zeroed.
    pub node_region: Region,
}

/// A software UDMA device.
#[derive(Debug)]
pub struct Device {
    cfg: DeviceCfg,
    ports: Ports,
    faults: Faults,
    counts: Counts,
    dma: Dma,
    segments: SegmentTable,
    links: LinkTable,
    queues: Table<Arc<Queue>>,
    jfcs: Table<Arc<Jfc>>,
    eqs: Table<ArcSwapOption<EventQueue>>,
    aeq: ArcSwapOption<EventQueue>,
    /// Asynchronous events that found no room yet.
    async_pending: Mutex<VecDeque<Eqe>>,
    setup: Mutex<Setup>,
    status: AtomicU32,
    cmd_pi: AtomicU32,
    /// Queues that want another step.
    runnable: ArrayQueue<u32>,
    /// Queues with something for the shared part.
    listed: ArrayQueue<u32>,
    /// Jetties whose send side left READY by itself: their receive side follows.
    stopped: ArrayQueue<(u32, QueueState)>,
    /// Some JFC's events are moderated by time: the shared part keeps the timers.
    moderation: AtomicBool,
    requests: ArrayQueue<HostRequest>,
    shared: Serial<Shared>,
    /// When the shared part wants to be stepped; `u64::MAX`: on input only.
    deadline: AtomicU64,
    sleep: Option<SleepFlag>,
}

/// Queue numbers that the two work lists can hold: more than there can be queues.
const LIST_LEN: usize = 4 * limits::QUEUES;
/// Requests to the host that can wait.
const REQUESTS_LEN: usize = 2 * limits::PEERS;
/// Asynchronous events that wait for room; beyond it the oldest are dropped and counted.
pub(crate) const ASYNC_PENDING_MAX: usize = 4096;
/// Marks a place that MAP_SEG answers as one for loads alone; user addresses have at most 57 bits.
pub(crate) const LOADS_ONLY: u64 = 1 << 62;

impl Device {
    /// A device after power-on. The header of the node region is written here.
    #[must_use]
    pub fn new(cfg: DeviceCfg, ports: Ports) -> Arc<Self> {
        write_header(&cfg, &ports.node_region);
        #[cfg(feature = "planted-faults")]
        let faults = Faults::new(cfg.fault);
        #[cfg(not(feature = "planted-faults"))]
        let faults = Faults::default();
        Arc::new(Self {
            faults,
            counts: Counts::new(),
            dma: Dma::default(),
            segments: SegmentTable::new(ports.node_region.clone()),
            links: LinkTable::default(),
            queues: Table::new(),
            jfcs: Table::new(),
            eqs: Table::new(),
            aeq: ArcSwapOption::empty(),
            async_pending: Mutex::default(),
            setup: Mutex::default(),
            status: AtomicU32::new(0),
            cmd_pi: AtomicU32::new(0),
            runnable: ArrayQueue::new(LIST_LEN),
            listed: ArrayQueue::new(LIST_LEN),
            stopped: ArrayQueue::new(LIST_LEN),
            moderation: AtomicBool::new(false),
            requests: ArrayQueue::new(REQUESTS_LEN),
            shared: Serial::new(Shared::new(&cfg)),
            deadline: AtomicU64::new(u64::MAX),
            sleep: SleepFlag::new(ports.node_region.clone(), layout::NODE_SLEEP).ok(),
            cfg,
            ports,
        })
    }

    /// Configuration it was made with.
    #[must_use]
    #[inline]
    pub fn cfg(&self) -> &DeviceCfg {
        &self.cfg
    }

    /// This node's region (header, segment table).
    #[must_use]
    pub fn node_region(&self) -> &Region {
        &self.ports.node_region
    }

    /// Usable device addresses, as `(first, last)`.
    #[must_use]
    pub fn dma_ranges(&self) -> Vec<(u64, u64)> {
        vec![(dma::FIRST, dma::LAST)]
    }

    /// Makes `region` reachable at device address `iova`.
    ///
    /// # Errors
    /// The range is taken or outside [`Device::dma_ranges`].
    pub fn dma_map(
        &self,
        iova: u64,
        region: &Region,
        access: DmaAccess,
    ) -> Result<(), BackingError> {
        self.dma.map(iova, region, access)
    }

    /// Takes the mapping that starts at `iova` away.
    ///
    /// # Errors
    /// There is none.
    pub fn dma_unmap(&self, iova: u64) -> Result<(), BackingError> {
        self.dma.unmap(iova)
    }

    /// Adds one to a counter (also for counters that the world keeps, such as background runs).
    #[cold]
    pub fn count(&self, counter: Counter) {
        self.counts.add(counter, 1);
    }

    /// Adds `value` to a counter.
    pub(crate) fn count_by(&self, counter: Counter, value: u64) {
        self.counts.add(counter, value);
    }

    /// Adds `value` to a counter of the shared part's own, which the caller holds: receive completions,
    /// what rings and packets carried.
    pub(crate) fn count_alone(&self, counter: Counter, value: u64) {
        self.counts.add_alone(counter, value);
    }

    /// The value of a counter that send queues do not keep.
    pub(crate) fn count_of(&self, counter: Counter) -> u64 {
        self.counts.value(counter)
    }

    /// The value of a counter.
    #[must_use]
    pub fn counter(&self, counter: Counter) -> u64 {
        let fast: u64 = self.queues.iter().map(|q| q.fast.value(counter)).sum();
        fast + self.counts.value(counter)
    }

    #[inline]
    pub(crate) fn faults(&self) -> Faults {
        self.faults
    }

    #[inline]
    pub(crate) fn segments(&self) -> &SegmentTable {
        &self.segments
    }

    /// The memory behind an address that MAP_SEG answered, for the backing's `RegisterRegion::map`: of
    /// a peer's segment a window of its own, which ends with its last user and not with the way.
    #[must_use]
    pub fn mapped(&self, addr: u64, len: u64) -> Option<Region> {
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
                tracing::warn!(%error, len, "no window on a peer's segment");
                None
            }
            None => Some(window),
        }
    }

    #[inline]
    pub(crate) fn links(&self) -> &LinkTable {
        &self.links
    }

    /// Runs `f` while nothing of the shared part runs.
    pub(crate) fn with_shared<T>(&self, f: impl FnOnce() -> T) -> T {
        self.shared.with_blocking(|_| f()).value
    }

    pub(crate) fn ports(&self) -> &Ports {
        &self.ports
    }

    pub(crate) fn queues(&self) -> &Table<Arc<Queue>> {
        &self.queues
    }

    pub(crate) fn jfcs(&self) -> &Table<Arc<Jfc>> {
        &self.jfcs
    }

    pub(crate) fn eqs(&self) -> &Table<ArcSwapOption<EventQueue>> {
        &self.eqs
    }

    /// The window of `len` bytes at a device address that the driver named; a fault is counted.
    pub(crate) fn window(&self, iova: u64, len: u64, access: DmaAccess) -> Option<Region> {
        let window = self.dma.window(iova, len, access);
        if window.is_none() {
            self.count(Counter::DmaFault);
        }
        window
    }

    pub(crate) fn command_pi(&self) -> &AtomicU32 {
        &self.cmd_pi
    }

    pub(crate) fn set_moderation(&self, on: bool) {
        self.moderation.store(on, Ordering::SeqCst);
    }

    /// A jetty's send side left READY by itself.
    pub(crate) fn on_stopped(&self, id: u32, state: QueueState) {
        // A queue stops once per life, so there is room for all that can exist.
        let _ = self.stopped.push((id, state));
    }

    pub(crate) fn next_stopped(&self) -> Option<(u32, QueueState)> {
        if self.stopped.is_empty() { None } else { self.stopped.pop() }
    }

    /// Asks the host for something; `false` when too much waits already.
    pub(crate) fn ask_host(&self, request: HostRequest) -> bool {
        self.requests.push(request).is_ok()
    }

    /// Tells the driver about an object; waits for room in the event ring if need be.
    pub(crate) fn async_event(&self, kind: AsyncKind, object: u32) {
        let event = Eqe::Async { code: kind as u8, object };
        {
            let mut pending = self.async_pending.lock().unwrap_or_else(PoisonError::into_inner);
            if pending.len() == ASYNC_PENDING_MAX {
                pending.pop_front();
                self.count(Counter::AsyncDropped);
            }
            pending.push_back(event);
        }
        self.push_async();
    }

    /// Writes waiting asynchronous events as far as there is room.
    pub(crate) fn push_async(&self) {
        let aeq = self.aeq.load();
        let Some(aeq) = aeq.as_ref() else { return };
        let mut pending = self.async_pending.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(event) = pending.front() {
            if !aeq.push(*event) {
                return;
            }
            self.count(Counter::Events);
            pending.pop_front();
        }
    }

    /// The driver set the rings up; `false` when they cannot be used.
    fn enable(&self) -> bool {
        let setup = self.setup();
        let depth = u64::from(setup.aeq_depth);
        if setup.aeq_base != 0 && depth.is_power_of_two() && depth <= 1 << limits::EQ_DEPTH_LOG2 {
            let window = self.window(setup.aeq_base, depth * EQE_LEN as u64, DmaAccess::Both);
            let Some(ring) = window else { return false };
            let interrupt = Arc::clone(&self.ports.interrupt);
            self.aeq.store(Some(Arc::new(EventQueue::new(ring, depth, 0, interrupt))));
            self.push_async();
        }
        self.cmd_pi.store(0, Ordering::SeqCst);
        self.shared.with_blocking(|shared| shared.attach_commands(self, &setup)).value
    }

    /// All objects are gone when it returns.
    fn reset(&self, now: Nanos) {
        self.status.store(status::RESETTING, Ordering::SeqCst);
        let _ = self.shared.with_blocking(|shared| shared.clear(self));
        self.aeq.store(None);
        self.async_pending.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.cmd_pi.store(0, Ordering::SeqCst);
        self.change_setup(|setup| *setup = Setup::default());
        self.status.store(0, Ordering::SeqCst);
        self.run_shared(now);
    }

    /// The device gives up: only a reset helps.
    pub(crate) fn fatal(&self) {
        if self.status.fetch_or(status::FATAL, Ordering::SeqCst) & status::FATAL == 0 {
            self.status.fetch_and(!status::READY, Ordering::SeqCst);
            self.async_event(AsyncKind::DevFatal, 0);
        }
    }
}

fn write_header(cfg: &DeviceCfg, node: &Region) {
    let [high, low] = cfg.eid.to_words();
    let words = [layout::NODE_MAGIC, layout::VERSION, cfg.incarnation, high, low];
    // A region that is too short shows no magic, and peers refuse it.
    let _ = node.store_block_last(0, &words, 0);
}
