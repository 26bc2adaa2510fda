//! A node: an embedded device with everything around it, opened by one call.
//!
//! *Owns*: the composition of device and host modules, their start and their end. *Takes*: a [`NodeCfg`]. *Gives*: a
//! [`udma_abi::DeviceBacking`] for a driver. *Must not*: depend on queues or packets.

mod backing;
mod config;
mod doorbell;
mod settings;

use std::{io, sync::Arc, time::Duration};

pub use backing::ClientFunction;
pub use backing::DRIVER;
pub use config::{EidSource, NodeCfg};
pub use settings::{ConfigError, Setting, SettingOrigin, settings};
use udma_abi::RawEid;
pub use urma_mem::fork::ForkCopies;
use urma_mem::{Arena, ArenaCfg, Pages, Region};
use urma_packet::Tpn;
use urma_recovery::CongestionChoice;

use crate::{
    cfg::{DeviceCfg, Doorbells, PATH_PACKETS, PortMode, RcWire, Seed},
    device::{FunctionCfg, SoftwareDevice},
    host::{
        claim::{Claim, ClaimError},
        eid_ip,
        interrupt::EventVectors,
        ip_eid,
        memory::ArenaMemory,
        peer::{LocalShare, PathChoice, Peers},
        port::{PacketPort, PortLinkCfg},
        scheduler::{poll::Poll, thread::Background},
        shared::{SharedNode, new_wakeup},
        standard::{PortEndpoint, QpnInUse, StandardDrops},
        udp::address::{RouteMtu, host_address},
    },
    limits,
    nic::NicModel,
    ports::{Interrupt, LinkVisitor, LocalRoutes, Ports},
    share,
};

/// An open node. Dropping the last reference closes everything that belongs to it.
#[derive(Debug)]
pub struct Node {
    shared: Arc<SharedNode>,
    vectors: Arc<EventVectors>,
    name: String,
    /// Most bytes of a peer's segment that an import maps.
    prepared_max: u64,
    doorbells: Doorbells,
    /// `None` only during drop.
    background: Option<Background>,
}

/// Why a node could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The configuration or the environment has an impossible value.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The EID could not be claimed.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// Its RC jetties speak the standard opcodes, and it has no socket for them.
    #[error("RC jetties cannot speak RoCEv2 (URMA_RC=roce): {0}")]
    NoPackets(String),
    /// Out of memory, descriptors or threads.
    #[error("the operating system refused the node: {0}")]
    Os(#[from] io::Error),
}

impl Node {
    /// Claims the EID and starts the device, which has no model of a NIC's insides.
    ///
    /// # Errors
    /// [`NodeError`]; nothing is left behind.
    pub fn open(cfg: NodeCfg) -> Result<Arc<Self>, NodeError> {
        Self::open_with(cfg, None)
    }

