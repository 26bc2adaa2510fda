//! A host: its ranks in communicators, behind one port.
//!
//! - owns: for each communicator its member and the edge to the switch; a switch of its own.
//! - takes: datagrams, commands of the controller, operations, the time. gives: datagrams, reports, results.
//! - must not: own a socket or a clock.
//!
//! Where no switch of the topology can be had, the controller installs the tree in the switches of the members' hosts: edges,
//! slots, repeats and the plan of resuming are the same, and so are the bits of the results.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use crate::control::{CommunicatorId, HostCommand, HostReport, SwitchCommand, TreeLife};
use crate::edge::{EdgeAttributes, EdgeCfg, EdgeCfgError, EdgeEnd, Framing, Reliability};
use crate::member::{Finished, GroupMember, MemberCfg, OperationError, OperationId, SubmitError};
use crate::port::{
    EdgeId, EdgePort, PortCounts, PortDatagram, QPN_END, QPN_MIN, QpnShare, RandomSource,
};
use crate::slots::{IncTime, WindowError};
use crate::switch::{Switch, SwitchLimits};
use crate::wire::{Collective, IncKind, Rank};

/// A chunk without an answer is sent again after this time at the soonest. On reliable edges this repairs what a switch
/// lost, which is rare.
const PAUSE_RELIABLE: IncTime = 10_000_000;
const PAUSE_UNRELIABLE: IncTime = 1_000_000;
/// The QPNs of a host's own switch begin here; those of its members' edges are below.
const SWITCH_QPN_MIN: u32 = 1 << 23;
/// What the members of a host may reduce for others.
const SWITCH_LIMITS: SwitchLimits = SwitchLimits { memory: 4 << 30, communicators: 4096 };

/// What a rank joins a communicator with.
#[derive(Debug, Clone, Copy)]
pub struct HostMemberCfg {
    /// Number of this member.
    pub rank: Rank,
    /// How messages travel: the same for all members.
    pub attributes: EdgeAttributes,
    /// Where this host's packets arrive.
    pub address: SocketAddr,
    /// An operation that takes longer ends with an error.
    pub bound_ns: IncTime,
}

/// Why a rank cannot join.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HostMemberError {
    /// There cannot be such edges.
    #[error(transparent)]
    Attributes(#[from] EdgeCfgError),
    /// There cannot be such a window.
    #[error(transparent)]
    Window(#[from] WindowError),
    /// It has a million edges.
    #[error("the host has no QPN left")]
    Full,
}

/// What reduces for a communicator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reducers {
    /// There is no tree yet, or none any more: operations wait for one.
    None,
    /// Switches of the topology.
    Switches,
    /// The members' own programs.
    Members,
}

/// A member of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MemberId(usize);

struct HostMember {
    cfg: HostMemberCfg,
    life: Option<TreeLife>,
    reducers: Reducers,
    edge: EdgeId,
    member: GroupMember,
    /// Why no switch of the topology reduces, or why the communicator is over, in the controller's words.
    why: Option<String>,
}

/// A host, without its driver.
pub struct Host {
    port: EdgePort<usize>,
    members: Vec<Option<HostMember>>,
    reports: VecDeque<(MemberId, HostReport)>,
    switch: Switch,
    /// The members whose communicators have parts in the own switch.
    installed: HashMap<CommunicatorId, MemberId>,
}

impl Host {
    /// A host without members; the first source of random numbers is for them, the other one for its switch.
    #[must_use]
    pub fn new([random, of_switch]: [RandomSource; 2]) -> Self {
        Self {
            port: EdgePort::new(random, QPN_MIN..SWITCH_QPN_MIN),
            members: Vec::new(),
            reports: VecDeque::new(),
            switch: Switch::with_qpns(SWITCH_LIMITS, of_switch, SWITCH_QPN_MIN..QPN_END),
            installed: HashMap::new(),
        }
    }

    /// Others have QPNs of this host's address, too. To be called before there are members.
    pub fn share_qpns(&mut self, with: &Arc<dyn QpnShare>) {
        self.port.share_qpns(Arc::clone(with));
        self.switch.share_qpns(with);
    }

    /// A new member, and its end of the edge to a switch, which the controller is to know.
    ///
    /// # Errors
    /// [`HostMemberError`].
    pub fn join(
        &mut self,
        now: IncTime,
        cfg: HostMemberCfg,
    ) -> Result<(MemberId, EdgeEnd), HostMemberError> {
        let attributes = cfg.attributes;
        attributes.check()?;
        let member = GroupMember::new(MemberCfg {
            rank: cfg.rank,
            window: attributes.window,
            data_max: attributes.chunk_max(),
            framing: attributes.framing,
            pause_min_ns: match attributes.reliability {
                Reliability::Reliable => PAUSE_RELIABLE,
                Reliability::Unreliable => PAUSE_UNRELIABLE,
            },
            // Without a header a repeat would count as the next chunk.
            repeats_early: attributes.reliability == Reliability::Unreliable
                && attributes.framing == Framing::Inc,
            bound_ns: cfg.bound_ns,
        })?;
        let id = MemberId(self.members.len());
        let (edge, end) = self.reserve(now, id, cfg.address).ok_or(HostMemberError::Full)?;
        let (life, reducers, why) = (None, Reducers::None, None);
        self.members.push(Some(HostMember { cfg, life, reducers, edge, member, why }));
        Ok((id, end))
    }

