/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The thinnest program: write, and send with receive, between two contexts of one process; then the
 * same between two processes that tell each other of their memory and jetty over pipes.
 */
#include <sys/wait.h>
#include <unistd.h>

#include "end.h"

static void write_and_send(struct end *here, struct info *peer)
{
    urma_target_jetty_t *target = end_import_jetty(here, peer);
    urma_target_seg_t *there = end_import_seg(here, peer);
    urma_sge_t src = end_piece(here, 0, 64);
    urma_sge_t dst = {0};
    urma_cr_t cr;

    memset(here->memory, 0xa5, 64);
    dst.addr = there->seg.ubva.va + 1024;
    dst.len = 64;
    dst.tseg = there;
    CHECK(end_post(here, URMA_OPC_WRITE, target, &src, &dst) == URMA_SUCCESS);
    cr = end_wait(here->jfc);
    CHECK(cr.status == URMA_CR_SUCCESS && cr.user_ctx == 7 && cr.flag.bs.s_r == 0);
    CHECK(cr.local_id == here->jetty->jetty_id.id);

    strcpy((char *)here->memory, "hello");
    CHECK(end_post(here, URMA_OPC_SEND_IMM, target, &src, NULL) == URMA_SUCCESS);
    CHECK(end_wait(here->jfc).status == URMA_CR_SUCCESS);
    CHECK(urma_unimport_seg(there) == URMA_SUCCESS);
    CHECK(urma_unimport_jetty(target) == URMA_SUCCESS);
}

static void check_received(struct end *end)
{
    urma_cr_t cr = end_wait(end->jfc);
    CHECK(cr.status == URMA_CR_SUCCESS && cr.flag.bs.s_r == 1 && cr.user_ctx == 99);
    CHECK(cr.opcode == URMA_CR_OPC_SEND_WITH_IMM && cr.imm_data == 0x123456789abcdef0);
    CHECK(cr.completion_len == 64 && strcmp((char *)end->memory + 4096, "hello") == 0);
    for (int i = 0; i < 64; i++) {
        CHECK(end->memory[1024 + i] == 0xa5);
    }
}

static void in_one_process(void)
{
    struct end here, there;
    urma_device_t *dev = urma_get_device_by_name((char *)"udma0");

    CHECK(dev != NULL);
    end_open(&here, dev, URMA_TM_RM);
    end_open(&there, dev, URMA_TM_RM);
    end_receive(&there, 4096, 64, 99);
    struct info peer = end_info(&there);
    write_and_send(&here, &peer);
    check_received(&there);
    end_close(&here);
    end_close(&there);
}

/* Half of the test between two processes; `first` writes and sends. */
static void in_two_processes(int in, int out, int first)
{
    struct end end;
    struct info mine, peer;
    char done = 0;

    CHECK(urma_init(NULL) == URMA_SUCCESS);
    end_open(&end, urma_get_device_by_name((char *)"udma0"), URMA_TM_RM);
    end_receive(&end, 4096, 64, 99);
    mine = end_info(&end);
    CHECK(write(out, &mine, sizeof(mine)) == (ssize_t)sizeof(mine));
    CHECK(read(in, &peer, sizeof(peer)) == (ssize_t)sizeof(peer));
    if (first) {
        write_and_send(&end, &peer);
        CHECK(read(in, &done, 1) == 1);
    } else {
        check_received(&end);
        CHECK(write(out, &done, 1) == 1);
    }
    end_close(&end);
    CHECK(urma_uninit() == URMA_SUCCESS);
}

int main(void)
{
    int count = 0, to[2], from[2], status = 0;
    uint32_t eids = 0;

    CHECK(pipe(to) == 0 && pipe(from) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    in_two_processes(child == 0 ? to[0] : from[0], child == 0 ? from[1] : to[1], child == 0);
    if (child == 0) {
        return 0;
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);

    CHECK(urma_init(NULL) == URMA_SUCCESS && urma_init(NULL) == URMA_EEXIST);
    urma_device_t **list = urma_get_device_list(&count);
    CHECK(list != NULL && count == 1 && strcmp(list[0]->name, "udma0") == 0);
    urma_eid_info_t *eid = urma_get_eid_list(list[0], &eids);
    CHECK(eid != NULL && eids == 1);
    CHECK(urma_get_device_by_eid(eid[0].eid, URMA_TRANSPORT_UB) == list[0]);
    urma_free_eid_list(eid);
    urma_free_device_list(list);
    in_one_process();
    CHECK(urma_uninit() == URMA_SUCCESS);
    puts("first: done");
    return 0;
}
