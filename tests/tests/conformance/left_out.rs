//! Behaviours that are not tried in some setups: RC jetties of the standard opcodes, the C functions, a device behind
//! a vfio-user socket.
//!
//! *Owns*: the lists, each behaviour with its reason; behaviours that C has no words for; those whose refusal comes from
//! urma-core before the C function is called, which a C program tries in C.

use ubcore_sim::{Doorbells, RcWire};
use urma_core::TransportMode;
use urma_tests::world::{Face, Setup};

const NO_OPCODE: &str = "the standard has no such operation.";
const ENDS: &str =
    "a refused request ends the connection for both sides, whose receives are flushed.";
const SILENT: &str =
    "a jetty that is gone, reset or in error is silent: the request ends as timed out.";
const NO_TOKEN: &str =
    "the token of a jetty is not in the packets; only the bound jetty is answered.";
const BIND_AGAIN: &str = "after an error both sides unbind and bind again.";
const ONE_REFUSAL: &str = "memory faults and unaligned atomics have no codes of their own.";
const BITS: &str = "an immediate has 32 bits.";
const TWO: &str = "both jetties of a failed connection are in error, here on one node.";
const PACKETS: &str = "requests go in packets on this host as well.";

/// Behaviours that are not tried, with the reason.
pub(crate) const STANDARD_LEFT_OUT: &[(&str, &str)] = &[
    ("async_descriptor_is_readable_while_unconsumed", TWO),
    ("async_descriptor_works_with_epoll", TWO),
    ("atomic_cas_hits", "atomics have 8 bytes."),
    ("atomic_cas_misses", "atomics have 8 bytes."),
    ("atomic_fetch_add", "atomics have 8 bytes."),
    ("atomic_fetch_and", NO_OPCODE),
    ("atomic_fetch_or", NO_OPCODE),
    ("atomic_fetch_sub", NO_OPCODE),
    ("atomic_fetch_xor", NO_OPCODE),
    ("atomic_on_odd_memory", ONE_REFUSAL),
    ("atomic_swap", NO_OPCODE),
    ("counters_count_refused_requests", PACKETS),
    ("counters_name_the_path_of_reads", PACKETS),
    ("counters_name_the_path_of_sends", PACKETS),
    ("counters_name_the_path_of_writes", PACKETS),
    ("deleted_target", SILENT),
    ("failed_request_suspends", BIND_AGAIN),
    ("flush_dma_follows_writes", NO_OPCODE),
    ("jetty_error_event", TWO),
    ("missing_token_is_refused", ENDS),
    ("notify_shows_both_tokens", NO_OPCODE),
    ("notify_without_grant", NO_OPCODE),
    ("one_byte_before_the_start", ENDS),
    ("one_byte_beyond_the_end", ENDS),
    ("poison_is_written_over", ONE_REFUSAL),
    ("poisoned_before_registration", ONE_REFUSAL),
    ("poisoned_target_is_not_read", ONE_REFUSAL),
    ("reset_jetty_works_again", BIND_AGAIN),
    ("right_token_opens", NO_OPCODE),
    ("send_imm_carries_64_bits", BITS),
    ("send_longer_than_the_receive", "the sender sees an invalid request."),
    ("send_to_a_jetty_in_error", SILENT),
    ("send_to_a_reset_jetty", SILENT),
    ("unknown_jetty", SILENT),
    ("write_atomic_adds", NO_OPCODE),
    ("write_atomic_adds_after_payload", NO_OPCODE),
    ("write_imm_places_and_completes", BITS),
    ("write_imm_shows_the_jetty_token", NO_TOKEN),
    ("write_imm_without_payload", BITS),
    ("write_notify_after_payload", NO_OPCODE),
    ("write_notify_every_size", NO_OPCODE),
    ("wrong_jetty_token_is_refused", NO_TOKEN),
    ("wrong_token_is_refused", ENDS),
];

