//! How many descriptors this process has open, and how much shared memory it has mapped.
//!
//! *Owns*: the counts. *Must not*: count the descriptor it looks with.

use std::{collections::BTreeSet, fs};

/// Returns the number of open descriptors of this process.
#[must_use]
pub fn open_count() -> u64 {
    // The directory itself is open while it is read.
    let entries = fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    u64::try_from(entries.saturating_sub(1)).unwrap_or(u64::MAX)
}

/// Shared files without a name that are mapped, each counted once however many pieces it is in.
#[must_use]
pub fn mapped_count() -> u64 {
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let files: BTreeSet<&str> = maps
        .lines()
        .filter(|line| line.contains("/memfd:"))
        // Address, permissions, offset, device, inode.
        .filter_map(|line| line.split_whitespace().nth(4))
        .collect();
    u64::try_from(files.len()).unwrap_or(u64::MAX)
}
