//! Memory that the device reaches: rings, records, pools, and the user's segments.
//!
//! One allocator of device addresses per device, and chunks from which small rings are cut, so that a thousand
//! queues do not need a thousand descriptors. [`DmaBuf`] and [`DmaMap`] return their addresses on drop. Must not
//! free what the device may still use: holders keep buffers until it answered.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use udma_abi::{BackingError, DmaAccess, DmaSpace};
use urma_core::Status;
use urma_mem::{Pages, Region};

/// Page size of the memory that rings are cut from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RingPages {
    /// Pages of the base size of the machine (4096 bytes on x86-64).
    #[default]
    Base,
    /// Huge pages where the machine has some reserved, else base pages.
    Huge,
}

/// Allocator of one device.
#[derive(Debug)]
pub(crate) struct DmaAlloc {
    space: Arc<dyn DmaSpace>,
    pages: RingPages,
    iovas: Mutex<Ranges>,
    /// Each lives as long as a piece of it: its mapping keeps this allocator alive.
    chunks: Mutex<Vec<Weak<Chunk>>>,
}

/// A mapping of a region in the device's address space; removed on drop.
#[derive(Debug)]
pub(crate) struct DmaMap {
    alloc: Arc<DmaAlloc>,
    iova: u64,
    len: u64,
}

/// A piece of memory for the device; freed on drop.
#[derive(Debug)]
pub(crate) struct DmaBuf {
    region: Region,
    iova: u64,
    home: BlockOrigin,
}

/// A mapped region from which small pieces are cut.
#[derive(Debug)]
struct Chunk {
    region: Region,
    map: DmaMap,
    free: Mutex<Ranges>,
}

/// Origin of a piece, to which it returns.
#[derive(Debug)]
enum BlockOrigin {
    Chunk(Arc<Chunk>, u64),
    Own(#[expect(dead_code, reason = "dropped with the buffer")] DmaMap),
}

impl DmaAlloc {
    pub(crate) fn new(space: Arc<dyn DmaSpace>, pages: RingPages) -> Arc<Self> {
        let mut iovas = Ranges::default();
        for (first, last) in space.ranges() {
            // Address 0 stays unused: a register that was never written must not name memory.
            iovas.give(first.max(PAGE), last.saturating_add(1));
        }
        Arc::new(Self { space, pages, iovas: Mutex::new(iovas), chunks: Mutex::default() })
    }

    /// Allocates `len` zeroed bytes, aligned to 4096 (to 256 if less than a page).
    ///
    /// # Errors
    /// `NoMemory`: the process or the device's address space has no room. `Fail`: the backing
    /// cannot reach shared memory.
    pub(crate) fn alloc(self: &Arc<Self>, len: usize) -> Result<DmaBuf, Status> {
        if len >= OWN_REGION_MIN {
            let (region, map) = self.new_region(len)?;
            return Ok(DmaBuf { iova: map.iova, region, home: BlockOrigin::Own(map) });
        }
        let mut chunks = lock(&self.chunks);
        chunks.retain(|chunk| chunk.strong_count() > 0);
        if let Some(buf) = chunks.iter().filter_map(Weak::upgrade).find_map(|c| c.cut(len)) {
            return Ok(buf);
        }
        let (region, map) = self.new_region(CHUNK_LEN)?;
        let mut free = Ranges::default();
        free.give(0, CHUNK_LEN as u64);
        let chunk = Arc::new(Chunk { region, map, free: Mutex::new(free) });
        let buf = chunk.cut(len).ok_or(Status::Fail)?;
        chunks.push(Arc::downgrade(&chunk));
        Ok(buf)
    }

