//! The device of this process, as the plan wants it.
//!
//! *Takes*: the plan. *Gives*: an open context.

use ubcore_sim::{NodeCfg, PathChoice};
use udma_abi::RawEid;
use urma_core::Context;
use urma_tools::{OpenError, Pings};

use crate::{
    cli::Way,
    error::RunError,
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
    match urma_tools::open(cfg, plan.eid_index, Pings::Unanswered) {
        Ok(opened) => Ok(opened.context),
        Err(OpenError::Node(error)) => Err(Refusal(error.to_string()).into()),
        Err(OpenError::Api { what, status }) => Err(RunError::Api { what, status }),
    }
}
