//! Commands of device files: contexts, addresses, transport paths.
//!
//! *Owns*: the layout of `urma_cmd.h`. *Must not*: do anything.

use core::ffi::c_int;

use super::super::layout::{c_consts, c_enums, c_flags, c_structs};
use super::super::{
    urma_cmd_udrv_priv_t, urma_eid_info_t, urma_eid_t, urma_get_tp_cfg_t, urma_net_addr_t,
    urma_notify_type_t, urma_status_t, urma_tp_attr_mask_t, urma_tp_attr_t, urma_tp_cfg_t,
};

c_consts! {
    u32 {
        URMA_CMD_MAX_ARGS_SIZE = 4096,
        URMA_CMD_EID_SIZE = 16,
        URMA_CMD_TP_ATTR_BYTES = 128,
    }
}

c_enums! {
    urma_cmd_t: u32 {
        URMA_CMD_CREATE_CTX = 1,
        URMA_CMD_ALLOC_TOKEN_ID = 2,
        URMA_CMD_FREE_TOKEN_ID = 3,
        URMA_CMD_REGISTER_SEG = 4,
        URMA_CMD_UNREGISTER_SEG = 5,
        URMA_CMD_IMPORT_SEG = 6,
        URMA_CMD_UNIMPORT_SEG = 7,
        URMA_CMD_CREATE_JFS = 8,
        URMA_CMD_MODIFY_JFS = 9,
        URMA_CMD_QUERY_JFS = 10,
        URMA_CMD_DELETE_JFS = 11,
        URMA_CMD_CREATE_JFR = 12,
        URMA_CMD_MODIFY_JFR = 13,
        URMA_CMD_QUERY_JFR = 14,
        URMA_CMD_DELETE_JFR = 15,
        URMA_CMD_CREATE_JFC = 16,
        URMA_CMD_MODIFY_JFC = 17,
        URMA_CMD_DELETE_JFC = 18,
        URMA_CMD_CREATE_JFCE = 19,
        URMA_CMD_IMPORT_JFR = 20,
        URMA_CMD_UNIMPORT_JFR = 21,
        URMA_CMD_CREATE_JETTY = 22,
        URMA_CMD_MODIFY_JETTY = 23,
        URMA_CMD_QUERY_JETTY = 24,
        URMA_CMD_DELETE_JETTY = 25,
        URMA_CMD_IMPORT_JETTY = 26,
        URMA_CMD_UNIMPORT_JETTY = 27,
        URMA_CMD_ADVISE_JFR = 28,
        URMA_CMD_UNADVISE_JFR = 29,
        URMA_CMD_ADVISE_JETTY = 30,
        URMA_CMD_UNADVISE_JETTY = 31,
        URMA_CMD_BIND_JETTY = 32,
        URMA_CMD_UNBIND_JETTY = 33,
        URMA_CMD_CREATE_JETTY_GRP = 34,
        URMA_CMD_DESTROY_JETTY_GRP = 35,
        URMA_CMD_USER_CTL = 36,
        URMA_CMD_GET_EID_LIST = 37,
        URMA_CMD_GET_NETADDR_LIST = 38,
        URMA_CMD_MODIFY_TP = 39,
        URMA_CMD_QUERY_DEV_ATTR = 40,
        URMA_CMD_IMPORT_JETTY_ASYNC = 41,
        URMA_CMD_UNIMPORT_JETTY_ASYNC = 42,
        URMA_CMD_BIND_JETTY_ASYNC = 43,
        URMA_CMD_UNBIND_JETTY_ASYNC = 44,
        URMA_CMD_CREATE_NOTIFIER = 45,
        URMA_CMD_GET_TP_LIST = 46,
        URMA_CMD_IMPORT_JETTY_EX = 47,
        URMA_CMD_IMPORT_JFR_EX = 48,
        URMA_CMD_BIND_JETTY_EX = 49,
        URMA_CMD_DELETE_JFS_BATCH = 50,
        URMA_CMD_DELETE_JFR_BATCH = 51,
        URMA_CMD_DELETE_JFC_BATCH = 52,
        URMA_CMD_DELETE_JETTY_BATCH = 53,
        URMA_CMD_SET_TP_ATTR = 54,
        URMA_CMD_GET_TP_ATTR = 55,
        URMA_CMD_EXCHANGE_TP_INFO = 56,
        URMA_CMD_GET_EID_BY_IP = 57,
        URMA_CMD_GET_IP_BY_EID = 58,
        URMA_CMD_GET_SMAC = 59,
        URMA_CMD_GET_DMAC = 60,
        URMA_CMD_ALLOC_JFC = 61,
        URMA_CMD_FREE_JFC = 62,
        URMA_CMD_SET_JFC_OPT = 63,
        URMA_CMD_GET_JFC_OPT = 64,
        URMA_CMD_ACTIVE_JFC = 65,
        URMA_CMD_DEACTIVE_JFC = 66,
        URMA_CMD_ALLOC_JFR = 67,
        URMA_CMD_FREE_JFR = 68,
        URMA_CMD_SET_JFR_OPT = 69,
        URMA_CMD_GET_JFR_OPT = 70,
        URMA_CMD_ACTIVE_JFR = 71,
        URMA_CMD_DEACTIVE_JFR = 72,
        URMA_CMD_ALLOC_JFS = 73,
        URMA_CMD_FREE_JFS = 74,
        URMA_CMD_SET_JFS_OPT = 75,
        URMA_CMD_GET_JFS_OPT = 76,
        URMA_CMD_ACTIVE_JFS = 77,
        URMA_CMD_DEACTIVE_JFS = 78,
        URMA_CMD_ALLOC_JETTY = 79,
        URMA_CMD_FREE_JETTY = 80,
        URMA_CMD_SET_JETTY_OPT = 81,
        URMA_CMD_GET_JETTY_OPT = 82,
        URMA_CMD_ACTIVE_JETTY = 83,
        URMA_CMD_DEACTIVE_JETTY = 84,
        URMA_CMD_GET_JFCE_CNT = 85,
        URMA_CMD_MAX = 86,
    }

    urma_core_cmd_t: u32 {
        URMA_CORE_CMD_QUERY_STATS = 1,
        URMA_CORE_CMD_QUERY_RES = 2,
        URMA_CORE_CMD_ADD_EID = 3,
        URMA_CORE_CMD_DEL_EID = 4,
        URMA_CORE_CMD_SET_EID_MODE = 5,
        URMA_CORE_SET_DEV_NS_MODE = 6,
        URMA_CORE_SET_DEV_NS = 7,
        URMA_CORE_EXPOSE_DEV_NS = 8,
        URMA_CORE_UNEXPOSE_DEV_NS = 9,
        URMA_CORE_SET_DEV_EID_NS = 10,
        URMA_CORE_GET_TOPO_INFO = 11,
        URMA_CORE_SET_SL = 12,
        URMA_CORE_SET_GENL_PID = 13,
        URMA_CORE_ADMIN_INSERT_MAIN_UE_EID = 35,
        URMA_CORE_ADMIN_DELETE_MAIN_UE_EID = 36,
        URMA_CORE_ADMIN_LOOKUP_MAIN_UE_EID = 37,
        URMA_CORE_ADMIN_FLUSH_MAIN_UE_EID = 38,
        URMA_CORE_ADMIN_INSERT_MAIN_UE_EID_BATCH = 39,
        URMA_CORE_PERF_START = 40,
        URMA_CORE_PERF_STOP = 41,
        URMA_CORE_PERF_SHOW = 42,
        URMA_CORE_SET_EID_NS_MODE = 43,
        URMA_CORE_SHOW_TPID_LIST = 44,
        URMA_CORE_SHOW_TPID_REUSE = 45,
        URMA_CORE_SHOW_SYSTEM = 46,
    }

    urma_event_cmd_t: u32 {
        URMA_EVENT_CMD_WAIT_JFCE = 1,
        URMA_EVENT_CMD_GET_ASYNC_EVENT = 2,
        URMA_EVENT_CMD_WAIT_NOTIFY = 3,
        URMA_EVENT_CMD_MAX = 4,
    }

    urma_cmd_net_addr_type_t: u32 {
        URMA_CMD_NET_ADDR_TYPE_IPV4 = 0,
        URMA_CMD_NET_ADDR_TYPE_IPV6 = 1,
    }
}

