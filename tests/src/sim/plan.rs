//! What a seed makes of a world.
//!
//! *Owns*: the draw of nodes, paths, faults, chunk sizes and the amount of work. *Takes*: a seed
//! and the weather. *Gives*: a [`SimPlan`]. *Must not*: run anything.

use ubcore_sim::link::{Cut, FaultCfg, Outage, Rng, Router};
use ubcore_sim::sim::{FabricCfg, HostSharing};
use ubcore_sim::{CongestionChoice, ExpressLane, PortMode, Strategy};
use udma_abi::RawEid;
use urma_packet::FurtherPorts;

/// How bad the links are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Weather {
    /// One host: no link at all.
    SameHost,
    /// Packets over links that only delay.
    Fair,
    /// Packets that are lost, doubled, reordered and corrupted.
    Foul,
    /// Some peers on the same host, some behind a bad link.
    Mixed,
    /// Packets over links with everything that a wide network does: bursts of losses, tails of delay, truncated
    /// packets, directions and nodes that are cut off or clogged; until it is calm.
    Wild,
}

/// What the programs do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// Reads, writes and atomics: on one host all of it goes the direct path.
    OneSided,
    /// Those, messages, and writes that make a completion at the target.
    All,
}

/// A world and its work.
#[derive(Clone, Debug)]
pub struct SimPlan {
    /// Seed of every random choice of programs, links and faults.
    pub seed: u64,
    /// Configuration of the devices and the links between them.
    pub fabric: FabricCfg,
    /// Programs of the nodes and the troubles of the run.
    pub work: Work,
    /// Requests of each node.
    pub requests: u32,
    /// Most bytes of a request.
    pub len_max: u32,
    /// Chance that a node does not poll its queues in a step, in a million.
    pub lazy_ppm: u32,
    /// Chance that a node stops posting receives for a while, in a million.
    pub dry_ppm: u32,
    /// Chance that a jetty is stopped or deleted in a step, in a million.
    pub trouble_ppm: u32,
    /// Chance that a node takes back in a step what it lent to others, in a million.
    pub take_back_ppm: u32,
    /// Nodes that die and come back.
    pub kills: u32,
    /// They close, and their peers learn of it.
    pub are_kills_closes: bool,
    /// Chance that a node arms each JFC in a step, in a million.
    pub arm_ppm: u32,
    /// The same while completions are set aside by a flush or a delete, before any is polled.
    pub arm_aside_ppm: u32,
    /// Makes the programs choose otherwise in the same world.
    pub salt: u64,
    /// Times that a node is stopped and goes on.
    pub stops: u32,
}

/// Times that a port is pulled, the longest time between two of them, and the longest that it is.
const PULLS: usize = 64;
const PULL_GAP_NS: u64 = 20_000_000;
const PULLED_NS: u64 = 200_000_000;
/// Error timeout of queues (4.096 us << n) where nothing else is said: 0.5 s.
const ERR_TIMEOUT: u8 = 17;
/// Error timeout of queues whose peer is stopped: 17.2 s, longer than it is twice.
const LONG_ERR_TIMEOUT: u8 = 22;

