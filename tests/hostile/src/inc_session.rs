//! A controller of in-network computing, with any messages at the sessions of its switches and hosts.
//!
//! *Owns*: the promises of a controller. *Takes*: steps: encoded messages as a session brings them, calls, time, restarts.
//! *Gives*: a panic when a promise is broken.
//!
//! Each call that is taken gets one answer, commands go to sessions that there are and can be read there, a step brings a
//! bounded number of them. What is reserved in a switch is what the trees take there. A state is stored and read again, and
//! when all sessions are over nothing is left.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use inc::{
    control::{HostCommand, HostReport, SwitchCommand, SwitchReport},
    controller::{
        CallAnswer, CallId, Controller, ControllerAction, ControllerCall, ControllerCfg,
        GroupPhase, HostHello, SessionId, SwitchHome, TopologyRequest, TreePhase,
    },
    document::read_map,
    topology::PhysicalMap,
};
use inc_control::{
    convert::{ConversionError, join_of, switch_hello_of},
    proto::{
        self, host_command, host_message, host_report, switch_command, switch_message,
        switch_report,
    },
    read_image, write_image,
};
use prost::Message;

use crate::Bytes;

const MS: u64 = 1_000_000;
/// Chunks of a window.
const WINDOW: u32 = 2;
/// Commands that wait for what the hostile side makes of them.
const ASKED_MAX: usize = 64;
/// Actions that one step brings for each communicator and call: with three ranks and switches, of two epochs.
const ACTIONS_EACH: usize = 64;

