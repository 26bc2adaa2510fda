//! A target segment that can be touched directly: announced, checked, touched, checked again.
//!
//! *Owns*: one hazard slot and a few entries per way. *Takes*: what a request wants. *Gives*: the
//! bytes, for the length of one closure. *Must not*: touch a byte before every check passed; hold an
//! announcement between two chunks.

use std::sync::Arc;

use udma_abi::{CqeStatus, cmd::Access};
use urma_mem::Region;
use urma_mem::hazard::{Announced, Generation, HazardSlot, is_live};

use crate::context::link::{DirectParts, Link, Reach};
use crate::context::segment::{
    ENTRY_WORDS, LocalSegment, SegmentTable, entry_offset, offset_in, tid_of,
};
use crate::device::Faults;
use crate::hooks::{self, Hook};
use crate::share::layout::{HALF_SLOTS, HALF_SLOTS_USED, SLOTS};

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

/// How it went.
#[derive(Debug)]
pub(crate) enum Reached<T> {
    /// Touched; the generation under which that was.
    Yes(T, u64),
    /// Allowed, as far as one can see from here, but not reachable directly.
    NotDirect,
}

/// One way as a send queue keeps it.
#[derive(Debug)]
pub(crate) struct LinkSeat {
    pub(crate) link: Arc<Link>,
    /// Requests handed over and not ended.
    pub(crate) outstanding: u32,
    /// Target of all of them, when it is the same one.
    pub(crate) target: u32,
    slot: Option<HazardSlot>,
    views: [Option<View>; VIEWS],
}

const VIEWS: usize = 8;

/// A peer's entry as it was under one generation.
#[derive(Debug)]
struct View {
    token_id: u32,
    imported: u64,
    generation: Generation,
    rights: Rights,
    shared_va: u64,
    shared_len: u64,
    arena_offset: u64,
}

/// The part that decides.
#[derive(Clone, Copy, Debug)]
struct Rights {
    va: u64,
    len: u64,
    access: Access,
    token: Option<u32>,
}

impl LinkSeat {
    /// `slot` is the index of this queue's hazard slot.
    pub(crate) fn new(link: Arc<Link>, slot: usize) -> Self {
        let hazard = match &link.reach {
            Reach::Direct(parts) if slot < SLOTS => {
                let offset = HALF_SLOTS + slot * urma_mem::hazard::SLOT_LEN;
                // Before the first announcement, so that the owner's scan reaches this slot.
                raise_slots_used(&parts.half, slot as u64 + 1);
                HazardSlot::new(parts.half.clone(), offset).ok()
            }
            _ => None,
        };
        Self { link, outstanding: 0, target: 0, slot: hazard, views: Default::default() }
    }

    /// Runs `touch(memory, offset of want.va)` under the protection of the slot.
    #[inline]
    pub(crate) fn reach<T>(
        &mut self,
        table: &SegmentTable,
        faults: Faults,
        want: &Want,
        touch: impl FnOnce(&Region, usize) -> Result<T, CqeStatus>,
    ) -> Result<Reached<T>, CqeStatus> {
        match &self.link.reach {
            Reach::Direct(parts) => {
                let Some(slot) = &mut self.slot else { return Ok(Reached::NotDirect) };
                let view = &mut self.views[(want.token_id >> 8) as usize % VIEWS];
                reach_peer(slot, view, (parts, faults), want, touch)
            }
            Reach::Own => reach_own(table, faults, want, touch),
            Reach::Messages => Ok(Reached::NotDirect),
        }
    }
}

