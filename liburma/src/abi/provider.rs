//! What a provider registers, and what lies behind a device.
//!
//! *Owns*: the layout of `urma_provider.h` and `urma_private.h`. *Must not*: do anything.

use core::ffi::{c_char, c_int};

use super::layout::{c_consts, c_structs};
use super::{
    urma_context_t, urma_device_attr_t, urma_device_t, urma_import_seg_flag_t, urma_init_attr_t,
    urma_ops_t, urma_seg_attr_t, urma_status_t, urma_token_t, urma_transport_type_t, urma_ubva_t,
};

c_consts! {
    u32 {
        URMA_MAX_SYSFS_PATH = 256,
        URMA_SYSFS_DEV_FLAG_DRIVER_CREATED = 1,
    }
}

c_structs! {
    #[derive(Clone, Copy)]
    struct urma_match_entry_t[4] {
        0 => vendor_id: u16,
        2 => device_id: u16,
    }

    #[derive(Clone, Copy)]
    struct urma_udrv_t[32] {
        0 => in_addr: u64,
        8 => in_len: u32,
        16 => out_addr: u64,
        24 => out_len: u32,
    }

    #[derive(Clone, Copy)]
    struct urma_provider_attr_t[8] {
        0 => version: u32,
        4 => transport_type: urma_transport_type_t,
    }

    #[derive(Clone, Copy)]
    struct urma_import_tseg_cfg_t[72] {
        0 => ubva: urma_ubva_t,
        32 => len: u64,
        40 => attr: urma_seg_attr_t,
        44 => token_id: u32,
        48 => token: *mut urma_token_t,
        56 => flag: urma_import_seg_flag_t,
        64 => mva: u64,
    }

    #[derive(Clone, Copy)]
    struct urma_context_cfg_t[32] {
        0 => dev: *mut urma_device_t,
        8 => ops: *mut urma_ops_t,
        16 => eid_index: u32,
        20 => dev_fd: c_int,
        24 => uasid: u32,
    }

    #[derive(Clone, Copy)]
    struct urma_cmd_udrv_priv_t[32] {
        0 => in_addr: u64,
        8 => in_len: u32,
        16 => out_addr: u64,
        24 => out_len: u32,
    }

    /// What a provider registers.
    #[derive(Clone, Copy)]
    struct urma_provider_ops_t[72] {
        0 => name: *const c_char,
        8 => attr: urma_provider_attr_t,
        16 => match_table: *mut urma_match_entry_t,
        24 => init: Option<unsafe extern "C" fn(conf: *mut urma_init_attr_t) -> urma_status_t>,
        32 => uninit: Option<unsafe extern "C" fn() -> urma_status_t>,
        40 => query_device: Option<unsafe extern "C" fn(dev: *mut urma_device_t, dev_attr: *mut urma_device_attr_t) -> urma_status_t>,
        48 => create_context: Option<unsafe extern "C" fn(dev: *mut urma_device_t, eid_index: u32, dev_fd: c_int) -> *mut urma_context_t>,
        56 => delete_context: Option<unsafe extern "C" fn(ctx: *mut urma_context_t) -> urma_status_t>,
        64 => get_uasid: Option<unsafe extern "C" fn(uasid: *mut u32) -> urma_status_t>,
    }

    #[derive(Clone, Copy)]
    struct urma_driver_t[24] {
        0 => ops: *mut urma_provider_ops_t,
        8 => node: ub_list,
    }

    #[derive(Clone, Copy)]
    struct urma_jfce_cnt_info_t[80] {
        0 => dev_name: [c_char; 64],
        64 => jfce_total_cnt: u64,
        72 => jfce_thresh_cnt: u64,
    }

    #[derive(Clone, Copy)]
    struct urma_user_info_ext_hdr_t[4] {
        0 => len: u32,
        4 => data: [c_char; 0],
    }

    #[derive(Clone, Copy)]
    struct ub_list[16] {
        0 => prev: *mut ub_list,
        8 => next: *mut ub_list,
    }
}
