//! Jetties and jetty groups.
//!
//! *Owns*: urma-core's group. *Gives*: what a jetty is made from, its attributes, its flushed requests;
//! `urma_jetty_grp_t`, whose member list is public and kept by the face. Binding is in `target`.

use core::ffi::c_int;
use std::sync::Arc;

use urma_core::{GroupCfg, HintPolicy, Jetty, JettyCfg, JettyRecv, JettyState};

use crate::{
    abi::*,
    call::{self, Answer, Code, gone, ours, refuse},
    convert::{self, Opt, zeroed},
    slab::{Held, Slot},
    udma::{
        context::{ctx_of, delete, publish, shared},
        event_queue::EventSubject,
        family::{self, Family, Members, end_core},
        jfs,
        kind::{self, Ctx, GroupOwn, JettyMore, JettyOwn, LastNames},
    },
};

/// The JFR that a jetty receives through; `None`: its own.
pub(crate) fn shared_jfr(cfg: &urma_jetty_cfg_t) -> Option<*mut urma_jfr_t> {
    match cfg.receive() {
        Receive::Shared(shared) => Some(shared.jfr),
        Receive::Own(_) => None,
    }
}

impl Family for kind::Jetty {
    type Core = Jetty;
    type More = JettyMore;
    type Cfg = urma_jetty_cfg_t;
    type Attr = urma_jetty_attr_t;
    const OPTIONS: &'static [&'static [Opt]] = convert::JETTY;
    const MEMBERS: Members<urma_jetty_t, urma_jetty_cfg_t> =
        family::members!(urma_jetty_t, jetty_id, jetty_cfg, urma_jetty_opt.jfs_opt, urma_jfs_id);

    fn wanted_id(cfg: &Self::Cfg) -> u32 {
        cfg.id
    }

    /// Receives complete where the JFR's do, unless the program names another JFC.
    fn complete(cfg: &mut Self::Cfg) {
        if let Receive::Shared(shared) = cfg.receive()
            && shared.jfc.is_null()
            && let Ok(of) = ours::<kind::Jfr>(shared.jfr)
        {
            let jfc = of.shown().jfr_cfg.jfc;
            cfg.u.shared = urma_jetty_cfg_u_shared { jfc, ..shared };
        }
    }

    fn make(own: &Arc<Ctx>, cfg: &Self::Cfg) -> Answer<(Jetty, JettyMore)> {
        let group = if cfg.jetty_grp.is_null() {
            None
        } else {
            Some(shared::<kind::Group, _>(cfg.jetty_grp)?)
        };
        let core = create(own, cfg, group.as_deref())?;
        let last = LastNames::NONE;
        Ok((core, JettyMore { last, _group: group }))
    }

    fn modify(own: &mut JettyOwn, attr: &urma_jetty_attr_t) -> Answer {
        if attr.mask & (JETTY_RX_THRESHOLD | JETTY_STATE) == 0 {
            return Err(refuse!(
                EINVAL,
                "attr->mask is {:#x}; JETTY_RX_THRESHOLD (1) and JETTY_STATE (2) are bits of it",
                attr.mask
            ));
        }
        if attr.mask & JETTY_RX_THRESHOLD != 0 {
            own.core.set_rx_threshold(attr.rx_threshold)?;
        }
        if attr.mask & JETTY_STATE != 0 {
            let state = convert::state(attr.state)?;
            jfs::may_become(own.core.query()?.state, state)?;
            own.core.modify(state)?;
        }
        Ok(())
    }

    fn query(own: &JettyOwn) -> Answer<urma_jetty_attr_t> {
        let status = own.core.query()?;
        let (rx_threshold, state) = (status.rx_threshold, status.state as u32);
        Ok(urma_jetty_attr_t { mask: 0, rx_threshold, state })
    }
}

/// Why a jetty is refused whose parts were found and then not held.
fn in_use(what: &str) -> Code {
    refuse!(EINVAL, "{what} is being deleted, or belongs to another context")
}

