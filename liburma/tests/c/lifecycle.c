/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The library's life: calls before urma_init and after urma_uninit, initialising twice, lookups, and
 * a forked child, for which everything of its parent is gone until it initialises the library itself.
 */
#include <sys/wait.h>
#include <unistd.h>

#include "end.h"

#define REFUSED(call, why)                                                                        \
    do {                                                                                          \
        errno = 0;                                                                                \
        CHECK((call) == NULL && errno == (why));                                                  \
    } while (0)

static void not_initialised(void)
{
    int count = 7;
    uint32_t uasid = 0;
    urma_eid_t eid = {{1}};

    REFUSED(urma_get_device_list(&count), ENODEV);
    CHECK(count == 0);
    REFUSED(urma_get_device_list(NULL), EINVAL);
    REFUSED(urma_get_device_by_name((char *)"udma0"), ENODEV);
    REFUSED(urma_get_device_by_name(NULL), EINVAL);
    REFUSED(urma_get_device_by_eid(eid, URMA_TRANSPORT_UB), ENODEV);
    REFUSED(urma_create_context(NULL, 0), EINVAL);
    CHECK(urma_get_uasid(&uasid) == ENODEV);
    urma_free_device_list(NULL);
    urma_free_eid_list(NULL);
    CHECK(urma_uninit() == URMA_SUCCESS);
}

static void lookups(void)
{
    uint32_t count = 0, uasid = 0;
    urma_device_attr_t attr;
    urma_eid_t eid = {{0}};
    urma_device_t *dev = urma_get_device_by_name((char *)"udma0");
    urma_device_t *alias = urma_get_device_by_name((char *)"bonding_dev_0");

    CHECK(dev != NULL && alias != NULL && alias != dev);
    CHECK(strcmp(alias->name, "bonding_dev_0") == 0 && alias->type == URMA_TRANSPORT_UB);
    REFUSED(urma_get_device_by_name((char *)"udma1"), ENODEV);
    REFUSED(urma_get_device_by_name((char *)""), ENODEV);
    char longest[URMA_MAX_NAME], longer[URMA_MAX_NAME + 1];
    memset(longest, 'u', sizeof longest);
    memset(longer, 'u', sizeof longer);
    longest[sizeof longest - 1] = longer[sizeof longer - 1] = 0;
    REFUSED(urma_get_device_by_name(longest), ENODEV);
    REFUSED(urma_get_device_by_name(longer), EINVAL);
    REFUSED(urma_get_device_by_eid(eid, URMA_TRANSPORT_UB), ENODEV);
    eid.raw[0] = 0xfe;
    REFUSED(urma_get_device_by_eid(eid, URMA_TRANSPORT_UB), ENODEV);
    REFUSED(urma_get_eid_list(dev, NULL), EINVAL);
    REFUSED(urma_get_eid_list(NULL, &count), EINVAL);
    urma_eid_info_t *list = urma_get_eid_list(dev, &count);
    CHECK(list != NULL && count >= 1 && list[0].eid_index == 0);
    /* The alias is listed first: programs that choose by EID look for its name. */
    CHECK(urma_get_device_by_eid(list[0].eid, URMA_TRANSPORT_UB) == alias);
    REFUSED(urma_get_device_by_eid(list[0].eid, URMA_TRANSPORT_MAX), ENODEV);
    REFUSED(urma_create_context(dev, count), EIO);
    CHECK(urma_query_device(dev, &attr) == URMA_SUCCESS);
    CHECK(attr.dev_cap.max_jfc_depth >= 64 && attr.dev_cap.max_jfs_sge >= 2 && attr.port_cnt >= 1);
    CHECK(attr.dev_cap.max_read_size != 0 && attr.dev_cap.max_write_size != 0);
    CHECK(attr.dev_cap.trans_mode == (URMA_TM_RM | URMA_TM_RC | URMA_TM_UM));
    CHECK(attr.reserved_jetty_id_min <= 5 && attr.reserved_jetty_id_max >= 5);
    uint32_t kinds = 0;
    for (int at = 0; at < URMA_MAX_PRIORITY_CNT; at++) {
        uint32_t kind = attr.dev_cap.priority_info[at].tp_type.value;
        CHECK(kind == 1 || kind == 2 || kind == 4); /* RTP, CTP or UTP: programs compare for equality */
        kinds |= kind;
    }
    CHECK(kinds == 7 && attr.dev_cap.priority_info[6].tp_type.bs.ctp == 1);
    CHECK(urma_query_device(dev, NULL) == URMA_EINVAL);
    CHECK(urma_query_device(NULL, &attr) == URMA_EINVAL);
    CHECK(urma_get_uasid(&uasid) == URMA_SUCCESS && uasid == 0);
    CHECK(urma_get_uasid(NULL) == URMA_EINVAL);

    urma_context_t *ctx = urma_create_context(dev, 0);
    CHECK(ctx != NULL && ctx->dev == dev && ctx->ops != NULL && ctx->async_fd >= 0);
    CHECK(memcmp(&ctx->eid, &list[0].eid, sizeof(ctx->eid)) == 0 && ctx->uasid == uasid);
    CHECK(ctx->eid_index == 0 && ctx->ref.atomic_cnt == 1);
    CHECK(urma_delete_context(ctx) == URMA_SUCCESS);
    CHECK(urma_delete_context(ctx) == URMA_EINVAL);
    CHECK(urma_delete_context(NULL) == URMA_EINVAL);
    CHECK(urma_delete_context((urma_context_t *)dev) == URMA_EINVAL);
    urma_free_eid_list(list);
}

