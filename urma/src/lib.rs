//! URMA for Rust programs: the one crate to depend on.
//!
//! *Owns*: how a device and its driver come together. *Takes*: a configuration, or the environment.
//! *Gives*: an open [`Context`], and everything of `urma-core` to use it with. *Must not*: know
//! rings, registers or packets.
//!
//! # A write, from the device to the completion
//!
//! Two nodes of this process; a program between processes learns the peer's `remote()` values over
//! a socket.
//!
//! ```
//! use std::time::Duration;
//!
//! use urma::*;
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
#![forbid(unsafe_code)]

mod open;

pub use open::{OpenError, Opened, open, open_node};
pub use ubcore_sim::{Node, NodeCfg, NodeError, PathChoice};
pub use udma_abi::RawEid;
pub use udma_provider::device_on;
pub use urma_answer::{Answerer, WELL_KNOWN_ID};
pub use urma_core::*;
pub use urma_mem::Region;
