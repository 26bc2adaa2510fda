/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Calls that the C functions refuse: one function for each behaviour of docs/conformance.md that the
 * Rust API refuses before it calls its provider, so that the conformance suite cannot try it in C.
 * The function has the name of the behaviour; the suite compares the names with its list.
 */
#include <sys/mman.h>

#include "end.h"

#define REFUSED(call, why)                                                                        \
    do {                                                                                          \
        errno = 0;                                                                                \
        CHECK((call) == NULL && errno == (why));                                                  \
    } while (0)

static struct end here, there;
static urma_device_attr_t attr;
static urma_target_jetty_t *target;
static urma_target_seg_t *remote;

/* Posts one request to the jetty of `here`, and sees that bad_wr names it when it is refused. */
static urma_status_t post_on(urma_jetty_t *jetty, urma_jfs_wr_t *wr)
{
    urma_jfs_wr_t *bad = NULL;
    urma_status_t status = urma_post_jetty_send_wr(jetty, wr, &bad);
    CHECK(status == URMA_SUCCESS ? bad == NULL : bad == wr);
    return status;
}

static urma_jfs_wr_t transfer(urma_opcode_t opcode, urma_sge_t *src, uint32_t src_num, urma_sge_t *dst,
                              uint32_t dst_num)
{
    urma_jfs_wr_t wr = {0};
    wr.opcode = opcode;
    wr.tjetty = target;
    wr.flag.bs.complete_enable = 1;
    wr.rw.src = (urma_sg_t){src, src_num};
    wr.rw.dst = (urma_sg_t){dst, dst_num};
    return wr;
}

static urma_jfs_wr_t message(urma_sge_t *src, uint32_t num, urma_target_jetty_t *to)
{
    urma_jfs_wr_t wr = {0};
    wr.opcode = URMA_OPC_SEND;
    wr.tjetty = to;
    wr.send.src = (urma_sg_t){src, num};
    return wr;
}

static urma_jfs_wr_t add(urma_sge_t *src, urma_sge_t *dst)
{
    urma_jfs_wr_t wr = {0};
    wr.opcode = URMA_OPC_FADD;
    wr.tjetty = target;
    wr.faa.src = src;
    wr.faa.dst = dst;
    return wr;
}

static int write_is_refused(urma_sge_t *src, uint32_t num, urma_sge_t *dst)
{
    urma_jfs_wr_t wr = transfer(URMA_OPC_WRITE, src, num, dst, 1);
    return post_on(here.jetty, &wr) == URMA_EINVAL;
}

/* ---- posts ---- */

static void write_with_too_many_sges_is_refused(void)
{
    urma_sge_t src[3] = {end_piece(&here, 0, 8), end_piece(&here, 8, 8), end_piece(&here, 16, 8)};
    urma_sge_t dst = end_far(remote, 0, 24);
    CHECK(write_is_refused(src, 3, &dst));
}

static void write_with_too_much_inline_is_refused(void)
{
    urma_sge_t src = end_piece(&here, 0, 65), dst = end_far(remote, 0, 65);
    urma_jfs_wr_t wr = transfer(URMA_OPC_WRITE, &src, 1, &dst, 1);
    wr.flag.bs.inline_flag = 1;
    CHECK(post_on(here.jetty, &wr) == URMA_EINVAL);
}

static void write_notify_misaligned_is_refused(void)
{
    urma_sge_t src = end_piece(&here, 0, 8), dst[2] = {end_far(remote, 0, 8), end_far(remote, 516, 8)};
    urma_jfs_wr_t wr = transfer(URMA_OPC_WRITE_NOTIFY, &src, 1, dst, 2);
    CHECK(post_on(here.jetty, &wr) == URMA_EINVAL);
}