static void texts(void)
{
    urma_eid_t eid, same;

    urma_u32_to_eid(0xc0a80164, &eid);
    CHECK(eid.raw[10] == 0xff && eid.raw[11] == 0xff && eid.raw[12] == 192 && eid.raw[15] == 100);
    CHECK(urma_str_to_eid("192.168.1.100", &same) == 0 && memcmp(&eid, &same, 16) == 0);
    CHECK(urma_str_to_eid("0000:0000:0000:0000:0000:ffff:c0a8:0164", &same) == 0);
    CHECK(memcmp(&eid, &same, 16) == 0);
    CHECK(urma_str_to_eid("::1", &same) == 0 && same.raw[15] == 1);
    CHECK(urma_str_to_eid("host", &same) == -EINVAL && urma_str_to_eid("", &same) == -EINVAL);
    CHECK(urma_str_to_eid(NULL, &same) == -EINVAL && urma_str_to_eid("::1", NULL) == -EINVAL);
    urma_u32_to_eid(1, NULL);
}

/* A completion queue without events, and a jetty that writes to itself: polls of one find what ended at once. */
static void polls_of_one(void)
{
    enum { WRITES = 200 };
    struct end end;
    urma_jfc_cfg_t quiet = {.depth = 64};
    urma_cr_t cr[2];
    uintptr_t user_data = 0;
    int status = 0;

    end_open(&end, urma_get_device_by_name((char *)"udma0"), URMA_TM_RM);
    CHECK(urma_delete_jetty(end.jetty) == URMA_SUCCESS);
    urma_jfc_t *jfc = urma_create_jfc(end.ctx, &quiet);
    CHECK(jfc != NULL);
    urma_jetty_cfg_t cfg = {0};
    cfg.flag.bs.share_jfr = URMA_SHARE_JFR;
    cfg.jfs_cfg = (urma_jfs_cfg_t){.depth = 16, .trans_mode = URMA_TM_RM, .max_sge = 1, .max_rsge = 1};
    cfg.jfs_cfg.jfc = jfc;
    cfg.shared.jfr = end.jfr;
    CHECK((end.jetty = urma_create_jetty(end.ctx, &cfg)) != NULL);
    struct info self = end_info(&end);
    urma_target_seg_t *there = end_import_seg(&end, &self);
    urma_target_jetty_t *target = end_import_jetty(&end, &self);
    urma_sge_t src = end_piece(&end, 0, 8), dst = end_far(there, 4096, 8);
    urma_jfs_wr_t wr = {.opcode = URMA_OPC_WRITE, .tjetty = target}, *bad = NULL;
    wr.flag.bs.complete_enable = 1;
    wr.rw.src = (urma_sg_t){.sge = &src, .num_sge = 1};
    wr.rw.dst = (urma_sg_t){.sge = &dst, .num_sge = 1};
    for (uint64_t n = 0; n <= WRITES; n++) {
        src.len = 1 + (uint32_t)(n % 8);
        wr.user_ctx = n;
        memset(end.memory, (int)n, 8);
        CHECK(urma_post_jetty_send_wr(end.jetty, &wr, &bad) == URMA_SUCCESS);
        CHECK(end.memory[4096] == (uint8_t)n);
        if (n == WRITES) {
            break;
        }
        memset(cr, 0xff, sizeof(cr));
        int room = n % 5 == 0 ? 2 : 1; /* A poll of two goes another way. */
        errno = UNTOUCHED;
        CHECK(urma_poll_jfc(jfc, room, cr) == 1 && errno == UNTOUCHED);
        CHECK(cr[0].status == URMA_CR_SUCCESS && cr[0].user_ctx == n && cr[0].completion_len == src.len);
        CHECK(cr[0].local_id == end.jetty->jetty_id.id && cr[0].opcode == 0 && cr[0].flag.bs.s_r == 0);
        CHECK(cr[0].flag.bs.jetty == 1 && cr[0].imm_data == 0 && cr[0].tpn == 0 && cr[0].remote_id.id == 0);
        user_data = room == 2 ? cr[0].user_data : user_data;
        CHECK(cr[0].user_data == user_data && cr[1].user_ctx == UINT64_MAX);
    }
    /* One waits; it is not the child's. */
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        errno = 0;
        CHECK(urma_poll_jfc(jfc, 1, cr) == -1 && errno == ENODEV);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(urma_poll_jfc(jfc, 1, cr) == 1 && cr[0].user_ctx == WRITES);
    CHECK(urma_poll_jfc(jfc, 1, cr) == 0);
    CHECK(urma_unimport_jetty(target) == URMA_SUCCESS);
    CHECK(urma_unimport_seg(there) == URMA_SUCCESS);
    CHECK(urma_delete_jetty(end.jetty) == URMA_SUCCESS);
    CHECK(urma_delete_jfc(jfc) == URMA_SUCCESS);
    CHECK(urma_poll_jfc(jfc, 1, cr) == -1 && errno == EINVAL);
    cfg.jfs_cfg.jfc = end.jfc;
    CHECK((end.jetty = urma_create_jetty(end.ctx, &cfg)) != NULL);
    end_close(&end);
}

