//! What a node shares with a peer on its host, and the checks of what a peer shares.
//!
//! *Owns*: the half made for one peer, the limits of received sizes. *Takes*: descriptors and lengths from the peer.
//! *Gives*: mapped [`SameHostParts`]. *Must not*: map anything longer than a limit, or a file that may shrink.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, Weak},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec},
    io::Errno,
};
use udma_abi::RawEid;
use urma_mem::{Arena, MapAccess, Pages, Region, procvm::ProcessMemory};

use crate::{
    host::{
        descriptor::{ForkGuarded, is_shortage},
        interrupt::signal,
        memory::FileSharing,
        peer::hello::{FDS, Hello, HelloKind, ReceivedHello},
        peer::trust::Credentials,
    },
    ports::{SameHostParts, Wake},
};

/// What this node shares with every peer.
#[derive(Debug)]
pub struct LocalShare {
    /// EID of this node.
    pub eid: RawEid,
    /// Changes with every start.
    pub incarnation: u64,
    /// Header and segment table; sealed against writing by others.
    pub node_region: Region,
    /// The file into which registered pages are moved.
    pub arena: Arena,
    /// Bytes of this node's half of each pair.
    pub half_len: usize,
    /// The eventfd that wakes this node.
    pub wake: Arc<ForkGuarded>,
    /// Whether this node may read a peer's process through the kernel, and a peer this one.
    pub kernel_reads: KernelReads,
    /// Whether files of a peer's process are mapped.
    pub file_sharing: FileSharing,
}

/// Whether `process_vm_readv` may be used between nodes, for READs of memory that is not shared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum KernelReads {
    /// When a probe works.
    #[default]
    Probe,
    /// Memory is never shared.
    Off,
}

/// What this node shares with one peer.
#[derive(Clone, Debug)]
pub(super) struct SharingOffer {
    half: Region,
}

impl SharingOffer {
    /// # Errors
    /// Out of memory or descriptors.
    pub(super) fn new(share: &LocalShare) -> io::Result<Self> {
        let half = Region::shared(share.half_len, Pages::Base)?;
        half.seal_future_write()?;
        Ok(Self { half })
    }

    /// Makes the message and its descriptors.
    pub(super) fn message<'a>(
        &'a self,
        share: &'a LocalShare,
        kind: HelloKind,
        to: RawEid,
    ) -> io::Result<(Hello, [BorrowedFd<'a>; FDS])> {
        let file =
            |region: &'a Region| region.fd().map(|(fd, _)| fd).ok_or(io::ErrorKind::Unsupported);
        let probe = match share.kernel_reads {
            KernelReads::Probe => share.node_region.addr() as u64,
            KernelReads::Off => 0,
        };
        let fds =
            [file(&share.node_region)?, share.arena.fd(), file(&self.half)?, share.wake.as_fd()];
        let hello = Hello {
            kind,
            incarnation: share.incarnation,
            eid: share.eid,
            to,
            node_len: share.node_region.len() as u64,
            arena_len: share.arena.len(),
            half_len: share.half_len as u64,
            probe,
        };
        Ok((hello, fds))
    }
}

