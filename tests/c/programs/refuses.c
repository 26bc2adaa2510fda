/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Every function that takes an object, with what is no such object: NULL, an odd address, the inside
 * of an object, a deleted one, one of each other kind. Everything else that is passed is good or
 * zero. The call must be refused in the form that the function has: a status, NULL with errno, a
 * number below 0. Before urma_init and after urma_uninit, in a forked child, in several threads.
 *
 * The table is made from the installed header, so that no function is left out.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#include "end.h"

enum kind { CTX, JFCE, JFC, JFS, JFR, JETTY, GRP, TARGET, SEG, TOKEN_ID, NOTIFIER, DEVICE, KINDS,
            POINTER, NUMBER, EID, FUNCTION };
enum { ARGS = 9, WORDS = 10, STATUS = 's', OBJECT = 'p', COUNT = 'i', NOTHING = 'v' };

struct row {
    const char *name;
    int answer;
    int count;
    enum kind args[ARGS];
};

static const struct row rows[] = {
#include "rows.h"
};
enum { ROWS = sizeof rows / sizeof rows[0] };

typedef uintptr_t (*call_t)(uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t,
                            uintptr_t, uintptr_t, uintptr_t, uintptr_t);

static uintptr_t live[KINDS], dead[KINDS];
static call_t calls[ROWS];
static int wrong;
static long made;

static void tell(const struct row *row, int bad, uintptr_t with, const char *when, const char *what)
{
    fprintf(stderr, "%s: %s, argument %d = %#lx: %s\n", when, row->name, bad, (long)with, what);
    __atomic_fetch_add(&wrong, 1, __ATOMIC_RELAXED);
}

static bool is_refused(const struct row *row, uintptr_t answer)
{
    switch (row->answer) {
    case STATUS:
        return (int)answer != 0;
    case OBJECT:
        return answer == 0 && errno != 0;
    case COUNT:
        return (int)answer < 0;
    default:
        return true;
    }
}

/* Calls with `with` as the argument `bad`; -1: all that are objects. */
static void refused(int index, int bad, uintptr_t with, const char *when)
{
    static _Thread_local uint64_t room[ARGS][1024];
    const struct row *row = &rows[index];
    uintptr_t a[WORDS] = {0};
    int word = 0;

    memset(room, 0, sizeof room);
    for (int i = 0; i < row->count; i++) {
        enum kind kind = row->args[i];
        bool here = i == bad || (bad == -1 && kind <= POINTER && kind != KINDS);
        a[word++] = here             ? with
                    : kind < KINDS   ? live[kind]
                    : kind == POINTER ? (uintptr_t)room[i]
                    : kind == NUMBER ? 1
                                     : 0;
        word += kind == EID;
    }
    errno = 0;
    uintptr_t answer = calls[index](a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9]);
    __atomic_fetch_add(&made, 1, __ATOMIC_RELAXED);
    if (!is_refused(row, answer)) {
        tell(row, bad, with, when, "is not refused");
    }
}

static void *each(void *when)
{
    for (int index = 0; index < ROWS; index++) {
        const struct row *row = &rows[index];
        for (int i = 0; i < row->count; i++) {
            enum kind kind = row->args[i];
            if (kind >= KINDS) {
                continue;
            }
            refused(index, i, 0, when);
            refused(index, i, 1, when);
            for (int other = 0; other < KINDS; other++) {
                if (live[other] != 0 && other != (int)kind) {
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
    }
    return NULL;
}

/* Nothing is initialised: good objects of before are as bad as any. */
static void none(const char *when)
{
    for (int index = 0; index < ROWS; index++) {
        const struct row *row = &rows[index];
        bool takes = false;
        for (int i = 0; i < row->count; i++) {
            takes = takes || row->args[i] < KINDS;
        }
        if (takes) {
            refused(index, -1, 0, when);
            refused(index, -1, 1, when);
            refused(index, -2, 0, when);
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

    alarm(90);
    for (int index = 0; index < ROWS; index++) {
        *(void **)&calls[index] = dlsym(RTLD_DEFAULT, rows[index].name);
        CHECK(calls[index] != NULL || (fprintf(stderr, "%s\n", rows[index].name), 0));
    }
    none("before urma_init");
    CHECK(urma_init(NULL) == URMA_SUCCESS);
    urma_log_set_level(URMA_VLOG_LEVEL_EMERG);
    /* Two worlds at once, so that no slot of the one that goes is taken again. */
    open_world(&end, live);
    open_world(&gone, dead);
    close_world(&gone, dead);
    each((void *)"one thread");
    for (int i = 0; i < 4; i++) {
        CHECK(pthread_create(&threads[i], NULL, each, (void *)"four threads") == 0);
    }
    for (int i = 0; i < 4; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    CHECK(wrong == 0);

    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(30);
        none("a forked child");
        each((void *)"a forked child");
        _exit(wrong != 0);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);

    close_world(&end, live);
    memcpy(dead, live, sizeof dead);
    CHECK(urma_uninit() == URMA_SUCCESS);
    none("after urma_uninit");
    memset(live, 0, sizeof live);
    each((void *)"after urma_uninit");
    CHECK(wrong == 0);
    printf("%ld calls refused by %d functions\n", made, (int)ROWS);
    return 0;
}
