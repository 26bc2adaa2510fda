/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Requests like the newest one of a queue, and polls of one completion: what the data path does with the fewest
 * checks. Each case comes after several such requests, and has one thing that the newest one has not.
 */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "end.h"

#include <ub/umdk/urma/urma_perf.h>
#include <ub/umdk/urma/urma_provider.h>

enum { ROW = 8, REUSED = 4096 };

static struct end here;
static struct info self;
static urma_target_jetty_t *target;
static urma_target_seg_t *far;
static urma_jfs_wr_t wr;
static urma_sge_t src, dst;
static uint64_t next_ctx = 1;

/* A JFC without events, and a jetty over it: what is carried out in the posting thread is not reported there. */
static urma_jfc_t *made_jfc(void)
{
    urma_jfc_cfg_t cfg = {0};
    cfg.depth = 64;
    urma_jfc_t *jfc = urma_create_jfc(here.ctx, &cfg);
    CHECK(jfc != NULL);
    return jfc;
}

static urma_jetty_t *made_jetty(urma_jfc_t *jfc)
{
    urma_jetty_cfg_t cfg = {0};
    cfg.flag.bs.share_jfr = URMA_SHARE_JFR;
    cfg.jfs_cfg.depth = 16;
    cfg.jfs_cfg.trans_mode = URMA_TM_RM;
    cfg.jfs_cfg.max_sge = 2;
    cfg.jfs_cfg.max_rsge = 1;
    cfg.jfs_cfg.max_inline_data = 64;
    cfg.jfs_cfg.rnr_retry = URMA_TYPICAL_RNR_RETRY;
    cfg.jfs_cfg.err_timeout = URMA_TYPICAL_ERR_TIMEOUT;
    cfg.jfs_cfg.jfc = jfc;
    cfg.user_ctx = 0xabcd;
    cfg.shared.jfr = here.jfr;
    urma_jetty_t *jetty = urma_create_jetty(here.ctx, &cfg);
    CHECK(jetty != NULL);
    return jetty;
}

/* A write of 8 bytes from the start of the memory to its second half. */
static void start(urma_opcode_t opcode)
{
    memset(&wr, 0, sizeof(wr));
    src = end_piece(&here, 0, 8);
    dst = end_far(far, 4096, 8);
    wr.opcode = opcode;
    wr.flag.bs.complete_enable = 1;
    wr.tjetty = target;
    if (opcode == URMA_OPC_CAS) {
        wr.cas.src = &src;
        wr.cas.dst = &dst;
    } else if (opcode == URMA_OPC_FADD) {
        wr.faa.src = &src;
        wr.faa.dst = &dst;
    } else {
        wr.rw.src.sge = &src;
        wr.rw.dst.sge = &dst;
        wr.rw.src.num_sge = wr.rw.dst.num_sge = 1;
    }
}

static urma_status_t post_to(urma_jetty_t *jetty)
{
    urma_jfs_wr_t *bad = NULL;
    wr.user_ctx = next_ctx++;
    errno = UNTOUCHED;
    urma_status_t status = urma_post_jetty_send_wr(jetty, &wr, &bad);
    CHECK(bad == (status == URMA_SUCCESS ? NULL : &wr));
    CHECK(status != URMA_SUCCESS || errno == UNTOUCHED);
    return status;
}

/* One completion of the newest request, whole, and no other one. */
static void completed(urma_jetty_t *jetty, uint32_t len)
{
    urma_cr_t cr, none;
    memset(&cr, 0xff, sizeof(cr));
    while (urma_poll_jfc(here.jfc, 1, &cr) == 0) {
    }
    CHECK(cr.status == URMA_CR_SUCCESS && cr.user_ctx == next_ctx - 1 && cr.completion_len == len);
    CHECK(cr.local_id == jetty->jetty_id.id && cr.user_data == 0xabcd && cr.tpn == 0);
    CHECK(cr.flag.bs.jetty == 1 && cr.flag.bs.s_r == 0);
    CHECK(urma_poll_jfc(here.jfc, 1, &none) == 0);
}

