//! Answers to nodes of which no state is kept.
//!
//! *Owns*: a bounded queue of them; how often a node gets a notice about a TP. *Takes*: answers. *Gives*: packets
//! (unsealed). *Must not*: grow with the number of nodes that ask.

use std::collections::VecDeque;

use udma_abi::Nanos;
use urma_packet::PacketHeader;

use crate::ports::{Backlog, Route};

/// Most waiting answers: as many as leave in one call of the socket.
const REPLIES_MAX: usize = 256;
/// Shortest time between two notices, in nanoseconds: each costs a system call, and anyone can ask for one.
const NOTICE_NS: Nanos = 100_000;

/// CONNECTs without proof that are answered before the input is empty: an answer costs three times as much as a drop,
/// and delays the packets behind it.
const CHALLENGES_MAX: u32 = 256;
/// Further ones in each [`CHALLENGES_NS`] in which the input was never empty.
const CHALLENGES_MORE: u32 = 128;
const CHALLENGES_NS: Nanos = 10_000_000;

/// Answers that wait to be sent.
#[derive(Debug, Default)]
pub(super) struct Replies {
    waiting: VecDeque<(Route, PacketHeader)>,
    /// When the next notice may be sent.
    notice_at: Nanos,
    /// CONNECTs without proof that were answered, of [`CHALLENGES_MAX`].
    challenged: u32,
    /// When the input was empty, or more were allowed.
    since: Nanos,
}

impl Replies {
    /// Notes whether more datagrams wait than those that follow.
    pub(super) fn on_backlog(&mut self, now: Nanos, backlog: Backlog) {
        if backlog == Backlog::Empty {
            (self.challenged, self.since) = (0, now);
        } else if now.saturating_sub(self.since) >= CHALLENGES_NS {
            self.challenged = self.challenged.min(CHALLENGES_MAX - CHALLENGES_MORE);
            self.since = now;
        }
    }

    /// Whether to answer a CONNECT without proof; if not, the sender tries again.
    pub(super) fn may_challenge(&mut self) -> bool {
        let may = self.challenged < CHALLENGES_MAX;
        self.challenged += u32::from(may);
        may
    }

    /// Queues an answer to `to`; `false`: the queue is full.
    pub(super) fn push(&mut self, to: Route, reply: PacketHeader) -> bool {
        let has_room = self.waiting.len() < REPLIES_MAX;
        if has_room {
            self.waiting.push_back((to, reply));
        }
        has_room
    }

    /// Queues a notice, unless there was one just before.
    pub(super) fn push_notice(&mut self, now: Nanos, to: Route, notice: PacketHeader) {
        if now >= self.notice_at && self.push(to, notice) {
            self.notice_at = now.saturating_add(NOTICE_NS);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Writes the next answer to the front of `buf`; returns its route and length.
    pub(super) fn poll(&mut self, buf: &mut [u8]) -> Option<(Route, usize)> {
        let (to, reply) = self.waiting.pop_front()?;
        reply.emit_headers(0, buf).ok().map(|frame| (to, frame.total))
    }
}
