//! Opening a function, as far as it is the same for every interface of the kernel.
//!
//! - owns: files of `/dev`, and what can stand in the way. takes: paths. gives: descriptors, errors that say what to
//!   run. must not: choose an interface.

use std::{
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use super::{
    calls::VfioCalls,
    dma::KernelDma,
    sysfs::{PciAddress, PciSysfs, SysfsError, VFIO_DRIVER},
};

/// Folder with the files of VFIO.
pub(super) const FOLDER: &str = "/dev/vfio";

/// The interface of the kernel that gives a function to this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KernelInterface {
    /// A group in a container, whose IOMMU is of type 1, version 2.
    Group,
    /// The function's own character device, and `/dev/iommu`.
    Iommufd,
}

/// A function of which nothing but its descriptor and its view of memory is known.
#[derive(Debug)]
pub(super) struct OpenFunction {
    pub(super) interface: KernelInterface,
    pub(super) device: OwnedFd,
    pub(super) dma: KernelDma,
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

impl KernelOpenError {
    /// Another refusal of the system, at `what` of `name`.
    pub(super) fn system(
        name: impl std::fmt::Display,
        what: &'static str,
    ) -> impl FnOnce(io::Error) -> Self {
        let name = name.to_string();
        move |source| Self::System { name, what, source }
    }
}

/// Opens a file of VFIO.
pub(super) fn open_file(calls: &dyn VfioCalls, path: &Path) -> Result<OwnedFd, KernelOpenError> {
    let path = path.to_path_buf();
    calls.open(&path).map_err(|source| match source.raw_os_error() {
        Some(libc::ENOENT) => KernelOpenError::Sysfs(SysfsError::NoDriver),
        Some(libc::EACCES | libc::EPERM) => KernelOpenError::Denied { path },
        Some(libc::EBUSY) => KernelOpenError::Busy { path },
        _ => KernelOpenError::System { name: path.display().to_string(), what: "opening", source },
    })
}

/// The functions of a group that drivers of the kernel have, with these.
pub(super) fn others(sysfs: &PciSysfs, group: u32) -> Result<Vec<String>, SysfsError> {
    let is_other = |driver: &String| driver != VFIO_DRIVER;
    let others = sysfs.group(group)?.into_iter().filter_map(|function| {
        let driver = function.driver.filter(is_other)?;
        Some(format!("{} ({driver})", function.address))
    });
    Ok(others.collect())
}
