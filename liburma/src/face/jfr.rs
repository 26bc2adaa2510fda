//! Receive queues: life and attributes.
#![expect(unsafe_code, reason = "exported functions")]
#![expect(clippy::missing_safety_doc, reason = "the room card says what callers promise")]

use core::ffi::c_int;

use crate::{
    abi::{
        urma_context_t, urma_device_cap_t, urma_jfr_attr_t, urma_jfr_cfg_t, urma_jfr_t,
        urma_status_t,
    },
    call::{self, Answer, Code, made, object},
    face::{
        batch,
        dispatch::{caps, home, op, release, retain},
        order,
    },
    udma::kind,
};

/// A receive queue. An order type of 0 is replaced by that of the mode, in the caller's struct.
pub unsafe extern "C" fn urma_create_jfr(
    ctx: *mut urma_context_t,
    jfr_cfg: *mut urma_jfr_cfg_t,
) -> *mut urma_jfr_t {
    call::pointer(|| {
        let ctx = object::<kind::Context>(ctx)?;
        let create = op!(ctx.as_ptr(), create_jfr);
        // SAFETY: the caller's configuration.
        let mut cfg = unsafe { call::value(jfr_cfg) }?;
        check(&mut cfg, &caps(ctx)?)?;
        // SAFETY: the caller's configuration, in which the C core fills the default too.
        unsafe { jfr_cfg.write_unaligned(cfg) };
        // SAFETY: a live context, and the caller's configuration.
        let jfr = made(unsafe { create(ctx.as_ptr(), jfr_cfg) })?;
        retain(ctx);
        Ok(jfr.as_ptr())
    })
}

/// The rules for a receive queue; fills in the order type.
pub(super) fn check(cfg: &mut urma_jfr_cfg_t, caps: &urma_device_cap_t) -> Answer {
    object::<kind::Jfc>(cfg.jfc)?;
    let order = order::settle(cfg.trans_mode, cfg.flag.order_type())?;
    let holds = cfg.depth != 0
        && cfg.depth <= caps.max_jfr_depth
        && u32::from(cfg.max_sge) <= caps.max_jfr_sge;
    if !holds {
        return Err(Code::EINVAL);
    }
    cfg.flag.set_order_type(order);
    Ok(())
}

/// Changes the threshold, the state, or both.
pub unsafe extern "C" fn urma_modify_jfr(
    jfr: *mut urma_jfr_t,
    attr: *mut urma_jfr_attr_t,
) -> urma_status_t {
    call::status(|| {
        let jfr = object::<kind::Jfr>(jfr)?;
        call::place(attr)?;
        let modify = op!(home(jfr), modify_jfr);
        // SAFETY: a live queue, and the caller's attributes.
        Code::from_c(unsafe { modify(jfr.as_ptr(), attr) })
    })
}

/// Configuration, threshold and state.
pub unsafe extern "C" fn urma_query_jfr(
    jfr: *mut urma_jfr_t,
    cfg: *mut urma_jfr_cfg_t,
    attr: *mut urma_jfr_attr_t,
) -> urma_status_t {
    call::status(|| {
        let jfr = object::<kind::Jfr>(jfr)?;
        call::place(cfg)?;
        call::place(attr)?;
        let query = op!(home(jfr), query_jfr);
        // SAFETY: a live queue, and places of the caller's.
        Code::from_c(unsafe { query(jfr.as_ptr(), cfg, attr) })
    })
}

/// Deletes a queue; outstanding requests complete as flushed first. `URMA_EAGAIN`: jetties receive
/// through it.
pub unsafe extern "C" fn urma_delete_jfr(jfr: *mut urma_jfr_t) -> urma_status_t {
    call::status(|| {
        let jfr = object::<kind::Jfr>(jfr)?;
        let ctx = home(jfr);
        let delete = op!(ctx, delete_jfr);
        // SAFETY: a live queue.
        Code::from_c(unsafe { delete(jfr.as_ptr()) })?;
        release(ctx);
        Ok(())
    })
}

/// Deletes queues in order; `bad_jfr` names the first that was not deleted.
pub unsafe extern "C" fn urma_delete_jfr_batch(
    jfr_arr: *mut *mut urma_jfr_t,
    jfr_num: c_int,
    bad_jfr: *mut *mut urma_jfr_t,
) -> urma_status_t {
    // SAFETY: the caller's array and place.
    call::status(|| unsafe { batch::each::<kind::Jfr>(jfr_arr, jfr_num, bad_jfr) })
}
