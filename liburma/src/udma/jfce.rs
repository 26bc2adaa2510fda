//! JFCE: event channels, and the wait for events.
//!
//! *Owns*: urma-core's channel. *Gives*: `urma_jfce_t` with its descriptor. *Must not*: hold a lock
//! while it waits.

use core::{ffi::c_int, ptr::NonNull, time::Duration};
use std::{os::fd::AsRawFd, sync::Arc};

use crate::{
    abi::*,
    call::{self, Code, UserArray, refuse},
    convert::zeroed,
    perf,
    udma::{
        context::{ctx_of, delete, publish, shared},
        event_queue::EventSubject,
        hardware::Counted,
        kind::{self, JfceOwn},
    },
};

pub(crate) unsafe extern "C" fn create_jfce(ctx: *mut urma_context_t) -> *mut urma_jfce_t {
    call::pointer(|| {
        let own = ctx_of(ctx)?;
        let core = own.core.create_jfce()?;
        let mut public: urma_jfce_t = zeroed();
        public.urma_ctx = ctx;
        public.fd = core.fd().as_raw_fd();
        let jfce = JfceOwn { core, ctx: Arc::clone(&own), _counted: Counted::new(&own.hardware) };
        Ok(publish::<kind::Jfce>(&own, public, Arc::new(jfce))?.public())
    })
}

/// Deletes a channel; threads that wait on it return.
pub(crate) unsafe extern "C" fn delete_jfce(jfce: *mut urma_jfce_t) -> urma_status_t {
    call::status(|| {
        delete::<kind::Jfce>(jfce, |own| match own.core.delete() {
            Ok(()) => Ok(()),
            Err(status) => Err(Box::new((own, status.into()))),
        })
    })
}

/// Most events of one call; the rest stay for the next.
const EVENTS_MAX: usize = 64;

pub(crate) unsafe extern "C" fn wait_jfc(
    jfce: *mut urma_jfce_t,
    jfc_cnt: u32,
    time_out: c_int,
    jfc: *mut *mut urma_jfc_t,
) -> c_int {
    call::count(|| {
        // SAFETY: an array of the caller's of `jfc_cnt` pointers (room card of `face`).
        let to = unsafe { UserArray::new(jfc, jfc_cnt as usize) }?;
        let room = usize::try_from(jfc_cnt).unwrap_or(usize::MAX).min(EVENTS_MAX);
        if room == 0 {
            return Err(refuse!(EINVAL, "jfc_cnt is 0; the array must have an element"));
        }
        let own = shared::<kind::Jfce, _>(jfce)?;
        let timeout = u64::try_from(time_out).ok().map(Duration::from_millis);
        let mut numbers = [0; EVENTS_MAX];
        let start_ns = perf::now_ns();
        let count = own.core.wait(&mut numbers[..room], timeout)?;
        if count == 0 && is_early(start_ns, timeout) {
            return Err(Code::EINTR.expected());
        }
        let queue =
            |number: &u32| own.ctx.events.named(EventSubject::Jfc(*number)).map(NonNull::as_ptr);
        let given = to.fill(numbers[..count].iter().filter_map(queue));
        c_int::try_from(given).map_err(|_| refuse!(FAIL, "{given} queues have events"))
    })
}

/// Whether a wait without events ended before its time: a signal came. The device has a clock of its
/// own: a millisecond is no difference.
fn is_early(start_ns: u64, timeout: Option<Duration>) -> bool {
    const SLACK: Duration = Duration::from_millis(1);
    let gone = Duration::from_nanos(perf::now_ns().saturating_sub(start_ns));
    timeout.is_none_or(|timeout| gone + SLACK < timeout)
}
