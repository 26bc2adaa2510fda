/* Ranks at URMA nodes beside ranks with sockets of their own: INCCL_NODE says which. Arguments: ranks, controller, rank.
   When one of its two groups is over each rank says so, and waits for a line. */
#define _POSIX_C_SOURCE 200809L
#include <arpa/inet.h>
#include <inccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"

enum { N = 30000 };

static int64_t in[N], out[N];

static int sums(struct inccl_communicator *comm, int n, int rank) {
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < N; i++) in[i] = (int64_t)i * (rank + 1) + round;
        CHECK(inccl_allreduce(comm, in, out, N, INCCL_I64, INCCL_SUM) == INCCL_OK);
        for (int i = 0; i < N; i++) CHECK(out[i] == (int64_t)i * (n * (n + 1) / 2) + n * round);
    }
    return 0;
}

/* Whether a socket can have the port of the address. */
static int is_free(void) {
    struct sockaddr_in own = { .sin_family = AF_INET, .sin_port = htons(4791) };
    if (inet_pton(AF_INET, getenv("INCCL_ADDRESS"), &own.sin_addr) != 1) return -1;
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    int is = fd >= 0 && bind(fd, (struct sockaddr *)&own, sizeof own) == 0;
    close(fd);
    return is;
}

/* UDP sockets that are bound to the address. */
static int sockets(void) {
    struct in_addr own;
    char wanted[16], line[256];
    int count = 0;
    FILE *table = fopen("/proc/net/udp", "r");
    if (!table || inet_pton(AF_INET, getenv("INCCL_ADDRESS"), &own) != 1) return -1;
    snprintf(wanted, sizeof wanted, " %08X:", own.s_addr);
    while (fgets(line, sizeof line, table)) count += strstr(line, wanted) != NULL;
    fclose(table);
    return count;
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    int n = atoi(argv[1]), rank = atoi(argv[3]);
    int is_at_node = strcmp(getenv("INCCL_NODE"), "1") == 0;

    /* Two groups of one process have one node, and the port of a socket is the first one's. */
    struct inccl_group *groups[2];
    struct inccl_communicator *comms[2];
    const char *names[] = { "node.c", "node.c again" };
    for (int g = 0; g < 2; g++) {
        setenv("INCCL_GROUP", names[g], 1);
        groups[g] = inccl_group_create(n, argv[2], rank);
        CHECK(groups[g] != NULL);
        comms[g] = inccl_communicator_create(groups[g]);
        CHECK(comms[g] != NULL);
        if (sums(comms[g], n, rank)) return 1;
        struct inccl_stats stats = { .size = sizeof stats };
        CHECK(inccl_stats(comms[g], &stats) == INCCL_OK);
        CHECK(stats.reduced_by == INCCL_BY_SWITCHES && stats.sent_packets > 0 && stats.reserved == 0);
        CHECK(stats.link == (uint32_t)(is_at_node ? INCCL_LINK_NODE : INCCL_LINK_SOCKET));
    }
    CHECK(sockets() == (is_at_node ? 1 : 2));

    /* The node stays for the second group, is closed after it, and is opened again. */
    inccl_communicator_destroy(comms[0]);
    inccl_group_destroy(groups[0]);
    printf("rank %d: one group is over\n", rank);
    fflush(stdout);
    CHECK(getchar() == '\n');
    if (sums(comms[1], n, rank)) return 1;
    inccl_communicator_destroy(comms[1]);
    CHECK(is_free() == !is_at_node);
    inccl_group_destroy(groups[1]);
    CHECK(is_free());
    setenv("INCCL_NODE", "7", 1);
    CHECK(inccl_group_create(n, argv[2], rank) == NULL);
    CHECK(strstr(inccl_last_error(NULL), "INCCL_NODE is 7: 1 opens a URMA node") != NULL);
    setenv("INCCL_NODE", is_at_node ? "1" : "0", 1);
    setenv("INCCL_GROUP", "node.c at last", 1);
    struct inccl_group *group = inccl_group_create(n, argv[2], rank);
    CHECK(group != NULL);
    struct inccl_communicator *comm = inccl_communicator_create(group);
    CHECK(comm != NULL);
    if (sums(comm, n, rank)) return 1;
    inccl_communicator_destroy(comm);
    inccl_group_destroy(group);
    printf("rank %d: all right\n", rank);
    return 0;
}
