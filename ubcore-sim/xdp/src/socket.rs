//! An `AF_XDP` socket: its memory for frames, its rings, and the program on its interface.

use std::{
    io,
    net::SocketAddrV4,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
    thread,
    time::Duration,
};

use rustix::{
    io::Errno,
    net::{
        AddressFamily, SendFlags, SocketFlags, SocketType, bind, send, socket_with,
        sockopt::{
            set_xdp_rx_ring_size, set_xdp_tx_ring_size, set_xdp_umem_completion_ring_size,
            set_xdp_umem_fill_ring_size, set_xdp_umem_reg, xdp_mmap_offsets, xdp_statistics,
        },
        xdp::{
            SocketAddrXdp, SocketAddrXdpFlags, XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING,
            XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING, XdpDescOptions, XdpRingFlags,
            XdpRingOffset, XdpStatistics, XdpUmemReg, XdpUmemRegFlags,
        },
    },
    thread::{CapabilitySet, capabilities},
};
use urma_mem::{
    OutOfBounds, Region,
    bpf::{attach_xdp, load_xdp, put_socket, socket_map},
};

use crate::program::steer;

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

/// Layout of a ring.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RingLayout {
    /// Where the kernel maps it.
    pub(crate) place: u64,
    /// Where its counters and entries lie.
    pub(crate) offsets: XdpRingOffset,
    /// Entries, a power of two.
    pub(crate) entries: u32,
    /// Bytes of one entry.
    pub(crate) entry_len: usize,
}

/// One side of a ring.
///
/// One side produces, one consumes; each has one counter that it alone stores, and keeps the last value it saw of the
/// other, so that the shared line is touched once a batch. Counters wrap at 2^32, the ring's length is a power of
/// two.
#[derive(Debug)]
struct RingSide {
    region: Region,
    entries: u32,
    entry_len: usize,
    /// Offset of the first entry.
    first: usize,
    /// Offset of the counter that this side stores.
    own_at: usize,
    /// Offset of the other side's.
    other_at: usize,
    flags_at: Option<usize>,
    /// The own counter, which may be ahead of what the other side can see.
    own: u32,
    /// The other side's counter when it was last looked at.
    other: u32,
}

impl RingSide {
    fn map(socket: BorrowedFd<'_>, layout: RingLayout, is_producer: bool) -> io::Result<Self> {
        let RingLayout { place, offsets, entries, entry_len } = layout;
        let at = |offset: u64| usize::try_from(offset).map_err(io::Error::other);
        let (producer, consumer) = (at(offsets.producer)?, at(offsets.consumer)?);
        let (own_at, other_at) =
            if is_producer { (producer, consumer) } else { (consumer, producer) };
        let first = at(offsets.desc)?;
        let flags_at = offsets.flags.map(at).transpose()?;
        let len = first + usize::try_from(entries).unwrap_or(usize::MAX).saturating_mul(entry_len);
        let region = Region::map_ring(socket, place, len)?;
        let own = region.load_u32(own_at).map_err(io::Error::other)?;
        let other = region.load_u32(other_at).map_err(io::Error::other)?;
        Ok(Self { region, entries, entry_len, first, own_at, other_at, flags_at, own, other })
    }

    /// Where the entry behind a counter lies.
    fn entry(&self, counter: u32) -> usize {
        let index = usize::try_from(counter & (self.entries - 1)).unwrap_or(0);
        self.first + index * self.entry_len
    }

    fn look(&mut self) -> Result<(), OutOfBounds> {
        self.other = self.region.load_u32_acquire(self.other_at)?;
        Ok(())
    }

    fn publish(&self) -> Result<(), OutOfBounds> {
        self.region.store_u32_release(self.own_at, self.own)
    }
}

/// The side that puts entries in.
#[derive(Debug)]
pub(crate) struct RingProducer(RingSide);

impl RingProducer {
    pub(crate) fn map(socket: BorrowedFd<'_>, layout: RingLayout) -> io::Result<Self> {
        RingSide::map(socket, layout, true).map(Self)
    }

    /// Whether so many entries have room.
    pub(crate) fn has_room(&mut self, wanted: u32) -> Result<bool, OutOfBounds> {
        let room = |side: &RingSide| side.entries - side.own.wrapping_sub(side.other);
        if room(&self.0) < wanted {
            self.0.look()?;
        }
        Ok(room(&self.0) >= wanted)
    }

    /// Puts an entry of words in, which the other side does not see yet. The caller has asked for room.
    pub(crate) fn put<const WORDS: usize>(
        &mut self,
        entry: [u64; WORDS],
    ) -> Result<(), OutOfBounds> {
        let at = self.0.entry(self.0.own);
        for (index, word) in entry.into_iter().enumerate() {
            self.0.region.store_u64(at + index * 8, word)?;
        }
        self.0.own = self.0.own.wrapping_add(1);
        Ok(())
    }

    /// The other side sees what was put in.
    pub(crate) fn publish(&self) -> Result<(), OutOfBounds> {
        self.0.publish()
    }

    /// Whether the other side has taken everything.
    pub(crate) fn is_empty(&mut self) -> Result<bool, OutOfBounds> {
        self.0.look()?;
        Ok(self.0.own == self.0.other)
    }

    /// Whether the other side sleeps until it is called.
    pub(crate) fn wants_wakeup(&self) -> bool {
        let flags = self.0.flags_at.and_then(|at| self.0.region.load_u32_acquire(at).ok());
        flags.is_none_or(|flags| flags & XdpRingFlags::XDP_RING_NEED_WAKEUP.bits() != 0)
    }
}

/// The side that takes entries out.
#[derive(Debug)]
pub(crate) struct RingConsumer(RingSide);

impl RingConsumer {
    pub(crate) fn map(socket: BorrowedFd<'_>, layout: RingLayout) -> io::Result<Self> {
        RingSide::map(socket, layout, false).map(Self)
    }

    /// Entries that may be taken; looks at the other side when there are no more than `known`.
    pub(crate) fn waiting(&mut self, known: u32) -> Result<u32, OutOfBounds> {
        let count = |side: &RingSide| side.other.wrapping_sub(side.own);
        if count(&self.0) <= known {
            self.0.look()?;
        }
        Ok(count(&self.0))
    }

    /// The entry `ahead` places behind the next one.
    pub(crate) fn entry<const WORDS: usize>(
        &self,
        ahead: u32,
    ) -> Result<[u64; WORDS], OutOfBounds> {
        let at = self.0.entry(self.0.own.wrapping_add(ahead));
        let mut entry = [0; WORDS];
        for (index, word) in entry.iter_mut().enumerate() {
            *word = self.0.region.load_u64(at + index * 8)?;
        }
        Ok(entry)
    }

    /// Gives places of entries back to the other side.
    pub(crate) fn release(&mut self, count: u32) -> Result<(), OutOfBounds> {
        self.0.own = self.0.own.wrapping_add(count);
        self.0.publish()
    }
}
