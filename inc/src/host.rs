//! A host: its ranks in communicators, behind one port.
//!
//! - owns: for each communicator its member and the edge to the switch.
//! - takes: datagrams, commands of the controller, operations, the time. gives: datagrams, reports, results.
//! - must not: own a socket or a clock.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::control::{HostCommand, HostReport, TreeLife, TreeStart};
use crate::edge::{EdgeAttributes, EdgeCfg, EdgeCfgError, EdgeEnd, Framing, Reliability};
use crate::member::{Finished, GroupMember, MemberCfg, OperationError, OperationId, SubmitError};
use crate::port::{EdgeId, EdgePort, PortCounts, PortDatagram, RandomSource};
use crate::slots::{IncTime, WindowError};
use crate::wire::{Collective, IncKind, Rank};

/// A chunk without an answer is sent again after this time at the soonest. On reliable edges this repairs what a switch
/// lost, which is rare.
const PAUSE_RELIABLE: IncTime = 10_000_000;
const PAUSE_UNRELIABLE: IncTime = 1_000_000;

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

/// A member of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MemberId(usize);

struct HostMember {
    cfg: HostMemberCfg,
    life: Option<TreeLife>,
    edge: EdgeId,
    member: GroupMember,
    /// Why there is no tree, or why the communicator is over, in the controller's words.
    why: Option<String>,
}

/// A host, without its driver.
pub struct Host {
    port: EdgePort<usize>,
    members: Vec<Option<HostMember>>,
    reports: VecDeque<(MemberId, HostReport)>,
}

impl Host {
    /// A host without members.
    #[must_use]
    pub fn new(random: RandomSource) -> Self {
        Self { port: EdgePort::new(random), members: Vec::new(), reports: VecDeque::new() }
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
            data_max: attributes.data_max(),
            framing: attributes.framing,
            pause_min_ns: match attributes.reliability {
                Reliability::Reliable => PAUSE_RELIABLE,
                Reliability::Unreliable => PAUSE_UNRELIABLE,
            },
            bound_ns: cfg.bound_ns,
        })?;
        let id = MemberId(self.members.len());
        let (edge, end) = self.reserve(now, id, cfg.address).ok_or(HostMemberError::Full)?;
        self.members.push(Some(HostMember { cfg, life: None, edge, member, why: None }));
        Ok((id, end))
    }

    /// Forgets a member. What was under way has no result any more.
    pub fn leave(&mut self, now: IncTime, id: MemberId) {
        if let Some(member) = self.members.get_mut(id.0).and_then(Option::take) {
            self.port.close(now, member.edge);
        }
    }

    /// Does what the controller says about a member's communicator.
    pub fn on_command(&mut self, now: IncTime, id: MemberId, command: HostCommand) {
        let Some(Some(place)) = self.members.get_mut(id.0) else { return };
        match command {
            HostCommand::Start(life, TreeStart { parent: Ok(there), plan }) => {
                let Some(here) = self.port.end(place.edge) else { return };
                let (epoch, first) = (life.epoch, plan.first);
                let attributes = place.cfg.attributes;
                let cfg = EdgeCfg { attributes, here, there, epoch, first };
                // The attributes were checked when it joined.
                if self.port.open(place.edge, cfg).is_ok() {
                    (place.life, place.why) = (Some(life), None);
                    place.member.start(life.epoch, plan);
                }
            }
            HostCommand::Start(life, TreeStart { parent: Err(why), .. }) => {
                // Operations wait: switches may come, or come back.
                (place.life, place.why) = (Some(life), Some(why));
            }
            HostCommand::Prepare(life) => {
                let report = place.member.prepare();
                place.life = None;
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
                place.why = Some(why);
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
        input: Arc<[u8]>,
    ) -> Result<OperationId, SubmitError> {
        let member = self.members.get_mut(id.0).and_then(Option::as_mut);
        let member = member.ok_or(SubmitError::Over(OperationError::Unknown))?;
        let operation = member.member.submit(now, collective, input)?;
        self.send_chunks(now, id);
        Ok(operation)
    }

    /// A datagram for this host.
    pub fn on_datagram(&mut self, now: IncTime, source: SocketAddr, bytes: &[u8]) {
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
        self.port.poll_transmit(now, buf, |at, seq| match members.get(at) {
            Some(Some(place)) => place.member.data_of(seq),
            _ => &[],
        })
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
        members.chain(self.port.poll_deadline()).min()
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
    }

    /// Why a member's communicator has no tree or is over, as the controller says it.
    #[must_use]
    pub fn why(&self, id: MemberId) -> Option<&str> {
        self.members.get(id.0)?.as_ref()?.why.as_deref()
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
