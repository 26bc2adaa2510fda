//! Requests of rare shapes, converted to plain ones.
//!
//! *Owns*: memory for inline bytes that are in no segment, and imports of segments that a program names by numbers
//! only (`user_tseg`). *Takes*: a request that was refused. *Gives*: a plain one with the same meaning, posted by the
//! same function. *Must not*: cost plain requests anything: it runs only after a refusal. Such posts of one context
//! run one at a time, and may allocate.

use core::{fmt, ptr::NonNull};
use std::{
    alloc::Layout,
    sync::{Arc, MutexGuard},
};

use urma_core::{
    Mapping, RemoteSegment, SegmentAccess, SegmentCfg, Token, TokenId, TokenPolicy, Ubva,
};
use urma_mem::Region;

use super::{
    LIST_MAX, PIECES, Sends,
    list::{Pieces, PostOp, SendRequest, WorkRequest},
    send_plain,
};
use crate::{
    abi::*,
    call::{self, Answer, Code, UserPtr, ours, refuse},
    convert::eid,
    latch::lock,
    slab::{Exclusive, Kind, Slot},
    udma::{
        context::ctx_of,
        kind::{self, Ctx, Rare, SegmentName, SegmentOwn, Stage},
        segment::publish_unseen,
    },
};

/// Size of the memory for inline data in bytes; no queue takes as much.
const STAGE_LEN: usize = 4096;
/// Pieces that the log line about a refused request sums up.
const LISTED_MAX: u32 = 64;
/// Segments known by their numbers that one context keeps.
const NAMED_MAX: usize = 64;

impl Rare {
    /// Frees everything, before the context is deleted.
    pub(crate) fn clear(&mut self) {
        self.named.values().for_each(|segment| segment.end());
        self.named.clear();
        drop(self.stage.take());
    }
}

impl Stage {
    const LAYOUT: Layout = match Layout::from_size_align(STAGE_LEN, STAGE_LEN) {
        Ok(layout) => layout,
        Err(_) => panic!("a page"),
    };

    fn new(own: &Arc<Ctx>, ctx: *mut urma_context_t) -> Answer<Self> {
        // SAFETY: the layout has a size above 0, which the allocator asks for.
        let memory = unsafe { std::alloc::alloc_zeroed(Self::LAYOUT) };
        let memory =
            NonNull::new(memory).ok_or_else(|| refuse!(ENOMEM, "no memory for inline bytes"))?;
        let made = Self::register(own, ctx, memory);
        if made.is_err() {
            // SAFETY: allocated above with this layout; `register` failed, so that no segment refers to it.
            unsafe { std::alloc::dealloc(memory.as_ptr(), Self::LAYOUT) };
        }
        Ok(Self { memory, segment: made? })
    }

    fn register(
        own: &Arc<Ctx>,
        ctx: *mut urma_context_t,
        memory: NonNull<u8>,
    ) -> Answer<Slot<kind::Segment>> {
        // SAFETY: `Drop` of the stage frees the memory, after the segment was withdrawn.
        let region = unsafe { Region::from_user(memory.as_ptr(), STAGE_LEN) };
        let region =
            region.map_err(|error| refuse!(ENOMEM, "no memory for inline bytes: {error}"))?;
        let cfg = SegmentCfg::new(SegmentAccess::LOCAL_ONLY);
        let local = own.core.register(&region, &cfg, None)?;
        publish_unseen(own, ctx, SegmentOwn::new(Some(local), None, own))
    }

