//! What a device behind a vfio-user socket does in another way.
//!
//! *Owns*: the behaviours that are not tried with it, each with its reason.

use ubcore_sim::Doorbells;
use urma_tests::world::Setup;

const PAGES: &str = "the other process reaches whole pages only.";
const NO_APERTURE: &str = "a peer's memory is in no window of the function.";
const RING: &str = "requests between two served nodes go by the ring.";
const COUNTERS: &str = "a function reads the counters of its own queues; refusals and the ring are counted by the node.";
const HOOK: &str = "a memory fault is planted by an address of the driver's process, which the device does not use.";

/// Behaviours that are not tried, with the reason.
pub(crate) const LEFT_OUT: &[(&str, &str)] = &[
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
pub(crate) fn applies(name: &str, setup: Setup) -> bool {
    let is_in = |list: &[(&str, &str)]| list.iter().any(|(left_out, _)| *left_out == name);
    if !setup.is_served && !setup.is_vfio {
        return true;
    }
    let by_messages = setup.is_vfio || setup.doorbells == Doorbells::Registers;
    !(is_in(LEFT_OUT)
        || by_messages && is_in(LEFT_OUT_OF_REGISTERS)
        || setup.is_vfio && is_in(LEFT_OUT_OF_VFIO))
}
