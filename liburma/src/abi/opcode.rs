//! Flags, states, operations, statuses.
//!
//! *Owns*: the layout of `urma_opcode.h`. *Must not*: do anything.

use super::layout::{c_consts, c_enums};

c_consts! {
    u32 {
        URMA_TOKEN_NONE = 0,
        URMA_TOKEN_PLAIN_TEXT = 1,
        URMA_TOKEN_SIGNED = 2,
        URMA_TOKEN_ALL_ENCRYPTED = 3,
        URMA_TOKEN_RESERVED = 4,
        URMA_TOKEN_ID_INVALID = 0,
        URMA_TOKEN_ID_VALID = 1,
        URMA_DSVA_DISABLE = 0,
        URMA_DSVA_ENABLE = 1,
        URMA_NON_CACHEABLE = 0,
        URMA_CACHEABLE = 1,
        URMA_ACCESS_LOCAL_ONLY = 1,
        URMA_ACCESS_READ = 2,
        URMA_ACCESS_WRITE = 4,
        URMA_ACCESS_ATOMIC = 8,
        URMA_LOCAL_MEMORY = 0,
        URMA_REMOTE_MEMORY = 1,
        URMA_SEG_NOMAP = 0,
        URMA_SEG_MAPPED = 1,
        URMA_ADDR_TYPE_MVA = 0,
        URMA_ADDR_TYPE_UBVA = 1,
        URMA_COMPLETE_ENABLE = 1,
        URMA_COMPLETE_DISABLE = 0,
        URMA_COMPLETE_TYPE_JFC = 0,
        URMA_COMPLETE_TYPE_CF = 1,
        URMA_DEPENDENCY_NONE = 0,
        URMA_DEPENDENCY_FIRST = 1,
        URMA_DEPENDENCY_DELAY = 2,
        URMA_NOTIFY_DISABLE = 0,
        URMA_NOTIFY_ENABLE = 1,
        URMA_NOTIFY_TYPE_JFC = 0,
        URMA_NOTIFY_TYPE_RVA = 1,
        URMA_INLINE_DISABLE = 0,
        URMA_INLINE_ENABLE = 1,
        URMA_SOLICITED_DISABLE = 0,
        URMA_SOLICITED_ENABLE = 1,
        URMA_FENCE_DISABLE = 0,
        URMA_FENCE_ENABLE = 1,
        URMA_REGULAR = 1,
        URMA_IRREGULAR = 0,
        URMA_NO_TAG_MATCHING = 0,
        URMA_WITH_TAG_MATCHING = 1,
        URMA_NONPOST_LS = 0,
        URMA_POST_LS = 1,
        URMA_NO_SHARE_JFR = 0,
        URMA_SHARE_JFR = 1,
        URMA_TYPICAL_RNR_RETRY = 7,
        URMA_TYPICAL_ERR_TIMEOUT = 17,
        URMA_TYPICAL_MIN_RNR_TIMER = 12,
        URMA_MAX_PRIORITY = 15,
    }
    i32 {
        URMA_SUCCESS = 0,
        URMA_EAGAIN = 11,
        URMA_ENOMEM = 12,
        URMA_ENOPERM = 1,
        URMA_ETIMEOUT = 110,
        URMA_EINVAL = 22,
        URMA_EEXIST = 17,
        URMA_EINPROGRESS = 115,
        URMA_FAIL = 4096,
    }
    u64 {
        URMA_JFS_DEPTH = 1,
        URMA_JFS_FLAG = 2,
        URMA_JFS_TRANS_MODE = 3,
        URMA_JFS_PRIORITY = 4,
        URMA_JFS_MAX_SGE = 5,
        URMA_JFS_MAX_RSGE = 6,
        URMA_JFS_MAX_INLINE_DATA = 7,
        URMA_JFS_RNR_RETRY = 8,
        URMA_JFS_ERR_TIMEOUT = 9,
        URMA_JFS_BIND_JFC = 10,
        URMA_JFS_USER_CTX = 11,
        URMA_JFS_SQE_BASE_ADDR = 12,
        URMA_JFS_ID = 13,
        URMA_JFS_DB_ADDR = 14,
        URMA_JFS_DB_STATUS = 15,
        URMA_JFS_PI = 16,
        URMA_JFS_PI_TYPE = 17,
        URMA_JFS_CI = 18,
        URMA_JFS_FULL_CTX = 19,
        URMA_JFR_DEPTH = 4097,
        URMA_JFR_FLAG = 4098,
        URMA_JFR_TRANS_MODE = 4099,
        URMA_JFR_MAX_SGE = 4100,
        URMA_JFR_MIN_RNR_TIMER = 4101,
        URMA_JFR_BIND_JFC = 4102,
        URMA_JFR_TOKEN_VALUE = 4103,
        URMA_JFR_USER_CTX = 4104,
        URMA_JFR_RQE_BASE_ADDR = 4105,
        URMA_JFR_ID = 4106,
        URMA_JFR_DB_ADDR = 4107,
        URMA_JFR_DB_STATUS = 4108,
        URMA_JFR_PI = 4109,
        URMA_JFR_PI_TYPE = 4110,
        URMA_JFR_CI = 4111,
        URMA_JFR_FULL_CTX = 4112,
        URMA_JFC_DEPTH = 8193,
        URMA_JFC_CEQN = 8194,
        URMA_JFC_FLAG = 8195,
        URMA_JFC_BIND_JFCE = 8196,
        URMA_JFC_USER_CTX = 8197,
        URMA_JFC_CQE_BASE_ADDR = 8198,
        URMA_JFC_ID = 8199,
        URMA_JFC_DB_ADDR = 8200,
        URMA_JFC_DB_STATUS = 8201,
        URMA_JFC_PI = 8202,
        URMA_JFC_PI_TYPE = 8203,
        URMA_JFC_CI = 8204,
        URMA_JFC_FULL_CTX = 8205,
        URMA_JETTY_ID = 12289,
        URMA_JETTY_FLAG = 12290,
        URMA_JETTY_BIND_JFR = 12291,
        URMA_JETTY_BIND_RX_JFC = 12292,
        URMA_JETTY_BIND_JTG = 12293,
        URMA_JETTY_USER_CTX = 12294,
        URMA_JETTY_FULL_CTX = 12295,
    }
}

