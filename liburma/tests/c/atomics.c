/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Atomics: every operation in every size that the device's limits name, with the old value in the
 * result and no byte beside it touched; and the sizes that it does not have.
 */
#include "end.h"

struct way {
    struct end *here, *there;
    urma_target_jetty_t *target;
    urma_target_seg_t *remote;
};

enum { AT = 1024, RESULT = 2048 };

/* Posts one atomic of `len` bytes; the status. */
static urma_status_t post(const struct way *way, urma_opcode_t opcode, uint32_t len, uint64_t value,
                          uint64_t compare)
{
    urma_sge_t result = end_piece(way->here, RESULT, len), at = end_piece(way->there, AT, len);
    urma_jfs_wr_t wr = {0}, *bad = NULL;

    at.tseg = way->remote;
    wr.opcode = opcode;
    wr.flag.bs.complete_enable = 1;
    wr.tjetty = way->target;
    if (opcode == URMA_OPC_CAS || opcode == URMA_OPC_SWAP) {
        wr.cas.src = &result;
        wr.cas.dst = &at;
        wr.cas.swap_data = value;
        wr.cas.cmp_data = compare;
    } else {
        wr.faa.src = &result;
        wr.faa.dst = &at;
        wr.faa.operand = value;
    }
    urma_status_t status = urma_post_jetty_send_wr(way->here->jetty, &wr, &bad);
    CHECK(status == URMA_SUCCESS || bad == &wr);
    return status;
}

static uint64_t word(const uint8_t *from, uint32_t len)
{
    uint64_t value = 0;
    memcpy(&value, from, len);
    return value;
}

/* From `before` to `after`, as `opcode` with `value` makes it. */
static void one(const struct way *way, urma_opcode_t opcode, uint32_t len, uint64_t before,
                uint64_t value, uint64_t compare, uint64_t after)
{
    uint64_t mask = len == 8 ? UINT64_MAX : UINT32_MAX;

    memset(way->there->memory + AT, 0xa5, 16);
    memset(way->here->memory + RESULT, 0xa5, 16);
    memcpy(way->there->memory + AT, &before, len);
    CHECK(post(way, opcode, len, value, compare) == URMA_SUCCESS);
    CHECK(end_wait(way->here->jfc).status == URMA_CR_SUCCESS);
    CHECK(word(way->here->memory + RESULT, len) == (before & mask));
    CHECK(word(way->there->memory + AT, len) == (after & mask));
    CHECK(way->here->memory[RESULT + len] == 0xa5 && way->there->memory[AT + len] == 0xa5);
}

static void sizes(const struct way *way, uint32_t len)
{
    const uint64_t big = 0xfffffff0fffffff0;

    one(way, URMA_OPC_CAS, len, 7, 9, 7, 9);
    one(way, URMA_OPC_CAS, len, 7, 9, 8, 7); /* not what was expected: nothing changes */
    one(way, URMA_OPC_SWAP, len, big, 0x1234567812345678, 0, 0x1234567812345678);
    one(way, URMA_OPC_FADD, len, big, 0x20, 0, big + 0x20); /* carries out of the word */
    one(way, URMA_OPC_FSUB, len, 5, 6, 0, UINT64_MAX);
    one(way, URMA_OPC_FAND, len, big, 0x0ff00ff00ff00ff0, 0, big & 0x0ff00ff00ff00ff0);
    one(way, URMA_OPC_FOR, len, 0x0f, 0xf0, 0, 0xff);
    one(way, URMA_OPC_FXOR, len, 0xff, 0x0f, 0, 0xf0);
}

static void limits(const struct way *way, const urma_device_cap_t *cap)
{
    const urma_opcode_t all[] = {URMA_OPC_CAS,  URMA_OPC_SWAP, URMA_OPC_FADD, URMA_OPC_FSUB,
                                 URMA_OPC_FAND, URMA_OPC_FOR,  URMA_OPC_FXOR};
    const uint32_t max[] = {cap->max_cas_size,           cap->max_swap_size,
                            cap->max_fetch_and_add_size, cap->max_fetch_and_sub_size,
                            cap->max_fetch_and_and_size, cap->max_fetch_and_or_size,
                            cap->max_fetch_and_xor_size};
    const uint32_t wrong[] = {0, 1, 2, 3, 5, 12, 16, 32};

    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
        CHECK(max[i] == 8);
        for (size_t j = 0; j < sizeof(wrong) / sizeof(*wrong); j++) {
            CHECK(post(way, all[i], wrong[j], 0, 0) == URMA_EINVAL);
        }
    }
    CHECK(cap->atomic_feat.bs.cas && cap->atomic_feat.bs.swap);
    CHECK(cap->atomic_feat.bs.fetch_and_add && cap->atomic_feat.bs.fetch_and_sub);
    CHECK(cap->atomic_feat.bs.fetch_and_and && cap->atomic_feat.bs.fetch_and_or);
    CHECK(cap->atomic_feat.bs.fetch_and_xor);
}

int main(void)
{
    int count = 0;
    urma_device_attr_t attr;
    struct end here, there;

    CHECK(urma_init(NULL) == URMA_SUCCESS);
    urma_device_t **devs = urma_get_device_list(&count);
    CHECK(devs != NULL && count > 0);
    CHECK(urma_query_device(devs[0], &attr) == URMA_SUCCESS);
    end_open(&here, devs[0], URMA_TM_RM);
    end_open(&there, devs[0], URMA_TM_RM);
    struct info peer = end_info(&there);
    struct way way = {&here, &there, end_import_jetty(&here, &peer), end_import_seg(&here, &peer)};
    sizes(&way, 4);
    sizes(&way, 8);
    limits(&way, &attr.dev_cap);
    CHECK(urma_unimport_seg(way.remote) == URMA_SUCCESS);
    CHECK(urma_unimport_jetty(way.target) == URMA_SUCCESS);
    end_close(&here);
    end_close(&there);
    urma_free_device_list(devs);
    CHECK(urma_uninit() == URMA_SUCCESS);
    return 0;
}
