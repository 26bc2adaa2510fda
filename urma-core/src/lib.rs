//! URMA in Rust: the nouns, the API and its checks, and the traits a provider implements.
//!
//! *Owns*: the model (EID, segment, jetty, JFS, JFR, JFC, JFCE), the rules a caller must keep, and
//! the provider-ops traits. *Takes*: what the program asks for. *Gives*: requests that passed every
//! check, one dynamic call per batch, to a provider. *Must not*: depend on rings, registers,
//! devices; read a clock; start a thread.
//!
//! # What keeps what alive
//!
//! No order of dropping handles touches freed memory, and none needs `unsafe`:
//!
//! - **A request borrows for the call of its post only.** While it exists, the borrow checker keeps
//!   its segments and targets; afterwards they may go.
//! - **Memory is kept by count.** A [`Segment`] holds its [`urma_mem::Region`], and so do the driver
//!   and the device until it is withdrawn. [`Segment::unregister`], and dropping the segment,
//!   withdraw first: work in progress drains for at most 10 ms, then it is revoked. Only then the
//!   count goes down. Posted work that still names the segment completes with an error, or with the
//!   bytes that the device had read before; nothing is placed or read any more.
//! - **Bytes are never borrowed.** Peers change them at any moment, so a region gives copies and
//!   atomics, no slices. Memory of the caller's own enters by `Region::from_user` only, whose
//!   `unsafe` contract is that it outlives the region; for such memory call
//!   [`Segment::unregister`] and look at its answer, because a drop can only log a refusal.
//! - **Queues are kept by count.** A queue holds on to its JFC, a JFC to its JFCE, everything to its
//!   context: a handle that is dropped early only ends what the program could have done with it.
//!   Deleting in the wrong order is refused and gives the handle back ([`Refused`]). A queue that is
//!   dropped is deleted: every outstanding request gets its flushed completion first.
//! - **One poster, one poller.** Posting and polling take `&mut`; a queue may move to another
//!   thread, but two threads cannot have it at once.
//!
//! The programs under `tests/ui` show what does not compile, the tests under `tests/sound` what
//! happens to posted work when its handles go.
//!
//! # Completions
//!
//! | want | use |
//! |---|---|
//! | poll at full speed | [`Jfc::poll`] into a slice of your own |
//! | everything that is there | [`Jfc::drain`], an iterator |
//! | sleep until one comes | [`Completions::wait`] |
//! | sleep on many queues, or in a poll loop of your own | [`Jfce::wait`], [`Jfce::fd`] |
//! | await in an async program | `CompletionStream`, feature `stream` |
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

mod access;
mod again;
mod attr;
mod body;
mod check;
mod completion;
mod completions;
mod context;
mod eid;
mod event;
mod jetty;
mod jfc;
mod jfr;
mod jfs;
mod memory;
pub mod ops;
mod queue;
mod rules;
mod segment;
mod status;
#[cfg(feature = "stream")]
mod stream;
mod target;
mod token;
mod wr;

pub use access::{RemoteSegment, SegmentAccess, SegmentCfg};
pub use attr::{
    AtomicFeatures, DeviceAttr, DeviceCaps, DeviceFeatures, DeviceId, Guid, ModeSet, Mtu, PortAttr,
    PortState,
};
pub use body::SendHalf;
pub use completion::{
    Arm, Completion, CompletionFlags, CrOpcode, INLINE_PAYLOAD_MAX, InlinePayload, JettyId,
    RequestError,
};
pub use completions::Completions;
pub use context::{Context, Device};
pub use eid::{Eid, EidError, EidGroups, Uasid, Ubva};
pub use event::{AsyncEvent, AsyncKind, AsyncObject};
pub use jetty::{GroupCfg, Jetty, JettyCfg, JettyGroup, JettyRecv};
pub use jfc::{Drain, Jfc, Jfce};
pub use jfr::Jfr;
pub use jfs::Jfs;
pub use ops::HintPolicy;
pub use queue::{
    JettyState, JfcCfg, JfcFlags, JfrCfg, JfsCfg, OrderType, Path, PathKind, QueueCfg, QueueKind,
    QueueStatus, RecvCfg, SendCfg, SendFlags, SharedRecv, StartPsns, TargetId, TargetKind,
    TransportMode,
};
pub use segment::{ImportedSegment, LocalSge, Mapping, RemoteAddr, Segment, TokenIdLease};
pub use status::Reason;
pub use status::{CrStatus, Refused, Status, StatusKind};
#[cfg(feature = "stream")]
pub use stream::CompletionStream;
pub use target::{RemoteJetty, TargetJetty, TpType};
pub use token::{Token, TokenId, TokenPolicy};
pub use wr::{OneTransfer, PostError, PostReason, RecvWr, SendOp, SendWr, WrFlags};
