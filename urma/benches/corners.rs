//! The slow corners of requests between nodes of one host: two threads, first touch, many nodes.
//!
//! *Owns*: the loops, each of which prints one line of JSON. *Takes*: the name of a loop. *Gives*:
//! its value, and how many requests were direct. *Must not*: print a value whose requests went
//! another way: the device's counters prove it.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a bench talks to its user")]
#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]

use std::{
    error::Error,
    fs,
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

use nix::{
    sched::{CpuSet, sched_setaffinity},
    unistd::Pid,
};
use urma::{
    Completion, Completions, Context, ImportedSegment, Jetty, JettyCfg, JettyRecv, Jfc, JfcCfg,
    JfrCfg, JfsCfg, Mapping, NodeCfg, PathChoice, RecvWr, Region, Segment, SegmentAccess,
    SegmentCfg, SendOp, SendWr, Status, TargetJetty, TransportMode,
};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Nodes of one host that all talk.
const NODES: usize = 64;
/// Most that a pair of nodes takes that only wrote, both ends together (docs/operations.md).
const PAIR_KIB_MAX: f64 = 64.0;
/// Most descriptors of a pair, both ends together.
const PAIR_DESCRIPTORS_MAX: f64 = 12.0;
/// Bytes of the segment whose first write is timed.
const LONG: usize = 1 << 20;
/// Segments whose first write is timed.
const SEGMENTS: usize = 9;
/// How long a loop of short writes runs.
const SLICE: Duration = Duration::from_millis(300);
/// Round trips of messages that are timed.
const TRIPS: u64 = 20_000;
/// Writes between two looks at the clock.
const BATCH: u64 = 256;

fn main() -> Outcome<()> {
    let what = std::env::args().nth(1).filter(|arg| !arg.starts_with('-')).unwrap_or_default();
    let (value, direct) = match what.as_str() {
        "one-thread" => threads(1)?,
        "two-threads" => threads(2)?,
        "aligned" => pages(0)?,
        "unaligned" => pages(1)?,
        "first-write" => long_writes(0)?,
        "warm-write" => long_writes(1)?,
        "one-target" => targets(1, Events::Some)?,
        "few-targets" => targets(8, Events::Some)?,
        "all-targets" => targets(NODES - 1, Events::Some)?,
        // Completions of a JFC without events need not go by its ring.
        "one-target-polled" => targets(1, Events::None)?,
        "few-targets-polled" => targets(8, Events::None)?,
        "all-targets-polled" => targets(NODES - 1, Events::None)?,
        "messages" => messages()?,
        "pair-memory" => pairs()?.0,
        "pair-descriptors" => pairs()?.1,
        // `cargo test` and `cargo bench` run it without a name: nothing is measured.
        _ => return Ok(()),
    };
    println!("{{\"value\": {value}, \"direct_requests\": {direct}}}");
    Ok(())
}

/// A node of its own, open.
fn open(name: &str) -> Outcome<Context> {
    let cfg = NodeCfg { name: name.to_owned(), path: PathChoice::SameHost, ..NodeCfg::from_env()? };
    Ok(urma::open_node(cfg)?.context)
}

/// What one thread works with on a node.
struct End {
    jetty: Jetty,
    completions: Polled,
    segment: Segment,
}

/// The JFC in which requests complete.
enum Polled {
    WithEvents(Completions),
    Plain(Jfc),
}

/// Whether a JFC has events.
#[derive(Clone, Copy)]
enum Events {
    Some,
    None,
}

impl Polled {
    fn new(context: &Context, events: Events) -> Outcome<Self> {
        let cfg = JfcCfg::new(256);
        Ok(match events {
            Events::Some => Self::WithEvents(context.create_completions(&cfg)?),
            Events::None => Self::Plain(context.create_jfc(&cfg, None)?),
        })
    }

    fn jfc(&self) -> &Jfc {
        match self {
            Self::WithEvents(completions) => completions.jfc(),
            Self::Plain(jfc) => jfc,
        }
    }

    #[inline]
    fn poll(&mut self, out: &mut [Completion]) -> Result<usize, Status> {
        match self {
            Self::WithEvents(completions) => completions.poll(out),
            Self::Plain(jfc) => jfc.poll(out),
        }
    }
}

impl End {
    fn new(context: &Context, len: usize) -> Outcome<Self> {
        Self::with(context, len, Events::Some)
    }

    fn with(context: &Context, len: usize, events: Events) -> Outcome<Self> {
        let completions = Polled::new(context, events)?;
        let (jfc, mode) = (completions.jfc(), TransportMode::Rm);
        let recv = JettyRecv::Own { cfg: JfrCfg::new(mode, 16), jfc };
        let jetty = context.create_jetty(&JettyCfg::new(JfsCfg::new(mode, 64), jfc, recv))?;
        Ok(Self { jetty, completions, segment: segment(context, len)? })
    }

    /// Writes `len` bytes, and polls until they are placed.
    #[inline]
    fn write(&mut self, to: (&TargetJetty, &ImportedSegment), len: u32) -> Outcome<()> {
        self.write_at(to, 0, len)
    }

    /// As [`End::write`], from `at` here to `at` there.
    #[inline]
    fn write_at(
        &mut self,
        (target, to): (&TargetJetty, &ImportedSegment),
        at: u64,
        len: u32,
    ) -> Outcome<()> {
        let src = [self.segment.sge(at, len)];
        let wr = SendWr::new(SendOp::Write { src: &src, dst: to.at(at) }, target, 1);
        self.jetty.post_send(&[wr])?;
        let mut done = [Completion::default(); 4];
        loop {
            let came = self.completions.poll(&mut done)?;
            if let Some(one) = done[..came].first() {
                one.success()?;
                return Ok(());
            }
        }
    }
}

fn segment(context: &Context, len: usize) -> Outcome<Segment> {
    let memory = Region::private(len)?;
    memory.zero(0, len)?;
    Ok(context.register(&memory, &SegmentCfg::new(SegmentAccess::REMOTE_ALL), None)?)
}

/// The other end, as one node sees it.
fn reach(context: &Context, there: &End) -> Outcome<(TargetJetty, ImportedSegment)> {
    let target = context.import_jetty(&there.jetty.remote())?;
    Ok((target, import(context, &there.segment)?))
}

fn import(context: &Context, segment: &Segment) -> Outcome<ImportedSegment> {
    let access = SegmentAccess::REMOTE_ALL;
    Ok(context.import_segment(&segment.remote(), access, Mapping::None)?)
}

/// A message between two nodes of one thread, one way and back: nanoseconds of one, without a wait. Each end polls
/// in vain once before its message is there, as a program that waits does.
fn messages() -> Outcome<(f64, u64)> {
    let [mut here, mut there] = [MessageEnd::open("here")?, MessageEnd::open("there")?];
    let to_there = here.context.import_jetty(&there.end.jetty.remote())?;
    let to_here = there.context.import_jetty(&here.end.jetty.remote())?;
    for end in [&mut here, &mut there] {
        (0..8).try_for_each(|_| end.receive())?;
    }
    round_trips(&mut here, &mut there, (&to_there, &to_here), BATCH)?;
    let start = Instant::now();
    round_trips(&mut here, &mut there, (&to_there, &to_here), TRIPS)?;
    let spent = start.elapsed();
    let count = u32::try_from(2 * TRIPS)?;
    Ok((spent.as_secs_f64() * 1e9 / f64::from(count), 0))
}

#[inline(never)]
fn round_trips(
    here: &mut MessageEnd,
    there: &mut MessageEnd,
    (to_there, to_here): (&TargetJetty, &TargetJetty),
    count: u64,
) -> Outcome<()> {
    for _ in 0..count {
        here.send(to_there)?;
        here.poll_in_vain()?;
        there.take()?;
        there.send(to_here)?;
        there.poll_in_vain()?;
        here.take()?;
    }
    Ok(())
}

/// An end that sends and receives messages.
struct MessageEnd {
    end: End,
    receives: Polled,
    context: Context,
}

impl MessageEnd {
    fn open(name: &str) -> Outcome<Self> {
        let context = open(name)?;
        let receives = Polled::new(&context, Events::None)?;
        let completions = Polled::new(&context, Events::None)?;
        let mode = TransportMode::Rm;
        let recv = JettyRecv::Own { cfg: JfrCfg::new(mode, 16), jfc: receives.jfc() };
        let cfg = JettyCfg::new(JfsCfg::new(mode, 16), completions.jfc(), recv);
        let jetty = context.create_jetty(&cfg)?;
        let segment = segment(&context, 4096)?;
        Ok(Self { end: End { jetty, completions, segment }, receives, context })
    }

    fn receive(&mut self) -> Outcome<()> {
        let dst = [self.end.segment.sge(2048, 8)];
        Ok(self.end.jetty.post_recv(&[RecvWr { dst: &dst, user_ctx: 2 }])?)
    }

    fn send(&mut self, target: &TargetJetty) -> Outcome<()> {
        let src = [self.end.segment.sge(0, 8)];
        let wr = SendWr::new(SendOp::Send { src: &src }, target, 1);
        Ok(self.end.jetty.post_send(&[wr])?)
    }

    /// Polls for a message that is not there, and for the end of an earlier one.
    fn poll_in_vain(&mut self) -> Outcome<()> {
        let mut done = [Completion::default(); 1];
        self.end.completions.poll(&mut done)?;
        match self.receives.poll(&mut done)? {
            0 => Ok(()),
            _ => Err("a message before it was sent".into()),
        }
    }

    /// Polls until the message is there, and posts another receive.
    fn take(&mut self) -> Outcome<()> {
        let mut done = [Completion::default(); 1];
        while self.receives.poll(&mut done)? == 0 {
            self.end.completions.poll(&mut done)?;
        }
        done[0].success()?;
        self.receive()
    }
}

/// Requests that the device of `context` did directly so far.
fn direct(context: &Context) -> Outcome<u64> {
    let counters = context.counters()?;
    let counter = counters.iter().find(|(name, _)| *name == "direct_requests");
    Ok(counter.ok_or("no counter of direct requests")?.1)
}

/// The requests of a run, which must all have been direct.
fn proven(context: &Context, before: u64, wanted: u64) -> Outcome<u64> {
    let count = direct(context)? - before;
    if count == wanted { Ok(count) } else { Err(format!("{count} of {wanted} were direct").into()) }
}

fn pin(core: usize) {
    let mut set = CpuSet::new();
    if set.set(core).is_ok() {
        let _ = sched_setaffinity(Pid::from_raw(0), &set);
    }
}

/// Millions of writes of 8 bytes a second by `count` threads of one context, each with a jetty, a JFC
/// and memory of its own, one at a time.
fn threads(count: usize) -> Outcome<(f64, u64)> {
    let (here, there) = (open("here")?, open("there")?);
    let ends = (0..count).map(|_| Ok((End::new(&here, 4096)?, End::new(&there, 4096)?)));
    let ends: Vec<(End, End)> = ends.collect::<Outcome<_>>()?;
    let (before, start) = (direct(&here)?, Barrier::new(count));
    let run = |core: usize, (mut mine, other): (End, End)| {
        pin(core);
        let reached = reach(&here, &other);
        start.wait();
        let (target, to) = reached.map_err(|error| error.to_string())?;
        timed(|| mine.write((&target, &to), 8)).map_err(|error| error.to_string())
    };
    let run = &run;
    let results: Vec<Result<(u64, f64), String>> = thread::scope(|scope| {
        let ends = ends.into_iter().enumerate();
        let threads: Vec<_> =
            ends.map(|(core, ends)| scope.spawn(move || run(core, ends))).collect();
        let failed = |_| Err("a thread failed".to_owned());
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(failed)).collect()
    });
    let results = results.into_iter().collect::<Result<Vec<_>, _>>()?;
    let sum = results.iter().map(|(count, _)| count).sum();
    let rate = results.iter().map(|(_, rate)| rate).sum();
    Ok((rate, proven(&here, before, sum)?))
}