#[inline]
fn reach_peer<T>(
    slot: &mut HazardSlot,
    view: &mut Option<View>,
    (parts, faults): (&DirectParts, Faults),
    want: &Want,
    touch: impl FnOnce(&Region, usize) -> Result<T, CqeStatus>,
) -> Result<Reached<T>, CqeStatus> {
    let denied = CqeStatus::RemAccessAbort;
    let announced = slot.announce(u64::from(want.token_id)).map_err(|_| denied)?;
    hooks::pass(Hook::SlotAnnounced);
    let fresh =
        view.as_ref().is_some_and(|v| v.token_id == want.token_id && is_current(&announced, v));
    if !fresh {
        *view = View::read(&parts.node, want.token_id);
    }
    let view = view.as_ref().ok_or(denied)?;
    if want.life != 0 && want.life != view.imported {
        return Err(denied);
    }
    view.rights.check(faults, want)?;
    let shared_len = view.shared_len.saturating_add(faults.bound_slack());
    let inside = offset_in(view.shared_va, shared_len, want.va, want.len);
    let Some(inside) = inside else { return Ok(Reached::NotDirect) };
    let offset = view.arena_offset.checked_add(inside).ok_or(denied)?;
    let offset = usize::try_from(offset).map_err(|_| denied)?;
    let value = touch(&parts.arena, offset)?;
    announced.finish(&view.generation, view.imported).map_err(|_| denied)?;
    Ok(Reached::Yes(value, view.imported))
}

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
fn is_current(announced: &Announced<'_>, view: &View) -> bool {
    announced.check(&view.generation, view.imported).is_ok()
}

/// This node's own memory: unregistering visits every engine, so no announcement is needed.
fn reach_own<T>(
    table: &SegmentTable,
    faults: Faults,
    want: &Want,
    touch: impl FnOnce(&Region, usize) -> Result<T, CqeStatus>,
) -> Result<Reached<T>, CqeStatus> {
    let denied = CqeStatus::RemAccessAbort;
    let segment = table.find(want.token_id).ok_or(denied)?;
    if want.life != 0 && want.life != segment.life {
        return Err(denied);
    }
    let offset = check_own(&segment, faults, want)?;
    let value = touch(&segment.region, offset)?;
    Ok(Reached::Yes(value, segment.life))
}

/// All checks on a segment of this node; the offset of `want.va` in its memory.
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

impl Rights {
    #[inline]
    fn check(&self, faults: Faults, want: &Want) -> Result<(), CqeStatus> {
        let token = self.token.is_none() || self.token == want.token || faults.token_not_checked();
        let len = self.len.saturating_add(faults.bound_slack());
        let inside = offset_in(self.va, len, want.va, want.len).is_some();
        let allowed = self.access.contains(want.right) && !self.access.contains(Access::LOCAL_ONLY);
        if token && inside && allowed { Ok(()) } else { Err(CqeStatus::RemAccessAbort) }
    }
}

impl View {
    /// Reads an entry once; `None` when it is not live. Called under an announcement, so a live
    /// entry does not change until the announcement ends.
    #[cold]
    fn read(node: &Region, token_id: u32) -> Option<Self> {
        let at = entry_offset(tid_of(token_id)?);
        let generation = Generation::new(node.clone(), at).ok()?;
        let imported = generation.load();
        if !is_live(imported) {
            return None;
        }
        let words: [u64; ENTRY_WORDS] = node.load_block(at).ok()?;
        #[expect(clippy::cast_possible_truncation, reason = "fields of the packed word")]
        let (access, token) = (words[6] as u8, (words[6] >> 32) as u32);
        let rights = Rights {
            va: words[1],
            len: words[2],
            access: Access::from_bits_truncate(access),
            token: (words[6] >> 8 & 1 == 1).then_some(token),
        };
        if generation.load() != imported {
            return None;
        }
        Some(Self {
            token_id,
            imported,
            generation,
            rights,
            shared_va: words[3],
            shared_len: words[4],
            arena_offset: words[5],
        })
    }
}

/// Where a peer's segment lies in its arena, after the same checks; `None`: not shared as a whole.
pub(crate) fn view_extent(parts: &DirectParts, want: &Want) -> Result<Option<usize>, CqeStatus> {
    let denied = CqeStatus::RemAccessAbort;
    let view = View::read(&parts.node, want.token_id).ok_or(denied)?;
    view.rights.check(Faults::default(), want)?;
    let inside = offset_in(view.shared_va, view.shared_len, want.va, want.len);
    let offset = inside.and_then(|at| view.arena_offset.checked_add(at));
    Ok(offset.and_then(|at| usize::try_from(at).ok()))
}
