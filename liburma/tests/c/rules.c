/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The rules that the C core enforces before a provider is called, and the book-keeping in public
 * memory: limits, order types, access masks, tokens, references, binding and advice.
 */
#include "end.h"

#include <sys/mman.h>
#include <unistd.h>

#define REFUSED(call, why)                                                                        \
    do {                                                                                          \
        errno = 0;                                                                                \
        CHECK((call) == NULL && errno == (why));                                                  \
    } while (0)

static urma_device_attr_t attr;

static void completion(struct end *end)
{
    urma_jfc_cfg_t cfg = {0};
    urma_jfc_attr_t moderate = {JFC_MODERATE_COUNT | JFC_MODERATE_PERIOD, 4, 10};

    REFUSED(urma_create_jfc(end->ctx, NULL), EINVAL);
    REFUSED(urma_create_jfc(NULL, &cfg), EINVAL);
    REFUSED(urma_create_jfc(end->ctx, &cfg), EINVAL);
    cfg.depth = attr.dev_cap.max_jfc_depth + 1;
    REFUSED(urma_create_jfc(end->ctx, &cfg), EINVAL);
    cfg.depth = 8;
    cfg.jfce = (urma_jfce_t *)end->jfc;
    REFUSED(urma_create_jfc(end->ctx, &cfg), EINVAL);
    cfg.jfce = NULL;
    cfg.user_ctx = 5;
    unsigned long before = end->ctx->ref.atomic_cnt;
    urma_jfc_t *jfc = urma_create_jfc(end->ctx, &cfg);
    CHECK(jfc != NULL && jfc->urma_ctx == end->ctx && jfc->jfc_cfg.depth == 8);
    CHECK(jfc->jfc_cfg.user_ctx == 5 && end->ctx->ref.atomic_cnt == before + 1);
    CHECK(memcmp(&jfc->jfc_id.eid, &end->ctx->eid, sizeof(urma_eid_t)) == 0);
    CHECK(urma_modify_jfc(jfc, &moderate) == URMA_SUCCESS);
    CHECK(urma_modify_jfc(jfc, NULL) == URMA_EINVAL);
    moderate.mask = 0;
    CHECK(urma_modify_jfc(jfc, &moderate) == URMA_EINVAL);
    CHECK(urma_rearm_jfc(jfc, false) == URMA_EINVAL); /* no channel */
    CHECK(urma_delete_jfc(jfc) == URMA_SUCCESS && end->ctx->ref.atomic_cnt == before);
    CHECK(urma_delete_jfc(jfc) == URMA_EINVAL);
    CHECK(urma_delete_jfc(end->jfc) == URMA_EAGAIN); /* queues complete there */
    CHECK(urma_delete_jfce(end->jfce) == URMA_FAIL); /* a JFC uses it */
    CHECK(urma_delete_context(end->ctx) == URMA_EAGAIN);
}

static uint32_t jfs_order(struct end *end, urma_transport_mode_t mode, uint32_t order)
{
    urma_jfs_cfg_t cfg = {0};
    cfg.depth = 8;
    cfg.trans_mode = mode;
    cfg.max_sge = 1;
    cfg.jfc = end->jfc;
    cfg.flag.bs.order_type = order;
    if (mode == URMA_TM_RC) { /* RC is for jetties; their receive half shows its order */
        urma_jfr_cfg_t jfr_cfg = {0};
        jfr_cfg.depth = 8;
        jfr_cfg.trans_mode = mode;
        jfr_cfg.max_sge = 1;
        jfr_cfg.jfc = end->jfc;
        jfr_cfg.flag.bs.order_type = order;
        urma_jfr_t *jfr = urma_create_jfr(end->ctx, &jfr_cfg);
        if (jfr == NULL) {
            return 99;
        }
        CHECK(jfr->jfr_cfg.flag.bs.order_type == jfr_cfg.flag.bs.order_type);
        CHECK(urma_delete_jfr(jfr) == URMA_SUCCESS);
        return jfr_cfg.flag.bs.order_type;
    }
    errno = 0;
    urma_jfs_t *jfs = urma_create_jfs(end->ctx, &cfg);
    if (jfs == NULL) {
        CHECK(errno == EINVAL);
        return 99;
    }
    CHECK(jfs->jfs_cfg.flag.bs.order_type == cfg.flag.bs.order_type);
    CHECK(urma_delete_jfs(jfs) == URMA_SUCCESS);
    return cfg.flag.bs.order_type;
}

