//! The URMA objects of one run, on one side.
//!
//! *Owns*: context, buffer, queues, and what was imported of the peer. *Takes*: the plan, the
//! peer's [`Endpoint`]. *Gives*: lanes to post to, channels to poll. *Must not*: measure.

use std::{borrow::Cow, time::Duration};

use urma::{
    Context, Eid, ImportedSegment, Jetty, JettyCfg, JettyId, JettyRecv, JfcCfg, JfcFlags, Jfr,
    JfrCfg, Jfs, JfsCfg, Mapping, PathKind, RecvWr, RemoteJetty, RemoteSegment, Segment,
    SegmentAccess, SegmentCfg, SendWr, TargetJetty, TargetKind, Token, TokenId, TokenPolicy,
    TpType, Ubva,
};
use urma::{Pages, Region};

use crate::{
    channel::{CompletionChannel, EventMode, Failures},
    cli::PathArg,
    error::{RunError, api},
    layout::Layout,
    oob::{Endpoint, OobSegment},
    plan::{Plan, PlanRefusal, Test, TestMode},
};

/// How long a sender waits when the receiver is behind: code of 2.56 ms. Seven retries must outlast
/// a receiver that lost its core for a time slice.
const RNR_TIMER: u8 = 16;
/// The same for a receiver that checks every byte: code of 81.92 ms.
const RNR_TIMER_VERIFIED: u8 = 26;

/// Queue that requests are posted to.
#[derive(Debug)]
pub(crate) enum Lane {
    /// A jetty, which sends and receives.
    Jetty(Jetty),
    /// A JFS, which only sends.
    Jfs(Jfs),
}

impl Lane {
    /// Posts the requests in their order.
    #[inline]
    pub(crate) fn post(&mut self, wrs: &[SendWr<'_>]) -> Result<(), urma::PostError> {
        match self {
            Self::Jetty(jetty) => jetty.post_send(wrs),
            Self::Jfs(jfs) => jfs.post_send(wrs),
        }
    }
}

/// What requests name: my buffer, the peer's, and the peer's queues.
#[derive(Debug)]
pub(crate) struct SessionObjects {
    /// My buffer: once, or once per jetty.
    segments: Vec<Segment>,
    /// The peer's buffer, likewise.
    remotes: Vec<ImportedSegment>,
    /// The peer's queues, one per lane.
    pub(crate) targets: Vec<TargetJetty>,
}

impl SessionObjects {
    /// Returns the memory of this side.
    #[inline]
    pub(crate) fn region(&self) -> &Region {
        self.segment(0).region()
    }

    /// Returns this side's segment of `lane`.
    #[inline]
    pub(crate) fn segment(&self, lane: usize) -> &Segment {
        &self.segments[lane.min(self.segments.len() - 1)]
    }

    /// Returns the imported segment of the peer for `lane`.
    #[inline]
    pub(crate) fn remote(&self, lane: usize) -> &ImportedSegment {
        &self.remotes[lane.min(self.remotes.len() - 1)]
    }

    /// What carries requests to the peer.
    pub(crate) fn path(&self) -> PathKind {
        self.remote(0).path().kind
    }
}

/// What is posted to and polled. Fields are dropped in order.
#[derive(Debug)]
pub(crate) struct PostedQueues {
    /// Queues that requests are posted to, one per lane.
    pub(crate) lanes: Vec<Lane>,
    /// JFRs that jetties share; none when every jetty has its own.
    jfrs: Vec<Jfr>,
    /// Completions of all sends.
    pub(crate) sends: CompletionChannel,
    /// Completions of all receives.
    pub(crate) receives: CompletionChannel,
}

impl PostedQueues {
    /// Requests that failed since the last call.
    pub(crate) fn failed(&mut self) -> u64 {
        std::mem::take(&mut self.sends.errors) + std::mem::take(&mut self.receives.errors)
    }

