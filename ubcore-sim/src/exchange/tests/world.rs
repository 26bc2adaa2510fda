//! Two nodes, their exchanges, and the air between them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use udma_abi::{
    Cqe, CqeStatus, Nanos, Opcode, RawEid, Sge, Sqe,
    cmd::{Access, Mode, QueueState},
    counters::Counter,
    cqe::{CQE_LEN, owner_of},
    rqe::{self, Rqe, record},
    sqe::{SQE_WORDS_MAX, SqeTargetKind, control_len},
};
use urma_mem::sync::{AtomicBool, Ordering};
use urma_mem::{Blocks, HeldMemory, Pages, Region, procvm::ProcessMemory};

use urma_packet::{FurtherPorts, ROCE_PORT};

use crate::cfg::{DeviceCfg, RcWire};
use crate::context::{function::FunctionId, jfc::DeviceJfc, segment::NewSegment};
use crate::endpoint::Reception;
use crate::engine::core::DeviceCore;
use crate::engine::mail::{Handed, Mail};
use crate::exchange::{BoundTo, Connecting, Exchange, RecvSide, SendSide};
use crate::ports::{
    Interrupt, MemoryHost, PacketFormat, Ports, Route, SameHostParts, SharedExtent, SharedMemory,
    Wake,
};
use crate::share::{NODE_LEN, half_len};
use crate::transport::TRANSMIT_MAX;

pub(super) const TOKEN: u32 = 0x1234_5678;
/// Send queue of each node.
pub(super) const SENDER: u32 = 1500;
const JFC_DEPTH: usize = 256;
const ARENA_LEN: usize = 1 << 20;
pub(super) const RING_LEN: usize = 1 << 18;

/// Bytes of a packet that acknowledges and brings nothing: BTH, TPAETH and ICRC.
const ACK_LEN: usize = 24;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Ring,
    /// The same between processes that may read each other's memory.
    ReadableRing,
    Packets,
}

#[derive(Debug)]
pub(super) struct Quiet;

/// A same-host peer whose end shows before the host reports it.
#[derive(Debug, Default)]
pub(super) struct Line(pub(super) AtomicBool);

impl Wake for Line {
    fn wake(&self) {}

    fn is_gone(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}
impl Interrupt for Quiet {
    fn raise(&self, _vector: u16) {}
}
impl MemoryHost for Quiet {
    fn share(&self, _key: u32, _region: &Region) -> SharedMemory {
        SharedMemory::default()
    }
    fn unshare(&self, _key: u32) {}
}

struct Receiver {
    ring: Region,
    record: Region,
    posted: u32,
}

pub(super) struct Node {
    pub(super) core: DeviceCore,
    pub(super) exchange: Exchange,
    mail: Arc<Mail>,
    next_seq: u32,
    ends: BTreeMap<u32, (CqeStatus, u32)>,
    jfc: Arc<DeviceJfc>,
    cqes: Region,
    polled: usize,
    receivers: BTreeMap<u32, Receiver>,
    stopped: bool,
}

impl Node {
    /// Takes a datagram. Whether a step is due.
    pub(super) fn on_datagram(&mut self, now: Nanos, from: RawEid, bytes: &[u8]) -> bool {
        self.on_datagram_by(now, Route::direct(from), bytes)
    }

