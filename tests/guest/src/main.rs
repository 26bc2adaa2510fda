//! First process of the virtual machine: makes VFIO ready, runs the checks, and says how they went.
//!
//! *Owns*: the machine. *Takes*: words of the kernel's command line. *Gives*: a line for each check on the console,
//! then the line of the result. *Must not*: end without that line, but for a crash, which the host takes for a failure.
#![forbid(unsafe_code)]

mod edu;
mod ethernet;
mod nic;
mod planted;
mod programs;
mod suite;
mod system;

use std::io::Write as _;

use crate::suite::Suite;

fn main() {
    // In a shell of the machine, this is a program like others.
    if std::process::id() != 1 {
        say(&checks());
        return;
    }
    if let Err(error) = system::prepare() {
        say(&format!("[guest] FAIL prepare -- {error}"));
        say("[guest] test rc=1 passed=0 failed=1");
        system::end();
    }
    if system::has_word("urma.shell") {
        if let Err(error) = system::network() {
            say(&format!("without a network: {error}"));
        }
        if let Err(error) = system::shell() {
            say(&format!("cannot start a shell: {error}"));
        }
        system::end();
    }
    if system::has_word("urma.victim") {
        if let Err(why) = programs::victim() {
            say(&format!("[guest] the victim did not start: {why}"));
        }
        system::end();
    }
    say(&checks());
    system::end();
}

/// Runs all checks; returns the line of the result.
fn checks() -> String {
    let mut suite = Suite::default();
    edu::run(&mut suite);
    ethernet::run(&mut suite);
    nic::run(&mut suite);
    programs::run(&mut suite);
    suite.line()
}

/// Prints a line on the console.
fn say(line: &str) {
    // Without a console there is no other place for the line.
    let _ = writeln!(std::io::stdout(), "{line}");
}
