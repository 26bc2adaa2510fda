//! The device of this process: a software NIC in it, with the driver on it.
//!
//! *Owns*: the composition of device and driver. *Takes*: a configuration. *Gives*: an open context,
//! and the node behind it.

use std::sync::Arc;

use ubcore_sim::{Node, NodeCfg, NodeError};
use udma_abi::BackingError;
use udma_provider::device_on;
use udma_vfio::{
    PciNic,
    user::{UserDevice, UserError},
};
use urma_core::{Context, Device, Status};

/// An open device. Fields are dropped in order.
#[derive(Debug)]
pub struct Opened {
    /// Open context, from which everything else is made.
    pub context: Context,
    /// Its device, for further contexts.
    pub device: Device,
    /// The node that carries both, for what a NIC's operator asks: paths, counters, captures.
    pub node: Arc<Node>,
}

/// Why there is no device.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The node could not be had.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// The device of `ubcored` could not be had.
    #[error("the device of ubcored (URMA_UBCORED): {0}")]
    Daemon(#[from] UserError),
    /// What the daemon serves is no device for this driver.
    #[error("the device of ubcored (URMA_UBCORED): {0}")]
    Served(#[from] BackingError),
    /// The driver or the device refused.
    #[error("opening the device: {0}")]
    Device(#[from] Status),
}

/// Opens the device as the environment says ([`NodeCfg::from_env`]; without a variable, a node with
/// the address of this host as its EID, or a random one of 127.0.0.0/8), and its first EID.
///
/// # Errors
/// [`OpenError`]; nothing is left behind.
pub fn open() -> Result<Context, OpenError> {
    let cfg = NodeCfg::from_env().map_err(NodeError::from)?;
    Ok(open_device(cfg)?.open(0)?)
}

/// Opens a device as `cfg` says: of a node in this process, or that of the daemon [`NodeCfg::ubcored`] names, which then
/// has the EID, and every other setting of the node.
///
/// # Errors
/// [`OpenError`]; nothing is left behind.
pub fn open_device(cfg: NodeCfg) -> Result<Device, OpenError> {
    match &cfg.ubcored {
        Some(path) => {
            let function = UserDevice::connect(path, &cfg.name)?;
            Ok(device_on(Arc::new(PciNic::new(Arc::new(function))?)))
        }
        None => Ok(device_on(Node::open(cfg)?)),
    }
}

/// Opens a node as `cfg` says, and the first EID of its device. A process may open several.
///
/// # Errors
/// [`OpenError`]; nothing is left behind.
pub fn open_node(cfg: NodeCfg) -> Result<Opened, OpenError> {
    let node = Node::open(cfg)?;
    let device = device_on(Arc::<Node>::clone(&node));
    let context = device.open(0)?;
    Ok(Opened { context, device, node })
}
