/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The kernel's commands as a provider in C gives them: objects in its own memory, answered by the
 * software device. And what administration tools ask.
 */
#include <unistd.h>

#include "end.h"

#include <ub/umdk/urma/urma_private.h>
#include <ub/umdk/urma/urma_provider.h>

struct own {
    urma_context_t ctx;
    urma_jfce_t jfce;
    urma_jfc_t jfc;
    urma_jfr_t jfr;
    urma_jfs_t jfs;
    urma_jetty_t jetty;
    urma_token_id_t token_id;
    urma_target_seg_t seg, there;
    urma_target_jetty_t target, target_jfr;
    urma_notifier_t notifier;
    uint8_t memory[4096];
};

static void queues(struct own *own)
{
    urma_jfc_cfg_t jfc_cfg = {0};
    urma_jfr_cfg_t jfr_cfg = {0};
    urma_jfs_cfg_t jfs_cfg = {0};
    urma_jetty_cfg_t cfg = {0};
    urma_jfr_attr_t attr = {0};

    own->jfce.urma_ctx = &own->ctx;
    own->jfce.fd = urma_cmd_create_jfce(&own->ctx);
    CHECK(own->jfce.fd >= 0);
    jfc_cfg.depth = 32;
    jfc_cfg.jfce = &own->jfce;
    CHECK(urma_cmd_create_jfc(&own->ctx, &own->jfc, &jfc_cfg, NULL) == 0);
    CHECK(own->jfc.urma_ctx == &own->ctx && own->jfc.handle != 0 && own->jfc.jfc_cfg.depth == 32);
    CHECK(own->jfc.jfc_cfg.jfce == &own->jfce);
    CHECK(urma_cmd_create_jfc(&own->ctx, &own->jfc, NULL, NULL) == -EINVAL);
    CHECK(urma_cmd_create_jfc(NULL, &own->jfc, &jfc_cfg, NULL) == -EINVAL);

    jfr_cfg.depth = 16;
    jfr_cfg.trans_mode = URMA_TM_RM;
    jfr_cfg.flag.bs.order_type = URMA_OI;
    jfr_cfg.max_sge = 1;
    jfr_cfg.jfc = &own->jfc;
    CHECK(urma_cmd_create_jfr(&own->ctx, &own->jfr, &jfr_cfg, NULL) == 0);
    CHECK(own->jfr.jfr_id.id != 0 && own->jfr.jfr_cfg.jfc == &own->jfc);
    attr.mask = JFR_RX_THRESHOLD;
    attr.rx_threshold = 4;
    CHECK(urma_cmd_modify_jfr(&own->jfr, &attr, NULL) == 0);
    attr.rx_threshold = 0;
    CHECK(urma_cmd_query_jfr(&own->jfr, &jfr_cfg, &attr) == 0 && attr.rx_threshold == 4);
    CHECK(urma_cmd_query_jfr(&own->jfr, NULL, &attr) == -EINVAL);

    jfs_cfg.depth = 16;
    jfs_cfg.trans_mode = URMA_TM_RM;
    jfs_cfg.flag.bs.order_type = URMA_OI;
    jfs_cfg.max_sge = 1;
    jfs_cfg.max_rsge = 1;
    jfs_cfg.rnr_retry = URMA_TYPICAL_RNR_RETRY;
    jfs_cfg.err_timeout = URMA_TYPICAL_ERR_TIMEOUT;
    jfs_cfg.jfc = &own->jfc;
    CHECK(urma_cmd_create_jfs(&own->ctx, &own->jfs, &jfs_cfg, NULL) == 0);

    /* Allocated, set up in the provider's own struct, and activated. */
    cfg.flag.bs.share_jfr = 1;
    CHECK(urma_cmd_alloc_jetty(&own->ctx, &cfg, &own->jetty, NULL) == 0);
    uint32_t depth = 16;
    CHECK(urma_cmd_set_jetty_opt(&own->jetty, URMA_JFS_DEPTH, &depth, 4, NULL) == 0);
    CHECK(urma_cmd_set_jetty_opt(&own->jetty, URMA_JFS_DEPTH, &depth, 2, NULL) == -EINVAL);
    CHECK(urma_cmd_active_jetty(&own->jetty, NULL) != 0); /* nothing to complete on */
    own->jetty.jetty_cfg.jfs_cfg = jfs_cfg;
    own->jetty.jetty_cfg.shared.jfr = &own->jfr;
    CHECK(urma_cmd_active_jetty(&own->jetty, NULL) == 0 && own->jetty.jetty_id.id != 0);
    CHECK(urma_cmd_active_jetty(&own->jetty, NULL) == -EINVAL);
    depth = 0;
    CHECK(urma_cmd_get_jetty_opt(&own->jetty, URMA_JETTY_ID, &depth, 4, NULL) == 0);
    CHECK(depth == own->jetty.jetty_id.id);
    CHECK(urma_cmd_free_jetty(&own->jetty, NULL) == -EINVAL); /* active */
}

