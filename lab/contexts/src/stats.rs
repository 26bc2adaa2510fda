//! What happened in a context cache, by name.
//!
//! *Owns*: counters, per kind where that says more, and histograms of times. *Gives*: a list of names and values.
//! *Must not*: decide anything.

use crate::{handle::ContextKind, to_u32, to_usize};

macro_rules! counters {
    ($($(#[doc = $doc:literal])* $name:ident,)*) => {
        /// Counters of a cache.
        #[derive(Clone, Debug, Default)]
        pub struct ContextCounts {
            $($(#[doc = $doc])* pub $name: u64,)*
            /// Accesses of each kind: all, in L1, in L2, in L3, during a migration.
            pub kinds: [KindCounts; ContextKind::ALL.len()],
            /// Times that requests waited, in ns.
            pub wait_ns: TimeHistogram,
            /// Times from begin to end of migrations, in ns.
            pub migration_ns: TimeHistogram,
        }

        impl ContextCounts {
            /// Every counter with its name, those of the kinds behind `kind_`.
            #[must_use]
            pub fn list(&self) -> Vec<(String, u64)> {
                let mut list = vec![$((stringify!($name).to_owned(), self.$name)),*];
                for (kind, counts) in ContextKind::ALL.iter().zip(&self.kinds) {
                    let named = counts.named();
                    list.extend(named.map(|(name, value)| (format!("{}_{name}", kind.name()), value)));
                }
                for (name, times) in [("wait", &self.wait_ns), ("migration", &self.migration_ns)] {
                    list.push((format!("{name}_mean_ns"), times.mean()));
                    list.push((format!("{name}_p99_ns"), times.quantile(990)));
                    list.push((format!("{name}_p999_ns"), times.quantile(999)));
                }
                list
            }
        }
    };
}

counters! {
    /// Accesses of contexts that exist.
    accesses,
    /// Accesses of handles without a context, or of an earlier life.
    not_found,
    /// Accesses found in L1.
    l1_hits,
    /// Accesses not found in L1.
    l1_misses,
    /// Misses that were in L2.
    l2_hits,
    /// Misses that were in host memory alone.
    l3_hits,
    /// Misses that met a migration.
    migration_hits,
    /// Exchanges of small fields that another engine was faster at.
    inline_retries,
    /// Accesses that the batch worker did after four lost exchanges.
    contended,
    /// Accesses that had to read L2 in a batch.
    fallbacks_batch,
    /// Accesses that had to ask the host.
    fallbacks_expand,
    /// Contexts that were read and not put into L1.
    staged,
    /// Contexts that were put into L1.
    installed,
    /// Contexts that the replacement policy refused.
    refused,
    /// Victims without a change.
    evicted_clean,
    /// Victims whose changes were written.
    evicted_dirty,
    /// Bytes of differences written to a lower tier.
    written_back_bytes,
    /// Bytes of strong fields written through.
    written_through_bytes,
    /// Migrations that ended in L1.
    migrations_to_l1,
    /// Migrations that ended in L2.
    migrations_to_l2,
    /// Migrations that ended in host memory.
    migrations_to_l3,
    /// Pages of L2 given up for others.
    pages_evicted,
    /// Pages and answers that did not decode.
    pages_refused,
    /// Prefetches asked for, of contexts that are not in L1.
    prefetches_asked,
    /// Prefetches whose read began.
    prefetches_issued,
    /// Prefetches whose context was accessed in L1 afterwards.
    prefetches_useful,
    /// Prefetches that an access met before their end.
    prefetches_late,
    /// Prefetches dropped: the queue was full or the link busy.
    prefetches_dropped,
    /// Prefetches whose context had moved when their turn came.
    prefetches_skipped,
    /// Reads and writes of contexts that began.
    fetches,
    /// Of those, ended as they should.
    fetches_landed,
    /// Of those, dropped: the context was destroyed.
    fetches_dropped,
    /// Of those, ended with an error: the host did not answer.
    fetches_failed,
    /// Reads made again: the version moved, or the host's answer was wrong or missing.
    fetches_again,
    /// Completions that no fetch waits for.
    answers_unexpected,
    /// Answers with another context than asked for.
    answers_wrong,
    /// Requests that the host refused: offset or length beyond its table.
    host_refused,
    /// Requests that waited for a place in the mailbox.
    mailbox_waits,
    /// Background requests that found the mailbox full.
    mailbox_dropped,
    /// Most requests in the mailbox.
    mailbox_depth_max,
    /// Contexts that were pinned anew.
    pins,
    /// Pins refused: a quarter of L1 is pinned.
    pins_refused,
    /// Pins that ended by time.
    pins_expired,
    /// Reads during a migration that succeeded at the place that is left.
    optimistic_reads,
    /// Reads during a migration that saw the version move.
    optimistic_retries,
    /// Requests that wait for a migration or fetch.
    waiters,
    /// Those that were woken.
    woken,
    /// Hits that a full ring of a bank lost.
    hits_lost,
    /// Changes of `promote_l1` by the load.
    adaptations,
    /// Bytes found in L1.
    l1_bytes,
    /// Bytes found in L2.
    l2_bytes,
    /// Bytes found in host memory.
    l3_bytes,
    /// Bytes of tokens of all accesses.
    access_bytes,
    /// Bytes of accesses that met a migration.
    migration_bytes,
}

/// Accesses of one kind.
#[derive(Clone, Copy, Debug, Default)]
pub struct KindCounts {
    /// All accesses of the kind.
    pub accesses: u64,
    /// Accesses found in L1.
    pub l1_hits: u64,
    /// Accesses found in L2.
    pub l2_hits: u64,
    /// Accesses found in host memory alone.
    pub l3_hits: u64,
    /// Accesses that met a migration.
    pub migration_hits: u64,
}

impl KindCounts {
    fn named(&self) -> [(&'static str, u64); 5] {
        [
            ("accesses", self.accesses),
            ("l1_hits", self.l1_hits),
            ("l2_hits", self.l2_hits),
            ("l3_hits", self.l3_hits),
            ("migration_hits", self.migration_hits),
        ]
    }
}

/// Times in cells of an eighth of a power of two.
#[derive(Clone, Debug)]
pub struct TimeHistogram {
    cells: Vec<u64>,
    count: u64,
    sum: u64,
}

impl Default for TimeHistogram {
    fn default() -> Self {
        Self { cells: vec![0; 64 * 8], count: 0, sum: 0 }
    }
}

impl TimeHistogram {
    /// Counts a time in its cell.
    pub fn note(&mut self, ns: u64) {
        self.note_times(ns, 1);
    }

    /// Counts a time so many times.
    pub fn note_times(&mut self, ns: u64, times: u64) {
        self.cells[cell_of(ns)] += times;
        self.count += times;
        self.sum = self.sum.saturating_add(ns.saturating_mul(times));
    }

    /// Returns how many times were counted.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Returns the mean, rounded down; 0 for none.
    #[must_use]
    pub fn mean(&self) -> u64 {
        self.sum.checked_div(self.count).unwrap_or(0)
    }

    /// Returns the upper end of the cell that so many of 1000 times do not exceed.
    #[must_use]
    pub fn quantile(&self, per_mille: u64) -> u64 {
        let wanted = (self.count * per_mille).div_ceil(1000);
        let mut seen = 0;
        for (cell, count) in self.cells.iter().enumerate() {
            seen += count;
            if seen >= wanted && seen > 0 {
                return end_of(cell);
            }
        }
        0
    }
}

/// Below 8 a cell for each value, then eight for each power of two.
fn cell_of(ns: u64) -> usize {
    if ns < 8 {
        return to_usize(ns);
    }
    let power = ns.ilog2();
    let eighth = (ns >> (power - 3)) & 7;
    ((power as usize - 2) * 8) + eighth as usize
}

fn end_of(cell: usize) -> u64 {
    if cell < 8 {
        return cell as u64;
    }
    let (shift, eighth) = (to_u32(cell / 8 - 1), (cell % 8) as u64);
    (((8 + eighth) << shift) - 1) + (1 << shift)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_exact_to_an_eighth() {
        let mut times = TimeHistogram::default();
        (1..=1000).for_each(|ns| times.note(ns));
        assert_eq!((times.mean(), times.count()), (500, 1000));
        for (per_mille, exact) in [(10, 10), (500, 500), (990, 990), (999, 999)] {
            let at = times.quantile(per_mille);
            assert!(at >= exact && at <= exact + exact / 8, "{per_mille}: {at}");
        }
        assert_eq!(TimeHistogram::default().quantile(990), 0);
    }

    #[test]
    fn quantiles_of_few_times_are_those_counted_by_hand() {
        let mut times = TimeHistogram::default();
        [1, 2, 7].into_iter().for_each(|ns| times.note(ns));
        // The least time that so many of 1000 do not exceed.
        for (per_mille, ns) in [(1, 1), (333, 1), (334, 2), (500, 2), (667, 7), (990, 7), (1000, 7)]
        {
            assert_eq!(times.quantile(per_mille), ns, "{per_mille}");
        }
        // Cells of an eighth of a power of two: 16 and 17 are one, 18 is the next.
        for (ns, end) in
            [(8, 8), (15, 15), (16, 17), (17, 17), (18, 19), (1000, 1023), (1024, 1151)]
        {
            assert_eq!(end_of(cell_of(ns)), end, "{ns}");
        }
    }
}