    /// Makes `region` reachable for the device. The device address keeps the offset within a page.
    ///
    /// # Errors
    /// `NoMemory`: no device addresses are left. `Invalid`: the backing cannot reach this memory.
    pub(crate) fn map(
        self: &Arc<Self>,
        region: &Region,
        access: DmaAccess,
    ) -> Result<DmaMap, Status> {
        let len = region.len() as u64;
        let offset = region.addr() as u64 % PAGE;
        let align = if len >= HUGE { HUGE } else { PAGE };
        let iova = lock(&self.iovas).take(len, align, offset).ok_or(Status::NoMemory)?;
        if let Err(error) = self.space.map(iova, region, access) {
            lock(&self.iovas).give(iova, iova + len);
            tracing::warn!(%error, len, "the device cannot reach memory");
            return Err(status_of(&error));
        }
        Ok(DmaMap { alloc: Arc::clone(self), iova, len })
    }

    fn new_region(self: &Arc<Self>, len: usize) -> Result<(Region, DmaMap), Status> {
        let huge = self.pages == RingPages::Huge && len as u64 >= HUGE;
        let region = if huge {
            Region::shared(len, Pages::Huge2M).or_else(|error| {
                tracing::info!(%error, len, "no huge pages; base pages instead");
                Region::shared(len, Pages::Base)
            })
        } else {
            Region::shared(len, Pages::Base)
        };
        let region = region.map_err(|error| {
            tracing::warn!(%error, len, "memory for rings cannot be allocated");
            Status::NoMemory
        })?;
        let map = self.map(&region, DmaAccess::Both)?;
        Ok((region, map))
    }
}

impl Chunk {
    fn cut(self: &Arc<Self>, len: usize) -> Option<DmaBuf> {
        let align = if len as u64 >= PAGE { PAGE } else { SMALL_ALIGN };
        let at = lock(&self.free).take(len as u64, align, 0)?;
        let region = usize::try_from(at).ok().and_then(|at| self.region.sub(at, len).ok())?;
        // The piece may have served another queue: owner bits must start at zero.
        region.zero(0, len).ok()?;
        Some(DmaBuf {
            region,
            iova: self.map.iova + at,
            home: BlockOrigin::Chunk(Arc::clone(self), at),
        })
    }
}

impl DmaBuf {
    /// Returns the memory that the driver reads and writes.
    pub(crate) fn region(&self) -> &Region {
        &self.region
    }

    /// Returns the address by which the device reaches the memory.
    pub(crate) fn iova(&self) -> u64 {
        self.iova
    }
}

impl DmaMap {
    /// Device address of the first byte.
    pub(crate) fn iova(&self) -> u64 {
        self.iova
    }
}

impl Drop for DmaBuf {
    fn drop(&mut self) {
        if let BlockOrigin::Chunk(chunk, at) = &self.home {
            lock(&chunk.free).give(*at, *at + self.region.len() as u64);
        }
    }
}

impl Drop for DmaMap {
    fn drop(&mut self) {
        match self.alloc.space.unmap(self.iova) {
            Ok(()) => lock(&self.alloc.iovas).give(self.iova, self.iova + self.len),
            // A closed device reaches nothing.
            Err(BackingError::Gone(_)) => {}
            // The addresses stay taken: the device may still reach the memory behind them.
            Err(error) => {
                tracing::warn!(%error, iova = self.iova, "the device did not unmap the memory of a ring");
            }
        }
    }
}

/// The status for an error of a backing.
pub(crate) fn status_of(error: &BackingError) -> Status {
    match error {
        BackingError::IovaTaken { .. } | BackingError::IovaRange { .. } => Status::NoMemory,
        BackingError::NotMapped(_) | BackingError::Unreachable(_) => {
            Status::Invalid.why(format_args!("{error}"))
        }
        BackingError::Os(error) if error.raw_os_error() == Some(EDQUOT) => Status::Quota,
        BackingError::Vector(_) | BackingError::Os(_) => Status::NoMemory,
        BackingError::Gone(_) => Status::NoDevice,
    }
}

/// Locks. After a panic of another thread under the lock the data are still valid, since every critical section of
/// this crate leaves its data whole at each step.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Linux error number of a quota that is used up.
const EDQUOT: i32 = 122;
const PAGE: u64 = 4096;
const HUGE: u64 = 2 << 20;
/// A record's alignment: it keeps producer and consumer words on their own cache lines.
const SMALL_ALIGN: u64 = 256;
/// Pieces of at least this size get a region of their own.
const OWN_REGION_MIN: usize = 512 << 10;
/// Size of a chunk: one huge page.
const CHUNK_LEN: usize = 2 << 20;

/// Free ranges by start; `start -> end` (exclusive).
#[derive(Debug, Default)]
pub(crate) struct Ranges {
    free: BTreeMap<u64, u64>,
}

impl Ranges {
    /// Makes `start..end` free. Joins neighbours.
    pub(crate) fn give(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        let (mut start, mut end) = (start, end);
        if let Some((&before, &before_end)) = self.free.range(..=start).next_back()
            && before_end >= start
        {
            start = before;
            end = end.max(before_end);
            self.free.remove(&before);
        }
        while let Some((&after, &after_end)) = self.free.range(start..=end).next() {
            end = end.max(after_end);
            self.free.remove(&after);
        }
        self.free.insert(start, end);
    }

