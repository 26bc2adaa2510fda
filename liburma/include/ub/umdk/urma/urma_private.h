/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What lies behind urma_device_t.sysfs_dev, and calls that UMDK's tools import. Not one of
 * the eleven public headers; here for programs that build or read these structs.
 */
#ifndef URMA_PRIVATE_H
#define URMA_PRIVATE_H

#include <stdint.h>
#include <time.h>
#include "urma_perf.h"
#include "urma_provider.h"

#ifdef __cplusplus
extern "C" {
#endif

#define URMA_MAX_SYSFS_PATH 256
#define URMA_JFCE_CNT_MAX_DEV_NUM 64

/* Every struct by its short name. */
typedef struct urma_driver urma_driver_t;
typedef struct urma_sysfs_dev urma_sysfs_dev_t;
typedef struct urma_sysfs_dev_name urma_sysfs_dev_name_t;
typedef struct urma_jfce_cnt_info urma_jfce_cnt_info_t;
typedef struct urma_user_info_ext_hdr urma_user_info_ext_hdr_t;

/* The public list, where the program has it. */
#if !defined(UB_LIST_H) && defined(__has_include)
#if __has_include("ub_list.h")
#include "ub_list.h"
#elif __has_include(<ub/umdk/common/ub_list.h>)
#include <ub/umdk/common/ub_list.h>
#endif
#endif
#ifndef UB_LIST_H
struct ub_list {
    struct ub_list *prev;
    struct ub_list *next;
};
#endif

struct urma_driver {
    struct urma_provider_ops *ops;
    struct ub_list node;
};

struct urma_sysfs_dev {
    char dev_name[URMA_MAX_NAME];
    char sysfs_path[URMA_MAX_SYSFS_PATH];
    char driver_name[URMA_MAX_NAME];
    urma_transport_type_t transport_type;
    urma_driver_t *driver;
    urma_device_t *urma_device;
    urma_device_attr_t dev_attr;
    uint16_t device_id;
    uint16_t vendor_id;
    struct ub_list node;
    uint32_t flag;
    struct timespec time_created;
};

struct urma_sysfs_dev_name {
    char dev_name[URMA_MAX_NAME];
    struct ub_list node;
    struct timespec time_created;
};

struct urma_jfce_cnt_info {
    char dev_name[URMA_MAX_NAME];
    uint64_t jfce_total_cnt;
    uint64_t jfce_thresh_cnt;
};

URMA_FLEXIBLE struct urma_user_info_ext_hdr {
    uint32_t len;
    char data[];
};

int urma_init_jetty_cfg(urma_jetty_cfg_t *p, urma_jetty_cfg_t *cfg);
void urma_uninit_jetty_cfg(urma_jetty_cfg_t *p);
int urma_open_cdev(char *path);
urma_status_t urma_get_jfce_cnt_info(urma_jfce_cnt_info_t *info_arr, uint32_t *cnt);
void urma_ubagg_switch_inc(void);
bool urma_perf_is_enabled(void);
uint64_t urma_get_perf_timestamp(void);
urma_status_t urma_step_perf(urma_perf_record_type_t type, uint64_t delta);

/*
 * Counts the time from START to END, in the same block, as a call of kind `type`. Nothing is counted
 * unless counting was on at START; each return needs an END before it.
 */
#define PERF_PROFILING_START(type) \
    const uint64_t type##_start = urma_perf_is_enabled() ? urma_get_perf_timestamp() : 0

#define PERF_PROFILING_END(type) \
    do { \
        if (type##_start != 0) { \
            (void)urma_step_perf(type, urma_get_perf_timestamp() - type##_start); \
        } \
    } while (0)

#ifdef __cplusplus
}
#endif

#endif
