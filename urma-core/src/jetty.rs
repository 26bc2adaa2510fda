//! Jetty: sends, and receives through its own or a shared JFR. Jetty group: one name for several jetties; the target's
//! device picks one for each message.
//!
//! *Owns*: the handles; the binding of an RC jetty; the rule that a group outlives its members. *Takes*: requests of both
//! kinds.

use std::sync::Arc;

use crate::{
    Context, JettyId, Jfc, Jfr, JfrCfg, JfsCfg, OneTransfer, OrderType, PostError, PostReason,
    QueueCfg, QueueKind, RecvWr, Refused, RemoteJetty, SendWr, SharedRecv, StartPsns, Status,
    TargetId, TargetJetty, TargetKind, TokenPolicy, TpType, TransportMode,
    body::{self, QueueBody, RecvHalf, SendHalf, control_methods, same_home},
    context::ContextShared,
    jfc::JfcShared,
    jfr::{self, JfrShared, recv_half},
    jfs::send_half,
    memory::MemoryHome,
    ops::{HintPolicy, QueueParts},
    rules::{self, ensure, refuse},
    target::HeldPath,
};

/// How a jetty receives.
#[derive(Clone, Copy, Debug)]
pub enum JettyRecv<'a> {
    /// Through a JFR that other jetties may share; completions go to `jfc`, or where those of the
    /// JFR go.
    #[expect(missing_docs, reason = "the variant names it")]
    Shared { jfr: &'a Jfr, jfc: Option<&'a Jfc> },
    /// Through its own; `cfg.id` is 0, the jetty's id counts.
    #[expect(missing_docs, reason = "the variant names it")]
    Own { cfg: JfrCfg, jfc: &'a Jfc },
}

/// What a jetty shall be.
#[derive(Clone, Copy, Debug)]
pub struct JettyCfg<'a> {
    /// The requested id, 20 bits; 0 = any (1024 and up). 1 to 1023 are for well-known queues.
    pub id: u32,
    /// The send half. Its mode and order are those of the jetty.
    pub send: JfsCfg,
    /// Where its sends complete.
    pub send_jfc: &'a Jfc,
    /// The receive half. Its mode and order must be those of the send half.
    pub recv: JettyRecv<'a>,
    /// The group it joins.
    pub group: Option<&'a JettyGroup>,
    /// Number that the caller chooses; the library does not read it.
    pub user_ctx: u64,
}

impl<'a> JettyCfg<'a> {
    /// Any id, no group.
    #[must_use]
    pub const fn new(send: JfsCfg, send_jfc: &'a Jfc, recv: JettyRecv<'a>) -> Self {
        Self { id: 0, send, send_jfc, recv, group: None, user_ctx: send.user_ctx }
    }
}

/// A queue pair. One poster at a time: posting takes `&mut`. It may move to another thread, but
/// no two threads have it at once:
///
/// ```
/// fn moves<T: Send>() {}
/// moves::<urma_core::Jetty>();
/// ```
///
/// ```compile_fail,E0277
/// fn is_shared<T: Sync>() {}
/// is_shared::<urma_core::Jetty>();
/// ```
///
/// The fields are dropped in order, see [`crate::Jfs`].
#[derive(Debug)]
pub struct Jetty {
    body: QueueBody,
    send: SendHalf,
    recv: ReceiveFrom,
    policy: TokenPolicy,
    bound: Option<Binding>,
    _group: Option<Arc<GroupShared>>,
}

#[derive(Debug)]
enum ReceiveFrom {
    Own { half: RecvHalf, depth: u32, _jfc: Arc<JfcShared> },
    Shared { _jfr: Arc<JfrShared>, _jfc: Arc<JfcShared> },
}

/// The one target of an RC jetty; keeps the path to it open.
#[derive(Debug)]
struct Binding {
    target: TargetId,
    _path: Arc<HeldPath>,
}

control_methods!(Jetty);