    /// Copies the bytes of `piece` to `at`; returns the piece that names the copy.
    ///
    /// # Safety
    /// The bytes of the piece lie in the caller's memory.
    unsafe fn copy(&self, piece: urma_sge_t, at: usize) -> Answer<urma_sge_t> {
        let len = piece.len as usize;
        let from = usize::try_from(piece.addr).ok().filter(|from| *from != 0);
        let from = core::ptr::with_exposed_provenance_mut::<u8>(
            from.ok_or_else(|| refuse!(EINVAL, "the address of an inline piece is 0"))?,
        );
        if len > STAGE_LEN.saturating_sub(at) {
            return Err(refuse!(EINVAL, "the inline pieces have more than {STAGE_LEN} bytes"));
        }
        if !piece.tseg.is_null() {
            // An address outside the segment may be a mistake: where nothing is mapped, it is refused.
            // SAFETY: the bytes are there, as this function's contract says; the region goes with this line.
            unsafe { Region::from_user(from, len) }.map_err(|_| {
                let addr = piece.addr;
                refuse!(EINVAL, "the inline piece of {len} bytes at {addr:#x} lies outside its segment, and no memory is there")
            })?;
        }
        // SAFETY: `at` was checked against the length of the memory just now.
        let to = unsafe { self.memory.add(at) };
        // SAFETY: the bytes are there, as this function's contract says; `Ctx::rare` is locked, so that no other
        // thread copies to the stage.
        unsafe { to.as_ptr().copy_from_nonoverlapping(from, len) };
        let addr = to.as_ptr().expose_provenance() as u64;
        Ok(urma_sge_t { addr, tseg: self.segment.public(), ..piece })
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.segment.end();
        // SAFETY: allocated by `new`; the segment was withdrawn just now or before.
        unsafe { std::alloc::dealloc(self.memory.as_ptr(), Self::LAYOUT) };
    }
}

/// A queue that may refuse a request.
pub(crate) trait SendKind: Kind {
    /// The function that posts to it.
    const POST: &'static str;

    fn home(public: &Self::Public) -> Home;
}

/// The owner of a queue: its context, and its one target if it has one.
#[derive(Clone, Copy)]
pub(crate) struct Home {
    pub(super) ctx: *mut urma_context_t,
    pub(super) bound: *mut urma_target_jetty_t,
}

/// Posts what was refused with `code`, if it can be made plain, and then the rest of its list.
#[cold]
#[inline(never)]
pub(super) fn again<K: SendKind + Exclusive<Own: Sends>>(
    queue: Slot<K>,
    mut first: SendRequest<'_>,
    bad_wr: UserPtr<*mut urma_jfs_wr_t>,
    mut code: Code,
) -> Answer {
    call::attempt(|| {
        let home = K::home(queue.shown());
        for _ in 0..LIST_MAX {
            let Some(refused) = find(first, bad_wr.read()) else { break };
            let Some(lists) = Lists::of(refused).filter(Lists::is_rare) else { break };
            post_plain(queue, home, refused, lists)?;
            let Some(next) = refused.next() else { return Ok(()) };
            first = next;
            match send_plain(queue, first, bad_wr) {
                Err(again) if again.is_wrong() => code = again,
                answer => return answer,
            }
        }
        Err(code)
    })
}

/// The request at `at`, if it is in the list that starts with `first`: only then the queue left it there.
pub(super) fn find<'a>(first: SendRequest<'a>, at: *mut urma_jfs_wr_t) -> Option<SendRequest<'a>> {
    let mut list = core::iter::successors(Some(first), |wr| wr.next()).take(LIST_MAX);
    list.find(|wr| wr.as_ptr() == at)
}

/// Formats a request for the log line about its refusal.
pub(super) struct RefusedRequest<'a>(pub(super) SendRequest<'a>);

impl fmt::Display for RefusedRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wr = self.0;
        let (name, local) = match wr.op() {
            Some(PostOp::Write(_)) => ("write", Some(wr.transfer().src())),
            Some(PostOp::Read) => ("read", Some(wr.transfer().dst())),
            Some(PostOp::Send(_)) => ("message", Some(wr.message().src())),
            Some(PostOp::Compare(_) | PostOp::Fetch(_)) => ("atomic", None),
            Some(PostOp::Nop | PostOp::FlushDma) | None => ("request", None),
        };
        write!(f, "{name} with opcode {:#x} and user_ctx {:#x}", wr.opcode(), wr.user_ctx())?;
        let Some(local) = local else { return Ok(()) };
        let count = local.count();
        let pieces = (0..count.min(LISTED_MAX)).filter_map(|index| local.get(index));
        let bytes: u64 = pieces.map(|piece| u64::from(piece.len())).sum();
        let more = if count > LISTED_MAX { " and more" } else { "" };
        write!(f, ", {count} SGEs of {bytes} bytes in all{more}")
    }
}

