/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Events: completion events (arm, wait, acknowledge), asynchronous events of two contexts of one
 * device, and the log.
 */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "end.h"

static struct end here, there;
static urma_target_jetty_t *target;

static int readable(int fd)
{
    struct pollfd one = {fd, POLLIN, 0};
    return poll(&one, 1, 0) == 1;
}

static void completion_events(void)
{
    urma_sge_t src = end_piece(&here, 0, 8);
    urma_jfc_t *jfc[4] = {0};
    uint32_t counts[4] = {1, 1, 1, 1};

    CHECK(urma_wait_jfc(there.jfce, 4, 0, jfc) == 0);
    errno = 0;
    CHECK(urma_wait_jfc(NULL, 1, 0, jfc) == -1 && errno == EINVAL);
    CHECK(urma_wait_jfc(there.jfce, 0, 0, jfc) == -1 && urma_wait_jfc(there.jfce, 1, 0, NULL) == -1);
    CHECK(urma_rearm_jfc(there.jfc, false) == URMA_SUCCESS);
    end_receive(&there, 4096, 64, 1);
    CHECK(end_post(&here, URMA_OPC_SEND, target, &src, NULL) == URMA_SUCCESS);
    CHECK(urma_wait_jfc(there.jfce, 4, 60000, jfc) == 1 && jfc[0] == there.jfc);
    CHECK(!readable(there.jfce->fd));
    CHECK(end_wait(there.jfc).status == URMA_CR_SUCCESS);
    CHECK(urma_wait_jfc(there.jfce, 4, 1, jfc + 1) == 0);
    CHECK(end_wait(here.jfc).status == URMA_CR_SUCCESS);

    /* A queue with an event that was not acknowledged is not deleted. */
    urma_jfc_cfg_t cfg = {0};
    cfg.depth = 8;
    cfg.jfce = there.jfce;
    urma_jfc_t *other = urma_create_jfc(there.ctx, &cfg);
    CHECK(other != NULL && urma_delete_jfce(there.jfce) == URMA_FAIL);
    CHECK(urma_delete_jfc(other) == URMA_SUCCESS);
    urma_ack_jfc(jfc, counts, 0);
    urma_ack_jfc(NULL, counts, 1);
    urma_ack_jfc(jfc, NULL, 1);
    urma_ack_jfc(jfc, counts, 1);
    errno = 0;
    urma_ack_jfc(jfc, counts, 1); /* once too often */
    CHECK(errno == EINVAL);
}

/* Sends one message to `there`, which counts as solicited or not, and takes both completions. */
static void message(bool is_solicited)
{
    urma_sge_t src = end_piece(&here, 0, 8);
    urma_jfs_wr_t wr = {0}, *bad = NULL;

    wr.opcode = URMA_OPC_SEND;
    wr.flag.bs.complete_enable = 1;
    wr.flag.bs.solicited_enable = is_solicited;
    wr.tjetty = target;
    wr.send.src.sge = &src;
    wr.send.src.num_sge = 1;
    end_receive(&there, 4096, 64, 1);
    CHECK(urma_post_jetty_send_wr(here.jetty, &wr, &bad) == URMA_SUCCESS);
    CHECK(end_wait(there.jfc).status == URMA_CR_SUCCESS);
    CHECK(end_wait(here.jfc).status == URMA_CR_SUCCESS);
}

/* Armed for solicited completions, a queue tells of these alone; armed for all, of the first. */
static void solicited_only(void)
{
    urma_jfc_t *jfc[2] = {0};
    uint32_t counts[2] = {1, 1};

    CHECK(urma_rearm_jfc(there.jfc, true) == URMA_SUCCESS);
    message(false);
    message(false);
    CHECK(!readable(there.jfce->fd) && urma_wait_jfc(there.jfce, 2, 0, jfc) == 0);
    message(true);
    CHECK(urma_wait_jfc(there.jfce, 2, 60000, jfc) == 1 && jfc[0] == there.jfc);
    urma_ack_jfc(jfc, counts, 1);
    message(true);
    CHECK(!readable(there.jfce->fd)); /* one event for one arm */
    CHECK(urma_rearm_jfc(there.jfc, false) == URMA_SUCCESS);
    message(false);
    CHECK(urma_wait_jfc(there.jfce, 2, 60000, jfc) == 1 && jfc[0] == there.jfc);
    urma_ack_jfc(jfc, counts, 1);
}

