//! Making and ending a TP: the bodies of CONNECT, CHALLENGE, ACCEPT, REFUSE and CLOSE.
//!
//! - owns: their layouts and the bounds of what may be agreed on.
//! - takes: bytes or values. gives: the other. must not: hold the state of a TP.

use std::net::{IpAddr, Ipv6Addr};

use zerocopy::byteorder::network_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::codec::{Reader, Writer, reserved, wire_enum};
use crate::{Mtu, PacketError, Psn, Tpn, WireEid};

bitflags::bitflags! {
    /// Transport strategies that a node offers, or the one that was chosen.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct StrategyCaps: u32 {
        /// Go-back-N: out-of-order packets are dropped and NAKed.
        const GO_BACK_N = 1;
        /// Selective repeat with bitmaps.
        const SELECTIVE_REPEAT = 2;
        /// The knitting receiver, which reports each loss.
        const KNITTING = 4;
        /// As IRN does it: each packet is acknowledged, each hole is sent again once before a timeout.
        const IRN = 8;
        /// The Adamap design: losses are reported by node.
        const SEED = 16;
    }
}

/// Most packets in flight on a TP: well below half the PSN space.
pub const WINDOW_MAX: u32 = 1 << 16;

/// Body of CONNECT (an offer) and of ACCEPT (what was chosen from it).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandshakeBody {
    /// Lowest wire version spoken.
    pub version_min: u8,
    /// Highest wire version spoken; in ACCEPT equal to the lowest.
    pub version_max: u8,
    /// Largest path MTU; in ACCEPT the one used, not above the offer.
    pub mtu: Mtu,
    /// Strategies offered; in ACCEPT exactly one.
    pub strategies: StrategyCaps,
    /// Incarnation of the node that sends this: another one after every restart.
    pub incarnation: u64,
    /// EID of the node that sends this.
    pub source_eid: WireEid,
    /// EID of the node it is for.
    pub dest_eid: WireEid,
    /// The sender's TPN: DestQP of packets that it is to receive. Never 0.
    pub source_tpn: Tpn,
    /// PSN of the first data packet that the sender will send; random.
    pub first_psn: Psn,
    /// Packets that the sender can take before it acknowledges, 1..=[`WINDOW_MAX`].
    pub window: u32,
    /// UASID of the sender.
    pub source_uasid: u32,
    /// UASID of the other end; 0 when not known yet.
    pub dest_uasid: u32,
    /// Identifies the state that the sender has of the pair of nodes; never 0. Another one than
    /// before: the sender forgot every sequence.
    pub state: u32,
    /// Random number of the connecting side, repeated in CHALLENGE, ACCEPT and REFUSE: a sender
    /// that did not receive it cannot answer in the peer's place.
    pub nonce: u64,
    /// Random number of the sender of this packet, shown in its CLOSE.
    pub close_key: u64,
    /// What CONNECT asks for; in ACCEPT [`Purpose::Open`].
    pub purpose: Purpose,
    /// CONNECT: cookie of the latest CHALLENGE, 0 before the first one; in ACCEPT 0.
    pub cookie: Cookie,
    /// Further addresses at which the node that sends this receives.
    pub ports: FurtherPorts,
}

/// Most addresses of a node beside its EID.
pub const FURTHER_PORTS_MAX: usize = 3;

/// Addresses of a node beside the one that is its EID, in the node's order of preference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FurtherPorts {
    /// Those that are none are 0, behind the others.
    addresses: [WireEid; FURTHER_PORTS_MAX],
}

/// Why addresses are not possible as [`FurtherPorts`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WrongPorts {
    /// There are so many.
    #[error("{0} addresses beside the EID: a node has at most {FURTHER_PORTS_MAX}")]
    TooMany(usize),
    /// It is unspecified, or one of several nodes (multicast, broadcast).
    #[error("{0} is not the address of one node")]
    NotOfOne(IpAddr),
    /// It is there more than once.
    #[error("{0} is named twice: each port has an address of its own")]
    Twice(IpAddr),
    /// It follows an unspecified one.
    #[error("{0} follows a gap")]
    BehindGap(IpAddr),
}

