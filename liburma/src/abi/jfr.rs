//! Receive queues.
//!
//! *Owns*: the layout of `urma_types.h`. *Must not*: do anything.

use libc::{pthread_cond_t, pthread_mutex_t};

use super::layout::{c_flags, c_structs};
use super::{
    urma_context_t, urma_jfc_t, urma_jfr_flag_t, urma_jfr_id_t, urma_jfr_state_t, urma_token_t,
    urma_transport_mode_t,
};

c_flags! {
    urma_jfr_opt_mask: u64 {
        0, 1 => urma_jfr_cqe_base_addr, set_urma_jfr_cqe_base_addr;
        1, 1 => urma_jfr_db_addr, set_urma_jfr_db_addr;
        2, 1 => urma_jfr_id, set_urma_jfr_id;
        3, 1 => urma_jfr_pi, set_urma_jfr_pi;
        4, 1 => urma_jfr_pi_type, set_urma_jfr_pi_type;
        5, 1 => urma_jfr_ci, set_urma_jfr_ci;
        6, 1 => urma_jfr_db_status, set_urma_jfr_db_status;
    }
}

c_structs! {
    #[derive(Clone, Copy)]
    struct urma_jfr_opt_t[80] {
        0 => jfr_opt_mask: urma_jfr_opt_mask,
        8 => is_actived: u8,
        16 => urma_jfr_rqe_base_addr: u64,
        24 => urma_jfr_id: u32,
        32 => urma_jfr_db_addr: u64,
        40 => urma_jfr_db_status: u8,
        42 => urma_jfr_pi: u16,
        44 => urma_jfr_pi_type: u16,
        46 => urma_jfr_ci: u16,
        48 => reserved: [u64; 4],
    }

    /// Receive queue; id 0 lets the library choose.
    #[derive(Clone, Copy)]
    struct urma_jfr_cfg_t[48] {
        0 => id: u32,
        4 => depth: u32,
        8 => flag: urma_jfr_flag_t,
        12 => trans_mode: urma_transport_mode_t,
        16 => max_sge: u8,
        17 => min_rnr_timer: u8,
        24 => jfc: *mut urma_jfc_t,
        32 => token_value: urma_token_t,
        40 => user_ctx: u64,
    }

    #[derive(Clone, Copy)]
    struct urma_jfr_attr_t[12] {
        0 => mask: u32,
        4 => rx_threshold: u32,
        8 => state: urma_jfr_state_t,
    }

    /// A receive queue.
    #[derive(Clone, Copy)]
    struct urma_jfr_t[264] {
        0 => urma_ctx: *mut urma_context_t,
        8 => jfr_id: urma_jfr_id_t,
        32 => jfr_cfg: urma_jfr_cfg_t,
        80 => handle: u64,
        88 => event_mutex: pthread_mutex_t,
        128 => event_cond: pthread_cond_t,
        176 => async_events_acked: u32,
        184 => urma_jfr_opt: urma_jfr_opt_t,
    }
}
