/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A provider of another maker, in memory: SEND and WRITE between jetties of one process are copied
 * when they are posted. It drives devices with the driver name "sample" and those of vendor 0x5a5a,
 * device 1, and makes one itself, "sample_made". Limits come from the files of the device.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <ub/umdk/urma/urma_private.h>

enum { QUEUE = 64, JETTIES = 16 };

/* How often each part ran; the test reads it by name. */
struct sample_calls {
    unsigned int init, uninit, create_context, delete_context, post_send, post_recv, poll;
    int dev_fd;
};
struct sample_calls sample_calls;

struct sample_jfc {
    urma_jfc_t base;
    urma_cr_t queue[QUEUE];
    unsigned int head, tail;
};

struct sample_jfr {
    urma_jfr_t base;
    struct {
        void *to;
        uint32_t len;
        uint64_t user_ctx;
    } queue[QUEUE];
    unsigned int head, tail;
};

static urma_jetty_t *jetties[JETTIES];
static urma_ops_t sample_ops;

static urma_status_t sample_free(void *object)
{
    free(object);
    return URMA_SUCCESS;
}

static urma_jfce_t *create_jfce(urma_context_t *ctx)
{
    urma_jfce_t *jfce = calloc(1, sizeof(*jfce));
    if (jfce != NULL) {
        jfce->urma_ctx = ctx;
        jfce->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    }
    return jfce;
}

static urma_status_t delete_jfce(urma_jfce_t *jfce)
{
    close(jfce->fd);
    return sample_free(jfce);
}

static urma_jfc_t *create_jfc(urma_context_t *ctx, urma_jfc_cfg_t *cfg)
{
    struct sample_jfc *jfc = calloc(1, sizeof(*jfc));
    if (jfc == NULL) {
        return NULL;
    }
    jfc->base.urma_ctx = ctx;
    jfc->base.jfc_cfg = *cfg;
    return &jfc->base;
}

static urma_status_t delete_jfc(urma_jfc_t *jfc)
{
    return sample_free(jfc);
}

static int poll_jfc(urma_jfc_t *of, int count, urma_cr_t *cr)
{
    struct sample_jfc *jfc = (struct sample_jfc *)of;
    int done = 0;

    sample_calls.poll++;
    while (done < count && jfc->head != jfc->tail) {
        cr[done++] = jfc->queue[jfc->head++ % QUEUE];
    }
    return done;
}

static void complete(urma_jfc_t *of, urma_cr_t cr)
{
    struct sample_jfc *jfc = (struct sample_jfc *)of;
    cr.status = URMA_CR_SUCCESS;
    jfc->queue[jfc->tail++ % QUEUE] = cr;
}

static urma_jfr_t *create_jfr(urma_context_t *ctx, urma_jfr_cfg_t *cfg)
{
    struct sample_jfr *jfr = calloc(1, sizeof(*jfr));
    if (jfr == NULL) {
        return NULL;
    }
    jfr->base.urma_ctx = ctx;
    jfr->base.jfr_cfg = *cfg;
    return &jfr->base;
}

static urma_status_t delete_jfr(urma_jfr_t *jfr)
{
    return sample_free(jfr);
}

static urma_jetty_t *create_jetty(urma_context_t *ctx, urma_jetty_cfg_t *cfg)
{
    uint32_t id = 1;
    while (id < JETTIES && jetties[id] != NULL) {
        id++;
    }
    urma_jetty_t *jetty = id < JETTIES ? calloc(1, sizeof(*jetty)) : NULL;
    if (jetty == NULL) {
        return NULL;
    }
    jetties[id] = jetty;
    jetty->urma_ctx = ctx;
    jetty->jetty_cfg = *cfg;
    jetty->jetty_id.eid = ctx->eid;
    jetty->jetty_id.id = id;
    return jetty;
}

static urma_status_t delete_jetty(urma_jetty_t *jetty)
{
    jetties[jetty->jetty_id.id] = NULL;
    return sample_free(jetty);
}

static urma_target_jetty_t *import_jetty(urma_context_t *ctx, urma_rjetty_t *rjetty,
                                         urma_token_t *token)
{
    urma_target_jetty_t *target = calloc(1, sizeof(*target));
    (void)token;
    if (target != NULL) {
        target->urma_ctx = ctx;
        target->id = rjetty->jetty_id;
        target->trans_mode = rjetty->trans_mode;
    }
    return target;
}

