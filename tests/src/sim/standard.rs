//! RC jetties that speak the standard opcodes, over links that lose, double, delay and damage packets: two nodes that
//! both send, under many seeds.
//!
//! Checked for each seed: requests end with success and in posting order; FETCH_ADDs find 0, 1, 2, ...; a READ finds what
//! the WRITE before it stored; messages arrive once, in order, with their bytes; in the end memory is what a model
//! holds. `URMA_SEEDS=5000` runs more seeds, from `URMA_FROM` on.
#![expect(clippy::cast_possible_truncation, reason = "lengths and slots are small constants")]

use std::collections::VecDeque;
use std::sync::Arc;

use ubcore_sim::RcWire;
use ubcore_sim::link::{FaultCfg, Rng};
use ubcore_sim::sim::{Fabric, FabricCfg, HostSharing};
use urma_core::{Completion, CrStatus, SendOp, SendWr, WrFlags};

use super::node::{Lane, Program, SLOT_LEN, SLOTS, area_offset, at};

const PAIRED: usize = Lane::Paired as usize;
/// Requests of each node, and how many at a time.
const REQUESTS: u64 = 60;
const DEPTH: u64 = 8;
/// Places of an area that WRITEs and READs use, behind the word that is counted in.
const PLACES: u64 = 4;
const PLACE_LEN: usize = 3000;
const FIRST: usize = 256;
/// Virtual time in which all is done.
const BOUND_NS: u64 = 120_000_000_000;

/// What a request does; a place and a length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Count,
    Send(usize),
    Write(u64, usize),
    Read(u64, usize),
}

/// Bytes of request `number` of node `node`.
fn pattern(node: usize, number: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng::new(number << 8 | node as u64);
    (0..len).map(|_| rng.below(256) as u8).collect()
}

/// One node and what it asked for.
struct Side {
    node: usize,
    program: Program,
    rng: Rng,
    outstanding: VecDeque<(u64, Kind)>,
    next: u64,
    /// FETCH_ADDs posted, and completed.
    counted: u64,
    found: u64,
    /// Bytes that the places at the peer hold.
    places: Vec<Vec<u8>>,
    /// READs: number and bytes that must be found.
    reads: VecDeque<(u64, Vec<u8>)>,
    /// Messages that the peer has not received.
    messages: VecDeque<Vec<u8>>,
}

impl Side {
    fn new(node: usize, mut program: Program, seed: u64) -> Self {
        program.pair(1 - node).expect("bound");
        for slot in Lane::Paired.receives() {
            assert_eq!(program.post_receive(Lane::Paired, slot, 0xee), Ok(true));
        }
        Self {
            node,
            program,
            rng: Rng::new(seed ^ (node as u64) << 32 ^ 0x50ce),
            outstanding: VecDeque::new(),
            next: 0,
            counted: 0,
            found: 0,
            places: vec![vec![0; PLACE_LEN]; PLACES as usize],
            reads: VecDeque::new(),
            messages: VecDeque::new(),
        }
    }

    fn is_done(&self) -> bool {
        self.next == REQUESTS && self.outstanding.is_empty() && self.messages.is_empty()
    }

    fn draw(&mut self) -> Kind {
        let len = 1 + self.rng.below(PLACE_LEN as u64) as usize;
        let place = self.rng.below(PLACES);
        match self.rng.below(4) {
            0 => Kind::Count,
            1 => Kind::Send(1 + self.rng.below(SLOT_LEN as u64) as usize),
            2 => Kind::Write(place, len),
            _ => Kind::Read(place, len),
        }
    }

    fn post(&mut self) {
        let (number, kind) = (self.next, self.draw());
        self.next += 1;
        let slot = (number % DEPTH) as usize;
        let bytes = match kind {
            Kind::Send(len) | Kind::Write(_, len) => pattern(self.node, number, len),
            Kind::Count | Kind::Read(..) => Vec::new(),
        };
        self.program.view.local.write(slot * SLOT_LEN, &bytes).expect("memory");
        match kind {
            Kind::Count => self.counted += 1,
            Kind::Send(_) => self.messages.push_back(bytes),
            Kind::Write(place, len) => self.places[place as usize][..len].copy_from_slice(&bytes),
            Kind::Read(place, len) => {
                self.reads.push_back((number, self.places[place as usize][..len].to_vec()));
            }
        }
        // A READ that is repeated fetches again: what is stored there waits for its end.
        let is_read = |place| {
            let of = |(_, kind): &(u64, Kind)| matches!(kind, Kind::Read(at, _) if *at == place);
            self.outstanding.iter().any(of)
        };
        let fence = matches!(kind, Kind::Write(place, _) if is_read(place));
        let word = area_offset(self.node, Lane::Paired);
        let offset = |place| word + FIRST + place as usize * PLACE_LEN;
        let Program { jetties, view, .. } = &mut self.program;
        let peer = view.peers[1 - self.node].as_ref().expect("imported");
        let local = |len| [view.sge(slot, 0, len)];
        let remote = |place| at(&peer.segment, offset(place));
        let mut post = |op| {
            let mut wr = SendWr::new(op, &peer.targets[PAIRED], number);
            wr.flags.set(WrFlags::FENCE, fence);
            jetties[PAIRED].post_send(&[wr]).expect("posted");
        };
        match kind {
            Kind::Count => {
                let (result, target) = (view.sge(slot, 0, 8), at(&peer.segment, word));
                post(SendOp::FetchAdd { result, target, value: 1 });
            }
            Kind::Send(len) => post(SendOp::Send { src: &local(len) }),
            Kind::Write(place, len) => {
                post(SendOp::Write { src: &local(len), dst: remote(place) });
            }
            Kind::Read(place, len) => post(SendOp::Read { src: remote(place), dst: &local(len) }),
        }
        self.outstanding.push_back((number, kind));
    }

