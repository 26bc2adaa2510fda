/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The data plane: every operation, lists of requests and where they stop, requests that name what is
 * not there, the calls that post one request, RC and UM.
 */
#include "end.h"

static struct end here, there;
static urma_target_jetty_t *target;
static urma_target_seg_t *remote;

static urma_status_t post(urma_jfs_wr_t *wr)
{
    urma_jfs_wr_t *bad = NULL;
    wr->flag.bs.complete_enable = 1;
    wr->tjetty = target;
    urma_status_t status = urma_post_jetty_send_wr(here.jetty, wr, &bad);
    CHECK(status == URMA_SUCCESS ? bad == NULL : bad != NULL);
    return status;
}

/* Remote pieces that adjoin are one; others are refused, not moved to where they were not meant. */
static void remote_pieces(urma_jfs_wr_t wr)
{
    urma_sge_t near[2] = {end_piece(&here, 3000, 60), end_piece(&here, 3060, 4)};
    urma_sge_t pieces[4] = {end_far(remote, 3000, 32), end_far(remote, 3032, 16), end_far(remote, 3048, 16),
                            end_far(remote, 3072, 8)};
    uint64_t word = 0;

    memset(here.memory + 3000, 7, 64);
    memset(there.memory + 3000, 0, 80);
    wr.opcode = URMA_OPC_WRITE;
    wr.rw.src.sge = near;
    wr.rw.dst.sge = pieces;
    wr.rw.dst.num_sge = 3;
    CHECK(post(&wr) == URMA_SUCCESS && end_wait(here.jfc).status == URMA_CR_SUCCESS);
    CHECK(there.memory[3000] == 7 && there.memory[3063] == 7 && there.memory[3064] == 0);
    wr.rw.dst.num_sge = 4;
    CHECK(post(&wr) == URMA_EINVAL);
    wr.opcode = URMA_OPC_WRITE_NOTIFY; /* the place to notify need not adjoin */
    wr.rw.notify_data = 0x1f2e3d4c;
    CHECK(post(&wr) == URMA_SUCCESS && end_wait(here.jfc).status == URMA_CR_SUCCESS);
    memcpy(&word, there.memory + 3072, 8);
    CHECK(word == 0x1f2e3d4c);
    wr.rw.dst.num_sge = 0;
    CHECK(post(&wr) == URMA_EINVAL);
    pieces[2].tseg = near[0].tseg; /* another segment */
    wr.opcode = URMA_OPC_WRITE;
    wr.rw.dst.num_sge = 3;
    CHECK(post(&wr) == URMA_EINVAL);

    wr.opcode = URMA_OPC_READ;
    memset(here.memory + 3000, 0, 64);
    wr.rw.src.sge = pieces;
    wr.rw.dst.sge = near;
    wr.rw.dst.num_sge = 2;
    CHECK(post(&wr) == URMA_SUCCESS && end_wait(here.jfc).status == URMA_CR_SUCCESS);
    CHECK(here.memory[3000] == 7 && here.memory[3063] == 7);
    pieces[1].addr++;
    CHECK(post(&wr) == URMA_EINVAL);

    /* One local piece and several remote ones: the same rule. */
    wr.rw.src.num_sge = 2;
    wr.rw.dst.num_sge = 1;
    CHECK(post(&wr) == URMA_EINVAL);
    wr.opcode = URMA_OPC_WRITE;
    wr.rw.src = (urma_sg_t){.sge = near, .num_sge = 1};
    wr.rw.dst = (urma_sg_t){.sge = pieces, .num_sge = 2};
    CHECK(post(&wr) == URMA_EINVAL);
    pieces[1].addr--;
    CHECK(post(&wr) == URMA_SUCCESS && end_wait(here.jfc).status == URMA_CR_SUCCESS);
}

