//! A WRITE or READ in one block with one local piece: nearly all entries there are.
//!
//! *Owns*: nothing; the layout is that of [`Sqe`](crate::Sqe). *Takes*: the fields that such a
//! request has. *Gives*: its 64 bytes, or the fields from 64 bytes, without those that are zero.
//! *Must not*: differ from what `Sqe` reads and writes.

use crate::{
    Opcode, RawEid, Sge,
    bits::{field8, field16, field32, flag, place},
    sqe::{BLOCK_WORDS, SqeFlags, SqeTargetKind},
};

/// Fields of such a request, named as those of [`Sqe`](crate::Sqe).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OneSided {
    /// Ring index of the block, modulo 2^16.
    pub entry_idx: u16,
    /// Owner bit of this pass over the ring.
    pub owner: bool,
    /// Flags of the request; `INLINE` is not set.
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
        let code = field8(words[0], 40, 8);
        let is_write = code == Opcode::Write as u8;
        let is_known = is_write || code == Opcode::Read as u8;
        // Target kind 3 does not exist.
        if !is_known
            || words[0] & INLINE != 0
            || words[0] & KIND == KIND
            || field8(words[1], 24, 8) != 1
        {
            return None;
        }
        Some(Self {
            entry_idx: field16(words[0], 0, 16),
            owner: flag(words[0], 31),
            flags: SqeFlags::from_bits_truncate(field8(words[0], 16, 7)),
            is_write,
            tpn: field32(words[1], 0, 24),
            token: if flag(words[0], 28) { Some(field32(words[4], 0, 32)) } else { None },
            seg_token_id: field32(words[1], 32, 20) << 8,
            remote_va: words[5],
            piece: Sge::from_words([words[6], words[7]]),
        })
    }

    /// Returns the words of the entry, as the ring and the doorbell page hold it.
    #[inline]
    #[must_use]
    pub fn encode(&self, to: &Addressed) -> [u64; BLOCK_WORDS] {
        let opcode = if self.is_write { Opcode::Write } else { Opcode::Read };
        let [high, low] = to.rmt_eid.to_words();
        let [piece, va] = self.piece.to_words();
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
            piece,
            va,
        ]
    }
}

const INLINE: u64 = (SqeFlags::INLINE.bits() as u64) << 16;
const KIND: u64 = 3 << 29;
