//! Interfaces of the sans-IO core to the world around it.
//!
//! *Owns*: the traits that `host/` (real sockets, memory, threads) and `sim/` (virtual ones) implement. *Must not*:
//! do I/O. Everything here is called with no lock of a poster held longer than the call.

use std::{fmt::Debug, sync::Arc};

use udma_abi::{Nanos, RawEid};
use urma_mem::{
    FilePlace, FileWindow, HeldMemory, Region, hazard::Generation, procvm::ProcessMemory,
};
use urma_packet::TpOpcode;

use crate::nic::NicModel;

/// A peer on this host: wakes it (an eventfd write; a flag in simulation) and says whether it is there.
pub trait Wake: Send + Sync + Debug {
    /// Wakes it. Cheap if it is awake already; never blocks.
    fn wake(&self);

    /// Whether it closed. The host reports that too, but only when its thread has seen it.
    fn is_gone(&self) -> bool;
}

/// Raises an interrupt vector of this device.
pub trait Interrupt: Send + Sync + Debug {
    /// Adds one to the vector's count.
    fn raise(&self, vector: u16);
}

/// A shared piece of registered memory: `len` bytes from address `va` on are at `offset` of this node's arena.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SharedExtent {
    /// First address, in the caller's address space.
    pub va: u64,
    /// Length of the piece in bytes.
    pub len: u64,
    /// Offset in the arena.
    pub offset: u64,
}

/// Makes memory reachable by peers on this host (page moving), and takes it back.
pub trait MemoryHost: Send + Sync + Debug {
    /// Moves the shareable pages of `region`, or keeps the file that it is part of; returns what peers can access
    /// directly (maybe nothing, with the reason logged). `key` names the registration in `unshare`.
    fn share(&self, key: u32, region: &Region) -> SharedMemory;

    /// How the device itself accesses `region`, with shared `extents`, for a peer: safely if the program has unmapped
    /// it, and without touching what was mapped there later.
    fn hold(&self, region: &Region, extents: &[SharedExtent]) -> HeldMemory {
        let _ = extents;
        HeldMemory::plain(region)
    }

    /// Why peers on this host cannot access the registration `key` directly, for reports; `None`: they can, or it is
    /// unknown.
    fn why_not_direct(&self, key: u32) -> Option<String> {
        let _ = key;
        None
    }

    /// Moves the pages back to private memory, with their content. Afterwards a late write of a peer goes where no
    /// thread reads.
    fn unshare(&self, key: u32);
}

/// What peers on this host can access of registered memory without its owner: pages in the arena, or part of a file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SharedMemory {
    /// Pages in the arena.
    pub extents: Vec<SharedExtent>,
    /// The file in which all of it lies.
    pub file: Option<FilePlace>,
}

/// A registration of a peer in one life.
#[derive(Clone, Debug)]
pub struct SegmentLife {
    /// Token id of the segment.
    pub token_id: u32,
    /// Its generation word in the peer's node region.
    pub generation: Generation,
    /// The value of that word while it lives.
    pub life: u64,
}

impl SegmentLife {
    /// Whether the peer has not unregistered it.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.generation.load() == self.life
    }
}

/// Files of a peer's process, mapped into this one.
pub trait PeerFiles: Send + Sync + Debug {
    /// Maps the file that contains `segment`, up to the offset `end` at least. It stays mapped until the segment
    /// ends, for a caller that keeps the weak reference. `None`, with the reason logged: it cannot be mapped.
    fn window(&self, segment: &SegmentLife, place: &FilePlace, end: u64)
    -> Option<Arc<FileWindow>>;
}

/// What the host knows of routes to other nodes.
pub trait LocalRoutes: Send + Sync + Debug {
    /// Current MTU of the route to a node; `None`: unknown.
    fn mtu_to(&self, node: RawEid) -> Option<u32>;
}

/// The environment of the device.
#[derive(Debug)]
pub struct Ports {
    /// Raises the interrupt vectors of the device.
    pub interrupt: Arc<dyn Interrupt>,
    /// Shares registered memory with peers on this host.
    pub memory: Arc<dyn MemoryHost>,
    /// This node's region, [`crate::share::NODE_LEN`] bytes, writable, zeroed.
    pub node_region: Region,
    /// Routes to other nodes; `None`: nothing is known of them.
    pub routes: Option<Arc<dyn LocalRoutes>>,
    /// Model of a NIC's insides; `None`: there is none.
    pub nic: Option<Arc<dyn NicModel>>,
}

/// What two nodes on one host share, as seen from one of them.
#[derive(Debug)]
pub struct SameHostParts {
    /// The peer's node region (header, segment table), read-only.
    pub peer_node: Region,
    /// The peer's arena, writable, whole.
    pub peer_arena: Region,
    /// This node's half of the pair: hazard slots, outbound ring, its head of the inbound ring.
    pub my_half: Region,
    /// The peer's half, read-only.
    pub peer_half: Region,
    /// Wakes the peer, and reports whether it is there.
    pub wake: Arc<dyn Wake>,
    /// The peer's memory through the kernel, if a one-byte probe showed that this pair may read it.
    pub process: Option<ProcessMemory>,
    /// The peer's files; `None`: this pair may not open them.
    pub files: Option<Arc<dyn PeerFiles>>,
}

