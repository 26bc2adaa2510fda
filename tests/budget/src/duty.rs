//! What the two processes do between start and end, and the node, jetty and memory that they do it with.
//!
//! Counts the allocations between start and end. Every wait has a bound. Must not sleep: the budget is of those
//! awake.

use std::{
    error::Error,
    fs,
    hint::black_box,
    net::IpAddr,
    str::{FromStr, SplitWhitespace},
    time::{Duration, Instant},
};

use urma_core::{
    Context, Eid, ImportedSegment, Jetty, JettyCfg, JettyId, JettyRecv, Jfc, JfcCfg, JfrCfg,
    JfsCfg, LocalSge, Mapping, RecvWr, RemoteAddr, RemoteJetty, RemoteSegment, Segment,
    SegmentAccess, SegmentCfg, SendOp, SendWr, Status, TargetJetty, Token, TokenId, TokenPolicy,
    TransportMode, Ubva,
};
use urma_mem::{Region, count::allocations, sync::spin_hint};

use crate::{Fault, Kind, allocations_since};

/// Operations before the start: what is made on first use is made here.
const WARM_UP: u64 = 1000;
/// Receives that are posted in advance.
const RECEIVES: u64 = 16;
/// Bytes of an operation.
const LEN: u32 = 8;
/// Word in which the client publishes its progress for the server.
const PHASE: u64 = 0;
/// Where a client's operations find and put their bytes.
const DATA: u64 = 64;
/// Value at [`PHASE`]: the start.
const STARTED: u64 = 1;
/// Value at [`PHASE`]: the end.
const ENDED: u64 = 2;
/// Longest time without a completion, after which the peer counts as gone. On a busy machine a run
/// of messages takes minutes: each needs both processes on a core at the same time, and neither
/// sleeps.
const LIMIT: Duration = Duration::from_secs(120);

/// A process at work.
#[derive(Debug)]
pub(crate) struct Work {
    end: End,
    peer: Peer,
    fault: Option<Fault>,
    limit: Instant,
    /// Completions when the clock was read last.
    seen: u64,
    polls: u64,
    sent: u64,
    received: u64,
}

impl Work {
    #[expect(clippy::disallowed_methods, reason = "this room bounds the waits")]
    pub(crate) fn new(end: End, peer: Peer, fault: Option<Fault>) -> Self {
        let limit = Instant::now() + LIMIT;
        Self { end, peer, fault, limit, seen: 0, polls: 0, sent: 0, received: 0 }
    }

    /// The client of operations in which the server takes no part.
    pub(crate) fn one_sided(&mut self, ops: u64, kind: Kind) -> Outcome<u64> {
        for index in 0..WARM_UP {
            self.one(index, kind)?;
        }
        self.tell(STARTED)?;
        let start = allocations();
        for index in 0..ops {
            self.one(index, kind)?;
            self.err_on_purpose(index);
        }
        let count = allocations_since(start);
        self.tell(ENDED)?;
        Ok(count)
    }

    /// The server of such operations: polls an empty JFC until the client is at the end.
    pub(crate) fn stand_by(&mut self) -> Outcome<u64> {
        let phase = usize::try_from(PHASE)?;
        while self.end.memory.load_u64(phase)? < STARTED {
            self.poll()?;
        }
        let start = allocations();
        while self.end.memory.load_u64(phase)? < ENDED {
            self.poll()?;
            self.err_on_purpose(self.polls);
        }
        Ok(allocations_since(start))
    }

    /// The client of messages: sends, and waits for the answer.
    pub(crate) fn ping(&mut self, ops: u64) -> Outcome<u64> {
        self.post_receives(RECEIVES)?;
        let mut start = 0;
        for index in 0..WARM_UP + ops {
            if index == WARM_UP {
                start = allocations();
            }
            self.send()?;
            self.wait(index + 1, index + 1)?;
            self.post_receives(1)?;
            self.err_on_purpose(index);
        }
        Ok(allocations_since(start))
    }

