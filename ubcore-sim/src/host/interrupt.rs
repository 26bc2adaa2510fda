//! Interrupt vectors as descriptors.
//!
//! *Owns*: one eventfd in semaphore mode per vector, made on first use. *Takes*: raises of the
//! core. *Gives*: duplicates of the descriptor. *Must not*: block, or lose a raise that came before
//! anybody asked for the descriptor.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::OnceLock,
};

use rustix::event::{EventfdFlags, eventfd};

use super::descriptor::ForkGuarded;
use crate::ports::Interrupt;

/// The vectors of one device.
#[derive(Debug)]
pub struct EventVectors {
    vectors: Box<[OnceLock<ForkGuarded>]>,
}

impl EventVectors {
    /// `count` vectors, none with a descriptor yet.
    #[must_use]
    pub fn new(count: u16) -> Self {
        Self { vectors: (0..count).map(|_| OnceLock::new()).collect() }
    }

    /// A duplicate of the vector's descriptor; `None`: there is no such vector.
    ///
    /// # Errors
    /// The process is out of descriptors.
    pub fn descriptor(&self, vector: u16) -> io::Result<Option<OwnedFd>> {
        self.vector(vector)?.map(|fd| fd.as_fd().try_clone_to_owned()).transpose()
    }

    fn vector(&self, vector: u16) -> io::Result<Option<&ForkGuarded>> {
        let Some(cell) = self.vectors.get(usize::from(vector)) else { return Ok(None) };
        if cell.get().is_none() {
            let flags = EventfdFlags::SEMAPHORE | EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
            // Who loses the race to set it drops its own; nothing was counted on it yet.
            let _ = cell.set(ForkGuarded::new(eventfd(0, flags)?)?);
        }
        Ok(cell.get())
    }
}

impl Interrupt for EventVectors {
    fn raise(&self, vector: u16) {
        match self.vector(vector) {
            Ok(Some(fd)) => signal(fd),
            Ok(None) => tracing::warn!(vector, "the device raised a vector that does not exist"),
            Err(error) => tracing::error!(vector, %error, "an interrupt has no descriptor"),
        }
    }
}

/// Adds one to an eventfd. A full counter is as good as one more.
#[expect(clippy::host_endian_bytes, reason = "the kernel counts in this machine's byte order")]
pub fn signal(fd: impl AsFd) {
    let _ = rustix::io::write(fd, &1_u64.to_ne_bytes());
}

/// Takes the whole count (one in semaphore mode); whether there was any.
pub fn take(fd: impl AsFd) -> bool {
    rustix::io::read(fd, &mut [0_u8; 8]).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

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
