//! The device of this process: the embedded one, with the driver on it.
//!
//! *Owns*: the composition of device and driver. *Takes*: the plan. *Gives*: an open context.

use std::sync::Arc;

use ubcore_sim::{Node, NodeCfg, PathChoice};
use udma_abi::{DeviceBacking, RawEid};
use udma_provider::UdmaProvider;
use urma_core::{Context, DeviceId, Registry};

use crate::{
    cli::Way,
    error::{RunError, api},
    plan::{Plan, Refusal},
};

/// Opens the device that the plan names.
pub(crate) fn open(plan: &Plan) -> Result<Context, RunError> {
    let mut cfg = NodeCfg::from_env().map_err(|error| Refusal(error.to_string()))?;
    if let Some(eid) = plan.eid {
        cfg.eid = Some(RawEid(eid.bytes()));
    }
    cfg.name.clone_from(&plan.dev);
    match plan.test.way {
        Way::Auto => {}
        Way::SameHost => cfg.path = PathChoice::SameHost,
        Way::Packets => cfg.path = PathChoice::Packets,
    }
    let node = Node::open(cfg).map_err(|error| Refusal(error.to_string()))?;
    let backing: Arc<dyn DeviceBacking> = node;
    let info = backing.info();
    let id = DeviceId {
        name: info.name,
        driver: info.driver_name,
        vendor: info.vendor_id,
        device: info.device_id,
    };
    let mut registry = Registry::new();
    registry.add_provider(Arc::new(UdmaProvider::default())).map_err(api("adding the driver"))?;
    let device = registry.add_device(&id, Box::new(backing)).map_err(api("adding the device"))?;
    device.open(plan.eid_index).map_err(api("opening the device"))
}
