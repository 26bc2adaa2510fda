//! A link behind a drop-tail queue and all who send over it, in virtual time.
//!
//! - owns: link, queue, the order of events, counts. takes: who sends, a seed. gives: what each received and what waited.
//! - must not: bound what a flow sends.
//!
//! The way back has a delay and neither rate nor losses. Acknowledgements, reports and tail marks take no room on the link.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use urma_recovery::{
    AckFeedback, AckPolicy, Arrival, CongestionChoice, DataMark, DmaCfg, LossReport, Recovery,
    RepairMark, RtoCfg, SenderCfg, Sending, TailMark, TpReceiver, TpSender,
};

use super::rival::{RivalFlow, RivalKind};
use crate::wan::loss::{LossCfg, Losses};
use crate::wan::path::RunMemory;

/// Parts of a run for which a picture has a value each.
pub const PARTS: usize = 120;
/// Steps of the histogram of waits, from none to a full queue.
const WAIT_STEPS: usize = 1000;
/// Repair packets are lost as if they were this transmission of a packet.
const REPAIR_ATTEMPT: u16 = u16::MAX;
/// Send window of a TP, as a node has it.
const WINDOW_PACKETS: u32 = 1 << 14;
/// Lines of lists in the NIC.
const NIC_LINES: usize = 4096;

/// Traffic that heeds nothing: so many packets at this distance, in turn with silence.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CrossCfg {
    /// Time between two packets, in ps.
    pub interval_ps: u64,
    /// How long it sends, and how long it is silent then, in ns.
    pub on_off_ns: (u64, u64),
}

/// A link behind a queue, and who sends over it.
#[derive(Clone, PartialEq, Debug)]
pub struct Bottleneck {
    /// Congestion control of our flows.
    pub congestion: CongestionChoice,
    /// How they repair losses.
    pub recovery: Recovery,
    /// Loss that they expect at first, to protect what they send last; none: they do not.
    pub expected_loss: Option<f64>,
    /// Number of our flows.
    pub flows: usize,
    /// Packets of a message, behind whose end a flow begins the next one; none: it has no end.
    pub message: Option<u64>,
    /// Flows of others beside them.
    pub rivals: Vec<RivalKind>,
    /// Traffic of others without congestion control.
    pub cross: Option<CrossCfg>,
    /// Time that a packet takes on the link, in ps.
    pub packet_ps: u64,
    /// Round-trip time without queues, in ns.
    pub rtt_ns: u64,
    /// Packets that wait at most.
    pub queue: u64,
    /// Losses beside those of the queue.
    pub loss: LossCfg,
    /// Time between the starts of two flows, in ns.
    pub stagger_ns: u64,
    /// When the run ends, and from when on it is measured, in ns.
    pub until_ns: u64,
    /// From when on it is measured, in ns.
    pub from_ns: u64,
}

impl Bottleneck {
    /// Runs one seed to its end.
    #[must_use]
    pub fn measure(&self, seed: u64) -> SharingOutcome {
        let mut world = BottleneckWorld::new(self, seed);
        world.run_until(self.until_ns);
        world.outcome()
    }

    /// Flows that share what cross traffic leaves.
    #[must_use]
    pub fn sharers(&self) -> usize {
        self.flows + self.rivals.len()
    }

    /// Names of all who send, in the order of an outcome.
    #[must_use]
    pub fn names(&self) -> Vec<&'static str> {
        let ours = (0..self.flows).map(|_| self.congestion.name());
        let rivals = self.rivals.iter().map(|kind| kind.name());
        ours.chain(rivals).chain(self.cross.map(|_| "cross")).collect()
    }
}

/// What one flow did in the time that is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct FlowCounts {
    /// Different packets that its receiver got.
    pub received: u64,
    /// Packets put into the queue or dropped before it.
    pub sent: u64,
    /// Packets sent again among them.
    pub again: u64,
    /// Repair packets among them.
    pub repairs: u64,
    /// Packets that found the queue full.
    pub dropped: u64,
    /// Packets that the path lost.
    pub lost: u64,
    /// Number of times that its timer ran out.
    pub timeouts: u64,
}

