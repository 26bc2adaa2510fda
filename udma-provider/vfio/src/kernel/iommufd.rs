//! A function by its own character device and `/dev/iommu`: an iommufd with one address space (IOAS).
//!
//! Layouts of its calls are checked against `iommufd-bindings` and `vfio-bindings` when this is compiled. Must not
//! keep what is mapped.
#![expect(unsafe_code, reason = "a device reaches memory")]

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    sync::Arc,
};

use iommufd_bindings as i;
use udma_abi::{BackingError, DmaAccess};
use vfio_bindings::bindings::vfio::{self as c, VFIO_BASE, VFIO_TYPE};
use zerocopy::IntoBytes;

use super::{
    calls::{self, SystemCalls, VfioCalls, answer, request},
    dma::{DmaMapper, DmaRange, KernelDma, refused},
    layout::{NumberPair, structure},
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

// `request` puts VFIO's type into every command.
const _: () = assert!(i::IOMMUFD_TYPE == VFIO_TYPE);

/// Commands with a structure for argument, which begins with its length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(super) enum IommuCommand {
    /// Of a function: binds it to an iommufd.
    Bind = VFIO_BASE + 18,
    /// Of a function: gives it an address space.
    Attach = VFIO_BASE + 19,
    /// Of a function: takes its address space away.
    Detach = VFIO_BASE + 20,
    /// Of an iommufd: ends an object.
    Destroy = i::IOMMUFD_CMD_DESTROY,
    /// Of an iommufd: makes an address space.
    AllocSpace = i::IOMMUFD_CMD_IOAS_ALLOC,
    /// Of an iommufd: unmaps device addresses.
    UnmapSpace = i::IOMMUFD_CMD_IOAS_UNMAP,
}

/// Usable device addresses of an address space, as far as there was room for them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FoundRanges {
    /// Number of ranges, also of those without room.
    pub(super) count: usize,
    /// What device addresses and lengths must be multiples of, in bytes.
    pub(super) alignment: u64,
}

