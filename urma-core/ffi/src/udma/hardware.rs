//! The software device behind the built-in provider: node, driver and API joined.
//!
//! *Owns*: the node, while anybody uses it. *Takes*: the environment (`URMA_*`). *Gives*: urma-core's
//! device, opened at its first use, because opening claims the EID. *Must not*: know C types.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ubcore_sim::node::{DRIVER, Node, NodeCfg, NodeError};
use udma_abi::{
    DeviceBacking,
    backing::{DEVICE_ID, VENDOR_ID},
};
use udma_provider::UdmaProvider;
use urma_core::{Device, DeviceAttr, DeviceId, Eid, Registry, Status};

/// Name of the software device.
pub(crate) const DEVICE_NAME: &str = "udma0";
/// More names for it: a list with commas.
const ALIAS_VARIABLE: &str = "URMA_DEVICE_ALIAS";

/// One software device, opened at its first use. Its names share it.
#[derive(Debug, Default)]
pub(crate) struct Hardware {
    opened: Mutex<Option<Opened>>,
}

#[derive(Clone, Debug)]
struct Opened {
    node: Arc<Node>,
    device: Device,
}

impl Hardware {
    /// Who the device is, without opening it.
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
        self.opened().map(|opened| opened.device)
    }

    /// The node.
    ///
    /// # Errors
    /// As [`Hardware::device`].
    pub(crate) fn node(&self) -> Result<Arc<Node>, Status> {
        self.opened().map(|opened| opened.node)
    }

    /// Its attributes.
    ///
    /// # Errors
    /// As [`Hardware::device`].
    pub(crate) fn attr(&self) -> Result<DeviceAttr, Status> {
        self.device()?.attr()
    }

    /// Its EIDs by index.
    ///
    /// # Errors
    /// As [`Hardware::device`].
    pub(crate) fn eids(&self) -> Result<Vec<Eid>, Status> {
        self.device()?.eids()
    }

    fn opened(&self) -> Result<Opened, Status> {
        let mut slot = self.lock();
        if let Some(opened) = slot.as_ref() {
            return Ok(opened.clone());
        }
        let opened = open().inspect_err(|status| {
            tracing::error!(target: "urma", %status, "the software device does not open");
        })?;
        Ok(slot.insert(opened).clone())
    }

    fn lock(&self) -> MutexGuard<'_, Option<Opened>> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn open() -> Result<Opened, Status> {
    let cfg = NodeCfg::from_env().map_err(|error| refuse(&error.into()))?;
    let cfg = NodeCfg { name: DEVICE_NAME.to_owned(), ..cfg };
    let node = Node::open(cfg).map_err(|error| refuse(&error))?;
    let backing: Arc<dyn DeviceBacking> = Arc::<Node>::clone(&node);
    let mut registry = Registry::new();
    registry.add_provider(Arc::new(UdmaProvider::default()))?;
    let device = registry.add_device(&Hardware::id(), Box::new(backing))?;
    Ok(Opened { node, device })
}

fn refuse(error: &NodeError) -> Status {
    tracing::error!(target: "urma", "{error}");
    match error {
        NodeError::Config(_) => Status::Invalid,
        NodeError::Claim(_) => Status::Exists,
        NodeError::Os(_) => Status::NoMemory,
    }
}

/// The device's other names, as the environment lists them: of 1 to 63 bytes, each once.
pub(crate) fn aliases() -> Vec<String> {
    const NAME_MAX: usize = 63;
    let list = std::env::var(ALIAS_VARIABLE).unwrap_or_default();
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
