//! One link with delay and loss, senders and receivers at its ends, in virtual time.
//!
//! - owns: the order of events, what they count. takes: a path, a strategy, a seed.
//! - gives: counts of one run. must not: decide what is lost by anything but identity.
//!
//! TPs share the link in turn, a packet each. Time is in ps, since a packet of 4 KiB takes 83.56 ns at 400 Gb/s.
//! The way back has a delay and no rate. A message whose TP waits for a line of the pool takes effect when the line is at
//! hand; those of the same TP behind it wait as well, others do not.

mod ends;
mod link;
mod memory;
#[cfg(test)]
mod tests;
mod trace;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use serde::{Deserialize, Serialize};
use urma_recovery::{
    Arrival, CongestionChoice, DataMark, DmaCfg, DmaStats, LossError, Recovery, RepairMark, Sending,
};

use self::ends::{Taken, TpEnds};
use self::link::{Back, Forward, LinkEnd, PathLink};
pub(super) use self::memory::RunMemory;
pub use self::trace::{JsonTrace, NoTrace, PathTrace, TraceEvent};
use super::cpu::{CpuCosts, EndProcessors};
use super::loss::{LossCfg, Losses};

/// Repair packets are lost as if they were this transmission of a packet.
const REPAIR_ATTEMPT: u16 = u16::MAX;
/// What a node takes from its socket, or gives to it, before it does something else.
const PASS_BYTES: u64 = 256 << 10;
const PASS_MAX: u64 = 256;
/// Bytes of a tail mark on the wire.
const MARK_BYTES: u64 = 82;

/// Path, strategy and traffic of a run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RunCfg {
    /// Bits a second of the link.
    pub rate_bps: f64,
    /// Round-trip time without queues, in ps.
    pub rtt_ps: u64,
    /// Losses of data packets.
    pub loss: LossCfg,
    /// Part of acknowledgements, reports and tail marks that is lost.
    pub feedback_loss: f64,
    /// Part of the data packets that is late, and by up to how many packets.
    pub late: (f64, u64),
    /// Payload bytes of a packet.
    pub payload: u64,
    /// Header bytes of a packet.
    pub overhead: u64,
    /// Packets of a message, which all TPs together send.
    pub packets: u64,
    /// Messages, each of which begins when the one before has ended.
    pub messages: u32,
    /// TPs that share the link.
    pub tps: u32,
    /// Send window of a TP.
    pub window_packets: u32,
    /// How losses are repaired.
    pub recovery: Recovery,
    /// Loss that a sender expects before it measured any, to protect the tail; none: it does not.
    pub expected_loss: Option<f64>,
    /// Time before the first packet, in ps: the TP has to be opened.
    pub setup_ps: u64,
    /// What bounds the packets on the path beside the window.
    pub congestion: CongestionChoice,
    /// What packets cost the ends; with it they have the timers of nodes, without it they take no time.
    pub cpu: Option<CpuCosts>,
    /// What accesses to the pool cost.
    pub dma: DmaCfg,
    /// Lines that the NIC holds for all TPs.
    pub nic_lines: usize,
    /// Transmissions after which the run ends unfinished.
    pub budget: u64,
}

impl RunCfg {
    /// Packets of a message that are this TP's.
    fn share(&self, tp: u32) -> u64 {
        let tps = u64::from(self.tps);
        self.packets / tps + u64::from(u64::from(tp) < self.packets % tps)
    }
}

/// Counts of one run.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct RunCounts {
    /// Packets delivered a second in the steady part of the run; none when it was too short for one.
    pub packets_per_s: Option<f64>,
    /// Time from the begin of each message to its last acknowledgement, in s; those that ended before the budget did.
    pub completions_s: Vec<f64>,
    /// Data packets put on the link.
    pub transmissions: u64,
    /// Those that the path lost.
    pub lost: u64,
    /// Repair packets put on the link.
    pub repairs: u64,
    /// Packets that repair packets brought back.
    #[serde(default)]
    pub repaired: u64,
    /// Different packets that were delivered.
    pub delivered: u64,
    /// Bytes put on the link.
    pub wire_bytes: u64,
    /// Most bytes of loss context that a NIC holds for one TP.
    pub nic_bytes: u64,
    /// Bytes that the NIC has for lines of all TPs.
    pub nic_cache_bytes: u64,
    /// Most of those lines in use.
    pub nic_lines_max: u64,
    /// Most blocks of the pool in use.
    pub blocks_max: u64,
    /// Most blocks that the pool had.
    pub pool_blocks_max: u64,
    /// Accesses to the pool.
    #[serde(with = "DmaCounts")]
    pub dma: DmaStats,
    /// The pool answered no read any more, which ended the run.
    pub dma_failed: bool,
    /// Timeouts of all senders.
    pub timeouts: u64,
}

