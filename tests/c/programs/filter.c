/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Whether two libraries, loaded by path, give the same function: filter FILTER LIBRARY FUNCTION. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    void *found[2] = {NULL, NULL};

    for (int i = 0; i < 2 && argc == 4; i++) {
        void *library = dlopen(argv[i + 1], RTLD_NOW | RTLD_LOCAL);
        if (library == NULL) {
            fprintf(stderr, "%s\n", dlerror());
            return 1;
        }
        found[i] = dlsym(library, argv[3]);
    }
    printf("%s\n", found[0] != NULL && found[0] == found[1] ? "the same" : "another");
    return 0;
}
