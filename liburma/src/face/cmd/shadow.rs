//! What stands behind a provider's objects.
//!
//! *Owns*: contexts by address, channels and notifiers by descriptor, and the way back from an object
//! of the software device to the provider's. Other objects carry the way in their `handle`. An object
//! of the built-in provider stands for itself.
#![expect(unsafe_code, reason = "public memory")]

use core::{ffi::c_int, ptr::NonNull};
use std::collections::BTreeMap;

use crate::{
    abi::{
        urma_context_t, urma_jetty_grp_t, urma_jetty_t, urma_jfc_t, urma_jfr_t, urma_jfs_t,
        urma_target_jetty_t, urma_target_seg_t, urma_token_id_t,
    },
    call::{self, Answer, Code, ours},
    latch::Latch,
    slab::{Found, Kind, find, find_idle},
    udma::kind,
};

#[derive(Default)]
struct Shadows {
    contexts: BTreeMap<usize, usize>,
    channels: BTreeMap<c_int, usize>,
    notifiers: BTreeMap<c_int, usize>,
    /// The provider's object for each of ours.
    owners: BTreeMap<usize, usize>,
}

const NOTHING: Shadows = Shadows {
    contexts: BTreeMap::new(),
    channels: BTreeMap::new(),
    notifiers: BTreeMap::new(),
    owners: BTreeMap::new(),
};

static SHADOWS: Latch<Shadows> = Latch::new(NOTHING);

/// For a forked child: nothing stands behind anything.
pub(super) fn abandon() {
    SHADOWS.abandon(NOTHING);
}

fn pointer<T>(addr: usize) -> *mut T {
    core::ptr::with_exposed_provenance_mut(addr)
}

/// A kind whose public part has a handle.
pub(super) trait Handled: Kind {
    fn handle(of: *mut Self::Public) -> *mut u64;
}

macro_rules! handled {
    ($($kind:ident, $public:ident;)*) => {$(
        impl Handled for kind::$kind {
            fn handle(of: *mut $public) -> *mut u64 {
                // SAFETY: a place inside of the object; nothing is read.
                unsafe { &raw mut (*of).handle }
            }
        }
    )*};
}

handled! {
    Jfc, urma_jfc_t;
    Jfs, urma_jfs_t;
    Jfr, urma_jfr_t;
    Jetty, urma_jetty_t;
    Group, urma_jetty_grp_t;
    Target, urma_target_jetty_t;
    Segment, urma_target_seg_t;
    TokenId, urma_token_id_t;
}

fn exists<K: Kind>(of: *mut K::Public) -> bool {
    ours::<K>(of).is_ok() || find_idle::<K>(of).is_some()
}

/// The software device's object behind `of`.
///
/// # Errors
/// EINVAL: there is none.
pub(super) fn of<K: Handled>(of: *mut K::Public) -> Answer<*mut K::Public> {
    if exists::<K>(of) {
        return Ok(of);
    }
    // SAFETY: an object of the provider's.
    let handle = unsafe { K::handle(place::<K>(of)?.as_ptr()).read() };
    let shadow = pointer(usize::try_from(handle).map_err(|_| Code::EINVAL)?);
    if exists::<K>(shadow) { Ok(shadow) } else { Err(Code::EINVAL) }
}

/// An object in the provider's memory; what it stands for is not looked at.
///
/// # Errors
/// EINVAL: NULL, misaligned, or in the memory of this library's objects.
pub(super) fn place<K: Kind>(object: *mut K::Public) -> Answer<NonNull<K::Public>> {
    match find::<K>(object) {
        Found::Foreign => call::aligned(object),
        Found::Live | Found::Invalid => Err(Code::EINVAL),
    }
}

/// [`of`], where NULL stands for nothing.
pub(super) fn of_any<K: Handled>(object: *mut K::Public) -> Answer<*mut K::Public> {
    if object.is_null() { Ok(object) } else { of::<K>(object) }
}

/// From now on `shadow` stands behind `object`.
pub(super) fn join<K: Handled>(object: NonNull<K::Public>, shadow: *mut K::Public) {
    let (addr, of) = (shadow.expose_provenance(), object.as_ptr().expose_provenance());
    // SAFETY: an object of the provider's, which it has just made.
    unsafe { K::handle(object.as_ptr()).write(addr as u64) };
    SHADOWS.with(|shadows| shadows.owners.insert(addr, of));
}

/// The provider's object for one of ours.
pub(super) fn owner<T>(shadow: *mut T) -> *mut T {
    let of = SHADOWS.with(|shadows| shadows.owners.get(&shadow.addr()).copied());
    of.map_or(shadow, pointer)
}

/// Nothing stands behind it any more.
pub(super) fn part<T>(shadow: *mut T) {
    SHADOWS.with(|shadows| shadows.owners.remove(&shadow.addr()));
}

pub(super) fn join_context(ctx: NonNull<urma_context_t>, shadow: *mut urma_context_t) {
    let (addr, of) = (shadow.expose_provenance(), ctx.as_ptr().expose_provenance());
    SHADOWS.with(|shadows| {
        shadows.contexts.insert(of, addr);
        shadows.owners.insert(addr, of);
    });
}

/// The software device's context behind `ctx`.
///
/// # Errors
/// EINVAL: there is none.
pub(super) fn context(ctx: *const urma_context_t) -> Answer<*mut urma_context_t> {
    if exists::<kind::Context>(ctx.cast_mut()) {
        return Ok(ctx.cast_mut());
    }
    let addr = SHADOWS.with(|shadows| shadows.contexts.get(&ctx.addr()).copied());
    addr.map(pointer).ok_or(Code::EINVAL)
}

/// Forgets a context.
pub(super) fn part_context(ctx: *mut urma_context_t, shadow: *mut urma_context_t) {
    SHADOWS.with(|shadows| {
        shadows.contexts.remove(&ctx.addr());
        shadows.owners.remove(&shadow.addr());
    });
}

/// A table of descriptors.
#[derive(Clone, Copy)]
pub(super) enum Fds {
    Channels,
    Notifiers,
}

impl Shadows {
    fn table(&mut self, of: Fds) -> &mut BTreeMap<c_int, usize> {
        match of {
            Fds::Channels => &mut self.channels,
            Fds::Notifiers => &mut self.notifiers,
        }
    }
}

/// What stands behind a descriptor; a later one with the same number takes its place.
pub(super) fn join_fd<T>(table: Fds, fd: c_int, shadow: *mut T) {
    let addr = shadow.expose_provenance();
    SHADOWS.with(|shadows| shadows.table(table).insert(fd, addr));
}

/// # Errors
/// EINVAL: nothing.
pub(super) fn by_fd<T>(table: Fds, fd: c_int) -> Answer<*mut T> {
    let addr = SHADOWS.with(|shadows| shadows.table(table).get(&fd).copied());
    addr.map(pointer).ok_or(Code::EINVAL)
}

/// Channels and notifiers of a context: none of the commands deletes them.
pub(super) fn take_fds(table: Fds, is_of: impl Fn(usize) -> bool) -> Vec<usize> {
    SHADOWS.with(|shadows| {
        let map = shadows.table(table);
        let found: Vec<_> =
            map.iter().filter(|(_, addr)| is_of(**addr)).map(|(f, a)| (*f, *a)).collect();
        found.iter().for_each(|(fd, _)| {
            map.remove(fd);
        });
        found.into_iter().map(|(_, addr)| addr).collect()
    })
}