/// Whether a behaviour is tried in this setup, if it is one of standard packets.
pub(crate) fn standard_applies(name: &str, setup: Setup) -> bool {
    setup.rc == RcWire::Urma || STANDARD_LEFT_OUT.iter().all(|(left_out, _)| *left_out != name)
}

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

pub(crate) const C_FACE_LEFT_OUT: &[(&str, &str)] = &[
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
pub(crate) fn c_face_applies(name: &str, setup: Setup) -> bool {
    // See `rc_other_target_is_refused`.
    let is_unread = name == "mode_of_target_must_fit" && setup.mode == TransportMode::Rc;
    setup.face == Face::Rust || (has(name) && !is_unread)
}

/// Whether a behaviour can be had through C.
pub(crate) fn has(name: &str) -> bool {
    C_FACE_LEFT_OUT.iter().all(|(left_out, _)| *left_out != name)
}

const PAGES: &str = "the other process reaches whole pages only.";
const NO_APERTURE: &str = "a peer's memory is in no window of the function.";
const RING: &str = "requests between two served nodes go by the ring.";
const COUNTERS: &str = "a function reads the counters of its own queues; refusals and the ring are counted by the node.";
const HOOK: &str = "a memory fault is planted by an address of the driver's process, which the device does not use.";

/// Behaviours that are not tried, with the reason.
pub(crate) const SERVED_LEFT_OUT: &[(&str, &str)] = &[
    ("atomic_on_odd_memory", PAGES),
    ("counters_count_refused_requests", COUNTERS),
    ("counters_name_the_path_of_reads", RING),
    ("counters_name_the_path_of_sends", COUNTERS),
    ("counters_name_the_path_of_writes", RING),
    ("mapping_left_after_unregister_reaches_no_memory", NO_APERTURE),
    ("mapping_of_a_readable_segment_takes_no_stores", NO_APERTURE),
    ("mapping_outlives_its_peer", NO_APERTURE),
    ("mapping_sees_both_ways", NO_APERTURE),
    ("mapping_with_wrong_token_is_refused", NO_APERTURE),
    ("poison_is_written_over", HOOK),
    ("poisoned_before_registration", HOOK),
    ("poisoned_source", HOOK),
    ("poisoned_target_is_not_read", HOOK),
    ("reused_token_id_is_not_the_old_segment", PAGES),
    ("unaligned_segment_works", PAGES),
];

const LATE: &str = "a message that arms again may pass after the event that it waits for, and brings a second one.";

/// Behaviours that are not tried where drivers ring by messages, beside those above: with shared doorbells the device
/// looks at the arm before it writes an event.
pub(crate) const LEFT_OUT_OF_REGISTERS: &[(&str, &str)] = &[("solicited_write_imm_fires", LATE)];

const MACHINE: &str = "the virtual machine has too little memory.";
const RESET: &str = "the behaviour resets the node, which is in another process.";

/// Behaviours that are not tried on functions that the kernel's VFIO has, beside those above.
pub(crate) const LEFT_OUT_OF_VFIO: &[(&str, &str)] = &[
    ("poison_ends_at_its_page", HOOK),
    ("reset_ends_every_request_once", RESET),
    ("reset_ends_waits", RESET),
    ("reset_makes_its_context_useless", RESET),
    ("sizes_beyond_the_limit", MACHINE),
];

/// Whether a behaviour is tried in this setup, if its devices are served.
pub(crate) fn served_applies(name: &str, setup: Setup) -> bool {
    let is_in = |list: &[(&str, &str)]| list.iter().any(|(left_out, _)| *left_out == name);
    if !setup.is_served && !setup.is_vfio {
        return true;
    }
    let by_messages = setup.is_vfio || setup.doorbells == Doorbells::Registers;
    !(is_in(SERVED_LEFT_OUT)
        || by_messages && is_in(LEFT_OUT_OF_REGISTERS)
        || setup.is_vfio && is_in(LEFT_OUT_OF_VFIO))
}
