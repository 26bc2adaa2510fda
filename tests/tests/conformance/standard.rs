//! What RC jetties of the standard opcodes do in another way.
//!
//! *Owns*: the behaviours that are not tried with them, each with its reason.

use ubcore_sim::RcWire;
use urma_tests::world::Setup;

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
pub(crate) const LEFT_OUT: &[(&str, &str)] = &[
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
pub(crate) fn applies(name: &str, setup: Setup) -> bool {
    setup.rc == RcWire::Urma || LEFT_OUT.iter().all(|(left_out, _)| *left_out != name)
}