static void orders(struct end *end)
{
    CHECK(jfs_order(end, URMA_TM_RM, URMA_DEF_ORDER) == URMA_OI);
    CHECK(jfs_order(end, URMA_TM_RC, URMA_DEF_ORDER) == URMA_OL);
    CHECK(jfs_order(end, URMA_TM_UM, URMA_DEF_ORDER) == URMA_NO);
    CHECK(jfs_order(end, URMA_TM_RM, URMA_OI) == URMA_OI);
    CHECK(jfs_order(end, URMA_TM_RC, URMA_OT) == URMA_OT);
    CHECK(jfs_order(end, URMA_TM_RC, URMA_NO) == URMA_NO);
    CHECK(jfs_order(end, URMA_TM_RM, URMA_OT) == 99 && jfs_order(end, URMA_TM_RM, URMA_OL) == 99);
    CHECK(jfs_order(end, URMA_TM_RM, URMA_NO) == 99);
    CHECK(jfs_order(end, URMA_TM_RC, URMA_OI) == URMA_OI); /* of a JFR: its jetty is refused */
    CHECK(jfs_order(end, URMA_TM_UM, URMA_OT) == 99 && jfs_order(end, URMA_TM_UM, URMA_OL) == 99);
    CHECK(jfs_order(end, URMA_TM_RM, 5) == 99 && jfs_order(end, URMA_TM_RM, 255) == 99);
    CHECK(jfs_order(end, (urma_transport_mode_t)0, URMA_DEF_ORDER) == 99);
    CHECK(jfs_order(end, (urma_transport_mode_t)3, URMA_DEF_ORDER) == 99);
}

static void limits(struct end *end)
{
    urma_jfs_cfg_t good = {0};
    good.depth = 8;
    good.trans_mode = URMA_TM_RM;
    good.max_sge = 1;
    good.jfc = end->jfc;
    urma_jfs_cfg_t cfg = good;
    cfg.jfc = NULL;
    REFUSED(urma_create_jfs(end->ctx, &cfg), EINVAL);
    cfg = good;
    cfg.depth = 0;
    REFUSED(urma_create_jfs(end->ctx, &cfg), EINVAL);
    cfg.depth = attr.dev_cap.max_jfs_depth + 1;
    REFUSED(urma_create_jfs(end->ctx, &cfg), EINVAL);
    cfg = good;
    cfg.max_sge = (uint8_t)(attr.dev_cap.max_jfs_sge + 1);
    REFUSED(urma_create_jfs(end->ctx, &cfg), EINVAL);
    cfg = good;
    cfg.max_rsge = (uint8_t)(attr.dev_cap.max_jfs_rsge + 1);
    REFUSED(urma_create_jfs(end->ctx, &cfg), EINVAL);
    cfg = good;
    cfg.max_inline_data = attr.dev_cap.max_jfs_inline_len + 1;
    REFUSED(urma_create_jfs(end->ctx, &cfg), EINVAL);

    urma_jfr_cfg_t jfr = {0};
    jfr.depth = 8;
    jfr.trans_mode = URMA_TM_RM;
    jfr.max_sge = 1;
    REFUSED(urma_create_jfr(end->ctx, &jfr), EINVAL);
    jfr.jfc = end->jfc;
    jfr.depth = attr.dev_cap.max_jfr_depth + 1;
    REFUSED(urma_create_jfr(end->ctx, &jfr), EINVAL);
    jfr.depth = 8;
    jfr.max_sge = (uint8_t)(attr.dev_cap.max_jfr_sge + 1);
    REFUSED(urma_create_jfr(end->ctx, &jfr), EINVAL);
    jfr.max_sge = 1;
    jfr.id = end->jetty->jetty_id.id;
    REFUSED(urma_create_jfr(end->ctx, &jfr), EEXIST);
    jfr.id = 5; /* well-known: free for a program to claim */
    urma_jfr_t *claimed = urma_create_jfr(end->ctx, &jfr);
    CHECK(claimed != NULL && claimed->jfr_id.id == 5 && jfr.flag.bs.order_type == URMA_OI);
    CHECK(urma_delete_jfr(claimed) == URMA_SUCCESS);
}