impl FurtherPorts {
    /// The addresses given.
    ///
    /// # Errors
    /// [`WrongPorts`].
    pub fn new(given: &[WireEid]) -> Result<Self, WrongPorts> {
        let mut addresses = [WireEid::default(); FURTHER_PORTS_MAX];
        let places = addresses.get_mut(..given.len()).ok_or(WrongPorts::TooMany(given.len()))?;
        places.copy_from_slice(given);
        let ports = Self { addresses };
        ports.check()?;
        match given.get(ports.iter().count()) {
            Some(unspecified) => Err(WrongPorts::NotOfOne(ip(*unspecified))),
            None => Ok(ports),
        }
    }

    /// The addresses, in order.
    pub fn iter(&self) -> impl Iterator<Item = WireEid> + '_ {
        self.addresses.iter().copied().take_while(|address| *address != WireEid::default())
    }

    /// The address at `at`, from 0 on, if there are so many.
    #[must_use]
    pub fn get(&self, at: usize) -> Option<WireEid> {
        self.iter().nth(at)
    }

    /// Number of addresses beside the EID.
    #[must_use]
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Checks that each is that of one node, none is there twice, and none follows a 0.
    fn check(&self) -> Result<(), WrongPorts> {
        let (used, unused) = self.addresses.split_at(self.len());
        let is_of_one = |address: &WireEid| match ip(*address) {
            IpAddr::V4(v4) => !v4.is_multicast() && !v4.is_broadcast() && !v4.is_unspecified(),
            IpAddr::V6(v6) => !v6.is_multicast(),
        };
        let gap = unused.iter().find(|address| **address != WireEid::default());
        let shared = used.iter().find(|address| !is_of_one(address));
        let twice = (0..used.len()).find(|at| used[..*at].contains(&used[*at]));
        let wrong = (gap.map(|address| WrongPorts::BehindGap(ip(*address))))
            .or_else(|| shared.map(|address| WrongPorts::NotOfOne(ip(*address))))
            .or_else(|| twice.map(|at| WrongPorts::Twice(ip(used[at]))));
        wrong.map_or(Ok(()), Err)
    }
}

/// The IP address that an EID is.
fn ip(eid: WireEid) -> IpAddr {
    Ipv6Addr::from(eid).to_canonical()
}

/// What a CHALLENGE carries and the next CONNECT repeats: 16 bytes that only their maker can check.
pub type Cookie = [u8; 16];

/// What a CONNECT asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A new TP, or the answer to the same CONNECT again.
    Open,
    /// Whether the peer still holds the TP of these numbers; makes none.
    Verify,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct HandshakeWire {
    version_min: u8,
    version_max: u8,
    mtu: u8,
    purpose: u8,
    strategies: U32,
    incarnation: U64,
    source_eid: WireEid,
    dest_eid: WireEid,
    source_tpn: U32,
    first_psn: U32,
    window: U32,
    source_uasid: U32,
    dest_uasid: U32,
    state: U32,
    nonce: U64,
    close_key: U64,
    cookie: Cookie,
    ports: [WireEid; FURTHER_PORTS_MAX],
}

impl HandshakeBody {
    /// Bytes of the body.
    pub const LEN: usize = size_of::<HandshakeWire>();

    pub(crate) fn take(reader: &mut Reader<'_>) -> Result<Self, PacketError> {
        let wire: &HandshakeWire = reader.take()?;
        reserved("TPCETH", u32::from(wire.purpose >> 1))?;
        reserved("TPCETH", wire.first_psn.get() >> 24)?;
        let caps = wire.strategies.get();
        let strategies = StrategyCaps::from_bits(caps)
            .ok_or(PacketError::Reserved { header: "TPCETH", value: caps })?;
        Ok(Self {
            version_min: wire.version_min,
            version_max: wire.version_max,
            mtu: Mtu::from_code(wire.mtu)?,
            strategies,
            incarnation: wire.incarnation.get(),
            source_eid: wire.source_eid,
            dest_eid: wire.dest_eid,
            source_tpn: Tpn::parse(wire.source_tpn.get())?,
            first_psn: Psn::new(wire.first_psn.get()),
            window: wire.window.get(),
            source_uasid: wire.source_uasid.get(),
            dest_uasid: wire.dest_uasid.get(),
            state: wire.state.get(),
            nonce: wire.nonce.get(),
            close_key: wire.close_key.get(),
            purpose: if wire.purpose == 0 { Purpose::Open } else { Purpose::Verify },
            cookie: wire.cookie,
            ports: FurtherPorts { addresses: wire.ports },
        })
    }

