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
    ops::{AtomicDelta, LikeLast, QueueControl, RecvQueue, SendQueue, TransferDelta},
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

/// The sending half of a JFS or jetty: posts what was checked, and skips checks of requests that name the same objects
/// as the last one of their kind.
#[derive(Debug)]
pub struct SendHalf {
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
    /// Posts requests in order.
    ///
    /// # Errors
    /// The first request that was refused; those before it are posted, it and later ones are not.
    #[inline(always)]
    pub fn post_send(&mut self, wrs: &[SendWr<'_>]) -> Result<(), PostError> {
        let [wr] = wrs else { return self.post_list(wrs) };
        match OneTransfer::of(wr) {
            Some(transfer) => self.post_transfer(&transfer),
            None => self.post_other(wr, wrs),
        }
    }

    /// Posts one WRITE or READ.
    ///
    /// # Errors
    /// It was refused.
    #[inline(always)]
    pub fn post_transfer(&mut self, wr: &OneTransfer<'_>) -> Result<(), PostError> {
        if self.execute_if_like_last(wr) {
            return Ok(());
        }
        // A copy, so that the request itself need not lie in memory above.
        let wr = *wr;
        self.transfer_unexecuted(&wr)
    }

    /// Posts a WRITE or READ that names the same objects as the last one, without checking them again. `false`: nothing
    /// was posted; [`SendHalf::post_transfer`] posts it or says what is wrong.
    #[inline(always)]
    pub fn post_like_last(&mut self, wr: &OneTransfer<'_>) -> bool {
        self.execute_if_like_last(wr) || self.repeat_transfer(wr)
    }

    /// Ticket of the last WRITE or READ; the next post invalidates it; 0 if there is none.
    #[inline]
    #[must_use]
    pub fn transfer_ticket(&self) -> u64 {
        self.last.ticket()
    }

    /// Posts the WRITE or READ with this ticket again, with other addresses. `false`: nothing was posted, because the
    /// ticket is invalid or something is wrong.
    #[inline(always)]
    pub fn post_repeat(&mut self, ticket: u64, delta: &TransferDelta) -> bool {
        self.execute_repeat(ticket, delta) || self.post_unexecuted(ticket, *delta)
    }

    /// Like [`SendHalf::post_repeat`], but posts only what the device executes within this call.
    #[inline(always)]
    pub fn execute_repeat(&mut self, ticket: u64, delta: &TransferDelta) -> bool {
        let TransferDelta { local, remote, len, user_ctx, is_signalled } = *delta;
        self.last.reaches(ticket, (remote, len))
            && self.queue.execute_repeat(user_ctx, remote, local, len, is_signalled)
    }

    /// Ticket of the last FETCH_ADD or CAS that was posted alone; 0 if there is none.
    #[inline]
    #[must_use]
    pub fn atomic_ticket(&self) -> u64 {
        self.last_atomic.ticket()
    }

    /// Like [`SendHalf::post_repeat`], for a FETCH_ADD or CAS.
    #[inline(always)]
    pub fn post_atomic_repeat(&mut self, ticket: u64, delta: &AtomicDelta) -> bool {
        self.last_atomic.holds(ticket, &delta.transfer)
            && self.queue.try_repeat(LikeLast::Atomic(delta)) == 1
    }

    /// Posts one request that is no transfer.
    // Out of line: the requests that are posted by the million need no registers for the others.
    #[inline(never)]
    fn post_other(&mut self, wr: &SendWr<'_>, wrs: &[SendWr<'_>]) -> Result<(), PostError> {
        if let Some(atomic) = OneAtomic::of(wr) {
            let is_like_last = self.last_atomic.is_of(&atomic) && self.rules.reaches(&atomic);
            if is_like_last && self.repeat(LikeLast::Atomic(&again::atomic_delta(&atomic))) {
                return Ok(());
            }
            return self.atomic_new(wrs);
        }
        let Some(message) = OneMessage::of(wr) else { return self.post_list(wrs) };
        let is_like_last = self.last_message.is_of(&message) && self.rules.carries(&message);
        if is_like_last && self.repeat(LikeLast::Message(&again::message_delta(&message))) {
            return Ok(());
        }
        self.message_new(wrs)
    }

    #[inline(always)]
    fn repeat(&mut self, one: LikeLast<'_>) -> bool {
        self.queue.try_repeat(one) == 1
    }