c_enums! {
    urma_place_order_t: u32 {
        URMA_NO_ORDER = 0,
        URMA_RELAX_ORDER = 1,
        URMA_STRONG_ORDER = 2,
    }

    urma_cr_status_t: u32 {
        URMA_CR_SUCCESS = 0,
        URMA_CR_UNSUPPORTED_OPCODE_ERR = 1,
        URMA_CR_LOC_LEN_ERR = 2,
        URMA_CR_LOC_OPERATION_ERR = 3,
        URMA_CR_LOC_ACCESS_ERR = 4,
        URMA_CR_REM_RESP_LEN_ERR = 5,
        URMA_CR_REM_UNSUPPORTED_REQ_ERR = 6,
        URMA_CR_REM_OPERATION_ERR = 7,
        URMA_CR_REM_ACCESS_ABORT_ERR = 8,
        URMA_CR_ACK_TIMEOUT_ERR = 9,
        URMA_CR_RNR_RETRY_CNT_EXC_ERR = 10,
        URMA_CR_WR_FLUSH_ERR = 11,
        URMA_CR_WR_SUSPEND_DONE = 12,
        URMA_CR_WR_FLUSH_ERR_DONE = 13,
        URMA_CR_WR_UNHANDLED = 14,
        URMA_CR_LOC_DATA_POISON = 15,
        URMA_CR_REM_DATA_POISON = 16,
    }

    urma_async_event_type_t: u32 {
        URMA_EVENT_JFC_ERR = 0,
        URMA_EVENT_JFS_ERR = 1,
        URMA_EVENT_JFR_ERR = 2,
        URMA_EVENT_JFR_LIMIT = 3,
        URMA_EVENT_JETTY_ERR = 4,
        URMA_EVENT_JETTY_LIMIT = 5,
        URMA_EVENT_JETTY_GRP_ERR = 6,
        URMA_EVENT_PORT_ACTIVE = 7,
        URMA_EVENT_PORT_DOWN = 8,
        URMA_EVENT_DEV_FATAL = 9,
        URMA_EVENT_EID_CHANGE = 10,
        URMA_EVENT_ELR_ERR = 11,
        URMA_EVENT_ELR_DONE = 12,
    }

    urma_jfc_state_t: u32 {
        URMA_JFC_STATE_INVALID = 0,
        URMA_JFC_STATE_VALID = 1,
        URMA_JFC_STATE_ERROR = 2,
    }

    urma_jetty_state_t: u32 {
        URMA_JETTY_STATE_RESET = 0,
        URMA_JETTY_STATE_READY = 1,
        URMA_JETTY_STATE_SUSPENDED = 2,
        URMA_JETTY_STATE_ERROR = 3,
    }

    urma_jfr_state_t: u32 {
        URMA_JFR_STATE_RESET = 0,
        URMA_JFR_STATE_READY = 1,
        URMA_JFR_STATE_ERROR = 2,
    }
}

/// Result of a call: 0, a number of `errno.h`, or `URMA_FAIL`.
pub type urma_status_t = i32;
/// State of a send queue.
pub type urma_jfs_state_t = urma_jetty_state_t;
