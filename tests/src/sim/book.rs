//! Requests and messages: what must complete, and what must be received.
//!
//! *Owns*: the requests outstanding of one jetty, the messages outstanding from one jetty to one
//! node. *Takes*: what is posted, what completes. *Gives*: a complaint for whatever is lost,
//! doubled or misordered. *Must not*: depend on memory.

use std::collections::VecDeque;
use std::ops::Range;

use urma_core::CrOpcode;

/// How a request has to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    Success,
    /// Its target refuses it and changes nothing.
    Refused,
    /// One of those: it is open whether the victim was withdrawn before its initiator died, or whether the request came
    /// before its target took back what it lent.
    Either,
}

/// A request under traffic.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Pending {
    /// Its number, also its user context.
    pub(super) number: u64,
    pub(super) to: usize,
    /// Success makes a completion.
    pub(super) signalled: bool,
    /// Its piece of local memory.
    pub(super) slot: usize,
    /// How it has to end.
    pub(super) fate: Fate,
    /// Its queue or its target broke down: it ends once, with any status.
    pub(super) doomed: bool,
    /// Success brings bytes to its slot.
    pub(super) brings: bool,
    /// It is for what its target may take back.
    pub(super) is_lent: bool,
    /// Bytes of its target's area that it asks for.
    pub(super) reads: Option<Range<usize>>,
}

/// Requests of one jetty, in posting order.
#[derive(Clone, Debug, Default)]
pub(super) struct Requests {
    pending: VecDeque<Pending>,
}

impl Requests {
    /// One more was posted.
    pub(super) fn push(&mut self, pending: Pending) {
        self.pending.push_back(pending);
    }

    /// Whether a read outstanding asks `to` for a byte of `range`.
    pub(super) fn is_read(&self, to: usize, range: &Range<usize>) -> bool {
        let overlaps = |read: &Range<usize>| read.start < range.end && range.start < read.end;
        self.pending.iter().any(|p| p.to == to && p.reads.as_ref().is_some_and(overlaps))
    }

    pub(super) fn len(&self) -> usize {
        self.pending.len()
    }

    /// Number of the request that ends next.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.pending.front().map(|pending| pending.number)
    }

    /// Whether none is under traffic.
    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Whether some are outstanding and no success of theirs makes a completion.
    pub(super) fn is_silent(&self) -> bool {
        !self.pending.is_empty() && self.pending.iter().all(|p| !p.signalled)
    }

    /// Ends all that are under traffic.
    pub(super) fn take_all(&mut self) -> VecDeque<Pending> {
        std::mem::take(&mut self.pending)
    }

    /// Those to `to` (`None`: all) may end in any traffic.
    pub(super) fn doom(&mut self, to: Option<usize>) {
        let of = |p: &&mut Pending| to.is_none_or(|to| p.to == to);
        self.pending.iter_mut().filter(of).for_each(|p| p.doomed = true);
    }

    /// Those for what `to` lent: it takes that back, so they may be refused.
    pub(super) fn doubt_lent(&mut self, to: usize) {
        let of = |p: &&mut Pending| p.is_lent && p.to == to && p.fate == Fate::Success;
        self.pending.iter_mut().filter(of).for_each(|p| p.fate = Fate::Either);
    }

    /// Records the completion of request `number`, well or not: it and the unsignalled ones
    /// before it, which succeeded, are done.
    ///
    /// # Errors
    /// It does not complete next, or completed before.
    pub(super) fn complete(&mut self, number: u64, well: Ended) -> Result<Vec<Pending>, String> {
        let mut done = Vec::new();
        while let Some(next) = self.pending.pop_front() {
            let (is_it, signalled, found) = (next.number == number, next.signalled, next.number);
            done.push(next);
            match (is_it, signalled || well == Ended::Badly) {
                (true, true) => return Ok(done),
                (true, false) => return Err(format!("unsignalled request {number} completed")),
                (false, _) if signalled => {
                    return Err(format!("request {number} completed where {found} is next"));
                }
                (false, _) => {}
            }
        }
        Err(format!("request {number} completed and is not outstanding"))
    }
}

/// Outcome of a request by its completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ended {
    Well,
    Badly,
}

/// A message that the target must receive.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Message {
    /// Request that carries it.
    pub(super) number: u64,
    pub(super) opcode: CrOpcode,
    /// Payload; empty for writes with an immediate, whose bytes go elsewhere.
    pub(super) bytes: Vec<u8>,
    /// Bytes that the completion reports.
    pub(super) len: usize,
    /// Immediate, or token id and token; 0 without.
    pub(super) imm: u64,
}

/// How messages may arrive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reliability {
    /// Each once, in order.
    Reliable,
    /// Each at most once.
    Unreliable,
}

/// Messages from one jetty to one node.
#[derive(Clone, Debug, Default)]
pub(super) struct Line {
    /// Of requests that broke down, those that did so together: a prefix of each may still come.
    loose: VecDeque<VecDeque<Message>>,
    open: VecDeque<Message>,
    /// All that were posted so far.
    posted: VecDeque<Message>,
}

impl Line {
    /// Requests that carry a message were posted.
    pub(super) fn extend(&mut self, messages: impl IntoIterator<Item = Message>) {
        let before = self.open.len();
        self.open.extend(messages);
        self.posted.extend(self.open.range(before..).cloned());
    }

    /// The target of datagrams begins another life. What is on its way still may reach it, and it does not know what
    /// the life before received: a network may double that.
    pub(super) fn begin_again(&mut self) {
        self.open.clone_from(&self.posted);
    }

