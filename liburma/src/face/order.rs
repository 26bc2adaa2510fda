//! Order types: the default of each mode, and what fits.
//!
//! *Owns*: the rule of the C core. *Gives*: the order type to write back into the caller's struct.

use crate::{
    abi::*,
    call::{Answer, refuse},
};

/// The order type to use with `mode` where the caller said `order`.
///
/// # Errors
/// EINVAL: no such mode; an order type that does not fit it.
pub(super) fn resolved(mode: u32, order: u32) -> Answer<u32> {
    match (mode, order) {
        (URMA_TM_RM, URMA_DEF_ORDER | URMA_OI) => Ok(URMA_OI),
        (URMA_TM_RC, URMA_DEF_ORDER | URMA_OL) => Ok(URMA_OL),
        (URMA_TM_RC, URMA_OT) => Ok(URMA_OT),
        (URMA_TM_UM, URMA_DEF_ORDER) => Ok(URMA_NO),
        (URMA_TM_RC | URMA_TM_UM, URMA_NO) => Ok(URMA_NO),
        (URMA_TM_RM | URMA_TM_RC | URMA_TM_UM, _) => Err(refuse!(
            EINVAL,
            "flag.order_type is {order} with trans_mode {mode}; RM (1) has 0 or 2 (OI), RC (2) 0, 1 (OT), 3 (OL) or \
             4 (NO), UM (4) 0 or 4 (NO)"
        )),
        _ => Err(refuse!(EINVAL, "trans_mode is {mode}; modes are 1 (RM), 2 (RC) and 4 (UM)")),
    }
}
