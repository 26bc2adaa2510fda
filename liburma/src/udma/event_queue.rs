//! The asynchronous events of one context.
//!
//! *Owns*: events that wait for the context's program, its descriptor, the number of unacknowledged events, and the
//! objects of the context by the device's numbers. *Takes*: events of the device. *Gives*: them in order. *Must not*:
//! read the memory of an object.

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
    /// Counts the events in `state.waiting`.
    wakeup: EventFd,
    /// Readable while the device or `wakeup` is: `ctx->async_fd`.
    both: OwnedFd,
}

#[derive(Default)]
struct WaitingEvents {
    /// Events that the thread of another context took from the device.
    waiting: VecDeque<AsyncEvent>,
    /// Number of unacknowledged events of each object.
    open: BTreeMap<EventSubject, u32>,
}

/// The object with a number.
#[derive(Clone, Copy)]
struct NamedObject {
    addr: usize,
    /// A thread is deleting it; whether it stays is undecided.
    is_leaving: bool,
}

/// The object of an event.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum EventSubject {
    Jfc(u32),
    /// JFS, JFR and jetties share one space of numbers.
    Queue(u32),
    Group(u32),
    /// A port, an EID, the device: nothing that can be deleted.
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

    /// Records that the object with this number is at `object`.
    pub(crate) fn name<T>(&self, about: EventSubject, object: *mut T) {
        let name = NamedObject { addr: object.expose_provenance(), is_leaving: false };
        lock(&self.names).insert(about, name);
    }

    /// Marks the object with this number as being deleted: until [`Events::left`], its events wait. Called before the
    /// device forgets the number, which may then be given to another object.
    pub(crate) fn leaves(&self, about: EventSubject) {
        if let Some(name) = lock(&self.names).get_mut(&about) {
            name.is_leaving = true;
        }
    }

    /// Ends the deletion: the object is gone, or `stays`.
    pub(crate) fn left(&self, about: EventSubject, stays: bool) {
        let mut names = lock(&self.names);
        let Some(name) = names.get_mut(&about).filter(|name| name.is_leaving) else { return };
        name.is_leaving = false;
        if !stays {
            names.remove(&about);
        }
    }

    /// The address of the object with this number. Waits while it is being deleted, since a refused deletion must not
    /// cost an event; this takes as long as the deletion, and is bounded.
    pub(crate) fn named<T>(&self, about: EventSubject) -> Option<NonNull<T>> {
        let mut pause = BoundedPause::new();
        loop {
            let name = lock(&self.names).get(&about).copied()?;
            if !name.is_leaving || !pause.wait() {
                return NonNull::new(core::ptr::with_exposed_provenance_mut(name.addr));
            }
        }
    }

    /// Whether the object belongs to this context.
    pub(crate) fn has(&self, about: EventSubject) -> bool {
        about == EventSubject::Device || lock(&self.names).contains_key(&about)
    }

    /// Checks that an object to be deleted has no unacknowledged events.
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
        // The count is far from its limit, the only reason for an error.
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

    /// Counts an event that was given to the program.
    pub(crate) fn given(&self, about: EventSubject) {
        *lock(&self.state).open.entry(about).or_default() += 1;
    }

    /// Counts an event that the program acknowledged.
    ///
    /// # Errors
    /// EINVAL: no event was given.
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

    /// Whether calls must not block, by the flags of the descriptor.
    pub(crate) fn is_nonblocking(&self) -> bool {
        fcntl_getfl(&self.both).is_ok_and(|flags| flags.contains(OFlags::NONBLOCK))
    }

    /// Sleeps for a millisecond, or until a signal.
    pub(crate) fn pause(&self) {
        let limit = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
        // It ends after that time, or by a signal.
        let _ = poll(&mut [], Some(&limit));
    }

    /// Waits for an event, at most `limit`; may end early.
    pub(crate) fn wait(&self, limit: Duration) {
        let mut fds = [PollFd::from_borrowed_fd(self.both.as_fd(), PollFlags::IN)];
        let limit = Timespec::try_from(limit).ok();
        // A timeout and a signal are the same: the caller checks again.
        let _ = poll(&mut fds, limit.as_ref());
    }
}

#[cfg(test)]
mod tests {
    use urma_core::AsyncKind;

    use super::*;

    /// Events of a context that has no device.
    fn events() -> Events {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_SEMAPHORE;
        let wakeup = EventFd::from_value_and_flags(0, flags).expect("a descriptor");
        let both = epoll::create(epoll::CreateFlags::CLOEXEC).expect("a descriptor");
        let (data, readable) = (epoll::EventData::new_u64(0), epoll::EventFlags::IN);
        epoll::add(&both, &wakeup, data, readable).expect("a descriptor");
        Events { state: Mutex::default(), names: Mutex::default(), wakeup, both }
    }

