//! Targets (imported queues of peers): import, advice, binding; the same over a chosen path, and with a callback.

use core::ffi::c_void;

use crate::{
    abi::*,
    call::{self, Answer, Code, Object, made, object, refuse},
    convert::zeroed,
    face::dispatch::{ask, ends, home, member_of, op, ops, retain, run},
    slab::{InSlot, Member, member},
    udma::kind,
};

/// Member with the target of a bound jetty.
pub(super) const REMOTE: Member<urma_jetty_t, *mut urma_target_jetty_t> =
    member!(urma_jetty_t, remote_jetty);

/// Defines an import. It calls the operation without a path or, if the provider left that out, the one with a path.
macro_rules! import {
    ($(#[$doc:meta])* $name:ident, $from:ident: $op:ident, $op_ex:ident) => {
        $(#[$doc])*
        pub unsafe extern "C" fn $name(
            ctx: *mut urma_context_t,
            from: *mut $from,
            token_value: *mut urma_token_t,
        ) -> *mut urma_target_jetty_t {
            call::pointer(|| {
                let ctx = object::<kind::Context>(ctx)?;
                let ops = ops(ctx.as_ptr())?;
                // SAFETY: a description of the caller's (room card of `face`).
                let of = unsafe { call::value(from) }?;
                check(of.trans_mode, of.tp_type, of.flag, token_value)?;
                let target = if let Some(import) = member_of!(ops, $op) {
                    run!(import(ctx.as_ptr(), from, token_value))
                } else {
                    let mut active: urma_active_tp_cfg_t = compat(of.flag)?;
                    ask!(ctx.as_ptr(), $op_ex(ctx.as_ptr(), from, token_value, &raw mut active))
                };
                let target = made(target)?;
                retain(ctx);
                Ok(target.as_ptr())
            })
        }
    };
}

import! {
    /// Imports a jetty or a group of a peer. `token_value` may be NULL if the object has no token.
    urma_import_jetty, urma_rjetty_t: import_jetty, import_jetty_ex
}

import! {
    /// Imports a JFR of a peer. `token_value` may be NULL if the JFR has no token.
    urma_import_jfr, urma_rjfr_t: import_jfr, import_jfr_ex
}

/// Checks an import: UM needs UTP, the unreliable kind of path, and only UM may use it.
pub(super) fn check(
    mode: u32,
    tp_type: u32,
    flag: urma_import_jetty_flag_t,
    token: *const urma_token_t,
) -> Answer {
    let fits = match tp_type {
        URMA_RTP => mode != URMA_TM_UM,
        URMA_CTP => true,
        URMA_UTP => mode == URMA_TM_UM,
        _ => false,
    };
    let has_token = flag.token_policy() == URMA_TOKEN_NONE || !token.is_null();
    let is_mode = matches!(mode, URMA_TM_RM | URMA_TM_RC | URMA_TM_UM);
    if fits && is_mode && !has_token {
        let policy = flag.token_policy();
        return Err(refuse!(EINVAL, "the token is NULL, and flag.token_policy is {policy}"));
    }
    if fits && is_mode {
        return Ok(());
    }
    Err(refuse!(
        EINVAL,
        "trans_mode is {mode} and tp_type {tp_type}; RM (1) and RC (2) go over RTP (0) or CTP (1), UM (4) over CTP or UTP (2)"
    ))
}

/// Default path for a provider that has only `_ex` operations.
fn compat(flag: urma_import_jetty_flag_t) -> Answer<urma_active_tp_cfg_t> {
    if flag.share_tp() == 0 {
        return Ok(zeroed());
    }
    Err(refuse!(EINVAL, "flag.share_tp is 1; the provider imports over a path of its own only"))
}

ends! {
    /// Unimports a target; requests already posted proceed.
    urma_unimport_jetty(urma_target_jetty_t as Target) = unimport_jetty;
    /// Unimports a target; requests already posted proceed.
    urma_unimport_jfr(urma_target_jetty_t as Target) = unimport_jfr;
}

/// Whether queue and target have this mode; the target's is read from its public part.
fn both_of(mode: u32, queue: u32, target: Object<urma_target_jetty_t>) -> bool {
    let of_target = target.trans_mode;
    queue == mode && of_target == mode
}

/// Checks that queue and target are RM: advice is for RM only.
fn advisable(queue: u32, target: Object<urma_target_jetty_t>) -> Answer {
    if both_of(URMA_TM_RM, queue, target) {
        return Ok(());
    }
    let there = target.trans_mode;
    Err(refuse!(
        EINVAL,
        "the modes are {queue} here and {there} at the target; advice is for RM (1) on both sides"
    ))
}

/// Defines an advice call of a send queue. `URMA_EINVAL`: not RM on both sides.
macro_rules! advice {
    ($($(#[$doc:meta])* $name:ident, $queue:ident, $kind:ident, $cfg:ident $(. $of:ident)?: $op:ident;)*) => {$(
        $(#[$doc])*
        pub unsafe extern "C" fn $name(
            queue: *mut $queue,
            target: *mut urma_target_jetty_t,
        ) -> urma_status_t {
            call::status(|| {
                let (queue, target) = (object::<kind::$kind>(queue)?, object::<kind::Target>(target)?);
                let op = op!(home(queue), $op);
                advisable(queue.$cfg $(. $of)? .trans_mode, target)?;
                Code::from_c(run!(op(queue.as_ptr(), target.as_ptr())))
            })
        }
    )*};
}

advice! {
    /// Announces requests of an RM queue to the target. `URMA_EINVAL`: not RM on both sides.
    urma_advise_jfr, urma_jfs_t, Jfs, jfs_cfg: advise_jfr;
    /// Undoes `urma_advise_jfr` for the target.
    urma_unadvise_jfr, urma_jfs_t, Jfs, jfs_cfg: unadvise_jfr;
    /// Announces requests of an RM jetty to the target. `URMA_EINVAL`: not RM on both sides.
    urma_advise_jetty, urma_jetty_t, Jetty, jetty_cfg.jfs_cfg: advise_jetty;
    /// Undoes `urma_advise_jetty` for the target.
    urma_unadvise_jetty, urma_jetty_t, Jetty, jetty_cfg.jfs_cfg: unadvise_jetty;
}

/// Binds an RC jetty to its one target. `URMA_ENOPERM`: not RC on both sides, or the order types differ. `URMA_EEXIST`:
/// the jetty is bound already.
pub unsafe extern "C" fn urma_bind_jetty(
    jetty: *mut urma_jetty_t,
    tjetty: *mut urma_target_jetty_t,
) -> urma_status_t {
    call::status(|| {
        let (jetty, target) = (object::<kind::Jetty>(jetty)?, object::<kind::Target>(tjetty)?);
        let ctx = home(jetty);
        let ops = ops(ctx)?;
        bindable(jetty, target)?;
        let status = if let Some(bind) = member_of!(ops, bind_jetty) {
            run!(bind(jetty.as_ptr(), target.as_ptr()))
        } else {
            let mut active: urma_active_tp_cfg_t = zeroed();
            ask!(ctx, bind_jetty_ex(jetty.as_ptr(), target.as_ptr(), &raw mut active))
        };
        Code::from_c(status)?;
        jetty.set(REMOTE, target.as_ptr());
        Ok(())
    })
}

/// Checks that both sides are RC with the same order type.
pub(super) fn bindable(jetty: Object<urma_jetty_t>, target: Object<urma_target_jetty_t>) -> Answer {
    if !both_of(URMA_TM_RC, mode_of(jetty), target) {
        let (here, there) = (mode_of(jetty), target.trans_mode);
        return Err(refuse!(
            ENOPERM,
            "the modes are {here} here and {there} at the target; binding is for RC (2) on both sides"
        ));
    }
    let here = jetty.jetty_cfg.jfs_cfg.flag.order_type();
    let there = target.flag.order_type();
    if here == there {
        return Ok(());
    }
    Err(refuse!(
        ENOPERM,
        "order_type is {here} here and {there} at the target; both ends of a binding have one"
    ))
}

/// Undoes `urma_bind_jetty`. `URMA_EINVAL`: the jetty is not bound. `URMA_ENOPERM`: it is bound, but not RC.
pub unsafe extern "C" fn urma_unbind_jetty(jetty: *mut urma_jetty_t) -> urma_status_t {
    call::status(|| {
        let jetty = object::<kind::Jetty>(jetty)?;
        let unbind = op!(home(jetty), unbind_jetty);
        if jetty.remote_jetty.is_null() {
            return Err(refuse!(EINVAL, "the jetty is not bound (remote_jetty is NULL)"));
        }
        if mode_of(jetty) != URMA_TM_RC {
            return Err(refuse!(
                ENOPERM,
                "trans_mode is {}; only RC jetties (2) are bound",
                mode_of(jetty)
            ));
        }
        Code::from_c(run!(unbind(jetty.as_ptr())))?;
        jetty.set(REMOTE, core::ptr::null_mut());
        Ok(())
    })
}

fn mode_of(jetty: Object<urma_jetty_t>) -> u32 {
    jetty.jetty_cfg.jfs_cfg.trans_mode
}

/// Defines an import over a chosen path.
macro_rules! import_over {
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

import_over! {
    /// Imports a jetty or group over the path of `cfg`; handle 0: any path. A token must be given, whatever its policy.
    urma_import_jetty_ex, urma_rjetty_t: import_jetty_ex
}

import_over! {
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
