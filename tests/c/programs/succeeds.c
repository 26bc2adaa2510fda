/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Calls that succeed, of functions that no other test program calls with success: commands for objects
 * in the program's memory, registration of a provider, text, bits, the fabric service.
 */
#define _GNU_SOURCE
#include <unistd.h>

#include "end.h"

#include <ub/umdk/urma/urma_private.h>
#include <ub/umdk/urma/urma_provider.h>
#include <ub/umdk/urma/uvs_api.h>

#include "undeclared.h"

/* In no header either; not called with bad arguments (table.rs, LEFT_OUT). */
double get_cpu_mhz(bool show_warning);
unsigned long ub_find_first_bit(const unsigned long *bits, unsigned long size);
unsigned long ub_find_first_zero_bit(const unsigned long *bits, unsigned long size);
unsigned long ub_find_next_bit(const unsigned long *bits, unsigned long size, unsigned long from);
unsigned long ub_find_next_zero_bit(const unsigned long *bits, unsigned long size, unsigned long from);
uint32_t ub_hash_bytes(const void *bytes, uint32_t count, uint32_t basis);
struct map {
    uint32_t count, mask;
    void **bucket;
};
struct node {
    struct node *next;
    uint32_t hash;
};
void ub_hmap_remove(struct map *map, struct node *node);

struct own {
    urma_context_t ctx;
    urma_jfce_t jfce;
    urma_jfc_t jfc, more[2];
    urma_jfr_t jfr, jfrs[1];
    urma_jfs_t jfs;
    urma_jetty_t jetty, jetties[1];
    urma_jetty_grp_t grp;
    urma_token_id_t token_id;
    urma_target_jetty_t target;
};

static struct own own;
static urma_jfc_cfg_t jfc_cfg;
static urma_jfr_cfg_t jfr_cfg;
static urma_jfs_cfg_t jfs_cfg;

static void completions(void)
{
    urma_jfc_attr_t attr = {.mask = JFC_MODERATE_COUNT, .moderate_count = 1};
    uint32_t depth = 0, events[1] = {1};
    urma_jfc_t *list[2] = {&own.more[0], &own.more[1]}, *bad = NULL, *ready[1];

    own.jfce.urma_ctx = &own.ctx;
    own.jfce.fd = urma_cmd_create_jfce(&own.ctx);
    jfc_cfg.depth = 32;
    jfc_cfg.jfce = &own.jfce;
    CHECK(urma_cmd_create_jfc(&own.ctx, &own.jfc, &jfc_cfg, NULL) == 0);
    CHECK(urma_cmd_modify_jfc(&own.jfc, &attr, NULL) == 0);
    CHECK(urma_cmd_wait_jfc(own.jfce.fd, 1, 0, ready) == 0);
    ready[0] = &own.jfc;
    events[0] = 0;
    urma_cmd_ack_jfc(ready, events, 1);
    CHECK(urma_cmd_create_jfc(&own.ctx, &own.more[0], &jfc_cfg, NULL) == 0);
    CHECK(urma_cmd_create_jfc(&own.ctx, &own.more[1], &jfc_cfg, NULL) == 0);
    CHECK(urma_cmd_delete_jfc_batch(list, 2, &bad) == 0);
    memset(own.more, 0, sizeof(own.more));
    CHECK(urma_cmd_alloc_jfc(&own.ctx, &jfc_cfg, &own.more[0], NULL) == 0);
    depth = 16;
    CHECK(urma_cmd_set_jfc_opt(&own.more[0], URMA_JFC_DEPTH, &depth, 4, NULL) == 0);
    CHECK(urma_cmd_active_jfc(&own.more[0], NULL) == 0);
    CHECK(urma_cmd_get_jfc_opt(&own.more[0], URMA_JFC_DEPTH, &depth, 4, NULL) == 0);
    CHECK(urma_cmd_deactive_jfc(&own.more[0], NULL) == 0);
    CHECK(urma_cmd_free_jfc(&own.more[0], NULL) == 0);
}

