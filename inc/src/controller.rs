//! The controller: groups of ranks, their communicators, and the trees of switches that those get.
//!
//! - takes: calls, reports, the begin and end of sessions, the time. gives: answers, commands, ends of sessions.
//! - must not: own a socket, a thread, a clock or randomness.
//!
//! A group is made when all its ranks joined. A communicator is made when all ranks of its group called for it; then a tree is
//! computed, installed and started. A switch or an edge that is lost ends the epoch: hosts report what they have, and go on in
//! another tree. Where no switches can be had, the members' programs are those of the tree. A member that is lost ends the communicators of its group.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

use crate::control::{
    CommunicatorId, HostCommand, HostReport, PartCounts, SwitchCommand, SwitchReport, TreeLife,
};
use crate::edge::{EdgeAttributes, EdgeEnd};
use crate::port::StrayCounts;
use crate::slots::IncTime;
use crate::topology::{NodeKind, PhysicalMap};
use crate::wire::{AbortReason, Rank};
use proof::Challenges;

mod communicator;
mod members;
mod plan;
mod proof;
mod restore;
mod trees;
pub use communicator::{CommunicatorState, PlacedChild, PlacedSwitch, SwitchHome, TreePhase};
pub use plan::described;
pub use proof::{GroupSecret, TopologyRequest};
pub use restore::ControllerRemains;

/// Version of the protocol between a controller, switches and hosts.
pub const CONTROL_VERSION: u32 = 1;
/// Groups at most, so that callers cannot fill the memory.
const GROUPS_MAX: usize = 4096;
/// Bytes of a group's name at most.
pub const GROUP_NAME_MAX: usize = 255;
/// Ranks of a group at most.
const RANKS_MAX: u32 = 65535;
/// Communicators of a group at most.
const COMMUNICATORS_MAX: usize = 4096;
const MS: IncTime = 1_000_000;

/// Times, secrets and quotas of a controller.
#[derive(Debug, Clone)]
pub struct ControllerCfg {
    /// A session without a sign of life for so long is over.
    pub silence_ns: IncTime,
    /// All switches of a tree have installed their parts in this time, or there is no tree.
    pub install_ns: IncTime,
    /// All hosts have reported their chunks in this time, or the communicator is over.
    pub drain_ns: IncTime,
    /// Hosts report what they were doing when a communicator was aborted in this time.
    pub abort_ns: IncTime,
    /// All ranks destroy a communicator in this time after the first one did.
    pub destroy_ns: IncTime,
    /// A rank that joined opens its session in this time; so does a rank after a restart of the controller.
    pub grace_ns: IncTime,
    /// A switch that opens no session in this time after a restart of the controller is lost: longer than the longest
    /// pause between its attempts.
    pub switch_grace_ns: IncTime,
    /// Secret of those who may join a group that has none of its own, and put a topology; `None`: all may.
    pub secret: Option<GroupSecret>,
    /// Secrets of groups, by name: of such a group this one alone proves something.
    pub group_secrets: BTreeMap<String, GroupSecret>,
    /// Secret of those who may put a topology, if it is another one.
    pub topology_secret: Option<GroupSecret>,
    /// Bytes of slots that a tenant may have in each switch, if it has no quota of its own; `None`: all.
    pub quota: Option<u64>,
    /// The same for single tenants.
    pub quotas: BTreeMap<u32, u64>,
}

/// A call that waits for its answer, by a number of the caller's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// A session, by a number that is never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// Number of a group, from its controller; no other one ever has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u64);

/// What a member shows with each call after it joined.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct MemberTicket {
    /// The group that it joined.
    pub group: GroupId,
    /// Its number in the group.
    pub rank: Rank,
    /// A number that only it was given.
    pub key: u64,
}

/// A rank that wants to join a group.
#[derive(Debug, Clone)]
pub struct JoinRequest {
    /// Version of its protocol.
    pub version: u32,
    /// Name of the group.
    pub name: String,
    /// Ranks of the group.
    pub world_size: u32,
    /// Its number in the group.
    pub rank: u32,
    /// Where its host is found in the topology.
    pub address: IpAddr,
    /// Whose quota the group's communicators count to.
    pub tenant: u32,
    /// The challenge that the proof was made for.
    pub nonce: [u8; 16],
    /// [`GroupSecret::proof`], if the controller has a secret.
    pub proof: Vec<u8>,
    /// The key of its ticket: fresh randomness, from the carrier of the call.
    pub key: u64,
    /// How long it waits for the others.
    pub wait_ns: IncTime,
}

