//! Functions that the kernel's VFIO has.
//!
//! *Owns*: the functions of this process, open until its end. *Takes*: their addresses from the environment. *Gives*:
//! devices. *Must not*: bind a function to a driver.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use udma_provider::{DriverCfg, RingPages, UdmaDevice};
use udma_vfio::{PciNic, kernel::KernelDevice};
use urma_core::Device;

use super::{Failure, Outcome};

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