impl SimPlan {
    /// The world of `seed` in the given weather, with the given work.
    #[must_use]
    pub fn new(seed: u64, weather: Weather, work: Work) -> Self {
        let mut rng = Rng::new(seed ^ 0x5eed_5eed);
        let paths = match weather {
            Weather::SameHost => HostSharing::SameHost,
            Weather::Fair | Weather::Foul | Weather::Wild => HostSharing::Packets,
            Weather::Mixed => HostSharing::Mixed,
        };
        let is_large = matches!(weather, Weather::Mixed | Weather::Wild);
        let nodes = 2 + rng.below(if is_large { 3 } else { 2 });
        let mut fabric = FabricCfg::new(seed, u8::try_from(nodes).unwrap_or(2), paths);
        if matches!(weather, Weather::Foul | Weather::Mixed) {
            fabric.faults = foul(&mut rng);
            fabric.faults.outages = outages(&mut rng, &fabric);
        }
        let mut take_back_ppm = 0;
        if weather == Weather::Wild {
            fabric.faults = wild(&mut rng);
            fabric.faults.outages = cuts(&mut rng, &fabric);
            take_back_ppm = pick(&mut rng, &[0, 5_000, 50_000]);
        }
        fabric.faults.delay_ns = 1_000 + rng.below(50_000);
        fabric.stall_ppm = pick(&mut rng, &[0, 100_000, 500_000]);
        fabric.sleep_ppm = pick(&mut rng, &[0, 10_000, 300_000]);
        fabric.tick_ns = u64::from(pick(&mut rng, &[100, 1_000, 20_000]));
        let chunk = pick(&mut rng, &[64, 512, 4096, 65536]);
        let mtu = pick(&mut rng, &[256, 1024, 4096]);
        let window = pick(&mut rng, &[4, 32, 256]);
        for device in &mut fabric.devices {
            device.direct_chunk = chunk as usize;
            device.step_bytes = chunk as usize * 2;
            device.step_requests = 1 + pick(&mut rng, &[0, 3, 31]);
            device.ring_len = 1 << 16;
            device.mtu = mtu;
            device.window_packets = window;
            // In half of the worlds the window spans more than may be on the path.
            device.path_packets = if seed.is_multiple_of(2) { window } else { window / 4 };
        }
        let len_max = pick(&mut rng, &[64, 3_000, 12_000]);
        let lazy_ppm = pick(&mut rng, &[0, 300_000, 800_000]);
        let mut plan = Self {
            seed,
            fabric,
            work,
            requests: 60,
            len_max,
            lazy_ppm,
            dry_ppm: 0,
            trouble_ppm: 0,
            take_back_ppm,
            kills: 0,
            are_kills_closes: false,
            arm_ppm: pick(&mut rng, &[200_000, 20_000]),
            arm_aside_ppm: pick(&mut rng, &[0, 900_000]),
            salt: 0,
            stops: 0,
        };
        if work == Work::All {
            plan.dry_ppm = pick(&mut rng, &[0, 0, 20_000]);
            plan.trouble_ppm = pick(&mut rng, &[0, 20_000, 200_000]);
        }
        set_strategies(&mut plan.fabric);
        set_congestion(&mut plan.fabric);
        for device in &mut plan.fabric.devices {
            device.lane = [ExpressLane::On, ExpressLane::Off][usize::from(rng.below(3) == 0)];
        }
        plan
    }

    /// The same with a station that sends anything from any address, and receives nothing.
    #[must_use]
    pub fn with_attacker(mut self) -> Self {
        self.fabric.attack_ppm = [20_000, 200_000][usize::from(self.seed % 2 == 1)];
        self
    }

    /// The same in a flood of packets from a peer's address (328,000 a second to each node) or from
    /// that of no node (428,000).
    #[must_use]
    pub fn with_flood(mut self) -> Self {
        self.fabric.flood_per_ms = [428, 328][usize::from(self.seed % 2 == 1)];
        self
    }

    /// The same with routers of different MTUs between the nodes, in each direction others. Each MTU changes
    /// a few times; some senders learn of it, for the others there is a black hole.
    #[must_use]
    pub fn with_routers(mut self) -> Self {
        let mut rng = Rng::new(self.seed ^ 0x0712_0712);
        let mtu = pick(&mut rng, &[1024, 4096, 8192]);
        self.fabric.devices.iter_mut().for_each(|device| device.mtu = mtu);
        self.len_max = pick(&mut rng, &[3_000, 12_000]);
        self.fabric.faults.routers = routers(&mut rng, &self.fabric);
        self
    }

    /// The same over paths of 2 to 8 ms there and back, with losses that repair packets make up for.
    #[must_use]
    pub fn over_long_paths(mut self) -> Self {
        let mut rng = Rng::new(self.seed ^ 0x0106_0a11);
        self.fabric.faults.delay_ns = 1_000_000 + rng.below(3_000_000);
        self.fabric.faults.loss_ppm = 10_000 + pick(&mut rng, &[0, 20_000, 40_000]);
        for device in &mut self.fabric.devices {
            device.strategy = Strategy::Knitting;
            device.mtu = 256;
            device.window_packets = 256;
            device.path_packets = device.path_packets.max(64);
        }
        self.len_max = 12_000;
        self
    }

