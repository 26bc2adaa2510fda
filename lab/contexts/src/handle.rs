//! Handles: the 32-bit names of contexts.
//!
//! *Owns*: kind in bits 28 to 31, index below. *Gives*: sizes of each kind. *Must not*: say where a context is.

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
