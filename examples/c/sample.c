/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Server and client on two nodes: they tell each other over TCP where their jetties and segments
 * are, then the client writes, reads, and exchanges messages with the server.
 *
 *   sample [-m rm|rc] [-e] [-d DEVICE] [-p PORT]                server: waits for one client
 *   sample [-m rm|rc] [-e] [-d DEVICE] [-p PORT] -i ADDRESS     client
 *
 * -e sleeps on events instead of polling. A server with -p 0 takes a free port and says which.
 */
#include "end.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define PORT 13857
#define INBOX 2048u
#define SECONDS_MAX 20

typedef struct options {
    urma_transport_mode_t mode;
    bool events;
    char *device;
    uint16_t port;
    const char *server;
} options_t;

static void usage(void) {
    fprintf(stderr, "sample [-m rm|rc] [-e] [-d DEVICE] [-p PORT] [-i SERVER ADDRESS]\n");
    exit(2);
}

static options_t read_options(int argc, char **argv) {
    static char device[] = "udma0";
    options_t options;
    memset(&options, 0, sizeof options);
    options.mode = URMA_TM_RM;
    options.device = device;
    options.port = PORT;
    for (int option; (option = getopt(argc, argv, "m:ed:p:i:")) != -1;) {
        switch (option) {
        case 'm':
            if (strcmp(optarg, "rm") != 0 && strcmp(optarg, "rc") != 0) {
                usage();
            }
            options.mode = strcmp(optarg, "rc") == 0 ? URMA_TM_RC : URMA_TM_RM;
            break;
        case 'e':
            options.events = true;
            break;
        case 'd':
            options.device = optarg;
            break;
        case 'p':
            options.port = (uint16_t)strtoul(optarg, NULL, 10);
            break;
        case 'i':
            options.server = optarg;
            break;
        default:
            usage();
        }
    }
    return options;
}

/* ---- the socket over which both sides get to know each other ---- */

static struct sockaddr_in address_of(const options_t *options) {
    struct sockaddr_in address;
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_port = htons(options->port);
    const char *text = options->server != NULL ? options->server : "0.0.0.0";
    need(inet_pton(AF_INET, text, &address.sin_addr) == 1, text);
    return address;
}

static void bound_waits(int fd) {
    struct timeval most;
    memset(&most, 0, sizeof most);
    most.tv_sec = SECONDS_MAX;
    need(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most) == 0, "SO_RCVTIMEO");
}

static int accept_one(const options_t *options) {
    struct sockaddr_in address = address_of(options);
    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    need(listener >= 0, "socket");
    need(setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0, "SO_REUSEADDR");
    need(bind(listener, (struct sockaddr *)&address, sizeof address) == 0, "bind");
    need(listen(listener, 1) == 0, "listen");
    socklen_t len = sizeof address;
    need(getsockname(listener, (struct sockaddr *)&address, &len) == 0, "getsockname");
    printf("waiting for a client at port %u\n", (unsigned)ntohs(address.sin_port));
    fflush(stdout);
    bound_waits(listener);
    int fd = accept(listener, NULL, NULL);
    need(fd >= 0, "accept");
    close(listener);
    return fd;
}

static int connect_to(const options_t *options) {
    struct sockaddr_in address = address_of(options);
    for (unsigned attempt = 0; attempt < SECONDS_MAX * 10; attempt++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        need(fd >= 0, "socket");
        if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0) {
            return fd;
        }
        close(fd);
        usleep(100000);
    }
    need(false, "connect");
    return -1;
}

static void exchange(int fd, const void *mine, void *theirs, size_t len) {
    need(send(fd, mine, len, MSG_NOSIGNAL) == (ssize_t)len, "send");
    need(recv(fd, theirs, len, MSG_WAITALL) == (ssize_t)len, "recv");
}

/* Both sides are here. */
static void meet(int fd) {
    char mine = 'x', theirs = 0;
    exchange(fd, &mine, &theirs, 1);
}

/* ---- work ---- */

