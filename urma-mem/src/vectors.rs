//! Loops compiled once more for wider vectors than every processor has, and chosen when the program runs.
//!
//! Owns: the question which instructions the processor has. Takes: work whose loops the compiler vectorizes. Gives: its result, which does
//! not depend on the choice. Must not: contain a loop.
#![expect(unsafe_code, reason = "a function for instructions that not every processor has")]

/// Work on bytes, the same on every processor. `run` and all that it calls want `#[inline(always)]`: what is not inlined is
/// compiled for any processor.
pub trait VectorWork {
    /// What the work gives back.
    type Output;

    /// Does all of the work.
    fn run(self) -> Self::Output;
}

/// Does the work with vectors of 32 bytes where the processor has AVX2, else as [`VectorWork::run`] itself.
#[inline]
pub fn run_wide<W: VectorWork>(work: W) -> W::Output {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has the one feature that the function needs, as it has just said.
        return unsafe { with_avx2(work) };
    }
    work.run()
}

/// The work, compiled for AVX2. Multiplications and additions are not fused: that would be another feature.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn with_avx2<W: VectorWork>(work: W) -> W::Output {
    work.run()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Sum<'a>(&'a [u32]);

    impl VectorWork for Sum<'_> {
        type Output = u32;

        #[inline(always)]
        fn run(self) -> u32 {
            self.0.iter().fold(0, |sum, value| sum.wrapping_add(*value))
        }
    }

    #[test]
    fn the_result_is_that_of_the_work() {
        let values: Vec<u32> = (0..1000).map(|at| at * at).collect();
        assert_eq!(run_wide(Sum(&values)), Sum(&values).run());
    }
}
