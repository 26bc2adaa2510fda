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
    convert::{
        option::{self, Opt},
        queue,
    },
    slab::Slot,
    udma::{
        context::{Ctx, Kept, delete, delete_each},
        event::About,
        family::{self, Family, Members},
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
    // SAFETY: the caller's configuration.
    call::pointer(|| unsafe { family::create::<kind::Jfc>(ctx, cfg) })
}

impl Family for kind::Jfc {
    type Cfg = urma_jfc_cfg_t;
    const OPTIONS: &'static [&'static [Opt]] = &[option::JFC];

    fn members(public: *mut urma_jfc_t) -> Members<Self::Cfg> {
        family::members!(public, jfc_id, jfc_cfg, urma_jfc_opt.is_actived, urma_jfc_opt.urma_jfc_id)
    }

    fn make(own: &Arc<Ctx>, cfg: &Self::Cfg) -> Answer<(JettyId, JfcOwn)> {
        let jfce = if cfg.jfce.is_null() { None } else { Some(jfce_of(cfg.jfce)?) };
        let core = own.core.create_jfc(&queue::jfc(cfg), jfce.as_ref().map(|jfce| &jfce.core))?;
        let id = JettyId { eid: own.core.eid(), uasid: own.core.uasid(), id: core.id() };
        let scratch = [Completion::default(); POLL_BATCH];
        Ok((id, JfcOwn { core, scratch, moderation: (0, 0), ctx: Arc::clone(own) }))
    }

    fn end(own: JfcOwn) -> Result<(), Box<Kept<Self>>> {
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
    }

    fn register(own: &Ctx, number: u32, slot: Slot<Self>) {
        own.names().jfcs.insert(number, slot);
    }
}

family::operations! {
    kind::Jfc, urma_jfc_t, urma_jfc_cfg_t:
    alloc_jfc, set_jfc_opt, get_jfc_opt, active_jfc, deactive_jfc, free_jfc
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
    delete::<kind::Jfc>(jfc, kind::Jfc::end)
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
        let mut answer = Ok(());
        for index in 0..usize::try_from(jfc_cnt).map_err(|_| Code::EINVAL)? {
            // SAFETY: both arrays have `jfc_cnt` elements.
            let (jfc, count) = (unsafe { list.add(index) }, unsafe { counts.add(index) });
            // SAFETY: as above.
            let (jfc, count) = (unsafe { jfc.read() }, unsafe { count.read() });
            if !jfc.is_null() && count != 0 {
                // One that is wrong does not keep the events of the others.
                let one = acknowledge(jfc, count);
                answer = answer.and(one);
            }
        }
        answer
    });
}

fn acknowledge(jfc: *mut urma_jfc_t, count: u32) -> Answer {
    let slot = ours::<kind::Jfc>(jfc)?;
    let own = slot.lock().ok_or(Code::EINVAL)?;
    own.core.ack_events(count)?;
    // SAFETY: the public part of a live object, whose lock is held.
    let acked = unsafe { &mut (*slot.public()).comp_events_acked };
    *acked = acked.wrapping_add(count);
    Ok(())
}
