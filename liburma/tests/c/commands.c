/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The commands of device files: not supported without a kernel module, but for those that
 * administration tools send.
 */
#include <unistd.h>

#include "end.h"

#include <ub/umdk/urma/urma_private.h>
#include <ub/umdk/urma/urma_provider.h>

static void not_supported(urma_device_t *dev)
{
    urma_context_t ctx = {0};
    urma_context_cfg_t cfg = {.dev = dev};
    urma_jfc_t jfc = {0}, *list[1] = {&jfc}, *bad = NULL;
    urma_jfc_cfg_t jfc_cfg = {.depth = 32};
    urma_jetty_t jetty = {0};
    urma_target_jetty_t target = {0};
    urma_tjetty_cfg_t to = {0};
    urma_seg_cfg_t seg_cfg = {0};
    urma_target_seg_t seg = {0};
    urma_get_tp_cfg_t tp_cfg = {0};
    urma_async_event_t event = {0};
    urma_notify_t notice;
    urma_user_ctl_in_t in = {0};
    urma_user_ctl_out_t out = {0};
    uint32_t count = 1, counts[1] = {1};
    uint64_t handle = 7;

    /* Whatever the arguments are, and nothing is written. */
    errno = 0;
    CHECK(urma_cmd_create_context(&ctx, &cfg, NULL) == -EOPNOTSUPP && ctx.dev == NULL);
    CHECK(urma_cmd_create_context(NULL, NULL, NULL) == -EOPNOTSUPP);
    CHECK(urma_cmd_create_jfce(&ctx) == -EOPNOTSUPP && urma_cmd_create_notifier(NULL) == -EOPNOTSUPP);
    CHECK(urma_cmd_create_jfc(&ctx, &jfc, &jfc_cfg, NULL) == -EOPNOTSUPP && jfc.handle == 0);
    CHECK(urma_cmd_delete_jfc_batch(list, 1, &bad) == -EOPNOTSUPP && bad == NULL);
    CHECK(urma_cmd_wait_jfc(3, 1, 0, list) == -EOPNOTSUPP && list[0] == &jfc);
    CHECK(urma_cmd_import_jetty(&ctx, &target, &to, NULL) == -EOPNOTSUPP && target.urma_ctx == NULL);
    CHECK(urma_cmd_bind_jetty(&jetty, &target, NULL) == -EOPNOTSUPP);
    CHECK(urma_cmd_register_seg(&ctx, &seg, &seg_cfg, NULL) == -EOPNOTSUPP && seg.handle == 0);
    CHECK(urma_cmd_exchange_tp_info(&ctx, &tp_cfg, 1, 1, &handle, &count) == -EOPNOTSUPP);
    CHECK(handle == 7 && count == 1);
    CHECK(urma_cmd_user_ctl(&ctx, &in, &out, NULL) == -EOPNOTSUPP);
    CHECK(urma_cmd_wait_notify(NULL, 1, &notice, 0) == -EOPNOTSUPP);
    CHECK(urma_cmd_get_async_event(&ctx, &event) == EOPNOTSUPP);
    urma_cmd_ack_jfc(list, counts, 1);
    urma_cmd_ack_async_event(&event);
    CHECK(errno == 0);
}

static void administration(urma_device_t *dev)
{
    char path[] = "/dev/uburma/udma0", none[] = "/dev/uburma/none";
    urma_eid_info_t eids[4];
    uint32_t count = 0;
    struct urma_sysfs_dev sysfs;

    int fd = urma_open_cdev(path);
    CHECK(fd >= 0);
    CHECK(urma_open_cdev(none) == -1 && errno == ENODEV);
    CHECK(urma_open_cdev(NULL) == -1 && errno == EINVAL);
    CHECK(urma_cmd_get_eid_list(fd, 4, eids, &count) == 0 && count == 1);
    urma_eid_info_t *list = urma_get_eid_list(dev, &count);
    CHECK(list != NULL && memcmp(&list[0].eid, &eids[0].eid, sizeof(eids[0].eid)) == 0);
    urma_free_eid_list(list);
    memset(&sysfs, 0, sizeof(sysfs));
    CHECK(urma_cmd_query_device_attr(fd, &sysfs) == 0 && sysfs.dev_attr.dev_cap.max_jfc > 0);
    CHECK(urma_cmd_query_device_attr(fd, NULL) == -EINVAL);
    CHECK(urma_cmd_query_device_attr(0, &sysfs) == -EINVAL);
    CHECK(close(fd) == 0);
    CHECK(urma_cmd_get_eid_list(fd, 4, eids, &count) == -EINVAL);

    urma_jfce_cnt_info_t counts[2];
    count = 2;
    CHECK(urma_get_jfce_cnt_info(counts, &count) == 0 && count == 1);
    CHECK(strcmp(counts[0].dev_name, "udma0") == 0 && counts[0].jfce_total_cnt == 0);
    urma_context_t *ctx = urma_create_context(dev, 0);
    urma_jfce_t *jfce = urma_create_jfce(ctx);
    CHECK(jfce != NULL && urma_get_jfce_cnt_info(counts, &count) == 0);
    CHECK(counts[0].jfce_total_cnt == 1);
    CHECK(urma_delete_jfce(jfce) == 0 && urma_delete_context(ctx) == 0);
    CHECK(urma_get_jfce_cnt_info(counts, &count) == 0 && counts[0].jfce_total_cnt == 0);
    CHECK(urma_get_jfce_cnt_info(NULL, &count) == URMA_EINVAL);
}

static void copies(urma_device_t *dev)
{
    struct end end;
    urma_jetty_cfg_t cfg = {0}, copy;
    urma_jfr_cfg_t jfr_cfg = {0};

    end_open(&end, dev, URMA_TM_RM);
    cfg.flag.bs.share_jfr = 1;
    cfg.shared.jfr = end.jfr;
    CHECK(urma_init_jetty_cfg(&copy, &cfg) == 0 && copy.shared.jfc == end.jfc);
    urma_uninit_jetty_cfg(&copy);
    CHECK(copy.shared.jfr == end.jfr);
    cfg.flag.bs.share_jfr = 0;
    jfr_cfg.depth = 77;
    cfg.jfr_cfg = &jfr_cfg;
    CHECK(urma_init_jetty_cfg(&copy, &cfg) == 0);
    CHECK(copy.jfr_cfg != &jfr_cfg && copy.jfr_cfg->depth == 77);
    urma_uninit_jetty_cfg(&copy);
    CHECK(copy.jfr_cfg == NULL);
    CHECK(urma_init_jetty_cfg(NULL, &cfg) == -1 && urma_init_jetty_cfg(&copy, NULL) == -1);
    urma_uninit_jetty_cfg(NULL);
    end_close(&end);
}

int main(void)
{
    CHECK(urma_init(NULL) == URMA_SUCCESS);
    urma_device_t *dev = urma_get_device_by_name((char *)"udma0");
    CHECK(dev != NULL);
    not_supported(dev);
    administration(dev);
    copies(dev);
    CHECK(urma_uninit() == URMA_SUCCESS);
    puts("commands: done");
    return 0;
}
