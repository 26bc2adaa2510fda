//! Jetties.
//!
//! *Owns*: urma-core's jetty. *Gives*: `urma_jetty_t`. Binding is in `target`.
#![expect(unsafe_code, reason = "C entry points")]

use core::ffi::c_int;
use std::sync::Arc;

use urma_core::{Jetty, JettyCfg, JettyId, JettyRecv, JettyState};

use crate::{
    abi::{
        JETTY_RX_THRESHOLD, JETTY_STATE, urma_context_t, urma_cr_t, urma_jetty_attr_t,
        urma_jetty_cfg_t, urma_jetty_cfg_u_shared, urma_jetty_t, urma_jfc_t, urma_jfr_cfg_t,
        urma_jfr_t, urma_status_t,
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
        group::{GroupOwn, group_of},
        jfs, kind,
    },
};

/// What lies behind a jetty.
pub(crate) struct JettyOwn {
    pub(crate) core: Jetty,
    /// Bytes of a SEND to the bound target at most.
    pub(crate) send_max: u32,
    ctx: Arc<Ctx>,
    _group: Option<Arc<GroupOwn>>,
}

/// How a jetty receives, as C says it.
#[derive(Clone, Copy)]
enum Receive {
    Shared { jfr: *mut urma_jfr_t, jfc: *mut urma_jfc_t },
    Own(*mut urma_jfr_cfg_t),
}

/// The member of the union that the flag names.
fn receive(cfg: &urma_jetty_cfg_t) -> Receive {
    if cfg.flag.share_jfr() == 0 {
        // SAFETY: both members are pointers, and any bytes are a pointer.
        return Receive::Own(unsafe { cfg.u.jfr_cfg });
    }
    // SAFETY: as above.
    let shared = unsafe { cfg.u.shared };
    Receive::Shared { jfr: shared.jfr, jfc: shared.jfc }
}

/// The JFR that a jetty receives through; `None`: its own.
pub(crate) fn shared_jfr(cfg: &urma_jetty_cfg_t) -> Option<*mut urma_jfr_t> {
    match receive(cfg) {
        Receive::Shared { jfr, .. } => Some(jfr),
        Receive::Own(_) => None,
    }
}

pub(crate) unsafe extern "C" fn create_jetty(
    ctx: *mut urma_context_t,
    cfg: *mut urma_jetty_cfg_t,
) -> *mut urma_jetty_t {
    // SAFETY: the caller's configuration.
    call::pointer(|| unsafe { family::create::<kind::Jetty>(ctx, cfg) })
}

impl Family for kind::Jetty {
    type Cfg = urma_jetty_cfg_t;
    const OPTIONS: &'static [&'static [Opt]] = option::JETTY;

    fn members(public: *mut urma_jetty_t) -> Members<Self::Cfg> {
        family::members!(
            public,
            jetty_id,
            jetty_cfg,
            urma_jetty_opt.is_actived,
            urma_jetty_opt.jfs_opt.urma_jfs_id
        )
    }

    fn wanted_id(cfg: &Self::Cfg) -> u32 {
        cfg.id
    }

    /// Receives complete where the JFR's do, unless the program names another JFC.
    fn complete(cfg: &mut Self::Cfg) {
        if let Receive::Shared { jfr, jfc } = receive(cfg)
            && jfc.is_null()
            && let Ok(of) = ours::<kind::Jfr>(jfr)
        {
            // SAFETY: the public part of a live object.
            let jfc = unsafe { (*of.public()).jfr_cfg.jfc };
            cfg.u.shared = urma_jetty_cfg_u_shared { jfr, jfc };
        }
    }

    fn make(own: &Arc<Ctx>, cfg: &Self::Cfg) -> Answer<(JettyId, JettyOwn)> {
        let group = if cfg.jetty_grp.is_null() { None } else { Some(group_of(cfg.jetty_grp)?) };
        let core = match receive(cfg) {
            Receive::Shared { jfr, jfc } => create_shared(own, cfg, group.as_deref(), (jfr, jfc)),
            Receive::Own(jfr_cfg) => create_own(own, cfg, group.as_deref(), jfr_cfg),
        }?;
        Ok((core.id(), JettyOwn { core, send_max: u32::MAX, ctx: Arc::clone(own), _group: group }))
    }

    fn end(own: JettyOwn) -> Result<(), Box<Kept<Self>>> {
        let number = own.core.id().id;
        if let Err(code) = own.ctx.ensure_acked(About::Queue(number)) {
            return Err(Box::new((own, code)));
        }
        let JettyOwn { core, send_max, ctx, _group } = own;
        let name = ctx.names().queues.remove(&number);
        core.delete().map_err(|refused| {
            name.map(|name| ctx.names().queues.insert(number, name));
            let own = JettyOwn { core: *refused.object, send_max, ctx: Arc::clone(&ctx), _group };
            Box::new((own, refused.status.into()))
        })
    }

    fn register(own: &Ctx, number: u32, slot: Slot<Self>) {
        own.names().queues.insert(number, Queue::Jetty(slot));
    }
}

family::operations! {
    kind::Jetty, urma_jetty_t, urma_jetty_cfg_t:
    alloc_jetty, set_jetty_opt, get_jetty_opt, active_jetty, deactive_jetty, free_jetty
}

