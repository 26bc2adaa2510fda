//! Memory behind a link: drawn latencies, bounded reads, a link that takes time.
//!
//! *Owns*: reads in service, time of the link, the generator. *Takes*: bytes and the time of a read or write.
//! *Gives*: when it is complete. *Must not*: know what is read.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::hash::SplitMix64;
use crate::quantiles::FACTORS;

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
