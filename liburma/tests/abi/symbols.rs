//! The list of symbols against what the headers declare.
//!
//! *Takes*: `src/symbols.txt`, the headers. *Gives*: a failure that names what only one of them has.

use std::{collections::BTreeMap, fs};

use crate::facts::{RELEASES, Release, here};

const LIST: &str = include_str!("../../src/symbols.txt");

/// Library and release of each symbol.
fn listed() -> BTreeMap<&'static str, (&'static str, &'static str)> {
    let lines = LIST.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut list = BTreeMap::new();
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        let [library, symbol, release] = words[..] else { panic!("not three words: {line}") };
        assert!(list.insert(symbol, (library, release)).is_none(), "{symbol} is listed twice");
    }
    list
}

/// Functions that a header declares.
fn declared(header: &str) -> Vec<String> {
    let path = here("include/ub/umdk/urma").join(header);
    let text = fs::read_to_string(&path).expect("a header");
    let lines = text.lines().filter(|line| {
        line.starts_with(|c: char| c.is_ascii_lowercase())
            && !["static", "typedef", "extern"].iter().any(|word| line.starts_with(word))
    });
    let names = lines
        .filter_map(|line| line.split_once('('))
        .map(|(before, _)| before.rsplit([' ', '*']).next().unwrap_or_default().to_owned());
    let mut names: Vec<String> = names.filter(|name| !name.starts_with("__")).collect();
    names.sort();
    names.dedup();
    names
}

#[test]
fn what_the_headers_declare_is_listed() {
    let list = listed();
    for (header, library) in [
        ("urma_api.h", "liburma"),
        ("urma_types.h", "liburma"),
        ("urma_log.h", "liburma"),
        ("urma_perf.h", "liburma"),
        ("urma_provider.h", "liburma"),
        ("urma_private.h", "liburma"),
        ("urma_ubagg.h", "liburma"),
        ("uvs_api.h", "libtpsa"),
    ] {
        let names = declared(header);
        assert!(!names.is_empty(), "{header}");
        for name in names {
            assert_eq!(list.get(&*name).map(|one| one.0), Some(library), "{header}: {name}");
        }
    }
}

#[test]
fn there_are_133_public_functions() {
    let count = ["urma_api.h", "urma_types.h", "urma_perf.h"].map(|header| declared(header).len());
    assert_eq!(count, [128, 2, 3]);
}

#[test]
fn each_release_has_its_marker() {
    let list = listed();
    for release in RELEASES {
        assert_eq!(list.get(release.marker), Some(&("liburma", release.name)));
    }
}

/// The types of `libtpsa`, line by line.
fn fabric(release: Release) -> Vec<&'static str> {
    let mut is_fabric = false;
    let ours = |line: &&str| {
        if line.starts_with(|first: char| first != ' ') && !line.starts_with('#') {
            let of_type = ["type ", "enum ", "const "].iter().any(|word| line.starts_with(word));
            if of_type {
                is_fabric = line.contains(" uvs_api.h") || line.contains(" uvs_types.h");
            }
        }
        is_fabric
    };
    release.text.lines().filter(ours).collect()
}

#[test]
fn the_other_libraries_are_the_same_in_all_releases() {
    // So they need no choice by URMA_ABI. Those of liburma_common take numbers and text only.
    let [newer, older] = RELEASES.map(fabric);
    assert!(newer.len() > 50, "{}", newer.len());
    assert_eq!(newer, older);
    let names = listed().into_iter().filter(|(_, (library, _))| *library != "liburma");
    assert!(names.into_iter().all(|(_, (_, release))| release == "all"));
}

#[test]
fn what_the_known_clients_import_beside_is_listed() {
    let list = listed();
    for symbol in ["urma_log", "urma_log_drop", "urma_cmd_get_eid_list", "urma_open_cdev"] {
        assert_eq!(list.get(symbol).map(|one| one.0), Some("liburma"), "{symbol}");
    }
    for symbol in ["get_cpu_mhz", "ub_hugemalloc", "ub_hugefree", "ub_str_to_u64"] {
        assert_eq!(list.get(symbol).map(|one| one.0), Some("liburma_common"), "{symbol}");
    }
    assert_eq!(list.get("uvs_get_path_set").map(|one| one.0), Some("libtpsa"));
}
