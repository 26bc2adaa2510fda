//! Constant-time comparison of tokens.
//!
//! *Owns*: the comparison. *Takes*: the token of a segment or queue, and what a request shows. *Gives*: whether they
//! match. *Must not*: take a time that depends on where two tokens differ.

use subtle::{Choice, ConstantTimeEq};

/// Whether a request that shows `shown` may use an object with token `guard`.
#[inline(always)]
pub(crate) fn fits(guard: Option<u32>, shown: Option<u32>) -> bool {
    let Some(guard) = guard else { return true };
    let given = Choice::from(u8::from(shown.is_some()));
    (given & guard.ct_eq(&shown.unwrap_or_default())).into()
}

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
