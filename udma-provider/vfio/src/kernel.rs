//! PCI functions through the kernel's VFIO: by container and group with an IOMMU of type 1, version 2, or by
//! iommufd.
//!
//! - owns: the choice of the interface, and an open function. takes: an address. gives: a [`PciDevice`]. must not: bind
//!   a function to a driver by itself.
//!
//! One container, or one iommufd, for each function. The functions of one IOMMU group can be open in one process only,
//! one at a time. iommufd is there with the feature `iommufd`; it was run on a twin of the kernel's interface only.

mod calls;
mod dma;
mod group;
mod interrupts;
mod ioctl;
#[cfg(any(test, feature = "iommufd"))]
mod iommu_calls;
#[cfg(any(test, feature = "iommufd"))]
mod iommufd;
mod layout;
mod open;
mod query;
mod sysfs;
#[cfg(test)]
mod twin;
#[cfg(test)]
mod twin_iommu;
mod window;

use std::{
    collections::BTreeMap,
    io,
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, Mutex, PoisonError},
};

use udma_abi::DmaSpace;
use vfio_bindings::bindings::vfio as c;

use self::{
    calls::{NumberCommand, StructCommand, VfioCalls},
    dma::KernelDma,
    interrupts::KernelInterrupts,
    ioctl::SystemCalls,
    layout::{DeviceFacts, IrqFacts},
    open::OpenFunction,
    window::KernelWindow,
};
use crate::device::{InterruptKind, PciDevice, PciError, PciInterrupts, PciWindow, WindowId};

pub use open::{KernelInterface, KernelOpenError};
pub use sysfs::{PciAddress, PciFunction, PciSysfs, SysfsError, VFIO_DRIVER};

/// A function that this process has open.
#[derive(Debug)]
pub struct KernelDevice {
    calls: Arc<dyn VfioCalls>,
    name: String,
    interface: KernelInterface,
    // Before `dma`: the function is closed first, so it does no DMA when its memory goes.
    device: Arc<OwnedFd>,
    dma: Arc<KernelDma>,
    can_reset: bool,
    windows: Mutex<BTreeMap<WindowId, Arc<KernelWindow>>>,
    interrupts: Mutex<BTreeMap<InterruptKind, Arc<KernelInterrupts>>>,
}

impl KernelDevice {
    /// Opens a function that is bound to `vfio-pci`. Bus mastering stays off: [`crate::config::set_bus_master`].
    ///
    /// With the feature `iommufd` it is opened by its character device and `/dev/iommu` if both are there, else by its
    /// group. A file that is there and may not be opened is an error: rights do not choose the interface.
    ///
    /// # Errors
    /// What stands in the way, and what to run.
    pub fn open(address: PciAddress) -> Result<Self, KernelOpenError> {
        Self::open_with(Arc::new(SystemCalls), &PciSysfs::default(), address)
    }

    fn open_with(
        calls: Arc<dyn VfioCalls>,
        sysfs: &PciSysfs,
        address: PciAddress,
    ) -> Result<Self, KernelOpenError> {
        let group = group_of_bound(sysfs, address)?;
        #[cfg(any(test, feature = "iommufd"))]
        match iommufd::open_files(&*calls, sysfs, address) {
            Err(KernelOpenError::Kernel(_)) => {}
            files => {
                let opened = iommufd::bind(&calls, sysfs, address, group, files?)?;
                return Self::of(calls, address, opened);
            }
        }
        let opened = group::open(&calls, sysfs, address, group)?;
        Self::of(calls, address, opened)
    }

    /// Opens a function that is bound to `vfio-pci` by its character device and `/dev/iommu`, as [`Self::open`] does if
    /// both are there.
    ///
    /// # Errors
    /// What stands in the way, and what to run; [`KernelOpenError::Kernel`] if this kernel does not have both files.
    #[cfg(any(test, feature = "iommufd"))]
    pub fn open_iommufd(address: PciAddress) -> Result<Self, KernelOpenError> {
        Self::open_iommufd_with(Arc::new(SystemCalls), &PciSysfs::default(), address)
    }

    #[cfg(any(test, feature = "iommufd"))]
    fn open_iommufd_with(
        calls: Arc<dyn VfioCalls>,
        sysfs: &PciSysfs,
        address: PciAddress,
    ) -> Result<Self, KernelOpenError> {
        let group = group_of_bound(sysfs, address)?;
        let files = iommufd::open_files(&*calls, sysfs, address)?;
        let opened = iommufd::bind(&calls, sysfs, address, group, files)?;
        Self::of(calls, address, opened)
    }

