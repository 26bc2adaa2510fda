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
#include <ub/umdk/urma/urma_device.h>
#include <ub/umdk/urma/urma_private.h>
#include <ub/umdk/urma/urma_ubagg.h>
#include <ub/umdk/urma/uvs_api.h>

#ifndef URMA_CMD_UDRV_PRIV
#error "programs ask by this name whether the struct is there"
#endif

/* What a bonding provider puts around its functions; calls below 20 ns are not counted. */
static void timed(int early)
{
    const struct timespec pause = {0, 1000};
    PERF_PROFILING_START(BOND_POLL_JFC);
    nanosleep(&pause, NULL);
    if (early) {
        PERF_PROFILING_END(BOND_POLL_JFC);
        return;
    }
    nanosleep(&pause, NULL);
    PERF_PROFILING_END(BOND_POLL_JFC);
}

/* Number of calls of timed() that the table counts, or -1 when it has no line for them. */
static long counted(void)
{
    static char text[65536];
    uint32_t len = sizeof(text);
    long count = -1;
    CHECK(urma_get_perf_info(text, &len) == URMA_SUCCESS);
    const char *line = strstr(text, "BOND_POLL_JFC");
    if (line != NULL) {
        CHECK(sscanf(line, "BOND_POLL_JFC | %ld", &count) == 1);
    }
    return count;
}

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

    timed(0);
    CHECK(urma_start_perf() == URMA_SUCCESS && counted() == -1);
    timed(0);
    timed(1);
    CHECK(counted() == 2);
    CHECK(urma_stop_perf() == URMA_SUCCESS);
    return 0;
}