    /// Forgets a member. What was under way has no result any more.
    pub fn leave(&mut self, now: IncTime, id: MemberId) {
        if let Some(member) = self.members.get_mut(id.0).and_then(Option::take) {
            self.port.close(now, member.edge);
        }
        let switch = &mut self.switch;
        self.installed.retain(|&communicator, of| {
            if *of == id {
                switch.on_command(now, SwitchCommand::Remove(communicator));
            }
            *of != id
        });
    }

    /// Does what the controller says about a member's communicator.
    pub fn on_command(&mut self, now: IncTime, id: MemberId, command: HostCommand) {
        let Some(Some(place)) = self.members.get_mut(id.0) else { return };
        match command {
            HostCommand::Start(life, start) => {
                place.reducers = match (start.parent, &start.without) {
                    (None, _) => Reducers::None,
                    (Some(_), None) => Reducers::Switches,
                    (Some(_), Some(_)) => Reducers::Members,
                };
                (place.life, place.why) = (Some(life), start.without);
                let (epoch, first) = (life.epoch, start.plan.first);
                // Without a tree operations wait: switches may come, or come back.
                if let Some((here, there)) = self.port.end(place.edge).zip(start.parent) {
                    let attributes = place.cfg.attributes;
                    let cfg = EdgeCfg { attributes, here, there, epoch, first };
                    // The attributes were checked when it joined.
                    if self.port.open(place.edge, cfg).is_ok() {
                        place.member.start(epoch, start.plan);
                    }
                }
            }
            HostCommand::Switch(command) => {
                if let SwitchCommand::Install(life, _) = &command {
                    self.installed.insert(life.communicator, id);
                } else if let SwitchCommand::Remove(communicator) = &command {
                    self.installed.remove(communicator);
                }
                self.switch.on_command(now, command);
                return self.take_switch_reports();
            }
            HostCommand::Prepare(life) => {
                let report = place.member.prepare();
                (place.life, place.reducers) = (None, Reducers::None);
                let (edge, address) = (place.edge, place.cfg.address);
                self.port.close(now, edge);
                let next = self.reserve(now, id, address);
                let Some(Some(place)) = self.members.get_mut(id.0) else { return };
                let Some((edge, end)) = next else {
                    return place.member.end(OperationError::NoQpn);
                };
                place.edge = edge;
                self.reports.push_back((id, HostReport::Chunks(life, report, end)));
            }
            HostCommand::Abort(_, reason, why) => {
                (place.reducers, place.why) = (Reducers::None, Some(why));
                place.member.end(OperationError::Aborted(reason));
            }
        }
        self.send_chunks(now, id);
    }

    /// Begins an operation, see [`GroupMember::submit`].
    ///
    /// # Errors
    /// [`SubmitError`].
    pub fn submit(
        &mut self,
        now: IncTime,
        id: MemberId,
        collective: Collective,
        input: &[u8],
    ) -> Result<OperationId, SubmitError> {
        let member = self.members.get_mut(id.0).and_then(Option::as_mut);
        let member = member.ok_or(SubmitError::Over(OperationError::Unknown))?;
        let operation = member.member.submit(now, collective, input)?;
        self.send_chunks(now, id);
        Ok(operation)
    }

    /// A datagram for this host.
    pub fn on_datagram(&mut self, now: IncTime, source: SocketAddr, bytes: &[u8]) {
        if self.switch.is_for(bytes) {
            self.switch.on_datagram(now, source, bytes);
            return self.take_switch_reports();
        }
        let (members, reports) = (&mut self.members, &mut self.reports);
        let mut taken = None;
        let edge = self.port.on_datagram(now, source, bytes, |at, header, data| {
            let Some(Some(place)) = members.get_mut(at) else { return };
            let (is_plain, life) = (place.cfg.attributes.framing != Framing::Inc, place.life);
            let (current, was_over) = (place.member.current(), place.member.over().is_some());
            place.member.on_message(now, &header.from_parent(is_plain), data);
            if let (IncKind::Abort(reason), Some(life), false) = (header.kind, life, was_over) {
                reports.push_back((MemberId(at), HostReport::Aborted(life, reason, current)));
            }
            taken = Some((at, header.seq));
        });
        if let (Some(edge), Some((at, seq))) = (edge, taken) {
            // An answer shows that the contribution is there.
            self.port.on_proof(now, edge, seq);
            self.send_chunks(now, MemberId(at));
        }
        self.report_dead();
    }

