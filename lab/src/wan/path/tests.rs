//! Runs whose counts follow by hand: who sends how much, what is lost, what the steady part of a run is.

use super::super::grid::tests::grid;
use super::*;

/// 40 packets over a path that loses nothing.
fn cfg() -> RunCfg {
    let mut grid = grid();
    grid.losses[0] = "none".to_owned();
    let cfg = grid.cells().expect("a grid that makes sense").remove(0).run;
    RunCfg { packets: 40, ..cfg }
}

/// Every event of a run.
#[derive(Default)]
struct Events(Vec<(u32, TraceEvent)>);

impl PathTrace for Events {
    fn note(&mut self, _at_ps: u64, tp: u32, event: TraceEvent) {
        self.0.push((tp, event));
    }
}

fn traced(cfg: &RunCfg, seed: u64) -> (RunCounts, Vec<(u32, TraceEvent)>) {
    let mut events = Events::default();
    (run_traced(cfg, seed, &mut events), events.0)
}

#[test]
fn what_no_tp_gets_more_of_than_others_is_sent_as_well() {
    for (packets, tps) in [(40, 1), (40, 7), (41, 40), (3, 3)] {
        let (counts, events) = traced(&RunCfg { packets, tps, ..cfg() }, 1);
        assert_eq!((counts.delivered, counts.transmissions), (packets, packets), "{tps} TPs");
        assert_eq!((counts.lost, counts.timeouts), (0, 0));
        let mut shares = vec![0; tps as usize];
        for (tp, event) in events {
            shares[tp as usize] += u64::from(matches!(event, TraceEvent::Sent { .. }));
        }
        let (least, most) = (packets / u64::from(tps), packets.div_ceil(u64::from(tps)));
        assert!(shares.iter().all(|share| (least..=most).contains(share)), "{shares:?}");
    }
}

/// A message begins when the one before has ended; each is as long as the first on a path that loses nothing.
#[test]
fn messages_follow_each_other() {
    for tps in [1, 7] {
        let one = RunCfg { tps, ..cfg() };
        let three = RunCfg { messages: 3, ..one };
        let (first, _) = traced(&one, 1);
        let (all, events) = traced(&three, 1);
        assert_eq!((all.delivered, all.transmissions, all.lost), (120, 120, 0));
        assert_eq!((first.completions_s.len(), all.completions_s.len()), (1, 3));
        assert_eq!(first.completions_s[0], all.completions_s[0]);
        assert_eq!(first.packets_per_s, all.packets_per_s, "the rate is that of the first message");
        for time in &all.completions_s {
            assert!((time / first.completions_s[0] - 1.0).abs() < 0.05, "{:?}", all.completions_s);
        }
        let sent = events.iter().filter(|(tp, event)| {
            *tp == tps - 1 && matches!(event, TraceEvent::Sent { attempt: 1, .. })
        });
        assert_eq!(sent.count() as u64, 3 * three.share(tps - 1));
    }
}

/// With a budget that ends within the second message there is a time of the first one.
#[test]
fn a_budget_leaves_the_messages_that_ended() {
    let (counts, _) = traced(&RunCfg { messages: 3, budget: 60, ..cfg() }, 1);
    assert_eq!((counts.completions_s.len(), counts.transmissions), (1, 60));
}

/// What the first message learnt about the loss of the path protects those behind it; a wrong first estimate is forgotten.
#[test]
fn later_messages_know_what_the_path_loses() {
    let loss = LossCfg::parse("iid:0.02").expect("a model");
    let base = RunCfg { packets: 400, messages: 30, loss, budget: 1_000_000, ..cfg() };
    let later = |expected_loss| {
        let cfg = RunCfg { expected_loss, ..base };
        let runs = (1..=5).map(|seed| run(&cfg, seed).completions_s);
        let mut later: Vec<f64> = runs.flat_map(|times| times[10..].to_vec()).collect();
        later.sort_by(f64::total_cmp);
        later[later.len() / 2]
    };
    let (learnt, wrong, oracle, off) =
        (later(Some(0.0)), later(Some(0.2)), later(Some(0.02)), later(None));
    assert!(learnt < 1.05 * oracle && wrong < 1.05 * oracle, "{learnt} {wrong} {oracle}");
    assert!(off > 1.3 * learnt, "{off} {learnt}");
}