    /// The same by any route.
    pub(super) fn on_datagram_by(&mut self, now: Nanos, route: Route, bytes: &[u8]) -> bool {
        let mut by = Reception::new(&self.core.tables, now, route);
        if PacketFormat::of(bytes) == PacketFormat::Standard {
            return self.exchange.on_standard(&self.core, by, (ROCE_PORT, bytes));
        }
        let event = self.exchange.endpoint.on_datagram(&mut by, bytes);
        self.exchange.on_arrival(&self.core, by, event)
    }
}

pub(super) struct World {
    pub(super) nodes: [Node; 2],
    pub(super) now: Nanos,
    pub(super) tpn: u32,
    /// Arena of both nodes.
    pub(super) arena: Region,
    /// What each node wrote for the other one, on one host.
    pub(super) halves: Vec<Region>,
    /// Between the two, on one host.
    pub(super) line: Arc<Line>,
    /// Every so many packets one is lost; 0: none.
    pub(super) lose_every: u64,
    /// Whatever this node sends is lost.
    pub(super) is_mute: [bool; 2],
    /// Of what node 1 sends only bare acknowledgements arrive.
    pub(super) only_acks: bool,
    /// Addresses of ports that are pulled.
    pub(super) pulled: Vec<RawEid>,
    /// What is longer is lost on its way from each node (bytes of UDP payload).
    pub(super) longest: [usize; 2],
    /// The latest packets with the nodes that they went to, for those who look on.
    pub(super) seen: Option<VecDeque<(usize, Vec<u8>)>>,
    pub(super) sent: u64,
}

/// Packets that are kept for those who look on.
const SEEN_MAX: usize = 1024;

/// Runs a scenario over each carrier.
pub(super) fn on_both(scenario: impl Fn(&mut World)) {
    for kind in [Kind::Ring, Kind::Packets] {
        scenario(&mut World::new(kind));
    }
}

pub(super) const fn va(tid: u32) -> u64 {
    (tid as u64) << 32
}

pub(super) fn fill(region: &Region) {
    let bytes: Vec<u8> = (0..region.len()).map(|n| (n % 251) as u8 + 1).collect();
    region.write(0, &bytes).unwrap();
}

pub(super) fn bytes(region: &Region) -> Vec<u8> {
    let mut bytes = vec![0; region.len()];
    region.read(0, &mut bytes).unwrap();
    bytes
}

pub(super) fn assert_filled(region: &Region, len: usize) {
    let bytes = bytes(region);
    assert!(bytes.iter().take(len).enumerate().all(|(n, &byte)| byte == (n % 251) as u8 + 1));
}

pub(super) fn sum(region: &Region) -> u64 {
    bytes(region).into_iter().map(u64::from).sum()
}

impl Node {
    fn new(n: u8, mtu: u32, life: u64, ports: u8) -> Self {
        Self::of(n, mtu, life, (ports, RcWire::Urma))
    }

    fn of(n: u8, mtu: u32, life: u64, (ports, rc): (u8, RcWire)) -> Self {
        let address =
            |port| RawEid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 1 + port, 0, n]);
        let further: Vec<_> = (1..ports).map(|port| address(port).0).collect();
        let further = FurtherPorts::new(&further).unwrap();
        let cfg = DeviceCfg::new(address(0), life, u64::from(n) << 8 | life);
        // Tests say what leaves at once: nothing is paced.
        let congestion = urma_recovery::CongestionChoice::None;
        let cfg = DeviceCfg { ring_len: RING_LEN, mtu, rc, ports: further, congestion, ..cfg };
        let ports = Ports {
            interrupt: Arc::new(Quiet),
            memory: Arc::new(Quiet),
            node_region: Region::shared(NODE_LEN, Pages::Base).unwrap(),
            routes: None,
            nic: None,
        };
        let mut exchange = Exchange::new(&cfg);
        let mail = Arc::new(Mail::new(64));
        exchange.add_send(SendSide {
            owner: FunctionId::FIRST,
            id: SENDER,
            is_jetty: true,
            mode: Mode::Rm,
            mail: Arc::clone(&mail),
            rnr_retry: 7,
            err_timeout: 17,
            priority: 0,
        });
        let jfc = Arc::new(DeviceJfc::new(1));
        let cqes = Region::private(JFC_DEPTH * CQE_LEN).unwrap();
        let entries = Blocks::new(cqes.clone(), JFC_DEPTH.ilog2()).unwrap();
        jfc.open((FunctionId::FIRST, None), entries, false, None);
        Self {
            core: DeviceCore::new(cfg, ports),
            exchange,
            mail,
            next_seq: 0,
            ends: BTreeMap::new(),
            jfc,
            cqes,
            polled: 0,
            receivers: BTreeMap::new(),
            stopped: false,
        }
    }
}

