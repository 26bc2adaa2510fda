//! What packets cost the processors of this machine, measured on two nodes of this process.
//!
//! - owns: the traffic that is measured, the split of its time into costs. takes: how nodes are opened, rounds.
//! - gives: costs as `urma-lab wan --cpu` takes them. must not: know a number of any machine.
//!
//! The nodes exchange packets over sockets and through the decorators of a faulty link, as those of docs/wan.md do, and both
//! ends poll. The time of an end is the processor time of its threads, without that of polls that found nothing.

pub mod flow;
mod thread_time;

use std::hint::black_box;

use urma_mem::gf256::add_scaled;

use self::flow::{FlowCfg, MeasuredFlow, OpenNode, flow};
use crate::clock::Stopwatch;
use crate::stats::middle;
use crate::wan::cpu::CpuCosts;

/// Why nothing could be measured.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {why}")]
pub struct CalibrateError {
    /// What was tried when it failed.
    pub what: &'static str,
    /// Why that failed, in words for the user.
    pub why: String,
}

/// What is measured, and how often.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CalibratePlan {
    /// Path MTU, a power of two; `None`: what the route carries.
    pub mtu: Option<u32>,
    /// Messages of 64 KiB of each flow.
    pub messages: u32,
    /// How often each flow is measured; the least time counts, since other processes only add to it.
    pub rounds: u32,
}

/// Costs of this machine, and the packets that they are of.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Calibrated {
    /// What the ends of a path take.
    pub costs: CpuCosts,
    /// Mean payload of a packet in bytes, rounded up.
    pub payload: u64,
}

/// Links of the flows with their round trips in s: one in which all packets come in order; one in which most wait behind a gap; one with so many packets on
/// it that they leave the caches. The round trip of the second is longer than the time between two losses, and shorter than one
/// whose tails are protected by repair packets.
const LINKS: [(&str, f64); 3] = [
    ("delay=200us,seed=1", 400e-6),
    ("delay=200us,loss=1%,seed=1", 400e-6),
    ("delay=5ms,seed=1", 10e-3),
];
/// Packets of a group of the repair code.
const GROUP: usize = 200;

/// Times of the ends for a packet, in ns, and the parts of the packets of one flow.
#[derive(Clone, Copy, Debug)]
struct FlowCosts {
    sender: f64,
    receiver: f64,
    again: f64,
    beyond_gap: f64,
    /// Thousands of packets on the path in the mean.
    on_path: f64,
}

impl FlowCosts {
    fn of(flow: &MeasuredFlow, rtt_s: f64) -> Self {
        let packets = flow.packets.max(1) as f64;
        Self {
            sender: flow.sender_ns / packets,
            receiver: flow.receiver_ns / packets,
            again: flow.again as f64 / packets,
            beyond_gap: flow.beyond_gap as f64 / packets,
            on_path: packets * rtt_s / flow.took_s / 1000.0,
        }
    }
}

/// Measures this machine by flows between two nodes that `open` opens.
pub fn measure(plan: &CalibratePlan, open: OpenNode<'_>) -> Result<Calibrated, CalibrateError> {
    let (mut rounds, mut payload, mut code) = (Vec::new(), 0, f64::INFINITY);
    for _ in 0..plan.rounds.max(1) {
        let run = |(faults, rtt_s): (&str, f64)| {
            let found = flow(&FlowCfg { mtu: plan.mtu, faults, messages: plan.messages }, open)?;
            Ok((found.payload(), FlowCosts::of(&found, rtt_s)))
        };
        let [calm, lossy, long] = LINKS.map(run);
        let ((found, calm), (_, lossy), (_, long)) = (calm?, lossy?, long?);
        payload = found;
        rounds.push([calm, lossy, long]);
        code = code.min(code_ns(payload));
    }
    Ok(Calibrated { costs: costs(&rounds, code), payload })
}

