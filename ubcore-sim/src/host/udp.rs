//! Datagrams: RoCEv2 over an ordinary UDP socket on the node's address and port 4791.
//!
//! Inside of the node, a packet's ICRC is that for port 4791 at both ends and Identification 0; if a receiver gets
//! other pieces than the sender made, for one up to [`RUN_ID_MAX`](crate::ports::RUN_ID_MAX). Must not wait, look
//! behind the BTH, or send a fragment.

pub mod address;
pub(crate) mod port_links;
pub(crate) mod port_owner;
mod runs;
mod shield;

use std::{
    io::{self, IoSlice, IoSliceMut},
    net::{SocketAddr, UdpSocket},
    os::fd::{AsFd, AsRawFd, BorrowedFd},
};

use nix::sys::socket::sockopt::{IpRecvTos, Ipv4PacketInfo, ReceiveTimestampns, UdpGroSegment};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt};
use quinn_udp::{BATCH_SIZE, RecvMeta, UdpSocketState};
use rustix::{
    io::Errno,
    net::{MMsgHdr, SendAncillaryBuffer, SendFlags, sendmmsg, sendto, sockopt},
};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use udma_abi::{Nanos, RawEid};
use urma_mem::fork::{FdWatch, watch_fd};
use urma_packet::{IcrcFlow, ROCE_PORT, Renumber, TpOpcode};

use self::runs::{Company, PacketRun, PacketRuns};
use self::shield::Shield;
use super::eid_ip;
use super::link::{DatagramLink, LinkCounts, OnBatch};
use crate::ports::{Backlog, NodeAddr, RUN_MAX, Route, Transmit};
use runs::SendResults;

const _: () = assert!(RUN_MAX - 1 <= Renumber::ID_MAX);

/// Whether the kernel cuts runs of packets that are sent by one call, and joins received ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum UdpOffload {
    /// If it supports that (GSO, GRO).
    #[default]
    On,
    /// No: each packet is its own datagram. One call sends or receives many.
    Off,
}

/// Why a node cannot exchange datagrams.
#[derive(Debug, thiserror::Error)]
pub enum UdpError {
    /// The port is in use.
    #[error("UDP {address} belongs to {owner}; packets cannot be exchanged until it lets go")]
    Taken {
        /// Local address that was to be bound.
        address: SocketAddr,
        /// "process 123" or "another process".
        owner: String,
    },
    /// The operating system refused.
    #[error("the operating system refused UDP {address}: {error}")]
    Os {
        /// Local address that was to be bound.
        address: SocketAddr,
        /// Error of the system call.
        error: io::Error,
    },
}

/// The node's UDP socket.
///
/// The socket is unconnected and sets "don't fragment" in the probing mode, so that IPv4 packets have Identification
/// 0 and the ICRC can be computed without seeing the IP header. Runs of packets of equal size to one destination are
/// sent by segmentation offload. The kernel then numbers their Identifications from 0 on, so the ICRC of each packet
/// of a run except the first is changed to match, and changed back at the receiver that gets a run in one piece. All
/// other packets are sent by `sendmmsg` with Identification 0, and so are runs if the kernel does not cut them.
#[derive(Debug)]
pub struct Udp {
    /// Declared before the socket, to be dropped first.
    _watch: FdWatch,
    socket: UdpSocket,
    state: UdpSocketState,
    address: SocketAddr,
    /// Size in bytes of the socket's receive buffer, including the system's overhead.
    receive_room: usize,
    receive: ReceiveBuffers,
    /// Room for the system's control messages about a datagram.
    control: Vec<u8>,
    /// Whether the last receiving call brought something.
    has_brought: bool,
    runs: PacketRuns,
    /// Most packets that the kernel cuts a run into; 1: it cuts none.
    cut_max: usize,
    renumber: Renumber,
    shield: Shield,
    results: SendResults,
    received: u64,
}

/// Buffers for one receiving call.
#[derive(Debug)]
struct ReceiveBuffers {
    bytes: Box<[u8]>,
    /// Number of bytes in each buffer.
    size: usize,
    metas: Box<[RecvMeta]>,
}

/// Datagrams that one system call received, with their sources.
#[derive(Debug)]
pub struct Batch<'a> {
    buffers: &'a [u8],
    /// Size of each buffer in bytes.
    size: usize,
    metas: &'a [RecvMeta],
    /// Bytes of the first buffer that were returned already.
    at: usize,
}

