//! Two TPs over a faulty link, compared with the simplest oracle: the list of what was sent.
#![expect(clippy::cast_possible_truncation, reason = "random numbers are cut to size on purpose")]

use std::sync::Arc;

use proptest::prelude::{ProptestConfig, any, prop_assert, proptest};
use udma_abi::RawEid;
use urma_mem::Region;
use urma_packet::{
    IcrcFlow, Initiator, InitiatorKind, JettyId, MissingRun, ReportBody, ResponseBody,
    ResponseHeader, ResponseStatus, TailBody, Tpn, WINDOW_MAX,
};
use urma_recovery::{AckNews, AdamapSizes, DataMark, RecordTraits, SendLedger};

use super::*;
use crate::link::{Cut, Datagram, FaultCfg, Link, Outage, Rng};
use crate::transport::strategy::Strategy;

mod lies;
mod repairs;
mod runs;

const MS: Nanos = 1_000_000;
const BLOCK_LOG2: u8 = 6;

/// One run: what is sent over which link.
#[derive(Clone, Debug)]
struct Scenario {
    seed: u64,
    strategy: Strategy,
    window: u32,
    blocks: u32,
    pieces: u32,
    first_psn: u32,
    /// Length up to which pieces join a packet.
    longest: usize,
    faults: FaultCfg,
    /// Virtual time limit of the run.
    bound: Nanos,
}

impl Scenario {
    fn new(seed: u64, strategy: Strategy, faults: FaultCfg) -> Self {
        Self {
            seed,
            strategy,
            window: 32,
            blocks: 8,
            pieces: 120,
            first_psn: 0x00ff_ffe0,
            longest: 0,
            faults,
            bound: 20_000 * MS,
        }
    }
}

/// One end: TP, pool, pieces sent and received.
struct End {
    tp: Tp,
    pool: KnittingPool,
    eid: RawEid,
    goal: u32,
    pushed: u32,
    popped: u32,
    counts: std::collections::HashMap<
        Received,
        u32,
        std::hash::BuildHasherDefault<std::hash::DefaultHasher>,
    >,
}

/// The payload of piece `number` of an end.
fn content(eid: RawEid, number: u32) -> Vec<u8> {
    let mut rng = Rng::new(u64::from(number) << 8 | u64::from(eid.0[0]));
    let mut bytes = vec![0; 4 + rng.index(200)];
    rng.fill(&mut bytes);
    bytes
}

fn header(number: u32, len: usize) -> TransactionHeader {
    TransactionHeader::Response(ResponseHeader {
        tassn: (number & 0xffff) as u16,
        initiator: Initiator { kind: InitiatorKind::Jetty, id: JettyId::from_low_bits(7) },
        target: None,
        status: ResponseStatus::Ack,
        body: ResponseBody::ReadData { offset: 0, length: len as u32 },
    })
}

impl End {
    fn new(scenario: &Scenario, number: u8, goal: u32) -> Self {
        let mut pool = KnittingPool::new();
        if scenario.blocks > 0 {
            let region = Region::private((scenario.blocks as usize) << BLOCK_LOG2).expect("memory");
            pool.grow(0x1000, region, BLOCK_LOG2, scenario.blocks).expect("fresh piece");
        }
        let tpn = |n: u8| Tpn::from_low_bits(u32::from(n) + 100);
        let psn = |n: u8| Psn::new(scenario.first_psn + u32::from(n));
        let cfg = TpCfg {
            window_packets: scenario.window,
            strategy: scenario.strategy,
            ..TpCfg::new(tpn(number), tpn(3 - number), psn(number), psn(3 - number))
        };
        let eid = RawEid([number; 16]);
        let counts = Default::default();
        let mut tp = Tp::new(cfg);
        tp.join_up_to(scenario.longest);
        Self { tp, pool, eid, goal, pushed: 0, popped: 0, counts }
    }

    fn push_some(&mut self, rng: &mut Rng) {
        let burst = rng.below(u64::from(self.tp.cfg().window_packets) + 1);
        for _ in 0..burst {
            if self.pushed == self.goal || !self.tp.has_room() {
                return;
            }
            let bytes = content(self.eid, self.pushed);
            let head = header(self.pushed, bytes.len());
            let (room, before) = (self.tp.room(), self.tp.tx.ledger().next());
            self.tp.push(&head, bytes.len(), &mut |out| out.copy_from_slice(&bytes)).expect("room");
            let places = self.tp.tx.ledger().next() - before;
            assert_eq!(self.tp.room(), room - places as usize);
            assert!(places == 1 || self.tp.longest > 0);
            self.pushed += 1;
        }
    }

