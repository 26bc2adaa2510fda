/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The order in which known clients call the library, each as two contexts of one process: clients WHO [DEVICE].
 * DEVICE is a name, or "eid": a client that is configured with the EID of the node alone.
 * Nothing of theirs is in here but which functions they call, in which order, and with which sizes.
 *
 *   yuanrong  a bonding device, balanced; no MSN; jetties with 13 pieces, over CTP; the arena is shared memory
 *   hcom      a bonding device with EID and attributes; RC over RTP; waits on the descriptor, then in the library
 *   brpc      an event channel for each connection; messages of a block over CTP; sleeps on epoll
 *   verbs     as a program of ibverbs becomes one of URMA: tokens in plain text, RC, queues in the error state first
 *   tent      no bonding device; one receive queue for all jetties; batches of WRITE and READ, polled
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "end.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <ub/umdk/urma/urma_ubagg.h>

#ifndef BONDP_USER_CTL_BONDING
#error "programs test for this name, and leave out what balances otherwise"
#endif

enum { ARENA = 1 << 20, LIMIT_MS = 60000, BATCH = 16, PIECE = 64 << 10, BLOCK = 8192, PIECES = 13 };

/* What a client asks of its ends. */
struct wish {
    urma_transport_mode_t mode;
    urma_tp_type_t tp_type;
    uint32_t jfc_depth, jfs_depth, jfr_depth;
    uint8_t send_pieces;
    int is_shared_memory;
    uint32_t token_policy;
};

struct peer {
    urma_context_t *ctx;
    urma_jfce_t *jfce;
    urma_jfc_t *jfc;
    urma_jfr_t *jfr;
    urma_jetty_t *jetty;
    urma_target_seg_t *seg, *far;
    urma_target_jetty_t *target;
    uint8_t *arena;
};

/* The first device whose name begins so. */
static urma_device_t *device_of(const char *begin)
{
    int count = 0;
    urma_device_t **list, *found = NULL;

    CHECK((list = urma_get_device_list(&count)) != NULL);
    for (int i = 0; i < count && found == NULL; i++) {
        if (strncmp(list[i]->name, begin, strlen(begin)) == 0) {
            found = urma_get_device_by_name(list[i]->name);
        }
    }
    urma_free_device_list(list);
    CHECK(found != NULL);
    return found;
}

static uint32_t eid_index_of(urma_device_t *dev)
{
    uint32_t count = 0;
    urma_eid_info_t *list;

    CHECK((list = urma_get_eid_list(dev, &count)) != NULL);
    uint32_t index = list[0].eid_index;
    /* A client that has an EID alone gets this device by it, not one of another kind. */
    CHECK(urma_get_device_by_eid(list[0].eid, URMA_TRANSPORT_UB) == dev);
    urma_free_eid_list(list);
    return index;
}

/* The device that the EID of the node names. */
static urma_device_t *device_by_eid(void)
{
    uint32_t count = 0;
    urma_device_t *dev, *any = device_of("");
    urma_eid_info_t *list = urma_get_eid_list(any, &count);

    CHECK(list != NULL);
    CHECK((dev = urma_get_device_by_eid(list[0].eid, URMA_TRANSPORT_UB)) != NULL);
    urma_free_eid_list(list);
    return dev;
}

static void control(urma_context_t *ctx, uint32_t opcode, void *value, uint32_t len)
{
    urma_user_ctl_in_t in = {(uint64_t)(uintptr_t)value, len, opcode};
    urma_user_ctl_out_t out = {0};

    CHECK(urma_user_ctl(ctx, &in, &out) == URMA_SUCCESS);
}

static void set_mode(urma_context_t *ctx, bondp_bonding_mode_t mode)
{
    bondp_set_bonding_mode_in_t wish = {mode, BONDP_BONDING_LEVEL_PORT};

    control(ctx, BONDP_USER_CTL_SET_BONDING_MODE, &wish, sizeof(wish));
    CHECK((bondp_bonding_mode_t)ctx->aggr_mode == mode);
}

/* The priority that the device has for one kind of path. */
static uint8_t priority_for(const urma_device_attr_t *attr, urma_tp_type_t tp_type)
{
    union urma_tp_type_en wanted = {0};

    wanted.bs.rtp = tp_type == URMA_RTP;
    wanted.bs.ctp = tp_type == URMA_CTP;
    for (uint8_t i = 0; i < URMA_MAX_PRIORITY_CNT; i++) {
        if (attr->dev_cap.priority_info[i].tp_type.value == wanted.value) {
            return i;
        }
    }
    fprintf(stderr, "no priority is for this kind of path alone\n");
    exit(1);
}