impl<'a> Iterator for Batch<'a> {
    type Item = (SocketAddr, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let meta = self.metas.first()?;
        let bytes = self.buffers.get(..meta.len).unwrap_or_default();
        let end = bytes.len().min(self.at + meta.stride.max(1));
        let datagram = &bytes[self.at..end];
        self.at = end;
        if end == bytes.len() {
            self.metas = &self.metas[1..];
            self.buffers = self.buffers.get(self.size..).unwrap_or_default();
            self.at = 0;
        }
        Some((meta.addr, datagram))
    }
}

/// Number of datagrams in one buffer. An empty datagram counts as one: the core counts it, too.
fn datagrams_of(meta: &RecvMeta) -> usize {
    meta.len.div_ceil(meta.stride.max(1)).max(1)
}

impl Udp {
    /// Binds the socket of node `eid`, or of another address of a node.
    ///
    /// # Errors
    /// [`UdpError`].
    pub fn bind(eid: RawEid, offload: UdpOffload) -> Result<Self, UdpError> {
        let address = SocketAddr::new(eid_ip(eid), ROCE_PORT);
        Self::open(address, offload).map_err(|error| {
            if error.kind() != io::ErrorKind::AddrInUse {
                return UdpError::Os { address, error };
            }
            let owner = port_owner::udp_owner(address)
                .map_or_else(|| "another process".into(), |pid| format!("process {pid}"));
            UdpError::Taken { address, owner }
        })
    }

    /// Sends what `next` gives (into the buffer that it gets), at most [`SENDS_PER_CALL`] packets, and no more after
    /// 256 KiB. Returns how many packets there were.
    pub fn send(&mut self, mut next: impl FnMut(&mut [u8]) -> Option<Transmit>) -> usize {
        let (mut count, mut bytes) = (0, 0);
        while count < SENDS_PER_CALL && bytes < BYTES_PER_CALL {
            if self.runs.is_full() {
                self.flush();
            }
            let room = self.runs.room();
            let Some(packets) = next(room) else { break };
            count += packets.packets();
            bytes += packets.len;
            let to = SocketAddr::new(eid_ip(packets.to), ROCE_PORT);
            let is_probe = room[0] == TpOpcode::Probe.code();
            if packets.source_port != ROCE_PORT {
                // There is one socket, and it sends from this port.
                let _ = IcrcFlow::new(self.address, to).seal(&mut room[..packets.len]);
            }
            self.runs.push(to, &packets, if is_probe { Company::Alone } else { Company::Any });
        }
        self.flush();
        count
    }

