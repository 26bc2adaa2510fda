//! Registry: the tables that providers registered.
//!
//! *Owns*: one entry per table, with the shared object that it came from, whether it was started, and its open
//! contexts. *Takes*: tables. *Gives*: entries in order of registration, as far as places are reused in order. *Must
//! not*: take a lock: constructors and destructors of shared objects get here, and so does a child after `fork`.

use core::{
    cell::{Cell, UnsafeCell},
    ptr::{NonNull, null_mut},
};

use urma_mem::sync::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use super::text_at;
use crate::{
    abi::*,
    call::{self, Answer, Code, refuse},
};

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
pub(super) struct Provider {
    entry: &'static ProviderEntry,
    ops: NonNull<urma_provider_ops_t>,
}

impl Provider {
    /// The table that it registered.
    pub(super) fn ops(self) -> NonNull<urma_provider_ops_t> {
        self.ops
    }

    /// The name by which devices are matched.
    pub(super) fn name(self) -> String {
        // SAFETY: a registered table; its provider keeps it until it unregisters.
        let name = unsafe { (*self.ops.as_ptr()).name };
        // SAFETY: a name that is not NULL was checked at registration.
        unsafe { text_at(name) }
    }

    pub(super) fn is_running(self) -> bool {
        self.entry.is_running.load(Ordering::Acquire)
    }

    pub(super) fn set_running(self, to: bool) {
        self.entry.is_running.store(to, Ordering::Release);
    }

    /// Whether it has no open context.
    pub(super) fn is_idle(self) -> bool {
        self.entry.contexts.load(Ordering::Acquire) == 0
    }

    pub(super) fn object(self) -> usize {
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
pub(super) fn all() -> impl Iterator<Item = Provider> {
    ENTRIES.iter().filter_map(|entry| {
        let addr = entry.ops.load(Ordering::Acquire);
        let ops = core::ptr::with_exposed_provenance_mut(addr);
        NonNull::new(ops).map(|ops| Provider { entry, ops })
    })
}

/// Calls `open`, which loads a shared object and returns its handle: what this thread registers meanwhile belongs to
/// that object.
pub(super) fn loading<T, E>(open: impl FnOnce() -> Result<(T, usize), E>) -> Result<T, E> {
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
pub(super) fn forget(handle: usize) {
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
