//! A slice of the table of docs/wan.md: two paths between two hosts beside the model, which is told what packets cost here.
//!
//! Other processes take what time they want from real ones, so only the order of magnitude is compared; `cargo xtask bench-wan`
//! has the table.

use std::error::Error;

use lab::calibrate::flow::{FlowCfg, flow};
use lab::wan::cpu::CpuCosts;
use urma_net::{Lab, LabPlan};

mod side;

use side::{WanCell, probed};

const MESSAGES: u32 = 1000;
/// The best of so many flows counts.
const ROUNDS: u32 = 3;
/// How much slower a flow may be than the model, whose ends have a processor each.
const SLOWER: f64 = 20.0;
/// How much faster: the costs were measured a moment before, when others may have had more of the caches.
const FASTER: f64 = 4.0;

#[test]
fn two_paths_take_what_the_model_says_with_the_costs_of_this_machine() -> Result<(), Box<dyn Error>>
{
    let Some(lab) = Lab::or_skip(LabPlan::cable(1500)) else { return Ok(()) };
    let calibrated = side::calibrated(&lab, MESSAGES, ROUNDS)?;
    let (costs, payload) = (calibrated.costs, calibrated.payload);
    println!("--cpu {costs}, packets of {payload} bytes");
    for (end, cost) in [("send", costs.send), ("receive", costs.receive)] {
        assert!((50_000..100_000_000).contains(&cost), "{end}: {costs}");
    }
    // A message of 64 KiB over an MTU of 1,500.
    assert!((1200..1400).contains(&payload), "{payload}");
    for loss_percent in [0, 1] {
        let cell = WanCell { rtt_us: 2000, loss_percent };
        let model_s = side::model_s((cell, probed(cell)), MESSAGES, payload, costs, "learnt")?;
        let mut wire_s = f64::INFINITY;
        for _ in 0..ROUNDS {
            let cfg = FlowCfg { mtu: None, faults: &cell.faults(), messages: MESSAGES };
            let flow = flow(&cfg, &|end, cfg| side::open_on(&lab, end, cfg))?;
            wire_s = wire_s.min(flow.took_s);
        }
        println!("{cell:?}: model {:.1} ms, wire {:.1} ms", model_s * 1e3, wire_s * 1e3);
        let times = wire_s / model_s;
        assert!((1.0 / FASTER..SLOWER).contains(&times), "{cell:?}: {wire_s} s, model {model_s} s");
    }
    Ok(())
}

/// Behind a megabyte come repair packets, and some of the packets come back by them; the model would promise more if they were
/// free.
#[test]
fn a_repair_that_is_counted_free_shows() -> Result<(), Box<dyn Error>> {
    let costs = CpuCosts::parse("send=700ns,receive=500ns,repair=300ns,repaired=600ns")?;
    let cell = WanCell { rtt_us: 10_000, loss_percent: 5 };
    let time = |costs| side::model_s((cell, 0.0), 16, 1365, costs, "oracle");
    let counted_s = time(costs)?;
    for free in [CpuCosts { repair: 0, ..costs }, CpuCosts { repaired: 0, ..costs }] {
        let free_s = time(free)?;
        assert!(counted_s > 1.01 * free_s, "{counted_s} s, with {free} {free_s} s");
    }
    Ok(())
}