/* Several requests in a row, each of which moves bytes and completes once. */
static void row(urma_jetty_t *jetty)
{
    for (int i = 0; i < ROW; i++) {
        memset(here.memory, i + 1, 8);
        memset(here.memory + 4096, 0, 8);
        CHECK(post_to(jetty) == URMA_SUCCESS);
        completed(jetty, 8);
        if (wr.opcode == URMA_OPC_WRITE) {
            CHECK(here.memory[4096 + 7] == *(uint8_t *)(uintptr_t)src.addr);
        }
    }
}

/* After a row, the request as it is now is refused, and one like the newest one is not. */
#define REFUSED(change, back)                                                                     \
    do {                                                                                          \
        row(here.jetty);                                                                          \
        change;                                                                                   \
        CHECK(post_to(here.jetty) == URMA_EINVAL);                                                \
        back;                                                                                     \
        CHECK(post_to(here.jetty) == URMA_SUCCESS);                                               \
        completed(here.jetty, 8);                                                                 \
    } while (0)

static void other_names(void)
{
    urma_target_seg_t *seg = here.seg;

    start(URMA_OPC_WRITE);
    REFUSED(src.tseg = NULL, src.tseg = seg);
    REFUSED(dst.tseg = NULL, dst.tseg = far);
    REFUSED(src.tseg = far, src.tseg = seg);
    REFUSED(wr.tjetty = NULL, wr.tjetty = target);
    REFUSED(wr.tjetty = (urma_target_jetty_t *)far, wr.tjetty = target);
    REFUSED(wr.rw.src.sge = NULL, wr.rw.src.sge = &src);
    REFUSED(wr.rw.dst.sge = NULL, wr.rw.dst.sge = &dst);
    REFUSED(wr.rw.src.num_sge = 33, wr.rw.src.num_sge = 1);
    REFUSED(wr.rw.dst.num_sge = 0, wr.rw.dst.num_sge = 1);
    REFUSED(src.addr -= 1, src.addr += 1);
    REFUSED(dst.addr += 4089, dst.addr -= 4089);
    REFUSED(wr.opcode = 0xff, wr.opcode = URMA_OPC_WRITE);
}

/* NULL for an argument, and a post of two requests. */
static void other_arguments(void)
{
    urma_jfs_wr_t second, *bad = NULL;
    urma_cr_t cr;

    start(URMA_OPC_WRITE);
    row(here.jetty);
    CHECK(urma_post_jetty_send_wr(NULL, &wr, &bad) == URMA_EINVAL && bad == NULL);
    CHECK(urma_post_jetty_send_wr(here.jetty, NULL, &bad) == URMA_EINVAL && bad == NULL);
    CHECK(urma_post_jetty_send_wr(here.jetty, &wr, NULL) == URMA_EINVAL);
    CHECK(urma_post_jetty_send_wr((urma_jetty_t *)((char *)here.jetty + 8), &wr, &bad) == URMA_EINVAL);
    CHECK(urma_poll_jfc(NULL, 1, &cr) == -1 && urma_poll_jfc(here.jfc, 1, NULL) == -1);
    CHECK(urma_poll_jfc((urma_jfc_t *)here.jetty, 1, &cr) == -1 && urma_poll_jfc(here.jfc, -1, &cr) == -1);
    CHECK(urma_poll_jfc(here.jfc, 0, &cr) == 0);
    second = wr;
    wr.next = &second;
    wr.user_ctx = next_ctx;
    second.user_ctx = next_ctx + 1;
    CHECK(urma_post_jetty_send_wr(here.jetty, &wr, &bad) == URMA_SUCCESS && bad == NULL);
    CHECK(end_wait(here.jfc).user_ctx == next_ctx && end_wait(here.jfc).user_ctx == next_ctx + 1);
    next_ctx += 2;
}

