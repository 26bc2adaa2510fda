//! Notifiers; asynchronous imports and bindings.

use core::{ffi::c_int, ptr::NonNull};
use std::collections::BTreeMap;

use crate::{
    abi::*,
    call::{self, Code, Object, UserArray, made, object, refuse},
    face::{
        dispatch::{as_set, ask, ends, home, op, release, retain, run},
        target::{bindable, check},
    },
    latch::Latch,
    udma::kind,
};

/// Targets that a context counts and no notice has reported yet, by the address of the notifier.
static UNREPORTED: Latch<BTreeMap<usize, usize>> = Latch::new(BTreeMap::new());

/// Forgets the parent's notifiers in a forked child.
pub(super) fn abandon() {
    UNREPORTED.abandon(BTreeMap::new());
}

fn forget(notifier: Object<urma_notifier_t>) -> usize {
    let addr = notifier.as_ptr().addr();
    UNREPORTED.with(|unreported| unreported.remove(&addr)).unwrap_or_default()
}

fn begin(notifier: Object<urma_notifier_t>) {
    let addr = notifier.as_ptr().addr();
    UNREPORTED.with(|unreported| *unreported.entry(addr).or_default() += 1);
}

/// Removes a pending import; returns whether there was one.
fn end(notifier: Object<urma_notifier_t>) -> bool {
    let addr = notifier.as_ptr().addr();
    UNREPORTED.with(|unreported| {
        let count = unreported.get_mut(&addr).filter(|count| **count > 0);
        count.map(|count| *count -= 1).is_some()
    })
}

/// Creates a notifier; its `fd` is readable while a notice waits.
pub unsafe extern "C" fn urma_create_notifier(ctx: *mut urma_context_t) -> *mut urma_notifier_t {
    call::pointer(|| {
        let ctx = object::<kind::Context>(ctx)?;
        let notifier = made(ask!(ctx.as_ptr(), create_notifier(ctx.as_ptr())))?;
        retain(ctx);
        Ok(notifier.as_ptr())
    })
}

/// Deletes a notifier: threads that wait on it return, and the call waits for imports in progress. Targets that no notice
/// reported are forgotten.
pub unsafe extern "C" fn urma_delete_notifier(notifier: *mut urma_notifier_t) -> urma_status_t {
    call::status(|| {
        let notifier = object::<kind::Notifier>(notifier)?;
        let ctx = home(notifier);
        Code::from_c(ask!(ctx, delete_notifier(notifier.as_ptr())))?;
        (0..forget(notifier)).for_each(|_| release(ctx));
        release(ctx);
        Ok(())
    })
}

/// Waits up to `timeout` milliseconds for a notice (a negative value: until one comes or the notifier is deleted), and
/// takes up to `cnt`. Returns their number, or -1 with `errno`. After the notice of a failed import its target no longer
/// exists.
pub unsafe extern "C" fn urma_wait_notify(
    notifier: *mut urma_notifier_t,
    cnt: u32,
    notify: *mut urma_notify_t,
    timeout: c_int,
) -> c_int {
    call::count(|| {
        let notifier = object::<kind::Notifier>(notifier)?;
        call::some(notify)?;
        if cnt == 0 {
            return Ok(0);
        }
        let ctx = home(notifier);
        let wait = op!(ctx, wait_notify);
        let ack = op!(ctx, ack_notify);
        let count = as_set(run!(wait(notifier.as_ptr(), cnt, notify, timeout)))?;
        let given =
            u32::try_from(count).map_err(|_| refuse!(FAIL, "the provider gave {count} notices"))?;
        // SAFETY: the caller's array, of which the provider filled so many (room card of `face`).
        let notices = unsafe { UserArray::new(notify, given as usize) }?;
        notices.iter().for_each(|notice| reported(notifier, ctx, &notice));
        run!(ack(given, notify));
        Ok(count)
    })
}

