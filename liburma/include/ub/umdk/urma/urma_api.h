/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Functions of the URMA C API.
 *
 * Calls that return a pointer return NULL and set errno; calls that return urma_status_t return
 * URMA_SUCCESS or what went wrong; calls that return a count return a negative number.
 */
#ifndef URMA_API_H
#define URMA_API_H

#include "urma_types.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Start and end of the library. A second urma_init answers URMA_EEXIST; urma_uninit without
 * urma_init answers URMA_SUCCESS.
 */

/*
 * The reference to urma_init carries the release: a program that runs on a library of another one
 * is stopped by the loader, which names the missing symbol. Programs that look functions up with
 * dlsym use the plain name and are not bound. URMA_NO_ABI_MARKER leaves the plain name to all.
 */
#ifdef URMA_NO_ABI_MARKER
urma_status_t urma_init(urma_init_attr_t *conf);
#else
urma_status_t urma_init(urma_init_attr_t *conf) __asm__(URMA_ABI_MARKER);
#endif

/* Frees the library; devices and contexts of it end. */
urma_status_t urma_uninit(void);
/* The number of this process in the address space of the node. */
urma_status_t urma_get_uasid(uint32_t *uasid);

/*
 * Devices and their EIDs. Lists are given back with the call that frees them; a list of length 0 is
 * NULL with errno.
 */

/* num_devices may not be NULL. The devices live until urma_uninit, the list until it is freed. */
urma_device_t **urma_get_device_list(int *num_devices);
void urma_free_device_list(urma_device_t **device_list);
urma_eid_info_t *urma_get_eid_list(urma_device_t *dev, uint32_t *cnt);
void urma_free_eid_list(urma_eid_info_t *eid_list);
/* NULL with ENODEV when there is none of this name. */
urma_device_t *urma_get_device_by_name(char *dev_name);
/* The device that owns this EID, of this transport type. */
urma_device_t *urma_get_device_by_eid(urma_eid_t eid, urma_transport_type_t type);
/* Limits and ports of a device. */
urma_status_t urma_query_device(urma_device_t *dev, urma_device_attr_t *dev_attr);
urma_net_addr_info_t *urma_get_net_addr_list(urma_context_t *ctx, uint32_t *cnt);
void urma_free_net_addr_list(urma_net_addr_info_t *net_addr_list);
urma_status_t urma_get_eid_by_ip(
    const urma_context_t *ctx, const urma_net_addr_t *net_addr, urma_eid_t *eid);
urma_status_t urma_get_ip_by_eid(
    const urma_context_t *ctx, const urma_eid_t *eid, urma_net_addr_t *net_addr);
/* mac has room for URMA_MAC_BYTES. */
urma_status_t urma_get_smac(const urma_context_t *ctx, uint8_t *mac);
urma_status_t urma_get_dmac(
    const urma_context_t *ctx, const urma_net_addr_t *net_addr, uint8_t *mac);

/*
 * An opened device. urma_delete_context answers URMA_EAGAIN while objects of it live.
 */

/* Opens a device under its EID of this index. */
urma_context_t *urma_create_context(urma_device_t *dev, uint32_t eid_index);
urma_status_t urma_delete_context(urma_context_t *ctx);
/* URMA_OPT_AGGR_MODE: opt_value is a urma_context_aggr_mode_t. */
urma_status_t urma_set_context_opt(
    urma_context_t *ctx, urma_opt_name_t opt_name, const void *opt_value, size_t opt_len);
/* Takes the next event; async_fd of the context is readable when there is one. */
urma_status_t urma_get_async_event(urma_context_t *ctx, urma_async_event_t *event);
/* Deleting an object waits until every event about it is acknowledged. */
void urma_ack_async_event(urma_async_event_t *event);
/* Asks the device for what only it knows; opcodes are those of its kind. */
urma_status_t urma_user_ctl(urma_context_t *ctx, urma_user_ctl_in_t *in, urma_user_ctl_out_t *out);

/*
 * Event channel of completion queues.
 */
