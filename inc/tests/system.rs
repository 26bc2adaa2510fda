//! The whole system in virtual time: a controller, switches and hosts, on links and sessions that delay, with datagrams that
//! are lost and doubled, switches that die and come back, hosts that die, and controllers that die and are replaced.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test fails by it")]

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};

use inc::control::{CommunicatorId, HostCommand, HostReport, SwitchReport, TreeLife};
use inc::controller::{
    CONTROL_VERSION, CallAnswer, CallId, Controller, ControllerAction, ControllerCall,
    ControllerCfg, ControllerRemains, HostHello, JoinRequest, MemberTicket, SessionId,
    SwitchCapacity, SwitchHello,
};
use inc::document::read_map;
use inc::edge::{EdgeAttributes, MessageMode, Reliability};
use inc::element::{ElementType, Operator, Reduction};
use inc::host::{Host, HostMemberCfg, MemberId};
use inc::member::OperationError;
use inc::reduce::fold;
use inc::switch::{PartView, Switch, SwitchLimits};
use inc::wire::{AbortReason, Collective, Rank, TreeEpoch};

#[path = "support/random.rs"]
mod random;

use random::Random;

const US: u64 = 1000;
const MS: u64 = 1000 * US;
const SECOND: u64 = 1000 * MS;
const RANKS: u16 = 6;
const SWITCHES: usize = 3;
const CALLS: usize = 10;
const LIMITS: SwitchLimits = SwitchLimits { memory: 1 << 30, communicators: 16 };
/// All is over in this time, whatever happens.
const BOUND: u64 = 100 * SECOND;

/// What a peer of the controller says to it.
enum Said {
    Call(CallId, ControllerCall),
    SwitchHello(SessionId, SwitchHello),
    HostHello(SessionId, HostHello),
    Switch(SessionId, SwitchReport),
    Host(SessionId, HostReport),
    Heartbeat(SessionId),
    End(SessionId),
}

enum Event {
    Datagram(SocketAddr, SocketAddr, Vec<u8>),
    /// What is said to a controller that has gone, which the first number says, is lost.
    ToController(u32, Said),
    FromController(ControllerAction),
    /// A station with this session says that it lives.
    Heartbeat(SessionId),
    ControllerTick,
    SwitchDies(usize),
    SwitchStarts(usize),
    HostDies(u16),
    HostJoins(u16),
    ControllerDies,
    ControllerStarts,
    SwitchReturns(usize),
    HostReturns(u16),
}

struct SwitchStation {
    switch: Switch,
    incarnation: u64,
    session: Option<SessionId>,
    /// Reports that wait for a session.
    waiting: Vec<SwitchReport>,
}

struct HostStation {
    host: Host,
    session: Option<SessionId>,
    ticket: Option<MemberTicket>,
    member: Option<MemberId>,
    communicator: Option<CommunicatorId>,
    submitted: usize,
    ahead: usize,
    results: Vec<Result<Vec<u8>, OperationError>>,
    is_leaving: bool,
    has_left: bool,
    /// Of the tree that it was last said to begin in.
    epoch: TreeEpoch,
    waiting: Vec<HostReport>,
}

struct World {
    random: Random,
    now: u64,
    events: BTreeMap<(u64, u64), Event>,
    count: u64,
    controller: Controller,
    /// What the next controller begins with.
    saved: ControllerRemains,
    is_away: bool,
    /// Controllers that died so far.
    dead_controllers: u32,
    switches: Vec<Option<SwitchStation>>,
    hosts: Vec<Option<HostStation>>,
    calls: Vec<(Collective, Vec<Vec<u8>>)>,
    attributes: EdgeAttributes,
    loss_ppm: u64,
    /// The last arrival on a link or in a session.
    last: HashMap<(SocketAddr, SocketAddr), u64>,
    last_said: HashMap<(SessionId, bool), u64>,
    next_number: u64,
    dead_host: Option<u16>,
    lost_switches: u32,
    /// Chunks of plans that some rank had the result of.
    replayed: usize,
    /// Hosts that were said to begin in a tree of members, and results that ranks give on in those.
    by_members: u32,
    resumed_by_members: usize,
    /// Datagrams so far, and what happens after so many.
    flown: u64,
    deaths: Vec<(u64, Event)>,
}

