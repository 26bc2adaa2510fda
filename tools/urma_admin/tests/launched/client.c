/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A program that believes in a device only where the kernel's class has a folder for it: it lists
 * devices, resolves the folder of each, reads its files, and moves data over it.
 *
 * With --exit N it ends so; with --signal it is ended by SIGTERM.
 */
#include "end.h"

#include <dirent.h>
#include <limits.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#define CLASS "/sys/class/ubcore"

/* The value of a file of a device, or an end of the program. */
static const char *value(const char *device, const char *file) {
    static char text[64];
    char path[PATH_MAX];
    snprintf(path, sizeof path, CLASS "/%s/%s", device, file);
    FILE *in = fopen(path, "r");
    need(in != NULL, path);
    need(fgets(text, sizeof text, in) != NULL, path);
    fclose(in);
    text[strcspn(text, "\n")] = 0;
    return text;
}

static void is(const char *device, const char *file, uint64_t right) {
    const char *text = value(device, file);
    char *end;
    uint64_t found = strtoull(text, &end, 0);
    if (found != right || *end != 0 || end == text) {
        fprintf(stderr, "%s: %s, the library says %llu\n", file, text, (unsigned long long)right);
        exit(1);
    }
}

/* What the files say is what the library says. */
static void compare(urma_device_t *dev) {
    const char *name = dev->name;
    urma_device_attr_t attr;
    need(urma_query_device(dev, &attr) == URMA_SUCCESS, "urma_query_device");
    const urma_device_cap_t *cap = &attr.dev_cap;
    need(strcmp(value(name, "ubdev"), name) == 0, "ubdev");
    need(strlen(value(name, "driver_name")) != 0, "driver_name");
    need(strlen(value(name, "eids/eid0")) == 39, "eids/eid0");
    need(strtoul(value(name, "device/vendor"), NULL, 0) != 0, "device/vendor");
    need(strtoul(value(name, "device/device"), NULL, 0) != 0, "device/device");
    is(name, "transport_type", dev->type);
    is(name, "max_jfc", cap->max_jfc);
    is(name, "max_jfs", cap->max_jfs);
    is(name, "max_jfr", cap->max_jfr);
    is(name, "max_jetty", cap->max_jetty);
    is(name, "max_jetty_grp", cap->max_jetty_grp);
    is(name, "max_jetty_in_jetty_grp", cap->max_jetty_in_jetty_grp);
    is(name, "max_jfc_depth", cap->max_jfc_depth);
    is(name, "max_jfs_depth", cap->max_jfs_depth);
    is(name, "max_jfr_depth", cap->max_jfr_depth);
    is(name, "max_jfs_inline_size", cap->max_jfs_inline_len);
    is(name, "max_jfs_sge", cap->max_jfs_sge);
    is(name, "max_jfs_rsge", cap->max_jfs_rsge);
    is(name, "max_jfr_sge", cap->max_jfr_sge);
    is(name, "max_msg_size", cap->max_msg_size);
    is(name, "max_read_size", cap->max_read_size);
    is(name, "max_write_size", cap->max_write_size);
    is(name, "max_cas_size", cap->max_cas_size);
    is(name, "max_swap_size", cap->max_swap_size);
    is(name, "max_fetch_and_add_size", cap->max_fetch_and_add_size);
    is(name, "max_fetch_and_sub_size", cap->max_fetch_and_sub_size);
    is(name, "max_fetch_and_and_size", cap->max_fetch_and_and_size);
    is(name, "max_fetch_and_or_size", cap->max_fetch_and_or_size);
    is(name, "max_fetch_and_xor_size", cap->max_fetch_and_xor_size);
    is(name, "feature", cap->feature.value);
    is(name, "atomic_feat", cap->atomic_feat.value);
    is(name, "trans_mode", cap->trans_mode);
    is(name, "congestion_ctrl_alg", cap->congestion_ctrl_alg);
    is(name, "ceq_cnt", cap->ceq_cnt);
    is(name, "max_tp_in_tpg", cap->max_tp_in_tpg);
    is(name, "max_eid_cnt", cap->max_eid_cnt);
    is(name, "max_netaddr_cnt", cap->max_netaddr_cnt);
    is(name, "max_oor_cnt", cap->max_oor_cnt);
    is(name, "mn", cap->mn);
    is(name, "page_size_cap", cap->page_size_cap);
    is(name, "port_count", attr.port_cnt);
    is(name, "port0/max_mtu", attr.port_attr[0].max_mtu);
    is(name, "port0/state", attr.port_attr[0].state);
    is(name, "port0/active_width", attr.port_attr[0].active_width);
    is(name, "port0/active_speed", attr.port_attr[0].active_speed);
    is(name, "port0/active_mtu", attr.port_attr[0].active_mtu);
    char reserved[64];
    snprintf(reserved, sizeof reserved, "%u-%u", attr.reserved_jetty_id_min,
             attr.reserved_jetty_id_max);
    need(strcmp(value(name, "reserved_jetty_id"), reserved) == 0, "reserved_jetty_id");
}

