//! The view of memory of a function behind an IOMMU.
//!
//! - owns: which regions are mapped, and keeps each alive until the IOMMU has forgotten it. takes: regions,
//!   private memory too, which the kernel pins. must not: leave a mapping behind that outlives its memory.
#![expect(unsafe_code, reason = "a device reaches memory")]

use std::{
    collections::BTreeMap,
    io,
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use udma_abi::{BackingError, DmaAccess, DmaSpace};
use urma_mem::Region;
use vfio_bindings::bindings::vfio as c;
use zerocopy::IntoBytes;

use super::{
    calls::{StructCommand, VfioCalls},
    layout::{DmaMap, DmaUnmap},
    query::IommuShape,
};

/// Mappings of one container.
#[derive(Debug)]
pub(super) struct KernelDma {
    calls: Arc<dyn VfioCalls>,
    container: OwnedFd,
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
    pub(super) fn new(calls: Arc<dyn VfioCalls>, container: OwnedFd, shape: IommuShape) -> Self {
        Self { calls, container, shape, mapped: Mutex::default() }
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
        let mut range = DmaUnmap { argsz: 0, flags: 0, iova, size };
        self.calls.structure(
            self.container.as_fd(),
            StructCommand::UnmapDma,
            range.as_mut_bytes(),
        )?;
        if range.size == size {
            return Ok(());
        }
        let unmapped = range.size;
        Err(io::Error::other(format!("{unmapped} of {size} bytes at {iova:#x} were unmapped")))
    }
}

/// Words for a mapping that the kernel refused.
fn refused(error: &io::Error, len: u64) -> BackingError {
    match error.raw_os_error() {
        Some(libc::ENOMEM) => BackingError::Unreachable(format!(
            "the limit of locked memory does not allow {len} bytes more: raise it with `ulimit -l`, or LimitMEMLOCK= \
             in the unit of a service"
        )),
        Some(libc::ENOSPC) => BackingError::Unreachable(
            "the kernel's limit of DMA mappings is reached: raise dma_entry_limit of the module vfio_iommu_type1, \
             or map larger regions"
                .to_owned(),
        ),
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
        let write = match access {
            DmaAccess::ToDevice => 0,
            DmaAccess::Both => c::VFIO_DMA_MAP_FLAG_WRITE,
        };
        let argsz = u32::try_from(size_of::<DmaMap>()).unwrap_or(0);
        let flags = c::VFIO_DMA_MAP_FLAG_READ | write;
        let map = DmaMap { argsz, flags, vaddr, iova, size };
        // SAFETY: `vaddr` to `vaddr + size` are pages of the region, which the clone in `mapped`
        // keeps until the range is unmapped, and the kernel pins meanwhile; a region never gives out a reference to its bytes.
        unsafe { self.calls.map_dma(self.container.as_fd(), &map) }
            .map_err(|error| refused(&error, size))?;
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
