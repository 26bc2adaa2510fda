//! Direct access to a target segment: announce, check, access, check again.
//!
//! *Owns*: one hazard slot and a few table entries per path, memory for reads through the kernel. *Takes*: what a
//! request names. *Gives*: access to the bytes for the length of one closure. *Must not*: access a byte before every
//! check passed; keep an announcement from one chunk to the next.

use std::sync::{Arc, Weak};

use udma_abi::{CqeStatus, cmd::Access};
use urma_mem::hazard::{Announced, CHUNK_MAX, Generation, HazardSlot, SLOT_LEN, is_live};
use urma_mem::{FilePlace, FileWindow, Region};

use super::names;
use super::pass_length::PassLength;
use crate::context::function::FunctionId;
use crate::context::function::{GuessBudget, fits};
use crate::context::link::{DirectParts, NodePath, Reach};
use crate::context::segment::{
    ENTRY_WORDS, LocalSegment, SegmentCache, SegmentTable, entry_offset, extent_offset, file_place,
    offset_in, tid_of,
};
use crate::fault::Faults;
use crate::hooks::{self, Hook};
use crate::ports::{SegmentLife, SharedExtent};
use crate::share::{EXTENTS, HALF_SLOTS, HALF_SLOTS_USED, SLOTS};

/// The access that a request wants to a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Want {
    pub(crate) token_id: u32,
    pub(crate) token: Option<u32>,
    pub(crate) va: u64,
    pub(crate) len: u64,
    pub(crate) right: Access,
    /// Generation that the first chunk saw; 0 for the first chunk.
    pub(crate) life: u64,
}

/// Memory with the address of its first byte.
#[derive(Clone, Debug)]
pub(crate) struct KnownMemory {
    pub(crate) va: u64,
    pub(crate) region: Region,
}

/// How to check that the remote segment is alive.
#[derive(Clone, Debug)]
pub(crate) enum LifeProof {
    /// A segment of this node: unregistering visits every engine, so it needs no check.
    Own(Arc<LocalSegment>),
    /// A peer's segment: each access is announced in `slot`, the path's hazard slot; the engine uses it for one
    /// request at a time.
    Peer { slot: HazardSlot, token_id: u32, generation: Generation, life: u64 },
}

impl LifeProof {
    /// Whether the remote segment is one of this node and has unreadable bytes.
    pub(super) fn has_poison(&self) -> bool {
        match self {
            Self::Own(segment) => segment.has_poison(),
            Self::Peer { .. } => false,
        }
    }
}

impl KnownMemory {
    /// Offset of `va` in the region; for an address before the first byte, an offset beyond the end.
    #[inline(always)]
    pub(super) fn offset_of(&self, va: u64) -> Option<usize> {
        usize::try_from(va.wrapping_sub(self.va)).ok()
    }

    /// Whether `len` bytes from `offset` on lie in the region.
    #[inline(always)]
    pub(super) fn holds(&self, offset: usize, len: usize) -> bool {
        offset.checked_add(len).is_some_and(|end| end <= self.region.len())
    }
}

/// Result of one access to a peer's memory.
#[derive(Debug)]
pub(crate) enum AccessResult<T> {
    /// Done; the generation under which it was.
    Yes(T, u64),
    /// No error can be seen from here, but the memory cannot be reached directly.
    NotDirect,
}

/// Where the bytes of a read through the kernel were stored.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Landed<'a> {
    /// In the memory that the caller asked for.
    InPlace,
    /// At the start of this memory.
    At(&'a Region),
}

/// State of one path in a send queue.
#[derive(Debug)]
pub(crate) struct PathState {
    pub(crate) link: Arc<NodePath>,
    /// Requests in flight on this path.
    pub(crate) outstanding: u32,
    /// Their target, if all have the same one.
    pub(crate) target: u32,
    /// Which token the target has accepted a message with.
    pub(crate) admission: AdmissionCache,
    /// Position of its long writes.
    pub(crate) pass_length: PassLength,
    slot: Option<HazardSlot>,
    views: [Option<View>; VIEWS],
    /// Segments of this node that were accessed; used on the path to the node itself.
    own: SegmentCache,
    /// For a client's function: which segments are its own, and how many refusals it has left on those of others.
    guard: Option<(FunctionId, Arc<GuessBudget>)>,
    /// Buffer for bytes read through the kernel until the last check; allocated at the first use.
    landing: Option<Region>,
}

