//! What requests of a send queue look up in the model of a NIC.
//!
//! *Takes*: the request at the front, entries behind it. *Gives*: when the request may start. *Must not*: change or take an
//! entry: each is fetched and judged when its turn comes.

use udma_abi::{Opcode, Sqe, sqe::SQE_WORDS_MAX};
use urma_mem::sync::Ordering;

use super::{SendEngine, Visit};
use crate::context::plugged::PluggedModel;
use crate::engine::gather::{EntryWords, Local, list};
use crate::nic::{LookedUp, Lookup};

impl SendEngine {
    /// Looks up the contexts of the request at the front, and waits for those that miss.
    #[cold]
    pub(super) fn look_up(&mut self, contexts: &PluggedModel) {
        let jfc = self.retire.port().number();
        let own = own((self.id, jfc), &self.sqe);
        self.ready_at = contexts.look_up(own.chain(pieces(&self.current.local, &self.words)));
        if contexts.is_before(self.ready_at) {
            contexts.wait(self.ready_at, Some(self.id));
        }
    }

    /// Prefetches the contexts of entries posted behind the front, up to the model's prefetch distance.
    #[cold]
    pub(super) fn look_ahead(&mut self, visit: &Visit<'_>, contexts: &PluggedModel) {
        let (head, blocks) = (self.ring.head, contexts.prefetch_distance());
        let end = visit.queue.pi.load(Ordering::Acquire);
        let posted = end.wrapping_sub(head);
        if blocks == 0 || posted > self.ring.blocks() {
            return;
        }
        let (mut words, mut sqe) = ([0; SQE_WORDS_MAX], Sqe::new(Opcode::Nop));
        let mut ahead = self.named.wrapping_sub(head);
        if ahead > posted {
            ahead = 0;
        }
        while ahead < posted.min(blocks) {
            let found = self.ring.peek(ahead, posted - ahead, (&mut words, &mut sqe));
            let Some(blocks) = found else { break };
            let own = own((self.id, self.retire.port().number()), &sqe);
            let ahead_of = own.chain(pieces(&Local::of(&sqe), &words).take(1));
            contexts.on_lookup(Lookup::Ahead, ahead_of);
            ahead += blocks;
        }
        self.named = head.wrapping_add(ahead);
    }
}

/// Contexts of queue, path and JFC of an entry.
fn own((queue, jfc): (u32, u32), sqe: &Sqe) -> impl Iterator<Item = LookedUp> + use<> {
    [LookedUp::Queue(queue), LookedUp::Tp(sqe.tpn), LookedUp::Jfc(jfc)].into_iter()
}

/// Contexts of the segments and pages of its pieces.
fn pieces<'a>(local: &Local, words: &'a EntryWords) -> impl Iterator<Item = LookedUp> + 'a {
    let pieces = list(local.pieces(words)).filter(|sge| sge.len != 0);
    pieces.map(|sge| LookedUp::Segment { token_id: sge.token_id, va: sge.va })
}
