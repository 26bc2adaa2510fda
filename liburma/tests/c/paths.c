/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Transport paths, calls by a path, addresses, notifiers, advice that calls back, device calls,
 * counters, and log functions of other libraries.
 */
#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>

#include "end.h"

#include <ub/umdk/urma/udma/udma_u_ctl.h>
#include <ub/umdk/urma/urma_log.h>
#include <ub/umdk/urma/urma_perf.h>
#include <ub/umdk/urma/urma_private.h>
#include <ub/umdk/urma/urma_ubagg.h>

static void paths(struct end *here, struct info *peer)
{
    urma_get_tp_cfg_t cfg = {0};
    urma_tp_info_t list[4] = {{0}};
    uint32_t count = 4;

    cfg.trans_mode = URMA_TM_RM;
    cfg.local_eid = here->ctx->eid;
    cfg.peer_eid = peer->jetty.jetty_id.eid;
    CHECK(urma_get_tp_list(here->ctx, &cfg, &count, list) == URMA_SUCCESS && count == 2);
    CHECK(list[0].tp_handle != 0 && list[1].tp_handle != 0);
    CHECK(list[0].tp_handle != list[1].tp_handle);
    uint64_t rtp = list[0].tp_handle, ctp = list[1].tp_handle;

    count = 4;
    cfg.flag.bs.ctp = 1;
    CHECK(urma_get_tp_list(here->ctx, &cfg, &count, list) == URMA_SUCCESS && count == 1);
    CHECK(list[0].tp_handle == ctp);
    cfg.flag.value = 0;
    cfg.trans_mode = URMA_TM_UM;
    count = 1;
    CHECK(urma_get_tp_list(here->ctx, &cfg, &count, list) == URMA_SUCCESS && count == 1);
    CHECK(list[0].tp_handle != rtp && list[0].tp_handle != ctp);
    cfg.flag.bs.rtp = 1; /* UM does not go there */
    CHECK(urma_get_tp_list(here->ctx, &cfg, &count, list) == URMA_EINVAL);
    cfg.flag.value = 0;
    cfg.trans_mode = (urma_transport_mode_t)3;
    CHECK(urma_get_tp_list(here->ctx, &cfg, &count, list) == URMA_EINVAL);
    cfg.trans_mode = URMA_TM_RM;
    count = 0;
    CHECK(urma_get_tp_list(here->ctx, &cfg, &count, list) == URMA_EINVAL);
    count = 4;
    CHECK(urma_get_tp_list(here->ctx, NULL, &count, list) == URMA_EINVAL);
    CHECK(urma_get_tp_list(here->ctx, &cfg, NULL, list) == URMA_EINVAL);
    CHECK(urma_get_tp_list(here->ctx, &cfg, &count, NULL) == URMA_EINVAL);
    CHECK(urma_get_tp_list(NULL, &cfg, &count, list) == URMA_EINVAL);
    cfg.local_eid.raw[15] ^= 1; /* not ours */
    CHECK(urma_get_tp_list(here->ctx, &cfg, &count, list) == URMA_EINVAL);

    urma_tp_attr_value_t attr, back;
    uint8_t number = 0;
    uint32_t bitmap = 0;
    memset(&attr, 0, sizeof(attr));
    memset(&back, 0, sizeof(back));
    attr.dscp = 33;
    attr.sl = 5;
    attr.ttl = 9;
    CHECK(urma_set_tp_attr(here->ctx, rtp, 2, 1u << 8 | 1u << 10, &attr) == URMA_SUCCESS);
    CHECK(urma_get_tp_attr(here->ctx, rtp, &number, &bitmap, &back) == URMA_SUCCESS);
    CHECK(number == 2 && bitmap == (1u << 8 | 1u << 10));
    CHECK(back.dscp == 33 && back.sl == 5 && back.ttl == 0);
    CHECK(urma_set_tp_attr(here->ctx, rtp, 1, 3, &attr) == URMA_EINVAL); /* two, called one */
    CHECK(urma_set_tp_attr(here->ctx, 0x999, 1, 1, &attr) == URMA_EINVAL);
    CHECK(urma_set_tp_attr(here->ctx, rtp, 1, 1, NULL) == URMA_EINVAL);
    CHECK(urma_get_tp_attr(here->ctx, 0x999, &number, &bitmap, &back) == URMA_EINVAL);
    CHECK(urma_get_tp_attr(here->ctx, rtp, NULL, &bitmap, &back) == URMA_EINVAL);

    urma_tp_cfg_t tp_cfg = {0};
    urma_tp_attr_t tp_attr;
    urma_tp_attr_mask_t mask = {0};
    memset(&tp_attr, 0, sizeof(tp_attr));
    CHECK(urma_modify_tp(here->ctx, 1, &tp_cfg, &tp_attr, mask) == EOPNOTSUPP);
    CHECK(urma_modify_tp(here->ctx, 1, NULL, &tp_attr, mask) == URMA_EINVAL);
    CHECK(urma_get_tpn(here->jetty) == -URMA_EINVAL); /* not bound */
    CHECK(urma_get_tpn(NULL) == -URMA_EINVAL);

    /* Imports by a path: of the right kind, peer and context only. */
    urma_active_tp_cfg_t active = {0};
    urma_token_t token = {TOKEN};
    uint64_t users = here->ctx->ref.atomic_cnt;
    active.tp_handle = rtp;
    urma_target_jetty_t *target = urma_import_jetty_ex(here->ctx, &peer->jetty, &token, &active);
    CHECK(target != NULL && here->ctx->ref.atomic_cnt == users + 1);
    CHECK(urma_unimport_jetty(target) == URMA_SUCCESS && here->ctx->ref.atomic_cnt == users);
    active.tp_handle = ctp;
    CHECK(urma_import_jetty_ex(here->ctx, &peer->jetty, &token, &active) == NULL);
    CHECK(errno == EINVAL);
    active.tp_handle = 0;
    target = urma_import_jetty_ex(here->ctx, &peer->jetty, &token, &active);
    CHECK(target != NULL && urma_unimport_jetty(target) == URMA_SUCCESS);
    CHECK(urma_import_jetty_ex(here->ctx, &peer->jetty, &token, NULL) == NULL && errno == EINVAL);
    urma_rjetty_t open = peer->jetty; /* a token must be given all the same */
    open.flag.bs.token_policy = URMA_TOKEN_NONE;
    CHECK(urma_import_jetty_ex(here->ctx, &open, NULL, &active) == NULL && errno == EINVAL);
    CHECK(urma_import_jetty_ex(here->ctx, NULL, &token, &active) == NULL && errno == EINVAL);
    CHECK(urma_import_jetty_ex(NULL, &peer->jetty, &token, &active) == NULL && errno == EINVAL);
    CHECK(here->ctx->ref.atomic_cnt == users);
}

