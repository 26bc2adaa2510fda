//! Targets: imported queues of other nodes, advice and binding; the same over a transport path, and with a callback.
//!
//! *Owns*: urma-core's target. *Takes*: what `get_tp_list` gave: a software device has one path to a node, and a handle
//! is a promise to use a path of its kind. *Gives*: `urma_target_jetty_t`. The PSNs of `tp_attr` are for bindings that
//! speak the standard opcodes; both 0: none are given.

use core::ffi::c_void;
use std::sync::Arc;

use urma_core::{StartPsns, TargetJetty};

use crate::{
    abi::*,
    call::{self, Answer, Code, gone, ours, refuse},
    convert::{Remote, eid, remote, zeroed},
    slab::{InSlot, member},
    udma::{
        context::{ctx_of, delete, publish, token_of},
        kind::{self, Ctx, TargetOwn},
        path,
    },
};

/// No PSNs are given.
const NO_PSNS: StartPsns = StartPsns { send: 0, receive: 0 };

impl TargetOwn {
    pub(crate) fn new(core: TargetJetty, ctx: &Arc<Ctx>) -> Self {
        Self { core, psns: NO_PSNS, _ctx: Arc::clone(ctx) }
    }
}

pub(crate) unsafe extern "C" fn import_jetty(
    ctx: *mut urma_context_t,
    rjetty: *mut urma_rjetty_t,
    token: *mut urma_token_t,
) -> *mut urma_target_jetty_t {
    // SAFETY: the contract of this function is that of the callee.
    unsafe { import_jetty_at(ctx, rjetty, token, NO_PSNS) }
}

