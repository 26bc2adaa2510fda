//! A target segment that can be touched directly: announced, checked, touched, checked again.
//!
//! *Owns*: one hazard slot and a few entries per path, memory for reads through the kernel.
//! *Takes*: what a request names. *Gives*: the bytes, for the length of one closure. *Must not*:
//! touch a byte before every check passed; hold an announcement between two chunks.

use std::sync::{Arc, Weak};

use udma_abi::{CqeStatus, cmd::Access};
use urma_mem::hazard::{Announced, CHUNK_MAX, Generation, HazardSlot, SLOT_LEN, is_live};
use urma_mem::{FilePlace, FileWindow, Region};

use super::known::{KnownMemory, LifeProof};
use super::names;
use super::pass_length::PassLength;
use crate::context::function::FunctionId;
use crate::context::guesses::GuessBudget;
use crate::context::link::{DirectParts, NodePath, Reach};
use crate::context::segment::{
    ENTRY_WORDS, LocalSegment, SegmentCache, SegmentTable, entry_offset, extent_offset, file_place,
    offset_in, tid_of,
};
use crate::context::token::fits;
use crate::fault::Faults;
use crate::hooks::{self, Hook};
use crate::ports::{SegmentLife, SharedExtent};
use crate::share::layout::{EXTENTS, HALF_SLOTS, HALF_SLOTS_USED, SLOTS};

/// What a request wants of a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Want {
    pub(crate) token_id: u32,
    pub(crate) token: Option<u32>,
    pub(crate) va: u64,
    pub(crate) len: u64,
    pub(crate) right: Access,
    /// Generation that the first chunk saw; 0 for the first.
    pub(crate) life: u64,
}

/// Result of one access to a peer's memory.
#[derive(Debug)]
pub(crate) enum AccessResult<T> {
    /// Touched; the generation under which that was.
    Yes(T, u64),
    /// Allowed, as far as one can see from here, but not reachable directly.
    NotDirect,
}

/// Where bytes came that the kernel brought.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Landed<'a> {
    /// Where they were wanted.
    InPlace,
    /// At the start of this memory.
    At(&'a Region),
}

/// State of one path in a send queue.
#[derive(Debug)]
pub(crate) struct PathState {
    pub(crate) link: Arc<NodePath>,
    /// Requests handed over and not ended.
    pub(crate) outstanding: u32,
    /// Target of all of them, when it is the same one.
    pub(crate) target: u32,
    /// Which target took a message by what it was shown.
    pub(crate) admission: AdmissionCache,
    /// How far its long writes have come.
    pub(crate) pass_length: PassLength,
    slot: Option<HazardSlot>,
    views: [Option<View>; VIEWS],
    /// Of the path to this node: its segments that were written or read.
    own: SegmentCache,
    /// Of a client's function: which segments are its own, and how often it may be refused those of others.
    guard: Option<(FunctionId, Arc<GuessBudget>)>,
    /// Where bytes that came through the kernel wait for the last check; made at the first use.
    landing: Option<Region>,
}

/// Whether a queue of the peer takes this one's messages. Its token is not in shared memory, so a
/// write with immediate places its payload directly only after the peer took such a message.
#[derive(Debug, Default)]
pub(crate) struct AdmissionCache {
    /// Request that asks, and what it shows.
    asked: Option<(u32, u64)>,
    /// What was shown in a message that the peer took.
    proven: Option<u64>,
}

impl AdmissionCache {
    #[inline]
    pub(crate) fn is_proven(&self, shown: u64) -> bool {
        self.proven == Some(shown)
    }

    /// Request `seq` shows this.
    pub(crate) fn on_asked(&mut self, seq: u32, shown: u64) {
        self.asked = Some((seq, shown));
    }

    /// A request on this path ended.
    pub(crate) fn on_ended(&mut self, seq: u32, status: CqeStatus) {
        if status != CqeStatus::Success {
            self.proven = None;
        } else if let Some((_, shown)) = self.asked.take_if(|(asked, _)| *asked == seq) {
            self.proven = Some(shown);
        }
    }
}

const VIEWS: usize = 8;