/// [`DmaStats`] in files: the crate that counts has no need of serde.
#[derive(Serialize, Deserialize)]
#[serde(remote = "DmaStats")]
struct DmaCounts {
    reads: u64,
    writes: u64,
    hits: u64,
    misses: u64,
    wait_ns: u64,
    timeouts: u64,
}

impl RunCounts {
    /// What a record gave; none, and the end of the run, if its pool does not answer.
    fn answered<V>(&mut self, tp: u32, outcome: Result<V, LossError>) -> Option<V> {
        match outcome {
            Ok(value) => Some(value),
            Err(LossError::Unanswered) => {
                self.dma_failed = true;
                None
            }
            Err(error) => panic!("the record of TP {tp} is sound: {error}"),
        }
    }
}

/// Both ends and what is between them.
#[derive(Debug)]
struct PathWorld<'a, T> {
    cfg: RunCfg,
    trace: &'a mut T,
    losses: Losses,
    memory: RunMemory,
    tps: Vec<TpEnds>,
    row: VecDeque<u32>,
    link: PathLink,
    ends: EndProcessors,
    /// Most packets that an end takes or makes before it does something else: one, if they take no time.
    pass_packets: u64,
    /// A pass of the receiver goes on, after which these are answered.
    answers_wait: bool,
    unanswered: Vec<u32>,
    timers: BinaryHeap<(Reverse<u64>, u32)>,
    /// TPs whose message waits for a line of the pool.
    waits: BinaryHeap<Reverse<(u64, u32)>>,
    now: u64,
    /// When the message began.
    began_at: u64,
    /// Packets of it that were never sent.
    unsent: u64,
    /// When the last of the first message was sent.
    last_new_at: u64,
    unfinished: u32,
    samples: Vec<(u64, u64)>,
    counts: RunCounts,
}

/// Runs one seed.
///
/// # Panics
/// When a strategy contradicts itself: it acknowledges what never came, or stops with packets missing.
#[must_use]
pub fn run(cfg: &RunCfg, seed: u64) -> RunCounts {
    run_traced(cfg, seed, &mut NoTrace)
}

/// As [`run`], and gives each event to `trace`.
#[must_use]
pub fn run_traced<T: PathTrace>(cfg: &RunCfg, seed: u64, trace: &mut T) -> RunCounts {
    let mut world = PathWorld::new(cfg, seed, trace);
    while world.unfinished > 0
        && !world.counts.dma_failed
        && world.counts.transmissions < cfg.budget
    {
        let event = world.next_event();
        world.step(event);
    }
    world.counts()
}

/// The kind of event that happens next.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum PathEvent {
    Arrives(LinkEnd),
    /// A line of the pool is at hand.
    Ready,
    Timer,
    Send,
}

impl<'a, T: PathTrace> PathWorld<'a, T> {
    fn new(cfg: &RunCfg, seed: u64, trace: &'a mut T) -> Self {
        let bytes = cfg.payload + cfg.overhead;
        let packet_ps = ps((bytes * 8) as f64 * 1e12 / cfg.rate_bps);
        Self {
            cfg: *cfg,
            trace,
            losses: Losses::new(cfg.loss, seed),
            memory: RunMemory::new(cfg.dma, cfg.nic_lines),
            tps: (0..cfg.tps).map(|tp| TpEnds::new(cfg, tp, cfg.share(tp))).collect(),
            row: (0..cfg.tps).collect(),
            link: PathLink::new(cfg.rtt_ps / 2, bytes, packet_ps),
            ends: EndProcessors::new(cfg.cpu),
            pass_packets: if cfg.cpu.is_some() {
                (PASS_BYTES / bytes).clamp(1, PASS_MAX)
            } else {
                1
            },
            answers_wait: false,
            unanswered: Vec::new(),
            timers: BinaryHeap::new(),
            waits: BinaryHeap::new(),
            now: 0,
            began_at: 0,
            unsent: cfg.packets,
            last_new_at: 0,
            unfinished: cfg.tps,
            samples: vec![(0, 0)],
            counts: RunCounts::default(),
        }
    }

