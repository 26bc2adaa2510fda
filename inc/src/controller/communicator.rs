//! A communicator as its controller knows it: how far it is, and the switches of its tree.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;

use super::plan::SeenContradiction;
use super::{CallId, GroupId};
use crate::control::{ChunkReport, CommunicatorId, CurrentOperation, EdgeEnds, TreeLife};
use crate::edge::{EdgeAttributes, EdgeEnd};
use crate::slots::{Child, IncTime};
use crate::wire::{AbortReason, Rank, TreeEpoch};

/// A communicator, as lists show it.
#[derive(Debug, Clone)]
pub struct CommunicatorState {
    /// Number of the communicator.
    pub id: CommunicatorId,
    /// The group that it belongs to.
    pub group: GroupId,
    /// Communicators of the group before it.
    pub ordinal: u64,
    /// How messages travel on its edges.
    pub attributes: EdgeAttributes,
    /// Life of its tree.
    pub epoch: TreeEpoch,
    /// How far it is.
    pub phase: TreePhase,
    /// The hosts' ends of their edges.
    pub ends: BTreeMap<Rank, EdgeEnd>,
    /// Its tree, the root first, each switch behind its parent; `None`: operations wait for one.
    pub tree: Option<Vec<PlacedSwitch>>,
    /// Why there is no tree of switches of the topology: members reduce in their own programs, or there is no tree.
    pub without: Option<String>,
    /// Calls to create it that wait for others.
    pub creators: BTreeMap<Rank, CallId>,
    /// Ranks that destroyed it, and their calls that wait for others.
    pub destroyed: BTreeMap<Rank, Vec<CallId>>,
    /// Ranks that did not destroy it are not waited for after this time.
    pub destroy_at: Option<IncTime>,
    /// Links over which an edge died, by the names of their ends, and until when they are not used.
    pub cut: BTreeMap<[String; 2], IncTime>,
    /// Switches that refused it.
    pub refused: BTreeSet<String>,
}

/// Where a switch of a tree runs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum SwitchHome {
    /// In the switch of this name in the topology.
    Node(String),
    /// In the program of this member.
    Member(Rank),
}

/// A switch in the tree of a communicator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacedSwitch {
    /// The program that it runs in.
    pub home: SwitchHome,
    /// Place of the parent in the tree, and the address of this switch that the parent sends to.
    pub parent: Option<(usize, SocketAddr)>,
    /// Its children, in the order of the lowest rank below each.
    pub children: Vec<PlacedChild>,
    /// Its ends of the edges; `None`: it has not installed its part yet.
    pub ends: Option<EdgeEnds>,
    /// Bytes that it takes there; reserved, if that is a switch of the topology.
    pub memory: u64,
}

/// A child of a switch in the tree of a communicator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacedChild {
    /// The ranks below it.
    pub child: Child,
    /// Its place in the tree, if it is a switch.
    pub switch: Option<usize>,
    /// Its name in the topology, or in words.
    pub name: String,
    /// The address of the switch above that it sends to.
    pub address: SocketAddr,
}

/// How far a communicator is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TreePhase {
    /// Calls of ranks are waited for, until this time.
    Gathering(IncTime),
    /// Switches install their parts, until this time.
    Installing(IncTime),
    /// Operations may run now.
    Ready,
    /// The epoch is over: hosts report what they have, and switches install the next tree.
    Draining {
        /// Hosts have reported until this time.
        deadline: IncTime,
        /// Switches have installed until this time.
        install_by: IncTime,
        /// Reports that came so far.
        reports: BTreeMap<Rank, ChunkReport>,
    },
    /// A switch or host aborted it; hosts report what they were doing.
    Aborting {
        /// They are waited for until this time.
        deadline: IncTime,
        /// Why it was aborted.
        reason: AbortReason,
        /// What they were doing.
        operations: BTreeMap<Rank, Option<CurrentOperation>>,
        /// What a switch saw.
        seen: Option<SeenContradiction>,
    },
    /// It is over; the text says why.
    Over(String),
}

impl CommunicatorState {
    /// When something is due, if nothing is reported before.
    pub(super) fn deadline(&self) -> Option<IncTime> {
        let own = match &self.phase {
            TreePhase::Gathering(deadline)
            | TreePhase::Installing(deadline)
            | TreePhase::Aborting { deadline, .. } => Some(*deadline),
            TreePhase::Draining { deadline, install_by, .. } => {
                Some(if self.is_installed() { *deadline } else { *install_by.min(deadline) })
            }
            TreePhase::Ready | TreePhase::Over(_) => None,
        };
        own.into_iter().chain(self.destroy_at).min()
    }

    pub(super) fn life(&self) -> TreeLife {
        TreeLife { communicator: self.id, epoch: self.epoch }
    }

    pub(super) fn is_installed(&self) -> bool {
        let tree = self.tree.as_ref();
        tree.is_none_or(|tree| tree.iter().all(|switch| switch.ends.is_some()))
    }

    pub(super) fn placed(&self, home: &SwitchHome) -> Option<usize> {
        self.tree.as_ref()?.iter().position(|switch| switch.home == *home)
    }

    /// The other ends of a switch's edges.
    pub(crate) fn other_ends(&self, tree: &[PlacedSwitch], at: usize) -> Option<EdgeEnds> {
        let of = |child: &PlacedChild| match (&child.child, child.switch) {
            (Child::Host(rank), _) => self.ends.get(rank).copied(),
            (Child::Switch(_), Some(below)) => tree[below].ends.as_ref()?.parent,
            (Child::Switch(_), None) => None,
        };
        let children = tree[at].children.iter().map(of).collect::<Option<_>>()?;
        let parent = match tree[at].parent {
            None => None,
            Some((above, _)) => {
                let place = tree[above].children.iter().position(|c| c.switch == Some(at))?;
                Some(*tree[above].ends.as_ref()?.children.get(place)?)
            }
        };
        Some(EdgeEnds { children, parent })
    }

    /// The leaf switch of a rank: its place in the tree, and the rank's among its children.
    pub(super) fn leaf(&self, rank: Rank) -> Option<(usize, usize)> {
        let mut switches = self.tree.as_ref()?.iter().enumerate();
        switches.find_map(|(at, switch)| {
            let is_its = |child: &PlacedChild| child.child == Child::Host(rank);
            Some((at, switch.children.iter().position(is_its)?))
        })
    }
}

impl fmt::Display for SwitchHome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(name) => f.write_str(name),
            Self::Member(rank) => write!(f, "rank {}", rank.0),
        }
    }
}

/// One that no rank has called for yet.
pub(super) fn new_communicator(
    id: CommunicatorId,
    group: GroupId,
    ordinal: u64,
    attributes: EdgeAttributes,
    phase: TreePhase,
) -> CommunicatorState {
    CommunicatorState {
        id,
        group,
        ordinal,
        attributes,
        epoch: TreeEpoch(1),
        phase,
        ends: BTreeMap::new(),
        tree: None,
        without: None,
        creators: BTreeMap::new(),
        destroyed: BTreeMap::new(),
        destroy_at: None,
        cut: BTreeMap::new(),
        refused: BTreeSet::new(),
    }
}
