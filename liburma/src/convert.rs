//! Between C values and urma-core's values.
//!
//! *Owns*: the translation, in both directions, of configurations, attributes, ids and completions.
//! *Takes*: whatever numbers a C program wrote. *Gives*: values in range, or a [`Code`].
//! *Must not*: look anything up, or keep anything.
#![expect(unsafe_code, reason = "structs of integers and pointers have no constructors in C")]

use core::mem::MaybeUninit;

use urma_core::{Completion, CrOpcode, JettyId, PostReason, WrFlags, ops::CompletingQueue};

use crate::{
    abi::{self, *},
    call::{Code, refuse},
    convert::name::jetty_id_out,
};

pub(crate) mod attr;
pub(crate) mod name;
pub(crate) mod queue;

/// The bits that the device knows lie where C has them; others are hints.
#[inline]
pub(crate) fn flags(from: urma_jfs_wr_flag_t) -> WrFlags {
    WrFlags::from_bits_truncate(from.value)
}

/// What a refused request of a send queue answers with.
#[cold]
pub(crate) fn refusal(reason: PostReason) -> Code {
    match reason {
        PostReason::Full => Code::full(),
        PostReason::Invalid(_) | PostReason::Mode => refuse!(EINVAL, "{reason}"),
        PostReason::Device => refuse!(ENODEV, "{reason}"),
    }
}

#[inline(always)]
pub(crate) fn record(from: &Completion) -> urma_cr_t {
    let is_plain = from.status.is_success() && from.opcode == CrOpcode::Send;
    let plain = (0, 0, urma_cr_u { imm_data: from.imm });
    let (status, opcode, u) = if is_plain { plain } else { rare(from) };
    urma_cr_t {
        status,
        user_ctx: from.user_ctx,
        opcode,
        flag: urma_cr_flag_t { value: from.flags.bits() },
        completion_len: from.len,
        local_id: from.local_id,
        remote_id: jetty_id_out(from.remote),
        u,
        tpn: from.tpn,
        user_data: usize::try_from(from.queue_ctx).unwrap_or(0),
    }
}

/// The record of a successful send request.
#[inline(always)]
pub(crate) fn record_of_sent(from: &CompletingQueue, user_ctx: u64, len: u32) -> urma_cr_t {
    urma_cr_t {
        status: 0,
        user_ctx,
        opcode: 0,
        flag: urma_cr_flag_t { value: from.flags.bits() },
        completion_len: len,
        local_id: from.local_id,
        remote_id: jetty_id_out(JettyId::default()),
        u: urma_cr_u { imm_data: 0 },
        tpn: 0,
        user_data: usize::try_from(from.queue_ctx).unwrap_or(0),
    }
}

/// Status, opcode and the data of that opcode, of a completion that is not a plain success.
#[inline(never)]
fn rare(from: &Completion) -> (u32, u32, urma_cr_u) {
    (u32::from(from.status.code()), u32::from(from.opcode.code()), immediate(from))
}

fn immediate(from: &Completion) -> urma_cr_u {
    if from.opcode != CrOpcode::SendInvalidate {
        return urma_cr_u { imm_data: from.imm };
    }
    match from.invalidated() {
        Some((id, token)) => urma_cr_u {
            invalid_token: urma_cr_token_t {
                token_id: id.value(),
                token_value: urma_token_t { token: token.value() },
            },
        },
        None => urma_cr_u { imm_data: 0 },
    }
}

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
