//! Opens a device with the driver on it: a software NIC in this process, a function of `ubcored`, or a PCI function.
//!
//! Returns an open context, and the node behind it.

use std::{io, path::Path, sync::Arc, time::Duration};

use ubcore_sim::{Node, NodeCfg, NodeError};
use udma_abi::BackingError;
use udma_provider::{DriverCfg, RingPages, UdmaDevice, device_on};
use udma_vfio::{
    PciNic,
    kernel::{KernelDevice, KernelOpenError, SysfsError},
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

/// Why no device could be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The node could not be opened.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// `ubcored` could not be reached, or refused.
    #[error("the device of ubcored (URMA_UBCORED): {0}")]
    Daemon(#[from] UserError),
    /// The daemon serves a device that this driver does not know.
    #[error("the device of ubcored (URMA_UBCORED): {0}")]
    Served(#[from] BackingError),
    /// The setting is no PCI address.
    #[error("URMA_VFIO: {0}")]
    Address(SysfsError),
    /// The function could not be opened.
    #[error("the function of URMA_VFIO: {0}")]
    Function(#[from] KernelOpenError),
    /// The function is a device that this driver does not know.
    #[error("the function of URMA_VFIO: {0}")]
    Driven(BackingError),
    /// Both `URMA_UBCORED` and `URMA_VFIO` are set.
    #[error("URMA_VFIO and URMA_UBCORED both name a device: set one of them to none")]
    Both,
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

/// Opens a device as `cfg` says: of a node in this process, or [`outside`] of it.
///
/// # Errors
/// [`OpenError`]; nothing is left behind.
pub fn open_device(cfg: NodeCfg) -> Result<Device, OpenError> {
    match outside(&cfg)? {
        Some(device) => Ok(device),
        None => Ok(device_on(urma_nic::open(cfg)?)),
    }
}

/// The device outside of this process that `cfg` names, if it names one: the function [`NodeCfg::vfio`], or one of the daemon
/// at [`NodeCfg::ubcored`]. It has the EID, and every other setting of the node.
///
/// # Errors
/// [`OpenError`]; nothing is left behind.
pub fn outside(cfg: &NodeCfg) -> Result<Option<Device>, OpenError> {
    match (&cfg.vfio, &cfg.ubcored) {
        (Some(_), Some(_)) => Err(OpenError::Both),
        (Some(address), None) => drive(address).map(Some),
        (None, Some(path)) => Ok(Some(device_on(Arc::new(attach(path, &cfg.name)?)))),
        (None, None) => Ok(None),
    }
}

/// The device at a PCI address that is bound to the kernel's VFIO.
fn drive(address: &str) -> Result<Device, OpenError> {
    let function = KernelDevice::open(address.parse().map_err(OpenError::Address)?)?;
    let nic = PciNic::new(Arc::new(function)).map_err(OpenError::Driven)?;
    // Each page that lies apart takes an entry of the IOMMU.
    let cfg = DriverCfg { ring_pages: RingPages::Huge, ..DriverCfg::default() };
    Ok(Device::new(Arc::new(UdmaDevice::new(Arc::new(nic), cfg))))
}

/// Attaches to a function of the daemon that listens at `path`. A daemon that is not there, as one that is being started
/// again, is waited for, 5 seconds at most.
///
/// # Errors
/// [`OpenError::Daemon`], [`OpenError::Served`]; also where the daemon refuses this process.
fn attach(path: &Path, name: &str) -> Result<PciNic, OpenError> {
    Ok(PciNic::new(Arc::new(connect(path, name)?))?)
}

/// Connects as [`attach`] does.
fn connect(path: &Path, name: &str) -> Result<UserDevice, UserError> {
    for tries in 0..ATTACH_TRIES {
        match UserDevice::connect(path, name) {
            Err(UserError::Os(error)) if is_absent(&error) => {
                if tries == 0 {
                    tracing::info!(path = %path.display(), %error, "waiting for ubcored");
                }
                pause();
            }
            attached => return attached,
        }
    }
    UserDevice::connect(path, name)
}

/// No process listens there.
fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

#[expect(clippy::disallowed_methods, reason = "the daemon is another process in real time")]
fn pause() {
    std::thread::sleep(ATTACH_PAUSE);
}

/// Opens a node as `cfg` says, and the first EID of its device. A process may open several.
///
/// # Errors
/// [`OpenError`]; nothing is left behind.
pub fn open_node(cfg: NodeCfg) -> Result<Opened, OpenError> {
    let node = urma_nic::open(cfg)?;
    let device = device_on(Arc::<Node>::clone(&node));
    let context = device.open(0)?;
    Ok(Opened { context, device, node })
}

/// Tries to reach the daemon, [`ATTACH_PAUSE`] apart.
const ATTACH_TRIES: u32 = 250;
const ATTACH_PAUSE: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(vfio: &str, ubcored: Option<&str>) -> String {
        let ubcored = ubcored.map(Into::into);
        let cfg = NodeCfg { vfio: Some(vfio.to_owned()), ubcored, ..NodeCfg::default() };
        open_device(cfg).map(|_| ()).unwrap_err().to_string()
    }

    #[test]
    fn a_function_that_cannot_be_had_is_refused_with_what_to_set() {
        let both = refused("0000:00:03.0", Some("/run/urma/ubcored.sock"));
        assert!(both.contains("set one of them to none"), "{both}");
        let address = refused("card 3", None);
        assert!(address.contains("URMA_VFIO") && address.contains("card 3"), "{address}");
        let absent = refused("ffff:ff:1f.7", None);
        assert!(absent.contains("ffff:ff:1f.7"), "{absent}");
    }
}