    /// Posts receives to shared JFR number `queue`, or to the own one of that jetty.
    #[inline]
    pub(crate) fn post_recv(&mut self, queue: usize, wrs: &[RecvWr<'_>]) -> Result<(), RunError> {
        match (self.jfrs.get_mut(queue), self.lanes.get_mut(queue)) {
            (Some(jfr), _) => Ok(jfr.post_recv(wrs)?),
            (None, Some(Lane::Jetty(jetty))) => Ok(jetty.post_recv(wrs)?),
            (None, _) => Err(RunError::Request("a JFS does not receive".to_owned())),
        }
    }
}

/// The objects of one side before the exchange with the peer. Fields are dropped in order.
#[derive(Debug)]
pub(crate) struct Side {
    ends: PostedQueues,
    segments: Vec<Segment>,
    /// Guards segments and queues under `-K 1`.
    token: Option<Token>,
    context: Context,
}

/// Everything of one side, connected. Fields are dropped in order.
#[derive(Debug)]
pub(crate) struct Session {
    /// What is posted to and polled.
    pub(crate) ends: PostedQueues,
    /// Segments and targets that requests name.
    pub(crate) objects: SessionObjects,
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
        let token = test.token.then(draw_token).transpose()?;
        let segments = register(&context, test, token)?;
        let events = if test.events { EventMode::On } else { EventMode::Off };
        let events = (events, Duration::from_millis(u64::from(plan.event_wait_ms)));
        let failures = if test.err_continue { Failures::Counted } else { Failures::Fatal };
        let jfc = JfcCfg::new(test.jfc_depth);
        let sends = CompletionChannel::open(&context, &jfc, events, failures)?;
        let inline = if test.jfc_inline { JfcFlags::INLINE } else { JfcFlags::empty() };
        let receives = JfcCfg { flags: inline, ..jfc };
        let receives = CompletionChannel::open(&context, &receives, events, failures)?;
        let count = if test.share_jfr || test.simplex { test.jfrs() } else { 0 };
        let jfrs = (0..count).map(|index| {
            let id = if test.simplex { numbered(plan.jetty_id, index) } else { 0 };
            let cfg = JfrCfg { id, ..recv_cfg(test, token) };
            context.create_jfr(&cfg, &receives.jfc).map_err(api("creating a JFR"))
        });
        let jfrs = jfrs.collect::<Result<_, _>>()?;
        let ends = PostedQueues { lanes: Vec::new(), jfrs, sends, receives };
        let mut side = Self { ends, segments, token, context };
        for index in 0..test.jettys {
            let lane = side.lane(plan, index)?;
            side.ends.lanes.push(lane);
        }
        Ok(side)
    }

    fn lane(&self, plan: &Plan, index: u32) -> Result<Lane, RunError> {
        let test = &plan.test;
        let send = send_cfg(test);
        if test.simplex {
            let jfs = self.context.create_jfs(&send, &self.ends.sends.jfc);
            return jfs.map(Lane::Jfs).map_err(api("creating a JFS"));
        }
        let recv = match self.ends.jfrs.get(shared_jfr(test, index)) {
            Some(jfr) => JettyRecv::Shared { jfr, jfc: Some(&self.ends.receives.jfc) },
            None => {
                JettyRecv::Own { cfg: recv_cfg(test, self.token), jfc: &self.ends.receives.jfc }
            }
        };
        let cfg = JettyCfg::new(send, &self.ends.sends.jfc, recv);
        let cfg = JettyCfg { id: numbered(plan.jetty_id, index), ..cfg };
        let jetty = self.context.create_jetty(&cfg);
        jetty.map(Lane::Jetty).map_err(api("creating a jetty"))
    }

    /// What the peer needs to import.
    pub(crate) fn endpoint(&self, test: &Test) -> Endpoint {
        let sources = self.ends.lanes.iter().map(|lane| match lane {
            Lane::Jetty(jetty) => jetty.id().id,
            Lane::Jfs(jfs) => jfs.id().id,
        });
        let sources: Vec<u32> = sources.collect();
        let jfr = |lane| self.ends.jfrs.get(shared_jfr(test, lane)).map(|jfr| jfr.id().id);
        let queues =
            if test.simplex { (0..test.jettys).filter_map(jfr).collect() } else { sources.clone() };
        let segment = |segment: &Segment| OobSegment {
            va: segment.va(),
            len: segment.len(),
            token_id: segment.token_id().value(),
            token: segment.token().map(Token::value),
        };
        Endpoint {
            eid: self.context.eid().to_string(),
            uasid: self.context.uasid(),
            queues,
            sources,
            queue_token: self.token.map(Token::value),
            segments: self.segments.iter().map(segment).collect(),
        }
    }