/// Feedback that is lost has no effect: acknowledgements end nothing, reports repeat nothing, marks ask for nothing.
#[test]
fn feedback_that_is_lost_does_not_arrive() {
    let all = RunCfg { feedback_loss: 1.0, budget: 400, ..cfg() };
    let (counts, events) = traced(&all, 1);
    assert_eq!((counts.completions_s.len(), counts.delivered), (0, 40), "no acknowledgement came");
    assert!(events.iter().any(|(_, event)| matches!(event, TraceEvent::Ack { lost: true, .. })));
    let is_there = |event: &TraceEvent| {
        use TraceEvent::{Ack, Report, Tail};
        matches!(
            event,
            Ack { lost: false, .. } | Report { lost: false, .. } | Tail { lost: false, .. }
        )
    };
    assert!(!events.iter().any(|(_, event)| is_there(event)));
    // With losses there are reports; what answers one has its tier.
    let loss = LossCfg::parse("iid:0.2").expect("a model");
    let (_, events) = traced(&RunCfg { loss, ..all }, 1);
    let is_report = |event: &TraceEvent| matches!(event, TraceEvent::Report { .. });
    assert!(events.iter().any(|(_, event)| is_report(event)), "something is missing");
    let answers = |event: &TraceEvent| matches!(event, TraceEvent::Sent { tier, .. } if *tier > 0);
    assert!(!events.iter().any(|(_, event)| answers(event)), "no report came");
    // Where no data arrives either, nothing is said at all.
    let loss = LossCfg { mean: 1.0, ..loss };
    let (counts, events) = traced(&RunCfg { loss, ..all }, 1);
    assert_eq!((counts.delivered, counts.lost), (0, counts.transmissions));
    assert!(events.iter().any(|(_, event)| matches!(event, TraceEvent::Tail { lost: true, .. })));
    assert!(!events.iter().any(|(_, event)| matches!(event, TraceEvent::Ack { .. })));
}

#[test]
fn a_part_of_the_feedback_is_lost_and_delays_the_end() {
    let loss = LossCfg::parse("iid:0.02").expect("a model");
    let base = RunCfg { packets: 4000, loss, budget: 100_000, ..cfg() };
    let time = |feedback_loss| {
        let times = (1..6).map(|seed| {
            let (counts, events) = traced(&RunCfg { feedback_loss, ..base }, seed);
            let lost_of = |event: &TraceEvent| match event {
                TraceEvent::Ack { lost, .. }
                | TraceEvent::Report { lost, .. }
                | TraceEvent::Tail { lost, .. } => Some(*lost),
                _ => None,
            };
            let feedback: Vec<bool> =
                events.iter().filter_map(|(_, event)| lost_of(event)).collect();
            let lost = feedback.iter().filter(|lost| **lost).count() as f64;
            let part = lost / feedback.len() as f64;
            assert!((part - feedback_loss).abs() < 0.1, "{part} of {}", feedback.len());
            *counts.completions_s.first().expect("it ends")
        });
        times.sum::<f64>()
    };
    assert!(time(0.4) > 1.02 * time(0.0));
}

#[test]
fn the_counts_of_a_run_are_those_of_its_events() {
    for strategy in ["gbn", "irn", "seed", "ours"] {
        let mut grid = grid();
        grid.strategies[0] = strategy.to_owned();
        grid.losses[0] = "iid:0.03".to_owned();
        grid.sizes[0] = "8MB".to_owned();
        grid.budget = 100_000;
        let cfg = grid.cells().expect("a grid that makes sense").remove(0).run;
        let (counts, events) = traced(&cfg, 4);
        let count = |is: &dyn Fn(&TraceEvent) -> bool| {
            events.iter().filter(|(_, event)| is(event)).count() as u64
        };
        let sent = count(&|event| matches!(event, TraceEvent::Sent { .. }));
        let lost = count(&|event| matches!(event, TraceEvent::Sent { lost: true, .. }));
        assert_eq!((counts.transmissions, counts.lost), (sent, lost), "{strategy}");
        let repairs = count(&|event| matches!(event, TraceEvent::Repair { .. }));
        let timeouts = count(&|event| matches!(event, TraceEvent::Timeout));
        assert_eq!((counts.repairs, counts.timeouts), (repairs, timeouts), "{strategy}");
        assert_eq!(counts.delivered, cfg.packets, "{strategy}: each packet once");
        let tails = count(&|event| matches!(event, TraceEvent::Tail { .. }));
        let bytes = (sent + repairs) * (cfg.payload + cfg.overhead) + tails * MARK_BYTES;
        assert_eq!(counts.wire_bytes, bytes, "{strategy}");
        // The way there and back, and each packet on the link once.
        let least = counts.wire_bytes as f64 * 8.0 / cfg.rate_bps + cfg.rtt_ps as f64 / 1e12;
        let time = *counts.completions_s.first().expect("it ends");
        assert!(time > 0.98 * least, "{strategy}: {time} {least}");
    }
}

