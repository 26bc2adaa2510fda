//! Configuration of a node.
//!
//! *Owns*: [`NodeCfg`], its defaults, the environment variables. *Gives*: checked values.
//! *Must not*: open anything.

use std::{ffi::OsString, net::IpAddr, path::PathBuf};

use udma_abi::RawEid;
use urma_mem::{HugePages, Writers, fork::ForkCopies};
use urma_packet::{FurtherPorts, WINDOW_MAX};
use urma_recovery::{AdamapSizes, CongestionChoice};

use super::settings::{ConfigError, Setting, SettingOrigin, model_defaults, settings};
use crate::{
    cfg::{Doorbells, ExpressLane, PortMode, RcWire},
    host::{
        ip_eid,
        memory::{FileSharing, PageMoving},
        peer::trust::ShareWith,
        peer::{KernelReads, PathChoice},
        udp::UdpOffload,
    },
    link::{LinkFaults, LinkFaultsError},
    transport::Strategy,
};

/// How a node gets its EID if none is given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EidSource {
    /// A random address in 127.0.0.0/8 but outside 127.0.0.0/16, which only this host reaches.
    Random,
    /// The address of the host ([`crate::host::udp::address`]); a random one if another process has it or the node
    /// exchanges no packets.
    HostIfFree,
    /// The address of the host, or an error.
    Host,
}

/// Configuration with which a node is opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeCfg {
    /// Endpoint id; `None`: chosen by `eid_source`.
    pub eid: Option<RawEid>,
    /// How the EID is chosen if `eid` is `None`.
    pub eid_source: EidSource,
    /// Name of the device, 1 to 63 bytes.
    pub name: String,
    /// Addresses of further ports of this host in the order of preference, at most 3: packets to a peer use them when the
    /// route between the EIDs fails.
    pub ports: Vec<IpAddr>,
    /// How packets use several ports.
    pub port_mode: PortMode,
    /// Which paths to other nodes may be used.
    pub path: PathChoice,
    /// Whether registered pages are moved to memory that peers on this host access directly.
    pub page_moving: PageMoving,
    /// Whether threads that write to memory while it is moved are held.
    pub writers: Writers,
    /// Page size of moved memory.
    pub huge_pages: HugePages,
    /// Whether unshared memory of a peer may be read through the kernel.
    pub kernel_reads: KernelReads,
    /// Whether peers on this host map the files that registered memory belongs to, and this node theirs.
    pub file_sharing: FileSharing,
    /// What forked children get of registered memory; the newest node of the process decides.
    pub fork_copies: ForkCopies,
    /// Which processes of the user may share memory with this node.
    pub share_with: ShareWith,
    /// Whether short requests of idle send queues take the express lane.
    pub lane: ExpressLane,
    /// How the driver reaches the doorbells.
    pub doorbells: Doorbells,
    /// Settings of models of a NIC's insides that are not at their defaults. What plugs models in reads them and takes them
    /// out; [`Node::open`](super::Node::open) refuses them.
    pub models: Vec<Setting>,
    /// Most bytes of a segment on this host that its import maps in advance, so that the first access takes no page fault;
    /// 0: none.
    pub prepared_max: u64,
    /// Path MTU: most payload bytes of a packet, a power of two from 256 to 8192.
    pub mtu: u32,
    /// Protocol of RC jetties.
    pub rc: RcWire,
    /// Path MTU of RC jetties that speak the standard opcodes, the same at both ends: 256, 512, 1024, 2048 or 4096;
    /// `None`: the largest for the route to the peer when the jetty is bound.
    pub rc_mtu: Option<u32>,
    /// Send window of a TP in packets, 1 to 65536; a long path needs the rate times the round-trip time. `None`: 16384,
    /// and at most 64 MiB, since congestion control bounds the packets on the path; without it 512 of 4096,
    /// or what fits into the socket buffers if that is less.
    pub window_packets: Option<u32>,
    /// Whether the kernel segments runs of packets that one call sends (GSO) and joins received ones (GRO).
    pub udp_offload: UdpOffload,
    /// Faults of the packets that this node sends (loss, duplication, delay ...), for tests; `None`: none.
    pub link_faults: Option<LinkFaults>,
    /// Strategy of loss recovery, if the peer has the same; other pairs use the simpler of both, or selective repeat.
    pub strategy: Strategy,
    /// What a NIC holds of a TP with [`Strategy::Seed`].
    pub adamap: AdamapSizes,
    /// Congestion control, which bounds the packets of each TP on the path beside the window; the peer may have another.
    pub congestion: CongestionChoice,
    /// PCI address of a function, bound to the kernel's VFIO, that the program drives instead of a node of its own;
    /// `None`: a node, or the device of `ubcored`.
    pub vfio: Option<String>,
    /// Socket of the daemon `ubcored` whose device the program uses instead of its own; `None`: its own.
    pub ubcored: Option<PathBuf>,
    /// User address space id, 24 bits.
    pub uasid: u32,
    /// A planted fault, to show that a test can fail.
    #[cfg(any(test, feature = "planted-faults"))]
    pub fault: Option<crate::fault::PlantedFault>,
}