struct reported {
    int count;
    urma_status_t status;
};

static void tell(urma_status_t status, void *arg)
{
    struct reported *reported = arg;
    reported->count++;
    reported->status = status;
}

static void receive_queues(struct end *here, struct end *there)
{
    urma_jfs_cfg_t cfg = {0};
    urma_rjfr_t rjfr = {0};
    urma_active_tp_cfg_t active = {0};
    urma_token_t token = {TOKEN};
    struct reported reported = {0};

    cfg.depth = 16;
    cfg.trans_mode = URMA_TM_RM;
    cfg.max_sge = 1;
    cfg.max_rsge = 1;
    cfg.rnr_retry = URMA_TYPICAL_RNR_RETRY;
    cfg.err_timeout = URMA_TYPICAL_ERR_TIMEOUT;
    cfg.jfc = here->jfc;
    urma_jfs_t *jfs = urma_create_jfs(here->ctx, &cfg);
    CHECK(jfs != NULL);
    rjfr.jfr_id = there->jfr->jfr_id;
    rjfr.trans_mode = URMA_TM_RM;
    rjfr.flag.bs.token_policy = URMA_TOKEN_PLAIN_TEXT;
    urma_target_jetty_t *target = urma_import_jfr_ex(here->ctx, &rjfr, &token, &active);
    CHECK(target != NULL);
    CHECK(urma_import_jfr_ex(here->ctx, &rjfr, &token, NULL) == NULL && errno == EINVAL);

    CHECK(urma_advise_jfr_async(jfs, target, tell, &reported) == URMA_SUCCESS);
    CHECK(reported.count == 1 && reported.status == URMA_SUCCESS);
    CHECK(urma_advise_jfr_async(jfs, target, NULL, &reported) == URMA_EINVAL);
    CHECK(urma_advise_jfr_async(jfs, target, tell, NULL) == URMA_EINVAL);
    CHECK(urma_advise_jfr_async(NULL, target, tell, &reported) == URMA_EINVAL && reported.count == 1);

    /* A write to a chip is a write. */
    struct info peer = end_info(there);
    urma_target_seg_t *seg = end_import_seg(here, &peer);
    urma_jfs_wr_flag_t flag = {0};
    flag.bs.complete_enable = 1;
    uint64_t to = seg->seg.ubva.va + 512;
    memset(here->memory, 0x3c, 16);
    CHECK(urma_write_affinity(jfs, target, seg, here->seg, to, (uintptr_t)here->memory, 16, flag, 5,
                              1, 1) == URMA_SUCCESS);
    urma_cr_t cr = end_wait(here->jfc);
    CHECK(cr.status == URMA_CR_SUCCESS && cr.user_ctx == 5 && there->memory[512] == 0x3c);
    CHECK(urma_write_affinity(NULL, target, seg, here->seg, to, 0, 16, flag, 5, 0, 0) != 0);
    CHECK(urma_unimport_seg(seg) == URMA_SUCCESS && urma_unimport_jfr(target) == URMA_SUCCESS);
    CHECK(urma_delete_jfs(jfs) == URMA_SUCCESS);
}