/// Goodput as it follows from the times of arrivals: until the last new packet could have arrived, and not until the last
/// repeated one did.
#[test]
fn goodput_is_that_of_the_arrivals_in_the_steady_part() {
    struct Times(Vec<(u64, TraceEvent)>);
    impl PathTrace for Times {
        fn note(&mut self, at_ps: u64, _tp: u32, event: TraceEvent) {
            self.0.push((at_ps, event));
        }
    }
    for (strategy, loss) in [("irn", "iid:0.02"), ("gbn", "iid:0.001"), ("irn", "none")] {
        let mut grid = grid();
        (grid.strategies[0], grid.losses[0]) = (strategy.to_owned(), loss.to_owned());
        (grid.rtts[0], grid.sizes[0]) = ("1ms".to_owned(), "40MB".to_owned());
        grid.budget = 1_000_000;
        let cfg = grid.cells().expect("a grid that makes sense").remove(0).run;
        let mut times = Times(Vec::new());
        let found = run_traced(&cfg, 3, &mut times).packets_per_s.expect("it is long enough");
        let (mut samples, mut delivered, mut last_new_at) = (vec![(0, 0)], 0, 0);
        for (at, event) in times.0 {
            match event {
                TraceEvent::Sent { attempt: 1, .. } => last_new_at = at,
                TraceEvent::Arrived { arrival: Arrival::Advanced(_) | Arrival::Kept, .. } => {
                    delivered += 1;
                    if at >= samples[samples.len() - 1].0 + cfg.rtt_ps / 16 {
                        samples.push((at, delivered));
                    }
                }
                _ => {}
            }
        }
        let end = last_new_at + cfg.rtt_ps / 2;
        let wanted = steady(&samples, cfg.rtt_ps, end).expect("it is long enough");
        assert!((found / wanted - 1.0).abs() < 1e-9, "{strategy} {loss}: {found} {wanted}");
        assert!(
            samples[samples.len() - 1].0 > end || loss == "none",
            "{strategy}: there is a tail"
        );
    }
}

/// A packet of 4 KiB and its headers takes 83.56 ns at 400 Gb/s; times are rounded to the next ps.
#[test]
fn times_are_rounded_to_picoseconds() {
    assert_eq!([0.0, 0.49, 0.5, 83_559.5, 83_560.49].map(ps), [0, 0, 1, 83_560, 83_560]);
    let cfg = RunCfg { rate_bps: 3e9, payload: 60, overhead: 2, packets: 1, ..cfg() };
    // 496 bits at 3 Gb/s are 165,333.3 ps, the way there and back is the rest.
    let counts = run(&cfg, 1);
    let time = *counts.completions_s.first().expect("it ends");
    let wanted = (165_333 + 2 * (cfg.rtt_ps / 2)) as f64;
    assert!((time * 1e12 - wanted).abs() < 0.5, "{time}");
}

/// Samples of a run that begins slowly, is steady at a packet per microsecond, and ends slowly.
#[test]
fn the_steady_part_begins_after_some_round_trips_and_ends_with_the_last_new_packet() {
    const US: u64 = 1_000_000;
    let delivered = |us: u64| match us {
        0..50 => us / 10,
        50..200 => us - 45,
        _ => 155 + (us - 200) / 10,
    };
    let samples: Vec<(u64, u64)> = (0..300).map(|us| (us * US, delivered(us))).collect();
    let is_steady = |rtt: u64, end: u64| {
        steady(&samples, rtt * US, end * US).is_some_and(|rate| (rate - 1e6).abs() < 1.0)
    };
    // Five round trips of 10 us.
    assert!(is_steady(10, 190));
    // A third of what was sent, when that is less than five round trips.
    assert!(is_steady(1000, 150));
    assert!(!is_steady(9, 190) && !is_steady(10, 210), "of more it is another rate");
    assert_eq!(steady(&samples[..1], 10 * US, 190 * US), None, "one sample is no part");
    assert_eq!(steady(&[], 10 * US, 190 * US), None);
}

