//! What a dead process may leave behind.
//!
//! *Owns*: where to look: abstract sockets, shared memory, temporary files.

use std::{collections::BTreeSet, fs, path::PathBuf};

/// Sockets whose name carries an EID.
pub(crate) fn sockets_of(eid: &str) -> Vec<String> {
    let text = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let name = format!("urma/{eid}");
    let is_its = |line: &&str| line.split_whitespace().any(|word| word.trim_matches('@') == name);
    text.lines().filter(is_its).map(str::to_owned).collect()
}

/// Files of ours in shared memory and in the folder for temporary files.
pub(crate) fn files() -> BTreeSet<PathBuf> {
    let places = [PathBuf::from("/dev/shm"), PathBuf::from("/dev/hugepages"), std::env::temp_dir()];
    let entries = places.iter().filter_map(|place| fs::read_dir(place).ok()).flatten().flatten();
    let is_ours = |path: &PathBuf| {
        let name = path.file_name().map(|name| name.to_string_lossy().to_lowercase());
        name.is_some_and(|name| name.contains("urma") || name.contains("udma"))
    };
    entries.map(|entry| entry.path()).filter(is_ours).collect()
}
