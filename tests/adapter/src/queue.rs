//! JFS, JFR, jetties and groups.
//!
//! *Owns*: the life of queues. *Gives*: their parts. *Must not*: post.
#![expect(unsafe_code, reason = "calls of C functions, and public members")]

use core::ffi::c_int;
use std::sync::Arc;

use liburma::{
    abi::{
        JETTY_RX_THRESHOLD, JETTY_STATE, JFR_RX_THRESHOLD, JFR_STATE, JFS_STATE, urma_jetty_attr_t,
        urma_jetty_cfg_t, urma_jetty_cfg_u, urma_jetty_cfg_u_shared, urma_jetty_grp_cfg_t,
        urma_jetty_t, urma_jfc_t, urma_jfr_attr_t, urma_jfr_cfg_t, urma_jfr_t, urma_jfs_attr_t,
        urma_jfs_cfg_t, urma_jfs_t,
    },
    face::{
        jetty::{urma_create_jetty_grp, urma_delete_jetty_grp},
        queue::{
            urma_create_jetty, urma_create_jfr, urma_create_jfs, urma_delete_jetty,
            urma_delete_jfr, urma_delete_jfs, urma_flush_jetty, urma_flush_jfs, urma_modify_jetty,
            urma_modify_jfr, urma_modify_jfs, urma_query_jetty, urma_query_jfr, urma_query_jfs,
        },
        target::{urma_bind_jetty, urma_unbind_jetty},
    },
    zeroed,
};
use urma_core::{
    Completion, JettyState, QueueCfg, QueueKind, QueueStatus, RecvCfg, SendCfg, SendFlags,
    StartPsns, Status, TargetId, Token,
    ops::{HintPolicy, QueueControl, QueueParts, RecvQueue, SendQueue},
};
use urma_mem::sync::{AtomicBool, Ordering};

use crate::{
    jfc,
    post::{Recv, Send, Sender},
    shared::Shared,
    value::{self, Ptr, done},
};

#[derive(Clone, Copy, Debug)]
enum Which {
    Jfs(Ptr<urma_jfs_t>),
    Jfr(Ptr<urma_jfr_t>),
    /// With the JFR that belongs to this queue alone, if it has one.
    Jetty(Ptr<urma_jetty_t>, Option<Ptr<urma_jfr_t>>),
}

#[derive(Debug)]
struct Control {
    which: Which,
    number: u32,
    is_live: AtomicBool,
    shared: Arc<Shared>,
}

pub(crate) fn create(shared: &Arc<Shared>, cfg: &QueueCfg) -> Result<QueueParts, Status> {
    let (which, number) = match cfg.kind {
        QueueKind::Jfs => create_jfs(shared, cfg)?,
        QueueKind::Jfr => {
            let (ptr, number) = create_jfr(shared, cfg, cfg.id)?;
            (Which::Jfr(ptr), number)
        }
        QueueKind::Jetty => create_jetty(shared, cfg)?,
    };
    let send = |to| -> Box<dyn SendQueue> { Box::new(Send { to, shared: Arc::clone(shared) }) };
    let recv = |to| -> Box<dyn RecvQueue> { Box::new(Recv { to, shared: Arc::clone(shared) }) };
    let (send, recv) = match which {
        Which::Jfs(jfs) => (Some(send(Sender::Jfs(jfs))), None),
        Which::Jfr(jfr) => (None, Some(recv(jfr))),
        Which::Jetty(jetty, own) => (Some(send(Sender::Jetty(jetty))), own.map(recv)),
    };
    let is_live = AtomicBool::new(true);
    let control = Control { which, number, is_live, shared: Arc::clone(shared) };
    Ok(QueueParts { id: number, control: Arc::new(control), send, recv })
}

fn jfc_of(shared: &Shared, number: u32) -> Result<*mut urma_jfc_t, Status> {
    Ok(shared.names().jfcs.get(&number).ok_or(Status::Invalid)?.0)
}

fn send_cfg(shared: &Shared, cfg: &QueueCfg, send: &SendCfg) -> Result<urma_jfs_cfg_t, Status> {
    let mut to: urma_jfs_cfg_t = zeroed();
    (to.depth, to.trans_mode, to.priority) = (send.depth, cfg.mode as u32, send.priority);
    to.flag.set_order_type(cfg.order as u32);
    to.flag.set_error_suspend(send.flags.contains(SendFlags::ERROR_SUSPEND).into());
    to.flag.set_outorder_comp(send.flags.contains(SendFlags::OUTORDER_COMP).into());
    (to.max_sge, to.max_rsge, to.max_inline_data) = (send.max_sge, send.max_rsge, send.max_inline);
    (to.rnr_retry, to.err_timeout) = (send.rnr_retry, send.err_timeout);
    (to.jfc, to.user_ctx) = (jfc_of(shared, send.jfc)?, cfg.user_ctx);
    Ok(to)
}

