//! `run -- PROGRAM`: starts a program that looks for its device in `/sys/class/ubcore`.
//!
//! The order is library, device, namespace, program; the library is that of the release which the program was built
//! for. The program takes the place of this process, so that its exit status and signals are its own. Must not
//! change anything for other processes.

mod device;

use std::{
    ffi::{OsStr, OsString},
    io::ErrorKind,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
};

use urma_tools::variable;

use crate::{abi, cli::RunArgs};

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
    let choice = choose(cfg.release.as_deref(), found(program).as_deref())?;
    let device = device::describe()?;
    device::enter(&device, &aliases)?;
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

/// File name by which the loader finds the library.
const NAME: &str = "liburma.so.0";
/// Where libraries of other releases lie, below the first one's folder.
const OTHERS: &str = "urma-abi";

/// What the program gets, and what its user should know about that.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct LibraryChoice {
    /// Folder for the loader; `None`: no library lies beside this program, the loader finds its own.
    folder: Option<PathBuf>,
    /// A line for the user.
    notice: Option<String>,
}

/// The library of `release`; without one, of the release that `program` was built for, else the first library
/// there is. A program whose release is not known is named, where it is one of URMA at all.
///
/// # Errors
/// What is missing, and how to get it: a program is never served by the library of another release unless
/// `release` says so.
fn choose(release: Option<&str>, program: Option<&Path>) -> Result<LibraryChoice, String> {
    let folders = folders();
    let name = program.map(|program| program.display().to_string()).unwrap_or_default();
    let abi = program.and_then(|program| abi::of(program).ok());
    let (built_for, why) =
        abi.as_ref().map_or((None, ""), |abi| (abi.release, abi.because.as_str()));
    if let Some(release) = release {
        let folder = of(&folders, release).ok_or_else(|| missing(&folders, release))?;
        let other = built_for.filter(|built_for| !fits(built_for, release));
        let notice = other.map(|other| {
            format!("{name} was built for release {other} ({why}); --release gives it {release}")
        });
        return Ok(LibraryChoice { folder: Some(folder), notice });
    }
    if let Some(release) = built_for.filter(|release| abi::RELEASES.contains(release))
        && let Some(folder) = of(&folders, release)
    {
        return Ok(LibraryChoice { folder: Some(folder), notice: None });
    }
    let beside = folders.iter().find(|folder| folder.join(NAME).is_file()).cloned();
    let found = beside.clone().or_else(of_loader);
    let serves = found.as_ref().and_then(|folder| abi::of_library(&folder.join(NAME)));
    match (built_for, serves) {
        (Some(built_for), Some(serves)) if !fits(built_for, serves) => {
            Err(refusal(&name, built_for, why, &folders))
        }
        (None, Some(serves)) if abi.as_ref().is_some_and(|abi| abi.is_of_urma) => {
            let notice = format!(
                "{name}: the release of the C API that it was built for is unknown ({why}); it gets \
                 the library of {serves}; --release RELEASE gives it another ({})",
                abi::RELEASES.join(", ")
            );
            Ok(LibraryChoice { folder: beside, notice: Some(notice) })
        }
        _ => Ok(LibraryChoice { folder: beside, notice: None }),
    }
}

/// Whether a program of `built_for`, which may name two releases ("A or B"), is one for the library of `serves`.
fn fits(built_for: &str, serves: &str) -> bool {
    built_for.split(" or ").any(|release| release == serves)
}

/// The folder in which the loader finds its library, where the environment says so.
fn of_loader() -> Option<PathBuf> {
    let paths = variable(LIBRARY_PATH)?;
    std::env::split_paths(&paths).find(|folder| folder.join(NAME).is_file())
}

/// Why a program is not started that was built for a release without a library.
fn refusal(name: &str, built_for: &str, why: &str, folders: &[PathBuf]) -> String {
    let lacks = match abi::RELEASES.iter().find(|release| fits(built_for, release)) {
        Some(release) => missing(folders, release),
        None => format!(
            "there is no library of it; build the program with headers of {}",
            abi::RELEASES.join(" or ")
        ),
    };
    format!("{name} was built for release {built_for} of the C API ({why}): {lacks}")
}

fn of(folders: &[PathBuf], release: &str) -> Option<PathBuf> {
    let places = folders
        .iter()
        .flat_map(|folder| [folder.clone(), folder.join(OTHERS).join(release)].into_iter());
    let mut places = places.filter(|place| place.join(NAME).is_file());
    places.find(|place| abi::of_library(&place.join(NAME)) == Some(release))
}

/// Where an installation that this program belongs to has its libraries: `lib`, and what is below it
/// for this machine's kind.
fn folders() -> Vec<PathBuf> {
    let program = std::env::current_exe().and_then(|program| program.canonicalize());
    let prefix = program.ok().and_then(|program| Some(program.parent()?.parent()?.to_path_buf()));
    let Some(lib) = prefix.map(|prefix| prefix.join("lib")) else { return Vec::new() };
    let triplet = format!("{}-linux-gnu", std::env::consts::ARCH);
    vec![lib.join(triplet), lib]
}

fn missing(folders: &[PathBuf], release: &str) -> String {
    let places: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
    format!(
        "no {NAME} of release {release} lies in {}, nor in {OTHERS}/{release} there; cargo xtask \
         install {} installs it together with this program",
        places.join(" or "),
        both(release)
    )
}

/// The options of an installation that has this release and the default one.
fn both(release: &str) -> String {
    let first = abi::RELEASES[0];
    let others = abi::RELEASES.iter().filter(|other| **other == release && **other != first);
    std::iter::once(&first)
        .chain(others)
        .map(|release| format!("--abi {release}"))
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_fits_each_release_that_it_may_be_of() {
        for (built_for, serves, does) in [
            ("26.06", "26.06", true),
            ("26.06", "25.12.0.B081", false),
            ("25.12.0 or 26.06", "26.06", true),
            ("25.12.0 or 26.06", "25.12.0", true),
            ("25.12.0 or 26.06", "25.12.0.B081", false),
        ] {
            assert_eq!(fits(built_for, serves), does, "{built_for} {serves}");
        }
    }

    /// Where it was looked for, and the one command that installs it together with what is there.
    #[test]
    fn what_is_missing_comes_with_the_cure() {
        let folders = [PathBuf::from("/p/lib/x"), PathBuf::from("/p/lib")];
        let older = refusal("prog", "25.12.0.B081", "so it is", &folders);
        assert_eq!(
            older,
            "prog was built for release 25.12.0.B081 of the C API (so it is): no liburma.so.0 of release 25.12.0.B081 \
             lies in /p/lib/x or /p/lib, nor in urma-abi/25.12.0.B081 there; cargo xtask install --abi 26.06 --abi \
             25.12.0.B081 installs it together with this program"
        );
        assert_eq!(both("26.06"), "--abi 26.06");
        let either = refusal("prog", "25.12.0 or 26.06", "", &folders);
        assert!(either.contains("no liburma.so.0 of release 26.06"), "{either}");
        let oldest = refusal("prog", "24.12", "", &folders);
        assert!(oldest.ends_with("build the program with headers of 26.06 or 25.12.0.B081"));
        assert_eq!(of(&folders, "26.06"), None, "no library lies there");
    }
}
