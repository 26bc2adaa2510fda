//! Send queue entries: 1 to 4 blocks of 64 bytes.
//!
//! *Owns*: the layout. Control block of 48 bytes as the UDMA hardware has it (UMDK release 26.06),
//! 64 for WRITE_IMM, 80 for WRITE_NOTIFY and WRITE_ATOMIC, 96 for atomics (operands at byte 64);
//! then 16-byte SGEs `{len u32, token_id u32, va u64}`, or inline bytes.
//! *Must not*: judge a request; that is urma-core's (caller) and the device's (driver) task.

use crate::{OpKind, Opcode, RawEid, field8, field16, field32, flag, place};

/// Bytes of one block (WQEBB).
pub const BLOCK_LEN: usize = 64;
/// Words of one block.
pub const BLOCK_WORDS: usize = BLOCK_LEN / 8;
/// Most blocks of one entry.
pub const BLOCKS_MAX: usize = 4;
/// Words of the longest entry.
pub const SQE_WORDS_MAX: usize = BLOCKS_MAX * BLOCK_WORDS;
/// Bytes of one scatter/gather element in a queue entry.
pub const SGE_LEN: usize = 16;

/// Where the control part ends and SGEs or inline bytes begin, in bytes.
#[inline]
#[must_use]
pub const fn control_len(opcode: Opcode) -> usize {
    match opcode.kind() {
        OpKind::Send
        | OpKind::SendImm
        | OpKind::SendInvalidate
        | OpKind::Write
        | OpKind::Read
        | OpKind::Nop
        | OpKind::FlushDma => 48,
        OpKind::WriteImm => 64,
        OpKind::WriteNotify(_) => 80,
        OpKind::Atomic(_) => 96,
    }
}

/// SGEs that fit behind the control part.
#[inline]
#[must_use]
pub const fn sge_max(opcode: Opcode) -> usize {
    if opcode.is_atomic() { 1 } else { (BLOCKS_MAX * BLOCK_LEN - control_len(opcode)) / SGE_LEN }
}

/// Inline bytes that fit behind the control part.
#[inline]
#[must_use]
pub const fn inline_max(opcode: Opcode) -> usize {
    BLOCKS_MAX * BLOCK_LEN - control_len(opcode)
}

/// Blocks that an entry with this many bytes behind its control part takes.
#[inline]
#[must_use]
pub const fn blocks_for(opcode: Opcode, tail_len: usize) -> usize {
    (control_len(opcode) + tail_len).div_ceil(BLOCK_LEN)
}

// The common requests with one SGE are exactly one block, so they can go as a direct entry.
const _: () = {
    assert!(control_len(Opcode::Write) + SGE_LEN == BLOCK_LEN);
    assert!(control_len(Opcode::Read) + SGE_LEN == BLOCK_LEN);
    assert!(control_len(Opcode::Send) + SGE_LEN == BLOCK_LEN);
    assert!(control_len(Opcode::SendImm) + SGE_LEN == BLOCK_LEN);
    assert!(blocks_for(Opcode::Cas, SGE_LEN) == 2);
    assert!(blocks_for(Opcode::WriteNotify, sge_max(Opcode::WriteNotify) * SGE_LEN) == BLOCKS_MAX);
    assert!(sge_max(Opcode::WriteNotify) == 11 && inline_max(Opcode::WriteNotify) == 176);
};

/// One local buffer piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sge {
    /// Length of the piece in bytes.
    pub len: u32,
    /// Token id of the local segment (tid << 8).
    pub token_id: u32,
    /// Address inside that segment, as the segment was registered.
    pub va: u64,
}

impl Sge {
    /// `{len, token_id}` and `va`.
    #[inline]
    #[must_use]
    pub const fn to_words(self) -> [u64; 2] {
        [place(self.len as u64, 0, 32) | place(self.token_id as u64, 32, 32), self.va]
    }

