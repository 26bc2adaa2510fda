//! Modes, orders, states and configurations of queues; paths to other nodes, and what names a queue there.
//!
//! *Owns*: plain values that cross the provider-ops traits. *Must not*: depend on handles; a
//! provider finds its objects by their numbers.

use crate::{Eid, JettyId, Token, TokenPolicy};

/// Transport mode; numbers of `urma_transport_mode_t` (UMDK release 26.06).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum TransportMode {
    /// Reliable message: one queue, many targets.
    Rm = 1,
    /// Reliable connection: one queue, one target.
    Rc = 2,
    /// Unreliable message: SEND only, unacknowledged.
    Um = 4,
}

/// Order between transactions; numbers of `urma_order_type_t` (UMDK release 26.06).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum OrderType {
    /// The usual one of the transport mode: OI for RM, OL for RC, NO for UM.
    #[default]
    Default = 0,
    /// Ordered by the target; RC only.
    Ot = 1,
    /// Ordered by the initiator; RM only.
    Oi = 2,
    /// Ordered by the lower layer; RC only.
    Ol = 3,
    /// No order; not for RM.
    No = 4,
}

/// State of a queue; numbers of `urma_jetty_state_t` (UMDK release 26.06).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum JettyState {
    /// Fresh, or reset: nothing is started.
    Reset = 0,
    /// Executes the requests that are posted.
    Ready = 1,
    /// Stopped by an error; may be resumed. Not for JFRs.
    Suspended = 2,
    /// Stopped for good: every request is flushed.
    Error = 3,
}

bitflags::bitflags! {
    /// Flags of a JFC.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct JfcFlags: u32 {
        /// Small receive payload may come in the completion itself.
        const INLINE = 1 << 1;
    }

    /// Flags of a send queue.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct SendFlags: u32 {
        /// An error suspends the queue instead of moving it to the error state.
        const ERROR_SUSPEND = 1 << 1;
        /// Requests may complete in another order than posted.
        const OUTORDER_COMP = 1 << 2;
    }
}

/// What a JFC shall be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JfcCfg {
    /// Completions it holds, 1 to `max_jfc_depth`.
    pub depth: u32,
    /// Options of the JFC.
    pub flags: JfcFlags,
    /// Which completion event vector, below `ceq_cnt`.
    pub ceqn: u32,
    /// Number that the caller chooses; the library does not read it.
    pub user_ctx: u64,
}

impl JfcCfg {
    /// No flags, event vector 0.
    #[must_use]
    pub const fn new(depth: u32) -> Self {
        Self { depth, flags: JfcFlags::empty(), ceqn: 0, user_ctx: 0 }
    }
}

/// Kind of a queue object.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum QueueKind {
    /// Jetty for send: sends only.
    Jfs,
    /// Jetty for receive: receives only.
    Jfr,
    /// Send, and receive through its own or a shared JFR.
    Jetty,
}

/// The send half of a queue, for a provider.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SendCfg {
    /// Number of the JFC for its completions.
    pub jfc: u32,
    /// Most requests that the queue holds at a time.
    pub depth: u32,
    /// Local SGEs of a request.
    pub max_sge: u8,
    /// Remote SGEs of a request.
    pub max_rsge: u8,
    /// Inline bytes of a request.
    pub max_inline: u32,
    /// 0 (lowest) to 15.
    pub priority: u8,
    /// How often a request is repeated when the receiver is not ready, 0 to 7.
    pub rnr_retry: u8,
    /// How long an acknowledgement may take: 4.096 us << value, 0 to 31.
    pub err_timeout: u8,
    /// Whether an error suspends the queue, and whether requests may complete out of order.
    pub flags: SendFlags,
}

/// The receive half of a queue, for a provider.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecvCfg {
    /// Number of the JFC for its completions.
    pub jfc: u32,
    /// Most requests that the queue holds at a time.
    pub depth: u32,
    /// SGEs of a request.
    pub max_sge: u8,
    /// How long a sender waits after "receiver not ready"; code 0 to 31.
    pub min_rnr_timer: u8,
}

/// The JFR that a jetty receives through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SharedRecv {
    /// Number of the JFR on its device.
    pub jfr: u32,
    /// Number of the JFC for completions of messages to this jetty.
    pub jfc: u32,
}