/// What one run gave from the time on that is measured.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SharingOutcome {
    /// Of each flow: ours, those of others, cross traffic.
    pub flows: Vec<FlowCounts>,
    /// How many of these are ours, and how many share the link.
    pub ours: usize,
    /// Those and the flows of others.
    pub sharers: usize,
    /// Part of the link's time that was used.
    pub used: f64,
    /// Mean time in the queue, in ms.
    pub wait_mean_ms: f64,
    /// Time in the queue that 99 % do not exceed, in steps of a thousandth of the queue.
    pub wait_p99_ms: f64,
    /// Longest time in the queue.
    pub wait_max_ms: f64,
    /// Packets received in each part of the whole run, by flow.
    pub parts: Vec<Vec<u32>>,
    /// Mean packets in the queue as those found it that came in each part.
    pub queue_parts: Vec<f64>,
}

impl SharingOutcome {
    /// Jain's index of our flows: 1 if all have the same.
    #[must_use]
    pub fn fairness(&self) -> f64 {
        let ours = &self.flows[..self.ours];
        let sum: f64 = ours.iter().map(|flow| flow.received as f64).sum();
        let squares: f64 = ours.iter().map(|flow| (flow.received as f64).powi(2)).sum();
        if squares > 0.0 { sum.powi(2) / (ours.len() as f64 * squares) } else { 0.0 }
    }

    /// What a flow has of its fair share: an equal part of what all who share the link received.
    #[must_use]
    pub fn share(&self, flow: usize) -> f64 {
        let all: u64 = self.flows[..self.sharers].iter().map(|flow| flow.received).sum();
        self.flows[flow].received as f64 * self.sharers as f64 / all.max(1) as f64
    }

    /// What our flows have of their fair share in the mean.
    #[must_use]
    pub fn our_share(&self) -> f64 {
        (0..self.ours).map(|flow| self.share(flow)).sum::<f64>() / self.ours as f64
    }

    /// Packets that found the queue full.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.flows.iter().map(|flow| flow.dropped).sum()
    }

    /// Packets that our flows put on the path for each that was received.
    #[must_use]
    pub fn sent_per_received(&self) -> f64 {
        let ours = &self.flows[..self.ours];
        let sent: u64 = ours.iter().map(|flow| flow.sent).sum();
        let received: u64 = ours.iter().map(|flow| flow.received).sum();
        sent as f64 / received.max(1) as f64
    }
}

#[derive(Debug)]
enum SharedForward {
    Data(Sending),
    Repair(RepairMark),
    Tail(TailMark),
    /// A packet of a rival, and of cross traffic.
    Other(u64),
}

#[derive(Debug)]
enum SharedBack {
    Ack(AckFeedback),
    Report(Box<LossReport>),
    Other(u64),
}

/// One of our flows.
#[derive(Debug)]
struct FlowEnds {
    sender: TpSender,
    receiver: TpReceiver,
    starts_at: u64,
    /// Packets of the message that the sender does not know yet.
    left: u64,
    repairs: u64,
}

/// Cross traffic: when its next packet comes, in ps, and its number.
#[derive(Clone, Copy, Debug)]
struct Cross {
    cfg: CrossCfg,
    next_ps: u64,
    number: u64,
}

impl Cross {
    fn advance(&mut self) {
        let (on, off) = self.cfg.on_off_ns;
        self.number += 1;
        self.next_ps += self.cfg.interval_ps;
        let cycle_ps = (on + off) * 1000;
        if self.next_ps % cycle_ps >= on * 1000 {
            self.next_ps = (self.next_ps / cycle_ps + 1) * cycle_ps;
        }
    }
}

/// Times of packets in the queue.
#[derive(Debug)]
struct Waits {
    sum: u64,
    most: u64,
    count: u64,
    steps: Vec<u64>,
}

