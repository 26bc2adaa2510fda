/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What queues say of themselves, before and after a change; which modes a queue may have; what is
 * behind a device, over several lives of the library.
 */
#include "end.h"

#include <ub/umdk/urma/urma_private.h>
#include <ub/umdk/urma/urma_provider.h>

static urma_jfs_cfg_t send_cfg(struct end *end)
{
    urma_jfs_cfg_t cfg = {0};

    cfg.depth = 24;
    cfg.flag.bs.error_suspend = 1;
    cfg.trans_mode = URMA_TM_RM;
    cfg.priority = 3;
    cfg.max_sge = 2;
    cfg.max_rsge = 1;
    cfg.max_inline_data = 48;
    cfg.rnr_retry = 5;
    cfg.err_timeout = 17;
    cfg.jfc = end->jfc;
    cfg.user_ctx = 0x77;
    return cfg;
}

static int same_send(const urma_jfs_cfg_t *a, const urma_jfs_cfg_t *b)
{
    return a->depth == b->depth && a->flag.value == b->flag.value && a->jfc == b->jfc &&
           a->trans_mode == b->trans_mode && a->priority == b->priority &&
           a->max_sge == b->max_sge && a->max_rsge == b->max_rsge &&
           a->max_inline_data == b->max_inline_data && a->rnr_retry == b->rnr_retry &&
           a->err_timeout == b->err_timeout && a->user_ctx == b->user_ctx;
}

static void send_queue(struct end *end)
{
    urma_jfs_cfg_t cfg = send_cfg(end), seen;
    urma_jfs_attr_t attr = {JFS_STATE, URMA_JETTY_STATE_ERROR};
    urma_jfs_t *jfs = urma_create_jfs(end->ctx, &cfg);

    CHECK(jfs != NULL && cfg.flag.bs.order_type == URMA_OI);
    memset(&seen, 0xee, sizeof(seen));
    memset(&attr, 0xee, sizeof(attr));
    CHECK(urma_query_jfs(jfs, &seen, &attr) == URMA_SUCCESS && same_send(&seen, &cfg));
    CHECK(attr.mask == 0 && attr.state == URMA_JETTY_STATE_READY);
    CHECK(urma_modify_jfs(jfs, &attr) == URMA_EINVAL); /* what was read changes nothing */

    attr.mask = JFS_STATE;
    attr.state = URMA_JETTY_STATE_RESET;
    CHECK(urma_modify_jfs(jfs, &attr) == URMA_EINVAL); /* by way of ERROR only */
    attr.state = URMA_JETTY_STATE_ERROR;
    CHECK(urma_modify_jfs(jfs, &attr) == URMA_SUCCESS);
    attr.state = URMA_JETTY_STATE_READY;
    CHECK(urma_query_jfs(jfs, &seen, &attr) == URMA_SUCCESS && same_send(&seen, &cfg));
    CHECK(attr.mask == 0 && attr.state == URMA_JETTY_STATE_ERROR);
    attr.mask = JFS_STATE;
    attr.state = URMA_JETTY_STATE_READY;
    CHECK(urma_modify_jfs(jfs, &attr) == URMA_EINVAL); /* by way of RESET only */
    attr.state = URMA_JETTY_STATE_RESET;
    CHECK(urma_modify_jfs(jfs, &attr) == URMA_SUCCESS);
    CHECK(urma_query_jfs(jfs, &seen, &attr) == URMA_SUCCESS);
    CHECK(attr.state == URMA_JETTY_STATE_RESET);
    attr.mask = JFS_STATE;
    attr.state = URMA_JETTY_STATE_READY;
    CHECK(urma_modify_jfs(jfs, &attr) == URMA_SUCCESS);
    CHECK(urma_query_jfs(jfs, &seen, &attr) == URMA_SUCCESS);
    CHECK(attr.state == URMA_JETTY_STATE_READY);

    CHECK(urma_query_jfs(NULL, &seen, &attr) == URMA_EINVAL);
    CHECK(urma_query_jfs(jfs, NULL, &attr) == URMA_EINVAL);
    CHECK(urma_query_jfs(jfs, &seen, NULL) == URMA_EINVAL);
    CHECK(urma_delete_jfs(jfs) == URMA_SUCCESS);
    CHECK(urma_query_jfs(jfs, &seen, &attr) == URMA_EINVAL);
}

