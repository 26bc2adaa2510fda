//! Each strategy over a bad path, against the simplest oracle: the set of sequences that were received.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use urma_mem::Region;
use urma_recovery::{
    AckFeedback, AckPolicy, AdamapCfg, AdamapSizes, Arrival, CongestionChoice, DataMark,
    KnittingPool, LossError, LossReport, LossRun, Recovery, RepairMark, RtoCfg, SenderCfg, Sending,
    TailMark, TpReceiver, TpSender,
};

const BLOCKS: u32 = 512;
const PACKET_NS: u64 = 100;

#[derive(Clone, Copy, Debug)]
struct Path {
    seed: u64,
    recovery: Recovery,
    congestion: CongestionChoice,
    packets: u64,
    window: u32,
    delay_ns: u64,
    /// How many of 1000 packets are lost.
    lost: u64,
    late: u64,
    doubled: u64,
    /// Of 1000 acknowledgements, reports and tail marks.
    feedback_lost: u64,
    /// Blocks of the pool.
    blocks: u32,
    /// Loss that the sender expects of the path; none: nothing is protected.
    expected: Option<f64>,
}

/// Numbers from a seed (splitmix64).
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn hits(&mut self, of_1000: u64) -> bool {
        self.roll() % 1000 < of_1000
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Message {
    Data(Sending),
    Tail(TailMark),
    Repair(RepairMark),
    Ack(AckFeedback),
    Report(LossReport),
}

/// Both ends, what is on the path, and what the receiver accepted.
struct World {
    path: Path,
    dice: Dice,
    sender: TpSender,
    receiver: TpReceiver,
    pool: KnittingPool,
    on_path: BinaryHeap<(Reverse<u64>, Reverse<usize>)>,
    messages: Vec<Message>,
    accepted: BTreeSet<u64>,
    edge: u64,
    pushed: u64,
    sent: u64,
    repaired: u64,
    /// What the clock of both ends shows beyond the time of the path, in ns.
    offset: i64,
    /// How often it jumps yet.
    jumps: u32,
    /// How often both ends were called, and all that they sent, as one number.
    steps: u64,
    said: u64,
}

impl World {
    fn new(path: Path) -> Self {
        let mut pool = KnittingPool::new();
        if path.blocks > 0 {
            let region = Region::private((path.blocks as usize) << 6).expect("memory");
            pool.grow(0x1000, region, 6, path.blocks).expect("fresh piece");
        }
        let rto = RtoCfg { min_ns: 4 * path.delay_ns, retries: 40, ..RtoCfg::default() };
        let cfg = SenderCfg {
            window_packets: path.window,
            recovery: path.recovery,
            rto,
            congestion: path.congestion,
        };
        let every = if matches!(path.recovery, Recovery::Irn { .. }) { 1 } else { 8 };
        let policy = AckPolicy { every, delay_ns: path.delay_ns };
        let mut sender = TpSender::new(&cfg);
        if let Some(expected) = path.expected {
            sender.protect_tail(expected);
        }
        Self {
            path,
            dice: Dice(path.seed),
            sender,
            receiver: TpReceiver::new(path.recovery.record(1), policy),
            pool,
            on_path: BinaryHeap::new(),
            messages: Vec::new(),
            accepted: BTreeSet::new(),
            edge: 0,
            pushed: 0,
            sent: 0,
            repaired: 0,
            offset: i64::from(u32::MAX) << 4,
            jumps: 0,
            steps: 0,
            said: 0,
        }
    }

    /// What the clock of both ends shows, which may jump: far ahead, or a second back at most.
    fn clock(&mut self, now: u64) -> u64 {
        if self.jumps > 0 && self.dice.hits(5) {
            self.jumps -= 1;
            let by = i64::try_from(self.dice.roll() % 1_000_000_000).expect("below a second");
            self.offset += if self.dice.hits(500) { -by } else { by * (1 << (by % 8)) };
        }
        now.strict_add_signed(self.offset)
    }

    /// The time of the path when that clock shows `at`.
    fn path_time(&self, at: u64) -> u64 {
        at.saturating_sub_signed(self.offset)
    }

    fn send(&mut self, now: u64, message: Message) {
        for byte in format!("{now} {message:?}").bytes() {
            self.said = Dice(self.said ^ u64::from(byte)).roll();
        }
        let is_data = matches!(message, Message::Data(_) | Message::Repair(_));
        if self.dice.hits(if is_data { self.path.lost } else { self.path.feedback_lost }) {
            return;
        }
        let mut at = now + self.path.delay_ns;
        if is_data && self.dice.hits(self.path.late) {
            at += PACKET_NS * (1 + self.dice.roll() % 40);
        }
        let copies = 1 + usize::from(is_data && self.dice.hits(self.path.doubled));
        for _ in 0..copies {
            self.on_path.push((Reverse(at), Reverse(self.messages.len())));
            self.messages.push(message);
        }
    }

    fn receive(&mut self, now: u64, message: Message) -> Result<(), String> {
        match message {
            Message::Data(packet) => return self.receive_data(now, packet),
            Message::Tail(mark) => {
                self.receiver.on_tail(now, &mark, &mut self.pool).map_err(|e| e.to_string())?;
                return self.take_repaired();
            }
            Message::Repair(mark) => self.receiver.on_repair(&mark),
            Message::Ack(ack) => self.sender.on_ack(now, &ack).map_err(|e| e.to_string())?,
            Message::Report(report) => {
                self.sender.on_report(now, &report).map_err(|e| e.to_string())?;
            }
        }
        Ok(())
    }

    fn receive_data(&mut self, now: u64, packet: Sending) -> Result<(), String> {
        let Sending { seq, answers: (tier, ticket), .. } = packet;
        if seq < self.receiver.edge() {
            self.receiver.acknowledge_now(seq);
            return Ok(());
        }
        let mark = DataMark { tier, ticket };
        let arrival = self.receiver.on_data(now, seq, mark, &mut self.pool);
        let arrival = match arrival {
            Err(LossError::Exhausted) => {
                self.receiver.acknowledge_now(seq);
                return Ok(());
            }
            arrival => arrival.map_err(|error| format!("packet {seq}: {error}"))?,
        };
        let is_new = match arrival {
            Arrival::Advanced(_) | Arrival::Kept => {
                if !self.accepted.insert(seq) {
                    return Err(format!("packet {seq} was accepted twice"));
                }
                while self.accepted.contains(&self.edge) {
                    self.edge += 1;
                }
                true
            }
            Arrival::Duplicate if !self.accepted.contains(&seq) => {
                return Err(format!("packet {seq} never came and is called a duplicate"));
            }
            Arrival::Duplicate | Arrival::Dropped | Arrival::Unmatched => false,
        };
        let right = if let Arrival::Advanced(edge) = arrival { edge } else { self.edge };
        if self.receiver.edge() != self.edge || right != self.edge {
            return Err(format!("edge {} instead of {}", self.receiver.edge(), self.edge));
        }
        self.receiver.acknowledge(now, seq, arrival, is_new && seq + 1 == self.path.packets);
        Ok(())
    }

    /// Repaired packets count as received, each once.
    fn take_repaired(&mut self) -> Result<(), String> {
        while let Some(run) = self.receiver.poll_repaired() {
            for seq in run.start..run.end() {
                self.repaired += 1;
                if !self.accepted.insert(seq) {
                    return Err(format!("packet {seq} was there and is repaired"));
                }
            }
        }
        while self.accepted.contains(&self.edge) {
            self.edge += 1;
        }
        let edge = self.receiver.edge();
        if edge == self.edge {
            Ok(())
        } else {
            Err(format!("edge {edge} instead of {}", self.edge))
        }
    }

    fn poll(&mut self, (at, now): (u64, u64), free_at: &mut u64) -> Result<(), String> {
        self.sender.on_time(now).map_err(|_| "the sender gave up".to_owned())?;
        self.receiver.on_time(now);
        let timed = self.receiver.on_record_time(now, 0, &mut self.pool);
        timed.map_err(|error| error.to_string())?;
        while self.pushed < self.path.packets && self.sender.ledger().room() > 0 {
            self.sender.push();
            self.pushed += 1;
        }
        if *free_at <= at {
            if let Some(packet) = self.sender.poll(now) {
                *free_at = at + PACKET_NS;
                self.sent += 1;
                self.send(at, Message::Data(packet));
            } else if let Some(mark) = self.sender.poll_repair(now) {
                *free_at = at + PACKET_NS;
                self.sent += 1;
                self.send(at, Message::Repair(mark));
            } else if let Some(mark) = self.sender.poll_tail(now) {
                *free_at = at + 1;
                self.send(at, Message::Tail(mark));
            }
        }
        while let Some(report) = self.receiver.poll_report() {
            self.send(at, Message::Report(report));
        }
        while let Some(ack) = self.receiver.poll_ack(&self.pool) {
            let ack = ack.map_err(|error| error.to_string())?;
            self.send(at, Message::Ack(ack));
        }
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.pushed == self.path.packets && self.sender.ledger().is_empty()
    }
}

/// Sends all packets; the time it took and the number of transmissions.
fn send_all(path: Path) -> Result<(u64, u64), String> {
    run_with_jumps(path, 0)
}

/// Like [`send_all`], while the clock of both ends jumps so often.
fn run_with_jumps(path: Path, jumps: u32) -> Result<(u64, u64), String> {
    let mut world = World { jumps, ..World::new(path) };
    let now = run_world(&mut world)?;
    Ok((now, world.sent))
}

/// Until all was received; when that was.
fn run_world(world: &mut World) -> Result<u64, String> {
    let (path, jumps) = (world.path, world.jumps);
    let (mut now, mut free_at) = (0, 0);
    while !world.is_done() {
        world.steps += 1;
        let clock = world.clock(now);
        world.poll((now, clock), &mut free_at)?;
        let sends = world.sender.has_sendable().then_some(free_at);
        let path_next = world.on_path.peek().map(|(Reverse(at), _)| *at);
        let on_path = |at: Option<u64>| at.map(|at| world.path_time(at));
        let tail = on_path(world.sender.poll_deadline()).map(|at| at.max(free_at));
        let records = on_path(world.receiver.record_deadline());
        let next = [sends, path_next, tail, on_path(world.receiver.poll_deadline()), records];
        let Some(next) = next.into_iter().flatten().min() else { return Err("it stands".into()) };
        now = next.max(now);
        if now > 20_000_000_000 * u64::from(1 + jumps) {
            return Err(format!("not done in time: edge {} of {}", world.edge, path.packets));
        }
        while let Some((Reverse(at), Reverse(message))) = world.on_path.peek().copied() {
            if at > now {
                break;
            }
            world.on_path.pop();
            let clock = world.clock(now);
            world.receive(clock, world.messages[message])?;
        }
    }
    if world.edge != path.packets {
        return Err(format!("done with edge {} of {}", world.edge, path.packets));
    }
    world.receiver.close(&mut world.pool);
    let usage = world.pool.usage();
    if usage.free != u64::from(path.blocks) {
        return Err(format!("{} of {} blocks came back", usage.free, path.blocks));
    }
    Ok(now)
}

const ADAMAP: AdamapCfg = AdamapCfg {
    sizes: AdamapSizes { bits: 16, list_nodes: 3, watermark: 2, table_nodes: 2 },
    entry_timeout_ns: 700_000,
    entry_timeout_permille: 0,
    sender_timeout_ns: 1_000_000,
};

const ALL: [Recovery; 5] = [
    Recovery::GoBackN,
    Recovery::SelectiveRepeat,
    Recovery::Irn { timeout_permille: 1100 },
    Recovery::Knitting { tail_copies: 2 },
    Recovery::Adamap(ADAMAP),
];

#[test]
fn every_strategy_delivers_all_under_two_hundred_seeds() {
    for seed in 0..200_usize {
        let mut dice = Dice(seed as u64);
        let path = Path {
            seed: seed as u64,
            recovery: ALL[0],
            congestion: CongestionChoice::ALL[seed / 5 % 3],
            packets: 1 + dice.roll() % 1500,
            window: 1 + (dice.roll() % 1500) as u32,
            delay_ns: 1000 + dice.roll() % 100_000,
            lost: dice.roll() % 100,
            late: [0, dice.roll() % 100][seed % 2],
            doubled: [0, dice.roll() % 20][seed / 2 % 2],
            feedback_lost: [0, dice.roll() % 50][seed / 4 % 2],
            blocks: [BLOCKS, u32::try_from(seed / 16 % 8).expect("below 8")][seed / 8 % 2],
            expected: [None, Some(0.05)][seed / 3 % 2],
        };
        for recovery in ALL {
            // The Adamap design knows no window but its own: packets sent again one by one keep its receiver's timeouts from
            // passing.
            let is_adamap = matches!(recovery, Recovery::Adamap(_));
            let congestion = if is_adamap { CongestionChoice::None } else { path.congestion };
            let path = Path { recovery, congestion, ..path };
            if let Err(error) = send_all(path) {
                panic!("{path:?}: {error}");
            }
        }
    }
}

/// Its name without its numbers.
fn word(recovery: Recovery) -> String {
    format!("{recovery:?}").chars().take_while(|letter| letter.is_alphanumeric()).collect()
}

/// Figures of published runs rest on these numbers. A change that means to change them replaces the file by what the failure prints;
/// what differs is then seen in review.
#[test]
fn what_both_ends_send_in_some_runs_is_known() {
    let mut table = String::new();
    for recovery in ALL {
        for congestion in CongestionChoice::ALL {
            if matches!(recovery, Recovery::Adamap(_)) && congestion != CongestionChoice::None {
                continue;
            }
            for number in 0..8 {
                let is = |bit: u64| number >> bit & 1 == 1;
                let pick = |bit, set: u64, not| if is(bit) { set } else { not };
                let path = Path {
                    seed: number,
                    recovery,
                    congestion,
                    packets: 700 + 100 * number,
                    window: if is(2) { 60 } else { 900 },
                    delay_ns: pick(0, 90_000, 7000),
                    lost: 30,
                    late: pick(1, 60, 0),
                    doubled: pick(2, 20, 0),
                    feedback_lost: pick(0, 40, 0),
                    blocks: if is(1) { 3 } else { BLOCKS },
                    expected: is(2).then_some(0.05),
                };
                let mut world = World::new(path);
                if is(1) {
                    world.sender.set_routes(0b101, 4);
                }
                let now = run_world(&mut world).unwrap_or_else(|error| panic!("{path:?}: {error}"));
                let (stats, steps) = (world.sender.stats(), world.steps);
                table += &format!(
                    "{} {} {number}: {now} ns, {} sent, {} again, {} repaired, {} acks, {} timeouts, {steps} steps, {:?} window, {:016x}\n",
                    word(recovery),
                    congestion.name(),
                    world.sent,
                    stats.sent_again,
                    world.repaired,
                    world.receiver.acks_sent(),
                    stats.timeouts,
                    world.sender.congestion_window(),
                    world.said,
                );
            }
        }
    }
    let known = include_str!("known_paths.txt");
    let changed: Vec<_> =
        table.lines().filter(|line| known.lines().all(|old| old != *line)).collect();
    assert!(changed.is_empty() && table == known, "changed: {changed:#?}\nall of it:\n{table}");
}

#[test]
fn every_strategy_survives_clocks_that_jump() {
    for seed in 0..100 {
        let mut dice = Dice(seed);
        let path = Path {
            seed,
            recovery: ALL[0],
            congestion: CongestionChoice::ALL[usize::try_from(seed % 3).expect("small")],
            packets: 1 + dice.roll() % 1000,
            window: 1 + (dice.roll() % 1000) as u32,
            delay_ns: 1000 + dice.roll() % 100_000,
            lost: dice.roll() % 50,
            late: 10,
            doubled: 10,
            feedback_lost: 10,
            blocks: BLOCKS,
            expected: None,
        };
        for recovery in ALL {
            let is_adamap = matches!(recovery, Recovery::Adamap(_));
            let congestion = if is_adamap { CongestionChoice::None } else { path.congestion };
            let path = Path { recovery, congestion, ..path };
            if let Err(error) = run_with_jumps(path, 10) {
                panic!("{path:?}: {error}");
            }
        }
    }
}

#[test]
fn knitting_with_a_pool_that_is_too_small_delivers_all() {
    for seed in 0..4 {
        let path = Path {
            seed,
            recovery: Recovery::Knitting { tail_copies: 1 },
            congestion: CongestionChoice::None,
            packets: 2000,
            window: 2000,
            delay_ns: 500_000,
            lost: 300,
            late: 0,
            doubled: 0,
            feedback_lost: 20,
            blocks: u32::try_from(seed).expect("small"),
            expected: None,
        };
        if let Err(error) = send_all(path) {
            panic!("{path:?}: {error}");
        }
    }
}

#[test]
fn knitting_sends_again_what_was_lost_and_nothing_else() {
    for (lost, feedback_lost) in [(10, 0), (50, 0), (50, 10)] {
        let path = Path {
            seed: 7,
            recovery: Recovery::Knitting { tail_copies: 1 },
            congestion: CongestionChoice::None,
            packets: 50_000,
            window: 50_000,
            delay_ns: 50_000,
            lost,
            late: 0,
            doubled: 0,
            feedback_lost,
            blocks: BLOCKS,
            expected: None,
        };
        let (time, sent) = send_all(path).expect("delivered");
        let least = 50_000 * 1000 / (1000 - lost);
        assert!(sent < least + least / 100, "{sent} transmissions, at least {least}");
        let bound = least * PACKET_NS + 12 * path.delay_ns;
        assert!(time < bound, "{time} ns, bound {bound}");
    }
}

#[test]
fn repair_packets_save_the_round_trip_of_the_tail() {
    for lost in [10, 50] {
        let expected = Some(lost as f64 / 1000.0);
        let path = |seed, expected| Path {
            seed,
            recovery: Recovery::Knitting { tail_copies: 3 },
            congestion: CongestionChoice::None,
            packets: 4000,
            window: 50_000,
            delay_ns: 200_000,
            lost,
            late: 0,
            doubled: 0,
            feedback_lost: 0,
            blocks: BLOCKS,
            expected,
        };
        let bound = 4000 * PACKET_NS * 1000 / (1000 - lost) + 400_000;
        let mut times: Vec<(u64, u64)> =
            (0..40).map(|seed| send_all(path(seed, expected)).expect("delivered")).collect();
        times.sort_unstable();
        let (time, _) = times[38];
        let most = if lost == 10 { 4320 } else { 4720 };
        assert!(time < bound + bound / 10, "{time} ns, bound {bound}");
        assert!(times.iter().all(|(_, sent)| *sent < most), "{times:?}");
        let (plain, _) = send_all(path(1, None)).expect("delivered");
        assert!(plain > bound + 350_000, "without them it takes a round trip more: {plain}");
    }
}

#[test]
fn a_report_of_what_was_never_sent_is_refused() {
    let recovery = Recovery::Knitting { tail_copies: 1 };
    let cfg = SenderCfg {
        window_packets: 8,
        recovery,
        rto: RtoCfg::default(),
        congestion: CongestionChoice::None,
    };
    let mut sender = TpSender::new(&cfg);
    (0..4).for_each(|_| sender.push());
    assert!(sender.poll(0).is_some_and(|packet| packet.seq == 0));
    for (start, count, refused) in [(0, 2, true), (3, 1, true), (1 << 40, 1, true), (0, 1, false)] {
        let mut report = LossReport::new(1, 0);
        assert!(report.push(LossRun { start, count }));
        assert_eq!(sender.on_report(1, &report).is_err(), refused, "{start}, {count}");
    }
    let again = sender.poll(2).expect("packet 0 is lost");
    assert_eq!((again.seq, again.attempt, again.answers), (0, 2, (1, 0)));
}

#[test]
fn packets_that_are_late_are_not_sent_again_for_long() {
    let path = Path {
        seed: 3,
        recovery: Recovery::Knitting { tail_copies: 1 },
        congestion: CongestionChoice::None,
        packets: 50_000,
        window: 50_000,
        delay_ns: 50_000,
        lost: 0,
        late: 50,
        doubled: 0,
        feedback_lost: 0,
        blocks: BLOCKS,
        expected: None,
    };
    let (_, sent) = send_all(path).expect("delivered");
    assert!(sent < 50_100, "{sent} transmissions");
}
