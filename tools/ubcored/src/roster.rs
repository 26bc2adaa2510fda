//! The clients that are served, and what was refused.
//!
//! - owns: a line for each client, counts since the start. takes: clients that come and leave. gives: reports. must not: be
//!   looked at on the data path.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use ubcore_sim::device::DeviceFunction;
use urma_mem::sync::{AtomicU64, Ordering};

/// Why a connection is not served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RefusalReason {
    /// Its user is not let in.
    User,
    /// As many clients as there may be are served.
    TooMany,
    /// The daemon has no thread, descriptor or memory for it.
    Resources,
}

impl RefusalReason {
    pub(crate) const ALL: [Self; 3] = [Self::User, Self::TooMany, Self::Resources];

    /// Name of the reason in reports.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::TooMany => "too_many",
            Self::Resources => "resources",
        }
    }
}

/// A process as the kernel names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ClientProcess {
    pub(crate) uid: u32,
    /// 0: of another PID namespace.
    pub(crate) pid: i32,
}

/// A client that is served.
#[derive(Clone, Debug)]
pub(crate) struct ServedEntry {
    pub(crate) process: ClientProcess,
    pub(crate) since: Instant,
    pub(crate) function: Arc<DeviceFunction>,
}

/// How clients left, and how long it took to end what they had.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct LeftCounts {
    /// Served since the start.
    pub(crate) served: u64,
    /// Cut off for breaking the protocol.
    pub(crate) cut_off: u64,
    /// Longest end of a client, nanoseconds.
    pub(crate) end_ns_max: u64,
}

/// All clients that are served now.
#[derive(Debug, Default)]
pub(crate) struct ClientRoster {
    clients: Mutex<BTreeMap<u64, ServedEntry>>,
    served: AtomicU64,
    cut_off: AtomicU64,
    end_ns_max: AtomicU64,
    refused: [AtomicU64; RefusalReason::ALL.len()],
}

impl ClientRoster {
    /// A client is served from now on, under the number that is returned.
    pub(crate) fn add(&self, entry: ServedEntry) -> u64 {
        let number = self.served.fetch_add(1, Ordering::Relaxed);
        self.clients().insert(number, entry);
        number
    }

    /// A client left, and everything of it ended in `ns` nanoseconds.
    pub(crate) fn remove(&self, number: u64, ns: u64, is_cut_off: bool) {
        self.clients().remove(&number);
        self.end_ns_max.fetch_max(ns, Ordering::Relaxed);
        if is_cut_off {
            self.cut_off.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn count_refusal(&self, reason: RefusalReason) {
        self.refused[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn refusals(&self, reason: RefusalReason) -> u64 {
        self.refused[reason as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn left(&self) -> LeftCounts {
        LeftCounts {
            served: self.served.load(Ordering::Relaxed),
            cut_off: self.cut_off.load(Ordering::Relaxed),
            end_ns_max: self.end_ns_max.load(Ordering::Relaxed),
        }
    }

    /// Those that are served now, in the order in which they came.
    pub(crate) fn all(&self) -> Vec<(u64, ServedEntry)> {
        self.clients().iter().map(|(number, entry)| (*number, entry.clone())).collect()
    }

    fn clients(&self) -> MutexGuard<'_, BTreeMap<u64, ServedEntry>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_left_and_who_was_refused_is_counted_by_how_and_why() {
        let roster = ClientRoster::default();
        for (number, ns, is_cut_off) in [(0, 5, false), (1, 9, true), (2, 3, false)] {
            roster.remove(number, ns, is_cut_off);
        }
        assert_eq!(roster.left(), LeftCounts { served: 0, cut_off: 1, end_ns_max: 9 });
        roster.count_refusal(RefusalReason::TooMany);
        roster.count_refusal(RefusalReason::TooMany);
        roster.count_refusal(RefusalReason::User);
        let counts = RefusalReason::ALL.map(|reason| (reason.name(), roster.refusals(reason)));
        assert_eq!(counts, [("user", 1), ("too_many", 2), ("resources", 0)]);
    }
}
