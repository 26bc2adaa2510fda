//! Flushed requests of queues that send.

use core::ffi::c_int;

use crate::{
    abi::*,
    call::{self, object},
    face::{
        dispatch::{ask, home},
        rules::flushable,
    },
    udma::kind,
};

macro_rules! flushes {
    ($($(#[$doc:meta])* $name:ident($queue:ident, $kind:ident, $cfg:ident $(. $of:ident)?) = $op:ident;)*) => {$(
        $(#[$doc])*
        pub unsafe extern "C" fn $name(queue: *mut $queue, cr_cnt: c_int, cr: *mut urma_cr_t) -> c_int {
            call::negative(|| {
                let queue = object::<kind::$kind>(queue)?;
                call::some(cr)?;
                flushable(cr_cnt, &queue.$cfg $(. $of)?)?;
                Ok(ask!(home(queue), $op(queue.as_ptr(), cr_cnt, cr)))
            })
        }
    )*};
}

flushes! {
    /// Takes flushed requests of a queue in the error state: 1 to its depth of them. How many, or the
    /// negative status.
    urma_flush_jfs(urma_jfs_t, Jfs, jfs_cfg) = flush_jfs;
    /// Takes completions of a jetty in the error state, flushed ones too: 1 to its depth of them. How
    /// many, or the negative status.
    urma_flush_jetty(urma_jetty_t, Jetty, jetty_cfg.jfs_cfg) = flush_jetty;
}
