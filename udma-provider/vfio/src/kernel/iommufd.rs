//! A function by its own character device and `/dev/iommu`.
//!
//! - owns: an iommufd with one address space (IOAS). takes: a function that is bound to VFIO. gives: its descriptor and
//!   its view of memory. must not: keep what is mapped.
#![expect(unsafe_code, reason = "a device reaches memory")]

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    sync::Arc,
};

use iommufd_bindings as i;
use udma_abi::{BackingError, DmaAccess};
use zerocopy::IntoBytes;

use super::{
    calls::VfioCalls,
    dma::{DmaMapper, DmaRange, KernelDma, refused},
    iommu_calls::{
        IommuCommand, IommufdBind, ObjectDestroy, SpaceAlloc, SpaceAttach, SpaceDetach, SpaceMap,
        SpaceUnmap,
    },
    layout::NumberPair,
    open::{FOLDER, KernelInterface, KernelOpenError, OpenFunction, open_file, others},
    query::IommuShape,
    sysfs::{PciAddress, PciSysfs},
};

/// The file of iommufd.
const IOMMU: &str = "/dev/iommu";
/// Most ranges of usable device addresses: many times what the reserved regions of a machine leave.
const RANGES_MAX: usize = 4096;
/// Memory for a device comes in pages of this many bytes at least, also where an IOMMU has no smallest page.
const PAGE: u64 = 4096;
/// What a kernel lacks that does not bind a function.
const NO_REMAPPING: &str = "no remapping of interrupts: turn it on in the firmware, or let the function send any \
                            interrupt and run `echo 1 > /sys/module/iommufd/parameters/allow_unsafe_interrupts` as root";

/// Both files of a function, open.
#[derive(Debug)]
pub(super) struct IommufdFiles {
    iommufd: OwnedFd,
    device: OwnedFd,
    /// Path that `device` was opened by.
    path: PathBuf,
}

/// An address space of device addresses.
#[derive(Debug)]
struct AddressSpace {
    calls: Arc<dyn VfioCalls>,
    iommufd: OwnedFd,
    id: u32,
}

/// Opens the files. [`KernelOpenError::Kernel`] if this kernel does not have them.
pub(super) fn open_files(
    calls: &dyn VfioCalls,
    sysfs: &PciSysfs,
    address: PciAddress,
) -> Result<IommufdFiles, KernelOpenError> {
    let no_device =
        "no character device for this function: a kernel with CONFIG_VFIO_DEVICE_CDEV has it";
    let name = sysfs.character_device(address).ok_or(KernelOpenError::Kernel(no_device))?;
    let no_iommufd =
        "no /dev/iommu: run `modprobe iommufd` as root; a kernel with CONFIG_IOMMUFD has it";
    let iommufd = open_if_there(calls, Path::new(IOMMU), no_iommufd)?;
    let path = Path::new(FOLDER).join("devices").join(name);
    let no_file = "a character device for this function, but no file of it: run `udevadm trigger` as root, or \
                   give it to the container";
    let device = open_if_there(calls, &path, no_file)?;
    Ok(IommufdFiles { iommufd, device, path })
}

/// Opens a file of VFIO; a kernel without it has `lack`.
fn open_if_there(
    calls: &dyn VfioCalls,
    path: &Path,
    lack: &'static str,
) -> Result<OwnedFd, KernelOpenError> {
    open_file(calls, path).map_err(|error| match error {
        KernelOpenError::Sysfs(_) => KernelOpenError::Kernel(lack),
        // A file without the module behind it.
        KernelOpenError::System { source, .. }
            if matches!(source.raw_os_error(), Some(libc::ENODEV | libc::ENXIO)) =>
        {
            KernelOpenError::Kernel(lack)
        }
        other => other,
    })
}

