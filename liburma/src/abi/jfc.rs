//! Completion queues and their records.
//!
//! *Owns*: the layout of `urma_types.h`. *Must not*: do anything.

use libc::{pthread_cond_t, pthread_mutex_t};

use super::layout::{c_flags, c_structs};
use super::{
    urma_context_t, urma_cr_opcode_t, urma_cr_status_t, urma_jetty_id_t, urma_jfc_flag_t,
    urma_jfc_id_t, urma_jfce_t, urma_token_t,
};

c_flags! {
    urma_jfc_opt_mask: u64 {
        0, 1 => urma_jfc_cqe_base_addr, set_urma_jfc_cqe_base_addr;
        1, 1 => urma_jfc_db_addr, set_urma_jfc_db_addr;
        2, 1 => urma_jfc_id, set_urma_jfc_id;
        3, 1 => urma_jfc_pi, set_urma_jfc_pi;
        4, 1 => urma_jfc_pi_type, set_urma_jfc_pi_type;
        5, 1 => urma_jfc_ci, set_urma_jfc_ci;
        6, 1 => urma_jfc_db_status, set_urma_jfc_db_status;
    }

    urma_cr_flag_t: u8 {
        0, 1 => s_r, set_s_r;
        1, 1 => jetty, set_jetty;
        2, 1 => suspend_done, set_suspend_done;
        3, 1 => flush_err_done, set_flush_err_done;
    }
}

c_structs! {
    /// Completion queue: depth from 1 to max_jfc_depth; jfce may be NULL when only polled.
    #[derive(Clone, Copy)]
    struct urma_jfc_cfg_t[32] {
        0 => depth: u32,
        4 => flag: urma_jfc_flag_t,
        8 => ceqn: u32,
        16 => jfce: *mut urma_jfce_t,
        24 => user_ctx: u64,
    }

    #[derive(Clone, Copy)]
    struct urma_jfc_attr_t[8] {
        0 => mask: u32,
        4 => moderate_count: u16,
        6 => moderate_period: u16,
    }

    #[derive(Clone, Copy)]
    struct urma_jfc_opt_t[80] {
        0 => jfc_opt_mask: urma_jfc_opt_mask,
        8 => is_actived: u8,
        16 => urma_jfc_cqe_base_addr: u64,
        24 => urma_jfc_id: u32,
        32 => urma_jfc_db_addr: u64,
        40 => urma_jfc_db_status: u8,
        42 => urma_jfc_pi: u16,
        44 => urma_jfc_pi_type: u16,
        46 => urma_jfc_ci: u16,
        48 => reserved: [u64; 4],
    }

    /// A completion queue.
    #[derive(Clone, Copy)]
    struct urma_jfc_t[248] {
        0 => urma_ctx: *mut urma_context_t,
        8 => jfc_id: urma_jfc_id_t,
        32 => jfc_cfg: urma_jfc_cfg_t,
        64 => handle: u64,
        72 => event_mutex: pthread_mutex_t,
        112 => event_cond: pthread_cond_t,
        160 => comp_events_acked: u32,
        164 => async_events_acked: u32,
        168 => urma_jfc_opt: urma_jfc_opt_t,
    }

    #[derive(Clone, Copy)]
    struct urma_cr_token_t[8] {
        0 => token_id: u32,
        4 => token_value: urma_token_t,
    }

    #[derive(Clone, Copy)]
    union urma_cr_u[8] {
        0 => imm_data: u64,
        0 => invalid_token: urma_cr_token_t,
    }

    /// Completion record. flag.bs.s_r tells send (0) from receive (1); opcode says something on receive only.
    #[derive(Clone, Copy)]
    struct urma_cr_t[80] {
        0 => status: urma_cr_status_t,
        8 => user_ctx: u64,
        16 => opcode: urma_cr_opcode_t,
        20 => flag: urma_cr_flag_t,
        24 => completion_len: u32,
        28 => local_id: u32,
        32 => remote_id: urma_jetty_id_t,
        56 => u: urma_cr_u,
        64 => tpn: u32,
        72 => user_data: usize,
    }
}
