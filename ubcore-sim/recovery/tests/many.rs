//! As many TPs between two nodes as one of them may have: what each costs, and what becomes of them when the other
//! node dies. A test binary of its own: the memory is that of the process.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use urma_recovery::{
    AckPolicy, CongestionChoice, DataMark, KnittingPool, Recovery, RtoCfg, SenderCfg, TpReceiver,
    TpSender,
};

const TPS: usize = 72_000;
/// Packets that each end sends while both live, and how many of them are out at once.
const PACKETS: u64 = 12;
const BURST: u64 = 3;
const RTT_NS: u64 = 10_000;
/// Most memory of one end of a TP, both halves, in bytes.
const END_MAX: usize = 1 << 10;

/// One end of a TP.
struct End {
    sender: TpSender,
    receiver: TpReceiver,
}

impl End {
    fn new(recovery: Recovery, tpn: u32) -> Self {
        let cfg = SenderCfg {
            window_packets: 1 << 16,
            recovery,
            rto: RtoCfg::default(),
            congestion: CongestionChoice::None,
        };
        let policy = AckPolicy { every: 2, delay_ns: RTT_NS };
        let (sender, record) = (TpSender::new(&cfg), recovery.record(tpn));
        Self { sender, receiver: TpReceiver::new(record, policy) }
    }

    /// Sends a burst, of which `to` has everything a round trip later.
    fn pass(&mut self, to: &mut Self, now: u64, pool: &mut KnittingPool) {
        (0..BURST).for_each(|_| self.sender.push());
        while let Some(sending) = self.sender.poll(now) {
            assert!(!sending.is_again());
            let at = now + RTT_NS / 2;
            let arrival = to.receiver.on_data(at, sending.seq, DataMark::default(), pool);
            to.receiver.acknowledge(at, sending.seq, arrival.expect("in order"), false);
        }
        to.receiver.on_time(now + 2 * RTT_NS);
        while let Some(ack) = to.receiver.poll_ack(pool) {
            let ack = ack.expect("nothing is missing");
            self.sender.on_ack(now + 3 * RTT_NS, &ack).expect("it was sent");
        }
        assert!(self.sender.ledger().is_empty(), "the peer has everything");
    }
}

/// Memory of this process, in bytes.
fn memory() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages = text.split_whitespace().nth(1).and_then(|pages| pages.parse::<usize>().ok());
    pages.expect("a number") * 4096
}

/// Every TP has two packets out when its peer dies: when the tries of each are used up.
fn end_all(ends: &mut [(End, End)], died: u64) -> Vec<u64> {
    let mut ended = vec![0; ends.len()];
    let mut due = BinaryHeap::new();
    for (n, (end, _)) in ends.iter_mut().enumerate() {
        (0..2).for_each(|_| end.sender.push());
        // Not all at the same time.
        let now = died + n as u64;
        while end.sender.poll(now).is_some() {}
        due.push(Reverse((end.sender.poll_deadline().expect("packets are out"), n)));
    }
    while let Some(Reverse((now, n))) = due.pop() {
        let sender = &mut ends[n].0.sender;
        if sender.on_time(now).is_err() {
            ended[n] = now;
            continue;
        }
        while sender.poll(now).is_some() {}
        let _mark = sender.poll_tail(now);
        due.push(Reverse((sender.poll_deadline().expect("packets are out").max(now + 1), n)));
    }
    ended
}

#[test]
fn an_end_costs_a_kibibyte_and_all_end_within_the_bound_when_the_peer_dies() {
    for recovery in [Recovery::SelectiveRepeat, Recovery::Knitting { tail_copies: 1 }] {
        let mut pool = KnittingPool::new();
        let before = memory();
        let number = |n: usize| u32::try_from(n).expect("small");
        let new = |n| (End::new(recovery, number(n)), End::new(recovery, number(n)));
        let mut ends: Vec<(End, End)> = (0..TPS).map(new).collect();
        for round in 0..PACKETS / BURST {
            let now = 1 + round * 10 * RTT_NS;
            for (a, b) in &mut ends {
                a.pass(b, now, &mut pool);
                b.pass(a, now, &mut pool);
            }
        }
        for (a, b) in &ends {
            assert_eq!((a.receiver.edge(), b.receiver.edge()), (PACKETS, PACKETS));
        }
        let each = memory().saturating_sub(before) / (2 * TPS);
        println!("{recovery:?}: {each} bytes for each end of {TPS} TPs");
        assert!(each <= END_MAX, "{recovery:?}: {each} bytes");

        let died = 1_000_000_000;
        let RtoCfg { max_ns, retries, .. } = RtoCfg::default();
        let bound = (u64::from(retries) + 1) * max_ns;
        for (n, ended) in end_all(&mut ends, died).into_iter().enumerate() {
            let took = ended.saturating_sub(died + n as u64);
            assert!(0 < took && took <= bound, "TP {n} ended after {took} ns, bound {bound}");
        }
    }
}