fn create(own: &Ctx, cfg: &urma_jetty_cfg_t, group: Option<&GroupOwn>) -> Answer<Jetty> {
    let send_jfc = ours::<kind::Jfc>(cfg.jfs_cfg.jfc)?;
    let (jfr, own_cfg, recv_jfc) = match cfg.receive() {
        Receive::Shared(shared) => (Some(ours::<kind::Jfr>(shared.jfr)?), None, shared.jfc),
        Receive::Own(jfr_cfg) => {
            // SAFETY: the configuration that the caller's names (room card of `face`).
            let jfr_cfg = unsafe { call::value(jfr_cfg) }?;
            (None, Some(convert::jfr(&jfr_cfg)?), jfr_cfg.jfc)
        }
    };
    let recv_jfc = (!recv_jfc.is_null()).then(|| ours::<kind::Jfc>(recv_jfc)).transpose()?;
    let slots = [Some(send_jfc.into()), jfr.map(Slot::into), recv_jfc.map(Slot::into)];
    let held = Held::take(slots).ok_or_else(|| in_use("a JFC or the JFR"))?;
    let jfc = recv_jfc.and_then(|jfc| held.own(jfc)).map(|own| &own.core);
    let recv = match (jfr, own_cfg) {
        (Some(jfr), _) => {
            JettyRecv::Shared { jfr: &held.own(jfr).ok_or_else(|| in_use("the JFR"))?.core, jfc }
        }
        (None, Some(cfg)) => {
            JettyRecv::Own { cfg, jfc: jfc.ok_or_else(|| in_use("the JFC of the receives"))? }
        }
        (None, None) => return Err(in_use("the JFR")),
    };
    let send_jfc = &held.own(send_jfc).ok_or_else(|| in_use("jfs_cfg.jfc"))?.core;
    let send = convert::jfs(&cfg.jfs_cfg)?;
    let (group, user_ctx) = (group.map(|group| &group.core), cfg.user_ctx);
    let cfg = JettyCfg { id: cfg.id, send, send_jfc, recv, group, user_ctx };
    Ok(own.core.create_jetty(&cfg)?)
}

pub(crate) unsafe extern "C" fn flush_jetty(
    jetty: *mut urma_jetty_t,
    cr_cnt: c_int,
    cr: *mut urma_cr_t,
) -> c_int {
    call::negative(|| {
        let mut own = ours::<kind::Jetty>(jetty)?.lock().ok_or_else(gone::<kind::Jetty>)?;
        if own.core.query()?.state != JettyState::Error {
            // Its requests go on: there is nothing to take.
            return Ok(0);
        }
        // SAFETY: an array of the caller's of `cr_cnt` records (room card of `face`).
        unsafe { jfs::flush(cr_cnt, cr, |out| Ok(own.core.flush(out)?)) }
    })
}

pub(crate) unsafe extern "C" fn create_jetty_grp(
    ctx: *mut urma_context_t,
    cfg: *mut urma_jetty_grp_cfg_t,
) -> *mut urma_jetty_grp_t {
    call::pointer(|| {
        let own = ctx_of(ctx)?;
        // SAFETY: a configuration of the caller's (room card of `face`).
        let cfg = unsafe { call::value(cfg) }?;
        let policy = match cfg.policy {
            0 => HintPolicy::RoundRobin,
            1 => HintPolicy::HashHint,
            other => {
                return Err(refuse!(
                    EINVAL,
                    "cfg.policy is {other}; 0 (RR) and 1 (HASH_HINT) are known"
                ));
            }
        };
        let token = convert::policy(cfg.flag.token_policy(), cfg.token_value)?;
        let core = own.core.create_group(&GroupCfg { id: cfg.id, policy, token })?;
        let id = core.id();
        let mut public: urma_jetty_grp_t = zeroed();
        public.urma_ctx = ctx;
        public.jetty_grp_id = convert::jetty_id_out(id);
        public.cfg = cfg;
        public.handle = u64::from(id.id);
        let group = GroupOwn { core, ctx: Arc::clone(&own) };
        let slot = publish::<kind::Group>(&own, public, Arc::new(group))?;
        own.events.name(EventSubject::Group(id.id), slot.public());
        Ok(slot.public())
    })
}

pub(crate) unsafe extern "C" fn delete_jetty_grp(group: *mut urma_jetty_grp_t) -> urma_status_t {
    call::status(|| {
        delete::<kind::Group>(group, |own| {
            let GroupOwn { core, ctx } = Arc::try_unwrap(own).map_err(|own| {
                let code = refuse!(ENOPERM, "jetties are members of the group; delete them first");
                Box::new((own, code))
            })?;
            end_core(core, &ctx).map_err(|(core, code)| {
                Box::new((Arc::new(GroupOwn { core, ctx: Arc::clone(&ctx) }), code))
            })
        })
    })
}
