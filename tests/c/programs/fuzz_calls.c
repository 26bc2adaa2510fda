/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Random sequences of calls: objects are made, used and deleted in any order, named when they are
 * gone, and where objects of other kinds belong. Nothing may crash, hang, or be answered with success
 * when an object that the call takes is gone or of another kind.
 *
 * LLVMFuzzerTestOneInput is the body. Without libFuzzer, main drives it: fuzz_calls SEED RUNS.
 */
#define _GNU_SOURCE
#include <stdbool.h>
#include <unistd.h>

#include "end.h"

enum { CTX, JFCE, JFC, JFS, JFR, JETTY, TOKEN_ID, TARGET, SEG, KINDS, POOL = 6 };

struct slot {
    void *object;
    int kind;
    bool live;
};

static struct slot pool[KINDS * POOL];
static uint8_t memory[4 * 4096] __attribute__((aligned(4096)));
static const uint8_t *input;
static size_t left;
/* Calls that made, posted, deleted something: a driver that reaches nothing shows. */
static long made, posted, deleted;

static uint8_t byte(void)
{
    return left == 0 ? 0 : (left--, *input++);
}

/* Any object; mostly one of the wanted kind. `good` says whether the call may succeed. */
static void *any(int kind, bool *good)
{
    uint8_t how = byte();
    if (how >= 250) {
        *good = false;
        return how == 255 ? (void *)1 : NULL;
    }
    struct slot *slot = &pool[(how < 150   ? kind * POOL
                               : how < 220 ? kind * POOL + how % POOL
                                           : how % (KINDS * POOL))];
    if (slot->kind != kind || !slot->live) {
        *good = false;
    }
    return slot->object;
}

static struct slot *room(int kind)
{
    for (int i = 0; i < POOL; i++) {
        struct slot *slot = &pool[kind * POOL + i];
        if (!slot->live) {
            return slot;
        }
    }
    return NULL;
}

static void keep(int kind, void *object, bool good)
{
    struct slot *slot = room(kind);
    CHECK(object == NULL || good);
    if (object != NULL) {
        /* Its place may have been a deleted one's: that one is this now. */
        for (int i = 0; i < KINDS * POOL; i++) {
            if (pool[i].object == object && !pool[i].live) {
                pool[i].object = NULL;
            }
        }
        *slot = (struct slot){object, kind, true};
        made++;
    }
}

static void make(int kind)
{
    bool good = true;
    urma_context_t *ctx = kind == CTX ? NULL : any(CTX, &good);
    urma_token_t token = {TOKEN};
    if (room(kind) == NULL) {
        return;
    }
    switch (kind) {
    case CTX:
        keep(kind, urma_create_context(urma_get_device_by_name((char *)"udma0"), byte() % 2), true);
        break;
    case JFCE:
        keep(kind, urma_create_jfce(ctx), good);
        break;
    case JFC: {
        urma_jfc_cfg_t cfg = {.depth = byte(), .flag.value = byte() & 1};
        cfg.jfce = byte() % 2 ? any(JFCE, &good) : NULL;
        good = good || cfg.jfce == NULL;
        keep(kind, urma_create_jfc(ctx, &cfg), good);
        break;
    }
    case JFS: {
        urma_jfs_cfg_t cfg = {.depth = byte(), .trans_mode = (urma_transport_mode_t)(byte() % 6)};
        cfg.max_sge = byte();
        cfg.flag.value = byte();
        cfg.jfc = any(JFC, &good);
        keep(kind, urma_create_jfs(ctx, &cfg), good);
        break;
    }
    case JFR: {
        urma_jfr_cfg_t cfg = {.depth = byte(), .trans_mode = (urma_transport_mode_t)(byte() % 6)};
        cfg.max_sge = byte();
        cfg.flag.value = byte();
        cfg.jfc = any(JFC, &good);
        keep(kind, urma_create_jfr(ctx, &cfg), good);
        break;
    }
    case JETTY: {
        urma_jetty_cfg_t cfg = {0};
        cfg.flag.value = byte() | 1; /* shares a JFR */
        cfg.jfs_cfg.depth = byte();
        cfg.jfs_cfg.trans_mode = (urma_transport_mode_t)(byte() % 6);
        cfg.jfs_cfg.max_sge = byte() % 4;
        cfg.jfs_cfg.max_rsge = 1;
        cfg.jfs_cfg.jfc = any(JFC, &good);
        cfg.shared.jfr = any(JFR, &good);
        keep(kind, urma_create_jetty(ctx, &cfg), good);
        break;
    }
    case TARGET: {
        urma_rjetty_t remote = {0};
        struct slot *jetty = &pool[JETTY * POOL + byte() % POOL];
        if (jetty->live) {
            remote.jetty_id = ((urma_jetty_t *)jetty->object)->jetty_id;
        }
        remote.trans_mode = (urma_transport_mode_t)(byte() % 6);
        remote.type = (urma_target_type_t)(byte() % 4);
        keep(kind, urma_import_jetty(ctx, &remote, &token), good);
        break;
    }
    case SEG: {
        urma_seg_cfg_t cfg = {.va = (uintptr_t)memory + byte() * 16u, .len = byte() * 64u};
        cfg.flag.value = byte() | (uint32_t)byte() << 8;
        cfg.token_value.token = TOKEN;
        if (cfg.flag.bs.token_id_valid) {
            cfg.token_id = any(TOKEN_ID, &good);
        }
        keep(kind, urma_register_seg(ctx, &cfg), good);
        break;
    }
    default:
        keep(kind, urma_alloc_token_id(ctx), good);
    }
}

