//! Jetty groups.
//!
//! *Owns*: urma-core's group. *Gives*: `urma_jetty_grp_t`; its member list is public, and kept here.

use std::sync::Arc;

use urma_core::{GroupCfg, HintPolicy};

use crate::{
    abi::*,
    call::{self, Answer, Code, ours},
    convert::{name, zeroed},
    slab::Fresh,
    udma::{
        context::{ctx_of, delete},
        event_queue::EventSubject,
        kind::{self, GroupOwn},
    },
};

/// What lies behind a group of this provider.
///
/// # Errors
/// EINVAL: it is none.
pub(crate) fn group_of(group: *const urma_jetty_grp_t) -> Answer<Arc<GroupOwn>> {
    let slot = ours::<kind::Group>(group)?;
    let guard = slot.lock().ok_or(Code::EINVAL)?;
    Ok(Arc::clone(&guard))
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
            _ => return Err(Code::EINVAL),
        };
        let token = name::policy(cfg.flag.token_policy(), cfg.token_value)?;
        let core = own.core.create_group(&GroupCfg { id: cfg.id, policy, token })?;
        let id = core.id();
        let mut public: urma_jetty_grp_t = zeroed();
        public.urma_ctx = ctx;
        public.jetty_grp_id = name::jetty_id_out(id);
        public.cfg = cfg;
        public.handle = u64::from(id.id);
        let fresh = Fresh::<kind::Group>::take().ok_or(Code::ENOMEM)?;
        let group = GroupOwn { core, ctx: Arc::clone(&own) };
        let slot = fresh.publish(own.owner, public, Arc::new(group));
        own.events.name(EventSubject::Group(id.id), slot.public());
        Ok(slot.public())
    })
}

pub(crate) unsafe extern "C" fn delete_jetty_grp(group: *mut urma_jetty_grp_t) -> urma_status_t {
    call::status(|| {
        delete::<kind::Group>(group, |own| {
            let GroupOwn { core, ctx } =
                Arc::try_unwrap(own).map_err(|own| Box::new((own, Code::ENOPERM)))?;
            let about = EventSubject::Group(core.id().id);
            let name = ctx.events.forget::<urma_jetty_grp_t>(about);
            core.delete().map_err(|refused| {
                if let Some(name) = name {
                    ctx.events.name(about, name);
                }
                let own = GroupOwn { core: *refused.object, ctx: Arc::clone(&ctx) };
                Box::new((Arc::new(own), refused.status.into()))
            })
        })
    })
}