    /// Calls `on_batch` with the datagrams of each system call, of which it makes at most [`RECEIVES_PER_CALL`], and
    /// none after 256 KiB: what was received has to be acknowledged in time. Returns how many datagrams were
    /// received.
    pub fn receive(&mut self, mut on_batch: impl FnMut(Backlog, &mut Batch<'_>)) -> usize {
        let (mut count, mut bytes) = (0, 0);
        for _ in 0..RECEIVES_PER_CALL {
            // Errors of earlier sends (ICMP) are reported here, too; the TP's timers handle them.
            let Ok(filled) = self.receive_batch() else { break };
            let ReceiveBuffers { bytes: buffers, size, metas } = &mut self.receive;
            let (size, most) = (*size, metas.len());
            let metas = &metas[..filled];
            let to_number = buffers.chunks_exact_mut(size).zip(metas);
            for (buffer, meta) in to_number.filter(|(_, meta)| meta.addr.is_ipv4()) {
                let bytes = buffer.get_mut(..meta.len).unwrap_or_default();
                for (id, datagram) in bytes.chunks_mut(meta.stride.max(1)).enumerate() {
                    self.renumber.apply(datagram, id);
                }
            }
            let mut batch = Batch { buffers, size, metas, at: 0 };
            let backlog = if filled < most { Backlog::Empty } else { Backlog::More };
            on_batch(backlog, &mut batch);
            count += metas.iter().map(datagrams_of).sum::<usize>();
            bytes += metas.iter().map(|meta| meta.len).sum::<usize>();
            if backlog == Backlog::Empty || bytes >= BYTES_PER_CALL {
                break;
            }
        }
        self.received += count as u64;
        count
    }

    /// Receives with one system call; returns the number of filled buffers.
    ///
    /// Most polls find nothing, and after such a poll most find one datagram: a call for one takes half the time.
    fn receive_batch(&mut self) -> io::Result<usize> {
        let has_brought = std::mem::take(&mut self.has_brought);
        let ReceiveBuffers { bytes, size, metas } = &mut self.receive;
        let mut buffers = bytes.chunks_exact_mut(*size);
        let filled = if has_brought {
            let mut parts: [IoSliceMut<'_>; BATCH_SIZE] =
                std::array::from_fn(|_| IoSliceMut::new(buffers.next().unwrap_or_default()));
            self.state.recv((&self.socket).into(), &mut parts[..metas.len()], metas)?
        } else {
            let buffer = buffers.next().unwrap_or_default();
            receive_one(&self.socket, (buffer, &mut self.control), &mut metas[0])?;
            1
        };
        self.has_brought = true;
        Ok(filled)
    }

    /// Protects the socket from floods. `dropped`: packets that the device dropped so far; `tpns`: TPNs of its living
    /// TPs. Returns when to call again at the latest.
    pub fn shield(
        &mut self,
        now: Nanos,
        dropped: u64,
        tpns: impl FnOnce() -> Vec<u32>,
    ) -> Option<Nanos> {
        self.shield.update(SockRef::from(&self.socket), now, dropped, tpns);
        self.shield.deadline()
    }

    /// Returns the address and port that the socket is bound to.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Number of packets with `mtu` bytes of payload that the system stores until they are received; more are lost. A
    /// larger window makes its own losses.
    #[must_use]
    pub fn packets_kept(&self, mtu: u32) -> usize {
        // The system counts whole buffers: headers, bookkeeping, and the rounded payload.
        let cost = (usize::try_from(mtu).unwrap_or(DATAGRAM_MAX) + PACKET_OVERHEAD) * 2;
        self.receive_room / cost
    }

    /// Counts of what it did so far.
    #[must_use]
    pub fn counts(&self) -> LinkCounts {
        let SendResults { sent, dropped, calls, .. } = self.results;
        LinkCounts { sent, send_dropped: dropped, received: self.received, send_calls: calls }
    }

    fn open(address: SocketAddr, offload: UdpOffload) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
        // The system's maximum is taken; less than requested is no error.
        if sockopt::set_socket_recv_buffer_size_force(&socket, SOCKET_BUFFER).is_err() {
            let _ = socket.set_recv_buffer_size(SOCKET_BUFFER);
        }
        let _ = socket.set_send_buffer_size(SOCKET_BUFFER);
        socket.bind(&address.into())?;
        let receive_room = socket.recv_buffer_size().unwrap_or(0);
        let socket = UdpSocket::from(socket);
        let state = UdpSocketState::new((&socket).into())?;
        receive_without_extras(&socket);
        let is_joined = offload == UdpOffload::On && state.gro_segments() > 1;
        if !is_joined {
            // A kernel that does not know the option does not join either.
            let _ = setsockopt(&socket, UdpGroSegment, &false);
        }
        let cut_max = match offload {
            UdpOffload::On => state.max_gso_segments().clamp(1, RUN_MAX),
            UdpOffload::Off => 1,
        };
        Ok(Self {
            _watch: watch_fd(socket.as_fd())?,
            socket,
            state,
            address,
            receive_room,
            receive: ReceiveBuffers::new(if is_joined { DATAGRAM_MAX } else { PACKET_MAX }),
            control: vec![0; CONTROL_MAX],
            has_brought: false,
            runs: PacketRuns::new(),
            cut_max,
            renumber: Renumber::default(),
            shield: Shield::default(),
            results: SendResults::new(address),
            received: 0,
        })
    }

    /// Sends everything that waits, in the order in which it was written.
    fn flush(&mut self) {
        let Self { socket, state, runs, cut_max, renumber, results, .. } = self;
        let (waiting, mut bytes) = runs.parts();
        let Some(first) = waiting.first() else { return };
        let mut batch = PacketBatch::new(first);
        for run in waiting {
            let of_run = bytes.split_off_mut(..run.len).unwrap_or_default();
            for part in of_run.chunks_mut(*cut_max * run.size) {
                let is_cut = part.len() > run.size;
                if is_cut {
                    batch.send(socket, results);
                    if send_run((socket, state, renumber), (run, part), results) {
                        continue;
                    }
                }
                let long_before = results.dropped_long;
                for packet in part.chunks(run.size) {
                    batch.push(socket, (packet, run), results);
                }
                if is_cut {
                    batch.send(socket, results);
                    // Some kernels report a run of packets that are too long as an invalid argument.
                    if results.dropped_long == long_before {
                        tracing::info!(
                            "the kernel cuts no runs of packets: they are sent by sendmmsg"
                        );
                        *cut_max = 1;
                    }
                }
            }
        }
        batch.send(socket, results);
        runs.clear();
    }
}

/// Sends several packets of one size by one call. `false`: the kernel does not cut them, and none was sent.
fn send_run(
    (socket, state, renumber): (&UdpSocket, &UdpSocketState, &mut Renumber),
    (run, packets): (&PacketRun, &mut [u8]),
    results: &mut SendResults,
) -> bool {
    let mut number = |packets: &mut [u8]| {
        if run.to.is_ipv4() {
            renumber.number(packets, run.size);
        }
    };
    number(packets);
    let transmit = quinn_udp::Transmit {
        destination: run.to,
        ecn: None,
        contents: packets,
        segment_size: Some(run.size),
        src_ip: None,
    };
    let count = packets.len().div_ceil(run.size);
    let sent = state.try_send(socket.into(), &transmit);
    if let Err(error) = &sent
        && matches!(Errno::from_io_error(error), Some(Errno::IO | Errno::INVAL))
    {
        // Back to Identification 0.
        number(packets);
        return false;
    }
    results.note(run.to, count, sent.as_ref().map(|()| count));
    true
}

/// Packets that the next call sends, at most [`BATCH_MAX`].
#[derive(Debug)]
struct PacketBatch<'a> {
    packets: [(&'a [u8], &'a PacketRun); BATCH_MAX],
    len: usize,
}

