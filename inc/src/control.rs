//! What a controller says to the switches and hosts of a communicator, and what they say to it.
//!
//! A tree is installed in two steps. [`SwitchCommand::Install`] gives each switch its part; it answers with the ends of
//! its edges. [`SwitchCommand::Start`] gives it the other ends, which may be used from then on. A host tells its end when
//! it joins, and learns the switch's by [`HostCommand::Start`].
//!
//! When a switch or an edge of the tree is lost, [`HostCommand::Prepare`] ends the epoch. Each host answers with what it
//! has ([`ChunkReport`]), and the controller makes a [`ResumePlan`] of all answers for the next tree.

use std::net::SocketAddr;

use crate::edge::{EdgeAttributes, EdgeEnd};
use crate::port::{EdgeTotals, StrayCounts};
use crate::slots::{Child, ChunkConflict, SwitchCounts, To};
use crate::wire::{AbortReason, Collective, Rank, Seq, TreeEpoch};

/// Number of a communicator, from its controller; no other one ever has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CommunicatorId(pub u64);

/// A communicator in one life of its tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TreeLife {
    /// The communicator that lives.
    pub communicator: CommunicatorId,
    /// Number of the life.
    pub epoch: TreeEpoch,
}

/// The part of a tree that one switch gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreePart {
    /// How messages travel on all edges.
    pub attributes: EdgeAttributes,
    /// Whose quota its memory counts to.
    pub tenant: u32,
    /// The children, in the order of the lowest rank below each, and the address of this switch that each sends to.
    pub children: Vec<(Child, SocketAddr)>,
    /// The address of this switch that the parent sends to; `None`: this is the root.
    pub parent: Option<SocketAddr>,
}

/// The ends of a switch's edges: its own, or the other ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EdgeEnds {
    /// Of the edges to the children, in their order.
    pub children: Vec<EdgeEnd>,
    /// Of the edge to the parent; `None`: at the root.
    pub parent: Option<EdgeEnd>,
}

/// What a controller says to a switch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SwitchCommand {
    /// Reserve memory and QPNs for a part of a tree. The same communicator's older life, if it is there, is dropped.
    /// Answered by [`SwitchReport::Installed`] or [`SwitchReport::Refused`].
    Install(TreeLife, TreePart),
    /// The tree is installed everywhere, and begins with the chunk `first`; `ends` are the other ends of all edges.
    Start(TreeLife, Seq, EdgeEnds),
    /// The communicator ends: children and parent receive the reason.
    Abort(CommunicatorId, AbortReason),
    /// Give back memory and QPNs.
    Remove(CommunicatorId),
}

impl SwitchCommand {
    /// The communicator that it is about.
    #[must_use]
    pub fn communicator(&self) -> CommunicatorId {
        match self {
            Self::Install(life, _) | Self::Start(life, ..) => life.communicator,
            Self::Abort(communicator, _) | Self::Remove(communicator) => *communicator,
        }
    }
}

/// What a switch says to its controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SwitchReport {
    /// A part is installed; the ends of its edges at this switch.
    Installed(TreeLife, EdgeEnds),
    /// A part cannot be installed.
    Refused(TreeLife, InstallError),
    /// An edge is dead.
    EdgeDead(TreeLife, To),
    /// The communicator was aborted at this switch.
    Aborted(TreeLife, AbortReason),
    /// Two children contradict each other.
    Contradiction(TreeLife, ChunkConflict),
    /// What a communicator did at this switch since it was first installed there. Sent now and then, for metrics.
    Counts(CommunicatorId, Box<PartCounts>),
    /// What was refused and is no communicator's. Sent now and then, for metrics.
    Strays(StrayCounts),
}

/// What a communicator did at a switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PartCounts {
    /// What happened in its slots.
    pub slots: SwitchCounts,
    /// What happened on its edges.
    pub edges: EdgeTotals,
    /// Slots that are neither free nor done.
    pub slots_in_use: u64,
}

impl SwitchReport {
    /// The communicator that it is about, if it is about one.
    #[must_use]
    pub fn communicator(&self) -> Option<CommunicatorId> {
        Some(match self {
            Self::Installed(life, _)
            | Self::Refused(life, _)
            | Self::EdgeDead(life, _)
            | Self::Aborted(life, _)
            | Self::Contradiction(life, _) => life.communicator,
            Self::Counts(communicator, ..) => *communicator,
            Self::Strays(_) => return None,
        })
    }
}

/// Why a part of a tree cannot be installed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InstallError {
    /// The memory of the switch, or the tenant's part of it.
    #[error("{needed} bytes of slots are needed, {free} are free")]
    Memory {
        /// Bytes that the part takes.
        needed: u64,
        /// Bytes that are free.
        free: u64,
    },
    /// The number of communicators.
    #[error("the switch has {0} communicators, as many as it may have")]
    Communicators(usize),
    /// The part contradicts itself.
    #[error("{0}")]
    Invalid(String),
}

