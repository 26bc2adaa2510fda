//! WRITEs, READs and atomics that are like one before: what was found and checked for that one, kept.
//!
//! *Owns*: what earlier requests of one queue rested on. *Takes*: the blocks of a request. *Gives*: both pieces of
//! memory and what guards them. *Must not*: keep a judgement that something else than the words that are looked
//! at each time can change.
//!
//! A request is like one before when all that names a right is the same: operation, path, remote segment, token,
//! local segment. Then the checks of names, token and access need not be made again as long as both segments live
//! in the life in which they were made, and the path lives: three words that are looked at each time, the peer's
//! under an announcement. Addresses and length differ from request to request; the bounds of both pieces are
//! those of the regions that are kept here.

use std::mem::offset_of;
use std::sync::Arc;

use udma_abi::{
    Atomic, CqeStatus, FetchKind, MovedWord, OneSided, Sge,
    sqe::{BLOCK_WORDS, SqeFlags},
};
use urma_mem::Region;
use urma_mem::ends::{EndCount, SeenEnds};
use urma_mem::hazard::{Announced, Generation, HazardSlot};
use urma_mem::lines::UsedLines;

use crate::context::link::NodePath;
use crate::context::segment::LocalSegment;
use crate::engine::word::atomic_at;
use crate::hooks::{self, Hook};

/// Places of requests that are kept, in pairs: a program that writes to each of 63 peers in turn finds nearly all.
const KNOWN: usize = 256;
/// One of so many new requests replaces an old one.
const REPLACING: usize = 8;

/// Bytes of a request that is one move.
pub const WORD_LEN: u32 = 8;

/// Both blocks of an atomic.
pub(crate) type AtomicBlocks = [[u64; BLOCK_WORDS]; 2];

/// What of a WRITE or READ differs from one like it.
#[derive(Clone, Copy, Debug)]
pub struct MovedEntry {
    /// Position of the entry, free running.
    pub pi: u32,
    /// It wants a completion.
    pub is_signalled: bool,
    /// Address in the remote segment.
    pub remote_va: u64,
    /// Address in the local segment.
    pub local_va: u64,
    /// Length of both pieces in bytes.
    pub len: u32,
}

impl MovedEntry {
    /// Of the block at position `pi`.
    #[inline(always)]
    pub(crate) const fn of(block: &[u64; BLOCK_WORDS], pi: u32) -> Self {
        let is_signalled = OneSided::flags_of(block).contains(SqeFlags::COMPLETE);
        let (remote_va, local_va, len) = (block[5], block[7], OneSided::len_of(block));
        Self { pi, is_signalled, remote_va, local_va, len }
    }
}

/// What earlier requests rested on, by the segments that they name.
#[derive(Debug)]
pub(crate) struct KnownRequests {
    /// `None`: nothing was kept yet, as by most queues of a program with many.
    slots: Option<Box<[Option<Box<KnownRequest>>; KNOWN]>>,
    /// The one that the newest carried block was like; [`KNOWN`]: it was like none, or that is not kept any more.
    newest: usize,
    /// As `newest`, of the newest carried atomic.
    newest_atomic: usize,
    /// Requests that were not like one before.
    missed: usize,
    /// Ends of segments and of paths of this node.
    ends: Arc<EndCount>,
}

/// What one earlier request rested on.
///
/// In whole cache lines, the first of which a grant does not use: a program that writes to many peers, or by many queues,
/// in turn loads them each time.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct KnownRequest {
    /// Nothing that it rests on had ended at that time.
    seen: SeenEnds,
    facts: Facts,
    proof: LifeProof,
}

const _: () = assert!(offset_of!(KnownRequest, facts) + offset_of!(Facts, fetch) == 64);

/// What does not change.
#[derive(Clone, Debug)]
#[repr(C, align(16))]
struct Facts {
    key: Key,
    link: Arc<NodePath>,
    /// The local segment, and its memory once more: it is found with fewer loads.
    segment: Arc<LocalSegment>,
    /// What an atomic does.
    fetch: Option<FetchKind>,
    op: KnownOp,
    /// Longest request that is one step.
    len_max: u64,
    local: KnownMemory,
    remote: KnownMemory,
}

/// What such requests do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum KnownOp {
    Write,
    Read,
    Atomic,
}

