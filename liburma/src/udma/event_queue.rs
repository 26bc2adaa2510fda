//! The asynchronous events of one context.
//!
//! *Owns*: events that wait for the context's program, its descriptor, the count of events that were
//! given and not acknowledged, and the objects of the context by the numbers that the device knows them
//! by. *Takes*: events of the device. *Gives*: them in order. *Must not*: read the memory of an object.

use core::{ptr::NonNull, time::Duration};
use std::{
    collections::{BTreeMap, VecDeque},
    os::fd::{AsFd, AsRawFd, OwnedFd, RawFd},
    sync::Mutex,
};

use nix::sys::eventfd::{EfdFlags, EventFd};
use rustix::{
    event::{PollFd, PollFlags, Timespec, epoll, poll},
    fs::{OFlags, fcntl_getfl},
    io,
};
use urma_core::{AsyncEvent, AsyncObject, Context};

use crate::{
    call::{Answer, refuse},
    latch::{BoundedPause, lock},
};

/// The queue of a context.
pub(crate) struct Events {
    state: Mutex<WaitingEvents>,
    names: Mutex<BTreeMap<EventSubject, NamedObject>>,
    /// Counts what `state.waiting` holds.
    wakeup: EventFd,
    /// Readable while the device or `wakeup` is: `ctx->async_fd`.
    both: OwnedFd,
}

#[derive(Default)]
struct WaitingEvents {
    /// Events that another context's thread took from the device.
    waiting: VecDeque<AsyncEvent>,
    /// Events given and not acknowledged, by what they are about.
    open: BTreeMap<EventSubject, u32>,
}

/// The object that has a number.
#[derive(Clone, Copy)]
struct NamedObject {
    addr: usize,
    /// A thread deletes it; whether it stays is not decided.
    is_leaving: bool,
}

/// What an event is about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum EventSubject {
    Jfc(u32),
    /// JFS, JFR and jetties share one space of numbers.
    Queue(u32),
    Group(u32),
    /// A port, an EID, the device: nothing that is deleted.
    Device,
}

impl EventSubject {
    pub(crate) fn of(event: &AsyncEvent) -> Self {
        match event.kind.object() {
            AsyncObject::Jfc => Self::Jfc(event.id),
            AsyncObject::Jfs | AsyncObject::Jfr | AsyncObject::Jetty => Self::Queue(event.id),
            AsyncObject::Group => Self::Group(event.id),
            AsyncObject::Device => Self::Device,
        }
    }
}

impl Events {
    /// # Errors
    /// ENOMEM: out of descriptors.
    pub(crate) fn new(core: &Context) -> Answer<Self> {
        Self::open(core).map_err(|error| refuse!(ENOMEM, "no descriptors for events: {error}"))
    }

    fn open(core: &Context) -> Result<Self, io::Errno> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_SEMAPHORE;
        let wakeup = EventFd::from_value_and_flags(0, flags).map_err(|_| io::Errno::NOMEM)?;
        let both = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let (data, readable) = (epoll::EventData::new_u64(0), epoll::EventFlags::IN);
        epoll::add(&both, &wakeup, data, readable)?;
        epoll::add(&both, core.async_fd(), data, readable)?;
        Ok(Self { state: Mutex::default(), names: Mutex::default(), wakeup, both })
    }

    /// The descriptor that `ctx->async_fd` names.
    pub(crate) fn fd(&self) -> RawFd {
        self.both.as_raw_fd()
    }

    /// The object with this number is the one at `object`.
    pub(crate) fn name<T>(&self, about: EventSubject, object: *mut T) {
        let name = NamedObject { addr: object.expose_provenance(), is_leaving: false };
        lock(&self.names).insert(about, name);
    }

    /// The object with this number is being deleted: until [`Events::left`], its events wait. Before the
    /// device forgets the number, which may be another object's from then on.
    pub(crate) fn leaves(&self, about: EventSubject) {
        if let Some(name) = lock(&self.names).get_mut(&about) {
            name.is_leaving = true;
        }
    }

    /// Its deletion ended: it is gone, or `stays`.
    pub(crate) fn left(&self, about: EventSubject, stays: bool) {
        let mut names = lock(&self.names);
        let Some(name) = names.get_mut(&about).filter(|name| name.is_leaving) else { return };
        name.is_leaving = false;
        if !stays {
            names.remove(&about);
        }
    }

    /// The address of the object with this number. Waits while it is being deleted, for a refused
    /// deletion must not cost an event; that is as long as the deletion takes, and bounded.
    pub(crate) fn named<T>(&self, about: EventSubject) -> Option<NonNull<T>> {
        let mut pause = BoundedPause::new();
        loop {
            let name = lock(&self.names).get(&about).copied()?;
            if !name.is_leaving || !pause.wait() {
                return NonNull::new(core::ptr::with_exposed_provenance_mut(name.addr));
            }
        }
    }

    /// Whether that object is one of this context.
    pub(crate) fn has(&self, about: EventSubject) -> bool {
        about == EventSubject::Device || lock(&self.names).contains_key(&about)
    }

    /// An object with events that were not acknowledged is not deleted.
    ///
    /// # Errors
    /// EAGAIN: there are some.
    pub(crate) fn ensure_acked(&self, about: EventSubject) -> Answer {
        if !lock(&self.state).open.contains_key(&about) {
            return Ok(());
        }
        Err(refuse!(
            EAGAIN,
            "an asynchronous event of the object is not acknowledged; urma_ack_async_event does it"
        ))
    }

    /// Adds an event that another context's thread took from the device.
    pub(crate) fn leave(&self, event: AsyncEvent) {
        let mut state = lock(&self.state);
        state.waiting.push_back(event);
        // The count is far from its limit, the only reason to refuse.
        let _ = self.wakeup.write(1);
    }

    /// The oldest event that waits.
    pub(crate) fn next(&self) -> Option<AsyncEvent> {
        let mut state = lock(&self.state);
        let event = state.waiting.pop_front()?;
        // One count for each event; the lock is held, so it is there.
        let _ = self.wakeup.read();
        Some(event)
    }

    /// Counts an event that the program got.
    pub(crate) fn given(&self, about: EventSubject) {
        *lock(&self.state).open.entry(about).or_default() += 1;
    }

    /// Counts an event that the program acknowledged.
    ///
    /// # Errors
    /// EINVAL: none was given.
    pub(crate) fn acknowledge(&self, about: EventSubject) -> Answer {
        let mut state = lock(&self.state);
        let count = state.open.get_mut(&about).ok_or_else(|| {
            refuse!(EINVAL, "no event of the object waits for an acknowledgement")
        })?;
        *count -= 1;
        if *count == 0 {
            state.open.remove(&about);
        }
        Ok(())
    }

    /// Whether a call shall not wait, as `fcntl` on the descriptor says.
    pub(crate) fn is_nonblocking(&self) -> bool {
        fcntl_getfl(&self.both).is_ok_and(|flags| flags.contains(OFlags::NONBLOCK))
    }

    /// Sleeps for a millisecond, or until a signal.
    pub(crate) fn pause(&self) {
        let limit = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
        // It ends after the time, or by a signal.
        let _ = poll(&mut [], Some(&limit));
    }

    /// Waits for an event, `limit` at most; it may end early.
    pub(crate) fn wait(&self, limit: Duration) {
        let mut fds = [PollFd::from_borrowed_fd(self.both.as_fd(), PollFlags::IN)];
        let limit = Timespec::try_from(limit).ok();
        // A time-out and a signal are alike: the caller looks again.
        let _ = poll(&mut fds, limit.as_ref());
    }
}