    /// The inverse of [`Sge::to_words`].
    #[inline]
    #[must_use]
    pub const fn from_words(words: [u64; 2]) -> Self {
        Self { len: field32(words[0], 0, 32), token_id: field32(words[0], 32, 32), va: words[1] }
    }
}

/// Kind of the target, as in `rmt_jetty_type`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum SqeTargetKind {
    /// A receive queue of its own.
    #[default]
    Jfr = 0,
    /// A jetty, with a receive queue of its own or a shared one.
    Jetty = 1,
    /// A jetty group: the target device picks a member.
    Group = 2,
}

impl SqeTargetKind {
    /// `None` for 3, which has no meaning.
    #[inline]
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Jfr),
            1 => Some(Self::Jetty),
            2 => Some(Self::Group),
            _ => None,
        }
    }
}

bitflags::bitflags! {
    /// The seven flag bits of an entry: bits 0 to 6 of the URMA work request flags.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct SqeFlags: u8 {
        /// Low bit of the place order (1 relaxed).
        const ORDER_RELAXED = 0x01;
        /// High bit of the place order (2 strong).
        const ORDER_STRONG = 0x02;
        /// Completions of this queue in posting order.
        const COMP_ORDER = 0x04;
        /// Starts after all earlier reads and atomics of its queue completed.
        const FENCE = 0x08;
        /// The receive completion counts as solicited.
        const SOLICITED = 0x10;
        /// Success makes a completion too (an error always does).
        const COMPLETE = 0x20;
        /// The payload lies in the entry.
        const INLINE = 0x40;
    }
}

/// The control part of an entry, decoded. Field meanings by opcode:
///
/// | field | SEND family | WRITE family, READ, atomics |
/// |---|---|---|
/// | `target_id` | jetty, JFR or group id | jetty, JFR or group that the request is ordered with |
/// | `seg_token_id` | SEND_INVALIDATE: token to invalidate | remote segment |
/// | `token_value` | the target jetty's token | WRITE_IMM: jetty's; others: the segment's |
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sqe {
    /// Ring index of the first block, modulo 2^16; comes back in the CQE.
    pub entry_idx: u16,
    /// Fence, order, completion and inline flags.
    pub flags: SqeFlags,
    /// `token_value` is meant (policy other than NONE).
    pub token_en: bool,
    /// Kind of the object that `target_id` names.
    pub target_kind: SqeTargetKind,
    /// Toggles each time the ring wraps; the first pass writes 1.
    pub owner: bool,
    /// Picks the member of a jetty group under the hash policy.
    pub target_hint: u8,
    /// Operation, which decides the layout of the blocks.
    pub opcode: Opcode,
    /// Inline bytes (with `INLINE`), at most 208.
    pub inline_len: u16,
    /// Transport path to the target's node; 24 bits.
    pub tpn: u32,
    /// Local SGEs behind the control part.
    pub sge_num: u8,
    /// Target jetty, JFR or group; 20 bits.
    pub target_id: u32,
    /// EID of the target's node.
    pub rmt_eid: RawEid,
    /// Access token (see the table above).
    pub token_value: u32,
    /// Remote address: WRITE family, READ, atomics.
    pub remote_va: u64,
    /// Token id of the remote segment (tid << 8).
    pub seg_token_id: u32,
    /// Token value of the remote segment where `token_value` is the jetty's (WRITE_IMM), of the
    /// segment to invalidate (SEND_INVALIDATE), of the notify segment (WRITE_NOTIFY).
    pub seg_token_value: u32,
    /// SEND_IMM, WRITE_IMM: immediate. WRITE_NOTIFY: data to store. WRITE_ATOMIC: value to add.
    pub imm: u64,
    /// WRITE_NOTIFY, WRITE_ATOMIC: address of the 8 bytes, in segment `notify_token_id`.
    pub notify_va: u64,
    /// WRITE_NOTIFY, WRITE_ATOMIC: token id of that segment (tid << 8).
    pub notify_token_id: u32,
    /// Atomics: operand (swap value, addend, mask), in the low bytes when the size is 4.
    pub operand: u64,
    /// CAS: the value compared with.
    pub compare: u64,
}

