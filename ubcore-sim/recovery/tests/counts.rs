//! Exact counts of one sender or receiver in virtual time: what is sent, when it wants to be called again, what its window
//! becomes.

use urma_recovery::{
    AckFeedback, AckPolicy, CongestionChoice, DataMark, DmaCfg, DmaModel, KnittingPool, LossError,
    LossReport, LossRun, Recovery, RtoCfg, SenderCfg, TailMark, TpReceiver, TpSender,
};

const MS: u64 = 1_000_000;
const KNIT: Recovery = Recovery::Knitting { tail_copies: 1 };

fn sender(recovery: Recovery, congestion: CongestionChoice) -> TpSender {
    TpSender::new(&SenderCfg { window_packets: 64, recovery, rto: RtoCfg::default(), congestion })
}

/// Queues so many packets and sends what may leave at `now`.
fn send(sender: &mut TpSender, packets: u64, now: u64) -> Vec<u64> {
    (0..packets).for_each(|_| sender.push());
    std::iter::from_fn(|| sender.poll(now)).map(|packet| packet.seq).collect()
}

fn acknowledge(sender: &mut TpSender, edge: u64, trigger: u64, now: u64) {
    let ack = AckFeedback { edge, gap: false, trigger: Some(trigger), received: [0; 4] };
    sender.on_ack(now, &ack).expect("only what was sent");
}

fn report(sender: &mut TpSender, start: u64, count: u32, now: u64) {
    let mut report = LossReport::new(1, 0);
    assert!(report.push(LossRun { start, count }));
    sender.on_report(now, &report).expect("only what was sent");
}

#[test]
fn a_sender_with_nothing_to_send_is_not_woken_by_its_pacer() {
    let mut sender = sender(Recovery::SelectiveRepeat, CongestionChoice::Delay);
    assert_eq!(send(&mut sender, 10, 0).len(), 10);
    acknowledge(&mut sender, 10, 0, 10 * MS);
    // A packet each 0.25 ms, four of them in a burst and one on credit.
    assert_eq!(send(&mut sender, 5, 10 * MS).len(), 5);
    let expiry = sender.timer().deadline().expect("packets are out");
    assert_eq!(sender.poll_deadline(), Some(expiry), "no packet waits for the pacer");
    assert_eq!(send(&mut sender, 1, 10 * MS), []);
    // It waits for the one on credit, and half a burst but one.
    let at = sender.poll_deadline().expect("a packet waits");
    assert_eq!(at, 10 * MS + MS / 2);
    assert_eq!(send(&mut sender, 0, at - 1), []);
    assert_eq!(send(&mut sender, 0, at), [15]);
}

/// The pacer lets the next packet go half a millisecond later, and before that the timer expires.
#[test]
fn a_sender_that_waits_for_its_pacer_is_woken_by_its_timer() {
    let mut sender = sender(Recovery::SelectiveRepeat, CongestionChoice::Delay);
    send(&mut sender, 10, 0);
    acknowledge(&mut sender, 10, 0, 10 * MS);
    send(&mut sender, 1, 10 * MS);
    let expiry = sender.timer().deadline().expect("a packet is out");
    let now = expiry - MS / 10;
    assert_eq!(send(&mut sender, 6, now).len(), 5, "a burst and one on credit");
    assert_eq!(sender.poll_deadline(), Some(expiry));
}

#[test]
fn acknowledgements_of_one_window_double_it_one_by_one() {
    for congestion in [CongestionChoice::Cubic, CongestionChoice::Delay] {
        let mut sender = sender(Recovery::SelectiveRepeat, congestion);
        send(&mut sender, 10, 0);
        for seq in 0..10 {
            acknowledge(&mut sender, seq + 1, seq, 10 * MS);
            // Ten were on the path in this round trip or the one before.
            assert_eq!(sender.congestion_window(), Some(11 + seq), "{congestion:?}");
        }
    }
}

#[test]
fn a_program_that_sends_little_does_not_make_its_window_grow() {
    for congestion in [CongestionChoice::Cubic, CongestionChoice::Delay] {
        let mut sender = sender(Recovery::SelectiveRepeat, congestion);
        for round in 0..20 {
            let now = round * 20 * MS;
            assert_eq!(send(&mut sender, 3, now).len(), 3);
            acknowledge(&mut sender, 3 * round + 3, 3 * round + 2, now + 10 * MS);
        }
        assert_eq!(sender.congestion_window(), Some(10), "{congestion:?}: three of ten are used");
    }
}

