/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Calls that succeed, of functions that no other test program calls with success: registration of a
 * provider, text, bits, the fabric service.
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
    urma_jfs_cfg_t jfs_cfg = {.depth = 16, .max_sge = 1, .max_rsge = 1, .trans_mode = URMA_TM_RM};
    uint32_t depth = 16;

    CHECK(urma_register_provider_ops(&maker) == 0);
    CHECK(urma_init(NULL) == URMA_SUCCESS);
    urma_device_t *dev = urma_get_device_by_name((char *)"udma0");
    CHECK(dev != NULL);
    ctx = urma_create_context(dev, 0);
    CHECK(ctx != NULL && (jfc = urma_create_jfc(ctx, &plain)) != NULL);
    jfs_cfg.flag.bs.order_type = URMA_OI;
    jfs_cfg.err_timeout = URMA_TYPICAL_ERR_TIMEOUT;
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