/* Another operation, other flags, another length: done as it says. */
static void other_operations(void)
{
    urma_cr_t cr;

    start(URMA_OPC_WRITE);
    row(here.jetty);
    /* A read from where the write read: its first piece is the remote one. */
    memset(here.memory, 11, 8);
    memset(here.memory + 4096, 22, 8);
    wr.opcode = URMA_OPC_READ;
    src = end_far(far, 4096, 8);
    dst = end_piece(&here, 0, 8);
    CHECK(post_to(here.jetty) == URMA_SUCCESS);
    completed(here.jetty, 8);
    CHECK(here.memory[0] == 22);
    start(URMA_OPC_WRITE);
    row(here.jetty);
    wr.flag.bs.complete_enable = 0;
    memset(here.memory, 33, 8);
    CHECK(post_to(here.jetty) == URMA_SUCCESS);
    CHECK(here.memory[4096] == 33 && urma_poll_jfc(here.jfc, 1, &cr) == 0);
    start(URMA_OPC_WRITE);
    row(here.jetty);
    wr.flag.bs.inline_flag = 1;
    memset(here.memory, 44, 8);
    CHECK(post_to(here.jetty) == URMA_SUCCESS);
    completed(here.jetty, 8);
    CHECK(here.memory[4096] == 44);
    start(URMA_OPC_WRITE);
    row(here.jetty);
    memset(here.memory, 55, 64);
    src.len = dst.len = 64;
    CHECK(post_to(here.jetty) == URMA_SUCCESS);
    completed(here.jetty, 64);
    CHECK(here.memory[4096 + 63] == 55);
}

/* Atomics like the newest one, and with each of the things that differ. */
static void atomics(urma_opcode_t opcode)
{
    uint64_t *word = (uint64_t *)(void *)(here.memory + 4096), *before = (uint64_t *)(void *)here.memory;
    urma_target_seg_t *seg = here.seg;

    start(opcode);
    for (uint64_t i = 0; i < ROW; i++) {
        *word = 100 + i;
        if (opcode == URMA_OPC_CAS) {
            wr.cas.cmp_data = i % 2 == 0 ? 100 + i : 1;
            wr.cas.swap_data = 7000 + i;
        } else {
            wr.faa.operand = i;
        }
        CHECK(post_to(here.jetty) == URMA_SUCCESS);
        completed(here.jetty, 8);
        CHECK(*before == 100 + i);
        CHECK(*word == (opcode == URMA_OPC_FADD ? 100 + 2 * i : i % 2 == 0 ? 7000 + i : 100 + i));
    }
    REFUSED(src.tseg = NULL, src.tseg = seg);
    REFUSED(dst.tseg = NULL, dst.tseg = far);
    REFUSED(wr.tjetty = NULL, wr.tjetty = target);
    REFUSED(src.len = 3, src.len = 8);
    REFUSED(src.addr += 4, src.addr -= 4);
    REFUSED(dst.addr += 4096, dst.addr -= 4096);
    if (opcode == URMA_OPC_CAS) {
        REFUSED(wr.cas.src = NULL, wr.cas.src = &src);
        REFUSED(wr.cas.dst = NULL, wr.cas.dst = &dst);
    } else {
        REFUSED(wr.faa.src = NULL, wr.faa.src = &src);
        REFUSED(wr.faa.dst = NULL, wr.faa.dst = &dst);
    }
    /* Not signalled: done, without a completion. */
    urma_cr_t cr;
    row(here.jetty);
    wr.flag.bs.complete_enable = 0;
    *word = 5;
    if (opcode == URMA_OPC_CAS) {
        wr.cas.cmp_data = 5;
        wr.cas.swap_data = 6;
    } else {
        wr.faa.operand = 1;
    }
    CHECK(post_to(here.jetty) == URMA_SUCCESS && *word == 6);
    CHECK(urma_poll_jfc(here.jfc, 1, &cr) == 0);
    /* The other kind of atomic at the same place. */
    start(opcode);
    row(here.jetty);
    start(opcode == URMA_OPC_CAS ? URMA_OPC_FADD : URMA_OPC_CAS);
    *word = 9;
    if (opcode == URMA_OPC_CAS) {
        wr.faa.operand = 2;
    } else {
        wr.cas.cmp_data = 9;
        wr.cas.swap_data = 11;
    }
    CHECK(post_to(here.jetty) == URMA_SUCCESS);
    completed(here.jetty, 8);
    CHECK(*word == 11);
}