/// Posts one request as a plain one.
///
/// # Errors
/// EINVAL: what it names does not exist. Otherwise the error of the post.
fn post_plain<K: Exclusive<Own: Sends>>(
    queue: Slot<K>,
    home: Home,
    from: SendRequest<'_>,
    mut lists: Lists,
) -> Answer {
    let own = ctx_of(home.ctx)?;
    let mut rare = lock(&own.rare);
    // SAFETY: the pieces of a list whose maker promised what it leads to, their bytes too.
    unsafe { stage(&mut rare, &own, home.ctx, &mut lists.inline) }?;
    name(&mut rare, &own, home, from.target(), &mut lists.remote)?;
    let mut wr = from.read();
    lists.put(&mut wr, from.op());
    wr.next = core::ptr::null_mut();
    let mut bad = core::ptr::null_mut();
    // SAFETY: both are of this function.
    let (wr, bad) = unsafe { call::args((&raw mut wr, &raw mut bad)) }?;
    // SAFETY: one request; its lists are those of `lists` and of `from`, which live longer.
    send_plain(queue, unsafe { WorkRequest::first(wr) }, bad)
}

/// The lists of a request that may be of a rare shape.
struct Lists {
    /// Pieces whose bytes go with the request; empty unless they do.
    inline: Vec<urma_sge_t>,
    remote: Vec<urma_sge_t>,
}

impl Lists {
    /// `None`: the opcode has no lists, there are more pieces than a batch has room for, or a required list is
    /// missing.
    fn of(wr: SendRequest<'_>) -> Option<Self> {
        let (local, remote) = match wr.op()? {
            PostOp::Send(_) => (Some(wr.message().src()), None),
            PostOp::Write(_) => (Some(wr.transfer().src()), Some(wr.transfer().dst())),
            PostOp::Read => (None, Some(wr.transfer().src())),
            PostOp::Compare(_) => (None, Some(wr.compare().1)),
            PostOp::Fetch(_) => (None, Some(wr.fetch().1)),
            PostOp::Nop | PostOp::FlushDma => return None,
        };
        let is_inline = wr.flag().inline_flag() != 0;
        let copied = |list: Option<Pieces<'_>>| match list {
            Some(list) => list.copied(PIECES),
            None => Some(Vec::new()),
        };
        Some(Self { inline: copied(local.filter(|_| is_inline))?, remote: copied(remote)? })
    }

    /// Whether a valid piece names no segment, or one that does not contain it.
    fn is_rare(&self) -> bool {
        self.inline.iter().any(is_loose) || self.remote.iter().any(is_named)
    }

    /// Makes a request of this operation name these lists; an empty list stays as it was.
    fn put(&mut self, wr: &mut urma_jfs_wr_t, op: Option<PostOp>) {
        let Some(op) = op else { return };
        let list = |of: &mut Vec<urma_sge_t>| (!of.is_empty()).then_some(of.as_mut_ptr());
        if let Some(list) = list(&mut self.inline) {
            match op {
                PostOp::Send(_) => wr.u.send.src.sge = list,
                PostOp::Write(_) => wr.u.rw.src.sge = list,
                PostOp::Read | PostOp::Compare(_) | PostOp::Fetch(_) => {}
                PostOp::Nop | PostOp::FlushDma => {}
            }
        }
        if let Some(list) = list(&mut self.remote) {
            match op {
                PostOp::Write(_) => wr.u.rw.dst.sge = list,
                PostOp::Read => wr.u.rw.src.sge = list,
                PostOp::Compare(_) => wr.u.cas.dst = list,
                PostOp::Fetch(_) => wr.u.faa.dst = list,
                PostOp::Send(_) | PostOp::Nop | PostOp::FlushDma => {}
            }
        }
    }
}

