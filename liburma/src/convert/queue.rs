//! Configurations of queues, with numbers in range.

use urma_core::{JfcCfg, JfcFlags, JfrCfg, JfsCfg, OrderType, SendFlags, TransportMode};

use super::name::{mode, order, policy};
use crate::{abi::*, call::Answer};

/// Payload in the completion is an optimisation that C programs do not see: it arrives in the
/// receive buffer all the same, so the flag asks for nothing.
pub(crate) fn jfc(from: &urma_jfc_cfg_t) -> JfcCfg {
    JfcCfg { depth: from.depth, flags: JfcFlags::empty(), ceqn: from.ceqn, user_ctx: from.user_ctx }
}

/// # Errors
/// EINVAL: no such mode or order type.
pub(crate) fn jfs(from: &urma_jfs_cfg_t) -> Answer<JfsCfg> {
    let mut flags = SendFlags::empty();
    flags.set(SendFlags::ERROR_SUSPEND, from.flag.error_suspend() != 0);
    flags.set(SendFlags::OUTORDER_COMP, from.flag.outorder_comp() != 0);
    Ok(JfsCfg {
        mode: mode(from.trans_mode)?,
        order: order(from.flag.order_type())?,
        depth: from.depth,
        max_sge: from.max_sge,
        // Of a list of remote pieces the device uses the first; see `attr`.
        max_rsge: from.max_rsge.min(1),
        max_inline: from.max_inline_data,
        priority: from.priority,
        rnr_retry: from.rnr_retry,
        err_timeout: from.err_timeout,
        flags,
        user_ctx: from.user_ctx,
    })
}

/// The order type of a JFR. One that does not fit its mode is for the jetty to refuse, so it stands for the default
/// here: a JFR alone receives in the order of the queues that send.
fn fitting(mode: TransportMode, wanted: u32) -> OrderType {
    use OrderType as O;
    use TransportMode as M;
    match (mode, order(wanted)) {
        (M::Rm, Ok(order @ O::Oi))
        | (M::Rc, Ok(order @ (O::Ot | O::Ol | O::No)))
        | (M::Um, Ok(order @ O::No)) => order,
        _ => O::Default,
    }
}

/// # Errors
/// EINVAL: no such mode or token policy.
pub(crate) fn jfr(from: &urma_jfr_cfg_t) -> Answer<JfrCfg> {
    let mode = mode(from.trans_mode)?;
    Ok(JfrCfg {
        id: from.id,
        mode,
        order: fitting(mode, from.flag.order_type()),
        depth: from.depth,
        max_sge: from.max_sge,
        min_rnr_timer: from.min_rnr_timer,
        policy: policy(from.flag.token_policy(), from.token_value)?,
        user_ctx: from.user_ctx,
    })
}
