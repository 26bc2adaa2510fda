//! Completions of requests that the doorbell carried out: the driver makes them, the JFC's ring never has them.
//!
//! *Owns*: what one queue passes from its posts to the polls of its JFC. *Takes*: requests that succeeded in the
//! call of their doorbell. *Gives*: their completions, each with the entry of the ring that it comes before. *Must
//! not*: report a failure; pass on what a JFC with events is armed for.
//!
//! Order is that of the ring: a request that is carried out comes after everything of its queue that the
//! device has reported, and before everything that it reports later. So each carries the index that the
//! device gives to its next entry, and is taken once all entries before that index are.

use udma_abi::NextEntry;
use urma_core::{
    Completion, CompletionFlags, CrOpcode, CrStatus, InlinePayload, JettyId, QueueKind,
    ops::DoneRecord,
};
use urma_mem::{
    sync::{AtomicU32, AtomicU64, Ordering},
    word_pair_ring::{WordPairReader, WordPairRing, WordPairWriter},
};

use crate::{index::is_before, table::PolledQueue};

/// What one queue at a time and the polls of its JFC share.
#[derive(Debug, Default)]
pub(crate) struct LocalCompletionRing {
    relay: WordPairRing,
    /// Number of the queue, and [`JETTY`]: stored before its first request.
    queue: AtomicU64,
    queue_ctx: AtomicU64,
    /// Queues that were the one, counted: changed before the first request of the next one.
    claims: AtomicU32,
}

/// The end of the queue that posts; the default one is no end of a ring.
#[derive(Debug, Default)]
pub(crate) struct LocalCompletionWriter {
    writer: WordPairWriter,
    /// Requests taken when this was last asked.
    taken: u32,
}

/// The end of the polls.
#[derive(Debug, Default)]
pub(crate) struct LocalCompletionReader {
    reader: WordPairReader,
    /// Which of [`LocalCompletionRing::claims`] `done` is of.
    claims: u32,
    /// The request that was taken last; that of its queue stays from one to the next.
    done: DoneRequest,
}

/// What the completion of a request says beside what is as in the default one.
#[derive(Clone, Copy, Debug, Default)]
struct DoneRequest {
    user_ctx: u64,
    queue_ctx: u64,
    local_id: u32,
    /// As wide as is not loaded in one word with the number: a word that is stored in parts is waited for.
    len: u64,
    flags: CompletionFlags,
}

/// A request that was carried out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LocalCompletion {
    user_ctx: u64,
    /// Index of the ring's entry that it comes before, and its length.
    place: u64,
}

impl LocalCompletionRing {
    /// Makes the queue the one whose requests are passed on, at most `most` that wait; `None`: another one is.
    #[cold]
    pub(crate) fn claim(&self, link: &PolledQueue, most: u32) -> Option<LocalCompletionWriter> {
        if self.relay.has_writer() {
            return None;
        }
        let writer = self.relay.claim(most)?;
        let kind = if link.kind == QueueKind::Jetty { JETTY } else { 0 };
        self.queue.store(u64::from(link.id()) | kind, Ordering::Relaxed);
        self.queue_ctx.store(link.queue_ctx, Ordering::Relaxed);
        // One queue at a time gets here.
        let claims = self.claims.load(Ordering::Relaxed).wrapping_add(1);
        self.claims.store(claims, Ordering::Relaxed);
        let taken = writer.pushed();
        Some(LocalCompletionWriter { writer, taken })
    }

    /// Whether requests of queue `id` wait.
    pub(crate) fn has_of(&self, id: u32) -> bool {
        let is_its = self.queue.load(Ordering::Relaxed) & !JETTY == u64::from(id);
        is_its && !self.relay.is_empty()
    }
}

impl LocalCompletionWriter {
    /// Whether it is the end of a ring.
    #[inline]
    pub(crate) fn is_claimed(&self) -> bool {
        self.writer.is_claimed()
    }

    /// Number of requests that may be passed on.
    #[inline]
    pub(crate) fn room(&self, of: &LocalCompletionRing) -> u32 {
        self.writer.room(&of.relay)
    }

    /// Number of requests that were passed on, free running.
    #[inline(always)]
    pub(crate) fn passed_on(&self) -> u32 {
        self.writer.pushed()
    }

    /// Passes a request of `len` bytes on, which ends before position `end` and comes before entry `next`.
    #[inline(always)]
    pub(crate) fn push(
        &mut self,
        of: &LocalCompletionRing,
        (end, next): (u32, NextEntry),
        (user_ctx, len): (u64, u32),
    ) {
        let place = next.high() | u64::from(len);
        self.writer.push(&of.relay, [user_ctx, place], end);
    }

    /// First position behind the newest request that was taken since this was last asked.
    pub(crate) fn take_end(&mut self, of: &LocalCompletionRing) -> Option<u32> {
        if !self.is_claimed() {
            return None;
        }
        let taken = self.writer.taken(&of.relay);
        let is_new = taken != self.taken;
        self.taken = taken;
        is_new.then(|| self.writer.note_of(&of.relay, taken.wrapping_sub(1)))
    }