fn is_named(piece: &urma_sge_t) -> bool {
    piece.tseg.is_null() && !piece.user_tseg.is_null()
}

/// Whether a piece has bytes outside of the segment that it names. Programs name some segment of theirs for inline
/// bytes on the stack.
fn is_loose(piece: &urma_sge_t) -> bool {
    if piece.len == 0 || piece.tseg.is_null() {
        return piece.len != 0;
    }
    let Ok(segment) = ours::<kind::Segment>(piece.tseg) else { return false };
    let seg = segment.shown().seg;
    let last = seg.len.checked_sub(u64::from(piece.len));
    let places = piece.addr.checked_sub(seg.ubva.va).zip(last);
    places.is_none_or(|(offset, last)| offset > last)
}

/// Copies the pieces that have no segment.
///
/// # Safety
/// Their bytes lie in the caller's memory.
unsafe fn stage(
    rare: &mut MutexGuard<'_, Rare>,
    own: &Arc<Ctx>,
    ctx: *mut urma_context_t,
    pieces: &mut [urma_sge_t],
) -> Answer {
    let mut used = 0;
    for piece in pieces.iter_mut().filter(|piece| is_loose(piece)) {
        if rare.stage.is_none() {
            rare.stage = Some(Stage::new(own, ctx)?);
        }
        let stage =
            rare.stage.as_ref().ok_or_else(|| refuse!(ENOMEM, "no memory for inline bytes"))?;
        // SAFETY: the contract of this function is that of `copy`.
        *piece = unsafe { stage.copy(*piece, used) }?;
        used += piece.len as usize;
    }
    Ok(())
}

/// Imports segments for the pieces that name theirs by numbers.
fn name(
    rare: &mut MutexGuard<'_, Rare>,
    own: &Arc<Ctx>,
    home: Home,
    named: *mut urma_target_jetty_t,
    pieces: &mut [urma_sge_t],
) -> Answer {
    for piece in pieces.iter_mut().filter(|piece| is_named(piece)) {
        // SAFETY: a piece of a list whose maker promised what it leads to.
        let numbers: urma_user_tseg_t = unsafe { call::value(piece.user_tseg) }?;
        let target = if home.bound.is_null() { named } else { home.bound };
        let target = ours::<kind::Target>(target)?;
        let peer = eid(target.shown().id.eid);
        let token = match numbers.attr.token_policy() {
            0 => None,
            1 => Some(numbers.token_value.token),
            other => {
                return Err(refuse!(
                    EINVAL,
                    "user_tseg has token policy {other}; 0 (NONE) and 1 (PLAIN_TEXT) are known"
                ));
            }
        };
        let name = (peer, numbers.token_id, token);
        let known = rare.named.get(&name).copied();
        let segment = match known {
            Some(segment) => segment,
            None => import(rare, own, home.ctx, name)?,
        };
        piece.tseg = segment.public();
    }
    Ok(())
}

/// Imports all addresses under a token id: its owner's device knows which belong to the segment.
fn import(
    rare: &mut MutexGuard<'_, Rare>,
    own: &Arc<Ctx>,
    ctx: *mut urma_context_t,
    name: SegmentName,
) -> Answer<Slot<kind::Segment>> {
    let (eid, token_id, token) = name;
    if rare.named.len() >= NAMED_MAX {
        rare.named.values().for_each(|segment| segment.end());
        rare.named.clear();
    }
    let access = SegmentAccess::REMOTE_ALL;
    let policy = token.map_or(TokenPolicy::None, |token| TokenPolicy::PlainText(Token::new(token)));
    let (ubva, token_id) = (Ubva { eid, uasid: 0, va: 1 }, TokenId::new(token_id));
    let all = RemoteSegment { ubva, len: u64::MAX - 1, token_id, policy, access };
    let remote = own.core.import_segment(&all, access, Mapping::None)?;
    let segment = publish_unseen(own, ctx, SegmentOwn::new(None, Some(remote), own))?;
    rare.named.insert(name, segment);
    Ok(segment)
}
