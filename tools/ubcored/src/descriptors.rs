//! Descriptors that memory and vectors of clients hold in the daemon.
//!
//! - owns: how many there may be in all, and what each client has of them. takes: maps and vectors that come and go. gives: a yes, or
//!   a no that the client reads as a quota. must not: let one client take what another one's next map needs.

use std::sync::Arc;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use urma_mem::{
    Region,
    sync::{AtomicU64, Ordering},
};

/// Descriptors of all clients together.
#[derive(Debug)]
pub struct DescriptorBudget {
    used: AtomicU64,
    most: u64,
    /// What a client can always have: no other client gets them. All shares are a quarter of the whole.
    share: u64,
}

impl DescriptorBudget {
    /// At most `most` descriptors for `clients` clients.
    #[must_use]
    pub fn new(most: u64, clients: usize) -> Arc<Self> {
        let share = most / SHARED_PARTS / (clients as u64).max(1);
        Arc::new(Self { used: AtomicU64::new(0), most, share })
    }

    /// What this process may have, without a reserve for what it needs by itself: connections, messages, memory of its own. Raises the
    /// process' limit as far as it may.
    #[must_use]
    pub fn of_process(clients: usize) -> Arc<Self> {
        let limit = getrlimit(Resource::Nofile);
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
        let found = getrlimit(Resource::Nofile).current.unwrap_or(LIMIT_MAX).min(LIMIT_MAX);
        let (most, needed) = of_limit(found, clients);
        if let Some(needed) = needed {
            tracing::warn!(
                limit = found,
                clients,
                needed,
                "the limit of descriptors (LimitNOFILE, ulimit -n) is low: clients can map little memory, or are refused"
            );
        }
        Self::new(most, clients)
    }

    /// Returns how many clients hold.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Returns how many clients may hold.
    #[must_use]
    pub const fn most(&self) -> u64 {
        self.most
    }

    /// One more for a client that has `own`.
    fn take(&self, own: u64) -> bool {
        let most = match own < self.share {
            true => self.most,
            // The shares are for those who have less.
            false => self.most - self.most / SHARED_PARTS,
        };
        let fits = |used: u64| (used < most).then_some(used + 1);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }

    fn give_back(&self, count: u64) {
        self.used.fetch_sub(count, Ordering::Relaxed);
    }
}

/// What `clients` clients may have of so many descriptors of a process, and the limit that would do if these do not.
fn of_limit(limit: u64, clients: usize) -> (u64, Option<u64>) {
    let (reserve, least) =
        (PROCESS_RESERVE + CLIENT_RESERVE * clients as u64, LEAST * clients as u64);
    let most = limit.saturating_sub(reserve);
    (most, (most < least).then_some(reserve + least))
}

/// Descriptors of one client; dropped, it has none.
#[derive(Debug)]
pub(crate) struct ClientDescriptors {
    budget: Arc<DescriptorBudget>,
    held: u64,
    /// Memory that is unmapped while the device still uses it.
    lingering: Vec<Region>,
    is_refusal_logged: bool,
}

impl ClientDescriptors {
    pub(crate) const fn new(budget: Arc<DescriptorBudget>) -> Self {
        Self { budget, held: 0, lingering: Vec::new(), is_refusal_logged: false }
    }

    /// One more. `false`: there is none for this client.
    pub(crate) fn take(&mut self) -> bool {
        let is_used = |region: &Region| !region.is_last();
        let before = self.lingering.len();
        self.lingering.retain(is_used);
        self.give_back(before - self.lingering.len());
        let is_taken = self.budget.take(self.held);
        if is_taken {
            self.held += 1;
        } else if !self.is_refusal_logged {
            self.is_refusal_logged = true;
            let (held, all, most) = (self.held, self.budget.used(), self.budget.most);
            tracing::warn!(
                held,
                all,
                most,
                "a client gets no more memory mapped: the descriptors that clients may hold are used up (LimitNOFILE, --mappings)"
            );
        }
        is_taken
    }

    #[cfg(test)]
    pub(crate) fn used(&self) -> u64 {
        self.budget.used()
    }