    /// Whether a poll has still to take a request.
    pub(crate) fn has_waiting(&self, of: &LocalCompletionRing) -> bool {
        self.is_claimed() && self.writer.taken(&of.relay) != self.writer.pushed()
    }

    /// Another queue may take its place, once what waits is taken.
    pub(crate) fn end(&mut self, of: &LocalCompletionRing) {
        if self.is_claimed() {
            std::mem::take(&mut self.writer).end(&of.relay);
        }
    }
}

impl LocalCompletionReader {
    /// Whether the device is to work before the next request is taken.
    #[inline(always)]
    pub(crate) fn is_progress_due(&self) -> bool {
        self.reader.taken().is_multiple_of(TAKEN_PER_PROGRESS)
    }

    /// Whether nothing else is to be done for the next request: it is of the queue of the one before.
    #[inline(always)]
    pub(crate) fn is_usual(&self, of: &LocalCompletionRing) -> bool {
        !self.is_progress_due() && self.claims == of.claims.load(Ordering::Relaxed)
    }

    /// The oldest request that waits.
    #[inline(always)]
    pub(crate) fn front(&self, of: &LocalCompletionRing) -> Option<LocalCompletion> {
        self.reader.front(&of.relay).map(|[user_ctx, place]| LocalCompletion { user_ctx, place })
    }

    /// Takes the oldest request that waits, which is `front`.
    #[inline(always)]
    pub(crate) fn take(
        &mut self,
        of: &LocalCompletionRing,
        front: LocalCompletion,
        out: &mut Completion,
    ) {
        self.look_at_queue(of);
        self.take_usual(of, front, out);
    }

    /// As [`LocalCompletionReader::take`], where [`LocalCompletionReader::is_usual`] says so.
    #[inline(always)]
    pub(crate) fn take_usual(
        &mut self,
        of: &LocalCompletionRing,
        front: LocalCompletion,
        out: &mut Completion,
    ) {
        let LocalCompletion { user_ctx, .. } = front;
        complete(DoneRequest { user_ctx, len: front.len(), ..self.done }, out);
        self.reader.take(&of.relay);
    }

    /// As [`LocalCompletionReader::take_usual`], into a record.
    #[inline(always)]
    pub(crate) fn take_record(
        &mut self,
        of: &LocalCompletionRing,
        front: LocalCompletion,
        into: &mut DoneRecord,
    ) {
        let DoneRequest { queue_ctx, local_id, flags, .. } = self.done;
        *into = DoneRecord {
            user_ctx: front.user_ctx,
            len: low(front.place),
            local_id,
            flags: u32::from(flags.bits()),
            queue_ctx,
            ..DoneRecord::default()
        };
        self.reader.take(&of.relay);
    }

    /// Looks whose request the next one is.
    fn look_at_queue(&mut self, of: &LocalCompletionRing) {
        let queue = of.queue.load(Ordering::Relaxed);
        self.claims = of.claims.load(Ordering::Relaxed);
        self.done.queue_ctx = of.queue_ctx.load(Ordering::Relaxed);
        self.done.local_id = low(queue);
        let is_jetty = queue & JETTY != 0;
        self.done.flags = if is_jetty { CompletionFlags::JETTY } else { CompletionFlags::empty() };
    }
}

impl LocalCompletion {
    /// Whether all entries before its own are taken, where `ci` is the next one.
    #[inline(always)]
    pub(crate) fn is_next(self, ci: u32) -> bool {
        !is_before(ci, (self.place >> 32) as u32)
    }

    /// Its length in bytes.
    #[inline(always)]
    fn len(self) -> u64 {
        u64::from(low(self.place))
    }
}

#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the low half of a word is meant")]
fn low(word: u64) -> u32 {
    word as u32
}

/// Stores a completion, field by field: a copy of the whole would wait for the stores of its parts.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the length of a request has 32 bits")]
fn complete(done: DoneRequest, out: &mut Completion) {
    let Completion {
        status,
        opcode,
        flags,
        len,
        user_ctx,
        queue_ctx,
        local_id,
        tpn,
        remote,
        imm,
        payload,
    } = out;
    *status = CrStatus::Success;
    *opcode = CrOpcode::default();
    *flags = done.flags;
    *len = done.len as u32;
    *user_ctx = done.user_ctx;
    *queue_ctx = done.queue_ctx;
    *local_id = done.local_id;
    *tpn = 0;
    *remote = JettyId::default();
    *imm = 0;
    *payload = InlinePayload::default();
}

/// Beside the number of a queue: it is a jetty.
const JETTY: u64 = 1 << 32;
/// Requests taken between two calls that let the device work: a microsecond or two.
const TAKEN_PER_PROGRESS: u32 = 64;
