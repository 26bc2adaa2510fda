//! How many descriptors this process has open.
//!
//! *Owns*: the count. *Must not*: count the one it looks with.

use std::fs;

/// Open descriptors.
#[must_use]
pub fn open_count() -> u64 {
    // The directory itself is open while it is read.
    let entries = fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    u64::try_from(entries.saturating_sub(1)).unwrap_or(u64::MAX)
}
