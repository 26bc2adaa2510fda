//! Memory behind a link: drawn latencies, bounded reads, a link that takes time.
//!
//! *Owns*: reads in service, time of the link, the generator. *Takes*: bytes and the time of a read or write.
//! *Gives*: when it is complete. *Must not*: know what is read.

use std::{cmp::Reverse, collections::BinaryHeap};

use crate::handle::SplitMix64;

/// A bounded number of things at a time, first come first served.
#[derive(Debug)]
pub(crate) struct BoundedService {
    limit: usize,
    ends: BinaryHeap<Reverse<u64>>,
}

impl BoundedService {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, ends: BinaryHeap::new() }
    }

    /// When one that arrives at `now` begins. [`BoundedService::end`] must follow.
    pub(crate) fn begin(&mut self, now: u64) -> u64 {
        self.retire(now);
        if self.ends.len() < self.limit {
            return now;
        }
        self.ends.pop().map_or(now, |Reverse(end)| end.max(now))
    }

    /// What has begun ends at `at`.
    pub(crate) fn end(&mut self, at: u64) {
        self.ends.push(Reverse(at));
    }

    /// Things in service at `now`.
    pub(crate) fn depth(&mut self, now: u64) -> usize {
        self.retire(now);
        self.ends.len()
    }

    /// When one that arrives at `now` would begin.
    pub(crate) fn free_at(&mut self, now: u64) -> u64 {
        let is_free = self.depth(now) < self.limit;
        self.ends.peek().filter(|_| !is_free).map_or(now, |Reverse(end)| *end)
    }

    fn retire(&mut self, now: u64) {
        while self.ends.peek().is_some_and(|Reverse(end)| *end <= now) {
            self.ends.pop();
        }
    }
}

/// CXL and host memory behind one link.
#[derive(Debug)]
pub(crate) struct FarMemory {
    reads: BoundedService,
    rng: SplitMix64,
    ps_per_byte: u64,
    /// When the link is free, in ps.
    link_free_ps: u64,
    /// Occupied time of the last microseconds: number of the microsecond, ps.
    busy: [(u64, u64); BUSY_CELLS],
}

impl FarMemory {
    /// With so many reads at a time over a link of this rate.
    pub(crate) fn new(outstanding: u32, link_gbps: u64, seed: u64) -> Self {
        Self {
            reads: BoundedService::new(outstanding as usize),
            rng: SplitMix64(seed),
            ps_per_byte: (8000 / link_gbps).max(1),
            link_free_ps: 0,
            busy: [(0, 0); BUSY_CELLS],
        }
    }

    /// When a read that is issued at `now` is complete.
    pub(crate) fn read(&mut self, now: u64, median_ns: u64, bytes: u64) -> u64 {
        let begin = self.reads.begin(now);
        let moved = self.occupy(begin, bytes);
        let end = moved + self.draw(median_ns);
        self.reads.end(end);
        end
    }

    /// When a posted write is visible.
    pub(crate) fn write(&mut self, now: u64, bytes: u64) -> u64 {
        self.occupy(now, bytes) + WRITE_VISIBLE_NS
    }

    /// When a read that is issued at `now` would begin.
    pub(crate) fn free_at(&mut self, now: u64) -> u64 {
        self.reads.free_at(now)
    }

    /// Share of the last 10 us in which the link was occupied, in percent.
    pub(crate) fn busy_percent(&self, now: u64) -> u64 {
        let us = now / 1000;
        let recent = self.busy.iter().filter(|(at, _)| *at + BUSY_US > us);
        let busy_ps: u64 = recent.map(|(_, ps)| *ps).sum();
        (busy_ps / (BUSY_US * 10_000)).min(100)
    }

    /// When bytes that are ready at `now` passed the link, in ns.
    fn occupy(&mut self, now: u64, bytes: u64) -> u64 {
        let begin = self.link_free_ps.max(now * 1000);
        let time = bytes * self.ps_per_byte;
        self.link_free_ps = begin + time;
        let us = begin / 1_000_000;
        let cell = &mut self.busy[(us % BUSY_US) as usize];
        if cell.0 != us {
            *cell = (us, 0);
        }
        cell.1 += time;
        self.link_free_ps.div_ceil(1000)
    }

