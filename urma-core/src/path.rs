//! Paths to other nodes, and what names a queue there.
//!
//! *Owns*: plain values that cross the provider-ops traits.

use crate::{Eid, JettyId, OrderType, Token, TransportMode};

/// What carries requests to a node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PathKind {
    /// The node's own memory and queues.
    Local,
    /// Memory that both processes map.
    SameHost,
    /// RoCEv2 packets over a TP.
    Packets,
}

/// A path to a node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Path {
    /// Number of the transport path (TP), 24 bits; of this node's numbering.
    pub tpn: u32,
    /// EID of the node at the other end.
    pub eid: Eid,
    /// What carries requests that are not done directly.
    pub kind: PathKind,
}

/// What a target is; numbers of `urma_target_type_t` (UMDK release 26.06).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum TargetKind {
    /// A receive queue of its own.
    Jfr = 0,
    /// A jetty, which receives through its own or a shared JFR.
    Jetty = 1,
    /// A jetty group: the target's device picks a member.
    Group = 2,
}

/// A queue of another node (or of this one), as a provider needs it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TargetId {
    /// Kind of the target: a jetty, a JFR or a group of jetties.
    pub kind: TargetKind,
    /// EID and number of the target.
    pub id: JettyId,
    /// How to get there.
    pub path: Path,
    /// The token to show, if it is guarded.
    pub token: Option<Token>,
    /// Transport mode of the target; that of the sending queue must be the same.
    pub mode: TransportMode,
    /// Order type that the target was created with.
    pub order: OrderType,
}

/// PSNs with which a connection of the standard opcodes starts (URMA_RC=roce), 24 bits each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StartPsns {
    /// Of the first packet sent.
    pub send: u32,
    /// Of the first packet expected: what the peer sends with.
    pub receive: u32,
}
