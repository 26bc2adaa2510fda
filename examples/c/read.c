/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* READ: fetches bytes from the other side's memory; the other side takes no part. */
#include "end.h"

int main(void) {
    end_t here, there;
    need(urma_init(NULL) == URMA_SUCCESS, "urma_init");
    end_open(&here);
    end_open(&there);
    /* What a real program gets from its peer over a socket. */
    card_t card = end_card(&there);
    urma_target_jetty_t *target = end_import_jetty(&here, &card);
    urma_target_seg_t *remote = end_import_seg(&here, &card);

    const char text[] = "known over there";
    memcpy(there.memory + 128, text, sizeof text);
    urma_sge_t src = sge(remote, 128, sizeof text);
    urma_sge_t dst = sge(here.seg, 0, sizeof text);
    urma_jfs_wr_t wr = request(URMA_OPC_READ, target, 1);
    wr.rw.src.sge = &src;
    wr.rw.src.num_sge = 1;
    wr.rw.dst.sge = &dst;
    wr.rw.dst.num_sge = 1;
    post(&here, &wr);
    end_wait(here.jfc);
    printf("read: %s\n", (const char *)here.memory);

    need(urma_unimport_seg(remote) == URMA_SUCCESS, "urma_unimport_seg");
    need(urma_unimport_jetty(target) == URMA_SUCCESS, "urma_unimport_jetty");
    end_close(&here);
    end_close(&there);
    need(urma_uninit() == URMA_SUCCESS, "urma_uninit");
    return 0;
}
