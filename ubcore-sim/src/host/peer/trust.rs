//! Whether the process at the other end of a connection may have this node's memory.
//!
//! It may if it has the same effective user in the same user namespace, and may trace this process. Must not count a
//! user id or a namespace as equal that the kernel does not show.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
};

use nix::{
    errno::Errno,
    sys::socket::{getsockopt, sockopt},
};
use rustix::process::{Pid, PidfdFlags, geteuid, pidfd_open};
use urma_mem::environment::is_dumpable;

/// Process and user at the other end of a connection, as the kernel shows them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Credentials {
    /// Process, in the numbering of this process; 0: it has no number there.
    pub pid: u32,
    /// Effective user, in the numbering of this process's user namespace.
    pub uid: u32,
}

/// With which processes of its user, in its user namespace, a node shares memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ShareWith {
    /// With those that the kernel would let trace this process: they reach its memory in any case.
    #[default]
    Tracers,
    /// With all of them.
    User,
}

/// Why a process does not get this node's memory.
#[derive(Debug, thiserror::Error)]
pub enum Distrust {
    /// The peer's process belongs to another user.
    #[error("it belongs to another user")]
    OtherUser,
    /// The overflow id: any user without a number in this user namespace.
    #[error("its user has no number in this user namespace")]
    UnmappedUser,
    /// The same user in another user namespace.
    #[error("it is in another user namespace")]
    OtherNamespace,
    /// The kernel would not let the peer trace this process.
    #[error(
        "it may not look into this process, which is not dumpable or has capabilities that it has not"
    )]
    Guarded,
    /// The kernel does not show the peer's user namespace.
    #[error("its user namespace cannot be read: {0}")]
    Unknown(io::Error),
}

impl Distrust {
    /// The system's error, if that is the reason.
    #[must_use]
    pub fn cause(&self) -> Option<&io::Error> {
        match self {
            Self::Unknown(error) => Some(error),
            Self::OtherUser | Self::UnmappedUser | Self::OtherNamespace | Self::Guarded => None,
        }
    }

    /// The reason in a few words, without its cause.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::OtherUser => "it belongs to another user",
            Self::UnmappedUser => "its user has no number in this user namespace",
            Self::OtherNamespace => "it is in another user namespace",
            Self::Guarded => "it may not trace this process (not dumpable, or more capabilities)",
            Self::Unknown(_) => "its user namespace cannot be read",
        }
    }
}

/// The credentials of the process at the other end of `socket`, if it may have this node's memory.
///
/// # Errors
/// [`Distrust`], also when the kernel does not show it.
///
/// Every user without a number in this user namespace reads as one overflow id, so two processes with that id may
/// belong to different users, and it is never equal to itself. A process of the same user in another user namespace
/// is kept out by the kernel's rules for debuggers, and by this one.
///
/// The kernel keeps processes of one user from each other's memory, too, where one of them is not dumpable
/// (`PR_SET_DUMPABLE`, a program with capabilities of its file) or has capabilities that the other one has not
/// (ptrace(2), capabilities(7)). A node gives nothing that ptrace would not, unless its program asks for it.
pub fn check(socket: impl AsFd, with: ShareWith) -> Result<Credentials, Distrust> {
    let peer = credentials(&socket).map_err(Distrust::Unknown)?;
    if peer.uid != geteuid().as_raw() {
        return Err(Distrust::OtherUser);
    }
    if peer.uid == overflow_uid().map_err(Distrust::Unknown)? {
        return Err(Distrust::UnmappedUser);
    }
    let pidfd = pidfd(&socket, peer).map_err(Distrust::Unknown)?;
    let theirs = namespace(&pidfd).map_err(Distrust::Unknown)?;
    let own = namespace_at("/proc/self/ns/user").map_err(Distrust::Unknown)?;
    if own != theirs {
        return Err(Distrust::OtherNamespace);
    }
    let is_asked_for = with == ShareWith::User || peer.pid == std::process::id();
    if is_asked_for || may_trace(&pidfd).map_err(Distrust::Unknown)? {
        Ok(peer)
    } else {
        Err(Distrust::Guarded)
    }
}

