//! One link with delay and loss, senders and receivers at its ends, in virtual time.
//!
//! - owns: the link, the way back, the order of events. takes: a path, a strategy, a seed.
//! - gives: counts of one run. must not: decide what is lost by anything but identity.
//!
//! TPs share the link in turn, a packet each. Time is in ps, since a packet of 4 KiB takes 83.56 ns at 400 Gb/s.
//! The way back has a delay and no rate.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use urma_mem::Region;
use urma_recovery::{
    AckFeedback, AckPolicy, Arrival, DataMark, DmaCfg, DmaModel, DmaStats, KnittingPool,
    LossReport, Recovery, RtoCfg, SenderCfg, Sending, TailMark, TpReceiver, TpSender,
};

use super::loss::{LossCfg, Losses};

/// Bytes of a tail mark on the wire.
const MARK_BYTES: u64 = 82;
/// Blocks of 64 bytes in one piece of the pool.
const POOL_BLOCKS: u32 = 1 << 20;

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
    /// Packets that all TPs together send.
    pub packets: u64,
    /// TPs that share the link.
    pub tps: u32,
    /// Send window of a TP.
    pub window_packets: u32,
    /// How losses are repaired.
    pub recovery: Recovery,
    /// What accesses to the pool cost.
    pub dma: DmaCfg,
    /// Transmissions after which the run ends unfinished.
    pub budget: u64,
}

/// Counts of one run.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct RunCounts {
    /// Packets delivered a second in the steady part of the run; none when it was too short for one.
    pub packets_per_s: Option<f64>,
    /// Time until the last acknowledgement, in s; none when the budget ended the run.
    pub completion_s: Option<f64>,
    /// Data packets put on the link.
    pub transmissions: u64,
    /// Those that the path lost.
    pub lost: u64,
    /// Different packets that were delivered.
    pub delivered: u64,
    /// Bytes put on the link.
    pub wire_bytes: u64,
    /// Most bytes of loss context that a NIC holds for one TP.
    pub nic_bytes: u64,
    /// Most blocks of the pool in use.
    pub blocks_max: u64,
    /// Accesses to the pool.
    pub dma: DmaStats,
    /// Timeouts of all senders.
    pub timeouts: u64,
}

/// Something on the link.
#[derive(Clone, Copy, Debug)]
enum Forward {
    Data { packet: Sending, ask: bool },
    Tail(TailMark),
}

/// Something on the way back.
#[derive(Debug)]
enum Back {
    Ack(AckFeedback),
    Report(Box<LossReport>),
}

/// A message with the time of its arrival, in ps, and its TP.
#[derive(Debug)]
struct Arriving<M> {
    at: u64,
    tp: u32,
    message: M,
}

#[derive(Debug)]
struct TpEnds {
    sender: TpSender,
    receiver: TpReceiver,
    /// Packets that were not given to the sender.
    left: u64,
    /// Packets that it sends altogether.
    total: u64,
    /// It stands in the row of those that send.
    in_row: bool,
    /// Earliest timer in the heap, in ps.
    armed_at: u64,
    feedbacks: u64,
}

/// Both ends and what is between them.
#[derive(Debug)]
struct PathWorld {
    cfg: RunCfg,
    losses: Losses,
    pool: KnittingPool,
    tps: Vec<TpEnds>,
    row: VecDeque<u32>,
    link: VecDeque<Arriving<Forward>>,
    /// Packets that others overtake: time, number, and the packet by number.
    late: BinaryHeap<(Reverse<u64>, Reverse<usize>)>,
    late_packets: Vec<(u32, Forward)>,
    back: VecDeque<Arriving<Back>>,
    timers: BinaryHeap<(Reverse<u64>, u32)>,
    now: u64,
    free_at: u64,
    packet_ps: u64,
    /// Packets that were never sent.
    unsent: u64,
    /// When the last of them was sent.
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
    let mut world = PathWorld::new(cfg, seed);
    while world.unfinished > 0 && world.counts.transmissions < cfg.budget {
        let event = world.next_event();
        world.step(event);
    }
    world.counts()
}

