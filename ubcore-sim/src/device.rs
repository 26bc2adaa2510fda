//! The device: one `Sync` object that posters, the background thread and the simulator call.
//!
//! *Owns*: everything that exists between reset and reset. *Takes*: register accesses, time, peers,
//! datagrams. *Gives*: completions in host memory, datagrams, deadlines, requests to its host.
//! *Must not*: read a clock, open anything, wait for a lock while a poster is in it.

mod found;
pub mod look;
mod place;
mod registers;
mod run;
mod running;
mod shared;
mod visits;

use std::sync::{Arc, Mutex};

use udma_abi::{BackingError, DmaAccess, Nanos, counters::Counter, regs::status};
use urma_mem::Region;
use urma_mem::lull::WorkSign;
use urma_mem::sync::{AtomicU64, Ordering};

use crate::cfg::DeviceCfg;
use crate::dma;
use crate::engine::base::Base;
pub use crate::engine::known::{MovedEntry, WORD_LEN};
pub use crate::engine::place::Leases;
use crate::fault::Faults;
use crate::ports::Ports;
pub use found::{FoundJfc, FoundQueue, QueueEnd, QueueEntry, QueueVisit, WordMove};
use shared::SharedPart;
use visits::SharedVisits;

/// Registers that the driver writes before it starts the device.
#[derive(Clone, Copy, Debug, Default)]
struct Setup {
    cmd_base: u64,
    rsp_base: u64,
    cmd_depth: u32,
    aeq_base: u64,
    aeq_depth: u32,
    control: u32,
}

/// A software UDMA device.
#[derive(Debug)]
pub struct SoftwareDevice {
    pub(crate) base: Base,
    setup: Mutex<Setup>,
    shared: SharedVisits,
    /// When the shared part wants to be stepped; `u64::MAX`: on input only.
    deadline: AtomicU64,
}

#[cfg(test)]
impl SoftwareDevice {
    /// Whether a thread has a lease of the shared part.
    pub(crate) fn is_shared_leased(&self) -> bool {
        self.shared.is_leased()
    }
}

impl SoftwareDevice {
    /// A device after power-on.
    #[must_use]
    pub fn new(cfg: DeviceCfg, ports: Ports) -> Arc<Self> {
        let cfg = cfg.with_long_path();
        let shared = SharedPart::new(&cfg);
        let base = Base::new(cfg, ports);
        Arc::new(Self {
            setup: Mutex::default(),
            shared: SharedVisits::new(shared, Arc::clone(&base.tables.sign)),
            deadline: AtomicU64::new(u64::MAX),
            base,
        })
    }

    /// Configuration it was made with.
    #[must_use]
    #[inline]
    pub fn cfg(&self) -> &DeviceCfg {
        &self.base.tables.cfg
    }

    /// This node's region (header, segment table).
    #[must_use]
    pub fn node_region(&self) -> &Region {
        &self.base.tables.ports.node_region
    }

    /// Usable device addresses, as `(first, last)`.
    #[must_use]
    pub fn dma_ranges(&self) -> Vec<(u64, u64)> {
        vec![(dma::FIRST, dma::LAST)]
    }

    /// Makes `region` reachable at device address `iova`.
    ///
    /// # Errors
    /// The range is taken or outside [`SoftwareDevice::dma_ranges`].
    pub fn dma_map(
        &self,
        iova: u64,
        region: &Region,
        access: DmaAccess,
    ) -> Result<(), BackingError> {
        self.base.tables.dma.map(iova, region, access)
    }

    /// Takes the mapping that starts at `iova` away.
    ///
    /// # Errors
    /// There is none.
    pub fn dma_unmap(&self, iova: u64) -> Result<(), BackingError> {
        self.base.tables.dma.unmap(iova)
    }

    /// Adds one to a counter that the world keeps, such as background runs.
    #[cold]
    pub fn count(&self, counter: Counter) {
        self.base.tables.count(counter);
    }

    /// The value of a counter.
    #[must_use]
    pub fn counter(&self, counter: Counter) -> u64 {
        self.base.counter(counter)
    }

    /// By which polls see that a step may find something.
    #[inline]
    pub(crate) fn sign(&self) -> &Arc<WorkSign> {
        &self.base.tables.sign
    }

    pub(crate) fn faults(&self) -> Faults {
        self.base.tables.faults
    }

    /// The memory behind an address that MAP_SEG answered, for the backing's `RegisterRegion::map`: of
    /// a peer's segment a window of its own, which ends with its last user and not with the path.
    #[must_use]
    pub fn mapped(&self, addr: u64, len: u64) -> Option<Region> {
        self.base.tables.mapped(addr, len)
    }

    /// Maps the pages behind an address that MAP_SEG answered, at most `len_max` bytes of a peer's segment, for
    /// the backing's `RegisterRegion::prepare`: their first access takes no page fault.
    pub fn prepare(&self, addr: u64, len: u64, len_max: u64) {
        self.base.tables.prepare(addr, len, len_max);
    }

    /// Marks the pages of `len` bytes at `addr` of this process as bad, for this device and for as
    /// long as it lives: what reads registered memory there ends with a data poison status. Stores
    /// succeed and do not clear the mark. Registrations that touch the pages are not shared with
    /// peers on this host any more, so that this device answers every access; requests on them that
    /// are outstanding end as access refused, and mappings that peers made before stay.
    ///
    /// A memory fault for tests; nothing in a driver's reach causes it.
    pub fn poison(&self, now: Nanos, addr: usize, len: usize) {
        // Registrations do not come and go meanwhile.
        let mark = |_: &mut SharedPart| self.base.tables.segments.poison(addr, len);
        let _ = self.shared.with_blocking(mark);
        self.run_shared(now);
    }

    /// The driver set the rings up; `false` when they cannot be used.
    fn enable(&self) -> bool {
        let setup = self.setup();
        let tables = &self.base.tables;
        if !tables.open_async(setup.aeq_base, setup.aeq_depth) {
            return false;
        }
        tables.command_pi.store(0, Ordering::SeqCst);
        let place = (setup.cmd_base, setup.rsp_base, setup.cmd_depth);
        self.shared.with_blocking(|shared| shared.commands.attach(tables, place)).value
    }

    /// All objects are gone when it returns.
    fn reset(&self, now: Nanos) {
        let tables = &self.base.tables;
        tables.status.store(status::RESETTING, Ordering::SeqCst);
        let _ = self.shared.with_blocking(|shared| shared.clear(&self.base));
        tables.reset_async();
        tables.command_pi.store(0, Ordering::SeqCst);
        self.change_setup(|setup| *setup = Setup::default());
        tables.status.store(0, Ordering::SeqCst);
        self.run_shared(now);
    }
}