    /// Takes `len` from the lowest start that is `offset` past a multiple of `align` (a power of
    /// two). `None` when no free range is large enough.
    pub(crate) fn take(&mut self, len: u64, align: u64, offset: u64) -> Option<u64> {
        let found = self.free.iter().find_map(|(&start, &end)| {
            let base = start.saturating_sub(offset).checked_next_multiple_of(align)?;
            let at = base.checked_add(offset)?;
            let last = at.checked_add(len)?;
            (last <= end).then_some((start, end, at, last))
        });
        let (start, end, at, last) = found?;
        self.free.remove(&start);
        if start < at {
            self.free.insert(start, at);
        }
        if last < end {
            self.free.insert(last, end);
        }
        Some(at)
    }

    /// Whether exactly `start..end` is free, in one piece.
    #[cfg(test)]
    fn is_whole(&self, start: u64, end: u64) -> bool {
        self.free.len() == 1 && self.free.get(&start) == Some(&end)
    }
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "small numbers index a vector")]
mod tests {
    use proptest::prelude::*;

    use super::Ranges;

    #[test]
    fn offset_within_a_page_is_kept() {
        let mut ranges = Ranges::default();
        ranges.give(0x1001, 0x10_000);
        assert_eq!(ranges.take(0x10, 0x1000, 0x123), Some(0x1123));
        assert_eq!(ranges.take(0x10, 0x1000, 0x123), Some(0x2123));
        assert_eq!(ranges.take(0x10_000, 1, 0), None);
    }

    proptest! {
        #[test]
        fn taken_ranges_never_overlap_and_all_come_back(
            ops in prop::collection::vec((1u64..300, 0u32..7, any::<bool>(), any::<prop::sample::Index>()), 1..200),
        ) {
            let mut ranges = Ranges::default();
            ranges.give(100, 4196);
            let mut owner = vec![false; 5000];
            let mut held: Vec<(u64, u64)> = Vec::new();
            for (len, align, is_take, index) in ops {
                if is_take || held.is_empty() {
                    let Some(at) = ranges.take(len, 1 << align, 0) else { continue };
                    prop_assert_eq!(at % (1 << align), 0);
                    prop_assert!(at >= 100 && at + len <= 4196);
                    for n in at..at + len {
                        prop_assert!(!std::mem::replace(&mut owner[n as usize], true));
                    }
                    held.push((at, at + len));
                } else {
                    let (start, end) = held.swap_remove(index.index(held.len()));
                    owner[start as usize..end as usize].fill(false);
                    ranges.give(start, end);
                }
            }
            for (start, end) in held {
                ranges.give(start, end);
            }
            prop_assert!(ranges.is_whole(100, 4196));
        }
    }
}
