//! The grid of bottlenecks: every combination of its lists, checked before the first one runs.
//!
//! - owns: parsing of lists, rules of a cell. takes: text. gives: cells, or the field that is wrong.
//! - must not: run anything.

use urma_recovery::{CongestionChoice, Recovery};

use super::rival::RivalKind;
use super::world::{Bottleneck, CrossCfg};
use crate::units::{self, GridError};
use crate::wan::grid::{read_loss, read_tail, whole, within, wrong};
use crate::wan::loss::LossCfg;

/// Most flows of one cell.
const FLOWS_MAX: u32 = 1000;
/// Most rivals of one cell.
const RIVALS_MAX: usize = 100;
/// Cells of a grid.
const CELLS_MAX: usize = 10_000;
/// Times that a packet sent again goes at once, as in a node.
const TAIL_COPIES: u8 = 3;

/// The lists of a grid, as text.
#[derive(Clone, PartialEq, Debug)]
pub struct BottleneckText {
    /// Rates of the link.
    pub rates: Vec<String>,
    /// Round-trip times without queues.
    pub rtts: Vec<String>,
    /// Loss models with their means.
    pub losses: Vec<String>,
    /// Lengths of the queue, in packets or bandwidth-delay products.
    pub queues: Vec<String>,
    /// Numbers of our flows.
    pub flows: Vec<u32>,
    /// Names of their congestion control.
    pub congestions: Vec<String>,
    /// Flows of others beside them, such as `cubic+bbr`.
    pub besides: Vec<String>,
    /// Rate, on and off time of cross traffic.
    pub cross: String,
    /// Bytes of a message; none: flows have no end.
    pub message: Option<String>,
    /// Payload and header bytes of a packet.
    pub packet: (u64, u64),
    /// What senders expect of the path's loss.
    pub tail: String,
    /// Length of a run, and the time after which it is measured.
    pub time: (String, String),
    /// Time between the starts of two flows.
    pub stagger: String,
    /// Packets that a link may carry in a run.
    pub budget: u64,
}

/// One combination of all lists.
#[derive(Clone, PartialEq, Debug)]
pub struct BottleneckCell {
    /// Bits a second of the link.
    pub rate_bps: f64,
    /// Loss model as text.
    pub loss: String,
    /// Length of the queue as the option gives it.
    pub queue: String,
    /// Flows of others as the option gives them.
    pub beside: String,
    /// Cross traffic as the option gives it.
    pub cross: String,
    /// Payload and header bytes of a packet.
    pub packet: (u64, u64),
    /// Packets of a bandwidth-delay product.
    pub bdp_packets: f64,
    /// What a run is made from.
    pub run: Bottleneck,
}

/// Link of a cell: rate in bits a second, round-trip time in ps, losses.
type CellPath = (f64, f64, LossCfg);

impl BottleneckText {
    /// All cells, the last list fastest; every one is checked.
    pub fn cells(&self) -> Result<Vec<BottleneckCell>, GridError> {
        let lists = [
            self.rates.len(),
            self.rtts.len(),
            self.losses.len(),
            self.queues.len(),
            self.flows.len(),
            self.congestions.len(),
            self.besides.len(),
        ];
        let count = lists.iter().try_fold(1_usize, |all, len| all.checked_mul(*len));
        if count.is_none_or(|count| count == 0 || count > CELLS_MAX) {
            let want = format!("1 to {CELLS_MAX} combinations of all lists");
            return Err(wrong("grid", format!("{lists:?}"), want));
        }
        let (payload, overhead) = self.packet;
        if !(64..=65_536).contains(&payload) {
            return Err(wrong("payload", payload, "64 to 65536 bytes"));
        }
        if !(1..=1024).contains(&overhead) {
            return Err(wrong("overhead", overhead, "1 to 1024 bytes"));
        }
        let mut cells = Vec::new();
        for rate in &self.rates {
            let rate_bps = within("rate", rate, units::rate(rate), (1e6, 1e12), "1M to 1T")?;
            for rtt in &self.rtts {
                let rtt_ps = within("rtt", rtt, units::time(rtt), (1e6, 1e13), "1us to 10s")?;
                for loss in &self.losses {
                    let path = (rate_bps, rtt_ps, read_loss(loss)?);
                    for queue in &self.queues {
                        for &flows in &self.flows {
                            for congestion in &self.congestions {
                                for beside in &self.besides {
                                    let who = (flows, congestion.as_str(), beside.as_str());
                                    cells.push(self.cell(path, queue, who)?);
                                }
                            }
                        }
                    }
                }
            }
        }
        Ok(cells)
    }

