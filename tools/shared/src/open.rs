//! The device of this process: the embedded one, with the driver on it.
//!
//! *Owns*: the composition of device and driver. *Takes*: a configuration. *Gives*: an open
//! context, and the node behind it.

use std::sync::Arc;

use ubcore_sim::{Node, NodeCfg, NodeError};
use udma_abi::DeviceBacking;
use udma_provider::UdmaProvider;
use urma_answer::Answerer;
use urma_core::{Context, Device, DeviceId, Registry, Status};

/// An open device. Fields are dropped in order.
#[derive(Debug)]
pub struct Opened {
    /// Answers pings; `None` when it was not wanted.
    pub answerer: Option<Answerer>,
    /// What programs use.
    pub context: Context,
    /// Its device.
    pub device: Device,
    /// The node that carries both.
    pub node: Arc<Node>,
}

/// Why there is no device.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The node was not to be had.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// The API said no.
    #[error("{what}: {status}")]
    Api {
        /// What was tried.
        what: &'static str,
        /// The answer.
        status: Status,
    },
}

/// Whether a node answers pings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pings {
    /// At its well-known jetty.
    Answered,
    /// The id is free for the program.
    Unanswered,
}

/// Opens a node as `cfg` says, and EID number `eid_index` of its device.
///
/// # Errors
/// [`OpenError`]; nothing is left behind.
pub fn open(cfg: NodeCfg, eid_index: u32, pings: Pings) -> Result<Opened, OpenError> {
    let node = Node::open(cfg)?;
    let backing: Arc<dyn DeviceBacking> = Arc::<Node>::clone(&node);
    let info = backing.info();
    let id = DeviceId {
        name: info.name,
        driver: info.driver_name,
        vendor: info.vendor_id,
        device: info.device_id,
    };
    let mut registry = Registry::new();
    let added = registry.add_provider(Arc::new(UdmaProvider::default()));
    added.map_err(|status| OpenError::Api { what: "adding the driver", status })?;
    let device = registry.add_device(&id, Box::new(backing));
    let device = device.map_err(|status| OpenError::Api { what: "adding the device", status })?;
    let context = device.open(eid_index);
    let context =
        context.map_err(|status| OpenError::Api { what: "opening the device", status })?;
    let answerer = match pings {
        Pings::Unanswered => None,
        Pings::Answered => Some(
            Answerer::start(&device, eid_index)
                .map_err(|status| OpenError::Api { what: "answering pings", status })?,
        ),
    };
    Ok(Opened { answerer, context, device, node })
}