static void receive_queue(struct end *end)
{
    urma_jfr_cfg_t seen;
    urma_jfr_attr_t attr = {JFR_RX_THRESHOLD | JFR_STATE, 7, URMA_JFR_STATE_READY};
    urma_jfr_cfg_t cfg = end->jfr->jfr_cfg;

    cfg.user_ctx = 0x88;
    urma_jfr_t *jfr = urma_create_jfr(end->ctx, &cfg);
    CHECK(jfr != NULL);
    attr.mask = JFR_RX_THRESHOLD;
    CHECK(urma_modify_jfr(jfr, &attr) == URMA_SUCCESS);
    memset(&seen, 0xee, sizeof(seen));
    CHECK(urma_query_jfr(jfr, &seen, &attr) == URMA_SUCCESS);
    CHECK(attr.mask == 0 && attr.rx_threshold == 7 && attr.state == URMA_JFR_STATE_READY);
    CHECK(seen.depth == cfg.depth && seen.max_sge == cfg.max_sge && seen.jfc == cfg.jfc);
    CHECK(seen.user_ctx == 0x88 && seen.token_value.token == TOKEN);
    CHECK(seen.min_rnr_timer == cfg.min_rnr_timer && seen.flag.value == cfg.flag.value);
    /* Only what the mask names is changed. */
    attr.mask = JFR_RX_THRESHOLD;
    attr.rx_threshold = 5;
    attr.state = URMA_JFR_STATE_ERROR;
    CHECK(urma_modify_jfr(jfr, &attr) == URMA_SUCCESS);
    CHECK(urma_query_jfr(jfr, &seen, &attr) == URMA_SUCCESS);
    CHECK(attr.state == URMA_JFR_STATE_READY && attr.rx_threshold == 5);
    attr.mask = JFR_STATE;
    attr.state = URMA_JFR_STATE_ERROR;
    attr.rx_threshold = 7;
    CHECK(urma_modify_jfr(jfr, &attr) == URMA_SUCCESS);
    CHECK(urma_query_jfr(jfr, &seen, &attr) == URMA_SUCCESS);
    CHECK(attr.state == URMA_JFR_STATE_ERROR && attr.rx_threshold == 5);
    CHECK(urma_delete_jfr(jfr) == URMA_SUCCESS);
}

static void jetty(struct end *end)
{
    urma_jetty_cfg_t cfg = end->jetty->jetty_cfg, seen;
    urma_jetty_attr_t attr;

    cfg.id = 0;
    cfg.jfs_cfg = send_cfg(end);
    cfg.shared.jfc = NULL;
    cfg.user_ctx = 0x99;
    urma_jetty_t *jetty = urma_create_jetty(end->ctx, &cfg);
    CHECK(jetty != NULL);
    memset(&seen, 0xee, sizeof(seen));
    CHECK(urma_query_jetty(jetty, &seen, &attr) == URMA_SUCCESS);
    CHECK(attr.mask == 0 && attr.state == URMA_JETTY_STATE_READY && attr.rx_threshold == 0);
    CHECK(same_send(&seen.jfs_cfg, &cfg.jfs_cfg) && seen.flag.value == cfg.flag.value);
    CHECK(seen.shared.jfr == end->jfr && seen.user_ctx == 0x99 && seen.jetty_grp == NULL);
    /* Who names no JFC for receives gets that of the JFR. */
    CHECK(seen.shared.jfc == end->jfr->jfr_cfg.jfc && jetty->jetty_cfg.shared.jfc == end->jfc);
    CHECK(cfg.shared.jfc == NULL);
    /* The threshold is the JFR's; the state is not changed with it. */
    attr.mask = JETTY_RX_THRESHOLD;
    attr.rx_threshold = 3;
    attr.state = URMA_JETTY_STATE_ERROR;
    CHECK(urma_modify_jetty(jetty, &attr) == URMA_EINVAL);
    CHECK(urma_query_jetty(jetty, &seen, &attr) == URMA_SUCCESS);
    CHECK(attr.state == URMA_JETTY_STATE_READY);
    attr.mask = JETTY_STATE; /* and not the threshold, which would be refused */
    attr.rx_threshold = 4;
    attr.state = URMA_JETTY_STATE_ERROR;
    CHECK(urma_modify_jetty(jetty, &attr) == URMA_SUCCESS);
    attr.state = URMA_JETTY_STATE_READY;
    CHECK(urma_query_jetty(jetty, &seen, &attr) == URMA_SUCCESS);
    CHECK(attr.mask == 0 && attr.state == URMA_JETTY_STATE_ERROR);
    CHECK(urma_delete_jetty(jetty) == URMA_SUCCESS);
}

