/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What random calls choose from: bytes of the input, objects that live, that are gone, that are of
 * another kind; objects in the program's own memory, as a provider in C has them; configurations.
 */
#ifndef FUZZ_WORLD_H
#define FUZZ_WORLD_H

#include <fcntl.h>
#include <pthread.h>

#include "end.h"
#include "table.h"

#include <ub/umdk/urma/urma_private.h>
#include <ub/umdk/urma/urma_provider.h>
#include <ub/umdk/urma/uvs_api.h>

enum { POOL = 6, OWN = 2, ROOM = 4096 };

struct slot {
    void *object;
    bool live;
    bool maybe; /* it may end by itself: an import that is reported later */
    int ending; /* calls that are deleting it: until they answer, its entry is not used anew */
};

/* An object in the program's memory, for the kernel's commands. */
struct own {
    _Alignas(16) uint8_t bytes[ROOM];
    bool used;
};

static struct slot pool[KINDS][POOL];
static struct own own[KINDS][OWN];
static pthread_mutex_t book = PTHREAD_MUTEX_INITIALIZER;
static uint8_t memory[4 * 4096] __attribute__((aligned(4096)));
static _Thread_local const uint8_t *input;
static _Thread_local size_t left;
/* Nothing else calls meanwhile: what is answered with success had good objects. */
static bool strict;
/* Calls that made, posted, deleted something: a driver that reaches nothing shows. */
static long made, posted, deleted;

static uint8_t byte(void)
{
    return left == 0 ? 0 : (left--, *input++);
}

/* Any object; mostly one of the wanted kind. `good` says whether the call may succeed. */
static void *any(int kind, bool *good)
{
    uint8_t how = byte();
    if (how >= 250) {
        *good = false;
        return how == 255 ? (void *)1 : NULL;
    }
    int from = how < 220 ? kind : how % KINDS;
    pthread_mutex_lock(&book);
    struct slot slot = pool[from][how < 150 ? 0 : how % POOL];
    pthread_mutex_unlock(&book);
    if (from != kind || !slot.live) {
        *good = false;
    }
    return slot.object;
}

static bool has_room(int kind)
{
    bool room = false;
    for (int i = 0; i < POOL; i++) {
        room = room || !pool[kind][i].live;
    }
    return room;
}

/* An object that is about to be deleted; answers whether it lived. */
static bool ending(void *object)
{
    bool lived = false;
    pthread_mutex_lock(&book);
    for (int i = 0; i < KINDS * POOL; i++) {
        struct slot *slot = &pool[i / POOL][i % POOL];
        if (slot->object == object && object != NULL) {
            lived = lived || slot->live;
            slot->live = false;
            slot->ending++;
        }
    }
    pthread_mutex_unlock(&book);
    return lived;
}

/* The call that deletes an object answered: the object is gone, or `stays`. */
static void ended(void *object, bool stays)
{
    pthread_mutex_lock(&book);
    for (int i = 0; i < KINDS * POOL; i++) {
        struct slot *slot = &pool[i / POOL][i % POOL];
        /* None is ending where another object was given the same address meanwhile. */
        if (slot->object == object && slot->ending > 0) {
            slot->ending--;
            slot->live = slot->live || stays;
        }
    }
    pthread_mutex_unlock(&book);
}

static urma_status_t end_object(int kind, void *object);

static void keep(int kind, void *object, bool good)
{
    struct slot *place = NULL;
    CHECK(object == NULL || good || !strict);
    if (object == NULL) {
        return;
    }
    if (kind == CTX) {
        int fd = ((urma_context_t *)object)->async_fd;
        CHECK(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) == 0);
    }
    pthread_mutex_lock(&book);
    for (int i = 0; i < KINDS * POOL; i++) {
        struct slot *slot = &pool[i / POOL][i % POOL];
        /* Its place may have been a deleted one's: that one is this now. */
        if (slot->object == object) {
            *slot = (struct slot){0};
        }
        if (i / POOL == kind && !slot->live && slot->ending == 0) {
            place = slot;
        }
    }
    if (place != NULL) {
        *place = (struct slot){object, .live = true};
        made++;
    }
    pthread_mutex_unlock(&book);
    if (place == NULL) {
        CHECK(end_object(kind, object) == URMA_SUCCESS);
    }
}

static urma_status_t delete_object(int kind, void *object)
{
    switch (kind) {
    case CTX:
        return urma_delete_context(object);
    case JFCE:
        return urma_delete_jfce(object);
    case JFC:
        return urma_delete_jfc(object);
    case JFS:
        return urma_delete_jfs(object);
    case JFR:
        return urma_delete_jfr(object);
    case JETTY:
        return urma_delete_jetty(object);
    case GRP:
        return urma_delete_jetty_grp(object);
    case TARGET:
        return urma_unimport_jetty(object);
    case SEG:
        return urma_unregister_seg(object);
    case NOTIFIER:
        return urma_delete_notifier(object);
    default:
        return urma_free_token_id(object);
    }
}