    /// The same with two ports a node (one has a single port in some worlds), of which one at a time is pulled and
    /// joined again. Each node uses one at a time, or balances.
    #[must_use]
    pub fn with_ports(mut self) -> Self {
        self.fabric = self.fabric.with_ports(2);
        let mut rng = Rng::new(self.seed ^ 0x0907_0907);
        if self.seed.is_multiple_of(5) {
            // Its peers reach it by each of their ports.
            self.fabric.devices[0].ports = FurtherPorts::default();
        }
        for device in &mut self.fabric.devices {
            device.port_mode = [PortMode::ActiveBackup, PortMode::Balance][rng.index(2)];
        }
        let mut now = 0;
        let first = rng.index(2);
        for turn in 0..PULLS {
            // First and second ports by turns: nodes meet by their EIDs.
            let node = &self.fabric.devices[rng.index(self.fabric.devices.len())];
            let address = [Some(node.eid), node.ports.get(0).map(RawEid)][(first + turn) % 2];
            let from = now + rng.below(PULL_GAP_NS);
            now = from + 1 + rng.below(PULLED_NS);
            let pull = |address| Outage::of(Cut::Address(address), from, now);
            self.fabric.faults.outages.extend(address.map(pull));
        }
        self
    }

    /// The same with one node that is stopped: for less than the error timeout of the others, and
    /// for longer than its own.
    #[must_use]
    pub fn with_stops(mut self) -> Self {
        self.stops = 1 + u32::from(self.seed.is_multiple_of(3));
        self
    }

    /// The node that is stopped.
    pub(super) fn stopped(&self) -> Option<usize> {
        let count = u64::try_from(self.fabric.devices.len()).unwrap_or(1);
        let node = usize::try_from(self.seed % count.max(1)).unwrap_or(0);
        (self.stops > 0).then_some(node)
    }

    /// Error timeout of the queues of `node`.
    pub(super) fn err_timeout(&self, node: usize) -> u8 {
        match self.stopped() {
            Some(stopped) if stopped != node => LONG_ERR_TIMEOUT,
            _ => ERR_TIMEOUT,
        }
    }

    /// The same with nodes that close and come back.
    #[must_use]
    pub fn with_closes(self) -> Self {
        Self { are_kills_closes: true, ..self.with_kills() }
    }

    /// The same with nodes that die and come back.
    #[must_use]
    pub fn with_kills(mut self) -> Self {
        self.kills = 1 + u32::from(self.seed.is_multiple_of(3));
        self
    }
}

/// One strategy in all nodes of a world, each of them in a quarter of the worlds; in a few worlds each node has its own.
fn set_strategies(fabric: &mut FabricCfg) {
    let mut rng = Rng::new(fabric.seed ^ 0x0bad_10ad);
    let (one, is_mixed) = (Strategy::ALL[rng.index(Strategy::ALL.len())], rng.below(8) == 0);
    for device in &mut fabric.devices {
        device.strategy =
            if is_mixed { Strategy::ALL[rng.index(Strategy::ALL.len())] } else { one };
    }
}

/// Half of the worlds have no congestion control; in the others each node has its own.
fn set_congestion(fabric: &mut FabricCfg) {
    let mut rng = Rng::new(fabric.seed ^ 0x0c0_19e5);
    if rng.below(2) == 0 {
        return;
    }
    for device in &mut fabric.devices {
        device.congestion = CongestionChoice::ALL[rng.index(3)];
    }
}

fn foul(rng: &mut Rng) -> FaultCfg {
    let mut ppm = |most| u32::try_from(rng.below(most)).unwrap_or(0);
    FaultCfg {
        loss_ppm: ppm(60_000),
        duplicate_ppm: ppm(60_000),
        reorder_ppm: ppm(100_000),
        reorder_ns: 200_000,
        corrupt_ppm: ppm(30_000),
        jitter_ns: 20_000,
        ..FaultCfg::default()
    }
}