static void addresses(struct end *here)
{
    uint32_t count = 0;
    uint8_t mine[6] = {0}, theirs[6] = {0};
    urma_net_addr_t address;
    urma_eid_t eid;

    urma_net_addr_info_t *list = urma_get_net_addr_list(here->ctx, &count);
    CHECK(list != NULL && count == 1);
    CHECK(urma_get_eid_by_ip(here->ctx, &list[0].netaddr, &eid) == URMA_SUCCESS);
    CHECK(memcmp(&eid, &here->ctx->eid, sizeof(eid)) == 0);
    CHECK(urma_get_smac(here->ctx, mine) == URMA_SUCCESS && (mine[0] & 3) == 2);
    CHECK(urma_get_dmac(here->ctx, &list[0].netaddr, theirs) == URMA_SUCCESS);
    CHECK(memcmp(mine, theirs, 6) == 0 && memcmp(mine, list[0].netaddr.mac, 6) == 0);
    urma_free_net_addr_list(list);
    urma_free_net_addr_list(NULL);

    urma_u32_to_eid(0xc0a80164, &eid);
    CHECK(urma_get_ip_by_eid(here->ctx, &eid, &address) == URMA_SUCCESS);
    CHECK(address.sin_family == AF_INET && ntohl(address.in4.s_addr) == 0xc0a80164);
    CHECK(address.prefix_len == 32);
    CHECK(urma_get_dmac(here->ctx, &address, theirs) == 0 && memcmp(mine, theirs, 6) != 0);
    address.sin_family = AF_UNIX;
    CHECK(urma_get_eid_by_ip(here->ctx, &address, &eid) == URMA_EINVAL);
    CHECK(urma_get_net_addr_list(here->ctx, NULL) == NULL && errno == EINVAL);
    CHECK(urma_get_net_addr_list(NULL, &count) == NULL && errno == EINVAL);
    CHECK(urma_get_smac(here->ctx, NULL) == URMA_EINVAL);
    CHECK(urma_get_dmac(here->ctx, NULL, mine) == URMA_EINVAL);
    CHECK(urma_get_ip_by_eid(here->ctx, NULL, &address) == URMA_EINVAL);
    CHECK(urma_get_eid_by_ip(NULL, &address, &eid) == URMA_EINVAL);
}

static void notices(struct end *here, struct info *peer)
{
    urma_token_t token = {TOKEN};
    urma_notify_t notice;
    uint64_t users = here->ctx->ref.atomic_cnt;

    urma_notifier_t *notifier = urma_create_notifier(here->ctx);
    CHECK(notifier != NULL && here->ctx->ref.atomic_cnt == users + 1);
    CHECK(urma_wait_notify(notifier, 1, &notice, 0) == 0);
    CHECK(urma_wait_notify(notifier, 0, &notice, 0) == 0);
    CHECK(urma_wait_notify(notifier, 1, NULL, 0) == -1 && errno == EINVAL);
    CHECK(urma_wait_notify(NULL, 1, &notice, 0) == -1 && errno == EINVAL);

    urma_target_jetty_t *target =
        urma_import_jetty_async(notifier, &peer->jetty, &token, 0x77, 60000);
    CHECK(target != NULL);
    struct pollfd readable = {notifier->fd, POLLIN, 0};
    CHECK(poll(&readable, 1, 60000) == 1);
    CHECK(urma_wait_notify(notifier, 1, &notice, -1) == 1);
    CHECK(notice.type == URMA_IMPORT_JETTY_NOTIFY && notice.status == URMA_SUCCESS);
    CHECK(notice.user_ctx == 0x77 && notice.tjetty == target);
    CHECK(urma_ack_notify(here->ctx, 1, &notice) == URMA_SUCCESS);
    CHECK(urma_ack_notify(here->ctx, 1, NULL) == URMA_EINVAL);
    CHECK(poll(&readable, 1, 0) == 0);
    CHECK(here->ctx->ref.atomic_cnt == users + 2);

    /* RM is not bound. */
    CHECK(urma_bind_jetty_async(notifier, here->jetty, target, 1, 0) == URMA_ENOPERM);
    CHECK(urma_unbind_jetty_async(here->jetty) == URMA_EINVAL);
    CHECK(urma_unimport_jetty_async(target) == URMA_SUCCESS);
    CHECK(urma_unimport_jetty_async(target) == URMA_EINVAL);
    CHECK(urma_unimport_jetty_async(NULL) == URMA_EINVAL);
    CHECK(here->ctx->ref.atomic_cnt == users + 1);

    /* No notice reports this one. */
    CHECK(urma_import_jetty_async(notifier, &peer->jetty, &token, 1, 60000) != NULL);
    CHECK(poll(&readable, 1, 60000) == 1);
    CHECK(urma_import_jetty_async(notifier, NULL, &token, 1, 0) == NULL && errno == EINVAL);
    urma_rjetty_t open = peer->jetty;
    open.flag.bs.token_policy = URMA_TOKEN_NONE;
    CHECK(urma_import_jetty_async(notifier, &open, NULL, 1, 0) == NULL && errno == EINVAL);
    CHECK(urma_import_jetty_async(NULL, &peer->jetty, &token, 1, 0) == NULL && errno == EINVAL);
    CHECK(urma_delete_notifier(notifier) == URMA_SUCCESS);
    CHECK(urma_delete_notifier(notifier) == URMA_EINVAL);
    CHECK(here->ctx->ref.atomic_cnt == users);
}

