//! A model of the DMA engine between a NIC and the pool in host memory: what accesses cost, and which were waited for.
//!
//! - owns: latency, bandwidth, reads that are under way; counts. takes: times of accesses. gives: when a read is done.
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
}

impl Default for DmaCfg {
    /// No cost at all.
    fn default() -> Self {
        Self { latency_ns: 0, line_ps: 0, outstanding_max: usize::MAX }
    }
}

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

    /// A line is written: posted, so it is not waited for.
    pub const fn on_write(&mut self, _now: Nanos) {
        self.stats.writes += 1;
    }

    /// A read begins; when it ends.
    pub fn on_read(&mut self, now: Nanos) -> Nanos {
        self.stats.reads += 1;
        if self.cfg.latency_ns == 0 {
            return now;
        }
        while self.reads.front().is_some_and(|&end| end <= now) {
            self.reads.pop_front();
        }
        let slot = self.reads.len().checked_sub(self.cfg.outstanding_max);
        let begin = slot.map_or(now, |slot| now.max(self.reads[slot]));
        self.free_ps = self.free_ps.max(begin * 1000) + self.cfg.line_ps;
        let end = (self.free_ps / 1000).saturating_add(self.cfg.latency_ns);
        self.reads.push_back(end);
        end
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
