//! A controller with switches and hosts that the tests play.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use proptest::prelude::*;
use urma_packet::{Psn, Tpn};

use super::*;
use crate::control::{ChunkReport, CurrentOperation, EdgeEnds, InstallError, TreeStart};
use crate::document::read_map;
use crate::edge::WriteWindow;
use crate::element::{ElementType, Operator, Reduction};
use crate::slots::{ChunkConflict, To};
use crate::switch::memory_of;
use crate::wire::{Collective, IncHeader, IncKind, Seq, TreeEpoch};

/// Two switches above two leaves with two hosts each.
const MAP: &str = "nodes:
  - {name: a, kind: switch, address: 10.0.0.1}
  - {name: b, kind: switch, address: 10.0.0.2}
  - {name: left, kind: switch, address: 10.0.0.3}
  - {name: right, kind: switch, address: 10.0.0.4}
  - {name: h0, kind: host, address: 10.0.1.0}
  - {name: h1, kind: host, address: 10.0.1.1}
  - {name: h2, kind: host, address: 10.0.1.2}
  - {name: h3, kind: host, address: 10.0.1.3}
links:
  - ends: [a, left]
  - ends: [a, right]
  - ends: [b, left]
  - ends: [b, right]
  - ends: [left, h0]
  - ends: [right, h1]
  - ends: [left, h2]
  - ends: [right, h3]
";
const NAMES: [&str; 4] = ["a", "b", "left", "right"];

/// A controller, and what it said that no test has looked at yet.
struct World {
    controller: Controller,
    now: IncTime,
    next: u64,
    switches: BTreeMap<String, SessionId>,
    hosts: BTreeMap<u16, SessionId>,
    tickets: BTreeMap<u16, MemberTicket>,
    said: VecDeque<ControllerAction>,
    /// Members reduce in their own programs where no switch can be had.
    fallback: bool,
}

fn end(n: u32) -> EdgeEnd {
    EdgeEnd {
        address: SocketAddr::from((Ipv4Addr::LOCALHOST, 4791)),
        qpn: Tpn::new(n).unwrap(),
        first_psn: Psn::new(0),
        window: WriteWindow { base: 0, key: n },
    }
}

fn address(rank: u32) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 1, u8::try_from(rank % 256).unwrap()))
}

fn request(rank: u32, world_size: u32) -> JoinRequest {
    JoinRequest {
        version: CONTROL_VERSION,
        name: "job".to_owned(),
        world_size,
        rank,
        address: address(rank),
        tenant: 7,
        nonce: [0; 16],
        proof: Vec::new(),
        key: 100 + u64::from(rank),
        wait_ns: 1000 * MS,
    }
}

impl World {
    fn new(cfg: ControllerCfg) -> Self {
        Self {
            controller: Controller::new(cfg, read_map(MAP).unwrap()),
            now: MS,
            next: 0,
            switches: BTreeMap::new(),
            hosts: BTreeMap::new(),
            tickets: BTreeMap::new(),
            said: VecDeque::new(),
            fallback: false,
        }
    }

    /// All switches are here, and four ranks have joined and opened their sessions.
    fn ready(cfg: ControllerCfg) -> Self {
        let mut world = Self::new(cfg);
        for name in NAMES {
            world.switch(name, 1, &[]).unwrap();
        }
        world.join_all();
        world
    }

