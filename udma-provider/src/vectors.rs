//! Interrupt vectors of event queues: one each as long as there are some, and one that all others share.
//!
//! *Owns*: which vectors are free, the shared vector, its descriptor and the thread that waits for it. *Takes*: event
//! rings. *Gives*: a vector for each of them, as many as the device has event queues. *Must not*: signal a ring that
//! has no entry.
//!
//! A device has few vectors, and programs have thousands of channels. Rings of the shared vector have a descriptor of
//! their own, to which the thread forwards interrupts: such an event costs a thread switch, and a check of each ring.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, Mutex, Weak},
};

use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::eventfd::{EfdFlags, EventFd},
};
use udma_abi::DeviceBacking;
use urma_core::Status;
use urma_mem::{
    fork::{FdWatch, watch_fd},
    room::thread_refused,
    sync::{AtomicBool, Ordering},
};

use crate::{
    alloc::{lock, status_of},
    events::{EventRing, QueueVector, make_nonblocking, take_count},
};

/// Vectors of a device.
#[derive(Debug)]
pub(crate) struct QueueVectors {
    free: Mutex<Vec<u16>>,
    /// The last vector; `None`: the device has only the one for asynchronous events.
    shared: Option<u16>,
    passing: Mutex<Option<SharedVector>>,
}

/// The thread that forwards interrupts of the shared vector; it ends when this is dropped.
#[derive(Debug)]
struct SharedVector(Arc<PassedOn>);

#[derive(Debug)]
struct PassedOn {
    /// Declared before the descriptors, to be dropped first.
    _watches: [FdWatch; 2],
    vector: OwnedFd,
    wake: EventFd,
    rings: Mutex<Vec<Weak<EventRing>>>,
    is_ended: AtomicBool,
}

impl QueueVectors {
    /// Vectors of a device with `count` of them, of which the first is for asynchronous events.
    pub(crate) fn new(count: u16) -> Self {
        let shared = count.checked_sub(1).filter(|last| *last > 0);
        let free = (1..shared.unwrap_or(1)).rev().collect();
        Self { free: Mutex::new(free), shared, passing: Mutex::default() }
    }

    /// Takes a vector for an event queue.
    pub(crate) fn take(&self) -> Option<QueueVector> {
        let own = lock(&self.free).pop().map(QueueVector::Own);
        own.or_else(|| self.shared.map(QueueVector::Shared))
    }

    /// Returns the vector of an event queue that is gone.
    pub(crate) fn give_back(&self, vector: QueueVector) {
        if let QueueVector::Own(number) = vector {
            lock(&self.free).push(number);
        }
    }

    /// Forwards interrupts of the shared vector to `ring` from now on.
    ///
    /// # Errors
    /// `NoMemory`: no descriptor or thread is left.
    pub(crate) fn pass_on(
        &self,
        backing: &dyn DeviceBacking,
        ring: &Arc<EventRing>,
        vector: u16,
    ) -> Result<(), Status> {
        let mut passing = lock(&self.passing);
        if passing.is_none() {
            *passing = Some(SharedVector::start(backing, vector)?);
        }
        if let Some(SharedVector(passed)) = passing.as_ref() {
            let mut rings = lock(&passed.rings);
            rings.retain(|ring| ring.strong_count() > 0);
            rings.push(Arc::downgrade(ring));
        }
        Ok(())
    }
}

impl SharedVector {
    fn start(backing: &dyn DeviceBacking, vector: u16) -> Result<Self, Status> {
        let fd = backing.interrupt(vector).map_err(|error| status_of(&error))?;
        make_nonblocking(&fd)?;
        let refused = |error: io::Error| {
            tracing::warn!(%error, "no thread can be had for the channels that share an interrupt vector");
            Status::NoMemory
        };
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let wake =
            EventFd::from_value_and_flags(0, flags).map_err(|error| refused(error.into()))?;
        let watches = [watch_fd(fd.as_fd()), watch_fd(wake.as_fd())];
        let [Ok(first), Ok(second)] = watches else { return Err(Status::NoMemory) };
        let passed = Arc::new(PassedOn {
            _watches: [first, second],
            vector: fd,
            wake,
            rings: Mutex::default(),
            is_ended: AtomicBool::new(false),
        });
        let served = Arc::clone(&passed);
        let thread = std::thread::Builder::new().name("urma-events".to_owned());
        let started = thread.spawn(move || served.run());
        started.map_err(|error| refused(thread_refused("the shared vector", &error)))?;
        Ok(Self(passed))
    }
}

impl Drop for SharedVector {
    fn drop(&mut self) {
        self.0.is_ended.store(true, Ordering::Release);
        // A full counter is readable too.
        let _ = self.0.wake.write(1);
    }
}

impl PassedOn {
    fn run(&self) {
        while !self.is_ended.load(Ordering::Acquire) {
            let mut fds = [self.vector.as_fd(), self.wake.as_fd()]
                .map(|fd| PollFd::new(fd, PollFlags::POLLIN));
            if poll(&mut fds, PollTimeout::NONE).is_err_and(|error| error != nix::Error::EINTR) {
                tracing::error!("the thread of the shared interrupt vector cannot wait and ends");
                return;
            }
            // Before the checks: what comes later is either seen by them or counted.
            while take_count(&self.vector) {}
            let rings: Vec<_> = lock(&self.rings).iter().filter_map(Weak::upgrade).collect();
            rings.iter().for_each(|ring| ring.signal());
        }
    }
}
