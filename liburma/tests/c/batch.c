/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Deletes of several objects: one call of the provider's operation, which a program may wrap; the
 * first refused object is named, those before it are gone, and the books are right after each.
 */
#include "end.h"

#include <ub/umdk/urma/urma_provider.h>

enum { ALL = 3 };

static urma_ops_t original;
static int calls, objects;
static urma_status_t outcome; /* of the wrappers, unless it is 0: then the wrapped function is called */

#define WRAPPER(kind)                                                                             \
    static urma_status_t wrapped_##kind(urma_##kind##_t **list, int count, urma_##kind##_t **bad) \
    {                                                                                             \
        calls++;                                                                                  \
        objects += count;                                                                         \
        return outcome != 0 ? outcome : original.delete_##kind##_batch(list, count, bad);         \
    }

WRAPPER(jfs)
WRAPPER(jfr)
WRAPPER(jfc)
WRAPPER(jetty)

static urma_jfs_t *new_jfs(struct end *end)
{
    urma_jfs_cfg_t cfg = {0};
    cfg.depth = 8;
    cfg.trans_mode = URMA_TM_RM;
    cfg.max_sge = 1;
    cfg.jfc = end->jfc;
    urma_jfs_t *jfs = urma_create_jfs(end->ctx, &cfg);
    CHECK(jfs != NULL);
    return jfs;
}

static urma_jfr_t *new_jfr(struct end *end)
{
    urma_jfr_cfg_t cfg = end->jfr->jfr_cfg;
    cfg.id = 0;
    urma_jfr_t *jfr = urma_create_jfr(end->ctx, &cfg);
    CHECK(jfr != NULL);
    return jfr;
}

static urma_jfc_t *new_jfc(struct end *end)
{
    urma_jfc_cfg_t cfg = {0};
    cfg.depth = 8;
    cfg.jfce = end->jfce;
    urma_jfc_t *jfc = urma_create_jfc(end->ctx, &cfg);
    CHECK(jfc != NULL);
    return jfc;
}

static urma_jetty_t *new_jetty(struct end *end)
{
    urma_jetty_cfg_t cfg = end->jetty->jetty_cfg;
    cfg.id = 0;
    urma_jetty_t *jetty = urma_create_jetty(end->ctx, &cfg);
    CHECK(jetty != NULL);
    return jetty;
}

