//! Completion queue entries: 64 bytes, owner bit in word 0.
//!
//! *Owns*: the layout (UDMA hardware's, UMDK release 26.06). The device writes words 1 to 7
//! first, then word 0 with release; the driver reads word 0 with acquire, then the rest.
//! The owner bit is `1` on the first pass through the ring and toggles at each wrap; a fresh
//! ring is zero.

use crate::{CqeStatus, RawEid, field8, field16, field32, flag, place};

/// Words of an entry.
pub const CQE_WORDS: usize = 8;
/// Bytes of an entry.
pub const CQE_LEN: usize = CQE_WORDS * 8;
/// Payload bytes that a receive completion can carry (`jfc_inline`).
pub const INLINE_MAX: usize = 12;

/// Completion queue entry, decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cqe {
    /// Receive side (else send side).
    pub recv: bool,
    /// `local_id` names a jetty (else a JFS or JFR).
    pub is_jetty: bool,
    /// Receive: 0 SEND, 1 SEND_IMM, 2 SEND_INVALIDATE, 3 WRITE_IMM. Send: 0.
    pub opcode: u8,
    /// Payload lies in `inline`.
    pub inline_en: bool,
    /// Result of the request.
    pub status: CqeStatus,
    /// Send: ring index of the request's first block. Receive: index of the receive entry
    /// (both modulo 2^16).
    pub entry_idx: u16,
    /// The queue it belongs to, 20 bits.
    pub local_id: u32,
    /// Receive: the sending jetty, 20 bits.
    pub remote_id: u32,
    /// Transport path it came by, 24 bits.
    pub tpn: u32,
    /// Payload bytes that the request transferred.
    pub byte_cnt: u32,
    /// The cookie that the driver gave when it created the queue.
    pub user_data: u64,
    /// Receive: EID of the sender's node.
    pub rmt_eid: RawEid,
    /// Immediate, or `token_id | token_value << 32` of an invalidation.
    pub imm: u64,
    /// Receive: payload, when `inline_en`.
    pub inline: [u8; INLINE_MAX],
}

impl Default for Cqe {
    fn default() -> Self {
        Self {
            recv: false,
            is_jetty: false,
            opcode: 0,
            inline_en: false,
            status: CqeStatus::Success,
            entry_idx: 0,
            local_id: 0,
            remote_id: 0,
            tpn: 0,
            byte_cnt: 0,
            user_data: 0,
            rmt_eid: RawEid::default(),
            imm: 0,
            inline: [0; INLINE_MAX],
        }
    }
}

/// The owner bit of word 0.
#[inline]
#[must_use]
pub const fn owner_of(word0: u64) -> bool {
    flag(word0, 2)
}

/// Whether an entry with this word 0 is of a message that came into a receive: receive side, no payload,
/// status 0/0.
#[inline]
#[must_use]
pub const fn is_received(word0: u64) -> bool {
    const OTHER: u64 = 1 << 3 | 1 << 7 | 0xffff << 16;
    word0 & 1 != 0 && word0 & OTHER == 0
}

/// A send completion that succeeded: nearly all there are, read from half of the words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SendDone {
    /// Ring index of the request's first block, modulo 2^16, as [`Cqe::entry_idx`].
    pub entry_idx: u16,
    /// Number of the sending queue, as [`Cqe::local_id`].
    pub local_id: u32,
    /// Number of the transport path, as [`Cqe::tpn`].
    pub tpn: u32,
    /// Payload bytes transferred, as [`Cqe::byte_cnt`].
    pub byte_cnt: u32,
    /// Cookie of the queue, as [`Cqe::user_data`].
    pub user_data: u64,
}

impl SendDone {
    /// Whether an entry with this word 0 is one: send side, no payload, status 0/0.
    #[inline]
    #[must_use]
    pub const fn is_it(word0: u64) -> bool {
        const OTHER: u64 = 1 | 1 << 3 | 1 << 7 | 0xffff << 16;
        word0 & OTHER == 0
    }

