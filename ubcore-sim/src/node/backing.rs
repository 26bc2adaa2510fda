//! A node as the backing of a driver, in this process or ([`ClientFunction`]) in another one.
//!
//! Gives a driver's accesses the device's answers, or those of an unplugged device once the node is closed or
//! forked. Must not buffer anything.

use std::{
    io,
    os::fd::{BorrowedFd, OwnedFd},
    sync::Arc,
};

use udma_abi::{
    BackingError, DeviceBacking, DeviceInfo, DmaAccess, DmaSpace, GiveWay, JfcIndex, Nanos,
    PollOfOne, QueueDoorbell, RegisterRegion,
    backing::{DEVICE_ID, VENDOR_ID},
    regs,
};
use urma_mem::{Region, doorbells::RungSlot, idle::IdleSnapshot};

use super::{Node, doorbell::FoundDoorbell};
use crate::{
    cfg::Doorbells,
    device::{DeviceFunction, Leases, SoftwareDevice},
    host::{shared::SharedNode, slots::ServedSlots},
};

impl DeviceBacking for Node {
    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            name: self.name.clone(),
            driver_name: DRIVER.to_owned(),
            vendor_id: VENDOR_ID,
            device_id: DEVICE_ID,
        }
    }

    fn registers(&self) -> Arc<dyn RegisterRegion> {
        Arc::new(Registers {
            node: Arc::clone(&self.shared),
            function: Arc::clone(self.shared.device().first_function()),
            prepared_max: self.prepared_max,
            doorbells: self.doorbells,
        })
    }

    fn dma(&self) -> Arc<dyn DmaSpace> {
        let function = Arc::clone(self.shared.device().first_function());
        Arc::new(NodeDma { node: Arc::clone(&self.shared), function })
    }

    fn interrupt(&self, vector: u16) -> Result<OwnedFd, BackingError> {
        check_alive(&self.shared)?;
        self.vectors.descriptor(vector)?.ok_or(BackingError::Vector(vector))
    }

    fn reset(&self) -> Result<(), BackingError> {
        reset(&self.shared, self.shared.device().first_function())
    }

    fn now(&self) -> Nanos {
        self.shared.clock().now()
    }

    fn progress(&self) {
        self.shared.on_poll(&mut IdleSnapshot::never());
    }

    #[inline]
    fn progress_to_idle(&self, idle: &mut IdleSnapshot) {
        self.shared.on_poll(idle);
    }

    #[inline]
    fn take_entry(&self, poll: &mut PollOfOne) -> bool {
        self.shared.take_entry(poll)
    }

    fn give_way(&self, how: GiveWay) {
        self.shared.give_way(how);
    }

    fn wakeup(&self) -> Option<BorrowedFd<'_>> {
        Some(self.shared.wakeup())
    }

    fn answer_wakeup(&self) {
        self.shared.on_wakeup();
    }
}

/// Resets a function, and waits until it is done.
pub(super) fn reset(node: &SharedNode, function: &Arc<DeviceFunction>) -> Result<(), BackingError> {
    check_alive(node)?;
    node.write32(function, (regs::CONTROL, regs::control::RESET));
    let deadline = node.clock().now() + RESET_NS;
    while node.read(function, regs::CONTROL) & u64::from(regs::control::RESET) != 0 {
        if node.clock().now() > deadline {
            return Err(BackingError::Gone("it does not come back from a reset".to_owned()));
        }
        node.on_poll(&mut IdleSnapshot::never());
        std::thread::yield_now();
    }
    Ok(())
}

/// Registers of the device: BAR 0.
#[derive(Debug)]
struct Registers {
    node: Arc<SharedNode>,
    function: Arc<DeviceFunction>,
    /// Most bytes of a peer's segment that an import maps.
    prepared_max: u64,
    doorbells: Doorbells,
}

impl Registers {
    /// The handle that `find` returns, if the node is alive and doorbells use handles.
    fn found<T>(
        &self,
        find: impl FnOnce(&SoftwareDevice) -> Option<T>,
    ) -> Option<FoundDoorbell<T>> {
        let is_meant = self.doorbells != Doorbells::Registers && check_alive(&self.node).is_ok();
        let found = find(self.node.device()).filter(|_| is_meant)?;
        Some(FoundDoorbell { node: Arc::clone(&self.node), found })
    }
}

impl RegisterRegion for Registers {
    fn len(&self) -> u64 {
        regs::BAR_LEN
    }

    fn read(&self, offset: u64) -> u64 {
        self.node.read(&self.function, offset)
    }

    fn write32(&self, offset: u64, value: u32) {
        self.node.write32(&self.function, (offset, value));
    }

    fn write64(&self, offset: u64, value: u64) {
        self.node.write64(&self.function, (offset, value));
    }

