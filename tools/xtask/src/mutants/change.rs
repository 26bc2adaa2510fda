//! What changed: mutants that a change concerns.
//!
//! *Owns*: the choice. *Takes*: a revision. *Gives*: mutants whose file changed since, and new ones.

use std::path::Path;

use super::{
    list::{self, FOLDER, Mutant},
    scratch::git,
};
use crate::say::Failure;

/// Commits looked back where a branch has no commits of its own.
const BACK: u32 = 20;
/// Names of the branch that work starts from.
const TRUNKS: [&str; 4] = ["origin/main", "main", "origin/master", "master"];

/// Those of `mutants` that are new, or whose file changed, since `rev`; an empty `rev` is where
/// the branch left the main one, or some commits back.
pub(super) fn since(root: &Path, rev: &str, mutants: Vec<Mutant>) -> Result<Vec<Mutant>, Failure> {
    let rev = if rev.is_empty() { start(root)? } else { rev.to_owned() };
    let changed = files(root, &rev)?;
    let mut chosen = Vec::new();
    for mutant in mutants {
        let is_changed = changed.contains(&mutant.file);
        if is_changed || is_new(root, &rev, &mutant) {
            chosen.push(mutant);
        }
    }
    Ok(chosen)
}

/// Paths that differ between `rev` and the work tree.
fn files(root: &Path, rev: &str) -> Result<Vec<String>, Failure> {
    let text = git(root, &["diff", "--name-only", rev, "--"])?;
    Ok(text.lines().map(str::to_owned).collect())
}

/// The commit that the changes at hand are counted from.
pub(super) fn start(root: &Path) -> Result<String, Failure> {
    let head = git(root, &["rev-parse", "HEAD"])?;
    for trunk in TRUNKS {
        match git(root, &["merge-base", "HEAD", trunk]) {
            Ok(base) if base != head => return Ok(base.trim().to_owned()),
            _ => {}
        }
    }
    // At least one commit back, as many as there are up to the limit: a clone may be shallow.
    let count = git(root, &["rev-list", "--count", "--first-parent", "HEAD"])?;
    let back = count.trim().parse::<u32>().unwrap_or(1).saturating_sub(1).min(BACK);
    Ok(format!("HEAD~{back}"))
}

/// Whether the mutant's list lacked it, as it is, at `rev`.
fn is_new(root: &Path, rev: &str, mutant: &Mutant) -> bool {
    let Mutant { area, .. } = mutant;
    let Ok(text) = git(root, &["show", &format!("{rev}:{FOLDER}/{area}.toml")]) else {
        return true;
    };
    list::parse(area, &text).map_or(true, |before| !before.contains(mutant))
}