/// What an earlier request is found by.
#[derive(Debug)]
pub(crate) struct KnownName {
    slot: usize,
    key: Key,
    op: KnownOp,
    /// What an atomic does.
    fetch: Option<FetchKind>,
}

/// Memory whose first byte has an address.
#[derive(Clone, Debug)]
pub(crate) struct KnownMemory {
    pub(crate) va: u64,
    pub(crate) region: Region,
}

/// What shows that the remote segment lives.
#[derive(Clone, Debug)]
pub(crate) enum LifeProof {
    /// A segment of this node: unregistering visits every engine.
    Own(Arc<LocalSegment>),
    /// One of a peer's: `slot` announces each access. It is the slot of the path, which the engine uses one
    /// request after the other.
    Peer { slot: HazardSlot, token_id: u32, generation: Generation, life: u64 },
}

impl LifeProof {
    /// Whether the remote segment is one of this node with bytes that cannot be read.
    fn has_poison(&self) -> bool {
        match self {
            Self::Own(segment) => segment.has_poison(),
            Self::Peer { .. } => false,
        }
    }
}

/// All words of a request that name a right, without what differs from request to request.
#[derive(Clone, Copy, Debug)]
struct Key([u64; 4]);

impl Key {
    #[inline(always)]
    fn of(block: &[u64; BLOCK_WORDS]) -> Self {
        Self([block[0] & OneSided::SAME_FRONT, block[1], block[4], block[6] >> 32])
    }

    /// Of an atomic: no first block alone has it, whatever stands in its place for a piece.
    #[inline(always)]
    fn of_atomic([front, back]: &AtomicBlocks) -> Self {
        let Self([operation, segment, token, _]) = Self::of(front);
        Self([operation, segment, token, back[4] >> 32 | TWO_BLOCKS])
    }

    /// Whether `block` has it.
    #[inline(always)]
    fn is_of(&self, block: &[u64; BLOCK_WORDS]) -> bool {
        self.is(&Self::of(block))
    }

    #[inline(always)]
    fn is(&self, other: &Self) -> bool {
        let (Self(mine), Self(other)) = (self, other);
        // One by one: compared as an array, they would be stored first.
        (mine[0] ^ other[0]) | (mine[1] ^ other[1]) | (mine[2] ^ other[2]) | (mine[3] ^ other[3])
            == 0
    }
}

impl KnownName {
    /// Of the WRITE or READ of `block`.
    pub(crate) fn of(block: &[u64; BLOCK_WORDS], is_write: bool) -> Self {
        let op = if is_write { KnownOp::Write } else { KnownOp::Read };
        Self { slot: slot_of(block), key: Key::of(block), op, fetch: None }
    }

    /// Of the atomic of both `blocks`.
    pub(crate) fn of_atomic(blocks: &AtomicBlocks, kind: FetchKind) -> Self {
        let (slot, key) = (slot_of(&blocks[0]), Key::of_atomic(blocks));
        Self { slot, key, op: KnownOp::Atomic, fetch: Some(kind) }
    }
}

