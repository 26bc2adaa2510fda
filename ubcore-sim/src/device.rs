//! The device: one `Sync` object that posters, the background thread and the simulator call.
//!
//! *Owns*: everything that exists between reset and reset. *Takes*: register accesses, time, peers,
//! datagrams. *Gives*: completions in host memory, datagrams, deadlines, requests to its host.
//! *Must not*: read a clock, open anything, wait for a lock while a poster is in it.

use std::sync::Arc;

use udma_abi::{CmdStatus, Nanos, RawEid, counters::Counter};
use urma_mem::Region;

use crate::ports::{
    Deadline, HostRequest, Interrupt, MemoryHost, NodeAddr, SameHostParts, Transmit,
};

/// What a device is made with.
#[derive(Clone, Debug)]
pub struct DeviceCfg {
    /// Its endpoint id.
    pub eid: RawEid,
    /// Its user address space id.
    pub uasid: u32,
    /// Differs between two lives of one EID.
    pub incarnation: u64,
    /// Seed of everything random (PSNs, TPNs).
    pub seed: u64,
    /// Path MTU in payload bytes, 256 to 8192.
    pub mtu: u32,
    /// Packets that a TP may have unacknowledged.
    pub window_packets: u32,
    /// Most bytes that the direct path copies between two looks at a generation.
    pub direct_chunk: usize,
    /// Most bytes that one step of one send queue copies directly.
    pub step_bytes: usize,
    /// Most requests that one step of one send queue starts.
    pub step_requests: u32,
    /// Bytes of a same-host ring, a power of two.
    pub ring_len: usize,
}

impl DeviceCfg {
    /// The values of a production device.
    #[must_use]
    pub fn new(eid: RawEid, incarnation: u64, seed: u64) -> Self {
        Self {
            eid,
            uasid: 0,
            incarnation,
            seed,
            mtu: 4096,
            window_packets: 512,
            direct_chunk: urma_mem::hazard::CHUNK_MAX,
            step_bytes: 16 << 20,
            step_requests: 256,
            ring_len: 1 << 20,
        }
    }
}

/// The world as the device sees it.
#[derive(Debug)]
pub struct Ports {
    /// Raises vectors.
    pub interrupt: Arc<dyn Interrupt>,
    /// Shares registered memory with peers on this host.
    pub memory: Arc<dyn MemoryHost>,
    /// This node's region, [`crate::share::layout::NODE_LEN`] bytes, writable, zeroed.
    pub node_region: Region,
}

/// A software UDMA device.
#[derive(Debug)]
pub struct Device {
    cfg: DeviceCfg,
    ports: Ports,
}

impl Device {
    /// A device after power-on. The header of the node region is written here.
    #[must_use]
    pub fn new(cfg: DeviceCfg, ports: Ports) -> Arc<Self> {
        Arc::new(Self { cfg, ports })
    }

    /// Configuration it was made with.
    #[must_use]
    pub fn cfg(&self) -> &DeviceCfg {
        &self.cfg
    }

    /// This node's region (header, segment table).
    #[must_use]
    pub fn node_region(&self) -> &Region {
        &self.ports.node_region
    }

    /// Register read; outside the map: all ones, counted.
    #[must_use]
    pub fn read(&self, _now: Nanos, _offset: u64) -> u64 {
        u64::MAX
    }

    /// 32-bit register write; a doorbell steps its queue in the calling thread.
    pub fn write32(&self, _now: Nanos, _offset: u64, _value: u32) {}

    /// 64-bit register write.
    pub fn write64(&self, _now: Nanos, _offset: u64, _value: u64) {}

    /// 64 bytes at once: a direct entry.
    pub fn write_block(&self, _now: Nanos, _offset: u64, _words: &[u64; 8]) {}

    /// One bounded step of everything runnable. Returns whether anything was done.
    pub fn step(&self, _now: Nanos) -> bool {
        false
    }

    /// When [`Device::step`] wants to be called at the latest.
    #[must_use]
    pub fn poll_deadline(&self) -> Deadline {
        None
    }

    /// What the core wants done about a peer.
    pub fn poll_host_request(&self) -> Option<HostRequest> {
        None
    }

    /// A datagram that the core wants sent; its bytes (BTH to ICRC) are in `buf`.
    pub fn poll_transmit(&self, _now: Nanos, _buf: &mut [u8]) -> Option<Transmit> {
        None
    }

    /// The peer is on this host; these are the shared parts. Also called when the peer came first.
    pub fn on_same_host_peer(&self, _now: Nanos, _eid: RawEid, _parts: SameHostParts) {}

    /// The peer is not on this host: packets go to its address.
    pub fn on_packet_peer(&self, _now: Nanos, _eid: RawEid) {}

    /// There is no way to the peer.
    pub fn on_no_peer(&self, _now: Nanos, _eid: RawEid, _why: CmdStatus) {}

    /// A peer on this host hung up or died.
    pub fn on_peer_gone(&self, _now: Nanos, _eid: RawEid) {}

    /// A datagram (BTH to ICRC) came from a node.
    pub fn on_datagram(&self, _now: Nanos, _from: NodeAddr, _bytes: &[u8]) {}

    /// Says *asleep* to peers unless a last look finds work: `true` means the caller may wait on its
    /// descriptors until a peer wakes it, or until [`Device::poll_deadline`].
    #[must_use]
    pub fn announce_sleep(&self, _now: Nanos) -> bool {
        false
    }

    /// Says *awake* to peers; to be called as soon as the wait returns.
    pub fn announce_awake(&self) {}

    /// Adds one to a counter (for counters that the world keeps, such as background runs).
    pub fn count(&self, _counter: Counter) {}

    /// The value of a counter.
    #[must_use]
    pub fn counter(&self, _counter: Counter) -> u64 {
        0
    }
}
