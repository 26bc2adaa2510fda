//! One end: its objects, and its imports of the other end.
//!
//! *Owns*: posting and polling in one line each. *Must not*: judge a completion beyond what its
//! name says.

use std::{net::IpAddr, sync::Arc};

use ubcore_sim::node::Node;
use urma_core::{
    Completion, Context, CrStatus, Eid, ImportedSegment, Jetty, JettyId, Jfc, Jfce, LocalSge,
    Mapping, PostError, RecvWr, RemoteAddr, RemoteJetty, RemoteSegment, Segment, SegmentAccess,
    SendOp, SendWr, Status, TargetJetty, TokenId, Ubva, WrFlags,
};

use super::{
    DeviceOrigin, Face, Failure, Memory, Outcome, Setup, fail, quiet, same, until,
    wait::{Queue, Sleeper},
};

/// The objects of an end.
#[derive(Debug)]
pub struct Half {
    /// Jetty of this end, in the mode of the setup.
    pub jetty: Jetty,
    /// Where its sends complete.
    pub jfc: Jfc,
    /// Where its receives complete.
    pub recv_jfc: Jfc,
    /// Event channel of both JFCs.
    pub jfce: Jfce,
    /// All of its memory, registered.
    pub seg: Segment,
    /// Memory that the segment registers.
    pub mem: Memory,
    /// Context that everything is made from.
    pub ctx: Arc<Context>,
    /// What serves the context.
    pub origin: DeviceOrigin,
}

impl Half {
    /// The node of this end; its device serves the context.
    ///
    /// # Panics
    /// The device is in another process.
    #[must_use]
    pub fn node(&self) -> &Arc<Node> {
        self.origin.node()
    }

    /// What another process needs to reach it, as words of a line.
    #[must_use]
    pub fn words(&self) -> String {
        let (jetty, seg) = (self.jetty.remote(), self.seg.remote());
        let (ip, id) = (jetty.id.eid.to_ip(), jetty.id.id);
        format!("{ip} {id} {} {} {}", seg.ubva.va, seg.len, seg.token_id.value())
    }

    /// The half of another process that printed `words`, and that is like this one but for its names.
    ///
    /// # Errors
    /// They are not those of [`Half::words`].
    pub fn named(&self, words: &str) -> Outcome<(RemoteJetty, RemoteSegment)> {
        let words: Vec<&str> = words.split_whitespace().collect();
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok());
        let ip = words.first().and_then(|word| word.parse::<IpAddr>().ok());
        let numbers = [1, 2, 3, 4].map(number);
        let (Some(ip), [Some(id), Some(va), Some(len), Some(token_id)]) = (ip, numbers) else {
            return fail(format!("not how to reach a peer: {words:?}"));
        };
        let low = |number| u32::try_from(number).unwrap_or(u32::MAX);
        let (own, seg, eid) = (self.jetty.remote(), self.seg.remote(), Eid::from(ip));
        let jetty = RemoteJetty { id: JettyId { eid, id: low(id), ..own.id }, ..own };
        let ubva = Ubva { eid, va, ..seg.ubva };
        Ok((jetty, RemoteSegment { ubva, len, token_id: TokenId::new(low(token_id)), ..seg }))
    }
}

/// An end that has imported the other.
#[derive(Debug)]
pub struct End {
    /// The other end's jetty.
    pub target: TargetJetty,
    /// The other end's memory.
    pub remote: ImportedSegment,
    /// Objects that this end owns.
    pub half: Half,
    next_ctx: u64,
    /// Only where it learns of completions by the descriptor.
    sleeper: Option<Sleeper>,
}

/// What requests are built from.
#[derive(Clone, Copy, Debug)]
pub struct Kit<'a> {
    /// Segment of this end, as local memory of requests.
    pub seg: &'a Segment,
    /// The other end's segment.
    pub remote: &'a ImportedSegment,
    /// The other end's jetty.
    pub target: &'a TargetJetty,
}

