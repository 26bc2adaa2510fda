//! RoCEv2 as whole Ethernet frames, past the machine's UDP and IP: by `AF_XDP` where it can be had, else by a packet socket.
//!
//! - owns: the socket for frames on the interface that has the address, a UDP socket that keeps the port, stations' MAC addresses.
//! - takes: the address, MAC addresses where the machine's neighbour table is not to be asked. gives: datagrams.
//! - must not: route: stations are on the interface's own link.
//!
//! It needs the right to raw sockets (`CAP_NET_RAW`; for `AF_XDP` also `CAP_NET_ADMIN` and `CAP_BPF`), and IPv4. The UDP socket is
//! never read: without one the machine would answer each frame that no port takes it. Runs of datagrams that the sender's machine
//! did not cut come to a packet socket with the length of a datagram in front (`virtio_net_hdr`), and are cut here; where a program
//! for `AF_XDP` is on an interface, the kernel cuts them before.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use inc::port::PortDatagram;
use inc::tree_document::TreeDocument;
use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{LinkAddr, bind};
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use socket2::{Domain, Protocol, SockFilter, SockRef, Socket, Type};
use urma_mem::packets::{OFFLOAD_HEADER_LEN, set_offload_header};
use urma_packet::Renumber;
use urma_packet::frame::{FRONT_MAX, UdpDatagram, emit};
use urma_xdp::{XdpCounts, XdpSocket};

use crate::clock;
use crate::udp::UdpCounts;

/// An address on a link of Ethernet: six bytes.
pub type EthernetAddress = [u8; 6];

/// Bytes that the system is asked to keep for received frames.
const SOCKET_BUFFER: usize = 8 << 20;
/// Longest frame: a run that was not cut.
const FRAME_MAX: usize = 65_535 + 14;
const PACKET_MAX: usize = 4096 + 128;
/// Frames of one receiving call, as of one call of a UDP socket.
const BATCH: usize = 32;
/// Frames of one sending call: a run of segmentation.
const RUN: usize = 64;
/// Datagrams to itself that a port keeps.
const OWN_MAX: usize = 4096;
/// The neighbour table is read again after this time.
const NEIGHBOURS_KEPT: Duration = Duration::from_secs(1);
/// A neighbour is asked for so seldom.
const ASK_EVERY: Duration = Duration::from_millis(100);
/// A neighbour that was asked for so often in vain is named in the log.
const ASKED_IN_VAIN: u32 = 2;
const NEIGHBOURS: &str = "/proc/thread-self/net/arp";
/// UDP's discard service: what goes there makes the machine ask for a MAC address, and nothing else.
const DISCARD: u16 = 9;
/// Frames of every protocol: `ETH_P_ALL` of linux/if_ether.h.
const ALL_PROTOCOLS: u16 = 3;
/// A run of UDP datagrams (`VIRTIO_NET_HDR_GSO_UDP_L4`); bit 7 says that congestion was marked.
const GSO_UDP: u8 = 5;
const GSO_TYPE: u8 = 0x7f;

/// Which sockets take and send the frames of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RawSocketKind {
    /// `AF_XDP` where it can be had, else a packet socket; the log says which, and why.
    #[default]
    Any,
    /// `AF_XDP`, whose rings the kernel's driver fills and empties without a call for each frame.
    Xdp,
    /// A packet socket: a call for each frame.
    Packet,
}

/// How a port has its frames.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RawAccess {
    /// Which sockets take and send them.
    pub kind: RawSocketKind,
    /// MAC addresses of stations for which the machine's neighbour table need not be asked.
    pub neighbours: HashMap<Ipv4Addr, EthernetAddress>,
}

/// What takes and sends frames behind an offload header.
#[derive(Debug)]
enum FrameSocket {
    Packet(Arc<OwnedFd>),
    Xdp(Box<XdpSocket>),
}

