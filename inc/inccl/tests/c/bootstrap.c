/* Rank 0 alone knows the controller; the others know where rank 0 is, by INCCL_MASTER. */
#include <inccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char *argv[]) {
    int n = atoi(argv[1]), rank = atoi(argv[3]);
    const char *controller_ip = rank == 0 ? argv[2] : NULL;

    if (rank == 1) {
        const char *wanted = "rank 1 says world size 5 of group inccl, rank 0 said 4";
        if (inccl_group_create(5, NULL, 1) != NULL || strcmp(inccl_last_error(NULL), wanted) != 0) {
            fprintf(stderr, "not named: %s\n", inccl_last_error(NULL));
            return 1;
        }
    }
    struct inccl_group *group = inccl_group_create(n, controller_ip, rank);
    struct inccl_communicator *comm = inccl_communicator_create(group);
    int32_t value = rank + 1;
    if (inccl_allreduce(comm, INCCL_IN_PLACE, &value, 1, INCCL_I32, INCCL_SUM) != INCCL_OK) {
        fprintf(stderr, "rank %d: %s\n", rank, inccl_last_error(NULL));
        return 1;
    }
    printf("%d\n", value);
    inccl_communicator_destroy(comm);
    inccl_group_destroy(group);
    return 0;
}
