//! Time: what is due, and the maintenance worker; adaptive `promote_l1`, with a pause so that it cannot swing.
//!
//! *Owns*: the order of what happens between two accesses; the rotating sample; the threshold. *Takes*: time. *Gives*:
//! migrations. *Must not*: pass two tiers of one context in one pass.

use super::{ContextCache, moves::FlightCause};
use crate::{
    directory::{ContextPlace, EntryWord, PINNED},
    handle::{ContextHandle, ContextKind},
};

/// Where the rotating sample goes on.
#[derive(Debug, Default)]
pub(super) struct Rotation {
    kind: usize,
    index: u32,
    next_at: u64,
    adapt_at: u64,
}

impl ContextCache {
    /// Does what is due until `now`. Time does not go back: an earlier time counts as the latest one.
    pub fn advance(&mut self, now: u64) {
        let now = now.max(self.now);
        if now - self.rotation.next_at.min(now) > SKIP_NS {
            // After a long pause the passes that no access could see are not made.
            self.rotation.next_at = now - SKIP_NS;
        }
        while let Some(at) = self.next_event().filter(|at| *at <= now) {
            self.now = self.now.max(at);
            self.step_event();
        }
        self.now = now;
    }

    /// When the next thing is due.
    pub(super) fn next_event(&mut self) -> Option<u64> {
        let background = self.background_at();
        let fixed = [
            self.flights.due_at(),
            self.queue.deadline(),
            background,
            self.pins.end_at(),
            Some(self.rotation.next_at),
            self.cfg.adapt.then_some(self.rotation.adapt_at),
        ];
        fixed.into_iter().flatten().min()
    }

    fn step_event(&mut self) {
        if self.flights.due_at().is_some_and(|at| at <= self.now) {
            if let Some((ticket, handle)) = self.flights.pop_due() {
                self.land(ticket, handle);
            }
        } else if self.queue.deadline().is_some_and(|at| at <= self.now) {
            self.begin_batch();
        } else if self.pins.end_at().is_some_and(|at| at <= self.now) {
            self.end_pins();
        } else if self.background_at().is_some_and(|at| at <= self.now) {
            self.serve_background();
        } else if self.rotation.next_at <= self.now {
            self.rotation.next_at = self.now + PASS_NS;
            self.finish_contended();
            self.maintain();
        } else if self.cfg.adapt && self.rotation.adapt_at <= self.now {
            self.rotation.adapt_at = self.now + PERIOD_NS;
            self.adapt();
        }
    }

    /// Operations that lost their exchanges.
    fn finish_contended(&mut self) {
        for (handle, op) in std::mem::take(&mut self.contended) {
            let Some(word) = self.directory.read(handle) else { continue };
            let now = self.now;
            if let Some(flight) = self.flights.get_mut(handle) {
                flight.ops.push((op, now));
                continue;
            }
            let small = match word.place() {
                ContextPlace::L1 => {
                    // The worker owns the bank while it works.
                    let slot = &self.chip.slot(word.offset()).word;
                    let small = op.apply(slot.read());
                    slot.install(small);
                    self.mark_dirty(handle);
                    Some(small)
                }
                ContextPlace::L2 => {
                    self.cxl.record_mut(word.offset()).map(|record| record.apply(op))
                }
                _ => self.host.record_mut(handle).map(|record| record.apply(op)),
            };
            self.wake_one(handle, op, small);
        }
    }

    /// One pass over a part of the handles.
    fn maintain(&mut self) {
        for handle in self.sample() {
            let Some(word) = self.directory.read(handle) else { continue };
            if word.has(PINNED) {
                continue;
            }
            let hits = self.directory.hits(handle, self.now, self.cfg.window_ns / 2);
            let idle = self.directory.idle(handle, self.now);
            match word.place() {
                ContextPlace::L3 if hits >= self.cfg.promote_l2 && self.cxl.is_on() => {
                    self.promote_cluster(handle)
                }
                ContextPlace::L2 if hits >= self.adaptation.promote_l1() => {
                    self.migrate(handle, word, ContextPlace::L1);
                }
                ContextPlace::L1 if idle > self.cfg.idle_l1_ns => {
                    self.migrate(handle, word, ContextPlace::L2)
                }
                ContextPlace::L2 if idle > self.cfg.idle_l2_ns && self.is_l2_tight() => {
                    self.migrate(handle, word, ContextPlace::L3);
                }
                _ => {}
            }
        }
    }

    fn is_l2_tight(&self) -> bool {
        let (taken, capacity) = self.cxl.usage();
        taken * 10 > capacity * 9
    }

    /// The next handles of the rotation.
    fn sample(&mut self) -> Vec<ContextHandle> {
        let total: u32 = ContextKind::ALL.iter().map(|kind| self.directory.len(*kind)).sum();
        let mut sample = Vec::new();
        let mut looked = 0;
        while looked < total.min(SAMPLE) {
            let kind = ContextKind::ALL[self.rotation.kind];
            if self.rotation.index >= self.directory.len(kind) {
                (self.rotation.kind, self.rotation.index) =
                    ((self.rotation.kind + 1) % ContextKind::ALL.len(), 0);
                continue;
            }
            sample.extend(ContextHandle::new(kind, self.rotation.index));
            self.rotation.index += 1;
            looked += 1;
        }
        sample
    }

    /// Begins a migration; the entry says so from now on.
    pub(super) fn migrate(&mut self, handle: ContextHandle, word: EntryWord, to: ContextPlace) {
        let ready_at = match to {
            ContextPlace::L1 => self.memory.read(self.now, self.cfg.l2_ns, 64),
            _ => self.memory.write(self.now, 8),
        };
        self.begin_flight(handle, word, (to, FlightCause::Maintenance), ready_at);
    }

    /// Brings a context and its neighbours from host memory to L2, by one read.
    fn promote_cluster(&mut self, handle: ContextHandle) {
        let kind = handle.kind();
        let members = (self.cfg.cluster_bytes / kind.descriptor_len()).max(1);
        let first = handle.index() / members * members;
        let cluster: Vec<_> = (first..first.saturating_add(members))
            .filter_map(|index| ContextHandle::new(kind, index))
            .filter_map(|member| Some((member, self.directory.read(member)?)))
            .filter(|(_, word)| word.place() == ContextPlace::L3)
            .collect();
        let bytes = cluster.len() as u64 * u64::from(kind.descriptor_len());
        let ready_at = self.memory.read(self.now, self.cfg.l3_ns, bytes);
        for (member, word) in cluster {
            self.begin_flight(member, word, (ContextPlace::L2, FlightCause::Maintenance), ready_at);
        }
    }
}

/// Time between two passes.
const PASS_NS: u64 = 50_000;
/// Handles of a pass.
const SAMPLE: u32 = 256;
/// Passes of a longer pause are not made up for.
const SKIP_NS: u64 = 20 * PASS_NS;

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