/// A call to the controller.
#[derive(Debug, Clone)]
pub enum ControllerCall {
    /// Asks for a challenge; the argument is fresh randomness, from the carrier of the call.
    Challenge([u8; 16]),
    /// Joins a group; answered when all ranks did.
    Join(JoinRequest),
    /// Makes a communicator; answered when all ranks called. The end is that of the member's edge.
    CreateCommunicator(MemberTicket, EdgeAttributes, EdgeEnd, IncTime),
    /// Destroys a communicator; answered when all ranks called.
    DestroyCommunicator(MemberTicket, CommunicatorId),
    /// Leaves the group, and destroys its communicators for this rank.
    Leave(MemberTicket),
    /// Puts another topology in force.
    PutTopology(TopologyRequest),
}

/// Answer to a [`ControllerCall`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallAnswer {
    /// To a challenge, a destroyed communicator, a member that leaves, and another topology.
    Done,
    /// All ranks of the group joined.
    Joined(MemberTicket),
    /// All ranks of the group called.
    Created(CommunicatorId),
}

/// Why a call or a session is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// Another version of the protocol.
    #[error("version {theirs} of the protocol, the controller has {CONTROL_VERSION}")]
    Version {
        /// Version of the caller.
        theirs: u32,
    },
    /// The proof, or the challenge it was made for.
    #[error("rank {rank} may not join group {group}: wrong proof")]
    Proof {
        /// Name of the group.
        group: String,
        /// The rank that wanted to join.
        rank: u32,
    },
    /// The proof of a topology, or the challenge it was made for.
    #[error("this topology may not be put: wrong proof")]
    TopologyProof,
    /// No ranks, or too many.
    #[error("a group has 1 to 65535 ranks, not {0}")]
    WorldSize(u32),
    /// A name that is too long.
    #[error("the name of a group has {GROUP_NAME_MAX} bytes at most, not {0}")]
    GroupName(usize),
    /// Another number of ranks than the first one said, or another tenant.
    #[error("rank {rank} says {what} {theirs} of group {group}, rank {first} said {ours}")]
    Differs {
        /// Name of the group.
        group: String,
        /// Name of what differs.
        what: &'static str,
        /// The rank that wanted to join.
        rank: u32,
        /// The number that it gave.
        theirs: u32,
        /// A rank that joined before.
        first: u16,
        /// What that one said.
        ours: u32,
    },
    /// A number that is no rank of the group.
    #[error("rank {rank} of group {group} is out of range: the group has {world_size} ranks")]
    RankRange {
        /// Name of the group.
        group: String,
        /// The rank that wanted to join.
        rank: u32,
        /// Ranks of the group.
        world_size: u32,
    },
    /// Another one has joined as this rank.
    #[error("rank {rank} of group {group} has joined before, from {address}")]
    RankTaken {
        /// Name of the group.
        group: String,
        /// The rank that wanted to join.
        rank: u32,
        /// Where the other one is.
        address: IpAddr,
    },
    /// Some did not come in time.
    #[error("{missing} of {what} did not come in time")]
    Missing {
        /// The ranks, in words.
        missing: String,
        /// What they were waited for.
        what: String,
    },
    /// No such group, or not its member: which of both is not said.
    #[error("no such member of a group")]
    UnknownMember,
    /// The group is over.
    #[error("group {group} is over: {why}")]
    Over {
        /// Name of the group.
        group: String,
        /// Why it is over.
        why: String,
    },
    /// The communicator could not be made.
    #[error("the communicator was not made: {0}")]
    NotCreated(String),
    /// A switch that the topology does not have.
    #[error("the topology has no switch {0}")]
    UnknownSwitch(String),
    /// Too many of something.
    #[error("the controller has {count} {what}, as many as it may have")]
    TooMany {
        /// What there are too many of.
        what: &'static str,
        /// So many there are.
        count: usize,
    },
}

