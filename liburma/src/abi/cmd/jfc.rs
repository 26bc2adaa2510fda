//! Commands of device files: completion queues.
//!
//! *Owns*: the layout of `urma_cmd.h`. *Must not*: do anything.

use core::ffi::c_int;

use super::super::layout::c_structs;
use super::super::urma_cmd_udrv_priv_t;

c_structs! {
    #[derive(Clone, Copy)]
    struct urma_cmd_create_jfc_in[32] {
        0 => depth: u32,
        4 => flag: u32,
        8 => jfce_fd: c_int,
        16 => urma_jfc: u64,
        24 => ceqn: u32,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_create_jfc_out[16] {
        0 => id: u32,
        4 => depth: u32,
        8 => handle: u64,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_create_jfc_t[80] {
        0 => r#in: urma_cmd_create_jfc_in,
        32 => out: urma_cmd_create_jfc_out,
        48 => udata: urma_cmd_udrv_priv_t,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_modify_jfc_in[16] {
        0 => handle: u64,
        8 => mask: u32,
        12 => moderate_count: u16,
        14 => moderate_period: u16,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_modify_jfc_t[48] {
        0 => r#in: urma_cmd_modify_jfc_in,
        16 => udata: urma_cmd_udrv_priv_t,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_delete_jfc_in[8] {
        0 => handle: u64,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_delete_jfc_out[8] {
        0 => comp_events_reported: u32,
        4 => async_events_reported: u32,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_delete_jfc_t[16] {
        0 => r#in: urma_cmd_delete_jfc_in,
        8 => out: urma_cmd_delete_jfc_out,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_delete_jfc_batch_out[12] {
        0 => comp_events_reported: u32,
        4 => async_events_reported: u32,
        8 => bad_jfc_index: u32,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_delete_jfc_batch_in[16] {
        0 => jfc_num: u32,
        8 => jfc_ptr: u64,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_delete_jfc_batch_t[32] {
        0 => out: urma_cmd_delete_jfc_batch_out,
        16 => r#in: urma_cmd_delete_jfc_batch_in,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_alloc_jfc_in[32] {
        0 => depth: u32,
        4 => flag: u32,
        8 => jfce_fd: c_int,
        16 => urma_jfc: u64,
        24 => ceqn: u32,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_alloc_jfc_out[16] {
        0 => id: u32,
        4 => depth: u32,
        8 => handle: u64,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_alloc_jfc_t[80] {
        0 => r#in: urma_cmd_alloc_jfc_in,
        32 => out: urma_cmd_alloc_jfc_out,
        48 => udata: urma_cmd_udrv_priv_t,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_free_jfc_in[8] {
        0 => handle: u64,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_free_jfc_out[8] {
        0 => comp_events_reported: u32,
        4 => async_events_reported: u32,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_free_jfc_t[48] {
        0 => r#in: urma_cmd_free_jfc_in,
        8 => out: urma_cmd_free_jfc_out,
        16 => udata: urma_cmd_udrv_priv_t,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_set_jfc_opt_in[32] {
        0 => handle: u64,
        8 => opt: u64,
        16 => buf: u64,
        24 => len: u32,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_set_jfc_opt_t[64] {
        0 => r#in: urma_cmd_set_jfc_opt_in,
        32 => udata: urma_cmd_udrv_priv_t,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_get_jfc_opt_in[32] {
        0 => handle: u64,
        8 => opt: u64,
        16 => buf: u64,
        24 => len: u32,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_get_jfc_opt_out[16] {
        0 => buf: u64,
        8 => len: u32,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_get_jfc_opt_t[80] {
        0 => r#in: urma_cmd_get_jfc_opt_in,
        32 => out: urma_cmd_get_jfc_opt_out,
        48 => udata: urma_cmd_udrv_priv_t,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_active_jfc_in[32] {
        0 => handle: u64,
        8 => depth: u32,
        12 => flag: u32,
        16 => ceqn: u32,
        24 => urma_jfc_opt: u64,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_active_jfc_out[16] {
        0 => id: u32,
        4 => depth: u32,
        8 => handle: u64,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_active_jfc_t[80] {
        0 => r#in: urma_cmd_active_jfc_in,
        32 => out: urma_cmd_active_jfc_out,
        48 => udata: urma_cmd_udrv_priv_t,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_deactive_jfc_in[8] {
        0 => handle: u64,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_deactive_jfc_t[40] {
        0 => r#in: urma_cmd_deactive_jfc_in,
        8 => udata: urma_cmd_udrv_priv_t,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_create_jfce_out[4] {
        0 => fd: c_int,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_create_jfce_t[4] {
        0 => out: urma_cmd_create_jfce_out,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_get_jfce_cnt_in[4] {
        0 => threshold: u32,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_get_jfce_cnt_out[16] {
        0 => jfce_total_cnt: u64,
        8 => jfce_thresh_cnt: u64,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_get_jfce_cnt_t[24] {
        0 => r#in: urma_cmd_get_jfce_cnt_in,
        8 => out: urma_cmd_get_jfce_cnt_out,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_jfce_wait_in[8] {
        0 => max_event_cnt: u32,
        4 => time_out: c_int,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_jfce_wait_out[136] {
        0 => event_cnt: u32,
        8 => event_data: [u64; 16],
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_jfce_wait_t[144] {
        0 => r#in: urma_cmd_jfce_wait_in,
        8 => out: urma_cmd_jfce_wait_out,
    }
}
