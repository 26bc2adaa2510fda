//! What must be true: memory, messages and completions, kept in the simplest way.
//!
//! *Owns*: a mirror of each (initiator, target) area, the messages under way of each pair, the
//! requests under way of each node. *Takes*: what is posted, what completes. *Gives*: a complaint
//! for whatever is lost, doubled, corrupted or misordered. *Must not*: know paths or packets.
//!
//! Order is kept per (jetty, target), and each initiator has an area of its own at each target: so
//! the effect of a request is known when it is posted. One freedom remains to the device: an answer
//! may be gathered late, so what changes bytes that a read under way asked for carries a fence
//! (UB Base Specification 2.0.1, 7.3).

use std::collections::VecDeque;
use std::ops::Range;

/// Bytes of the area that one initiator owns at one target.
pub(super) const AREA_LEN: usize = 32 << 10;
/// 8-byte words at the front of an area that atomics and notifications use.
pub(super) const WORDS: usize = 16;

/// A message that the target must receive.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Message {
    /// Payload; empty for writes with an immediate, whose bytes go elsewhere.
    pub(super) bytes: Vec<u8>,
    /// Bytes that the completion reports.
    pub(super) len: usize,
    /// Immediate, if it carries one.
    pub(super) imm: Option<u64>,
}

/// What a request brings back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Expected {
    /// Nothing.
    Nothing,
    /// These bytes in its local memory.
    Bytes(Vec<u8>),
}

/// A request under way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Pending {
    /// Its number, also its user context.
    pub(super) number: u64,
    /// Success makes a completion.
    pub(super) signalled: bool,
    /// Its piece of local memory.
    pub(super) slot: usize,
    /// What it brings back.
    pub(super) expected: Expected,
    /// What it reads of which target's area.
    pub(super) reads: Option<(usize, Range<usize>)>,
}

/// One initiator's view of one target.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    /// What the area holds once everything posted is done.
    pub(super) mirror: Vec<u8>,
    /// Messages that the target has not received yet.
    pub(super) messages: VecDeque<Message>,
    /// Who touched which bytes, in posting order; for telling what went wrong.
    pub(super) history: Vec<(u64, Range<usize>, String)>,
}

impl Default for Pair {
    fn default() -> Self {
        Self { mirror: vec![0; AREA_LEN], messages: VecDeque::new(), history: Vec::new() }
    }
}

impl Pair {
    /// Those that touched byte `at`, in posting order.
    #[must_use]
    pub(super) fn story(&self, at: usize) -> String {
        let touched = self.history.iter().filter(|(_, range, _)| range.contains(&at));
        let lines = touched.map(|(number, range, what)| format!("  {number} {range:?} {what}\n"));
        lines.collect()
    }

    /// A write of `bytes` at `offset`.
    pub(super) fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.mirror[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    /// What a read of `len` bytes at `offset` brings.
    #[must_use]
    pub(super) fn read(&self, offset: usize, len: usize) -> Vec<u8> {
        self.mirror[offset..offset + len].to_vec()
    }

    /// Changes word `word` by `change`; the value before.
    pub(super) fn update(&mut self, word: usize, change: impl FnOnce(u64) -> u64) -> u64 {
        let at = word * 8..word * 8 + 8;
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.mirror[at.clone()]);
        let old = u64::from_le_bytes(bytes);
        self.mirror[at].copy_from_slice(&change(old).to_le_bytes());
        old
    }
}

/// Requests of one node's jetty, in posting order.
#[derive(Clone, Debug, Default)]
pub(super) struct Requests {
    pending: VecDeque<Pending>,
}

impl Requests {
    /// One more was posted.
    pub(super) fn push(&mut self, pending: Pending) {
        self.pending.push_back(pending);
    }

    /// Whether a read under way asks `target` for a byte of `range`.
    pub(super) fn is_read(&self, target: usize, range: &Range<usize>) -> bool {
        let overlaps = |read: &Range<usize>| read.start < range.end && range.start < read.end;
        let reads = self.pending.iter().filter_map(|pending| pending.reads.as_ref());
        reads.into_iter().any(|(at, read)| *at == target && overlaps(read))
    }

    /// Under way.
    #[must_use]
    pub(super) fn len(&self) -> usize {
        self.pending.len()
    }

    /// Whether none is under way.
    #[must_use]
    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// A completion says that request `number` succeeded: it and the unsignalled ones before it
    /// are done.
    ///
    /// # Errors
    /// It does not complete next, or completed before.
    pub(super) fn complete(&mut self, number: u64) -> Result<Vec<Pending>, String> {
        let mut done = Vec::new();
        while let Some(next) = self.pending.pop_front() {
            let (is_it, signalled, found) = (next.number == number, next.signalled, next.number);
            done.push(next);
            match (is_it, signalled) {
                (true, true) => return Ok(done),
                (true, false) => return Err(format!("unsignalled request {number} completed")),
                (false, true) => {
                    return Err(format!("request {number} completed where {found} is next"));
                }
                (false, false) => {}
            }
        }
        Err(format!("request {number} completed and is not under way"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests() -> Requests {
        let mut requests = Requests::default();
        for (number, signalled) in [(1, false), (2, true), (3, true)] {
            let expected = Expected::Nothing;
            requests.push(Pending { number, signalled, slot: 0, expected, reads: None });
        }
        requests
    }

    #[test]
    fn completions_out_of_order_doubled_or_unasked_are_seen() {
        assert_eq!(requests().complete(2).map(|done| done.len()), Ok(2));
        assert!(requests().complete(3).is_err());
        assert!(requests().complete(1).is_err());
        let mut twice = requests();
        assert!(twice.complete(2).is_ok());
        assert!(twice.complete(2).is_err());
    }
}