/// Imports a jetty like [`import_jetty`], with PSNs for a later binding to it.
pub(crate) unsafe fn import_jetty_at(
    ctx: *mut urma_context_t,
    rjetty: *mut urma_rjetty_t,
    token: *mut urma_token_t,
    psns: StartPsns,
) -> *mut urma_target_jetty_t {
    call::pointer(|| {
        // SAFETY: a description of the caller's (room card of `face`).
        let from = unsafe { call::value(rjetty) }?;
        // SAFETY: a token of the caller's, or NULL.
        let token = unsafe { token_of(token) }?;
        let (id, kind, mode) = (from.jetty_id, from.r#type, from.trans_mode);
        let remote = Remote { id, kind, mode, flag: from.flag, tp: from.tp_type, token };
        import(ctx, &remote, from.policy, psns)
    })
}

pub(crate) unsafe extern "C" fn import_jfr(
    ctx: *mut urma_context_t,
    rjfr: *mut urma_rjfr_t,
    token: *mut urma_token_t,
) -> *mut urma_target_jetty_t {
    call::pointer(|| {
        // SAFETY: a description of the caller's (room card of `face`).
        let from = unsafe { call::value(rjfr) }?;
        // SAFETY: a token of the caller's, or NULL.
        let token = unsafe { token_of(token) }?;
        let (id, kind, mode) = (from.jfr_id, URMA_JFR, from.trans_mode);
        let remote = Remote { id, kind, mode, flag: from.flag, tp: from.tp_type, token };
        import(ctx, &remote, 0, NO_PSNS)
    })
}

fn import(
    ctx: *mut urma_context_t,
    from: &Remote,
    policy: u32,
    psns: StartPsns,
) -> Answer<*mut urma_target_jetty_t> {
    let own = ctx_of(ctx)?;
    let core = own.core.import_jetty(&remote(from)?)?;
    let public = public(ctx, from, policy, &core);
    let target = TargetOwn { psns, ..TargetOwn::new(core, &own) };
    Ok(publish::<kind::Target>(&own, public, target)?.public())
}

/// Makes the public part of a target.
pub(crate) fn public(
    ctx: *mut urma_context_t,
    from: &Remote,
    policy: u32,
    core: &TargetJetty,
) -> urma_target_jetty_t {
    let target = core.target();
    let mut public: urma_target_jetty_t = zeroed();
    public.urma_ctx = ctx;
    public.id = from.id;
    public.handle = u64::from(target.id.id);
    public.trans_mode = from.mode;
    public.tp.tpn = target.path.tpn;
    public.r#type = from.kind;
    public.flag = from.flag;
    // What followed the description remains with it.
    public.flag.set_has_user_info(0);
    public.flag.set_order_type(target.order as u32);
    public.policy = policy;
    public.tp_type = from.tp;
    public
}

/// `unimport_jetty` and `unimport_jfr`. A jetty that is bound to it stays bound.
pub(crate) unsafe extern "C" fn unimport(target: *mut urma_target_jetty_t) -> urma_status_t {
    call::status(|| {
        delete::<kind::Target>(target, |own| {
            own.core.unimport();
            Ok(())
        })
    })
}

/// The error for a target that is not one of its context.
#[cold]
fn no_target() -> Code {
    refuse!(EINVAL, "the target is no live target of the context of the queue")
}

/// Gives advice: the target is looked up under the lock of the queue.
macro_rules! advice {
    ($($name:ident: $queue:ident, $kind:ident, $how:ident;)*) => {$(
        pub(crate) unsafe extern "C" fn $name(
            queue: *mut $queue,
            target: *mut urma_target_jetty_t,
        ) -> urma_status_t {
            call::status(|| {
                let mut guard = ours::<kind::$kind>(queue)?.lock().ok_or_else(gone::<kind::$kind>)?;
                let (own, look) = guard.split();
                let target = look.named::<kind::Target>(target).ok_or_else(no_target)?;
                Ok(own.core.$how(&target.core)?)
            })
        }
    )*};
}

advice! {
    advise_jfr: urma_jfs_t, Jfs, advise;
    unadvise_jfr: urma_jfs_t, Jfs, unadvise;
    advise_jetty: urma_jetty_t, Jetty, advise;
    unadvise_jetty: urma_jetty_t, Jetty, unadvise;
}

pub(crate) unsafe extern "C" fn bind_jetty(
    jetty: *mut urma_jetty_t,
    target: *mut urma_target_jetty_t,
) -> urma_status_t {
    bind(jetty, target, None)
}

/// Binds, with these PSNs or those of the import.
pub(crate) fn bind(
    jetty: *mut urma_jetty_t,
    target: *mut urma_target_jetty_t,
    psns: Option<StartPsns>,
) -> urma_status_t {
    call::status(|| {
        let slot = ours::<kind::Jetty>(jetty)?;
        let mut guard = slot.lock().ok_or_else(gone::<kind::Jetty>)?;
        let (own, look) = guard.split();
        let named = look.named::<kind::Target>(target).ok_or_else(no_target)?;
        let remote = member!(urma_jetty_t, remote_jetty);
        if slot.get(remote) == target && own.core.bound() == Some(named.core.target()) {
            // The same target again: UMDK's library succeeds.
            return Ok(());
        }
        own.core.bind_with(&named.core, psns.unwrap_or(named.psns))?;
        slot.set(remote, target);
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn unbind_jetty(jetty: *mut urma_jetty_t) -> urma_status_t {
    call::status(|| {
        let slot = ours::<kind::Jetty>(jetty)?;
        slot.lock().ok_or_else(gone::<kind::Jetty>)?.core.unbind()?;
        slot.set(member!(urma_jetty_t, remote_jetty), core::ptr::null_mut());
        Ok(())
    })
}

/// Imports over a named path: the path is checked, then the import is made without one.
macro_rules! import {
    ($name:ident: $from:ident, $id:ident, $plain:ident) => {
        pub(crate) unsafe extern "C" fn $name(
            ctx: *mut urma_context_t,
            from: *mut $from,
            token: *mut urma_token_t,
            active: *mut urma_active_tp_cfg_t,
        ) -> *mut urma_target_jetty_t {
            call::pointer(|| {
                // SAFETY: a description and a path of the caller's (room card of `face`).
                let (of, active) = unsafe { call::args((from, active)) }?;
                let of = of.read();
                path::check(&*ctx_of(ctx)?, &active.read(), eid(of.$id.eid), of.tp_type)?;
                let psns = psns(&active.read());
                // SAFETY: the contract of this function is that of the callee.
                made(unsafe { $plain(ctx, from, token, psns) })
            })
        }
    };
}

import!(import_jetty_ex: urma_rjetty_t, jetty_id, import_jetty_at);
import!(import_jfr_ex: urma_rjfr_t, jfr_id, import_jfr_at);

/// Imports a JFR by `import_jfr`, without the PSNs: nothing is bound to a JFR.
unsafe fn import_jfr_at(
    ctx: *mut urma_context_t,
    from: *mut urma_rjfr_t,
    token: *mut urma_token_t,
    _: StartPsns,
) -> *mut urma_target_jetty_t {
    // SAFETY: the contract of this function is that of the callee.
    unsafe { import_jfr(ctx, from, token) }
}

/// Bits of a PSN on the wire.
const PSN_BITS: u32 = 24;

/// The PSNs of a path: the low 24 bits of what the program gives. Programs draw numbers of 31 bits, and neither
/// UMDK's library nor its kernel module checks them.
fn psns(active: &urma_active_tp_cfg_t) -> StartPsns {
    let low = |psn: u32| psn & ((1 << PSN_BITS) - 1);
    StartPsns { send: low(active.tp_attr.tx_psn), receive: low(active.tp_attr.rx_psn) }
}

fn made<T>(target: *mut T) -> Answer<*mut T> {
    if target.is_null() { Err(Code::as_set()) } else { Ok(target) }
}

pub(crate) unsafe extern "C" fn bind_jetty_ex(
    jetty: *mut urma_jetty_t,
    target: *mut urma_target_jetty_t,
    active: *mut urma_active_tp_cfg_t,
) -> urma_status_t {
    call::status(|| {
        // SAFETY: a path of the caller's (room card of `face`).
        let active = unsafe { call::value(active) }?;
        let (of, to) = (ours::<kind::Jetty>(jetty)?, ours::<kind::Target>(target)?);
        let (peer, tp_type) = (to.shown().id.eid, to.shown().tp_type);
        path::check(&*ctx_of(of.shown().urma_ctx)?, &active, eid(peer), tp_type)?;
        let psns = psns(&active);
        let is_given = psns.send != 0 || psns.receive != 0;
        Code::from_c(bind(jetty, target, is_given.then_some(psns)))
    })
}

/// Advice is carried out at once: the callback runs before the call returns.
macro_rules! advice_async {
    ($name:ident: $queue:ident, $plain:ident) => {
        pub(crate) unsafe extern "C" fn $name(
            queue: *mut $queue,
            target: *mut urma_target_jetty_t,
            done: urma_advise_async_cb_func,
            arg: *mut c_void,
        ) -> urma_status_t {
            call::status(|| {
                let done = call::present(done)?;
                // SAFETY: the callee looks both up.
                let status = unsafe { $plain(queue, target) };
                // SAFETY: the program gave the function and its argument for this call.
                unsafe { done(status, arg) };
                Ok(())
            })
        }
    };
}

advice_async!(advise_jfr_async: urma_jfs_t, advise_jfr);
advice_async!(advise_jetty_async: urma_jetty_t, advise_jetty);
