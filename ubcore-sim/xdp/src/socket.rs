//! An `AF_XDP` socket: its memory for frames, its rings, and the program on its interface.

use std::io;
use std::net::SocketAddrV4;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{
    set_xdp_rx_ring_size, set_xdp_tx_ring_size, set_xdp_umem_completion_ring_size,
    set_xdp_umem_fill_ring_size, set_xdp_umem_reg, xdp_mmap_offsets, xdp_statistics,
};
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING,
    XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING, XdpDescOptions, XdpStatistics,
    XdpUmemReg, XdpUmemRegFlags,
};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, bind, send, socket_with};
use rustix::thread::{CapabilitySet, capabilities};
use urma_mem::bpf::{attach_xdp, load_xdp, put_socket, socket_map};
use urma_mem::{OutOfBounds, Region};

use crate::program::steer;
use crate::ring::{RingConsumer, RingLayout, RingProducer};

/// Bytes of a chunk of the umem: a page, the most that the kernel takes.
const CHUNK_LEN: usize = 4096;
/// Chunks that received frames go to.
const RECEIVE_CHUNKS: u32 = 2048;
/// Chunks that frames are sent from.
const SEND_CHUNKS: u32 = 1024;
/// Queues of the interface that the program knows.
const QUEUES: u32 = 1;
/// Calls in a row that ask the kernel to send: it sends 32 frames by each.
const KICKS_MAX: u32 = SEND_CHUNKS / 32 + 1;
/// Times that a busy queue is tried again, and the pause before each: half a second in all.
const BUSY_LOOKS: u32 = 100;
const BUSY_PAUSE: Duration = Duration::from_millis(5);
/// The entry continues in the next one: bit 0 of the options, which are the high half of an entry's second word.
const CONTINUES: u64 = (XdpDescOptions::XDP_PKT_CONTD.bits() as u64) << 32;

/// Why there is no such socket.
#[derive(Debug, thiserror::Error)]
pub enum XdpRefusal {
    /// A call of the system failed.
    #[error("AF_XDP, {step}: {error}{}", hint(error))]
    System {
        /// What was to be done.
        step: &'static str,
        /// What the system answered.
        error: io::Error,
    },
    /// Frames would arrive at queues that the socket is not bound to.
    #[error(
        "AF_XDP: interface {0} has more than one queue, and a socket takes the frames of one: `ethtool -L NAME combined 1` leaves one"
    )]
    Queues(u32),
}

/// What the caller can do about an error.
fn hint(error: &io::Error) -> String {
    let words = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::PERM | Errno::ACCESS) => return missing_rights(),
        Some(Errno::BUSY | Errno::EXIST) => {
            " (the interface, or its queue, has a program or socket of this kind)"
        }
        Some(Errno::OPNOTSUPP | Errno::INVAL | Errno::RANGE) => {
            " (the interface's driver does not run such programs, or not with these queues and this MTU)"
        }
        Some(Errno::NOBUFS) => " (raise RLIMIT_MEMLOCK: frames lie in 12 MiB of locked memory)",
        _ => "",
    };
    words.to_owned()
}

/// The capabilities that this thread lacks, in words.
fn missing_rights() -> String {
    // What cannot be asked for is taken for there.
    let has = capabilities(None).map_or(CapabilitySet::all(), |sets| sets.effective);
    // What wants the second or third right is content with the older right to everything, too.
    let everything = CapabilitySet::SYS_ADMIN;
    let wanted = [
        ("CAP_NET_RAW", CapabilitySet::NET_RAW),
        ("CAP_NET_ADMIN", CapabilitySet::NET_ADMIN | everything),
        ("CAP_BPF", CapabilitySet::BPF | everything),
    ];
    let missing = wanted.iter().filter(|(_, right)| !has.intersects(*right));
    let missing: Vec<_> = missing.map(|(name, _)| *name).collect();
    if missing.is_empty() {
        return " (CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF are those of a user namespace, and do not count)"
            .to_owned();
    }
    format!(" (without {})", missing.join(", "))
}

/// What the kernel and this socket could not do with frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct XdpCounts {
    /// Frames for the socket that the kernel dropped: no chunk or no place in the ring was left.
    pub dropped: u64,
    /// Received frames that were longer than the caller's buffer.
    pub too_long: u64,
}

/// Takes the frames of one UDP port of an interface, and sends frames.
#[derive(Debug)]
pub struct XdpSocket {
    /// Goes first: no frame is steered to a socket that is closed.
    _attached: OwnedFd,
    _sockets: OwnedFd,
    socket: Arc<OwnedFd>,
    umem: Region,
    fill: RingProducer,
    received: RingConsumer,
    sent: RingProducer,
    completed: RingConsumer,
    /// Chunks that a frame may be sent from, by offset in the umem.
    free: Vec<u64>,
    too_long: u64,
}

