/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What urma_user_ctl exchanges with a UDMA device.
 */
#ifndef __UDMA_U_CTL_H__
#define __UDMA_U_CTL_H__

#include <stdbool.h>
#include <stdint.h>
#include "../urma_types.h"

#ifdef __cplusplus
extern "C" {
#endif

#define REDUCE_OPCODE_MIN 8
#define REDUCE_OPCODE_MAX 11
#define REDUCE_DATA_TYPE_MAX 9
#define PARTITION_ALIGNMENT 0xfff
/* An opcode of the first releases; the one that is served is UDMA_U_USER_CTL_QUERY_TP_SPORT. */
#if URMA_ABI_PROFILE == URMA_ABI_26_06
#define UDMA_USER_CTL_QUERY_TP_SPORT 9
#else
#define UDMA_USER_CTL_QUERY_TP_SPORT 16
#endif

/* Opcodes of urma_user_ctl on a UDMA device. */
enum udma_u_user_ctl_opcode {
    UDMA_U_USER_CTL_CREATE_JFR_EX = 0,
    UDMA_U_USER_CTL_DELETE_JFR_EX = 1,
    UDMA_U_USER_CTL_CREATE_JFS_EX = 2,
    UDMA_U_USER_CTL_DELETE_JFS_EX = 3,
    UDMA_U_USER_CTL_CREATE_JFC_EX = 4,
    UDMA_U_USER_CTL_DELETE_JFC_EX = 5,
    UDMA_U_USER_CTL_CREATE_JETTY_EX = 6,
    UDMA_U_USER_CTL_DELETE_JETTY_EX = 7,
    UDMA_U_USER_CTL_POST_WR = 8,
    UDMA_U_USER_CTL_UPDATE_CI = 9,
    UDMA_U_USER_CTL_QUERY_UE_INFO = 10,
    UDMA_U_USER_CTL_QUERY_TP_SPORT = 11,
    UDMA_U_USER_CTL_QUERY_CQE_AUX_INFO = 12,
    UDMA_U_USER_CTL_QUERY_AE_AUX_INFO = 13,
#if URMA_ABI_PROFILE == URMA_ABI_26_06
    UDMA_U_USER_CTL_CREATE_LOCK_BUFFER_JETTY_EX = 14,
    UDMA_U_USER_CTL_DELETE_LOCK_BUFFER_JETTY_EX = 15,
    UDMA_U_USER_CTL_CREATE_CCU_JFC_EX = 16,
    UDMA_U_USER_CTL_DELETE_CCU_JFC_EX = 17,
    UDMA_U_USER_CTL_MAX = 18,
#else
    UDMA_U_USER_CTL_MAX = 14,
#endif
};

enum udma_u_jetty_type {
    UDMA_U_CACHE_LOCK_DWQE_JETTY_TYPE = 0,
    UDMA_U_CCU_JETTY_TYPE = 1,
    UDMA_U_NORMAL_JETTY_TYPE = 2,
};

enum udma_u_jfc_type {
    UDMA_U_NORMAL_JFC_TYPE = 0,
    UDMA_U_STARS_JFC_TYPE = 1,
    UDMA_U_CCU_JFC_TYPE = 2,
#if URMA_ABI_PROFILE == URMA_ABI_26_06
    UDMA_RVS_TYPE = 3,
    UDMA_U_LOCK_CCU_JFC_TYPE = 4,
#endif
};

enum udma_u_cqe_aux_info_type {
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
};

enum udma_u_ae_aux_info_type {
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
};

union udma_jfr_flag {
    struct {
        uint32_t idxq_cstm : 1;
        uint32_t rq_cstm : 1;
        uint32_t swdb_cstm : 1;
        uint32_t swdb_ctl_cstm : 1;
        uint32_t reserved : 28;
    } bs;
    uint32_t value;
};

union udma_jfs_flag {
    struct {
        uint32_t sq_cstm : 1;
        uint32_t db_cstm : 1;
        uint32_t db_ctl_cstm : 1;
        uint32_t reserved : 29;
    } bs;
    uint32_t value;
};

/* Memory that the caller gives to a queue. */
struct udma_u_que_cfg_ex {
    uint32_t buff_size;
    void *buff;
};

struct udma_u_jfr_cstm_cfg {
    union udma_jfr_flag flag;
    struct udma_u_que_cfg_ex idx_que;
    struct udma_u_que_cfg_ex rq;
    uint32_t *sw_db;
};

struct udma_u_jfs_cstm_cfg {
    union udma_jfs_flag flag;
    struct udma_u_que_cfg_ex sq;
    uint32_t tgid;
};

/* CREATE_JFR_EX: in; the new JFR comes out as a pointer. */
struct udma_u_jfr_cfg_ex {
    urma_jfr_cfg_t base_cfg;
    struct udma_u_jfr_cstm_cfg cstm_cfg;
};

/* CREATE_JFS_EX: in. */
struct udma_u_jfs_cfg_ex {
    uint32_t id;
    urma_jfs_cfg_t base_cfg;
    struct udma_u_jfs_cstm_cfg cstm_cfg;
    enum udma_u_jetty_type jetty_type;
    bool pi_type;
    uint32_t sqebb_num;
};

/* CREATE_JFS_EX: out. */
struct udma_u_jfs_info {
    urma_jfs_t *jfs;
    void *dwqe_addr;
    void *db_addr;
};

/* CREATE_JETTY_EX: in; jfr_cstm is for a receive queue that is not shared. */
struct udma_u_jetty_cfg_ex {
    urma_jetty_cfg_t base_cfg;
    struct udma_u_jfr_cstm_cfg jfr_cstm;
    struct udma_u_jfs_cstm_cfg jfs_cstm;
    enum udma_u_jetty_type jetty_type;
    bool pi_type;
    uint32_t sqebb_num;
};

/* CREATE_JETTY_EX: out. */
struct udma_u_jetty_info {
    urma_jetty_t *jetty;
    void *dwqe_addr;
    void *db_addr;
};

/* CREATE_JFC_EX: in. */
struct udma_u_jfc_cfg_ex {
    urma_jfc_cfg_t base_cfg;
    enum udma_u_jfc_type jfc_mode;
};

#if URMA_ABI_PROFILE == URMA_ABI_26_06
struct udma_u_jfc_ccu_cfg {
    uint32_t ccu_cqe_flag;
};

/* CREATE_CCU_JFC_EX: in. */
struct udma_u_lock_jfc_cfg {
    urma_jfc_cfg_t base_cfg;
    struct udma_u_jfc_ccu_cfg ccu_cfg;
};

/* CREATE_LOCK_BUFFER_JETTY_EX: in. */
struct udma_u_lock_jetty_cfg {
    urma_jetty_cfg_t base_cfg;
    bool jetty_type;
    uint32_t buf_idx;
};
#endif

/* A work request that may reduce at the target. */
struct udma_u_jfs_wr_ex {
    urma_jfs_wr_t wr;
    bool reduce_en;
    uint8_t reduce_opcode;
    uint8_t reduce_data_type;
};

/* POST_WR: in. */
struct udma_u_wr_ex {
    bool is_jetty;
    bool db_en;
    union {
        urma_jfs_t *jfs;
        urma_jetty_t *jetty;
    };
    struct udma_u_jfs_wr_ex *wr;
    struct udma_u_jfs_wr_ex **bad_wr;
};

/* POST_WR: out. */
struct udma_u_post_info {
    uint64_t *dwqe_addr;
    volatile void *db_addr;
    uint64_t *ctrl;
    uint32_t pi;
};

/* UPDATE_CI: in. */
struct udma_u_update_ci {
    uint16_t ci;
    bool is_jetty;
    urma_jfs_t *jfs;
    urma_jetty_t *jetty;
};

/* QUERY_UE_INFO: out. */
struct udma_u_ue_info {
    uint32_t ue_id;
    uint32_t chip_id;
    uint32_t die_id;
};

/* QUERY_TP_SPORT: in. */
struct udma_u_tp_sport_in {
    uint32_t tpn;
};

/* QUERY_TP_SPORT: out. */
struct udma_u_tp_sport_out {
    uint32_t data_udp_srcport;
    uint32_t ack_udp_srcport;
};

/* QUERY_CQE_AUX_INFO: in. */
struct udma_u_cqe_info_in {
    urma_cr_status_t status;
    uint8_t s_r;
#if URMA_ABI_PROFILE == URMA_ABI_26_06
    uint16_t rsv_bitmap;
    uint32_t rsvd[8];
#endif
};

/* QUERY_CQE_AUX_INFO: out. */
struct udma_u_cqe_aux_info_out {
    enum udma_u_cqe_aux_info_type *aux_info_type;
    uint32_t *aux_info_value;
    uint32_t aux_info_num;
#if URMA_ABI_PROFILE == URMA_ABI_26_06
    uint32_t rsv_bitmap;
    uint32_t rsvd[8];
#endif
};

/* QUERY_AE_AUX_INFO: in. */
struct udma_u_ae_info_in {
    uint32_t event_type;
#if URMA_ABI_PROFILE == URMA_ABI_26_06
    uint32_t rsv_bitmap;
    uint32_t rsvd[8];
#endif
};

/* QUERY_AE_AUX_INFO: out. */
struct udma_u_ae_aux_info_out {
    enum udma_u_ae_aux_info_type *aux_info_type;
    uint32_t *aux_info_value;
    uint32_t aux_info_num;
};

struct udma_u_fe_info {
    uint32_t rsv_bitmap;
    uint32_t rsvd[7];
};

#ifdef __cplusplus
}
#endif

#endif
