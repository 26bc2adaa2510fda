/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A program on devices of a provider of another maker: its operations run, the library keeps the
 * books, and it is loaded and unloaded with the library. SAMPLE is the path of the provider.
 */
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ub/umdk/urma/urma_provider.h>

#include "end.h"

struct sample_calls {
    unsigned int init, uninit, create_context, delete_context, post_send, post_recv, poll;
    int dev_fd;
};

/* The counters of the provider while it is loaded, else NULL. They stay where they are until then. */
static volatile struct sample_calls *calls(void)
{
    void *object = dlopen(getenv("SAMPLE"), RTLD_NOW | RTLD_NOLOAD);
    if (object == NULL) {
        return NULL;
    }
    volatile struct sample_calls *of = dlsym(object, "sample_calls");
    CHECK(of != NULL && dlclose(object) == 0);
    return of;
}

static urma_device_t *named(const char *name)
{
    return urma_get_device_by_name((char *)(uintptr_t)name);
}

static void devices(void)
{
    int count = 0;
    uint32_t eids = 0;
    urma_device_attr_t attr;
    urma_device_t **list = urma_get_device_list(&count);

    /* Its own first, then what providers made when they started, then what the system lists. */
    CHECK(list != NULL && count == 4);
    CHECK(strcmp(list[0]->name, "udma0") == 0 && strcmp(list[1]->name, "sample_made") == 0);
    CHECK(strcmp(list[2]->name, "by_ids") == 0 && strcmp(list[3]->name, "sample0") == 0);
    urma_free_device_list(list);
    CHECK(named("stranger") == NULL && errno == ENODEV);

    urma_device_t *dev = named("sample0");
    CHECK(dev != NULL && strcmp(dev->ops->name, "sample") == 0 && dev->sysfs_dev != NULL);
    CHECK(strcmp(dev->path, "/dev/uburma/sample0") == 0);
    CHECK(urma_query_device(dev, &attr) == URMA_SUCCESS);
    CHECK(attr.dev_cap.max_jfc_depth == 64 && attr.dev_cap.max_msg_size == 0x10000);
    CHECK(attr.port_cnt == 1 && attr.port_attr[0].active_mtu == 4);
    CHECK(attr.reserved_jetty_id_min == 2 && attr.reserved_jetty_id_max == 9);

    urma_eid_info_t *eid = urma_get_eid_list(dev, &eids);
    CHECK(eid != NULL && eids == 2 && eid[0].eid_index == 0 && eid[1].eid_index == 2);
    CHECK(urma_get_device_by_eid(eid[1].eid, URMA_TRANSPORT_UB) == dev);
    urma_free_eid_list(eid);
    CHECK(urma_create_context(dev, 1) == NULL && errno == EIO);
}

static void traffic(void)
{
    struct end here, there;
    volatile struct sample_calls *ran = calls();
    unsigned int contexts = ran->create_context, sends = ran->post_send;

    end_open(&here, named("sample0"), URMA_TM_RM);
    end_open(&there, named("by_ids"), URMA_TM_RM);
    CHECK(ran->create_context == contexts + 2 && ran->dev_fd == -1);
    CHECK(here.ctx->dev_fd == -1 && here.ctx->eid_index == 0 && here.ctx->eid.raw[15] == 9);
    CHECK(strcmp(here.ctx->ops->name, "sample ops") == 0);
    /* Its own create functions leave it 0; what deactivates a queue asks for it. */
    CHECK(here.jfc->urma_jfc_opt.is_actived && here.jfr->urma_jfr_opt.is_actived);
    CHECK(here.jetty->urma_jetty_opt.is_actived);
    /* A context, a channel, a JFC, a JFR, a jetty, a segment with its token id. */
    CHECK(atomic_load(&here.ctx->ref.atomic_cnt) == 7);
    CHECK(urma_delete_context(here.ctx) == URMA_EAGAIN && urma_delete_jfce(here.jfce) == URMA_FAIL);

    struct info peer = end_info(&there);
    urma_target_jetty_t *target = end_import_jetty(&here, &peer);
    urma_target_seg_t *seg = end_import_seg(&here, &peer);
    urma_sge_t src = end_piece(&here, 0, 64), dst = {0};
    dst.addr = seg->seg.ubva.va + 512;
    dst.len = 64;
    dst.tseg = seg;
    memset(here.memory, 0x3c, 64);
    end_receive(&there, 4096, 64, 99);
    CHECK(end_post(&here, URMA_OPC_WRITE, target, &src, &dst) == URMA_SUCCESS);
    CHECK(end_post(&here, URMA_OPC_SEND, target, &src, NULL) == URMA_SUCCESS);
    CHECK(end_wait(here.jfc).user_ctx == 7 && end_wait(here.jfc).user_ctx == 7);
    CHECK(end_wait(there.jfc).user_ctx == 99);
    CHECK(memcmp(there.memory + 512, here.memory, 64) == 0);
    CHECK(memcmp(there.memory + 4096, here.memory, 64) == 0);
    CHECK(ran->post_send == sends + 2 && ran->post_recv != 0 && ran->poll >= 3);
    /* No queue receives: the provider refuses, and the library says what it says. */
    CHECK(end_post(&here, URMA_OPC_SEND, target, &src, NULL) == URMA_EINVAL);
    /* What the provider lacks. */
    CHECK(urma_query_jetty(here.jetty, NULL, NULL) == URMA_EINVAL);
    CHECK(urma_rearm_jfc(here.jfc, false) == URMA_EINVAL);

    CHECK(urma_unimport_seg(seg) == URMA_SUCCESS && urma_unimport_jetty(target) == URMA_SUCCESS);
    end_close(&here);
    end_close(&there);
    CHECK(ran->delete_context >= 2);
}

