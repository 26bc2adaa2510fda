//! Memory that a client mapped for its function.
//!
//! - owns: which device addresses are mapped, and the quota. takes: maps and unmaps of a client. gives: ranges to map and
//!   to unmap at the function. must not: overflow on any address.

use std::collections::BTreeMap;

use rustix::io::Errno;

/// What a client may map at most.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MapQuota {
    /// Number of mappings that exist at a time.
    pub maps: usize,
    /// Bytes of all mappings.
    pub bytes: u64,
}

impl Default for MapQuota {
    fn default() -> Self {
        Self { maps: 65_536, bytes: 1 << 40 }
    }
}

/// Mapped ranges: the last address of each, by its first.
#[derive(Debug, Default)]
pub(crate) struct MappedRanges {
    ends: BTreeMap<u64, u64>,
    bytes: u64,
}

impl MappedRanges {
    /// Whether a range can be mapped.
    ///
    /// # Errors
    /// `INVAL`: it is empty or passes the end of the addresses. `EXIST`: it overlaps a mapped one. `DQUOT`.
    pub(crate) fn check(&self, address: u64, size: u64, quota: MapQuota) -> Result<(), Errno> {
        let last = last_of(address, size).ok_or(Errno::INVAL)?;
        let before = self.ends.range(..=last).next_back();
        if before.is_some_and(|(_, end)| *end >= address) {
            return Err(Errno::EXIST);
        }
        let bytes = self.bytes.checked_add(size).filter(|bytes| *bytes <= quota.bytes);
        if bytes.is_none() || self.ends.len() >= quota.maps {
            return Err(Errno::DQUOT);
        }
        Ok(())
    }

    /// Notes a range that [`MappedRanges::check`] allowed.
    pub(crate) fn insert(&mut self, address: u64, size: u64) {
        if let Some(last) = last_of(address, size) {
            self.ends.insert(address, last);
            self.bytes = self.bytes.saturating_add(size);
        }
    }

    /// Takes out all ranges within `size` bytes at `address`, and returns their first addresses. A range of which only a
    /// part lies within stays, and is an error; no range is none. The end may lie beyond 2^64, as QEMU sends it.
    ///
    /// # Errors
    /// `INVAL`, with nothing taken out.
    pub(crate) fn remove(&mut self, address: u64, size: u64) -> Result<Vec<u64>, Errno> {
        if size == 0 {
            return Ok(Vec::new());
        }
        let last = address.saturating_add(size - 1);
        let touches = |first: u64, end: u64| first <= last && end >= address;
        let is_cut = |first: u64, end: u64| first < address || end > last;
        let before = self.ends.range(..address).next_back();
        let inside: Vec<(u64, u64)> =
            self.ends.range(address..=last).map(|(first, end)| (*first, *end)).collect();
        let mut all = before.map(|(first, end)| (*first, *end)).into_iter().chain(inside.clone());
        if all.any(|(first, end)| touches(first, end) && is_cut(first, end)) {
            return Err(Errno::INVAL);
        }
        for (first, end) in &inside {
            self.ends.remove(first);
            self.bytes = self.bytes.saturating_sub((end - first).saturating_add(1));
        }
        Ok(inside.into_iter().map(|(first, _)| first).collect())
    }
}

fn last_of(address: u64, size: u64) -> Option<u64> {
    address.checked_add(size.checked_sub(1)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUOTA: MapQuota = MapQuota { maps: 3, bytes: 0x3000 };

    #[test]
    fn what_is_mapped_does_not_overlap_and_has_a_quota() {
        let mut ranges = MappedRanges::default();
        ranges.check(0x1000, 0x1000, QUOTA).unwrap();
        ranges.insert(0x1000, 0x1000);
        assert_eq!(ranges.check(0x1fff, 1, QUOTA), Err(Errno::EXIST));
        assert_eq!(ranges.check(0, 0x1001, QUOTA), Err(Errno::EXIST));
        assert_eq!(ranges.check(0x2000, 0, QUOTA), Err(Errno::INVAL));
        assert_eq!(ranges.check(u64::MAX, 2, QUOTA), Err(Errno::INVAL));
        assert_eq!(ranges.check(0x2000, 0x2001, QUOTA), Err(Errno::DQUOT));
        ranges.insert(0x2000, 0x1000);
        ranges.insert(u64::MAX, 1);
        assert_eq!(ranges.check(0x8000, 1, QUOTA), Err(Errno::DQUOT));
    }

    #[test]
    fn one_unmap_takes_many_and_none_but_no_part() {
        let mut ranges = MappedRanges::default();
        ranges.insert(0x1000, 0x1000);
        ranges.insert(0x3000, 0x1000);
        assert_eq!(ranges.remove(0x1800, 0x100), Err(Errno::INVAL));
        assert_eq!(ranges.remove(0x1800, u64::MAX), Err(Errno::INVAL));
        assert_eq!(ranges.remove(0x2000, 0x1000), Ok(vec![]));
        assert_eq!(ranges.remove(0x1000, u64::MAX), Ok(vec![0x1000, 0x3000]));
        assert_eq!(ranges.remove(0, u64::MAX), Ok(vec![]));
        assert_eq!(ranges.bytes, 0);
    }

    /// Each bound, at it and one beyond; nothing is taken out where a part would stay.
    #[test]
    fn ranges_touch_at_their_ends_and_a_quota_is_used_up_to_the_last_byte() {
        let mut ranges = MappedRanges::default();
        ranges.insert(0x1000, 0x1000);
        for (address, size, wanted) in [
            (0xfff, 1, Ok(())),
            (0xfff, 2, Err(Errno::EXIST)),
            (0x1fff, 1, Err(Errno::EXIST)),
            (0x2000, 1, Ok(())),
            (0x2000, 0x2000, Ok(())),
            (0x2000, 0x2001, Err(Errno::DQUOT)),
            (u64::MAX, 1, Ok(())),
            (u64::MAX, 2, Err(Errno::INVAL)),
            (u64::MAX - 0xfff, 0x1000, Ok(())),
            (0, 0, Err(Errno::INVAL)),
        ] {
            assert_eq!(ranges.check(address, size, QUOTA), wanted, "{address:#x} {size:#x}");
        }
        let all = MapQuota { bytes: u64::MAX - 0x1000, ..QUOTA };
        assert_eq!(ranges.check(0x2000, u64::MAX - 0x2000, all), Ok(()));
        ranges.insert(0x2000, 1);
        assert_eq!(ranges.check(0x3000, 1, QUOTA), Ok(()), "the third one");
        ranges.insert(0x3000, 1);
        assert_eq!(ranges.check(0x4000, 1, QUOTA), Err(Errno::DQUOT), "a fourth one");
        for (address, size, wanted) in [
            (0x1000, 0, Ok(vec![])),
            (0xfff, 1, Ok(vec![])),
            (0x1000, 0xfff, Err(Errno::INVAL)),
            (0x1001, 0xfff, Err(Errno::INVAL)),
            (0x1fff, 1, Err(Errno::INVAL)),
            (0x1fff, 0x10, Err(Errno::INVAL)),
            (0xfff, 0x1000, Err(Errno::INVAL)),
            (0x2001, 0xffe, Ok(vec![])),
            (0xfff, 0x1001, Ok(vec![0x1000])),
            (0x2000, 1, Ok(vec![0x2000])),
        ] {
            assert_eq!(ranges.remove(address, size), wanted, "{address:#x} {size:#x}");
        }
        assert_eq!((ranges.bytes, ranges.ends.len()), (1, 1));
        let none = MapQuota::default();
        assert_eq!((none.maps, none.bytes), (65_536, 1 << 40));
    }
}