static void *wait_for_ever(void *notifier)
{
    urma_notify_t notice;
    return (void *)(intptr_t)urma_wait_notify(notifier, 1, &notice, -1);
}

/* A message by the compact path may have more bytes than a packet of compact hardware. */
static void compact_messages(struct end *here, struct end *there)
{
    struct info peer = end_info(there);
    urma_token_t token = {TOKEN};
    urma_sge_t sge = end_piece(here, 0, MEMORY);

    peer.jetty.tp_type = URMA_CTP;
    urma_target_jetty_t *ctp = urma_import_jetty(here->ctx, &peer.jetty, &token);
    CHECK(ctp != NULL);
    end_receive(there, 0, MEMORY, 3);
    CHECK(end_post(here, URMA_OPC_SEND, ctp, &sge, NULL) == URMA_SUCCESS);
    CHECK(end_wait(here->jfc).status == URMA_CR_SUCCESS);
    CHECK(end_wait(there->jfc).completion_len == MEMORY);
    CHECK(urma_unimport_jetty(ctp) == URMA_SUCCESS);
}

/* RC: bound by name of a path, and by notice; who waits on a deleted notifier returns. */
static void bindings(urma_device_t *dev)
{
    struct end here, there;
    urma_active_tp_cfg_t active = {0};
    urma_notify_t notice;
    pthread_t waiter;
    void *result = NULL;

    end_open(&here, dev, URMA_TM_RC);
    end_open(&there, dev, URMA_TM_RC);
    struct info peer = end_info(&there);
    urma_target_jetty_t *target = end_import_jetty(&here, &peer);
    CHECK(urma_bind_jetty_ex(here.jetty, target, NULL) == URMA_EINVAL);
    CHECK(urma_bind_jetty_ex(here.jetty, NULL, &active) == URMA_EINVAL);
    active.tp_handle = 0x999;
    CHECK(urma_bind_jetty_ex(here.jetty, target, &active) == URMA_EINVAL);
    active.tp_handle = 0;
    CHECK(urma_bind_jetty_ex(here.jetty, target, &active) == URMA_SUCCESS);
    CHECK(here.jetty->remote_jetty == target && urma_get_tpn(here.jetty) >= 0);
    CHECK(urma_bind_jetty_ex(here.jetty, target, &active) == URMA_SUCCESS); /* the same one */
    urma_target_jetty_t *other = end_import_jetty(&here, &peer);
    CHECK(urma_bind_jetty_ex(here.jetty, other, &active) == URMA_EEXIST);
    CHECK(here.jetty->remote_jetty == target);
    CHECK(urma_unbind_jetty(here.jetty) == URMA_SUCCESS);

    urma_notifier_t *notifier = urma_create_notifier(here.ctx);
    CHECK(notifier != NULL);
    CHECK(urma_bind_jetty_async(notifier, here.jetty, target, 0x88, 1000) == URMA_SUCCESS);
    CHECK(urma_wait_notify(notifier, 1, &notice, 60000) == 1);
    CHECK(notice.type == URMA_BIND_JETTY_NOTIFY && notice.status == URMA_SUCCESS);
    CHECK(notice.jetty == here.jetty && notice.user_ctx == 0x88);
    CHECK(urma_bind_jetty_async(notifier, here.jetty, other, 0x89, 1000) == URMA_SUCCESS);
    CHECK(urma_wait_notify(notifier, 1, &notice, 60000) == 1 && notice.status == URMA_EEXIST);
    /* Three notices: the descriptor is readable as long as one of them waits. */
    urma_notify_t several[4];
    struct pollfd readable = {notifier->fd, POLLIN, 0};
    CHECK(poll(&readable, 1, 0) == 0);
    for (uint64_t i = 0; i < 3; i++) {
        CHECK(urma_bind_jetty_async(notifier, here.jetty, other, 0x90 + i, 1000) == URMA_SUCCESS);
    }
    CHECK(urma_wait_notify(notifier, 1, several, 60000) == 1 && several[0].user_ctx == 0x90);
    CHECK(poll(&readable, 1, 0) == 1);
    CHECK(urma_wait_notify(notifier, 4, several, 60000) == 2);
    CHECK(several[0].user_ctx == 0x91 && several[1].user_ctx == 0x92);
    CHECK(poll(&readable, 1, 0) == 0);
    CHECK(urma_unbind_jetty_async(here.jetty) == URMA_SUCCESS);
    CHECK(here.jetty->remote_jetty == NULL);
    CHECK(urma_unbind_jetty_async(here.jetty) == URMA_EINVAL);
    CHECK(pthread_create(&waiter, NULL, wait_for_ever, notifier) == 0);
    CHECK(urma_delete_notifier(notifier) == URMA_SUCCESS);
    CHECK(pthread_join(waiter, &result) == 0 && (intptr_t)result <= 0);

    CHECK(urma_unimport_jetty(other) == URMA_SUCCESS);
    CHECK(urma_unimport_jetty(target) == URMA_SUCCESS);
    end_close(&here);
    end_close(&there);
}

