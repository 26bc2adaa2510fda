//! Flags of requests, and why one was refused.

use urma_core::{PostReason, WrFlags};

use crate::{
    abi::urma_jfs_wr_flag_t,
    call::{Code, refuse},
};

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