/* Several at once: none goes when one of them cannot be; what they counted on is let go. */
static void batches(struct end *end)
{
    urma_jfc_cfg_t cfg = {0};
    urma_jfc_t *list[3], *bad = NULL;
    unsigned long before = end->ctx->ref.atomic_cnt, channel = end->jfce->ref.atomic_cnt;

    cfg.depth = 8;
    cfg.jfce = end->jfce;
    CHECK((list[0] = urma_create_jfc(end->ctx, &cfg)) != NULL);
    CHECK((list[2] = urma_create_jfc(end->ctx, &cfg)) != NULL);
    list[1] = NULL;
    CHECK(urma_delete_jfc_batch(list, 3, &bad) == URMA_EINVAL && bad == list[0]);
    list[1] = list[2];
    CHECK(urma_delete_jfc_batch(list, 3, &bad) == URMA_EINVAL && bad == list[0]); /* twice */
    list[1] = (urma_jfc_t *)end->jfr;
    CHECK(urma_delete_jfc_batch(list, 3, &bad) == URMA_EINVAL && bad == list[0]);
    CHECK(end->ctx->ref.atomic_cnt == before + 2 && end->jfce->ref.atomic_cnt == channel + 2);
    list[1] = end->jfc; /* queues complete there: what comes before it goes */
    CHECK(urma_delete_jfc_batch(list, 3, &bad) == URMA_EAGAIN && bad == end->jfc);
    CHECK(end->ctx->ref.atomic_cnt == before + 1 && end->jfce->ref.atomic_cnt == channel + 1);
    bad = NULL;
    CHECK(urma_delete_jfc_batch(list + 2, 1, &bad) == URMA_SUCCESS && bad == NULL);
    CHECK(end->ctx->ref.atomic_cnt == before && end->jfce->ref.atomic_cnt == channel);
}

static void jetties(struct end *end)
{
    urma_jetty_cfg_t good = end->jetty->jetty_cfg, cfg = good;
    urma_jetty_attr_t state = {JETTY_STATE, 0, URMA_JETTY_STATE_ERROR};
    urma_jfr_attr_t threshold = {JFR_RX_THRESHOLD, 3, URMA_JFR_STATE_READY};
    urma_jfr_cfg_t jfr_cfg;

    good.id = cfg.id = 0;
    cfg.flag.bs.share_jfr = 0;
    REFUSED(urma_create_jetty(end->ctx, &cfg), EINVAL);
    cfg = good;
    cfg.shared.jfr = NULL;
    REFUSED(urma_create_jetty(end->ctx, &cfg), EINVAL);
    cfg.shared.jfr = (urma_jfr_t *)end->jetty;
    REFUSED(urma_create_jetty(end->ctx, &cfg), EINVAL);
    cfg = good;
    cfg.jfs_cfg.trans_mode = URMA_TM_RC;
    cfg.jfs_cfg.flag.bs.order_type = 0;
    REFUSED(urma_create_jetty(end->ctx, &cfg), EINVAL);
    cfg = good;
    cfg.id = 1 << 20;
    REFUSED(urma_create_jetty(end->ctx, &cfg), EINVAL);
    cfg = good;
    cfg.id = 4321;
    urma_jetty_t *jetty = urma_create_jetty(end->ctx, &cfg);
    CHECK(jetty != NULL && jetty->jetty_id.id == 4321 && jetty->remote_jetty == NULL);
    REFUSED(urma_create_jetty(end->ctx, &cfg), EEXIST);
    CHECK(urma_query_jetty(jetty, &cfg, &state) == URMA_SUCCESS);
    CHECK(cfg.id == 4321 && state.state == URMA_JETTY_STATE_READY);
    state.mask = 0;
    CHECK(urma_modify_jetty(jetty, &state) == URMA_EINVAL);
    state.mask = JETTY_STATE;
    state.state = (urma_jetty_state_t)9;
    CHECK(urma_modify_jetty(jetty, &state) == URMA_EINVAL);
    state.state = URMA_JETTY_STATE_ERROR;
    CHECK(urma_modify_jetty(jetty, &state) == URMA_SUCCESS);
    state.state = URMA_JETTY_STATE_READY;
    CHECK(urma_query_jetty(jetty, &cfg, &state) == URMA_SUCCESS);
    CHECK(state.state == URMA_JETTY_STATE_ERROR);
    CHECK(urma_delete_jfr(end->jfr) == URMA_EAGAIN); /* jetties receive through it */
    urma_jetty_t *both[2] = {jetty, end->jetty}, *bad = NULL;
    CHECK(urma_delete_jetty_batch(both, 0, &bad) == URMA_EINVAL);
    CHECK(urma_delete_jetty_batch(NULL, 1, &bad) == URMA_EINVAL);
    CHECK(urma_delete_jetty_batch(both, 1, NULL) == URMA_EINVAL);
    CHECK(urma_delete_jetty_batch(both, 1, &bad) == URMA_SUCCESS);
    CHECK(urma_delete_jetty_batch(both, 2, &bad) == URMA_EINVAL && bad == jetty);
    CHECK(urma_modify_jfr(end->jfr, &threshold) == URMA_SUCCESS);
    threshold.rx_threshold = 0;
    CHECK(urma_query_jfr(end->jfr, &jfr_cfg, &threshold) == URMA_SUCCESS);
    CHECK(threshold.rx_threshold == 3 && jfr_cfg.depth == 16);
    threshold.rx_threshold = 17;
    threshold.mask = JFR_RX_THRESHOLD;
    CHECK(urma_modify_jfr(end->jfr, &threshold) == URMA_EINVAL);
    threshold.rx_threshold = 0;
    CHECK(urma_modify_jfr(end->jfr, &threshold) == URMA_SUCCESS);
}

