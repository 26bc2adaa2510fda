//! Deleting several objects by one call.
//!
//! *Owns*: what is looked at before the provider is called, and the references of what it deleted.
//! *Takes*: lists of C programs. *Gives*: one call of the batch operation for each run of objects
//! that one table of operations drives: all of a list, in the usual case.
#![expect(unsafe_code, reason = "arrays of C programs")]

use core::{
    ffi::c_int,
    ptr::{NonNull, null_mut},
};
use std::collections::BTreeSet;

use crate::{
    abi::{
        urma_context_t, urma_jetty_grp_t, urma_jetty_t, urma_jfc_t, urma_jfce_t, urma_jfr_t,
        urma_jfs_t, urma_ops_t, urma_status_t,
    },
    call::{self, Answer, Code, UserPtr, object},
    face::{
        dispatch::{Homed, home, ops, release},
        jetty, jfc, members,
    },
    slab::Kind,
    udma::kind,
};

/// An operation that deletes several.
type Delete<T> = unsafe extern "C" fn(*mut *mut T, c_int, *mut *mut T) -> urma_status_t;

/// What the C core does beside the provider for one kind.
pub(super) trait Listed: Kind<Public: Homed> {
    /// What an object counts on beside its context.
    type Held;

    /// The provider's operation.
    ///
    /// # Safety
    /// The table of a live context.
    unsafe fn operation(ops: NonNull<urma_ops_t>) -> Option<Delete<Self::Public>>;

    /// What forbids deleting an object, whoever provides it.
    ///
    /// # Errors
    /// The status of the refusal.
    fn check(_of: NonNull<Self::Public>) -> Answer {
        Ok(())
    }

    /// Read before the object is gone.
    fn held(of: NonNull<Self::Public>) -> Self::Held;

    /// The object at this address is gone.
    fn let_go(_gone: *mut Self::Public, _held: Self::Held) {}
}

macro_rules! listed {
    ($kind:ident, $op:ident, $held:ty, $read:expr, $let_go:expr $(, $check:expr)?) => {
        impl Listed for kind::$kind {
            type Held = $held;

            unsafe fn operation(ops: NonNull<urma_ops_t>) -> Option<Delete<Self::Public>> {
                // SAFETY: the caller's promise.
                unsafe { (*ops.as_ptr()).$op }
            }

            $(fn check(of: NonNull<Self::Public>) -> Answer {
                $check(of)
            })?

            fn held(of: NonNull<Self::Public>) -> $held {
                let read: fn(NonNull<Self::Public>) -> $held = $read;
                read(of)
            }

            fn let_go(gone: *mut Self::Public, held: $held) {
                let let_go: fn(*mut Self::Public, $held) = $let_go;
                let_go(gone, held);
            }
        }
    };
}

listed!(Jfs, delete_jfs_batch, (), |_: NonNull<urma_jfs_t>| (), |_, ()| ());
listed!(Jfr, delete_jfr_batch, (), |_: NonNull<urma_jfr_t>| (), |_, ()| ());
listed!(Jfc, delete_jfc_batch, *mut urma_jfce_t, channel, |_, jfce| jfc::leave(jfce));
listed!(
    Jetty,
    delete_jetty_batch,
    *mut urma_jetty_grp_t,
    group,
    |gone, group| members::remove(group, gone),
    jetty::unbound
);

fn channel(jfc: NonNull<urma_jfc_t>) -> *mut urma_jfce_t {
    // SAFETY: a live queue.
    unsafe { (*jfc.as_ptr()).jfc_cfg.jfce }
}

fn group(jetty: NonNull<urma_jetty_t>) -> *mut urma_jetty_grp_t {
    // SAFETY: a live jetty.
    unsafe { (*jetty.as_ptr()).jetty_cfg.jetty_grp }
}

/// An object of a list, as it was before the provider was called.
struct Known<K: Listed> {
    object: NonNull<K::Public>,
    ctx: *mut urma_context_t,
    ops: NonNull<urma_ops_t>,
    held: K::Held,
}

impl<K: Listed> Known<K> {
    fn of(object: *mut K::Public) -> Answer<Self> {
        let object = self::object::<K>(object)?;
        K::check(object)?;
        let ctx = home(object);
        Ok(Self { object, ctx, ops: ops(ctx)?, held: K::held(object) })
    }
}

/// Deletes in order, and names the first that was not deleted: where one of them may not be, all are
/// left; else the one that a provider refused.
///
/// # Errors
/// EINVAL: a null array or place, less than one, an object that is none, is named twice, or whose
/// provider has no such operation. The status of the refused one.
///
/// # Safety
/// `list`, unless NULL, has `count` elements; `bad`, unless NULL, is a place for one.
pub(super) unsafe fn each<K: Listed>(
    list: *mut *mut K::Public,
    count: c_int,
    bad: *mut *mut K::Public,
) -> Answer {
    let (list, bad) = (call::place(list)?, call::place(bad)?);
    let count = usize::try_from(count).ok().filter(|count| *count > 0).ok_or(Code::EINVAL)?;
    let object = |index| {
        // SAFETY: inside the caller's array.
        let element = unsafe { list.add(index) };
        // SAFETY: as above.
        unsafe { element.read() }
    };
    let mut known = all::<K>((0..count).map(object)).inspect_err(|_| {
        // SAFETY: the caller's place.
        unsafe { bad.write(object(0)) };
    })?;
    let mut done = 0;
    while !known.is_empty() {
        let ops = known[0].ops;
        let len = known.iter().take_while(|of| of.ops == ops).count();
        let run: Vec<Known<K>> = known.drain(..len).collect();
        // SAFETY: inside the caller's array.
        let place = unsafe { list.add(done) };
        let (gone, answer) = delete_run(ops, place, run);
        done += gone;
        if let Err(code) = answer {
            // SAFETY: the caller's place. A refusal leaves at least one.
            unsafe { bad.write(object(done)) };
            return Err(code);
        }
    }
    Ok(())
}

/// Looks at every object before the first is deleted.
fn all<K: Listed>(objects: impl Iterator<Item = *mut K::Public>) -> Answer<Vec<Known<K>>> {
    let mut seen = BTreeSet::new();
    let one = |of| {
        let known = Known::of(of)?;
        if seen.insert(known.object) { Ok(known) } else { Err(Code::EINVAL) }
    };
    objects.map(one).collect()
}

/// Has the provider delete the objects of `run`, which lie at `list`; how many are gone.
fn delete_run<K: Listed>(
    ops: NonNull<urma_ops_t>,
    list: UserPtr<*mut K::Public>,
    run: Vec<Known<K>>,
) -> (usize, Answer) {
    // SAFETY: the table of the context of a live object.
    let Some(delete) = (unsafe { K::operation(ops) }) else { return (0, Err(Code::EINVAL)) };
    let Ok(count) = c_int::try_from(run.len()) else { return (0, Err(Code::EINVAL)) };
    let mut refused = null_mut();
    // SAFETY: live objects at the caller's place, and a place for one.
    let answer = Code::from_c(unsafe { delete(list.as_ptr(), count, &raw mut refused) });
    let gone = match answer {
        Ok(()) => run.len(),
        // Those before the refused one are gone; a provider that names none deleted none.
        Err(_) => run.iter().position(|of| of.object.as_ptr() == refused).unwrap_or(0),
    };
    for of in run.into_iter().take(gone) {
        K::let_go(of.object.as_ptr(), of.held);
        release(of.ctx);
    }
    (gone, answer)
}
