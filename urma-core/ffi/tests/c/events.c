/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Events: completion events (arm, wait, acknowledge), asynchronous events of two contexts of one
 * device, and the log.
 */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>

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

static void *one_event(void *ctx)
{
    static urma_async_event_t event;
    return urma_get_async_event(ctx, &event) == URMA_SUCCESS ? &event : NULL;
}

static void asynchronous_events(void)
{
    urma_jetty_attr_t error = {JETTY_STATE, 0, URMA_JETTY_STATE_ERROR};
    urma_jfr_attr_t limit = {JFR_RX_THRESHOLD, 2, URMA_JFR_STATE_READY};
    urma_jetty_cfg_t cfg = there.jetty->jetty_cfg;
    urma_sge_t src = end_piece(&here, 0, 8);
    urma_async_event_t event;
    pthread_t thread;
    void *got = NULL;

    (void)error;
    (void)cfg;
    CHECK(urma_get_async_event(NULL, &event) == URMA_EINVAL);
    CHECK(urma_get_async_event(here.ctx, NULL) == URMA_EINVAL);
    CHECK(fcntl(here.ctx->async_fd, F_SETFL, O_NONBLOCK) == 0);
    CHECK(urma_get_async_event(here.ctx, &event) == URMA_EAGAIN);

    /* The event is about the other context: whoever asks first, it goes there. */
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
static int told_line;

static void on_located(int level, const char *file, const char *function, int line, char *message)
{
    (void)level;
    CHECK(file[0] != 0 && function[0] != 0 && message[0] != 0);
    told_line = line;
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
    urma_log_set_thread_tag("mine");
    CHECK(strcmp(urma_log_get_thread_tag(), "mine") == 0);
    CHECK(urma_create_jfc(here.ctx, &cfg) == NULL && lines == 1);
    CHECK(strncmp(last, "[mine] ", 7) == 0 && strstr(last, "ceqn") != NULL);
    urma_log_set_thread_tag(NULL);
    CHECK(urma_log_get_thread_tag()[0] == 0);
    urma_log_set_level(URMA_VLOG_LEVEL_ERR);
    CHECK(urma_create_jfc(here.ctx, &cfg) == NULL && lines == 1);
#if URMA_ABI_PROFILE == URMA_ABI_26_06
    urma_log_set_level(URMA_VLOG_LEVEL_DEBUG);
    CHECK(urma_register_loc_log_func(on_located) == URMA_SUCCESS);
    CHECK(urma_create_jfc(here.ctx, &cfg) == NULL && lines == 1 && told_line > 0);
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
    asynchronous_events();
    CHECK(urma_unimport_jetty(target) == URMA_SUCCESS);
    end_close(&here);
    end_close(&there);
    CHECK(urma_uninit() == URMA_SUCCESS);
    return 0;
}