static int registers(struct end *end, uint32_t access)
{
    urma_seg_cfg_t cfg = {0};
    cfg.va = (uint64_t)(uintptr_t)end->memory;
    cfg.len = 64;
    cfg.flag.bs.access = access;
    errno = 0;
    urma_target_seg_t *seg = urma_register_seg(end->ctx, &cfg);
    if (seg == NULL) {
        CHECK(errno == EINVAL);
        return 0;
    }
    CHECK(seg->token_id != NULL && seg->seg.token_id == seg->token_id->token_id);
    CHECK(seg->token_id->ref.atomic_cnt == 1); /* its segments */
    CHECK(seg->seg.attr.bs.access == access && seg->seg.len == 64);
    CHECK(urma_free_token_id(seg->token_id) == URMA_EINVAL);
    CHECK(urma_unregister_seg(seg) == URMA_SUCCESS);
    CHECK(urma_unregister_seg(seg) == URMA_EINVAL);
    return 1;
}

/* A hole anywhere in the range: else a peer's request would end this process. */
static void unmapped(struct end *end, urma_seg_cfg_t cfg)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    uint8_t *pages = mmap(NULL, 3 * page, PROT_READ | PROT_WRITE, flags, -1, 0);

    CHECK(pages != MAP_FAILED && munmap(pages + page, page) == 0);
    cfg.va = (uint64_t)(uintptr_t)(pages + 8);
    cfg.len = 3 * page - 16;
    REFUSED(urma_register_seg(end->ctx, &cfg), EFAULT);
    cfg.len = page - 7;
    REFUSED(urma_register_seg(end->ctx, &cfg), EFAULT);
    cfg.len = page - 8;
    urma_target_seg_t *seg = urma_register_seg(end->ctx, &cfg);
    CHECK(seg != NULL && urma_unregister_seg(seg) == URMA_SUCCESS);
    CHECK(munmap(pages, page) == 0 && munmap(pages + 2 * page, page) == 0);
}

