// An MPI program that reduces vectors of 32-bit integers so many times, for `cargo xtask bench-inc`.
// Arguments: elements, times. Rank 0 prints the median in microseconds, and the processor time of all ranks for one, too.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double processor_time(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    if (argc != 3) {
        fprintf(stderr, "usage: allreduce ELEMENTS TIMES\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    int count = atoi(argv[1]), times = atoi(argv[2]), rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    int *from = calloc((size_t)count, sizeof *from), *to = calloc((size_t)count, sizeof *to);
    double *took = malloc(sizeof *took * (size_t)times);
    if (!from || !to || !took)
        MPI_Abort(MPI_COMM_WORLD, 2);
    MPI_Barrier(MPI_COMM_WORLD);
    double before = processor_time();
    for (int i = 0; i < times; i++) {
        double start = MPI_Wtime();
        MPI_Allreduce(from, to, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        took[i] = MPI_Wtime() - start;
    }
    double own = processor_time() - before, all = 0;
    MPI_Reduce(&own, &all, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    qsort(took, (size_t)times, sizeof *took, compare);
    if (rank == 0)
        printf("%.3f %.3f\n", took[times / 2] * 1e6, all / times * 1e6);
    MPI_Finalize();
    return 0;
}
