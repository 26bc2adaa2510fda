//! Configuration of a device.
//!
//! *Owns*: the values, and those of a production device. *Must not*: change while a device lives.

use udma_abi::RawEid;
use urma_packet::FurtherPorts;

use crate::fault::Faults;
#[cfg(any(test, feature = "planted-faults"))]
use crate::fault::PlantedFault;

/// Seed of all numbers that must be unpredictable: TPNs, PSNs, nonces, keys.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Seed(pub [u8; 32]);

impl Seed {
    /// Seed for a simulation, in which one number decides everything.
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

/// Whether short requests of idle send queues take the express lane: the same checks in straight-line code.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ExpressLane {
    /// Requests that fit take it.
    #[default]
    On,
    /// Every request takes the long path.
    Off,
}

/// How a driver in the process of the device reaches its doorbells.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Doorbells {
    /// By a handle for each queue and JFC. After many requests in a row without an interruption, a queue is entered
    /// by plain loads and stores ([`urma_mem::SerialOwner`]).
    #[default]
    Found,
    /// By handles, with a lease after few requests, again and again, and ping-pong mode at once: for tests.
    Leased,
    /// By handles, with an atomic exchange at each entry into a queue, and without ping-pong mode.
    Exchange,
    /// By registers, as for a device in hardware.
    Registers,
}

impl Doorbells {
    /// When the device of such a driver enters ping-pong mode.
    #[must_use]
    pub const fn ping_pongs(self) -> PingPongs {
        match self {
            Self::Found | Self::Registers => PingPongs::Usual,
            Self::Leased => PingPongs::Soon,
            Self::Exchange => PingPongs::Never,
        }
    }
}

/// When two jetties of one host that answer each other's messages enter ping-pong mode, which writes less state per
/// message than the express lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PingPongs {
    /// After some turns without an interruption.
    #[default]
    Usual,
    /// After one turn, again and again: for tests.
    Soon,
    /// Ping-pong mode is off.
    Never,
}

impl PingPongs {
    /// How often something has to happen first, where `usual` times are required usually.
    pub(crate) fn least(self, usual: u32) -> u32 {
        if self == Self::Soon { 1 } else { usual }
    }
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

/// How the packets between two nodes with several ports use these.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PortMode {
    /// They take the first port that works.
    #[default]
    ActiveBackup,
    /// They take all ports that work.
    Balance,
}

/// Packets of a TP in flight where nothing else bounds them.
pub(crate) const PATH_PACKETS: u32 = 512;

/// Configuration of a device.
#[derive(Clone, Debug)]
pub struct DeviceCfg {
    /// EID of the node, 16 bytes in network order.
    pub eid: RawEid,
    /// Addresses of its further ports, in the order of preference.
    pub ports: FurtherPorts,
    /// How packets use them, until [`set_port_mode`](crate::SoftwareDevice::set_port_mode).
    pub port_mode: PortMode,
    /// Its user address space id.
    pub uasid: u32,
    /// Differs between two lives of one EID.
    pub incarnation: u64,
    /// Seed of all numbers that must be unpredictable.
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
    /// Most packets of a TP in flight without congestion control. A larger window goes on sending while a lost packet
    /// is repeated.
    pub path_packets: u32,
    /// Retransmission strategy of its TPs.
    pub strategy: crate::transport::Strategy,
    /// What a NIC holds of a TP in the Adamap design.
    pub adamap: urma_recovery::AdamapSizes,
    /// Congestion control of its TPs.
    pub congestion: urma_recovery::CongestionChoice,
    /// Most bytes that the direct path copies between two checks of a generation.
    pub direct_chunk: usize,
    /// Size in bytes of the machine's caches: long writes that walk through more bypass them.
    pub cache_bytes: u64,
    /// Most bytes that one step of one send queue copies directly.
    pub step_bytes: usize,
    /// Most requests that one step of one send queue starts.
    pub step_requests: u32,
    /// Whether short requests of idle send queues take the express lane.
    pub lane: ExpressLane,
    /// When jetties enter ping-pong mode.
    pub ping_pongs: PingPongs,
    /// Bytes of a same-host ring, a power of two.
    pub ring_len: usize,
    /// Finds the users whose processes receive packets at addresses of this host; called when more nodes want places
    /// than there are.
    pub loopback_owners: fn() -> Vec<(RawEid, u32)>,
    /// A planted fault, for tests.
    #[cfg(any(test, feature = "planted-faults"))]
    pub fault: Option<PlantedFault>,
}

impl DeviceCfg {
    /// The values of a production device. The host replaces `seed`: 64 bits are few.
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
            window_packets: PATH_PACKETS,
            path_packets: PATH_PACKETS,
            strategy: crate::transport::Strategy::default(),
            adamap: urma_recovery::AdamapSizes::default(),
            congestion: urma_recovery::CongestionChoice::default(),
            direct_chunk: urma_mem::hazard::CHUNK_MAX,
            cache_bytes: 32 << 20,
            step_bytes: 16 << 20,
            step_requests: 256,
            lane: ExpressLane::On,
            ping_pongs: PingPongs::Usual,
            ring_len: 1 << 20,
            loopback_owners: Vec::new,
            #[cfg(any(test, feature = "planted-faults"))]
            fault: None,
        }
    }

    /// The same with every request on the long path, which does the lookups of a model of contexts.
    pub(crate) fn with_long_path(self) -> Self {
        Self { lane: ExpressLane::Off, ping_pongs: PingPongs::Never, ..self }
    }

    /// Address of one of its ports: 0 is the EID's.
    #[must_use]
    pub fn address(&self, port: u8) -> RawEid {
        let further = usize::from(port).checked_sub(1).and_then(|at| self.ports.get(at));
        further.map_or(self.eid, RawEid)
    }

    /// The planted fault, if any.
    #[cfg(any(test, feature = "planted-faults"))]
    pub(crate) const fn faults(&self) -> Faults {
        Faults::new(self.fault)
    }

    /// The planted fault: there is none in this build.
    #[cfg(not(any(test, feature = "planted-faults")))]
    pub(crate) fn faults(&self) -> Faults {
        Faults::default()
    }
}