    /// `count` of them are closed.
    pub(crate) fn give_back(&mut self, count: usize) {
        let count = self.held.min(count as u64);
        self.held -= count;
        self.budget.give_back(count);
    }

    /// Its descriptor is closed when the device lets it go.
    pub(crate) fn give_back_with(&mut self, region: Region) {
        if region.is_last() { self.give_back(1) } else { self.lingering.push(region) }
    }
}

impl Drop for ClientDescriptors {
    fn drop(&mut self) {
        self.budget.give_back(self.held);
    }
}

/// One of so many parts of the whole are shares that each client has for itself.
const SHARED_PARTS: u64 = 4;
/// Descriptors of the daemon: sockets, the node's ports and memory, files that are read now and then.
const PROCESS_RESERVE: u64 = 192;
/// Descriptors of a client besides its memory and vectors: its socket, what wakes its threads, doorbell memory, and those of a
/// message.
const CLIENT_RESERVE: u64 = 16;
/// Descriptors with which a client can do something: its rings, some segments, some vectors.
const LEAST: u64 = 32;
/// More than a process needs: the limit may be none.
const LIMIT_MAX: u64 = 1 << 24;

#[cfg(test)]
mod tests {
    use urma_mem::Pages;

    use super::*;

    #[test]
    fn no_client_takes_what_others_always_have() {
        let budget = DescriptorBudget::new(64, 4);
        let mut all: Vec<_> = (0..4).map(|_| ClientDescriptors::new(Arc::clone(&budget))).collect();
        let take_all = |client: &mut ClientDescriptors| (0..100).filter(|_| client.take()).count();
        // Three quarters; and each of the others has a quarter of the last one.
        assert_eq!(take_all(&mut all[0]), 48);
        for other in &mut all[1..] {
            assert_eq!(take_all(other), 4);
        }
        assert_eq!((budget.used(), budget.most()), (60, 64));
        all[0].give_back(10);
        assert_eq!(take_all(&mut all[1]), 0, "the shares were in use in place of the rest");
        all.remove(0);
        assert_eq!(budget.used(), 12);
        assert_eq!(take_all(&mut all[0]), 36);
        all[0].give_back(1000);
        assert_eq!(budget.used(), 8, "no more than it has");
        drop(all);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_process_keeps_what_it_needs_by_itself() {
        // 192 of the process, 16 and at least 32 more of each client.
        for (limit, clients, wanted) in [
            (0, 0, (0, None)),
            (200, 0, (8, None)),
            (192 + 16 + 32, 1, (32, None)),
            (192 + 16 + 31, 1, (31, Some(240))),
            (1024, 8, (704, None)),
            (192 + 16 * 64, 64, (0, Some(3264))),
            (64, 2, (0, Some(288))),
            (u64::MAX, 4, (u64::MAX - 256, None)),
        ] {
            assert_eq!(of_limit(limit, clients), wanted, "{limit} for {clients}");
        }
        let budget = DescriptorBudget::of_process(3);
        let limits = getrlimit(Resource::Nofile);
        assert_eq!(limits.current, limits.maximum, "the process takes what it may");
        let all = limits.maximum.unwrap_or(u64::MAX).min(1 << 24);
        assert_eq!(budget.most(), all.saturating_sub(192 + 16 * 3));
        assert_eq!(budget.share, budget.most() / 4 / 3);
        // A budget without clients divides by none.
        assert_eq!(DescriptorBudget::new(40, 0).share, 10);
    }

    #[test]
    fn memory_that_the_device_still_uses_is_held() {
        let budget = DescriptorBudget::new(2, 1);
        let mut client = ClientDescriptors::new(Arc::clone(&budget));
        let region = Region::shared(4096, Pages::Base).unwrap();
        assert!(client.take());
        let window = region.sub(0, 64).unwrap();
        client.give_back_with(region);
        assert_eq!(budget.used(), 1);
        assert!(client.take() && !client.take());
        drop(window);
        assert!(client.take());
        client.give_back_with(Region::shared(4096, Pages::Base).unwrap());
        assert_eq!(budget.used(), 1);
    }
}
