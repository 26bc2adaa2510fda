//! What knitting TPs say of losses and repair: REPETH, TPLETH, TPTETH, TPFETH, and code words.
//!
//! Layouts, the counts and numbers that exist, and which bytes of a packet of data the code covers. Which packets
//! were sent, and the code itself, are not known here.

use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
    byteorder::network_endian::{U16, U32},
};

use super::{
    handshake::WINDOW_MAX,
    opcode::{PKEY, WIRE_VERSION},
};
use crate::{
    BTH_LEN, Bth, Congestion, ICRC_LEN, Mtu, PacketError, Psn, Tpn,
    bth::REPEATED,
    codec::{Reader, Writer, from_be24, reserved, to_be24},
};

/// Most runs of a report.
pub const LOSS_RUNS_MAX: usize = 16;
/// Highest number of a tier.
const TIER_MAX: u8 = 2;
/// Byte of a BTH that has the bit of REPETH.
const REPEATED_AT: usize = 8;

/// REPETH: which loss report a packet answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Repeat {
    /// 1: the packet was reported once, 2: more often.
    pub tier: u8,
    /// Ticket of the run that named it, 24 bits; 0 in tier 1.
    pub ticket: u32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RepeatWire {
    tier: u8,
    ticket: [u8; 3],
}

impl Repeat {
    /// Bytes of the header.
    pub const LEN: usize = size_of::<RepeatWire>();

    pub(crate) fn take(reader: &mut Reader<'_>) -> Result<Self, PacketError> {
        let wire: &RepeatWire = reader.take()?;
        let repeat = Self { tier: wire.tier, ticket: from_be24(wire.ticket) };
        check_tier(repeat.tier, repeat.ticket)?;
        Ok(repeat)
    }

    pub(crate) fn put(&self, writer: &mut Writer<'_>) -> Result<(), PacketError> {
        check_tier(self.tier, self.ticket)?;
        writer.put(&RepeatWire { tier: self.tier, ticket: to_be24(self.ticket) })
    }
}

/// Only runs of tier 2 have tickets.
fn check_tier(tier: u8, ticket: u32) -> Result<(), PacketError> {
    match tier {
        1 if ticket == 0 => Ok(()),
        TIER_MAX if ticket >> 24 == 0 => Ok(()),
        1 | TIER_MAX => Err(PacketError::field("Ticket", ticket.into())),
        _ => Err(PacketError::field("Tier", tier.into())),
    }
}

/// Writes `packet`, an unsealed packet of data, with a REPETH to the front of `buf`; its length, `None` when `buf`
/// is too short or there is no such tier.
#[must_use]
pub fn repeat_packet(packet: &[u8], repeat: Repeat, buf: &mut [u8]) -> Option<usize> {
    let (bth, body) = packet.split_at_checked(BTH_LEN)?;
    let len = packet.len() + Repeat::LEN;
    let (head, rest) = buf.get_mut(..len)?.split_at_mut(BTH_LEN);
    let (header, place) = rest.split_at_mut(Repeat::LEN);
    head.copy_from_slice(bth);
    head[REPEATED_AT] |= REPEATED;
    repeat.put(&mut Writer::new(header)).ok()?;
    place.copy_from_slice(body);
    Some(len)
}

/// Consecutive packets that are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MissingRun {
    /// PSN of the first one.
    pub start: Psn,
    /// Number of them, from 1 to [`WINDOW_MAX`].
    pub count: u32,
}

