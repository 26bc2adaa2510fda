//! A WRITE, READ or atomic: nearly all entries there are. The usual one has one local piece.
//!
//! *Owns*: nothing; the layout is that of [`Sqe`](crate::Sqe). *Takes*: the fields that such a
//! request has. *Gives*: its blocks, or the fields from its blocks, without those that are zero.
//! *Must not*: differ from what `Sqe` reads and writes.

use crate::{
    FetchKind, OpKind, Opcode, RawEid, Sge, field8, field16, field32, flag, place,
    sqe::{
        BLOCK_WORDS, SGE_LEN, SqeFlags, SqeTargetKind, blocks_for, control_len, inline_max, sge_max,
    },
};

/// Fields of such a request, named as those of [`Sqe`](crate::Sqe).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OneSided {
    /// Ring index of the block, modulo 2^16.
    pub entry_idx: u16,
    /// Owner bit of this pass over the ring.
    pub owner: bool,
    /// Flags of the request.
    pub flags: SqeFlags,
    /// The operation is a WRITE; otherwise it is a READ.
    pub is_write: bool,
    /// Transport path to the target's node; 24 bits.
    pub tpn: u32,
    /// Access token of the remote segment, if it is shown.
    pub token: Option<u32>,
    /// Token id of the remote segment (tid << 8).
    pub seg_token_id: u32,
    /// Remote address of the first byte.
    pub remote_va: u64,
    /// Local piece of the payload.
    pub piece: Sge,
}

/// Fields that an entry carries for the target, and that its own device has no use for on the
/// direct path.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Addressed {
    /// Kind of the object that `target_id` names.
    pub target_kind: SqeTargetKind,
    /// Queue at the target that the request is ordered with; 20 bits.
    pub target_id: u32,
    /// Picks the member of a jetty group.
    pub target_hint: u8,
    /// EID of the target's node.
    pub rmt_eid: RawEid,
}

impl OneSided {
    /// Reads an entry; `None` when it is another operation, carries its payload, or has not exactly
    /// one local piece.
    #[inline]
    #[must_use]
    pub const fn decode(words: &[u64; BLOCK_WORDS]) -> Option<Self> {
        if !has_one_piece(words) {
            return None;
        }
        match is_write(words) {
            Some(is_write) => Some(Self::fields(words, is_write, [words[6], words[7]])),
            None => None,
        }
    }

    /// Place of the owner bit in the first word.
    pub const OWNER_SHIFT: u32 = 31;

    /// What of the first word names an operation or a right: two entries that are equal in it, in all other words
    /// but addresses and lengths, and of which one was read by [`OneSided::decode`], ask for the same.
    pub const SAME_FRONT: u64 = INLINE | HAS_TOKEN | KIND | OPCODE;

    /// Bytes of the one piece of an entry.
    #[inline(always)]
    #[must_use]
    pub const fn len_of(words: &[u64; BLOCK_WORDS]) -> u32 {
        field32(words[6], 0, 32)
    }

    /// Ring index that an entry names, modulo 2^16.
    #[inline(always)]
    #[must_use]
    pub const fn entry_idx_of(words: &[u64; BLOCK_WORDS]) -> u16 {
        field16(words[0], 0, 16)
    }

    /// Flags of an entry.
    #[inline(always)]
    #[must_use]
    pub const fn flags_of(words: &[u64; BLOCK_WORDS]) -> SqeFlags {
        SqeFlags::from_bits_truncate(field8(words[0], 16, 7))
    }

    #[inline(always)]
    const fn fields(words: &[u64; BLOCK_WORDS], is_write: bool, piece: [u64; 2]) -> Self {
        Self {
            entry_idx: Self::entry_idx_of(words),
            owner: flag(words[0], 31),
            flags: Self::flags_of(words),
            is_write,
            tpn: field32(words[1], 0, 24),
            token: if flag(words[0], 28) { Some(field32(words[4], 0, 32)) } else { None },
            seg_token_id: field32(words[1], 32, 20) << 8,
            remote_va: words[5],
            piece: Sge::from_words(piece),
        }
    }

    /// Returns the words of the entry, as the ring and the doorbell page hold it.
    // With several callers `inline` alone leaves a call in the path of an 8-byte WRITE, here and below.
    #[inline(always)]
    #[must_use]
    pub fn encode(&self, to: &Addressed) -> [u64; BLOCK_WORDS] {
        let opcode = if self.is_write { Opcode::Write } else { Opcode::Read };
        self.block(opcode, to, self.piece.to_words())
    }