static void open_queues(struct peer *peer, const urma_device_attr_t *attr, const struct wish *wish)
{
    urma_jfc_cfg_t jfc_cfg = {.depth = wish->jfc_depth};
    urma_jfr_cfg_t jfr_cfg = {.depth = wish->jfr_depth, .max_sge = 1, .trans_mode = wish->mode};
    urma_jetty_cfg_t cfg = {0};

    CHECK((peer->jfce = urma_create_jfce(peer->ctx)) != NULL);
    jfc_cfg.jfce = peer->jfce;
    CHECK((peer->jfc = urma_create_jfc(peer->ctx, &jfc_cfg)) != NULL);
    CHECK(urma_rearm_jfc(peer->jfc, false) == URMA_SUCCESS);
    jfr_cfg.min_rnr_timer = URMA_TYPICAL_MIN_RNR_TIMER;
    jfr_cfg.jfc = peer->jfc;
    jfr_cfg.flag.bs.token_policy = wish->token_policy & 7;
    jfr_cfg.token_value.token = TOKEN;
    CHECK((peer->jfr = urma_create_jfr(peer->ctx, &jfr_cfg)) != NULL);
    cfg.flag.bs.share_jfr = URMA_SHARE_JFR;
    cfg.shared.jfr = peer->jfr;
    cfg.shared.jfc = peer->jfc;
    cfg.jfs_cfg.depth = wish->jfs_depth;
    cfg.jfs_cfg.trans_mode = wish->mode;
    cfg.jfs_cfg.priority = priority_for(attr, wish->tp_type);
    cfg.jfs_cfg.max_sge = wish->send_pieces;
    cfg.jfs_cfg.rnr_retry = URMA_TYPICAL_RNR_RETRY;
    cfg.jfs_cfg.err_timeout = wish->mode == URMA_TM_RC ? URMA_TYPICAL_ERR_TIMEOUT : 0;
    cfg.jfs_cfg.jfc = peer->jfc;
    cfg.jfs_cfg.flag.bs.multi_path = 1;
    CHECK((peer->jetty = urma_create_jetty(peer->ctx, &cfg)) != NULL);
}

static void open_arena(struct peer *peer, const struct wish *wish)
{
    urma_seg_cfg_t cfg = {.len = ARENA, .token_value = {TOKEN}};
    int file = wish->is_shared_memory ? memfd_create("arena", 0) : -1;
    int kind = wish->is_shared_memory ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;

    CHECK(!wish->is_shared_memory || (file >= 0 && ftruncate(file, ARENA) == 0));
    peer->arena = mmap(NULL, ARENA, PROT_READ | PROT_WRITE, kind, file, 0);
    CHECK(peer->arena != MAP_FAILED);
    if (file >= 0) {
        close(file);
    }
    cfg.va = (uint64_t)(uintptr_t)peer->arena;
    cfg.flag.bs.token_policy = wish->token_policy & 7;
    cfg.flag.bs.cacheable = URMA_NON_CACHEABLE;
    cfg.flag.bs.access = URMA_ACCESS_READ | URMA_ACCESS_WRITE | URMA_ACCESS_ATOMIC;
    CHECK((peer->seg = urma_register_seg(peer->ctx, &cfg)) != NULL);
}

/* Clients send the public members, and build the structs again at the other side. */
static void import(struct peer *peer, const struct peer *from, const struct wish *wish)
{
    urma_rjetty_t jetty = {0};
    urma_seg_t seg = from->seg->seg;
    urma_import_seg_flag_t flag = {0};
    urma_token_t token = {TOKEN};

    jetty.jetty_id = from->jetty->jetty_id;
    jetty.trans_mode = wish->mode;
    jetty.type = URMA_JETTY;
    jetty.tp_type = wish->tp_type;
    jetty.flag.bs.token_policy = wish->token_policy & 7;
    CHECK((peer->target = urma_import_jetty(peer->ctx, &jetty, &token)) != NULL);
    flag.bs.access = URMA_ACCESS_READ | URMA_ACCESS_WRITE | URMA_ACCESS_ATOMIC;
    flag.bs.mapping = URMA_SEG_NOMAP;
    CHECK((peer->far = urma_import_seg(peer->ctx, &seg, &token, 0, flag)) != NULL);
    if (wish->mode == URMA_TM_RC) {
        CHECK(urma_bind_jetty(peer->jetty, peer->target) == URMA_SUCCESS);
    }
}