    fn transmit(&mut self, now: Nanos, to: RawEid, link: &mut dyn Link) {
        let mut buf = [0; TRANSMIT_MAX];
        while let Some(size) = self.tp.poll_transmit(now, &mut buf, &mut self.pool) {
            let mut next = Some(size);
            while let Some(len) = next {
                flow().seal(&mut buf[..len]).expect("long enough");
                link.send(now, Datagram { from: self.eid, to, bytes: Arc::from(&buf[..len]) });
                next = self.tp.poll_follower(now, &mut buf, size);
            }
        }
    }

    fn receive(&mut self, now: Nanos, bytes: &[u8], peer: RawEid) -> Result<(), String> {
        let Ok(packet) = Packet::open(bytes, &flow()) else { return Ok(()) };
        let result = self.tp.on_packet(now, &packet, &mut self.pool);
        *self.counts.entry(result).or_insert(0) += 1;
        self.take_pieces(peer)
    }

    /// Pops the pieces that are in order, and checks that the peer sent them.
    fn take_pieces(&mut self, peer: RawEid) -> Result<(), String> {
        while let Some(piece) = self.tp.pop() {
            let expected = content(peer, self.popped);
            if piece.header != header(self.popped, expected.len()) || piece.payload != expected {
                return Err(format!("piece {} is not what was sent", self.popped));
            }
            self.popped += 1;
            self.tp.recycle(piece);
        }
        Ok(())
    }
}

fn flow() -> IcrcFlow {
    let addr = std::net::SocketAddr::from(([127, 0, 0, 1], 4791));
    IcrcFlow::new(addr, addr)
}

/// Runs a scenario over ends made by `make`; the ends and the time it took, or what went wrong.
fn run_with(scenario: &Scenario, ends: [End; 2]) -> Result<([End; 2], Nanos), String> {
    let mut ends = ends;
    let mut rng = Rng::new(scenario.seed);
    let mut link = scenario.faults.build(&mut rng);
    let mut now = 0;
    loop {
        for me in 0..2 {
            let to = ends[1 - me].eid;
            ends[me].push_some(&mut rng);
            ends[me].transmit(now, to, &mut *link);
            if let Some(error) = ends[me].tp.failed() {
                return Err(format!("TP {me}: {error}"));
            }
        }
        let done = (0..2).all(|i| {
            ends[i].tp.is_drained()
                && ends[i].pushed == ends[i].goal
                && ends[i].popped == ends[1 - i].goal
        });
        if done {
            return Ok((ends, now));
        }
        let next = [link.poll_deadline(), ends[0].tp.poll_deadline(), ends[1].tp.poll_deadline()];
        let next = next.into_iter().flatten().min();
        // More to push and nothing to wait for: another burst.
        now = next.unwrap_or(now + 1).max(now);
        if now > scenario.bound {
            return Err(format!("{} and {} pieces by then", ends[0].popped, ends[1].popped));
        }
        while let Some(datagram) = link.poll(now) {
            let me = usize::from(datagram.to != ends[0].eid);
            let peer = ends[1 - me].eid;
            ends[me].receive(now, &datagram.bytes, peer)?;
        }
    }
}

fn run_scenario(scenario: &Scenario) -> Result<([End; 2], Nanos), String> {
    let goals = [scenario.pieces, scenario.pieces / 3];
    let ends = [End::new(scenario, 1, goals[0]), End::new(scenario, 2, goals[1])];
    run_with(scenario, ends)
}

/// Checks that everything was delivered and everything returned to the pool.
fn check(scenario: &Scenario) -> Result<Nanos, String> {
    let (ends, took) = run_scenario(scenario)?;
    for end in ends {
        let usage = end.pool.usage();
        if usage.free != usage.blocks {
            return Err(format!("{} blocks kept", usage.blocks - usage.free));
        }
        if end.tp.room() != scenario.window as usize {
            return Err(format!("window of {} has {} places", scenario.window, end.tp.room()));
        }
    }
    Ok(took)
}

fn bad_link(rng: &mut Rng) -> FaultCfg {
    FaultCfg {
        delay_ns: rng.below(2 * MS),
        jitter_ns: rng.below(MS),
        loss_ppm: rng.below(150_000) as u32,
        duplicate_ppm: rng.below(100_000) as u32,
        reorder_ppm: rng.below(200_000) as u32,
        reorder_ns: 1 + rng.below(3 * MS),
        corrupt_ppm: rng.below(50_000) as u32,
        ..FaultCfg::default()
    }
}

