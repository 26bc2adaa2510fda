//! Imports and bindings over a chosen path; advice with a callback.

use core::ffi::c_void;

use crate::{
    abi::*,
    call::{self, Code, made, object, refuse},
    face::{
        dispatch::{ask, home, retain},
        target::{REMOTE, bindable, check},
    },
    slab::InSlot,
    udma::kind,
};

/// Defines an import over a chosen path.
macro_rules! import {
    ($(#[$doc:meta])* $name:ident, $from:ident: $op:ident) => {
        $(#[$doc])*
        pub unsafe extern "C" fn $name(
            ctx: *mut urma_context_t,
            from: *mut $from,
            token_value: *mut urma_token_t,
            cfg: *mut urma_active_tp_cfg_t,
        ) -> *mut urma_target_jetty_t {
            call::pointer(|| {
                let ctx = object::<kind::Context>(ctx)?;
                call::some(cfg)?;
                call::some(token_value)?;
                // SAFETY: a description of the caller's (room card of `face`).
                let of = unsafe { call::value(from) }?;
                check(of.trans_mode, of.tp_type, of.flag, token_value)?;
                let target = made(ask!(ctx.as_ptr(), $op(ctx.as_ptr(), from, token_value, cfg)))?;
                retain(ctx);
                Ok(target.as_ptr())
            })
        }
    };
}

import! {
    /// Imports a jetty or group over the path of `cfg`; handle 0: any path. A token must be given, whatever its policy.
    urma_import_jetty_ex, urma_rjetty_t: import_jetty_ex
}

import! {
    /// Imports a JFR over the path of `cfg`; handle 0: any path. A token must be given, whatever its policy.
    urma_import_jfr_ex, urma_rjfr_t: import_jfr_ex
}

/// Like `urma_bind_jetty`, over the path of `cfg`; handle 0: any path.
pub unsafe extern "C" fn urma_bind_jetty_ex(
    jetty: *mut urma_jetty_t,
    tjetty: *mut urma_target_jetty_t,
    cfg: *mut urma_active_tp_cfg_t,
) -> urma_status_t {
    call::status(|| {
        let (jetty, target) = (object::<kind::Jetty>(jetty)?, object::<kind::Target>(tjetty)?);
        call::some(cfg)?;
        bindable(jetty, target)?;
        Code::from_c(ask!(home(jetty), bind_jetty_ex(jetty.as_ptr(), target.as_ptr(), cfg)))?;
        jetty.set(REMOTE, target.as_ptr());
        Ok(())
    })
}

/// Like `urma_advise_jfr`, and calls `cb_fun` with the result; `cb_arg` must not be NULL.
pub unsafe extern "C" fn urma_advise_jfr_async(
    jfs: *mut urma_jfs_t,
    tjfr: *mut urma_target_jetty_t,
    cb_fun: urma_advise_async_cb_func,
    cb_arg: *mut c_void,
) -> urma_status_t {
    call::status(|| {
        let (jfs, target) = (object::<kind::Jfs>(jfs)?, object::<kind::Target>(tjfr)?);
        let mode = jfs.jfs_cfg.trans_mode;
        let mode_there = target.trans_mode;
        let fits = mode == URMA_TM_RM && mode_there == URMA_TM_RM && home(jfs) == home(target);
        if !fits || cb_fun.is_none() || cb_arg.is_null() {
            return Err(refuse!(
                EINVAL,
                "the modes are {mode} here and {mode_there} there, cb_arg is {cb_arg:p}; advice is for RM (1) on both sides \
                 in one context, with a function and its argument"
            ));
        }
        Code::from_c(ask!(
            home(jfs),
            advise_jfr_async(jfs.as_ptr(), target.as_ptr(), cb_fun, cb_arg)
        ))
    })
}