/// Why the offer of a peer is not acceptable.
#[derive(Debug, thiserror::Error)]
pub(super) enum BadOffer {
    /// A length beyond this node's limit.
    #[error("{1} of {0} bytes is longer than this node maps")]
    Length(u64, &'static str),
    /// A descriptor of the wrong kind.
    #[error("{0}: {1}")]
    File(&'static str, io::Error),
    /// The system cannot map a file that is valid: the peer is not to blame. Programs such as valgrind have no room
    /// for an arena.
    #[error("this process cannot map {1} bytes of {0}: {2}")]
    Unmapped(&'static str, u64, io::Error),
}

impl BadOffer {
    /// The system's error if this process lacks a resource, and the peer is not to blame.
    pub(super) fn shortage(&self) -> Option<&io::Error> {
        match self {
            Self::File(_, error) | Self::Unmapped(.., error) if is_shortage(error) => Some(error),
            Self::File(..) | Self::Length(..) | Self::Unmapped(..) => None,
        }
    }

    /// Why `len` bytes of `what` could not be mapped. Its seals and length were right if the system reports EINVAL.
    fn of_mapping(what: &'static str, len: u64, error: io::Error) -> Self {
        match Errno::from_io_error(&error) {
            Some(Errno::INVAL) => Self::Unmapped(what, len, error),
            _ => Self::File(what, error),
        }
    }
}

/// Maps what a peer showed.
pub(super) fn parts(
    share: &LocalShare,
    offer: SharingOffer,
    shown: ReceivedHello,
    (socket, credentials): (&Arc<ForkGuarded>, Credentials),
) -> Result<SameHostParts, BadOffer> {
    let Ok([node, arena, half, wake]) = <[OwnedFd; FDS]>::try_from(shown.fds) else {
        return Err(BadOffer::Length(0, "descriptors"));
    };
    let hello = shown.hello;
    let node_len = length(hello.node_len, NODE_LEN_MAX, "node region")?;
    let half_len = length(hello.half_len, HALF_LEN_MAX, "half")?;
    check_eventfd(&wake).map_err(|error| BadOffer::File("wake-up", error))?;
    let map = |fd, len, access, what| {
        let mapped = Region::map_fd(fd, 0, len, access);
        mapped.map_err(|error| BadOffer::of_mapping(what, len as u64, error))
    };
    let peer_node = map(node, node_len, MapAccess::ReadOnly, "node region")?;
    Ok(SameHostParts {
        process: probe(share, &hello, &peer_node, credentials),
        files: None,
        peer_node,
        peer_arena: map_arena(arena, hello.arena_len)?,
        peer_half: map(half, half_len, MapAccess::ReadOnly, "half")?,
        my_half: offer.half,
        wake: Arc::new(PeerEventfd { wake, connection: Arc::downgrade(socket) }),
    })
}

/// The size of an arena follows from its file; the message only has to agree.
fn map_arena(file: OwnedFd, shown: u64) -> Result<Region, BadOffer> {
    let mapped = Arena::map_peer(file);
    let arena = mapped.map_err(|error| BadOffer::of_mapping("arena", shown, error))?;
    if arena.len() as u64 == shown { Ok(arena) } else { Err(BadOffer::Length(shown, "arena")) }
}

fn length(shown: u64, max: u64, what: &'static str) -> Result<usize, BadOffer> {
    let refused = BadOffer::Length(shown, what);
    if shown == 0 || shown > max {
        return Err(refused);
    }
    usize::try_from(shown).map_err(|_| refused)
}

/// A wake-up must never block: only an eventfd in non-blocking mode is accepted.
fn check_eventfd(fd: &OwnedFd) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let flags = rustix::fs::fcntl_getfl(fd)?;
    if !flags.contains(rustix::fs::OFlags::NONBLOCK) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "blocking mode"));
    }
    let name = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()))?;
    if name.as_os_str() == "anon_inode:[eventfd]" {
        Ok(())
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "no eventfd"))
    }
}

/// The peer's memory, if the kernel lets this process read it and its node region is where the peer says; with the
/// start of that as a witness for every later read.
fn probe(
    share: &LocalShare,
    hello: &Hello,
    node: &Region,
    credentials: Credentials,
) -> Option<ProcessMemory> {
    if share.kernel_reads == KernelReads::Off || hello.probe == 0 {
        return None;
    }
    let witness = node.sub(0, WITNESS_LEN).ok()?;
    match ProcessMemory::open(credentials.pid, hello.probe, witness) {
        Ok(memory) => Some(memory),
        Err(error) => {
            tracing::info!(pid = credentials.pid, %error, "the kernel does not let this process read the peer's memory");
            None
        }
    }
}

/// Rings the peer's eventfd.
#[derive(Debug)]
struct PeerEventfd {
    wake: OwnedFd,
    /// The connection of the pair; either side may close it.
    connection: Weak<ForkGuarded>,
}

impl Wake for PeerEventfd {
    fn wake(&self) {
        signal(&self.wake);
    }

    fn is_gone(&self) -> bool {
        self.connection.upgrade().is_none_or(|connection| has_hung_up(&connection))
    }
}

/// Whether the other end of `connection` is closed. `false` also if the system call is interrupted or has no memory:
/// the thread that watches the connection finds out later.
fn has_hung_up(connection: &ForkGuarded) -> bool {
    let mut connection = [PollFd::new(connection, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut connection, Some(&now)).is_ok_and(|ended| ended != 0)
}

/// Longest node region accepted: 16384 entries of 64 bytes and a header, with room to grow.
const NODE_LEN_MAX: u64 = 64 << 20;
/// Longest half accepted: hazard slots and a ring.
const HALF_LEN_MAX: u64 = 1 << 30;
/// Bytes of the witness: magic, version, incarnation and EID of a node region.
const WITNESS_LEN: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_this_process_cannot_map_is_no_fault_of_the_peer() {
        let of = |error: Errno| BadOffer::of_mapping("arena", 7, error.into());
        let unmapped = of(Errno::INVAL);
        assert!(matches!(unmapped, BadOffer::Unmapped("arena", 7, _)));
        assert!(unmapped.to_string().starts_with("this process cannot map 7 bytes of arena: "));
        assert!(unmapped.shortage().is_none() && of(Errno::NOMEM).shortage().is_some());
        // Of a file that may only be read, and of one without seals.
        assert!(matches!(of(Errno::ACCESS), BadOffer::File(..)));
        let shrinks = io::Error::new(io::ErrorKind::PermissionDenied, "file may shrink");
        assert!(matches!(BadOffer::of_mapping("arena", 7, shrinks), BadOffer::File(..)));
    }
}
