//! Whole messages on a Unix socket, with descriptors.
//!
//! - owns: the loops around short reads and writes, and their bound in time. takes: a socket. gives: messages. must
//!   not: interpret a body.

#![expect(clippy::disallowed_methods, reason = "the bound of a message is real time")]

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::{
        fd::{BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    time::{Duration, Instant},
};

use rustix::{
    cmsg_space,
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
    },
};

use super::wire::{FDS_MAX, HEADER_LEN, UserHeader};

/// A message that arrived.
#[derive(Debug)]
pub(crate) struct UserMessage {
    pub(crate) header: UserHeader,
    pub(crate) body: Vec<u8>,
    pub(crate) fds: Vec<OwnedFd>,
    /// Descriptors that came with it are lost: this process has no room for them, or there were more than [`FDS_MAX`].
    pub(crate) is_cut: bool,
}

/// Sends a message within `bound`.
///
/// # Errors
/// `TimedOut`: the peer does not read. Else the system's error; part of the message may be sent then.
pub(crate) fn send(
    socket: &UnixStream,
    header: UserHeader,
    body: &[u8],
    (fds, bound): (&[BorrowedFd<'_>], Duration),
) -> io::Result<()> {
    let bytes = [&header.encode(), body].concat();
    let deadline = Instant::now() + bound;
    let mut rest = bytes.as_slice();
    let mut fds = fds;
    while !rest.is_empty() {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(FDS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match sendmsg(socket, &[IoSlice::new(rest)], &mut control, flags) {
            Ok(sent) => {
                rest = rest.get(sent..).unwrap_or_default();
                fds = &[];
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => wait(socket, PollFlags::OUT, deadline)?,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Receives a message. `bound` counts from now, or for a server from the first byte: `idle` is how long it waits for
/// that.
///
/// # Errors
/// `TimedOut`; `UnexpectedEof`: the peer hung up; `InvalidData`: a size that no message has; else the system's error.
pub(crate) fn receive(
    socket: &UnixStream,
    idle: Duration,
    bound: Duration,
) -> io::Result<UserMessage> {
    let mut parts = ReceivedFds::default();
    let mut head = [0; HEADER_LEN];
    fill(socket, &mut head[..1], &mut parts, Instant::now() + idle)?;
    let deadline = Instant::now() + bound;
    fill(socket, &mut head[1..], &mut parts, deadline)?;
    let header = UserHeader::decode(&head);
    let Some(len) = header.body_len() else {
        return Err(broken("a message has 16 to 65536 bytes"));
    };
    let mut body = vec![0; len];
    fill(socket, &mut body, &mut parts, deadline)?;
    let ReceivedFds { fds, is_cut } = parts;
    Ok(UserMessage { header, body, fds, is_cut })
}

/// A peer broke the framing of messages: where the next one begins is not known.
pub(crate) fn broken(rule: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, rule)
}

/// What came beside the bytes of a message.
#[derive(Default)]
struct ReceivedFds {
    fds: Vec<OwnedFd>,
    is_cut: bool,
}

fn fill(
    socket: &UnixStream,
    bytes: &mut [u8],
    parts: &mut ReceivedFds,
    deadline: Instant,
) -> io::Result<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(FDS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let got = match recvmsg(socket, &mut [IoSliceMut::new(rest)], &mut control, flags) {
            Ok(got) => got,
            Err(Errno::INTR) => continue,
            Err(Errno::AGAIN) => {
                wait(socket, PollFlags::IN, deadline)?;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                parts.fds.extend(received);
            }
        }
        parts.is_cut |= got.flags.contains(ReturnFlags::CTRUNC);
        if parts.fds.len() > FDS_MAX {
            // A message may come in as many pieces as it has bytes, each with descriptors.
            parts.fds.clear();
            parts.is_cut = true;
        }
        if got.bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        rest = rest.get_mut(got.bytes..).unwrap_or_default();
    }
    Ok(())
}

fn wait(socket: &UnixStream, events: PollFlags, deadline: Instant) -> io::Result<()> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let timeout = Timespec::try_from(left).ok();
    match poll(&mut [PollFd::new(socket, events)], timeout.as_ref()) {
        Ok(0) => Err(io::ErrorKind::TimedOut.into()),
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
