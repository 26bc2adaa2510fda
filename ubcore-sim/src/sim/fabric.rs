//! The fabric: steps devices, delivers datagrams, advances time.
//!
//! - owns: the virtual clock, the nodes, the link, the schedule.
//! - takes: a configuration; kills and restarts. gives: steps, the log.
//! - must not: depend on anything but the seed and the calls made.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use udma_abi::{CmdStatus, Nanos, RawEid};
use urma_mem::sync::{AtomicU64, Ordering};

use super::attacker::{Attacker, Guess};
use super::cfg::FabricCfg;
use super::log::{Fnv, Log};
use super::node::SimNode;
use crate::cfg::Seed;
use crate::device::SoftwareDevice;
use crate::host::interrupt::EventVectors;
use crate::link::{Datagram, FaultCounts, Link, Rng, Router};
use crate::ports::{ArrivedDatagram, Backlog, HostRequest, LinkVisitor, RUN_BYTES, Transmit};

/// Most datagrams that a device sends in a round.
const SENDS_PER_ROUND: usize = 4096;
/// Most host requests of a device served in a round.
const REQUESTS_PER_ROUND: usize = 64;

/// N devices in virtual time.
#[derive(Debug)]
pub struct Fabric {
    now: AtomicU64,
    world: Mutex<World>,
}

/// State of the fabric, for one thread at a time.
#[derive(Debug)]
struct World {
    cfg: FabricCfg,
    nodes: Vec<SimNode>,
    link: Box<dyn Link>,
    carried: u64,
    /// Time does not jump.
    programs_work: bool,
    rng: Rng,
    attacker: Attacker,
    log: Log,
    /// Closed connections that are not noticed yet: time of the notice, node that notices, closed node.
    hang_ups: Vec<(Nanos, usize, RawEid)>,
    buf: Vec<u8>,
}

impl Fabric {
    /// Creates a fabric at time 0.
    ///
    /// # Errors
    /// Out of memory or descriptors; a model that is not possible.
    pub fn new(cfg: FabricCfg) -> io::Result<Arc<Self>> {
        let mut rng = Rng::new(cfg.seed);
        let link = cfg.faults.build(&mut rng);
        let nodes = cfg.devices.iter().zip(&cfg.hosts);
        let nodes = nodes
            .map(|(device, &host)| {
                SimNode::new(device.clone(), cfg.model(device)?, (host, cfg.page_moving))
            })
            .collect::<io::Result<Vec<_>>>()?;
        let log = Log::new(cfg.log_lines);
        let buf = vec![0; RUN_BYTES];
        let eids = cfg.devices.iter().map(|device| device.eid).collect();
        let attacker = Attacker::new(cfg.seed, cfg.attack_ppm, eids).with_flood(cfg.flood_per_ms);
        let (carried, hang_ups) = (0, Vec::new());
        let programs_work = false;
        let world =
            World { cfg, nodes, link, carried, programs_work, rng, attacker, log, hang_ups, buf };
        Ok(Arc::new(Self { now: AtomicU64::new(1), world: Mutex::new(world) }))
    }

