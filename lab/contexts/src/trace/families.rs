//! Sixteen families of traces beside the four synthetic ones: phases, loops, scans, drift, sessions.
//!
//! - owns: generators, exact to the bit. takes: a name, a seed. gives: a trace.
//! - must not: draw from anything but its seed. Rules of our policy are chosen on half of them only (`is_held_out`).

use std::collections::VecDeque;

use super::{HandleTrace, TraceError};
use crate::handle::SplitMix64;

/// Accesses of a trace.
const ACCESSES: usize = 200_000;
/// A prime number of handles: `rank * a + b` modulo it is a permutation of the ranks.
const HANDLES: u64 = 5003;
/// Handles from here on are used by scans, sessions and queues, each of a few accesses.
const FRESH: u32 = 1 << 20;

/// A family of traces by name.
#[derive(Clone, Copy, Debug)]
pub struct TraceFamily {
    name: &'static str,
    held_out: bool,
    generate: fn(&mut FamilyWriter),
}

/// Every family: first those on which rules may be chosen.
const FAMILIES: [TraceFamily; 16] = [
    family("phases", phases),
    family("loop-zipf", loop_zipf),
    family("scan-zipf", scan_zipf),
    family("correlated", correlated),
    family("drift", drift),
    family("stack", stack),
    family("flows-zipf", flows_zipf),
    family("churn", churn),
    held_out("jumps", jumps),
    held_out("two-loops", two_loops),
    held_out("scan-twice", scan_twice),
    held_out("sessions", sessions),
    held_out("changing-skew", changing_skew),
    held_out("tree", tree),
    held_out("pipes", pipes),
    held_out("zipf-bursts", zipf_bursts),
];

const fn family(name: &'static str, generate: fn(&mut FamilyWriter)) -> TraceFamily {
    TraceFamily { name, held_out: false, generate }
}

const fn held_out(name: &'static str, generate: fn(&mut FamilyWriter)) -> TraceFamily {
    TraceFamily { name, held_out: true, generate }
}

impl TraceFamily {
    /// All families, those held out last.
    #[must_use]
    pub const fn all() -> &'static [Self] {
        &FAMILIES
    }

    /// Name on the command line.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Whether no rule of our policy was chosen on it.
    #[must_use]
    pub const fn is_held_out(&self) -> bool {
        self.held_out
    }

    /// The family of a name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        FAMILIES.iter().find(|family| family.name == name)
    }

    /// The trace of a seed: 200,000 accesses.
    pub fn generate(&self, seed: u64) -> Result<HandleTrace, TraceError> {
        let mut writer =
            FamilyWriter { random: SplitMix64(seed), handles: Vec::new(), fresh: FRESH };
        (self.generate)(&mut writer);
        writer.handles.truncate(ACCESSES);
        HandleTrace::new(writer.handles)
    }
}

/// Accesses so far, and what they are drawn from.
struct FamilyWriter {
    random: SplitMix64,
    handles: Vec<u32>,
    /// The next handle that was never used.
    fresh: u32,
}

impl FamilyWriter {
    /// Whether accesses are missing; `None` ends a generator.
    fn more(&self) -> Option<usize> {
        (self.handles.len() < ACCESSES).then_some(self.handles.len())
    }

    #[expect(clippy::cast_possible_truncation, reason = "a number below 2^32")]
    fn below(&mut self, bound: u64) -> u32 {
        self.random.below(bound) as u32
    }

    fn push(&mut self, handle: u32) {
        self.handles.push(handle);
    }

    fn fresh(&mut self) -> u32 {
        self.fresh += 1;
        self.fresh
    }

    /// Index of the running sum that a draw falls on.
    fn rank(&mut self, sums: &[f64]) -> u64 {
        let drawn = (self.random.next() >> 11) as f64 / 9_007_199_254_740_992.0;
        let total = sums.last().copied().unwrap_or(0.0);
        sums.partition_point(|sum| *sum <= drawn * total) as u64
    }
}

/// Running sums of the weights `1 / rank^skew`.
fn zipf(handles: u64, skew: f64) -> Vec<f64> {
    let weights = (1..=handles).map(|rank| (rank as f64).powf(-skew));
    weights
        .scan(0.0, |sum, weight| {
            *sum += weight;
            Some(*sum)
        })
        .collect()
}

const fn permuted(rank: u64, phase: u64) -> u32 {
    ((rank * (2 * phase + 37) + 911 * phase) % HANDLES) as u32
}

/// Zipf distribution whose ranks belong to other handles every 20,000 accesses.
fn phases(to: &mut FamilyWriter) {
    let sums = zipf(HANDLES, 0.9);
    while let Some(at) = to.more() {
        let rank = to.rank(&sums);
        to.push(permuted(rank, at as u64 / 20_000));
    }
}