static void memory(struct own *own)
{
    urma_seg_cfg_t cfg = {0};
    urma_import_tseg_cfg_t import = {0};

    CHECK(urma_cmd_alloc_token_id(&own->ctx, &own->token_id, NULL) == 0);
    CHECK(own->token_id.token_id != 0 && own->token_id.urma_ctx == &own->ctx);
    cfg.va = (uintptr_t)own->memory;
    cfg.len = sizeof(own->memory);
    cfg.token_id = &own->token_id;
    cfg.flag.bs.token_id_valid = 1;
    cfg.flag.bs.access = URMA_ACCESS_READ | URMA_ACCESS_WRITE;
    CHECK(urma_cmd_register_seg(&own->ctx, &own->seg, &cfg, NULL) == 0);
    CHECK(own->seg.seg.len == sizeof(own->memory) && own->seg.token_id == &own->token_id);
    CHECK(own->seg.seg.token_id == own->token_id.token_id && own->seg.handle != 0);
    import.ubva = own->seg.seg.ubva;
    import.len = own->seg.seg.len;
    import.attr = own->seg.seg.attr;
    import.token_id = own->seg.seg.token_id;
    CHECK(urma_cmd_import_seg(&own->ctx, &own->there, &import, NULL) == 0);
    CHECK(urma_cmd_import_seg(&own->ctx, &own->there, NULL, NULL) == -EINVAL);
    CHECK(urma_cmd_unimport_seg(&own->there) == 0);
    CHECK(urma_cmd_unimport_seg(&own->there) == -EINVAL);
    CHECK(urma_cmd_unregister_seg(&own->seg) == 0);
    CHECK(urma_cmd_free_token_id(&own->token_id) == 0);
    CHECK(urma_cmd_free_token_id(NULL) == -EINVAL);
}

