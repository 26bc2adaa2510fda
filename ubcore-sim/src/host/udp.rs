//! Datagrams: RoCEv2 over an ordinary UDP socket.
//!
//! *Owns*: the socket on the node's address and port 4791, its buffers. *Takes*: packets that the
//! core wants sent. *Gives*: received payloads with their source. *Must not*: wait; look behind the
//! BTH; send a fragment.
//!
//! The socket is unconnected and sets "don't fragment" in the probing mode, so that IPv4 packets
//! carry Identification 0 and the ICRC can be computed without seeing the IP header. Runs of
//! packets of equal size to one destination leave by segmentation offload: the kernel numbers their
//! Identifications from 0 on, so the ICRC of each packet of a run but the first is changed to its
//! number, and back at the receiver that gets a run in one piece.
//!
//! Inside the node, a packet's ICRC is that of Identification 0 and of port 4791 at both ends.

mod renumber;
mod shield;
mod single;

use std::{
    io::{self, IoSliceMut},
    net::{SocketAddr, UdpSocket},
    os::fd::{AsFd, BorrowedFd},
};

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::{IpRecvTos, Ipv4PacketInfo, ReceiveTimestampns};
use quinn_udp::{RecvMeta, UdpSocketState};
use rustix::{io::Errno, net::sockopt};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use udma_abi::{Nanos, RawEid};
use urma_mem::fork::{FdWatch, watch_fd};
use urma_packet::{IcrcFlow, ROCE_PORT, TpOpcode};

use self::renumber::Renumber;
use self::shield::Shield;
use super::link::{DatagramLink, LinkCounts, OnBatch};
use super::{eid_ip, ip_eid, port_owner};
use crate::ports::{Backlog, NodeAddr, RUN_BYTES, RUN_MAX, Route, Transmit};

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
#[derive(Debug)]
pub struct Udp {
    /// Declared before the socket: it must go first.
    _watch: FdWatch,
    socket: UdpSocket,
    state: UdpSocketState,
    address: SocketAddr,
    /// Bytes that the system keeps for this socket, its own overhead included.
    receive_room: usize,
    receive: Box<[u8]>,
    /// Room for what the system says of a datagram.
    control: Vec<u8>,
    /// The last receiving call brought something.
    has_brought: bool,
    run: PacketRun,
    renumber: Renumber,
    shield: Shield,
    counts: LinkCounts,
    /// Where datagrams were too long, and the most bytes that pass.
    too_long: Vec<(RawEid, usize)>,
    /// Where the system does not send.
    cut: Vec<RawEid>,
}

/// Packets of equal size to one destination, waiting to be sent by one call.
#[derive(Debug)]
struct PacketRun {
    buffer: Box<[u8]>,
    to: SocketAddr,
    /// Bytes of each packet but the last.
    size: usize,
    /// Bytes in the buffer.
    len: usize,
    count: usize,
    count_max: usize,
}

/// Datagrams that one call of the system received, with their sources.
#[derive(Debug)]
pub struct Batch<'a> {
    buffers: &'a [u8],
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
            self.buffers = self.buffers.get(DATAGRAM_MAX..).unwrap_or_default();
            self.at = 0;
        }
        Some((meta.addr, datagram))
    }
}

/// Datagrams in one buffer. An empty datagram counts as one: the core counts it, too.
fn datagrams_of(meta: &RecvMeta) -> usize {
    meta.len.div_ceil(meta.stride.max(1)).max(1)
}

impl Udp {
    /// Binds the socket of node `eid`, or of another address of a node.
    ///
    /// # Errors
    /// [`UdpError`].
    pub fn bind(eid: RawEid) -> Result<Self, UdpError> {
        let address = SocketAddr::new(eid_ip(eid), ROCE_PORT);
        Self::open(address).map_err(|error| {
            if error.kind() != io::ErrorKind::AddrInUse {
                return UdpError::Os { address, error };
            }
            let owner = port_owner::udp_owner(address)
                .map_or_else(|| "another process".into(), |pid| format!("process {pid}"));
            UdpError::Taken { address, owner }
        })
    }