static void receives(void)
{
    urma_jfr_t *list[1] = {&own.jfrs[0]}, *bad = NULL;
    uint32_t depth = 16;

    jfr_cfg.depth = 16;
    jfr_cfg.trans_mode = URMA_TM_RC;
    jfr_cfg.max_sge = 1;
    jfr_cfg.jfc = &own.jfc;
    CHECK(urma_cmd_create_jfr(&own.ctx, &own.jfrs[0], &jfr_cfg, NULL) == 0);
    CHECK(urma_cmd_delete_jfr_batch(list, 1, &bad) == 0);
    memset(own.jfrs, 0, sizeof(own.jfrs));
    CHECK(urma_cmd_create_jfr(&own.ctx, &own.jfrs[0], &jfr_cfg, NULL) == 0);
    CHECK(urma_cmd_delete_jfr(&own.jfrs[0]) == 0);
    memset(own.jfrs, 0, sizeof(own.jfrs));
    CHECK(urma_cmd_alloc_jfr(&own.ctx, &jfr_cfg, &own.jfrs[0], NULL) == 0);
    CHECK(urma_cmd_set_jfr_opt(&own.jfrs[0], URMA_JFR_DEPTH, &depth, 4, NULL) == 0);
    CHECK(urma_cmd_active_jfr(&own.jfrs[0], NULL) == 0);
    CHECK(urma_cmd_get_jfr_opt(&own.jfrs[0], URMA_JFR_DEPTH, &depth, 4, NULL) == 0);
    CHECK(urma_cmd_deactive_jfr(&own.jfrs[0], NULL) == 0);
    CHECK(urma_cmd_free_jfr(&own.jfrs[0], NULL) == 0);
    CHECK(urma_cmd_create_jfr(&own.ctx, &own.jfr, &jfr_cfg, NULL) == 0);
}

static void sends(void)
{
    urma_jfs_attr_t attr = {.mask = JFS_STATE, .state = URMA_JETTY_STATE_ERROR};
    uint32_t depth = 16;

    jfs_cfg.depth = 16;
    jfs_cfg.trans_mode = URMA_TM_RM;
    jfs_cfg.flag.bs.order_type = URMA_OI;
    jfs_cfg.max_sge = 1;
    jfs_cfg.max_rsge = 1;
    jfs_cfg.err_timeout = URMA_TYPICAL_ERR_TIMEOUT;
    jfs_cfg.jfc = &own.jfc;
    CHECK(urma_cmd_create_jfs(&own.ctx, &own.jfs, &jfs_cfg, NULL) == 0);
    CHECK(urma_cmd_modify_jfs(&own.jfs, &attr, NULL) == 0);
    CHECK(urma_cmd_query_jfs(&own.jfs, &jfs_cfg, &attr) == 0);
    CHECK(urma_cmd_delete_jfs(&own.jfs) == 0);
    memset(&own.jfs, 0, sizeof(own.jfs));
    jfs_cfg.jfc = &own.jfc;
    CHECK(urma_cmd_alloc_jfs(&own.ctx, &jfs_cfg, &own.jfs, NULL) == 0);
    CHECK(urma_cmd_set_jfs_opt(&own.jfs, URMA_JFS_DEPTH, &depth, 4, NULL) == 0);
    CHECK(urma_cmd_active_jfs(&own.jfs, NULL) == 0);
    CHECK(urma_cmd_get_jfs_opt(&own.jfs, URMA_JFS_DEPTH, &depth, 4, NULL) == 0);
    CHECK(urma_cmd_deactive_jfs(&own.jfs, NULL) == 0);
    CHECK(urma_cmd_free_jfs(&own.jfs, NULL) == 0);
    jfs_cfg.trans_mode = URMA_TM_RC;
    jfs_cfg.flag.bs.order_type = URMA_DEF_ORDER;
    jfs_cfg.jfc = &own.jfc;
}