/// A request of the core to the host about a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HostRequest {
    /// Find the node `eid`: answer with `Device::on_same_host_peer`, `Device::on_packet_peer`
    /// (it is not on this host, packets go to its address) or `Device::on_no_peer`.
    FindPeer {
        /// EID of the peer's node.
        eid: RawEid,
    },
    /// No queue uses the path to this node any more; close what belongs to it.
    Forget {
        /// EID of the peer's node.
        eid: RawEid,
    },
    /// Requests to this node ended for want of an acknowledgement: say once why, for the user.
    AskWhy {
        /// EID of the peer's node.
        eid: RawEid,
        /// Requests go there in packets; otherwise the node is on this host.
        is_packets: bool,
    },
}

/// Whether more datagrams wait than were received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backlog {
    /// There were no more when these were received.
    Empty,
    /// There may be more datagrams in the socket.
    More,
}

/// Which thread reads the link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkVisitor {
    /// A polling thread of the program.
    Poll,
    /// Another one: it is unknown when it will look again.
    Thread,
}

/// Most bytes of packets of equal size that a link sends by one call: a UDP payload, with the headers below 64 KiB.
/// The core may fill a buffer of this size with packets; into a shorter one it writes only one.
pub const RUN_BYTES: usize = 65_000;
/// Packets that one call may carry (Linux: UDP_MAX_SEGMENTS, 64 in older kernels); receivers behind
/// a socket look for Identifications below it.
pub const RUN_MAX: usize = 64;
/// Largest Identification of an IPv4 packet of a run: the system numbers them from 0 on where it cuts a run, and a
/// socket does not show whether it received a whole run, a part or one that was not cut.
pub const RUN_ID_MAX: u16 = 63;
const _: () = assert!(RUN_ID_MAX as usize == RUN_MAX - 1);

/// Source or destination of a datagram: IPv4-mapped or IPv6 address as an EID; port 4791.
pub type NodeAddr = RawEid;

/// A route of datagrams between this node and another one: one of this node's ports, and an address of that node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Route {
    /// Port of this node: 0 is the one whose address is its EID.
    pub port: u8,
    /// Address of the other node.
    pub to: NodeAddr,
}

impl Route {
    /// The route between the EIDs of both nodes.
    #[must_use]
    pub const fn direct(peer: RawEid) -> Self {
        Self { port: 0, to: peer }
    }
}

/// A datagram that arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArrivedDatagram<'a> {
    /// Address of the sender.
    pub from: NodeAddr,
    /// UDP port of the sender: that of nodes, or any for the standard opcodes.
    pub source_port: u16,
    /// Family of its opcodes.
    pub format: PacketFormat,
    /// BTH to ICRC. Of a node's own packets the ICRC is that of port 4791 at both ends.
    pub bytes: &'a [u8],
}

impl<'a> ArrivedDatagram<'a> {
    /// A datagram from the port of a node.
    #[must_use]
    pub fn of_node(from: NodeAddr, bytes: &'a [u8]) -> Self {
        let format = PacketFormat::of(bytes);
        Self { from, source_port: urma_packet::ROCE_PORT, format, bytes }
    }
}

/// Family of a datagram's opcodes, by its first byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PacketFormat {
    /// Those of TPs and their handshakes.
    Urma,
    /// The standard ones of RC and UC.
    Standard,
}

impl PacketFormat {
    /// The format of a datagram, BTH to ICRC.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        match bytes.first() {
            Some(opcode) if *opcode < TpOpcode::DataReq.code() => Self::Standard,
            _ => Self::Urma,
        }
    }
}

/// A datagram that the core sends, or a run of them: all but the last one have the same size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transmit {
    /// Address of the node that the datagram is for.
    pub to: NodeAddr,
    /// Port of this node that it leaves from: 0 is the one whose address is its EID.
    pub port: u8,
    /// UDP source port that the ICRC is sealed for. A node on a socket sends from 4791 only and
    /// seals again a datagram with another port; what it receives is sealed for 4791 at both ends.
    pub source_port: u16,
    /// Bytes written to the buffer: BTH to ICRC, of each packet of a run.
    pub len: usize,
    /// Bytes of each packet but the last, which may be shorter.
    pub size: usize,
}

impl Transmit {
    /// Number of packets in the run.
    #[must_use]
    pub const fn packets(&self) -> usize {
        self.len.div_ceil(if self.size == 0 { 1 } else { self.size })
    }
}

/// Latest time of the next call of the core; `None`: only on input.
pub type Deadline = Option<Nanos>;
