/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Registered memory that is a file mapped shared (memfd, /dev/shm, huge pages), between two processes of one host.
 *
 *   shared check|unregister|dies|shrinks|measure HERE THERE
 *
 * HERE is the memory of the process that posts, THERE that of the other one: memfd, shm, huge or private.
 * check: WRITE, READ, WRITE with immediate, SEND and atomics of many lengths and places, each byte compared, and what a
 * wrong token comes to. unregister: the owner unregisters while WRITEs go on; from
 * then on none of its bytes changes, and the other one soon has none of its files mapped. dies: the owner is killed while
 * WRITEs go on. shrinks: the owner makes its file shorter while WRITEs and READs go on. measure: GB/s of each beside a copy of
 * as many bytes, in turn.
 */
#include "../../../examples/c/end.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LEN (8u << 20)
#define BIG (1u << 20)

static end_t mine;
/* File of `memory`, or -1. */
static int file = -1;
static unsigned char *memory;
static urma_target_seg_t *seg;

static void tell(int fd) {
    char go = 1;
    need(send(fd, &go, 1, MSG_NOSIGNAL) == 1, "send");
}

static void await_peer(int fd) {
    char go;
    need(recv(fd, &go, 1, MSG_WAITALL) == 1, "recv");
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Ends the program with 77 where there are no huge pages for `kind`. */
static void look_for_huge_pages(const char *kind) {
    if (strcmp(kind, "huge") == 0) {
        void *pages = mmap(NULL, 2 * (size_t)LEN, PROT_READ | PROT_WRITE,
                           MAP_SHARED | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
        if (pages == MAP_FAILED) {
            puts("no huge pages");
            exit(77);
        }
        munmap(pages, 2 * (size_t)LEN);
    }
}

/* Memory of a kind. */
static unsigned char *memory_of(const char *kind) {
    int flags = MAP_SHARED;
    file = -1;
    if (strcmp(kind, "private") == 0) {
        flags = MAP_PRIVATE | MAP_ANONYMOUS;
    } else if (strcmp(kind, "shm") == 0) {
        char name[64];
        snprintf(name, sizeof name, "/urma-shared-%d", (int)getpid());
        file = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
        need(file >= 0 && shm_unlink(name) == 0, "shm_open");
    } else {
        file = memfd_create("shared", strcmp(kind, "huge") == 0 ? MFD_HUGETLB : 0);
        need(file >= 0, "memfd_create");
    }
    need(file < 0 || ftruncate(file, LEN) == 0, "ftruncate");
    unsigned char *pages = mmap(NULL, LEN, PROT_READ | PROT_WRITE, flags, file, 0);
    need(pages != MAP_FAILED, "mmap");
    memset(pages, 0, LEN);
    return pages;
}

static void open_with(const char *kind, unsigned rights) {
    need(urma_init(NULL) == URMA_SUCCESS, "urma_init");
    end_open(&mine);
    memory = memory_of(kind);
    /* Nothing but the mapping has the file of a name that is gone. */
    if (strcmp(kind, "shm") == 0) {
        close(file);
    }
    seg = register_at(mine.ctx, memory, LEN, rights);
}

static card_t my_card(void) {
    card_t card = end_card(&mine);
    card.seg = seg->seg;
    return card;
}

static urma_target_jetty_t *to;
static urma_target_seg_t *there;

/* Posts and waits: the status. */
static int ends_with(urma_jfs_wr_t *wr) {
    post(&mine, wr);
    return (int)end_next(mine.jfc).status;
}

static int moves(urma_opcode_t op, urma_target_seg_t *far, uint64_t here_at, uint64_t far_at,
                 uint32_t len) {
    urma_sge_t here = sge(seg, here_at, len), other = sge(far, far_at, len);
    bool reads = op == URMA_OPC_READ;
    urma_jfs_wr_t wr = request(op, to, len);
    wr.rw.src.sge = reads ? &other : &here;
    wr.rw.src.num_sge = 1;
    wr.rw.dst.sge = reads ? &here : &other;
    wr.rw.dst.num_sge = 1;
    wr.rw.notify_data = 7;
    return ends_with(&wr);
}

/* Two pieces of one's own memory that do not touch, to or from one place. */
static int moves_two(urma_opcode_t op, uint64_t far_at, uint32_t len) {
    urma_sge_t here[2] = {sge(seg, 3, len / 3), sge(seg, LEN / 2 + 5, len - len / 3)};
    urma_sge_t other = sge(there, far_at, len);
    bool reads = op == URMA_OPC_READ;
    urma_jfs_wr_t wr = request(op, to, len);
    wr.rw.src.sge = reads ? &other : here;
    wr.rw.src.num_sge = reads ? 1 : 2;
    wr.rw.dst.sge = reads ? here : &other;
    wr.rw.dst.num_sge = reads ? 2 : 1;
    return ends_with(&wr);
}

static unsigned char byte_of(uint64_t at, unsigned seed) {
    uint64_t mixed = (at + 1) * 0x9e3779b97f4a7c15u + seed * 0xd1b54a32d192ed03u;
    return (unsigned char)(mixed >> 56);
}

static void fill(uint64_t at, size_t len, unsigned seed) {
    for (size_t i = 0; i < len; i++) {
        memory[at + i] = byte_of(i, seed);
    }
}

static void compare(uint64_t at, size_t len, unsigned seed, const char *what) {
    for (size_t i = 0; i < len; i++) {
        if (memory[at + i] != byte_of(i, seed)) {
            fprintf(stderr, "%s of %zu bytes to %llu: byte %zu\n", what, len, (unsigned long long)at, i);
            exit(1);
        }
    }
}

static const uint32_t lengths[] = {1,    7,     8,       9,       100,     1000,      1024,
                                   4096, 16384, 16385,   65536,   65537,   200003,    BIG,
                                   BIG + 1, 3u << 20};
#define LENGTHS (sizeof lengths / sizeof *lengths)

/* What was asked of the owner for a round: it compares, clears and sends the bytes back. */
typedef struct round {
    uint32_t len, receives, seed;
    uint64_t at;
} round_t;

static void ask(int fd, round_t round) {
    need(send(fd, &round, sizeof round, MSG_NOSIGNAL) == sizeof round, "send");
    await_peer(fd);
}

static void check_as_peer(int fd) {
    for (unsigned i = 0; i < LENGTHS; i++) {
        uint32_t len = lengths[i];
        for (unsigned skew = 0; skew < 2; skew++) {
            uint64_t here_at = skew * 5, far_at = skew * 3;
            fill(here_at, len, i);
            need(moves(URMA_OPC_WRITE, there, here_at, far_at, len) == 0, "write");
            ask(fd, (round_t){len, 0, i, far_at});
            memset(memory + here_at, 0, len);
            need(moves(URMA_OPC_READ, there, here_at, far_at, len) == 0, "read");
            compare(here_at, len, i, "read");

            fill(here_at, len, i + 50);
            ask(fd, (round_t){0, 1, 0, far_at});
            need(moves(URMA_OPC_WRITE_IMM, there, here_at, far_at, len) == 0, "write with immediate");
            ask(fd, (round_t){len, 0, i + 50, far_at});

            fill(here_at, len, i + 100);
            ask(fd, (round_t){0, 1, 0, far_at});
            urma_sge_t src = sge(seg, here_at, len);
            urma_jfs_wr_t wr = request(URMA_OPC_SEND, to, len);
            wr.send.src.sge = &src;
            wr.send.src.num_sge = 1;
            need(ends_with(&wr) == 0, "send");
            ask(fd, (round_t){len, 0, i + 100, far_at});
        }
        if (len > 100) {
            fill(3, len / 3, 7);
            fill(LEN / 2 + 5, len - len / 3, 8);
            need(moves_two(URMA_OPC_WRITE, 1, len) == 0, "write of two pieces");
            ask(fd, (round_t){len / 3, 0, 7, 1});
            ask(fd, (round_t){len - len / 3, 0, 8, 1 + len / 3});
            memset(memory, 0, LEN);
            need(moves_two(URMA_OPC_READ, 1, len) == 0, "read into two pieces");
            compare(3, len / 3, 7, "read");
            compare(LEN / 2 + 5, len - len / 3, 8, "read");
        }
    }
    urma_sge_t word = sge(seg, 64, 8), target = sge(there, 4096, 8);
    uint64_t first = 0;
    for (unsigned i = 0; i < 100; i++) {
        urma_jfs_wr_t wr = request(URMA_OPC_FADD, to, 1);
        wr.faa.src = &word;
        wr.faa.dst = &target;
        wr.faa.operand = 3;
        need(ends_with(&wr) == 0, "atomic");
        uint64_t before;
        memcpy(&before, memory + 64, 8);
        first = i == 0 ? before : first;
        need(before == first + 3 * (uint64_t)i, "value before");
    }
    fill(0, BIG, 1);
    urma_seg_t remote = there->seg;
    urma_token_t token;
    token.token = TOKEN + 1;
    urma_import_seg_flag_t flag;
    memset(&flag, 0, sizeof flag);
    flag.bs.access = URMA_ACCESS_READ | URMA_ACCESS_WRITE | URMA_ACCESS_ATOMIC;
    urma_target_seg_t *guessed = urma_import_seg(mine.ctx, &remote, &token, 0, flag);
    need(guessed != NULL, "urma_import_seg");
    printf("wrong token: write %d\n", moves(URMA_OPC_WRITE, guessed, 0, 0, BIG));
    printf("wrong token: read %d\n", moves(URMA_OPC_READ, guessed, 0, 0, BIG));
    ask(fd, (round_t){LEN, 2, 0, first});
}

static void check_as_owner(int fd) {
    for (;;) {
        round_t round;
        need(recv(fd, &round, sizeof round, MSG_WAITALL) == sizeof round, "recv");
        if (round.receives == 2) {
            uint64_t word;
            memcpy(&word, memory + 4096, 8);
            printf("atomics: %s\n", word == round.at + 300 ? "all" : "not all");
            tell(fd);
            return;
        }
        if (round.receives == 1) {
            urma_sge_t dst = sge(seg, round.at, LEN - (uint32_t)round.at);
            urma_jfr_wr_t wr, *bad = NULL;
            memset(&wr, 0, sizeof wr);
            wr.src.sge = &dst;
            wr.src.num_sge = 1;
            need(urma_post_jetty_recv_wr(mine.jetty, &wr, &bad) == URMA_SUCCESS, "post");
        } else {
            if (round.seed >= 50) {
                urma_cr_t cr = end_wait(mine.jfc);
                need(cr.completion_len == round.len, "length of what came");
            }
            compare(round.at, round.len, round.seed, "what came");
            if (round.seed >= 50) {
                memset(memory, 0, LEN);
            }
        }
        tell(fd);
    }
}

/* WRITEs until one fails. */
static void write_until_refused(void) {
    int status = 0;
    unsigned done = 0;
    while (status == 0) {
        memset(memory, (int)(done % 251) + 1, BIG);
        status = moves(URMA_OPC_WRITE, there, 0, 0, BIG);
        done += status == 0;
    }
    printf("refused %d\n", status);
    need(done > 0, "some writes before");
}

/* Waits for the other end, and until a write came as a whole. */
static void await_write(int fd) {
    await_peer(fd);
    for (unsigned polls = 0; *(volatile unsigned char *)&memory[BIG - 1] == 0; polls++) {
        need(polls < POLLS_MAX, "a write");
    }
}

/* Files of tests that this process has mapped. */
static unsigned mapped(void) {
    FILE *maps = fopen("/proc/self/maps", "r");
    need(maps != NULL, "/proc/self/maps");
    char line[512];
    unsigned count = 0;
    while (fgets(line, sizeof line, maps) != NULL) {
        count += strstr(line, "/memfd:shared") != NULL || strstr(line, "/urma-shared-") != NULL;
    }
    fclose(maps);
    return count;
}

/* The owner's bytes are gone from BIG on. */
static void shrink_as_owner(int fd) {
    await_write(fd);
    need(ftruncate(file, BIG) == 0, "ftruncate");
    await_peer(fd);
    printf("owner lives\n");
}

static void use_what_shrinks(void) {
    int write = 0, read = 0;
    for (unsigned i = 0; write == 0 || read == 0; i++) {
        need(i < 1000000, "the file becomes shorter");
        memset(memory, 1, BIG);
        need(moves(URMA_OPC_WRITE, there, 0, 0, BIG) == 0, "write of what stays");
        write = moves(URMA_OPC_WRITE, there, 0, BIG / 2, BIG);
        read = moves(URMA_OPC_READ, there, 0, BIG / 2, BIG);
    }
    printf("write refused %d\nread refused %d\n", write, read);
    printf("what stays: write %d\n", moves(URMA_OPC_WRITE, there, 0, 0, BIG));
}

static void unregister_as_owner(int fd) {
    await_write(fd);
    usleep(3000);
    need(urma_unregister_seg(seg) == URMA_SUCCESS, "urma_unregister_seg");
    static unsigned char seen[BIG];
    memcpy(seen, memory, BIG);
    usleep(100000);
    printf("%s after unregistering\n", memcmp(seen, memory, BIG) == 0 ? "unchanged" : "changed");
    await_peer(fd);
}

static void measure_op(const char *name, urma_opcode_t op, uint32_t len) {
    static unsigned char *from, *into;
    if (from == NULL) {
        from = memory_of("memfd");
        into = memory_of("memfd");
    }
    double best_copy = 0, best = 0;
    unsigned rounds = (64u << 20) / len;
    for (unsigned turn = 0; turn < 7; turn++) {
        double start = seconds();
        for (unsigned i = 0; i < rounds; i++) {
            memcpy(into, from, len);
            __asm__ volatile("" ::: "memory");
        }
        double copy = rounds * (double)len / (seconds() - start) / 1e9;
        start = seconds();
        for (unsigned i = 0; i < rounds; i++) {
            need(moves(op, there, 0, 0, len) == 0, "a request");
        }
        double rate = rounds * (double)len / (seconds() - start) / 1e9;
        best_copy = copy > best_copy ? copy : best_copy;
        best = rate > best ? rate : best;
    }
    printf("%s %u KiB: %.2f GB/s, memcpy %.2f, ratio %.2f\n", name, len >> 10, best, best_copy,
           best / best_copy);
}

static int be_owner(int fd, const char *what, const char *kind) {
    open_with(kind, URMA_ACCESS_READ | URMA_ACCESS_WRITE | URMA_ACCESS_ATOMIC);
    card_t card = my_card();
    need(send(fd, &card, sizeof card, MSG_NOSIGNAL) == sizeof card, "send");
    if (strcmp(what, "check") == 0) {
        check_as_owner(fd);
    } else if (strcmp(what, "unregister") == 0) {
        unregister_as_owner(fd);
    } else if (strcmp(what, "shrinks") == 0) {
        shrink_as_owner(fd);
    } else if (strcmp(what, "dies") == 0) {
        await_write(fd);
        raise(SIGKILL);
    } else {
        await_peer(fd);
    }
    return 0;
}

static void be_peer(int fd, const char *what, const char *kind) {
    open_with(kind, URMA_ACCESS_READ | URMA_ACCESS_WRITE | URMA_ACCESS_ATOMIC);
    card_t card;
    need(recv(fd, &card, sizeof card, MSG_WAITALL) == sizeof card, "recv");
    to = end_import_jetty(&mine, &card);
    there = end_import_seg(&mine, &card);
    if (strcmp(what, "check") == 0) {
        check_as_peer(fd);
        return;
    }
    if (strcmp(what, "measure") == 0) {
        uint32_t sizes[] = {64u << 10, 256u << 10, BIG, 4u << 20};
        for (unsigned i = 0; i < 4; i++) {
            measure_op("WRITE", URMA_OPC_WRITE, sizes[i]);
            measure_op("READ", URMA_OPC_READ, sizes[i]);
        }
        tell(fd);
        return;
    }
    tell(fd);
    if (strcmp(what, "shrinks") == 0) {
        use_what_shrinks();
        tell(fd);
        return;
    }
    unsigned before = mapped();
    write_until_refused();
    if (strcmp(what, "unregister") == 0) {
        for (unsigned i = 0; mapped() > before && i < 500; i++) {
            usleep(10000);
        }
        printf("%s mapped\n", mapped() > before ? "still" : "no more");
        tell(fd);
    }
}

int main(int argc, char **argv) {
    need(argc == 4, "what");
    setvbuf(stdout, NULL, _IOLBF, 0);
    look_for_huge_pages(argv[2]);
    look_for_huge_pages(argv[3]);
    int fds[2];
    need(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0, "socketpair");
    pid_t owner = fork();
    need(owner >= 0, "fork");
    alarm(60);
    close(fds[owner == 0]);
    if (owner == 0) {
        return be_owner(fds[0], argv[1], argv[3]);
    }
    be_peer(fds[1], argv[1], argv[2]);
    int status = -1;
    need(waitpid(owner, &status, 0) == owner, "waitpid");
    if (strcmp(argv[1], "dies") == 0) {
        need(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "the owner was killed");
    } else {
        need(status == 0, "the owner");
    }
    return 0;
}
