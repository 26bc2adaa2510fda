//! Cache of checked WRITEs, READs and atomics: a request like an earlier one skips the lookups and checks.
//!
//! Must not cache a check whose result can change without the words that each use compares.

use std::mem::offset_of;
use std::sync::Arc;

use udma_abi::{
    Atomic, CompletionBy, CqeStatus, FetchKind, MovedWord, OneSided, Sge,
    sqe::{BLOCK_WORDS, SqeFlags},
};
use urma_mem::Region;
use urma_mem::ends::{EndCount, SeenEnds};
use urma_mem::hazard::{Announced, Generation};
use urma_mem::lines::UsedLines;

use crate::context::link::NodePath;
use crate::context::segment::LocalSegment;
use crate::engine::direct::atomic_at;
use crate::engine::remote::{KnownMemory, LifeProof};
use crate::hooks::{self, Hook};

/// Cache entries, in sets of two: a program that writes to each of 63 peers in turn hits nearly always.
const KNOWN: usize = 256;
/// A new request replaces an old one once in so many misses.
const REPLACING: usize = 8;

/// Length in bytes of a request that is a single 8-byte move.
pub const WORD_LEN: u32 = 8;

/// Both blocks of an atomic.
pub(crate) type AtomicBlocks = [[u64; BLOCK_WORDS]; 2];

/// What differs between a WRITE or READ and the cached request that it is like.
#[derive(Clone, Copy, Debug)]
pub struct MovedEntry {
    /// Position of the entry, free running.
    pub pi: u32,
    /// Who makes its completion.
    pub by: CompletionBy,
    /// Address in the remote segment.
    pub remote_va: u64,
    /// Address in the local segment.
    pub local_va: u64,
    /// Length of both pieces in bytes.
    pub len: u32,
}

impl MovedEntry {
    /// Reads these fields from the block at position `pi`, whose completion the device makes.
    #[inline(always)]
    pub(crate) const fn of(block: &[u64; BLOCK_WORDS], pi: u32) -> Self {
        let is_signalled = OneSided::flags_of(block).contains(SqeFlags::COMPLETE);
        let by = if is_signalled { CompletionBy::Device } else { CompletionBy::Nobody };
        let (remote_va, local_va, len) = (block[5], block[7], OneSided::len_of(block));
        Self { pi, by, remote_va, local_va, len }
    }
}

/// Cached requests of one queue, found by the segments that they name.
///
/// Requests are alike when all words that name a right are equal: operation, path, remote segment, token, local
/// segment. Names, token and access then need no second check as long as both segments are in the same life and the
/// path lives: three words, compared at each use, the peer's under an announcement. Addresses and length differ from
/// request to request; they are checked against the bounds of the cached regions.
#[derive(Debug)]
pub(crate) struct KnownRequests {
    /// `None`: nothing is cached yet, as in most queues of a program with many.
    slots: Option<Box<[Option<Box<KnownRequest>>; KNOWN]>>,
    /// Entry that the last executed block hit; [`KNOWN`]: it missed, or the entry was replaced.
    newest: usize,
    /// Entry that the last executed atomic hit; otherwise like `newest`.
    newest_atomic: usize,
    /// Number of misses, to pick those that replace an entry.
    missed: usize,
    /// Epoch of this node's segments and paths: each end of one bumps it.
    ends: Arc<EndCount>,
}

/// One cached request: both segments and the path, already checked.
///
/// Aligned to cache lines; grants do not use the first line: a program that writes to many peers or through many
/// queues in turn loads the others each time.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct KnownRequest {
    /// Epoch at which the path and all segments were last seen alive.
    seen: SeenEnds,
    facts: Facts,
    proof: LifeProof,
}

const _: () = assert!(offset_of!(KnownRequest, facts) + offset_of!(Facts, fetch) == 64);

/// The part of a cached request that never changes.
#[derive(Clone, Debug)]
#[repr(C, align(16))]
struct Facts {
    key: Key,
    link: Arc<NodePath>,
    /// The local segment; `local` repeats its memory, to be reached with fewer loads.
    segment: Arc<LocalSegment>,
    /// Operation of an atomic.
    fetch: Option<FetchKind>,
    op: KnownOp,
    /// Longest request that is executed in one step, in bytes.
    len_max: u64,
    local: KnownMemory,
    remote: KnownMemory,
}

/// Operation of a cached request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum KnownOp {
    Write,
    Read,
    Atomic,
}

