//! Jetty groups.
//!
//! *Owns*: urma-core's group. *Gives*: `urma_jetty_grp_t`; its member list is public, and kept here.

use std::sync::Arc;

use urma_core::{GroupCfg, HintPolicy};

use crate::{
    abi::*,
    call::{self, refuse},
    convert::{name, zeroed},
    udma::{
        context::{ctx_of, delete, publish},
        event_queue::EventSubject,
        family::end_core,
        kind::{self, GroupOwn},
    },
};

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
        let token = name::policy(cfg.flag.token_policy(), cfg.token_value)?;
        let core = own.core.create_group(&GroupCfg { id: cfg.id, policy, token })?;
        let id = core.id();
        let mut public: urma_jetty_grp_t = zeroed();
        public.urma_ctx = ctx;
        public.jetty_grp_id = name::jetty_id_out(id);
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
