//! The device: one `Sync` object that posters, the background thread and the simulator call.
//!
//! *Owns*: everything that exists from reset to reset. *Takes*: register accesses, time, peers, datagrams. *Gives*:
//! completions in host memory, datagrams, deadlines, requests to its host. *Must not*: read a clock, open anything,
//! wait for a lock while a poster is in it.

pub mod look;
mod queue_handle;
mod registers;
mod run;
mod running;
mod shared;

use std::sync::Arc;

use udma_abi::{Nanos, counters::Counter, regs::status};
use urma_mem::Region;
use urma_mem::idle::WorkSign;
use urma_mem::sync::{AtomicU64, Ordering};

use crate::cfg::DeviceCfg;
pub use crate::context::function::{
    DeviceFunction, FunctionCfg, FunctionId, FunctionQuota, QuotaKind, QuotaUse,
};
use crate::engine::core::DeviceCore;
pub use crate::engine::fast::Leases;
pub use crate::engine::fast::known::{MovedEntry, WORD_LEN};
use crate::fault::Faults;
use crate::nic::ModelMode;
use crate::ports::{Interrupt, Ports};
pub use queue_handle::{
    Executed, FoundJfc, QueueEnd, QueueEntry, QueueHandle, QueueVisit, WordMove,
};
use shared::{SharedPart, SharedVisits};

/// A software UDMA device.
#[derive(Debug)]
pub struct SoftwareDevice {
    pub(crate) core: DeviceCore,
    shared: SharedVisits,
    /// Deadline of the shared part's next step; `u64::MAX`: only on input.
    deadline: AtomicU64,
}

#[cfg(test)]
impl SoftwareDevice {
    /// Whether a thread has the shared part leased.
    pub(crate) fn is_shared_leased(&self) -> bool {
        self.shared.is_leased()
    }
}

impl SoftwareDevice {
    /// Creates a device as after power-on.
    #[must_use]
    pub fn new(cfg: DeviceCfg, ports: Ports) -> Arc<Self> {
        let has_contexts =
            ports.nic.as_ref().is_some_and(|nic| nic.scope().contexts != ModelMode::Off);
        let cfg = if has_contexts { cfg.with_long_path() } else { cfg };
        let core = DeviceCore::new(cfg, ports);
        let shared = SharedPart::new(&core.tables.cfg, Arc::clone(&core.tables.first));
        Arc::new(Self {
            shared: SharedVisits::new(shared, Arc::clone(&core.tables.sign)),
            deadline: AtomicU64::new(u64::MAX),
            core,
        })
    }

    /// The configuration that it was created with.
    #[must_use]
    #[inline]
    pub fn cfg(&self) -> &DeviceCfg {
        &self.core.tables.cfg
    }

    /// This node's region (header, segment table).
    #[must_use]
    pub fn node_region(&self) -> &Region {
        &self.core.tables.ports.node_region
    }

    /// The function of the device's owner.
    #[must_use]
    pub fn first_function(&self) -> &Arc<DeviceFunction> {
        &self.core.tables.first
    }

    /// Adds a function: a driver of its own with its own registers, memory and objects. `None`: there is no room for
    /// another.
    pub fn add_function(
        &self,
        cfg: FunctionCfg,
        interrupt: Arc<dyn Interrupt>,
    ) -> Option<Arc<DeviceFunction>> {
        let function = self.core.tables.add_function(cfg, interrupt)?;
        let added = Arc::clone(&function);
        let _ = self.shared.with_blocking(|shared| shared.commands.add_function(added));
        Some(function)
    }

    /// Removes a function with all its objects. Requests of others that it would have answered end with an error.
    pub fn remove_function(&self, now: Nanos, function: &Arc<DeviceFunction>) {
        if function.id() == FunctionId::FIRST {
            return;
        }
        let _ = self.shared.with_blocking(|shared| {
            shared.clear(&self.core, now, function);
            shared.commands.remove_function(function.id());
        });
        self.core.tables.remove_function(function.id());
        self.run_shared(now);
    }

    /// All functions, that of the owner first.
    #[must_use]
    pub fn functions(&self) -> Vec<Arc<DeviceFunction>> {
        self.core.tables.functions()
    }

    /// Adds one to a counter that code around the device keeps, such as background runs.
    #[cold]
    pub fn count(&self, counter: Counter) {
        self.core.tables.count(counter);
    }

    /// The value of a counter.
    #[must_use]
    pub fn counter(&self, counter: Counter) -> u64 {
        self.core.counter(counter)
    }

    /// The sign by which polls see that a step may find something.
    #[inline]
    pub(crate) fn sign(&self) -> &Arc<WorkSign> {
        &self.core.tables.sign
    }

    pub(crate) fn faults(&self) -> Faults {
        self.core.tables.faults
    }

    /// The memory behind an address that MAP_SEG returned, for the backing's `RegisterRegion::map`. A peer's segment
    /// gets a mapping of its own, which ends with its last user and not with the path.
    #[must_use]
    pub fn mapped(&self, addr: u64, len: u64) -> Option<Region> {
        self.core.tables.mapped(addr, len)
    }

    /// Maps the pages behind an address that MAP_SEG returned, at most `len_max` bytes of a peer's segment, for the
    /// backing's `RegisterRegion::prepare`: then the first access takes no page fault.
    pub fn prepare(&self, addr: u64, len: u64, len_max: u64) {
        self.core.tables.prepare(addr, len, len_max);
    }

    /// Marks the pages of `len` bytes at `addr` of this process as bad, for as long as this device lives: a read of
    /// registered memory there ends with a data poison status. Stores succeed and do not clear the mark.
    /// Registrations that touch the pages are no longer shared with peers on this host, so that this device answers
    /// every access; outstanding requests on them end as access refused, and mappings that peers made before remain.
    ///
    /// A memory fault for tests; a driver cannot cause it.
    pub fn poison(&self, now: Nanos, addr: usize, len: usize) {
        // No registration is made or removed meanwhile.
        let mark = |_: &mut SharedPart| self.core.tables.segments.poison(addr, len);
        let _ = self.shared.with_blocking(mark);
        self.run_shared(now);
    }

    /// Enables a function whose driver set up its rings; `false` if they cannot be used.
    fn enable(&self, function: &DeviceFunction) -> bool {
        let tables = &self.core.tables;
        if !tables.open_async(function) {
            return false;
        }
        function.command_pi.store(0, Ordering::SeqCst);
        self.shared.with_blocking(|shared| shared.commands.attach(tables, function)).value
    }

    /// Resets a function: all its objects are gone when this returns.
    fn reset(&self, now: Nanos, function: &Arc<DeviceFunction>) {
        function.status.store(status::RESETTING, Ordering::SeqCst);
        let _ = self.shared.with_blocking(|shared| shared.clear(&self.core, now, function));
        self.run_shared(now);
    }
}