/// Calls `write` for [`SLICE`]; how often, and millions a second. Some calls come before, to warm up.
#[expect(clippy::cast_precision_loss, reason = "counts of some millions")]
fn timed(mut write: impl FnMut() -> Outcome<()>) -> Outcome<(u64, f64)> {
    let mut count = 0;
    let mut run = |time: Duration| -> Outcome<(u64, f64)> {
        let (start, before) = (Instant::now(), count);
        while start.elapsed() < time {
            for _ in 0..BATCH {
                write()?;
            }
            count += BATCH;
        }
        Ok((count, (count - before) as f64 / start.elapsed().as_secs_f64() / 1e6))
    };
    run(SLICE / 10)?;
    run(SLICE)
}

/// GB/s of writes of 4 KiB, from and to `at` bytes behind the start of a page.
fn pages(at: u64) -> Outcome<(f64, u64)> {
    pin(0);
    let (here, there) = (open("here")?, open("there")?);
    let (mut mine, other) = (End::new(&here, 8192)?, End::new(&there, 8192)?);
    let (target, to) = reach(&here, &other)?;
    let before = direct(&here)?;
    let (sum, rate) = timed(|| mine.write_at((&target, &to), at, 4096))?;
    Ok((rate * 4.096, proven(&here, before, sum)?))
}

