//! What urma_user_ctl exchanges with a UDMA device.
//!
//! *Owns*: the layout of `udma/udma_u_ctl.h`. *Must not*: do anything.

use core::ffi::c_void;

use super::layout::{c_consts, c_enums, c_flags, c_structs};
use super::{
    urma_cr_status_t, urma_jetty_cfg_t, urma_jetty_t, urma_jfc_cfg_t, urma_jfr_cfg_t,
    urma_jfs_cfg_t, urma_jfs_t, urma_jfs_wr_t,
};

c_consts! {
    u32 {
        REDUCE_OPCODE_MIN = 8,
        REDUCE_OPCODE_MAX = 11,
        REDUCE_DATA_TYPE_MAX = 9,
        PARTITION_ALIGNMENT = 4095,
    }
}

c_enums! {
    udma_u_jetty_type: u32 {
        UDMA_U_CACHE_LOCK_DWQE_JETTY_TYPE = 0,
        UDMA_U_CCU_JETTY_TYPE = 1,
        UDMA_U_NORMAL_JETTY_TYPE = 2,
    }

    udma_u_jfc_type: u32 {
        UDMA_U_NORMAL_JFC_TYPE = 0,
        UDMA_U_STARS_JFC_TYPE = 1,
        UDMA_U_CCU_JFC_TYPE = 2,
    }

    udma_u_cqe_aux_info_type: u32 {
        TPP2TQEM_WR_CNT = 0,
        DEVICE_RAS_STATUS_2 = 1,
        RXDMA_WR_PAYL_AXI_ERR = 2,
        RXDMA_HEAD_SPLIT_ERR_FLAG0 = 3,
        RXDMA_HEAD_SPLIT_ERR_FLAG1 = 4,
        RXDMA_HEAD_SPLIT_ERR_FLAG2 = 5,
        RXDMA_HEAD_SPLIT_ERR_FLAG3 = 6,
        TP_RCP_INNER_ALM_FOR_CQE = 7,
        TWP_AE_DFX_FOR_CQE = 8,
        PA_OUT_PKT_ERR_CNT = 9,
        TP_DAM_AXI_ALARM = 10,
        TP_DAM_VFT_BT_ALARM = 11,
        TP_EUM_AXI_ALARM = 12,
        TP_EUM_VFT_BT_ALARM = 13,
        TP_TPMM_AXI_ALARM = 14,
        TP_TPMM_VFT_BT_ALARM = 15,
        TP_TPGCM_AXI_ALARM = 16,
        TP_TPGCM_VFT_BT_ALARM = 17,
        TWP_ALM = 18,
        TP_RWP_INNER_ALM_FOR_CQE = 19,
        TWP_DFX21 = 20,
        LQC_TA_RNR_TANACK_CNT = 21,
        FVT = 22,
        RQMT0 = 23,
        RQMT1 = 24,
        RQMT2 = 25,
        RQMT3 = 26,
        RQMT4 = 27,
        RQMT5 = 28,
        RQMT6 = 29,
        RQMT7 = 30,
        RQMT8 = 31,
        RQMT9 = 32,
        RQMT10 = 33,
        RQMT11 = 34,
        RQMT12 = 35,
        RQMT13 = 36,
        RQMT14 = 37,
        RQMT15 = 38,
        PROC_ERROR_ALM = 39,
        LQC_TA_TIMEOUT_TAACK_CNT = 40,
        TP_RRP_ERR_FLG_0_FOR_CQE = 41,
        MAX_CQE_AUX_INFO_TYPE_NUM = 42,
    }

    udma_u_ae_aux_info_type: u32 {
        TP_RRP_FLUSH_TIMER_PKT_CNT = 0,
        TPP_DFX5 = 1,
        TWP_AE_DFX_FOR_AE = 2,
        TP_RRP_ERR_FLG_0_FOR_AE = 3,
        TP_RRP_ERR_FLG_1 = 4,
        TP_RWP_INNER_ALM_FOR_AE = 5,
        TP_RCP_INNER_ALM_FOR_AE = 6,
        LQC_TA_TQEP_WQE_ERR = 7,
        LQC_TA_CQM_CQE_INNER_ALARM = 8,
        MAX_AE_AUX_INFO_TYPE_NUM = 9,
    }
}