    /// The first block, with `tail` behind the control words.
    #[inline(always)]
    fn block(&self, opcode: Opcode, to: &Addressed, tail: [u64; 2]) -> [u64; BLOCK_WORDS] {
        let [high, low] = to.rmt_eid.to_words();
        [
            place(u64::from(self.entry_idx), 0, 16)
                | place(u64::from(self.flags.bits()), 16, 7)
                | place(u64::from(self.token.is_some()), 28, 1)
                | place(to.target_kind as u64, 29, 2)
                | place(u64::from(self.owner), 31, 1)
                | place(u64::from(to.target_hint), 32, 8)
                | place(opcode as u64, 40, 8),
            place(u64::from(self.tpn), 0, 24)
                | 1 << 24
                | place(u64::from(self.seg_token_id >> 8), 32, 20),
            low,
            high,
            u64::from(self.token.unwrap_or(0)) | place(u64::from(to.target_id), 32, 20),
            self.remote_va,
            tail[0],
            tail[1],
        ]
    }
}

/// The block of a request, which becomes that of others that differ in their addresses and lengths.
#[derive(Clone, Copy, Debug, Default)]
pub struct MovableBlock {
    words: [u64; BLOCK_WORDS],
    /// The words that change in part, without that part. A word that is put together where it lies may be stored
    /// in parts, and who loads it whole waits for them.
    front: u64,
    piece: u64,
}

impl MovableBlock {
    /// Of a block that [`OneSided::encode`] made.
    #[inline(always)]
    #[must_use]
    pub const fn new(words: [u64; BLOCK_WORDS]) -> Self {
        const PLACE: u64 = 0xffff | 1 << OneSided::OWNER_SHIFT | COMPLETE;
        Self { front: words[0] & !PLACE, piece: words[6] & !0xffff_ffff, words }
    }

    /// Whether it is the default, of no request.
    #[inline(always)]
    #[must_use]
    pub const fn is_none(&self) -> bool {
        self.front == 0
    }

    /// Returns the words of the present request.
    #[inline(always)]
    #[must_use]
    pub const fn block(&self) -> &[u64; BLOCK_WORDS] {
        &self.words
    }

    /// Makes it the block of a request with another position in the ring, other addresses and another length,
    /// which may or may not be signalled.
    #[inline(always)]
    pub const fn move_to(
        &mut self,
        (entry_idx, owner, is_signalled): (u16, bool, bool),
        (remote_va, local_va, len): (u64, u64, u32),
    ) {
        self.words[0] = self.front
            | entry_idx as u64
            | (owner as u64) << OneSided::OWNER_SHIFT
            | (is_signalled as u64) << COMPLETE.trailing_zeros();
        self.words[5] = remote_va;
        self.words[6] = self.piece | len as u64;
        self.words[7] = local_va;
    }
}

/// A WRITE or READ whose payload is in several pieces, or in the entry itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tailed {
    /// What it has in common with the usual request; its piece names nothing.
    pub request: OneSided,
    /// What follows the control words.
    pub tail: Tail,
}

/// What follows the control words of a WRITE or READ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tail {
    /// So many local pieces.
    Pieces(usize),
    /// So many bytes of payload.
    Inline(usize),
}

impl Tailed {
    /// Word of the entry at which the tail begins.
    pub const TAIL: usize = control_len(Opcode::Write) / 8;

    /// Reads an entry from its first block; `None` when it is another operation, a READ that carries a
    /// payload, or has a longer tail than an entry holds.
    #[inline]
    #[must_use]
    pub const fn decode(front: &[u64; BLOCK_WORDS]) -> Option<Self> {
        let Some(is_write) = is_write(front) else { return None };
        let is_inline = front[0] & INLINE != 0;
        let (pieces, len) = (field8(front[1], 24, 8) as usize, field16(front[0], 54, 10) as usize);
        let (tail, fits) = if is_inline {
            (Tail::Inline(len), is_write && len <= inline_max(Opcode::Write))
        } else {
            (Tail::Pieces(pieces), pieces <= sge_max(Opcode::Write))
        };
        if !fits || front[0] & KIND == KIND {
            return None;
        }
        Some(Self { request: OneSided::fields(front, is_write, [0, 0]), tail })
    }
}

impl Tail {
    /// Returns the blocks of the entry, at most four for a tail that was read.
    #[inline]
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "at most BLOCKS_MAX")]
    pub const fn blocks(self) -> u32 {
        let len = match self {
            Self::Pieces(pieces) => pieces * SGE_LEN,
            Self::Inline(len) => len,
        };
        blocks_for(Opcode::Write, len) as u32
    }
}

