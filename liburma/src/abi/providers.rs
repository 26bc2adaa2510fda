//! The mirror of the C API: providers, and what a device defines.
//!
//! `cargo xtask mirror` writes this file from `mirror.txt` and the golden layouts.
//!
//! *Owns*: layouts and numbers. *Must not*: do anything.

use core::ffi::{c_char, c_int, c_void};

use super::layout::{c_consts, c_flags, c_structs};
use super::*;

c_structs! {
    /// What a provider does. The library calls through the table of the context at every call.
    struct urma_ops_t[800] {
        0 => name: *const c_char,
        8 => create_jfc: Option<unsafe extern "C" fn(ctx: *mut urma_context_t, jfc_cfg: *mut urma_jfc_cfg_t) -> *mut urma_jfc_t>,
        16 => modify_jfc: Option<unsafe extern "C" fn(jfc: *mut urma_jfc_t, attr: *mut urma_jfc_attr_t) -> urma_status_t>,
        24 => delete_jfc: Option<unsafe extern "C" fn(jfc: *mut urma_jfc_t) -> urma_status_t>,
        32 => delete_jfc_batch: Option<unsafe extern "C" fn(jfc: *mut *mut urma_jfc_t, jfc_num: c_int, bad_jfc: *mut *mut urma_jfc_t) -> urma_status_t>,
        40 => alloc_jfc: Option<unsafe extern "C" fn(ctx: *mut urma_context_t, cfg: *mut urma_jfc_cfg_t, jfc: *mut *mut urma_jfc_t) -> urma_status_t>,
        48 => set_jfc_opt: Option<unsafe extern "C" fn(jfc: *mut urma_jfc_t, opt: u64, buf: *mut c_void, len: u32) -> urma_status_t>,
        56 => active_jfc: Option<unsafe extern "C" fn(jfc: *mut urma_jfc_t) -> urma_status_t>,
        64 => get_jfc_opt: Option<unsafe extern "C" fn(jfc: *mut urma_jfc_t, opt: u64, buf: *mut c_void, len: u32) -> urma_status_t>,
        72 => deactive_jfc: Option<unsafe extern "C" fn(jfc: *mut urma_jfc_t) -> urma_status_t>,
        80 => free_jfc: Option<unsafe extern "C" fn(jfc: *mut urma_jfc_t) -> urma_status_t>,
        88 => create_jfs: Option<unsafe extern "C" fn(ctx: *mut urma_context_t, jfs: *mut urma_jfs_cfg_t) -> *mut urma_jfs_t>,
        96 => modify_jfs: Option<unsafe extern "C" fn(jfs: *mut urma_jfs_t, attr: *mut urma_jfs_attr_t) -> urma_status_t>,
        104 => query_jfs: Option<unsafe extern "C" fn(jfs: *mut urma_jfs_t, cfg: *mut urma_jfs_cfg_t, attr: *mut urma_jfs_attr_t) -> urma_status_t>,
        112 => flush_jfs: Option<unsafe extern "C" fn(jfs: *mut urma_jfs_t, cr_cnt: c_int, cr: *mut urma_cr_t) -> c_int>,
        120 => delete_jfs: Option<unsafe extern "C" fn(jfs: *mut urma_jfs_t) -> urma_status_t>,
        128 => delete_jfs_batch: Option<unsafe extern "C" fn(jfs_arr: *mut *mut urma_jfs_t, jfs_num: c_int, bad_jfs: *mut *mut urma_jfs_t) -> urma_status_t>,
        136 => alloc_jfs: Option<unsafe extern "C" fn(ctx: *mut urma_context_t, cfg: *mut urma_jfs_cfg_t, jfs: *mut *mut urma_jfs_t) -> urma_status_t>,
        144 => set_jfs_opt: Option<unsafe extern "C" fn(jfs: *mut urma_jfs_t, opt: u64, buf: *mut c_void, len: u32) -> urma_status_t>,
        152 => active_jfs: Option<unsafe extern "C" fn(jfs: *mut urma_jfs_t) -> urma_status_t>,
        160 => get_jfs_opt: Option<unsafe extern "C" fn(jfs: *mut urma_jfs_t, opt: u64, buf: *mut c_void, len: u32) -> urma_status_t>,
        168 => deactive_jfs: Option<unsafe extern "C" fn(jfs: *mut urma_jfs_t) -> urma_status_t>,
        176 => free_jfs: Option<unsafe extern "C" fn(jfs: *mut urma_jfs_t) -> urma_status_t>,
        184 => create_jfr: Option<unsafe extern "C" fn(ctx: *mut urma_context_t, jfr: *mut urma_jfr_cfg_t) -> *mut urma_jfr_t>,
        192 => modify_jfr: Option<unsafe extern "C" fn(jfr: *mut urma_jfr_t, attr: *mut urma_jfr_attr_t) -> urma_status_t>,
        200 => query_jfr: Option<unsafe extern "C" fn(jfr: *mut urma_jfr_t, cfg: *mut urma_jfr_cfg_t, attr: *mut urma_jfr_attr_t) -> urma_status_t>,
        208 => delete_jfr: Option<unsafe extern "C" fn(jfr: *mut urma_jfr_t) -> urma_status_t>,
        216 => delete_jfr_batch: Option<unsafe extern "C" fn(jfr_arr: *mut *mut urma_jfr_t, jfr_num: c_int, bad_jfr: *mut *mut urma_jfr_t) -> urma_status_t>,
        224 => import_jfr: Option<unsafe extern "C" fn(ctx: *mut urma_context_t, rjfr: *mut urma_rjfr_t, token: *mut urma_token_t) -> *mut urma_target_jetty_t>,
        232 => unimport_jfr: Option<unsafe extern "C" fn(target_jfr: *mut urma_target_jetty_t) -> urma_status_t>,
        240 => advise_jfr: Option<unsafe extern "C" fn(jfs: *mut urma_jfs_t, tjfr: *mut urma_target_jetty_t) -> urma_status_t>,
        248 => unadvise_jfr: Option<unsafe extern "C" fn(jfs: *mut urma_jfs_t, tjfr: *mut urma_target_jetty_t) -> urma_status_t>,
        256 => advise_jfr_async: Option<unsafe extern "C" fn(jfs: *mut urma_jfs_t, tjfr: *mut urma_target_jetty_t, cb_fun: urma_advise_async_cb_func, cb_arg: *mut c_void) -> urma_status_t>,
        264 => alloc_jfr: Option<unsafe extern "C" fn(ctx: *mut urma_context_t, cfg: *mut urma_jfr_cfg_t, jfr: *mut *mut urma_jfr_t) -> urma_status_t>,
        272 => set_jfr_opt: Option<unsafe extern "C" fn(jfr: *mut urma_jfr_t, opt: u64, buf: *mut c_void, len: u32) -> urma_status_t>,
        280 => active_jfr: Option<unsafe extern "C" fn(jfr: *mut urma_jfr_t) -> urma_status_t>,
        288 => get_jfr_opt: Option<unsafe extern "C" fn(jfr: *mut urma_jfr_t, opt: u64, buf: *mut c_void, len: u32) -> urma_status_t>,
        296 => deactive_jfr: Option<unsafe extern "C" fn(jfr: *mut urma_jfr_t) -> urma_status_t>,
        304 => free_jfr: Option<unsafe extern "C" fn(jfr: *mut urma_jfr_t) -> urma_status_t>,
        312 => create_jetty: Option<unsafe extern "C" fn(ctx: *mut urma_context_t, jetty_cfg: *mut urma_jetty_cfg_t) -> *mut urma_jetty_t>,
        320 => modify_jetty: Option<unsafe extern "C" fn(jetty: *mut urma_jetty_t, jetty_attr: *mut urma_jetty_attr_t) -> urma_status_t>,
        328 => query_jetty: Option<unsafe extern "C" fn(jetty: *mut urma_jetty_t, cfg: *mut urma_jetty_cfg_t, attr: *mut urma_jetty_attr_t) -> urma_status_t>,
        336 => flush_jetty: Option<unsafe extern "C" fn(jetty: *mut urma_jetty_t, cr_cnt: c_int, cr: *mut urma_cr_t) -> c_int>,
        344 => delete_jetty: Option<unsafe extern "C" fn(jetty: *mut urma_jetty_t) -> urma_status_t>,
        352 => delete_jetty_batch: Option<unsafe extern "C" fn(jetty_arr: *mut *mut urma_jetty_t, jetty_num: c_int, bad_jetty: *mut *mut urma_jetty_t) -> urma_status_t>,
        360 => import_jetty: Option<unsafe extern "C" fn(ctx: *mut urma_context_t, rjetty: *mut urma_rjetty_t, rjetty_token: *mut urma_token_t) -> *mut urma_target_jetty_t>,
        368 => unimport_jetty: Option<unsafe extern "C" fn(target_jetty: *mut urma_target_jetty_t) -> urma_status_t>,
        376 => advise_jetty: Option<unsafe extern "C" fn(jetty: *mut urma_jetty_t, tjetty: *mut urma_target_jetty_t) -> urma_status_t>,
        384 => unadvise_jetty: Option<unsafe extern "C" fn(jetty: *mut urma_jetty_t, tjetty: *mut urma_target_jetty_t) -> urma_status_t>,
        392 => advise_jetty_async: Option<unsafe extern "C" fn(jetty: *mut urma_jetty_t, tjetty: *mut urma_target_jetty_t, cb_fun: urma_advise_async_cb_func, cb_arg: *mut c_void) -> urma_status_t>,
        400 => bind_jetty: Option<unsafe extern "C" fn(jetty: *mut urma_jetty_t, tjetty: *mut urma_target_jetty_t) -> urma_status_t>,
        408 => unbind_jetty: Option<unsafe extern "C" fn(jetty: *mut urma_jetty_t) -> urma_status_t>,
        416 => alloc_jetty: Option<unsafe extern "C" fn(ctx: *mut urma_context_t, cfg: *mut urma_jetty_cfg_t, jetty: *mut *mut urma_jetty_t) -> urma_status_t>,
        424 => set_jetty_opt: Option<unsafe extern "C" fn(jetty: *mut urma_jetty_t, opt: u64, buf: *mut c_void, len: u32) -> urma_status_t>,
        432 => active_jetty: Option<unsafe extern "C" fn(jetty: *mut urma_jetty_t) -> urma_status_t>,
        440 => get_jetty_opt: Option<unsafe extern "C" fn(jetty: *mut urma_jetty_t, opt: u64, buf: *mut c_void, len: u32) -> urma_status_t>,
        448 => deactive_jetty: Option<unsafe extern "C" fn(jetty: *mut urma_jetty_t) -> urma_status_t>,
        456 => free_jetty: Option<unsafe extern "C" fn(jetty: *mut urma_jetty_t) -> urma_status_t>,
        464 => create_jetty_grp: Option<unsafe extern "C" fn(ctx: *mut urma_context_t, cfg: *mut urma_jetty_grp_cfg_t) -> *mut urma_jetty_grp_t>,
        472 => delete_jetty_grp: Option<unsafe extern "C" fn(jetty_grp: *mut urma_jetty_grp_t) -> urma_status_t>,
        480 => create_jfce: Option<unsafe extern "C" fn(ctx: *mut urma_context_t) -> *mut urma_jfce_t>,
        488 => delete_jfce: Option<unsafe extern "C" fn(jfce: *mut urma_jfce_t) -> urma_status_t>,
        496 => get_tpn: Option<unsafe extern "C" fn(jetty: *mut urma_jetty_t) -> c_int>,
        504 => modify_tp: Option<unsafe extern "C" fn(ctx: *mut urma_context_t, tpn: u32, cfg: *mut urma_tp_cfg_t, attr: *mut urma_tp_attr_t, mask: urma_tp_attr_mask_t) -> c_int>,
        512 => get_tp_list: Option<unsafe extern "C" fn(ctx: *mut urma_context_t, cfg: *mut urma_get_tp_cfg_t, tp_cnt: *mut u32, tp_list: *mut urma_tp_info_t) -> urma_status_t>,
        520 => set_tp_attr: Option<unsafe extern "C" fn(ctx: *const urma_context_t, tp_handle: u64, tp_attr_cnt: u8, tp_attr_bitmap: u32, tp_attr: *const urma_tp_attr_value_t) -> urma_status_t>,
        528 => get_tp_attr: Option<unsafe extern "C" fn(ctx: *const urma_context_t, tp_handle: u64, tp_attr_cnt: *mut u8, tp_attr_bitmap: *mut u32, tp_attr: *mut urma_tp_attr_value_t) -> urma_status_t>,
        536 => import_jetty_ex: Option<unsafe extern "C" fn(ctx: *mut urma_context_t, rjetty: *mut urma_rjetty_t, token_value: *mut urma_token_t, active_tp_cfg: *mut urma_active_tp_cfg_t) -> *mut urma_target_jetty_t>,
        544 => import_jfr_ex: Option<unsafe extern "C" fn(ctx: *mut urma_context_t, rjfr: *mut urma_rjfr_t, token_value: *mut urma_token_t, active_tp_cfg: *mut urma_active_tp_cfg_t) -> *mut urma_target_jetty_t>,
        552 => bind_jetty_ex: Option<unsafe extern "C" fn(jetty: *mut urma_jetty_t, tjetty: *mut urma_target_jetty_t, active_tp_cfg: *mut urma_active_tp_cfg_t) -> urma_status_t>,
        560 => alloc_token_id: Option<unsafe extern "C" fn(ctx: *mut urma_context_t) -> *mut urma_token_id_t>,
        568 => alloc_token_id_ex: Option<unsafe extern "C" fn(ctx: *mut urma_context_t, flag: urma_token_id_flag_t) -> *mut urma_token_id_t>,
        576 => free_token_id: Option<unsafe extern "C" fn(token_id: *mut urma_token_id_t) -> urma_status_t>,
        584 => register_seg: Option<unsafe extern "C" fn(ctx: *mut urma_context_t, seg_cfg: *mut urma_seg_cfg_t) -> *mut urma_target_seg_t>,
        592 => unregister_seg: Option<unsafe extern "C" fn(target_seg: *mut urma_target_seg_t) -> urma_status_t>,
        600 => import_seg: Option<unsafe extern "C" fn(ctx: *mut urma_context_t, seg: *mut urma_seg_t, token: *mut urma_token_t, addr: u64, flag: urma_import_seg_flag_t) -> *mut urma_target_seg_t>,
        608 => unimport_seg: Option<unsafe extern "C" fn(target_seg: *mut urma_target_seg_t) -> urma_status_t>,
        616 => get_async_event: Option<unsafe extern "C" fn(ctx: *mut urma_context_t, event: *mut urma_async_event_t) -> urma_status_t>,
        624 => ack_async_event: Option<unsafe extern "C" fn(event: *mut urma_async_event_t)>,
        632 => user_ctl: Option<unsafe extern "C" fn(ctx: *mut urma_context_t, r#in: *mut urma_user_ctl_in_t, out: *mut urma_user_ctl_out_t) -> c_int>,
        640 => post_jfs_wr: Option<unsafe extern "C" fn(jfs: *mut urma_jfs_t, wr: *mut urma_jfs_wr_t, bad_wr: *mut *mut urma_jfs_wr_t) -> urma_status_t>,
        648 => post_jfr_wr: Option<unsafe extern "C" fn(jfr: *mut urma_jfr_t, wr: *mut urma_jfr_wr_t, bad_wr: *mut *mut urma_jfr_wr_t) -> urma_status_t>,
        656 => post_jetty_send_wr: Option<unsafe extern "C" fn(jetty: *mut urma_jetty_t, wr: *mut urma_jfs_wr_t, bad_wr: *mut *mut urma_jfs_wr_t) -> urma_status_t>,
        664 => post_jetty_recv_wr: Option<unsafe extern "C" fn(jetty: *mut urma_jetty_t, wr: *mut urma_jfr_wr_t, bad_wr: *mut *mut urma_jfr_wr_t) -> urma_status_t>,
        672 => poll_jfc: Option<unsafe extern "C" fn(jfc: *mut urma_jfc_t, cr_cnt: c_int, cr: *mut urma_cr_t) -> c_int>,
        680 => rearm_jfc: Option<unsafe extern "C" fn(jfc: *mut urma_jfc_t, solicited_only: u8) -> urma_status_t>,
        688 => wait_jfc: Option<unsafe extern "C" fn(jfce: *mut urma_jfce_t, jfc_cnt: u32, time_out: c_int, jfc: *mut *mut urma_jfc_t) -> c_int>,
        696 => ack_jfc: Option<unsafe extern "C" fn(jfc: *mut *mut urma_jfc_t, nevents: *mut u32, jfc_cnt: u32)>,
        704 => import_jetty_async: Option<unsafe extern "C" fn(notifier: *mut urma_notifier_t, rjetty: *const urma_rjetty_t, token_value: *const urma_token_t, user_ctx: u64, timeout: c_int) -> *mut urma_target_jetty_t>,
        712 => unimport_jetty_async: Option<unsafe extern "C" fn(target_jetty: *mut urma_target_jetty_t) -> urma_status_t>,
        720 => bind_jetty_async: Option<unsafe extern "C" fn(notifier: *mut urma_notifier_t, jetty: *mut urma_jetty_t, tjetty: *mut urma_target_jetty_t, user_ctx: u64, timeout: c_int) -> urma_status_t>,
        728 => unbind_jetty_async: Option<unsafe extern "C" fn(jetty: *mut urma_jetty_t) -> urma_status_t>,
        736 => create_notifier: Option<unsafe extern "C" fn(ctx: *mut urma_context_t) -> *mut urma_notifier_t>,
        744 => delete_notifier: Option<unsafe extern "C" fn(notifier: *mut urma_notifier_t) -> urma_status_t>,
        752 => wait_notify: Option<unsafe extern "C" fn(notifier: *mut urma_notifier_t, cnt: u32, notify: *mut urma_notify_t, timeout: c_int) -> c_int>,
        760 => ack_notify: Option<unsafe extern "C" fn(cnt: u32, notify: *mut urma_notify_t)>,
        768 => get_eid_by_ip: Option<unsafe extern "C" fn(ctx: *const urma_context_t, net_addr: *const urma_net_addr_t, eid: *mut urma_eid_t) -> urma_status_t>,
        776 => get_ip_by_eid: Option<unsafe extern "C" fn(ctx: *const urma_context_t, eid: *const urma_eid_t, net_addr: *mut urma_net_addr_t) -> urma_status_t>,
        784 => get_smac: Option<unsafe extern "C" fn(ctx: *const urma_context_t, mac: *mut u8) -> urma_status_t>,
        792 => get_dmac: Option<unsafe extern "C" fn(ctx: *const urma_context_t, net_addr: *const urma_net_addr_t, mac: *mut u8) -> urma_status_t>,
    }
    struct urma_match_entry_t[4] { 0 => vendor_id: u16, 2 => device_id: u16, }
    struct urma_provider_attr_t[8] {
        0 => version: u32, 4 => transport_type: urma_transport_type_t,
    }
    /// What a provider registers.
    struct urma_provider_ops_t[72] {
        0 => name: *const c_char, 8 => attr: urma_provider_attr_t,
        16 => match_table: *mut urma_match_entry_t,
        24 => init: Option<unsafe extern "C" fn(conf: *mut urma_init_attr_t) -> urma_status_t>,
        32 => uninit: Option<unsafe extern "C" fn() -> urma_status_t>,
        40 => query_device: Option<unsafe extern "C" fn(dev: *mut urma_device_t, dev_attr: *mut urma_device_attr_t) -> urma_status_t>,
        48 => create_context: Option<unsafe extern "C" fn(dev: *mut urma_device_t, eid_index: u32, dev_fd: c_int) -> *mut urma_context_t>,
        56 => delete_context: Option<unsafe extern "C" fn(ctx: *mut urma_context_t) -> urma_status_t>,
        64 => get_uasid: Option<unsafe extern "C" fn(uasid: *mut u32) -> urma_status_t>,
    }
    struct urma_driver_t[24] { 0 => ops: *mut urma_provider_ops_t, 8 => node: ub_list, }
    struct urma_jfce_cnt_info_t[80] {
        0 => dev_name: [c_char; 64], 64 => jfce_total_cnt: u64, 72 => jfce_thresh_cnt: u64,
    }
    struct urma_user_info_ext_hdr_t[4] { 0 => len: u32, 4 => data: [c_char; 0], }
    struct ub_list[16] { 0 => prev: *mut ub_list, 8 => next: *mut ub_list, }
    struct urma_seg_base_t[48] {
        0 => ubva: urma_ubva_t, 32 => len: u64, 40 => attr: urma_seg_attr_t, 44 => token_id: u32,
    }
    struct bondp_set_bonding_mode_in_t[8] {
        0 => bonding_mode: bondp_bonding_mode_t, 4 => bonding_level: bondp_bonding_level_t,
    }
    union bondp_query_port_in_u[8] { 0 => jfr: *mut urma_jfr_t, 0 => jetty: *mut urma_jetty_t, }
    struct bondp_query_port_in_t[8] { 0 => u: bondp_query_port_in_u, }
    struct bondp_query_port_out_t[168] {
        0 => enabled_indices: [u32; 20], 80 => enabled_count: u32, 84 => active_indices: [u32; 20],
        164 => active_count: u32,
    }
    struct bondp_get_jfce_fd_list_in_t[8] { 0 => jfce: *mut urma_jfce_t, }
    struct bondp_get_jfce_fd_list_out_t[84] { 0 => fd_list: [c_int; 20], 80 => count: u32, }
    struct bondp_rjetty_target_ctx_t[80] {
        0 => target_idx: u8, 8 => slave_id: urma_jetty_id_t,
        32 => health_check_seg: urma_seg_base_t,
    }
    struct urma_bond_jetty_ext_v0_t[32] {
        0 => version: u8, 8 => mask: u64, 16 => is_multipath: u8, 17 => is_health_check_enable: u8,
        20 => local_ctx_cnt: u32, 24 => target_ctx_cnt: u32, 28 => data: [c_char; 0],
    }
    struct urma_bond_seg_ext_t[976] {
        0 => version: u8, 8 => mask: u64, 16 => peer_p_seg: [urma_seg_base_t; 20],
    }
    /// Memory that the caller gives to a queue.
    struct udma_u_que_cfg_ex[16] { 0 => buff_size: u32, 8 => buff: *mut c_void, }
    struct udma_u_jfr_cstm_cfg[48] {
        0 => flag: udma_jfr_flag, 8 => idx_que: udma_u_que_cfg_ex, 24 => rq: udma_u_que_cfg_ex,
        40 => sw_db: *mut u32,
    }
    /// CREATE_JFR_EX: in; the new JFR comes out as a pointer.
    struct udma_u_jfr_cfg_ex[96] {
        0 => base_cfg: urma_jfr_cfg_t, 48 => cstm_cfg: udma_u_jfr_cstm_cfg,
    }
    /// CREATE_JFC_EX: what comes in.
    struct udma_u_jfc_cfg_ex[40] {
        0 => base_cfg: urma_jfc_cfg_t, 32 => jfc_mode: udma_u_jfc_type,
    }
    /// A work request that may reduce at the target.
    struct udma_u_jfs_wr_ex[88] {
        0 => wr: urma_jfs_wr_t, 80 => reduce_en: u8, 81 => reduce_opcode: u8,
        82 => reduce_data_type: u8,
    }
    union udma_u_wr_ex_u[8] { 0 => jfs: *mut urma_jfs_t, 0 => jetty: *mut urma_jetty_t, }
    /// POST_WR: what comes in.
    struct udma_u_wr_ex[32] {
        0 => is_jetty: u8, 1 => db_en: u8, 8 => u: udma_u_wr_ex_u, 16 => wr: *mut udma_u_jfs_wr_ex,
        24 => bad_wr: *mut *mut udma_u_jfs_wr_ex,
    }
    /// POST_WR: what goes out.
    struct udma_u_post_info[32] {
        0 => dwqe_addr: *mut u64, 8 => db_addr: *mut c_void, 16 => ctrl: *mut u64, 24 => pi: u32,
    }
    /// QUERY_UE_INFO: what goes out.
    struct udma_u_ue_info[12] { 0 => ue_id: u32, 4 => chip_id: u32, 8 => die_id: u32, }
}

c_consts! {
    u32 { URMA_MAX_SYSFS_PATH = 256, }
}

c_flags! {
    udma_jfr_flag: u32 {
        0, 1 => idxq_cstm, set_idxq_cstm; 1, 1 => rq_cstm, set_rq_cstm;
        2, 1 => swdb_cstm, set_swdb_cstm; 3, 1 => swdb_ctl_cstm, set_swdb_ctl_cstm;
    }
}