/// First place of a request; the other one of the pair is its second.
#[inline(always)]
pub(crate) fn slot_of(block: &[u64; BLOCK_WORDS]) -> usize {
    // Path and remote segment, and the local one. Knuth's multiplicative hash: its high bits depend on all of them.
    let mixed = (block[1] ^ block[6].rotate_left(16)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    usize::try_from(mixed >> (u64::BITS - KNOWN.trailing_zeros())).unwrap_or(0)
}

impl KnownMemory {
    /// Where `va` lies behind the first byte: beyond the region if it lies before it.
    #[inline(always)]
    fn offset_of(&self, va: u64) -> Option<usize> {
        usize::try_from(va.wrapping_sub(self.va)).ok()
    }

    /// Whether `len` bytes from `offset` on lie in it.
    #[inline(always)]
    fn holds(&self, offset: usize, len: usize) -> bool {
        offset.checked_add(len).is_some_and(|end| end <= self.region.len())
    }
}

impl KnownRequest {
    /// The same once more, for a grant of the engine that keeps this one.
    pub(super) fn again(&self) -> Self {
        Self { seen: self.seen, facts: self.facts.clone(), proof: self.proof.clone() }
    }

    /// Whether the path and the segments of this node live; `seen` is what was read before.
    #[inline(always)]
    pub(crate) fn lives(&mut self, seen: SeenEnds) -> bool {
        self.is_as_seen(seen) || self.looks_alive(seen)
    }

    /// Whether nothing ended since all flags were looked at.
    #[inline(always)]
    pub(crate) fn is_as_seen(&self, seen: SeenEnds) -> bool {
        self.seen == seen
    }

    /// As [`KnownRequest::lives`], after something ended.
    #[cold]
    #[inline(never)]
    fn looks_alive(&mut self, seen: SeenEnds) -> bool {
        let is_there = match &self.proof {
            LifeProof::Own(segment) => segment.is_live(),
            LifeProof::Peer { .. } => true,
        };
        let lives = self.facts.link.is_alive() && self.facts.segment.is_live() && is_there;
        if lives {
            self.seen = seen;
        }
        lives
    }

    /// Notes the word by which each access is announced as value number `at`.
    pub(crate) fn note_slot(&self, lines: &UsedLines, at: usize) {
        if let LifeProof::Peer { slot, .. } = &self.proof {
            lines.note_word(at, slot.word().window());
        }
    }

    /// Blocks of such a request.
    pub(crate) fn blocks(&self) -> u32 {
        if self.facts.op == KnownOp::Atomic { Atomic::BLOCKS } else { 1 }
    }

    /// As [`OpenMemory::change`], of what differs from the atomic that this was kept for.
    #[inline(always)]
    pub(crate) fn change(&mut self, moved: &MovedWord) -> Option<Result<u32, CqeStatus>> {
        let MovedWord { remote_va, local_va, len, operand, compare, .. } = *moved;
        self.open()?.change_word(remote_va, (local_va, len), (operand, compare))
    }

    /// As [`KnownRequest::open`], of a remote segment of this node.
    #[inline(always)]
    pub(crate) fn open_own(&self) -> Option<OpenMemory<'_>> {
        let LifeProof::Own(_) = &self.proof else { return None };
        Some(OpenMemory { facts: &self.facts, proof: OpenProof::Own })
    }

    /// Asks for the cache line that a word will be written to, before all that is to be looked at first: the peer has it
    /// as a rule, and its way here takes longer than that.
    #[inline(always)]
    pub(crate) fn ask_for_line(&self, remote_va: u64) {
        let Facts { op, remote, .. } = &self.facts;
        if *op == KnownOp::Write
            && let Some(offset) = remote.offset_of(remote_va)
        {
            remote.region.prefetch_line_to_store(offset);
        }
    }

    /// Both memories, if the peer's segment still has its life; it is announced until the answer is dropped.
    #[inline(always)]
    pub(crate) fn open(&mut self) -> Option<OpenMemory<'_>> {
        let proof = match &mut self.proof {
            LifeProof::Own(_) => OpenProof::Own,
            LifeProof::Peer { slot, token_id, generation, life } => {
                let announced = slot.announce(u64::from(*token_id)).ok()?;
                hooks::pass(Hook::SlotAnnounced);
                announced.check(generation, *life).ok()?;
                OpenProof::Peer(announced, generation, *life)
            }
        };
        Some(OpenMemory { facts: &self.facts, proof })
    }
}

/// Memory that may be touched.
#[derive(Debug)]
pub(crate) struct OpenMemory<'k> {
    facts: &'k Facts,
    proof: OpenProof<'k>,
}

/// As [`LifeProof`], in force.
#[derive(Debug)]
enum OpenProof<'k> {
    Own,
    Peer(Announced<'k>, &'k Generation, u64),
}

