//! Selects the release of the C API in which this process is served.
//!
//! *Owns*: the known releases, the reason if a request cannot be granted. *Takes*: `URMA_ABI`, and what the loaded
//! objects ask for. *Gives*: the functions of the library of the other release, or nothing if this library serves.
//! *Must not*: let a program run on a library of a release that it did not ask for: `urma_init` fails, and says why.
//!
//! A program built with the project's headers has chosen already: it refers to the marker symbol of its release, and
//! the loader checked that. `URMA_ABI` is for programs built with other headers.
#![expect(unsafe_code, reason = "tables of the loader, and code that is loaded")]

mod marker;
mod search;

use std::{ffi::CStr, sync::OnceLock};

use crate::{
    call::{Answer, Code, Number},
    setting::{is_in_program, setting},
};

/// A release of the C API.
#[derive(Clone, Copy, Debug)]
struct Release {
    /// Its name as people write it, also in `URMA_ABI`.
    name: &'static str,
    /// The symbol that only its library has.
    marker: &'static CStr,
}

const RELEASES: [Release; 2] = [
    Release { name: "26.06", marker: c"urma_init_abi_26_06" },
    Release { name: "25.12.0.B081", marker: c"urma_init_abi_25_12_0_b081" },
];

/// The release that this library is built for.
const OWN: Release = RELEASES[if cfg!(feature = "abi-25-12-0-b081") { 1 } else { 0 }];

/// Environment variable with the requested release.
const VARIABLE: &str = "URMA_ABI";

/// Why a process cannot be served.
#[derive(Debug)]
struct ReleaseError {
    number: Number,
    why: String,
}

impl ReleaseError {
    const fn new(number: Number, why: String) -> Self {
        Self { number, why }
    }
}

/// Result of the selection when the library was loaded.
static OUTCOME: OnceLock<Option<ReleaseError>> = OnceLock::new();

/// Called when this library is loaded. Returns the functions with these names in the library that has to serve
/// instead of this one; `None` if this one serves, or none does.
pub(crate) fn functions(names: &[&CStr]) -> Option<Vec<*const ()>> {
    let found = wanted().and_then(|release| {
        let load = |release| search::load(release, names);
        release.map(load).transpose()
    });
    let (functions, refusal) = match found {
        Ok(functions) => (functions, None),
        Err(refusal) => (None, Some(refusal)),
    };
    // If the outcome is known already, it came from the same variable.
    let _ = OUTCOME.set(refusal);
    functions
}

/// Checks that this library may serve the process.
///
/// # Errors
/// EINVAL: `URMA_ABI` names no known release. ENOTSUP: the library of the release that it names was
/// not found, or cannot take the place of this one. FAIL: loading it was not finished.
pub(crate) fn check() -> Answer {
    // Code that is linked into a program may not have been called at load time.
    let outcome = OUTCOME.get_or_init(|| match wanted() {
        Ok(None) => None,
        Ok(Some(release)) => {
            let why = format!("the library of release {} was not loaded", release.name);
            Some(ReleaseError::new(Code::FAIL, why))
        }
        Err(refusal) => Some(refusal),
    });
    match outcome {
        None => {
            // At load time there was no log for the line that the variable is ignored.
            let _ = setting(VARIABLE);
            Ok(())
        }
        Some(refusal) => Err(refusal.number.why(format_args!("{}", refusal.why))),
    }
}

/// The other release, if it has to serve.
fn wanted() -> Result<Option<Release>, ReleaseError> {
    let Some(value) = setting(VARIABLE).filter(|value| !value.is_empty()) else { return Ok(None) };
    let value = value.to_string_lossy();
    let Some(release) = named(&value) else {
        let known = RELEASES.map(|release| release.name).join(", ");
        let why = format!("{VARIABLE}={value} names no release of the C API; known are {known}");
        return Err(ReleaseError::new(Code::EINVAL, why));
    };
    if release.marker == OWN.marker || marker::is_asked_for(OWN.marker) {
        return Ok(None);
    }
    if is_in_program() {
        let why = format!(
            "{VARIABLE}={value}: liburma of release {} is linked into the program; link the shared \
             library, or the archive of that release",
            OWN.name
        );
        return Err(ReleaseError::new(Code::ENOTSUP, why));
    }
    Ok(Some(release))
}

fn named(value: &str) -> Option<Release> {
    RELEASES.into_iter().find(|release| release.name == value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_known_by_their_names_only() {
        assert_eq!(named("26.06").map(|release| release.marker), Some(c"urma_init_abi_26_06"));
        for other in ["", "26.06 ", "25.12.0", "25.12.0.b081", "26.6"] {
            assert!(named(other).is_none(), "{other}");
        }
    }

    #[test]
    fn without_a_wish_this_library_serves() {
        assert!(functions(&[]).is_none() && check().is_ok());
    }
}
