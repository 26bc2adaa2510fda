/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A call of any function of the table, with arguments by their kinds and types, and the books on what
 * it made or ended.
 */
#ifndef FUZZ_ANY_H
#define FUZZ_ANY_H

#include <unistd.h>

#include "fuzz_world.h"

/* Counts a function that is called by name. */
static void count(const char *name)
{
    for (int index = 0; index < ROWS; index++) {
        if (strcmp(rows[index].name, name) == 0) {
            __atomic_fetch_add(&asked[index], 1, __ATOMIC_RELAXED);
        }
    }
}

#define DO(function, ...) (count(#function), function(__VA_ARGS__))


static bool begins(const char *name, const char *with)
{
    return strncmp(name, with, strlen(with)) == 0;
}

/* Called by name only: they take memory that only the library can have made, formats, or wait. */
static bool is_by_name(const char *name)
{
    static const char *const names[] = {
        "urma_init", "urma_uninit", "urma_free_device_list", "urma_free_eid_list",
        "urma_free_net_addr_list", "urma_put_rjetty", "urma_put_seg_ctx", "urma_init_jetty_cfg",
        "urma_uninit_jetty_cfg", "urma_log", "urma_log_loc", "urma_wait_jfc", "urma_ack_jfc",
        "urma_get_async_event", "urma_ack_async_event", "ub_hugemalloc", "ub_hugefree",
        "urma_get_rjetty", "urma_get_seg_ctx", "urma_get_device_list", "urma_get_eid_list",
        "urma_get_net_addr_list", "urma_log_set_level"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(names[i], name) == 0) {
            return true;
        }
    }
    return false;
}

static uintptr_t number(const struct arg *arg)
{
    if (strstr(arg->name, "time") != NULL || strcmp(arg->name, "addr") == 0) {
        return 0;
    }
    if (strstr(arg->name, "num") != NULL || strstr(arg->name, "cnt") != NULL) {
        return byte() % 3;
    }
    if (strstr(arg->name, "len") != NULL || strstr(arg->name, "size") != NULL) {
        return byte() % 9;
    }
    if (strstr(arg->name, "fd") != NULL) {
        return byte() % 2 ? (uintptr_t)-1 : (uintptr_t)((urma_jfce_t *)own[JFCE][byte() % OWN].bytes)->fd;
    }
    uint8_t how = byte();
    return how < 200 ? how % 32 : how < 250 ? UINT32_MAX : UINTPTR_MAX;
}

/* Zeroed memory for what an argument points to. */
static void *room(const struct row *row, int at)
{
    static _Thread_local uint64_t small[ARGS][1024];
    static uint8_t *large; /* for a whole map of a fabric */
    if (strstr(row->args[at].name, "topo") == NULL) {
        return memset(small[at], 0, sizeof small[at]);
    }
    if (large == NULL) {
        large = calloc(1, sizeof(struct urma_topo_map) + 1); /* also at an odd address */
    }
    return large;
}

/* A list of objects, none twice. */
static void fill_list(const struct arg *arg, void **to, bool *good)
{
    static const char *const types[KINDS] = {
        [JFC] = "urma_jfc_t**", [JFS] = "urma_jfs_t**", [JFR] = "urma_jfr_t**",
        [JETTY] = "urma_jetty_t**"};
    for (int kind = 0; kind < KINDS; kind++) {
        if (types[kind] != NULL && strcmp(types[kind], arg->type) == 0) {
            to[0] = pick(kind, good);
            to[1] = pick(kind, good);
            to[1] = to[1] == to[0] ? NULL : to[1];
        }
    }
}

static uintptr_t argument(const struct row *row, int at, bool *good, struct own **filled)
{
    const struct arg *arg = &row->args[at];
    uint8_t how = byte();
    if (arg->kind < KINDS && arg->own) {
        struct own *to = &own[arg->kind][how % OWN];
        *filled = to->used ? NULL : to;
        return to->used ? 0 : (uintptr_t)to->bytes;
    }
    if (arg->kind < KINDS) {
        return (uintptr_t)pick(arg->kind, good);
    }
    switch (arg->kind) {
    case POINTER:
    case BYTES: {
        void *to = room(row, at);
        bool ignored = true;
        /* Whether what it names is looked at, and when, is the function's matter. */
        good = &ignored;
        if (how >= 240) {
            /* An odd address of zeros, or none. */
            return arg->kind == POINTER && how % 2 ? (uintptr_t)to + 1 : 0;
        }
        if (arg->kind == POINTER && strstr(arg->type, "**") != NULL) {
            fill_list(arg, to, good);
        } else if (!begins(row->name, "uvs_")) {
            fill(arg->type, to, good);
        }
        return (uintptr_t)to;
    }
    case NUMBER:
        return number(arg);
    default:
        return 0;
    }
}

static int kind_of(const char *type)
{
    for (int index = 0; index < ROWS; index++) {
        for (int i = 0; i < rows[index].count; i++) {
            const struct arg *arg = &rows[index].args[i];
            if (arg->kind < KINDS && strcmp(arg->type, type) == 0) {
                return (int)arg->kind;
            }
        }
    }
    return KINDS;
}

