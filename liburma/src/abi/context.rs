//! An opened device, its events, its channels.
//!
//! *Owns*: the layout of `urma_types.h`. *Must not*: do anything.

use core::ffi::{c_int, c_void};

use libc::pthread_mutex_t;

use super::layout::c_structs;
use super::{
    urma_async_event_type_t, urma_context_aggr_mode_t, urma_device_t, urma_eid_t, urma_jetty_grp_t,
    urma_jetty_t, urma_jfc_t, urma_jfr_t, urma_jfs_t, urma_notify_type_t, urma_ops_t, urma_ref_t,
    urma_status_t, urma_target_jetty_t,
};

c_structs! {
    /// An opened device. The library fills it; ops may be replaced by a program that watches calls.
    struct urma_context_t[104] {
        0 => dev: *mut urma_device_t,
        8 => ops: *mut urma_ops_t,
        16 => dev_fd: c_int,
        20 => async_fd: c_int,
        24 => mutex: pthread_mutex_t,
        64 => eid: urma_eid_t,
        80 => eid_index: u32,
        84 => uasid: u32,
        88 => r#ref: urma_ref_t,
        96 => aggr_mode: urma_context_aggr_mode_t,
    }

    /// Completion event channel: fd becomes readable when an armed JFC has a completion.
    struct urma_jfce_t[24] {
        0 => urma_ctx: *mut urma_context_t,
        8 => fd: c_int,
        16 => r#ref: urma_ref_t,
    }

    /// Where the _async calls report.
    #[derive(Clone, Copy)]
    struct urma_notifier_t[24] {
        0 => urma_ctx: *mut urma_context_t,
        8 => fd: c_int,
        16 => incomplete_tjetty_list: *mut c_void,
    }

    #[derive(Clone, Copy)]
    union urma_notify_u[8] {
        0 => tjetty: *mut urma_target_jetty_t,
        0 => jetty: *mut urma_jetty_t,
    }

    /// The end of one _async call.
    #[derive(Clone, Copy)]
    struct urma_notify_t[24] {
        0 => r#type: urma_notify_type_t,
        4 => status: urma_status_t,
        8 => user_ctx: u64,
        16 => u: urma_notify_u,
    }

    #[derive(Clone, Copy)]
    union urma_async_event_element[8] {
        0 => jfc: *mut urma_jfc_t,
        0 => jfs: *mut urma_jfs_t,
        0 => jfr: *mut urma_jfr_t,
        0 => jetty: *mut urma_jetty_t,
        0 => jetty_grp: *mut urma_jetty_grp_t,
        0 => port_id: u32,
        0 => eid_idx: u32,
    }

    /// Something that happened to an object outside of any work request.
    #[derive(Clone, Copy)]
    struct urma_async_event_t[32] {
        0 => urma_ctx: *const urma_context_t,
        8 => element: urma_async_event_element,
        16 => event_type: urma_async_event_type_t,
        24 => r#priv: *mut c_void,
    }

    #[derive(Clone, Copy)]
    struct urma_user_ctl_in_t[16] {
        0 => addr: u64,
        8 => len: u32,
        12 => opcode: u32,
    }

    #[derive(Clone, Copy)]
    struct urma_user_ctl_out_t[16] {
        0 => addr: u64,
        8 => len: u32,
        12 => reserved: u32,
    }
}
