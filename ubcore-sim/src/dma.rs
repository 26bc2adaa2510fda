//! The device's view of host memory: regions by device address.
//!
//! *Owns*: the mappings. *Takes*: regions from the driver. *Gives*: windows for rings and segments,
//! resolved once when an object is made. *Must not*: be asked on the data path.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError, RwLock},
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

/// Mappings of this process that windows over several mappings take at a time, as those of a guest's pages: a process has
/// some 65,000 for all functions.
const JOINED_MAX: usize = 384;

/// Mappings of host memory by device address.
#[derive(Debug, Default)]
pub(crate) struct Dma {
    mapped: RwLock<BTreeMap<u64, DmaMapping>>,
    /// Windows over several mappings, each with the number of its parts.
    joined: Mutex<Vec<(Region, usize)>>,
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
        let mut map = self.mapped.write().unwrap_or_else(PoisonError::into_inner);
        let before = map.range(..=last).next_back();
        if before.is_some_and(|(start, m)| start + m.region.len() as u64 > iova) {
            return Err(BackingError::IovaTaken { iova, len });
        }
        map.insert(iova, DmaMapping { region: region.clone(), access });
        Ok(())
    }

    /// Takes the mapping away that begins at `iova`; returns its length in bytes.
    pub(crate) fn unmap(&self, iova: u64) -> Result<u64, BackingError> {
        let mut map = self.mapped.write().unwrap_or_else(PoisonError::into_inner);
        let mapping = map.remove(&iova).ok_or(BackingError::NotMapped(iova))?;
        Ok(mapping.region.len() as u64)
    }

    /// The window of `len` bytes at `iova`; `None` when not all of it is mapped for `access`. Mappings side by side make one
    /// window where they have files: a guest maps its memory page by page.
    pub(crate) fn window(&self, iova: u64, len: u64, access: DmaAccess) -> Option<Region> {
        let map = self.mapped.read().unwrap_or_else(PoisonError::into_inner);
        let (start, first) = map.range(..=iova).next_back()?;
        if !first.allows(access) {
            return None;
        }
        let offset = usize::try_from(iova - start).ok()?;
        let wanted = usize::try_from(len).ok()?;
        if let Ok(window) = first.region.sub(offset, wanted) {
            return Some(window);
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
        drop(map);
        if next < end || offset >= parts.first()?.len() {
            return None;
        }
        self.join(&parts)?.sub(offset, wanted).ok()
    }

    fn join(&self, parts: &[Region]) -> Option<Region> {
        let mut joined = self.joined.lock().unwrap_or_else(PoisonError::into_inner);
        joined.retain(|(region, _)| !region.is_last());
        let used: usize = joined.iter().map(|(_, count)| count).sum();
        let made = Region::joined(parts, JOINED_MAX.saturating_sub(used));
        match made {
            Ok((region, runs)) => {
                joined.push((region.clone(), runs));
                Some(region)
            }
            Err(error) => {
                tracing::warn!(%error, parts = parts.len(), "mappings side by side make no window");
                None
            }
        }
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

    /// Pages of one file, the second one first, then one that is read only, behind a gap.
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
    fn mappings_side_by_side_are_one_window() {
        let (dma, file) = pages();
        let window = dma.window(0x10ff0, 32, DmaAccess::Both).unwrap();
        window.write(0, &[1; 32]).unwrap();
        let mut seen = [0; 16];
        for at in [2 * 4096 - 16, 0] {
            file.read(at, &mut seen).unwrap();
            assert_eq!(seen, [1; 16], "byte {at} of the file");
        }
        assert!(dma.window(0x10000, 0x3000, DmaAccess::ToDevice).is_some());
    }

    #[test]
    fn no_window_has_a_gap_or_a_page_without_the_right() {
        let (dma, _file) = pages();
        assert!(dma.window(0x11000, 0x1001, DmaAccess::Both).is_none(), "a page is read only");
        assert!(dma.window(0x12000, 0x1001, DmaAccess::ToDevice).is_none(), "a gap");
        assert!(dma.window(0x12000, 0x3000, DmaAccess::ToDevice).is_none(), "a gap inside");
        assert!(dma.window(0x13000, 16, DmaAccess::ToDevice).is_none(), "it begins in the gap");
        assert!(dma.window(0x14000, 0x1001, DmaAccess::Both).is_none(), "the end");
        assert!(
            dma.window(0x14ff0, u64::MAX, DmaAccess::Both).is_none(),
            "it passes the last address"
        );
    }

    #[test]
    fn windows_of_many_mappings_have_a_limit_and_give_it_back() {
        let dma = Dma::default();
        let file = Region::shared(2 * 4096, Pages::Base).unwrap();
        // Each page twice in turn: no two lie side by side in the file.
        for page in 0..=JOINED_MAX {
            let half = file.sub(page % 2 * 4096, 4096).unwrap();
            dma.map(0x10000 + page as u64 * 0x2000, &half, DmaAccess::Both).unwrap();
            let half = file.sub(page % 2 * 4096, 4096).unwrap();
            dma.map(0x11000 + page as u64 * 0x2000, &half, DmaAccess::Both).unwrap();
        }
        let windows: Vec<_> = (0..JOINED_MAX / 2)
            .map(|at| dma.window(0x10000 + at as u64 * 0x2000, 0x2000, DmaAccess::Both).unwrap())
            .collect();
        assert!(dma.window(0x10000, 0x2000, DmaAccess::Both).is_none(), "as many as there may be");
        drop(windows);
        assert!(dma.window(0x10000, 0x2000, DmaAccess::Both).is_some());
        let all = (JOINED_MAX as u64 + 1) * 0x2000;
        assert!(dma.window(0x10000, all, DmaAccess::Both).is_none(), "too many for one");
    }
}