/* What each kind has in common. */
#define KIND(kind)                                                                                \
    static void kind##s(struct end *end)                                                          \
    {                                                                                             \
        unsigned long before = end->ctx->ref.atomic_cnt;                                          \
        urma_##kind##_t *list[ALL + 1], *bad = NULL, *left;                                       \
                                                                                                  \
        for (int i = 0; i < ALL; i++) {                                                           \
            list[i] = new_##kind(end);                                                            \
        }                                                                                         \
        CHECK(end->ctx->ref.atomic_cnt == before + ALL);                                          \
        outcome = URMA_FAIL; /* a wrapper that deletes nothing */                                 \
        calls = objects = 0;                                                                      \
        CHECK(urma_delete_##kind##_batch(list, ALL, &bad) == URMA_FAIL && bad == list[0]);        \
        CHECK(calls == 1 && objects == ALL && end->ctx->ref.atomic_cnt == before + ALL);          \
        outcome = 0;                                                                              \
        end->ctx->ops->delete_##kind##_batch = NULL;                                              \
        CHECK(urma_delete_##kind##_batch(list, ALL, &bad) == URMA_EINVAL && bad == list[0]);      \
        end->ctx->ops->delete_##kind##_batch = wrapped_##kind;                                    \
        calls = objects = 0;                                                                      \
        CHECK(urma_delete_##kind##_batch(list, ALL, &bad) == URMA_SUCCESS);                       \
        CHECK(calls == 1 && objects == ALL && end->ctx->ref.atomic_cnt == before);                \
                                                                                                  \
        urma_##kind##_t *dead = list[2]; /* the oldest is reused first */                         \
        list[0] = new_##kind(end);                                                                \
        list[1] = dead;                                                                           \
        list[2] = left = new_##kind(end);                                                         \
        CHECK(list[0] != dead && left != dead);                                                   \
        CHECK(urma_delete_##kind##_batch(list, ALL, &bad) == URMA_EINVAL && bad == list[0]);      \
        CHECK(end->ctx->ref.atomic_cnt == before + 2); /* none is deleted */                      \
        list[1] = left; /* named twice */                                                         \
        CHECK(urma_delete_##kind##_batch(list, ALL, &bad) == URMA_EINVAL && bad == list[0]);      \
        CHECK(urma_delete_##kind##_batch(list, 2, &bad) == URMA_SUCCESS);                         \
        CHECK(end->ctx->ref.atomic_cnt == before);                                                \
        list[0] = NULL;                                                                           \
        CHECK(urma_delete_##kind##_batch(list, 1, &bad) == URMA_EINVAL && bad == NULL);           \
        CHECK(urma_delete_##kind##_batch(list, -1, &bad) == URMA_EINVAL);                         \
    }

KIND(jfs)
KIND(jfr)
KIND(jfc)
KIND(jetty)

/* A queue that others use is refused by the provider, in the middle of a list. */
static void used(struct end *end)
{
    unsigned long before = end->ctx->ref.atomic_cnt;
    urma_jfc_t *list[ALL] = {new_jfc(end), end->jfc, new_jfc(end)}, *bad = NULL;

    CHECK(urma_delete_jfc_batch(list, ALL, &bad) == URMA_EAGAIN && bad == end->jfc);
    CHECK(end->ctx->ref.atomic_cnt == before + 1);
    CHECK(urma_delete_jfc(list[0]) == URMA_EINVAL && urma_delete_jfc(list[2]) == URMA_SUCCESS);
    CHECK(end->ctx->ref.atomic_cnt == before);
}

static void members(struct end *end)
{
    urma_jetty_grp_cfg_t grp_cfg = {0};
    urma_jetty_cfg_t cfg = end->jetty->jetty_cfg;
    urma_jetty_t *list[2], *bad = NULL;

    grp_cfg.token_value.token = TOKEN;
    grp_cfg.flag.bs.token_policy = URMA_TOKEN_PLAIN_TEXT;
    grp_cfg.policy = URMA_JETTY_GRP_POLICY_HASH_HINT;
    urma_jetty_grp_t *group = urma_create_jetty_grp(end->ctx, &grp_cfg);
    CHECK(group != NULL);
    cfg.id = 0;
    cfg.jetty_grp = group;
    for (int i = 0; i < 2; i++) {
        CHECK((list[i] = urma_create_jetty(end->ctx, &cfg)) != NULL);
    }
    CHECK(group->jetty_cnt == 2);
    CHECK(urma_delete_jetty_batch(list, 2, &bad) == URMA_SUCCESS && group->jetty_cnt == 0);
    CHECK(urma_delete_jetty_grp(group) == URMA_SUCCESS);
}

/* Objects of two contexts of one device go by one call. */
static void contexts(struct end *end, struct end *other)
{
    urma_jfs_t *list[2] = {new_jfs(end), new_jfs(other)}, *bad = NULL;
    unsigned long here = end->ctx->ref.atomic_cnt, there = other->ctx->ref.atomic_cnt;

    calls = 0;
    CHECK(urma_delete_jfs_batch(list, 2, &bad) == URMA_SUCCESS && calls == 1);
    CHECK(end->ctx->ref.atomic_cnt == here - 1 && other->ctx->ref.atomic_cnt == there - 1);
}

int main(void)
{
    int count = 0;
    struct end end, other;

    CHECK(urma_init(NULL) == URMA_SUCCESS);
    urma_device_t **devs = urma_get_device_list(&count);
    CHECK(devs != NULL && count > 0);
    end_open(&end, devs[0], URMA_TM_RM);
    end_open(&other, devs[0], URMA_TM_RM);

    original = *end.ctx->ops;
    end.ctx->ops->delete_jfs_batch = wrapped_jfs;
    end.ctx->ops->delete_jfr_batch = wrapped_jfr;
    end.ctx->ops->delete_jfc_batch = wrapped_jfc;
    end.ctx->ops->delete_jetty_batch = wrapped_jetty;
    jfss(&end);
    jfrs(&end);
    jfcs(&end);
    jettys(&end);
    used(&end);
    members(&end);
    contexts(&end, &other);
    *end.ctx->ops = original;

    end_close(&other);
    end_close(&end);
    urma_free_device_list(devs);
    CHECK(urma_uninit() == URMA_SUCCESS);
    return 0;
}
