//! Asynchronous events: from the device, which all contexts share, to the context they are about.
//!
//! *Owns*: what each context has to be told, its descriptor, the count of events that were given and
//! not acknowledged. *Takes*: events of the device, in the thread that asks for one. *Gives*:
//! `urma_async_event_t` that names a live object. *Must not*: lose an event of another context.
#![expect(unsafe_code, reason = "C entry points")]

use core::time::Duration;
use std::{
    collections::{BTreeMap, VecDeque},
    os::fd::{AsFd, AsRawFd, OwnedFd, RawFd},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use nix::sys::eventfd::{EfdFlags, EventFd};
use rustix::{
    event::{PollFd, PollFlags, Timespec, epoll, poll},
    fs::{OFlags, fcntl_getfl},
    io,
};
use urma_core::{AsyncEvent, AsyncKind, Context};

use crate::{
    abi::{urma_async_event_element, urma_async_event_t, urma_context_t, urma_status_t},
    call::{self, Answer, Code, ours},
    convert::zeroed,
    udma::{
        context::{Ctx, Queue, ctx_of},
        kind,
    },
};

/// What a context has to be told.
pub(crate) struct Events {
    state: Mutex<State>,
    /// Counts what `state.waiting` holds.
    bell: EventFd,
    /// Readable while the device or `bell` is: `ctx->async_fd`.
    both: OwnedFd,
}

#[derive(Default)]
struct State {
    /// Events that another context's thread took from the device.
    waiting: VecDeque<AsyncEvent>,
    /// Events given and not acknowledged, by what they are about.
    open: BTreeMap<About, u32>,
}

/// What an event is about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum About {
    Jfc(u32),
    Queue(u32),
    Group(u32),
    /// A port, an EID, the device: nothing that is deleted.
    Device,
}

impl About {
    fn of(event: &AsyncEvent) -> Self {
        match event.kind {
            AsyncKind::JfcError => Self::Jfc(event.id),
            AsyncKind::JfsError
            | AsyncKind::JfrError
            | AsyncKind::JfrLimit
            | AsyncKind::JettyError
            | AsyncKind::JettyLimit => Self::Queue(event.id),
            AsyncKind::GroupError => Self::Group(event.id),
            _ => Self::Device,
        }
    }
}

impl Events {
    /// # Errors
    /// ENOMEM: out of descriptors.
    pub(crate) fn new(core: &Context) -> Answer<Self> {
        Self::open(core).map_err(|_| Code::ENOMEM)
    }

    fn open(core: &Context) -> Result<Self, io::Errno> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_SEMAPHORE;
        let bell = EventFd::from_value_and_flags(0, flags).map_err(|_| io::Errno::NOMEM)?;
        let both = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let (data, readable) = (epoll::EventData::new_u64(0), epoll::EventFlags::IN);
        epoll::add(&both, &bell, data, readable)?;
        epoll::add(&both, core.async_fd(), data, readable)?;
        Ok(Self { state: Mutex::default(), bell, both })
    }

    /// `ctx->async_fd`.
    pub(crate) fn fd(&self) -> RawFd {
        self.both.as_raw_fd()
    }

    /// Whether events about it were given and not acknowledged.
    pub(crate) fn is_open(&self, about: About) -> bool {
        self.state().open.contains_key(&about)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn leave(&self, event: AsyncEvent) {
        let mut state = self.state();
        state.waiting.push_back(event);
        // The count is far from its limit, the only reason to refuse.
        let _ = self.bell.write(1);
    }

    fn next(&self) -> Option<AsyncEvent> {
        let mut state = self.state();
        let event = state.waiting.pop_front()?;
        // One count for each event; the lock is held, so it is there.
        let _ = self.bell.read();
        Some(event)
    }

    fn acknowledge(&self, about: About) -> Answer {
        let mut state = self.state();
        let count = state.open.get_mut(&about).ok_or(Code::EINVAL)?;
        *count -= 1;
        if *count == 0 {
            state.open.remove(&about);
        }
        Ok(())
    }

    /// Whether a call shall not wait, as `fcntl` on the descriptor says.
    fn is_nonblocking(&self) -> bool {
        fcntl_getfl(&self.both).is_ok_and(|flags| flags.contains(OFlags::NONBLOCK))
    }

    /// A millisecond, without a look at anything.
    pub(crate) fn pause(&self) {
        let limit = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
        // It ends after the time, or by a signal.
        let _ = poll(&mut [], Some(&limit));
    }

    /// Until something may have come, or `limit`.
    fn wait(&self, limit: Duration) {
        let mut fds = [PollFd::from_borrowed_fd(self.both.as_fd(), PollFlags::IN)];
        let limit = Timespec::try_from(limit).ok();
        // Nothing came, or a signal: the caller looks again either way.
        let _ = poll(&mut fds, limit.as_ref());
    }
}

