//! Planted words are found, and what the glossary allows is not.

use super::*;

const TABLE: &str = "# Glossary\n\n| word | meaning | not |\n|---|---|---|\n\
    | pass *(ours)* | one way over a ring | blip; round trip (but: round trip time) |\n\
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
        "// the next blip\n",
        "let blip = 1;\n",
        "struct BlipLength;\n",
        "fn end_of_blip() {}\n",
        "const BLIP: u8 = 1;\n",
        "Blip by blip.\n",
        "say(\"one round trip too many\");\n",
        "let RoundTrip = 1;\n",
    ] {
        assert_eq!(uses("a/src/x.rs", text).len(), 1, "{text}");
        assert_eq!(uses("a/README.md", text).len(), 1, "{text}");
    }
    let found = uses("a.rs", "fn f() {}\n// blip\n// blip\n");
    assert_eq!(found, ["a.rs:2: \"blip\"; GLOSSARY says: pass"], "the first use of a file");
}

#[test]
fn other_words_and_allowed_phrases_pass() {
    for text in
        ["overblip", "OVERBLIP", "blips_to", "the round trip time", "RoundTripTime", "round"]
    {
        assert_eq!(uses("a.rs", text), [""; 0], "{text}");
    }
}

#[test]
fn a_term_listed_twice_is_found() {
    assert!(terms(&[file(GLOSSARY, TABLE)]).is_empty());
    let again = format!("{TABLE}| CI | consumer index |\n");
    assert_eq!(terms(&[file(GLOSSARY, &again)]), ["GLOSSARY.md: CI is listed twice"]);
}
