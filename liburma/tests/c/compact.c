/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Compact transport (CTP): imports and bindings by its handles, what targets say of it, and that
 * messages of any length and other requests go as on any reliable path.
 */
#include "end.h"

static uint64_t handle_of(struct end *end, urma_transport_mode_t mode, bool is_compact)
{
    urma_get_tp_cfg_t cfg = {0};
    urma_tp_info_t list[2] = {{0}};
    uint32_t count = 2;

    cfg.trans_mode = mode;
    cfg.local_eid = cfg.peer_eid = end->ctx->eid;
    cfg.flag.bs.ctp = is_compact;
    cfg.flag.bs.rtp = !is_compact;
    CHECK(urma_get_tp_list(end->ctx, &cfg, &count, list) == URMA_SUCCESS && count == 1);
    CHECK(list[0].tp_handle != 0);
    return list[0].tp_handle;
}

static void exchange(struct end *here, struct end *there, urma_target_jetty_t *target)
{
    struct info peer = end_info(there);
    urma_target_seg_t *remote = end_import_seg(here, &peer);
    urma_sge_t from = end_piece(here, 0, 4096), to = end_piece(there, 4096, 4096);

    /* What one packet of compact hardware carries, and blocks of 8,192 bytes, which brpc sends. */
    memset(here->memory, 0x5c, 4096);
    end_receive(there, 4096, 4096, 1);
    CHECK(end_post(here, URMA_OPC_SEND, target, &from, NULL) == URMA_SUCCESS);
    CHECK(end_wait(here->jfc).status == URMA_CR_SUCCESS);
    urma_cr_t cr = end_wait(there->jfc);
    CHECK(cr.completion_len == 4096 && there->memory[8191] == 0x5c);
    from = end_piece(here, 0, 8192);
    memset(here->memory, 0x6d, 8192);
    for (int i = 0; i < 2; i++) {
        end_receive(there, 0, 8192, 2);
        CHECK(end_post(here, i == 0 ? URMA_OPC_SEND : URMA_OPC_SEND_IMM, target, &from, NULL) == URMA_SUCCESS);
        CHECK(end_wait(here->jfc).status == URMA_CR_SUCCESS);
        cr = end_wait(there->jfc);
        CHECK(cr.completion_len == 8192 && there->memory[0] == 0x6d && there->memory[8191] == 0x6d);
        memset(there->memory, 0, 8192);
    }

    from = end_piece(here, 0, 8192);
    to = end_piece(there, 0, 8192);
    to.tseg = remote;
    memset(here->memory, 0x3a, 8192);
    CHECK(end_post(here, URMA_OPC_WRITE, target, &from, &to) == URMA_SUCCESS);
    CHECK(end_wait(here->jfc).status == URMA_CR_SUCCESS && there->memory[8191] == 0x3a);
    CHECK(urma_unimport_seg(remote) == URMA_SUCCESS);
}