/// The kind of event that happens next.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum PathEvent {
    Back,
    Link,
    Late,
    Timer,
    Send,
}

impl PathWorld {
    fn new(cfg: &RunCfg, seed: u64) -> Self {
        let mut pool = KnittingPool::new();
        *pool.dma_mut() = DmaModel::new(cfg.dma);
        let wire = (cfg.payload + cfg.overhead) * 8;
        let packet_ps = ps(wire as f64 * 1e12 / cfg.rate_bps);
        let rtt_ns = cfg.rtt_ps / 1000;
        let rto = RtoCfg {
            initial_ns: 4 * rtt_ns,
            min_ns: rtt_ns / 8 + 1,
            max_ns: 8 * rtt_ns,
            retries: 1000,
        };
        let sender = SenderCfg { window_packets: cfg.window_packets, recovery: cfg.recovery, rto };
        let every = if matches!(cfg.recovery, Recovery::Irn { .. }) { 1 } else { 16 };
        let policy = AckPolicy { every, delay_ns: (rtt_ns / 8).clamp(1, 200_000) };
        let share = |tp: u32| {
            let tps = u64::from(cfg.tps);
            cfg.packets / tps + u64::from(u64::from(tp) < cfg.packets % tps)
        };
        let ends = |tp: u32| TpEnds {
            sender: TpSender::new(&sender),
            receiver: TpReceiver::new(cfg.recovery.record(tp), policy),
            left: share(tp),
            total: share(tp),
            in_row: true,
            armed_at: u64::MAX,
            feedbacks: 0,
        };
        let mut world = Self {
            cfg: *cfg,
            losses: Losses::new(cfg.loss, seed),
            pool,
            tps: (0..cfg.tps).map(ends).collect(),
            row: (0..cfg.tps).collect(),
            link: VecDeque::new(),
            late: BinaryHeap::new(),
            late_packets: Vec::new(),
            back: VecDeque::new(),
            timers: BinaryHeap::new(),
            now: 0,
            free_at: 0,
            packet_ps,
            unsent: cfg.packets,
            last_new_at: 0,
            unfinished: cfg.tps,
            samples: vec![(0, 0)],
            counts: RunCounts::default(),
        };
        world.grow_pool();
        world
    }

    fn grow_pool(&mut self) {
        let blocks = self.pool.usage().blocks;
        if let Ok(region) = Region::private((POOL_BLOCKS as usize) << 6) {
            // Pieces are named by their base; no two are alike.
            let grown = self.pool.grow((blocks + 1) << 12, region, 6, POOL_BLOCKS);
            assert!(grown.is_ok(), "a fresh piece of the pool is taken: {grown:?}");
        }
    }

    /// The next event and its time.
    fn next_event(&mut self) -> (u64, PathEvent) {
        let mut next = (u64::MAX, PathEvent::Send);
        if let Some(arriving) = self.back.front() {
            next = next.min((arriving.at, PathEvent::Back));
        }
        if let Some(arriving) = self.link.front() {
            next = next.min((arriving.at, PathEvent::Link));
        }
        if let Some((Reverse(at), _)) = self.late.peek() {
            next = next.min((*at, PathEvent::Late));
        }
        if let Some((Reverse(at), _)) = self.timers.peek() {
            next = next.min((*at, PathEvent::Timer));
        }
        if !self.row.is_empty() {
            next = next.min((self.free_at.max(self.now), PathEvent::Send));
        }
        assert!(next.0 != u64::MAX, "something is on its way while packets are missing");
        next
    }