    fn cell(
        &self,
        (rate_bps, rtt_ps, loss): CellPath,
        queue: &str,
        (flows, congestion, beside): (u32, &str, &str),
    ) -> Result<BottleneckCell, GridError> {
        let (payload, overhead) = self.packet;
        let packet_ps = (payload + overhead) as f64 * 8e12 / rate_bps;
        let bdp_packets = rtt_ps / packet_ps;
        if !(1..=FLOWS_MAX).contains(&flows) {
            return Err(wrong("flows", flows, format!("1 to {FLOWS_MAX}")));
        }
        let known = CongestionChoice::ALL;
        let choice = known.into_iter().find(|known| known.name() == congestion);
        let names = known.map(CongestionChoice::name).join(", ");
        let message = self.message.as_ref().map(|message| {
            let want = "1B to 1000000GB";
            let bytes = within("message", message, units::bytes(message), (1.0, 1e15), want)?;
            Ok(whole((bytes / payload as f64).ceil()))
        });
        let congestion = choice.ok_or_else(|| wrong("congestion", congestion, names))?;
        let rivals = read_rivals(beside)?;
        let (until_ns, from_ns) = self.times(rate_bps, packet_ps)?;
        let stagger = (0.0, 1e15);
        let stagger =
            within("stagger", &self.stagger, units::time(&self.stagger), stagger, "0ms to 1000s")?;
        Ok(BottleneckCell {
            rate_bps,
            loss: loss.name(),
            queue: queue.to_owned(),
            beside: beside.to_owned(),
            cross: self.cross.clone(),
            packet: self.packet,
            bdp_packets,
            run: Bottleneck {
                congestion,
                recovery: Recovery::Knitting { tail_copies: TAIL_COPIES },
                expected_loss: read_tail(&self.tail, loss)?,
                flows: flows as usize,
                message: message.transpose()?,
                rivals,
                cross: read_cross(&self.cross, (payload + overhead) as f64 * 8.0)?,
                packet_ps: whole(packet_ps.round()),
                rtt_ns: whole(rtt_ps / 1000.0),
                queue: read_queue(queue, bdp_packets)?,
                loss,
                stagger_ns: whole(stagger / 1000.0),
                until_ns,
                from_ns,
            },
        })
    }

    /// End of a run and from when on it is measured, in ns.
    fn times(&self, rate_bps: f64, packet_ps: f64) -> Result<(u64, u64), GridError> {
        let (time, after) = (&self.time.0, &self.time.1);
        let time_ps = within("time", time, units::time(time), (1e9, 1e16), "1ms to 10000s")?;
        let packets = time_ps / packet_ps;
        if packets > self.budget as f64 {
            let value = format!("{time} at {} Gb/s, {} packets", rate_bps / 1e9, packets.ceil());
            let want = format!("at most --budget {} packets", self.budget);
            return Err(wrong("time", value, want));
        }
        let want = format!("less than the {time} of a run");
        let after_ps = within("after", after, units::time(after), (0.0, time_ps - 1e6), &want)?;
        Ok((whole(time_ps / 1000.0), whole(after_ps / 1000.0)))
    }
}

/// Packets, or bandwidth-delay products such as `0.5bdp`.
fn read_queue(text: &str, bdp_packets: f64) -> Result<u64, GridError> {
    let products = text.strip_suffix("bdp").map(str::parse::<f64>);
    let packets = match products {
        Some(products) => products.ok().map(|products| (products * bdp_packets).round()),
        None => text.parse::<u32>().ok().map(f64::from),
    };
    let packets = packets.filter(|packets| (1.0..=1e8).contains(packets));
    let want = "1 to 100000000 packets, as such or as bandwidth-delay products: 200, 0.5bdp";
    packets.map(whole).ok_or_else(|| wrong("queue", text, want))
}

/// Flows of others: `none`, `cubic`, `cubic+bbr`.
fn read_rivals(text: &str) -> Result<Vec<RivalKind>, GridError> {
    if text == "none" {
        return Ok(Vec::new());
    }
    let one = |name: &str| RivalKind::ALL.into_iter().find(|kind| kind.name() == name);
    let rivals: Option<Vec<RivalKind>> = text.split('+').map(one).collect();
    let names = RivalKind::ALL.map(RivalKind::name).join(", ");
    let want = format!("none, or at most {RIVALS_MAX} of {names}, several as cubic+bbr");
    rivals.filter(|rivals| rivals.len() <= RIVALS_MAX).ok_or_else(|| wrong("beside", text, want))
}

