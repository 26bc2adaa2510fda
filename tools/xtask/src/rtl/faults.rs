//! Faults planted in copies of the designs.
//!
//! *Owns*: the form of the list. *Takes*: the list, the checks. *Gives*: one check per fault: it is found
//! by the check that the list names.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use serde::Deserialize;

use super::design::{self, Scheme};
use crate::say::{Failure, TaskResult};

/// The list, from the folder of designs.
const LIST: &str = "test/faults.toml";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FaultList {
    fault: Vec<DesignFault>,
}

/// One fault, and the check that must find it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DesignFault {
    /// Name of the fault, unique in the list.
    pub(super) name: String,
    /// Scheme in which it is looked for.
    pub(super) scheme: Scheme,
    file: String,
    find: String,
    replace: String,
    /// A second change of the same file.
    #[serde(default)]
    also: Option<Change>,
    /// Beginning of the name of the check that must find it.
    pub(super) check: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    find: String,
    replace: String,
}

/// Reads the list of faults.
pub(super) fn read() -> Result<Vec<DesignFault>, Failure> {
    let text = fs::read_to_string(design::folder().join(LIST)).map_err(Failure::system(LIST))?;
    let list: FaultList =
        toml::from_str(&text).map_err(|error| Failure(format!("{LIST}: {error}")))?;
    let mut names = BTreeSet::new();
    match list.fault.iter().find(|fault| !names.insert(&fault.name)) {
        Some(twice) => Err(Failure(format!("{LIST}: two faults have the name {:?}", twice.name))),
        None => Ok(list.fault),
    }
}

impl DesignFault {
    /// Whether the check that must find it begins with `part`.
    pub(super) fn is_for(&self, part: &str) -> bool {
        self.check.starts_with(part)
    }

    /// Copies the designs with the fault to `folder`. Gives their folder.
    pub(super) fn plant(&self, folder: &Path) -> Result<PathBuf, Failure> {
        for path in design::sources(&design::folder())? {
            let name = path.file_name().unwrap_or_default();
            let mut text =
                fs::read_to_string(&path).map_err(Failure::system("reading a design"))?;
            if name == self.file.as_str() {
                text = self.changed(&text)?;
            }
            let written = fs::write(folder.join(name), text);
            written.map_err(Failure::system("writing a design"))?;
        }
        Ok(folder.to_path_buf())
    }

    fn changed(&self, text: &str) -> Result<String, Failure> {
        let text = self.replaced(text, &self.find, &self.replace)?;
        match &self.also {
            Some(also) => self.replaced(&text, &also.find, &also.replace),
            None => Ok(text),
        }
    }

    fn replaced(&self, text: &str, find: &str, replace: &str) -> Result<String, Failure> {
        match text.matches(find).count() {
            1 => Ok(text.replace(find, replace)),
            count => Err(Failure(format!("{} holds {find:?} {count} times", self.file))),
        }
    }

    /// Success if the check of this fault is among `checks` and failed.
    pub(super) fn is_found_by(&self, checks: &[(String, TaskResult)]) -> TaskResult {
        let mut named = checks.iter().filter(|(name, _)| name.starts_with(&self.check)).peekable();
        if named.peek().is_none() {
            return Err(Failure(format!("no check is named {:?}", self.check)));
        }
        if named.any(|(_, result)| result.is_err()) {
            return Ok(());
        }
        Err(Failure(format!("{:?} passes", self.check)))
    }
}
