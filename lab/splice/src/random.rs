//! Numbers from a seed: `SplitMix64`.
//!
//! - owns: the generator. takes: a seed. gives: numbers. must not: have another source.

/// `SplitMix64`, whose state is the seed.
#[derive(Clone, Copy, Debug)]
pub struct EngineRandom(u64);

impl EngineRandom {
    /// A generator whose numbers follow from `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`, from the high 32 bits.
    pub const fn below(&mut self, n: u64) -> u64 {
        ((self.next() >> 32) * n) >> 32
    }
}

/// Draws that are true for a part of all: one per call.
#[derive(Clone, Copy, Debug)]
pub struct Chance {
    random: EngineRandom,
    threshold: u64,
}

impl Chance {
    /// True for the part `part` (0 to 1) of all draws. A part of 0 draws nothing.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a part is 0 to 1, which callers check"
    )]
    pub fn new(seed: u64, part: f64) -> Self {
        Self { random: EngineRandom::new(seed), threshold: (part * 4_294_967_296.0).floor() as u64 }
    }

    /// Whether the next draw is one of the part.
    pub const fn draw(&mut self) -> bool {
        self.threshold > 0 && (self.random.next() >> 32) < self.threshold
    }
}