static void writes(void)
{
    urma_sge_t src[2] = {end_piece(&here, 0, 100), end_piece(&here, 1000, 28)};
    urma_sge_t dst[2] = {end_far(remote, 0, 128), end_far(remote, 512, 8)};
    urma_jfs_wr_t wr = {0};
    urma_cr_t cr;
    uint64_t word = 0;

    memset(here.memory, 1, 2048);
    memset(here.memory + 1000, 2, 28);
    wr.opcode = URMA_OPC_WRITE;
    wr.rw.src.sge = src;
    wr.rw.src.num_sge = 2;
    wr.rw.dst.sge = dst;
    wr.rw.dst.num_sge = 1;
    CHECK(post(&wr) == URMA_SUCCESS && end_wait(here.jfc).status == URMA_CR_SUCCESS);
    CHECK(there.memory[99] == 1 && there.memory[100] == 2 && there.memory[127] == 2);

    wr.opcode = URMA_OPC_WRITE_NOTIFY;
    wr.rw.dst.num_sge = 2;
    wr.rw.notify_data = 0x1122334455667788;
    CHECK(post(&wr) == URMA_SUCCESS && end_wait(here.jfc).status == URMA_CR_SUCCESS);
    memcpy(&word, there.memory + 512, 8);
    CHECK(word == 0x1122334455667788);
    wr.opcode = URMA_OPC_WRITE_ATOMIC;
    wr.rw.notify_data = 1;
    CHECK(post(&wr) == URMA_SUCCESS && end_wait(here.jfc).status == URMA_CR_SUCCESS);
    memcpy(&word, there.memory + 512, 8);
    CHECK(word == 0x1122334455667789);
    wr.rw.dst.num_sge = 1;
    CHECK(post(&wr) == URMA_EINVAL); /* no place to add to */
    remote_pieces(wr);

    end_receive(&there, 4096, 64, 50);
    wr.opcode = URMA_OPC_WRITE_IMM;
    wr.rw.notify_data = 0xfeedfacecafebeef;
    CHECK(post(&wr) == URMA_SUCCESS && end_wait(here.jfc).status == URMA_CR_SUCCESS);
    cr = end_wait(there.jfc);
    CHECK(cr.opcode == URMA_CR_OPC_WRITE_WITH_IMM && cr.imm_data == 0xfeedfacecafebeef);
    CHECK(cr.user_ctx == 50 && cr.flag.bs.s_r == 1 && cr.flag.bs.jetty == 1);
    CHECK(cr.local_id == there.jetty->jetty_id.id);
    /* Who sent, whole: EID, address space and id. */
    CHECK(memcmp(&cr.remote_id, &here.jetty->jetty_id, sizeof(cr.remote_id)) == 0);

    /* A piece without bytes is left out; a list of nothing else is a request all the same. */
    wr.opcode = URMA_OPC_WRITE;
    src[1].len = 0;
    CHECK(post(&wr) == URMA_SUCCESS && end_wait(here.jfc).status == URMA_CR_SUCCESS);
    src[0].len = 0;
    memset(there.memory + 1024, 0x77, 64);
    CHECK(post(&wr) == URMA_SUCCESS && end_wait(here.jfc).status == URMA_CR_SUCCESS);
    wr.rw.src.num_sge = 0;
    CHECK(post(&wr) == URMA_SUCCESS && end_wait(here.jfc).status == URMA_CR_SUCCESS);
    CHECK(there.memory[1024] == 0x77 && there.memory[1087] == 0x77);
}