/* A queue of its own, so that nothing else keeps it. */
static void unacknowledged(void)
{
    urma_jfc_t *got[3] = {0};
    uint32_t counts[3] = {7, 1, 0};
    urma_jfc_cfg_t jfc_cfg = {0};
    urma_jfs_cfg_t cfg = here.jetty->jetty_cfg.jfs_cfg;
    urma_jfs_wr_t wr = {0}, *bad = NULL;

    jfc_cfg.depth = 8;
    jfc_cfg.jfce = here.jfce;
    cfg.jfc = urma_create_jfc(here.ctx, &jfc_cfg);
    urma_jfs_t *jfs = urma_create_jfs(here.ctx, &cfg);
    CHECK(cfg.jfc != NULL && jfs != NULL && cfg.jfc->comp_events_acked == 0);
    CHECK(urma_rearm_jfc(cfg.jfc, false) == URMA_SUCCESS);
    wr.opcode = URMA_OPC_NOP;
    wr.flag.bs.complete_enable = 1;
    wr.tjetty = target;
    CHECK(urma_post_jfs_wr(jfs, &wr, &bad) == URMA_SUCCESS);
    CHECK(urma_wait_jfc(here.jfce, 3, 60000, got + 1) == 1 && got[1] == cfg.jfc);
    CHECK(end_wait(cfg.jfc).status == URMA_CR_SUCCESS);
    CHECK(urma_delete_jfs(jfs) == URMA_SUCCESS);
    CHECK(urma_delete_jfc(cfg.jfc) == URMA_EAGAIN); /* at once, and not when a thread acknowledges */
    got[2] = cfg.jfc;
    got[0] = here.jfc; /* whose number of events is wrong: the others are acknowledged */
    urma_ack_jfc(got, counts, 3);
    CHECK(cfg.jfc->comp_events_acked == 1 && here.jfc->comp_events_acked == 0);
    CHECK(urma_delete_jfc(cfg.jfc) == URMA_SUCCESS);
}

static void on_signal(int number)
{
    (void)number;
}

/* A wait ends after its time, or by a signal, and says which. */
static void interrupted(void)
{
    struct sigaction action;
    struct timespec start, end;
    urma_jfc_t *jfc[1];

    memset(&action, 0, sizeof(action));
    action.sa_handler = on_signal;
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    alarm(1);
    errno = 0;
    CHECK(urma_wait_jfc(here.jfce, 1, -1, jfc) == -1 && errno == EINTR);
    alarm(1);
    errno = 0;
    CHECK(urma_wait_jfc(here.jfce, 1, 600000, jfc) == -1 && errno == EINTR);
    CHECK(clock_gettime(CLOCK_MONOTONIC, &start) == 0);
    CHECK(urma_wait_jfc(here.jfce, 1, 300, jfc) == 0);
    CHECK(clock_gettime(CLOCK_MONOTONIC, &end) == 0);
    CHECK((end.tv_sec - start.tv_sec) * 1000 + (end.tv_nsec - start.tv_nsec) / 1000000 >= 299);
}

static void *one_event(void *ctx)
{
    static urma_async_event_t event;
    return urma_get_async_event(ctx, &event) == URMA_SUCCESS ? &event : NULL;
}

static void asynchronous_events(void)
{
    urma_jfr_attr_t limit = {JFR_RX_THRESHOLD, 2, URMA_JFR_STATE_READY};
    urma_jetty_cfg_t cfg = there.jetty->jetty_cfg;
    urma_sge_t src = end_piece(&here, 0, 8);
    urma_async_event_t event;
    pthread_t thread;
    void *got = NULL;

    CHECK(urma_get_async_event(NULL, &event) == URMA_EINVAL);
    CHECK(urma_get_async_event(here.ctx, NULL) == URMA_EINVAL);
    CHECK(fcntl(here.ctx->async_fd, F_SETFL, O_NONBLOCK) == 0);
    CHECK(urma_get_async_event(here.ctx, &event) == URMA_EAGAIN);

    /* The event is about the other context: whichever thread asks first, it goes there. */
    end_receive(&there, 4096, 64, 1);
    end_receive(&there, 4096, 64, 2);
    CHECK(urma_modify_jfr(there.jfr, &limit) == URMA_SUCCESS);
    CHECK(pthread_create(&thread, NULL, one_event, there.ctx) == 0);
    CHECK(end_post(&here, URMA_OPC_SEND, target, &src, NULL) == URMA_SUCCESS);
    CHECK(end_wait(there.jfc).status == URMA_CR_SUCCESS);
    CHECK(end_wait(here.jfc).status == URMA_CR_SUCCESS);
    CHECK(urma_get_async_event(here.ctx, &event) == URMA_EAGAIN);
    CHECK(pthread_join(thread, &got) == 0 && got != NULL);
    event = *(urma_async_event_t *)got;
    CHECK(event.event_type == URMA_EVENT_JFR_LIMIT && event.element.jfr == there.jfr);
    CHECK(event.urma_ctx == there.ctx && !readable(there.ctx->async_fd));
    CHECK(!readable(here.ctx->async_fd));
    CHECK(there.jfr->async_events_acked == 0);
    CHECK(urma_delete_jetty(there.jetty) == URMA_SUCCESS);
    CHECK(urma_delete_jfr(there.jfr) == URMA_EAGAIN);
    CHECK((there.jetty = urma_create_jetty(there.ctx, &cfg)) != NULL);
    urma_ack_async_event(&event);
    CHECK(there.jfr->async_events_acked == 1);
    urma_ack_async_event(NULL);
}

