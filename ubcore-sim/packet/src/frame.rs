//! Ethernet, IP and UDP around a packet: for captures and raw links.
//!
//! - owns: as much of those layouts as a capture of our own traffic needs.
//! - takes: a frame without FCS, or addresses and a UDP payload. gives: the other.
//! - must not: route, fragment, or accept options and extension headers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use zerocopy::byteorder::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::codec::{Reader, Writer};
use crate::icrc::v6_octets;
use crate::{IcrcFlow, PacketError};

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct EthernetWire {
    dest: [u8; 6],
    source: [u8; 6],
    kind: U16,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Ipv4Wire {
    version_ihl: u8,
    tos: u8,
    total_len: U16,
    id: U16,
    fragment: U16,
    ttl: u8,
    protocol: u8,
    checksum: U16,
    source: [u8; 4],
    dest: [u8; 4],
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Ipv6Wire {
    version_class: u8,
    class_flow: [u8; 3],
    payload_len: U16,
    next_header: u8,
    hop_limit: u8,
    source: [u8; 16],
    dest: [u8; 16],
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct UdpWire {
    source: U16,
    dest: U16,
    len: U16,
    checksum: U16,
}

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const PROTO_UDP: u8 = 17;
const TTL: u8 = 64;
const DONT_FRAGMENT: u16 = 0x4000;
const UDP_LEN: usize = size_of::<UdpWire>();

/// Bytes in front of the UDP payload, at most.
pub const FRONT_MAX: usize = size_of::<EthernetWire>() + size_of::<Ipv6Wire>() + UDP_LEN;

/// A UDP datagram found in an Ethernet frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UdpDatagram<'a> {
    /// Where it comes from.
    pub source: SocketAddr,
    /// Destination address and UDP port.
    pub dest: SocketAddr,
    /// IPv4 Identification; 0 for IPv6.
    pub ip_id: u16,
    /// IPv4 fragment word (DF is 0x4000); DF for IPv6, which routers never fragment.
    pub fragment: u16,
    /// The headers as the ICRC sees them.
    pub flow: IcrcFlow,
    /// UDP payload, from the BTH on.
    pub payload: &'a [u8],
}

impl<'a> UdpDatagram<'a> {
    /// The datagram in a frame that starts at the Ethernet header. Bytes after the IP packet
    /// (Ethernet padding) are ignored.
    ///
    /// # Errors
    /// [`PacketError::Truncated`], [`PacketError::Field`] for anything but unfragmented UDP over
    /// IPv4 without options or IPv6 without extension headers, [`PacketError::Length`] when UDP
    /// and IP lengths disagree.
    pub fn parse(frame: &'a [u8]) -> Result<Self, PacketError> {
        let mut reader = Reader::new(frame);
        let ethernet: &EthernetWire = reader.take()?;
        match ethernet.kind.get() {
            ETHERTYPE_IPV4 => Self::parse_ipv4(reader.rest()),
            ETHERTYPE_IPV6 => Self::parse_ipv6(reader.rest()),
            other => Err(PacketError::field("EtherType", other.into())),
        }
    }

    fn parse_ipv4(bytes: &'a [u8]) -> Result<Self, PacketError> {
        let ip: &Ipv4Wire = Reader::new(bytes).take()?;
        let fragment = ip.fragment.get();
        if fragment & !DONT_FRAGMENT != 0 {
            return Err(PacketError::field("IPv4 fragment", fragment.into()));
        }
        if ip.protocol != PROTO_UDP {
            return Err(PacketError::field("IP protocol", ip.protocol.into()));
        }
        let ends = [Ipv4Addr::from(ip.source).into(), Ipv4Addr::from(ip.dest).into()];
        let mut found = Self::parse_udp(bytes, usize::from(ip.total_len.get()), ends)?;
        (found.ip_id, found.fragment) = (ip.id.get(), fragment);
        Ok(found)
    }

    fn parse_ipv6(bytes: &'a [u8]) -> Result<Self, PacketError> {
        let ip: &Ipv6Wire = Reader::new(bytes).take()?;
        if ip.next_header != PROTO_UDP {
            return Err(PacketError::field("IP protocol", ip.next_header.into()));
        }
        let ends = [Ipv6Addr::from(ip.source).into(), Ipv6Addr::from(ip.dest).into()];
        let total = size_of::<Ipv6Wire>() + usize::from(ip.payload_len.get());
        Self::parse_udp(bytes, total, ends)
    }

    fn parse_udp(
        bytes: &'a [u8],
        total: usize,
        [source, dest]: [IpAddr; 2],
    ) -> Result<Self, PacketError> {
        let have = bytes.len();
        let bytes = bytes.get(..total).ok_or(PacketError::Truncated { needed: total, have })?;
        let flow = IcrcFlow::from_ip_header(bytes)?;
        let ip_len = if source.is_ipv4() { size_of::<Ipv4Wire>() } else { size_of::<Ipv6Wire>() };
        let after_ip = &bytes[ip_len..];
        let mut reader = Reader::new(after_ip);
        let udp: &UdpWire = reader.take()?;
        let found = usize::from(udp.len.get());
        if found != after_ip.len() {
            return Err(PacketError::Length { expected: after_ip.len(), found });
        }
        Ok(Self {
            source: SocketAddr::new(source, udp.source.get()),
            dest: SocketAddr::new(dest, udp.dest.get()),
            ip_id: 0,
            fragment: DONT_FRAGMENT,
            flow,
            payload: reader.rest(),
        })
    }
}

/// Writes a frame around a UDP payload: IPv4 or IPv6 after `dest`, TTL 64, DF, Identification 0,
/// UDP checksum 0, MAC addresses `[dest, source]`. The count of bytes written.
///
/// # Errors
/// [`PacketError::Truncated`] when `buf` is too short, [`PacketError::Length`] when the payload
/// does not fit a datagram.
pub fn emit(
    macs: [[u8; 6]; 2],
    source: SocketAddr,
    dest: SocketAddr,
    payload: &[u8],
    buf: &mut [u8],
) -> Result<usize, PacketError> {
    let too_long = PacketError::Length { expected: usize::from(u16::MAX), found: payload.len() };
    let udp_len = u16::try_from(UDP_LEN + payload.len()).map_err(|_| too_long)?;
    let [mac_dest, mac_source] = macs;
    let mut writer = Writer::new(buf);
    let ethernet = |kind| EthernetWire { dest: mac_dest, source: mac_source, kind };
    match (source.ip().to_canonical(), dest.ip().to_canonical()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            writer.put(&ethernet(U16::new(ETHERTYPE_IPV4)))?;
            let total = udp_len.checked_add(20).ok_or(too_long)?;
            writer.put(&ipv4(total, from, to))?;
        }
        (from, to) => {
            writer.put(&ethernet(U16::new(ETHERTYPE_IPV6)))?;
            writer.put(&Ipv6Wire {
                version_class: 0x60,
                class_flow: [0; 3],
                payload_len: U16::new(udp_len),
                next_header: PROTO_UDP,
                hop_limit: TTL,
                source: v6_octets(from),
                dest: v6_octets(to),
            })?;
        }
    }
    let (source, dest) = (U16::new(source.port()), U16::new(dest.port()));
    writer.put(&UdpWire { source, dest, len: U16::new(udp_len), checksum: U16::ZERO })?;
    writer.put(payload)?;
    Ok(writer.written())
}

fn ipv4(total: u16, from: Ipv4Addr, to: Ipv4Addr) -> Ipv4Wire {
    let mut header = Ipv4Wire {
        version_ihl: 0x45,
        tos: 0,
        total_len: U16::new(total),
        id: U16::ZERO,
        fragment: U16::new(DONT_FRAGMENT),
        ttl: TTL,
        protocol: PROTO_UDP,
        checksum: U16::ZERO,
        source: from.octets(),
        dest: to.octets(),
    };
    header.checksum = U16::new(!ones_complement_sum(header.as_bytes()));
    header
}

/// One's complement sum of big-endian 16-bit words (RFC 1071): a carry out of the top bit is added
/// to the lowest one. A last odd byte does not count; IP headers have none.
fn ones_complement_sum(bytes: &[u8]) -> u16 {
    let (words, _) = bytes.as_chunks();
    words.iter().fold(0, |sum: u16, &word| {
        let (sum, carry) = sum.overflowing_add(u16::from_be_bytes(word));
        // A sum that carried is at most 0xfffe.
        sum + u16::from(carry)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_the_rfc() {
        // The worked example of RFC 1071, section 3.
        assert_eq!(ones_complement_sum(&[0, 1, 0xf2, 3, 0xf4, 0xf5, 0xf6, 0xf7]), 0xddf2);
        // Its sum is one beyond 16 bits, and the carry makes no second one.
        assert_eq!(ones_complement_sum(&[0xff, 0xff, 0, 1]), 1);
        assert_eq!(ones_complement_sum(&[0xff, 0xff, 0xff, 0xff]), 0xffff);
        // A header that analysers are explained with: 192.168.0.1 to 192.168.0.199, 115 bytes.
        let header = ipv4(115, Ipv4Addr::new(192, 168, 0, 1), Ipv4Addr::new(192, 168, 0, 199));
        assert_eq!(header.checksum.get(), 0xb861);
        assert_eq!(ones_complement_sum(header.as_bytes()), 0xffff);
    }

    #[test]
    fn the_longest_front_is_that_of_ipv6() {
        let v6 = |last| SocketAddr::from((Ipv6Addr::from([last; 16]), 1));
        let mut buf = [0; FRONT_MAX];
        let len = emit([[0; 6]; 2], v6(1), v6(2), &[], &mut buf);
        assert_eq!(len, Ok(FRONT_MAX));
        let refused = emit([[0; 6]; 2], v6(1), v6(2), &[0], &mut buf);
        let needed = FRONT_MAX + 1;
        assert_eq!(refused, Err(PacketError::Truncated { needed, have: FRONT_MAX }));
    }

    /// A frame with twelve bytes of payload from 10.0.0.1:7 to 10.0.0.2:4791, or the same over IPv6.
    fn frame(is_v6: bool) -> Vec<u8> {
        let end = |last: u8, port| match is_v6 {
            true => SocketAddr::from((Ipv6Addr::from([last; 16]), port)),
            false => SocketAddr::from((Ipv4Addr::new(10, 0, 0, last), port)),
        };
        let mut buf = [0; 128];
        let len = emit([[1; 6], [2; 6]], end(1, 7), end(2, 4791), &[9; 12], &mut buf);
        buf[..len.expect("it fits")].to_vec()
    }

    /// Each field that is checked, by itself: place in the frame, value, and what it is refused as.
    #[test]
    fn only_whole_datagrams_of_udp_are_frames() {
        const ETHERNET: usize = 14;
        for (is_v6, at, bytes, wanted) in [
            (false, 12, [0x08, 0x06], "field"),
            // More fragments follow; it is one; DF is no matter.
            (false, ETHERNET + 6, [0x20, 0], "field"),
            (false, ETHERNET + 6, [0x40, 1], "field"),
            (false, ETHERNET + 6, [0, 0], ""),
            (false, ETHERNET + 8, [64, 6], "field"),
            (true, ETHERNET + 6, [6, 64], "field"),
            // IP says less or more than UDP, and more than there is.
            (false, ETHERNET + 2, [0, 39], "length"),
            (false, ETHERNET + 2, [0, 41], "truncated"),
            (true, ETHERNET + 4, [0, 19], "length"),
            (true, ETHERNET + 4, [0, 21], "truncated"),
            (false, ETHERNET + 24, [0, 19], "length"),
            (false, ETHERNET + 24, [0, 21], "length"),
        ] {
            let mut frame = frame(is_v6);
            frame[at..at + 2].copy_from_slice(&bytes);
            let found = UdpDatagram::parse(&frame).map_or_else(|error| error.reason(), |_| "");
            assert_eq!(found, wanted, "IPv6 {is_v6}, {bytes:?} at {at}");
        }
        let frame = frame(false);
        let found = UdpDatagram::parse(&frame).expect("it is sound");
        assert_eq!(
            (found.payload, found.dest.port(), found.source.port()),
            (&[9; 12][..], 4791, 7)
        );
    }
}
