//! Senders that share a router's queue, in virtual time: fairness, use of the link, length of the queue, losses.

use std::collections::VecDeque;

use urma_mem::Region;
use urma_recovery::{
    AckFeedback, AckPolicy, CongestionChoice, DataMark, KnittingPool, LossReport, Recovery, RtoCfg,
    SenderCfg, Sending, TailMark, TpReceiver, TpSender,
};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;

/// A link behind a queue, and who sends over it.
#[derive(Clone, Copy, Debug)]
struct Bottleneck {
    congestion: CongestionChoice,
    recovery: Recovery,
    flows: usize,
    /// Time that a packet takes on the link.
    packet_ns: u64,
    rtt_ns: u64,
    /// Packets that wait at most.
    queue: u64,
    /// Random losses, of 100,000 packets.
    lost: u64,
    /// Time between the starts of two flows.
    stagger_ns: u64,
    seed: u64,
}

impl Bottleneck {
    /// 10,000 packets a second, 20 ms, a queue of one bandwidth-delay product.
    const fn new(congestion: CongestionChoice, flows: usize) -> Self {
        Self {
            congestion,
            recovery: Recovery::SelectiveRepeat,
            flows,
            packet_ns: 100_000,
            rtt_ns: 20 * MS,
            queue: 200,
            lost: 0,
            stagger_ns: 100 * MS,
            seed: 1,
        }
    }

    fn measure(self, until: u64, from: u64) -> Outcome {
        let mut world = World::new(self, from);
        world.run_flows(until);
        world.outcome(until - from)
    }
}

enum Forward {
    Data(Sending),
    Tail(TailMark),
}

enum Back {
    Ack(AckFeedback),
    Report(LossReport),
}

struct Ends {
    sender: TpSender,
    receiver: TpReceiver,
    starts_at: u64,
    received: u64,
}

/// What one run gave between two times.
#[derive(Debug)]
struct Outcome {
    /// Packets received, by flow.
    shares: Vec<u64>,
    /// Part of the link's time that was used.
    used: f64,
    /// Mean and greatest time that a packet waited, in ms.
    waited_ms: (f64, f64),
    /// Packets that found the queue full.
    dropped: u64,
}

impl Outcome {
    /// Jain's index: 1 if all have the same.
    fn fairness(&self) -> f64 {
        let sum: u64 = self.shares.iter().sum();
        let squares: f64 = self.shares.iter().map(|share| (*share as f64).powi(2)).sum();
        (sum as f64).powi(2) / (self.shares.len() as f64 * squares)
    }
}

struct World {
    cfg: Bottleneck,
    dice: u64,
    ends: Vec<Ends>,
    pool: KnittingPool,
    /// Time at which they leave the link, and what arrives half a round trip later.
    link: VecDeque<(u64, usize, Forward)>,
    back: VecDeque<(u64, usize, Back)>,
    free_at: u64,
    now: u64,
    from: u64,
    waits: (u64, u64, u64),
    dropped: u64,
}

impl World {
    fn new(cfg: Bottleneck, from: u64) -> Self {
        let mut pool = KnittingPool::new();
        pool.grow(0x1000, Region::private(4096 << 6).expect("memory"), 6, 4096).expect("a piece");
        let rto = RtoCfg { retries: 1000, min_ns: cfg.rtt_ns * 4, ..RtoCfg::default() };
        let rto = RtoCfg { initial_ns: cfg.rtt_ns * 4, ..rto };
        let ends = (0_u32..).take(cfg.flows).map(|flow| Ends {
            sender: TpSender::new(&SenderCfg {
                window_packets: 1 << 14,
                recovery: cfg.recovery,
                rto,
                congestion: cfg.congestion,
            }),
            receiver: TpReceiver::new(
                cfg.recovery.record(flow),
                AckPolicy { every: 4, delay_ns: 200_000 },
            ),
            starts_at: cfg.stagger_ns * u64::from(flow),
            received: 0,
        });
        Self {
            cfg,
            dice: cfg.seed,
            ends: ends.collect(),
            pool,
            link: VecDeque::new(),
            back: VecDeque::new(),
            free_at: 0,
            now: 0,
            from,
            waits: (0, 0, 0),
            dropped: 0,
        }
    }

    fn is_lost(&mut self) -> bool {
        self.dice = self.dice.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.dice;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % 100_000 < self.cfg.lost
    }

