//! A UDP socket for RoCEv2: runs of packets to one station leave by one call of the system, many arrive by one.
//!
//! The socket sets "don't fragment", so that IPv4 packets carry Identification 0, which the ICRC covers. Segmentation
//! offload numbers the packets of a run from 0 on, and their ICRCs are changed to fit.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;

use inc::port::PortDatagram;
use quinn_udp::{BATCH_SIZE, RecvMeta, Transmit, UdpSocketState};
use rustix::net::{SendFlags, sendto, sockopt};
use socket2::{Domain, Protocol, Socket, Type};
use urma_packet::Renumber;

/// Bytes that the system is asked to keep in either direction.
const SOCKET_BUFFER: usize = 8 << 20;
/// Bytes of a UDP payload at most; a run that is sent or received by one call is no longer.
const DATAGRAM_MAX: usize = 65_507;
/// Packets of a run at most: as many as Linux cuts.
pub(crate) const RUN_MAX: usize = 64;
/// Longest packet: 4096 bytes, headers and ICRC.
pub(crate) const PACKET_MAX: usize = 4096 + 128;

/// What a socket did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UdpCounts {
    /// Datagrams that were sent.
    pub sent: u64,
    /// Datagrams that the system refused: a full queue, no route, or longer than the link takes.
    pub refused: u64,
    /// Calls of the system that sent them.
    pub send_calls: u64,
    /// Datagrams that were received.
    pub received: u64,
    /// Bytes of UDP payload that were sent.
    pub sent_bytes: u64,
    /// Bytes of UDP payload that were received.
    pub received_bytes: u64,
    /// Datagrams that came while the station's queue of a shared port was full, or no chunk of `AF_XDP` was free.
    pub dropped: u64,
}

/// A socket on one address.
#[derive(Debug)]
pub struct UdpPort {
    socket: Arc<UdpSocket>,
    state: UdpSocketState,
    address: SocketAddr,
    receive: Box<[u8]>,
    metas: Box<[RecvMeta]>,
    /// Buffers of the next receiving call: one after a call that found nothing, which takes less time.
    buffers: usize,
    send: Box<[u8]>,
    renumber: Renumber,
    counts: UdpCounts,
    was_too_long: bool,
}

