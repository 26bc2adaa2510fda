//! What a device is made with.
//!
//! *Owns*: the values, and those of a production device. *Must not*: change while a device lives.

mod packet_engine;

use udma_abi::RawEid;
use urma_packet::FurtherPorts;

pub use packet_engine::{PacketEngineCfg, PacketEngineCfgError};

use crate::fault::Faults;
#[cfg(any(test, feature = "planted-faults"))]
use crate::fault::PlantedFault;

/// Seed of the numbers that must not be guessed: TPNs, PSNs, nonces, keys.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Seed(pub [u8; 32]);

impl Seed {
    /// For a simulation, which decides everything by one number.
    #[must_use]
    pub fn of(number: u64) -> Self {
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&number.to_le_bytes());
        Self(seed)
    }
}

impl std::fmt::Debug for Seed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Seed(..)")
    }
}

/// Whether short requests of idle send queues take the express lane: the same checks in straight
/// code.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ExpressLane {
    /// What fits takes it.
    #[default]
    On,
    /// Every request takes the long path.
    Off,
}

/// How a driver in the process of the device reaches its doorbells.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Doorbells {
    /// By objects that it finds once for each queue and JFC. After many requests in a row that nothing interrupted, a queue
    /// is entered by plain loads and stores ([`urma_mem::SerialOwner`]).
    #[default]
    Found,
    /// As `Found`; after few requests, each time anew, and so with ping-pongs: for tests.
    Leased,
    /// As `Found`; each entry into a queue is an exchange, and there are no ping-pongs.
    Exchange,
    /// By registers, as with a device in hardware.
    Registers,
}

impl Doorbells {
    /// When the device of such a driver has ping-pongs.
    #[must_use]
    pub const fn ping_pongs(self) -> PingPongs {
        match self {
            Self::Found | Self::Registers => PingPongs::Usual,
            Self::Leased => PingPongs::Soon,
            Self::Exchange => PingPongs::Never,
        }
    }
}

/// When two jetties of one host that answer each other's messages have a ping-pong: less is noted of each message than on
/// the express lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PingPongs {
    /// After some turns that nothing interrupted.
    #[default]
    Usual,
    /// After one turn, each time anew: for tests.
    Soon,
    /// No ping-pong ever begins.
    Never,
}

impl PingPongs {
    /// How many times something has to come before, where `usual` times are asked for usually.
    pub(crate) fn least(self, usual: u32) -> u32 {
        if self == Self::Soon { 1 } else { usual }
    }
}

/// Whether the device accounts what the chip of a NIC would keep of its contexts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ContextModelMode {
    /// No: there is no model, no call and no memory for it.
    #[default]
    Off,
    /// Each request looks its contexts up in the model; nothing is delayed. Every request takes the long path.
    Count,
    /// As `Count`, and a request starts when the model has its contexts. For virtual time, whose clock moves by
    /// [`set_virtual_time`](crate::SoftwareDevice::set_virtual_time): a real one cannot keep latencies of some ns.
    Time,
}

/// Whether messages that go by packets also go through the cycle model of a packet engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PacketEngineMode {
    /// No message goes through the model.
    #[default]
    Off,
    /// Each does, and its counters are the device's; nothing is delayed.
    Count,
    /// As `Count`, and a packet reaches the link in the cycle in which the model ends it. For virtual time: a socket
    /// sends when the system does.
    Time,
}

/// What carries the requests of RC jetties.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RcWire {
    /// What carries those of other queues: shared memory, or packets of this device's own format.
    #[default]
    Urma,
    /// Packets of the standard RoCEv2 opcodes, to nodes on this host as well.
    Roce,
}

/// How the packets of two nodes with several ports use them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PortMode {
    /// They take the first port that works.
    #[default]
    ActiveBackup,
    /// They take all ports that work.
    Balance,
}

