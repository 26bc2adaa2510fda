/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Requests that name no segment: inline bytes of any memory, taken when they are posted, up to the
 * limit of the queue; remote memory by its numbers (user_tseg). And several segments of one token id.
 */
#include "end.h"

struct way {
    struct end *here, *there;
    urma_target_jetty_t *target;
    urma_target_seg_t *remote;
    urma_user_tseg_t numbers;
};

enum { INLINE = 64 };

static urma_sge_t loose(const void *bytes, uint32_t len)
{
    urma_sge_t sge = {0};
    sge.addr = (uintptr_t)bytes;
    sge.len = len;
    return sge;
}

/* A request with pieces here and there. */
static urma_jfs_wr_t request(const struct way *way, urma_opcode_t opcode, urma_sge_t *src,
                             uint32_t count, urma_sge_t *dst)
{
    urma_jfs_wr_t wr = {0};

    wr.opcode = opcode;
    wr.flag.bs.complete_enable = 1;
    wr.tjetty = way->target;
    if (opcode == URMA_OPC_SEND || opcode == URMA_OPC_SEND_IMM) {
        wr.send.src.sge = src;
        wr.send.src.num_sge = count;
        wr.send.imm_data = 0x77;
    } else {
        wr.rw.src.sge = src;
        wr.rw.src.num_sge = count;
        wr.rw.dst.sge = dst;
        wr.rw.dst.num_sge = 1;
    }
    return wr;
}

static urma_status_t post(const struct way *way, urma_jfs_wr_t *wr)
{
    static urma_jfs_wr_t untouched;
    urma_jfs_wr_t *bad = &untouched;
    urma_status_t status = urma_post_jetty_send_wr(way->here->jetty, wr, &bad);
    CHECK(bad == (status == URMA_SUCCESS ? &untouched : wr));
    return status;
}

static void sent(const struct way *way, urma_jfs_wr_t *wr, const char *bytes, uint32_t len)
{
    memset(way->there->memory, 0, 256);
    end_receive(way->there, 0, 256, 1);
    CHECK(post(way, wr) == URMA_SUCCESS);
    CHECK(end_wait(way->here->jfc).status == URMA_CR_SUCCESS);
    urma_cr_t cr = end_wait(way->there->jfc);
    CHECK(cr.status == URMA_CR_SUCCESS && cr.completion_len == len);
    CHECK(memcmp(way->there->memory, bytes, len) == 0);
}

static void inline_bytes(const struct way *way)
{
    char stack[INLINE + 1], *heap = malloc(32);
    urma_sge_t pieces[2], to = end_piece(way->there, 512, INLINE);

    CHECK(heap != NULL);
    memset(stack, 's', sizeof(stack));
    memset(heap, 'h', 32);
    pieces[0] = loose(stack, 5);
    pieces[1] = loose(heap, 4);
    urma_jfs_wr_t wr = request(way, URMA_OPC_SEND, pieces, 2, NULL);
    CHECK(post(way, &wr) == URMA_EINVAL); /* not inline: memory must be registered */
    wr.flag.bs.inline_flag = 1;
    sent(way, &wr, "ssssshhhh", 9);
    wr.opcode = URMA_OPC_SEND_IMM;
    wr.send.imm_data = 0x77;
    sent(way, &wr, "ssssshhhh", 9);
    pieces[1] = end_piece(way->here, 0, 3); /* one with a segment beside one without */
    memcpy(way->here->memory, "seg", 3);
    sent(way, &wr, "sssssseg", 8);

    /* Beside the segment that is named: before it, behind it, across its end. */
    pieces[1] = loose(heap, 4);
    pieces[0].tseg = pieces[1].tseg = way->here->seg;
    sent(way, &wr, "ssssshhhh", 9);
    pieces[1] = end_piece(way->here, MEMORY - 2, 3);
    wr.flag.bs.inline_flag = 0;
    CHECK(post(way, &wr) == URMA_EINVAL);
    pieces[1] = end_piece(way->here, MEMORY - 3, 3);
    memcpy(way->here->memory + MEMORY - 3, "end", 3);
    wr.flag.bs.inline_flag = 1;
    sent(way, &wr, "sssssend", 8);

    /* As much as the queue was made for, and one byte more. */
    pieces[0] = loose(stack, INLINE);
    wr = request(way, URMA_OPC_SEND, pieces, 1, NULL);
    wr.flag.bs.inline_flag = 1;
    sent(way, &wr, stack, INLINE);
    pieces[0].len = INLINE + 1;
    CHECK(post(way, &wr) == URMA_EINVAL);
    pieces[0] = loose(NULL, 4);
    CHECK(post(way, &wr) == URMA_EINVAL);
    pieces[0] = loose(stack, UINT32_MAX);
    CHECK(post(way, &wr) == URMA_EINVAL);
    wr.send.src.num_sge = UINT32_MAX;
    CHECK(post(way, &wr) == URMA_EINVAL);
    wr.send.src.num_sge = 0; /* an empty message */
    sent(way, &wr, "", 0);

    /* The bytes are those of the moment of the post. */
    to.tseg = way->remote;
    pieces[0] = loose(heap, 8);
    wr = request(way, URMA_OPC_WRITE, pieces, 1, &to);
    wr.flag.bs.inline_flag = 1;
    memcpy(heap, "earlier!", 8);
    CHECK(post(way, &wr) == URMA_SUCCESS);
    memcpy(heap, "later...", 8);
    CHECK(end_wait(way->here->jfc).status == URMA_CR_SUCCESS);
    CHECK(memcmp(way->there->memory + 512, "earlier!", 8) == 0);
    free(heap);
}