/* Deletes an object that may have been allocated only, or be a segment of another node. */
static urma_status_t end_object(int kind, void *object)
{
    urma_status_t status = delete_object(kind, object);
    if (status == URMA_SUCCESS) {
        return status;
    }
    switch (kind) {
    case JFC:
        (void)urma_deactive_jfc(object);
        return urma_free_jfc(object);
    case JFS:
        (void)urma_deactive_jfs(object);
        return urma_free_jfs(object);
    case JFR:
        (void)urma_deactive_jfr(object);
        return urma_free_jfr(object);
    case JETTY:
        (void)urma_deactive_jetty(object);
        return urma_free_jetty(object);
    case SEG:
        return urma_unimport_seg(object);
    case TARGET:
        return urma_unimport_jfr(object) == 0 ? URMA_SUCCESS : urma_unimport_jetty_async(object);
    default:
        return status;
    }
}

/* ---- configurations, of the pool's objects or of the program's own ---------------------------- */

/* Commands take the program's own objects. */
static _Thread_local bool commands;

static void *pick(int kind, bool *good)
{
    if (!commands) {
        return any(kind, good);
    }
    uint8_t how = byte();
    if (how < 230) {
        return own[kind][how % OWN].bytes;
    }
    /* The library's own objects stand for themselves, but its books do not show that: only what
       is gone, or of another kind. */
    struct slot *slot = &pool[how % DEVICE][how % POOL];
    bool is_bad = !slot->live || how % DEVICE != kind;
    return is_bad ? slot->object : how % 2 ? (void *)1 : NULL;
}

/* NULL is as good as a live one. */
static void *optional(int kind, bool *good)
{
    bool is_good = true;
    void *object = byte() % 2 ? NULL : pick(kind, &is_good);
    *good = *good && (is_good || object == NULL);
    return object;
}

static urma_transport_mode_t mode(void)
{
    uint8_t how = byte();
    return (urma_transport_mode_t)(how < 200 ? URMA_TM_RM : how % 6);
}

static void fill_jfc(void *to, bool *good)
{
    urma_jfc_cfg_t cfg = {.depth = byte(), .flag.value = byte() & 1};
    cfg.jfce = optional(JFCE, good);
    memcpy(to, &cfg, sizeof cfg);
}

static void fill_jfs(void *to, bool *good)
{
    urma_jfs_cfg_t cfg = {.depth = byte(), .trans_mode = mode()};
    uint8_t flag = byte();
    cfg.max_sge = byte() % 16;
    cfg.max_rsge = 1;
    cfg.flag.value = flag < 128 ? 0 : flag;
    cfg.jfc = pick(JFC, good);
    memcpy(to, &cfg, sizeof cfg);
}

static void fill_jfr(void *to, bool *good)
{
    urma_jfr_cfg_t cfg = {.depth = byte(), .trans_mode = mode()};
    uint8_t flag = byte();
    cfg.max_sge = byte() % 16;
    cfg.flag.value = flag < 128 ? 0 : flag;
    cfg.jfc = pick(JFC, good);
    memcpy(to, &cfg, sizeof cfg);
}

static void fill_jetty(void *to, bool *good)
{
    urma_jetty_cfg_t cfg = {0};
    bool ignored = true;
    cfg.flag.value = byte() | 1; /* shares a JFR */
    fill_jfs(&cfg.jfs_cfg, good);
    cfg.shared.jfr = pick(JFR, good);
    cfg.shared.jfc = optional(JFC, good);
    cfg.jetty_grp = byte() % 4 ? NULL : pick(GRP, &ignored);
    memcpy(to, &cfg, sizeof cfg);
}

static void fill_grp(void *to, bool *good)
{
    urma_jetty_grp_cfg_t cfg = {.id = byte() % 8};
    (void)good;
    cfg.name[0] = (char)byte();
    memcpy(to, &cfg, sizeof cfg);
}

static urma_jetty_id_t jetty_id(void)
{
    urma_jetty_id_t id = {0};
    pthread_mutex_lock(&book);
    struct slot *jetty = &pool[JETTY][byte() % POOL];
    if (jetty->live && strict) {
        id = ((urma_jetty_t *)jetty->object)->jetty_id;
    } else {
        memcpy(&id.eid, memory, 1);
        id.id = byte();
    }
    pthread_mutex_unlock(&book);
    return id;
}

static void fill_rjetty(void *to, bool *good)
{
    urma_rjetty_t remote = {.jetty_id = jetty_id(), .trans_mode = mode()};
    (void)good;
    remote.type = (urma_target_type_t)(byte() < 200 ? URMA_JETTY : byte() % 4);
    remote.tp_type = (urma_tp_type_t)(byte() % 4);
    memcpy(to, &remote, sizeof remote);
}

static void fill_rjfr(void *to, bool *good)
{
    urma_rjfr_t remote = {.trans_mode = mode(), .tp_type = (urma_tp_type_t)(byte() % 4)};
    (void)good;
    remote.jfr_id = jetty_id();
    memcpy(to, &remote, sizeof remote);
}

