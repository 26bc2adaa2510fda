//! Counters of an engine.
//!
//! - owns: what is counted, a histogram of bounded size. takes: events. gives: numbers. must not: decide anything.

use crate::beat::InputError;

/// Cycles in which a beat waited, by cause.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StallCycles {
    /// The data memory was full.
    pub data: u64,
    /// The sideband FIFO was full.
    pub sideband: u64,
    /// No bank was empty.
    pub bank: u64,
    /// The control of banks changed hands.
    pub handover: u64,
    /// A flush beat had the write port; counted also when no beat waited.
    pub flush: u64,
}

/// Cycles up to this number are counted exactly.
const EXACT: usize = 4096;
/// Buckets of powers of two above them.
const ABOVE: usize = 52;

/// A histogram of cycles: exact up to 4095, then a bucket per power of two.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CycleHistogram {
    /// Grows to the largest value, at most to 4096 buckets.
    exact: Vec<u64>,
    above: [u64; ABOVE],
    count: u64,
    sum: u64,
    max: u64,
}

impl Default for CycleHistogram {
    fn default() -> Self {
        Self { exact: Vec::new(), above: [0; ABOVE], count: 0, sum: 0, max: 0 }
    }
}

impl CycleHistogram {
    pub(crate) fn record(&mut self, cycles: u64) {
        match usize::try_from(cycles) {
            Ok(at) if at < EXACT => {
                if at >= self.exact.len() {
                    self.exact.resize(at + 1, 0);
                }
                self.exact[at] += 1;
            }
            _ => self.above[(cycles.ilog2() - EXACT.ilog2()) as usize] += 1,
        }
        self.count += 1;
        self.sum += cycles;
        self.max = self.max.max(cycles);
    }

    /// How many values were recorded.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Sum of the values that were recorded.
    #[must_use]
    pub const fn sum(&self) -> u64 {
        self.sum
    }

    /// Largest value that was recorded; 0 without one.
    #[must_use]
    pub const fn max(&self) -> u64 {
        self.max
    }

    /// Mean in cycles; 0 without a value.
    #[must_use]
    pub fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum as f64 / self.count as f64 }
    }

    /// Value at rank `ceil(permille / 1000 * count)`; above 4095 the upper end of its bucket, at most the maximum.
    #[must_use]
    pub fn quantile(&self, permille: u64) -> u64 {
        let mut left = (self.count * permille).div_ceil(1000);
        for (value, n) in (0_u64..).zip(&self.exact) {
            left = left.saturating_sub(*n);
            if left == 0 {
                return value;
            }
        }
        for (power, n) in (EXACT.ilog2()..).zip(&self.above) {
            left = left.saturating_sub(*n);
            if left == 0 {
                return ((2_u64 << power) - 1).min(self.max);
            }
        }
        self.max
    }
}

/// What an engine counted since it was opened.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EngineCounters {
    /// Cycles since the engine was opened.
    pub cycles: u64,
    /// Beats that were accepted at the input.
    pub beats_in: u64,
    /// Beats of packets that left.
    pub beats_out: u64,
    /// Packets that ended at the output.
    pub packets: u64,
    /// Payload bytes of those packets.
    pub bytes: u64,
    /// Cycles in which a beat waited.
    pub stalls: StallCycles,
    /// Cycles with neither a header nor a beat.
    pub idle_out: u64,
    /// Most beats in the data memory.
    pub occupancy_max: u32,
    /// Sum over cycles of the beats in it.
    pub occupancy_sum: u64,
    /// Cycles from the acceptance of a packet's first byte to its header.
    pub header_latency: CycleHistogram,
    /// Cycles from the acceptance of a packet's first byte to its end.
    pub end_latency: CycleHistogram,
    /// Messages dropped because they cannot fit.
    pub too_long: u64,
    /// Messages dropped for an input error, by reason, in the order of `InputError::ALL`.
    pub input_errors: [u64; 5],
    /// Beats whose packet is not that of the header before them. Stays 0.
    pub mismatch: u64,
}

impl EngineCounters {
    /// Messages that were dropped for this reason.
    #[must_use]
    pub const fn input_error(&self, reason: InputError) -> u64 {
        self.input_errors[reason as usize]
    }

    /// Mean number of beats in the data memory.
    #[must_use]
    pub fn occupancy_mean(&self) -> f64 {
        if self.cycles == 0 { 0.0 } else { self.occupancy_sum as f64 / self.cycles as f64 }
    }
}
