//! A flow of messages between two nodes of this process, and the time that both took.
//!
//! - owns: nodes, queues, memory, the polling threads of one flow. takes: how nodes are opened, faults, number of messages.
//! - gives: times, counts. must not: interpret them.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::thread;
use std::time::Duration;

use udma_abi::counters::Counter;
use urma::{
    Completion, Completions, Jetty, JettyCfg, JettyRecv, JfcCfg, JfrCfg, JfsCfg, Mapping, NodeCfg,
    Opened, PathChoice, Region, Segment, SegmentAccess, SegmentCfg, SendOp, SendWr, Token,
    TransportMode, WrFlags,
};
use urma_mem::sync::{AtomicBool, Ordering};

use super::{CalibrateError, thread_time};
use crate::clock::{Stopwatch, thread_ns};

/// Bytes of a message.
pub const MESSAGE: u32 = 65_536;
/// Messages that may be outstanding.
const DEPTH: u32 = 1024;
/// Messages for one completion.
const SIGNALLED: u64 = 100;
/// Longest time without a completion.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time of polls in vain before each further one gives the processor to others.
const VAIN: Duration = Duration::from_micros(20);
/// Name of a node's own thread.
const NODE_THREAD: &str = "urma-node";

/// The two ends of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlowEnd {
    /// The node that writes.
    Sender,
    /// The node whose memory is written.
    Receiver,
}

/// Opens the node of an end as configured, wherever that end is to be.
pub type OpenNode<'a> = &'a (dyn Fn(FlowEnd, NodeCfg) -> Result<Opened, String> + Sync);

/// What flows, and over which links.
#[derive(Clone, Copy, Debug)]
pub struct FlowCfg<'a> {
    /// Path MTU, a power of two; `None`: what the route carries.
    pub mtu: Option<u32>,
    /// Faults of both links, as `URMA_LINK_FAULTS` has them.
    pub faults: &'a str,
    /// Number of messages of 64 KiB.
    pub messages: u32,
}

/// What a flow took, and what it met.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct MeasuredFlow {
    /// Messages that were written.
    pub messages: u64,
    /// Packets with data that the receiver took.
    pub packets: u64,
    /// Those of them that came beyond a gap.
    pub beyond_gap: u64,
    /// Packets that were sent again.
    pub again: u64,
    /// Processor time of the sender, without polls that found nothing, in ns.
    pub sender_ns: f64,
    /// The same of the receiver.
    pub receiver_ns: f64,
    /// From the first post to the last completion, in s.
    pub took_s: f64,
}

impl MeasuredFlow {
    /// Mean payload of a packet in bytes, rounded up.
    #[must_use]
    pub fn payload(&self) -> u64 {
        (self.messages * u64::from(MESSAGE)).div_ceil(self.packets.max(1))
    }
}

/// The last message has a completion.
fn messages_of(cfg: &FlowCfg<'_>) -> u64 {
    u64::from(cfg.messages).next_multiple_of(SIGNALLED)
}

/// A node with what a program makes on it.
struct NodeOfFlow {
    jetty: Jetty,
    completions: Completions,
    segment: Segment,
    opened: Opened,
    /// The node's own thread.
    thread: u32,
}

fn failed<E: Display>(what: &'static str) -> impl Fn(E) -> CalibrateError {
    move |error| CalibrateError { what, why: error.to_string() }
}

impl NodeOfFlow {
    fn open(cfg: &FlowCfg<'_>, end: FlowEnd, open: OpenNode<'_>) -> Result<Self, CalibrateError> {
        let faults = cfg.faults.parse().map_err(failed("faults of the link"))?;
        let usual =
            NodeCfg { path: PathChoice::Packets, link_faults: Some(faults), ..NodeCfg::default() };
        let node = NodeCfg { mtu: cfg.mtu.unwrap_or(usual.mtu), ..usual };
        let before = thread_time::named(NODE_THREAD)?;
        let opened = open(end, node).map_err(failed("opening a node"))?;
        let thread = new_thread(&before)?;
        let context = &opened.context;
        let made = failed("making queues and memory");
        let completions = context.create_completions(&JfcCfg::new(4096)).map_err(&made)?;
        let (jfc, mode) = (completions.jfc(), TransportMode::Rm);
        let recv = JettyRecv::Own { cfg: JfrCfg::new(mode, 16), jfc };
        let jetty = context.create_jetty(&JettyCfg::new(JfsCfg::new(mode, DEPTH), jfc, recv));
        let jetty = jetty.map_err(&made)?;
        let memory = Region::private(MESSAGE as usize).map_err(failed("memory"))?;
        let access = SegmentCfg::new(SegmentAccess::REMOTE_ALL).with_token(Token::new(1));
        let segment = context.register(&memory, &access, None).map_err(&made)?;
        Ok(Self { jetty, completions, segment, opened, thread })
    }
}

/// The thread of the node that was opened after there were those. A thread names itself when it first runs.
fn new_thread(before: &BTreeSet<u32>) -> Result<u32, CalibrateError> {
    let start = Stopwatch::start();
    while start.passed() < PATIENCE {
        if let Some(thread) = thread_time::named(NODE_THREAD)?.difference(before).next() {
            return Ok(*thread);
        }
        thread::yield_now();
    }
    Err(failed("finding the thread of a node")("none has its name"))
}

/// Processor time of a polling thread in polls that moved something, and of the node's own thread.
struct PollTime {
    busy_ns: f64,
    /// Of this thread at the end of the last poll.
    ran_ns: f64,
    node: u32,
    node_before: f64,
    moved: u64,
    /// Since the last poll that moved something.
    vain: Stopwatch,
}