    /// The next event and its time.
    fn next_event(&self) -> (u64, PathEvent) {
        let mut next = (u64::MAX, PathEvent::Send);
        if let Some((at, end)) = self.link.next(self.ends.free_at()) {
            next = (at, PathEvent::Arrives(end));
        }
        if let Some(Reverse((at, _))) = self.waits.peek() {
            next = next.min((*at, PathEvent::Ready));
        }
        if let Some((Reverse(at), _)) = self.timers.peek() {
            next = next.min((*at, PathEvent::Timer));
        }
        if !self.row.is_empty() {
            let from = self.ends.send_from(self.link.free_at());
            next = next.min((from.max(self.now), PathEvent::Send));
        }
        assert!(next.0 != u64::MAX, "something is on its way while packets are missing");
        next
    }

    fn step(&mut self, (at, event): (u64, PathEvent)) {
        self.now = self.now.max(at);
        match event {
            PathEvent::Arrives(LinkEnd::Back) => {
                let busy = self.ends.free_at();
                let Some((tp, message)) = self.link.take_back(self.now, busy) else { return };
                self.on_back(tp, message);
            }
            PathEvent::Arrives(LinkEnd::Late) => {
                let Some((tp, message)) = self.link.take_late() else { return };
                self.on_forward(tp, message);
            }
            PathEvent::Arrives(LinkEnd::Forward) => self.receive_pass(),
            PathEvent::Ready => {
                let Some(Reverse((_, tp))) = self.waits.pop() else { return };
                self.on_ready(tp);
            }
            PathEvent::Timer => {
                let Some((Reverse(at), tp)) = self.timers.pop() else { return };
                let armed_at = &mut self.tps[tp as usize].armed_at;
                // Of several in the heap the earliest counts, which sets the next one.
                if at == *armed_at {
                    *armed_at = u64::MAX;
                    self.on_timer(tp);
                }
            }
            PathEvent::Send => self.send_pass(),
        }
    }

    const fn now_ns(&self) -> u64 {
        self.now / 1000
    }

    /// The receiver takes what came, and answers all of it.
    fn receive_pass(&mut self) {
        let busy = self.ends.free_at();
        self.answers_wait = self.pass_packets > 1;
        for _ in 0..self.pass_packets {
            let Some((tp, message)) = self.link.take_forward(self.now, busy) else { break };
            self.on_forward(tp, message);
        }
        self.answers_wait = false;
        while let Some(tp) = self.unanswered.pop() {
            self.answer(tp);
        }
    }

    /// The sender makes what may go.
    fn send_pass(&mut self) {
        for _ in 0..self.pass_packets {
            self.send();
        }
    }

    fn send(&mut self) {
        let Some(tp) = self.row.pop_front() else { return };
        let now = self.now_ns();
        let ends = &mut self.tps[tp as usize];
        while ends.left > 0 && ends.sender.ledger().queued() < 2 && ends.sender.ledger().room() > 0
        {
            ends.sender.push();
            ends.left -= 1;
        }
        if let Some(packet) = ends.sender.poll(now) {
            // As nodes do: no more may follow that the acknowledgement could wait for.
            let is_last = self.cfg.cpu.is_some() && ends.sender.is_path_full();
            let ask = packet.is_again() || packet.seq + 1 == ends.total || is_last;
            self.row.push_back(tp);
            self.put_data(tp, packet, ask);
            return;
        }
        if let Some(mark) = ends.sender.poll_repair(now) {
            self.row.push_back(tp);
            self.put_repair(tp, mark);
            return;
        }
        ends.in_row = false;
        if let Some(mark) = ends.sender.poll_tail(now) {
            ends.feedbacks += 1;
            let lost = self.losses.is_feedback_lost(self.cfg.feedback_loss, tp, ends.feedbacks);
            self.trace.note(self.now, tp, TraceEvent::Tail { end: mark.end, lost });
            let at = self.ends.send(self.now, 0, false);
            if lost {
                self.link.occupy(at, MARK_BYTES);
            } else {
                self.link.put(at, (tp, Forward::Tail(mark)), MARK_BYTES, 0);
            }
        }
        self.arm(tp);
    }

