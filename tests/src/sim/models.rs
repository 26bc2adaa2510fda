//! The models of the NIC in virtual time: the same work with and without them has the same results.
//!
//! *Owns*: work that does not depend on time, what it leaves. *Takes*: a seed. *Gives*: completions, bytes. *Must not*: compare
//! times.

use std::sync::Arc;

use ubcore_sim::link::Rng;
use ubcore_sim::nic::ModelMode;
use ubcore_sim::sim::{Fabric, FabricCfg, HostSharing};
use urma_core::{Completion, CrStatus, LocalSge, SendOp, SendWr};
use urma_nic::{NicCfg, PacketEngineCfg};

use super::area::{AREA_LEN, WORDS};
use super::node::{Lane, Program, SLOT_LEN, SLOTS, area_offset, at};

/// Requests of each jetty, all posted at once.
const REQUESTS: usize = 8;
/// Most bytes of a request.
const LEN_MAX: usize = 8_000;
/// Kind of a request that reads.
const READ: u64 = 2;
/// The first kind that sends; those behind it send as well.
const SEND: u64 = 4;
/// Jetties that work: RM and RC.
const LANES: [Lane; 2] = [Lane::Main, Lane::Paired];
/// Longest virtual time of a run, in ns.
const BOUND_NS: u64 = 60_000_000_000;

/// What a run leaves: it must not depend on time.
#[derive(PartialEq, Eq, Debug, Default)]
struct Results {
    /// Of each node and jetty: number, status and length of each request that ended, in order.
    requests: Vec<Vec<(u64, CrStatus, u32)>>,
    /// The same of what it received: sender, bytes.
    messages: Vec<Vec<(u32, Vec<u8>)>>,
    /// Memory that was written by others, and what was read.
    memory: Vec<Vec<u8>>,
}

impl Results {
    /// Fails with what differs.
    fn compare(&self, other: &Self, what: &str) {
        assert_eq!(self.requests, other.requests, "{what}: completions of requests");
        let short = |all: &Self| -> Vec<Vec<(u32, usize, Vec<u8>)>> {
            let of = |(from, bytes): &(u32, Vec<u8>)| {
                (*from, bytes.len(), bytes.iter().copied().take(8).collect())
            };
            all.messages.iter().map(|messages| messages.iter().map(of).collect()).collect()
        };
        assert_eq!(short(self), short(other), "{what}: messages");
        assert!(self.messages == other.messages, "{what}: bytes of messages");
        for (number, (one, another)) in self.memory.iter().zip(&other.memory).enumerate() {
            let differs = one.iter().zip(another).position(|(a, b)| a != b);
            assert_eq!(differs, None, "{what}: memory {number}");
        }
    }
}

/// A run with its results, and sums of counters.
#[derive(Debug)]
struct Outcome {
    results: Results,
    took_ns: u64,
    lookups: u64,
    packets: u64,
}

/// What one request of the script does.
#[derive(Clone, Debug)]
struct Scripted {
    kind: u64,
    bytes: Vec<u8>,
    offset: usize,
    word: usize,
}

fn scripted(rng: &mut Rng) -> Scripted {
    let len = [8, 100, 3000, LEN_MAX][rng.index(4)];
    let len = 1 + rng.index(len);
    let mut bytes = vec![0; len];
    rng.fill(&mut bytes);
    let kind = rng.below(6);
    // What is read is never written: a READ may bring what a request behind it stores.
    let from = if kind == READ { AREA_LEN / 2 } else { WORDS * 8 };
    let offset = from + rng.index(AREA_LEN / 2 - WORDS * 8 - len + 1);
    Scripted { kind, bytes, offset, word: rng.index(WORDS) }
}