/// TPLETH: packets that a receiver found missing, in the order in which it expects them again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReportBody {
    /// Transmission that was lost: 1 is the first one, 2 any later one.
    pub tier: u8,
    /// Number of the first run in the receiver's list of later losses, 24 bits, of others it follows; 0 in tier 1.
    pub ticket: u32,
    runs: [MissingRun; LOSS_RUNS_MAX],
    len: u8,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct LossesWire {
    runs: u8,
    tier: u8,
    rsv: U16,
    ticket: U32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RunWire {
    start: U32,
    count: U32,
}

impl ReportBody {
    /// A report of these runs, at most [`LOSS_RUNS_MAX`].
    #[must_use]
    pub fn new(tier: u8, ticket: u32, runs: &[MissingRun]) -> Option<Self> {
        let mut all = [MissingRun::default(); LOSS_RUNS_MAX];
        all.get_mut(..runs.len())?.copy_from_slice(runs);
        Some(Self { tier, ticket, runs: all, len: u8::try_from(runs.len()).ok()? })
    }

    /// The runs in order.
    #[must_use]
    pub fn runs(&self) -> &[MissingRun] {
        &self.runs[..usize::from(self.len)]
    }

    pub(crate) const fn wire_len(&self) -> usize {
        size_of::<LossesWire>() + size_of::<RunWire>() * self.len as usize
    }

    pub(crate) fn take(reader: &mut Reader<'_>) -> Result<Self, PacketError> {
        let wire: &LossesWire = reader.take()?;
        reserved("TPLETH", wire.rsv.get().into())?;
        let mut runs = [MissingRun::default(); LOSS_RUNS_MAX];
        let too_many = PacketError::field("Runs", wire.runs.into());
        for run in runs.get_mut(..usize::from(wire.runs)).ok_or(too_many)? {
            let wire: &RunWire = reader.take()?;
            reserved("TPLETH", wire.start.get() >> 24)?;
            *run = MissingRun { start: Psn::new(wire.start.get()), count: wire.count.get() };
        }
        Ok(Self { tier: wire.tier, ticket: wire.ticket.get(), runs, len: wire.runs })
    }

    pub(crate) fn put(&self, writer: &mut Writer<'_>) -> Result<(), PacketError> {
        let (tier, ticket) = (self.tier, U32::new(self.ticket));
        writer.put(&LossesWire { runs: self.len, tier, rsv: U16::ZERO, ticket })?;
        self.runs().iter().try_for_each(|run| {
            let (start, count) = (U32::new(run.start.value()), U32::new(run.count));
            writer.put(&RunWire { start, count })
        })
    }

    pub(crate) fn check(&self) -> Result<(), PacketError> {
        check_tier(self.tier, self.ticket)?;
        if self.len == 0 {
            return Err(PacketError::field("Runs", 0));
        }
        let mut total = 0_u64;
        for run in self.runs() {
            total += u64::from(run.count);
            if run.count == 0 || total > WINDOW_MAX.into() {
                return Err(PacketError::field("Count", run.count.into()));
            }
        }
        Ok(())
    }
}

/// TPTETH: what was on the path before a sender had nothing more to send. All packets before BTH.PSN were sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TailBody {
    /// All packets before this one that were reported as lost once were sent again.
    pub first_end: Psn,
    /// All tickets before this one were answered, 24 bits.
    pub ticket_end: u32,
    /// Smoothed round-trip time of the sender, in ns; 0: not known; 2^32 - 1: that or more.
    pub rtt_ns: u32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct TailWire {
    first_end: U32,
    ticket_end: U32,
    rtt_ns: U32,
}

impl TailBody {
    /// Bytes of the header.
    pub const LEN: usize = size_of::<TailWire>();

    pub(crate) fn take(reader: &mut Reader<'_>) -> Result<Self, PacketError> {
        let wire: &TailWire = reader.take()?;
        reserved("TPTETH", wire.first_end.get() >> 24 | wire.ticket_end.get() >> 24)?;
        Ok(Self {
            first_end: Psn::new(wire.first_end.get()),
            ticket_end: wire.ticket_end.get(),
            rtt_ns: wire.rtt_ns.get(),
        })
    }

    pub(crate) fn put(&self, writer: &mut Writer<'_>) -> Result<(), PacketError> {
        writer.put(&TailWire {
            first_end: U32::new(self.first_end.value()),
            ticket_end: U32::new(self.ticket_end & 0x00ff_ffff),
            rtt_ns: U32::new(self.rtt_ns),
        })
    }
}

/// Most packets of a group.
pub const REPAIR_GROUP_MAX: u32 = 200;
/// Most repair packets of a group.
pub const REPAIR_NUMBERS: u8 = 56;
/// Bytes of headers and payload of a packet that a repair packet may stand for, at most, beside the payload.
const CODED_OVERHEAD: usize = 128;

/// TPFETH: which packets a repair packet stands for. BTH.PSN is the first packet of the range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RepairBody {
    /// Distance of the last packet of the range from the first.
    pub last: u16,
    /// Distance of the first packet that the code covers from the first of the range.
    pub begin: u16,
    /// Groups of the range: packet i is of group i modulo that.
    pub groups: u16,
    /// Group that it repairs.
    pub group: u16,
    /// Its number among the repair packets of the group.
    pub number: u8,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RepairWire {
    last: U16,
    begin: U16,
    groups: U16,
    group: U16,
    number: u8,
    rsv: [u8; 3],
}

impl RepairBody {
    /// Bytes of the header.
    pub const LEN: usize = size_of::<RepairWire>();

    pub(crate) fn take(reader: &mut Reader<'_>) -> Result<Self, PacketError> {
        let wire: &RepairWire = reader.take()?;
        reserved("TPFETH", u32::from(wire.rsv.iter().any(|&byte| byte != 0)))?;
        Ok(Self {
            last: wire.last.get(),
            begin: wire.begin.get(),
            groups: wire.groups.get(),
            group: wire.group.get(),
            number: wire.number,
        })
    }

    pub(crate) fn put(&self, writer: &mut Writer<'_>) -> Result<(), PacketError> {
        writer.put(&RepairWire {
            last: U16::new(self.last),
            begin: U16::new(self.begin),
            groups: U16::new(self.groups),
            group: U16::new(self.group),
            number: self.number,
            rsv: [0; 3],
        })
    }

    pub(crate) fn check(&self) -> Result<(), PacketError> {
        let packets = u32::from(self.last) + 1;
        if self.groups == 0 || packets.div_ceil(self.groups.into()) > REPAIR_GROUP_MAX {
            return Err(PacketError::field("Groups", self.groups.into()));
        }
        if self.group >= self.groups || u32::from(self.group) >= packets {
            return Err(PacketError::field("Group", self.group.into()));
        }
        if self.begin > self.last {
            return Err(PacketError::field("Begin", self.begin.into()));
        }
        if self.number >= REPAIR_NUMBERS {
            return Err(PacketError::field("Number", self.number.into()));
        }
        Ok(())
    }

    /// A code word is whole words, longer than nothing and no longer than any packet.
    pub(crate) const fn check_payload(len: usize) -> Result<(), PacketError> {
        let expected = Mtu::MAX.bytes() + CODED_OVERHEAD;
        if len > 0 && len <= expected && len.is_multiple_of(4) {
            Ok(())
        } else {
            Err(PacketError::Length { expected, found: len })
        }
    }
}

/// Bytes of a code word before the body of its packet.
pub const WORD_HEAD: usize = 4;

/// What the code covers of `packet`, an unsealed packet of data without REPETH: opcode, pad and length of the body, then
/// the body, which is all between BTH and ICRC. `None`: it is too short for a packet.
#[must_use]
pub fn code_word(packet: &[u8]) -> Option<([u8; WORD_HEAD], &[u8])> {
    let body = packet.get(BTH_LEN..packet.len().checked_sub(ICRC_LEN)?)?;
    let [high, low] = u16::try_from(body.len()).ok()?.to_be_bytes();
    Some(([*packet.first()?, packet.get(1)? >> 4 & 3, high, low], body))
}

/// The unsealed packet of data whose code word, followed by zeros, this is; `None`: no packet has such a one.
#[must_use]
pub fn packet_of_word(word: &[u8], dest: Tpn, psn: Psn) -> Option<Vec<u8>> {
    let (&[opcode, pad, high, low], rest) = word.split_first_chunk()?;
    let (body, zeros) = rest.split_at_checked(u16::from_be_bytes([high, low]).into())?;
    if pad > 3 || zeros.iter().any(|&byte| byte != 0) {
        return None;
    }
    let bth = Bth {
        opcode,
        solicited: false,
        mig_req: false,
        pad,
        version: WIRE_VERSION,
        pkey: PKEY,
        congestion: Congestion { forward: false, backward: false },
        dest,
        ack_req: false,
        repeated: false,
        psn,
    };
    let mut packet = Vec::with_capacity(BTH_LEN + body.len() + ICRC_LEN);
    packet.extend_from_slice(bth.to_wire().as_bytes());
    packet.extend_from_slice(body);
    packet.resize(BTH_LEN + body.len() + ICRC_LEN, 0);
    Some(packet)
}
