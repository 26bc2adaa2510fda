//! What JFS, JFR and jetty have in common.
//!
//! *Owns*: the control part, the posting halves. *Must not*: know which of the three it serves.

use std::sync::Arc;

use crate::{
    JettyId, JettyState, OneTransfer, OrderType, PostError, PostReason, QueueCfg, QueueKind,
    RecvWr, RemoteJetty, SendOp, SendWr, Status, TargetJetty, TargetKind, TokenPolicy, TpType,
    TransportMode, WrFlags,
    again::{self, LastAtomic, LastMessage, LastTransfer},
    check::{RecvRules, SendRules},
    context::ContextShared,
    jfc::JfcShared,
    memory::MemoryHome,
    ops::{MovedAtomic, PostedAgain, QueueControl, RecvQueue, SendQueue, TransferDelta},
    rules::{ensure, refuse},
    wr::{OneAtomic, OneMessage},
};

/// Identity and control part of a queue.
#[derive(Debug)]
pub(crate) struct QueueBody {
    pub(crate) id: JettyId,
    pub(crate) kind: QueueKind,
    pub(crate) mode: TransportMode,
    pub(crate) order: OrderType,
    pub(crate) control: Arc<dyn QueueControl>,
    pub(crate) home: Arc<ContextShared>,
}

impl QueueBody {
    /// The body of the queue that was created as `cfg` and got the number `id`.
    pub(crate) fn new(
        home: &Arc<ContextShared>,
        id: u32,
        cfg: &QueueCfg,
        control: Arc<dyn QueueControl>,
    ) -> Self {
        let id = JettyId { eid: home.eid, uasid: home.uasid, id };
        let home = Arc::clone(home);
        Self { id, kind: cfg.kind, mode: cfg.mode, order: cfg.order, control, home }
    }

    pub(crate) fn modify(&self, state: JettyState) -> Result<(), Status> {
        let holds = self.kind != QueueKind::Jfr || state != JettyState::Suspended;
        ensure(holds, format_args!("a JFR cannot be suspended"))?;
        self.control.modify(state)
    }
}

/// Posting half of a queue that sends.
#[derive(Debug)]
pub(crate) struct SendHalf {
    pub(crate) queue: Box<dyn SendQueue>,
    pub(crate) rules: SendRules,
    pub(crate) last: LastTransfer,
    /// Ticket that the last request got.
    pub(crate) tickets: u64,
    pub(crate) last_message: LastMessage,
    pub(crate) last_atomic: LastAtomic,
    pub(crate) _jfc: Arc<JfcShared>,
}

impl SendHalf {
    #[inline(always)]
    pub(crate) fn post(&mut self, wrs: &[SendWr<'_>]) -> Result<(), PostError> {
        let [wr] = wrs else { return self.post_list(wrs) };
        match OneTransfer::of(wr) {
            Some(transfer) => self.transfer(&transfer),
            None => self.post_other(wr, wrs),
        }
    }

    /// Posts one request that is no transfer.
    #[inline(never)]
    fn post_other(&mut self, wr: &SendWr<'_>, wrs: &[SendWr<'_>]) -> Result<(), PostError> {
        if let Some(atomic) = OneAtomic::of(wr) {
            return self.post_atomic(&atomic, wrs);
        }
        // Out of line: the requests that are posted by the million need no registers for the others.
        let Some(message) = OneMessage::of(wr) else { return self.post_list(wrs) };
        if self.last_message.is_of(&message) && self.rules.carries(&message) {
            match self.queue.post_message_like_last(&again::moved_message(&message)) {
                PostedAgain::Posted => return Ok(()),
                PostedAgain::Full => {
                    return Err(PostError { index: 0, reason: PostReason::Full });
                }
                PostedAgain::NotTaken => {}
            }
        }
        self.message_new(wrs, &message)
    }

