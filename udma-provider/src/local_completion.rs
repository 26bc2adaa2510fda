//! Completions of requests that the doorbell executed: the driver makes them, they never are in the JFC's ring.
//!
//! *Owns*: the ring from one queue's posts to the polls of its JFC. *Takes*: requests that succeeded in the call of
//! their doorbell. *Gives*: their completions, each with the ring entry that it comes before. *Must not*: report a
//! failure; pass on anything for a JFC with events.
//!
//! The order is that of the JFC's ring: a locally executed request comes after everything of its queue that the
//! device has reported, and before everything that it reports later. So each one has the index of the device's next
//! entry, and is taken once all entries before that index are taken.

use udma_abi::NextEntry;
use urma_core::{
    Completion, CompletionFlags, CrOpcode, CrStatus, InlinePayload, JettyId, QueueKind,
    ops::{CompletingQueue, DoneLook},
};
use urma_mem::{
    sync::{AtomicU32, AtomicU64, Ordering},
    word_pair_ring::{WordPairReader, WordPairRing, WordPairWriter},
};

use crate::{is_before, table::PolledQueue};

/// State shared by the polls of a JFC and the one queue at a time that passes completions to them.
#[derive(Debug, Default)]
pub(crate) struct LocalCompletionRing {
    relay: WordPairRing,
    /// Number of that queue, with [`JETTY`]; stored before its first request.
    queue: AtomicU64,
    queue_ctx: AtomicU64,
    /// Number of queues that were the one so far: incremented before the first request of the next one.
    claims: AtomicU32,
}

/// The posting end; the default value belongs to no ring.
#[derive(Debug, Default)]
pub(crate) struct LocalCompletionWriter {
    writer: WordPairWriter,
    /// Requests taken, as of the last check.
    taken: u32,
}

/// The polling end, used by one thread at a time.
#[derive(Debug, Default)]
pub(crate) struct LocalCompletionReader {
    reader: WordPairReader,
    /// The queue of the request that was taken last; its version is the value of [`LocalCompletionRing::claims`].
    sender: CompletingQueue,
}

/// A locally executed request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LocalCompletion {
    user_ctx: u64,
    /// Index of the ring entry that it comes before, and its length.
    place: u64,
}

impl LocalCompletionRing {
    /// Makes the queue the one that passes completions on, with at most `most` waiting; `None`: another queue is.
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

    /// Whether completions of queue `id` wait.
    pub(crate) fn has_of(&self, id: u32) -> bool {
        let is_its = self.queue.load(Ordering::Relaxed) & !JETTY == u64::from(id);
        is_its && !self.relay.is_empty()
    }
}

impl LocalCompletionWriter {
    /// Whether this end belongs to a ring.
    #[inline]
    pub(crate) fn is_claimed(&self) -> bool {
        self.writer.is_claimed()
    }

    /// Number of requests that may be passed on now.
    #[inline]
    pub(crate) fn room(&self, of: &LocalCompletionRing) -> u32 {
        self.writer.room(&of.relay)
    }

    /// Number of requests passed on so far, free running.
    #[inline(always)]
    pub(crate) fn passed_on(&self) -> u32 {
        self.writer.pushed()
    }

    /// Passes on a request of `len` bytes that ends before position `end` and comes before entry `next`.
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

    /// First position after the newest request that was taken since the last call.
    pub(crate) fn take_end(&mut self, of: &LocalCompletionRing) -> Option<u32> {
        if !self.is_claimed() {
            return None;
        }
        let taken = self.writer.taken(&of.relay);
        let is_new = taken != self.taken;
        self.taken = taken;
        is_new.then(|| self.writer.note_of(&of.relay, taken.wrapping_sub(1)))
    }

    /// Whether a request waits to be taken by a poll.
    pub(crate) fn has_waiting(&self, of: &LocalCompletionRing) -> bool {
        self.is_claimed() && self.writer.taken(&of.relay) != self.writer.pushed()
    }

    /// Allows another queue to take this one's place, once what waits is taken.
    pub(crate) fn end(&mut self, of: &LocalCompletionRing) {
        if self.is_claimed() {
            std::mem::take(&mut self.writer).end(&of.relay);
        }
    }
}

