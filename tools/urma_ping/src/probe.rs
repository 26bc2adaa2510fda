//! The queue that pings.
//!
//! *Owns*: one jetty with everything around it, the import of the pinged one. *Takes*: sequence
//! numbers. *Gives*: answers, or why there is none. *Must not*: print.

use std::time::Duration;

use urma::Region;
use urma::WELL_KNOWN_ID;
use urma::{
    Arm, Completion, Context, CrStatus, Eid, Jetty, JettyCfg, JettyId, JettyRecv, Jfc, JfcCfg,
    Jfce, Jfr, JfrCfg, JfsCfg, LocalSge, OrderType, RecvWr, RemoteJetty, Segment, SegmentAccess,
    SegmentCfg, SendOp, SendWr, Status, TargetJetty, TargetKind, TokenPolicy, TpType,
    TransportMode,
};

/// Messages outstanding: late answers need a receive, too.
const DEPTH: u32 = 64;
/// Looks at the JFC before this side sleeps: an answer of the same host is there by then.
const SPINS: u32 = 2000;
/// Longest sleep on events before the caller is asked again.
const NAP: Duration = Duration::from_millis(50);

/// What came, or did not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PingResult {
    /// The answer with this number.
    Answer(u32),
    /// The ping or its answer completed with an error.
    Failed(CrStatus),
    /// No completion has come.
    Nothing,
}

/// Pings one node. Fields are dropped in order.
#[derive(Debug)]
pub(crate) struct Probe {
    target: TargetJetty,
    jetty: Jetty,
    jfr: Jfr,
    sends: Jfc,
    receives: Jfc,
    jfce: Jfce,
    segment: Segment,
    size: u32,
}

impl Probe {
    /// A queue for pings of `size` bytes to `destination`.
    ///
    /// # Errors
    /// `Unreachable`, `TimedOut`: there is no path to the node. Else what making the queue answers.
    pub(crate) fn open(context: &Context, destination: Eid, size: u32) -> Result<Self, Status> {
        let mode = TransportMode::Rm;
        let bytes = size as usize * (DEPTH as usize + 1);
        let region = Region::private(bytes).map_err(|_| Status::NoMemory)?;
        let segment =
            context.register(&region, &SegmentCfg::new(SegmentAccess::LOCAL_ONLY), None)?;
        let jfce = context.create_jfce()?;
        let sends = context.create_jfc(&JfcCfg::new(2 * DEPTH), Some(&jfce))?;
        let receives = context.create_jfc(&JfcCfg::new(2 * DEPTH), Some(&jfce))?;
        let jfr = context.create_jfr(&JfrCfg::new(mode, DEPTH), &receives)?;
        let recv = JettyRecv::Shared { jfr: &jfr, jfc: None };
        let cfg = JettyCfg::new(JfsCfg::new(mode, DEPTH), &sends, recv);
        let jetty = context.create_jetty(&cfg)?;
        let target = context.import_jetty(&RemoteJetty {
            id: JettyId { eid: destination, uasid: 0, id: WELL_KNOWN_ID },
            kind: TargetKind::Jetty,
            mode,
            order: OrderType::Default,
            policy: TokenPolicy::None,
            tp: TpType::of(mode),
        })?;
        let mut probe = Self { target, jetty, jfr, sends, receives, jfce, segment, size };
        for index in 0..u64::from(DEPTH) {
            probe.renew(index)?;
        }
        Ok(probe)
    }

    /// Sends ping number `seq`.
    pub(crate) fn send(&mut self, seq: u32) -> Result<(), Status> {
        let (segment, len) = (&self.segment, self.size);
        let addr = segment.va() + u64::from(DEPTH) * u64::from(len);
        let piece = [LocalSge { segment, addr, len }];
        let op = SendOp::SendImm { src: &piece, imm: u64::from(seq) };
        let posted = self.jetty.post_send(&[SendWr::new(op, &self.target, u64::from(seq))]);
        posted.map_err(|_| Status::NoMemory)
    }

    /// Looks for an answer; sleeps a moment when none is there.
    pub(crate) fn receive(&mut self) -> Result<PingResult, Status> {
        for _ in 0..SPINS {
            match self.look()? {
                PingResult::Nothing => std::hint::spin_loop(),
                received => return Ok(received),
            }
        }
        self.receives.arm(Arm::Any)?;
        self.sends.arm(Arm::Any)?;
        let received = self.look()?;
        if received == PingResult::Nothing {
            let mut ready = [0; 2];
            let count = self.jfce.wait(&mut ready, Some(NAP))?;
            for jfc in ready.iter().take(count) {
                let of = if *jfc == self.sends.id() { &self.sends } else { &self.receives };
                let _ = of.ack_events(1);
            }
        }
        Ok(received)
    }

    fn look(&mut self) -> Result<PingResult, Status> {
        let mut one = [Completion::default(); 1];
        if self.sends.poll(&mut one)? != 0 && one[0].status != CrStatus::Success {
            return Ok(PingResult::Failed(one[0].status));
        }
        if self.receives.poll(&mut one)? == 0 {
            return Ok(PingResult::Nothing);
        }
        if one[0].status != CrStatus::Success {
            return Ok(PingResult::Failed(one[0].status));
        }
        self.renew(one[0].user_ctx)?;
        let seq = one[0].immediate().and_then(|imm| u32::try_from(imm).ok());
        Ok(seq.map_or(PingResult::Nothing, PingResult::Answer))
    }

    fn renew(&mut self, index: u64) -> Result<(), Status> {
        let (segment, size) = (&self.segment, self.size);
        let addr = segment.va() + index % u64::from(DEPTH) * u64::from(size);
        let piece = [LocalSge { segment, addr, len: size }];
        let posted = self.jfr.post_recv(&[RecvWr { dst: &piece, user_ctx: index }]);
        posted.map_err(|_| Status::NoMemory)
    }
}