impl XdpSocket {
    /// Opens a socket for the frames of an interface, by its number, that carry UDP to an address and port.
    ///
    /// # Errors
    /// [`XdpRefusal`] with what is missing: then frames go as before.
    pub fn open(interface: u32, to: SocketAddrV4) -> Result<Self, XdpRefusal> {
        let failed = |step| move |error: io::Error| XdpRefusal::System { step, error };
        let queue = XdpQueue::open(interface, 0, [RECEIVE_CHUNKS, SEND_CHUNKS])?;
        if !is_absent(&XdpQueue::open(interface, QUEUES, [1, 1])) {
            return Err(XdpRefusal::Queues(interface));
        }
        let sockets = socket_map(QUEUES).map_err(failed("a map of sockets"))?;
        let socket = queue.socket.as_fd();
        put_socket(sockets.as_fd(), 0, socket).map_err(failed("a socket in its map"))?;
        let program = load_xdp(*b"urma_steer\0\0\0\0\0\0", &steer(to, sockets.as_fd()))
            .map_err(failed("the program that steers frames"))?;
        let attached = attach_xdp(program.as_fd(), interface)
            .map_err(failed("the program on the interface"))?;
        let XdpQueue { socket, umem, fill, received, sent, completed } = queue;
        let chunks = RECEIVE_CHUNKS..RECEIVE_CHUNKS + SEND_CHUNKS;
        Ok(Self {
            _attached: attached,
            _sockets: sockets,
            socket: Arc::new(socket),
            umem,
            fill,
            received,
            sent,
            completed,
            free: chunks.map(chunk_offset).collect(),
            too_long: 0,
        })
    }

    /// The socket, for one who waits for frames: readable when one has arrived.
    #[must_use]
    pub fn socket(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.socket)
    }

    /// What was lost so far.
    #[must_use]
    pub fn counts(&self) -> XdpCounts {
        let kernel = xdp_statistics(&*self.socket).ok();
        // A frame without a chunk is among `rx_dropped`, and counted once more as an empty fill ring.
        let lost = |kernel: XdpStatistics| kernel.rx_dropped + kernel.rx_ring_full.unwrap_or(0);
        let dropped = kernel.map_or(0, lost);
        XdpCounts { dropped, too_long: self.too_long }
    }

    /// Copies the next frame to the front of `frame`, from its Ethernet header on; returns its length. `None`: none has arrived.
    pub fn receive(&mut self, frame: &mut [u8]) -> Option<usize> {
        for _ in 0..RECEIVE_CHUNKS {
            // All offsets lie in what was mapped, so no access fails.
            match self.take_frame(frame).ok()?? {
                Some(len) => return Some(len),
                None => self.too_long += 1,
            }
        }
        None
    }

    /// The next frame's length, `None` within for one that is longer than `frame`; `None` without one.
    fn take_frame(&mut self, frame: &mut [u8]) -> Result<Option<Option<usize>>, OutOfBounds> {
        let mut count = 0;
        let (mut len, mut is_whole) = (0, true);
        loop {
            if count == self.received.waiting(count)? {
                // The rest of the frame is on its way.
                return Ok(None);
            }
            let [at, rest] = self.received.entry(count)?;
            count += 1;
            let piece = usize::try_from(rest & u64::from(u32::MAX)).unwrap_or(usize::MAX);
            let end = len + piece;
            match (frame.get_mut(len..end), usize::try_from(at)) {
                (Some(bytes), Ok(at)) => self.umem.read(at, bytes)?,
                _ => is_whole = false,
            }
            len = end;
            if rest & CONTINUES == 0 {
                break;
            }
        }
        for ahead in 0..count {
            let [at, _] = self.received.entry(ahead)?;
            // There are as many places as chunks, so there is room.
            self.fill.put([at & !(CHUNK_LEN as u64 - 1)])?;
        }
        self.fill.publish()?;
        self.received.release(count)?;
        Ok(Some(is_whole.then_some(len)))
    }

    /// Takes a frame to be sent by the next [`Self::flush`]; `false`: there is no room, the frame is not sent.
    pub fn send(&mut self, frame: &[u8]) -> bool {
        self.put_frame(frame).unwrap_or(false)
    }

    fn put_frame(&mut self, frame: &[u8]) -> Result<bool, OutOfBounds> {
        let pieces = frame.len().div_ceil(CHUNK_LEN);
        if self.free.len() < pieces {
            self.reap()?;
        }
        if self.free.len() < pieces {
            self.flush();
            self.reap()?;
        }
        let count = u32::try_from(pieces).unwrap_or(u32::MAX);
        if pieces == 0 || self.free.len() < pieces || !self.sent.has_room(count)? {
            return Ok(false);
        }
        for (index, piece) in frame.chunks(CHUNK_LEN).enumerate() {
            let Some(at) = self.free.pop() else { break };
            self.umem.write(usize::try_from(at).unwrap_or(usize::MAX), piece)?;
            let continues = if index + 1 < pieces { CONTINUES } else { 0 };
            self.sent.put([at, piece.len() as u64 | continues])?;
        }
        Ok(true)
    }

    /// Chunks whose frames have left are free again.
    fn reap(&mut self) -> Result<(), OutOfBounds> {
        let count = self.completed.waiting(0)?;
        for ahead in 0..count {
            let [at] = self.completed.entry(ahead)?;
            self.free.push(at);
        }
        if count != 0 {
            self.completed.release(count)?;
        }
        Ok(())
    }

    /// Sends what was taken, and asks the kernel to be quick about what waits in its ring when it wants to be asked. What the
    /// link does not take now is sent by a later call.
    pub fn flush(&mut self) {
        if self.sent.publish().is_err() {
            return;
        }
        for _ in 0..KICKS_MAX {
            if self.sent.is_empty().unwrap_or(true) || !self.sent.wants_wakeup() {
                return;
            }
            // EAGAIN: it has sent a batch and there is more.
            match send(&*self.socket, &[], SendFlags::DONTWAIT) {
                Ok(_) | Err(Errno::AGAIN) => {}
                Err(_) => return,
            }
        }
    }
}

