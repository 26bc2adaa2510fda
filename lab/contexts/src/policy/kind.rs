//! Policies by name, and what each needs to begin.
//!
//! - owns: names, ranges of parameters. takes: a name, a capacity, the trace for the bounds. gives: policies.
//! - must not: decide anything of an access.

use std::sync::Arc;

use super::{
    Policy,
    lirs::Lirs,
    ours::Ours,
    published::{Arc2, Belady, HitRule, OneList, S3Fifo, Sieve, TwoQ},
    seed::{SeedLfu, SeedRule},
    w_tiny_lfu::WTinyLfu,
};

/// Most entries of a cache.
pub const CAPACITY_MAX: u32 = 1 << 24;

/// A replacement policy, known by its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PolicyKind {
    /// The handle that came first leaves first.
    Fifo,
    /// The least recently used handle leaves.
    Lru,
    /// FIFO that spares what was used, once.
    Clock,
    /// Least frequently used, the least recent of equals.
    Lfu,
    /// 2Q with a FIFO of a quarter.
    TwoQ,
    /// SIEVE: FIFO with a hand.
    Sieve,
    /// S3-FIFO with a small queue of a tenth.
    S3Fifo,
    /// ARC with ghosts of up to the capacity.
    Arc,
    /// LIRS with a queue of one hundredth.
    Lirs,
    /// W-TinyLFU with a window of one hundredth.
    WTinyLfu,
    /// The seed's rule with its parameters.
    Seed,
    /// The policy of this project.
    Ours,
    /// Belady's bound of policies that always insert.
    Opt,
    /// The bound of all policies.
    OptBypass,
}

/// Parameter of a policy that is refused: field, value and rule.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{field} is {value:?}, which has to be {want}")]
pub struct PolicyError {
    /// Name of the parameter that is refused.
    pub field: &'static str,
    /// The value that was given.
    pub value: String,
    /// The rule that would be kept.
    pub want: String,
}

impl PolicyKind {
    /// All policies, the bounds last.
    pub const ALL: [Self; 14] = [
        Self::Fifo,
        Self::Lru,
        Self::Clock,
        Self::Lfu,
        Self::TwoQ,
        Self::Sieve,
        Self::S3Fifo,
        Self::Arc,
        Self::Lirs,
        Self::WTinyLfu,
        Self::Seed,
        Self::Ours,
        Self::Opt,
        Self::OptBypass,
    ];

    /// Name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fifo => "fifo",
            Self::Lru => "lru",
            Self::Clock => "clock",
            Self::Lfu => "lfu",
            Self::TwoQ => "2q",
            Self::Sieve => "sieve",
            Self::S3Fifo => "s3fifo",
            Self::Arc => "arc",
            Self::Lirs => "lirs",
            Self::WTinyLfu => "wtinylfu",
            Self::Seed => "seed",
            Self::Ours => "ours",
            Self::Opt => "opt",
            Self::OptBypass => "opt-bypass",
        }
    }

    /// The policy of a name.
    pub fn named(name: &str) -> Result<Self, PolicyError> {
        let error = || {
            let names: Vec<&str> = Self::ALL.iter().map(|kind| kind.name()).collect();
            let want = format!("one of {}", names.join(", "));
            PolicyError { field: "policy", value: name.to_owned(), want }
        };
        Self::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(error)
    }

    /// Whether it has to know the trace.
    #[must_use]
    pub const fn is_bound(self) -> bool {
        matches!(self, Self::Opt | Self::OptBypass)
    }

    /// A policy of this kind for `capacity` slots, all empty.
    ///
    /// `next` has, for a bound, the position of the next access to the same handle by position, `u64::MAX` for none
    /// (`Trace::next_uses`); the others ignore it.
    pub fn build(
        self,
        capacity: u32,
        rule: SeedRule,
        next: &Arc<[u64]>,
    ) -> Result<Box<dyn Policy>, PolicyError> {
        check("capacity", capacity, 1..=CAPACITY_MAX)?;
        check("aging", rule.aging, 0..=1000)?;
        check("alpha", rule.alpha, 0..=16)?;
        check("admit", rule.admit, 0..=65535)?;
        Ok(match self {
            Self::Fifo => Box::new(OneList::new(HitRule::Fifo, capacity)),
            Self::Lru => Box::new(OneList::new(HitRule::Lru, capacity)),
            Self::Clock => Box::new(OneList::new(HitRule::Clock, capacity)),
            Self::Lfu => Box::new(SeedLfu::new(SeedRule::LFU, capacity)),
            Self::TwoQ => Box::new(TwoQ::new(capacity)),
            Self::Sieve => Box::new(Sieve::new(capacity)),
            Self::S3Fifo => Box::new(S3Fifo::new(capacity)),
            Self::Arc => Box::new(Arc2::new(capacity)),
            Self::Lirs => Box::new(Lirs::new(capacity)),
            Self::WTinyLfu => Box::new(WTinyLfu::new(capacity)),
            Self::Seed => Box::new(SeedLfu::new(rule, capacity)),
            Self::Ours => Box::new(Ours::new(capacity)),
            Self::Opt => Box::new(Belady::new(Arc::clone(next), false, capacity)),
            Self::OptBypass => Box::new(Belady::new(Arc::clone(next), true, capacity)),
        })
    }
}

fn check(
    field: &'static str,
    value: u32,
    range: std::ops::RangeInclusive<u32>,
) -> Result<(), PolicyError> {
    if range.contains(&value) {
        return Ok(());
    }
    let want = format!("{} to {}", range.start(), range.end());
    Err(PolicyError { field, value: value.to_string(), want })
}
