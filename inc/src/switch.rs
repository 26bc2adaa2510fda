//! A switch: the parts of many trees, behind one port.
//!
//! - owns: for each communicator its slots and its edges; the memory that they may take.
//! - takes: datagrams, commands of the controller, the time. gives: datagrams, reports to the controller.
//! - must not: own a socket or a clock; decide about trees.
//!
//! One packet: [`EdgePort`] finds its edge and joins the message, [`CommunicatorSlots`] adds it to a slot and answers, the
//! answers are queued on their edges, and [`Switch::poll_transmit`] writes them.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;

use crate::control::{
    CommunicatorId, EdgeEnds, InstallError, SwitchCommand, SwitchReport, TreeLife, TreePart,
};
use crate::edge::{EdgeAttributes, EdgeCfg, EdgeEnd, Framing, Reliability};
use crate::port::{
    EdgeId, EdgePort, EdgeTotals, PortCounts, PortDatagram, QPN_END, QPN_MIN, QpnShare,
    RandomSource, StrayCounts,
};
use crate::slots::{
    CHILDREN_MAX, Child, CommunicatorSlots, CommunicatorSlotsCfg, CommunicatorSlotsCfgError,
    IncTime, SwitchCounts, To,
};
use crate::wire::{AbortReason, IncHeader, IncKind, Seq};

/// Bytes that a slot takes beside its data, by which memory is reckoned.
const SLOT_LEN: u64 = 64;
/// What a repeat of a chunk that waits for the parent does not repeat again: half of the hosts' shortest pause.
const PAUSE_RELIABLE: IncTime = 5_000_000;
const PAUSE_UNRELIABLE: IncTime = 500_000;

/// What a switch may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SwitchLimits {
    /// Bytes of all slots.
    pub memory: u64,
    /// Communicators at one time.
    pub communicators: usize,
}

/// What a switch has of one communicator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartView {
    /// The communicator, and the life of its tree.
    pub life: TreeLife,
    /// Its edges are open: a controller has started this life.
    pub has_started: bool,
    /// Whose quota its memory counts to.
    pub tenant: u32,
    /// What happened so far, in all lives of its tree.
    pub counts: SwitchCounts,
    /// What happened on its edges, in all lives of its tree.
    pub edges: EdgeTotals,
    /// Slots that are neither free nor done.
    pub slots_in_use: usize,
    /// Bytes that are reserved.
    pub memory: u64,
}

/// An edge's place in the trees.
#[derive(Debug, Clone, Copy)]
struct EdgeOwner {
    part: usize,
    to: To,
}

struct SwitchPart {
    life: TreeLife,
    has_started: bool,
    attributes: EdgeAttributes,
    tenant: u32,
    memory: u64,
    slots: CommunicatorSlots,
    children: Vec<EdgeId>,
    parent: Option<EdgeId>,
    is_abort_reported: bool,
    /// What happened in earlier lives of the tree.
    before: (SwitchCounts, EdgeTotals),
}

/// A switch, without its driver.
pub struct Switch {
    limits: SwitchLimits,
    port: EdgePort<EdgeOwner>,
    parts: Vec<Option<SwitchPart>>,
    /// Unused places of `parts`.
    free: Vec<usize>,
    by_id: HashMap<CommunicatorId, usize>,
    memory: u64,
    reports: VecDeque<SwitchReport>,
}

/// Bytes that a part of a tree takes at most: two banks of slots, and the contributions that wait for those before them.
#[must_use]
pub fn memory_of(attributes: &EdgeAttributes, children: usize) -> u64 {
    let (window, stride) = (u64::from(attributes.window), attributes.stride() as u64);
    let waiting = if attributes.may_wait() { window * children as u64 * stride } else { 0 };
    2 * window * (stride + SLOT_LEN) + waiting
}

impl Switch {
    /// A switch without communicators.
    #[must_use]
    pub fn new(limits: SwitchLimits, random: RandomSource) -> Self {
        Self::with_qpns(limits, random, QPN_MIN..QPN_END)
    }

