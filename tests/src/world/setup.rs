//! In which surroundings a behaviour is tried: the list of setups and their names; and functions of the kernel's
//! VFIO.
//!
//! Functions come from the environment and stay open until this process ends. Must not bind one to a driver.

use std::{
    fmt,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use ubcore_sim::{
    CongestionChoice, Doorbells, ExpressLane, RcWire, Strategy, host::udp::UdpOffload,
};
use udma_provider::{DriverCfg, RingPages, UdmaDevice};
use udma_vfio::{PciNic, kernel::KernelDevice};
use urma_core::{Device, TransportMode};

use super::{Failure, Outcome};

/// How the two ends reach each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Link {
    /// They are one node.
    Own,
    /// Two nodes on one host that share memory.
    Host,
    /// Two nodes that only exchange packets.
    Packets,
}

/// Whether registered pages move to memory that peers reach directly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moving {
    /// Registered pages move into the shared file.
    On,
    /// Registered pages stay where they are: peers do not reach them directly.
    Off,
    /// They stay, and READs go through the kernel where it lets them.
    Kernel,
    /// The ends' segments lie in files that are mapped shared, and peers map these.
    Files,
}

/// By which interface the objects are made and used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Face {
    /// Tests call the Rust API.
    Rust,
    /// The Rust API over the exported C functions.
    C,
}

/// Combination of interface, link, page moving and transport mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Setup {
    /// Interface that the tests call: Rust, or C through the adapter.
    pub face: Face,
    /// The path between the ends.
    pub link: Link,
    /// Whether registered pages move into the shared file.
    pub moving: Moving,
    /// Transport mode of the jetties.
    pub mode: TransportMode,
    /// Whether short requests of idle queues take the express lane.
    pub lane: ExpressLane,
    /// How the driver reaches the doorbells.
    pub doorbells: Doorbells,
    /// What carries the requests of RC jetties.
    pub rc: RcWire,
    /// Whether packets are lost, doubled, changed and overtaken on their way.
    pub is_lossy: bool,
    /// Whether each node is on a host of its own, a network namespace.
    pub has_hosts: bool,
    /// Whether the kernel cuts and joins packets.
    pub offload: UdpOffload,
    /// Whether the driver reaches each device through a vfio-user socket.
    pub is_served: bool,
    /// Whether the devices are functions that the kernel's VFIO has, as in a virtual machine.
    pub is_vfio: bool,
    /// How lost packets are sent again.
    pub recovery: Strategy,
    /// What bounds the packets of a TP on the path.
    pub congestion: CongestionChoice,
    /// Whether the devices account their requests in the models of a NIC.
    pub is_counted: bool,
    /// Whether the ends sleep on the descriptors of their JFCEs for each completion, and call nothing meanwhile.
    pub sleeps: bool,
    /// A mistake that the devices make.
    #[cfg(feature = "planted-faults")]
    pub fault: Option<ubcore_sim::fault::PlantedFault>,
}

impl Setup {
    /// A combination without faults.
    #[must_use]
    pub const fn new(link: Link, moving: Moving, mode: TransportMode) -> Self {
        Self {
            face: Face::Rust,
            link,
            moving,
            mode,
            lane: ExpressLane::On,
            doorbells: Doorbells::Found,
            rc: RcWire::Urma,
            is_lossy: false,
            has_hosts: false,
            offload: UdpOffload::On,
            is_served: false,
            is_vfio: false,
            recovery: Strategy::Knitting,
            congestion: CongestionChoice::None,
            is_counted: false,
            sleeps: false,
            #[cfg(feature = "planted-faults")]
            fault: None,
        }
    }

    /// The same without the express lane, and by registers.
    #[must_use]
    pub const fn on_the_long_path(self) -> Self {
        Self { lane: ExpressLane::Off, doorbells: Doorbells::Registers, ..self }
    }

    /// The same by doorbells of another kind.
    #[must_use]
    pub const fn rung_by(self, doorbells: Doorbells) -> Self {
        Self { doorbells, ..self }
    }

    /// The same while packets are lost, doubled, changed and overtaken on their way.
    #[must_use]
    pub const fn over_a_bad_link(self) -> Self {
        Self { is_lossy: true, ..self }
    }

    /// The same with each node on a host of its own, at one bridge.
    #[must_use]
    pub const fn between_hosts(self) -> Self {
        Self { has_hosts: true, ..self }
    }

