//! What the library exports against the list of what it shall export.
//!
//! *Takes*: `src/symbols.txt`, `nm -D` of the library. *Gives*: a failure for a symbol that is missing,
//! or exported without being listed.

use std::{collections::BTreeSet, process::Command};

use crate::{here, library_dir};

fn lines(path: &str) -> Vec<String> {
    let text = std::fs::read_to_string(here(path)).expect("a list");
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(str::to_owned).collect()
}

/// The release that the library is built for.
const OWN: &str = if cfg!(feature = "abi-25-12-0-b081") { "25.12.0.B081" } else { "26.06" };

/// Symbols of the library that only `release` has, or that all have.
fn listed_for(release: &str) -> BTreeSet<String> {
    let of = |line: &String| {
        let mut words = line.split(' ');
        let (library, symbol, of) = (words.next()?, words.next()?, words.next()?);
        (library == "liburma" && of == release).then(|| symbol.to_owned())
    };
    lines("src/symbols.txt").iter().filter_map(of).collect()
}

fn listed() -> BTreeSet<String> {
    listed_for("all").union(&listed_for(OWN)).cloned().collect()
}

fn exported() -> BTreeSet<String> {
    let library = library_dir().join("libliburma.so");
    let nm = Command::new("nm").args(["-D", "--defined-only"]).arg(library).output();
    let text = String::from_utf8(nm.expect("nm starts").stdout).expect("names");
    let all = text.lines().filter_map(|line| line.split(' ').nth(2)).map(str::to_owned);
    // Calls that a later release added do no harm in the library of an earlier one; its marker would.
    let later = if OWN == "26.06" { BTreeSet::new() } else { listed_for("26.06") };
    all.filter(|symbol| symbol.contains("_abi_") || !later.contains(symbol)).collect()
}

/// What only one side has.
fn differences(listed: &BTreeSet<String>, exported: &BTreeSet<String>) -> Vec<String> {
    let missing = listed.difference(exported).map(|symbol| format!("missing: {symbol}"));
    let beside = exported.difference(listed).map(|symbol| format!("not listed: {symbol}"));
    missing.chain(beside).collect()
}

#[test]
fn exports_are_what_is_listed() {
    let (listed, exported) = (listed(), exported());
    assert!(listed.len() > 200, "{}", listed.len());
    assert_eq!(differences(&listed, &exported), Vec::<String>::new());
}

#[test]
fn a_symbol_on_one_side_only_is_reported() {
    let (mut listed, mut exported) = (listed(), exported());
    listed.insert("urma_planted_in_the_list".to_owned());
    exported.insert("urma_planted_in_the_library".to_owned());
    exported.remove("urma_poll_jfc");
    let wanted = [
        "missing: urma_planted_in_the_list",
        "missing: urma_poll_jfc",
        "not listed: urma_planted_in_the_library",
    ];
    assert_eq!(differences(&listed, &exported), wanted);
}