impl Default for NodeCfg {
    fn default() -> Self {
        Self {
            eid: None,
            eid_source: EidSource::Random,
            name: "udma0".to_owned(),
            ports: Vec::new(),
            port_mode: PortMode::default(),
            path: PathChoice::Auto,
            page_moving: PageMoving::On,
            writers: Writers::Held,
            huge_pages: HugePages::Off,
            kernel_reads: KernelReads::Probe,
            file_sharing: FileSharing::On,
            fork_copies: ForkCopies::On,
            share_with: ShareWith::Tracers,
            lane: ExpressLane::On,
            doorbells: Doorbells::Found,
            models: Vec::new(),
            prepared_max: PREPARED_MAX,
            mtu: 8192,
            rc: RcWire::Urma,
            rc_mtu: None,
            window_packets: None,
            udp_offload: UdpOffload::On,
            link_faults: None,
            strategy: Strategy::default(),
            adamap: AdamapSizes::default(),
            congestion: CongestionChoice::default(),
            vfio: None,
            ubcored: None,
            uasid: 0,
            #[cfg(any(test, feature = "planted-faults"))]
            fault: None,
        }
    }
}

impl NodeCfg {
    /// Reads the configuration: the defaults, overridden by the files of [`settings`] and by the environment:
    ///
    /// | variable | values |
    /// |---|---|
    /// | `URMA_EID` | an IPv4 or IPv6 address, `host` or `random` ([`EidSource`]); unset: [`EidSource::HostIfFree`] |
    /// | `URMA_PORTS` | addresses of further ports, with commas, or `none` |
    /// | `URMA_PORT_MODE` | `active-backup` (the first port that works), `balance` (all that work) |
    /// | `URMA_PATH` | `auto`, `same-host` (no packets), `packets` (no shared memory) |
    /// | `URMA_PAGE_MOVING` | `on`, `off` |
    /// | `URMA_HOLD_WRITERS` | `on` (where there is userfaultfd), `off` |
    /// | `URMA_HUGE_PAGES` | `on` (moved memory is joined to huge pages), `off` |
    /// | `URMA_KERNEL_READS` | `on` (where a probe shows that they work), `off` |
    /// | `URMA_SHARE_FILES` | `on` (memory that is a file mapped shared is mapped by peers on this host, too), `off` |
    /// | `URMA_FORK_COPIES` | `on` (a forked child has registered memory as at the fork), `off` |
    /// | `URMA_SHARE_WITH` | `tracers` (processes of the user that may trace this one), `user` (all of them) |
    /// | `URMA_LANE` | `on` (short requests of idle queues take the express lane), `off` |
    /// | `URMA_DOORBELLS` | `found` (once for each queue), `leased` (as `found`, leases at once), `exchange` (as `found`, without leases), `registers` |
    /// | `URMA_CONTEXT_CACHE` | `off`, `count` (requests are accounted in a model of a NIC's context cache) |
    /// | `URMA_PACKET_ENGINE` | `off`, `count` (messages by packets also go through a cycle model, which has counters) |
    /// | `URMA_PACKET_ENGINE_CFG` | `default`, or such as `scheme=fifo,data_beats=128` |
    /// | `URMA_PREPARE` | bytes of an imported segment that are mapped ahead at most, 0: none |
    /// | `URMA_MTU` | 256, 512, 1024, 2048, 4096, 8192 |
    /// | `URMA_RC` | `urma`, `roce` (RC jetties speak the standard RoCEv2 opcodes) |
    /// | `URMA_RC_MTU` | `route`, 256, 512, 1024, 2048, 4096: path MTU of these |
    /// | `URMA_TP_RECOVERY` | `go-back-n`, `selective-repeat`, `irn`, `knitting`: how lost packets are sent again, if
    ///   the peer does so, too |
    /// | `URMA_TP_WINDOW` | `auto`, or 1 to 65536: packets of a TP that may be unacknowledged |
    /// | `URMA_TP_CONGESTION` | `delay`, `cubic`, `none`: what bounds the packets that a TP of this node has on the path
    ///   ([`CongestionChoice`]) |
    /// | `URMA_UDP_OFFLOAD` | `on` (the kernel cuts and joins packets where it can: GSO, GRO), `off` |
    /// | `URMA_LINK_FAULTS` | such as `loss=1%,delay=5ms,seed=7` ([`LinkFaults`]) |
    /// | `URMA_VFIO` | PCI address of a function such as `0000:00:03.0`, or `none` |
    /// | `URMA_UBCORED` | path of the socket of `ubcored`, or `none` |
    ///
    /// # Errors
    /// [`ConfigError`] naming the variable.
    pub fn from_env() -> Result<Self, ConfigError> {
        let all = settings()?;
        let unset = Self { eid_source: EidSource::HostIfFree, ..Self::default() };
        let set = |setting: &&Setting| setting.origin != SettingOrigin::Default;
        let value = |name: &str| all.iter().filter(set).find(|setting| setting.variable == name);
        let look_up = |name: &str| value(name).map(|setting| OsString::from(&setting.value));
        let mut cfg = unset.with_overrides(look_up).map_err(|error| error.located(&all))?;
        for model in &mut cfg.models {
            let set = all.iter().find(|setting| setting.variable == model.variable);
            model.origin = set.map_or(SettingOrigin::Environment, |set| set.origin.clone());
        }
        Ok(cfg)
    }