impl Context {
    /// A jetty.
    ///
    /// # Errors
    /// `Invalid`: a value beyond the limits of the device; an order type that does not fit the
    /// mode; mode or order of the two halves differ; objects of another context. `Exists`: the
    /// requested id is in use. `Unsupported`: a mode, flag or token policy that is not built.
    /// `NoMemory`: the group is full.
    pub fn create_jetty(&self, cfg: &JettyCfg<'_>) -> Result<Jetty, Status> {
        let home = self.shared();
        let queue = plan(home, cfg)?;
        let QueueParts { id, control, send, recv } = home.ops.create_queue(&queue)?;
        let body = QueueBody::new(home, id, &queue, control);
        let send = send_half(home, &cfg.send, send, cfg.send_jfc)?;
        let (recv, policy) = match cfg.recv {
            JettyRecv::Own { cfg, jfc } => {
                let half = recv_half(home, &cfg, recv)?;
                let _jfc = Arc::clone(jfc.shared());
                (ReceiveFrom::Own { half, depth: cfg.depth, _jfc }, cfg.policy)
            }
            JettyRecv::Shared { jfr, jfc } => {
                let jfr = jfr.shared();
                let _jfc = Arc::clone(jfc.map_or(&jfr.jfc, Jfc::shared));
                (ReceiveFrom::Shared { _jfr: Arc::clone(jfr), _jfc }, jfr.cfg.policy)
            }
        };
        let _group = cfg.group.map(|group| Arc::clone(group.shared()));
        Ok(Jetty { send, recv, body, policy, bound: None, _group })
    }
}

/// Checks the configuration and returns what the provider is to create.
fn plan(home: &Arc<ContextShared>, cfg: &JettyCfg<'_>) -> Result<QueueCfg, Status> {
    rules::id(cfg.id)?;
    same_home(home, &cfg.send_jfc.shared().home)?;
    rules::send(&home.attr, &cfg.send)?;
    let (mode, wanted) = (cfg.send.mode, cfg.send.order);
    let order = rules::order(mode, wanted)?;
    let mut queue = QueueCfg {
        kind: QueueKind::Jetty,
        id: cfg.id,
        mode,
        order,
        token: None,
        send: Some(cfg.send.for_provider(cfg.send_jfc)),
        recv: None,
        shared: None,
        group: None,
        user_ctx: cfg.user_ctx,
    };
    let recv = match cfg.recv {
        JettyRecv::Own { cfg: recv, jfc } => {
            same_home(home, &jfc.shared().home)?;
            rules::recv(&home.attr, &recv)?;
            ensure(
                recv.id == 0,
                format_args!("choose the id of the jetty; that of its own JFR must be 0"),
            )?;
            queue.recv = Some(recv.for_provider(jfc));
            recv
        }
        JettyRecv::Shared { jfr, jfc } => {
            let jfr = jfr.shared();
            same_home(home, &jfr.body.home)?;
            let jfc = jfc.map_or(&jfr.jfc, Jfc::shared);
            same_home(home, &jfc.home)?;
            queue.shared = Some(SharedRecv { jfr: jfr.body.id.id, jfc: jfc.id });
            jfr.cfg
        }
    };
    let recv_order = rules::order(recv.mode, recv.order)?;
    let is_alike = (recv.mode, recv_order) == (mode, order);
    ensure(
        is_alike,
        format_args!("mode or order of the receive half differs from the send half's"),
    )?;
    queue.token = recv.policy.token()?;
    if let Some(group) = cfg.group {
        same_home(home, group.home())?;
        group.ensure_room()?;
        queue.group = Some(group.id().id);
    }
    Ok(queue)
}

impl Jetty {
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

