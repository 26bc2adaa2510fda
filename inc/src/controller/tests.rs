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

mod changes;
mod returns;
mod room;

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
