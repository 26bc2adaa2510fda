//! Gives the program the commit that it is built from, for its results; none outside of a repository.

use std::path::Path;
use std::process::Command;

fn main() {
    let git = Command::new("git").args(["rev-parse", "HEAD"]).output();
    let commit = git.ok().filter(|git| git.status.success());
    let commit = commit.and_then(|git| String::from_utf8(git.stdout).ok()).unwrap_or_default();
    println!("cargo::rustc-env=URMA_LAB_COMMIT={}", commit.trim());
    // It grows with each commit.
    let log = "../.git/logs/HEAD";
    println!("cargo::rerun-if-changed=build.rs");
    if Path::new(log).exists() {
        println!("cargo::rerun-if-changed={log}");
    }
}
