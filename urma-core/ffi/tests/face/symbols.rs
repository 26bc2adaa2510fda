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

fn listed() -> BTreeSet<String> {
    let release = if cfg!(feature = "abi-25-12-0-b081") { "25.12.0.B081" } else { "26.06" };
    let of = |line: &String| {
        let mut words = line.split(' ');
        let (library, symbol, of) = (words.next()?, words.next()?, words.next()?);
        let is_ours = library == "liburma" && (of == "all" || of == release);
        is_ours.then(|| symbol.to_owned())
    };
    lines("src/symbols.txt").iter().filter_map(of).collect()
}

fn exported() -> BTreeSet<String> {
    let library = library_dir().join("liburma.so");
    let nm = Command::new("nm").args(["-D", "--defined-only"]).arg(library).output();
    let text = String::from_utf8(nm.expect("nm starts").stdout).expect("names");
    text.lines().filter_map(|line| line.split(' ').nth(2)).map(str::to_owned).collect()
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
fn a_symbol_on_one_side_only_is_told() {
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
