//! The device's view of host memory: regions by device address.
//!
//! *Owns*: the mappings. *Takes*: regions from the driver. *Gives*: windows for rings and segments,
//! resolved once when an object is made. *Must not*: be asked on the data path.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

use udma_abi::{BackingError, DmaAccess};
use urma_mem::Region;

/// Last usable device address: 48 bits, as common IOMMUs have.
pub(crate) const LAST: u64 = (1 << 48) - 1;
/// First usable device address: 0 stays a null.
pub(crate) const FIRST: u64 = 4096;

#[derive(Debug)]
struct DmaMapping {
    region: Region,
    access: DmaAccess,
}

/// Mappings of host memory by device address.
#[derive(Debug, Default)]
pub(crate) struct Dma(RwLock<BTreeMap<u64, DmaMapping>>);

impl Dma {
    /// Usable device addresses, as `(first, last)`.
    pub(crate) fn ranges() -> Vec<(u64, u64)> {
        vec![(FIRST, LAST)]
    }

    pub(crate) fn map(
        &self,
        iova: u64,
        region: &Region,
        access: DmaAccess,
    ) -> Result<(), BackingError> {
        let len = region.len() as u64;
        let range = BackingError::IovaRange { iova, len };
        let Some(last) = iova.checked_add(len.saturating_sub(1)) else { return Err(range) };
        if len == 0 || iova < FIRST || last > LAST {
            return Err(range);
        }
        let mut map = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let before = map.range(..=last).next_back();
        if before.is_some_and(|(start, m)| start + m.region.len() as u64 > iova) {
            return Err(BackingError::IovaTaken { iova, len });
        }
        map.insert(iova, DmaMapping { region: region.clone(), access });
        Ok(())
    }

    /// Takes the mapping away that begins at `iova`; returns its length in bytes.
    pub(crate) fn unmap(&self, iova: u64) -> Result<u64, BackingError> {
        let mut map = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let mapping = map.remove(&iova).ok_or(BackingError::NotMapped(iova))?;
        Ok(mapping.region.len() as u64)
    }

    /// The window of `len` bytes at `iova`; `None` when it is not mapped for `access` as one piece.
    pub(crate) fn window(&self, iova: u64, len: u64, access: DmaAccess) -> Option<Region> {
        let map = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let (start, mapped) = map.range(..=iova).next_back()?;
        if access == DmaAccess::Both && mapped.access == DmaAccess::ToDevice {
            return None;
        }
        let offset = usize::try_from(iova - start).ok()?;
        mapped.region.sub(offset, usize::try_from(len).ok()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_do_not_overlap_and_windows_stay_inside() {
        let dma = Dma::default();
        let region = Region::private(8192).unwrap();
        dma.map(0x10000, &region, DmaAccess::ToDevice).unwrap();
        assert!(matches!(
            dma.map(0x11fff, &region, DmaAccess::Both),
            Err(BackingError::IovaTaken { .. })
        ));
        assert!(matches!(
            dma.map(0xf000, &region, DmaAccess::Both),
            Err(BackingError::IovaTaken { .. })
        ));
        dma.map(0x12000, &region, DmaAccess::Both).unwrap();
        assert!(matches!(
            dma.map(LAST, &region, DmaAccess::Both),
            Err(BackingError::IovaRange { .. })
        ));
        assert!(dma.window(0x10010, 16, DmaAccess::ToDevice).is_some());
        assert!(dma.window(0x10010, 16, DmaAccess::Both).is_none());
        assert!(dma.window(0x11ff8, 16, DmaAccess::ToDevice).is_none());
        assert!(dma.window(0x8000, 16, DmaAccess::ToDevice).is_none());
        dma.unmap(0x10000).unwrap();
        assert!(dma.unmap(0x10000).is_err());
        assert!(dma.window(0x10010, 16, DmaAccess::ToDevice).is_none());
    }
}