static void close_peer(struct peer *peer, const struct wish *wish)
{
    urma_jetty_attr_t attr = {.mask = JETTY_STATE, .state = URMA_JETTY_STATE_ERROR};

    CHECK(urma_modify_jetty(peer->jetty, &attr) == URMA_SUCCESS);
    if (wish->mode == URMA_TM_RC) {
        CHECK(urma_unbind_jetty(peer->jetty) == URMA_SUCCESS);
    }
    CHECK(urma_unimport_seg(peer->far) == URMA_SUCCESS);
    CHECK(urma_unimport_jetty(peer->target) == URMA_SUCCESS);
    CHECK(urma_delete_jetty(peer->jetty) == URMA_SUCCESS);
    CHECK(urma_delete_jfr(peer->jfr) == URMA_SUCCESS);
    CHECK(urma_delete_jfc(peer->jfc) == URMA_SUCCESS);
    CHECK(urma_delete_jfce(peer->jfce) == URMA_SUCCESS);
    CHECK(urma_unregister_seg(peer->seg) == URMA_SUCCESS);
    CHECK(urma_delete_context(peer->ctx) == URMA_SUCCESS);
    CHECK(munmap(peer->arena, ARENA) == 0);
}

/* Sleeps until the descriptor says so, takes the event, the completion, and arms again. */
static urma_cr_t next_by_event(struct peer *peer, int epoll)
{
    urma_cr_t cr;
    urma_jfc_t *jfc = NULL;
    uint32_t events = 1;
    int count = 0;

    while ((count = urma_poll_jfc(peer->jfc, 1, &cr)) == 0) {
        if (epoll >= 0) {
            struct epoll_event event;
            CHECK(epoll_wait(epoll, &event, 1, LIMIT_MS) == 1);
        } else {
            struct pollfd fd = {peer->jfce->fd, POLLIN, 0};
            CHECK(poll(&fd, 1, LIMIT_MS) == 1);
        }
        if (urma_wait_jfc(peer->jfce, 1, 0, &jfc) == 1) {
            CHECK(jfc == peer->jfc);
            urma_ack_jfc(&jfc, &events, 1);
        }
        CHECK(urma_rearm_jfc(peer->jfc, false) == URMA_SUCCESS);
    }
    CHECK(count == 1 && cr.status == URMA_CR_SUCCESS);
    return cr;
}

static urma_sge_t piece(urma_target_seg_t *seg, size_t offset, uint32_t len)
{
    urma_sge_t sge = {.addr = seg->seg.ubva.va + offset, .len = len, .tseg = seg};

    return sge;
}

static void send_block(struct peer *from, uint32_t len)
{
    urma_sge_t sge = piece(from->seg, 0, len);
    urma_jfs_wr_t wr = {.opcode = URMA_OPC_SEND, .tjetty = from->target}, *bad = NULL;

    wr.flag.bs.complete_enable = 1;
    wr.flag.bs.solicited_enable = 1;
    wr.send.src.sge = &sge;
    wr.send.src.num_sge = 1;
    CHECK(urma_post_jetty_send_wr(from->jetty, &wr, &bad) == URMA_SUCCESS);
}

static void receive_block(struct peer *at, uint32_t len)
{
    urma_sge_t sge = piece(at->seg, ARENA / 2, len);
    urma_jfr_wr_t wr = {.src = {.sge = &sge, .num_sge = 1}}, *bad = NULL;

    CHECK(urma_post_jetty_recv_wr(at->jetty, &wr, &bad) == URMA_SUCCESS);
}

/* A message there and one back, some times; both ends sleep. */
static void exchange(struct peer ends[2], int epolls[2], uint32_t len)
{
    for (uint32_t round = 0; round < 200; round++) {
        struct peer *from = &ends[round % 2], *to = &ends[1 - round % 2];

        memset(from->arena, (int)(round % 251), len);
        receive_block(to, len);
        send_block(from, len);
        urma_cr_t cr = next_by_event(to, epolls[1 - round % 2]);
        CHECK(cr.flag.bs.s_r == 1 && cr.completion_len == len);
        CHECK(memcmp(to->arena + ARENA / 2, from->arena, len) == 0);
        (void)next_by_event(from, epolls[round % 2]);
    }
}