static bool is_success(const struct row *row, uintptr_t answer)
{
    return row->answer == OBJECT                              ? answer != 0
           : row->answer == COUNT || row->answer == NEGATIVE ? (int)answer >= 0
           : row->answer == STATUS                            ? (int)answer == 0
                                                              : false;
}

static bool ends_object(const struct row *row)
{
    return row->args[0].kind < KINDS &&
           (strstr(row->name, "_delete_") || strstr(row->name, "_free_") ||
            strstr(row->name, "_unimport_") || strstr(row->name, "_unregister_"));
}

static struct own *own_of(uintptr_t object)
{
    for (int i = 0; i < KINDS * OWN; i++) {
        struct own *of = &own[i / OWN][i % OWN];
        if ((uintptr_t)of->bytes == object) {
            return of;
        }
    }
    return NULL;
}

/* What a command made lies in the program's memory. */
static void note_command(const struct row *row, const uintptr_t *a, uintptr_t answer, struct own *filled)
{
    bool is_fd = strstr(row->name, "create_jfce") || strstr(row->name, "create_notifier");
    if (is_fd) {
        struct own *to = &own[strstr(row->name, "jfce") ? JFCE : NOTIFIER][0];
        urma_jfce_t *object = (urma_jfce_t *)to->bytes;
        if (to->used) {
            close((int)answer);
            return;
        }
        object->urma_ctx = (urma_context_t *)a[0];
        object->fd = (int)answer;
        to->used = true;
    } else if (filled != NULL) {
        filled->used = true;
        if (filled == &own[CTX][0] || filled == &own[CTX][1]) {
            int fd = ((urma_context_t *)filled->bytes)->async_fd;
            CHECK(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) == 0);
        }
    } else if (ends_object(row) && own_of(a[0]) != NULL) {
        own_of(a[0])->used = false;
    }
}

/* A batch that stopped named the first that stays. */
static void note_batch(const struct row *row, void **list, size_t len, uintptr_t answer, void *bad)
{
    for (size_t i = 0; i < len && (answer == 0 || list[i] != bad); i++) {
        if (begins(row->name, "urma_cmd_")) {
            struct own *of = own_of((uintptr_t)list[i]);
            if (of != NULL) {
                of->used = false;
            }
        } else {
            (void)ending(list[i]);
            ended(list[i], false);
        }
    }
}

/* Calls a function with any arguments. */
static void call_any(bool up)
{
    int index = (byte() | byte() << 8) % ROWS;
    const struct row *row = &rows[index];
    uintptr_t a[WORDS] = {0};
    struct own *filled = NULL;
    void *list[2] = {NULL};
    bool good = true, takes = false;

    commands = begins(row->name, "urma_cmd_");
    if (calls[index] == NULL || is_by_name(row->name) || (commands && up && !strict)) {
        commands = false;
        return;
    }
    bool segments = true, empty = false;
    for (int i = 0, word = 0; i < row->count; i++) {
        const struct arg *arg = &row->args[i];
        a[word++] = argument(row, i, arg->kind == SEG ? &segments : &good, &filled);
        empty = empty || (arg->kind == NUMBER && strcmp(arg->name, "len") == 0 && a[word - 1] == 0);
        word += arg->kind == EID;
        takes = takes || arg->kind < KINDS;
    }
    /* A piece of no bytes lies in no segment. */
    good = good && (segments || empty);
    bool batch = strstr(row->name, "_batch") != NULL, ends = ends_object(row) && !commands;
    bool lived = false;
    if (batch && a[0] > 1) {
        memcpy(list, (void *)a[0], sizeof list);
    }
    int kind = row->answer == OBJECT ? kind_of(row->type) : KINDS;
    if (ends) {
        lived = ending((void *)a[0]);
    }
    uintptr_t answer = table_call(index, a);
    if (getenv("FUZZ_TRACE") != NULL) {
        fprintf(stderr, "TRACE %s %#lx %#lx = %#lx\n", row->name, (long)a[0], (long)a[1], (long)answer);
    }
    bool success = is_success(row, answer);
    if (ends) {
        ended((void *)a[0], lived && !success);
    }
    if (success && takes && !commands && ((strict && !good) || !up)) {
        fprintf(stderr, "%s succeeds with a bad object\n", row->name);
        CHECK(!"refused");
    }
    if (batch && a[0] > 1 && a[2] > 1) {
        note_batch(row, list, a[1] < 2 ? a[1] : 2, success ? 0 : 1, *(void **)a[2]);
    } else if (commands && success) {
        note_command(row, a, answer, filled);
    } else if (success && kind < DEVICE) {
        keep(kind, (void *)answer, good);
        for (int i = 0; i < POOL; i++) {
            pool[kind][i].maybe |= pool[kind][i].object == (void *)answer && strstr(row->name, "async");
        }
    } else if (success && begins(row->name, "urma_alloc_") && row->count == 3) {
        void *to = *(void **)a[2];
        keep(strstr(row->name, "jfc")   ? JFC
             : strstr(row->name, "jfs") ? JFS
             : strstr(row->name, "jfr") ? JFR
                                        : JETTY,
             to, good);
    } else if (success && strcmp(row->name, "urma_open_cdev") == 0) {
        close((int)answer);
    }
    commands = false;
}

#endif
