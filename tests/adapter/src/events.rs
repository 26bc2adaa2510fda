//! Asynchronous events.
//!
//! *Owns*: the wait. *Takes*: events of the context. *Gives*: events with numbers instead of
//! pointers, acknowledged already.
#![expect(unsafe_code, reason = "calls of C functions, and public members")]

use std::time::Duration;

use liburma::{
    abi::urma_async_event_t,
    face::context::{urma_ack_async_event, urma_get_async_event},
    zeroed,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use urma_core::{AsyncEvent, AsyncKind, AsyncObject, Status};

use crate::{shared::Shared, value::done};

/// The next event, after one wait of at most `timeout`.
pub(crate) fn next(
    shared: &Shared,
    timeout: Option<Duration>,
) -> Result<Option<AsyncEvent>, Status> {
    if let Some(event) = take(shared)? {
        return Ok(Some(event));
    }
    let limit = timeout.and_then(|limit| Timespec::try_from(limit).ok());
    let mut fds = [PollFd::from_borrowed_fd(shared.async_fd(), PollFlags::IN)];
    // Nothing came, or a signal: the look says which.
    let _ = poll(&mut fds, limit.as_ref());
    take(shared)
}

fn take(shared: &Shared) -> Result<Option<AsyncEvent>, Status> {
    loop {
        let mut event: urma_async_event_t = zeroed();
        // SAFETY: a live context, and a place for one.
        let code = unsafe { urma_get_async_event(shared.ctx.0, &raw mut event) };
        if code == Status::Again.errno() {
            return Ok(None);
        }
        done(code)?;
        let described = describe(&event);
        // SAFETY: the event that the library gave.
        unsafe { urma_ack_async_event(&raw mut event) };
        if let Some(event) = of_jetty(shared, described) {
            return Ok(Some(event));
        }
    }
}

/// The event with the number of what it is about.
fn describe(event: &urma_async_event_t) -> AsyncEvent {
    macro_rules! number {
        ($member:ident, $id:ident) => {{
            // SAFETY: the member that the kind of event names; any bytes are a pointer.
            let object = unsafe { event.element.$member };
            // SAFETY: an object of the library that is not deleted before the acknowledgement.
            unsafe { (*object).$id.id }
        }};
    }
    let kind = AsyncKind::from_code(u8::try_from(event.event_type).unwrap_or(u8::MAX));
    let id = match kind.object() {
        AsyncObject::Jfc => number!(jfc, jfc_id),
        AsyncObject::Jfs => number!(jfs, jfs_id),
        AsyncObject::Jfr => number!(jfr, jfr_id),
        AsyncObject::Jetty => number!(jetty, jetty_id),
        AsyncObject::Group => number!(jetty_grp, jetty_grp_id),
        // SAFETY: an integer, of which any bytes are a value.
        AsyncObject::Device => unsafe { event.element.port_id },
    };
    AsyncEvent { kind, id }
}

/// An event of a JFR that only one jetty knows is the jetty's, or no queue's.
fn of_jetty(shared: &Shared, event: AsyncEvent) -> Option<AsyncEvent> {
    if !matches!(event.kind, AsyncKind::JfrError | AsyncKind::JfrLimit) {
        return Some(event);
    }
    match shared.names().own_jfrs.get(&event.id) {
        None => Some(event),
        Some(_) if event.kind == AsyncKind::JfrError => None,
        Some(jetty) => Some(AsyncEvent { kind: AsyncKind::JettyLimit, id: *jetty }),
    }
}