/// A socket on one queue, without a program.
struct XdpQueue {
    socket: OwnedFd,
    umem: Region,
    fill: RingProducer,
    received: RingConsumer,
    sent: RingProducer,
    completed: RingConsumer,
}

impl XdpQueue {
    /// Opens a queue's socket with so many chunks to receive to and to send from.
    fn open(interface: u32, queue: u32, chunks: [u32; 2]) -> Result<Self, XdpRefusal> {
        let failed = |step| move |error: Errno| XdpRefusal::System { step, error: error.into() };
        let refused = |step| move |error: io::Error| XdpRefusal::System { step, error };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::XDP, SocketType::RAW, flags, None)
            .map_err(failed("a socket"))?;
        let [receive, transmit] = chunks;
        let count = usize::try_from(receive + transmit).unwrap_or(usize::MAX);
        let umem = Region::private(count.saturating_mul(CHUNK_LEN))
            .map_err(refused("memory for frames"))?;
        let registration = XdpUmemReg {
            addr: umem.addr() as u64,
            len: umem.len() as u64,
            chunk_size: u32::try_from(CHUNK_LEN).unwrap_or(0),
            headroom: 0,
            flags: XdpUmemRegFlags::empty(),
            tx_metadata_len: 0,
        };
        set_xdp_umem_reg(&socket, registration).map_err(failed("memory for frames"))?;
        let sizes = [
            set_xdp_umem_fill_ring_size(&socket, receive),
            set_xdp_umem_completion_ring_size(&socket, transmit),
            set_xdp_rx_ring_size(&socket, receive),
            set_xdp_tx_ring_size(&socket, transmit),
        ];
        sizes.into_iter().collect::<Result<(), _>>().map_err(failed("rings"))?;
        let offsets = xdp_mmap_offsets(&socket).map_err(failed("rings"))?;
        let (frame_len, word_len) = (size_of::<[u64; 2]>(), size_of::<u64>());
        let ring =
            |place, offsets, entries, entry_len| RingLayout { place, offsets, entries, entry_len };
        let at = socket.as_fd();
        let mapped = || -> io::Result<_> {
            let fill = ring(XDP_UMEM_PGOFF_FILL_RING, offsets.fr, receive, word_len);
            let completed = ring(XDP_UMEM_PGOFF_COMPLETION_RING, offsets.cr, transmit, word_len);
            let received = ring(XDP_PGOFF_RX_RING, offsets.rx, receive, frame_len);
            let sent = ring(XDP_PGOFF_TX_RING, offsets.tx, transmit, frame_len);
            let mut fill = RingProducer::map(at, fill)?;
            for chunk in 0..receive {
                fill.put([chunk_offset(chunk)]).map_err(io::Error::other)?;
            }
            fill.publish().map_err(io::Error::other)?;
            let (sent, completed) =
                (RingProducer::map(at, sent)?, RingConsumer::map(at, completed)?);
            Ok((fill, RingConsumer::map(at, received)?, sent, completed))
        };
        let (fill, received, sent, completed) = mapped().map_err(refused("rings"))?;
        // Frames longer than a chunk lie in several (Linux 6.6).
        let flags = SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP | SocketAddrXdpFlags::XDP_USE_SG;
        let address = SocketAddrXdp::new(flags, interface, queue);
        bind_when_free(&socket, &address).map_err(failed("a queue of the interface"))?;
        Ok(Self { socket, umem, fill, received, sent, completed })
    }
}

/// Binds to a queue. That of a process that has just ended is free a little later: the kernel cleans up behind it.
#[expect(clippy::disallowed_methods, reason = "the kernel has no event for it")]
fn bind_when_free(socket: &OwnedFd, address: &SocketAddrXdp) -> Result<(), Errno> {
    for _ in 0..BUSY_LOOKS {
        match bind(socket, address) {
            Err(Errno::BUSY) => thread::sleep(BUSY_PAUSE),
            bound => return bound,
        }
    }
    bind(socket, address)
}

/// Whether the interface has no such queue.
fn is_absent(queue: &Result<XdpQueue, XdpRefusal>) -> bool {
    let invalid = Some(Errno::INVAL.raw_os_error());
    matches!(queue, Err(XdpRefusal::System { error, .. }) if error.raw_os_error() == invalid)
}

/// Where a chunk begins.
fn chunk_offset(chunk: u32) -> u64 {
    u64::from(chunk) * CHUNK_LEN as u64
}