/// Cache entry and key of a request that is to be kept.
#[derive(Debug)]
pub(crate) struct KnownName {
    slot: usize,
    key: Key,
    op: KnownOp,
    /// Operation of an atomic.
    fetch: Option<FetchKind>,
}

/// All words of a request that name a right, without those that differ from request to request.
#[derive(Clone, Copy, Debug)]
struct Key([u64; 4]);

impl Key {
    #[inline(always)]
    fn of(block: &[u64; BLOCK_WORDS]) -> Self {
        Self([block[0] & OneSided::SAME_FRONT, block[1], block[4], block[6] >> 32])
    }

    /// Key of an atomic. No one-block request has the same key, whatever stands in its words.
    #[inline(always)]
    fn of_atomic([front, back]: &AtomicBlocks) -> Self {
        let Self([operation, segment, token, _]) = Self::of(front);
        Self([operation, segment, token, back[4] >> 32 | TWO_BLOCKS])
    }

    /// Whether `block` has this key.
    #[inline(always)]
    fn is_of(&self, block: &[u64; BLOCK_WORDS]) -> bool {
        self.is(&Self::of(block))
    }

    #[inline(always)]
    fn is(&self, other: &Self) -> bool {
        let (Self(mine), Self(other)) = (self, other);
        // Word by word: an array comparison would store both to memory first.
        (mine[0] ^ other[0]) | (mine[1] ^ other[1]) | (mine[2] ^ other[2]) | (mine[3] ^ other[3])
            == 0
    }
}

impl KnownName {
    /// Name of the WRITE or READ in `block`.
    pub(crate) fn of(block: &[u64; BLOCK_WORDS], is_write: bool) -> Self {
        let op = if is_write { KnownOp::Write } else { KnownOp::Read };
        Self { slot: slot_of(block), key: Key::of(block), op, fetch: None }
    }

    /// Name of the atomic in both `blocks`.
    pub(crate) fn of_atomic(blocks: &AtomicBlocks, kind: FetchKind) -> Self {
        let (slot, key) = (slot_of(&blocks[0]), Key::of_atomic(blocks));
        Self { slot, key, op: KnownOp::Atomic, fetch: Some(kind) }
    }
}

/// First entry of a request's set; the second differs in bit 0.
#[inline(always)]
pub(crate) fn slot_of(block: &[u64; BLOCK_WORDS]) -> usize {
    // Path, remote and local segment, mixed by Knuth's multiplicative hash: its high bits depend on all of them.
    let mixed = (block[1] ^ block[6].rotate_left(16)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    usize::try_from(mixed >> (u64::BITS - KNOWN.trailing_zeros())).unwrap_or(0)
}

impl KnownRequest {
    /// Copies the entry for a grant; the cache keeps its own.
    pub(super) fn again(&self) -> Self {
        Self { seen: self.seen, facts: self.facts.clone(), proof: self.proof.clone() }
    }

    /// Whether the path and this node's segments are alive; `seen` is the epoch, read before.
    #[inline(always)]
    pub(crate) fn lives(&mut self, seen: SeenEnds) -> bool {
        self.is_as_seen(seen) || self.looks_alive(seen)
    }

    /// Whether the epoch is still that of the last full check.
    #[inline(always)]
    pub(crate) fn is_as_seen(&self, seen: SeenEnds) -> bool {
        self.seen == seen
    }

    /// Checks all flags after the epoch moved, and notes the new epoch if path and segments live.
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

    /// Notes the hazard slot's word as value number `at`, for the list of cache lines in use.
    pub(crate) fn note_slot(&self, lines: &UsedLines, at: usize) {
        if let LifeProof::Peer { slot, .. } = &self.proof {
            lines.note_word(at, slot.word().window());
        }
    }

    /// Whether such a request may have 8 bytes.
    pub(crate) fn takes_words(&self) -> bool {
        self.facts.len_max >= u64::from(WORD_LEN)
    }

    /// Number of blocks of such a request.
    pub(crate) fn blocks(&self) -> u32 {
        if self.facts.op == KnownOp::Atomic { Atomic::BLOCKS } else { 1 }
    }

    /// Executes an atomic like the cached one, with the operands and addresses of `moved` ([`OpenMemory::change`]).
    #[inline(always)]
    pub(crate) fn change(&mut self, moved: &MovedWord) -> Option<Result<u32, CqeStatus>> {
        let MovedWord { remote_va, local_va, len, operand, compare, .. } = *moved;
        self.open()?.change_word(remote_va, (local_va, len), (operand, compare))
    }

    /// Returns both memories if the remote segment is of this node; unlike [`KnownRequest::open`] it announces
    /// nothing.
    #[inline(always)]
    pub(crate) fn open_own(&self) -> Option<OpenMemory<'_>> {
        let LifeProof::Own(_) = &self.proof else { return None };
        Some(OpenMemory { facts: &self.facts, proof: OpenProof::Own })
    }

    /// Prefetches the line that a WRITE will store to, before all checks: the peer usually owns it, and fetching it
    /// takes longer than they do.
    #[inline(always)]
    pub(crate) fn ask_for_line(&self, remote_va: u64) {
        let Facts { op, remote, .. } = &self.facts;
        if *op == KnownOp::Write
            && let Some(offset) = remote.offset_of(remote_va)
        {
            remote.region.prefetch_line_to_store(offset);
        }
    }

    /// Announces the access and returns both memories, if the peer's segment is still in its life. The announcement
    /// ends when the result is dropped.
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

/// Both memories of a request, announced where that is needed.
#[derive(Debug)]
pub(crate) struct OpenMemory<'k> {
    facts: &'k Facts,
    proof: OpenProof<'k>,
}

