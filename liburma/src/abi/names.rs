//! Types that have a name in C and no layout of their own: numbers, functions, other names of a struct.
//!
//! *Owns*: these names, and the three bytes that no C integer has room for. *Must not*: know a layout.

use core::ffi::{c_char, c_int, c_void};

use super::{
    urma_active_tp_cfg_t, urma_async_event_t, urma_jetty_cfg_t, urma_jetty_cfg_u_shared,
    urma_jetty_id_t, urma_jfr_cfg_t, urma_tp_attr_vlan_word,
};

/// The provider made the device itself: no file says anything of it. A header of ours defines it.
pub const URMA_SYSFS_DEV_FLAG_DRIVER_CREATED: u32 = 1;

pub type urma_mtu_t = u32;
pub type urma_port_state_t = u32;
pub type urma_speed_t = u32;
pub type urma_link_width_t = u32;
pub type urma_jetty_grp_policy_t = u32;
pub type urma_tp_state_t = u32;
pub type urma_vlog_level_t = u32;
pub type urma_cr_status_t = u32;
pub type urma_jetty_state_t = u32;
pub type urma_jfr_state_t = u32;

/// Result of a call: 0, a number of `errno.h`, or `URMA_FAIL`.
pub type urma_status_t = i32;
/// State of a send queue.
pub type urma_jfs_state_t = urma_jetty_state_t;
/// Id of a send queue.
pub type urma_jfs_id_t = urma_jetty_id_t;
/// Id of a receive queue.
pub type urma_jfr_id_t = urma_jetty_id_t;
/// Id of a completion queue.
pub type urma_jfc_id_t = urma_jetty_id_t;
/// The transport path of `urma_import_jetty_ex`.
pub type urma_import_jetty_ex_cfg_t = urma_active_tp_cfg_t;
/// The transport path of `urma_import_jfr_ex`.
pub type urma_import_jfr_ex_cfg_t = urma_active_tp_cfg_t;
/// The transport path of `urma_bind_jetty_ex`.
pub type urma_bind_jetty_ex_cfg_t = urma_active_tp_cfg_t;

/// Called for an event of a context.
pub type urma_async_event_cb = Option<unsafe extern "C" fn(*mut urma_async_event_t, *mut c_void)>;
/// Called at the end of an advice.
pub type urma_advise_async_cb_func = Option<unsafe extern "C" fn(urma_status_t, *mut c_void)>;
/// Called for each line of the log.
pub type urma_log_cb_t = Option<unsafe extern "C" fn(level: c_int, message: *mut c_char)>;
/// Called for each line of the log, with where it comes from.
pub type urma_loc_log_cb = Option<
    unsafe extern "C" fn(
        level: c_int,
        file: *const c_char,
        function: *const c_char,
        line: c_int,
        message: *mut c_char,
    ),
>;

/// How a jetty receives: the member of the union of its configuration that the flag names.
#[derive(Clone, Copy)]
pub enum Receive {
    /// Through a JFR that it shares, with the JFC of that or another one.
    Shared(urma_jetty_cfg_u_shared),
    /// Through one of its own, made from this configuration.
    Own(*mut urma_jfr_cfg_t),
}

impl urma_jetty_cfg_t {
    /// The member that the flag names.
    #[must_use]
    #[expect(unsafe_code, reason = "a union of C")]
    pub fn receive(&self) -> Receive {
        if self.flag.share_jfr() == 0 {
            // SAFETY: the member is a pointer, and any bytes are a pointer.
            return Receive::Own(unsafe { self.u.jfr_cfg });
        }
        // SAFETY: its members are pointers, and any bytes are a pointer.
        Receive::Shared(unsafe { self.u.shared })
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
