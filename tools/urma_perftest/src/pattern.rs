//! The pattern that `--verify` writes and checks.
//!
//! *Owns*: the byte at (seed, iteration, offset), the poison, the report of the first wrong byte.
//! *Takes*: regions and ranges. *Gives*: filled memory, or what is wrong with it.
//! *Must not*: depend on queues.

use urma::{OutOfBounds, Region};

/// What a receive buffer holds before a message comes; [`Pattern`] never depends on it.
pub(crate) const POISON: u8 = 0xa5;

/// Bytes checked or filled per step; a multiple of 8.
const STEP: usize = 4096;

/// The content of one message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Pattern {
    /// Chosen by the user; both sides have the same one.
    pub(crate) seed: u64,
    /// Which message, counted from 0 over all jetties.
    pub(crate) iteration: u64,
}

/// A byte that is not what was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum Mismatch {
    /// The first wrong byte of a message.
    #[error(
        "message {iteration}: byte {offset} is {found:#04x}, expected {expected:#04x}{}",
        if *.found == POISON { " (poison: nothing was placed there)" } else { "" }
    )]
    Byte {
        /// Number of the message.
        iteration: u64,
        /// The byte's offset in it.
        offset: usize,
        /// Byte that was found.
        found: u8,
        /// Byte that was expected.
        expected: u8,
    },
    /// A byte outside of the message was changed.
    #[error("message {iteration}: byte {offset} after its end was overwritten with {found:#04x}")]
    Beyond {
        /// Number of the message.
        iteration: u64,
        /// Offset from the message's end.
        offset: usize,
        /// Byte that was found.
        found: u8,
    },
    /// A range outside of its buffer.
    #[error(transparent)]
    Range(#[from] OutOfBounds),
}

impl Pattern {
    /// The 8 bytes from `offset` on; `offset` is a multiple of 8.
    fn word(self, offset: usize) -> [u8; 8] {
        // SplitMix64's finalizer over the three coordinates: every bit depends on each of them.
        let mut word = self
            .seed
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .wrapping_add(self.iteration.wrapping_mul(0xd1b5_4a32_d192_ed03))
            .wrapping_add(offset as u64);
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ word >> 31).to_le_bytes()
    }

    /// Writes the bytes from `offset` of the message on into `bytes`; `offset` is a multiple of 8.
    fn bytes(self, offset: usize, bytes: &mut [u8]) {
        for (index, chunk) in bytes.chunks_mut(8).enumerate() {
            chunk.copy_from_slice(&self.word(offset + index * 8)[..chunk.len()]);
        }
    }

    /// Writes the message of `len` bytes to `at`.
    pub(crate) fn fill(self, region: &Region, at: usize, len: usize) -> Result<(), OutOfBounds> {
        let mut step = [0; STEP];
        for offset in (0..len).step_by(STEP) {
            let part = &mut step[..STEP.min(len - offset)];
            self.bytes(offset, part);
            region.write(at + offset, part)?;
        }
        Ok(())
    }

    /// Compares the `len` bytes at `at` with the message.
    ///
    /// # Errors
    /// The first byte that differs.
    pub(crate) fn check(self, region: &Region, at: usize, len: usize) -> Result<(), Mismatch> {
        let (mut want, mut have) = ([0; STEP], [0; STEP]);
        for offset in (0..len).step_by(STEP) {
            let part = STEP.min(len - offset);
            self.bytes(offset, &mut want[..part]);
            region.read(at + offset, &mut have[..part])?;
            let wrong = (0..part).find(|index| want[*index] != have[*index]);
            if let Some(index) = wrong {
                let (found, expected) = (have[index], want[index]);
                let (iteration, offset) = (self.iteration, offset + index);
                return Err(Mismatch::Byte { iteration, offset, found, expected });
            }
        }
        Ok(())
    }

    /// Checks that the `len` bytes at `at`, behind a message, are still poison.
    ///
    /// # Errors
    /// The first byte that is not.
    pub(crate) fn check_beyond(
        self,
        region: &Region,
        at: usize,
        len: usize,
    ) -> Result<(), Mismatch> {
        for offset in 0..len {
            let found = region.load_u8(at + offset)?;
            if found != POISON {
                return Err(Mismatch::Beyond { iteration: self.iteration, offset, found });
            }
        }
        Ok(())
    }
}

