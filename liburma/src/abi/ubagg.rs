//! Several devices bonded into one.
//!
//! *Owns*: the layout of `urma_ubagg.h`. *Must not*: do anything.

use core::ffi::{c_char, c_int};

use super::layout::{c_enums, c_structs};
use super::{urma_jetty_id_t, urma_jetty_t, urma_jfce_t, urma_jfr_t, urma_seg_attr_t, urma_ubva_t};

c_enums! {
    bondp_user_ctl_opcode_t: u32 {
        BONDP_USER_CTL_SET_BONDING_MODE_LEGACY = 4,
        BONDP_USER_CTL_ENABLE_SEG_CACHE = 5,
        BONDP_USER_CTL_QUERY_PORT = 6,
        BONDP_USER_CTL_SET_BONDING_MODE = 7,
        BONDP_USER_CTL_GET_JFCE_FD_LIST = 8,
        BONDP_USER_CTL_OPCODE_GET_RJETTY = 9,
        BONDP_USER_CTL_OPCODE_GET_SEG_CTX = 10,
        BONDP_USER_CTL_DISABLE_MSN = 11,
    }

    bondp_bonding_mode_t: u32 {
        BONDP_BONDING_MODE_MAX = 3,
    }

    bondp_bonding_level_t: u32 {
        BONDP_BONDING_LEVEL_MAX = 2,
    }

    bondp_rjetty_ext_mask_t: u32 {
        BONDP_RJETTY_EXT_MASK_MULTI_PATH = 1,
        BONDP_RJETTY_EXT_MASK_LOCAL_CTX = 4,
        BONDP_RJETTY_EXT_MASK_TARGET_CTX = 8,
    }
}

c_structs! {
    #[derive(Clone, Copy)]
    struct urma_seg_base_t[48] {
        0 => ubva: urma_ubva_t,
        32 => len: u64,
        40 => attr: urma_seg_attr_t,
        44 => token_id: u32,
    }

    #[derive(Clone, Copy)]
    struct bondp_set_bonding_mode_in_t[8] {
        0 => bonding_mode: bondp_bonding_mode_t,
        4 => bonding_level: bondp_bonding_level_t,
    }

    #[derive(Clone, Copy)]
    union bondp_query_port_in_u[8] {
        0 => jfr: *mut urma_jfr_t,
        0 => jetty: *mut urma_jetty_t,
    }

    #[derive(Clone, Copy)]
    struct bondp_query_port_in_t[8] {
        0 => u: bondp_query_port_in_u,
    }

    #[derive(Clone, Copy)]
    struct bondp_query_port_out_t[168] {
        0 => enabled_indices: [u32; 20],
        80 => enabled_count: u32,
        84 => active_indices: [u32; 20],
        164 => active_count: u32,
    }

    #[derive(Clone, Copy)]
    struct bondp_get_jfce_fd_list_in_t[8] {
        0 => jfce: *mut urma_jfce_t,
    }

    #[derive(Clone, Copy)]
    struct bondp_get_jfce_fd_list_out_t[84] {
        0 => fd_list: [c_int; 20],
        80 => count: u32,
    }

    #[derive(Clone, Copy)]
    struct bondp_rjetty_target_ctx_t[80] {
        0 => target_idx: u8,
        8 => slave_id: urma_jetty_id_t,
        32 => health_check_seg: urma_seg_base_t,
    }

    #[derive(Clone, Copy)]
    struct urma_bond_jetty_ext_v0_t[32] {
        0 => version: u8,
        8 => mask: u64,
        16 => is_multipath: u8,
        17 => is_health_check_enable: u8,
        20 => local_ctx_cnt: u32,
        24 => target_ctx_cnt: u32,
        28 => data: [c_char; 0],
    }

    #[derive(Clone, Copy)]
    struct urma_bond_seg_ext_t[976] {
        0 => version: u8,
        8 => mask: u64,
        16 => peer_p_seg: [urma_seg_base_t; 20],
    }
}