#[test]
fn messages_take_the_link_one_after_the_other() {
    // 1,000 bytes take 8 us; the way takes 100 us.
    let mut link = PathLink::new(100, 1000, 8);
    let mark = |end| Forward::Tail(urma_recovery::TailMark { end, ..Default::default() });
    link.put(0, (1, mark(1)), 1000, 0);
    link.put(0, (2, mark(2)), 250, 0);
    assert_eq!((link.free_at(), link.wire_bytes()), (10, 1250));
    // One that is late by three packets is overtaken by what comes within that time.
    link.put(50, (3, mark(3)), 1000, 3);
    link.put(50, (4, mark(4)), 1000, 0);
    assert_eq!(link.occupy(50, 500), 70, "lost, and on the link nevertheless");
    let mut arrived = Vec::new();
    while let Some((at, end)) = link.next((0, 0)) {
        let taken = match end {
            LinkEnd::Late => link.take_late(),
            _ => link.take_forward(at, (0, 0)),
        };
        arrived.push((at, taken.expect("it arrives").0));
    }
    assert_eq!(arrived, [(108, 1), (110, 2), (166, 4), (183, 3)]);
    link.put_back(70, 9, Back::Report(Box::new(urma_recovery::LossReport::new(1, 0))));
    assert_eq!(link.next((0, 0)), Some((170, LinkEnd::Back)), "the way back has no rate");
}

/// A millisecond in picoseconds.
const MS: u64 = 1_000_000_000;

/// A link of 1 Tb/s and a round trip of 1 ms, where only the ends take time.
fn with_costs(costs: &str) -> RunCfg {
    let cpu = CpuCosts::parse(costs).expect("costs");
    RunCfg { rate_bps: 1e12, rtt_ps: MS, packets: 10_000, budget: 100_000, cpu: Some(cpu), ..cfg() }
}

fn time_us(counts: &RunCounts) -> f64 {
    counts.completions_s.first().expect("it ends") * 1e6
}

/// 10,000 packets that the slower end takes one after the other, the way there and back. Acknowledgements are of 16 packets.
#[test]
fn the_slower_end_bounds_the_rate() {
    for (costs, least_us) in [
        ("send=1us", 10_000.0),
        ("receive=2us", 20_000.0),
        ("send=1us,receive=2us", 20_000.0),
        ("send=2us,receive=1us", 20_000.0),
    ] {
        let counts = run(&with_costs(costs), 1);
        let over = time_us(&counts) - 1000.0 - least_us;
        assert!((0.0..200.0).contains(&over), "{costs}: {over} us more");
        assert_eq!((counts.delivered, counts.timeouts), (10_000, 0), "{costs}");
    }
    // The link is used while an end works: it bounds the rate where it is the slowest.
    let cfg = RunCfg { rate_bps: 1e10, ..with_costs("send=2us,receive=2us") };
    let least_us = (10_000 * (cfg.payload + cfg.overhead) * 8) as f64 / 1e4;
    let over = time_us(&run(&cfg, 1)) - 1000.0 - least_us;
    assert!((0.0..50.0).contains(&over), "{over} us more");
}

/// A receiver that is slower than packets come takes as many as a node does, and acknowledges them once; without costs it
/// acknowledges each sixteenth.
#[test]
fn an_end_takes_what_came_before_it_answers() {
    let acks = |cfg: &RunCfg| {
        let (_, events) = traced(cfg, 1);
        events.iter().filter(|(_, event)| matches!(event, TraceEvent::Ack { .. })).count()
    };
    let slow = with_costs("receive=2us");
    let bytes = slow.payload + slow.overhead;
    let passes = slow.packets.div_ceil((256 << 10) / bytes);
    let found = acks(&slow) as u64;
    assert!((passes..passes + 20).contains(&found), "{found} for {passes} passes");
    assert!(acks(&RunCfg { cpu: None, ..slow }) as u64 >= slow.packets / 16);
}