    /// Sends what `next` gives (into the buffer it is lent), at most [`SENDS_PER_CALL`] packets, and no more after
    /// 256 KiB.
    /// Returns how many there were.
    pub fn send(&mut self, mut next: impl FnMut(&mut [u8]) -> Option<Transmit>) -> usize {
        let (mut count, mut bytes) = (0, 0);
        while count < SENDS_PER_CALL && bytes < BYTES_PER_CALL {
            if self.run.is_full() {
                self.flush();
            }
            let Some(packets) = next(self.run.room()) else { break };
            count += packets.packets();
            bytes += packets.len;
            let to = SocketAddr::new(eid_ip(packets.to), ROCE_PORT);
            // The system may refuse a probe for its length, and what is sent with it.
            let alone = self.run.buffer[self.run.len] == TpOpcode::Probe.code();
            if alone || !self.run.takes(to, &packets) {
                self.flush_before(packets.len);
            }
            self.run.to = to;
            if packets.source_port != ROCE_PORT {
                // There is one socket, and it sends from this port.
                let _ = IcrcFlow::new(self.address, to).seal(self.run.tail(packets.len));
            }
            self.run.push(&packets);
            if alone || self.run.is_ended() {
                self.flush();
            }
        }
        self.flush();
        count
    }

    /// Calls `on_batch` with the datagrams of each system call, of which it makes at most
    /// [`RECEIVES_PER_CALL`], and none after 256 KiB: what was received is to be acknowledged in time.
    /// Returns how many datagrams were received.
    pub fn receive(&mut self, mut on_batch: impl FnMut(Backlog, &mut Batch<'_>)) -> usize {
        let (mut count, mut bytes) = (0, 0);
        for _ in 0..RECEIVES_PER_CALL {
            let mut metas = [RecvMeta::default(); RECEIVE_BUFFERS];
            // Errors of earlier sends (ICMP) are reported here, too; the TP's timers handle them.
            let Ok(filled) = self.receive_batch(&mut metas) else { break };
            let buffers = self.receive.chunks_exact_mut(DATAGRAM_MAX);
            for (buffer, meta) in buffers.zip(&metas[..filled]).filter(|(_, m)| m.addr.is_ipv4()) {
                let bytes = buffer.get_mut(..meta.len).unwrap_or_default();
                for (id, datagram) in bytes.chunks_mut(meta.stride.max(1)).enumerate() {
                    self.renumber.apply(datagram, id);
                }
            }
            let mut batch = Batch { buffers: &self.receive, metas: &metas[..filled], at: 0 };
            let backlog = if filled < RECEIVE_BUFFERS { Backlog::Empty } else { Backlog::More };
            on_batch(backlog, &mut batch);
            count += metas[..filled].iter().map(datagrams_of).sum::<usize>();
            bytes += metas[..filled].iter().map(|meta| meta.len).sum::<usize>();
            if backlog == Backlog::Empty || bytes >= BYTES_PER_CALL {
                break;
            }
        }
        self.counts.received += count as u64;
        count
    }

    /// Receives with one system call; the number of buffers that are filled.
    ///
    /// Most polls find nothing, and after such a one most find one datagram: a call for one takes half the time.
    fn receive_batch(&mut self, metas: &mut [RecvMeta; RECEIVE_BUFFERS]) -> io::Result<usize> {
        let has_brought = std::mem::take(&mut self.has_brought);
        let mut buffers = self.receive.chunks_exact_mut(DATAGRAM_MAX);
        let filled = if has_brought {
            let mut parts: [IoSliceMut<'_>; RECEIVE_BUFFERS] =
                std::array::from_fn(|_| IoSliceMut::new(buffers.next().unwrap_or_default()));
            self.state.recv((&self.socket).into(), &mut parts, metas)?
        } else {
            let buffer = buffers.next().unwrap_or_default();
            single::receive(&self.socket, (buffer, &mut self.control), &mut metas[0])?;
            1
        };
        self.has_brought = true;
        Ok(filled)
    }

    /// Keeps floods from the socket. `dropped`: packets that the device dropped so far; `tpns`:
    /// TPNs of its living TPs. Returns when to call again at the latest.
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

    /// Packets with `mtu` bytes of payload that the system keeps until they are received; more are
    /// lost. A window beyond it makes losses of its own.
    #[must_use]
    pub fn packets_kept(&self, mtu: u32) -> usize {
        // The system counts whole buffers: headers, bookkeeping, and the payload rounded up.
        let cost = (usize::try_from(mtu).unwrap_or(DATAGRAM_MAX) + PACKET_OVERHEAD) * 2;
        self.receive_room / cost
    }

    /// What it did so far.
    #[must_use]
    pub fn counts(&self) -> LinkCounts {
        self.counts
    }

    fn open(address: SocketAddr) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
        // What the system allows at most is taken; less than asked for is no error.
        if sockopt::set_socket_recv_buffer_size_force(&socket, SOCKET_BUFFER).is_err() {
            let _ = socket.set_recv_buffer_size(SOCKET_BUFFER);
        }
        let _ = socket.set_send_buffer_size(SOCKET_BUFFER);
        socket.bind(&address.into())?;
        let receive_room = socket.recv_buffer_size().unwrap_or(0);
        let socket = UdpSocket::from(socket);
        let state = UdpSocketState::new((&socket).into())?;
        receive_without_extras(&socket);
        let count_max = state.max_gso_segments().clamp(1, RUN_MAX);
        Ok(Self {
            _watch: watch_fd(socket.as_fd())?,
            socket,
            state,
            address,
            receive_room,
            receive: vec![0; RECEIVE_BUFFERS * DATAGRAM_MAX].into(),
            control: single::control(),
            has_brought: false,
            run: PacketRun::new(address, count_max),
            renumber: Renumber::default(),
            shield: Shield::default(),
            counts: LinkCounts::default(),
            too_long: Vec::new(),
            cut: Vec::new(),
        })
    }

    /// Sends the run, then moves the packet of `len` bytes behind it to the front.
    fn flush_before(&mut self, len: usize) {
        let at = self.run.len;
        self.flush();
        self.run.buffer.copy_within(at..at + len, 0);
    }

    fn flush(&mut self) {
        let run = &mut self.run;
        if run.count == 0 {
            return;
        }
        let size = run.size.max(1);
        for part in run.buffer[..run.len].chunks_mut(run.count_max * size) {
            if run.to.is_ipv4() {
                self.renumber.number(part, size);
            }
            let packets = part.len().div_ceil(size) as u64;
            self.counts.send_calls += 1;
            let sent = match packets {
                1 => single::send(&self.socket, part, run.to),
                _ => {
                    let transmit = quinn_udp::Transmit {
                        destination: run.to,
                        ecn: None,
                        contents: part,
                        segment_size: Some(size),
                        src_ip: None,
                    };
                    self.state.try_send((&self.socket).into(), &transmit)
                }
            };
            match sent {
                Ok(()) => self.counts.sent += packets,
                // A lost datagram is what the transport above is made for.
                Err(error) => {
                    tracing::debug!(to = %run.to, %error, packets, "datagrams were not sent");
                    self.counts.send_dropped += packets;
                    note_refused((&mut self.too_long, &mut self.cut), self.address, run.to, &error);
                }
            }
        }
        run.len = 0;
        run.count = 0;
        run.size = 0;
        // The driver or interface may have turned out not to offload.
        run.count_max = self.state.max_gso_segments().clamp(1, RUN_MAX);
    }
}

/// Notes why the system did not take a datagram to `to`, if that is the length or the route.
fn note_refused(
    (too_long, cut): (&mut Vec<(RawEid, usize)>, &mut Vec<RawEid>),
    from: SocketAddr,
    to: SocketAddr,
    error: &io::Error,
) {
    match Errno::from_io_error(error) {
        // Some kernels report a run of packets that are too long as an invalid argument.
        Some(Errno::MSGSIZE | Errno::INVAL) => note_too_long(too_long, from, to),
        Some(Errno::NETUNREACH | Errno::HOSTUNREACH | Errno::NETDOWN) => {
            let to = ip_eid(to.ip());
            if cut.len() < CUT_MAX && !cut.contains(&to) {
                cut.push(to);
            }
        }
        _ => {}
    }
}

/// Asks the system for the MTU to `to`, by a socket that sends nothing.
fn note_too_long(noted: &mut Vec<(RawEid, usize)>, from: SocketAddr, to: SocketAddr) {
    let ask = || -> io::Result<u32> {
        let socket = UdpSocket::bind((from.ip(), 0))?;
        socket.connect(to)?;
        let mtu = if to.is_ipv4() { sockopt::ip_mtu } else { sockopt::ipv6_mtu };
        Ok(mtu(&socket)?)
    };
    let to = ip_eid(to.ip());
    let is_new = noted.len() < TOO_LONG_MAX && !noted.iter().any(|(eid, _)| *eid == to);
    if is_new && let Ok(Ok(ip_mtu)) = ask().map(usize::try_from) {
        noted.push((to, ip_mtu));
    }
}

/// Switches off what the system adds to each datagram besides source and size, which costs time:
/// destination, congestion mark, time of arrival.
fn receive_without_extras(socket: &UdpSocket) {
    // What cannot be switched off is read past.
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
        self.too_long.pop()
    }