static void connections(void)
{
    urma_jetty_cfg_t cfg = {0}, shown = {0};
    urma_jetty_attr_t attr = {0};
    urma_tjetty_cfg_t remote = {0};
    urma_bind_jetty_ex_cfg_t active;
    urma_jetty_t *list[1] = {&own.jetties[0]}, *bad = NULL;

    cfg.flag.bs.share_jfr = 1;
    cfg.jfs_cfg = jfs_cfg;
    cfg.shared.jfr = &own.jfr;
    CHECK(urma_cmd_create_jetty(&own.ctx, &own.jetty, &cfg, NULL) == 0);
    CHECK(urma_cmd_query_jetty(&own.jetty, &shown, &attr) == 0);
    remote.jetty_id = own.jetty.jetty_id;
    remote.trans_mode = URMA_TM_RC;
    remote.type = URMA_JETTY;
    CHECK(urma_cmd_import_jetty(&own.ctx, &own.target, &remote, NULL) == 0);
    CHECK(urma_cmd_bind_jetty(&own.jetty, &own.target, NULL) == 0);
    CHECK(urma_cmd_unbind_jetty(&own.jetty) == 0);
    memset(&active, 0, sizeof(active));
    CHECK(urma_cmd_bind_jetty_ex(&own.jetty, &own.target, &active, NULL) == 0);
    CHECK(urma_cmd_unbind_jetty_async(&own.jetty) == 0);
    CHECK(urma_cmd_unimport_jetty(&own.target) == 0);
    CHECK(urma_cmd_create_jetty(&own.ctx, &own.jetties[0], &cfg, NULL) == 0);
    attr.mask = JETTY_STATE;
    attr.state = URMA_JETTY_STATE_ERROR;
    CHECK(urma_cmd_modify_jetty(&own.jetties[0], &attr, NULL) == 0);
    CHECK(urma_cmd_delete_jetty_batch(list, 1, &bad) == 0);
    CHECK(urma_cmd_delete_jetty(&own.jetty) == 0);
    CHECK(urma_cmd_delete_jfr(&own.jfr) == 0);
    urma_jetty_grp_cfg_t grp_cfg = {.name = "members", .policy = URMA_JETTY_GRP_POLICY_RR};
    CHECK(urma_cmd_create_jetty_grp(&own.ctx, &own.grp, &grp_cfg, NULL) == 0);
    CHECK(urma_cmd_delete_jetty_grp(&own.grp) == 0);
}

static void commands(urma_device_t *dev)
{
    urma_context_cfg_t cfg = {.dev = dev};
    urma_token_id_flag_t flag = {0};

    CHECK(urma_cmd_create_context(&own.ctx, &cfg, NULL) == 0);
    completions();
    receives();
    sends();
    connections();
    CHECK(urma_cmd_alloc_token_id_ex(&own.ctx, &own.token_id, flag, NULL) == 0);
    CHECK(urma_cmd_free_token_id(&own.token_id) == 0);
    CHECK(urma_cmd_delete_jfc(&own.jfc) == 0);
    CHECK(urma_cmd_delete_context(&own.ctx) == 0);
    close(own.jfce.fd);
}

static urma_device_t made_device;
static urma_sysfs_dev_t made_sysfs;

static urma_status_t start(urma_init_attr_t *conf)
{
    (void)conf;
    strcpy(made_device.name, "made");
    made_device.type = URMA_TRANSPORT_UB;
    made_device.sysfs_dev = &made_sysfs;
    strcpy(made_sysfs.dev_name, "made");
    strcpy(made_sysfs.driver_name, "maker");
    made_sysfs.flag = URMA_SYSFS_DEV_FLAG_DRIVER_CREATED;
    made_sysfs.urma_device = &made_device;
    CHECK(urma_register_sysfs_dev(&made_sysfs) == 0);
    return URMA_SUCCESS;
}

static urma_status_t stop(void)
{
    return URMA_SUCCESS;
}

static urma_context_t *create_context(urma_device_t *dev, uint32_t eid_index, int dev_fd)
{
    (void)dev, (void)eid_index, (void)dev_fd;
    return NULL;
}

static urma_status_t delete_context(urma_context_t *ctx)
{
    (void)ctx;
    return URMA_SUCCESS;
}

static urma_provider_ops_t maker = {.name = "maker",
                                    .attr = {.version = 1, .transport_type = URMA_TRANSPORT_UB},
                                    .init = start,
                                    .uninit = stop,
                                    .create_context = create_context,
                                    .delete_context = delete_context};