    /// The body as it travels: for what is computed over it.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        zerocopy::transmute!(self.to_wire())
    }

    pub(crate) fn put(&self, writer: &mut Writer<'_>) -> Result<(), PacketError> {
        writer.put(&self.to_wire())
    }

    fn to_wire(self) -> HandshakeWire {
        HandshakeWire {
            version_min: self.version_min,
            version_max: self.version_max,
            mtu: self.mtu.code(),
            purpose: u8::from(self.purpose == Purpose::Verify),
            strategies: U32::new(self.strategies.bits()),
            incarnation: U64::new(self.incarnation),
            source_eid: self.source_eid,
            dest_eid: self.dest_eid,
            source_tpn: U32::new(self.source_tpn.value()),
            first_psn: U32::new(self.first_psn.value()),
            window: U32::new(self.window),
            source_uasid: U32::new(self.source_uasid),
            dest_uasid: U32::new(self.dest_uasid),
            state: U32::new(self.state),
            nonce: U64::new(self.nonce),
            close_key: U64::new(self.close_key),
            cookie: self.cookie,
            ports: self.ports.addresses,
        }
    }

    /// Rules of an offer.
    pub(crate) fn check_offer(&self) -> Result<(), PacketError> {
        check_versions(self.version_min, self.version_max)?;
        if self.strategies.is_empty() {
            return Err(PacketError::field("strategies", 0));
        }
        if self.source_tpn.value() == 0 {
            return Err(PacketError::field("TPN", 0));
        }
        if self.state == 0 {
            return Err(PacketError::field("state", 0));
        }
        if self.window == 0 || self.window > WINDOW_MAX {
            return Err(PacketError::field("window", self.window.into()));
        }
        if self.ports.check().is_err() {
            return Err(PacketError::field("ports", 0));
        }
        Ok(())
    }

    /// Rules of a choice: an offer that leaves nothing open.
    pub(crate) fn check_choice(&self) -> Result<(), PacketError> {
        self.check_offer()?;
        if self.version_min != self.version_max {
            return Err(PacketError::Version(self.version_max));
        }
        if self.strategies.bits().count_ones() != 1 {
            return Err(PacketError::field("strategies", self.strategies.bits().into()));
        }
        if self.purpose != Purpose::Open {
            return Err(PacketError::field("purpose", 1));
        }
        if self.cookie != Cookie::default() {
            return Err(PacketError::field("cookie", 1));
        }
        Ok(())
    }
}

fn check_versions(min: u8, max: u8) -> Result<(), PacketError> {
    // TVer has four bits, and 0 is the standard family.
    if min == 0 || min > max || max > 15 {
        return Err(PacketError::Version(max));
    }
    Ok(())
}

wire_enum! {
    /// Why no TP was made.
    RefuseReason, "refuse reason" {
        /// No wire version in common.
        Version = 1,
        /// The EID asked for does not live here.
        UnknownEid = 2,
        /// Out of TPs or memory; may be tried again.
        Resources = 3,
        /// No strategy in common, or another parameter that cannot be met.
        Parameters = 4,
        /// The configuration of the node forbids a TP with this peer.
        Policy = 5,
        /// The TP asked about is not held here.
        NoTp = 6,
    }
}

/// Body of REFUSE: why there is no TP, and what would be accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RefuseBody {
    /// Reason why the CONNECT is refused.
    pub reason: RefuseReason,
    /// Lowest wire version spoken by the refusing side.
    pub version_min: u8,
    /// Highest wire version spoken by the refusing side.
    pub version_max: u8,
    /// Names what the refusing side has of the pair of nodes; 0: nothing.
    pub state: u32,
    /// Nonce of the CONNECT refused.
    pub nonce: u64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RefusalWire {
    reason: u8,
    version_min: u8,
    version_max: u8,
    rsv: u8,
    state: U32,
    nonce: U64,
}

impl RefuseBody {
    /// Bytes of the body.
    pub const LEN: usize = size_of::<RefusalWire>();

