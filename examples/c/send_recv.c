/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* SEND and receive: a message with an immediate, and the answer. */
#include "end.h"

#define INBOX 2048u

static void say(end_t *from, urma_target_jetty_t *to, const char *text, urma_opcode_t op) {
    uint32_t len = (uint32_t)strlen(text) + 1;
    memcpy(from->memory, text, len);
    urma_sge_t src = sge(from->seg, 0, len);
    urma_jfs_wr_t wr = request(op, to, 1);
    wr.send.src.sge = &src;
    wr.send.src.num_sge = 1;
    wr.send.imm_data = 42;
    post(from, &wr);
    end_wait(from->jfc);
}

static void wait_recv(end_t *end) {
    urma_cr_t cr = end_wait(end->jfc);
    printf("%u bytes: %s", cr.completion_len, (const char *)end->memory + INBOX);
    if (cr.opcode == URMA_CR_OPC_SEND_WITH_IMM) {
        printf(" (immediate %llu)", (unsigned long long)cr.imm_data);
    }
    printf("\n");
}

int main(void) {
    end_t here, there;
    need(urma_init(NULL) == URMA_SUCCESS, "urma_init");
    end_open(&here);
    end_open(&there);
    /* What a real program gets from its peer over a socket. */
    card_t card = end_card(&there);
    card_t back = end_card(&here);
    urma_target_jetty_t *to_there = end_import_jetty(&here, &card);
    urma_target_jetty_t *to_here = end_import_jetty(&there, &back);

    /* Each side posts the receive first: a message without one waits and is sent again. */
    post_receive(&here, INBOX, 256);
    post_receive(&there, INBOX, 256);
    say(&here, to_there, "who is there?", URMA_OPC_SEND_IMM);
    wait_recv(&there);
    say(&there, to_here, "a jetty", URMA_OPC_SEND);
    wait_recv(&here);

    need(urma_unimport_jetty(to_there) == URMA_SUCCESS, "urma_unimport_jetty");
    need(urma_unimport_jetty(to_here) == URMA_SUCCESS, "urma_unimport_jetty");
    end_close(&here);
    end_close(&there);
    need(urma_uninit() == URMA_SUCCESS, "urma_uninit");
    return 0;
}