static urma_status_t delete_object(int kind, void *object)
{
    switch (kind) {
    case CTX:
        return urma_delete_context(object);
    case JFCE:
        return urma_delete_jfce(object);
    case JFC:
        return urma_delete_jfc(object);
    case JFS:
        return urma_delete_jfs(object);
    case JFR:
        return urma_delete_jfr(object);
    case JETTY:
        return urma_delete_jetty(object);
    case TARGET:
        return urma_unimport_jetty(object);
    case SEG:
        return urma_unregister_seg(object);
    default:
        return urma_free_token_id(object);
    }
}

static void drop(int kind)
{
    bool good = true;
    void *object = any(kind, &good);
    if (delete_object(kind, object) == URMA_SUCCESS) {
        CHECK(good);
        deleted++;
        for (int i = 0; i < KINDS * POOL; i++) {
            if (pool[i].object == object) {
                pool[i].live = false;
            }
        }
    }
}

static void post(void)
{
    bool good = true;
    urma_sge_t src[2] = {{0}}, dst[2] = {{0}};
    urma_jfs_wr_t wr = {0}, *bad = NULL;
    urma_jfr_wr_t receive = {0}, *bad_receive = NULL;
    uint8_t how = byte();
    for (int i = 0; i < 2; i++) {
        src[i] = (urma_sge_t){(uintptr_t)memory + byte() * 8u, byte(), any(SEG, &good), NULL};
        dst[i] = (urma_sge_t){(uintptr_t)memory + byte() * 8u, byte(), any(SEG, &good), NULL};
    }
    good = true;
    receive.src = (urma_sg_t){src, how % 3};
    if (how % 4 == 0) {
        urma_jetty_t *jetty = any(JETTY, &good);
        CHECK(urma_post_jetty_recv_wr(jetty, &receive, &bad_receive) != URMA_SUCCESS || good);
        return;
    }
    static const uint8_t known[] = {URMA_OPC_WRITE, URMA_OPC_READ, URMA_OPC_SEND, URMA_OPC_FADD};
    uint8_t opcode = byte(), flags = byte();
    wr.opcode = (urma_opcode_t)(opcode < 200 ? known[opcode % 4] : opcode);
    wr.flag.value = flags < 200 ? 0 : byte() | (uint32_t)flags << 8;
    wr.flag.bs.inline_flag = 0;
    wr.flag.bs.complete_enable = flags % 2;
    wr.tjetty = any(TARGET, &good);
    wr.rw.src = (urma_sg_t){src, how % 3};
    wr.rw.dst = (urma_sg_t){dst, 1};
    if (wr.opcode == URMA_OPC_CAS || wr.opcode == URMA_OPC_FADD) {
        wr.cas.src = src;
        wr.cas.dst = dst;
    } else if (wr.opcode >= URMA_OPC_SEND && wr.opcode <= URMA_OPC_SEND_INVALIDATE) {
        wr.send.src = (urma_sg_t){src, how % 3};
        wr.send.tseg = NULL;
    }
    posted += urma_post_jetty_send_wr(any(JETTY, &good), &wr, &bad) == URMA_SUCCESS;
}