fn create_jfs(shared: &Shared, cfg: &QueueCfg) -> Result<(Which, u32), Status> {
    let send = cfg.send.as_ref().ok_or(Status::Invalid)?;
    let mut to = send_cfg(shared, cfg, send)?;
    // SAFETY: a live context, and a configuration that lives until the call returns.
    let ptr = Ptr::made(unsafe { urma_create_jfs(shared.ctx.0, &raw mut to) })?;
    // SAFETY: a public member of a new object.
    Ok((Which::Jfs(ptr), unsafe { (*ptr.0).jfs_id.id }))
}

fn create_jfr(shared: &Shared, cfg: &QueueCfg, id: u32) -> Result<(Ptr<urma_jfr_t>, u32), Status> {
    let recv: &RecvCfg = cfg.recv.as_ref().ok_or(Status::Invalid)?;
    let mut to: urma_jfr_cfg_t = zeroed();
    (to.id, to.depth, to.trans_mode) = (id, recv.depth, cfg.mode as u32);
    let (policy, token) = value::token(cfg.token);
    to.flag.set_token_policy(policy);
    to.flag.set_order_type(cfg.order as u32);
    to.token_value = token;
    (to.max_sge, to.min_rnr_timer) = (recv.max_sge, recv.min_rnr_timer);
    (to.jfc, to.user_ctx) = (jfc_of(shared, recv.jfc)?, cfg.user_ctx);
    // SAFETY: a live context, and a configuration that lives until the call returns.
    let ptr = Ptr::made(unsafe { urma_create_jfr(shared.ctx.0, &raw mut to) })?;
    // SAFETY: a public member of a new object.
    let number = unsafe { (*ptr.0).jfr_id.id };
    shared.names().jfrs.insert(number, ptr);
    Ok((ptr, number))
}

fn create_jetty(shared: &Shared, cfg: &QueueCfg) -> Result<(Which, u32), Status> {
    let send = cfg.send.as_ref().ok_or(Status::Invalid)?;
    let mut to: urma_jetty_cfg_t = zeroed();
    (to.id, to.user_ctx) = (cfg.id, cfg.user_ctx);
    to.jfs_cfg = send_cfg(shared, cfg, send)?;
    to.flag.set_share_jfr(1);
    if let Some(group) = cfg.group {
        to.jetty_grp = shared.names().groups.get(&group).ok_or(Status::Invalid)?.0;
    }
    let own = match cfg.shared {
        Some(_) => None,
        None => Some(create_jfr(shared, cfg, 0)?),
    };
    let (jfr, jfc) = match (own, cfg.shared) {
        (Some((jfr, _)), _) => (jfr, core::ptr::null_mut()),
        (None, Some(recv)) => {
            let jfr = shared.names().jfrs.get(&recv.jfr).copied();
            (jfr.ok_or(Status::Invalid)?, jfc_of(shared, recv.jfc)?)
        }
        (None, None) => return Err(Status::Invalid),
    };
    to.u = urma_jetty_cfg_u { shared: urma_jetty_cfg_u_shared { jfr: jfr.0, jfc } };
    // SAFETY: a live context, and a configuration that lives until the call returns.
    let made = Ptr::made(unsafe { urma_create_jetty(shared.ctx.0, &raw mut to) });
    let jetty = made.inspect_err(|_| {
        if let Some((jfr, number)) = own {
            delete_jfr(shared, jfr, number).unwrap_or_else(not_deleted);
        }
    })?;
    // SAFETY: a public member of a new object.
    let number = unsafe { (*jetty.0).jetty_id.id };
    if let Some((_, jfr)) = own {
        shared.names().own_jfrs.insert(jfr, number);
    }
    Ok((Which::Jetty(jetty, own.map(|(jfr, _)| jfr)), number))
}

fn delete_jfr(shared: &Shared, jfr: Ptr<urma_jfr_t>, number: u32) -> Result<(), Status> {
    // The number may be another queue's as soon as this one is gone.
    let mut names = shared.names();
    // SAFETY: a queue that the library checks.
    done(unsafe { urma_delete_jfr(jfr.0) })?;
    names.jfrs.remove(&number);
    names.own_jfrs.remove(&number);
    Ok(())
}

