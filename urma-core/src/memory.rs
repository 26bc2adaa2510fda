//! What segments, imports and targets need of their context: the part of the provider operations for memory and paths.
//!
//! *Owns*: the traits. *Must not*: know queues; a request names these handles, so they stand below all that posts.

use std::fmt::Debug;

use urma_mem::Region;

use crate::{DeviceAttr, Eid, Path, SegmentCfg, Status, Token, TokenId, TransportMode, Uasid};

/// Segments and token ids.
pub trait SegmentOps: Send + Sync + Debug {
    /// New token id (tid << 8).
    ///
    /// # Errors
    /// `NoMemory`: all are in use.
    fn alloc_token_id(&self) -> Result<TokenId, Status>;

    /// Gives a token id back.
    ///
    /// # Errors
    /// `Invalid`: a segment has it.
    fn free_token_id(&self, token_id: TokenId) -> Result<(), Status>;

    /// Makes `region` known under `token_id`; requests address it from `va` on.
    ///
    /// # Errors
    /// `Exists`: a live segment has this token id. Memory that the device cannot reach.
    fn register(
        &self,
        region: &Region,
        token_id: TokenId,
        va: u64,
        cfg: &SegmentCfg,
    ) -> Result<(), Status>;

    /// Withdraws: drains for at most 10 ms, then revokes.
    ///
    /// # Errors
    /// `Invalid`: no such segment.
    fn unregister(&self, token_id: TokenId) -> Result<(), Status>;

    /// Called when a peer's segment on this host was imported. May map it in advance, so that its first use takes no page
    /// faults.
    fn prepare(&self, path: &Path, segment: &RemoteSegmentId) {
        let _ = (path, segment);
    }

    /// Maps a peer's segment for load and store; returns the window.
    ///
    /// # Errors
    /// `Unsupported`: the peer is not on this host or its pages are not shared. `NoPermission`:
    /// token or access.
    fn map(&self, path: &Path, segment: &RemoteSegmentId) -> Result<Region, Status>;
}

/// What names a peer's segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoteSegmentId {
    /// Token id (tid << 8).
    pub token_id: TokenId,
    /// Token that requests show; `None` for an unguarded segment.
    pub token: Option<Token>,
    /// First address as registered.
    pub va: u64,
    /// Length of the segment in bytes.
    pub len: u64,
}

/// Paths to other nodes.
pub trait PathOps: Send + Sync + Debug {
    /// Finds a path to `eid`; waits for a bounded handshake where one is needed.
    ///
    /// # Errors
    /// `TimedOut`, `Unreachable`.
    fn connect(&self, eid: Eid, mode: TransportMode) -> Result<Path, Status>;

    /// Drops one use of a path.
    fn disconnect(&self, path: &Path);
}

/// The context of a handle, as far as memory and paths need it. A handle that holds it keeps the context.
pub(crate) trait MemoryHome: Send + Sync + Debug {
    fn segments(&self) -> &dyn SegmentOps;
    fn paths(&self) -> &dyn PathOps;
    fn attr(&self) -> &DeviceAttr;
    fn eid(&self) -> Eid;
    fn uasid(&self) -> Uasid;
    /// Tells contexts apart; unique while anything of the context lives.
    fn key(&self) -> usize;
}
