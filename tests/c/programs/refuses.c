/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Every exported function with what it must refuse. In place of each object: NULL, an odd address, the
 * inside of an object, a deleted one, one of each other kind; in place of every other pointer that
 * must be there: NULL. Everything else that is passed is good or zero. The answer
 * must have the form that the function has (a status, NULL with errno, a number below 0) and say
 * EINVAL. Flags of garbage may be refused or not. Before urma_init and after urma_uninit, in a forked
 * child, in several threads.
 *
 * The table is made from the installed headers, so that no function is left out.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "end.h"
#include "table.h"

/* Who refuses with another code than EINVAL, and which. */
static const struct {
    const char *name;
    int code;
} codes[] = {
#include "codes.h"
    {NULL, 0},
};

/* When the calls are made, and what else than EINVAL they may say then. */
struct when {
    const char *name;
    int code;
};

static const struct when before = {"before urma_init", ENODEV}, after = {"after urma_uninit", ENODEV},
                         child = {"a forked child", ENODEV}, alone = {"one thread", EINVAL},
                         many = {"four threads", EINVAL};

static uintptr_t live[KINDS], dead[KINDS];
static int wrong;

static void tell(const struct row *row, int bad, uintptr_t with, const struct when *when, long answer)
{
    fprintf(stderr, "%s: %s, argument %d = %#lx is not refused: %ld, errno %d\n", when->name,
            row->name, bad, (long)with, answer, errno);
    __atomic_fetch_add(&wrong, 1, __ATOMIC_RELAXED);
}

static bool is_code(const struct row *row, const struct when *when, int code)
{
    for (int i = 0; codes[i].name != NULL; i++) {
        if (strcmp(codes[i].name, row->name) == 0 && codes[i].code == code) {
            return true;
        }
    }
    return code == EINVAL || code == when->code;
}

static bool is_refused(const struct row *row, const struct when *when, uintptr_t answer)
{
    switch (row->answer) {
    case STATUS:
        return is_code(row, when, (int)answer);
    case OBJECT:
        return answer == 0 && is_code(row, when, errno);
    case COUNT:
        return (int)answer == -1 ? is_code(row, when, errno) : is_code(row, when, -(int)answer);
    case NEGATIVE:
        return (int)answer < 0 && is_code(row, when, (int)answer == -1 ? errno : -(int)answer);
    default:
        return true;
    }
}

enum { EVERY = -1, ALL_ZERO = -2 };

/* Calls with `with` as the argument `bad`; EVERY: all that are pointers, or objects if it is not NULL. */
static uintptr_t ask(int index, int bad, uintptr_t with)
{
    static _Thread_local uint64_t room[ARGS][1024];
    const struct row *row = &rows[index];
    uintptr_t a[WORDS] = {0};
    int word = 0;

    memset(room, 0, sizeof room);
    for (int i = 0; i < row->count && bad != ALL_ZERO; i++) {
        enum kind kind = row->args[i].kind;
        bool here = i == bad || (bad == EVERY && kind <= (with == 0 ? BYTES : KINDS - 1));
        a[word++] = here                                            ? with
                    : kind < KINDS && !row->args[i].own             ? live[kind]
                    : kind <= BYTES                                 ? (uintptr_t)room[i]
                    : kind == NUMBER                                ? 1
                                                                    : 0;
        word += kind == EID;
    }
    errno = 0;
    return table_call(index, a);
}

static void refused(int index, int bad, uintptr_t with, const struct when *when)
{
    uintptr_t answer = ask(index, bad, with);
    if (!is_refused(&rows[index], when, answer)) {
        tell(&rows[index], bad, with, when, (long)(int)answer);
    }
}

static void objects(int index, int i, const struct when *when)
{
    refused(index, i, 0, when);
    refused(index, i, 1, when);
    for (int other = 0; other < KINDS; other++) {
        if (live[other] != 0 && (other != (int)rows[index].args[i].kind || rows[index].args[i].own)) {
            refused(index, i, live[other], when);
        }
        if (live[other] != 0 && other != DEVICE) {
            refused(index, i, live[other] + 8, when);
            refused(index, i, live[other] - 64, when);
        }
        if (dead[other] != 0) {
            refused(index, i, dead[other], when);
        }
    }
}

/* Numbers that say how much memory there is, or for how long to wait, are the caller's promise. */
static bool may_be_any(const struct row *row, const struct arg *arg)
{
    static const char *const words[] = {"cnt", "num", "len", "size", "time", "fd", "line", "nevents"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strstr(arg->name, words[i]) != NULL) {
            return false;
        }
    }
    for (int i = 0; i < row->count; i++) {
        if (row->args[i].own) {
            return false; /* what it made would never be given back */
        }
    }
    return row->args[0].kind < KINDS;
}

/* A number may have been a good one. */
static void give_back(const struct row *row, uintptr_t answer)
{
    if (answer != 0 && strcmp(row->type, "urma_context_t*") == 0) {
        CHECK(urma_delete_context((urma_context_t *)answer) == URMA_SUCCESS);
    }
    if (answer != 0 && strcmp(row->type, "urma_token_id_t*") == 0) {
        CHECK(urma_free_token_id((urma_token_id_t *)answer) == URMA_SUCCESS);
    }
}

