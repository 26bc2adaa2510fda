//! The behaviours: one function each, listed with its statement, flow and scope.
//!
//! *Owns*: the table. *Must not*: assert times; write a status by hand.

mod atomics;
mod caps;
mod completions;
mod counters;
mod events;
mod groups;
mod messages;
mod peers;
mod poison;
mod queues;
mod reads;
mod receiving;
mod references;
mod resets;
mod scope;
mod segments;
mod signals;
mod states;
mod targets;
mod tokens;
mod unreliable;
mod writes;
mod writes_more;

use urma_tests::world::{Outcome, Setup};

/// Whether a behaviour is about what works or about what goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flow {
    Good,
    /// What goes wrong and is answered.
    Bad,
}

impl Flow {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Bad => "bad",
        }
    }
}

#[derive(Debug)]
pub(crate) struct Behaviour {
    pub(crate) name: &'static str,
    pub(crate) says: &'static str,
    pub(crate) flow: Flow,
    pub(crate) applies: fn(Setup) -> bool,
    pub(crate) run: fn(Setup) -> Outcome,
}

/// `Flow scope name: "statement";` each; `scope` is a function of [`scope`].
macro_rules! behaviours {
    ($($flow:ident $scope:ident $name:ident: $says:literal;)*) => {
        pub(super) const ALL: &[super::Behaviour] = &[$(super::Behaviour {
            name: stringify!($name),
            says: $says,
            flow: super::Flow::$flow,
            applies: super::scope::$scope,
            run: $name,
        },)*];
    };
}
use behaviours;

pub(crate) fn all() -> impl Iterator<Item = &'static Behaviour> {
    [
        writes::ALL,
        writes_more::ALL,
        reads::ALL,
        atomics::ALL,
        messages::ALL,
        receiving::ALL,
        unreliable::ALL,
        completions::ALL,
        queues::ALL,
        states::ALL,
        groups::ALL,
        events::ALL,
        signals::ALL,
        references::ALL,
        segments::ALL,
        poison::ALL,
        tokens::ALL,
        targets::ALL,
        caps::ALL,
        peers::ALL,
        resets::ALL,
        counters::ALL,
    ]
    .into_iter()
    .flatten()
}

/// Whether a behaviour can be tried by ends that sleep on their descriptors: it does not arm their JFCs itself, and its
/// device does not end under them.
pub(crate) fn can_sleep(name: &str) -> bool {
    let awake = [events::ALL, signals::ALL, references::ALL, resets::ALL];
    let is_in = |list: &[Behaviour]| list.iter().any(|behaviour| behaviour.name == name);
    !awake.into_iter().any(is_in) && name != "flush_takes_flushed_requests_only"
}

/// Sizes at which something changes: words, blocks, pages, packets.
pub(super) const SIZES: [usize; 28] = [
    1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 127, 255, 256, 257, 1023, 1024, 1025, 4095,
    4096, 4097, 8193, 16384, 65535, 65539,
];
