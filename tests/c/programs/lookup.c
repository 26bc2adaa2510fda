/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A program that links no library: it loads one and looks its functions up, as some clients do.
 * Says how many bytes urma_query_device writes, which tells the releases apart.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define ROOM 4096
#define FILL 0xee

/* As a program declares them that has no header. */
static int (*init)(void *conf);
static void *(*device_named)(char *name);
static int (*query)(void *device, void *attributes);

int main(int count, char **args) {
    unsigned char place[ROOM];
    char name[] = "udma0";
    size_t len = ROOM;
    void *library = count > 1 ? dlopen(args[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (library == NULL) {
        return 2;
    }
    *(void **)&init = dlsym(library, "urma_init");
    *(void **)&device_named = dlsym(library, "urma_get_device_by_name");
    *(void **)&query = dlsym(library, "urma_query_device");
    memset(place, FILL, sizeof place);
    if (init(NULL) != 0 || query(device_named(name), place) != 0) {
        return 1;
    }
    while (len > 0 && place[len - 1] == FILL) {
        len--;
    }
    printf("%zu bytes\n", len);
    return 0;
}
