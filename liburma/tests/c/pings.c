/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The well-known jetty: it answers while no program claims it, and is free for one that does.
 */
#include "end.h"

enum { WELL_KNOWN = 5 };

/* A jetty that asks for no token, in the place of the one that does: an answer shows none. */
static void open_plain(struct end *end)
{
    urma_jfr_cfg_t jfr_cfg = end->jfr->jfr_cfg;
    urma_jetty_cfg_t cfg = end->jetty->jetty_cfg;

    CHECK(urma_delete_jetty(end->jetty) == URMA_SUCCESS);
    CHECK(urma_delete_jfr(end->jfr) == URMA_SUCCESS);
    jfr_cfg.flag.bs.token_policy = URMA_TOKEN_NONE;
    CHECK((end->jfr = urma_create_jfr(end->ctx, &jfr_cfg)) != NULL);
    cfg.shared.jfr = end->jfr;
    CHECK((end->jetty = urma_create_jetty(end->ctx, &cfg)) != NULL);
}

static urma_target_jetty_t *import_well_known(struct end *end)
{
    urma_rjetty_t remote = {0};
    urma_token_t token = {0};

    remote.jetty_id = end->jetty->jetty_id;
    remote.jetty_id.id = WELL_KNOWN;
    remote.trans_mode = URMA_TM_RM;
    remote.type = URMA_JETTY;
    remote.tp_type = URMA_RTP;
    return urma_import_jetty(end->ctx, &remote, &token);
}

static void ping(struct end *end)
{
    urma_target_jetty_t *target = import_well_known(end);
    urma_sge_t src = end_piece(end, 0, 16);
    int received = 0;

    CHECK(target != NULL);
    end_receive(end, 4096, 64, 99);
    strcpy((char *)end->memory, "are you there?");
    CHECK(end_post(end, URMA_OPC_SEND, target, &src, NULL) == URMA_SUCCESS);
    for (int i = 0; i < 2; i++) {
        urma_cr_t cr = end_wait(end->jfc);
        CHECK(cr.status == URMA_CR_SUCCESS);
        received += cr.flag.bs.s_r;
    }
    CHECK(received == 1 && strcmp((char *)end->memory + 4096, "are you there?") == 0);
    CHECK(urma_unimport_jetty(target) == URMA_SUCCESS);
}

static void claim(struct end *end)
{
    urma_jfr_cfg_t cfg = end->jfr->jfr_cfg;

    cfg.id = WELL_KNOWN;
    urma_jfr_t *mine = urma_create_jfr(end->ctx, &cfg);
    CHECK(mine != NULL && mine->jfr_id.id == WELL_KNOWN);
    CHECK(urma_create_jfr(end->ctx, &cfg) == NULL && errno == EEXIST);
    CHECK(urma_delete_jfr(mine) == URMA_SUCCESS);
}

int main(void)
{
    for (int turn = 0; turn < 2; turn++) {
        struct end end;

        CHECK(urma_init(NULL) == URMA_SUCCESS);
        end_open(&end, urma_get_device_by_name((char *)"udma0"), URMA_TM_RM);
        open_plain(&end);
        ping(&end);
        claim(&end);
        claim(&end);
        end_close(&end);
        CHECK(urma_uninit() == URMA_SUCCESS);
    }
    puts("pings: done");
    return 0;
}