static void segments(struct end *end)
{
    const uint32_t l = URMA_ACCESS_LOCAL_ONLY, r = URMA_ACCESS_READ, w = URMA_ACCESS_WRITE;
    const uint32_t a = URMA_ACCESS_ATOMIC;
    urma_import_seg_flag_t flag = {0};
    urma_seg_cfg_t cfg = {0};
    unsigned long before = end->ctx->ref.atomic_cnt;

    CHECK(registers(end, l) && registers(end, r) && registers(end, r | w));
    CHECK(registers(end, r | w | a));
    CHECK(!registers(end, 0) && !registers(end, w) && !registers(end, a) && !registers(end, w | a));
    CHECK(!registers(end, r | a) && !registers(end, l | r) && !registers(end, l | r | w | a));
    CHECK(!registers(end, 1 << 4));
    cfg.len = 64;
    cfg.flag.bs.access = l;
    REFUSED(urma_register_seg(end->ctx, &cfg), EINVAL); /* va 0 */
    unmapped(end, cfg);
    cfg.va = (uint64_t)(uintptr_t)end->memory;
    cfg.len = 0;
    REFUSED(urma_register_seg(end->ctx, &cfg), EINVAL);
    cfg.len = 64;
    cfg.flag.bs.token_id_valid = 1;
    REFUSED(urma_register_seg(end->ctx, &cfg), EINVAL);
    cfg.token_id = urma_alloc_token_id(end->ctx);
    CHECK(cfg.token_id != NULL && cfg.token_id->token_id != 0);
    CHECK(cfg.token_id->ref.atomic_cnt == 0);
    cfg.flag.bs.token_id_valid = 0;
    REFUSED(urma_register_seg(end->ctx, &cfg), EINVAL);
    cfg.flag.bs.token_id_valid = 1;
    urma_target_seg_t *seg = urma_register_seg(end->ctx, &cfg);
    CHECK(seg != NULL && seg->token_id == cfg.token_id && seg->seg.attr.bs.user_token_id == 1);
    CHECK(urma_free_token_id(cfg.token_id) == URMA_EINVAL);
    CHECK(urma_unimport_seg(seg) == URMA_EINVAL);
    CHECK(cfg.token_id->ref.atomic_cnt == 1);
    CHECK(urma_unregister_seg(seg) == URMA_SUCCESS && cfg.token_id->ref.atomic_cnt == 0);
    CHECK(urma_free_token_id(cfg.token_id) == URMA_SUCCESS);
    CHECK(urma_free_token_id(cfg.token_id) == URMA_EINVAL);
    REFUSED(urma_register_seg(end->ctx, &cfg), EINVAL);
    REFUSED(urma_import_seg(end->ctx, &end->seg->seg, NULL, 0, flag), EINVAL); /* has a token */
    CHECK(end->ctx->ref.atomic_cnt == before);
}

/* What each object says of itself: the number that the device knows it by, its context, what it was made of. */
static void members(struct end *end)
{
    urma_token_t token = {TOKEN};
    urma_import_seg_flag_t flag = {0};
    urma_seg_cfg_t cfg = {0};
    struct info info = end_info(end);

    CHECK(end->jfc->handle == end->jfc->jfc_id.id && end->jfc->urma_ctx == end->ctx);
    CHECK(end->jfr->handle == end->jfr->jfr_id.id && end->jfr->urma_ctx == end->ctx);
    CHECK(end->jetty->handle == end->jetty->jetty_id.id && end->jetty->urma_ctx == end->ctx);
    CHECK(end->jfce->urma_ctx == end->ctx);
    cfg.token_id = urma_alloc_token_id(end->ctx);
    CHECK(cfg.token_id != NULL && cfg.token_id->urma_ctx == end->ctx);
    CHECK(cfg.token_id->handle == cfg.token_id->token_id);
    cfg.va = (uint64_t)(uintptr_t)end->memory;
    cfg.len = 64;
    cfg.flag.bs.access = URMA_ACCESS_LOCAL_ONLY;
    cfg.flag.bs.token_id_valid = 1;
    cfg.user_ctx = 0x1234567890;
    urma_target_seg_t *seg = urma_register_seg(end->ctx, &cfg);
    CHECK(seg != NULL && seg->handle == cfg.token_id->token_id && seg->urma_ctx == end->ctx);
    CHECK(seg->user_ctx == 0x1234567890 && seg->seg.token_id == cfg.token_id->token_id);
    CHECK(urma_unregister_seg(seg) == URMA_SUCCESS);
    CHECK(urma_free_token_id(cfg.token_id) == URMA_SUCCESS);
    urma_target_seg_t *far = urma_import_seg(end->ctx, &info.seg, &token, 0, flag);
    CHECK(far != NULL && far->handle == info.seg.token_id && far->urma_ctx == end->ctx);
    CHECK(memcmp(&far->seg.ubva, &info.seg.ubva, sizeof far->seg.ubva) == 0);
    CHECK(far->seg.len == info.seg.len);
    CHECK(urma_unimport_seg(far) == URMA_SUCCESS);
    urma_target_jetty_t *target = urma_import_jetty(end->ctx, &info.jetty, &token);
    CHECK(target != NULL && target->handle == info.jetty.jetty_id.id);
    CHECK(target->urma_ctx == end->ctx && target->trans_mode == URMA_TM_RM);
    CHECK(target->type == URMA_JETTY);
    CHECK(memcmp(&target->id, &info.jetty.jetty_id, sizeof target->id) == 0);
    CHECK(urma_unimport_jetty(target) == URMA_SUCCESS);
}

