//! Memory that a driver shares with its device.
//!
//! - owns: a region and its device address; both go together. takes: a DMA space. must not: use addresses outside of
//!   what the space allows.

use std::sync::Arc;

use udma_abi::{BackingError, DmaAccess, DmaSpace};
use urma_mem::{Pages, Region};

/// Unit of lengths and addresses: base pages, which every IOMMU can map.
const PAGE: u64 = 4096;
/// Addresses that are tried until a free one is found.
const TRIES: u32 = 4096;

/// Zeroed memory that the device reads and writes. It is unmapped when the value is dropped.
#[derive(Debug)]
pub struct DmaBuffer {
    dma: Arc<dyn DmaSpace>,
    region: Region,
    iova: u64,
}

impl DmaBuffer {
    /// Makes `len` bytes and maps them at the first free address below `limit`, the end of what the device can
    /// address.
    ///
    /// # Errors
    /// [`BackingError::IovaRange`] if there is no free address; no memory; or the mapping is refused.
    pub fn new(dma: Arc<dyn DmaSpace>, len: usize, limit: u64) -> Result<Self, BackingError> {
        let region = Region::shared(len, Pages::Base)?;
        let whole = (len as u64).next_multiple_of(PAGE);
        let none = || BackingError::IovaRange { iova: limit, len: whole };
        let mut tries = 0;
        for (first, last) in dma.ranges() {
            // Address 0 is what a device has that was not set up: a stray access should fault.
            let mut iova = first.max(PAGE).next_multiple_of(PAGE);
            while iova.checked_add(whole).is_some_and(|end| end - 1 <= last && end <= limit) {
                tries += 1;
                match dma.map(iova, &region, DmaAccess::Both) {
                    Ok(()) => return Ok(Self { dma, region, iova }),
                    Err(BackingError::IovaTaken { .. }) if tries < TRIES => iova += whole,
                    Err(BackingError::IovaTaken { .. }) => return Err(none()),
                    Err(error) => return Err(error),
                }
            }
        }
        Err(none())
    }

    /// Returns the memory as a region.
    #[must_use]
    pub const fn region(&self) -> &Region {
        &self.region
    }

    /// Returns the device address of the byte at `offset`.
    #[must_use]
    pub const fn device_address(&self, offset: u64) -> u64 {
        self.iova + offset
    }
}

impl Drop for DmaBuffer {
    fn drop(&mut self) {
        // The space keeps the region as long as it cannot unmap it.
        let _ = self.dma.unmap(self.iova);
    }
}