/// Half of the accesses go round 750 handles, half follow a Zipf distribution.
fn loop_zipf(to: &mut FamilyWriter) {
    let sums = zipf(HANDLES, 0.9);
    let mut next = 0;
    while to.more().is_some() {
        if to.below(2) == 0 {
            next = (next + 1) % 750;
            to.push(FRESH + next);
        } else {
            let rank = to.rank(&sums);
            to.push(permuted(rank, 0));
        }
    }
}

/// Zipf distribution, with 1,000 handles in a row every 5,000 accesses that are never used again.
fn scan_zipf(to: &mut FamilyWriter) {
    let sums = zipf(HANDLES, 0.99);
    while to.more().is_some() {
        for _ in 0..4_000 {
            let rank = to.rank(&sums);
            to.push(permuted(rank, 0));
        }
        for _ in 0..1_000 {
            let handle = to.fresh();
            to.push(handle);
        }
    }
}

/// New handles with up to three uses close together and none later, among a Zipf distribution.
fn correlated(to: &mut FamilyWriter) {
    let sums = zipf(3_001, 0.9);
    let mut soon = VecDeque::new();
    while to.more().is_some() {
        match to.below(10) {
            0 => {
                let handle = to.fresh();
                (0..to.below(4)).for_each(|_| soon.push_back(handle));
                to.push(handle);
            }
            1 | 2 if !soon.is_empty() => {
                let handle = soon.pop_front().unwrap_or(0);
                to.push(handle);
            }
            _ => {
                let rank = to.rank(&sums);
                to.push(permuted(rank, 0));
            }
        }
    }
}

/// 500 active handles of 10,000, of which one changes every 40 accesses.
fn drift(to: &mut FamilyWriter) {
    let mut active: Vec<u32> = (0..500).map(|_| to.below(10_000)).collect();
    while let Some(at) = to.more() {
        if at % 40 == 0 {
            let (one, handle) = (to.below(500), to.below(10_000));
            active[one as usize] = handle;
        }
        let one = to.below(500);
        to.push(active[one as usize]);
    }
}

/// Distances in a stack of the last uses, most of them short.
fn stack(to: &mut FamilyWriter) {
    let mut stack: VecDeque<u32> = (0..4_000).collect();
    while to.more().is_some() {
        let drawn = (to.random.next() >> 11) as f64 / 9_007_199_254_740_992.0;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below 4,000")]
        let depth = (4_000.0 * drawn.powi(4)) as usize;
        let handle = stack.remove(depth).unwrap_or(0);
        stack.push_front(handle);
        to.push(handle);
    }
}

/// 128 flows in turn, each of 64 accesses in the mean; every second access is of a Zipf distribution.
fn flows_zipf(to: &mut FamilyWriter) {
    let sums = zipf(HANDLES, 0.9);
    let mut flows: Vec<u32> = (0..128).map(|_| to.below(10_000)).collect();
    while to.more().is_some() {
        for flow in &mut flows {
            if to.below(64) == 0 {
                *flow = to.below(10_000);
            }
            to.push(FRESH + *flow);
            let rank = to.rank(&sums);
            to.push(permuted(rank, 0));
        }
    }
}

/// Zipf distribution whose ranks move to the next handle every 25 accesses.
fn churn(to: &mut FamilyWriter) {
    let sums = zipf(8_000, 1.0);
    while let Some(at) = to.more() {
        let rank = to.rank(&sums) + at as u64 / 25;
        to.push((rank % 8_000) as u32);
    }
}

/// 600 of 6,000 handles, other ones every 25,000 accesses.
fn jumps(to: &mut FamilyWriter) {
    while let Some(at) = to.more() {
        let set = u32::try_from(at / 25_000 % 10).unwrap_or(0);
        let one = to.below(600);
        to.push(600 * set + one);
    }
}

/// Round 400 handles, then round 3,000, 20,000 accesses each.
fn two_loops(to: &mut FamilyWriter) {
    while let Some(at) = to.more() {
        let (first, len) = if at / 20_000 % 2 == 0 { (0, 400) } else { (400, 3_000) };
        to.push(first + u32::try_from(at % len).unwrap_or(0));
    }
}

/// Zipf distribution, with 800 new handles in a row, twice, every 8,000 accesses.
fn scan_twice(to: &mut FamilyWriter) {
    let sums = zipf(HANDLES, 0.8);
    while to.more().is_some() {
        for _ in 0..6_400 {
            let rank = to.rank(&sums);
            to.push(permuted(rank, 0));
        }
        let scan: Vec<u32> = (0..800).map(|_| to.fresh()).collect();
        to.handles.extend(scan.iter().chain(&scan));
    }
}

