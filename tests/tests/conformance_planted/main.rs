//! For each planted fault a named behaviour turns red, through the C functions too: the checks of
//! the suite can fail.
//!
//! *Owns*: the list of fault, behaviour and setup. *Takes*: the behaviours of the suite and a
//! device built with `planted-faults`. *Must not*: have checks of its own.
#![forbid(unsafe_code)]

#[path = "../conformance/behaviours/mod.rs"]
mod behaviours;

use ubcore_sim::fault::PlantedFault;
use urma_core::TransportMode;
use urma_tests::world::{Link, Moving, Setup};

/// The behaviour holds without the fault and fails with it, on each path that `links` names.
fn turns_red(fault: PlantedFault, name: &str, links: &[Link]) {
    turns_red_through(fault, name, links, links);
}

/// The behaviour holds without the fault and fails with it: on `links` through Rust, and on those that are in `c_links`
/// through the C functions.
fn turns_red_through(fault: PlantedFault, name: &str, links: &[Link], c_links: &[Link]) {
    let found = behaviours::all().find(|known| known.name == name);
    let known = found.unwrap_or_else(|| panic!("no behaviour is named {name}"));
    for link in links {
        let setup = Setup::new(*link, Moving::On, TransportMode::Rm);
        holds_and_breaks(fault, known, setup);
        // Both ends of the own-node link are one node, which the C setups do not have.
        if *link != Link::Own && c_links.contains(link) {
            holds_and_breaks(fault, known, setup.through_c());
        }
    }
}

fn holds_and_breaks(fault: PlantedFault, known: &behaviours::Behaviour, setup: Setup) {
    let what = format!("{} ({} flow) on {setup}", known.name, known.flow.word());
    assert!((known.applies)(setup), "{what} does not apply");
    (known.run)(setup).unwrap_or_else(|failure| panic!("{what}: {failure}"));
    let planted = Setup { fault: Some(fault), ..setup };
    let seen = (known.run)(planted);
    assert!(seen.is_err(), "{what} does not see {fault:?}: {}", known.says);
}

const EVERY: &[Link] = &[Link::Own, Link::Host, Link::Packets];

#[test]
fn token_not_checked_is_seen() {
    turns_red(PlantedFault::TokenNotChecked, "wrong_token_is_refused", EVERY);
}

#[test]
fn bound_off_by_one_is_seen() {
    // What packets bring to memory that its program may unmap has a second bound: the memory that is held.
    let c_links = &[Link::Host];
    turns_red_through(PlantedFault::BoundOffByOne, "one_byte_beyond_the_end", EVERY, c_links);
}

#[test]
fn completion_doubled_is_seen() {
    // The driver drops what answers no request; the device's own count tells.
    turns_red(PlantedFault::CompletionDoubled, "counters_count_completions", EVERY);
}

#[test]
fn completion_dropped_is_seen() {
    turns_red(PlantedFault::CompletionDropped, "completions_come_exactly_once", EVERY);
}

#[test]
fn order_swapped_is_seen() {
    // Planted in the direct path, which packets do not take.
    turns_red(PlantedFault::OrderSwapped, "write_overwrites_in_order", &[Link::Own, Link::Host]);
}

#[test]
fn last_byte_early_is_seen() {
    turns_red(PlantedFault::LastByteEarly, "write_last_byte_last", &[Link::Host]);
}

#[test]
fn ack_before_placement_is_seen() {
    turns_red(PlantedFault::AckBeforePlacement, "write_every_size", &[Link::Packets]);
}