/* The next completion, by polling or by sleeping on the event descriptor. */
static urma_cr_t complete(end_t *end, bool events) {
    if (events) {
        urma_jfc_t *which[1];
        uint32_t count[1] = {1};
        need(urma_rearm_jfc(end->jfc, false) == URMA_SUCCESS, "urma_rearm_jfc");
        need(urma_wait_jfc(end->jfce, 1, SECONDS_MAX * 1000, which) == 1, "urma_wait_jfc");
        urma_ack_jfc(which, count, 1);
    }
    return end_wait(end->jfc);
}

static void move(end_t *end, urma_jfs_wr_t *wr, urma_sge_t *src, urma_sge_t *dst, bool events) {
    wr->rw.src.sge = src;
    wr->rw.src.num_sge = 1;
    wr->rw.dst.sge = dst;
    wr->rw.dst.num_sge = 1;
    post(end, wr);
    complete(end, events);
}

/* Posts a message; the answer may be here before the message is known to have arrived. */
static void say(end_t *end, urma_target_jetty_t *to, const char *text) {
    uint32_t len = (uint32_t)strlen(text) + 1;
    memcpy(end->memory, text, len);
    urma_sge_t src = sge(end->seg, 0, len);
    urma_jfs_wr_t wr = request(URMA_OPC_SEND, to, 3);
    wr.send.src.sge = &src;
    wr.send.src.num_sge = 1;
    post(end, &wr);
}

static void be_client(end_t *end, urma_target_jetty_t *to, urma_target_seg_t *there, bool events) {
    const char text[] = "put here by the client";
    memcpy(end->memory, text, sizeof text);
    urma_sge_t here = sge(end->seg, 0, sizeof text), far = sge(there, 64, sizeof text);
    urma_jfs_wr_t wr = request(URMA_OPC_WRITE, to, 1);
    move(end, &wr, &here, &far, events);

    memset(end->memory, 0, sizeof text);
    wr = request(URMA_OPC_READ, to, 2);
    move(end, &wr, &far, &here, events);
    need(memcmp(end->memory, text, sizeof text) == 0, "what was read is what was written");
    printf("wrote and read back: %s\n", (const char *)end->memory);

    post_receive(end, INBOX, 256);
    say(end, to, "a question");
    unsigned received = 0;
    for (unsigned left = 2; left > 0; left--) {
        received += complete(end, events).flag.bs.s_r;
    }
    need(received == 1, "one message sent, one received");
    printf("the server answers: %s\n", (const char *)end->memory + INBOX);
}

static void be_server(end_t *end, urma_target_jetty_t *to, bool events) {
    need(complete(end, events).flag.bs.s_r == 1, "a message");
    printf("the client wrote: %s\n", (const char *)end->memory + 64);
    printf("the client asks: %s\n", (const char *)end->memory + INBOX);
    say(end, to, "an answer");
    complete(end, events);
}

int main(int argc, char **argv) {
    options_t options = read_options(argc, argv);
    need(urma_init(NULL) == URMA_SUCCESS, "urma_init");
    end_t end;
    end_open_as(&end, options.device, options.mode);
    bool client = options.server != NULL;
    if (!client) {
        post_receive(&end, INBOX, 256);
    }

    int fd = client ? connect_to(&options) : accept_one(&options);
    bound_waits(fd);
    card_t mine = end_card(&end), theirs;
    exchange(fd, &mine, &theirs, sizeof mine);
    urma_target_jetty_t *target = end_import_jetty(&end, &theirs);
    urma_target_seg_t *there = end_import_seg(&end, &theirs);
    if (options.mode == URMA_TM_RC) {
        need(urma_bind_jetty(end.jetty, target) == URMA_SUCCESS, "urma_bind_jetty");
    }
    meet(fd);

    if (client) {
        be_client(&end, target, there, options.events);
    } else {
        be_server(&end, target, options.events);
    }
    meet(fd);

    if (options.mode == URMA_TM_RC) {
        need(urma_unbind_jetty(end.jetty) == URMA_SUCCESS, "urma_unbind_jetty");
    }
    need(urma_unimport_seg(there) == URMA_SUCCESS, "urma_unimport_seg");
    need(urma_unimport_jetty(target) == URMA_SUCCESS, "urma_unimport_jetty");
    end_close(&end);
    close(fd);
    need(urma_uninit() == URMA_SUCCESS, "urma_uninit");
    return 0;
}