    /// Numbers of all that were posted so far.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u64> + '_ {
        self.posted.iter().map(|message| message.number)
    }

    /// What is outstanding may end anywhere.
    pub(super) fn loosen(&mut self) {
        self.loose.push_back(std::mem::take(&mut self.open));
    }

    /// Outstanding that must come.
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    /// A message that `is_it` recognises came in.
    ///
    /// # Errors
    /// It is not the next one, or came before.
    pub(super) fn receive(
        &mut self,
        how: Reliability,
        is_it: impl Fn(&Message) -> bool,
    ) -> Result<Message, String> {
        if how == Reliability::Unreliable {
            let at =
                self.open.iter().position(is_it).ok_or("no request sent it, or it came before")?;
            return self.open.remove(at).ok_or_else(|| "no such message".to_owned());
        }
        let next = |group: &VecDeque<Message>| group.front().is_some_and(&is_it);
        if let Some(at) = self.loose.iter().position(next) {
            // What broke down before does not come any more.
            self.loose.drain(..at);
            let group = self.loose.front_mut().and_then(VecDeque::pop_front);
            return group.ok_or_else(|| "no such message".to_owned());
        }
        if self.open.front().is_some_and(&is_it) {
            self.loose.clear();
            return self.open.pop_front().ok_or_else(|| "no such message".to_owned());
        }
        let number = |message: &Message| message.number;
        let all = self.loose.iter().flatten().chain(&self.open);
        let it = all.filter(|message| is_it(message)).map(number).next();
        let next: Vec<_> =
            self.loose.iter().chain([&self.open]).filter_map(|g| g.front()).collect();
        let next: Vec<_> = next.into_iter().map(number).collect();
        Err(format!("it is of request {it:?}, next are {next:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests() -> Requests {
        let mut requests = Requests::default();
        for (number, signalled) in [(1, false), (2, true), (3, true)] {
            requests.push(Pending {
                number,
                to: 0,
                signalled,
                slot: 0,
                fate: Fate::Success,
                doomed: false,
                is_lent: false,
                brings: false,
                reads: None,
            });
        }
        requests
    }

    fn requests_one() -> Pending {
        let mut requests = requests();
        requests.take_all().pop_back().expect("three")
    }

    fn line() -> Line {
        let mut line = Line::default();
        for number in 1..=3 {
            let (bytes, opcode) = (Vec::new(), CrOpcode::Send);
            line.extend([Message { number, opcode, bytes, len: 0, imm: 0 }]);
        }
        line
    }

    #[test]
    fn completions_out_of_order_doubled_or_unasked_are_seen() {
        let well = Ended::Well;
        assert_eq!(requests().complete(2, well).map(|done| done.len()), Ok(2));
        assert!(requests().complete(3, well).is_err());
        assert!(requests().complete(1, well).is_err());
        assert!(requests().complete(1, Ended::Badly).is_ok());
        let mut twice = requests();
        assert!(twice.complete(2, well).is_ok());
        assert!(twice.complete(2, well).is_err());
    }

    #[test]
    fn a_read_in_flight_is_known_by_its_target_and_its_bytes() {
        let mut requests = Requests::default();
        requests.push(Pending { reads: Some(10..20), ..requests_one() });
        for (to, range, is_read) in [
            (0, 0..10, false),
            (0, 0..11, true),
            (0, 19..30, true),
            (0, 20..30, false),
            (1, 0..30, false),
        ] {
            assert_eq!(requests.is_read(to, &range), is_read, "{to} {range:?}");
        }
        assert!(!requests.is_silent());
        let mut silent = Requests::default();
        assert!(!silent.is_silent(), "none is outstanding");
        silent.push(Pending { signalled: false, ..requests_one() });
        assert!(silent.is_silent());
    }

    #[test]
    fn messages_out_of_order_or_doubled_are_seen() {
        let reliable = Reliability::Reliable;
        let is = |number| move |message: &Message| message.number == number;
        assert!(line().receive(reliable, is(1)).is_ok());
        assert!(line().receive(reliable, is(2)).is_err());
        let mut datagrams = line();
        assert!(datagrams.receive(Reliability::Unreliable, is(3)).is_ok());
        assert!(datagrams.receive(Reliability::Unreliable, is(3)).is_err());
        datagrams.begin_again();
        assert!(datagrams.receive(Reliability::Unreliable, is(3)).is_ok(), "by another life");
        assert!(datagrams.receive(Reliability::Unreliable, is(3)).is_err());
        // What broke down comes in order or not at all, and not after what was sent later.
        let mut broken = line();
        broken.loosen();
        let (bytes, opcode) = (Vec::new(), CrOpcode::Send);
        broken.extend([Message { number: 4, opcode, bytes, len: 0, imm: 0 }]);
        assert!(broken.clone().receive(reliable, is(2)).is_err());
        assert!(broken.receive(reliable, is(1)).is_ok());
        assert!(broken.receive(reliable, is(4)).is_ok());
        assert!(broken.receive(reliable, is(2)).is_err());
        // Nor after what broke down later.
        let mut twice = line();
        twice.loosen();
        twice.extend([Message { number: 5, opcode, bytes: Vec::new(), len: 0, imm: 0 }]);
        twice.loosen();
        assert!(twice.receive(reliable, is(5)).is_ok());
        assert!(twice.receive(reliable, is(1)).is_err());
    }
}
