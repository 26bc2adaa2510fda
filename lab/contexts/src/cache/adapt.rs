//! Adaptive `promote_l1`, with a pause so that it cannot swing.
//!
//! *Owns*: the threshold, the counters of the last look. *Takes*: counters. *Gives*: the threshold.
//! *Must not*: change twice within the pause.

use super::ContextCache;

/// The threshold and what it was last changed by.
#[derive(Debug)]
pub(super) struct Adaptation {
    promote_l1: u32,
    /// Time before which the threshold stays.
    quiet_until: u64,
    /// Accesses, hits in L1, misses, hits in L2, requests to the host at the last look.
    seen: [u64; 5],
}

impl Adaptation {
    pub(super) const fn new(promote_l1: u32) -> Self {
        Self { promote_l1, quiet_until: 0, seen: [0; 5] }
    }

    pub(super) const fn promote_l1(&self) -> u32 {
        self.promote_l1
    }

    /// Looks at the load of a period. Whether the threshold changed.
    fn look(&mut self, now: u64, dma_busy: u64, counters: [u64; 5]) -> bool {
        let [accesses, hits, misses, l2_hits, host] =
            std::array::from_fn(|at| counters[at] - self.seen[at]);
        self.seen = counters;
        if now < self.quiet_until || accesses == 0 {
            return false;
        }
        let host_busy = host * HOST_NS * 100 / PERIOD_NS;
        let old = self.promote_l1;
        if dma_busy > 85 && l2_hits * 2 < misses {
            self.promote_l1 = (old * 2).min(PROMOTE_MOST.max(old));
        } else if hits * 10 < accesses * 6 && host_busy > 70 {
            self.promote_l1 = (old / 2).max(PROMOTE_LEAST.min(old));
        }
        let has_changed = old != self.promote_l1;
        if has_changed {
            self.quiet_until = now + PAUSE_NS;
        }
        has_changed
    }
}

impl ContextCache {
    pub(super) fn adapt(&mut self) {
        let c = &self.counts;
        let counters = [c.accesses, c.l1_hits, c.l1_misses, c.l2_hits, c.l3_hits];
        let dma_busy = self.memory.busy_percent(self.now);
        let has_changed = self.adaptation.look(self.now, dma_busy, counters);
        self.counts.adaptations += u64::from(has_changed);
    }
}

/// Time between two looks.
pub(super) const PERIOD_NS: u64 = 100_000;
/// Time without another change.
const PAUSE_NS: u64 = 1_000_000;
/// Work of the host for a request of the mailbox; a design value.
const HOST_NS: u64 = 300;
/// The threshold rises to this, and falls to [`PROMOTE_LEAST`].
const PROMOTE_MOST: u32 = 1024;
const PROMOTE_LEAST: u32 = 2;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_threshold_follows_the_load_and_pauses() {
        let mut adaptation = Adaptation::new(128);
        let mut seen = [0; 5];
        let mut look = |at: u64, busy, by: [u64; 5]| {
            seen = std::array::from_fn(|i| seen[i] + by[i]);
            adaptation.look(at * PERIOD_NS, busy, seen);
            adaptation.promote_l1
        };
        let (link_full, host_full) = ([100, 50, 50, 10, 0], [1000, 100, 900, 0, 900]);
        assert_eq!(look(1, 90, link_full), 256, "the link is full and L2 does not help");
        assert_eq!(look(2, 90, link_full), 256, "within the pause");
        assert_eq!(look(10, 10, host_full), 256, "within the pause");
        assert_eq!(look(11, 10, host_full), 128, "the host works and L1 misses");
        assert_eq!(look(22, 85, link_full), 128, "85 % is not above 85 %");
        (2..20).for_each(|at| {
            look(at * 11, 90, link_full);
        });
        assert_eq!(look(500, 90, link_full), 1024, "it rises to 1024");
        (50..80).for_each(|at| {
            look(at * 11, 10, host_full);
        });
        assert_eq!(look(2000, 10, host_full), 2, "it falls to 2");
    }

    #[test]
    fn a_busy_host_changes_nothing_where_l1_serves_most() {
        let mut adaptation = Adaptation::new(128);
        assert!(!adaptation.look(1, 10, [1000, 600, 400, 0, 900]), "60 % is not below 60 %");
        assert!(adaptation.look(2, 10, [2000, 1199, 800, 0, 1800]));
        assert_eq!(adaptation.promote_l1(), 64);
    }

    #[test]
    fn a_threshold_beyond_its_range_stays_where_it_is() {
        let (link_full, host_full) = ([100, 50, 50, 10, 0], [1000, 100, 900, 0, 900]);
        for (from, risen, fallen) in [
            (0, 0, 0),
            (1, 2, 1),
            (2, 4, 2),
            (3, 6, 2),
            (600, 1024, 300),
            (1024, 1024, 512),
            (2000, 2000, 1000),
        ] {
            let look = |busy, counters| {
                let mut adaptation = Adaptation::new(from);
                let has_changed = adaptation.look(1, busy, counters);
                assert_eq!(has_changed, adaptation.promote_l1() != from, "{from}");
                adaptation.promote_l1()
            };
            assert_eq!((look(90, link_full), look(10, host_full)), (risen, fallen), "{from}");
        }
    }

    #[test]
    fn each_bound_of_the_load_counts() {
        // Accesses, hits in L1, misses, hits in L2, requests to the host; 70 % of 100 us are 233 requests of 300 ns.
        for (busy, counters, wanted) in [
            (86, [100, 0, 100, 49, 0], 256),
            (86, [100, 0, 100, 50, 0], 128),
            (100, [0, 0, 100, 0, 900], 128),
            (0, [1000, 0, 1000, 0, 236], 128),
            (0, [1000, 0, 1000, 0, 237], 64),
            (86, [1000, 0, 1000, 500, 237], 64),
        ] {
            let mut adaptation = Adaptation::new(128);
            adaptation.look(0, busy, counters);
            assert_eq!(adaptation.promote_l1(), wanted, "{busy} {counters:?}");
        }
    }
}
