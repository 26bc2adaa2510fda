//! The URMA objects of one run, on one side.
//!
//! *Owns*: context, buffer, queues, and what was imported of the peer. *Takes*: the plan, the
//! peer's [`Endpoint`]. *Gives*: lanes to post to, channels to poll. *Must not*: measure.

use urma_core::{
    Context, Eid, ImportedSegment, Jetty, JettyCfg, JettyId, JettyRecv, JfcCfg, JfcFlags, Jfr,
    JfrCfg, Jfs, JfsCfg, Mapping, OrderType, PathKind, RecvWr, RemoteJetty, RemoteSegment, Segment,
    SegmentAccess, SegmentCfg, SendWr, TargetJetty, TargetKind, Token, TokenId, TokenPolicy,
    TpType, Ubva,
};
use urma_mem::Region;

use crate::{
    channel::{Channel, Events},
    cli::Way,
    error::{RunError, api},
    layout::Layout,
    oob::{Endpoint, SegmentName},
    plan::{Mode, Plan, Refusal, Test},
};

/// What guards segments and queues under `-K 1`. A test's own memory: nothing secret.
const TOKEN: u32 = 0x5eed_0001;

/// How long a sender waits when the receiver is behind: code of 2.56 ms. Seven retries must outlast
/// a receiver that lost its core for a time slice.
const RNR_TIMER: u8 = 16;
/// The same for a receiver that checks every byte: code of 81.92 ms.
const RNR_TIMER_VERIFIED: u8 = 26;

/// A send queue.
#[derive(Debug)]
pub(crate) enum Lane {
    /// Duplex.
    Jetty(Jetty),
    /// Simplex.
    Jfs(Jfs),
}

impl Lane {
    /// Posts requests.
    #[inline]
    pub(crate) fn post(&mut self, wrs: &[SendWr<'_>]) -> Result<(), urma_core::PostError> {
        match self {
            Self::Jetty(jetty) => jetty.post_send(wrs),
            Self::Jfs(jfs) => jfs.post_send(wrs),
        }
    }
}

/// What requests name: my buffer, the peer's, and the peer's queues.
#[derive(Debug)]
pub(crate) struct Ground {
    /// My buffer.
    pub(crate) segment: Segment,
    /// The peer's buffer.
    pub(crate) remote: ImportedSegment,
    /// The peer's queues, one per lane.
    pub(crate) targets: Vec<TargetJetty>,
}

impl Ground {
    /// My memory.
    #[inline]
    pub(crate) fn region(&self) -> &Region {
        self.segment.region()
    }

