//! C structs of zero bytes, as `memset` makes them.
//!
//! *Owns*: the list of structs that are valid then.
#![expect(unsafe_code, reason = "structs of integers and pointers have no constructors in C")]

use core::mem::MaybeUninit;

use crate::abi;

/// All members zero or NULL.
#[must_use]
pub fn zeroed<T: Zero>() -> T {
    // SAFETY: the trait says that zero bytes are a value of `T`.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

/// A C struct whose bytes may all be zero.
///
/// # Safety
/// It consists of integers, raw pointers and optional function pointers.
pub unsafe trait Zero {}

macro_rules! zero {
    ($($name:ident),* $(,)?) => {$(
        // SAFETY: integers, raw pointers, and pthread objects whose initial value is zero.
        unsafe impl Zero for abi::$name {}
    )*};
}

zero! {
    urma_async_event_t, urma_context_t, urma_cr_t, urma_device_attr_t, urma_device_t,
    urma_jetty_cfg_t, urma_jetty_grp_cfg_t, urma_jetty_grp_t, urma_jetty_t, urma_jfc_cfg_t, urma_jfc_t, urma_jfce_t,
    urma_jfr_cfg_t, urma_jfr_t, urma_jfr_wr_t, urma_jfs_cfg_t, urma_jfs_t, urma_jfs_wr_t,
    urma_net_addr_info_t, urma_net_addr_t, urma_notifier_t, urma_notify_t, urma_ops_t,
    urma_port_attr_t, urma_provider_ops_t, urma_rjetty_t, urma_rjfr_t, urma_seg_cfg_t, urma_seg_t,
    urma_sge_t, urma_sysfs_dev_t, urma_target_jetty_t, urma_target_seg_t, urma_token_id_t,
    urma_active_tp_cfg_t, urma_tp_attr_t, urma_tp_attr_value_t, urma_tp_info_t,
}