    /// A switch that shares its address with others: only these QPNs are its own.
    pub(crate) fn with_qpns(limits: SwitchLimits, random: RandomSource, qpns: Range<u32>) -> Self {
        Self {
            limits,
            port: EdgePort::new(random, qpns),
            parts: Vec::new(),
            free: Vec::new(),
            by_id: HashMap::new(),
            memory: 0,
            reports: VecDeque::new(),
        }
    }

    /// Others have QPNs of this switch's address, too. To be called before it has communicators.
    pub fn share_qpns(&mut self, with: &Arc<dyn QpnShare>) {
        self.port.share_qpns(Arc::clone(with));
    }

    /// Does what the controller says.
    pub fn on_command(&mut self, now: IncTime, command: SwitchCommand) {
        match command {
            SwitchCommand::Install(life, part) => {
                let before = self.remove(now, life.communicator).unwrap_or_default();
                let report = match self.install(now, life, &part, before) {
                    Ok(ends) => SwitchReport::Installed(life, ends),
                    Err(error) => SwitchReport::Refused(life, error),
                };
                self.reports.push_back(report);
            }
            SwitchCommand::Start(life, first, ends) => {
                if let Err(error) = self.start(life, first, &ends) {
                    self.remove(now, life.communicator);
                    self.reports.push_back(SwitchReport::Refused(life, error));
                }
            }
            SwitchCommand::Abort(communicator, reason) => {
                let Some(&at) = self.by_id.get(&communicator) else { return };
                if let Some(part) = &mut self.parts[at] {
                    part.slots.abort(Seq(0), reason);
                }
                self.send_answers(at);
            }
            SwitchCommand::Remove(communicator) => {
                self.remove(now, communicator);
            }
        }
    }

    /// Whether a datagram is for one of the QPNs that this switch may have.
    pub(crate) fn is_for(&self, bytes: &[u8]) -> bool {
        self.port.is_for(bytes)
    }

    /// A datagram for this switch.
    pub fn on_datagram(&mut self, now: IncTime, source: SocketAddr, bytes: &[u8]) {
        let parts = &mut self.parts;
        let mut taken = None;
        let edge = self.port.on_datagram(now, source, bytes, |owner, header, data| {
            let Some(Some(part)) = parts.get_mut(owner.part) else { return };
            // Who sends chunk s has all answers up to s - W; who answers chunk s has its contribution.
            let proven = match owner.to {
                To::Child(child) => {
                    part.slots.on_child(now, child, header, data);
                    header.seq.back(part.attributes.window)
                }
                To::Parent => {
                    let is_plain = part.attributes.framing != Framing::Inc;
                    part.slots.on_parent(now, &header.from_parent(is_plain), data);
                    header.seq
                }
            };
            taken = Some((owner.part, proven));
        });
        if let (Some(edge), Some((part, proven))) = (edge, taken) {
            self.port.on_proof(now, edge, proven);
            self.send_answers(part);
        }
        self.report_dead();
    }

    /// The next datagram, written to `buf`.
    pub fn poll_transmit(&mut self, now: IncTime, buf: &mut [u8]) -> Option<PortDatagram> {
        let parts = &self.parts;
        self.port.poll_transmit(now, buf, |owner, seq| match parts.get(owner.part) {
            Some(Some(part)) => part.slots.data_of(seq),
            _ => &[],
        })
    }

    /// The next report for the controller.
    pub fn poll_report(&mut self) -> Option<SwitchReport> {
        self.reports.pop_front()
    }

    /// When [`Switch::on_time`] is due, at the soonest.
    #[must_use]
    pub fn poll_deadline(&self) -> Option<IncTime> {
        self.port.poll_deadline()
    }

    /// The time has come that [`Switch::poll_deadline`] gave.
    pub fn on_time(&mut self, now: IncTime) {
        self.port.on_time(now);
        self.report_dead();
    }

