//! Time that calls take.
//!
//! *Owns*: the layout of `urma_perf.h`. *Must not*: do anything.

use super::layout::c_enums;

c_enums! {
    urma_perf_record_type_t: u32 {
        UB_JETTY_POST_SEND = 0,
        BOND_JETTY_POST_SEND = 1,
        UB_JFS_POST_SEND = 2,
        BOND_JFS_POST_SEND = 3,
        UB_JETTY_POST_RECV = 4,
        BOND_JETTY_POST_RECV = 5,
        UB_POST_JFR_RECV = 6,
        BOND_POST_JFR_RECV = 7,
        UB_POLL_JFC = 8,
        BOND_POLL_JFC = 9,
        UB_WAIT_JFC = 10,
        BOND_WAIT_JFC = 11,
        UB_ACK_JFC = 12,
        UB_REARM_JFC = 13,
        BOND_REARM_JFC = 14,
        URMA_PERF_RECORD_TYPE_MAX = 15,
    }
}
