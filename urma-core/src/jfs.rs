//! JFS: a queue that only sends.
//!
//! *Owns*: the handle. *Takes*: send requests. *Gives*: them to the provider, checked.

use std::sync::Arc;

use crate::{
    Context, Jfc, JfsCfg, OneTransfer, PostError, QueueCfg, QueueKind, Refused, SendCfg, SendWr,
    Status, TargetJetty,
    again::{LastAtomic, LastMessage, LastTransfer},
    body::{self, QueueBody, SendHalf, control_methods, required, same_home},
    check::SendRules,
    context::ContextShared,
    memory::MemoryHome,
    ops::QueueParts,
    rules,
};

impl JfsCfg {
    pub(crate) fn for_provider(&self, jfc: &Jfc) -> SendCfg {
        SendCfg {
            jfc: jfc.id(),
            depth: self.depth,
            max_sge: self.max_sge,
            max_rsge: self.max_rsge,
            max_inline: self.max_inline,
            priority: self.priority,
            rnr_retry: self.rnr_retry,
            err_timeout: self.err_timeout,
            flags: self.flags,
        }
    }
}

/// Jetty for send: a send queue. One poster at a time.
///
/// Dropping it deletes it too. The fields are dropped in order: the device lets go of the queue
/// before its ring and its JFC go.
#[derive(Debug)]
pub struct Jfs {
    body: QueueBody,
    send: SendHalf,
    cfg: JfsCfg,
}

control_methods!(Jfs);

impl Context {
    /// A send queue that completes on `jfc`.
    ///
    /// # Errors
    /// `Invalid`: a value beyond the limits of the device, an order type that does not fit the
    /// mode, a JFC of another context. `Unsupported`: a mode or flag that the device lacks.
    pub fn create_jfs(&self, cfg: &JfsCfg, jfc: &Jfc) -> Result<Jfs, Status> {
        let home = self.shared();
        same_home(home, &jfc.shared().home)?;
        rules::send(&home.attr, cfg)?;
        let queue = QueueCfg {
            kind: QueueKind::Jfs,
            id: 0,
            mode: cfg.mode,
            order: rules::order(cfg.mode, cfg.order)?,
            token: None,
            send: Some(cfg.for_provider(jfc)),
            recv: None,
            shared: None,
            group: None,
            user_ctx: cfg.user_ctx,
        };
        let QueueParts { id, control, send, .. } = home.ops.create_queue(&queue)?;
        let body = QueueBody::new(home, id, &queue, control);
        let send = send_half(home, cfg, send, jfc)?;
        Ok(Jfs { body, send, cfg: *cfg })
    }
}

pub(crate) fn send_half(
    home: &Arc<ContextShared>,
    cfg: &JfsCfg,
    queue: Option<Box<dyn crate::ops::SendQueue>>,
    jfc: &Jfc,
) -> Result<SendHalf, Status> {
    let rules = SendRules::new(home.key(), &home.attr.caps, cfg);
    let queue = required(queue, "send half")?;
    Ok(SendHalf {
        queue,
        rules,
        last: LastTransfer::NONE,
        tickets: 0,
        last_message: LastMessage::NONE,
        last_atomic: LastAtomic::NONE,
        _jfc: Arc::clone(jfc.shared()),
    })
}

impl Jfs {
    /// Posts requests in order.
    ///
    /// # Errors
    /// The first request that was refused; those before it are posted, it and later ones are not.
    #[inline]
    pub fn post_send(&mut self, wrs: &[SendWr<'_>]) -> Result<(), PostError> {
        self.send.post_send(wrs)
    }

    /// Posts one request.
    ///
    /// # Errors
    /// It was refused.
    #[inline]
    pub fn post_transfer(&mut self, wr: &OneTransfer<'_>) -> Result<(), PostError> {
        self.send.post_transfer(wr)
    }

    /// The half that posts requests, with what it remembers of the last ones.
    #[inline(always)]
    pub fn send_half(&mut self) -> &mut SendHalf {
        &mut self.send
    }

    /// RM: announces requests to `target`. Importing set up the path already.
    ///
    /// # Errors
    /// `Invalid`: not RM on both sides.
    pub fn advise(&self, target: &TargetJetty) -> Result<(), Status> {
        body::advise(&self.body, target)
    }

    /// Undoes [`Jfs::advise`]; the path stays until the target is unimported.
    ///
    /// # Errors
    /// `Invalid`: not RM on both sides.
    pub fn unadvise(&self, target: &TargetJetty) -> Result<(), Status> {
        body::advise(&self.body, target)
    }

    /// As it was created.
    #[must_use]
    pub fn cfg(&self) -> &JfsCfg {
        &self.cfg
    }

    /// Deletes: every outstanding request gets its flushed completion first.
    ///
    /// # Errors
    /// A status of the device; the queue stays.
    pub fn delete(self) -> Result<(), Refused<Self>> {
        match self.body.control.delete() {
            Ok(()) => Ok(()),
            Err(status) => Err(Refused::new(self, status)),
        }
    }

    fn body(&self) -> &QueueBody {
        &self.body
    }
}