static urma_status_t unimport_jetty(urma_target_jetty_t *target)
{
    return sample_free(target);
}

static urma_token_id_t *alloc_token_id(urma_context_t *ctx)
{
    urma_token_id_t *token = calloc(1, sizeof(*token));
    if (token != NULL) {
        token->urma_ctx = ctx;
        token->token_id = 77;
    }
    return token;
}

static urma_status_t free_token_id(urma_token_id_t *token)
{
    return sample_free(token);
}

static urma_target_seg_t *register_seg(urma_context_t *ctx, urma_seg_cfg_t *cfg)
{
    urma_target_seg_t *seg = calloc(1, sizeof(*seg));
    if (seg != NULL) {
        seg->urma_ctx = ctx;
        seg->seg.ubva.eid = ctx->eid;
        seg->seg.ubva.va = cfg->va;
        seg->seg.len = cfg->len;
        seg->seg.token_id = cfg->token_id->token_id;
    }
    return seg;
}

static urma_target_seg_t *import_seg(urma_context_t *ctx, urma_seg_t *of, urma_token_t *token,
                                     uint64_t addr, urma_import_seg_flag_t flag)
{
    urma_target_seg_t *seg = calloc(1, sizeof(*seg));
    (void)token, (void)addr, (void)flag;
    if (seg != NULL) {
        seg->urma_ctx = ctx;
        seg->seg = *of;
    }
    return seg;
}

static urma_status_t free_seg(urma_target_seg_t *seg)
{
    return sample_free(seg);
}

static urma_status_t receive(urma_jfr_t *of, urma_jfr_wr_t *wr, urma_jfr_wr_t **bad)
{
    struct sample_jfr *jfr = (struct sample_jfr *)of;

    sample_calls.post_recv++;
    for (; wr != NULL; wr = wr->next) {
        if (jfr->tail - jfr->head == QUEUE) {
            *bad = wr;
            return URMA_ENOMEM;
        }
        unsigned int place = jfr->tail++ % QUEUE;
        jfr->queue[place].to = (void *)(uintptr_t)wr->src.sge[0].addr;
        jfr->queue[place].len = wr->src.sge[0].len;
        jfr->queue[place].user_ctx = wr->user_ctx;
    }
    return URMA_SUCCESS;
}

static urma_status_t post_jetty_recv_wr(urma_jetty_t *jetty, urma_jfr_wr_t *wr,
                                        urma_jfr_wr_t **bad)
{
    return receive(jetty->jetty_cfg.shared.jfr, wr, bad);
}

/* One SEND to a jetty of this process; 0 when no queue receives it. */
static int deliver(urma_jetty_t *from, const urma_jfs_wr_t *wr)
{
    uint32_t id = wr->tjetty->id.id;
    urma_jetty_t *to = id < JETTIES ? jetties[id] : NULL;
    struct sample_jfr *jfr = to == NULL ? NULL : (struct sample_jfr *)to->jetty_cfg.shared.jfr;
    const urma_sge_t *src = wr->send.src.sge;

    if (jfr == NULL || jfr->head == jfr->tail || jfr->queue[jfr->head % QUEUE].len < src->len) {
        return 0;
    }
    unsigned int place = jfr->head++ % QUEUE;
    memcpy(jfr->queue[place].to, (const void *)(uintptr_t)src->addr, src->len);
    urma_cr_t cr = {0};
    cr.user_ctx = jfr->queue[place].user_ctx;
    cr.flag.bs.s_r = 1;
    cr.completion_len = src->len;
    cr.remote_id = from->jetty_id;
    complete(jfr->base.jfr_cfg.jfc, cr);
    return 1;
}

