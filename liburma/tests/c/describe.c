/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Descriptions for peers: bytes that mean the same anywhere, of the length that was given, with what
 * a bonding device adds behind the struct; and imports from copies of them.
 */
#include "end.h"

#include <ub/umdk/urma/urma_private.h>
#include <ub/umdk/urma/urma_ubagg.h>

#if URMA_ABI_PROFILE == URMA_ABI_26_06
/* A copy elsewhere, as a peer reads it from a socket. */
static void *received(const void *from, uint32_t size)
{
    void *copy = malloc(size);
    CHECK(copy != NULL);
    memcpy(copy, from, size);
    return copy;
}

static urma_rjetty_t *described_jetty(urma_jetty_t *jetty, uint32_t *size)
{
    urma_rjetty_t *made = NULL;
    CHECK(urma_get_rjetty(jetty, &made, size) == URMA_SUCCESS);
    urma_rjetty_t *copy = received(made, *size);
    memset(made, 0xee, *size); /* all of it is the caller's */
    urma_put_rjetty(made);
    return copy;
}

static urma_seg_t *described_segment(urma_target_seg_t *seg, uint32_t *size)
{
    urma_seg_t *made = NULL;
    CHECK(urma_get_seg_ctx(seg, &made, size) == URMA_SUCCESS);
    urma_seg_t *copy = received(made, *size);
    memset(made, 0xee, *size);
    urma_put_seg_ctx(made);
    return copy;
}

/* What a bonding device adds, by its public structs. */
static void added(const struct end *end, const urma_rjetty_t *jetty, const urma_seg_t *seg)
{
    const uint8_t *more = (const uint8_t *)(jetty + 1);
    urma_user_info_ext_hdr_t head;
    urma_bond_jetty_ext_v0_t ext;
    bondp_rjetty_target_ctx_t target;
    urma_bond_seg_ext_t peers;

    memcpy(&head.len, more, sizeof(head.len));
    CHECK(head.len == sizeof(ext) + 1 + sizeof(target));
    memcpy(&ext, more + 4, sizeof(ext));
    CHECK(ext.version == BONDP_RJETTY_EXT_VERSION_V0 && !ext.is_health_check_enable);
    CHECK(ext.mask == (BONDP_RJETTY_EXT_MASK_MULTI_PATH | BONDP_RJETTY_EXT_MASK_LOCAL_CTX |
                       BONDP_RJETTY_EXT_MASK_TARGET_CTX));
    CHECK(!ext.is_multipath && ext.local_ctx_cnt == 1 && ext.target_ctx_cnt == 1);
    more += 4 + offsetof(urma_bond_jetty_ext_v0_t, data);
    CHECK(more[0] == 0);
    memcpy(&target, more + 1, sizeof(target));
    bondp_rjetty_target_ctx_t first;
    memset(&first, 0, sizeof(first));
    first.slave_id = end->jetty->jetty_id;
    CHECK(memcmp(&target, &first, sizeof(first)) == 0);

    more = (const uint8_t *)(seg + 1);
    memcpy(&head.len, more, sizeof(head.len));
    CHECK(head.len == sizeof(peers));
    memcpy(&peers, more + 4, sizeof(peers));
    urma_bond_seg_ext_t wanted;
    memset(&wanted, 0, sizeof(wanted));
    wanted.peer_p_seg[0].ubva = seg->ubva;
    wanted.peer_p_seg[0].len = MEMORY;
    wanted.peer_p_seg[0].attr = end->seg->seg.attr;
    wanted.peer_p_seg[0].token_id = seg->token_id;
    CHECK(memcmp(&peers, &wanted, sizeof(wanted)) == 0);
    CHECK(seg->ubva.va == (uintptr_t)end->memory && seg->ubva.uasid == end->ctx->uasid);
    CHECK(end->seg->seg.attr.value != 0 && seg->token_id != 0);
}