    fn join_all(&mut self) {
        let calls = [2, 0, 3, 1].map(|rank| self.call(ControllerCall::Join(request(rank, 4))));
        for call in calls {
            let Some(Ok(CallAnswer::Joined(ticket))) = self.answer(call) else {
                panic!("{:?}", self.said)
            };
            self.tickets.insert(ticket.rank.0, ticket);
            self.host(ticket.rank.0, &[]).unwrap();
        }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn call(&mut self, call: ControllerCall) -> CallId {
        let id = CallId(self.number());
        self.controller.on_call(self.now, id, call);
        id
    }

    /// The error that a call is answered with, in words.
    fn error(&mut self, call: ControllerCall) -> String {
        let id = self.call(call);
        self.answer(id).unwrap().unwrap_err().to_string()
    }

    fn switch(
        &mut self,
        name: &str,
        incarnation: u64,
        lives: &[TreeLife],
    ) -> Result<SessionId, CallError> {
        let id = SessionId(self.number());
        let hello = SwitchHello {
            version: CONTROL_VERSION,
            name: Some(name.to_owned()),
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            incarnation,
            capacity: SwitchCapacity { memory: 8 << 20, communicators: 16 },
            lives: lives.to_vec(),
        };
        self.controller.on_switch_session(self.now, id, hello)?;
        self.switches.insert(name.to_owned(), id);
        Ok(id)
    }

    fn host(&mut self, rank: u16, lives: &[TreeLife]) -> Result<SessionId, CallError> {
        let id = SessionId(self.number());
        let hello = HostHello {
            version: CONTROL_VERSION,
            ticket: self.tickets[&rank],
            lives: lives.to_vec(),
        };
        self.controller.on_host_session(self.now, id, &hello)?;
        self.hosts.insert(rank, id);
        Ok(id)
    }

    fn create(&mut self, rank: u16) -> CallId {
        let ticket = self.tickets[&rank];
        let attributes = EdgeAttributes { fallback: self.fallback, ..EdgeAttributes::DEFAULT };
        let own = end(u32::from(rank) + 1);
        self.call(ControllerCall::CreateCommunicator(ticket, attributes, own, 1000 * MS))
    }

    /// A communicator whose tree is not installed yet.
    fn created(&mut self) -> CommunicatorId {
        let calls = [0, 1, 2, 3].map(|rank| self.create(rank));
        let Some(Ok(CallAnswer::Created(id))) = self.answer(calls[0]) else { panic!() };
        for call in &calls[1..] {
            assert_eq!(self.answer(*call), Some(Ok(CallAnswer::Created(id))));
        }
        id
    }

    /// A communicator that runs.
    fn running(&mut self) -> CommunicatorId {
        let id = self.created();
        self.install_all();
        self.listen();
        self.said.clear();
        id
    }

    fn listen(&mut self) {
        while let Some(action) = self.controller.poll_action() {
            self.said.push_back(action);
        }
    }

    fn answer(&mut self, call: CallId) -> Option<Result<CallAnswer, CallError>> {
        self.listen();
        let is_its = |said: &ControllerAction| matches!(said, ControllerAction::Answer(id, _) if *id == call);
        let place = self.said.iter().position(is_its)?;
        match self.said.remove(place) {
            Some(ControllerAction::Answer(_, answer)) => Some(answer),
            other => panic!("{other:?}"),
        }
    }

    /// Commands to a switch, in order.
    fn switch_got(&mut self, name: &str) -> Vec<SwitchCommand> {
        self.listen();
        let session = self.switches[name];
        let mut commands = Vec::new();
        self.said.retain(|said| match said {
            ControllerAction::ToSwitch(to, command) if *to == session => {
                commands.push(command.clone());
                false
            }
            _ => true,
        });
        commands
    }

    /// Commands to a host, in order.
    fn host_got(&mut self, rank: u16) -> Vec<HostCommand> {
        self.listen();
        let session = self.hosts[&rank];
        let mut commands = Vec::new();
        self.said.retain(|said| match said {
            ControllerAction::ToHost(to, command) if *to == session => {
                commands.push(command.clone());
                false
            }
            _ => true,
        });
        commands
    }

    /// Switches install what they are asked to; returns their names.
    fn install_all(&mut self) -> Vec<String> {
        let mut installed = Vec::new();
        for (name, session) in self.switches.clone() {
            for command in self.switch_got(&name) {
                if let SwitchCommand::Install(life, part) = command {
                    let ends = ends(part.children.len(), part.parent.is_some());
                    self.report(session, SwitchReport::Installed(life, ends));
                    installed.push(name.clone());
                }
            }
        }
        installed
    }

    /// Programs of members install what they are asked to; returns the ranks.
    fn install_in_members(&mut self) -> Vec<u16> {
        let mut installed = Vec::new();
        for rank in 0..4 {
            for command in self.host_got(rank) {
                if let HostCommand::Switch(SwitchCommand::Install(life, part)) = command {
                    let ends = ends(part.children.len(), part.parent.is_some());
                    let report = SwitchReport::Installed(life, ends);
                    self.host_report(rank, HostReport::Switch(report));
                    installed.push(rank);
                }
            }
        }
        installed
    }

    fn report(&mut self, session: SessionId, report: SwitchReport) {
        self.controller.on_switch(self.now, session, report);
    }

    fn host_report(&mut self, rank: u16, report: HostReport) {
        self.controller.on_host(self.now, self.hosts[&rank], report);
    }

    /// A host reports that it has all chunks before `oldest`.
    fn chunks(&mut self, rank: u16, life: TreeLife, oldest: u32) {
        let report = ChunkReport { oldest: Seq(oldest), has_result: vec![false; 128] };
        let own = end(50 + u32::from(rank));
        self.host_report(rank, HostReport::Chunks(life, report, own));
    }

    /// All sessions give a sign of life, and the time comes.
    fn pass(&mut self, ns: IncTime) {
        let end = self.now + ns;
        while self.now < end {
            self.now = end.min(self.now + 100 * MS);
            for session in self.switches.values().chain(self.hosts.values()) {
                self.controller.on_heartbeat(self.now, *session);
            }
            self.controller.on_time(self.now);
        }
    }

    fn state(&self, id: CommunicatorId) -> &CommunicatorState {
        &self.controller.communicators[&id]
    }

    fn tree(&self, id: CommunicatorId) -> Vec<String> {
        let tree = self.state(id).tree.iter().flatten();
        tree.map(|switch| switch.home.to_string()).collect()
    }

    fn reserved(&self) -> u64 {
        self.controller.switches().flat_map(|switch| switch.reserved.values()).sum()
    }

    fn starts(&mut self, rank: u16) -> Vec<(TreeLife, TreeStart)> {
        let commands = self.host_got(rank).into_iter();
        let starts = commands.filter_map(|command| match command {
            HostCommand::Start(life, start) => Some((life, start)),
            HostCommand::Prepare(_) | HostCommand::Abort(..) | HostCommand::Switch(_) => None,
        });
        starts.collect()
    }
}

fn ends(children: usize, has_parent: bool) -> EdgeEnds {
    EdgeEnds {
        children: (200..).take(children).map(end).collect(),
        parent: has_parent.then(|| end(300)),
    }
}

fn life(communicator: CommunicatorId, epoch: u16) -> TreeLife {
    TreeLife { communicator, epoch: TreeEpoch(epoch) }
}

fn sum() -> Collective {
    Collective::Allreduce(Reduction::new(Operator::Sum, ElementType::I32).unwrap())
}

#[test]
fn a_group_is_made_when_all_its_ranks_came() {
    let mut world = World::new(ControllerCfg::new());
    let first = world.call(ControllerCall::Join(request(1, 2)));
    assert_eq!(world.answer(first), None);
    let second = world.call(ControllerCall::Join(request(0, 2)));
    for (call, rank) in [(first, 1), (second, 0)] {
        let Some(Ok(CallAnswer::Joined(ticket))) = world.answer(call) else { panic!() };
        assert_eq!((ticket.rank, ticket.key), (Rank(rank), 100 + u64::from(rank)));
    }
}

#[test]
fn who_contradicts_the_group_is_refused_and_the_others_wait_on() {
    let mut world = World::new(ControllerCfg::new());
    let first = world.call(ControllerCall::Join(request(0, 3)));
    let join = |rank, size| ControllerCall::Join(request(rank, size));
    let error = world.error(join(1, 4));
    assert_eq!(error, "rank 1 says world size 4 of group job, rank 0 said 3");
    let error = world.error(join(3, 3));
    assert_eq!(error, "rank 3 of group job is out of range: the group has 3 ranks");
    let error = world.error(join(70000, 3));
    assert!(error.contains("out of range"), "{error}");
    assert_eq!(world.error(join(0, 3)), "rank 0 of group job has joined before, from 10.0.1.0");
    assert_eq!(world.error(join(0, 0)), "a group has 1 to 65535 ranks, not 0");
    let other_tenant = JoinRequest { tenant: 8, ..request(1, 3) };
    let error = world.error(ControllerCall::Join(other_tenant));
    assert_eq!(error, "rank 1 says tenant 8 of group job, rank 0 said 7");
    let other_version = JoinRequest { version: 9, ..request(1, 3) };
    let error = world.error(ControllerCall::Join(other_version));
    assert_eq!(error, "version 9 of the protocol, the controller has 1");
    assert_eq!(world.controller.counts().refused_joins, 7);
    // At the deadline those who never came are named, and the name is free again.
    assert_eq!(world.answer(first), None);
    world.pass(1000 * MS);
    let error = world.answer(first).unwrap().unwrap_err().to_string();
    assert_eq!(error, "ranks 1, 2 of group job did not come in time");
    assert_eq!(world.controller.groups().count(), 0);
}

#[test]
fn a_rank_that_gives_up_before_the_group_is_complete_may_come_again() {
    let mut world = World::new(ControllerCfg::new());
    let zero = world.call(ControllerCall::Join(request(0, 2)));
    let one = world.call(ControllerCall::Join(request(1, 3)));
    assert!(world.answer(one).unwrap().is_err());
    world.controller.on_call_end(world.now, zero);
    assert_eq!(world.controller.groups().count(), 0);
    let again = [0, 1].map(|rank| world.call(ControllerCall::Join(request(rank, 2))));
    assert!(again.into_iter().all(|call| world.answer(call).unwrap().is_ok()));
}

#[test]
fn who_joins_proves_that_it_knows_the_secret() {
    let secret = GroupSecret::new("seaweed");
    let cfg = ControllerCfg { secret: Some(secret.clone()), ..ControllerCfg::new() };
    let mut world = World::new(cfg);
    let nonce = [9; 16];
    let wrong = "rank 0 may not join group job: wrong proof";
    let proof = |secret: &GroupSecret, rank| JoinRequest {
        nonce,
        proof: secret.proof(nonce, "job", rank, address(rank)),
        ..request(rank, 1)
    };
    // Without a challenge, without a proof, by another secret, for another group, rank or address.
    let join = ControllerCall::Join;
    assert_eq!(world.error(join(proof(&secret, 0))), wrong);
    let right = proof(&secret, 0);
    for bad in [
        JoinRequest { nonce, ..request(0, 1) },
        proof(&GroupSecret::new("seaweee"), 0),
        JoinRequest { name: "job2".to_owned(), ..right.clone() },
        JoinRequest { rank: 1, ..right.clone() },
        JoinRequest { address: address(1), ..right.clone() },
    ] {
        world.call(ControllerCall::Challenge(nonce));
        assert!(world.error(join(bad)).ends_with("wrong proof"));
    }
    world.call(ControllerCall::Challenge(nonce));
    let joined = world.call(join(right.clone()));
    assert!(world.answer(joined).unwrap().is_ok());
    // A challenge is good for one join.
    assert_eq!(world.error(join(right)), wrong);
    assert!(!format!("{:?}", world.controller).contains("seaweed"));
}

#[test]
fn a_group_with_a_secret_of_its_own_takes_no_other() {
    let [all, own] = ["seaweed", "kelp"].map(GroupSecret::new);
    let cfg = ControllerCfg {
        secret: Some(all.clone()),
        group_secrets: BTreeMap::from([("job".to_owned(), own.clone())]),
        ..ControllerCfg::new()
    };
    let mut world = World::new(cfg);
    let nonce = [9; 16];
    let mut join = |secret: &GroupSecret, name: &str| {
        let proof = secret.proof(nonce, name, 0, address(0));
        world.call(ControllerCall::Challenge(nonce));
        let request = JoinRequest { name: name.to_owned(), nonce, proof, ..request(0, 1) };
        let call = world.call(ControllerCall::Join(request));
        world.answer(call).unwrap().map_err(|error| error.to_string())
    };
    let wrong = |name| Err(format!("rank 0 may not join group {name}: wrong proof"));
    assert_eq!(join(&all, "job"), wrong("job"));
    assert_eq!(join(&own, "other"), wrong("other"));
    assert!(join(&own, "job").is_ok());
    assert!(join(&all, "other").is_ok());
}

#[test]
fn who_puts_a_topology_proves_that_it_knows_the_secret() {
    let [ranks, admins] = ["seaweed", "kelp"].map(GroupSecret::new);
    let nonce = [9; 16];
    let text = MAP.replace("name: a,", "name: z,").replace("[a,", "[z,");
    let request = |secret: &GroupSecret, text: &str| TopologyRequest {
        map: read_map(text).unwrap(),
        text: text.to_owned(),
        nonce,
        proof: secret.topology_proof(nonce, text),
    };
    let put = |world: &mut World, request| {
        let call = world.call(ControllerCall::PutTopology(request));
        (world.answer(call).unwrap(), world.controller.map().node_named("z").is_some())
    };
    let wrong = (Err(CallError::TopologyProof), false);
    for (secret, own) in [(&admins, Some(admins.clone())), (&ranks, None)] {
        let cfg = ControllerCfg {
            secret: Some(ranks.clone()),
            topology_secret: own,
            ..ControllerCfg::new()
        };
        let mut world = World::new(cfg);
        let right = request(secret, &text);
        // Without a challenge, without a proof, of another text, by another secret, and by the proof of a rank.
        assert_eq!(put(&mut world, right.clone()), wrong);
        let other = if *secret.topology_proof(nonce, "") == *ranks.topology_proof(nonce, "") {
            &admins
        } else {
            &ranks
        };
        for bad in [
            TopologyRequest { proof: Vec::new(), ..right.clone() },
            TopologyRequest { proof: secret.topology_proof(nonce, MAP), ..right.clone() },
            request(other, &text),
            TopologyRequest { proof: secret.proof(nonce, "job", 0, address(0)), ..right.clone() },
        ] {
            world.call(ControllerCall::Challenge(nonce));
            assert_eq!(put(&mut world, bad), wrong);
            assert!(!world.controller.take_map_put());
        }
        world.call(ControllerCall::Challenge(nonce));
        assert_eq!(put(&mut world, right.clone()), (Ok(CallAnswer::Done), true));
        // A challenge is good for one topology.
        assert_eq!(put(&mut world, right).0, Err(CallError::TopologyProof));
    }
}

#[test]
fn calls_with_another_members_ticket_are_refused_alike() {
    let mut world = World::ready(ControllerCfg::new());
    let ticket = world.tickets[&0];
    for bad in [
        MemberTicket { key: 1, ..ticket },
        MemberTicket { rank: Rank(1), ..ticket },
        MemberTicket { group: GroupId(99), ..ticket },
    ] {
        assert_eq!(world.error(ControllerCall::Leave(bad)), "no such member of a group");
        let hello = HostHello { version: CONTROL_VERSION, ticket: bad, lives: Vec::new() };
        let refused = world.controller.on_host_session(world.now, SessionId(999), &hello);
        assert_eq!(refused, Err(CallError::UnknownMember));
    }
    let hello = HostHello { version: 2, ticket, lives: Vec::new() };
    let refused = world.controller.on_host_session(world.now, SessionId(999), &hello);
    assert_eq!(refused, Err(CallError::Version { theirs: 2 }));
}

#[test]
fn a_tree_is_started_when_all_switches_have_installed_it() {
    let mut world = World::ready(ControllerCfg::new());
    let id = world.created();
    assert_eq!(world.tree(id), ["a", "left", "right"]);
    let part = |commands: Vec<SwitchCommand>| match &commands[..] {
        [SwitchCommand::Install(of, part)] => {
            assert_eq!((*of, part.tenant), (life(id, 1), 7));
            part.clone()
        }
        other => panic!("{other:?}"),
    };
    let [a, left, right] = ["a", "left", "right"].map(|name| part(world.switch_got(name)));
    assert_eq!((a.children.len(), left.children.len(), a.parent), (2, 2, None));
    assert_eq!(right.parent, Some(SocketAddr::from(([10, 0, 0, 4], 4791))));
    assert!(world.switch_got("b").is_empty());
    for name in ["a", "left"] {
        let installed = SwitchReport::Installed(life(id, 1), ends(2, name != "a"));
        world.report(world.switches[name], installed);
    }
    assert!(world.starts(0).is_empty() && world.switch_got("a").is_empty());
    let installed = SwitchReport::Installed(life(id, 1), ends(2, true));
    world.report(world.switches["right"], installed);
    let SwitchCommand::Start(_, Seq(0), ends) = world.switch_got("a").remove(0) else { panic!() };
    assert_eq!((ends.children, ends.parent), (vec![end(300), end(300)], None));
    let SwitchCommand::Start(_, _, ends) = world.switch_got("right").remove(0) else { panic!() };
    assert_eq!((ends.children, ends.parent), (vec![end(2), end(4)], Some(end(201))));
    for (rank, qpn) in [(0, 200), (1, 200), (2, 201), (3, 201)] {
        let [(of, start)] = &world.starts(rank)[..] else { panic!("{rank}") };
        assert_eq!((*of, start.parent), (life(id, 1), Some(end(qpn))));
        assert_eq!(start.without, None);
        assert_eq!((start.plan.first, start.plan.owners.len()), (Seq(0), 0));
    }
}

#[test]
fn a_communicator_needs_all_ranks_and_one_set_of_attributes() {
    let mut world = World::ready(ControllerCfg::new());
    let calls = [0, 1, 3].map(|rank| world.create(rank));
    world.pass(1000 * MS);
    for call in calls {
        let error = world.answer(call).unwrap().unwrap_err().to_string();
        assert!(error.contains("rank 2 of communicator 0 of its group did not come"), "{error}");
    }
    // The one that comes too late is refused, and the next communicator is again one for all.
    let late = world.create(2);
    assert!(world.answer(late).unwrap().is_err());
    let first = world.create(0);
    let other = EdgeAttributes { window: 32, ..EdgeAttributes::DEFAULT };
    let ticket = world.tickets[&1];
    let call = ControllerCall::CreateCommunicator(ticket, other, end(2), 1000 * MS);
    let error = world.error(call);
    assert!(error.contains("rank 1 asked for"), "{error}");
    assert_eq!(world.answer(first).unwrap().unwrap_err().to_string(), error);
    // Attributes that no edge can have.
    let other = EdgeAttributes { packets: 9, ..EdgeAttributes::DEFAULT };
    let error = world.error(ControllerCall::CreateCommunicator(ticket, other, end(2), 1000 * MS));
    assert!(error.contains("1 to 8 packets, not 9"), "{error}");
    // A rank whose program ends while it waits.
    let mut world = World::ready(ControllerCfg::new());
    let (call, gone) = (world.create(2), world.create(0));
    world.controller.on_call_end(world.now, gone);
    let error = world.answer(call).unwrap().unwrap_err().to_string();
    assert!(error.contains("rank 0 gave up"), "{error}");
}

#[test]
fn a_group_that_is_destroyed_while_others_create_ends_their_calls() {
    let mut world = World::ready(ControllerCfg::new());
    let calls = [0, 1, 3].map(|rank| world.create(rank));
    let leave = world.call(ControllerCall::Leave(world.tickets[&2]));
    assert_eq!(world.answer(leave), Some(Ok(CallAnswer::Done)));
    for call in calls {
        let error = world.answer(call).unwrap().unwrap_err().to_string();
        assert!(error.contains("rank 2 destroyed the group"), "{error}");
    }
    // It left in order: the end of its session is not its death.
    world.controller.on_session_end(world.now, world.hosts[&2]);
    assert_eq!(world.controller.groups().next().unwrap().phase, GroupPhase::Ready);
    for rank in [0, 1, 3] {
        world.call(ControllerCall::Leave(world.tickets[&rank]));
    }
    assert_eq!(world.controller.groups().count() + world.controller.communicators().count(), 0);
}

#[test]
fn a_lost_switch_is_replaced_and_the_hosts_resume_by_the_plan() {
    let mut world = World::ready(ControllerCfg::new());
    let id = world.running();
    world.controller.on_session_end(world.now, world.switches["a"]);
    world.switches.remove("a");
    for rank in 0..4 {
        assert_eq!(world.host_got(rank), [HostCommand::Prepare(life(id, 2))]);
    }
    assert_eq!(world.install_all(), ["b", "left", "right"]);
    // Reports about another epoch change nothing.
    for rank in 0..4 {
        world.chunks(rank, life(id, 1), 7);
    }
    assert!(world.starts(0).is_empty());
    for (rank, oldest) in [(0, 70), (1, 65), (2, 128)] {
        world.chunks(rank, life(id, 2), oldest);
    }
    let mut has_result = vec![false; 128];
    // Chunks 66 and 69 of 70 - 64 = 6 on.
    (has_result[60], has_result[63]) = (true, true);
    let report = ChunkReport { oldest: Seq(70), has_result };
    world.host_report(3, HostReport::Chunks(life(id, 2), report, end(53)));
    let owner = Some(Rank(3));
    for rank in 0..4 {
        let [(of, start)] = &world.starts(rank)[..] else { panic!("{rank}") };
        assert_eq!((*of, start.plan.first), (life(id, 2), Seq(65)));
        assert_eq!(start.plan.owners, [None, owner, None, None, owner]);
        assert!(start.parent.is_some());
    }
    // Switches get the hosts' new ends.
    let SwitchCommand::Start(of, Seq(65), ends) = world.switch_got("right").remove(0) else {
        panic!()
    };
    assert_eq!((of, ends.children), (life(id, 2), vec![end(51), end(53)]));
    assert_eq!(world.controller.counts().drains, 1);
}

#[test]
fn a_switch_that_is_lost_while_hosts_report_begins_one_more_epoch() {
    let mut world = World::ready(ControllerCfg::new());
    let id = world.running();
    world.controller.on_session_end(world.now, world.switches.remove("a").unwrap());
    for rank in 0..4 {
        world.chunks(rank, life(id, 2), 0);
    }
    let old_right = world.switches["right"];
    world.controller.on_session_end(world.now, world.switches.remove("b").unwrap());
    assert_eq!(world.state(id).epoch, TreeEpoch(3));
    // An installation of the epoch before does not count.
    world.report(old_right, SwitchReport::Installed(life(id, 2), ends(2, true)));
    for rank in 0..4 {
        world.chunks(rank, life(id, 2), 0);
        assert!(world.starts(rank).is_empty());
    }
    for rank in 0..4 {
        world.chunks(rank, life(id, 3), 0);
    }
    let why = "no switch that is in service joins rank 1 (host h1) with the other ranks";
    for rank in 0..4 {
        let [(of, start)] = &world.starts(rank)[..] else { panic!("{rank}") };
        assert_eq!((*of, start.parent), (life(id, 3), None));
        assert_eq!(start.without.as_deref(), Some(why));
    }
    // Leaves have removed their parts, and no memory is reserved.
    assert!(world.switch_got("left").contains(&SwitchCommand::Remove(id)));
    assert_eq!(world.reserved(), 0);
    // A switch that comes back brings a tree again.
    world.switch("b", 2, &[]).unwrap();
    world.pass(100 * MS);
    assert_eq!(world.host_got(2), [HostCommand::Prepare(life(id, 4))]);
    world.install_all();
    for rank in 0..4 {
        world.chunks(rank, life(id, 4), 0);
        assert!(rank < 3 || world.starts(rank)[0].1.parent.is_some());
    }
}

#[test]
fn a_switch_that_starts_again_gets_its_part_again() {
    let mut world = World::ready(ControllerCfg::new());
    let id = world.running();
    // A new session of a switch that has its part changes nothing; without it, the epoch is over.
    world.switch("left", 1, &[life(id, 1)]).unwrap();
    assert_eq!(world.state(id).epoch, TreeEpoch(1));
    world.switch("left", 2, &[life(CommunicatorId(77), 1)]).unwrap();
    assert_eq!(world.state(id).epoch, TreeEpoch(2));
    let commands = world.switch_got("left");
    assert_eq!(commands[0], SwitchCommand::Remove(CommunicatorId(77)));
    assert!(matches!(commands[1], SwitchCommand::Install(..)), "{commands:?}");
    let refused = world.switch("nowhere", 1, &[]).unwrap_err().to_string();
    assert_eq!(refused, "the topology has no switch nowhere");
    assert!(world.switch("h0", 1, &[]).is_err());
}

#[test]
fn a_dead_member_ends_what_it_takes_part_in_and_is_named() {
    let mut world = World::ready(ControllerCfg::new());
    let id = world.running();
    let waiting = world.create(0);
    world.controller.on_session_end(world.now, world.hosts[&3]);
    let why = "rank 3 (10.0.1.3) is dead: its session ended".to_owned();
    for rank in 0..3 {
        let abort = HostCommand::Abort(id, AbortReason::MemberDead, why.clone());
        assert_eq!(world.host_got(rank), [abort]);
    }
    for name in ["a", "left", "right"] {
        let wanted = [SwitchCommand::Abort(id, AbortReason::MemberDead), SwitchCommand::Remove(id)];
        assert_eq!(world.switch_got(name), wanted);
    }
    assert_eq!(world.reserved(), 0);
    let error = world.answer(waiting).unwrap().unwrap_err().to_string();
    assert!(error.contains(&why), "{error}");
    let ticket = world.tickets[&0];
    let call =
        ControllerCall::CreateCommunicator(ticket, EdgeAttributes::DEFAULT, end(1), 1000 * MS);
    assert!(world.error(call).contains("group job is over: rank 3"));
    // The name is free for another group at once; the old one is forgotten with its last member.
    world.call(ControllerCall::Join(request(0, 1)));
    for rank in 0..3 {
        world.call(ControllerCall::Leave(world.tickets[&rank]));
    }
    assert_eq!(world.controller.groups().count(), 1);
    assert_eq!(world.controller.communicators().count(), 0);
}

#[test]
fn silence_ends_a_session_but_a_pause_of_the_controller_does_not() {
    let mut world = World::ready(ControllerCfg::new());
    let id = world.running();
    world.pass(100 * MS);
    // The controller stands still for a second: signs of life wait to be read.
    world.now += 1000 * MS;
    world.controller.on_time(world.now);
    assert_eq!(world.state(id).epoch, TreeEpoch(1));
    // One switch is silent.
    let silent = world.switches.remove("left").unwrap();
    world.pass(200 * MS);
    assert_eq!(world.state(id).epoch, TreeEpoch(1));
    world.pass(100 * MS);
    assert_eq!(world.state(id).epoch, TreeEpoch(2));
    world.listen();
    let ended = ControllerAction::EndSession(silent, "no sign of life for 300 ms".to_owned());
    assert!(world.said.contains(&ended));
    assert!(world.controller.poll_deadline().is_some());
}

#[test]
fn a_member_that_opens_no_session_is_dead_at_the_deadline() {
    let mut world = World::new(ControllerCfg { grace_ns: 500 * MS, ..ControllerCfg::new() });
    for rank in 0..2 {
        world.call(ControllerCall::Join(request(rank, 2)));
    }
    world.tickets.insert(0, MemberTicket { group: GroupId(1), rank: Rank(0), key: 100 });
    world.host(0, &[]).unwrap();
    world.pass(500 * MS);
    let group = world.controller.groups().next().unwrap();
    let why = "rank 1 (10.0.1.1) is dead: it opened no session".to_owned();
    assert_eq!(group.phase, GroupPhase::Over(why));
}

#[test]
fn the_next_tree_goes_around_a_dead_edge() {
    let mut world = World::ready(ControllerCfg::new());
    let id = world.running();
    let left = world.switches["left"];
    // Reports about another epoch, or an edge that is not there, change nothing.
    world.report(left, SwitchReport::EdgeDead(life(id, 0), To::Parent));
    world.report(left, SwitchReport::EdgeDead(life(id, 1), To::Child(9)));
    assert_eq!(world.state(id).epoch, TreeEpoch(1));
    world.report(left, SwitchReport::EdgeDead(life(id, 1), To::Parent));
    assert_eq!(world.tree(id), ["b", "left", "right"]);
    assert_eq!(world.switch_got("a"), [SwitchCommand::Remove(id)]);
    world.install_all();
    for rank in 0..4 {
        world.chunks(rank, life(id, 2), 0);
    }
    // The only edge of a host: there is no tree without it.
    world.host_report(1, HostReport::EdgeDead(life(id, 2)));
    assert!(world.tree(id).is_empty());
    assert!(world.state(id).without.as_ref().unwrap().contains("rank 1 (host h1)"));
    // It is tried again, as no switch has to come back for that.
    for rank in 0..4 {
        world.chunks(rank, life(id, 3), 0);
    }
    assert_eq!(world.state(id).phase, TreePhase::Ready);
    world.pass(1900 * MS);
    assert!(world.tree(id).is_empty());
    world.pass(200 * MS);
    assert_eq!(world.tree(id).len(), 3);
}

#[test]
fn who_contradicts_the_others_is_named_with_both_sizes() {
    let mut world = World::ready(ControllerCfg::new());
    let id = world.running();
    let header = |count| IncHeader {
        kind: IncKind::Contribution(sum()),
        seq: Seq(0),
        epoch: TreeEpoch(1),
        op_id: 4,
        is_repeat: false,
        is_last: true,
        count,
    };
    let seen = ChunkConflict { child: 1, first: header(8), second: header(9) };
    world.report(world.switches["right"], SwitchReport::Contradiction(life(id, 1), seen));
    let did = |elements| CurrentOperation { op_id: 4, collective: sum(), elements };
    for (rank, elements) in [(0, 8), (1, 8), (2, 8), (3, 9)] {
        assert!(world.host_got(rank).is_empty());
        let report =
            HostReport::Aborted(life(id, 1), AbortReason::Contradiction, Some(did(elements)));
        world.host_report(rank, report);
    }
    let abort = world.host_got(0).remove(0);
    let HostCommand::Abort(_, AbortReason::Contradiction, why) = abort else { panic!() };
    let wanted = "rank 3 called allreduce (Sum of I32) of 9 elements (operation 4); \
         ranks 0, 1, 2 called allreduce (Sum of I32) of 8 elements (operation 4)";
    assert!(why.ends_with(wanted), "{why}");
    // Without reports of hosts, what the switch saw is said at the deadline.
    let id = world.running();
    let seen = ChunkConflict { child: 1, first: header(8), second: header(9) };
    world.report(world.switches["right"], SwitchReport::Contradiction(life(id, 1), seen));
    world.pass(300 * MS);
    let abort = world.host_got(2).pop().unwrap();
    let HostCommand::Abort(_, AbortReason::Contradiction, why) = abort else { panic!() };
    assert!(why.contains("in chunk 0 rank 3 sent allreduce"), "{why}");
    assert_eq!(
        world.controller.counts().aborts,
        BTreeMap::from([((7, "contradiction".to_owned()), 2)])
    );
}

#[test]
fn a_switch_ends_no_communicator_that_it_has_no_part_of() {
    let mut world = World::ready(ControllerCfg::new());
    let id = world.running();
    let tree = world.tree(id);
    let other = NAMES.into_iter().find(|name| tree.iter().all(|of| of != name)).unwrap();
    let other = world.switches[other];
    let header = IncHeader {
        kind: IncKind::Contribution(sum()),
        seq: Seq(0),
        epoch: TreeEpoch(1),
        op_id: 0,
        is_repeat: false,
        is_last: true,
        count: 1,
    };
    let seen = ChunkConflict { child: 0, first: header, second: IncHeader { count: 2, ..header } };
    world.report(other, SwitchReport::Aborted(life(id, 1), AbortReason::Protocol));
    assert_eq!(world.state(id).phase, TreePhase::Ready);
    world.report(other, SwitchReport::Contradiction(life(id, 1), seen));
    assert_eq!(world.state(id).phase, TreePhase::Ready);
}

#[test]
fn a_rank_that_called_nothing_is_named_when_the_others_time_out() {
    let mut world = World::ready(ControllerCfg::new());
    let id = world.running();
    let did = CurrentOperation { op_id: 0, collective: sum(), elements: 1 };
    for rank in 0..4 {
        let did = (rank != 2).then_some(did);
        world.host_report(rank, HostReport::Aborted(life(id, 1), AbortReason::EdgeDead, did));
    }
    let abort = world.host_got(0).pop().unwrap();
    let HostCommand::Abort(_, AbortReason::EdgeDead, why) = abort else { panic!() };
    assert!(why.ends_with("rank 2 had called no operation"), "{why}");
}

#[test]
fn a_tenant_has_its_quota_in_each_switch_and_gets_it_back() {
    let one = memory_of(&EdgeAttributes::DEFAULT, 2);
    let cfg = ControllerCfg { quotas: BTreeMap::from([(7, one)]), ..ControllerCfg::new() };
    let mut world = World::ready(cfg);
    let first = world.running();
    assert_eq!(world.reserved(), 3 * one);
    let second = world.created();
    let why = world.state(second).without.clone().unwrap();
    let wanted =
        format!("tenant 7 uses {one} of its {one} bytes in switch left, {one} more are needed");
    assert_eq!(why, wanted);
    assert_eq!(world.controller.counts().fallbacks[&(7, "quota")], 1);
    // All ranks destroy the first one: its memory is free, and the next one has a tree.
    for rank in 0..4 {
        assert_eq!(world.reserved(), 3 * one);
        world.call(ControllerCall::DestroyCommunicator(world.tickets[&rank], first));
    }
    assert_eq!(world.reserved(), 0);
    let third = world.created();
    assert_eq!(world.tree(third).len(), 3);
}

#[test]
fn what_a_switch_has_not_is_not_given_away() {
    let mut world = World::ready(ControllerCfg::new());
    let one = memory_of(&EdgeAttributes::DEFAULT, 2);
    let most = (8 << 20) / one;
    for _ in 0..most {
        let id = world.created();
        assert_eq!(world.tree(id).len(), 3);
    }
    let id = world.created();
    let why = world.state(id).without.clone().unwrap();
    assert!(why.contains("bytes of slots free") && why.contains("switch left"), "{why}");
    // The two switches above the leaves share what there is.
    let parts: Vec<_> = world.controller.switches().map(|switch| switch.parts).collect();
    let most = u32::try_from(most).unwrap();
    assert_eq!((parts[0].abs_diff(parts[1]) <= 1, parts[2], parts[3]), (true, most, most));
}

#[test]
fn a_refusal_leads_to_another_tree_or_to_none() {
    let mut world = World::ready(ControllerCfg::new());
    let id = world.created();
    let full = InstallError::Memory { needed: 9, free: 1 };
    world.switch_got("a");
    world.report(world.switches["a"], SwitchReport::Refused(life(id, 1), full.clone()));
    assert_eq!(world.tree(id), ["b", "left", "right"]);
    assert_eq!(world.install_all().len(), 3 + 2);
    assert!(world.starts(0)[0].1.parent.is_some());
    let id = world.created();
    world.report(world.switches["left"], SwitchReport::Refused(life(id, 1), full));
    let [(_, start)] = &world.starts(0)[..] else { panic!() };
    let why = "switch left refused its part: 9 bytes of slots are needed, 1 are free";
    assert_eq!((start.parent, start.without.as_deref()), (None, Some(why)));
    // A part with other edges than those that were asked for.
    let id = world.created();
    let wrong = SwitchReport::Installed(life(id, 1), ends(1, true));
    world.report(world.switches["right"], wrong);
    let [(_, start)] = &world.starts(0)[..] else { panic!() };
    assert!(start.without.as_ref().unwrap().contains("other edges"), "{start:?}");
}

#[test]
fn a_switch_that_never_installs_is_not_waited_for() {
    let mut world = World::ready(ControllerCfg::new());
    let id = world.created();
    world.switch_got("right");
    world.install_all();
    world.pass(2000 * MS);
    let [(of, start)] = &world.starts(3)[..] else { panic!() };
    let why = "switch right did not install its part in time";
    assert_eq!((*of, start.parent), (life(id, 1), None));
    assert_eq!(start.without.as_deref(), Some(why));
    assert_eq!((world.reserved(), world.state(id).phase.clone()), (0, TreePhase::Ready));
}

#[test]
fn members_reduce_where_no_switch_can_be_had_until_one_comes() {
    let mut world = World::new(ControllerCfg::new());
    world.fallback = true;
    world.join_all();
    let id = world.created();
    // In the order of `a(left(0 2) right(1 3))`.
    assert_eq!(world.tree(id), ["rank 1", "rank 2", "rank 3"]);
    assert_eq!(world.controller.counts().fallbacks[&(7, "topology")], 1);
    // A member installs for itself alone: what another one says is not taken.
    let wrong = HostReport::Switch(SwitchReport::Installed(life(id, 1), ends(2, false)));
    world.host_report(0, wrong);
    assert_eq!(world.install_in_members(), [1, 2, 3]);
    let why = "no switch that is in service joins rank 0 (host h0) with the other ranks";
    let [(of, start)] = &world.starts(0)[..] else { panic!() };
    assert_eq!(
        (*of, start.parent, start.without.as_deref()),
        (life(id, 1), Some(end(200)), Some(why))
    );
    let got = world.host_got(1);
    let [HostCommand::Switch(SwitchCommand::Start(_, Seq(0), ends)), HostCommand::Start(..)] =
        &got[..]
    else {
        panic!("{got:?}")
    };
    assert_eq!((&ends.children[..], ends.parent), (&[end(300), end(300)][..], None));
    // An edge between programs that died is tried again, in another epoch.
    world.host_report(3, HostReport::Switch(SwitchReport::EdgeDead(life(id, 1), To::Child(1))));
    assert_eq!(world.state(id).epoch, TreeEpoch(2));
    assert_eq!(world.install_in_members(), [1, 2, 3]);
    for rank in 0..4 {
        world.chunks(rank, life(id, 2), 0);
    }
    assert_eq!(world.state(id).phase, TreePhase::Ready);
    // It went over to the members once, however many trees of theirs it had.
    assert_eq!(world.controller.counts().fallbacks, BTreeMap::from([((7, "topology"), 1)]));
    // Switches come: theirs is the next tree, and nothing stays in the programs.
    for name in NAMES {
        world.switch(name, 1, &[]).unwrap();
    }
    world.pass(100 * MS);
    assert_eq!(world.tree(id).len(), 3);
    assert!(world.tree(id).contains(&"left".to_owned()));
    for rank in 1..4 {
        let removed = HostCommand::Switch(SwitchCommand::Remove(id));
        assert!(world.host_got(rank).contains(&removed), "{rank}");
    }
    world.install_all();
    for rank in 0..4 {
        world.chunks(rank, life(id, 3), 0);
    }
    assert_eq!(world.state(id).without, None);
    // And go: members go on with the same sums.
    world.said.clear();
    world.controller.on_session_end(world.now, world.switches.remove("left").unwrap());
    assert_eq!(world.install_in_members(), [1, 2, 3]);
    for rank in 0..4 {
        world.chunks(rank, life(id, 4), 0);
    }
    let why = world.starts(3)[0].1.without.clone().unwrap();
    assert!(why.starts_with("no switch that is in service joins"), "{why}");
    assert_eq!(world.reserved(), 0);
    assert_eq!(world.controller.counts().fallbacks, BTreeMap::from([((7, "topology"), 2)]));
}

#[test]
fn a_tree_of_switches_that_comes_late_gives_way_to_the_members() {
    let mut world = World::ready(ControllerCfg::new());
    world.fallback = true;
    let id = world.created();
    world.switch_got("right");
    world.install_all();
    world.pass(2000 * MS);
    assert_eq!(world.tree(id), ["rank 1", "rank 2", "rank 3"]);
    assert_eq!((world.reserved(), world.controller.counts().fallbacks[&(7, "deadline")]), (0, 1));
    // A program that has no room: operations wait, and both reasons are said.
    let full = InstallError::Memory { needed: 9, free: 1 };
    world.host_report(2, HostReport::Switch(SwitchReport::Refused(life(id, 1), full)));
    let [(_, start)] = &world.starts(3)[..] else { panic!() };
    let why = "switch right did not install its part in time; \
               switch rank 2 refused its part: 9 bytes of slots are needed, 1 are free";
    assert_eq!((start.parent, start.without.as_deref()), (None, Some(why)));
    // The next thing that changes in the topology is a reason to try again.
    world.switch("a", 2, &[]).unwrap();
    world.pass(100 * MS);
    assert_eq!(world.state(id).epoch, TreeEpoch(2));
}

#[test]
fn hosts_that_do_not_report_or_lie_end_the_communicator() {
    let mut world = World::ready(ControllerCfg::new());
    let id = world.running();
    world.controller.on_session_end(world.now, world.switches.remove("a").unwrap());
    world.install_all();
    for rank in [0, 2] {
        world.chunks(rank, life(id, 2), 0);
    }
    world.pass(5000 * MS);
    let TreePhase::Over(why) = &world.state(id).phase else { panic!() };
    assert_eq!(why, "ranks 1, 3 did not say in time what they have");
    let id = world.running();
    world.controller.on_session_end(world.now, world.switches.remove("b").unwrap());
    for rank in 0..4 {
        world.chunks(rank, life(id, 2), u32::from(rank) * 22);
    }
    let abort = world.host_got(0).pop().unwrap();
    let HostCommand::Abort(_, AbortReason::Protocol, why) = abort else { panic!("{abort:?}") };
    assert!(why.starts_with("rank 3 waits for chunk 66"), "{why}");
}

#[test]
fn a_rank_that_does_not_destroy_is_not_waited_for_without_bound() {
    let mut world = World::ready(ControllerCfg::new());
    let id = world.running();
    let calls = [0, 1]
        .map(|rank| world.call(ControllerCall::DestroyCommunicator(world.tickets[&rank], id)));
    world.pass(9000 * MS);
    assert_eq!(world.answer(calls[0]), None);
    world.pass(1000 * MS);
    for call in calls {
        assert_eq!(world.answer(call), Some(Ok(CallAnswer::Done)));
    }
    let abort = world.host_got(2).pop().unwrap();
    let why = "ranks 0, 1 destroyed the communicator, ranks 2, 3 did not".to_owned();
    assert_eq!(abort, HostCommand::Abort(id, AbortReason::ShutDown, why));
    for rank in [2, 3] {
        world.call(ControllerCall::DestroyCommunicator(world.tickets[&rank], id));
    }
    assert_eq!((world.controller.communicators().count(), world.reserved()), (0, 0));
}

#[test]
fn hosts_learn_what_they_missed_when_they_come_back() {
    let mut world = World::ready(ControllerCfg::new());
    let id = world.running();
    world.host(1, &[life(id, 1), life(CommunicatorId(55), 3)]).unwrap();
    let [HostCommand::Abort(CommunicatorId(55), AbortReason::ShutDown, _)] = &world.host_got(1)[..]
    else {
        panic!()
    };
    assert_eq!(world.state(id).epoch, TreeEpoch(1));
    world.controller.on_session_end(world.now, world.switches.remove("a").unwrap());
    world.host_got(1);
    world.host(1, &[life(id, 1)]).unwrap();
    assert_eq!(world.host_got(1), [HostCommand::Prepare(life(id, 2))]);
}

#[test]
fn another_topology_moves_trees_off_the_switches_that_left_it() {
    let mut world = World::ready(ControllerCfg::new());
    let id = world.running();
    let without: Vec<_> =
        MAP.lines().filter(|line| !line.contains("name: a,") && !line.contains("[a,")).collect();
    let map = read_map(&without.join("\n")).unwrap();
    let old = world.switches["a"];
    let request = TopologyRequest { map, text: String::new(), nonce: [0; 16], proof: Vec::new() };
    assert!(!world.controller.take_map_put());
    world.call(ControllerCall::PutTopology(request));
    assert!(world.controller.take_map_put());
    assert_eq!(world.tree(id), ["b", "left", "right"]);
    world.listen();
    let ended = |said: &ControllerAction| matches!(said, ControllerAction::EndSession(session, _) if *session == old);
    assert!(world.said.iter().any(ended));
    let gone = world.switch("a", 1, &[]).unwrap_err();
    assert_eq!(gone, CallError::UnknownSwitch("a".to_owned()));
}

#[test]
fn another_controller_goes_on_where_one_ended() {
    let mut world = World::ready(ControllerCfg::new());
    let id = world.running();
    let after = |world: &World| {
        let mut next = World::new(ControllerCfg::new());
        next.controller.restore(next.now, world.controller.remains());
        next.tickets.clone_from(&world.tickets);
        next
    };
    let mut next = after(&world);
    assert_eq!(next.reserved(), world.reserved());
    for rank in 0..4 {
        next.host(rank, &[life(id, 1)]).unwrap();
        assert!(next.host_got(rank).is_empty());
    }
    for name in ["a", "left", "b"] {
        next.switch(name, 1, &[life(id, 1)]).unwrap();
    }
    // What is not there for the controller's tree has no place in the switch either.
    assert_eq!(next.switch_got("b"), [SwitchCommand::Remove(id)]);
    next.pass(4_900 * MS);
    assert_eq!((next.state(id).epoch, next.tree(id).len()), (TreeEpoch(1), 3));
    // A switch that does not come back in the grace period is lost.
    next.pass(200 * MS);
    assert_eq!(next.host_got(0), [HostCommand::Prepare(life(id, 2))]);
    // What was in change begins one more epoch, as nothing says how far it came.
    let mut third = after(&next);
    third.host(2, &[life(id, 1)]).unwrap();
    assert_eq!(third.host_got(2), [HostCommand::Prepare(life(id, 3))]);
    // A member that does not come back is dead.
    third.pass(30_000 * MS);
    let group = third.controller.groups().next().unwrap();
    assert!(matches!(&group.phase, GroupPhase::Over(why) if why.contains("opened no session")));
    // Numbers are not given again.
    let mut fourth = after(&next);
    for name in NAMES {
        fourth.switch(name, 2, &[]).unwrap();
    }
    for rank in 0..4 {
        fourth.host(rank, &[]).unwrap();
    }
    assert_eq!(fourth.created(), CommunicatorId(id.0 + 1));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Switches come and go at random while hosts work and report. Each life that starts has a plan that a model agrees
    /// with, epochs only grow, what is reserved is what the trees take, and in the end all is given back.
    #[test]
    fn communicators_survive_any_order_of_switches(
        moves in proptest::collection::vec((0_u8..8, 0_usize..4, any::<u8>()), 1..80),
    ) {
        let mut world = World::ready(ControllerCfg::new());
        let id = world.created();
        // For each rank: its epoch, the least chunk without an answer, and whether it owes a report.
        let mut oldest = [0_u32; 4];
        let mut owed: BTreeMap<u16, TreeLife> = BTreeMap::new();
        let mut reported: BTreeMap<u16, ChunkReport> = BTreeMap::new();
        let mut epoch = 0;
        let mut running = BTreeSet::new();
        for (what, which, n) in moves {
            match what {
                0 => if let Some(session) = world.switches.remove(NAMES[which]) {
                    world.controller.on_session_end(world.now, session);
                },
                1 if !world.switches.contains_key(NAMES[which]) => {
                    world.switch(NAMES[which], u64::from(n), &[]).unwrap();
                }
                2 | 3 => { world.install_all(); }
                4 | 5 => if let Some((&rank, &of)) = owed.iter().nth(which % owed.len().max(1)) {
                    owed.remove(&rank);
                    let base = oldest[usize::from(rank)];
                    let has_result = (0..128).map(|at| at < 64 && (n >> (at % 8)) & 1 == 1);
                    let report =
                        ChunkReport { oldest: Seq(base), has_result: has_result.collect() };
                    reported.insert(rank, report.clone());
                    world.host_report(rank, HostReport::Chunks(of, report, end(50)));
                },
                6 => if running.len() == 4 {
                    // A rank goes ahead, by at most a window.
                    let least = oldest.iter().min().unwrap();
                    oldest[which] = (oldest[which] + u32::from(n) % 8).min(least + 64);
                },
                _ => world.pass(100 * MS),
            }
            for rank in 0..4 {
                for command in world.host_got(rank) {
                    match command {
                        HostCommand::Prepare(of) => {
                            prop_assert!(of.epoch.0 > epoch || owed.values().any(|o| *o == of)
                                || reported.len() < 4);
                            epoch = epoch.max(of.epoch.0);
                            if rank == 0 {
                                reported.clear();
                            }
                            running.clear();
                            owed.insert(rank, of);
                        }
                        HostCommand::Start(of, start) => {
                            prop_assert!(of.epoch.0 >= epoch);
                            epoch = of.epoch.0;
                            running.insert(rank);
                            if reported.len() < 4 {
                                prop_assert_eq!(start.plan.owners.len(), 0);
                                continue;
                            }
                            let first = reported.values().map(|of| of.oldest.0).min().unwrap();
                            prop_assert_eq!(start.plan.first, Seq(first));
                            for at in 0..128 {
                                let has = |of: &ChunkReport| {
                                    let place = (first + at + 64).wrapping_sub(of.oldest.0);
                                    of.has_result.get(place as usize) == Some(&true)
                                };
                                let owner = reported.iter().find(|(_, of)| has(of));
                                let owner = owner.map(|(&rank, _)| Rank(rank));
                                let planned = start.plan.owners.get(at as usize);
                                prop_assert_eq!(planned.copied().flatten(), owner);
                            }
                        }
                        HostCommand::Abort(_, _, why) => {
                            prop_assert!(why.contains("did not say in time"), "{}", why);
                            return Ok(());
                        }
                        HostCommand::Switch(command) => prop_assert!(false, "{:?}", command),
                    }
                }
            }
            let of = world.state(id);
            let taken: u64 = of.tree.iter().flatten().map(|switch| switch.memory).sum();
            prop_assert_eq!(world.reserved(), taken);
        }
        for rank in 0..4 {
            world.call(ControllerCall::DestroyCommunicator(world.tickets[&rank], id));
        }
        prop_assert_eq!((world.reserved(), world.controller.communicators().count()), (0, 0));
    }
}