/// 64 sessions, each of three contexts of its own for 20 messages in the mean, and a shared context of 200.
fn sessions(to: &mut FamilyWriter) {
    let sums = zipf(200, 1.0);
    let mut sessions: Vec<u32> = (0..64).map(|_| to.fresh()).collect();
    while to.more().is_some() {
        let one = to.below(64) as usize;
        if to.below(20) == 0 {
            sessions[one] = to.fresh();
        }
        for part in 0..3 {
            to.push(4 * (sessions[one] - FRESH) + 1_000 + part);
        }
        let rank = to.rank(&sums);
        to.push(permuted(rank, 0) % 200);
    }
}

/// Uniform and very skewed use of the same handles, 30,000 accesses each.
fn changing_skew(to: &mut FamilyWriter) {
    let sums = [zipf(HANDLES, 0.0), zipf(HANDLES, 1.2)];
    while let Some(at) = to.more() {
        let rank = to.rank(&sums[at / 30_000 % 2]);
        to.push(permuted(rank, 1));
    }
}

/// From a root over three levels to one of 8,192 leaves, half of them in a sixteenth of the tree.
fn tree(to: &mut FamilyWriter) {
    while to.more().is_some() {
        let part = if to.below(2) == 0 { 512 } else { 8_192 };
        let leaf = to.below(part);
        for (first, divisor) in [(0, 8_192), (1, 512), (17, 32), (273, 1)] {
            to.push(first + leaf / divisor);
        }
    }
}

/// New handles that are used once more 300, 600 or 900 accesses later, as entries of a queue are.
fn pipes(to: &mut FamilyWriter) {
    let mut pipes = [300, 600, 900].map(|len| (0..len).map(|_| to.fresh()).collect());
    while to.more().is_some() {
        let pipe: &mut VecDeque<u32> = &mut pipes[to.below(3) as usize];
        let handle = to.fresh();
        pipe.push_back(handle);
        let read = pipe.pop_front().unwrap_or(0);
        to.handles.extend([handle, read]);
    }
}

/// 32 queues with bursts of 8 messages in the mean; popular ones are others in the second half.
fn zipf_bursts(to: &mut FamilyWriter) {
    let sums = zipf(HANDLES, 0.8);
    let mut queues = [0_u32; 32];
    while let Some(at) = to.more() {
        let one = to.below(32) as usize;
        if to.below(8) == 0 {
            let rank = to.rank(&sums);
            queues[one] = permuted(rank, at as u64 / 100_000);
        }
        to.push(queues[one]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_have_names_of_their_own_and_follow_their_seed() {
        for (at, family) in FAMILIES.iter().enumerate() {
            assert_eq!(TraceFamily::named(family.name).map(TraceFamily::name), Some(family.name));
            let first = |one: &TraceFamily| one.name == family.name;
            assert_eq!(FAMILIES.iter().position(first), Some(at));
            let crc = |seed| family.generate(seed).map(|trace| trace.crc32());
            assert_eq!(crc(1), crc(1), "{}", family.name);
            assert!(family.name == "two-loops" || crc(1) != crc(2), "{}", family.name);
        }
        assert_eq!(FAMILIES.iter().filter(|family| family.held_out).count(), 8);
    }

    /// Figures are of these traces: none changes unseen.
    #[test]
    fn each_family_is_the_one_that_figures_are_of() {
        let found: Vec<(&str, u32, usize, u32)> = FAMILIES
            .iter()
            .map(|family| {
                let trace = family.generate(1).expect("handles");
                (family.name, trace.crc32(), trace.handles().len(), trace.distinct())
            })
            .collect();
        assert_eq!(found, KNOWN);
    }

    const KNOWN: [(&str, u32, usize, u32); 16] = [
        ("phases", 0xc501_9444, 200_000, 5003),
        ("loop-zipf", 0xa7e9_6a1a, 200_000, 5713),
        ("scan-zipf", 0x2152_9036, 200_000, 44_982),
        ("correlated", 0x1b59_3d2e, 200_000, 23_049),
        ("drift", 0xd298_0c1c, 200_000, 4143),
        ("stack", 0x519d_1a2d, 200_000, 4000),
        ("flows-zipf", 0x8e6c_60ba, 200_000, 6495),
        ("churn", 0x02a8_bc42, 200_000, 8000),
        ("jumps", 0xcc37_bbfa, 200_000, 4800),
        ("two-loops", 0x2311_d7d0, 200_000, 3400),
        ("scan-twice", 0xccd2_4a1d, 200_000, 25_003),
        ("sessions", 0xe866_b50f, 200_000, 7774),
        ("changing-skew", 0x6b7f_fd0f, 200_000, 5003),
        ("tree", 0xe619_2fc9, 200_000, 8107),
        ("pipes", 0x8282_af20, 200_000, 101_800),
        ("zipf-bursts", 0x7788_14d6, 200_000, 4510),
    ];
}