/// Whatever its window is in packets: what the peer may lack is held here.
#[test]
fn a_sender_holds_a_bounded_number_of_bytes() {
    let (own, peer) = (Tpn::from_low_bits(100), Tpn::from_low_bits(101));
    let cfg = TpCfg::new(own, peer, Psn::new(0), Psn::new(0));
    let mut tp = Tp::new(TpCfg { window_packets: WINDOW_MAX, ..cfg });
    tp.join_up_to(4096);
    let push = |tp: &mut Tp, len: usize| {
        tp.push(&header(0, len), len, &mut |out| out.fill(7)).expect("there is room");
    };
    // Two in one packet.
    push(&mut tp, 100);
    push(&mut tp, 100);
    assert_eq!(tp.tx.ledger().next(), 1);
    while tp.has_room() {
        push(&mut tp, Mtu::MAX.bytes());
    }
    let held = WINDOW_BYTES..WINDOW_BYTES + TRANSMIT_MAX;
    assert!(held.contains(&tp.packets.bytes), "{} bytes", tp.packets.bytes);
    assert!(tp.tx.ledger().room() > 50_000, "packets are not what is short");
    tp.packets.free(0..tp.tx.ledger().next());
    assert_eq!((tp.packets.bytes, tp.has_room()), (0, true));
}

#[test]
fn every_piece_arrives_once_in_order_under_four_hundred_seeds() {
    for seed in 0..400 {
        let mut rng = Rng::new(seed);
        let strategy = Strategy::ALL[seed as usize % Strategy::ALL.len()];
        let scenario = Scenario {
            window: 1 + rng.below(64) as u32,
            blocks: rng.below(4) as u32,
            first_psn: rng.next_u64() as u32,
            pieces: 1 + rng.below(150) as u32,
            longest: rng.index(2) * 600,
            ..Scenario::new(seed, strategy, bad_link(&mut rng))
        };
        check(&scenario).unwrap_or_else(|error| panic!("seed {seed}: {error}; {scenario:?}"));
    }
}

#[test]
fn a_perfect_link_needs_no_retransmission_and_few_acknowledgements() {
    for strategy in Strategy::ALL {
        let faults = FaultCfg { delay_ns: 10_000, ..FaultCfg::default() };
        let scenario = Scenario { pieces: 640, ..Scenario::new(1, strategy, faults) };
        let (ends, _) = run_scenario(&scenario).expect("nothing is lost");
        assert_eq!(ends[0].tp.stats().sent, 640);
        assert_eq!(ends[0].tp.stats().sent_again, 0);
        let acks = if strategy == Strategy::Irn { 640 } else { 2 * 640 / 8 };
        assert!(ends[1].tp.stats().acks_sent <= acks, "{:?}", ends[1].tp.stats());
        assert_eq!(ends[0].pool.usage().used_max, 0, "no loss, no block");
    }
}

#[test]
fn pieces_share_packets_that_were_not_sent_yet() {
    let faults = FaultCfg { delay_ns: 10_000, ..FaultCfg::default() };
    let plain = Scenario::new(1, Strategy::SelectiveRepeat, faults);
    let (ends, _) =
        run_scenario(&Scenario { pieces: 640, longest: 2000, ..plain.clone() }).expect("no loss");
    let sent = ends[0].tp.stats().sent;
    assert!((640 / 20..640 / 4).contains(&sent), "{sent} packets");
    // A retransmission in transit is left alone.
    let [mut a, mut b] =
        [1, 2].map(|number| End::new(&Scenario { longest: 2000, ..plain.clone() }, number, 120));
    let mut buf = [0; TRANSMIT_MAX];
    for number in 0..3 {
        let bytes = content(a.eid, number);
        let head = header(number, bytes.len());
        a.tp.push(&head, bytes.len(), &mut |out| out.copy_from_slice(&bytes)).expect("room");
        let len = a.tp.poll_transmit(0, &mut buf, &mut a.pool).expect("a packet");
        flow().seal(&mut buf[..len]).expect("long enough");
        b.receive(0, &buf[..len], a.eid).expect("the piece that was sent");
        assert_eq!((a.tp.poll_transmit(0, &mut buf, &mut a.pool), b.popped), (None, number + 1));
    }
}

