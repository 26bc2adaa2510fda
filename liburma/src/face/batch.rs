//! Deleting several objects by one call.
//!
//! *Owns*: the checks before the provider is called, and the references of what it deleted. *Takes*: lists of C programs.
//! *Gives*: one call of the batch operation for each run of objects that share a table of operations: usually the whole
//! list.

use core::{
    ffi::c_int,
    ptr::{NonNull, null_mut},
};
use std::collections::BTreeSet;

use crate::{
    abi::*,
    call::{self, Answer, Code, Object, UserArray, UserPtr, refuse},
    face::{
        dispatch::{home, ops, release, run},
        rules::{Rules, let_go},
    },
    slab::InSlot,
};

/// An object of the list, as read before the provider is called.
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

/// Deletes the objects in order and names the first that was not deleted. If one of them may not be deleted, none is; else
/// deletion stops at the one that a provider refuses.
///
/// # Errors
/// EINVAL: a null array or place, a count below 1, a pointer that is no object, an object named twice, or a provider
/// without the operation. The status with which the provider refused.
///
/// # Safety
/// `list`, unless NULL, has `count` elements; `bad`, unless NULL, is a place for one.
pub(super) unsafe fn each<K: Rules>(
    list: *mut *mut K::Public,
    count: c_int,
    bad: *mut *mut K::Public,
) -> Answer {
    let given = count;
    let count = usize::try_from(given).ok().filter(|count| *count > 0);
    let count =
        count.ok_or_else(|| refuse!(EINVAL, "the count is {given}; at least 1 is deleted"))?;
    // SAFETY: the contract of this function is that of the constructor.
    let list = unsafe { UserArray::new(list, count) }?;
    // SAFETY: the contract of this function is that of the constructor.
    let bad = unsafe { UserPtr::new(bad) }?;
    let objects: Vec<_> = list.iter().collect();
    let mut known = all::<K>(&objects).inspect_err(|_| bad.write(objects[0]))?;
    let mut done = 0;
    while !known.is_empty() {
        let ops = known[0].ops;
        let len = known.iter().take_while(|of| of.ops == ops).count();
        let run: Vec<Known<K>> = known.drain(..len).collect();
        let (gone, answer) = delete_run(ops, list.get(done)?, run);
        done += gone;
        if let Err(code) = answer {
            // A refusal leaves at least one object.
            bad.write(objects[done]);
            return Err(code);
        }
    }
    Ok(())
}

/// Checks every object before the first is deleted.
fn all<K: Rules>(objects: &[*mut K::Public]) -> Answer<Vec<Known<K>>> {
    let mut seen = BTreeSet::new();
    let one = |of: &*mut K::Public| {
        let known: Known<K> = Known::of(*of)?;
        if seen.insert(known.object.as_ptr()) {
            Ok(known)
        } else {
            Err(refuse!(EINVAL, "the array names the {} {of:p} twice", call::word::<K>()))
        }
    };
    objects.iter().map(one).collect()
}

/// Has the provider delete the objects of `run`, which are at `list`; returns how many are gone.
fn delete_run<K: Rules>(
    ops: NonNull<urma_ops_t>,
    list: UserPtr<*mut K::Public>,
    known: Vec<Known<K>>,
) -> (usize, Answer) {
    let Some(delete) = K::delete_op(ops) else {
        return (0, Err(refuse!(EINVAL, "the provider has no operation that deletes several")));
    };
    let Ok(count) = c_int::try_from(known.len()) else {
        return (
            0,
            Err(refuse!(EINVAL, "the array has {} objects, which is too many", known.len())),
        );
    };
    let mut refused = null_mut();
    let answer = Code::from_c(run!(delete(list.as_ptr(), count, &raw mut refused)));
    let gone = match answer {
        Ok(()) => known.len(),
        // Objects before the refused one are gone; a provider that names none deleted none.
        Err(_) => known.iter().position(|of| of.object.as_ptr() == refused).unwrap_or(0),
    };
    for of in known.into_iter().take(gone) {
        K::leaves(of.object.as_ptr(), &of.cfg);
        let_go(K::channel(&of.cfg));
        release(of.ctx);
    }
    (gone, answer)
}