/// A peer's entry as it was under one generation.
#[derive(Debug)]
pub(super) struct View {
    pub(super) token_id: u32,
    pub(super) imported: u64,
    pub(super) generation: Generation,
    rights: Rights,
    shared: SharedExtent,
    /// Shared as well, but shorter.
    more: Box<[SharedExtent]>,
    /// Of `rights.va` in its owner's process; 0: not to be read there.
    address: u64,
    /// Where it lies in a file; with the file once it was mapped. `None` also when it cannot be.
    file: Option<(FilePlace, Weak<FileWindow>)>,
}

/// The part that decides.
#[derive(Clone, Copy, Debug)]
struct Rights {
    va: u64,
    len: u64,
    access: Access,
    token: Option<u32>,
}

impl PathState {
    /// `slot` is the index of this queue's hazard slot.
    pub(crate) fn new(link: Arc<NodePath>, slot: usize) -> Self {
        let hazard = match &link.reach {
            Reach::Direct(parts) if slot < SLOTS => slot_in(&parts.half, slot),
            Reach::Own | Reach::Direct(_) | Reach::Messages | Reach::Standard => None,
        };
        Self {
            link,
            outstanding: 0,
            target: 0,
            admission: AdmissionCache::default(),
            pass_length: PassLength::default(),
            slot: hazard,
            views: Default::default(),
            own: SegmentCache::of_any(),
            guard: None,
            landing: None,
        }
    }

    /// Requests that were handed over end now: what they named is not to be read any more.
    pub(crate) fn take_names_back(&self) {
        if let (Reach::Direct(parts), true) = (&self.link.reach, self.outstanding != 0) {
            names::take_back(&parts.half);
        }
    }

    /// Nothing keeps a dead segment alive through this path.
    pub(crate) fn forget_dead(&mut self) {
        self.own.drop_dead();
    }

    /// Runs `touch(memory, offset of want.va)` under the protection of the slot.
    #[inline]
    pub(crate) fn reach<T>(
        &mut self,
        table: &SegmentTable,
        faults: Faults,
        want: &Want,
        touch: impl FnOnce(&Region, usize) -> Result<T, CqeStatus>,
    ) -> Result<AccessResult<T>, CqeStatus> {
        let Some(place) = self.own_place(table, faults, want) else {
            return self.reach_peer(faults, want, touch);
        };
        let (segment, offset) = place?;
        Ok(AccessResult::Yes(touch(&segment.region, offset)?, segment.life))
    }

    /// As [`PathState::reach`], on a path to another node.
    #[inline(always)]
    pub(crate) fn reach_peer<T>(
        &mut self,
        faults: Faults,
        want: &Want,
        touch: impl FnOnce(&Region, usize) -> Result<T, CqeStatus>,
    ) -> Result<AccessResult<T>, CqeStatus> {
        let (Reach::Direct(parts), Some(slot)) = (&self.link.reach, &mut self.slot) else {
            return Ok(AccessResult::NotDirect);
        };
        let view = &mut self.views[(want.token_id >> 8) as usize % VIEWS];
        reach_peer(slot, view, (parts, faults), want, touch)
    }

    /// The memory that the request before this call reached in segment `token_id`, for requests like it: of a
    /// peer's, the largest shared extent as far as it lies in the segment.
    #[cold]
    pub(super) fn known_memory(&self, token_id: u32) -> Option<(KnownMemory, LifeProof)> {
        let parts = match &self.link.reach {
            Reach::Own => {
                let segment = self.own.known_arc(token_id)?;
                let memory = KnownMemory { va: segment.va, region: segment.region.clone() };
                return Some((memory, LifeProof::Own(segment)));
            }
            Reach::Direct(parts) => parts,
            Reach::Messages | Reach::Standard => return None,
        };
        let view = self.views[(token_id >> 8) as usize % VIEWS].as_ref()?;
        let (rights, shared) = (view.rights, &view.shared);
        let va = rights.va.max(shared.va);
        let end = rights.va.checked_add(rights.len)?.min(shared.va.checked_add(shared.len)?);
        let offset = usize::try_from(shared.offset.checked_add(va - shared.va)?).ok()?;
        let len = usize::try_from(end.checked_sub(va)?).ok()?;
        let memory = KnownMemory { va, region: parts.arena.sub(offset, len).ok()? };
        let (slot, generation) = (self.slot.clone()?, view.generation.clone());
        let life = view.imported;
        Some((memory, LifeProof::Peer { slot, token_id, generation, life }))
    }