fn not_deleted(status: Status) {
    tracing::warn!(target: "urma", %status, "queue not deleted");
}

/// A state of a JFR, which is never suspended.
fn jfr_state(state: JettyState) -> Result<u32, Status> {
    match state {
        JettyState::Reset => Ok(0),
        JettyState::Ready => Ok(1),
        JettyState::Error => Ok(2),
        JettyState::Suspended => Err(Status::Invalid),
    }
}

fn modify_jfr(jfr: Ptr<urma_jfr_t>, mut attr: urma_jfr_attr_t) -> Result<(), Status> {
    // SAFETY: a queue that the library checks, and attributes.
    done(unsafe { urma_modify_jfr(jfr.0, &raw mut attr) })
}

impl QueueControl for Control {
    fn modify(&self, state: JettyState) -> Result<(), Status> {
        match self.which {
            Which::Jfs(jfs) => {
                let mut attr = urma_jfs_attr_t { mask: JFS_STATE, state: state as u32 };
                // SAFETY: a queue that the library checks, and attributes.
                done(unsafe { urma_modify_jfs(jfs.0, &raw mut attr) })
            }
            Which::Jfr(jfr) => {
                /// No state of a JFR: C refuses it.
                const NONE: u32 = 3;
                let state = jfr_state(state).unwrap_or(NONE);
                modify_jfr(jfr, urma_jfr_attr_t { mask: JFR_STATE, rx_threshold: 0, state })
            }
            Which::Jetty(jetty, own) => {
                let (mask, of_jetty) = (JETTY_STATE, state as u32);
                let mut attr = urma_jetty_attr_t { mask, rx_threshold: 0, state: of_jetty };
                // SAFETY: a jetty that the library checks, and attributes.
                done(unsafe { urma_modify_jetty(jetty.0, &raw mut attr) })?;
                match (own, jfr_state(state)) {
                    (Some(jfr), Ok(state)) => {
                        modify_jfr(jfr, urma_jfr_attr_t { mask: JFR_STATE, rx_threshold: 0, state })
                    }
                    _ => Ok(()),
                }
            }
        }
    }

    fn set_rx_threshold(&self, threshold: u32) -> Result<(), Status> {
        match self.which {
            Which::Jfr(jfr) | Which::Jetty(_, Some(jfr)) => {
                let mask = JFR_RX_THRESHOLD;
                modify_jfr(jfr, urma_jfr_attr_t { mask, rx_threshold: threshold, state: 0 })
            }
            Which::Jetty(jetty, None) => {
                let (mask, state) = (JETTY_RX_THRESHOLD, 0);
                let mut attr = urma_jetty_attr_t { mask, rx_threshold: threshold, state };
                // SAFETY: a jetty that the library checks, and attributes.
                done(unsafe { urma_modify_jetty(jetty.0, &raw mut attr) })
            }
            Which::Jfs(_) => Err(Status::Invalid),
        }
    }

    /// C does not tell how full a queue is.
    fn query(&self) -> Result<QueueStatus, Status> {
        let (state, rx_threshold) = match self.which {
            Which::Jfs(jfs) => {
                let mut cfg = zeroed();
                let mut attr = urma_jfs_attr_t { mask: 0, state: 0 };
                // SAFETY: a queue that the library checks, and places for one.
                done(unsafe { urma_query_jfs(jfs.0, &raw mut cfg, &raw mut attr) })?;
                (attr.state, 0)
            }
            Which::Jfr(jfr) => {
                let attr = query_jfr(jfr)?;
                // The numbers of a JFR leave out the suspended state.
                (if attr.state == 2 { 3 } else { attr.state }, attr.rx_threshold)
            }
            Which::Jetty(jetty, own) => {
                let mut cfg = zeroed();
                let mut attr = urma_jetty_attr_t { mask: 0, rx_threshold: 0, state: 0 };
                // SAFETY: a jetty that the library checks, and places for one.
                done(unsafe { urma_query_jetty(jetty.0, &raw mut cfg, &raw mut attr) })?;
                let of_jfr = own.map(query_jfr).transpose()?;
                (attr.state, of_jfr.map_or(attr.rx_threshold, |attr| attr.rx_threshold))
            }
        };
        let state = match state {
            0 => JettyState::Reset,
            1 => JettyState::Ready,
            2 => JettyState::Suspended,
            _ => JettyState::Error,
        };
        Ok(QueueStatus { state, rx_threshold, send_pending: 0, recv_pending: 0 })
    }