static void targets(struct end *end)
{
    urma_token_t token = {TOKEN};
    struct info info = end_info(end);
    urma_rjetty_t remote = info.jetty;

    CHECK(remote.type == URMA_JETTY && remote.trans_mode == URMA_TM_RM);
    CHECK(remote.flag.bs.token_policy == URMA_TOKEN_PLAIN_TEXT);
    REFUSED(urma_import_jetty(end->ctx, NULL, &token), EINVAL);
    REFUSED(urma_import_jetty(end->ctx, &remote, NULL), EINVAL);
    remote.tp_type = URMA_UTP;
    REFUSED(urma_import_jetty(end->ctx, &remote, &token), EINVAL);
    remote.tp_type = (urma_tp_type_t)3;
    REFUSED(urma_import_jetty(end->ctx, &remote, &token), EINVAL);
    remote.tp_type = URMA_RTP;
    remote.trans_mode = URMA_TM_UM;
    remote.flag.bs.order_type = 0;
    REFUSED(urma_import_jetty(end->ctx, &remote, &token), EINVAL);
    remote = info.jetty;
    remote.tp_type = URMA_CTP;
    urma_target_jetty_t *target = urma_import_jetty(end->ctx, &remote, &token);
    CHECK(target != NULL && target->tp_type == URMA_CTP && target->id.id == remote.jetty_id.id);
    CHECK(urma_advise_jetty(end->jetty, target) == URMA_SUCCESS);
    CHECK(urma_unadvise_jetty(end->jetty, target) == URMA_SUCCESS);
    CHECK(urma_bind_jetty(end->jetty, target) == URMA_ENOPERM);
    CHECK(urma_unbind_jetty(end->jetty) == URMA_EINVAL); /* never bound */
    CHECK(urma_unimport_jetty(target) == URMA_SUCCESS);
    CHECK(urma_unimport_jetty(target) == URMA_EINVAL);
    CHECK(urma_advise_jetty(end->jetty, target) == URMA_EINVAL);
}

static void binding(urma_device_t *dev)
{
    struct end here, there;
    end_open(&here, dev, URMA_TM_RC);
    end_open(&there, dev, URMA_TM_RC);
    struct info peer = end_info(&there);
    urma_target_jetty_t *target = end_import_jetty(&here, &peer);

    CHECK(peer.jetty.flag.bs.order_type == URMA_OL);
    CHECK(urma_advise_jetty(here.jetty, target) == URMA_EINVAL);
    CHECK(urma_unbind_jetty(here.jetty) == URMA_EINVAL);
    CHECK(urma_bind_jetty(here.jetty, target) == URMA_SUCCESS && here.jetty->remote_jetty == target);
    CHECK(urma_bind_jetty(here.jetty, target) == URMA_SUCCESS); /* as it is */
    urma_target_jetty_t *other = end_import_jetty(&here, &peer);
    CHECK(urma_bind_jetty(here.jetty, other) == URMA_EEXIST && here.jetty->remote_jetty == target);
    CHECK(urma_unimport_jetty(other) == URMA_SUCCESS);
    urma_jetty_t *two[2] = {there.jetty, here.jetty}, *bad = NULL;
    CHECK(urma_delete_jetty(here.jetty) == URMA_ENOPERM); /* bound */
    CHECK(urma_delete_jetty_batch(two, 2, &bad) == URMA_ENOPERM && bad == there.jetty);
    CHECK(urma_unbind_jetty(here.jetty) == URMA_SUCCESS && here.jetty->remote_jetty == NULL);
    target->flag.bs.order_type = URMA_OT;
    CHECK(urma_bind_jetty(here.jetty, target) == URMA_ENOPERM);
    CHECK(urma_unimport_jetty(target) == URMA_SUCCESS);
    end_close(&here);
    end_close(&there);
}