/// All who send, the link and the queue between them and their peers.
#[derive(Debug)]
pub struct BottleneckWorld {
    cfg: Bottleneck,
    losses: Losses,
    ends: Vec<FlowEnds>,
    rivals: Vec<(u64, RivalFlow)>,
    cross: Option<Cross>,
    memory: RunMemory,
    /// Time at which they leave the link and half a round trip passed, and what arrives half a round trip later.
    link: VecDeque<(u64, usize, SharedForward)>,
    back: VecDeque<(u64, usize, SharedBack)>,
    /// When the link is free, in ps.
    free_at: u64,
    now: u64,
    waits: Waits,
    /// By flow: counts since the time that is measured, and those of senders before it.
    counts: Vec<FlowCounts>,
    before: Option<Vec<(u64, u64)>>,
    /// What the queue held then, as time of the link in ps.
    held_before: u64,
    parts: Vec<Vec<u32>>,
    queue_parts: Vec<(u64, u64)>,
}

impl BottleneckWorld {
    /// A world in which nothing was sent.
    ///
    /// # Panics
    ///
    /// Without memory for the pool.
    #[must_use]
    pub fn new(cfg: &Bottleneck, seed: u64) -> Self {
        let rto = RtoCfg { retries: 1000, min_ns: cfg.rtt_ns * 4, ..RtoCfg::default() };
        let rto = RtoCfg { initial_ns: cfg.rtt_ns * 4, ..rto };
        let new_ends = |flow: u32| {
            let mut sender = TpSender::new(&SenderCfg {
                window_packets: WINDOW_PACKETS,
                recovery: cfg.recovery,
                rto,
                congestion: cfg.congestion,
            });
            if let Some(loss) = cfg.expected_loss {
                sender.protect_tail(loss);
            }
            FlowEnds {
                sender,
                receiver: TpReceiver::new(
                    cfg.recovery.record(flow),
                    AckPolicy { every: 4, delay_ns: 200_000 },
                ),
                starts_at: cfg.stagger_ns * u64::from(flow),
                left: cfg.message.unwrap_or(u64::MAX),
                repairs: 0,
            }
        };
        let ends: Vec<FlowEnds> = (0..).take(cfg.flows).map(new_ends).collect();
        let starts = (cfg.flows as u64..).map(|number| cfg.stagger_ns * number);
        let rivals = starts.zip(cfg.rivals.iter().map(|kind| RivalFlow::new(*kind))).collect();
        let all = cfg.names().len();
        Self {
            losses: Losses::new(cfg.loss, seed),
            ends,
            rivals,
            cross: cfg.cross.map(|cfg| Cross { cfg, next_ps: 0, number: 0 }),
            memory: RunMemory::new(DmaCfg::default(), NIC_LINES),
            link: VecDeque::new(),
            back: VecDeque::new(),
            free_at: 0,
            now: 0,
            waits: Waits { sum: 0, most: 0, count: 0, steps: vec![0; WAIT_STEPS + 1] },
            counts: vec![FlowCounts::default(); all],
            before: None,
            held_before: 0,
            parts: vec![vec![0; PARTS]; all],
            queue_parts: vec![(0, 0); PARTS],
            cfg: cfg.clone(),
        }
    }

    /// The losses of the path are these from now on.
    pub fn set_loss(&mut self, loss: LossCfg, seed: u64) {
        self.losses = Losses::new(loss, seed);
    }

    /// Windows of our flows; 0: not bounded.
    #[must_use]
    pub fn windows(&self) -> Vec<u64> {
        self.ends.iter().map(|ends| ends.sender.congestion_window().unwrap_or(0)).collect()
    }

    /// Lets time pass until `until`, in ns.
    pub fn run_until(&mut self, until: u64) {
        while self.now < until {
            if self.before.is_none() && self.now >= self.cfg.from_ns {
                self.before = Some(self.sender_counts());
                self.held_before = self.held();
            }
            for flow in 0..self.ends.len() {
                self.send(flow);
            }
            for rival in 0..self.rivals.len() {
                self.send_rival(rival);
            }
            self.send_cross();
            self.now = self.next_time().max(self.now);
            self.deliver();
        }
    }