static void text_and_bits(void)
{
    unsigned long bits[2] = {1, 0};
    bool truth;
    int number;
    uint8_t u8;
    uint16_t u16;
    uint32_t u32;
    uint64_t u64;
    char line[64];

    CHECK(get_cpu_mhz(false) > 0);
    void *huge = ub_hugemalloc(1, 0, NULL); /* NULL where no huge pages are set aside */
    CHECK(huge == NULL || ub_hugefree(huge, 1) == 0);
    CHECK(ub_str_to_bool("true", &truth) == 0 && ub_str_to_int("-7", &number) == 0);
    CHECK(ub_str_to_u8("7", &u8) == 0 && ub_str_to_u16("7", &u16) == 0);
    CHECK(ub_str_to_u32("7", &u32) == 0 && ub_str_to_u64("7", &u64) == 0);
    CHECK(ub_find_first_bit(bits, 128) == 0 && ub_find_first_zero_bit(bits, 128) == 1);
    CHECK(ub_find_next_bit(bits, 128, 1) == 128 && ub_find_next_zero_bit(bits, 128, 0) == 1);
    CHECK(ub_hash_bytes(line, 0, 1) == ub_hash_bytes(line, 0, 1));
    struct node node = {NULL, 0};
    void *bucket = &node;
    struct map map = {1, 0, &bucket};
    ub_hmap_remove(&map, &node);
    CHECK(map.count == 0);
    CHECK(urma_read_sysfs_file("/proc/sys/kernel", "ostype", line, sizeof(line)) > 0);
}

static void fabric(void)
{
    static struct urma_topo_map map;
    static uvs_main_ue_eid_batch_entry_t batch;
    static uvs_path_set_t set;
    uvs_eid_t one = {{1}}, two = {{2}}, found;
    uvs_main_ue_eid_entry_t entry = {one, two};
    char name[64];

    CHECK(uvs_create_agg_dev(&one, "bonding_dev_7") == 0);
    CHECK(uvs_get_device_name_by_eid(&one, name, sizeof(name)) == 0);
    CHECK(uvs_delete_agg_dev(&one) == 0);
    CHECK(uvs_insert_main_ue_eid(&entry) == 0 && uvs_lookup_main_ue_eid(&one, &found) == 0);
    CHECK(uvs_delete_main_ue_eid(&one) == 0);
    batch.main_ue_eid = two;
    batch.eid_num = 1;
    batch.eids[0] = one;
    CHECK(uvs_insert_main_ue_eid_batch(&batch) == 0 && uvs_flush_main_ue_eid() == 0);
    uint32_t size = sizeof(map.topo_infos[0]);
    CHECK(uvs_set_share_topo_info(map.topo_infos, size, 1) == 0);
    CHECK(uvs_set_topo_info(map.topo_infos, size, 1) == 0 && uvs_get_topo_info(&map) == 0);
    CHECK(uvs_get_path_set(&one, &two, UVS_RTP, true, &set) == 0);
}

int main(void)
{
    urma_context_t *ctx;
    urma_jfc_t *jfc;
    urma_jfs_t *jfs = NULL;
    urma_jfc_cfg_t plain = {.depth = 16};
    uint32_t depth = 16;

    CHECK(urma_register_provider_ops(&maker) == 0);
    CHECK(urma_init(NULL) == URMA_SUCCESS);
    urma_device_t *dev = urma_get_device_by_name((char *)"udma0");
    CHECK(dev != NULL);
    commands(dev);
    ctx = urma_create_context(dev, 0);
    CHECK(ctx != NULL && (jfc = urma_create_jfc(ctx, &plain)) != NULL);
    jfs_cfg.trans_mode = URMA_TM_RM;
    jfs_cfg.jfc = jfc;
    CHECK(urma_alloc_jfs(ctx, &jfs_cfg, &jfs) == URMA_SUCCESS);
    CHECK(urma_set_jfs_opt(jfs, URMA_JFS_DEPTH, &depth, 4) == URMA_SUCCESS);
    CHECK(urma_active_jfs(jfs) == URMA_SUCCESS && urma_deactive_jfs(jfs) == URMA_SUCCESS);
    CHECK(urma_free_jfs(jfs) == URMA_SUCCESS && urma_delete_jfc(jfc) == URMA_SUCCESS);
    CHECK(urma_delete_context(ctx) == URMA_SUCCESS && urma_uninit() == URMA_SUCCESS);
    CHECK(urma_unregister_provider_ops(&maker) == 0);
    text_and_bits();
    fabric();
    puts("succeeds: done");
    return 0;
}
