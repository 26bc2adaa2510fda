//! Rules about words.
//!
//! *Owns*: the lists. They are written in pieces, so that this file obeys its own rules.

use super::File;

/// Marks of unfinished work.
const MARKERS: &[&str] = &[
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X:"),
    concat!("HA", "CK"),
    concat!("unimple", "mented!"),
    concat!("to", "do!("),
    concat!("db", "g!("),
];

/// Names of a workplace, of its machines and of writing tools: they mean nothing to a reader.
const BANNED: &[&str] = &[
    concat!("/wo", "rk/"),
    concat!("/tmp/tar", "get"),
    concat!("artif", "actory"),
    concat!("cla", "ude"),
    concat!("anth", "ropic"),
    concat!("chat", "gpt"),
    concat!("open", "ai"),
    concat!("cop", "ilot"),
    concat!("language ", "model"),
];

/// Names that say nothing.
const VAGUE: &[&str] = &[
    concat!("fn ge", "t_"),
    concat!("fn d", "o_"),
    concat!("Man", "ager "),
    concat!("Hel", "per "),
    concat!("mod ut", "il"),
    concat!("mod hel", "per"),
    concat!("mod com", "mon;"),
];

/// A safety comment names the invariant and who keeps it.
const SAFETY: &[&str] = &[
    concat!("SAFETY: f", "fi"),
    concat!("SAFETY: tr", "ust"),
    concat!("SAFETY: as ab", "ove\n"),
    concat!("SAFETY: o", "k"),
    concat!("SAFETY: sa", "fe"),
    concat!("SAFETY: ", "?"),
];

pub(super) fn markers(files: &[File]) -> Vec<String> {
    let ours: Vec<&File> = files.iter().filter(|file| !is_foreign(&file.path)).collect();
    find(&ours, MARKERS)
}

pub(super) fn banned(files: &[File]) -> Vec<String> {
    let ours = files.iter().filter(|file| !is_foreign(&file.path));
    let lower = |file: &File| File { path: file.path.clone(), text: file.text.to_lowercase() };
    let lower: Vec<File> = ours.map(lower).collect();
    find(&lower.iter().collect::<Vec<_>>(), BANNED)
}

pub(super) fn names(files: &[File]) -> Vec<String> {
    let rust = files.iter().filter(|file| file.is_rust() && !file.path.contains("/tests/"));
    // What the standard library, a C header or a protocol calls so, is called so.
    let plain = |file: &File| File {
        path: file.path.clone(),
        text: file
            .text
            .replace(concat!("extern \"C\" fn ge", "t_"), "")
            .replace(concat!("fn ge", "t_mut("), "")
            .replace(concat!("fn ge", "t_or_"), "")
            .replace(concat!("async fn ge", "t_topology("), ""),
    };
    let plain: Vec<File> = rust.map(plain).collect();
    find(&plain.iter().collect::<Vec<_>>(), VAGUE)
}

pub(super) fn safety(files: &[File]) -> Vec<String> {
    let rust: Vec<&File> = files.iter().filter(|file| file.is_rust()).collect();
    find(&rust, SAFETY)
}

/// Data and texts that are not of this project: their words stay.
pub(super) fn is_foreign(path: &str) -> bool {
    path.contains("golden/")
        || path.contains("corpus/")
        || path.starts_with("LICENSE")
        || path.ends_with("Cargo.lock")
}

fn find(files: &[&File], words: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for file in files {
        for (index, line) in file.text.lines().enumerate() {
            let line_end = format!("{line}\n");
            let word = words.iter().find(|word| line_end.contains(**word));
            if let Some(word) = word {
                found.push(format!("{}:{}: {:?}", file.path, index + 1, word.trim_end()));
            }
        }
    }
    found
}