/// Packets that go again cost the sender more, and those behind a gap the receiver.
#[test]
fn losses_cost_both_ends() {
    let loss = LossCfg::parse("iid:0.05").expect("a model");
    let cfg =
        |costs: &str| RunCfg { loss, packets: 5000, expected_loss: None, ..with_costs(costs) };
    let free = run(&cfg("send=1us,receive=1us"), 2);
    let again = free.transmissions - 5000;
    assert!(again > 200 && free.repairs == 0, "{free:?}");
    let more = time_us(&run(&cfg("send=1us,again=10us,receive=1us"), 2)) - time_us(&free);
    // 250 in the mean; copies at the end cost nothing while the sender waits.
    assert!((2300.0..3800.0).contains(&more), "{more} us more for {again} packets");
    // Some 1,000 packets are on their way there and back.
    let more = time_us(&run(&cfg("send=1us,flight=500ns,receive=1us"), 2)) - time_us(&free);
    assert!((1000.0..5000.0).contains(&more), "{more} us more for 5000 packets");
    // With a loss in each 20 us of a round trip of 1 ms nearly all packets come behind a gap.
    let more = time_us(&run(&cfg("send=1us,receive=1us,kept=1us"), 2)) - time_us(&free);
    assert!((4000.0..5200.0).contains(&more), "{more} us more for 5000 packets");
}

/// The first message takes as much longer as a TP takes to open.
#[test]
fn a_tp_is_opened_before_its_first_packet() {
    let later = RunCfg { messages: 2, setup_ps: 15 * MS, ..cfg() };
    let (plain, later) = (run(&RunCfg { setup_ps: 0, ..later }, 1), run(&later, 1));
    let more = later.completions_s[0] - plain.completions_s[0];
    assert!((more - 0.015).abs() < 1e-9, "{more} s");
    assert_eq!(later.completions_s[1], plain.completions_s[1]);
}

/// What repair packets cost, by the packets that they cover, and those that they bring back.
#[test]
fn no_repair_is_counted_free() {
    let loss = LossCfg::parse("iid:0.05").expect("a model");
    let cfg =
        |costs: &str| RunCfg { loss, packets: 600, expected_loss: Some(0.05), ..with_costs(costs) };
    let free = run(&cfg("send=1us"), 2);
    assert!(free.repairs > 60 && free.repaired > 20, "{free:?}");
    // Three groups of 200 packets.
    for (cost, times) in [("repair", free.repairs), ("repaired", free.repaired)] {
        let counts = run(&cfg(&format!("send=1us,{cost}=100ns")), 2);
        assert_eq!((counts.repairs, counts.repaired), (free.repairs, free.repaired));
        let more = time_us(&counts) - time_us(&free);
        let wanted = (times * 200) as f64 * 0.1;
        assert!((more / wanted - 1.0).abs() < 0.05, "{cost}: {more} us for {wanted}");
    }
}

/// With costs an end has the timers of a node: the first timeout is 10 ms, and acknowledgements wait for 0.2 ms.
#[test]
fn ends_with_costs_have_the_timers_of_nodes() {
    for (cpu, timeouts) in [(None, 0), (Some(CpuCosts::default()), 3)] {
        let counts = run(&RunCfg { rtt_ps: 100 * MS, cpu, ..cfg() }, 1);
        // After 10, 30 and 70 ms.
        assert_eq!(counts.timeouts, timeouts, "{cpu:?}");
    }
}

/// Slow start: ten packets, then twice as many each round trip.
#[test]
fn congestion_control_bounds_what_is_on_the_path() {
    let rounds = |congestion| {
        let counts = run(&RunCfg { packets: 10_000, budget: 100_000, congestion, ..cfg() }, 1);
        time_us(&counts) / 10_000.0
    };
    let [none, delay, cubic] =
        [CongestionChoice::None, CongestionChoice::Delay, CongestionChoice::Cubic].map(rounds);
    assert!(none < 1.4, "{none} round trips");
    for rounds in [delay, cubic] {
        assert!((8.0..14.0).contains(&rounds), "{rounds} round trips");
    }
}
