//! A node of the fabric as a driver reaches it.
//!
//! - owns: only references. takes: a driver's accesses. gives: the device's answers at virtual time, or those of an
//!   unplugged device once the node is killed.
//! - must not: behave differently from the backing of a real node.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use udma_abi::{
    BackingError, DeviceBacking, DeviceInfo, DmaAccess, DmaSpace, GiveWay, Nanos, RegisterRegion,
    regs,
};
use urma_mem::Region;

use super::fabric::Fabric;
use crate::device::SoftwareDevice;
use crate::host::interrupt::EventVectors;

/// Driver name, the same as for real nodes.
const DRIVER: &str = "udma";
/// Identification, as real nodes answer it.
const VENDOR_ID: u16 = 0xCC08;
/// Identification, as real nodes answer it.
const DEVICE_ID: u16 = 0xA001;
/// Steps after which a reset counts as failed.
const RESET_STEPS: u32 = 100_000;

/// Backing of one simulated node.
#[derive(Debug)]
pub struct SimBacking {
    access: Arc<SimAccess>,
    vectors: Arc<EventVectors>,
}

/// State that registers and DMA space share.
#[derive(Debug)]
struct SimAccess {
    fabric: Arc<Fabric>,
    device: Arc<SoftwareDevice>,
    number: usize,
}

impl SimBacking {
    /// Returns the fabric of the node.
    #[must_use]
    pub fn fabric(&self) -> &Arc<Fabric> {
        &self.access.fabric
    }
}

impl Fabric {
    /// The backing of node `number`.
    ///
    /// # Panics
    /// When there is no such node.
    #[must_use]
    pub fn backing(self: &Arc<Self>, number: usize) -> Arc<SimBacking> {
        let (device, vectors) = self.parts(number);
        let access = SimAccess { fabric: Arc::clone(self), device, number };
        Arc::new(SimBacking { access: Arc::new(access), vectors })
    }
}

impl DeviceBacking for SimBacking {
    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            name: format!("sim{}", self.access.number),
            driver_name: DRIVER.to_owned(),
            vendor_id: VENDOR_ID,
            device_id: DEVICE_ID,
        }
    }

    fn registers(&self) -> Arc<dyn RegisterRegion> {
        Arc::<SimAccess>::clone(&self.access)
    }

    fn dma(&self) -> Arc<dyn DmaSpace> {
        Arc::<SimAccess>::clone(&self.access)
    }

    fn interrupt(&self, vector: u16) -> Result<OwnedFd, BackingError> {
        self.access.check()?;
        self.vectors.descriptor(vector)?.ok_or(BackingError::Vector(vector))
    }

    fn reset(&self) -> Result<(), BackingError> {
        self.access.check()?;
        self.access.write32(regs::CONTROL, regs::control::RESET);
        for _ in 0..RESET_STEPS {
            if self.access.read(regs::CONTROL) & u64::from(regs::control::RESET) == 0 {
                return Ok(());
            }
            self.progress();
        }
        Err(BackingError::Gone("it does not come back from a reset".to_owned()))
    }

    fn now(&self) -> Nanos {
        self.access.fabric.now()
    }

    fn progress(&self) {
        self.access.fabric.step_nodes();
    }

    /// The whole fabric runs in this one thread.
    fn give_way(&self, _: GiveWay) {}
}

impl SimAccess {
    fn is_alive(&self) -> bool {
        self.fabric.is_alive(self.number, &self.device)
    }

    fn check(&self) -> Result<(), BackingError> {
        if self.is_alive() { Ok(()) } else { Err(BackingError::Gone("it was killed".to_owned())) }
    }

    /// Wakes the device and returns the time of the access; `None` if the node is dead.
    fn touch(&self) -> Option<Nanos> {
        if !self.is_alive() {
            return None;
        }
        self.fabric.on_access(self.number);
        Some(self.fabric.now())
    }
}

impl RegisterRegion for SimAccess {
    fn len(&self) -> u64 {
        regs::BAR_LEN
    }

    fn read(&self, offset: u64) -> u64 {
        self.touch().map_or(u64::MAX, |_| self.device.read(self.device.first_function(), offset))
    }

    fn write32(&self, offset: u64, value: u32) {
        if let Some(now) = self.touch() {
            self.device.write32(|| now, self.device.first_function(), (offset, value));
        }
    }

    fn write64(&self, offset: u64, value: u64) {
        if let Some(now) = self.touch() {
            self.device.write64(|| now, self.device.first_function(), (offset, value));
        }
    }

    fn write_block(&self, offset: u64, words: &[u64; 8]) {
        if let Some(now) = self.touch() {
            self.device.write_block(|| now, self.device.first_function(), (offset, words));
        }
    }
}

impl DmaSpace for SimAccess {
    fn ranges(&self) -> Vec<(u64, u64)> {
        self.device.first_function().dma_ranges()
    }

    fn map(&self, iova: u64, region: &Region, access: DmaAccess) -> Result<(), BackingError> {
        self.check()?;
        self.device.first_function().dma_map(iova, region, access)
    }

    fn unmap(&self, iova: u64) -> Result<(), BackingError> {
        self.check()?;
        self.device.first_function().dma_unmap(iova)
    }
}
