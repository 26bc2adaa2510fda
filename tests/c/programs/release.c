/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A program that is right on a library of the release of its headers only: it looks at what lies at
 * other places in the other release, then writes and sends.
 *
 * Compiled with -DURMA_NO_ABI_MARKER, as with headers of others: nothing in it names a release.
 */
#include "end.h"

#include <stddef.h>

#define FILL 0xee
#define GUARD 64

static int is_filled(const unsigned char *bytes, size_t len) {
    for (size_t i = 0; i < len; i++) {
        if (bytes[i] != FILL) {
            return 0;
        }
    }
    return 1;
}

/* The library writes the whole struct, and nothing behind it. */
static void look_at_device(urma_device_t *dev) {
    struct {
        urma_device_attr_t attr;
        unsigned char guard[GUARD];
    } place;
    memset(&place, FILL, sizeof place);
    need(urma_query_device(dev, &place.attr) == URMA_SUCCESS, "urma_query_device");
    const unsigned char *last = (const unsigned char *)&place.attr.reserved_jetty_id_max;
    need(!is_filled(last, sizeof place.attr.reserved_jetty_id_max), "device attributes end early");
    need(is_filled(place.guard, GUARD), "device attributes end late");
    need(place.attr.port_cnt >= 1 && place.attr.port_cnt <= MAX_PORT_CNT, "ports of the device");
}

static void write_and_send(end_t *here, end_t *there, urma_target_jetty_t *to_there) {
    card_t card = end_card(there);
    urma_target_seg_t *far = end_import_seg(here, &card);
    const char *text = "written from afar";
    uint32_t len = (uint32_t)strlen(text) + 1;
    memcpy(here->memory, text, len);
    urma_sge_t src = sge(here->seg, 0, len);
    urma_sge_t dst = sge(far, 512, len);
    urma_jfs_wr_t wr = request(URMA_OPC_WRITE, to_there, 1);
    wr.rw.src.sge = &src;
    wr.rw.src.num_sge = 1;
    wr.rw.dst.sge = &dst;
    wr.rw.dst.num_sge = 1;
    post(here, &wr);
    end_wait(here->jfc);
    need(memcmp(there->memory + 512, text, len) == 0, "the bytes written");

    post_receive(there, 1024, 64);
    wr = request(URMA_OPC_SEND_IMM, to_there, 2);
    wr.send.src.sge = &src;
    wr.send.src.num_sge = 1;
    wr.send.imm_data = 42;
    post(here, &wr);
    end_wait(here->jfc);
    urma_cr_t cr = end_wait(there->jfc);
    need(cr.imm_data == 42 && cr.opcode == URMA_CR_OPC_SEND_WITH_IMM, "the completion");
    need(memcmp(there->memory + 1024, text, len) == 0, "the bytes sent");
    need(urma_unimport_seg(far) == URMA_SUCCESS, "urma_unimport_seg");
}

static int lines;

static void count_line(int level, char *message) {
    lines++;
    fprintf(stderr, "line of level %d: %s", level, message);
}

int main(void) {
    /* Whose functions these are is fixed before the first call, and stays. */
    need(urma_register_log_func(count_line) == URMA_SUCCESS, "urma_register_log_func");
    urma_status_t status = urma_init(NULL);
    if (status != URMA_SUCCESS) {
        printf("urma_init answers %d after %d lines\n", (int)status, lines);
        need(urma_init(NULL) == status, "a second answer");
        int count = 1;
        need(urma_get_device_list(&count) == NULL, "no devices");
        return 3;
    }
    char name[] = "udma0";
    urma_device_t *dev = urma_get_device_by_name(name);
    need(dev != NULL, "urma_get_device_by_name");
    look_at_device(dev);
    end_t here, there;
    end_open(&here);
    end_open(&there);
    card_t card = end_card(&there);
    urma_target_jetty_t *to_there = end_import_jetty(&here, &card);
    write_and_send(&here, &there, to_there);
    need(urma_unimport_jetty(to_there) == URMA_SUCCESS, "urma_unimport_jetty");
    end_close(&here);
    end_close(&there);
    need(urma_uninit() == URMA_SUCCESS, "urma_uninit");
    printf("right for release %d\n", URMA_ABI_PROFILE);
    return 0;
}
