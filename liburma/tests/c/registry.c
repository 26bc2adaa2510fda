/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A provider inside of the program, registered before the library starts; and what registration
 * refuses. With the argument "secure", in a program that runs with more rights than its user: the
 * environment names no code to load.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <ub/umdk/urma/urma_private.h>

#include "end.h"

enum { PLACES = 32 };

static unsigned int started, stopped;
static urma_status_t answer = URMA_SUCCESS;
static urma_ops_t no_ops = {.name = "none"};
static int deleted;

static urma_status_t start(urma_init_attr_t *conf)
{
    (void)conf;
    started++;
    return answer;
}

static urma_status_t stop(void)
{
    stopped++;
    return answer;
}

static urma_context_t *create_context(urma_device_t *dev, uint32_t eid_index, int dev_fd)
{
    urma_context_t *ctx = calloc(1, sizeof(*ctx));
    (void)dev, (void)dev_fd;
    CHECK(ctx != NULL);
    /* Under its second EID it gives a context of no use. */
    ctx->ops = eid_index == 0 ? &no_ops : NULL;
    return ctx;
}

static urma_status_t delete_context(urma_context_t *ctx)
{
    deleted++;
    free(ctx);
    return URMA_SUCCESS;
}

/* Changes one limit, and leaves the others as the device's files say them. */
static urma_status_t query_device(urma_device_t *dev, urma_device_attr_t *attr)
{
    CHECK(strcmp(dev->name, "sample0") == 0 && attr->dev_cap.max_jfs_depth == 64);
    attr->dev_cap.max_jfc_depth = 32;
    return URMA_SUCCESS;
}

static urma_provider_ops_t mine = {
    .name = "sample",
    .init = start,
    .uninit = stop,
    .query_device = query_device,
    .create_context = create_context,
    .delete_context = delete_context,
};

static urma_device_t *sample0(void)
{
    return urma_get_device_by_name((char *)(uintptr_t)"sample0");
}

static void refused(void)
{
    static urma_provider_ops_t many[PLACES];
    urma_provider_ops_t nameless = mine;
    int count = 0;

    CHECK(urma_register_provider_ops(NULL) == -1 && errno == EINVAL);
    nameless.name = NULL;
    CHECK(urma_register_provider_ops(&nameless) == -1 && errno == EINVAL);
    CHECK(urma_register_provider_ops((urma_provider_ops_t *)((char *)&nameless + 1)) == -1);
    CHECK(urma_unregister_provider_ops(NULL) == -1 && errno == EINVAL);
    CHECK(urma_unregister_provider_ops(&nameless) == 0);
    CHECK(urma_register_provider_ops(&mine) == 0);
    CHECK(urma_register_provider_ops(&mine) == -1 && errno == EEXIST);
    for (count = 0; count < PLACES; count++) {
        many[count].name = "many";
        if (urma_register_provider_ops(&many[count]) != 0) {
            break;
        }
    }
    CHECK(count == PLACES - 1 && errno == ENOMEM);
    /* There is no place for the library's own: it does not start, and says so. */
    CHECK(urma_init(NULL) == URMA_ENOMEM && urma_get_device_list(&count) == NULL);
    for (count = 0; count < PLACES; count++) {
        CHECK(urma_unregister_provider_ops(&many[count]) == 0);
    }
    CHECK(urma_unregister_provider_ops(&mine) == 0);
}

static void made_devices(void)
{
    urma_device_t device = {0};
    urma_sysfs_dev_t sysfs = {0};

    CHECK(urma_register_sysfs_dev(NULL) == -1 && errno == EINVAL);
    strcpy(sysfs.driver_name, "sample");
    CHECK(urma_register_sysfs_dev(&sysfs) == -1 && errno == EINVAL);
    sysfs.urma_device = &device;
    strcpy(device.name, "sample0");
    CHECK(urma_register_sysfs_dev(&sysfs) == -1 && errno == EEXIST);
    strcpy(device.name, "new");
    strcpy(sysfs.driver_name, "udma");
    CHECK(urma_register_sysfs_dev(&sysfs) == -1 && errno == EINVAL);
}

