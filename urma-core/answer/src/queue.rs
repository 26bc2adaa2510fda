//! The queue behind the well-known jetty.
//!
//! *Owns*: the jetty, its buffers. *Takes*: receive completions. *Gives*: answers. *Must not*:
//! spin: it sleeps on events; keep imports: a sender that starts again has the same EID and jetty
//! id, and an import from before leads to no jetty.

use std::{os::unix::net::UnixStream, time::Duration};

use rustix::event::{PollFd, PollFlags, poll};
use urma_core::{
    Arm, Completion, Context, CrStatus, Jetty, JettyCfg, JettyId, JettyRecv, Jfc, JfcCfg, Jfce,
    Jfr, JfrCfg, JfsCfg, LocalSge, OrderType, RecvWr, RemoteJetty, Segment, SegmentAccess,
    SegmentCfg, SendOp, SendWr, Status, TargetKind, TokenPolicy, TpType, TransportMode,
};
use urma_mem::Region;

use crate::{MESSAGE_MAX, WELL_KNOWN_ID};

/// Most messages outstanding, in either direction.
const DEPTH: u32 = 64;
/// Completions of either JFC: all receives, or all sends.
const JFC_DEPTH: u32 = 2 * DEPTH;
/// Completions taken by one poll.
const BATCH: usize = 16;

/// Why the thread that answers pings stopped serving its queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ServeEnd {
    /// As its owner wants.
    Stopped,
    /// An answer failed, and with it the queue.
    Broken,
}

/// A jetty with everything around it. Fields are dropped in order.
#[derive(Debug)]
pub(crate) struct AnswerQueue {
    jetty: Jetty,
    jfr: Jfr,
    sends: Jfc,
    receives: Jfc,
    jfce: Jfce,
    segment: Segment,
}

impl AnswerQueue {
    /// Claims the id and posts all receives.
    pub(crate) fn open(context: &Context) -> Result<Self, Status> {
        let region = Region::private(DEPTH as usize * MESSAGE_MAX).map_err(|_| Status::NoMemory)?;
        let segment =
            context.register(&region, &SegmentCfg::new(SegmentAccess::LOCAL_ONLY), None)?;
        let jfce = context.create_jfce()?;
        let sends = context.create_jfc(&JfcCfg::new(JFC_DEPTH), Some(&jfce))?;
        let receives = context.create_jfc(&JfcCfg::new(JFC_DEPTH), Some(&jfce))?;
        let mode = TransportMode::Rm;
        let jfr = context.create_jfr(&JfrCfg::new(mode, DEPTH), &receives)?;
        let recv = JettyRecv::Shared { jfr: &jfr, jfc: None };
        let cfg = JettyCfg::new(JfsCfg::new(mode, DEPTH), &sends, recv);
        let jetty = context.create_jetty(&JettyCfg { id: WELL_KNOWN_ID, ..cfg })?;
        let mut queue = Self { jetty, jfr, sends, receives, jfce, segment };
        for index in 0..u64::from(DEPTH) {
            queue.renew(index)?;
        }
        Ok(queue)
    }

    /// Answers until `stopped` is closed or the queue is broken.
    pub(crate) fn serve(&mut self, context: &Context, stopped: &UnixStream) -> ServeEnd {
        loop {
            match self.turn(context) {
                Ok(true) => continue,
                Ok(false) => {}
                Err(status) => {
                    tracing::debug!(%status, "an answer failed");
                    return ServeEnd::Broken;
                }
            }
            if self.is_stopped_asleep(stopped) {
                return ServeEnd::Stopped;
            }
        }
    }

    /// Takes what there is; whether there was anything. Arms before the last look.
    fn turn(&mut self, context: &Context) -> Result<bool, Status> {
        if self.take(context)? {
            return Ok(true);
        }
        self.receives.arm(Arm::Any)?;
        self.sends.arm(Arm::Any)?;
        self.take(context)
    }

    fn take(&mut self, context: &Context) -> Result<bool, Status> {
        let mut batch = [Completion::default(); BATCH];
        let sent = self.sends.poll(&mut batch)?;
        for completion in batch.get(..sent).unwrap_or(&[]) {
            if completion.status != CrStatus::Success {
                return Err(Status::TimedOut);
            }
            self.renew(completion.user_ctx)?;
        }
        let received = self.receives.poll(&mut batch)?;
        for completion in batch.get(..received).unwrap_or(&[]) {
            if completion.status != CrStatus::Success {
                return Err(Status::TimedOut);
            }
            if self.answer(context, completion).is_none() {
                self.renew(completion.user_ctx)?;
            }
        }
        Ok(sent + received != 0)
    }

    /// Sends a message back; `None`: its sender cannot be reached.
    fn answer(&mut self, context: &Context, message: &Completion) -> Option<()> {
        let target = context.import_jetty(&sender(message.remote)).ok()?;
        let piece = [piece(&self.segment, message.user_ctx, message.len)];
        let src = if message.len == 0 { &[][..] } else { &piece[..] };
        let op = match message.immediate() {
            Some(imm) => SendOp::SendImm { src, imm },
            None => SendOp::Send { src },
        };
        let wr = SendWr::new(op, &target, message.user_ctx);
        self.jetty.post_send(&[wr]).ok()
    }

    /// Posts receive number `index` (again).
    fn renew(&mut self, index: u64) -> Result<(), Status> {
        let len = u32::try_from(MESSAGE_MAX).unwrap_or(u32::MAX);
        let piece = [piece(&self.segment, index, len)];
        let posted = self.jfr.post_recv(&[RecvWr { dst: &piece, user_ctx: index }]);
        posted.map_err(|_| Status::NoMemory)
    }

    /// Sleeps until an event comes or the owner ends it; whether it ended.
    fn is_stopped_asleep(&self, stopped: &UnixStream) -> bool {
        let fd = self.jfce.fd();
        let mut fds =
            [PollFd::new(&fd, PollFlags::IN), PollFd::new(stopped, PollFlags::IN | PollFlags::HUP)];
        // A signal ends the sleep as an event does: there is one look more.
        let _ = poll(&mut fds, None);
        if !fds[1].revents().is_empty() {
            return true;
        }
        let mut ready = [0; 2];
        let count = self.jfce.wait(&mut ready, Some(Duration::ZERO)).unwrap_or(0);
        for jfc in ready.iter().take(count) {
            let of = if *jfc == self.sends.id() { &self.sends } else { &self.receives };
            let _ = of.ack_events(1);
        }
        false
    }
}

/// The place of receive number `index`.
fn piece(segment: &Segment, index: u64, len: u32) -> LocalSge<'_> {
    let addr = segment.va() + index % u64::from(DEPTH) * MESSAGE_MAX as u64;
    LocalSge { segment, addr, len }
}

/// Where a message came from.
fn sender(id: JettyId) -> RemoteJetty {
    let mode = TransportMode::Rm;
    RemoteJetty {
        id,
        kind: TargetKind::Jetty,
        mode,
        order: OrderType::Default,
        policy: TokenPolicy::None,
        tp: TpType::of(mode),
    }
}
