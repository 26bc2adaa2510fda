//! JFR: receive queues, alone or shared by jetties.
//!
//! *Owns*: urma-core's JFR. *Gives*: `urma_jfr_t`.
#![expect(unsafe_code, reason = "C entry points")]

use core::ffi::c_int;
use std::sync::Arc;

use urma_core::{JettyId, Jfr};

use crate::{
    abi::{
        JFR_RX_THRESHOLD, JFR_STATE, urma_context_t, urma_jfr_attr_t, urma_jfr_cfg_t, urma_jfr_t,
        urma_status_t,
    },
    call::{self, Answer, Code, ours},
    convert::{
        name,
        option::{self, Opt},
        queue,
    },
    slab::{Held, Slot},
    udma::{
        context::{Ctx, Kept, Queue, delete, delete_each},
        event::About,
        family::{self, Family, Members},
        kind,
    },
};

/// What lies behind a receive queue.
pub(crate) struct JfrOwn {
    pub(crate) core: Jfr,
    ctx: Arc<Ctx>,
}

pub(crate) unsafe extern "C" fn create_jfr(
    ctx: *mut urma_context_t,
    cfg: *mut urma_jfr_cfg_t,
) -> *mut urma_jfr_t {
    // SAFETY: the caller's configuration.
    call::pointer(|| unsafe { family::create::<kind::Jfr>(ctx, cfg) })
}

impl Family for kind::Jfr {
    type Cfg = urma_jfr_cfg_t;
    const OPTIONS: &'static [&'static [Opt]] = &[option::JFR];

    fn members(public: *mut urma_jfr_t) -> Members<Self::Cfg> {
        family::members!(public, jfr_id, jfr_cfg, urma_jfr_opt.is_actived, urma_jfr_opt.urma_jfr_id)
    }

    fn wanted_id(cfg: &Self::Cfg) -> u32 {
        cfg.id
    }

    fn make(own: &Arc<Ctx>, cfg: &Self::Cfg) -> Answer<(JettyId, JfrOwn)> {
        let jfc = ours::<kind::Jfc>(cfg.jfc)?;
        let held = Held::take([Some(jfc.into())]).ok_or(Code::EINVAL)?;
        let jfc = &held.own(jfc).ok_or(Code::EINVAL)?.core;
        let core = own.core.create_jfr(&queue::jfr(cfg)?, jfc)?;
        Ok((core.id(), JfrOwn { core, ctx: Arc::clone(own) }))
    }

    fn end(own: JfrOwn) -> Result<(), Box<Kept<Self>>> {
        let number = own.core.id().id;
        if let Err(code) = own.ctx.ensure_acked(About::Queue(number)) {
            return Err(Box::new((own, code)));
        }
        let JfrOwn { core, ctx } = own;
        let name = ctx.names().queues.remove(&number);
        core.delete().map_err(|refused| {
            name.map(|name| ctx.names().queues.insert(number, name));
            let code = refused.status.into();
            Box::new((JfrOwn { core: *refused.object, ctx: Arc::clone(&ctx) }, code))
        })
    }

    fn register(own: &Ctx, number: u32, slot: Slot<Self>) {
        own.names().queues.insert(number, Queue::Jfr(slot));
    }
}

family::operations! {
    kind::Jfr, urma_jfr_t, urma_jfr_cfg_t:
    alloc_jfr, set_jfr_opt, get_jfr_opt, active_jfr, deactive_jfr, free_jfr
}

pub(crate) unsafe extern "C" fn modify_jfr(
    jfr: *mut urma_jfr_t,
    attr: *mut urma_jfr_attr_t,
) -> urma_status_t {
    call::status(|| {
        // SAFETY: the caller's attributes.
        let attr = unsafe { call::value(attr) }?;
        if attr.mask & (JFR_RX_THRESHOLD | JFR_STATE) == 0 {
            return Err(Code::EINVAL);
        }
        let own = ours::<kind::Jfr>(jfr)?.lock().ok_or(Code::EINVAL)?;
        if attr.mask & JFR_RX_THRESHOLD != 0 {
            own.core.set_rx_threshold(attr.rx_threshold)?;
        }
        if attr.mask & JFR_STATE != 0 {
            own.core.modify(name::jfr_state(attr.state)?)?;
        }
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn query_jfr(
    jfr: *mut urma_jfr_t,
    cfg: *mut urma_jfr_cfg_t,
    attr: *mut urma_jfr_attr_t,
) -> urma_status_t {
    call::status(|| {
        let (cfg, attr) = (call::place(cfg)?, call::place(attr)?);
        let slot = ours::<kind::Jfr>(jfr)?;
        let status = slot.lock().ok_or(Code::EINVAL)?.core.query()?;
        let (rx_threshold, state) = (status.rx_threshold, name::jfr_state_out(status.state));
        // SAFETY: the public part of a live object.
        let of = unsafe { (*slot.public()).jfr_cfg };
        // SAFETY: a place of the caller's for one.
        unsafe { cfg.write(of) };
        // SAFETY: as above.
        unsafe { attr.write(urma_jfr_attr_t { mask: 0, rx_threshold, state }) };
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn delete_jfr(jfr: *mut urma_jfr_t) -> urma_status_t {
    call::status(|| end(jfr))
}

fn end(jfr: *mut urma_jfr_t) -> Answer {
    delete::<kind::Jfr>(jfr, kind::Jfr::end)
}

pub(crate) unsafe extern "C" fn delete_jfr_batch(
    list: *mut *mut urma_jfr_t,
    count: c_int,
    bad: *mut *mut urma_jfr_t,
) -> urma_status_t {
    // SAFETY: the caller's array and place.
    call::status(|| unsafe { delete_each(list, count, bad, end) })
}