fn switch_at(index: usize) -> SocketAddr {
    SocketAddr::from(([10, 1, 0, u8::try_from(index).unwrap()], 4791))
}

fn host_at(rank: u16) -> SocketAddr {
    SocketAddr::from(([10, 2, 0, u8::try_from(rank).unwrap()], 4791))
}

fn source_of(seed: u64) -> Box<dyn FnMut() -> u64 + Send> {
    let mut random = Random(seed);
    Box::new(move || random.next())
}

/// Switches that all see each other; each host sees two of them.
fn map() -> String {
    let (mut nodes, mut links) = (String::from("nodes:\n"), String::from("links:\n"));
    for index in 0..SWITCHES {
        let address = switch_at(index).ip();
        nodes += &format!("  - {{name: s{index}, kind: switch, address: {address}}}\n");
        links += &format!("  - ends: [s{index}, s{}]\n", (index + 1) % SWITCHES);
    }
    for rank in 0..RANKS {
        let address = host_at(rank).ip();
        nodes += &format!("  - {{name: h{rank}, kind: host, address: {address}}}\n");
        for offset in 0..2 {
            let to = (usize::from(rank) + offset) % SWITCHES;
            links += &format!("  - ends: [s{to}, h{rank}]\n");
        }
    }
    nodes + &links
}

fn controller_cfg() -> ControllerCfg {
    // A rank that does not come back after a restart is dead before the bound of the others' operations.
    ControllerCfg { destroy_ns: 20 * SECOND, grace_ns: 10 * SECOND, ..ControllerCfg::new() }
}

fn random_call(random: &mut Random) -> (Collective, Vec<Vec<u8>>) {
    let reduction = loop {
        let operator = Operator::ALL[usize::try_from(random.below(12)).unwrap()];
        let element = ElementType::ALL[usize::try_from(random.below(16)).unwrap()];
        // Sums of floats show it if ranks differ: every other reduction is one.
        let floats = [ElementType::F16, ElementType::Bf16, ElementType::F32, ElementType::F64];
        if random.below(2) == 0 {
            let at = usize::try_from(random.below(4)).unwrap();
            break Reduction::new(Operator::Sum, floats[at]).unwrap();
        }
        if let Some(reduction) = Reduction::new(operator, element) {
            break reduction;
        }
    };
    let root = Rank(u16::try_from(random.below(RANKS.into())).unwrap());
    let collective = match random.below(5) {
        0 | 1 => Collective::Allreduce(reduction),
        2 => Collective::Reduce(reduction, root),
        3 => Collective::Broadcast(reduction.element(), root),
        _ => Collective::Barrier,
    };
    let size = collective.element_size();
    let most = 6000_usize.checked_div(size).map_or(0, |most| random.below(1 + most as u64));
    let len = usize::try_from(most).unwrap() * size;
    let input = |random: &mut Random| -> Vec<u8> {
        (0..len).map(|_| u8::try_from(random.below(256)).unwrap()).collect()
    };
    let mut inputs: Vec<_> = (0..RANKS).map(|_| input(random)).collect();
    for input in &mut inputs {
        input.chunks_mut(size.max(1)).for_each(|value| make_near_one(reduction.element(), value));
    }
    (collective, inputs)
}

/// Floats from 1 to 2, whose sums are rounded otherwise in another order.
fn make_near_one(element: ElementType, value: &mut [u8]) {
    let (last, exponent, mask) = match element {
        ElementType::F16 => (1, 0x3c, 0x03),
        ElementType::Bf16 => (1, 0x3f, 0),
        ElementType::F32 => (3, 0x3f, 0),
        ElementType::F64 => (7, 0x3f, 0),
        _ => return,
    };
    if value.len() <= last {
        return;
    }
    value[last] = value[last] & mask | exponent;
    value[last - 1] |= match element {
        ElementType::Bf16 | ElementType::F32 => 0x80,
        ElementType::F64 => 0xf0,
        _ => 0,
    };
}