#[test]
fn losses_of_what_was_sent_up_to_a_reduction_reduce_no_more() {
    let mut sender = sender(KNIT, CongestionChoice::Cubic);
    send(&mut sender, 64, 0);
    acknowledge(&mut sender, 10, 0, 10 * MS);
    assert_eq!(sender.congestion_window(), Some(20));
    let early = send(&mut sender, 0, 10 * MS);
    report(&mut sender, early[0], 1, 20 * MS);
    assert_eq!(sender.congestion_window(), Some(14));
    let during = send(&mut sender, 0, 20 * MS);
    let later = send(&mut sender, 0, 22 * MS);
    assert!(during.len() > 2 && !later.is_empty(), "{during:?} {later:?}");
    report(&mut sender, early[1], 1, 23 * MS);
    report(&mut sender, during[1], 1, 23 * MS);
    assert_eq!(sender.congestion_window(), Some(14), "sent before it, and at its time");
    report(&mut sender, later[0], 1, 23 * MS);
    assert_eq!(sender.congestion_window(), Some(9), "sent after it");
}

#[test]
fn what_a_timeout_gave_up_is_no_loss_of_the_next_round_trip() {
    let mut sender = sender(Recovery::SelectiveRepeat, CongestionChoice::Cubic);
    send(&mut sender, 10, 0);
    let expiry = sender.timer().deadline().expect("packets are out");
    sender.on_time(expiry).expect("the first one");
    assert_eq!(sender.congestion_window(), Some(2));
    assert_eq!(send(&mut sender, 5, expiry), [0, 10], "two are on the path");
    acknowledge(&mut sender, 11, 10, expiry + MS);
    assert_eq!(sender.congestion_window(), Some(4), "both left the path");
}

#[test]
fn what_was_lost_does_not_count_as_acknowledged() {
    let mut sender = sender(Recovery::SelectiveRepeat, CongestionChoice::Delay);
    send(&mut sender, 10, 0);
    // Nine beyond packet 0, which they overtook.
    let ack = AckFeedback { edge: 0, gap: false, trigger: Some(9), received: [0x1ff, 0, 0, 0] };
    sender.on_ack(10 * MS, &ack).expect("only what was sent");
    assert_eq!(sender.congestion_window(), Some(19));
    assert_eq!(sender.ledger().on_path(), 0);
}

#[test]
fn a_bound_of_the_path_counts_where_it_is_below_the_window() {
    for (bound, sent, is_full) in [(64, 64, false), (100, 64, false), (63, 63, true), (0, 1, true)]
    {
        let mut sender = sender(Recovery::SelectiveRepeat, CongestionChoice::None);
        sender.bound_path(bound);
        assert_eq!(send(&mut sender, 64, 0).len(), sent, "{bound}");
        assert_eq!(sender.is_path_full(), is_full, "{bound}");
    }
}

#[test]
fn reported_packets_are_not_on_the_path() {
    let mut sender = sender(KNIT, CongestionChoice::Cubic);
    send(&mut sender, 10, 0);
    assert_eq!(sender.ledger().on_path(), 10);
    report(&mut sender, 2, 3, MS);
    assert_eq!((sender.ledger().on_path(), sender.ledger().in_flight()), (7, 7));
}

/// 40 packets of which 5 % are expected to be lost get six repair packets: by a part of 16.1 % at most.
#[test]
fn repair_packets_are_as_many_as_the_group_needs_and_wait_for_data() {
    let mut sender = sender(KNIT, CongestionChoice::None);
    sender.protect_tail(0.05);
    assert_eq!(send(&mut sender, 40, 0).len(), 40);
    let first = sender.poll_repair(0).expect("a repair packet");
    assert_eq!((first.start, first.end, first.groups, first.number), (0, 40, 1, 0));
    sender.push();
    assert_eq!(sender.poll_repair(0), None, "data first");
    assert_eq!(send(&mut sender, 0, 0), [40]);
    let rest: Vec<u8> =
        std::iter::from_fn(|| sender.poll_repair(0)).map(|mark| mark.number).collect();
    assert_eq!(rest, [1, 2, 3, 4, 5], "and none for one packet more");
}