/// The process of a node: this one.
fn process_of(node: &Node) -> ProcessMemory {
    let witness = node.core.tables.ports.node_region.sub(0, 40).unwrap();
    let addr = witness.addr() as u64;
    ProcessMemory::open(std::process::id(), addr, witness).unwrap()
}

/// Steps an exchange whose send queues no device wakes.
pub(super) fn step_exchange(exchange: &mut Exchange, core: &DeviceCore, now: Nanos) -> bool {
    let mut busy = exchange.begin_step(core, now);
    for _ in 0..4 {
        let round = exchange.full_round(core, now);
        let round = exchange.drain_ended().count() != 0 || round;
        busy |= round;
        if !round || !exchange.has_work() {
            break;
        }
    }
    busy
}

impl World {
    pub(super) fn new(kind: Kind) -> Self {
        Self::with_mtus(kind, [4096; 2])
    }

    /// Two nodes with so many ports each.
    pub(super) fn with_ports(ports: u8) -> Self {
        Self::with(Kind::Packets, [4096; 2], (ports, RcWire::Urma))
    }

    /// Two nodes, each with a path MTU of its own.
    pub(super) fn with_mtus(kind: Kind, mtus: [u32; 2]) -> Self {
        Self::with(kind, mtus, (1, RcWire::Urma))
    }

    /// Two nodes whose send queues are RC jetties of the standard opcodes, bound to each other.
    pub(super) fn standard(psns: [Option<[u32; 2]>; 2]) -> Self {
        let mut world = Self::with(Kind::Packets, [4096; 2], (1, RcWire::Roce));
        for (n, psns) in psns.into_iter().enumerate() {
            world.sender_of(n, Mode::Rc);
            world.receiver_of(n, SENDER, Mode::Rc);
            let to = BoundTo { tpn: world.tpn, remote_id: SENDER, psns };
            let Node { core, exchange, .. } = &mut world.nodes[n];
            assert!(exchange.bind(core, SENDER, Some(to)));
        }
        world
    }

    /// Two nodes on one host, which may read each other's process through the kernel.
    pub(super) fn of_readable_processes() -> Self {
        Self::with(Kind::ReadableRing, [4096; 2], (1, RcWire::Urma))
    }

    fn with(kind: Kind, mtus: [u32; 2], of: (u8, RcWire)) -> Self {
        let mut world = Self {
            nodes: [Node::of(1, mtus[0], 7, of), Node::of(2, mtus[1], 7, of)],
            pulled: Vec::new(),
            now: 1_000,
            line: Arc::default(),
            tpn: 0,
            halves: Vec::new(),
            arena: Region::private(ARENA_LEN).unwrap(),
            lose_every: 0,
            is_mute: [false; 2],
            only_acks: false,
            longest: [usize::MAX; 2],
            seen: None,
            sent: 0,
        };
        let eids = [world.eid(0), world.eid(1)];
        let [a, b] = &mut world.nodes;
        let now = world.now;
        assert_eq!(a.exchange.connect(&a.core, now, eids[1], Mode::Rm), Connecting::Pending);
        match kind {
            Kind::Packets => a.exchange.on_packet_peer(eids[1]),
            Kind::Ring | Kind::ReadableRing => {
                let halves =
                    [0, 1].map(|_| Region::shared(half_len(RING_LEN), Pages::Base).unwrap());
                let arena = &world.arena;
                let parts = |peer: &Node, mine: &Region, theirs: &Region| SameHostParts {
                    peer_node: peer.core.tables.ports.node_region.clone(),
                    peer_arena: arena.clone(),
                    my_half: mine.clone(),
                    peer_half: theirs.clone(),
                    wake: Arc::<Line>::clone(&world.line),
                    process: (kind == Kind::ReadableRing).then(|| process_of(peer)),
                    files: None,
                };
                let of_a = parts(b, &halves[0], &halves[1]);
                let of_b = parts(a, &halves[1], &halves[0]);
                a.exchange.on_same_host_peer(&a.core, now, eids[1], of_a);
                b.exchange.on_same_host_peer(&b.core, now, eids[0], of_b);
                world.halves = halves.to_vec();
            }
        }
        for _ in 0..100 {
            let [a, _] = &mut world.nodes;
            match a.exchange.connect(&a.core, world.now, eids[1], Mode::Rm) {
                Connecting::Pending => world.run_for(10_000),
                Connecting::Ready { tpn, .. } => {
                    world.tpn = tpn;
                    return world;
                }
                Connecting::Failed(why) => panic!("{why}"),
            }
        }
        panic!("no path");
    }

