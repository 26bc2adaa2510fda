//! Programs and files of this system.
//!
//! *Owns*: looking for them, and words for what is not there.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// A program or package that is not there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Missing(pub String);

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Missing {}

/// Returns the error for `what`, which Debian's `package` has.
#[must_use]
pub fn missing(what: &str, package: &str) -> Missing {
    Missing(format!("{what} is missing: apt-get install {package}"))
}

/// Returns the error for `what`, with the system's error.
pub fn failed(what: &str) -> impl FnOnce(io::Error) -> Missing {
    move |error| Missing(format!("{what}: {error}"))
}

/// Returns the path of a program that Debian's `package` has.
///
/// # Errors
/// It is not in PATH.
pub fn program(name: &str, package: &str) -> Result<PathBuf, Missing> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let found =
        std::env::split_paths(&paths).map(|path| path.join(name)).find(|path| path.is_file());
    found.ok_or_else(|| missing(name, package))
}

/// Runs a program to its end; returns its output.
///
/// # Errors
/// It cannot be started, or fails: what it printed.
pub fn run(command: &mut Command, what: &str) -> Result<String, Missing> {
    let output = command.stdin(Stdio::null()).output().map_err(failed(what))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(Missing(format!("{what}: {}", errors.trim())))
}

/// Returns the entry of a folder that begins with `start`.
///
/// # Errors
/// There is none.
pub fn find(folder: &Path, start: &str) -> Result<PathBuf, Missing> {
    let entries = fs::read_dir(folder).map_err(failed(start))?;
    let found =
        entries.flatten().find(|entry| entry.file_name().to_string_lossy().starts_with(start));
    found
        .map(|entry| entry.path())
        .ok_or_else(|| Missing(format!("{start} is not in {}", folder.display())))
}

/// Copies a file; makes the folders of its target.
///
/// # Errors
/// The system's error.
pub fn copy(from: &Path, to: &Path) -> Result<(), Missing> {
    let parent = to.parent().unwrap_or(to);
    fs::create_dir_all(parent).map_err(failed("a folder of the guest"))?;
    fs::copy(from, to).map(|_| ()).map_err(failed(&from.display().to_string()))
}