static void reads_and_atomics(void)
{
    urma_sge_t near = end_piece(&here, 2048, 64), dst = end_far(remote, 1024, 64);
    urma_jfs_wr_t wr = {0};
    uint64_t word = 40, old = 0;

    memset(there.memory + 1024, 7, 64);
    wr.opcode = URMA_OPC_READ;
    wr.rw.src.sge = &dst;
    wr.rw.src.num_sge = 1;
    wr.rw.dst.sge = &near;
    wr.rw.dst.num_sge = 1;
    CHECK(post(&wr) == URMA_SUCCESS && end_wait(here.jfc).status == URMA_CR_SUCCESS);
    CHECK(here.memory[2048] == 7 && here.memory[2048 + 63] == 7);

    memcpy(there.memory + 1024, &word, 8);
    near.len = dst.len = 8;
    memset(&wr, 0, sizeof(wr));
    wr.opcode = URMA_OPC_FADD;
    wr.faa.dst = &dst;
    wr.faa.src = &near;
    wr.faa.operand = 2;
    CHECK(post(&wr) == URMA_SUCCESS && end_wait(here.jfc).status == URMA_CR_SUCCESS);
    memcpy(&old, here.memory + 2048, 8);
    memcpy(&word, there.memory + 1024, 8);
    CHECK(old == 40 && word == 42);
    wr.opcode = URMA_OPC_CAS;
    wr.cas.dst = &dst;
    wr.cas.src = &near;
    wr.cas.cmp_data = 42;
    wr.cas.swap_data = 99;
    CHECK(post(&wr) == URMA_SUCCESS && end_wait(here.jfc).status == URMA_CR_SUCCESS);
    memcpy(&word, there.memory + 1024, 8);
    CHECK(word == 99);
    wr.opcode = URMA_OPC_SWAP;
    wr.cas.swap_data = 5;
    CHECK(post(&wr) == URMA_SUCCESS && end_wait(here.jfc).status == URMA_CR_SUCCESS);
    memcpy(&old, here.memory + 2048, 8);
    CHECK(old == 99);
    near.len = 3;
    CHECK(post(&wr) == URMA_EINVAL);
    wr.cas.src = NULL;
    CHECK(post(&wr) == URMA_EINVAL);

    memset(&wr, 0, sizeof(wr));
    wr.opcode = URMA_OPC_NOP;
    CHECK(post(&wr) == URMA_SUCCESS && end_wait(here.jfc).status == URMA_CR_SUCCESS);
#if URMA_ABI_PROFILE == URMA_ABI_26_06
    wr.opcode = URMA_OPC_FLUSH_DMA;
    CHECK(post(&wr) == URMA_SUCCESS && end_wait(here.jfc).status == URMA_CR_SUCCESS);
#endif
    wr.opcode = (urma_opcode_t)0x7f;
    CHECK(post(&wr) == URMA_EINVAL);
}

static void lists(void)
{
    enum { COUNT = 40 };
    static urma_jfs_wr_t wr[COUNT];
    urma_sge_t src = end_piece(&here, 0, 8), dst = end_far(remote, 0, 8);
    urma_sge_t outside = end_far(remote, MEMORY - 4, 8);
    urma_jfs_wr_t *bad = NULL;
    urma_cr_t cr[COUNT];
    int done = 0;

    memset(wr, 0, sizeof(wr));
    for (int i = 0; i < COUNT; i++) {
        wr[i].opcode = URMA_OPC_WRITE;
        wr[i].tjetty = target;
        wr[i].user_ctx = (uint64_t)i;
        wr[i].flag.bs.complete_enable = 1;
        wr[i].rw.src.sge = &src;
        wr[i].rw.src.num_sge = 1;
        wr[i].rw.dst.sge = &dst;
        wr[i].rw.dst.num_sge = 1;
        wr[i].next = i + 1 < COUNT ? &wr[i + 1] : NULL;
    }
    wr[9].next = NULL;
    CHECK(urma_post_jetty_send_wr(here.jetty, wr, &bad) == URMA_SUCCESS && bad == NULL);
    for (int i = 0; i < 10; i++) {
        CHECK(end_wait(here.jfc).user_ctx == (uint64_t)i);
    }
    wr[4].rw.dst.sge = &outside; /* the fifth is wrong: four are posted */
    CHECK(urma_post_jetty_send_wr(here.jetty, wr, &bad) == URMA_EINVAL && bad == &wr[4]);
    for (int i = 0; i < 4; i++) {
        CHECK(end_wait(here.jfc).user_ctx == (uint64_t)i);
    }
    CHECK(urma_poll_jfc(here.jfc, 1, cr) == 0);
    wr[4].rw.dst.sge = &dst;
    wr[6].tjetty = (urma_target_jetty_t *)remote; /* another kind of object */
    CHECK(urma_post_jetty_send_wr(here.jetty, wr, &bad) == URMA_EINVAL && bad == &wr[6]);
    for (int i = 0; i < 6; i++) {
        CHECK(end_wait(here.jfc).user_ctx == (uint64_t)i);
    }
    wr[6].tjetty = target;
    wr[9].next = &wr[10];
    /* More than the queue holds at once: it stops where it is full, if it gets full. */
    urma_status_t status = urma_post_jetty_send_wr(here.jetty, wr, &bad);
    int expected = COUNT;
    if (status != URMA_SUCCESS) {
        CHECK(status == FULL);
        expected = (int)(bad - wr);
    }
    CHECK(expected >= 16);
    while (done < expected) {
        int count = urma_poll_jfc(here.jfc, COUNT, cr);
        CHECK(count >= 0);
        for (int i = 0; i < count; i++) {
            CHECK(cr[i].user_ctx == (uint64_t)(done + i) && cr[i].status == URMA_CR_SUCCESS);
        }
        done += count;
    }
}

