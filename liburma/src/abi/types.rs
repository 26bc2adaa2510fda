//! Numbers beside the types: limits, kinds, modes.
//!
//! *Owns*: the layout of `urma_types.h`. *Must not*: do anything.

use core::ffi::{c_char, c_int, c_void};

use super::layout::{c_consts, c_enums};
use super::{urma_async_event_t, urma_status_t};

c_consts! {
    u32 {
        URMA_API_VERSION = 9,
        MAX_PORT_CNT = 8,
        URMA_MAX_JETTY_IN_JETTY_GRP = 32,
        URMA_MAX_NAME = 64,
        URMA_MAX_PATH = 4096,
        URMA_EID_SIZE = 16,
        URMA_MAX_PRIORITY_CNT = 16,
        URMA_IPV4_MAP_IPV6_PREFIX = 65535,
        URMA_MAX_EID_CNT = 1024,
        URMA_OPT_REVERSED_NUM = 4,
        URMA_EID_STR_LEN = 39,
        URMA_SEG_TOKEN_ID_INVALID = 4294967295,
        URMA_MAX_DEV_NAME = 64,
        URMA_GUID_SIZE = 16,
        URMA_IP_ADDR_BYTES = 16,
        URMA_MAC_BYTES = 6,
        UR_NAME_MAX_LEN = 256,
        JFR_NAME_MAX_LEN = 256,
        URMA_MAX_SEGS_PER_UR_OPT = 64,
    }
    u64 {
        URMA_JFS_SQE_BASE_ADDR_MASK = 1,
        URMA_JFS_ID_MASK = 2,
        URMA_JFS_DB_ADDR_MASK = 4,
        URMA_JFS_DB_STATUS_MASK = 8,
        URMA_JFS_PI_MASK = 16,
        URMA_JFS_PI_TYPE_MASK = 32,
        URMA_JFS_CI_MASK = 64,
        URMA_JFR_RQE_BASE_ADDR_MASK = 1,
        URMA_JFR_ID_MASK = 2,
        URMA_JFR_DB_ADDR_MASK = 4,
        URMA_JFR_DB_STATUS_MASK = 8,
        URMA_JFR_PI_MASK = 16,
        URMA_JFR_PI_TYPE_MASK = 32,
        URMA_JFR_CI_MASK = 64,
        URMA_JFC_CQE_BASE_ADDR_MASK = 1,
        URMA_JFC_ID_MASK = 2,
        URMA_JFC_DB_ADDR_MASK = 4,
        URMA_JFC_DB_STATUS_MASK = 8,
        URMA_JFC_PI_MASK = 16,
        URMA_JFC_PI_TYPE_MASK = 32,
        URMA_JFC_CI_MASK = 64,
    }
}

c_enums! {
    urma_mtu_t: u32 {
        URMA_MTU_256 = 1,
        URMA_MTU_512 = 2,
        URMA_MTU_1024 = 3,
        URMA_MTU_2048 = 4,
        URMA_MTU_4096 = 5,
        URMA_MTU_8192 = 6,
    }

    urma_port_state_t: u32 {
        URMA_PORT_NOP = 0,
        URMA_PORT_DOWN = 1,
        URMA_PORT_INIT = 2,
        URMA_PORT_ARMED = 3,
        URMA_PORT_ACTIVE = 4,
        URMA_PORT_ACTIVE_DEFER = 5,
    }

    urma_speed_t: u32 {
        URMA_SP_10M = 0,
        URMA_SP_100M = 1,
        URMA_SP_1G = 2,
        URMA_SP_2_5G = 3,
        URMA_SP_5G = 4,
        URMA_SP_10G = 5,
        URMA_SP_14G = 6,
        URMA_SP_25G = 7,
        URMA_SP_40G = 8,
        URMA_SP_50G = 9,
        URMA_SP_100G = 10,
        URMA_SP_200G = 11,
        URMA_SP_400G = 12,
        URMA_SP_800G = 13,
    }

    urma_link_width_t: u32 {
        URMA_LINK_X1 = 1,
        URMA_LINK_X2 = 2,
        URMA_LINK_X4 = 4,
        URMA_LINK_X8 = 8,
        URMA_LINK_X16 = 16,
        URMA_LINK_X32 = 32,
    }

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
        URMA_AGGR_MODE_ACTIVE_BACKUP = 1,
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

    urma_jetty_grp_policy_t: u32 {
        URMA_JETTY_GRP_POLICY_RR = 0,
        URMA_JETTY_GRP_POLICY_HASH_HINT = 1,
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

    urma_tp_state_t: u32 {
        URMA_TP_STATE_RESET = 0,
        URMA_TP_STATE_PASSIVE = 1,
        URMA_TP_STATE_ACTIVE = 2,
        URMA_TP_STATE_BRAKE = 3,
        URMA_TP_STATE_ERROR = 4,
    }

    urma_vlog_level_t: u32 {
        URMA_VLOG_LEVEL_EMERG = 0,
        URMA_VLOG_LEVEL_ALERT = 1,
        URMA_VLOG_LEVEL_CRIT = 2,
        URMA_VLOG_LEVEL_ERR = 3,
        URMA_VLOG_LEVEL_WARNING = 4,
        URMA_VLOG_LEVEL_NOTICE = 5,
        URMA_VLOG_LEVEL_INFO = 6,
        URMA_VLOG_LEVEL_DEBUG = 7,
        URMA_VLOG_LEVEL_MAX = 8,
    }
}

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