#[test]
fn protected_packets_are_sent_again_when_repair_packets_did_not_bring_them() {
    let mut sender = sender(KNIT, CongestionChoice::None);
    sender.protect_tail(0.05);
    send(&mut sender, 40, 0);
    assert_eq!(std::iter::from_fn(|| sender.poll_repair(0)).count(), 6);
    report(&mut sender, 5, 2, MS);
    assert_eq!(send(&mut sender, 0, MS), [], "left to the repair packets");
    report(&mut sender, 7, 1, MS);
    assert_eq!(send(&mut sender, 0, MS), [], "so is what follows");
    report(&mut sender, 5, 2, 2 * MS);
    assert_eq!(send(&mut sender, 0, 2 * MS), [5, 6], "reported once more");
    // Packets behind the protected ones go at once.
    assert_eq!(send(&mut sender, 2, 2 * MS), [40, 41]);
    report(&mut sender, 41, 1, 3 * MS);
    assert_eq!(send(&mut sender, 0, 3 * MS), [41]);
}

#[test]
fn a_receiver_acknowledges_each_fourth_packet_or_after_its_delay() {
    let mut pool = KnittingPool::new();
    let policy = AckPolicy { every: 4, delay_ns: 1000 };
    let mut receiver = TpReceiver::new(Recovery::SelectiveRepeat.record(1), policy);
    let mut take = |receiver: &mut TpReceiver, seq: u64| {
        let arrival = receiver.on_data(seq, seq, DataMark::default(), &mut pool).expect("sound");
        receiver.acknowledge(seq, seq, arrival, false);
        (receiver.has_ack(), receiver.poll_ack(&pool).map(|ack| ack.expect("sound").edge))
    };
    for seq in 0..12 {
        let wanted = if seq % 4 == 3 { (true, Some(seq + 1)) } else { (false, None) };
        assert_eq!(take(&mut receiver, seq), wanted, "{seq}");
    }
    assert_eq!(take(&mut receiver, 12), (false, None));
    assert_eq!(receiver.poll_deadline(), Some(1012));
    receiver.on_time(1011);
    assert!(!receiver.has_ack());
    receiver.on_time(1012);
    assert!(receiver.has_ack() && receiver.acks_sent() == 3);
}

#[test]
fn a_sender_whose_packets_all_came_waits_for_nothing() {
    let mut sender = sender(Recovery::SelectiveRepeat, CongestionChoice::None);
    send(&mut sender, 3, 0);
    acknowledge(&mut sender, 2, 1, MS);
    assert!(sender.timer().deadline().is_some(), "one is out");
    acknowledge(&mut sender, 3, 2, MS);
    assert_eq!((sender.timer().deadline(), sender.poll_deadline()), (None, None));
    // The next packet has the whole time: 1 ms, its variation and the margin.
    send(&mut sender, 1, 100 * MS);
    assert!(sender.timer().deadline() > Some(102 * MS), "{:?}", sender.timer().deadline());
}

#[test]
fn a_repeated_packet_has_as_many_copies_as_the_strategy_says_where_no_new_one_waits() {
    for (tail_copies, loss, queued, wanted) in [
        (1, 0.05, 0, vec![1, 2]),
        (2, 0.05, 0, vec![1, 1, 2, 2]),
        (3, 0.05, 0, vec![1, 1, 1, 2, 2, 2]),
        (3, 0.05, 1, vec![1, 2, 4]),
        (3, 0.0, 0, vec![1, 2]),
    ] {
        let mut sender = sender(Recovery::Knitting { tail_copies }, CongestionChoice::None);
        sender.protect_tail(loss);
        send(&mut sender, 4, 0);
        report(&mut sender, 1, 2, MS);
        let copies = wanted.iter().filter(|seq| **seq < 4).count() as u64;
        assert_eq!(send(&mut sender, queued, MS), wanted, "{tail_copies} {loss} {queued}");
        assert_eq!(sender.stats().sent_again, copies);
    }
}