    /// A latency: the median times a drawn factor, and one of 1000 times 8.
    fn draw(&mut self, median_ns: u64) -> u64 {
        let number = self.rng.next();
        let factor = u64::from(FACTORS[usize::from(number.to_le_bytes()[7])]);
        let tail = if ((number & 0xffff_ffff) * 1000) >> 32 == 0 { TAIL_FACTOR } else { 1 };
        ((median_ns * factor) >> 16) * tail
    }
}

#[cfg(all(test, not(loom)))]
/// Longest latency of a read without a queue, for a median: the last quantile, in the tail.
pub(crate) fn longest_ns(median_ns: u64) -> u64 {
    ((median_ns * u64::from(FACTORS[FACTORS.len() - 1])) >> 16) * TAIL_FACTOR
}

/// Time until a posted write is visible.
const WRITE_VISIBLE_NS: u64 = 300;
/// Factor of one read in 1000.
const TAIL_FACTOR: u64 = 8;
/// Microseconds of which the busy share is known.
const BUSY_US: u64 = 10;
const BUSY_CELLS: usize = 10;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn latencies_have_the_median_the_spread_and_the_tail() {
        let mut memory = FarMemory::new(64, 200, 7);
        let mut drawn: Vec<u64> = (0..100_000).map(|_| memory.draw(900)).collect();
        drawn.sort_unstable();
        assert!(drawn[50_000].abs_diff(900) <= 4, "median {}", drawn[50_000]);
        // exp(0.15) = 1.162 of the median at 84.1 %.
        assert!(drawn[84_134].abs_diff(1046) <= 8, "84 %: {}", drawn[84_134]);
        let tail = drawn.iter().filter(|ns| **ns > 4000).count();
        assert!((60..140).contains(&tail), "{tail} in the tail, of 100");
    }

    #[test]
    fn reads_beyond_the_bound_wait_for_the_first_to_end() {
        let mut service = BoundedService::new(2);
        for (begin, end) in [(0, 10), (0, 20), (10, 30), (20, 25), (25, 40)] {
            assert_eq!(service.begin(0), begin);
            service.end(end);
        }
        assert_eq!((service.begin(35), service.begin(50)), (35, 50));
    }

    #[test]
    fn the_link_moves_bytes_at_its_rate() {
        let mut memory = FarMemory::new(64, 200, 7);
        // 64 KiB at 200 Gb/s: 2.62 us; the second waits for the first.
        assert_eq!(memory.write(0, 65_536), 2622 + 300);
        assert_eq!(memory.write(0, 65_536), 5243 + 300);
        assert_eq!(memory.busy_percent(5_000), 52);
        assert_eq!(memory.busy_percent(40_000), 0);
    }

    #[test]
    fn reads_in_service_are_counted_until_they_end() {
        let mut service = BoundedService::new(2);
        assert_eq!((service.free_at(0), service.begin(0)), (0, 0));
        service.end(10);
        assert_eq!((service.free_at(0), service.depth(0)), (0, 1));
        service.end(20);
        assert_eq!((service.free_at(0), service.free_at(9), service.depth(9)), (10, 10, 2));
        assert_eq!((service.free_at(10), service.depth(10)), (10, 1));
        // Reads of far memory are such, and writes are not.
        let mut memory = FarMemory::new(1, 200, 7);
        memory.write(0, 64);
        assert_eq!(memory.free_at(0), 0);
        let end = memory.read(0, 900, 64);
        assert_eq!((memory.free_at(0), memory.free_at(end - 1)), (end, end));
        let second = memory.read(0, 900, 64);
        assert!(second > end, "it waits for the first");
        assert_eq!((memory.free_at(end), memory.free_at(second)), (second, second));
    }

    #[test]
    fn a_link_is_busy_for_all_of_the_time_at_most() {
        let mut memory = FarMemory::new(64, 200, 7);
        // 10 us, and forty more.
        for (bytes, wanted) in [(125_000, 50), (125_000, 100), (1_000_000, 100)] {
            memory.write(0, bytes);
            assert_eq!(memory.busy_percent(0), wanted, "{bytes}");
        }
    }
}

