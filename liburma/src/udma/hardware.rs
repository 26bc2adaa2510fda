//! The software device behind the built-in provider: node, driver and API joined.
//!
//! *Owns*: the device, and with it the node, while a context uses it; what answers pings. *Takes*: the
//! environment (`URMA_*`). *Gives*: urma-core's device, opened at its first use, because opening claims
//! the EID. *Must not*: know C types.

use std::sync::{Arc, Mutex, Weak};

use ubcore_sim::PortMode;
use ubcore_sim::node::{DRIVER, Node, NodeCfg, NodeError};
use udma_abi::backing::{DEVICE_ID, VENDOR_ID};
use udma_provider::device_on;
use urma_answer::{Answerer, WELL_KNOWN_ID};
use urma_core::{Device, DeviceId, Status, StatusKind};
use urma_mem::sync::{AtomicBool, AtomicU64, Ordering};

use crate::{latch::lock, setting::setting, udma::event_queue::Events};

/// Name of the software device.
pub(crate) const DEVICE_NAME: &str = "udma0";
/// More names for it: a list with commas.
const ALIAS_VARIABLE: &str = "URMA_DEVICE_ALIAS";

/// One software device, opened at its first use. Its names share it.
#[derive(Default)]
pub(crate) struct Hardware {
    /// Answers pings until a program asks for the id; ended before the device.
    answerer: Mutex<Option<Answerer>>,
    opened: Mutex<Option<Device>>,
    /// The node behind it, unless a Rust program added the device.
    node: Mutex<Weak<Node>>,
    /// It is a function of the daemon's.
    is_attached: AtomicBool,
    /// The contexts that share its asynchronous events.
    listeners: Mutex<Vec<Weak<Events>>>,
    /// Event channels that live on it.
    channels: AtomicU64,
}

impl Hardware {
    /// A device that is open already.
    pub(crate) fn of(device: Device) -> Self {
        Self { opened: Mutex::new(Some(device)), ..Self::default() }
    }

    /// Names and ids of the device, without opening it.
    pub(crate) fn id() -> DeviceId {
        DeviceId {
            name: DEVICE_NAME.to_owned(),
            driver: DRIVER.to_owned(),
            vendor: VENDOR_ID,
            device: DEVICE_ID,
        }
    }

    /// The device.
    ///
    /// # Errors
    /// `Exists`: the EID is another process's. `Invalid`: the environment asks for something
    /// impossible. `NoMemory`: out of memory or descriptors.
    pub(crate) fn device(&self) -> Result<Device, Status> {
        let mut slot = lock(&self.opened);
        if let Some(device) = slot.as_ref().filter(|device| !self.is_lost(device)) {
            return Ok(device.clone());
        }
        let (device, node) = open()?;
        let Some(node) = node else {
            // The well-known number is one for all clients: none of them answers pings.
            self.is_attached.store(true, Ordering::Relaxed);
            return Ok(slot.insert(device).clone());
        };
        *lock(&self.node) = Arc::downgrade(&node);
        match Answerer::start(&device, 0) {
            Ok(answerer) => *lock(&self.answerer) = Some(answerer),
            Err(status) => tracing::warn!(target: "urma", %status, "pings are not answered"),
        }
        Ok(slot.insert(device).clone())
    }

    /// The daemon that the device was of is gone, and no context lives on it: the next one attaches anew.
    fn is_lost(&self, device: &Device) -> bool {
        self.is_attached.load(Ordering::Relaxed)
            && self.listeners().is_empty()
            && device.attr().is_err()
    }

    /// The node behind the device, if it is open and no Rust program added it.
    pub(crate) fn node(&self) -> Option<Arc<Node>> {
        lock(&self.node).upgrade()
    }

    /// How packets use several ports from now on; `None`: as the settings of the node say.
    pub(crate) fn set_port_mode(&self, mode: Option<PortMode>) {
        if let Some(node) = self.node() {
            node.set_port_mode(mode.unwrap_or_else(|| node.device().cfg().port_mode));
        }
    }

    /// A program asks for the queue number `id`: what answers pings gives the well-known one up.
    pub(crate) fn make_room(&self, id: u32) {
        if id == WELL_KNOWN_ID {
            drop(lock(&self.answerer).take());
        }
    }

    /// The event queues of the contexts that are open on it.
    pub(crate) fn listeners(&self) -> Vec<Arc<Events>> {
        lock(&self.listeners).iter().filter_map(Weak::upgrade).collect()
    }

    /// Adds the event queue of a context; those of deleted contexts are forgotten.
    pub(crate) fn add_listener(&self, events: &Arc<Events>) {
        let mut listeners = lock(&self.listeners);
        listeners.retain(|known| known.strong_count() != 0);
        listeners.push(Arc::downgrade(events));
    }

    /// Number of event channels that live on it.
    pub(crate) fn channels(&self) -> u64 {
        self.channels.load(Ordering::Relaxed)
    }
}

/// One of the channels that its device counts.
pub(crate) struct Counted(Arc<Hardware>);

impl Counted {
    pub(crate) fn new(hardware: &Arc<Hardware>) -> Self {
        hardware.channels.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(hardware))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.channels.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The device that the settings name: of a node in this process, or one outside of it.
fn open() -> Result<(Device, Option<Arc<Node>>), Status> {
    let cfg = NodeCfg::from_env().map_err(|error| refuse(&error.into()))?;
    let cfg = NodeCfg { name: DEVICE_NAME.to_owned(), ..cfg };
    let outside = urma::outside(&cfg)
        .map_err(|error| Status::NoDevice.why(format_args!("the device does not open: {error}")))?;
    if let Some(device) = outside {
        return Ok((device, None));
    }
    let node = urma_nic::open(cfg).map_err(|error| refuse(&error))?;
    Ok((device_on(Arc::<Node>::clone(&node)), Some(node)))
}

fn refuse(error: &NodeError) -> Status {
    let status = match error {
        NodeError::Config(_) => StatusKind::Invalid,
        NodeError::Claim(_) => StatusKind::Exists,
        NodeError::NoPackets(_) => StatusKind::Unreachable,
        NodeError::Os(_) => StatusKind::NoMemory,
    };
    Status::from(status).why(format_args!("the software device does not open: {error}"))
}

/// The device's other names, as the environment lists them: of 1 to 63 bytes, each once.
pub(crate) fn aliases() -> Vec<String> {
    const NAME_MAX: usize = 63;
    let list = setting(ALIAS_VARIABLE).unwrap_or_default();
    let list = list.to_string_lossy();
    let mut names: Vec<String> = Vec::new();
    for name in list.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        let is_new = name != DEVICE_NAME && names.iter().all(|known| known != name);
        if name.len() <= NAME_MAX && is_new {
            names.push(name.to_owned());
        } else {
            tracing::warn!(target: "urma", name, "device alias is too long or twice; left out");
        }
    }
    names
}