/* One request of either direction between the two arenas. */
static void post_rw(struct peer *from, urma_opcode_t opcode, size_t offset, uint64_t user_ctx, int is_extended)
{
    urma_sge_t here = piece(from->seg, offset, PIECE), there = piece(from->far, offset, PIECE);
    bondp_jfs_wr_t wr = {.base = {.opcode = opcode, .tjetty = from->target, .user_ctx = user_ctx}};
    urma_jfs_wr_t *bad = NULL;
    int is_read = opcode == URMA_OPC_READ;

    wr.base.flag.bs.complete_enable = 1;
    wr.base.flag.bs.has_drv_ext = is_extended ? 1 : 0;
    wr.base.rw.src.sge = is_read ? &there : &here;
    wr.base.rw.dst.sge = is_read ? &here : &there;
    wr.base.rw.src.num_sge = wr.base.rw.dst.num_sge = 1;
    CHECK(urma_post_jetty_send_wr(from->jetty, &wr.base, &bad) == URMA_SUCCESS);
}

/* One WRITE of pieces of a block each, which lie apart here and together there. */
static void gather(struct peer *from, const struct peer *to)
{
    urma_sge_t here[PIECES], there = piece(from->far, 0, PIECES * BLOCK);
    urma_jfs_wr_t wr = {.opcode = URMA_OPC_WRITE, .tjetty = from->target}, *bad = NULL;

    for (int i = 0; i < PIECES; i++) {
        here[i] = piece(from->seg, (size_t)(PIECES - 1 - i) * PIECE, BLOCK);
    }
    wr.flag.bs.complete_enable = 1;
    wr.rw.src.sge = here;
    wr.rw.src.num_sge = PIECES;
    wr.rw.dst.sge = &there;
    wr.rw.dst.num_sge = 1;
    CHECK(urma_post_jetty_send_wr(from->jetty, &wr, &bad) == URMA_SUCCESS);
    (void)next_by_event(from, -1);
    for (int i = 0; i < PIECES; i++) {
        CHECK(memcmp(to->arena + i * BLOCK, from->arena + (PIECES - 1 - i) * PIECE, BLOCK) == 0);
    }
}

static void fill(uint8_t *arena, unsigned seed)
{
    for (size_t i = 0; i < ARENA; i++) {
        arena[i] = (uint8_t)(i * 7 + i / 251 + seed);
    }
}

/* Each piece is a request of its own with an event; a thread of the client sleeps for them. */
static void put_and_get(struct peer ends[2], const struct wish *wish)
{
    urma_token_t token = {TOKEN};
    urma_rjetty_t plain = {0};
    bondp_rjetty_t remote;

    /* The target is imported again with the jetty that will use it behind it. */
    memset(&remote, 0, sizeof(remote));
    plain.jetty_id = ends[1].jetty->jetty_id;
    plain.trans_mode = wish->mode;
    plain.type = URMA_JETTY;
    plain.tp_type = wish->tp_type;
    remote.base = plain;
    remote.base.flag.bs.has_drv_ext = 1;
    remote.jetty = ends[0].jetty;
    CHECK(urma_unimport_jetty(ends[0].target) == URMA_SUCCESS);
    CHECK((ends[0].target = urma_import_jetty(ends[0].ctx, &remote.base, &token)) != NULL);
    fill(ends[0].arena, 1);
    for (uint64_t i = 0; i < BATCH; i++) {
        post_rw(&ends[0], URMA_OPC_WRITE, i * PIECE, i, 1);
        CHECK(next_by_event(&ends[0], -1).user_ctx == i);
    }
    CHECK(memcmp(ends[0].arena, ends[1].arena, ARENA) == 0);
    gather(&ends[0], &ends[1]);
    fill(ends[1].arena, 2);
    for (uint64_t i = 0; i < BATCH; i++) {
        post_rw(&ends[0], URMA_OPC_READ, i * PIECE, i, 0);
        CHECK(next_by_event(&ends[0], -1).user_ctx == i);
    }
    CHECK(memcmp(ends[0].arena, ends[1].arena, ARENA) == 0);
}

