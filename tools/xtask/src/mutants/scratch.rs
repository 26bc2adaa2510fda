//! A copy of the work tree in which mutants are planted.
//!
//! *Owns*: the copy. *Takes*: paths that git has. *Gives*: a tree that is as git has it between
//! mutants. *Must not*: write outside the copy, touch a file that is the same (builds go on).

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::list::Mutant;
use crate::{
    child,
    say::{Failure, TaskResult},
};

/// Copy of the tree in which mutants are planted.
#[derive(Debug)]
pub(super) struct Scratch {
    tree: PathBuf,
}

/// Files that git has, and new ones that it does not ignore.
pub(super) fn tracked(root: &Path) -> Result<Vec<String>, Failure> {
    let text = git(root, &["ls-files", "-co", "--exclude-standard"])?;
    Ok(text.lines().map(str::to_owned).collect())
}

/// Output of a git command in `root`.
pub(super) fn git(root: &Path, args: &[&str]) -> Result<String, Failure> {
    child::output(Command::new("git").args(args).current_dir(root))
}

impl Scratch {
    /// Makes the copy in `tree` equal to `files` of `root`.
    pub(super) fn sync(root: &Path, tree: &Path, files: &[String]) -> Result<Self, Failure> {
        fs::create_dir_all(tree).map_err(Failure::system("making the copy's folder"))?;
        for file in files {
            // A file that was deleted and is still in the index.
            let Ok(bytes) = fs::read(root.join(file)) else { continue };
            let to = tree.join(file);
            if fs::read(&to).is_ok_and(|there| there == bytes) {
                continue;
            }
            let folder = to.parent().unwrap_or(tree);
            fs::create_dir_all(folder).map_err(Failure::system("making a folder of the copy"))?;
            // Keeps the mode: scripts stay executable.
            fs::copy(root.join(file), &to).map_err(Failure::system("copying a file"))?;
            touch(&to)?;
        }
        let is_kept =
            |path: &str| files.iter().any(|file| file == path) && root.join(path).exists();
        remove_others(tree, tree, &is_kept)?;
        Ok(Self { tree: tree.to_path_buf() })
    }

    /// Folder of the copy.
    pub(super) fn tree(&self) -> &Path {
        &self.tree
    }

    /// Plants `mutant`, calls `work`, restores the file.
    pub(super) fn with<T>(&self, mutant: &Mutant, work: impl FnOnce() -> T) -> Result<T, Failure> {
        let path = self.tree.join(&mutant.file);
        let text = fs::read_to_string(&path).map_err(Failure::system("reading"))?;
        match text.matches(&mutant.find).count() {
            1 => {}
            n => return Err(Failure(format!("stale: `find` occurs {n} times, not once"))),
        }
        if mutant.find == mutant.replace {
            return Err(Failure("`replace` is the same as `find`".to_owned()));
        }
        write(&path, &text.replacen(&mutant.find, &mutant.replace, 1))?;
        let result = work();
        write(&path, &text)?;
        Ok(result)
    }
}

fn write(path: &Path, text: &str) -> TaskResult {
    fs::write(path, text).map_err(Failure::system("writing to the copy"))
}

/// Gives a copied file the present as its time, so that cargo sees the change.
fn touch(path: &Path) -> TaskResult {
    let bytes = fs::read(path).map_err(Failure::system("reading the copy"))?;
    fs::write(path, bytes).map_err(Failure::system("writing to the copy"))
}

/// Removes files below `folder` that are not to be kept; paths count from `tree`.
fn remove_others(tree: &Path, folder: &Path, is_kept: &dyn Fn(&str) -> bool) -> TaskResult {
    let entries = folder.read_dir().map_err(Failure::system("reading the copy"))?;
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            remove_others(tree, &path, is_kept)?;
        } else if !path.strip_prefix(tree).is_ok_and(|path| is_kept(&path.to_string_lossy())) {
            fs::remove_file(&path).map_err(Failure::system("removing from the copy"))?;
        }
    }
    Ok(())
}