    /// What carries requests to the peer.
    pub(crate) fn path(&self) -> PathKind {
        self.remote.path().kind
    }
}

/// What is posted to and polled. Fields are dropped in order.
#[derive(Debug)]
pub(crate) struct Ends {
    /// Send queues.
    pub(crate) lanes: Vec<Lane>,
    /// One shared JFR, or none when every jetty has its own.
    jfr: Option<Jfr>,
    /// Where sends complete.
    pub(crate) sends: Channel,
    /// Where receives complete.
    pub(crate) receives: Channel,
}

impl Ends {
    /// Posts receives to the shared JFR, or to `lane`'s own.
    #[inline]
    pub(crate) fn post_recv(&mut self, lane: usize, wrs: &[RecvWr<'_>]) -> Result<(), RunError> {
        match (&mut self.jfr, self.lanes.get_mut(lane)) {
            (Some(jfr), _) => Ok(jfr.post_recv(wrs)?),
            (None, Some(Lane::Jetty(jetty))) => Ok(jetty.post_recv(wrs)?),
            (None, _) => Err(RunError::Request("a JFS does not receive".to_owned())),
        }
    }
}

/// The objects of one side before it knows the peer. Fields are dropped in order.
#[derive(Debug)]
pub(crate) struct Side {
    ends: Ends,
    segment: Segment,
    context: Context,
}

/// Everything of one side, connected. Fields are dropped in order.
#[derive(Debug)]
pub(crate) struct Session {
    /// What is posted to and polled.
    pub(crate) ends: Ends,
    /// What requests name.
    pub(crate) ground: Ground,
    /// Numbers of the peer's send queues, one per lane.
    pub(crate) sources: Vec<u32>,
    /// The device, for its counters.
    pub(crate) context: Context,
}

impl Side {
    /// Makes buffer and queues.
    pub(crate) fn open(context: Context, plan: &Plan) -> Result<Self, RunError> {
        let test = &plan.test;
        test.fits(&context.attr().caps)?;
        let segment = register(&context, test)?;
        let events = if test.events { Events::On } else { Events::Off };
        let depth = test.jfc_depth;
        let jfc = JfcCfg { depth, flags: JfcFlags::empty(), ceqn: 0, user_ctx: 0 };
        let sends = Channel::open(&context, &jfc, events)?;
        let receives = Channel::open(&context, &jfc, events)?;
        let jfr = if test.share_jfr || test.simplex {
            let jfr = context.create_jfr(&recv_cfg(test), &receives.jfc);
            Some(jfr.map_err(api("creating a JFR"))?)
        } else {
            None
        };
        let mut side =
            Self { ends: Ends { lanes: Vec::new(), jfr, sends, receives }, segment, context };
        for _ in 0..test.jettys {
            let lane = side.lane(test)?;
            side.ends.lanes.push(lane);
        }
        Ok(side)
    }

    fn lane(&self, test: &Test) -> Result<Lane, RunError> {
        let send = send_cfg(test);
        if test.simplex {
            let jfs = self.context.create_jfs(&send, &self.ends.sends.jfc);
            return jfs.map(Lane::Jfs).map_err(api("creating a JFS"));
        }
        let recv = match &self.ends.jfr {
            Some(jfr) => JettyRecv::Shared { jfr, jfc: Some(&self.ends.receives.jfc) },
            None => JettyRecv::Own { cfg: recv_cfg(test), jfc: &self.ends.receives.jfc },
        };
        let jetty = self.context.create_jetty(&JettyCfg::new(send, &self.ends.sends.jfc, recv));
        jetty.map(Lane::Jetty).map_err(api("creating a jetty"))
    }

    /// What the peer needs to know.
    pub(crate) fn endpoint(&self, test: &Test) -> Endpoint {
        let sources = self.ends.lanes.iter().map(|lane| match lane {
            Lane::Jetty(jetty) => jetty.id().id,
            Lane::Jfs(jfs) => jfs.id().id,
        });
        let sources: Vec<u32> = sources.collect();
        let queues = match &self.ends.jfr {
            Some(jfr) if test.simplex => vec![jfr.id().id; sources.len()],
            _ => sources.clone(),
        };
        Endpoint {
            eid: self.context.eid().to_string(),
            uasid: self.context.uasid(),
            queues,
            sources,
            queue_token: test.token.then_some(TOKEN),
            segment: SegmentName {
                va: self.segment.va(),
                len: self.segment.len(),
                token_id: self.segment.token_id().value(),
                token: self.segment.token().map(Token::value),
            },
        }
    }

