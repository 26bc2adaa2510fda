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

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// A space that notes what it is asked for, of which these first addresses are taken.
    #[derive(Debug)]
    struct Taken {
        ranges: Vec<(u64, u64)>,
        taken: u64,
        asked: Mutex<Vec<u64>>,
        unmapped: Mutex<Vec<u64>>,
    }

    impl DmaSpace for Taken {
        fn ranges(&self) -> Vec<(u64, u64)> {
            self.ranges.clone()
        }

        fn map(&self, iova: u64, region: &Region, access: DmaAccess) -> Result<(), BackingError> {
            assert_eq!(access, DmaAccess::Both);
            self.asked.lock().unwrap().push(iova);
            match iova < self.taken {
                true => Err(BackingError::IovaTaken { iova, len: region.len() as u64 }),
                false => Ok(()),
            }
        }

        fn unmap(&self, iova: u64) -> Result<(), BackingError> {
            self.unmapped.lock().unwrap().push(iova);
            Ok(())
        }
    }

    fn space(ranges: &[(u64, u64)], taken: u64) -> Arc<Taken> {
        Arc::new(Taken {
            ranges: ranges.to_vec(),
            taken,
            asked: Mutex::default(),
            unmapped: Mutex::default(),
        })
    }

    fn asked(space: &Taken) -> Vec<u64> {
        space.asked.lock().unwrap().clone()
    }

    #[test]
    fn a_buffer_lies_at_the_first_free_address() {
        // Three pages at a time, and not at address 0.
        let dma = space(&[(0, 0xffff)], 0x5000);
        let buffer = DmaBuffer::new(Arc::clone(&dma) as _, 0x2001, 1 << 40).unwrap();
        assert_eq!(asked(&dma), [0x1000, 0x4000, 0x7000]);
        assert_eq!((buffer.device_address(0), buffer.device_address(9)), (0x7000, 0x7009));
        assert!(buffer.region().len() >= 0x2001);
        drop(buffer);
        assert_eq!(*dma.unmapped.lock().unwrap(), [0x7000]);
    }

    #[test]
    fn a_buffer_fits_into_its_range_and_below_the_limit() {
        let at = |ranges: &[(u64, u64)], limit| {
            let dma = space(ranges, 0);
            let made = DmaBuffer::new(Arc::clone(&dma) as _, 8192, limit);
            made.map(|made| made.device_address(0)).map_err(|error| error.to_string())
        };
        assert_eq!(at(&[(0x1000, 0x2fff)], 0x3000), Ok(0x1000), "both to the last byte");
        let none = |limit: u64| {
            Err(format!("device addresses {limit:#x}+0x2000 are outside what the device can reach"))
        };
        assert_eq!(at(&[(0x1000, 0x2ffe)], 0x3000), none(0x3000));
        assert_eq!(at(&[(0x1000, 0x2fff)], 0x2fff), none(0x2fff));
        assert_eq!(at(&[(0x1001, 0x3fff)], 0x4000), Ok(0x2000), "at a page");
        assert_eq!(at(&[(0x1000, 0x1fff), (0x8000, 0x9fff)], 0xa000), Ok(0x8000));
        assert_eq!(at(&[(u64::MAX - 0xfff, u64::MAX)], u64::MAX), none(u64::MAX));
        assert_eq!(at(&[], 1 << 40), none(1 << 40));
    }

    #[test]
    fn as_many_addresses_are_tried_as_the_bound_says() {
        let dma = space(&[(0, 0x7ff_ffff), (0x1000_0000, u64::MAX)], u64::MAX);
        let made = DmaBuffer::new(Arc::clone(&dma) as _, 4096, u64::MAX);
        assert!(matches!(made, Err(BackingError::IovaRange { iova: u64::MAX, len: 4096 })));
        let all = asked(&dma);
        assert_eq!((all.len(), all.first(), all.last()), (4096, Some(&0x1000), Some(&0x100_0000)));
        // The tries of all ranges count.
        let dma = space(&[(0x1000, 0x2fff), (0x8000, u64::MAX)], u64::MAX);
        DmaBuffer::new(Arc::clone(&dma) as _, 4096, u64::MAX).unwrap_err();
        assert_eq!(asked(&dma).len(), 4096);
        // The last of them may be the free one.
        for (free, is_made) in [(4096 * 4096, true), (4097 * 4096, false)] {
            let dma = space(&[(0, u64::MAX)], free);
            let made = DmaBuffer::new(dma as _, 4096, u64::MAX);
            assert_eq!(made.map(|made| made.device_address(0)).ok(), is_made.then_some(free));
        }
    }
}