    /// Where what is wanted is in a segment of this node, after all checks; `None`: the path goes to
    /// another node. Unregistering visits every engine, so no announcement is needed.
    #[inline(always)]
    pub(crate) fn own_place(
        &mut self,
        table: &SegmentTable,
        faults: Faults,
        want: &Want,
    ) -> Option<Result<(&LocalSegment, usize), CqeStatus>> {
        let Reach::Own = self.link.reach else { return None };
        if self.guard.is_some() {
            return Some(self.guarded_place(table, faults, want));
        }
        Some(own_place(&mut self.own, table, faults, want))
    }

    /// As [`PathState::own_place`], of a client's function: tokens of others cannot be tried fast.
    #[inline(never)]
    fn guarded_place(
        &mut self,
        table: &SegmentTable,
        faults: Faults,
        want: &Want,
    ) -> Result<(&LocalSegment, usize), CqeStatus> {
        let Self { own, guard, .. } = self;
        let is_own = |owner: &FunctionId| {
            table.find(want.token_id).is_some_and(|segment| segment.owner == *owner)
        };
        let guard = guard.as_ref().filter(|(owner, _)| !is_own(owner)).map(|(_, guesses)| guesses);
        if guard.is_some_and(|guesses| !guesses.may_try()) {
            return Err(CqeStatus::RemAccessAbort);
        }
        own_place(own, table, faults, want).inspect_err(|_| {
            if let Some(guesses) = guard {
                guesses.count_refusal();
            }
        })
    }

    /// This state of a queue that a client's function has.
    pub(crate) fn guarded(self, guard: Option<(FunctionId, Arc<GuessBudget>)>) -> Self {
        Self { guard, ..self }
    }

    /// As [`PathState::reach_peer`], in memory that the peer had mapped shared: through a mapping of the same file. What the
    /// file has lost meanwhile is not reached here.
    #[cold]
    pub(crate) fn reach_file<T>(
        &mut self,
        faults: Faults,
        want: &Want,
        touch: impl FnOnce(&Region, usize) -> Result<T, CqeStatus>,
    ) -> Result<AccessResult<T>, CqeStatus> {
        let denied = CqeStatus::RemAccessAbort;
        let not_direct = Ok(AccessResult::NotDirect);
        let (Reach::Direct(parts), Some(slot)) = (&self.link.reach, &mut self.slot) else {
            return not_direct;
        };
        let Some(files) = &parts.files else { return not_direct };
        let view = &mut self.views[(want.token_id >> 8) as usize % VIEWS];
        let announced = slot.announce(u64::from(want.token_id)).map_err(|_| denied)?;
        hooks::pass(Hook::SlotAnnounced);
        checked(&announced, view, (parts, faults), want)?;
        let Some(view) = view else { return not_direct };
        let Some((place, known)) = &mut view.file else { return not_direct };
        let window = known.upgrade().or_else(|| {
            let generation = view.generation.clone();
            let life = SegmentLife { token_id: view.token_id, generation, life: view.imported };
            let window = files.window(&life, place, place.offset.checked_add(view.rights.len)?)?;
            *known = Arc::downgrade(&window);
            Some(window)
        });
        let Some(window) = window else {
            view.file = None;
            return not_direct;
        };
        let place = place.offset.wrapping_add(want.va.wrapping_sub(view.rights.va));
        let Ok(place) = usize::try_from(place) else { return not_direct };
        let value = touch(window.bytes(), place)?;
        hooks::pass(Hook::CopyUnchecked);
        if window.is_lost() {
            view.file = None;
            return not_direct;
        }
        announced.finish(&view.generation, view.imported).map_err(|_| denied)?;
        Ok(AccessResult::Yes(value, view.imported))
    }

