//! A model of the DMA engine between a NIC and the pool in host memory: what accesses cost, and which were waited for.
//!
//! - owns: latency, bandwidth, reads that are under way, reads without an answer; counts. takes: times of accesses.
//! - gives: when a read is done, whether the pool answers at all.
//! - must not: move a byte. A node without such an engine has a latency of 0.

use std::collections::VecDeque;

use udma_abi::Nanos;

/// What an access costs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DmaCfg {
    /// Fixed latency of a read, which overlaps with that of others, in ns.
    pub latency_ns: Nanos,
    /// Time of a line on the bus in one direction, which does not overlap, in ps.
    pub line_ps: u64,
    /// Reads that may be under way.
    pub outstanding_max: usize,
    /// One of so many reads has no answer; 0: each has one.
    pub silent_every: u64,
    /// A read without an answer is made again after this time, in ns.
    pub timeout_ns: Nanos,
}

impl Default for DmaCfg {
    /// No cost at all.
    fn default() -> Self {
        let timeout_ns = COMPLETION_TIMEOUT_NS;
        Self { latency_ns: 0, line_ps: 0, outstanding_max: usize::MAX, silent_every: 0, timeout_ns }
    }
}

/// Least completion timeout that PCI Express allows by default (50 us to 50 ms), in ns.
pub(super) const COMPLETION_TIMEOUT_NS: Nanos = 50_000;
/// How often a read is made.
const TRIES: u64 = 4;

/// Counts of accesses to lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DmaStats {
    /// Lines read from host memory.
    pub reads: u64,
    /// Lines written to host memory.
    pub writes: u64,
    /// Repeated packets whose entry was at hand, and lines that were when the one before them ended.
    pub hits: u64,
    /// Lines that a packet waited for.
    pub misses: u64,
    /// Sum of these waits, in ns.
    pub wait_ns: u64,
    /// Reads that had no answer in time and were made again, or given up.
    pub timeouts: u64,
}

/// One engine, shared by all TPs of a NIC.
#[derive(Debug, Default)]
pub struct DmaModel {
    cfg: DmaCfg,
    /// When reads that are under way end, earliest first.
    reads: VecDeque<Nanos>,
    /// When the bus is free for the next read, in ps.
    free_ps: u64,
    stats: DmaStats,
    /// Waits of packets since they were asked for last, in ns.
    waited_ns: Nanos,
    /// A read had no answer as often as it was made.
    has_failed: bool,
}

impl DmaModel {
    /// An engine with these costs.
    #[must_use]
    pub fn new(cfg: DmaCfg) -> Self {
        let cfg = DmaCfg { outstanding_max: cfg.outstanding_max.max(1), ..cfg };
        Self { cfg, ..Self::default() }
    }

    /// Counts of accesses since it was made.
    #[must_use]
    pub const fn stats(&self) -> DmaStats {
        self.stats
    }

    /// Whether the pool left a line unanswered as often as it was asked: what it holds is out of reach.
    #[must_use]
    pub const fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// A line is written: posted, so it is not waited for.
    pub const fn on_write(&mut self, _now: Nanos) {
        self.stats.writes += 1;
    }

    /// A read begins; when it ends.
    pub fn on_read(&mut self, now: Nanos) -> Nanos {
        self.stats.reads += 1;
        let asked_at = now.saturating_add(self.await_answer());
        if self.cfg.latency_ns == 0 {
            return asked_at;
        }
        while self.reads.front().is_some_and(|&end| end <= now) {
            self.reads.pop_front();
        }
        let slot = self.reads.len().checked_sub(self.cfg.outstanding_max);
        let begin = slot.map_or(now, |slot| now.max(self.reads[slot]));
        self.free_ps = self.free_ps.max(begin * 1000) + self.cfg.line_ps;
        let end = (self.free_ps / 1000).saturating_add(self.cfg.latency_ns + (asked_at - now));
        // One that is made again ends after others that began later.
        let place = self.reads.partition_point(|&other| other <= end);
        self.reads.insert(place, end);
        end
    }

    /// How long a read that begins now goes without an answer until the try that has one; after [`TRIES`] the engine
    /// has failed.
    fn await_answer(&mut self) -> Nanos {
        let mut lost = 0;
        while self.is_silent() {
            lost += self.cfg.timeout_ns;
            self.stats.timeouts += 1;
            if lost >= TRIES * self.cfg.timeout_ns {
                self.has_failed = true;
                break;
            }
            self.stats.reads += 1;
        }
        lost
    }

    const fn is_silent(&self) -> bool {
        self.cfg.silent_every > 0 && self.stats.reads.is_multiple_of(self.cfg.silent_every)
    }

    /// A packet needs a line whose read ends, or ended, at `ready`; `None`: it was not read in advance.
    pub fn on_access(&mut self, now: Nanos, ready: Option<Nanos>) {
        let ready = ready.unwrap_or_else(|| self.on_read(now));
        if ready <= now {
            self.stats.hits += 1;
        } else {
            self.stats.misses += 1;
            self.stats.wait_ns += ready - now;
            self.waited_ns += ready - now;
        }
    }

    /// How long packets waited for lines since this was asked last: what they cause happens so much later.
    pub const fn take_wait(&mut self) -> Nanos {
        std::mem::replace(&mut self.waited_ns, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOW: DmaCfg = DmaCfg {
        latency_ns: 1000,
        line_ps: 0,
        outstanding_max: 2,
        silent_every: 0,
        timeout_ns: COMPLETION_TIMEOUT_NS,
    };

    #[test]
    fn a_read_without_an_answer_is_made_again_and_keeps_its_place() {
        let mut dma = DmaModel::new(DmaCfg { silent_every: 2, ..SLOW });
        assert_eq!(dma.on_read(0), 1000);
        // The second of all reads has no answer; the third is its repetition.
        assert_eq!(dma.on_read(0), COMPLETION_TIMEOUT_NS + 1000);
        // The fourth has none either. It begins when the first one ended: the second one still has its place.
        assert_eq!(dma.on_read(0), 1000 + COMPLETION_TIMEOUT_NS + 1000);
        assert_eq!((dma.stats().reads, dma.stats().timeouts), (5, 2));
        assert!(!dma.has_failed());
    }

    #[test]
    fn an_engine_that_never_answers_fails_after_some_tries() {
        let mut dma = DmaModel::new(DmaCfg { silent_every: 1, ..SLOW });
        assert_eq!(dma.on_read(0), TRIES * COMPLETION_TIMEOUT_NS + 1000);
        assert_eq!((dma.stats().reads, dma.stats().timeouts), (TRIES, TRIES));
        assert!(dma.has_failed());
    }
}
