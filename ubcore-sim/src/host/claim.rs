//! The process that holds an EID on this machine: a bound abstract socket.
//!
//! *Owns*: the listening socket whose name contains the EID. *Takes*: a configured EID, or the request for a random
//! one. *Gives*: accepted connections, and the owner of any EID. *Must not*: read or write a connection.
//!
//! The name is unique in a network namespace and across users, it disappears with the process, and there is nothing
//! to clean up.

use std::{
    io,
    net::{IpAddr, Ipv4Addr},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::{
    io::Errno,
    net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType},
};
use udma_abi::RawEid;

use super::{
    descriptor::ForkGuarded,
    eid_ip, ip_eid,
    peer::trust::{Credentials, credentials},
};

/// An EID that this process holds until the value is dropped.
#[derive(Debug)]
pub struct Claim {
    socket: ForkGuarded,
    eid: RawEid,
}

/// Why an EID could not be claimed.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// Another process holds the EID.
    #[error(
        "EID {eid} belongs to {owner}; several processes can share one address through `ubcored`"
    )]
    Taken {
        /// The EID as an address.
        eid: IpAddr,
        /// Process that holds the EID.
        owner: EidOwner,
    },
    /// The host has no address that other hosts reach.
    #[error(
        "this host has no address for its EID besides those of loopback and of a link: give an interface one, \
         or set URMA_EID to an address or to random"
    )]
    NoHostAddress,
    /// No random EID was free.
    #[error("no free address in 127.0.0.0/8 was found in {0} attempts")]
    NoneFree(u32),
    /// The operating system refused.
    #[error("the operating system refused the claim: {0}")]
    Os(#[from] io::Error),
}

/// The holder of an EID, as far as it is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EidOwner(pub Option<Credentials>);

impl std::fmt::Display for EidOwner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(owner) => write!(f, "process {} of user {}", owner.pid, owner.uid),
            None => f.write_str("another process"),
        }
    }
}

impl Claim {
    /// Claims `eid`.
    ///
    /// # Errors
    /// [`ClaimError::Taken`] with its owner, or the system's error.
    pub fn of(eid: RawEid) -> Result<Self, ClaimError> {
        let socket = new_socket()?;
        match net::bind(&socket, &address(eid)?) {
            Ok(()) => {}
            Err(Errno::ADDRINUSE) => {
                let owner = EidOwner(owner_of(eid).ok().flatten());
                return Err(ClaimError::Taken { eid: eid_ip(eid), owner });
            }
            Err(error) => return Err(io::Error::from(error).into()),
        }
        net::listen(&socket, BACKLOG).map_err(io::Error::from)?;
        Ok(Self { socket: ForkGuarded::new(socket)?, eid })
    }

    /// Claims a random address of 127.0.0.0/8 outside 127.0.0.0/16.
    ///
    /// # Errors
    /// [`ClaimError::NoneFree`] after [`ATTEMPTS`] conflicts, or the system's error.
    pub fn random() -> Result<Self, ClaimError> {
        for _ in 0..ATTEMPTS {
            let mut octets = [0; 3];
            getrandom::fill(&mut octets).map_err(io::Error::other)?;
            let [b, c, d] = octets.map(|octet| 1 + octet % 254);
            match Self::of(ip_eid(Ipv4Addr::new(127, b, c, d).into())) {
                Err(ClaimError::Taken { .. }) => {}
                claimed => return claimed,
            }
        }
        Err(ClaimError::NoneFree(ATTEMPTS))
    }

    /// Returns the EID that is claimed.
    #[must_use]
    pub fn eid(&self) -> RawEid {
        self.eid
    }

    /// Accepts the next waiting connection, non-blocking, or returns `None`.
    ///
    /// # Errors
    /// Out of descriptors or memory.
    pub fn accept(&self) -> io::Result<Option<OwnedFd>> {
        match net::accept_with(&self.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(socket) => Ok(Some(socket)),
            Err(Errno::AGAIN | Errno::CONNABORTED | Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for Claim {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Result of a connection attempt, which never waits.
#[derive(Debug)]
pub enum Connect {
    /// The claim is held; the connection may not have been accepted yet.
    Connected(OwnedFd),
    /// No process on this host holds the EID.
    NotHere,
    /// Its owner's queue of connections is full; try again later.
    Busy,
}

/// Connects to the holder of `eid`.
///
/// # Errors
/// Out of descriptors or memory.
pub fn connect(eid: RawEid) -> io::Result<Connect> {
    let socket = new_socket()?;
    match net::connect(&socket, &address(eid)?) {
        Ok(()) => Ok(Connect::Connected(socket)),
        Err(Errno::CONNREFUSED) => Ok(Connect::NotHere),
        Err(Errno::AGAIN | Errno::INTR) => Ok(Connect::Busy),
        Err(error) => Err(error.into()),
    }
}

/// The process that holds `eid`; `None`: there is none, or its queue is full.
///
/// # Errors
/// Out of descriptors or memory.
pub fn owner_of(eid: RawEid) -> io::Result<Option<Credentials>> {
    match connect(eid)? {
        Connect::Connected(socket) => credentials(socket).map(Some),
        Connect::NotHere | Connect::Busy => Ok(None),
    }
}

fn new_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

fn address(eid: RawEid) -> io::Result<SocketAddrUnix> {
    Ok(SocketAddrUnix::new_abstract_name(format!("urma/{}", eid_ip(eid)).as_bytes())?)
}

/// Random EIDs tried before giving up; 16 million exist, so a second conflict is rare already.
pub const ATTEMPTS: u32 = 64;
/// Connections waiting to be accepted; beyond it connecting answers [`Connect::Busy`].
const BACKLOG: i32 = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_claims_differ_and_lie_where_they_should() {
        let claims: Vec<_> = (0..32).map(|_| Claim::random().unwrap()).collect();
        for (i, claim) in claims.iter().enumerate() {
            let IpAddr::V4(ip) = eid_ip(claim.eid()) else { panic!("not IPv4-mapped") };
            assert_eq!(ip.octets()[0], 127);
            assert!(ip.octets()[1..].iter().all(|octet| (1..=254).contains(octet)), "{ip}");
            assert!(claims[..i].iter().all(|other| other.eid() != claim.eid()));
        }
    }

    #[test]
    fn a_taken_eid_names_its_owner_and_is_free_after_drop() {
        let first = Claim::random().unwrap();
        let error = Claim::of(first.eid()).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(&std::process::id().to_string()), "{text}");
        assert!(text.contains("ubcored"), "{text}");
        let eid = first.eid();
        drop(first);
        assert_eq!(Claim::of(eid).unwrap().eid(), eid);
    }

    #[test]
    fn an_unclaimed_eid_is_not_here() {
        let eid = Claim::random().unwrap().eid();
        assert!(matches!(connect(eid).unwrap(), Connect::NotHere));
        assert_eq!(owner_of(eid).unwrap(), None);
    }

    #[test]
    fn a_full_queue_is_busy_and_never_waits() {
        let claim = Claim::random().unwrap();
        let mut waiting = Vec::new();
        let is_busy = (0..4 * BACKLOG).any(|_| match connect(claim.eid()).unwrap() {
            Connect::Connected(socket) => {
                waiting.push(socket);
                false
            }
            other => matches!(other, Connect::Busy),
        });
        assert!(is_busy);
        assert!(claim.accept().unwrap().is_some());
    }
}