fn life_of(part: PartView) -> TreeLife {
    let epoch = if part.has_started { part.life.epoch } else { TreeEpoch(0) };
    TreeLife { epoch, ..part.life }
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let controller = Controller::new(controller_cfg(), read_map(&map()).unwrap());
        let choose = |random: &mut Random| random.below(2) == 0;
        let attributes = EdgeAttributes {
            mode: if choose(&mut random) { MessageMode::Send } else { MessageMode::Write },
            reliability: if choose(&mut random) {
                Reliability::Reliable
            } else {
                Reliability::Unreliable
            },
            path_mtu: 256,
            packets: 2,
            window: 8,
            ..EdgeAttributes::DEFAULT
        };
        let calls = (0..CALLS).map(|_| random_call(&mut random)).collect();
        let loss_ppm = [0, 1000, 10_000, 50_000][usize::try_from(random.below(4)).unwrap()];
        let mut world = Self {
            random,
            now: MS,
            events: BTreeMap::new(),
            count: 0,
            controller,
            saved: ControllerRemains::default(),
            is_away: false,
            dead_controllers: 0,
            switches: (0..SWITCHES).map(|_| None).collect(),
            hosts: (0..RANKS).map(|_| None).collect(),
            calls,
            attributes,
            loss_ppm,
            last: HashMap::new(),
            last_said: HashMap::new(),
            next_number: 1,
            dead_host: None,
            lost_switches: 0,
            replayed: 0,
            by_members: 0,
            resumed_by_members: 0,
            flown: 0,
            deaths: Vec::new(),
        };
        // Now and then switches come late: until then members reduce in their own programs.
        let late = if world.random.below(3) == 0 { 500 * MS } else { 20 * MS };
        for index in 0..SWITCHES {
            let at = world.random.below(late);
            world.at(at, Event::SwitchStarts(index));
        }
        for rank in 0..RANKS {
            let at = world.random.below(20 * MS);
            world.at(at, Event::HostJoins(rank));
        }
        world.at(0, Event::ControllerTick);
        world
    }

    fn at(&mut self, delay: u64, event: Event) {
        self.count += 1;
        self.events.insert((self.now + delay, self.count), event);
    }

    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    /// To the controller, in the order of the session.
    fn say(&mut self, session: SessionId, said: Said) {
        let at = self.session_time(session, true);
        self.at(at - self.now, Event::ToController(self.dead_controllers, said));
    }

    fn session_time(&mut self, session: SessionId, is_up: bool) -> u64 {
        let at = self.now + 50 * US + self.random.below(500 * US);
        let last = self.last_said.entry((session, is_up)).or_default();
        *last = at.max(*last + 1);
        *last
    }

    fn send(&mut self, source: SocketAddr, dest: SocketAddr, bytes: &[u8]) {
        self.flown += 1;
        if let Some(nth) = self.deaths.iter().position(|(at, _)| *at <= self.flown) {
            let (_, death) = self.deaths.swap_remove(nth);
            self.at(0, death);
        }
        if self.random.is_one_of(self.loss_ppm) {
            return;
        }
        let copies = 1 + u64::from(self.random.is_one_of(self.loss_ppm));
        for _ in 0..copies {
            let mut at = self.now + US + self.random.below(19 * US);
            if !self.random.is_one_of(self.loss_ppm) {
                let last = self.last.entry((source, dest)).or_default();
                at = at.max(*last + 1);
                *last = at;
            }
            self.at(at - self.now, Event::Datagram(source, dest, bytes.to_vec()));
        }
    }

    /// Everything that stations and the controller have to say goes on its way.
    fn flush(&mut self) {
        let (now, mut buf) = (self.now, [0; 1024]);
        let (mut datagrams, mut said) = (Vec::new(), Vec::new());
        for station in self.switches.iter_mut().flatten() {
            while let Some(d) = station.switch.poll_transmit(now, &mut buf) {
                datagrams.push((d.source, d.dest, buf[..d.len].to_vec()));
            }
            while let Some(report) = station.switch.poll_report() {
                match station.session {
                    Some(session) => said.push((session, Said::Switch(session, report))),
                    None => station.waiting.push(report),
                }
            }
        }
        for station in self.hosts.iter_mut().flatten() {
            while let Some(d) = station.host.poll_transmit(now, &mut buf) {
                datagrams.push((d.source, d.dest, buf[..d.len].to_vec()));
            }
            while let Some((_, report)) = station.host.poll_report() {
                match station.session {
                    Some(session) => said.push((session, Said::Host(session, report))),
                    None => station.waiting.push(report),
                }
            }
        }
        for (source, dest, bytes) in datagrams {
            self.send(source, dest, &bytes);
        }
        for (session, what) in said {
            self.say(session, what);
        }
        // Stored before anything leaves.
        if self.controller.take_changed() {
            self.saved = self.controller.remains();
        }
        while let Some(action) = self.controller.poll_action() {
            let session = match &action {
                ControllerAction::ToSwitch(session, _) | ControllerAction::ToHost(session, _) => {
                    *session
                }
                ControllerAction::EndSession(session, _) => *session,
                ControllerAction::Answer(call, _) => SessionId(call.0),
            };
            let at = self.session_time(session, false);
            self.at(at - self.now, Event::FromController(action));
        }
        for rank in 0..RANKS {
            self.host_goes_on(rank);
        }
    }

    /// Results are taken, the next calls begin, and a host that is done leaves.
    fn host_goes_on(&mut self, rank: u16) {
        let Some(station) = &mut self.hosts[usize::from(rank)] else { return };
        let Some(member) = station.member else { return };
        while let Some(finished) = station.host.poll_finished(member) {
            station.results.push(finished.result.map(|all| all.to_vec()));
        }
        let mut has_begun = false;
        while station.submitted < CALLS && station.submitted < station.results.len() + station.ahead
        {
            let (collective, inputs) = &self.calls[station.submitted];
            let input = &inputs[usize::from(rank)];
            station.submitted += 1;
            match station.host.submit(self.now, member, *collective, input) {
                Ok(_) => has_begun = true,
                Err(inc::member::SubmitError::Over(error)) => station.results.push(Err(error)),
                Err(error) => panic!("{error}"),
            }
        }
        let is_done = station.results.len() == CALLS && station.communicator.is_some();
        if is_done && !std::mem::replace(&mut station.is_leaving, true) {
            self.destroy(rank);
        }
        if has_begun {
            self.flush();
        }
    }

    fn step(&mut self) -> bool {
        let Some(((at, _), _)) = self.events.first_key_value() else { return false };
        let switches = self.switches.iter().flatten().filter_map(|s| s.switch.poll_deadline());
        let hosts = self.hosts.iter().flatten().filter_map(|s| s.host.poll_deadline());
        let timer = switches.chain(hosts).min();
        if timer.is_some_and(|timer| timer < *at) {
            self.now = self.now.max(timer.unwrap());
            let now = self.now;
            self.switches.iter_mut().flatten().for_each(|s| s.switch.on_time(now));
            self.hosts.iter_mut().flatten().for_each(|s| s.host.on_time(now));
            self.flush();
            return true;
        }
        let ((at, _), event) = self.events.pop_first().unwrap();
        self.now = self.now.max(at);
        let now = self.now;
        match event {
            Event::Datagram(source, dest, bytes) => {
                if let Some(index) = (0..SWITCHES).find(|index| switch_at(*index) == dest) {
                    if let Some(station) = &mut self.switches[index] {
                        station.switch.on_datagram(now, source, &bytes);
                    }
                } else if let Some(rank) = (0..RANKS).find(|rank| host_at(*rank) == dest)
                    && let Some(station) = &mut self.hosts[usize::from(rank)]
                {
                    station.host.on_datagram(now, source, &bytes);
                }
            }
            Event::ToController(to, said) => {
                if to == self.dead_controllers && !self.is_away {
                    self.receive(said);
                }
            }
            Event::FromController(action) => self.obey(action),
            Event::Heartbeat(session) => self.heartbeat(session),
            Event::ControllerTick => {
                if !self.is_away {
                    self.controller.on_time(now);
                }
                self.at(20 * MS, Event::ControllerTick);
            }
            Event::SwitchDies(index) => self.switch_dies(index),
            Event::SwitchStarts(index) => self.switch_starts(index),
            Event::HostDies(rank) => self.host_dies(rank),
            Event::HostJoins(rank) => self.host_joins(rank),
            Event::ControllerDies => self.controller_dies(),
            Event::ControllerStarts => self.controller_starts(),
            Event::SwitchReturns(index) => self.switch_returns(index),
            Event::HostReturns(rank) => self.host_returns(rank),
        }
        self.flush();
        true
    }

    fn receive(&mut self, said: Said) {
        let now = self.now;
        match said {
            Said::Call(id, call) => self.controller.on_call(now, id, call),
            Said::SwitchHello(id, hello) => {
                self.controller.on_switch_session(now, id, hello).unwrap();
            }
            Said::HostHello(id, hello) => {
                // Its group may be over: so are its communicators.
                let refused = self.controller.on_host_session(now, id, &hello).err();
                let of = |s: &&mut HostStation| s.session == Some(id);
                let station = self.hosts.iter_mut().flatten().find(of);
                if let (Some(why), Some(station)) = (refused, station)
                    && let Some((member, communicator)) = station.member.zip(station.communicator)
                {
                    let why = why.to_string();
                    let abort = HostCommand::Abort(communicator, AbortReason::ShutDown, why);
                    station.host.on_command(now, member, abort);
                }
            }
            Said::Switch(id, report) => self.controller.on_switch(now, id, report),
            Said::Host(id, report) => self.controller.on_host(now, id, report),
            Said::Heartbeat(id) => self.controller.on_heartbeat(now, id),
            Said::End(id) => self.controller.on_session_end(now, id),
        }
    }

    fn obey(&mut self, action: ControllerAction) {
        let now = self.now;
        match action {
            ControllerAction::ToSwitch(session, command) => {
                let station =
                    self.switches.iter_mut().flatten().find(|s| s.session == Some(session));
                if let Some(station) = station {
                    station.switch.on_command(now, command);
                }
            }
            ControllerAction::ToHost(session, command) => {
                let of = |s: &&mut HostStation| s.session == Some(session);
                let Some(station) = self.hosts.iter_mut().flatten().find(of) else { return };
                let member = station.member.expect("it has one before its session");
                if let HostCommand::Start(life, start) = &command {
                    station.epoch = life.epoch;
                    let given_on = start.plan.owners.iter().flatten().count();
                    self.replayed += given_on;
                    let (is_tree, is_of_members) =
                        (start.parent.is_some(), start.without.is_some());
                    self.by_members += u32::from(is_tree && is_of_members);
                    self.resumed_by_members += if is_of_members { given_on } else { 0 };
                }
                station.host.on_command(now, member, command);
            }
            ControllerAction::EndSession(..) => {}
            ControllerAction::Answer(call, answer) => self.answered(call, answer.ok()),
        }
    }

    /// Calls of rank r: 100 + r joins, 200 + r creates, 300 + r destroys, 400 + r leaves.
    fn answered(&mut self, call: CallId, answer: Option<CallAnswer>) {
        let rank = u16::try_from(call.0 % 100).unwrap();
        let session = SessionId(self.number() + 1000);
        let attributes = self.attributes;
        let now = self.now;
        let Some(station) = &mut self.hosts[usize::from(rank)] else { return };
        match (call.0 / 100, answer) {
            (1, Some(CallAnswer::Joined(ticket))) => {
                (station.ticket, station.session) = (Some(ticket), Some(session));
                let cfg = HostMemberCfg {
                    rank: Rank(rank),
                    attributes,
                    address: host_at(rank),
                    bound_ns: 30 * SECOND,
                };
                let (member, end) = station.host.join(now, cfg).unwrap();
                station.member = Some(member);
                let create =
                    ControllerCall::CreateCommunicator(ticket, attributes, end, 20 * SECOND);
                let hello = HostHello { version: CONTROL_VERSION, ticket, lives: Vec::new() };
                self.say(session, Said::HostHello(session, hello));
                self.say(session, Said::Call(CallId(200 + u64::from(rank)), create));
                self.at(100 * MS, Event::Heartbeat(session));
            }
            (2, Some(CallAnswer::Created(id))) => station.communicator = Some(id),
            (2, None) => {
                // The group ended before: all calls end with it.
                station.communicator = Some(CommunicatorId(0));
                station.results.resize(CALLS, Err(OperationError::Unknown));
                (station.is_leaving, station.has_left) = (true, true);
            }
            (3, _) => {
                let call = CallId(400 + u64::from(rank));
                let leave = ControllerCall::Leave(station.ticket.unwrap());
                self.say(SessionId(call.0), Said::Call(call, leave));
            }
            (4, _) => {
                station.has_left = true;
                let member = station.member.unwrap();
                station.host.leave(now, member);
            }
            (kind, answer) => panic!("call {kind} of rank {rank}: {answer:?}"),
        }
    }

    fn heartbeat(&mut self, session: SessionId) {
        let switch = self.switches.iter().flatten().any(|s| s.session == Some(session));
        let host = self.hosts.iter().flatten().any(|s| s.session == Some(session) && !s.has_left);
        if switch || host {
            self.say(session, Said::Heartbeat(session));
            self.at(100 * MS, Event::Heartbeat(session));
        }
    }

    fn switch_starts(&mut self, index: usize) {
        let incarnation = self.number();
        let switch = Switch::new(LIMITS, source_of(incarnation << 20));
        let waiting = Vec::new();
        self.switches[index] = Some(SwitchStation { switch, incarnation, session: None, waiting });
        if !self.is_away {
            self.switch_returns(index);
        }
    }

    /// A switch opens a session: it says which parts it has, and what happened without one.
    fn switch_returns(&mut self, index: usize) {
        let session = SessionId(self.number() + 1000);
        let Some(station) = &mut self.switches[index] else { return };
        if self.is_away || station.session.is_some() {
            return;
        }
        let hello = SwitchHello {
            version: CONTROL_VERSION,
            name: None,
            address: switch_at(index).ip(),
            incarnation: station.incarnation,
            capacity: SwitchCapacity { memory: LIMITS.memory, communicators: 16 },
            // A part that was not started says an epoch in which no tree is, as a switch's session does.
            lives: station.switch.parts().map(life_of).collect(),
        };
        station.session = Some(session);
        let waiting = std::mem::take(&mut station.waiting);
        self.say(session, Said::SwitchHello(session, hello));
        for report in waiting {
            self.say(session, Said::Switch(session, report));
        }
        self.at(100 * MS, Event::Heartbeat(session));
    }

    fn host_returns(&mut self, rank: u16) {
        let session = SessionId(self.number() + 1000);
        let Some(station) = &mut self.hosts[usize::from(rank)] else { return };
        let may = station.session.is_none() && !self.is_away;
        let Some(ticket) = station.ticket.filter(|_| may) else { return };
        let life = |communicator| TreeLife { communicator, epoch: station.epoch };
        let lives = station.communicator.map(life).into_iter().collect();
        station.session = Some(session);
        let waiting = std::mem::take(&mut station.waiting);
        let is_leaving = station.is_leaving;
        self.say(
            session,
            Said::HostHello(session, HostHello { version: CONTROL_VERSION, ticket, lives }),
        );
        for report in waiting {
            self.say(session, Said::Host(session, report));
        }
        // Its call ended with the controller: it calls again.
        if is_leaving {
            self.destroy(rank);
        }
        self.at(100 * MS, Event::Heartbeat(session));
    }

    /// In the middle of operations, and of what comes with them: changes of trees, destroys.
    fn controller_dies(&mut self) {
        let is_made = |s: &HostStation| s.communicator.is_some_and(|id| id.0 != 0);
        let are_made = self.hosts.iter().flatten().all(is_made);
        if !are_made || self.is_away {
            return;
        }
        (self.is_away, self.dead_controllers) = (true, self.dead_controllers + 1);
        self.switches.iter_mut().flatten().for_each(|station| station.session = None);
        self.hosts.iter_mut().flatten().for_each(|station| station.session = None);
        let pause = self.random.below(3 * SECOND);
        self.at(pause, Event::ControllerStarts);
    }

    fn controller_starts(&mut self) {
        self.controller = Controller::new(controller_cfg(), read_map(&map()).unwrap());
        self.controller.restore(self.now, self.saved.clone());
        self.is_away = false;
        for index in 0..SWITCHES {
            let pause = self.random.below(2 * SECOND);
            self.at(pause, Event::SwitchReturns(index));
        }
        for rank in 0..RANKS {
            if self.hosts[usize::from(rank)].as_ref().is_some_and(|station| !station.has_left) {
                let pause = self.random.below(2 * SECOND);
                self.at(pause, Event::HostReturns(rank));
            }
        }
    }

    fn destroy(&mut self, rank: u16) {
        let Some(station) = &self.hosts[usize::from(rank)] else { return };
        let (ticket, id) = (station.ticket.unwrap(), station.communicator.unwrap());
        let call = CallId(u64::from(rank) + 300);
        let destroy = ControllerCall::DestroyCommunicator(ticket, id);
        self.say(SessionId(call.0), Said::Call(call, destroy));
    }

    /// It dies; its session ends at once, or is silent from then on.
    fn switch_dies(&mut self, index: usize) {
        let Some(station) = self.switches[index].take() else { return };
        self.lost_switches += 1;
        if self.random.below(2) == 0
            && let Some(session) = station.session
        {
            self.say(session, Said::End(session));
        }
        // Now and then the controller dies while it changes the tree.
        if self.random.below(4) == 0 {
            let soon = self.random.below(5 * MS);
            self.at(soon, Event::ControllerDies);
        }
        let longest = if self.random.below(3) == 0 { 3 * SECOND } else { 600 * MS };
        let again = 20 * MS + self.random.below(longest);
        self.at(again, Event::SwitchStarts(index));
    }

    fn host_dies(&mut self, rank: u16) {
        let is_busy = |s: &HostStation| s.ticket.is_some() && !s.is_leaving;
        if !self.hosts[usize::from(rank)].as_ref().is_some_and(is_busy) {
            return;
        }
        let station = self.hosts[usize::from(rank)].take().unwrap();
        self.dead_host = Some(rank);
        if self.random.below(2) == 0
            && let Some(session) = station.session
        {
            self.say(session, Said::End(session));
        }
    }

    fn host_joins(&mut self, rank: u16) {
        let host = Host::new([77, 7700].map(|seed| source_of(u64::from(rank) + seed)));
        let ahead = 1 + usize::try_from(self.random.below(4)).unwrap();
        self.hosts[usize::from(rank)] = Some(HostStation {
            host,
            session: None,
            ticket: None,
            member: None,
            communicator: None,
            submitted: 0,
            ahead,
            results: Vec::new(),
            is_leaving: false,
            has_left: false,
            epoch: TreeEpoch(0),
            waiting: Vec::new(),
        });
        let address: IpAddr = host_at(rank).ip();
        let join = JoinRequest {
            version: CONTROL_VERSION,
            name: "job".into(),
            world_size: RANKS.into(),
            rank: rank.into(),
            address,
            tenant: 0,
            nonce: [0; 16],
            proof: Vec::new(),
            key: 5 + u64::from(rank),
            wait_ns: 20 * SECOND,
        };
        let call = CallId(100 + u64::from(rank));
        self.say(SessionId(call.0), Said::Call(call, ControllerCall::Join(join)));
    }

    /// Runs until all hosts have left, or are dead.
    fn run(&mut self) {
        let is_over = |hosts: &[Option<HostStation>], dead: Option<u16>| {
            (0..RANKS).all(|rank| {
                hosts[usize::from(rank)].as_ref().map_or_else(|| dead == Some(rank), |s| s.has_left)
            })
        };
        while !is_over(&self.hosts, self.dead_host) {
            assert!(self.step() && self.now < BOUND, "stuck at {} ms", self.now / MS);
        }
        // What is left of the group goes, too.
        let end = self.now + 5 * SECOND;
        while self.now < end {
            self.step();
        }
    }

    /// Each call ended once at each rank that lives, with the right result or for a reason.
    fn check(&self, seed: u64) -> usize {
        let mut right = 0;
        for (nth, (collective, inputs)) in self.calls.iter().enumerate() {
            let mut first: Option<&Vec<u8>> = None;
            for rank in 0..RANKS {
                let Some(station) = &self.hosts[usize::from(rank)] else { continue };
                assert_eq!(station.results.len(), CALLS, "seed {seed}, rank {rank}");
                let found = match &station.results[nth] {
                    Ok(found) => found,
                    Err(error) => {
                        let is_fair = match error {
                            OperationError::Unknown => self.dead_host.is_some(),
                            OperationError::Aborted(AbortReason::MemberDead) => {
                                self.dead_host.is_some()
                            }
                            // To a rank that had no session when its group ended.
                            OperationError::Aborted(AbortReason::ShutDown) => {
                                self.dead_host.is_some() && self.dead_controllers > 0
                            }
                            OperationError::Aborted(_)
                            | OperationError::Timeout(_)
                            | OperationError::NoQpn => false,
                        };
                        assert!(is_fair, "seed {seed}, rank {rank}, call {nth}: {error}");
                        continue;
                    }
                };
                right += 1;
                let gets = match *collective {
                    Collective::Allreduce(_) => true,
                    Collective::Reduce(_, root) => root == Rank(rank),
                    Collective::Broadcast(_, root) => root != Rank(rank),
                    Collective::Barrier => false,
                };
                if !gets {
                    assert!(found.is_empty(), "seed {seed}, rank {rank}, call {nth}");
                    continue;
                }
                let at = format!("seed {seed}, rank {rank}, call {nth}: {collective:?}");
                match *collective {
                    Collective::Broadcast(_, root) => {
                        assert!(*found == inputs[usize::from(root.0)], "{at}");
                    }
                    Collective::Allreduce(reduction) | Collective::Reduce(reduction, _) => {
                        let mut wanted = vec![0; found.len()];
                        assert_eq!(found.len(), inputs[0].len(), "{at}");
                        fold(reduction, inputs.iter(), &mut wanted);
                        // Floats depend on the tree; but not on the rank.
                        assert!(reduction.is_ordered() || *found == wanted, "{at}");
                        assert!(first.is_none_or(|first| first == found), "{at}");
                        first = Some(found);
                    }
                    Collective::Barrier => {}
                }
            }
        }
        for (index, station) in self.switches.iter().enumerate() {
            if let Some(station) = station {
                let in_use = station.switch.in_use();
                assert_eq!(in_use, (0, 0), "seed {seed}: what switch {index} keeps");
                assert!(station.switch.parts().next().is_none());
            }
        }
        for (rank, station) in self.hosts.iter().enumerate() {
            let in_use = station.as_ref().map_or((0, 0), |station| station.host.switch().in_use());
            assert_eq!(in_use, (0, 0), "seed {seed}: what the program of rank {rank} keeps");
        }
        assert_eq!(self.controller.groups().count(), 0, "seed {seed}");
        let reserved = self.controller.switches().flat_map(|s| s.reserved.values());
        assert_eq!(reserved.sum::<u64>(), 0, "seed {seed}");
        right
    }
}