static void fill_tjetty(void *to, bool *good)
{
    urma_tjetty_cfg_t cfg = {.jetty_id = jetty_id(), .trans_mode = mode()};
    (void)good;
    cfg.type = (urma_target_type_t)(byte() < 200 ? URMA_JETTY : byte() % 4);
    cfg.tp_type = (urma_tp_type_t)(byte() % 4);
    memcpy(to, &cfg, sizeof cfg);
}

static void fill_tjfr(void *to, bool *good)
{
    urma_tjfr_cfg_t cfg = {.trans_mode = mode(), .tp_type = (urma_tp_type_t)(byte() % 4)};
    (void)good;
    cfg.jfr_id = jetty_id();
    memcpy(to, &cfg, sizeof cfg);
}

static void fill_seg_cfg(void *to, bool *good)
{
    urma_seg_cfg_t cfg = {.va = (uintptr_t)memory + byte() * 16u, .len = byte() * 32u};
    uint8_t flags = byte();
    cfg.flag.bs.access = byte() % 16;
    if (flags >= 200) {
        cfg.flag.value = byte() | (uint32_t)byte() << 8;
    }
    cfg.token_value.token = TOKEN;
    if (cfg.flag.bs.token_id_valid) {
        cfg.token_id = pick(TOKEN_ID, good);
    }
    memcpy(to, &cfg, sizeof cfg);
}

static void fill_seg(void *to, bool *good)
{
    struct slot *slot = &pool[SEG][byte() % POOL];
    (void)good;
    if (slot->live && strict) {
        memcpy(to, &((urma_target_seg_t *)slot->object)->seg, sizeof(urma_seg_t));
    }
}

static void fill_context(void *to, bool *good)
{
    urma_context_cfg_t cfg = {.dev = pool[DEVICE][0].object, .eid_index = byte() % 3, .dev_fd = -1};
    (void)good;
    memcpy(to, &cfg, sizeof cfg);
}

/* Any bytes do: there is no pointer in it. */
static void fill_bytes(void *to, bool *good)
{
    uint8_t len = byte() % 64;
    (void)good;
    for (int i = 0; i < len; i++) {
        ((uint8_t *)to)[i] = byte();
    }
}

/* How much room there is, of at most as many of anything. */
static void fill_count(void *to, bool *good)
{
    (void)good;
    *(uint32_t *)to = byte() % 16;
}

/* An object, or what is no address at all: options take both. */
static void fill_word(void *to, bool *good)
{
    bool ignored = true;
    (void)good;
    uint8_t how = byte();
    uintptr_t word = how < 128 ? how % 8 : (uintptr_t)pick(how % DEVICE, &ignored);
    memcpy(to, &word, sizeof word);
}

/* Other words point nowhere: 0. */
static void fill_ctl(void *to, bool *good)
{
    static _Thread_local uint8_t zeros[256];
    urma_user_ctl_in_t in = {.addr = (uintptr_t)memset(zeros, 0, sizeof zeros)};
    (void)good;
    in.len = byte();
    in.opcode = byte() % 20;
    memcpy(to, &in, sizeof in);
}

static const struct {
    const char *type;
    void (*fill)(void *to, bool *good);
} fillers[] = {
    {"urma_jfc_cfg_t*", fill_jfc},
    {"urma_jfs_cfg_t*", fill_jfs},
    {"urma_jfr_cfg_t*", fill_jfr},
    {"urma_jetty_cfg_t*", fill_jetty},
    {"urma_jetty_grp_cfg_t*", fill_grp},
    {"urma_rjetty_t*", fill_rjetty},
    {"urma_rjfr_t*", fill_rjfr},
    {"urma_tjetty_cfg_t*", fill_tjetty},
    {"urma_tjfr_cfg_t*", fill_tjfr},
    {"urma_seg_cfg_t*", fill_seg_cfg},
    {"urma_seg_t*", fill_seg},
    {"urma_context_cfg_t*", fill_context},
    {"urma_user_ctl_in_t*", fill_ctl},
    {"urma_user_ctl_out_t*", fill_ctl},
    {"uint32_t*", fill_count},
    {"uint8_t*", fill_bytes},
    {"char*", fill_bytes},
    {"void*", fill_word},
    {"urma_jfc_attr_t*", fill_bytes},
    {"urma_jfs_attr_t*", fill_bytes},
    {"urma_jfr_attr_t*", fill_bytes},
    {"urma_jetty_attr_t*", fill_bytes},
    {"urma_token_t*", fill_bytes},
    {"urma_eid_t*", fill_bytes},
    {"urma_net_addr_t*", fill_bytes},
    {"urma_get_tp_cfg_t*", fill_bytes},
    {"urma_tp_attr_value_t*", fill_bytes},
    {"urma_active_tp_cfg_t*", fill_bytes},
    {"uint64_t*", fill_bytes},
};

static void fill(const char *type, void *to, bool *good)
{
    for (size_t i = 0; i < sizeof fillers / sizeof fillers[0]; i++) {
        if (strcmp(fillers[i].type, type) == 0) {
            fillers[i].fill(to, good);
        }
    }
}

#endif