/// How long a waiting thread goes without looking whether its context still lives.
const LOOK_AFTER: Duration = Duration::from_millis(100);

/// The next event of a context. Waits for it unless the descriptor was made non-blocking.
pub(crate) unsafe extern "C" fn get_async_event(
    ctx: *mut urma_context_t,
    event: *mut urma_async_event_t,
) -> urma_status_t {
    call::status(|| {
        let to = call::place(event)?;
        loop {
            // Found afresh each time round: another thread may delete it meanwhile.
            let own = ctx_of(ctx)?;
            if let Some(event) = take(&own)? {
                if let Some(mut given) = describe(&own, &event) {
                    given.urma_ctx = ctx;
                    *own.events.state().open.entry(About::of(&event)).or_default() += 1;
                    // SAFETY: a place of the caller's for one.
                    unsafe { to.write(given) };
                    return Ok(());
                }
                continue;
            }
            let events = Arc::clone(&own.events);
            // Who waits does not keep the context.
            drop(own);
            if events.is_nonblocking() {
                return Err(Code::EAGAIN);
            }
            events.wait(LOOK_AFTER);
        }
    })
}

/// An event of this context, if there is one. Those of others are left with them.
fn take(own: &Arc<Ctx>) -> Answer<Option<AsyncEvent>> {
    loop {
        if let Some(event) = own.events.next() {
            return Ok(Some(event));
        }
        let Some(event) = own.core.next_async(Some(Duration::ZERO))? else { return Ok(None) };
        let others = own.hardware.contexts();
        let others = others.iter().filter(|other| !Arc::ptr_eq(other, own));
        match About::of(&event) {
            About::Device => others.for_each(|other| other.events.leave(event)),
            about if own.has(about) => {}
            about => {
                others.filter(|other| other.has(about)).for_each(|one| one.events.leave(event));
                continue;
            }
        }
        return Ok(Some(event));
    }
}

/// `None`: what it is about was deleted.
fn describe(own: &Ctx, event: &AsyncEvent) -> Option<urma_async_event_t> {
    let names = own.names();
    let mut to: urma_async_event_t = zeroed();
    to.event_type = u32::from(event.kind.code());
    to.element = match About::of(event) {
        About::Jfc(number) => urma_async_event_element { jfc: names.jfcs.get(&number)?.public() },
        About::Queue(number) => match *names.queues.get(&number)? {
            Queue::Jfs(slot) => urma_async_event_element { jfs: slot.public() },
            Queue::Jfr(slot) => urma_async_event_element { jfr: slot.public() },
            Queue::Jetty(slot) => urma_async_event_element { jetty: slot.public() },
        },
        About::Group(number) => {
            urma_async_event_element { jetty_grp: names.groups.get(&number)?.public() }
        }
        About::Device => urma_async_event_element { port_id: event.id },
    };
    Some(to)
}

/// Acknowledges an event, and counts that in the public part of its object.
pub(crate) unsafe extern "C" fn ack_async_event(event: *mut urma_async_event_t) {
    call::nothing(|| {
        // SAFETY: the caller's event.
        let event = unsafe { call::value(event) }?;
        let own = ctx_of(event.urma_ctx)?;
        // SAFETY: the member that the kind of event names; any bytes are a pointer.
        let about = unsafe { count_acked(&event) }?;
        own.events.acknowledge(about)
    });
}

/// Counts in the public part of a live object, and says which it is.
///
/// # Safety
/// `get_async_event` filled the event.
unsafe fn count_acked(event: &urma_async_event_t) -> Answer<About> {
    macro_rules! counted {
        ($kind:ident, $member:ident, $id:ident, $about:ident) => {{
            // SAFETY: any bytes are a pointer.
            let object = ours::<kind::$kind>(unsafe { event.element.$member })?.public();
            // SAFETY: the public part of a live object.
            let object = unsafe { &mut *object };
            object.async_events_acked = object.async_events_acked.wrapping_add(1);
            Ok(About::$about(object.$id.id))
        }};
    }
    match u8::try_from(event.event_type).map(AsyncKind::from_code) {
        Ok(AsyncKind::JfcError) => counted!(Jfc, jfc, jfc_id, Jfc),
        Ok(AsyncKind::JfsError) => counted!(Jfs, jfs, jfs_id, Queue),
        Ok(AsyncKind::JfrError | AsyncKind::JfrLimit) => counted!(Jfr, jfr, jfr_id, Queue),
        Ok(AsyncKind::JettyError | AsyncKind::JettyLimit) => {
            counted!(Jetty, jetty, jetty_id, Queue)
        }
        Ok(AsyncKind::GroupError) => counted!(Group, jetty_grp, jetty_grp_id, Group),
        Ok(_) => Ok(About::Device),
        Err(_) => Err(Code::EINVAL),
    }
}
