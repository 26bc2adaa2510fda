//! Planted comments that say too little are found.

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
    for text in [": `slot` stays mapped until the slab goes.", ": it is\n    // mapped and locked."]
    {
        assert_eq!(found(safety, "a/src/x.rs", &comment(text)), 0, "{text}");
    }
}
