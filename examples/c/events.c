/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Events: sleeps on a descriptor until a message is here, instead of polling. */
#include "end.h"

#include <poll.h>

#define INBOX 2048u

int main(void) {
    end_t here, there;
    need(urma_init(NULL) == URMA_SUCCESS, "urma_init");
    end_open(&here);
    end_open(&there);
    /* What a real program gets from its peer over a socket. */
    card_t card = end_card(&there);
    urma_target_jetty_t *target = end_import_jetty(&here, &card);

    post_receive(&there, INBOX, 64);
    need(urma_rearm_jfc(there.jfc, false) == URMA_SUCCESS, "urma_rearm_jfc");

    const char text[] = "wake up";
    memcpy(here.memory, text, sizeof text);
    urma_sge_t src = sge(here.seg, 0, sizeof text);
    urma_jfs_wr_t wr = request(URMA_OPC_SEND, target, 1);
    wr.flag.bs.solicited_enable = URMA_SOLICITED_ENABLE;
    wr.send.src.sge = &src;
    wr.send.src.num_sge = 1;
    post(&here, &wr);

    /* The descriptor works with poll and epoll, beside sockets. */
    struct pollfd descriptor;
    descriptor.fd = there.jfce->fd;
    descriptor.events = POLLIN;
    need(poll(&descriptor, 1, 10000) == 1, "poll");

    urma_jfc_t *which[1];
    uint32_t events[1] = {1};
    need(urma_wait_jfc(there.jfce, 1, 0, which) == 1, "urma_wait_jfc");
    need(which[0] == there.jfc, "the queue that the event names");
    urma_ack_jfc(which, events, 1);
    end_wait(there.jfc);
    printf("woken by: %s\n", (const char *)there.memory + INBOX);

    end_wait(here.jfc);
    need(urma_unimport_jetty(target) == URMA_SUCCESS, "urma_unimport_jetty");
    end_close(&here);
    end_close(&there);
    need(urma_uninit() == URMA_SUCCESS, "urma_uninit");
    return 0;
}
