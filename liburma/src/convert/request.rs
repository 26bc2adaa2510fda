//! Flags of requests, and why one was refused.

use urma_core::{PostReason, WrFlags};

use crate::{abi::urma_jfs_wr_flag_t, call::Code};

/// The bits that the device knows lie where C has them; others are hints.
#[inline]
pub(crate) fn flags(from: urma_jfs_wr_flag_t) -> WrFlags {
    WrFlags::from_bits_truncate(from.value)
}

/// What a refused request answers with.
#[cold]
pub(crate) fn refusal(reason: PostReason) -> Code {
    match reason {
        PostReason::Full if cfg!(feature = "abi-25-12-0-b081") => Code::EINVAL,
        PostReason::Full => Code::ENOMEM,
        PostReason::Invalid(why) => {
            tracing::warn!(target: "urma", why, "request refused");
            Code::EINVAL
        }
        PostReason::Mode => Code::EINVAL,
        PostReason::Device => Code::ENODEV,
    }
}
