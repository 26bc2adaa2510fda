//! Devices and what they can do.
//!
//! *Owns*: the layout of `urma_types.h`. *Must not*: do anything.

use core::ffi::c_char;

use super::layout::{c_flags, c_structs};
use super::{
    urma_link_width_t, urma_mtu_t, urma_port_state_t, urma_provider_ops_t, urma_speed_t,
    urma_sysfs_dev_t, urma_transport_type_t,
};

c_flags! {
    /// What a device can do, one bit each.
    urma_device_feature_t: u32 {
        0, 1 => oor, set_oor;
        1, 1 => jfc_per_wr, set_jfc_per_wr;
        2, 1 => stride_op, set_stride_op;
        3, 1 => load_store_op, set_load_store_op;
        4, 1 => non_pin, set_non_pin;
        5, 1 => pmem, set_pmem;
        6, 1 => jfc_inline, set_jfc_inline;
        7, 1 => spray_en, set_spray_en;
        8, 1 => selective_retrans, set_selective_retrans;
        9, 1 => live_migrate, set_live_migrate;
        10, 1 => dca, set_dca;
        11, 1 => jetty_grp, set_jetty_grp;
        12, 1 => error_suspend, set_error_suspend;
        13, 1 => outorder_comp, set_outorder_comp;
        14, 1 => mn, set_mn;
        15, 1 => clan, set_clan;
        16, 1 => muti_seg_per_token_id, set_muti_seg_per_token_id;
        17, 1 => ipourma_en, set_ipourma_en;
        18, 1 => ctp_en, set_ctp_en;
        19, 1 => uboe, set_uboe;
    }

    urma_atomic_feature_t: u32 {
        0, 1 => cas, set_cas;
        1, 1 => swap, set_swap;
        2, 1 => fetch_and_add, set_fetch_and_add;
        3, 1 => fetch_and_sub, set_fetch_and_sub;
        4, 1 => fetch_and_and, set_fetch_and_and;
        5, 1 => fetch_and_or, set_fetch_and_or;
        6, 1 => fetch_and_xor, set_fetch_and_xor;
    }

    urma_order_type_cap_t: u32 {
        0, 1 => ot, set_ot;
        1, 1 => oi, set_oi;
        2, 1 => ol, set_ol;
        3, 1 => no, set_no;
    }

    urma_tp_type_cap_t: u32 {
        0, 1 => rtp, set_rtp;
        1, 1 => ctp, set_ctp;
        2, 1 => utp, set_utp;
    }

    urma_tp_feature_t: u32 {
        0, 1 => rm_multi_path, set_rm_multi_path;
        1, 1 => rc_multi_path, set_rc_multi_path;
    }

    urma_tp_type_en: u32 {
        0, 1 => rtp, set_rtp;
        1, 1 => ctp, set_ctp;
        2, 1 => utp, set_utp;
    }
}

c_structs! {
    /// One port of a device.
    #[derive(Clone, Copy)]
    struct urma_port_attr_t[20] {
        0 => max_mtu: urma_mtu_t,
        4 => state: urma_port_state_t,
        8 => active_width: urma_link_width_t,
        12 => active_speed: urma_speed_t,
        16 => active_mtu: urma_mtu_t,
    }

    /// The service level of a priority, and the transport paths that it serves.
    #[expect(non_snake_case, reason = "the name of C")]
    #[derive(Clone, Copy)]
    struct urma_sl_info[8] {
        0 => SL: u32,
        4 => tp_type: urma_tp_type_en,
    }

    /// A device of the list; the library owns it.
    #[derive(Clone, Copy)]
    struct urma_device_t[4184] {
        0 => name: [c_char; 64],
        64 => path: [c_char; 4096],
        4160 => r#type: urma_transport_type_t,
        4168 => ops: *mut urma_provider_ops_t,
        4176 => sysfs_dev: *mut urma_sysfs_dev_t,
    }
}
