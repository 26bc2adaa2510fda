//! Ways to other nodes, and what names a queue there.
//!
//! *Owns*: plain values that cross the provider-ops traits.

use crate::{Eid, JettyId, OrderType, Token, TransportMode};

/// What carries requests to a node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PathKind {
    /// The node itself.
    Local,
    /// Memory that both processes map.
    SameHost,
    /// Packets.
    Packets,
}

/// A way to a node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Path {
    /// Number of the transport path (TP), 24 bits; of this node's numbering.
    pub tpn: u32,
    /// The node.
    pub eid: Eid,
    /// What carries requests.
    pub kind: PathKind,
}

/// What a target is; numbers of `urma_target_type_t` (UMDK release 26.06).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum TargetKind {
    /// A receive queue of its own.
    Jfr = 0,
    /// A jetty.
    Jetty = 1,
    /// A jetty group: the target's device picks a member.
    Group = 2,
}

/// A queue of another node (or of this one), as a provider needs it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TargetId {
    /// What it is.
    pub kind: TargetKind,
    /// Its name.
    pub id: JettyId,
    /// How to get there.
    pub path: Path,
    /// The token to show, if it is guarded.
    pub token: Option<Token>,
    /// Its transport mode.
    pub mode: TransportMode,
    /// Its order type.
    pub order: OrderType,
}