    fn poll_cut(&mut self) -> Option<Route> {
        self.cut.pop().map(Route::direct)
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

impl PacketRun {
    fn new(to: SocketAddr, count_max: usize) -> Self {
        let buffer = vec![0; RUN_BYTES + DATAGRAM_MAX].into();
        Self { buffer, to, size: 0, len: 0, count: 0, count_max }
    }

    /// Where the next packets are written: a run of them only if there is none yet.
    fn room(&mut self) -> &mut [u8] {
        let most = if self.count == 0 { DATAGRAM_MAX } else { PACKET_MAX };
        &mut self.buffer[self.len..self.len + most]
    }

    /// Whether packets to `to` may join.
    fn takes(&self, to: SocketAddr, packets: &Transmit) -> bool {
        let Transmit { len, .. } = *packets;
        self.count == 0 || (self.to == to && len <= self.size && self.len + len <= RUN_BYTES)
    }

    fn push(&mut self, packets: &Transmit) {
        if self.count == 0 {
            self.size = packets.size;
        }
        self.len += packets.len;
        self.count += packets.packets();
    }

    /// The packet that was written behind the run.
    fn tail(&mut self, len: usize) -> &mut [u8] {
        &mut self.buffer[self.len..self.len + len]
    }

    /// No packet of any size may follow.
    fn is_ended(&self) -> bool {
        self.len != self.size * self.count
    }

    fn is_full(&self) -> bool {
        self.count >= self.count_max || self.len + self.size > RUN_BYTES
    }
}

/// Packets sent before looking at other things again.
pub const SENDS_PER_CALL: usize = 256;
/// Batches received before looking at other things again.
pub const RECEIVES_PER_CALL: usize = 4;
/// Bytes sent, or received, after which other things are looked at again.
pub(super) const BYTES_PER_CALL: usize = 256 << 10;
/// Longest datagram, also a coalesced one.
pub(super) const DATAGRAM_MAX: usize = 1 << 16;
/// Room for a packet that may join a run.
const PACKET_MAX: usize = 16 << 10;
/// Buffers of one receive call.
const RECEIVE_BUFFERS: usize = 8;
/// Bytes of headers and bookkeeping that the system counts for a packet.
const PACKET_OVERHEAD: usize = 512;
/// Bytes asked for as socket buffers: a window of packets of many peers.
const SOCKET_BUFFER: usize = 8 << 20;
/// Destinations that cannot be sent to, noted in one call.
const CUT_MAX: usize = 64;
/// Destinations whose MTU is asked for in one call.
const TOO_LONG_MAX: usize = 64;

#[cfg(test)]
mod tests;
