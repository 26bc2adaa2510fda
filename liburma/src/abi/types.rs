//! Numbers beside the types: limits, kinds, modes.
//!
//! *Owns*: the layout of `urma_types.h`. *Must not*: do anything.

use core::ffi::{c_char, c_int, c_void};

use super::layout::{c_consts, c_enums};
use super::{urma_async_event_t, urma_status_t};

c_consts! {
    u32 {
        MAX_PORT_CNT = 8,
    }
}

c_enums! {
    urma_transport_mode_t: u32 {
        URMA_TM_RM = 1,
        URMA_TM_RC = 2,
        URMA_TM_UM = 4,
    }

    urma_opt_name_t: u32 {
        URMA_OPT_AGGR_MODE = 0,
    }

    urma_context_aggr_mode_t: u32 {
        URMA_AGGR_MODE_STANDALONE = 0,
        URMA_AGGR_MODE_BALANCE = 2,
    }

    urma_jfc_attr_mask_t: u32 {
        JFC_MODERATE_COUNT = 1,
        JFC_MODERATE_PERIOD = 2,
    }

    urma_order_type_t: u32 {
        URMA_DEF_ORDER = 0,
        URMA_OT = 1,
        URMA_OI = 2,
        URMA_OL = 3,
        URMA_NO = 4,
    }

    urma_jfs_attr_mask_t: u32 {
        JFS_STATE = 1,
    }

    urma_jfr_attr_mask_t: u32 {
        JFR_RX_THRESHOLD = 1,
        JFR_STATE = 2,
    }

    urma_tp_type_t: u32 {
        URMA_RTP = 0,
        URMA_CTP = 1,
        URMA_UTP = 2,
    }

    urma_target_type_t: u32 {
        URMA_JFR = 0,
        URMA_JETTY = 1,
        URMA_JETTY_GROUP = 2,
    }

    urma_jetty_attr_mask_t: u32 {
        JETTY_RX_THRESHOLD = 1,
        JETTY_STATE = 2,
    }

    urma_notify_type_t: u32 {
        URMA_IMPORT_JETTY_NOTIFY = 0,
        URMA_BIND_JETTY_NOTIFY = 1,
    }
}

pub type urma_mtu_t = u32;
pub type urma_port_state_t = u32;
pub type urma_speed_t = u32;
pub type urma_link_width_t = u32;
pub type urma_jetty_grp_policy_t = u32;
pub type urma_tp_state_t = u32;
pub type urma_vlog_level_t = u32;

/// Called for an event of a context.
pub type urma_async_event_cb = Option<unsafe extern "C" fn(*mut urma_async_event_t, *mut c_void)>;
/// Called at the end of an advice.
pub type urma_advise_async_cb_func = Option<unsafe extern "C" fn(urma_status_t, *mut c_void)>;
/// Called for each line of the log.
pub type urma_log_cb_t = Option<unsafe extern "C" fn(level: c_int, message: *mut c_char)>;
/// Called for each line of the log, with where it comes from.
pub type urma_loc_log_cb = Option<
    unsafe extern "C" fn(
        level: c_int,
        file: *const c_char,
        function: *const c_char,
        line: c_int,
        message: *mut c_char,
    ),
>;