urma_jfce_t *urma_create_jfce(urma_context_t *ctx);
/* URMA_FAIL while a JFC uses the channel. */
urma_status_t urma_delete_jfce(urma_jfce_t *jfce);

/*
 * Completion queue. urma_poll_jfc gives the number of records or -1. After urma_wait_jfc each event
 * is acknowledged with urma_ack_jfc before its queue is deleted.
 */
urma_jfc_t *urma_create_jfc(urma_context_t *ctx, urma_jfc_cfg_t *jfc_cfg);
/* moderate_count completions, or moderate_period microseconds, make one event. */
urma_status_t urma_modify_jfc(urma_jfc_t *jfc, urma_jfc_attr_t *attr);
urma_status_t urma_delete_jfc(urma_jfc_t *jfc);
/* A queue in steps: alloc, set_opt, active, get_opt, deactive, free. */
urma_status_t urma_alloc_jfc(urma_context_t *urma_ctx, urma_jfc_cfg_t *cfg, urma_jfc_t **jfc);
urma_status_t urma_set_jfc_opt(urma_jfc_t *jfc, uint64_t opt, void *buf, uint32_t len);
urma_status_t urma_active_jfc(urma_jfc_t *jfc);
urma_status_t urma_get_jfc_opt(urma_jfc_t *jfc, uint64_t opt, void *buf, uint32_t len);
urma_status_t urma_deactive_jfc(urma_jfc_t *jfc);
urma_status_t urma_free_jfc(urma_jfc_t *jfc);
urma_status_t urma_delete_jfc_batch(urma_jfc_t **jfc_arr, int jfc_num, urma_jfc_t **bad_jfc);
/* Takes up to cr_cnt records; never waits. */
int urma_poll_jfc(urma_jfc_t *jfc, int cr_cnt, urma_cr_t *cr);
/* Asks for one event, for the next completion, or for the next one that was solicited. */
urma_status_t urma_rearm_jfc(urma_jfc_t *jfc, bool solicited_only);
/* time_out in milliseconds, below 0 without end. Fills jfc with queues that have an event. */
int urma_wait_jfc(urma_jfce_t *jfce, uint32_t jfc_cnt, int time_out, urma_jfc_t *jfc[]);
/* nevents[i] events of jfc[i] were taken. */
void urma_ack_jfc(urma_jfc_t *jfc[], uint32_t nevents[], uint32_t jfc_cnt);

/*
 * Send queue. A batch delete stops at the first that it cannot delete and names it.
 */
urma_jfs_t *urma_create_jfs(urma_context_t *ctx, urma_jfs_cfg_t *jfs_cfg);
urma_status_t urma_modify_jfs(urma_jfs_t *jfs, urma_jfs_attr_t *attr);
urma_status_t urma_query_jfs(urma_jfs_t *jfs, urma_jfs_cfg_t *cfg, urma_jfs_attr_t *attr);
urma_status_t urma_delete_jfs(urma_jfs_t *jfs);
urma_status_t urma_delete_jfs_batch(urma_jfs_t **jfs_arr, int jfs_num, urma_jfs_t **bad_jfs);
/* Takes what a queue in error has not done, as records with URMA_CR_WR_FLUSH_ERR. */
int urma_flush_jfs(urma_jfs_t *jfs, int cr_cnt, urma_cr_t *cr);
urma_status_t urma_alloc_jfs(urma_context_t *urma_ctx, urma_jfs_cfg_t *cfg, urma_jfs_t **jfs);
urma_status_t urma_set_jfs_opt(urma_jfs_t *jfs, uint64_t opt, void *buf, uint32_t len);
urma_status_t urma_active_jfs(urma_jfs_t *jfs);
urma_status_t urma_get_jfs_opt(urma_jfs_t *jfs, uint64_t opt, void *buf, uint32_t len);
urma_status_t urma_deactive_jfs(urma_jfs_t *jfs);
urma_status_t urma_free_jfs(urma_jfs_t *jfs);

/*
 * Receive queue, here and at a peer.
 */