    /// Does what [`Node::open`] does, with this model. Its settings ([`NodeCfg::models`]) are taken out of `cfg`.
    ///
    /// # Errors
    /// [`NodeError`]; nothing is left behind.
    pub fn open_with(cfg: NodeCfg, nic: Option<Arc<dyn NicModel>>) -> Result<Arc<Self>, NodeError> {
        cfg.check()?;
        if let Some(setting) = cfg.models.first() {
            return Err(setting.refuse(setting.value.clone(), NO_MODELS).into());
        }
        let claim = claim(&cfg)?;
        let eid = claim.eid();
        let ports: Vec<RawEid> = cfg.ports.iter().map(|address| ip_eid(*address)).collect();
        if ports.contains(&eid) {
            return Err(ConfigError::ports(eid_ip(eid).to_string()).into());
        }
        let further = cfg.further_ports()?;
        let port = match cfg.path {
            PathChoice::SameHost => {
                PacketPort::none(eid, Some("packets are turned off".to_owned()))
            }
            PathChoice::Auto | PathChoice::Packets => {
                let link =
                    PortLinkCfg { offload: cfg.udp_offload, faults: cfg.link_faults.clone() };
                PacketPort::bind(eid, &ports, link)
            }
        };
        if cfg.rc == RcWire::Roce {
            port.ready_for_peer().map_err(NodeError::NoPackets)?;
        }
        let arena = Arena::with(ArenaCfg { writers: cfg.writers, huge_pages: cfg.huge_pages })?;
        let vectors = Arc::new(EventVectors::new(VECTORS));
        let mut device_cfg = device_cfg(&cfg, eid)?;
        device_cfg.ports = further;
        let kept = port.packets_kept(cfg.mtu).and_then(|kept| u32::try_from(kept).ok());
        (device_cfg.window_packets, device_cfg.path_packets) = windows(&cfg, kept);
        let (incarnation, half_len) =
            (device_cfg.incarnation, share::half_len(device_cfg.ring_len));
        let node_region = Region::shared(share::NODE_LEN, Pages::Base)?;
        node_region.seal_future_write()?;
        let ports = Ports {
            interrupt: Arc::<EventVectors>::clone(&vectors),
            memory: Arc::new(ArenaMemory::new(arena.clone(), cfg.page_moving, cfg.file_sharing)),
            node_region: node_region.clone(),
            routes: routes(&cfg, eid),
            nic,
        };
        let device = SoftwareDevice::new(device_cfg, ports);
        let wakeup = new_wakeup()?;
        let wake = Arc::clone(&wakeup);
        urma_mem::fork::copy_at_forks(cfg.fork_copies);
        let share = LocalShare {
            eid,
            incarnation,
            node_region,
            arena,
            half_len,
            wake,
            kernel_reads: cfg.kernel_reads,
            file_sharing: cfg.file_sharing,
        };
        let poll = Arc::new(Poll::new()?);
        let mut peers = Peers::new(share, claim, cfg.path, Arc::clone(&poll))?;
        peers.share_with(cfg.share_with);
        let shared = Arc::new(SharedNode::new(device, wakeup, port)?);
        let background =
            Some(Background::start(Arc::clone(&shared), peers, poll, cfg.name.clone())?);
        let NodeCfg { name, prepared_max, doorbells, .. } = cfg;
        Ok(Arc::new(Self { shared, vectors, name, prepared_max, doorbells, background }))
    }

    /// Returns the EID of the node.
    #[must_use]
    pub fn eid(&self) -> RawEid {
        self.shared.device().cfg().eid
    }

    /// Adds a function, for a driver in another process: other drivers cannot reach its objects. Threads of this node
    /// raise its vectors by `interrupt`, which must not wait for that process.
    ///
    /// # Errors
    /// The maximum number of functions is reached.
    pub fn add_function(
        &self,
        cfg: FunctionCfg,
        interrupt: Arc<dyn Interrupt>,
    ) -> io::Result<ClientFunction> {
        let function = self.shared.device().add_function(cfg, interrupt);
        let function = function.ok_or(io::ErrorKind::QuotaExceeded)?;
        Ok(ClientFunction::new(Arc::clone(&self.shared), function))
    }

    /// Notes that no thread polls from now on, for a server of this device that is about to wait: peers wake this
    /// node by [`udma_abi::DeviceBacking::wakeup`].
    pub fn rest(&self) {
        self.shared.rest();
    }

    /// The device, to read its counters.
    #[must_use]
    pub fn device(&self) -> &SoftwareDevice {
        self.shared.device()
    }

    /// The reason why no packets can be exchanged; `None`: they can.
    #[must_use]
    pub fn packets_refused(&self) -> Option<String> {
        self.shared.port().refused()
    }

    /// Adds an endpoint of the standard opcodes at this node's address, port 4791, which gets the packets for `qpn`
    /// from any host. The threads that step the node call it.
    ///
    /// # Errors
    /// [`AddEndpointError`].
    pub fn add_endpoint(
        &self,
        qpn: Tpn,
        endpoint: Box<dyn PortEndpoint>,
    ) -> Result<(), AddEndpointError> {
        let port = self.shared.port();
        match port.refused() {
            Some(reason) => Err(AddEndpointError::NoPort(reason)),
            None => Ok(port.add_endpoint(qpn, endpoint)?),
        }
    }

    /// Removes an endpoint and returns it.
    pub fn remove_endpoint(&self, qpn: Tpn) -> Option<Box<dyn PortEndpoint>> {
        self.shared.port().remove_endpoint(qpn)
    }

