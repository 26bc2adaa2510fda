/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What the C tests share: checks that say where they failed, and one end of a connection: context,
 * queues and registered memory.
 */
#ifndef END_H
#define END_H

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <ub/umdk/urma/urma_api.h>

enum { MEMORY = 8192, TOKEN = 0x5eed, UNTOUCHED = 4711 };

/* What a post to a full queue answers with, which differs between UMDK's releases. */
#if URMA_ABI_PROFILE == URMA_ABI_26_06
#define FULL URMA_ENOMEM
#else
#define FULL URMA_EINVAL
#endif

/* Whether a check expects success of each call of the library in it, so that errno stays as it is. */
static inline int end_succeeds(const char *check)
{
    static const char *const fails[] = {"== NULL", "URMA_E", "URMA_FAIL", "-1", "errno", "!= 0", "||"};

    for (size_t i = 0; i < sizeof fails / sizeof fails[0]; i++) {
        if (strstr(check, fails[i]) != NULL) {
            return 0;
        }
    }
    return strstr(check, "urma_") != NULL &&
           (strstr(check, "== URMA_SUCCESS") != NULL || strstr(check, "!= NULL") != NULL);
}

#define CHECK(holds)                                                                              \
    do {                                                                                          \
        int end_is_good = end_succeeds(#holds);                                                   \
        errno = end_is_good ? UNTOUCHED : errno;                                                  \
        if (!(holds)) {                                                                           \
            fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #holds, errno);         \
            exit(1);                                                                              \
        }                                                                                         \
        if (end_is_good && errno != UNTOUCHED) {                                                  \
            fprintf(stderr, "%s:%d: %s sets errno %d\n", __FILE__, __LINE__, #holds, errno);      \
            exit(1);                                                                              \
        }                                                                                         \
    } while (0)

/* One end of a connection. */
struct end {
    urma_context_t *ctx;
    urma_jfce_t *jfce;
    urma_jfc_t *jfc;
    urma_jfr_t *jfr;
    urma_jetty_t *jetty;
    urma_target_seg_t *seg;
    uint8_t *memory;
};

/* What the other end needs to know of it. */
struct info {
    urma_seg_t seg;
    urma_rjetty_t jetty;
};

/* Memory of an imported segment, from `offset` on. */
static inline urma_sge_t end_far(urma_target_seg_t *seg, size_t offset, uint32_t len)
{
    urma_sge_t sge = {0};
    sge.addr = seg->seg.ubva.va + offset;
    sge.len = len;
    sge.tseg = seg;
    return sge;
}

static inline void end_open(struct end *end, urma_device_t *dev, urma_transport_mode_t mode)
{
    urma_jfc_cfg_t jfc_cfg = {0};
    urma_jfr_cfg_t jfr_cfg = {0};
    urma_jetty_cfg_t cfg = {0};
    urma_seg_cfg_t seg_cfg = {0};

    memset(end, 0, sizeof(*end));
    CHECK((end->ctx = urma_create_context(dev, 0)) != NULL);
    CHECK((end->jfce = urma_create_jfce(end->ctx)) != NULL);
    jfc_cfg.depth = 64;
    jfc_cfg.jfce = end->jfce;
    CHECK((end->jfc = urma_create_jfc(end->ctx, &jfc_cfg)) != NULL);

    jfr_cfg.depth = 16;
    jfr_cfg.trans_mode = mode;
    jfr_cfg.max_sge = 2;
    jfr_cfg.min_rnr_timer = URMA_TYPICAL_MIN_RNR_TIMER;
    jfr_cfg.jfc = end->jfc;
    jfr_cfg.flag.bs.token_policy = URMA_TOKEN_PLAIN_TEXT;
    jfr_cfg.token_value.token = TOKEN;
    CHECK((end->jfr = urma_create_jfr(end->ctx, &jfr_cfg)) != NULL);

    cfg.flag.bs.share_jfr = URMA_SHARE_JFR;
    cfg.jfs_cfg.depth = 16;
    cfg.jfs_cfg.trans_mode = mode;
    cfg.jfs_cfg.max_sge = 2;
    cfg.jfs_cfg.max_rsge = 1;
    cfg.jfs_cfg.max_inline_data = 64;
    cfg.jfs_cfg.rnr_retry = URMA_TYPICAL_RNR_RETRY;
    cfg.jfs_cfg.err_timeout = URMA_TYPICAL_ERR_TIMEOUT;
    cfg.jfs_cfg.jfc = end->jfc;
    cfg.shared.jfr = end->jfr;
    CHECK((end->jetty = urma_create_jetty(end->ctx, &cfg)) != NULL);

    CHECK((end->memory = aligned_alloc(4096, MEMORY)) != NULL);
    memset(end->memory, 0, MEMORY);
    seg_cfg.va = (uint64_t)(uintptr_t)end->memory;
    seg_cfg.len = MEMORY;
    seg_cfg.token_value.token = TOKEN;
    seg_cfg.flag.bs.token_policy = URMA_TOKEN_PLAIN_TEXT;
    seg_cfg.flag.bs.access = URMA_ACCESS_READ | URMA_ACCESS_WRITE | URMA_ACCESS_ATOMIC;
    CHECK((end->seg = urma_register_seg(end->ctx, &seg_cfg)) != NULL);
}

static inline void end_close(struct end *end)
{
    CHECK(urma_unregister_seg(end->seg) == URMA_SUCCESS);
    CHECK(urma_delete_jetty(end->jetty) == URMA_SUCCESS);
    CHECK(urma_delete_jfr(end->jfr) == URMA_SUCCESS);
    CHECK(urma_delete_jfc(end->jfc) == URMA_SUCCESS);
    CHECK(urma_delete_jfce(end->jfce) == URMA_SUCCESS);
    CHECK(urma_delete_context(end->ctx) == URMA_SUCCESS);
    free(end->memory);
}

#if URMA_ABI_PROFILE == URMA_ABI_26_06
static inline urma_rjetty_t end_remote(urma_jetty_t *jetty)
{
    urma_rjetty_t *made = NULL, remote;
    uint32_t size = 0;

    CHECK(urma_get_rjetty(jetty, &made, &size) == URMA_SUCCESS && size == sizeof(*made));
    remote = *made;
    urma_put_rjetty(made);
    return remote;
}

static inline struct info end_info(const struct end *end)
{
    struct info info = {0};
    urma_seg_t *seg = NULL;
    uint32_t size = 0;

    CHECK(urma_get_seg_ctx(end->seg, &seg, &size) == URMA_SUCCESS && size == sizeof(*seg));
    info.seg = *seg;
    urma_put_seg_ctx(seg);
    info.jetty = end_remote(end->jetty);
    return info;
}
#else
/* Release 25.12.0.B081 has no calls for this: programs copy the public members. */
static inline urma_rjetty_t end_remote(urma_jetty_t *jetty)
{
    urma_rjetty_t remote = {0};

    remote.jetty_id = jetty->jetty_id;
    remote.trans_mode = jetty->jetty_cfg.jfs_cfg.trans_mode;
    remote.type = URMA_JETTY;
    remote.flag.bs.token_policy = jetty->jetty_cfg.shared.jfr->jfr_cfg.flag.bs.token_policy;
    remote.flag.bs.order_type = jetty->jetty_cfg.jfs_cfg.flag.bs.order_type;
    remote.tp_type = remote.trans_mode == URMA_TM_UM ? URMA_UTP : URMA_RTP;
    return remote;
}

static inline struct info end_info(const struct end *end)
{
    struct info info = {0};

    info.seg = end->seg->seg;
    info.jetty = end_remote(end->jetty);
    return info;
}
#endif

static inline urma_target_jetty_t *end_import_jetty(struct end *end, struct info *peer)
{
    urma_token_t token = {TOKEN};
    urma_target_jetty_t *target = urma_import_jetty(end->ctx, &peer->jetty, &token);
    CHECK(target != NULL);
    return target;
}

static inline urma_target_seg_t *end_import_seg(struct end *end, struct info *peer)
{
    urma_token_t token = {TOKEN};
    urma_import_seg_flag_t flag = {0};
    flag.bs.access = URMA_ACCESS_READ | URMA_ACCESS_WRITE | URMA_ACCESS_ATOMIC;
    urma_target_seg_t *seg = urma_import_seg(end->ctx, &peer->seg, &token, 0, flag);
    CHECK(seg != NULL);
    return seg;
}

/* The next completion; a generous limit, for machines with other things to do. */
static inline urma_cr_t end_wait(urma_jfc_t *jfc)
{
    time_t end = time(NULL) + 60;
    urma_cr_t cr;
    int count;

    errno = UNTOUCHED;
    while ((count = urma_poll_jfc(jfc, 1, &cr)) == 0) {
        CHECK(errno == UNTOUCHED);
        CHECK(time(NULL) < end);
    }
    CHECK(errno == UNTOUCHED);
    CHECK(count == 1);
    return cr;
}

static inline urma_sge_t end_piece(const struct end *end, size_t offset, uint32_t len)
{
    urma_sge_t sge = {0};
    sge.addr = (uint64_t)(uintptr_t)end->memory + offset;
    sge.len = len;
    sge.tseg = end->seg;
    return sge;
}

/* One signalled request; 0 or the status. */
static inline urma_status_t end_post(struct end *end, urma_opcode_t opcode,
                                     urma_target_jetty_t *target, urma_sge_t *src, urma_sge_t *dst)
{
    urma_jfs_wr_t wr = {0};
    urma_jfs_wr_t *bad = NULL;

    wr.opcode = opcode;
    wr.flag.bs.complete_enable = 1;
    wr.tjetty = target;
    wr.user_ctx = 7;
    if (opcode == URMA_OPC_SEND || opcode == URMA_OPC_SEND_IMM) {
        wr.send.src.sge = src;
        wr.send.src.num_sge = 1;
        wr.send.imm_data = 0x123456789abcdef0;
    } else {
        wr.rw.src.sge = src;
        wr.rw.src.num_sge = 1;
        wr.rw.dst.sge = dst;
        wr.rw.dst.num_sge = 1;
    }
    errno = UNTOUCHED;
    urma_status_t status = urma_post_jetty_send_wr(end->jetty, &wr, &bad);
    CHECK(status != URMA_SUCCESS || errno == UNTOUCHED);
    CHECK(status == URMA_SUCCESS || bad == &wr);
    return status;
}

static inline void end_receive(struct end *end, size_t offset, uint32_t len, uint64_t user_ctx)
{
    urma_sge_t sge = end_piece(end, offset, len);
    urma_jfr_wr_t wr = {0};
    urma_jfr_wr_t *bad = NULL;

    wr.src.sge = &sge;
    wr.src.num_sge = 1;
    wr.user_ctx = user_ctx;
    CHECK(urma_post_jetty_recv_wr(end->jetty, &wr, &bad) == URMA_SUCCESS);
}

#endif
