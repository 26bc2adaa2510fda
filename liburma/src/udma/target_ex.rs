//! Imports and bindings that name a transport path, and advice that calls back.
//!
//! *Owns*: nothing. *Takes*: what `get_tp_list` gave. *Gives*: what the calls without a path give: a
//! software device has one way to a node, and a handle is a promise to use a path of its kind.
#![expect(unsafe_code, reason = "C entry points")]

use core::ffi::c_void;

use crate::{
    abi::{
        urma_active_tp_cfg_t, urma_advise_async_cb_func, urma_context_t, urma_jetty_t, urma_jfs_t,
        urma_rjetty_t, urma_rjfr_t, urma_status_t, urma_target_jetty_t, urma_token_t,
    },
    call::{self, Code, ours},
    convert::name::eid,
    udma::{
        context::ctx_of,
        kind, path,
        target::{advise_jetty, advise_jfr, bind_jetty, import_jetty, import_jfr},
    },
};

pub(crate) unsafe extern "C" fn import_jetty_ex(
    ctx: *mut urma_context_t,
    rjetty: *mut urma_rjetty_t,
    token: *mut urma_token_t,
    active: *mut urma_active_tp_cfg_t,
) -> *mut urma_target_jetty_t {
    call::pointer(|| {
        // SAFETY: the caller's description.
        let from = unsafe { call::value(rjetty) }?;
        // SAFETY: the caller's path.
        let active = unsafe { call::value(active) }?;
        path::check(&*ctx_of(ctx)?, &active, eid(from.jetty_id.eid), from.tp_type)?;
        // SAFETY: the caller's description and token.
        made(unsafe { import_jetty(ctx, rjetty, token) })
    })
}

pub(crate) unsafe extern "C" fn import_jfr_ex(
    ctx: *mut urma_context_t,
    rjfr: *mut urma_rjfr_t,
    token: *mut urma_token_t,
    active: *mut urma_active_tp_cfg_t,
) -> *mut urma_target_jetty_t {
    call::pointer(|| {
        // SAFETY: the caller's description.
        let from = unsafe { call::value(rjfr) }?;
        // SAFETY: the caller's path.
        let active = unsafe { call::value(active) }?;
        path::check(&*ctx_of(ctx)?, &active, eid(from.jfr_id.eid), from.tp_type)?;
        // SAFETY: the caller's description and token.
        made(unsafe { import_jfr(ctx, rjfr, token) })
    })
}

fn made<T>(target: *mut T) -> call::Answer<*mut T> {
    if target.is_null() { Err(Code::AS_SET) } else { Ok(target) }
}

pub(crate) unsafe extern "C" fn bind_jetty_ex(
    jetty: *mut urma_jetty_t,
    target: *mut urma_target_jetty_t,
    active: *mut urma_active_tp_cfg_t,
) -> urma_status_t {
    call::status(|| {
        // SAFETY: the caller's path.
        let active = unsafe { call::value(active) }?;
        let (jetty, of) = (ours::<kind::Jetty>(jetty)?, ours::<kind::Target>(target)?);
        // SAFETY: the public part of a live object.
        let peer = unsafe { (*of.public()).id.eid };
        // SAFETY: as above.
        let tp_type = unsafe { (*of.public()).tp_type };
        // SAFETY: as above.
        let ctx = unsafe { (*jetty.public()).urma_ctx };
        path::check(&*ctx_of(ctx)?, &active, eid(peer), tp_type)?;
        // SAFETY: both live.
        Code::from_c(unsafe { bind_jetty(jetty.public(), target) })
    })
}

/// Advice is taken at once: the callback runs before the call returns.
pub(crate) unsafe extern "C" fn advise_jfr_async(
    jfs: *mut urma_jfs_t,
    target: *mut urma_target_jetty_t,
    done: urma_advise_async_cb_func,
    arg: *mut c_void,
) -> urma_status_t {
    call::status(|| {
        let done = call::present(done)?;
        // SAFETY: the callee looks both up.
        let status = unsafe { advise_jfr(jfs, target) };
        // SAFETY: the program's function with its argument.
        unsafe { done(status, arg) };
        Ok(())
    })
}

/// As [`advise_jfr_async`].
pub(crate) unsafe extern "C" fn advise_jetty_async(
    jetty: *mut urma_jetty_t,
    target: *mut urma_target_jetty_t,
    done: urma_advise_async_cb_func,
    arg: *mut c_void,
) -> urma_status_t {
    call::status(|| {
        let done = call::present(done)?;
        // SAFETY: the callee looks both up.
        let status = unsafe { advise_jetty(jetty, target) };
        // SAFETY: the program's function with its argument.
        unsafe { done(status, arg) };
        Ok(())
    })
}