    /// Posts receives in order.
    ///
    /// # Errors
    /// The first request that was refused; those before it are posted, it and later ones are not.
    /// With a shared JFR all are refused: post to the JFR.
    #[inline]
    pub fn post_recv(&mut self, wrs: &[RecvWr<'_>]) -> Result<(), PostError> {
        match &mut self.recv {
            ReceiveFrom::Own { half, .. } => half.post(wrs),
            ReceiveFrom::Shared { .. } => {
                let reason = PostReason::Invalid("the jetty shares a JFR; post to that");
                Err(PostError { index: 0, reason })
            }
        }
    }

    /// One limit event when fewer receives than `threshold` are left; 0 turns it off.
    ///
    /// # Errors
    /// `Invalid`: more than the depth; the jetty shares a JFR.
    pub fn set_rx_threshold(&self, threshold: u32) -> Result<(), Status> {
        match self.recv {
            ReceiveFrom::Own { depth, .. } => jfr::set_rx_threshold(&self.body, threshold, depth),
            ReceiveFrom::Shared { .. } => Err(refuse(
                Status::Invalid,
                format_args!("the jetty shares a JFR; set the threshold of the JFR"),
            )),
        }
    }

    /// RC: binds to `target`, which stays reachable even if it is unimported.
    ///
    /// # Errors
    /// `NoPermission`: not RC on both sides, or the order types differ. `Exists`: it is bound
    /// already. `Invalid`: the target is no jetty, or was imported into another context.
    pub fn bind(&mut self, target: &TargetJetty) -> Result<(), Status> {
        self.pair(target, None)
    }

    /// Binds with the PSNs at which packets of the standard opcodes start. Without them, and with
    /// both 0, each side starts with the number of its jetty. No effect where the device speaks its
    /// own protocol.
    ///
    /// # Errors
    /// As [`Jetty::bind`]; `Invalid`: a PSN of more than 24 bits.
    pub fn bind_with(&mut self, target: &TargetJetty, psns: StartPsns) -> Result<(), Status> {
        let StartPsns { send, receive } = psns;
        ensure(
            send >> 24 == 0 && receive >> 24 == 0,
            format_args!("PSN {send:#x} or {receive:#x} has more than 24 bits"),
        )?;
        self.pair(target, Some(psns).filter(|_| send != 0 || receive != 0))
    }

    fn pair(&mut self, target: &TargetJetty, psns: Option<StartPsns>) -> Result<(), Status> {
        let (body, id) = (&self.body, target.target());
        let is_pair = body.mode == TransportMode::Rc
            && id.mode == TransportMode::Rc
            && body.order == id.order;
        if !is_pair {
            let why = format_args!("bind needs RC and one order type on both sides");
            return Err(refuse(Status::NoPermission, why));
        }
        ensure(id.kind == TargetKind::Jetty, format_args!("only jetties can be bound"))?;
        ensure(
            target.home() == body.home.key(),
            format_args!("the target was imported by another context"),
        )?;
        if let Some(bound) = &self.bound {
            let why = format_args!(
                "the jetty is bound to {:?} already; unbind it first",
                bound.target.id
            );
            return Err(refuse(Status::Exists, why));
        }
        body.control.bind(id, psns)?;
        self.send.set_bound(Some(id.id));
        self.bound = Some(Binding { target: *id, _path: Arc::clone(target.held_path()) });
        Ok(())
    }

    /// RC: undoes [`Jetty::bind`].
    ///
    /// # Errors
    /// `Invalid`: it is not bound.
    pub fn unbind(&mut self) -> Result<(), Status> {
        ensure(
            self.bound.is_some(),
            format_args!("the jetty is not bound, so there is nothing to unbind"),
        )?;
        self.body.control.unbind()?;
        self.send.set_bound(None);
        self.bound = None;
        Ok(())
    }

    /// RC: the target it is bound to.
    #[must_use]
    pub fn bound(&self) -> Option<&TargetId> {
        self.bound.as_ref().map(|bound| &bound.target)
    }

    /// RM: announces requests to `target`. Importing set up the path already.
    ///
    /// # Errors
    /// `Invalid`: not RM on both sides.
    pub fn advise(&self, target: &TargetJetty) -> Result<(), Status> {
        body::advise(&self.body, target)
    }

    /// Undoes [`Jetty::advise`]; the path stays until the target is unimported.
    ///
    /// # Errors
    /// `Invalid`: not RM on both sides.
    pub fn unadvise(&self, target: &TargetJetty) -> Result<(), Status> {
        body::advise(&self.body, target)
    }

    /// What a peer needs to send here, with the token.
    #[must_use]
    pub fn remote(&self) -> RemoteJetty {
        RemoteJetty::of(&self.body, TargetKind::Jetty, self.policy)
    }

    /// Deletes: every outstanding request gets its flushed completion first.
    ///
    /// # Errors
    /// A status of the device; the jetty stays.
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

/// What a group shall be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupCfg {
    /// The wanted id, 20 bits; 0 = any.
    pub id: u32,
    /// How a member is picked.
    pub policy: HintPolicy,
    /// What senders must show.
    pub token: TokenPolicy,
}

/// Several jetties under one name.
#[derive(Debug)]
pub struct JettyGroup {
    shared: Arc<GroupShared>,
}

/// What the members hold on to. The last holder takes the group down.
#[derive(Debug)]
pub(crate) struct GroupShared {
    id: JettyId,
    token: TokenPolicy,
    home: Arc<ContextShared>,
    is_live: bool,
}

impl Drop for GroupShared {
    fn drop(&mut self) {
        if !self.is_live {
            return;
        }
        if let Err(status) = self.home.ops.delete_group(self.id.id) {
            tracing::warn!(target: "urma", %status, id = self.id.id, "group not deleted");
        }
    }
}

impl Context {
    /// A jetty group; jetties join when they are created.
    ///
    /// # Errors
    /// `Unsupported`: the device has no groups, or the token policy is not built. `Exists`: the
    /// requested id is in use. `Invalid`: it has more than 20 bits.
    pub fn create_group(&self, cfg: &GroupCfg) -> Result<JettyGroup, Status> {
        let home = Arc::clone(self.shared());
        rules::group(&home.attr, cfg.id)?;
        let id = home.ops.create_group(cfg.id, cfg.policy, cfg.token.token()?)?;
        let id = JettyId { eid: home.eid, uasid: home.uasid, id };
        Ok(JettyGroup {
            shared: Arc::new(GroupShared { id, token: cfg.token, home, is_live: true }),
        })
    }
}

impl JettyGroup {
    /// Its name on the network.
    #[must_use]
    pub fn id(&self) -> JettyId {
        self.shared.id
    }

