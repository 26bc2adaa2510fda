//! The calls of VFIO, one by one.
//!
//! - owns: numbers of requests and commands. takes: descriptors and structures. gives: what the kernel answered.
//! - must not: decide anything.
//!
//! [`VfioCalls`] is the seam: tests run everything above it on a twin (`twin.rs`).
#![expect(unsafe_code, reason = "ioctl")]

use std::{
    ffi::CStr,
    fs::OpenOptions,
    io,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
    path::Path,
};

use vfio_bindings::bindings::vfio::VFIO_BASE;

use super::{
    ioctl::{SystemCalls, answer, request, structure},
    layout::DmaMap,
};

// Without the feature `iommufd` a kernel has no further calls.
#[cfg(not(any(test, feature = "iommufd")))]
use std::fmt::Debug as IommuCalls;

#[cfg(any(test, feature = "iommufd"))]
use super::iommu_calls::IommuCalls;

/// Commands with a number for argument.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NumberCommand {
    /// Of a container: version of the interface.
    ApiVersion = 0,
    /// Of a container: whether it has an extension.
    CheckExtension = 1,
    /// Of a container: chooses the kind of IOMMU.
    SetIommu = 2,
    /// Of a function: resets it.
    Reset = 11,
}

/// Commands with a structure for argument, which begins with its length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum StructCommand {
    /// Of a group: its state.
    GroupStatus = 3,
    /// Of a function: what it has.
    DeviceFacts = 7,
    /// Of a function: one of its regions.
    RegionFacts = 8,
    /// Of a function: interrupts of one kind.
    IrqFacts = 9,
    /// Of a function: changes its interrupts.
    SetIrqs = 10,
    /// Of a container: what its IOMMU can map.
    IommuFacts = 12,
    /// Of a container: unmaps device addresses.
    UnmapDma = 14,
}

const SET_CONTAINER: u32 = 4;
const DEVICE_DESCRIPTOR: u32 = 6;
const MAP_DMA: u32 = 13;

/// The kernel, as far as VFIO goes. Reads, writes and mappings of a function's descriptor are those of any file.
pub(super) trait VfioCalls: IommuCalls + Send + Sync {
    /// Opens a file of `/dev/vfio`.
    fn open(&self, path: &Path) -> io::Result<OwnedFd>;

    /// A command whose argument is a number.
    fn number(&self, fd: BorrowedFd<'_>, command: NumberCommand, number: u32) -> io::Result<i32>;

    /// A command whose argument is a structure. Its first four bytes are set to its length, so the kernel stays in it.
    fn structure(
        &self,
        fd: BorrowedFd<'_>,
        command: StructCommand,
        bytes: &mut [u8],
    ) -> io::Result<i32>;

    /// Puts a group into a container.
    fn set_container(&self, group: BorrowedFd<'_>, container: BorrowedFd<'_>) -> io::Result<()>;

    /// The descriptor of a function of a group.
    fn device(&self, group: BorrowedFd<'_>, name: &CStr) -> io::Result<OwnedFd>;

    /// Lets the functions of a container reach memory.
    ///
    /// # Safety
    /// The caller keeps `vaddr` to `vaddr + size` mapped until the device range is unmapped or the container closed,
    /// and no Rust reference to it lives in that time: the device may read and write it at any moment.
    unsafe fn map_dma(&self, container: BorrowedFd<'_>, map: &DmaMap) -> io::Result<()>;
}

impl VfioCalls for SystemCalls {
    fn open(&self, path: &Path) -> io::Result<OwnedFd> {
        OpenOptions::new().read(true).write(true).open(path).map(OwnedFd::from)
    }

    fn number(&self, fd: BorrowedFd<'_>, command: NumberCommand, number: u32) -> io::Result<i32> {
        let number = libc::c_ulong::from(number);
        // SAFETY: these commands take their argument by value; the kernel touches no memory of this process.
        answer(unsafe { libc::ioctl(fd.as_raw_fd(), request(VFIO_BASE + command as u32), number) })
    }

    fn structure(
        &self,
        fd: BorrowedFd<'_>,
        command: StructCommand,
        bytes: &mut [u8],
    ) -> io::Result<i32> {
        // SAFETY: the kernel stays in the first `argsz` bytes of the structures of these commands, none of which
        // holds an address.
        unsafe { structure(fd, VFIO_BASE + command as u32, bytes) }
    }

    fn set_container(&self, group: BorrowedFd<'_>, container: BorrowedFd<'_>) -> io::Result<()> {
        let number = container.as_raw_fd();
        // SAFETY: the kernel reads one int, which lives until the call returns.
        answer(unsafe {
            libc::ioctl(group.as_raw_fd(), request(VFIO_BASE + SET_CONTAINER), &raw const number)
        })
        .map(|_| ())
    }

    fn device(&self, group: BorrowedFd<'_>, name: &CStr) -> io::Result<OwnedFd> {
        // SAFETY: the kernel reads a string that ends with 0 and lives until the call returns.
        let result = unsafe {
            libc::ioctl(group.as_raw_fd(), request(VFIO_BASE + DEVICE_DESCRIPTOR), name.as_ptr())
        };
        let number = answer(result)?;
        // SAFETY: the kernel made this descriptor for this call; nothing else owns it.
        Ok(unsafe { OwnedFd::from_raw_fd(number) })
    }

    unsafe fn map_dma(&self, container: BorrowedFd<'_>, map: &DmaMap) -> io::Result<()> {
        // SAFETY: the kernel reads the structure during the call; what it does with the range that it
        // names is in the contract of this function, which the caller keeps.
        answer(unsafe {
            libc::ioctl(
                container.as_raw_fd(),
                request(VFIO_BASE + MAP_DMA),
                std::ptr::from_ref(map),
            )
        })
        .map(|_| ())
    }
}