impl FrameSocket {
    fn open(link: &LinkAddr, address: SocketAddrV4, kind: RawSocketKind) -> io::Result<Self> {
        if kind == RawSocketKind::Packet {
            return Self::packet(link, address);
        }
        let interface = u32::try_from(link.ifindex()).map_err(io::Error::other)?;
        match XdpSocket::open(interface, address) {
            Ok(socket) => {
                tracing::info!(%address, "frames go by AF_XDP");
                Ok(Self::Xdp(Box::new(socket)))
            }
            Err(why) if kind == RawSocketKind::Xdp => Err(io::Error::other(why)),
            Err(why) => {
                // Where there is neither, both are named.
                let socket = Self::packet(link, address)
                    .map_err(|error| io::Error::new(error.kind(), format!("{error}; {why}")))?;
                tracing::info!(%address, %why, "frames go by a packet socket");
                Ok(socket)
            }
        }
    }

    fn packet(link: &LinkAddr, address: SocketAddrV4) -> io::Result<Self> {
        let protocol = Protocol::from(i32::from(ALL_PROTOCOLS.to_be()));
        let socket = Socket::new(Domain::PACKET, Type::RAW, Some(protocol)).map_err(|error| {
            io::Error::new(error.kind(), format!("a packet socket (CAP_NET_RAW): {error}"))
        })?;
        socket.set_nonblocking(true)?;
        // What arrives before is looked at again: all of it names its destination.
        socket.attach_filter(&filter(address))?;
        if set_socket_recv_buffer_size_force(&socket, SOCKET_BUFFER).is_err() {
            let _ = socket.set_recv_buffer_size(SOCKET_BUFFER);
        }
        set_offload_header(socket.as_fd())?;
        bind(socket.as_raw_fd(), link)?;
        Ok(Self::Packet(Arc::new(socket.into())))
    }

    /// Bytes of the next frame and its offload header, at the front of `frame`; `None` when there is none.
    fn receive(&mut self, frame: &mut [u8]) -> Option<usize> {
        match self {
            Self::Packet(socket) => {
                recv(&**socket, frame, RecvFlags::DONTWAIT).ok().map(|(_, len)| len)
            }
            Self::Xdp(socket) => {
                // A frame of AF_XDP is whole.
                let (offload, frame) = frame.split_at_mut_checked(OFFLOAD_HEADER_LEN)?;
                offload.fill(0);
                Some(OFFLOAD_HEADER_LEN + socket.receive(frame)?)
            }
        }
    }

    /// Sends a frame behind its offload header, by the next flush at the latest; whether there was room for it.
    fn send(&mut self, frame: &[u8]) -> bool {
        match self {
            Self::Packet(socket) => send(&**socket, frame, SendFlags::DONTWAIT).is_ok(),
            Self::Xdp(socket) => socket.send(&frame[OFFLOAD_HEADER_LEN..]),
        }
    }

    fn flush(&mut self) {
        if let Self::Xdp(socket) = self {
            socket.flush();
        }
    }
}

/// A socket for frames on one address.
#[derive(Debug)]
pub struct RawPort {
    socket: FrameSocket,
    /// Keeps the port, and asks for neighbours.
    guard: UdpSocket,
    address: SocketAddrV4,
    mac: EthernetAddress,
    given: HashMap<Ipv4Addr, EthernetAddress>,
    found: HashMap<Ipv4Addr, EthernetAddress>,
    found_at: Option<Instant>,
    /// When the machine was asked last for a neighbour, and how often so far.
    asked: HashMap<Ipv4Addr, (Instant, u32)>,
    /// Datagrams to this port itself, which no link would bring back.
    own: VecDeque<Vec<u8>>,
    receive: Box<[u8]>,
    send: Box<[u8]>,
    payload: Box<[u8]>,
    renumber: Renumber,
    counts: UdpCounts,
}

