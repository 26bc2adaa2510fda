//! Rules about what crosses the border of a process: its environment, and the terminal of its user.
//!
//! *Owns*: the one file that reads the environment, the one that writes to a terminal. *Takes*: the sources of libraries and
//! tools. *Gives*: the places that go around them.

use super::{File, source};

/// What programs outside of the tests are made of; `tools/xtask` is a tool of developers.
const PRODUCT: &[&str] = &[
    "urma-mem/",
    "urma-core/",
    "udma-provider/",
    "ubcore-sim/",
    "urma/",
    "liburma/",
    "inc/",
    "lab/",
    "tools/",
];

/// Who may read the environment: one file, which knows whether it is the caller's, and two that only builds of tests
/// have.
const READERS: &[&str] =
    &["urma-mem/src/environment.rs", "ubcore-sim/src/hooks.rs", "liburma/src/call.rs"];

/// Features that no product is built with; a reader from here on needs one.
const TEST_FEATURES: &[(&str, &str)] = &[
    ("ubcore-sim/src/hooks.rs", "feature = \"fault-hooks\""),
    ("liburma/src/call.rs", "feature = \"planted-faults\""),
];

/// A program with more rights than its caller obeys no variable of it, so one file decides for all.
pub(super) fn environment(files: &[File]) -> Vec<String> {
    let is_reader = |file: &&File| READERS.contains(&file.path.as_str());
    let others = product(files).filter(|file| !is_reader(file));
    let mut wrong: Vec<String> = others
        .flat_map(|file| places(file, &["env::var", "env::vars", "try_from_env("]))
        .map(|place| {
            format!("{place}: reads the environment; urma_mem::environment::variable does")
        })
        .collect();
    for (path, feature) in TEST_FEATURES {
        let lost = files.iter().filter(|file| file.path == *path && !file.text.contains(feature));
        wrong.extend(lost.map(|_| format!("{path}: reads the environment without {feature}")));
    }
    wrong
}

/// A tool shows text of peers, nodes and files, none of which its user's terminal obeys.
pub(super) fn outputs(files: &[File]) -> Vec<String> {
    const WAYS: &[&str] = &["stdout()", "stderr()", "println!(", "print!("];
    let is_tool =
        |file: &&File| file.path.starts_with("tools/") && !file.path.starts_with("tools/shared/");
    let tools = product(files).filter(is_tool);
    let around = tools.flat_map(|file| places(file, WAYS));
    around.map(|place| format!("{place}: urma_tools::say and say_error write")).collect()
}

fn product(files: &[File]) -> impl Iterator<Item = &File> {
    files.iter().filter(|file| {
        file.is_rust()
            && PRODUCT.iter().any(|folder| file.path.starts_with(folder))
            && !file.path.starts_with("tools/xtask/")
            && file.path.contains("src/")
            && !source::is_test(&file.path)
    })
}

/// Lines of the code before its tests that have one of the words.
fn places(file: &File, words: &[&str]) -> Vec<String> {
    let end = file.text.find("#[cfg(test)]\nmod ").unwrap_or(file.text.len());
    let code = file.text[..end].lines().map(|line| line.split("//").next().unwrap_or(""));
    let found = code.enumerate().filter(|(_, line)| words.iter().any(|word| line.contains(word)));
    found.map(|(index, _)| format!("{}:{}", file.path, index + 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(rule: fn(&[File]) -> Vec<String>, path: &str, text: &str) -> Vec<String> {
        rule(&[File { path: path.to_owned(), text: text.to_owned() }])
    }

    #[test]
    fn a_read_of_the_environment_anywhere_else_is_found() {
        let read = "fn f() {\n    std::env::var_os(\"URMA_X\");\n}\n";
        let found = wrong(environment, "liburma/src/x.rs", read);
        assert!(found[0].starts_with("liburma/src/x.rs:2: reads"), "{found:?}");
        for path in ["urma-mem/src/x.rs", "tools/ubcored/src/x.rs", "ubcore-sim/packet/src/x.rs"] {
            assert_eq!(wrong(environment, path, read).len(), 1, "{path}");
        }
        for text in ["std::env::vars()", "Filter::try_from_env(\"URMA_LOG\")", "env::var(X)"] {
            assert_eq!(wrong(environment, "urma/src/x.rs", text).len(), 1, "{text}");
        }
        let others = ["urma-mem/src/environment.rs", "tools/xtask/src/x.rs", "tests/c/src/x.rs"];
        for path in others.into_iter().chain(["urma/tests/x.rs", "urma/src/tests.rs"]) {
            assert_eq!(wrong(environment, path, read), [""; 0], "{path}");
        }
        assert_eq!(wrong(environment, "urma/src/x.rs", "// env::var is a word\n"), [""; 0]);
        assert_eq!(wrong(environment, "ubcore-sim/src/hooks.rs", read).len(), 1, "no feature");
    }

    #[test]
    fn a_tool_that_writes_past_the_helper_is_found() {
        let path = "tools/urma_ping/src/x.rs";
        for text in ["println!(\"{x}\")", "eprint!(\"x\")", "io::stderr()", "stdout().lock()"] {
            assert_eq!(wrong(outputs, path, text).len(), 1, "{text}");
        }
        assert_eq!(wrong(outputs, "tools/shared/src/lib.rs", "io::stdout()"), [""; 0]);
    }
}