#[test]
fn a_packet_answers_the_report_that_named_it_last() {
    let mut sender = sender(KNIT, CongestionChoice::None);
    send(&mut sender, 4, 0);
    let mut again = |tier, ticket, run| {
        let mut report = LossReport::new(tier, ticket);
        assert!(report.push(LossRun { start: run, count: 1 }));
        sender.on_report(MS, &report).expect("only what was sent");
    };
    again(1, 0, 1);
    again(1, 0, 2);
    // The next tier names one of them before it is sent again.
    again(2, 9, 1);
    let sent: Vec<_> = std::iter::from_fn(|| sender.poll(MS)).collect();
    let answers: Vec<_> = sent.iter().map(|packet| (packet.seq, packet.answers)).collect();
    assert_eq!(answers, [(1, (2, 9)), (2, (1, 0))]);
}

/// The pacer holds a packet back, then a loss makes the window smaller than what is on the path: the pacer's time is none at
/// which anything could leave.
#[test]
fn a_sender_whose_path_is_full_is_not_woken_by_its_pacer() {
    let mut sender = sender(KNIT, CongestionChoice::Cubic);
    send(&mut sender, 64, 0);
    acknowledge(&mut sender, 10, 0, 10 * MS);
    let mut now = 10 * MS;
    while sender.ledger().on_path() < 17 {
        send(&mut sender, 0, now);
        now += MS;
    }
    now -= MS;
    assert!(sender.poll(now).is_none() && !sender.is_path_full(), "the pacer holds it back");
    let paced = sender.poll_deadline().expect("a packet waits");
    assert!(paced < now + MS, "{paced}");
    report(&mut sender, 10, 1, now);
    assert!(sender.is_path_full(), "{:?}", sender.congestion_window());
    assert_eq!(sender.poll_deadline(), sender.timer().deadline());
}

/// Packet 0 is lost again and again, and later ones arrive: the timer waits, until that was sent five times. A path may
/// lose all packets of a size, which the timer is to tell.
#[test]
fn packets_that_arrive_hold_the_timer_back_unless_the_oldest_is_lost_each_time() {
    let mut sender = sender(KNIT, CongestionChoice::Delay);
    send(&mut sender, 8, 0);
    let mut now = 10 * MS;
    for (attempt, is_held) in [(1, true), (2, true), (3, true), (4, true), (5, false)] {
        let before = sender.timer().deadline().expect("packets are out");
        now += MS / 10;
        acknowledge(&mut sender, 0, attempt, now);
        let after = sender.timer().deadline().expect("packets are out");
        assert_eq!(after != before, is_held, "{attempt}: {before} {after}");
        // The same once more says nothing new.
        acknowledge(&mut sender, 0, attempt, now + 1);
        assert_eq!(sender.timer().deadline(), Some(after), "{attempt}");
        report(&mut sender, 0, 1, now);
        let sent =
            std::iter::from_fn(|| sender.poll(now)).map(|sent| (sent.seq, u64::from(sent.attempt)));
        assert_eq!(sent.collect::<Vec<_>>(), [(0, attempt + 1)]);
        now += MS;
    }
}

/// The timer expires after 10 ms, so the first sample, of 100 ms, counts as one of 20: the peer is told what was measured.
#[test]
fn a_mark_names_no_round_trip_that_is_shorter_than_the_least_one() {
    let mut sender = sender(KNIT, CongestionChoice::None);
    send(&mut sender, 8, 0);
    sender.on_time(10 * MS).expect("the first time");
    acknowledge(&mut sender, 0, 7, 100 * MS);
    assert_eq!(sender.timer().rtt(), Some(20 * MS));
    let mark = sender.poll_tail(100 * MS).expect("it is due");
    assert_eq!(mark.rtt_ns, 100 * MS);
    // The next one comes after a quarter of that.
    assert!(sender.poll_tail(125 * MS - 1).is_none() && sender.poll_tail(125 * MS).is_some());
}

/// A millisecond between two marks; from the ninth one on twice as long each time, 65.536 s at most.
#[test]
fn marks_without_an_answer_come_ever_later_and_an_answer_ends_that() {
    let mut sender = sender(KNIT, CongestionChoice::None);
    send(&mut sender, 1, 0);
    let mut at = 0;
    assert!(sender.poll_tail(at).is_some(), "at once");
    let mut next = |sender: &mut TpSender, wait_ms: u64| {
        assert!(sender.poll_tail(at + wait_ms * MS - 1).is_none(), "sooner than {wait_ms} ms");
        at += wait_ms * MS;
        assert!(sender.poll_tail(at).is_some(), "after {wait_ms} ms");
        at
    };
    for sent in 1..30_u32 {
        next(&mut sender, 1 << sent.saturating_sub(8).min(16));
    }
    let now = next(&mut sender, 1 << 16);
    let ack = AckFeedback { edge: 0, gap: false, trigger: None, received: [0; 4] };
    sender.on_ack(now, &ack).expect("nothing new");
    for _ in 0..8 {
        next(&mut sender, 1);
    }
}