    /// The same with each packet a datagram of its own for the kernel.
    #[must_use]
    pub const fn without_offload(self) -> Self {
        Self { offload: UdpOffload::Off, ..self }
    }

    /// The same with each device behind a vfio-user socket.
    #[must_use]
    pub const fn served(self) -> Self {
        Self { is_served: true, ..self }
    }

    /// The same on functions that the kernel's VFIO has.
    #[must_use]
    pub const fn behind_vfio(self) -> Self {
        Self { is_vfio: true, ..self }
    }

    /// The same with lost packets sent again in another way.
    #[must_use]
    pub const fn recovered_by(self, recovery: Strategy) -> Self {
        Self { recovery, ..self }
    }

    /// The same with packets on the path bounded in another way.
    #[must_use]
    pub const fn bounded_by(self, congestion: CongestionChoice) -> Self {
        Self { congestion, ..self }
    }

    /// The same with requests accounted in the models of a NIC.
    #[must_use]
    pub const fn counted(self) -> Self {
        Self { is_counted: true, ..self }
    }

    /// The same for programs that only sleep on descriptors.
    #[must_use]
    pub const fn asleep(self) -> Self {
        Self { sleeps: true, ..self }
    }

    /// The same with RC jetties that speak the standard opcodes.
    #[must_use]
    pub const fn in_standard_packets(self) -> Self {
        Self { rc: RcWire::Roce, ..self }
    }

    /// The same through the C functions.
    #[must_use]
    pub const fn through_c(self) -> Self {
        Self { face: Face::C, ..self }
    }

    /// The combinations that are tried through the C functions: what the path between two nodes and
    /// the mode change; page moving is below both faces.
    #[must_use]
    pub fn all_through_c() -> Vec<Self> {
        let links = [Link::Host, Link::Packets];
        let modes = [TransportMode::Rm, TransportMode::Rc, TransportMode::Um];
        let all = links.iter().flat_map(|link| modes.iter().map(move |mode| (*link, *mode)));
        let asleep = Self::new(Link::Host, Moving::On, TransportMode::Rm).asleep();
        all.map(|(link, mode)| Self::new(link, Moving::On, mode))
            .chain([asleep])
            .map(Self::through_c)
            .collect()
    }

    /// All combinations of the Rust API.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let long = |link, mode| Self::new(link, Moving::On, mode).on_the_long_path();
        let rung =
            |link, doorbells| Self::new(link, Moving::On, TransportMode::Rm).rung_by(doorbells);
        let standard = |link| Self::new(link, Moving::On, TransportMode::Rc).in_standard_packets();
        let mut all = vec![
            standard(Link::Own),
            standard(Link::Packets).over_a_bad_link(),
            Self::new(Link::Host, Moving::Kernel, TransportMode::Rm),
            Self::new(Link::Host, Moving::Files, TransportMode::Rm),
            long(Link::Own, TransportMode::Rm),
            long(Link::Host, TransportMode::Rm),
            long(Link::Host, TransportMode::Rc),
            rung(Link::Own, Doorbells::Leased),
            rung(Link::Host, Doorbells::Leased),
            rung(Link::Own, Doorbells::Exchange),
            rung(Link::Host, Doorbells::Exchange),
            Self::new(Link::Packets, Moving::On, TransportMode::Rm).over_a_bad_link(),
            Self::new(Link::Packets, Moving::On, TransportMode::Rm).between_hosts(),
            Self::new(Link::Packets, Moving::On, TransportMode::Rm)
                .between_hosts()
                .without_offload(),
            Self::new(Link::Own, Moving::On, TransportMode::Rm).served(),
            Self::new(Link::Host, Moving::On, TransportMode::Rm).served(),
            Self::new(Link::Own, Moving::On, TransportMode::Rm)
                .served()
                .rung_by(Doorbells::Registers),
        ];
        if is_there() {
            all.push(Self::new(Link::Own, Moving::On, TransportMode::Rm).behind_vfio());
        }
        let counted = |link| Self::new(link, Moving::On, TransportMode::Rm).counted();
        all.extend([counted(Link::Host), counted(Link::Packets)]);
        let asleep = |link| Self::new(link, Moving::On, TransportMode::Rm).asleep();
        all.extend([Link::Own, Link::Host, Link::Packets].map(asleep));
        all.push(asleep(Link::Own).served());
        let lossy = Self::new(Link::Packets, Moving::On, TransportMode::Rm).over_a_bad_link();
        let others = [Strategy::GoBackN, Strategy::Irn, Strategy::SelectiveRepeat, Strategy::Seed];
        for congestion in CongestionChoice::ALL {
            let bounded = lossy.bounded_by(congestion);
            all.extend(others.map(|strategy| bounded.recovered_by(strategy)));
        }
        for link in [Link::Own, Link::Host, Link::Packets] {
            for moving in [Moving::On, Moving::Off] {
                for mode in [TransportMode::Rm, TransportMode::Rc, TransportMode::Um] {
                    all.push(Self::new(link, moving, mode));
                }
            }
        }
        all
    }
}