    /// Takes what completed, and checks it.
    fn take(&mut self) {
        let mut found = [Completion::default(); 8];
        let count = self.program.jfcs[0].poll(&mut found).expect("a poll");
        for done in &found[..count] {
            let (number, kind) = self.outstanding.pop_front().expect("it was posted");
            assert_eq!((done.user_ctx, done.status), (number, CrStatus::Success), "{kind:?}");
            let slot = (number % DEPTH) as usize;
            match kind {
                Kind::Count => {
                    assert_eq!(self.program.view.slot_word(slot), Ok(self.found), "value before");
                    self.found += 1;
                }
                Kind::Read(_, len) => {
                    let (asked, wanted) = self.reads.pop_front().expect("a READ");
                    assert_eq!(asked, number);
                    let mut bytes = vec![0; len];
                    self.program.view.local.read(slot * SLOT_LEN, &mut bytes).expect("memory");
                    assert!(bytes == wanted, "READ {number} of {len} bytes");
                }
                Kind::Send(_) | Kind::Write(..) => {}
            }
        }
    }

    /// Takes messages of `peer`, and checks them.
    fn receive(&mut self, peer: &mut Self) {
        let mut found = [Completion::default(); 8];
        let count = self.program.jfcs[1].poll(&mut found).expect("a poll");
        for done in &found[..count] {
            assert_eq!(done.status, CrStatus::Success);
            let wanted = peer.messages.pop_front().expect("a message that was sent, once");
            let slot = done.user_ctx as usize;
            let mut bytes = vec![0; done.len as usize];
            self.program.view.local.read((SLOTS + slot) * SLOT_LEN, &mut bytes).expect("memory");
            assert!(bytes == wanted, "a message of {} bytes", wanted.len());
            assert_eq!(self.program.post_receive(Lane::Paired, slot, 0xee), Ok(true));
        }
    }

    /// The memory of `peer` holds what this node wrote.
    fn check(&self, peer: &Self) {
        let area = peer.program.view.area(self.node, Lane::Paired).expect("memory");
        let word = area.first_chunk().map(|word| u64::from_le_bytes(*word));
        assert_eq!(word, Some(self.counted), "counted");
        for (place, wanted) in self.places.iter().enumerate() {
            let from = FIRST + place * PLACE_LEN;
            assert!(area[from..from + PLACE_LEN] == wanted[..], "place {place}");
        }
    }
}

/// The links of a seed, and the path MTU of the connection.
fn world(seed: u64) -> FabricCfg {
    let mut rng = Rng::new(seed ^ 0x0ce_0ce);
    let mut cfg = FabricCfg::new(seed, 2, HostSharing::Packets);
    let mut ppm = |most| u32::try_from(rng.below(most)).unwrap_or(0);
    cfg.faults = FaultCfg {
        loss_ppm: ppm(30_000),
        duplicate_ppm: ppm(60_000),
        reorder_ppm: ppm(60_000),
        reorder_ns: 100_000,
        corrupt_ppm: ppm(20_000),
        jitter_ns: 10_000,
        delay_ns: 1_000 + u64::from(ppm(20_000)),
        ..FaultCfg::default()
    };
    let mtu = [None, Some(256), Some(4096)][rng.index(3)];
    for device in &mut cfg.devices {
        (device.rc, device.rc_mtu) = (RcWire::Roce, mtu);
    }
    cfg
}

fn run(seed: u64) {
    let fabric: Arc<Fabric> = Fabric::new(world(seed)).expect("memory");
    // Error timeout of 8.6 s: a repeat after 1.1 s.
    let open = |number| Program::open(&fabric, number, 2, 21).expect("a program");
    let mut programs = [open(0), open(1)];
    let faces = [programs[0].face(), programs[1].face()];
    for me in [0, 1] {
        programs[me].meet(me, 1 - me, &faces[1 - me]).expect("an import");
    }
    let [a, b] = programs;
    let (mut a, mut b) = (Side::new(0, a, seed), Side::new(1, b, seed));
    let bound = fabric.now() + BOUND_NS;
    while !a.is_done() || !b.is_done() {
        assert!(fabric.now() < bound, "{:?}, {:?}", a.outstanding, b.outstanding);
        for side in [&mut a, &mut b] {
            side.take();
            while side.next < REQUESTS && (side.outstanding.len() as u64) < DEPTH {
                side.post();
            }
        }
        a.receive(&mut b);
        b.receive(&mut a);
        fabric.step_nodes();
    }
    a.check(&b);
    b.check(&a);
    assert_eq!([a.found, b.found], [a.counted, b.counted]);
}

#[test]
fn jetties_of_the_standard_opcodes_are_exact_over_foul_links() {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let from = number("URMA_FROM").unwrap_or(0);
    for seed in from..from + number("URMA_SEEDS").unwrap_or(30) {
        let ran = std::panic::catch_unwind(|| run(seed));
        assert!(ran.is_ok(), "seed {seed}: URMA_FROM={seed} URMA_SEEDS=1 repeats it");
    }
}
