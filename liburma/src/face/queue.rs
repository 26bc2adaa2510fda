//! Queues made in one call: creation, attributes, flushed requests, deletion, of one or of a list.
//!
//! The order of checks, the provider's operation and the book-keeping, once for all kinds. Of a list, each run of
//! objects that share a table of operations is deleted by one call of the batch operation.

use core::{
    ffi::c_int,
    ptr::{NonNull, null_mut},
};
use std::collections::BTreeSet;

use crate::{
    abi::*,
    call::{self, Answer, Code, Object, UserArray, UserPtr, made, object, refuse},
    face::{
        dispatch::{ask, caps, forwards, home, op, ops, release, retain, run},
        rules::{Rules, flushable, hold, let_go},
    },
    slab::{InSlot, Kind},
    udma::{family::Family, kind},
};

type CreateOp<K> =
    unsafe extern "C" fn(*mut urma_context_t, *mut <K as Family>::Cfg) -> *mut <K as Kind>::Public;
type DeleteOp<K> = unsafe extern "C" fn(*mut <K as Kind>::Public) -> urma_status_t;

/// # Safety
/// `cfg`, unless NULL, is the caller's configuration.
unsafe fn create<K: Rules>(
    ctx: Object<urma_context_t>,
    cfg: *mut K::Cfg,
    op: CreateOp<K>,
) -> Answer<*mut K::Public> {
    // SAFETY: the contract of this function is that of the constructor.
    let cfg = unsafe { UserPtr::new(cfg) }?;
    let mut of = cfg.read();
    K::check(&mut of, &caps(ctx)?)?;
    if K::FILLS {
        // The C core writes the default back too.
        cfg.write(of);
    }
    let queue = made(run!(op(ctx.as_ptr(), cfg.as_ptr())))?;
    // Some providers do not set it, but `urma_deactive_*` checks it.
    queue.set(K::MEMBERS.is_active, 1);
    retain(ctx);
    hold(K::channel(&of));
    K::joined(queue.as_ptr(), &of);
    Ok(queue.as_ptr())
}

/// Deletes a queue with the operation of its context's table.
fn delete<K: Rules>(queue: Object<K::Public>, op: DeleteOp<K>) -> Answer {
    let (ctx, cfg) = (home(queue), queue.get(K::MEMBERS.cfg));
    Code::from_c(run!(op(queue.as_ptr())))?;
    K::leaves(queue.as_ptr(), &cfg);
    let_go(K::channel(&cfg));
    release(ctx);
    Ok(())
}