/// What a device is made with.
#[derive(Clone, Debug)]
pub struct DeviceCfg {
    /// EID of the node, 16 bytes in network order.
    pub eid: RawEid,
    /// Addresses of its ports beside the EID, in the order of preference.
    pub ports: FurtherPorts,
    /// How packets use them, until [`set_port_mode`](crate::SoftwareDevice::set_port_mode).
    pub port_mode: PortMode,
    /// Its user address space id.
    pub uasid: u32,
    /// Differs between two lives of one EID.
    pub incarnation: u64,
    /// Seed of every number that must not be guessed.
    pub seed: Seed,
    /// Path MTU in payload bytes, 256 to 8192.
    pub mtu: u32,
    /// What carries the requests of RC jetties.
    pub rc: RcWire,
    /// Path MTU of connections of the standard opcodes: 256, 512, 1024, 2048 or 4096; `None`: the largest that the
    /// route carries when the jetty is bound.
    pub rc_mtu: Option<u32>,
    /// Packets that a TP may have unacknowledged, from the oldest to the newest.
    pub window_packets: u32,
    /// Packets of a TP on the path where no congestion control bounds them. A window that spans more goes on while a
    /// lost packet is repeated.
    pub path_packets: u32,
    /// Retransmission strategy of its TPs.
    pub strategy: crate::transport::Strategy,
    /// What bounds the packets of its TPs on the path beside the window.
    pub congestion: urma_recovery::CongestionChoice,
    /// Most bytes that the direct path copies between two looks at a generation.
    pub direct_chunk: usize,
    /// Bytes that the machine's caches hold: long writes that walk through more go past them.
    pub cache_bytes: u64,
    /// Most bytes that one step of one send queue copies directly.
    pub step_bytes: usize,
    /// Most requests that one step of one send queue starts.
    pub step_requests: u32,
    /// Whether short requests of idle send queues take the express lane.
    pub lane: ExpressLane,
    /// When jetties have ping-pongs.
    pub ping_pongs: PingPongs,
    /// Whether requests are accounted in a model of the context cache.
    pub contexts: ContextModelMode,
    /// Whether messages go through the cycle model of a packet engine.
    pub packet_engine: PacketEngineMode,
    /// Which engine that is.
    pub engine: PacketEngineCfg,
    /// Bytes of a same-host ring, a power of two.
    pub ring_len: usize,
    /// Finds the users whose processes receive packets at addresses of this host alone: asked for when more nodes want
    /// places than there are.
    pub loopback_owners: fn() -> Vec<(RawEid, u32)>,
    /// A mistake that it makes on purpose.
    #[cfg(any(test, feature = "planted-faults"))]
    pub fault: Option<PlantedFault>,
}

impl DeviceCfg {
    /// The values of a production device, whose `seed` the host replaces: 64 bits are few.
    #[must_use]
    pub fn new(eid: RawEid, incarnation: u64, seed: u64) -> Self {
        Self {
            eid,
            ports: FurtherPorts::default(),
            port_mode: PortMode::default(),
            uasid: 0,
            incarnation,
            seed: Seed::of(seed),
            mtu: 4096,
            rc: RcWire::Urma,
            rc_mtu: None,
            window_packets: 512,
            path_packets: 512,
            strategy: crate::transport::Strategy::default(),
            congestion: urma_recovery::CongestionChoice::default(),
            direct_chunk: urma_mem::hazard::CHUNK_MAX,
            cache_bytes: 32 << 20,
            step_bytes: 16 << 20,
            step_requests: 256,
            lane: ExpressLane::On,
            ping_pongs: PingPongs::Usual,
            contexts: ContextModelMode::Off,
            packet_engine: PacketEngineMode::Off,
            engine: PacketEngineCfg::default(),
            ring_len: 1 << 20,
            loopback_owners: Vec::new,
            #[cfg(any(test, feature = "planted-faults"))]
            fault: None,
        }
    }

    /// With a model of the context cache every request takes the long path, which looks its contexts up.
    pub(crate) fn with_long_path(self) -> Self {
        match self.contexts {
            ContextModelMode::Off => self,
            ContextModelMode::Count | ContextModelMode::Time => {
                Self { lane: ExpressLane::Off, ping_pongs: PingPongs::Never, ..self }
            }
        }
    }

    /// Address of one of its ports: 0 is the EID's.
    #[must_use]
    pub fn address(&self, port: u8) -> RawEid {
        let further = usize::from(port).checked_sub(1).and_then(|at| self.ports.get(at));
        further.map_or(self.eid, RawEid)
    }

    /// Which mistake it makes on purpose.
    #[cfg(any(test, feature = "planted-faults"))]
    pub(crate) const fn faults(&self) -> Faults {
        Faults::new(self.fault)
    }

    /// Which mistake it makes on purpose: none.
    #[cfg(not(any(test, feature = "planted-faults")))]
    pub(crate) fn faults(&self) -> Faults {
        Faults::default()
    }
}