/// What the ends take for a packet of a path without loss: the least, since other processes only add to it. What one costs more
/// that is sent while many are on the path, that is sent again or kept: the middle of the rounds, since it is a difference
/// of two times, each of which others add to.
fn costs(rounds: &[[FlowCosts; 3]], code_ns: f64) -> CpuCosts {
    let least = |time: fn(&FlowCosts) -> f64| {
        rounds.iter().map(|[calm, ..]| time(calm)).fold(f64::INFINITY, f64::min)
    };
    let more = |of: fn(&[FlowCosts; 3]) -> (f64, f64)| {
        let each = rounds.iter().map(of).filter(|(_, part)| *part > 0.0);
        let mut each: Vec<f64> = each.map(|(ns, part)| ns / part).collect();
        each.sort_by(f64::total_cmp);
        if each.is_empty() { 0.0 } else { middle(&each).max(0.0) }
    };
    let [send, flight, again, receive, kept, code] = [
        least(|calm| calm.sender),
        more(|[calm, _, long]| (long.sender - calm.sender, long.on_path - calm.on_path)),
        more(|[calm, lossy, _]| (lossy.sender - calm.sender * (1.0 + lossy.again), lossy.again)),
        least(|calm| calm.receiver),
        more(|[calm, lossy, _]| (lossy.receiver - calm.receiver, lossy.beyond_gap)),
        code_ns,
    ]
    .map(ps);
    CpuCosts { send, flight, again, receive, kept, repair: code, repaired: code }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a time between 0 and some minutes"
)]
const fn ps(ns: f64) -> u64 {
    (ns * 1000.0 + 0.5) as u64
}

/// Packets of a send window over which a group is spread.
const WINDOW: usize = 16_384;

/// Time of a packet in the code of a repair packet, in ns.
fn code_ns(payload: u64) -> f64 {
    let len = usize::try_from(payload).unwrap_or(0);
    // The packets of a group lie apart in the window: they are not in the cache.
    let packets = vec![0x5a_u8; len * WINDOW];
    let mut sum = vec![0_u8; len];
    let groups = WINDOW / GROUP;
    let watch = Stopwatch::start();
    for group in 0..groups {
        let members = packets.chunks_exact(len.max(1)).skip(group).step_by(groups).take(GROUP);
        for (factor, packet) in (2..=u8::MAX).zip(members) {
            add_scaled(black_box(&mut sum), packet, factor);
        }
    }
    watch.passed().as_secs_f64() * 1e9 / (groups * GROUP) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow_costs(sender: f64, receiver: f64, parts: [f64; 3]) -> FlowCosts {
        let [again, beyond_gap, on_path] = parts;
        FlowCosts { sender, receiver, again, beyond_gap, on_path }
    }

    #[test]
    fn costs_are_those_counted_by_hand() {
        let calm = flow_costs(700.0, 600.0, [0.0, 0.0, 0.5]);
        // 1,010 packets of 700 ns and 10 us for each of ten; 600 ns and 90 for each second one.
        let lossy = flow_costs(807.0, 645.0, [0.01, 0.5, 0.4]);
        // 200 ns for 4,000 packets more.
        let long = flow_costs(900.0, 500.0, [0.0, 0.0, 4.5]);
        let wanted = "send=700ns,flight=50ns,again=10000ns,receive=600ns,kept=90ns,repair=40ns,repaired=40ns";
        assert_eq!(costs(&[[calm, lossy, long]], 40.0).to_string(), wanted);
        // Of rounds that others disturbed the least times count, and what is between the greatest and the least difference.
        let slower = flow_costs(750.0, 640.0, [0.0, 0.0, 0.5]);
        let slow = flow_costs(1800.0, 1645.0, [0.01, 0.5, 0.4]);
        let quick = flow_costs(700.0, 600.0, [0.01, 0.5, 0.4]);
        let rounds = [[slower, slow, slow], [calm, lossy, long], [slower, quick, calm]];
        assert_eq!(costs(&rounds, 40.0).to_string(), wanted);
        // What another process disturbs is no gain of losses.
        let found = costs(&[[lossy, calm, calm]], 40.0);
        assert_eq!((found.flight, found.again, found.kept), (0, 0, 0));
    }

    #[test]
    fn parts_are_those_of_the_flow() {
        let flow = MeasuredFlow {
            messages: 10,
            packets: 1000,
            beyond_gap: 500,
            again: 10,
            sender_ns: 700_000.0,
            receiver_ns: 600_000.0,
            took_s: 0.002,
        };
        let FlowCosts { sender, receiver, again, beyond_gap, on_path } = FlowCosts::of(&flow, 0.01);
        assert_eq!((sender, receiver, again, beyond_gap), (700.0, 600.0, 0.01, 0.5));
        assert!((on_path - 5.0).abs() < 1e-9, "{on_path}");
        assert_eq!(flow.payload(), 656);
    }

    #[test]
    fn the_code_takes_longer_for_longer_packets() {
        let [short, long] = [64, 8192]
            .map(|payload| (0..3).map(|_| code_ns(payload)).fold(f64::INFINITY, f64::min));
        assert!(short > 0.0 && long > 2.0 * short, "{short} {long}");
    }
}
