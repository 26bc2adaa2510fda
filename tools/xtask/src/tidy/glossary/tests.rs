//! Planted words are found, and what the glossary allows is not.

use super::*;

const TABLE: &str = "# Glossary\n\n| word | meaning | not |\n|---|---|---|\n\
    | pass *(ours)* | one way over a ring | lap; round trip (but: round trip time) |\n\
    | ring, CI *(ours)* | a queue | |\n\nText.\n\n| letters | words |\n|---|---|\n| BTH | header |\n";

fn file(path: &str, text: &str) -> File {
    File { path: path.to_owned(), text: text.to_owned() }
}

fn uses(path: &str, text: &str) -> Vec<String> {
    forbidden(&[file(GLOSSARY, TABLE), file(path, text)])
}

#[test]
fn a_planted_word_is_found_in_code_comments_and_messages() {
    for text in [
        "// the next lap\n",
        "let lap = 1;\n",
        "struct LapLength;\n",
        "fn end_of_lap() {}\n",
        "const LAP: u8 = 1;\n",
        "Lap by lap.\n",
        "say(\"one round trip too many\");\n",
        "let RoundTrip = 1;\n",
    ] {
        assert_eq!(uses("a/src/x.rs", text).len(), 1, "{text}");
        assert_eq!(uses("a/README.md", text).len(), 1, "{text}");
        assert!(uses("liburma/src/x.rs", text).is_empty(), "later");
    }
    let found = uses("a.rs", "fn f() {}\n// lap\n// lap\n");
    assert_eq!(found, ["a.rs:2: \"lap\"; GLOSSARY says: pass"], "the first use of a file");
}

#[test]
fn other_words_and_allowed_phrases_pass() {
    for text in ["overlap", "OVERLAP", "laps_to", "the round trip time", "RoundTripTime", "round"] {
        assert_eq!(uses("a.rs", text), [""; 0], "{text}");
    }
}

#[test]
fn a_term_listed_twice_is_found() {
    assert!(terms(&[file(GLOSSARY, TABLE)]).is_empty());
    let again = format!("{TABLE}| CI | consumer index |\n");
    assert_eq!(terms(&[file(GLOSSARY, &again)]), ["GLOSSARY.md: CI is listed twice"]);
}