    fn run_flows(&mut self, until: u64) {
        while self.now < until {
            for flow in 0..self.ends.len() {
                self.send(flow);
            }
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
        timers.chain([link, back]).flatten().min().expect("flows never end")
    }

    /// Gives the queue all that a sender may send now.
    fn send(&mut self, flow: usize) {
        let ends = &mut self.ends[flow];
        if ends.starts_at > self.now {
            return;
        }
        ends.sender.on_time(self.now).expect("the peer answers");
        loop {
            let ends = &mut self.ends[flow];
            while ends.sender.ledger().queued() < 2 && ends.sender.ledger().room() > 0 {
                ends.sender.push();
            }
            if let Some(packet) = ends.sender.poll(self.now) {
                self.put(flow, Forward::Data(packet));
            } else if let Some(mark) = ends.sender.poll_tail(self.now) {
                self.put(flow, Forward::Tail(mark));
            } else {
                return;
            }
        }
    }

    fn put(&mut self, flow: usize, message: Forward) {
        let wait = self.free_at.saturating_sub(self.now);
        let is_data = matches!(message, Forward::Data(_));
        if is_data && wait / self.cfg.packet_ns >= self.cfg.queue {
            self.dropped += u64::from(self.now >= self.from);
            return;
        }
        if is_data {
            self.free_at = self.free_at.max(self.now) + self.cfg.packet_ns;
            if self.now >= self.from {
                let (sum, most, count) = self.waits;
                self.waits = (sum + wait, most.max(wait), count + 1);
            }
        }
        if !(is_data && self.is_lost()) {
            let at = self.free_at.max(self.now) + self.cfg.rtt_ns / 2;
            self.link.push_back((at, flow, message));
        }
    }

    fn deliver(&mut self) {
        while self.link.front().is_some_and(|(at, ..)| *at <= self.now) {
            let (_, flow, message) = self.link.pop_front().expect("looked");
            self.receive(flow, &message);
        }
        for flow in 0..self.ends.len() {
            let ends = &mut self.ends[flow];
            ends.receiver.on_time(self.now);
            ends.receiver.on_record_time(self.now, 0, &mut self.pool).expect("the record is sound");
            self.answer(flow);
        }
        while self.back.front().is_some_and(|(at, ..)| *at <= self.now) {
            let (_, flow, message) = self.back.pop_front().expect("looked");
            let sender = &mut self.ends[flow].sender;
            match message {
                Back::Ack(ack) => sender.on_ack(self.now, &ack).expect("only what was sent"),
                Back::Report(report) => {
                    sender.on_report(self.now, &report).expect("only what was sent");
                }
            }
        }
    }

    fn receive(&mut self, flow: usize, message: &Forward) {
        let ends = &mut self.ends[flow];
        match message {
            Forward::Tail(mark) => {
                ends.receiver.on_tail(self.now, mark, &mut self.pool).expect("sound");
            }
            Forward::Data(packet) if packet.seq < ends.receiver.edge() => {
                ends.receiver.acknowledge_now(packet.seq);
            }
            Forward::Data(packet) => {
                let (tier, ticket) = packet.answers;
                let mark = DataMark { tier, ticket };
                let arrival = ends.receiver.on_data(self.now, packet.seq, mark, &mut self.pool);
                ends.receiver.acknowledge(self.now, packet.seq, arrival.expect("sound"), false);
                ends.received += u64::from(self.now >= self.from);
            }
        }
    }

    fn answer(&mut self, flow: usize) {
        let at = self.now + self.cfg.rtt_ns / 2;
        let receiver = &mut self.ends[flow].receiver;
        while let Some(report) = receiver.poll_report() {
            self.back.push_back((at, flow, Back::Report(report)));
        }
        while let Some(ack) = receiver.poll_ack(&self.pool) {
            self.back.push_back((at, flow, Back::Ack(ack.expect("sound"))));
        }
    }

    fn outcome(&self, time: u64) -> Outcome {
        let (sum, most, count) = self.waits;
        let ms = |ns: f64| ns / MS as f64;
        Outcome {
            shares: self.ends.iter().map(|ends| ends.received).collect(),
            used: (count * self.cfg.packet_ns) as f64 / time as f64,
            waited_ms: (ms(sum as f64 / count.max(1) as f64), ms(most as f64)),
            dropped: self.dropped,
        }
    }
}

const KNIT: Recovery = Recovery::Knitting { tail_copies: 1 };

#[test]
fn flows_of_one_kind_share_a_link_fairly_and_use_it() {
    for congestion in [CongestionChoice::Cubic, CongestionChoice::Delay] {
        for flows in [2, 8] {
            for recovery in [Recovery::SelectiveRepeat, KNIT] {
                let cfg = Bottleneck { recovery, ..Bottleneck::new(congestion, flows) };
                let outcome = cfg.measure(25 * SECOND, 15 * SECOND);
                let fairness = outcome.fairness();
                assert!(fairness >= 0.9 && outcome.used >= 0.9, "{cfg:?}: {fairness} {outcome:?}");
            }
        }
    }
}

/// What nodes do without a setting. All begin at once, in a queue that they fill before they know the path.
#[test]
fn sixteen_flows_share_a_link_alike_and_little_is_dropped() {
    for (rtt_ms, lost) in [(2, 0), (20, 0), (80, 0), (2, 1000), (20, 1000), (80, 5000)] {
        let of_all = Bottleneck::new(CongestionChoice::default(), 16);
        let cfg = Bottleneck { recovery: KNIT, rtt_ns: rtt_ms * MS, lost, ..of_all };
        let outcome = cfg.measure(25 * SECOND, 15 * SECOND);
        let fairness = outcome.fairness();
        let fair = if lost == 0 { 0.95 } else { 0.9 };
        assert!(fairness >= fair && outcome.used >= 0.95, "{cfg:?}: {fairness} {outcome:?}");
        let received: u64 = outcome.shares.iter().sum();
        // Of 2 ms the queue is ten round trips, and of 80 ms a quarter.
        let most = if (rtt_ms, lost) == (20, 0) { 1 } else { 7 };
        assert!(100 * outcome.dropped < most * received, "{cfg:?}: {outcome:?}");
    }
}

#[test]
fn a_window_by_delay_keeps_the_queue_at_its_target() {
    // 0.675 ms of tolerance, and a root of the window beside the window: 1.5 ms of 20 for 200 packets.
    for (flows, target_ms) in [(1, 2.3), (2, 2.9), (8, 5.2)] {
        let cfg = Bottleneck { recovery: KNIT, ..Bottleneck::new(CongestionChoice::Delay, flows) };
        let outcome = cfg.measure(35 * SECOND, 25 * SECOND);
        let (mean_ms, _) = outcome.waited_ms;
        assert!((0.8..1.3).contains(&(mean_ms / target_ms)), "{cfg:?}: {outcome:?}");
    }
    // Losses fill the same queue to its end.
    let outcome = Bottleneck::new(CongestionChoice::Cubic, 1).measure(20 * SECOND, 10 * SECOND);
    assert!(outcome.waited_ms.0 > 10.0 && outcome.waited_ms.1 > 19.0, "{outcome:?}");
}

#[test]
fn random_losses_cost_a_window_by_delay_little_and_a_window_by_losses_its_root() {
    let run = |congestion, lost| {
        let cfg = Bottleneck { lost, recovery: KNIT, ..Bottleneck::new(congestion, 1) };
        cfg.measure(20 * SECOND, 5 * SECOND)
    };
    for (lost, limit) in [(100, 0.999), (1000, 0.99), (5000, 0.95)] {
        let received = run(CongestionChoice::Delay, lost).shares[0] as f64 / 150_000.0;
        assert!(received >= 0.97 * limit, "{lost}: {received}");
    }
    // At this round trip CUBIC is as Reno is: sqrt(1.5 / p) packets in each (RFC 9438, 4.3).
    for lost in [250, 1000, 4000] {
        let received = run(CongestionChoice::Cubic, lost).shares[0] as f64 / 15.0;
        let formula = (1.5 / (lost as f64 / 1e5)).sqrt() / 0.02;
        assert!((0.75..1.35).contains(&(received / formula)), "{lost}: {received} {formula}");
    }
}

#[test]
fn a_queue_too_short_to_show_a_delay_still_bounds_the_window() {
    // 20 packets: 2 ms, where the target is 2.3; a burst is 10.
    let cfg =
        Bottleneck { queue: 20, recovery: KNIT, ..Bottleneck::new(CongestionChoice::Delay, 1) };
    let outcome = cfg.measure(20 * SECOND, 10 * SECOND);
    let sent = outcome.shares[0] + outcome.dropped;
    assert!(outcome.used >= 0.9, "{outcome:?}");
    assert!((outcome.dropped as f64) < 0.125 * sent as f64, "{outcome:?}");
}

#[test]
fn without_congestion_control_the_queue_is_full_and_most_is_dropped() {
    let cfg = Bottleneck { recovery: KNIT, ..Bottleneck::new(CongestionChoice::None, 1) };
    let outcome = cfg.measure(3 * SECOND, SECOND);
    assert!(outcome.dropped > 10 * outcome.shares[0], "{outcome:?}");
}

/// As [`what_both_ends_send_in_some_runs_is_known`](../paths.rs): windows, rates and queues of some runs.
#[test]
fn the_shares_of_some_runs_are_known() {
    let mut table = String::new();
    for congestion in [CongestionChoice::Cubic, CongestionChoice::Delay] {
        for recovery in [Recovery::SelectiveRepeat, KNIT] {
            for (flows, lost, queue) in [(1, 0, 200), (2, 300, 200), (3, 0, 20)] {
                let cfg =
                    Bottleneck { lost, recovery, queue, ..Bottleneck::new(congestion, flows) };
                let mut world = World::new(cfg, SECOND);
                world.run_flows(6 * SECOND);
                let windows = world.ends.iter().map(|ends| ends.sender.congestion_window());
                let windows: Vec<_> = windows.map(|window| window.unwrap_or(0)).collect();
                let stats: Vec<_> = world.ends.iter().map(|ends| ends.sender.stats()).collect();
                let again: Vec<_> = stats.iter().map(|stats| stats.sent_again).collect();
                let timeouts: u64 = stats.iter().map(|stats| stats.timeouts).sum();
                table += &format!(
                    "{} {} {flows} {lost} {queue}: {:?} received, {again:?} again, {windows:?} windows, {timeouts} timeouts, {} dropped, {:?} waits\n",
                    if recovery == KNIT { "knit" } else { "selective" },
                    congestion.name(),
                    world.outcome(5 * SECOND).shares,
                    world.dropped,
                    world.waits,
                );
            }
        }
    }
    let known = include_str!("known_shares.txt");
    let changed: Vec<_> =
        table.lines().filter(|line| known.lines().all(|old| old != *line)).collect();
    assert!(changed.is_empty() && table == known, "changed: {changed:#?}\nall of it:\n{table}");
}

#[test]
fn a_path_that_falls_silent_and_comes_back_is_used_again() {
    for congestion in [CongestionChoice::Cubic, CongestionChoice::Delay] {
        let cfg = Bottleneck { recovery: KNIT, ..Bottleneck::new(congestion, 2) };
        let mut world = World::new(cfg, 6 * SECOND);
        world.run_flows(2 * SECOND);
        world.cfg.lost = 100_000;
        world.run_flows(3 * SECOND);
        world.cfg.lost = 0;
        world.run_flows(12 * SECOND);
        let outcome = world.outcome(6 * SECOND);
        assert!(outcome.used >= 0.9, "{cfg:?}: {outcome:?}");
    }
}

#[test]
#[ignore = "prints the table of docs/wan.md"]
fn figures() {
    for congestion in [CongestionChoice::Delay, CongestionChoice::Cubic, CongestionChoice::None] {
        for recovery in [KNIT, Recovery::SelectiveRepeat] {
            for (flows, lost) in [(1, 0), (2, 0), (8, 0), (1, 1000), (1, 5000), (8, 1000)] {
                let cfg = Bottleneck { recovery, lost, ..Bottleneck::new(congestion, flows) };
                for (from, until) in [(5, 10), (15, 25)] {
                    let outcome = cfg.measure(until * SECOND, from * SECOND);
                    let (fairness, (mean, most)) = (outcome.fairness(), outcome.waited_ms);
                    let Outcome { used, dropped, .. } = outcome;
                    println!(
                        "{congestion:?} {recovery:?} {flows} flows, {lost}: {from} to {until} s: \
                         Jain {fairness:.3} used {used:.3} wait {mean:.1} {most:.1} ms, {dropped} dropped"
                    );
                }
            }
        }
    }
}