/// Whether the kernel would let the process of `pidfd`, of this user and user namespace, trace this one.
fn may_trace(pidfd: &OwnedFd) -> io::Result<bool> {
    /// Bit of `CAP_SYS_PTRACE` in a set of capabilities.
    const TRACES_ANY: u64 = 1 << 19;
    let number = number_in_proc(pidfd)?;
    let own = Capabilities::of("/proc/self/status")?;
    let theirs = Capabilities::of(&format!("/proc/{number}/status"))?;
    if number_in_proc(pidfd)? != number {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the process ended"));
    }
    let has_all = own.permitted & !theirs.permitted == 0;
    Ok(theirs.effective & TRACES_ANY != 0 || is_dumpable() && has_all)
}

/// Capabilities of a process, as sets of bits.
struct Capabilities {
    permitted: u64,
    effective: u64,
}

impl Capabilities {
    fn of(status: &str) -> io::Result<Self> {
        let text = std::fs::read_to_string(status)?;
        let set = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            let bits = line.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok());
            bits.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no capabilities shown"))
        };
        Ok(Self { permitted: set("CapPrm:")?, effective: set("CapEff:")? })
    }
}

/// Process and user at the other end of a connected Unix socket.
///
/// # Errors
/// Not a connected Unix socket.
pub fn credentials(socket: impl AsFd) -> io::Result<Credentials> {
    let peer = getsockopt(&socket, sockopt::PeerCredentials)?;
    Ok(Credentials { pid: u32::try_from(peer.pid()).unwrap_or(0), uid: peer.uid() })
}

/// The id under which the kernel shows users without a number in this user namespace.
fn overflow_uid() -> io::Result<u32> {
    let text = std::fs::read_to_string("/proc/sys/kernel/overflowuid")?;
    text.trim().parse().map_err(io::Error::other)
}

/// A descriptor of the peer's process. Before Linux 6.5 it is opened by the process id, which may name
/// a later process of the same user.
fn pidfd(socket: impl AsFd, peer: Credentials) -> io::Result<OwnedFd> {
    match getsockopt(&socket, sockopt::PeerPidfd) {
        Err(Errno::ENOPROTOOPT) => pidfd_by_number(peer),
        pidfd => Ok(pidfd?),
    }
}

fn pidfd_by_number(peer: Credentials) -> io::Result<OwnedFd> {
    let pid = i32::try_from(peer.pid).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no process id"))?;
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

/// The user namespace of a process. The process must still be there afterwards, so that its number in
/// `/proc` named no other process meanwhile.
fn namespace(pidfd: &OwnedFd) -> io::Result<(u64, u64)> {
    let number = number_in_proc(pidfd)?;
    let namespace = namespace_at(&format!("/proc/{number}/ns/user"))?;
    if number_in_proc(pidfd)? == number {
        Ok(namespace)
    } else {
        Err(io::Error::new(io::ErrorKind::NotFound, "the process ended"))
    }
}

/// Device and inode of the namespace that a link in `/proc` leads to.
fn namespace_at(link: &str) -> io::Result<(u64, u64)> {
    let stat = rustix::fs::stat(link)?;
    Ok((stat.st_dev, stat.st_ino))
}

/// The process's number in the numbering of the mounted `/proc`, which need not be this process's.
fn number_in_proc(pidfd: &OwnedFd) -> io::Result<u32> {
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd()))?;
    let number = info.lines().find_map(|line| line.strip_prefix("Pid:"));
    let number = number.and_then(|number| number.trim().parse().ok()).filter(|number| *number > 0);
    number.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "not in this /proc"))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    #[test]
    fn this_process_is_found_by_its_socket_and_by_its_number() {
        let (type_, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let (socket, _other) = socketpair(AddressFamily::UNIX, type_, flags, None).unwrap();
        let peer = check(&socket, ShareWith::Tracers).unwrap();
        assert_eq!(peer, Credentials { pid: std::process::id(), uid: geteuid().as_raw() });
        let own = namespace_at("/proc/self/ns/user").unwrap();
        assert_eq!(namespace(&pidfd_by_number(peer).unwrap()).unwrap(), own);
        assert!(pidfd_by_number(Credentials { pid: 0, ..peer }).is_err());
    }

    #[test]
    fn a_process_that_ended_has_no_namespace() {
        let mut child = Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let peer = Credentials { pid: child.id(), uid: 0 };
        let pidfd = pidfd_by_number(peer).unwrap();
        assert!(namespace(&pidfd).is_ok());
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(namespace(&pidfd).is_err());
    }
}