static void groups(struct end *end)
{
    urma_jetty_grp_cfg_t cfg = {0};
    urma_jetty_cfg_t member = end->jetty->jetty_cfg;

    REFUSED(urma_create_jetty_grp(end->ctx, NULL), EINVAL);
    cfg.policy = (urma_jetty_grp_policy_t)7;
    REFUSED(urma_create_jetty_grp(end->ctx, &cfg), EINVAL);
    cfg.policy = URMA_JETTY_GRP_POLICY_RR;
    memset(cfg.name, 'n', sizeof(cfg.name)); /* it does not end */
    REFUSED(urma_create_jetty_grp(end->ctx, &cfg), EINVAL);
    cfg.name[0] = 0;
    urma_jetty_grp_t *group = urma_create_jetty_grp(end->ctx, &cfg);
    CHECK(group != NULL && group->urma_ctx == end->ctx && group->jetty_grp_id.id != 0);
    CHECK(group->jetty_cnt == 0);
    member.id = 0;
    member.jetty_grp = group;
    REFUSED(urma_create_jetty(end->ctx, &member), EINVAL); /* another token policy */
    CHECK(urma_delete_jetty_grp(group) == URMA_SUCCESS);
    cfg.flag.bs.token_policy = URMA_TOKEN_PLAIN_TEXT;
    cfg.token_value.token = TOKEN + 1;
    CHECK((member.jetty_grp = group = urma_create_jetty_grp(end->ctx, &cfg)) != NULL);
    REFUSED(urma_create_jetty(end->ctx, &member), EINVAL); /* another token */
    CHECK(urma_delete_jetty_grp(group) == URMA_SUCCESS);
    cfg.token_value.token = TOKEN;
    CHECK((member.jetty_grp = group = urma_create_jetty_grp(end->ctx, &cfg)) != NULL);
    urma_jetty_t *jetty = urma_create_jetty(end->ctx, &member);
    CHECK(jetty != NULL && group->jetty_cnt == 1 && group->jetty_list[0] == jetty);
    CHECK(urma_delete_jetty_grp(group) == URMA_ENOPERM);
    CHECK(urma_delete_jetty(jetty) == URMA_SUCCESS && group->jetty_cnt == 0);
    CHECK(urma_delete_jetty_grp(group) == URMA_SUCCESS);
    CHECK(urma_delete_jetty_grp(group) == URMA_EINVAL);
}

static void options(struct end *end)
{
    urma_context_aggr_mode_t mode = URMA_AGGR_MODE_BALANCE;
    uint32_t wrong = 3;

    CHECK(urma_set_context_opt(end->ctx, URMA_OPT_AGGR_MODE, &mode, sizeof(mode)) == URMA_SUCCESS);
    CHECK(end->ctx->aggr_mode == URMA_AGGR_MODE_BALANCE);
    CHECK(urma_set_context_opt(end->ctx, URMA_OPT_AGGR_MODE, &wrong, 4) == URMA_EINVAL);
    CHECK(urma_set_context_opt(end->ctx, URMA_OPT_AGGR_MODE, &mode, 3) == URMA_EINVAL);
    CHECK(urma_set_context_opt(end->ctx, URMA_OPT_AGGR_MODE, NULL, 4) == URMA_EINVAL);
    CHECK(urma_set_context_opt(end->ctx, (urma_opt_name_t)1, &mode, 4) == URMA_EINVAL);
    CHECK(urma_set_context_opt(NULL, URMA_OPT_AGGR_MODE, &mode, 4) == URMA_EINVAL);
}

int main(void)
{
    struct end end;
    CHECK(urma_init(NULL) == URMA_SUCCESS);
    urma_log_set_level(URMA_VLOG_LEVEL_ERR);
    urma_device_t *dev = urma_get_device_by_name((char *)"udma0");
    CHECK(dev != NULL && urma_query_device(dev, &attr) == URMA_SUCCESS);
    end_open(&end, dev, URMA_TM_RM);
    completion(&end);
    orders(&end);
    limits(&end);
    jetties(&end);
    batches(&end);
    segments(&end);
    members(&end);
    targets(&end);
    binding(dev);
    groups(&end);
    options(&end);
    end_close(&end);
    CHECK(urma_uninit() == URMA_SUCCESS);
    return 0;
}