/* Segments and targets that ended, and others that lie where they lay. */
static void names_that_ended(urma_opcode_t opcode)
{
    urma_seg_cfg_t cfg = {0};
    uint8_t *memory = aligned_alloc(4096, 4096);
    urma_target_seg_t *old = far, *seg;

    CHECK(memory != NULL);
    memset(memory, 77, 4096);
    /* An imported segment. */
    start(opcode);
    row(here.jetty);
    CHECK(urma_unimport_seg(far) == URMA_SUCCESS);
    CHECK(post_to(here.jetty) == URMA_EINVAL);
    far = end_import_seg(&here, &self);
    start(opcode);
    row(here.jetty);
    /* A target. */
    urma_target_jetty_t *old_target = target;
    CHECK(urma_unimport_jetty(target) == URMA_SUCCESS);
    CHECK(post_to(here.jetty) == URMA_EINVAL);
    target = end_import_jetty(&here, &self);
    CHECK(target != old_target || post_to(here.jetty) == URMA_SUCCESS);
    /* A local segment, until another one has its address. */
    cfg.va = (uint64_t)(uintptr_t)memory;
    cfg.len = 4096;
    cfg.flag.bs.access = URMA_ACCESS_READ | URMA_ACCESS_WRITE | URMA_ACCESS_ATOMIC;
    CHECK((old = urma_register_seg(here.ctx, &cfg)) != NULL);
    start(opcode);
    src = end_far(old, 0, 8);
    row(here.jetty);
    CHECK(urma_unregister_seg(old) == URMA_SUCCESS);
    CHECK(post_to(here.jetty) == URMA_EINVAL);
    int tries = 0;
    do {
        cfg.va = (uint64_t)(uintptr_t)here.memory;
        CHECK((seg = urma_register_seg(here.ctx, &cfg)) != NULL);
        if (seg != old) {
            CHECK(urma_unregister_seg(seg) == URMA_SUCCESS);
        }
    } while (seg != old && ++tries < REUSED);
    CHECK(seg == old);
    /* The request of before names memory that the new one has not. */
    CHECK(post_to(here.jetty) == URMA_EINVAL);
    src = end_far(seg, 0, 8);
    row(here.jetty);
    CHECK(urma_unregister_seg(seg) == URMA_SUCCESS);
    free(memory);
}

/* Queues that ended, and others that lie where they lay. */
static void queues_that_ended(void)
{
    urma_jfs_wr_t *bad = NULL;
    urma_cr_t cr;
    int tries = 0;

    start(URMA_OPC_WRITE);
    row(here.jetty);
    urma_jetty_t *old = here.jetty;
    CHECK(urma_delete_jetty(old) == URMA_SUCCESS);
    CHECK(urma_post_jetty_send_wr(old, &wr, &bad) == URMA_EINVAL && bad == NULL);
    while ((here.jetty = made_jetty(here.jfc)) != old && ++tries < REUSED) {
        CHECK(urma_delete_jetty(here.jetty) == URMA_SUCCESS);
    }
    CHECK(here.jetty == old);
    row(here.jetty);
    CHECK(urma_delete_jetty(here.jetty) == URMA_SUCCESS);
    urma_jfc_t *jfc = here.jfc;
    CHECK(urma_delete_jfc(jfc) == URMA_SUCCESS);
    errno = 0;
    CHECK(urma_poll_jfc(jfc, 1, &cr) == -1 && errno == EINVAL);
    for (tries = 0; (here.jfc = made_jfc()) != jfc && tries < REUSED; tries++) {
        CHECK(urma_delete_jfc(here.jfc) == URMA_SUCCESS);
    }
    CHECK(here.jfc == jfc);
    here.jetty = made_jetty(here.jfc);
    row(here.jetty);
    /* A queue that stopped carries nothing out. */
    urma_jetty_attr_t attr = {0};
    attr.mask = JETTY_STATE;
    attr.state = URMA_JETTY_STATE_ERROR;
    CHECK(urma_modify_jetty(here.jetty, &attr) == URMA_SUCCESS);
    memset(here.memory + 4096, 0, 8);
    (void)post_to(here.jetty);
    CHECK(here.memory[4096] == 0);
    CHECK(urma_delete_jetty(here.jetty) == URMA_SUCCESS);
    while (urma_poll_jfc(here.jfc, 1, &cr) == 1) {
    }
    here.jetty = made_jetty(here.jfc);
}