fn post(program: &mut Program, lane: Lane, (slot, number): (usize, u64), what: &Scripted) {
    program.view.local.write(slot * SLOT_LEN, &what.bytes).expect("inside");
    let (me, other) = (usize::from(program.view.peers[0].is_some()), program.view.peers.len() - 1);
    let other = if me == 1 { 0 } else { other };
    let peer = program.view.peers[other].as_ref().expect("imported");
    let len = what.bytes.len();
    // In two pieces where there are several bytes: they are joined.
    let halves =
        [program.view.sge(slot, 0, len / 2), program.view.sge(slot, len / 2, len - len / 2)];
    let src: &[LocalSge<'_>] = if len > 1 { &halves } else { &halves[1..] };
    let here = area_offset(me, lane);
    let dst = at(&peer.segment, here + what.offset);
    let word = at(&peer.segment, here + what.word * 8);
    let result = program.view.sge(slot, 0, 8);
    let op = match what.kind {
        0 | 1 => SendOp::Write { src, dst },
        READ => SendOp::Read { dst: src, src: dst },
        3 => SendOp::FetchAdd { result, target: word, value: number },
        _ => SendOp::Send { src },
    };
    let wr = SendWr::new(op, &peer.targets[lane as usize], number);
    program.jetties[lane as usize].post_send(&[wr]).expect("posted");
}

/// Two nodes that post all their work, of which each request has a slot and each jetty an area of its own.
fn run(seed: u64, paths: HostSharing, models: NicCfg) -> Outcome {
    let mut rng = Rng::new(seed);
    let mut cfg = FabricCfg::new(seed, 2, paths);
    if paths == HostSharing::Packets && seed % 2 == 1 {
        (cfg.faults.loss_ppm, cfg.faults.duplicate_ppm, cfg.faults.reorder_ppm) =
            (20_000, 10_000, 30_000);
        cfg.faults.reorder_ns = 20_000;
    }
    let mtu = [256, 1024, 4096][rng.index(3)];
    for device in &mut cfg.devices {
        (device.mtu, device.ring_len) = (mtu, 1 << 16);
    }
    cfg.models = Some(Arc::new(models));
    let fabric = Fabric::new(cfg).expect("memory");
    let open = |number| Program::open(&fabric, number, 2, 22).expect("a program");
    let mut programs = [open(0), open(1)];
    let faces = [programs[0].face(), programs[1].face()];
    for me in [0, 1] {
        programs[me].meet(me, 1 - me, &faces[1 - me]).expect("an import");
    }
    for me in [0, 1] {
        programs[me].pair(1 - me).expect("bound");
    }
    let started = fabric.now();
    let mut results = Results::default();
    for program in &programs {
        let mut area = vec![0; 2 * Lane::WITH_AREA * AREA_LEN];
        rng.fill(&mut area);
        program.view.area.write(0, &area).expect("inside");
    }
    let mut sends = 0;
    for program in &mut programs {
        for lane in LANES {
            lane.receives()
                .for_each(|slot| assert_eq!(program.post_receive(lane, slot, 0), Ok(true)));
        }
        for (lane, slot) in LANES.into_iter().flat_map(|lane| (0..REQUESTS).map(move |n| (lane, n)))
        {
            let number = (lane as usize * REQUESTS + slot) as u64;
            let what = scripted(&mut rng);
            sends += usize::from(what.kind >= SEND);
            post(program, lane, (lane as usize * REQUESTS + slot, number), &what);
        }
    }
    finish(&fabric, &mut programs, sends, &mut results);
    let sum = |name| {
        let all = (0..2).flat_map(|node| fabric.device(node).counters());
        all.filter(|(known, _)| *known == name).map(|(_, value)| value).sum()
    };
    Outcome {
        results,
        took_ns: fabric.now() - started,
        lookups: sum("context_accesses"),
        packets: sum("engine_packets"),
    }
}

/// Polls until all requests ended, and the messages of all `sends` were received.
fn finish(fabric: &Arc<Fabric>, programs: &mut [Program; 2], sends: usize, results: &mut Results) {
    let all = 2 * LANES.len() * REQUESTS;
    results.requests.resize(8, Vec::new());
    results.messages.resize(8, Vec::new());
    let (mut ended, mut received, until) = (0, 0, fabric.now() + BOUND_NS);
    let mut found = [Completion::default(); 16];
    while ended < all || received < sends {
        assert!(
            fabric.now() < until,
            "{ended} of {all} requests ended, {received} of {sends} messages: {results:?}"
        );
        for (node, program) in programs.iter_mut().enumerate() {
            for jfc in [1, 0] {
                let count = program.jfcs[jfc].poll(&mut found).expect("a poll");
                for one in &found[..count] {
                    let lane = Lane::of(one.queue_ctx).expect("a jetty") as usize;
                    if jfc == 0 {
                        ended += 1;
                        results.requests[node * 4 + lane].push((one.user_ctx, one.status, one.len));
                        continue;
                    }
                    received += 1;
                    let slot = SLOTS + usize::try_from(one.user_ctx).expect("a slot");
                    let mut bytes = vec![0; one.len as usize];
                    program.view.local.read(slot * SLOT_LEN, &mut bytes).expect("inside");
                    results.messages[node * 4 + lane].push((one.remote.id, bytes));
                }
            }
        }
        fabric.step_nodes();
    }
    for program in programs {
        let mut bytes = vec![0; 2 * Lane::WITH_AREA * AREA_LEN];
        program.view.area.read(0, &mut bytes).expect("inside");
        results.memory.push(bytes);
        let mut bytes = vec![0; SLOTS * SLOT_LEN];
        program.view.local.read(0, &mut bytes).expect("inside");
        results.memory.push(bytes);
    }
}

/// Both models in this mode.
fn both(mode: ModelMode) -> NicCfg {
    NicCfg { contexts: mode, packet_engine: mode, ..NicCfg::default() }
}

/// At 1 MHz each packet of 64 beats takes longer than the whole run without the engine.
#[test]
fn packets_wait_for_the_cycles_of_a_slow_engine() {
    let off = run(0, HostSharing::Packets, NicCfg::default());
    let engine = PacketEngineCfg { mhz: 1, ..PacketEngineCfg::default() };
    let models = NicCfg { packet_engine: ModelMode::Time, engine, ..NicCfg::default() };
    let slow = run(0, HostSharing::Packets, models);
    assert!(off.results == slow.results);
    assert!(slow.took_ns > 2 * off.took_ns, "{} ns, {} ns", slow.took_ns, off.took_ns);
    // No packet is faster than its beats and its header, of 1 us each.
    assert!(
        slow.took_ns > slow.packets / 2 * 2_000,
        "{} ns, {} packets",
        slow.took_ns,
        slow.packets
    );
}

/// With `count` and with `time`, all that a program sees is what it sees without them: bytes, their order, completions.
/// `URMA_SEEDS` gives another number of seeds.
#[test]
fn results_are_the_same_in_all_modes_of_the_models() {
    let number = std::env::var("URMA_SEEDS").ok().and_then(|text| text.parse().ok());
    let (mut waited, mut lookups, mut packets) = (0, 0, 0);
    for seed in 0..number.unwrap_or(16) {
        for paths in [HostSharing::SameHost, HostSharing::Packets] {
            let off = run(seed, paths, NicCfg::default());
            assert_eq!((off.lookups, off.packets), (0, 0));
            assert!(
                off.results.requests.iter().flatten().all(|(_, status, _)| status.is_success())
            );
            let count = run(seed, paths, both(ModelMode::Count));
            let time = run(seed, paths, both(ModelMode::Time));
            off.results.compare(&count.results, &format!("{paths:?}, seed {seed}: count"));
            off.results.compare(&time.results, &format!("{paths:?}, seed {seed}: time"));
            waited += u64::from(time.took_ns > off.took_ns);
            lookups += time.lookups.min(count.lookups);
            packets += time.packets.min(count.packets);
        }
    }
    println!(
        "{waited} runs took longer with time, {lookups} lookups, {packets} packets of the model"
    );
    assert!(waited > 0 && lookups > 0 && packets > 0);
}
