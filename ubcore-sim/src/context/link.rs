//! Paths to nodes: what a send queue needs to know about one TPN.
//!
//! *Owns*: the read-mostly table by TPN. *Takes*: connections made and lost. *Gives*: shared views.
//! *Must not*: hold state of a request.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use udma_abi::RawEid;
use urma_mem::Region;
use urma_mem::ends::EndCount;
use urma_mem::procvm::ProcessMemory;
use urma_mem::sync::{AtomicBool, Ordering};

use crate::ports::PeerFiles;

/// One path to one node.
#[derive(Debug)]
pub(crate) struct NodePath {
    pub(crate) tpn: u32,
    pub(crate) eid: RawEid,
    pub(crate) unreliable: bool,
    pub(crate) reach: Reach,
    alive: AtomicBool,
}

/// How requests reach the node.
#[derive(Debug)]
pub(crate) enum Reach {
    /// This very node: its own segments.
    Own,
    /// A node on this host, whose memory is accessed directly.
    Direct(DirectParts),
    /// Every request is sent as a message: the peer's memory is out of reach.
    Messages,
    /// Every request is sent in packets of the standard opcodes, from a bound RC jetty.
    Standard,
}

/// A same-host peer's memory.
#[derive(Clone, Debug)]
pub(crate) struct DirectParts {
    /// Its node region, read-only.
    pub(crate) node: Region,
    /// Writable mapping of the peer's arena.
    pub(crate) arena: Region,
    /// This node's half of the pair, with the hazard slots.
    pub(crate) half: Region,
    /// Its memory through the kernel, if a probe showed that this pair may read it.
    pub(crate) process: Option<ProcessMemory>,
    /// Its files, if this process may open them.
    pub(crate) files: Option<Arc<dyn PeerFiles>>,
}

impl NodePath {
    pub(crate) fn new(tpn: u32, eid: RawEid, unreliable: bool, reach: Reach) -> Self {
        Self { tpn, eid, unreliable, reach, alive: AtomicBool::new(true) }
    }

    #[inline]
    pub(crate) fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Acquire)
    }

    fn end(&self) {
        self.alive.store(false, Ordering::SeqCst);
        tracing::debug!(eid = ?self.eid, tpn = self.tpn, "a path ended");
    }
}

/// All paths by TPN; read by send queues on a cache miss.
#[derive(Debug, Default)]
pub(crate) struct LinkTable {
    by_tpn: ArcSwap<BTreeMap<u32, Arc<NodePath>>>,
    ends: Arc<EndCount>,
}

impl LinkTable {
    /// Creates the table; each end of a path bumps `ends`.
    pub(crate) fn new(ends: Arc<EndCount>) -> Self {
        Self { by_tpn: ArcSwap::default(), ends }
    }

    /// Ends a path: nothing new starts on it.
    pub(crate) fn end(&self, tpn: u32) {
        if let Some(link) = self.find(tpn) {
            self.end_link(&link);
        }
    }

    fn end_link(&self, link: &NodePath) {
        link.end();
        self.ends.count();
    }

    pub(crate) fn find(&self, tpn: u32) -> Option<Arc<NodePath>> {
        self.by_tpn.load().get(&tpn).cloned()
    }

    /// The part of a peer's arena at `addr` of this process, an address that MAP_SEG returned.
    pub(crate) fn arena_at(&self, addr: usize, len: usize) -> Option<Region> {
        let links = self.by_tpn.load();
        links.values().filter(|link| link.is_alive()).find_map(|link| {
            let Reach::Direct(parts) = &link.reach else { return None };
            let offset = addr.checked_sub(parts.arena.addr())?;
            parts.arena.sub(offset, len).ok()
        })
    }

    /// Only the control plane changes the table, one change at a time.
    pub(crate) fn insert(&self, link: Arc<NodePath>) {
        let mut map = BTreeMap::clone(&self.by_tpn.load());
        map.insert(link.tpn, link);
        self.by_tpn.store(Arc::new(map));
    }

    pub(crate) fn remove(&self, tpn: u32) {
        let mut map = BTreeMap::clone(&self.by_tpn.load());
        if let Some(link) = map.remove(&tpn) {
            self.end_link(&link);
        }
        self.by_tpn.store(Arc::new(map));
    }
}
