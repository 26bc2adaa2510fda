//! What the library exports against the list of what it shall export.
//!
//! *Takes*: `src/symbols.txt`, `nm -D` of the library, `tests/data/pending.txt` (what is listed and
//! not built yet). *Gives*: a failure for a symbol that is missing, pending though it is there, or
//! exported without being listed.

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

#[test]
fn exports_are_what_is_listed() {
    let (listed, exported) = (listed(), exported());
    let pending: BTreeSet<_> = lines("tests/data/pending.txt").into_iter().collect();
    let missing: Vec<_> = listed.difference(&exported).filter(|s| !pending.contains(*s)).collect();
    assert!(missing.is_empty(), "missing: {missing:?}");
    let beside: Vec<_> = exported.difference(&listed).collect();
    assert!(beside.is_empty(), "not in src/symbols.txt: {beside:?}");
    let done: Vec<_> = pending.intersection(&exported).collect();
    assert!(done.is_empty(), "built, strike them from tests/data/pending.txt: {done:?}");
}
