//! Interrupt vectors as descriptors.
//!
//! *Owns*: one eventfd in semaphore mode per vector, made when its descriptor is asked for. *Takes*:
//! raises of the core. *Gives*: duplicates of the descriptor. *Must not*: block, or lose a raise that
//! came before the descriptor.

use std::{
    io::{self, IoSliceMut},
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use arc_swap::ArcSwapOption;
use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll},
    io::{Errno, ReadWriteFlags, preadv2},
};

use super::descriptor::ForkGuarded;
use crate::ports::Interrupt;

/// The vectors of one device.
#[derive(Debug)]
pub struct EventVectors {
    vectors: Box<[Vector]>,
}

#[derive(Debug)]
struct VectorFd {
    fd: ForkGuarded,
    /// Another process has it, too, and may have made it blocking.
    is_foreign: bool,
}

impl VectorFd {
    /// Adds one. A full counter of another process is left as it is: it is as good as one more, and the write could
    /// wait.
    fn signal(&self) {
        if !self.is_foreign || is_writable(&self.fd) {
            signal(&self.fd);
        }
    }
}

#[derive(Debug, Default)]
struct Vector {
    fd: ArcSwapOption<VectorFd>,
    /// Raises while there is no descriptor. Locked while that is made or changed.
    early: Mutex<u64>,
}

impl EventVectors {
    /// `count` vectors, none with a descriptor yet.
    #[must_use]
    pub fn new(count: u16) -> Self {
        Self { vectors: (0..count).map(|_| Vector::default()).collect() }
    }

    /// Raises `vector` in an eventfd of another process from now on, beginning with the raises while there was no
    /// descriptor; `None`: there is none.
    ///
    /// # Errors
    /// `NotFound`: there is no such vector. Out of memory.
    pub fn install(&self, vector: u16, fd: Option<OwnedFd>) -> io::Result<()> {
        self.vectors.get(usize::from(vector)).ok_or(io::ErrorKind::NotFound)?.install(fd)
    }

    /// A duplicate of the vector's descriptor; `None`: there is no such vector.
    ///
    /// # Errors
    /// The process is out of descriptors.
    pub fn descriptor(&self, vector: u16) -> io::Result<Option<OwnedFd>> {
        self.vectors.get(usize::from(vector)).map(Vector::descriptor).transpose()
    }
}

impl Vector {
    fn descriptor(&self) -> io::Result<OwnedFd> {
        let mut early = self.early();
        if let Some(fd) = self.fd.load_full() {
            return fd.fd.as_fd().try_clone_to_owned();
        }
        let flags = EventfdFlags::SEMAPHORE | EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
        let count = u32::try_from(std::mem::take(&mut *early)).unwrap_or(u32::MAX);
        let fd = ForkGuarded::new(eventfd(count, flags)?)?;
        let copy = fd.as_fd().try_clone_to_owned();
        self.fd.store(Some(Arc::new(VectorFd { fd, is_foreign: false })));
        copy
    }

    fn install(&self, fd: Option<OwnedFd>) -> io::Result<()> {
        let mut early = self.early();
        let fd = fd.map(ForkGuarded::new).transpose()?;
        if let Some(fd) = &fd
            && *early != 0
            && is_writable(fd)
        {
            add(fd, std::mem::take(&mut *early));
        }
        self.fd.store(fd.map(|fd| Arc::new(VectorFd { fd, is_foreign: true })));
        Ok(())
    }

    fn raise(&self) {
        match &*self.fd.load() {
            Some(fd) => fd.signal(),
            None => self.raise_early(),
        }
    }

    #[cold]
    fn raise_early(&self) {
        let mut early = self.early();
        match &*self.fd.load() {
            Some(fd) => fd.signal(),
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

/// Whether one can be added without waiting.
fn is_writable(fd: impl AsFd) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(&fd, PollFlags::OUT)], Some(&now)).is_ok_and(|count| count > 0)
}

/// Adds one to an eventfd. A full counter is as good as one more.
pub fn signal(fd: impl AsFd) {
    add(fd, 1);
}

#[expect(clippy::host_endian_bytes, reason = "the kernel counts in this machine's byte order")]
fn add(fd: impl AsFd, count: u64) {
    let _ = rustix::io::write(fd, &count.to_ne_bytes());
}

/// Takes the whole count (one in semaphore mode); whether there was any. Does not wait, whatever a peer that
/// has the descriptor too made of its flags.
pub fn take(fd: impl AsFd) -> bool {
    let mut count = [0_u8; 8];
    let into = &mut [IoSliceMut::new(&mut count)];
    match preadv2(&fd, into, AT_POSITION, ReadWriteFlags::NOWAIT) {
        // Kernels before 5.8 know it of files only.
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

    #[test]
    fn a_descriptor_is_replaced_and_raises_without_one_are_kept() {
        let vectors = EventVectors::new(1);
        let flags = EventfdFlags::SEMAPHORE | EventfdFlags::NONBLOCK;
        let [first, second] = [0; 2].map(|count| eventfd(count, flags).unwrap());
        vectors.install(0, Some(first.try_clone().unwrap())).unwrap();
        vectors.raise(0);
        vectors.install(0, None).unwrap();
        vectors.raise(0);
        vectors.raise(0);
        vectors.install(0, Some(second.try_clone().unwrap())).unwrap();
        vectors.raise(0);
        assert!(take(&first) && !take(&first));
        assert!(take(&second) && take(&second) && take(&second) && !take(&second));
        assert!(vectors.install(1, None).is_err());
        // Full, and blocking: the raise does not wait.
        let full = eventfd(0, EventfdFlags::empty()).unwrap();
        add(&full, u64::MAX - 1);
        vectors.install(0, Some(full)).unwrap();
        vectors.raise(0);
    }
}