    pub(super) fn eid(&self, n: usize) -> RawEid {
        self.nodes[n].core.tables.cfg.eid
    }

    /// Address of a port.
    pub(super) fn address(&self, n: usize, port: u8) -> RawEid {
        self.nodes[n].core.tables.cfg.address(port)
    }

    pub(super) fn counter(&self, n: usize, counter: Counter) -> u64 {
        self.nodes[n].core.counter(counter)
    }

    /// Steps both nodes for so much virtual time.
    pub(super) fn run_for(&mut self, ns: Nanos) {
        let end = self.now + ns;
        while self.now < end {
            let mut busy = false;
            for node in self.nodes.iter_mut().filter(|node| !node.stopped) {
                node.exchange.take_mail_of(&node.core, self.now, SENDER);
                busy |= step_exchange(&mut node.exchange, &node.core, self.now);
                while let Some(ended) = node.mail.ended.pop() {
                    let again = node.ends.insert(ended.seq, (ended.status, ended.bytes));
                    assert!(again.is_none(), "ended twice");
                }
            }
            busy |= self.carry(0) | self.carry(1);
            let running = self.nodes.iter().filter(|node| !node.stopped);
            let deadlines = running.filter_map(|n| n.exchange.poll_deadline());
            let next =
                deadlines.min().unwrap_or(end).clamp(self.now + 500, end.max(self.now + 500));
            self.now = if busy { self.now + 500 } else { next };
        }
    }

    pub(super) fn carry(&mut self, from: usize) -> bool {
        let mut buf = vec![0; TRANSMIT_MAX];
        let mut busy = false;
        if self.nodes[from].stopped {
            return false;
        }
        loop {
            let Node { core, exchange, .. } = &mut self.nodes[from];
            let Some(sent) = exchange.poll_transmit(core, self.now, &mut buf) else { break };
            busy = true;
            self.sent += 1;
            if sent.len > self.longest[from] {
                continue;
            }
            if self.is_mute[from] || (self.only_acks && from == 1 && sent.len > ACK_LEN) {
                continue;
            }
            if self.lose_every != 0 && self.sent.is_multiple_of(self.lose_every) {
                continue;
            }
            if let Some(seen) = &mut self.seen {
                seen.push_back((1 - from, buf[..sent.len].to_vec()));
                if seen.len() > SEEN_MAX {
                    seen.pop_front();
                }
            }
            let source = self.address(from, sent.port);
            let port = (0..4).find(|port| self.address(1 - from, *port) == sent.to);
            let Some(port) = port.filter(|_| !self.pulled.contains(&source)) else { continue };
            let to = &mut self.nodes[1 - from];
            if !to.stopped && !self.pulled.contains(&sent.to) {
                to.on_datagram_by(self.now, Route { port, to: source }, &buf[..sent.len]);
            }
        }
        busy
    }

    pub(super) fn stop(&mut self, n: usize) {
        self.nodes[n].stopped = true;
    }

    /// Node `n` comes again: another life, which knows nothing.
    pub(super) fn restart(&mut self, n: usize) {
        let DeviceCfg { mtu, incarnation, ports, .. } = self.nodes[n].core.tables.cfg;
        self.nodes[n] = Node::new(n as u8 + 1, mtu, incarnation + 1, ports.len() as u8 + 1);
    }

    pub(super) fn go_on(&mut self, n: usize) {
        self.nodes[n].stopped = false;
    }

