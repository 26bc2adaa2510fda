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

/// Every behaviour: subject, file, behaviours.
pub(crate) const SUBJECTS: &[(&str, &str, &[Behaviour])] = &[
    ("WRITE: placement, sizes, SGE lists, inline data, order.", "writes", writes::ALL),
    (
        "WRITE with something after it: immediate, notify, atomic add.",
        "writes_more",
        writes_more::ALL,
    ),
    ("READ: sizes, scatter, order against writes.", "reads", reads::ALL),
    ("Atomics: each operation in both sizes, and many at a time.", "atomics", atomics::ALL),
    ("SEND in its kinds: payload, immediates, invalidation, sender.", "messages", messages::ALL),
    ("Receives: scatter, length, receiver not ready, shared JFRs.", "receiving", receiving::ALL),
    ("UM: messages without acknowledgement.", "unreliable", unreliable::ALL),
    (
        "Completions: order, exactly once, unsignalled streams, full queues, batches.",
        "completions",
        completions::ALL,
    ),
    ("Queues as objects: ids, queries, deletion, drops.", "queues", queues::ALL),
    ("States: suspend, error, reset, flush, and what peers see of them.", "states", states::ALL),
    ("Jetty groups: one name, several jetties.", "groups", groups::ALL),
    ("Events: JFCE and asynchronous, their descriptors, arming.", "events", events::ALL),
    (
        "Signals that come while a thread waits: EINTR ends the wait with what is ready.",
        "signals",
        signals::ALL,
    ),
    (
        "Reference rules: what may not be deleted, and what may not be mixed.",
        "references",
        references::ALL,
    ),
    ("Segments: registration, access, bounds, revocation, mapping.", "segments", segments::ALL),
    ("Memory faults: pages that the device cannot read.", "poison", poison::ALL),
    ("Token policies of segments and queues.", "tokens", tokens::ALL),
    ("Targets: import, bind, advise, modes, orders.", "targets", targets::ALL),
    ("Limits of the device: each at the limit and one beyond.", "caps", caps::ALL),
    ("Peers that close, come back, or are many.", "peers", peers::ALL),
    (
        "A device that is reset under load: every request ends once, waits end, the device comes back.",
        "resets",
        resets::ALL,
    ),
    ("Counters: which path carried what, and what was refused.", "counters", counters::ALL),
];

pub(crate) fn all() -> impl Iterator<Item = &'static Behaviour> {
    SUBJECTS.iter().flat_map(|(_, _, behaviours)| *behaviours)
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
