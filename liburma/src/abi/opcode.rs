//! Flags, states, operations, statuses.
//!
//! *Owns*: the layout of `urma_opcode.h`. *Must not*: do anything.

use super::layout::{c_consts, c_enums};

c_consts! {
    u32 {
        URMA_TOKEN_NONE = 0,
        URMA_ACCESS_LOCAL_ONLY = 1,
        URMA_ACCESS_READ = 2,
        URMA_ACCESS_WRITE = 4,
        URMA_ACCESS_ATOMIC = 8,
    }
    i32 {
        URMA_SUCCESS = 0,
        URMA_EAGAIN = 11,
        URMA_EINVAL = 22,
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
        URMA_JETTY_ID = 12289,
        URMA_JETTY_FLAG = 12290,
        URMA_JETTY_BIND_JFR = 12291,
        URMA_JETTY_BIND_RX_JFC = 12292,
        URMA_JETTY_BIND_JTG = 12293,
        URMA_JETTY_USER_CTX = 12294,
    }
}

c_enums! {
    urma_async_event_type_t: u32 {
        URMA_EVENT_JETTY_GRP_ERR = 6,
    }
}

pub type urma_cr_status_t = u32;
pub type urma_jetty_state_t = u32;
pub type urma_jfr_state_t = u32;

/// Result of a call: 0, a number of `errno.h`, or `URMA_FAIL`.
pub type urma_status_t = i32;
/// State of a send queue.
pub type urma_jfs_state_t = urma_jetty_state_t;
