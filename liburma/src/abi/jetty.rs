//! Jetties, groups of them.
//!
//! *Owns*: the layout of `urma_types.h`. *Must not*: do anything.

use core::ffi::c_char;

use libc::{pthread_cond_t, pthread_mutex_t};

use super::layout::{c_flags, c_structs};
use super::{
    urma_context_t, urma_jetty_flag_t, urma_jetty_grp_policy_t, urma_jetty_id_t,
    urma_jetty_state_t, urma_jfc_t, urma_jfr_cfg_t, urma_jfr_t, urma_jfs_cfg_t, urma_jfs_opt_t,
    urma_target_jetty_t, urma_token_t,
};

c_flags! {
    urma_jetty_grp_flag_t: u32 {
        0, 3 => token_policy, set_token_policy;
    }
}

c_structs! {
    #[derive(Clone, Copy)]
    struct urma_jetty_cfg_u_shared[16] {
        0 => jfr: *mut urma_jfr_t,
        8 => jfc: *mut urma_jfc_t,
    }

    #[derive(Clone, Copy)]
    union urma_jetty_cfg_u[16] {
        0 => shared: urma_jetty_cfg_u_shared,
        0 => jfr_cfg: *mut urma_jfr_cfg_t,
    }

    /// Jetty: a send queue with an own or a shared receive queue. On UB devices it is shared.
    #[derive(Clone, Copy)]
    struct urma_jetty_cfg_t[80] {
        0 => id: u32,
        4 => flag: urma_jetty_flag_t,
        8 => jfs_cfg: urma_jfs_cfg_t,
        48 => u: urma_jetty_cfg_u,
        64 => jetty_grp: *mut urma_jetty_grp_t,
        72 => user_ctx: u64,
    }

    #[derive(Clone, Copy)]
    struct urma_jetty_attr_t[12] {
        0 => mask: u32,
        4 => rx_threshold: u32,
        8 => state: urma_jetty_state_t,
    }

    #[derive(Clone, Copy)]
    struct urma_jetty_opt_t[120] {
        0 => is_actived: u8,
        8 => jfs_opt: urma_jfs_opt_t,
        88 => reserved: [u64; 4],
    }

    /// A jetty.
    #[derive(Clone, Copy)]
    struct urma_jetty_t[344] {
        0 => urma_ctx: *mut urma_context_t,
        8 => jetty_id: urma_jetty_id_t,
        32 => remote_jetty: *mut urma_target_jetty_t,
        40 => jetty_cfg: urma_jetty_cfg_t,
        120 => handle: u64,
        128 => event_mutex: pthread_mutex_t,
        168 => event_cond: pthread_cond_t,
        216 => async_events_acked: u32,
        224 => urma_jetty_opt: urma_jetty_opt_t,
    }

    #[derive(Clone, Copy)]
    struct urma_jetty_grp_cfg_t[88] {
        0 => name: [c_char; 64],
        64 => flag: urma_jetty_grp_flag_t,
        68 => token_value: urma_token_t,
        72 => id: u32,
        76 => policy: urma_jetty_grp_policy_t,
        80 => user_ctx: u64,
    }

    #[derive(Clone, Copy)]
    struct urma_jetty_grp_t[280] {
        0 => urma_ctx: *mut urma_context_t,
        8 => jetty_grp_id: urma_jetty_id_t,
        32 => cfg: urma_jetty_grp_cfg_t,
        120 => jetty_cnt: u32,
        128 => jetty_list: *mut *mut urma_jetty_t,
        136 => list_mutex: pthread_mutex_t,
        176 => handle: u64,
        184 => event_mutex: pthread_mutex_t,
        224 => event_cond: pthread_cond_t,
        272 => async_events_acked: u32,
    }
}
