/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A library that links liburma alone and takes functions that it finds through it, as some of UMDK's do (PART), and the
 * program that loads it.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#ifdef PART

#include <urma_api.h>

double get_cpu_mhz(bool is_quiet);
int ub_str_to_u32(const char *text, uint32_t *out);
int part(void);

int part(void)
{
    uint32_t number = 0;

    if (urma_init(NULL) != URMA_SUCCESS || urma_uninit() != URMA_SUCCESS) {
        return 1;
    }
    return ub_str_to_u32("4791", &number) == 0 && number == 4791 && get_cpu_mhz(true) > 0 ? 0 : 2;
}

#else

#include <dlfcn.h>

int main(int argc, char **argv)
{
    void *library = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    int (*part)(void) = NULL;

    if (library == NULL) {
        fprintf(stderr, "%s\n", argc == 2 ? dlerror() : "alone LIBRARY");
        return 1;
    }
    *(void **)&part = dlsym(library, "part");
    if (part == NULL || part() != 0) {
        return 1;
    }
    printf("found\n");
    return 0;
}

#endif
