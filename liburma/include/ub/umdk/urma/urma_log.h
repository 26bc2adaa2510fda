/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Lines in the log of liburma from other libraries: locks, bonding, providers. Not one of the eleven
 * public headers; those libraries include it by this name.
 */
#ifndef URMA_LOG_H
#define URMA_LOG_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include "urma_types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Lines that one place may write in URMA_LOG_RL_WINDOW_SEC seconds. */
#define URMA_LOG_RL_LIMIT 100
#define URMA_LOG_RL_WINDOW_SEC 5

/* The state of one place; static, from URMA_LOG_RL_STATE_INIT. */
typedef struct urma_log_rl_state {
    volatile int lock; /* a pthread_spinlock_t, which strict C does not have */
    URMA_ATOMIC_ULONG n_left;
    URMA_ATOMIC_ULONG missed;
    time_t begin;
    uint32_t flags;
    const char *file;
    const char *function;
    int line;
} urma_log_rl_state_t;

#ifdef __cplusplus
#define URMA_LOG_RL_STATE_INIT(name) {0, {URMA_LOG_RL_LIMIT}, {0}, 0, 0, nullptr, nullptr, 0}
#else
#define URMA_LOG_RL_STATE_INIT(name) {.n_left = URMA_LOG_RL_LIMIT}
#endif
#define DEFINE_URMA_LOG_RL_STATE(name) \
    static urma_log_rl_state_t name = URMA_LOG_RL_STATE_INIT(name)

/* Whether lines of this level are left out: asked before the line is written. */
bool urma_log_drop(urma_vlog_level_t level);
void urma_log(const char *function, int line, urma_vlog_level_t level, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void urma_log_loc(
    const char *file, const char *function, int line, urma_vlog_level_t level, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* Whether this place may write another line. */
bool urma_log_rl_check(
    urma_log_rl_state_t *rs, const char *file, const char *function, int line);

#ifndef __FILE_NAME__
#define __FILE_NAME__ (strrchr(__FILE__, '/') != NULL ? strrchr(__FILE__, '/') + 1 : __FILE__)
#endif

/* A line of level ERR, WARNING, INFO or DEBUG; the _RL ones with a limit for each place. */
#define URMA_LOG(l, ...) \
    do { \
        if (!urma_log_drop(URMA_VLOG_LEVEL_##l)) { \
            urma_log_loc(__FILE_NAME__, __func__, __LINE__, URMA_VLOG_LEVEL_##l, __VA_ARGS__); \
        } \
    } while (0)
#define URMA_LOG_RL(l, rs, ...) \
    do { \
        if (!urma_log_drop(URMA_VLOG_LEVEL_##l) && \
            urma_log_rl_check(rs, __FILE_NAME__, __func__, __LINE__)) { \
            urma_log_loc(__FILE_NAME__, __func__, __LINE__, URMA_VLOG_LEVEL_##l, __VA_ARGS__); \
        } \
    } while (0)
#define URMA_LOG_HERE_RL(l, ...) \
    do { \
        DEFINE_URMA_LOG_RL_STATE(here_); \
        URMA_LOG_RL(l, &here_, __VA_ARGS__); \
    } while (0)

#define URMA_LOG_ERR(...) URMA_LOG(ERR, __VA_ARGS__)
#define URMA_LOG_WARN(...) URMA_LOG(WARNING, __VA_ARGS__)
#define URMA_LOG_INFO(...) URMA_LOG(INFO, __VA_ARGS__)
#define URMA_LOG_DEBUG(...) URMA_LOG(DEBUG, __VA_ARGS__)
#define URMA_LOG_ERR_RL(...) URMA_LOG_HERE_RL(ERR, __VA_ARGS__)
#define URMA_LOG_WARN_RL(...) URMA_LOG_HERE_RL(WARNING, __VA_ARGS__)
#define URMA_LOG_INFO_RL(...) URMA_LOG_HERE_RL(INFO, __VA_ARGS__)
#define URMA_LOG_DEBUG_RL(...) URMA_LOG_HERE_RL(DEBUG, __VA_ARGS__)

#ifdef __cplusplus
}
#endif

#endif
