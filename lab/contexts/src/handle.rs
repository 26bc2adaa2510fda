//! Handles: the 32-bit names of contexts, with the kind in bits 28 to 31 and an index below.
//!
//! Their hashes, and random numbers of a seed, are the same on every machine and in every process. A handle does not
//! say where its context is.

use std::hash::Hasher;

use thiserror::Error;

/// What a context describes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum ContextKind {
    /// An open device with one of its EIDs (the seed's PD).
    Context = 0,
    /// A registered segment (the seed's MR).
    Segment = 1,
    /// A JFC (the seed's CQ).
    Jfc = 2,
    /// A jetty, JFS or JFR (the seed's QP).
    Queue = 3,
    /// A transport path to a node.
    Tp = 4,
    /// A page of a segment's translation.
    Page = 5,
}

impl ContextKind {
    /// Every kind, in the order of its number.
    pub const ALL: [Self; 6] =
        [Self::Context, Self::Segment, Self::Jfc, Self::Queue, Self::Tp, Self::Page];

    /// Returns the kind of this number; `None` from 6 on.
    #[must_use]
    pub fn of(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// Name of the kind in counters.
    #[must_use]
    pub const fn name(self) -> &'static str {
        ["context", "segment", "jfc", "queue", "tp", "page"][self as usize]
    }

    /// Bytes of a token.
    #[must_use]
    pub const fn token_len(self) -> usize {
        [16, 24, 16, 24, 24, 16][self as usize]
    }

    /// Bytes of its descriptor in host memory.
    #[must_use]
    pub const fn descriptor_len(self) -> u32 {
        [64, 64, 64, 256, 256, 8][self as usize]
    }
}

/// A 32-bit name of a context.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContextHandle(u32);

impl ContextHandle {
    /// Joins kind and index. `None`: the index has more than 28 bits.
    #[must_use]
    pub const fn new(kind: ContextKind, index: u32) -> Option<Self> {
        if index > INDEX_MAX { None } else { Some(Self((kind as u32) << INDEX_BITS | index)) }
    }

    /// Reads the 32 bits. `None`: there is no such kind.
    #[must_use]
    pub fn from_bits(bits: u32) -> Option<Self> {
        let kind = u8::try_from(bits >> INDEX_BITS).ok()?;
        ContextKind::of(kind).map(|_| Self(bits))
    }

    /// Returns the 32 bits.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Returns what the context describes.
    #[must_use]
    pub const fn kind(self) -> ContextKind {
        ContextKind::ALL[(self.0 >> INDEX_BITS) as usize]
    }

    /// Returns the index among its kind.
    #[must_use]
    pub const fn index(self) -> u32 {
        self.0 & INDEX_MAX
    }
}

impl std::fmt::Debug for ContextHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.kind().name(), self.index())
    }
}

/// A value that does not keep its rule.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{field} is {value}: {rule}")]
pub struct ContextValueError {
    /// Name of the field.
    pub field: &'static str,
    /// Value that was given.
    pub value: u64,
    /// What it must be.
    pub rule: String,
}

impl ContextValueError {
    /// Names a field, its value and its rule.
    pub(crate) fn new(field: &'static str, value: u64, rule: impl Into<String>) -> Self {
        Self { field, value, rule: rule.into() }
    }
}

/// Bits of an index.
const INDEX_BITS: u32 = 28;
/// Largest index of a handle.
pub const INDEX_MAX: u32 = (1 << INDEX_BITS) - 1;

/// Spreads a 64-bit number over 64 bits (the finalizer of SplitMix64).
#[must_use]
pub(crate) const fn mix(number: u64) -> u64 {
    let z = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Spreads a handle over 64 bits.
#[must_use]
pub(crate) const fn spread(handle: u32) -> u64 {
    mix((handle as u64).wrapping_add(0x9e37_79b9_7f4a_7c15))
}

/// Scatters a handle over 32 bits: two multiplications of 32 bits, for tables whose answers are estimates.
///
/// One multiplication is not enough: on traces of blocks in a row our policy then has 0.05 points less.
#[must_use]
#[inline]
pub(crate) const fn scatter(handle: u32) -> u32 {
    let once = (handle ^ (handle >> 16)).wrapping_mul(0x7feb_352d);
    let twice = (once ^ (once >> 15)).wrapping_mul(0x846c_a68b);
    twice ^ (twice >> 16)
}

/// A hasher for maps by handle.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct HandleHasher(u64);

impl Hasher for HandleHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32(u32::from(*byte));
        }
    }

    fn write_u32(&mut self, handle: u32) {
        self.0 = spread(handle) ^ self.0.rotate_left(7);
    }

    fn write_u64(&mut self, id: u64) {
        self.0 = mix(id.wrapping_add(0x9e37_79b9_7f4a_7c15)) ^ self.0.rotate_left(7);
    }
}

/// SplitMix64: random numbers from a seed.
#[derive(Clone, Debug)]
pub(crate) struct SplitMix64(pub(crate) u64);

impl SplitMix64 {
    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `bound`.
    pub(crate) const fn below(&mut self, bound: u64) -> u64 {
        ((self.next() >> 32) * bound) >> 32
    }
}