    /// Brings `part` of what is wanted here through the kernel, for memory that is not shared: to `into`, or to the start
    /// of the answer. The bytes were looked at under one generation of the segment, which is checked once more after the
    /// last of them came.
    #[cold]
    pub(crate) fn fetch(
        &mut self,
        faults: Faults,
        want: &Want,
        (at, len): (u64, usize),
        into: Option<(&Region, usize)>,
    ) -> Result<AccessResult<Landed<'_>>, CqeStatus> {
        let denied = CqeStatus::RemAccessAbort;
        let Reach::Direct(parts) = &self.link.reach else { return Ok(AccessResult::NotDirect) };
        let (Some(process), Some(slot)) = (&parts.process, &mut self.slot) else {
            return Ok(AccessResult::NotDirect);
        };
        if want.len <= WORD {
            return Ok(AccessResult::NotDirect);
        }
        if into.is_none() && self.landing.as_ref().is_none_or(|landing| landing.len() < len) {
            self.landing = Region::private(len.max(CHUNK_MAX)).ok();
        }
        let (to, landed) = match (into, &self.landing) {
            (Some(into), _) => (into, Landed::InPlace),
            (None, Some(landing)) => ((landing, 0), Landed::At(landing)),
            (None, None) => return Ok(AccessResult::NotDirect),
        };
        let view = &mut self.views[(want.token_id >> 8) as usize % VIEWS];
        let announced = slot.announce(u64::from(want.token_id)).map_err(|_| denied)?;
        hooks::pass(Hook::SlotAnnounced);
        let view = checked(&announced, view, (parts, faults), want)?;
        let from = address_of(view, want.va, want.len).and_then(|from| from.checked_add(at));
        let Some(from) = from else { return Ok(AccessResult::NotDirect) };
        let fetched = process.read(from, to, len);
        hooks::pass(Hook::CopyUnchecked);
        let life = view.imported;
        if announced.finish(&view.generation, life).is_err() {
            // What was withdrawn may be something else by now: none of it is the program's to see.
            let _ = to.0.zero(to.1, len);
            return Err(denied);
        }
        match fetched {
            Ok(()) => Ok(AccessResult::Yes(landed, life)),
            // A page that is not there, a peer that is gone: the owner of the memory answers, or no
            // node does.
            Err(_) => Ok(AccessResult::NotDirect),
        }
    }
}

/// What the kernel copies may be torn inside of words; an access of one word never is.
const WORD: u64 = 8;

#[inline(always)]
fn reach_peer<T>(
    slot: &mut HazardSlot,
    view: &mut Option<View>,
    (parts, faults): (&DirectParts, Faults),
    want: &Want,
    touch: impl FnOnce(&Region, usize) -> Result<T, CqeStatus>,
) -> Result<AccessResult<T>, CqeStatus> {
    let denied = CqeStatus::RemAccessAbort;
    let announced = slot.announce(u64::from(want.token_id)).map_err(|_| denied)?;
    hooks::pass(Hook::SlotAnnounced);
    let view = checked(&announced, view, (parts, faults), want)?;
    let offset = match place_in(&view.shared, faults, want) {
        Some(offset) => offset,
        // By value: a reference would keep what is wanted in memory on the usual path too.
        None => match view.further(*want) {
            Some(offset) => offset,
            None => return Ok(AccessResult::NotDirect),
        },
    };
    let offset = offset.ok_or(denied)?;
    let value = touch(&parts.arena, offset)?;
    hooks::pass(Hook::CopyUnchecked);
    announced.finish(&view.generation, view.imported).map_err(|_| denied)?;
    Ok(AccessResult::Yes(value, view.imported))
}

/// The entry as it is under the announcement, after every check.
#[inline(always)]
fn checked<'v>(
    announced: &Announced<'_>,
    view: &'v mut Option<View>,
    (parts, faults): (&DirectParts, Faults),
    want: &Want,
) -> Result<&'v View, CqeStatus> {
    let denied = CqeStatus::RemAccessAbort;
    let fresh =
        view.as_ref().is_some_and(|v| v.token_id == want.token_id && is_current(announced, v));
    if !fresh {
        *view = View::read(&parts.node, want.token_id);
    }
    let view = view.as_ref().ok_or(denied)?;
    if want.life != 0 && want.life != view.imported {
        return Err(denied);
    }
    view.rights.check(faults, want)?;
    Ok(view)
}