    fn next_time(&self) -> u64 {
        let link = self.link.front().map(|(at, ..)| *at);
        let back = self.back.front().map(|(at, ..)| *at);
        let timers = self.ends.iter().flat_map(|ends| {
            let start = (ends.starts_at > self.now).then_some(ends.starts_at);
            // What is due now had its turn.
            let sender = ends.sender.poll_deadline().map(|at| at.max(self.now + 1));
            [start, sender, ends.receiver.poll_deadline(), ends.receiver.record_deadline()]
        });
        let rivals = self.rivals.iter().map(|(starts_at, rival)| match *starts_at > self.now {
            true => Some(*starts_at),
            false => rival.deadline().map(|at| at.max(self.now + 1)),
        });
        let cross = self.cross.map(|cross| cross.next_ps.div_ceil(1000));
        // Nobody sends: time passes.
        let rest = Some(self.now + 1_000_000_000);
        timers.chain(rivals).chain([link, back, cross, rest]).flatten().min().unwrap_or(u64::MAX)
    }

    /// What the queue holds, as time of the link in ps.
    const fn held(&self) -> u64 {
        self.free_at.saturating_sub(self.now * 1000)
    }

    /// Gives the queue all that a sender may send now.
    fn send(&mut self, flow: usize) {
        let ends = &mut self.ends[flow];
        if ends.starts_at > self.now {
            return;
        }
        let expired = ends.sender.on_time(self.now);
        assert!(expired.is_ok(), "flow {flow}: the peer answers");
        loop {
            let ends = &mut self.ends[flow];
            while ends.left > 0
                && ends.sender.ledger().queued() < 2
                && ends.sender.ledger().room() > 0
            {
                ends.sender.push();
                ends.left -= u64::from(ends.left < u64::MAX);
            }
            if let Some(packet) = ends.sender.poll(self.now) {
                let lost = self.losses.is_lost(flow_id(flow), packet.seq, packet.attempt);
                self.put(flow, SharedForward::Data(packet), lost);
            } else if let Some(mark) = ends.sender.poll_repair(self.now) {
                ends.repairs += 1;
                let lost = self.losses.is_lost(flow_id(flow), ends.repairs, REPAIR_ATTEMPT);
                self.counts[flow].repairs += u64::from(self.now >= self.cfg.from_ns);
                self.put(flow, SharedForward::Repair(mark), lost);
            } else if let Some(mark) = ends.sender.poll_tail(self.now) {
                let at = self.free_at.div_ceil(1000).max(self.now) + self.cfg.rtt_ns / 2;
                self.link.push_back((at, flow, SharedForward::Tail(mark)));
            } else {
                return;
            }
        }
    }

    fn send_rival(&mut self, number: usize) {
        let flow = self.ends.len() + number;
        let (starts_at, rival) = &mut self.rivals[number];
        if *starts_at > self.now {
            return;
        }
        rival.on_time(self.now);
        while let Some(packet) = self.rivals[number].1.poll(self.now) {
            let lost = self.losses.is_lost(flow_id(flow), packet, 1);
            self.put(flow, SharedForward::Other(packet), lost);
        }
    }

    fn send_cross(&mut self) {
        let flow = self.cfg.sharers();
        while let Some(cross) = &mut self.cross
            && cross.next_ps <= self.now * 1000
        {
            let number = cross.number;
            cross.advance();
            let lost = self.losses.is_lost(flow_id(flow), number, 1);
            self.put(flow, SharedForward::Other(number), lost);
        }
    }

