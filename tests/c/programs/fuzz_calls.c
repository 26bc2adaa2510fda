/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Random sequences of calls: objects are made, used and deleted in any order, named when they are
 * gone, and where objects of other kinds belong; every exported function with any arguments, before
 * urma_init, after urma_uninit, in several threads, in a forked child. Nothing may crash, hang, or be
 * answered with success when an object that the call takes is gone or of another kind.
 *
 * LLVMFuzzerTestOneInput is the body. Without libFuzzer, main drives it: fuzz_calls SEED RUNS.
 */
#define _GNU_SOURCE
#include <sys/wait.h>
#include <unistd.h>

#include "fuzz_any.h"

/* Imported by other libraries; in no header. */
void urma_log(const char *function, int line, int level, const char *format, ...);
void *ub_hugemalloc(size_t len, int page, void *hint);
int ub_hugefree(void *address, size_t len);
void urma_log_loc(const char *file, const char *function, int line, int level, const char *format, ...);

static void make(int kind)
{
    union {
        urma_jfc_cfg_t jfc;
        urma_jfs_cfg_t jfs;
        urma_jfr_cfg_t jfr;
        urma_jetty_cfg_t jetty;
        urma_jetty_grp_cfg_t grp;
        urma_rjetty_t remote;
        urma_seg_cfg_t seg;
    } cfg;
    bool good = true;
    urma_token_t token = {TOKEN};
    if (kind >= DEVICE || !has_room(kind)) {
        return;
    }
    memset(&cfg, 0, sizeof cfg);
    urma_context_t *ctx = kind == CTX ? NULL : any(CTX, &good);
    switch (kind) {
    case CTX:
        keep(kind, DO(urma_create_context, pool[DEVICE][0].object, byte() % 2), true);
        break;
    case JFCE:
        keep(kind, DO(urma_create_jfce, ctx), good);
        break;
    case JFC:
        fill_jfc(&cfg, &good);
        keep(kind, DO(urma_create_jfc, ctx, &cfg.jfc), good);
        break;
    case JFS:
        fill_jfs(&cfg, &good);
        keep(kind, DO(urma_create_jfs, ctx, &cfg.jfs), good);
        break;
    case JFR:
        fill_jfr(&cfg, &good);
        keep(kind, DO(urma_create_jfr, ctx, &cfg.jfr), good);
        break;
    case JETTY:
        fill_jetty(&cfg, &good);
        keep(kind, DO(urma_create_jetty, ctx, &cfg.jetty), good);
        break;
    case GRP:
        fill_grp(&cfg, &good);
        keep(kind, DO(urma_create_jetty_grp, ctx, &cfg.grp), good);
        break;
    case TARGET:
        fill_rjetty(&cfg, &good);
        keep(kind, DO(urma_import_jetty, ctx, &cfg.remote, &token), good);
        break;
    case SEG:
        fill_seg_cfg(&cfg, &good);
        keep(kind, DO(urma_register_seg, ctx, &cfg.seg), good);
        break;
    case NOTIFIER:
        keep(kind, DO(urma_create_notifier, ctx), good);
        break;
    default:
        keep(kind, DO(urma_alloc_token_id, ctx), good);
    }
}

static void drop(int kind)
{
    bool good = true;
    void *object = any(kind, &good);
    bool lived = ending(object);
    bool success = delete_object(kind, object) == URMA_SUCCESS;
    ended(object, lived && !success);
    CHECK(!success || good || !strict);
    deleted += success;
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
        urma_status_t status = DO(urma_post_jetty_recv_wr, jetty, &receive, &bad_receive);
        CHECK(status != URMA_SUCCESS || good || !strict);
        (void)DO(urma_post_jfr_wr, any(JFR, &good), &receive, &bad_receive);
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
    if (how >= 230) {
        posted += DO(urma_post_jfs_wr, any(JFS, &good), &wr, &bad) == URMA_SUCCESS;
    } else {
        posted += DO(urma_post_jetty_send_wr, any(JETTY, &good), &wr, &bad) == URMA_SUCCESS;
    }
}

static void look(void)
{
    bool good = true;
    urma_cr_t cr[4];
    urma_async_event_t event = {0};
    urma_jfc_t *jfc = any(JFC, &good), *woken = NULL;
    CHECK(DO(urma_poll_jfc, jfc, byte() % 5, cr) <= 4);
    (void)DO(urma_rearm_jfc, any(JFC, &good), byte() % 2);
    if (DO(urma_wait_jfc, any(JFCE, &good), 1, 0, &woken) == 1) {
        uint32_t one = 1;
        DO(urma_ack_jfc, &woken, &one, 1);
    }
    (void)DO(urma_get_async_event, any(CTX, &good), &event);
    DO(urma_ack_async_event, &event); /* none: refused */
}