static void named_wrongly(void)
{
    urma_sge_t src = end_piece(&here, 0, 8), dst = end_far(remote, 0, 8);
    urma_import_seg_flag_t flag = {0};
    urma_token_t token = {TOKEN};
    struct info peer = end_info(&there);

    src.tseg = NULL;
    CHECK(end_post(&here, URMA_OPC_WRITE, target, &src, &dst) == URMA_EINVAL);
    src.tseg = remote; /* imported memory is not local */
    CHECK(end_post(&here, URMA_OPC_WRITE, target, &src, &dst) == URMA_EINVAL);
    src.tseg = there.seg; /* of another context */
    CHECK(end_post(&here, URMA_OPC_WRITE, target, &src, &dst) == URMA_EINVAL);
    src.tseg = here.seg;
    src.addr -= 1; /* in front of its segment */
    CHECK(end_post(&here, URMA_OPC_WRITE, target, &src, &dst) == URMA_EINVAL);
    src.addr += 1;
    CHECK(end_post(&here, URMA_OPC_WRITE, NULL, &src, &dst) == URMA_EINVAL);
    CHECK(end_post(&here, URMA_OPC_WRITE, target, NULL, &dst) == URMA_EINVAL);
    CHECK(end_post(&here, URMA_OPC_WRITE, target, &src, NULL) == URMA_EINVAL);
    dst.tseg = urma_import_seg(here.ctx, &peer.seg, &token, 0, flag);
    CHECK(dst.tseg != NULL);
    CHECK(end_post(&here, URMA_OPC_WRITE, target, &src, &dst) == URMA_SUCCESS);
    CHECK(end_wait(here.jfc).status == URMA_CR_SUCCESS);
    CHECK(urma_unimport_seg(dst.tseg) == URMA_SUCCESS); /* and used after that */
    CHECK(end_post(&here, URMA_OPC_WRITE, target, &src, &dst) == URMA_EINVAL);
    token.token = TOKEN + 1; /* what only the target knows */
    dst.tseg = urma_import_seg(here.ctx, &peer.seg, &token, 0, flag);
    CHECK(dst.tseg != NULL);
    CHECK(end_post(&here, URMA_OPC_WRITE, target, &src, &dst) == URMA_SUCCESS);
    CHECK(end_wait(here.jfc).status == URMA_CR_REM_ACCESS_ABORT_ERR);
    CHECK(urma_unimport_seg(dst.tseg) == URMA_SUCCESS);
}

/* A request to one's own node may name a segment that is registered, not imported. */
static void to_oneself(void)
{
    struct info mine = end_info(&here);
    urma_target_jetty_t *self = end_import_jetty(&here, &mine);
    urma_sge_t src = end_piece(&here, 0, 8), dst = end_piece(&here, 3000, 8);

    memset(here.memory, 0x3c, 8);
    CHECK(end_post(&here, URMA_OPC_WRITE, self, &src, &dst) == URMA_SUCCESS);
    CHECK(end_wait(here.jfc).status == URMA_CR_SUCCESS && here.memory[3007] == 0x3c);
    CHECK(urma_unimport_jetty(self) == URMA_SUCCESS);
}

