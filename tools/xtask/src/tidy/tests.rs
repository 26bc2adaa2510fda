//! Each rule finds what it is for, and the workspace obeys them.

use super::*;

fn file(path: &str, text: &str) -> File {
    File { path: path.to_owned(), text: text.to_owned() }
}

#[track_caller]
fn finds(rule: Rule, path: &str, good: &str, bad: &str) {
    assert_eq!(rule(&[file(path, good)]), Vec::<String>::new());
    assert_eq!(rule(&[file(path, bad)]).len(), 1, "{path}: {bad}");
}

#[test]
fn rules_about_sources() {
    finds(source::room_cards, "a/src/lib.rs", "//! A room.\n", "use std::fs;\n");
    let long = format!("//! x\n{}", "fn f() {}\n".repeat(600));
    finds(source::lengths, "a/src/x.rs", &long[..300], &long);
    let tested = format!("//! x\n#[cfg(test)]\nmod tests {{\n{}", "\n".repeat(700));
    assert!(source::lengths(&[file("a/src/x.rs", &tested)]).is_empty());
    let allow = "#[allow(dead_code)]\n";
    finds(source::expectations, "a/src/x.rs", "#[expect(x, reason = \"r\")]\n", allow);
    finds(
        source::expectations,
        "a/src/x.rs",
        "#[expect(\n  x,\n  reason = \"r\"\n)]\n",
        "#[expect(x)]\n",
    );
    let block = "fn f() { unsafe { g() } }\n";
    finds(source::unsafety, "a/src/x.rs", "// unsafe { is a word }\n", block);
    assert!(source::unsafety(&[file("urma-mem/src/x.rs", block)]).is_empty());
    finds(source::unsafety, "a/src/lib.rs", "#![forbid(unsafe_code)]\n", "//! x\n");
}

#[test]
fn a_lost_file_is_found() {
    let parent = file("a/src/lib.rs", "mod b;\n");
    let known = file("a/src/b.rs", "pub mod c;\n");
    let nested = file("a/src/b/c.rs", "");
    let lost = file("a/src/d.rs", "");
    assert_eq!(source::reachable(&[parent, known, nested, lost]).len(), 1);
}

#[test]
fn circles_of_files_and_rooms_are_found() {
    let circle = |b: &str, c: &str| {
        let files = [("lib", "mod b; mod c;"), ("b", b), ("c", c), ("c/d", "use super::C;")];
        let files = files.map(|(name, text)| file(&format!("a/src/{name}.rs"), text));
        floors::circles(&files)
    };
    let parent = "mod d; use d::D;";
    assert_eq!(circle("use crate::c::C;", parent), Vec::<String>::new());
    assert_eq!(circle("#[cfg(test)] mod tests { use crate::c::C; }", "use crate::b::B;"), [""; 0]);
    assert_eq!(circle("use crate::c::C;", "fn f() { crate::b::g() }").len(), 2, "files and rooms");
    // Two rooms, no two files of which know each other.
    assert_eq!(circle("use crate::{c::C, x::X};", "use crate::b::deep::B;").len(), 2);
    let rooms = [
        ("lib", ""),
        ("b", ""),
        ("b/x", "use crate::c::C;"),
        ("c", ""),
        ("c/y", "use crate::b::B;"),
    ];
    let rooms = rooms.map(|(name, text)| file(&format!("a/src/{name}.rs"), text));
    assert_eq!(floors::circles(&rooms).len(), 1, "rooms only");
}

#[test]
fn rules_about_words() {
    finds(words::markers, "a.md", "done", concat!("// TO", "DO: later"));
    finds(words::banned, "a.md", "network", concat!("see /wo", "rk/x"));
    finds(words::names, "a.rs", "fn len()", concat!("fn ge", "t_len()"));
    finds(words::safety, "a.rs", "// SAFETY: base is mapped.", concat!("// SAFETY: f", "fi"));
}

#[test]
fn rules_about_manifests() {
    let manifest = |name: &str, dependency: &str| {
        format!(
            "[package]\nname = \"{name}\"\n\n[dependencies]\n{dependency} = {{ workspace = true }}\n"
        )
    };
    let (good, bad) = (manifest("urma-core", "urma-mem"), manifest("urma-mem", "urma-core"));
    finds(manifest::arrows, "a/Cargo.toml", &good, &bad);
    let driver = manifest("udma-provider", "ubcore-sim");
    finds(manifest::arrows, "a/Cargo.toml", &good, &driver);
    finds(
        manifest::arrows,
        "a/Cargo.toml",
        &manifest("xtask", "ubcore-sim"),
        &manifest("new", "x"),
    );
    let own = "[package]\nname = \"x\"\n[dependencies]\nserde = \"1.0\"\n";
    finds(manifest::versions, "a/Cargo.toml", &good, own);
    let common = file("clippy.toml", "too-many-lines-threshold = 70\n");
    let local = |text| vec![common.clone(), file("a/clippy.toml", text)];
    assert!(manifest::clippy(&local("too-many-lines-threshold = 70\n")).is_empty());
    assert_eq!(manifest::clippy(&local("")).len(), 1);
}
