/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Several threads: posts, polls, registrations and deletes at once; stale pointers of every kind; a
 * program that wraps operations of `ctx->ops`.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "end.h"

#include <ub/umdk/urma/urma_provider.h>

static struct end here, there;
static urma_target_jetty_t *target;
static urma_target_seg_t *remote;
static atomic_uintptr_t current;
static atomic_int stop;

/* Registers and unregisters memory that the poster names all the time. */
static void *registering(void *unused)
{
    urma_seg_cfg_t cfg = {0};
    cfg.va = (uint64_t)(uintptr_t)here.memory + 4096;
    cfg.len = 4096;
    cfg.flag.bs.access = URMA_ACCESS_LOCAL_ONLY;
    for (int i = 0; i < 300; i++) {
        urma_target_seg_t *seg = urma_register_seg(here.ctx, &cfg);
        CHECK(seg != NULL);
        atomic_store(&current, (uintptr_t)seg);
        CHECK(urma_unregister_seg(seg) == URMA_SUCCESS);
    }
    atomic_store(&stop, 1);
    return unused;
}

static void *polling(void *unused)
{
    urma_cr_t cr[8];
    while (!atomic_load(&stop)) {
        int count = urma_poll_jfc(here.jfc, 8, cr);
        CHECK(count >= 0);
        for (int i = 0; i < count; i++) {
            /* Memory that went before the device read it is an access error, not a crash. */
            CHECK(cr[i].status == URMA_CR_SUCCESS || cr[i].status == URMA_CR_LOC_ACCESS_ERR ||
                  cr[i].status == URMA_CR_WR_FLUSH_ERR || cr[i].status == URMA_CR_WR_FLUSH_ERR_DONE);
        }
    }
    return unused;
}

static void posting_and_deleting(void)
{
    pthread_t threads[2];
    urma_sge_t dst = {0};

    atomic_store(&stop, 0);
    dst.addr = remote->seg.ubva.va;
    dst.len = 8;
    dst.tseg = remote;
    CHECK(pthread_create(&threads[0], NULL, registering, NULL) == 0);
    CHECK(pthread_create(&threads[1], NULL, polling, NULL) == 0);
    while (!atomic_load(&stop)) {
        urma_sge_t src = end_piece(&here, 4096, 8);
        src.tseg = (urma_target_seg_t *)atomic_load(&current);
        urma_status_t status = end_post(&here, URMA_OPC_WRITE, target, &src, &dst);
        /* The segment may be gone, the queue full (ENOMEM), a deletion under way. */
        CHECK(status == URMA_SUCCESS || status == URMA_EINVAL || status == URMA_EAGAIN ||
              status == URMA_ENOMEM);
    }
    CHECK(pthread_join(threads[0], NULL) == 0 && pthread_join(threads[1], NULL) == 0);
}

static atomic_int deleted;

static void *deleting(void *jfc)
{
    urma_status_t status = urma_delete_jfc(jfc);
    CHECK(status == URMA_SUCCESS || status == URMA_EINVAL);
    atomic_fetch_add(&deleted, status == URMA_SUCCESS);
    return NULL;
}

static void one_deleter_wins(void)
{
    urma_jfc_cfg_t cfg = {0};
    cfg.depth = 4;
    for (int i = 0; i < 50; i++) {
        pthread_t threads[3];
        urma_jfc_t *jfc = urma_create_jfc(here.ctx, &cfg);
        CHECK(jfc != NULL);
        atomic_store(&deleted, 0);
        for (int k = 0; k < 3; k++) {
            CHECK(pthread_create(&threads[k], NULL, deleting, jfc) == 0);
        }
        for (int k = 0; k < 3; k++) {
            CHECK(pthread_join(threads[k], NULL) == 0);
        }
        CHECK(atomic_load(&deleted) == 1);
    }
}

static void *refused(void *jfc)
{
    while (!atomic_load(&stop)) {
        urma_status_t status = urma_delete_jfc(jfc);
        CHECK(status == URMA_EAGAIN || status == URMA_EINVAL); /* the other thread is at it */
    }
    return NULL;
}