c_flags! {
    urma_cmd_attr_attr_data: u32 {
        0, 12 => el_num, set_el_num;
        12, 12 => el_size, set_el_size;
    }
}

c_structs! {
    #[derive(Clone, Copy)]
    struct urma_cmd_hdr_t[16] {
        0 => command: u32,
        4 => args_len: u32,
        8 => args_addr: u64,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_attr_t[16] {
        0 => r#type: u8,
        1 => flag: u8,
        2 => field_size: u16,
        4 => attr_data: urma_cmd_attr_attr_data,
        8 => data: u64,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_create_ctx_in[20] {
        0 => eid: [u8; 16],
        16 => eid_index: u32,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_create_ctx_out[4] {
        0 => async_fd: c_int,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_create_ctx_t[56] {
        0 => r#in: urma_cmd_create_ctx_in,
        20 => out: urma_cmd_create_ctx_out,
        24 => udata: urma_cmd_udrv_priv_t,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_get_eid_list_in[4] {
        0 => max_eid_cnt: u32,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_get_eid_list_out[24584] {
        0 => eid_cnt: u32,
        8 => eid_list: [urma_eid_info_t; 1024],
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_get_eid_list_t[24592] {
        0 => r#in: urma_cmd_get_eid_list_in,
        8 => out: urma_cmd_get_eid_list_out,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_user_ctl_in[16] {
        0 => addr: u64,
        8 => len: u32,
        12 => opcode: u32,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_user_ctl_out[16] {
        0 => addr: u64,
        8 => len: u32,
        12 => reserved: u32,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_user_ctl_udrv[32] {
        0 => in_addr: u64,
        8 => in_len: u32,
        16 => out_addr: u64,
        24 => out_len: u32,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_user_ctl_t[64] {
        0 => r#in: urma_cmd_user_ctl_in,
        16 => out: urma_cmd_user_ctl_out,
        32 => udrv: urma_cmd_user_ctl_udrv,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_net_addr_t[48] {
        0 => r#type: urma_cmd_net_addr_type_t,
        8 => net_addr: urma_cmd_net_addr_union,
        24 => vlan: u64,
        32 => mac: [u8; 6],
        40 => prefix_len: u32,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_net_addr_info_t[56] {
        0 => netaddr: urma_cmd_net_addr_t,
        48 => index: u32,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_get_net_addr_list_in[4] {
        0 => max_netaddr_cnt: u32,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_get_net_addr_list_out[24] {
        0 => netaddr_cnt: u32,
        8 => addr: u64,
        16 => len: u64,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_get_net_addr_list_t[32] {
        0 => r#in: urma_cmd_get_net_addr_list_in,
        8 => out: urma_cmd_get_net_addr_list_out,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_modify_tp_in[144] {
        0 => tpn: u32,
        4 => tp_cfg: urma_tp_cfg_t,
        24 => attr: urma_tp_attr_t,
        136 => mask: urma_tp_attr_mask_t,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_modify_tp_t[144] {
        0 => r#in: urma_cmd_modify_tp_in,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_create_notifier_out[4] {
        0 => fd: c_int,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_create_notifier_t[4] {
        0 => out: urma_cmd_create_notifier_out,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_async_event_t[24] {
        0 => event_type: u32,
        8 => event_data: u64,
        16 => pad: u32,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_notify_t[32] {
        0 => r#type: urma_notify_type_t,
        4 => status: urma_status_t,
        8 => user_ctx: u64,
        16 => urma_jetty: u64,
        24 => vtpn: u32,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_wait_notify_in[8] {
        0 => cnt: u32,
        4 => timeout: c_int,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_wait_notify_out[520] {
        0 => cnt: u32,
        8 => notify: [urma_cmd_notify_t; 16],
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_wait_notify_t[528] {
        0 => r#in: urma_cmd_wait_notify_in,
        8 => out: urma_cmd_wait_notify_out,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_get_tp_list_in[48] {
        0 => flag: u32,
        4 => trans_mode: u32,
        8 => local_eid: [u8; 16],
        24 => peer_eid: [u8; 16],
        40 => tp_cnt: u32,
        44 => reserved: u32,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_get_tp_list_out[1032] {
        0 => tp_cnt: u32,
        4 => reserved: u32,
        8 => tp_handle: [u64; 128],
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_get_tp_list_t[1112] {
        0 => r#in: urma_cmd_get_tp_list_in,
        48 => out: urma_cmd_get_tp_list_out,
        1080 => udata: urma_cmd_udrv_priv_t,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_exchange_tp_info_in[56] {
        0 => get_tp_cfg: urma_get_tp_cfg_t,
        40 => tp_handle: u64,
        48 => tx_psn: u32,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_exchange_tp_info_out[16] {
        0 => peer_tp_handle: u64,
        8 => rx_psn: u32,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_exchange_tp_info_t[72] {
        0 => r#in: urma_cmd_exchange_tp_info_in,
        56 => out: urma_cmd_exchange_tp_info_out,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_set_tp_attr_in[144] {
        0 => tp_handle: u64,
        8 => tp_attr_cnt: u8,
        12 => tp_attr_bitmap: u32,
        16 => tp_attr: [u8; 128],
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_set_tp_attr_t[176] {
        0 => r#in: urma_cmd_set_tp_attr_in,
        144 => udata: urma_cmd_udrv_priv_t,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_get_tp_attr_in[8] {
        0 => tp_handle: u64,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_get_tp_attr_out[136] {
        0 => tp_attr_cnt: u8,
        4 => tp_attr_bitmap: u32,
        8 => tp_attr: [u8; 128],
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_get_tp_attr_t[176] {
        0 => r#in: urma_cmd_get_tp_attr_in,
        8 => out: urma_cmd_get_tp_attr_out,
        144 => udata: urma_cmd_udrv_priv_t,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_get_eid_by_ip_in[48] {
        0 => net_addr: urma_net_addr_t,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_get_eid_by_ip_out[16] {
        0 => eid: urma_eid_t,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_get_eid_by_ip_t[64] {
        0 => r#in: urma_cmd_get_eid_by_ip_in,
        48 => out: urma_cmd_get_eid_by_ip_out,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_get_ip_by_eid_in[16] {
        0 => eid: urma_eid_t,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_get_ip_by_eid_out[48] {
        0 => net_addr: urma_net_addr_t,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_get_ip_by_eid_t[64] {
        0 => r#in: urma_cmd_get_ip_by_eid_in,
        16 => out: urma_cmd_get_ip_by_eid_out,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_get_smac_out[6] {
        0 => mac: [u8; 6],
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_get_smac_t[6] {
        0 => out: urma_cmd_get_smac_out,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_get_dmac_in[48] {
        0 => net_addr: urma_net_addr_t,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_get_dmac_out[6] {
        0 => mac: [u8; 6],
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_get_dmac_t[56] {
        0 => r#in: urma_cmd_get_dmac_in,
        48 => out: urma_cmd_get_dmac_out,
    }
}

c_structs! {
    /// An IP address in the form of an EID.
    #[derive(Clone, Copy)]
    struct urma_cmd_net_addr_union[16] {
        0 => words: [u64; 2],
    }
}
