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
    abi::{urma_context_t, urma_ops_t},
    call::{self, Answer, Code, Object, UserPtr},
    face::{
        dispatch::{home, ops, release},
        rules::{Rules, let_go},
    },
    slab::InSlot,
};

/// An object of a list, as it was before the provider was called.
struct Known<K: Rules> {
    object: Object<K::Public>,
    ctx: *mut urma_context_t,
    ops: NonNull<urma_ops_t>,
    cfg: K::Cfg,
}

impl<K: Rules> Known<K> {
    fn of(object: *mut K::Public) -> Answer<Self> {
        let object = call::object::<K>(object)?;
        K::may_go(object)?;
        let ctx = home(object);
        Ok(Self { object, ctx, ops: ops(ctx)?, cfg: object.get(K::MEMBERS.cfg) })
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
pub(super) unsafe fn each<K: Rules>(
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
fn all<K: Rules>(objects: impl Iterator<Item = *mut K::Public>) -> Answer<Vec<Known<K>>> {
    let mut seen = BTreeSet::new();
    let one = |of| {
        let known: Known<K> = Known::of(of)?;
        if seen.insert(known.object.as_ptr()) { Ok(known) } else { Err(Code::EINVAL) }
    };
    objects.map(one).collect()
}

/// Has the provider delete the objects of `run`, which lie at `list`; how many are gone.
fn delete_run<K: Rules>(
    ops: NonNull<urma_ops_t>,
    list: UserPtr<*mut K::Public>,
    run: Vec<Known<K>>,
) -> (usize, Answer) {
    let Some(delete) = K::delete_op(ops) else { return (0, Err(Code::EINVAL)) };
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
        K::leaves(of.object.as_ptr(), &of.cfg);
        let_go(K::channel(&of.cfg));
        release(of.ctx);
    }
    (gone, answer)
}
