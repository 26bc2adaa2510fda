//! The invariant CRC, the last four bytes of every packet.
//!
//! CRC-32 (the Ethernet polynomial) over 8 bytes of ones, the IP and UDP headers, BTH, the rest, payload and pad,
//! where what a router may change counts as ones; stored little-endian. Nothing after the BTH is interpreted.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::{BTH_LEN, PacketError};

/// Bytes of the ICRC.
pub const ICRC_LEN: usize = 4;

/// CRC-32 of eight bytes of ones: the place of the local routing header that RoCE does not have.
const SEED: u32 = 0x2144_df1c;
const UDP_LEN: usize = 8;
const V4_LEN: usize = 20;
const V6_LEN: usize = 40;
const PROTO_UDP: u8 = 17;
/// Offset of the Identification in an IPv4 header.
const ID_AT: usize = 4;
/// The polynomial of the CRC-32, lowest power in the highest bit.
const POLYNOMIAL: u32 = 0xedb8_8320;
/// Byte of the BTH with FECN, BECN and six bits beside them, which may change in flight.
const MARKS_AT: usize = 4;
/// Longest UDP payload in bytes: one IPv4 packet holds it with both headers.
const PACKET_MAX: usize = u16::MAX as usize - V4_LEN - UDP_LEN;
const _: () = assert!(PACKET_MAX == 65_507);

/// IP and UDP headers as the ICRC sees them, for one direction between two sockets.
///
/// IPv4: no options, DF set, fragment offset 0, Identification 0 unless [`IcrcFlow::with_ip_id`]
/// says otherwise. Linux sends that from an unconnected UDP socket with IP_MTU_DISCOVER set to
/// IP_PMTUDISC_DO or IP_PMTUDISC_PROBE. IPv6: no extension headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IcrcFlow {
    /// Masked IP header and UDP header; the two length fields are filled per packet.
    headers: [u8; V6_LEN + UDP_LEN],
    /// Bytes of the IP header: 20 or 40.
    ip_len: usize,
}