/* A target that is being imported cannot be deleted: nothing is left of it once its notifier is gone. */
static void notifiers_deleted_during_an_import(urma_device_t *dev)
{
    struct end there;
    urma_token_t token = {TOKEN};

    end_open(&there, dev, URMA_TM_RM);
    struct info peer = end_info(&there);
    for (int i = 0; i < 32; i++) {
        urma_context_t *ctx = urma_create_context(dev, 0);
        CHECK(ctx != NULL);
        urma_notifier_t *notifier = urma_create_notifier(ctx);
        CHECK(notifier != NULL);
        for (int imports = 0; imports < 16; imports++) {
            CHECK(urma_import_jetty_async(notifier, &peer.jetty, &token, 1, 60000) != NULL);
        }
        CHECK(urma_delete_notifier(notifier) == URMA_SUCCESS);
        CHECK(urma_delete_context(ctx) == URMA_SUCCESS);
    }
    end_close(&there);
}

/* As many imports of a node that is not there as a notifier carries out: one more is refused, and each has a notice. */
static void imports_under_way(struct end *here, struct info *peer)
{
    enum { MOST = 64 };
    urma_token_t token = {TOKEN};
    urma_notify_t notices[MOST + 1];
    urma_rjetty_t gone = peer->jetty;
    int seen = 0;
    uint64_t sum = 0;

    memset(&gone.jetty_id.eid, 0, sizeof(gone.jetty_id.eid));
    gone.jetty_id.eid.in4.prefix = htonl(0xffff);
    gone.jetty_id.eid.in4.addr = htonl(0x7f090909); /* 127.9.9.9 */
    urma_notifier_t *notifier = urma_create_notifier(here->ctx);
    CHECK(notifier != NULL);
    uint64_t users = here->ctx->ref.atomic_cnt;
    for (uint64_t number = 1; number <= MOST; number++) {
        CHECK(urma_import_jetty_async(notifier, &gone, &token, number, 1) != NULL);
    }
    CHECK(urma_import_jetty_async(notifier, &gone, &token, 65, 1) == NULL && errno == EAGAIN);
    while (seen < MOST) {
        int count = urma_wait_notify(notifier, MOST + 1, notices, 60000);
        CHECK(count > 0 && seen + count <= MOST);
        for (int at = 0; at < count; at++) {
            CHECK(notices[at].type == URMA_IMPORT_JETTY_NOTIFY);
            CHECK(notices[at].status == ETIMEDOUT);
            sum += notices[at].user_ctx;
        }
        seen += count;
    }
    CHECK(sum == MOST * (MOST + 1) / 2);
    CHECK(urma_wait_notify(notifier, 1, notices, 0) == 0);
    CHECK(here->ctx->ref.atomic_cnt == users);
    CHECK(urma_delete_notifier(notifier) == URMA_SUCCESS);
}

static urma_status_t ask(urma_context_t *ctx, uint32_t opcode, void *in, uint32_t in_len, void *out,
                         uint32_t out_len)
{
    urma_user_ctl_in_t from = {(uint64_t)(uintptr_t)in, in_len, opcode};
    urma_user_ctl_out_t to = {(uint64_t)(uintptr_t)out, out_len, 0};
    return urma_user_ctl(ctx, &from, &to);
}