urma_jfr_t *urma_create_jfr(urma_context_t *ctx, urma_jfr_cfg_t *jfr_cfg);
/* rx_threshold: an event URMA_EVENT_JFR_LIMIT when fewer receives than this are left. */
urma_status_t urma_modify_jfr(urma_jfr_t *jfr, urma_jfr_attr_t *attr);
urma_status_t urma_query_jfr(urma_jfr_t *jfr, urma_jfr_cfg_t *cfg, urma_jfr_attr_t *attr);
urma_status_t urma_delete_jfr(urma_jfr_t *jfr);
urma_status_t urma_delete_jfr_batch(urma_jfr_t **jfr_arr, int jfr_num, urma_jfr_t **bad_jfr);
/* token_value may be NULL when the policy is URMA_TOKEN_NONE. */
urma_target_jetty_t *urma_import_jfr(
    urma_context_t *ctx, urma_rjfr_t *rjfr, urma_token_t *token_value);
/* As urma_import_jfr, over a transport path that was chosen from urma_get_tp_list. */
urma_target_jetty_t *urma_import_jfr_ex(
    urma_context_t *ctx, urma_rjfr_t *rjfr, urma_token_t *token_value,
    urma_import_jfr_ex_cfg_t *cfg);
urma_status_t urma_unimport_jfr(urma_target_jetty_t *target_jfr);
/* Prepares the path, so that the first request does not wait for it. */
urma_status_t urma_advise_jfr(urma_jfs_t *jfs, urma_target_jetty_t *tjfr);
/* As urma_advise_jfr; cb_fun is called at its end. */
urma_status_t urma_advise_jfr_async(
    urma_jfs_t *jfs, urma_target_jetty_t *tjfr, urma_advise_async_cb_func cb_fun, void *cb_arg);
urma_status_t urma_unadvise_jfr(urma_jfs_t *jfs, urma_target_jetty_t *tjfr);
urma_status_t urma_alloc_jfr(urma_context_t *urma_ctx, urma_jfr_cfg_t *cfg, urma_jfr_t **jfr);
urma_status_t urma_set_jfr_opt(urma_jfr_t *jfr, uint64_t opt, void *buf, uint32_t len);
urma_status_t urma_active_jfr(urma_jfr_t *jfr);
urma_status_t urma_get_jfr_opt(urma_jfr_t *jfr, uint64_t opt, void *buf, uint32_t len);
urma_status_t urma_deactive_jfr(urma_jfr_t *jfr);
urma_status_t urma_free_jfr(urma_jfr_t *jfr);

/*
 * Several jetties under one name.
 */
urma_jetty_grp_t *urma_create_jetty_grp(urma_context_t *ctx, urma_jetty_grp_cfg_t *cfg);
urma_status_t urma_delete_jetty_grp(urma_jetty_grp_t *jetty_grp);

/*
 * Jetty, here and at a peer. RC jetties are bound to one peer, RM jetties may be advised of it.
 */
urma_jetty_t *urma_create_jetty(urma_context_t *ctx, urma_jetty_cfg_t *jetty_cfg);
urma_status_t urma_modify_jetty(urma_jetty_t *jetty, urma_jetty_attr_t *attr);
urma_status_t urma_query_jetty(urma_jetty_t *jetty, urma_jetty_cfg_t *cfg, urma_jetty_attr_t *attr);
urma_status_t urma_delete_jetty(urma_jetty_t *jetty);
urma_status_t urma_delete_jetty_batch(
    urma_jetty_t **jetty_arr, int jetty_num, urma_jetty_t **bad_jetty);
urma_target_jetty_t *urma_import_jetty(
    urma_context_t *ctx, urma_rjetty_t *rjetty, urma_token_t *token_value);
/* As urma_import_jetty, over a transport path that was chosen from urma_get_tp_list. */
urma_target_jetty_t *urma_import_jetty_ex(
    urma_context_t *ctx, urma_rjetty_t *rjetty, urma_token_t *token_value,
    urma_import_jetty_ex_cfg_t *cfg);
