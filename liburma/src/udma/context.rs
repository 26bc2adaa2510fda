//! Shared code for the objects of a context: looking it up, ending an object.
//!
//! *Takes*: objects of C programs. *Gives*: the context of one; the deletion of one.

use core::ffi::c_int;
use std::sync::Arc;

use ubcore_sim::PortMode;

use crate::{
    abi::*,
    call::{self, Answer, Code, UserArray, UserPtr, gone, ours, refuse},
    slab::{Emptied, Exclusive, Fresh, Kind, Slot},
    udma::kind::{self, Ctx},
};

/// Private part of an object that several threads use.
///
/// # Errors
/// EINVAL: no live object of this provider.
pub(crate) fn shared<K, T>(public: *const K::Public) -> Answer<Arc<T>>
where
    K: Exclusive<Own = Arc<T>>,
{
    Ok(Arc::clone(&*ours::<K>(public)?.lock().ok_or_else(gone::<K>)?))
}

/// The private part of a context of this provider.
///
/// # Errors
/// EINVAL: it is none.
pub(crate) fn ctx_of(ctx: *const urma_context_t) -> Answer<Arc<Ctx>> {
    shared::<kind::Context, Ctx>(ctx)
}

/// Sets how the ports of the context's device are used, for all its contexts: `mode` STANDALONE stands for the node's
/// settings. A device of another provider has its own ports.
pub(crate) fn set_aggr_mode(ctx: *const urma_context_t, mode: urma_context_aggr_mode_t) {
    let Ok(own) = ctx_of(ctx) else { return };
    own.hardware.set_port_mode(match mode {
        URMA_AGGR_MODE_ACTIVE_BACKUP => Some(PortMode::ActiveBackup),
        URMA_AGGR_MODE_BALANCE => Some(PortMode::Balance),
        _ => None,
    });
}

/// The error for an object for which no slot is left.
#[cold]
pub(crate) fn no_place<K>() -> Code {
    refuse!(ENOMEM, "the library has no place for one more {}", call::word::<K>())
}

/// Makes an object of a context live.
///
/// # Errors
/// ENOMEM: no slot is free; `private` is dropped.
pub(crate) fn publish<K: Kind>(own: &Ctx, public: K::Public, private: K::Own) -> Answer<Slot<K>> {
    Ok(Fresh::<K>::take().ok_or_else(no_place::<K>)?.publish(own.owner, public, private))
}

/// The private part that a refused deletion returns, and why.
pub(crate) type Kept<K> = (<K as Kind>::Own, Code);

/// Ends the object at `public`: no other thread accesses it while `end` tries. If `end` returns the private part, the
/// object is live again.
///
/// # Errors
/// EINVAL: no live object, or another thread deletes it. Otherwise the error of `end`.
pub(crate) fn delete<K: Kind>(
    public: *const K::Public,
    end: impl FnOnce(K::Own) -> Result<(), Box<Kept<K>>>,
) -> Answer {
    emptied::<K>(public, end).map(drop)
}

/// Ends the object like [`delete`], but leaves it to the caller to free or keep its slot.
///
/// # Errors
/// The same as those of [`delete`].
pub(crate) fn emptied<K: Kind>(
    public: *const K::Public,
    end: impl FnOnce(K::Own) -> Result<(), Box<Kept<K>>>,
) -> Answer<Emptied<K>> {
    let dying = ours::<K>(public)?.retire().ok_or_else(gone::<K>)?;
    let (own, emptied) = dying.take();
    match end(own) {
        Ok(()) => Ok(emptied),
        Err(kept) => {
            let (own, code) = *kept;
            emptied.refill(own);
            Err(code)
        }
    }
}

/// Deletes each of `count` objects, stopping at the first that is refused and naming it in `bad`.
///
/// # Errors
/// EINVAL: a null array or place, or a count below 1. Otherwise the error of the deletion.
///
/// # Safety
/// `list`, unless NULL, has `count` elements, and `bad`, unless NULL, is a place for one.
pub(crate) unsafe fn delete_each<T>(
    list: *mut *mut T,
    count: c_int,
    bad: *mut *mut T,
    one: impl Fn(*mut T) -> Answer,
) -> Answer {
    let given = count;
    let count = usize::try_from(given).ok().filter(|count| *count > 0);
    let count =
        count.ok_or_else(|| refuse!(EINVAL, "the count is {given}; at least 1 is deleted"))?;
    // SAFETY: the contract of this function is that of the constructor.
    let list = unsafe { UserArray::new(list, count) }?;
    // SAFETY: the contract of this function is that of the constructor.
    let bad = unsafe { UserPtr::new(bad) }?;
    list.iter().try_for_each(|object| one(object).inspect_err(|_| bad.write(object)))
}

/// The token to show; for NULL it is 0.
///
/// # Safety
/// `token`, unless NULL, points to one.
pub(crate) unsafe fn token_of(token: *const urma_token_t) -> Answer<urma_token_t> {
    if token.is_null() {
        return Ok(urma_token_t { token: 0 });
    }
    // SAFETY: the contract of this function is that of `value`.
    unsafe { call::value(token) }
}
