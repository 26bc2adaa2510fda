//! The device's view of host memory: regions by device address.
//!
//! *Owns*: the mappings. *Takes*: regions from the driver. *Gives*: windows for rings and segments,
//! resolved once when an object is made. *Must not*: be asked on the data path.

use std::{
    collections::BTreeMap,
    io,
    sync::{PoisonError, RwLock},
};

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

/// What a range of device addresses is.
#[derive(Debug)]
pub(crate) enum FoundRange {
    /// Lies within one mapping.
    Window(Region),
    /// Goes over several mappings side by side, and begins at this byte of the first one.
    Parts(Vec<Region>, usize),
}

/// Windows over several mappings, which take mappings of this process beside those of their parts.
#[derive(Debug, Default)]
pub(crate) struct JoinedWindows(Vec<(Region, usize)>);

impl JoinedWindows {
    /// Forgets those that are not used any more; returns how many mappings they took.
    pub(crate) fn forget_unused(&mut self) -> usize {
        let before = self.mappings();
        self.0.retain(|(region, _)| !region.is_last());
        before - self.mappings()
    }

    /// Joins `parts`, by at most `most` mappings; returns how many it took.
    pub(crate) fn join(&mut self, parts: &[Region], most: usize) -> io::Result<(Region, usize)> {
        let (region, mappings) = Region::joined(parts, most)?;
        self.0.push((region.clone(), mappings));
        Ok((region, mappings))
    }

    fn mappings(&self) -> usize {
        self.0.iter().map(|(_, mappings)| mappings).sum()
    }
}

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

    /// The `len` bytes at `iova`; `None` when not all of them are mapped for `access`. A guest maps its memory page by page,
    /// so that a range may go over several mappings.
    pub(crate) fn range(&self, iova: u64, len: u64, access: DmaAccess) -> Option<FoundRange> {
        let map = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let (start, first) = map.range(..=iova).next_back()?;
        if !first.allows(access) {
            return None;
        }
        let offset = usize::try_from(iova - start).ok()?;
        if let Ok(window) = first.region.sub(offset, usize::try_from(len).ok()?) {
            return Some(FoundRange::Window(window));
        }
        let end = iova.checked_add(len)?;
        let (mut parts, mut next) = (Vec::new(), *start);
        for (at, mapping) in map.range(start..&end) {
            if *at != next || !mapping.allows(access) {
                return None;
            }
            next = at + mapping.region.len() as u64;
            parts.push(mapping.region.clone());
        }
        let is_whole = next >= end && offset < first.region.len();
        is_whole.then_some(FoundRange::Parts(parts, offset))
    }
}

impl DmaMapping {
    fn allows(&self, access: DmaAccess) -> bool {
        access == DmaAccess::ToDevice || self.access == DmaAccess::Both
    }
}

#[cfg(test)]
mod tests {
    use urma_mem::Pages;

    use super::*;

    /// Whether the range is mapped: as one mapping, or as several.
    fn found(dma: &Dma, iova: u64, len: u64, access: DmaAccess) -> Option<usize> {
        dma.range(iova, len, access).map(|range| match range {
            FoundRange::Window(_) => 1,
            FoundRange::Parts(parts, _) => parts.len(),
        })
    }

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
        assert_eq!(found(&dma, 0x10010, 16, DmaAccess::ToDevice), Some(1));
        assert_eq!(found(&dma, 0x10010, 16, DmaAccess::Both), None);
        assert_eq!(found(&dma, 0x11ff8, 16, DmaAccess::ToDevice), Some(2));
        assert_eq!(found(&dma, 0x8000, 16, DmaAccess::ToDevice), None);
        dma.unmap(0x10000).unwrap();
        assert!(dma.unmap(0x10000).is_err());
        assert_eq!(found(&dma, 0x10010, 16, DmaAccess::ToDevice), None);
    }

    /// Pages of one file, the second one first, then one that is read only, then a gap and another one.
    fn pages() -> (Dma, Region) {
        let dma = Dma::default();
        let file = Region::shared(4 * 4096, Pages::Base).unwrap();
        let map = |iova, page: usize, access| {
            let page = file.sub(page * 4096, 4096).unwrap();
            dma.map(iova, &page, access).unwrap();
        };
        map(0x10000, 1, DmaAccess::Both);
        map(0x11000, 0, DmaAccess::Both);
        map(0x12000, 2, DmaAccess::ToDevice);
        map(0x14000, 3, DmaAccess::Both);
        (dma, file)
    }

    #[test]
    fn mappings_side_by_side_are_one_range() {
        let (dma, file) = pages();
        let range = dma.range(0x10ff0, 32, DmaAccess::Both);
        let Some(FoundRange::Parts(parts, offset)) = range else { panic!("{range:?}") };
        let mut joined = JoinedWindows::default();
        let (region, mappings) = joined.join(&parts, 2).unwrap();
        assert_eq!((mappings, offset), (2, 0xff0));
        region.write(offset, &[1; 32]).unwrap();
        let mut seen = [0; 16];
        for at in [2 * 4096 - 16, 0] {
            file.read(at, &mut seen).unwrap();
            assert_eq!(seen, [1; 16], "byte {at} of the file");
        }
        assert_eq!(found(&dma, 0x10000, 0x3000, DmaAccess::ToDevice), Some(3));
    }

    #[test]
    fn no_range_has_a_gap_or_a_page_without_the_right() {
        let (dma, _file) = pages();
        let (both, to_device) = (DmaAccess::Both, DmaAccess::ToDevice);
        assert_eq!(found(&dma, 0x11000, 0x1001, both), None, "a page is read only");
        assert_eq!(found(&dma, 0x12000, 0x1001, to_device), None, "a gap");
        assert_eq!(found(&dma, 0x12000, 0x3000, to_device), None, "a gap inside");
        assert_eq!(found(&dma, 0x13000, 16, to_device), None, "it begins in the gap");
        assert_eq!(found(&dma, 0x14000, 0x1001, both), None, "the end");
        assert_eq!(found(&dma, 0x14ff0, u64::MAX, both), None, "it passes the last address");
    }
}