impl LocalCompletionReader {
    /// Whether the device should work before the next request is taken.
    #[inline(always)]
    pub(crate) fn is_progress_due(&self) -> bool {
        self.reader.taken().is_multiple_of(TAKEN_PER_PROGRESS)
    }

    /// Whether the next request is of the same queue as the last one, so that nothing else has to be done.
    #[inline(always)]
    pub(crate) fn is_usual(&self, of: &LocalCompletionRing) -> bool {
        self.is_of(of, &self.sender)
    }

    /// Whether the next request is of `sender`, so that nothing else has to be done.
    #[inline(always)]
    fn is_of(&self, of: &LocalCompletionRing, sender: &CompletingQueue) -> bool {
        !self.is_progress_due() && sender.version == of.claims.load(Ordering::Relaxed)
    }

    /// The oldest waiting request.
    #[inline(always)]
    pub(crate) fn front(&self, of: &LocalCompletionRing) -> Option<LocalCompletion> {
        self.reader.front(&of.relay).map(|[user_ctx, place]| LocalCompletion { user_ctx, place })
    }

    /// Takes the oldest waiting request, which is `front`.
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

    /// Takes the oldest waiting request by the short path, when [`LocalCompletionReader::is_usual`] says so.
    #[inline(always)]
    pub(crate) fn take_usual(
        &mut self,
        of: &LocalCompletionRing,
        front: LocalCompletion,
        out: &mut Completion,
    ) {
        complete(self.sender, front, out);
        self.reader.take(&of.relay);
    }

    /// Takes the oldest waiting request, which is `front`, if it is of the caller's sender or that is out of date.
    #[inline(always)]
    pub(crate) fn take_done(
        &mut self,
        of: &LocalCompletionRing,
        front: LocalCompletion,
        sender: &mut CompletingQueue,
    ) -> DoneLook {
        if !self.is_of(of, sender) {
            return self.take_of_other(of, front, sender);
        }
        self.reader.take(&of.relay);
        DoneLook::of(front.user_ctx, low(front.place))
    }

    /// The rest of [`LocalCompletionReader::take_done`], when the caller's sender is out of date. Unknown: a poll has to
    /// look at the queue first. Reached by a tail call, so that the usual case saves no registers.
    #[cold]
    #[inline(never)]
    fn take_of_other(
        &mut self,
        of: &LocalCompletionRing,
        front: LocalCompletion,
        sender: &mut CompletingQueue,
    ) -> DoneLook {
        if !self.is_usual(of) {
            return DoneLook::UNKNOWN;
        }
        *sender = self.sender;
        self.reader.take(&of.relay);
        DoneLook::of(front.user_ctx, low(front.place))
    }

    /// Updates the queue fields for the next request.
    fn look_at_queue(&mut self, of: &LocalCompletionRing) {
        let queue = of.queue.load(Ordering::Relaxed);
        let is_jetty = queue & JETTY != 0;
        self.sender = CompletingQueue {
            version: of.claims.load(Ordering::Relaxed),
            local_id: low(queue),
            queue_ctx: of.queue_ctx.load(Ordering::Relaxed),
            flags: if is_jetty { CompletionFlags::JETTY } else { CompletionFlags::empty() },
        };
    }
}

impl LocalCompletion {
    /// Whether all entries before its own are taken; `ci` is the next one.
    #[inline(always)]
    pub(crate) fn is_next(self, ci: u32) -> bool {
        !is_before(ci, (self.place >> 32) as u32)
    }
}

#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the low half of a word is meant")]
fn low(word: u64) -> u32 {
    word as u32
}

/// Stores a completion field by field: a copy of the whole would wait for the stores of its parts.
#[inline(always)]
fn complete(sender: CompletingQueue, done: LocalCompletion, out: &mut Completion) {
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
    *flags = sender.flags;
    *len = low(done.place);
    *user_ctx = done.user_ctx;
    *queue_ctx = sender.queue_ctx;
    *local_id = sender.local_id;
    *tpn = 0;
    *remote = JettyId::default();
    *imm = 0;
    *payload = InlinePayload::default();
}

/// Bit besides the number of a queue: it is a jetty.
const JETTY: u64 = 1 << 32;
/// Requests taken between two calls that let the device work: a microsecond or two.
const TAKEN_PER_PROGRESS: u32 = 64;
