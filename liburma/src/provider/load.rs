//! Shared objects that bring providers.
//!
//! *Owns*: where they are looked for, and their handles. *Takes*: `URMA_PROVIDER_PATH`, the place of
//! this library. *Gives*: objects that registered a provider; a log line for each that did not, with
//! why. *Must not*: trust the environment of a program that runs with more rights than its user.

use std::{
    ffi::OsString,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use super::registry;
use crate::setting;

/// A list of folders, with colons, in place of the one beside the library.
const FOLDERS_VARIABLE: &str = "URMA_PROVIDER_PATH";
/// The folder beside the library.
const FOLDER: &str = "urma";
/// What `dlopen` answers with NULL for, when an object is not loaded yet.
const RTLD_NOLOAD: i32 = libc::RTLD_NOLOAD;

/// A loaded shared object that registered a provider.
pub(crate) struct SharedObject {
    path: PathBuf,
    handle: usize,
    library: Library,
}

impl SharedObject {
    pub(super) fn handle(&self) -> usize {
        self.handle
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Unloads it, unless the program holds it too. Its destructor unregisters; what it forgot to
    /// unregister is forgotten when its code is gone.
    pub(super) fn close(self) {
        if let Err(error) = self.library.close() {
            tracing::warn!(target: "urma", path = %self.path.display(), %error, "provider stays");
            return;
        }
        // SAFETY: nothing is loaded, and so no code of it runs.
        let held = unsafe { Library::open(Some(&self.path), RTLD_NOW | RTLD_NOLOAD) };
        if held.is_err() {
            registry::forget(self.handle);
        }
    }
}

/// Loads what is in the folders and was not loaded yet.
pub(super) fn open_all(known: &[SharedObject]) -> Vec<SharedObject> {
    let mut opened: Vec<SharedObject> = Vec::new();
    for path in folders().iter().flat_map(|folder| candidates(folder)) {
        // One object may have several names.
        let path = path.canonicalize().unwrap_or(path);
        if known.iter().chain(&opened).any(|object| object.path == path) {
            continue;
        }
        match open(path.clone()) {
            Ok(object) => opened.push(object),
            Err(why) => {
                tracing::warn!(target: "urma", path = %path.display(), %why, "provider skipped");
            }
        }
    }
    opened
}

fn open(path: PathBuf) -> Result<SharedObject, String> {
    let (path, library, handle) = registry::loading(|| {
        // SAFETY: the administrator, or the user of a program without more rights than theirs, put
        // the object there to be run.
        let library = unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_LOCAL) };
        let raw = library.map_err(|error| reason(&error))?.into_raw();
        // SAFETY: the handle of the library that was opened just now.
        let library = unsafe { Library::from_raw(raw) };
        Ok::<_, String>(((path, library, raw.addr()), raw.addr()))
    })?;
    let object = SharedObject { path, handle, library };
    if registry::all().any(|provider| provider.object() == handle) {
        return Ok(object);
    }
    object.close();
    Err("it registers no provider when it is loaded".to_owned())
}

/// What the loader says.
fn reason(error: &libloading::Error) -> String {
    let source = std::error::Error::source(error);
    source.map_or_else(|| error.to_string(), ToString::to_string)
}

/// Files of the folder that are named like a provider, in order of name.
fn candidates(folder: &Path) -> Vec<PathBuf> {
    let list = match std::fs::read_dir(folder) {
        Ok(list) => list,
        Err(error) => {
            tracing::debug!(target: "urma", path = %folder.display(), %error, "no providers");
            return Vec::new();
        }
    };
    let mut files: Vec<_> = list
        .flatten()
        .filter(|entry| is_named_so(entry.file_name().as_bytes()))
        .map(|entry| entry.path())
        .filter(|path| path.is_file())
        .collect();
    files.sort();
    files
}

/// `liburma*.so` with or without a version behind it, but not this project's own libraries, which
/// may lie in the same folder.
fn is_named_so(name: &[u8]) -> bool {
    let Some(rest) = name.strip_prefix(b"liburma") else { return false };
    let Some(at) = rest.windows(3).position(|part| part == b".so") else { return false };
    let is_end = rest.get(at + 3).is_none_or(|next| *next == b'.');
    is_end && !matches!(&rest[..at], b"" | b"_common")
}

fn folders() -> Vec<PathBuf> {
    chosen(setting::setting(FOLDERS_VARIABLE), setting::own_folder())
}

/// The folders of the setting, else the one beside this library.
fn chosen(setting: Option<OsString>, own: Option<PathBuf>) -> Vec<PathBuf> {
    match setting.filter(|list| !list.is_empty()) {
        Some(list) => setting::folders(&list),
        None => own.map(|folder| folder.join(FOLDER)).into_iter().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_providers_differ_from_others() {
        for name in ["liburma-udma.so", "liburma_x.so.0", "liburmax.so.1.2"] {
            assert!(is_named_so(name.as_bytes()), "{name}");
        }
        let others = [
            "liburma.so",
            "liburma.so.0",
            "liburma_common.so.0",
            "liburma.a",
            "libx.so",
            "liburma",
        ];
        for name in others.into_iter().chain(["liburma_x.sox", "liburma_x.conf"]) {
            assert!(!is_named_so(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn a_setting_is_a_list_and_comes_before_the_own_folder() {
        let own = || Some(PathBuf::from("/lib"));
        assert_eq!(chosen(None, own()), [PathBuf::from("/lib/urma")]);
        assert_eq!(chosen(Some(OsString::new()), own()), [PathBuf::from("/lib/urma")]);
        let list = chosen(Some("/a::/b/c".into()), own());
        assert_eq!(list, [PathBuf::from("/a"), PathBuf::from("/b/c")]);
        assert!(chosen(None, None).is_empty());
    }
}
