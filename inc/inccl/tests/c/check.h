/* Ends the function with 1, and says why, where something is not as it should be. Its `rank` is the caller's. */
#include <inccl.h>
#include <stdio.h>

#define CHECK(what)                                                                             \
    do {                                                                                        \
        if (!(what)) {                                                                          \
            fprintf(stderr, "rank %d, line %d: %s: %s\n", rank, __LINE__, #what, inccl_last_error(NULL)); \
            return 1;                                                                           \
        }                                                                                       \
    } while (0)
