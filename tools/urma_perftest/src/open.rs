//! The device of this process, as the plan wants it.
//!
//! *Takes*: the plan. *Gives*: an open context.

use urma::{Context, NodeCfg, PathChoice, RawEid};

use crate::{
    cli::PathArg,
    error::RunError,
    plan::{Plan, PlanRefusal},
};

/// Opens the device that the plan names.
pub(crate) fn open(plan: &Plan) -> Result<Context, RunError> {
    let mut cfg = NodeCfg::from_env().map_err(|error| PlanRefusal(error.to_string()))?;
    if let Some(eid) = plan.eid {
        cfg.eid = Some(RawEid(eid.bytes()));
    }
    cfg.name.clone_from(&plan.dev);
    match plan.test.path {
        PathArg::Auto => {}
        PathArg::SameHost => cfg.path = PathChoice::SameHost,
        PathArg::Packets => cfg.path = PathChoice::Packets,
    }
    let device = urma::open_device(cfg).map_err(|error| PlanRefusal(error.to_string()))?;
    let opened = device.open(plan.eid_index);
    opened.map_err(|status| RunError::Api { what: "opening the device", status })
}