    /// Posts one atomic that differs from the last one, with all checks.
    #[inline(never)]
    fn atomic_new(&mut self, wrs: &[SendWr<'_>]) -> Result<(), PostError> {
        let posted = self.post_all(wrs);
        if posted.is_err_and(changed_nothing) {
            return posted;
        }
        let newest = posted.is_ok().then(|| wrs.first().and_then(OneAtomic::of)).flatten();
        self.tickets += 1;
        let ticket = self.tickets;
        self.last_atomic = newest.map_or(LastAtomic::NONE, |last| LastAtomic::of(&last, ticket));
        posted
    }

    /// Posts one message that differs from the last one, with all checks.
    #[inline(never)]
    fn message_new(&mut self, wrs: &[SendWr<'_>]) -> Result<(), PostError> {
        self.post_all(wrs)?;
        if let Some(message) = wrs.first().and_then(OneMessage::of) {
            self.last_message = LastMessage::of(&message);
        }
        Ok(())
    }

    /// Posts a list of requests.
    #[inline(never)]
    fn post_list(&mut self, wrs: &[SendWr<'_>]) -> Result<(), PostError> {
        let done = self.repeat_list(wrs);
        let posted = self.post_all(wrs.get(done..).unwrap_or_default());
        posted.map_err(|error| PostError { index: done + error.index, ..error })
    }

    /// Posts the front of a list as far as its requests name the objects of the last one; returns how many.
    #[inline(always)]
    fn repeat_list(&mut self, wrs: &[SendWr<'_>]) -> usize {
        let mut done = 0;
        let mut deltas = [TransferDelta::default(); LIST_MAX];
        for part in wrs.chunks(LIST_MAX) {
            let mut count = 0;
            for (place, wr) in deltas.iter_mut().zip(part) {
                let Some(wr) = OneTransfer::of(wr) else { break };
                if !(self.last.is_of(&wr) && self.rules.fits(&wr)) {
                    break;
                }
                *place = again::transfer_delta(&wr);
                count += 1;
            }
            let like_last = deltas.get(..count).unwrap_or_default();
            let posted = match count {
                0 => 0,
                _ => self.queue.try_repeat(LikeLast::Transfers(like_last)),
            };
            done += posted;
            if posted != part.len() {
                break;
            }
        }
        done
    }

    /// Executes a request like the last one within this call; `false`: nothing happened. The provider checks the local
    /// piece: it has the segment.
    #[inline(always)]
    fn execute_if_like_last(&mut self, wr: &OneTransfer<'_>) -> bool {
        let (remote, local, len) = (wr.at.addr, wr.piece.addr, wr.piece.len);
        let is_signalled = wr.flags.contains(WrFlags::COMPLETE);
        self.last.is_of(wr)
            && wr.at.segment.span().holds(remote, u64::from(len))
            && self.queue.execute_repeat(wr.user_ctx, remote, local, len, is_signalled)
    }

    /// Posts a request that was not executed within the call.
    #[inline(never)]
    fn transfer_unexecuted(&mut self, wr: &OneTransfer<'_>) -> Result<(), PostError> {
        if self.repeat_transfer(wr) { Ok(()) } else { self.transfer_new(wr) }
    }

    /// Posts a request that names the objects of the last one; refuses others.
    #[inline]
    fn repeat_transfer(&mut self, wr: &OneTransfer<'_>) -> bool {
        self.last.is_of(wr)
            && self.rules.fits(wr)
            && self.repeat(LikeLast::Transfers(&[again::transfer_delta(wr)]))
    }

    /// The rest of [`SendHalf::post_repeat`], for a request that was not executed within the call.
    #[inline(never)]
    fn post_unexecuted(&mut self, ticket: u64, delta: TransferDelta) -> bool {
        match self.last.holds(ticket, &delta) {
            Some(is_write) if self.rules.carries_len(is_write, delta.len) => {
                self.repeat(LikeLast::Transfers(&[delta]))
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
            (Err(error), _) if changed_nothing(*error) => {}
            // Which was the newest one that the queue took is for it to say.
            (Err(_), _) => self.last = LastTransfer::NONE,
        }
        posted
    }
}

/// Whether the queue is as it was before the refused call, so that its last requests are the same.
fn changed_nothing(error: PostError) -> bool {
    error.index == 0 && error.reason == PostReason::Full
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
