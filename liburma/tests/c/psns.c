/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * PSNs of imports and bindings, for RC jetties that speak the standard opcodes (URMA_RC=roce).
 */
#include "end.h"

enum { LEN = 3000, PSN_END = 1 << 24 };

static urma_active_tp_cfg_t with_psns(uint32_t tx, uint32_t rx)
{
    urma_active_tp_cfg_t active = {0};

    active.tp_attr.tx_psn = tx;
    active.tp_attr.rx_psn = rx;
    return active;
}

static urma_target_jetty_t *import_at(struct end *end, struct info *peer, urma_active_tp_cfg_t active)
{
    urma_token_t token = {TOKEN};

    return urma_import_jetty_ex(end->ctx, &peer->jetty, &token, &active);
}

/* Both ends of a device, one with the PSNs of its import and one with those of its binding. */
static urma_cr_status_t pair_up(urma_device_t *dev, uint32_t psn_here, uint32_t psn_there)
{
    struct end here, there;

    end_open(&here, dev, URMA_TM_RC);
    end_open(&there, dev, URMA_TM_RC);
    struct info to_there = end_info(&there), to_here = end_info(&here);
    /* Of each number the low 24 bits count: programs draw 31 at random. */
    urma_active_tp_cfg_t back = with_psns(9, 0x7f * PSN_END + psn_there);
    urma_target_jetty_t *far = import_at(&here, &to_there, with_psns(0x35 * PSN_END + psn_here, 9));
    CHECK(far != NULL);
    urma_target_jetty_t *near = end_import_jetty(&there, &to_here);
    CHECK(urma_bind_jetty(here.jetty, far) == URMA_SUCCESS);
    CHECK(urma_bind_jetty_ex(there.jetty, near, &back) == URMA_SUCCESS);
    urma_target_seg_t *seg = end_import_seg(&here, &to_there);
    urma_sge_t src = end_piece(&here, 0, LEN), dst = end_far(seg, 0, LEN);
    memset(here.memory, 0x5a, LEN);
    CHECK(end_post(&here, URMA_OPC_WRITE, far, &src, &dst) == URMA_SUCCESS);
    urma_cr_t cr = end_wait(here.jfc);
    CHECK((there.memory[LEN - 1] == 0x5a) == (cr.status == URMA_CR_SUCCESS));
    CHECK(there.memory[LEN] == 0);

    CHECK(urma_unbind_jetty(here.jetty) == URMA_SUCCESS);
    CHECK(urma_unbind_jetty(there.jetty) == URMA_SUCCESS);
    CHECK(urma_unimport_seg(seg) == URMA_SUCCESS);
    CHECK(urma_unimport_jetty(far) == URMA_SUCCESS);
    CHECK(urma_unimport_jetty(near) == URMA_SUCCESS);
    end_close(&here);
    end_close(&there);
    return cr.status;
}

int main(void)
{
    int count = 0;

    CHECK(urma_init(NULL) == URMA_SUCCESS);
    urma_device_t **devs = urma_get_device_list(&count);
    CHECK(devs != NULL && count > 0);
    CHECK(pair_up(devs[0], 0xfffffe, 0xfffffe) == URMA_CR_SUCCESS);
    CHECK(pair_up(devs[0], 0xfffffe, 0xfffff0) == URMA_CR_ACK_TIMEOUT_ERR);
    urma_free_device_list(devs);
    CHECK(urma_uninit() == URMA_SUCCESS);
    return 0;
}