static void life(void)
{
    urma_device_attr_t attr;

    CHECK(urma_register_provider_ops(&mine) == 0);
    CHECK(urma_init(NULL) == URMA_SUCCESS && started == 1);
    made_devices();
    urma_device_t *dev = sample0();
    CHECK(dev != NULL && dev->ops == &mine);
    CHECK(urma_query_device(dev, &attr) == URMA_SUCCESS && attr.dev_cap.max_jfc_depth == 32);
    CHECK(dev->sysfs_dev->dev_attr.dev_cap.max_jfc_depth == 32);
    CHECK(urma_create_context(dev, 2) == NULL && errno == EINVAL && deleted == 1);
    urma_context_t *ctx = urma_create_context(dev, 0);
    CHECK(ctx != NULL && ctx->dev == dev && atomic_load(&ctx->ref.atomic_cnt) == 1);
    CHECK(urma_create_jfce(ctx) == NULL && errno == EINVAL);
    CHECK(urma_delete_context(ctx) == URMA_SUCCESS && deleted == 2);

    /* Its uninit fails: the library says so, and stops. */
    answer = URMA_FAIL;
    CHECK(urma_uninit() == URMA_FAIL && stopped == 1);
    CHECK(urma_get_device_by_name((char *)(uintptr_t)"udma0") == NULL && errno == ENODEV);
    CHECK(urma_query_device(dev, &attr) == URMA_EINVAL);
    /* Its init fails: the library starts without it, and next time it is asked again. */
    CHECK(urma_init(NULL) == URMA_SUCCESS && started == 2 && sample0() == NULL);
    CHECK(urma_uninit() == URMA_SUCCESS && stopped == 1);
    answer = URMA_SUCCESS;
    CHECK(urma_init(NULL) == URMA_SUCCESS && started == 3 && (dev = sample0()) != NULL);

    /* It leaves while the library runs, and its devices with it. */
    CHECK(urma_unregister_provider_ops(&mine) == 0 && sample0() == NULL && stopped == 1);
    CHECK(urma_create_context(dev, 0) == NULL && errno == EINVAL);
    CHECK(urma_uninit() == URMA_SUCCESS && stopped == 1);
}

/* A device that the program builds itself, as tests of providers do: its file is opened and closed. */
static void built_device(const char *dir)
{
    static urma_device_t device;
    static urma_sysfs_dev_t sysfs;

    strcpy(device.name, "sample0");
    snprintf(device.path, sizeof(device.path), "%s/ubdev", dir);
    snprintf(sysfs.sysfs_path, sizeof(sysfs.sysfs_path), "%s", dir);
    sysfs.dev_attr.dev_cap.max_jfs_depth = 64;
    device.ops = &mine;
    CHECK(urma_create_context(&device, 0) == NULL && errno == EINVAL);
    device.sysfs_dev = &sysfs;
    urma_context_t *ctx = urma_create_context(&device, 0);
    CHECK(ctx != NULL && ctx->dev_fd >= 0 && fcntl(ctx->dev_fd, F_GETFD) == FD_CLOEXEC);
    int fd = ctx->dev_fd;
    CHECK(urma_delete_context(ctx) == URMA_SUCCESS && fcntl(fd, F_GETFD) == -1);
    snprintf(device.path, sizeof(device.path), "%s", dir);
    CHECK(urma_create_context(&device, 0) == NULL && errno == EIO);
    snprintf(device.path, sizeof(device.path), "%s/none", dir);
    CHECK((ctx = urma_create_context(&device, 0)) != NULL && ctx->dev_fd == -1);
    CHECK(urma_delete_context(ctx) == URMA_SUCCESS);
}

static void values(const char *dir)
{
    char value[8];

    CHECK(urma_read_sysfs_file(dir, "max_jfc_depth", value, sizeof(value)) == 2);
    CHECK(strcmp(value, "64") == 0);
    CHECK(urma_read_sysfs_file(dir, "max_jfc_depth", value, 2) == -1);
    CHECK(urma_read_sysfs_file(dir, "max_jfc_depth", value, 3) == 2);
    CHECK(urma_read_sysfs_file(dir, "max_jfc_depth", value, 0) == -1);
    CHECK(urma_read_sysfs_file(dir, "none", value, sizeof(value)) == -1);
    CHECK(urma_read_sysfs_file(NULL, "ubdev", value, sizeof(value)) == -1 && errno == EINVAL);
    CHECK(urma_read_sysfs_file(dir, NULL, value, sizeof(value)) == -1 && errno == EINVAL);
    CHECK(urma_read_sysfs_file(dir, "ubdev", NULL, sizeof(value)) == -1 && errno == EINVAL);
}

int main(int argc, char **argv)
{
    alarm(120);
    if (argc == 2 && strcmp(argv[1], "secure") == 0) {
        if (getauxval(AT_SECURE) == 0) {
            return 77;
        }
        CHECK(urma_init(NULL) == URMA_SUCCESS && sample0() == NULL && errno == ENODEV);
        CHECK(dlopen(getenv("SAMPLE"), RTLD_NOW | RTLD_NOLOAD) == NULL);
        CHECK(urma_uninit() == URMA_SUCCESS);
        return 0;
    }
    refused();
    life();
    built_device(argv[1]);
    values(argv[1]);
    puts("registry: done");
    return 0;
}