/* An event that is acknowledged while another thread tries to delete its queue counts. */
static void acknowledging_and_deleting(void)
{
    enum { EVENTS = 20000 };
    pthread_t threads[2];
    urma_sge_t src = end_piece(&here, 0, 8), dst = end_far(remote, 0, 8);
    uint32_t one = 1, before = here.jfc->comp_events_acked;

    /* Its completion stays, so that each arming raises an event. */
    CHECK(end_post(&here, URMA_OPC_WRITE, target, &src, &dst) == URMA_SUCCESS);
    atomic_store(&stop, 0);
    for (int i = 0; i < 2; i++) {
        CHECK(pthread_create(&threads[i], NULL, refused, here.jfc) == 0);
    }
    for (int i = 0; i < EVENTS; i++) {
        urma_jfc_t *woken = NULL;
        while (urma_rearm_jfc(here.jfc, false) != URMA_SUCCESS) {
            /* Just being deleted, in vain. */
        }
        CHECK(urma_wait_jfc(here.jfce, 1, 10000, &woken) == 1 && woken == here.jfc);
        urma_ack_jfc(&woken, &one, 1);
    }
    atomic_store(&stop, 1);
    CHECK(pthread_join(threads[0], NULL) == 0 && pthread_join(threads[1], NULL) == 0);
    CHECK(here.jfc->comp_events_acked == before + EVENTS);
}

static void *waiting(void *unused)
{
    urma_async_event_t event;
    CHECK(urma_get_async_event(there.ctx, &event) == URMA_EINVAL);
    return unused;
}

static void *waiting_for_jfc(void *jfce)
{
    urma_jfc_t *jfc = NULL;
    CHECK(urma_wait_jfc(jfce, 1, -1, &jfc) <= 0);
    return NULL;
}

static int polls;
static int (*original)(urma_jfc_t *, int, urma_cr_t *);

static int counted(urma_jfc_t *jfc, int count, urma_cr_t *cr)
{
    polls++;
    return original(jfc, count, cr);
}

static void wrapped(void)
{
    urma_ops_t mine = *there.ctx->ops;
    urma_ops_t *theirs = there.ctx->ops;
    urma_cr_t cr;

    /* A table of one's own for one context, then the shared one changed in place. */
    original = mine.poll_jfc;
    mine.poll_jfc = counted;
    mine.create_jfce = NULL;
    there.ctx->ops = &mine;
    CHECK(urma_poll_jfc(there.jfc, 1, &cr) == 0 && polls == 1);
    CHECK(urma_poll_jfc(here.jfc, 1, &cr) == 0 && polls == 1);
    errno = 0;
    CHECK(urma_create_jfce(there.ctx) == NULL && errno == EINVAL);
    there.ctx->ops = theirs;
    theirs->poll_jfc = counted;
    CHECK(urma_poll_jfc(here.jfc, 1, &cr) == 0 && polls == 2);
    theirs->poll_jfc = original;
    there.ctx->ops = NULL;
    CHECK(urma_poll_jfc(there.jfc, 1, &cr) == -1);
    there.ctx->ops = theirs;
}

