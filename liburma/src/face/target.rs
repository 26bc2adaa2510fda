//! Remote queues: import, advice, binding.
#![expect(unsafe_code, reason = "exported functions")]
#![expect(clippy::missing_safety_doc, reason = "the room card says what callers promise")]

use crate::{
    abi::{
        URMA_CTP, URMA_RTP, URMA_TM_RC, URMA_TM_RM, URMA_TM_UM, URMA_TOKEN_NONE, URMA_UTP,
        urma_active_tp_cfg_t, urma_context_t, urma_import_jetty_flag_t, urma_jetty_t, urma_jfs_t,
        urma_rjetty_t, urma_rjfr_t, urma_status_t, urma_target_jetty_t, urma_token_t,
    },
    call::{self, Answer, Code, Object, made, object},
    convert::zeroed,
    face::dispatch::{ask, home, op, ops, release, retain},
    udma::kind,
};

/// Imports a jetty or a group of a peer. `token_value` may be NULL when it has no token.
pub unsafe extern "C" fn urma_import_jetty(
    ctx: *mut urma_context_t,
    rjetty: *mut urma_rjetty_t,
    token_value: *mut urma_token_t,
) -> *mut urma_target_jetty_t {
    call::pointer(|| {
        let ctx = object::<kind::Context>(ctx)?;
        let ops = ops(ctx.as_ptr())?;
        // SAFETY: the caller's description.
        let of = unsafe { call::value(rjetty) }?;
        check(of.trans_mode, of.tp_type, of.flag, token_value)?;
        // SAFETY: the table of a live context.
        let target = if let Some(import) = unsafe { (*ops.as_ptr()).import_jetty } {
            // SAFETY: a live context, and the caller's description and token.
            unsafe { import(ctx.as_ptr(), rjetty, token_value) }
        } else {
            let mut active: urma_active_tp_cfg_t = compat(of.flag)?;
            ask!(ctx.as_ptr(), import_jetty_ex(ctx.as_ptr(), rjetty, token_value, &raw mut active))
        };
        let target = made(target)?;
        retain(ctx);
        Ok(target.as_ptr())
    })
}

/// Imports a JFR of a peer. `token_value` may be NULL when it has no token.
pub unsafe extern "C" fn urma_import_jfr(
    ctx: *mut urma_context_t,
    rjfr: *mut urma_rjfr_t,
    token_value: *mut urma_token_t,
) -> *mut urma_target_jetty_t {
    call::pointer(|| {
        let ctx = object::<kind::Context>(ctx)?;
        let ops = ops(ctx.as_ptr())?;
        // SAFETY: the caller's description.
        let of = unsafe { call::value(rjfr) }?;
        check(of.trans_mode, of.tp_type, of.flag, token_value)?;
        // SAFETY: the table of a live context.
        let target = if let Some(import) = unsafe { (*ops.as_ptr()).import_jfr } {
            // SAFETY: a live context, and the caller's description and token.
            unsafe { import(ctx.as_ptr(), rjfr, token_value) }
        } else {
            let mut active: urma_active_tp_cfg_t = compat(of.flag)?;
            ask!(ctx.as_ptr(), import_jfr_ex(ctx.as_ptr(), rjfr, token_value, &raw mut active))
        };
        let target = made(target)?;
        retain(ctx);
        Ok(target.as_ptr())
    })
}

/// The rules for an import. UM goes by the unreliable kind of path, the others never.
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
    if fits && has_token && is_mode { Ok(()) } else { Err(Code::EINVAL) }
}

/// What a provider that wants to hear of transport paths is told when the caller says nothing.
fn compat(flag: urma_import_jetty_flag_t) -> Answer<urma_active_tp_cfg_t> {
    if flag.share_tp() == 0 { Ok(zeroed()) } else { Err(Code::EINVAL) }
}

/// Forgets a target; requests posted to it go on.
pub unsafe extern "C" fn urma_unimport_jetty(tjetty: *mut urma_target_jetty_t) -> urma_status_t {
    call::status(|| {
        let target = object::<kind::Target>(tjetty)?;
        let ctx = home(target);
        Code::from_c(ask!(ctx, unimport_jetty(target.as_ptr())))?;
        release(ctx);
        Ok(())
    })
}

/// Forgets a target; requests posted to it go on.
pub unsafe extern "C" fn urma_unimport_jfr(target_jfr: *mut urma_target_jetty_t) -> urma_status_t {
    call::status(|| {
        let target = object::<kind::Target>(target_jfr)?;
        let ctx = home(target);
        Code::from_c(ask!(ctx, unimport_jfr(target.as_ptr())))?;
        release(ctx);
        Ok(())
    })
}

/// Whether queue and target are of `mode`, the target's as its public part says.
fn both_of(mode: u32, queue: u32, target: Object<urma_target_jetty_t>) -> bool {
    let of_target = target.trans_mode;
    queue == mode && of_target == mode
}

/// Advice is for RM.
fn advisable(queue: u32, target: Object<urma_target_jetty_t>) -> Answer {
    if both_of(URMA_TM_RM, queue, target) { Ok(()) } else { Err(Code::EINVAL) }
}