#[test]
fn an_acknowledgement_answers_the_latest_packet() {
    let mut pool = KnittingPool::new();
    let policy = AckPolicy { every: 4, delay_ns: 1000 };
    let mut receiver = TpReceiver::new(Recovery::SelectiveRepeat.record(1), policy);
    for seq in 0..6 {
        let arrival = receiver.on_data(seq, seq, DataMark::default(), &mut pool).expect("sound");
        receiver.acknowledge(seq, seq, arrival, false);
        if seq == 3 {
            let ack = receiver.poll_ack(&pool).expect("it is due").expect("sound");
            assert_eq!((ack.edge, ack.trigger), (4, Some(3)));
        }
    }
    // What no packet causes changes nothing of that.
    receiver.acknowledge_at_once();
    let mut triggers = Vec::new();
    triggers.push(receiver.poll_ack(&pool).expect("it is due").expect("sound").trigger);
    receiver.acknowledge_at_once();
    triggers.push(receiver.poll_ack(&pool).expect("it is due").expect("sound").trigger);
    assert_eq!(triggers, [Some(5), None]);
}

#[test]
fn the_latest_transmission_that_was_lost_decides_whether_a_loss_is_news() {
    let mut sender = sender(KNIT, CongestionChoice::Cubic);
    send(&mut sender, 64, 0);
    acknowledge(&mut sender, 10, 0, 10 * MS);
    let early = send(&mut sender, 0, 10 * MS);
    report(&mut sender, early[0], 1, 20 * MS);
    assert_eq!(sender.congestion_window(), Some(14));
    send(&mut sender, 0, 20 * MS);
    let later = send(&mut sender, 0, 22 * MS);
    // One report names a packet that was sent after the reduction, and behind it one of before.
    let mut both = LossReport::new(1, 1);
    for start in [later[0], early[1]] {
        assert!(both.push(LossRun { start, count: 1 }));
    }
    sender.on_report(23 * MS, &both).expect("only what was sent");
    assert_eq!(sender.congestion_window(), Some(9));
}

#[test]
fn lost_packets_that_came_after_all_hold_nothing_up() {
    let mut sender = sender(KNIT, CongestionChoice::None);
    send(&mut sender, 8, 0);
    report(&mut sender, 5, 1, MS);
    report(&mut sender, 1, 2, MS);
    assert!(sender.has_sendable() && sender.ledger().has_lost());
    acknowledge(&mut sender, 4, 3, MS);
    assert!(sender.ledger().has_lost(), "packet 5 still is");
    acknowledge(&mut sender, 6, 5, MS);
    assert_eq!((sender.ledger().has_lost(), sender.has_sendable()), (false, false));
    sender.push();
    assert_eq!(sender.poll_new(MS), Some(8), "a new packet waits for none of them");
}

#[test]
fn a_gap_that_an_acknowledgement_names_twice_is_answered_once() {
    let mut sender = sender(Recovery::GoBackN, CongestionChoice::None);
    send(&mut sender, 4, 0);
    let mut gap_at = |edge| {
        let ack = AckFeedback { edge, gap: true, trigger: None, received: [0; 4] };
        sender.on_ack(MS, &ack).expect("only what was sent");
        send(&mut sender, 0, MS)
    };
    assert_eq!(gap_at(1), [1, 2, 3]);
    assert_eq!(gap_at(1), [], "the network doubled it");
    assert_eq!(gap_at(2), [2, 3], "another gap");
    assert_eq!(gap_at(1), [], "an old one is that of the edge");
}

