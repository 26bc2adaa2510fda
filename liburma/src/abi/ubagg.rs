//! Several devices bonded into one.
//!
//! *Owns*: the layout of `urma_ubagg.h`. *Must not*: do anything.

use core::ffi::{c_char, c_int};

use super::layout::{c_consts, c_enums, c_structs};
use super::{
    urma_jetty_cfg_t, urma_jetty_id_t, urma_jetty_t, urma_jfc_cfg_t, urma_jfce_t, urma_jfr_cfg_t,
    urma_jfr_t, urma_jfs_cfg_t, urma_jfs_wr_t, urma_seg_attr_t, urma_ubva_t,
};

c_consts! {
    u32 {
        URMA_UBAGG_DEV_MAX_NUM = 20,
        URMA_UBAGG_MAX_CONNECTION = 400,
        URMA_UBAGG_WR_BUF_SIZE = 3,
        URMA_UBAGG_MAX_CR_CNT_PER_DEV = 32,
        URMA_UBAGG_CHIP_LINK_NUM = 4,
        URMA_ACTIVE_PORT_PER_DIE = 2,
        URMA_ACTIVE_PORT_MIN = 4,
        URMA_ACTIVE_PORT_MAX = 5,
    }
}

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
        BONDP_BONDING_MODE_STANDALONE = 0,
        BONDP_BONDING_MODE_ACTIVE_BACKUP = 1,
        BONDP_BONDING_MODE_BALANCE = 2,
        BONDP_BONDING_MODE_MAX = 3,
    }

    bondp_bonding_level_t: u32 {
        BONDP_BONDING_LEVEL_IODIE = 0,
        BONDP_BONDING_LEVEL_PORT = 1,
        BONDP_BONDING_LEVEL_MAX = 2,
    }

    bondp_rjetty_ext_version_t: u32 {
        BONDP_RJETTY_EXT_VERSION_V0 = 0,
    }

    bondp_rjetty_ext_mask_t: u32 {
        BONDP_RJETTY_EXT_MASK_MULTI_PATH = 1,
        BONDP_RJETTY_EXT_MASK_HEALTH_CHECK = 2,
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
    struct bondp_port_id_u[4] {
        0 => chip_id: u8,
        1 => die_id: u8,
        2 => port_idx: u8,
        3 => reserved: u8,
    }

    #[derive(Clone, Copy)]
    union bondp_port_id_t[8] {
        0 => u: bondp_port_id_u,
        0 => value: u64,
    }

    #[derive(Clone, Copy)]
    struct bondp_jfs_cfg_t[56] {
        0 => base: urma_jfs_cfg_t,
        40 => port_ids: *const bondp_port_id_t,
        48 => port_count: u32,
    }

    #[derive(Clone, Copy)]
    struct bondp_jfc_cfg_t[48] {
        0 => base: urma_jfc_cfg_t,
        32 => port_ids: *const bondp_port_id_t,
        40 => port_count: u32,
    }

    #[derive(Clone, Copy)]
    struct bondp_jfr_cfg_t[64] {
        0 => base: urma_jfr_cfg_t,
        48 => port_ids: *const bondp_port_id_t,
        56 => port_count: u32,
    }

    #[derive(Clone, Copy)]
    struct bondp_jetty_cfg_t[96] {
        0 => base: urma_jetty_cfg_t,
        80 => port_ids: *const bondp_port_id_t,
        88 => port_count: u32,
    }

    #[derive(Clone, Copy)]
    struct urma_bond_jetty_ext_health_check_seg[960] {
        0 => slaves: [urma_seg_base_t; 20],
    }

    #[derive(Clone, Copy)]
    struct urma_bond_jetty_ext_t[1488] {
        0 => version: u8,
        8 => mask: u64,
        16 => slave_id: [urma_jetty_id_t; 20],
        496 => is_multipath: u8,
        497 => enable_indices: [u8; 20],
        520 => enable_count: u32,
        524 => is_health_check_enable: u8,
        528 => health_check_seg: urma_bond_jetty_ext_health_check_seg,
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

    #[derive(Clone, Copy)]
    struct bondp_jfs_wr_t[88] {
        0 => base: urma_jfs_wr_t,
        80 => src_chip_id: u32,
        84 => dst_chip_id: u32,
    }

    #[derive(Clone, Copy)]
    struct bondp_path_t[12] {
        0 => local_idx: u32,
        4 => target_idx: u32,
        8 => least_load: u32,
    }
}