impl OpenMemory<'_> {
    /// Whether the request of `block` is like the one that this was opened for.
    #[inline(always)]
    pub(crate) fn is_of(&self, block: &[u64; BLOCK_WORDS]) -> bool {
        self.facts.key.is_of(block)
    }

    /// Moves the bytes of such a request, if they are one step, lie in both memories and can be read; `None`: they
    /// are not, or the life of the peer's segment ended meanwhile.
    #[inline(always)]
    pub(crate) fn copy(&self, moved: &MovedEntry) -> Option<()> {
        let MovedEntry { remote_va, local_va, len, .. } = *moved;
        self.copy_by((remote_va, local_va, len), |from, to| {
            from.0.copy_to_ordered(from.1, to.0, to.1, len as usize).ok()
        })
    }

    /// As [`OpenMemory::copy`], of one word, if that is one move; `None` also where it is not.
    #[inline(always)]
    pub(crate) fn copy_word(&self, remote_va: u64, local_va: u64) -> Option<()> {
        self.copy_by((remote_va, local_va, WORD_LEN), |from, to| {
            from.0.copy_word_ordered(from.1, to.0, to.1)
        })
    }

    /// As [`OpenMemory::copy`], by `copy`, which checks both ends.
    #[inline(always)]
    fn copy_by(
        &self,
        (remote_va, local_va, len): (u64, u64, u32),
        copy: impl FnOnce((&Region, usize), (&Region, usize)) -> Option<()>,
    ) -> Option<()> {
        let facts = self.facts;
        let local = (&facts.local.region, facts.local.offset_of(local_va)?);
        let remote = (&facts.remote.region, facts.remote.offset_of(remote_va)?);
        if u64::from(len).wrapping_sub(1) >= facts.len_max {
            return None;
        }
        match facts.op {
            KnownOp::Write => copy(local, remote)?,
            KnownOp::Read => copy(remote, local)?,
            KnownOp::Atomic => return None,
        }
        let OpenProof::Peer(announced, generation, life) = &self.proof else { return Some(()) };
        hooks::pass(Hook::CopyUnchecked);
        announced.check_moved(generation, *life).ok()
    }

    /// Changes the word of such an atomic and stores its value before, if both memories have their bytes; returns
    /// their number, or that the life of the peer's segment ended meanwhile. `None`: nothing happened.
    #[inline(always)]
    pub(crate) fn change(&self, [front, back]: &AtomicBlocks) -> Option<Result<u32, CqeStatus>> {
        let piece = Sge::from_words([back[4], back[5]]);
        self.change_word(front[5], (piece.va, piece.len), (back[0], back[1]))
    }

    /// As [`OpenMemory::change`], of the word at `remote_va`, by its operands; the value before is stored in `len` bytes at
    /// `local_va`.
    #[inline(always)]
    pub(crate) fn change_word(
        &self,
        remote_va: u64,
        (local_va, bytes): (u64, u32),
        operands: (u64, u64),
    ) -> Option<Result<u32, CqeStatus>> {
        let (facts, len) = (self.facts, u64::from(bytes));
        let kind = facts.fetch?;
        let (at, there) = (facts.local.offset_of(local_va)?, facts.remote.offset_of(remote_va)?);
        // Looked at before: the word there is changed once.
        if !facts.local.holds(at, bytes as usize) {
            return None;
        }
        let before = atomic_at((&facts.remote.region, there), len, kind, operands).ok()?;
        if let OpenProof::Peer(announced, generation, life) = &self.proof {
            hooks::pass(Hook::CopyUnchecked);
            if announced.check_moved(generation, *life).is_err() {
                return Some(Err(CqeStatus::RemAccessAbort));
            }
        }
        let value = before.to_le_bytes();
        let stored = match len {
            4 => facts.local.region.write_ordered(at, &value[..4]),
            _ => facts.local.region.write_ordered(at, &value),
        };
        Some(stored.map(|()| bytes).map_err(|_| CqeStatus::LocAccess))
    }
}

impl KnownRequests {
    /// Keeps nothing yet; `ends` counts what ends under what is kept.
    pub(crate) fn new(ends: Arc<EndCount>) -> Self {
        Self { slots: None, newest: KNOWN, newest_atomic: KNOWN, missed: 0, ends }
    }

    /// Ends of segments and of paths of this node.
    pub(crate) fn ends(&self) -> &Arc<EndCount> {
        &self.ends
    }

    /// What ended by now, for [`KnownRequest::lives`].
    #[inline(always)]
    pub(crate) fn seen_ends(&self) -> SeenEnds {
        self.ends.seen()
    }

    /// As [`KnownRequests::find`], of a block that is carried; requests that differ in what moves find it by
    /// [`KnownRequests::newest`].
    #[inline(always)]
    pub(crate) fn find_carried(&mut self, block: &[u64; BLOCK_WORDS]) -> Option<&mut KnownRequest> {
        let key = Key::of(block);
        self.newest = self.place_of(slot_of(block), &key).unwrap_or(KNOWN);
        self.newest()
    }

