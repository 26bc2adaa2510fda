//! JFS: send queues.
//!
//! *Owns*: urma-core's JFS. *Gives*: `urma_jfs_t`.
#![expect(unsafe_code, reason = "C entry points")]

use core::ffi::c_int;
use std::sync::Arc;

use urma_core::{Completion, JettyId, JettyState, Jfs};

use crate::{
    abi::{
        JFS_STATE, urma_context_t, urma_cr_t, urma_jfs_attr_t, urma_jfs_cfg_t, urma_jfs_t,
        urma_status_t,
    },
    call::{self, Answer, Code, ours},
    convert::{
        completion::record,
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

/// What lies behind a send queue.
pub(crate) struct JfsOwn {
    pub(crate) core: Jfs,
    ctx: Arc<Ctx>,
}

pub(crate) unsafe extern "C" fn create_jfs(
    ctx: *mut urma_context_t,
    cfg: *mut urma_jfs_cfg_t,
) -> *mut urma_jfs_t {
    // SAFETY: the caller's configuration.
    call::pointer(|| unsafe { family::create::<kind::Jfs>(ctx, cfg) })
}

impl Family for kind::Jfs {
    type Cfg = urma_jfs_cfg_t;
    const OPTIONS: &'static [&'static [Opt]] = &[option::JFS];

    fn members(public: *mut urma_jfs_t) -> Members<Self::Cfg> {
        family::members!(public, jfs_id, jfs_cfg, urma_jfs_opt.is_actived, urma_jfs_opt.urma_jfs_id)
    }

    fn make(own: &Arc<Ctx>, cfg: &Self::Cfg) -> Answer<(JettyId, JfsOwn)> {
        let jfc = ours::<kind::Jfc>(cfg.jfc)?;
        let held = Held::take([Some(jfc.into())]).ok_or(Code::EINVAL)?;
        let jfc = &held.own(jfc).ok_or(Code::EINVAL)?.core;
        let core = own.core.create_jfs(&queue::jfs(cfg)?, jfc)?;
        Ok((core.id(), JfsOwn { core, ctx: Arc::clone(own) }))
    }

    fn end(own: JfsOwn) -> Result<(), Box<Kept<Self>>> {
        let number = own.core.id().id;
        if let Err(code) = own.ctx.ensure_acked(About::Queue(number)) {
            return Err(Box::new((own, code)));
        }
        let JfsOwn { core, ctx } = own;
        let name = ctx.names().queues.remove(&number);
        core.delete().map_err(|refused| {
            name.map(|name| ctx.names().queues.insert(number, name));
            let code = refused.status.into();
            Box::new((JfsOwn { core: *refused.object, ctx: Arc::clone(&ctx) }, code))
        })
    }

    fn register(own: &Ctx, number: u32, slot: Slot<Self>) {
        own.names().queues.insert(number, Queue::Jfs(slot));
    }
}

family::operations! {
    kind::Jfs, urma_jfs_t, urma_jfs_cfg_t:
    alloc_jfs, set_jfs_opt, get_jfs_opt, active_jfs, deactive_jfs, free_jfs
}

pub(crate) unsafe extern "C" fn modify_jfs(
    jfs: *mut urma_jfs_t,
    attr: *mut urma_jfs_attr_t,
) -> urma_status_t {
    call::status(|| {
        // SAFETY: the caller's attributes.
        let attr = unsafe { call::value(attr) }?;
        if attr.mask & JFS_STATE == 0 {
            return Err(Code::EINVAL);
        }
        let own = ours::<kind::Jfs>(jfs)?.lock().ok_or(Code::EINVAL)?;
        let state = name::state(attr.state)?;
        may_become(own.core.query()?.state, state)?;
        Ok(own.core.modify(state)?)
    })
}

/// A running queue is not reset, by way of ERROR only, as in the driver of UDMA hardware: programs ask
/// for it where they mean "disconnect", are refused, and go on with the running queue.
pub(super) fn may_become(is: JettyState, to: JettyState) -> Result<(), Code> {
    if (is, to) == (JettyState::Ready, JettyState::Reset) { Err(Code::EINVAL) } else { Ok(()) }
}

pub(crate) unsafe extern "C" fn query_jfs(
    jfs: *mut urma_jfs_t,
    cfg: *mut urma_jfs_cfg_t,
    attr: *mut urma_jfs_attr_t,
) -> urma_status_t {
    call::status(|| {
        let (cfg, attr) = (call::place(cfg)?, call::place(attr)?);
        let slot = ours::<kind::Jfs>(jfs)?;
        let status = slot.lock().ok_or(Code::EINVAL)?.core.query()?;
        // SAFETY: the public part of a live object.
        let of = unsafe { (*slot.public()).jfs_cfg };
        // SAFETY: a place of the caller's for one.
        unsafe { cfg.write(of) };
        // The original's mask of an answer is empty.
        // SAFETY: as above.
        unsafe { attr.write(urma_jfs_attr_t { mask: 0, state: status.state as u32 }) };
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn flush_jfs(
    jfs: *mut urma_jfs_t,
    cr_cnt: c_int,
    cr: *mut urma_cr_t,
) -> c_int {
    call::negative(|| {
        let mut own = ours::<kind::Jfs>(jfs)?.lock().ok_or(Code::EINVAL)?;
        if own.core.query()?.state != JettyState::Error {
            // Its requests go on: there is nothing to take.
            return Ok(0);
        }
        // SAFETY: the caller's array of `cr_cnt` records.
        unsafe { flush(cr_cnt, cr, |out| Ok(own.core.flush(out)?)) }
    })
}

/// Flushed completions of a queue into `cr_cnt` records of C.
///
/// # Errors
/// EINVAL: no place, or less than none. What flushing says.
///
/// # Safety
/// `cr`, unless NULL, has room for `cr_cnt` records.
pub(crate) unsafe fn flush(
    cr_cnt: c_int,
    cr: *mut urma_cr_t,
    flush: impl FnOnce(&mut [Completion]) -> Answer<usize>,
) -> Answer<c_int> {
    /// Records of one call at most; a larger count gets these first.
    const RECORDS_MAX: usize = 4096;
    let to = call::place(cr)?;
    let room = usize::try_from(cr_cnt).map_err(|_| Code::EINVAL)?.min(RECORDS_MAX);
    let mut out = vec![Completion::default(); room];
    let count = flush(&mut out)?;
    for (index, completion) in out.iter().take(count).enumerate() {
        // SAFETY: the caller's array has `cr_cnt` records, and index < room.
        let place = unsafe { to.add(index) };
        // SAFETY: as above.
        unsafe { place.write(record(completion)) };
    }
    c_int::try_from(count).map_err(|_| Code::FAIL)
}

pub(crate) unsafe extern "C" fn delete_jfs(jfs: *mut urma_jfs_t) -> urma_status_t {
    call::status(|| end(jfs))
}

fn end(jfs: *mut urma_jfs_t) -> Answer {
    delete::<kind::Jfs>(jfs, kind::Jfs::end)
}

pub(crate) unsafe extern "C" fn delete_jfs_batch(
    list: *mut *mut urma_jfs_t,
    count: c_int,
    bad: *mut *mut urma_jfs_t,
) -> urma_status_t {
    // SAFETY: the caller's array and place.
    call::status(|| unsafe { delete_each(list, count, bad, end) })
}
