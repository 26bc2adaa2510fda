/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Names that the fabric service (UVS) shares.
 */
#ifndef UVS_TYPES_H
#define UVS_TYPES_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define UVS_EID_SIZE 16

/* Every struct by its short name. */
typedef union uvs_eid uvs_eid_t;

union uvs_eid {
    uint8_t raw[UVS_EID_SIZE];
    struct {
        uint64_t resv;
        uint32_t prefix;
        uint32_t addr;
    } in4;
    struct {
        uint64_t subnet_prefix;
        uint64_t interface_id;
    } in6;
};

#ifdef __cplusplus
}
#endif

#endif