static void device_calls(struct end *here)
{
    urma_context_t *ctx = here->ctx;
    struct udma_u_ue_info info = {9, 9, 9};
    struct udma_u_jfc_cfg_ex jfc_cfg;
    struct udma_u_jfr_cfg_ex jfr_cfg;
    urma_jfc_t *jfc = NULL;
    urma_jfr_t *jfr = NULL;
    uint64_t users = ctx->ref.atomic_cnt;

    CHECK(ask(ctx, UDMA_U_USER_CTL_QUERY_UE_INFO, NULL, 0, &info, sizeof(info)) == URMA_SUCCESS);
    CHECK(info.ue_id == 0 && info.chip_id == 0 && info.die_id == 0);
    CHECK(ask(ctx, UDMA_U_USER_CTL_QUERY_UE_INFO, NULL, 0, NULL, sizeof(info)) == URMA_FAIL);
    CHECK(ask(ctx, UDMA_U_USER_CTL_MAX, NULL, 0, NULL, 0) == URMA_ENOPERM);
    CHECK(ask(ctx, 0xffffffff, NULL, 0, NULL, 0) == URMA_ENOPERM);

    memset(&jfc_cfg, 0, sizeof(jfc_cfg));
    jfc_cfg.base_cfg.depth = 16;
    CHECK(ask(ctx, UDMA_U_USER_CTL_CREATE_JFC_EX, &jfc_cfg, sizeof(jfc_cfg), &jfc, sizeof(jfc)) ==
          URMA_SUCCESS);
    CHECK(jfc != NULL && ctx->ref.atomic_cnt == users + 1);
    jfc_cfg.jfc_mode = UDMA_U_CCU_JFC_TYPE;
    CHECK(ask(ctx, UDMA_U_USER_CTL_CREATE_JFC_EX, &jfc_cfg, sizeof(jfc_cfg), &jfr, sizeof(jfr)) ==
          URMA_FAIL);
    memset(&jfr_cfg, 0, sizeof(jfr_cfg));
    jfr_cfg.base_cfg.depth = 16;
    jfr_cfg.base_cfg.max_sge = 1;
    jfr_cfg.base_cfg.trans_mode = URMA_TM_RM;
    jfr_cfg.base_cfg.jfc = jfc;
    CHECK(ask(ctx, UDMA_U_USER_CTL_CREATE_JFR_EX, &jfr_cfg, sizeof(jfr_cfg) - 1, &jfr,
              sizeof(jfr)) == URMA_FAIL);
    CHECK(ask(ctx, UDMA_U_USER_CTL_CREATE_JFR_EX, &jfr_cfg, sizeof(jfr_cfg), &jfr, sizeof(jfr)) ==
          URMA_SUCCESS);
    CHECK(jfr != NULL && ctx->ref.atomic_cnt == users + 2);
    CHECK(ask(ctx, UDMA_U_USER_CTL_DELETE_JFR_EX, &jfr, sizeof(jfr), NULL, 0) == URMA_SUCCESS);
    CHECK(ask(ctx, UDMA_U_USER_CTL_DELETE_JFR_EX, &jfr, sizeof(jfr), NULL, 0) == URMA_FAIL);
    CHECK(ask(ctx, UDMA_U_USER_CTL_DELETE_JFC_EX, &jfc, sizeof(jfc), NULL, 0) == URMA_SUCCESS);
    CHECK(ctx->ref.atomic_cnt == users);

    uint32_t refused[] = {UDMA_U_USER_CTL_CREATE_JFS_EX,      UDMA_U_USER_CTL_CREATE_JETTY_EX,
                          UDMA_U_USER_CTL_UPDATE_CI,          UDMA_U_USER_CTL_QUERY_TP_SPORT,
                          UDMA_U_USER_CTL_QUERY_CQE_AUX_INFO, UDMA_U_USER_CTL_QUERY_AE_AUX_INFO};
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        CHECK(ask(ctx, refused[i], NULL, 0, NULL, 0) == URMA_FAIL);
        CHECK(ctx->ops->user_ctl != NULL);
    }
    CHECK(urma_user_ctl(NULL, NULL, NULL) == URMA_EINVAL);
    CHECK(urma_user_ctl(ctx, NULL, NULL) == URMA_EINVAL);

    /* A post that rings is a post. */
    struct info peer = end_info(here);
    urma_target_jetty_t *target = end_import_jetty(here, &peer);
    urma_sge_t sge = end_piece(here, 0, 8);
    struct udma_u_jfs_wr_ex wr, *bad = NULL;
    struct udma_u_wr_ex post;
    struct udma_u_post_info posted;
    memset(&wr, 0, sizeof(wr));
    memset(&post, 0, sizeof(post));
    wr.wr.opcode = URMA_OPC_SEND;
    wr.wr.flag.bs.complete_enable = 1;
    wr.wr.tjetty = target;
    wr.wr.user_ctx = 31;
    wr.wr.send.src.sge = &sge;
    wr.wr.send.src.num_sge = 1;
    post.is_jetty = true;
    post.jetty = here->jetty;
    post.wr = &wr;
    post.bad_wr = &bad;
    CHECK(ask(ctx, UDMA_U_USER_CTL_POST_WR, &post, sizeof(post), &posted, sizeof(posted)) ==
          URMA_FAIL); /* rings later */
    post.db_en = true;
    wr.reduce_en = true;
    CHECK(ask(ctx, UDMA_U_USER_CTL_POST_WR, &post, sizeof(post), &posted, sizeof(posted)) ==
          URMA_FAIL);
    wr.reduce_en = false;
    /* A request that the post refuses. */
    wr.wr.tjetty = NULL;
    CHECK(ask(ctx, UDMA_U_USER_CTL_POST_WR, &post, sizeof(post), &posted, sizeof(posted)) ==
          URMA_FAIL);
    CHECK(bad == &wr);
    wr.wr.tjetty = target;
    end_receive(here, 4096, 8, 32);
    CHECK(ask(ctx, UDMA_U_USER_CTL_POST_WR, &post, sizeof(post), &posted, sizeof(posted)) ==
          URMA_SUCCESS);
    uint64_t seen = end_wait(here->jfc).user_ctx + end_wait(here->jfc).user_ctx;
    CHECK(seen == 31 + 32);
    CHECK(urma_unimport_jetty(target) == URMA_SUCCESS);
}