    /// The eight words, as [`Cqe::encode`] writes them; `is_jetty` as [`Cqe::is_jetty`].
    #[inline]
    #[must_use]
    pub const fn encode(&self, is_jetty: bool, owner: bool) -> [u64; CQE_WORDS] {
        let word0 = (is_jetty as u64) << 1
            | (owner as u64) << 2
            | (self.entry_idx as u64) << 32
            | place(self.local_id as u64, 48, 16);
        let word1 = place((self.local_id >> 16) as u64, 0, 4) | place(self.tpn as u64, 32, 24);
        let word2 = self.byte_cnt as u64 | self.user_data << 32;
        [word0, word1, word2, self.user_data >> 32, 0, 0, 0, 0]
    }

    /// Reads words 0 to 3 of such an entry.
    #[inline]
    #[must_use]
    pub const fn decode(words: &[u64; 4]) -> Self {
        Self {
            entry_idx: field16(words[0], 32, 16),
            local_id: field32(words[0], 48, 16) | field32(words[1], 0, 4) << 16,
            tpn: field32(words[1], 32, 24),
            byte_cnt: field32(words[2], 0, 32),
            user_data: (words[2] >> 32) | (words[3] << 32),
        }
    }
}

/// Send completions that succeeded of one queue: what they have in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SendDoneForm([u64; 4]);

impl SendDoneForm {
    /// The form of `done`; index and bytes are left out of it.
    #[must_use]
    pub const fn of(done: &SendDone, is_jetty: bool) -> Self {
        let plain = SendDone { entry_idx: 0, byte_cnt: 0, ..*done };
        let [first, second, third, fourth, ..] = plain.encode(is_jetty, false);
        Self([first, second, third, fourth])
    }

    /// The eight words, as [`Cqe::encode`] writes them.
    #[inline(always)]
    #[must_use]
    pub const fn encode(&self, entry_idx: u16, byte_cnt: u32, owner: bool) -> [u64; CQE_WORDS] {
        let [first, second, third, fourth] = self.0;
        let first = first | (owner as u64) << 2 | (entry_idx as u64) << 32;
        [first, second, third | byte_cnt as u64, fourth, 0, 0, 0, 0]
    }
}

/// Completions of messages that one queue receives from another one: what they have in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecvForm([u64; CQE_WORDS]);

/// What differs between them, named as in [`Cqe`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecvDone {
    /// Index of the receive entry, modulo 2^16.
    pub entry_idx: u16,
    /// Transport path that the message came by, 24 bits.
    pub tpn: u32,
    /// Payload bytes of the message.
    pub byte_cnt: u32,
    /// Immediate of the message; 0 without one.
    pub imm: u64,
}

/// A message that came into a receive, as its completion names it: the fields of [`Cqe`] that such a one has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReceivedMessage {
    /// The operation, as [`Cqe::opcode`].
    pub opcode: u8,
    /// Index of the receive, as [`Cqe::entry_idx`].
    pub entry_idx: u16,
    /// The receiving queue, as [`Cqe::local_id`].
    pub local_id: u32,
    /// The sending jetty, as [`Cqe::remote_id`].
    pub remote_id: u32,
    /// The transport path, as [`Cqe::tpn`].
    pub tpn: u32,
    /// Bytes of the message, as [`Cqe::byte_cnt`].
    pub byte_cnt: u32,
    /// Cookie of the queue, as [`Cqe::user_data`].
    pub user_data: u64,
    /// The sending node, as [`Cqe::rmt_eid`].
    pub rmt_eid: RawEid,
    /// The immediate value, as [`Cqe::imm`].
    pub imm: u64,
}

impl ReceivedMessage {
    /// Reads the entry of one ([`is_received`]).
    #[inline]
    #[must_use]
    pub fn decode(words: &[u64; CQE_WORDS]) -> Self {
        let low = (words[3] >> 32) | (words[4] << 32);
        let high = (words[4] >> 32) | (words[5] << 32);
        Self {
            opcode: field8(words[0], 4, 3),
            entry_idx: field16(words[0], 32, 16),
            local_id: field32(words[0], 48, 16) | field32(words[1], 0, 4) << 16,
            remote_id: field32(words[1], 4, 20),
            tpn: field32(words[1], 32, 24),
            byte_cnt: field32(words[2], 0, 32),
            user_data: (words[2] >> 32) | (words[3] << 32),
            rmt_eid: RawEid::from_words([high, low]),
            imm: (words[5] >> 32) | (words[6] << 32),
        }
    }

