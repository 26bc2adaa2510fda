//! How the engine enters and leaves ping-pong mode.
//!
//! *Owns*: nothing. *Takes*: the next direct entry; the messages of a ping-pong mode that ends. *Gives*: the queue's
//! side of the mode; its open message as a request in flight. *Must not*: enter it while anything is not retired.

use udma_abi::{CqeStatus, MessageBody, MessageEntry, sqe::BLOCK_WORDS};

use super::message::shown_by;
use super::{SendEngine, Started, Visit, target_key};
use crate::engine::gather::Store;
use crate::engine::pieces::local_of;
use crate::engine::ping_pong::{PingPongParts, PingPongSends, SaidMessages};

/// What the engine needs to take the messages over: their path, target and token.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SaidTo {
    tpn: u32,
    target: u32,
    /// What each message shows to its target ([`AdmissionCache`](crate::engine::remote::AdmissionCache)).
    shown: u64,
}

impl SendEngine {
    /// Enters ping-pong mode for messages like the direct entry `block`, which is next; also returns that request's
    /// sequence number. `None`: the entry takes another path.
    #[cold]
    pub(crate) fn begin_ping_pong(
        &mut self,
        visit: &Visit<'_>,
        block: &[u64; BLOCK_WORDS],
    ) -> Option<(PingPongSends, SaidTo, u32)> {
        let entry = MessageEntry::decode(block)?;
        if !self.may_send(visit, &entry) || visit.tables.faults.is_planted() {
            return None;
        }
        let MessageBody::Piece(piece) = entry.body else { return None };
        let (local, _) = local_of(&self.segments, piece, Store::No)?;
        if local.has_poison() {
            return None;
        }
        let local = self.segments.known_arc(piece.token_id)?;
        let path = self.path_states.find_open(entry.tpn)?;
        if path.outstanding != 0 {
            return None;
        }
        let next = self.ring.head;
        let to = SaidTo {
            tpn: entry.tpn,
            target: target_key(entry.target_kind, entry.target_id),
            shown: shown_by(&entry),
        };
        let parts = PingPongParts {
            mark: self.ring.mark(),
            next,
            local,
            port: self.retire.port().clone(),
            form: *self.retire.form(),
            // Everything before it is retired.
            record: self.retire.record_at(next)?.clone(),
        };
        Some((PingPongSends::new(block, parts), to, self.retire.next_seq()))
    }

    /// Takes over the messages of a ping-pong mode that ended.
    pub(crate) fn take_back(&mut self, said: SaidMessages, to: SaidTo) {
        let SaidMessages { ended, open, has_slot } = said;
        let path = self.path_states.find(to.tpn);
        let last = self.retire.next_seq().wrapping_add(ended);
        self.ring.head = self.ring.head.wrapping_add(ended);
        self.retire.count_unreported(ended, ended);
        if has_slot {
            self.retire.keep_or_give_back();
        }
        if let Some(path) = path {
            path.target = to.target;
            path.outstanding += u32::from(open.is_some());
            if ended != 0 {
                path.admission.on_asked(last.wrapping_sub(1), to.shown);
                path.admission.on_ended(last.wrapping_sub(1), CqeStatus::Success);
            }
            if open.is_some() {
                path.admission.on_asked(last, to.shown);
            }
        }
        let Some(open) = open else { return };
        self.ring.head = self.ring.head.wrapping_add(1);
        self.retire.push_handed(Started {
            entry_idx: open.entry_idx,
            blocks: 1,
            flags: open.flags,
            fenced: false,
            tpn: to.tpn,
            end: None,
            reported: false,
        });
    }
}
