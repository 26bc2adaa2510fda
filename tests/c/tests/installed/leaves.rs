//! A program that ends without deleting its contexts: what its peer sees.

use urma_c_tests::{GCC, finish, root};

use crate::{INSTALLED, command};

/// `URMA_CR_ACK_TIMEOUT_ERR`: the peer is gone.
const GONE: &str = "status 9";
/// `URMA_CR_REM_OPERATION_ERR`: the jetty is gone.
const NO_TARGET: &str = "status 7";
/// The program ends after 50 ms; a peer that learns nothing of it waits for the timeout of its jetty, 17 s.
const AT_ONCE_MS: u64 = 8000;

/// Time in which the message of the peer had no end, which is one of `statuses`, and what the program said.
fn ends(how: &str, statuses: &[&str]) -> (u64, String) {
    let source = root().join("tests/c/programs/leaves.c");
    let built = GCC.build(&INSTALLED, &source, &[]);
    let said = finish(&command(&built, &[how], &[("URMA_PATH", "packets")])).out;
    let is_end = |line: &&str| statuses.iter().any(|status| line.starts_with(status));
    let line = said.lines().find(is_end);
    let time = line.and_then(|line| line.split(' ').nth(3)?.parse().ok());
    (time.unwrap_or_else(|| panic!("{how}: {said}")), said)
}

#[test]
fn peers_learn_at_once_of_a_program_that_ends_with_its_contexts() {
    for how in ["return", "exit"] {
        // A machine without a processor for it may let one word be lost, but not three.
        let mut times = (0..3).map(|_| ends(how, &[GONE]).0);
        assert!(times.any(|time| time < AT_ONCE_MS), "{how}");
    }
}

/// The program's own handlers come first, and find everything as it was. The jetty goes before its node: a try of the
/// message may arrive in between.
#[test]
fn a_handler_that_deletes_everything_goes_before() {
    let (time, said) = ends("handler", &[GONE, NO_TARGET]);
    assert!(said.contains("deleted") && time < AT_ONCE_MS, "{time} ms, {said}");
}

/// Nothing is sent after `urma_uninit`, nor where no handler runs: the peer finds out by its timers.
#[test]
fn a_program_that_says_nothing_is_found_by_the_timers() {
    for how in ["_exit", "uninit"] {
        let (time, _) = ends(how, &[GONE]);
        assert!(time >= AT_ONCE_MS, "{how}: {time} ms");
    }
}