/// Whether a queue of the peer accepts this one's messages. Its token is not in shared memory, so a write with
/// immediate places its payload directly only after the peer accepted such a message.
#[derive(Debug, Default)]
pub(crate) struct AdmissionCache {
    /// Sequence number of the request that is on its way, and what it shows.
    asked: Option<(u32, u64)>,
    /// What the last accepted message showed.
    proven: Option<u64>,
}

impl AdmissionCache {
    #[inline]
    pub(crate) fn is_proven(&self, shown: u64) -> bool {
        self.proven == Some(shown)
    }

    /// Notes that request `seq` shows this to the target.
    pub(crate) fn on_asked(&mut self, seq: u32, shown: u64) {
        self.asked = Some((seq, shown));
    }

    /// Notes that a request on this path ended, and whether it was accepted.
    pub(crate) fn on_ended(&mut self, seq: u32, status: CqeStatus) {
        if status != CqeStatus::Success {
            self.proven = None;
        } else if let Some((_, shown)) = self.asked.take_if(|(asked, _)| *asked == seq) {
            self.proven = Some(shown);
        }
    }
}

const VIEWS: usize = 8;

/// Copy of a peer's table entry, read under one generation.
#[derive(Debug)]
pub(super) struct View {
    pub(super) token_id: u32,
    pub(super) imported: u64,
    pub(super) generation: Generation,
    rights: Rights,
    shared: SharedExtent,
    /// Further shared extents, shorter than the first.
    more: Box<[SharedExtent]>,
    /// Address of `rights.va` in its owner's process; 0: it cannot be read there.
    address: u64,
    /// The segment's place in a file, with the mapping once there was one; `None` if it is in none or cannot be
    /// mapped.
    file: Option<(FilePlace, Weak<FileWindow>)>,
}

/// The part of an entry that the checks use.
#[derive(Clone, Copy, Debug)]
struct Rights {
    va: u64,
    len: u64,
    access: Access,
    token: Option<u32>,
}

impl PathState {
    /// `slot` is the index of this queue's hazard slot in each half.
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

    /// Invalidates the names of bytes that were given to the peer: the requests in flight end now, and the peer must
    /// not use what it reads by those names.
    pub(crate) fn take_names_back(&self) {
        if let (Reach::Direct(parts), true) = (&self.link.reach, self.outstanding != 0) {
            names::take_back(&parts.half);
        }
    }

    /// Drops references that would keep a dead segment alive.
    pub(crate) fn forget_dead(&mut self) {
        self.own.drop_dead();
    }

    /// Calls `touch(memory, offset of want.va)` after all checks, with the access announced in the hazard slot.
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

    /// Calls `touch` like [`PathState::reach`], but only on a path to another node.
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

    /// The memory that the previous request reached in segment `token_id`, to be cached. Of a peer's segment it is
    /// the largest shared extent, as far as that lies in the segment.
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

    /// Checks an access to a segment of this node and returns the segment with the offset. `None`: the path leads to
    /// another node. Needs no announcement, since unregistering visits every engine.
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

    /// Checks an access by a client's function; refusals on segments of others use up its guess budget.
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

    /// Sets the guess budget, for a queue of a client's function.
    pub(crate) fn guarded(self, guard: Option<(FunctionId, Arc<GuessBudget>)>) -> Self {
        Self { guard, ..self }
    }

    /// Accesses memory that the peer itself had mapped from a file, through this process's own mapping of that file;
    /// the arena is not involved. Not direct if the file was truncated meanwhile.
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

    /// Reads `part` of what is wanted through the kernel, for memory that is not shared: to `into`, or to the
    /// returned memory. The generation of the segment is the same before the first byte is read and after the last.
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
            // What was withdrawn may have another use by now: the program gets none of it.
            let _ = to.0.zero(to.1, len);
            return Err(denied);
        }
        match fetched {
            Ok(()) => Ok(AccessResult::Yes(landed, life)),
            // A page is missing, or the peer is gone: the owner of the memory answers, or nothing does.
            Err(_) => Ok(AccessResult::NotDirect),
        }
    }
}

