//! JFR: a queue that only receives, alone or for jetties that share it.
//!
//! *Owns*: the handle, and the rule that a shared JFR outlives its jetties.

use std::sync::Arc;

use crate::{
    Context, JettyId, Jfc, JfrCfg, PostError, QueueCfg, QueueKind, RecvCfg, RecvWr, Refused,
    RemoteJetty, Status, TargetKind,
    body::{QueueBody, RecvHalf, control_methods, required, same_home},
    check::RecvRules,
    context::ContextShared,
    jfc::JfcShared,
    memory::MemoryHome,
    ops::{QueueParts, RecvQueue},
    rules::{self, unused},
};

impl JfrCfg {
    pub(crate) fn for_provider(&self, jfc: &Jfc) -> RecvCfg {
        RecvCfg {
            jfc: jfc.id(),
            depth: self.depth,
            max_sge: self.max_sge,
            min_rnr_timer: self.min_rnr_timer,
        }
    }
}

/// Jetty for receive: a receive queue. One poster at a time.
#[derive(Debug)]
pub struct Jfr {
    shared: Arc<JfrShared>,
    recv: RecvHalf,
}

/// What the jetties that receive through it hold on to.
#[derive(Debug)]
pub(crate) struct JfrShared {
    pub(crate) body: QueueBody,
    pub(crate) cfg: JfrCfg,
    pub(crate) jfc: Arc<JfcShared>,
}

control_methods!(Jfr);

impl Context {
    /// A receive queue that completes on `jfc`.
    ///
    /// # Errors
    /// `Invalid`: a value beyond the limits of the device, an order type that does not fit the
    /// mode, a JFC of another context. `Exists`: the requested id is in use. `Unsupported`: a mode
    /// or token policy that is not built.
    pub fn create_jfr(&self, cfg: &JfrCfg, jfc: &Jfc) -> Result<Jfr, Status> {
        let home = self.shared();
        same_home(home, &jfc.shared().home)?;
        rules::recv(&home.attr, cfg)?;
        let queue = QueueCfg {
            kind: QueueKind::Jfr,
            id: cfg.id,
            mode: cfg.mode,
            order: rules::order(cfg.mode, cfg.order)?,
            token: cfg.policy.token()?,
            send: None,
            recv: Some(cfg.for_provider(jfc)),
            shared: None,
            group: None,
            user_ctx: cfg.user_ctx,
        };
        let QueueParts { id, control, recv, .. } = home.ops.create_queue(&queue)?;
        let body = QueueBody::new(home, id, &queue, control);
        let recv = recv_half(home, cfg, recv)?;
        let jfc = Arc::clone(jfc.shared());
        Ok(Jfr { recv, shared: Arc::new(JfrShared { body, cfg: *cfg, jfc }) })
    }
}

pub(crate) fn recv_half(
    home: &Arc<ContextShared>,
    cfg: &JfrCfg,
    queue: Option<Box<dyn RecvQueue>>,
) -> Result<RecvHalf, Status> {
    let queue = required(queue, "receive half")?;
    Ok(RecvHalf { queue, rules: RecvRules::new(home.key(), cfg.max_sge) })
}

impl Jfr {
    /// Posts receives in order.
    ///
    /// # Errors
    /// The first request that was refused; those before it are posted, it and later ones are not.
    #[inline]
    pub fn post_recv(&mut self, wrs: &[RecvWr<'_>]) -> Result<(), PostError> {
        self.recv.post(wrs)
    }

    /// One limit event when fewer receives than `threshold` are left; 0 turns it off.
    ///
    /// # Errors
    /// `Invalid`: more than the depth.
    pub fn set_rx_threshold(&self, threshold: u32) -> Result<(), Status> {
        set_rx_threshold(&self.shared.body, threshold, self.shared.cfg.depth)
    }

    /// What a peer needs to send here, with the token.
    #[must_use]
    pub fn remote(&self) -> RemoteJetty {
        RemoteJetty::of(&self.shared.body, TargetKind::Jfr, self.shared.cfg.policy)
    }

    /// As it was created.
    #[must_use]
    pub fn cfg(&self) -> &JfrCfg {
        &self.shared.cfg
    }

    /// Deletes: every outstanding request gets its flushed completion first.
    ///
    /// # Errors
    /// `Again`: jetties receive through it.
    pub fn delete(self) -> Result<(), Refused<Self>> {
        match self.try_delete() {
            Ok(()) => Ok(()),
            Err(status) => Err(Refused::new(self, status)),
        }
    }

    fn try_delete(&self) -> Result<(), Status> {
        unused(&self.shared, Status::Again, "jetties receive through the JFR")?;
        self.shared.body.control.delete()
    }

    pub(crate) fn shared(&self) -> &Arc<JfrShared> {
        &self.shared
    }

    fn body(&self) -> &QueueBody {
        &self.shared.body
    }
}

pub(crate) fn set_rx_threshold(body: &QueueBody, threshold: u32, depth: u32) -> Result<(), Status> {
    let JettyId { id, .. } = body.id;
    let why = format_args!("threshold {threshold} of queue {id} is above its depth {depth}");
    rules::ensure(threshold <= depth, why)?;
    body.control.set_rx_threshold(threshold)
}
