//! PCI functions through the kernel's VFIO: container and group, IOMMU of type 1, version 2.
//!
//! - owns: the way from an address to an open function, and what stands in it. takes: an address. gives: a
//!   [`PciDevice`]. must not: bind a function to a driver by itself.
//!
//! One container for each function. The functions of one IOMMU group can be open in one process only, one at a
//! time. `iommufd` is not used.

mod calls;
mod dma;
mod interrupts;
mod layout;
mod query;
mod sysfs;
#[cfg(test)]
mod twin;
mod window;

use std::{
    collections::BTreeMap,
    ffi::CString,
    io,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use udma_abi::DmaSpace;
use vfio_bindings::bindings::vfio as c;

pub use sysfs::{PciAddress, PciFunction, PciSysfs, SysfsError, VFIO_DRIVER};

use self::{
    calls::{NumberCommand, StructCommand, SystemCalls, VfioCalls},
    dma::KernelDma,
    interrupts::KernelInterrupts,
    layout::{DeviceFacts, GroupStatus, IrqFacts},
    window::KernelWindow,
};
use crate::device::{InterruptKind, PciDevice, PciError, PciInterrupts, PciWindow, WindowId};

/// Folder with the files of VFIO.
const FOLDER: &str = "/dev/vfio";

/// A function that this process has open.
#[derive(Debug)]
pub struct KernelDevice {
    calls: Arc<dyn VfioCalls>,
    name: String,
    // Before `dma`: the function is closed first, so it does no DMA when its memory goes.
    device: Arc<OwnedFd>,
    // Keeps the group for this process.
    _group: OwnedFd,
    dma: Arc<KernelDma>,
    can_reset: bool,
    windows: Mutex<BTreeMap<WindowId, Arc<KernelWindow>>>,
    interrupts: Mutex<BTreeMap<InterruptKind, Arc<KernelInterrupts>>>,
}

/// Why a function cannot be opened. The words say what to run.
#[derive(Debug, thiserror::Error)]
pub enum KernelOpenError {
    /// The function is not in the hands of VFIO.
    #[error(
        "{address} is with {}: run `urma_admin bind {address}` as root",
        driver.as_deref().unwrap_or("no driver")
    )]
    NotBound {
        /// The function that was asked for.
        address: PciAddress,
        /// Driver that has it.
        driver: Option<String>,
    },
    /// No IOMMU is in use.
    #[error(
        "{0} is in no IOMMU group: turn the IOMMU on in the firmware, and boot with intel_iommu=on (Intel; AMD's is \
         on by itself)"
    )]
    NoIommu(PciAddress),
    /// Other functions of the group have drivers of the kernel.
    #[error("IOMMU group {group} is shared with {others}: run `urma_admin bind` for each as root")]
    Shared {
        /// Number of the IOMMU group.
        group: u32,
        /// Functions that stand in the way, with their drivers.
        others: String,
    },
    /// This process may not open the group.
    #[error("{path}: permission denied: run `chown $USER {path}` as root, or write a udev rule")]
    Denied {
        /// The file of the group.
        path: PathBuf,
    },
    /// Another process, or another function of the group, has it open.
    #[error("{path} is in use: one process at a time can have the functions of a group")]
    Busy {
        /// The file of the group.
        path: PathBuf,
    },
    /// The kernel lacks something.
    #[error("this kernel's VFIO has {0}")]
    Kernel(&'static str),
    /// What sysfs did not show.
    #[error(transparent)]
    Sysfs(#[from] SysfsError),
    /// Another refusal of the system.
    #[error("{what} of {name} failed: {source}")]
    System {
        /// The function or file.
        name: String,
        /// The operation that was tried.
        what: &'static str,
        /// The error of the operating system.
        source: io::Error,
    },
}

impl KernelDevice {
    /// Opens a function that is bound to `vfio-pci`. Bus mastering stays off: [`crate::config::set_bus_master`].
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
        let function = sysfs.function(address)?;
        let group_number = function.group.ok_or(KernelOpenError::NoIommu(address))?;
        if function.driver.as_deref() != Some(VFIO_DRIVER) {
            return Err(KernelOpenError::NotBound { address, driver: function.driver });
        }
        let name = address.to_string();
        let failed = |what| {
            let name = name.clone();
            move |source| KernelOpenError::System { name, what, source }
        };
        let container = open_file(&*calls, &Path::new(FOLDER).join("vfio"))?;
        check_interface(&*calls, &container).map_err(failed("asking for the interface"))??;
        let group = open_file(&*calls, &Path::new(FOLDER).join(group_number.to_string()))?;
        check_group(&*calls, &group, sysfs, group_number)?;
        calls
            .set_container(group.as_fd(), container.as_fd())
            .map_err(failed("joining a container"))?;
        calls
            .number(container.as_fd(), NumberCommand::SetIommu, c::VFIO_TYPE1v2_IOMMU)
            .map_err(failed("setting the IOMMU"))?;
        let shape = query::iommu(&*calls, container.as_fd())
            .map_err(failed("asking for device addresses"))?;
        let text = CString::new(name.as_str()).unwrap_or_default();
        let device = calls.device(group.as_fd(), &text).map_err(failed("opening"))?;
        let mut facts = DeviceFacts::default();
        query::ask(&*calls, device.as_fd(), StructCommand::DeviceFacts, &mut facts)
            .map_err(failed("asking for facts"))?;
        if facts.flags & c::VFIO_DEVICE_FLAGS_PCI == 0 {
            return Err(KernelOpenError::Kernel("this function, but not as a PCI function"));
        }
        Ok(Self {
            can_reset: facts.flags & c::VFIO_DEVICE_FLAGS_RESET != 0,
            dma: Arc::new(KernelDma::new(Arc::clone(&calls), container, shape)),
            name,
            device: Arc::new(device),
            _group: group,
            windows: Mutex::default(),
            interrupts: Mutex::default(),
            calls,
        })
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
        if facts.count == 0
            || asked.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::InvalidInput)
        {
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

fn open_file(calls: &dyn VfioCalls, path: &Path) -> Result<OwnedFd, KernelOpenError> {
    let path = path.to_path_buf();
    calls.open(&path).map_err(|source| match source.raw_os_error() {
        Some(libc::ENOENT) => KernelOpenError::Sysfs(SysfsError::NoDriver),
        Some(libc::EACCES | libc::EPERM) => KernelOpenError::Denied { path },
        Some(libc::EBUSY) => KernelOpenError::Busy { path },
        _ => KernelOpenError::System { name: path.display().to_string(), what: "opening", source },
    })
}

/// Whether VFIO speaks the version that this room was written for.
fn check_interface(
    calls: &dyn VfioCalls,
    container: &OwnedFd,
) -> io::Result<Result<(), KernelOpenError>> {
    let version = calls.number(container.as_fd(), NumberCommand::ApiVersion, 0)?;
    if u32::try_from(version) != Ok(c::VFIO_API_VERSION) {
        return Ok(Err(KernelOpenError::Kernel("another version of the interface")));
    }
    let extension = c::VFIO_TYPE1v2_IOMMU;
    let has = calls.number(container.as_fd(), NumberCommand::CheckExtension, extension)?;
    let why = "no IOMMU of type 1: run `modprobe vfio_iommu_type1` as root";
    Ok(if has > 0 { Ok(()) } else { Err(KernelOpenError::Kernel(why)) })
}

/// Whether all functions of the group are free of the kernel's own drivers.
fn check_group(
    calls: &dyn VfioCalls,
    group: &OwnedFd,
    sysfs: &PciSysfs,
    number: u32,
) -> Result<(), KernelOpenError> {
    let mut status = GroupStatus::default();
    query::ask(calls, group.as_fd(), StructCommand::GroupStatus, &mut status).map_err(
        |source| KernelOpenError::System {
            name: format!("IOMMU group {number}"),
            what: "asking for the state",
            source,
        },
    )?;
    if status.flags & c::VFIO_GROUP_FLAGS_VIABLE != 0 {
        return Ok(());
    }
    let is_other = |driver: &str| driver != VFIO_DRIVER;
    let others = sysfs.group(number)?.into_iter().filter_map(|function| {
        let driver = function.driver.filter(|driver| is_other(driver))?;
        Some(format!("{} ({driver})", function.address))
    });
    Err(KernelOpenError::Shared { group: number, others: others.collect::<Vec<_>>().join(", ") })
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