/* Two jetties and two JFCs in turn. */
static void several_queues(void)
{
    urma_jfc_t *first = here.jfc, *second = made_jfc();
    urma_jetty_t *other = made_jetty(second);

    start(URMA_OPC_WRITE);
    for (int i = 0; i < ROW; i++) {
        row(here.jetty);
        here.jfc = second;
        row(other);
        here.jfc = first;
    }
    CHECK(urma_delete_jetty(other) == URMA_SUCCESS && urma_delete_jfc(second) == URMA_SUCCESS);
}

static int wrapped_posts, wrapped_polls;
static urma_ops_t original;

static urma_status_t wrapped_post(urma_jetty_t *jetty, urma_jfs_wr_t *list, urma_jfs_wr_t **bad)
{
    wrapped_posts++;
    return original.post_jetty_send_wr(jetty, list, bad);
}

static int wrapped_poll(urma_jfc_t *jfc, int count, urma_cr_t *cr)
{
    wrapped_polls++;
    return original.poll_jfc(jfc, count, cr);
}

/* A program that wraps an operation sees each call from then on, and none afterwards. */
static void wrapped(urma_opcode_t opcode)
{
    start(opcode);
    row(here.jetty);
    original = *here.ctx->ops;
    wrapped_posts = wrapped_polls = 0;
    here.ctx->ops->post_jetty_send_wr = wrapped_post;
    here.ctx->ops->poll_jfc = wrapped_poll;
    row(here.jetty);
    CHECK(wrapped_posts == ROW && wrapped_polls >= 2 * ROW);
    *here.ctx->ops = original;
    wrapped_posts = wrapped_polls = 0;
    row(here.jetty);
    CHECK(wrapped_posts == 0 && wrapped_polls == 0);
}

/* As wrapped, of queues that were used a few times: this thread has no lease of them. */
static void wrapped_new(urma_opcode_t opcode)
{
    urma_jfc_t *jfc = here.jfc;
    urma_jetty_t *jetty = here.jetty;

    here.jfc = made_jfc();
    here.jetty = made_jetty(here.jfc);
    wrapped(opcode);
    CHECK(urma_delete_jetty(here.jetty) == URMA_SUCCESS && urma_delete_jfc(here.jfc) == URMA_SUCCESS);
    here.jfc = jfc;
    here.jetty = jetty;
}

/* Calls of this kind that are counted. */
static long counted(const char *kind)
{
    static char text[65536], format[64];
    uint32_t len = sizeof(text);
    long count = 0;

    CHECK(urma_get_perf_info(text, &len) == URMA_SUCCESS);
    const char *line = strstr(text, kind);
    CHECK(snprintf(format, sizeof(format), "%s | %%ld", kind) > 0);
    CHECK(line == NULL || sscanf(line, format, &count) == 1);
    return count;
}

/* Calls are measured from when that is asked for on, whatever was posted before. Those below 20 ns do not count. */
static void measured(void)
{
    start(URMA_OPC_WRITE);
    for (int round = 0; round < 2; round++) {
        row(here.jetty);
        CHECK(urma_start_perf() == URMA_SUCCESS);
        for (int i = 0; i < 100; i++) {
            row(here.jetty);
        }
        CHECK(urma_stop_perf() == URMA_SUCCESS);
        CHECK(counted("UB_JETTY_POST_SEND") > 100 && counted("UB_POLL_JFC") > 100);
        long posts = counted("UB_JETTY_POST_SEND");
        row(here.jetty);
        CHECK(counted("UB_JETTY_POST_SEND") == posts);
    }
}