impl PollTime {
    fn start(node: u32) -> Result<Self, CalibrateError> {
        let node_before = thread_time::ran_ns(node)?;
        let (ran_ns, vain) = (thread_ns(), Stopwatch::start());
        Ok(Self { busy_ns: 0.0, ran_ns, node, node_before, moved: 0, vain })
    }

    /// Counts a poll, which moved something if it says so or packets were sent or taken. Returns whether it did.
    fn add(&mut self, is_busy: bool, end: &Opened) -> bool {
        let ran_ns = thread_ns();
        let took_ns = ran_ns - std::mem::replace(&mut self.ran_ns, ran_ns);
        let device = end.node.device();
        let moved = device.counter(Counter::TxPackets) + device.counter(Counter::RxPackets);
        let is_busy = std::mem::replace(&mut self.moved, moved) != moved || is_busy;
        if is_busy {
            self.busy_ns += took_ns;
            self.vain = Stopwatch::start();
        } else if self.vain.passed() > VAIN {
            // The other end may wait for this processor.
            thread::yield_now();
        }
        is_busy
    }

    /// Of both threads, in ns.
    fn of_both(&self) -> Result<f64, CalibrateError> {
        Ok(self.busy_ns + thread_time::ran_ns(self.node)? - self.node_before)
    }
}

/// Writes all messages from one node to the other, both of which poll.
pub fn flow(cfg: &FlowCfg<'_>, open: OpenNode<'_>) -> Result<MeasuredFlow, CalibrateError> {
    let receiver = NodeOfFlow::open(cfg, FlowEnd::Receiver, open)?;
    let sender = NodeOfFlow::open(cfg, FlowEnd::Sender, open)?;
    let NodeOfFlow { jetty, completions, segment, opened: near, thread } = sender;
    let mut posting = Posting { jetty, completions, opened: &near, thread };
    let context = &near.context;
    let target = context.import_jetty(&receiver.jetty.remote());
    let target = target.map_err(failed("importing a jetty"))?;
    let remote = receiver.segment.remote();
    let remote = context.import_segment(&remote, SegmentAccess::REMOTE_ALL, Mapping::None);
    let remote = remote.map_err(failed("importing a segment"))?;
    let src = [segment.sge(0, MESSAGE)];
    let wr = SendWr::new(SendOp::Write { src: &src, dst: remote.at(0) }, &target, 1);
    let NodeOfFlow { mut completions, opened, thread: node, .. } = receiver;
    let stop = AtomicBool::new(false);
    let (sent, receiver_ns) = thread::scope(|scope| {
        let taking = scope.spawn(|| take(&mut completions, &opened, node, &stop));
        let sent = posting.write(cfg, wr);
        stop.store(true, Ordering::Relaxed);
        let taken = taking.join().map_err(|_| failed("polling")("the receiver panicked"));
        Ok((sent?, taken??))
    })?;
    let (took_s, sender_ns) = sent;
    let of = |counter| opened.node.device().counter(counter);
    Ok(MeasuredFlow {
        messages: messages_of(cfg),
        packets: of(Counter::RxPackets),
        beyond_gap: of(Counter::RxOutOfOrder),
        again: near.node.device().counter(Counter::Retransmits),
        sender_ns,
        receiver_ns,
        took_s,
    })
}

/// The receiver polls until the sender has what it wanted.
fn take(
    completions: &mut Completions,
    opened: &Opened,
    node: u32,
    stop: &AtomicBool,
) -> Result<f64, CalibrateError> {
    let mut time = PollTime::start(node)?;
    let mut out = [Completion::default(); 64];
    while !stop.load(Ordering::Relaxed) {
        let count = completions.poll(&mut out).map_err(failed("polling"))?;
        time.add(count > 0, opened);
    }
    time.of_both()
}

/// The end that posts and polls.
struct Posting<'a> {
    jetty: Jetty,
    completions: Completions,
    opened: &'a Opened,
    thread: u32,
}

impl Posting<'_> {
    /// Posts and polls; the time from the first post to the last completion, and its processor time in ns.
    fn write(&mut self, cfg: &FlowCfg<'_>, wr: SendWr<'_>) -> Result<(f64, f64), CalibrateError> {
        let messages = messages_of(cfg);
        let (mut posted, mut done) = (0, 0);
        let mut out = [Completion::default(); 64];
        let mut time = PollTime::start(self.thread)?;
        let (whole, mut waiting) = (Stopwatch::start(), Stopwatch::start());
        while done < messages {
            let before = posted;
            while posted < messages && posted - done < u64::from(DEPTH) {
                posted += 1;
                let is_last = posted % SIGNALLED == 0;
                let flags = if is_last { WrFlags::COMPLETE } else { WrFlags::empty() };
                let post = self.jetty.post_send(&[SendWr { flags, ..wr }]);
                post.map_err(failed("posting a message"))?;
            }
            let count = self.completions.poll(&mut out).map_err(failed("polling"))?;
            for completion in &out[..count] {
                completion.success().map_err(failed("a message"))?;
                done += SIGNALLED;
            }
            if time.add(count > 0 || posted > before, self.opened) {
                waiting = Stopwatch::start();
            } else if waiting.passed() > PATIENCE {
                return Err(failed("waiting for a completion")("none came within ten seconds"));
            }
        }
        Ok((whole.passed().as_secs_f64(), time.of_both()?))
    }
}
