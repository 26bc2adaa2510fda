//! A context: the factory of everything else.
//!
//! *Owns*: nothing but its share of the C context. *Gives*: the operations, by the rooms that know
//! how.

use std::{borrow::Cow, os::fd::BorrowedFd, sync::Arc, time::Duration};

use urma_core::{
    AsyncEvent, Eid, JfcCfg, Path, QueueCfg, SegmentCfg, Status, Token, TokenId, TransportMode,
    ops::{
        ContextOps, EventOps, HintPolicy, JfcParts, JfceControl, PathOps, QueueFactory, QueueParts,
        RemoteSegmentId, SegmentOps,
    },
};
use urma_mem::Region;

use crate::{device::CDevice, events, jfc, queue, segment, shared::Shared};

/// An open device, through C.
#[derive(Debug)]
pub(crate) struct CContext(Arc<Shared>);

impl CContext {
    pub(crate) fn open(device: &Arc<CDevice>, eid_index: u32) -> Result<Self, Status> {
        Ok(Self(Arc::new(Shared::open(device, eid_index)?)))
    }
}

impl ContextOps for CContext {
    fn eid(&self) -> Eid {
        self.0.eid()
    }

    fn uasid(&self) -> u32 {
        self.0.uasid()
    }
}

impl QueueFactory for CContext {
    fn create_jfce(&self) -> Result<Arc<dyn JfceControl>, Status> {
        Ok(Arc::new(jfc::Jfce::new(&self.0)?))
    }

    fn create_jfc(
        &self,
        cfg: &JfcCfg,
        jfce: Option<&Arc<dyn JfceControl>>,
    ) -> Result<JfcParts, Status> {
        jfc::create(&self.0, cfg, jfce)
    }

    fn create_queue(&self, cfg: &QueueCfg) -> Result<QueueParts, Status> {
        queue::create(&self.0, cfg)
    }

    fn create_group(
        &self,
        id: u32,
        policy: HintPolicy,
        token: Option<Token>,
    ) -> Result<u32, Status> {
        queue::create_group(&self.0, id, policy, token)
    }

    fn delete_group(&self, id: u32) -> Result<(), Status> {
        queue::delete_group(&self.0, id)
    }
}

impl SegmentOps for CContext {
    fn alloc_token_id(&self) -> Result<TokenId, Status> {
        segment::alloc_token_id(&self.0)
    }

    fn free_token_id(&self, token_id: TokenId) -> Result<(), Status> {
        segment::free_token_id(&self.0, token_id)
    }

    fn register(
        &self,
        region: &Region,
        token_id: TokenId,
        va: u64,
        cfg: &SegmentCfg,
    ) -> Result<(), Status> {
        segment::register(&self.0, region, token_id, va, cfg)
    }

    fn unregister(&self, token_id: TokenId) -> Result<(), Status> {
        segment::unregister(&self.0, token_id)
    }

    fn map(&self, path: &Path, segment: &RemoteSegmentId) -> Result<Region, Status> {
        self.0.paths().map(self.0.ctx, path, segment)
    }
}

impl PathOps for CContext {
    fn connect(&self, eid: Eid, mode: TransportMode) -> Result<Path, Status> {
        crate::paths::connect(&self.0, eid, mode)
    }

    fn disconnect(&self, path: &Path) {
        self.0.paths().close(path);
    }
}

impl EventOps for CContext {
    fn async_fd(&self) -> BorrowedFd<'_> {
        self.0.async_fd()
    }

    fn next_async(&self, timeout: Option<Duration>) -> Result<Option<AsyncEvent>, Status> {
        events::next(&self.0, timeout)
    }

    /// C has no function that reads them all.
    fn counters(&self) -> Result<Vec<(Cow<'static, str>, u64)>, Status> {
        Err(Status::Unsupported)
    }
}
