//! Asynchronous events: from the device, which all contexts share, to the context that they are about.
//!
//! *Takes*: events of the device, in the thread that asks for one. *Gives*: `urma_async_event_t` that names a live
//! object. *Must not*: lose an event of another context.

use core::time::Duration;
use std::sync::Arc;

use urma_core::{AsyncEvent, AsyncKind, AsyncObject};

use crate::{
    abi::*,
    call::{self, Answer, Code, UserPtr, ours, refuse},
    convert::zeroed,
    slab::{InSlot, Kind, member},
    udma::{
        context::ctx_of,
        event_queue::{EventSubject, Events},
        kind::{self, Ctx},
    },
};

/// How often a waiting thread checks whether its context still exists.
const LOOK_AFTER: Duration = Duration::from_millis(100);

/// The next event of a context. Waits for it unless the descriptor was made non-blocking.
pub(crate) unsafe extern "C" fn get_async_event(
    ctx: *mut urma_context_t,
    event: *mut urma_async_event_t,
) -> urma_status_t {
    call::status(|| {
        // SAFETY: a place of the caller's (room card of `face`).
        let to = unsafe { UserPtr::new(event) }?;
        loop {
            // Looked up in each iteration: another thread may delete it meanwhile.
            let own = ctx_of(ctx)?;
            if let Some(event) = take(&own)? {
                if let Some(mut given) = describe(&own.events, &event) {
                    given.urma_ctx = ctx;
                    own.events.given(EventSubject::of(&event));
                    to.write(given);
                    return Ok(());
                }
                continue;
            }
            let events = Arc::clone(&own.events);
            // A waiting thread does not keep the context alive.
            drop(own);
            if events.is_nonblocking() {
                return Err(Code::EAGAIN.expected());
            }
            events.wait(LOOK_AFTER);
        }
    })
}

/// The next event of this context, if there is one. Those of others are left for them.
fn take(own: &Arc<Ctx>) -> Answer<Option<AsyncEvent>> {
    loop {
        if let Some(event) = own.events.next() {
            return Ok(Some(event));
        }
        let Some(event) = own.core.next_async(Some(Duration::ZERO))? else { return Ok(None) };
        let others = own.hardware.listeners();
        let others = others.iter().filter(|other| !Arc::ptr_eq(other, &own.events));
        let subject = EventSubject::of(&event);
        if subject == EventSubject::Device {
            others.for_each(|other| other.leave(event));
        } else if !own.events.has(subject) {
            others.filter(|other| other.has(subject)).for_each(|one| one.leave(event));
            continue;
        }
        return Ok(Some(event));
    }
}

/// `None`: the object that it is about was deleted.
fn describe(events: &Events, event: &AsyncEvent) -> Option<urma_async_event_t> {
    let mut to: urma_async_event_t = zeroed();
    to.event_type = u32::from(event.kind.code());
    let subject = EventSubject::of(event);
    to.element = if subject == EventSubject::Device {
        urma_async_event_element { port_id: event.id }
    } else {
        // Each kind of object has a member; all are pointers in the same place.
        urma_async_event_element { jfc: events.named(subject)?.as_ptr() }
    };
    Some(to)
}

/// Acknowledges an event, and counts that in the public part of its object.
pub(crate) unsafe extern "C" fn ack_async_event(event: *mut urma_async_event_t) {
    call::nothing(|| {
        // SAFETY: an event of the caller's (room card of `face`).
        let event = unsafe { call::value(event) }?;
        let own = call::when_decided::<kind::Context, _>(event.urma_ctx, ctx_of)?;
        own.events.acknowledge(count_acked(&event)?)
    });
}

/// Counts an acknowledgement in the public part of a live object; returns which object it is.
fn count_acked(event: &urma_async_event_t) -> Answer<EventSubject> {
    macro_rules! counted {
        ($kind:ident, $member:ident, $id:ident, $about:ident) => {{
            // SAFETY: any bytes are a pointer, which is looked up before it is used.
            let object = unsafe { event.element.$member };
            let object = call::when_decided::<kind::$kind, _>(object, ours::<kind::$kind>)?;
            let acked = member!(<kind::$kind as Kind>::Public, async_events_acked);
            object.set(acked, object.get(acked).wrapping_add(1));
            Ok(EventSubject::$about(object.shown().$id.id))
        }};
    }
    let code = u8::try_from(event.event_type)
        .map_err(|_| refuse!(EINVAL, "event_type is {}, which is none", event.event_type))?;
    match AsyncKind::from_code(code).object() {
        AsyncObject::Jfc => counted!(Jfc, jfc, jfc_id, Jfc),
        AsyncObject::Jfs => counted!(Jfs, jfs, jfs_id, Queue),
        AsyncObject::Jfr => counted!(Jfr, jfr, jfr_id, Queue),
        AsyncObject::Jetty => counted!(Jetty, jetty, jetty_id, Queue),
        AsyncObject::Group => counted!(Group, jetty_grp, jetty_grp_id, Group),
        AsyncObject::Device => Ok(EventSubject::Device),
    }
}
