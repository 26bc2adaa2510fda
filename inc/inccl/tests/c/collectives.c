/* Every call of inccl.h, right and wrong. Arguments: ranks, controller, rank. */
#include <inccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

enum { N = 5000 };

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    int n = atoi(argv[1]), rank = atoi(argv[3]);

    /* Before anything is there. */
    CHECK(inccl_group_create(n, "nowhere", rank) == NULL);
    CHECK(strstr(inccl_last_error(NULL), "nowhere") != NULL);
    CHECK(inccl_group_create(-1, argv[2], rank) == NULL);
    CHECK(inccl_group_create(n, argv[2], n) == NULL);
    CHECK(strstr(inccl_last_error(NULL), "ranks are 0 to") != NULL);
    CHECK(inccl_group_create(n, NULL, rank) == NULL);
    CHECK(strstr(inccl_last_error(NULL), "INCCL_MASTER") != NULL);
    CHECK(inccl_communicator_create(NULL) == NULL);
    CHECK(inccl_barrier(NULL) == INCCL_INVALID);
    CHECK(inccl_barrier((struct inccl_communicator *)0x1234) == INCCL_INVALID);

    struct inccl_group *group = inccl_group_create(n, argv[2], rank);
    CHECK(group != NULL);
    struct inccl_attr attr = { .size = sizeof attr, .mode = INCCL_MODE_SEND, .edge = INCCL_EDGE_UC,
                               .path_mtu = 1024, .packets = 4, .window = 16, .bound_ms = 20000 };
    struct inccl_communicator *comm = inccl_communicator_create_attr(group, &attr);
    CHECK(comm != NULL);
    attr.window = 3;
    CHECK(inccl_communicator_create_attr(group, &attr) == NULL);
    CHECK(strstr(inccl_last_error(NULL), "not 3") != NULL);
    attr.size = 4;
    CHECK(inccl_communicator_create_attr(group, &attr) == NULL);
    CHECK(inccl_barrier((struct inccl_communicator *)group) == INCCL_INVALID);

    static int32_t src[N], dst[N];
    static double f[N], g[N];
    for (int i = 0; i < N; i++) {
        src[i] = i * (rank + 1);
        f[i] = i / 3.0 + rank;
    }
    int all = n * (n + 1) / 2;

    /* The seed's calls, in both modes. */
    inccl_allreduce_write(comm, src, N, dst);
    for (int i = 0; i < N; i++) CHECK(dst[i] == i * all);
    memset(dst, 0, sizeof dst);
    inccl_allreduce_sendrecv(comm, src, N, dst);
    for (int i = 0; i < N; i++) CHECK(dst[i] == i * all);
    CHECK(inccl_last_error(comm)[0] == 0);
    inccl_allreduce_write(comm, NULL, N, dst);
    CHECK(strstr(inccl_last_error(comm), "src is null") != NULL);

    CHECK(inccl_allreduce(comm, f, g, N, INCCL_F64, INCCL_MAX) == INCCL_OK);
    for (int i = 0; i < N; i++) CHECK(g[i] == i / 3.0 + (n - 1));
    CHECK(inccl_allreduce(comm, INCCL_IN_PLACE, f, N, INCCL_F64, INCCL_MIN) == INCCL_OK);
    for (int i = 0; i < N; i++) CHECK(f[i] == i / 3.0);
    CHECK(inccl_allreduce(comm, src, dst, 0, INCCL_I32, INCCL_SUM) == INCCL_OK);
    CHECK(inccl_allreduce(comm, NULL, NULL, 0, INCCL_I32, INCCL_SUM) == INCCL_OK);

    /* What cannot be changes nothing, at no rank. */
    CHECK(inccl_allreduce(comm, src, src + 1, 10, INCCL_I32, INCCL_SUM) == INCCL_INVALID);
    CHECK(strstr(inccl_last_error(comm), "overlap") != NULL);
    CHECK(inccl_allreduce(comm, src, dst, 10, 13, INCCL_SUM) == INCCL_INVALID);
    CHECK(inccl_allreduce(comm, src, dst, 10, INCCL_I32, 99) == INCCL_INVALID);
    CHECK(inccl_allreduce(comm, f, g, 10, INCCL_F64, INCCL_BXOR) == INCCL_INVALID);
    CHECK(inccl_allreduce(comm, src, dst, (size_t)-1, INCCL_I32, INCCL_SUM) == INCCL_INVALID);
    CHECK(inccl_reduce(comm, src, dst, 10, INCCL_I32, INCCL_SUM, n) == INCCL_INVALID);
    CHECK(inccl_reduce(comm, src, dst, 10, INCCL_I32, INCCL_SUM, -1) == INCCL_INVALID);

    memset(dst, 0, sizeof dst);
    CHECK(inccl_reduce(comm, src, rank == 1 ? dst : NULL, N, INCCL_I32, INCCL_SUM, 1) == INCCL_OK);
    for (int i = 0; i < N; i++) CHECK(dst[i] == (rank == 1 ? i * all : 0));
    int32_t word[3] = { rank, rank * 2, 7 };
    CHECK(inccl_broadcast(comm, word, 3, INCCL_I32, n - 1) == INCCL_OK);
    CHECK(word[0] == n - 1 && word[1] == 2 * (n - 1) && word[2] == 7);
    CHECK(inccl_barrier(comm) == INCCL_OK);

    int32_t mine[2] = { rank, rank + 100 }, gathered[2 * 16];
    CHECK(n <= 16);
    CHECK(inccl_allgather(comm, mine, gathered, 2, INCCL_I32) == INCCL_OK);
    for (int r = 0; r < n; r++) CHECK(gathered[2 * r] == r && gathered[2 * r + 1] == r + 100);
    memset(gathered, 0, sizeof gathered);
    memcpy(gathered + 2 * rank, mine, sizeof mine);
    CHECK(inccl_allgather(comm, INCCL_IN_PLACE, gathered, 2, INCCL_I32) == INCCL_OK);
    for (int r = 0; r < n; r++) CHECK(gathered[2 * r] == r && gathered[2 * r + 1] == r + 100);
    int32_t block[2] = { 0 };
    for (int i = 0; i < 2 * n; i++) gathered[i] = i + rank;
    CHECK(inccl_reduce_scatter(comm, gathered, block, 2, INCCL_I32, INCCL_SUM) == INCCL_OK);
    CHECK(block[0] == n * 2 * rank + n * (n - 1) / 2 && block[1] == block[0] + n);

    /* Several at once, ended in another order than begun. */
    struct inccl_request *first, *second, *third;
    static int32_t out[3][N];
    CHECK(inccl_iallreduce(comm, src, out[0], N, INCCL_I32, INCCL_SUM, &first) == INCCL_OK);
    CHECK(inccl_iallreduce(comm, src, out[1], N, INCCL_I32, INCCL_MAX, &second) == INCCL_OK);
    CHECK(inccl_iallreduce(comm, src, out[2], N, INCCL_I32, INCCL_SUM, &third) == INCCL_OK);
    CHECK(inccl_cancel(third) == INCCL_CANCELED);
    CHECK(inccl_wait(second, -1) == INCCL_OK);
    int answer;
    while ((answer = inccl_test(first)) == INCCL_PENDING) {}
    CHECK(answer == INCCL_OK);
    for (int i = 0; i < N; i++) CHECK(out[0][i] == i * all && out[1][i] == i * n && out[2][i] == 0);
    CHECK(inccl_test(first) == INCCL_INVALID);
    CHECK(inccl_wait(third, 0) == INCCL_INVALID);
    CHECK(inccl_iallreduce(comm, src, out[0], N, INCCL_I32, INCCL_SUM, NULL) == INCCL_INVALID);

    struct inccl_stats stats = { .size = sizeof stats };
    CHECK(inccl_stats(comm, &stats) == INCCL_OK);
    CHECK(stats.reduced_by == INCCL_BY_SWITCHES && stats.why[0] == 0 && stats.sent_packets > 0 && stats.received_bytes > 0);
    CHECK(stats.framing == INCCL_FRAMING_INC && stats.ordered == INCCL_ORDERED_ON);
    CHECK(inccl_stats(comm, NULL) == INCCL_INVALID);

    /* Messages that are data alone, of allreduces with one type and operator, added as they come. */
    struct inccl_attr plain = { .size = sizeof plain, .mode = INCCL_MODE_SEND, .framing = INCCL_FRAMING_PLAIN,
                                .plain_type = INCCL_F64, .plain_op = INCCL_MAX, .ordered = INCCL_ORDERED_OFF };
    struct inccl_communicator *bare = inccl_communicator_create_attr(group, &plain);
    CHECK(bare != NULL);
    for (int i = 0; i < N; i++) f[i] = i + rank;
    CHECK(inccl_allreduce(bare, f, g, N, INCCL_F64, INCCL_MAX) == INCCL_OK);
    for (int i = 0; i < N; i++) CHECK(g[i] == i + n - 1);
    CHECK(inccl_allreduce(bare, f, g, N, INCCL_F64, INCCL_SUM) == INCCL_INVALID);
    CHECK(inccl_barrier(bare) == INCCL_INVALID);
    CHECK(inccl_stats(bare, &stats) == INCCL_OK);
    CHECK(stats.framing == INCCL_FRAMING_PLAIN && stats.ordered == INCCL_ORDERED_OFF);
    inccl_communicator_destroy(bare);
    plain.plain_op = INCCL_MINLOC;
    CHECK(inccl_communicator_create_attr(group, &plain) == NULL);
    CHECK(strstr(inccl_last_error(NULL), "there is no MinLoc of F64") != NULL);
    plain.framing = INCCL_FRAMING_INC;
    CHECK(inccl_communicator_create_attr(group, &plain) == NULL);
    CHECK(strstr(inccl_last_error(NULL), "belong to INCCL_FRAMING_PLAIN") != NULL);
    plain.framing = 2;
    CHECK(inccl_communicator_create_attr(group, &plain) == NULL);
    plain.framing = INCCL_FRAMING_INC, plain.plain_type = plain.plain_op = 0, plain.ordered = 2;
    CHECK(inccl_communicator_create_attr(group, &plain) == NULL);
    CHECK(strstr(inccl_last_error(NULL), "ordered 2") != NULL);
    CHECK(strcmp(inccl_strerror(INCCL_TIMEOUT), "no result within the bound") == 0);
    CHECK(strcmp(inccl_strerror(99), "no answer of this library") == 0);

    /* All ranks are here before one leaves. */
    CHECK(inccl_barrier(comm) == INCCL_OK);
    CHECK(inccl_ibarrier(comm, &first) == INCCL_OK);
    inccl_communicator_destroy(comm);
    CHECK(strstr(inccl_last_error(NULL), "1 requests under way") != NULL);
    CHECK(inccl_test(first) == INCCL_INVALID);
    inccl_communicator_destroy(comm);
    CHECK(strstr(inccl_last_error(NULL), "destroyed") != NULL);
    CHECK(inccl_barrier(comm) == INCCL_INVALID);
    inccl_group_destroy(group);
    inccl_group_destroy(group);
    CHECK(inccl_communicator_create(group) == NULL);
    printf("rank %d: all right\n", rank);
    return 0;
}