    /// Counts of datagrams with standard opcodes that reached no endpoint.
    #[must_use]
    pub fn standard_drops(&self) -> StandardDrops {
        self.shared.port().standard_drops()
    }

    /// Changes how packets to all peers use several ports.
    pub fn set_port_mode(&self, mode: PortMode) {
        self.shared.device().set_port_mode(self.shared.clock().now(), mode);
    }

    /// Announces to packet peers that this node closes, for a process that is about to end: they have at most
    /// `linger` to take their last responses. Threads that use the node are not disturbed, but no longer exchange
    /// packets.
    pub fn leave(&self, linger: Duration) {
        if !self.shared.is_forked() {
            self.shared.leave_peers(u64::try_from(linger.as_nanos()).unwrap_or(u64::MAX));
        }
    }

    /// Exchanges datagrams now: after something was posted to an endpoint, or to poll it. Bounded.
    pub fn exchange(&self) {
        self.shared.exchange();
    }
}

/// Why an endpoint was not added.
#[derive(Debug, thiserror::Error)]
pub enum AddEndpointError {
    /// The node has no UDP port, for this reason.
    #[error("no endpoint can be added: {0}")]
    NoPort(String),
    /// The number cannot be used.
    #[error(transparent)]
    InUse(#[from] QpnInUse),
}

impl Drop for Node {
    fn drop(&mut self) {
        let Some(background) = self.background.take() else { return };
        if self.shared.is_forked() {
            // The thread exists in the parent only: there is nothing to join.
            std::mem::forget(background);
            return;
        }
        // Acknowledgements that waited for a message are sent alone.
        self.shared.drive(self.shared.clock().now(), LinkVisitor::Thread);
        self.shared.stop();
        let peers = background.join();
        self.shared.close_peers();
        self.shared.port().close();
        // Only now the EID is free: its next owner needs the port.
        drop(peers);
    }
}

/// Claims the EID that `cfg` asks for.
fn claim(cfg: &NodeCfg) -> Result<Claim, ClaimError> {
    if let Some(eid) = cfg.eid {
        return Claim::of(eid);
    }
    match cfg.eid_source {
        EidSource::Random => Claim::random(),
        EidSource::Host => Claim::of(ip_eid(host_address().ok_or(ClaimError::NoHostAddress)?)),
        // Other hosts would find a node that does not answer them.
        EidSource::HostIfFree if cfg.path == PathChoice::SameHost => Claim::random(),
        EidSource::HostIfFree => match host_address().map(|address| Claim::of(ip_eid(address))) {
            None => Claim::random(),
            Some(Err(ClaimError::Taken { eid, owner })) => {
                let claim = Claim::random()?;
                let own = eid_ip(claim.eid());
                tracing::info!(%own, "other hosts cannot reach this node: {owner} has this host's address {eid}");
                Ok(claim)
            }
            Some(claimed) => claimed,
        },
    }
}

/// Routes of the host, if they are needed: for connections of the standard opcodes.
fn routes(cfg: &NodeCfg, eid: RawEid) -> Option<Arc<dyn LocalRoutes>> {
    if cfg.rc != RcWire::Roce {
        return None;
    }
    RouteMtu::from(eid).map(|routes| Arc::new(routes) as Arc<dyn LocalRoutes>)
}

/// Window of a TP of such a node in packets, and how many of these may be in flight. As configured; else, with congestion
/// control, as many as fit a long path: that and the memory of a TP limit them. Without it 512, or what the
/// system's buffers hold if that is less (`kept`, where there are any); the window is eight times that, within what these
/// buffers hold: the peer may have no other limit.
#[must_use]
pub fn windows(cfg: &NodeCfg, kept: Option<u32>) -> (u32, u32) {
    let kept = kept.unwrap_or(u32::MAX).max(WINDOW_MIN);
    match (cfg.window_packets, cfg.congestion) {
        (Some(packets), _) => (packets, packets),
        (None, CongestionChoice::None) => (kept.min(SPAN * PATH_PACKETS), kept.min(PATH_PACKETS)),
        (None, _) => (WINDOW_AUTO, PATH_PACKETS),
    }
}

fn device_cfg(cfg: &NodeCfg, eid: RawEid) -> Result<DeviceCfg, io::Error> {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(io::Error::other)?;
    let incarnation = getrandom::u64().map_err(io::Error::other)?.max(1);
    let mut device = DeviceCfg::new(eid, incarnation, 0);
    device.seed = Seed(seed);
    device.uasid = cfg.uasid;
    device.mtu = cfg.mtu;
    device.rc = cfg.rc;
    device.ping_pongs = cfg.doorbells.ping_pongs();
    device.rc_mtu = cfg.rc_mtu;
    (device.strategy, device.adamap) = (cfg.strategy, cfg.adamap);
    device.congestion = cfg.congestion;
    device.lane = cfg.lane;
    device.port_mode = cfg.port_mode;
    device.loopback_owners = crate::host::loopback_owners;
    #[cfg(any(test, feature = "planted-faults"))]
    {
        device.fault = cfg.fault;
    }
    Ok(device)
}

/// Window of a TP in packets where the path bounds what is in flight: 100 ms at 220 MB/s with packets of 1,388 bytes. Each
/// packet more is one more that a blind sender hits (docs/security.md).
const WINDOW_AUTO: u32 = 16_384;
/// Smallest window of a TP in packets, however small the system's buffers are.
const WINDOW_MIN: u32 = 8;
/// Ratio of the window to the packets in flight: at 1 % loss a packet that is lost five times in a row does not stop
/// the sender.
const SPAN: u32 = 8;
/// What a setting of a model must be where nothing plugs one in.
const NO_MODELS: &str = "at its default: this node is opened without models of a NIC";
/// Interrupt vectors: one for asynchronous events, the others for event queues.
pub const VECTORS: u16 = limits::VECTORS;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_the_path_bounds_the_packets_in_flight_the_window_is_as_large_as_it_can_be() {
        let of = |packets, congestion, mtu, kept| {
            let cfg = NodeCfg { window_packets: packets, congestion, mtu, ..NodeCfg::default() };
            windows(&cfg, kept)
        };
        let none = CongestionChoice::None;
        assert_eq!(of(None, none, 8192, None), (4096, 512));
        assert_eq!(of(None, none, 8192, Some(900)), (900, 512));
        assert_eq!(of(None, none, 8192, Some(100)), (100, 100));
        assert_eq!(of(None, none, 8192, Some(0)), (WINDOW_MIN, WINDOW_MIN));
        assert_eq!(of(Some(9), none, 8192, Some(0)), (9, 9));
        for congestion in [CongestionChoice::Delay, CongestionChoice::Cubic] {
            assert_eq!(of(None, congestion, 8192, Some(100)).0, WINDOW_AUTO);
            assert_eq!(of(Some(9), congestion, 8192, None).0, 9);
        }
    }

