//! What a sender does while congestion control lets it send nothing.

use urma_recovery::{
    AckFeedback, CongestionChoice, LossReport, LossRun, Recovery, RtoCfg, SenderCfg, TpSender,
};

const MS: u64 = 1_000_000;

/// A sender with twenty packets, of which the first window is on the path since 0.
fn held(recovery: Recovery) -> TpSender {
    let mut sender = TpSender::new(&SenderCfg {
        window_packets: 64,
        recovery,
        rto: RtoCfg::default(),
        congestion: CongestionChoice::Cubic,
    });
    (0..20).for_each(|_| sender.push());
    while sender.poll(0).is_some() {}
    assert_eq!(sender.ledger().unsent(), 10);
    assert!(sender.is_path_full() && !sender.has_sendable());
    sender
}

#[test]
fn packets_that_wait_for_the_path_do_not_keep_a_mark_from_asking_for_those_on_it() {
    let mut sender = held(Recovery::Knitting { tail_copies: 1 });
    // Not at once: the path is full after each acknowledgement.
    assert_eq!(sender.poll_tail(0), None);
    let at = sender.poll_deadline().expect("a mark is to come");
    let expiry = sender.timer().deadline().expect("packets are out");
    assert!(0 < at && at < expiry, "{at}, the timer {expiry}");
    assert_eq!(sender.poll_tail(at).map(|mark| mark.end), Some(10));
}

#[test]
fn no_mark_asks_for_what_was_reported_and_waits_to_be_sent_again() {
    let mut sender = held(Recovery::Knitting { tail_copies: 1 });
    let mut report = LossReport::new(1, 0);
    assert!(report.push(LossRun { start: 0, count: 10 }));
    sender.on_report(MS, &report).expect("sent");
    while sender.poll(MS).is_some() {}
    assert!(sender.ledger().has_lost(), "CUBIC makes seven of ten packets");
    assert_eq!(sender.poll_tail(5 * MS), None);
}

#[test]
fn a_copy_that_waits_for_the_pacer_has_a_time_at_which_it_leaves() {
    let mut sender = TpSender::new(&SenderCfg {
        window_packets: 64,
        recovery: Recovery::Knitting { tail_copies: 2 },
        rto: RtoCfg::default(),
        congestion: CongestionChoice::Delay,
    });
    (0..10).for_each(|_| sender.push());
    while sender.poll(0).is_some() {}
    let ack = AckFeedback { edge: 1, gap: false, trigger: Some(0), received: [0; 4] };
    sender.on_ack(10 * MS, &ack).expect("sent");
    let mut report = LossReport::new(1, 0);
    assert!(report.push(LossRun { start: 1, count: 9 }));
    let (mut now, mut sent) = (10 * MS, 0);
    sender.on_report(now, &report).expect("sent");
    let expiry = sender.timer().deadline().expect("packets are out");
    while sent < 2 * 9 {
        while sender.poll(now).is_some() {
            sent += 1;
        }
        let next = sender.poll_deadline().expect("the timer runs");
        assert!(sent == 2 * 9 || next < expiry, "{sent} of 18 at {now}, the next one at {next}");
        now = next.max(now + 1);
    }
}

#[test]
fn packets_behind_a_gap_leave_room_on_the_path_up_to_the_span_of_the_window() {
    for recovery in [Recovery::Knitting { tail_copies: 1 }, Recovery::SelectiveRepeat] {
        let mut sender = TpSender::new(&SenderCfg {
            window_packets: 64,
            recovery,
            rto: RtoCfg::default(),
            congestion: CongestionChoice::None,
        });
        sender.bound_path(8);
        (0..64).for_each(|_| sender.push());
        while sender.poll(0).is_some() {}
        assert_eq!(sender.ledger().unsent(), 8);
        assert!(sender.is_path_full() && !sender.has_sendable());
        // Packet 0 is lost, those behind it are received one by one: each makes room for another one.
        for seq in 1..64 {
            // It is too far from the gap for the bits of an acknowledgement.
            let ack = AckFeedback { edge: 0, gap: false, trigger: Some(seq), received: [0; 4] };
            sender.on_ack(MS, &ack).expect("sent");
            while sender.poll(MS).is_some() {}
            assert!(sender.ledger().on_path() <= 8, "{recovery:?}: {seq}");
        }
        assert_eq!(sender.ledger().unsent(), 64, "{recovery:?}");
        assert_eq!(sender.ledger().una(), 0);
    }
}

#[test]
fn after_a_timeout_others_go_though_nothing_left_the_path() {
    let mut sender = TpSender::new(&SenderCfg {
        window_packets: 64,
        recovery: Recovery::SelectiveRepeat,
        rto: RtoCfg::default(),
        congestion: CongestionChoice::None,
    });
    sender.bound_path(8);
    (0..64).for_each(|_| sender.push());
    while sender.poll(0).is_some() {}
    let expiry = sender.timer().deadline().expect("packets are out");
    sender.on_time(expiry).expect("the first timeout");
    let sent: Vec<_> = std::iter::from_fn(|| sender.poll(expiry)).map(|one| one.seq).collect();
    assert!(sent.contains(&0) && sent.contains(&8), "{sent:?}");
    assert!(sent.len() <= 16, "{sent:?}");
}

