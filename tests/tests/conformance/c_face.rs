//! What the suite tries through the C functions.
//!
//! *Owns*: the behaviours that C has no words for, each with its reason; those whose refusal comes from
//! urma-core before the C function is called, which a C program tries in C.

use urma_core::TransportMode;
use urma_tests::world::{Face, Setup};

/// The C program that makes the refused calls in C, a function for each behaviour.
pub(crate) const REFUSALS: &str = include_str!("../../../liburma/tests/c/refusals.c");

/// Behaviours whose refusal is one of urma-core's rules, in the order of the C program.
pub(crate) const REFUSED_IN_C: &[&str] = &[
    "write_with_too_many_sges_is_refused",
    "write_with_too_much_inline_is_refused",
    "write_notify_misaligned_is_refused",
    "read_with_inline_is_refused",
    "read_with_too_many_sges_is_refused",
    "atomic_misaligned_is_refused",
    "atomic_of_wrong_size_is_refused",
    "send_with_too_many_sges_is_refused",
    "send_with_both_orders_is_refused",
    "batch_with_a_bad_request",
    "local_range_outside_is_refused",
    "one_byte_beyond_the_end",
    "one_byte_before_the_start",
    "sizes_beyond_the_limit",
    "shared_jfr_outlives_its_jetties",
    "jfc_of_a_queue_stays",
    "jfce_of_a_jfc_stays",
    "token_id_of_a_segment_stays",
    "arm_without_jfce_is_refused",
    "event_vectors_beyond_the_limit",
    "depths_beyond_the_limit",
    "sges_beyond_the_limit",
    "inline_beyond_the_limit",
    "timers_beyond_the_limit",
    "id_beyond_20_bits_is_refused",
    "order_type_must_fit",
    "rc_needs_a_jetty",
    "rx_threshold_beyond_depth_is_refused",
    "jfr_cannot_be_suspended",
    "group_outlives_its_members",
    "group_has_a_limit",
    "access_mask_rules",
    "impossible_iova_is_refused",
    "range_that_wraps_is_refused",
    "path_type_must_fit",
    "zero_eid_is_refused",
    "advise_needs_rm",
    "bind_needs_rc",
    "bind_needs_equal_order",
    "rc_unbind_of_unbound_is_refused",
    "rc_unbound_post_is_refused",
    "mode_of_target_must_fit",
    "um_refuses_one_sided",
    "um_refuses_longer_messages",
];

pub(crate) const LEFT_OUT: &[(&str, &str)] = &[
    (
        "mapping_of_a_readable_segment_takes_no_stores",
        "a store through a read-only mapping ends a C program by a signal.",
    ),
    ("token_id_has_one_segment", "in C a token id may have several segments, as in UMDK."),
    ("rc_bind_twice_is_refused", "in C a second bind to the same target succeeds, as in UMDK."),
    (
        "local_only_is_not_imported",
        "an import in C is for what the owner granted; LOCAL_ONLY cannot be requested there.",
    ),
    ("query_shows_fill", "the attributes of queues in C have no fill."),
    (
        "rc_other_target_is_refused",
        "a bound RC jetty of C has one target, whatever its requests name.",
    ),
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