/// Fills `len` bytes at `at` with poison.
pub(crate) fn poison(region: &Region, at: usize, len: usize) -> Result<(), OutOfBounds> {
    let step = [POISON; STEP];
    for offset in (0..len).step_by(STEP) {
        region.write(at + offset, &step[..STEP.min(len - offset)])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const A: Pattern = Pattern { seed: 1, iteration: 7 };

    #[test]
    fn a_filled_message_passes() {
        let region = Region::private(16384).unwrap();
        poison(&region, 0, 16384).unwrap();
        A.fill(&region, 3, 10_001).unwrap();
        A.check(&region, 3, 10_001).unwrap();
        A.check_beyond(&region, 3 + 10_001, 64).unwrap();
    }

    #[test]
    fn poison_is_not_a_message() {
        let region = Region::private(64).unwrap();
        poison(&region, 0, 64).unwrap();
        let wrong = A.check(&region, 0, 64).unwrap_err();
        assert!(matches!(wrong, Mismatch::Byte { offset: 0, found: POISON, .. }), "{wrong}");
        assert!(wrong.to_string().contains("nothing was placed there"));
    }

    /// Where steps of the comparison meet, and at the ends.
    #[test]
    fn every_byte_at_a_boundary_is_compared() {
        let region = Region::private(3 * STEP).unwrap();
        for len in [1, 7, 8, 9, STEP - 1, STEP, STEP + 1, 2 * STEP, 2 * STEP + 5] {
            A.fill(&region, 0, len).unwrap();
            let bounds = [0, 7, 8, STEP - 1, STEP, 2 * STEP - 1, 2 * STEP, len - 1];
            for at in bounds.into_iter().filter(|at| *at < len) {
                let right = region.load_u8(at).unwrap();
                region.store_u8(at, right ^ 0x80).unwrap();
                let wrong = A.check(&region, 0, len);
                assert!(
                    matches!(wrong, Err(Mismatch::Byte { offset, .. }) if offset == at),
                    "byte {at} of {len}: {wrong:?}"
                );
                region.store_u8(at, right).unwrap();
            }
            A.check(&region, 0, len).unwrap();
        }
    }

    #[test]
    fn a_byte_beyond_the_end_is_found() {
        let region = Region::private(64).unwrap();
        poison(&region, 0, 64).unwrap();
        region.store_u8(40, 0).unwrap();
        let beyond = A.check_beyond(&region, 32, 16);
        assert_eq!(beyond, Err(Mismatch::Beyond { iteration: 7, offset: 8, found: 0 }));
    }

    #[test]
    fn outside_the_buffer_is_an_error() {
        let region = Region::private(64).unwrap();
        assert!(matches!(A.check(&region, 60, 8), Err(Mismatch::Range(_))));
        assert!(A.fill(&region, 60, 8).is_err());
    }

    proptest! {
        /// The planted fault: whichever bit of whichever byte flips, it is found, and named.
        #[test]
        fn a_flipped_bit_is_found(seed: u64, iteration: u64, len in 1_usize..9000, at in 0_usize..9000,
                                  bit in 0_u8..8) {
            let at = at % len;
            let pattern = Pattern { seed, iteration };
            let region = Region::private(9000).unwrap();
            pattern.fill(&region, 0, len).unwrap();
            let expected = region.load_u8(at).unwrap();
            let found = expected ^ 1 << bit;
            region.store_u8(at, found).unwrap();
            let wrong = Mismatch::Byte { iteration, offset: at, found, expected };
            prop_assert_eq!(pattern.check(&region, 0, len), Err(wrong));
        }

        /// A stale, foreign or shifted message is not taken for this one.
        #[test]
        fn another_message_is_found(seed: u64, iteration: u64, other in 1_u64..1000) {
            let region = Region::private(64).unwrap();
            Pattern { seed, iteration: iteration.wrapping_add(other) }.fill(&region, 0, 64).unwrap();
            let pattern = Pattern { seed, iteration };
            prop_assert!(pattern.check(&region, 0, 64).is_err());
        }
    }
}
