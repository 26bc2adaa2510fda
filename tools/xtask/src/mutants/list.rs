//! The lists of mutants.
//!
//! *Owns*: the format of tests/mutants/*.toml. *Takes*: that folder. *Gives*: mutants.

use std::{collections::BTreeSet, fs, path::Path};

use serde::{Deserialize, Serialize};

use crate::say::{Failure, TaskResult, say};

/// Where the lists are, from the workspace's folder.
pub(super) const FOLDER: &str = "tests/mutants";
/// Lists for cargo-mutants, in the same folder.
pub(super) const GENERATED: [&str; 2] = ["crates", "survivors"];

/// One fault, and the test that must find it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Mutant {
    /// Name of the mutant, unique in all lists.
    pub(super) name: String,
    /// Name of the list, without its ending.
    #[serde(default)]
    pub(super) area: String,
    /// The file that is changed, from the workspace's folder.
    pub(super) file: String,
    /// Text that the file holds once.
    pub(super) find: String,
    /// What stands there instead.
    pub(super) replace: String,
    /// Arguments of `cargo test`.
    pub(super) test: Vec<String>,
    /// What the fault would do to a user.
    pub(super) why: String,
    /// Seconds after which the mutated test counts as hung, instead of the usual limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) hangs_after: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MutantList {
    #[serde(default)]
    mutant: Vec<Mutant>,
}

impl Mutant {
    /// Whether `name` is this mutant's name or area.
    pub(super) fn is(&self, name: &str) -> bool {
        self.name == name || self.area == name
    }
}

/// Reads all lists of the folder.
pub(super) fn read(folder: &Path) -> Result<Vec<Mutant>, Failure> {
    let files = folder.read_dir().map_err(Failure::system("reading the lists of mutants"))?;
    let mut paths: Vec<_> = files.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|end| end == "toml"));
    paths.sort();
    let mut mutants = Vec::new();
    for path in paths {
        let area = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if GENERATED.contains(&area.as_str()) {
            continue;
        }
        let text = fs::read_to_string(&path).map_err(Failure::system("reading a list"))?;
        mutants.extend(parse(&area, &text)?);
    }
    let mut names = BTreeSet::new();
    match mutants.iter().find(|mutant| !names.insert(&mutant.name)) {
        Some(twice) => Err(Failure(format!("{}: two mutants have this name", twice.name))),
        None => Ok(mutants),
    }
}

/// Mutants of one list.
pub(super) fn parse(area: &str, text: &str) -> Result<Vec<Mutant>, Failure> {
    let list: MutantList =
        toml::from_str(text).map_err(|error| Failure(format!("{FOLDER}/{area}.toml: {error}")))?;
    let named = |mutant| Mutant { area: area.to_owned(), ..mutant };
    Ok(list.mutant.into_iter().map(named).collect())
}

/// Prints name, file and test of each.
pub(super) fn print(mutants: &[Mutant], is_json: bool) -> TaskResult {
    if is_json {
        let json = serde_json::to_string_pretty(mutants);
        say(&json.map_err(|error| Failure(format!("writing JSON: {error}")))?);
        return Ok(());
    }
    for Mutant { name, file, test, .. } in mutants {
        say(&format!("{name}\n    {file}\n    cargo test {}", test.join(" ")));
    }
    say(&format!("{} mutants", mutants.len()));
    Ok(())
}