impl RawPort {
    /// Opens a socket for frames on the interface that has an address. Port 0 means any.
    ///
    /// # Errors
    /// Those of the system: no right to raw sockets, no interface with this address; `InvalidInput` for IPv6 and for an interface
    /// without Ethernet; where only `AF_XDP` is wanted, why it cannot be had.
    pub fn bind(address: SocketAddr, access: RawAccess) -> io::Result<Self> {
        let invalid = |what: String| io::Error::new(io::ErrorKind::InvalidInput, what);
        let IpAddr::V4(ip) = address.ip() else {
            return Err(invalid(format!("raw frames carry IPv4; {address} is none")));
        };
        let (link, mac) = link_of(ip)?;
        let guard = UdpSocket::bind(address)?;
        guard.set_nonblocking(true)?;
        // What nothing reads is thrown away at once.
        let _ = SockRef::from(&guard).set_recv_buffer_size(1);
        let address = SocketAddrV4::new(ip, guard.local_addr()?.port());
        let socket = FrameSocket::open(&link, address, access.kind)?;
        Ok(Self {
            socket,
            guard,
            address,
            mac,
            given: access.neighbours,
            found: HashMap::new(),
            found_at: None,
            asked: HashMap::new(),
            own: VecDeque::new(),
            receive: vec![0; OFFLOAD_HEADER_LEN + FRAME_MAX].into(),
            send: vec![0; OFFLOAD_HEADER_LEN + FRONT_MAX + PACKET_MAX].into(),
            payload: vec![0; PACKET_MAX].into(),
            renumber: Renumber::default(),
            counts: UdpCounts::default(),
        })
    }

    /// Address and port of this port.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address.into()
    }

    /// The socket, for one who waits for frames.
    pub(crate) fn socket(&self) -> Arc<OwnedFd> {
        match &self.socket {
            FrameSocket::Packet(socket) => Arc::clone(socket),
            FrameSocket::Xdp(socket) => socket.socket(),
        }
    }

    /// What the socket did so far.
    #[must_use]
    pub fn counts(&self) -> UdpCounts {
        let FrameSocket::Xdp(socket) = &self.socket else { return self.counts };
        let XdpCounts { dropped, too_long } = socket.counts();
        UdpCounts { dropped: dropped + too_long, ..self.counts }
    }

    /// Gives the datagrams of some frames to `take`, with their sources; whether there were any.
    pub fn receive(&mut self, mut take: impl FnMut(SocketAddr, &[u8])) -> bool {
        let is_any_own = !self.own.is_empty();
        for datagram in self.own.drain(..) {
            self.counts.received += 1;
            self.counts.received_bytes += datagram.len() as u64;
            take(self.address.into(), &datagram);
        }
        for count in 0..BATCH {
            let received = self.socket.receive(&mut self.receive);
            let Some(len) = received else { return is_any_own || count != 0 };
            let Some(run) = run_of(&self.receive[..len], self.address) else { continue };
            let (at, size, source) = (run.at, run.size, run.source);
            let datagrams = self.receive[at..at + run.len].chunks_mut(size);
            for (id, datagram) in datagrams.enumerate() {
                self.renumber.apply(datagram, id);
                self.counts.received += 1;
                self.counts.received_bytes += datagram.len() as u64;
                take(source, datagram);
            }
        }
        true
    }

    /// Sends the datagrams that `next` writes into the buffer it is lent, so many at most as of one run; whether there were
    /// any.
    pub fn send(&mut self, next: impl FnMut(&mut [u8]) -> Option<PortDatagram>) -> bool {
        let is_any = self.send_each(next);
        self.socket.flush();
        is_any
    }

    fn send_each(&mut self, mut next: impl FnMut(&mut [u8]) -> Option<PortDatagram>) -> bool {
        for count in 0..RUN {
            let Some(datagram) = next(&mut self.payload) else { return count != 0 };
            let to = datagram.dest;
            if to == self.address.into() {
                // A program that reduces for its group has a member of it, too.
                if self.own.len() < OWN_MAX {
                    self.own.push_back(self.payload[..datagram.len].to_vec());
                    self.counts.sent += 1;
                    self.counts.sent_bytes += datagram.len as u64;
                } else {
                    self.counts.refused += 1;
                }
                continue;
            }
            let Some(mac) = self.mac_of(to) else {
                // As with a cable that is out: the edges' timers handle it.
                self.counts.refused += 1;
                continue;
            };
            // An offload header of zeros: the frame is whole.
            let frame = &mut self.send[OFFLOAD_HEADER_LEN..];
            let (macs, payload) = ([mac, self.mac], &self.payload[..datagram.len]);
            let Ok(len) = emit(macs, self.address.into(), to, payload, frame) else {
                self.counts.refused += 1;
                continue;
            };
            self.counts.send_calls += 1;
            let bytes = &self.send[..OFFLOAD_HEADER_LEN + len];
            if self.socket.send(bytes) {
                self.counts.sent += 1;
                self.counts.sent_bytes += datagram.len as u64;
            } else {
                self.counts.refused += 1;
            }
        }
        true
    }

    /// The MAC address of a station; `None`: the machine is asking for it, or it is on another link.
    fn mac_of(&mut self, to: SocketAddr) -> Option<EthernetAddress> {
        let IpAddr::V4(ip) = to.ip().to_canonical() else { return None };
        if let Some(mac) = self.given.get(&ip) {
            return Some(*mac);
        }
        let now = clock();
        let is_over =
            |at: Option<&Instant>, most| at.is_none_or(|at| now.duration_since(*at) >= most);
        if is_over(self.found_at.as_ref(), NEIGHBOURS_KEPT) {
            self.read_neighbours(now);
        }
        if let Some(mac) = self.found.get(&ip) {
            return Some(*mac);
        }
        let (asked_at, asked) = self.asked.get(&ip).copied().unzip();
        if is_over(asked_at.as_ref(), ASK_EVERY) {
            let asked = asked.unwrap_or(0) + 1;
            self.asked.insert(ip, (now, asked));
            let sent = self.guard.send_to(&[], SocketAddrV4::new(ip, DISCARD));
            if asked == ASKED_IN_VAIN {
                tracing::warn!(
                    station = %ip, own = %self.address.ip(), ?sent,
                    "no MAC address of the station is known, and nothing answers for it: it is not on the link of the own \
                     address, or answers no ARP: --neighbour {ip}=MAC names it"
                );
            }
            self.read_neighbours(now);
        }
        self.found.get(&ip).copied()
    }

    fn read_neighbours(&mut self, now: Instant) {
        self.found_at = Some(now);
        if let Ok(table) = std::fs::read_to_string(NEIGHBOURS) {
            self.found = neighbours(&table).collect();
        }
    }
}

