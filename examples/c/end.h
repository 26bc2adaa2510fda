/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What the examples share: a context with a jetty and a page of registered memory.
 *
 * Owns: the set-up, the bounded wait for a completion. Must not: hide what the single examples are
 * about.
 */
#ifndef URMA_EXAMPLES_END_H
#define URMA_EXAMPLES_END_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <urma_api.h>

#define MEMORY_LEN 4096u
#define TOKEN 0x5eedu
/* Some ten seconds of polling. */
#define POLLS_MAX 100000000u

/* Ends the program with a sentence unless `ok`. */
static inline void need(bool ok, const char *what) {
    if (!ok) {
        fprintf(stderr, "%s: %s\n", what, strerror(errno));
        exit(1);
    }
}

typedef struct end {
    urma_transport_mode_t mode;
    urma_context_t *ctx;
    urma_jfce_t *jfce;
    urma_jfc_t *jfc;
    urma_jfr_t *jfr;
    urma_jetty_t *jetty;
    urma_target_seg_t *seg;
    unsigned char *memory;
} end_t;

static inline void end_make_queues(end_t *end) {
    urma_jfc_cfg_t jfc;
    memset(&jfc, 0, sizeof jfc);
    jfc.depth = 64;
    jfc.jfce = end->jfce;
    need((end->jfc = urma_create_jfc(end->ctx, &jfc)) != NULL, "urma_create_jfc");

    urma_jfr_cfg_t jfr;
    memset(&jfr, 0, sizeof jfr);
    jfr.depth = 16;
    jfr.trans_mode = end->mode;
    jfr.max_sge = 1;
    jfr.min_rnr_timer = URMA_TYPICAL_MIN_RNR_TIMER;
    jfr.jfc = end->jfc;
    need((end->jfr = urma_create_jfr(end->ctx, &jfr)) != NULL, "urma_create_jfr");

    urma_jetty_cfg_t jetty;
    memset(&jetty, 0, sizeof jetty);
    jetty.flag.bs.share_jfr = URMA_SHARE_JFR;
    jetty.shared.jfr = end->jfr;
    jetty.jfs_cfg.depth = 16;
    jetty.jfs_cfg.trans_mode = end->mode;
    jetty.jfs_cfg.max_sge = 2;
    jetty.jfs_cfg.max_rsge = 1;
    jetty.jfs_cfg.rnr_retry = URMA_TYPICAL_RNR_RETRY;
    jetty.jfs_cfg.err_timeout = URMA_TYPICAL_ERR_TIMEOUT;
    jetty.jfs_cfg.jfc = end->jfc;
    need((end->jetty = urma_create_jetty(end->ctx, &jetty)) != NULL, "urma_create_jetty");
}

#define ALL_ACCESS (URMA_ACCESS_READ | URMA_ACCESS_WRITE | URMA_ACCESS_ATOMIC)

static inline urma_target_seg_t *register_at(urma_context_t *ctx, void *memory, size_t len,
                                             unsigned access) {
    urma_seg_cfg_t cfg;
    memset(&cfg, 0, sizeof cfg);
    cfg.va = (uint64_t)(uintptr_t)memory;
    cfg.len = len;
    cfg.token_value.token = TOKEN;
    cfg.flag.bs.token_policy = URMA_TOKEN_PLAIN_TEXT;
    cfg.flag.bs.access = access;
    urma_target_seg_t *seg = urma_register_seg(ctx, &cfg);
    need(seg != NULL, "urma_register_seg");
    return seg;
}

static inline void end_register(end_t *end) {
    void *memory = NULL;
    need(posix_memalign(&memory, MEMORY_LEN, MEMORY_LEN) == 0, "memory");
    memset(memory, 0, MEMORY_LEN);
    end->memory = (unsigned char *)memory;
    end->seg = register_at(end->ctx, memory, MEMORY_LEN, ALL_ACCESS);
}

/* A jetty of the device's first EID, and a page of memory. */
static inline void end_open_as(end_t *end, char *device, urma_transport_mode_t mode) {
    end->mode = mode;
    urma_device_t *dev = urma_get_device_by_name(device);
    need(dev != NULL, "urma_get_device_by_name");
    need((end->ctx = urma_create_context(dev, 0)) != NULL, "urma_create_context");
    need((end->jfce = urma_create_jfce(end->ctx)) != NULL, "urma_create_jfce");
    end_make_queues(end);
    end_register(end);
}

static inline void end_open(end_t *end) {
    char device[] = "udma0";
    end_open_as(end, device, URMA_TM_RM);
}