urma_status_t urma_unimport_jetty(urma_target_jetty_t *tjetty);
/* RM only. */
urma_status_t urma_advise_jetty(urma_jetty_t *jetty, urma_target_jetty_t *tjetty);
urma_status_t urma_unadvise_jetty(urma_jetty_t *jetty, urma_target_jetty_t *tjetty);
/* RC only, and with the same order on both sides: else URMA_ENOPERM. */
urma_status_t urma_bind_jetty(urma_jetty_t *jetty, urma_target_jetty_t *tjetty);
/* As urma_bind_jetty, over a chosen transport path. */
urma_status_t urma_bind_jetty_ex(
    urma_jetty_t *jetty, urma_target_jetty_t *tjetty, urma_bind_jetty_ex_cfg_t *cfg);
urma_status_t urma_unbind_jetty(urma_jetty_t *jetty);
/* As urma_flush_jfs. */
int urma_flush_jetty(urma_jetty_t *jetty, int cr_cnt, urma_cr_t *cr);
/* timeout in milliseconds. The target may be used once its notification says so. */
urma_target_jetty_t *urma_import_jetty_async(
    urma_notifier_t *notifier, const urma_rjetty_t *rjetty, const urma_token_t *token_value,
    uint64_t user_ctx, int timeout);
urma_status_t urma_unimport_jetty_async(urma_target_jetty_t *tjetty);
urma_status_t urma_bind_jetty_async(
    urma_notifier_t *notifier, urma_jetty_t *jetty, urma_target_jetty_t *tjetty, uint64_t user_ctx,
    int timeout);
urma_status_t urma_unbind_jetty_async(urma_jetty_t *jetty);
urma_status_t urma_alloc_jetty(
    urma_context_t *urma_ctx, urma_jetty_cfg_t *cfg, urma_jetty_t **jetty);
urma_status_t urma_set_jetty_opt(urma_jetty_t *jetty, uint64_t opt, void *buf, uint32_t len);
urma_status_t urma_active_jetty(urma_jetty_t *jetty);
urma_status_t urma_get_jetty_opt(urma_jetty_t *jetty, uint64_t opt, void *buf, uint32_t len);
urma_status_t urma_deactive_jetty(urma_jetty_t *jetty);
urma_status_t urma_free_jetty(urma_jetty_t *jetty);
#if URMA_ABI_PROFILE == URMA_ABI_26_06
/* Bytes that a peer imports. They hold no address of this process; give them back with the put. */
urma_status_t urma_get_rjetty(urma_jetty_t *jetty, urma_rjetty_t **rjetty, uint32_t *length);
void urma_put_rjetty(urma_rjetty_t *rjetty);
#endif

/*
 * Where imports and binds that do not wait report.
 */
urma_notifier_t *urma_create_notifier(urma_context_t *ctx);
urma_status_t urma_delete_notifier(urma_notifier_t *notifier);
/* timeout in milliseconds. The number of notifications taken, or -1. */
int urma_wait_notify(urma_notifier_t *notifier, uint32_t cnt, urma_notify_t *notify, int timeout);
urma_status_t urma_ack_notify(urma_context_t *ctx, uint32_t cnt, urma_notify_t *notify);

/*
 * Memory that peers may reach.
 */
urma_token_id_t *urma_alloc_token_id(urma_context_t *ctx);
urma_token_id_t *urma_alloc_token_id_ex(urma_context_t *ctx, urma_token_id_flag_t flag);
/* URMA_EINVAL while a segment uses it. */
urma_status_t urma_free_token_id(urma_token_id_t *token_id);
/* The memory stays where it is and belongs to the caller until it is unregistered. */
urma_target_seg_t *urma_register_seg(urma_context_t *ctx, urma_seg_cfg_t *seg_cfg);
urma_status_t urma_unregister_seg(urma_target_seg_t *target_seg);
/* addr is where the segment appears here, when it is mapped; else 0. */
urma_target_seg_t *urma_import_seg(
    urma_context_t *ctx, urma_seg_t *seg, urma_token_t *token_value, uint64_t addr,
    urma_import_seg_flag_t flag);
urma_status_t urma_unimport_seg(urma_target_seg_t *tseg);
#if URMA_ABI_PROFILE == URMA_ABI_26_06
/* Bytes that a peer imports; give them back with the put. */
urma_status_t urma_get_seg_ctx(urma_target_seg_t *tseg, urma_seg_t **seg, uint32_t *size);
void urma_put_seg_ctx(urma_seg_t *seg);
#endif

