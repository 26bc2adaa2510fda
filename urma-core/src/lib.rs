//! URMA in Rust: the nouns, the API and its checks, and the traits a provider implements.
//!
//! *Owns*: the model (EID, segment, jetty, JFS, JFR, JFC, JFCE), the rules a caller must keep, and
//! the provider-ops traits. *Takes*: what the program asks for. *Gives*: requests that passed every
//! check, one dynamic call per batch, to a provider. *Must not*: know rings, registers, devices;
//! read a clock; start a thread.
//!
//! A jetty that writes 8 bytes into a peer's memory and waits for the completion:
//!
//! ```no_run
//! use urma_core::*;
//!
//! fn write(ctx: &Context, peer: &RemoteJetty, memory: &RemoteSegment) -> Result<(), Status> {
//!     let mut jfc = ctx.create_jfc(&JfcCfg::new(64), None)?;
//!     let (send, recv) = (JfsCfg::new(TransportMode::Rm, 16), JfrCfg::new(TransportMode::Rm, 16));
//!     let recv = JettyRecv::Own { cfg: recv, jfc: &jfc };
//!     let mut jetty = ctx.create_jetty(&JettyCfg::new(send, &jfc, recv))?;
//!
//!     let region = urma_mem::Region::private(4096).map_err(|_| Status::NoMemory)?;
//!     region.store_u64(0, 42).map_err(|_| Status::Invalid)?;
//!     let cfg = SegmentCfg::new(SegmentAccess::LOCAL_ONLY);
//!     let local = ctx.register(&region, &cfg, None)?;
//!
//!     let target = ctx.import_jetty(peer)?;
//!     let there = ctx.import_segment(memory, SegmentAccess::REMOTE_ALL, Mapping::None)?;
//!     let src = [LocalSge { segment: &local, addr: local.va(), len: 8 }];
//!     let dst = RemoteAddr { segment: &there, addr: there.va() };
//!     let request = SendWr::new(SendOp::Write { src: &src, dst }, &target, 1);
//!     jetty.post_send(&[request]).map_err(|_| Status::Fail)?;
//!     let completion = loop {
//!         if let Some(completion) = jfc.poll_one()? {
//!             break completion;
//!         }
//!     };
//!     assert!(completion.status.is_success());
//!     Ok(())
//! }
//! ```
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
