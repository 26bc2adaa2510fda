//! Jetties: life, attributes, description for peers.
#![expect(unsafe_code, reason = "exported functions")]
#![expect(clippy::missing_safety_doc, reason = "the room card says what callers promise")]

use core::{ffi::c_int, ptr::NonNull};

use crate::{
    abi::{
        URMA_JETTY, URMA_TM_RC, URMA_TM_RM, URMA_TM_UM, URMA_UTP, urma_context_t, urma_cr_t,
        urma_device_cap_t, urma_jetty_attr_t, urma_jetty_cfg_t, urma_jetty_grp_t, urma_jetty_t,
        urma_jfr_cfg_t, urma_rjetty_t, urma_status_t,
    },
    call::{self, Answer, Code, made, object},
    face::{
        batch, describe, device,
        dispatch::{caps, home, op, release, retain},
        jfs, members,
    },
    udma::kind,
};

/// A jetty, with a JFR that it may share with others. Its order type is filled in as for a JFS.
pub unsafe extern "C" fn urma_create_jetty(
    ctx: *mut urma_context_t,
    jetty_cfg: *mut urma_jetty_cfg_t,
) -> *mut urma_jetty_t {
    call::pointer(|| {
        let ctx = object::<kind::Context>(ctx)?;
        let create = op!(ctx.as_ptr(), create_jetty);
        // SAFETY: the caller's configuration.
        let mut cfg = unsafe { call::value(jetty_cfg) }?;
        check(&mut cfg, &caps(ctx)?)?;
        // SAFETY: the caller's configuration, in which the C core fills the default too.
        unsafe { jetty_cfg.write_unaligned(cfg) };
        // SAFETY: a live context, and the caller's configuration.
        let jetty = made(unsafe { create(ctx.as_ptr(), jetty_cfg) })?;
        retain(ctx);
        members::add(cfg.jetty_grp, jetty.as_ptr());
        Ok(jetty.as_ptr())
    })
}

/// The rules for a jetty. On UB devices the receive queue is a JFR; its mode and order are those of
/// the send half.
pub(super) fn check(cfg: &mut urma_jetty_cfg_t, caps: &urma_device_cap_t) -> Answer {
    jfs::check(&mut cfg.jfs_cfg, caps)?;
    if cfg.flag.share_jfr() == 0 {
        return Err(Code::EINVAL);
    }
    // SAFETY: the member that the flag names; any bytes are pointers.
    let shared = unsafe { cfg.u.shared };
    let jfr = object::<kind::Jfr>(shared.jfr)?;
    if !shared.jfc.is_null() {
        object::<kind::Jfc>(shared.jfc)?;
    }
    // SAFETY: a live queue.
    let recv = unsafe { (*jfr.as_ptr()).jfr_cfg };
    if !cfg.jetty_grp.is_null() {
        joins(object::<kind::Group>(cfg.jetty_grp)?, &recv, caps)?;
    }
    let is_alike = recv.trans_mode == cfg.jfs_cfg.trans_mode
        && recv.flag.order_type() == cfg.jfs_cfg.flag.order_type();
    if is_alike { Ok(()) } else { Err(Code::EINVAL) }
}

/// The rules for a jetty of a group: RM, the group's token, and a free place.
fn joins(
    group: NonNull<urma_jetty_grp_t>,
    recv: &urma_jfr_cfg_t,
    caps: &urma_device_cap_t,
) -> Answer {
    // SAFETY: a live group.
    let of = unsafe { group.as_ref() };
    let is_alike = recv.trans_mode == URMA_TM_RM
        && of.cfg.flag.token_policy() == recv.flag.token_policy()
        && of.cfg.token_value.token == recv.token_value.token;
    let has_room = of.jetty_cnt < caps.max_jetty_in_jetty_grp;
    if is_alike && has_room { Ok(()) } else { Err(Code::EINVAL) }
}

/// Changes the threshold, the state, or both.
pub unsafe extern "C" fn urma_modify_jetty(
    jetty: *mut urma_jetty_t,
    attr: *mut urma_jetty_attr_t,
) -> urma_status_t {
    call::status(|| {
        let jetty = object::<kind::Jetty>(jetty)?;
        call::place(attr)?;
        let modify = op!(home(jetty), modify_jetty);
        // SAFETY: a live jetty, and the caller's attributes.
        Code::from_c(unsafe { modify(jetty.as_ptr(), attr) })
    })
}

/// Configuration, threshold and state.
pub unsafe extern "C" fn urma_query_jetty(
    jetty: *mut urma_jetty_t,
    cfg: *mut urma_jetty_cfg_t,
    attr: *mut urma_jetty_attr_t,
) -> urma_status_t {
    call::status(|| {
        let jetty = object::<kind::Jetty>(jetty)?;
        call::place(cfg)?;
        call::place(attr)?;
        let query = op!(home(jetty), query_jetty);
        // SAFETY: a live jetty, and places of the caller's.
        Code::from_c(unsafe { query(jetty.as_ptr(), cfg, attr) })
    })
}