#[test]
fn a_receiver_that_keeps_nothing_names_each_gap_once() {
    let mut pool = KnittingPool::new();
    let policy = AckPolicy { every: 100, delay_ns: 1000 };
    let mut receiver = TpReceiver::new(Recovery::GoBackN.record(1), policy);
    let mut take = |seq| {
        let arrival = receiver.on_data(0, seq, DataMark::default(), &mut pool).expect("sound");
        receiver.acknowledge(0, seq, arrival, false);
        let ack = receiver.poll_ack(&pool).map(|ack| ack.expect("sound"));
        ack.map(|ack| (ack.edge, ack.gap, ack.trigger))
    };
    assert_eq!(take(2), Some((0, true, Some(2))));
    assert_eq!((take(3), take(4)), (None, None), "the same gap");
    assert_eq!((take(0), take(1)), (None, None), "in order, and fewer than a hundred");
    assert_eq!(take(3), Some((2, true, Some(3))), "the next gap");
    assert_eq!(take(1), Some((2, false, Some(1))), "what was received is acknowledged at once");
    assert_eq!(take(4), None);
}

/// A packet that went by two routes shows of neither that it carries anything.
#[test]
fn a_packet_that_changed_its_route_forgives_none() {
    let mut sender = sender(Recovery::SelectiveRepeat, CongestionChoice::None);
    let timeout = |sender: &mut TpSender| {
        let expiry = sender.timer().deadline().expect("a packet is out");
        sender.on_time(expiry).expect("not the last one");
        expiry
    };
    sender.set_routes(0b10, 1);
    assert_eq!(send(&mut sender, 1, 0), [0]);
    let mut now = timeout(&mut sender);
    sender.set_routes(0b01, 1);
    assert_eq!(send(&mut sender, 0, now), [0]);
    now = timeout(&mut sender);
    assert_eq!((sender.expired(0), sender.expired(1)), (1, 1));
    assert_eq!(send(&mut sender, 0, now), [0]);
    let ack = |edge| AckFeedback { edge, gap: false, trigger: None, received: [0; 4] };
    sender.on_ack(now + MS, &ack(1)).expect("only what was sent");
    assert_eq!((sender.expired(0), sender.expired(1)), (1, 1), "one of the two");
    // Twice by the same one.
    assert_eq!(send(&mut sender, 1, now + MS), [1]);
    now = timeout(&mut sender);
    assert_eq!((send(&mut sender, 0, now), sender.expired(0)), (vec![1], 2));
    sender.on_ack(now + MS, &ack(2)).expect("only what was sent");
    assert_eq!((sender.expired(0), sender.expired(1)), (0, 1));
}

#[test]
fn a_mark_says_the_highest_end_of_what_was_reported_whatever_the_order() {
    let mut sender = sender(KNIT, CongestionChoice::None);
    send(&mut sender, 20, 0);
    report(&mut sender, 10, 3, MS);
    report(&mut sender, 4, 2, MS);
    assert_eq!(send(&mut sender, 0, MS), [10, 11, 12, 4, 5]);
    let mark = sender.poll_tail(MS).expect("reports are answered");
    assert_eq!((mark.first_end, mark.ticket_end, mark.end), (13, 0, 20));
    // Reports of later tiers name tickets, one a run.
    let mut again = LossReport::new(2, 7);
    for start in [4, 11] {
        assert!(again.push(LossRun { start, count: 1 }));
    }
    sender.on_report(2 * MS, &again).expect("only what was sent");
    assert_eq!(send(&mut sender, 0, 2 * MS), [4, 11]);
    let mark = sender.poll_tail(2 * MS).expect("reports are answered");
    assert_eq!((mark.first_end, mark.ticket_end), (13, 9));
}

/// A round trip of 0.2 ms: an acknowledgement is sooner there than a mark is worth. A longer one, of 10 ms.
#[test]
fn marks_wait_for_acknowledgements_where_the_path_is_short() {
    for (rtt, wanted) in [(MS / 5, MS), (10 * MS, 0)] {
        let mut sender = sender(KNIT, CongestionChoice::None);
        send(&mut sender, 1, 0);
        acknowledge(&mut sender, 1, 0, rtt);
        let now = 50 * MS;
        send(&mut sender, 4, now);
        let at = sender.poll_deadline().expect("packets are out");
        let wanted = if wanted == 0 { 0 } else { now + wanted };
        assert_eq!(at, wanted, "{rtt}");
        let at = at.max(now);
        assert!(at == now || sender.poll_tail(at - 1).is_none());
        assert!(sender.poll_tail(at).is_some(), "{rtt}");
        assert!(sender.poll_tail(at).is_none(), "one");
    }
}

