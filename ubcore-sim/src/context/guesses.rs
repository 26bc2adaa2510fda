//! How fast one function of a device may be refused access to what others have.
//!
//! *Owns*: refusals that are left. *Takes*: refusals, time. *Gives*: whether another access is looked at. *Must not*: show
//! by its answer whether a token that came too early was right.

use urma_mem::sync::{AtomicU32, Ordering};

/// Refusals that are left: [`GUESSES`] at once, then one more for each refill.
#[derive(Debug)]
pub(crate) struct GuessBudget(AtomicU32);

impl Default for GuessBudget {
    fn default() -> Self {
        Self(AtomicU32::new(GUESSES))
    }
}

impl GuessBudget {
    /// Whether an access to a segment of another function is looked at: else it is refused, whatever it shows.
    pub(crate) fn may_try(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// An access was refused.
    #[cold]
    pub(crate) fn count_refusal(&self) {
        let take = |left: u32| left.checked_sub(1);
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
    }

    /// One more; called each [`REFILL_NS`].
    pub(crate) fn refill(&self) {
        let more = |left: u32| (left < GUESSES).then_some(left + 1);
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    }
}

/// Refusals at once, as of a node (`exchange/target/guesses.rs`).
const GUESSES: u32 = 32;
/// Time until one more, in nanoseconds.
pub(crate) const REFILL_NS: u64 = 250_000_000;