impl<'a> Kit<'a> {
    /// `len` own bytes at `offset`.
    #[must_use]
    pub fn sge(&self, offset: usize, len: usize) -> LocalSge<'a> {
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        LocalSge { segment: self.seg, addr: self.seg.va() + offset as u64, len }
    }

    /// A place in the other end's memory.
    #[must_use]
    pub fn at(&self, offset: usize) -> RemoteAddr<'a> {
        RemoteAddr { segment: self.remote, addr: self.remote.va() + offset as u64 }
    }

    /// Returns a request with a completion for its success, too.
    #[must_use]
    pub fn wr(&self, op: SendOp<'a>, user_ctx: u64) -> SendWr<'a> {
        SendWr::new(op, self.target, user_ctx)
    }

    /// A request with flags.
    #[must_use]
    pub fn flagged(&self, op: SendOp<'a>, flags: WrFlags, user_ctx: u64) -> SendWr<'a> {
        SendWr { flags, ..SendWr::new(op, self.target, user_ctx) }
    }
}

impl End {
    /// An end that imported the other end's jetty and memory.
    ///
    /// # Errors
    /// What the API refused, or that the other end is not there.
    pub fn new(
        half: Half,
        target: &RemoteJetty,
        segment: &RemoteSegment,
        access: SegmentAccess,
    ) -> Outcome<Self> {
        let target = reached("the other end's jetty", || half.ctx.import_jetty(target))?;
        let import = || half.ctx.import_segment(segment, access, Mapping::None);
        let remote = reached("the other end's memory", import)?;
        Ok(Self { target, remote, half, next_ctx: 1, sleeper: None })
    }

    /// From now on it sleeps on the descriptor of its JFCE for each completion.
    ///
    /// # Errors
    /// A JFC could not be armed.
    pub fn sleep(&mut self) -> Outcome {
        self.sleeper = Some(Sleeper::begin(&mut self.half)?);
        Ok(())
    }

    /// The jetty, and what requests are built from.
    pub fn parts(&mut self) -> (&mut Jetty, Kit<'_>) {
        let Self { target, remote, half, .. } = self;
        (&mut half.jetty, Kit { seg: &half.seg, remote, target })
    }

    /// Returns the memory that the segment registers.
    #[must_use]
    pub fn mem(&self) -> &Memory {
        &self.half.mem
    }

    /// A new number for a request.
    pub fn fresh_ctx(&mut self) -> u64 {
        self.next_ctx += 1;
        self.next_ctx - 1
    }

    /// Posts one signalled request.
    ///
    /// # Errors
    /// It was refused.
    #[track_caller]
    pub fn post<'w>(&'w mut self, build: impl FnOnce(Kit<'w>) -> SendOp<'w>) -> Outcome<u64> {
        self.post_flagged(WrFlags::COMPLETE, build)
    }

    /// Posts one request with flags.
    ///
    /// # Errors
    /// It was refused.
    #[track_caller]
    pub fn post_flagged<'w>(
        &'w mut self,
        flags: WrFlags,
        build: impl FnOnce(Kit<'w>) -> SendOp<'w>,
    ) -> Outcome<u64> {
        let ctx = self.fresh_ctx();
        let (jetty, kit) = self.parts();
        jetty.post_send(&[kit.flagged(build(kit), flags, ctx)])?;
        Ok(ctx)
    }

    /// Posts WRITE of `len` bytes.
    ///
    /// # Errors
    /// It was refused.
    #[track_caller]
    pub fn write(&mut self, from: usize, to: usize, len: usize) -> Outcome<u64> {
        Ok(self.try_write(WrFlags::COMPLETE, (from, to, len))?)
    }

    /// Posts WRITE of `(from, to, len)`.
    ///
    /// # Errors
    /// It was refused.
    pub fn try_write(
        &mut self,
        flags: WrFlags,
        (from, to, len): (usize, usize, usize),
    ) -> Result<u64, PostError> {
        let ctx = self.fresh_ctx();
        let (jetty, kit) = self.parts();
        let op = SendOp::Write { src: &[kit.sge(from, len)], dst: kit.at(to) };
        jetty.post_send(&[kit.flagged(op, flags, ctx)])?;
        Ok(ctx)
    }

    /// Posts READ of `len` bytes to own offset `to`.
    ///
    /// # Errors
    /// It was refused.
    #[track_caller]
    pub fn read(&mut self, from: usize, to: usize, len: usize) -> Outcome<u64> {
        let ctx = self.fresh_ctx();
        let (jetty, kit) = self.parts();
        let op = SendOp::Read { dst: &[kit.sge(to, len)], src: kit.at(from) };
        jetty.post_send(&[kit.wr(op, ctx)])?;
        Ok(ctx)
    }

    /// Posts SEND of `len` bytes; none when `len` is 0.
    ///
    /// # Errors
    /// It was refused.
    #[track_caller]
    pub fn send(&mut self, from: usize, len: usize) -> Outcome<u64> {
        Ok(self.try_send(WrFlags::COMPLETE, from, len)?)
    }

    /// Posts SEND of `len` bytes.
    ///
    /// # Errors
    /// It was refused.
    pub fn try_send(&mut self, flags: WrFlags, from: usize, len: usize) -> Result<u64, PostError> {
        let ctx = self.fresh_ctx();
        let (jetty, kit) = self.parts();
        let sges = [kit.sge(from, len)];
        let src: &[LocalSge<'_>] = if len == 0 { &[] } else { &sges };
        jetty.post_send(&[kit.flagged(SendOp::Send { src }, flags, ctx)])?;
        Ok(ctx)
    }

    /// Posts a receive of `len` bytes.
    ///
    /// # Errors
    /// It was refused.
    #[track_caller]
    pub fn recv(&mut self, to: usize, len: usize) -> Outcome<u64> {
        Ok(self.try_recv(to, len)?)
    }

    /// Posts a receive of `len` bytes; without room when `len` is 0.
    ///
    /// # Errors
    /// It was refused.
    pub fn try_recv(&mut self, to: usize, len: usize) -> Result<u64, PostError> {
        let user_ctx = self.fresh_ctx();
        let (jetty, kit) = self.parts();
        let sges = [kit.sge(to, len)];
        let dst: &[LocalSge<'_>] = if len == 0 { &[] } else { &sges };
        jetty.post_recv(&[RecvWr { dst, user_ctx }])?;
        Ok(user_ctx)
    }

    /// The next send completion.
    ///
    /// # Errors
    /// None came.
    #[track_caller]
    pub fn sent(&mut self) -> Outcome<Completion> {
        self.next(Queue::Send, "send completion")
    }

    /// The next receive completion.
    ///
    /// # Errors
    /// None came.
    #[track_caller]
    pub fn received(&mut self) -> Outcome<Completion> {
        self.next(Queue::Recv, "receive completion")
    }

    /// The next send completion has this status.
    ///
    /// # Errors
    /// None came, or another.
    #[track_caller]
    pub fn sent_as(&mut self, status: CrStatus) -> Outcome<Completion> {
        let done = self.sent()?;
        same("status of the send", done.status, status)?;
        Ok(done)
    }

    /// The next receive completion has this status.
    ///
    /// # Errors
    /// None came, or another.
    #[track_caller]
    pub fn received_as(&mut self, status: CrStatus) -> Outcome<Completion> {
        let done = self.received()?;
        same("status of the receive", done.status, status)?;
        Ok(done)
    }

    /// The next send completion is the success of request `ctx`.
    ///
    /// # Errors
    /// None came, or another.
    #[track_caller]
    pub fn sent_ok(&mut self, ctx: u64) -> Outcome<Completion> {
        let done = self.sent_as(CrStatus::Success)?;
        same("user context of the send", done.user_ctx, ctx)?;
        Ok(done)
    }

    /// The next receive completion is the success of receive `ctx`.
    ///
    /// # Errors
    /// None came, or another.
    #[track_caller]
    pub fn received_ok(&mut self, ctx: u64) -> Outcome<Completion> {
        let done = self.received_as(CrStatus::Success)?;
        same("user context of the receive", done.user_ctx, ctx)?;
        Ok(done)
    }

    /// No send completes for a while.
    ///
    /// # Errors
    /// One did.
    #[track_caller]
    pub fn nothing_sent(&mut self) -> Outcome {
        self.nothing(Queue::Send, "send completion")
    }

    /// No receive completes for a while.
    ///
    /// # Errors
    /// One did.
    #[track_caller]
    pub fn nothing_received(&mut self) -> Outcome {
        self.nothing(Queue::Recv, "receive completion")
    }

    #[track_caller]
    fn next(&mut self, queue: Queue, what: &str) -> Outcome<Completion> {
        match (&mut self.sleeper, queue) {
            (Some(sleeper), queue) => sleeper.next(&mut self.half, queue, what),
            (None, Queue::Send) => next(&mut self.half.jfc, what),
            (None, Queue::Recv) => next(&mut self.half.recv_jfc, what),
        }
    }

    #[track_caller]
    fn nothing(&mut self, queue: Queue, what: &str) -> Outcome {
        match (&mut self.sleeper, queue) {
            (Some(sleeper), queue) => match sleeper.quiet(&mut self.half, queue)? {
                Some(found) => fail(format!("{what}: nothing was due, {found:?} came")),
                None => Ok(()),
            },
            (None, Queue::Send) => nothing(&mut self.half.jfc, what),
            (None, Queue::Recv) => nothing(&mut self.half.recv_jfc, what),
        }
    }

    /// So many receives are posted and not consumed. C has no call for the fill of a queue, so that
    /// nothing is looked at there.
    ///
    /// # Errors
    /// There are more or fewer.
    #[track_caller]
    pub fn receives_left(&self, setup: Setup, wanted: u32) -> Outcome {
        match setup.face {
            Face::Rust => same("receives", self.half.jetty.query()?.recv_pending, wanted),
            Face::C => Ok(()),
        }
    }

    /// A counter of its device.
    ///
    /// # Errors
    /// There is no such counter.
    #[track_caller]
    pub fn counter(&self, name: &str) -> Outcome<u64> {
        let counters = match self.half.ctx.counters() {
            // C has no function for them; the node has them.
            Err(status) if status == Status::Unsupported => {
                let counters = self.half.node().device().counters().into_iter();
                counters.map(|(name, value)| (name.into(), value)).collect()
            }
            answer => answer?,
        };
        let found = counters.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| *value).ok_or_else(|| Failure::new(format!("no counter {name}")))
    }
}

/// What `import` gives: a peer whose thread gets no core for a while is asked again, because the
/// bound of one attempt says nothing about it.
///
/// # Errors
/// It was refused, or the peer does not answer at all.
#[track_caller]
pub fn reached<T>(what: &str, import: impl Fn() -> Result<T, Status>) -> Outcome<T> {
    until(what, || match import() {
        Ok(imported) => Ok(Some(imported)),
        Err(status) if status == Status::TimedOut => Ok(None),
        Err(status) => Err(status.into()),
    })
}

/// The next completion of a JFC.
///
/// # Errors
/// None came.
#[track_caller]
pub fn next(jfc: &mut Jfc, what: &str) -> Outcome<Completion> {
    until(what, || Ok(jfc.poll_one()?))
}

/// No completion for a while.
///
/// # Errors
/// One came.
#[track_caller]
pub fn nothing(jfc: &mut Jfc, what: &str) -> Outcome {
    quiet(what, || Ok(jfc.poll_one()?))
}