/// Time at which a sender gives up whose peer answers each mark and each transmission, and lacks packet 0 until `until`;
/// number of transmissions of that packet.
fn given_up(recovery: Recovery, until: u64) -> (Option<u64>, u64) {
    let rto = RtoCfg::default();
    let congestion = CongestionChoice::None;
    let mut sender = TpSender::new(&SenderCfg { window_packets: 64, recovery, rto, congestion });
    sender.push();
    let (mut now, mut tier, mut ticket) = (MS, 0, 0);
    while sender.ledger().has_unacknowledged() || now == MS {
        let (sent, mark) = (sender.poll(now).is_some(), sender.poll_tail(now).is_some());
        if now >= until {
            let edge = sender.ledger().unsent();
            let ack = AckFeedback { edge, gap: false, trigger: None, received: [0; 4] };
            sender.on_ack(now, &ack).expect("sent");
        } else if mark {
            tier = (tier + 1).min(7);
            let mut report = LossReport::new(tier, ticket);
            assert!(report.push(LossRun { start: 0, count: 1 }));
            ticket += 1;
            sender.on_report(now, &report).expect("sent");
        } else if sent {
            sender.on_received(now);
        }
        if sender.on_time(now).is_err() {
            return (Some(now), 1 + sender.stats().sent_again);
        }
        let next = sender.poll_deadline().filter(|_| !sender.has_sendable()).unwrap_or(now);
        now = next.max(now + MS / 10);
        assert!(now < 60_000 * MS, "it is never given up");
    }
    (None, 1 + sender.stats().sent_again)
}

#[test]
fn a_peer_that_answers_and_never_receives_the_oldest_packet_is_given_up_as_a_silent_one() {
    for recovery in [Recovery::Knitting { tail_copies: 1 }, Recovery::SelectiveRepeat] {
        let at = given_up(recovery, u64::MAX).0.expect("an end");
        assert!((2100 * MS..2500 * MS).contains(&at), "{recovery:?}: {at} ns");
        assert_eq!(given_up(recovery, 2000 * MS).0, None);
    }
}

#[test]
fn a_packet_that_a_path_always_loses_goes_each_ten_milliseconds() {
    let recovery = Recovery::Knitting { tail_copies: 1 };
    let (_, sent) = given_up(recovery, u64::MAX);
    assert!((200..=260).contains(&sent), "{sent} times in 2.1 s");
    let (_, sent) = given_up(recovery, MS + MS / 2);
    assert!((5..=8).contains(&sent), "{sent} times before a packet counts as one of these");
}

#[test]
fn a_silent_peer_gets_data_and_not_marks_alone() {
    let (rto, congestion) = (RtoCfg::default(), CongestionChoice::None);
    let recovery = Recovery::Knitting { tail_copies: 1 };
    let mut sender = TpSender::new(&SenderCfg { window_packets: 64, recovery, rto, congestion });
    sender.push();
    let (mut now, mut marks, mut repeats) = (0, 0, Vec::new());
    while sender.on_time(now).is_ok() {
        while let Some(sending) = sender.poll(now) {
            if sending.is_again() {
                repeats.push((now, sending.seq));
            }
        }
        marks += usize::from(sender.poll_tail(now).is_some());
        now = sender.poll_deadline().expect("a packet is out").max(now + 1);
    }
    assert!(marks >= 8, "{marks}");
    // Of eight timeouts the last ones.
    assert!((4..8).contains(&repeats.len()), "{repeats:?}");
    assert!(repeats.iter().all(|(_, seq)| *seq == 0) && repeats[0].0 < 200 * MS, "{repeats:?}");
}

#[test]
fn packets_leave_in_bursts_at_the_rate() {
    let mut sender = TpSender::new(&SenderCfg {
        window_packets: 64,
        recovery: Recovery::SelectiveRepeat,
        rto: RtoCfg::default(),
        congestion: CongestionChoice::Delay,
    });
    (0..60).for_each(|_| sender.push());
    while sender.poll(0).is_some() {}
    let ack = AckFeedback { edge: 10, gap: false, trigger: Some(0), received: [0; 4] };
    sender.on_ack(10 * MS, &ack).expect("sent");
    let window = sender.congestion_window().expect("it is bounded");
    assert_eq!(window, 20);
    // Twice the window in a round trip: a packet each 0.25 ms, four of them in a burst.
    let mut now = 10 * MS;
    let mut left = Vec::new();
    while left.len() < 20 {
        while sender.poll(now).is_some() {
            left.push(now);
        }
        now = sender.poll_deadline().expect("packets are out").max(now + 1);
        assert!(now < 100 * MS, "{left:?}");
    }
    let at_once = left.iter().filter(|at| **at == 10 * MS).count();
    assert!((2..=5).contains(&at_once), "{left:?}");
    assert!((13 * MS..=15 * MS).contains(&left[19]), "{left:?}");
}
