//! A UDMA device that is a PCI function, whatever carries the accesses.
//!
//! - owns: the way from a [`PciDevice`] to a [`DeviceBacking`]: ids, bus mastering, an eventfd for each vector.
//!   takes: an open function. gives: what the driver `udma-provider` runs on. must not: know a register.

use std::{
    collections::BTreeMap,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll},
    time::{ClockId, clock_gettime},
};
use udma_abi::{
    BackingError, DeviceBacking, DeviceInfo, DmaSpace, Nanos, RegisterRegion,
    backing::{DEVICE_ID, VENDOR_ID},
    slots::{SLOT_BAR, SLOT_LEN},
};
use urma_mem::{
    Region,
    doorbells::{DoorbellSlots, SlotGeometry},
    sync::{AtomicU64, Ordering},
};

use crate::{
    config,
    device::{AccessWidth, InterruptKind, PciDevice, PciError, PciInterrupts, PciWindow, WindowId},
};

/// Name of the driver for such a device.
const DRIVER: &str = "udma";
/// Vectors that are enabled at most: each takes a descriptor of this process.
const VECTORS_MAX: u32 = 64;

/// A UDMA device behind PCI.
#[derive(Debug)]
pub struct PciNic {
    device: Arc<dyn PciDevice>,
    registers: Arc<NicRegisters>,
    interrupts: Arc<dyn PciInterrupts>,
    /// Enabled ones. Where vectors can be enabled together only, they are all here from the start.
    vectors: Mutex<BTreeMap<u16, OwnedFd>>,
    slots: Option<Arc<DoorbellSlots>>,
    removal: Option<OwnedFd>,
}

impl PciNic {
    /// Takes over a function: checks its ids, enables its interrupts, resets it, and lets it do DMA.
    ///
    /// # Errors
    /// [`BackingError::Gone`] if it is no UDMA device or does not answer; else what its accesses failed with.
    pub fn new(device: Arc<dyn PciDevice>) -> Result<Self, BackingError> {
        let ids = config::ids(&*device).map_err(refused)?;
        if (ids.vendor, ids.device) != (VENDOR_ID, DEVICE_ID) {
            let config::PciIds { vendor, device: product, .. } = ids;
            let name = device.name();
            return Err(BackingError::Gone(format!(
                "{name} has the ids {vendor:04x}:{product:04x}; a UDMA device has {VENDOR_ID:04x}:{DEVICE_ID:04x}"
            )));
        }
        let window = device.window(WindowId::Bar(0)).map_err(refused)?;
        let interrupts = device.interrupts(InterruptKind::MsiX).map_err(refused)?;
        let vectors = Mutex::new(enabled(&*interrupts)?);
        let removal = removal_notice(&*device)?;
        let registers = Arc::new(NicRegisters { window, failed: AtomicU64::new(0) });
        let slots = doorbell_slots(&*device)?;
        let nic = Self { device, registers, interrupts, vectors, slots, removal };
        nic.reset()?;
        Ok(nic)
    }

    /// The same without its doorbell memory, if it has some: the driver rings by registers.
    #[must_use]
    pub fn without_doorbell_memory(mut self) -> Self {
        self.slots = None;
        self
    }

    /// Number of register accesses that failed: reads that were answered with all ones, writes that were dropped.
    #[must_use]
    pub fn failed_accesses(&self) -> u64 {
        self.registers.failed.load(Ordering::Relaxed)
    }

    /// Readable when the system wants the device back: the process is to close it. `None`: the system does not say.
    #[must_use]
    pub fn removal(&self) -> Option<BorrowedFd<'_>> {
        self.removal.as_ref().map(AsFd::as_fd)
    }

    /// Whether the system wants the device back, within `bound`.
    #[must_use]
    pub fn is_wanted_back(&self, bound: Duration) -> bool {
        let Some(removal) = &self.removal else { return false };
        let timeout = Timespec::try_from(bound).ok();
        poll(&mut [PollFd::new(removal, PollFlags::IN)], timeout.as_ref())
            .is_ok_and(|count| count > 0)
    }
}

fn vector_eventfd() -> Result<OwnedFd, BackingError> {
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK | EventfdFlags::SEMAPHORE;
    eventfd(0, flags).map_err(|error| BackingError::Os(error.into()))
}

/// The first vector, enabled; all of them where vectors can be enabled together only.
fn enabled(interrupts: &dyn PciInterrupts) -> Result<BTreeMap<u16, OwnedFd>, BackingError> {
    let first = vector_eventfd()?;
    match interrupts.enable_one(0, first.as_fd()) {
        Err(PciError::Unsupported { .. }) => {}
        result => return result.map(|()| BTreeMap::from([(0, first)])).map_err(refused),
    }
    let count = u16::try_from(interrupts.count().min(VECTORS_MAX)).unwrap_or(0);
    let fds = (0..count)
        .map(|vector| Ok((vector, vector_eventfd()?)))
        .collect::<Result<BTreeMap<_, _>, BackingError>>()?;
    let all: Vec<_> = fds.values().map(|fd| Some(fd.as_fd())).collect();
    interrupts.enable(&all).map_err(refused)?;
    Ok(fds)
}

