/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Structs of a program may lie at any address: in packed messages, say. Everything that is passed here
 * lies 1 or 4 bytes behind an aligned address. The library's own objects are still known by theirs.
 */
#include "end.h"

static struct end here, there;
static _Alignas(16) uint8_t arena[1 << 18];
static size_t used, turn;

/* Room at an odd address, with the bytes of `from`. */
static void *odd(const void *from, size_t len)
{
    uint8_t *to = arena + used + (turn++ % 2 == 0 ? 1 : 4);

    used += (len + 16 + 15) / 16 * 16;
    CHECK(used <= sizeof arena);
    if (from != NULL) {
        memcpy(to, from, len);
    }
    return to;
}

#define ODD(value) odd(&(value), sizeof(value))

static urma_cr_t next(urma_jfc_t *jfc)
{
    urma_cr_t *cr = odd(NULL, 2 * sizeof(*cr)), copy;
    time_t end = time(NULL) + 60;

    while (urma_poll_jfc(jfc, 2, cr) == 0) {
        CHECK(time(NULL) < end);
    }
    memcpy(&copy, cr, sizeof(copy));
    return copy;
}

static urma_sge_t *pieces(const struct end *end, urma_target_seg_t *seg, size_t offset, uint32_t len)
{
    urma_sge_t both[2] = {end_piece(end, offset, len), end_piece(end, offset + len, len)};

    both[0].tseg = both[1].tseg = seg == NULL ? end->seg : seg;
    return odd(both, sizeof(both));
}

static void requests(urma_target_jetty_t *target, urma_target_seg_t *remote)
{
    urma_jfs_wr_t second = {0}, first = {0}, *bad = NULL, **bad_at = ODD(bad);
    urma_jfr_wr_t receive = {0}, *bad_receive = NULL;

    for (uint32_t several = 1; several <= 2; several++) {
        memset(here.memory, 0x40 + (int)several, 64);
        second.opcode = URMA_OPC_WRITE;
        second.flag.bs.complete_enable = 1;
        second.tjetty = target;
        second.rw.src.sge = pieces(&here, NULL, 0, 8);
        second.rw.dst.sge = pieces(&there, remote, 64, 8);
        second.rw.src.num_sge = second.rw.dst.num_sge = several;
        first = second;
        first.flag.bs.complete_enable = 0;
        first.rw.dst.sge = pieces(&there, remote, 128, 8);
        first.next = ODD(second);
        CHECK(urma_post_jetty_send_wr(here.jetty, ODD(first), bad_at) == URMA_SUCCESS);
        CHECK(next(here.jfc).status == URMA_CR_SUCCESS);
        CHECK(memcmp(there.memory + 64, here.memory, 8 * several) == 0);
        CHECK(memcmp(there.memory + 128, here.memory, 8 * several) == 0);
        CHECK(urma_post_jetty_send_wr(here.jetty, ODD(second), bad_at) == URMA_SUCCESS);
        CHECK(next(here.jfc).status == URMA_CR_SUCCESS);

        receive.src.sge = pieces(&there, NULL, 256, 8);
        receive.src.num_sge = several;
        receive.user_ctx = 80 + several;
        CHECK(urma_post_jetty_recv_wr(there.jetty, ODD(receive), ODD(bad_receive)) == URMA_SUCCESS);
        second.opcode = URMA_OPC_SEND;
        second.send.src.sge = pieces(&here, NULL, 0, 8);
        second.send.src.num_sge = several;
        CHECK(urma_post_jetty_send_wr(here.jetty, ODD(second), bad_at) == URMA_SUCCESS);
        CHECK(next(here.jfc).status == URMA_CR_SUCCESS);
        CHECK(next(there.jfc).user_ctx == 80 + several);
        memset(&second, 0, sizeof(second));
    }
    second.opcode = URMA_OPC_FADD;
    second.flag.bs.complete_enable = 1;
    second.tjetty = target;
    second.faa.src = pieces(&here, NULL, 512, 8);
    second.faa.dst = pieces(&there, remote, 512, 8);
    second.faa.operand = 5;
    CHECK(urma_post_jetty_send_wr(here.jetty, ODD(second), bad_at) == URMA_SUCCESS);
    CHECK(next(here.jfc).status == URMA_CR_SUCCESS);
    CHECK(*(uint64_t *)(there.memory + 512) == 5);
    second.opcode = 0xee;
    urma_jfs_wr_t *wrong = ODD(second);
    CHECK(urma_post_jetty_send_wr(here.jetty, wrong, bad_at) == URMA_EINVAL);
    memcpy(&bad, bad_at, sizeof(bad));
    CHECK(bad == wrong);
}

