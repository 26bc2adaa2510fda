//! C and C++ programs against an installed tree.

mod clients;
mod examples;
mod memory;
mod refusals;
mod releases;
mod sequences;
mod table;
use std::{path::PathBuf, process::Command, sync::LazyLock};

use urma_c_tests::{Prefix, root};

/// The tree that most tests use: release 26.06, from the build that brought this test.
static INSTALLED: LazyLock<Prefix> = LazyLock::new(|| Prefix::install("installed", &[]));

/// A source of the examples.
fn example(name: &str) -> PathBuf {
    root().join("examples/c").join(name).with_extension("c")
}

/// A command with an environment.
fn command(program: &PathBuf, args: &[&str], environment: &[(&str, &str)]) -> Command {
    let mut command = Command::new(program);
    command.args(args).envs(environment.iter().copied());
    command
}
