//! Which library the program gets.
//!
//! *Owns*: where installed libraries lie beside this program. *Takes*: a release, or the program.
//! *Gives*: a folder for the loader, or why the program is not started.

use std::path::{Path, PathBuf};

use urma_tools::variable;

use crate::abi;

/// File name by which the loader finds the library.
const NAME: &str = "liburma.so.0";
/// Where libraries of other releases lie, below the first one's folder.
const OTHERS: &str = "urma-abi";

/// What the program gets, and what its user should know about that.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct LibraryChoice {
    /// Folder for the loader; `None`: no library lies beside this program, the loader finds its own.
    pub(super) folder: Option<PathBuf>,
    /// A line for the user.
    pub(super) notice: Option<String>,
}

/// The library of `release`; without one, of the release that `program` was built for, else the first library
/// there is. A program whose release is not known is named, where it is one of URMA at all.
///
/// # Errors
/// What is missing, and how to get it: a program is never served by the library of another release unless
/// `release` says so.
pub(super) fn choose(
    release: Option<&str>,
    program: Option<&Path>,
) -> Result<LibraryChoice, String> {
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
    let paths = variable(super::LIBRARY_PATH)?;
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