/* A JFS has many targets: RC is for jetties, and for the JFRs that they receive through. */
static void modes(struct end *end)
{
    urma_jfs_cfg_t cfg = send_cfg(end);
    urma_jfr_cfg_t jfr_cfg = end->jfr->jfr_cfg;
    urma_jfs_t *jfs = NULL;
    unsigned long before = end->ctx->ref.atomic_cnt;

    cfg.trans_mode = URMA_TM_RC;
    errno = 0;
    CHECK(urma_create_jfs(end->ctx, &cfg) == NULL && errno == EINVAL);
    cfg = send_cfg(end);
    cfg.trans_mode = URMA_TM_RC;
    CHECK(urma_alloc_jfs(end->ctx, &cfg, &jfs) == URMA_SUCCESS && jfs != NULL);
    CHECK(urma_active_jfs(jfs) == URMA_EINVAL && !jfs->urma_jfs_opt.is_actived);
    urma_transport_mode_t mode = URMA_TM_RM;
    CHECK(urma_set_jfs_opt(jfs, URMA_JFS_TRANS_MODE, &mode, sizeof(mode)) == URMA_SUCCESS);
    urma_jfs_flag_t flag = {0};
    CHECK(urma_set_jfs_opt(jfs, URMA_JFS_FLAG, &flag, sizeof(flag)) == URMA_SUCCESS);
    CHECK(urma_active_jfs(jfs) == URMA_SUCCESS && urma_delete_jfs(jfs) == URMA_SUCCESS);
    cfg = send_cfg(end);
    cfg.trans_mode = URMA_TM_UM;
    jfs = urma_create_jfs(end->ctx, &cfg);
    CHECK(jfs != NULL && urma_delete_jfs(jfs) == URMA_SUCCESS);
    for (int of = URMA_TM_RM; of <= URMA_TM_UM; of <<= 1) {
        jfr_cfg.trans_mode = (urma_transport_mode_t)of;
        jfr_cfg.flag.bs.order_type = 0;
        urma_jfr_t *jfr = urma_create_jfr(end->ctx, &jfr_cfg);
        CHECK(jfr != NULL && urma_delete_jfr(jfr) == URMA_SUCCESS);
    }
    CHECK(end->ctx->ref.atomic_cnt == before);
}

/* The structs that UMDK's programs read without a call. */
static void behind(urma_device_t *dev)
{
    urma_sysfs_dev_t *sysfs = dev->sysfs_dev;
    urma_device_attr_t attr;

    CHECK(sysfs != NULL && sysfs->urma_device == dev && strcmp(sysfs->dev_name, dev->name) == 0);
    CHECK(dev->ops != NULL && strcmp(dev->ops->name, "udma") == 0);
    CHECK(strcmp(sysfs->driver_name, dev->ops->name) == 0);
    CHECK(sysfs->transport_type == URMA_TRANSPORT_UB && dev->type == URMA_TRANSPORT_UB);
    CHECK(sysfs->driver != NULL && sysfs->driver->ops == dev->ops);
    CHECK(sysfs->vendor_id != 0 && sysfs->device_id != 0);
    CHECK(sysfs->time_created.tv_sec > 0);
    CHECK(urma_query_device(dev, &attr) == URMA_SUCCESS);
    CHECK(memcmp(&attr, &sysfs->dev_attr, sizeof(attr)) == 0 && attr.dev_cap.max_eid_cnt == 1);
}