impl IcrcFlow {
    /// The flow of packets from `source` to `dest`. IPv4-mapped addresses travel as IPv4. When
    /// one end is IPv6 the other one counts as IPv6, too.
    #[must_use]
    pub fn new(source: SocketAddr, dest: SocketAddr) -> Self {
        let mut headers = [0xff; V6_LEN + UDP_LEN];
        let ip_len = match (source.ip().to_canonical(), dest.ip().to_canonical()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let fixed = [0x45, 0xff, 0, 0, 0, 0, 0x40, 0, 0xff, PROTO_UDP, 0xff, 0xff];
                headers[..12].copy_from_slice(&fixed);
                headers[12..16].copy_from_slice(&from.octets());
                headers[16..20].copy_from_slice(&to.octets());
                V4_LEN
            }
            (from, to) => {
                headers[..8].copy_from_slice(&[0x6f, 0xff, 0xff, 0xff, 0, 0, PROTO_UDP, 0xff]);
                headers[8..24].copy_from_slice(&v6_octets(from));
                headers[24..40].copy_from_slice(&v6_octets(to));
                V6_LEN
            }
        };
        headers[ip_len..ip_len + 2].copy_from_slice(&source.port().to_be_bytes());
        headers[ip_len + 2..ip_len + 4].copy_from_slice(&dest.port().to_be_bytes());
        Self { headers, ip_len }
    }

    /// The flow of a captured packet: `ip` starts at the IP header and holds at least the IP
    /// header (20 bytes without options, or 40) and the UDP header.
    ///
    /// # Errors
    /// [`PacketError::Truncated`], [`PacketError::Field`] for a version other than 4 or 6 and for
    /// IPv4 options.
    pub fn from_ip_header(ip: &[u8]) -> Result<Self, PacketError> {
        let first = *ip.first().ok_or(PacketError::Truncated { needed: V4_LEN, have: 0 })?;
        let ip_len = match first {
            0x45 => V4_LEN,
            0x60..=0x6f => V6_LEN,
            _ => return Err(PacketError::field("IP version and header length", first.into())),
        };
        let needed = ip_len + UDP_LEN;
        let seen = ip.get(..needed).ok_or(PacketError::Truncated { needed, have: ip.len() })?;
        let mut headers = [0xff; V6_LEN + UDP_LEN];
        headers[..needed].copy_from_slice(seen);
        let masked: &[usize] = if ip_len == V4_LEN { &[1, 8, 10, 11] } else { &[1, 2, 3, 7] };
        for &at in masked {
            headers[at] = 0xff;
        }
        if ip_len == V6_LEN {
            headers[0] |= 0x0f;
        }
        headers[ip_len + 6..needed].fill(0xff);
        Ok(Self { headers, ip_len })
    }

    /// The same flow with another IPv4 Identification (the n-th segment of a segmentation offload
    /// leaves Linux with n). No effect on IPv6.
    #[must_use]
    pub fn with_ip_id(mut self, id: u16) -> Self {
        if self.ip_len == V4_LEN {
            self.headers[4..6].copy_from_slice(&id.to_be_bytes());
        }
        self
    }

    /// Writes the ICRC into the last four bytes of a whole UDP payload.
    ///
    /// # Errors
    /// [`PacketError::Truncated`] when BTH and ICRC do not fit, [`PacketError::Length`] when the
    /// payload is more than a UDP datagram can hold.
    pub fn seal(&self, packet: &mut [u8]) -> Result<(), PacketError> {
        self.of_len(packet.len())?.seal(packet)
    }

    /// Compares the last four bytes of a whole UDP payload with the ICRC of the rest.
    ///
    /// # Errors
    /// [`PacketError::Truncated`], [`PacketError::Length`] when it is more than a UDP datagram can
    /// hold, [`PacketError::Icrc`].
    pub fn verify(&self, packet: &[u8]) -> Result<(), PacketError> {
        self.of_len(packet.len())?.verify(packet)
    }

    /// As [`IcrcFlow::verify`], for receivers behind a socket, which does not show the Identification of
    /// IPv4 packets: any one will do. Such a packet is checked by 16 bits instead of 32, one with
    /// Identification 0 and every IPv6 packet by all.
    ///
    /// # Errors
    /// [`PacketError::Truncated`], [`PacketError::Length`], [`PacketError::Icrc`] with the value for
    /// Identification 0.
    pub fn verify_any_id(&self, packet: &[u8]) -> Result<(), PacketError> {
        self.of_len(packet.len())?.verify_id_up_to(packet, u16::MAX)
    }

    /// Starts the ICRC of a packet whose bytes come in pieces (headers here, payload from
    /// elsewhere). `packet_len` is the whole UDP payload, ICRC included; `headers` its first
    /// bytes, at least the BTH.
    ///
    /// # Errors
    /// [`PacketError::Truncated`] when `headers` is shorter than a BTH,
    /// [`PacketError::Length`] when `packet_len` is more than a UDP datagram can hold.
    pub fn start(&self, packet_len: usize, headers: &[u8]) -> Result<IcrcDigest, PacketError> {
        let front = self.of_len(packet_len)?;
        let too_short = PacketError::Truncated { needed: BTH_LEN, have: headers.len() };
        let (bth, rest) = headers.split_first_chunk().ok_or(too_short)?;
        Ok(front.start(*bth, rest))
    }

    /// What the packets of one length have in common: the IP and UDP headers.
    ///
    /// # Errors
    /// [`PacketError::Length`] when `packet_len` is more than a UDP datagram can hold.
    pub fn of_len(&self, packet_len: usize) -> Result<IcrcFront, PacketError> {
        // A datagram is as long over IPv6 as over IPv4 at most.
        let [udp_len, ip_total] = [UDP_LEN, UDP_LEN + V4_LEN]
            .map(|front| u16::try_from(packet_len.saturating_add(front)));
        let (Ok(udp_len), Ok(ip_total)) = (udp_len, ip_total) else {
            return Err(PacketError::Length { expected: PACKET_MAX, found: packet_len });
        };
        let ip_len = self.ip_len;
        let mut front = self.headers;
        let (length_at, length) = if ip_len == V4_LEN { (2, ip_total) } else { (4, udp_len) };
        front[length_at..length_at + 2].copy_from_slice(&length.to_be_bytes());
        front[ip_len + 4..ip_len + 6].copy_from_slice(&udp_len.to_be_bytes());
        let mut hasher = crc32fast::Hasher::new_with_initial(SEED);
        hasher.update(&front[..ip_len + UDP_LEN]);
        Ok(IcrcFront { packet_len, state: hasher.finalize(), has_id: ip_len == V4_LEN })
    }
}

