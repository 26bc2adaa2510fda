/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What programs written for UDMA take for granted about sizes: more receives than they asked for, lists
 * of remote pieces, a receiver that posts late.
 */
#include <unistd.h>
#include "end.h"

enum { RING = 64 };

static struct end here, there;
static urma_target_jetty_t *target;
static urma_target_seg_t *remote;

/* The smallest receive ring has 64 entries, whatever depth was asked for; the next size is a power of two. */
static void receives_fill_the_ring(uint32_t depth, int entries)
{
    urma_jfr_cfg_t cfg = {0}, asked;
    urma_jfr_attr_t attr;
    urma_sge_t piece = end_piece(&there, 0, 8);
    urma_jfr_wr_t wr = {0}, *bad = NULL;
    urma_cr_t cr;

    cfg.depth = depth;
    cfg.trans_mode = URMA_TM_RM;
    cfg.max_sge = 1;
    cfg.jfc = there.jfc;
    urma_jfr_t *jfr = urma_create_jfr(there.ctx, &cfg);
    CHECK(jfr != NULL && jfr->jfr_cfg.depth == depth);
    wr.src.sge = &piece;
    wr.src.num_sge = 1;
    for (int i = 0; i < entries; i++) {
        CHECK(urma_post_jfr_wr(jfr, &wr, &bad) == URMA_SUCCESS);
    }
    CHECK(urma_post_jfr_wr(jfr, &wr, &bad) == URMA_ENOMEM && bad == &wr);
    CHECK(urma_query_jfr(jfr, &asked, &attr) == URMA_SUCCESS && asked.depth == depth);
    CHECK(urma_delete_jfr(jfr) == URMA_SUCCESS);
    while (urma_poll_jfc(there.jfc, 1, &cr) != 0) {
        CHECK(cr.status == URMA_CR_WR_FLUSH_ERR);
    }
}

/* The first remote piece names the address, the local side has the bytes. */
static void remote_pieces_follow_each_other(urma_device_t *dev)
{
    urma_device_attr_t attr;
    urma_jfs_cfg_t cfg = here.jetty->jetty_cfg.jfs_cfg;
    urma_sge_t local[4], other[4];
    urma_jfs_wr_t wr = {0}, *bad = NULL;

    CHECK(urma_query_device(dev, &attr) == URMA_SUCCESS);
    CHECK(attr.dev_cap.max_jfs_rsge == attr.dev_cap.max_jfs_sge && attr.dev_cap.max_jfs_rsge >= 4);
    cfg.max_sge = cfg.max_rsge = 4;
    urma_jfs_t *jfs = urma_create_jfs(here.ctx, &cfg);
    CHECK(jfs != NULL && jfs->jfs_cfg.max_rsge == 4);
    for (size_t i = 0; i < 4; i++) {
        memset(here.memory + i * 16, (int)i + 1, 16);
        local[i] = end_piece(&here, i * 16, 16);
        other[i] = end_far(remote, 256 + i * 16, 16);
    }
    memset(there.memory, 0, 1024);
    wr.opcode = URMA_OPC_WRITE;
    wr.flag.bs.complete_enable = 1;
    wr.tjetty = target;
    wr.rw.src.sge = local;
    wr.rw.dst.sge = other;
    wr.rw.src.num_sge = wr.rw.dst.num_sge = 4;
    CHECK(urma_post_jfs_wr(jfs, &wr, &bad) == URMA_SUCCESS);
    CHECK(end_wait(here.jfc).status == URMA_CR_SUCCESS);
    CHECK(memcmp(there.memory + 256, here.memory, 64) == 0 && there.memory[320] == 0);

    memset(here.memory, 0, 64);
    wr.opcode = URMA_OPC_READ;
    wr.rw.src.sge = other;
    wr.rw.dst.sge = local;
    CHECK(urma_post_jfs_wr(jfs, &wr, &bad) == URMA_SUCCESS);
    CHECK(end_wait(here.jfc).status == URMA_CR_SUCCESS);
    CHECK(memcmp(there.memory + 256, here.memory, 64) == 0 && here.memory[63] == 4);
    CHECK(urma_delete_jfs(jfs) == URMA_SUCCESS);
}