    /// Returns the virtual time in ns.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.now.load(Ordering::Acquire)
    }

    /// Device and vectors of node `number`.
    pub(super) fn parts(&self, number: usize) -> (Arc<SoftwareDevice>, Arc<EventVectors>) {
        let world = self.world();
        let node = &world.nodes[number];
        (Arc::clone(&node.device), Arc::clone(&node.vectors))
    }

    /// Returns the device of node `number`, to read its counters.
    ///
    /// # Panics
    /// When there is no such node.
    #[must_use]
    pub fn device(&self, number: usize) -> Arc<SoftwareDevice> {
        Arc::clone(&self.world().nodes[number].device)
    }

    /// Runs one round: delivers due datagrams, steps every device that is not asleep once, and advances time. Returns
    /// whether anything was done.
    pub fn step_nodes(&self) -> bool {
        let mut world = self.world();
        let now = self.now();
        let done = world.play_round(now);
        let is_busy = world.programs_work;
        let next = world.next_time(now, done || is_busy);
        world.nodes.iter().for_each(|node| node.device.set_virtual_time(next));
        self.now.store(next, Ordering::Release);
        done
    }

    /// Says whether programs have something to do: as long as they have, time does not jump to the next event.
    pub fn set_programs_work(&self, is_so: bool) {
        self.world().programs_work = is_so;
    }

    /// Runs rounds until `done` or for `bound_ns` of virtual time; returns whether it was done.
    pub fn run_until(&self, bound_ns: Nanos, mut done: impl FnMut() -> bool) -> bool {
        let end = self.now().saturating_add(bound_ns);
        while !done() {
            if self.now() >= end {
                return false;
            }
            self.step_nodes();
        }
        true
    }

    /// Kills node `number`: nothing steps it again, datagrams in transit to it are lost, peers on its host notice within
    /// the configured time.
    ///
    /// # Panics
    /// When there is no such node.
    pub fn kill(&self, number: usize) {
        let now = self.now();
        let mut world = self.world();
        let world = &mut *world;
        world.log.add(now, format_args!("kill {number}"));
        world.nodes[number].dead = true;
        world.nodes[number].wakeup.end();
        let eid = world.nodes[number].eid;
        for peer in world.nodes[number].peers() {
            world.nodes[number].part(peer);
            world.hang_up(now, peer, eid);
        }
    }

    /// Closes node `number` like [`Fabric::kill`], but its packet peers get a CLOSE, which may overtake answers to them.
    ///
    /// # Panics
    /// When there is no such node.
    pub fn close(&self, number: usize) {
        let now = self.now();
        {
            let mut world = self.world();
            let device = Arc::clone(&world.nodes[number].device);
            world.log.add(now, format_args!("close {number}"));
            device.close_peers();
            world.transmit(now, number, &device);
        }
        self.kill(number);
    }

    /// Stops node `number` for `ns` of virtual time, like a process by SIGSTOP: nothing steps it, its datagrams wait as in
    /// a socket buffer, and peers on its host see it connected.
    ///
    /// # Panics
    /// When there is no such node.
    pub fn stop(&self, number: usize, ns: Nanos) {
        let now = self.now();
        let mut world = self.world();
        world.log.add(now, format_args!("stop {number} for {ns}"));
        world.nodes[number].stopped_until = now.saturating_add(ns);
    }

    /// Whether node `number` is alive and not stopped.
    ///
    /// # Panics
    /// When there is no such node.
    #[must_use]
    pub fn runs(&self, number: usize) -> bool {
        self.world().nodes[number].runs(self.now())
    }

    /// Starts node `number` again with the next incarnation and empty memory of what was.
    ///
    /// # Errors
    /// Out of memory or descriptors.
    ///
    /// # Panics
    /// When there is no such node, or it was not killed.
    pub fn restart(&self, number: usize) -> io::Result<()> {
        let now = self.now();
        let mut world = self.world();
        let world = &mut *world;
        assert!(world.nodes[number].dead, "only a killed node can be started again");
        let device = &mut world.cfg.devices[number];
        device.incarnation += 1;
        device.seed = Seed::of(world.rng.next_u64());
        let device = device.clone();
        world.log.add(now, format_args!("restart {number} as {}", device.incarnation));
        let host = world.nodes[number].host;
        let nic = world.cfg.model(&device)?;
        world.nodes[number] = SimNode::new(device, nic, (host, world.cfg.page_moving))?;
        world.nodes[number].device.set_virtual_time(now);
        Ok(())
    }

    /// Adds a line of the test to the log.
    pub fn note(&self, what: std::fmt::Arguments<'_>) {
        let now = self.now();
        self.world().log.add(now, format_args!("note {what}"));
    }

    /// Returns how many datagrams the link was given, and what its faults did to them.
    #[must_use]
    pub fn link_counts(&self) -> (u64, FaultCounts) {
        let mut counts = FaultCounts::default();
        let world = self.world();
        world.link.count(&mut counts);
        (world.carried, counts)
    }

    /// Returns the number of events.
    #[must_use]
    pub fn log_count(&self) -> u64 {
        self.world().log.count()
    }

    /// Returns the hash of all events.
    #[must_use]
    pub fn log_hash(&self) -> u64 {
        self.world().log.hash()
    }

    /// Returns the last events, one per line.
    #[must_use]
    pub fn log_text(&self) -> String {
        self.world().log.text()
    }

    /// Wakes node `number`, whose register was written.
    pub(super) fn on_access(&self, number: usize) {
        let mut world = self.world();
        let node = &mut world.nodes[number];
        if std::mem::take(&mut node.asleep) {
            node.device.announce_awake();
        }
    }

    /// Whether `device` is still the living device of node `number`.
    pub(super) fn is_alive(&self, number: usize, device: &Arc<SoftwareDevice>) -> bool {
        let world = self.world();
        let node = &world.nodes[number];
        !node.dead && Arc::ptr_eq(&node.device, device)
    }

    /// Ignores poisoning: after a panic elsewhere the world is not used again.
    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl World {
    fn play_round(&mut self, now: Nanos) -> bool {
        self.attack(now);
        self.flood(now);
        let mut done = self.deliver(now);
        done |= self.notice_hang_ups(now);
        // The seed chooses which node steps first.
        let first = self.rng.index(self.nodes.len());
        for turn in 0..self.nodes.len() {
            let number = (first + turn) % self.nodes.len();
            if !self.nodes[number].runs(now) || self.rng.chance_ppm(self.cfg.stall_ppm) {
                continue;
            }
            done |= self.step_node(now, number);
        }
        done
    }

    fn step_node(&mut self, now: Nanos, number: usize) -> bool {
        let node = &mut self.nodes[number];
        if node.asleep {
            let due = node.device.poll_deadline().is_some_and(|at| at <= now);
            if !node.wakeup.take() && !due {
                return false;
            }
            node.asleep = false;
            node.device.announce_awake();
            self.log.add(now, format_args!("wake {number}"));
        }
        let device = Arc::clone(&self.nodes[number].device);
        let stepped = device.step(now);
        let asked = self.serve_requests(now, number, &device);
        let sent = self.transmit(now, number, &device);
        let done = stepped || asked || sent;
        if !done && self.rng.chance_ppm(self.cfg.sleep_ppm) && device.announce_sleep(now) {
            self.nodes[number].asleep = true;
            self.log.add(now, format_args!("sleep {number}"));
        }
        done
    }

    fn serve_requests(&mut self, now: Nanos, number: usize, device: &SoftwareDevice) -> bool {
        for served in 0..REQUESTS_PER_ROUND {
            match device.poll_host_request() {
                Some(HostRequest::FindPeer { eid }) => self.find_peer(now, number, eid),
                Some(HostRequest::Forget { eid }) => self.forget(now, number, eid),
                // There is no user to read the reason.
                Some(HostRequest::AskWhy { .. }) => {}
                None => return served > 0,
            }
        }
        true
    }

    fn find_peer(&mut self, now: Nanos, number: usize, eid: RawEid) {
        let peer = self.nodes.iter().position(|node| node.eid == eid);
        let device = Arc::clone(&self.nodes[number].device);
        let Some(peer) = peer else {
            self.log.add(now, format_args!("find {number} {eid:?}: unknown"));
            device.on_no_peer(now, eid, CmdStatus::Unreachable);
            return;
        };
        if self.nodes[peer].host != self.nodes[number].host {
            self.log.add(now, format_args!("find {number} {peer}: packets"));
            device.on_packet_peer(now, eid);
            return;
        }
        if self.nodes[peer].dead || peer == number {
            self.log.add(now, format_args!("find {number} {peer}: gone"));
            device.on_no_peer(now, eid, CmdStatus::Unreachable);
            return;
        }
        if self.nodes[number].is_joined(eid) {
            // The peer asked first, and both were notified.
            return;
        }
        self.notice_end_of(now, peer, self.nodes[number].eid);
        let joined = match self.nodes.get_disjoint_mut([number, peer]) {
            Ok([mine, theirs]) => SimNode::join(mine, theirs),
            Err(_) => return,
        };
        match joined {
            Ok([mine, theirs]) => {
                self.log.add(now, format_args!("find {number} {peer}: same host"));
                device.on_same_host_peer(now, eid, mine);
                let my_eid = self.nodes[number].eid;
                self.nodes[peer].wakeup.take();
                self.nodes[peer].asleep = false;
                self.nodes[peer].device.announce_awake();
                self.nodes[peer].device.on_same_host_peer(now, my_eid, theirs);
            }
            Err(_) => device.on_no_peer(now, eid, CmdStatus::NoRoom),
        }
    }

    fn forget(&mut self, now: Nanos, number: usize, eid: RawEid) {
        self.log.add(now, format_args!("forget {number} {eid:?}"));
        if self.nodes[number].part(eid) {
            let me = self.nodes[number].eid;
            self.hang_up(now, eid, me);
        }
    }

    /// Schedules that node `who` notices the closed connection to `gone`.
    fn hang_up(&mut self, now: Nanos, who: RawEid, gone: RawEid) {
        let Some(number) = self.nodes.iter().position(|node| node.eid == who) else { return };
        let at = now + self.rng.below(self.cfg.hang_up_ns.saturating_add(1));
        self.hang_ups.push((at, number, gone));
    }

    fn notice_hang_ups(&mut self, now: Nanos) -> bool {
        let nodes = &self.nodes;
        let due = |&(at, number, _): &(Nanos, usize, RawEid)| {
            at <= now && nodes[number].stopped_until <= now
        };
        let Some(index) = self.hang_ups.iter().position(due) else { return false };
        self.notice(now, index)
    }

    /// A restarted node is not joined before its earlier end was noticed.
    fn notice_end_of(&mut self, now: Nanos, who: usize, gone: RawEid) {
        let is_it = |&(_, number, eid): &(Nanos, usize, RawEid)| number == who && eid == gone;
        while let Some(index) = self.hang_ups.iter().position(is_it) {
            self.notice(now, index);
        }
    }

    fn notice(&mut self, now: Nanos, index: usize) -> bool {
        let (_, number, gone) = self.hang_ups.remove(index);
        let node = &mut self.nodes[number];
        if !node.dead && node.part(gone) {
            if std::mem::take(&mut node.asleep) {
                node.device.announce_awake();
            }
            self.log.add(now, format_args!("gone {number} {gone:?}"));
            node.device.on_peer_gone(now, gone);
        }
        true
    }

    fn transmit(&mut self, now: Nanos, number: usize, device: &SoftwareDevice) -> bool {
        for sent in 0..SENDS_PER_ROUND {
            let Some(out) = device.poll_transmit(now, &mut self.buf) else { return sent > 0 };
            for at in (0..out.len).step_by(out.size) {
                let bytes = Arc::from(&self.buf[at..out.len.min(at + out.size)]);
                self.transmit_packet((now, number), device, &out, bytes);
            }
        }
        true
    }

    /// Hands a packet of the device to the link, unless a router reports that it is too long.
    fn transmit_packet(
        &mut self,
        (now, number): (Nanos, usize),
        device: &SoftwareDevice,
        out: &Transmit,
        bytes: Arc<[u8]>,
    ) {
        let (len, digest) = (bytes.len(), Fnv::of(&bytes));
        self.log.add(now, format_args!("send {number} {:?} {len} {digest:016x}", out.to));
        let from = device.cfg().address(out.port);
        let routers = &self.cfg.faults.routers;
        let router = Router::in_the_way(routers, now, (from, out.to), len);
        if let Some(mtu) = router.filter(|router| router.is_reported).map(|router| router.mtu) {
            self.log.add(now, format_args!("too long {number} {mtu}"));
            return device.on_too_long(now, out.to, mtu);
        }
        self.carried += 1;
        self.link.send(now, Datagram { from, to: out.to, bytes });
    }

    /// Delivers datagrams of the attacker, without a link in between.
    fn attack(&mut self, now: Nanos) {
        let count = self.attacker.count();
        if count == 0 {
            return;
        }
        let mut guesses = Vec::new();
        for node in self.nodes.iter().filter(|node| !node.dead) {
            let guess = |(tpn, peer)| Guess { node: node.eid, peer, tpn };
            guesses.extend(node.device.tpns().into_iter().map(guess));
        }
        for _ in 0..count {
            let datagram = self.attacker.datagram(&guesses);
            self.log.add(now, format_args!("attack from {:?}", datagram.from));
            self.arrive(now, &datagram);
        }
    }

    /// Delivers the packets of a flood together, before those of the link.
    fn flood(&mut self, now: Nanos) {
        let count = self.attacker.flood_count(now);
        if count == 0 {
            return;
        }
        let third = self.cfg.seed.is_multiple_of(2);
        self.log.add(now, format_args!("flood of {count}"));
        for number in 0..self.nodes.len() {
            if !self.nodes[number].runs(now) {
                continue;
            }
            let to = self.nodes[number].eid;
            let packets: Vec<_> =
                (0..count).map(|_| self.attacker.flood_packet(third, to)).collect();
            let device = self.awake(number);
            let packets =
                packets.iter().map(|packet| ArrivedDatagram::of_node(packet.from, &packet.bytes));
            device.on_datagrams(now, Backlog::More, packets);
            self.transmit(now, number, &device);
        }
    }

    /// Returns the device of a node at which something arrives.
    fn awake(&mut self, number: usize) -> Arc<SoftwareDevice> {
        let node = &mut self.nodes[number];
        if std::mem::take(&mut node.asleep) {
            node.device.announce_awake();
        }
        Arc::clone(&node.device)
    }

    fn deliver(&mut self, now: Nanos) -> bool {
        let mut done = false;
        for number in 0..self.nodes.len() {
            if self.nodes[number].runs(now) {
                for datagram in self.nodes[number].take_inbox() {
                    done = true;
                    self.receive(now, number, &datagram);
                }
            }
        }
        while let Some(datagram) = self.link.poll(now) {
            done = true;
            self.arrive(now, &datagram);
        }
        done
    }

    fn arrive(&mut self, now: Nanos, datagram: &Datagram) {
        let is_to = |node: &SimNode| node.port_of(datagram.to).is_some();
        let Some(number) = self.nodes.iter().position(is_to) else {
            return;
        };
        if self.nodes[number].runs(now) {
            self.receive(now, number, datagram);
        } else if !self.nodes[number].dead {
            self.nodes[number].keep(datagram.clone());
        }
    }

    fn receive(&mut self, now: Nanos, number: usize, datagram: &Datagram) {
        let digest = Fnv::of(&datagram.bytes);
        self.log.add(now, format_args!("receive {number} {digest:016x}"));
        let device = self.awake(number);
        // During a flood the input is never empty.
        let is_flooding = self.attacker.is_flooding();
        let backlog = if is_flooding { Backlog::More } else { Backlog::Empty };
        let datagrams = std::iter::once(ArrivedDatagram::of_node(datagram.from, &datagram.bytes));
        let port = self.nodes[number].port_of(datagram.to).unwrap_or(0);
        device.on_datagrams_at(now, (port, backlog, LinkVisitor::Thread), datagrams);
        self.transmit(now, number, &device);
    }

    /// Returns the time of the next round.
    fn next_time(&mut self, now: Nanos, done: bool) -> Nanos {
        let soon = now + 1 + self.rng.below(self.cfg.tick_ns.max(1));
        if done {
            return soon;
        }
        let devices = self.nodes.iter().filter(|node| !node.dead);
        let wanted = devices
            .filter_map(|node| match node.stopped_until {
                until if until > now => Some(until),
                _ => node.device.poll_deadline(),
            })
            .chain(self.link.poll_deadline())
            .chain(self.hang_ups.iter().map(|&(at, who, _)| at.max(self.nodes[who].stopped_until)))
            .min();
        let latest = now + self.cfg.jump_ns.max(1);
        wanted.map_or(latest, |at| at.min(latest)).max(soon)
    }
}
