/*
 * In-network computing: switches add up the vectors of all ranks on their way, and send the result back.
 *
 * A rank creates a group, then communicators of it, and calls collectives. All ranks call the same ones in the same order.
 * Calls that return int give INCCL_OK or one of the numbers below; what went wrong in words is inccl_last_error().
 *
 * The environment says what the arguments do not:
 *   INCCL_MASTER   what controller_ip says, where that is NULL
 *   INCCL_GROUP    name of the group: ranks with one name meet, and each needs the controller's address. Without a name
 *                  ("inccl" then) rank 0 listens at TCP port 52223 of its address, and the others need rank 0's alone
 *   INCCL_ADDRESS  address of this machine that switches send to (the one from which the controller is reached)
 *   INCCL_SECRET   file with the group's secret, if the controller wants a proof
 *   INCCL_PORT     TCP port of the controller (52200)
 *   INCCL_WAIT     seconds to wait for the controller and the other ranks (30)
 *   INCCL_NODE     1: a URMA node of this process, opened as the URMA_... variables say, has UDP port 4791 of the address
 *                  and answers pings; messages go by its socket (0: by a socket of the library's own)
 */
#ifndef INCCL_H
#define INCCL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct inccl_group;
struct inccl_communicator;
struct inccl_request;

/* Answers. */
enum {
    INCCL_OK = 0,
    INCCL_INVALID = 1,   /* an argument cannot be */
    INCCL_PENDING = 2,   /* the request is under way */
    INCCL_ABORTED = 3,   /* the communicator is over: a member died, or ranks contradict each other */
    INCCL_TIMEOUT = 4,   /* no result within the bound */
    INCCL_NO_TREE = 5,   /* no switches could be had within the bound */
    INCCL_SYSTEM = 6,    /* the controller cannot be reached, or the system refused */
    INCCL_CANCELED = 7   /* the request was given up */
};

/* Element types. Pairs are packed: a value, then a 32-bit index. */
enum {
    INCCL_I8 = 1, INCCL_I16, INCCL_I32, INCCL_I64, INCCL_U8, INCCL_U16, INCCL_U32, INCCL_U64,
    INCCL_F16, INCCL_BF16, INCCL_F32, INCCL_F64,
    INCCL_I32_I32 = 16, INCCL_I64_I32, INCCL_F32_I32, INCCL_F64_I32
};

/* Operators. Integers have all but MINLOC and MAXLOC, floats the first four, pairs MINLOC and MAXLOC. */
enum {
    INCCL_SUM = 1, INCCL_PROD, INCCL_MIN, INCCL_MAX, INCCL_LAND, INCCL_LOR, INCCL_LXOR,
    INCCL_BAND, INCCL_BOR, INCCL_BXOR, INCCL_MINLOC, INCCL_MAXLOC
};

enum { INCCL_MODE_WRITE = 0, INCCL_MODE_SEND = 1 };
enum { INCCL_EDGE_RC = 0, INCCL_EDGE_UC = 1 };
enum { INCCL_FRAMING_INC = 0, INCCL_FRAMING_PLAIN = 1 };
enum { INCCL_ORDERED_ON = 0, INCCL_ORDERED_OFF = 1 };
enum { INCCL_FALLBACK_MEMBERS = 0, INCCL_FALLBACK_NONE = 1 };
enum { INCCL_LINK_SOCKET = 0, INCCL_LINK_NODE = 1 }; /* a socket of the library's own; the one of a URMA node */

/* As source: the data lies in the destination already. */
#define INCCL_IN_PLACE ((const void *)-1)

/* How a communicator works; zero means the default. The same for all ranks. */
struct inccl_attr {
    uint32_t size;      /* sizeof(struct inccl_attr) */
    uint32_t mode;      /* INCCL_MODE_WRITE, INCCL_MODE_SEND */
    uint32_t edge;      /* INCCL_EDGE_RC: acknowledged; INCCL_EDGE_UC: repaired by the hosts */
    uint32_t path_mtu;  /* payload of a packet: 256 to 4096, a power of two (1024) */
    uint32_t packets;   /* packets of a message: 1 to 8 (1) */
    uint32_t window;    /* messages in flight: 2 to 1024, a power of two (64) */
    uint32_t bound_ms;  /* an operation that takes longer ends with INCCL_TIMEOUT (30000) */
    uint32_t fallback;  /* where no switch can be had, INCCL_FALLBACK_MEMBERS: the ranks' programs reduce;
                           INCCL_FALLBACK_NONE: operations wait for switches */
    uint32_t framing;   /* INCCL_FRAMING_INC: messages have a header; INCCL_FRAMING_PLAIN: they are data alone, of
                           allreduces with plain_type and plain_op, and no other operation can be */
    uint32_t plain_type, plain_op;
    uint32_t ordered;   /* INCCL_ORDERED_ON: floats are added in the order of the tree; INCCL_ORDERED_OFF: as they come,
                           so that another run may round differently; all ranks get the same bits */
};

