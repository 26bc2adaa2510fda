//! What the guide says about continuous integration, run as it is written.
//!
//! *Takes*: the shell block of the section. *Gives*: a failure with what the shell said.

use std::{fs, process::Command};

use urma_c_tests::{built, finish, root, scratch, target};

const PAGE: &str = "docs/guide/c-programs.md";
const SECTION: &str = "## Use it in your CI\n";

/// The clone is this checkout: nothing else is different. A function, since a script that was just
/// written is busy while a test beside this one forks, and the shell would take the real git.
const GIT: &str = "git() {\n\
    test \"$1\" = clone || exit 2\n\
    for folder in \"$@\"; do :; done\n\
    ln -s \"$CHECKOUT\" \"$folder\"\n\
    }\n";

#[test]
fn use_it_in_your_ci() {
    let page = fs::read_to_string(root().join(PAGE)).expect("the guide");
    let (_, section) = page.split_once(SECTION).expect("the section");
    let (_, block) = section.split_once("```sh\n").expect("its shell block");
    let (block, _) = block.split_once("```").expect("the end of the block");
    let folder = scratch("documented");
    let mut shell = Command::new("sh");
    shell.args(["-euc", &format!("{GIT}cd \"$0\"; eval \"$1\"")]).arg(&folder).arg(block);
    shell.env("CHECKOUT", root());
    shell.env("CARGO_TARGET_DIR", built().join("c-tests-build"));
    // The program of the task is there already; what it builds is not.
    let task = format!("run --quiet --package xtask --target-dir {} --", target().display());
    shell.env("CARGO_ALIAS_XTASK", task);
    let said = finish(&shell);
    for line in ["the other side now holds: written from afar", "the server answers: an answer"] {
        assert!(said.out.contains(line), "{line}: {}{}", said.out, said.err);
    }
}