/// Datagrams of one length, but the last, in a received frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FrameRun {
    source: SocketAddr,
    at: usize,
    len: usize,
    size: usize,
}

/// The datagrams of a frame behind its offload header, if they are for an address.
fn run_of(bytes: &[u8], own: SocketAddrV4) -> Option<FrameRun> {
    let (offload, frame) = bytes.split_first_chunk::<OFFLOAD_HEADER_LEN>()?;
    let datagram = UdpDatagram::parse(frame).ok()?;
    let len = datagram.payload.len();
    if datagram.dest != own.into() || len == 0 {
        return None;
    }
    let [_, kind, _, _, low, high, ..] = *offload;
    #[expect(clippy::host_endian_bytes, reason = "the system writes a number of this machine")]
    let size = usize::from(u16::from_ne_bytes([low, high]));
    let size = if kind & GSO_TYPE == GSO_UDP && size != 0 { size } else { len };
    // The payload lies in front of Ethernet's padding.
    let front = FRONT_V4;
    Some(FrameRun { source: datagram.source, at: OFFLOAD_HEADER_LEN + front, len, size })
}

/// Ethernet, IPv4 without options, UDP.
const FRONT_V4: usize = 14 + 20 + 8;

/// Takes UDP over IPv4, whole, to an address and port.
fn filter(to: SocketAddrV4) -> [SockFilter; 13] {
    // linux/filter.h: loads of a byte, half a word, a word; jumps that compare; the end.
    const LOAD_BYTE: u16 = 0x30;
    const LOAD_HALF: u16 = 0x28;
    const LOAD_WORD: u16 = 0x20;
    const LOAD_IP_LEN: u16 = 0xb1;
    const LOAD_HALF_BEHIND: u16 = 0x48;
    const JUMP_EQUAL: u16 = 0x15;
    const JUMP_SET: u16 = 0x45;
    const RETURN: u16 = 0x06;
    let step = SockFilter::new;
    [
        step(LOAD_HALF, 0, 0, 12),
        step(JUMP_EQUAL, 0, 9, 0x0800),
        step(LOAD_BYTE, 0, 0, 23),
        step(JUMP_EQUAL, 0, 7, 17),
        step(LOAD_HALF, 0, 0, 20),
        // A fragment.
        step(JUMP_SET, 5, 0, 0x3fff),
        step(LOAD_WORD, 0, 0, 30),
        step(JUMP_EQUAL, 0, 3, u32::from(*to.ip())),
        step(LOAD_IP_LEN, 0, 0, 14),
        step(LOAD_HALF_BEHIND, 0, 0, 16),
        step(JUMP_EQUAL, 1, 0, to.port().into()),
        step(RETURN, 0, 0, 0),
        step(RETURN, 0, 0, u32::MAX),
    ]
}