    /// Another message of the same form.
    #[inline]
    #[must_use]
    pub const fn with(&self, done: &RecvDone) -> Self {
        let RecvDone { entry_idx, tpn, byte_cnt, imm } = *done;
        Self { entry_idx, tpn, byte_cnt, imm, ..*self }
    }
}

impl RecvForm {
    /// A message of this form, of which nothing else is known.
    #[must_use]
    pub fn message(&self) -> ReceivedMessage {
        ReceivedMessage::decode(&self.0)
    }

    /// The form of a completion without payload; what differs is left out of it.
    #[must_use]
    pub fn of(cqe: &Cqe) -> Self {
        let plain = Cqe { entry_idx: 0, tpn: 0, byte_cnt: 0, imm: 0, ..*cqe };
        Self(Cqe { inline_en: false, inline: [0; INLINE_MAX], ..plain }.encode(false))
    }

    /// The eight words, as [`Cqe::encode`] writes them.
    #[inline]
    #[must_use]
    pub const fn encode(&self, done: &RecvDone, owner: bool) -> [u64; CQE_WORDS] {
        let mut words = self.0;
        words[0] |= (owner as u64) << 2 | (done.entry_idx as u64) << 32;
        words[1] |= place(done.tpn as u64, 32, 24);
        words[2] |= done.byte_cnt as u64;
        words[5] |= done.imm << 32;
        words[6] |= done.imm >> 32;
        words
    }
}

impl Cqe {
    /// The eight words. DW n of the hardware layout is half of word n/2.
    #[inline]
    #[must_use]
    pub fn encode(&self, owner: bool) -> [u64; CQE_WORDS] {
        let (status, substatus, fd) = self.status.to_code();
        let dw0 = place(u64::from(self.recv), 0, 1)
            | place(u64::from(self.is_jetty), 1, 1)
            | place(u64::from(owner), 2, 1)
            | place(u64::from(self.inline_en), 3, 1)
            | place(u64::from(self.opcode), 4, 3)
            | place(u64::from(fd), 7, 1)
            | place(u64::from(substatus), 16, 8)
            | place(u64::from(status), 24, 8);
        let dw1 = place(u64::from(self.entry_idx), 0, 16) | place(u64::from(self.local_id), 16, 16);
        let dw2 =
            place(u64::from(self.local_id) >> 16, 0, 4) | place(u64::from(self.remote_id), 4, 20);
        let [high, low] = self.rmt_eid.to_words();
        let mut tail = [0u8; 8];
        tail.copy_from_slice(&self.inline[4..12]);
        let mut head = [0u8; 4];
        head.copy_from_slice(&self.inline[..4]);
        let dw13 = u64::from(u32::from_le_bytes(head));
        [
            dw0 | dw1 << 32,
            dw2 | place(u64::from(self.tpn), 32, 24),
            u64::from(self.byte_cnt) | (self.user_data << 32),
            (self.user_data >> 32) | (low << 32),
            (low >> 32) | (high << 32),
            (high >> 32) | (self.imm << 32),
            (self.imm >> 32) | (dw13 << 32),
            u64::from_le_bytes(tail),
        ]
    }

    /// Reads an entry; never fails, every bit pattern means something or is ignored.
    #[inline]
    #[must_use]
    pub fn decode(words: &[u64; CQE_WORDS]) -> Self {
        let w0 = words[0];
        let status = CqeStatus::from_code(field8(w0, 24, 8), field8(w0, 16, 8), flag(w0, 7));
        let mut inline = [0u8; INLINE_MAX];
        inline[..4].copy_from_slice(&field32(words[6], 32, 32).to_le_bytes());
        inline[4..].copy_from_slice(&words[7].to_le_bytes());
        let message = ReceivedMessage::decode(words);
        Self {
            recv: flag(w0, 0),
            is_jetty: flag(w0, 1),
            inline_en: flag(w0, 3),
            opcode: message.opcode,
            status,
            entry_idx: message.entry_idx,
            local_id: message.local_id,
            remote_id: message.remote_id,
            tpn: message.tpn,
            byte_cnt: message.byte_cnt,
            user_data: message.user_data,
            rmt_eid: message.rmt_eid,
            imm: message.imm,
            inline,
        }
    }
}