static void single_requests(void)
{
    urma_jfs_cfg_t cfg = here.jetty->jetty_cfg.jfs_cfg;
    urma_jfs_wr_flag_t flag = {0};
    urma_rjfr_t rjfr = {0};
    urma_token_t token = {TOKEN};
    urma_cr_t cr;
    urma_jfs_t *jfs = urma_create_jfs(here.ctx, &cfg);
    uint64_t mine = (uint64_t)(uintptr_t)here.memory, theirs = remote->seg.ubva.va;

    CHECK(jfs != NULL);
    rjfr.jfr_id = there.jfr->jfr_id;
    rjfr.trans_mode = URMA_TM_RM;
    rjfr.flag.bs.token_policy = URMA_TOKEN_PLAIN_TEXT;
    urma_target_jetty_t *tjfr = urma_import_jfr(here.ctx, &rjfr, &token);
    CHECK(tjfr != NULL && tjfr->type == URMA_JFR);
    CHECK(urma_advise_jfr(jfs, tjfr) == URMA_SUCCESS);
    flag.bs.complete_enable = 1;
    memset(here.memory, 0x11, 32);
    CHECK(urma_write(jfs, tjfr, remote, here.seg, theirs, mine, 32, flag, 1) == URMA_SUCCESS);
    cr = end_wait(here.jfc);
    CHECK(cr.status == URMA_CR_SUCCESS && cr.user_ctx == 1 && there.memory[31] == 0x11);
    CHECK(cr.flag.bs.jetty == 0 && cr.local_id == jfs->jfs_id.id);
    CHECK(urma_read(jfs, tjfr, here.seg, remote, mine + 64, theirs, 32, flag, 2) == URMA_SUCCESS);
    CHECK(end_wait(here.jfc).user_ctx == 2 && here.memory[64] == 0x11);
    CHECK(urma_recv(there.jfr, there.seg, (uint64_t)(uintptr_t)there.memory + 2000, 64, 3) == 0);
    CHECK(urma_send(jfs, tjfr, here.seg, mine, 32, flag, 4) == URMA_SUCCESS);
    CHECK(end_wait(here.jfc).user_ctx == 4);
    cr = end_wait(there.jfc);
    CHECK(cr.user_ctx == 3 && cr.completion_len == 32 && there.memory[2031] == 0x11);
    CHECK(urma_send(NULL, tjfr, here.seg, mine, 32, flag, 4) == URMA_EINVAL);
    CHECK(urma_recv(NULL, here.seg, mine, 32, 4) == URMA_EINVAL);
    CHECK(urma_recv(there.jfr, NULL, theirs, 32, 4) == URMA_EINVAL);
    CHECK(urma_recv(there.jfr, there.seg, 0, 32, 4) == URMA_FAIL);
    CHECK(urma_unadvise_jfr(jfs, tjfr) == URMA_SUCCESS);
    CHECK(urma_unimport_jfr(tjfr) == URMA_SUCCESS && urma_delete_jfs(jfs) == URMA_SUCCESS);
}

/* Two messages that `here` has got and not polled stay in its JFC when it is flushed: sends and
 * receives complete in the same one. */
static void messages_are_no_flushes(void)
{
    urma_jetty_attr_t error = {JETTY_STATE, 0, URMA_JETTY_STATE_ERROR};
    struct info mine = end_info(&here);
    urma_target_jetty_t *back = end_import_jetty(&there, &mine);
    urma_sge_t src = end_piece(&there, 0, 8);
    urma_cr_t cr[4];

    for (uint64_t i = 0; i < 2; i++) {
        end_receive(&here, 4096 + 64 * i, 64, 70 + i);
        CHECK(end_post(&there, URMA_OPC_SEND, back, &src, NULL) == URMA_SUCCESS);
        CHECK(end_wait(there.jfc).status == URMA_CR_SUCCESS);
    }
    CHECK(urma_modify_jetty(here.jetty, &error) == URMA_SUCCESS);
    for (int i = urma_flush_jetty(here.jetty, 4, cr); i-- > 0;) {
        CHECK(cr[i].status == URMA_CR_WR_FLUSH_ERR_DONE);
    }
    for (uint64_t i = 0; i < 2; i++) {
        do {
            cr[0] = end_wait(here.jfc);
        } while (cr[0].status == URMA_CR_WR_FLUSH_ERR_DONE);
        CHECK(cr[0].status == URMA_CR_SUCCESS && cr[0].flag.bs.s_r == 1);
        CHECK(cr[0].user_ctx == 70 + i);
    }
    CHECK(urma_unimport_jetty(back) == URMA_SUCCESS);
}

