//! What programs know of their requests and messages: each request ends once, each message comes once.
//!
//! - owns: outstanding requests, messages, sums of additions. takes: posts, completions, receives. gives: a complaint.
//! - must not: know a device.

use std::collections::{BTreeMap, BTreeSet};

/// A life of a node: its number, and how often it came back before.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct NodeLife {
    /// Number of the node, from 0 on.
    pub node: usize,
    /// How many lives it had before.
    pub life: u32,
}

/// What a request does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequestKind {
    /// It writes to the peer.
    Write,
    /// It reads from the peer.
    Read,
    /// It sends a message to the peer.
    Send,
    /// It adds one to a word of the peer.
    Add,
}

/// A request that was posted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PostedRequest {
    /// Its number in the run.
    pub number: u64,
    /// What it does there.
    pub kind: RequestKind,
    /// The node that posted it.
    pub from: NodeLife,
    /// The node that it concerns.
    pub to: NodeLife,
    /// Its slot of local memory.
    pub slot: usize,
    /// How many bytes it has.
    pub len: usize,
    /// Where it reads, from the start of what is offered.
    pub offset: usize,
    /// When it was posted, in ns.
    pub at: u64,
}

/// How a message is known to fare.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct MessageFate {
    len: usize,
    is_received: bool,
    is_sent: bool,
}

/// Additions that ended well, and those that may have had their effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct AddCount {
    certain: u64,
    possible: u64,
    /// Largest value that one found.
    most: Option<u64>,
}

/// All requests and messages of a run.
#[derive(Debug, Default)]
pub struct RequestBook {
    outstanding: BTreeMap<u64, PostedRequest>,
    messages: BTreeMap<u64, (NodeLife, MessageFate)>,
    adds: BTreeMap<(usize, NodeLife), AddCount>,
    /// Values that additions found.
    values: BTreeSet<(usize, NodeLife, u64)>,
    /// Slots of a node at a peer's life into which a write may still come late.
    unsure: BTreeSet<(usize, NodeLife, usize)>,
    /// Requests whose node died.
    died: u64,
}

impl RequestBook {
    /// A request was posted.
    pub fn post(&mut self, request: PostedRequest) {
        if request.kind == RequestKind::Send {
            let fate = MessageFate { len: request.len, ..MessageFate::default() };
            self.messages.insert(request.number, (request.to, fate));
        }
        self.outstanding.insert(request.number, request);
    }

    /// Request `number` of `from` completed.
    ///
    /// # Errors
    /// It had completed before, or was never posted there.
    pub fn complete(
        &mut self,
        from: NodeLife,
        number: u64,
        is_success: bool,
    ) -> Result<PostedRequest, String> {
        let request = self.outstanding.remove(&number).filter(|request| request.from == from);
        let request = request.ok_or_else(|| {
            format!("request {number} of node {} completed, and is not outstanding", from.node)
        })?;
        self.end(&request, is_success);
        Ok(request)
    }

    /// Node `from` died, and its requests with it.
    pub fn die(&mut self, from: NodeLife) {
        let (dead, living) =
            std::mem::take(&mut self.outstanding).into_iter().partition(|(_, r)| r.from == from);
        let dead: BTreeMap<u64, PostedRequest> = dead;
        self.outstanding = living;
        dead.values().for_each(|request| self.end(request, false));
        self.died += dead.len() as u64;
    }

    fn end(&mut self, request: &PostedRequest, is_success: bool) {
        let PostedRequest { number, kind, from, to, slot, .. } = *request;
        match kind {
            RequestKind::Add => {
                let count = self.adds.entry((from.node, to)).or_default();
                let of = if is_success { &mut count.certain } else { &mut count.possible };
                *of += 1;
            }
            RequestKind::Send => {
                if let Some((_, fate)) = self.messages.get_mut(&number) {
                    fate.is_sent = is_success;
                }
            }
            RequestKind::Write if !is_success => {
                self.unsure.insert((from.node, to, slot));
            }
            RequestKind::Write | RequestKind::Read => {}
        }
    }

    /// An addition of `from` at `to` found this value there.
    ///
    /// # Errors
    /// Another one had found it.
    pub fn add(&mut self, from: usize, to: NodeLife, value: u64) -> Result<(), String> {
        let count = self.adds.entry((from, to)).or_default();
        count.most = count.most.max(Some(value));
        if self.values.insert((from, to, value)) {
            return Ok(());
        }
        Err(format!("two additions of node {from} found {value} at node {}", to.node))
    }

    /// Message `number` of `len` bytes was received by `by`.
    ///
    /// # Errors
    /// It was received before, is for another node, or has another length.
    pub fn receive(&mut self, by: NodeLife, number: u64, len: usize) -> Result<(), String> {
        let Some((to, fate)) = self.messages.get_mut(&number) else {
            return Err(format!("node {} received message {number}, which nobody sent", by.node));
        };
        if *to != by {
            return Err(format!("node {} received message {number} for {to:?}", by.node));
        }
        if fate.len != len {
            let sent = fate.len;
            return Err(format!(
                "node {} received {len} bytes of message {number}, not {sent}",
                by.node
            ));
        }
        if std::mem::replace(&mut fate.is_received, true) {
            return Err(format!("node {} received message {number} twice", by.node));
        }
        Ok(())
    }

    /// Whether no late write comes into slot `slot` of `from` at `to`.
    #[must_use]
    pub fn is_sure(&self, request: &PostedRequest) -> bool {
        !self.unsure.contains(&(request.from.node, request.to, request.slot))
    }

    /// The oldest request that is outstanding.
    #[must_use]
    pub fn oldest(&self) -> Option<PostedRequest> {
        self.outstanding.values().next().copied()
    }