/// What a controller says to a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostCommand {
    /// A tree begins, or it is said why there is none.
    Start(TreeLife, TreeStart),
    /// The epoch is over: refuse its messages, and answer with [`HostReport::Chunks`] for the epoch `epoch`.
    Prepare(TreeLife),
    /// The communicator ends; the text says why, and names who caused it.
    Abort(CommunicatorId, AbortReason, String),
    /// For the switch in the host's own program, which reduces where no other one can be had.
    Switch(SwitchCommand),
}

/// How a life of a tree begins for a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeStart {
    /// The switch's end of the host's edge; `None`: there is no tree, and operations wait for one.
    pub parent: Option<EdgeEnd>,
    /// Why no switch of the topology reduces; `None`: they do.
    pub without: Option<String>,
    /// What is done with the chunks of earlier lives.
    pub plan: ResumePlan,
}

/// What is done with the chunks that an earlier life did not bring to all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResumePlan {
    /// The first chunk of the new life: the least that some rank has no answer of.
    pub first: Seq,
    /// For the chunks from `first` on: the rank that broadcasts the result, as it has it; `None`: all contribute again. All
    /// contribute to the chunks after it.
    pub owners: Vec<Option<Rank>>,
}

/// What a host says to its controller about a communicator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostReport {
    /// What it has, and the end of its edge in the next life.
    Chunks(TreeLife, ChunkReport, EdgeEnd),
    /// Its edge to the switch is dead.
    EdgeDead(TreeLife),
    /// The switch aborted it; what it was doing at that time.
    Aborted(TreeLife, AbortReason, Option<CurrentOperation>),
    /// Of the switch in its own program.
    Switch(SwitchReport),
}

impl HostReport {
    /// The communicator that it is about, if it is about one.
    #[must_use]
    pub fn communicator(&self) -> Option<CommunicatorId> {
        match self {
            Self::Chunks(life, ..) | Self::EdgeDead(life) | Self::Aborted(life, ..) => {
                Some(life.communicator)
            }
            Self::Switch(report) => report.communicator(),
        }
    }
}

/// What a rank has of the chunks of the last life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkReport {
    /// The least chunk without an answer.
    pub oldest: Seq,
    /// Of the 2W chunks from `oldest` - W on: whether the rank has the chunk's result and can give it to others.
    pub has_result: Vec<bool>,
}

/// The operation that a rank is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CurrentOperation {
    /// Its number modulo 2^16.
    pub op_id: u16,
    /// What it does with vectors.
    pub collective: Collective,
    /// Elements in all its chunks.
    pub elements: u64,
}

/// Reports of which no plan can be made: a rank lies, or its program is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// There is no report.
    #[error("no rank reported what it has")]
    Empty,
    /// A map of another window.
    #[error("rank {} reports {found} chunks, {expected} were asked for", rank.0)]
    Map {
        /// Rank that reported it.
        rank: Rank,
        /// Chunks of the map.
        found: usize,
        /// Twice the window of chunks.
        expected: usize,
    },
    /// No two ranks of one communicator can be so far apart.
    #[error("rank {} waits for chunk {}, another one for {}: that is more than a window", rank.0, oldest.0, first.0)]
    Apart {
        /// Rank that is ahead.
        rank: Rank,
        /// The chunk that it waits for.
        oldest: Seq,
        /// The chunk that the last one waits for.
        first: Seq,
    },
}

impl ChunkReport {
    /// Whether its map is that of a communicator with `window` chunks.
    ///
    /// # Errors
    /// [`PlanError::Map`].
    pub fn check(&self, window: u32, rank: Rank) -> Result<(), PlanError> {
        let (found, expected) = (self.has_result.len(), 2 * window as usize);
        if found == expected { Ok(()) } else { Err(PlanError::Map { rank, found, expected }) }
    }
}

impl ResumePlan {
    /// Makes the plan of what all ranks of a communicator with `window` chunks have.
    ///
    /// # Errors
    /// [`PlanError`].
    pub fn of(window: u32, reports: &[(Rank, ChunkReport)]) -> Result<Self, PlanError> {
        let oldest = reports.iter().map(|(_, report)| report.oldest);
        let first = oldest.reduce(Seq::min_of).ok_or(PlanError::Empty)?;
        let mut owners: Vec<Option<Rank>> = vec![None; 2 * window as usize];
        for (rank, report) in reports {
            report.check(window, *rank)?;
            let (rank, ChunkReport { oldest, has_result }) = (*rank, report);
            if oldest.since(first) > window {
                return Err(PlanError::Apart { rank, oldest: *oldest, first });
            }
            // Its map begins a window before the chunk that it waits for.
            let skip = first.since(oldest.back(window)) as usize;
            for (owner, _) in owners.iter_mut().zip(&has_result[skip..]).filter(|(_, has)| **has) {
                *owner = Some(owner.map_or(rank, |other| other.min(rank)));
            }
        }
        let used = owners.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        owners.truncate(used);
        Ok(Self { first, owners })
    }
}
