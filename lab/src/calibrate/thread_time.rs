//! Processor time of threads of this process, as the kernel counts it.
//!
//! - owns: what it reads of `/proc`. takes: names of threads. gives: times in ns. must not: guess.

use std::collections::BTreeSet;
use std::fs;

use super::CalibrateError;

/// Where the kernel shows the threads of this process.
const TASKS: &str = "/proc/self/task";

fn failed(error: std::io::Error) -> CalibrateError {
    CalibrateError {
        what: "reading the times of threads in /proc/self/task",
        why: error.to_string(),
    }
}

/// Threads of this process that have that name.
pub(super) fn named(name: &str) -> Result<BTreeSet<u32>, CalibrateError> {
    let mut found = BTreeSet::new();
    for task in fs::read_dir(TASKS).map_err(failed)? {
        let Ok(number) = task.map_err(failed)?.file_name().to_string_lossy().parse() else {
            continue;
        };
        // One that has ended meanwhile has no name.
        let of = fs::read_to_string(format!("{TASKS}/{number}/comm")).unwrap_or_default();
        if of.trim() == name {
            found.insert(number);
        }
    }
    Ok(found)
}

/// Time that the thread ran, in ns.
pub(super) fn ran_ns(thread: u32) -> Result<f64, CalibrateError> {
    let text = fs::read_to_string(format!("{TASKS}/{thread}/schedstat")).map_err(failed)?;
    let first = text.split_whitespace().next().and_then(|number| number.parse().ok());
    first.ok_or_else(|| CalibrateError {
        what: "reading schedstat of a thread",
        why: format!("{text:?} begins with no number"),
    })
}