/// What a switch may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SwitchCapacity {
    /// Bytes of slots that it has.
    pub memory: u64,
    /// Communicators that it may have at once.
    pub communicators: u32,
}

/// The first message of a switch.
#[derive(Debug, Clone)]
pub struct SwitchHello {
    /// Version of its protocol.
    pub version: u32,
    /// Its name in the topology; `None`: it is found by its address.
    pub name: Option<String>,
    /// An address of it.
    pub address: IpAddr,
    /// Differs each time that the program starts.
    pub incarnation: u64,
    /// What it may hold.
    pub capacity: SwitchCapacity,
    /// The parts of trees that it has.
    pub lives: Vec<TreeLife>,
}

/// The first message of a host's session.
#[derive(Debug, Clone)]
pub struct HostHello {
    /// Version of its protocol.
    pub version: u32,
    /// What it was given when it joined.
    pub ticket: MemberTicket,
    /// The communicators that it has.
    pub lives: Vec<TreeLife>,
}

/// What the controller wants done.
#[derive(Debug, Clone, PartialEq)]
pub enum ControllerAction {
    /// The answer to a call.
    Answer(CallId, Result<CallAnswer, CallError>),
    /// A command to the switch of a session.
    ToSwitch(SessionId, SwitchCommand),
    /// A command to the host of a session.
    ToHost(SessionId, HostCommand),
    /// A session is over; the text says why.
    EndSession(SessionId, String),
}

/// A group, as lists show it.
#[derive(Debug, Clone)]
pub struct GroupState {
    /// Number of the group.
    pub id: GroupId,
    /// Name of the group.
    pub name: String,
    /// Ranks that it has when it is complete.
    pub world_size: u16,
    /// Whose quota its communicators count to.
    pub tenant: u32,
    /// Who joined so far.
    pub members: BTreeMap<Rank, MemberState>,
    /// How far it is.
    pub phase: GroupPhase,
}

/// How far a group is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GroupPhase {
    /// Ranks are waited for, until this time.
    Creating(IncTime),
    /// All its ranks joined.
    Ready,
    /// It is over; the text says why.
    Over(String),
}

/// A member of a group.
#[derive(Debug, Clone)]
pub struct MemberState {
    /// Where its host is found in the topology.
    pub address: IpAddr,
    /// The key of its ticket.
    pub key: u64,
    /// Its call to join, while that waits.
    pub call: Option<CallId>,
    /// Its session, if it has one.
    pub session: Option<SessionId>,
    /// Without a session it is lost at this time.
    pub absent_until: IncTime,
    /// Communicators that it called for so far.
    pub created: u64,
    /// It left the group in order.
    pub has_left: bool,
}

/// A switch, as lists show it.
#[derive(Debug, Clone)]
pub struct SwitchState {
    /// Its name in the topology.
    pub name: String,
    /// Differs each time that the program starts.
    pub incarnation: u64,
    /// What it may hold.
    pub capacity: SwitchCapacity,
    /// Its session; `None`: it is lost, or after a restart not here yet.
    pub session: Option<SessionId>,
    /// Bytes that are reserved, by tenant.
    pub reserved: BTreeMap<u32, u64>,
    /// Parts of trees that it has.
    pub parts: u32,
    /// What its communicators last reported.
    pub counts: BTreeMap<CommunicatorId, PartCounts>,
    /// What it refused that was no communicator's, as it last reported.
    pub strays: StrayCounts,
}

