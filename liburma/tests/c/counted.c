/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What counts, counted to two and more: asynchronous events of one object, events of one JFC, requests
 * of a refused list, completions of one poll. And rights of an import, and what a flush leaves alone.
 */
#include <fcntl.h>
#include <unistd.h>

#include "end.h"

static struct end here, there;
static urma_target_jetty_t *target;

static urma_jfs_wr_t nop(uint64_t user_ctx)
{
    urma_jfs_wr_t wr = {0};

    wr.opcode = URMA_OPC_NOP;
    wr.flag.bs.complete_enable = 1;
    wr.tjetty = target;
    wr.user_ctx = user_ctx;
    return wr;
}

/* Two events about one JFR: it is kept until both are acknowledged. */
static void asynchronous_events(void)
{
    urma_jfr_attr_t limit = {JFR_RX_THRESHOLD, 2, URMA_JFR_STATE_READY};
    urma_jetty_cfg_t cfg = there.jetty->jetty_cfg;
    urma_sge_t src = end_piece(&here, 0, 8);
    urma_async_event_t event[2];

    end_receive(&there, 4096, 64, 1);
    end_receive(&there, 4096, 64, 1);
    for (int i = 0; i < 2; i++) {
        CHECK(urma_modify_jfr(there.jfr, &limit) == URMA_SUCCESS);
        CHECK(end_post(&here, URMA_OPC_SEND, target, &src, NULL) == URMA_SUCCESS);
        CHECK(end_wait(there.jfc).status == URMA_CR_SUCCESS);
        CHECK(end_wait(here.jfc).status == URMA_CR_SUCCESS);
        CHECK(urma_get_async_event(there.ctx, &event[i]) == URMA_SUCCESS);
        CHECK(event[i].event_type == URMA_EVENT_JFR_LIMIT && event[i].element.jfr == there.jfr);
        end_receive(&there, 4096, 64, 1);
    }
    CHECK(urma_delete_jetty(there.jetty) == URMA_SUCCESS);
    CHECK(urma_delete_jfr(there.jfr) == URMA_EAGAIN);
    urma_ack_async_event(&event[0]);
    CHECK(there.jfr->async_events_acked == 1);
    CHECK(urma_delete_jfr(there.jfr) == URMA_EAGAIN); /* the other one is open */
    urma_ack_async_event(&event[1]);
    CHECK(there.jfr->async_events_acked == 2);
    errno = 0;
    urma_ack_async_event(&event[1]); /* once too often */
    CHECK(errno == EINVAL);
    CHECK((there.jetty = urma_create_jetty(there.ctx, &cfg)) != NULL);
}

/* Two events of one JFC, acknowledged by one call. */
static void completion_events(void)
{
    urma_jfc_cfg_t jfc_cfg = {0};
    urma_jfs_cfg_t cfg = here.jetty->jetty_cfg.jfs_cfg;
    urma_jfs_wr_t wr = nop(1), *bad = NULL;
    urma_jfc_t *got = NULL;
    uint32_t two = 2;

    jfc_cfg.depth = 8;
    jfc_cfg.jfce = here.jfce;
    CHECK((cfg.jfc = urma_create_jfc(here.ctx, &jfc_cfg)) != NULL);
    urma_jfs_t *jfs = urma_create_jfs(here.ctx, &cfg);
    CHECK(jfs != NULL);
    for (int i = 0; i < 2; i++) {
        CHECK(urma_rearm_jfc(cfg.jfc, false) == URMA_SUCCESS);
        CHECK(urma_post_jfs_wr(jfs, &wr, &bad) == URMA_SUCCESS);
        CHECK(urma_wait_jfc(here.jfce, 1, 60000, &got) == 1 && got == cfg.jfc);
        CHECK(end_wait(cfg.jfc).status == URMA_CR_SUCCESS);
    }
    CHECK(urma_delete_jfs(jfs) == URMA_SUCCESS);
    CHECK(urma_delete_jfc(cfg.jfc) == URMA_EAGAIN);
    urma_ack_jfc(&got, &two, 1);
    CHECK(cfg.jfc->comp_events_acked == 2);
    CHECK(urma_delete_jfc(cfg.jfc) == URMA_SUCCESS);
}

/* A list of receives stops at the one that is wrong, or at the first for which there is no room. */
static void refused_receives(void)
{
    enum { COUNT = 70, ROOM = 64 };
    static urma_jfr_wr_t wr[COUNT];
    urma_sge_t good = end_piece(&there, 4096, 64), wrong = good;
    urma_jfr_cfg_t cfg = there.jfr->jfr_cfg;
    urma_jfr_wr_t *bad = NULL;

    urma_jfr_t *jfr = urma_create_jfr(there.ctx, &cfg);
    CHECK(jfr != NULL);
    wrong.tseg = NULL;
    for (int i = 0; i < COUNT; i++) {
        wr[i].src.sge = i == 2 ? &wrong : &good;
        wr[i].src.num_sge = 1;
        wr[i].next = i + 1 < COUNT ? &wr[i + 1] : NULL;
    }
    CHECK(urma_post_jfr_wr(jfr, wr, &bad) == URMA_EINVAL && bad == &wr[2]);
    wr[2].src.sge = &good; /* two are posted */
    CHECK(urma_post_jfr_wr(jfr, wr, &bad) == URMA_ENOMEM && bad == &wr[ROOM - 2]);
    CHECK(urma_delete_jfr(jfr) == URMA_SUCCESS);
    urma_cr_t cr[COUNT];
    while (urma_poll_jfc(there.jfc, COUNT, cr) > 0) { /* they were flushed */
    }
}