static urma_status_t post_jetty_send_wr(urma_jetty_t *jetty, urma_jfs_wr_t *wr,
                                        urma_jfs_wr_t **bad)
{
    sample_calls.post_send++;
    for (; wr != NULL; wr = wr->next) {
        if (wr->opcode == URMA_OPC_WRITE) {
            memcpy((void *)(uintptr_t)wr->rw.dst.sge[0].addr,
                   (const void *)(uintptr_t)wr->rw.src.sge[0].addr, wr->rw.src.sge[0].len);
        } else if (wr->opcode != URMA_OPC_SEND || !deliver(jetty, wr)) {
            *bad = wr;
            return URMA_EINVAL;
        }
        urma_cr_t cr = {0};
        cr.user_ctx = wr->user_ctx;
        cr.local_id = jetty->jetty_id.id;
        complete(jetty->jetty_cfg.jfs_cfg.jfc, cr);
    }
    return URMA_SUCCESS;
}

static urma_context_t *create_context(urma_device_t *dev, uint32_t eid_index, int dev_fd)
{
    urma_context_t *ctx = calloc(1, sizeof(*ctx));
    (void)dev, (void)eid_index;
    sample_calls.create_context++;
    sample_calls.dev_fd = dev_fd;
    if (ctx != NULL) {
        ctx->ops = &sample_ops;
        ctx->async_fd = -1;
        ctx->dev_fd = 12345; /* The core writes the real one. */
    }
    return ctx;
}

static urma_status_t delete_context(urma_context_t *ctx)
{
    sample_calls.delete_context++;
    return sample_free(ctx);
}

static urma_ops_t sample_ops = {
    .name = "sample ops",
    .create_jfc = create_jfc,
    .delete_jfc = delete_jfc,
    .poll_jfc = poll_jfc,
    .create_jfce = create_jfce,
    .delete_jfce = delete_jfce,
    .create_jfr = create_jfr,
    .delete_jfr = delete_jfr,
    .create_jetty = create_jetty,
    .delete_jetty = delete_jetty,
    .import_jetty = import_jetty,
    .unimport_jetty = unimport_jetty,
    .alloc_token_id = alloc_token_id,
    .free_token_id = free_token_id,
    .register_seg = register_seg,
    .unregister_seg = free_seg,
    .import_seg = import_seg,
    .unimport_seg = free_seg,
    .post_jfr_wr = receive,
    .post_jetty_send_wr = post_jetty_send_wr,
    .post_jetty_recv_wr = post_jetty_recv_wr,
};

static urma_device_t made_device;
static urma_sysfs_dev_t made_sysfs;

/* A device of its own, which no file describes. */
static void make_device(void)
{
    memset(&made_device, 0, sizeof(made_device));
    memset(&made_sysfs, 0, sizeof(made_sysfs));
    strcpy(made_device.name, "sample_made");
    made_device.type = URMA_TRANSPORT_UB;
    made_device.sysfs_dev = &made_sysfs;
    strcpy(made_sysfs.dev_name, "sample_made");
    strcpy(made_sysfs.driver_name, "sample");
    made_sysfs.flag = URMA_SYSFS_DEV_FLAG_DRIVER_CREATED;
    made_sysfs.urma_device = &made_device;
    made_sysfs.dev_attr.dev_cap.max_jfc_depth = 16;
    if (urma_register_sysfs_dev(&made_sysfs) != 0) {
        fprintf(stderr, "sample: the device is not listed\n");
    }
}

static urma_status_t sample_init(urma_init_attr_t *conf)
{
    (void)conf;
    sample_calls.init++;
    make_device();
    return URMA_SUCCESS;
}

static urma_status_t sample_uninit(void)
{
    sample_calls.uninit++;
    return URMA_SUCCESS;
}

static urma_match_entry_t matches[] = {{0x5a5a, 1}, {0, 0}};

static urma_provider_ops_t sample_provider = {
    .name = "sample",
    .attr = {1, URMA_TRANSPORT_UB},
    .match_table = matches,
    .init = sample_init,
    .uninit = sample_uninit,
    .create_context = create_context,
    .delete_context = delete_context,
};

static __attribute__((constructor)) void sample_load(void)
{
    if (urma_register_provider_ops(&sample_provider) != 0) {
        fprintf(stderr, "sample: not registered\n");
    }
}

static __attribute__((destructor)) void sample_unload(void)
{
    if (urma_unregister_provider_ops(&sample_provider) != 0) {
        fprintf(stderr, "sample: not unregistered\n");
    }
}