/// What a controller did, for its metrics.
#[derive(Debug, Clone, Default)]
pub struct ControllerCounts {
    /// Communicators that were aborted, by tenant and reason.
    pub aborts: BTreeMap<(u32, String), u64>,
    /// Times that a communicator got no tree of switches, by tenant and reason; while it stays without, it is not counted
    /// again.
    pub fallbacks: BTreeMap<(u32, &'static str), u64>,
    /// Times that a communicator left an epoch.
    pub drains: u64,
    /// Joins that were refused.
    pub refused_joins: u64,
    /// Sessions that ended by silence.
    pub silences: u64,
}

impl GroupState {
    /// When a group that was over before a restart, and of which no member came back, is dropped.
    fn forgotten_at(&self) -> Option<IncTime> {
        let is_over = matches!(self.phase, GroupPhase::Over(_));
        let has_none = self.members.values().all(|member| member.session.is_none());
        let until = self.members.values().map(|member| member.absent_until);
        if is_over && has_none { until.max() } else { None }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum SessionPeer {
    Switch(String),
    Host(GroupId, Rank),
}

/// A controller of groups, communicators and trees.
#[derive(Debug)]
pub struct Controller {
    cfg: ControllerCfg,
    map: PhysicalMap,
    groups: BTreeMap<GroupId, GroupState>,
    communicators: BTreeMap<CommunicatorId, CommunicatorState>,
    switches: BTreeMap<String, SwitchState>,
    sessions: BTreeMap<SessionId, (SessionPeer, IncTime)>,
    challenges: Challenges,
    group_next: u64,
    communicator_next: u64,
    actions: VecDeque<ControllerAction>,
    last_time: IncTime,
    /// Something changed that a restarted controller has to know.
    is_changed: bool,
    /// Another topology was put since that was asked for.
    is_map_put: bool,
    /// Until then peers of the controller before this one are waited for.
    restored_until: Option<IncTime>,
    /// Communicators without a tree may get one now.
    is_retry_due: bool,
    counts: ControllerCounts,
}

impl ControllerCfg {
    /// Sessions are over after 300 ms; no proof is asked for, and there are no quotas.
    #[must_use]
    pub fn new() -> Self {
        Self {
            silence_ns: 300 * MS,
            install_ns: 2_000 * MS,
            drain_ns: 5_000 * MS,
            abort_ns: 300 * MS,
            destroy_ns: 10_000 * MS,
            grace_ns: 30_000 * MS,
            switch_grace_ns: 5_000 * MS,
            secret: None,
            group_secrets: BTreeMap::new(),
            topology_secret: None,
            quota: None,
            quotas: BTreeMap::new(),
        }
    }
}

impl Default for ControllerCfg {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for MemberTicket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MemberTicket({}, {})", self.group.0, self.rank.0)
    }
}

impl Controller {
    /// A controller that knows the topology and no one in it.
    #[must_use]
    pub fn new(cfg: ControllerCfg, map: PhysicalMap) -> Self {
        Self {
            cfg,
            map,
            groups: BTreeMap::new(),
            communicators: BTreeMap::new(),
            switches: BTreeMap::new(),
            sessions: BTreeMap::new(),
            challenges: Challenges::default(),
            group_next: 1,
            communicator_next: 1,
            actions: VecDeque::new(),
            last_time: 0,
            is_changed: false,
            is_map_put: false,
            restored_until: None,
            is_retry_due: false,
            counts: ControllerCounts::default(),
        }
    }

    /// A call came in.
    pub fn on_call(&mut self, now: IncTime, id: CallId, call: ControllerCall) {
        let answer = match call {
            ControllerCall::Challenge(nonce) => {
                self.challenges.add(nonce);
                Some(Ok(CallAnswer::Done))
            }
            ControllerCall::Join(request) => {
                let refused = self.join(now, id, request).err();
                self.counts.refused_joins += u64::from(refused.is_some());
                refused.map(Err)
            }
            ControllerCall::CreateCommunicator(ticket, attributes, end, wait_ns) => {
                self.create(now, id, ticket, (attributes, end), wait_ns).err().map(Err)
            }
            ControllerCall::DestroyCommunicator(ticket, communicator) => {
                self.destroy(now, id, ticket, communicator).transpose()
            }
            ControllerCall::Leave(ticket) => Some(self.leave(now, ticket)),
            ControllerCall::PutTopology(request) => {
                let checked = self.check_topology_proof(&request);
                Some(checked.map(|()| {
                    self.put_topology(now, request.map);
                    CallAnswer::Done
                }))
            }
        };
        if let Some(answer) = answer {
            self.actions.push_back(ControllerAction::Answer(id, answer));
        }
    }

    /// A caller is gone that waited for its answer.
    pub fn on_call_end(&mut self, now: IncTime, id: CallId) {
        let mut given_up = Vec::new();
        for group in self.groups.values_mut() {
            if matches!(group.phase, GroupPhase::Creating(_)) {
                group.members.retain(|_, member| member.call != Some(id));
            } else {
                // All have joined, and this one cannot have learned its key.
                let lost = group.members.iter().find(|(_, member)| member.call == Some(id));
                given_up.extend(lost.map(|(&rank, _)| (group.id, rank)));
            }
        }
        self.groups.retain(|_, group| !group.members.is_empty());
        for (group, rank) in given_up {
            self.member_lost(now, group, rank, "its program ended");
        }
        self.creator_lost(now, id);
    }