static void look(void)
{
    bool good = true;
    urma_cr_t cr[4];
    urma_jfc_t *jfc = any(JFC, &good), *woken = NULL;
    CHECK(urma_poll_jfc(jfc, byte() % 5, cr) <= 4);
    (void)urma_rearm_jfc(any(JFC, &good), byte() % 2);
    if (urma_wait_jfc(any(JFCE, &good), 1, 0, &woken) == 1) {
        uint32_t one = 1;
        urma_ack_jfc(&woken, &one, 1);
    }
}

/* What most calls find something in: two jetties that reach each other, and memory. */
static void world(void)
{
    static struct end end;
    end_open(&end, urma_get_device_by_name((char *)"udma0"), URMA_TM_RM);
    free(end.memory);
    CHECK(urma_unregister_seg(end.seg) == URMA_SUCCESS);
    urma_seg_cfg_t cfg = {.va = (uintptr_t)memory, .len = sizeof memory};
    cfg.flag.bs.access = URMA_ACCESS_READ | URMA_ACCESS_WRITE | URMA_ACCESS_ATOMIC;
    end.seg = urma_register_seg(end.ctx, &cfg);
    urma_rjetty_t remote = end_remote(end.jetty);
    urma_token_t token = {TOKEN};
    urma_target_jetty_t *target = urma_import_jetty(end.ctx, &remote, &token);
    CHECK(end.seg != NULL && target != NULL);
    keep(CTX, end.ctx, true);
    keep(JFCE, end.jfce, true);
    keep(JFC, end.jfc, true);
    keep(JFR, end.jfr, true);
    keep(JETTY, end.jetty, true);
    keep(TARGET, target, true);
    keep(SEG, end.seg, true);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    input = data;
    left = size;
    CHECK(urma_init(NULL) == URMA_SUCCESS);
    urma_log_set_level(URMA_VLOG_LEVEL_EMERG);
    memset(pool, 0, sizeof pool);
    world();
    while (left != 0) {
        uint8_t what = byte();
        if (what < 80) {
            make(what % KINDS);
        } else if (what < 190) {
            post();
        } else if (what < 235) {
            look();
        } else {
            drop(what % KINDS);
        }
    }
    /* Whoever is used goes after its users. */
    for (int kind = KINDS - 1; kind >= 0; kind--) {
        for (int i = 0; i < POOL; i++) {
            if (pool[kind * POOL + i].live) {
                CHECK(delete_object(kind, pool[kind * POOL + i].object) == URMA_SUCCESS);
            }
        }
    }
    CHECK(urma_uninit() == URMA_SUCCESS);
    return 0;
}

#ifndef LIBFUZZER
int main(int argc, char **argv)
{
    static uint8_t data[2048];
    unsigned short seed[3] = {0};
    CHECK(argc == 3);
    alarm(300);
    seed[0] = (unsigned short)atoi(argv[1]);
    for (int run = 0; run < atoi(argv[2]); run++) {
        for (size_t i = 0; i < sizeof data; i++) {
            data[i] = (uint8_t)(nrand48(seed) >> 8);
        }
        LLVMFuzzerTestOneInput(data, sizeof data);
    }
    printf("%ld made, %ld posted, %ld deleted\n", made, posted, deleted);
    return 0;
}
#endif