/* What is given back by a call of its own. */
static void pairs(void)
{
    bool good = true;
    uint32_t count_of = 0;
    int devices = 0;
    DO(urma_free_device_list, DO(urma_get_device_list, &devices));
    DO(urma_free_eid_list, DO(urma_get_eid_list, any(DEVICE, &good), &count_of));
    DO(urma_free_net_addr_list, DO(urma_get_net_addr_list, any(CTX, &good), &count_of));
#if URMA_ABI_PROFILE == URMA_ABI_26_06
    urma_rjetty_t *remote = NULL;
    urma_seg_t *seg = NULL;
    (void)DO(urma_get_rjetty, any(JETTY, &good), &remote, &count_of);
    DO(urma_put_rjetty, remote);
    (void)DO(urma_get_seg_ctx, any(SEG, &good), &seg, &count_of);
    DO(urma_put_seg_ctx, seg);
#endif
    urma_jetty_cfg_t cfg, copy;
    fill_jetty(&cfg, &good);
    if (DO(urma_init_jetty_cfg, &copy, &cfg) == 0) {
        DO(urma_uninit_jetty_cfg, &copy);
    }
    count("urma_log");
    count("urma_log_loc");
    urma_log("f", 1, byte() % 8, "%d", 1);
    urma_log_loc("a.c", "f", 1, byte() % 8, "%s", "x");
    DO(urma_log_set_level, (urma_vlog_level_t)byte());
    urma_log_set_level(URMA_VLOG_LEVEL_EMERG);
#ifndef LIBFUZZER /* which links liburma alone */
    void *huge = DO(ub_hugemalloc, 4096, 0, NULL);
    CHECK(DO(ub_hugefree, huge, 4096) == (huge == NULL ? -EINVAL : 0));
#endif
}

/* A forked child may call anything, and is refused until it starts afresh. */
static void fork_child(void)
{
#if !defined LIBFUZZER && !defined __SANITIZE_ADDRESS__
    /* The sanitizer's own allocator does not survive a fork while other threads are inside of it. */
    int status = 0;
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        alarm(60);
        for (int i = 0; i < 16; i++) {
            call_any(false);
        }
        CHECK(urma_init(NULL) == URMA_SUCCESS);
        urma_context_t *ctx = urma_create_context(urma_get_device_by_name((char *)"udma0"), 0);
        CHECK(ctx != NULL && urma_delete_context(ctx) == URMA_SUCCESS);
        CHECK(urma_uninit() == URMA_SUCCESS);
        _exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
#endif
    input += left < 64 ? left : 64;
    left -= left < 64 ? left : 64;
}

/* ---- a run ------------------------------------------------------------------------------------- */

/* What most calls find something in: two jetties that reach each other, and memory. */
static void world(void)
{
    static struct end end;
    urma_device_t *dev = urma_get_device_by_name((char *)"udma0");
    pool[DEVICE][0] = (struct slot){dev, .live = true};
    end_open(&end, dev, URMA_TM_RM);
    free(end.memory);
    CHECK(urma_unregister_seg(end.seg) == URMA_SUCCESS);
    urma_seg_cfg_t cfg = {.va = (uintptr_t)memory, .len = sizeof memory};
    cfg.flag.bs.access = URMA_ACCESS_READ | URMA_ACCESS_WRITE | URMA_ACCESS_ATOMIC;
    end.seg = urma_register_seg(end.ctx, &cfg);
    urma_rjetty_t remote = end_remote(end.jetty);
    urma_token_t token = {TOKEN};
    urma_target_jetty_t *target = urma_import_jetty(end.ctx, &remote, &token);
    CHECK(end.seg != NULL && target != NULL);
    void *objects[KINDS] = {
        [CTX] = end.ctx, [JFCE] = end.jfce, [JFC] = end.jfc,   [JFR] = end.jfr,
        [JETTY] = end.jetty, [TARGET] = target, [SEG] = end.seg};
    for (int kind = 0; kind < DEVICE; kind++) {
        if (objects[kind] != NULL) {
            pool[kind][0] = (struct slot){objects[kind], .live = true};
        }
    }
    int fd = end.ctx->async_fd;
    CHECK(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) == 0);
}