    /// What the switch has, communicator by communicator.
    pub fn parts(&self) -> impl Iterator<Item = PartView> + '_ {
        self.parts.iter().flatten().map(|part| {
            let (counts, edges) = self.totals(part);
            PartView {
                life: part.life,
                has_started: part.has_started,
                tenant: part.tenant,
                counts,
                edges,
                slots_in_use: part.slots.slots_in_use(),
                memory: part.memory,
            }
        })
    }

    /// What happened in all lives of a part of a tree.
    fn totals(&self, part: &SwitchPart) -> (SwitchCounts, EdgeTotals) {
        let (mut counts, mut edges) = part.before;
        counts.add(&part.slots.counts());
        for id in part.children.iter().chain(&part.parent) {
            edges.add(&self.port.totals(*id));
        }
        (counts, edges)
    }

    /// Datagrams of no edge that were refused.
    #[must_use]
    pub fn strays(&self) -> StrayCounts {
        self.port.strays()
    }

    /// What happened on its edges, and with datagrams of no edge.
    #[must_use]
    pub fn port_counts(&self) -> PortCounts {
        self.port.counts()
    }

    /// Bytes that are reserved for slots, and edges that are reserved: both are zero when nothing is installed.
    #[must_use]
    pub fn in_use(&self) -> (u64, usize) {
        (self.memory, self.port.len())
    }

    fn install(
        &mut self,
        now: IncTime,
        life: TreeLife,
        part: &TreePart,
        before: (SwitchCounts, EdgeTotals),
    ) -> Result<EdgeEnds, InstallError> {
        let invalid = |error: &dyn std::fmt::Display| InstallError::Invalid(error.to_string());
        let attributes = part.attributes;
        attributes.check().map_err(|error| invalid(&error))?;
        let count = part.children.len();
        if !(1..=CHILDREN_MAX).contains(&count) {
            return Err(invalid(&CommunicatorSlotsCfgError::Children(count)));
        }
        if self.by_id.len() >= self.limits.communicators {
            return Err(InstallError::Communicators(self.by_id.len()));
        }
        let (needed, free) = (memory_of(&attributes, count), self.limits.memory - self.memory);
        if needed > free {
            return Err(InstallError::Memory { needed, free });
        }
        let children: Vec<Child> = part.children.iter().map(|(child, _)| child.clone()).collect();
        let cfg = CommunicatorSlotsCfg {
            children,
            has_parent: part.parent.is_some(),
            window: attributes.window,
            data_max: attributes.data_max(),
            epoch: life.epoch,
            first: Seq(0),
            forward_pause_ns: match attributes.reliability {
                Reliability::Reliable => PAUSE_RELIABLE,
                Reliability::Unreliable => PAUSE_UNRELIABLE,
            },
            is_ordered: attributes.is_ordered,
        };
        let slots = CommunicatorSlots::new(&cfg).map_err(|error| invalid(&error))?;
        let at = self.free.pop().unwrap_or_else(|| {
            self.parts.push(None);
            self.parts.len() - 1
        });
        let full = InstallError::Invalid("the switch has no QPN left".into());
        let (mut ids, mut ends) = (Vec::new(), Vec::new());
        let addresses = part.children.iter().map(|(_, address)| *address).chain(part.parent);
        for (index, address) in addresses.enumerate() {
            let to = if index < count { To::Child(index) } else { To::Parent };
            let id = self.port.reserve(now, EdgeOwner { part: at, to }, address);
            let Some((id, end)) = id.and_then(|id| Some((id, self.port.end(id)?))) else {
                ids.into_iter().for_each(|id| self.port.close(now, id));
                self.free.push(at);
                return Err(full);
            };
            ids.push(id);
            ends.push(end);
        }
        let parent = part.parent.and_then(|_| ids.pop());
        let parent_end = part.parent.and_then(|_| ends.pop());
        self.parts[at] = Some(SwitchPart {
            life,
            has_started: false,
            attributes,
            tenant: part.tenant,
            memory: needed,
            slots,
            children: ids,
            parent,
            is_abort_reported: false,
            before,
        });
        self.by_id.insert(life.communicator, at);
        self.memory += needed;
        Ok(EdgeEnds { children: ends, parent: parent_end })
    }

    fn start(&mut self, life: TreeLife, first: Seq, ends: &EdgeEnds) -> Result<(), InstallError> {
        let invalid = |what: &str| InstallError::Invalid(what.to_owned());
        let at = self.by_id.get(&life.communicator).copied();
        let part = at.and_then(|at| self.parts[at].as_mut()).filter(|part| part.life == life);
        let part = part.ok_or_else(|| invalid("it starts in a life that was not installed"))?;
        if ends.children.len() != part.children.len()
            || ends.parent.is_some() != part.parent.is_some()
        {
            return Err(invalid("it starts with other edges than were installed"));
        }
        part.has_started = true;
        part.slots.restart(life.epoch, first);
        let children = part.children.iter().copied().zip(ends.children.iter().copied());
        for (id, there) in children.chain(part.parent.zip(ends.parent)) {
            let here: Option<EdgeEnd> = self.port.end(id);
            let here = here.ok_or_else(|| invalid("it has no such edge"))?;
            let cfg =
                EdgeCfg { attributes: part.attributes, here, there, epoch: life.epoch, first };
            self.port.open(id, cfg).map_err(|error| invalid(&error.to_string()))?;
        }
        Ok(())
    }

    /// Gives back what a communicator has; what it did so far.
    fn remove(
        &mut self,
        now: IncTime,
        communicator: CommunicatorId,
    ) -> Option<(SwitchCounts, EdgeTotals)> {
        let at = self.by_id.remove(&communicator)?;
        let part = self.parts[at].take()?;
        let totals = self.totals(&part);
        for id in part.children.into_iter().chain(part.parent) {
            self.port.close(now, id);
        }
        self.memory -= part.memory;
        self.free.push(at);
        Some(totals)
    }

    /// Queues what the slots of a communicator have to send, and reports its end.
    fn send_answers(&mut self, at: usize) {
        let Some(Some(part)) = self.parts.get_mut(at) else { return };
        while let Some(message) = part.slots.poll_transmit() {
            let IncHeader { kind, .. } = message.header;
            let edge = match message.to {
                To::Child(child) => part.children.get(child).copied(),
                To::Parent => part.parent,
            };
            let Some(edge) = edge else { continue };
            if matches!(kind, IncKind::Abort(_)) {
                self.port.abort(edge, &message.header);
            } else if self.port.send(edge, &message.header).is_err() {
                // The slots take no message longer than the edges'.
                debug_assert!(false, "a message that fits a slot fits a message");
            }
        }
        let life = part.life;
        if let Some(contradiction) = part.slots.take_contradiction() {
            self.reports.push_back(SwitchReport::Contradiction(life, contradiction));
        }
        if let Some(reason) = part.slots.aborted()
            && !std::mem::replace(&mut part.is_abort_reported, true)
        {
            self.reports.push_back(SwitchReport::Aborted(life, reason));
        }
    }

    fn report_dead(&mut self) {
        while let Some(owner) = self.port.poll_dead() {
            let Some(Some(part)) = self.parts.get(owner.part) else { continue };
            // Edges of an aborted communicator have nothing more to say.
            if part.slots.aborted().is_none_or(|reason| reason == AbortReason::EdgeDead) {
                self.reports.push_back(SwitchReport::EdgeDead(part.life, owner.to));
            }
        }
    }
}

impl std::fmt::Debug for Switch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let parts: Vec<_> = self.parts().collect();
        f.debug_struct("Switch").field("parts", &parts).finish_non_exhaustive()
    }
}