/// The interface that has an address, and its MAC address.
fn link_of(ip: Ipv4Addr) -> io::Result<(LinkAddr, EthernetAddress)> {
    let all: Vec<_> = getifaddrs()?.collect();
    let is_own = |address: &nix::ifaddrs::InterfaceAddress| {
        let own = address.address.as_ref().and_then(|own| own.as_sockaddr_in());
        own.is_some_and(|own| own.ip() == ip)
    };
    let name = all.iter().find(|address| is_own(address)).map(|found| &found.interface_name);
    let missing =
        || io::Error::new(io::ErrorKind::AddrNotAvailable, format!("no interface has {ip}"));
    let name = name.ok_or_else(missing)?;
    let mut links = all.iter().filter(|address| address.interface_name == *name);
    let link = links.find_map(|address| address.address.as_ref()?.as_link_addr().copied());
    let no_ethernet = || {
        let what = format!("{name}, which has {ip}, is no Ethernet: raw frames need one");
        io::Error::new(io::ErrorKind::InvalidInput, what)
    };
    let (link, mac) = link.and_then(|link| Some((link, link.addr()?))).ok_or_else(no_ethernet)?;
    // A loopback interface has zeros.
    if mac == [0; 6] { Err(no_ethernet()) } else { Ok((link, mac)) }
}

/// The complete entries of the machine's neighbour table.
fn neighbours(table: &str) -> impl Iterator<Item = (Ipv4Addr, EthernetAddress)> {
    table.lines().skip(1).filter_map(|line| {
        let mut fields = line.split_whitespace();
        let (ip, flags, mac) = (fields.next()?, fields.nth(1)?, fields.next()?);
        let flags = u32::from_str_radix(flags.trim_start_matches("0x"), 16).ok()?;
        // ATF_COM of linux/if_arp.h: the station has answered.
        (flags & 2 != 0).then_some(())?;
        Some((ip.parse().ok()?, parse_mac(mac)?))
    })
}

/// A kind of sockets as programs name one.
///
/// # Errors
/// What is wrong with the text.
pub fn raw_socket_kind(text: &str) -> Result<RawSocketKind, String> {
    match text {
        "any" => Ok(RawSocketKind::Any),
        "xdp" => Ok(RawSocketKind::Xdp),
        "packet" => Ok(RawSocketKind::Packet),
        other => Err(format!("\"{other}\" is none of any, xdp, packet")),
    }
}

/// A station as programs name one: `IP=MAC`.
///
/// # Errors
/// What is wrong with the text.
pub fn neighbour(text: &str) -> Result<(Ipv4Addr, EthernetAddress), String> {
    let (ip, mac) = text.split_once('=').ok_or_else(|| format!("\"{text}\" is not IP=MAC"))?;
    let ip = ip.parse().map_err(|_| format!("\"{ip}\" is no IPv4 address"))?;
    let mac = parse_mac(mac)
        .ok_or_else(|| format!("\"{mac}\" is no MAC address, as 02:00:00:00:00:01"))?;
    Ok((ip, mac))
}

/// The MAC addresses that a tree names, of both ends of each connection. Ends without one have zeros there.
#[must_use]
pub fn neighbours_of(tree: &TreeDocument) -> HashMap<Ipv4Addr, EthernetAddress> {
    let connections = tree.switches.iter().flat_map(|switch| &switch.connections);
    let ends = connections.flat_map(|of| [(&of.my_ip, &of.my_mac), (&of.peer_ip, &of.peer_mac)]);
    ends.filter_map(|(ip, mac)| Some((ip.parse().ok()?, parse_mac(mac).filter(|m| *m != [0; 6])?)))
        .collect()
}

