//! Completion queues: life, attributes, events.
#![expect(unsafe_code, reason = "exported functions")]
#![expect(clippy::missing_safety_doc, reason = "the room card says what callers promise")]

use core::ffi::c_int;

use urma_mem::sync::Ordering;

use crate::{
    abi::{
        UB_ACK_JFC, UB_REARM_JFC, UB_WAIT_JFC, urma_context_t, urma_jfc_attr_t, urma_jfc_cfg_t,
        urma_jfc_t, urma_jfce_t, urma_status_t,
    },
    call::{self, Answer, Code, made, object},
    face::{
        batch,
        dispatch::{caps, drop_one, home, op, release, retain},
    },
    perf,
    udma::kind,
};

/// A completion queue of depth 1 to `max_jfc_depth`; `jfce` may be NULL.
pub unsafe extern "C" fn urma_create_jfc(
    ctx: *mut urma_context_t,
    jfc_cfg: *mut urma_jfc_cfg_t,
) -> *mut urma_jfc_t {
    call::pointer(|| {
        call::at("create_jfc");
        let ctx = object::<kind::Context>(ctx)?;
        let create = op!(ctx.as_ptr(), create_jfc);
        // SAFETY: the caller's configuration.
        let cfg = unsafe { call::value(jfc_cfg) }?;
        check(&cfg, caps(ctx)?.max_jfc_depth)?;
        // SAFETY: a live context, and the caller's configuration.
        let jfc = made(unsafe { create(ctx.as_ptr(), jfc_cfg) })?;
        retain(ctx);
        if let Ok(jfce) = object::<kind::Jfce>(cfg.jfce) {
            // SAFETY: a live channel: the provider made a queue on it.
            unsafe { &(*jfce.as_ptr()).r#ref }.atomic_cnt.fetch_add(1, Ordering::AcqRel);
        }
        Ok(jfc.as_ptr())
    })
}

pub(super) fn check(cfg: &urma_jfc_cfg_t, max_depth: u32) -> Answer {
    if cfg.depth == 0 || cfg.depth > max_depth {
        return Err(Code::EINVAL);
    }
    if !cfg.jfce.is_null() {
        object::<kind::Jfce>(cfg.jfce)?;
    }
    Ok(())
}

/// Event moderation: after so many completions or microseconds.
pub unsafe extern "C" fn urma_modify_jfc(
    jfc: *mut urma_jfc_t,
    attr: *mut urma_jfc_attr_t,
) -> urma_status_t {
    call::status(|| {
        let jfc = object::<kind::Jfc>(jfc)?;
        call::place(attr)?;
        let modify = op!(home(jfc), modify_jfc);
        // SAFETY: a live queue, and the caller's attributes.
        Code::from_c(unsafe { modify(jfc.as_ptr(), attr) })
    })
}

/// Deletes a queue; what was not polled is lost. `URMA_EAGAIN`: a queue completes here, or an event
/// is not acknowledged.
pub unsafe extern "C" fn urma_delete_jfc(jfc: *mut urma_jfc_t) -> urma_status_t {
    call::status(|| {
        let jfc = object::<kind::Jfc>(jfc)?;
        // SAFETY: a live queue.
        let (ctx, jfce) = unsafe { held_by(jfc.as_ptr()) };
        let delete = op!(ctx, delete_jfc);
        // SAFETY: a live queue.
        Code::from_c(unsafe { delete(jfc.as_ptr()) })?;
        let_go(ctx, jfce);
        Ok(())
    })
}

/// What a queue counts on: its context and its channel.
///
/// # Safety
/// A live queue.
unsafe fn held_by(jfc: *mut urma_jfc_t) -> (*mut urma_context_t, *mut urma_jfce_t) {
    // SAFETY: the caller's promise.
    let ctx = unsafe { (*jfc).urma_ctx };
    // SAFETY: as above.
    (ctx, unsafe { (*jfc).jfc_cfg.jfce })
}

fn let_go(ctx: *mut urma_context_t, jfce: *mut urma_jfce_t) {
    leave(jfce);
    release(ctx);
}

/// A queue less on a channel.
pub(super) fn leave(jfce: *mut urma_jfce_t) {
    if let Ok(jfce) = object::<kind::Jfce>(jfce) {
        // SAFETY: a live channel.
        drop_one(unsafe { &(*jfce.as_ptr()).r#ref });
    }
}

/// Deletes queues in order; `bad_jfc` names the first that was not deleted.
pub unsafe extern "C" fn urma_delete_jfc_batch(
    jfc_arr: *mut *mut urma_jfc_t,
    jfc_num: c_int,
    bad_jfc: *mut *mut urma_jfc_t,
) -> urma_status_t {
    call::status(|| {
        // SAFETY: the caller's array and place.
        unsafe { batch::each::<kind::Jfc>(jfc_arr, jfc_num, bad_jfc) }
    })
}

/// Asks for one event: for any completion, or for solicited ones and errors only.
pub unsafe extern "C" fn urma_rearm_jfc(
    jfc: *mut urma_jfc_t,
    solicited_only: bool,
) -> urma_status_t {
    perf::timed(UB_REARM_JFC, || {
        call::status(|| {
            let jfc = object::<kind::Jfc>(jfc)?;
            let rearm = op!(home(jfc), rearm_jfc);
            // SAFETY: a live queue.
            Code::from_c(unsafe { rearm(jfc.as_ptr(), u8::from(solicited_only)) })
        })
    })
}

/// Takes events: the queues that have some, up to `jfc_cnt`. Waits `time_out` milliseconds; below 0,
/// until one comes or the channel is deleted. -1 with `errno`; EINTR: a signal came first.
pub unsafe extern "C" fn urma_wait_jfc(
    jfce: *mut urma_jfce_t,
    jfc_cnt: u32,
    time_out: c_int,
    jfc: *mut *mut urma_jfc_t,
) -> c_int {
    perf::timed(UB_WAIT_JFC, || {
        call::count(|| {
            let jfce = object::<kind::Jfce>(jfce)?;
            call::place(jfc)?;
            if jfc_cnt == 0 {
                return Err(Code::EINVAL);
            }
            let wait = op!(home(jfce), wait_jfc);
            // SAFETY: a live channel, and the caller's array.
            as_set(unsafe { wait(jfce.as_ptr(), jfc_cnt, time_out, jfc) })
        })
    })
}

/// A count of a provider, which set `errno` when it is negative.
pub(super) fn as_set(count: c_int) -> Answer<c_int> {
    if count < 0 { Err(Code::AS_SET) } else { Ok(count) }
}

/// Acknowledges events that [`urma_wait_jfc`] gave.
pub unsafe extern "C" fn urma_ack_jfc(jfc: *mut *mut urma_jfc_t, nevents: *mut u32, jfc_cnt: u32) {
    perf::timed(UB_ACK_JFC, || {
        call::nothing(|| {
            let first = call::place(jfc)?;
            call::place(nevents)?;
            if jfc_cnt == 0 {
                return Err(Code::EINVAL);
            }
            // SAFETY: the caller's array has an element.
            let first = object::<kind::Jfc>(unsafe { first.read() })?;
            let ack = op!(home(first), ack_jfc);
            // SAFETY: the caller's arrays.
            unsafe { ack(jfc, nevents, jfc_cnt) };
            Err(Code::AS_SET)
        });
    });
}