c_flags! {
    udma_jfr_flag: u32 {
        0, 1 => idxq_cstm, set_idxq_cstm;
        1, 1 => rq_cstm, set_rq_cstm;
        2, 1 => swdb_cstm, set_swdb_cstm;
        3, 1 => swdb_ctl_cstm, set_swdb_ctl_cstm;
    }

    udma_jfs_flag: u32 {
        0, 1 => sq_cstm, set_sq_cstm;
        1, 1 => db_cstm, set_db_cstm;
        2, 1 => db_ctl_cstm, set_db_ctl_cstm;
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

    #[derive(Clone, Copy)]
    struct udma_u_jfs_cstm_cfg[32] {
        0 => flag: udma_jfs_flag,
        8 => sq: udma_u_que_cfg_ex,
        24 => tgid: u32,
    }

    /// CREATE_JFR_EX: in; the new JFR comes out as a pointer.
    #[derive(Clone, Copy)]
    struct udma_u_jfr_cfg_ex[96] {
        0 => base_cfg: urma_jfr_cfg_t,
        48 => cstm_cfg: udma_u_jfr_cstm_cfg,
    }

    /// CREATE_JFS_EX: in.
    #[derive(Clone, Copy)]
    struct udma_u_jfs_cfg_ex[96] {
        0 => id: u32,
        8 => base_cfg: urma_jfs_cfg_t,
        48 => cstm_cfg: udma_u_jfs_cstm_cfg,
        80 => jetty_type: udma_u_jetty_type,
        84 => pi_type: u8,
        88 => sqebb_num: u32,
    }

    /// CREATE_JFS_EX: out.
    #[derive(Clone, Copy)]
    struct udma_u_jfs_info[24] {
        0 => jfs: *mut urma_jfs_t,
        8 => dwqe_addr: *mut c_void,
        16 => db_addr: *mut c_void,
    }

    /// CREATE_JETTY_EX: in; jfr_cstm is for a receive queue that is not shared.
    #[derive(Clone, Copy)]
    struct udma_u_jetty_cfg_ex[176] {
        0 => base_cfg: urma_jetty_cfg_t,
        80 => jfr_cstm: udma_u_jfr_cstm_cfg,
        128 => jfs_cstm: udma_u_jfs_cstm_cfg,
        160 => jetty_type: udma_u_jetty_type,
        164 => pi_type: u8,
        168 => sqebb_num: u32,
    }

    /// CREATE_JETTY_EX: out.
    #[derive(Clone, Copy)]
    struct udma_u_jetty_info[24] {
        0 => jetty: *mut urma_jetty_t,
        8 => dwqe_addr: *mut c_void,
        16 => db_addr: *mut c_void,
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

    /// UPDATE_CI: in.
    #[derive(Clone, Copy)]
    struct udma_u_update_ci[24] {
        0 => ci: u16,
        2 => is_jetty: u8,
        8 => jfs: *mut urma_jfs_t,
        16 => jetty: *mut urma_jetty_t,
    }

    /// QUERY_UE_INFO: out.
    #[derive(Clone, Copy)]
    struct udma_u_ue_info[12] {
        0 => ue_id: u32,
        4 => chip_id: u32,
        8 => die_id: u32,
    }

    /// QUERY_TP_SPORT: in.
    #[derive(Clone, Copy)]
    struct udma_u_tp_sport_in[4] {
        0 => tpn: u32,
    }

    /// QUERY_TP_SPORT: out.
    #[derive(Clone, Copy)]
    struct udma_u_tp_sport_out[8] {
        0 => data_udp_srcport: u32,
        4 => ack_udp_srcport: u32,
    }

    /// QUERY_CQE_AUX_INFO: in.
    #[derive(Clone, Copy)]
    struct udma_u_cqe_info_in[40] {
        0 => status: urma_cr_status_t,
        4 => s_r: u8,
        6 => rsv_bitmap: u16,
        8 => rsvd: [u32; 8],
    }

    /// QUERY_CQE_AUX_INFO: out.
    #[derive(Clone, Copy)]
    struct udma_u_cqe_aux_info_out[56] {
        0 => aux_info_type: *mut udma_u_cqe_aux_info_type,
        8 => aux_info_value: *mut u32,
        16 => aux_info_num: u32,
        20 => rsv_bitmap: u32,
        24 => rsvd: [u32; 8],
    }

    /// QUERY_AE_AUX_INFO: in.
    #[derive(Clone, Copy)]
    struct udma_u_ae_info_in[40] {
        0 => event_type: u32,
        4 => rsv_bitmap: u32,
        8 => rsvd: [u32; 8],
    }

    /// QUERY_AE_AUX_INFO: out.
    #[derive(Clone, Copy)]
    struct udma_u_ae_aux_info_out[24] {
        0 => aux_info_type: *mut udma_u_ae_aux_info_type,
        8 => aux_info_value: *mut u32,
        16 => aux_info_num: u32,
    }

    #[derive(Clone, Copy)]
    struct udma_u_fe_info[32] {
        0 => rsv_bitmap: u32,
        4 => rsvd: [u32; 7],
    }
}
