//! The mirror of the C API: what both releases have alike.
//!
//! `cargo xtask mirror` writes this file from `mirror.txt` and the golden layouts.
//!
//! *Owns*: layouts and numbers. *Must not*: do anything.

#[expect(
    clippy::disallowed_types,
    reason = "C programs share this memory: it is atomic_ulong"
)]
use core::sync::atomic::AtomicU64;

use core::ffi::{c_char, c_int, c_void};

use libc::{in_addr, in6_addr, pthread_cond_t, pthread_mutex_t, sa_family_t};

use super::layout::{c_consts, c_enums, c_flags, c_structs, c_unique};
use super::*;

c_structs! {
    /// Arguments of urma_init; both members may be 0.
    struct urma_init_attr_t[16] { 0 => token: u64, 8 => uasid: u32, }
    struct urma_guid_t[16] { 0 => raw: [u8; 16], }
    struct urma_token_t[4] { 0 => token: u32, }
    struct urma_jetty_id_t[24] { 0 => eid: urma_eid_t, 16 => uasid: u32, 20 => id: u32, }
    struct urma_eid_info_t[24] { 0 => eid: urma_eid_t, 16 => eid_index: u32, }
    /// Address of memory anywhere in the fabric.
    #[repr(packed)]
    struct urma_ubva_t[28] { 0 => eid: urma_eid_t, 16 => uasid: u32, 20 => va: u64, }
    /// One port of a device.
    struct urma_port_attr_t[20] {
        0 => max_mtu: urma_mtu_t, 4 => state: urma_port_state_t,
        8 => active_width: urma_link_width_t, 12 => active_speed: urma_speed_t,
        16 => active_mtu: urma_mtu_t,
    }
    /// The service level of a priority, and the transport paths that it serves.
    #[expect(non_snake_case, reason = "the name of C")]
    struct urma_sl_info[8] { 0 => SL: u32, 4 => tp_type: urma_tp_type_en, }
    /// A device of the list; the library owns it.
    struct urma_device_t[4184] {
        0 => name: [c_char; 64], 64 => path: [c_char; 4096], 4160 => r#type: urma_transport_type_t,
        4168 => ops: *mut urma_provider_ops_t, 4176 => sysfs_dev: *mut urma_sysfs_dev_t,
    }
    /// Where the _async calls report.
    struct urma_notifier_t[24] {
        0 => urma_ctx: *mut urma_context_t, 8 => fd: c_int,
        16 => incomplete_tjetty_list: *mut c_void,
    }
    union urma_notify_u[8] {
        0 => tjetty: *mut urma_target_jetty_t, 0 => jetty: *mut urma_jetty_t,
    }
    /// The end of one _async call.
    struct urma_notify_t[24] {
        0 => r#type: urma_notify_type_t, 4 => status: urma_status_t, 8 => user_ctx: u64,
        16 => u: urma_notify_u,
    }
    union urma_async_event_element[8] {
        0 => jfc: *mut urma_jfc_t, 0 => jfs: *mut urma_jfs_t, 0 => jfr: *mut urma_jfr_t,
        0 => jetty: *mut urma_jetty_t, 0 => jetty_grp: *mut urma_jetty_grp_t, 0 => port_id: u32,
        0 => eid_idx: u32,
    }
    /// Something that happened to an object outside of any work request.
    struct urma_async_event_t[32] {
        0 => urma_ctx: *const urma_context_t, 8 => element: urma_async_event_element,
        16 => event_type: urma_async_event_type_t, 24 => r#priv: *mut c_void,
    }
    struct urma_user_ctl_in_t[16] { 0 => addr: u64, 8 => len: u32, 12 => opcode: u32, }
    struct urma_user_ctl_out_t[16] { 0 => addr: u64, 8 => len: u32, 12 => reserved: u32, }
    /// Memory to register, and who may do what with it.
    struct urma_seg_cfg_t[48] {
        0 => va: u64, 8 => len: u64, 16 => token_id: *mut urma_token_id_t,
        24 => token_value: urma_token_t, 28 => flag: urma_reg_seg_flag_t, 32 => user_ctx: u64,
        40 => iova: u64,
    }
    /// What a peer needs in order to import a segment.
    struct urma_seg_t[48] {
        0 => ubva: urma_ubva_t, 32 => len: u64, 40 => attr: urma_seg_attr_t, 44 => token_id: u32,
    }
    /// A registered or imported segment.
    struct urma_target_seg_t[88] {
        0 => seg: urma_seg_t, 48 => user_ctx: u64, 56 => mva: u64,
        64 => urma_ctx: *mut urma_context_t, 72 => token_id: *mut urma_token_id_t,
        80 => handle: u64,
    }
    /// Completion queue: depth from 1 to max_jfc_depth; jfce may be NULL when only polled.
    struct urma_jfc_cfg_t[32] {
        0 => depth: u32, 4 => flag: urma_jfc_flag_t, 8 => ceqn: u32, 16 => jfce: *mut urma_jfce_t,
        24 => user_ctx: u64,
    }
    struct urma_jfc_attr_t[8] {
        0 => mask: u32, 4 => moderate_count: u16, 6 => moderate_period: u16,
    }
    struct urma_jfc_opt_t[80] {
        0 => jfc_opt_mask: urma_jfc_opt_mask, 8 => is_actived: u8,
        16 => urma_jfc_cqe_base_addr: u64, 24 => urma_jfc_id: u32, 32 => urma_jfc_db_addr: u64,
        40 => urma_jfc_db_status: u8, 42 => urma_jfc_pi: u16, 44 => urma_jfc_pi_type: u16,
        46 => urma_jfc_ci: u16, 48 => reserved: [u64; 4],
    }
    /// A completion queue, as programs see it.
    struct urma_jfc_t[248] {
        0 => urma_ctx: *mut urma_context_t, 8 => jfc_id: urma_jfc_id_t,
        32 => jfc_cfg: urma_jfc_cfg_t, 64 => handle: u64, 72 => event_mutex: pthread_mutex_t,
        112 => event_cond: pthread_cond_t, 160 => comp_events_acked: u32,
        164 => async_events_acked: u32, 168 => urma_jfc_opt: urma_jfc_opt_t,
    }
    struct urma_cr_token_t[8] { 0 => token_id: u32, 4 => token_value: urma_token_t, }
    union urma_cr_u[8] { 0 => imm_data: u64, 0 => invalid_token: urma_cr_token_t, }
    /// Completion record. flag.bs.s_r is 0 for a send and 1 for a receive; opcode is set on receive only.
    struct urma_cr_t[80] {
        0 => status: urma_cr_status_t, 8 => user_ctx: u64, 16 => opcode: urma_cr_opcode_t,
        20 => flag: urma_cr_flag_t, 24 => completion_len: u32, 28 => local_id: u32,
        32 => remote_id: urma_jetty_id_t, 56 => u: urma_cr_u, 64 => tpn: u32,
        72 => user_data: usize,
    }
    struct urma_jfs_opt_t[80] {
        0 => jfs_opt_mask: urma_jfs_opt_mask, 8 => is_actived: u8,
        16 => urma_jfs_sqe_base_addr: u64, 24 => urma_jfs_id: u32, 32 => urma_jfs_db_addr: u64,
        40 => urma_jfs_db_status: u8, 42 => urma_jfs_pi: u16, 44 => urma_jfs_pi_type: u16,
        46 => urma_jfs_ci: u16, 48 => reserved: [u64; 4],
    }
    /// Send queue. order_type 0 is replaced by the default of the mode, in this struct.
    struct urma_jfs_cfg_t[40] {
        0 => depth: u32, 4 => flag: urma_jfs_flag_t, 8 => trans_mode: urma_transport_mode_t,
        12 => priority: u8, 13 => max_sge: u8, 14 => max_rsge: u8, 16 => max_inline_data: u32,
        20 => rnr_retry: u8, 21 => err_timeout: u8, 24 => jfc: *mut urma_jfc_t, 32 => user_ctx: u64,
    }
    /// A send queue, as programs see it.
    struct urma_jfs_t[256] {
        0 => urma_ctx: *mut urma_context_t, 8 => jfs_id: urma_jfs_id_t,
        32 => jfs_cfg: urma_jfs_cfg_t, 72 => handle: u64, 80 => event_mutex: pthread_mutex_t,
        120 => event_cond: pthread_cond_t, 168 => async_events_acked: u32,
        176 => urma_jfs_opt: urma_jfs_opt_t,
    }
    struct urma_jfs_attr_t[8] { 0 => mask: u32, 4 => state: urma_jfs_state_t, }
    struct urma_jfr_opt_t[80] {
        0 => jfr_opt_mask: urma_jfr_opt_mask, 8 => is_actived: u8,
        16 => urma_jfr_rqe_base_addr: u64, 24 => urma_jfr_id: u32, 32 => urma_jfr_db_addr: u64,
        40 => urma_jfr_db_status: u8, 42 => urma_jfr_pi: u16, 44 => urma_jfr_pi_type: u16,
        46 => urma_jfr_ci: u16, 48 => reserved: [u64; 4],
    }
    /// Receive queue; id 0 lets the library choose.
    struct urma_jfr_cfg_t[48] {
        0 => id: u32, 4 => depth: u32, 8 => flag: urma_jfr_flag_t,
        12 => trans_mode: urma_transport_mode_t, 16 => max_sge: u8, 17 => min_rnr_timer: u8,
        24 => jfc: *mut urma_jfc_t, 32 => token_value: urma_token_t, 40 => user_ctx: u64,
    }
    struct urma_jfr_attr_t[12] {
        0 => mask: u32, 4 => rx_threshold: u32, 8 => state: urma_jfr_state_t,
    }
    /// A receive queue, as programs see it.
    struct urma_jfr_t[264] {
        0 => urma_ctx: *mut urma_context_t, 8 => jfr_id: urma_jfr_id_t,
        32 => jfr_cfg: urma_jfr_cfg_t, 80 => handle: u64, 88 => event_mutex: pthread_mutex_t,
        128 => event_cond: pthread_cond_t, 176 => async_events_acked: u32,
        184 => urma_jfr_opt: urma_jfr_opt_t,
    }
    struct urma_jetty_cfg_u_shared[16] { 0 => jfr: *mut urma_jfr_t, 8 => jfc: *mut urma_jfc_t, }
    union urma_jetty_cfg_u[16] {
        0 => shared: urma_jetty_cfg_u_shared, 0 => jfr_cfg: *mut urma_jfr_cfg_t,
    }
    /// Jetty: a send queue with an own or a shared receive queue. On UB devices it is shared.
    struct urma_jetty_cfg_t[80] {
        0 => id: u32, 4 => flag: urma_jetty_flag_t, 8 => jfs_cfg: urma_jfs_cfg_t,
        48 => u: urma_jetty_cfg_u, 64 => jetty_grp: *mut urma_jetty_grp_t, 72 => user_ctx: u64,
    }
    struct urma_jetty_attr_t[12] {
        0 => mask: u32, 4 => rx_threshold: u32, 8 => state: urma_jetty_state_t,
    }
    struct urma_jetty_opt_t[120] {
        0 => is_actived: u8, 8 => jfs_opt: urma_jfs_opt_t, 88 => reserved: [u64; 4],
    }
    /// A jetty, as programs see it.
    struct urma_jetty_t[344] {
        0 => urma_ctx: *mut urma_context_t, 8 => jetty_id: urma_jetty_id_t,
        32 => remote_jetty: *mut urma_target_jetty_t, 40 => jetty_cfg: urma_jetty_cfg_t,
        120 => handle: u64, 128 => event_mutex: pthread_mutex_t, 168 => event_cond: pthread_cond_t,
        216 => async_events_acked: u32, 224 => urma_jetty_opt: urma_jetty_opt_t,
    }
    struct urma_jetty_grp_cfg_t[88] {
        0 => name: [c_char; 64], 64 => flag: urma_jetty_grp_flag_t, 68 => token_value: urma_token_t,
        72 => id: u32, 76 => policy: urma_jetty_grp_policy_t, 80 => user_ctx: u64,
    }
    struct urma_jetty_grp_t[280] {
        0 => urma_ctx: *mut urma_context_t, 8 => jetty_grp_id: urma_jetty_id_t,
        32 => cfg: urma_jetty_grp_cfg_t, 120 => jetty_cnt: u32,
        128 => jetty_list: *mut *mut urma_jetty_t, 136 => list_mutex: pthread_mutex_t,
        176 => handle: u64, 184 => event_mutex: pthread_mutex_t, 224 => event_cond: pthread_cond_t,
        272 => async_events_acked: u32,
    }
    struct urma_user_tseg_t[12] {
        0 => attr: urma_seg_attr_t, 4 => token_id: u32, 8 => token_value: urma_token_t,
    }
    /// One piece of memory of a work request.
    struct urma_sge_t[32] {
        0 => addr: u64, 8 => len: u32, 16 => tseg: *mut urma_target_seg_t,
        24 => user_tseg: *mut urma_user_tseg_t,
    }
    /// Pieces of memory, in order.
    struct urma_sg_t[16] { 0 => sge: *mut urma_sge_t, 8 => num_sge: u32, }
    /// Write and read. With WRITE_NOTIFY and WRITE_ATOMIC `dst.sge[1]` is where notify_data goes.
    struct urma_rw_wr_t[48] {
        0 => src: urma_sg_t, 16 => dst: urma_sg_t, 32 => target_hint: u8, 40 => notify_data: u64,
    }
    /// Send. tseg names the segment whose token SEND_INVALIDATE takes away.
    struct urma_send_wr_t[40] {
        0 => src: urma_sg_t, 16 => target_hint: u8, 24 => imm_data: u64,
        32 => tseg: *mut urma_target_seg_t,
    }
    /// Compare and swap: 8 bytes or fewer in the data members, 16 by address.
    struct urma_cas_wr_t[32] {
        0 => dst: *mut urma_sge_t, 8 => src: *mut urma_sge_t, 16 => cmp_data: u64,
        24 => swap_data: u64,
    }
    /// Fetch and add: 8 bytes or fewer in operand, 16 by address.
    struct urma_faa_wr_t[24] {
        0 => dst: *mut urma_sge_t, 8 => src: *mut urma_sge_t, 16 => operand: u64,
    }
    union urma_jfs_wr_u[48] {
        0 => rw: urma_rw_wr_t, 0 => send: urma_send_wr_t, 0 => cas: urma_cas_wr_t,
        0 => faa: urma_faa_wr_t,
    }
    /// Work request of a send queue; next makes a list.
    struct urma_jfs_wr_t[80] {
        0 => opcode: urma_opcode_t, 4 => flag: urma_jfs_wr_flag_t,
        8 => tjetty: *mut urma_target_jetty_t, 16 => user_ctx: u64, 24 => u: urma_jfs_wr_u,
        72 => next: *mut urma_jfs_wr_t,
    }
    /// Work request of a receive queue; next makes a list.
    struct urma_jfr_wr_t[32] {
        0 => src: urma_sg_t, 16 => user_ctx: u64, 24 => next: *mut urma_jfr_wr_t,
    }
    struct urma_tp_t[4] { 0 => tpn: u32, }
    struct urma_tp_cfg_t[16] {
        0 => flag: urma_tp_cfg_flag_t, 4 => trans_mode: urma_transport_mode_t, 8 => retry_num: u8,
        9 => retry_factor: u8, 10 => ack_timeout: u8, 11 => dscp: u8, 12 => oor_cnt: u32,
    }
    union urma_net_addr_u[16] { 0 => in4: in_addr, 0 => in6: in6_addr, }
    struct urma_net_addr_t[48] {
        0 => sin_family: sa_family_t, 4 => u: urma_net_addr_u, 24 => vlan: u64, 32 => mac: [u8; 6],
        40 => prefix_len: u32,
    }
    struct urma_net_addr_info_t[56] { 0 => netaddr: urma_net_addr_t, 48 => index: u32, }
    struct urma_tp_attr_t[112] {
        0 => flag: urma_tp_mod_flag_t, 4 => peer_tpn: u32, 8 => state: urma_tp_state_t,
        12 => tx_psn: u32, 16 => rx_psn: u32, 20 => mtu: urma_mtu_t, 24 => cc_pattern_idx: u8,
        28 => oos_cnt: u32, 32 => local_net_addr_idx: u32, 40 => peer_net_addr: urma_net_addr_t,
        88 => data_udp_start: u16, 90 => ack_udp_start: u16, 92 => udp_range: u8,
        93 => hop_limit: u8, 96 => flow_label: u32, 100 => port_id: u8, 101 => mn: u8,
        104 => peer_trans_type: urma_transport_type_t,
    }
    struct urma_get_tp_cfg_t[40] {
        0 => flag: urma_get_tp_cfg_flag_t, 4 => trans_mode: urma_transport_mode_t,
        8 => local_eid: urma_eid_t, 24 => peer_eid: urma_eid_t,
    }
    struct urma_tp_info_t[8] { 0 => tp_handle: u64, }
    struct urma_active_tp_attr_t[16] { 0 => tx_psn: u32, 4 => rx_psn: u32, 8 => reserved: u64, }
    struct urma_active_tp_cfg_t[40] {
        0 => tp_handle: u64, 8 => peer_tp_handle: u64, 16 => tag: u64,
        24 => tp_attr: urma_active_tp_attr_t,
    }
}