static inline void end_close(end_t *end) {
    need(urma_unregister_seg(end->seg) == URMA_SUCCESS, "urma_unregister_seg");
    free(end->memory);
    need(urma_delete_jetty(end->jetty) == URMA_SUCCESS, "urma_delete_jetty");
    need(urma_delete_jfr(end->jfr) == URMA_SUCCESS, "urma_delete_jfr");
    need(urma_delete_jfc(end->jfc) == URMA_SUCCESS, "urma_delete_jfc");
    need(urma_delete_jfce(end->jfce) == URMA_SUCCESS, "urma_delete_jfce");
    need(urma_delete_context(end->ctx) == URMA_SUCCESS, "urma_delete_context");
}

/* What one side tells the other, over any channel that carries bytes. */
typedef struct card {
    urma_jetty_id_t jetty_id;
    urma_seg_t seg;
} card_t;

static inline card_t end_card(const end_t *end) {
    card_t card;
    memset(&card, 0, sizeof card);
    card.jetty_id = end->jetty->jetty_id;
    card.seg = end->seg->seg;
    return card;
}

/* Makes the jetty of `card` a target of `here`. */
static inline urma_target_jetty_t *end_import_jetty(end_t *here, const card_t *card) {
    urma_rjetty_t remote;
    memset(&remote, 0, sizeof remote);
    remote.jetty_id = card->jetty_id;
    remote.trans_mode = here->mode;
    remote.type = URMA_JETTY;
    remote.tp_type = URMA_RTP;
    urma_token_t token;
    token.token = 0;
    urma_target_jetty_t *target = urma_import_jetty(here->ctx, &remote, &token);
    need(target != NULL, "urma_import_jetty");
    return target;
}

static inline urma_target_seg_t *end_import_seg(end_t *here, const card_t *card) {
    urma_import_seg_flag_t flag;
    memset(&flag, 0, sizeof flag);
    flag.bs.access = URMA_ACCESS_READ | URMA_ACCESS_WRITE | URMA_ACCESS_ATOMIC;
    urma_seg_t remote = card->seg;
    urma_token_t token;
    token.token = TOKEN;
    urma_target_seg_t *seg = urma_import_seg(here->ctx, &remote, &token, 0, flag);
    need(seg != NULL, "urma_import_seg");
    return seg;
}

static inline urma_sge_t sge(urma_target_seg_t *seg, uint64_t offset, uint32_t len) {
    urma_sge_t piece;
    memset(&piece, 0, sizeof piece);
    piece.addr = seg->seg.ubva.va + offset;
    piece.len = len;
    piece.tseg = seg;
    return piece;
}

/* A request that makes a completion; the caller fills the rest. */
static inline urma_jfs_wr_t request(urma_opcode_t op, urma_target_jetty_t *to, uint64_t user_ctx) {
    urma_jfs_wr_t wr;
    memset(&wr, 0, sizeof wr);
    wr.opcode = op;
    wr.flag.bs.complete_enable = URMA_COMPLETE_ENABLE;
    wr.tjetty = to;
    wr.user_ctx = user_ctx;
    return wr;
}

static inline void post(end_t *end, urma_jfs_wr_t *wr) {
    urma_jfs_wr_t *bad = NULL;
    need(urma_post_jetty_send_wr(end->jetty, wr, &bad) == URMA_SUCCESS, "urma_post_jetty_send_wr");
}

/* A receive of up to `len` bytes at `offset`. */
static inline void post_receive(end_t *end, uint64_t offset, uint32_t len) {
    urma_sge_t to = sge(end->seg, offset, len);
    urma_jfr_wr_t wr, *bad = NULL;
    memset(&wr, 0, sizeof wr);
    wr.src.sge = &to;
    wr.src.num_sge = 1;
    need(urma_post_jetty_recv_wr(end->jetty, &wr, &bad) == URMA_SUCCESS, "urma_post_jetty_recv_wr");
}

/* The next completion, whatever it says. */
static inline urma_cr_t end_next(urma_jfc_t *jfc) {
    urma_cr_t cr;
    memset(&cr, 0, sizeof cr);
    int count = 0;
    for (unsigned polls = 0; count == 0 && polls < POLLS_MAX; polls++) {
        count = urma_poll_jfc(jfc, 1, &cr);
    }
    need(count == 1, "urma_poll_jfc");
    return cr;
}

/* Polls until a completion comes; it must tell of success. */
static inline urma_cr_t end_wait(urma_jfc_t *jfc) {
    urma_cr_t cr = end_next(jfc);
    if (cr.status != URMA_CR_SUCCESS) {
        fprintf(stderr, "request %llu ended with status %d\n", (unsigned long long)cr.user_ctx,
                (int)cr.status);
        exit(1);
    }
    return cr;
}

#endif