    pub(crate) fn take(reader: &mut Reader<'_>) -> Result<Self, PacketError> {
        let wire: &RefusalWire = reader.take()?;
        reserved("TPRETH", u32::from(wire.rsv))?;
        Ok(Self {
            reason: RefuseReason::from_code(wire.reason)?,
            version_min: wire.version_min,
            version_max: wire.version_max,
            state: wire.state.get(),
            nonce: wire.nonce.get(),
        })
    }

    pub(crate) fn put(&self, writer: &mut Writer<'_>) -> Result<(), PacketError> {
        writer.put(&RefusalWire {
            reason: self.reason.code(),
            version_min: self.version_min,
            version_max: self.version_max,
            rsv: 0,
            state: U32::new(self.state),
            nonce: U64::new(self.nonce),
        })
    }

    pub(crate) fn check(&self) -> Result<(), PacketError> {
        check_versions(self.version_min, self.version_max)
    }
}

/// Body of CHALLENGE: to be repeated by the CONNECT of the same nonce.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Challenge {
    /// Nonce of the CONNECT challenged.
    pub nonce: u64,
    /// What the next CONNECT is to show.
    pub cookie: Cookie,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct ChallengeWire {
    nonce: U64,
    cookie: Cookie,
}

impl Challenge {
    /// Bytes of the body: fewer than those of CONNECT, so that a forged source address is sent less
    /// than it cost to forge.
    pub const LEN: usize = size_of::<ChallengeWire>();

    pub(crate) fn take(reader: &mut Reader<'_>) -> Result<Self, PacketError> {
        let wire: &ChallengeWire = reader.take()?;
        Ok(Self { nonce: wire.nonce.get(), cookie: wire.cookie })
    }

    pub(crate) fn put(&self, writer: &mut Writer<'_>) -> Result<(), PacketError> {
        writer.put(&ChallengeWire { nonce: U64::new(self.nonce), cookie: self.cookie })
    }
}

wire_enum! {
    /// Why a TP ends.
    CloseReason, "close reason" {
        /// The node goes away.
        Shutdown = 1,
        /// No queue used the TP for the idle time.
        Idle = 2,
        /// A packet came for a TPN that does not exist (a restart, mostly). No proof: the receiver
        /// asks the peer.
        UnknownTp = 3,
        /// The peer broke the protocol.
        Protocol = 4,
        /// A newer TP takes its place.
        Replaced = 5,
        /// The retries of a packet were used up.
        Timeout = 6,
    }
}

/// Body of CLOSE: why a TP ends, with the key that proves its sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Close {
    /// Reason why the TP ends.
    pub reason: CloseReason,
    /// TPN at the side that sends this, as the peer puts it into DestQP. With reason `UnknownTp`
    /// BTH.DestQP is 0, since the sender does not have the peer's number.
    pub source_tpn: Tpn,
    /// Close key that the sender of this gave in its CONNECT or ACCEPT; 0 with reason `UnknownTp`.
    pub key: u64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct CloseWire {
    reason: u8,
    rsv: [u8; 3],
    source_tpn: U32,
    key: U64,
}

impl Close {
    /// Bytes of the body.
    pub const LEN: usize = size_of::<CloseWire>();

    pub(crate) fn take(reader: &mut Reader<'_>) -> Result<Self, PacketError> {
        let wire: &CloseWire = reader.take()?;
        reserved("TPXETH", crate::codec::from_be24(wire.rsv))?;
        Ok(Self {
            reason: CloseReason::from_code(wire.reason)?,
            source_tpn: Tpn::parse(wire.source_tpn.get())?,
            key: wire.key.get(),
        })
    }

    pub(crate) fn put(&self, writer: &mut Writer<'_>) -> Result<(), PacketError> {
        writer.put(&CloseWire {
            reason: self.reason.code(),
            rsv: [0; 3],
            source_tpn: U32::new(self.source_tpn.value()),
            key: U64::new(self.key),
        })
    }
}

const _: () = assert!(HandshakeBody::LEN == 152 && RefuseBody::LEN == 16 && Close::LEN == 16);
const _: () = assert!(Challenge::LEN < HandshakeBody::LEN);