const MAPS: [&str; 2] = [
    "nodes:
  - {name: s0, kind: switch, address: 10.1.0.1}
  - {name: s1, kind: switch, address: 10.1.0.2}
  - {name: s2, kind: switch, address: 10.1.0.3}
  - {name: h0, kind: host, address: 10.0.0.0}
  - {name: h1, kind: host, address: 10.0.0.1}
  - {name: h2, kind: host, address: 10.0.0.2}
links:
  - ends: [s0, s1]
  - ends: [s1, s2]
  - ends: [s0, h0]
  - ends: [s1, h1]
  - ends: [s2, h2]
  - ends: [s2, h0]
",
    "nodes:
  - {name: s1, kind: switch, address: 10.1.0.2}
  - {name: h0, kind: host, address: 10.0.0.0}
  - {name: h1, kind: host, address: 10.0.0.1}
links:
  - ends: [s1, h0]
  - ends: [s1, h1]
",
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Peer {
    Switch,
    Host,
}

/// A command that may be answered.
enum Asked {
    Switch(SessionId, proto::SwitchCommand),
    Host(SessionId, proto::HostCommand),
}

struct World {
    controller: Controller,
    now: u64,
    next: u64,
    waiting: BTreeSet<CallId>,
    sessions: BTreeMap<SessionId, Peer>,
    tickets: Vec<proto::Ticket>,
    asked: VecDeque<Asked>,
}

/// The fuzz target: a controller and any sessions.
pub fn inc_session(data: &[u8]) {
    let mut bytes = Bytes::new(data);
    let mut world = World::new();
    while let Some(step) = bytes.byte() {
        let before = world.size();
        let lives = world.step(step, &mut bytes);
        let actions = world.drain();
        let most = ACTIONS_EACH * (1 + before.max(world.size()) + lives);
        assert!(actions <= most, "{actions} actions by one step");
        world.check();
    }
    world.end();
}

fn cfg() -> ControllerCfg {
    ControllerCfg {
        silence_ns: 10_000 * MS,
        quotas: BTreeMap::from([(1, 10_000)]),
        ..ControllerCfg::default()
    }
}

fn map(at: u8) -> PhysicalMap {
    read_map(MAPS[usize::from(at) % MAPS.len()]).expect("a topology")
}

impl World {
    fn new() -> Self {
        Self {
            controller: Controller::new(cfg(), map(0)),
            now: 1,
            next: 1,
            waiting: BTreeSet::new(),
            sessions: BTreeMap::new(),
            tickets: Vec::new(),
            asked: VecDeque::new(),
        }
    }

    /// What a step may bring actions for.
    fn size(&self) -> usize {
        self.controller.communicators().count() + self.waiting.len() + self.sessions.len()
    }

    /// One step; gives the number of lives in its message.
    fn step(&mut self, step: u8, bytes: &mut Bytes<'_>) -> usize {
        let mut next = || bytes.byte().unwrap_or(0);
        match step % 16 {
            0 | 1 => self.join(next(), next()),
            2 => self.create(next(), next()),
            3 => self.destroy(next(), next()),
            4 => return self.switch_session(bytes),
            5 => return self.host_session(bytes),
            6..10 => self.obey(next(), next()),
            10 => {
                let report = switch_report_near(&self.controller, bytes);
                let message = switch_message::Message::Report(report);
                let message = proto::SwitchMessage { message: Some(message) };
                self.on_message(Peer::Switch, step / 16, &message.encode_to_vec());
            }
            11 => {
                let report = host_report_near(&self.controller, bytes);
                let message =
                    proto::HostMessage { message: Some(host_message::Message::Report(report)) };
                self.on_message(Peer::Host, step / 16, &message.encode_to_vec());
            }
            12 => {
                let (peer, len) = (if next() & 1 == 0 { Peer::Switch } else { Peer::Host }, next());
                self.on_message(peer, step / 16, bytes.take(usize::from(len)));
            }
            13 => {
                let (what, short) = (next(), next());
                self.now += (u64::from(short) << if what & 7 == 0 { 10 } else { 2 }) * MS;
                self.controller.on_time(self.now);
            }
            14 => self.part(next()),
            _ => self.rare(next()),
        }
        0
    }

    fn call(&mut self, call: Result<ControllerCall, ConversionError>) {
        let Ok(call) = call else { return };
        self.next += 1;
        let id = CallId(self.next);
        self.waiting.insert(id);
        self.controller.on_call(self.now, id, call);
    }

    fn ticket(&self, choice: u8) -> proto::Ticket {
        let count = self.tickets.len().max(1);
        let mut ticket =
            self.tickets.get(usize::from(choice & 31) % count).copied().unwrap_or_default();
        // Rarely that of another one.
        ticket.key ^= u64::from(choice >> 5 == 7);
        ticket
    }

    fn join(&mut self, who: u8, odd: u8) {
        let name = usize::from(who >> 6);
        let (world_size, rare) = (1 + u32::from(who >> 6) % 3, odd & 15);
        let rank = u32::from(who & 15) % world_size + u32::from(rare == 15);
        let request = proto::CreateGroupRequest {
            version: 1 + u32::from(odd == 255),
            name: ["a", "b", "c", ""][name].to_owned(),
            world_size: world_size - u32::from(rare == 14),
            rank,
            address: format!("10.0.0.{rank}"),
            tenant: u32::from(who >> 6 & 1) + u32::from(rare == 13),
            wait_ms: u64::from(odd) * 10,
            ..proto::CreateGroupRequest::default()
        };
        self.call(join_of(decoded(&request), u64::from(odd) + 1));
    }

    fn create(&mut self, who: u8, odd: u8) {
        let rare = odd & 31;
        let attributes = proto::EdgeAttributes {
            path_mtu: if rare == 31 { 512 } else { 256 },
            packets: 1 + u32::from(rare == 30) * 8,
            window: WINDOW,
            no_fallback: who >> 5 == 6,
            ..proto::EdgeAttributes::default()
        };
        let request = proto::CreateCommunicatorRequest {
            ticket: Some(self.ticket(who)),
            attributes: Some(attributes),
            end: (rare != 29).then(|| end(who)),
            wait_ms: u64::from(odd >> 4) * 100,
        };
        self.call(decoded(&request).try_into());
    }

    fn destroy(&mut self, who: u8, which: u8) {
        let ticket = self.ticket(who);
        if which & 7 == 7 {
            return self.call(decoded(&ticket).try_into());
        }
        let communicator = communicator(&self.controller, which);
        let ticket = Some(ticket);
        let request = proto::DestroyCommunicatorRequest { ticket, communicator };
        self.call(decoded(&request).try_into());
    }

    fn lives(&self, bytes: &mut Bytes<'_>) -> Vec<proto::TreeLife> {
        let count = bytes.byte().unwrap_or(0) % 4;
        (0..count).map(|_| life(&self.controller, bytes.byte().unwrap_or(0))).collect()
    }

    fn switch_session(&mut self, bytes: &mut Bytes<'_>) -> usize {
        let mut next = || bytes.byte().unwrap_or(0);
        let (who, odd) = (next(), next());
        let at = who & 3;
        let hello = proto::SwitchHello {
            version: 1 + u32::from(odd == 255),
            name: if odd & 1 == 0 { format!("s{at}") } else { String::new() },
            address: if odd & 2 == 0 { String::new() } else { format!("10.1.0.{}", at + 1) },
            incarnation: u64::from(who >> 6),
            memory: if odd & 4 == 0 { 1 << 20 } else { u64::from(odd) << 8 },
            communicators: if odd & 8 == 0 { 8 } else { u32::from(odd >> 6) },
            lives: self.lives(bytes),
        };
        let lives = hello.lives.len();
        let peer = Some([10, 1, 0, at + 1].into());
        let Ok(hello) = switch_hello_of(decoded(&hello), peer) else { return 0 };
        self.next += 1;
        let id = SessionId(self.next);
        if self.controller.on_switch_session(self.now, id, hello).is_ok() {
            self.sessions.insert(id, Peer::Switch);
        }
        lives
    }

    fn host_session(&mut self, bytes: &mut Bytes<'_>) -> usize {
        let ticket = Some(self.ticket(bytes.byte().unwrap_or(0)));
        let hello = proto::HostHello { version: 1, ticket, lives: self.lives(bytes) };
        let lives = hello.lives.len();
        let Ok(hello) = HostHello::try_from(decoded(&hello)) else { return 0 };
        self.next += 1;
        let id = SessionId(self.next);
        if self.controller.on_host_session(self.now, id, &hello).is_ok() {
            self.sessions.insert(id, Peer::Host);
        }
        lives
    }

    /// A message of a session, as the server takes it: what is none ends the session.
    fn on_message(&mut self, peer: Peer, which: u8, message: &[u8]) {
        let of = self.sessions.iter().filter(|(_, of)| **of == peer).map(|(id, _)| *id);
        let of: Vec<_> = of.collect();
        let Some(&id) = of.get(usize::from(which) % of.len().max(1)) else { return };
        self.on_message_of(id, message);
    }

    fn on_message_of(&mut self, id: SessionId, message: &[u8]) {
        let is_taken = match self.sessions.get(&id) {
            None => return,
            Some(Peer::Switch) => {
                match proto::SwitchMessage::decode(message).ok().and_then(|of| of.message) {
                    Some(switch_message::Message::Report(report)) => SwitchReport::try_from(report)
                        .map(|report| self.controller.on_switch(self.now, id, report))
                        .is_ok(),
                    Some(switch_message::Message::Heartbeat(_)) => {
                        self.controller.on_heartbeat(self.now, id);
                        true
                    }
                    Some(switch_message::Message::Hello(_)) | None => false,
                }
            }
            Some(Peer::Host) => {
                match proto::HostMessage::decode(message).ok().and_then(|of| of.message) {
                    Some(host_message::Message::Report(report)) => HostReport::try_from(report)
                        .map(|report| self.controller.on_host(self.now, id, report))
                        .is_ok(),
                    Some(host_message::Message::Heartbeat(_)) => {
                        self.controller.on_heartbeat(self.now, id);
                        true
                    }
                    Some(host_message::Message::Hello(_)) | None => false,
                }
            }
        };
        if !is_taken {
            self.end_session(id);
        }
    }

    fn end_session(&mut self, id: SessionId) {
        if self.sessions.remove(&id).is_some() {
            self.controller.on_session_end(self.now, id);
        }
    }

    /// A command is done, or not quite.
    fn obey(&mut self, which: u8, how: u8) {
        if self.asked.is_empty() {
            return;
        }
        let at = if which & 7 == 0 { usize::from(which >> 3) % self.asked.len() } else { 0 };
        match self.asked.remove(at) {
            Some(Asked::Switch(id, command)) => {
                let Some(report) = obeyed(&command, how) else { return };
                let message = Some(switch_message::Message::Report(report));
                self.on_message_of(id, &proto::SwitchMessage { message }.encode_to_vec());
            }
            Some(Asked::Host(id, command)) => {
                let report = match command.command {
                    Some(host_command::Command::Switch(command)) => {
                        obeyed(&command, how).map(host_report::Report::Switch)
                    }
                    Some(host_command::Command::Prepare(life)) => {
                        Some(host_report::Report::Chunks(chunks(life, how)))
                    }
                    Some(host_command::Command::Start(_) | host_command::Command::Abort(_))
                    | None => None,
                };
                let Some(report) = report else { return };
                let report = proto::HostReport { report: Some(report) };
                let message = Some(host_message::Message::Report(report));
                self.on_message_of(id, &proto::HostMessage { message }.encode_to_vec());
            }
            None => {}
        }
    }

    /// A session ends, or a caller is gone.
    fn part(&mut self, which: u8) {
        let at = |count: usize| usize::from(which >> 1) % count.max(1);
        if which & 1 == 0 {
            let id = self.sessions.keys().nth(at(self.sessions.len())).copied();
            id.into_iter().for_each(|id| self.end_session(id));
        } else if let Some(&id) = self.waiting.iter().nth(at(self.waiting.len())) {
            self.waiting.remove(&id);
            self.controller.on_call_end(self.now, id);
        }
    }

    /// Another topology, or another controller in place of this one.
    fn rare(&mut self, which: u8) {
        if which & 3 != 0 {
            return;
        }
        if which & 4 == 0 {
            let (text, map) = (String::new(), map(which >> 3));
            let request = TopologyRequest { map, text, nonce: [0; 16], proof: Vec::new() };
            return self.call(Ok(ControllerCall::PutTopology(request)));
        }
        let image = write_image(&self.controller.remains(), Some(self.controller.map()));
        let (remains, map) = read_image(&image).expect("what is stored is read");
        let map = map.expect("the topology is stored, too");
        assert_eq!(write_image(&remains, Some(&map)), image, "what is read is stored alike");
        self.controller = Controller::new(cfg(), map);
        self.controller.restore(self.now, remains);
        self.waiting.clear();
        self.sessions.clear();
        self.asked.clear();
    }

    /// Takes what the controller wants done; how much that is.
    fn drain(&mut self) -> usize {
        let mut count = 0;
        while let Some(action) = self.controller.poll_action() {
            count += 1;
            match action {
                ControllerAction::Answer(call, answer) => {
                    assert!(self.waiting.remove(&call), "an answer to a call that waits for none");
                    if let Ok(CallAnswer::Joined(ticket)) = answer {
                        self.tickets.push(ticket.into());
                    }
                }
                ControllerAction::ToSwitch(id, command) => {
                    assert!(self.sessions.get(&id) == Some(&Peer::Switch), "no such session");
                    let message = decoded(&proto::SwitchCommand::from(command.clone()));
                    assert_eq!(SwitchCommand::try_from(message.clone()), Ok(command));
                    self.asked.push_back(Asked::Switch(id, message));
                }
                ControllerAction::ToHost(id, command) => {
                    assert!(self.sessions.get(&id) == Some(&Peer::Host), "no such session");
                    let message = decoded(&proto::HostCommand::from(command.clone()));
                    assert_eq!(HostCommand::try_from(message.clone()), Ok(command));
                    self.asked.push_back(Asked::Host(id, message));
                }
                ControllerAction::EndSession(id, _) => {
                    assert!(self.sessions.remove(&id).is_some(), "a session ends once");
                }
            }
        }
        while self.asked.len() > ASKED_MAX {
            self.asked.pop_front();
        }
        count
    }

    /// What holds between two steps.
    fn check(&self) {
        let of = &self.controller;
        let mut reserved: BTreeMap<&str, (u64, u32)> = BTreeMap::new();
        let communicators: BTreeSet<_> = of.communicators().map(|of| of.id).collect();
        for of in of.communicators() {
            for placed in of.tree.iter().flatten() {
                if let SwitchHome::Node(name) = &placed.home {
                    let (memory, parts) = reserved.entry(name).or_default();
                    (*memory, *parts) = (*memory + placed.memory, *parts + 1);
                }
                assert!(
                    of.phase != TreePhase::Ready || placed.ends.is_some(),
                    "it runs, and a part is not installed"
                );
            }
            assert!(of.ends.len() <= 4 && of.destroyed.len() <= 4 && of.cut.len() <= 16);
            if let TreePhase::Draining { reports, .. } = &of.phase {
                let all = reports.values();
                let longest = all.map(|report| report.has_result.len()).max().unwrap_or(0);
                assert!(longest <= 2 * WINDOW as usize, "a map of {longest} chunks is kept");
            }
        }
        let mut sessions = BTreeSet::new();
        for switch in of.switches() {
            let (memory, parts) = reserved.remove(&*switch.name).unwrap_or_default();
            let sum: u64 = switch.reserved.values().sum();
            assert_eq!((sum, switch.parts), (memory, parts), "reserved in {}", switch.name);
            assert!(switch.counts.keys().all(|id| communicators.contains(id)), "counts of none");
            sessions.extend(switch.session.map(|id| (id, Peer::Switch as u8)));
        }
        assert!(reserved.is_empty(), "trees in switches that there never were: {reserved:?}");
        for group in of.groups() {
            assert!(group.members.len() <= usize::from(group.world_size));
            let is_complete = group.members.len() == usize::from(group.world_size);
            assert!(matches!(group.phase, GroupPhase::Creating(_)) || is_complete);
            let of_members = group.members.values().filter_map(|member| member.session);
            sessions.extend(of_members.map(|id| (id, Peer::Host as u8)));
        }
        let ours = self.sessions.iter().map(|(id, peer)| (*id, *peer as u8));
        let ours: BTreeSet<_> = ours.collect();
        assert!(sessions.is_subset(&ours), "a session that is over is some peer's");
    }

    /// All sessions end, and time goes by.
    fn end(&mut self) {
        let all: Vec<_> = self.sessions.keys().copied().collect();
        for id in all {
            self.end_session(id);
            self.drain();
        }
        for _ in 0..8 {
            self.now += 100_000 * MS;
            self.controller.on_time(self.now);
            self.drain();
            self.check();
            let due = self.controller.poll_deadline();
            assert!(due.is_none_or(|at| at > self.now), "due at {due:?}, it is {}", self.now);
        }
        assert!(self.waiting.is_empty(), "{:?} got no answer", self.waiting);
        assert_eq!(self.controller.groups().count(), 0, "a group is left");
        assert_eq!(self.controller.communicators().count(), 0, "a communicator is left");
    }
}

/// The message as the other side reads it.
fn decoded<M: Message + Default>(message: &M) -> M {
    M::decode(&*message.encode_to_vec()).expect("what is encoded is decoded")
}

fn end(of: u8) -> proto::EdgeEnd {
    proto::EdgeEnd {
        address: format!("10.0.0.{}:4791", of & 3),
        qpn: u32::from(of) + 2,
        first_psn: 0x00ff_ffff,
        window_base: 4096,
        window_key: 5,
    }
}

/// The number of a communicator that there is, or near it.
fn communicator(of: &Controller, which: u8) -> u64 {
    let count = of.communicators().count().max(1);
    let id = of.communicators().nth(usize::from(which >> 3) % count).map_or(1, |of| of.id.0);
    id + u64::from(which >> 3 == 31)
}

/// The life of a communicator that there is, or near it.
fn life(of: &Controller, which: u8) -> proto::TreeLife {
    let communicator = communicator(of, which);
    let epoch = of.communicators().find(|of| of.id.0 == communicator);
    let epoch = epoch.map_or(1, |of| u32::from(of.epoch.0));
    proto::TreeLife { communicator, epoch: epoch + u32::from(which & 7 == 7) }
}

/// What a switch says of a command; `None`: nothing.
fn obeyed(command: &proto::SwitchCommand, how: u8) -> Option<proto::SwitchReport> {
    let Some(switch_command::Command::Install(install)) = &command.command else { return None };
    let (life, part) = (install.life, install.part.as_ref()?);
    let report = if how & 31 == 31 {
        let why = switch_report::refused::Why::Communicators(u64::from(how));
        switch_report::Report::Refused(switch_report::Refused { life, why: Some(why) })
    } else {
        let mut children: Vec<_> = part.children.iter().map(|_| end(how)).collect();
        if how & 31 == 30 {
            children.pop();
        }
        let parent = (!part.parent.is_empty() ^ (how & 31 == 29)).then(|| end(how));
        let ends = Some(proto::EdgeEnds { children, parent });
        switch_report::Report::Installed(switch_report::Installed { life, ends })
    };
    Some(proto::SwitchReport { report: Some(report) })
}

fn chunks(life: proto::TreeLife, how: u8) -> host_report::Chunks {
    let chunks = if how & 15 == 15 { u32::from(how) << 6 } else { 2 * WINDOW };
    let has_result = vec![how >> 4; chunks.div_ceil(8) as usize];
    let oldest = u32::from(how & 3);
    host_report::Chunks { life: Some(life), oldest, has_result, chunks, end: Some(end(how)) }
}

fn reason(of: u8) -> i32 {
    i32::from(of % 8)
}

fn header(next: &mut impl FnMut() -> u8) -> proto::Header {
    let collective =
        proto::Collective { kind: u32::from(next() % 5), operator: 1, element: 3, root: 0 };
    proto::Header {
        kind: u32::from(next() % 4),
        collective: Some(collective),
        count: next().into(),
        ..proto::Header::default()
    }
}

fn switch_report_near(of: &Controller, bytes: &mut Bytes<'_>) -> proto::SwitchReport {
    use switch_report::Report;
    let mut next = || bytes.byte().unwrap_or(0);
    let (kind, which, odd) = (next(), next(), next());
    let about = life(of, which);
    let life = Some(about);
    let report = match kind % 7 {
        0 => Report::EdgeDead(switch_report::EdgeDead {
            life,
            child: (odd & 1 == 0).then_some(u32::from(odd >> 1) % 4),
        }),
        1 => Report::Aborted(switch_report::Aborted { life, reason: reason(odd) }),
        2 => Report::Contradiction(switch_report::Contradiction {
            life,
            child: u32::from(odd) % 4,
            first: Some(header(&mut next)),
            second: Some(header(&mut next)),
        }),
        3 => Report::Counts(switch_report::Counts {
            communicator: about.communicator,
            counts: Some(proto::SwitchCounts {
                contributions: u64::MAX - u64::from(odd),
                drops: vec![1; usize::from(odd & 1) * 20],
                ..proto::SwitchCounts::default()
            }),
            slots_in_use: odd.into(),
        }),
        4 => Report::Strays(proto::Strays { unknown_qpns: odd.into(), ..proto::Strays::default() }),
        5 => {
            let memory = switch_report::Memory { needed: u64::MAX, free: odd.into() };
            let why = Some(switch_report::refused::Why::Memory(memory));
            Report::Refused(switch_report::Refused { life, why })
        }
        _ => {
            let children = (0..odd & 3).map(end).collect();
            let ends = Some(proto::EdgeEnds { children, parent: (odd & 4 != 0).then(|| end(odd)) });
            Report::Installed(switch_report::Installed { life, ends })
        }
    };
    proto::SwitchReport { report: Some(report) }
}

fn host_report_near(of: &Controller, bytes: &mut Bytes<'_>) -> proto::HostReport {
    use host_report::Report;
    let mut next = || bytes.byte().unwrap_or(0);
    let (kind, which, odd) = (next(), next(), next());
    let about = life(of, which);
    let report = match kind % 4 {
        0 => Report::Chunks(chunks(about, odd)),
        1 => Report::EdgeDead(about),
        2 => {
            let collective = header(&mut next).collective;
            let operation =
                host_report::Operation { op_id: odd.into(), collective, elements: u64::MAX };
            Report::Aborted(host_report::Aborted {
                life: Some(about),
                reason: reason(odd),
                operation: (odd & 8 == 0).then_some(operation),
            })
        }
        _ => Report::Switch(switch_report_near(of, bytes)),
    };
    proto::HostReport { report: Some(report) }
}
