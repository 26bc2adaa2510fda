//! Rules about words: which are not used, that one type name means one thing, how much a comment must say.
//!
//! The lists are written in pieces, so that this file obeys its own rules. Types of tests, associated types and
//! types inside functions are not counted. Text of a command line's help is not checked: it is a doc comment in the
//! code, ends without a full stop, and stands in a tool.

use std::collections::BTreeMap;

use syn::{Item, visit::Visit};

use super::{
    File,
    source::{is_for_tests, is_test},
};

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

/// Names that more than one file may declare: what a trait or an idiom calls so in each place.
const IDIOMS: &[&str] = &[];

/// No two files of production code declare types of one name.
pub(super) fn homonyms(files: &[File]) -> Vec<String> {
    let mut homes: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for file in files.iter().filter(|file| file.is_rust() && !is_test(&file.path)) {
        // A file that does not parse is the compiler's to refuse.
        let Ok(parsed) = syn::parse_file(&file.text) else { continue };
        let mut types = Types(Vec::new());
        types.visit_file(&parsed);
        types.0.sort_unstable();
        types.0.dedup();
        types.0.into_iter().for_each(|name| homes.entry(name).or_default().push(&file.path));
    }
    let is_excused = |name: &str| IDIOMS.contains(&name);
    let twice = homes.into_iter().filter(|(name, at)| at.len() > 1 && !is_excused(name));
    twice.map(|(name, at)| format!("{name}: declared in {}", at.join(", "))).collect()
}

/// Names of the types that items declare.
struct Types(Vec<String>);

impl<'ast> Visit<'ast> for Types {
    fn visit_item(&mut self, item: &'ast Item) {
        let (name, attributes) = match item {
            Item::Struct(item) => (&item.ident, &item.attrs),
            Item::Enum(item) => (&item.ident, &item.attrs),
            Item::Union(item) => (&item.ident, &item.attrs),
            Item::Trait(item) => (&item.ident, &item.attrs),
            Item::Type(item) => (&item.ident, &item.attrs),
            Item::Mod(item) if !item.attrs.iter().any(is_for_tests) => {
                return syn::visit::visit_item_mod(self, item);
            }
            _ => return,
        };
        if !attributes.iter().any(is_for_tests) {
            self.0.push(name.to_string());
        }
    }
}

/// Most words of a doc comment that repeats what the name says.
const DOC_WORDS: usize = 3;

/// Most words of a safety comment that names no invariant.
const SAFETY_WORDS: usize = 4;

/// A doc comment says more than its name: units, a rule, an error.
pub(super) fn docs(files: &[File]) -> Vec<String> {
    let is_short = |file: &File, text: &str| {
        let is_help = file.path.starts_with("tools/") && !text.ends_with('.');
        !is_help && text.split_whitespace().count() <= DOC_WORDS
    };
    first_of_each(files, |file| {
        let outer = blocks(&file.text, "///");
        let mut all = outer.into_iter().chain(blocks(&file.text, "//!"));
        all.find(|(_, text)| is_short(file, text))
    })
}

/// A safety comment names the invariant and what keeps it.
pub(super) fn safety_names_invariant(files: &[File]) -> Vec<String> {
    let head = concat!("SAF", "ETY:");
    first_of_each(files, |file| {
        let lines: Vec<&str> = file.text.lines().map(str::trim).collect();
        lines.iter().enumerate().find_map(|(at, line)| {
            let text = line.split_once("// ")?.1.strip_prefix(head)?;
            let more = lines[at + 1..].iter().map_while(|line| line.strip_prefix("// "));
            let more =
                more.take_while(|line| !line.starts_with(head)).collect::<Vec<_>>().join(" ");
            let text = format!("{} {more}", text.trim());
            let is_short = text.split_whitespace().count() <= SAFETY_WORDS;
            is_short.then(|| (at + 1, text.trim().to_owned()))
        })
    })
}

fn first_of_each(files: &[File], short: impl Fn(&File) -> Option<(usize, String)>) -> Vec<String> {
    let checked = files.iter().filter(|file| file.is_rust());
    let found = checked.filter_map(|file| short(file).map(|(line, text)| (file, line, text)));
    found.map(|(file, line, text)| format!("{}:{line}: {text:?}", file.path)).collect()
}