static void made_device(void)
{
    urma_device_t *dev = named("sample_made");
    urma_jfc_cfg_t cfg = {0};

    CHECK(dev != NULL && strcmp(dev->ops->name, "sample") == 0);
    urma_context_t *ctx = urma_create_context(dev, 3);
    CHECK(ctx != NULL && ctx->dev == dev && ctx->eid_index == 3 && ctx->dev_fd == -1);
    cfg.depth = 17;
    CHECK(urma_create_jfc(ctx, &cfg) == NULL && errno == EINVAL);
    cfg.depth = 16;
    urma_jfc_t *jfc = urma_create_jfc(ctx, &cfg);
    CHECK(jfc != NULL && urma_delete_jfc(jfc) == URMA_SUCCESS);
    CHECK(urma_delete_context(ctx) == URMA_SUCCESS);
}

static int posts;
static urma_status_t (*original)(urma_jetty_t *, urma_jfs_wr_t *, urma_jfs_wr_t **);

static urma_status_t counted(urma_jetty_t *jetty, urma_jfs_wr_t *wr, urma_jfs_wr_t **bad)
{
    posts++;
    return original(jetty, wr, bad);
}

/* The built-in device beside them, with an operation that the program watches. */
static void own_device(void)
{
    struct end end;
    end_open(&end, named("udma0"), URMA_TM_RM);
    struct info peer = end_info(&end);
    urma_target_jetty_t *target = end_import_jetty(&end, &peer);
    urma_sge_t src = end_piece(&end, 0, 64);
    urma_ops_t *ops = end.ctx->ops;
    int before = posts;

    original = ops->post_jetty_send_wr;
    CHECK(original != NULL);
    ops->post_jetty_send_wr = counted;
    end_receive(&end, 4096, 64, 99);
    CHECK(end_post(&end, URMA_OPC_SEND, target, &src, NULL) == URMA_SUCCESS);
    CHECK(posts == before + 1);
    ops->post_jetty_send_wr = original;
    end_receive(&end, 4096, 64, 99);
    CHECK(end_post(&end, URMA_OPC_SEND, target, &src, NULL) == URMA_SUCCESS);
    CHECK(posts == before + 1);
    for (int i = 0; i < 4; i++) {
        CHECK(end_wait(end.jfc).status == URMA_CR_SUCCESS);
    }
    CHECK(urma_unimport_jetty(target) == URMA_SUCCESS);
    end_close(&end);
}

static void in_a_child(void)
{
    int status = 0;
    pid_t child = fork();

    CHECK(child >= 0);
    if (child == 0) {
        CHECK(named("sample0") == NULL);
        CHECK(urma_init(NULL) == URMA_SUCCESS);
        traffic();
        CHECK(urma_uninit() == URMA_SUCCESS && urma_init(NULL) == URMA_SUCCESS);
        traffic();
        exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(void)
{
    alarm(300);
    CHECK(calls() == NULL);
    for (int turn = 0; turn < 3; turn++) {
        CHECK(urma_init(NULL) == URMA_SUCCESS);
        CHECK(calls() != NULL && calls()->init == 1 && calls()->uninit == 0);
        devices();
        traffic();
        made_device();
        own_device();
        CHECK(urma_uninit() == URMA_SUCCESS && calls() == NULL);
    }

    /* A context keeps its provider loaded and its device alive; neither is started twice. */
    CHECK(urma_init(NULL) == URMA_SUCCESS);
    urma_device_t *dev = named("sample0");
    urma_context_t *ctx = urma_create_context(dev, 0);
    CHECK(ctx != NULL);
    CHECK(urma_uninit() == URMA_SUCCESS && calls() != NULL && calls()->uninit == 0);
    CHECK(named("sample0") == NULL && errno == ENODEV);
    CHECK(urma_init(NULL) == URMA_SUCCESS && calls()->init == 1 && named("sample0") == dev);
    devices();
    CHECK(urma_delete_context(ctx) == URMA_SUCCESS);
    in_a_child();
    CHECK(urma_uninit() == URMA_SUCCESS && calls() == NULL);
    /* The device went with the provider. */
    CHECK(urma_create_context(dev, 0) == NULL && errno == EINVAL);
    puts("provider: done");
    return 0;
}
