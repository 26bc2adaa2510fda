//! JFC: completion queues.
//!
//! *Owns*: urma-core's JFC and the room that polls use. *Gives*: `urma_jfc_t`.
#![expect(unsafe_code, reason = "C entry points")]

use core::ffi::c_int;
use std::sync::Arc;

use urma_core::{Completion, JettyId, Jfc};

use crate::{
    abi::{
        JFC_MODERATE_COUNT, JFC_MODERATE_PERIOD, urma_context_t, urma_jfc_attr_t, urma_jfc_cfg_t,
        urma_jfc_t, urma_status_t,
    },
    call::{self, Answer, Code, ours},
    convert::{name::jetty_id_out, queue, zeroed},
    slab::Fresh,
    udma::{
        context::{Ctx, ctx_of, delete, delete_each},
        event::About,
        jfce::jfce_of,
        kind,
    },
};

/// Completions that one call of the device's driver gives at most.
pub(crate) const POLL_BATCH: usize = 16;

/// What lies behind a completion queue.
pub(crate) struct JfcOwn {
    pub(crate) core: Jfc,
    /// Completions on their way to the caller's records; never cleared.
    pub(crate) scratch: [Completion; POLL_BATCH],
    /// Event moderation in force: count and microseconds.
    moderation: (u16, u16),
    ctx: Arc<Ctx>,
}

pub(crate) unsafe extern "C" fn create_jfc(
    ctx: *mut urma_context_t,
    cfg: *mut urma_jfc_cfg_t,
) -> *mut urma_jfc_t {
    call::pointer(|| {
        let own = ctx_of(ctx)?;
        // SAFETY: the caller's configuration.
        let cfg = unsafe { call::value(cfg) }?;
        let jfce = if cfg.jfce.is_null() { None } else { Some(jfce_of(cfg.jfce)?) };
        let core = own.core.create_jfc(&queue::jfc(&cfg), jfce.as_ref().map(|jfce| &jfce.core))?;
        let id = JettyId { eid: own.core.eid(), uasid: own.core.uasid(), id: core.id() };
        let mut public: urma_jfc_t = zeroed();
        public.urma_ctx = ctx;
        public.jfc_id = jetty_id_out(id);
        public.jfc_cfg = cfg;
        public.handle = u64::from(id.id);
        let fresh = Fresh::<kind::Jfc>::take().ok_or(Code::ENOMEM)?;
        let scratch = [Completion::default(); POLL_BATCH];
        let jfc = JfcOwn { core, scratch, moderation: (0, 0), ctx: Arc::clone(&own) };
        let slot = fresh.publish(own.owner, public, jfc);
        own.names().jfcs.insert(id.id, slot);
        Ok(slot.public())
    })
}

pub(crate) unsafe extern "C" fn modify_jfc(
    jfc: *mut urma_jfc_t,
    attr: *mut urma_jfc_attr_t,
) -> urma_status_t {
    call::status(|| {
        // SAFETY: the caller's attributes.
        let attr = unsafe { call::value(attr) }?;
        if attr.mask & (JFC_MODERATE_COUNT | JFC_MODERATE_PERIOD) == 0 {
            return Err(Code::EINVAL);
        }
        let mut own = ours::<kind::Jfc>(jfc)?.lock().ok_or(Code::EINVAL)?;
        let (mut count, mut period_us) = own.moderation;
        if attr.mask & JFC_MODERATE_COUNT != 0 {
            count = attr.moderate_count;
        }
        if attr.mask & JFC_MODERATE_PERIOD != 0 {
            period_us = attr.moderate_period;
        }
        own.core.moderate(count, period_us)?;
        own.moderation = (count, period_us);
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn delete_jfc(jfc: *mut urma_jfc_t) -> urma_status_t {
    call::status(|| end(jfc))
}

fn end(jfc: *mut urma_jfc_t) -> Answer {
    delete::<kind::Jfc>(jfc, |own| {
        let number = own.core.id();
        if let Err(code) = own.ctx.ensure_acked(About::Jfc(number)) {
            return Err(Box::new((own, code)));
        }
        let JfcOwn { core, scratch, moderation, ctx } = own;
        // First the name: the number may be another queue's as soon as the device forgets it.
        let slot = ctx.names().jfcs.remove(&number);
        core.delete().map_err(|refused| {
            if let Some(slot) = slot {
                ctx.names().jfcs.insert(number, slot);
            }
            let code = Code::from(refused.status);
            let core = *refused.object;
            Box::new((JfcOwn { core, scratch, moderation, ctx: Arc::clone(&ctx) }, code))
        })
    })
}

pub(crate) unsafe extern "C" fn delete_jfc_batch(
    list: *mut *mut urma_jfc_t,
    count: c_int,
    bad: *mut *mut urma_jfc_t,
) -> urma_status_t {
    // SAFETY: the caller's array and place.
    call::status(|| unsafe { delete_each(list, count, bad, end) })
}

pub(crate) unsafe extern "C" fn ack_jfc(
    jfc: *mut *mut urma_jfc_t,
    nevents: *mut u32,
    jfc_cnt: u32,
) {
    call::nothing(|| {
        let (list, counts) = (call::place(jfc)?, call::place(nevents)?);
        for index in 0..usize::try_from(jfc_cnt).map_err(|_| Code::EINVAL)? {
            // SAFETY: both arrays have `jfc_cnt` elements.
            let (jfc, count) = (unsafe { list.add(index) }, unsafe { counts.add(index) });
            // SAFETY: as above.
            let (jfc, count) = (unsafe { jfc.read() }, unsafe { count.read() });
            let own = ours::<kind::Jfc>(jfc)?.lock().ok_or(Code::EINVAL)?;
            own.core.ack_events(count)?;
        }
        Ok(())
    });
}
