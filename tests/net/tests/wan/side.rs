//! One path twice: between nodes on two hosts in real time, and in the model of `urma-lab wan` with the costs of this machine.
//!
//! Must not compare what a node does not do by itself: the nodes have no setting but the faults of their links.

use lab::calibrate::flow::{FlowEnd, MESSAGE};
use lab::calibrate::{CalibrateError, CalibratePlan, Calibrated, measure};
use lab::units::GridError;
use lab::wan::cpu::CpuCosts;
use lab::wan::grid::GridText;
use lab::wan::path;
use urma::{NodeCfg, Opened, RawEid};
use urma_net::Lab;

/// A path between the two hosts.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct WanCell {
    /// Round-trip time in microseconds.
    pub(crate) rtt_us: u32,
    /// Lost packets of both directions, of 100.
    pub(crate) loss_percent: u32,
}

impl WanCell {
    /// `URMA_LINK_FAULTS` of both ends: each delays and loses what it sends.
    pub(crate) fn faults(&self) -> String {
        format!("delay={}us,loss={}%,seed=1", self.rtt_us / 2, self.loss_percent)
    }
}

/// Time, in round trips of the path, until a TP that was just opened sends its first packet: it first asks how long packets may
/// be, which takes a round trip, and goes on without an answer after 10, 20 and 40 ms.
pub(crate) fn probed(cell: WanCell) -> f64 {
    (70_000.0 / f64::from(cell.rtt_us)).min(1.0)
}

/// Packets of a node's send window.
const WINDOW: u32 = 16_384;
/// Seeds of a cell of the model, whose median counts.
const SEEDS: u64 = 5;

/// Opens a node on the host of its end, which has its address as EID.
pub(crate) fn open_on(lab: &Lab, end: FlowEnd, cfg: NodeCfg) -> Result<Opened, String> {
    let host = lab.host(usize::from(end == FlowEnd::Receiver));
    let eid = match host.address() {
        std::net::IpAddr::V4(address) => address.to_ipv6_mapped(),
        std::net::IpAddr::V6(address) => address,
    };
    let cfg = NodeCfg { eid: Some(RawEid(eid.octets())), ..cfg };
    host.run(|| urma::open_node(cfg).map_err(|error| error.to_string()))
}

/// What packets between these hosts cost.
pub(crate) fn calibrated(
    lab: &Lab,
    messages: u32,
    rounds: u32,
) -> Result<Calibrated, CalibrateError> {
    measure(&CalibratePlan { mtu: None, messages, rounds }, &|end, cfg| open_on(lab, end, cfg))
}

/// Time of so many messages in the model, which begin so many round trips before the first packet, in s. Of the loss their
/// sender knows what `tail` says; a node learns it.
pub(crate) fn model_s(
    (cell, setup): (WanCell, f64),
    messages: u32,
    payload: u64,
    costs: CpuCosts,
    tail: &str,
) -> Result<f64, GridError> {
    let WanCell { rtt_us, loss_percent } = cell;
    let loss = f64::from(loss_percent) / 100.0;
    let grid = GridText {
        // The cable has no rate of its own: what it carries is what the ends can.
        rates: vec!["1T".to_owned()],
        rtts: vec![format!("{rtt_us}us")],
        losses: vec![if loss_percent == 0 { "none".to_owned() } else { format!("iid:{loss}") }],
        sizes: vec![format!("{}B", u64::from(messages) * u64::from(MESSAGE))],
        window_packets: Some(WINDOW),
        setup,
        congestion: "delay".to_owned(),
        cpu: Some(costs.to_string()),
        packet: (payload, 126),
        feedback_loss: loss,
        dma_latency: "0ns".to_owned(),
        tail: tail.to_owned(),
        ..GridText::default()
    };
    let cell = grid.cells()?.remove(0);
    let mut times: Vec<f64> = (1..=SEEDS)
        .filter_map(|seed| path::run(&cell.run, seed).completions_s.first().copied())
        .collect();
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}