/// Where in the arena an extent has the whole of what is wanted: `None` outside, `Some(None)` for
/// an offset that cannot be.
#[inline(always)]
fn place_in(extent: &SharedExtent, faults: Faults, want: &Want) -> Option<Option<usize>> {
    let len = extent.len.saturating_add(faults.bound_slack());
    let inside = offset_in(extent.va, len, want.va, want.len)?;
    Some(extent.offset.checked_add(inside).and_then(|offset| usize::try_from(offset).ok()))
}

/// Where in the arena one extent of the entry has the whole of `len` bytes at `va`.
pub(super) fn place_of(view: &View, va: u64, len: u64) -> Option<usize> {
    let extents = std::iter::once(&view.shared).chain(&view.more);
    extents.into_iter().find_map(|extent| {
        let inside = offset_in(extent.va, extent.len, va, len)?;
        usize::try_from(extent.offset.checked_add(inside)?).ok()
    })
}

/// Where the owner's process has `len` bytes at `va`; `None`: not inside, or not to be read there.
pub(super) fn address_of(view: &View, va: u64, len: u64) -> Option<u64> {
    let inside = offset_in(view.rights.va, view.rights.len, va, len)?;
    view.address.checked_add(inside).filter(|_| view.address != 0)
}

/// Hazard slot number `slot` of a half.
///
/// Where it lies among the slots of its page differs from half to half: the slots of a queue for 63 peers at one place
/// of 63 pages would share the eight lines that a cache has for that place.
pub(super) fn slot_in(half: &Region, slot: usize) -> Option<HazardSlot> {
    let offset = HALF_SLOTS + place_in_page(slot, half.addr()) * SLOT_LEN;
    // Before the first announcement, so that the owner's scan reaches this slot.
    raise_slots_used(half, (slot as u64 | (PAGE_SLOTS as u64 - 1)) + 1);
    HazardSlot::new(half, offset).ok()
}

/// Place of slot number `slot` of the half at `addr`: another one for each slot.
fn place_in_page(slot: usize, addr: usize) -> usize {
    // Knuth's multiplicative hash: halves lie in a row, whole pages apart.
    let mixed = (addr / PAGE_LEN).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    slot ^ (mixed >> (usize::BITS - PAGE_SLOTS.trailing_zeros()))
}

/// Slots of a page.
const PAGE_SLOTS: usize = PAGE_LEN / SLOT_LEN;
const PAGE_LEN: usize = 4096;
const _: () = assert!(SLOTS.is_multiple_of(PAGE_SLOTS) && HALF_SLOTS.is_multiple_of(PAGE_LEN));

/// Makes the half say that at least `used` slots are to be looked at.
fn raise_slots_used(half: &Region, used: u64) {
    let mut seen = half.load_u64(HALF_SLOTS_USED).unwrap_or(used);
    while seen < used {
        match half.compare_exchange(HALF_SLOTS_USED, seen, used) {
            Ok(Err(other)) => seen = other,
            Ok(Ok(_)) | Err(_) => return,
        }
    }
}

#[inline]
pub(super) fn is_current(announced: &Announced<'_>, view: &View) -> bool {
    announced.check(&view.generation, view.imported).is_ok()
}

/// As [`PathState::own_place`], on its cache alone.
#[inline(always)]
fn own_place<'c>(
    cache: &'c mut SegmentCache,
    table: &SegmentTable,
    faults: Faults,
    want: &Want,
) -> Result<(&'c LocalSegment, usize), CqeStatus> {
    let denied = CqeStatus::RemAccessAbort;
    let segment = cache.find(table, want.token_id).ok_or(denied)?;
    if want.life != 0 && want.life != segment.life {
        return Err(denied);
    }
    let offset = check_own(segment, faults, want)?;
    Ok((segment, offset))
}