    /// The server of messages: waits for one, and answers.
    pub(crate) fn pong(&mut self, ops: u64) -> Outcome<u64> {
        self.post_receives(RECEIVES)?;
        let mut start = 0;
        for index in 0..WARM_UP + ops {
            if index == WARM_UP {
                start = allocations();
            }
            self.wait(index, index + 1)?;
            self.post_receives(1)?;
            self.send()?;
            self.err_on_purpose(index);
        }
        self.wait(WARM_UP + ops, WARM_UP + ops)?;
        Ok(allocations_since(start))
    }

    /// How often ping-pong mode began in this process.
    pub(crate) fn ping_pongs(&self) -> Outcome<u64> {
        let counters = self.end.context.counters()?;
        let found = counters.iter().find(|(name, _)| name == "ping-pongs");
        Ok(found.ok_or("no count of ping-pongs")?.1)
    }

    /// Operation `index`, to its completion.
    fn one(&mut self, index: u64, kind: Kind) -> Outcome<()> {
        let Self { end, peer, .. } = self;
        let local = LocalSge { segment: &end.segment, addr: end.segment.va() + DATA, len: LEN };
        let remote = RemoteAddr { segment: &peer.segment, addr: peer.segment.va() + DATA };
        let list = [local];
        let op = match (kind, index % 3) {
            (Kind::Mixed, 1) => SendOp::Read { dst: &list, src: remote },
            (Kind::Mixed, 2) => SendOp::FetchAdd { result: local, target: remote, value: 1 },
            _ => SendOp::Write { src: &list, dst: remote },
        };
        end.jetty.post_send(&[SendWr::new(op, &peer.target, index)])?;
        self.wait(self.sent + 1, 0)
    }

    /// Publishes the progress of this client for the server.
    fn tell(&mut self, phase: u64) -> Outcome<()> {
        let Self { end, peer, .. } = self;
        end.memory.store_u64(usize::try_from(PHASE)?, phase)?;
        let src = [LocalSge { segment: &end.segment, addr: end.segment.va() + PHASE, len: LEN }];
        let dst = RemoteAddr { segment: &peer.segment, addr: peer.segment.va() + PHASE };
        let op = SendOp::Write { src: &src, dst };
        end.jetty.post_send(&[SendWr::new(op, &peer.target, phase)])?;
        self.wait(self.sent + 1, 0)
    }

    fn send(&mut self) -> Outcome<()> {
        let Self { end, peer, .. } = self;
        let src = [LocalSge { segment: &end.segment, addr: end.segment.va() + DATA, len: LEN }];
        let request = SendWr::new(SendOp::Send { src: &src }, &peer.target, 0);
        Ok(end.jetty.post_send(&[request])?)
    }

    fn post_receives(&mut self, count: u64) -> Outcome<()> {
        let end = &mut self.end;
        let dst = [LocalSge { segment: &end.segment, addr: end.segment.va() + 2 * DATA, len: LEN }];
        for user_ctx in 0..count {
            end.jetty.post_recv(&[RecvWr { dst: &dst, user_ctx }])?;
        }
        Ok(())
    }

    /// Polls until so many requests were sent and so many messages received, in all.
    fn wait(&mut self, sent: u64, received: u64) -> Outcome<()> {
        while self.sent < sent || self.received < received {
            self.poll()?;
        }
        Ok(())
    }

    /// One look at the JFC.
    fn poll(&mut self) -> Outcome<()> {
        let Some(completion) = self.end.jfc.poll_one()? else {
            spin_hint();
            return self.check_limit();
        };
        if !completion.status.is_success() {
            return Err(completion.status.to_string().into());
        }
        if completion.is_recv() {
            self.received += 1;
        } else {
            self.sent += 1;
        }
        Ok(())
    }

    /// Whether the peer may still be there; looks at the clock now and then.
    #[expect(clippy::disallowed_methods, reason = "this room bounds the waits")]
    fn check_limit(&mut self) -> Outcome<()> {
        /// Polls between two looks.
        const POLLS: u64 = 1 << 16;
        self.polls += 1;
        if !self.polls.is_multiple_of(POLLS) {
            return Ok(());
        }
        let (now, done) = (Instant::now(), self.sent + self.received);
        if done != self.seen {
            (self.seen, self.limit) = (done, now + LIMIT);
        } else if now > self.limit {
            let (Self { sent, received, .. }, limit) = (self, LIMIT.as_secs());
            return Err(
                format!("nothing came in {limit} s: {sent} sent, {received} received").into()
            );
        }
        Ok(())
    }

