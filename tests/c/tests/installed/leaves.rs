//! A program that ends without deleting its contexts: what its peer sees.

use urma_c_tests::{GCC, finish, root};

use crate::{INSTALLED, command};

/// `URMA_CR_ACK_TIMEOUT_ERR`: the peer is gone.
const GONE: &str = "status 9";
/// The program ends after 50 ms; a peer that learns nothing of it needs about a second.
const AT_ONCE_MS: u64 = 450;

/// Time in which the message of the peer had no end, and what the program said.
fn ends(how: &str) -> (u64, String) {
    let source = root().join("tests/c/programs/leaves.c");
    let built = GCC.build(&INSTALLED, &source, &[]);
    let said = finish(&command(&built, &[how], &[("URMA_PATH", "packets")])).out;
    let line = said.lines().find(|line| line.starts_with(GONE));
    let time = line.and_then(|line| line.split(' ').nth(3)?.parse().ok());
    (time.unwrap_or_else(|| panic!("{how}: {said}")), said)
}

#[test]
fn peers_learn_at_once_of_a_program_that_ends_with_its_contexts() {
    for how in ["return", "exit"] {
        let (time, _) = ends(how);
        assert!(time < AT_ONCE_MS, "{how}: {time} ms");
    }
}

/// The program's own handlers come first, and find everything as it was.
#[test]
fn a_handler_that_deletes_everything_goes_before() {
    let (time, said) = ends("handler");
    assert!(said.contains("deleted") && time < AT_ONCE_MS, "{time} ms, {said}");
}

/// Nothing is sent after `urma_uninit`, nor where no handler runs: the peer finds out by its timers.
#[test]
fn a_program_that_says_nothing_is_found_by_the_timers() {
    for how in ["_exit", "uninit"] {
        let (time, _) = ends(how);
        assert!(time >= AT_ONCE_MS, "{how}: {time} ms");
    }
}
