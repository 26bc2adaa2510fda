//! A planted homonym is found.

use super::*;

fn found(path: &str, text: &str) -> Vec<String> {
    let first = "pub(crate) struct Turn;\nfn f() { enum Inner {} }\nimpl A { type Out = u8; }\n";
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
