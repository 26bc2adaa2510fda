//! URMA in Rust: the nouns, the API and its checks, and the traits a provider implements.
//!
//! *Owns*: the model (EID, segment, jetty, JFS, JFR, JFC, JFCE), the rules a caller must keep, and
//! the provider-ops traits. *Takes*: what the program asks for. *Gives*: requests that passed every
//! check, one dynamic call per batch, to a provider. *Must not*: know rings, registers, devices;
//! read a clock; start a thread.
#![forbid(unsafe_code)]

mod body;
mod check;
mod completion;
mod context;
mod device;
mod eid;
mod event;
mod group;
mod import;
mod jetty;
mod jfc;
mod jfce;
mod jfr;
mod jfs;
pub mod ops;
mod path;
mod queue;
mod refused;
mod registry;
mod rules;
mod segment;
mod status;
mod target;
mod token;
mod wr;

pub use completion::{
    Arm, Completion, CompletionFlags, CrOpcode, INLINE_PAYLOAD_MAX, InlinePayload, JettyId,
};
pub use context::Context;
pub use device::{
    AtomicFeatures, DeviceAttr, DeviceCaps, DeviceFeatures, DeviceId, Guid, ModeSet, Mtu, PortAttr,
    PortState,
};
pub use eid::{Eid, EidError, EidGroups, Uasid, Ubva};
pub use event::{AsyncEvent, AsyncKind};
pub use group::{GroupCfg, JettyGroup};
pub use import::{ImportedSegment, Mapping, RemoteSegment};
pub use jetty::{Jetty, JettyCfg, JettyRecv};
pub use jfc::Jfc;
pub use jfce::Jfce;
pub use jfr::{Jfr, JfrCfg};
pub use jfs::{Jfs, JfsCfg};
pub use ops::HintPolicy;
pub use path::{Path, PathKind, TargetId, TargetKind};
pub use queue::{
    JettyState, JfcCfg, JfcFlags, OrderType, QueueCfg, QueueKind, QueueStatus, RecvCfg, SendCfg,
    SendFlags, SharedRecv, TransportMode,
};
pub use refused::Refused;
pub use registry::{Device, Registry};
pub use segment::{Segment, SegmentAccess, SegmentCfg, TokenIdLease};
pub use status::{CrStatus, Status};
pub use target::{RemoteJetty, TargetJetty, TpType};
pub use token::{Token, TokenId, TokenPolicy};
pub use wr::{LocalSge, PostError, PostReason, RecvWr, RemoteAddr, SendOp, SendWr, WrFlags};