/*
 * Work requests. When a list cannot be posted whole, bad_wr names the first that was not.
 */

/* Requests before bad_wr are posted, it and those after it are not. */
urma_status_t urma_post_jfs_wr(urma_jfs_t *jfs, urma_jfs_wr_t *wr, urma_jfs_wr_t **bad_wr);
urma_status_t urma_post_jfr_wr(urma_jfr_t *jfr, urma_jfr_wr_t *wr, urma_jfr_wr_t **bad_wr);
urma_status_t urma_post_jetty_send_wr(
    urma_jetty_t *jetty, urma_jfs_wr_t *wr, urma_jfs_wr_t **bad_wr);
urma_status_t urma_post_jetty_recv_wr(
    urma_jetty_t *jetty, urma_jfr_wr_t *wr, urma_jfr_wr_t **bad_wr);
/* One request of one piece; dst and src are addresses inside of the segments, len in bytes. */
urma_status_t urma_write(
    urma_jfs_t *jfs, urma_target_jetty_t *target_jfr, urma_target_seg_t *dst_tseg,
    urma_target_seg_t *src_tseg, uint64_t dst, uint64_t src, uint32_t len, urma_jfs_wr_flag_t flag,
    uint64_t user_ctx);
urma_status_t urma_read(
    urma_jfs_t *jfs, urma_target_jetty_t *target_jfr, urma_target_seg_t *dst_tseg,
    urma_target_seg_t *src_tseg, uint64_t dst, uint64_t src, uint32_t len, urma_jfs_wr_flag_t flag,
    uint64_t user_ctx);
urma_status_t urma_send(
    urma_jfs_t *jfs, urma_target_jetty_t *target_jfr, urma_target_seg_t *src_tseg, uint64_t src,
    uint32_t len, urma_jfs_wr_flag_t flag, uint64_t user_ctx);
urma_status_t urma_recv(
    urma_jfr_t *jfr, urma_target_seg_t *recv_tseg, uint64_t buf, uint32_t len, uint64_t user_ctx);

/*
 * Transport paths below queues.
 */

/* The number of the transport path of a bound jetty, or below 0. */
int urma_get_tpn(urma_jetty_t *jetty);
int urma_modify_tp(
    urma_context_t *ctx, uint32_t tpn, urma_tp_cfg_t *cfg, urma_tp_attr_t *attr,
    urma_tp_attr_mask_t mask);
/* tp_cnt goes in as room of tp_list, comes back as used. */
urma_status_t urma_get_tp_list(
    urma_context_t *ctx, urma_get_tp_cfg_t *cfg, uint32_t *tp_cnt, urma_tp_info_t *tp_list);
urma_status_t urma_set_tp_attr(
    const urma_context_t *ctx, const uint64_t tp_handle, const uint8_t tp_attr_cnt,
    const uint32_t tp_attr_bitmap, const urma_tp_attr_value_t *tp_attr);
urma_status_t urma_get_tp_attr(
    const urma_context_t *ctx, const uint64_t tp_handle, uint8_t *tp_attr_cnt,
    uint32_t *tp_attr_bitmap, urma_tp_attr_value_t *tp_attr);

/*
 * What the library says, and to whom.
 */

/* The message belongs to the library and ends with the call. */
urma_status_t urma_register_log_func(urma_log_cb_t func);
urma_status_t urma_unregister_log_func(void);
urma_vlog_level_t urma_log_get_level(void);
/* Lines of this level and more urgent ones are kept. */
void urma_log_set_level(urma_vlog_level_t level);
const char *urma_log_get_thread_tag(void);
/* Text before each line of this thread; the library copies it. */
void urma_log_set_thread_tag(const char *tag);
#if URMA_ABI_PROFILE == URMA_ABI_26_06
urma_status_t urma_register_loc_log_func(urma_loc_log_cb func);
#endif

#ifdef __cplusplus
}
#endif

#endif