static void targets(struct own *own)
{
    urma_tjetty_cfg_t cfg = {0};
    urma_tjfr_cfg_t jfr_cfg = {0};
    urma_active_tp_cfg_t active = {0};
    urma_get_tp_cfg_t tp_cfg = {0};
    urma_tp_info_t list[2];
    urma_notify_t notice;
    uint32_t count = 2;

    cfg.jetty_id = own->jetty.jetty_id;
    cfg.trans_mode = URMA_TM_RM;
    cfg.type = URMA_JETTY;
    CHECK(urma_cmd_import_jetty(&own->ctx, &own->target, &cfg, NULL) == 0);
    CHECK(own->target.urma_ctx == &own->ctx && own->target.id.id == own->jetty.jetty_id.id);
    CHECK(urma_cmd_advise_jetty(&own->jetty, &own->target, NULL) == 0);
    CHECK(urma_cmd_unadvise_jetty(&own->jetty, &own->target) == 0);
    CHECK(urma_cmd_bind_jetty(&own->jetty, &own->target, NULL) != 0); /* RM */
    CHECK(urma_cmd_bind_jetty_ex(&own->jetty, &own->target, &active, NULL) != 0);
    CHECK(urma_cmd_unbind_jetty(&own->jetty) != 0 && urma_cmd_unbind_jetty_async(&own->jetty) != 0);
    CHECK(urma_cmd_unimport_jetty(&own->target) == 0);
    CHECK(urma_cmd_import_jetty_ex(&own->ctx, &own->target, &cfg, NULL, NULL) == -EINVAL);
    CHECK(urma_cmd_import_jetty_ex(&own->ctx, &own->target, &cfg, &active, NULL) == 0);
    CHECK(urma_cmd_unimport_jetty_async(&own->target) == 0);
    jfr_cfg.jfr_id = own->jfr.jfr_id;
    jfr_cfg.trans_mode = URMA_TM_RM;
    CHECK(urma_cmd_import_jfr(&own->ctx, &own->target_jfr, &jfr_cfg, NULL) == 0);
    CHECK(urma_cmd_advise_jfr(&own->jfs, &own->target_jfr, NULL) == 0);
    CHECK(urma_cmd_unadvise_jfr(&own->jfs, &own->target_jfr) == 0);
    CHECK(urma_cmd_unimport_jfr(&own->target_jfr) == 0);
    CHECK(urma_cmd_import_jfr_ex(&own->ctx, &own->target_jfr, &jfr_cfg, &active, NULL) == 0);
    CHECK(urma_cmd_unimport_jfr(&own->target_jfr) == 0);

    own->notifier.urma_ctx = &own->ctx;
    own->notifier.fd = urma_cmd_create_notifier(&own->ctx);
    CHECK(own->notifier.fd >= 0);
    CHECK(urma_cmd_import_jetty_async(&own->notifier, &own->target, &cfg, 4, 100, NULL) == 0);
    CHECK(urma_cmd_wait_notify(&own->notifier, 1, &notice, 60000) == 1);
    CHECK(notice.tjetty == &own->target && notice.status == 0 && notice.user_ctx == 4);
    CHECK(urma_cmd_bind_jetty_async(&own->notifier, &own->jetty, &own->target, 6, 1, NULL) == 0);
    CHECK(urma_cmd_wait_notify(&own->notifier, 1, &notice, 60000) == 1);
    CHECK(notice.jetty == &own->jetty && notice.status != 0 && notice.user_ctx == 6);
    CHECK(urma_cmd_unimport_jetty(&own->target) == 0);

    tp_cfg.trans_mode = URMA_TM_RM;
    tp_cfg.local_eid = tp_cfg.peer_eid = own->ctx.eid;
    CHECK(urma_cmd_get_tp_list(&own->ctx, &tp_cfg, &count, list, NULL) == 0 && count == 2);
    urma_tp_attr_value_t attr, back;
    uint8_t number = 0;
    uint32_t bitmap = 0;
    memset(&attr, 0, sizeof(attr));
    attr.sl = 3;
    CHECK(urma_cmd_set_tp_attr(&own->ctx, list[0].tp_handle, 1, 1 << 10, &attr, NULL) == 0);
    CHECK(urma_cmd_get_tp_attr(&own->ctx, list[0].tp_handle, &number, &bitmap, &back, NULL) == 0);
    CHECK(back.sl == 3 && number == 1);
    uint64_t handle = 0;
    CHECK(urma_cmd_exchange_tp_info(&own->ctx, &tp_cfg, 1, 1, &handle, &bitmap) == -EOPNOTSUPP);
    CHECK(urma_cmd_exchange_tp_info(&own->ctx, &tp_cfg, 1, 1, NULL, &bitmap) == -EINVAL);
    urma_tp_cfg_t mod = {0};
    urma_tp_attr_t mod_attr;
    urma_tp_attr_mask_t mask = {0};
    CHECK(urma_cmd_modify_tp(&own->ctx, 1, &mod, &mod_attr, mask) == -EOPNOTSUPP);
    urma_user_ctl_in_t in = {0};
    urma_user_ctl_out_t out = {0};
    CHECK(urma_cmd_user_ctl(&own->ctx, &in, &out, NULL) == -EOPNOTSUPP);
    CHECK(urma_cmd_user_ctl(&own->ctx, NULL, &out, NULL) == -EINVAL);
}

