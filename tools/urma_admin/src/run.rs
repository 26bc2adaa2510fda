//! `run -- PROGRAM`: starts a program that looks for its device in `/sys/class/ubcore`.
//!
//! *Owns*: the order of things: library, device, namespace, program. *Takes*: [`RunArgs`]. *Gives*:
//! the program in place of this process, so that its exit status and signals are its own. *Must
//! not*: change anything for other processes.

use std::{
    ffi::{OsStr, OsString},
    io::ErrorKind,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
};

use urma_tools::variable;

use crate::cli::RunArgs;

mod class;
mod device;
mod library;

/// Why the program does not run, and the exit code for it, as `env` has them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RunRefusal {
    pub(crate) why: String,
    pub(crate) code: u8,
}

impl From<String> for RunRefusal {
    fn from(why: String) -> Self {
        Self { why, code: NOT_STARTED }
    }
}

/// Exit codes beside those of the program.
const NOT_STARTED: u8 = 125;
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// Variables of the loader and of the library.
const LIBRARY_PATH: &str = "LD_LIBRARY_PATH";
const ALIASES: &str = "URMA_DEVICE_ALIAS";
const RELEASE: &str = "URMA_ABI";
/// The name of a bonding device, which is the only kind that some programs take.
const BONDING: &str = "bonding_dev_0";

/// Becomes the program; returns only when that fails.
pub(crate) fn run(cfg: &RunArgs) -> RunRefusal {
    match prepare(cfg) {
        Err(refusal) => refusal,
        Ok(mut command) => {
            let error = command.exec();
            let code = if error.kind() == ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE };
            let name = command.get_program().to_string_lossy().into_owned();
            RunRefusal { why: format!("{name}: {error}"), code }
        }
    }
}

fn prepare(cfg: &RunArgs) -> Result<Command, RunRefusal> {
    let (program, args) = cfg.command.split_first().ok_or_else(|| "no program".to_owned())?;
    let aliases = aliases(cfg.alias.as_deref())?;
    let choice = library::choose(cfg.release.as_deref(), found(program).as_deref())?;
    let device = device::describe()?;
    class::enter(&device, &aliases)?;
    if let Some(notice) = &choice.notice {
        urma_tools::say_error(&format!("urma_admin: {notice}"));
    }
    let mut command = Command::new(program);
    command.args(args);
    if let Some(folder) = choice.folder {
        let earlier = variable(LIBRARY_PATH).filter(|path| !path.is_empty());
        let paths = [folder.into_os_string()].into_iter().chain(earlier);
        command.env(LIBRARY_PATH, paths.collect::<Vec<OsString>>().join(OsStr::new(":")));
    }
    if let Some(release) = &cfg.release {
        command.env(RELEASE, release);
    }
    command.env(ALIASES, aliases.join(","));
    Ok(command)
}

/// The device's further names: those of the environment, and `--alias`; with neither, [`BONDING`].
fn aliases(more: Option<&str>) -> Result<Vec<String>, String> {
    let earlier = variable(ALIASES);
    // An empty one asks for none.
    let usual = (earlier.is_none() && more.is_none()).then_some(BONDING);
    let (earlier, more) = (earlier.unwrap_or_default(), more.or(usual));
    let earlier = earlier.to_string_lossy();
    let mut names: Vec<String> = Vec::new();
    for name in earlier.split(',').map(str::trim).chain(more).filter(|name| !name.is_empty()) {
        let is_file_name = name != "." && name != ".." && !name.contains(['/', ',', '\0']);
        if !is_file_name {
            return Err(format!("{name:?} is no name of a device: it has to be a file name"));
        }
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

/// The file that `program` names, as the system will find it.
fn found(program: &OsStr) -> Option<PathBuf> {
    let path = Path::new(program);
    if path.components().count() > 1 {
        return Some(path.to_path_buf());
    }
    let folders = variable("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(path)).find(|path| path.is_file())
}
