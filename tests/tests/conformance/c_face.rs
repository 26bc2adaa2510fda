//! What the suite tries through the C functions.
//!
//! *Owns*: the behaviours that C has no words for, each with its reason; which bad-flow behaviours
//! were answered by C functions, and not by the Rust API above them.

use std::{
    collections::BTreeMap,
    io::Write,
    sync::{Mutex, PoisonError},
};

use urma_c_adapter::Answers;
use urma_core::TransportMode;
use urma_tests::world::{Face, Setup};

/// Bad-flow behaviours that C functions must have answered in a whole run.
const ANSWERED_MIN: usize = 100;

/// Counts by behaviour, all setups together.
static ANSWERED: Mutex<BTreeMap<&str, Answers>> = Mutex::new(BTreeMap::new());

/// A bad-flow behaviour ran through C; what C said no to meanwhile.
pub(crate) fn note(name: &'static str, answers: Answers) {
    let mut answered = ANSWERED.lock().unwrap_or_else(PoisonError::into_inner);
    let sum = answered.entry(name).or_default();
    sum.refused += answers.refused;
    sum.failed += answers.failed;
}

/// Says who answered.
///
/// # Panics
/// Too few were answered by C.
pub(crate) fn ensure_enough_is_refused() {
    let answered = ANSWERED.lock().unwrap_or_else(PoisonError::into_inner);
    let refused = answered.values().filter(|of| of.refused != 0).count();
    let failed = answered.values().filter(|of| of.refused == 0 && of.failed != 0).count();
    let neither = answered.iter().filter(|(_, of)| of.refused == 0 && of.failed == 0);
    let neither: Vec<&str> = neither.map(|(name, _)| *name).collect();
    let _ = writeln!(
        std::io::stdout(),
        "bad-flow behaviours through C: {refused} refused by a C function, {failed} ended by an error \
         completion only; answered elsewhere: {}\n",
        neither.join(", ")
    );
    assert!(
        refused + failed >= ANSWERED_MIN,
        "C answered {refused} + {failed} bad-flow behaviours"
    );
}

/// Name and reason.
pub(crate) const LEFT_OUT: &[(&str, &str)] = &[
    (
        "mapping_of_a_readable_segment_takes_no_stores",
        "a store through a read-only mapping ends a C program by a signal.",
    ),
    ("token_id_has_one_segment", "in C a token id may have several segments, as in the original."),
    (
        "rc_bind_twice_is_refused",
        "in C a second bind to the same target succeeds, as in the original.",
    ),
    (
        "local_only_is_not_imported",
        "an import in C is for what the owner granted; LOCAL_ONLY is no wish there.",
    ),
    ("query_shows_fill", "the attributes of queues in C have no fill."),
    (
        "rc_other_target_is_refused",
        "a bound RC jetty of C has one target, whatever its requests name.",
    ),
    ("send_one_mebibyte", "a SEND has at most 65536 bytes in C."),
    ("segments_beyond_the_limit", "the attributes of devices in C have no number of segments."),
];

/// Whether a behaviour is tried in this setup, if it is one through C.
pub(crate) fn applies(name: &str, setup: Setup) -> bool {
    // See `rc_other_target_is_refused`.
    let is_unread = name == "mode_of_target_must_fit" && setup.mode == TransportMode::Rc;
    setup.face == Face::Rust || (has(name) && !is_unread)
}

/// Whether a behaviour can be had through C.
pub(crate) fn has(name: &str) -> bool {
    LEFT_OUT.iter().all(|(left_out, _)| *left_out != name)
}
