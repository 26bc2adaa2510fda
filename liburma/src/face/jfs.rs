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

/// Takes flushed requests of a queue in the error state: 1 to its depth of them. How many, or the
/// negative status.
pub unsafe extern "C" fn urma_flush_jfs(
    jfs: *mut urma_jfs_t,
    cr_cnt: c_int,
    cr: *mut urma_cr_t,
) -> c_int {
    call::negative(|| {
        let jfs = object::<kind::Jfs>(jfs)?;
        call::some(cr)?;
        flushable(cr_cnt, &jfs.jfs_cfg)?;
        Ok(ask!(home(jfs), flush_jfs(jfs.as_ptr(), cr_cnt, cr)))
    })
}

/// Takes completions of a jetty in the error state, flushed ones too: 1 to its depth of them. How
/// many, or the negative status.
pub unsafe extern "C" fn urma_flush_jetty(
    jetty: *mut urma_jetty_t,
    cr_cnt: c_int,
    cr: *mut urma_cr_t,
) -> c_int {
    call::negative(|| {
        let jetty = object::<kind::Jetty>(jetty)?;
        call::some(cr)?;
        flushable(cr_cnt, &jetty.jetty_cfg.jfs_cfg)?;
        Ok(ask!(home(jetty), flush_jetty(jetty.as_ptr(), cr_cnt, cr)))
    })
}