/// Slots in the window of doorbell memory, if the device has it.
fn doorbell_slots(device: &dyn PciDevice) -> Result<Option<Arc<DoorbellSlots>>, BackingError> {
    let Ok(window) = device.window(WindowId::Bar(SLOT_BAR)) else { return Ok(None) };
    let Some(memory) = window.memory(0, SLOT_LEN as u64) else { return Ok(None) };
    let slots = DoorbellSlots::new(memory, SlotGeometry::DEVICE);
    let slots = slots.map_err(|error| BackingError::Gone(format!("doorbell memory: {error}")))?;
    Ok(Some(Arc::new(slots)))
}

/// An eventfd for the notice of removal, where there is one.
fn removal_notice(device: &dyn PciDevice) -> Result<Option<OwnedFd>, BackingError> {
    let Ok(request) = device.interrupts(InterruptKind::Request) else { return Ok(None) };
    let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
    let fd = fd.map_err(|error| BackingError::Os(error.into()))?;
    request.enable(&[Some(fd.as_fd())]).map_err(refused)?;
    Ok(Some(fd))
}

fn refused(error: PciError) -> BackingError {
    match error {
        PciError::System { source, device, what } => BackingError::Os(std::io::Error::new(
            source.kind(),
            format!("{what} of {device}: {source}"),
        )),
        other => BackingError::Gone(other.to_string()),
    }
}

impl DeviceBacking for PciNic {
    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            name: self.device.name(),
            driver_name: DRIVER.to_owned(),
            vendor_id: VENDOR_ID,
            device_id: DEVICE_ID,
        }
    }

    fn registers(&self) -> Arc<dyn RegisterRegion> {
        Arc::clone(&self.registers) as Arc<dyn RegisterRegion>
    }

    fn dma(&self) -> Arc<dyn DmaSpace> {
        self.device.dma()
    }

    fn interrupt(&self, vector: u16) -> Result<OwnedFd, BackingError> {
        let mut vectors = self.vectors.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = vectors.get(&vector) {
            return Ok(found.try_clone()?);
        }
        let fd = vector_eventfd()?;
        match self.interrupts.enable_one(vector.into(), fd.as_fd()) {
            Ok(()) => {}
            Err(PciError::Unsupported { .. } | PciError::Vectors { .. }) => {
                return Err(BackingError::Vector(vector));
            }
            Err(error) => return Err(refused(error)),
        }
        let copy = fd.try_clone()?;
        vectors.insert(vector, fd);
        Ok(copy)
    }

    fn reset(&self) -> Result<(), BackingError> {
        self.device.reset().map_err(refused)?;
        config::set_bus_master(&*self.device, true).map_err(refused)
    }

    fn now(&self) -> Nanos {
        let time = clock_gettime(ClockId::Monotonic);
        let part = |value: i64| u64::try_from(value).unwrap_or(0);
        part(time.tv_sec) * 1_000_000_000 + part(time.tv_nsec)
    }

    fn merges_interrupts(&self) -> bool {
        self.device.merges_interrupts()
    }

    /// Does nothing: the device has a thread, or is hardware.
    fn progress(&self) {}

    fn status(&self) -> Option<u64> {
        let slots = self.slots.as_ref()?;
        Some(if self.device.is_gone() { u64::MAX } else { slots.status() })
    }

    fn doorbell_slots(&self) -> Option<Arc<DoorbellSlots>> {
        self.slots.clone()
    }
}

impl Drop for PciNic {
    fn drop(&mut self) {
        // No DMA after this value; where the function is gone, there is none anyway.
        let _ = config::set_bus_master(&*self.device, false);
        let _ = self.interrupts.disable();
    }
}

/// Registers of the device: BAR 0.
#[derive(Debug)]
struct NicRegisters {
    window: Arc<dyn PciWindow>,
    failed: AtomicU64,
}

impl NicRegisters {
    fn count<T>(&self, result: Result<T, PciError>) -> Option<T> {
        if result.is_err() {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
        result.ok()
    }
}

impl RegisterRegion for NicRegisters {
    fn len(&self) -> u64 {
        self.window.len()
    }

    /// An offset that is no multiple of 8 is that of a 32-bit register.
    fn read(&self, offset: u64) -> u64 {
        let width = if offset.is_multiple_of(8) { AccessWidth::W64 } else { AccessWidth::W32 };
        self.count(self.window.read(offset, width)).unwrap_or(u64::MAX)
    }

    fn write32(&self, offset: u64, value: u32) {
        let _ = self.count(self.window.write(offset, AccessWidth::W32, u64::from(value)));
    }

    fn write64(&self, offset: u64, value: u64) {
        let _ = self.count(self.window.write(offset, AccessWidth::W64, value));
    }

    fn write_block(&self, offset: u64, words: &[u64; 8]) {
        let _ = self.count(self.window.write_block(offset, words));
    }

    fn map(&self, offset: u64, len: u64) -> Option<Region> {
        self.window.memory(offset, len)
    }
}
