//! Imports and bindings that name a transport path, and advice that calls back.
//!
//! *Owns*: nothing. *Takes*: what `get_tp_list` gave. *Gives*: what the calls without a path give: a
//! software device has one path to a node, and a handle is a promise to use a path of its kind. The PSNs
//! of `tp_attr` are for bindings that speak the standard opcodes; both 0: none are given.

use core::ffi::c_void;

use urma_core::StartPsns;

use crate::{
    abi::*,
    call::{self, Code, ours},
    convert::name::eid,
    udma::{
        context::ctx_of,
        kind, path,
        target::{advise_jetty, advise_jfr, bind, import_jetty_at, import_jfr},
    },
};

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

fn made<T>(target: *mut T) -> call::Answer<*mut T> {
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
macro_rules! advice {
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

advice!(advise_jfr_async: urma_jfs_t, advise_jfr);
advice!(advise_jetty_async: urma_jetty_t, advise_jetty);