macro_rules! queues {
    ($($kind:ident, $public:ident, $cfg:ident, $attr:ident:
        $(#[$create_doc:meta])* $urma_create:ident = $create:ident,
        $(#[$modify_doc:meta])* $urma_modify:ident = $modify:ident,
        $(#[$delete_doc:meta])* $urma_delete:ident = $delete:ident, $urma_batch:ident;)*) => {$(
        $(#[$create_doc])*
        pub unsafe extern "C" fn $urma_create(
            ctx: *mut urma_context_t,
            cfg: *mut $cfg,
        ) -> *mut $public {
            call::pointer(|| {
                call::at(stringify!($create));
                let ctx = object::<kind::Context>(ctx)?;
                let op = op!(ctx.as_ptr(), $create);
                // SAFETY: a configuration of the caller's (room card of `face`).
                unsafe { create::<kind::$kind>(ctx, cfg, op) }
            })
        }

        forwards! {
            $(#[$modify_doc])*
            $urma_modify(queue: *mut $public as $kind, attr: *mut $attr) needs(attr) = $modify;
        }

        $(#[$delete_doc])*
        pub unsafe extern "C" fn $urma_delete(queue: *mut $public) -> urma_status_t {
            call::status(|| {
                let queue = object::<kind::$kind>(queue)?;
                kind::$kind::may_go(queue)?;
                delete::<kind::$kind>(queue, op!(home(queue), $delete))
            })
        }

        /// Deletes queues in order; `bad` names the first that was not deleted.
        pub unsafe extern "C" fn $urma_batch(
            list: *mut *mut $public,
            count: c_int,
            bad: *mut *mut $public,
        ) -> urma_status_t {
            // SAFETY: an array of the caller's of `count` pointers, and a place (room card of `face`).
            call::status(|| unsafe { each::<kind::$kind>(list, count, bad) })
        }
    )*};
}

queues! {
    Jfc, urma_jfc_t, urma_jfc_cfg_t, urma_jfc_attr_t:
        /// Creates a completion queue of depth 1 to `max_jfc_depth`; `jfce` may be NULL.
        urma_create_jfc = create_jfc,
        /// Sets event moderation: an event after so many completions or microseconds.
        urma_modify_jfc = modify_jfc,
        /// Deletes a completion queue; completions not polled are lost. `URMA_EAGAIN`: another queue completes here, or
        /// an event is not acknowledged.
        urma_delete_jfc = delete_jfc, urma_delete_jfc_batch;
    Jfs, urma_jfs_t, urma_jfs_cfg_t, urma_jfs_attr_t:
        /// Creates a send queue. An order type of 0 is replaced by the default of the mode, in the caller's struct too.
        urma_create_jfs = create_jfs,
        /// Changes the state of the queue.
        urma_modify_jfs = modify_jfs,
        /// Deletes a queue, after outstanding requests completed as flushed.
        urma_delete_jfs = delete_jfs, urma_delete_jfs_batch;
    Jfr, urma_jfr_t, urma_jfr_cfg_t, urma_jfr_attr_t:
        /// Creates a receive queue. An order type of 0 is replaced by the default of the mode, in the caller's struct too.
        urma_create_jfr = create_jfr,
        /// Changes the threshold, the state, or both.
        urma_modify_jfr = modify_jfr,
        /// Deletes a queue, after outstanding requests completed as flushed. `URMA_EAGAIN`: jetties
        /// receive through it.
        urma_delete_jfr = delete_jfr, urma_delete_jfr_batch;
    Jetty, urma_jetty_t, urma_jetty_cfg_t, urma_jetty_attr_t:
        /// Creates a jetty, with a JFR that it may share with others. Its order type is filled in as for a JFS.
        urma_create_jetty = create_jetty,
        /// Changes the threshold, the state, or both.
        urma_modify_jetty = modify_jetty,
        /// Deletes a jetty, after outstanding requests completed as flushed. `URMA_ENOPERM`: the jetty is bound.
        urma_delete_jetty = delete_jetty, urma_delete_jetty_batch;
}

forwards! {
    /// Reads configuration and state of a send queue.
    urma_query_jfs(jfs: *mut urma_jfs_t as Jfs, cfg: *mut urma_jfs_cfg_t, attr: *mut urma_jfs_attr_t)
        needs(cfg, attr) = query_jfs;
    /// Reads configuration, threshold and state of a receive queue.
    urma_query_jfr(jfr: *mut urma_jfr_t as Jfr, cfg: *mut urma_jfr_cfg_t, attr: *mut urma_jfr_attr_t)
        needs(cfg, attr) = query_jfr;
    /// Reads configuration, threshold and state of a jetty.
    urma_query_jetty(jetty: *mut urma_jetty_t as Jetty, cfg: *mut urma_jetty_cfg_t, attr: *mut urma_jetty_attr_t)
        needs(cfg, attr) = query_jetty;
}

macro_rules! flushes {
    ($($(#[$doc:meta])* $name:ident($queue:ident, $kind:ident, $cfg:ident $(. $of:ident)?) = $op:ident;)*) => {$(
        $(#[$doc])*
        pub unsafe extern "C" fn $name(queue: *mut $queue, cr_cnt: c_int, cr: *mut urma_cr_t) -> c_int {
            call::negative(|| {
                let queue = object::<kind::$kind>(queue)?;
                call::some(cr)?;
                flushable(cr_cnt, &queue.$cfg $(. $of)?)?;
                Ok(ask!(home(queue), $op(queue.as_ptr(), cr_cnt, cr)))
            })
        }
    )*};
}

flushes! {
    /// Takes 1 to `depth` flushed requests of a queue in the error state. Returns their number, or the negative status.
    urma_flush_jfs(urma_jfs_t, Jfs, jfs_cfg) = flush_jfs;
    /// Takes 1 to `depth` completions, flushed ones too, of a jetty in the error state. Returns their number, or the
    /// negative status.
    urma_flush_jetty(urma_jetty_t, Jetty, jetty_cfg.jfs_cfg) = flush_jetty;
}

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
