/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Commands of the device files: what a provider sends below the urma_cmd_ calls.
 *
 * A command is an ioctl with urma_cmd_hdr_t; args_addr points to urma_cmd_attr_t, one for each
 * member of the struct of the command. The software device needs none of this: it is here for
 * programs that read it.
 */
#ifndef URMA_CMD_H
#define URMA_CMD_H

#include <linux/types.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include "urma_provider.h"

#ifdef __cplusplus
extern "C" {
#endif

#define URMA_CMD_MAX_ARGS_SIZE 4096
#define URMA_CMD_EID_SIZE 16
#define URMA_CMD_TP_ATTR_BYTES 128
#define URMA_CMD_MAX_TP_NUM 128 /* handles of one urma_cmd_get_tp_list */
#define URMA_MAX_UASID (1 << 24)
#define MAX_JFCE_EVENT_CNT 16 /* events of one urma_cmd_jfce_wait */
#define MAX_NOTIFY_CNT 16 /* notices of one urma_cmd_wait_notify */


typedef enum urma_cmd {
    URMA_CMD_CREATE_CTX = 1,
    URMA_CMD_ALLOC_TOKEN_ID = 2,
    URMA_CMD_FREE_TOKEN_ID = 3,
    URMA_CMD_REGISTER_SEG = 4,
    URMA_CMD_UNREGISTER_SEG = 5,
    URMA_CMD_IMPORT_SEG = 6,
    URMA_CMD_UNIMPORT_SEG = 7,
    URMA_CMD_CREATE_JFS = 8,
    URMA_CMD_MODIFY_JFS = 9,
    URMA_CMD_QUERY_JFS = 10,
    URMA_CMD_DELETE_JFS = 11,
    URMA_CMD_CREATE_JFR = 12,
    URMA_CMD_MODIFY_JFR = 13,
    URMA_CMD_QUERY_JFR = 14,
    URMA_CMD_DELETE_JFR = 15,
    URMA_CMD_CREATE_JFC = 16,
    URMA_CMD_MODIFY_JFC = 17,
    URMA_CMD_DELETE_JFC = 18,
    URMA_CMD_CREATE_JFCE = 19,
    URMA_CMD_IMPORT_JFR = 20,
    URMA_CMD_UNIMPORT_JFR = 21,
    URMA_CMD_CREATE_JETTY = 22,
    URMA_CMD_MODIFY_JETTY = 23,
    URMA_CMD_QUERY_JETTY = 24,
    URMA_CMD_DELETE_JETTY = 25,
    URMA_CMD_IMPORT_JETTY = 26,
    URMA_CMD_UNIMPORT_JETTY = 27,
    URMA_CMD_ADVISE_JFR = 28,
    URMA_CMD_UNADVISE_JFR = 29,
    URMA_CMD_ADVISE_JETTY = 30,
    URMA_CMD_UNADVISE_JETTY = 31,
    URMA_CMD_BIND_JETTY = 32,
    URMA_CMD_UNBIND_JETTY = 33,
    URMA_CMD_CREATE_JETTY_GRP = 34,
    URMA_CMD_DESTROY_JETTY_GRP = 35,
    URMA_CMD_USER_CTL = 36,
    URMA_CMD_GET_EID_LIST = 37,
    URMA_CMD_GET_NETADDR_LIST = 38,
    URMA_CMD_MODIFY_TP = 39,
    URMA_CMD_QUERY_DEV_ATTR = 40,
    URMA_CMD_IMPORT_JETTY_ASYNC = 41,
    URMA_CMD_UNIMPORT_JETTY_ASYNC = 42,
    URMA_CMD_BIND_JETTY_ASYNC = 43,
    URMA_CMD_UNBIND_JETTY_ASYNC = 44,
    URMA_CMD_CREATE_NOTIFIER = 45,
    URMA_CMD_GET_TP_LIST = 46,
    URMA_CMD_IMPORT_JETTY_EX = 47,
    URMA_CMD_IMPORT_JFR_EX = 48,
    URMA_CMD_BIND_JETTY_EX = 49,
    URMA_CMD_DELETE_JFS_BATCH = 50,
    URMA_CMD_DELETE_JFR_BATCH = 51,
    URMA_CMD_DELETE_JFC_BATCH = 52,
    URMA_CMD_DELETE_JETTY_BATCH = 53,
    URMA_CMD_SET_TP_ATTR = 54,
    URMA_CMD_GET_TP_ATTR = 55,
    URMA_CMD_EXCHANGE_TP_INFO = 56,
    URMA_CMD_GET_EID_BY_IP = 57,
    URMA_CMD_GET_IP_BY_EID = 58,
    URMA_CMD_GET_SMAC = 59,
    URMA_CMD_GET_DMAC = 60,
    URMA_CMD_ALLOC_JFC = 61,
    URMA_CMD_FREE_JFC = 62,
    URMA_CMD_SET_JFC_OPT = 63,
    URMA_CMD_GET_JFC_OPT = 64,
    URMA_CMD_ACTIVE_JFC = 65,
    URMA_CMD_DEACTIVE_JFC = 66,
    URMA_CMD_ALLOC_JFR = 67,
    URMA_CMD_FREE_JFR = 68,
    URMA_CMD_SET_JFR_OPT = 69,
    URMA_CMD_GET_JFR_OPT = 70,
    URMA_CMD_ACTIVE_JFR = 71,
    URMA_CMD_DEACTIVE_JFR = 72,
    URMA_CMD_ALLOC_JFS = 73,
    URMA_CMD_FREE_JFS = 74,
    URMA_CMD_SET_JFS_OPT = 75,
    URMA_CMD_GET_JFS_OPT = 76,
    URMA_CMD_ACTIVE_JFS = 77,
    URMA_CMD_DEACTIVE_JFS = 78,
    URMA_CMD_ALLOC_JETTY = 79,
    URMA_CMD_FREE_JETTY = 80,
    URMA_CMD_SET_JETTY_OPT = 81,
    URMA_CMD_GET_JETTY_OPT = 82,
    URMA_CMD_ACTIVE_JETTY = 83,
    URMA_CMD_DEACTIVE_JETTY = 84,
#if URMA_ABI_PROFILE == URMA_ABI_26_06
    URMA_CMD_GET_JFCE_CNT = 85,
    URMA_CMD_MAX = 86,
#else
    URMA_CMD_MAX = 85,
#endif
} urma_cmd_t;

typedef enum urma_core_cmd {
    URMA_CORE_CMD_QUERY_STATS = 1,
    URMA_CORE_CMD_QUERY_RES = 2,
    URMA_CORE_CMD_ADD_EID = 3,
    URMA_CORE_CMD_DEL_EID = 4,
    URMA_CORE_CMD_SET_EID_MODE = 5,
#if URMA_ABI_PROFILE == URMA_ABI_26_06
    URMA_CORE_SET_DEV_NS_MODE = 6,
#else
    URMA_CORE_SET_NS_MODE = 6,
#endif
    URMA_CORE_SET_DEV_NS = 7,
    URMA_CORE_EXPOSE_DEV_NS = 8,
    URMA_CORE_UNEXPOSE_DEV_NS = 9,
    URMA_CORE_SET_DEV_EID_NS = 10,
    URMA_CORE_GET_TOPO_INFO = 11,
#if URMA_ABI_PROFILE == URMA_ABI_26_06
    URMA_CORE_SET_SL = 12,
    URMA_CORE_SET_GENL_PID = 13,
    URMA_CORE_ADMIN_INSERT_MAIN_UE_EID = 35,
    URMA_CORE_ADMIN_DELETE_MAIN_UE_EID = 36,
    URMA_CORE_ADMIN_LOOKUP_MAIN_UE_EID = 37,
    URMA_CORE_ADMIN_FLUSH_MAIN_UE_EID = 38,
    URMA_CORE_ADMIN_INSERT_MAIN_UE_EID_BATCH = 39,
    URMA_CORE_PERF_START = 40,
    URMA_CORE_PERF_STOP = 41,
    URMA_CORE_PERF_SHOW = 42,
    URMA_CORE_SET_EID_NS_MODE = 43,
    URMA_CORE_SHOW_TPID_LIST = 44,
    URMA_CORE_SHOW_TPID_REUSE = 45,
    URMA_CORE_SHOW_SYSTEM = 46,
#else
    URMA_CORE_GET_TOPO_BONDING_DEV = 33,
    URMA_CORE_SET_SL = 34,
#endif
} urma_core_cmd_t;

typedef enum urma_event_cmd {
    URMA_EVENT_CMD_WAIT_JFCE = 1,
    URMA_EVENT_CMD_GET_ASYNC_EVENT = 2,
    URMA_EVENT_CMD_WAIT_NOTIFY = 3,
    URMA_EVENT_CMD_MAX = 4,
} urma_event_cmd_t;

typedef enum urma_cmd_net_addr_type {
    URMA_CMD_NET_ADDR_TYPE_IPV4 = 0,
    URMA_CMD_NET_ADDR_TYPE_IPV6 = 1,
} urma_cmd_net_addr_type_t;

/* Every struct by its short name. */
typedef struct urma_cmd_hdr urma_cmd_hdr_t;
typedef struct urma_cmd_attr urma_cmd_attr_t;
typedef struct urma_cmd_create_ctx urma_cmd_create_ctx_t;
typedef struct urma_cmd_alloc_token_id urma_cmd_alloc_token_id_t;
typedef struct urma_cmd_free_token_id urma_cmd_free_token_id_t;
typedef struct urma_cmd_register_seg urma_cmd_register_seg_t;
typedef struct urma_cmd_unregister_seg urma_cmd_unregister_seg_t;
typedef struct urma_cmd_import_seg urma_cmd_import_seg_t;
typedef struct urma_cmd_unimport_seg urma_cmd_unimport_seg_t;
typedef struct urma_cmd_create_jfr urma_cmd_create_jfr_t;
typedef struct urma_cmd_modify_jfr urma_cmd_modify_jfr_t;
typedef struct urma_cmd_query_jfr urma_cmd_query_jfr_t;
typedef struct urma_cmd_delete_jfr urma_cmd_delete_jfr_t;
typedef struct urma_cmd_delete_jfr_batch urma_cmd_delete_jfr_batch_t;
typedef struct urma_cmd_alloc_jfr urma_cmd_alloc_jfr_t;
typedef struct urma_cmd_free_jfr urma_cmd_free_jfr_t;
typedef struct urma_cmd_set_jfr_opt urma_cmd_set_jfr_opt_t;
typedef struct urma_cmd_get_jfr_opt urma_cmd_get_jfr_opt_t;
typedef struct urma_cmd_active_jfr urma_cmd_active_jfr_t;
typedef struct urma_cmd_deactive_jfr urma_cmd_deactive_jfr_t;
typedef struct urma_cmd_create_jfs urma_cmd_create_jfs_t;
typedef struct urma_cmd_modify_jfs urma_cmd_modify_jfs_t;
typedef struct urma_cmd_query_jfs urma_cmd_query_jfs_t;
typedef struct urma_cmd_delete_jfs urma_cmd_delete_jfs_t;
typedef struct urma_cmd_delete_jfs_batch urma_cmd_delete_jfs_batch_t;
typedef struct urma_cmd_alloc_jfs urma_cmd_alloc_jfs_t;
typedef struct urma_cmd_free_jfs urma_cmd_free_jfs_t;
typedef struct urma_cmd_set_jfs_opt urma_cmd_set_jfs_opt_t;
typedef struct urma_cmd_get_jfs_opt urma_cmd_get_jfs_opt_t;
typedef struct urma_cmd_active_jfs urma_cmd_active_jfs_t;
typedef struct urma_cmd_deactive_jfs urma_cmd_deactive_jfs_t;
typedef struct urma_cmd_create_jfc urma_cmd_create_jfc_t;
typedef struct urma_cmd_modify_jfc urma_cmd_modify_jfc_t;
typedef struct urma_cmd_delete_jfc urma_cmd_delete_jfc_t;
typedef struct urma_cmd_delete_jfc_batch urma_cmd_delete_jfc_batch_t;
typedef struct urma_cmd_alloc_jfc urma_cmd_alloc_jfc_t;
typedef struct urma_cmd_free_jfc urma_cmd_free_jfc_t;
typedef struct urma_cmd_set_jfc_opt urma_cmd_set_jfc_opt_t;
typedef struct urma_cmd_get_jfc_opt urma_cmd_get_jfc_opt_t;
typedef struct urma_cmd_active_jfc urma_cmd_active_jfc_t;
typedef struct urma_cmd_deactive_jfc urma_cmd_deactive_jfc_t;
typedef struct urma_cmd_create_jfce urma_cmd_create_jfce_t;
typedef struct urma_cmd_import_jfr urma_cmd_import_jfr_t;
typedef struct urma_cmd_import_jfr_ex urma_cmd_import_jfr_ex_t;
typedef struct urma_cmd_unimport_jfr urma_cmd_unimport_jfr_t;
typedef struct urma_cmd_create_jetty urma_cmd_create_jetty_t;
typedef urma_cmd_create_jetty_t urma_cmd_alloc_jetty_t;
typedef struct urma_cmd_modify_jetty urma_cmd_modify_jetty_t;
typedef struct urma_cmd_query_jetty urma_cmd_query_jetty_t;
typedef struct urma_cmd_delete_jetty urma_cmd_delete_jetty_t;
typedef struct urma_cmd_delete_jetty_batch urma_cmd_delete_jetty_batch_t;
typedef struct urma_cmd_import_jetty urma_cmd_import_jetty_t;
typedef struct urma_cmd_import_jetty_ex urma_cmd_import_jetty_ex_t;
typedef struct urma_cmd_unimport_jetty urma_cmd_unimport_jetty_t;
typedef struct urma_cmd_advise_jetty urma_cmd_advise_jetty_t;
typedef struct urma_cmd_bind_jetty urma_cmd_bind_jetty_t;
typedef struct urma_cmd_bind_jetty_ex urma_cmd_bind_jetty_ex_t;
typedef struct urma_cmd_unbind_jetty urma_cmd_unbind_jetty_t;
typedef struct urma_cmd_unadvise_jetty urma_cmd_unadvise_jetty_t;
typedef struct urma_cmd_create_jetty_grp urma_cmd_create_jetty_grp_t;
typedef struct urma_cmd_delete_jetty_grp urma_cmd_delete_jetty_grp_t;
typedef struct urma_cmd_free_jetty urma_cmd_free_jetty_t;
typedef struct urma_cmd_set_jetty_opt urma_cmd_set_jetty_opt_t;
typedef struct urma_cmd_get_jetty_opt urma_cmd_get_jetty_opt_t;
typedef struct urma_cmd_active_jetty urma_cmd_active_jetty_t;
typedef struct urma_cmd_deactive_jetty urma_cmd_deactive_jetty_t;
typedef struct urma_cmd_get_eid_list urma_cmd_get_eid_list_t;
typedef struct urma_cmd_user_ctl urma_cmd_user_ctl_t;
typedef struct urma_cmd_net_addr urma_cmd_net_addr_t;
typedef struct urma_cmd_net_addr_info urma_cmd_net_addr_info_t;
typedef struct urma_cmd_get_net_addr_list urma_cmd_get_net_addr_list_t;
typedef struct urma_cmd_modify_tp urma_cmd_modify_tp_t;
typedef struct urma_cmd_query_device_attr urma_cmd_query_device_attr_t;
typedef struct urma_cmd_import_jetty_async urma_cmd_import_jetty_async_t;
typedef struct urma_cmd_unimport_jetty_async urma_cmd_unimport_jetty_async_t;
typedef struct urma_cmd_bind_jetty_async urma_cmd_bind_jetty_async_t;
typedef struct urma_cmd_unbind_jetty_async urma_cmd_unbind_jetty_async_t;
typedef struct urma_cmd_create_notifier urma_cmd_create_notifier_t;
typedef struct urma_cmd_get_jfce_cnt urma_cmd_get_jfce_cnt_t;
typedef struct urma_cmd_jfce_wait urma_cmd_jfce_wait_t;
typedef struct urma_cmd_async_event urma_cmd_async_event_t;
typedef struct urma_cmd_notify urma_cmd_notify_t;
typedef struct urma_cmd_wait_notify urma_cmd_wait_notify_t;
typedef struct urma_cmd_get_tp_list urma_cmd_get_tp_list_t;
typedef struct urma_cmd_exchange_tp_info_t urma_cmd_exchange_tp_info_t;
typedef struct urma_cmd_set_tp_attr urma_cmd_set_tp_attr_t;
typedef struct urma_cmd_get_tp_attr urma_cmd_get_tp_attr_t;
typedef struct urma_cmd_get_eid_by_ip urma_cmd_get_eid_by_ip_t;
typedef struct urma_cmd_get_ip_by_eid urma_cmd_get_ip_by_eid_t;
typedef struct urma_cmd_get_smac urma_cmd_get_smac_t;
typedef struct urma_cmd_get_dmac urma_cmd_get_dmac_t;

struct urma_cmd_hdr {
    uint32_t command;
    uint32_t args_len;
    uint64_t args_addr;
};

struct urma_cmd_attr {
    uint8_t type;
    uint8_t flag;
    uint16_t field_size;
    union {
        struct {
            uint32_t el_num : 12;
            uint32_t el_size : 12;
            uint32_t reserved : 8;
        } bs;
        uint32_t value;
    } attr_data;
    uint64_t data;
};

struct urma_cmd_create_ctx {
    struct {
        uint8_t eid[URMA_CMD_EID_SIZE];
        uint32_t eid_index;
    } in;
    struct {
        int async_fd;
    } out;
    urma_cmd_udrv_priv_t udata;
};

struct urma_cmd_alloc_token_id {
    struct {
        urma_token_id_flag_t flag;
    } in;
    struct {
        uint32_t token_id;
        uint64_t handle;
    } out;
    urma_cmd_udrv_priv_t udata;
};

struct urma_cmd_free_token_id {
    struct {
        uint64_t handle;
        uint32_t token_id;
    } in;
    urma_cmd_udrv_priv_t udata;
};

struct urma_cmd_register_seg {
    struct {
        uint64_t va;
        uint64_t len;
        uint32_t token_id;
        uint64_t token_id_handle;
        uint32_t token;
        uint32_t flag;
    } in;
    struct {
        uint32_t token_id;
        uint64_t handle;
    } out;
    urma_cmd_udrv_priv_t udata;
};

struct urma_cmd_unregister_seg {
    struct {
        uint64_t handle;
    } in;
};

struct urma_cmd_import_seg {
    struct {
        uint8_t eid[URMA_CMD_EID_SIZE];
        uint64_t va;
        uint64_t len;
        uint32_t flag;
        uint32_t token;
        uint32_t token_id;
        uint64_t mva;
    } in;
    struct {
        uint64_t handle;
    } out;
    urma_cmd_udrv_priv_t udata;
};

struct urma_cmd_unimport_seg {
    struct {
        uint64_t handle;
    } in;
};

struct urma_cmd_create_jfr {
    struct {
        uint32_t depth;
        uint32_t flag;
        uint32_t trans_mode;
        uint8_t max_sge;
        uint8_t min_rnr_timer;
        uint32_t jfc_id;
        uint64_t jfc_handle;
        uint32_t token;
        uint32_t id;
        uint64_t urma_jfr;
    } in;
    struct {
        uint32_t id;
        uint32_t depth;
        uint8_t max_sge;
        uint64_t handle;
    } out;
    urma_cmd_udrv_priv_t udata;
};

struct urma_cmd_modify_jfr {
    struct {
        uint64_t handle;
        uint32_t mask;
        uint32_t rx_threshold;
        uint32_t state;
    } in;
    urma_cmd_udrv_priv_t udata;
};

struct urma_cmd_query_jfr {
    struct {
        uint64_t handle;
    } in;
    struct {
        uint32_t depth;
        uint32_t flag;
        uint32_t trans_mode;
        uint8_t max_sge;
        uint8_t min_rnr_timer;
        uint32_t token;
        uint32_t id;
        uint32_t rx_threshold;
        uint32_t state;
    } out;
};

struct urma_cmd_delete_jfr {
    struct {
        uint64_t handle;
    } in;
    struct {
        uint32_t async_events_reported;
    } out;
};

struct urma_cmd_delete_jfr_batch {
    struct {
        uint32_t async_events_reported;
        uint32_t bad_jfr_index;
    } out;
    struct {
        uint32_t jfr_num;
        uint64_t jfr_ptr;
    } in;
};

struct urma_cmd_alloc_jfr {
    struct {
        uint32_t depth;
        uint32_t flag;
        uint32_t trans_mode;
        uint8_t max_sge;
        uint8_t min_rnr_timer;
        uint32_t jfc_id;
        uint64_t jfc_handle;
        uint32_t token;
        uint32_t id;
        uint64_t urma_jfr;
    } in;
    struct {
        uint32_t id;
        uint32_t depth;
        uint64_t handle;
        uint8_t max_sge;
    } out;
    urma_cmd_udrv_priv_t udata;
};

struct urma_cmd_free_jfr {
    struct {
        uint64_t handle;
    } in;
    struct {
        uint32_t async_events_reported;
    } out;
    urma_cmd_udrv_priv_t udata;
};

struct urma_cmd_set_jfr_opt {
    struct {
        uint64_t handle;
        uint64_t opt;
        uint64_t buf;
        uint32_t len;
    } in;
    urma_cmd_udrv_priv_t udata;
};

struct urma_cmd_get_jfr_opt {
    struct {
        uint64_t handle;
        uint64_t opt;
        uint64_t buf;
        uint32_t len;
    } in;
    struct {
        uint64_t buf;
        uint32_t len;
    } out;
    urma_cmd_udrv_priv_t udata;
};

struct urma_cmd_active_jfr {
    struct {
        uint64_t handle;
        uint32_t depth;
        uint32_t flag;
        uint32_t trans_mode;
        uint8_t max_sge;
        uint8_t min_rnr_timer;
        uint32_t jfc_id;
        uint64_t jfc_handle;
        uint32_t token_value;
        uint64_t jfr_opt;
    } in;
    struct {
        uint32_t id;
        uint32_t depth;
        uint64_t handle;
        uint8_t max_sge;
    } out;
    urma_cmd_udrv_priv_t udata;
};

struct urma_cmd_deactive_jfr {
    struct {
        uint64_t handle;
    } in;
    urma_cmd_udrv_priv_t udata;
};

struct urma_cmd_create_jfs {
    struct {
        uint32_t depth;
        uint32_t flag;
        uint32_t trans_mode;
        uint8_t priority;
        uint8_t max_sge;
        uint8_t max_rsge;
        uint32_t max_inline_data;
        uint8_t retry_cnt;
        uint8_t rnr_retry;
        uint8_t err_timeout;
        uint32_t jfc_id;
        uint64_t jfc_handle;
        uint64_t urma_jfs;
    } in;
    struct {
        uint32_t id;
        uint32_t depth;
        uint8_t max_sge;
        uint8_t max_rsge;
        uint32_t max_inline_data;
        uint64_t handle;
    } out;
    urma_cmd_udrv_priv_t udata;
};

struct urma_cmd_modify_jfs {
    struct {
        uint64_t handle;
        uint32_t mask;
        uint32_t state;
    } in;
    urma_cmd_udrv_priv_t udata;
};

struct urma_cmd_query_jfs {
    struct {
        uint64_t handle;
    } in;
    struct {
        uint32_t depth;
        uint32_t flag;
        uint32_t trans_mode;
        uint8_t priority;
        uint8_t max_sge;
        uint8_t max_rsge;
        uint32_t max_inline_data;
        uint8_t retry_cnt;
        uint8_t rnr_retry;
        uint8_t err_timeout;
        uint32_t state;
    } out;
};

struct urma_cmd_delete_jfs {
    struct {
        uint64_t handle;
    } in;
    struct {
        uint32_t async_events_reported;
    } out;
};

struct urma_cmd_delete_jfs_batch {
    struct {
        uint32_t async_events_reported;
        uint32_t bad_jfs_index;
    } out;
    struct {
        uint32_t jfs_num;
        uint64_t jfs_ptr;
    } in;
};

struct urma_cmd_alloc_jfs {
    struct {
        uint32_t depth;
        uint32_t flag;
        uint32_t trans_mode;
        uint8_t priority;
        uint8_t max_sge;
        uint8_t max_rsge;
        uint32_t max_inline_data;
        uint8_t rnr_retry;
        uint8_t err_timeout;
        uint32_t jfc_id;
        uint64_t jfc_handle;
        uint64_t urma_jfs;
    } in;
    struct {
        uint32_t id;
        uint32_t depth;
        uint8_t max_sge;
        uint8_t max_rsge;
        uint32_t max_inline_data;
        uint64_t handle;
    } out;
    urma_cmd_udrv_priv_t udata;
};

struct urma_cmd_free_jfs {
    struct {
        uint64_t handle;
    } in;
    struct {
        uint32_t async_events_reported;
    } out;
    urma_cmd_udrv_priv_t udata;
};

struct urma_cmd_set_jfs_opt {
    struct {
        uint64_t handle;
        uint64_t opt;
        uint64_t buf;
        uint32_t len;
    } in;
    urma_cmd_udrv_priv_t udata;
};

struct urma_cmd_get_jfs_opt {
    struct {
        uint64_t handle;
        uint64_t opt;
        uint64_t buf;
        uint32_t len;
    } in;
    struct {
        uint64_t buf;
        uint32_t len;
    } out;
    urma_cmd_udrv_priv_t udata;
};

struct urma_cmd_active_jfs {
    struct {
        uint64_t handle;
        uint32_t depth;
        uint32_t flag;
        uint32_t trans_mode;
        uint32_t priority;
        uint8_t max_sge;
        uint8_t max_rsge;
        uint32_t max_inline_data;
        uint8_t rnr_retry;
        uint8_t err_timeout;
        uint32_t jfc_id;
        uint64_t jfc_handle;
        uint64_t jfs_opt;
    } in;
    struct {
        uint32_t id;
        uint32_t depth;
        uint8_t max_sge;
        uint8_t max_rsge;
        uint32_t max_inline_data;
        uint64_t handle;
    } out;
    urma_cmd_udrv_priv_t udata;
};

struct urma_cmd_deactive_jfs {
    struct {
        uint64_t handle;
    } in;
    urma_cmd_udrv_priv_t udata;
};

struct urma_cmd_create_jfc {
    struct {
        uint32_t depth;
        uint32_t flag;
        int jfce_fd;
        uint64_t urma_jfc;
        uint32_t ceqn;
    } in;
    struct {
        uint32_t id;
        uint32_t depth;
        uint64_t handle;
    } out;
    urma_cmd_udrv_priv_t udata;
};

struct urma_cmd_modify_jfc {
    struct {
        uint64_t handle;
        uint32_t mask;
        uint16_t moderate_count;
        uint16_t moderate_period;
    } in;
    urma_cmd_udrv_priv_t udata;
};

struct urma_cmd_delete_jfc {
    struct {
        uint64_t handle;
    } in;
    struct {
        uint32_t comp_events_reported;
        uint32_t async_events_reported;
    } out;
};

struct urma_cmd_delete_jfc_batch {
    struct {
        uint32_t comp_events_reported;
        uint32_t async_events_reported;
        uint32_t bad_jfc_index;
    } out;
    struct {
        uint32_t jfc_num;
        uint64_t jfc_ptr;
    } in;
};

struct urma_cmd_alloc_jfc {
    struct {
        uint32_t depth;
        uint32_t flag;
        int jfce_fd;
        uint64_t urma_jfc;
        uint32_t ceqn;
    } in;
    struct {
        uint32_t id;
        uint32_t depth;
        uint64_t handle;
    } out;
    urma_cmd_udrv_priv_t udata;
};

struct urma_cmd_free_jfc {
    struct {
        uint64_t handle;
    } in;
    struct {
        uint32_t comp_events_reported;
        uint32_t async_events_reported;
    } out;
    urma_cmd_udrv_priv_t udata;
};

struct urma_cmd_set_jfc_opt {
    struct {
        uint64_t handle;
        uint64_t opt;
        uint64_t buf;
        uint32_t len;
    } in;
    urma_cmd_udrv_priv_t udata;
};

struct urma_cmd_get_jfc_opt {
    struct {
        uint64_t handle;
        uint64_t opt;
        uint64_t buf;
        uint32_t len;
    } in;
    struct {
        uint64_t buf;
        uint32_t len;
    } out;
    urma_cmd_udrv_priv_t udata;
};

struct urma_cmd_active_jfc {
    struct {
        uint64_t handle;
        uint32_t depth;
        uint32_t flag;
        uint32_t ceqn;
        uint64_t urma_jfc_opt;
    } in;
    struct {
        uint32_t id;
        uint32_t depth;
        uint64_t handle;
    } out;
    urma_cmd_udrv_priv_t udata;
};

struct urma_cmd_deactive_jfc {
    struct {
        uint64_t handle;
    } in;
    urma_cmd_udrv_priv_t udata;
};

struct urma_cmd_create_jfce {
    struct {
        int fd;
    } out;
};

struct urma_cmd_import_jfr {
    struct {
        uint8_t eid[URMA_CMD_EID_SIZE];
        uint32_t id;
        uint32_t flag;
        uint32_t token;
        uint32_t trans_mode;
        uint32_t tp_type;
    } in;
    struct {
        uint32_t tpn;
        uint64_t handle;
    } out;
    urma_cmd_udrv_priv_t udata;
};

struct urma_cmd_import_jfr_ex {
    struct {
        uint8_t eid[URMA_CMD_EID_SIZE];
        uint32_t id;
        uint32_t flag;
        uint32_t token;
        uint32_t trans_mode;
        uint32_t tp_type;
        uint64_t tp_handle;
        uint64_t peer_tp_handle;
        uint64_t tag;
        uint32_t tx_psn;
        uint32_t rx_psn;
        uint64_t stag;
        uint64_t dtag;
    } in;
    struct {
        uint32_t tpn;
        uint32_t reserved;
        uint64_t handle;
    } out;
    urma_cmd_udrv_priv_t udata;
};

struct urma_cmd_unimport_jfr {
    struct {
        uint64_t handle;
    } in;
};

struct urma_cmd_create_jetty {
    struct {
        uint32_t id;
        uint32_t jetty_flag;
        uint32_t jfs_depth;
        uint32_t jfs_flag;
        uint32_t trans_mode;
        uint8_t priority;
        uint8_t max_send_sge;
        uint8_t max_send_rsge;
        uint32_t max_inline_data;
        uint8_t rnr_retry;
        uint8_t err_timeout;
        uint32_t send_jfc_id;
        uint64_t send_jfc_handle;
        uint32_t jfr_depth;
        uint32_t jfr_flag;
        uint8_t max_recv_sge;
        uint8_t min_rnr_timer;
        uint32_t recv_jfc_id;
        uint64_t recv_jfc_handle;
        uint32_t token;
        uint32_t jfr_id;
        uint64_t jfr_handle;
        uint64_t jetty_grp_handle;
        uint8_t is_jetty_grp;
        uint64_t urma_jetty;
    } in;
    struct {
        uint32_t id;
        uint64_t handle;
        uint32_t jfs_depth;
        uint32_t jfr_depth;
        uint8_t max_send_sge;
        uint8_t max_send_rsge;
        uint8_t max_recv_sge;
        uint32_t max_inline_data;
    } out;
    urma_cmd_udrv_priv_t udata;
};

struct urma_cmd_modify_jetty {
    struct {
        uint64_t handle;
        uint32_t mask;
        uint32_t rx_threshold;
        uint32_t state;
    } in;
    urma_cmd_udrv_priv_t udata;
};

struct urma_cmd_query_jetty {
    struct {
        uint64_t handle;
    } in;
    struct {
        uint32_t id;
        uint32_t jetty_flag;
        uint32_t jfs_depth;
        uint32_t jfr_depth;
        uint32_t jfs_flag;
        uint32_t jfr_flag;
        uint32_t trans_mode;
        uint8_t max_send_sge;
        uint8_t max_send_rsge;
        uint8_t max_recv_sge;
        uint32_t max_inline_data;
        uint8_t priority;
        uint8_t retry_cnt;
        uint8_t rnr_retry;
        uint8_t err_timeout;
        uint8_t min_rnr_timer;
        uint32_t jfr_id;
        uint32_t token;
        uint32_t rx_threshold;
        uint32_t state;
    } out;
};

struct urma_cmd_delete_jetty {
    struct {
        uint64_t handle;
    } in;
    struct {
        uint32_t async_events_reported;
    } out;
};

struct urma_cmd_delete_jetty_batch {
    struct {
        uint32_t async_events_reported;
        uint32_t bad_jetty_index;
    } out;
    struct {
        uint32_t jetty_num;
        uint64_t jetty_ptr;
    } in;
};

struct urma_cmd_import_jetty {
    struct {
        uint8_t eid[URMA_CMD_EID_SIZE];
        uint32_t id;
        uint32_t flag;
        uint32_t token;
        uint32_t trans_mode;
        uint32_t policy;
        uint32_t type;
        uint32_t tp_type;
    } in;
    struct {
        uint32_t tpn;
        uint64_t handle;
    } out;
    urma_cmd_udrv_priv_t udata;
};

struct urma_cmd_import_jetty_ex {
    struct {
        uint8_t eid[URMA_CMD_EID_SIZE];
        uint32_t id;
        uint32_t flag;
        uint32_t token;
        uint32_t trans_mode;
        uint32_t policy;
        uint32_t type;
        uint32_t tp_type;
        uint64_t tp_handle;
        uint64_t peer_tp_handle;
        uint64_t tag;
        uint32_t tx_psn;
        uint32_t rx_psn;
        uint64_t stag;
        uint64_t dtag;
    } in;
    struct {
        uint32_t tpn;
        uint32_t reserved;
        uint64_t handle;
    } out;
    urma_cmd_udrv_priv_t udata;
};

struct urma_cmd_unimport_jetty {
    struct {
        uint64_t handle;
    } in;
};

struct urma_cmd_advise_jetty {
    struct {
        uint64_t jetty_handle;
        uint64_t tjetty_handle;
    } in;
    urma_cmd_udrv_priv_t udata;
};

struct urma_cmd_bind_jetty {
    struct {
        uint64_t jetty_handle;
        uint64_t tjetty_handle;
    } in;
    struct {
        uint32_t tpn;
    } out;
    urma_cmd_udrv_priv_t udata;
};

struct urma_cmd_bind_jetty_ex {
    struct {
        uint64_t jetty_handle;
        uint64_t tjetty_handle;
        uint64_t tp_handle;
        uint64_t peer_tp_handle;
        uint64_t tag;
        uint32_t tx_psn;
        uint32_t rx_psn;
    } in;
    struct {
        uint32_t tpn;
        uint32_t reserved;
    } out;
    urma_cmd_udrv_priv_t udata;
};

struct urma_cmd_unbind_jetty {
    struct {
        uint64_t jetty_handle;
    } in;
};

struct urma_cmd_unadvise_jetty {
    struct {
        uint64_t jetty_handle;
        uint64_t tjetty_handle;
    } in;
};

struct urma_cmd_create_jetty_grp {
    struct {
        char name[URMA_MAX_NAME];
        uint32_t token;
        uint32_t id;
        uint32_t policy;
        uint32_t flag;
        uint64_t urma_jetty_grp;
    } in;
    struct {
        uint32_t id;
        uint64_t handle;
    } out;
    urma_cmd_udrv_priv_t udata;
};

struct urma_cmd_delete_jetty_grp {
    struct {
        uint64_t handle;
    } in;
    struct {
        uint32_t async_events_reported;
    } out;
};

struct urma_cmd_free_jetty {
    struct {
        uint64_t handle;
    } in;
    struct {
        uint32_t async_events_reported;
    } out;
    urma_cmd_udrv_priv_t udata;
};

struct urma_cmd_set_jetty_opt {
    struct {
        uint64_t handle;
        uint64_t opt;
        uint64_t buf;
        uint32_t len;
    } in;
    urma_cmd_udrv_priv_t udata;
};

struct urma_cmd_get_jetty_opt {
    struct {
        uint64_t handle;
        uint64_t opt;
        uint64_t buf;
        uint32_t len;
    } in;
    struct {
        uint64_t buf;
        uint32_t len;
    } out;
    urma_cmd_udrv_priv_t udata;
};

struct urma_cmd_active_jetty {
    struct {
        uint32_t flag;
        uint64_t handle;
        uint64_t send_jfc_handle;
        uint64_t recv_jfc_handle;
        uint64_t urma_jetty;
        uint64_t jetty_opt;
    } in;
    struct {
        uint32_t jetty_id;
    } out;
    urma_cmd_udrv_priv_t udata;
};

struct urma_cmd_deactive_jetty {
    struct {
        uint64_t handle;
    } in;
    urma_cmd_udrv_priv_t udata;
};

struct urma_cmd_get_eid_list {
    struct {
        uint32_t max_eid_cnt;
    } in;
    struct {
        uint32_t eid_cnt;
        urma_eid_info_t eid_list[1024];
    } out;
};

struct urma_cmd_user_ctl {
    struct {
        uint64_t addr;
        uint32_t len;
        uint32_t opcode;
    } in;
    struct {
        uint64_t addr;
        uint32_t len;
        uint32_t reserved;
    } out;
    struct {
        uint64_t in_addr;
        uint32_t in_len;
        uint64_t out_addr;
        uint32_t out_len;
    } udrv;
};

union urma_cmd_net_addr_union {
    uint8_t raw[URMA_CMD_EID_SIZE];
    struct {
        uint64_t reserved1;
        uint32_t reserved2;
        uint32_t addr;
    } in4;
    struct {
        uint64_t subnet_prefix;
        uint64_t interface_id;
    } in6;
};

struct urma_cmd_net_addr {
    urma_cmd_net_addr_type_t type;
    union urma_cmd_net_addr_union net_addr;
    uint64_t vlan;
    uint8_t mac[6];
    uint32_t prefix_len;
};

struct urma_cmd_net_addr_info {
    urma_cmd_net_addr_t netaddr;
    uint32_t index;
};

struct urma_cmd_get_net_addr_list {
    struct {
        uint32_t max_netaddr_cnt;
    } in;
    struct {
        uint32_t netaddr_cnt;
        uint64_t addr;
        uint64_t len;
    } out;
};

struct urma_cmd_modify_tp {
    struct {
        uint32_t tpn;
        urma_tp_cfg_t tp_cfg;
        urma_tp_attr_t attr;
        urma_tp_attr_mask_t mask;
    } in;
};

struct urma_cmd_query_device_attr {
    struct {
        char dev_name[URMA_MAX_NAME];
    } in;
    struct {
        urma_device_attr_t attr;
    } out;
};

struct urma_cmd_import_jetty_async {
    struct {
        uint8_t eid[URMA_CMD_EID_SIZE];
        uint32_t id;
        uint32_t flag;
        uint32_t token;
        uint32_t trans_mode;
        uint32_t policy;
        uint32_t type;
        uint64_t urma_tjetty;
        uint64_t user_ctx;
        int fd;
        int timeout;
    } in;
    struct {
        uint32_t tpn;
        uint64_t handle;
    } out;
    urma_cmd_udrv_priv_t udata;
};

struct urma_cmd_unimport_jetty_async {
    struct {
        uint64_t handle;
    } in;
};

struct urma_cmd_bind_jetty_async {
    struct {
        uint64_t jetty_handle;
        uint64_t tjetty_handle;
        uint64_t urma_tjetty;
        uint64_t urma_jetty;
        int fd;
        uint64_t user_ctx;
        int timeout;
    } in;
    struct {
        uint32_t tpn;
    } out;
    urma_cmd_udrv_priv_t udata;
};

struct urma_cmd_unbind_jetty_async {
    struct {
        uint64_t jetty_handle;
        uint64_t tjetty_handle;
    } in;
};

struct urma_cmd_create_notifier {
    struct {
        int fd;
    } out;
};

struct urma_cmd_get_jfce_cnt {
    struct {
        uint32_t threshold;
    } in;
    struct {
        uint64_t jfce_total_cnt;
        uint64_t jfce_thresh_cnt;
    } out;
};

struct urma_cmd_jfce_wait {
    struct {
        uint32_t max_event_cnt;
        int time_out;
    } in;
    struct {
        uint32_t event_cnt;
        uint64_t event_data[MAX_JFCE_EVENT_CNT];
    } out;
};

struct urma_cmd_async_event {
    uint32_t event_type;
    uint64_t event_data;
    uint32_t pad;
};

struct urma_cmd_notify {
    urma_notify_type_t type;
    urma_status_t status;
    uint64_t user_ctx;
    uint64_t urma_jetty;
    uint32_t vtpn;
};

struct urma_cmd_wait_notify {
    struct {
        uint32_t cnt;
        int timeout;
    } in;
    struct {
        uint32_t cnt;
        urma_cmd_notify_t notify[MAX_NOTIFY_CNT];
    } out;
};

struct urma_cmd_get_tp_list {
    struct {
        uint32_t flag;
        uint32_t trans_mode;
        uint8_t local_eid[URMA_CMD_EID_SIZE];
        uint8_t peer_eid[URMA_CMD_EID_SIZE];
        uint32_t tp_cnt;
        uint32_t reserved;
    } in;
    struct {
        uint32_t tp_cnt;
        uint32_t reserved;
        uint64_t tp_handle[128];
    } out;
    urma_cmd_udrv_priv_t udata;
};

struct urma_cmd_exchange_tp_info_t {
    struct {
        struct urma_get_tp_cfg get_tp_cfg;
        uint64_t tp_handle;
        uint32_t tx_psn;
    } in;
    struct {
        uint64_t peer_tp_handle;
        uint32_t rx_psn;
    } out;
};

struct urma_cmd_set_tp_attr {
    struct {
        uint64_t tp_handle;
        uint8_t tp_attr_cnt;
        uint32_t tp_attr_bitmap;
        uint8_t tp_attr[URMA_CMD_TP_ATTR_BYTES];
    } in;
    urma_cmd_udrv_priv_t udata;
};

struct urma_cmd_get_tp_attr {
    struct {
        uint64_t tp_handle;
    } in;
    struct {
        uint8_t tp_attr_cnt;
        uint32_t tp_attr_bitmap;
        uint8_t tp_attr[URMA_CMD_TP_ATTR_BYTES];
    } out;
    urma_cmd_udrv_priv_t udata;
};

struct urma_cmd_get_eid_by_ip {
    struct {
        urma_net_addr_t net_addr;
    } in;
    struct {
        urma_eid_t eid;
    } out;
};

struct urma_cmd_get_ip_by_eid {
    struct {
        urma_eid_t eid;
    } in;
    struct {
        urma_net_addr_t net_addr;
    } out;
};

struct urma_cmd_get_smac {
    struct {
        uint8_t mac[6];
    } out;
};

struct urma_cmd_get_dmac {
    struct {
        urma_net_addr_t net_addr;
    } in;
    struct {
        uint8_t mac[6];
    } out;
};

#define URMA_CMD_MAGIC 'U'
#define URMA_CMD _IOWR(URMA_CMD_MAGIC, 1, urma_cmd_hdr_t)
#define URMA_CORE_CMD_MAGIC 'C'
#define URMA_CORE_CMD _IOWR(URMA_CORE_CMD_MAGIC, 1, urma_cmd_hdr_t)
#define URMA_EVENT_CMD_MAGIC 'E'
#define URMA_EVENT_CMD _IOWR(URMA_EVENT_CMD_MAGIC, 0, urma_cmd_hdr_t)
/* Each kind of event has a file of its own, and one command there. */
#define JFCE_CMD_WAIT_EVENT 0
#define JFAE_CMD_GET_ASYNC_EVENT 0
#define NOTIFIER_CMD_WAIT_NOTIFY 0
#define URMA_CMD_WAIT_JFC _IOWR(URMA_EVENT_CMD_MAGIC, JFCE_CMD_WAIT_EVENT, urma_cmd_hdr_t)
#define URMA_CMD_GET_ASYNC_EVENT _IOWR(URMA_EVENT_CMD_MAGIC, JFAE_CMD_GET_ASYNC_EVENT, urma_cmd_hdr_t)
#define URMA_CMD_WAIT_NOTIFY _IOWR(URMA_EVENT_CMD_MAGIC, NOTIFIER_CMD_WAIT_NOTIFY, urma_cmd_hdr_t)

#ifdef __cplusplus
}
#endif

#endif
