/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* What is exported and in no header, as known programs declare it. */
#ifndef UNDECLARED_H
#define UNDECLARED_H

void urma_u32_to_eid(uint32_t ipv4, urma_eid_t *eid);
void urma_log(const char *function, int line, int level, const char *format);
void urma_log_loc(
    const char *file, const char *function, int line, int level, const char *format);
bool urma_log_drop(int level);
bool urma_log_rl_check(uint64_t *state, const char *file, const char *function, int line);
void *ub_hugemalloc(size_t len, int page, void *hint);
int ub_hugefree(void *address, size_t len);
int ub_str_to_bool(const char *text, bool *out);
int ub_str_to_int(const char *text, int *out);
int ub_str_to_u8(const char *text, uint8_t *out);
int ub_str_to_u16(const char *text, uint16_t *out);
int ub_str_to_u32(const char *text, uint32_t *out);
int ub_str_to_u64(const char *text, uint64_t *out);

#endif