    /// A segment of which the first `shared` bytes lie at `offset` of the arena: others than `region` has, so
    /// that it shows which ones are read.
    pub(super) fn shared_segment(
        &mut self,
        n: usize,
        tid: u32,
        len: usize,
        (offset, shared): (usize, usize),
    ) -> Region {
        let region = Region::private(len).unwrap();
        let extent = SharedExtent { va: va(tid), len: shared as u64, offset: offset as u64 };
        let new = NewSegment {
            owner: FunctionId::FIRST,
            token_id: tid << 8,
            va: va(tid),
            region: region.clone(),
            memory: HeldMemory::plain(&region),
            access: Access::LOCAL_ONLY,
            token: Some(TOKEN),
            shared: true,
        };
        let shared = SharedMemory { extents: vec![extent], file: None };
        self.nodes[n].core.tables.segments.publish(new, &shared).unwrap();
        region
    }

    pub(super) fn segment(&mut self, n: usize, tid: u32, len: usize, access: Access) -> Region {
        let region = Region::private(len).unwrap();
        let new = NewSegment {
            owner: FunctionId::FIRST,
            token_id: tid << 8,
            va: va(tid),
            region: region.clone(),
            memory: HeldMemory::plain(&region),
            access,
            token: Some(TOKEN),
            shared: false,
        };
        self.nodes[n].core.tables.segments.publish(new, &SharedMemory::default()).unwrap();
        region
    }

    pub(super) fn receiver(&mut self, n: usize, id: u32) {
        self.receiver_of(n, id, Mode::Rm);
    }

    pub(super) fn receiver_of(&mut self, n: usize, id: u32, mode: Mode) {
        let node = &mut self.nodes[n];
        let ring = Region::private(64 * rqe::stride(1)).unwrap();
        let record = Region::private(record::LEN).unwrap();
        node.exchange.receives.add_ring(RecvSide {
            owner: FunctionId::FIRST,
            id,
            is_jetty: true,
            mode,
            cookie: 5,
            ring: ring.clone(),
            depth_log2: 6,
            max_sge: 1,
            record: record.clone(),
            port: node.jfc.port().unwrap(),
            min_rnr_timer: 12,
            token: Some(TOKEN),
        });
        node.receivers.insert(id, Receiver { ring, record, posted: 0 });
    }

    pub(super) fn receiver_inline(&mut self, n: usize, id: u32) {
        let node = &mut self.nodes[n];
        let entries = Blocks::new(node.cqes.clone(), JFC_DEPTH.ilog2()).unwrap();
        node.jfc.open((FunctionId::FIRST, None), entries, true, None);
        self.receiver(n, id);
    }

    pub(super) fn fail_receiver(&mut self, n: usize, id: u32) {
        let node = &mut self.nodes[n];
        node.exchange.set_recv_state(&node.core, id, QueueState::Error);
    }

    pub(super) fn post(&mut self, n: usize, id: u32, tid: u32, at: u64, len: usize) {
        let receiver = self.nodes[n].receivers.get_mut(&id).unwrap();
        let sge = Sge { len: len as u32, token_id: tid << 8, va: va(tid) + at };
        let words = Rqe::new(&[sge]).encode();
        let offset = (receiver.posted as usize % 64) * rqe::stride(1);
        receiver.ring.store_block(offset, &[words[0], words[1]]).unwrap();
        receiver.posted += 1;
        receiver.record.store_u32_release(record::RQ_PI, receiver.posted).unwrap();
    }

    pub(super) fn received(&mut self, n: usize) -> Option<Cqe> {
        let node = &mut self.nodes[n];
        let words = node.cqes.load_block(node.polled % JFC_DEPTH * CQE_LEN).unwrap();
        let pass = (node.polled / JFC_DEPTH).is_multiple_of(2);
        if owner_of(words[0]) != pass {
            return None;
        }
        node.polled += 1;
        Some(Cqe::decode(&words))
    }