#[test]
fn selective_repeat_sends_little_more_than_what_was_lost() {
    let sent = |strategy| {
        let faults = FaultCfg { delay_ns: MS, loss_ppm: 20_000, ..FaultCfg::default() };
        let scenario = Scenario { pieces: 2000, ..Scenario::new(5, strategy, faults) };
        let (ends, took) = run_scenario(&scenario).expect("repaired");
        (ends[0].tp.stats().sent_again, took)
    };
    let (selective, selective_time) = sent(Strategy::SelectiveRepeat);
    let (go_back, go_back_time) = sent(Strategy::GoBackN);
    assert!((20..90).contains(&selective), "selective repeat sent {selective} again");
    assert!(go_back > 3 * selective, "go-back-N sent {go_back} again");
    assert!(selective_time < go_back_time);
}

#[test]
fn a_hole_is_repaired_within_about_one_round_trip() {
    // An outage loses a few packets in the middle of a stream.
    let outage = Outage::of(Cut::All, 50_000, 52_000);
    let faults = FaultCfg {
        delay_ns: MS,
        bytes_per_second: 100_000_000,
        queue_bytes: 1 << 20,
        outages: vec![outage],
        ..FaultCfg::default()
    };
    let scenario = Scenario { pieces: 60, ..Scenario::new(3, Strategy::SelectiveRepeat, faults) };
    let took = check(&scenario).expect("repaired");
    assert!(took < 12 * MS, "took {took} ns");
}

#[test]
fn knitting_sends_little_more_than_what_was_lost() {
    let faults = FaultCfg { delay_ns: MS, loss_ppm: 20_000, ..FaultCfg::default() };
    let scenario = Scenario { pieces: 2000, ..Scenario::new(5, Strategy::Knitting, faults) };
    let (ends, _) = run_scenario(&scenario).expect("repaired");
    let again = ends[0].tp.stats().sent_again;
    assert!((20..60).contains(&again), "knitting sent {again} again");
    let count = |received| ends[1].counts.get(&received).copied().unwrap_or(0);
    let wrong = [Received::BadReport, Received::BadTail, Received::BadRepeat].map(count);
    assert_eq!(wrong, [0; 3]);
}

#[test]
fn without_blocks_selective_repeat_still_delivers() {
    let faults = FaultCfg { delay_ns: 1000, loss_ppm: 50_000, ..FaultCfg::default() };
    let scenario = Scenario { blocks: 0, ..Scenario::new(4, Strategy::SelectiveRepeat, faults) };
    let (ends, _) = run_scenario(&scenario).expect("delivered");
    assert!(ends[1].counts.contains_key(&Received::DroppedNoBlock));
}

#[test]
fn a_dead_peer_is_known_within_the_bound() {
    for strategy in Strategy::ALL {
        let dead = Outage::of(Cut::All, 0, Nanos::MAX);
        let faults = FaultCfg { outages: vec![dead], ..FaultCfg::default() };
        let mut scenario = Scenario::new(1, strategy, faults);
        // 10 + 20 + 40 + 80 + 160 + 320 + 500 + 500 + 500 ms.
        scenario.bound = 2_200 * MS;
        let error = run_scenario(&scenario).err().expect("no peer answers");
        assert!(error.contains("did not acknowledge in time"), "{error}");
    }
}

#[test]
fn the_window_is_never_exceeded() {
    let scenario = Scenario::new(1, Strategy::SelectiveRepeat, FaultCfg::default());
    let mut end = End::new(&scenario, 1, 1000);
    let mut rng = Rng::new(1);
    for _ in 0..200 {
        end.push_some(&mut rng);
    }
    let bytes = [0; 8];
    let refused = end.tp.push(&header(0, 8), 8, &mut |out| out.copy_from_slice(&bytes));
    assert_eq!(refused, Err(PushError::WindowFull));
    let mut buf = [0; TRANSMIT_MAX];
    let mut psns = Vec::new();
    while let Some(len) = end.tp.poll_transmit(0, &mut buf, &mut end.pool) {
        psns.push(Packet::parse(&buf[..len]).expect("own packet").header);
    }
    assert_eq!(psns.len(), scenario.window as usize);
    assert!(psns.last().is_some_and(|last| last.ack_req), "a full window asks for news");
}