/// Deletes a jetty; outstanding requests complete as flushed first. `URMA_ENOPERM`: it is bound.
pub unsafe extern "C" fn urma_delete_jetty(jetty: *mut urma_jetty_t) -> urma_status_t {
    call::status(|| {
        let jetty = object::<kind::Jetty>(jetty)?;
        unbound(jetty)?;
        let ctx = home(jetty);
        let delete = op!(ctx, delete_jetty);
        // SAFETY: a live jetty.
        let group = unsafe { (*jetty.as_ptr()).jetty_cfg.jetty_grp };
        // SAFETY: as above.
        Code::from_c(unsafe { delete(jetty.as_ptr()) })?;
        members::remove(group, jetty.as_ptr());
        release(ctx);
        Ok(())
    })
}

/// A jetty with a target is not deleted.
pub(super) fn unbound(jetty: NonNull<urma_jetty_t>) -> Answer {
    // SAFETY: a live jetty.
    let of = unsafe { jetty.as_ref() };
    let is_bound = of.jetty_cfg.jfs_cfg.trans_mode == URMA_TM_RC && !of.remote_jetty.is_null();
    if is_bound { Err(Code::ENOPERM) } else { Ok(()) }
}

/// Deletes jetties in order; `bad_jetty` names the first that was not deleted.
pub unsafe extern "C" fn urma_delete_jetty_batch(
    jetty_arr: *mut *mut urma_jetty_t,
    jetty_num: c_int,
    bad_jetty: *mut *mut urma_jetty_t,
) -> urma_status_t {
    // SAFETY: the caller's array and place.
    call::status(|| unsafe { batch::each::<kind::Jetty>(jetty_arr, jetty_num, bad_jetty) })
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
        call::place(cr)?;
        // SAFETY: a live jetty.
        jfs::flushable(cr_cnt, unsafe { &(*jetty.as_ptr()).jetty_cfg.jfs_cfg })?;
        let flush = op!(home(jetty), flush_jetty);
        // SAFETY: a live jetty, and the caller's array.
        Ok(unsafe { flush(jetty.as_ptr(), cr_cnt, cr) })
    })
}

/// What a peer needs to import the jetty: bytes that mean the same in any process, without the
/// token. `urma_put_rjetty` frees them.
pub unsafe extern "C" fn urma_get_rjetty(
    jetty: *mut urma_jetty_t,
    rjetty: *mut *mut urma_rjetty_t,
    length: *mut u32,
) -> urma_status_t {
    call::status(|| {
        let jetty = object::<kind::Jetty>(jetty)?;
        let (to, length) = (call::place(rjetty)?, call::place(length)?);
        let ctx = home(jetty);
        let policy = token_policy(jetty)?;
        let memory = describe::blank::<urma_rjetty_t>(ctx, jetty)?;
        // SAFETY: fresh memory of this call.
        let described = unsafe { &mut *memory.as_ptr() };
        // SAFETY: a live jetty.
        fill(described, unsafe { &*jetty.as_ptr() });
        described.flag.set_token_policy(policy);
        // SAFETY: the flag in it is the provider's, and both places are the caller's.
        unsafe { describe::give(memory, (to, length)) };
        Ok(())
    })
}

/// How the receive queue of a jetty is guarded.
fn token_policy(jetty: NonNull<urma_jetty_t>) -> Answer<u32> {
    // SAFETY: a live jetty.
    let shared = unsafe { (*jetty.as_ptr()).jetty_cfg.u };
    // SAFETY: both members of the union are pointers.
    let jfr = object::<kind::Jfr>(unsafe { shared.shared }.jfr)?;
    // SAFETY: a live queue.
    Ok(unsafe { (*jfr.as_ptr()).jfr_cfg.flag }.token_policy())
}

fn fill(to: &mut urma_rjetty_t, jetty: &urma_jetty_t) {
    let cfg = &jetty.jetty_cfg;
    let mode = cfg.jfs_cfg.trans_mode;
    to.jetty_id = jetty.jetty_id;
    to.trans_mode = mode;
    to.r#type = URMA_JETTY;
    to.flag.set_order_type(cfg.jfs_cfg.flag.order_type());
    if mode == URMA_TM_UM {
        to.tp_type = URMA_UTP;
    }
    to.policy = object::<kind::Group>(cfg.jetty_grp).map_or(0, |group| {
        // SAFETY: a live group.
        unsafe { (*group.as_ptr()).cfg.policy }
    });
}

/// Frees what `urma_get_rjetty` gave; NULL is nothing.
pub unsafe extern "C" fn urma_put_rjetty(rjetty: *mut urma_rjetty_t) {
    // SAFETY: the caller got it from `urma_get_rjetty`, or it is NULL.
    unsafe { device::take_back(rjetty.cast()) };
}