static void read_with_inline_is_refused(void)
{
    urma_sge_t near = end_piece(&here, 0, 8), dst = end_far(remote, 0, 8);
    urma_jfs_wr_t wr = transfer(URMA_OPC_READ, &dst, 1, &near, 1), atomic = add(&near, &dst);
    wr.flag.bs.inline_flag = atomic.flag.bs.inline_flag = 1;
    CHECK(post_on(here.jetty, &wr) == URMA_EINVAL && post_on(here.jetty, &atomic) == URMA_EINVAL);
}

static void read_with_too_many_sges_is_refused(void)
{
    urma_sge_t near[3] = {end_piece(&here, 0, 8), end_piece(&here, 8, 8), end_piece(&here, 16, 8)};
    urma_sge_t src = end_far(remote, 0, 24);
    urma_jfs_wr_t wr = transfer(URMA_OPC_READ, &src, 1, near, 3);
    CHECK(post_on(here.jetty, &wr) == URMA_EINVAL);
}

static void atomic_misaligned_is_refused(void)
{
    urma_sge_t near = end_piece(&here, 0, 8), dst = end_far(remote, 4, 8);
    urma_jfs_wr_t wr = add(&near, &dst);
    CHECK(post_on(here.jetty, &wr) == URMA_EINVAL);
}

static void atomic_of_wrong_size_is_refused(void)
{
    static const uint32_t sizes[] = {0, 1, 2, 16};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        urma_sge_t near = end_piece(&here, 0, sizes[i]), dst = end_far(remote, 0, sizes[i]);
        urma_jfs_wr_t wr = add(&near, &dst);
        CHECK(post_on(here.jetty, &wr) == URMA_EINVAL);
    }
}

static void send_with_too_many_sges_is_refused(void)
{
    urma_sge_t src[3] = {end_piece(&here, 0, 8), end_piece(&here, 8, 8), end_piece(&here, 16, 8)};
    urma_jfs_wr_t wr = message(src, 3, target);
    CHECK(post_on(here.jetty, &wr) == URMA_EINVAL);
}

static void send_with_both_orders_is_refused(void)
{
    urma_sge_t src = end_piece(&here, 0, 8);
    urma_jfs_wr_t wr = message(&src, 1, target);
    wr.flag.bs.place_order = 3; /* relaxed and strong */
    CHECK(post_on(here.jetty, &wr) == URMA_EINVAL);
}

static void batch_with_a_bad_request(void)
{
    urma_sge_t src = end_piece(&here, 0, 8), dst = end_far(remote, 0, 8);
    urma_sge_t outside = end_piece(&here, MEMORY - 4, 8);
    urma_jfs_wr_t wr[3], *bad = NULL;
    urma_cr_t cr;

    for (int i = 0; i < 3; i++) {
        wr[i] = transfer(URMA_OPC_WRITE, i == 1 ? &outside : &src, 1, &dst, 1);
        wr[i].user_ctx = (uint64_t)i + 1;
        wr[i].next = i < 2 ? &wr[i + 1] : NULL;
    }
    CHECK(urma_post_jetty_send_wr(here.jetty, wr, &bad) == URMA_EINVAL && bad == &wr[1]);
    cr = end_wait(here.jfc);
    CHECK(cr.status == URMA_CR_SUCCESS && cr.user_ctx == 1);
    CHECK(urma_poll_jfc(here.jfc, 1, &cr) == 0);
}

static void local_range_outside_is_refused(void)
{
    urma_sge_t after = end_piece(&here, MEMORY - 7, 8), before = end_piece(&here, 0, 8);
    urma_sge_t dst = end_far(remote, 0, 8);
    before.addr -= 1;
    CHECK(write_is_refused(&after, 1, &dst) && write_is_refused(&before, 1, &dst));
}

static void one_byte_beyond_the_end(void)
{
    urma_sge_t src = end_piece(&here, 0, 8), dst = end_far(remote, MEMORY - 7, 8);
    CHECK(write_is_refused(&src, 1, &dst));
}

static void one_byte_before_the_start(void)
{
    urma_sge_t src = end_piece(&here, 0, 8), dst = end_far(remote, 0, 8);
    dst.addr -= 1;
    CHECK(write_is_refused(&src, 1, &dst));
}

