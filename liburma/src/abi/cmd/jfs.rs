//! Commands of device files: send queues.
//!
//! *Owns*: the layout of `urma_cmd.h`. *Must not*: do anything.

use super::super::layout::c_structs;
use super::super::urma_cmd_udrv_priv_t;

c_structs! {
    #[derive(Clone, Copy)]
    struct urma_cmd_create_jfs_in[48] {
        0 => depth: u32,
        4 => flag: u32,
        8 => trans_mode: u32,
        12 => priority: u8,
        13 => max_sge: u8,
        14 => max_rsge: u8,
        16 => max_inline_data: u32,
        20 => retry_cnt: u8,
        21 => rnr_retry: u8,
        22 => err_timeout: u8,
        24 => jfc_id: u32,
        32 => jfc_handle: u64,
        40 => urma_jfs: u64,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_create_jfs_out[24] {
        0 => id: u32,
        4 => depth: u32,
        8 => max_sge: u8,
        9 => max_rsge: u8,
        12 => max_inline_data: u32,
        16 => handle: u64,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_create_jfs_t[104] {
        0 => r#in: urma_cmd_create_jfs_in,
        48 => out: urma_cmd_create_jfs_out,
        72 => udata: urma_cmd_udrv_priv_t,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_modify_jfs_in[16] {
        0 => handle: u64,
        8 => mask: u32,
        12 => state: u32,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_modify_jfs_t[48] {
        0 => r#in: urma_cmd_modify_jfs_in,
        16 => udata: urma_cmd_udrv_priv_t,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_query_jfs_in[8] {
        0 => handle: u64,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_query_jfs_out[28] {
        0 => depth: u32,
        4 => flag: u32,
        8 => trans_mode: u32,
        12 => priority: u8,
        13 => max_sge: u8,
        14 => max_rsge: u8,
        16 => max_inline_data: u32,
        20 => retry_cnt: u8,
        21 => rnr_retry: u8,
        22 => err_timeout: u8,
        24 => state: u32,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_query_jfs_t[40] {
        0 => r#in: urma_cmd_query_jfs_in,
        8 => out: urma_cmd_query_jfs_out,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_delete_jfs_in[8] {
        0 => handle: u64,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_delete_jfs_out[4] {
        0 => async_events_reported: u32,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_delete_jfs_t[16] {
        0 => r#in: urma_cmd_delete_jfs_in,
        8 => out: urma_cmd_delete_jfs_out,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_delete_jfs_batch_out[8] {
        0 => async_events_reported: u32,
        4 => bad_jfs_index: u32,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_delete_jfs_batch_in[16] {
        0 => jfs_num: u32,
        8 => jfs_ptr: u64,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_delete_jfs_batch_t[24] {
        0 => out: urma_cmd_delete_jfs_batch_out,
        8 => r#in: urma_cmd_delete_jfs_batch_in,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_alloc_jfs_in[48] {
        0 => depth: u32,
        4 => flag: u32,
        8 => trans_mode: u32,
        12 => priority: u8,
        13 => max_sge: u8,
        14 => max_rsge: u8,
        16 => max_inline_data: u32,
        20 => rnr_retry: u8,
        21 => err_timeout: u8,
        24 => jfc_id: u32,
        32 => jfc_handle: u64,
        40 => urma_jfs: u64,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_alloc_jfs_out[24] {
        0 => id: u32,
        4 => depth: u32,
        8 => max_sge: u8,
        9 => max_rsge: u8,
        12 => max_inline_data: u32,
        16 => handle: u64,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_alloc_jfs_t[104] {
        0 => r#in: urma_cmd_alloc_jfs_in,
        48 => out: urma_cmd_alloc_jfs_out,
        72 => udata: urma_cmd_udrv_priv_t,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_free_jfs_in[8] {
        0 => handle: u64,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_free_jfs_out[4] {
        0 => async_events_reported: u32,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_free_jfs_t[48] {
        0 => r#in: urma_cmd_free_jfs_in,
        8 => out: urma_cmd_free_jfs_out,
        16 => udata: urma_cmd_udrv_priv_t,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_set_jfs_opt_in[32] {
        0 => handle: u64,
        8 => opt: u64,
        16 => buf: u64,
        24 => len: u32,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_set_jfs_opt_t[64] {
        0 => r#in: urma_cmd_set_jfs_opt_in,
        32 => udata: urma_cmd_udrv_priv_t,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_get_jfs_opt_in[32] {
        0 => handle: u64,
        8 => opt: u64,
        16 => buf: u64,
        24 => len: u32,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_get_jfs_opt_out[16] {
        0 => buf: u64,
        8 => len: u32,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_get_jfs_opt_t[80] {
        0 => r#in: urma_cmd_get_jfs_opt_in,
        32 => out: urma_cmd_get_jfs_opt_out,
        48 => udata: urma_cmd_udrv_priv_t,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_active_jfs_in[56] {
        0 => handle: u64,
        8 => depth: u32,
        12 => flag: u32,
        16 => trans_mode: u32,
        20 => priority: u32,
        24 => max_sge: u8,
        25 => max_rsge: u8,
        28 => max_inline_data: u32,
        32 => rnr_retry: u8,
        33 => err_timeout: u8,
        36 => jfc_id: u32,
        40 => jfc_handle: u64,
        48 => jfs_opt: u64,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_active_jfs_out[24] {
        0 => id: u32,
        4 => depth: u32,
        8 => max_sge: u8,
        9 => max_rsge: u8,
        12 => max_inline_data: u32,
        16 => handle: u64,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_active_jfs_t[112] {
        0 => r#in: urma_cmd_active_jfs_in,
        56 => out: urma_cmd_active_jfs_out,
        80 => udata: urma_cmd_udrv_priv_t,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_deactive_jfs_in[8] {
        0 => handle: u64,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_deactive_jfs_t[40] {
        0 => r#in: urma_cmd_deactive_jfs_in,
        8 => udata: urma_cmd_udrv_priv_t,
    }
}
