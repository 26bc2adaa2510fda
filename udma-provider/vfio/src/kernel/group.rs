//! A function by its group: one container for each, IOMMU of type 1, version 2.
//!
//! - owns: container and group. takes: a function that is bound to VFIO. gives: its descriptor and its view of memory.
//!   must not: keep what is mapped.
#![expect(unsafe_code, reason = "a device reaches memory")]

use std::{
    ffi::CString,
    io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
    sync::Arc,
};

use udma_abi::{BackingError, DmaAccess};
use vfio_bindings::bindings::vfio as c;
use zerocopy::IntoBytes;

use super::{
    calls::{NumberCommand, StructCommand, VfioCalls},
    dma::{DmaMapper, DmaRange, KernelDma, refused},
    layout::{DmaMap, DmaUnmap, GroupStatus},
    open::{FOLDER, KernelInterface, KernelOpenError, OpenFunction, open_file, others},
    query,
    sysfs::{PciAddress, PciSysfs},
};

/// A container with one group.
#[derive(Debug)]
struct Container {
    calls: Arc<dyn VfioCalls>,
    container: OwnedFd,
    /// Keeps the group for this process, and its mappings: the last group that leaves takes them from the container.
    _group: OwnedFd,
}

/// Opens the function `address` of the group `number`.
pub(super) fn open(
    calls: &Arc<dyn VfioCalls>,
    sysfs: &PciSysfs,
    address: PciAddress,
    number: u32,
) -> Result<OpenFunction, KernelOpenError> {
    let failed = |what| KernelOpenError::system(address, what);
    let container = open_file(&**calls, &Path::new(FOLDER).join("vfio"))?;
    check_interface(&**calls, &container).map_err(failed("asking for the interface"))??;
    let group = open_file(&**calls, &Path::new(FOLDER).join(number.to_string()))?;
    check_group(&**calls, &group, sysfs, number)?;
    calls.set_container(group.as_fd(), container.as_fd()).map_err(failed("joining a container"))?;
    calls
        .number(container.as_fd(), NumberCommand::SetIommu, c::VFIO_TYPE1v2_IOMMU)
        .map_err(failed("setting the IOMMU"))?;
    let shape =
        query::iommu(&**calls, container.as_fd()).map_err(failed("asking for device addresses"))?;
    let text = CString::new(address.to_string()).unwrap_or_default();
    let device = calls.device(group.as_fd(), &text).map_err(failed("opening"))?;
    let container = Container { calls: Arc::clone(calls), container, _group: group };
    let dma = KernelDma::new(Box::new(container), shape);
    Ok(OpenFunction { interface: KernelInterface::Group, device, dma })
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
    let name = format_args!("IOMMU group {number}");
    query::ask(calls, group.as_fd(), StructCommand::GroupStatus, &mut status)
        .map_err(KernelOpenError::system(name, "asking for the state"))?;
    if status.flags & c::VFIO_GROUP_FLAGS_VIABLE != 0 {
        return Ok(());
    }
    Err(KernelOpenError::Shared { group: number, others: others(sysfs, number)?.join(", ") })
}

impl DmaMapper for Container {
    unsafe fn map(&self, range: &DmaRange, access: DmaAccess) -> Result<(), BackingError> {
        let write = match access {
            DmaAccess::ToDevice => 0,
            DmaAccess::Both => c::VFIO_DMA_MAP_FLAG_WRITE,
        };
        let argsz = u32::try_from(size_of::<DmaMap>()).unwrap_or(0);
        let flags = c::VFIO_DMA_MAP_FLAG_READ | write;
        let DmaRange { vaddr, iova, size } = *range;
        let map = DmaMap { argsz, flags, vaddr, iova, size };
        // SAFETY: the caller keeps the memory until the range is unmapped, without references to it.
        unsafe { self.calls.map_dma(self.container.as_fd(), &map) }.map_err(|error| {
            if error.raw_os_error() != Some(libc::ENOSPC) {
                return refused(&error, size);
            }
            BackingError::Unreachable(
                "the kernel's limit of DMA mappings is reached: raise dma_entry_limit of the module \
                 vfio_iommu_type1, or map larger regions"
                    .to_owned(),
            )
        })
    }

    fn unmap(&self, iova: u64, size: u64) -> io::Result<u64> {
        let mut range = DmaUnmap { argsz: 0, flags: 0, iova, size };
        let command = StructCommand::UnmapDma;
        self.calls.structure(self.container.as_fd(), command, range.as_mut_bytes())?;
        Ok(range.size)
    }
}