static int lines;
static char last[256];

static void on_line(int level, char *message)
{
    CHECK(level >= URMA_VLOG_LEVEL_EMERG && level < URMA_VLOG_LEVEL_MAX);
    snprintf(last, sizeof(last), "%s", message);
    lines++;
    CHECK(urma_create_jfce(NULL) == NULL); /* it may call, and log, itself */
}

#if URMA_ABI_PROFILE == URMA_ABI_26_06
static int located_line;

static void on_located(int level, const char *file, const char *function, int line, char *message)
{
    (void)level;
    CHECK(file[0] != 0 && function[0] != 0 && message[0] != 0);
    located_line = line;
}
#endif

static void logging(void)
{
    urma_jfc_cfg_t cfg = {0};
    cfg.depth = 4;
    cfg.ceqn = 1 << 20; /* refused below the face, with a reason in the log */

    CHECK(urma_log_get_level() == URMA_VLOG_LEVEL_INFO);
    urma_log_set_level((urma_vlog_level_t)99);
    CHECK(urma_log_get_level() == URMA_VLOG_LEVEL_INFO);
    CHECK(urma_register_log_func(NULL) == URMA_EINVAL);
#if URMA_ABI_PROFILE == URMA_ABI_26_06
    CHECK(urma_register_loc_log_func(NULL) == URMA_EINVAL);
#endif
    CHECK(urma_register_log_func(on_line) == URMA_SUCCESS);
    CHECK(strcmp(urma_log_get_thread_tag(), "-") == 0);
    urma_log_set_thread_tag("mine");
    CHECK(strcmp(urma_log_get_thread_tag(), "mine") == 0);
    CHECK(urma_create_jfc(here.ctx, &cfg) == NULL && lines == 1);
    CHECK(strncmp(last, "[mine] ", 7) == 0 && strstr(last, "ceqn") != NULL);
    CHECK(last[strlen(last) - 1] == '\n'); /* it is printed as it is */
    urma_log_set_thread_tag(NULL); /* no tag, and no change */
    urma_log_set_thread_tag("0123456789012345678901234567890123456789012345678901234567890123");
    CHECK(strcmp(urma_log_get_thread_tag(), "mine") == 0);
    urma_log_set_thread_tag("-");
    urma_log_set_level(URMA_VLOG_LEVEL_ERR);
    CHECK(urma_create_jfc(here.ctx, &cfg) == NULL && lines == 1);
#if URMA_ABI_PROFILE == URMA_ABI_26_06
    urma_log_set_level(URMA_VLOG_LEVEL_DEBUG);
    CHECK(urma_register_loc_log_func(on_located) == URMA_SUCCESS);
    CHECK(urma_create_jfc(here.ctx, &cfg) == NULL && lines == 1 && located_line > 0);
    urma_log_set_level(URMA_VLOG_LEVEL_ERR);
#endif
    CHECK(urma_unregister_log_func() == URMA_SUCCESS);
}

int main(void)
{
    CHECK(urma_init(NULL) == URMA_SUCCESS);
    urma_device_t *dev = urma_get_device_by_name((char *)"udma0");
    end_open(&here, dev, URMA_TM_RM);
    end_open(&there, dev, URMA_TM_RM);
    struct info peer = end_info(&there);
    target = end_import_jetty(&here, &peer);
    logging();
    completion_events();
    solicited_only();
    unacknowledged();
    interrupted();
    asynchronous_events();
    CHECK(urma_unimport_jetty(target) == URMA_SUCCESS);
    end_close(&here);
    end_close(&there);
    CHECK(urma_uninit() == URMA_SUCCESS);
    return 0;
}