impl Sqe {
    /// An entry of `opcode` with every field zero; a base for struct update syntax.
    #[inline]
    #[must_use]
    pub const fn new(opcode: Opcode) -> Self {
        Self {
            entry_idx: 0,
            flags: SqeFlags::empty(),
            token_en: false,
            target_kind: SqeTargetKind::Jfr,
            owner: false,
            target_hint: 0,
            opcode,
            inline_len: 0,
            tpn: 0,
            sge_num: 0,
            target_id: 0,
            rmt_eid: RawEid([0; 16]),
            token_value: 0,
            remote_va: 0,
            seg_token_id: 0,
            seg_token_value: 0,
            imm: 0,
            notify_va: 0,
            notify_token_id: 0,
            operand: 0,
            compare: 0,
        }
    }

    /// Blocks of the whole entry, from the control part's own counts; at most
    /// [`BLOCKS_MAX`] for counts within limits, more for a hostile entry.
    #[inline]
    #[must_use]
    pub const fn blocks(&self) -> usize {
        let tail = if self.flags.contains(SqeFlags::INLINE) {
            self.inline_len as usize
        } else {
            self.sge_num as usize * SGE_LEN
        };
        blocks_for(self.opcode, tail)
    }

    /// Writes the control part into the front of `words`. What lies behind is left alone.
    #[inline]
    pub fn encode(&self, words: &mut [u64; SQE_WORDS_MAX]) {
        words[0] = place(u64::from(self.entry_idx), 0, 16)
            | place(u64::from(self.flags.bits()), 16, 7)
            | place(u64::from(self.token_en), 28, 1)
            | place(self.target_kind as u64, 29, 2)
            | place(u64::from(self.owner), 31, 1)
            | place(u64::from(self.target_hint), 32, 8)
            | place(self.opcode as u64, 40, 8)
            | place(u64::from(self.inline_len), 54, 10);
        // Bytes 12 to 14 name the queue that gives the receive; else a segment, and bytes 36 to 38
        // the queue that the request is ordered with.
        let names_target = self.opcode.consumes_receive();
        let target = if names_target { self.target_id } else { self.seg_token_id >> 8 };
        let ordered_with = if names_target { 0 } else { self.target_id };
        words[1] = place(u64::from(self.tpn), 0, 24)
            | place(u64::from(self.sge_num), 24, 8)
            | place(u64::from(target), 32, 20);
        // The hardware stores the 16 bytes reversed, so the low word holds the last eight.
        let [high, low] = self.rmt_eid.to_words();
        words[2] = low;
        words[3] = high;
        words[4] = u64::from(self.token_value) | place(u64::from(ordered_with), 32, 20);
        words[5] = self.remote_va;
        let seg = place(u64::from(self.seg_token_id), 0, 32)
            | place(u64::from(self.seg_token_value), 32, 32);
        match self.opcode.kind() {
            OpKind::Send | OpKind::Write | OpKind::Read | OpKind::Nop | OpKind::FlushDma => {}
            OpKind::SendImm => words[5] = self.imm,
            OpKind::SendInvalidate => words[5] = seg,
            OpKind::WriteImm => {
                words[6] = self.imm;
                words[7] = seg;
            }
            OpKind::WriteNotify(_) => {
                words[6] = place(u64::from(self.notify_token_id), 0, 32)
                    | place(u64::from(self.seg_token_value), 32, 32);
                words[7] = self.notify_va;
                words[8] = self.imm;
                words[9] = 0;
            }
            OpKind::Atomic(_) => {
                words[6] = 0;
                words[7] = 0;
                words[8] = self.operand;
                words[9] = self.compare;
                words[10] = 0;
                words[11] = 0;
            }
        }
    }