    /// Overrides this configuration by the variables that `look_up` finds.
    ///
    /// # Errors
    /// The same as those of [`NodeCfg::from_env`].
    pub fn with_overrides(
        mut self,
        look_up: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, ConfigError> {
        let text = |name| look_up(name).map(|value| value.to_string_lossy().into_owned());
        if let Some(value) = text("URMA_EID") {
            (self.eid, self.eid_source) = match value.as_str() {
                "random" => (None, EidSource::Random),
                "host" => (None, EidSource::Host),
                text => {
                    let wanted = "an IPv4 or IPv6 address, host or random";
                    let address: Option<IpAddr> = text.parse().ok();
                    let wrong = || ConfigError::of("URMA_EID", value.clone(), wanted);
                    let address = address.ok_or_else(wrong)?;
                    (Some(ip_eid(address)), self.eid_source)
                }
            };
        }
        if let Some(value) = text("URMA_PORTS").filter(|value| value != "none") {
            self.ports = ports_of(value)?;
        }
        if let Some(value) = text("URMA_PORT_MODE") {
            self.port_mode = port_mode_of(value)?;
        }
        self.path = text("URMA_PATH").map_or(Ok(self.path), path_of)?;
        let switch = |name| text(name).map(|value| is_on(name, value)).transpose();
        if let Some(is_on) = switch("URMA_PAGE_MOVING")? {
            self.page_moving = if is_on { PageMoving::On } else { PageMoving::Off };
        }
        if let Some(is_on) = switch("URMA_HOLD_WRITERS")? {
            self.writers = if is_on { Writers::Held } else { Writers::Trusted };
        }
        if let Some(is_on) = switch("URMA_HUGE_PAGES")? {
            self.huge_pages = if is_on { HugePages::Joined } else { HugePages::Off };
        }
        if let Some(is_on) = switch("URMA_KERNEL_READS")? {
            self.kernel_reads = if is_on { KernelReads::Probe } else { KernelReads::Off };
        }
        if let Some(is_on) = switch("URMA_SHARE_FILES")? {
            self.file_sharing = if is_on { FileSharing::On } else { FileSharing::Off };
        }
        if let Some(is_on) = switch("URMA_FORK_COPIES")? {
            self.fork_copies = if is_on { ForkCopies::On } else { ForkCopies::Off };
        }
        self.share_with = text("URMA_SHARE_WITH").map_or(Ok(self.share_with), share_with_of)?;
        if let Some(is_on) = switch("URMA_LANE")? {
            self.lane = if is_on { ExpressLane::On } else { ExpressLane::Off };
        }
        self.doorbells = text("URMA_DOORBELLS").map_or(Ok(self.doorbells), doorbells_of)?;
        self.set_models(text);
        if let Some(value) = text("URMA_PREPARE") {
            let (name, wanted) = ("URMA_PREPARE", "a number of bytes");
            let wrong =
                |_| ConfigError { name, value: value.clone(), wanted: wanted.into(), at: None };
            self.prepared_max = value.parse().map_err(wrong)?;
        }
        if let Some(value) = text("URMA_MTU") {
            let wanted = MTU_WANTED;
            self.mtu = value.parse().map_err(|_| ConfigError {
                name: "URMA_MTU",
                value,
                wanted: wanted.into(),
                at: None,
            })?;
        }
        self.vfio = text("URMA_VFIO").filter(|address| address != "none");
        self.ubcored = look_up("URMA_UBCORED").filter(|path| path != "none").map(PathBuf::from);
        self.set_rc(text("URMA_RC"), text("URMA_RC_MTU"))?;
        self.set_tp(text("URMA_TP_RECOVERY"), text("URMA_TP_WINDOW"), text("URMA_TP_CONGESTION"))?;
        self.set_link(switch("URMA_UDP_OFFLOAD")?, text("URMA_LINK_FAULTS"))?;
        self.check()?;
        Ok(self)
    }

    fn set_tp(
        &mut self,
        recovery: Option<String>,
        window: Option<String>,
        congestion: Option<String>,
    ) -> Result<(), ConfigError> {
        if let Some(value) = recovery {
            (self.strategy, self.adamap) = recovery_of(value)?;
        }
        if let Some(value) = window {
            self.window_packets = window_of(value)?;
        }
        if let Some(value) = congestion {
            self.congestion = congestion_of(value)?;
        }
        Ok(())
    }

    /// Returns how datagrams are sent and received.
    fn set_link(
        &mut self,
        has_offload: Option<bool>,
        faults: Option<String>,
    ) -> Result<(), ConfigError> {
        if let Some(is_on) = has_offload {
            self.udp_offload = if is_on { UdpOffload::On } else { UdpOffload::Off };
        }
        if let Some(value) = faults.filter(|value| value != "none") {
            let wrong = |LinkFaultsError { part, wanted }| {
                let (name, wanted) = ("URMA_LINK_FAULTS", wanted.into());
                ConfigError { name, value: part, wanted, at: None }
            };
            self.link_faults = Some(value.parse().map_err(wrong)?);
        }
        Ok(())
    }

    /// Takes settings of models as they are.
    fn set_models(&mut self, text: impl Fn(&'static str) -> Option<String>) {
        for setting in model_defaults() {
            let Some(value) = text(setting.variable) else { continue };
            self.models.retain(|known| known.variable != setting.variable);
            if value != setting.value {
                let origin = SettingOrigin::Environment;
                self.models.push(Setting { value, origin, ..setting });
            }
        }
    }

    fn set_rc(&mut self, wire: Option<String>, mtu: Option<String>) -> Result<(), ConfigError> {
        if let Some(value) = wire {
            self.rc = rc_of(value)?;
        }
        if let Some(value) = mtu {
            self.rc_mtu = rc_mtu_of(value)?;
        }
        Ok(())
    }

    /// Returns the addresses of the ports beside the EID.
    pub(super) fn further_ports(&self) -> Result<FurtherPorts, ConfigError> {
        let ports: Vec<_> = self.ports.iter().map(|address| ip_eid(*address).0).collect();
        FurtherPorts::new(&ports).map_err(|_| self.wrong_ports())
    }

    fn wrong_ports(&self) -> ConfigError {
        let ports: Vec<_> = self.ports.iter().map(ToString::to_string).collect();
        ConfigError::ports(ports.join(","))
    }

    /// Checks whether a node can be opened with this configuration.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let refuse = |name, value: u32, wanted: &'static str| {
            Err(ConfigError { name, value: value.to_string(), wanted: wanted.into(), at: None })
        };
        if self.name.is_empty() || self.name.len() > NAME_MAX {
            let (value, wanted) = (self.name.clone(), "of 1 to 63 bytes");
            return Err(ConfigError {
                name: "device name",
                value,
                wanted: wanted.into(),
                at: None,
            });
        }
        if !self.mtu.is_power_of_two() || !(256..=8192).contains(&self.mtu) {
            return refuse("mtu", self.mtu, MTU_WANTED);
        }
        if let Some(mtu) = self.rc_mtu
            && (!mtu.is_power_of_two() || !(256..=4096).contains(&mtu))
        {
            return refuse("rc_mtu", mtu, RC_MTU_WANTED);
        }
        if self.rc == RcWire::Roce && self.path == PathChoice::SameHost {
            let (value, wanted) = ("roce".to_owned(), "urma where packets are turned off (path)");
            return Err(ConfigError { name: "rc", value, wanted: wanted.into(), at: None });
        }
        if let Some(packets) = self.window_packets
            && !(1..=WINDOW_MAX).contains(&packets)
        {
            return refuse("window_packets", packets, "from 1 to 65536");
        }
        if self.uasid >> 24 != 0 {
            return refuse("uasid", self.uasid, "a number of 24 bits");
        }
        let is_eid = |port| self.eid == Some(RawEid(port));
        if self.further_ports()?.iter().any(is_eid) {
            return Err(self.wrong_ports());
        }
        if self.eid == Some(RawEid::default()) {
            let (value, wanted) = ("::".to_owned(), "an address of one node");
            return Err(ConfigError { name: "eid", value, wanted: wanted.into(), at: None });
        }
        Ok(())
    }
}

