//! The send queue's side of ping-pong mode: all that its messages to one target need, while nothing else happens.
//!
//! *Owns*: the position of the next message, the local segment, the one unacknowledged message. *Takes*: direct
//! entries, the acknowledgement of that message. *Gives*: where its bytes are, its completion. *Must not*: survive
//! another visit of the engine, which takes the open message over as a request in flight.
//!
//! As with a [grant](super::fast), every other call that reaches the engine ends this first; so what such a visit
//! may change (state, entries posted before) is not checked. Nor is the life of the segment: invalidating it visits
//! the shared part, which leaves ping-pong mode there.

use std::sync::Arc;

use udma_abi::{
    Sge,
    cqe::SendDoneForm,
    sqe::{BLOCK_WORDS, SqeFlags},
};
use urma_mem::RegionWord32;
use urma_mem::sync::Ordering;

use super::fetch::RingMark;
use super::mail::{SHORT_MAX, ShortBody};
use crate::context::jfc::JfcPort;
use crate::context::queue::Queue;
use crate::context::segment::LocalSegment;

/// See the header of this file.
#[derive(Debug)]
pub(crate) struct PingPongSends {
    /// Words 0, 1 and 4 of a block, without the bits that differ from message to message.
    key: [u64; 3],
    mark: RingMark,
    /// Position of the next message, free running.
    next: u32,
    /// Messages completed since ping-pong mode began.
    ended: u32,
    open: Option<OpenMessage>,
    /// A completion slot is reserved: the message before wanted none.
    has_slot: bool,
    local: Arc<LocalSegment>,
    port: JfcPort,
    form: SendDoneForm,
    /// The queue's consumer index in host memory.
    record: RegionWord32,
}

/// A message that is not acknowledged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenMessage {
    pub(crate) entry_idx: u16,
    pub(crate) flags: SqeFlags,
    len: u32,
}

/// The messages of ping-pong mode, as the engine takes them over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SaidMessages {
    pub(crate) ended: u32,
    pub(crate) open: Option<OpenMessage>,
    pub(crate) has_slot: bool,
}

/// Arguments of [`PingPongSends::new`], from the engine.
#[derive(Debug)]
pub(crate) struct PingPongParts {
    pub(crate) mark: RingMark,
    pub(crate) next: u32,
    pub(crate) local: Arc<LocalSegment>,
    pub(crate) port: JfcPort,
    pub(crate) form: SendDoneForm,
    pub(crate) record: RegionWord32,
}

/// Bits of word 0 that differ from message to message: index, owner bit, whether a completion is wanted.
const VARIES_0: u64 = 0xffff | 1 << 31 | COMPLETE;
const COMPLETE: u64 = (SqeFlags::COMPLETE.bits() as u64) << 16;

/// The words that all messages of one ping-pong mode have in common.
#[inline(always)]
const fn key_of(block: &[u64; BLOCK_WORDS]) -> [u64; 3] {
    [block[0] & !VARIES_0, block[1], block[4]]
}

impl PingPongSends {
    /// Accepts messages like `block`.
    pub(crate) fn new(block: &[u64; BLOCK_WORDS], parts: PingPongParts) -> Self {
        let PingPongParts { mark, next, local, port, form, record } = parts;
        Self {
            key: key_of(block),
            mark,
            next,
            ended: 0,
            open: None,
            has_slot: false,
            local,
            port,
            form,
            record,
        }
    }

    /// Sends the message of a direct entry, the newest one posted, with `push`, which returns whether it was sent.
    /// `None`: nothing happened.
    #[inline(always)]
    pub(crate) fn send_piggybacked(
        &mut self,
        queue: &Queue,
        block: &[u64; BLOCK_WORDS],
        push: impl FnOnce(&ShortBody<'_>) -> bool,
    ) -> Option<()> {
        let key = key_of(block);
        let differs = (key[0] ^ self.key[0]) | (key[1] ^ self.key[1]) | (key[2] ^ self.key[2]);
        let is_next = self.open.is_none() && self.mark.is_at(self.next, block[0]);
        if differs != 0 || !is_next {
            return None;
        }
        debug_assert_eq!(queue.pi.load(Ordering::Acquire), self.next.wrapping_add(1));
        debug_assert!(self.local.is_live());
        let piece = Sge::from_words([block[6], block[7]]);
        let len = piece.len as usize;
        let at = self.local.offset_of(piece.va, u64::from(piece.len))?;
        let is_signalled = block[0] & COMPLETE != 0;
        // A shallow JFC has no slot to keep in reserve.
        let is_fit = (is_signalled || self.port.is_deep()) && (1..=SHORT_MAX).contains(&len);
        if piece.token_id != self.local.token_id || !is_fit || !self.reserve() {
            return None;
        }
        if !push(&ShortBody::Memory(&self.local.region, at, len)) {
            self.has_slot = true;
            return None;
        }
        let flags = if is_signalled { SqeFlags::COMPLETE } else { SqeFlags::empty() };
        self.open = Some(OpenMessage { entry_idx: low16(self.next), flags, len: piece.len });
        self.next = self.next.wrapping_add(1);
        Some(())
    }

    /// Completes the open message, which was acknowledged; `false`: there is none.
    #[inline(always)]
    pub(crate) fn on_answered(&mut self, queue: &Queue) -> bool {
        let Some(open) = self.open.take() else { return false };
        if open.flags.contains(SqeFlags::COMPLETE) {
            let form = &self.form;
            // The CQE before the index: a driver that sees the index moved but no CQE knows that none comes.
            self.port.complete_with(false, |owner| form.encode(open.entry_idx, open.len, owner));
            queue.fast.completion();
        } else {
            self.has_slot = true;
        }
        self.ended += 1;
        self.record.store_release(self.next);
        true
    }

    /// Returns what the engine takes over.
    pub(crate) fn said(&self) -> SaidMessages {
        let Self { ended, open, has_slot, .. } = *self;
        SaidMessages { ended, open, has_slot }
    }

    #[inline(always)]
    fn reserve(&mut self) -> bool {
        core::mem::take(&mut self.has_slot) || self.port.reserve()
    }
}

#[expect(clippy::cast_possible_truncation, reason = "indices are modulo 2^16")]
const fn low16(index: u32) -> u16 {
    index as u16
}
