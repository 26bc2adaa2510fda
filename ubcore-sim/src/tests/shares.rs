//! Functions that share a device: what each one gets of a round.

use std::sync::Arc;

use udma_abi::{Opcode, Sqe, slots::SlotDoorbell};
use urma_mem::{Region, doorbells::RungSlot};

use super::{ARENA, Bench, BenchJfc, BenchQueue, BenchSeg, Raises, on_seg, pair};
use crate::device::{FunctionCfg, FunctionQuota};

/// A served function whose queues always have work.
struct Sharer {
    bench: Bench,
    jfc: BenchJfc,
    queues: Vec<BenchQueue>,
    seg: BenchSeg,
    tpn: u32,
    /// Bytes of each request.
    len: u32,
    /// Requests that are open, of all queues.
    open: usize,
    /// Bytes that were written.
    bytes: u64,
}

impl Sharer {
    fn of(owner: &Bench, queues: usize, len: u32) -> Self {
        let raises = Arc::new(Raises::default());
        let cfg = FunctionCfg { uasid: 1000, quota: FunctionQuota::NONE };
        let function = owner.dev.add_function(cfg, Arc::<Raises>::clone(&raises)).unwrap();
        let arena = Region::private(ARENA).unwrap();
        let mut bench = Bench::over(Arc::clone(&owner.dev), function, (raises, arena));
        let jfc = bench.jfc(10);
        let queues = (0..queues).map(|_| bench.jetty(8, &jfc, |_| {})).collect();
        let (seg, tpn) = (bench.seg(4 << 20), bench.connect(bench.eid()));
        Self { bench, jfc, queues, seg, tpn, len, open: 0, bytes: 0 }
    }

    /// Takes what completed, and keeps `depth` requests open, for each of which it rings.
    fn turn(&mut self, depth: usize) {
        while self.bench.poll(&mut self.jfc).is_some() {
            self.open -= 1;
            self.bytes += u64::from(self.len);
        }
        while self.open < depth {
            let at = self.open % self.queues.len();
            let write = on_seg(Opcode::Write, self.tpn, &self.seg, 2 << 20);
            let write = Sqe { sge_num: 1, ..write };
            let tail = self.seg.sge(0, self.len).to_words();
            self.bench.put(&mut self.queues[at], write, &tail);
            let (id, pi) = (self.queues[at].id, self.queues[at].pi);
            let value = SlotDoorbell::Queue { id, pi }.encode();
            let rung = RungSlot { slot: at, value, count: 0, detail: None };
            self.bench.dev.ring_slot(|| 0, &self.bench.function, rung);
            self.open += 1;
        }
    }
}

/// Bytes of each of several functions after so many rounds, as queues and length of requests say.
fn shares(functions: &[(usize, u32)], rounds: u64) -> Vec<u64> {
    let (owner, _) = pair();
    let mut all: Vec<_> =
        functions.iter().map(|(queues, len)| Sharer::of(&owner, *queues, *len)).collect();
    for round in 0..rounds {
        for one in &mut all {
            one.turn(128);
        }
        owner.dev.step(round * 1000);
    }
    all.iter().map(|one| one.bytes).collect()
}

fn assert_fair(shares: &[u64]) {
    let mean = shares.iter().sum::<u64>() / shares.len() as u64;
    assert!(mean > 0 && shares.iter().all(|share| share.abs_diff(mean) * 10 <= mean), "{shares:?}");
}

#[test]
fn functions_with_work_have_equal_shares_whatever_queues_they_have() {
    // Short requests, of which a step starts a number; long ones, of which it copies so many bytes.
    for len in [64, 8 << 10, 64 << 10, 1 << 20] {
        assert_fair(&shares(&[(5, len), (1, len), (2, len), (1, len)], 200));
    }
}

#[test]
fn functions_with_long_requests_have_no_more_than_those_with_shorter_ones() {
    assert_fair(&shares(&[(1, 1 << 20), (1, 64 << 10), (1, 256 << 10), (1, 16 << 10)], 200));
}

#[test]
fn a_function_alone_has_long_steps() {
    let alone = shares(&[(4, 64 << 10)], 20);
    let shared = shares(&[(4, 64 << 10), (4, 64 << 10)], 20);
    assert!(alone[0] > 4 * shared[0], "{alone:?} {shared:?}");
}

#[test]
fn work_that_a_step_leaves_is_done_by_later_ones() {
    for len in [64, 8 << 10, 64 << 10, 256 << 10, 1 << 20] {
        let (owner, _) = pair();
        let mut all = [Sharer::of(&owner, 2, len), Sharer::of(&owner, 1, len)];
        all.iter_mut().for_each(|one| one.turn(128));
        for _ in 0..1024 {
            owner.dev.step(0);
        }
        for one in &mut all {
            one.turn(0);
            assert_eq!(one.open, 0, "{len}");
        }
    }
}
