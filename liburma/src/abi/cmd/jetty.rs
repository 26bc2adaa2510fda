//! Commands of device files: jetties.
//!
//! *Owns*: the layout of `urma_cmd.h`. *Must not*: do anything.

use core::ffi::{c_char, c_int};

use super::super::layout::c_structs;
use super::super::urma_cmd_udrv_priv_t;

c_structs! {
    #[derive(Clone, Copy)]
    struct urma_cmd_create_jetty_in[112] {
        0 => id: u32,
        4 => jetty_flag: u32,
        8 => jfs_depth: u32,
        12 => jfs_flag: u32,
        16 => trans_mode: u32,
        20 => priority: u8,
        21 => max_send_sge: u8,
        22 => max_send_rsge: u8,
        24 => max_inline_data: u32,
        28 => rnr_retry: u8,
        29 => err_timeout: u8,
        32 => send_jfc_id: u32,
        40 => send_jfc_handle: u64,
        48 => jfr_depth: u32,
        52 => jfr_flag: u32,
        56 => max_recv_sge: u8,
        57 => min_rnr_timer: u8,
        60 => recv_jfc_id: u32,
        64 => recv_jfc_handle: u64,
        72 => token: u32,
        76 => jfr_id: u32,
        80 => jfr_handle: u64,
        88 => jetty_grp_handle: u64,
        96 => is_jetty_grp: u8,
        104 => urma_jetty: u64,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_create_jetty_out[32] {
        0 => id: u32,
        8 => handle: u64,
        16 => jfs_depth: u32,
        20 => jfr_depth: u32,
        24 => max_send_sge: u8,
        25 => max_send_rsge: u8,
        26 => max_recv_sge: u8,
        28 => max_inline_data: u32,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_create_jetty_t[176] {
        0 => r#in: urma_cmd_create_jetty_in,
        112 => out: urma_cmd_create_jetty_out,
        144 => udata: urma_cmd_udrv_priv_t,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_modify_jetty_in[24] {
        0 => handle: u64,
        8 => mask: u32,
        12 => rx_threshold: u32,
        16 => state: u32,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_modify_jetty_t[56] {
        0 => r#in: urma_cmd_modify_jetty_in,
        24 => udata: urma_cmd_udrv_priv_t,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_query_jetty_in[8] {
        0 => handle: u64,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_query_jetty_out[60] {
        0 => id: u32,
        4 => jetty_flag: u32,
        8 => jfs_depth: u32,
        12 => jfr_depth: u32,
        16 => jfs_flag: u32,
        20 => jfr_flag: u32,
        24 => trans_mode: u32,
        28 => max_send_sge: u8,
        29 => max_send_rsge: u8,
        30 => max_recv_sge: u8,
        32 => max_inline_data: u32,
        36 => priority: u8,
        37 => retry_cnt: u8,
        38 => rnr_retry: u8,
        39 => err_timeout: u8,
        40 => min_rnr_timer: u8,
        44 => jfr_id: u32,
        48 => token: u32,
        52 => rx_threshold: u32,
        56 => state: u32,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_query_jetty_t[72] {
        0 => r#in: urma_cmd_query_jetty_in,
        8 => out: urma_cmd_query_jetty_out,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_delete_jetty_in[8] {
        0 => handle: u64,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_delete_jetty_out[4] {
        0 => async_events_reported: u32,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_delete_jetty_t[16] {
        0 => r#in: urma_cmd_delete_jetty_in,
        8 => out: urma_cmd_delete_jetty_out,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_delete_jetty_batch_out[8] {
        0 => async_events_reported: u32,
        4 => bad_jetty_index: u32,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_delete_jetty_batch_in[16] {
        0 => jetty_num: u32,
        8 => jetty_ptr: u64,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_delete_jetty_batch_t[24] {
        0 => out: urma_cmd_delete_jetty_batch_out,
        8 => r#in: urma_cmd_delete_jetty_batch_in,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_import_jetty_in[44] {
        0 => eid: [u8; 16],
        16 => id: u32,
        20 => flag: u32,
        24 => token: u32,
        28 => trans_mode: u32,
        32 => policy: u32,
        36 => r#type: u32,
        40 => tp_type: u32,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_import_jetty_out[16] {
        0 => tpn: u32,
        8 => handle: u64,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_import_jetty_t[96] {
        0 => r#in: urma_cmd_import_jetty_in,
        48 => out: urma_cmd_import_jetty_out,
        64 => udata: urma_cmd_udrv_priv_t,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_import_jetty_ex_in[96] {
        0 => eid: [u8; 16],
        16 => id: u32,
        20 => flag: u32,
        24 => token: u32,
        28 => trans_mode: u32,
        32 => policy: u32,
        36 => r#type: u32,
        40 => tp_type: u32,
        48 => tp_handle: u64,
        56 => peer_tp_handle: u64,
        64 => tag: u64,
        72 => tx_psn: u32,
        76 => rx_psn: u32,
        80 => stag: u64,
        88 => dtag: u64,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_import_jetty_ex_out[16] {
        0 => tpn: u32,
        4 => reserved: u32,
        8 => handle: u64,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_import_jetty_ex_t[144] {
        0 => r#in: urma_cmd_import_jetty_ex_in,
        96 => out: urma_cmd_import_jetty_ex_out,
        112 => udata: urma_cmd_udrv_priv_t,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_unimport_jetty_in[8] {
        0 => handle: u64,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_unimport_jetty_t[8] {
        0 => r#in: urma_cmd_unimport_jetty_in,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_advise_jetty_in[16] {
        0 => jetty_handle: u64,
        8 => tjetty_handle: u64,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_advise_jetty_t[48] {
        0 => r#in: urma_cmd_advise_jetty_in,
        16 => udata: urma_cmd_udrv_priv_t,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_bind_jetty_in[16] {
        0 => jetty_handle: u64,
        8 => tjetty_handle: u64,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_bind_jetty_out[4] {
        0 => tpn: u32,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_bind_jetty_t[56] {
        0 => r#in: urma_cmd_bind_jetty_in,
        16 => out: urma_cmd_bind_jetty_out,
        24 => udata: urma_cmd_udrv_priv_t,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_bind_jetty_ex_in[48] {
        0 => jetty_handle: u64,
        8 => tjetty_handle: u64,
        16 => tp_handle: u64,
        24 => peer_tp_handle: u64,
        32 => tag: u64,
        40 => tx_psn: u32,
        44 => rx_psn: u32,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_bind_jetty_ex_out[8] {
        0 => tpn: u32,
        4 => reserved: u32,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_bind_jetty_ex_t[88] {
        0 => r#in: urma_cmd_bind_jetty_ex_in,
        48 => out: urma_cmd_bind_jetty_ex_out,
        56 => udata: urma_cmd_udrv_priv_t,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_unbind_jetty_in[8] {
        0 => jetty_handle: u64,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_unbind_jetty_t[8] {
        0 => r#in: urma_cmd_unbind_jetty_in,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_unadvise_jetty_in[16] {
        0 => jetty_handle: u64,
        8 => tjetty_handle: u64,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_unadvise_jetty_t[16] {
        0 => r#in: urma_cmd_unadvise_jetty_in,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_create_jetty_grp_in[88] {
        0 => name: [c_char; 64],
        64 => token: u32,
        68 => id: u32,
        72 => policy: u32,
        76 => flag: u32,
        80 => urma_jetty_grp: u64,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_create_jetty_grp_out[16] {
        0 => id: u32,
        8 => handle: u64,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_create_jetty_grp_t[136] {
        0 => r#in: urma_cmd_create_jetty_grp_in,
        88 => out: urma_cmd_create_jetty_grp_out,
        104 => udata: urma_cmd_udrv_priv_t,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_delete_jetty_grp_in[8] {
        0 => handle: u64,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_delete_jetty_grp_out[4] {
        0 => async_events_reported: u32,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_delete_jetty_grp_t[16] {
        0 => r#in: urma_cmd_delete_jetty_grp_in,
        8 => out: urma_cmd_delete_jetty_grp_out,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_free_jetty_in[8] {
        0 => handle: u64,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_free_jetty_out[4] {
        0 => async_events_reported: u32,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_free_jetty_t[48] {
        0 => r#in: urma_cmd_free_jetty_in,
        8 => out: urma_cmd_free_jetty_out,
        16 => udata: urma_cmd_udrv_priv_t,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_set_jetty_opt_in[32] {
        0 => handle: u64,
        8 => opt: u64,
        16 => buf: u64,
        24 => len: u32,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_set_jetty_opt_t[64] {
        0 => r#in: urma_cmd_set_jetty_opt_in,
        32 => udata: urma_cmd_udrv_priv_t,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_get_jetty_opt_in[32] {
        0 => handle: u64,
        8 => opt: u64,
        16 => buf: u64,
        24 => len: u32,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_get_jetty_opt_out[16] {
        0 => buf: u64,
        8 => len: u32,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_get_jetty_opt_t[80] {
        0 => r#in: urma_cmd_get_jetty_opt_in,
        32 => out: urma_cmd_get_jetty_opt_out,
        48 => udata: urma_cmd_udrv_priv_t,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_active_jetty_in[48] {
        0 => flag: u32,
        8 => handle: u64,
        16 => send_jfc_handle: u64,
        24 => recv_jfc_handle: u64,
        32 => urma_jetty: u64,
        40 => jetty_opt: u64,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_active_jetty_out[4] {
        0 => jetty_id: u32,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_active_jetty_t[88] {
        0 => r#in: urma_cmd_active_jetty_in,
        48 => out: urma_cmd_active_jetty_out,
        56 => udata: urma_cmd_udrv_priv_t,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_deactive_jetty_in[8] {
        0 => handle: u64,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_deactive_jetty_t[40] {
        0 => r#in: urma_cmd_deactive_jetty_in,
        8 => udata: urma_cmd_udrv_priv_t,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_import_jetty_async_in[64] {
        0 => eid: [u8; 16],
        16 => id: u32,
        20 => flag: u32,
        24 => token: u32,
        28 => trans_mode: u32,
        32 => policy: u32,
        36 => r#type: u32,
        40 => urma_tjetty: u64,
        48 => user_ctx: u64,
        56 => fd: c_int,
        60 => timeout: c_int,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_import_jetty_async_out[16] {
        0 => tpn: u32,
        8 => handle: u64,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_import_jetty_async_t[112] {
        0 => r#in: urma_cmd_import_jetty_async_in,
        64 => out: urma_cmd_import_jetty_async_out,
        80 => udata: urma_cmd_udrv_priv_t,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_unimport_jetty_async_in[8] {
        0 => handle: u64,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_unimport_jetty_async_t[8] {
        0 => r#in: urma_cmd_unimport_jetty_async_in,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_bind_jetty_async_in[56] {
        0 => jetty_handle: u64,
        8 => tjetty_handle: u64,
        16 => urma_tjetty: u64,
        24 => urma_jetty: u64,
        32 => fd: c_int,
        40 => user_ctx: u64,
        48 => timeout: c_int,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_bind_jetty_async_out[4] {
        0 => tpn: u32,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_bind_jetty_async_t[96] {
        0 => r#in: urma_cmd_bind_jetty_async_in,
        56 => out: urma_cmd_bind_jetty_async_out,
        64 => udata: urma_cmd_udrv_priv_t,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_unbind_jetty_async_in[16] {
        0 => jetty_handle: u64,
        8 => tjetty_handle: u64,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_unbind_jetty_async_t[16] {
        0 => r#in: urma_cmd_unbind_jetty_async_in,
    }
}