/* In a list of plain ones: all of it in order, and the first that is wrong is named. */
static void lists(const struct way *way)
{
    enum { ALL = 40 };
    urma_jfs_wr_t wrs[ALL], *bad = NULL;
    urma_sge_t from[ALL], to[ALL];
    uint8_t bytes[ALL];

    for (int i = 0; i < ALL; i++) {
        bytes[i] = (uint8_t)(i + 1);
        way->here->memory[i] = (uint8_t)(i + 1);
        from[i] = i % 3 == 1 ? loose(bytes + i, 1) : end_piece(way->here, (size_t)i, 1);
        to[i] = end_piece(way->there, 1024 + (size_t)i, 1);
        to[i].tseg = i % 5 == 2 ? NULL : way->remote;
        to[i].user_tseg = i % 5 == 2 ? (urma_user_tseg_t *)&way->numbers : NULL;
    }
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < ALL; i++) {
            wrs[i] = request(way, URMA_OPC_WRITE, &from[i], 1, &to[i]);
            wrs[i].flag.bs.inline_flag = 1;
            wrs[i].flag.bs.complete_enable = i == ALL - 1;
            wrs[i].next = i == ALL - 1 ? NULL : &wrs[i + 1];
        }
        if (round == 0) {
            int done = 0;
            for (urma_jfs_wr_t *at = wrs; at != NULL;) { /* the queue is shorter than the list */
                urma_status_t status = urma_post_jetty_send_wr(way->here->jetty, at, &bad);
                if (status == URMA_SUCCESS) {
                    break;
                }
                CHECK(status == FULL && bad >= at && done++ < 100000);
                urma_cr_t cr;
                CHECK(urma_poll_jfc(way->here->jfc, 1, &cr) == 0);
                at = bad;
            }
            CHECK(end_wait(way->here->jfc).status == URMA_CR_SUCCESS);
            CHECK(memcmp(way->there->memory + 1024, bytes, ALL) == 0);
        } else {
            wrs[7].tjetty = NULL;
            wrs[6].flag.bs.complete_enable = 1;
            memset(way->there->memory + 1024, 0, ALL);
            CHECK(urma_post_jetty_send_wr(way->here->jetty, wrs, &bad) == URMA_EINVAL);
            CHECK(bad == &wrs[7]);
            CHECK(end_wait(way->here->jfc).status == URMA_CR_SUCCESS);
            CHECK(memcmp(way->there->memory + 1024, bytes, 7) == 0);
            CHECK(way->there->memory[1024 + 7] == 0);
        }
    }
}