/// The kernel, as far as iommufd goes.
pub(super) trait IommuCalls: std::fmt::Debug {
    /// A command whose argument is a structure. Its first four bytes are set to its length, so the kernel stays in it.
    fn iommu(&self, fd: BorrowedFd<'_>, command: IommuCommand, bytes: &mut [u8]) -> io::Result<()>;

    /// Writes the usable ranges of the address space `ioas`, as (first, last), while there is room in `ranges`.
    fn iova_ranges(
        &self,
        iommufd: BorrowedFd<'_>,
        ioas: u32,
        ranges: &mut [NumberPair],
    ) -> io::Result<FoundRanges>;

    /// Lets the functions of an address space reach memory.
    ///
    /// # Safety
    /// The caller keeps `user_va` to `user_va + length` mapped until the device range is unmapped or the address space
    /// destroyed, and no Rust reference to it lives in that time: the device may read and write it at any moment.
    unsafe fn map_space(&self, iommufd: BorrowedFd<'_>, map: &SpaceMap) -> io::Result<()>;
}

impl IommuCalls for SystemCalls {
    fn iommu(&self, fd: BorrowedFd<'_>, command: IommuCommand, bytes: &mut [u8]) -> io::Result<()> {
        // SAFETY: the kernel stays in as many bytes as the first field says. The only address in a structure of
        // these commands is that of a token in `IommufdBind`, which the kernel checks and only reads.
        unsafe { calls::structure(fd, command as u32, bytes) }.map(|_| ())
    }

    fn iova_ranges(
        &self,
        iommufd: BorrowedFd<'_>,
        ioas: u32,
        ranges: &mut [NumberPair],
    ) -> io::Result<FoundRanges> {
        let mut asked = SpaceRanges {
            size: u32::try_from(size_of::<SpaceRanges>()).unwrap_or(0),
            ioas_id: ioas,
            num_iovas: u32::try_from(ranges.len()).unwrap_or(u32::MAX),
            allowed_iovas: ranges.as_mut_ptr().expose_provenance() as u64,
            ..SpaceRanges::default()
        };
        let number = request(i::IOMMUFD_CMD_IOAS_IOVA_RANGES);
        let argument = &raw mut asked;
        // SAFETY: the kernel reads and writes the structure, whose length is in it, and writes at most `num_iovas`
        // ranges to `ranges`, which is borrowed for the call and has at least as many.
        let result = answer(unsafe { libc::ioctl(iommufd.as_raw_fd(), number, argument) });
        // The count is there also when the room was too small.
        if let Err(error) = result
            && error.raw_os_error() != Some(libc::EMSGSIZE)
        {
            return Err(error);
        }
        let count = usize::try_from(asked.num_iovas).unwrap_or(usize::MAX);
        Ok(FoundRanges { count, alignment: asked.out_iova_alignment })
    }

    unsafe fn map_space(&self, iommufd: BorrowedFd<'_>, map: &SpaceMap) -> io::Result<()> {
        let size = u32::try_from(size_of::<SpaceMap>()).unwrap_or(0);
        let mut map = SpaceMap { size, ..*map };
        let (number, argument) = (request(i::IOMMUFD_CMD_IOAS_MAP), &raw mut map);
        // SAFETY: the kernel reads and writes the structure, whose length is in it; what it does with the range that
        // it names is in the contract of this function, which the caller keeps.
        answer(unsafe { libc::ioctl(iommufd.as_raw_fd(), number, argument) }).map(|_| ())
    }
}

structure!(
    /// Binds a function to an iommufd.
    IommufdBind = c::vfio_device_bind_iommufd {
        argsz: u32, flags: u32, iommufd: i32, out_devid: u32, token_uuid_ptr: u64,
    }
);
structure!(
    /// Gives a function an address space.
    SpaceAttach = c::vfio_device_attach_iommufd_pt { argsz: u32, flags: u32, pt_id: u32, pasid: u32 }
);
structure!(
    /// Takes a function's address space away.
    SpaceDetach = c::vfio_device_detach_iommufd_pt { argsz: u32, flags: u32, pasid: u32 }
);
structure!(
    /// An object to end.
    ObjectDestroy = i::iommu_destroy { size: u32, id: u32 }
);
structure!(
    /// An address space to make.
    SpaceAlloc = i::iommu_ioas_alloc { size: u32, flags: u32, out_ioas_id: u32 }
);
structure!(
    /// Usable device addresses of an address space.
    SpaceRanges = i::iommu_ioas_iova_ranges {
        size: u32, ioas_id: u32, num_iovas: u32, __reserved: u32, allowed_iovas: u64, out_iova_alignment: u64,
    }
);
structure!(
    /// A mapping to make.
    SpaceMap = i::iommu_ioas_map {
        size: u32, flags: u32, ioas_id: u32, __reserved: u32, user_va: u64, length: u64, iova: u64,
    }
);
structure!(
    /// A range of device addresses to unmap.
    SpaceUnmap = i::iommu_ioas_unmap { size: u32, ioas_id: u32, iova: u64, length: u64 }
);
const _: () = assert!(size_of::<NumberPair>() == size_of::<i::iommu_iova_range>());

#[cfg(test)]
mod tests {
    use super::*;

    /// No test calls a kernel that has iommufd, so the numbers are compared with those that `strace` prints.
    #[test]
    fn requests_are_those_of_the_kernel_headers() {
        let commands = [
            (IommuCommand::Bind, 0x3B76),
            (IommuCommand::Attach, 0x3B77),
            (IommuCommand::Detach, 0x3B78),
            (IommuCommand::Destroy, 0x3B80),
            (IommuCommand::AllocSpace, 0x3B81),
            (IommuCommand::UnmapSpace, 0x3B86),
        ];
        for (command, number) in commands {
            assert_eq!(request(command as u32), number, "{command:?}");
        }
        assert_eq!(request(i::IOMMUFD_CMD_IOAS_IOVA_RANGES), 0x3B84);
        assert_eq!(request(i::IOMMUFD_CMD_IOAS_MAP), 0x3B85);
    }
}