fn ports_of(value: String) -> Result<Vec<IpAddr>, ConfigError> {
    let addresses = value.split(',').map(|part| part.trim().parse());
    addresses.collect::<Result<_, _>>().map_err(|_| ConfigError::ports(value))
}

fn port_mode_of(value: String) -> Result<PortMode, ConfigError> {
    match value.as_str() {
        "active-backup" => Ok(PortMode::ActiveBackup),
        "balance" => Ok(PortMode::Balance),
        _ => {
            let wanted = "active-backup or balance";
            Err(ConfigError { name: "URMA_PORT_MODE", value, wanted: wanted.into(), at: None })
        }
    }
}

/// The strategy, and after a colon the sizes of Adamaps: `seed:list=8`.
fn recovery_of(value: String) -> Result<(Strategy, AdamapSizes), ConfigError> {
    let (name, sizes) = value.split_once(':').map_or((&*value, None), |(a, b)| (a, Some(b)));
    let found = Strategy::ALL.into_iter().find(|strategy| strategy.name() == name);
    let found = found.filter(|strategy| *strategy == Strategy::Seed || sizes.is_none());
    let sizes = sizes.unwrap_or_default().parse::<AdamapSizes>();
    let wanted = "go-back-n, selective-repeat, irn, knitting, or seed, of which sizes from 1 to 64 may be set, with \
                  watermark below list: seed:bits=32,list=3,watermark=2,table=2";
    match (found, sizes) {
        (Some(strategy), Ok(sizes)) => Ok((strategy, sizes)),
        _ => Err(ConfigError::of("URMA_TP_RECOVERY", value, wanted)),
    }
}