c_unique! {
    /// Number of users of an object.
    #[expect(clippy::disallowed_types, reason = "C programs share this memory: atomic_ulong")]
    struct urma_ref_t[8] { 0 => atomic_cnt: AtomicU64, }
    /// An opened device. The library fills it; ops may be replaced by a program that watches calls.
    struct urma_context_t[104] {
        0 => dev: *mut urma_device_t, 8 => ops: *mut urma_ops_t, 16 => dev_fd: c_int,
        20 => async_fd: c_int, 24 => mutex: pthread_mutex_t, 64 => eid: urma_eid_t,
        80 => eid_index: u32, 84 => uasid: u32, 88 => r#ref: urma_ref_t,
        96 => aggr_mode: urma_context_aggr_mode_t,
    }
    /// Completion event channel: fd becomes readable when an armed JFC has a completion.
    struct urma_jfce_t[24] {
        0 => urma_ctx: *mut urma_context_t, 8 => fd: c_int, 16 => r#ref: urma_ref_t,
    }
    /// Token identifier: names the segments registered with it.
    struct urma_token_id_t[40] {
        0 => urma_ctx: *mut urma_context_t, 8 => token_id: u32, 16 => handle: u64,
        24 => r#ref: urma_ref_t, 32 => flag: urma_token_id_flag_t,
    }
}