    /// A switch begins a session.
    ///
    /// # Errors
    /// [`CallError`]; the session is not taken then.
    pub fn on_switch_session(
        &mut self,
        now: IncTime,
        id: SessionId,
        hello: SwitchHello,
    ) -> Result<(), CallError> {
        check_version(hello.version)?;
        let found = match &hello.name {
            Some(name) => self.map.node_named(name),
            None => self.map.switch_at(hello.address),
        };
        let found = found.filter(|&node| self.map.nodes[node].kind == NodeKind::Switch);
        let Some(node) = found else {
            let name = hello.name.unwrap_or_else(|| format!("with the address {}", hello.address));
            return Err(CallError::UnknownSwitch(name));
        };
        let name = self.map.nodes[node].name.clone();
        if let Some(old) = self.switches.get(&name).and_then(|switch| switch.session) {
            self.end_session(old, "the switch began another session");
        }
        self.sessions.insert(id, (SessionPeer::Switch(name.clone()), now));
        let switch = self.switches.entry(name.clone()).or_insert_with(|| SwitchState {
            name: name.clone(),
            incarnation: hello.incarnation,
            capacity: hello.capacity,
            session: None,
            reserved: BTreeMap::new(),
            parts: 0,
            counts: BTreeMap::new(),
            strays: StrayCounts::default(),
        });
        let is_new = switch.incarnation != hello.incarnation;
        (switch.incarnation, switch.capacity) = (hello.incarnation, hello.capacity);
        switch.session = Some(id);
        if is_new {
            switch.counts.clear();
            switch.strays = StrayCounts::default();
        }
        self.switch_here(now, &name, &hello.lives);
        Ok(())
    }

    /// A host begins a session.
    ///
    /// # Errors
    /// [`CallError`]; the session is not taken then.
    pub fn on_host_session(
        &mut self,
        now: IncTime,
        id: SessionId,
        hello: &HostHello,
    ) -> Result<(), CallError> {
        check_version(hello.version)?;
        let ticket = hello.ticket;
        let member = self.member(ticket)?;
        member.call = None;
        if let Some(old) = member.session.replace(id) {
            self.end_session(old, "the member began another session");
        }
        self.sessions.insert(id, (SessionPeer::Host(ticket.group, ticket.rank), now));
        self.host_here(now, ticket, &hello.lives);
        Ok(())
    }

    /// A session is over.
    pub fn on_session_end(&mut self, now: IncTime, id: SessionId) {
        self.session_lost(now, id, "its session ended");
    }

    /// A sign of life.
    pub fn on_heartbeat(&mut self, now: IncTime, id: SessionId) {
        if let Some((_, last)) = self.sessions.get_mut(&id) {
            *last = now;
        }
    }

    /// A report of a switch came.
    pub fn on_switch(&mut self, now: IncTime, id: SessionId, report: SwitchReport) {
        self.on_heartbeat(now, id);
        let Some((SessionPeer::Switch(name), _)) = self.sessions.get(&id) else { return };
        let name = name.clone();
        self.switch_report(now, &SwitchHome::Node(name), report);
    }

    /// A report of a host came.
    pub fn on_host(&mut self, now: IncTime, id: SessionId, report: HostReport) {
        self.on_heartbeat(now, id);
        let Some(&(SessionPeer::Host(group, rank), _)) = self.sessions.get(&id) else { return };
        self.host_report(now, group, rank, report);
    }

