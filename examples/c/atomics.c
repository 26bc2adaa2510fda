/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Atomics: a counter in the other side's memory, added to and compared from here. */
#include "end.h"

static uint64_t word(const end_t *end, size_t offset) {
    uint64_t value;
    memcpy(&value, end->memory + offset, sizeof value);
    return value;
}

int main(void) {
    end_t here, there;
    need(urma_init(NULL) == URMA_SUCCESS, "urma_init");
    end_open(&here);
    end_open(&there);
    /* What a real program gets from its peer over a socket. */
    card_t card = end_card(&there);
    urma_target_jetty_t *target = end_import_jetty(&here, &card);
    urma_target_seg_t *remote = end_import_seg(&here, &card);
    urma_sge_t counter = sge(remote, 0, 8);
    urma_sge_t before = sge(here.seg, 64, 8);

    for (uint64_t turn = 1; turn <= 3; turn++) {
        urma_jfs_wr_t wr = request(URMA_OPC_FADD, target, turn);
        wr.faa.dst = &counter;
        wr.faa.src = &before;
        wr.faa.operand = 10;
        post(&here, &wr);
        end_wait(here.jfc);
        printf("added 10: was %llu\n", (unsigned long long)word(&here, 64));
    }

    urma_jfs_wr_t wr = request(URMA_OPC_CAS, target, 4);
    wr.cas.dst = &counter;
    wr.cas.src = &before;
    wr.cas.cmp_data = 30;
    wr.cas.swap_data = 7;
    post(&here, &wr);
    end_wait(here.jfc);
    printf("compared with 30, was %llu, is %llu\n", (unsigned long long)word(&here, 64),
           (unsigned long long)word(&there, 0));

    need(urma_unimport_seg(remote) == URMA_SUCCESS, "urma_unimport_seg");
    need(urma_unimport_jetty(target) == URMA_SUCCESS, "urma_unimport_jetty");
    end_close(&here);
    end_close(&there);
    need(urma_uninit() == URMA_SUCCESS, "urma_uninit");
    return 0;
}