    fn put_data(&mut self, tp: u32, packet: Sending, ask: bool) {
        self.counts.transmissions += 1;
        if packet.attempt == 1 {
            self.unsent -= 1;
            if self.unsent == 0 && self.counts.completions_s.is_empty() {
                self.last_new_at = self.now;
            }
        }
        let bytes = self.cfg.payload + self.cfg.overhead;
        let Sending { seq, attempt, answers: (tier, _), .. } = packet;
        let lost = self.losses.is_lost(tp, seq, attempt);
        self.trace.note(self.now, tp, TraceEvent::Sent { seq, attempt, tier, lost });
        let ledger = self.tps[tp as usize].sender.ledger();
        let lacks = ledger.unsent() - ledger.una();
        let at = self.ends.send(self.now, lacks, attempt > 1);
        if lost {
            self.counts.lost += 1;
            self.link.occupy(at, bytes);
            return;
        }
        let late = self.losses.late_by(self.cfg.late, tp, packet.seq, packet.attempt);
        self.link.put(at, (tp, Forward::Data { packet, ask }), bytes, late);
    }

    fn put_repair(&mut self, tp: u32, mark: RepairMark) {
        self.counts.repairs += 1;
        let ends = &mut self.tps[tp as usize];
        ends.repairs += 1;
        let members = mark.members(mark.start.max(ends.sender.ledger().una())).count();
        let at = self.ends.repair(self.now, members as u64);
        let bytes = self.cfg.payload + self.cfg.overhead;
        let lost = self.losses.is_lost(tp, ends.repairs, REPAIR_ATTEMPT);
        self.trace.note(self.now, tp, TraceEvent::Repair { group: mark.group, lost });
        if lost {
            self.link.occupy(at, bytes);
        } else {
            self.link.put(at, (tp, Forward::Repair(mark)), bytes, 0);
        }
    }

    fn on_forward(&mut self, tp: u32, message: Forward) {
        let ends = &mut self.tps[tp as usize];
        if ends.taken.is_some() {
            ends.waiting.push_back(message);
            return;
        }
        let Some(taken) = self.take(tp, message) else { return };
        let wait_ns = self.memory.pool.dma_mut().take_wait();
        if wait_ns == 0 {
            self.finish(tp, taken);
        } else {
            self.tps[tp as usize].taken = Some(taken);
            self.waits.push(Reverse((self.now + wait_ns * 1000, tp)));
        }
    }

    /// The line is at hand that a message of the TP waited for: those behind it follow.
    fn on_ready(&mut self, tp: u32) {
        let ends = &mut self.tps[tp as usize];
        let Some(taken) = ends.taken.take() else { return };
        self.finish(tp, taken);
        while self.tps[tp as usize].taken.is_none() {
            let Some(message) = self.tps[tp as usize].waiting.pop_front() else { return };
            self.on_forward(tp, message);
        }
    }

