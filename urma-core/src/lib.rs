//! URMA in Rust: the nouns, the API and its checks, and the traits a provider implements.
//!
//! *Owns*: the model (EID, segment, jetty, JFS, JFR, JFC, JFCE), the rules a caller must keep, and
//! the provider-ops traits. *Takes*: what the program asks for. *Gives*: requests that passed every
//! check, one dynamic call per batch, to a provider. *Must not*: know rings, registers, devices;
//! read a clock; start a thread.
//!
//! # A write, from the device to the completion
//!
//! Two nodes of this process; a program between processes learns the peer's `remote()` values over
//! a socket.
//!
//! ```
//! use std::{sync::Arc, time::Duration};
//!
//! use ubcore_sim::node::{Node, NodeCfg};
//! use udma_abi::DeviceBacking;
//! use udma_provider::UdmaProvider;
//! use urma_core::*;
//! use urma_mem::Region;
//!
//! /// A software device of its own, driven by the provider that recognises it.
//! fn open() -> Result<Context, Box<dyn std::error::Error>> {
//!     let backing: Arc<dyn DeviceBacking> = Node::open(NodeCfg::from_env()?)?;
//!     let info = backing.info();
//!     let (vendor, device) = (info.vendor_id, info.device_id);
//!     let id = DeviceId { name: info.name, driver: info.driver_name, vendor, device };
//!     let mut registry = Registry::new();
//!     registry.add_provider(Arc::new(UdmaProvider::default()))?;
//!     Ok(registry.add_device(&id, Box::new(backing))?.open(0)?)
//! }
//!
//! /// A jetty that sends and receives; both complete on `completions`.
//! fn jetty(context: &Context, completions: &Completions) -> Result<Jetty, Status> {
//!     let (mode, jfc) = (TransportMode::Rm, completions.jfc());
//!     let recv = JettyRecv::Own { cfg: JfrCfg::new(mode, 16), jfc };
//!     context.create_jetty(&JettyCfg::new(JfsCfg::new(mode, 16), jfc, recv))
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (here, there) = (open()?, open()?);
//! let mut completions = here.create_completions(&JfcCfg::new(64))?;
//! let others = there.create_completions(&JfcCfg::new(64))?;
//! let (mut sender, peer) = (jetty(&here, &completions)?, jetty(&there, &others)?);
//!
//! let (mine, theirs) = (Region::private(4096)?, Region::private(4096)?);
//! let guarded = SegmentCfg::new(SegmentAccess::REMOTE_ALL).with_token(Token::new(0x5eed));
//! let exported = there.register(&theirs, &guarded, None)?;
//! let local = here.register(&mine, &SegmentCfg::new(SegmentAccess::LOCAL_ONLY), None)?;
//!
//! let target = here.import_jetty(&peer.remote())?;
//! let access = SegmentAccess::REMOTE_ALL;
//! let remote = here.import_segment(&exported.remote(), access, Mapping::None)?;
//!
//! mine.store_u64(0, 42)?;
//! let op = SendOp::Write { src: &[local.sge(0, 8)], dst: remote.at(64) };
//! sender.post_send(&[SendWr::new(op, &target, 1)])?;
//! let done = completions.wait(Some(Duration::from_secs(10)))?.ok_or("nothing came")?;
//! assert_eq!((done.user_ctx, done.success()?.status), (1, CrStatus::Success));
//! assert_eq!(theirs.load_u64(64)?, 42);
//! # Ok(())
//! # }
//! ```
//!
//! # Who keeps what alive
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

mod body;
mod check;
mod completion;
mod completions;
mod context;
mod device;
mod drain;
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
#[cfg(feature = "stream")]
mod stream;
mod target;
mod token;
mod verdict;
mod wr;

pub use completion::{
    Arm, Completion, CompletionFlags, CrOpcode, INLINE_PAYLOAD_MAX, InlinePayload, JettyId,
};
pub use completions::Completions;
pub use context::Context;
pub use device::{
    AtomicFeatures, DeviceAttr, DeviceCaps, DeviceFeatures, DeviceId, Guid, ModeSet, Mtu, PortAttr,
    PortState,
};
pub use drain::Drain;
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
#[cfg(feature = "stream")]
pub use stream::CompletionStream;
pub use target::{RemoteJetty, TargetJetty, TpType};
pub use token::{Token, TokenId, TokenPolicy};
pub use verdict::Checks;
pub use wr::{LocalSge, PostError, PostReason, RecvWr, RemoteAddr, SendOp, SendWr, WrFlags};
