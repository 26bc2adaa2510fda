//! The calls of iommufd, one by one, and their structures as bytes.
//!
//! - owns: numbers of its commands; layouts, checked against `iommufd-bindings` and `vfio-bindings` when this is compiled.
//! - takes: descriptors and structures. gives: what the kernel answered. must not: decide anything.
#![expect(unsafe_code, reason = "ioctl")]

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
};

use iommufd_bindings as i;
use vfio_bindings::bindings::vfio::{self as c, VFIO_BASE, VFIO_TYPE};

use super::{
    ioctl::{self, SystemCalls, answer, request},
    layout::{NumberPair, structure},
};

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
        unsafe { ioctl::structure(fd, command as u32, bytes) }.map(|_| ())
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