#[test]
fn packets_outside_the_window_are_dropped_by_name() {
    let scenario = Scenario::new(1, Strategy::SelectiveRepeat, FaultCfg::default());
    let mut end = End::new(&scenario, 1, 0);
    let expected = end.tp.cfg().rx_psn;
    let mut inject = |offset: u32| {
        let body = match header(0, 0) {
            TransactionHeader::Response(header) => Body::Response(header),
            TransactionHeader::Request(header) => Body::Request(header),
        };
        let packet = PacketHeader::new(end.tp.cfg().local_tpn, expected.plus(offset), body);
        end.tp.on_packet(0, &Packet { header: packet, payload: &[] }, &mut end.pool)
    };
    assert_eq!(inject(32), Received::OutsideWindow);
    assert_eq!(inject(1 << 22), Received::OutsideWindow);
    assert_eq!(inject(0x00ff_ffff), Received::Duplicate);
    assert_eq!(inject(0x00ff_ff00), Received::OutsideWindow);
    assert_eq!(inject(31), Received::OutOfOrder);
    assert_eq!(inject(31), Received::Duplicate);
    assert_eq!(inject(0), Received::InOrder);
    assert_eq!(inject(0), Received::Duplicate);
}

#[test]
fn a_scribbled_pool_fails_the_tp_and_never_delivers_wrong_pieces() {
    for strategy in [Strategy::SelectiveRepeat, Strategy::Seed] {
        let failed = (0..60).filter(|&seed| notices_scribbling(strategy, seed)).count();
        assert!(failed > 10, "{strategy:?}: the scribbling was noticed {failed} times");
    }
}

/// Whether the TP whose pool others write to fails.
fn notices_scribbling(strategy: Strategy, seed: u64) -> bool {
    let faults = FaultCfg { delay_ns: 1000, loss_ppm: 100_000, ..FaultCfg::default() };
    let mut scenario = Scenario::new(seed, strategy, faults);
    let mut pieces = 120;
    if strategy == Strategy::Seed {
        // The NIC itself holds three nodes of a list, and one has 32 packets.
        (scenario.window, pieces) = (1024, 1500);
    }
    let region = Region::private(8 << BLOCK_LOG2).expect("memory");
    let mut ends = [1, 2].map(|number| End::new(&scenario, number, pieces));
    ends[0].pool = KnittingPool::new();
    ends[0].pool.grow(0, region.clone(), BLOCK_LOG2, 8).expect("fresh piece");
    let mut rng = Rng::new(seed);
    let mut link = scenario.faults.build(&mut rng);
    let mut now = 0;
    while now < 1000 * MS && ends.iter().all(|end| end.tp.failed().is_none()) {
        for me in 0..2 {
            let to = ends[1 - me].eid;
            ends[me].push_some(&mut rng);
            ends[me].transmit(now, to, &mut *link);
        }
        let at = rng.index(region.len() / 8) * 8;
        region.store_u64(at, rng.next_u64() >> rng.below(64)).expect("inside");
        let next = [link.poll_deadline(), ends[0].tp.poll_deadline(), ends[1].tp.poll_deadline()];
        let Some(next) = next.into_iter().flatten().min() else { break };
        now = next.max(now);
        while let Some(datagram) = link.poll(now) {
            let me = usize::from(datagram.to != ends[0].eid);
            let peer = ends[1 - me].eid;
            ends[me].receive(now, &datagram.bytes, peer).expect("never a wrong piece");
        }
    }
    let is_noticed = ends[0].tp.failed() == Some(TpError::PoolCorrupt);
    if is_noticed {
        let end = &mut ends[0];
        end.tp.close(&mut end.pool);
        assert_eq!(end.pool.usage().free, 8, "all blocks came back");
    }
    is_noticed
}

/// A planted fault: forgets a lost packet instead of sending it again.
#[derive(Debug)]
struct ForgetsLost;

impl Retransmission for ForgetsLost {
    fn on_ack(&mut self, news: &AckNews, ledger: &mut SendLedger) -> bool {
        ledger.mark_sacked(news.edge);
        false
    }

    fn on_timeout(&mut self, ledger: &mut SendLedger) {
        ledger.mark_sacked(ledger.una());
    }
}

#[test]
fn the_check_sees_a_dropped_retransmission() {
    for strategy in [Strategy::GoBackN, Strategy::SelectiveRepeat] {
        let faults = FaultCfg { delay_ns: 1000, loss_ppm: 50_000, ..FaultCfg::default() };
        let scenario = Scenario::new(2, strategy, faults);
        let mut ends = [End::new(&scenario, 1, 120), End::new(&scenario, 2, 40)];
        let cfg = *ends[0].tp.cfg();
        let record = strategy.recovery(AdamapSizes::default()).record(1);
        ends[0].tp = Tp::with_strategy(cfg, Box::new(ForgetsLost), record);
        assert!(run_with(&scenario, ends).is_err());
    }
}