    /// The time has come that [`Controller::poll_deadline`] gave. To be called at least every 100 ms: a longer pause means
    /// that this process stood still, and signs of life may not have been read yet.
    pub fn on_time(&mut self, now: IncTime) {
        let pause = now.saturating_sub(self.last_time);
        if self.last_time != 0 && pause > self.cfg.silence_ns / 2 {
            for (_, last) in self.sessions.values_mut() {
                *last = (*last + pause).min(now);
            }
        }
        self.last_time = now;
        let silence = self.cfg.silence_ns;
        let is_silent =
            |(_, (_, last)): &(&SessionId, &(SessionPeer, IncTime))| *last + silence <= now;
        let silent: Vec<_> = self.sessions.iter().filter(is_silent).map(|(&id, _)| id).collect();
        for id in silent {
            self.counts.silences += 1;
            let text = format!("no sign of life for {} ms", silence / MS);
            self.actions.push_back(ControllerAction::EndSession(id, text.clone()));
            self.session_lost(now, id, &text);
        }
        self.restored_on_time(now);
        self.groups_on_time(now);
        self.communicators_on_time(now);
    }

    /// When [`Controller::on_time`] is due at the latest; `None`: nothing is waited for.
    #[must_use]
    pub fn poll_deadline(&self) -> Option<IncTime> {
        let sessions = self.sessions.values().map(|(_, last)| last + self.cfg.silence_ns);
        let groups = self.groups.values().flat_map(|group| {
            let creating = match group.phase {
                GroupPhase::Creating(deadline) => Some(deadline),
                GroupPhase::Ready | GroupPhase::Over(_) => None,
            };
            let is_absent = |member: &&MemberState| {
                group.phase == GroupPhase::Ready && member.session.is_none() && !member.has_left
            };
            let absent = group.members.values().filter(is_absent);
            let absent = absent.map(|member| member.absent_until);
            creating.into_iter().chain(absent).chain(group.forgotten_at())
        });
        let communicators = self.communicators.values().filter_map(CommunicatorState::deadline);
        sessions.chain(groups).chain(communicators).chain(self.restored_until).min()
    }

    /// The next thing to be done.
    pub fn poll_action(&mut self) -> Option<ControllerAction> {
        self.actions.pop_front()
    }

    /// Whether something changed since the last call that a restarted controller has to know. Store it before any action
    /// that was not polled yet.
    pub fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.is_changed)
    }

    /// Whether another topology was put in force since the last call.
    pub fn take_map_put(&mut self) -> bool {
        std::mem::take(&mut self.is_map_put)
    }

    /// All groups, by their numbers.
    pub fn groups(&self) -> impl Iterator<Item = &GroupState> {
        self.groups.values()
    }

    /// All communicators, by their numbers.
    pub fn communicators(&self) -> impl Iterator<Item = &CommunicatorState> {
        self.communicators.values()
    }

    /// All switches that ever had a session, by name.
    pub fn switches(&self) -> impl Iterator<Item = &SwitchState> {
        self.switches.values()
    }

    /// The topology in force.
    #[must_use]
    pub fn map(&self) -> &PhysicalMap {
        &self.map
    }

    /// What happened so far.
    #[must_use]
    pub fn counts(&self) -> &ControllerCounts {
        &self.counts
    }

    fn join(&mut self, now: IncTime, id: CallId, request: JoinRequest) -> Result<(), CallError> {
        check_version(request.version)?;
        // First: other refusals repeat the name.
        if request.name.len() > GROUP_NAME_MAX {
            return Err(CallError::GroupName(request.name.len()));
        }
        self.check_proof(&request)?;
        let JoinRequest { name, world_size, rank, address, tenant, .. } = request;
        if !(1..=RANKS_MAX).contains(&world_size) {
            return Err(CallError::WorldSize(world_size));
        }
        let is_open = |group: &&mut GroupState| {
            group.name == name && !matches!(group.phase, GroupPhase::Over(_))
        };
        let open = self.groups.values_mut().find(is_open);
        let differs = |what, theirs, first: &GroupState, ours| {
            let first = first.members.keys().next().map_or(0, |rank| rank.0);
            Err(CallError::Differs { group: name.clone(), what, rank, theirs, first, ours })
        };
        if let Some(group) = &open {
            if u32::from(group.world_size) != world_size {
                return differs("world size", world_size, group, u32::from(group.world_size));
            }
            if group.tenant != tenant {
                return differs("tenant", tenant, group, group.tenant);
            }
        }
        let in_range = u16::try_from(rank).ok().filter(|_| rank < world_size).map(Rank);
        let Some(rank) = in_range else {
            return Err(CallError::RankRange { group: name, rank, world_size });
        };
        let taken = open.as_ref().and_then(|group| group.members.get(&rank));
        if let Some(member) = taken {
            let address = member.address;
            return Err(CallError::RankTaken { group: name, rank: u32::from(rank.0), address });
        }
        let deadline = now.saturating_add(request.wait_ns);
        let open = open.map(|group| group.id);
        let group = match open {
            Some(group) => group,
            None => self.new_group(name, world_size, tenant, deadline)?,
        };
        let Some(group) = self.groups.get_mut(&group) else { return Ok(()) };
        let member = MemberState {
            address,
            key: request.key,
            call: Some(id),
            session: None,
            absent_until: deadline,
            created: 0,
            has_left: false,
        };
        group.members.insert(rank, member);
        if group.members.len() == usize::from(group.world_size) {
            group.phase = GroupPhase::Ready;
            for (&rank, member) in &mut group.members {
                member.absent_until = now.saturating_add(self.cfg.grace_ns);
                let ticket = MemberTicket { group: group.id, rank, key: member.key };
                if let Some(call) = member.call {
                    let answer = Ok(CallAnswer::Joined(ticket));
                    self.actions.push_back(ControllerAction::Answer(call, answer));
                }
            }
            self.is_changed = true;
        }
        Ok(())
    }