static void queues(void)
{
    urma_jfc_cfg_t jfc_cfg = {.depth = 8, .jfce = here.jfce};
    urma_jfs_cfg_t jfs_cfg = {.depth = 8, .trans_mode = URMA_TM_RM, .max_sge = 1};
    urma_jfs_attr_t error = {JFS_STATE, URMA_JETTY_STATE_ERROR};
    urma_device_attr_t device = {0};
    urma_jfs_t *list[2];
    urma_jfc_t *jfc, *ready[1];
    uint32_t one = 1;

    CHECK((jfc = urma_create_jfc(here.ctx, ODD(jfc_cfg))) != NULL);
    jfs_cfg.jfc = jfc;
    for (int i = 0; i < 2; i++) {
        urma_jfs_cfg_t *cfg = ODD(jfs_cfg), *shown = ODD(jfs_cfg), copy;
        urma_jfs_attr_t *attr = ODD(error);
        CHECK((list[i] = urma_create_jfs(here.ctx, cfg)) != NULL);
        memcpy(&copy, cfg, sizeof(copy));
        CHECK(copy.flag.bs.order_type == URMA_OI); /* filled in where it lies */
        CHECK(urma_query_jfs(list[i], shown, attr) == URMA_SUCCESS);
        CHECK(memcmp(shown, cfg, sizeof(copy)) == 0);
    }
    CHECK(urma_rearm_jfc(jfc, false) == URMA_SUCCESS);
    CHECK(urma_modify_jfs(list[1], ODD(error)) == URMA_SUCCESS);
    urma_jfc_t **events = ODD(ready);
    CHECK(urma_wait_jfc(here.jfce, 1, 60000, events) == 1);
    memcpy(ready, events, sizeof(ready));
    CHECK(ready[0] == jfc);
    urma_ack_jfc(events, ODD(one), 1);
    CHECK(jfc->comp_events_acked == 1);
    CHECK(urma_delete_jfs_batch(ODD(list), 2, ODD(list[0])) == URMA_SUCCESS);
    CHECK(urma_delete_jfc(jfc) == URMA_SUCCESS);
    CHECK(urma_query_device(here.ctx->dev, ODD(device)) == URMA_SUCCESS);
}

/* What the library made is known by its address alone. */
static void handles(void)
{
    urma_cr_t cr;

    CHECK(urma_poll_jfc((urma_jfc_t *)((uint8_t *)here.jfc + 4), 1, &cr) == -1 && errno == EINVAL);
    CHECK(urma_delete_jetty((urma_jetty_t *)((uint8_t *)here.jetty + 1)) == URMA_EINVAL);
    CHECK(urma_delete_jetty((urma_jetty_t *)((uint8_t *)here.jetty + 8)) == URMA_EINVAL);
}

int main(void)
{
    urma_token_t token = {TOKEN};
    urma_import_seg_flag_t flag = {0};
    urma_seg_cfg_t seg_cfg = {0};
    urma_target_jetty_t *target;
    urma_target_seg_t *remote, *again;

    CHECK(urma_init(NULL) == URMA_SUCCESS);
    urma_log_set_level(URMA_VLOG_LEVEL_ERR);
    urma_device_t *dev = urma_get_device_by_name((char *)"udma0");
    end_open(&here, dev, URMA_TM_RM);
    end_open(&there, dev, URMA_TM_RM);
    struct info peer = end_info(&there);
    flag.bs.access = URMA_ACCESS_READ | URMA_ACCESS_WRITE | URMA_ACCESS_ATOMIC;
    CHECK((target = urma_import_jetty(here.ctx, ODD(peer.jetty), ODD(token))) != NULL);
    CHECK((remote = urma_import_seg(here.ctx, ODD(peer.seg), ODD(token), 0, flag)) != NULL);
    seg_cfg.va = (uint64_t)(uintptr_t)here.memory;
    seg_cfg.len = 4096;
    seg_cfg.flag.bs.access = URMA_ACCESS_READ | URMA_ACCESS_WRITE;
    CHECK((again = urma_register_seg(here.ctx, ODD(seg_cfg))) != NULL);
    CHECK(urma_unregister_seg(again) == URMA_SUCCESS);
    requests(target, remote);
    queues();
    handles();
    CHECK(urma_unimport_seg(remote) == URMA_SUCCESS);
    CHECK(urma_unimport_jetty(target) == URMA_SUCCESS);
    end_close(&here);
    end_close(&there);
    CHECK(urma_uninit() == URMA_SUCCESS);
    return 0;
}