static void numbers(struct way *way)
{
    urma_sge_t here = end_piece(way->here, 0, 16), there = end_piece(way->there, 2048, 16);
    urma_user_tseg_t wrong = way->numbers;
    urma_jfs_wr_t wr;

    there.tseg = NULL;
    there.user_tseg = &way->numbers;
    memcpy(way->here->memory, "known by numbers", 16);
    wr = request(way, URMA_OPC_WRITE, &here, 1, &there);
    CHECK(post(way, &wr) == URMA_SUCCESS);
    CHECK(end_wait(way->here->jfc).status == URMA_CR_SUCCESS);
    CHECK(memcmp(way->there->memory + 2048, "known by numbers", 16) == 0);

    memset(way->here->memory, 0, 16);
    wr = request(way, URMA_OPC_READ, &there, 1, &here);
    CHECK(post(way, &wr) == URMA_SUCCESS);
    CHECK(end_wait(way->here->jfc).status == URMA_CR_SUCCESS);
    CHECK(memcmp(way->here->memory, "known by numbers", 16) == 0);

    here.len = there.len = 8;
    memset(&wr, 0, sizeof(wr));
    wr.opcode = URMA_OPC_FADD;
    wr.flag.bs.complete_enable = 1;
    wr.tjetty = way->target;
    wr.faa.src = &here;
    wr.faa.dst = &there;
    wr.faa.operand = 1;
    CHECK(post(way, &wr) == URMA_SUCCESS);
    CHECK(end_wait(way->here->jfc).status == URMA_CR_SUCCESS);
    CHECK(way->there->memory[2048] == 'k' + 1);

    /* What the numbers do not open is the owner's to refuse. */
    wr = request(way, URMA_OPC_WRITE, &here, 1, &there);
    there.user_tseg = &wrong;
    wrong.token_value.token++;
    CHECK(post(way, &wr) == URMA_SUCCESS);
    CHECK(end_wait(way->here->jfc).status == URMA_CR_REM_ACCESS_ABORT_ERR);
    wrong = way->numbers;
    wrong.attr.bs.token_policy = URMA_TOKEN_SIGNED;
    CHECK(post(way, &wr) == URMA_EINVAL);
    there.user_tseg = NULL;
    CHECK(post(way, &wr) == URMA_EINVAL);
}