    pub(super) fn to_jetty(&self, opcode: Opcode, id: u32, imm: u64) -> Sqe {
        Sqe {
            tpn: self.tpn,
            target_kind: SqeTargetKind::Jetty,
            target_id: id,
            token_en: true,
            token_value: TOKEN,
            imm,
            ..Sqe::new(opcode)
        }
    }

    pub(super) fn to_memory(&self, opcode: Opcode, tid: u32, at: u64) -> Sqe {
        Sqe {
            tpn: self.tpn,
            token_en: true,
            token_value: TOKEN,
            seg_token_id: tid << 8,
            remote_va: va(tid) + at,
            ..Sqe::new(opcode)
        }
    }

    /// Hands a request over as a send queue would; nothing is stepped.
    pub(super) fn hand(&mut self, n: usize, sqe: &Sqe, sges: &[(u32, u64, usize)]) -> u32 {
        let sqe = Sqe { tpn: self.tpn, sge_num: sges.len() as u8, ..*sqe };
        let mut words = [0; SQE_WORDS_MAX];
        sqe.encode(&mut words);
        let first = control_len(sqe.opcode) / 8;
        for (n, &(tid, at, len)) in sges.iter().enumerate() {
            let sge = Sge { len: len as u32, token_id: tid << 8, va: va(tid) + at };
            words[first + 2 * n..][..2].copy_from_slice(&sge.to_words());
        }
        let len = sges.iter().map(|&(.., len)| len as u32).sum();
        let node = &mut self.nodes[n];
        let seq = node.next_seq;
        node.next_seq += 1;
        node.mail.handed.push(Handed { seq, words, len, placed: false }).unwrap();
        seq
    }

    pub(super) fn send(&mut self, n: usize, sqe: &Sqe, sges: &[(u32, u64, usize)]) -> u32 {
        let seq = self.hand(n, sqe, sges);
        self.run_for(2_000);
        seq
    }

    pub(super) fn end_now(&self, n: usize, seq: u32) -> Option<(CqeStatus, u32)> {
        self.nodes[n].ends.get(&seq).copied()
    }

    /// The end of a request, within a second.
    pub(super) fn end_of(&mut self, n: usize, seq: u32) -> Option<(CqeStatus, u32)> {
        for _ in 0..1_000 {
            if let Some(end) = self.end_now(n, seq) {
                return Some(end);
            }
            self.run_for(1_000_000);
        }
        None
    }

    /// The node's JFC, for one more queue.
    pub(super) fn port(&self, n: usize) -> crate::context::jfc::JfcPort {
        self.nodes[n].jfc.port().unwrap()
    }

    /// Makes the node's send queue one of another mode, on a path of its own.
    pub(super) fn sender_of(&mut self, n: usize, mode: Mode) {
        let to = self.eid(1 - n);
        let now = self.now;
        let node = &mut self.nodes[n];
        let mail = Arc::clone(&node.mail);
        let side = SendSide {
            owner: FunctionId::FIRST,
            id: SENDER,
            is_jetty: true,
            mode,
            mail,
            rnr_retry: 7,
            err_timeout: 17,
            priority: 0,
        };
        node.exchange.add_send(side);
        let path = node.exchange.connect(&node.core, now, to, mode);
        let Connecting::Ready { tpn, .. } = path else { panic!("{path:?}") };
        self.tpn = tpn;
    }

    /// Gives the node's send queue another number of retries when a receiver is not ready.
    pub(super) fn retries(&mut self, n: usize, rnr_retry: u8) {
        let node = &mut self.nodes[n];
        node.exchange.senders.get_mut(SENDER).unwrap().side.rnr_retry = rnr_retry;
    }

    /// Gives the node's send queue another error timeout, of 4.096 us << `err_timeout`.
    pub(super) fn patience(&mut self, n: usize, err_timeout: u8) {
        let node = &mut self.nodes[n];
        node.exchange.senders.get_mut(SENDER).unwrap().side.err_timeout = err_timeout;
    }

    pub(super) fn purge(&mut self, n: usize) {
        self.nodes[n].mail.ask_purge();
    }
}