    /// How many jetties are members.
    #[must_use]
    pub fn members(&self) -> usize {
        Arc::strong_count(&self.shared) - 1
    }

    /// What a peer needs to send here, with the token. Groups are RM.
    #[must_use]
    pub fn remote(&self) -> RemoteJetty {
        RemoteJetty {
            id: self.shared.id,
            kind: TargetKind::Group,
            mode: TransportMode::Rm,
            order: OrderType::Oi,
            policy: self.shared.token,
            tp: TpType::Rtp,
        }
    }

    /// Deletes.
    ///
    /// # Errors
    /// `Again`: it has members. A status of the device; the group stays.
    pub fn delete(self) -> Result<(), Refused<Self>> {
        let mut shared = match Arc::try_unwrap(self.shared) {
            Ok(shared) => shared,
            Err(shared) => {
                let status = refuse(
                    Status::Again,
                    format_args!("the group has members; delete those jetties first"),
                );
                return Err(Refused::new(Self { shared }, status));
            }
        };
        match shared.home.ops.delete_group(shared.id.id) {
            Ok(()) => {
                shared.is_live = false;
                Ok(())
            }
            Err(status) => Err(Refused::new(Self { shared: Arc::new(shared) }, status)),
        }
    }

    pub(crate) fn ensure_room(&self) -> Result<(), Status> {
        let max = self.shared.home.attr.caps.max_jetty_in_grp;
        if usize::try_from(max).is_ok_and(|max| self.members() >= max) {
            return Err(refuse(
                Status::NoMemory,
                format_args!("the group has {max} members, as many as it can have"),
            ));
        }
        Ok(())
    }

    pub(crate) fn home(&self) -> &Arc<ContextShared> {
        &self.shared.home
    }

    pub(crate) fn shared(&self) -> &Arc<GroupShared> {
        &self.shared
    }
}
