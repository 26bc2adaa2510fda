//! Registered memory of this node: local contexts by token id, and its entries in the table that peers read.
//!
//! Contexts are found without a lock. Must not free an index that a peer may touch.
//!
//! ```text
//! entry: 0 generation (odd = valid), 1 va, 2 len, 3 va of the largest shared extent, 4 its length,
//!        5 its offset in the arena, 6 access 8 | has token 1 << 8 | lies in a file 1 << 9 | further extents 8 << 16
//!        | token value << 32, 7 address of the memory in this process (0: not to be read there)
//! further extents: va, len, offset in the arena of each, the longest first; of a segment that lies in a file instead:
//!        descriptor in this process, device, inode, offset in the file of its first byte
//! ```

use std::{
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use arc_swap::ArcSwapOption;
use udma_abi::cmd::Access;
use urma_mem::{
    FilePlace, HeldMemory, Region,
    ends::EndCount,
    hazard::Generation,
    sync::{AtomicBool, Ordering},
};

use super::{
    function::{FunctionId, fits},
    table::IdTable,
};
use crate::{
    ports::{SharedExtent, SharedMemory},
    share::{EXTENT_LEN, EXTENTS, EXTENTS_LEN, NODE_EXTENTS, NODE_SEGMENTS, SEGMENT_LEN, SEGMENTS},
};

/// The extent of a segment that shares nothing.
const NOTHING: SharedExtent = SharedExtent { va: 0, len: 0, offset: 0 };

/// Bit of the packed word: the segment lies in a file.
const FILE_BIT: u32 = 9;

/// Words of an entry.
pub(crate) const ENTRY_WORDS: usize = SEGMENT_LEN / 8;

/// Registration of a segment, from register to withdrawal.
#[derive(Debug)]
pub(crate) struct LocalSegment {
    /// Function that registered it.
    pub(crate) owner: FunctionId,
    pub(crate) token_id: u32,
    pub(crate) va: u64,
    pub(crate) len: u64,
    /// Its memory; offset 0 is `va`.
    pub(crate) region: Region,
    /// The same memory, for accesses of peers.
    pub(crate) memory: HeldMemory,
    pub(crate) access: Access,
    pub(crate) token: Option<u32>,
    /// Generation under which it is published.
    pub(crate) life: u64,
    /// Its pages were shared with peers; stays set when the token is invalidated.
    pub(crate) shared: bool,
    /// Whether peers on this host find pages of it in the arena.
    pub(crate) has_extents: bool,
    /// Whether peers on this host find it in a file.
    pub(crate) has_file: bool,
    /// Ranges that cannot be read.
    poison: Poison,
    /// Cleared when it is unregistered; checked before each use of a cached reference.
    live: AtomicBool,
}

impl LocalSegment {
    #[inline]
    pub(crate) fn is_live(&self) -> bool {
        self.live.load(Ordering::Acquire)
    }

    /// Whether some of it cannot be read.
    pub(crate) fn has_poison(&self) -> bool {
        !self.poison.is_empty()
    }

    /// Whether a read of `len` bytes at `va`, which are in bounds, meets a memory fault.
    #[inline]
    pub(crate) fn is_poisoned(&self, va: u64, len: u64) -> bool {
        !self.poison.is_empty() && self.poison.meets(va.wrapping_sub(self.va), len)
    }

    /// Offset of `len` bytes at `va`, if they are in bounds.
    #[inline]
    pub(crate) fn offset_of(&self, va: u64, len: u64) -> Option<usize> {
        offset_in(self.va, self.len, va, len).and_then(|offset| usize::try_from(offset).ok())
    }
}

/// Offset of `len` bytes at `va` in the range of `range_len` bytes from `start`.
#[inline]
pub(crate) fn offset_in(start: u64, range_len: u64, va: u64, len: u64) -> Option<u64> {
    let offset = va.checked_sub(start)?;
    let room = range_len.checked_sub(offset)?;
    (len <= room).then_some(offset)
}

/// All registrations of this node.
#[derive(Debug)]
pub(crate) struct SegmentTable {
    /// Registrations by token index (tid).
    slots: IdTable<ArcSwapOption<LocalSegment>>,
    node: Region,
    marks: Marks,
    ends: Arc<EndCount>,
}

/// Arguments of [`SegmentTable::publish`], for one registration.
#[derive(Debug)]
pub(crate) struct NewSegment {
    pub(crate) owner: FunctionId,
    pub(crate) token_id: u32,
    pub(crate) va: u64,
    pub(crate) region: Region,
    pub(crate) memory: HeldMemory,
    pub(crate) access: Access,
    pub(crate) token: Option<u32>,
    pub(crate) shared: bool,
}

impl SegmentTable {
    /// Creates the table; each end of a registration bumps `ends`.
    pub(crate) fn new(node: Region, ends: Arc<EndCount>) -> Self {
        Self { slots: IdTable::new(), node, marks: Marks::default(), ends }
    }

    /// The live registration of a token id.
    #[inline]
    pub(crate) fn find(&self, token_id: u32) -> Option<Arc<LocalSegment>> {
        self.slot(tid_of(token_id)?)?.load_full().filter(|s| s.is_live())
    }

    /// Publishes a registration here and to peers. Shared extents are in the segment's addresses, the longest first;
    /// those beyond the table's room are not published. Memory with faults is reached only through its owner.
    pub(crate) fn publish(&self, new: NewSegment, shared: &SharedMemory) -> Option<()> {
        let extents = &shared.extents;
        let tid = tid_of(new.token_id)?;
        let slot = self.slots.get_or_make(u32::try_from(tid).ok()?, ArcSwapOption::empty)?;
        let generation = self.generation(tid)?;
        let poison = self.marks.of(&new.region);
        let is_open = poison.is_empty();
        let (largest, more) = extents.split_first().filter(|_| is_open).unwrap_or((&NOTHING, &[]));
        let more = more.get(..EXTENTS).unwrap_or(more);
        let file = shared.file.filter(|_| is_open);
        let addr = if is_open { new.region.addr() as u64 } else { 0 };
        let segment = LocalSegment {
            owner: new.owner,
            token_id: new.token_id,
            life: generation.load() + 1,
            va: new.va,
            len: new.region.len() as u64,
            region: new.region,
            memory: new.memory,
            access: new.access,
            token: new.token,
            shared: new.shared,
            has_extents: largest.len != 0,
            has_file: file.is_some(),
            poison,
            live: AtomicBool::new(true),
        };
        let rights = u64::from(segment.access.bits())
            | u64::from(segment.token.is_some()) << 8
            | u64::from(file.is_some()) << FILE_BIT
            | (more.len() as u64) << 16
            | u64::from(segment.token.unwrap_or(0)) << 32;
        let SharedExtent { va, len, offset } = *largest;
        let words = [segment.va, segment.len, va, len, offset, rights, addr];
        self.node.store_block(entry_offset(tid) + 8, &words).ok()?;
        for (index, SharedExtent { va, len, offset }) in more.iter().copied().enumerate() {
            self.node.store_block(extent_offset(tid, index), &[va, len, offset]).ok()?;
        }
        if let Some(FilePlace { descriptor, device, inode, offset }) = file {
            let words = [u64::from(descriptor), device, inode, offset];
            self.node.store_block(extent_offset(tid, 0), &words).ok()?;
        }
        slot.store(Some(Arc::new(segment)));
        generation.revive().ok()?;
        Some(())
    }

    /// Ends the life of a registration: no new request uses it.
    pub(crate) fn kill(&self, token_id: u32) -> Option<Arc<LocalSegment>> {
        let tid = tid_of(token_id)?;
        let segment = self.slot(tid)?.swap(None)?;
        segment.live.store(false, Ordering::SeqCst);
        self.ends.count();
        self.generation(tid)?.kill().ok()?;
        Some(segment)
    }

    /// Folds all live registrations, in the order of their token ids.
    pub(crate) fn fold<T>(&self, first: T, f: impl Fn(T, &LocalSegment) -> T) -> T {
        let live = self.slots.iter().filter_map(ArcSwapOption::load_full).filter(|s| s.is_live());
        live.fold(first, |folded, segment| f(folded, &segment))
    }

    /// The part of a registration of this node at `addr` of this process.
    pub(crate) fn memory_at(&self, addr: usize, len: usize) -> Option<Region> {
        self.slots.iter().filter_map(ArcSwapOption::load_full).find_map(|segment| {
            let offset = addr.checked_sub(segment.region.addr())?;
            segment.region.sub(offset, len).ok()
        })
    }

    /// Withdraws the remote rights of a registration of `owner` if `token` is its token (SEND_INVALIDATE). Its owner
    /// continues to use it, and unregisters it as usual. Returns whether it did.
    pub(crate) fn invalidate(&self, owner: FunctionId, token_id: u32, token: u32) -> bool {
        let is_guarded = |s: &LocalSegment| s.token.is_some() && fits(s.token, Some(token));
        let guarded = self.find(token_id).is_some_and(|s| s.owner == owner && is_guarded(&s));
        guarded && self.replace(token_id, |_| Access::LOCAL_ONLY)
    }

    /// Marks memory as bad, and starts a new life of the registrations there that knows the marks.
    pub(crate) fn poison(&self, addr: usize, len: usize) {
        let pages = self.marks.add(addr, len);
        let segments = self.slots.iter().filter_map(ArcSwapOption::load_full);
        for segment in segments {
            let start = segment.region.addr();
            if start < pages.end && pages.start < start + segment.region.len() {
                self.replace(segment.token_id, |access| access);
            }
        }
    }

    /// Starts a new life of a registration, with other rights and nothing shared.
    fn replace(&self, token_id: u32, rights: impl FnOnce(Access) -> Access) -> bool {
        let Some(old) = self.kill(token_id) else { return false };
        let new = NewSegment {
            owner: old.owner,
            token_id,
            va: old.va,
            region: old.region.clone(),
            memory: old.memory.clone(),
            access: rights(old.access),
            token: old.token,
            shared: old.shared,
        };
        self.publish(new, &SharedMemory::default()).is_some()
    }

    #[inline]
    fn slot(&self, tid: usize) -> Option<&ArcSwapOption<LocalSegment>> {
        self.slots.get(u32::try_from(tid).ok()?)
    }

    fn generation(&self, tid: usize) -> Option<Generation> {
        Generation::new(&self.node, entry_offset(tid)).ok()
    }
}

/// Offset of an entry in a node region.
pub(crate) const fn entry_offset(tid: usize) -> usize {
    NODE_SEGMENTS + tid * SEGMENT_LEN
}

/// Offset of a further extent in a node region.
pub(crate) const fn extent_offset(tid: usize, index: usize) -> usize {
    NODE_EXTENTS + tid * EXTENTS_LEN + index * EXTENT_LEN
}

/// The place of a segment in a file, from a node region whose entry has the packed word `packed`; `None`: it is in no
/// file.
pub(crate) fn file_place(node: &Region, tid: usize, packed: u64) -> Option<FilePlace> {
    if packed >> FILE_BIT & 1 == 0 {
        return None;
    }
    let [descriptor, device, inode, offset] = node.load_block(extent_offset(tid, 0)).ok()?;
    Some(FilePlace { descriptor: u32::try_from(descriptor).ok()?, device, inode, offset })
}

/// The table index of a token id; `None`: no table has it.
#[inline]
pub(crate) const fn tid_of(token_id: u32) -> Option<usize> {
    let tid = (token_id >> 8) as usize;
    if token_id & 0xff == 0 && tid != 0 && tid < SEGMENTS { Some(tid) } else { None }
}

/// A small cache of registrations for one engine, which looks up the table only on a miss. It finds those of one
/// function, or of all.
#[derive(Debug)]
pub(crate) struct SegmentCache {
    owner: FunctionId,
    slots: [Option<Arc<LocalSegment>>; CACHE],
}

const CACHE: usize = 8;

impl SegmentCache {
    /// Creates a cache for segments of `owner` alone.
    pub(crate) fn of(owner: FunctionId) -> Self {
        Self { owner, slots: Default::default() }
    }

    /// Creates a cache for segments of all functions, for accesses that show a token.
    pub(crate) fn of_any() -> Self {
        Self::of(FunctionId::ANY)
    }

    /// Function whose segments it finds.
    pub(crate) fn owner(&self) -> FunctionId {
        self.owner
    }

    /// From now on finds only segments of `owner`.
    #[inline]
    pub(crate) fn turn_to(&mut self, owner: FunctionId) -> &mut Self {
        if self.owner != owner {
            *self = Self::of(owner);
        }
        self
    }

    /// Looks up the live registration of a token id.
    // With several callers `inline` alone leaves a call on the path of an 8-byte WRITE.
    #[inline(always)]
    pub(crate) fn find(&mut self, table: &SegmentTable, token_id: u32) -> Option<&LocalSegment> {
        let slot = &mut self.slots[(token_id >> 8) as usize % CACHE];
        let hit = slot.as_ref().is_some_and(|s| s.token_id == token_id && s.is_live());
        if !hit {
            let is_meant = |found: &Arc<LocalSegment>| {
                self.owner == FunctionId::ANY || found.owner == self.owner
            };
            *slot = table.find(token_id).filter(is_meant);
        }
        slot.as_deref()
    }

    /// The live registration of a token id, if it is in the cache.
    #[inline]
    pub(crate) fn known(&self, token_id: u32) -> Option<&LocalSegment> {
        let slot = self.slots[(token_id >> 8) as usize % CACHE].as_deref()?;
        (slot.token_id == token_id && slot.is_live()).then_some(slot)
    }

    /// The live registration of a token id, if it is in the cache, as a counted reference.
    pub(crate) fn known_arc(&self, token_id: u32) -> Option<Arc<LocalSegment>> {
        let slot = self.slots[(token_id >> 8) as usize % CACHE].as_ref()?;
        (slot.token_id == token_id && slot.is_live()).then(|| Arc::clone(slot))
    }

    /// Drops references to dead registrations.
    pub(crate) fn drop_dead(&mut self) {
        for slot in &mut self.slots {
            if slot.as_ref().is_some_and(|s| !s.is_live()) {
                *slot = None;
            }
        }
    }
}

/// Size in bytes of what is marked together.
const PAGE: usize = 4096;

/// Marked memory of a node, in addresses of this process.
///
/// Tests mark it as memory that cannot be read, to plant faults. Without marks a read pays for one check only.
#[derive(Debug, Default)]
pub(crate) struct Marks(Mutex<Vec<Range<usize>>>);

/// Marked ranges of one registration, as offsets; usually empty, and then without an allocation.
#[derive(Debug, Default)]
pub(crate) struct Poison(Box<[Range<u64>]>);

impl Marks {
    /// Marks the whole pages that `len` bytes at `addr` touch.
    pub(crate) fn add(&self, addr: usize, len: usize) -> Range<usize> {
        let first = addr - addr % PAGE;
        let end = addr.saturating_add(len).checked_next_multiple_of(PAGE).unwrap_or(usize::MAX);
        let pages = first..end;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(pages.clone());
        pages
    }

    /// The marks within a region.
    pub(crate) fn of(&self, region: &Region) -> Poison {
        let (start, end) = (region.addr(), region.addr() + region.len());
        let marks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let clipped = marks.iter().map(|m| m.start.max(start)..m.end.min(end));
        let inside = clipped.filter(|m| m.start < m.end);
        Poison(inside.map(|m| (m.start - start) as u64..(m.end - start) as u64).collect())
    }
}

impl Poison {
    /// Whether no range is marked as poisoned.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether any of `len` bytes at `offset` is marked.
    #[cold]
    pub(crate) fn meets(&self, offset: u64, len: u64) -> bool {
        let end = offset.saturating_add(len);
        self.0.iter().any(|mark| mark.start < end && offset < mark.end)
    }
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::share::NODE_LEN;

    const NONE: SharedMemory = SharedMemory { extents: Vec::new(), file: None };

    /// A page that the first function may let others read.
    fn readable(token_id: u32) -> NewSegment {
        let region = Region::private(4096).expect("memory");
        NewSegment {
            owner: FunctionId::FIRST,
            token_id,
            va: 0x1000,
            memory: HeldMemory::plain(&region),
            region,
            access: Access::READ,
            token: Some(7),
            shared: false,
        }
    }

    #[test]
    fn ranges_are_checked_without_overflow() {
        assert_eq!(offset_in(100, 10, 100, 10), Some(0));
        assert_eq!(offset_in(100, 10, 101, 10), None);
        assert_eq!(offset_in(100, 10, 99, 1), None);
        assert_eq!(offset_in(100, 10, u64::MAX, 2), None);
        assert_eq!(offset_in(100, 10, 109, u64::MAX), None);
        assert_eq!(offset_in(100, 10, 110, 0), Some(10));
    }

    #[test]
    fn a_killed_segment_is_gone_from_table_and_caches() {
        let node = Region::private(NODE_LEN).unwrap();
        let table = SegmentTable::new(node.clone(), Arc::default());
        let mut cache = SegmentCache::of(FunctionId::FIRST);
        assert!(table.publish(readable(5 << 8), &NONE).is_some());
        assert_eq!(node.load_u64(entry_offset(5)).unwrap() & 1, 1);
        assert!(cache.find(&table, 5 << 8).is_some());
        assert!(cache.find(&table, (5 << 8) + 1).is_none());
        assert!(cache.find(&table, 13 << 8).is_none());
        assert!(cache.find(&table, 5 << 8).is_some());
        assert!(table.kill(5 << 8).is_some());
        assert!(cache.find(&table, 5 << 8).is_none());
        assert_eq!(node.load_u64(entry_offset(5)).unwrap() & 1, 0);
        assert!(table.kill(5 << 8).is_none());
    }

    #[test]
    fn known_contexts_are_those_found_before_and_alive() {
        let table = SegmentTable::new(Region::private(NODE_LEN).unwrap(), Arc::default());
        let mut cache = SegmentCache::of(FunctionId::FIRST);
        let token_id = 5 << 8;
        assert!(table.publish(readable(token_id), &NONE).is_some());
        assert!(cache.known(token_id).is_none());
        assert!(cache.find(&table, token_id).is_some());
        assert!(cache.known(token_id).is_some());
        assert!(cache.known(token_id + (8 << 8)).is_none());
        assert!(table.kill(token_id).is_some());
        assert!(cache.known(token_id).is_none());
    }

    #[test]
    fn an_invalidated_segment_keeps_its_owner_only() {
        let table = SegmentTable::new(Region::private(NODE_LEN).unwrap(), Arc::default());
        let token_id = 5 << 8;
        let new = NewSegment { shared: true, ..readable(token_id) };
        assert!(table.publish(new, &NONE).is_some());
        let before = table.find(token_id).unwrap();
        assert!(!table.invalidate(FunctionId::FIRST, token_id, 8), "a wrong token changes nothing");
        assert!(!table.invalidate(FunctionId::new(1), token_id, 7), "of another function");
        assert!(before.is_live());
        assert!(table.invalidate(FunctionId::FIRST, token_id, 7));
        assert!(!before.is_live());
        let after = table.find(token_id).unwrap();
        assert_eq!((after.access, after.shared), (Access::LOCAL_ONLY, true));
        assert_ne!(after.life, before.life);
    }

    #[test]
    fn a_cache_of_a_function_finds_no_segment_of_another() {
        let table = SegmentTable::new(Region::private(NODE_LEN).unwrap(), Arc::default());
        let owners = [FunctionId::FIRST, FunctionId::new(1)];
        for (owner, token_id) in owners.into_iter().zip([5 << 8, 6 << 8]) {
            let new = NewSegment { owner, ..readable(token_id) };
            assert!(table.publish(new, &NONE).is_some());
        }
        let mut cache = SegmentCache::of(owners[1]);
        assert!(cache.find(&table, 5 << 8).is_none() && cache.find(&table, 6 << 8).is_some());
        cache.turn_to(owners[0]);
        assert!(cache.known(6 << 8).is_none(), "nothing is kept of the other one");
        assert!(cache.find(&table, 5 << 8).is_some() && cache.find(&table, 6 << 8).is_none());
        let mut any = SegmentCache::of_any();
        assert!(any.find(&table, 5 << 8).is_some() && any.find(&table, 6 << 8).is_some());
    }

    #[test]
    fn pages_are_marked_as_a_whole_and_clipped_to_the_region() {
        let marks = Marks::default();
        let all = Region::private(4 * PAGE).unwrap();
        assert!(marks.of(&all).is_empty());
        let pages = marks.add(all.addr() + PAGE + 17, 1);
        assert_eq!(pages, all.addr() + PAGE..all.addr() + 2 * PAGE);
        let poison = marks.of(&all);
        let page = PAGE as u64;
        assert!(!poison.meets(0, page), "the page before");
        assert!(poison.meets(0, page + 1));
        assert!(poison.meets(2 * page - 1, 1));
        assert!(!poison.meets(2 * page, page), "the page after");
        assert!(poison.meets(0, u64::MAX));
        let half = all.sub(PAGE + PAGE / 2, PAGE).unwrap();
        let poison = marks.of(&half);
        assert!(poison.meets(page / 2 - 1, 1));
        assert!(!poison.meets(page / 2, page));
        assert!(marks.of(&all.sub(2 * PAGE, PAGE).unwrap()).is_empty());
    }
}