    /// Requests whose node died.
    #[must_use]
    pub const fn died(&self) -> u64 {
        self.died
    }

    /// Checks the end of a run: messages that ended well were received, as far as their receiver's life is that of now.
    ///
    /// # Errors
    /// A message was lost.
    pub fn check_messages(&self, lives: &[NodeLife]) -> Result<(), String> {
        let lost = self.messages.iter().find(|(_, (to, fate))| {
            fate.is_sent && !fate.is_received && lives.get(to.node) == Some(to)
        });
        lost.map_or(Ok(()), |(number, (to, _))| {
            Err(format!("message {number} for node {} ended well, and was not received", to.node))
        })
    }

    /// Checks what the additions of `from` made of its word at `to`.
    ///
    /// # Errors
    /// One was done twice, or not.
    pub fn check_sum(&self, from: usize, to: NodeLife, sum: u64) -> Result<(), String> {
        let AddCount { certain, possible, most } =
            self.adds.get(&(from, to)).copied().unwrap_or_default();
        let to = to.node;
        if let Some(most) = most.filter(|most| *most >= sum) {
            return Err(format!(
                "an addition of node {from} found {most} at node {to}, where the sum is {sum}"
            ));
        }
        if (certain..=certain + possible).contains(&sum) {
            return Ok(());
        }
        Err(format!(
            "{certain} additions of node {from} at node {to} ended well, {possible} otherwise; the sum is {sum}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: NodeLife = NodeLife { node: 0, life: 0 };
    const B: NodeLife = NodeLife { node: 1, life: 0 };
    const B_AGAIN: NodeLife = NodeLife { node: 1, life: 1 };

    fn request(number: u64, kind: RequestKind) -> PostedRequest {
        PostedRequest { number, kind, from: A, to: B, slot: 3, len: 8, offset: 0, at: 0 }
    }

    fn book(kinds: &[RequestKind]) -> RequestBook {
        let mut book = RequestBook::default();
        (1..).zip(kinds).for_each(|(number, kind)| book.post(request(number, *kind)));
        book
    }

    #[track_caller]
    fn refused<T: std::fmt::Debug>(result: Result<T, String>, words: &str) {
        let error = result.expect_err("refused");
        assert!(error.contains(words), "{error}");
    }

    #[test]
    fn a_request_completes_once_at_its_node() {
        let mut book = book(&[RequestKind::Write, RequestKind::Read]);
        assert_eq!(book.complete(A, 2, true), Ok(request(2, RequestKind::Read)));
        refused(book.complete(A, 2, true), "request 2 of node 0 completed, and is not outstanding");
        refused(book.complete(A, 9, true), "request 9");
        assert_eq!(book.oldest(), Some(request(1, RequestKind::Write)));
        refused(book.complete(B, 1, true), "request 1 of node 1");
    }

    #[test]
    fn requests_of_the_dead_end_with_it() {
        let mut book = book(&[RequestKind::Add, RequestKind::Send, RequestKind::Write]);
        book.post(PostedRequest { from: B, to: A, ..request(4, RequestKind::Read) });
        assert!(book.is_sure(&request(3, RequestKind::Write)));
        book.die(A);
        assert_eq!((book.died(), book.oldest().map(|request| request.number)), (3, Some(4)));
        assert!(!book.is_sure(&request(3, RequestKind::Write)));
        // What they did is open.
        assert_eq!(book.check_messages(&[A, B]), Ok(()));
        assert_eq!(book.receive(B, 2, 8), Ok(()));
        assert_eq!((book.check_sum(0, B, 0), book.check_sum(0, B, 1)), (Ok(()), Ok(())));
        refused(book.check_sum(0, B, 2), "0 additions of node 0 at node 1 ended well, 1 otherwise");
    }

    #[test]
    fn a_message_that_ended_well_comes_once() {
        let mut book = book(&[RequestKind::Send, RequestKind::Send]);
        book.complete(A, 1, true).expect("outstanding");
        book.complete(A, 2, false).expect("outstanding");
        refused(book.check_messages(&[A, B]), "message 1 for node 1 ended well");
        assert_eq!(book.check_messages(&[A, B_AGAIN]), Ok(()), "it died with its receiver");
        refused(book.receive(A, 1, 8), "node 0 received message 1 for");
        refused(book.receive(B_AGAIN, 1, 8), "node 1 received message 1 for");
        refused(book.receive(B, 7, 8), "which nobody sent");
        refused(book.receive(B, 1, 7), "node 1 received 7 bytes of message 1, not 8");
        assert_eq!(book.receive(B, 1, 8), Ok(()));
        refused(book.receive(B, 1, 8), "received message 1 twice");
        assert_eq!(book.check_messages(&[A, B]), Ok(()));
    }

    #[test]
    fn additions_count_as_often_as_they_ended_well() {
        let mut book = book(&[RequestKind::Add, RequestKind::Add, RequestKind::Add]);
        (1..=2).for_each(|number| drop(book.complete(A, number, true)));
        book.complete(A, 3, false).expect("outstanding");
        for (sum, is_right) in [(1, false), (2, true), (3, true), (4, false)] {
            assert_eq!(book.check_sum(0, B, sum).is_ok(), is_right, "{sum}");
        }
        refused(book.check_sum(0, B_AGAIN, 1), "0 additions");
        assert_eq!(
            (book.add(0, B, 0), book.add(0, B, 2), book.add(0, B_AGAIN, 0)),
            (Ok(()), Ok(()), Ok(()))
        );
        refused(book.add(0, B, 2), "two additions of node 0 found 2 at node 1");
        assert_eq!(book.check_sum(0, B, 3), Ok(()));
        refused(book.check_sum(0, B, 2), "found 2 at node 1, where the sum is 2");
    }
}
