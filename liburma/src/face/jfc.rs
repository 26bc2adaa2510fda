//! JFCs and event channels: events, creation and deletion of channels.

use core::ffi::c_int;

use urma_mem::sync::Ordering;

use crate::{
    abi::*,
    call::{self, Code, made, object, refuse},
    face::dispatch::{as_set, ask, home, op, release, retain, run, users},
    perf,
    udma::kind,
};

/// Arms a JFC for one event: on any completion, or on solicited ones and errors only.
pub unsafe extern "C" fn urma_rearm_jfc(
    jfc: *mut urma_jfc_t,
    solicited_only: bool,
) -> urma_status_t {
    perf::timed(UB_REARM_JFC, || {
        call::status(|| {
            let jfc = object::<kind::Jfc>(jfc)?;
            Code::from_c(ask!(home(jfc), rearm_jfc(jfc.as_ptr(), u8::from(solicited_only))))
        })
    })
}

/// Waits up to `time_out` milliseconds for events (a negative value: until one comes or the channel is deleted), and
/// takes those of up to `jfc_cnt` queues. Returns their number, or -1 with `errno`; EINTR: a signal interrupted the wait.
pub unsafe extern "C" fn urma_wait_jfc(
    jfce: *mut urma_jfce_t,
    jfc_cnt: u32,
    time_out: c_int,
    jfc: *mut *mut urma_jfc_t,
) -> c_int {
    perf::timed(UB_WAIT_JFC, || {
        call::count(|| {
            let jfce = object::<kind::Jfce>(jfce)?;
            call::some(jfc)?;
            if jfc_cnt == 0 {
                return Err(refuse!(EINVAL, "jfc_cnt is 0; the array must have an element"));
            }
            as_set(ask!(home(jfce), wait_jfc(jfce.as_ptr(), jfc_cnt, time_out, jfc)))
        })
    })
}

/// Acknowledges events that [`urma_wait_jfc`] returned.
pub unsafe extern "C" fn urma_ack_jfc(jfc: *mut *mut urma_jfc_t, nevents: *mut u32, jfc_cnt: u32) {
    perf::timed(UB_ACK_JFC, || {
        call::nothing(|| {
            call::some(nevents)?;
            if jfc_cnt == 0 {
                return Err(refuse!(EINVAL, "jfc_cnt is 0; the arrays must have an element"));
            }
            // SAFETY: an array of the caller's, which has an element (room card of `face`).
            let first = unsafe { call::value(jfc) }?;
            let first = call::when_decided::<kind::Jfc, _>(first, object::<kind::Jfc>)?;
            ask!(home(first), ack_jfc(jfc, nevents, jfc_cnt));
            Err(Code::errno_of_callee())
        });
    });
}

/// Creates an event channel; its `fd` is readable while an event waits.
pub unsafe extern "C" fn urma_create_jfce(ctx: *mut urma_context_t) -> *mut urma_jfce_t {
    call::pointer(|| {
        let ctx = object::<kind::Context>(ctx)?;
        let jfce = made(ask!(ctx.as_ptr(), create_jfce(ctx.as_ptr())))?;
        jfce.r#ref.atomic_cnt.store(1, Ordering::Release);
        retain(ctx);
        Ok(jfce.as_ptr())
    })
}

/// Deletes an event channel; threads that wait on it return. `URMA_FAIL`: a JFC uses it.
pub unsafe extern "C" fn urma_delete_jfce(jfce: *mut urma_jfce_t) -> urma_status_t {
    call::status(|| {
        let jfce = object::<kind::Jfce>(jfce)?;
        let ctx = home(jfce);
        let delete = op!(ctx, delete_jfce);
        if users(&jfce.r#ref) != 0 {
            return Err(refuse!(
                FAIL,
                "{} JFCs use the JFCE; delete them first",
                users(&jfce.r#ref)
            ));
        }
        Code::from_c(run!(delete(jfce.as_ptr())))?;
        release(ctx);
        Ok(())
    })
}