/// All checks on a segment of this node; the offset of `want.va` in its memory.
#[inline(always)]
pub(crate) fn check_own(
    segment: &LocalSegment,
    faults: Faults,
    want: &Want,
) -> Result<usize, CqeStatus> {
    let rights =
        Rights { va: segment.va, len: segment.len, access: segment.access, token: segment.token };
    rights.check(faults, want)?;
    let stores = want.right != Access::READ;
    if stores && !segment.region.is_writable() {
        return Err(CqeStatus::RemAccessAbort);
    }
    // What only stores goes over a memory fault.
    if want.right != Access::WRITE && segment.is_poisoned(want.va, want.len) {
        return Err(CqeStatus::RemDataPoison);
    }
    let offset = want.va.wrapping_sub(segment.va);
    usize::try_from(offset).map_err(|_| CqeStatus::RemAccessAbort)
}

/// As [`check_own`] where there is no segment, by the same steps.
pub(crate) fn check_absent(faults: Faults, want: &Want) -> CqeStatus {
    let none = Rights { va: 0, len: 0, access: Access::LOCAL_ONLY, token: Some(0) };
    match std::hint::black_box(none).check(faults, want) {
        Ok(()) | Err(_) => CqeStatus::RemAccessAbort,
    }
}

impl Rights {
    #[inline(always)]
    fn check(&self, faults: Faults, want: &Want) -> Result<(), CqeStatus> {
        let token = fits(self.token, want.token) || faults.token_not_checked();
        let len = self.len.saturating_add(faults.bound_slack());
        let inside = offset_in(self.va, len, want.va, want.len).is_some();
        // LOCAL_ONLY stands alone.
        let allowed = self.access.contains(want.right);
        // All of it each time: a stranger does not learn what was wrong by how long it took.
        if token & inside & allowed { Ok(()) } else { Err(CqeStatus::RemAccessAbort) }
    }
}

impl View {
    /// Reads an entry once; `None` when it is not live. Called under an announcement, so a live
    /// entry does not change until the announcement ends.
    #[cold]
    pub(super) fn read(node: &Region, token_id: u32) -> Option<Self> {
        let tid = tid_of(token_id)?;
        let at = entry_offset(tid);
        let generation = Generation::new(node, at).ok()?;
        let imported = generation.load();
        if !is_live(imported) {
            return None;
        }
        let words: [u64; ENTRY_WORDS] = node.load_block(at).ok()?;
        #[expect(clippy::cast_possible_truncation, reason = "fields of the packed word")]
        let (access, more, token) =
            (words[6] as u8, (words[6] >> 16) as u8, (words[6] >> 32) as u32);
        let rights = Rights {
            va: words[1],
            len: words[2],
            access: Access::from_bits_truncate(access),
            token: (words[6] >> 8 & 1 == 1).then_some(token),
        };
        let more = (0..usize::from(more).min(EXTENTS))
            .map(|index| {
                let [va, len, offset] = node.load_block(extent_offset(tid, index)).ok()?;
                Some(SharedExtent { va, len, offset })
            })
            .collect::<Option<_>>()?;
        let file = file_place(node, tid, words[6]).map(|place| (place, Weak::new()));
        hooks::pass(Hook::EntryRead);
        if generation.load() != imported {
            return None;
        }
        let shared = SharedExtent { va: words[3], len: words[4], offset: words[5] };
        let address = words[7];
        Some(Self { token_id, imported, generation, rights, shared, more, address, file })
    }

    /// As [`place_in`], in what is shared besides the largest extent.
    #[cold]
    #[inline(never)]
    fn further(&self, want: Want) -> Option<Option<usize>> {
        self.more.iter().find_map(|extent| place_in(extent, Faults::default(), &want))
    }
}

/// Where a peer's segment lies in its arena, after the same checks; `None`: not shared as a whole.
pub(crate) fn view_extent(parts: &DirectParts, want: &Want) -> Result<Option<usize>, CqeStatus> {
    let denied = CqeStatus::RemAccessAbort;
    let view = View::read(&parts.node, want.token_id).ok_or(denied)?;
    view.rights.check(Faults::default(), want)?;
    Ok(place_in(&view.shared, Faults::default(), want).or_else(|| view.further(*want)).flatten())
}

