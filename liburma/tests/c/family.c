/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Queues that are allocated first: options by number and length, two states, and a message through
 * jettys that were made so.
 */
#include "end.h"

#define SET(kind, queue, opt, value)                                                              \
    do {                                                                                          \
        __typeof__(value) wanted = (value), got;                                                  \
        memset(&got, 0, sizeof(got));                                                             \
        CHECK(urma_set_##kind##_opt(queue, opt, &wanted, sizeof(wanted)) == URMA_SUCCESS);        \
        CHECK(urma_get_##kind##_opt(queue, opt, &got, sizeof(got)) == URMA_SUCCESS);              \
        CHECK(memcmp(&wanted, &got, sizeof(got)) == 0);                                           \
    } while (0)

/* What no queue may do in a state, and what no option may be. */
#define REFUSALS(kind, queue, depth_opt, ring_opt, full_opt)                                      \
    do {                                                                                          \
        uint32_t word = 16;                                                                       \
        uint64_t twice = 0;                                                                       \
        CHECK(urma_set_##kind##_opt(NULL, depth_opt, &word, 4) == URMA_EINVAL);                   \
        CHECK(urma_set_##kind##_opt(queue, depth_opt, NULL, 4) == URMA_EINVAL);                   \
        CHECK(urma_set_##kind##_opt(queue, depth_opt, &word, 0) == URMA_EINVAL);                  \
        CHECK(urma_set_##kind##_opt(queue, depth_opt, &twice, 8) == URMA_EINVAL);                 \
        CHECK(urma_set_##kind##_opt(queue, 0x7777, &word, 4) == URMA_EINVAL);                     \
        CHECK(urma_set_##kind##_opt(queue, full_opt, &word, 4) == URMA_EINVAL);                   \
        CHECK(urma_set_##kind##_opt(queue, ring_opt, &twice, 8) == EOPNOTSUPP);                   \
        CHECK(urma_get_##kind##_opt(queue, ring_opt, &twice, 8) == EOPNOTSUPP);                   \
        CHECK(urma_get_##kind##_opt(queue, depth_opt, &twice, 8) == URMA_EINVAL);                 \
        CHECK(urma_get_##kind##_opt(queue, 0, &word, 4) == URMA_EINVAL);                          \
        CHECK(urma_get_##kind##_opt(queue, depth_opt, NULL, 4) == URMA_EINVAL);                   \
        CHECK(urma_get_##kind##_opt(NULL, depth_opt, &word, 4) == URMA_EINVAL);                   \
        CHECK(urma_deactive_##kind(queue) == URMA_EINVAL);                                        \
        CHECK(urma_delete_##kind(queue) == URMA_EINVAL);                                          \
        CHECK(urma_active_##kind(NULL) == URMA_EINVAL);                                           \
        CHECK(urma_deactive_##kind(NULL) == URMA_EINVAL && urma_free_##kind(NULL) == URMA_EINVAL); \
    } while (0)

/* An active queue takes no options, and is not freed; a deactivated one starts again. */
#define STATES(kind, queue, depth_opt)                                                            \
    do {                                                                                          \
        uint32_t word = 16;                                                                       \
        CHECK(urma_active_##kind(queue) == URMA_EINVAL);                                          \
        CHECK(urma_free_##kind(queue) == URMA_EINVAL);                                            \
        CHECK(urma_set_##kind##_opt(queue, depth_opt, &word, 4) == URMA_EINVAL);                  \
        CHECK(urma_get_##kind##_opt(queue, depth_opt, &word, 4) == URMA_SUCCESS && word != 0);    \
    } while (0)

struct made {
    urma_jfc_t *jfc;
    urma_jfr_t *jfr;
    urma_jetty_t *jetty;
};

static void make(struct made *made, urma_context_t *ctx, urma_jfce_t *jfce)
{
    urma_jfc_cfg_t jfc_cfg = {0};
    urma_jfr_cfg_t jfr_cfg = {0};
    urma_jetty_cfg_t cfg = {0};
    urma_cr_t cr;
    uint64_t users = ctx->ref.atomic_cnt, channel = jfce->ref.atomic_cnt;

    CHECK(urma_alloc_jfc(ctx, &jfc_cfg, &made->jfc) == URMA_SUCCESS);
    CHECK(made->jfc->urma_ctx == ctx && !made->jfc->urma_jfc_opt.is_actived);
    CHECK(ctx->ref.atomic_cnt == users + 1);
    REFUSALS(jfc, made->jfc, URMA_JFC_DEPTH, URMA_JFC_CQE_BASE_ADDR, URMA_JFC_FULL_CTX);
    CHECK(urma_poll_jfc(made->jfc, 1, &cr) == -1 && errno == EINVAL);
    CHECK(urma_active_jfc(made->jfc) == URMA_EINVAL); /* no depth */
    SET(jfc, made->jfc, URMA_JFC_DEPTH, (uint32_t)64);
    SET(jfc, made->jfc, URMA_JFC_USER_CTX, (uint64_t)0x1234);
    SET(jfc, made->jfc, URMA_JFC_BIND_JFCE, jfce);
    CHECK(jfce->ref.atomic_cnt == channel + 1 && made->jfc->jfc_cfg.depth == 64);
    CHECK(urma_active_jfc(made->jfc) == URMA_SUCCESS && made->jfc->urma_jfc_opt.is_actived);
    STATES(jfc, made->jfc, URMA_JFC_DEPTH);
    uint32_t id = 0;
    CHECK(urma_get_jfc_opt(made->jfc, URMA_JFC_ID, &id, 4) == 0 && id == made->jfc->jfc_id.id);

    CHECK(urma_alloc_jfr(ctx, &jfr_cfg, &made->jfr) == URMA_SUCCESS);
    REFUSALS(jfr, made->jfr, URMA_JFR_DEPTH, URMA_JFR_RQE_BASE_ADDR, URMA_JFR_FULL_CTX);
    SET(jfr, made->jfr, URMA_JFR_DEPTH, (uint32_t)16);
    SET(jfr, made->jfr, URMA_JFR_TRANS_MODE, (uint32_t)URMA_TM_RM);
    SET(jfr, made->jfr, URMA_JFR_MAX_SGE, (uint8_t)2);
    SET(jfr, made->jfr, URMA_JFR_MIN_RNR_TIMER, (uint8_t)URMA_TYPICAL_MIN_RNR_TIMER);
    CHECK(urma_active_jfr(made->jfr) == URMA_EINVAL); /* no JFC */
    SET(jfr, made->jfr, URMA_JFR_BIND_JFC, made->jfc);

    /* A jetty needs an active JFR. */
    CHECK(urma_alloc_jetty(ctx, &cfg, &made->jetty) == URMA_SUCCESS);
    REFUSALS(jetty, made->jetty, URMA_JFS_DEPTH, URMA_JFS_SQE_BASE_ADDR, URMA_JETTY_FULL_CTX);
    urma_jetty_flag_t flag = {0};
    flag.bs.share_jfr = 1;
    SET(jetty, made->jetty, URMA_JETTY_FLAG, flag.value);
    SET(jetty, made->jetty, URMA_JETTY_BIND_JFR, made->jfr);
    SET(jetty, made->jetty, URMA_JFS_BIND_JFC, made->jfc);
    SET(jetty, made->jetty, URMA_JFS_DEPTH, (uint32_t)16);
    SET(jetty, made->jetty, URMA_JFS_TRANS_MODE, (uint32_t)URMA_TM_RM);
    SET(jetty, made->jetty, URMA_JFS_MAX_SGE, (uint8_t)1);
    SET(jetty, made->jetty, URMA_JFS_MAX_RSGE, (uint8_t)1);
    SET(jetty, made->jetty, URMA_JFS_RNR_RETRY, (uint8_t)URMA_TYPICAL_RNR_RETRY);
    SET(jetty, made->jetty, URMA_JFS_ERR_TIMEOUT, (uint8_t)URMA_TYPICAL_ERR_TIMEOUT);
    SET(jetty, made->jetty, URMA_JETTY_USER_CTX, (uint64_t)77);
    CHECK(urma_active_jetty(made->jetty) == URMA_EINVAL);
    CHECK(urma_active_jfr(made->jfr) == URMA_SUCCESS);
    STATES(jfr, made->jfr, URMA_JFR_DEPTH);
    CHECK(made->jfr->jfr_cfg.flag.bs.order_type == URMA_OI);
    CHECK(urma_active_jetty(made->jetty) == URMA_SUCCESS);
    STATES(jetty, made->jetty, URMA_JFS_DEPTH);
    CHECK(made->jetty->jetty_cfg.jfs_cfg.flag.bs.order_type == URMA_OI);
    CHECK(urma_get_jetty_opt(made->jetty, URMA_JETTY_ID, &id, 4) == 0);
    CHECK(id == made->jetty->jetty_id.id && id != 0);
    CHECK(ctx->ref.atomic_cnt == users + 3);
    CHECK(urma_delete_context(ctx) == URMA_EAGAIN);
}

static void send_one(struct end *here, struct made *to)
{
    urma_rjetty_t remote = end_remote(to->jetty);
    urma_token_t token = {0};
    urma_jfr_wr_t recv = {0}, *bad = NULL;
    urma_sge_t sge = end_piece(here, 0, 8), room = end_piece(here, 64, 8);

    urma_target_jetty_t *target = urma_import_jetty(here->ctx, &remote, &token);
    CHECK(target != NULL);
    recv.src.sge = &room;
    recv.src.num_sge = 1;
    recv.user_ctx = 5;
    CHECK(urma_post_jetty_recv_wr(to->jetty, &recv, &bad) == URMA_SUCCESS);
    strcpy((char *)here->memory, "family");
    CHECK(end_post(here, URMA_OPC_SEND, target, &sge, NULL) == URMA_SUCCESS);
    CHECK(end_wait(here->jfc).status == URMA_CR_SUCCESS);
    urma_cr_t cr = end_wait(to->jfc);
    CHECK(cr.status == URMA_CR_SUCCESS && cr.user_ctx == 5);
    CHECK(strcmp((char *)here->memory + 64, "family") == 0);
    CHECK(urma_unimport_jetty(target) == URMA_SUCCESS);
}

static void send_queue(struct end *here)
{
    urma_jfs_cfg_t cfg = {0};
    urma_jfs_t *jfs = NULL;
    uint32_t id = 0;

    cfg.trans_mode = URMA_TM_RM;
    CHECK(urma_alloc_jfs(NULL, &cfg, &jfs) == URMA_EINVAL);
    CHECK(urma_alloc_jfs(here->ctx, NULL, &jfs) == URMA_EINVAL);
    CHECK(urma_alloc_jfs(here->ctx, &cfg, NULL) == URMA_EINVAL);
    CHECK(urma_alloc_jfs(here->ctx, &cfg, &jfs) == URMA_SUCCESS);
    CHECK(cfg.flag.bs.order_type == URMA_OI);
    REFUSALS(jfs, jfs, URMA_JFS_DEPTH, URMA_JFS_SQE_BASE_ADDR, URMA_JFS_FULL_CTX);
    SET(jfs, jfs, URMA_JFS_DEPTH, (uint32_t)8);
    SET(jfs, jfs, URMA_JFS_PRIORITY, (uint8_t)3);
    SET(jfs, jfs, URMA_JFS_MAX_SGE, (uint8_t)1);
    SET(jfs, jfs, URMA_JFS_MAX_RSGE, (uint8_t)1);
    SET(jfs, jfs, URMA_JFS_MAX_INLINE_DATA, (uint32_t)32);
    SET(jfs, jfs, URMA_JFS_BIND_JFC, here->jfc);
    id = 9;
    CHECK(urma_set_jfs_opt(jfs, URMA_JFS_ID, &id, 4) == EOPNOTSUPP);
    CHECK(urma_active_jfs(jfs) == URMA_SUCCESS);
    STATES(jfs, jfs, URMA_JFS_DEPTH);
    CHECK(urma_get_jfs_opt(jfs, URMA_JFS_ID, &id, 4) == URMA_SUCCESS && id == jfs->jfs_id.id);
    CHECK(urma_deactive_jfs(jfs) == URMA_SUCCESS && !jfs->urma_jfs_opt.is_actived);
    SET(jfs, jfs, URMA_JFS_DEPTH, (uint32_t)16);
    CHECK(urma_active_jfs(jfs) == URMA_SUCCESS);
    /* An active one may be deleted, as if it had been created. */
    CHECK(urma_delete_jfs(jfs) == URMA_SUCCESS);
    CHECK(urma_free_jfs(jfs) == URMA_EINVAL && urma_active_jfs(jfs) == URMA_EINVAL);
}

/* The order of a mode is filled into the caller's struct and the queue's, one that is said stays. */
static void orders(urma_context_t *ctx)
{
    static const struct {
        urma_transport_mode_t mode;
        uint32_t said, wanted;
    } rows[] = {
        {URMA_TM_RM, URMA_DEF_ORDER, URMA_OI}, {URMA_TM_RC, URMA_DEF_ORDER, URMA_OL},
        {URMA_TM_UM, URMA_DEF_ORDER, URMA_NO}, {URMA_TM_RC, URMA_OT, URMA_OT},
        {URMA_TM_RC, URMA_NO, URMA_NO},        {0, URMA_DEF_ORDER, URMA_DEF_ORDER},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        urma_jfs_cfg_t jfs_cfg = {0};
        urma_jfr_cfg_t jfr_cfg = {0};
        urma_jetty_cfg_t cfg = {0};
        urma_jfs_t *jfs = NULL;
        urma_jfr_t *jfr = NULL;
        urma_jetty_t *jetty = NULL;

        jfs_cfg.trans_mode = jfr_cfg.trans_mode = cfg.jfs_cfg.trans_mode = rows[i].mode;
        jfs_cfg.flag.bs.order_type = jfr_cfg.flag.bs.order_type = rows[i].said;
        cfg.jfs_cfg.flag.bs.order_type = rows[i].said;
        CHECK(urma_alloc_jfs(ctx, &jfs_cfg, &jfs) == URMA_SUCCESS);
        CHECK(urma_alloc_jfr(ctx, &jfr_cfg, &jfr) == URMA_SUCCESS);
        CHECK(urma_alloc_jetty(ctx, &cfg, &jetty) == URMA_SUCCESS);
        CHECK(jfs_cfg.flag.bs.order_type == rows[i].wanted);
        CHECK(jfr_cfg.flag.bs.order_type == rows[i].wanted);
        CHECK(cfg.jfs_cfg.flag.bs.order_type == rows[i].wanted);
        CHECK(jfs->jfs_cfg.flag.bs.order_type == rows[i].wanted);
        CHECK(jfr->jfr_cfg.flag.bs.order_type == rows[i].wanted);
        CHECK(jetty->jetty_cfg.jfs_cfg.flag.bs.order_type == rows[i].wanted);
        CHECK(!jfs->urma_jfs_opt.is_actived && !jfr->urma_jfr_opt.is_actived);
        CHECK(!jetty->urma_jetty_opt.is_actived);
        CHECK(urma_free_jetty(jetty) == URMA_SUCCESS && urma_free_jfr(jfr) == URMA_SUCCESS);
        CHECK(urma_free_jfs(jfs) == URMA_SUCCESS);
    }
}

int main(void)
{
    struct end here;
    struct made made;

    CHECK(urma_init(NULL) == URMA_SUCCESS);
    urma_device_t *dev = urma_get_device_by_name((char *)"udma0");
    CHECK(dev != NULL);
    end_open(&here, dev, URMA_TM_RM);
    CHECK(here.jetty->urma_jetty_opt.is_actived && here.jfc->urma_jfc_opt.is_actived);

    urma_context_t *ctx = urma_create_context(dev, 0);
    CHECK(ctx != NULL);
    urma_jfce_t *jfce = urma_create_jfce(ctx);
    CHECK(jfce != NULL);
    uint64_t users = ctx->ref.atomic_cnt;
    make(&made, ctx, jfce);
    send_queue(&here);
    orders(here.ctx);

    CHECK(urma_deactive_jfc(made.jfc) == URMA_EAGAIN); /* queues complete here */
    CHECK(made.jfc->urma_jfc_opt.is_actived);
    CHECK(urma_deactive_jetty(made.jetty) == URMA_SUCCESS);
    CHECK(urma_deactive_jetty(made.jetty) == URMA_EINVAL);
    CHECK(urma_active_jetty(made.jetty) == URMA_SUCCESS); /* again */
    CHECK(urma_deactive_jetty(made.jetty) == URMA_SUCCESS);
    CHECK(urma_free_jetty(made.jetty) == URMA_SUCCESS);
    CHECK(urma_free_jetty(made.jetty) == URMA_EINVAL);
    CHECK(urma_deactive_jfr(made.jfr) == URMA_SUCCESS && urma_free_jfr(made.jfr) == URMA_SUCCESS);
    CHECK(jfce->ref.atomic_cnt == 2 && urma_delete_jfce(jfce) == URMA_FAIL);
    CHECK(urma_deactive_jfc(made.jfc) == URMA_SUCCESS && urma_free_jfc(made.jfc) == URMA_SUCCESS);
    CHECK(jfce->ref.atomic_cnt == 1 && ctx->ref.atomic_cnt == users);
    CHECK(urma_delete_jfce(jfce) == URMA_SUCCESS && urma_delete_context(ctx) == URMA_SUCCESS);

    /* In one context: a message to a jetty that was allocated. */
    users = here.ctx->ref.atomic_cnt;
    make(&made, here.ctx, here.jfce);
    send_one(&here, &made);
    CHECK(urma_deactive_jetty(made.jetty) == URMA_SUCCESS && urma_free_jetty(made.jetty) == 0);
    CHECK(urma_deactive_jfr(made.jfr) == URMA_SUCCESS && urma_free_jfr(made.jfr) == 0);
    CHECK(urma_deactive_jfc(made.jfc) == URMA_SUCCESS && urma_free_jfc(made.jfc) == 0);
    CHECK(here.ctx->ref.atomic_cnt == users);
    end_close(&here);
    CHECK(urma_uninit() == URMA_SUCCESS);
    puts("family: done");
    return 0;
}
