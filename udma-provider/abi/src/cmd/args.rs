//! Arguments of commands: kinds, modes, states, flags and the two large argument blocks.
//!
//! *Owns*: their numbers. *Takes / gives*: typed values; the words are in `codec.rs`.
//! *Must not*: judge combinations; that is the device's task.

/// Kind of a queue object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum CmdQueueKind {
    /// JFS: a queue that only sends.
    Jfs = 0,
    /// JFR: receives only; jetties may share it.
    Jfr = 1,
    /// Send, with a receive queue of its own or a shared JFR.
    Jetty = 2,
}

/// Transport mode; the numbers are those of `urma_transport_mode_t`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Mode {
    /// Reliable message: one queue, many targets, acknowledged.
    Rm = 1,
    /// Reliable connection: one queue, one target, acknowledged.
    Rc = 2,
    /// Unreliable message: SEND only, not acknowledged.
    Um = 4,
}

/// State of a queue; the numbers are those of `urma_jetty_state_t`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum QueueState {
    /// Takes nothing; what was never started ends as "unhandled".
    Reset = 0,
    /// Starts and completes requests.
    Ready = 1,
    /// Starts nothing new; what was started ends.
    Suspended = 2,
    /// Completes every request with a flush error.
    Error = 3,
}

impl CmdQueueKind {
    /// `None` for a code without a meaning.
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Jfs),
            1 => Some(Self::Jfr),
            2 => Some(Self::Jetty),
            _ => None,
        }
    }
}

impl Mode {
    /// `None` for a code without a meaning.
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Rm),
            2 => Some(Self::Rc),
            4 => Some(Self::Um),
            _ => None,
        }
    }
}

impl QueueState {
    /// `None` for a code without a meaning.
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Reset),
            1 => Some(Self::Ready),
            2 => Some(Self::Suspended),
            3 => Some(Self::Error),
            _ => None,
        }
    }
}

bitflags::bitflags! {
    /// Options of a queue.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct QueueFlags: u16 {
        /// An error suspends the queue instead of moving it to the error state.
        const ERROR_SUSPEND = 1;
        /// Completions need not come in posting order.
        const OUTORDER_COMP = 2;
        /// Senders must show `token_value` (policy PLAIN_TEXT).
        const TOKEN = 4;
    }

    /// Remote rights on a segment; the numbers are those of `URMA_ACCESS_*`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Access: u8 {
        /// Peers may not access the segment.
        const LOCAL_ONLY = 1;
        /// Peers may read the segment.
        const READ = 2;
        /// Peers may write; needs READ.
        const WRITE = 4;
        /// Peers may do atomics; needs READ and WRITE.
        const ATOMIC = 8;
    }
}

/// Arguments of the send ring of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SqArgs {
    /// DMA address of the ring of 64-byte blocks.
    pub base: u64,
    /// log2 of its blocks, at most 16.
    pub blocks_log2: u8,
    /// JFC of its completions.
    pub jfcn: u32,
    /// Tries after receiver-not-ready, 0 to 7.
    pub rnr_retry: u8,
    /// Error timeout: 4.096 us << n, n at most 31 (typical 17).
    pub err_timeout: u8,
    /// 0 lowest to 15 highest.
    pub priority: u8,
}

/// Arguments of the receive ring of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RqArgs {
    /// DMA address of the ring of entries ([`crate::rqe::stride`] bytes each).
    pub base: u64,
    /// log2 of its entries.
    pub depth_log2: u8,
    /// SGEs of an entry, 1 to 16.
    pub max_sge: u8,
    /// JFC of its completions.
    pub jfcn: u32,
    /// Least time until a sender tries again, code of the IB RNR timer table, 0 to 31.
    pub min_rnr_timer: u8,
    /// Value that senders show.
    pub token_value: u32,
}

/// Arguments of the command CREATE_QUEUE.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CreateQueue {
    /// Whether to create a JFS, a JFR or a jetty.
    pub kind: CmdQueueKind,
    /// Wanted id, or 0 for any.
    pub id: u32,
    /// Transport mode of both rings.
    pub mode: Mode,
    /// Whether errors suspend, completions come out of order, senders show a token.
    pub flags: QueueFlags,
    /// Comes back in every CQE.
    pub cookie: u64,
    /// DMA address of the doorbell record ([`crate::rqe::record`]).
    pub record: u64,
    /// Send ring; for JFS and jetty.
    pub sq: Option<SqArgs>,
    /// Receive ring; for JFR and jetty. With a shared JFR only its `token_value` counts.
    pub rq: Option<RqArgs>,
    /// A jetty's shared JFR instead of `rq`, or [`NONE`](super::NONE).
    pub shared_jfr: u32,
    /// A jetty's own receive JFC when its JFR is shared (else that of the JFR), or [`NONE`](super::NONE).
    pub recv_jfcn: u32,
    /// Group that a jetty joins, or [`NONE`](super::NONE).
    pub group: u32,
}

/// Arguments of the command REGISTER_SEG.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegisterSeg {
    /// Token id (tid << 8) from ALLOC_TID.
    pub token_id: u32,
    /// DMA address of the first byte.
    pub iova: u64,
    /// Address by which requests name the first byte (UBVA's va, or the user's IOVA).
    pub va: u64,
    /// Length of the segment in bytes.
    pub len: u64,
    /// What peers may do with the segment.
    pub access: Access,
    /// Requests must show this value; `None` is policy NONE.
    pub token_value: Option<u32>,
}
