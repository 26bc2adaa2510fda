//! Messages of the protocol to the types of [`inc::control`], and back.
//!
//! What comes from the other side is checked here: a missing part, a number out of range or an unknown code is an error that
//! names the field.

use std::net::{IpAddr, SocketAddr};

use inc::control::{
    ChunkReport, CommunicatorId, CurrentOperation, EdgeEnds, HostCommand, HostReport, InstallError,
    PartCounts, ResumePlan, SwitchCommand, SwitchReport, TreeLife, TreePart, TreeStart,
};
use inc::controller::{
    ControllerCall, GroupId, HostHello, JoinRequest, MemberTicket, SwitchCapacity, SwitchHello,
};
use inc::edge::{EdgeAttributes, EdgeEnd, Framing, MessageMode, Reliability, WriteWindow};
use inc::element::{ElementType, Operator, Reduction};
use inc::port::{EdgeTotals, StrayCounts};
use inc::slots::{Child, ChunkConflict, ChunkTimes, IncTime, SwitchCounts, To};
use inc::wire::{AbortReason, Collective, IncHeader, IncKind, Rank, Seq, TreeEpoch};
use urma_packet::{Psn, Tpn};

use crate::proto;

/// A message that means nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the field {0:?} is missing, or no value that it may have")]
pub struct ConversionError(pub &'static str);

type Converted<T> = Result<T, ConversionError>;

const MS: IncTime = 1_000_000;

const ALLREDUCE: u32 = 0;
const REDUCE: u32 = 1;
const BROADCAST: u32 = 2;
const BARRIER: u32 = 3;

trait Needed<T> {
    /// The value, or the name of the field that has none.
    fn needed(self, field: &'static str) -> Converted<T>;
}

impl<T> Needed<T> for Option<T> {
    fn needed(self, field: &'static str) -> Converted<T> {
        self.ok_or(ConversionError(field))
    }
}

impl<T, E> Needed<T> for Result<T, E> {
    fn needed(self, field: &'static str) -> Converted<T> {
        self.map_err(|_| ConversionError(field))
    }
}

pub(crate) fn u16_of(value: u32, field: &'static str) -> Converted<u16> {
    u16::try_from(value).needed(field)
}

pub(crate) fn address_of(text: &str) -> Converted<SocketAddr> {
    text.parse().needed("address")
}

impl From<TreeLife> for proto::TreeLife {
    fn from(life: TreeLife) -> Self {
        Self { communicator: life.communicator.0, epoch: u32::from(life.epoch.0) }
    }
}

impl TryFrom<proto::TreeLife> for TreeLife {
    type Error = ConversionError;

    fn try_from(life: proto::TreeLife) -> Converted<Self> {
        let epoch = TreeEpoch(u16_of(life.epoch, "epoch")?);
        Ok(Self { communicator: CommunicatorId(life.communicator), epoch })
    }
}

fn life_of(life: Option<proto::TreeLife>) -> Converted<TreeLife> {
    life.needed("life")?.try_into()
}

fn lives_of(lives: Vec<proto::TreeLife>) -> Converted<Vec<TreeLife>> {
    lives.into_iter().map(TreeLife::try_from).collect()
}

impl From<MemberTicket> for proto::Ticket {
    fn from(ticket: MemberTicket) -> Self {
        Self { group: ticket.group.0, rank: u32::from(ticket.rank.0), key: ticket.key }
    }
}

fn ticket_of(ticket: Option<proto::Ticket>) -> Converted<MemberTicket> {
    let ticket = ticket.needed("ticket")?;
    let rank = Rank(u16_of(ticket.rank, "rank")?);
    Ok(MemberTicket { group: GroupId(ticket.group), rank, key: ticket.key })
}

fn ip_of(text: &str) -> Converted<IpAddr> {
    text.parse().needed("address")
}

impl TryFrom<proto::HostHello> for HostHello {
    type Error = ConversionError;

    fn try_from(of: proto::HostHello) -> Converted<Self> {
        let (ticket, lives) = (ticket_of(of.ticket)?, lives_of(of.lives)?);
        Ok(Self { version: of.version, ticket, lives })
    }
}

/// The first message of a switch, whose session comes from the address `peer`.
///
/// # Errors
/// [`ConversionError`].
pub fn switch_hello_of(of: proto::SwitchHello, peer: Option<IpAddr>) -> Converted<SwitchHello> {
    let address = if of.address.is_empty() { peer.needed("address")? } else { ip_of(&of.address)? };
    Ok(SwitchHello {
        version: of.version,
        name: (!of.name.is_empty()).then_some(of.name),
        address,
        incarnation: of.incarnation,
        capacity: SwitchCapacity { memory: of.memory, communicators: of.communicators },
        lives: lives_of(of.lives)?,
    })
}

/// The call of a rank that joins; `key` is fresh randomness, for its ticket.
///
/// # Errors
/// [`ConversionError`].
pub fn join_of(of: proto::CreateGroupRequest, key: u64) -> Converted<ControllerCall> {
    Ok(ControllerCall::Join(JoinRequest {
        version: of.version,
        name: of.name,
        world_size: of.world_size,
        rank: of.rank,
        address: ip_of(&of.address)?,
        tenant: of.tenant,
        nonce: <[u8; 16]>::try_from(&of.nonce[..]).unwrap_or_default(),
        proof: of.proof,
        key,
        wait_ns: of.wait_ms.saturating_mul(MS),
    }))
}

impl TryFrom<proto::CreateCommunicatorRequest> for ControllerCall {
    type Error = ConversionError;

    fn try_from(of: proto::CreateCommunicatorRequest) -> Converted<Self> {
        Ok(Self::CreateCommunicator(
            ticket_of(of.ticket)?,
            of.attributes.needed("attributes")?.try_into()?,
            of.end.needed("end")?.try_into()?,
            of.wait_ms.saturating_mul(MS),
        ))
    }
}

impl TryFrom<proto::DestroyCommunicatorRequest> for ControllerCall {
    type Error = ConversionError;

    fn try_from(of: proto::DestroyCommunicatorRequest) -> Converted<Self> {
        let id = CommunicatorId(of.communicator);
        Ok(Self::DestroyCommunicator(ticket_of(of.ticket)?, id))
    }
}

impl TryFrom<proto::Ticket> for ControllerCall {
    type Error = ConversionError;

    fn try_from(of: proto::Ticket) -> Converted<Self> {
        Ok(Self::Leave(ticket_of(Some(of))?))
    }
}

impl From<Reduction> for proto::Reduction {
    fn from(reduction: Reduction) -> Self {
        Self {
            operator: u32::from(reduction.operator().code()),
            element: u32::from(reduction.element().code()),
        }
    }
}

fn element_of(code: u32) -> Converted<ElementType> {
    u8::try_from(code).ok().and_then(ElementType::from_code).needed("element")
}

fn reduction_of(operator: u32, element: u32) -> Converted<Reduction> {
    let operator = u8::try_from(operator).ok().and_then(Operator::from_code).needed("operator")?;
    Reduction::new(operator, element_of(element)?).needed("operator")
}

impl From<EdgeAttributes> for proto::EdgeAttributes {
    fn from(attributes: EdgeAttributes) -> Self {
        Self {
            unreliable: attributes.reliability == Reliability::Unreliable,
            write: attributes.mode == MessageMode::Write,
            plain: match attributes.framing {
                Framing::Inc => None,
                Framing::Plain(reduction) => Some(reduction.into()),
            },
            path_mtu: u32::from(attributes.path_mtu),
            packets: u32::from(attributes.packets),
            window: attributes.window,
            pkey: u32::from(attributes.pkey),
            no_fallback: !attributes.fallback,
            unordered: !attributes.is_ordered,
        }
    }
}

impl TryFrom<proto::EdgeAttributes> for EdgeAttributes {
    type Error = ConversionError;

    fn try_from(of: proto::EdgeAttributes) -> Converted<Self> {
        let reliability =
            if of.unreliable { Reliability::Unreliable } else { Reliability::Reliable };
        let attributes = Self {
            reliability,
            mode: if of.write { MessageMode::Write } else { MessageMode::Send },
            framing: match of.plain {
                None => Framing::Inc,
                Some(plain) => Framing::Plain(reduction_of(plain.operator, plain.element)?),
            },
            path_mtu: u16_of(of.path_mtu, "path_mtu")?,
            packets: u8::try_from(of.packets).needed("packets")?,
            window: of.window,
            pkey: u16_of(of.pkey, "pkey")?,
            fallback: !of.no_fallback,
            is_ordered: !of.unordered,
        };
        attributes.check().needed("attributes")?;
        Ok(attributes)
    }
}

impl From<EdgeEnd> for proto::EdgeEnd {
    fn from(end: EdgeEnd) -> Self {
        Self {
            address: end.address.to_string(),
            qpn: end.qpn.value(),
            first_psn: end.first_psn.value(),
            window_base: end.window.base,
            window_key: end.window.key,
        }
    }
}

impl TryFrom<proto::EdgeEnd> for EdgeEnd {
    type Error = ConversionError;

    fn try_from(end: proto::EdgeEnd) -> Converted<Self> {
        let first_psn = Psn::new(end.first_psn);
        if first_psn.value() != end.first_psn {
            return Err(ConversionError("first_psn"));
        }
        Ok(Self {
            address: address_of(&end.address)?,
            qpn: Tpn::new(end.qpn).needed("qpn")?,
            first_psn,
            window: WriteWindow { base: end.window_base, key: end.window_key },
        })
    }
}

impl From<EdgeEnds> for proto::EdgeEnds {
    fn from(ends: EdgeEnds) -> Self {
        let children = ends.children.into_iter().map(Into::into).collect();
        Self { children, parent: ends.parent.map(Into::into) }
    }
}

pub(crate) fn ends_of(ends: Option<proto::EdgeEnds>) -> Converted<EdgeEnds> {
    let ends = ends.needed("ends")?;
    let children = ends.children.into_iter().map(EdgeEnd::try_from).collect::<Result<_, _>>()?;
    Ok(EdgeEnds { children, parent: ends.parent.map(EdgeEnd::try_from).transpose()? })
}

impl From<(Child, SocketAddr)> for proto::TreeChild {
    fn from((child, address): (Child, SocketAddr)) -> Self {
        let is_switch = matches!(child, Child::Switch(_));
        let ranks = inc::topology::ranks(&child).into_iter().map(|rank| u32::from(rank.0));
        Self { ranks: ranks.collect(), is_switch, address: address.to_string() }
    }
}

pub(crate) fn child_of(child: proto::TreeChild) -> Converted<(Child, SocketAddr)> {
    let address = address_of(&child.address)?;
    let ranks = child.ranks.into_iter().map(|rank| u16_of(rank, "ranks").map(Rank));
    let ranks: Vec<_> = ranks.collect::<Result<_, _>>()?;
    let child = match (&ranks[..], child.is_switch) {
        (&[rank], false) => Child::Host(rank),
        (_, false) => return Err(ConversionError("ranks")),
        (_, true) => Child::Switch(ranks),
    };
    Ok((child, address))
}

impl From<TreePart> for proto::TreePart {
    fn from(part: TreePart) -> Self {
        Self {
            attributes: Some(part.attributes.into()),
            tenant: part.tenant,
            children: part.children.into_iter().map(Into::into).collect(),
            parent: part.parent.map_or_else(String::new, |address| address.to_string()),
        }
    }
}

fn part_of(part: Option<proto::TreePart>) -> Converted<TreePart> {
    let part = part.needed("part")?;
    let parent = (!part.parent.is_empty()).then(|| address_of(&part.parent)).transpose()?;
    Ok(TreePart {
        attributes: part.attributes.needed("attributes")?.try_into()?,
        tenant: part.tenant,
        children: part.children.into_iter().map(child_of).collect::<Result<_, _>>()?,
        parent,
    })
}

fn reason_to(reason: AbortReason) -> i32 {
    let reason = match reason {
        AbortReason::MemberDead => proto::AbortReason::MemberDead,
        AbortReason::Contradiction => proto::AbortReason::Contradiction,
        AbortReason::Quota => proto::AbortReason::Quota,
        AbortReason::EdgeDead => proto::AbortReason::EdgeDead,
        AbortReason::ShutDown => proto::AbortReason::ShutDown,
        AbortReason::Protocol => proto::AbortReason::Protocol,
    };
    reason.into()
}

fn reason_of(reason: i32) -> Converted<AbortReason> {
    Ok(match proto::AbortReason::try_from(reason).needed("reason")? {
        proto::AbortReason::Unspecified => return Err(ConversionError("reason")),
        proto::AbortReason::MemberDead => AbortReason::MemberDead,
        proto::AbortReason::Contradiction => AbortReason::Contradiction,
        proto::AbortReason::Quota => AbortReason::Quota,
        proto::AbortReason::EdgeDead => AbortReason::EdgeDead,
        proto::AbortReason::ShutDown => AbortReason::ShutDown,
        proto::AbortReason::Protocol => AbortReason::Protocol,
    })
}

impl From<SwitchCommand> for proto::SwitchCommand {
    fn from(command: SwitchCommand) -> Self {
        use proto::switch_command::{Abort, Command, Install, Start};
        let command = match command {
            SwitchCommand::Install(life, part) => {
                Command::Install(Install { life: Some(life.into()), part: Some(part.into()) })
            }
            SwitchCommand::Start(life, first, ends) => Command::Start(Start {
                life: Some(life.into()),
                first: first.0,
                ends: Some(ends.into()),
            }),
            SwitchCommand::Abort(communicator, reason) => {
                Command::Abort(Abort { communicator: communicator.0, reason: reason_to(reason) })
            }
            SwitchCommand::Remove(communicator) => Command::Remove(communicator.0),
        };
        Self { command: Some(command) }
    }
}

impl TryFrom<proto::SwitchCommand> for SwitchCommand {
    type Error = ConversionError;

    fn try_from(command: proto::SwitchCommand) -> Converted<Self> {
        use proto::switch_command::Command;
        Ok(match command.command.needed("command")? {
            Command::Install(of) => Self::Install(life_of(of.life)?, part_of(of.part)?),
            Command::Start(of) => Self::Start(life_of(of.life)?, Seq(of.first), ends_of(of.ends)?),
            Command::Abort(of) => {
                Self::Abort(CommunicatorId(of.communicator), reason_of(of.reason)?)
            }
            Command::Remove(communicator) => Self::Remove(CommunicatorId(communicator)),
        })
    }
}

impl From<Collective> for proto::Collective {
    fn from(collective: Collective) -> Self {
        let of = |kind, reduction: Reduction, root: Option<Rank>| Self {
            kind,
            operator: u32::from(reduction.operator().code()),
            element: u32::from(reduction.element().code()),
            root: root.map_or(0, |root| u32::from(root.0)),
        };
        match collective {
            Collective::Allreduce(reduction) => of(ALLREDUCE, reduction, None),
            Collective::Reduce(reduction, root) => of(REDUCE, reduction, Some(root)),
            Collective::Broadcast(element, root) => Self {
                kind: BROADCAST,
                operator: 0,
                element: u32::from(element.code()),
                root: u32::from(root.0),
            },
            Collective::Barrier => Self { kind: BARRIER, ..Self::default() },
        }
    }
}

fn collective_of(of: Option<proto::Collective>) -> Converted<Collective> {
    let of = of.needed("collective")?;
    let root = Rank(u16_of(of.root, "root")?);
    Ok(match of.kind {
        ALLREDUCE => Collective::Allreduce(reduction_of(of.operator, of.element)?),
        REDUCE => Collective::Reduce(reduction_of(of.operator, of.element)?, root),
        BROADCAST => Collective::Broadcast(element_of(of.element)?, root),
        BARRIER => Collective::Barrier,
        _ => return Err(ConversionError("kind")),
    })
}

fn header_to(header: IncHeader) -> proto::Header {
    let (kind, collective) = match header.kind {
        IncKind::Contribution(collective) => (1, Some(collective)),
        IncKind::Result(collective) => (2, Some(collective)),
        IncKind::Release(collective) => (3, Some(collective)),
        IncKind::Abort(_) => (0, None),
    };
    proto::Header {
        kind,
        collective: collective.map(Into::into),
        seq: header.seq.0,
        epoch: u32::from(header.epoch.0),
        op_id: u32::from(header.op_id),
        is_repeat: header.is_repeat,
        is_last: header.is_last,
        count: u32::from(header.count),
    }
}

fn header_of(of: Option<proto::Header>) -> Converted<IncHeader> {
    let of = of.needed("header")?;
    let collective = collective_of(of.collective)?;
    Ok(IncHeader {
        kind: match of.kind {
            1 => IncKind::Contribution(collective),
            2 => IncKind::Result(collective),
            3 => IncKind::Release(collective),
            _ => return Err(ConversionError("kind")),
        },
        seq: Seq(of.seq),
        epoch: TreeEpoch(u16_of(of.epoch, "epoch")?),
        op_id: u16_of(of.op_id, "op_id")?,
        is_repeat: of.is_repeat,
        is_last: of.is_last,
        count: u16_of(of.count, "count")?,
    })
}

impl From<&PartCounts> for proto::SwitchCounts {
    fn from(PartCounts { slots, edges, .. }: &PartCounts) -> Self {
        Self {
            contributions: slots.contributions,
            duplicates: slots.duplicates,
            stale: slots.stale,
            violations: slots.violations,
            other_epochs: slots.other_epochs,
            repeats: slots.repeats,
            aborts: slots.aborts,
            bytes: slots.bytes,
            naks: edges.naks,
            drops: edges.drops.to_vec(),
            chunks: Some(proto::ChunkTimes {
                counts: slots.chunks.counts.to_vec(),
                sum_ns: slots.chunks.sum_ns,
            }),
        }
    }
}

fn part_counts_of(of: &proto::SwitchCounts, slots_in_use: u64) -> Converted<PartCounts> {
    let chunks = of.chunks.clone().unwrap_or_default();
    let slots = SwitchCounts {
        contributions: of.contributions,
        duplicates: of.duplicates,
        stale: of.stale,
        violations: of.violations,
        other_epochs: of.other_epochs,
        repeats: of.repeats,
        aborts: of.aborts,
        bytes: of.bytes,
        chunks: ChunkTimes {
            counts: numbers_of(&chunks.counts, "chunks.counts")?,
            sum_ns: chunks.sum_ns,
        },
    };
    let edges = EdgeTotals { naks: of.naks, drops: numbers_of(&of.drops, "drops")? };
    Ok(PartCounts { slots, edges, slots_in_use })
}

/// Numbers of which there are as many as this side knows, or none.
fn numbers_of<const N: usize>(of: &[u64], field: &'static str) -> Converted<[u64; N]> {
    if of.is_empty() { Ok([0; N]) } else { of.try_into().needed(field) }
}

impl From<StrayCounts> for proto::Strays {
    fn from(of: StrayCounts) -> Self {
        Self { refused: of.refused.to_vec(), unknown_qpns: of.unknown_qpns }
    }
}

impl From<SwitchReport> for proto::SwitchReport {
    fn from(report: SwitchReport) -> Self {
        use proto::switch_report::{
            self as of, Aborted, Contradiction, Counts, EdgeDead, Installed, Refused, Report,
        };
        let report = match report {
            SwitchReport::Installed(life, ends) => {
                Report::Installed(Installed { life: Some(life.into()), ends: Some(ends.into()) })
            }
            SwitchReport::Refused(life, error) => {
                let why = match error {
                    InstallError::Memory { needed, free } => {
                        of::refused::Why::Memory(of::Memory { needed, free })
                    }
                    InstallError::Communicators(count) => {
                        of::refused::Why::Communicators(count as u64)
                    }
                    InstallError::Invalid(text) => of::refused::Why::Invalid(text),
                };
                Report::Refused(Refused { life: Some(life.into()), why: Some(why) })
            }
            SwitchReport::EdgeDead(life, to) => {
                let child = match to {
                    To::Child(child) => Some(u32::try_from(child).unwrap_or(u32::MAX)),
                    To::Parent => None,
                };
                Report::EdgeDead(EdgeDead { life: Some(life.into()), child })
            }
            SwitchReport::Aborted(life, reason) => {
                Report::Aborted(Aborted { life: Some(life.into()), reason: reason_to(reason) })
            }
            SwitchReport::Contradiction(life, seen) => Report::Contradiction(Contradiction {
                life: Some(life.into()),
                child: u32::try_from(seen.child).unwrap_or(u32::MAX),
                first: Some(header_to(seen.first)),
                second: Some(header_to(seen.second)),
            }),
            SwitchReport::Counts(communicator, counts) => Report::Counts(Counts {
                communicator: communicator.0,
                counts: Some((&*counts).into()),
                slots_in_use: counts.slots_in_use,
            }),
            SwitchReport::Strays(strays) => Report::Strays(strays.into()),
        };
        Self { report: Some(report) }
    }
}

impl TryFrom<proto::SwitchReport> for SwitchReport {
    type Error = ConversionError;

    fn try_from(report: proto::SwitchReport) -> Converted<Self> {
        use proto::switch_report::{Report, refused::Why};
        Ok(match report.report.needed("report")? {
            Report::Installed(of) => Self::Installed(life_of(of.life)?, ends_of(of.ends)?),
            Report::Refused(of) => {
                let error = match of.why.needed("why")? {
                    Why::Memory(memory) => {
                        InstallError::Memory { needed: memory.needed, free: memory.free }
                    }
                    Why::Communicators(count) => {
                        InstallError::Communicators(usize::try_from(count).needed("communicators")?)
                    }
                    Why::Invalid(text) => InstallError::Invalid(text),
                };
                Self::Refused(life_of(of.life)?, error)
            }
            Report::EdgeDead(of) => {
                let to = of.child.map_or(To::Parent, |child| To::Child(child as usize));
                Self::EdgeDead(life_of(of.life)?, to)
            }
            Report::Aborted(of) => Self::Aborted(life_of(of.life)?, reason_of(of.reason)?),
            Report::Contradiction(of) => Self::Contradiction(
                life_of(of.life)?,
                ChunkConflict {
                    child: of.child as usize,
                    first: header_of(of.first)?,
                    second: header_of(of.second)?,
                },
            ),
            Report::Counts(of) => {
                let counts = part_counts_of(&of.counts.needed("counts")?, of.slots_in_use)?;
                Self::Counts(CommunicatorId(of.communicator), Box::new(counts))
            }
            Report::Strays(of) => Self::Strays(StrayCounts {
                refused: numbers_of(&of.refused, "refused")?,
                unknown_qpns: of.unknown_qpns,
            }),
        })
    }
}

impl From<HostCommand> for proto::HostCommand {
    fn from(command: HostCommand) -> Self {
        use proto::host_command::{Abort, Command, Start};
        let command = match command {
            HostCommand::Start(life, start) => {
                let owners = start.plan.owners.into_iter();
                Command::Start(Start {
                    life: Some(life.into()),
                    parent: start.parent.map(Into::into),
                    without: start.without.unwrap_or_default(),
                    first: start.plan.first.0,
                    owners: owners
                        .map(|owner| owner.map_or(0, |rank| u32::from(rank.0) + 1))
                        .collect(),
                })
            }
            HostCommand::Prepare(life) => Command::Prepare(life.into()),
            HostCommand::Abort(communicator, reason, why) => Command::Abort(Abort {
                communicator: communicator.0,
                reason: reason_to(reason),
                why,
            }),
            HostCommand::Switch(command) => Command::Switch(command.into()),
        };
        Self { command: Some(command) }
    }
}

impl TryFrom<proto::HostCommand> for HostCommand {
    type Error = ConversionError;

    fn try_from(command: proto::HostCommand) -> Converted<Self> {
        use proto::host_command::Command;
        Ok(match command.command.needed("command")? {
            Command::Start(of) => {
                let owner = |owner: u32| match owner.checked_sub(1) {
                    None => Ok(None),
                    Some(rank) => Ok(Some(Rank(u16_of(rank, "owners")?))),
                };
                let owners = of.owners.into_iter().map(owner).collect::<Result<_, _>>()?;
                let parent = of.parent.map(TryInto::try_into).transpose()?;
                let without = (!of.without.is_empty()).then_some(of.without);
                let plan = ResumePlan { first: Seq(of.first), owners };
                Self::Start(life_of(of.life)?, TreeStart { parent, without, plan })
            }
            Command::Prepare(life) => Self::Prepare(life.try_into()?),
            Command::Abort(of) => {
                Self::Abort(CommunicatorId(of.communicator), reason_of(of.reason)?, of.why)
            }
            Command::Switch(command) => Self::Switch(command.try_into()?),
        })
    }
}

impl From<HostReport> for proto::HostReport {
    fn from(report: HostReport) -> Self {
        use proto::host_report::{Aborted, Chunks, Operation, Report};
        let report = match report {
            HostReport::Chunks(life, chunks, end) => {
                let mut bits = vec![0_u8; chunks.has_result.len().div_ceil(8)];
                for (at, _) in chunks.has_result.iter().enumerate().filter(|(_, has)| **has) {
                    bits[at / 8] |= 1 << (at % 8);
                }
                Report::Chunks(Chunks {
                    life: Some(life.into()),
                    oldest: chunks.oldest.0,
                    has_result: bits,
                    chunks: u32::try_from(chunks.has_result.len()).unwrap_or(u32::MAX),
                    end: Some(end.into()),
                })
            }
            HostReport::EdgeDead(life) => Report::EdgeDead(life.into()),
            HostReport::Aborted(life, reason, operation) => {
                let operation = operation.map(|of| Operation {
                    op_id: u32::from(of.op_id),
                    collective: Some(of.collective.into()),
                    elements: of.elements,
                });
                Report::Aborted(Aborted {
                    life: Some(life.into()),
                    reason: reason_to(reason),
                    operation,
                })
            }
            HostReport::Switch(report) => Report::Switch(report.into()),
        };
        Self { report: Some(report) }
    }
}

impl TryFrom<proto::HostReport> for HostReport {
    type Error = ConversionError;

    fn try_from(report: proto::HostReport) -> Converted<Self> {
        use proto::host_report::Report;
        Ok(match report.report.needed("report")? {
            Report::Chunks(of) => {
                let len = of.chunks as usize;
                if of.has_result.len() != len.div_ceil(8) {
                    return Err(ConversionError("has_result"));
                }
                let has = |at: usize| of.has_result[at / 8] & (1 << (at % 8)) != 0;
                let has_result = (0..len).map(has).collect();
                let chunks = ChunkReport { oldest: Seq(of.oldest), has_result };
                Self::Chunks(life_of(of.life)?, chunks, of.end.needed("end")?.try_into()?)
            }
            Report::EdgeDead(life) => Self::EdgeDead(life.try_into()?),
            Report::Aborted(of) => {
                let operation = |of: proto::host_report::Operation| {
                    Ok(CurrentOperation {
                        op_id: u16_of(of.op_id, "op_id")?,
                        collective: collective_of(of.collective)?,
                        elements: of.elements,
                    })
                };
                let operation = of.operation.map(operation).transpose()?;
                Self::Aborted(life_of(of.life)?, reason_of(of.reason)?, operation)
            }
            Report::Switch(report) => Self::Switch(report.try_into()?),
        })
    }
}