c_consts! {
    u32 { MAX_PORT_CNT = 8, }
    u32 {
        URMA_TOKEN_NONE = 0, URMA_ACCESS_LOCAL_ONLY = 1, URMA_ACCESS_READ = 2,
        URMA_ACCESS_WRITE = 4, URMA_ACCESS_ATOMIC = 8,
    }
    i32 { URMA_SUCCESS = 0, URMA_EAGAIN = 11, URMA_EINVAL = 22, }
    u64 {
        URMA_JFS_DEPTH = 1, URMA_JFS_FLAG = 2, URMA_JFS_TRANS_MODE = 3, URMA_JFS_PRIORITY = 4,
        URMA_JFS_MAX_SGE = 5, URMA_JFS_MAX_RSGE = 6, URMA_JFS_MAX_INLINE_DATA = 7,
        URMA_JFS_RNR_RETRY = 8, URMA_JFS_ERR_TIMEOUT = 9, URMA_JFS_BIND_JFC = 10,
        URMA_JFS_USER_CTX = 11, URMA_JFS_SQE_BASE_ADDR = 12, URMA_JFS_ID = 13,
        URMA_JFS_DB_ADDR = 14, URMA_JFS_DB_STATUS = 15, URMA_JFS_PI = 16, URMA_JFS_PI_TYPE = 17,
        URMA_JFS_CI = 18, URMA_JFR_DEPTH = 4097, URMA_JFR_FLAG = 4098, URMA_JFR_TRANS_MODE = 4099,
        URMA_JFR_MAX_SGE = 4100, URMA_JFR_MIN_RNR_TIMER = 4101, URMA_JFR_BIND_JFC = 4102,
        URMA_JFR_TOKEN_VALUE = 4103, URMA_JFR_USER_CTX = 4104, URMA_JFR_RQE_BASE_ADDR = 4105,
        URMA_JFR_ID = 4106, URMA_JFR_DB_ADDR = 4107, URMA_JFR_DB_STATUS = 4108, URMA_JFR_PI = 4109,
        URMA_JFR_PI_TYPE = 4110, URMA_JFR_CI = 4111, URMA_JFC_DEPTH = 8193, URMA_JFC_CEQN = 8194,
        URMA_JFC_FLAG = 8195, URMA_JFC_BIND_JFCE = 8196, URMA_JFC_USER_CTX = 8197,
        URMA_JFC_CQE_BASE_ADDR = 8198, URMA_JFC_ID = 8199, URMA_JFC_DB_ADDR = 8200,
        URMA_JFC_DB_STATUS = 8201, URMA_JFC_PI = 8202, URMA_JFC_PI_TYPE = 8203, URMA_JFC_CI = 8204,
        URMA_JETTY_ID = 12289, URMA_JETTY_FLAG = 12290, URMA_JETTY_BIND_JFR = 12291,
        URMA_JETTY_BIND_RX_JFC = 12292, URMA_JETTY_BIND_JTG = 12293, URMA_JETTY_USER_CTX = 12294,
    }
}