struct inccl_stats {
    uint32_t size;          /* in: sizeof(struct inccl_stats) */
    uint32_t reduced_by;    /* INCCL_BY_... */
    uint64_t communicator;  /* its number at the controller */
    uint64_t repeats;       /* messages that were sent again */
    uint64_t sent_packets, received_packets;
    uint64_t sent_bytes, received_bytes; /* of the process, UDP payload */
    char why[256];          /* why not by switches; empty: they reduce */
    uint32_t framing;       /* INCCL_FRAMING_..., as it was created */
    uint32_t ordered;       /* INCCL_ORDERED_..., as it was created */
    uint32_t link;          /* INCCL_LINK_... */
    uint32_t reserved;      /* 0 */
};
#define INCCL_BY_NONE 0     /* no tree yet: operations wait for switches */
#define INCCL_BY_SWITCHES 1
#define INCCL_BY_MEMBERS 2  /* no switch could be had: the members' own programs */

/* A rank joins the group; returns when all have, or NULL, for which inccl_last_error(NULL) has words: a rank that did not
   come, another world_size, the same rank twice. controller_ip is the address of the controller, or, on ranks other than 0
   and without INCCL_GROUP, that of rank 0; NULL: INCCL_MASTER. Of several controllers that replace each other all are
   named, with commas between. */
struct inccl_group *inccl_group_create(int world_size, const char *controller_ip, int rank);
void inccl_group_destroy(struct inccl_group *group);

/* All ranks of the group make a communicator; NULL: inccl_last_error(NULL) says why. */
struct inccl_communicator *inccl_communicator_create(struct inccl_group *group);
struct inccl_communicator *inccl_communicator_create_attr(struct inccl_group *group,
                                                          const struct inccl_attr *attr);
void inccl_communicator_destroy(struct inccl_communicator *comm);

/* The sum of 32-bit integers, moved by RDMA WRITE or by SEND. Failures are in inccl_last_error(comm). */
void inccl_allreduce_write(struct inccl_communicator *comm, int32_t *src_data, uint32_t len,
                           int32_t *dst_data);
void inccl_allreduce_sendrecv(struct inccl_communicator *comm, int32_t *src_data, uint32_t len,
                              int32_t *dst_data);

/* n counts elements; of allgather and reduce_scatter those of one rank's block. */
int inccl_allreduce(struct inccl_communicator *comm, const void *src, void *dst, size_t n, int type, int op);
int inccl_reduce(struct inccl_communicator *comm, const void *src, void *dst, size_t n, int type, int op,
                 int root);
int inccl_broadcast(struct inccl_communicator *comm, void *data, size_t n, int type, int root);
int inccl_barrier(struct inccl_communicator *comm);
int inccl_allgather(struct inccl_communicator *comm, const void *src, void *dst, size_t n, int type);
int inccl_reduce_scatter(struct inccl_communicator *comm, const void *src, void *dst, size_t n, int type,
                         int op);

/* The same, begun: *request is waited for, tested or canceled. The destination is written by the call that ends it, and
 * has to stay until then; the source may change as soon as the call returns. */
int inccl_iallreduce(struct inccl_communicator *comm, const void *src, void *dst, size_t n, int type, int op,
                     struct inccl_request **request);
int inccl_ireduce(struct inccl_communicator *comm, const void *src, void *dst, size_t n, int type, int op,
                  int root, struct inccl_request **request);
int inccl_ibroadcast(struct inccl_communicator *comm, void *data, size_t n, int type, int root,
                     struct inccl_request **request);
int inccl_ibarrier(struct inccl_communicator *comm, struct inccl_request **request);
int inccl_iallgather(struct inccl_communicator *comm, const void *src, void *dst, size_t n, int type,
                     struct inccl_request **request);
int inccl_ireduce_scatter(struct inccl_communicator *comm, const void *src, void *dst, size_t n, int type,
                          int op, struct inccl_request **request);

/* INCCL_PENDING: not yet. Any other answer is the operation's, and ends the request. timeout_ms < 0: no other bound than
 * the operation's own. */
int inccl_test(struct inccl_request *request);
int inccl_wait(struct inccl_request *request, int timeout_ms);
/* The operation goes on for the other ranks; nothing is written to the destination. */
int inccl_cancel(struct inccl_request *request);

int inccl_stats(struct inccl_communicator *comm, struct inccl_stats *stats);
const char *inccl_strerror(int answer);
/* What went wrong last: of a communicator, or, with NULL, of this thread. Stays until this thread's next call. */
const char *inccl_last_error(struct inccl_communicator *comm);

#ifdef __cplusplus
}
#endif

#endif
