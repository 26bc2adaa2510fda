//! The view of memory of a function behind an IOMMU.
//!
//! - owns: which regions are mapped, and keeps each alive until the IOMMU has forgotten it. takes: regions,
//!   private memory too, which the kernel pins. must not: leave a mapping behind that outlives its memory.
#![expect(unsafe_code, reason = "a device reaches memory")]

use std::{
    collections::BTreeMap,
    io,
    os::fd::BorrowedFd,
    sync::{Mutex, MutexGuard, PoisonError},
};

use udma_abi::{BackingError, DmaAccess, DmaSpace};
use urma_mem::Region;

use super::query::IommuShape;

/// How the kernel maps and unmaps: all in which its interfaces differ once a function is open.
pub(super) trait DmaMapper: Send + Sync + std::fmt::Debug {
    /// Lets the function reach memory.
    ///
    /// # Safety
    /// The caller keeps the memory mapped until the device range is unmapped or this value dropped, and no Rust
    /// reference to it lives in that time: the device may read and write it at any moment.
    unsafe fn map(&self, range: &DmaRange, access: DmaAccess) -> Result<(), BackingError>;

    /// Takes what was mapped at `iova` away, with `size` bytes. Returns how many bytes were unmapped.
    fn unmap(&self, iova: u64, size: u64) -> io::Result<u64>;

    /// Takes the function `device` out of the address space before it is closed, if the interface can.
    fn detach(&self, _device: BorrowedFd<'_>) {}
}

/// Memory and the device addresses that it is mapped at, in whole pages.
#[derive(Clone, Copy, Debug)]
pub(super) struct DmaRange {
    /// Address of the memory in this process.
    pub(super) vaddr: u64,
    /// First device address of the range.
    pub(super) iova: u64,
    /// Length of both in bytes.
    pub(super) size: u64,
}

/// Mappings of one function.
#[derive(Debug)]
pub(super) struct KernelDma {
    mapper: Box<dyn DmaMapper>,
    shape: IommuShape,
    /// By first device address.
    mapped: Mutex<BTreeMap<u64, MappedRegion>>,
}

/// A region that the function reaches.
#[derive(Debug)]
struct MappedRegion {
    len: u64,
    /// Keeps the memory until it is unmapped.
    region: Region,
}

impl KernelDma {
    pub(super) fn new(mapper: Box<dyn DmaMapper>, shape: IommuShape) -> Self {
        Self { mapper, shape, mapped: Mutex::default() }
    }

    /// Takes the function `device` out of this view before it is closed.
    pub(super) fn detach(&self, device: BorrowedFd<'_>) {
        self.mapper.detach(device);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, MappedRegion>> {
        self.mapped.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Address and length of the pages of `region`.
    fn pages(&self, iova: u64, region: &Region) -> Result<(u64, u64), BackingError> {
        let page = self.shape.page;
        let addr = region.addr() as u64;
        for (what, value) in [("its address", addr), ("the device address", iova)] {
            if !value.is_multiple_of(page) {
                let why = format!(
                    "{what} {value:#x} is not a multiple of the IOMMU's page, {page} bytes"
                );
                return Err(BackingError::Unreachable(why));
            }
        }
        let len = region.len() as u64;
        let whole = len.checked_next_multiple_of(page).filter(|len| *len > 0);
        whole.map(|whole| (addr, whole)).ok_or(BackingError::IovaRange { iova, len })
    }

    fn unmap_range(&self, iova: u64, size: u64) -> io::Result<()> {
        let unmapped = self.mapper.unmap(iova, size)?;
        if unmapped == size {
            return Ok(());
        }
        Err(io::Error::other(format!("{unmapped} of {size} bytes at {iova:#x} were unmapped")))
    }
}

/// Words for a mapping that the kernel refused.
pub(super) fn refused(error: &io::Error, len: u64) -> BackingError {
    match error.raw_os_error() {
        Some(libc::ENOMEM) => BackingError::Unreachable(format!(
            "the limit of locked memory does not allow {len} bytes more: raise it with `ulimit -l`, or LimitMEMLOCK= \
             in the unit of a service"
        )),
        _ => BackingError::Os(io::Error::new(error.kind(), error.to_string())),
    }
}

impl DmaSpace for KernelDma {
    fn ranges(&self) -> Vec<(u64, u64)> {
        self.shape.ranges.clone()
    }

    /// Whole pages are mapped: where `region` ends inside a page, the rest of that page is reachable too.
    fn map(&self, iova: u64, region: &Region, access: DmaAccess) -> Result<(), BackingError> {
        let (vaddr, size) = self.pages(iova, region)?;
        let last = iova.checked_add(size - 1);
        let is_usable =
            |last: u64| self.shape.ranges.iter().any(|range| range.0 <= iova && last <= range.1);
        let last = last
            .filter(|last| is_usable(*last))
            .ok_or(BackingError::IovaRange { iova, len: size })?;
        let mut mapped = self.lock();
        if let Some((before, there)) = mapped.range(..=last).next_back()
            && before + (there.len - 1) >= iova
        {
            return Err(BackingError::IovaTaken { iova, len: size });
        }
        let range = DmaRange { vaddr, iova, size };
        // SAFETY: `vaddr` to `vaddr + size` are pages of the region, which the clone in `mapped` keeps until the range
        // is unmapped, and the kernel pins meanwhile; a region never gives out a reference to its bytes.
        unsafe { self.mapper.map(&range, access) }?;
        mapped.insert(iova, MappedRegion { len: size, region: region.clone() });
        Ok(())
    }

    fn unmap(&self, iova: u64) -> Result<(), BackingError> {
        let mut mapped = self.lock();
        let len = mapped.get(&iova).ok_or(BackingError::NotMapped(iova))?.len;
        self.unmap_range(iova, len)?;
        mapped.remove(&iova);
        Ok(())
    }
}

impl Drop for KernelDma {
    fn drop(&mut self) {
        let mapped = std::mem::take(self.mapped.get_mut().unwrap_or_else(PoisonError::into_inner));
        for (iova, there) in mapped {
            if self.unmap_range(iova, there.len).is_err() {
                // The device may still reach it, so it is never given back.
                std::mem::forget(there.region);
            }
        }
    }
}
