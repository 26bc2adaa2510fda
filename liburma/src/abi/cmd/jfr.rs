//! Commands of device files: receive queues.
//!
//! *Owns*: the layout of `urma_cmd.h`. *Must not*: do anything.

use super::super::layout::c_structs;
use super::super::urma_cmd_udrv_priv_t;

c_structs! {
    #[derive(Clone, Copy)]
    struct urma_cmd_create_jfr_in[48] {
        0 => depth: u32,
        4 => flag: u32,
        8 => trans_mode: u32,
        12 => max_sge: u8,
        13 => min_rnr_timer: u8,
        16 => jfc_id: u32,
        24 => jfc_handle: u64,
        32 => token: u32,
        36 => id: u32,
        40 => urma_jfr: u64,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_create_jfr_out[24] {
        0 => id: u32,
        4 => depth: u32,
        8 => max_sge: u8,
        16 => handle: u64,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_create_jfr_t[104] {
        0 => r#in: urma_cmd_create_jfr_in,
        48 => out: urma_cmd_create_jfr_out,
        72 => udata: urma_cmd_udrv_priv_t,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_modify_jfr_in[24] {
        0 => handle: u64,
        8 => mask: u32,
        12 => rx_threshold: u32,
        16 => state: u32,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_modify_jfr_t[56] {
        0 => r#in: urma_cmd_modify_jfr_in,
        24 => udata: urma_cmd_udrv_priv_t,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_query_jfr_in[8] {
        0 => handle: u64,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_query_jfr_out[32] {
        0 => depth: u32,
        4 => flag: u32,
        8 => trans_mode: u32,
        12 => max_sge: u8,
        13 => min_rnr_timer: u8,
        16 => token: u32,
        20 => id: u32,
        24 => rx_threshold: u32,
        28 => state: u32,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_query_jfr_t[40] {
        0 => r#in: urma_cmd_query_jfr_in,
        8 => out: urma_cmd_query_jfr_out,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_delete_jfr_in[8] {
        0 => handle: u64,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_delete_jfr_out[4] {
        0 => async_events_reported: u32,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_delete_jfr_t[16] {
        0 => r#in: urma_cmd_delete_jfr_in,
        8 => out: urma_cmd_delete_jfr_out,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_delete_jfr_batch_out[8] {
        0 => async_events_reported: u32,
        4 => bad_jfr_index: u32,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_delete_jfr_batch_in[16] {
        0 => jfr_num: u32,
        8 => jfr_ptr: u64,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_delete_jfr_batch_t[24] {
        0 => out: urma_cmd_delete_jfr_batch_out,
        8 => r#in: urma_cmd_delete_jfr_batch_in,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_alloc_jfr_in[48] {
        0 => depth: u32,
        4 => flag: u32,
        8 => trans_mode: u32,
        12 => max_sge: u8,
        13 => min_rnr_timer: u8,
        16 => jfc_id: u32,
        24 => jfc_handle: u64,
        32 => token: u32,
        36 => id: u32,
        40 => urma_jfr: u64,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_alloc_jfr_out[24] {
        0 => id: u32,
        4 => depth: u32,
        8 => handle: u64,
        16 => max_sge: u8,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_alloc_jfr_t[104] {
        0 => r#in: urma_cmd_alloc_jfr_in,
        48 => out: urma_cmd_alloc_jfr_out,
        72 => udata: urma_cmd_udrv_priv_t,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_free_jfr_in[8] {
        0 => handle: u64,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_free_jfr_out[4] {
        0 => async_events_reported: u32,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_free_jfr_t[48] {
        0 => r#in: urma_cmd_free_jfr_in,
        8 => out: urma_cmd_free_jfr_out,
        16 => udata: urma_cmd_udrv_priv_t,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_set_jfr_opt_in[32] {
        0 => handle: u64,
        8 => opt: u64,
        16 => buf: u64,
        24 => len: u32,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_set_jfr_opt_t[64] {
        0 => r#in: urma_cmd_set_jfr_opt_in,
        32 => udata: urma_cmd_udrv_priv_t,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_get_jfr_opt_in[32] {
        0 => handle: u64,
        8 => opt: u64,
        16 => buf: u64,
        24 => len: u32,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_get_jfr_opt_out[16] {
        0 => buf: u64,
        8 => len: u32,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_get_jfr_opt_t[80] {
        0 => r#in: urma_cmd_get_jfr_opt_in,
        32 => out: urma_cmd_get_jfr_opt_out,
        48 => udata: urma_cmd_udrv_priv_t,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_active_jfr_in[56] {
        0 => handle: u64,
        8 => depth: u32,
        12 => flag: u32,
        16 => trans_mode: u32,
        20 => max_sge: u8,
        21 => min_rnr_timer: u8,
        24 => jfc_id: u32,
        32 => jfc_handle: u64,
        40 => token_value: u32,
        48 => jfr_opt: u64,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_active_jfr_out[24] {
        0 => id: u32,
        4 => depth: u32,
        8 => handle: u64,
        16 => max_sge: u8,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_active_jfr_t[112] {
        0 => r#in: urma_cmd_active_jfr_in,
        56 => out: urma_cmd_active_jfr_out,
        80 => udata: urma_cmd_udrv_priv_t,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_deactive_jfr_in[8] {
        0 => handle: u64,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_deactive_jfr_t[40] {
        0 => r#in: urma_cmd_deactive_jfr_in,
        8 => udata: urma_cmd_udrv_priv_t,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_import_jfr_in[36] {
        0 => eid: [u8; 16],
        16 => id: u32,
        20 => flag: u32,
        24 => token: u32,
        28 => trans_mode: u32,
        32 => tp_type: u32,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_import_jfr_out[16] {
        0 => tpn: u32,
        8 => handle: u64,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_import_jfr_t[88] {
        0 => r#in: urma_cmd_import_jfr_in,
        40 => out: urma_cmd_import_jfr_out,
        56 => udata: urma_cmd_udrv_priv_t,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_import_jfr_ex_in[88] {
        0 => eid: [u8; 16],
        16 => id: u32,
        20 => flag: u32,
        24 => token: u32,
        28 => trans_mode: u32,
        32 => tp_type: u32,
        40 => tp_handle: u64,
        48 => peer_tp_handle: u64,
        56 => tag: u64,
        64 => tx_psn: u32,
        68 => rx_psn: u32,
        72 => stag: u64,
        80 => dtag: u64,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_import_jfr_ex_out[16] {
        0 => tpn: u32,
        4 => reserved: u32,
        8 => handle: u64,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_import_jfr_ex_t[136] {
        0 => r#in: urma_cmd_import_jfr_ex_in,
        88 => out: urma_cmd_import_jfr_ex_out,
        104 => udata: urma_cmd_udrv_priv_t,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_unimport_jfr_in[8] {
        0 => handle: u64,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_unimport_jfr_t[8] {
        0 => r#in: urma_cmd_unimport_jfr_in,
    }
}