    #[test]
    fn each_setting_reaches_the_device() {
        let eid = RawEid([7; 16]);
        let cfg = NodeCfg {
            uasid: 9,
            mtu: 1024,
            rc: RcWire::Roce,
            rc_mtu: Some(512),
            doorbells: Doorbells::Leased,
            strategy: crate::transport::Strategy::Irn,
            congestion: CongestionChoice::Delay,
            lane: crate::cfg::ExpressLane::Off,
            port_mode: PortMode::Balance,
            ..NodeCfg::default()
        };
        let device = device_cfg(&cfg, eid).unwrap();
        assert_eq!((device.eid, device.uasid, device.mtu), (eid, 9, 1024));
        assert_eq!((device.rc, device.rc_mtu), (cfg.rc, cfg.rc_mtu));
        assert_eq!(device.ping_pongs, Doorbells::Leased.ping_pongs());
        assert_eq!((device.strategy, device.congestion), (cfg.strategy, cfg.congestion));
        assert_eq!(device.lane, cfg.lane);
        assert_eq!(device.port_mode, PortMode::Balance);
        let other = device_cfg(&cfg, eid).unwrap();
        assert_ne!(device.incarnation, other.incarnation, "each life has its own number");
        assert_ne!(device.seed.0, other.seed.0, "and draws of its own");
    }
}