static void in_a_child(void)
{
    struct end end;
    urma_cr_t cr;
    int status = 0;
    urma_device_t *dev = urma_get_device_by_name((char *)"udma0");

    end_open(&end, dev, URMA_TM_RM);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        REFUSED(urma_get_device_by_name((char *)"udma0"), ENODEV);
        errno = 0;
        CHECK(urma_poll_jfc(end.jfc, 1, &cr) == -1 && errno == ENODEV);
        CHECK(urma_delete_jetty(end.jetty) == ENODEV);
        REFUSED(urma_create_jfce(end.ctx), ENODEV);
        CHECK(urma_init(NULL) == URMA_SUCCESS);
        CHECK(urma_delete_jetty(end.jetty) == URMA_EINVAL);
        REFUSED(urma_create_jfce(end.ctx), EINVAL);
        dev = urma_get_device_by_name((char *)"udma0");
        end_open(&end, dev, URMA_TM_RM);
        end_close(&end);
        CHECK(urma_uninit() == URMA_SUCCESS);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    end_close(&end);
}

int main(void)
{
    struct end end;
    urma_init_attr_t conf = {0};

    setenv("URMA_DEVICE_ALIAS", "bonding_dev_0, udma0,bonding_dev_0", 1);
    not_initialised();
    texts();
    CHECK(urma_init(&conf) == URMA_SUCCESS);
    CHECK(urma_init(NULL) == URMA_EEXIST);
    lookups();
    polls_of_one();
    in_a_child();
    CHECK(urma_uninit() == URMA_SUCCESS);
    not_initialised();

    /* What was made before goes on working, and is taken down as usual. */
    CHECK(urma_init(NULL) == URMA_SUCCESS);
    end_open(&end, urma_get_device_by_name((char *)"udma0"), URMA_TM_RM);
    CHECK(urma_uninit() == URMA_SUCCESS);
    not_initialised();
    end_close(&end);
    CHECK(urma_init(NULL) == URMA_SUCCESS && urma_uninit() == URMA_SUCCESS);
    return 0;
}