    /// Imports the peer's buffer and queues; binds RC jetties.
    pub(crate) fn connect(self, plan: &Plan, peer: &Endpoint) -> Result<Session, RunError> {
        let test = &plan.test;
        let Self { mut ends, segments, context, .. } = self;
        let eid: Eid = peer.eid.parse().map_err(|error| {
            RunError::Refused(PlanRefusal(format!("the peer's EID {:?}: {error}", peer.eid)))
        })?;
        if let Some(wanted) = plan.peer_eid.filter(|wanted| *wanted != eid) {
            return Err(
                PlanRefusal(format!("--dip asks for {wanted}, the peer's node is {eid}")).into()
            );
        }
        let remotes =
            peer.segments.iter().map(|name| import_buffer(&context, eid, peer.uasid, name));
        let remotes = remotes.collect::<Result<Vec<_>, _>>()?;
        let has_right_len = remotes.len() == segments.len()
            && remotes.iter().zip(&segments).all(|(remote, segment)| remote.len() == segment.len());
        let Some(remote) = remotes.first().filter(|_| has_right_len) else {
            return Err(PlanRefusal("the peer has another buffer".to_owned()).into());
        };
        check_path(test.path, remote.path().kind)?;
        let mut targets = Vec::with_capacity(ends.lanes.len());
        for (lane, id) in ends.lanes.iter_mut().zip(&peer.queues) {
            let id = JettyId { eid, uasid: peer.uasid, id: *id };
            let target =
                context.import_jetty(&remote_jetty(test, id, peer.queue_token.map(Token::new)));
            let target = target.map_err(api("importing a queue of the peer"))?;
            if let (TestMode::Rc, Lane::Jetty(jetty)) = (test.mode, lane) {
                jetty.bind(&target).map_err(api("binding a jetty"))?;
            }
            targets.push(target);
        }
        let (have, want) = (targets.len().min(peer.sources.len()), ends.lanes.len());
        if have != want {
            let why = format!("the peer has {have} queues, this side {want}");
            return Err(PlanRefusal(why).into());
        }
        let objects = SessionObjects { segments, remotes, targets };
        Ok(Session { ends, objects, sources: peer.sources.clone(), context })
    }
}

impl Session {
    /// The device's counters now.
    pub(crate) fn counters(&self) -> Result<Vec<(Cow<'static, str>, u64)>, RunError> {
        self.context.counters().map_err(api("reading the counters"))
    }
}

/// The shared JFR of a lane.
fn shared_jfr(test: &Test, lane: u32) -> usize {
    usize::try_from(lane / test.lanes_per_jfr.max(1)).unwrap_or(usize::MAX)
}

/// Number of queue `index` when the first shall have `first`; 0 = any.
const fn numbered(first: u32, index: u32) -> u32 {
    if first == 0 { 0 } else { first + index }
}

/// A token of this run, from the system's generator.
fn draw_token() -> Result<Token, RunError> {
    let mut random = [0; 4];
    let what = "drawing a token";
    getrandom::fill(&mut random)
        .map_err(|error| RunError::System { what, error: std::io::Error::other(error) })?;
    Ok(Token::new(u32::from_le_bytes(random)))
}

fn register(
    context: &Context,
    test: &Test,
    token: Option<Token>,
) -> Result<Vec<Segment>, RunError> {
    let layout = Layout::of(test, test.sizes.first().copied().unwrap_or(1))?;
    let len = usize::try_from(layout.buffer_len()).unwrap_or(usize::MAX);
    let region = if test.huge { Region::shared(len, Pages::Huge2M) } else { Region::private(len) };
    let what = if test.huge {
        "allocating huge pages (has the machine reserved any?)"
    } else {
        "allocating the buffer"
    };
    let region = region.map_err(|error| RunError::System { what, error })?;
    let cfg = SegmentCfg::new(SegmentAccess::REMOTE_ALL);
    let cfg = token.map_or(cfg, |token| cfg.with_token(token));
    // Touched before it is registered: a first touch costs a page fault, not a transfer.
    region.zero(0, len)?;
    let count = if test.lane_segments { test.jettys } else { 1 };
    let segment = |_| context.register(&region, &cfg, None).map_err(api("registering the buffer"));
    (0..count).map(segment).collect()
}

fn import_buffer(
    context: &Context,
    eid: Eid,
    uasid: u32,
    name: &OobSegment,
) -> Result<ImportedSegment, RunError> {
    let OobSegment { va, len, token_id, token } = *name;
    let remote = RemoteSegment {
        ubva: Ubva { eid, uasid, va },
        len,
        token_id: TokenId::new(token_id),
        policy: policy(token.map(Token::new)),
        access: SegmentAccess::REMOTE_ALL,
    };
    let segment = context.import_segment(&remote, SegmentAccess::REMOTE_ALL, Mapping::None);
    segment.map_err(|status| match urma::why_unreached(context.eid(), eid, status) {
        Some(why) => RunError::NoPath { eid, why },
        None => api("importing the buffer of the peer")(status),
    })
}

fn remote_jetty(test: &Test, id: JettyId, token: Option<Token>) -> RemoteJetty {
    let mode = test.mode.to_api();
    RemoteJetty {
        id,
        kind: if test.simplex { TargetKind::Jfr } else { TargetKind::Jetty },
        mode,
        order: test.order(),
        policy: policy(token),
        tp: if test.ctp { TpType::Ctp } else { TpType::of(mode) },
    }
}

fn policy(token: Option<Token>) -> TokenPolicy {
    token.map_or(TokenPolicy::None, TokenPolicy::PlainText)
}

fn send_cfg(test: &Test) -> JfsCfg {
    JfsCfg {
        max_inline: test.inline,
        priority: test.priority,
        err_timeout: test.err_timeout,
        order: test.order(),
        max_sge: u8::try_from(test.sges).unwrap_or(u8::MAX),
        ..JfsCfg::new(test.mode.to_api(), test.jfs_depth)
    }
}

fn recv_cfg(test: &Test, token: Option<Token>) -> JfrCfg {
    let policy = policy(token);
    let min_rnr_timer = if test.verify { RNR_TIMER_VERIFIED } else { RNR_TIMER };
    JfrCfg {
        policy,
        min_rnr_timer,
        order: test.order(),
        ..JfrCfg::new(test.mode.to_api(), test.jfr_depth)
    }
}

/// Refuses when the path found is not the one asked for.
fn check_path(asked: PathArg, found: PathKind) -> Result<(), PlanRefusal> {
    let is_right = match asked {
        PathArg::Auto => true,
        PathArg::SameHost => matches!(found, PathKind::SameHost | PathKind::Local),
        PathArg::Packets => found == PathKind::Packets,
    };
    if is_right {
        return Ok(());
    }
    Err(PlanRefusal(format!("--path asks for {asked:?}, the device found {found:?}")))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::PerftestCli;

    fn plan(line: &str) -> Plan {
        let words = std::iter::once("urma_perftest").chain(line.split_whitespace());
        Plan::of(&PerftestCli::try_parse_from(words).unwrap()).unwrap()
    }

    /// One side of `line` on a node of its own.
    fn side(line: &str) -> (Plan, Side) {
        let plan = plan(line);
        let opened = urma::open_node(urma::NodeCfg::default()).unwrap();
        let side = Side::open(opened.context, &plan).unwrap();
        (plan, side)
    }

    fn endpoint(line: &str) -> Endpoint {
        let (plan, side) = side(line);
        side.endpoint(&plan.test)
    }

    #[test]
    fn queues_have_the_numbers_that_were_asked_for() {
        let named = endpoint("send_bw -J 3 --jetty_id 2000");
        assert_eq!((named.queues, named.sources), (vec![2000, 2001, 2002], vec![2000, 2001, 2002]));
        let any = endpoint("send_bw -J 3");
        assert!(any.queues == any.sources && any.queues.iter().all(|id| *id != 0), "{any:?}");
        // Two JFSs for each JFR, whose numbers are those that were asked for.
        let simplex = endpoint("send_bw -b -J 4 --jettys_pre_jfr 2 --jetty_id 2100");
        assert_eq!(simplex.queues, [2100, 2100, 2101, 2101]);
        let mut sources = simplex.sources.clone();
        sources.sort_unstable();
        sources.dedup();
        assert_eq!(sources.len(), 4, "{simplex:?}");
        assert!(sources.iter().all(|id| !simplex.queues.contains(id)), "{simplex:?}");
    }

    #[test]
    fn receive_queues_are_shared_as_was_asked_for() {
        for (line, wanted) in [
            ("send_bw -J 6", 1),
            ("send_bw -J 6 --jettys_pre_jfr 2", 3),
            ("send_bw -J 6 -j false", 0),
            ("send_bw -J 6 -p 1", 0),
            ("send_bw -J 6 -b --jettys_pre_jfr 3", 2),
        ] {
            let (plan, mut side) = side(line);
            assert_eq!(side.ends.jfrs.len(), wanted, "{line}");
            let of_lanes: Vec<usize> = (0..6).map(|lane| shared_jfr(&plan.test, lane)).collect();
            let of = [[0; 6], [0; 6], [0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 2, 2]][wanted];
            assert_eq!(of_lanes, of, "{line}");
            let segment = &side.segments[0];
            let sge = [urma::LocalSge { segment, addr: segment.va(), len: 8 }];
            let receive = [RecvWr { dst: &sge, user_ctx: 1 }];
            side.ends.post_recv(0, &receive).unwrap();
            if line.contains("-b") {
                let refused = side.ends.post_recv(wanted, &receive).unwrap_err().to_string();
                assert!(refused.contains("a JFS does not receive"), "{refused}");
            }
        }
    }

    #[test]
    fn buffers_and_tokens_are_those_of_the_options() {
        let plain = endpoint("write_bw -s 4096");
        assert_eq!((plain.queue_token, plain.segments.len()), (None, 1));
        assert!(plain.segments[0].token.is_none() && plain.segments[0].va != 0);
        let guarded = endpoint("write_bw -s 4096 -J 3 --seg_pre_jetty -K 1");
        assert_eq!(guarded.segments.len(), 3);
        assert!(guarded.segments.iter().all(|one| one.token == guarded.queue_token), "{guarded:?}");
        assert!(guarded.queue_token.is_some());
        let mut ids: Vec<u32> = guarded.segments.iter().map(|one| one.token_id).collect();
        ids.dedup();
        assert_eq!(ids.len(), 3, "each is a segment of its own: {guarded:?}");
        let (first, second) = (&guarded.segments[0], &guarded.segments[1]);
        assert_eq!((first.va, first.len), (second.va, second.len), "of the same memory");
    }

    #[test]
    fn a_peer_that_does_not_fit_is_refused() {
        let refused = |line: &str, spoil: &dyn Fn(&mut Endpoint)| {
            let (plan, here) = side(line);
            let (_, there) = side("send_bw -J 2");
            let mut peer = there.endpoint(&plan.test);
            spoil(&mut peer);
            here.connect(&plan, &peer).map(|_| ()).unwrap_err().to_string()
        };
        for (line, spoil, word) in [
            (
                "send_bw -J 2",
                &(|peer: &mut Endpoint| peer.eid = "x".to_owned()) as &dyn Fn(&mut Endpoint),
                "the peer's EID \"x\"",
            ),
            ("send_bw -J 2", &|peer| peer.segments.clear(), "another buffer"),
            ("send_bw -J 2", &|peer| peer.segments.push(peer.segments[0]), "another buffer"),
            ("send_bw -J 2", &|peer| peer.segments[0].len -= 64, "another buffer"),
            ("send_bw -J 2", &|peer| peer.queues.truncate(1), "the peer has 1 queues, this side 2"),
            (
                "send_bw -J 2",
                &|peer| peer.sources.truncate(1),
                "the peer has 1 queues, this side 2",
            ),
            ("send_bw -J 2 --dip 127.99.1.1", &|_| (), "--dip asks for 127.99.1.1"),
            ("send_bw -J 2 --path packets", &|_| (), "--path asks for Packets"),
        ] {
            let why = refused(line, spoil);
            assert!(why.contains(word), "{line}: {why}");
        }
    }

    #[test]
    fn sides_that_fit_are_connected_lane_by_lane() {
        for line in [
            "send_bw -J 3",
            "send_bw -J 3 -p 1",
            "write_bw -J 3 --seg_pre_jetty -K 1",
            "send_bw -J 3 -b",
        ] {
            let ((plan, here), (_, there)) = (side(line), side(line));
            let (mine, peer) = (here.endpoint(&plan.test), there.endpoint(&plan.test));
            let session = here.connect(&plan, &peer).unwrap();
            assert_eq!(session.sources, peer.sources, "{line}");
            let targets = session.objects.targets.iter().map(|target| target.target().id.id);
            assert_eq!(targets.collect::<Vec<_>>(), peer.queues, "{line}");
            for lane in 0..3 {
                // The last one serves the lanes behind it, too.
                let at = lane.min(peer.segments.len() - 1);
                assert_eq!(session.objects.remote(lane).ubva().va, peer.segments[at].va, "{line}");
                let id = session.objects.segment(lane).token_id().value();
                assert_eq!(id, mine.segments[at].token_id, "{line}");
            }
            assert_eq!(session.objects.path(), PathKind::SameHost, "{line}");
            assert!(session.counters().unwrap().len() > 10);
        }
    }

    #[test]
    fn a_path_is_the_one_that_was_asked_for() {
        use PathKind::{Local, Packets, SameHost};
        for (asked, fits) in [
            (PathArg::Auto, &[Local, SameHost, Packets][..]),
            (PathArg::SameHost, &[Local, SameHost]),
            (PathArg::Packets, &[Packets]),
        ] {
            for found in [Local, SameHost, Packets] {
                assert_eq!(
                    check_path(asked, found).is_ok(),
                    fits.contains(&found),
                    "{asked:?} {found:?}"
                );
            }
        }
    }
}