/// Short times in which a pair, or every node, is cut off.
fn outages(rng: &mut Rng, fabric: &FabricCfg) -> Vec<Outage> {
    let eids: Vec<_> = fabric.devices.iter().map(|device| device.eid).collect();
    let draw = |_| {
        let from = rng.below(30_000_000);
        let until = from + rng.below(10_000_000);
        let (a, b) = (eids[rng.index(eids.len())], eids[rng.index(eids.len())]);
        Outage::of(if a == b { Cut::All } else { Cut::Between(a, b) }, from, until)
    };
    (0..fabric.seed % 3).map(draw).collect()
}

/// Each kind of fault in about half of the worlds: rare ones show beside few others.
fn wild(rng: &mut Rng) -> FaultCfg {
    let mut ppm = |most| u32::try_from(rng.below(2) * rng.below(most)).unwrap_or(0);
    FaultCfg {
        loss_ppm: ppm(50_000),
        burst_ppm: ppm(5_000),
        duplicate_ppm: ppm(50_000),
        reorder_ppm: ppm(50_000),
        reorder_ns: 300_000,
        corrupt_ppm: ppm(20_000),
        truncate_ppm: ppm(20_000),
        tail_ppm: ppm(50_000),
        tail_ns: 8_000_000,
        jitter_ns: u64::from(ppm(40_000)),
        burst_len: 1 + pick(rng, &[3, 10, 60]),
        calm_from: CALM_FROM_NS,
        ..FaultCfg::default()
    }
}

/// Directions, nodes and pairs that are cut off or clogged for a while, and one time in which some nodes clog one after
/// the other and come free in another order (as in FoundationDB's simulation).
fn cuts(rng: &mut Rng, fabric: &FabricCfg) -> Vec<Outage> {
    let eids: Vec<_> = fabric.devices.iter().map(|device| device.eid).collect();
    let mut all = Vec::new();
    for _ in 0..rng.below(4) {
        let from = rng.below(CALM_FROM_NS);
        let first = rng.index(eids.len());
        let (a, b) = (eids[first], eids[(first + 1 + rng.index(eids.len() - 1)) % eids.len()]);
        let cut = [Cut::Between(a, b), Cut::OneWay(a, b), Cut::Address(a)][rng.index(3)];
        let until = (from + rng.below(CUT_NS)).min(CALM_FROM_NS);
        all.push(Outage { is_clog: rng.below(2) == 0, ..Outage::of(cut, from, until) });
    }
    if rng.below(2) == 0 {
        let begin = rng.below(CALM_FROM_NS / 2);
        for eid in eids {
            if rng.below(3) == 0 {
                continue;
            }
            let from = begin + rng.below(CUT_NS);
            let until = begin + CUT_NS + rng.below(CUT_NS);
            all.push(Outage { is_clog: true, ..Outage::of(Cut::Address(eid), from, until) });
        }
    }
    all
}

/// When wild weather ends, in ns; most runs last a few times as long.
const CALM_FROM_NS: u64 = 60_000_000;
/// Longest time that something is cut off or clogged in it, in ns.
const CUT_NS: u64 = 15_000_000;

/// MTUs of routers; the least is that of packets which pass every path.
const MTUS: [u32; 8] = [9000, 4500, 1500, 1500, 1492, 1280, 576, 368];
/// Longest time for which a router has the same MTU, until the last change, in ns.
const CHANGE_NS: u64 = 150_000_000;

/// For each direction a router and its MTUs, one after the other.
fn routers(rng: &mut Rng, fabric: &FabricCfg) -> Vec<Router> {
    let eids: Vec<_> = fabric.devices.iter().map(|device| device.eid).collect();
    let ways = eids.iter().flat_map(|from| eids.iter().map(move |to| (*from, *to)));
    let mut routers = Vec::new();
    for way in ways.filter(|(from, to)| from != to) {
        let (mut from, is_reported) = (0, rng.chance_ppm(400_000));
        for left in (0..=rng.below(4)).rev() {
            // Most runs last a few milliseconds, or until a narrow path is found.
            let stays = CHANGE_NS >> rng.below(8);
            let until = if left == 0 { u64::MAX } else { from + rng.below(stays) };
            let mtu = pick(rng, &MTUS) as usize;
            routers.push(Router { from, until, way, mtu, is_reported });
            from = until;
        }
    }
    routers
}

fn pick(rng: &mut Rng, from: &[u32]) -> u32 {
    from[rng.index(from.len())]
}