/* One token id for several segments, each of which peers reach. */
static void several(struct way *way)
{
    struct end *there = way->there;
    urma_token_id_flag_t flag = {0};
    urma_token_t token = {TOKEN};
    urma_import_seg_flag_t import = {0};
    urma_seg_cfg_t cfg = {0};
    urma_target_seg_t *seg[3], *remote[3];
    unsigned long before = there->ctx->ref.atomic_cnt;
    urma_device_attr_t attr;

    CHECK(urma_query_device(there->ctx->dev, &attr) == URMA_SUCCESS);
    CHECK(attr.dev_cap.feature.bs.muti_seg_per_token_id);
    cfg.len = 64;
    cfg.token_value.token = TOKEN;
    cfg.flag.bs.token_policy = URMA_TOKEN_PLAIN_TEXT;
    cfg.flag.bs.access = URMA_ACCESS_READ | URMA_ACCESS_WRITE;
    cfg.flag.bs.token_id_valid = 1;
    for (int with_flag = 0; with_flag < 2; with_flag++) {
        flag.bs.multi_seg = 1;
        cfg.token_id = with_flag ? urma_alloc_token_id_ex(there->ctx, flag)
                                 : urma_alloc_token_id(there->ctx);
        CHECK(cfg.token_id != NULL);
        for (int i = 0; i < 3; i++) {
            cfg.va = (uintptr_t)there->memory + 4096 + 64 * (unsigned)i;
            CHECK((seg[i] = urma_register_seg(there->ctx, &cfg)) != NULL);
            CHECK(seg[i]->token_id == cfg.token_id && seg[i]->seg.attr.bs.user_token_id);
            remote[i] = urma_import_seg(way->here->ctx, &seg[i]->seg, &token, 0, import);
            CHECK(remote[i] != NULL);
        }
        CHECK(urma_free_token_id(cfg.token_id) == URMA_EINVAL);
        for (int i = 0; i < 3; i++) {
            urma_sge_t from = end_piece(way->here, 0, 64), to = end_piece(there, 4096, 64);
            to.addr += 64 * (unsigned)i;
            to.tseg = remote[i];
            memset(way->here->memory, 'a' + i, 64);
            CHECK(end_post(way->here, URMA_OPC_WRITE, way->target, &from, &to) == URMA_SUCCESS);
            CHECK(end_wait(way->here->jfc).status == URMA_CR_SUCCESS);
            CHECK(there->memory[4096 + 64 * i + 63] == 'a' + i);
            CHECK(urma_unimport_seg(remote[i]) == URMA_SUCCESS);
        }
        CHECK(urma_unregister_seg(seg[0]) == URMA_SUCCESS);
        CHECK(urma_unregister_seg(seg[2]) == URMA_SUCCESS);
        CHECK(urma_free_token_id(cfg.token_id) == URMA_EINVAL);
        CHECK(urma_unregister_seg(seg[1]) == URMA_SUCCESS);
        CHECK(urma_free_token_id(cfg.token_id) == URMA_SUCCESS);
        CHECK(there->ctx->ref.atomic_cnt == before);
    }
    flag.bs.multi_seg = 0; /* one, as was asked for */
    CHECK((cfg.token_id = urma_alloc_token_id_ex(there->ctx, flag)) != NULL);
    CHECK((seg[0] = urma_register_seg(there->ctx, &cfg)) != NULL);
    errno = 0;
    CHECK(urma_register_seg(there->ctx, &cfg) == NULL && errno == EEXIST);
    CHECK(urma_unregister_seg(seg[0]) == URMA_SUCCESS);
    CHECK(urma_free_token_id(cfg.token_id) == URMA_SUCCESS);
}

static void both(urma_device_t *dev, urma_transport_mode_t mode)
{
    struct end here, there;

    end_open(&here, dev, mode);
    end_open(&there, dev, mode);
    struct info peer = end_info(&there), mine = end_info(&here);
    struct way way = {&here, &there, end_import_jetty(&here, &peer), end_import_seg(&here, &peer),
                      {{{0}}, 0, {0}}};
    urma_target_jetty_t *back = end_import_jetty(&there, &mine);
    way.numbers.attr.bs.token_policy = URMA_TOKEN_PLAIN_TEXT;
    way.numbers.token_id = peer.seg.token_id;
    way.numbers.token_value.token = TOKEN;
    if (mode == URMA_TM_RC) {
        CHECK(urma_bind_jetty(here.jetty, way.target) == URMA_SUCCESS);
        CHECK(urma_bind_jetty(there.jetty, back) == URMA_SUCCESS);
    }
    inline_bytes(&way);
    if (mode == URMA_TM_RM) {
        lists(&way);
        several(&way);
    }
    numbers(&way);
    if (mode == URMA_TM_RC) {
        CHECK(urma_unbind_jetty(here.jetty) == URMA_SUCCESS);
        CHECK(urma_unbind_jetty(there.jetty) == URMA_SUCCESS);
    }
    CHECK(urma_unimport_jetty(back) == URMA_SUCCESS);
    CHECK(urma_unimport_seg(way.remote) == URMA_SUCCESS);
    CHECK(urma_unimport_jetty(way.target) == URMA_SUCCESS);
    end_close(&here);
    end_close(&there);
}

int main(void)
{
    int count = 0;

    CHECK(urma_init(NULL) == URMA_SUCCESS);
    urma_device_t **devs = urma_get_device_list(&count);
    CHECK(devs != NULL && count > 0);
    both(devs[0], URMA_TM_RM);
    both(devs[0], URMA_TM_RC);
    urma_free_device_list(devs);
    CHECK(urma_uninit() == URMA_SUCCESS);
    return 0;
}
