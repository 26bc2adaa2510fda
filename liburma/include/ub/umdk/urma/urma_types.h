/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Types of the URMA C API. Structs are public memory: programs read and fill their members.
 */
#ifndef URMA_TYPES_H
#define URMA_TYPES_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include "urma_opcode.h"

#ifdef __cplusplus
extern "C" {
#endif

#define URMA_API_VERSION 9
#define MAX_PORT_CNT 8
#define URMA_MAX_JETTY_IN_JETTY_GRP 32
#define URMA_MAX_NAME 64
/* Major and minor number in one; the minor one has 16 bits. */
#define URMA_GET_VERSION(major, minor) (((major) << 16) + ((minor) < 65536 ? (minor) : 65535))
#define URMA_MAX_PATH 4096
#define URMA_EID_SIZE 16
#define URMA_MAX_PRIORITY_CNT 16
#define URMA_IPV4_MAP_IPV6_PREFIX 0xffff
#define URMA_MAX_EID_CNT 1024
#if URMA_ABI_PROFILE == URMA_ABI_26_06
#define URMA_CC_IDX_TABLE_SIZE 80
#else
#define URMA_CC_IDX_TABLE_SIZE 81
#endif
#define URMA_OPT_REVERSED_NUM 4
#define URMA_EID_STR_LEN 39
#define URMA_SEG_TOKEN_ID_INVALID 0xffffffffU

/* Lengths. */
#define URMA_MAX_DEV_NAME 64
#define URMA_GUID_SIZE 16
#define URMA_IP_ADDR_BYTES 16
#define URMA_MAC_BYTES 6

/* Options that a program may set before it activates a queue. */
#define URMA_JFS_SQE_BASE_ADDR_MASK 1
#define URMA_JFS_ID_MASK 2
#define URMA_JFS_DB_ADDR_MASK 4
#define URMA_JFS_DB_STATUS_MASK 8
#define URMA_JFS_PI_MASK 16
#define URMA_JFS_PI_TYPE_MASK 32
#define URMA_JFS_CI_MASK 64
#define URMA_JFR_RQE_BASE_ADDR_MASK 1
#define URMA_JFR_ID_MASK 2
#define URMA_JFR_DB_ADDR_MASK 4
#define URMA_JFR_DB_STATUS_MASK 8
#define URMA_JFR_PI_MASK 16
#define URMA_JFR_PI_TYPE_MASK 32
#define URMA_JFR_CI_MASK 64
#define URMA_JFC_CQE_BASE_ADDR_MASK 1
#define URMA_JFC_ID_MASK 2
#define URMA_JFC_DB_ADDR_MASK 4
#define URMA_JFC_DB_STATUS_MASK 8
#define URMA_JFC_PI_MASK 16
#define URMA_JFC_PI_TYPE_MASK 32
#define URMA_JFC_CI_MASK 64

/* Regions by name. */
#define UR_NAME_MAX_LEN 256
#define JFR_NAME_MAX_LEN 256
#define URMA_MAX_SEGS_PER_UR_OPT 64

/* Text of an EID: 8 groups of 4 hexadecimal digits. */
#define EID_FMT "%2.2x%2.2x:%2.2x%2.2x:%2.2x%2.2x:%2.2x%2.2x:%2.2x%2.2x:%2.2x%2.2x:%2.2x%2.2x:%2.2x%2.2x"
#define EID_RAW_ARGS(eid) \
    eid[0], eid[1], eid[2], eid[3], eid[4], eid[5], eid[6], eid[7], eid[8], eid[9], eid[10], \
        eid[11], eid[12], eid[13], eid[14], eid[15]
#define EID_ARGS(eid) EID_RAW_ARGS((eid).raw)

/* A counter that C and C++ lay out alike. */
#ifdef __cplusplus
}
extern "C++" {
#include <atomic>
}
extern "C" {
#define URMA_ATOMIC_ULONG std::atomic_ulong
#else
#include <stdatomic.h>
#define URMA_ATOMIC_ULONG atomic_ulong
#endif

struct urma_ops;
struct urma_provider_ops;
struct urma_sysfs_dev;

typedef enum urma_mtu {
    URMA_MTU_256 = 1,
    URMA_MTU_512 = 2,
    URMA_MTU_1024 = 3,
    URMA_MTU_2048 = 4,
    URMA_MTU_4096 = 5,
    URMA_MTU_8192 = 6,
} urma_mtu_t;

typedef enum urma_port_state {
    URMA_PORT_NOP = 0,
    URMA_PORT_DOWN = 1,
    URMA_PORT_INIT = 2,
    URMA_PORT_ARMED = 3,
    URMA_PORT_ACTIVE = 4,
    URMA_PORT_ACTIVE_DEFER = 5,
} urma_port_state_t;

typedef enum urma_speed {
    URMA_SP_10M = 0,
    URMA_SP_100M = 1,
    URMA_SP_1G = 2,
    URMA_SP_2_5G = 3,
    URMA_SP_5G = 4,
    URMA_SP_10G = 5,
    URMA_SP_14G = 6,
    URMA_SP_25G = 7,
    URMA_SP_40G = 8,
    URMA_SP_50G = 9,
    URMA_SP_100G = 10,
    URMA_SP_200G = 11,
    URMA_SP_400G = 12,
    URMA_SP_800G = 13,
} urma_speed_t;

typedef enum urma_link_width {
    URMA_LINK_X1 = 1,
    URMA_LINK_X2 = 2,
    URMA_LINK_X4 = 4,
    URMA_LINK_X8 = 8,
    URMA_LINK_X16 = 16,
    URMA_LINK_X32 = 32,
} urma_link_width_t;

typedef enum urma_transport_type {
    URMA_TRANSPORT_INVALID = -1,
    URMA_TRANSPORT_UB = 0,
#if URMA_ABI_PROFILE == URMA_ABI_26_06
    URMA_TRANSPORT_IB = 1,
    URMA_TRANSPORT_IP = 2,
    URMA_TRANSPORT_SOFTUB = 3,
    URMA_TRANSPORT_HNS_UB = 5,
    URMA_TRANSPORT_MAX = 6,
#else
    URMA_TRANSPORT_MAX = 1,
#endif
} urma_transport_type_t;

typedef enum urma_transport_mode {
    URMA_TM_RM = 1,
    URMA_TM_RC = 2,
    URMA_TM_UM = 4,
} urma_transport_mode_t;

typedef enum urma_tp_cc_alg {
    URMA_TP_CC_NONE = 0,
    URMA_TP_CC_DCQCN = 1,
#if URMA_ABI_PROFILE == URMA_ABI_26_06
    URMA_TP_CC_CAQM = 2,
#else
    URMA_TP_CC_DCQCN_AND_NETWORK_CC = 2,
#endif
    URMA_TP_CC_LDCP = 3,
#if URMA_ABI_PROFILE == URMA_ABI_26_06
    URMA_TP_CC_LDCP_L2_HEADER = 4,
    URMA_TP_CC_LDCP_TP_HEADER = 5,
    URMA_TP_CC_DIP = 6,
    URMA_TP_CC_ACC = 7,
    URMA_TP_CC_CUSTOM_1 = 8,
    URMA_TP_CC_CUSTOM_2 = 9,
    URMA_TP_CC_NUM = 10,
#else
    URMA_TP_CC_LDCP_AND_CAQM = 4,
    URMA_TP_CC_LDCP_AND_OPEN_CC = 5,
    URMA_TP_CC_HC3 = 6,
    URMA_TP_CC_DIP = 7,
    URMA_TP_CC_ACC = 8,
    URMA_TP_CC_NUM = 9,
#endif
} urma_tp_cc_alg_t;

typedef enum urma_congestion_ctrl_alg {
    URMA_CC_NONE = 1,
    URMA_CC_DCQCN = 2,
#if URMA_ABI_PROFILE == URMA_ABI_26_06
    URMA_CC_CAQM = 4,
#else
    URMA_CC_DCQCN_AND_NETWORK_CC = 4,
#endif
    URMA_CC_LDCP = 8,
#if URMA_ABI_PROFILE == URMA_ABI_26_06
    URMA_CC_LDCP_L2_HEADER = 16,
    URMA_CC_LDCP_TP_HEADER = 32,
    URMA_CC_DIP = 64,
    URMA_CC_ACC = 128,
    URMA_CC_CUSTOM_1 = 0x100,
    URMA_CC_CUSTOM_2 = 0x200,
#else
    URMA_CC_LDCP_AND_CAQM = 16,
    URMA_CC_LDCP_AND_OPEN_CC = 32,
    URMA_CC_HC3 = 64,
    URMA_CC_DIP = 128,
    URMA_CC_ACC = 0x100,
#endif
} urma_congestion_ctrl_alg_t;

typedef enum urma_context_opt_name {
    URMA_OPT_AGGR_MODE = 0,
} urma_opt_name_t;

typedef enum urma_context_aggr_mode {
    URMA_AGGR_MODE_STANDALONE = 0,
    URMA_AGGR_MODE_ACTIVE_BACKUP = 1,
    URMA_AGGR_MODE_BALANCE = 2,
} urma_context_aggr_mode_t;

typedef enum urma_jfc_attr_mask {
    JFC_MODERATE_COUNT = 1,
    JFC_MODERATE_PERIOD = 2,
} urma_jfc_attr_mask_t;

typedef enum urma_order_type {
    URMA_DEF_ORDER = 0,
    URMA_OT = 1,
    URMA_OI = 2,
    URMA_OL = 3,
    URMA_NO = 4,
} urma_order_type_t;

typedef enum urma_jfs_attr_mask {
    JFS_STATE = 1,
} urma_jfs_attr_mask_t;

typedef enum urma_jfr_attr_mask {
    JFR_RX_THRESHOLD = 1,
    JFR_STATE = 2,
} urma_jfr_attr_mask_t;

typedef enum urma_tp_type {
    URMA_RTP = 0,
    URMA_CTP = 1,
    URMA_UTP = 2,
} urma_tp_type_t;

typedef enum urma_jetty_grp_policy {
    URMA_JETTY_GRP_POLICY_RR = 0,
    URMA_JETTY_GRP_POLICY_HASH_HINT = 1,
} urma_jetty_grp_policy_t;

typedef enum urma_target_type {
    URMA_JFR = 0,
    URMA_JETTY = 1,
    URMA_JETTY_GROUP = 2,
} urma_target_type_t;

typedef enum urma_jetty_attr_mask {
    JETTY_RX_THRESHOLD = 1,
    JETTY_STATE = 2,
} urma_jetty_attr_mask_t;

typedef enum urma_notify_type {
    URMA_IMPORT_JETTY_NOTIFY = 0,
    URMA_BIND_JETTY_NOTIFY = 1,
} urma_notify_type_t;

typedef enum urma_tp_state {
    URMA_TP_STATE_RESET = 0,
    URMA_TP_STATE_PASSIVE = 1,
    URMA_TP_STATE_ACTIVE = 2,
    URMA_TP_STATE_BRAKE = 3,
    URMA_TP_STATE_ERROR = 4,
} urma_tp_state_t;

typedef enum urma_vlog_level {
    URMA_VLOG_LEVEL_EMERG = 0,
    URMA_VLOG_LEVEL_ALERT = 1,
    URMA_VLOG_LEVEL_CRIT = 2,
    URMA_VLOG_LEVEL_ERR = 3,
    URMA_VLOG_LEVEL_WARNING = 4,
    URMA_VLOG_LEVEL_NOTICE = 5,
    URMA_VLOG_LEVEL_INFO = 6,
    URMA_VLOG_LEVEL_DEBUG = 7,
    URMA_VLOG_LEVEL_MAX = 8,
} urma_vlog_level_t;

/* Every struct by its short name. */
typedef struct urma_init_attr urma_init_attr_t;
typedef union urma_eid urma_eid_t;
typedef struct urma_ref urma_ref_t;
typedef struct urma_port_attr urma_port_attr_t;
typedef union urma_device_feature urma_device_feature_t;
typedef union urma_atomic_feature urma_atomic_feature_t;
typedef union urma_order_type_cap urma_order_type_cap_t;
typedef union urma_tp_type_cap urma_tp_type_cap_t;
typedef union urma_tp_feature urma_tp_feature_t;
typedef struct urma_device_cap urma_device_cap_t;
typedef struct urma_guid urma_guid_t;
typedef struct urma_device_attr urma_device_attr_t;
typedef struct urma_token urma_token_t;
typedef struct urma_cc_entry urma_cc_entry_t;
typedef struct urma_device urma_device_t;
typedef struct urma_context urma_context_t;
typedef struct urma_eid_info urma_eid_info_t;
typedef struct urma_jfce_cfg urma_jfce_cfg_t;
typedef struct urma_jfce urma_jfce_t;
typedef union urma_jfc_flag urma_jfc_flag_t;
typedef struct urma_jfc_cfg urma_jfc_cfg_t;
typedef struct urma_jfc_attr urma_jfc_attr_t;
typedef struct urma_jetty_id urma_jetty_id_t;
typedef struct urma_jfc_opt urma_jfc_opt_t;
typedef struct urma_jfc urma_jfc_t;
typedef union urma_jfs_flag urma_jfs_flag_t;
typedef struct urma_jfs_opt urma_jfs_opt_t;
typedef struct urma_jfs_cfg urma_jfs_cfg_t;
typedef struct urma_jfs urma_jfs_t;
typedef struct urma_jfs_attr urma_jfs_attr_t;
typedef union urma_jfr_flag urma_jfr_flag_t;
typedef struct urma_jfr_opt urma_jfr_opt_t;
typedef struct urma_jfr_cfg urma_jfr_cfg_t;
typedef struct urma_jfr_attr urma_jfr_attr_t;
typedef struct urma_jfr urma_jfr_t;
typedef union urma_import_jetty_flag urma_import_jetty_flag_t;
typedef struct urma_rjfr urma_rjfr_t;
typedef struct urma_tp urma_tp_t;
typedef union urma_jetty_flag urma_jetty_flag_t;
typedef struct urma_jetty_cfg urma_jetty_cfg_t;
#if URMA_ABI_PROFILE == URMA_ABI_26_06
typedef union urma_ext_flag urma_ext_flag_t;
#endif
#if URMA_ABI_PROFILE == URMA_ABI_26_06
typedef struct urma_ext urma_ext_t;
#endif
typedef struct urma_rjetty urma_rjetty_t;
typedef struct urma_target_jetty urma_target_jetty_t;
typedef struct urma_jetty_attr urma_jetty_attr_t;
typedef struct urma_jetty_opt urma_jetty_opt_t;
typedef struct urma_jetty urma_jetty_t;
typedef struct urma_notifier urma_notifier_t;
typedef struct urma_notify urma_notify_t;
typedef union urma_jetty_grp_flag urma_jetty_grp_flag_t;
typedef struct urma_jetty_grp_cfg urma_jetty_grp_cfg_t;
typedef struct urma_ubva urma_ubva_t;
typedef union urma_reg_seg_flag urma_reg_seg_flag_t;
typedef union urma_seg_attr urma_seg_attr_t;
typedef union urma_import_seg_flag urma_import_seg_flag_t;
typedef union urma_token_id_flag urma_token_id_flag_t;
typedef struct urma_token_id urma_token_id_t;
typedef struct urma_seg_cfg urma_seg_cfg_t;
typedef struct urma_seg urma_seg_t;
typedef struct urma_target_seg urma_target_seg_t;
typedef struct urma_user_ctl_in urma_user_ctl_in_t;
typedef struct urma_user_ctl_out urma_user_ctl_out_t;
typedef struct urma_user_target_seg urma_user_tseg_t;
typedef struct urma_sge urma_sge_t;
typedef struct urma_sg urma_sg_t;
typedef union urma_jfs_wr_flag urma_jfs_wr_flag_t;
typedef union urma_jfr_wr_flag urma_jfr_wr_flag_t;
typedef struct urma_rw_wr urma_rw_wr_t;
typedef struct urma_send_wr urma_send_wr_t;
typedef struct urma_cas_wr urma_cas_wr_t;
typedef struct urma_faa_wr urma_faa_wr_t;
typedef struct urma_jfs_wr urma_jfs_wr_t;
typedef struct urma_jfr_wr urma_jfr_wr_t;
typedef union urma_cr_flag urma_cr_flag_t;
typedef struct urma_cr_token urma_cr_token_t;
typedef struct urma_cr urma_cr_t;
typedef struct urma_async_event urma_async_event_t;
typedef union urma_ur_attr urma_ur_attr_t;
typedef union urma_import_ur_flag urma_import_ur_flag_t;
typedef struct urma_ur urma_ur_t;
typedef struct urma_target_ur urma_target_ur_t;
typedef struct urma_seg_info urma_seg_info_t;
typedef struct urma_ur_info urma_ur_info_t;
typedef struct urma_jfr_info urma_jfr_info_t;
typedef union urma_tp_cfg_flag urma_tp_cfg_flag_t;
typedef struct urma_tp_cfg urma_tp_cfg_t;
typedef union urma_tp_attr_mask urma_tp_attr_mask_t;
typedef union urma_tp_mod_flag urma_tp_mod_flag_t;
typedef struct urma_net_addr urma_net_addr_t;
typedef struct urma_net_addr_info urma_net_addr_info_t;
typedef struct urma_tp_attr urma_tp_attr_t;
typedef union urma_get_tp_cfg_flag urma_get_tp_cfg_flag_t;
typedef struct urma_get_tp_cfg urma_get_tp_cfg_t;
typedef struct urma_tp_info urma_tp_info_t;
typedef struct urma_active_tp_attr urma_active_tp_attr_t;
typedef struct urma_active_tp_cfg urma_active_tp_cfg_t;
typedef struct urma_tp_attr_value urma_tp_attr_value_t;
typedef struct urma_jetty_grp urma_jetty_grp_t;
typedef urma_jetty_id_t urma_jfs_id_t;
typedef urma_jetty_id_t urma_jfr_id_t;
typedef urma_jetty_id_t urma_jfc_id_t;
typedef urma_active_tp_cfg_t urma_import_jetty_ex_cfg_t;
typedef urma_active_tp_cfg_t urma_import_jfr_ex_cfg_t;
typedef urma_active_tp_cfg_t urma_bind_jetty_ex_cfg_t;
typedef urma_jetty_state_t urma_jfs_state_t;

/* Arguments of urma_init; both members may be 0. */
struct urma_init_attr {
    uint64_t token; /* 0, or a secret that the device asks for */
    uint32_t uasid; /* 0 lets the system choose */
};

/* Entity identifier: an IPv6 address in network order, or an IPv4 address mapped into one. */
union urma_eid {
    uint8_t raw[URMA_EID_SIZE];
    struct {
        uint64_t reserved;
        uint32_t prefix;
        uint32_t addr;
    } in4;
    struct {
        uint64_t subnet_prefix;
        uint64_t interface_id;
    } in6;
};

/* Number of users of an object. */
struct urma_ref {
    URMA_ATOMIC_ULONG atomic_cnt;
};

/* One port of a device. */
struct urma_port_attr {
    urma_mtu_t max_mtu;
    urma_port_state_t state;
    urma_link_width_t active_width;
    urma_speed_t active_speed;
    urma_mtu_t active_mtu;
};

/* What a device can do, one bit each. */
union urma_device_feature {
    struct {
        uint32_t oor : 1;
        uint32_t jfc_per_wr : 1;
        uint32_t stride_op : 1;
        uint32_t load_store_op : 1;
        uint32_t non_pin : 1;
        uint32_t pmem : 1;
        uint32_t jfc_inline : 1;
        uint32_t spray_en : 1;
        uint32_t selective_retrans : 1;
        uint32_t live_migrate : 1;
        uint32_t dca : 1;
        uint32_t jetty_grp : 1;
        uint32_t error_suspend : 1;
        uint32_t outorder_comp : 1;
        uint32_t mn : 1;
        uint32_t clan : 1;
        uint32_t muti_seg_per_token_id : 1;
        uint32_t ipourma_en : 1;
        uint32_t ctp_en : 1;
        uint32_t uboe : 1;
        uint32_t reserved : 12;
    } bs;
    uint32_t value;
};

union urma_atomic_feature {
    struct {
        uint32_t cas : 1;
        uint32_t swap : 1;
        uint32_t fetch_and_add : 1;
        uint32_t fetch_and_sub : 1;
        uint32_t fetch_and_and : 1;
        uint32_t fetch_and_or : 1;
        uint32_t fetch_and_xor : 1;
        uint32_t reserved : 25;
    } bs;
    uint32_t value;
};

union urma_order_type_cap {
    struct {
        uint32_t ot : 1;
        uint32_t oi : 1;
        uint32_t ol : 1;
        uint32_t no : 1;
        uint32_t reserved : 28;
    } bs;
    uint32_t value;
};

union urma_tp_type_cap {
    struct {
        uint32_t rtp : 1;
        uint32_t ctp : 1;
        uint32_t utp : 1;
        uint32_t reserved : 29;
    } bs;
    uint32_t value;
};

union urma_tp_feature {
    struct {
        uint32_t rm_multi_path : 1;
        uint32_t rc_multi_path : 1;
        uint32_t reserved : 30;
    } bs;
    uint32_t value;
};

union urma_tp_type_en {
    struct {
        uint32_t rtp : 1;
        uint32_t ctp : 1;
        uint32_t utp : 1;
        uint32_t reserved : 29;
    } bs;
    uint32_t value;
};

/* The service level of a priority, and the transport paths that it serves. */
struct urma_sl_info {
    uint32_t SL;
    union urma_tp_type_en tp_type;
};

/* Limits of a device; a program asks for less than these. */
struct urma_device_cap {
    urma_device_feature_t feature;
    uint32_t max_jfc;
    uint32_t max_jfs;
    uint32_t max_jfr;
    uint32_t max_jetty;
    uint32_t max_jetty_grp;
    uint32_t max_jetty_in_jetty_grp;
    uint32_t max_jfc_depth;
    uint32_t max_jfs_depth;
    uint32_t max_jfr_depth;
    uint32_t max_jfs_inline_len;
    uint32_t max_jfs_sge;
    uint32_t max_jfs_rsge;
    uint32_t max_jfr_sge;
    uint64_t max_msg_size; /* in bytes, as the sizes below */
    uint32_t max_read_size;
    uint32_t max_write_size;
    uint32_t max_cas_size;
    uint32_t max_swap_size;
    uint32_t max_fetch_and_add_size;
    uint32_t max_fetch_and_sub_size;
    uint32_t max_fetch_and_and_size;
    uint32_t max_fetch_and_or_size;
    uint32_t max_fetch_and_xor_size;
    urma_atomic_feature_t atomic_feat;
    uint16_t trans_mode; /* bits of urma_transport_mode_t */
#if URMA_ABI_PROFILE == URMA_ABI_26_06
    uint16_t reserved;
#endif
    uint16_t congestion_ctrl_alg; /* bits of urma_congestion_ctrl_alg_t */
    uint32_t ceq_cnt;
    uint32_t max_tp_in_tpg;
    uint32_t max_eid_cnt;
    uint64_t page_size_cap;
    uint32_t max_oor_cnt;
    uint32_t mn;
    uint32_t max_netaddr_cnt;
    urma_order_type_cap_t rm_order_cap;
    urma_order_type_cap_t rc_order_cap;
    urma_tp_type_cap_t rm_tp_cap;
    urma_tp_type_cap_t rc_tp_cap;
    urma_tp_type_cap_t um_tp_cap;
    urma_tp_feature_t tp_feature;
    struct urma_sl_info priority_info[URMA_MAX_PRIORITY_CNT];
};

struct urma_guid {
    uint8_t raw[URMA_GUID_SIZE];
};

/* Answer of urma_query_device. */
struct urma_device_attr {
    urma_guid_t guid;
    urma_device_cap_t dev_cap;
    uint8_t port_cnt; /* members of port_attr that say something */
    struct urma_port_attr port_attr[MAX_PORT_CNT];
    uint32_t reserved_jetty_id_min; /* ids that are given only when asked for, both ends included */
    uint32_t reserved_jetty_id_max;
};

struct urma_token {
    uint32_t token;
};

struct urma_cc_entry {
    urma_tp_cc_alg_t alg;
    uint8_t cc_pattern_idx;
    uint8_t cc_priority;
} __attribute__((packed));

/* A device of the list; the library owns it. */
struct urma_device {
    char name[URMA_MAX_NAME];
    char path[URMA_MAX_PATH];
    urma_transport_type_t type;
    struct urma_provider_ops *ops;
    struct urma_sysfs_dev *sysfs_dev;
};

/* An opened device. The library fills it; ops may be replaced by a program that watches calls. */
struct urma_context {
    struct urma_device *dev;
    struct urma_ops *ops; /* every call on the context goes through it */
    int dev_fd;
    int async_fd; /* readable when there is an event */
    pthread_mutex_t mutex;
    urma_eid_t eid;
    uint32_t eid_index;
    uint32_t uasid;
    struct urma_ref ref; /* 1, and 1 for each object of the context */
    urma_context_aggr_mode_t aggr_mode;
};

struct urma_eid_info {
    urma_eid_t eid;
    uint32_t eid_index;
};

struct urma_jfce_cfg {
    uint32_t depth;
    uint64_t user_ctx;
};

/* Completion event channel: fd becomes readable when an armed JFC has a completion. */
struct urma_jfce {
    urma_context_t *urma_ctx;
    int fd; /* readable when there is an event */
    struct urma_ref ref;
};

union urma_jfc_flag {
    struct {
        uint32_t lock_free : 1;
        uint32_t jfc_inline : 1;
        uint32_t non_blocking : 1;
#if URMA_ABI_PROFILE == URMA_ABI_26_06
        uint32_t has_drv_ext : 1;
        uint32_t reserved : 28;
#else
        uint32_t reserved : 29;
#endif
    } bs;
    uint32_t value;
};

/* Completion queue: depth from 1 to max_jfc_depth; jfce may be NULL when only polled. */
struct urma_jfc_cfg {
    uint32_t depth; /* in records */
    urma_jfc_flag_t flag;
    uint32_t ceqn;
    urma_jfce_t *jfce;
    uint64_t user_ctx; /* the caller's own */
};

struct urma_jfc_attr {
    uint32_t mask; /* bits of urma_jfc_attr_mask_t */
    uint16_t moderate_count; /* in records */
    uint16_t moderate_period; /* in microseconds */
};

struct urma_jetty_id {
    urma_eid_t eid;
    uint32_t uasid;
    uint32_t id;
};

union urma_jfc_opt_mask {
    struct {
        uint64_t urma_jfc_cqe_base_addr : 1;
        uint64_t urma_jfc_db_addr : 1;
        uint64_t urma_jfc_id : 1;
        uint64_t urma_jfc_pi : 1;
        uint64_t urma_jfc_pi_type : 1;
        uint64_t urma_jfc_ci : 1;
        uint64_t urma_jfc_db_status : 1;
        uint64_t reserved : 57;
    } bs;
    uint64_t value;
};

struct urma_jfc_opt {
    union urma_jfc_opt_mask jfc_opt_mask;
    bool is_actived;
    uint64_t urma_jfc_cqe_base_addr;
    uint32_t urma_jfc_id;
    uint64_t urma_jfc_db_addr;
    uint8_t urma_jfc_db_status;
    uint16_t urma_jfc_pi;
    uint16_t urma_jfc_pi_type;
    uint16_t urma_jfc_ci;
    uint64_t reserved[URMA_OPT_REVERSED_NUM];
};

/* A completion queue. */
struct urma_jfc {
    urma_context_t *urma_ctx;
    urma_jfc_id_t jfc_id;
    urma_jfc_cfg_t jfc_cfg;
    uint64_t handle;
    pthread_mutex_t event_mutex;
    pthread_cond_t event_cond;
    uint32_t comp_events_acked;
    uint32_t async_events_acked;
    urma_jfc_opt_t urma_jfc_opt;
};

union urma_jfs_flag {
    struct {
        uint32_t lock_free : 1;
        uint32_t error_suspend : 1;
        uint32_t outorder_comp : 1;
        uint32_t order_type : 8;
        uint32_t multi_path : 1;
        uint32_t ctp_rc_mul_path_mode : 1;
        uint32_t non_blocking : 1;
        uint32_t has_drv_ext : 1;
        uint32_t reserved : 17;
    } bs;
    uint32_t value;
};

union urma_jfs_opt_mask {
    struct {
        uint64_t urma_jfs_cqe_base_addr : 1; /* of urma_jfs_sqe_base_addr */
        uint64_t urma_jfs_db_addr : 1;
        uint64_t urma_jfs_id : 1;
        uint64_t urma_jfs_pi : 1;
        uint64_t urma_jfs_pi_type : 1;
        uint64_t urma_jfs_ci : 1;
        uint64_t urma_jfs_db_status : 1;
        uint64_t reserved : 57;
    } bs;
    uint64_t value;
};

struct urma_jfs_opt {
    union urma_jfs_opt_mask jfs_opt_mask;
    bool is_actived;
    uint64_t urma_jfs_sqe_base_addr;
    uint32_t urma_jfs_id;
    uint64_t urma_jfs_db_addr;
    uint8_t urma_jfs_db_status;
    uint16_t urma_jfs_pi;
    uint16_t urma_jfs_pi_type;
    uint16_t urma_jfs_ci;
    uint64_t reserved[URMA_OPT_REVERSED_NUM];
};

/* Send queue. order_type 0 is replaced by the default of the mode, in this struct. */
struct urma_jfs_cfg {
    uint32_t depth; /* in requests */
    urma_jfs_flag_t flag;
    urma_transport_mode_t trans_mode;
    uint8_t priority; /* 0 to URMA_MAX_PRIORITY */
    uint8_t max_sge; /* local pieces of a request */
    uint8_t max_rsge; /* remote pieces of a request */
    uint32_t max_inline_data; /* in bytes */
    uint8_t rnr_retry; /* times that a receiver may be not ready */
    uint8_t err_timeout; /* 4096 ns, doubled this many times */
    urma_jfc_t *jfc;
    uint64_t user_ctx;
};

/* A send queue. */
struct urma_jfs {
    urma_context_t *urma_ctx;
    urma_jfs_id_t jfs_id;
    urma_jfs_cfg_t jfs_cfg;
    uint64_t handle;
    pthread_mutex_t event_mutex;
    pthread_cond_t event_cond;
    uint32_t async_events_acked;
    urma_jfs_opt_t urma_jfs_opt;
};

struct urma_jfs_attr {
    uint32_t mask;
    urma_jfs_state_t state;
};

union urma_jfr_flag {
    struct {
        uint32_t token_policy : 3;
        uint32_t tag_matching : 1;
        uint32_t lock_free : 1;
        uint32_t order_type : 8;
#if URMA_ABI_PROFILE == URMA_ABI_26_06
        uint32_t has_drv_ext : 1;
#endif
        uint32_t non_blocking : 1;
#if URMA_ABI_PROFILE == URMA_ABI_25_12_0_B081
        uint32_t has_drv_ext : 1;
#endif
        uint32_t reserved : 17;
    } bs;
    uint32_t value;
};

union urma_jfr_opt_mask {
    struct {
        uint64_t urma_jfr_cqe_base_addr : 1; /* of urma_jfr_rqe_base_addr */
        uint64_t urma_jfr_db_addr : 1;
        uint64_t urma_jfr_id : 1;
        uint64_t urma_jfr_pi : 1;
        uint64_t urma_jfr_pi_type : 1;
        uint64_t urma_jfr_ci : 1;
        uint64_t urma_jfr_db_status : 1;
        uint64_t reserved : 57;
    } bs;
    uint64_t value;
};

struct urma_jfr_opt {
    union urma_jfr_opt_mask jfr_opt_mask;
    bool is_actived;
    uint64_t urma_jfr_rqe_base_addr;
    uint32_t urma_jfr_id;
    uint64_t urma_jfr_db_addr;
    uint8_t urma_jfr_db_status;
    uint16_t urma_jfr_pi;
    uint16_t urma_jfr_pi_type;
    uint16_t urma_jfr_ci;
    uint64_t reserved[URMA_OPT_REVERSED_NUM];
};

/* Receive queue; id 0 lets the library choose. */
struct urma_jfr_cfg {
    uint32_t id; /* 0 lets the library choose */
    uint32_t depth; /* in requests */
    urma_jfr_flag_t flag;
    urma_transport_mode_t trans_mode;
    uint8_t max_sge;
    uint8_t min_rnr_timer; /* how long a sender waits when there is no receive */
    urma_jfc_t *jfc;
    urma_token_t token_value;
    uint64_t user_ctx;
};

struct urma_jfr_attr {
    uint32_t mask;
    uint32_t rx_threshold;
    urma_jfr_state_t state;
};

/* A receive queue. */
struct urma_jfr {
    urma_context_t *urma_ctx;
    urma_jfr_id_t jfr_id;
    urma_jfr_cfg_t jfr_cfg;
    uint64_t handle;
    pthread_mutex_t event_mutex;
    pthread_cond_t event_cond;
    uint32_t async_events_acked;
    urma_jfr_opt_t urma_jfr_opt;
};

/* How a remote queue is imported. */
union urma_import_jetty_flag {
    struct {
        uint32_t token_policy : 3;
        uint32_t order_type : 8;
        uint32_t share_tp : 1;
        uint32_t has_drv_ext : 1;
#if URMA_ABI_PROFILE == URMA_ABI_26_06
        uint32_t has_user_info : 1;
        uint32_t reserved : 18;
#else
        uint32_t reserved : 19;
#endif
    } bs;
    uint32_t value;
#if URMA_ABI_PROFILE == URMA_ABI_25_12_0_B081
    struct {
        uint64_t reserved;
        uint64_t stag;
        uint64_t dtag;
    } user_tag;
#endif
};

/* What one side tells the other about a receive queue. */
struct urma_rjfr {
    urma_jfr_id_t jfr_id;
    urma_transport_mode_t trans_mode;
    urma_import_jetty_flag_t flag;
    urma_tp_type_t tp_type;
};

struct urma_tp {
    uint32_t tpn;
};

union urma_jetty_flag {
    struct {
        uint32_t share_jfr : 1;
        uint32_t non_blocking : 1;
        uint32_t has_drv_ext : 1;
#if URMA_ABI_PROFILE == URMA_ABI_26_06
        uint32_t has_user_info : 1;
        uint32_t reserved : 28;
#else
        uint32_t reserved : 29;
#endif
    } bs;
    uint32_t value;
};

/* A receive queue that jetties share, and where this one's receives complete (NULL: as the queue says). */
struct urma_jetty_shared {
    urma_jfr_t *jfr;
    urma_jfc_t *jfc;
};

/* Jetty: a send queue with an own or a shared receive queue. On UB devices it is shared. */
struct urma_jetty_cfg {
    uint32_t id; /* 0 lets the library choose */
    urma_jetty_flag_t flag;
    urma_jfs_cfg_t jfs_cfg;
    union {
        struct urma_jetty_shared shared;
        urma_jfr_cfg_t *jfr_cfg;
    };
    urma_jetty_grp_t *jetty_grp;
    uint64_t user_ctx;
};

#if URMA_ABI_PROFILE == URMA_ABI_26_06
union urma_ext_flag {
    struct {
        uint32_t enable : 1;
        uint32_t reserved : 31;
    } bs;
    uint32_t value;
};
#endif

#if URMA_ABI_PROFILE == URMA_ABI_26_06
URMA_FLEXIBLE struct urma_ext {
    urma_ext_flag_t flag;
    uint32_t length;
    char buf[];
};
#endif

/* What one side tells the other about a jetty; urma_get_rjetty fills it. */
struct urma_rjetty {
    urma_jetty_id_t jetty_id;
    urma_transport_mode_t trans_mode;
    urma_jetty_grp_policy_t policy;
    urma_target_type_t type;
    urma_import_jetty_flag_t flag;
    urma_tp_type_t tp_type;
};

/* A remote queue after import. */
struct urma_target_jetty {
    urma_context_t *urma_ctx;
    urma_jetty_id_t id;
    uint64_t handle;
    urma_transport_mode_t trans_mode;
    urma_tp_t tp;
    urma_target_type_t type;
    urma_import_jetty_flag_t flag;
    urma_jetty_grp_policy_t policy;
    urma_tp_type_t tp_type;
};

struct urma_jetty_attr {
    uint32_t mask;
    uint32_t rx_threshold;
    urma_jetty_state_t state;
};

struct urma_jetty_opt {
    bool is_actived;
    urma_jfs_opt_t jfs_opt;
    uint64_t reserved[URMA_OPT_REVERSED_NUM];
};

/* A jetty. */
struct urma_jetty {
    urma_context_t *urma_ctx;
    urma_jetty_id_t jetty_id;
    urma_target_jetty_t *remote_jetty; /* the peer of a bound RC jetty */
    urma_jetty_cfg_t jetty_cfg;
    uint64_t handle;
    pthread_mutex_t event_mutex;
    pthread_cond_t event_cond;
    uint32_t async_events_acked;
    urma_jetty_opt_t urma_jetty_opt;
};

/* Where the _async calls report. */
struct urma_notifier {
    urma_context_t *urma_ctx;
    int fd;
    void *incomplete_tjetty_list;
};

/* The end of one _async call. */
struct urma_notify {
    urma_notify_type_t type;
    urma_status_t status;
    uint64_t user_ctx;
    union {
        urma_target_jetty_t *tjetty;
        urma_jetty_t *jetty;
    };
};

union urma_jetty_grp_flag {
    struct {
        uint32_t token_policy : 3;
        uint32_t reserved : 29;
    } bs;
    uint32_t value;
};

struct urma_jetty_grp_cfg {
    char name[URMA_MAX_NAME];
    urma_jetty_grp_flag_t flag;
    urma_token_t token_value;
    uint32_t id;
    urma_jetty_grp_policy_t policy;
    uint64_t user_ctx;
};

/* Address of memory anywhere in the fabric. */
struct urma_ubva {
    urma_eid_t eid;
    uint32_t uasid;
    uint64_t va;
} __attribute__((packed));

union urma_reg_seg_flag {
    struct {
        uint32_t token_policy : 3;
        uint32_t cacheable : 1;
        uint32_t dsva : 1;
        uint32_t access : 6;
        uint32_t non_pin : 1;
        uint32_t user_iova : 1;
        uint32_t token_id_valid : 1;
        uint32_t reserved : 18;
    } bs;
    uint32_t value;
};

union urma_seg_attr {
    struct {
        uint32_t token_policy : 3;
        uint32_t cacheable : 1;
        uint32_t dsva : 1;
        uint32_t access : 6;
        uint32_t non_pin : 1;
        uint32_t user_iova : 1;
        uint32_t user_token_id : 1;
#if URMA_ABI_PROFILE == URMA_ABI_26_06
        uint32_t has_user_info : 1;
        uint32_t reserved : 17;
#else
        uint32_t reserved : 18;
#endif
    } bs;
    uint32_t value;
};

union urma_import_seg_flag {
    struct {
        uint32_t cacheable : 1;
        uint32_t access : 6;
        uint32_t mapping : 1;
        uint32_t reserved : 24;
    } bs;
    uint32_t value;
};

union urma_token_id_flag {
    struct {
        uint32_t multi_seg : 1;
        uint32_t reserved : 31;
    } bs;
    uint32_t value;
};

/* Token identifier: names the segments registered with it. */
struct urma_token_id {
    urma_context_t *urma_ctx;
    uint32_t token_id;
    uint64_t handle;
    urma_ref_t ref;
    urma_token_id_flag_t flag;
};

/* Memory to register, and who may do what with it. */
struct urma_seg_cfg {
    uint64_t va; /* not 0 */
    uint64_t len; /* in bytes */
    urma_token_id_t *token_id; /* NULL lets the library take one, which ends with the segment */
    urma_token_t token_value; /* what a peer must know */
    urma_reg_seg_flag_t flag;
    uint64_t user_ctx;
    uint64_t iova;
};

/* What one side tells the other about a segment. */
struct urma_seg {
    urma_ubva_t ubva;
    uint64_t len;
    urma_seg_attr_t attr;
    uint32_t token_id;
};

/* A registered or imported segment. */
struct urma_target_seg {
    urma_seg_t seg;
    uint64_t user_ctx;
    uint64_t mva; /* where it is mapped, when it is */
    urma_context_t *urma_ctx;
    urma_token_id_t *token_id;
    uint64_t handle;
};

struct urma_user_ctl_in {
    uint64_t addr;
    uint32_t len;
    uint32_t opcode;
};

struct urma_user_ctl_out {
    uint64_t addr;
    uint32_t len;
    uint32_t reserved;
};

struct urma_user_target_seg {
    urma_seg_attr_t attr;
    uint32_t token_id;
    urma_token_t token_value;
};

/* One piece of memory of a work request. */
struct urma_sge {
    uint64_t addr;
    uint32_t len; /* in bytes */
    urma_target_seg_t *tseg;
    urma_user_tseg_t *user_tseg; /* instead of tseg, for memory that is not imported */
};

/* Pieces of memory, in order. */
struct urma_sg {
    urma_sge_t *sge;
    uint32_t num_sge;
};

union urma_jfs_wr_flag {
    struct {
        uint32_t place_order : 2;
        uint32_t comp_order : 1;
        uint32_t fence : 1;
        uint32_t solicited_enable : 1;
        uint32_t complete_enable : 1;
        uint32_t inline_flag : 1;
        uint32_t db_bypass : 1;
#if URMA_ABI_PROFILE == URMA_ABI_26_06
        uint32_t udf : 1;
#endif
        uint32_t has_drv_ext : 1;
#if URMA_ABI_PROFILE == URMA_ABI_26_06
        uint32_t reserved : 22;
#else
        uint32_t reserved : 23;
#endif
    } bs;
    uint32_t value;
};

union urma_jfr_wr_flag {
    struct {
        uint32_t complete_type : 1;
        uint32_t reserved : 31;
    } bs;
    uint32_t value;
};

/* Write and read. With WRITE_NOTIFY and WRITE_ATOMIC dst.sge[1] is where notify_data goes. */
struct urma_rw_wr {
    urma_sg_t src;
    urma_sg_t dst;
    uint8_t target_hint;
    uint64_t notify_data;
};

/* Send. tseg names the segment whose token SEND_INVALIDATE takes away. */
struct urma_send_wr {
    urma_sg_t src;
    uint8_t target_hint;
    uint64_t imm_data;
    urma_target_seg_t *tseg;
};

/* Compare and swap: 8 bytes or fewer in the data members, 16 by address. */
struct urma_cas_wr {
    urma_sge_t *dst;
    urma_sge_t *src;
    union {
        uint64_t cmp_data;
        uint64_t cmp_addr;
    };
    union {
        uint64_t swap_data;
        uint64_t swap_addr;
    };
};

/* Fetch and add: 8 bytes or fewer in operand, 16 by address. */
struct urma_faa_wr {
    urma_sge_t *dst;
    urma_sge_t *src;
    union {
        uint64_t operand;
        uint64_t operand_addr;
    };
};

/* Work request of a send queue; next makes a list. */
struct urma_jfs_wr {
    urma_opcode_t opcode;
    urma_jfs_wr_flag_t flag;
    urma_target_jetty_t *tjetty;
    uint64_t user_ctx; /* comes back in the completion record */
    union {
        urma_rw_wr_t rw;
        urma_send_wr_t send;
        urma_cas_wr_t cas;
        urma_faa_wr_t faa;
    };
    struct urma_jfs_wr *next;
};

/* Work request of a receive queue; next makes a list. */
struct urma_jfr_wr {
    urma_sg_t src;
    uint64_t user_ctx; /* comes back in the completion record */
    struct urma_jfr_wr *next;
};

union urma_cr_flag {
    struct {
        uint8_t s_r : 1;
        uint8_t jetty : 1;
        uint8_t suspend_done : 1;
        uint8_t flush_err_done : 1;
        uint8_t reserved : 4;
    } bs;
    uint8_t value;
};

struct urma_cr_token {
    uint32_t token_id;
    urma_token_t token_value;
};

/* Completion record. flag.bs.s_r is 0 for send, 1 for receive; opcode is of receives only. */
struct urma_cr {
    urma_cr_status_t status;
    uint64_t user_ctx;
    urma_cr_opcode_t opcode;
    urma_cr_flag_t flag;
    uint32_t completion_len; /* in bytes */
    uint32_t local_id; /* of the queue here */
    urma_jetty_id_t remote_id;
    union {
        uint64_t imm_data;
        urma_cr_token_t invalid_token;
    };
    uint32_t tpn;
    uintptr_t user_data; /* the jetty, JFS or JFR that the request was posted to */
};

/* Something that happened to an object outside of any work request. */
struct urma_async_event {
    const urma_context_t *urma_ctx;
    union {
        urma_jfc_t *jfc;
        urma_jfs_t *jfs;
        urma_jfr_t *jfr;
        urma_jetty_t *jetty;
        urma_jetty_grp_t *jetty_grp;
        uint32_t port_id;
        uint32_t eid_idx;
    } element;
    urma_async_event_type_t event_type;
    void *priv; /* the provider's own */
};

union urma_ur_attr {
    struct {
        uint32_t reserved : 32;
    } bs;
    uint32_t value;
};

union urma_import_ur_flag {
    struct {
        uint32_t mapping : 2;
        uint32_t reserved : 30;
    } bs;
    uint32_t value;
};

struct urma_ur {
    char name[UR_NAME_MAX_LEN];
    uint64_t size;
    urma_ur_attr_t attr;
    uint64_t token;
    uint64_t user_ctx;
};

struct urma_target_ur {
    char name[UR_NAME_MAX_LEN];
    uint64_t size;
    urma_import_ur_flag_t flag;
    urma_target_seg_t **tseg_list;
    uint32_t cnt;
};

struct urma_seg_info {
    urma_seg_t seg;
    uint32_t idx_in_ur;
};

URMA_FLEXIBLE struct urma_ur_info {
    char name[UR_NAME_MAX_LEN];
    uint64_t size;
    urma_ur_attr_t attr;
    uint32_t cnt;
    urma_seg_info_t seg_list[];
};

struct urma_jfr_info {
    char name[JFR_NAME_MAX_LEN];
    urma_eid_t eid;
    uint32_t uasid;
    uint32_t id;
};

union urma_tp_cfg_flag {
    struct {
        uint32_t target : 1;
        uint32_t loopback : 1;
        uint32_t dca_enable : 1;
        uint32_t bonding : 1;
        uint32_t reserved : 28;
    } bs;
    uint32_t value;
};

struct urma_tp_cfg {
    urma_tp_cfg_flag_t flag;
    urma_transport_mode_t trans_mode;
    uint8_t retry_num;
    uint8_t retry_factor;
    uint8_t ack_timeout;
    uint8_t dscp;
    uint32_t oor_cnt;
};

union urma_tp_attr_mask {
    struct {
        uint32_t flag : 1;
        uint32_t peer_tpn : 1;
        uint32_t state : 1;
        uint32_t tx_psn : 1;
        uint32_t rx_psn : 1;
        uint32_t mtu : 1;
        uint32_t cc_pattern_idx : 1;
        uint32_t oos_cnt : 1;
        uint32_t local_net_addr_idx : 1;
        uint32_t peer_net_addr : 1;
        uint32_t data_udp_start : 1;
        uint32_t ack_udp_start : 1;
        uint32_t udp_range : 1;
        uint32_t hop_limit : 1;
        uint32_t flow_label : 1;
        uint32_t port_id : 1;
        uint32_t mn : 1;
        uint32_t peer_trans_type : 1;
        uint32_t reserved : 14;
    } bs;
    uint32_t value;
};

union urma_tp_mod_flag {
    struct {
        uint32_t oor_en : 1;
        uint32_t sr_en : 1;
        uint32_t cc_en : 1;
        uint32_t cc_alg : 4;
        uint32_t spray_en : 1;
        uint32_t clan : 1;
        uint32_t reserved : 23;
    } bs;
    uint32_t value;
};

struct urma_net_addr {
    sa_family_t sin_family; /* AF_INET or AF_INET6 */
    union {
        struct in_addr in4;
        struct in6_addr in6;
    };
    uint64_t vlan;
    uint8_t mac[URMA_MAC_BYTES];
    uint32_t prefix_len; /* in bits */
};

struct urma_net_addr_info {
    urma_net_addr_t netaddr;
    uint32_t index;
};

struct urma_tp_attr {
    urma_tp_mod_flag_t flag;
    uint32_t peer_tpn;
    urma_tp_state_t state;
    uint32_t tx_psn;
    uint32_t rx_psn;
    urma_mtu_t mtu;
    uint8_t cc_pattern_idx;
    uint32_t oos_cnt;
    uint32_t local_net_addr_idx;
    urma_net_addr_t peer_net_addr;
    uint16_t data_udp_start;
    uint16_t ack_udp_start;
    uint8_t udp_range;
    uint8_t hop_limit;
    uint32_t flow_label;
    uint8_t port_id;
    uint8_t mn;
    urma_transport_type_t peer_trans_type;
};

union urma_get_tp_cfg_flag {
    struct {
        uint32_t ctp : 1;
        uint32_t rtp : 1;
        uint32_t utp : 1;
        uint32_t uboe : 1;
        uint32_t pre_defined : 1;
        uint32_t dynamic_defined : 1;
#if URMA_ABI_PROFILE == URMA_ABI_26_06
        uint32_t udp : 5;
        uint32_t group_id : 15;
        uint32_t reserved : 6;
#else
        uint32_t reserved : 26;
#endif
    } bs;
    uint32_t value;
};

struct urma_get_tp_cfg {
    urma_get_tp_cfg_flag_t flag;
    urma_transport_mode_t trans_mode;
    urma_eid_t local_eid;
    urma_eid_t peer_eid;
};

struct urma_tp_info {
    uint64_t tp_handle;
};

struct urma_active_tp_attr {
    uint32_t tx_psn;
    uint32_t rx_psn;
    uint64_t reserved;
};

struct urma_active_tp_cfg {
    uint64_t tp_handle;
    uint64_t peer_tp_handle;
    uint64_t tag;
    urma_active_tp_attr_t tp_attr;
};

/* Attributes of a transport path, chosen by the bitmap of urma_set_tp_attr. */
struct urma_tp_attr_value {
    uint8_t retry_times_init : 3;
    uint8_t at : 5;
    uint8_t sip[16];
    uint8_t dip[16];
    uint8_t sma[6];
    uint8_t dma[6];
    uint16_t vlan_id : 12;
    uint16_t vlan_en : 1;
    uint16_t dscp : 6;
    uint16_t at_times : 5;
    uint8_t sl : 4;
    uint8_t ttl;
    uint16_t ack_udp_srcport;
    uint16_t data_udp_srcport;
    uint8_t udp_srcport_range : 4;
    uint8_t spray_en : 1;
    uint8_t udp_global_en : 1;
    uint8_t reserve_0 : 2;
#if URMA_ABI_PROFILE == URMA_ABI_26_06
    uint16_t sl_bitmap;
    uint8_t dscp_config_mode : 1;
    uint8_t reserve_1 : 7;
    uint8_t reserved[70];
#else
    uint8_t reserved[73];
#endif
} __attribute__((packed));

struct urma_jetty_grp {
    urma_context_t *urma_ctx;
    urma_jetty_id_t jetty_grp_id;
    urma_jetty_grp_cfg_t cfg;
    uint32_t jetty_cnt;
    urma_jetty_t **jetty_list;
    pthread_mutex_t list_mutex;
    uint64_t handle;
    pthread_mutex_t event_mutex;
    pthread_cond_t event_cond;
    uint32_t async_events_acked;
};

/* Called for an event, for the end of an advice, and for each line of the log. */
typedef void (*urma_async_event_cb)(urma_async_event_t *event, void *cb_arg);
typedef void (*urma_advise_async_cb_func)(urma_status_t result, void *cb_arg);
typedef void (*urma_log_cb_t)(int level, char *message);
typedef void (*urma_loc_log_cb)(int level, const char *file, const char *function, int line,
    char *message);

/* An EID of an IPv4 address in network order, and of a text: 0, or an error. */
void urma_u32_to_eid(uint32_t ipv4, urma_eid_t *eid);
int urma_str_to_eid(const char *buf, urma_eid_t *eid);

#ifdef __cplusplus
}
#endif

#endif