static void exchange(struct end *here, struct end *there, bool is_bonding)
{
    urma_token_t token = {TOKEN};
    urma_import_seg_flag_t flag = {0};
    uint32_t jetty_size = 0, seg_size = 0, size = 0;
    urma_rjetty_t *jetty = described_jetty(there->jetty, &jetty_size);
    urma_seg_t *seg = described_segment(there->seg, &seg_size);

    CHECK(jetty->flag.bs.has_user_info == is_bonding && seg->attr.bs.has_user_info == is_bonding);
    CHECK(jetty->jetty_id.id == there->jetty->jetty_id.id && jetty->type == URMA_JETTY);
    CHECK(jetty->flag.bs.token_policy == URMA_TOKEN_PLAIN_TEXT && seg->len == MEMORY);
    if (is_bonding) {
        added(there, jetty, seg);
    } else {
        CHECK(jetty_size == sizeof(*jetty) && seg_size == sizeof(*seg));
    }
    urma_target_jetty_t *target = urma_import_jetty(here->ctx, jetty, &token);
    urma_target_seg_t *remote = urma_import_seg(here->ctx, seg, &token, 0, flag);
    CHECK(target != NULL && remote != NULL);
    free(jetty);
    free(seg);
    CHECK(target->flag.bs.has_user_info == 0 && remote->seg.attr.bs.has_user_info == 0);

    memcpy(here->memory, "described", 9);
    urma_sge_t from = end_piece(here, 0, 9), to = end_piece(there, 4096, 9);
    to.tseg = remote;
    CHECK(end_post(here, URMA_OPC_WRITE, target, &from, &to) == URMA_SUCCESS);
    CHECK(end_wait(here->jfc).status == URMA_CR_SUCCESS);
    CHECK(memcmp(there->memory + 4096, "described", 9) == 0);

    /* An imported segment can be described too. */
    seg = described_segment(remote, &size);
    CHECK(seg->ubva.va == (uintptr_t)there->memory);
    free(seg);
    CHECK(urma_unimport_seg(remote) == URMA_SUCCESS);
    CHECK(urma_unimport_jetty(target) == URMA_SUCCESS);
}

/* A member of a group tells of the group's policy. */
static void policy(struct end *end)
{
    urma_jetty_grp_cfg_t grp_cfg = {0};
    urma_jetty_cfg_t cfg = end->jetty->jetty_cfg;
    uint32_t size = 0;

    grp_cfg.token_value.token = TOKEN;
    grp_cfg.flag.bs.token_policy = URMA_TOKEN_PLAIN_TEXT;
    grp_cfg.policy = URMA_JETTY_GRP_POLICY_HASH_HINT;
    cfg.id = 0;
    CHECK((cfg.jetty_grp = urma_create_jetty_grp(end->ctx, &grp_cfg)) != NULL);
    urma_jetty_t *member = urma_create_jetty(end->ctx, &cfg);
    CHECK(member != NULL);
    urma_rjetty_t *described = described_jetty(member, &size);
    CHECK(described->policy == URMA_JETTY_GRP_POLICY_HASH_HINT);
    free(described);
    CHECK(urma_delete_jetty(member) == URMA_SUCCESS);
    CHECK(urma_delete_jetty_grp(cfg.jetty_grp) == URMA_SUCCESS);
}

/* What a program that asks the device itself may get wrong. */
static void refused(struct end *bonded, struct end *other)
{
    urma_rjetty_t *made = NULL;
    urma_user_ctl_in_t in = {(uintptr_t)bonded->jetty, sizeof(urma_jetty_t),
                             BONDP_USER_CTL_OPCODE_GET_RJETTY};
    urma_user_ctl_out_t out = {(uintptr_t)&made, sizeof(made), 0};

    CHECK(urma_user_ctl(bonded->ctx, &in, &out) == URMA_SUCCESS && made != NULL);
    CHECK(made->flag.bs.has_user_info);
    urma_put_rjetty(made);
    in.addr = (uintptr_t)other->jetty; /* another context's */
    CHECK(urma_user_ctl(bonded->ctx, &in, &out) == URMA_FAIL);
    in.addr = 0;
    CHECK(urma_user_ctl(bonded->ctx, &in, &out) == URMA_FAIL);
    in.addr = (uintptr_t)bonded->jetty;
    in.len = sizeof(urma_jetty_t) - 1;
    CHECK(urma_user_ctl(bonded->ctx, &in, &out) == URMA_FAIL);
    in.len = sizeof(urma_jetty_t);
    out.len = 4;
    CHECK(urma_user_ctl(bonded->ctx, &in, &out) == URMA_FAIL);
    out.len = sizeof(made);
    in.opcode = BONDP_USER_CTL_OPCODE_GET_SEG_CTX; /* a jetty is no segment */
    CHECK(urma_user_ctl(bonded->ctx, &in, &out) == URMA_FAIL);
}

int main(void)
{
    struct end bonded, plain;

    CHECK(urma_init(NULL) == URMA_SUCCESS);
    end_open(&bonded, urma_get_device_by_name((char *)"bonding_dev_0"), URMA_TM_RM);
    end_open(&plain, urma_get_device_by_name((char *)"udma0"), URMA_TM_RM);
    exchange(&bonded, &bonded, true);
    exchange(&plain, &bonded, true);
    exchange(&bonded, &plain, false);
    policy(&plain);
    policy(&bonded);
    refused(&bonded, &plain);
    end_close(&plain);
    end_close(&bonded);
    CHECK(urma_uninit() == URMA_SUCCESS);
    return 0;
}
#else
int main(void)
{
    return 0; /* the release has none of these calls */
}
#endif
