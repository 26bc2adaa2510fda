//! The house rules, as checks.
//!
//! *Owns*: the list of rules. *Takes*: the workspace's folder. *Gives*: one result per rule.
//! *Must not*: change a file.

use std::{fs, path::Path, process::Command};

use crate::say::{Failure, TaskResult};

mod documents;
mod floors;
pub(crate) mod manifest;
mod outside;
mod reasons;
mod source;
mod words;

/// A text file of the project.
#[derive(Clone, Debug)]
pub(crate) struct File {
    /// Path from the workspace's folder.
    pub(crate) path: String,
    /// Content as UTF-8 text.
    pub(crate) text: String,
}

impl File {
    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }
}

/// A rule: reads all files, returns what is wrong.
type Rule = fn(&[File]) -> Vec<String>;

/// The rules by name.
const RULES: &[(&str, Rule)] = &[
    ("every file says first what it is for", source::purposes),
    ("no file is longer than 1000 lines net of tests", source::lengths),
    ("every source file is reachable", source::reachable),
    ("every expect has a reason, nothing is allowed", source::expectations),
    ("unsafe code only in its homes", source::unsafety),
    ("only urma_mem::environment reads the environment", outside::environment),
    ("tools show text by urma_tools::say", outside::outputs),
    ("each path to Status::Invalid says why", reasons::given),
    ("no leftover markers", words::markers),
    ("no banned words", words::banned),
    ("no vague names", words::names),
    ("one type name means one thing", words::homonyms),
    ("no empty safety phrases", words::safety),
    ("doc comments say more than three words", words::docs),
    ("safety comments say more than four words", words::safety_names_invariant),
    ("crate-local clippy.toml keeps the common rules", manifest::clippy),
    ("dependencies between crates", manifest::dependencies),
    ("no circle of files or modules", floors::circles),
    ("versions stand in one table", manifest::versions),
    ("the mirror of the C API is current", source::mirror),
    ("the table of crates is current", manifest::listed),
    ("targets that are not tested have no test", manifest::untested),
    ("every promise of docs/security.md is guarded", documents::guarded),
    ("rows of survivors.toml name functions that exist", documents::survivors),
];

/// The rules about Markdown files, by name.
const DOCUMENTS: &[(&str, Rule)] = &[
    ("links of documents lead somewhere", documents::links),
    ("paths in documents exist", documents::paths),
    ("functions in tables of documents exist", documents::functions),
    ("every page of docs/ is a chapter", documents::chapters),
    ("every crate has a README", documents::readmes),
    ("every figure has a title and fits a page", documents::figures),
];

pub(crate) use documents::target;

/// Runs every rule; results by name.
pub(crate) fn check(root: &Path) -> Vec<(&'static str, TaskResult)> {
    run(root, &[RULES, DOCUMENTS].concat())
}

/// Runs the rules about Markdown files; results by name.
pub(crate) fn documents(root: &Path) -> Vec<(&'static str, TaskResult)> {
    run(root, DOCUMENTS)
}

fn run(root: &Path, rules: &[(&'static str, Rule)]) -> Vec<(&'static str, TaskResult)> {
    match files(root) {
        Ok(files) => rules.iter().map(|(name, rule)| (*name, outcome(&rule(&files)))).collect(),
        Err(failure) => vec![("files", Err(failure))],
    }
}

fn outcome(wrong: &[String]) -> TaskResult {
    if wrong.is_empty() { Ok(()) } else { Err(Failure(wrong.join("\n"))) }
}

/// Files that git knows, and new ones that it does not ignore.
pub(crate) fn files(root: &Path) -> Result<Vec<File>, Failure> {
    let mut git = Command::new("git");
    git.args(["ls-files", "-co", "--exclude-standard"]).current_dir(root);
    let output = git.output().map_err(Failure::system("starting git"))?;
    if !output.status.success() {
        return Err(Failure("git ls-files failed".to_owned()));
    }
    let list = String::from_utf8_lossy(&output.stdout).into_owned();
    let files = list.lines().filter_map(|path| {
        // What is not text, or was deleted just now, has no rules.
        let text = fs::read_to_string(root.join(path)).ok()?;
        Some(File { path: path.to_owned(), text })
    });
    Ok(files.collect())
}

#[cfg(test)]
mod tests;