    /// A packet comes to the queue; whether the path loses it behind the link.
    fn put(&mut self, flow: usize, message: SharedForward, lost: bool) {
        let is_measured = self.now >= self.cfg.from_ns;
        let wait_ps = self.held();
        let queued = wait_ps / self.cfg.packet_ps;
        let part = self.part();
        let (sum, count) = self.queue_parts[part];
        self.queue_parts[part] = (sum + queued.min(self.cfg.queue), count + 1);
        let counts = &mut self.counts[flow];
        counts.sent += u64::from(is_measured);
        if queued >= self.cfg.queue {
            counts.dropped += u64::from(is_measured);
            return;
        }
        self.free_at = self.free_at.max(self.now * 1000) + self.cfg.packet_ps;
        if is_measured {
            let Waits { sum, most, count, steps } = &mut self.waits;
            let wait = wait_ps / 1000;
            (*sum, *most, *count) = (*sum + wait, wait.max(*most), *count + 1);
            let step = u128::from(wait_ps) * WAIT_STEPS as u128;
            let step = step.div_ceil(u128::from(self.cfg.queue * self.cfg.packet_ps));
            steps[usize::try_from(step).unwrap_or(WAIT_STEPS).min(WAIT_STEPS)] += 1;
        }
        if lost {
            counts.lost += u64::from(is_measured);
        } else {
            let at = self.free_at.div_ceil(1000) + self.cfg.rtt_ns / 2;
            self.link.push_back((at, flow, message));
        }
    }

    fn part(&self) -> usize {
        let part = u128::from(self.now) * PARTS as u128 / u128::from(self.cfg.until_ns.max(1));
        usize::try_from(part).unwrap_or(usize::MAX).min(PARTS - 1)
    }

    fn deliver(&mut self) {
        while self.link.front().is_some_and(|(at, ..)| *at <= self.now) {
            let Some((_, flow, message)) = self.link.pop_front() else { break };
            self.receive(flow, &message);
        }
        for flow in 0..self.ends.len() {
            let ends = &mut self.ends[flow];
            ends.receiver.on_time(self.now);
            sound(ends.receiver.on_record_time(self.now, 0, &mut self.memory.pool));
            self.answer(flow);
        }
        self.memory.refill();
        while self.back.front().is_some_and(|(at, ..)| *at <= self.now) {
            let Some((_, flow, message)) = self.back.pop_front() else { break };
            self.take_back(flow, message);
        }
    }

    fn take_back(&mut self, flow: usize, message: SharedBack) {
        let taken = match message {
            SharedBack::Other(number) => {
                self.rivals[flow - self.ends.len()].1.on_ack(self.now, number);
                return;
            }
            SharedBack::Ack(ack) => self.ends[flow].sender.on_ack(self.now, &ack),
            SharedBack::Report(report) => self.ends[flow].sender.on_report(self.now, &report),
        };
        assert!(taken.is_ok(), "flow {flow} acknowledges or misses only what was sent");
        let ends = &mut self.ends[flow];
        if ends.left == 0 && ends.sender.ledger().is_empty() {
            ends.left = self.cfg.message.unwrap_or(u64::MAX);
        }
    }

    fn receive(&mut self, flow: usize, message: &SharedForward) {
        if let SharedForward::Other(number) = message {
            self.count(flow, 1);
            if flow < self.cfg.sharers() {
                let at = self.now + self.cfg.rtt_ns / 2;
                self.back.push_back((at, flow, SharedBack::Other(*number)));
            }
            return;
        }
        let (ends, pool) = (&mut self.ends[flow], &mut self.memory.pool);
        let mut received = 0;
        match message {
            SharedForward::Tail(mark) => sound(ends.receiver.on_tail(self.now, mark, pool)),
            SharedForward::Repair(mark) => ends.receiver.on_repair(mark),
            SharedForward::Data(packet) if packet.seq < ends.receiver.edge() => {
                ends.receiver.acknowledge_now(packet.seq);
            }
            SharedForward::Data(packet) => {
                let (tier, ticket) = packet.answers;
                let mark = DataMark { tier, ticket };
                let arrival = sound(ends.receiver.on_data(self.now, packet.seq, mark, pool));
                ends.receiver.acknowledge(self.now, packet.seq, arrival, false);
                received += u64::from(matches!(arrival, Arrival::Advanced(_) | Arrival::Kept));
            }
            SharedForward::Other(_) => {}
        }
        while let Some(run) = ends.receiver.poll_repaired() {
            received += u64::from(run.count);
        }
        self.count(flow, received);
    }

