//! Finds what keeps a node from reaching a peer: address, port, firewall, MTU or version.
//!
//! *Owns*: the probes (a UDP socket of any port, a TCP connection attempt) and the meaning of each result. *Takes*:
//! two EIDs, after an attempt to connect failed. *Gives*: one [`Obstacle`]. *Must not*: wait for longer than
//! [`PATIENCE`]; be used for a decision.

use std::{
    fmt, io,
    net::{IpAddr, SocketAddr, UdpSocket},
    time::Duration,
};

use nix::sys::socket::{
    getsockopt, setsockopt,
    sockopt::{IpMtu, Ipv4RecvErr, Ipv6RecvErr},
};
use rustix::event::{PollFd, PollFlags, poll};
use socket2::{Domain, Protocol, Socket, Type};
use udma_abi::{Nanos, RawEid};
use urma_packet::{ROCE_PORT, WIRE_VERSION};

use super::{clock::Clock, eid_ip, udp::port_owner};

/// Kind of obstacle between two nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ObstacleKind {
    /// No route, or no host with this address.
    Address,
    /// No node receives on UDP 4791, on this side or the other.
    Port,
    /// Packets are dropped without an answer, or forbidden.
    Firewall,
    /// Packets are too large for the path.
    Mtu,
    /// The peer supports no common wire version.
    Version,
}

/// An obstacle, for the user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Obstacle {
    /// Which of the five kinds it is.
    pub kind: ObstacleKind,
    /// What was found and what to do.
    pub why: String,
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            ObstacleKind::Address => "address",
            ObstacleKind::Port => "port",
            ObstacleKind::Firewall => "firewall",
            ObstacleKind::Mtu => "MTU",
            ObstacleKind::Version => "version",
        };
        write!(f, "{kind}: {}", self.why)
    }
}

/// How an attempt to connect failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FailedAttempt {
    /// Nothing came back in time.
    Silence,
    /// The node refused to try, or the peer refused.
    Refusal,
}

/// Searches for the obstacle between node `own` of process `pid` and `peer`. Takes up to [`PATIENCE`].
#[must_use]
pub fn find(own: RawEid, pid: u32, peer: RawEid, attempt: FailedAttempt) -> Obstacle {
    let (own, peer) = (eid_ip(own), eid_ip(peer));
    let found = of_addresses(own, peer).or_else(|| of_own_port(own, pid));
    let found = found.or_else(|| (attempt == FailedAttempt::Refusal).then(|| of_version(peer)));
    found.unwrap_or_else(|| match Probes::start(own, peer) {
        Ok(mut probes) => probes.result(),
        Err(error) => of_error(&error, peer).unwrap_or_else(|| unknown(peer, &error)),
    })
}

fn of(kind: ObstacleKind, why: String) -> Obstacle {
    Obstacle { kind, why }
}

fn of_addresses(own: IpAddr, peer: IpAddr) -> Option<Obstacle> {
    if own.is_ipv4() != peer.is_ipv4() {
        let why = format!(
            "this node's EID {own} and {peer} are of different protocols; set URMA_EID to an address of this \
             host of the same protocol"
        );
        return Some(of(ObstacleKind::Address, why));
    }
    // Any loopback address may be a source for packets to this host.
    let is_here = peer.is_loopback() || UdpSocket::bind((peer, 0)).is_ok();
    (own.is_loopback() && !is_here).then(|| {
        let why = format!(
            "this node's EID {own} is a loopback address, to which no other host answers; set URMA_EID=host \
             (another process may have the host's address)"
        );
        of(ObstacleKind::Address, why)
    })
}

fn of_own_port(own: IpAddr, pid: u32) -> Option<Obstacle> {
    let address = SocketAddr::new(own, ROCE_PORT);
    let why = match port_owner::udp_owner(address) {
        Some(owner) if owner == pid => return None,
        Some(owner) => format!("UDP {address} of this host belongs to process {owner}; end it"),
        None if port_owner::is_bound(address) => {
            format!("UDP {address} of this host belongs to a process of another user; end it")
        }
        None => format!(
            "this node does not receive at UDP {address}: URMA_PATH=same-host turns packets off"
        ),
    };
    Some(of(ObstacleKind::Port, why))
}

fn of_version(peer: IpAddr) -> Obstacle {
    let why = format!(
        "node {peer} answers and refuses: it has no wire version or transport in common with this node \
         (version {WIRE_VERSION}); install the same release on both hosts"
    );
    of(ObstacleKind::Version, why)
}