    fn is_readable(events: &Events) -> bool {
        let mut fds = [PollFd::from_borrowed_fd(events.both.as_fd(), PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).expect("a descriptor") != 0
    }

    #[test]
    fn a_number_names_an_object_until_that_is_gone() {
        let events = events();
        let (mut one, mut other) = (1_u64, 2_u64);
        let subjects = [EventSubject::Jfc(7), EventSubject::Queue(7), EventSubject::Group(7)];
        assert!(events.has(EventSubject::Device));
        for about in subjects {
            assert!(!events.has(about));
            assert_eq!(events.named::<u64>(about), None);
            events.name(about, &raw mut one);
            assert!(events.has(about));
            assert_eq!(events.named(about), NonNull::new(&raw mut one));
            // No thread deletes it.
            events.left(about, false);
            assert!(events.has(about));
            // A refused deletion, and one that is not.
            events.leaves(about);
            events.left(about, true);
            assert_eq!(events.named(about), NonNull::new(&raw mut one));
            events.leaves(about);
            events.left(about, false);
            assert!(!events.has(about));
            assert_eq!(events.named::<u64>(about), None);
            events.name(about, &raw mut other);
            assert_eq!(events.named(about), NonNull::new(&raw mut other));
        }
    }

    /// What a thread sees that asks while another one deletes the object.
    #[test]
    fn who_asks_for_an_object_waits_for_the_end_of_its_deletion() {
        let mut object = 1_u64;
        for stays in [true, false] {
            let events = events();
            events.name(EventSubject::Jfc(1), &raw mut object);
            events.leaves(EventSubject::Jfc(1));
            std::thread::scope(|scope| {
                let (says, said) = std::sync::mpsc::channel();
                let asked = &events;
                scope.spawn(move || {
                    let found = asked.named::<u64>(EventSubject::Jfc(1));
                    says.send(found.map(|found| found.addr().get())).expect("the test waits");
                });
                let early = said.recv_timeout(Duration::from_millis(50));
                assert!(early.is_err(), "it is not decided, and that was {early:?}");
                events.left(EventSubject::Jfc(1), stays);
                let found = said.recv_timeout(Duration::from_secs(20)).expect("it is decided");
                assert_eq!(found, stays.then_some((&raw mut object).addr()));
            });
        }
    }

    #[test]
    fn each_event_is_acknowledged_once() {
        let events = events();
        let (about, other) = (EventSubject::Queue(3), EventSubject::Jfc(3));
        assert!(events.acknowledge(about).is_err() && events.ensure_acked(about).is_ok());
        events.given(about);
        events.given(about);
        events.given(other);
        for _ in 0..2 {
            assert!(events.ensure_acked(about).is_err() && events.ensure_acked(other).is_err());
            assert!(events.acknowledge(about).is_ok());
        }
        assert!(events.ensure_acked(about).is_ok() && events.acknowledge(about).is_err());
        assert!(events.ensure_acked(other).is_err() && events.acknowledge(other).is_ok());
    }

    #[test]
    fn events_that_another_thread_left_come_in_order_and_wake_the_program() {
        let events = events();
        assert!(!is_readable(&events) && events.next().is_none());
        let event = |id| AsyncEvent { kind: AsyncKind::JfcError, id };
        for id in 1..=3 {
            events.leave(event(id));
        }
        for id in 1..=3 {
            assert!(is_readable(&events), "before event {id}");
            assert_eq!(events.next().map(|event| event.id), Some(id));
        }
        assert!(!is_readable(&events) && events.next().is_none());
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a wait takes its time at least")]
    fn a_wait_takes_its_time_or_ends_by_an_event() {
        let events = events();
        let timed = |what: &dyn Fn()| {
            let start = std::time::Instant::now();
            what();
            start.elapsed()
        };
        assert!(timed(&|| events.pause()) >= Duration::from_millis(1));
        assert!(timed(&|| events.wait(Duration::from_millis(20))) >= Duration::from_millis(20));
        assert!(!events.is_nonblocking());
        rustix::fs::fcntl_setfl(&events.both, OFlags::NONBLOCK).expect("a descriptor");
        assert!(events.is_nonblocking());
        events.leave(AsyncEvent { kind: AsyncKind::JfcError, id: 1 });
        assert!(timed(&|| events.wait(Duration::from_secs(30))) < Duration::from_secs(20));
    }
}
