//! Providers: which are registered, what brings them, how they start and stop, which drives which device.
//!
//! The built-in provider is the first. The face, not this file, calls a provider's operations on a device or a
//! context. No lock is held while a provider's code runs, a constructor or destructor of a shared object for one;
//! the registry itself takes none, since such code gets there, and so does a child after `fork`. One provider's
//! failure is not another's, and the environment of a program that runs with more rights than its user is not
//! trusted.
#![expect(unsafe_code, reason = "tables, structs and code of providers")]

mod device;
use core::{
    cell::{Cell, UnsafeCell},
    ffi::{CStr, c_char},
    ptr::{NonNull, null_mut},
};
use std::{
    ffi::OsString,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use urma_mem::sync::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use crate::{
    abi::*,
    call::{self, Answer, Code, refuse},
    setting,
};

pub(crate) use device::read;
pub(crate) use device::{discover, eid_at, eids, given};

/// The text at `text`, for log lines and comparisons; empty for NULL.
///
/// # Safety
/// A C string, or NULL.
unsafe fn text_at(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the contract of this function: a C string, or NULL, which was refused above.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// Starts the built-in provider, those that the program registered itself, and those in the
/// provider folders. `kept` is what an earlier [`unload`] gave back.
///
/// # Errors
/// What the built-in provider's `init` says. Others that fail are left out, with a log line.
pub(crate) fn start(
    built_in: *mut urma_provider_ops_t,
    conf: *mut urma_init_attr_t,
    mut kept: Vec<SharedObject>,
) -> Answer<Vec<SharedObject>> {
    match register(built_in) {
        Ok(()) => {}
        Err(code) if code.is(Code::EEXIST) => {}
        Err(code) => return Err(code),
    }
    kept.extend(open_all(&kept));
    for provider in all().filter(|provider| !provider.is_running()) {
        match init(provider, conf) {
            Ok(()) => provider.set_running(true),
            Err(InitError(_, code)) if provider.ops().as_ptr() == built_in => return Err(code),
            Err(error) => report(provider, &error, &kept),
        }
    }
    Ok(unload(kept))
}

/// Logs that a provider is left out, why, and which file it is of.
fn report(provider: Provider, error: &InitError, objects: &[SharedObject]) {
    let InitError(why, code) = error;
    let (name, status) = (provider.name(), code.status());
    let object = objects.iter().find(|object| object.handle() == provider.object());
    let path = object.map_or_else(|| Path::new("the program"), SharedObject::path).display();
    tracing::warn!(target: "urma", %path, %name, status, %why, "provider skipped");
}

struct InitError(&'static str, Code);

fn init(provider: Provider, conf: *mut urma_init_attr_t) -> Result<(), InitError> {
    // SAFETY: a registered table; the functions are read once.
    let ops = unsafe { provider.ops().read() };
    if ops.create_context.is_none() || ops.delete_context.is_none() {
        let why = "it lacks create_context or delete_context";
        return Err(InitError(why, refuse!(EINVAL, "a provider: {why}")));
    }
    let init = ops
        .init
        .ok_or_else(|| InitError("it lacks init", refuse!(EINVAL, "a provider lacks init")))?;
    // SAFETY: the caller's configuration, or NULL.
    let status = unsafe { init(conf) };
    Code::from_c(status).map_err(|code| InitError("its init fails", code))
}

/// Stops all providers without open contexts.
///
/// # Errors
/// FAIL: an `uninit` said so; every other one was called all the same.
pub(crate) fn stop() -> Answer {
    let mut answer = Ok(());
    for provider in all().filter(|provider| provider.is_running()) {
        if !provider.is_idle() {
            let name = provider.name();
            tracing::warn!(target: "urma", %name, "the library stops while contexts live");
            continue;
        }
        provider.set_running(false);
        if uninit(provider).is_err() {
            let name = provider.name();
            tracing::warn!(target: "urma", %name, "uninit of the provider fails");
            answer = Err(refuse!(FAIL, "uninit of the provider {name} fails"));
        }
    }
    answer
}

fn uninit(provider: Provider) -> Answer {
    // SAFETY: a registered table; the function is read once.
    let uninit = unsafe { (*provider.ops().as_ptr()).uninit }
        .ok_or_else(|| refuse!(FAIL, "a provider lacks uninit"))?;
    // SAFETY: it was started, and no context of it is open.
    Code::from_c(unsafe { uninit() })
}

/// Unloads objects of which no provider runs; gives back the others.
pub(crate) fn unload(objects: Vec<SharedObject>) -> Vec<SharedObject> {
    let is_used = |object: &SharedObject| {
        all().any(|provider| provider.is_running() && provider.object() == object.handle())
    };
    let (used, unused): (Vec<_>, Vec<_>) = objects.into_iter().partition(is_used);
    for object in unused {
        tracing::debug!(target: "urma", path = %object.path().display(), "provider unloaded");
        object.close();
    }
    used
}

/// Most providers of one process, including the built-in one.
const PROVIDERS_MAX: usize = 32;

/// Value of `object` for a table whose shared object this thread is loading.
const LOADING: usize = 1;

struct ProviderEntry {
    /// Address of the table; 0: the entry is free.
    ops: AtomicUsize,
    /// Handle of the shared object that registered it while this library loaded it, else 0.
    object: AtomicUsize,
    is_running: AtomicBool,
    contexts: AtomicU32,
    driver: DriverCell,
}

/// The driver struct to which devices of the provider point, as in UMDK's library: programs read it.
struct DriverCell(UnsafeCell<urma_driver_t>);

// SAFETY: written while its entry is taken by one registration, before a device points to it; Rust
// never reads it.
unsafe impl Sync for DriverCell {}

impl DriverCell {
    const NONE: urma_driver_t =
        urma_driver_t { ops: null_mut(), node: ub_list { prev: null_mut(), next: null_mut() } };

    /// Initialises it, in a list of its own.
    fn set(&self, ops: *mut urma_provider_ops_t) {
        let place = self.0.get();
        // SAFETY: a member of a place that stays.
        let node = unsafe { &raw mut (*place).node };
        let driver = urma_driver_t { ops, node: ub_list { prev: node, next: node } };
        // SAFETY: as above; see the type.
        unsafe { place.write(driver) };
    }
}

static ENTRIES: [ProviderEntry; PROVIDERS_MAX] = [const {
    ProviderEntry {
        ops: AtomicUsize::new(0),
        object: AtomicUsize::new(0),
        is_running: AtomicBool::new(false),
        contexts: AtomicU32::new(0),
        driver: DriverCell(UnsafeCell::new(DriverCell::NONE)),
    }
}; PROVIDERS_MAX];

std::thread_local! {
    static IS_LOADING: Cell<bool> = const { Cell::new(false) };
}

/// A registered provider, with its entry.
#[derive(Clone, Copy)]
struct Provider {
    entry: &'static ProviderEntry,
    ops: NonNull<urma_provider_ops_t>,
}

impl Provider {
    /// The table that it registered.
    fn ops(self) -> NonNull<urma_provider_ops_t> {
        self.ops
    }

    /// The name by which devices are matched.
    fn name(self) -> String {
        // SAFETY: a registered table; its provider keeps it until it unregisters.
        let name = unsafe { (*self.ops.as_ptr()).name };
        // SAFETY: a name that is not NULL was checked at registration.
        unsafe { text_at(name) }
    }

    fn is_running(self) -> bool {
        self.entry.is_running.load(Ordering::Acquire)
    }

    fn set_running(self, to: bool) {
        self.entry.is_running.store(to, Ordering::Release);
    }

    /// Whether it has no open context.
    fn is_idle(self) -> bool {
        self.entry.contexts.load(Ordering::Acquire) == 0
    }

    fn object(self) -> usize {
        self.entry.object.load(Ordering::Acquire)
    }
}

/// Adds a provider.
///
/// # Errors
/// EINVAL: no table, or one without a name. EEXIST: it is registered. ENOMEM: there are 32.
pub(crate) fn register(ops: *mut urma_provider_ops_t) -> Answer {
    let ops = call::aligned(ops)?;
    // SAFETY: the provider registers the table, aligned, and keeps it until it unregisters.
    if unsafe { (*ops.as_ptr()).name }.is_null() {
        return Err(refuse!(EINVAL, "ops->name is NULL; a provider has a name"));
    }
    let addr = ops.as_ptr().expose_provenance();
    if at(addr).is_some() {
        return Err(refuse!(EEXIST, "the provider is registered already"));
    }
    let is_taken = |entry: &&ProviderEntry| {
        let place = &entry.ops;
        place.compare_exchange(0, addr, Ordering::AcqRel, Ordering::Acquire).is_ok()
    };
    let entry = ENTRIES.iter().find(is_taken).ok_or_else(|| {
        refuse!(ENOMEM, "{} providers are registered, which is the most", ENTRIES.len())
    })?;
    entry.driver.set(ops.as_ptr());
    let object = if IS_LOADING.get() { LOADING } else { 0 };
    entry.object.store(object, Ordering::Release);
    Ok(())
}

/// The driver struct for devices of a provider, which is registered if it is not yet.
///
/// # Errors
/// The same as those of [`register`].
pub(crate) fn driver(ops: *mut urma_provider_ops_t) -> Answer<NonNull<urma_driver_t>> {
    match register(ops) {
        Ok(()) => {}
        Err(code) if code.is(Code::EEXIST) => {}
        Err(code) => return Err(code),
    }
    let entry = known(ops).ok_or_else(|| refuse!(EINVAL, "the provider is not registered"))?;
    NonNull::new(entry.driver.0.get()).ok_or_else(|| refuse!(EINVAL, "the provider has no driver"))
}

/// Removes a provider; does nothing if it is not registered.
///
/// # Errors
/// EINVAL: no table.
pub(crate) fn unregister(ops: *mut urma_provider_ops_t) -> Answer {
    let ops = call::aligned(ops)?;
    if let Some(entry) = at(ops.as_ptr().addr()) {
        clear(entry);
    }
    Ok(())
}

fn clear(entry: &ProviderEntry) {
    entry.object.store(0, Ordering::Release);
    entry.contexts.store(0, Ordering::Release);
    entry.is_running.store(false, Ordering::Release);
    entry.ops.store(0, Ordering::Release);
}

fn at(addr: usize) -> Option<&'static ProviderEntry> {
    ENTRIES.iter().find(|entry| entry.ops.load(Ordering::Acquire) == addr)
}

/// Lists the registered providers, in the order of the entries.
fn all() -> impl Iterator<Item = Provider> {
    ENTRIES.iter().filter_map(|entry| {
        let addr = entry.ops.load(Ordering::Acquire);
        let ops = core::ptr::with_exposed_provenance_mut(addr);
        NonNull::new(ops).map(|ops| Provider { entry, ops })
    })
}

/// Calls `open`, which loads a shared object and returns its handle: what this thread registers meanwhile belongs to
/// that object.
fn loading<T, E>(open: impl FnOnce() -> Result<(T, usize), E>) -> Result<T, E> {
    IS_LOADING.set(true);
    let opened = open();
    IS_LOADING.set(false);
    let new = || ENTRIES.iter().filter(|entry| entry.object.load(Ordering::Acquire) == LOADING);
    match opened {
        Ok((object, handle)) => {
            new().for_each(|entry| entry.object.store(handle, Ordering::Release));
            Ok(object)
        }
        Err(error) => {
            // Its constructor ran, and then it was unloaded.
            new().for_each(clear);
            Err(error)
        }
    }
}

/// Removes what is left of the shared object `handle`, which was unloaded.
fn forget(handle: usize) {
    ENTRIES.iter().filter(|entry| entry.object.load(Ordering::Acquire) == handle).for_each(clear);
}

/// Counts an opened context of this provider.
pub(crate) fn opened(ops: *mut urma_provider_ops_t) {
    if let Some(entry) = known(ops) {
        entry.contexts.fetch_add(1, Ordering::AcqRel);
    }
}

/// Counts a closed context of this provider.
pub(crate) fn closed(ops: *mut urma_provider_ops_t) {
    if let Some(entry) = known(ops) {
        let less = |count: u32| count.checked_sub(1);
        // Nothing to do if it was registered afresh meanwhile.
        let _ = entry.contexts.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
    }
}

/// Whether this provider was started and not stopped.
pub(crate) fn is_running(ops: *mut urma_provider_ops_t) -> bool {
    known(ops).is_some_and(|entry| entry.is_running.load(Ordering::Acquire))
}

fn known(ops: *mut urma_provider_ops_t) -> Option<&'static ProviderEntry> {
    if ops.is_null() { None } else { at(ops.addr()) }
}

/// For a forked child: the providers exist, but none was started in it.
pub(crate) fn abandon() {
    for entry in &ENTRIES {
        entry.is_running.store(false, Ordering::Release);
        entry.contexts.store(0, Ordering::Release);
    }
}

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
    fn handle(&self) -> usize {
        self.handle
    }

    fn path(&self) -> &Path {
        &self.path
    }

    /// Unloads it, unless the program holds it too. Its destructor unregisters; what it forgot to
    /// unregister is forgotten when its code is gone.
    fn close(self) {
        if let Err(error) = self.library.close() {
            tracing::warn!(target: "urma", path = %self.path.display(), %error, "provider stays");
            return;
        }
        // SAFETY: nothing is loaded, and so no code of it runs.
        let held = unsafe { Library::open(Some(&self.path), RTLD_NOW | RTLD_NOLOAD) };
        if held.is_err() {
            forget(self.handle);
        }
    }
}

/// Loads what is in the folders and was not loaded yet.
fn open_all(known: &[SharedObject]) -> Vec<SharedObject> {
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
    let (path, library, handle) = loading(|| {
        // SAFETY: the administrator, or the user of a program without more rights than theirs, put
        // the object there to be run.
        let library = unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_LOCAL) };
        let raw = library.map_err(|error| reason(&error))?.into_raw();
        // SAFETY: the handle of the library that was opened just now.
        let library = unsafe { Library::from_raw(raw) };
        Ok::<_, String>(((path, library, raw.addr()), raw.addr()))
    })?;
    let object = SharedObject { path, handle, library };
    if all().any(|provider| provider.object() == handle) {
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