/* RM: jetty by handle, JFR by handle; a handle of the other kind leads nowhere. */
static void reliable(urma_device_t *dev)
{
    struct end here, there;
    urma_active_tp_cfg_t active = {0};
    urma_token_t token = {TOKEN};

    end_open(&here, dev, URMA_TM_RM);
    end_open(&there, dev, URMA_TM_RM);
    struct info peer = end_info(&there);
    active.tp_handle = handle_of(&here, URMA_TM_RM, true);
    CHECK(active.tp_handle != handle_of(&here, URMA_TM_RM, false));
    errno = 0;
    CHECK(urma_import_jetty_ex(here.ctx, &peer.jetty, &token, &active) == NULL && errno == EINVAL);
    peer.jetty.tp_type = URMA_CTP;
    urma_target_jetty_t *target = urma_import_jetty_ex(here.ctx, &peer.jetty, &token, &active);
    CHECK(target != NULL && target->tp_type == URMA_CTP && target->trans_mode == URMA_TM_RM);
    exchange(&here, &there, target);
    CHECK(urma_unimport_jetty(target) == URMA_SUCCESS);
    active.tp_handle = handle_of(&here, URMA_TM_RM, false);
    CHECK(urma_import_jetty_ex(here.ctx, &peer.jetty, &token, &active) == NULL);

    urma_rjfr_t rjfr = {0};
    rjfr.jfr_id = there.jfr->jfr_id;
    rjfr.trans_mode = URMA_TM_RM;
    rjfr.flag.bs.token_policy = URMA_TOKEN_PLAIN_TEXT;
    rjfr.tp_type = URMA_CTP;
    CHECK(urma_import_jfr_ex(here.ctx, &rjfr, &token, &active) == NULL); /* an RTP handle */
    active.tp_handle = handle_of(&here, URMA_TM_RM, true);
    target = urma_import_jfr_ex(here.ctx, &rjfr, &token, &active);
    CHECK(target != NULL && target->tp_type == URMA_CTP && target->type == URMA_JFR);
    exchange(&here, &there, target);
    CHECK(urma_unimport_jfr(target) == URMA_SUCCESS);
    target = urma_import_jfr(here.ctx, &rjfr, &token);
    CHECK(target != NULL && target->tp_type == URMA_CTP);
    CHECK(urma_unimport_jfr(target) == URMA_SUCCESS);
    end_close(&here);
    end_close(&there);
}

/* RC: the bound target's kind is the queue's. */
static void bound(urma_device_t *dev)
{
    struct end here, there;
    urma_active_tp_cfg_t active = {0};
    urma_token_t token = {TOKEN};

    end_open(&here, dev, URMA_TM_RC);
    end_open(&there, dev, URMA_TM_RC);
    struct info peer = end_info(&there), mine = end_info(&here);
    peer.jetty.tp_type = mine.jetty.tp_type = URMA_CTP;
    active.tp_handle = handle_of(&here, URMA_TM_RC, true);
    urma_target_jetty_t *target = urma_import_jetty_ex(here.ctx, &peer.jetty, &token, &active);
    urma_target_jetty_t *back = urma_import_jetty(there.ctx, &mine.jetty, &token);
    CHECK(target != NULL && target->tp_type == URMA_CTP && back != NULL);
    active.tp_handle = handle_of(&here, URMA_TM_RC, false);
    CHECK(urma_bind_jetty_ex(here.jetty, target, &active) == URMA_EINVAL);
    CHECK(here.jetty->remote_jetty == NULL);
    active.tp_handle = handle_of(&here, URMA_TM_RC, true);
    CHECK(urma_bind_jetty_ex(here.jetty, target, &active) == URMA_SUCCESS);
    CHECK(here.jetty->remote_jetty == target && urma_get_tpn(here.jetty) >= 0);
    CHECK(urma_bind_jetty(there.jetty, back) == URMA_SUCCESS);
    exchange(&here, &there, target);
    CHECK(urma_unbind_jetty(here.jetty) == URMA_SUCCESS);
    CHECK(urma_unbind_jetty(there.jetty) == URMA_SUCCESS);
    CHECK(urma_unimport_jetty(target) == URMA_SUCCESS);
    CHECK(urma_unimport_jetty(back) == URMA_SUCCESS);
    end_close(&here);
    end_close(&there);
}

int main(void)
{
    int count = 0;
    urma_device_attr_t attr;

    CHECK(urma_init(NULL) == URMA_SUCCESS);
    urma_device_t **devs = urma_get_device_list(&count);
    CHECK(devs != NULL && count > 0);
    CHECK(urma_query_device(devs[0], &attr) == URMA_SUCCESS);
    CHECK(attr.dev_cap.feature.bs.ctp_en);
    CHECK(attr.dev_cap.rm_tp_cap.bs.ctp && attr.dev_cap.rc_tp_cap.bs.ctp);
    reliable(devs[0]);
    bound(devs[0]);
    urma_free_device_list(devs);
    CHECK(urma_uninit() == URMA_SUCCESS);
    return 0;
}