    fn new_group(
        &mut self,
        name: String,
        world_size: u32,
        tenant: u32,
        deadline: IncTime,
    ) -> Result<GroupId, CallError> {
        if self.groups.len() >= GROUPS_MAX {
            return Err(CallError::TooMany { what: "groups", count: self.groups.len() });
        }
        let world_size = u16::try_from(world_size).map_err(|_| CallError::WorldSize(world_size))?;
        let id = GroupId(self.group_next);
        self.group_next += 1;
        let phase = GroupPhase::Creating(deadline);
        let members = BTreeMap::new();
        self.groups.insert(id, GroupState { id, name, world_size, tenant, members, phase });
        Ok(id)
    }

    /// The member that a ticket belongs to.
    fn member(&mut self, ticket: MemberTicket) -> Result<&mut MemberState, CallError> {
        let group = self.groups.get_mut(&ticket.group).ok_or(CallError::UnknownMember)?;
        let member = group.members.get_mut(&ticket.rank);
        let member = member.filter(|member| member.key == ticket.key && !member.has_left);
        let member = member.ok_or(CallError::UnknownMember)?;
        match &group.phase {
            GroupPhase::Ready => Ok(member),
            GroupPhase::Creating(_) => Err(CallError::UnknownMember),
            GroupPhase::Over(why) => {
                Err(CallError::Over { group: group.name.clone(), why: why.clone() })
            }
        }
    }

    fn leave(&mut self, now: IncTime, ticket: MemberTicket) -> Result<CallAnswer, CallError> {
        let result = self.member(ticket).map(|member| member.has_left = true);
        match result {
            Ok(()) => self.rank_destroys_all(now, ticket.group, ticket.rank),
            // Its group ended before it left.
            Err(CallError::Over { .. }) => {
                let group = self.groups.get_mut(&ticket.group);
                if let Some(member) = group.and_then(|group| group.members.get_mut(&ticket.rank)) {
                    member.has_left = true;
                }
            }
            Err(error) => return Err(error),
        }
        self.is_changed = true;
        self.forget_group(ticket.group);
        Ok(CallAnswer::Done)
    }

    /// Drops a group that no member has a session of or may come back to.
    fn forget_group(&mut self, id: GroupId) {
        let Some(group) = self.groups.get(&id) else { return };
        let is_over = matches!(group.phase, GroupPhase::Over(_));
        let is_gone =
            |member: &MemberState| member.has_left || (is_over && member.session.is_none());
        if group.members.values().all(is_gone) {
            self.groups.remove(&id);
            self.is_changed = true;
            let of: Vec<_> = self.of_group(id);
            for communicator in of {
                self.close(communicator);
            }
        }
    }