/// 200 packets are a group; with its repair packets it has no more than 256 symbols, as a code over bytes.
#[test]
fn a_group_has_at_most_56_repair_packets() {
    for (packets, loss, wanted) in
        [(200, 0.25, 56), (200, 0.05, 23), (100, 0.25, 30), (100, 0.35, 0)]
    {
        let congestion = CongestionChoice::None;
        let rto = RtoCfg::default();
        let cfg = SenderCfg { window_packets: 256, recovery: KNIT, rto, congestion };
        let mut sender = TpSender::new(&cfg);
        sender.protect_tail(loss);
        send(&mut sender, packets, 0);
        let repairs = std::iter::from_fn(|| sender.poll_repair(0)).count();
        assert_eq!(repairs, wanted, "{packets} {loss}");
    }
}

#[test]
fn a_mark_stands_for_what_was_reported_behind_protected_packets() {
    let mut sender = sender(KNIT, CongestionChoice::None);
    sender.protect_tail(0.05);
    send(&mut sender, 40, 0);
    assert_eq!(sender.poll_repair(0).map(|mark| (mark.end, mark.number)), Some((40, 0)));
    send(&mut sender, 2, 0);
    report(&mut sender, 41, 1, MS);
    assert_eq!(send(&mut sender, 0, MS), [41]);
    assert_eq!(sender.poll_repair(MS).map(|mark| (mark.end, mark.number)), Some((40, 1)));
    let mark = sender.poll_tail(MS).expect("a report was answered");
    assert_eq!((mark.first_end, mark.end), (42, 42));
}

/// What a record says of packets rests on the pool; without its answers nothing is acknowledged.
#[test]
fn a_receiver_whose_pool_does_not_answer_takes_nothing() {
    let mut pool = KnittingPool::new();
    let policy = AckPolicy { every: 1, delay_ns: 0 };
    let mut receiver = TpReceiver::new(KNIT.record(1), policy);
    assert!(receiver.on_data(0, 0, DataMark::default(), &mut pool).is_ok());
    let mark = TailMark { end: 2, ..TailMark::default() };
    assert!(receiver.on_tail(0, &mark, &mut pool).is_ok());
    *pool.dma_mut() = DmaModel::new(DmaCfg { silent_every: 1, ..DmaCfg::default() });
    pool.dma_mut().on_read(0);
    assert!(pool.dma().has_failed());
    let unanswered = Err(LossError::Unanswered);
    assert_eq!(receiver.on_data(1, 1, DataMark::default(), &mut pool).map(drop), unanswered);
    assert_eq!(receiver.on_tail(1, &mark, &mut pool), unanswered);
    assert_eq!(receiver.on_record_time(1, 0, &mut pool), unanswered);
}

/// Marks come each millisecond, from the ninth on later and later; the timer expires after 10 ms all the same.
#[test]
fn a_sender_is_woken_by_what_is_due_first() {
    let mut sender = sender(KNIT, CongestionChoice::None);
    send(&mut sender, 1, 0);
    assert_eq!(sender.timer().deadline(), Some(10 * MS));
    for at in 0..8 {
        assert!(sender.poll_tail(at * MS).is_some(), "{at}");
        assert_eq!(sender.poll_deadline(), Some((at + 1) * MS), "the next mark");
    }
    assert!(sender.poll_tail(8 * MS).is_some() && sender.poll_tail(10 * MS).is_some());
    assert_eq!(sender.poll_deadline(), Some(10 * MS), "the timer");
}

#[test]
fn a_new_packet_waits_for_the_path_and_for_copies_of_others() {
    let mut full = sender(KNIT, CongestionChoice::None);
    full.bound_path(2);
    (0..3).for_each(|_| full.push());
    let sent: Vec<u64> = std::iter::from_fn(|| full.poll_new(0)).collect();
    assert_eq!((sent, full.is_path_full()), (vec![0, 1], true));
    let mut copying = sender(Recovery::Knitting { tail_copies: 2 }, CongestionChoice::None);
    copying.protect_tail(0.05);
    send(&mut copying, 4, 0);
    report(&mut copying, 1, 1, MS);
    assert_eq!(copying.poll(MS).map(|packet| packet.seq), Some(1));
    copying.push();
    assert_eq!(copying.poll_new(MS), None, "a copy goes first");
    assert_eq!(copying.poll(MS).map(|packet| packet.seq), Some(1));
    assert_eq!(copying.poll_new(MS), Some(4));
}