/// An atomic, which takes two blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Atomic {
    /// What it has in common with a READ; the piece is for the value that it fetches.
    pub request: OneSided,
    /// What it does to the word.
    pub kind: FetchKind,
    /// Value to store, add or combine; of 4 bytes the low half.
    pub operand: u64,
    /// CAS: value that is expected.
    pub compare: u64,
}

impl Atomic {
    /// Blocks of the entry.
    pub const BLOCKS: u32 = 2;

    /// Reads an entry from its `front`, the first block, and `back`, which returns the second one; `None`
    /// when it is no atomic, or has not exactly one local piece.
    #[inline]
    #[must_use]
    pub fn decode(
        front: &[u64; BLOCK_WORDS],
        back: impl FnOnce() -> Option<[u64; BLOCK_WORDS]>,
    ) -> Option<Self> {
        let op = Opcode::from_code(field8(front[0], 40, 8))?;
        let kind = fetch_kind(op).filter(|_| has_one_piece(front))?;
        let back = back()?;
        let request = OneSided::fields(front, false, [back[4], back[5]]);
        Some(Self { request, kind, operand: back[0], compare: back[1] })
    }

    /// Returns the words of the entry, as the ring holds it.
    #[inline]
    #[must_use]
    pub fn encode(&self, to: &Addressed) -> [[u64; BLOCK_WORDS]; 2] {
        let [piece, va] = self.request.piece.to_words();
        let front = self.request.block(self.kind.opcode(), to, [0, 0]);
        [front, [self.operand, self.compare, 0, 0, piece, va, 0, 0]]
    }
}

/// What of an atomic differs from one like it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MovedWord {
    /// Position of the entry, free running.
    pub pi: u32,
    /// Address of the word.
    pub remote_va: u64,
    /// Address at which its value before is stored.
    pub local_va: u64,
    /// Bytes of the word.
    pub len: u32,
    /// Value to store, add or combine, as in [`Atomic::operand`].
    pub operand: u64,
    /// Value that a CAS expects, as in [`Atomic::compare`].
    pub compare: u64,
}

/// Both blocks of an atomic, which become those of others like it.
#[derive(Clone, Copy, Debug)]
pub struct MovableAtomic {
    front: MovableBlock,
    back: [u64; BLOCK_WORDS],
}

impl MovableAtomic {
    /// Of blocks that [`Atomic::encode`] made.
    #[inline]
    #[must_use]
    pub const fn new([front, back]: [[u64; BLOCK_WORDS]; 2]) -> Self {
        Self { front: MovableBlock::new(front), back }
    }

    /// Returns the blocks of an atomic like it, with that owner bit, which may or may not be signalled.
    #[inline]
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "entry indices are modulo 2^16")]
    pub const fn moved(
        &self,
        moved: &MovedWord,
        (owner, is_signalled): (bool, bool),
    ) -> [[u64; BLOCK_WORDS]; 2] {
        let Self { mut front, mut back } = *self;
        // The first block names no piece.
        front.move_to((moved.pi as u16, owner, is_signalled), (moved.remote_va, 0, 0));
        (back[0], back[1]) = (moved.operand, moved.compare);
        back[4] = back[4] & !0xffff_ffff | moved.len as u64;
        back[5] = moved.local_va;
        [*front.block(), back]
    }
}

#[inline]
const fn fetch_kind(op: Opcode) -> Option<FetchKind> {
    match op.kind() {
        OpKind::Atomic(kind) => Some(kind),
        OpKind::Send
        | OpKind::SendImm
        | OpKind::SendInvalidate
        | OpKind::Write
        | OpKind::WriteImm
        | OpKind::WriteNotify(_)
        | OpKind::Read
        | OpKind::Nop
        | OpKind::FlushDma => None,
    }
}

/// Whether the operation is a WRITE; `None` if it is no READ either.
#[inline]
const fn is_write(words: &[u64; BLOCK_WORDS]) -> Option<bool> {
    let code = field8(words[0], 40, 8);
    let is_write = code == Opcode::Write as u8;
    if is_write || code == Opcode::Read as u8 { Some(is_write) } else { None }
}

/// One local piece, no payload in the entry, and a target kind that exists (3 does not).
#[inline]
const fn has_one_piece(words: &[u64; BLOCK_WORDS]) -> bool {
    words[0] & INLINE == 0 && words[0] & KIND != KIND && field8(words[1], 24, 8) == 1
}

const COMPLETE: u64 = (SqeFlags::COMPLETE.bits() as u64) << 16;
const INLINE: u64 = (SqeFlags::INLINE.bits() as u64) << 16;
const HAS_TOKEN: u64 = 1 << 28;
const KIND: u64 = 3 << 29;
const OPCODE: u64 = 0xff << 40;