    fn groups_on_time(&mut self, now: IncTime) {
        let (mut late, mut absent, mut forgotten) = (Vec::new(), Vec::new(), Vec::new());
        for group in self.groups.values() {
            forgotten.extend(group.forgotten_at().filter(|at| *at <= now).map(|_| group.id));
            match group.phase {
                GroupPhase::Creating(deadline) if deadline <= now => late.push(group.id),
                GroupPhase::Ready => {
                    let is_absent = |(_, member): &(&Rank, &MemberState)| {
                        member.session.is_none() && !member.has_left && member.absent_until <= now
                    };
                    let ranks = group.members.iter().filter(is_absent);
                    absent.extend(ranks.map(|(&rank, _)| (group.id, rank)));
                }
                GroupPhase::Creating(_) | GroupPhase::Over(_) => {}
            }
        }
        for id in late {
            let Some(group) = self.groups.remove(&id) else { continue };
            let all = (0..group.world_size).map(Rank);
            let missing: Vec<_> = all.filter(|rank| !group.members.contains_key(rank)).collect();
            let error = CallError::Missing {
                missing: plan::ranks_text(&missing),
                what: format!("group {}", group.name),
            };
            for call in group.members.values().filter_map(|member| member.call) {
                self.actions.push_back(ControllerAction::Answer(call, Err(error.clone())));
            }
        }
        for (group, rank) in absent {
            self.member_lost(now, group, rank, "it opened no session");
        }
        for id in forgotten {
            self.forget_group(id);
        }
    }

    fn session_lost(&mut self, now: IncTime, id: SessionId, why: &str) {
        let Some((peer, _)) = self.sessions.remove(&id) else { return };
        match peer {
            SessionPeer::Switch(name) => {
                if let Some(switch) = self.switches.get_mut(&name) {
                    switch.session = None;
                }
                self.switch_lost(now, &name);
            }
            SessionPeer::Host(group, rank) => {
                let member = self.groups.get_mut(&group);
                let Some(member) = member.and_then(|group| group.members.get_mut(&rank)) else {
                    return;
                };
                member.session = None;
                if member.has_left {
                    return self.forget_group(group);
                }
                self.member_lost(now, group, rank, why);
            }
        }
    }

    /// Ends a session that another one took the place of; its peer is not lost.
    fn end_session(&mut self, id: SessionId, why: &str) {
        self.sessions.remove(&id);
        self.actions.push_back(ControllerAction::EndSession(id, why.to_owned()));
    }

    /// A member is dead: its group is over, and the communicators of the group.
    fn member_lost(&mut self, now: IncTime, group: GroupId, rank: Rank, why: &str) {
        let Some(of) = self.groups.get_mut(&group) else { return };
        if of.phase == GroupPhase::Ready {
            let text = format!("rank {} ({}) is dead: {why}", rank.0, of.members[&rank].address);
            of.phase = GroupPhase::Over(text.clone());
            self.is_changed = true;
            for communicator in self.of_group(group) {
                self.abort_now(now, communicator, AbortReason::MemberDead, &text);
            }
        }
        self.forget_group(group);
    }

    /// Whose quota a group counts to.
    fn tenant_of(&self, group: GroupId) -> u32 {
        self.groups.get(&group).map_or(0, |group| group.tenant)
    }

    fn of_group(&self, group: GroupId) -> Vec<CommunicatorId> {
        let of = self.communicators.values().filter(|communicator| communicator.group == group);
        of.map(|communicator| communicator.id).collect()
    }

    fn send_switch(&mut self, name: &str, command: SwitchCommand) {
        if let Some(session) = self.switches.get(name).and_then(|switch| switch.session) {
            self.actions.push_back(ControllerAction::ToSwitch(session, command));
        }
    }

    /// To a switch of a tree, wherever it runs.
    fn send_part(&mut self, group: GroupId, home: &SwitchHome, command: SwitchCommand) {
        match home {
            SwitchHome::Node(name) => self.send_switch(name, command),
            SwitchHome::Member(rank) => self.send_host(group, *rank, HostCommand::Switch(command)),
        }
    }

    fn send_host(&mut self, group: GroupId, rank: Rank, command: HostCommand) {
        let member = self.groups.get(&group).and_then(|group| group.members.get(&rank));
        if let Some(session) = member.and_then(|member| member.session) {
            self.actions.push_back(ControllerAction::ToHost(session, command));
        }
    }
}

fn check_version(theirs: u32) -> Result<(), CallError> {
    if theirs == CONTROL_VERSION { Ok(()) } else { Err(CallError::Version { theirs }) }
}

#[cfg(test)]
mod tests;
