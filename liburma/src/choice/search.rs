//! Finds and loads the library of the other release.
//!
//! *Owns*: the folders that are searched. *Takes*: `URMA_ABI_PATH`, the place of this library. *Gives*: its
//! functions. *Must not*: accept a library that lacks one, or is of another release.

use std::{
    ffi::{CStr, c_int},
    path::{Path, PathBuf},
};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use super::{OWN, Release, ReleaseError};
use crate::{
    call::Code,
    setting::{folders, own_folder, setting},
};

/// Environment variable: a colon-separated list of folders that are searched first.
const FOLDERS_VARIABLE: &str = "URMA_ABI_PATH";
/// Folder beside the library that has a folder for each other release.
const FOLDER: &str = "urma-abi";
/// Name of the library in each of them.
const FILE: &str = "liburma.so.0";

/// Loads the library of `release` and returns its functions with these names.
///
/// # Errors
/// ENOTSUP: there is none that has them, with what was tried.
pub(super) fn load(release: Release, names: &[&CStr]) -> Result<Vec<*const ()>, ReleaseError> {
    let mut tried = Vec::new();
    for folder in candidates(release) {
        let path = folder.join(FILE);
        match open(&path, release, names) {
            Ok(functions) => return Ok(functions),
            Err(why) => tried.push(format!("{}: {why}", path.display())),
        }
    }
    let why = format!(
        "{}={} is not the release of this library ({}), and no library of it was found ({}); \
         install it beside this one, or name its folder in {FOLDERS_VARIABLE}",
        super::VARIABLE,
        release.name,
        OWN.name,
        tried.join("; ")
    );
    Err(ReleaseError::new(Code::ENOTSUP, why))
}

/// The folders, in the order in which they are searched.
fn candidates(release: Release) -> Vec<PathBuf> {
    let setting = setting(FOLDERS_VARIABLE).unwrap_or_default();
    folders(&setting).into_iter().chain(around(own_folder(), release)).collect()
}

/// The folders of an installation of both releases: the second is below the first.
fn around(own: Option<PathBuf>, release: Release) -> Vec<PathBuf> {
    let Some(own) = own else { return Vec::new() };
    let below = own.join(FOLDER).join(release.name);
    let is_second = own.ends_with(Path::new(FOLDER).join(OWN.name));
    let above = own.ancestors().nth(2).filter(|_| is_second).map(Path::to_path_buf);
    [below].into_iter().chain(above).collect()
}

fn open(path: &Path, release: Release, names: &[&CStr]) -> Result<Vec<*const ()>, String> {
    if !path.is_file() {
        return Err("no such file".to_owned());
    }
    // SAFETY: the administrator, or the user of a program without more rights than theirs, put the
    // library there to be run.
    let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) };
    let library = library.map_err(|error| reason(&error))?;
    if symbol(&library, release.marker).is_none() {
        return Err(format!("it is not of release {}", release.name));
    }
    let function = |name: &&CStr| {
        let marker = (*name == OWN.marker).then_some(absent as *const ());
        symbol(&library, name)
            .or(marker)
            .ok_or_else(|| format!("it lacks {}: it is of another version", name.to_string_lossy()))
    };
    let functions = names.iter().map(function).collect::<Result<_, _>>()?;
    // It serves until the process ends.
    let _ = library.into_raw();
    Ok(functions)
}

/// The address of a function.
fn symbol(library: &Library, name: &CStr) -> Option<*const ()> {
    // SAFETY: an address that is looked at as no more than that.
    let found = unsafe { library.get::<*const ()>(name.to_bytes_with_nul()) };
    let address: *const () = found.ok()?.into_raw().cast_const().cast();
    (!address.is_null()).then_some(address)
}

/// The loader's error message.
fn reason(error: &libloading::Error) -> String {
    let source = std::error::Error::source(error);
    source.map_or_else(|| error.to_string(), ToString::to_string)
}

/// In the place of this library's marker: code that was built for this release came when the other
/// one served already.
extern "C" fn absent(_conf: *mut core::ffi::c_void) -> c_int {
    crate::log::install();
    tracing::error!(
        target: "urma",
        "{}: a part of the program, loaded later, was built for release {}",
        super::VARIABLE,
        OWN.name
    );
    Code::ENOTSUP.get()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choice::RELEASES;

    fn other() -> Release {
        RELEASES.into_iter().find(|release| release.name != OWN.name).unwrap()
    }

    #[test]
    fn the_second_of_two_lies_below_the_first() {
        let (own, other) = (OWN.name, other());
        let first = PathBuf::from("/opt/lib");
        let second = first.join(FOLDER).join(other.name);
        assert_eq!(around(Some(first.clone()), other), [second]);
        let here = first.join(FOLDER).join(own);
        let below = here.join(FOLDER).join(other.name);
        assert_eq!(around(Some(here), other), [below, first]);
        assert!(around(None, other).is_empty());
    }

    #[test]
    fn what_was_tried_is_said() {
        let refusal = load(other(), &[c"urma_init"]).unwrap_err();
        assert_eq!(refusal.number.get(), libc::EOPNOTSUPP);
        for part in [other().name, OWN.name, "liburma.so.0: no such file", FOLDERS_VARIABLE] {
            assert!(refusal.why.contains(part), "{part}: {}", refusal.why);
        }
    }

    #[test]
    fn other_libraries_are_not_taken() {
        let libc = std::fs::read_to_string("/proc/self/maps").unwrap();
        let libc = libc.lines().find(|line| line.ends_with("libc.so.6")).unwrap();
        let path = PathBuf::from(libc.split_whitespace().last().unwrap());
        let why = open(&path, other(), &[]).unwrap_err();
        assert_eq!(why, format!("it is not of release {}", other().name));
    }
}
