//! Send queues: life and attributes.
#![expect(unsafe_code, reason = "exported functions")]
#![expect(clippy::missing_safety_doc, reason = "the room card says what callers promise")]

use core::ffi::c_int;

use crate::{
    abi::{
        urma_context_t, urma_cr_t, urma_device_cap_t, urma_jfs_attr_t, urma_jfs_cfg_t, urma_jfs_t,
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

/// A send queue. An order type of 0 is replaced by that of the mode, in the caller's struct.
pub unsafe extern "C" fn urma_create_jfs(
    ctx: *mut urma_context_t,
    jfs_cfg: *mut urma_jfs_cfg_t,
) -> *mut urma_jfs_t {
    call::pointer(|| {
        let ctx = object::<kind::Context>(ctx)?;
        let create = op!(ctx.as_ptr(), create_jfs);
        // SAFETY: the caller's configuration.
        let mut cfg = unsafe { call::value(jfs_cfg) }?;
        check(&mut cfg, &caps(ctx)?)?;
        // SAFETY: the caller's configuration, in which the C core fills the default too.
        unsafe { jfs_cfg.write_unaligned(cfg) };
        // SAFETY: a live context, and the caller's configuration.
        let jfs = made(unsafe { create(ctx.as_ptr(), jfs_cfg) })?;
        retain(ctx);
        Ok(jfs.as_ptr())
    })
}

/// The rules for a send queue, alone or of a jetty; fills in the order type.
pub(super) fn check(cfg: &mut urma_jfs_cfg_t, caps: &urma_device_cap_t) -> Answer {
    object::<kind::Jfc>(cfg.jfc)?;
    let order = order::settle(cfg.trans_mode, cfg.flag.order_type())?;
    let holds = cfg.depth != 0
        && cfg.depth <= caps.max_jfs_depth
        && u32::from(cfg.max_sge) <= caps.max_jfs_sge
        && u32::from(cfg.max_rsge) <= caps.max_jfs_rsge
        && cfg.max_inline_data <= caps.max_jfs_inline_len;
    if !holds {
        return Err(Code::EINVAL);
    }
    cfg.flag.set_order_type(order);
    Ok(())
}

/// Moves the queue to another state.
pub unsafe extern "C" fn urma_modify_jfs(
    jfs: *mut urma_jfs_t,
    attr: *mut urma_jfs_attr_t,
) -> urma_status_t {
    call::status(|| {
        let jfs = object::<kind::Jfs>(jfs)?;
        call::place(attr)?;
        let modify = op!(home(jfs), modify_jfs);
        // SAFETY: a live queue, and the caller's attributes.
        Code::from_c(unsafe { modify(jfs.as_ptr(), attr) })
    })
}

/// Configuration and state.
pub unsafe extern "C" fn urma_query_jfs(
    jfs: *mut urma_jfs_t,
    cfg: *mut urma_jfs_cfg_t,
    attr: *mut urma_jfs_attr_t,
) -> urma_status_t {
    call::status(|| {
        let jfs = object::<kind::Jfs>(jfs)?;
        call::place(cfg)?;
        call::place(attr)?;
        let query = op!(home(jfs), query_jfs);
        // SAFETY: a live queue, and places of the caller's.
        Code::from_c(unsafe { query(jfs.as_ptr(), cfg, attr) })
    })
}

/// Deletes a queue; outstanding requests complete as flushed first.
pub unsafe extern "C" fn urma_delete_jfs(jfs: *mut urma_jfs_t) -> urma_status_t {
    call::status(|| {
        let jfs = object::<kind::Jfs>(jfs)?;
        let ctx = home(jfs);
        let delete = op!(ctx, delete_jfs);
        // SAFETY: a live queue.
        Code::from_c(unsafe { delete(jfs.as_ptr()) })?;
        release(ctx);
        Ok(())
    })
}

/// Deletes queues in order; `bad_jfs` names the first that was not deleted.
pub unsafe extern "C" fn urma_delete_jfs_batch(
    jfs_arr: *mut *mut urma_jfs_t,
    jfs_num: c_int,
    bad_jfs: *mut *mut urma_jfs_t,
) -> urma_status_t {
    // SAFETY: the caller's array and place.
    call::status(|| unsafe { batch::each::<kind::Jfs>(jfs_arr, jfs_num, bad_jfs) })
}

/// Takes flushed requests of a queue in the error state: 1 to its depth of them. How many, or the
/// negative status.
pub unsafe extern "C" fn urma_flush_jfs(
    jfs: *mut urma_jfs_t,
    cr_cnt: c_int,
    cr: *mut urma_cr_t,
) -> c_int {
    call::negative(|| {
        let jfs = object::<kind::Jfs>(jfs)?;
        call::place(cr)?;
        // SAFETY: a live queue.
        flushable(cr_cnt, unsafe { &(*jfs.as_ptr()).jfs_cfg })?;
        let flush = op!(home(jfs), flush_jfs);
        // SAFETY: a live queue, and the caller's array.
        Ok(unsafe { flush(jfs.as_ptr(), cr_cnt, cr) })
    })
}

/// Whether a queue may be asked for so many flushed completions: one to its depth.
pub(super) fn flushable(count: c_int, cfg: &urma_jfs_cfg_t) -> Answer {
    let is_fit = u32::try_from(count).is_ok_and(|count| (1..=cfg.depth).contains(&count));
    if is_fit { Ok(()) } else { Err(Code::EINVAL) }
}
