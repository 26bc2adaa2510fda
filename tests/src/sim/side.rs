//! What the model knows of a node: its jetties' requests, and its way to each other node.
//!
//! *Owns*: slots, receives, phases. *Takes*: nothing. *Gives*: state for the rooms that post and
//! judge. *Must not*: act.

use super::area::Area;
use super::book::{Fate, Line, Requests};
use super::node::{Lane, Program, SLOTS};

/// How far a way to a target can be relied on.
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
pub(super) struct Way {
    /// Memory there.
    pub(super) area: Area,
    /// Messages.
    pub(super) line: Line,
    /// Whether it works.
    pub(super) phase: Phase,
    /// How requests for the victim end.
    pub(super) victim: Fate,
    /// Everything up to this request is placed.
    pub(super) placed: u64,
}

impl Default for Way {
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
    /// Flushed.
    Flushed,
    Reset,
}

/// One jetty.
#[derive(Clone, Debug, Default)]
pub(super) struct Side {
    /// Under way.
    pub(super) requests: Requests,
    /// To each node; its own is never used.
    pub(super) ways: Vec<Way>,
    /// Its state.
    pub(super) gait: Gait,
    /// Its target died: what it does until it is renewed does not count.
    pub(super) is_lost: bool,
}

impl Side {
    /// Everything under way may end in any way; where it had an effect, a mark must follow.
    pub(super) fn break_down(&mut self) {
        self.requests.doom(None);
        for way in &mut self.ways {
            way.line.loosen();
            if way.phase != Phase::Gone {
                way.phase = Phase::Broken;
            }
        }
    }

    fn is_done(&self) -> bool {
        self.requests.is_empty() && self.ways.iter().all(|way| way.line.len() == 0)
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

/// One node.
#[derive(Debug)]
pub(super) struct Node {
    /// `None` while it is dead.
    pub(super) program: Option<Program>,
    /// By [`Lane`].
    pub(super) sides: Vec<Side>,
    /// Free request slots.
    pub(super) free: Vec<usize>,
    /// Receive slots that are not posted, by [`Lane`].
    pub(super) unposted: Vec<Vec<usize>>,
    /// Requests still to be posted.
    pub(super) left: u32,
    /// By JFC.
    pub(super) events: [Events; 2],
    /// Posts no receive before.
    pub(super) dry_until: u64,
    /// When a dead one starts again.
    pub(super) back_at: u64,
}

impl Node {
    /// A node that begins with `left` requests to post, one of `count` nodes.
    pub(super) fn new(program: Program, count: usize, left: u32) -> Self {
        let side = || Side { ways: vec![Way::default(); count], ..Side::default() };
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

    /// A new life.
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
