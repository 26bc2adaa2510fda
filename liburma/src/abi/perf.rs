//! Time that calls take.
//!
//! *Owns*: the layout of `urma_perf.h`. *Must not*: do anything.

use super::layout::{c_consts, c_enums, c_structs};

c_consts! {
    u32 {
        URMA_PERF_THREAD_MAX_NUM = 128,
    }
}

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

c_structs! {
    #[derive(Clone, Copy)]
    struct urma_perf_stats_t[968] {
        0 => retry_count: u64,
        8 => type_record: [urma_perf_stats_record; 15],
    }

    #[derive(Clone, Copy)]
    struct urma_perf_stats_record[64] {
        0 => r#type: urma_perf_record_type_t,
        8 => sample_num: u64,
        16 => average: u64,
        24 => mininum: u64,
        32 => maxinum: u64,
        40 => p90: u64,
        48 => p99: u64,
        56 => p9999: u64,
    }
}