    fn write_block(&self, offset: u64, words: &[u64; 8]) {
        self.node.write_block(&self.function, (offset, words));
    }

    fn prepare(&self, offset: u64, len: u64) {
        if check_alive(&self.node).is_ok() {
            self.node.device().prepare(offset, len, self.prepared_max);
        }
    }

    fn queue_doorbell(&self, id: u32) -> Option<Box<dyn QueueDoorbell>> {
        let leases = match self.doorbells {
            Doorbells::Found => Leases::Seldom,
            Doorbells::Leased => Leases::Soon,
            Doorbells::Exchange | Doorbells::Registers => Leases::Never,
        };
        Some(Box::new(self.found(|device| device.find_queue(id, leases))?))
    }

    fn jfc_index(&self, jfcn: u32) -> Option<Box<dyn JfcIndex>> {
        Some(Box::new(self.found(|device| device.find_jfc(jfcn))?))
    }

    /// Only the offsets that MAP_SEG returns can be mapped; the registers themselves are not memory.
    fn map(&self, offset: u64, len: u64) -> Option<Region> {
        check_alive(&self.node).ok()?;
        self.node.device().mapped(offset, len)
    }
}

/// DMA space of a function: maps host memory for it.
#[derive(Debug)]
pub(super) struct NodeDma {
    pub(super) node: Arc<SharedNode>,
    pub(super) function: Arc<DeviceFunction>,
}

impl DmaSpace for NodeDma {
    fn ranges(&self) -> Vec<(u64, u64)> {
        self.function.dma_ranges()
    }

    fn map(&self, iova: u64, region: &Region, access: DmaAccess) -> Result<(), BackingError> {
        check_alive(&self.node)?;
        self.function.dma_map(iova, region, access)
    }

    fn unmap(&self, iova: u64) -> Result<(), BackingError> {
        check_alive(&self.node)?;
        self.function.dma_unmap(iova)
    }
}

fn check_alive(shared: &SharedNode) -> Result<(), BackingError> {
    let why = if shared.is_forked() {
        "it belongs to the process that this one was forked from"
    } else if shared.is_stopped() {
        "it was closed"
    } else {
        return Ok(());
    };
    Err(BackingError::Gone(why.to_owned()))
}

/// The driver that this device wants.
pub const DRIVER: &str = "udma";
/// Time limit of a reset, in nanoseconds.
const RESET_NS: Nanos = 1_000_000_000;

/// A function of a node, for a driver in another process.
///
/// It does not outlive its driver: dropped, it ends with everything that it has.
#[derive(Debug)]
pub struct ClientFunction {
    node: Arc<SharedNode>,
    function: Arc<DeviceFunction>,
}

impl ClientFunction {
    pub(super) fn new(node: Arc<SharedNode>, function: Arc<DeviceFunction>) -> Self {
        Self { node, function }
    }

    /// Returns its number, quotas and their use.
    #[must_use]
    pub fn function(&self) -> &Arc<DeviceFunction> {
        &self.function
    }

    /// Returns its view of its driver's memory.
    #[must_use]
    pub fn dma(&self) -> Arc<dyn DmaSpace> {
        Arc::new(NodeDma { node: Arc::clone(&self.node), function: Arc::clone(&self.function) })
    }

    /// Creates its doorbell memory; JFCs created later read their arms there. Called once, before its driver starts
    /// it.
    ///
    /// # Errors
    /// No memory or no descriptors.
    pub fn serve_slots(&self) -> io::Result<ServedSlots> {
        let slots = ServedSlots::new()?;
        self.function.ring_by(slots.memory());
        Ok(slots)
    }

    /// Takes a doorbell from a slot of its doorbell memory.
    #[inline]
    pub fn ring_slot(&self, rung: RungSlot) {
        self.node.ring_slot(&self.function, rung);
    }

    /// Resets it: all its objects are gone when this returns, those of other functions stay.
    ///
    /// # Errors
    /// The node is closed.
    pub fn reset(&self) -> Result<(), BackingError> {
        reset(&self.node, &self.function)
    }
}

impl RegisterRegion for ClientFunction {
    fn len(&self) -> u64 {
        regs::BAR_LEN
    }

    fn read(&self, offset: u64) -> u64 {
        self.node.read(&self.function, offset)
    }

    fn write32(&self, offset: u64, value: u32) {
        self.node.write32(&self.function, (offset, value));
    }

    fn write64(&self, offset: u64, value: u64) {
        self.node.write64(&self.function, (offset, value));
    }

    fn write_block(&self, offset: u64, words: &[u64; 8]) {
        self.node.write_block(&self.function, (offset, words));
    }
}

impl Drop for ClientFunction {
    fn drop(&mut self) {
        self.node.remove_function(&self.function);
    }
}