/// Comments of adjacent lines that begin with `mark`: line number and text.
fn blocks(text: &str, mark: &str) -> Vec<(usize, String)> {
    let mut blocks: Vec<(usize, String)> = Vec::new();
    let mut is_open = false;
    for (index, line) in text.lines().enumerate() {
        let words = line.trim_start().strip_prefix(mark).filter(|rest| !rest.starts_with('/'));
        match (words, blocks.last_mut()) {
            (Some(words), Some((_, block))) if is_open => {
                block.push(' ');
                block.push_str(words.trim());
            }
            (Some(words), _) => blocks.push((index + 1, words.trim().to_owned())),
            (None, _) => {}
        }
        is_open = words.is_some();
    }
    blocks.iter_mut().for_each(|(_, block)| block.truncate(block.trim_end().len()));
    blocks
}

#[cfg(test)]
mod tests {

    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        let first =
            "pub(crate) struct Turn;\nfn f() { enum Inner {} }\nimpl A { type Out = u8; }\n";
        let files = [("a/src/x.rs", first), (path, text)];
        let files = files.map(|(path, text)| File { path: path.to_owned(), text: text.to_owned() });
        homonyms(&files)
    }

    #[test]
    fn a_planted_homonym_is_found() {
        for text in ["enum Turn {}", "mod inner { pub(super) trait Turn {} }", "type Turn = u8;"] {
            let expected = ["Turn: declared in a/src/x.rs, b/src/y.rs"];
            assert_eq!(found("b/src/y.rs", text), expected, "{text}");
        }
    }

    #[test]
    fn other_names_and_tests_are_not() {
        for text in ["enum Turns {}", "#[cfg(test)] mod tests { struct Turn; }", "enum Inner {}"] {
            assert_eq!(found("b/src/y.rs", text), [""; 0], "{text}");
        }
        assert!(found("b/src/tests.rs", "enum Turn {}").is_empty());
        assert!(found("b/src/y.rs", "impl B { type Out = u8; }").is_empty());
    }

    fn found_in(rule: fn(&[File]) -> Vec<String>, path: &str, text: &str) -> usize {
        rule(&[File { path: path.to_owned(), text: text.to_owned() }]).len()
    }

    #[test]
    fn a_planted_short_doc_comment_is_found() {
        for text in [
            "//! Sends packets.\n",
            "    /// Bytes.\n    len: usize,\n",
            "/// Its number.\n#[must_use]\nfn id() {}\n/// Its kind.\n",
            "/// A longer one that says enough.\nfn a() {}\n\n/// The queue.\nfn b() {}\n",
            "/// No stop\nfn a() {}\n",
        ] {
            assert_eq!(found_in(docs, "a/src/x.rs", text), 1, "{text}");
        }
    }

    #[test]
    fn what_says_enough_is_not() {
        for text in [
            "/// Length in bytes, padding\n/// included.\n",
            "/// Long enough to say\n/// it.\n",
            "/// Length of the ring.\n",
            "// Short.\n",
            "//// Short.\n",
        ] {
            assert_eq!(found_in(docs, "a/src/x.rs", text), 0, "{text}");
        }
        assert_eq!(found_in(docs, "tools/a/src/x.rs", "/// Jetty groups\nGroups,\n"), 0, "help");
        assert_eq!(found_in(docs, "tools/a/src/x.rs", "/// Jetty groups.\nGroups,\n"), 1);
    }

    #[test]
    fn a_planted_short_safety_comment_is_found() {
        let comment = |text: &str| format!("    // {}{}\n    unsafe {{ f() }};\n", "SAFETY", text);
        for text in [": as above.", ": a live object.", ":"] {
            assert_eq!(found_in(safety_names_invariant, "a/src/x.rs", &comment(text)), 1, "{text}");
            assert_eq!(
                found_in(safety_names_invariant, "liburma/src/x.rs", &comment(text)),
                1,
                "{text}"
            );
        }
        for text in
            [": `slot` stays mapped until the slab goes.", ": it is\n    // mapped and locked."]
        {
            assert_eq!(found_in(safety_names_invariant, "a/src/x.rs", &comment(text)), 0, "{text}");
        }
    }
}
