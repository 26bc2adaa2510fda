/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Two nodes that exchange packets, of which one ends without deleting anything: the other one says how long its
 * message, for which there is no receive, had no end.
 *
 *   leaves return|exit|_exit|uninit|handler
 *
 * uninit: it calls urma_uninit before. handler: a handler of its own, registered before urma_init, deletes all that it
 * has. In each case a child that it forked ends first, by exit.
 */
#include "../../../examples/c/end.h"

#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SECONDS_MAX 20
/* 4.096 us << 22: 17 s. */
#define ERR_TIMEOUT 22

static end_t mine;
static pid_t owner;

static double now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static void pause_ms(long ms) {
    struct timespec time = {0, ms * 1000000};
    nanosleep(&time, NULL);
}

static void delete_all(void) {
    if (getpid() != owner) {
        return;
    }
    end_close(&mine);
    printf("deleted\n");
}

/* The node that ends, when the byte at 64 is there and the peer's message has waited for a while. */
static int be_server(int fd, const char *how) {
    if (strcmp(how, "handler") == 0) {
        owner = getpid();
        need(atexit(delete_all) == 0, "atexit");
    }
    need(urma_init(NULL) == URMA_SUCCESS, "urma_init");
    end_open(&mine);
    pid_t child = fork();
    if (child == 0) {
        exit(0);
    }
    int status = -1;
    need(waitpid(child, &status, 0) == child && status == 0, "the child");
    card_t card = end_card(&mine);
    need(send(fd, &card, sizeof card, MSG_NOSIGNAL) == sizeof card, "send");
    volatile unsigned char *flag = mine.memory + 64;
    for (long left = SECONDS_MAX * 1000; *flag == 0 && left > 0; left--) {
        pause_ms(1);
    }
    pause_ms(50);
    if (strcmp(how, "uninit") == 0) {
        need(urma_uninit() == URMA_SUCCESS, "urma_uninit");
    }
    if (strcmp(how, "exit") == 0) {
        exit(0);
    } else if (strcmp(how, "_exit") == 0) {
        _exit(0);
    }
    return 0;
}

static urma_cr_t any_end(urma_jfc_t *jfc) {
    urma_cr_t cr;
    memset(&cr, 0, sizeof cr);
    double until = now_ms() + SECONDS_MAX * 1e3;
    int count = 0;
    while (count == 0 && now_ms() < until) {
        count = urma_poll_jfc(jfc, 1, &cr);
    }
    need(count == 1, "a completion");
    return cr;
}

static void write_flag(urma_target_jetty_t *to, urma_target_seg_t *there) {
    mine.memory[0] = 'x';
    urma_sge_t here = sge(mine.seg, 0, 1), far = sge(there, 64, 1);
    urma_jfs_wr_t wr = request(URMA_OPC_WRITE, to, 1);
    wr.rw.src.sge = &here;
    wr.rw.src.num_sge = 1;
    wr.rw.dst.sge = &far;
    wr.rw.dst.num_sge = 1;
    post(&mine, &wr);
    end_wait(mine.jfc);
}

static int be_client(int fd) {
    need(urma_init(NULL) == URMA_SUCCESS, "urma_init");
    end_open(&mine);
    /* Another jetty: no timeout of its own is to end the message. */
    urma_jetty_cfg_t cfg = mine.jetty->jetty_cfg;
    cfg.id = 0;
    cfg.jfs_cfg.err_timeout = ERR_TIMEOUT;
    urma_jetty_t *patient = urma_create_jetty(mine.ctx, &cfg);
    need(patient != NULL, "urma_create_jetty");
    card_t card;
    need(recv(fd, &card, sizeof card, MSG_WAITALL) == sizeof card, "recv");
    urma_target_jetty_t *to = end_import_jetty(&mine, &card);
    urma_target_seg_t *there = end_import_seg(&mine, &card);
    write_flag(to, there);
    double from = now_ms();
    urma_sge_t text = sge(mine.seg, 0, 1);
    urma_jfs_wr_t wr = request(URMA_OPC_SEND, to, 2), *bad = NULL;
    wr.send.src.sge = &text;
    wr.send.src.num_sge = 1;
    need(urma_post_jetty_send_wr(patient, &wr, &bad) == URMA_SUCCESS, "urma_post_jetty_send_wr");
    urma_cr_t cr = any_end(mine.jfc);
    printf("status %d after %.0f ms\n", (int)cr.status, now_ms() - from);
    return 0;
}

int main(int argc, char **argv) {
    need(argc == 2, "how");
    int fds[2];
    need(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0, "socketpair");
    pid_t server = fork();
    need(server >= 0, "fork");
    alarm(2 * SECONDS_MAX);
    close(fds[server == 0]);
    if (server == 0) {
        return be_server(fds[0], argv[1]);
    }
    int result = be_client(fds[1]), status = -1;
    need(waitpid(server, &status, 0) == server && status == 0, "the server");
    return result;
}