static void flushing(void)
{
    urma_sge_t src = end_piece(&here, 0, 8), dst = end_far(remote, 0, 8);
    urma_cr_t cr[4];

    CHECK(urma_flush_jetty(here.jetty, 1, NULL) == -URMA_EINVAL);
    CHECK(urma_flush_jetty(NULL, 1, cr) == -URMA_EINVAL);
    CHECK(urma_flush_jetty(here.jetty, -1, cr) == -URMA_EINVAL);
    CHECK(urma_flush_jetty(here.jetty, 0, cr) == -URMA_EINVAL);
    CHECK(urma_flush_jetty(here.jetty, 17, cr) == -URMA_EINVAL); /* more than its depth */
    CHECK(urma_flush_jetty(here.jetty, 1, cr) == 0); /* it works, and goes on */
    CHECK(end_post(&here, URMA_OPC_WRITE, target, &src, &dst) == URMA_SUCCESS);
    CHECK(end_wait(here.jfc).status == URMA_CR_SUCCESS);
    CHECK(urma_poll_jfc(here.jfc, -1, cr) == -1 && urma_poll_jfc(here.jfc, 1, NULL) == -1);
    CHECK(urma_poll_jfc(NULL, 1, cr) == -1 && urma_poll_jfc(here.jfc, 0, cr) == 0);
    messages_are_no_flushes();
    CHECK(end_post(&here, URMA_OPC_WRITE, target, &src, &dst) == URMA_SUCCESS);
    do { /* the end of the flush has a completion of its own, before or after */
        cr[0] = end_wait(here.jfc);
        CHECK(cr[0].status == URMA_CR_WR_FLUSH_ERR || cr[0].status == URMA_CR_WR_FLUSH_ERR_DONE);
    } while (cr[0].status == URMA_CR_WR_FLUSH_ERR_DONE);
    CHECK(cr[0].user_ctx == 7);
    CHECK(urma_flush_jetty(here.jetty, 4, cr) >= 0);
}

/* A request is like the one before where it names the same objects, in the same places, and these are there. */
static void alike(void)
{
    urma_seg_cfg_t cfg = {0};
    uint8_t *memory = aligned_alloc(4096, 4096);
    urma_sge_t src = end_piece(&here, 0, 8), dst = end_far(remote, 0, 8), other, bad;
    urma_jfs_wr_t list[2] = {{0}}, *refused = NULL;

    CHECK(memory != NULL);
    cfg.va = (uint64_t)(uintptr_t)memory;
    cfg.len = 4096;
    cfg.flag.bs.access = URMA_ACCESS_READ | URMA_ACCESS_WRITE | URMA_ACCESS_ATOMIC;
    urma_target_seg_t *seg = urma_register_seg(here.ctx, &cfg);
    CHECK(seg != NULL);
    other = end_far(seg, 0, 8);
    for (int round = 0; round < 8; round++) {
        memset(here.memory, round, 8);
        memset(memory, round + 100, 8);
        CHECK(end_post(&here, URMA_OPC_WRITE, target, &src, &dst) == URMA_SUCCESS);
        CHECK(end_wait(here.jfc).status == URMA_CR_SUCCESS && there.memory[7] == round);
        CHECK(end_post(&here, URMA_OPC_WRITE, target, &other, &dst) == URMA_SUCCESS);
        CHECK(end_wait(here.jfc).status == URMA_CR_SUCCESS && there.memory[7] == round + 100);
        CHECK(end_post(&here, URMA_OPC_WRITE, target, &other, &dst) == URMA_SUCCESS);
        CHECK(end_wait(here.jfc).status == URMA_CR_SUCCESS);
    }
    /* Each of these has one thing that the newest one has not. */
    bad = other;
    bad.tseg = remote;
    CHECK(end_post(&here, URMA_OPC_WRITE, target, &bad, &dst) == URMA_EINVAL);
    bad = dst;
    bad.tseg = seg;
    CHECK(end_post(&here, URMA_OPC_WRITE, target, &other, &bad) == URMA_EINVAL);
    CHECK(end_post(&here, URMA_OPC_WRITE, NULL, &other, &dst) == URMA_EINVAL);
    CHECK(end_post(&here, URMA_OPC_READ, target, &other, &dst) == URMA_EINVAL);
    bad = other;
    bad.addr += 4089;
    CHECK(end_post(&here, URMA_OPC_WRITE, target, &bad, &dst) == URMA_EINVAL);
    /* Of two requests both are posted. */
    for (int n = 0; n < 2; n++) {
        list[n].opcode = URMA_OPC_WRITE;
        list[n].flag.bs.complete_enable = 1;
        list[n].tjetty = target;
        list[n].rw.src.sge = &other;
        list[n].rw.dst.sge = &dst;
        list[n].rw.src.num_sge = list[n].rw.dst.num_sge = 1;
    }
    list[0].next = &list[1];
    CHECK(urma_post_jetty_send_wr(here.jetty, list, &refused) == URMA_SUCCESS);
    CHECK(end_wait(here.jfc).status == URMA_CR_SUCCESS);
    CHECK(end_wait(here.jfc).status == URMA_CR_SUCCESS);
    CHECK(urma_unregister_seg(seg) == URMA_SUCCESS);
    CHECK(end_post(&here, URMA_OPC_WRITE, target, &other, &dst) == URMA_EINVAL);
    free(memory);
}