/// Says that requests of an RM queue to the target will come. `URMA_EINVAL`: not RM on both sides.
pub unsafe extern "C" fn urma_advise_jfr(
    jfs: *mut urma_jfs_t,
    tjfr: *mut urma_target_jetty_t,
) -> urma_status_t {
    call::status(|| {
        let (jfs, target) = (object::<kind::Jfs>(jfs)?, object::<kind::Target>(tjfr)?);
        let advise = op!(home(jfs), advise_jfr);
        advisable(jfs.jfs_cfg.trans_mode, target)?;
        // SAFETY: both live.
        Code::from_c(unsafe { advise(jfs.as_ptr(), target.as_ptr()) })
    })
}

/// Undoes `urma_advise_jfr`.
pub unsafe extern "C" fn urma_unadvise_jfr(
    jfs: *mut urma_jfs_t,
    tjfr: *mut urma_target_jetty_t,
) -> urma_status_t {
    call::status(|| {
        let (jfs, target) = (object::<kind::Jfs>(jfs)?, object::<kind::Target>(tjfr)?);
        let unadvise = op!(home(jfs), unadvise_jfr);
        advisable(jfs.jfs_cfg.trans_mode, target)?;
        // SAFETY: both live.
        Code::from_c(unsafe { unadvise(jfs.as_ptr(), target.as_ptr()) })
    })
}

/// Says that requests of an RM jetty to the target will come. `URMA_EINVAL`: not RM on both sides.
pub unsafe extern "C" fn urma_advise_jetty(
    jetty: *mut urma_jetty_t,
    tjetty: *mut urma_target_jetty_t,
) -> urma_status_t {
    call::status(|| {
        let (jetty, target) = (object::<kind::Jetty>(jetty)?, object::<kind::Target>(tjetty)?);
        let advise = op!(home(jetty), advise_jetty);
        advisable(mode_of(jetty), target)?;
        // SAFETY: both live.
        Code::from_c(unsafe { advise(jetty.as_ptr(), target.as_ptr()) })
    })
}

/// Undoes `urma_advise_jetty`.
pub unsafe extern "C" fn urma_unadvise_jetty(
    jetty: *mut urma_jetty_t,
    tjetty: *mut urma_target_jetty_t,
) -> urma_status_t {
    call::status(|| {
        let (jetty, target) = (object::<kind::Jetty>(jetty)?, object::<kind::Target>(tjetty)?);
        let unadvise = op!(home(jetty), unadvise_jetty);
        advisable(mode_of(jetty), target)?;
        // SAFETY: both live.
        Code::from_c(unsafe { unadvise(jetty.as_ptr(), target.as_ptr()) })
    })
}

/// Pairs an RC jetty with its one target. `URMA_ENOPERM`: not RC on both sides, or the order types
/// differ. `URMA_EEXIST`: it is bound.
pub unsafe extern "C" fn urma_bind_jetty(
    jetty: *mut urma_jetty_t,
    tjetty: *mut urma_target_jetty_t,
) -> urma_status_t {
    call::status(|| {
        let (jetty, target) = (object::<kind::Jetty>(jetty)?, object::<kind::Target>(tjetty)?);
        let ctx = home(jetty);
        let ops = ops(ctx)?;
        bindable(jetty, target)?;
        // SAFETY: the table of a live context.
        let status = if let Some(bind) = unsafe { (*ops.as_ptr()).bind_jetty } {
            // SAFETY: both live.
            unsafe { bind(jetty.as_ptr(), target.as_ptr()) }
        } else {
            let bind = op!(ctx, bind_jetty_ex);
            let mut active: urma_active_tp_cfg_t = zeroed();
            // SAFETY: both live, and a configuration that lives until the call returns.
            unsafe { bind(jetty.as_ptr(), target.as_ptr(), &raw mut active) }
        };
        Code::from_c(status)?;
        // SAFETY: a live jetty.
        unsafe { (*jetty.as_ptr()).remote_jetty = target.as_ptr() };
        Ok(())
    })
}

/// RC on both sides, and one order type.
pub(super) fn bindable(jetty: Object<urma_jetty_t>, target: Object<urma_target_jetty_t>) -> Answer {
    if !both_of(URMA_TM_RC, mode_of(jetty), target) {
        return Err(Code::ENOPERM);
    }
    let here = jetty.jetty_cfg.jfs_cfg.flag.order_type();
    let there = target.flag.order_type();
    if here == there { Ok(()) } else { Err(Code::ENOPERM) }
}

/// Undoes `urma_bind_jetty`. `URMA_ENOPERM`: not RC. `URMA_EINVAL`: not bound.
pub unsafe extern "C" fn urma_unbind_jetty(jetty: *mut urma_jetty_t) -> urma_status_t {
    call::status(|| {
        let jetty = object::<kind::Jetty>(jetty)?;
        let unbind = op!(home(jetty), unbind_jetty);
        if mode_of(jetty) != URMA_TM_RC {
            return Err(Code::ENOPERM);
        }
        // SAFETY: a live jetty.
        Code::from_c(unsafe { unbind(jetty.as_ptr()) })?;
        // SAFETY: as above.
        unsafe { (*jetty.as_ptr()).remote_jetty = core::ptr::null_mut() };
        Ok(())
    })
}

fn mode_of(jetty: Object<urma_jetty_t>) -> u32 {
    jetty.jetty_cfg.jfs_cfg.trans_mode
}
