//! Nodes with a driver on them.
//!
//! *Owns*: the composition of node, driver and context. *Must not*: depend on queues.

use std::{
    cell::OnceCell,
    os::unix::net::UnixStream,
    sync::{Arc, OnceLock},
    time::Duration,
};

use ubcore_sim::{
    Doorbells,
    device::{FunctionCfg, FunctionQuota},
    host::{
        claim::ClaimError,
        ip_eid,
        memory::{FileSharing, PageMoving},
        peer::{KernelReads, PathChoice},
    },
    link::{FaultCfg, LinkFaults},
    node::{Node, NodeCfg, NodeError, Setting},
};
use ubcored::{Attendants, DescriptorBudget, NodeFunction};
use udma_provider::device_on;
use udma_vfio::{
    PciNic,
    user::{MapQuota, UserDevice, serve},
};
use urma_c_adapter::CDevice;
use urma_core::{Context, Device};
use urma_mem::sync::{AtomicU64, Ordering};
use urma_net::{Lab, LabPlan, Refused};

use super::{Face, Failure, Link, Moving, Outcome, Setup, fail, setup};

/// A device and a context on it.
#[derive(Clone, Debug)]
pub struct Host {
    /// Open context of the device.
    pub ctx: Arc<Context>,
    /// Where the device is.
    pub origin: DeviceOrigin,
}

/// Where a device is.
#[derive(Clone, Debug)]
pub enum DeviceOrigin {
    /// In this process: a node, whose counters and hooks tests reach.
    Node(Arc<Node>),
    /// In another process: the function of this number of those that the kernel's VFIO has.
    Function(usize),
}

impl DeviceOrigin {
    /// Returns the node.
    ///
    /// # Panics
    /// The device is in another process.
    #[must_use]
    pub fn node(&self) -> &Arc<Node> {
        match self {
            Self::Node(node) => node,
            Self::Function(number) => panic!("function {number} is a device of another process"),
        }
    }

    /// The device in the API.
    ///
    /// # Errors
    /// The driver does not take it.
    pub fn device(&self, setup: Setup) -> Outcome<Device> {
        let device = match self {
            Self::Node(node) if setup.is_served => {
                let by_registers = setup.doorbells == Doorbells::Registers;
                device_on(Arc::new(served(node, by_registers)?))
            }
            Self::Node(node) => device_on(Arc::<Node>::clone(node)),
            Self::Function(number) => setup::device(*number)?,
        };
        faced(setup, device)
    }
}

impl Host {
    /// Returns the node, as [`DeviceOrigin::node`] does.
    #[must_use]
    pub fn node(&self) -> &Arc<Node> {
        self.origin.node()
    }

    fn on(setup: Setup, origin: DeviceOrigin) -> Outcome<Self> {
        let ctx = Arc::new(origin.device(setup)?.open(0)?);
        // A function is used by one test after the other: the events of earlier ones are theirs.
        while setup.is_vfio && ctx.next_async(Some(Duration::ZERO))?.is_some() {}
        Ok(Self { ctx, origin })
    }

    /// A new node with a random EID, or the first function.
    ///
    /// # Errors
    /// What could not be opened.
    pub fn open(setup: Setup) -> Outcome<Self> {
        if setup.is_vfio {
            Self::on(setup, DeviceOrigin::Function(0))
        } else {
            Self::open_as(setup, cfg(setup))
        }
    }

    /// A new node as configured.
    ///
    /// # Errors
    /// What could not be opened.
    pub fn open_as(setup: Setup, cfg: NodeCfg) -> Outcome<Self> {
        Self::on(setup, DeviceOrigin::Node(node_as(setup, cfg)?))
    }

    /// The hosts of both ends: one and the same for [`Link::Own`], and two functions of it where it is served or behind VFIO.
    ///
    /// # Errors
    /// What could not be opened.
    pub fn pair(setup: Setup) -> Outcome<(Self, Self)> {
        let a = Self::open(setup)?;
        let b = match setup.link {
            Link::Own if setup.is_vfio => Self::on(setup, DeviceOrigin::Function(1))?,
            Link::Own if setup.is_served => Self::on(setup, a.origin.clone())?,
            Link::Own => a.clone(),
            Link::Host | Link::Packets => Self::open(setup)?,
        };
        Ok((a, b))
    }
}

/// A new node as configured, on a host of its own where the setup has hosts.
///
/// # Errors
/// What could not be opened.
pub fn node_as(setup: Setup, cfg: NodeCfg) -> Outcome<Arc<Node>> {
    if setup.has_hosts { node_on_a_host(&cfg) } else { Ok(urma_nic::open(cfg)?) }
}