/// The ICRC of the packets of a flow that have one length, up to the end of the UDP header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IcrcFront {
    packet_len: usize,
    state: u32,
    /// There is an Identification: the packets are of IPv4.
    has_id: bool,
}

impl IcrcFront {
    /// Bytes of the packets that it is for.
    #[must_use]
    pub const fn packet_len(&self) -> usize {
        self.packet_len
    }

    /// As [`IcrcFlow::seal`], of a packet of this length.
    ///
    /// # Errors
    /// [`PacketError::Truncated`], [`PacketError::Length`] when the packet has another length.
    pub fn seal(&self, packet: &mut [u8]) -> Result<(), PacketError> {
        self.check(packet)?;
        let (needed, have) = (BTH_LEN + ICRC_LEN, packet.len());
        let parts = packet.split_last_chunk_mut().filter(|(covered, _)| covered.len() >= BTH_LEN);
        let (covered, icrc) = parts.ok_or(PacketError::Truncated { needed, have })?;
        // One pass over all bytes takes less time than two.
        let marks = std::mem::replace(&mut covered[MARKS_AT], 0xff);
        let mut hasher = crc32fast::Hasher::new_with_initial(self.state);
        hasher.update(covered);
        covered[MARKS_AT] = marks;
        *icrc = hasher.finalize().to_le_bytes();
        Ok(())
    }

    /// As [`IcrcFlow::verify`], of a packet of this length.
    ///
    /// # Errors
    /// [`PacketError::Truncated`], [`PacketError::Icrc`], [`PacketError::Length`] when the packet has another
    /// length.
    pub fn verify(&self, packet: &[u8]) -> Result<(), PacketError> {
        self.check(packet)?;
        let (covered, carried) = split_icrc(packet)?;
        let too_short = PacketError::Truncated { needed: BTH_LEN, have: covered.len() };
        let (bth, rest) = covered.split_first_chunk().ok_or(too_short)?;
        let (computed, carried) = (self.start(*bth, rest).finish(), u32::from_le_bytes(*carried));
        if computed == carried { Ok(()) } else { Err(PacketError::Icrc { computed, carried }) }
    }

    /// As [`IcrcFlow::verify_any_id`], for Identifications of at most `id_max`: the fewer there are, the more of the ICRC
    /// checks the packet.
    ///
    /// # Errors
    /// As [`IcrcFront::verify`], with the value for Identification 0.
    pub fn verify_id_up_to(&self, packet: &[u8], id_max: u16) -> Result<(), PacketError> {
        let result = self.verify(packet);
        let (Err(PacketError::Icrc { computed, carried }), true) = (result, self.has_id) else {
            return result;
        };
        // A CRC is linear: the difference is that of the Identification alone, moved on by all bytes
        // from its first one on. Moved back it has to be an Identification, whose high byte comes first.
        let after = V4_LEN - ID_AT + UDP_LEN + packet.len() - ICRC_LEN;
        let id = u16::try_from(rewound(computed ^ carried, after)).map(u16::swap_bytes);
        if id.is_ok_and(|id| id <= id_max) { Ok(()) } else { result }
    }

