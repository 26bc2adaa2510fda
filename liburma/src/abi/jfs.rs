//! Send queues.
//!
//! *Owns*: the layout of `urma_types.h`. *Must not*: do anything.

use libc::{pthread_cond_t, pthread_mutex_t};

use super::layout::{c_flags, c_structs};
use super::{urma_context_t, urma_jfc_t, urma_jfs_id_t, urma_jfs_state_t, urma_transport_mode_t};

c_flags! {
    urma_jfs_flag_t: u32 {
        0, 1 => lock_free, set_lock_free;
        1, 1 => error_suspend, set_error_suspend;
        2, 1 => outorder_comp, set_outorder_comp;
        3, 8 => order_type, set_order_type;
        11, 1 => multi_path, set_multi_path;
        12, 1 => ctp_rc_mul_path_mode, set_ctp_rc_mul_path_mode;
        13, 1 => non_blocking, set_non_blocking;
        14, 1 => has_drv_ext, set_has_drv_ext;
    }

    urma_jfs_opt_mask: u64 {
        0, 1 => urma_jfs_cqe_base_addr, set_urma_jfs_cqe_base_addr;
        1, 1 => urma_jfs_db_addr, set_urma_jfs_db_addr;
        2, 1 => urma_jfs_id, set_urma_jfs_id;
        3, 1 => urma_jfs_pi, set_urma_jfs_pi;
        4, 1 => urma_jfs_pi_type, set_urma_jfs_pi_type;
        5, 1 => urma_jfs_ci, set_urma_jfs_ci;
        6, 1 => urma_jfs_db_status, set_urma_jfs_db_status;
    }
}

c_structs! {
    #[derive(Clone, Copy)]
    struct urma_jfs_opt_t[80] {
        0 => jfs_opt_mask: urma_jfs_opt_mask,
        8 => is_actived: u8,
        16 => urma_jfs_sqe_base_addr: u64,
        24 => urma_jfs_id: u32,
        32 => urma_jfs_db_addr: u64,
        40 => urma_jfs_db_status: u8,
        42 => urma_jfs_pi: u16,
        44 => urma_jfs_pi_type: u16,
        46 => urma_jfs_ci: u16,
        48 => reserved: [u64; 4],
    }

    /// Send queue. order_type 0 is replaced by the default of the mode, in this struct.
    #[derive(Clone, Copy)]
    struct urma_jfs_cfg_t[40] {
        0 => depth: u32,
        4 => flag: urma_jfs_flag_t,
        8 => trans_mode: urma_transport_mode_t,
        12 => priority: u8,
        13 => max_sge: u8,
        14 => max_rsge: u8,
        16 => max_inline_data: u32,
        20 => rnr_retry: u8,
        21 => err_timeout: u8,
        24 => jfc: *mut urma_jfc_t,
        32 => user_ctx: u64,
    }

    /// A send queue.
    #[derive(Clone, Copy)]
    struct urma_jfs_t[256] {
        0 => urma_ctx: *mut urma_context_t,
        8 => jfs_id: urma_jfs_id_t,
        32 => jfs_cfg: urma_jfs_cfg_t,
        72 => handle: u64,
        80 => event_mutex: pthread_mutex_t,
        120 => event_cond: pthread_cond_t,
        168 => async_events_acked: u32,
        176 => urma_jfs_opt: urma_jfs_opt_t,
    }

    #[derive(Clone, Copy)]
    struct urma_jfs_attr_t[8] {
        0 => mask: u32,
        4 => state: urma_jfs_state_t,
    }
}
