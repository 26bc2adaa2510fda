//! What the suite tries through the C functions.
//!
//! *Owns*: the behaviours that C has no words for, each with its reason.

/// Name and reason.
pub(crate) const LEFT_OUT: &[(&str, &str)] = &[
    (
        "mapping_of_a_readable_segment_takes_no_stores",
        "a store through a read-only mapping ends a C program by a signal.",
    ),
    ("query_shows_fill", "the attributes of queues in C have no fill."),
    ("send_one_mebibyte", "a SEND has at most 65536 bytes in C."),
    ("segments_beyond_the_limit", "the attributes of devices in C have no number of segments."),
];

/// Whether a behaviour can be had through C.
pub(crate) fn has(name: &str) -> bool {
    LEFT_OUT.iter().all(|(left_out, _)| *left_out != name)
}