/// GB/s of a write to a segment of 1 MiB that was written `before` times since it was imported: the
/// median over several segments.
fn long_writes(before: usize) -> Outcome<(f64, u64)> {
    pin(0);
    let (here, there) = (open("here")?, open("there")?);
    let (mut mine, other) = (End::new(&here, LONG)?, End::new(&there, LONG)?);
    let (target, usual) = reach(&here, &other)?;
    let count = direct(&here)?;
    let len = u32::try_from(LONG)?;
    mine.write((&target, &usual), len)?;
    let mut times = Vec::new();
    for _ in 0..SEGMENTS {
        let fresh = segment(&there, LONG)?;
        let to = import(&here, &fresh)?;
        for _ in 0..before {
            mine.write((&target, &to), len)?;
        }
        let start = Instant::now();
        mine.write((&target, &to), len)?;
        times.push(start.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    let sum = 1 + SEGMENTS * (before + 1);
    Ok((f64::from(len) / times[SEGMENTS / 2] / 1e9, proven(&here, count, sum as u64)?))
}

/// Millions of writes of 8 bytes a second by one jetty to `count` nodes in turn.
fn targets(count: usize, events: Events) -> Outcome<(f64, u64)> {
    pin(0);
    let here = open("here")?;
    let mut mine = End::with(&here, 4096, events)?;
    let nodes = nodes(count)?;
    let reached = nodes.iter().map(|(_, there)| reach(&here, there));
    let reached: Vec<_> = reached.collect::<Outcome<_>>()?;
    let before = direct(&here)?;
    let mut turn = reached.iter().cycle();
    let (sum, rate) = timed(|| {
        let (target, to) = turn.next().ok_or("no target")?;
        mine.write((target, to), 8)
    })?;
    Ok((rate, proven(&here, before, sum)?))
}

fn nodes(count: usize) -> Outcome<Vec<(Context, End)>> {
    let node = |number| {
        let context = open(&format!("node{number}"))?;
        let end = End::new(&context, 4096)?;
        Ok((context, end))
    };
    (0..count).map(node).collect()
}

/// What a pair of nodes takes beyond the nodes themselves, both ends together, when one node has written to
/// each of [`NODES`] others: KiB of memory, and descriptors.
#[expect(clippy::cast_precision_loss, reason = "counts below 2^52")]
fn pairs() -> Outcome<((f64, u64), (f64, u64))> {
    let descriptors = || Outcome::Ok(fs::read_dir("/proc/self/fd")?.count() as f64);
    let here = open("here")?;
    let mut mine = End::new(&here, 4096)?;
    let nodes = nodes(NODES - 1)?;
    let (memory, open) = (memory_kib()?, descriptors()?);
    let before = direct(&here)?;
    let mut reached = Vec::new();
    for (_, there) in &nodes {
        let (target, to) = reach(&here, there)?;
        mine.write((&target, &to), 8)?;
        reached.push((target, to));
    }
    let count = nodes.len() as f64;
    let sum = proven(&here, before, nodes.len() as u64)?;
    let (memory, open) = ((memory_kib()? - memory) / count, (descriptors()? - open) / count);
    if memory > PAIR_KIB_MAX || open > PAIR_DESCRIPTORS_MAX {
        return Err(format!("a pair takes {memory} KiB and {open} descriptors").into());
    }
    Ok(((memory, sum), (open, sum)))
}

/// Memory of this process: what is mapped twice counts once.
fn memory_kib() -> Outcome<f64> {
    let text = fs::read_to_string("/proc/self/smaps_rollup")?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
    let number = line.and_then(|line| line.split_whitespace().next()).ok_or("no Pss")?;
    Ok(number.parse()?)
}