impl UdpPort {
    /// Binds a socket. Port 0 means any.
    ///
    /// # Errors
    /// Those of the system: the address is another process's or no address of this machine.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
        // What the system allows at most is taken; less than asked for is no error.
        if sockopt::set_socket_recv_buffer_size_force(&socket, SOCKET_BUFFER).is_err() {
            let _ = socket.set_recv_buffer_size(SOCKET_BUFFER);
        }
        let _ = socket.set_send_buffer_size(SOCKET_BUFFER);
        socket.bind(&address.into())?;
        let socket = Arc::new(UdpSocket::from(socket));
        let state = UdpSocketState::new((&*socket).into())?;
        let address = socket.local_addr()?;
        Ok(Self {
            socket,
            state,
            address,
            receive: vec![0; BATCH_SIZE * (DATAGRAM_MAX + 1)].into(),
            metas: vec![RecvMeta::default(); BATCH_SIZE].into(),
            buffers: 1,
            send: vec![0; DATAGRAM_MAX + PACKET_MAX].into(),
            renumber: Renumber::default(),
            counts: UdpCounts::default(),
            was_too_long: false,
        })
    }

    /// Address and port that the socket is bound to.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The socket, for one who waits for datagrams.
    pub(crate) fn socket(&self) -> Arc<UdpSocket> {
        Arc::clone(&self.socket)
    }

    /// What the socket did so far.
    #[must_use]
    pub fn counts(&self) -> UdpCounts {
        self.counts
    }

    /// Gives the datagrams of one receiving call to `take`, with their sources; whether there were any.
    pub fn receive(&mut self, mut take: impl FnMut(SocketAddr, &[u8])) -> bool {
        let mut buffers = self.receive.chunks_exact_mut(DATAGRAM_MAX + 1);
        let mut parts: [IoSliceMut<'_>; BATCH_SIZE] =
            std::array::from_fn(|_| IoSliceMut::new(buffers.next().unwrap_or_default()));
        let parts = &mut parts[..self.buffers];
        let metas = &mut self.metas[..self.buffers];
        // Errors of earlier sends arrive here, too; the edges' timers handle them.
        let Ok(filled) = self.state.recv((&*self.socket).into(), parts, metas) else {
            self.buffers = 1;
            return false;
        };
        self.buffers = BATCH_SIZE;
        for (part, meta) in parts.iter_mut().zip(&*metas).take(filled) {
            let bytes = part.get_mut(..meta.len).unwrap_or_default();
            for (id, datagram) in bytes.chunks_mut(meta.stride.max(1)).enumerate() {
                if id != 0 && meta.addr.is_ipv4() {
                    self.renumber.apply(datagram, id);
                }
                self.counts.received += 1;
                self.counts.received_bytes += datagram.len() as u64;
                take(meta.addr, datagram);
            }
        }
        true
    }

    /// Sends the datagrams that `next` writes into the buffer it is lent, until there are none or a run's length is
    /// reached; whether there were any.
    pub fn send(&mut self, mut next: impl FnMut(&mut [u8]) -> Option<PortDatagram>) -> bool {
        let (mut len, mut size, mut count) = (0, 0, 0);
        let mut to = None;
        let mut is_any = false;
        while let Some(datagram) = next(&mut self.send[len..len + PACKET_MAX]) {
            is_any = true;
            let joins = to == Some(datagram.dest)
                && datagram.len <= size
                && count < RUN_MAX
                && len + datagram.len <= DATAGRAM_MAX;
            if !joins {
                if let Some(to) = to {
                    self.send_run(to, len, size);
                }
                // What was just written begins a run.
                self.send.copy_within(len..len + datagram.len, 0);
                (len, size, count) = (0, datagram.len, 0);
                to = Some(datagram.dest);
            }
            len += datagram.len;
            count += 1;
            if datagram.len < size || len + size > DATAGRAM_MAX || count == RUN_MAX {
                // A shorter packet ends a run.
                self.send_run(datagram.dest, len, size);
                (len, size, count, to) = (0, 0, 0, None);
            }
        }
        if let Some(to) = to {
            self.send_run(to, len, size);
        }
        is_any
    }

    /// Sends packets of `size` bytes each but the last.
    fn send_run(&mut self, to: SocketAddr, len: usize, size: usize) {
        let run = &mut self.send[..len];
        let count = len.div_ceil(size.max(1)) as u64;
        let cut_max = self.state.max_gso_segments();
        let mut sent = 0;
        if count > 1 && usize::try_from(count).is_ok_and(|count| count <= cut_max) {
            if to.is_ipv4() {
                self.renumber.number(run, size);
            }
            let transmit = Transmit {
                destination: to,
                ecn: None,
                contents: run,
                segment_size: Some(size),
                src_ip: None,
            };
            self.counts.send_calls += 1;
            match self.state.try_send((&*self.socket).into(), &transmit) {
                Ok(()) => sent = count,
                // The link cuts no runs: one by one.
                Err(_) if to.is_ipv4() => self.renumber.number(&mut self.send[..len], size),
                Err(_) => {}
            }
        }
        if sent == 0 {
            for packet in self.send[..len].chunks(size.max(1)) {
                self.counts.send_calls += 1;
                match sendto(&*self.socket, packet, SendFlags::DONTWAIT, &to) {
                    Ok(_) => sent += 1,
                    Err(rustix::io::Errno::MSGSIZE) if !self.was_too_long => {
                        self.was_too_long = true;
                        let (len, from) = (packet.len(), self.address);
                        tracing::warn!(
                            %from, %to, len,
                            "a packet is longer than the link takes: the communicator needs a smaller path MTU"
                        );
                    }
                    Err(_) => {}
                }
            }
        }
        self.counts.sent += sent;
        self.counts.refused += count - sent;
        self.counts.sent_bytes += len as u64;
    }
}

/// The address of this machine from which another one is reached. Nothing is sent.
///
/// # Errors
/// Those of the system: there is no way.
pub fn source_of(other: SocketAddr) -> io::Result<IpAddr> {
    let any: IpAddr = if other.is_ipv4() { [0; 4].into() } else { [0_u16; 8].into() };
    let socket = UdpSocket::bind(SocketAddr::new(any, 0))?;
    socket.connect(other)?;
    Ok(socket.local_addr()?.ip())
}
