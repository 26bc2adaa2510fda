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

/// Links of the flows: one in which all packets come in order; one in which most wait behind a gap; one with so many packets on
/// it that they leave the caches. The round trip of the second is longer than the time between two losses, and shorter than one
/// whose tails are protected by repair packets.
const LINKS: [&str; 3] = ["delay=200us,seed=1", "delay=200us,loss=1%,seed=1", "delay=5ms,seed=1"];
/// Round trips of the first and the third, in s.
const RTTS_S: [f64; 2] = [400e-6, 10e-3];
/// Packets of a group of the repair code.
const GROUP: usize = 200;

/// Least times of the ends for a packet, in ns, and most packets on the path in the mean.
#[derive(Clone, Copy, Debug)]
struct Least {
    sender: f64,
    receiver: f64,
    on_path: f64,
}

/// Measures this machine by flows between two nodes that `open` opens.
pub fn measure(plan: &CalibratePlan, open: OpenNode<'_>) -> Result<Calibrated, CalibrateError> {
    let none = Least { sender: f64::INFINITY, receiver: f64::INFINITY, on_path: 0.0 };
    let (mut least, mut last) = ([none; LINKS.len()], [None; LINKS.len()]);
    let mut code = f64::INFINITY;
    for _ in 0..plan.rounds.max(1) {
        for (at, faults) in LINKS.into_iter().enumerate() {
            let found = flow(&FlowCfg { mtu: plan.mtu, faults, messages: plan.messages }, open)?;
            let packets = found.packets as f64;
            let [calm_s, long_s] = RTTS_S;
            let rtt_s = if at == LONG { long_s } else { calm_s };
            let least = &mut least[at];
            least.sender = least.sender.min(found.sender_ns / packets);
            least.receiver = least.receiver.min(found.receiver_ns / packets);
            least.on_path = least.on_path.max(packets * rtt_s / found.took_s);
            last[at] = Some(found);
        }
        code = code.min(code_ns(last[0].map_or(0, |flow| flow.payload())));
    }
    let [Some(calm), Some(lossy), _] = last else {
        return Err(CalibrateError { what: "measuring", why: "there was no round".to_owned() });
    };
    Ok(Calibrated { costs: costs(least, &lossy, code), payload: calm.payload() })
}

/// The flow with many packets on the path.
const LONG: usize = 2;

/// What the ends take for a packet of a path without loss; what more for one that is sent while many are on the path, that is
/// sent again or kept.
fn costs([calm, lossy, long]: [Least; 3], flow: &MeasuredFlow, code_ns: f64) -> CpuCosts {
    let part = |count: u64| count as f64 / flow.packets.max(1) as f64;
    let (again, beyond_gap) = (part(flow.again), part(flow.beyond_gap));
    let over = |ns: f64, part: f64| if part > 0.0 { (ns / part).max(0.0) } else { 0.0 };
    let [send, flight, again, receive, kept, code] = [
        calm.sender,
        over(long.sender - calm.sender, (long.on_path - calm.on_path) / 1000.0),
        over(lossy.sender - calm.sender * (1.0 + again), again),
        calm.receiver,
        over(lossy.receiver - calm.receiver, beyond_gap),
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

    #[test]
    fn costs_are_those_counted_by_hand() {
        let flow = MeasuredFlow {
            messages: 10,
            packets: 1000,
            beyond_gap: 500,
            again: 10,
            sender_ns: 0.0,
            receiver_ns: 0.0,
            took_s: 0.0,
        };
        let calm = Least { sender: 700.0, receiver: 600.0, on_path: 500.0 };
        // 1,010 packets of 700 ns and 10 us for each of ten; 600 ns and 90 for each second one.
        let lossy = Least { sender: 807.0, receiver: 645.0, on_path: 400.0 };
        // 200 ns for 4,000 packets more.
        let long = Least { sender: 900.0, receiver: 500.0, on_path: 4500.0 };
        let found = costs([calm, lossy, long], &flow, 40.0);
        let wanted = "send=700ns,flight=50ns,again=10000ns,receive=600ns,kept=90ns,repair=40ns,repaired=40ns";
        assert_eq!(found.to_string(), wanted);
        assert_eq!(flow.payload(), 656);
        // What another process disturbs is no gain of losses.
        let found = costs([lossy, calm, calm], &flow, 40.0);
        assert_eq!((found.flight, found.again, found.kept), (0, 0, 0));
    }

    #[test]
    fn the_code_takes_longer_for_longer_packets() {
        let [short, long] = [64, 8192]
            .map(|payload| (0..3).map(|_| code_ns(payload)).fold(f64::INFINITY, f64::min));
        assert!(short > 0.0 && long > 2.0 * short, "{short} {long}");
    }
}