/* Seven retries of 0.64 ms are over long before this receive is posted. */
static void a_late_receive_is_waited_for(void)
{
    urma_sge_t src = end_piece(&here, 0, 32);
    urma_cr_t cr;

    CHECK(end_post(&here, URMA_OPC_SEND, target, &src, NULL) == URMA_SUCCESS);
    for (int i = 0; i < 100; i++) {
        CHECK(urma_poll_jfc(here.jfc, 1, &cr) == 0);
        usleep(2000);
    }
    end_receive(&there, 512, 32, 9);
    CHECK(end_wait(here.jfc).status == URMA_CR_SUCCESS);
    cr = end_wait(there.jfc);
    CHECK(cr.status == URMA_CR_SUCCESS && cr.user_ctx == 9);
}

/* As many pieces as hardware has, by opcode: 13, WRITE_IMM 12, WRITE_NOTIFY 11. */
static void pieces_by_opcode(urma_device_t *dev)
{
    static const struct {
        urma_opcode_t opcode;
        uint32_t most;
    } ops[] = {{URMA_OPC_WRITE, 13}, {URMA_OPC_READ, 13}, {URMA_OPC_SEND, 13},
               {URMA_OPC_WRITE_IMM, 12}, {URMA_OPC_WRITE_NOTIFY, 11}};
    urma_jetty_cfg_t cfg = here.jetty->jetty_cfg;
    urma_device_attr_t attr;
    urma_sge_t near[14], other[2] = {end_far(remote, 1024, 14 * 8), end_far(remote, 2048, 8)};
    urma_jfs_wr_t *bad = NULL;

    CHECK(urma_query_device(dev, &attr) == URMA_SUCCESS);
    CHECK(attr.dev_cap.max_jfs_sge == 13 && attr.dev_cap.max_jfs_rsge == 13);
    cfg.id = 0;
    cfg.jfs_cfg.max_sge = 14;
    errno = 0;
    CHECK(urma_create_jetty(here.ctx, &cfg) == NULL && errno == EINVAL);
    cfg.jfs_cfg.max_sge = cfg.jfs_cfg.max_rsge = 13;
    urma_jetty_t *jetty = urma_create_jetty(here.ctx, &cfg);
    CHECK(jetty != NULL && jetty->jetty_cfg.jfs_cfg.max_sge == 13);
    for (size_t i = 0; i < 14; i++) {
        near[i] = end_piece(&here, i * 64, 8);
    }
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        urma_jfs_wr_t wr = {0};
        bool is_send = ops[i].opcode == URMA_OPC_SEND, is_read = ops[i].opcode == URMA_OPC_READ;
        urma_sg_t local = {.sge = near, .num_sge = ops[i].most + 1}, far = {.sge = other, .num_sge = 1};
        far.num_sge += ops[i].opcode == URMA_OPC_WRITE_NOTIFY;
        wr.opcode = ops[i].opcode;
        wr.tjetty = target;
        wr.flag.bs.complete_enable = 1;
        for (int more = 1; more >= 0; more--) {
            local.num_sge = ops[i].most + (uint32_t)more;
            if (is_send) {
                wr.send.src = local;
            } else {
                wr.rw.src = is_read ? far : local;
                wr.rw.dst = is_read ? local : far;
                wr.rw.notify_data = 5;
            }
            if (more == 0 && (is_send || ops[i].opcode == URMA_OPC_WRITE_IMM)) {
                end_receive(&there, 4096, 14 * 8, 1);
            }
            urma_status_t status = urma_post_jetty_send_wr(jetty, &wr, &bad);
            CHECK(status == (more ? URMA_EINVAL : URMA_SUCCESS) && (!more || bad == &wr));
        }
        CHECK(end_wait(here.jfc).status == URMA_CR_SUCCESS);
        if (is_send || ops[i].opcode == URMA_OPC_WRITE_IMM) {
            CHECK(end_wait(there.jfc).completion_len == ops[i].most * 8);
        }
    }
    CHECK(urma_delete_jetty(jetty) == URMA_SUCCESS);
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
    remote = end_import_seg(&here, &peer);
    receives_fill_the_ring(1, RING);
    receives_fill_the_ring(RING, RING);
    receives_fill_the_ring(RING + 1, 2 * RING);
    remote_pieces_follow_each_other(dev);
    pieces_by_opcode(dev);
    a_late_receive_is_waited_for();
    CHECK(urma_unimport_seg(remote) == 0 && urma_unimport_jetty(target) == 0);
    end_close(&here);
    end_close(&there);
    CHECK(urma_uninit() == URMA_SUCCESS);
    return 0;
}