    /// The planted mistake, after operation `index`.
    fn err_on_purpose(&self, index: u64) {
        match self.fault {
            Some(Fault::Allocation) if index.is_multiple_of(1000) => {
                drop(black_box(Box::new(index)))
            }
            Some(Fault::Call) if index.is_multiple_of(20) => drop(black_box(fs::metadata("/"))),
            _ => {}
        }
    }
}

/// What a worker fails with.
pub(crate) type Outcome<T> = Result<T, Box<dyn Error>>;

/// Guards the segments: any number will do.
const TOKEN: Token = Token::new(0x6275_6467);
/// Bytes of registered memory: a page.
const MEMORY_LEN: usize = 4096;
/// Requests that a queue holds.
const DEPTH: u32 = 64;

#[derive(Debug)]
pub(crate) struct End {
    pub(crate) jetty: Jetty,
    pub(crate) jfc: Jfc,
    pub(crate) segment: Segment,
    pub(crate) memory: Region,
    context: Context,
}

#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) target: TargetJetty,
    pub(crate) segment: ImportedSegment,
}

impl End {
    /// A node of its own with a jetty and a page of memory, reached without packets.
    pub(crate) fn open() -> Outcome<Self> {
        let context = urma::open()?;
        let jfc = context.create_jfc(&JfcCfg::new(4 * DEPTH), None)?;
        let mode = TransportMode::Rm;
        let recv = JettyRecv::Own { cfg: JfrCfg::new(mode, DEPTH), jfc: &jfc };
        let send = JfsCfg::new(mode, DEPTH);
        let jetty = context.create_jetty(&JettyCfg::new(send, &jfc, recv))?;
        let memory = Region::private(MEMORY_LEN)?;
        let cfg = SegmentCfg::new(SegmentAccess::REMOTE_ALL).with_token(TOKEN);
        let segment = context.register(&memory, &cfg, None)?;
        Ok(Self { jetty, jfc, segment, memory, context })
    }

    /// What the peer needs: EID, UASID, jetty, address, token id.
    pub(crate) fn line(&self) -> Outcome<String> {
        let JettyId { eid, uasid, id } = self.jetty.remote().id;
        let (va, token_id) = (self.segment.va(), self.segment.token_id().value());
        Ok(format!("{} {uasid} {id} {va} {token_id}", eid.to_ip()))
    }

    /// The peer's objects, from its line.
    pub(crate) fn import(&self, line: &str) -> Outcome<Peer> {
        let mut words = line.split_whitespace();
        let eid = Eid::from(next::<IpAddr>(&mut words)?);
        let (uasid, id) = (next(&mut words)?, next(&mut words)?);
        let (va, token_id) = (next(&mut words)?, TokenId::new(next(&mut words)?));
        let here = self.jetty.remote();
        let jetty = RemoteJetty { id: JettyId { eid, uasid, id }, ..here };
        let memory = RemoteSegment {
            ubva: Ubva { eid, uasid, va },
            len: u64::try_from(MEMORY_LEN)?,
            token_id,
            policy: TokenPolicy::PlainText(TOKEN),
            access: SegmentAccess::REMOTE_ALL,
        };
        let target = reached(|| self.context.import_jetty(&jetty))?;
        let access = SegmentAccess::REMOTE_ALL;
        let import = || self.context.import_segment(&memory, access, Mapping::None);
        Ok(Peer { target, segment: reached(import)? })
    }
}

/// Returns the result of `import`, repeated while it times out: one attempt is too short for a peer
/// whose thread gets no core for a while.
fn reached<T>(import: impl Fn() -> Result<T, Status>) -> Outcome<T> {
    const ATTEMPTS: u32 = 30;
    for _ in 1..ATTEMPTS {
        match import() {
            Err(status) if status == Status::TimedOut => {}
            answer => return Ok(answer?),
        }
    }
    Ok(import()?)
}

/// The next word of the peer's line.
fn next<T>(words: &mut SplitWhitespace<'_>) -> Outcome<T>
where
    T: FromStr<Err: Error + 'static>,
{
    let word = words.next().ok_or("the peer's line is too short")?;
    Ok(word.parse()?)
}