static void connected(urma_device_t *dev)
{
    struct end one, two;
    end_open(&one, dev, URMA_TM_RC);
    end_open(&two, dev, URMA_TM_RC);
    struct info info_one = end_info(&one), info_two = end_info(&two);
    urma_target_jetty_t *to_two = end_import_jetty(&one, &info_two);
    urma_target_jetty_t *to_one = end_import_jetty(&two, &info_one);
    urma_sge_t src = end_piece(&one, 0, 8);

    CHECK(end_post(&one, URMA_OPC_SEND, to_two, &src, NULL) == URMA_EINVAL); /* not bound */
    CHECK(urma_bind_jetty(one.jetty, to_two) == URMA_SUCCESS);
    CHECK(urma_bind_jetty(two.jetty, to_one) == URMA_SUCCESS);
    end_receive(&two, 4096, 64, 1);
    CHECK(end_post(&one, URMA_OPC_SEND, NULL, &src, NULL) == URMA_SUCCESS); /* one target */
    CHECK(end_wait(one.jfc).status == URMA_CR_SUCCESS);
    CHECK(end_wait(two.jfc).status == URMA_CR_SUCCESS);
    CHECK(urma_unbind_jetty(one.jetty) == URMA_SUCCESS);
    CHECK(urma_unbind_jetty(two.jetty) == URMA_SUCCESS);
    CHECK(urma_unimport_jetty(to_two) == URMA_SUCCESS && urma_unimport_jetty(to_one) == 0);
    end_close(&one);
    end_close(&two);
}

static void unacknowledged(urma_device_t *dev)
{
    struct end one, two;
    end_open(&one, dev, URMA_TM_UM);
    end_open(&two, dev, URMA_TM_UM);
    struct info info = end_info(&two), mine = end_info(&one);
    CHECK(info.jetty.tp_type == URMA_UTP && info.jetty.flag.bs.order_type == URMA_NO);
    urma_target_jetty_t *to = end_import_jetty(&one, &info);
    urma_target_seg_t *seg = end_import_seg(&one, &info);
    urma_sge_t src = end_piece(&one, 0, 8), dst = end_piece(&two, 0, 8);

    (void)mine;
    dst.tseg = seg;
    end_receive(&two, 4096, 64, 1);
    CHECK(end_post(&one, URMA_OPC_SEND, to, &src, NULL) == URMA_SUCCESS);
    CHECK(end_wait(one.jfc).status == URMA_CR_SUCCESS);
    CHECK(end_wait(two.jfc).status == URMA_CR_SUCCESS);
    CHECK(end_post(&one, URMA_OPC_WRITE, to, &src, &dst) == URMA_EINVAL); /* SEND only */
    CHECK(urma_unimport_seg(seg) == 0 && urma_unimport_jetty(to) == 0);
    end_close(&one);
    end_close(&two);
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
    writes();
    reads_and_atomics();
    lists();
    named_wrongly();
    alike();
    to_oneself();
    single_requests();
    flushing();
    connected(dev);
    unacknowledged(dev);
    CHECK(urma_unimport_seg(remote) == 0 && urma_unimport_jetty(target) == 0);
    end_close(&here);
    end_close(&there);
    CHECK(urma_uninit() == URMA_SUCCESS);
    return 0;
}