/* Batches, of which every completion is polled before the next. */
static void transfer(struct peer ends[2])
{
    for (unsigned round = 0; round < 8; round++) {
        fill(ends[round % 2].arena, round);
        for (uint64_t i = 0; i < BATCH; i++) {
            post_rw(&ends[0], round % 2 ? URMA_OPC_READ : URMA_OPC_WRITE, i * PIECE, i, 0);
        }
        for (int done = 0; done < BATCH; done++) {
            CHECK(end_wait(ends[0].jfc).status == URMA_CR_SUCCESS);
        }
        CHECK(memcmp(ends[0].arena, ends[1].arena, ARENA) == 0);
    }
}

static struct wish wish_of(const char *who, const urma_device_attr_t *attr)
{
    struct wish wish = {URMA_TM_RM, URMA_CTP, 4096, 128, 64, 1, 0, URMA_TOKEN_NONE};

    if (strcmp(who, "yuanrong") == 0) {
        wish.jfc_depth = attr->dev_cap.max_jfc_depth;
        wish.send_pieces = PIECES;
        wish.is_shared_memory = 1;
    } else if (strcmp(who, "hcom") == 0) {
        wish.mode = URMA_TM_RC;
        wish.tp_type = URMA_RTP;
        wish.send_pieces = 4;
    } else if (strcmp(who, "verbs") == 0) {
        wish.mode = URMA_TM_RC;
        wish.tp_type = URMA_RTP;
        wish.token_policy = URMA_TOKEN_PLAIN_TEXT;
    }
    return wish;
}

int main(int argc, char **argv)
{
    const char *who = argc > 1 ? argv[1] : "";
    int is_bonding = strcmp(who, "yuanrong") == 0 || strcmp(who, "hcom") == 0;
    int epolls[2] = {-1, -1};
    struct peer ends[2];
    urma_device_attr_t attr;

    CHECK(urma_init(NULL) == URMA_SUCCESS);
    urma_device_t *dev = device_of(is_bonding ? "bonding_dev_" : "udma");
    if (argc > 2) {
        dev = strcmp(argv[2], "eid") == 0 ? device_by_eid() : urma_get_device_by_name(argv[2]);
        CHECK(dev != NULL);
    }
    char name[URMA_MAX_NAME];
    snprintf(name, sizeof(name), "%s", dev->name);
    CHECK(urma_query_device(dev, &attr) == URMA_SUCCESS);
    struct wish wish = wish_of(who, &attr);
    memset(ends, 0, sizeof(ends));
    for (int i = 0; i < 2; i++) {
        uint32_t index = is_bonding ? eid_index_of(dev) : 0;

        CHECK((ends[i].ctx = urma_create_context(dev, index)) != NULL);
        if (strcmp(who, "yuanrong") == 0) {
            control(ends[i].ctx, BONDP_USER_CTL_DISABLE_MSN, NULL, 0);
            set_mode(ends[i].ctx, BONDP_BONDING_MODE_BALANCE);
        } else if (strcmp(who, "hcom") == 0) {
            set_mode(ends[i].ctx, BONDP_BONDING_MODE_ACTIVE_BACKUP);
            control(ends[i].ctx, BONDP_USER_CTL_ENABLE_SEG_CACHE, NULL, 0);
        }
        open_queues(&ends[i], &attr, &wish);
        open_arena(&ends[i], &wish);
        if (strcmp(who, "brpc") == 0) {
            struct epoll_event event = {.events = EPOLLIN | EPOLLET};

            CHECK((epolls[i] = epoll_create1(0)) >= 0);
            CHECK(epoll_ctl(epolls[i], EPOLL_CTL_ADD, ends[i].jfce->fd, &event) == 0);
        }
    }
    for (int i = 0; i < 2; i++) {
        import(&ends[i], &ends[1 - i], &wish);
    }
    if (strcmp(who, "yuanrong") == 0) {
        put_and_get(ends, &wish);
    } else if (strcmp(who, "tent") == 0) {
        transfer(ends);
    } else {
        exchange(ends, epolls, BLOCK);
    }
    for (int i = 0; i < 2; i++) {
        close_peer(&ends[i], &wish);
        if (epolls[i] >= 0) {
            close(epolls[i]);
        }
    }
    CHECK(urma_uninit() == URMA_SUCCESS);
    printf("%s is served by %s\n", who, name);
    return 0;
}
