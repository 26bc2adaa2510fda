//! Time: what is due, and the maintenance worker.
//!
//! *Owns*: the order of what happens between two accesses; the rotating sample. *Takes*: time. *Gives*: migrations.
//! *Must not*: pass two tiers of one context in one pass.

use super::ContextCache;
use super::inflight::FlightCause;
use crate::directory::{ContextPlace, EntryWord, PINNED};
use crate::handle::{ContextHandle, ContextKind};

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
            self.rotation.adapt_at = self.now + super::adapt::PERIOD_NS;
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