    /// Gives a message to the receiver; nothing comes of it when the pool does not answer.
    fn take(&mut self, tp: u32, message: Forward) -> Option<Taken> {
        let now = self.now_ns();
        let ends = &mut self.tps[tp as usize];
        let pool = &mut self.memory.pool;
        self.ends.receive(self.now);
        Some(match message {
            Forward::Tail(mark) => {
                let taken = ends.receiver.on_tail(now, &mark, pool);
                self.counts.answered(tp, taken)?;
                while let Some(run) = ends.receiver.poll_repaired() {
                    let packets = u64::from(run.count);
                    self.counts.delivered += packets;
                    self.counts.repaired += packets;
                    self.ends.repaired(self.now, packets, ends.group_packets);
                }
                Taken::Other
            }
            Forward::Repair(mark) => {
                ends.group_packets = mark.members(mark.start).count() as u64;
                ends.receiver.on_repair(&mark);
                Taken::Other
            }
            Forward::Data { packet, .. } if packet.seq < ends.receiver.edge() => {
                ends.receiver.acknowledge_now(packet.seq);
                Taken::Other
            }
            Forward::Data { packet, ask } => {
                let (tier, ticket) = packet.answers;
                let arrival =
                    ends.receiver.on_data(now, packet.seq, DataMark { tier, ticket }, pool);
                let arrival = self.counts.answered(tp, arrival)?;
                if arrival == Arrival::Kept {
                    self.ends.kept(self.now);
                }
                Taken::Data { packet, arrival, ask }
            }
        })
    }

    /// A message takes effect.
    fn finish(&mut self, tp: u32, taken: Taken) {
        if let Taken::Data { packet, arrival, ask } = taken {
            let (seq, attempt) = (packet.seq, packet.attempt);
            self.trace.note(self.now, tp, TraceEvent::Arrived { seq, attempt, arrival });
            if matches!(arrival, Arrival::Advanced(_) | Arrival::Kept) {
                self.counts.delivered += 1;
                self.sample();
            }
            let now = self.now_ns();
            let ends = &mut self.tps[tp as usize];
            ends.receiver.acknowledge(now, packet.seq, arrival, ask);
        }
        self.memory.refill();
        if !self.answers_wait {
            self.answer(tp);
        } else if self.unanswered.last() != Some(&tp) {
            self.unanswered.push(tp);
        }
    }

    /// Notes how much was delivered by now, some times a round trip.
    fn sample(&mut self) {
        let every = self.cfg.rtt_ps / 16;
        if self.samples.last().is_none_or(|(at, _)| self.now >= at + every) {
            self.samples.push((self.now, self.counts.delivered));
            self.memory.trim();
            let bytes = self.tps[0].receiver.record().traits().nic_bytes as u64;
            self.counts.nic_bytes = self.counts.nic_bytes.max(bytes);
        }
    }

    /// Sends what the receiver has to say.
    fn answer(&mut self, tp: u32) {
        let ends = &mut self.tps[tp as usize];
        while let Some(report) = ends.receiver.poll_report() {
            ends.feedbacks += 1;
            let lost = self.losses.is_feedback_lost(self.cfg.feedback_loss, tp, ends.feedbacks);
            let packets = report.runs().iter().map(|run| u64::from(run.count)).sum();
            let event = TraceEvent::Report { tier: report.tier, packets, lost };
            self.trace.note(self.now, tp, event);
            let at = self.ends.answered(self.now);
            if !lost {
                self.link.put_back(at, tp, Back::Report(Box::new(report)));
            }
        }
        while let Some(ack) = ends.receiver.poll_ack(&self.memory.pool) {
            let Ok(ack) = ack else { panic!("the record of TP {tp} is sound: {ack:?}") };
            ends.feedbacks += 1;
            let lost = self.losses.is_feedback_lost(self.cfg.feedback_loss, tp, ends.feedbacks);
            self.trace.note(self.now, tp, TraceEvent::Ack { edge: ack.edge, lost });
            let at = self.ends.answered(self.now);
            if !lost {
                self.link.put_back(at, tp, Back::Ack(ack));
            }
        }
        if ends.receiver.poll_deadline().is_some() || ends.receiver.record_deadline().is_some() {
            self.arm(tp);
        }
    }

    fn on_back(&mut self, tp: u32, message: Back) {
        let now = self.now_ns();
        let ends = &mut self.tps[tp as usize];
        let was_done = ends.is_done();
        let taken = match message {
            Back::Ack(ack) => ends.sender.on_ack(now, &ack),
            Back::Report(report) => ends.sender.on_report(now, &report),
        };
        assert!(taken.is_ok(), "TP {tp} acknowledges or misses only what was sent");
        if !was_done && ends.is_done() {
            assert_eq!(ends.receiver.edge(), ends.total, "all packets of TP {tp} came");
            self.unfinished -= 1;
            if self.unfinished == 0 {
                self.end_message();
            }
            return;
        }
        self.wake(tp);
    }

