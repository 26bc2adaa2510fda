//! The express lane of messages: a short SEND goes from its block straight into the ring of its peer.
//!
//! *Owns*: which messages may take it. *Takes*: a direct entry; completions from the shared part. *Gives*: the
//! message to the shared part, recorded as handed over, or nothing changed. *Must not*: decide on a status: what does
//! not fit takes the long path, which has the statuses; overtake a request that it must follow.
//!
//! From the push on, it is a request that was handed over: the same code as on the long path completes, resends or
//! flushes it.

use udma_abi::{
    CqeStatus, MessageBody, MessageEntry,
    cmd::Mode,
    sqe::{BLOCK_WORDS, SqeFlags, SqeTargetKind},
};

use super::{MIXED, SendEngine, SendState, Started, StepOutcome, Visit, target_key};
use crate::engine::gather::Store;
use crate::engine::mail::OUTSTANDING_MAX;
use crate::engine::mail::{SHORT_MAX, ShortBody};
use crate::engine::pieces::local_of;

/// A message that may be sent now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShortSend<'a> {
    /// Number of its queue.
    pub(crate) queue: u32,
    /// Sequence number, which its completion repeats.
    pub(crate) seq: u32,
    pub(crate) block: &'a [u64; BLOCK_WORDS],
    pub(crate) entry: &'a MessageEntry,
    pub(crate) body: ShortBody<'a>,
}

/// What became of a completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HandedEnd {
    /// The request is completed, and its queue has nothing else to do.
    Done,
    /// It is completed; the queue has to be stepped.
    Step,
    /// The queue did not take it: it goes by mail.
    ByMail,
}

impl SendEngine {
    /// Sends the message of a direct entry with `push`, which returns whether it did. `None`: nothing happened.
    #[inline]
    pub(crate) fn send_short(
        &mut self,
        visit: &Visit<'_>,
        block: &[u64; BLOCK_WORDS],
        push: impl FnOnce(&ShortSend<'_>) -> bool,
    ) -> Option<StepOutcome> {
        let entry = MessageEntry::decode(block)?;
        if !self.may_send(visit, &entry) {
            return None;
        }
        let body = match entry.body {
            MessageBody::Inline(len, words) => ShortBody::Words(words, len),
            MessageBody::Piece(piece) => {
                let (local, at) = local_of(&self.segments, piece, Store::No)?;
                ShortBody::Memory(&local.region, at, piece.len as usize)
            }
        };
        if !(1..=SHORT_MAX).contains(&body.len()) {
            return None;
        }
        let path = self.path_states.find_open(entry.tpn)?;
        let key = target_key(entry.target_kind, entry.target_id);
        let is_strong = entry.flags.contains(SqeFlags::ORDER_STRONG);
        if is_strong && path.outstanding != 0 && path.target != key || !self.retire.reserve() {
            return None;
        }
        let seq = self.retire.next_seq();
        if !push(&ShortSend { queue: self.id, seq, block, entry: &entry, body }) {
            self.retire.keep_or_give_back();
            return None;
        }
        path.admission.on_asked(seq, shown_by(&entry));
        path.target = if path.outstanding == 0 || path.target == key { key } else { MIXED };
        path.outstanding += 1;
        self.ring.head = self.ring.head.wrapping_add(1);
        self.retire.push_handed(Started {
            entry_idx: entry.entry_idx,
            blocks: 1,
            flags: entry.flags,
            fenced: false,
            tpn: entry.tpn,
            end: None,
            reported: false,
        });
        Some(self.clear_slots(StepOutcome::BUSY))
    }

    /// Whether nothing is outstanding that the entry must follow, as far as its queue shows.
    #[inline]
    pub(super) fn may_send(&self, visit: &Visit<'_>, entry: &MessageEntry) -> bool {
        let is_idle = self.state == SendState::Ready && !self.under_way;
        let is_bound = match self.mode {
            Mode::Rm => true,
            Mode::Rc => {
                self.bound == Some((entry.tpn, entry.target_id))
                    && entry.target_kind == SqeTargetKind::Jetty
            }
            Mode::Um => false,
        };
        let is_fenced = entry.flags.contains(SqeFlags::FENCE) && self.retire.fence_pending();
        visit.tables.has_message_lane()
            && is_idle
            && is_bound
            && !is_fenced
            && self.posted(visit) == 1
            && self.ring.is_head(entry.owner, entry.entry_idx)
            && self.retire.started() < OUTSTANDING_MAX
            && self.mail.is_taken()
    }

    /// Completes request `seq`, which was handed over and succeeded with `bytes`.
    #[inline]
    pub(crate) fn end_handed(&mut self, visit: &Visit<'_>, seq: u32, bytes: u32) -> HandedEnd {
        let tables = visit.tables;
        let is_plain = self.state == SendState::Ready && self.mail.ended.is_empty();
        if !is_plain || tables.faults.is_planted() {
            return HandedEnd::ByMail;
        }
        let status = CqeStatus::Success;
        let tools = (&visit.queue.fast, tables.faults);
        if let Some(request) = self.retire.end(seq, (status, bytes), tools)
            && let Some(path) = self.path_states.find(request.tpn)
        {
            path.outstanding = path.outstanding.saturating_sub(1);
            path.admission.on_ended(seq, status);
        }
        let waits = self.under_way || self.posted(visit) != 0 || self.retire.owes_slot();
        if waits { HandedEnd::Step } else { HandedEnd::Done }
    }
}

/// What a message shows to its target, the same value as [`shown_to`](crate::engine::direct::shown_to) gives for an
/// SQE.
#[inline]
pub(super) fn shown_by(entry: &MessageEntry) -> u64 {
    let target = u64::from(target_key(entry.target_kind, entry.target_id));
    u64::from(entry.token.is_some()) << 63 | target << 32 | u64::from(entry.token.unwrap_or(0))
}
