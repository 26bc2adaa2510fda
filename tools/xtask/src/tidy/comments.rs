//! Rules about how much a comment must say.
//!
//! *Owns*: the least number of words. *Takes*: all files. *Gives*: the first doc comment, and the
//! first safety comment, of a file that is too short to say anything.
//!
//! Text of a command line's help is not checked: it is a doc comment in the code, ends without a
//! full stop, and stands in a tool.

use super::File;

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
pub(super) fn safety(files: &[File]) -> Vec<String> {
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

    fn found(rule: fn(&[File]) -> Vec<String>, path: &str, text: &str) -> usize {
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
            assert_eq!(found(docs, "a/src/x.rs", text), 1, "{text}");
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
            assert_eq!(found(docs, "a/src/x.rs", text), 0, "{text}");
        }
        assert_eq!(found(docs, "tools/a/src/x.rs", "/// Jetty groups\nGroups,\n"), 0, "help");
        assert_eq!(found(docs, "tools/a/src/x.rs", "/// Jetty groups.\nGroups,\n"), 1);
    }

    #[test]
    fn a_planted_short_safety_comment_is_found() {
        let comment = |text: &str| format!("    // {}{}\n    unsafe {{ f() }};\n", "SAFETY", text);
        for text in [": as above.", ": a live object.", ":"] {
            assert_eq!(found(safety, "a/src/x.rs", &comment(text)), 1, "{text}");
            assert_eq!(found(safety, "liburma/src/x.rs", &comment(text)), 1, "{text}");
        }
        for text in
            [": `slot` stays mapped until the slab goes.", ": it is\n    // mapped and locked."]
        {
            assert_eq!(found(safety, "a/src/x.rs", &comment(text)), 0, "{text}");
        }
    }
}