impl fmt::Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let link = match self.link {
            Link::Own => "own",
            Link::Host => "host",
            Link::Packets => "packets",
        };
        let moving = match self.moving {
            Moving::On => "moved",
            Moving::Off => "still",
            Moving::Kernel => "kernel",
            Moving::Files => "files",
        };
        let mode = match self.mode {
            TransportMode::Rm => "rm",
            TransportMode::Rc => "rc",
            TransportMode::Um => "um",
        };
        let face = match self.face {
            Face::Rust => "",
            Face::C => "c.",
        };
        let lane = match self.lane {
            ExpressLane::On => "",
            ExpressLane::Off => ".long",
        };
        let doorbells = match self.doorbells {
            Doorbells::Registers if self.is_served => ".registers",
            Doorbells::Found | Doorbells::Registers => "",
            Doorbells::Leased => ".leased",
            Doorbells::Exchange => ".exchange",
        };
        let wire = match self.rc {
            RcWire::Urma => "",
            RcWire::Roce => ".roce",
        };
        let way = match (self.is_lossy, self.has_hosts) {
            (false, false) => "",
            (true, false) => ".lossy",
            (false, true) => ".hosts",
            (true, true) => ".lossy.hosts",
        };
        let offload = match self.offload {
            UdpOffload::On => "",
            UdpOffload::Off => ".no-offload",
        };
        let served = match (self.is_served, self.is_vfio) {
            (false, false) => "",
            (true, _) => ".served",
            (false, true) => ".vfio",
        };
        let recovery = match self.recovery {
            Strategy::Knitting => "",
            Strategy::GoBackN => ".go-back-n",
            Strategy::Irn => ".irn",
            Strategy::SelectiveRepeat => ".selective-repeat",
            Strategy::Seed => ".seed",
        };
        let congestion = match self.congestion {
            CongestionChoice::None => "",
            CongestionChoice::Cubic => ".cubic",
            CongestionChoice::Delay => ".delay",
        };
        let counted = if self.is_counted { ".counted" } else { "" };
        let sleeps = if self.sleeps { ".asleep" } else { "" };
        write!(
            f,
            "{face}{link}.{moving}.{mode}{lane}{doorbells}{wire}{way}{offload}{served}{recovery}{congestion}{counted}{sleeps}"
        )
    }
}

/// Variable with the addresses of two functions of one node, with a comma.
const FUNCTIONS: &str = "URMA_TEST_FUNCTIONS";

/// Whether there are functions to test on.
pub(super) fn is_there() -> bool {
    std::env::var_os(FUNCTIONS).is_some()
}

/// The device on a function, the same one for each call.
pub(super) fn device(number: usize) -> Outcome<Device> {
    static OPEN: OnceLock<[Mutex<Option<Device>>; 2]> = OnceLock::new();
    let open = OPEN.get_or_init(Default::default).get(number);
    let open = open.ok_or_else(|| Failure::new(format!("there is no function {number}")))?;
    let mut open = open.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(device) = &*open {
        return Ok(device.clone());
    }
    let device = opened(number).map_err(|why| Failure::new(format!("{FUNCTIONS}: {why}")))?;
    Ok(open.insert(device).clone())
}

fn opened(number: usize) -> Result<Device, String> {
    let list = std::env::var(FUNCTIONS).map_err(|error| error.to_string())?;
    let address = list.split(',').nth(number).ok_or("it names two functions")?;
    let address = address.parse().map_err(|error| format!("{address}: {error}"))?;
    let function = KernelDevice::open(address).map_err(|error| error.to_string())?;
    let nic = PciNic::new(Arc::new(function)).map_err(|error| error.to_string())?;
    let cfg = DriverCfg { ring_pages: RingPages::Huge, ..DriverCfg::default() };
    Ok(Device::new(Arc::new(UdmaDevice::new(Arc::new(nic), cfg))))
}
