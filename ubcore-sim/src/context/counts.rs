//! Counters: relaxed, cheap, summed when they are asked for.
//!
//! *Owns*: one cell per counter. *Takes*: what happened. *Gives*: values. *Must not*: order anything.

use udma_abi::counters::Counter;
use urma_mem::sync::{AtomicU64, Ordering};

/// One cell per [`Counter`].
#[derive(Debug)]
pub(crate) struct Counts(Box<[AtomicU64]>);

impl Counts {
    pub(crate) fn new() -> Self {
        Self(Counter::ALL.iter().map(|_| AtomicU64::new(0)).collect())
    }

    /// Adds from any thread.
    pub(crate) fn add(&self, counter: Counter, value: u64) {
        self.0[counter as usize].fetch_add(value, Ordering::Relaxed);
    }

    /// Adds to a counter that only the holder of the shared part changes.
    #[inline]
    pub(crate) fn add_alone(&self, counter: Counter, value: u64) {
        bump(&self.0[counter as usize], value);
    }

    pub(crate) fn value(&self, counter: Counter) -> u64 {
        self.0[counter as usize].load(Ordering::Relaxed)
    }
}

/// Counters of the fast path, per send queue: only its engine adds, so a load and a store replace a locked addition.
#[derive(Debug, Default)]
pub(crate) struct FastCounts {
    direct_requests: AtomicU64,
    direct_bytes: AtomicU64,
    fetched_requests: AtomicU64,
    fetched_bytes: AtomicU64,
    completions: AtomicU64,
    /// Direct requests whose completions the driver makes; they count as request and as completion.
    unreported: AtomicU64,
}

impl FastCounts {
    #[inline]
    pub(crate) fn direct(&self, bytes: u64) {
        self.direct_list(1, bytes);
    }

    /// Counts so many direct requests, with so many bytes in all.
    #[inline]
    pub(crate) fn direct_list(&self, requests: u64, bytes: u64) {
        bump(&self.direct_requests, requests);
        bump(&self.direct_bytes, bytes);
    }

    /// Counts a read through the kernel.
    #[inline]
    pub(crate) fn fetched(&self, bytes: u64) {
        bump(&self.fetched_requests, 1);
        bump(&self.fetched_bytes, bytes);
    }

    /// Counts a direct request whose completion the driver makes.
    #[inline(always)]
    pub(crate) fn unreported(&self, bytes: u64) {
        bump(&self.unreported, 1);
        bump(&self.direct_bytes, bytes);
    }

    #[inline]
    pub(crate) fn completion(&self) {
        bump(&self.completions, 1);
    }

    pub(crate) fn value(&self, counter: Counter) -> u64 {
        let cells = [
            (Counter::DirectRequests, &self.direct_requests),
            (Counter::DirectBytes, &self.direct_bytes),
            (Counter::KernelRequests, &self.fetched_requests),
            (Counter::KernelBytes, &self.fetched_bytes),
            (Counter::Completions, &self.completions),
        ];
        let cell = cells.iter().find(|(counted, _)| *counted == counter);
        let value = cell.map_or(0, |(_, cell)| cell.load(Ordering::Relaxed));
        let is_both = matches!(counter, Counter::DirectRequests | Counter::Completions);
        value + if is_both { self.unreported.load(Ordering::Relaxed) } else { 0 }
    }
}

#[inline]
fn bump(cell: &AtomicU64, by: u64) {
    cell.store(cell.load(Ordering::Relaxed) + by, Ordering::Relaxed);
}