    /// A function with its facts.
    fn of(
        calls: Arc<dyn VfioCalls>,
        address: PciAddress,
        opened: OpenFunction,
    ) -> Result<Self, KernelOpenError> {
        let OpenFunction { interface, dma, device } = opened;
        let mut facts = DeviceFacts::default();
        query::ask(&*calls, device.as_fd(), StructCommand::DeviceFacts, &mut facts)
            .map_err(KernelOpenError::system(address, "asking for facts"))?;
        if facts.flags & c::VFIO_DEVICE_FLAGS_PCI == 0 {
            return Err(KernelOpenError::Kernel("this function, but not as a PCI function"));
        }
        Ok(Self {
            can_reset: facts.flags & c::VFIO_DEVICE_FLAGS_RESET != 0,
            dma: Arc::new(dma),
            name: address.to_string(),
            interface,
            device: Arc::new(device),
            windows: Mutex::default(),
            interrupts: Mutex::default(),
            calls,
        })
    }

    /// Returns the interface by which the function was opened.
    #[must_use]
    pub const fn interface(&self) -> KernelInterface {
        self.interface
    }

    fn failed(&self, what: &'static str) -> impl FnOnce(io::Error) -> PciError {
        let device = self.name.clone();
        move |source| PciError::System { device, what, source }
    }

    fn new_window(&self, id: WindowId) -> Result<KernelWindow, PciError> {
        let index = match id {
            WindowId::Bar(index @ 0..=5) => u32::from(index),
            WindowId::Bar(_) => return Err(self.no_window(id)),
            WindowId::Config => c::VFIO_PCI_CONFIG_REGION_INDEX,
        };
        let shape = query::region(&*self.calls, self.device.as_fd(), index)
            .map_err(self.failed("asking for a region"))?;
        if shape.len == 0 {
            return Err(self.no_window(id));
        }
        Ok(KernelWindow::new(Arc::clone(&self.device), &self.name, &shape))
    }

    fn no_window(&self, id: WindowId) -> PciError {
        PciError::NoWindow { device: self.name.clone(), id }
    }

    fn new_interrupts(&self, kind: InterruptKind) -> Result<KernelInterrupts, PciError> {
        let mut facts = IrqFacts { index: interrupts::index(kind), ..IrqFacts::default() };
        let asked =
            query::ask(&*self.calls, self.device.as_fd(), StructCommand::IrqFacts, &mut facts);
        // The kernel refuses a question for notices that a function cannot give.
        let is_none = match &asked {
            Ok(_) => facts.count == 0,
            Err(error) => error.kind() == io::ErrorKind::InvalidInput,
        };
        if is_none {
            return Err(PciError::NoInterrupt { device: self.name.clone(), kind });
        }
        asked.map_err(self.failed("asking for interrupts"))?;
        Ok(KernelInterrupts {
            calls: Arc::clone(&self.calls),
            device: Arc::clone(&self.device),
            name: self.name.clone(),
            kind,
            count: facts.count,
            enabled: Mutex::default(),
        })
    }
}

/// The IOMMU group of a function that is in the hands of VFIO.
fn group_of_bound(sysfs: &PciSysfs, address: PciAddress) -> Result<u32, KernelOpenError> {
    let function = sysfs.function(address)?;
    let group = function.group.ok_or(KernelOpenError::NoIommu(address))?;
    if function.driver.as_deref() == Some(VFIO_DRIVER) {
        return Ok(group);
    }
    Err(KernelOpenError::NotBound { address, driver: function.driver })
}

impl Drop for KernelDevice {
    fn drop(&mut self) {
        // A window may keep the function open; it reaches no memory any more.
        self.dma.detach(self.device.as_fd());
    }
}

impl PciDevice for KernelDevice {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn window(&self, id: WindowId) -> Result<Arc<dyn PciWindow>, PciError> {
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(window) = windows.get(&id) {
            return Ok(Arc::clone(window) as Arc<dyn PciWindow>);
        }
        let window = Arc::new(self.new_window(id)?);
        windows.insert(id, Arc::clone(&window));
        Ok(window)
    }

    fn interrupts(&self, kind: InterruptKind) -> Result<Arc<dyn PciInterrupts>, PciError> {
        let mut all = self.interrupts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = all.get(&kind) {
            return Ok(Arc::clone(found) as Arc<dyn PciInterrupts>);
        }
        let made = Arc::new(self.new_interrupts(kind)?);
        all.insert(kind, Arc::clone(&made));
        Ok(made)
    }

    fn dma(&self) -> Arc<dyn DmaSpace> {
        Arc::clone(&self.dma) as Arc<dyn DmaSpace>
    }

    fn reset(&self) -> Result<(), PciError> {
        if !self.can_reset {
            let what = "a reset of this function alone";
            return Err(PciError::Unsupported { device: self.name.clone(), what });
        }
        self.calls
            .number(self.device.as_fd(), NumberCommand::Reset, 0)
            .map(|_| ())
            .map_err(self.failed("resetting"))
    }
}

#[cfg(test)]
mod tests;