/// Called when a notice was reported: an imported target remains counted, one whose import failed does not.
fn reported(notifier: Object<urma_notifier_t>, ctx: *mut urma_context_t, notice: &urma_notify_t) {
    if notice.r#type != URMA_IMPORT_JETTY_NOTIFY {
        return;
    }
    if end(notifier) && notice.status != 0 {
        release(ctx);
    }
}

/// Acknowledges notices. It only checks its arguments: as in UMDK's library, [`urma_wait_notify`] has acknowledged them.
pub unsafe extern "C" fn urma_ack_notify(
    ctx: *mut urma_context_t,
    _cnt: u32,
    notify: *mut urma_notify_t,
) -> urma_status_t {
    call::status(|| {
        let ctx = object::<kind::Context>(ctx)?;
        call::some(notify)?;
        op!(ctx.as_ptr(), ack_notify);
        Ok(())
    })
}

/// Imports a jetty or group without waiting for its node. The target may be used after a notice of success. `timeout` is
/// in milliseconds; 0: the device's own limit. A token must be given, whatever its policy.
pub unsafe extern "C" fn urma_import_jetty_async(
    notifier: *mut urma_notifier_t,
    rjetty: *const urma_rjetty_t,
    token_value: *const urma_token_t,
    user_ctx: u64,
    timeout: c_int,
) -> *mut urma_target_jetty_t {
    call::pointer(|| {
        let notifier = object::<kind::Notifier>(notifier)?;
        let ctx = home(notifier);
        let import = op!(ctx, import_jetty_async);
        call::some(token_value)?;
        // SAFETY: a description of the caller's (room card of `face`).
        let of = unsafe { call::value(rjetty) }?;
        check(of.trans_mode, of.tp_type, of.flag, token_value)?;
        let ctx = object::<kind::Context>(ctx)?;
        retain(ctx);
        begin(notifier);
        let target = run!(import(notifier.as_ptr(), rjetty, token_value, user_ctx, timeout));
        let Some(target) = NonNull::new(target) else {
            end(notifier);
            release(ctx.as_ptr());
            return Err(Code::as_set());
        };
        Ok(target.as_ptr())
    })
}

ends! {
    /// Unimports a target that was imported asynchronously.
    urma_unimport_jetty_async(urma_target_jetty_t as Target) = unimport_jetty_async;
}

/// Like `urma_bind_jetty`, but a notice reports the result.
pub unsafe extern "C" fn urma_bind_jetty_async(
    notifier: *mut urma_notifier_t,
    jetty: *mut urma_jetty_t,
    tjetty: *mut urma_target_jetty_t,
    user_ctx: u64,
    timeout: c_int,
) -> urma_status_t {
    call::status(|| {
        let notifier = object::<kind::Notifier>(notifier)?;
        let (jetty, target) = (object::<kind::Jetty>(jetty)?, object::<kind::Target>(tjetty)?);
        bindable(jetty, target)?;
        let ctx = home(jetty);
        let (notifier, jetty, target) = (notifier.as_ptr(), jetty.as_ptr(), target.as_ptr());
        Code::from_c(ask!(ctx, bind_jetty_async(notifier, jetty, target, user_ctx, timeout)))
    })
}

/// Undoes a binding. `URMA_EINVAL`: the jetty is not bound. `URMA_ENOPERM`: it is not RC.
pub unsafe extern "C" fn urma_unbind_jetty_async(jetty: *mut urma_jetty_t) -> urma_status_t {
    call::status(|| {
        let jetty = object::<kind::Jetty>(jetty)?;
        if jetty.remote_jetty.is_null() {
            return Err(refuse!(EINVAL, "the jetty is not bound (remote_jetty is NULL)"));
        }
        if jetty.jetty_cfg.jfs_cfg.trans_mode != URMA_TM_RC {
            return Err(refuse!(
                ENOPERM,
                "the jetty's trans_mode is not RC (2); only those are bound"
            ));
        }
        Code::from_c(ask!(home(jetty), unbind_jetty_async(jetty.as_ptr())))
    })
}
