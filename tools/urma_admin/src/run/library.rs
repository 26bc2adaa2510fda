//! Which library the program gets.
//!
//! *Owns*: where installed libraries lie beside this program. *Takes*: a release, or the program.
//! *Gives*: a folder for the loader.

use std::path::{Path, PathBuf};

use crate::abi;

/// File name by which the loader finds the library.
const NAME: &str = "liburma.so.0";
/// Where libraries of other releases lie, below the first one's folder.
const OTHERS: &str = "urma-abi";

/// The folder of the library of `release`; without one, of the release that `program` was built for,
/// else of the first library there is. `None`: no library lies beside this program, and none was
/// asked for: the loader finds its own.
pub(super) fn folder(
    release: Option<&str>,
    program: Option<&Path>,
) -> Result<Option<PathBuf>, String> {
    let folders = folders();
    if let Some(release) = release {
        return match of(&folders, release) {
            Some(folder) => Ok(Some(folder)),
            None => Err(missing(&folders, release)),
        };
    }
    let built_for = program.and_then(|program| abi::of(program).ok()?.release);
    let first = || folders.iter().find(|folder| folder.join(NAME).is_file()).cloned();
    Ok(built_for.and_then(|release| of(&folders, release)).or_else(first))
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
         install --abi {release} installs it together with this program",
        places.join(" or ")
    )
}
