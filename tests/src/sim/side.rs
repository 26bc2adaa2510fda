//! The model of a node: the requests of its jetties, and its traffic to each other node.
//!
//! *Owns*: slots, receives, phases. *Takes*: nothing. *Gives*: state for the rooms that post and
//! judge. *Must not*: act.

use super::area::Area;
use super::book::{Fate, Line, Requests};
use super::node::{Lane, Program, SLOTS};

const DATAGRAMS: usize = Lane::Datagrams as usize;

/// How far a path to a target can be relied on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// Everything posted has its effect.
    Open,
    /// What was posted broke down: it may still have a part of its effect.
    Broken,
    /// Message `.0` follows what broke down: once it is done, nothing before it moves any more.
    Marked(u64),
    /// The target is dead.
    Gone,
}

/// From one jetty to one node.
#[derive(Clone, Debug)]
pub(super) struct Traffic {
    pub(super) area: Area,
    pub(super) line: Line,
    pub(super) phase: Phase,
    /// How requests for the victim end.
    pub(super) victim: Fate,
    /// Everything up to this request is placed.
    pub(super) placed: u64,
}

impl Default for Traffic {
    fn default() -> Self {
        let (area, line) = (Area::default(), Line::default());
        Self { area, line, phase: Phase::Open, victim: Fate::Success, placed: 0 }
    }
}

/// What state a jetty was brought to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Gait {
    #[default]
    Ready,
    Suspended,
    /// Flushing; the last completion is awaited.
    Error,
    Flushed,
    Reset,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Side {
    pub(super) requests: Requests,
    /// To each node; its own is never used.
    pub(super) traffic: Vec<Traffic>,
    pub(super) gait: Gait,
    /// Its target died: what it does until it is renewed does not count.
    pub(super) is_lost: bool,
}

impl Side {
    /// Everything outstanding may end with any status; where it had an effect, a mark must follow.
    pub(super) fn break_down(&mut self) {
        self.requests.doom(None);
        for traffic in &mut self.traffic {
            traffic.line.loosen();
            if traffic.phase != Phase::Gone {
                traffic.phase = Phase::Broken;
            }
        }
    }

    fn is_done(&self) -> bool {
        self.requests.is_empty() && self.traffic.iter().all(|traffic| traffic.line.len() == 0)
    }
}

/// Events of one JFC.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Events {
    /// One event may come.
    pub(super) armed: bool,
    /// It must have come by then.
    pub(super) due: Option<u64>,
}

#[derive(Debug)]
pub(super) struct Node {
    /// `None` while it is dead.
    pub(super) program: Option<Program>,
    pub(super) sides: Vec<Side>,
    pub(super) free: Vec<usize>,
    /// Receive slots that are not posted, by [`Lane`].
    pub(super) unposted: Vec<Vec<usize>>,
    /// Requests still to be posted.
    pub(super) left: u32,
    pub(super) events: [Events; 2],
    /// Posts no receive before.
    pub(super) dry_until: u64,
    /// When a dead one starts again.
    pub(super) back_at: u64,
}

impl Node {
    /// A node that begins with `left` requests to post, one of `count` nodes.
    pub(super) fn new(program: Program, count: usize, left: u32) -> Self {
        let side = || Side { traffic: vec![Traffic::default(); count], ..Side::default() };
        let mut node = Self {
            program: None,
            sides: Lane::ALL.iter().map(|_| side()).collect(),
            free: Vec::new(),
            unposted: Vec::new(),
            left,
            events: [Events::default(); 2],
            dry_until: 0,
            back_at: 0,
        };
        node.begin(program);
        node
    }

    /// The datagrams to `to`.
    pub(super) fn take_datagrams(&mut self, to: usize) -> Line {
        std::mem::take(&mut self.sides[DATAGRAMS].traffic[to].line)
    }

    pub(super) fn begin(&mut self, program: Program) {
        self.program = Some(program);
        self.free = (0..SLOTS).collect();
        self.unposted = Lane::ALL.iter().map(|lane| lane.receives().collect()).collect();
        self.events = [Events::default(); 2];
        for side in &mut self.sides {
            (side.requests, side.gait, side.is_lost) = (Requests::default(), Gait::Ready, false);
        }
    }

    /// Whether it has nothing more to do and to wait for.
    pub(super) fn is_done(&self) -> bool {
        let reliable = &self.sides[..Lane::Datagrams as usize];
        let datagrams = &self.sides[Lane::Datagrams as usize];
        self.program.is_some()
            && self.left == 0
            && datagrams.requests.is_empty()
            && reliable.iter().all(Side::is_done)
    }
}

#[cfg(test)]
mod tests {
    use urma_core::CrOpcode;

    use super::super::book::{Ended, Message, Pending};
    use super::super::idle::{in_world, pending, plan};
    use super::*;

    fn message() -> Message {
        Message { number: 1, opcode: CrOpcode::Send, bytes: vec![1], len: 1, imm: 0 }
    }

    /// Whether a node that has nothing to do is done after `change`.
    fn is_done(change: impl FnOnce(&mut Node)) -> bool {
        in_world(&plan(), |run| {
            change(&mut run.nodes[0]);
            run.nodes[0].is_done()
        })
    }

    #[test]
    fn a_node_is_not_done_while_anything_is_due() {
        let [main, datagrams] = [Lane::Main, Lane::Datagrams].map(|lane| lane as usize);
        assert!(is_done(|_| ()));
        assert!(!is_done(|node| node.left = 1));
        assert!(!is_done(|node| drop(node.program.take())));
        assert!(!is_done(|node| node.sides[main].requests.push(pending(1))));
        assert!(!is_done(|node| node.sides[datagrams].requests.push(pending(1))));
        assert!(!is_done(|node| node.sides[main].traffic[1].line.extend([message()])));
        // Datagrams may be lost.
        assert!(is_done(|node| node.sides[datagrams].traffic[1].line.extend([message()])));
    }

    #[test]
    fn only_what_broke_down_may_end_in_any_way() {
        let mut side = Side { traffic: vec![Traffic::default(); 3], ..Side::default() };
        side.requests.push(pending(1));
        side.traffic[1].line.extend([message()]);
        side.traffic[2].phase = Phase::Gone;
        side.break_down();
        side.requests.push(Pending { to: 2, ..pending(2) });
        side.requests.push(pending(3));
        side.requests.doom(Some(2));
        let phases: Vec<_> = side.traffic.iter().map(|traffic| traffic.phase).collect();
        assert_eq!(phases, [Phase::Broken, Phase::Broken, Phase::Gone]);
        assert_eq!(side.traffic[1].line.len(), 0, "none must come any more");
        for (number, doomed) in [(1, true), (2, true), (3, false)] {
            let done = side.requests.complete(number, Ended::Well).expect("in order");
            assert_eq!(done.last().map(|pending| pending.doomed), Some(doomed), "{number}");
        }
    }
}
