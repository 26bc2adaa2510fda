//! The mirror of the C API: what release 25.12.0.B081 has of its own.
//!
//! `cargo xtask mirror` writes this file from `mirror.txt` and the golden layouts.
//!
//! *Owns*: layouts and numbers. *Must not*: do anything.

use core::ffi::c_char;

use libc::timespec;

use super::layout::{c_absent, c_bits, c_enums, c_flags, c_structs};
use super::*;

c_enums! {
    urma_opcode_t: u32 {
        URMA_OPC_WRITE = 0, URMA_OPC_WRITE_IMM = 1, URMA_OPC_WRITE_NOTIFY = 2, URMA_OPC_READ = 16,
        URMA_OPC_CAS = 32, URMA_OPC_SWAP = 33, URMA_OPC_FADD = 34, URMA_OPC_FSUB = 35,
        URMA_OPC_FAND = 36, URMA_OPC_FOR = 37, URMA_OPC_FXOR = 38, URMA_OPC_SEND = 64,
        URMA_OPC_SEND_IMM = 65, URMA_OPC_SEND_INVALIDATE = 66, URMA_OPC_NOP = 81,
        URMA_OPC_WRITE_ATOMIC = 96,
    }
    urma_cr_opcode_t: u32 {}
    udma_u_user_ctl_opcode: u32 {
        UDMA_U_USER_CTL_CREATE_JFR_EX = 0, UDMA_U_USER_CTL_DELETE_JFR_EX = 1,
        UDMA_U_USER_CTL_DELETE_JFS_EX = 3, UDMA_U_USER_CTL_CREATE_JFC_EX = 4,
        UDMA_U_USER_CTL_DELETE_JFC_EX = 5, UDMA_U_USER_CTL_DELETE_JETTY_EX = 7,
        UDMA_U_USER_CTL_POST_WR = 8, UDMA_U_USER_CTL_QUERY_UE_INFO = 10, UDMA_U_USER_CTL_MAX = 14,
    }
}

c_flags! {
    urma_jfc_flag_t: u32 {
        0, 1 => lock_free, set_lock_free; 1, 1 => jfc_inline, set_jfc_inline;
        2, 1 => non_blocking, set_non_blocking;
    }
    urma_jfr_flag_t: u32 {
        0, 3 => token_policy, set_token_policy; 3, 1 => tag_matching, set_tag_matching;
        4, 1 => lock_free, set_lock_free; 5, 8 => order_type, set_order_type;
        13, 1 => non_blocking, set_non_blocking; 14, 1 => has_drv_ext, set_has_drv_ext;
    }
    urma_jetty_flag_t: u32 {
        0, 1 => share_jfr, set_share_jfr; 1, 1 => non_blocking, set_non_blocking;
        2, 1 => has_drv_ext, set_has_drv_ext;
    }
    urma_seg_attr_t: u32 {
        0, 3 => token_policy, set_token_policy; 3, 1 => cacheable, set_cacheable;
        4, 1 => dsva, set_dsva; 5, 6 => access, set_access; 11, 1 => non_pin, set_non_pin;
        12, 1 => user_iova, set_user_iova; 13, 1 => user_token_id, set_user_token_id;
    }
    urma_jfs_wr_flag_t: u32 {
        0, 2 => place_order, set_place_order; 2, 1 => comp_order, set_comp_order;
        3, 1 => fence, set_fence; 4, 1 => solicited_enable, set_solicited_enable;
        5, 1 => complete_enable, set_complete_enable; 6, 1 => inline_flag, set_inline_flag;
        7, 1 => db_bypass, set_db_bypass; 8, 1 => has_drv_ext, set_has_drv_ext;
    }
    urma_get_tp_cfg_flag_t: u32 {
        0, 1 => ctp, set_ctp; 1, 1 => rtp, set_rtp; 2, 1 => utp, set_utp; 3, 1 => uboe, set_uboe;
        4, 1 => pre_defined, set_pre_defined; 5, 1 => dynamic_defined, set_dynamic_defined;
    }
}