    /// The earlier request that the newest carried block was like.
    #[inline(always)]
    pub(crate) fn newest(&mut self) -> Option<&mut KnownRequest> {
        self.at(self.newest)
    }

    /// The earlier request that the one of `block` is like.
    #[inline(always)]
    pub(crate) fn find(&mut self, block: &[u64; BLOCK_WORDS]) -> Option<&mut KnownRequest> {
        self.at(self.place_of(slot_of(block), &Key::of(block))?)
    }

    /// As [`KnownRequests::find_carried`], of an atomic; the newest one is [`KnownRequests::newest_atomic`].
    #[inline(always)]
    pub(crate) fn find_carried_atomic(
        &mut self,
        blocks: &AtomicBlocks,
    ) -> Option<&mut KnownRequest> {
        let key = Key::of_atomic(blocks);
        self.newest_atomic = self.place_of(slot_of(&blocks[0]), &key).unwrap_or(KNOWN);
        self.newest_atomic()
    }

    /// The earlier atomic that the newest carried one was like.
    #[inline(always)]
    pub(crate) fn newest_atomic(&mut self) -> Option<&mut KnownRequest> {
        self.at(self.newest_atomic)
    }

    /// As [`KnownRequests::find`], of the atomic of both `blocks`.
    #[inline(always)]
    pub(crate) fn find_atomic(&mut self, blocks: &AtomicBlocks) -> Option<&mut KnownRequest> {
        self.at(self.place_of(slot_of(&blocks[0]), &Key::of_atomic(blocks))?)
    }

    #[inline(always)]
    fn at(&mut self, place: usize) -> Option<&mut KnownRequest> {
        self.slots.as_deref_mut()?.get_mut(place)?.as_deref_mut()
    }

    /// Where the one with `key` is: in its first place or in the second.
    #[inline(always)]
    fn place_of(&self, slot: usize, key: &Key) -> Option<usize> {
        let slots = self.slots.as_deref()?;
        let is_at = |at: usize| slots[at].as_deref().is_some_and(|known| known.facts.key.is(key));
        if is_at(slot) {
            return Some(slot);
        }
        Some(slot ^ 1).filter(|&second| is_at(second))
    }

    /// Whether a request that was found by its names is to be kept.
    #[inline]
    pub(crate) fn wants(&mut self, block: &[u64; BLOCK_WORDS]) -> bool {
        self.missed = self.missed.wrapping_add(1);
        let slot = slot_of(block);
        let has_room =
            |slots: &[Option<_>; KNOWN]| slots[slot].is_none() || slots[slot ^ 1].is_none();
        self.slots.as_deref().is_none_or(has_room) || self.missed.is_multiple_of(REPLACING)
    }

    /// Keeps what the request with this name rested on, all of which was checked.
    pub(crate) fn keep(
        &mut self,
        KnownName { slot, key, op, fetch }: KnownName,
        (link, segment, len_max): (Arc<NodePath>, Arc<LocalSegment>, u64),
        (remote, proof): (KnownMemory, LifeProof),
    ) {
        // Where bytes may not be read, each request is checked for them.
        if segment.has_poison() || proof.has_poison() {
            return;
        }
        let local = KnownMemory { va: segment.va, region: segment.region.clone() };
        let facts = Facts { key, op, fetch, len_max, link, segment, local, remote };
        (self.newest, self.newest_atomic) = (KNOWN, KNOWN);
        let known_at = self.place_of(slot, &facts.key);
        let slots = self.slots.get_or_insert_with(|| Box::new([const { None }; KNOWN]));
        let takes_second = slots[slot].is_some() && slots[slot ^ 1].is_none();
        let place = known_at.unwrap_or(if takes_second { slot ^ 1 } else { slot });
        let known = KnownRequest { seen: SeenEnds::NONE, facts, proof };
        match &mut slots[place] {
            Some(old) => **old = known,
            none => *none = Some(Box::new(known)),
        }
    }

    /// Keeps nothing alive any more; also to be called when the queue may no longer do what it did.
    pub(crate) fn forget(&mut self) {
        self.slots = None;
        (self.newest, self.newest_atomic) = (KNOWN, KNOWN);
    }
}

/// In a key: of an atomic.
const TWO_BLOCKS: u64 = 1 << 63;