/* Every function that takes an object, with what is no such object. */
static void stale(void *bad)
{
    urma_jfc_attr_t jfc_attr = {0};
    urma_jfs_attr_t jfs_attr = {0};
    urma_jfr_attr_t jfr_attr = {0};
    urma_jetty_attr_t jetty_attr = {0};
    urma_jfs_cfg_t jfs_cfg;
    urma_jfr_cfg_t jfr_cfg;
    urma_jetty_cfg_t jetty_cfg;
    urma_jfs_wr_t wr = {0}, *bad_wr;
    urma_jfr_wr_t recv = {0}, *bad_recv;
    urma_jfc_t *jfc;
    urma_cr_t cr;

    CHECK(urma_delete_context(bad) == URMA_EINVAL);
    CHECK(urma_create_jfce(bad) == NULL && urma_create_jfc(bad, NULL) == NULL);
    CHECK(urma_create_jfs(bad, NULL) == NULL && urma_create_jfr(bad, NULL) == NULL);
    CHECK(urma_create_jetty(bad, NULL) == NULL && urma_create_jetty_grp(bad, NULL) == NULL);
    CHECK(urma_register_seg(bad, NULL) == NULL && urma_alloc_token_id(bad) == NULL);
    CHECK(urma_delete_jfce(bad) == URMA_EINVAL && urma_delete_jfc(bad) == URMA_EINVAL);
    CHECK(urma_delete_jfs(bad) == URMA_EINVAL && urma_delete_jfr(bad) == URMA_EINVAL);
    CHECK(urma_delete_jetty(bad) == URMA_EINVAL && urma_delete_jetty_grp(bad) == URMA_EINVAL);
    CHECK(urma_modify_jfc(bad, &jfc_attr) == URMA_EINVAL);
    CHECK(urma_modify_jfs(bad, &jfs_attr) == URMA_EINVAL);
    CHECK(urma_modify_jfr(bad, &jfr_attr) == URMA_EINVAL);
    CHECK(urma_modify_jetty(bad, &jetty_attr) == URMA_EINVAL);
    CHECK(urma_query_jfs(bad, &jfs_cfg, &jfs_attr) == URMA_EINVAL);
    CHECK(urma_query_jfr(bad, &jfr_cfg, &jfr_attr) == URMA_EINVAL);
    CHECK(urma_query_jetty(bad, &jetty_cfg, &jetty_attr) == URMA_EINVAL);
    CHECK(urma_flush_jfs(bad, 1, &cr) == -URMA_EINVAL);
    CHECK(urma_flush_jetty(bad, 1, &cr) == -URMA_EINVAL);
    CHECK(urma_poll_jfc(bad, 1, &cr) == -1 && urma_wait_jfc(bad, 1, 0, &jfc) == -1);
    CHECK(urma_rearm_jfc(bad, true) == URMA_EINVAL);
    CHECK(urma_post_jfs_wr(bad, &wr, &bad_wr) == URMA_EINVAL);
    CHECK(urma_post_jfr_wr(bad, &recv, &bad_recv) == URMA_EINVAL);
    CHECK(urma_post_jetty_send_wr(bad, &wr, &bad_wr) == URMA_EINVAL);
    CHECK(urma_post_jetty_recv_wr(bad, &recv, &bad_recv) == URMA_EINVAL);
    CHECK(urma_unimport_jetty(bad) == URMA_EINVAL && urma_unimport_jfr(bad) == URMA_EINVAL);
    CHECK(urma_unregister_seg(bad) == URMA_EINVAL && urma_unimport_seg(bad) == URMA_EINVAL);
    CHECK(urma_free_token_id(bad) == URMA_EINVAL);
    CHECK(urma_bind_jetty(bad, target) == URMA_EINVAL);
    CHECK(urma_bind_jetty(here.jetty, bad) == URMA_EINVAL);
    CHECK(urma_unbind_jetty(bad) == URMA_EINVAL);
    CHECK(urma_advise_jetty(here.jetty, bad) == URMA_EINVAL);
#if URMA_ABI_PROFILE == URMA_ABI_26_06
    urma_seg_t *seg;
    urma_rjetty_t *rjetty;
    uint32_t size;
    CHECK(urma_get_seg_ctx(bad, &seg, &size) == URMA_EINVAL);
    CHECK(urma_get_rjetty(bad, &rjetty, &size) == URMA_EINVAL);
#endif
    CHECK(urma_query_device(bad, NULL) == URMA_EINVAL && urma_create_context(bad, 0) == NULL);
}

int main(void)
{
    pthread_t event, channel;
    CHECK(urma_init(NULL) == URMA_SUCCESS);
    urma_log_set_level(URMA_VLOG_LEVEL_EMERG);
    urma_device_t *dev = urma_get_device_by_name((char *)"udma0");
    end_open(&here, dev, URMA_TM_RM);
    end_open(&there, dev, URMA_TM_RM);
    struct info peer = end_info(&there);
    target = end_import_jetty(&here, &peer);
    remote = end_import_seg(&here, &peer);

    wrapped();
    one_deleter_wins();
    acknowledging_and_deleting();
    posting_and_deleting();
    stale(NULL);
    stale((void *)1);
    stale((char *)here.jetty + 8);
    stale((char *)here.jetty - 64);
    urma_token_id_t *gone = urma_alloc_token_id(here.ctx);
    CHECK(urma_free_token_id(gone) == URMA_SUCCESS);
    stale(gone);

    CHECK(urma_unimport_seg(remote) == 0 && urma_unimport_jetty(target) == 0);
    end_close(&here);
    urma_jfce_t *jfce = there.jfce;
    CHECK(pthread_create(&event, NULL, waiting, NULL) == 0);
    urma_jfce_t *extra = urma_create_jfce(there.ctx);
    CHECK(extra != NULL && jfce != extra);
    CHECK(pthread_create(&channel, NULL, waiting_for_jfc, extra) == 0);
    CHECK(urma_delete_jfce(extra) == URMA_SUCCESS); /* who waits returns */
    CHECK(pthread_join(channel, NULL) == 0);
    end_close(&there);
    CHECK(pthread_join(event, NULL) == 0);
    CHECK(urma_uninit() == URMA_SUCCESS);
    return 0;
}