/* A list of one life is the caller's in the next, and names devices that are gone. */
static void lives(void)
{
    int count = 0, again = 0;

    CHECK(urma_init(NULL) == URMA_SUCCESS);
    urma_device_t **old = urma_get_device_list(&count);
    CHECK(old != NULL && count == 2);
    behind(old[0]);
    behind(old[1]);
    CHECK(urma_uninit() == URMA_SUCCESS);
    errno = 0;
    CHECK(urma_get_device_list(&again) == NULL && errno == ENODEV && again == 0);
    CHECK(urma_init(NULL) == URMA_SUCCESS);
    urma_device_t **list = urma_get_device_list(&again);
    CHECK(list != NULL && again == count);
    for (int i = 0; i < count; i++) {
        bool is_listed = old[i] == list[0] || old[i] == list[1];
        urma_device_attr_t attr;
        CHECK(urma_query_device(old[i], &attr) == (is_listed ? URMA_SUCCESS : URMA_EINVAL));
        CHECK(strcmp(list[i]->name, i == 0 ? "bonding_dev_0" : "udma0") == 0);
        behind(list[i]);
    }
    urma_free_device_list(old);

    /* A context of one life keeps its device, which is not listed in the next. */
    struct end end;
    end_open(&end, list[0], URMA_TM_RM);
    CHECK(urma_uninit() == URMA_SUCCESS && end.ctx->dev == list[0]);
    urma_jfs_cfg_t cfg = send_cfg(&end);
    urma_jfs_t *jfs = urma_create_jfs(end.ctx, &cfg);
    CHECK(jfs != NULL && urma_delete_jfs(jfs) == URMA_SUCCESS);
    end_close(&end);
    urma_free_device_list(list);
    CHECK(urma_init(NULL) == URMA_SUCCESS);
    list = urma_get_device_list(&again);
    CHECK(list != NULL && again == count);
    behind(list[0]);
    urma_free_device_list(list);
    CHECK(urma_uninit() == URMA_SUCCESS);
}

/* A context with an import is not closed, and says so at once: each of these would wait for a second. */
static void closing(urma_device_t *dev)
{
    struct end end;

    end_open(&end, dev, URMA_TM_RM);
    struct info info = end_info(&end);
    urma_target_jetty_t *target = end_import_jetty(&end, &info);
    CHECK(urma_unregister_seg(end.seg) == URMA_SUCCESS);
    CHECK(urma_delete_jetty(end.jetty) == URMA_SUCCESS);
    CHECK(urma_delete_jfr(end.jfr) == URMA_SUCCESS && urma_delete_jfc(end.jfc) == URMA_SUCCESS);
    CHECK(urma_delete_jfce(end.jfce) == URMA_SUCCESS);
    CHECK(urma_delete_context(end.ctx) == URMA_EAGAIN);
    time_t start = time(NULL);
    for (int i = 0; i < 60; i++) {
        CHECK(dev->ops->delete_context(end.ctx) == URMA_EAGAIN);
    }
    CHECK(time(NULL) - start < 30);
    CHECK(urma_unimport_jetty(target) == URMA_SUCCESS);
    CHECK(urma_delete_context(end.ctx) == URMA_SUCCESS);
    free(end.memory);
}

int main(void)
{
    struct end end;

    lives();
    CHECK(urma_init(NULL) == URMA_SUCCESS);
    end_open(&end, urma_get_device_by_name((char *)"udma0"), URMA_TM_RM);
    send_queue(&end);
    receive_queue(&end);
    jetty(&end);
    modes(&end);
    closing(end.ctx->dev);
    end_close(&end);
    CHECK(urma_uninit() == URMA_SUCCESS);
    return 0;
}