    fn start(&self, mut bth: [u8; BTH_LEN], rest: &[u8]) -> IcrcDigest {
        bth[MARKS_AT] = 0xff;
        let mut hasher = crc32fast::Hasher::new_with_initial(self.state);
        hasher.update(&bth);
        hasher.update(rest);
        IcrcDigest { hasher }
    }

    const fn check(&self, packet: &[u8]) -> Result<(), PacketError> {
        let (expected, found) = (self.packet_len, packet.len());
        if expected == found { Ok(()) } else { Err(PacketError::Length { expected, found }) }
    }
}

/// An ICRC in progress, see [`IcrcFlow::start`].
#[derive(Debug, Clone)]
pub struct IcrcDigest {
    hasher: crc32fast::Hasher,
}

impl IcrcDigest {
    /// Adds the next bytes of the packet.
    pub fn update(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
    }

    /// The value; it goes onto the wire little-endian.
    #[must_use]
    pub fn finish(self) -> u32 {
        self.hasher.finalize()
    }
}

/// What the ICRC of a whole UDP payload covers, at least a BTH, and the bytes of the ICRC.
pub(crate) fn split_icrc(packet: &[u8]) -> Result<(&[u8], &[u8; ICRC_LEN]), PacketError> {
    let (needed, have) = (BTH_LEN + ICRC_LEN, packet.len());
    let parts = packet.split_last_chunk().filter(|(covered, _)| covered.len() >= BTH_LEN);
    parts.ok_or(PacketError::Truncated { needed, have })
}

/// State of the CRC `len` bytes of zero before it was `state`.
fn rewound(state: u32, len: usize) -> u32 {
    let steps = BACK.iter().enumerate().filter(|(bit, _)| len >> bit & 1 == 1);
    steps.fold(state, |state, (_, back)| product(state, *back))
}

/// What takes the CRC back by 1, 2, 4, ... bytes of zero: powers of x^-8.
const BACK: [u32; 17] = {
    let mut byte = 1 << 31;
    let mut bit = 0;
    while bit < 8 {
        byte = if byte >> 31 == 1 { (byte ^ POLYNOMIAL) << 1 | 1 } else { byte << 1 };
        bit += 1;
    }
    let mut powers = [byte; 17];
    let mut index = 1;
    while index < powers.len() {
        powers[index] = product(powers[index - 1], powers[index - 1]);
        index += 1;
    }
    powers
};

/// The product of two polynomials modulo [`POLYNOMIAL`].
const fn product(a: u32, b: u32) -> u32 {
    let (mut sum, mut moved, mut power) = (0, b, 0);
    while power < 32 {
        if a << power >> 31 == 1 {
            sum ^= moved;
        }
        moved = if moved & 1 == 1 { moved >> 1 ^ POLYNOMIAL } else { moved >> 1 };
        power += 1;
    }
    sum
}

pub(crate) fn v6_octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// Differences for the lengths that were used last.
///
/// A CRC is linear: what changes when a header field changes from 0 to `id` depends on `id` and the packet's length
/// only, and the difference of an `id` is the sum (xor) of those of its bits. So a packet sealed for one
/// Identification is sealed for another by one xor instead of a second pass over its bytes, whether or not its ICRC
/// was right.
#[derive(Debug, Default)]
pub struct Renumber {
    lens: [Differences; LENS],
    next: usize,
}

#[derive(Clone, Debug, Default)]
struct Differences {
    len: usize,
    /// For the Identification that has only bit `i`.
    bits: [u32; BITS],
}

impl Renumber {
    /// Largest Identification that can be renumbered.
    pub const ID_MAX: usize = (1 << BITS) - 1;

