//! Transport paths and network addresses.
//!
//! *Owns*: the layout of `urma_types.h`. *Must not*: do anything.

use libc::{in_addr, in6_addr, sa_family_t};

use super::layout::{c_flags, c_structs};
use super::{
    urma_eid_t, urma_get_tp_cfg_flag_t, urma_mtu_t, urma_tp_state_t, urma_transport_mode_t,
    urma_transport_type_t,
};

c_flags! {
    urma_tp_cfg_flag_t: u32 {
        0, 1 => target, set_target;
        1, 1 => loopback, set_loopback;
        2, 1 => dca_enable, set_dca_enable;
        3, 1 => bonding, set_bonding;
    }

    urma_tp_attr_mask_t: u32 {
        0, 1 => flag, set_flag;
        1, 1 => peer_tpn, set_peer_tpn;
        2, 1 => state, set_state;
        3, 1 => tx_psn, set_tx_psn;
        4, 1 => rx_psn, set_rx_psn;
        5, 1 => mtu, set_mtu;
        6, 1 => cc_pattern_idx, set_cc_pattern_idx;
        7, 1 => oos_cnt, set_oos_cnt;
        8, 1 => local_net_addr_idx, set_local_net_addr_idx;
        9, 1 => peer_net_addr, set_peer_net_addr;
        10, 1 => data_udp_start, set_data_udp_start;
        11, 1 => ack_udp_start, set_ack_udp_start;
        12, 1 => udp_range, set_udp_range;
        13, 1 => hop_limit, set_hop_limit;
        14, 1 => flow_label, set_flow_label;
        15, 1 => port_id, set_port_id;
        16, 1 => mn, set_mn;
        17, 1 => peer_trans_type, set_peer_trans_type;
    }

    urma_tp_mod_flag_t: u32 {
        0, 1 => oor_en, set_oor_en;
        1, 1 => sr_en, set_sr_en;
        2, 1 => cc_en, set_cc_en;
        3, 4 => cc_alg, set_cc_alg;
        7, 1 => spray_en, set_spray_en;
        8, 1 => clan, set_clan;
    }
}

c_structs! {
    #[derive(Clone, Copy)]
    struct urma_tp_t[4] {
        0 => tpn: u32,
    }

    #[derive(Clone, Copy)]
    struct urma_tp_cfg_t[16] {
        0 => flag: urma_tp_cfg_flag_t,
        4 => trans_mode: urma_transport_mode_t,
        8 => retry_num: u8,
        9 => retry_factor: u8,
        10 => ack_timeout: u8,
        11 => dscp: u8,
        12 => oor_cnt: u32,
    }

    #[derive(Clone, Copy)]
    union urma_net_addr_u[16] {
        0 => in4: in_addr,
        0 => in6: in6_addr,
    }

    #[derive(Clone, Copy)]
    struct urma_net_addr_t[48] {
        0 => sin_family: sa_family_t,
        4 => u: urma_net_addr_u,
        24 => vlan: u64,
        32 => mac: [u8; 6],
        40 => prefix_len: u32,
    }

    #[derive(Clone, Copy)]
    struct urma_net_addr_info_t[56] {
        0 => netaddr: urma_net_addr_t,
        48 => index: u32,
    }

    #[derive(Clone, Copy)]
    struct urma_tp_attr_t[112] {
        0 => flag: urma_tp_mod_flag_t,
        4 => peer_tpn: u32,
        8 => state: urma_tp_state_t,
        12 => tx_psn: u32,
        16 => rx_psn: u32,
        20 => mtu: urma_mtu_t,
        24 => cc_pattern_idx: u8,
        28 => oos_cnt: u32,
        32 => local_net_addr_idx: u32,
        40 => peer_net_addr: urma_net_addr_t,
        88 => data_udp_start: u16,
        90 => ack_udp_start: u16,
        92 => udp_range: u8,
        93 => hop_limit: u8,
        96 => flow_label: u32,
        100 => port_id: u8,
        101 => mn: u8,
        104 => peer_trans_type: urma_transport_type_t,
    }

    #[derive(Clone, Copy)]
    struct urma_get_tp_cfg_t[40] {
        0 => flag: urma_get_tp_cfg_flag_t,
        4 => trans_mode: urma_transport_mode_t,
        8 => local_eid: urma_eid_t,
        24 => peer_eid: urma_eid_t,
    }

    #[derive(Clone, Copy)]
    struct urma_tp_info_t[8] {
        0 => tp_handle: u64,
    }

    #[derive(Clone, Copy)]
    struct urma_active_tp_attr_t[16] {
        0 => tx_psn: u32,
        4 => rx_psn: u32,
        8 => reserved: u64,
    }

    #[derive(Clone, Copy)]
    struct urma_active_tp_cfg_t[40] {
        0 => tp_handle: u64,
        8 => peer_tp_handle: u64,
        16 => tag: u64,
        24 => tp_attr: urma_active_tp_attr_t,
    }
}

c_flags! {
    /// First byte of the attributes of a transport path.
    urma_tp_attr_retry: u8 {
        0, 3 => retry_times_init, set_retry_times_init;
        3, 5 => at, set_at;
    }

    /// Bytes 45 to 47 of the attributes of a transport path, as a word.
    urma_tp_attr_vlan_word: u32 {
        0, 12 => vlan_id, set_vlan_id;
        12, 1 => vlan_en, set_vlan_en;
        13, 6 => dscp, set_dscp;
        19, 5 => at_times, set_at_times;
    }

    /// Byte 48 of the attributes of a transport path.
    urma_tp_attr_sl: u8 {
        0, 4 => sl, set_sl;
    }

    /// Byte 54 of the attributes of a transport path.
    urma_tp_attr_udp: u8 {
        0, 4 => udp_srcport_range, set_udp_srcport_range;
        4, 1 => spray_en, set_spray_en;
        5, 1 => udp_global_en, set_udp_global_en;
    }
}

/// Bytes 45 to 47 of the attributes of a transport path: no C integer has this length.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct urma_tp_attr_vlan {
    /// In the order of memory.
    pub bytes: [u8; 3],
}

impl From<urma_tp_attr_vlan> for urma_tp_attr_vlan_word {
    fn from(vlan: urma_tp_attr_vlan) -> Self {
        let [low, middle, high] = vlan.bytes;
        Self { value: u32::from_le_bytes([low, middle, high, 0]) }
    }
}

impl From<urma_tp_attr_vlan_word> for urma_tp_attr_vlan {
    fn from(word: urma_tp_attr_vlan_word) -> Self {
        let [low, middle, high, _] = word.value.to_le_bytes();
        Self { bytes: [low, middle, high] }
    }
}

/// The transport path of `urma_import_jetty_ex`.
pub type urma_import_jetty_ex_cfg_t = urma_active_tp_cfg_t;
/// The transport path of `urma_import_jfr_ex`.
pub type urma_import_jfr_ex_cfg_t = urma_active_tp_cfg_t;
/// The transport path of `urma_bind_jetty_ex`.
pub type urma_bind_jetty_ex_cfg_t = urma_active_tp_cfg_t;