    /// The next datagram, written to `buf`.
    pub fn poll_transmit(&mut self, now: IncTime, buf: &mut [u8]) -> Option<PortDatagram> {
        let members = &self.members;
        let own = self.port.poll_transmit(now, buf, |at, seq| match members.get(at) {
            Some(Some(place)) => place.member.data_of(seq),
            _ => &[],
        });
        own.or_else(|| self.switch.poll_transmit(now, buf))
    }

    /// The next report for the controller.
    pub fn poll_report(&mut self) -> Option<(MemberId, HostReport)> {
        self.reports.pop_front()
    }

    /// The next operation of a member that is over, in the order of submission.
    pub fn poll_finished(&mut self, id: MemberId) -> Option<Finished> {
        self.members.get_mut(id.0)?.as_mut()?.member.poll_finished()
    }

    /// Whether an operation of a member waits for its result.
    #[must_use]
    pub fn is_under_way(&self, id: MemberId, operation: OperationId) -> bool {
        let member = self.members.get(id.0).and_then(Option::as_ref);
        member.is_some_and(|place| place.member.is_under_way(operation))
    }

    /// When [`Host::on_time`] is due, at the soonest.
    #[must_use]
    pub fn poll_deadline(&self) -> Option<IncTime> {
        let members = self.members.iter().flatten().filter_map(|m| m.member.poll_deadline());
        let ports = self.port.poll_deadline().into_iter().chain(self.switch.poll_deadline());
        members.chain(ports).min()
    }

    /// The time has come that [`Host::poll_deadline`] gave.
    pub fn on_time(&mut self, now: IncTime) {
        self.port.on_time(now);
        for at in 0..self.members.len() {
            let Some(Some(place)) = self.members.get_mut(at) else { continue };
            if place.member.poll_deadline().is_some_and(|deadline| deadline <= now) {
                place.member.on_time(now);
                self.send_chunks(now, MemberId(at));
            }
        }
        self.report_dead();
        self.switch.on_time(now);
        self.take_switch_reports();
    }

    /// The switch that reduces in this host's program, where no other one can be had.
    #[must_use]
    pub fn switch(&self) -> &Switch {
        &self.switch
    }

    /// Why no switch of the topology reduces for a member or its communicator is over, as the controller says it.
    #[must_use]
    pub fn why(&self, id: MemberId) -> Option<&str> {
        self.members.get(id.0)?.as_ref()?.why.as_deref()
    }

    /// What reduces for a member's communicator.
    #[must_use]
    pub fn reducers(&self, id: MemberId) -> Reducers {
        let member = self.members.get(id.0).and_then(Option::as_ref);
        member.map_or(Reducers::None, |place| place.reducers)
    }

    /// Chunks that a member sent again.
    #[must_use]
    pub fn repeated(&self, id: MemberId) -> u64 {
        let member = self.members.get(id.0).and_then(Option::as_ref);
        member.map_or(0, |place| place.member.repeated())
    }

    /// What happened on the edges, and with datagrams of no edge.
    #[must_use]
    pub fn port_counts(&self) -> PortCounts {
        self.port.counts()
    }

    fn reserve(
        &mut self,
        now: IncTime,
        id: MemberId,
        address: SocketAddr,
    ) -> Option<(EdgeId, EdgeEnd)> {
        let edge = self.port.reserve(now, id.0, address)?;
        Some((edge, self.port.end(edge)?))
    }

    /// Queues what a member has to send.
    fn send_chunks(&mut self, now: IncTime, id: MemberId) {
        let Some(Some(place)) = self.members.get_mut(id.0) else { return };
        while let Some(header) = place.member.poll_transmit(now) {
            // A chunk is cut to what a message holds.
            let sent = self.port.send(place.edge, &header);
            debug_assert!(sent.is_ok(), "{sent:?}");
        }
    }

    fn take_switch_reports(&mut self) {
        while let Some(report) = self.switch.poll_report() {
            if let Some(&id) = report.communicator().and_then(|of| self.installed.get(&of)) {
                self.reports.push_back((id, HostReport::Switch(report)));
            }
        }
    }

    fn report_dead(&mut self) {
        while let Some(at) = self.port.poll_dead() {
            let Some(Some(place)) = self.members.get(at) else { continue };
            if let (Some(life), None) = (place.life, place.member.over()) {
                self.reports.push_back((MemberId(at), HostReport::EdgeDead(life)));
            }
        }
    }
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host").field("members", &self.members.len()).finish_non_exhaustive()
    }
}