static void *each(void *argument)
{
    const struct when *when = argument;
    for (int index = 0; index < ROWS; index++) {
        for (int i = 0; i < rows[index].count; i++) {
            const struct arg *arg = &rows[index].args[i];
            if (arg->kind < KINDS) {
                objects(index, i, when);
            } else if (arg->kind <= BYTES && !arg->optional) {
                refused(index, i, 0, when);
            } else if (arg->kind == NUMBER && may_be_any(&rows[index], arg)) {
                give_back(&rows[index], ask(index, i, 0));
                give_back(&rows[index], ask(index, i, UINT32_MAX));
                give_back(&rows[index], ask(index, i, UINTPTR_MAX));
            }
        }
    }
    return NULL;
}

/* Nothing is initialised: good objects of before are as bad as any. */
static void none(const struct when *when)
{
    for (int index = 0; index < ROWS; index++) {
        const struct row *row = &rows[index];
        bool takes = false, odd = false;
        for (int i = 0; i < row->count; i++) {
            takes = takes || (row->args[i].kind <= BYTES && !row->args[i].optional);
            odd = odd || (row->args[i].kind < KINDS && !row->args[i].optional);
        }
        if (takes) {
            refused(index, ALL_ZERO, 0, when);
            refused(index, EVERY, 0, when);
        }
        if (odd) {
            refused(index, EVERY, 1, when);
        }
    }
}

static void open_world(struct end *end, uintptr_t *all)
{
    urma_jfs_cfg_t jfs = {0};
    urma_jetty_grp_cfg_t grp = {0};
    urma_device_t *dev = urma_get_device_by_name((char *)"udma0");
    end_open(end, dev, URMA_TM_RM);
    struct info info = end_info(end);
    jfs.depth = 8;
    jfs.trans_mode = URMA_TM_RM;
    jfs.max_sge = 1;
    jfs.jfc = end->jfc;
    grp.name[0] = 'g';
    all[DEVICE] = (uintptr_t)dev;
    all[CTX] = (uintptr_t)end->ctx;
    all[JFCE] = (uintptr_t)end->jfce;
    all[JFC] = (uintptr_t)end->jfc;
    all[JFR] = (uintptr_t)end->jfr;
    all[JETTY] = (uintptr_t)end->jetty;
    all[SEG] = (uintptr_t)end->seg;
    all[TARGET] = (uintptr_t)end_import_jetty(end, &info);
    all[JFS] = (uintptr_t)urma_create_jfs(end->ctx, &jfs);
    all[GRP] = (uintptr_t)urma_create_jetty_grp(end->ctx, &grp);
    all[TOKEN_ID] = (uintptr_t)urma_alloc_token_id(end->ctx);
    all[NOTIFIER] = (uintptr_t)urma_create_notifier(end->ctx);
    for (int kind = 0; kind < KINDS; kind++) {
        CHECK(all[kind] != 0);
    }
}

static void close_world(struct end *end, uintptr_t *all)
{
    CHECK(urma_unimport_jetty((urma_target_jetty_t *)all[TARGET]) == URMA_SUCCESS);
    CHECK(urma_delete_jfs((urma_jfs_t *)all[JFS]) == URMA_SUCCESS);
    CHECK(urma_delete_jetty_grp((urma_jetty_grp_t *)all[GRP]) == URMA_SUCCESS);
    CHECK(urma_free_token_id((urma_token_id_t *)all[TOKEN_ID]) == URMA_SUCCESS);
    CHECK(urma_delete_notifier((urma_notifier_t *)all[NOTIFIER]) == URMA_SUCCESS);
    end_close(end);
    all[DEVICE] = 0; /* never deleted */
}

int main(void)
{
    struct end end, gone;
    pthread_t threads[4];
    int status = 0;

    alarm(240);
    const char *missing = table_load();
    CHECK(missing == NULL || (fprintf(stderr, "%s\n", missing), 0));
    none(&before);
    CHECK(urma_init(NULL) == URMA_SUCCESS);
    urma_log_set_level(URMA_VLOG_LEVEL_EMERG);
    /* Two worlds at once, so that no slot of the one that goes is taken again. */
    open_world(&end, live);
    open_world(&gone, dead);
    close_world(&gone, dead);
    each((void *)&alone);
    for (int i = 0; i < 4; i++) {
        CHECK(pthread_create(&threads[i], NULL, each, (void *)&many) == 0);
    }
    for (int i = 0; i < 4; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    CHECK(wrong == 0);

    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        alarm(30);
        none(&child);
        each((void *)&child);
        _exit(wrong != 0);
    }
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);

    close_world(&end, live);
    memcpy(dead, live, sizeof dead);
    CHECK(urma_uninit() == URMA_SUCCESS);
    none(&after);
    memset(live, 0, sizeof live);
    each((void *)&after);
    CHECK(wrong == 0);
    long calls_made = 0, never = 0;
    for (int index = 0; index < ROWS; index++) {
        calls_made += asked[index];
        never += asked[index] == 0;
    }
    printf("%ld calls refused by %d functions\n", calls_made, (int)(ROWS - never));
    return 0;
}