fn window_of(value: String) -> Result<Option<u32>, ConfigError> {
    if value == "auto" {
        return Ok(None);
    }
    let packets = value.parse().ok().filter(|packets| (1..=WINDOW_MAX).contains(packets));
    let wanted = "auto, or a number of packets from 1 to 65536";
    let wrong = || ConfigError { name: "URMA_TP_WINDOW", value, wanted: wanted.into(), at: None };
    packets.map(Some).ok_or_else(wrong)
}

fn congestion_of(value: String) -> Result<CongestionChoice, ConfigError> {
    let found = CongestionChoice::ALL.into_iter().find(|congestion| congestion.name() == value);
    let wanted = "none, cubic or delay";
    found.ok_or_else(|| ConfigError::of("URMA_TP_CONGESTION", value, wanted))
}

fn path_of(value: String) -> Result<PathChoice, ConfigError> {
    match value.as_str() {
        "auto" => Ok(PathChoice::Auto),
        "same-host" => Ok(PathChoice::SameHost),
        "packets" => Ok(PathChoice::Packets),
        _ => {
            let wanted = "auto, same-host or packets";
            Err(ConfigError { name: "URMA_PATH", value, wanted: wanted.into(), at: None })
        }
    }
}

fn share_with_of(value: String) -> Result<ShareWith, ConfigError> {
    match value.as_str() {
        "tracers" => Ok(ShareWith::Tracers),
        "user" => Ok(ShareWith::User),
        _ => Err(ConfigError::of("URMA_SHARE_WITH", value, "tracers or user")),
    }
}