static void addresses(struct own *own)
{
    urma_net_addr_info_t info;
    uint32_t count = 0;
    uint8_t mac[6], peer[6];
    urma_eid_t eid;

    CHECK(urma_cmd_get_net_addr_list(&own->ctx, 1, &info, &count) == 0 && count == 1);
    CHECK(urma_cmd_get_net_addr_list(&own->ctx, 0, &info, &count) == -EINVAL);
    CHECK(urma_cmd_get_eid_by_ip(&own->ctx, &info.netaddr, &eid) == 0);
    CHECK(memcmp(&eid, &own->ctx.eid, sizeof(eid)) == 0);
    CHECK(urma_cmd_get_ip_by_eid(&own->ctx, &eid, &info.netaddr) == 0);
    CHECK(urma_cmd_get_smac(&own->ctx, mac) == 0);
    CHECK(urma_cmd_get_dmac(&own->ctx, &info.netaddr, peer) == 0 && memcmp(mac, peer, 6) == 0);
    CHECK(urma_cmd_get_smac(NULL, mac) == -EINVAL);
}

static void delete_all(struct own *own)
{
    urma_jfs_t *jfs[1] = {&own->jfs}, *bad_jfs = NULL;
    urma_jfr_t *jfr[2] = {&own->jfr, &own->jfr}, *bad_jfr = NULL;

    CHECK(urma_cmd_delete_jfc(&own->jfc) == -EAGAIN); /* queues complete here */
    CHECK(urma_cmd_deactive_jetty(&own->jetty, NULL) == 0);
    CHECK(urma_cmd_free_jetty(&own->jetty, NULL) == 0);
    CHECK(urma_cmd_delete_jetty(&own->jetty) == -EINVAL);
    CHECK(urma_cmd_delete_jfs_batch(jfs, 1, &bad_jfs) == 0);
    CHECK(urma_cmd_delete_jfr_batch(jfr, 2, &bad_jfr) == -EINVAL && bad_jfr == &own->jfr);
    CHECK(urma_cmd_delete_jfc(&own->jfc) == 0);
    CHECK(urma_cmd_delete_context(&own->ctx) == 0);
    CHECK(urma_cmd_delete_context(&own->ctx) == -EINVAL);
    CHECK(close(own->jfce.fd) == 0 && close(own->notifier.fd) == 0);
}

static void administration(urma_device_t *dev)
{
    char path[] = "/dev/uburma/udma0", none[] = "/dev/uburma/nobody";
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
    static struct own own;
    urma_context_cfg_t cfg = {0};

    CHECK(urma_cmd_create_context(&own.ctx, &cfg, NULL) < 0); /* before init */
    CHECK(urma_init(NULL) == URMA_SUCCESS);
    urma_device_t *dev = urma_get_device_by_name((char *)"udma0");
    CHECK(dev != NULL);
    cfg.dev = dev;
    cfg.dev_fd = 42;
    CHECK(urma_cmd_create_context(NULL, &cfg, NULL) == -EINVAL);
    CHECK(urma_cmd_create_context(&own.ctx, NULL, NULL) == -EINVAL);
    CHECK(urma_cmd_create_context(&own.ctx, &cfg, NULL) == 0);
    CHECK(own.ctx.dev == dev && own.ctx.dev_fd == 42 && own.ctx.async_fd >= 0);
    CHECK(own.ctx.ref.atomic_cnt == 1);
    queues(&own);
    memory(&own);
    targets(&own);
    addresses(&own);
    delete_all(&own);
    administration(dev);
    copies(dev);
    CHECK(urma_uninit() == URMA_SUCCESS);
    puts("commands: done");
    return 0;
}