/// Cross traffic: `none`, or rate, time with and time without traffic: `100M,1s,500ms`.
fn read_cross(text: &str, packet_bits: f64) -> Result<Option<CrossCfg>, GridError> {
    if text == "none" {
        return Ok(None);
    }
    let want = "none, or rate, on and off time, such as 100M,1s,500ms: 1k to 1T, 1us to 1000s, off 0s or more";
    let refused = || wrong("cross", text, want);
    let parts: Vec<&str> = text.split(',').collect();
    let [rate, on, off] = parts[..] else { return Err(refused()) };
    let rate = units::rate(rate).ok().filter(|rate| (1e3..=1e12).contains(rate));
    let time = |text, least: f64| {
        let time = units::time(text).ok().filter(|time| (least..=1e15).contains(time));
        time.map(|time| whole(time / 1000.0)).ok_or_else(refused)
    };
    let interval_ps = whole((packet_bits * 1e12 / rate.ok_or_else(refused)?).round()).max(1);
    Ok(Some(CrossCfg { interval_ps, on_off_ns: (time(on, 1e6)?, time(off, 0.0)?) }))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::wan::bottleneck) fn grid() -> BottleneckText {
        let list = |text: &str| vec![text.to_owned()];
        BottleneckText {
            rates: list("334.24M"),
            rtts: list("20ms"),
            losses: list("none"),
            queues: list("1bdp"),
            flows: vec![2],
            congestions: list("delay"),
            besides: list("none"),
            cross: "none".to_owned(),
            message: None,
            packet: (4096, 82),
            tail: "learnt".to_owned(),
            time: ("2s".to_owned(), "1s".to_owned()),
            stagger: "100ms".to_owned(),
            budget: 20_000_000,
        }
    }

    #[test]
    fn every_combination_is_a_cell() {
        let mut grid = grid();
        grid.queues.push("50".to_owned());
        grid.besides.push("cubic+bbr".to_owned());
        grid.cross = "33.424M,1s,500ms".to_owned();
        grid.message = Some("1MB".to_owned());
        let cells = grid.cells().expect("a grid that makes sense");
        assert_eq!(cells.len(), 4);
        let run = &cells[0].run;
        assert_eq!((run.packet_ps, run.queue, run.rtt_ns), (100_000_000, 200, 20_000_000));
        assert_eq!((run.until_ns, run.from_ns), (2_000_000_000, 1_000_000_000));
        assert_eq!((run.message, run.expected_loss), (Some(245), Some(0.0)));
        let cross = run.cross.expect("some");
        assert_eq!((cross.interval_ps, cross.on_off_ns.1), (1_000_000_000, 500_000_000));
        let run = &cells[3].run;
        assert_eq!((run.queue, &run.rivals[..]), (50, &[RivalKind::Cubic, RivalKind::Bbr][..]));
        assert_eq!(run.names(), ["delay", "delay", "cubic", "bbr", "cross"]);
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_field_value_and_rule() {
        type Change = fn(&mut BottleneckText);
        let changes: [(&str, Change); 22] = [
            ("rate", |grid| grid.rates[0] = "0G".to_owned()),
            ("rtt", |grid| grid.rtts[0] = "20".to_owned()),
            ("loss", |grid| grid.losses[0] = "iid:0.6".to_owned()),
            ("queue", |grid| grid.queues[0] = "0".to_owned()),
            ("queue", |grid| grid.queues[0] = "xbdp".to_owned()),
            ("queue", |grid| grid.queues[0] = "-1bdp".to_owned()),
            ("flows", |grid| grid.flows[0] = 0),
            ("flows", |grid| grid.flows[0] = 1001),
            ("congestion", |grid| grid.congestions[0] = "reno".to_owned()),
            ("beside", |grid| grid.besides[0] = "reno".to_owned()),
            ("beside", |grid| grid.besides[0] = "cubic+".to_owned()),
            ("cross", |grid| grid.cross = "100M".to_owned()),
            ("cross", |grid| grid.cross = "100M,0s,1s".to_owned()),
            ("cross", |grid| grid.cross = "100,1s,1s".to_owned()),
            ("message", |grid| grid.message = Some("0B".to_owned())),
            ("payload", |grid| grid.packet.0 = 1),
            ("overhead", |grid| grid.packet.1 = 0),
            ("tail", |grid| grid.tail = "known".to_owned()),
            ("time", |grid| grid.time.0 = "1".to_owned()),
            ("time", |grid| grid.budget = 19_999),
            ("after", |grid| grid.time.1 = "2s".to_owned()),
            ("stagger", |grid| grid.stagger = "1".to_owned()),
        ];
        for (field, change) in changes {
            let mut grid = grid();
            change(&mut grid);
            assert_eq!(grid.cells().expect_err("refused").field, field);
        }
        let mut none = grid();
        none.besides.clear();
        assert_eq!(none.cells().expect_err("refused").field, "grid");
    }
}