fn rc_of(value: String) -> Result<RcWire, ConfigError> {
    match value.as_str() {
        "urma" => Ok(RcWire::Urma),
        "roce" => Ok(RcWire::Roce),
        _ => {
            let wanted = "urma or roce";
            Err(ConfigError { name: "URMA_RC", value, wanted: wanted.into(), at: None })
        }
    }
}

fn rc_mtu_of(value: String) -> Result<Option<u32>, ConfigError> {
    if value == "route" {
        return Ok(None);
    }
    let (name, wanted) = ("URMA_RC_MTU", RC_MTU_WANTED);
    value.parse().map(Some).map_err(|_| ConfigError {
        name,
        value,
        wanted: wanted.into(),
        at: None,
    })
}

fn doorbells_of(value: String) -> Result<Doorbells, ConfigError> {
    match value.as_str() {
        "found" => Ok(Doorbells::Found),
        "leased" => Ok(Doorbells::Leased),
        "exchange" => Ok(Doorbells::Exchange),
        "registers" => Ok(Doorbells::Registers),
        _ => {
            let wanted = "found, leased, exchange or registers";
            Err(ConfigError { name: "URMA_DOORBELLS", value, wanted: wanted.into(), at: None })
        }
    }
}

/// Parses a switch: `on` or `off`.
fn is_on(name: &'static str, value: String) -> Result<bool, ConfigError> {
    match value.as_str() {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(ConfigError { name, value, wanted: "on or off".into(), at: None }),
    }
}

/// Most bytes of a device name: `URMA_MAX_NAME` without the final zero (UMDK release 26.06).
const NAME_MAX: usize = 63;
/// Default of what an import maps in advance: mapping that much for the first time takes about 1 ms.
const PREPARED_MAX: u64 = 4 << 20;
const MTU_WANTED: &str = "a power of two from 256 to 8192";
const RC_MTU_WANTED: &str = "route, or a power of two from 256 to 4096";

#[cfg(test)]
mod tests {
    use super::*;

    use crate::host::eid_ip;

    fn with(name: &'static str, value: &'static str) -> Result<NodeCfg, ConfigError> {
        NodeCfg::default().with_overrides(|asked| (asked == name).then(|| value.into()))
    }

