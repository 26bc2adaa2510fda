//! Asynchronous events: taking and acknowledging them.

use crate::{
    abi::*,
    call::{self, Code, object},
    face::dispatch::{ask, forwards},
    udma::kind,
};

forwards! {
    /// The next event of a context: waits for it, or answers `URMA_EAGAIN` when `async_fd` was made
    /// non-blocking. Each is to be acknowledged.
    urma_get_async_event(ctx: *mut urma_context_t as Context, event: *mut urma_async_event_t) needs(event)
        = get_async_event;
}

/// Acknowledges an event. Until then the object that it names cannot be deleted (`URMA_EAGAIN`).
pub unsafe extern "C" fn urma_ack_async_event(event: *mut urma_async_event_t) {
    call::nothing(|| {
        // SAFETY: an event of the caller's (room card of `face`).
        let of = unsafe { call::value(event) }?;
        let ctx = call::when_decided::<kind::Context, _>(of.urma_ctx, object::<kind::Context>)?;
        ask!(ctx.as_ptr(), ack_async_event(event));
        Err(Code::errno_of_callee())
    });
}
