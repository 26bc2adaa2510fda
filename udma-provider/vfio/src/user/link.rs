//! The client's end of a connection: requests and their checked replies.
//!
//! - owns: message ids, the bound on every reply, and the end of a connection that broke a rule. takes: requests of
//!   any thread, one at a time. gives: replies. must not: connect again: a device that was lost is lost with all its
//!   objects, so the caller opens a new one.

use std::{
    io,
    net::Shutdown,
    os::{fd::BorrowedFd, unix::net::UnixStream},
    path::Path,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use rustix::io::Errno;
use udma_abi::BackingError;
use urma_mem::sync::{AtomicBool, Ordering};

use super::{
    server_clock::ServerClock,
    stream::{self, UserMessage},
    wire::{Fields, UserHeader, VERSION, check_version_data, command},
};
use crate::device::PciError;

/// How long a reply may take, of time in which the server has a processor.
pub(crate) const REPLY_BOUND: Duration = Duration::from_secs(5);
const CAPABILITIES: &[u8] = b"{\"capabilities\":{\"max_msg_fds\":1}}\0";

/// Why a request has no result.
#[derive(Debug, thiserror::Error)]
pub enum UserError {
    /// The server refused the request; the connection goes on.
    #[error("the server refused command {command}: {}", io::Error::from_raw_os_error(i32::try_from(*errno).unwrap_or(0)))]
    Refused {
        /// Number of the command.
        command: u16,
        /// The error number that it replied.
        errno: u32,
    },
    /// The reply breaks a rule of the protocol; the connection is closed.
    #[error("the server's reply to command {command} breaks the protocol: {rule}")]
    Protocol {
        /// Number of the command.
        command: u16,
        /// Rule of the protocol that the reply breaks.
        rule: &'static str,
    },
    /// The connection is closed.
    #[error("the server is gone: {0}")]
    Gone(String),
    /// Connecting, or a descriptor, failed.
    #[error(transparent)]
    Os(#[from] io::Error),
}

impl From<UserError> for BackingError {
    fn from(error: UserError) -> Self {
        match error {
            UserError::Refused { errno: EDQUOT, .. } => {
                Self::Os(io::Error::from_raw_os_error(EDQUOT.cast_signed()))
            }
            UserError::Refused { .. } => Self::Unreachable(error.to_string()),
            UserError::Os(error) => Self::Os(error),
            UserError::Protocol { .. } | UserError::Gone(_) => Self::Gone(error.to_string()),
        }
    }
}

/// Linux error number of a quota that is used up.
const EDQUOT: u32 = 122;
/// An error of the connection, as one of a function.
pub(crate) fn refused(name: &str, what: &'static str, error: UserError) -> PciError {
    let device = name.to_owned();
    match error {
        UserError::Refused { errno, .. } => {
            let source = io::Error::from_raw_os_error(i32::try_from(errno).unwrap_or(0));
            PciError::System { device, what, source }
        }
        UserError::Os(source) => PciError::System { device, what, source },
        UserError::Protocol { .. } | UserError::Gone(_) => {
            PciError::Gone { device, why: error.to_string() }
        }
    }
}

/// A connection to a server.
#[derive(Debug)]
pub(crate) struct UserLink {
    socket: UnixStream,
    next_id: Mutex<u16>,
    is_closed: AtomicBool,
    bound: Duration,
    server: ServerClock,
}

impl UserLink {
    pub(crate) fn connect(path: &Path) -> Result<Self, UserError> {
        Self::over(UnixStream::connect(path)?, REPLY_BOUND)
    }

    /// Agrees on the version over a connected socket.
    pub(crate) fn over(socket: UnixStream, bound: Duration) -> Result<Self, UserError> {
        let (next_id, is_closed) = (Mutex::new(1), AtomicBool::new(false));
        let server = ServerClock::of(&socket);
        let link = Self { socket, next_id, is_closed, bound, server };
        let (major, minor) = VERSION;
        let body = [&major.to_le_bytes(), &minor.to_le_bytes(), CAPABILITIES].concat();
        let reply = link.request(command::VERSION, &body, &[], 4)?;
        if Fields(&reply.body).half() != Some(major) {
            return Err(link.broken(command::VERSION, "the major version is 0"));
        }
        match check_version_data(reply.body.get(4..).unwrap_or_default()) {
            Ok(()) => Ok(link),
            Err(rule) => Err(link.broken(command::VERSION, rule)),
        }
    }

    /// Sends a request and waits for its reply, whose body has at least `least` bytes.
    pub(crate) fn request(
        &self,
        command: u16,
        body: &[u8],
        fds: &[BorrowedFd<'_>],
        least: usize,
    ) -> Result<UserMessage, UserError> {
        let mut next_id = self.next_id.lock().unwrap_or_else(PoisonError::into_inner);
        self.check_open()?;
        let id = *next_id;
        *next_id = id.wrapping_add(1);
        let header = UserHeader::request(id, command, body.len(), true);
        let sent = stream::send(&self.socket, header, body, (fds, self.bound));
        sent.map_err(|error| self.lost(&error))?;
        self.server.await_reply(&self.socket, self.bound).map_err(|error| self.lost(&error))?;
        let reply = stream::receive(&self.socket, self.bound, self.bound);
        let reply = reply.map_err(|error| self.lost(&error))?;
        if !reply.header.is_reply() || reply.header.id != id || reply.header.command != command {
            return Err(self.broken(command, "a reply has the id and the command of its request"));
        }
        if reply.is_cut {
            // The connection goes on: this process has no room for a descriptor, or got too many.
            return Err(UserError::Os(io::Error::from(Errno::MFILE)));
        }
        if let Some(errno) = reply.header.errno() {
            return Err(UserError::Refused { command, errno });
        }
        if reply.body.len() < least {
            return Err(self.broken(command, "a reply has all fields"));
        }
        Ok(reply)
    }

    /// Sends a request that has no reply. Order with later requests is kept.
    pub(crate) fn post(&self, command: u16, body: &[u8]) -> Result<(), UserError> {
        let mut next_id = self.next_id.lock().unwrap_or_else(PoisonError::into_inner);
        self.check_open()?;
        let header = UserHeader::request(*next_id, command, body.len(), false);
        *next_id = next_id.wrapping_add(1);
        let sent = stream::send(&self.socket, header, body, (&[], self.bound));
        sent.map_err(|error| self.lost(&error))
    }

    /// Closes the connection because a reply to `command` broke `rule`.
    pub(crate) fn broken(&self, command: u16, rule: &'static str) -> UserError {
        self.close();
        UserError::Protocol { command, rule }
    }

    /// Whether the server hung up or the connection was closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    pub(crate) const fn socket(&self) -> &UnixStream {
        &self.socket
    }

    /// Closes the connection: requests fail at once.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    fn check_open(&self) -> Result<(), UserError> {
        if self.is_closed() {
            return Err(UserError::Gone("the connection was closed".to_owned()));
        }
        Ok(())
    }

    fn lost(&self, error: &io::Error) -> UserError {
        self.close();
        UserError::Gone(error.to_string())
    }
}