    #[test]
    fn overrides_change_what_they_name() {
        let local = ip_eid(IpAddr::from([127, 1, 2, 3]));
        assert_eq!(with("URMA_EID", "127.1.2.3").unwrap().eid, Some(local));
        assert_eq!(with("URMA_EID", "random").unwrap(), NodeCfg::default());
        let host = NodeCfg { eid_source: EidSource::Host, ..NodeCfg::default() };
        assert_eq!(with("URMA_EID", "host").unwrap(), host);
        let two = [IpAddr::from([10, 1, 0, 3]), "fd80::3".parse().unwrap()];
        assert_eq!(with("URMA_PORTS", "10.1.0.3, fd80::3").unwrap().ports, two);
        let is_eid = NodeCfg { eid: Some(local), ports: vec![eid_ip(local)], ..NodeCfg::default() };
        assert!(is_eid.check().unwrap_err().to_string().contains("PORTS"));
        for strategy in Strategy::ALL {
            assert_eq!(with("URMA_TP_RECOVERY", strategy.name()).unwrap().strategy, strategy);
        }
        let seed = with("URMA_TP_RECOVERY", "seed:list=8,watermark=4").unwrap();
        assert_eq!((seed.adamap.list_nodes, seed.adamap.watermark), (8, 4));
        for congestion in CongestionChoice::ALL {
            assert_eq!(
                with("URMA_TP_CONGESTION", congestion.name()).unwrap().congestion,
                congestion
            );
        }
        assert_eq!(with("URMA_PORT_MODE", "balance").unwrap().port_mode, PortMode::Balance);
        let backup = with("URMA_PORT_MODE", "active-backup").unwrap().port_mode;
        assert_eq!(backup, PortMode::ActiveBackup);
        assert_eq!(with("URMA_TP_WINDOW", "65536").unwrap().window_packets, Some(65_536));
        assert_eq!(with("URMA_TP_WINDOW", "auto").unwrap().window_packets, None);
        assert_eq!(with("URMA_PATH", "packets").unwrap().path, PathChoice::Packets);
        assert_eq!(with("URMA_PAGE_MOVING", "off").unwrap().page_moving, PageMoving::Off);
        assert_eq!(with("URMA_HOLD_WRITERS", "off").unwrap().writers, Writers::Trusted);
        assert_eq!(with("URMA_HUGE_PAGES", "on").unwrap().huge_pages, HugePages::Joined);
        assert_eq!(with("URMA_KERNEL_READS", "off").unwrap().kernel_reads, KernelReads::Off);
        assert_eq!(with("URMA_SHARE_FILES", "off").unwrap().file_sharing, FileSharing::Off);
        assert_eq!(with("URMA_FORK_COPIES", "off").unwrap().fork_copies, ForkCopies::Off);
        assert_eq!(with("URMA_SHARE_WITH", "user").unwrap().share_with, ShareWith::User);
        assert_eq!(with("URMA_SHARE_WITH", "tracers").unwrap().share_with, ShareWith::Tracers);
        assert_eq!(with("URMA_LANE", "off").unwrap().lane, ExpressLane::Off);
        assert_eq!(with("URMA_UDP_OFFLOAD", "off").unwrap().udp_offload, UdpOffload::Off);
        let doorbells = |value| with("URMA_DOORBELLS", value).unwrap().doorbells;
        assert_eq!(doorbells("registers"), Doorbells::Registers);
        assert_eq!(doorbells("found"), Doorbells::Found);
        assert_eq!(doorbells("leased"), Doorbells::Leased);
        assert_eq!(doorbells("exchange"), Doorbells::Exchange);
        assert_eq!(with("URMA_VFIO", "none").unwrap().vfio, None);
        assert_eq!(with("URMA_VFIO", "00:03.0").unwrap().vfio, Some("00:03.0".into()));
        assert_eq!(with("URMA_UBCORED", "none").unwrap().ubcored, None);
        assert_eq!(with("URMA_UBCORED", "/run/s").unwrap().ubcored, Some("/run/s".into()));
        assert_eq!(with("URMA_MTU", "256").unwrap().mtu, 256);
        assert_eq!(with("URMA_RC", "roce").unwrap().rc, RcWire::Roce);
        assert_eq!(with("URMA_RC_MTU", "4096").unwrap().rc_mtu, Some(4096));
        assert_eq!(with("URMA_RC_MTU", "route").unwrap().rc_mtu, None);
        let faults = with("URMA_LINK_FAULTS", "loss=1%,seed=7").unwrap().link_faults.unwrap();
        assert_eq!((faults.cfg.loss_ppm, faults.seed), (10_000, 7));
    }

    #[test]
    fn settings_of_models_are_kept_for_what_plugs_these_in() {
        let cfg = with("URMA_CONTEXT_CACHE", "count").unwrap();
        let [setting] = &cfg.models[..] else { panic!("{:?}", cfg.models) };
        assert_eq!((setting.key, setting.value.as_str()), ("context_cache", "count"));
        let error = crate::Node::open(cfg.clone()).unwrap_err().to_string();
        assert!(error.contains("URMA_CONTEXT_CACHE is \"count\""), "{error}");
        let off = |name: &str| (name == "URMA_CONTEXT_CACHE").then(|| "off".into());
        assert_eq!(cfg.with_overrides(off).unwrap().models, []);
    }