/* The other classes are as before: each network device of the kernel resolves. */
static void look_at_other_classes(void) {
    char path[PATH_MAX], resolved[PATH_MAX];
    DIR *net = opendir("/sys/class/net");
    need(net != NULL, "/sys/class/net");
    int devices = 0;
    for (struct dirent *entry; (entry = readdir(net)) != NULL;) {
        snprintf(path, sizeof path, "/sys/class/net/%s", entry->d_name);
        struct stat about;
        need(lstat(path, &about) == 0, path);
        if (S_ISLNK(about.st_mode)) {
            need(realpath(path, resolved) != NULL, path);
            need(strncmp(resolved, "/sys/devices/", 13) == 0, resolved);
            devices++;
        }
    }
    closedir(net);
    need(devices != 0, "there is a network device at least: lo");
    need(mkdir(CLASS "/more", 0755) != 0, "the class is read-only");
}

static void move_data(char *name) {
    (void)name;
    end_t here, there;
    end_open(&here);
    end_open(&there);
    card_t card = end_card(&there);
    urma_target_jetty_t *to_there = end_import_jetty(&here, &card);
    urma_target_seg_t *far = end_import_seg(&here, &card);
    for (uint32_t i = 0; i < 512; i++) {
        here.memory[i] = (unsigned char)(i * 7 + 1);
    }
    urma_sge_t src = sge(here.seg, 0, 512);
    urma_sge_t dst = sge(far, 1024, 512);
    urma_jfs_wr_t wr = request(URMA_OPC_WRITE, to_there, 1);
    wr.rw.src.sge = &src;
    wr.rw.src.num_sge = 1;
    wr.rw.dst.sge = &dst;
    wr.rw.dst.num_sge = 1;
    post(&here, &wr);
    end_wait(here.jfc);
    need(memcmp(there.memory + 1024, here.memory, 512) == 0, "the bytes written");
    need(urma_unimport_seg(far) == URMA_SUCCESS, "urma_unimport_seg");
    need(urma_unimport_jetty(to_there) == URMA_SUCCESS, "urma_unimport_jetty");
    end_close(&here);
    end_close(&there);
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "--exit") == 0) {
        return atoi(argv[2]);
    }
    if (argc == 2 && strcmp(argv[1], "--signal") == 0) {
        return raise(SIGTERM);
    }
    need(urma_init(NULL) == URMA_SUCCESS, "urma_init");
    int count = 0;
    urma_device_t **devices = urma_get_device_list(&count);
    need(devices != NULL && count > 0, "urma_get_device_list");
    for (int i = 0; i < count; i++) {
        char path[PATH_MAX], resolved[PATH_MAX];
        snprintf(path, sizeof path, CLASS "/%s", devices[i]->name);
        need(realpath(path, resolved) != NULL, path);
        compare(devices[i]);
        printf("device %s user %u\n", devices[i]->name, (unsigned)getuid());
    }
    uint32_t eids = 0;
    urma_eid_info_t *eid = urma_get_eid_list(devices[0], &eids);
    need(eid != NULL && eids > 0, "urma_get_eid_list");
    urma_device_t *found = urma_get_device_by_eid(eid[0].eid, URMA_TRANSPORT_UB);
    need(found != NULL, "urma_get_device_by_eid");
    printf("by EID %s\n", found->name);
    urma_free_eid_list(eid);
    urma_free_device_list(devices);
    look_at_other_classes();
    char name[] = "udma0";
    move_data(name);
    need(urma_uninit() == URMA_SUCCESS, "urma_uninit");
    printf("release %d moved data\n", URMA_ABI_PROFILE);
    return 0;
}