    /// Ends the message, and begins the next one.
    fn end_message(&mut self) {
        let setup = if self.counts.completions_s.is_empty() { self.cfg.setup_ps } else { 0 };
        let took = setup + self.now - std::mem::replace(&mut self.began_at, self.now);
        self.counts.completions_s.push(took as f64 / 1e12);
        if self.counts.completions_s.len() as u64 == u64::from(self.cfg.messages) {
            return;
        }
        (self.unsent, self.unfinished) = (self.cfg.packets, self.cfg.tps);
        for tp in 0..self.cfg.tps {
            let (ends, share) = (&mut self.tps[tp as usize], self.cfg.share(tp));
            ends.left += share;
            ends.total += share;
            self.wake(tp);
        }
    }

    fn on_timer(&mut self, tp: u32) {
        let now = self.now_ns();
        let ends = &mut self.tps[tp as usize];
        ends.receiver.on_time(now);
        let scanned = ends.receiver.on_record_time(now, 0, &mut self.memory.pool);
        if self.counts.answered(tp, scanned).is_none() {
            return;
        }
        match ends.sender.on_time(now) {
            Ok(urma_recovery::Expired::Yes) => {
                self.counts.timeouts += 1;
                self.trace.note(self.now, tp, TraceEvent::Timeout);
            }
            Ok(urma_recovery::Expired::No) => {}
            Err(_) => panic!("TP {tp} gave up"),
        }
        // No packet waits for what a scan reads.
        self.memory.pool.dma_mut().take_wait();
        self.answer(tp);
        if !self.tps[tp as usize].is_done() {
            self.wake(tp);
        }
    }

    /// Lets a TP send if it can, and sets its timer.
    fn wake(&mut self, tp: u32) {
        let now = self.now_ns();
        let ends = &mut self.tps[tp as usize];
        if !ends.in_row {
            let new = ends.left > 0 && ends.sender.ledger().room() > 0;
            let tail = || ends.sender.poll_deadline().is_some_and(|at| at <= now);
            if new || ends.sender.has_sendable() || tail() {
                ends.in_row = true;
                self.row.push_back(tp);
            }
        }
        self.arm(tp);
    }

    fn arm(&mut self, tp: u32) {
        let now = self.now_ns();
        let ends = &mut self.tps[tp as usize];
        let Some(at) = ends.deadline(now) else { return };
        let at = (at * 1000).max(self.now + 1000);
        if at < ends.armed_at {
            ends.armed_at = at;
            self.timers.push((Reverse(at), tp));
        }
    }

    fn counts(mut self) -> RunCounts {
        self.counts.wire_bytes = self.link.wire_bytes();
        self.counts.dma = self.memory.pool.dma().stats();
        let nic = self.memory.pool.nic_usage();
        self.counts.nic_cache_bytes = (nic.lines * nic.line_bytes) as u64;
        self.counts.nic_lines_max = nic.used_max as u64;
        self.counts.blocks_max = self.memory.pool.usage().used_max;
        self.counts.pool_blocks_max = self.memory.blocks_max();
        let is_sent = self.unsent == 0 || !self.counts.completions_s.is_empty();
        let end = if is_sent { self.last_new_at } else { self.now };
        let end = end + self.cfg.rtt_ps / 2;
        self.counts.packets_per_s = steady(&self.samples, self.cfg.rtt_ps, end);
        self.counts
    }
}

/// Packets delivered a second from some round trips after the start until `end`.
fn steady(samples: &[(u64, u64)], rtt_ps: u64, end: u64) -> Option<f64> {
    let until = samples.iter().rev().find(|(at, _)| *at <= end);
    let begin = (5 * rtt_ps).min(end / 3);
    let from = samples.iter().find(|(at, _)| *at >= begin);
    match (from, until) {
        (Some((from, before)), Some((until, after))) if until > from => {
            Some((after - before) as f64 / ((until - from) as f64 / 1e12))
        }
        _ => None,
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "times were checked to be positive and below a day"
)]
const fn ps(value: f64) -> u64 {
    (value + 0.5) as u64
}
