//! A descriptor that a forked child must not keep open.
//!
//! *Owns*: the descriptor and its entry in the list of the fork handler; which errors mean that no descriptor is
//! available. *Gives*: an owned descriptor whose number means nothing in a child. *Must not*: be passed to code of
//! peers as is.
//!
//! A child that kept a claim or a connection open would hide its parent's death from every peer.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::io::Errno;
use urma_mem::fork::{FdWatch, watch_fd};

/// An owned descriptor that forked children do not have.
#[derive(Debug)]
pub struct ForkGuarded {
    /// Declared first: it must be dropped before the number can mean another file.
    _watch: FdWatch,
    fd: OwnedFd,
}

impl ForkGuarded {
    /// Guards `fd`.
    ///
    /// # Errors
    /// The fork handlers cannot be installed.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        Ok(Self { _watch: watch_fd(fd.as_fd())?, fd })
    }
}

/// Whether `error` means that this process or the system is out of descriptors or memory; a peer is not to blame
/// then.
pub(super) fn is_shortage(error: &io::Error) -> bool {
    let shortages = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS, Errno::TOOMANYREFS];
    Errno::from_io_error(error).is_some_and(|errno| shortages.contains(&errno))
}

impl AsFd for ForkGuarded {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortage_is_no_fault_of_a_peer() {
        for errno in [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS, Errno::TOOMANYREFS] {
            assert!(is_shortage(&errno.into()), "{errno:?}");
        }
        for errno in [Errno::PIPE, Errno::CONNRESET, Errno::AGAIN, Errno::INVAL, Errno::ACCESS] {
            assert!(!is_shortage(&errno.into()), "{errno:?}");
        }
        assert!(!is_shortage(&io::Error::other("no number")));
    }
}