fn create_shared(
    own: &Ctx,
    cfg: &urma_jetty_cfg_t,
    group: Option<&GroupOwn>,
    (jfr, recv_jfc): (*mut urma_jfr_t, *mut urma_jfc_t),
) -> Answer<Jetty> {
    let jfr = ours::<kind::Jfr>(jfr)?;
    let send_jfc = ours::<kind::Jfc>(cfg.jfs_cfg.jfc)?;
    let recv_jfc = if recv_jfc.is_null() { None } else { Some(ours::<kind::Jfc>(recv_jfc)?) };
    let held = Held::take([Some(jfr.into()), Some(send_jfc.into()), recv_jfc.map(Slot::into)])
        .ok_or(Code::EINVAL)?;
    let jfc = recv_jfc.and_then(|jfc| held.own(jfc)).map(|own| &own.core);
    let recv = JettyRecv::Shared { jfr: &held.own(jfr).ok_or(Code::EINVAL)?.core, jfc };
    let send_jfc = &held.own(send_jfc).ok_or(Code::EINVAL)?.core;
    let send = queue::jfs(&cfg.jfs_cfg)?;
    let (group, user_ctx) = (group.map(|group| &group.core), cfg.user_ctx);
    let cfg = JettyCfg { id: cfg.id, send, send_jfc, recv, group, user_ctx };
    Ok(own.core.create_jetty(&cfg)?)
}

fn create_own(
    own: &Ctx,
    cfg: &urma_jetty_cfg_t,
    group: Option<&GroupOwn>,
    jfr_cfg: *mut urma_jfr_cfg_t,
) -> Answer<Jetty> {
    // SAFETY: the caller's configuration.
    let jfr_cfg = unsafe { call::value(jfr_cfg) }?;
    let send_jfc = ours::<kind::Jfc>(cfg.jfs_cfg.jfc)?;
    let recv_jfc = ours::<kind::Jfc>(jfr_cfg.jfc)?;
    let held = Held::take([Some(send_jfc.into()), Some(recv_jfc.into())]).ok_or(Code::EINVAL)?;
    let jfc = &held.own(recv_jfc).ok_or(Code::EINVAL)?.core;
    let recv = JettyRecv::Own { cfg: queue::jfr(&jfr_cfg)?, jfc };
    let send_jfc = &held.own(send_jfc).ok_or(Code::EINVAL)?.core;
    let send = queue::jfs(&cfg.jfs_cfg)?;
    let (group, user_ctx) = (group.map(|group| &group.core), cfg.user_ctx);
    let cfg = JettyCfg { id: cfg.id, send, send_jfc, recv, group, user_ctx };
    Ok(own.core.create_jetty(&cfg)?)
}

pub(crate) unsafe extern "C" fn modify_jetty(
    jetty: *mut urma_jetty_t,
    attr: *mut urma_jetty_attr_t,
) -> urma_status_t {
    call::status(|| {
        // SAFETY: the caller's attributes.
        let attr = unsafe { call::value(attr) }?;
        if attr.mask & (JETTY_RX_THRESHOLD | JETTY_STATE) == 0 {
            return Err(Code::EINVAL);
        }
        let own = ours::<kind::Jetty>(jetty)?.lock().ok_or(Code::EINVAL)?;
        if attr.mask & JETTY_RX_THRESHOLD != 0 {
            own.core.set_rx_threshold(attr.rx_threshold)?;
        }
        if attr.mask & JETTY_STATE != 0 {
            let state = name::state(attr.state)?;
            jfs::may_become(own.core.query()?.state, state)?;
            own.core.modify(state)?;
        }
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn query_jetty(
    jetty: *mut urma_jetty_t,
    cfg: *mut urma_jetty_cfg_t,
    attr: *mut urma_jetty_attr_t,
) -> urma_status_t {
    call::status(|| {
        let (cfg, attr) = (call::place(cfg)?, call::place(attr)?);
        let slot = ours::<kind::Jetty>(jetty)?;
        let status = slot.lock().ok_or(Code::EINVAL)?.core.query()?;
        let (rx_threshold, state) = (status.rx_threshold, status.state as u32);
        // SAFETY: the public part of a live object.
        let of = unsafe { (*slot.public()).jetty_cfg };
        // SAFETY: a place of the caller's for one.
        unsafe { cfg.write(of) };
        // SAFETY: as above.
        unsafe { attr.write(urma_jetty_attr_t { mask: 0, rx_threshold, state }) };
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn flush_jetty(
    jetty: *mut urma_jetty_t,
    cr_cnt: c_int,
    cr: *mut urma_cr_t,
) -> c_int {
    call::negative(|| {
        let mut own = ours::<kind::Jetty>(jetty)?.lock().ok_or(Code::EINVAL)?;
        if own.core.query()?.state != JettyState::Error {
            // Its requests go on: there is nothing to take.
            return Ok(0);
        }
        // SAFETY: the caller's array of `cr_cnt` records.
        unsafe { jfs::flush(cr_cnt, cr, |out| Ok(own.core.flush(out)?)) }
    })
}

pub(crate) unsafe extern "C" fn delete_jetty(jetty: *mut urma_jetty_t) -> urma_status_t {
    call::status(|| end(jetty))
}

fn end(jetty: *mut urma_jetty_t) -> Answer {
    delete::<kind::Jetty>(jetty, kind::Jetty::end)
}

pub(crate) unsafe extern "C" fn delete_jetty_batch(
    list: *mut *mut urma_jetty_t,
    count: c_int,
    bad: *mut *mut urma_jetty_t,
) -> urma_status_t {
    // SAFETY: the caller's array and place.
    call::status(|| unsafe { delete_each(list, count, bad, end) })
}
