//! One node of the fabric: a device and its virtual host.
//!
//! - owns: the device, shared memory, interrupt vectors, whether it sleeps or is dead.
//! - takes: configuration. gives: the parts that same-host peers share.
//! - must not: depend on other nodes' devices.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    sync::Arc,
};

use udma_abi::{Nanos, RawEid};
use urma_mem::sync::{AtomicBool, Ordering};
use urma_mem::{Arena, Pages, Region};

use crate::cfg::DeviceCfg;
use crate::device::SoftwareDevice;
use crate::host::{
    interrupt::EventVectors,
    memory::{ArenaMemory, FileSharing, PageMoving},
};
use crate::link::Datagram;
use crate::nic::NicModel;
use crate::ports::Ports;
use crate::ports::{SameHostParts, Wake};
use crate::share;

/// Interrupt vectors of a simulated device.
const VECTORS: u16 = 64;
/// Most datagrams that wait for a stopped node.
const INBOX_MAX: usize = 512;

/// Wakes a sleeping node, in its next round.
#[derive(Debug, Default)]
pub(super) struct SimWake {
    rung: AtomicBool,
    gone: AtomicBool,
}

impl SimWake {
    /// Whether it rang since the last check.
    pub(super) fn take(&self) -> bool {
        self.rung.swap(false, Ordering::AcqRel)
    }

    /// Whether its node is killed.
    pub(super) fn end(&self) {
        self.gone.store(true, Ordering::Release);
    }
}

impl Wake for SimWake {
    fn wake(&self) {
        self.rung.store(true, Ordering::Release);
    }

    fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }
}

/// Simulated node: its device and what its host provides.
#[derive(Debug)]
pub(super) struct SimNode {
    pub(super) eid: RawEid,
    pub(super) host: u32,
    pub(super) device: Arc<SoftwareDevice>,
    pub(super) vectors: Arc<EventVectors>,
    pub(super) wakeup: Arc<SimWake>,
    /// It announced to its peers that it sleeps.
    pub(super) asleep: bool,
    /// Killed: nothing steps or reaches it.
    pub(super) dead: bool,
    /// Stopped until this time: nothing steps it, datagrams wait in `inbox`.
    pub(super) stopped_until: Nanos,
    inbox: VecDeque<Datagram>,
    /// This node's half of the pair with each same-host peer.
    halves: BTreeMap<RawEid, Region>,
    /// As peers see it.
    arena: Region,
}

impl SimNode {
    pub(super) fn new(
        cfg: DeviceCfg,
        nic: Option<Arc<dyn NicModel>>,
        (host, page_moving): (u32, PageMoving),
    ) -> io::Result<Self> {
        let arena = Arena::new()?;
        let seen = Arena::map_peer(arena.fd().try_clone_to_owned()?)?;
        let vectors = Arc::new(EventVectors::new(VECTORS));
        let ports = Ports {
            interrupt: Arc::<EventVectors>::clone(&vectors),
            memory: Arc::new(ArenaMemory::new(arena, page_moving, FileSharing::Off)),
            node_region: Region::shared(share::NODE_LEN, Pages::Base)?,
            routes: None,
            nic,
        };
        let eid = cfg.eid;
        Ok(Self {
            eid,
            host,
            device: SoftwareDevice::new(cfg, ports),
            vectors,
            wakeup: Arc::default(),
            asleep: false,
            dead: false,
            stopped_until: 0,
            inbox: VecDeque::new(),
            halves: BTreeMap::new(),
            arena: seen,
        })
    }

    /// Joins two nodes of one host; returns what each gets of the other.
    pub(super) fn join(a: &mut Self, b: &mut Self) -> io::Result<[SameHostParts; 2]> {
        let half_of_a = a.half(b.eid)?;
        let half_of_b = b.half(a.eid)?;
        Ok([b.parts(half_of_a.clone(), half_of_b.clone()), a.parts(half_of_b, half_of_a)])
    }

    /// Whether the pair with `peer` exists.
    pub(super) fn is_joined(&self, peer: RawEid) -> bool {
        self.halves.contains_key(&peer)
    }

    /// Returns its port with this address; `None`: the address is of another node.
    pub(super) fn port_of(&self, address: RawEid) -> Option<u8> {
        let further = self.device.cfg().ports;
        let all = std::iter::once(self.eid.0).chain(further.iter());
        (0..).zip(all).find(|(_, own)| *own == address.0).map(|(port, _)| port)
    }

    /// Whether it is neither dead nor stopped at `now`.
    pub(super) fn runs(&self, now: Nanos) -> bool {
        !self.dead && self.stopped_until <= now
    }

    /// Keeps a datagram for a stopped node, like its socket; drops it if there is no room.
    pub(super) fn keep(&mut self, datagram: Datagram) {
        if self.inbox.len() < INBOX_MAX {
            self.inbox.push_back(datagram);
        }
    }

    /// Takes the datagrams that arrived while the node was stopped.
    pub(super) fn take_inbox(&mut self) -> VecDeque<Datagram> {
        std::mem::take(&mut self.inbox)
    }

    /// Removes the pair with `peer`; returns whether there was one.
    pub(super) fn part(&mut self, peer: RawEid) -> bool {
        self.halves.remove(&peer).is_some()
    }

    /// Returns the same-host peers that it shares memory with.
    pub(super) fn peers(&self) -> Vec<RawEid> {
        self.halves.keys().copied().collect()
    }

    /// Creates a half for the pair with `peer`.
    fn half(&mut self, peer: RawEid) -> io::Result<Region> {
        let half = Region::shared(share::half_len(self.device.cfg().ring_len), Pages::Base)?;
        self.halves.insert(peer, half.clone());
        Ok(half)
    }

    /// Returns what a peer gets of this node.
    fn parts(&self, my_half: Region, peer_half: Region) -> SameHostParts {
        SameHostParts {
            peer_node: self.device.node_region().clone(),
            peer_arena: self.arena.clone(),
            my_half,
            peer_half,
            wake: Arc::<SimWake>::clone(&self.wakeup),
            process: None,
            files: None,
        }
    }
}