#[cfg(test)]
mod tests {
    use udma_abi::RawEid;
    use urma_mem::{HeldMemory, Pages, SharedFiles};

    use super::*;
    use crate::context::segment::NewSegment;
    use crate::ports::{PeerFiles, SharedMemory};
    use crate::share::layout::{NODE_LEN, half_len};

    #[derive(Debug)]
    struct OwnFiles;

    impl PeerFiles for OwnFiles {
        fn window(&self, _: &SegmentLife, place: &FilePlace, _: u64) -> Option<Arc<FileWindow>> {
            // The caller keeps a weak reference only.
            static KEPT: std::sync::OnceLock<Arc<FileWindow>> = std::sync::OnceLock::new();
            let map = || Arc::new(FileWindow::map(std::process::id(), place).unwrap());
            Some(Arc::clone(KEPT.get_or_init(map)))
        }
    }

    /// A request is checked again: between the first look and this one the segment may have begun another life.
    #[test]
    fn a_file_is_reached_with_the_rights_and_in_the_life_of_its_segment_only() {
        let (token_id, file) = (5 << 8, Region::shared(8192, Pages::Base).unwrap());
        let (_held, place) = SharedFiles::default().behind(&file.sub(4096, 4096).unwrap()).unwrap();
        let node = Region::private(NODE_LEN).unwrap();
        let table = SegmentTable::new(node.clone(), Arc::default());
        let region = file.sub(4096, 4096).unwrap();
        let new = NewSegment {
            owner: FunctionId::FIRST,
            token_id,
            va: 0x1000,
            memory: HeldMemory::plain(&region),
            region,
            access: Access::READ,
            token: Some(7),
            shared: true,
        };
        let shared = SharedMemory { extents: Vec::new(), file: Some(place) };
        table.publish(new, &shared).unwrap();
        let half = Region::private(half_len(4096)).unwrap();
        let arena = Region::private(4096).unwrap();
        let files: Option<Arc<dyn PeerFiles>> = Some(Arc::new(OwnFiles));
        let parts = DirectParts { node, arena, half, process: None, files };
        let link = NodePath::new(1, RawEid([0; 16]), false, Reach::Direct(parts));
        let mut path = PathState::new(Arc::new(link), 1);
        let (right, life) = (Access::READ, 0);
        let want = Want { token_id, token: Some(7), va: 0x1010, len: 16, right, life };
        let mut reached = |want: Want| {
            let at = |memory: &Region, offset: usize| Ok(memory.addr() + offset);
            path.reach_file(Faults::default(), &want, at)
        };
        file.write(4096 + 16, b"there").unwrap();
        let Ok(AccessResult::Yes(_, life)) = reached(want) else { panic!("it is allowed") };
        for refused in [
            Want { token: Some(8), ..want },
            Want { token: None, ..want },
            Want { va: 0x1ff8, ..want },
            Want { va: 0xfff, ..want },
            Want { right: Access::WRITE, ..want },
            Want { life: life + 2, ..want },
            Want { token_id: 6 << 8, ..want },
        ] {
            assert!(reached(refused).is_err(), "{refused:?}");
        }
        table.kill(token_id).unwrap();
        assert!(reached(want).is_err(), "it was unregistered");
    }

    #[test]
    fn each_slot_has_a_place_of_its_own_in_the_page_that_has_its_number() {
        for addr in (0..64).map(|half| half * 0x20_1000) {
            let mut places: Vec<_> = (0..SLOTS).map(|slot| place_in_page(slot, addr)).collect();
            let is_near = |(slot, place): (usize, &usize)| slot / PAGE_SLOTS == place / PAGE_SLOTS;
            assert!(places.iter().enumerate().all(is_near), "{addr:#x}");
            places.sort_unstable();
            assert!(places.into_iter().eq(0..SLOTS), "{addr:#x}");
        }
    }

    #[test]
    fn the_slots_of_one_queue_lie_at_many_places() {
        let mut places: Vec<_> = (0..64).map(|half| place_in_page(1, half * 0x20_1000)).collect();
        places.sort_unstable();
        places.dedup();
        assert!(places.len() > PAGE_SLOTS / 2, "{places:?}");
    }
}
