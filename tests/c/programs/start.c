/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* From urma_init to the first context, once, in a process of its own: microseconds. */
#define _GNU_SOURCE
#include <stdio.h>
#include <time.h>

#include <ub/umdk/urma/urma_api.h>

static double microseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

int main(void)
{
    char name[] = "udma0";
    double start = microseconds();
    if (urma_init(NULL) != URMA_SUCCESS) {
        return 1;
    }
    urma_device_t *dev = urma_get_device_by_name(name);
    urma_context_t *ctx = dev != NULL ? urma_create_context(dev, 0) : NULL;
    double end = microseconds();
    if (ctx == NULL) {
        return 1;
    }
    printf("%.1f\n", end - start);
    urma_delete_context(ctx);
    return urma_uninit() == URMA_SUCCESS ? 0 : 1;
}
