//! What urma_user_ctl exchanges with a UDMA device.
//!
//! *Owns*: the layout of `udma/udma_u_ctl.h`. *Must not*: do anything.

use core::ffi::c_void;

use super::layout::{c_enums, c_flags, c_structs};
use super::{urma_jetty_t, urma_jfc_cfg_t, urma_jfr_cfg_t, urma_jfs_t, urma_jfs_wr_t};

c_enums! {
    udma_u_jfc_type: u32 {
        UDMA_U_NORMAL_JFC_TYPE = 0,
    }
}

c_flags! {
    udma_jfr_flag: u32 {
        0, 1 => idxq_cstm, set_idxq_cstm;
        1, 1 => rq_cstm, set_rq_cstm;
        2, 1 => swdb_cstm, set_swdb_cstm;
        3, 1 => swdb_ctl_cstm, set_swdb_ctl_cstm;
    }
}

c_structs! {
    /// Memory that the caller gives to a queue.
    #[derive(Clone, Copy)]
    struct udma_u_que_cfg_ex[16] {
        0 => buff_size: u32,
        8 => buff: *mut c_void,
    }

    #[derive(Clone, Copy)]
    struct udma_u_jfr_cstm_cfg[48] {
        0 => flag: udma_jfr_flag,
        8 => idx_que: udma_u_que_cfg_ex,
        24 => rq: udma_u_que_cfg_ex,
        40 => sw_db: *mut u32,
    }

    /// CREATE_JFR_EX: in; the new JFR comes out as a pointer.
    #[derive(Clone, Copy)]
    struct udma_u_jfr_cfg_ex[96] {
        0 => base_cfg: urma_jfr_cfg_t,
        48 => cstm_cfg: udma_u_jfr_cstm_cfg,
    }

    /// CREATE_JFC_EX: in.
    #[derive(Clone, Copy)]
    struct udma_u_jfc_cfg_ex[40] {
        0 => base_cfg: urma_jfc_cfg_t,
        32 => jfc_mode: udma_u_jfc_type,
    }

    /// A work request that may reduce at the target.
    #[derive(Clone, Copy)]
    struct udma_u_jfs_wr_ex[88] {
        0 => wr: urma_jfs_wr_t,
        80 => reduce_en: u8,
        81 => reduce_opcode: u8,
        82 => reduce_data_type: u8,
    }

    #[derive(Clone, Copy)]
    union udma_u_wr_ex_u[8] {
        0 => jfs: *mut urma_jfs_t,
        0 => jetty: *mut urma_jetty_t,
    }

    /// POST_WR: in.
    #[derive(Clone, Copy)]
    struct udma_u_wr_ex[32] {
        0 => is_jetty: u8,
        1 => db_en: u8,
        8 => u: udma_u_wr_ex_u,
        16 => wr: *mut udma_u_jfs_wr_ex,
        24 => bad_wr: *mut *mut udma_u_jfs_wr_ex,
    }

    /// POST_WR: out.
    #[derive(Clone, Copy)]
    struct udma_u_post_info[32] {
        0 => dwqe_addr: *mut u64,
        8 => db_addr: *mut c_void,
        16 => ctrl: *mut u64,
        24 => pi: u32,
    }

    /// QUERY_UE_INFO: out.
    #[derive(Clone, Copy)]
    struct udma_u_ue_info[12] {
        0 => ue_id: u32,
        4 => chip_id: u32,
        8 => die_id: u32,
    }
}
