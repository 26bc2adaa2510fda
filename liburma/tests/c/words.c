/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Each refusal gives one line of the log, at the level that is set by default: function, object or field, value and
 * rule. Calls that succeed give none, nor do answers of a normal run. Many refusals of one kind give few lines.
 */
#include <fcntl.h>

#include "end.h"

static struct end here, there;
static int lines;
static char newest[1024];

static void keep(int level, char *message)
{
    if (level <= 4) { /* warnings and worse, which standard error gets too */
        lines++;
        snprintf(newest, sizeof newest, "%s", message);
    }
}

static void said(const char *call, const char *const words[])
{
    if (lines != 1) {
        fprintf(stderr, "%s: %d lines, the newest one: %s\n", call, lines, newest);
        exit(1);
    }
    for (int i = 0; words[i] != NULL; i++) {
        if (strstr(newest, words[i]) == NULL) {
            fprintf(stderr, "%s: no \"%s\" in: %s\n", call, words[i], newest);
            exit(1);
        }
    }
}

#define SAID(refused, ...)                                                                         \
    do {                                                                                           \
        const char *const words[] = {__VA_ARGS__, NULL};                                           \
        lines = 0;                                                                                 \
        newest[0] = 0;                                                                               \
        CHECK(refused);                                                                            \
        said(#refused, words);                                                                     \
    } while (0)

#define SILENT(holds)                                                                              \
    do {                                                                                           \
        lines = 0;                                                                                 \
        CHECK(holds);                                                                              \
        if (lines != 0) {                                                                          \
            fprintf(stderr, "%s: %d lines: %s\n", #holds, lines, newest);                            \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static void objects(void)
{
    urma_jetty_cfg_t cfg = here.jetty->jetty_cfg;
    urma_jfc_cfg_t jfc = {0};
    urma_seg_cfg_t seg = {0};
    urma_jfs_attr_t attr = {0};

    cfg.id = 0;
    cfg.jfs_cfg.max_sge = 14;
    SAID(urma_create_jetty(here.ctx, &cfg) == NULL, "urma_create_jetty refused (EINVAL): ",
         "jfs_cfg.max_sge is 14", "0 to 13");
    cfg.jfs_cfg.max_sge = 2;
    cfg.jfs_cfg.priority = 16; /* found below the C face */
    SAID(urma_create_jetty(here.ctx, &cfg) == NULL, "urma_create_jetty refused", "priority is 16", "0 to 15");
    SAID(urma_create_jfc(here.ctx, &jfc) == NULL, "urma_create_jfc", "jfc_cfg.depth is 0");
    SAID(urma_create_jfc(here.ctx, NULL) == NULL, "urma_create_jfc", "is NULL", "urma_jfc_cfg");
    SAID(urma_create_jfc(NULL, &jfc) == NULL, "urma_create_jfc", "the context is NULL");
    SAID(urma_delete_jfr((urma_jfr_t *)(void *)here.jfc) == URMA_EINVAL, "urma_delete_jfr", "no live jfr");
    SAID(urma_delete_jfc(here.jfc) == URMA_EAGAIN, "urma_delete_jfc refused (EAGAIN)", "complete here");
    SAID(urma_modify_jfs((urma_jfs_t *)(void *)here.jetty, &attr) == URMA_EINVAL, "urma_modify_jfs", "no live jfs");

    seg.va = (uint64_t)(uintptr_t)here.memory;
    seg.len = 4096;
    seg.flag.bs.access = URMA_ACCESS_WRITE;
    SAID(urma_register_seg(here.ctx, &seg) == NULL, "urma_register_seg refused (EINVAL)",
         "seg_cfg.flag.access is 0x4 (WRITE)", "WRITE needs READ");
    seg.va = 0;
    SAID(urma_register_seg(here.ctx, &seg) == NULL, "urma_register_seg", "seg_cfg.va is 0");
    SAID(urma_get_tpn(here.jetty) == -URMA_EINVAL, "urma_get_tpn", "not bound");
    SAID(urma_unbind_jetty(here.jetty) == URMA_EINVAL, "urma_unbind_jetty", "remote_jetty is NULL");
    SAID(urma_get_device_by_name((char *)"udma7") == NULL, "urma_get_device_by_name refused (ENODEV)",
         "udma7", "udma0", "URMA_DEVICE_ALIAS");
    SAID(urma_poll_jfc(here.jfc, -1, NULL) == -1, "urma_poll_jfc");
}

static void posts(void)
{
    struct info peer = end_info(&there);
    urma_target_jetty_t *target = end_import_jetty(&here, &peer);
    urma_target_seg_t *remote = end_import_seg(&here, &peer);
    urma_sge_t near[3] = {end_piece(&here, 0, 8), end_piece(&here, 8, 8), end_piece(&here, 16, 8)};
    urma_sge_t far = end_far(remote, 0, 24);
    urma_jfs_wr_t wr = {0}, *bad = NULL;
    char loose[8] = "loose";

    wr.opcode = URMA_OPC_WRITE;
    wr.tjetty = target;
    wr.user_ctx = 0xabc;
    wr.rw.src.sge = near;
    wr.rw.src.num_sge = 3;
    wr.rw.dst.sge = &far;
    wr.rw.dst.num_sge = 1;
    wr.flag.bs.complete_enable = 1;
    SAID(urma_post_jetty_send_wr(here.jetty, &wr, &bad) == URMA_EINVAL, "urma_post_jetty_send_wr refused (EINVAL)",
         "user_ctx 0xabc", "3 SGEs of 24 bytes", "more SGEs than the queue was created for");
    wr.rw.src.num_sge = 1;
    far.addr += 8192;
    SAID(urma_post_jetty_send_wr(here.jetty, &wr, &bad) == URMA_EINVAL, "urma_post_jetty_send_wr",
         "not inside its segment");
    far.addr -= 8192;
    near[0].tseg = remote;
    SAID(urma_post_jetty_send_wr(here.jetty, &wr, &bad) == URMA_EINVAL, "urma_post_jetty_send_wr", "tseg",
         "registered in the context");
    near[0].tseg = here.seg;
    wr.tjetty = NULL;
    SAID(urma_post_jetty_send_wr(here.jetty, &wr, &bad) == URMA_EINVAL, "urma_post_jetty_send_wr", "tjetty is");
    wr.tjetty = target;
    wr.opcode = (urma_opcode_t)0x77;
    SAID(urma_post_jetty_send_wr(here.jetty, &wr, &bad) == URMA_EINVAL, "urma_post_jetty_send_wr", "opcode is 0x77");
    wr.opcode = URMA_OPC_WRITE;
    SAID(urma_post_jetty_send_wr(here.jetty, NULL, &bad) == URMA_EINVAL, "urma_post_jetty_send_wr", "is NULL");
    SILENT(urma_post_jetty_send_wr(here.jetty, &wr, &bad) == URMA_SUCCESS);
    SILENT(end_wait(here.jfc).status == URMA_CR_SUCCESS);

    /* Refused at first, and then posted in another form: no line. */
    near[0].addr = (uint64_t)(uintptr_t)loose;
    near[0].tseg = NULL;
    wr.flag.bs.inline_flag = 1;
    SILENT(urma_post_jetty_send_wr(here.jetty, &wr, &bad) == URMA_SUCCESS);
    SILENT(end_wait(here.jfc).status == URMA_CR_SUCCESS);
    near[0].addr = 0;
    SAID(urma_post_jetty_send_wr(here.jetty, &wr, &bad) == URMA_EINVAL, "urma_post_jetty_send_wr", "inline piece is 0");

    urma_jfr_wr_t receive = {0}, *bad_receive = NULL;
    urma_sge_t to = end_piece(&here, 0, 8);
    to.tseg = NULL;
    receive.src.sge = &to;
    receive.src.num_sge = 1;
    SAID(urma_post_jfr_wr(here.jfr, &receive, &bad_receive) == URMA_EINVAL, "urma_post_jfr_wr", "tseg");
    /* A full queue is part of a normal run: a line the first time. */
    to.tseg = here.seg;
    lines = 0;
    urma_status_t status = URMA_SUCCESS;
    while (status == URMA_SUCCESS) {
        status = urma_post_jfr_wr(here.jfr, &receive, &bad_receive);
    }
    CHECK(status == URMA_ENOMEM && lines == 1 && strstr(newest, "the queue is full") != NULL);
    for (int i = 0; i < 20; i++) {
        SILENT(urma_post_jfr_wr(here.jfr, &receive, &bad_receive) == URMA_ENOMEM);
    }
    CHECK(urma_unimport_seg(remote) == URMA_SUCCESS && urma_unimport_jetty(target) == URMA_SUCCESS);
}

/* Of many refusals few give lines, and every answer is as it was. */
static void bounded(void)
{
    urma_jfc_cfg_t jfc = {0};

    lines = 0;
    for (int i = 0; i < 1000; i++) {
        errno = 0;
        CHECK(urma_create_jfc(here.ctx, &jfc) == NULL && errno == EINVAL);
    }
    CHECK(lines <= 30); /* ten in ten seconds; a window may end meanwhile */
}

/* Answers that programs wait for. */
static void expected(void)
{
    urma_async_event_t event;
    urma_jfc_t *jfc = NULL;

    CHECK(fcntl(here.ctx->async_fd, F_SETFL, fcntl(here.ctx->async_fd, F_GETFL) | O_NONBLOCK) == 0);
    SILENT(urma_get_async_event(here.ctx, &event) == URMA_EAGAIN);
    SILENT(urma_wait_jfc(here.jfce, 1, 0, &jfc) == 0);
    SILENT(urma_poll_jfc(here.jfc, 1, &(urma_cr_t){0}) == 0);
}

int main(void)
{
    CHECK(urma_init(NULL) == URMA_SUCCESS);
    urma_device_t *dev = urma_get_device_by_name((char *)"udma0");
    end_open(&here, dev, URMA_TM_RM);
    end_open(&there, dev, URMA_TM_RM);
    CHECK(urma_register_log_func(keep) == URMA_SUCCESS);
    objects();
    expected();
    posts();
    bounded();
    CHECK(urma_unregister_log_func() == URMA_SUCCESS);
    end_close(&here);
    end_close(&there);
    CHECK(urma_uninit() == URMA_SUCCESS);
    return 0;
}