    /// Reads the control part. `Err` carries the offending opcode or target kind.
    ///
    /// # Errors
    /// [`SqeError`]: the entry names no known operation or target kind. Lengths and ids are left
    /// for the device to judge.
    #[inline]
    pub fn decode(words: &[u64; SQE_WORDS_MAX]) -> Result<Self, SqeError> {
        let mut sqe = Self::new(Opcode::Nop);
        sqe.decode_into(words)?;
        Ok(sqe)
    }

    /// Reads the control part in place: a reader of many entries writes each field once, unlike with [`Sqe::decode`].
    ///
    /// # Errors
    /// The same as those of [`Sqe::decode`]; `self` is unchanged then.
    #[inline]
    pub fn decode_into(&mut self, words: &[u64; SQE_WORDS_MAX]) -> Result<(), SqeError> {
        let code = field8(words[0], 40, 8);
        let opcode = Opcode::from_code(code).ok_or(SqeError::Opcode(code))?;
        let kind = field8(words[0], 29, 2);
        let target_kind = SqeTargetKind::from_code(kind).ok_or(SqeError::TargetKind(kind))?;
        self.opcode = opcode;
        self.entry_idx = field16(words[0], 0, 16);
        self.flags = SqeFlags::from_bits_truncate(field8(words[0], 16, 7));
        self.token_en = flag(words[0], 28);
        self.target_kind = target_kind;
        self.owner = flag(words[0], 31);
        self.target_hint = field8(words[0], 32, 8);
        self.inline_len = field16(words[0], 54, 10);
        self.tpn = field32(words[1], 0, 24);
        self.sge_num = field8(words[1], 24, 8);
        self.rmt_eid = RawEid::from_words([words[3], words[2]]);
        self.token_value = field32(words[4], 0, 32);
        let target = field32(words[1], 32, 20);
        if opcode.consumes_receive() {
            self.target_id = target;
            self.seg_token_id = 0;
        } else {
            self.target_id = field32(words[4], 32, 20);
            self.seg_token_id = target << 8;
        }
        self.seg_token_value = 0;
        self.imm = 0;
        self.notify_va = 0;
        self.notify_token_id = 0;
        self.operand = 0;
        self.compare = 0;
        self.decode_tail(words);
        Ok(())
    }

    /// The fields whose place depends on the opcode.
    #[inline]
    fn decode_tail(&mut self, words: &[u64; SQE_WORDS_MAX]) {
        self.remote_va = words[5];
        match self.opcode.kind() {
            OpKind::Send | OpKind::Write | OpKind::Read | OpKind::Nop | OpKind::FlushDma => {}
            OpKind::SendImm => self.imm = words[5],
            OpKind::SendInvalidate => {
                self.seg_token_id = field32(words[5], 0, 32);
                self.seg_token_value = field32(words[5], 32, 32);
            }
            OpKind::WriteImm => {
                self.imm = words[6];
                self.seg_token_id = field32(words[7], 0, 32);
                self.seg_token_value = field32(words[7], 32, 32);
            }
            OpKind::WriteNotify(_) => {
                self.notify_token_id = field32(words[6], 0, 32);
                self.seg_token_value = field32(words[6], 32, 32);
                self.notify_va = words[7];
                self.imm = words[8];
            }
            OpKind::Atomic(_) => {
                self.operand = words[8];
                self.compare = words[9];
            }
        }
        if self.opcode.is_send() {
            self.remote_va = 0;
        }
    }
}

/// Why an entry could not be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SqeError {
    /// No operation has this code.
    #[error("send queue entry names opcode {0:#04x}, which no operation has")]
    Opcode(u8),
    /// The target kind must be 0, 1 or 2.
    #[error("send queue entry names target kind {0}; 0 (JFR), 1 (jetty) and 2 (group) exist")]
    TargetKind(u8),
}
