//! Tokens: the comparison in constant time, and how many refusals each function has for what others own.
//!
//! *Owns*: the comparison; refusals that are left. *Takes*: the token of a segment or queue, and what a request shows;
//! refusals, time. *Gives*: whether they match; whether another access is looked at. *Must not*: take a time that depends
//! on where two tokens differ; show by its answer whether a token that came too early was right.

use subtle::{Choice, ConstantTimeEq};
use urma_mem::sync::{AtomicU32, Ordering};

/// Whether a request that shows `shown` may use an object with token `guard`.
#[inline(always)]
pub(crate) fn fits(guard: Option<u32>, shown: Option<u32>) -> bool {
    let Some(guard) = guard else { return true };
    let given = Choice::from(u8::from(shown.is_some()));
    (given & guard.ct_eq(&shown.unwrap_or_default())).into()
}

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

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn every_bit_counts_and_nothing_shown_is_not_zero() {
        for guard in [0, 1, 0x8000_0000, u32::MAX] {
            assert!(fits(Some(guard), Some(guard)));
            assert!(!fits(Some(guard), None));
            assert!((0..32).all(|bit| !fits(Some(guard), Some(guard ^ 1 << bit))));
        }
        assert!(fits(None, None) && fits(None, Some(7)));
    }
}