    /// Changes the ICRC of an IPv4 packet from Identification 0 to `id`, or back. Identifications
    /// beyond [`Renumber::ID_MAX`] and packets too short for an ICRC stay as they are.
    pub fn apply(&mut self, packet: &mut [u8], id: usize) {
        if id == 0 || id > Self::ID_MAX || packet.len() < LEN_MIN {
            return;
        }
        let differences = self.of_len(packet.len());
        let change = (0..BITS)
            .filter(|bit| id >> bit & 1 == 1)
            .fold(0, |sum, bit| sum ^ differences.bits[bit]);
        if let Some(icrc) = packet.last_chunk_mut::<ICRC_LEN>() {
            *icrc = (u32::from_le_bytes(*icrc) ^ change).to_le_bytes();
        }
    }

    /// The kernel gives the packets of a run, of `size` bytes each but the last, the Identifications 0, 1, 2, ...
    pub fn number(&mut self, run: &mut [u8], size: usize) {
        for (id, packet) in run.chunks_mut(size).enumerate() {
            self.apply(packet, id);
        }
    }

    fn of_len(&mut self, len: usize) -> &Differences {
        let known = self.lens.iter().position(|d| d.len == len);
        let at = known.unwrap_or_else(|| {
            let at = self.next;
            self.next = (at + 1) % LENS;
            self.lens[at] = Differences::new(len);
            at
        });
        &self.lens[at]
    }
}

impl Differences {
    fn new(len: usize) -> Self {
        // Any addresses and any bytes do.
        let any = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
        let flow = IcrcFlow::new(any, any);
        let mut packet = vec![0; len];
        let mut icrc = |id| {
            let sealed = flow.with_ip_id(id).seal(&mut packet);
            let bytes = packet.last_chunk::<ICRC_LEN>().copied().unwrap_or_default();
            sealed.map_or(0, |()| u32::from_le_bytes(bytes))
        };
        let zero = icrc(0);
        Self { len, bits: std::array::from_fn(|bit| icrc(1 << bit) ^ zero) }
    }
}

/// Lengths remembered: full packets and last packets of two peers.
const LENS: usize = 4;
/// Bits of the Identifications of a run.
const BITS: usize = 7;
/// Shortest packet in bytes: BTH and ICRC.
const LEN_MIN: usize = BTH_LEN + ICRC_LEN;

#[cfg(test)]
mod tests {

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_front_is_for_packets_of_its_length() {
        let end = SocketAddr::from(([10, 0, 0, 1], 4791));
        let flow = IcrcFlow::new(end, end);
        let front = flow.of_len(64).expect("short enough");
        let mut packet = [5; 64];
        front.seal(&mut packet).expect("of this length");
        assert_eq!((flow.verify(&packet), front.verify(&packet)), (Ok(()), Ok(())));
        assert_eq!(packet[MARKS_AT], 5, "marks stay as they are");
        let other = Err(PacketError::Length { expected: 64, found: 60 });
        assert_eq!((front.seal(&mut packet[..60]), front.verify(&packet[..60])), (other, other));
    }

    proptest! {
        #[test]
        fn one_xor_is_as_good_as_sealing_again(
            bytes in proptest::collection::vec(any::<u8>(), LEN_MIN..2000),
            ip in any::<[u8; 4]>(),
            ids in proptest::collection::vec(0..=Renumber::ID_MAX, 1..8),
        ) {
            let flow = IcrcFlow::new((ip, 4791).into(), ([127, 0, 0, 1], 4791).into());
            let mut renumber = Renumber::default();
            for id in ids {
                let mut packet = bytes.clone();
                flow.seal(&mut packet).unwrap();
                renumber.apply(&mut packet, id);
                let numbered = flow.with_ip_id(u16::try_from(id).unwrap());
                prop_assert!(numbered.verify(&packet).is_ok());
                prop_assert_eq!(flow.verify(&packet).is_ok(), id == 0);
                renumber.apply(&mut packet, id);
                prop_assert!(flow.verify(&packet).is_ok());
            }
        }

        #[test]
        fn any_length_is_answered(len in 0_usize..LEN_MIN, id in 0_usize..300) {
            let mut packet = vec![1; len];
            Renumber::default().apply(&mut packet, id);
            prop_assert_eq!(packet, vec![1; len]);
        }
    }
}