/* One poll takes all that is there. */
static void one_poll(void)
{
    enum { COUNT = 40, ROUNDS = 1000 };
    urma_jfc_cfg_t jfc_cfg = {0};
    urma_jfs_cfg_t cfg = here.jetty->jetty_cfg.jfs_cfg;
    urma_jfs_wr_t *bad = NULL;
    urma_cr_t cr[64];
    int most = 0;

    jfc_cfg.depth = 64;
    cfg.depth = 64;
    CHECK((cfg.jfc = urma_create_jfc(here.ctx, &jfc_cfg)) != NULL);
    urma_jfs_t *jfs = urma_create_jfs(here.ctx, &cfg);
    CHECK(jfs != NULL);
    /* What a thread that did not run for a while left undone is polled apart. */
    for (int round = 0; round < ROUNDS && most < COUNT; round++) {
        for (uint64_t i = 0; i < COUNT; i++) {
            urma_jfs_wr_t wr = nop(i);
            CHECK(urma_post_jfs_wr(jfs, &wr, &bad) == URMA_SUCCESS);
        }
        for (int done = 0, count; done < COUNT; done += count) {
            CHECK((count = urma_poll_jfc(cfg.jfc, 64, cr)) >= 0);
            for (int i = 0; i < count; i++) {
                CHECK(cr[i].user_ctx == (uint64_t)(done + i));
            }
            most = count > most ? count : most;
        }
    }
    CHECK(most == COUNT);
    CHECK(urma_delete_jfs(jfs) == URMA_SUCCESS);
    CHECK(urma_delete_jfc(cfg.jfc) == URMA_SUCCESS);
}

/* A flush of a running JFS takes nothing and stops nothing. */
static void running(void)
{
    urma_jfs_cfg_t cfg = here.jetty->jetty_cfg.jfs_cfg, shown;
    urma_jfs_attr_t attr = {0};
    urma_jfs_wr_t wr = nop(9), *bad = NULL;
    urma_cr_t cr[4];

    urma_jfs_t *jfs = urma_create_jfs(here.ctx, &cfg);
    CHECK(jfs != NULL);
    for (int i = 0; i < 2; i++) {
        CHECK(urma_flush_jfs(jfs, 4, cr) == 0);
        CHECK(urma_query_jfs(jfs, &shown, &attr) == URMA_SUCCESS);
        CHECK(attr.state == URMA_JETTY_STATE_READY);
        CHECK(urma_post_jfs_wr(jfs, &wr, &bad) == URMA_SUCCESS);
        cr[0] = end_wait(here.jfc);
        CHECK(cr[0].status == URMA_CR_SUCCESS && cr[0].user_ctx == 9);
    }
    CHECK(urma_delete_jfs(jfs) == URMA_SUCCESS);
}

/* What was imported for reading is read, and nothing else. */
static void rights(void)
{
    struct info peer = end_info(&there);
    urma_token_t token = {TOKEN};
    urma_import_seg_flag_t flag = {0};
    urma_sge_t src = end_piece(&here, 0, 8), dst = end_piece(&there, 0, 8);

    flag.bs.access = URMA_ACCESS_READ;
    CHECK((dst.tseg = urma_import_seg(here.ctx, &peer.seg, &token, 0, flag)) != NULL);
    CHECK(end_post(&here, URMA_OPC_READ, target, &dst, &src) == URMA_SUCCESS);
    CHECK(end_wait(here.jfc).status == URMA_CR_SUCCESS);
    CHECK(end_post(&here, URMA_OPC_WRITE, target, &src, &dst) == URMA_EINVAL);
    CHECK(urma_unimport_seg(dst.tseg) == URMA_SUCCESS);
    flag.bs.access |= URMA_ACCESS_WRITE;
    CHECK((dst.tseg = urma_import_seg(here.ctx, &peer.seg, &token, 0, flag)) != NULL);
    CHECK(end_post(&here, URMA_OPC_WRITE, target, &src, &dst) == URMA_SUCCESS);
    CHECK(end_wait(here.jfc).status == URMA_CR_SUCCESS);
    CHECK(urma_unimport_seg(dst.tseg) == URMA_SUCCESS);
}

int main(void)
{
    CHECK(urma_init(NULL) == URMA_SUCCESS);
    urma_log_set_level(URMA_VLOG_LEVEL_ERR);
    urma_device_t *dev = urma_get_device_by_name((char *)"udma0");
    end_open(&here, dev, URMA_TM_RM);
    end_open(&there, dev, URMA_TM_RM);
    struct info peer = end_info(&there);
    target = end_import_jetty(&here, &peer);
    completion_events();
    refused_receives();
    one_poll();
    running();
    rights();
    asynchronous_events();
    CHECK(urma_unimport_jetty(target) == URMA_SUCCESS);
    end_close(&here);
    end_close(&there);
    CHECK(urma_uninit() == URMA_SUCCESS);
    return 0;
}