impl<'a> PacketBatch<'a> {
    /// Creates an empty batch; `any` is a run of those that will come.
    fn new(any: &'a PacketRun) -> Self {
        Self { packets: [(&[], any); BATCH_MAX], len: 0 }
    }

    /// Adds a packet of a run, and sends if there is no room for another one.
    fn push(
        &mut self,
        socket: &UdpSocket,
        packet: (&'a [u8], &'a PacketRun),
        results: &mut SendResults,
    ) {
        self.packets[self.len] = packet;
        self.len += 1;
        if self.len == BATCH_MAX {
            self.send(socket, results);
        }
    }

    /// Sends all packets that were added, in their order. The system stops at a packet that it refuses: that is left out,
    /// and the next call starts after it.
    fn send(&mut self, socket: &UdpSocket, results: &mut SendResults) {
        let mut waiting = &self.packets[..std::mem::take(&mut self.len)];
        while let Some((bytes, run)) = waiting.first() {
            let sent = match waiting.len() {
                1 => send_one(socket, bytes, run.to).map(|()| 1),
                _ => send_many(socket, waiting),
            };
            results.note(run.to, 1, sent.as_ref().copied());
            waiting = waiting.get(sent.unwrap_or(1).max(1)..).unwrap_or_default();
        }
    }
}

/// Sends packets up to the first one that the system refuses; returns their number, or its error if that is the
/// first.
fn send_many(socket: &UdpSocket, packets: &[(&[u8], &PacketRun)]) -> io::Result<usize> {
    let Some(first) = packets.first() else { return Ok(0) };
    let packet = |at| packets.get(at).unwrap_or(first);
    let parts: [_; BATCH_MAX] = std::array::from_fn(|at| [IoSlice::new(packet(at).0)]);
    let mut nothing: [_; BATCH_MAX] = std::array::from_fn(|_| SendAncillaryBuffer::default());
    let mut next = 0..;
    let mut messages = nothing.each_mut().map(|nothing| {
        let at = next.next().unwrap_or(0);
        MMsgHdr::new_with_addr(&packet(at).1.name, &parts[at], nothing)
    });
    Ok(sendmmsg(socket, &mut messages[..packets.len().min(BATCH_MAX)], SendFlags::empty())?)
}

/// Sends a datagram: the set-up of a call for many costs as much as the system call itself if there is one datagram, or
/// none.
fn send_one(socket: &UdpSocket, datagram: &[u8], to: SocketAddr) -> io::Result<()> {
    sendto(socket, datagram, SendFlags::empty(), &to)?;
    Ok(())
}