/// What an error of the system says about the path; `None`: nothing.
fn of_error(error: &io::Error, peer: IpAddr) -> Option<Obstacle> {
    use io::ErrorKind as Kind;
    let is = |kinds: &[Kind]| kinds.contains(&error.kind());
    if is(&[Kind::ConnectionRefused]) {
        let why = format!(
            "host {peer} answers that nothing receives at UDP {ROCE_PORT}: no node has this EID there, or its \
             packets are turned off"
        );
        return Some(of(ObstacleKind::Port, why));
    }
    if is(&[Kind::HostUnreachable, Kind::NetworkUnreachable, Kind::NetworkDown]) {
        let why =
            format!("no host answers at {peer} ({error}); look at the address, cable and routes");
        return Some(of(ObstacleKind::Address, why));
    }
    if is(&[Kind::AddrNotAvailable]) {
        let why = format!("this node's address is no longer that of an interface ({error})");
        return Some(of(ObstacleKind::Address, why));
    }
    // A route of the type blackhole is an invalid argument.
    is(&[Kind::PermissionDenied, Kind::InvalidInput]).then(|| {
        let why = format!(
            "packets to {peer} are forbidden by a firewall or route of this host or the path ({error})"
        );
        of(ObstacleKind::Firewall, why)
    })
}

fn unknown(peer: IpAddr, error: &io::Error) -> Obstacle {
    of(ObstacleKind::Address, format!("{peer} cannot be tried: {error}"))
}

/// Probes that are under way.
#[derive(Debug)]
struct Probes {
    peer: IpAddr,
    udp: UdpSocket,
    tcp: Socket,
    /// The host answered the connection attempt in some way.
    is_alive: bool,
}

impl Probes {
    fn start(own: IpAddr, peer: IpAddr) -> io::Result<Self> {
        let (from, to) = (SocketAddr::new(own, 0), SocketAddr::new(peer, ROCE_PORT));
        let udp = UdpSocket::bind(from)?;
        // Without it, the system does not report errors that may be temporary.
        let _ = if peer.is_ipv4() {
            setsockopt(&udp, Ipv4RecvErr, &true)
        } else {
            setsockopt(&udp, Ipv6RecvErr, &true)
        };
        udp.connect(to)?;
        udp.set_nonblocking(true)?;
        let tcp = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
        tcp.set_nonblocking(true)?;
        tcp.bind(&from.into())?;
        // Under way; its result shows when the socket is ready.
        let _ = tcp.connect(&to.into());
        Ok(Self { peer, udp, tcp, is_alive: false })
    }

    fn result(&mut self) -> Obstacle {
        let clock = Clock::default();
        let start = clock.now();
        loop {
            let waited = clock.now().saturating_sub(start);
            if waited >= nanos(PATIENCE) || self.is_alive && waited >= nanos(ALIVE_PATIENCE) {
                return self.silence();
            }
            // Senders limit the rate of error replies: a single probe may get none.
            if let Some(found) = self.send().or_else(|| self.wait()) {
                return found;
            }
        }
    }

    /// Sends a datagram that a node drops.
    fn send(&self) -> Option<Obstacle> {
        self.udp.send(&[0]).err().and_then(|error| of_error(&error, self.peer))
    }

    fn wait(&mut self) -> Option<Obstacle> {
        let mut fds = vec![PollFd::new(&self.udp, PollFlags::IN)];
        if !self.is_alive {
            fds.push(PollFd::new(&self.tcp, PollFlags::OUT));
        }
        let _ = poll(&mut fds, Some(&BETWEEN_PROBES.try_into().ok()?));
        let is_answered = fds.get(1).is_some_and(|tcp| !tcp.revents().is_empty());
        let received = self.udp.recv(&mut [0; 64]);
        if let Some(found) = received.err().and_then(|error| of_error(&error, self.peer)) {
            return Some(found);
        }
        if is_answered {
            match self.tcp.take_error().ok()? {
                None => self.is_alive = true,
                Some(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    self.is_alive = true
                }
                Some(error) => return of_error(&error, self.peer),
            }
        }
        None
    }

    /// No error came back.
    fn silence(&self) -> Obstacle {
        let peer = self.peer;
        if let Ok(mtu) = getsockopt(&self.udp, IpMtu)
            && mtu < LEAST_PATH_MTU
        {
            let why = format!(
                "the path to {peer} carries packets of {mtu} bytes only; {LEAST_PATH_MTU} are needed"
            );
            return of(ObstacleKind::Mtu, why);
        }
        let who = if self.is_alive { "the host answers TCP" } else { "nothing answers TCP either" };
        let why = format!(
            "nothing comes back from {peer}, UDP {ROCE_PORT} ({who}): a firewall drops the packets, its node \
             is stopped, or another program has the port there"
        );
        of(ObstacleKind::Firewall, why)
    }
}

fn nanos(time: Duration) -> Nanos {
    Nanos::try_from(time.as_nanos()).unwrap_or(Nanos::MAX)
}

/// Longest search. Linux gives up a neighbour that does not answer after 3 s.
pub const PATIENCE: Duration = Duration::from_millis(4000);
/// Longest wait for an error of UDP once the host answered TCP.
const ALIVE_PATIENCE: Duration = Duration::from_millis(1500);
/// Errors are sent once a second by most systems, after a few at once.
const BETWEEN_PROBES: Duration = Duration::from_millis(250);
/// The least that every IPv4 host takes (RFC 791): handshakes and short messages fit.
const LEAST_PATH_MTU: i32 = 576;