/// What a queue shall be, as a provider gets it: checked, defaults filled in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueCfg {
    /// Kind of the queue to create.
    pub kind: QueueKind,
    /// The wanted id, 20 bits; 0 = any.
    pub id: u32,
    /// Transport mode of both halves.
    pub mode: TransportMode,
    /// Order type; never `Default`.
    pub order: OrderType,
    /// What senders must show; `None` for a send-only queue and under the policy NONE.
    pub token: Option<Token>,
    /// The send half: of JFS and jetty.
    pub send: Option<SendCfg>,
    /// The own receive half: of JFR and of a jetty without a shared JFR.
    pub recv: Option<RecvCfg>,
    /// The shared receive half: of a jetty with a shared JFR.
    pub shared: Option<SharedRecv>,
    /// The jetty group it joins.
    pub group: Option<u32>,
    /// The caller's own; comes back as `Completion::queue_ctx`.
    pub user_ctx: u64,
}

/// State and fill of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueStatus {
    /// State to change to.
    pub state: JettyState,
    /// Limit of receives below which an event comes; 0 = off.
    pub rx_threshold: u32,
    /// Send requests posted and not retired.
    pub send_pending: u32,
    /// Receives posted and not consumed.
    pub recv_pending: u32,
}

/// What a JFS, or the send half of a jetty, shall be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JfsCfg {
    /// Transport mode of the queue; it decides which targets it may name.
    pub mode: TransportMode,
    /// Order type; RM has OI, RC has OT, OL or NO, UM has NO.
    pub order: OrderType,
    /// Requests it holds, 1 to `max_jfs_depth`.
    pub depth: u32,
    /// Local SGEs of a request, at most `max_jfs_sge`.
    pub max_sge: u8,
    /// Remote SGEs of a request, at most `max_jfs_rsge`.
    pub max_rsge: u8,
    /// Inline bytes of a request, at most `max_jfs_inline`.
    pub max_inline: u32,
    /// 0 (lowest) to 15.
    pub priority: u8,
    /// How often a request is repeated when the receiver is not ready, 0 to 7.
    pub rnr_retry: u8,
    /// How long an acknowledgement may take: 4.096 us << value, 0 to 31.
    pub err_timeout: u8,
    /// Whether an error suspends the queue, and whether requests may complete out of order.
    pub flags: SendFlags,
    /// Number that the caller chooses; the library does not read it.
    pub user_ctx: u64,
}

impl JfsCfg {
    /// One SGE, no inline data, typical retries and timeout (`URMA_TYPICAL_*`, UMDK release
    /// 26.06).
    #[must_use]
    pub const fn new(mode: TransportMode, depth: u32) -> Self {
        Self {
            mode,
            order: OrderType::Default,
            depth,
            max_sge: 1,
            max_rsge: 1,
            max_inline: 0,
            priority: 0,
            rnr_retry: 7,
            err_timeout: 17,
            flags: SendFlags::empty(),
            user_ctx: 0,
        }
    }
}

/// What a JFR, or the own receive half of a jetty, shall be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JfrCfg {
    /// The wanted id, 20 bits; 0 = any (1024 and up). 1 to 1023 are for well-known queues.
    pub id: u32,
    /// Transport mode of the queues that may send here.
    pub mode: TransportMode,
    /// Order type of the messages received here; it must fit the mode.
    pub order: OrderType,
    /// Requests it holds, 1 to `max_jfr_depth`.
    pub depth: u32,
    /// SGEs of a request, at most `max_jfr_sge`.
    pub max_sge: u8,
    /// How long a sender waits after "receiver not ready"; code 0 to 31.
    pub min_rnr_timer: u8,
    /// What senders must show.
    pub policy: TokenPolicy,
    /// Number that the caller chooses; the library does not read it.
    pub user_ctx: u64,
}

impl JfrCfg {
    /// Any id, one SGE, no token, the typical timer (`URMA_TYPICAL_MIN_RNR_TIMER`, UMDK release
    /// 26.06).
    #[must_use]
    pub const fn new(mode: TransportMode, depth: u32) -> Self {
        Self {
            id: 0,
            mode,
            order: OrderType::Default,
            depth,
            max_sge: 1,
            min_rnr_timer: 12,
            policy: TokenPolicy::None,
            user_ctx: 0,
        }
    }
}

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
