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
    finds(source::purposes, "a/src/lib.rs", "//! Rings.\n", "use std::fs;\n");
    let long = format!("//! x\n{}", "fn f() {}\n".repeat(1000));
    finds(source::lengths, "a/src/x.rs", &long[..300], &long);
    let tested = format!("//! x\n#[cfg(test)]\nmod tests {{\n{}", "\n".repeat(1100));
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
fn a_row_of_a_survivor_without_its_function_is_found() {
    let source = "impl<'a> Cqe<'a> {\n    fn encode(&self) {}\n}\n\
                  impl Sqe {\n    // fn lost() {}\n    fn decode(&self) {}\n}\nfn two() {}\n";
    let wrong = |path: &str, mutation: &str| {
        let row = format!("[[survivor]]\nfile = \"{path}\"\nmutation = \"{mutation}\"\n");
        let files = [file("a/src/x.rs", source), file("tests/mutants/survivors.toml", &row)];
        documents::survivors(&files).len()
    };
    for good in ["replace | with ^ in Cqe::encode", "replace two -> u8 with 0", "delete ! in two"] {
        assert_eq!(wrong("a/src/x.rs", good), 0, "{good}");
    }
    assert_eq!(wrong("a/src/gone.rs", "replace two -> u8 with 0"), 1, "the file");
    for bad in ["Cqe::decode", "Sqe::encode", "Sqe::lost", "Rqe::encode", "three", "wo"] {
        assert_eq!(wrong("a/src/x.rs", &format!("replace | with ^ in {bad}")), 1, "{bad}");
    }
    assert_eq!(wrong("a/src/x.rs", "replace Sqe::gone -> Option<u8> with None"), 1);
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
    let in_tests = |condition: &str| {
        circle(&format!("#[cfg({condition})] use crate::c::C;"), "use crate::b::B;")
    };
    assert_eq!(in_tests("all(test, unix)").len(), 0);
    assert_eq!(in_tests("any(test, feature = \"more\")").len(), 2, "code that a user can have");
    assert_eq!(in_tests("not(test)").len(), 2);
    assert_eq!(circle("use crate::c::C;", "fn f() { crate::b::g() }").len(), 2, "files and rooms");
    // Two rooms, no two files of which know each other.
    assert_eq!(circle("use crate::{c::C, x::X};", "use crate::b::deep::B;").len(), 2);
    // What a room shows of another one is where it stands, whatever name the path has.
    let shown = |lib: &str, b: &str| {
        let files = [("lib", lib), ("b", b), ("c", "use crate::B;")];
        floors::circles(&files.map(|(name, text)| file(&format!("a/src/{name}.rs"), text)))
    };
    let lib = "mod b; mod c; pub use b::B; pub(crate) use c::{C, D as E};";
    assert_eq!(shown(lib, ""), [""; 0]);
    assert_eq!(shown(lib, "use crate::{C, X};").len(), 2, "files and rooms");
    assert_eq!(shown(lib, "fn f() { crate::C::new() }").len(), 2);
    assert_eq!(shown("mod b; mod c; pub use b::B; use c::C;", "use crate::C;"), [""; 0]);
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
fn a_test_in_a_target_that_is_not_tested_is_found() {
    let wrong = |manifest: &str, path: &str, text: &str| {
        let files = [file("a/Cargo.toml", manifest), file(path, text)];
        manifest::untested(&files).len()
    };
    let (test, example) = ("    #[test]\nfn x() {}\n", "/// ```\n/// x();\n/// ```\nfn x() {}\n");
    let (off, plain) = ("[lib]\ntest = false\ndoctest = false\n", "[package]\nname = \"a\"\n");
    assert_eq!(wrong(off, "a/src/lib.rs", "//! ```text\n//! x\n//! ```\n"), 0);
    assert_eq!(wrong(off, "a/src/lib.rs", test), 1);
    assert_eq!(wrong(off, "a/src/b/c.rs", test), 1);
    assert_eq!(wrong(off, "a/src/bin/c.rs", test), 0, "a target of its own");
    assert_eq!(wrong(off, "a/src/lib.rs", example), 1);
    assert_eq!(wrong(off, "a/src/lib.rs", "#![doc = include_str!(\"../README.md\")]\n"), 1);
    assert_eq!(wrong(plain, "a/src/lib.rs", &format!("{test}{example}")), 0);
    let program = "[[bin]]\nname = \"b\"\npath = \"src/bin/b.rs\"\ntest = false\n";
    assert_eq!(wrong(program, "a/src/bin/b.rs", test), 1);
    assert_eq!(wrong(program, "a/src/lib.rs", test), 0);
}

#[test]
fn a_promise_without_a_guard_is_found() {
    let rows = |last: &str| {
        let rows = "| it is so | `strangers::a_test` |\n".repeat(10);
        format!("| promise | guarded by |\n|---|---|\n{rows}{last}\n\nNot promised: x\n")
    };
    let wrong = |page: &str| {
        let test = file("a/tests/strangers.rs", "#[test]\nfn a_test() {}\n");
        documents::guarded(&[file("docs/security.md", page), test, file("b/c/d.toml", "")])
    };
    assert_eq!(wrong(&rows("| so too | the same |")), [""; 0]);
    assert_eq!(wrong(&rows("| and so | `b/c` |")), [""; 0]);
    let lost = ["docs/security.md: and so: there is no gone::away"];
    assert_eq!(wrong(&rows("| and so | `a_test` and `gone::away` |")), lost);
    assert_eq!(wrong(&rows("| and so | hope |")), ["docs/security.md: and so: nothing guards it"]);
    assert_eq!(wrong("| promise | guarded by |\n").len(), 1, "the tables were not found");
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
    finds(manifest::dependencies, "a/Cargo.toml", &good, &bad);
    let driver = manifest("udma-provider", "ubcore-sim");
    finds(manifest::dependencies, "a/Cargo.toml", &good, &driver);
    finds(
        manifest::dependencies,
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

/// What `rule` finds in the document `docs/a.md`, beside which some files lie.
fn in_document(rule: Rule, text: &str) -> Vec<String> {
    let code = "fn posted() {}\n";
    rule(&[
        file("docs/a.md", text),
        file("docs/b.md", "# B\n\n## The `c` part\n"),
        file("d/src/host/link.rs", code),
    ])
}

#[test]
fn a_link_that_leads_nowhere_is_found() {
    let good = "[b](b.md) [c](b.md#the-c-part) [d](../d/src) [w](https://x.y/z) [e](#e)\n\n# E\n";
    assert_eq!(in_document(documents::links, good), [""; 0]);
    let lost = [
        ("[b](c.md)", "docs/a.md:3: c.md: no such file"),
        ("[b](b.md#d)", "docs/a.md:3: b.md#d: no such heading"),
        ("[b](#d)", "docs/a.md:3: #d: no such heading"),
        ("![b](b.png)", "docs/a.md:3: b.png: no such file"),
        ("[b][d]", "docs/a.md:3: [d]: no such file"),
        ("[b](/docs/b.md)", "docs/a.md:3: /docs/b.md: an absolute path"),
    ];
    for (link, message) in lost {
        assert_eq!(in_document(documents::links, &format!("# E\n\n{link}\n")), [message]);
    }
}

#[test]
fn a_path_that_is_not_there_is_found() {
    let good = "`docs/b.md` `b.md` `host/link.rs` `d/src/` `d/*/x.rs` `e/f` `link.rs`";
    assert_eq!(in_document(documents::paths, good), [""; 0]);
    for lost in ["docs/c.md", "c.md", "d/host", "ost/link.rs"] {
        let found = in_document(documents::paths, &format!("x\n`{lost}`"));
        assert_eq!(found, [format!("docs/a.md:2: no such path: {lost}")]);
    }
    assert_eq!(documents::paths(&[file("CHANGELOG.md", "`c.md`")]), [""; 0]);
}

#[test]
fn a_function_that_a_file_of_its_row_lacks_is_found() {
    let row =
        |function: &str| format!("| file | does |\n|---|---|\n| `link.rs` | `{function}` |\n");
    let found = |function| in_document(documents::functions, &row(function));
    assert_eq!(found("posted()"), [""; 0]);
    assert_eq!(found("Link::posted()"), [""; 0]);
    assert_eq!(found("sent()"), ["docs/a.md:3: sent is no function of the row's files"]);
}

#[test]
fn a_page_outside_the_book_a_missing_readme_and_a_bad_figure_are_found() {
    let summary = |list| file("docs/SUMMARY.md", list);
    let page = file("docs/guide/x.md", "");
    let listed = [summary("- [X](guide/x.md)"), page.clone()];
    assert_eq!(documents::chapters(&listed), [""; 0]);
    assert_eq!(documents::chapters(&[summary(""), page]).len(), 1);
    let manifests = [file("a/Cargo.toml", ""), file("tests/b/Cargo.toml", "")];
    assert_eq!(documents::readmes(&manifests), ["a: no README.md"]);
    let readme = [manifests.to_vec(), vec![file("a/README.md", "")]].concat();
    assert_eq!(documents::readmes(&readme), [""; 0]);
    assert_eq!(in_document(documents::figures, "```figure A\n│\n```\n"), [""; 0]);
    let wide = format!("```figure A\n{}\n```\n", "─".repeat(101));
    assert_eq!(
        in_document(documents::figures, "```plot A\nus\nb | x\n1 | 2\n2 | 3\n```\n"),
        [""; 0]
    );
    let plot = "```plot A\nus\nb | x\n1 | y\n```\n";
    for bad in ["```figure\n│\n```\n", "```figure A\n\n```\n", plot, &wide] {
        assert_eq!(in_document(documents::figures, bad).len(), 1, "{bad}");
    }
}