    fn step(&mut self, (at, event): (u64, PathEvent)) {
        self.now = self.now.max(at);
        match event {
            PathEvent::Back => {
                let Some(arriving) = self.back.pop_front() else { return };
                self.on_back(arriving);
            }
            PathEvent::Link => {
                let Some(arriving) = self.link.pop_front() else { return };
                self.on_forward(arriving.tp, arriving.message);
            }
            PathEvent::Late => {
                let Some((_, Reverse(number))) = self.late.pop() else { return };
                let (tp, message) = self.late_packets[number];
                self.on_forward(tp, message);
            }
            PathEvent::Timer => {
                let Some((_, tp)) = self.timers.pop() else { return };
                self.tps[tp as usize].armed_at = u64::MAX;
                self.on_timer(tp);
            }
            PathEvent::Send => self.send(),
        }
    }

    const fn now_ns(&self) -> u64 {
        self.now / 1000
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
            let ask = packet.is_again() || packet.seq + 1 == ends.total;
            self.row.push_back(tp);
            self.put_data(tp, packet, ask);
            return;
        }
        ends.in_row = false;
        if let Some(mark) = ends.sender.poll_tail(now) {
            self.put(tp, Forward::Tail(mark), MARK_BYTES);
        }
        self.arm(tp);
    }

    fn put_data(&mut self, tp: u32, packet: Sending, ask: bool) {
        self.counts.transmissions += 1;
        if packet.attempt == 1 {
            self.unsent -= 1;
            if self.unsent == 0 {
                self.last_new_at = self.now;
            }
        }
        let bytes = self.cfg.payload + self.cfg.overhead;
        if self.losses.is_lost(tp, packet.seq, packet.attempt) {
            self.counts.lost += 1;
            self.occupy(bytes);
            return;
        }
        let late = self.losses.late_by(self.cfg.late, tp, packet.seq, packet.attempt);
        let message = Forward::Data { packet, ask };
        if late == 0 {
            self.put(tp, message, bytes);
        } else {
            let at = self.occupy(bytes) + self.cfg.rtt_ps / 2 + late * self.packet_ps + 1;
            self.late.push((Reverse(at), Reverse(self.late_packets.len())));
            self.late_packets.push((tp, message));
        }
    }

    fn put(&mut self, tp: u32, message: Forward, bytes: u64) {
        let at = self.occupy(bytes) + self.cfg.rtt_ps / 2;
        if matches!(message, Forward::Tail(_)) {
            let ends = &mut self.tps[tp as usize];
            ends.feedbacks += 1;
            if self.losses.is_feedback_lost(self.cfg.feedback_loss, tp, ends.feedbacks) {
                return;
            }
        }
        self.link.push_back(Arriving { at, tp, message });
    }

    /// Puts bytes on the link; when their last bit is.
    fn occupy(&mut self, bytes: u64) -> u64 {
        self.counts.wire_bytes += bytes;
        let whole = self.cfg.payload + self.cfg.overhead;
        let begin = self.free_at.max(self.now);
        self.free_at = begin + self.packet_ps * bytes / whole;
        self.free_at
    }

    fn on_forward(&mut self, tp: u32, message: Forward) {
        let now = self.now_ns();
        let ends = &mut self.tps[tp as usize];
        match message {
            Forward::Tail(mark) => {
                let taken = ends.receiver.on_tail(now, &mark, &mut self.pool);
                assert!(taken.is_ok(), "the record of TP {tp} is sound: {taken:?}");
            }
            Forward::Data { packet, ask } => self.on_data(tp, packet, ask),
        }
        self.answer(tp);
    }

    fn on_data(&mut self, tp: u32, packet: Sending, ask: bool) {
        let now = self.now_ns();
        let ends = &mut self.tps[tp as usize];
        if packet.seq < ends.receiver.edge() {
            ends.receiver.acknowledge_now(packet.seq);
            return;
        }
        let (tier, ticket) = packet.answers;
        let mark = DataMark { tier, ticket };
        let arrival = ends.receiver.on_data(now, packet.seq, mark, &mut self.pool);
        let Ok(arrival) = arrival else {
            panic!("the record of TP {tp} is sound: {arrival:?} of packet {}", packet.seq);
        };
        if matches!(arrival, Arrival::Advanced(_) | Arrival::Kept) {
            self.counts.delivered += 1;
            self.sample();
        }
        let ends = &mut self.tps[tp as usize];
        ends.receiver.acknowledge(now, packet.seq, arrival, ask);
    }

    /// Notes how much was delivered by now, some times a round trip.
    fn sample(&mut self) {
        let every = self.cfg.rtt_ps / 16;
        if self.samples.last().is_none_or(|(at, _)| self.now >= at + every) {
            self.samples.push((self.now, self.counts.delivered));
            let bytes = self.tps[0].receiver.record().traits().nic_bytes as u64;
            self.counts.nic_bytes = self.counts.nic_bytes.max(bytes);
            let usage = self.pool.usage();
            if usage.free < u64::from(POOL_BLOCKS) / 2 {
                self.grow_pool();
            }
        }
    }

    /// Sends what the receiver has to say.
    fn answer(&mut self, tp: u32) {
        let at = self.now + self.cfg.rtt_ps / 2;
        let ends = &mut self.tps[tp as usize];
        while let Some(report) = ends.receiver.poll_report() {
            ends.feedbacks += 1;
            if !self.losses.is_feedback_lost(self.cfg.feedback_loss, tp, ends.feedbacks) {
                let message = Back::Report(Box::new(report));
                self.back.push_back(Arriving { at, tp, message });
            }
        }
        while let Some(ack) = ends.receiver.poll_ack(&self.pool) {
            let Ok(ack) = ack else { panic!("the record of TP {tp} is sound: {ack:?}") };
            ends.feedbacks += 1;
            if !self.losses.is_feedback_lost(self.cfg.feedback_loss, tp, ends.feedbacks) {
                self.back.push_back(Arriving { at, tp, message: Back::Ack(ack) });
            }
        }
        if ends.receiver.poll_deadline().is_some() {
            self.arm(tp);
        }
    }

    fn on_back(&mut self, arriving: Arriving<Back>) {
        let now = self.now_ns();
        let Arriving { tp, message, .. } = arriving;
        let ends = &mut self.tps[tp as usize];
        let was_empty = ends.left == 0 && ends.sender.ledger().is_empty();
        let taken = match message {
            Back::Ack(ack) => ends.sender.on_ack(now, &ack),
            Back::Report(report) => ends.sender.on_report(now, &report),
        };
        assert!(taken.is_ok(), "TP {tp} acknowledges or misses only what was sent");
        if !was_empty && ends.left == 0 && ends.sender.ledger().is_empty() {
            assert_eq!(ends.receiver.edge(), ends.total, "all packets of TP {tp} came");
            self.unfinished -= 1;
            return;
        }
        self.wake(tp);
    }

    fn on_timer(&mut self, tp: u32) {
        let now = self.now_ns();
        let ends = &mut self.tps[tp as usize];
        ends.receiver.on_time(now);
        match ends.sender.on_time(now) {
            Ok(urma_recovery::Expired::Yes) => self.counts.timeouts += 1,
            Ok(urma_recovery::Expired::No) => {}
            Err(_) => panic!("TP {tp} gave up"),
        }
        self.answer(tp);
        let ends = &self.tps[tp as usize];
        if ends.left > 0 || !ends.sender.ledger().is_empty() {
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
        let ends = &mut self.tps[tp as usize];
        let both = [ends.sender.poll_deadline(), ends.receiver.poll_deadline()];
        let Some(at) = both.into_iter().flatten().min() else { return };
        let at = (at * 1000).max(self.now + 1000);
        if at < ends.armed_at {
            ends.armed_at = at;
            self.timers.push((Reverse(at), tp));
        }
    }

    fn counts(mut self) -> RunCounts {
        let is_done = self.unfinished == 0;
        self.counts.completion_s = is_done.then_some(self.now as f64 / 1e12);
        self.counts.dma = self.pool.dma().stats();
        self.counts.blocks_max = self.pool.usage().used_max;
        let end = if self.unsent == 0 { self.last_new_at } else { self.now };
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
