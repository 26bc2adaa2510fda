/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A panic inside of the library is a failure of the call it happens in: URMA_FAIL, or NULL or -1 with
 * EIO. What comes next works. The library has panics planted (feature planted-faults).
 */
#define _GNU_SOURCE
#include "end.h"

static void plant(const char *place)
{
    CHECK(setenv("URMA_PLANTED_PANIC", place, 1) == 0);
    errno = 0;
}

int main(void)
{
    struct end end;
    urma_jfc_cfg_t cfg = {0};
    urma_cr_t cr;

    /* On the way up: nothing is left of it, and the next one starts the library. */
    plant("start");
    CHECK(urma_init(NULL) == URMA_FAIL);
    CHECK(getenv("URMA_PLANTED_PANIC") == NULL);
    CHECK(urma_get_device_by_name((char *)"udma0") == NULL);
    CHECK(urma_init(NULL) == URMA_SUCCESS);
    CHECK(urma_init(NULL) == URMA_EEXIST);
    end_open(&end, urma_get_device_by_name((char *)"udma0"), URMA_TM_RM);

    plant("create_jfc");
    cfg.depth = 4;
    CHECK(urma_create_jfc(end.ctx, &cfg) == NULL && errno == EIO);
    urma_jfc_t *jfc = urma_create_jfc(end.ctx, &cfg);
    CHECK(jfc != NULL && urma_delete_jfc(jfc) == URMA_SUCCESS);

    /* Under the lock of its queue, which lets go. */
    plant("poll_jfc");
    CHECK(urma_poll_jfc(end.jfc, 1, &cr) == -1 && errno == EIO);
    CHECK(urma_poll_jfc(end.jfc, 1, &cr) == 0);

    struct info info = end_info(&end);
    urma_target_jetty_t *target = end_import_jetty(&end, &info);
    urma_sge_t piece = end_piece(&end, 0, 8);
    end_receive(&end, 64, 8, 1);
    plant("post_send");
    urma_jfs_wr_t wr = {0}, *bad = NULL;
    wr.opcode = URMA_OPC_SEND;
    wr.tjetty = target;
    wr.send.src.sge = &piece;
    wr.send.src.num_sge = 1;
    CHECK(urma_post_jetty_send_wr(end.jetty, &wr, &bad) == URMA_FAIL);
    CHECK(end_post(&end, URMA_OPC_SEND, target, &piece, NULL) == URMA_SUCCESS);
    CHECK(end_wait(end.jfc).status == URMA_CR_SUCCESS && end_wait(end.jfc).status == URMA_CR_SUCCESS);
    CHECK(urma_unimport_jetty(target) == URMA_SUCCESS);
    end_close(&end);

    /* On the way down: the library is down all the same, and comes up again. */
    plant("stop");
    CHECK(urma_uninit() == URMA_FAIL);
    CHECK(urma_init(NULL) == URMA_SUCCESS);
    end_open(&end, urma_get_device_by_name((char *)"udma0"), URMA_TM_RM);
    end_close(&end);
    CHECK(urma_uninit() == URMA_SUCCESS);
    return 0;
}
