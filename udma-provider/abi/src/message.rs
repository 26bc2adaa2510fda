//! A SEND or SEND_IMM of one block: nearly all messages there are.
//!
//! *Owns*: nothing; the layout is that of [`Sqe`](crate::Sqe). *Takes*: the fields that such a
//! request has. *Gives*: its block, or the fields from its block. *Must not*: differ from what `Sqe`
//! reads and writes.

use crate::{
    Opcode, RawEid, Sge, field8, field16, field32, flag, place,
    sqe::{BLOCK_LEN, BLOCK_WORDS, SqeFlags, SqeTargetKind, control_len},
};

/// Fields of such a request, named as those of [`Sqe`](crate::Sqe).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MessageEntry {
    /// Ring index of the block, modulo 2^16.
    pub entry_idx: u16,
    /// Owner bit of this pass over the ring.
    pub owner: bool,
    /// Flags of the request.
    pub flags: SqeFlags,
    /// Immediate of a SEND_IMM; `None`: it is a SEND.
    pub imm: Option<u64>,
    /// Transport path to the target's node; 24 bits.
    pub tpn: u32,
    /// Kind of the object that `target_id` names.
    pub target_kind: SqeTargetKind,
    /// Target jetty, JFR or group; 20 bits.
    pub target_id: u32,
    /// Picks the member of a jetty group.
    pub target_hint: u8,
    /// Token of the target, if it is shown.
    pub token: Option<u32>,
    /// Where the payload lies.
    pub body: MessageBody,
}

/// Where the payload of such a message lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MessageBody {
    /// In one local piece.
    Piece(Sge),
    /// In the block itself: so many bytes, at most [`MessageEntry::INLINE_MAX`], in these words.
    Inline(usize, [u64; 2]),
}

impl MessageEntry {
    /// Payload bytes that the block can carry.
    pub const INLINE_MAX: usize = BLOCK_LEN - control_len(Opcode::Send);

    /// Whether a first block is that of a SEND or SEND_IMM of whatever length.
    #[inline]
    #[must_use]
    pub const fn is_it(front: &[u64; BLOCK_WORDS]) -> bool {
        let code = field8(front[0], 40, 8);
        code == Opcode::Send as u8 || code == Opcode::SendImm as u8
    }

    /// Reads an entry; `None` when it is another operation, has not exactly one local piece, or carries
    /// more than one block.
    #[inline]
    #[must_use]
    pub const fn decode(words: &[u64; BLOCK_WORDS]) -> Option<Self> {
        let Some(target_kind) = SqeTargetKind::from_code(field8(words[0], 29, 2)) else {
            return None;
        };
        if !Self::is_it(words) {
            return None;
        }
        let flags = SqeFlags::from_bits_truncate(field8(words[0], 16, 7));
        let tail = [words[6], words[7]];
        let body = if flags.contains(SqeFlags::INLINE) {
            let len = field16(words[0], 54, 10) as usize;
            if len > Self::INLINE_MAX {
                return None;
            }
            MessageBody::Inline(len, tail)
        } else {
            if field8(words[1], 24, 8) != 1 {
                return None;
            }
            MessageBody::Piece(Sge::from_words(tail))
        };
        let has_imm = field8(words[0], 40, 8) == Opcode::SendImm as u8;
        Some(Self {
            entry_idx: field16(words[0], 0, 16),
            owner: flag(words[0], 31),
            flags,
            imm: if has_imm { Some(words[5]) } else { None },
            tpn: field32(words[1], 0, 24),
            target_kind,
            target_id: field32(words[1], 32, 20),
            target_hint: field8(words[0], 32, 8),
            token: if flag(words[0], 28) { Some(field32(words[4], 0, 32)) } else { None },
            body,
        })
    }

    /// The block of a message to a target at `rmt_eid`, as the ring and the doorbell page hold it.
    #[inline(always)]
    #[must_use]
    pub fn encode(&self, rmt_eid: RawEid) -> [u64; BLOCK_WORDS] {
        let [high, low] = rmt_eid.to_words();
        let opcode = if self.imm.is_some() { Opcode::SendImm } else { Opcode::Send };
        let (inline_len, pieces, tail) = match self.body {
            MessageBody::Piece(piece) => (0, 1, piece.to_words()),
            MessageBody::Inline(len, words) => (len as u64, 0, words),
        };
        [
            place(u64::from(self.entry_idx), 0, 16)
                | place(u64::from(self.flags.bits()), 16, 7)
                | place(u64::from(self.token.is_some()), 28, 1)
                | place(self.target_kind as u64, 29, 2)
                | place(u64::from(self.owner), 31, 1)
                | place(u64::from(self.target_hint), 32, 8)
                | place(opcode as u64, 40, 8)
                | place(inline_len, 54, 10),
            place(u64::from(self.tpn), 0, 24)
                | place(pieces, 24, 8)
                | place(u64::from(self.target_id), 32, 20),
            low,
            high,
            u64::from(self.token.unwrap_or(0)),
            self.imm.unwrap_or(0),
            tail[0],
            tail[1],
        ]
    }
}
