/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A transfer engine's pattern: one thread submits batches of 16 slices and spins on their count; each worker
 * posts what was given to it and polls its own JFC without a pause. With two workers three threads spin, on
 * machines that may have two processors. The peer is another process, which sleeps.
 *
 * batches [-w WORKERS] [-s SLICE] [-n BATCHES] [-r]: prints GB/s; -r reads instead of writing. The bytes of the
 * last batch are compared.
 */
#include "end.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SLICES 16u
#define WORKERS_MAX 8u
/* Longest time for one batch. */
#define BATCH_SECONDS 60

typedef struct worker {
    end_t end;
    urma_target_jetty_t *target;
    urma_target_seg_t *local, *remote;
    /* Slices to post: a mask that the submitter gives and the worker takes. */
    _Atomic unsigned given;
} worker_t;

static size_t slice = 65536;
static bool reads;
static _Atomic unsigned done;
static _Atomic bool over;

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static unsigned char *memory_of(size_t len) {
    void *memory = NULL;
    need(posix_memalign(&memory, 1u << 21, len) == 0, "memory");
    memset(memory, 0, len);
    return memory;
}

static void post_slice(worker_t *worker, unsigned at) {
    urma_sge_t here = sge(worker->local, at * slice, (uint32_t)slice);
    urma_sge_t there = sge(worker->remote, at * slice, (uint32_t)slice);
    urma_jfs_wr_t wr = request(reads ? URMA_OPC_READ : URMA_OPC_WRITE, worker->target, at);
    wr.rw.src.sge = reads ? &there : &here;
    wr.rw.src.num_sge = 1;
    wr.rw.dst.sge = reads ? &here : &there;
    wr.rw.dst.num_sge = 1;
    post(&worker->end, &wr);
}

static void *work(void *of) {
    worker_t *worker = of;
    while (!atomic_load(&over)) {
        unsigned mask = atomic_exchange(&worker->given, 0);
        for (unsigned at = 0; mask != 0; at++, mask >>= 1) {
            if (mask & 1) {
                post_slice(worker, at);
            }
        }
        urma_cr_t cr[SLICES];
        int count = urma_poll_jfc(worker->end.jfc, (int)SLICES, cr);
        need(count >= 0, "urma_poll_jfc");
        for (int at = 0; at < count; at++) {
            need(cr[at].status == URMA_CR_SUCCESS, "a slice");
            atomic_fetch_add(&done, 1);
        }
    }
    return NULL;
}

static void tell(int fd, const void *bytes, size_t len) {
    need(write(fd, bytes, len) == (ssize_t)len, "write to the other process");
}

static void receive(int fd, void *bytes, size_t len) {
    need(recv(fd, bytes, len, MSG_WAITALL) == (ssize_t)len, "read from the other process");
}

/* The process that owns the memory: says where it is, sleeps, and compares at the end. */
static int serve(int fd) {
    const size_t len = slice * SLICES;
    end_t end;
    need(urma_init(NULL) == URMA_SUCCESS, "urma_init");
    end_open(&end);
    unsigned char *memory = memory_of(len);
    memset(memory, 0xa5, len);
    urma_target_seg_t *seg = register_at(end.ctx, memory, len, ALL_ACCESS);
    card_t card = end_card(&end);
    card.seg = seg->seg;
    tell(fd, &card, sizeof card);
    unsigned char want = 0;
    receive(fd, &want, 1);
    for (size_t at = 0; at < len; at++) {
        need(memory[at] == want, "bytes of the last batch");
    }
    need(urma_unregister_seg(seg) == URMA_SUCCESS, "urma_unregister_seg");
    end_close(&end);
    need(urma_uninit() == URMA_SUCCESS, "urma_uninit");
    return 0;
}

static int run(int fd, unsigned workers, unsigned batches) {
    const size_t len = slice * SLICES;
    card_t card;
    receive(fd, &card, sizeof card);
    need(urma_init(NULL) == URMA_SUCCESS, "urma_init");
    static worker_t all[WORKERS_MAX];
    pthread_t threads[WORKERS_MAX];
    unsigned char *memory = memory_of(len);
    memset(memory, 0x5a, len);
    end_open(&all[0].end);
    urma_target_seg_t *local = register_at(all[0].end.ctx, memory, len, ALL_ACCESS);
    urma_target_seg_t *remote = end_import_seg(&all[0].end, &card);
    for (unsigned at = 0; at < workers; at++) {
        worker_t *worker = &all[at];
        if (at > 0) {
            worker->end = all[0].end;
            end_make_queues(&worker->end);
        }
        worker->target = end_import_jetty(&worker->end, &card);
        worker->local = local;
        worker->remote = remote;
    }
    for (unsigned at = 0; at < workers; at++) {
        need(pthread_create(&threads[at], NULL, work, &all[at]) == 0, "pthread_create");
    }
    double start = 0;
    for (unsigned batch = 0; batch < batches + 8; batch++) {
        if (batch == 8) {
            start = seconds(); /* Those before were to warm up. */
        }
        atomic_store(&done, 0);
        for (unsigned at = 0; at < SLICES; at++) {
            atomic_fetch_or(&all[at % workers].given, 1u << at);
        }
        const time_t limit = time(NULL) + BATCH_SECONDS;
        unsigned spins = 0;
        while (atomic_load(&done) < SLICES) {
            need((++spins & 0xfffff) != 0 || time(NULL) < limit, "a batch takes too long");
        }
    }
    double took = seconds() - start;
    atomic_store(&over, true);
    for (unsigned at = 0; at < workers; at++) {
        need(pthread_join(threads[at], NULL) == 0, "pthread_join");
    }
    printf("%s of %zu bytes, %u workers: %.3f GB/s\n", reads ? "READ" : "WRITE", slice, workers,
           (double)len * batches / took / 1e9);
    for (size_t at = 0; reads && at < len; at++) {
        need(memory[at] == 0xa5, "bytes of the last batch");
    }
    unsigned char want = reads ? 0xa5 : 0x5a;
    tell(fd, &want, 1);
    return 0;
}

int main(int count, char **args) {
    unsigned workers = 2, batches = 1000;
    for (int opt; (opt = getopt(count, args, "w:s:n:r")) != -1;) {
        switch (opt) {
        case 'w': workers = (unsigned)atoi(optarg); break;
        case 's': slice = (size_t)atol(optarg); break;
        case 'n': batches = (unsigned)atoi(optarg); break;
        case 'r': reads = true; break;
        default: return 2;
        }
    }
    need(workers >= 1 && workers <= WORKERS_MAX, "workers are 1 to 8");
    int ends[2];
    need(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0, "socketpair");
    pid_t child = fork();
    need(child >= 0, "fork");
    if (child == 0) {
        close(ends[1]);
        return serve(ends[0]);
    }
    close(ends[0]);
    int failed = run(ends[1], workers, batches);
    int status = 0;
    need(waitpid(child, &status, 0) == child, "waitpid");
    return failed || status != 0;
}
