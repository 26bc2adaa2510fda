//! Arguments that describe queues to the exchange, and the outcome of a connect.
//!
//! *Owns*: plain values. *Must not*: hold state.

use std::sync::Arc;

use udma_abi::{
    CmdStatus,
    cmd::{Mode, TpPath},
};
use urma_mem::Region;

use crate::context::function::FunctionId;
use crate::context::jfc::JfcPort;
use crate::engine::mail::Mail;

/// The sending side of a queue.
#[derive(Clone, Debug)]
pub(crate) struct SendSide {
    pub(crate) id: u32,
    /// Function that owns the queue.
    pub(crate) owner: FunctionId,
    pub(crate) is_jetty: bool,
    pub(crate) mode: Mode,
    pub(crate) mail: Arc<Mail>,
    pub(crate) rnr_retry: u8,
    /// Error timeout as a code: 4.096 us << n.
    pub(crate) err_timeout: u8,
    /// 0 to 15; 15 is the most urgent.
    pub(crate) priority: u8,
}

/// The receiving side of a queue with a ring of its own (JFR, or jetty).
#[derive(Clone, Debug)]
pub(crate) struct RecvSide {
    pub(crate) id: u32,
    /// Function that owns the queue.
    pub(crate) owner: FunctionId,
    pub(crate) is_jetty: bool,
    pub(crate) mode: Mode,
    pub(crate) cookie: u64,
    pub(crate) ring: Region,
    pub(crate) depth_log2: u8,
    pub(crate) max_sge: u8,
    pub(crate) record: Region,
    pub(crate) port: JfcPort,
    /// RNR timer as a code of the IB table.
    pub(crate) min_rnr_timer: u8,
    pub(crate) token: Option<u32>,
}

/// The receiving side of a jetty that uses a shared JFR.
#[derive(Clone, Debug)]
pub(crate) struct SharedSide {
    pub(crate) id: u32,
    pub(crate) mode: Mode,
    pub(crate) cookie: u64,
    pub(crate) jfr: u32,
    /// The jetty's own JFC; `None`: that of the JFR.
    pub(crate) port: Option<JfcPort>,
    pub(crate) token: Option<u32>,
}

/// Peer jetty of an RC jetty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BoundTo {
    /// Path to the peer.
    pub(crate) tpn: u32,
    /// Number of the peer's jetty.
    pub(crate) remote_id: u32,
    /// PSNs of the first packets sent and expected, for the standard opcodes.
    pub(crate) psns: Option<[u32; 2]>,
}

/// State of a connect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Connecting {
    /// Pending: ask again after the next step.
    Pending,
    /// Connected; the path counts one more user.
    Ready {
        /// Number of the TP, 24 bits.
        tpn: u32,
        /// What carries requests that are not executed directly.
        path: TpPath,
    },
    /// There is no path; the status says why.
    Failed(CmdStatus),
}