/// A planted fault: takes a packet beyond a gap for proof that the gap was received.
#[derive(Debug)]
struct AcksTooEarly {
    edge: u64,
}

impl LossRecord for AcksTooEarly {
    fn record(
        &mut self,
        _pool: &mut KnittingPool,
        _now: Nanos,
        seq: u64,
        _mark: DataMark,
    ) -> Result<Arrival, LossError> {
        self.edge = self.edge.max(seq + 1);
        Ok(Arrival::Advanced(self.edge))
    }

    fn traits(&self) -> RecordTraits {
        RecordTraits { reports_losses: false, nic_bytes: 0 }
    }

    fn first_missing(&self) -> u64 {
        self.edge
    }

    fn sack(&self, _pool: &KnittingPool, _words: &mut [u64]) -> Result<usize, LossError> {
        Ok(0)
    }

    fn release(&mut self, _pool: &mut KnittingPool) {}
}

#[test]
fn the_check_sees_an_acknowledgement_before_acceptance() {
    let faults = FaultCfg { delay_ns: 1000, loss_ppm: 50_000, ..FaultCfg::default() };
    let scenario = Scenario::new(2, Strategy::SelectiveRepeat, faults);
    let mut ends = [End::new(&scenario, 1, 120), End::new(&scenario, 2, 40)];
    let policy = AckPolicy { every: 8, delay_ns: 200_000 };
    let receiver = TpReceiver::new(Box::new(AcksTooEarly { edge: 0 }), policy);
    ends[1].tp.rx = ReceiveWindow::new(32, receiver);
    assert!(run_with(&scenario, ends).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_window_over_any_link_delivers(
        seed in any::<u64>(),
        window in 1u32..200,
        blocks in 0u32..6,
        first_psn in any::<u32>(),
        pieces in 1u32..100,
        selective in any::<bool>(),
        longest in 0usize..2000,
    ) {
        let strategy = if selective { Strategy::SelectiveRepeat } else { Strategy::GoBackN };
        let faults = bad_link(&mut Rng::new(seed));
        let plain = Scenario::new(seed, strategy, faults);
        let scenario = Scenario { window, blocks, first_psn, pieces, longest, ..plain };
        prop_assert!(check(&scenario).is_ok(), "{:?}", check(&scenario));
    }
}

#[test]
fn a_peer_that_did_not_run_costs_one_packet_sent_again() {
    let scenario = Scenario::new(1, Strategy::SelectiveRepeat, FaultCfg::default());
    let [mut a, mut b] = [1, 2].map(|number| End::new(&scenario, number, 120));
    let (to_b, to_a) = (b.eid, a.eid);
    let mut buf = [0; TRANSMIT_MAX];
    let mut sent = |end: &mut End, now| -> Vec<Vec<u8>> {
        let next = || {
            let len = end.tp.poll_transmit(now, &mut buf, &mut end.pool)?;
            flow().seal(&mut buf[..len]).expect("long enough");
            Some(buf[..len].to_vec())
        };
        std::iter::from_fn(next).collect()
    };
    let push = |end: &mut End, count: u32| {
        for _ in 0..count {
            let bytes = content(end.eid, end.pushed);
            let head = header(end.pushed, bytes.len());
            end.tp.push(&head, bytes.len(), &mut |out| out.copy_from_slice(&bytes)).expect("room");
            end.pushed += 1;
        }
    };
    // The path is fast while both ends run.
    for round in 0..32 {
        push(&mut a, 1);
        for packet in sent(&mut a, round * MS) {
            b.receive(round * MS, &packet, to_a).unwrap();
        }
        for packet in sent(&mut b, round * MS + 10) {
            a.receive(round * MS + 10, &packet, to_b).unwrap();
        }
    }
    // Then the peer does not run for a while: the timer asks with one packet.
    push(&mut a, 20);
    let now = 100 * MS;
    let mut waiting = sent(&mut a, now);
    let expires = a.tp.poll_deadline().expect("a timer runs");
    waiting.extend(sent(&mut a, expires));
    for packet in waiting {
        let now = expires + MS;
        b.receive(now, &packet, to_a).unwrap();
        for packet in sent(&mut b, now) {
            a.receive(now, &packet, to_b).unwrap();
            for packet in sent(&mut a, now) {
                b.receive(now, &packet, to_a).unwrap();
            }
        }
    }
    let stats = a.tp.stats();
    assert_eq!((stats.timeouts, stats.sent_again), (1, 1));
    assert_eq!(b.popped, 52);
}