/// The announcement in force: none for a segment of this node.
#[derive(Debug)]
enum OpenProof<'k> {
    Own,
    Peer(Announced<'k>, &'k Generation, u64),
}

impl OpenMemory<'_> {
    /// Whether the request in `block` is like the one that this was opened for.
    #[inline(always)]
    pub(crate) fn is_of(&self, block: &[u64; BLOCK_WORDS]) -> bool {
        self.facts.key.is_of(block)
    }

    /// Copies the bytes of such a request; 8 bytes as one move if they are aligned for that. `None`: too long for one
    /// step, outside of either region, unreadable, or the peer's segment was invalidated meanwhile.
    #[inline(always)]
    pub(crate) fn copy(&self, moved: &MovedEntry) -> Option<()> {
        let MovedEntry { remote_va, local_va, len, .. } = *moved;
        if u64::from(len).wrapping_sub(1) >= self.facts.len_max {
            return None;
        }
        if len == WORD_LEN && self.copy_word(remote_va, local_va).is_some() {
            return Some(());
        }
        self.copy_by((remote_va, local_va), |from, to| {
            from.0.copy_to_ordered(from.1, to.0, to.1, len as usize).ok()
        })
    }

    /// Copies 8 bytes, which such a request may have, as one move; `None` also if they are not aligned for that.
    #[inline(always)]
    pub(crate) fn copy_word(&self, remote_va: u64, local_va: u64) -> Option<()> {
        self.copy_by((remote_va, local_va), |from, to| from.0.copy_word_ordered(from.1, to.0, to.1))
    }

    /// Calls `copy` with source and destination; it checks the bounds of both.
    #[inline(always)]
    fn copy_by(
        &self,
        (remote_va, local_va): (u64, u64),
        copy: impl FnOnce((&Region, usize), (&Region, usize)) -> Option<()>,
    ) -> Option<()> {
        let facts = self.facts;
        let local = (&facts.local.region, facts.local.offset_of(local_va)?);
        let remote = (&facts.remote.region, facts.remote.offset_of(remote_va)?);
        match facts.op {
            KnownOp::Write => copy(local, remote)?,
            KnownOp::Read => copy(remote, local)?,
            KnownOp::Atomic => return None,
        }
        let OpenProof::Peer(announced, generation, life) = &self.proof else { return Some(()) };
        hooks::pass(Hook::CopyUnchecked);
        announced.check_moved(generation, *life).ok()
    }

    /// Executes such an atomic and stores the old value locally. Returns the number of bytes, or an error if the
    /// peer's segment was invalidated meanwhile. `None`: nothing happened.
    #[inline(always)]
    pub(crate) fn change(&self, [front, back]: &AtomicBlocks) -> Option<Result<u32, CqeStatus>> {
        let piece = Sge::from_words([back[4], back[5]]);
        self.change_word(front[5], (piece.va, piece.len), (back[0], back[1]))
    }

    /// Applies the operands to the word at `remote_va`, and stores the old value in `len` bytes at `local_va`.
    /// Results are those of [`OpenMemory::change`].
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
        // Checked first: the remote word must be changed only once.
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
    /// Creates an empty cache; `ends` is the epoch of the node's segments and paths.
    pub(crate) fn new(ends: Arc<EndCount>) -> Self {
        Self { slots: None, newest: KNOWN, newest_atomic: KNOWN, missed: 0, ends }
    }

    /// Epoch of this node's segments and paths.
    pub(crate) fn ends(&self) -> &Arc<EndCount> {
        &self.ends
    }

    /// Reads the epoch, for [`KnownRequest::lives`].
    #[inline(always)]
    pub(crate) fn seen_ends(&self) -> SeenEnds {
        self.ends.seen()
    }

    /// Looks up a block that is about to be executed, and remembers the entry: requests that differ only in addresses
    /// and length then use [`KnownRequests::newest`].
    #[inline(always)]
    pub(crate) fn find_executed(
        &mut self,
        block: &[u64; BLOCK_WORDS],
    ) -> Option<&mut KnownRequest> {
        let key = Key::of(block);
        self.newest = self.place_of(slot_of(block), &key).unwrap_or(KNOWN);
        self.newest()
    }

    /// Entry that the last executed block hit.
    #[inline(always)]
    pub(crate) fn newest(&mut self) -> Option<&mut KnownRequest> {
        self.at(self.newest)
    }

    /// Looks up the entry for the request in `block`.
    #[inline(always)]
    pub(crate) fn find(&mut self, block: &[u64; BLOCK_WORDS]) -> Option<&mut KnownRequest> {
        self.at(self.place_of(slot_of(block), &Key::of(block))?)
    }

    /// Looks up an atomic that is about to be executed, and remembers the entry for [`KnownRequests::newest_atomic`].
    #[inline(always)]
    pub(crate) fn find_executed_atomic(
        &mut self,
        blocks: &AtomicBlocks,
    ) -> Option<&mut KnownRequest> {
        let key = Key::of_atomic(blocks);
        self.newest_atomic = self.place_of(slot_of(&blocks[0]), &key).unwrap_or(KNOWN);
        self.newest_atomic()
    }

    /// Entry that the last executed atomic hit.
    #[inline(always)]
    pub(crate) fn newest_atomic(&mut self) -> Option<&mut KnownRequest> {
        self.at(self.newest_atomic)
    }

    /// Looks up the entry for the atomic in both `blocks`.
    #[inline(always)]
    pub(crate) fn find_atomic(&mut self, blocks: &AtomicBlocks) -> Option<&mut KnownRequest> {
        self.at(self.place_of(slot_of(&blocks[0]), &Key::of_atomic(blocks))?)
    }

    #[inline(always)]
    fn at(&mut self, place: usize) -> Option<&mut KnownRequest> {
        self.slots.as_deref_mut()?.get_mut(place)?.as_deref_mut()
    }

    /// Index of the entry with `key`, in either place of the set.
    #[inline(always)]
    fn place_of(&self, slot: usize, key: &Key) -> Option<usize> {
        let slots = self.slots.as_deref()?;
        let is_at = |at: usize| slots[at].as_deref().is_some_and(|known| known.facts.key.is(key));
        if is_at(slot) {
            return Some(slot);
        }
        Some(slot ^ 1).filter(|&second| is_at(second))
    }

    /// Whether to cache a request that missed: there is room, or it is the turn to replace an entry. Counts the miss.
    #[inline]
    pub(crate) fn wants(&mut self, block: &[u64; BLOCK_WORDS]) -> bool {
        self.missed = self.missed.wrapping_add(1);
        let slot = slot_of(block);
        let has_room =
            |slots: &[Option<_>; KNOWN]| slots[slot].is_none() || slots[slot ^ 1].is_none();
        self.slots.as_deref().is_none_or(has_room) || self.missed.is_multiple_of(REPLACING)
    }

    /// Caches a request, all of whose checks succeeded.
    pub(crate) fn keep(
        &mut self,
        KnownName { slot, key, op, fetch }: KnownName,
        (link, segment, len_max): (Arc<NodePath>, Arc<LocalSegment>, u64),
        (remote, proof): (KnownMemory, LifeProof),
    ) {
        // Requests on segments with unreadable bytes are checked each time.
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

    /// Empties the cache; also called when the queue may no longer do what it did.
    pub(crate) fn forget(&mut self) {
        self.slots = None;
        (self.newest, self.newest_atomic) = (KNOWN, KNOWN);
    }
}

/// Bit in a key: the request is an atomic of two blocks.
const TWO_BLOCKS: u64 = 1 << 63;