/// `INC_SEEDS=100000 cargo test --release -p inc --test system` runs as many seeds.
#[test]
fn every_call_ends_once_with_the_right_result_or_a_reason_whatever_dies() {
    let seeds = std::env::var("INC_SEEDS").map_or(1000, |seeds| seeds.parse().unwrap());
    let (mut right, mut lost, mut dead, mut replayed) = (0, 0, 0, 0);
    let (mut by_members, mut resumed, mut controllers) = (0, 0, 0);
    // 1066: a controller died when some parts of a tree were started and others were not.
    for seed in (0..seeds).chain([1066]) {
        let mut world = World::new(seed);
        // In the middle of operations: after so many datagrams.
        for _ in 0..world.random.below(5) {
            let (index, at) = (world.random.below(3), world.random.below(4000));
            world.deaths.push((at, Event::SwitchDies(usize::try_from(index).unwrap())));
        }
        if world.random.below(4) == 0 {
            let (rank, at) = (world.random.below(RANKS.into()), world.random.below(4000));
            world.deaths.push((at, Event::HostDies(u16::try_from(rank).unwrap())));
        }
        if world.random.below(3) == 0 {
            let at = world.random.below(4000);
            world.deaths.push((at, Event::ControllerDies));
        }
        world.run();
        controllers += world.dead_controllers;
        right += world.check(seed);
        lost += world.lost_switches;
        replayed += world.replayed;
        by_members += world.by_members;
        resumed += world.resumed_by_members;
        dead += u32::from(world.dead_host.is_some());
    }
    println!(
        "{right} results, {lost} switches lost, {dead} hosts dead, {controllers} controllers \
         dead, {replayed} results given on; \
         {by_members} starts in members' programs, which got {resumed} of these results"
    );
    assert!(right > usize::try_from(seeds).unwrap() * CALLS * 2 && lost > 50 && dead > 5);
    assert!(by_members > 100 && resumed > 10 && controllers > 10);
}