c_enums! {
    urma_transport_mode_t: u32 { URMA_TM_RM = 1, URMA_TM_RC = 2, URMA_TM_UM = 4, }
    urma_opt_name_t: u32 { URMA_OPT_AGGR_MODE = 0, }
    urma_context_aggr_mode_t: u32 {
        URMA_AGGR_MODE_STANDALONE = 0, URMA_AGGR_MODE_ACTIVE_BACKUP = 1, URMA_AGGR_MODE_BALANCE = 2,
    }
    urma_jfc_attr_mask_t: u32 { JFC_MODERATE_COUNT = 1, JFC_MODERATE_PERIOD = 2, }
    urma_order_type_t: u32 {
        URMA_DEF_ORDER = 0, URMA_OT = 1, URMA_OI = 2, URMA_OL = 3, URMA_NO = 4,
    }
    urma_jfs_attr_mask_t: u32 { JFS_STATE = 1, }
    urma_jfr_attr_mask_t: u32 { JFR_RX_THRESHOLD = 1, JFR_STATE = 2, }
    urma_tp_type_t: u32 { URMA_RTP = 0, URMA_CTP = 1, URMA_UTP = 2, }
    urma_target_type_t: u32 { URMA_JFR = 0, URMA_JETTY = 1, URMA_JETTY_GROUP = 2, }
    urma_jetty_attr_mask_t: u32 { JETTY_RX_THRESHOLD = 1, JETTY_STATE = 2, }
    urma_notify_type_t: u32 { URMA_IMPORT_JETTY_NOTIFY = 0, URMA_BIND_JETTY_NOTIFY = 1, }
    urma_async_event_type_t: u32 { URMA_EVENT_JETTY_GRP_ERR = 6, }
    urma_transport_type_t: i32 { URMA_TRANSPORT_UB = 0, }
    urma_congestion_ctrl_alg_t: u32 { URMA_CC_NONE = 1, }
    urma_perf_record_type_t: u32 {
        UB_JETTY_POST_SEND = 0, BOND_JETTY_POST_SEND = 1, UB_JFS_POST_SEND = 2,
        BOND_JFS_POST_SEND = 3, UB_JETTY_POST_RECV = 4, BOND_JETTY_POST_RECV = 5,
        UB_POST_JFR_RECV = 6, BOND_POST_JFR_RECV = 7, UB_POLL_JFC = 8, BOND_POLL_JFC = 9,
        UB_WAIT_JFC = 10, BOND_WAIT_JFC = 11, UB_ACK_JFC = 12, UB_REARM_JFC = 13,
        BOND_REARM_JFC = 14, URMA_PERF_RECORD_TYPE_MAX = 15,
    }
    bondp_user_ctl_opcode_t: u32 {
        BONDP_USER_CTL_SET_BONDING_MODE_LEGACY = 4, BONDP_USER_CTL_ENABLE_SEG_CACHE = 5,
        BONDP_USER_CTL_QUERY_PORT = 6, BONDP_USER_CTL_SET_BONDING_MODE = 7,
        BONDP_USER_CTL_GET_JFCE_FD_LIST = 8, BONDP_USER_CTL_OPCODE_GET_RJETTY = 9,
        BONDP_USER_CTL_OPCODE_GET_SEG_CTX = 10, BONDP_USER_CTL_DISABLE_MSN = 11,
    }
    bondp_bonding_mode_t: u32 { BONDP_BONDING_MODE_MAX = 3, }
    bondp_bonding_level_t: u32 { BONDP_BONDING_LEVEL_MAX = 2, }
    bondp_rjetty_ext_mask_t: u32 {
        BONDP_RJETTY_EXT_MASK_MULTI_PATH = 1, BONDP_RJETTY_EXT_MASK_LOCAL_CTX = 4,
        BONDP_RJETTY_EXT_MASK_TARGET_CTX = 8,
    }
    udma_u_jfc_type: u32 { UDMA_U_NORMAL_JFC_TYPE = 0, }
}