c_structs! {
    /// Limits of a device; a program asks for less than these.
    struct urma_device_cap_t[296] {
        0 => feature: urma_device_feature_t, 4 => max_jfc: u32, 8 => max_jfs: u32,
        12 => max_jfr: u32, 16 => max_jetty: u32, 20 => max_jetty_grp: u32,
        24 => max_jetty_in_jetty_grp: u32, 28 => max_jfc_depth: u32, 32 => max_jfs_depth: u32,
        36 => max_jfr_depth: u32, 40 => max_jfs_inline_len: u32, 44 => max_jfs_sge: u32,
        48 => max_jfs_rsge: u32, 52 => max_jfr_sge: u32, 56 => max_msg_size: u64,
        64 => max_read_size: u32, 68 => max_write_size: u32, 72 => max_cas_size: u32,
        76 => max_swap_size: u32, 80 => max_fetch_and_add_size: u32,
        84 => max_fetch_and_sub_size: u32, 88 => max_fetch_and_and_size: u32,
        92 => max_fetch_and_or_size: u32, 96 => max_fetch_and_xor_size: u32,
        100 => atomic_feat: urma_atomic_feature_t, 104 => trans_mode: u16,
        106 => congestion_ctrl_alg: u16, 108 => ceq_cnt: u32, 112 => max_tp_in_tpg: u32,
        116 => max_eid_cnt: u32, 120 => page_size_cap: u64, 128 => max_oor_cnt: u32, 132 => mn: u32,
        136 => max_netaddr_cnt: u32, 140 => rm_order_cap: urma_order_type_cap_t,
        144 => rc_order_cap: urma_order_type_cap_t, 148 => rm_tp_cap: urma_tp_type_cap_t,
        152 => rc_tp_cap: urma_tp_type_cap_t, 156 => um_tp_cap: urma_tp_type_cap_t,
        160 => tp_feature: urma_tp_feature_t, 164 => priority_info: [urma_sl_info; 16],
    }
    /// The answer of urma_query_device.
    struct urma_device_attr_t[488] {
        0 => guid: urma_guid_t, 16 => dev_cap: urma_device_cap_t, 312 => port_cnt: u8,
        316 => port_attr: [urma_port_attr_t; 8], 476 => reserved_jetty_id_min: u32,
        480 => reserved_jetty_id_max: u32,
    }
    /// What a peer needs in order to import a receive queue.
    struct urma_rjfr_t[64] {
        0 => jfr_id: urma_jfr_id_t, 24 => trans_mode: urma_transport_mode_t,
        32 => flag: urma_import_jetty_flag_t, 56 => tp_type: urma_tp_type_t,
    }
    /// What a peer needs in order to import a jetty; urma_get_rjetty fills it.
    struct urma_rjetty_t[72] {
        0 => jetty_id: urma_jetty_id_t, 24 => trans_mode: urma_transport_mode_t,
        28 => policy: urma_jetty_grp_policy_t, 32 => r#type: urma_target_type_t,
        40 => flag: urma_import_jetty_flag_t, 64 => tp_type: urma_tp_type_t,
    }
    /// A remote queue after import.
    struct urma_target_jetty_t[88] {
        0 => urma_ctx: *mut urma_context_t, 8 => id: urma_jetty_id_t, 32 => handle: u64,
        40 => trans_mode: urma_transport_mode_t, 44 => tp: urma_tp_t,
        48 => r#type: urma_target_type_t, 56 => flag: urma_import_jetty_flag_t,
        80 => policy: urma_jetty_grp_policy_t, 84 => tp_type: urma_tp_type_t,
    }
    struct urma_sysfs_dev_t[944] {
        0 => dev_name: [c_char; 64], 64 => sysfs_path: [c_char; 256],
        320 => driver_name: [c_char; 64], 384 => transport_type: urma_transport_type_t,
        392 => driver: *mut urma_driver_t, 400 => urma_device: *mut urma_device_t,
        408 => dev_attr: urma_device_attr_t, 896 => device_id: u16, 898 => vendor_id: u16,
        904 => node: ub_list, 920 => flag: u32, 928 => time_created: timespec,
    }
    /// Attributes of a transport path. What is narrower than a byte is in the types of `tp`.
    #[repr(packed)]
    struct urma_tp_attr_value_t[128] {
        0 => retry: urma_tp_attr_retry, 1 => sip: [u8; 16], 17 => dip: [u8; 16], 33 => sma: [u8; 6],
        39 => dma: [u8; 6], 45 => vlan: urma_tp_attr_vlan, 48 => sl: urma_tp_attr_sl, 49 => ttl: u8,
        50 => ack_udp_srcport: u16, 52 => data_udp_srcport: u16, 54 => udp: urma_tp_attr_udp,
        55 => reserved: [u8; 73],
    }
    /// How a remote queue is imported; the tags of the user lie over the flags.
    struct urma_import_jetty_flag_t[24] { 0 => value: u32, 8 => stag: u64, 16 => dtag: u64, }
}

c_bits! {
    urma_import_jetty_flag_t: u32 {
        0, 3 => token_policy, set_token_policy; 3, 8 => order_type, set_order_type;
        11, 1 => share_tp, set_share_tp; 12, 1 => has_drv_ext, set_has_drv_ext;
    }
}

c_absent! {
    urma_jfc_flag_t { has_drv_ext = set_has_drv_ext, }
    urma_import_jetty_flag_t { has_user_info = set_has_user_info, }
    urma_jetty_flag_t { has_user_info = set_has_user_info, }
    urma_seg_attr_t { has_user_info = set_has_user_info, }
    urma_jfs_wr_flag_t { udf = set_udf, }
    urma_get_tp_cfg_flag_t { udp = set_udp, group_id = set_group_id, }
}

/// Of the later release; known here so that its refusal needs no other code.
pub const URMA_OPC_FLUSH_DMA: urma_opcode_t = 128;
/// Of the later release; known here so that its refusal needs no other code.
pub const URMA_CR_OPC_FLUSH_WRITE: urma_cr_opcode_t = 4;