    fn bind(&self, target: &TargetId, _: Option<StartPsns>) -> Result<(), Status> {
        let Which::Jetty(jetty, _) = self.which else { return Err(Status::NoPermission) };
        let target = self.shared.paths().target(self.shared.ctx, target)?;
        // SAFETY: objects that the library checks.
        done(unsafe { urma_bind_jetty(jetty.0, target.0) })
    }

    fn unbind(&self) -> Result<(), Status> {
        let Which::Jetty(jetty, _) = self.which else { return Err(Status::Invalid) };
        // SAFETY: a jetty that the library checks.
        done(unsafe { urma_unbind_jetty(jetty.0) })
    }

    fn flush(&self, out: &mut [Completion]) -> Result<usize, Status> {
        // C flushes what is in the error state already.
        self.modify(JettyState::Error)
            .or_else(|status| if status == Status::Invalid { Ok(()) } else { Err(status) })?;
        let which = self.which;
        jfc::take(out, |room| {
            let count = c_int::try_from(room.len()).unwrap_or(0);
            match which {
                // SAFETY: a queue that the library checks, and an array of `count` records.
                Which::Jfs(jfs) => unsafe { urma_flush_jfs(jfs.0, count, room.as_mut_ptr()) },
                // SAFETY: the library checks the jetty; `room` has `count` records.
                Which::Jetty(jetty, _) => unsafe {
                    urma_flush_jetty(jetty.0, count, room.as_mut_ptr())
                },
                // C flushes what sends.
                Which::Jfr(_) => -Status::Unsupported.errno(),
            }
        })
    }

    fn delete(&self) -> Result<(), Status> {
        match self.which {
            // SAFETY: a queue that the library checks.
            Which::Jfs(jfs) => done(unsafe { urma_delete_jfs(jfs.0) })?,
            Which::Jfr(jfr) => delete_jfr(&self.shared, jfr, self.number)?,
            Which::Jetty(jetty, own) => {
                // C deletes no jetty that is bound.
                // SAFETY: the library checks the jetty and refuses one that is not live.
                let was_bound = done(unsafe { urma_unbind_jetty(jetty.0) });
                tracing::trace!(?was_bound, "a jetty is to be deleted");
                // SAFETY: the library checks the jetty and refuses one that is not live.
                done(unsafe { urma_delete_jetty(jetty.0) })?;
                if let Some(jfr) = own {
                    // SAFETY: a public member; memory of objects stays mapped.
                    let number = unsafe { (*jfr.0).jfr_id.id };
                    delete_jfr(&self.shared, jfr, number)?;
                }
            }
        }
        self.is_live.store(false, Ordering::Release);
        Ok(())
    }
}

fn query_jfr(jfr: Ptr<urma_jfr_t>) -> Result<urma_jfr_attr_t, Status> {
    let mut cfg = zeroed();
    let mut attr = urma_jfr_attr_t { mask: 0, rx_threshold: 0, state: 0 };
    // SAFETY: a queue that the library checks, and places for one.
    done(unsafe { urma_query_jfr(jfr.0, &raw mut cfg, &raw mut attr) })?;
    Ok(attr)
}

impl Drop for Control {
    fn drop(&mut self) {
        if self.is_live.load(Ordering::Acquire) {
            self.delete().unwrap_or_else(not_deleted);
        }
    }
}

pub(crate) fn create_group(
    shared: &Shared,
    id: u32,
    policy: HintPolicy,
    token: Option<Token>,
) -> Result<u32, Status> {
    let mut to: urma_jetty_grp_cfg_t = zeroed();
    let (token_policy, token) = value::token(token);
    to.flag.set_token_policy(token_policy);
    (to.token_value, to.id) = (token, id);
    to.policy = match policy {
        HintPolicy::RoundRobin => 0,
        HintPolicy::HashHint => 1,
    };
    // SAFETY: a live context, and a configuration that lives until the call returns.
    let ptr = Ptr::made(unsafe { urma_create_jetty_grp(shared.ctx.0, &raw mut to) })?;
    // SAFETY: a public member of a new object.
    let number = unsafe { (*ptr.0).jetty_grp_id.id };
    shared.names().groups.insert(number, ptr);
    Ok(number)
}

pub(crate) fn delete_group(shared: &Shared, id: u32) -> Result<(), Status> {
    // The number may be another group's as soon as this one is gone.
    let mut names = shared.names();
    let ptr = *names.groups.get(&id).ok_or(Status::Invalid)?;
    // SAFETY: a group that the library checks.
    done(unsafe { urma_delete_jetty_grp(ptr.0) })?;
    names.groups.remove(&id);
    Ok(())
}