/// A copy by the kernel may tear words; a one-word access never does.
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
        // By value: a reference would force the arguments into memory on the usual path too.
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

/// Reads the table entry under the announcement and makes every check.
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

/// Offset in the arena of the whole access, if this extent contains it: `None` if it does not, `Some(None)` for an
/// offset that is impossible.
#[inline(always)]
fn place_in(extent: &SharedExtent, faults: Faults, want: &Want) -> Option<Option<usize>> {
    let len = extent.len.saturating_add(faults.bound_slack());
    let inside = offset_in(extent.va, len, want.va, want.len)?;
    Some(extent.offset.checked_add(inside).and_then(|offset| usize::try_from(offset).ok()))
}

/// Offset in the arena of `len` bytes at `va`, if one extent of the entry contains them all.
pub(super) fn place_of(view: &View, va: u64, len: u64) -> Option<usize> {
    let extents = std::iter::once(&view.shared).chain(&view.more);
    extents.into_iter().find_map(|extent| {
        let inside = offset_in(extent.va, extent.len, va, len)?;
        usize::try_from(extent.offset.checked_add(inside)?).ok()
    })
}

/// Address in the owner's process of `len` bytes at `va`. `None`: out of bounds, or not readable there.
pub(super) fn address_of(view: &View, va: u64, len: u64) -> Option<u64> {
    let inside = offset_in(view.rights.va, view.rights.len, va, len)?;
    view.address.checked_add(inside).filter(|_| view.address != 0)
}

/// Hazard slot number `slot` of a half.
///
/// Its position in the page differs from half to half. At equal positions, the slots of a queue for 63 peers would
/// compete for one set of the cache, which has eight lines.
pub(super) fn slot_in(half: &Region, slot: usize) -> Option<HazardSlot> {
    let offset = HALF_SLOTS + place_in_page(slot, half.addr()) * SLOT_LEN;
    // Before the first announcement, so that the owner's scan includes this slot.
    raise_slots_used(half, (slot as u64 | (PAGE_SLOTS as u64 - 1)) + 1);
    HazardSlot::new(half, offset).ok()
}

/// Position of slot number `slot` in its page, for the half at `addr`; a permutation of the slots.
fn place_in_page(slot: usize, addr: usize) -> usize {
    // Knuth's multiplicative hash: halves are adjacent, whole pages apart.
    let mixed = (addr / PAGE_LEN).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    slot ^ (mixed >> (usize::BITS - PAGE_SLOTS.trailing_zeros()))
}

/// Number of slots in a page.
const PAGE_SLOTS: usize = PAGE_LEN / SLOT_LEN;
const PAGE_LEN: usize = 4096;
const _: () = assert!(SLOTS.is_multiple_of(PAGE_SLOTS) && HALF_SLOTS.is_multiple_of(PAGE_LEN));

/// Raises the half's count of slots that the owner scans to at least `used`.
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

/// Looks up and checks a segment of this node: [`PathState::own_place`] without its guess budget.
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

/// Makes all checks on a segment of this node; returns the offset of `want.va` in its memory.
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
    // Stores succeed on memory with a fault.
    if want.right != Access::WRITE && segment.is_poisoned(want.va, want.len) {
        return Err(CqeStatus::RemDataPoison);
    }
    let offset = want.va.wrapping_sub(segment.va);
    usize::try_from(offset).map_err(|_| CqeStatus::RemAccessAbort)
}

/// Refuses an access to a segment that does not exist, in the same steps and time as [`check_own`].
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
        // LOCAL_ONLY excludes all others.
        let allowed = self.access.contains(want.right);
        // Always all of them: the time must not show which check failed.
        if token & inside & allowed { Ok(()) } else { Err(CqeStatus::RemAccessAbort) }
    }
}

impl View {
    /// Reads an entry once; `None` if it is not live. Called under an announcement, so a live entry does not change
    /// until the announcement ends.
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

    /// Offset of the access in the further shared extents; results as in [`place_in`].
    #[cold]
    #[inline(never)]
    fn further(&self, want: Want) -> Option<Option<usize>> {
        self.more.iter().find_map(|extent| place_in(extent, Faults::default(), &want))
    }
}

/// Offset of a peer's segment in its arena, after the same checks; `None`: it is not shared as a whole.
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
    use crate::share::{NODE_LEN, half_len};

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