/* An object goes after those that use it. */
static void give_up(void)
{
    static const enum kind order[] = {NOTIFIER, TARGET, SEG, TOKEN_ID, JETTY, GRP,
                                      JFR,      JFS,    JFC, JFCE,     CTX};
    for (size_t k = 0; k < sizeof order / sizeof order[0]; k++) {
        for (int i = 0; i < POOL; i++) {
            struct slot *slot = &pool[order[k]][i];
            if (slot->live) {
                /* With several threads the books here do not say in which order calls ended. */
                urma_status_t status = end_object(order[k], slot->object);
                bool gone = !strict || (status == URMA_EINVAL && slot->maybe);
                bool ended = status == URMA_SUCCESS || gone;
                CHECK(ended || (fprintf(stderr, "kind %d stays: %d\n", (int)order[k], (int)status), 0));
                slot->live = false;
            }
        }
    }
}

static int end_own(enum kind kind, void *object)
{
    switch (kind) {
    case TARGET:
        return urma_cmd_unimport_jetty(object);
    case SEG:
        return urma_cmd_unregister_seg(object) == 0 ? 0 : urma_cmd_unimport_seg(object);
    case TOKEN_ID:
        return urma_cmd_free_token_id(object);
    case JETTY:
        return urma_cmd_delete_jetty(object) == 0 ? 0 : urma_cmd_free_jetty(object, NULL);
    case GRP:
        return urma_cmd_delete_jetty_grp(object);
    case JFR:
        return urma_cmd_delete_jfr(object) == 0 ? 0 : urma_cmd_free_jfr(object, NULL);
    case JFS:
        return urma_cmd_delete_jfs(object) == 0 ? 0 : urma_cmd_free_jfs(object, NULL);
    case JFC:
        return urma_cmd_delete_jfc(object) == 0 ? 0 : urma_cmd_free_jfc(object, NULL);
    case CTX:
        return urma_cmd_delete_context(object);
    default:
        return close(((urma_jfce_t *)object)->fd);
    }
}

static void give_up_own(void)
{
    static const enum kind order[] = {TARGET, SEG, TOKEN_ID, JETTY, GRP,     JFR,
                                      JFS,    JFC, CTX,      JFCE,  NOTIFIER};
    for (size_t k = 0; k < sizeof order / sizeof order[0]; k++) {
        for (int i = 0; i < OWN; i++) {
            struct own *of = &own[order[k]][i];
            bool ended = !of->used || end_own(order[k], of->bytes) == 0;
            CHECK(ended || (fprintf(stderr, "own kind %d stays\n", (int)order[k]), 0));
            memset(of, 0, sizeof *of);
        }
    }
}

struct part {
    const uint8_t *from;
    size_t len;
};

static void *run(void *argument)
{
    const struct part *part = argument;
    input = part->from;
    left = part->len;
    while (left != 0) {
        uint8_t what = byte();
        if (what < 50) {
            make(what % KINDS);
        } else if (what < 120) {
            post();
        } else if (what < 150) {
            look();
        } else if (what < 170) {
            drop(what % DEVICE);
        } else if (what < 180) {
            pairs();
        } else if (what == 255 && byte() < 16 && strict) {
            fork_child();
        } else {
            call_any(true);
        }
    }
    return NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool loaded;
    if (!loaded) {
        const char *missing = table_load();
        CHECK(missing == NULL || begins(missing, "uvs_") || begins(missing, "ub_"));
        loaded = true;
    }
    input = data;
    left = size;
    memset(pool, 0, sizeof pool);
    for (uint8_t how = byte(), i = 0; how >= 200 && i < 16; i++) {
        call_any(false);
    }
    CHECK(DO(urma_init, NULL) == URMA_SUCCESS);
    urma_log_set_level(URMA_VLOG_LEVEL_EMERG);
    world();
    uint8_t how = byte();
    struct part parts[3] = {{input, left}, {input + left / 3, left / 3}, {input, left / 3}};
    strict = how < 200;
    if (strict) {
        run(&parts[0]);
    } else {
        pthread_t threads[3];
        for (int i = 0; i < 3; i++) {
            CHECK(pthread_create(&threads[i], NULL, run, &parts[i]) == 0);
        }
        for (int i = 0; i < 3; i++) {
            CHECK(pthread_join(threads[i], NULL) == 0);
        }
    }
    left = 0;
    give_up_own();
    give_up();
    CHECK(DO(urma_uninit) == URMA_SUCCESS);
    pool[DEVICE][0].live = false;
    input = data;
    left = size < 200 ? size : 200;
    for (int i = 0; i < 16 && how % 4 == 0; i++) {
        call_any(false);
    }
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
    for (int index = 0; index < ROWS; index++) {
        printf("%s %ld\n", rows[index].name, asked[index]);
    }
    printf("%ld made, %ld posted, %ld deleted\n", made, posted, deleted);
    return 0;
}
#endif
