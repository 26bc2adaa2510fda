//! Interrupt vectors as descriptors.
//!
//! *Owns*: one eventfd in semaphore mode per vector, created when its descriptor is first requested. *Takes*: raises
//! of the core. *Gives*: duplicates of the descriptor. *Must not*: block, or lose a raise that came before the
//! descriptor.

use std::{
    io::{self, IoSliceMut},
    os::fd::{AsFd, OwnedFd},
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
};

use rustix::{
    event::{EventfdFlags, eventfd},
    io::{Errno, ReadWriteFlags, preadv2},
};

use super::descriptor::ForkGuarded;
use crate::ports::Interrupt;

/// The vectors of one device.
#[derive(Debug)]
pub struct EventVectors {
    vectors: Box<[Vector]>,
}

#[derive(Debug, Default)]
struct Vector {
    fd: OnceLock<ForkGuarded>,
    /// Number of raises before the descriptor existed. Locked while that is created.
    early: Mutex<u64>,
}

impl EventVectors {
    /// Creates `count` vectors, none with a descriptor yet.
    #[must_use]
    pub fn new(count: u16) -> Self {
        Self { vectors: (0..count).map(|_| Vector::default()).collect() }
    }

    /// Returns a duplicate of the vector's descriptor; `None`: there is no such vector.
    ///
    /// # Errors
    /// The process is out of descriptors.
    pub fn descriptor(&self, vector: u16) -> io::Result<Option<OwnedFd>> {
        self.vectors.get(usize::from(vector)).map(Vector::descriptor).transpose()
    }
}

impl Vector {
    fn descriptor(&self) -> io::Result<OwnedFd> {
        let early = self.early();
        if self.fd.get().is_none() {
            let flags = EventfdFlags::SEMAPHORE | EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
            let count = u32::try_from(*early).unwrap_or(u32::MAX);
            // The lock is held: no other thread sets it.
            let _ = self.fd.set(ForkGuarded::new(eventfd(count, flags)?)?);
        }
        self.fd.get().ok_or(io::ErrorKind::NotFound)?.as_fd().try_clone_to_owned()
    }

    fn raise(&self) {
        let Some(fd) = self.fd.get() else { return self.raise_early() };
        signal(fd);
    }

    #[cold]
    fn raise_early(&self) {
        let mut early = self.early();
        match self.fd.get() {
            Some(fd) => signal(fd),
            None => *early += 1,
        }
    }

    fn early(&self) -> MutexGuard<'_, u64> {
        self.early.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Interrupt for EventVectors {
    fn raise(&self, vector: u16) {
        match self.vectors.get(usize::from(vector)) {
            Some(vector) => vector.raise(),
            None => tracing::warn!(vector, "the device raised a vector that does not exist"),
        }
    }
}

/// Adds one to an eventfd. If its counter is full, that is as good.
#[expect(clippy::host_endian_bytes, reason = "the kernel counts in this machine's byte order")]
pub fn signal(fd: impl AsFd) {
    let one: u64 = 1;
    let _ = rustix::io::write(fd, &one.to_ne_bytes());
}

/// Takes the whole count (one in semaphore mode); returns whether there was any. Does not block, whatever flags a
/// peer with the same descriptor has set.
pub fn take(fd: impl AsFd) -> bool {
    let mut count = [0_u8; 8];
    let into = &mut [IoSliceMut::new(&mut count)];
    match preadv2(&fd, into, AT_POSITION, ReadWriteFlags::NOWAIT) {
        // Kernels before 5.8 support it for files only.
        Err(Errno::OPNOTSUPP) => rustix::io::read(fd, &mut count).is_ok(),
        taken => taken.is_ok(),
    }
}

/// No place in the file: as `read`.
const AT_POSITION: u64 = u64::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_makes_the_descriptor_blocking_stops_no_one() {
        let fd = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        assert!(!take(&fd), "it would wait for ever");
        signal(&fd);
        assert!(take(&fd) && !take(&fd));
    }

    #[test]
    fn each_raise_is_taken_once_also_those_before_the_first_look() {
        let vectors = EventVectors::new(2);
        vectors.raise(1);
        vectors.raise(1);
        vectors.raise(7);
        let fd = vectors.descriptor(1).unwrap().unwrap();
        assert!(take(&fd) && take(&fd) && !take(&fd));
        assert!(!take(vectors.descriptor(0).unwrap().unwrap()));
        assert!(vectors.descriptor(2).unwrap().is_none());
    }
}