c_flags! {
    /// What a device can do, one bit each.
    urma_device_feature_t: u32 {
        0, 1 => oor, set_oor; 1, 1 => jfc_per_wr, set_jfc_per_wr; 2, 1 => stride_op, set_stride_op;
        3, 1 => load_store_op, set_load_store_op; 4, 1 => non_pin, set_non_pin;
        5, 1 => pmem, set_pmem; 6, 1 => jfc_inline, set_jfc_inline; 7, 1 => spray_en, set_spray_en;
        8, 1 => selective_retrans, set_selective_retrans; 9, 1 => live_migrate, set_live_migrate;
        10, 1 => dca, set_dca; 11, 1 => jetty_grp, set_jetty_grp;
        12, 1 => error_suspend, set_error_suspend; 13, 1 => outorder_comp, set_outorder_comp;
        14, 1 => mn, set_mn; 15, 1 => clan, set_clan;
        16, 1 => muti_seg_per_token_id, set_muti_seg_per_token_id;
        17, 1 => ipourma_en, set_ipourma_en; 18, 1 => ctp_en, set_ctp_en; 19, 1 => uboe, set_uboe;
    }
    urma_atomic_feature_t: u32 {
        0, 1 => cas, set_cas; 1, 1 => swap, set_swap; 2, 1 => fetch_and_add, set_fetch_and_add;
        3, 1 => fetch_and_sub, set_fetch_and_sub; 4, 1 => fetch_and_and, set_fetch_and_and;
        5, 1 => fetch_and_or, set_fetch_and_or; 6, 1 => fetch_and_xor, set_fetch_and_xor;
    }
    urma_order_type_cap_t: u32 {
        0, 1 => ot, set_ot; 1, 1 => oi, set_oi; 2, 1 => ol, set_ol; 3, 1 => no, set_no;
    }
    urma_tp_type_cap_t: u32 { 0, 1 => rtp, set_rtp; 1, 1 => ctp, set_ctp; 2, 1 => utp, set_utp; }
    urma_tp_feature_t: u32 {
        0, 1 => rm_multi_path, set_rm_multi_path; 1, 1 => rc_multi_path, set_rc_multi_path;
    }
    urma_tp_type_en: u32 { 0, 1 => rtp, set_rtp; 1, 1 => ctp, set_ctp; 2, 1 => utp, set_utp; }
    urma_reg_seg_flag_t: u32 {
        0, 3 => token_policy, set_token_policy; 3, 1 => cacheable, set_cacheable;
        4, 1 => dsva, set_dsva; 5, 6 => access, set_access; 11, 1 => non_pin, set_non_pin;
        12, 1 => user_iova, set_user_iova; 13, 1 => token_id_valid, set_token_id_valid;
    }
    urma_import_seg_flag_t: u32 {
        0, 1 => cacheable, set_cacheable; 1, 6 => access, set_access; 7, 1 => mapping, set_mapping;
    }
    urma_token_id_flag_t: u32 { 0, 1 => multi_seg, set_multi_seg; }
    urma_jfc_opt_mask: u64 {
        0, 1 => urma_jfc_cqe_base_addr, set_urma_jfc_cqe_base_addr;
        1, 1 => urma_jfc_db_addr, set_urma_jfc_db_addr; 2, 1 => urma_jfc_id, set_urma_jfc_id;
        3, 1 => urma_jfc_pi, set_urma_jfc_pi; 4, 1 => urma_jfc_pi_type, set_urma_jfc_pi_type;
        5, 1 => urma_jfc_ci, set_urma_jfc_ci; 6, 1 => urma_jfc_db_status, set_urma_jfc_db_status;
    }
    urma_cr_flag_t: u8 {
        0, 1 => s_r, set_s_r; 1, 1 => jetty, set_jetty; 2, 1 => suspend_done, set_suspend_done;
        3, 1 => flush_err_done, set_flush_err_done;
    }
    urma_jfs_flag_t: u32 {
        0, 1 => lock_free, set_lock_free; 1, 1 => error_suspend, set_error_suspend;
        2, 1 => outorder_comp, set_outorder_comp; 3, 8 => order_type, set_order_type;
        11, 1 => multi_path, set_multi_path;
        12, 1 => ctp_rc_mul_path_mode, set_ctp_rc_mul_path_mode;
        13, 1 => non_blocking, set_non_blocking; 14, 1 => has_drv_ext, set_has_drv_ext;
    }
    urma_jfs_opt_mask: u64 {
        0, 1 => urma_jfs_cqe_base_addr, set_urma_jfs_cqe_base_addr;
        1, 1 => urma_jfs_db_addr, set_urma_jfs_db_addr; 2, 1 => urma_jfs_id, set_urma_jfs_id;
        3, 1 => urma_jfs_pi, set_urma_jfs_pi; 4, 1 => urma_jfs_pi_type, set_urma_jfs_pi_type;
        5, 1 => urma_jfs_ci, set_urma_jfs_ci; 6, 1 => urma_jfs_db_status, set_urma_jfs_db_status;
    }
    urma_jfr_opt_mask: u64 {
        0, 1 => urma_jfr_cqe_base_addr, set_urma_jfr_cqe_base_addr;
        1, 1 => urma_jfr_db_addr, set_urma_jfr_db_addr; 2, 1 => urma_jfr_id, set_urma_jfr_id;
        3, 1 => urma_jfr_pi, set_urma_jfr_pi; 4, 1 => urma_jfr_pi_type, set_urma_jfr_pi_type;
        5, 1 => urma_jfr_ci, set_urma_jfr_ci; 6, 1 => urma_jfr_db_status, set_urma_jfr_db_status;
    }
    urma_jetty_grp_flag_t: u32 { 0, 3 => token_policy, set_token_policy; }
    urma_tp_cfg_flag_t: u32 {
        0, 1 => target, set_target; 1, 1 => loopback, set_loopback;
        2, 1 => dca_enable, set_dca_enable; 3, 1 => bonding, set_bonding;
    }
    urma_tp_attr_mask_t: u32 {
        0, 1 => flag, set_flag; 1, 1 => peer_tpn, set_peer_tpn; 2, 1 => state, set_state;
        3, 1 => tx_psn, set_tx_psn; 4, 1 => rx_psn, set_rx_psn; 5, 1 => mtu, set_mtu;
        6, 1 => cc_pattern_idx, set_cc_pattern_idx; 7, 1 => oos_cnt, set_oos_cnt;
        8, 1 => local_net_addr_idx, set_local_net_addr_idx;
        9, 1 => peer_net_addr, set_peer_net_addr; 10, 1 => data_udp_start, set_data_udp_start;
        11, 1 => ack_udp_start, set_ack_udp_start; 12, 1 => udp_range, set_udp_range;
        13, 1 => hop_limit, set_hop_limit; 14, 1 => flow_label, set_flow_label;
        15, 1 => port_id, set_port_id; 16, 1 => mn, set_mn;
        17, 1 => peer_trans_type, set_peer_trans_type;
    }
    urma_tp_mod_flag_t: u32 {
        0, 1 => oor_en, set_oor_en; 1, 1 => sr_en, set_sr_en; 2, 1 => cc_en, set_cc_en;
        3, 4 => cc_alg, set_cc_alg; 7, 1 => spray_en, set_spray_en; 8, 1 => clan, set_clan;
    }
    /// First byte of the attributes of a transport path.
    urma_tp_attr_retry: u8 { 0, 3 => retry_times_init, set_retry_times_init; 3, 5 => at, set_at; }
    /// Bytes 45 to 47 of the attributes of a transport path, as a word.
    urma_tp_attr_vlan_word: u32 {
        0, 12 => vlan_id, set_vlan_id; 12, 1 => vlan_en, set_vlan_en; 13, 6 => dscp, set_dscp;
        19, 5 => at_times, set_at_times;
    }
    /// Byte 48 of the attributes of a transport path.
    urma_tp_attr_sl: u8 { 0, 4 => sl, set_sl; }
    /// Byte 54 of the attributes of a transport path.
    urma_tp_attr_udp: u8 {
        0, 4 => udp_srcport_range, set_udp_srcport_range; 4, 1 => spray_en, set_spray_en;
        5, 1 => udp_global_en, set_udp_global_en;
    }
}
