/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Names that bonding, lock and administration programs take from the headers, beside the functions.
 */
#define UB_LIST_H /* the public list, which a program has included */
struct ub_list {
    struct ub_list *prev, *next;
};

#include "end.h"

#include <ub/umdk/urma/urma_cmd.h>
#include <ub/umdk/urma/urma_private.h>
#include <ub/umdk/urma/urma_ubagg.h>
#include <ub/umdk/urma/uvs_api.h>

#ifndef URMA_CMD_UDRV_PRIV
#error "programs ask by this name whether the struct is there"
#endif

int main(void)
{
    enum urma_context_opt_name name = URMA_OPT_AGGR_MODE;
    urma_cmd_alloc_jetty_t alloc;
    union urma_jfs_opt_mask jfs = {0};
    union urma_jfr_opt_mask jfr = {0};
    urma_driver_t driver = {0};
    struct ub_list *node = &driver.node;
    urma_jfce_cnt_info_t counts[URMA_JFCE_CNT_MAX_DEV_NUM];

    CHECK(URMA_FAILOVER_LINK_NUM == 4 && URMA_MAX_UASID == 1 << 24 && URMA_CMD_MAX_TP_NUM == 128);
    CHECK(URMA_GET_VERSION(1, 2) == 0x10002 && URMA_GET_VERSION(1, 65536) == 0x1ffff);
    CHECK(URMA_CFG_MASK == 0 && name == 0 && node->next == NULL);
    CHECK(_IOC_TYPE(URMA_CMD_WAIT_JFC) == 'E' && _IOC_NR(URMA_CMD_WAIT_JFC) == 0);
    CHECK(URMA_CMD_WAIT_NOTIFY == URMA_CMD_WAIT_JFC);
    CHECK(URMA_CMD_GET_ASYNC_EVENT == URMA_CMD_WAIT_JFC);
    CHECK(_IOC_SIZE(URMA_CMD_WAIT_JFC) == sizeof(urma_cmd_hdr_t));
    CHECK(sizeof(alloc) == sizeof(urma_cmd_create_jetty_t) && sizeof(counts) / sizeof(*counts) == 64);
    jfs.bs.urma_jfs_cqe_base_addr = 1;
    jfr.bs.urma_jfr_cqe_base_addr = 1;
    CHECK(jfs.value == 1 && jfr.value == 1);
    return 0;
}