    /// Imports the peer's buffer and queues; binds RC jetties.
    pub(crate) fn connect(self, plan: &Plan, peer: &Endpoint) -> Result<Session, RunError> {
        let test = &plan.test;
        let Self { mut ends, segment, context } = self;
        let eid: Eid = peer.eid.parse().map_err(|error| {
            RunError::Refused(Refusal(format!("the peer's EID {:?}: {error}", peer.eid)))
        })?;
        let remote = import_buffer(&context, eid, peer)?;
        check_way(test.way, remote.path().kind)?;
        let mut targets = Vec::with_capacity(ends.lanes.len());
        for (lane, id) in ends.lanes.iter_mut().zip(&peer.queues) {
            let id = JettyId { eid, uasid: peer.uasid, id: *id };
            let target = context.import_jetty(&remote_jetty(test, id, peer.queue_token));
            let target = target.map_err(api("importing a queue of the peer"))?;
            if let (Mode::Rc, Lane::Jetty(jetty)) = (test.mode, lane) {
                jetty.bind(&target).map_err(api("binding a jetty"))?;
            }
            targets.push(target);
        }
        let (have, want) = (targets.len().min(peer.sources.len()), ends.lanes.len());
        if have != want || remote.len() != segment.len() {
            let why = format!("the peer has {have} queues, this side {want}; or another buffer");
            return Err(Refusal(why).into());
        }
        let ground = Ground { segment, remote, targets };
        Ok(Session { ends, ground, sources: peer.sources.clone(), context })
    }
}

impl Session {
    /// The device's counters now.
    pub(crate) fn counters(&self) -> Result<Vec<(&'static str, u64)>, RunError> {
        self.context.counters().map_err(api("reading the counters"))
    }
}

fn register(context: &Context, test: &Test) -> Result<Segment, RunError> {
    let layout = Layout::of(test, test.sizes.first().copied().unwrap_or(1))?;
    let len = usize::try_from(layout.buffer_len()).unwrap_or(usize::MAX);
    let region = Region::private(len);
    let region =
        region.map_err(|error| RunError::System { what: "allocating the buffer", error })?;
    let cfg = SegmentCfg::new(SegmentAccess::REMOTE_ALL);
    let cfg = if test.token { cfg.with_token(Token::new(TOKEN)) } else { cfg };
    // Touched before it is registered: a first touch costs a page fault, not a transfer.
    region.zero(0, len)?;
    context.register(&region, &cfg, None).map_err(api("registering the buffer"))
}

fn import_buffer(
    context: &Context,
    eid: Eid,
    peer: &Endpoint,
) -> Result<ImportedSegment, RunError> {
    let SegmentName { va, len, token_id, token } = peer.segment;
    let remote = RemoteSegment {
        ubva: Ubva { eid, uasid: peer.uasid, va },
        len,
        token_id: TokenId::new(token_id),
        policy: policy(token),
        access: SegmentAccess::REMOTE_ALL,
    };
    let segment = context.import_segment(&remote, SegmentAccess::REMOTE_ALL, Mapping::None);
    segment.map_err(api("importing the buffer of the peer"))
}

fn remote_jetty(test: &Test, id: JettyId, token: Option<u32>) -> RemoteJetty {
    let mode = test.mode.to_api();
    RemoteJetty {
        id,
        kind: if test.simplex { TargetKind::Jfr } else { TargetKind::Jetty },
        mode,
        order: OrderType::Default,
        policy: policy(token),
        tp: TpType::of(mode),
    }
}

fn policy(token: Option<u32>) -> TokenPolicy {
    token.map_or(TokenPolicy::None, |token| TokenPolicy::PlainText(Token::new(token)))
}

fn send_cfg(test: &Test) -> JfsCfg {
    JfsCfg {
        max_inline: test.inline,
        priority: test.priority,
        err_timeout: test.err_timeout,
        ..JfsCfg::new(test.mode.to_api(), test.jfs_depth)
    }
}

fn recv_cfg(test: &Test) -> JfrCfg {
    let policy = policy(test.token.then_some(TOKEN));
    let min_rnr_timer = if test.verify { RNR_TIMER_VERIFIED } else { RNR_TIMER };
    JfrCfg { policy, min_rnr_timer, ..JfrCfg::new(test.mode.to_api(), test.jfr_depth) }
}

/// Refuses when the way found is not the way asked for.
fn check_way(way: Way, found: PathKind) -> Result<(), Refusal> {
    let is_right = match way {
        Way::Auto => true,
        Way::SameHost => matches!(found, PathKind::SameHost | PathKind::Local),
        Way::Packets => found == PathKind::Packets,
    };
    if is_right {
        return Ok(());
    }
    Err(Refusal(format!("--path asks for {way:?}, the device found {found:?}")))
}