    fn count(&mut self, flow: usize, received: u64) {
        self.counts[flow].received += if self.now >= self.cfg.from_ns { received } else { 0 };
        let part = self.part();
        self.parts[flow][part] += u32::try_from(received).unwrap_or(u32::MAX);
    }

    fn answer(&mut self, flow: usize) {
        let at = self.now + self.cfg.rtt_ns / 2;
        let receiver = &mut self.ends[flow].receiver;
        while let Some(report) = receiver.poll_report() {
            self.back.push_back((at, flow, SharedBack::Report(Box::new(report))));
        }
        while let Some(ack) = receiver.poll_ack(&self.memory.pool) {
            self.back.push_back((at, flow, SharedBack::Ack(sound(ack))));
        }
    }

    /// Packets sent again and timeouts since the start, of all who have such.
    fn sender_counts(&self) -> Vec<(u64, u64)> {
        let ours = self.ends.iter().map(|ends| {
            let stats = ends.sender.stats();
            (stats.sent_again, stats.timeouts)
        });
        let rivals = self.rivals.iter().map(|(_, rival)| (rival.lost(), rival.timeouts()));
        ours.chain(rivals).collect()
    }

    /// What was measured until now.
    #[must_use]
    pub fn outcome(&self) -> SharingOutcome {
        let mut flows = self.counts.clone();
        let before = self.before.clone().unwrap_or_default();
        let before = before.into_iter().chain(std::iter::repeat((0, 0)));
        for ((counts, now), before) in flows.iter_mut().zip(self.sender_counts()).zip(before) {
            (counts.again, counts.timeouts) = (now.0 - before.0, now.1 - before.1);
        }
        let Waits { sum, most, count, steps } = &self.waits;
        let ms = |ns: f64| ns / 1e6;
        let step_ns = (self.cfg.queue * self.cfg.packet_ps) as f64 / 1000.0 / WAIT_STEPS as f64;
        let mut left = (count * 99).div_ceil(100);
        let p99 = steps.iter().position(|step| {
            left = left.saturating_sub(*step);
            left == 0
        });
        let time_ps = self.now.saturating_sub(self.cfg.from_ns) * 1000;
        let busy_ps = (count * self.cfg.packet_ps + self.held_before).saturating_sub(self.held());
        SharingOutcome {
            flows,
            ours: self.ends.len(),
            sharers: self.cfg.sharers(),
            used: busy_ps as f64 / time_ps.max(1) as f64,
            wait_mean_ms: ms(*sum as f64 / (*count).max(1) as f64),
            wait_p99_ms: ms(p99.unwrap_or(WAIT_STEPS) as f64 * step_ns),
            wait_max_ms: ms(*most as f64),
            parts: self.parts.clone(),
            queue_parts: self
                .queue_parts
                .iter()
                .map(|(sum, count)| *sum as f64 / (*count).max(1) as f64)
                .collect(),
        }
    }

    /// Sum of the waits in ns, the longest one, and their number.
    #[must_use]
    pub const fn waits(&self) -> (u64, u64, u64) {
        (self.waits.sum, self.waits.most, self.waits.count)
    }
}

/// Number of a flow as losses are drawn by it.
fn flow_id(flow: usize) -> u32 {
    u32::try_from(flow).unwrap_or(u32::MAX)
}

/// What a record gave, whose pool nobody else writes.
fn sound<V, E: std::fmt::Display>(outcome: Result<V, E>) -> V {
    outcome.unwrap_or_else(|error| panic!("the record is sound: {error}"))
}
