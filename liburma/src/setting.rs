//! Settings: what the environment may say, and where this library lies.
//!
//! *Owns*: which object this code is in. *Gives*: variables, the library's own file.
//! *Must not*: know what a variable means.
#![expect(unsafe_code, reason = "asking the kernel and the loader about this process")]

use std::{
    ffi::{CStr, OsStr, c_void},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

pub(crate) use urma_mem::environment::variable as setting;

/// The folders of a setting that is a list with colons.
pub(crate) fn folders(list: &OsStr) -> Vec<PathBuf> {
    std::env::split_paths(list).filter(|path| !path.as_os_str().is_empty()).collect()
}

/// The folder of the object that this code is in.
pub(crate) fn own_folder() -> Option<PathBuf> {
    let name = object_at(here())?.dli_fname;
    if name.is_null() {
        return None;
    }
    // SAFETY: a C string of the loader's, which lives as long as this library.
    let name = unsafe { CStr::from_ptr(name) };
    let path = Path::new(OsStr::from_bytes(name.to_bytes()));
    Some(path.parent().filter(|folder| !folder.as_os_str().is_empty())?.to_path_buf())
}

/// Whether this code is a part of the program itself: it was linked as an archive.
pub(crate) fn is_in_program() -> bool {
    // SAFETY: it reads a number that the kernel gave this process.
    let headers = unsafe { libc::getauxval(libc::AT_PHDR) };
    let headers = usize::try_from(headers).unwrap_or(0);
    let program = object_at(core::ptr::with_exposed_provenance(headers));
    let own = object_at(here());
    // Without a loader there is no object but the program.
    own.is_none_or(|own| program.is_some_and(|program| program.dli_fbase == own.dli_fbase))
}

fn here() -> *const c_void {
    let here: fn() -> *const c_void = here;
    here as *const c_void
}

/// What the loader knows of the object that has this address.
fn object_at(address: *const c_void) -> Option<libc::Dl_info> {
    let mut info = core::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: an address, and a place for the answer.
    let found = unsafe { libc::dladdr(address, info.as_mut_ptr()) };
    // SAFETY: zero bytes are a value of this struct of addresses, and so is what dladdr wrote.
    let info = unsafe { info.assume_init() };
    (found != 0).then_some(info)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_colons_and_no_empty_folders() {
        assert_eq!(folders("/a::/b/c".as_ref()), [PathBuf::from("/a"), PathBuf::from("/b/c")]);
        assert!(folders("".as_ref()).is_empty());
    }

    #[test]
    fn a_test_has_the_library_in_itself() {
        assert!(is_in_program());
        let test = std::env::current_exe().unwrap();
        let folder = own_folder().map(|folder| folder.canonicalize().unwrap());
        assert_eq!(folder.as_deref(), test.canonicalize().unwrap().parent());
    }
}