    /// Posts one atomic, whatever the last one was.
    #[inline(always)]
    fn post_atomic(&mut self, atomic: &OneAtomic<'_>, wrs: &[SendWr<'_>]) -> Result<(), PostError> {
        if self.last_atomic.is_of(atomic) && self.rules.reaches(atomic) {
            match self.queue.post_atomic_like_last(&again::moved_atomic(atomic)) {
                PostedAgain::Posted => return Ok(()),
                PostedAgain::Full => {
                    return Err(PostError { index: 0, reason: PostReason::Full });
                }
                PostedAgain::NotTaken => {}
            }
        }
        self.atomic_new(wrs, atomic)
    }

    /// Posts an atomic that names the same objects as the one with this ticket; whether it was posted.
    #[inline(always)]
    pub(crate) fn atomic_moved(&mut self, ticket: u64, moved: &MovedAtomic) -> bool {
        self.last_atomic.holds(ticket, &moved.transfer)
            && self.queue.post_atomic_like_last(moved) == PostedAgain::Posted
    }

    /// Posts one atomic that differs from the last one, with all checks.
    #[inline(never)]
    fn atomic_new(&mut self, wrs: &[SendWr<'_>], atomic: &OneAtomic<'_>) -> Result<(), PostError> {
        self.last_atomic = LastAtomic::NONE;
        self.post_all(wrs)?;
        self.tickets += 1;
        self.last_atomic = LastAtomic::of(atomic, self.tickets);
        Ok(())
    }

    /// Posts one message that differs from the last one, with all checks.
    #[inline(never)]
    fn message_new(
        &mut self,
        wrs: &[SendWr<'_>],
        message: &OneMessage<'_>,
    ) -> Result<(), PostError> {
        self.post_all(wrs)?;
        self.last_message = LastMessage::of(message);
        Ok(())
    }

    /// Posts a list of requests.
    #[inline(never)]
    fn post_list(&mut self, wrs: &[SendWr<'_>]) -> Result<(), PostError> {
        let done = self.post_list_again(wrs);
        let posted = self.post_all(wrs.get(done..).unwrap_or_default());
        posted.map_err(|error| PostError { index: done + error.index, ..error })
    }

    /// Posts the front of a list as far as its requests name the objects of the last one; returns how many.
    #[inline(always)]
    fn post_list_again(&mut self, wrs: &[SendWr<'_>]) -> usize {
        let mut done = 0;
        let mut moved = [TransferDelta::default(); LIST_MAX];
        for part in wrs.chunks(LIST_MAX) {
            let mut count = 0;
            for (place, wr) in moved.iter_mut().zip(part) {
                let Some(wr) = OneTransfer::of(wr) else { break };
                if !(self.last.is_of(&wr) && self.rules.fits(&wr)) {
                    break;
                }
                *place = again::moved(&wr);
                count += 1;
            }
            let posted = match count {
                0 => 0,
                _ => self.queue.post_list_like_last(moved.get(..count).unwrap_or_default()),
            };
            done += posted;
            if posted != part.len() {
                break;
            }
        }
        done
    }

    /// Posts one WRITE or READ.
    #[inline(always)]
    pub(crate) fn transfer(&mut self, wr: &OneTransfer<'_>) -> Result<(), PostError> {
        if self.carry_again(wr) {
            return Ok(());
        }
        // A copy, so that the request itself need not lie in memory above.
        let wr = *wr;
        self.transfer_uncarried(&wr)
    }

    /// Posts a request like the last one if the device carries it out at once; `false`: nothing happened. The provider
    /// checks the local piece: it has the segment.
    #[inline(always)]
    fn carry_again(&mut self, wr: &OneTransfer<'_>) -> bool {
        let len = wr.piece.len;
        self.last.is_of(wr)
            && wr.at.segment.span().holds(wr.at.addr, u64::from(len))
            && match wr.flags.contains(WrFlags::COMPLETE) {
                true => self.queue.carry_like_last(wr.user_ctx, wr.at.addr, wr.piece.addr, len),
                false => self.queue.carry_silent_like_last(wr.at.addr, wr.piece.addr, len),
            }
    }

    /// Posts a request that was not carried out at once.
    #[inline(never)]
    fn transfer_uncarried(&mut self, wr: &OneTransfer<'_>) -> Result<(), PostError> {
        match self.transfer_again(wr) {
            PostedAgain::Posted => Ok(()),
            PostedAgain::Full => Err(PostError { index: 0, reason: PostReason::Full }),
            PostedAgain::NotTaken => self.transfer_new(wr),
        }
    }

    /// Posts a request that names the objects of the last one; refuses others.
    #[inline]
    fn transfer_again(&mut self, wr: &OneTransfer<'_>) -> PostedAgain {
        if !(self.last.is_of(wr) && self.rules.fits(wr)) {
            return PostedAgain::NotTaken;
        }
        self.queue.post_like_last(&again::moved(wr))
    }

    /// Posts a request that names the objects of the last one; whether it was posted.
    #[inline(always)]
    pub(crate) fn is_posted_again(&mut self, wr: &OneTransfer<'_>) -> bool {
        self.carry_again(wr) || self.transfer_again(wr) == PostedAgain::Posted
    }

    /// Posts a request that names the objects of the one with this ticket; whether it was posted.
    #[inline(always)]
    pub(crate) fn transfer_moved(&mut self, ticket: u64, moved: &TransferDelta) -> bool {
        self.carry_moved(ticket, moved) || self.post_moved(ticket, *moved)
    }

    /// Like [`SendHalf::transfer_moved`], if the device carries it out at once.
    #[inline(always)]
    pub(crate) fn carry_moved(&mut self, ticket: u64, moved: &TransferDelta) -> bool {
        let TransferDelta { local, remote, len, user_ctx, is_signalled } = *moved;
        self.last.reaches(ticket, (remote, len))
            && is_signalled
            && self.queue.carry_like_last(user_ctx, remote, local, len)
    }

    /// Like [`SendHalf::carry_moved`], for an unsignalled request between `local` and `remote`.
    #[inline(always)]
    pub(crate) fn carry_silent(
        &mut self,
        ticket: u64,
        (remote, local, len): (u64, u64, u32),
    ) -> bool {
        self.last.reaches(ticket, (remote, len))
            && self.queue.carry_silent_like_last(remote, local, len)
    }

    /// The rest of [`SendHalf::transfer_moved`], for a request that was not carried out at once.
    #[inline(never)]
    fn post_moved(&mut self, ticket: u64, moved: TransferDelta) -> bool {
        match self.last.holds(ticket, &moved) {
            Some(is_write) if self.rules.carries_len(is_write, moved.len) => {
                self.queue.post_like_last(&moved) == PostedAgain::Posted
            }
            _ => false,
        }
    }

    /// Posts a WRITE or READ that differs from the last one, with all checks.
    #[inline(never)]
    fn transfer_new(&mut self, wr: &OneTransfer<'_>) -> Result<(), PostError> {
        let OneTransfer { is_write, piece, at, flags, target, target_hint, user_ctx } = *wr;
        let pieces = [piece];
        let op = match is_write {
            true => SendOp::Write { src: &pieces, dst: at },
            false => SendOp::Read { dst: &pieces, src: at },
        };
        self.post_all(&[SendWr { op, flags, target, target_hint, user_ctx }])
    }

    /// Forgets the last requests, since the default target changed.
    pub(crate) fn set_bound(&mut self, target: Option<JettyId>) {
        (self.last, self.last_message) = (LastTransfer::NONE, LastMessage::NONE);
        self.last_atomic = LastAtomic::NONE;
        self.rules.set_bound(target);
    }

    #[inline(always)]
    fn post_all(&mut self, wrs: &[SendWr<'_>]) -> Result<(), PostError> {
        for (index, wr) in wrs.iter().enumerate() {
            if let Err(reason) = self.rules.check(wr) {
                let bad = PostError { index, reason };
                self.last = LastTransfer::NONE;
                return before(wrs, bad, |wrs| self.queue.post_send(wrs));
            }
        }
        let posted = self.queue.post_send(wrs);
        match (&posted, wrs.iter().rev().find_map(OneTransfer::of)) {
            (Ok(()), Some(newest)) => {
                self.tickets += 1;
                self.last = LastTransfer::of(&newest, self.tickets);
            }
            (Ok(()), None) => {}
            // Which was the newest one that the queue took is for it to say.
            (Err(_), _) => self.last = LastTransfer::NONE,
        }
        posted
    }
}

/// Requests of a list that are posted together.
const LIST_MAX: usize = 32;

/// Posting half of a queue that receives.
#[derive(Debug)]
pub(crate) struct RecvHalf {
    pub(crate) queue: Box<dyn RecvQueue>,
    pub(crate) rules: RecvRules,
}

impl RecvHalf {
    #[inline]
    pub(crate) fn post(&mut self, wrs: &[RecvWr<'_>]) -> Result<(), PostError> {
        match self.rules.first_bad(wrs) {
            None => self.queue.post_recv(wrs),
            Some(bad) => before(wrs, bad, |wrs| self.queue.post_recv(wrs)),
        }
    }
}

/// Posts the requests before the refused one, and answers with its refusal.
#[cold]
#[inline(never)]
fn before<W>(
    wrs: &[W],
    bad: PostError,
    post: impl FnOnce(&[W]) -> Result<(), PostError>,
) -> Result<(), PostError> {
    post(&wrs[..bad.index])?;
    Err(bad)
}

/// All objects of one call belong to one context.
pub(crate) fn same_home(a: &Arc<ContextShared>, b: &Arc<ContextShared>) -> Result<(), Status> {
    ensure(Arc::ptr_eq(a, b), format_args!("the objects belong to two contexts; use those of one"))
}

/// A provider that leaves out a part that its queue needs.
pub(crate) fn required<T>(part: Option<T>, name: &str) -> Result<T, Status> {
    part.ok_or_else(|| refuse(Status::Fail, format_args!("the provider gave no {name}")))
}

/// The control methods of a handle that has `body()`.
macro_rules! control_methods {
    ($handle:ident) => {
        impl $handle {
            /// Its name on the network.
            #[must_use]
            pub fn id(&self) -> $crate::JettyId {
                self.body().id
            }

            /// Transport mode that the queue was created with.
            #[must_use]
            pub fn mode(&self) -> $crate::TransportMode {
                self.body().mode
            }

            /// Its order type; the default is filled in.
            #[must_use]
            pub fn order(&self) -> $crate::OrderType {
                self.body().order
            }

            /// State and fill.
            ///
            /// # Errors
            /// `NoDevice`: the device failed.
            pub fn query(&self) -> Result<$crate::QueueStatus, $crate::Status> {
                self.body().control.query()
            }

            /// Moves to `state`.
            ///
            /// # Errors
            /// `Invalid`: there is no such transition.
            pub fn modify(&self, state: $crate::JettyState) -> Result<(), $crate::Status> {
                self.body().modify(state)
            }

            /// Moves to the error state and takes flushed requests of this queue, up to
            /// `out.len()`, in order, out of its JFC; returns how many. Of a queue that sends these
            /// are what it sends: receives are polled. Completions of requests that had ended before
            /// are polled too, and first: while one waits, this takes nothing.
            ///
            /// # Errors
            /// `NoDevice`: the device failed.
            pub fn flush(
                &mut self,
                out: &mut [$crate::Completion],
            ) -> Result<usize, $crate::Status> {
                self.body().control.flush(out)
            }
        }
    };
}
pub(crate) use control_methods;

impl RemoteJetty {
    pub(crate) fn of(body: &QueueBody, kind: TargetKind, policy: TokenPolicy) -> Self {
        let (id, mode, order) = (body.id, body.mode, body.order);
        Self { id, kind, mode, order, policy, tp: TpType::of(mode) }
    }
}

/// The rule of advise and unadvise; the path itself exists since the import.
pub(crate) fn advise(body: &QueueBody, target: &TargetJetty) -> Result<(), Status> {
    let is_rm = body.mode == TransportMode::Rm && target.target().mode == TransportMode::Rm;
    ensure(is_rm, format_args!("only RM queues are advised of RM targets"))?;
    ensure(
        target.home() == body.home.key(),
        format_args!("the target was imported by another context"),
    )
}
