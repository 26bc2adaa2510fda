/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A program that unmaps registered memory without unregistering it, while a peer goes on with requests for it; then it
 * maps other memory there, and unregisters at last.
 *
 *   unmaps whole|part|file
 *
 * whole: anonymous pages. part: the beginning and the end lie in the middle of a page. file: a memfd, mapped shared.
 * Each request of the peer is a line: what, when, status. The program itself says whether it lived, and whether what it
 * mapped later is as it left it.
 */
#include "../../../examples/c/end.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define LEN (64u << 10)

static end_t mine;

static void tell(int fd) {
    char go = 1;
    need(send(fd, &go, 1, MSG_NOSIGNAL) == 1, "send");
}

static void await_peer(int fd) {
    char go;
    need(recv(fd, &go, 1, MSG_WAITALL) == 1, "recv");
}

static int be_owner(int fd, const char *kind) {
    need(urma_init(NULL) == URMA_SUCCESS, "urma_init");
    end_open(&mine);
    int file = -1, flags = MAP_PRIVATE | MAP_ANONYMOUS;
    if (strcmp(kind, "file") == 0) {
        file = memfd_create("unmaps", 0);
        need(file >= 0 && ftruncate(file, LEN) == 0, "memfd_create");
        flags = MAP_SHARED;
    }
    unsigned char *pages = mmap(NULL, LEN, PROT_READ | PROT_WRITE, flags, file, 0);
    need(pages != MAP_FAILED, "mmap");
    memset(pages, 1, LEN);
    size_t skip = strcmp(kind, "part") == 0 ? 104 : 0;
    urma_target_seg_t *seg = register_at(mine.ctx, pages + skip, LEN - 2 * skip, ALL_ACCESS);
    card_t card = end_card(&mine);
    card.seg = seg->seg;
    need(send(fd, &card, sizeof card, MSG_NOSIGNAL) == sizeof card, "send");

    await_peer(fd);
    need(pages[skip] == 2, "the first write is there");
    need(munmap(pages, LEN) == 0, "munmap");
    tell(fd);
    await_peer(fd);
    flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    unsigned char *later = mmap(pages, LEN, PROT_READ | PROT_WRITE, flags, -1, 0);
    need(later == pages, "mmap again");
    memset(later, 7, LEN);
    tell(fd);
    await_peer(fd);
    need(urma_unregister_seg(seg) == URMA_SUCCESS, "urma_unregister_seg");
    size_t changed = 0;
    for (size_t at = 0; at < LEN; at++) {
        changed += later[at] != 7;
    }
    printf("lived, %zu bytes changed\n", changed);
    end_close(&mine);
    return 0;
}

static int ends_with(urma_jfs_wr_t *wr) {
    post(&mine, wr);
    return (int)end_next(mine.jfc).status;
}

static urma_target_jetty_t *to;

/* A write, a read and an atomic at `offset`. */
static void try_all(urma_target_seg_t *there, const char *when, uint64_t offset, uint32_t len) {
    urma_sge_t here = sge(mine.seg, 0, len), far = sge(there, offset, len);
    urma_opcode_t ops[] = {URMA_OPC_WRITE, URMA_OPC_READ};
    memset(mine.memory, 2, MEMORY_LEN);
    for (int i = 0; i < 2; i++) {
        urma_jfs_wr_t wr = request(ops[i], to, 1);
        wr.rw.src.sge = i == 0 ? &here : &far;
        wr.rw.src.num_sge = 1;
        wr.rw.dst.sge = i == 0 ? &far : &here;
        wr.rw.dst.num_sge = 1;
        printf("%s %s %d\n", i == 0 ? "write" : "read", when, ends_with(&wr));
    }
    urma_sge_t word = sge(mine.seg, 64, 8), target = sge(there, offset, 8);
    urma_jfs_wr_t wr = request(URMA_OPC_FADD, to, 1);
    wr.faa.src = &word;
    wr.faa.dst = &target;
    wr.faa.operand = 0;
    printf("atomic %s %d\n", when, ends_with(&wr));
}

static int be_peer(int fd) {
    need(urma_init(NULL) == URMA_SUCCESS, "urma_init");
    end_open(&mine);
    card_t card;
    need(recv(fd, &card, sizeof card, MSG_WAITALL) == sizeof card, "recv");
    to = end_import_jetty(&mine, &card);
    urma_target_seg_t *there = end_import_seg(&mine, &card);
    uint64_t middle = LEN / 2 - there->seg.ubva.va % 8;
    try_all(there, "before", 0, 4096);
    tell(fd);
    await_peer(fd);
    try_all(there, "unmapped", 0, 4096);
    try_all(there, "unmapped", middle, 4096);
    tell(fd);
    await_peer(fd);
    try_all(there, "later", 0, 4096);
    try_all(there, "later", middle, 4096);
    tell(fd);
    return 0;
}

int main(int argc, char **argv) {
    need(argc == 2, "what");
    int fds[2];
    need(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0, "socketpair");
    pid_t owner = fork();
    need(owner >= 0, "fork");
    alarm(60);
    close(fds[owner == 0]);
    if (owner == 0) {
        return be_owner(fds[0], argv[1]);
    }
    int result = be_peer(fds[1]), status = -1;
    need(waitpid(owner, &status, 0) == owner && status == 0, "the owner");
    return result;
}
