//! Names of nodes, processes and bytes: EID, UASID, UBVA.
//!
//! *Owns*: the 16-byte endpoint id, its text forms, the 28-byte address codec. *Takes*: text and
//! bytes of any source. *Gives*: values in network byte order. *Must not*: resolve names.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

/// Endpoint id of a node: 16 bytes in network order, either an IPv4-mapped or an IPv6 address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Eid([u8; 16]);

impl Eid {
    /// The EID with these bytes, first byte first on the wire.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The IPv4-mapped EID of an address given as a number: `0xc0a8_0164` is 192.168.1.100.
    #[must_use]
    pub const fn from_u32(ipv4: u32) -> Self {
        Self(Ipv4Addr::from_bits(ipv4).to_ipv6_mapped().octets())
    }

    /// Its bytes, network order.
    #[must_use]
    pub const fn bytes(&self) -> [u8; 16] {
        self.0
    }

    /// All bytes zero: names no node.
    #[must_use]
    pub const fn is_unspecified(&self) -> bool {
        u128::from_be_bytes(self.0) == 0
    }

    /// Of the form `::ffff:a.b.c.d`.
    #[must_use]
    pub const fn is_ipv4_mapped(&self) -> bool {
        u128::from_be_bytes(self.0) >> 32 == 0xffff
    }

    /// The IPv4 address of a mapped EID.
    #[must_use]
    pub const fn to_ipv4(&self) -> Option<Ipv4Addr> {
        Ipv6Addr::from_bits(u128::from_be_bytes(self.0)).to_ipv4_mapped()
    }

    /// 127.0.0.0/8 in the mapped form, or `::1`.
    #[must_use]
    pub const fn is_loopback(&self) -> bool {
        match self.to_ipv4() {
            Some(v4) => v4.is_loopback(),
            None => u128::from_be_bytes(self.0) == 1,
        }
    }

    /// The loopback EID `127.<low 24 bits of host>`, for nodes of one machine.
    #[must_use]
    pub const fn loopback(host: u32) -> Self {
        Self::from_u32(127 << 24 | host & 0x00ff_ffff)
    }

    /// The address as the network stack takes it: IPv4 for mapped EIDs, else IPv6.
    #[must_use]
    pub const fn to_ip(&self) -> IpAddr {
        match self.to_ipv4() {
            Some(v4) => IpAddr::V4(v4),
            None => IpAddr::V6(Ipv6Addr::from_bits(u128::from_be_bytes(self.0))),
        }
    }

    /// Eight groups of two bytes, lower case, zero-padded, as URMA's `EID_FMT` prints.
    #[must_use]
    pub const fn groups(&self) -> EidGroups {
        EidGroups(*self)
    }
}

/// An EID that displays as `EID_FMT` does; see [`Eid::groups`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EidGroups(Eid);

impl fmt::Display for EidGroups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, pair) in self.0.0.chunks_exact(2).enumerate() {
            let colon = if index == 0 { "" } else { ":" };
            write!(f, "{colon}{:02x}{:02x}", pair[0], pair[1])?;
        }
        Ok(())
    }
}

/// Dotted for IPv4-mapped EIDs, else the shortest IPv6 text. [`FromStr`] takes it back.
impl fmt::Display for Eid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_ip().fmt(f)
    }
}

impl fmt::Debug for Eid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Eid({self})")
    }
}

/// Text that is no EID.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "not an EID; give a dotted IPv4 address, an IPv6 address or eight groups of four hex digits"
)]
pub struct EidError;

impl FromStr for Eid {
    type Err = EidError;

    /// Takes dotted IPv4 (becomes IPv4-mapped), IPv6 text, the eight groups of `EID_FMT`, and an
    /// IPv4 address as one number in hex (`0xc0a80164`).
    fn from_str(text: &str) -> Result<Self, EidError> {
        match text.strip_prefix("0x") {
            // `from_str_radix` takes a sign, an EID does not.
            Some(hex) if hex.bytes().all(|digit| digit.is_ascii_hexdigit()) => {
                u32::from_str_radix(hex, 16).map(Self::from_u32).map_err(|_| EidError)
            }
            Some(_) => Err(EidError),
            None => text.parse::<IpAddr>().map(Self::from).map_err(|_| EidError),
        }
    }
}

impl From<IpAddr> for Eid {
    fn from(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(v4) => Self(v4.to_ipv6_mapped().octets()),
            IpAddr::V6(v6) => Self(v6.octets()),
        }
    }
}

impl From<Ipv4Addr> for Eid {
    fn from(ip: Ipv4Addr) -> Self {
        Self(ip.to_ipv6_mapped().octets())
    }
}

impl From<[u8; 16]> for Eid {
    fn from(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }
}

/// User address space id: which process of a node.
pub type Uasid = u32;

/// Unified bus virtual address: a byte of a process of a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Ubva {
    /// EID of the node that has the memory.
    pub eid: Eid,
    /// Process of the node whose address space `va` belongs to.
    pub uasid: Uasid,
    /// The address in it.
    pub va: u64,
}

impl Ubva {
    /// Bytes of the packed form.
    pub const LEN: usize = 28;

    /// The packed form of `urma_ubva_t` on a little-endian machine: EID bytes in network order,
    /// then UASID and address, both little-endian.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..16].copy_from_slice(&self.eid.0);
        bytes[16..20].copy_from_slice(&self.uasid.to_le_bytes());
        bytes[20..].copy_from_slice(&self.va.to_le_bytes());
        bytes
    }

    /// The inverse of [`Ubva::to_bytes`]; every 28 bytes are an address.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; Self::LEN]) -> Self {
        let (mut eid, mut uasid, mut va) = ([0; 16], [0; 4], [0; 8]);
        eid.copy_from_slice(&bytes[..16]);
        uasid.copy_from_slice(&bytes[16..20]);
        va.copy_from_slice(&bytes[20..]);
        Self { eid: Eid(eid), uasid: u32::from_le_bytes(uasid), va: u64::from_le_bytes(va) }
    }
}

/// Formats as `eid/uasid/0xva`, with the address in hexadecimal.
impl fmt::Display for Ubva {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{:#x}", self.eid, self.uasid, self.va)
    }
}