/* A forked child has no device: nothing is written, nothing completes. */
static void forked(urma_opcode_t opcode)
{
    int status = 0;

    start(opcode);
    row(here.jetty);
    memset(here.memory, 99, 8);
    CHECK(post_to(here.jetty) == URMA_SUCCESS); /* its completion waits */
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        urma_jfs_wr_t *bad = NULL;
        urma_cr_t cr;
        memset(here.memory + 4096, 0, 8);
        errno = 0;
        int is_refused = urma_poll_jfc(here.jfc, 1, &cr) == -1 && errno == ENODEV;
        is_refused = is_refused && urma_post_jetty_send_wr(here.jetty, &wr, &bad) == ENODEV;
        is_refused = is_refused && here.memory[4096] == 0;
        _exit(is_refused ? 0 : 1);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    completed(here.jetty, 8);
    row(here.jetty);
}

enum { THREADS = 3, POSTS = 4000 };

/* Posts to one queue, each request with a number of its own. */
static void *posting(void *first)
{
    urma_sge_t near = end_piece(&here, 0, 8), there = end_far(far, 4096, 8);
    urma_jfs_wr_t mine = wr, *bad = NULL;

    mine.rw.src.sge = &near;
    mine.rw.dst.sge = &there;
    for (uint64_t i = 0; i < POSTS; i++) {
        mine.user_ctx = (uint64_t)(uintptr_t)first + i;
        urma_status_t status;
        while ((status = urma_post_jetty_send_wr(here.jetty, &mine, &bad)) == FULL) {
        }
        CHECK(status == URMA_SUCCESS);
    }
    return NULL;
}

/* Several threads post to one queue while one polls: each request completes once. */
static void threads(void)
{
    static uint8_t seen[THREADS * POSTS];
    pthread_t thread[THREADS];
    urma_cr_t cr;

    start(URMA_OPC_WRITE);
    row(here.jetty);
    for (uintptr_t i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&thread[i], NULL, posting, (void *)(i * POSTS)) == 0);
    }
    for (int i = 0; i < THREADS * POSTS; i++) {
        cr = end_wait(here.jfc);
        CHECK(cr.status == URMA_CR_SUCCESS && cr.user_ctx < THREADS * POSTS && !seen[cr.user_ctx]++);
    }
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_join(thread[i], NULL) == 0);
    }
    CHECK(urma_poll_jfc(here.jfc, 1, &cr) == 0);
}

int main(void)
{
    CHECK(urma_init(NULL) == URMA_SUCCESS);
    urma_log_set_level(URMA_VLOG_LEVEL_ERR);
    end_open(&here, urma_get_device_by_name((char *)"udma0"), URMA_TM_RM);
    self = end_info(&here);
    urma_jfc_t *jfc = here.jfc;
    urma_jetty_t *jetty = here.jetty;
    target = end_import_jetty(&here, &self);
    far = end_import_seg(&here, &self);
    here.jfc = made_jfc();
    here.jetty = made_jetty(here.jfc);

    other_names();
    other_arguments();
    other_operations();
    atomics(URMA_OPC_FADD);
    atomics(URMA_OPC_CAS);
    names_that_ended(URMA_OPC_WRITE);
    names_that_ended(URMA_OPC_FADD);
    queues_that_ended();
    several_queues();
    wrapped(URMA_OPC_WRITE);
    wrapped(URMA_OPC_CAS);
    wrapped_new(URMA_OPC_WRITE);
    wrapped_new(URMA_OPC_CAS);
    measured();
    forked(URMA_OPC_WRITE);
    forked(URMA_OPC_FADD);
    threads();

    CHECK(urma_delete_jetty(here.jetty) == URMA_SUCCESS && urma_delete_jfc(here.jfc) == URMA_SUCCESS);
    here.jfc = jfc;
    here.jetty = jetty;
    CHECK(urma_unimport_seg(far) == URMA_SUCCESS && urma_unimport_jetty(target) == URMA_SUCCESS);
    end_close(&here);
    CHECK(urma_uninit() == URMA_SUCCESS);
    return 0;
}