/// Makes the function of `files` this process's own, with an empty address space.
pub(super) fn bind(
    calls: &Arc<dyn VfioCalls>,
    sysfs: &PciSysfs,
    address: PciAddress,
    group: u32,
    files: IommufdFiles,
) -> Result<OpenFunction, KernelOpenError> {
    let failed = |what| KernelOpenError::system(address, what);
    let mut space = SpaceAlloc::default();
    calls
        .iommu(files.iommufd.as_fd(), IommuCommand::AllocSpace, space.as_mut_bytes())
        .map_err(failed("making an address space"))?;
    let calls = Arc::clone(calls);
    let space = AddressSpace { calls, iommufd: files.iommufd, id: space.out_ioas_id };
    // Declared after the space, so that it is closed first if one of the next steps fails.
    let device = files.device;
    let mut bind = IommufdBind { iommufd: space.iommufd.as_raw_fd(), ..IommufdBind::default() };
    let bound = space.calls.iommu(device.as_fd(), IommuCommand::Bind, bind.as_mut_bytes());
    bound.map_err(|error| match error.raw_os_error() {
        // Means a function that is open, or one whose DMA is not coherent; the group of the first is in use.
        Some(libc::EINVAL) if is_group_in_use(&*space.calls, group) => {
            KernelOpenError::Busy { path: files.path }
        }
        Some(libc::EBUSY) => taken(sysfs, group, files.path),
        Some(libc::EPERM) => KernelOpenError::Kernel(NO_REMAPPING),
        _ => failed("binding to an iommufd")(error),
    })?;
    let mut attach = SpaceAttach { pt_id: space.id, ..SpaceAttach::default() };
    space
        .calls
        .iommu(device.as_fd(), IommuCommand::Attach, attach.as_mut_bytes())
        .map_err(failed("attaching an address space"))?;
    // Only now are the addresses left out that the function's IOMMU cannot map.
    let shape = space.shape().map_err(failed("asking for device addresses"))?;
    let dma = KernelDma::new(Box::new(space), shape);
    Ok(OpenFunction { interface: KernelInterface::Iommufd, device, dma })
}

/// Whether another descriptor holds the group, or a function of it.
fn is_group_in_use(calls: &dyn VfioCalls, group: u32) -> bool {
    let opened = open_file(calls, &Path::new(FOLDER).join(group.to_string()));
    matches!(opened, Err(KernelOpenError::Busy { .. }))
}

/// Words for a group that drivers of the kernel or another process have.
fn taken(sysfs: &PciSysfs, group: u32, path: PathBuf) -> KernelOpenError {
    match others(sysfs, group) {
        Ok(others) if others.is_empty() => KernelOpenError::Busy { path },
        Ok(others) => KernelOpenError::Shared { group, others: others.join(", ") },
        Err(error) => error.into(),
    }
}

impl AddressSpace {
    /// What the function that is attached can map.
    fn shape(&self) -> io::Result<IommuShape> {
        let mut ranges = Vec::new();
        loop {
            let found = self.calls.iova_ranges(self.iommufd.as_fd(), self.id, &mut ranges)?;
            if found.count > RANGES_MAX {
                let count = found.count;
                return Err(io::Error::other(format!("{count} ranges, more than {RANGES_MAX}")));
            }
            if found.count <= ranges.len() {
                ranges.truncate(found.count);
                let ranges = ranges.into_iter().map(|NumberPair(first, last)| (first, last));
                let ranges = ranges.filter(|(first, last)| first <= last).collect();
                return Ok(IommuShape { page: found.alignment.max(PAGE), ranges });
            }
            // Longer in each pass, so there is an end.
            ranges.resize(found.count, NumberPair(0, 0));
        }
    }
}

impl DmaMapper for AddressSpace {
    unsafe fn map(&self, range: &DmaRange, access: DmaAccess) -> Result<(), BackingError> {
        let write = match access {
            DmaAccess::ToDevice => 0,
            DmaAccess::Both => i::iommufd_ioas_map_flags_IOMMU_IOAS_MAP_WRITEABLE,
        };
        let fixed = i::iommufd_ioas_map_flags_IOMMU_IOAS_MAP_FIXED_IOVA;
        let flags = fixed | i::iommufd_ioas_map_flags_IOMMU_IOAS_MAP_READABLE | write;
        let DmaRange { vaddr: user_va, iova, size: length } = *range;
        let ioas_id = self.id;
        let map = SpaceMap { flags, ioas_id, user_va, length, iova, ..SpaceMap::default() };
        // SAFETY: the caller keeps the memory until the range is unmapped, without references to it.
        unsafe { self.calls.map_space(self.iommufd.as_fd(), &map) }
            .map_err(|error| refused(&error, length))
    }

    fn unmap(&self, iova: u64, size: u64) -> io::Result<u64> {
        let mut range = SpaceUnmap { size: 0, ioas_id: self.id, iova, length: size };
        let command = IommuCommand::UnmapSpace;
        self.calls.iommu(self.iommufd.as_fd(), command, range.as_mut_bytes())?;
        Ok(range.length)
    }

    fn detach(&self, device: BorrowedFd<'_>) {
        // What is refused here is done when the descriptor is closed.
        let mut detach = SpaceDetach::default();
        let _ = self.calls.iommu(device, IommuCommand::Detach, detach.as_mut_bytes());
    }
}

impl Drop for AddressSpace {
    fn drop(&mut self) {
        // What is refused here, for the function is still open, is done when the descriptors are closed.
        let mut destroy = ObjectDestroy { size: 0, id: self.id };
        let command = IommuCommand::Destroy;
        let _ = self.calls.iommu(self.iommufd.as_fd(), command, destroy.as_mut_bytes());
    }
}