/// Factor of the median latency at each of 256 equally likely quantiles, at the probabilities `(i + 0.5) / 256`, in units of
/// 1/65536: log-normal, median 1, sigma 0.15. Listed, so that every machine draws the same numbers.
pub(crate) const FACTORS: [u32; 256] = [
    42_511, 44_904, 46_169, 47_069, 47_780, 48_376, 48_891, 49_349, 49_762, 50_140, 50_489, 50_814,
    51_119, 51_406, 51_679, 51_939, 52_187, 52_425, 52_653, 52_874, 53_086, 53_292, 53_491, 53_685,
    53_873, 54_057, 54_235, 54_410, 54_580, 54_747, 54_911, 55_071, 55_228, 55_382, 55_533, 55_682,
    55_828, 55_972, 56_114, 56_254, 56_392, 56_527, 56_662, 56_794, 56_925, 57_054, 57_181, 57_308,
    57_433, 57_556, 57_679, 57_800, 57_920, 58_039, 58_156, 58_273, 58_389, 58_504, 58_618, 58_731,
    58_843, 58_955, 59_065, 59_175, 59_284, 59_393, 59_501, 59_608, 59_715, 59_821, 59_926, 60_031,
    60_135, 60_239, 60_342, 60_445, 60_548, 60_650, 60_751, 60_853, 60_953, 61_054, 61_154, 61_254,
    61_353, 61_452, 61_551, 61_649, 61_748, 61_846, 61_944, 62_041, 62_138, 62_235, 62_332, 62_429,
    62_526, 62_622, 62_718, 62_814, 62_910, 63_006, 63_102, 63_197, 63_293, 63_388, 63_484, 63_579,
    63_674, 63_770, 63_865, 63_960, 64_055, 64_150, 64_246, 64_341, 64_436, 64_531, 64_627, 64_722,
    64_817, 64_913, 65_008, 65_104, 65_200, 65_296, 65_392, 65_488, 65_584, 65_681, 65_777, 65_874,
    65_971, 66_068, 66_165, 66_263, 66_360, 66_458, 66_556, 66_655, 66_753, 66_852, 66_951, 67_051,
    67_151, 67_251, 67_351, 67_452, 67_553, 67_655, 67_756, 67_859, 67_961, 68_064, 68_168, 68_271,
    68_376, 68_480, 68_586, 68_691, 68_798, 68_904, 69_012, 69_119, 69_228, 69_337, 69_446, 69_557,
    69_668, 69_779, 69_891, 70_004, 70_118, 70_232, 70_347, 70_463, 70_580, 70_697, 70_816, 70_935,
    71_055, 71_176, 71_299, 71_422, 71_546, 71_671, 71_797, 71_925, 72_054, 72_183, 72_314, 72_447,
    72_581, 72_716, 72_852, 72_990, 73_130, 73_271, 73_413, 73_558, 73_704, 73_852, 74_002, 74_154,
    74_308, 74_464, 74_622, 74_783, 74_946, 75_111, 75_279, 75_450, 75_624, 75_800, 75_980, 76_163,
    76_350, 76_540, 76_734, 76_932, 77_134, 77_341, 77_552, 77_769, 77_990, 78_218, 78_451, 78_691,
    78_937, 79_191, 79_453, 79_723, 80_003, 80_293, 80_593, 80_905, 81_231, 81_571, 81_926, 82_299,
    82_693, 83_108, 83_549, 84_019, 84_524, 85_068, 85_660, 86_310, 87_033, 87_847, 88_784, 89_890,
    91_248, 93_027, 95_648, 101_033,
];
