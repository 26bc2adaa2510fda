//! Tests that cannot run on this machine.
//!
//! *Owns*: the line `SKIPPED: <test>: <reason>`, which is counted by `cargo xtask test`.
//! *Takes*: a reason. *Must not*: let a skipped test pass where everything must run (`CI=true`).
#![forbid(unsafe_code)]

use std::{
    env,
    fmt::Display,
    fs::File,
    io::{self, Write},
    thread,
};

/// Variable with the file to which each skipped test appends its line.
pub const FILE: &str = "URMA_SKIPS";

/// Reports that the calling test cannot run, or not in full; the caller returns then.
///
/// # Panics
/// With `CI=true`, where every test must run; if the line cannot be written.
pub fn skip(reason: impl Display) {
    skip_named(thread::current().name().unwrap_or("?"), reason);
}

/// As [`skip`], for the test `name`; for threads that do not have their test's name.
///
/// # Panics
/// As [`skip`].
pub fn skip_named(name: &str, reason: impl Display) {
    let reason = reason.to_string().replace('\n', " ");
    let line = format!("SKIPPED: {name}: {reason}\n");
    assert!(env::var_os("CI").is_none_or(|ci| ci != "true"), "{line}with CI=true every test runs");
    let written = match env::var_os(FILE) {
        Some(path) => File::options().create(true).append(true).open(path).and_then(|mut file| {
            // One write: lines of several processes do not mix.
            file.write_all(line.as_bytes())
        }),
        // Not captured by the test program: the line shows although the test passes.
        None => io::stderr().write_all(line.as_bytes()),
    };
    assert!(written.is_ok(), "the line cannot be written: {written:?}");
}
