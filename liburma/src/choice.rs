//! Selects the release of the C API in which this process is served; loads the library of another one if need be.
//!
//! A program must not run on a library of a release that it did not ask for: `urma_init` fails, and says why. One
//! that was built with the project's headers has chosen already: it refers to the marker symbol of its release, and
//! the loader checked that. `URMA_ABI` is for programs built with other headers.
#![expect(unsafe_code, reason = "tables of the loader, and code that is loaded")]

use core::{
    ffi::{c_int, c_void},
    slice,
};
use std::{
    ffi::CStr,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use crate::{
    call::{Answer, Code, Number},
    setting::{folders, is_in_program, own_folder, setting},
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
        let load = |release| load(release, names);
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
    if release.marker == OWN.marker || is_asked_for(OWN.marker) {
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

/// An entry of the dynamic section (System V ABI, generic part, "Dynamic Section").
#[repr(C)]
#[derive(Clone, Copy)]
struct Dynamic {
    tag: u64,
    value: u64,
}

/// A relocation with addend.
#[repr(C)]
#[derive(Clone, Copy)]
struct Relocation {
    offset: u64,
    info: u64,
    addend: i64,
}

const TAG_END: u64 = 0;
const TAG_CALLS_LEN: u64 = 2;
const TAG_STRINGS: u64 = 5;
const TAG_SYMBOLS: u64 = 6;
const TAG_RELOCATIONS: u64 = 7;
const TAG_RELOCATIONS_LEN: u64 = 8;
const TAG_CALLS: u64 = 23;
/// `PT_DYNAMIC`: the program header of the dynamic section.
const DYNAMIC: u32 = 2;

/// Whether a loaded object refers to this symbol.
///
/// The number of symbols of an object is not stored in it; those that it refers to are named by its relocations,
/// whose number is. These tables of the loader are only read.
fn is_asked_for(name: &CStr) -> bool {
    let mut search = Search { name, is_found: false };
    // SAFETY: the function below, with what it expects; the loader holds its lock meanwhile.
    unsafe { libc::dl_iterate_phdr(Some(look_at), (&raw mut search).cast()) };
    search.is_found
}

struct Search<'a> {
    name: &'a CStr,
    is_found: bool,
}

/// # Safety
/// A description by the loader, and a `Search`.
unsafe extern "C" fn look_at(
    object: *mut libc::dl_phdr_info,
    _len: usize,
    search: *mut c_void,
) -> c_int {
    // SAFETY: the loader describes a loaded object for the length of this call.
    let object = unsafe { &*object };
    // SAFETY: `is_asked_for` passes its own value, which no other code has meanwhile.
    let search = unsafe { &mut *search.cast::<Search<'_>>() };
    // SAFETY: the loader says how many headers the object has, which stays loaded meanwhile.
    let headers = unsafe { slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum.into()) };
    let dynamic = headers.iter().find(|header| header.p_type == DYNAMIC);
    search.is_found = dynamic.is_some_and(|header| {
        let at = object.dlpi_addr.wrapping_add(header.p_vaddr);
        // SAFETY: the dynamic section of a loaded object.
        let tables = unsafe { SymbolTables::at(at, object.dlpi_addr) };
        // SAFETY: the tables are those of the object, which stays loaded while the loader describes it.
        unsafe { tables.refer_to(search.name) }
    });
    search.is_found.into()
}

/// Addresses and lengths of an object's tables; 0: none.
#[derive(Default)]
struct SymbolTables {
    symbols: u64,
    strings: u64,
    /// Two tables of relocations: address, bytes.
    relocations: [(u64, u64); 2],
}

impl SymbolTables {
    /// # Safety
    /// `at` is the dynamic section of an object that is loaded at `base`.
    unsafe fn at(at: u64, base: u64) -> Self {
        let mut tables = Self::default();
        let mut entry = pointer::<Dynamic>(at);
        // Some loaders put the sum here, others leave the offset.
        let absolute = |value: u64| if value < base { base.wrapping_add(value) } else { value };
        loop {
            // SAFETY: the section ends with an entry that says so.
            let Dynamic { tag, value } = unsafe { entry.read() };
            match tag {
                TAG_END => return tables,
                TAG_SYMBOLS => tables.symbols = absolute(value),
                TAG_STRINGS => tables.strings = absolute(value),
                TAG_RELOCATIONS => tables.relocations[0].0 = absolute(value),
                TAG_RELOCATIONS_LEN => tables.relocations[0].1 = value,
                TAG_CALLS => tables.relocations[1].0 = absolute(value),
                TAG_CALLS_LEN => tables.relocations[1].1 = value,
                _ => {}
            }
            // SAFETY: it was not the last.
            entry = unsafe { entry.add(1) };
        }
    }

    /// # Safety
    /// The tables of a loaded object.
    unsafe fn refer_to(&self, name: &CStr) -> bool {
        if self.symbols == 0 || self.strings == 0 {
            return false;
        }
        self.relocations.iter().filter(|(at, len)| *at != 0 && *len != 0).any(|(at, len)| {
            let count = usize::try_from(*len).unwrap_or(0) / size_of::<Relocation>();
            // SAFETY: a table of that length, which stays as it is.
            let list = unsafe { slice::from_raw_parts(pointer::<Relocation>(*at), count) };
            // SAFETY: the number of a symbol of this object.
            list.iter().any(|one| unsafe { self.name_of(one.info >> 32) } == name)
        })
    }

    /// # Safety
    /// `number` is that of a symbol of the object.
    unsafe fn name_of(&self, number: u64) -> &CStr {
        let index = usize::try_from(number).unwrap_or(0);
        // SAFETY: the contract of this function: the table has that symbol.
        let symbol = unsafe { pointer::<libc::Elf64_Sym>(self.symbols).add(index) };
        // SAFETY: the symbol is inside of the table of a loaded object.
        let offset = unsafe { (*symbol).st_name };
        // SAFETY: names of symbols are C strings in the object's table of strings.
        unsafe { CStr::from_ptr(pointer(self.strings.wrapping_add(offset.into()))) }
    }
}

/// An address in a loaded object.
fn pointer<T>(address: u64) -> *const T {
    core::ptr::with_exposed_provenance(usize::try_from(address).unwrap_or(0))
}

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
fn load(release: Release, names: &[&CStr]) -> Result<Vec<*const ()>, ReleaseError> {
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
        VARIABLE,
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
extern "C" fn absent(_conf: *mut c_void) -> c_int {
    crate::log::install();
    tracing::error!(
        target: "urma",
        "{}: a part of the program, loaded later, was built for release {}",
        VARIABLE,
        OWN.name
    );
    Code::ENOTSUP.get()
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::choice::RELEASES;

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

    #[test]
    fn what_a_program_calls_is_asked_for() {
        // SAFETY: it reads a number of this process.
        assert!(unsafe { libc::getauxval(libc::AT_PAGESZ) } != 0);
        assert!(is_asked_for(c"getauxval") && is_asked_for(c"malloc"));
        assert!(!is_asked_for(c"urma_init_abi_of_no_release"));
    }

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