/// Receives a datagram, or a run of them that the kernel joined; stores its source, length and size in `meta`.
fn receive_one(
    socket: &UdpSocket,
    (buffer, control): (&mut [u8], &mut [u8]),
    meta: &mut RecvMeta,
) -> io::Result<()> {
    let mut parts = [IoSliceMut::new(buffer)];
    let fd = socket.as_raw_fd();
    let flags = MsgFlags::MSG_DONTWAIT;
    let got = recvmsg::<SockaddrStorage>(fd, &mut parts, Some(control), flags)?;
    let sizes = got.cmsgs()?.find_map(|message| {
        let ControlMessageOwned::UdpGroSegments(size) = message else { return None };
        usize::try_from(size).ok()
    });
    meta.addr = got.address.as_ref().and_then(address_of).ok_or(io::ErrorKind::AddrNotAvailable)?;
    meta.len = got.bytes;
    meta.stride = sizes.filter(|size| *size != 0).unwrap_or(got.bytes);
    Ok(())
}

fn address_of(from: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = from.as_sockaddr_in().map(|v4| SocketAddr::from((v4.ip(), v4.port())));
    v4.or_else(|| from.as_sockaddr_in6().map(|v6| (v6.ip(), v6.port()).into()))
}

/// Disables what the system adds to each datagram besides source and size, which costs time: destination, congestion
/// mark, time of arrival.
fn receive_without_extras(socket: &UdpSocket) {
    // What cannot be disabled is skipped.
    let _ = setsockopt(socket, Ipv4PacketInfo, &false);
    let _ = setsockopt(socket, IpRecvTos, &false);
    let _ = setsockopt(socket, ReceiveTimestampns, &false);
}

impl DatagramLink for Udp {
    fn send(&mut self, next: &mut dyn FnMut(&mut [u8]) -> Option<Transmit>) -> usize {
        Self::send(self, next)
    }

    fn receive(&mut self, on_batch: &mut OnBatch<'_>) -> usize {
        Self::receive(self, |backlog, batch| on_batch(0, backlog, batch))
    }

    fn shield(&mut self, now: Nanos, dropped: u64, tpns: &dyn Fn() -> Vec<u32>) -> Option<Nanos> {
        Self::shield(self, now, dropped, tpns)
    }

    fn packets_kept(&self, mtu: u32) -> usize {
        Self::packets_kept(self, mtu)
    }

    fn poll_too_long(&mut self) -> Option<(NodeAddr, usize)> {
        self.results.too_long.pop()
    }

    fn poll_cut(&mut self) -> Option<Route> {
        self.results.cut.pop().map(Route::direct)
    }

    fn counts(&self) -> LinkCounts {
        Self::counts(self)
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.as_fd()
    }
}

impl AsFd for Udp {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl ReceiveBuffers {
    /// Buffers of `size` bytes each.
    fn new(size: usize) -> Self {
        let count = (RECEIVE_BYTES / size).min(BATCH_SIZE);
        let metas = vec![RecvMeta::default(); count].into();
        Self { bytes: vec![0; count * size].into(), size, metas }
    }
}

/// Most packets of one call, the same number as for receiving. The kernel takes 2 us and more for each packet, so the
/// cost of a call is not measurable at this size.
const BATCH_MAX: usize = 32;
/// Room in bytes for the size of joined datagrams, and for what a system adds to those of IPv6: destination, traffic class.
/// If the room is too small, the call fails and its datagram is lost.
const CONTROL_MAX: usize = 256;
/// Packets sent before other work is done.
pub const SENDS_PER_CALL: usize = 256;
/// Batches received before other work is done.
pub const RECEIVES_PER_CALL: usize = 4;
/// Bytes sent, or received, before other work is done.
pub(super) const BYTES_PER_CALL: usize = 256 << 10;
/// Longest datagram in bytes, also a joined one.
pub(super) const DATAGRAM_MAX: usize = 1 << 16;
/// Longest packet that is received without offload, in bytes.
const PACKET_MAX: usize = 16 << 10;
/// Size in bytes of all buffers of a receiving call.
const RECEIVE_BYTES: usize = 512 << 10;
/// Bytes of headers and bookkeeping that the system counts for a packet.
const PACKET_OVERHEAD: usize = 512;
/// Requested socket buffer in bytes: a window of packets of many peers.
const SOCKET_BUFFER: usize = 8 << 20;
#[cfg(test)]
mod tests;
