//! Numbers of objects that requests name.
//!
//! A number is never given twice, unlike an address, which another object gets as soon as one is dropped.

use urma_mem::sync::{AtomicU64, Ordering};

/// Number of an object; no other object of this process ever has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ObjectNumber(u64);

impl ObjectNumber {
    /// The number of no object.
    pub(crate) const NONE: Self = Self(0);

    /// A number for one more object.
    pub(crate) fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        // At a billion a second they last for 500 years.
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}