/// Six bytes in hexadecimal with colons between.
fn parse_mac(text: &str) -> Option<EthernetAddress> {
    let is_hex = |part: &str| part.len() == 2 && part.bytes().all(|b| b.is_ascii_hexdigit());
    let byte = |part| is_hex(part).then(|| u8::from_str_radix(part, 16).ok()).flatten();
    let bytes: Option<Vec<_>> = text.split(':').map(byte).collect();
    bytes?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 4791);

    /// A frame behind its offload header.
    fn received(kind: u8, size: u16, to: SocketAddrV4, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 2048];
        bytes[1] = kind;
        bytes[4..6].copy_from_slice(&size.to_le_bytes());
        let from = SocketAddr::from(([10, 0, 0, 1], 4791));
        let frame = &mut bytes[OFFLOAD_HEADER_LEN..];
        let len = emit([[2; 6], [1; 6]], from, to.into(), payload, frame).unwrap();
        bytes.truncate(OFFLOAD_HEADER_LEN + len);
        bytes
    }

    #[test]
    fn runs_are_cut_as_their_offload_header_says() {
        let payload: Vec<u8> = (0..100).collect();
        let bytes = received(GSO_UDP | 0x80, 40, OWN, &payload);
        let run = run_of(&bytes, OWN).unwrap();
        assert_eq!(run.source, SocketAddr::from(([10, 0, 0, 1], 4791)));
        let cut: Vec<_> = bytes[run.at..run.at + run.len].chunks(run.size).collect();
        assert_eq!(cut, [&payload[..40], &payload[40..80], &payload[80..]]);
        // A whole datagram, padded as short frames are.
        let mut bytes = received(0, 40, OWN, &payload[..3]);
        bytes.extend([0xee; 20]);
        let run = run_of(&bytes, OWN).unwrap();
        assert_eq!((run.len, run.size, &bytes[run.at..run.at + run.len]), (3, 3, &payload[..3]));
        // A run of another protocol, and a length of zero, cut nothing.
        assert_eq!(run_of(&received(1, 40, OWN, &payload), OWN).unwrap().size, 100);
        assert_eq!(run_of(&received(GSO_UDP, 0, OWN, &payload), OWN).unwrap().size, 100);
    }

    #[test]
    fn frames_for_others_and_frames_that_are_none_are_passed_over() {
        let other =
            [SocketAddrV4::new(*OWN.ip(), 4790), SocketAddrV4::new([10, 0, 0, 3].into(), 4791)];
        for to in other {
            assert_eq!(run_of(&received(0, 0, to, &[1]), OWN), None, "{to}");
        }
        assert_eq!(run_of(&received(0, 0, OWN, &[]), OWN), None);
        let bytes = received(0, 0, OWN, &[7; 60]);
        for len in 0..bytes.len() {
            assert_eq!(run_of(&bytes[..len], OWN), None, "{len} bytes");
        }
    }

    #[test]
    fn complete_neighbours_are_read() {
        let table = "IP address       HW type     Flags       HW address            Mask     Device\n\
                     10.0.0.9         0x1         0x2         02:00:00:0a:0b:ff     *        eth0\n\
                     10.0.0.8         0x1         0x0         00:00:00:00:00:00     *        eth0\n\
                     nonsense\n";
        let found: Vec<_> = neighbours(table).collect();
        assert_eq!(found, [(Ipv4Addr::new(10, 0, 0, 9), [2, 0, 0, 10, 11, 255])]);
        assert_eq!(neighbour("10.0.0.9=02:00:00:0a:0b:ff"), Ok(found[0]));
        for (text, why) in [
            ("10.0.0.9", "is not IP=MAC"),
            ("fe80::1=02:00:00:00:00:01", "no IPv4"),
            ("10.0.0.9=2:0:0:0:0:1", "no MAC"),
            ("10.0.0.9=02:00:00:00:00", "no MAC"),
            ("10.0.0.9=02:00:00:00:00:+1", "no MAC"),
        ] {
            let refused = neighbour(text).unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
    }

    #[test]
    fn what_cannot_be_is_named() {
        let bind = |address: &str| {
            let access = RawAccess::default();
            let error = RawPort::bind(address.parse().unwrap(), access).unwrap_err();
            error.to_string()
        };
        assert!(bind("[::1]:0").contains("IPv4"));
        assert!(bind("127.0.0.1:0").contains("no Ethernet"));
        assert!(bind("192.0.2.77:0").contains("no interface has 192.0.2.77"));
    }
}