/* The same device under a bonding device's name. */
static void bonding(void)
{
    urma_device_t *dev = urma_get_device_by_name((char *)"bonding_dev_0");
    CHECK(dev != NULL);
    urma_context_t *ctx = urma_create_context(dev, 0);
    CHECK(ctx != NULL);
    bondp_set_bonding_mode_in_t mode = {BONDP_BONDING_MODE_BALANCE, BONDP_BONDING_LEVEL_PORT};
    CHECK(ask(ctx, BONDP_USER_CTL_SET_BONDING_MODE, &mode, sizeof(mode), NULL, 0) == URMA_SUCCESS);
    CHECK(ctx->aggr_mode == URMA_AGGR_MODE_BALANCE);
    mode.bonding_level = BONDP_BONDING_LEVEL_MAX;
    CHECK(ask(ctx, BONDP_USER_CTL_SET_BONDING_MODE, &mode, sizeof(mode), NULL, 0) == URMA_FAIL);
    uint32_t legacy = URMA_AGGR_MODE_ACTIVE_BACKUP;
    CHECK(ask(ctx, BONDP_USER_CTL_SET_BONDING_MODE_LEGACY, &legacy, 4, NULL, 0) == URMA_SUCCESS);
    CHECK(ctx->aggr_mode == URMA_AGGR_MODE_ACTIVE_BACKUP);
    CHECK(ask(ctx, BONDP_USER_CTL_DISABLE_MSN, NULL, 0, NULL, 0) == URMA_SUCCESS);
    CHECK(ask(ctx, BONDP_USER_CTL_ENABLE_SEG_CACHE, NULL, 0, NULL, 0) == URMA_SUCCESS);
    urma_jfce_t *jfce = urma_create_jfce(ctx);
    CHECK(jfce != NULL);
    CHECK(ask(ctx, BONDP_USER_CTL_DISABLE_MSN, NULL, 0, NULL, 0) == URMA_FAIL); /* in use */
    bondp_get_jfce_fd_list_in_t of = {jfce};
    bondp_get_jfce_fd_list_out_t list;
    CHECK(ask(ctx, BONDP_USER_CTL_GET_JFCE_FD_LIST, &of, sizeof(of), &list, sizeof(list)) == 0);
    CHECK(list.count == 1 && list.fd_list[0] == jfce->fd && list.fd_list[1] == -1);
    CHECK(ask(ctx, 99, NULL, 0, NULL, 0) == URMA_ENOPERM);
    CHECK(urma_delete_jfce(jfce) == URMA_SUCCESS && urma_delete_context(ctx) == URMA_SUCCESS);
}