static void sizes_beyond_the_limit(void)
{
    urma_device_attr_t attr;
    urma_seg_cfg_t cfg = {0};

    CHECK(urma_query_device(here.ctx->dev, &attr) == URMA_SUCCESS);
    const uint32_t most = (uint32_t)attr.dev_cap.max_msg_size;
    CHECK(most == attr.dev_cap.max_msg_size);
    /* Address space alone: no page of it is touched. */
    void *memory = mmap(NULL, (size_t)most + 1, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(memory != MAP_FAILED);
    cfg.va = (uint64_t)(uintptr_t)memory;
    cfg.len = most + 1;
    cfg.flag.bs.access = URMA_ACCESS_LOCAL_ONLY;
    urma_target_seg_t *seg = urma_register_seg(here.ctx, &cfg);
    CHECK(seg != NULL);
    urma_sge_t src = {.addr = cfg.va, .len = most + 1, .tseg = seg};
    urma_jfs_wr_t wr = message(&src, 1, target);
    CHECK(post_on(here.jetty, &wr) == URMA_EINVAL);
    CHECK(urma_unregister_seg(seg) == URMA_SUCCESS);
    CHECK(munmap(memory, (size_t)most + 1) == 0);
}

/* ---- objects ---- */

static void shared_jfr_outlives_its_jetties(void)
{
    CHECK(urma_delete_jfr(there.jfr) == URMA_EAGAIN);
}

static void jfc_of_a_queue_stays(void)
{
    CHECK(urma_delete_jfc(there.jfc) == URMA_EAGAIN);
}

static void jfce_of_a_jfc_stays(void)
{
    CHECK(urma_delete_jfce(there.jfce) == URMA_FAIL);
}

static void token_id_of_a_segment_stays(void)
{
    CHECK(urma_free_token_id(there.seg->token_id) == URMA_EINVAL);
}

static void arm_without_jfce_is_refused(void)
{
    urma_jfc_cfg_t cfg = {0};
    cfg.depth = 8;
    urma_jfc_t *jfc = urma_create_jfc(here.ctx, &cfg);
    CHECK(jfc != NULL);
    CHECK(urma_rearm_jfc(jfc, false) == URMA_EINVAL);
    CHECK(urma_delete_jfc(jfc) == URMA_SUCCESS);
}

static void event_vectors_beyond_the_limit(void)
{
    urma_jfc_cfg_t cfg = {0};
    cfg.depth = 8;
    cfg.ceqn = attr.dev_cap.ceq_cnt;
    REFUSED(urma_create_jfc(here.ctx, &cfg), EINVAL);
}

static urma_jfs_cfg_t sends(void)
{
    return here.jetty->jetty_cfg.jfs_cfg;
}

static urma_jfr_cfg_t receives(void)
{
    return here.jfr->jfr_cfg;
}

static void depths_beyond_the_limit(void)
{
    const uint32_t jfc[] = {0, attr.dev_cap.max_jfc_depth + 1}, jfs[] = {0, attr.dev_cap.max_jfs_depth + 1};
    const uint32_t jfr[] = {0, attr.dev_cap.max_jfr_depth + 1};
    for (int i = 0; i < 2; i++) {
        urma_jfc_cfg_t completes = {0};
        urma_jfs_cfg_t send = sends();
        urma_jfr_cfg_t receive = receives();
        completes.depth = jfc[i];
        send.depth = jfs[i];
        receive.depth = jfr[i];
        REFUSED(urma_create_jfc(here.ctx, &completes), EINVAL);
        REFUSED(urma_create_jfs(here.ctx, &send), EINVAL);
        REFUSED(urma_create_jfr(here.ctx, &receive), EINVAL);
    }
}

static void sges_beyond_the_limit(void)
{
    urma_jfs_cfg_t send = sends();
    urma_jfr_cfg_t receive = receives();
    send.max_sge = (uint8_t)(attr.dev_cap.max_jfs_sge + 1);
    receive.max_sge = (uint8_t)(attr.dev_cap.max_jfr_sge + 1);
    REFUSED(urma_create_jfs(here.ctx, &send), EINVAL);
    REFUSED(urma_create_jfr(here.ctx, &receive), EINVAL);
}

static void inline_beyond_the_limit(void)
{
    urma_jfs_cfg_t send = sends();
    send.max_inline_data = attr.dev_cap.max_jfs_inline_len + 1;
    REFUSED(urma_create_jfs(here.ctx, &send), EINVAL);
}

static void timers_beyond_the_limit(void)
{
    urma_jfs_cfg_t priority = sends(), retry = sends(), timeout = sends();
    urma_jfr_cfg_t receive = receives();
    priority.priority = 16;
    retry.rnr_retry = 8;
    timeout.err_timeout = 32;
    receive.min_rnr_timer = 32;
    REFUSED(urma_create_jfs(here.ctx, &priority), EINVAL);
    REFUSED(urma_create_jfs(here.ctx, &retry), EINVAL);
    REFUSED(urma_create_jfs(here.ctx, &timeout), EINVAL);
    REFUSED(urma_create_jfr(here.ctx, &receive), EINVAL);
}

static void id_beyond_20_bits_is_refused(void)
{
    urma_jetty_cfg_t cfg = here.jetty->jetty_cfg;
    urma_jfr_cfg_t receive = receives();
    urma_jetty_grp_cfg_t group = {0};
    cfg.id = receive.id = group.id = 1 << 20;
    REFUSED(urma_create_jetty(here.ctx, &cfg), EINVAL);
    REFUSED(urma_create_jfr(here.ctx, &receive), EINVAL);
    REFUSED(urma_create_jetty_grp(here.ctx, &group), EINVAL);
}

static void order_type_must_fit(void)
{
    urma_jfs_cfg_t send = sends();
    urma_jetty_cfg_t cfg = here.jetty->jetty_cfg;
    urma_jfr_cfg_t receive = receives();
    send.flag.bs.order_type = receive.flag.bs.order_type = cfg.jfs_cfg.flag.bs.order_type = URMA_OL; /* of RC */
    REFUSED(urma_create_jfs(here.ctx, &send), EINVAL);
    /* A JFR may be made with it, as with UMDK's library: the jetty is refused, with it and with what fits. */
    urma_jfr_t *jfr = urma_create_jfr(here.ctx, &receive);
    CHECK(jfr != NULL && jfr->jfr_cfg.flag.bs.order_type == URMA_OL);
    cfg.id = 0;
    cfg.shared.jfr = jfr;
    cfg.shared.jfc = NULL;
    REFUSED(urma_create_jetty(here.ctx, &cfg), EINVAL);
    cfg.jfs_cfg.flag.bs.order_type = URMA_OI;
    REFUSED(urma_create_jetty(here.ctx, &cfg), EINVAL);
    CHECK(urma_delete_jfr(jfr) == URMA_SUCCESS);
}

static void rc_needs_a_jetty(void)
{
    urma_jfs_cfg_t send = sends();
    send.trans_mode = URMA_TM_RC;
    send.flag.bs.order_type = 0;
    REFUSED(urma_create_jfs(here.ctx, &send), EINVAL);
}

static void rx_threshold_beyond_depth_is_refused(void)
{
    urma_jfr_attr_t to = {JFR_RX_THRESHOLD, receives().depth + 1, URMA_JFR_STATE_READY};
    CHECK(urma_modify_jfr(here.jfr, &to) == URMA_EINVAL);
}

static void jfr_cannot_be_suspended(void)
{
    urma_jfr_attr_t to = {JFR_STATE, 0, (urma_jfr_state_t)3}; /* C has no word for it */
    CHECK(urma_modify_jfr(here.jfr, &to) == URMA_EINVAL);
}

/* A group of RM jetties whose JFR has no token. */
static urma_jetty_grp_t *grouped(urma_jetty_t **member, uint32_t count, urma_jfr_t **jfr)
{
    urma_jfr_cfg_t receive = receives();
    urma_jetty_grp_cfg_t cfg = {0};
    receive.flag.bs.token_policy = URMA_TOKEN_NONE;
    receive.token_value.token = 0;
    urma_jetty_grp_t *group = urma_create_jetty_grp(here.ctx, &cfg);
    CHECK(group != NULL);
    CHECK((*jfr = urma_create_jfr(here.ctx, &receive)) != NULL);
    for (uint32_t i = 0; i < count; i++) {
        urma_jetty_cfg_t jetty = here.jetty->jetty_cfg;
        jetty.shared.jfr = *jfr;
        jetty.jetty_grp = group;
        CHECK((member[i] = urma_create_jetty(here.ctx, &jetty)) != NULL);
    }
    return group;
}

static void group_outlives_its_members(void)
{
    urma_jetty_t *member;
    urma_jfr_t *jfr;
    urma_jetty_grp_t *group = grouped(&member, 1, &jfr);
    CHECK(urma_delete_jetty_grp(group) == URMA_ENOPERM);
    CHECK(urma_delete_jetty(member) == URMA_SUCCESS && urma_delete_jfr(jfr) == URMA_SUCCESS);
    CHECK(urma_delete_jetty_grp(group) == URMA_SUCCESS);
}

static void group_has_a_limit(void)
{
    urma_jetty_t *member[64];
    urma_jfr_t *jfr;
    const uint32_t most = attr.dev_cap.max_jetty_in_jetty_grp;
    CHECK(most > 0 && most <= 64);
    urma_jetty_grp_t *group = grouped(member, most, &jfr);
    urma_jetty_cfg_t one_more = member[0]->jetty_cfg;
    CHECK(group->jetty_cnt == most);
    REFUSED(urma_create_jetty(here.ctx, &one_more), EINVAL);
    for (uint32_t i = 0; i < most; i++) {
        CHECK(urma_delete_jetty(member[i]) == URMA_SUCCESS);
    }
    CHECK(urma_delete_jfr(jfr) == URMA_SUCCESS && urma_delete_jetty_grp(group) == URMA_SUCCESS);
}

/* ---- segments and targets ---- */

static void access_mask_rules(void)
{
    static const uint32_t masks[] = {0, URMA_ACCESS_WRITE, URMA_ACCESS_ATOMIC,
                                     URMA_ACCESS_LOCAL_ONLY | URMA_ACCESS_READ,
                                     URMA_ACCESS_READ | URMA_ACCESS_ATOMIC};
    for (size_t i = 0; i < sizeof masks / sizeof masks[0]; i++) {
        urma_seg_cfg_t cfg = {0};
        cfg.va = (uint64_t)(uintptr_t)here.memory;
        cfg.len = 64;
        cfg.flag.bs.access = masks[i];
        REFUSED(urma_register_seg(here.ctx, &cfg), EINVAL);
    }
}

static void impossible_iova_is_refused(void)
{
    static const uint64_t iovas[] = {0, UINT64_MAX - 8};
    for (int i = 0; i < 2; i++) {
        urma_seg_cfg_t cfg = {0};
        cfg.va = (uint64_t)(uintptr_t)here.memory;
        cfg.len = 64;
        cfg.flag.bs.access = URMA_ACCESS_READ;
        cfg.flag.bs.user_iova = 1;
        cfg.iova = iovas[i];
        REFUSED(urma_register_seg(here.ctx, &cfg), EINVAL);
    }
}

static void range_that_wraps_is_refused(void)
{
    static const struct {
        uint64_t va, len;
    } ranges[] = {{0, 64}, {4096, 0}, {UINT64_MAX - 8, 64}};
    urma_import_seg_flag_t flag = {0};
    urma_token_t token = {TOKEN};
    for (int i = 0; i < 3; i++) {
        urma_seg_t seg = remote->seg;
        seg.ubva.va = ranges[i].va;
        seg.len = ranges[i].len;
        REFUSED(urma_import_seg(here.ctx, &seg, &token, 0, flag), EINVAL);
    }
}

static urma_rjetty_t peer(void)
{
    return end_info(&there).jetty;
}

static void path_type_must_fit(void)
{
    urma_token_t token = {TOKEN};
    urma_rjetty_t to = peer();
    to.tp_type = URMA_UTP; /* of UM */
    REFUSED(urma_import_jetty(here.ctx, &to, &token), EINVAL);
}

static void zero_eid_is_refused(void)
{
    urma_token_t token = {TOKEN};
    urma_rjetty_t nowhere = peer(), without_id = peer();
    memset(&nowhere.jetty_id.eid, 0, sizeof(nowhere.jetty_id.eid));
    without_id.jetty_id.id = 0;
    REFUSED(urma_import_jetty(here.ctx, &nowhere, &token), EINVAL);
    REFUSED(urma_import_jetty(here.ctx, &without_id, &token), EINVAL);
}

/* Of an RC jetty, and a target that is RM. */
static void advise_needs_rm(const struct end *rc, urma_target_jetty_t *rm)
{
    CHECK(urma_advise_jetty(rc->jetty, rm) == URMA_EINVAL);
}

static void bind_needs_rc(const struct end *rc, urma_target_jetty_t *rm)
{
    CHECK(urma_bind_jetty(here.jetty, target) == URMA_ENOPERM);
    CHECK(urma_bind_jetty(rc->jetty, rm) == URMA_ENOPERM);
}

static void bind_needs_equal_order(const struct end *rc)
{
    urma_token_t token = {TOKEN};
    urma_rjetty_t to = end_remote(rc->jetty);
    to.flag.bs.order_type = URMA_OT;
    urma_target_jetty_t *other = urma_import_jetty(rc->ctx, &to, &token);
    CHECK(other != NULL);
    CHECK(urma_bind_jetty(rc->jetty, other) == URMA_ENOPERM);
    CHECK(urma_unimport_jetty(other) == URMA_SUCCESS);
}

static void rc_unbind_of_unbound_is_refused(const struct end *rc)
{
    CHECK(urma_unbind_jetty(rc->jetty) == URMA_EINVAL);
}

static void rc_unbound_post_is_refused(const struct end *rc)
{
    urma_sge_t src = end_piece(rc, 0, 8);
    urma_jfs_wr_t wr = message(&src, 1, NULL);
    CHECK(post_on(rc->jetty, &wr) == URMA_EINVAL);
}

/* Of a UM jetty, and a target that is RM. */
static void mode_of_target_must_fit(const struct end *um, urma_target_jetty_t *rm)
{
    urma_sge_t src = end_piece(um, 0, 8);
    urma_jfs_wr_t wr = message(&src, 1, rm);
    CHECK(post_on(um->jetty, &wr) == URMA_EINVAL);
}

/* Of a UM jetty, and a UM target; the segment is what grants everything. */
static void um_refuses_one_sided(const struct end *um, urma_target_jetty_t *to, urma_target_seg_t *seg)
{
    urma_sge_t near = end_piece(um, 0, 8), dst = near;
    dst.tseg = seg;
    urma_jfs_wr_t write = transfer(URMA_OPC_WRITE, &near, 1, &dst, 1);
    urma_jfs_wr_t read = transfer(URMA_OPC_READ, &dst, 1, &near, 1), atomic = add(&near, &dst);
    write.tjetty = read.tjetty = atomic.tjetty = to;
    CHECK(post_on(um->jetty, &write) == URMA_EINVAL && post_on(um->jetty, &read) == URMA_EINVAL);
    CHECK(post_on(um->jetty, &atomic) == URMA_EINVAL);
}

static void um_refuses_longer_messages(const struct end *um, urma_target_jetty_t *to)
{
    urma_sge_t src[] = {end_piece(um, 0, 4096), end_piece(um, 0, 4096)};
    urma_jfs_wr_t wr = message(src, 2, to);
    CHECK(post_on(um->jetty, &wr) == URMA_SUCCESS);
    src[1].len = 4097;
    CHECK(post_on(um->jetty, &wr) == URMA_EINVAL);
}

static void posts(void)
{
    write_with_too_many_sges_is_refused();
    write_with_too_much_inline_is_refused();
    write_notify_misaligned_is_refused();
    read_with_inline_is_refused();
    read_with_too_many_sges_is_refused();
    atomic_misaligned_is_refused();
    atomic_of_wrong_size_is_refused();
    send_with_too_many_sges_is_refused();
    send_with_both_orders_is_refused();
    batch_with_a_bad_request();
    local_range_outside_is_refused();
    one_byte_beyond_the_end();
    one_byte_before_the_start();
    sizes_beyond_the_limit();
}

static void objects(void)
{
    shared_jfr_outlives_its_jetties();
    jfc_of_a_queue_stays();
    jfce_of_a_jfc_stays();
    token_id_of_a_segment_stays();
    arm_without_jfce_is_refused();
    event_vectors_beyond_the_limit();
    depths_beyond_the_limit();
    sges_beyond_the_limit();
    inline_beyond_the_limit();
    timers_beyond_the_limit();
    id_beyond_20_bits_is_refused();
    order_type_must_fit();
    rc_needs_a_jetty();
    rx_threshold_beyond_depth_is_refused();
    jfr_cannot_be_suspended();
    group_outlives_its_members();
    group_has_a_limit();
    access_mask_rules();
    impossible_iova_is_refused();
    range_that_wraps_is_refused();
    path_type_must_fit();
    zero_eid_is_refused();
}

static void modes(urma_device_t *dev)
{
    struct end rc, um;

    end_open(&rc, dev, URMA_TM_RC);
    struct info there_info = end_info(&there);
    urma_target_jetty_t *rm = end_import_jetty(&rc, &there_info);
    advise_needs_rm(&rc, rm);
    bind_needs_rc(&rc, rm);
    bind_needs_equal_order(&rc);
    rc_unbind_of_unbound_is_refused(&rc);
    rc_unbound_post_is_refused(&rc);
    CHECK(urma_unimport_jetty(rm) == URMA_SUCCESS);
    end_close(&rc);

    end_open(&um, dev, URMA_TM_UM);
    struct info info = end_info(&um);
    urma_target_jetty_t *to = end_import_jetty(&um, &info);
    urma_target_seg_t *seg = end_import_seg(&um, &info);
    rm = end_import_jetty(&um, &there_info);
    mode_of_target_must_fit(&um, rm);
    um_refuses_one_sided(&um, to, seg);
    um_refuses_longer_messages(&um, to);
    CHECK(urma_unimport_jetty(rm) == URMA_SUCCESS && urma_unimport_jetty(to) == URMA_SUCCESS);
    CHECK(urma_unimport_seg(seg) == URMA_SUCCESS);
    end_close(&um);
}

int main(void)
{
    CHECK(urma_init(NULL) == URMA_SUCCESS);
    urma_device_t *dev = urma_get_device_by_name((char *)"udma0");
    CHECK(dev != NULL && urma_query_device(dev, &attr) == URMA_SUCCESS);
    end_open(&here, dev, URMA_TM_RM);
    end_open(&there, dev, URMA_TM_RM);
    struct info info = end_info(&there);
    target = end_import_jetty(&here, &info);
    remote = end_import_seg(&here, &info);
    posts();
    objects();
    modes(dev);
    CHECK(urma_unimport_seg(remote) == URMA_SUCCESS && urma_unimport_jetty(target) == URMA_SUCCESS);
    end_close(&here);
    end_close(&there);
    CHECK(urma_uninit() == URMA_SUCCESS);
    return 0;
}