/// Opens a node at the address of a host that has none: of the one that `cfg` names, or of the first one.
fn node_on_a_host(cfg: &NodeCfg) -> Outcome<Arc<Node>> {
    thread_local! {
        /// Hosts of this thread's nodes. To make them takes longer than most tests.
        static LAB: OnceCell<Result<Lab, Refused>> = const { OnceCell::new() };
    }
    LAB.with(|lab| {
        let lab = lab.get_or_init(|| Lab::new(LabPlan::bridge(HOSTS, 1500))).as_ref();
        for host in lab.map_err(|refused| Failure::new(refused.to_string()))?.hosts() {
            let eid = ip_eid(host.address());
            if cfg.eid.is_some_and(|wanted| wanted != eid) {
                continue;
            }
            match host.run(|| urma_nic::open(NodeCfg { eid: Some(eid), ..cfg.clone() })) {
                Err(NodeError::Claim(ClaimError::Taken { .. })) if cfg.eid.is_none() => {}
                opened => return Ok(opened?),
            }
        }
        fail("no host without a node has the address")
    })
}

/// As many nodes as a test opens at one time.
const HOSTS: u8 = 4;

/// Some of everything that a network does to packets. Which ones it meets depends on how threads run.
fn bad_link() -> LinkFaults {
    let cfg = FaultCfg {
        delay_ns: 20_000,
        loss_ppm: 10_000,
        duplicate_ppm: 10_000,
        reorder_ppm: 20_000,
        reorder_ns: 200_000,
        corrupt_ppm: 10_000,
        ..FaultCfg::default()
    };
    LinkFaults { cfg, seed: 1 }
}

/// Settings with which both models of a NIC count.
fn counted() -> Vec<Setting> {
    const MODELS: [&str; 2] = ["URMA_CONTEXT_CACHE", "URMA_PACKET_ENGINE"];
    let count = |name: &str| MODELS.contains(&name).then(|| "count".into());
    NodeCfg::default().with_overrides(count).map_or_else(|_| Vec::new(), |cfg| cfg.models)
}

/// How a node of this setup is opened.
#[must_use]
pub fn cfg(setup: Setup) -> NodeCfg {
    NodeCfg {
        path: match setup.link {
            Link::Own => PathChoice::Auto,
            Link::Host => PathChoice::SameHost,
            Link::Packets if setup.has_hosts => PathChoice::Auto,
            Link::Packets => PathChoice::Packets,
        },
        page_moving: match setup.moving {
            Moving::On => PageMoving::On,
            Moving::Off | Moving::Kernel | Moving::Files => PageMoving::Off,
        },
        kernel_reads: match setup.moving {
            Moving::Kernel => KernelReads::Probe,
            Moving::On | Moving::Off | Moving::Files => KernelReads::Off,
        },
        file_sharing: match setup.moving {
            Moving::On | Moving::Files => FileSharing::On,
            Moving::Off | Moving::Kernel => FileSharing::Off,
        },
        lane: setup.lane,
        rc: setup.rc,
        strategy: setup.recovery,
        congestion: setup.congestion,
        udp_offload: setup.offload,
        link_faults: setup.is_lossy.then(bad_link),
        models: if setup.is_counted { counted() } else { Vec::new() },
        doorbells: setup.doorbells,
        #[cfg(feature = "planted-faults")]
        fault: setup.fault,
        ..NodeCfg::default()
    }
}

/// The device as this setup's interface has it.
///
/// # Errors
/// The library does not take it.
pub fn faced(setup: Setup, device: Device) -> Outcome<Device> {
    static COUNT: AtomicU64 = AtomicU64::new(1);
    match setup.face {
        Face::Rust => Ok(device),
        Face::C => {
            let name = format!("udma{}", COUNT.fetch_add(1, Ordering::Relaxed));
            Ok(CDevice::plug(&name, device)?.into())
        }
    }
}

/// The node's device, behind a vfio-user socket of this process.
fn served(node: &Arc<Node>, by_registers: bool) -> Outcome<PciNic> {
    static ATTENDANTS: OnceLock<Option<Arc<Attendants>>> = OnceLock::new();
    let attendants = ATTENDANTS.get_or_init(|| Attendants::start().ok());
    let attendants = attendants.as_ref().ok_or_else(|| Failure::new("no thread".to_owned()))?;
    let (client, server) = UnixStream::pair()?;
    let cfg = FunctionCfg { uasid: node.device().cfg().uasid, quota: FunctionQuota::NONE };
    let mut function =
        NodeFunction::new(node, cfg, (Arc::clone(attendants), DescriptorBudget::new(1 << 16, 64)))?;
    std::thread::spawn(move || serve(&server, &mut function, MapQuota::default()));
    let device =
        UserDevice::on(client, "udma0").map_err(|error| Failure::new(error.to_string()))?;
    let nic = PciNic::new(Arc::new(device)).map_err(|error| Failure::new(error.to_string()))?;
    Ok(if by_registers { nic.without_doorbell_memory() } else { nic })
}