static void counters(struct end *here)
{
    char text[8192];
    uint32_t len = sizeof(text);
    urma_cr_t cr;

    CHECK(!urma_perf_is_enabled());
    CHECK(urma_stop_perf() == URMA_SUCCESS);
    CHECK(urma_step_perf(UB_JFS_POST_SEND, 100) == URMA_ENOPERM);
    CHECK(urma_start_perf() == URMA_SUCCESS && urma_perf_is_enabled());
    uint64_t start = urma_get_perf_timestamp();
    CHECK(urma_get_perf_timestamp() >= start);
    CHECK(urma_step_perf(UB_JFS_POST_SEND, 100) == URMA_SUCCESS);
    CHECK(urma_step_perf(UB_JFS_POST_SEND, 5000) == URMA_SUCCESS);
    CHECK(urma_step_perf(URMA_PERF_RECORD_TYPE_MAX, 100) == URMA_EINVAL);
    for (int i = 0; i < 100; i++) {
        CHECK(urma_poll_jfc(here->jfc, 1, &cr) == 0);
    }
    urma_ubagg_switch_inc();
    CHECK(urma_get_perf_info(text, &len) == URMA_SUCCESS && len == strlen(text) + 1);
    CHECK(strstr(text, "UB_JFS_POST_SEND     | 2        | 2550     | 100      | 5000 ") != NULL);
    CHECK(strstr(text, "UB_POLL_JFC") != NULL && strstr(text, "retry_count: 1") != NULL);
    CHECK(strstr(text, "UB_WAIT_JFC") == NULL);
    uint32_t less = len - 1;
    CHECK(urma_get_perf_info(text, &less) == URMA_EINVAL);
    CHECK(urma_get_perf_info(NULL, &len) == URMA_EINVAL);
    CHECK(urma_get_perf_info(text, NULL) == URMA_EINVAL);
    CHECK(urma_stop_perf() == URMA_SUCCESS && !urma_perf_is_enabled());
    CHECK(urma_get_perf_timestamp() == URMA_ENOPERM);
}

static char line[1024];
static int line_level;

static void note(int level, char *message)
{
    line_level = level;
    snprintf(line, sizeof(line), "%s", message);
}

#if URMA_ABI_PROFILE == URMA_ABI_26_06
static int line_number;

static void note_place(int level, const char *file, const char *function, int number, char *message)
{
    line_level = level;
    line_number = number;
    snprintf(line, sizeof(line), "%s:%s:%s", file, function, message);
}
#endif

/* More arguments than registers hold, of both kinds. */
static void log_lines(void)
{
    CHECK(urma_register_log_func(note) == URMA_SUCCESS);
    urma_log("f", 1, URMA_VLOG_LEVEL_ERR, "%d %s %.1f %d %d %d %d %ld %.2f %c", 1, "two", 3.5, 4, 5,
             6, 7, 8L, 9.25, 'x');
    CHECK(line_level == URMA_VLOG_LEVEL_ERR);
    CHECK(strstr(line, "1 two 3.5 4 5 6 7 8 9.25 x") != NULL);
    urma_log("f", 1, URMA_VLOG_LEVEL_INFO, "%f %f %f %f %f %f %f %f %.1f %.1f", 0., 1., 2., 3., 4.,
             5., 6., 7., 8.5, 9.5);
    CHECK(strstr(line, "7.000000 8.5 9.5") != NULL);
    urma_log("f", 1, URMA_VLOG_LEVEL_INFO, "plain");
    CHECK(strstr(line, "plain") != NULL);
#if URMA_ABI_PROFILE == URMA_ABI_26_06
    CHECK(urma_register_loc_log_func(note_place) == URMA_SUCCESS);
    urma_log_loc("a.c", "g", 42, URMA_VLOG_LEVEL_WARNING, "%d-%d-%s-%.1f", 1, 2, "three", 4.5);
    CHECK(line_level == URMA_VLOG_LEVEL_WARNING && line_number == 42);
    CHECK(strstr(line, "a.c:g:") == line && strstr(line, "1-2-three-4.5") != NULL);
#endif
    CHECK(urma_unregister_log_func() == URMA_SUCCESS);

    urma_log_set_level(URMA_VLOG_LEVEL_WARNING);
    CHECK(urma_log_drop(URMA_VLOG_LEVEL_INFO) && !urma_log_drop(URMA_VLOG_LEVEL_ERR));

    /* One place may write 100 lines in its window, the first one beside. */
    DEFINE_URMA_LOG_RL_STATE(state);
    int written = 0;
    for (int i = 0; i < 200; i++) {
        written += urma_log_rl_check(&state, "a.c", "g", 1);
    }
    CHECK(written >= 100 && written <= 102);
    CHECK(urma_log_rl_check(NULL, "a.c", "g", 1));
}

int main(void)
{
    struct end here, there;

    log_lines();
    CHECK(urma_init(NULL) == URMA_SUCCESS);
    urma_device_t *dev = urma_get_device_by_name((char *)"udma0");
    CHECK(dev != NULL);
    end_open(&here, dev, URMA_TM_RM);
    end_open(&there, dev, URMA_TM_RM);
    struct info peer = end_info(&there);
    paths(&here, &peer);
    receive_queues(&here, &there);
    addresses(&here);
    notices(&here, &peer);
    imports_under_way(&here, &peer);
    compact_messages(&here, &there);
    device_calls(&here);
    counters(&here);
    end_close(&here);
    end_close(&there);
    bindings(dev);
    notifiers_deleted_during_an_import(dev);
    bonding();
    CHECK(urma_uninit() == URMA_SUCCESS);
    puts("paths: done");
    return 0;
}