    #[test]
    fn a_device_name_has_1_to_63_bytes() {
        for (len, is_good) in [(0, false), (1, true), (63, true), (64, false)] {
            let cfg = NodeCfg { name: "n".repeat(len), ..NodeCfg::default() };
            assert_eq!(cfg.check().is_ok(), is_good, "{len} bytes");
        }
    }

    #[test]
    fn each_bound_is_allowed_and_one_beyond_refused() {
        let check = |change: &dyn Fn(&mut NodeCfg)| {
            let mut cfg = NodeCfg::default();
            change(&mut cfg);
            cfg.check().map_err(|error| error.to_string())
        };
        for (mtu, is_good) in
            [(128, false), (256, true), (4096, true), (8192, true), (16_384, false)]
        {
            let refused = check(&|cfg| cfg.mtu = mtu);
            assert_eq!(refused.is_ok(), is_good, "{mtu}: {refused:?}");
        }
        for (mtu, is_good) in [(128, false), (256, true), (300, false), (4096, true), (8192, false)]
        {
            let refused = check(&|cfg| cfg.rc_mtu = Some(mtu));
            assert_eq!(refused.is_ok(), is_good, "{mtu}: {refused:?}");
        }
        for (packets, is_good) in
            [(0, false), (1, true), (WINDOW_MAX, true), (WINDOW_MAX + 1, false)]
        {
            let refused = check(&|cfg| cfg.window_packets = Some(packets));
            assert_eq!(refused.is_ok(), is_good, "{packets}: {refused:?}");
        }
        for (uasid, is_good) in
            [(0, true), ((1 << 24) - 1, true), (1 << 24, false), (u32::MAX, false)]
        {
            let refused = check(&|cfg| cfg.uasid = uasid);
            assert_eq!(refused.is_ok(), is_good, "{uasid}: {refused:?}");
        }
        for (path, is_good) in
            [(PathChoice::Auto, true), (PathChoice::Packets, true), (PathChoice::SameHost, false)]
        {
            let refused = check(&|cfg| (cfg.rc, cfg.path) = (RcWire::Roce, path));
            assert_eq!(refused.is_ok(), is_good, "{path:?}: {refused:?}");
            assert_eq!(check(&|cfg| cfg.path = path), Ok(()));
        }
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        for (name, value) in [
            ("URMA_EID", "localhost"),
            ("URMA_EID", "::"),
            ("URMA_PORTS", "10.0.0.1,host"),
            ("URMA_PORTS", "10.0.0.1,10.0.0.1"),
            ("URMA_PORTS", "10.0.0.1,224.0.0.1"),
            ("URMA_PORTS", "10.0.0.1,10.0.0.2,10.0.0.3,10.0.0.4"),
            ("URMA_PORT_MODE", "standalone"),
            ("URMA_TP_RECOVERY", "sack"),
            ("URMA_TP_WINDOW", "0"),
            ("URMA_TP_WINDOW", "65537"),
            ("URMA_TP_WINDOW", "1M"),
            ("URMA_TP_CONGESTION", "reno"),
            ("URMA_PATH", ""),
            ("URMA_PAGE_MOVING", "yes"),
            ("URMA_KERNEL_READS", "1"),
            ("URMA_SHARE_FILES", "all"),
            ("URMA_FORK_COPIES", "never"),
            ("URMA_HOLD_WRITERS", ""),
            ("URMA_HUGE_PAGES", "2M"),
            ("URMA_LANE", "fast"),
            ("URMA_SHARE_WITH", "all"),
            ("URMA_UDP_OFFLOAD", "gso"),
            ("URMA_DOORBELLS", "on"),
            ("URMA_PREPARE", "4M"),
            ("URMA_MTU", "1500"),
            ("URMA_MTU", "16384"),
            ("URMA_RC", "verbs"),
            ("URMA_RC_MTU", "8192"),
            ("URMA_RC_MTU", "1500"),
            ("URMA_LINK_FAULTS", "loss=2"),
        ] {
            let error = with(name, value).unwrap_err().to_string().to_lowercase();
            let short = name.trim_start_matches("URMA_").to_lowercase();
            assert!(error.contains(&short), "{error}");
        }
    }
}
