/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Every exported function as a row of a table, which the test makes from the installed headers
 * (rows.h), and how to call one with words for arguments.
 */
#ifndef TABLE_H
#define TABLE_H

#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>

enum kind { CTX, JFCE, JFC, JFS, JFR, JETTY, GRP, TARGET, SEG, TOKEN_ID, NOTIFIER, DEVICE, KINDS,
            POINTER, BYTES, NUMBER, EID, FUNCTION };
enum { ARGS = 12, WORDS = 14, STATUS = 's', OBJECT = 'p', COUNT = 'i', NEGATIVE = 'n' };

struct arg {
    enum kind kind;
    const char *type, *name;
    bool own;      /* an object in its caller's memory, which the function fills in */
    bool optional; /* may be NULL */
};

struct row {
    const char *name;
    int answer;
    const char *type;
    int count;
    struct arg args[ARGS];
};

static const struct row rows[] = {
#include "rows.h"
};
enum { ROWS = sizeof rows / sizeof rows[0] };

typedef uintptr_t (*call_t)(uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t,
                            uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t,
                            uintptr_t, uintptr_t);

static call_t calls[ROWS];
/* How often each was called. */
static long asked[ROWS];

/* The name of the first function that the library lacks, or NULL. */
static inline const char *table_load(void)
{
    for (int index = 0; index < ROWS; index++) {
        *(void **)&calls[index] = dlsym(RTLD_DEFAULT, rows[index].name);
        if (calls[index] == NULL) {
            return rows[index].name;
        }
    }
    return NULL;
}

static inline uintptr_t table_call(int index, const uintptr_t *a)
{
    __atomic_fetch_add(&asked[index], 1, __ATOMIC_RELAXED);
    return calls[index](a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11],
                        a[12], a[13]);
}

#endif
